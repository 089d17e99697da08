//! The schema's own words, and the files made of it.

use super::*;

fn found(text: &str) -> Vec<String> {
    let mut source = SourceMap::default();
    source.add("suite.toml", text, None);
    let mut tree = tree::parse(text, 0).unwrap();
    let findings = check(&mut tree, &Path::default(), &source);
    findings
        .problems
        .iter()
        .map(|problem| {
            let at = problem.span.as_ref().map_or("?", |span| source.text(span));
            let help = problem.help.as_deref().unwrap_or("-");
            format!("{at}: {}: {}: {help}", problem.code, problem.message)
        })
        .collect()
}

#[test]
fn our_own_schema_compiles_and_takes_a_small_suite() {
    assert!(shape().validator.is_some());
    assert!(!shape().root.to_string().contains("$ref"));
    assert!(!shape().root.to_string().contains("null"));
    assert_eq!(
        found(
            "version = 1\n[suite]\nname = \"a\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"decode\"\nmatrix.concurrency = [1, 4]\n[[expect]]\nmetric = \"output-throughput\"\nmin = 50\n"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn messages_say_what_belongs_there() {
    let said = [
        "version = 2",
        "[engine]\nkind = \"vlm\"",
        "[engine]\nkind = \"tensorrt\"",
        "[engine]\nversion = 0.29",
        "[engine]\ncommand = 5",
        "[engine]\nport = 70000",
        "[engine]\nenv = { A = 1 }",
        "[engine]\nready = \"10m\"",
        "[engin]\nkind = \"sim\"",
        "[test]\nkind = \"decode\"",
        "[[test]]\nduration = 30",
        "[[test]]\nmin_tokens = 30",
        "[[test]]\nslack = \"5%\"",
        "[[test]]\nfrequency = 1",
        "[[test]]\nprefix = \"share\"",
        "[[test]]\nmatrix.30 = { from = 1, 40 = 8 }",
        "[[test]]\nprefix = { group = 3, length = 6 }",
        "[[test]]\nmatrix.context = 5",
        "[[test]]\nmatrix.concurrency = { from = 1, to = 8, time = 2 }",
        "[[test]]\nmatrix.layout = [[1]]",
        "[[test]]\nsamples = 0",
        "[[test]]\nsamples = 2.5",
        "[[test]]\nsamples = \"3\"",
        "[[expect]]\nmin = { row = \"context\" }",
        "[[expect]]\nmin = true",
        "[[expect]]\nmin.grid = [[\"8K\", {}]]",
        "[[expect]]\nslack = 0.05",
        "[[expect]]\nmin-ratio = 0.97",
        "[[expect]]\nwhere = \"8K\"",
        "[profile.smoke]\nexpect = []",
        "[variant.old]\ntest.decode.duration = \"5s\"",
        "[compare]\npairs = 4",
        "[[quarantine]]\nexpires = 5",
        "log-must-contain = [\"x\"]",
    ]
    .iter()
    .flat_map(|text| found(text))
    .collect::<Vec<_>>()
    .join("\n");
    insta::assert_snapshot!(said);
}

#[test]
fn the_files_below_schemas_are_these() {
    for (name, text) in files() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
        if std::env::var_os("TOKGATE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == text, "schemas/{name} differs; `tokgate schema` writes it anew");
    }
}

#[test]
fn editors_get_a_schema_without_references() {
    let [_, (_, text)] = files();
    assert!(text.contains("draft-07"));
    assert!(!text.contains("$ref"));
    assert!(!text.contains("x-expects"));
}

#[test]
fn what_is_wrong_is_taken_away() {
    let text = "[engine]\nkind = \"vlm\"\nhst = \"a\"\nport = 1\n";
    let mut source = SourceMap::default();
    source.add("suite.toml", text, None);
    let mut tree = tree::parse(text, 0).unwrap();
    let mut lost = check(&mut tree, &Path::default(), &source).lost;
    lost.sort();
    assert_eq!(lost, ["host", "hst", "kind"]);
    assert_eq!(tree::to_json(&tree).to_string(), r#"{"engine":{"port":1}}"#);
}
