//! Runs that leave very much: what people see of them stays small enough for those who read it, and no verdict is lost.

use serde_json::{Value, json};

use super::consumers::xml;
use crate::harness::{Project, shipped};
use crate::large;

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

/// Cells with very long errors, by index.
const DEGRADED: [usize; 1] = [5_000];
const BROKEN: [usize; 1] = [9_999];
const WARNED: [usize; 1] = [3];

#[test]
fn ten_thousand_cells_with_errors_of_5_mb_keep_every_verdict() {
    let project = Project::with(large::SUITE);
    let small = project.run(&[]).exits(10).record();
    let mut record = large::record(&small, CELLS);
    let flood = "it broke & <b>burst</b> ]]> \u{1b}[31m again\n".repeat(MESSAGE / 38);
    for at in DEGRADED {
        let cell = &mut record["cells"][at];
        cell["state"]["measured"]["failures"] = json!({ "server-error": [3, flood] });
        cell["judgement"]["verdict"] = json!("fail");
        cell["judgement"]["class"] = json!("degraded");
        cell["judgement"]["message"] = json!(flood);
    }
    for at in BROKEN {
        let cell = &mut record["cells"][at];
        cell["state"] = json!({ "broken": { "class": "tool-failed", "message": flood } });
        cell["judgement"]["verdict"] = json!("error");
        cell["judgement"]["class"] = json!("tool-failed");
        cell["judgement"]["message"] = json!(flood);
    }
    for at in WARNED {
        record["cells"][at]["judgement"]["warnings"] = json!([flood]);
    }
    record["launches"][0]["log"] = json!("engine-engine.log");
    project.file("large/record.json", &record.to_string());
    let log = std::fs::File::create(project.path().join("large/engine-engine.log")).unwrap();
    log.set_len(200_000_000).unwrap();

    for dialect in ["rich", "strict"] {
        let mut report = project.command(&["report", "large", "--junit-dialect", dialect]);
        report.env("CI_PROJECT_DIR", project.path());
        let (_, bytes) = large::child(&mut report).unwrap();
        assert!(bytes < 1_000_000_000, "{bytes} bytes of memory");
        let text = std::fs::read_to_string(project.path().join("large/junit.xml")).unwrap();
        assert!(text.len() < MOST, "{dialect}: {} bytes", text.len());
        keeps_every_verdict(&text, &record);
    }
    let size =
        |file: &str| std::fs::metadata(project.path().join("large").join(file)).unwrap().len();
    assert!(size("summary.md") < 1 << 20 && size("report.html") < 10_000_000);
    assert!(size("metrics.prom") < 10_000_000 && size("cells.csv") < MOST as u64);
    let comment = project.tokgate(&["report", "large", "--comment"]).exits(0).stdout;
    assert!(comment.len() < 65_536 && comment.contains("… and "), "{}", comment.len());
}

/// Holds that each cell is in the file once, as what it came to.
#[track_caller]
fn keeps_every_verdict(text: &str, record: &Value) {
    let root = xml::parse(text);
    let mut told = std::collections::HashMap::new();
    for case in root.all("testsuite").flat_map(|suite| suite.all("testcase")) {
        let tag = ["failure", "error", "skipped"].into_iter().find(|tag| case.child(tag).is_some());
        let name = case.said("name");
        if let Some(note) = tag.and_then(|tag| case.child(tag)) {
            let (message, text) = (note.said("message"), &note.text);
            assert!(!message.is_empty() && text.starts_with(message.trim()), "{name}: {message}");
        }
        assert!(told.insert(name.clone(), tag).is_none(), "twice: {name}");
    }
    assert_eq!(told.len(), CELLS + 1);
    let planned = record["header"]["cells"].as_array().unwrap();
    for (planned, cell) in planned.iter().zip(record["cells"].as_array().unwrap()) {
        let wanted = match cell["judgement"]["verdict"].as_str().unwrap() {
            "fail" => Some("failure"),
            "error" => Some("error"),
            "skip" | "xfail" => Some("skipped"),
            "pass" | "inconclusive" | "measured" | "xpass" => None,
            other => panic!("{other}"),
        };
        let id = planned["id"].as_str().unwrap();
        assert_eq!(told[id], wanted, "{id}");
    }
}
