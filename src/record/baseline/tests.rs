//! Files of recorded runs: their order, and each way in which one can be wrong.

use std::path::Path;

use super::*;
use crate::record::provenance::Provenance;

fn run(id: &str, started: &str) -> Run {
    Run {
        id: id.into(),
        started: started.into(),
        tokgate: "0.1.0".into(),
        suite_hash: "abc".into(),
        engines: BTreeMap::from([("engine".into(), "vllm 0.29.0".into())]),
        gpu: "NVIDIA H200".into(),
        ..Run::default()
    }
}

fn values(cell: &str, metric: &str, runs: &[(&str, f64)]) -> CellLine {
    CellLine {
        test: "decode".into(),
        variant: None,
        cell: cell.into(),
        metric: metric.into(),
        unit: "tok/s".into(),
        better: Direction::Higher,
        values: runs.iter().map(|(id, value)| ((*id).to_owned(), *value)).collect(),
    }
}

fn collected(id: &str, started: &str, cells: Vec<CellLine>) -> Collected {
    let workload = BTreeMap::from([("duration".to_owned(), "30s".to_owned())]);
    Collected {
        runs: vec![run(id, started)],
        tests: BTreeMap::from([("decode".to_owned(), workload)]),
        cells,
    }
}

fn provenance() -> Provenance {
    let words = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Provenance {
        suite_hash: "abc".into(),
        facts: words(&[("hardware.gpu", "NVIDIA H200"), ("hardware.count", "8")]),
        workloads: BTreeMap::from([("decode".to_owned(), words(&[("duration", "30s")]))]),
        identity: vec!["hardware.gpu".into(), "hardware.count".into(), "model.name".into()],
        baseline: None,
    }
}

pub(crate) fn baseline() -> Baseline {
    let mut baseline = Baseline::new("card", provenance().identity());
    let cells = |id: &str, value: f64| {
        ["context=64K,concurrency=1", "context=8K,concurrency=16", "context=8K,concurrency=2"]
            .map(|cell| values(cell, "output-throughput", &[(id, value)]))
            .to_vec()
    };
    let later = collected("aa", "2027-01-02T00:00:00Z", cells("aa", 100.0));
    let earlier = collected("bb", "2027-01-01T00:00:00Z", cells("bb", 102.0));
    baseline.add(&[later, earlier], false);
    baseline
}

fn parse(text: &str) -> Result<Baseline, BaselineError> {
    Baseline::parse(Path::new("x.jsonl"), text)
}

