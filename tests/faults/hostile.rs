//! Foreign text in every report and on the terminal; foreign links in the output directory.

use std::path::Path;
use std::process::{Command, Stdio};

use scraper::{Html, Selector};

use crate::harness::{Project, Ran, shipped};

/// What engines and users write when they want to be more than text.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)></pre>]]>-->| `a` \
    [x](javascript:alert(3)) @team \u{1b}]0;title\u{7}\u{1b}[41mred\u{1b}[0m\u{9b}2J\u{202e}gnp\u{2066}\n\
    ::error::boo\n  ::add-mask::x\n##vso[task.complete]##[group]%0A::warning::x ../../etc/passwd";
/// A file's name can be nearly anything.
const SUITE: &str = "su\u{202e}i\n::error::te'\"><img src=x>@team|`.toml";

/// A string of TOML.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A run with hostile names of suite file, model, axis values, vars, quarantine; with an engine that says
/// hostile things in its log, its version and its errors, and one that says them and does not start; and
/// with a tool that prints them and fails.
fn project() -> Project {
    let project = Project::new();
    let value = "\"'><script>alert(1)</script>::error::x##vso[x]{{7*7}}%0A@team`|]]>&amp;";
    project.file(
        SUITE,
        &format!(
            r#"version = 1
[suite]
name = "hostile"
[model]
name = {hostile}
[engine]
kind = "vllm"
command = "bash engine.sh {{{{ port }}}} {{{{ model.name }}}} {{{{ axis.start }}}} {{{{ vars.odd }}}}"
[vars]
odd = {odd}
[policy]
max-client-lag = "10s"
[matrix]
start = ["well", {value}]
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 64
matrix.concurrency = [1, 2]
[[test]]
name = "tool"
kind = "command"
command = ["bash", "tool.sh"]
result = "out.json"
metrics.score = {{ pointer = "/score", better = "higher" }}
[[expect]]
metric = "output-throughput"
min = 1_000_000
[[quarantine]]
where = {{ test = "decode", concurrency = 2 }}
reason = {hostile}
issue = "javascript:alert(4)"
expires = 2099-12-31
"#,
            hostile = quoted(HOSTILE),
            odd = quoted(&HOSTILE.replace('\n', " ")),
            value = quoted(value),
        ),
    );
    let profile = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    let profile =
        profile.replace("version = \"0.29.0\"", &format!("version = {}", quoted(HOSTILE)));
    project.file(
        "profile.toml",
        &format!(
            "{profile}\n[[fault]]\nkind = \"stream-error\"\nrequests = {{ every = 3 }}\nat-token = 5\nmessage = {}\n",
            quoted(HOSTILE)
        ),
    );
    project.file("said.txt", &format!("ERROR {HOSTILE}\nRuntimeError: {HOSTILE}\n"));
    let says = "cat said.txt; printf 'ERROR nul \\000 \\377\\376 \\355\\240\\200 \\033[3'; head -c 20000 /dev/zero | tr '\\0' x; echo\n";
    project.file(
        "engine.sh",
        &format!(
            "{says}[ \"$3\" = well ] || exit 3\nexec {} sim --host 127.0.0.1 --port \"$1\" --model \"$2\" --profile profile.toml\n",
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    project.file("tool.sh", &format!("{says}exit 4\n"));
    project
}

fn run(project: &Project, more: &[&str]) -> Ran {
    let mut command = project.command(&["run", SUITE, "--out", "out", "--no-progress", "-v"]);
    command.args(more).env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", project.path());
    project.ran(command.output().unwrap())
}

/// What a terminal or the runner of a CI service would act on.
#[track_caller]
fn inert(what: &str, text: &str) {
    // Colours of ours.
    let mut left = text.to_owned();
    for code in ["0", "1", "2", "32", "1;31", "33", "31", "36", "36;1", "31;1", "33;1"] {
        left = left.replace(&format!("\u{1b}[{code}m"), "");
    }
    for c in ['\u{1b}', '\u{7}', '\u{9b}', '\u{0}', '\u{202e}', '\u{2066}', '\r'] {
        assert!(!left.contains(c), "{c:?} in {what}:\n{left}");
    }
    for line in left.lines().filter(|line| line.trim_start().starts_with("::")) {
        let ours = line.starts_with("::error ") || line.starts_with("::warning ");
        assert!(ours && line.contains("title="), "a command in {what}: {line}");
    }
    // In a message of a command of ours nothing is looked for.
    for line in left.lines().filter(|line| !line.starts_with("::")) {
        assert!(!line.contains("##vso[") && !line.contains("##["), "a command in {what}: {line}");
    }
}

#[test]
fn hostile_text_is_text_everywhere() {
    let project = project();
    let ran = run(&project, &["--color", "always"]);
    // On a machine that is too busy a cell is invalid, else it failed.
    assert!([10, 30].contains(&ran.code), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.having("error").len() >= 4, "{:?}", ran.verdicts());

    inert("stdout", &ran.stdout);
    inert("stderr", &ran.stderr);
    let annotations: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("::")).collect();
    assert!(annotations.len() > 2, "{}", ran.stdout);
    for line in &annotations {
        let (head, _) = line[2..].split_once("::").unwrap();
        assert_eq!(head.matches("file=").count(), 1, "{line}");
        assert!(head.contains("%3A%3Aerror%3A%3Ate"), "the suite's own odd name: {head}");
        assert_eq!(head.split(',').count(), 3, "file, line, title: {head}");
    }

    page(&ran.read("report.html"));
    summary(&ran.read("summary.md"));
    cases(&ran.read("junit.xml"));
    // For programs: each text as it was, in JSON.
    ran.record();
    for name in ["journal.jsonl", "record.json"] {
        let text = ran.read(name);
        assert!(text.chars().all(|c| c == '\n' || c >= ' '), "control characters in {name}");
    }
    for line in ran.read("journal.jsonl").lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }

    // The same out of the record, without colour and in the other dialect.
    let again = project
        .command(&["report", "out", "--junit-dialect", "strict", "--annotations", "github"])
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap();
    inert("the page printed again", std::str::from_utf8(&again.stdout).unwrap());
    cases(&ran.read("junit.xml"));

    stays_inside(&project);
}

/// The page as a browser reads it.
fn page(text: &str) {
    let html = Html::parse_document(text);
    let all = |selector: &str| html.select(&Selector::parse(selector).unwrap()).count();
    assert_eq!((all("script"), all("style"), all("body"), all("main")), (1, 1, 1, 1));
    assert_eq!(
        all("img, iframe, object, embed, form, link, base, foreignObject, animate, set, use"),
        0
    );
    for element in html.select(&Selector::parse("*").unwrap()) {
        for (name, value) in element.value().attrs() {
            assert!(!name.starts_with("on") && name != "style" && name != "src", "{name}={value}");
            let inside = ["#", "./"].iter().any(|start| value.starts_with(start));
            assert!(name != "href" || inside, "a link to {value}");
        }
    }
    let told: String = html.root_element().text().collect();
    for part in
        ["<script>alert(1)</script>", "javascript:alert(4)", "RuntimeError: ", "../../etc/passwd"]
    {
        assert!(told.contains(part), "{part}");
    }
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "control characters in the page");
    assert!(!text.contains('\u{202e}'));
}

/// The summary as its readers render it: no markup but that of the summary itself.
fn summary(text: &str) {
    let options = pulldown_cmark::Options::all();
    let mut rendered = String::new();
    pulldown_cmark::html::push_html(&mut rendered, pulldown_cmark::Parser::new_ext(text, options));
    let html = Html::parse_fragment(&rendered);
    let ours = [
        "html", "h1", "h2", "h3", "p", "ul", "li", "strong", "table", "thead", "tbody", "tr", "th",
        "td", "br", "pre", "code", "details", "summary",
    ];
    for element in html.select(&Selector::parse("*").unwrap()) {
        let name = element.value().name();
        assert!(ours.contains(&name), "<{name}> in {text}\n{rendered}");
        let plain = |attribute: &str| ["style", "class"].contains(&attribute);
        assert!(
            element.value().attrs().all(|(attribute, _)| plain(attribute)),
            "<{name}> in {text}"
        );
    }
    let told: String = html.root_element().text().collect();
    assert!(
        told.contains("<script>alert(1)</script>") && told.contains("[x](javascript:alert(3))"),
        "{told}"
    );
    // Mentions are looked for in rendered text, but not in code.
    for element in html.select(&Selector::parse("p, li, td, th, h1, h2, h3").unwrap()) {
        let words = element.children().filter_map(|child| child.value().as_text());
        assert!(words.clone().all(|words| !words.contains("@team")), "{:?}", element.html());
    }
    for c in ['\u{1b}', '\u{202e}', '\r', '\u{0}'] {
        assert!(!text.contains(c), "{c:?}");
    }
}

/// The file is XML, and its cases are those of the plan.
fn cases(text: &str) {
    let report =
        quick_junit::Report::deserialize_from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let cases: usize = report.test_suites.iter().map(|suite| suite.test_cases.len()).sum();
    assert_eq!(cases, 2 + 2 * 3, "two launches with three cells each");
    let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    assert!(text.chars().all(plain), "control characters in junit.xml");
}

/// Nothing was made but the output directory, and in there no odd names.
#[track_caller]
fn stays_inside(project: &Project) {
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let mut made = names(project.path());
    made.sort();
    let top = SUITE.split('/').next().unwrap();
    assert_eq!(made, ["engine.sh", "out", "profile.toml", "said.txt", top, "tool.sh"]);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._=,+-".contains(c);
    let mut folders = vec![project.path().join("out")];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            assert!(name.chars().all(plain), "{name:?}");
            let path = folder.join(name);
            assert!(!path.is_symlink());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
}

#[test]
fn the_live_display_shows_no_sequence_of_the_engine() {
    let project = project();
    let line =
        format!("exec {} run \"$SUITE\" --out out -E test=decode", env!("CARGO_BIN_EXE_tokgate"));
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(project.path()).stdin(Stdio::null());
    command.env("SUITE", SUITE).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CI");
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: no `script` (package bsdutils) to have a terminal with");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("cells") && text.contains("quarantine"), "{text}");
    for part in ["\u{1b}]", "\u{1b}[41m", "\u{7}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{0}"] {
        assert!(!text.contains(part), "{part:?} in {text:?}");
    }
}

/// A file that is nobody's business here.
fn victim(project: &Project) -> std::path::PathBuf {
    project.file("outside/victim", "mine")
}

#[track_caller]
fn untouched(project: &Project) {
    assert_eq!(std::fs::read_to_string(project.path().join("outside/victim")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(project.path().join("outside")).unwrap().count(), 1);
}

/// A suite whose engine runs `script` first, with `$run` the process of the run.
fn scripted(script: &str, more: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"links\"\n[policy]\nmax-client-lag = \"10s\"\n[engine]\nkind = \"vllm\"\n\
         command = \"bash engine.sh {{{{ port }}}}\"\n{more}"
    ));
    project.file(
        "engine.sh",
        &format!(
            "run=$(cut -d' ' -f4 /proc/$PPID/stat)\n{script}\nexec {} sim --host 127.0.0.1 --port \"$1\"\n",
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    victim(&project);
    project
}

const DECODE: &str = "[[test]]\nkind = \"decode\"\nduration = \"1s\"\nmin-tokens = 10\nmax-output = 64\n\
    matrix.concurrency = [1, 2]\n";

#[test]
fn links_in_place_of_reports_are_replaced_and_not_followed() {
    let project = scripted(
        "for name in record.json junit.xml summary.md report.html metrics.prom cells.csv; do\n\
         ln -sf ../outside/victim out/$name; ln -s ../outside/victim out/.$name.$run.part; done\n\
         ls -A out > links.txt",
        DECODE,
    );
    let ran = project.run(&[]);
    let links = std::fs::read_to_string(project.path().join("links.txt")).unwrap();
    assert_eq!(links.matches(".part").count(), tokgate::report::FILES.len(), "{links}");
    untouched(&project);
    for name in tokgate::report::FILES {
        assert!(ran.out.join(name).symlink_metadata().unwrap().is_file(), "{name}");
        assert!(!links.contains("victim") && ran.read(name).contains("links"), "{name}");
    }
}

#[test]
fn a_log_that_is_a_link_is_not_written_through() {
    // The first engine puts a link where the second one's log is to be.
    let project = scripted(
        "ln -s ../outside/victim out/engine-layout=b.log; echo printed by $2",
        &format!("[matrix]\nlayout = [\"a\", \"b\"]\n{DECODE}"),
    );
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &suite.replace("{{ port }}", "{{ port }} {{ axis.layout }}"));
    let ran = project.run(&[]).exits(30);
    assert!(ran.out.join("engine-layout=b.log").is_symlink());
    assert!(ran.read("engine-layout=a.log").contains("printed by a"));
    untouched(&project);
    let failure = &ran.record()["launches"][1]["failure"];
    assert!(failure["message"].as_str().unwrap().contains("engine-layout=b.log"), "{failure}");
}

#[test]
fn a_folder_of_cells_that_leads_outside_is_refused() {
    let tool = "[[test]]\nname = \"tool\"\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"echo [1] > $0/out.json\", \"{{ cell.dir }}\"]\nresult = \"out.json\"\n\
        metrics.score = { pointer = \"/0\", better = \"higher\" }\n";
    let project = scripted("ln -s ../outside out/cells", tool);
    let ran = project.run(&[]).exits(31);
    untouched(&project);
    let state = &ran.record()["cells"][0]["state"]["broken"];
    let said = state["message"].as_str().unwrap();
    assert!(said.contains("cells is a link, which is not followed"), "{said}");
}
