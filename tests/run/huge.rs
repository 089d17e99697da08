//! Runs that leave very much: what people see of them stays small enough for those who read it, and no verdict is lost.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::consumers::xml;
use crate::harness::{Project, shipped};
use crate::large::{self, Large};

/// What every consumer takes.
const MOST: usize = 20_000_000;
const CELLS: usize = 10_000;
/// Bytes of an error.
const MESSAGE: usize = 5 << 20;

#[test]
fn a_log_of_200_mb_and_errors_of_5_mb_leave_a_small_file() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "loud"
[policy]
max-client-lag = "10s"
[engine]
kind = "openai"
command = "bash engine.sh {{ port }}"
[[test]]
kind = "prefill"
samples = 2
matrix.context = [512, 1024]
[[expect]]
metric = "prefill-throughput"
min = 1
"#,
    );
    let profile = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    let message = "all of it went wrong ".repeat(MESSAGE / 21);
    let nth: Vec<u32> = (2..200).collect();
    let fault = format!(
        "[[fault]]\nkind = \"status\"\nrequests = {{ nth = {nth:?} }}\nstatus = 500\nmessage = \"{message}\"\n"
    );
    project.file("ill.toml", &format!("{profile}\n{fault}"));
    let engine = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "head -c 200000000 /dev/zero | tr '\\0' 'x' | fold -w 199\necho\n\
         exec \"{engine}\" sim --profile ill.toml --port $1\n"
    );
    project.file("engine.sh", &script);
    let ran = project.run(&[]);
    assert!([10, 31].contains(&ran.code), "{} {}", ran.code, ran.stderr);
    let text = ran.read("junit.xml");
    assert!(text.len() < 200_000, "{}", text.len());
    let root = xml::parse(&text);
    let cases: Vec<_> = root.all("testsuite").flat_map(|suite| suite.all("testcase")).collect();
    assert_eq!(cases.len(), 3);
    for case in &cases[1..] {
        let told = case.child("failure").or(case.child("error")).unwrap();
        assert!(told.text.contains("all of it went wrong"), "{}", told.text);
    }
    for file in ["summary.md", "report.html", "cells.csv", "metrics.prom"] {
        assert!(ran.read(file).len() < 1 << 20, "{file}");
    }
}

/// Memory for the reports of a run, in KiB.
const MEMORY: u32 = 500_000;

#[test]
fn ten_thousand_cells_with_errors_of_5_mb_keep_every_verdict() {
    let project = Project::with(large::SUITE);
    let mut small = project.run(&[]).exits(10).record();
    thin(&mut small);
    let mut large = Large::of(&small, CELLS);
    let flood = "it broke & <b>burst</b> ]]> \u{1b}[31m again\n".repeat(MESSAGE / 38);
    large.change(5_000, |cell| {
        cell["state"]["measured"]["failures"] = json!({ "server-error": [3, flood] });
        cell["judgement"]["verdict"] = json!("fail");
        cell["judgement"]["class"] = json!("degraded");
        cell["judgement"]["message"] = json!(flood);
    });
    large.change(9_999, |cell| {
        cell["state"] = json!({ "broken": { "class": "tool-failed", "message": flood } });
        cell["judgement"]["verdict"] = json!("error");
        cell["judgement"]["class"] = json!("tool-failed");
        cell["judgement"]["message"] = json!(flood);
    });
    large.change(3, |cell| cell["judgement"]["warnings"] = json!([flood]));
    large.rest["launches"][0]["log"] = json!("engine-engine.log");
    let ids = large.planned.iter().map(|planned| planned["id"].as_str().unwrap().to_owned());
    let wanted: HashMap<String, &str> =
        ids.zip(large.verdicts.iter().map(|verdict| element(verdict))).collect();
    let dir = project.path().join("large");
    std::fs::create_dir(&dir).unwrap();
    large.write(&dir.join("record.json")).unwrap();
    let log = std::fs::File::create(dir.join("engine-engine.log")).unwrap();
    log.set_len(200_000_000).unwrap();

    for dialect in ["rich", "strict"] {
        let script = format!("ulimit -d {MEMORY} && exec \"$0\" \"$@\"");
        let mut report = std::process::Command::new("sh");
        report.args(["-c", &script, env!("CARGO_BIN_EXE_tokgate"), "report", "large"]);
        report.args(["--junit-dialect", dialect, "--comment"]).current_dir(project.path());
        report.env("CI_PROJECT_DIR", project.path()).env_remove("GITHUB_STEP_SUMMARY");
        let comment = project.ran(report.output().unwrap()).exits(0).stdout;
        assert!(comment.len() < 65_536 && comment.contains("… and "), "{}", comment.len());
        let text = std::fs::read_to_string(dir.join("junit.xml")).unwrap();
        assert!(text.len() < MOST, "{dialect}: {} bytes", text.len());
        keeps_every_verdict(&text, &wanted);
    }
    let size = |file: &str| std::fs::metadata(dir.join(file)).unwrap().len();
    assert!(size("summary.md") < 1 << 20 && size("report.html") < 10_000_000);
    assert!(size("metrics.prom") < 10_000_000 && size("cells.csv") < MOST as u64);
}

/// Leaves few samples of each metric: what statistics they come to is not looked at here, and takes time.
fn thin(record: &mut Value) {
    for cell in record["cells"].as_array_mut().unwrap() {
        let observations = cell["state"]["measured"]["observations"].as_object_mut().unwrap();
        for samples in observations.values_mut().filter_map(|it| it.get_mut("samples")) {
            samples.as_array_mut().unwrap().truncate(8);
        }
    }
}

/// The element that says a verdict; none says it of a cell that stands well.
fn element(verdict: &str) -> &'static str {
    match verdict {
        "fail" => "failure",
        "error" => "error",
        "skip" | "xfail" => "skipped",
        "pass" | "inconclusive" | "measured" | "xpass" => "",
        other => panic!("{other}"),
    }
}

/// Holds that each cell is in the file once, as what it came to.
#[track_caller]
fn keeps_every_verdict(text: &str, wanted: &HashMap<String, &str>) {
    let root = xml::parse(text);
    let mut told = HashMap::new();
    for case in root.all("testsuite").flat_map(|suite| suite.all("testcase")) {
        let tag = ["failure", "error", "skipped"].into_iter().find(|tag| case.child(tag).is_some());
        let name = case.said("name");
        if let Some(note) = tag.and_then(|tag| case.child(tag)) {
            let (message, text) = (note.said("message"), &note.text);
            assert!(!message.is_empty() && text.starts_with(message.trim()), "{name}: {message}");
        }
        assert!(told.insert(name.clone(), tag.unwrap_or_default()).is_none(), "twice: {name}");
    }
    assert_eq!(told.len(), CELLS + 1);
    for (id, element) in wanted {
        assert_eq!(told[id], *element, "{id}");
    }
}