fn said(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_file_has_one_order_and_reads_back_as_itself() {
    let text = baseline().render();
    insta::assert_snapshot!(text);
    assert_eq!(parse(&text).unwrap(), baseline());
    // Lines that a merge has put in another order are the same baseline.
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.len() - 1;
    lines.swap(last, last - 1);
    assert_eq!(parse(&format!("{}\n", lines.join("\n"))).unwrap(), baseline());
}

#[test]
fn another_run_changes_its_lines_alone() {
    let before = baseline().render();
    let mut after = baseline();
    let cell = values("context=8K,concurrency=2", "output-throughput", &[("cc", 99.0)]);
    after.add(&[collected("cc", "2027-01-03T00:00:00Z", vec![cell])], false);
    let after = after.render();
    let other = after.lines().filter(|line| !before.contains(line)).count();
    assert_eq!((other, after.lines().count()), (2, before.lines().count() + 1));
}

#[test]
fn what_is_replaced_takes_its_runs_along() {
    let mut after = baseline();
    let cells = ["context=64K,concurrency=1", "context=8K,concurrency=16"]
        .map(|cell| values(cell, "output-throughput", &[("cc", 99.0)]))
        .to_vec();
    after.add(&[collected("cc", "2027-01-03T00:00:00Z", cells)], true);
    // One cell is still of the old runs.
    assert_eq!(
        after.runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(),
        ["bb", "aa", "cc"]
    );
    let cell = values("context=8K,concurrency=2", "output-throughput", &[("cc", 99.0)]);
    after.add(&[collected("cc", "2027-01-03T00:00:00Z", vec![cell])], true);
    assert_eq!(after.runs.len(), 1);
}

#[test]
fn each_way_to_be_wrong_has_words_of_its_own() {
    let text = baseline().render();
    let lines: Vec<&str> = text.lines().collect();
    let conflict = text.replacen(
        lines[4],
        &format!("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> nightly", lines[4], lines[4]),
        1,
    );
    let cell = "decode context=8K,concurrency=16 output-throughput";
    for (text, words) in [
        (conflict, "x.jsonl:5 is a marker of a merge conflict, `<<<<<<<`".to_owned()),
        (
            text[..text.len() - 9].to_owned(),
            "x.jsonl is cut short: line 7 ends in the midst".into(),
        ),
        (
            text[..text.len() - 1].to_owned(),
            "x.jsonl is cut short: line 7 ends in the midst".into(),
        ),
        (text[..20].to_owned(), "x.jsonl is cut short: line 1 ends in the midst".into()),
        (
            text.replacen("102.0", "NaN", 1),
            "x.jsonl:5 has a value that is no number (`NaN`)".into(),
        ),
        (
            text.replacen("102.0", "null", 1),
            "x.jsonl:5 has a value that is no number (`null`)".into(),
        ),
        (
            text.replacen("\"format\":1", "\"format\":9", 1),
            "x.jsonl has format 9, this tokgate reads format 1".into(),
        ),
        (
            lines[1..].join("\n") + "\n",
            "x.jsonl is no baseline: its first line does not say what it is of".into(),
        ),
        (String::new(), "x.jsonl is no baseline: its first line does not say what it is of".into()),
        (format!("{text}{}\n", lines[5]), format!("x.jsonl:8 says again what line 6 says: {cell}")),
        (
            text.replacen(lines[1], "", 1),
            "x.jsonl:5 is of test `decode`, of which the file has no line".into(),
        ),
        (
            text.replacen(lines[3], "", 1),
            "x.jsonl:5 has a value of run aa, of which the file has no line".into(),
        ),
    ] {
        assert_eq!(said(&text), words, "{text}");
    }
    // The value of an axis is no value of a run.
    let axis = said(
        &text.replacen("\"unit\"", "\"units\"", 1).replace("concurrency=2", "request-rate=inf"),
    );
    assert!(
        axis.starts_with("x.jsonl:5 is no line of a baseline: unknown field `units`"),
        "{axis}"
    );
    let unknown = said(&text.replacen("\"unit\"", "\"units\"", 1));
    assert!(
        unknown.starts_with("x.jsonl:5 is no line of a baseline: unknown field `units`"),
        "{unknown}"
    );
    let huge = said(&text.replacen("102.0", "1e999", 1));
    assert!(huge.starts_with("x.jsonl:5 is no line of a baseline: number out of range"), "{huge}");
}

#[test]
fn a_baseline_of_something_else_says_both_sides() {
    let misfits = |provenance: &Provenance, suite: &str| {
        let found = baseline().misfits(suite, provenance, ["decode"].into_iter());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(misfits(&provenance(), "card").is_empty());
    assert_eq!(misfits(&provenance(), "dart"), ["it is of suite `card`, and this is `dart`"]);
    let mut other = provenance();
    other.facts.insert("hardware.gpu".into(), "NVIDIA H100 PCIe".into());
    other.facts.insert("model.name".into(), "m".into());
    other.workloads.get_mut("decode").unwrap().insert("duration".into(), "5s".into());
    assert_eq!(
        misfits(&other, "card"),
        [
            "it is of hardware.gpu = `NVIDIA H200`, and this is `NVIDIA H100 PCIe`",
            "it is of model.name = unknown, and this is `m`",
            "test `decode` was recorded with another version of the suite: duration was 30s, is 5s",
        ]
    );
    // What the suite does not know a baseline by may differ.
    other = provenance();
    other.facts.insert("hardware.driver".into(), "999".into());
    assert!(misfits(&other, "card").is_empty());
}

#[test]
fn a_renamed_axis_is_told_from_a_missing_cell() {
    let baseline = baseline();
    assert_eq!(baseline.other_axes("decode", "context=16K,concurrency=2"), None);
    assert_eq!(baseline.other_axes("serve", "ctx=8K"), None);
    assert_eq!(
        baseline.other_axes("decode", "ctx=8K,concurrency=2").unwrap().to_string(),
        "the cells of test `decode` were recorded by the axes context, concurrency, and have ctx, concurrency now"
    );
}

#[test]
fn the_schema_takes_what_is_written() {
    let (name, text) = Baseline::schema_file();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == there, "{} is stale: run `tokgate schema`", path.display());
    let schema = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for line in baseline().render().lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(validator.is_valid(&line), "{line}");
        line.as_object_mut().unwrap().insert("other".into(), 1.into());
        assert!(!validator.is_valid(&line), "{line}");
    }
}
