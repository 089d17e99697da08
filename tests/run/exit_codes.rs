//! The exit code of whole runs: each reason alone, and which wins where several hold.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Project, eventually, shipped};

/// A limit that no engine keeps.
const BROKEN: &str =
    "[[expect]]\ntest = \"decode\"\nmetric = \"output-throughput\"\nmin = 1_000_000\n";
/// A limit that a dozen samples can't decide.
const DOUBTFUL: &str = "[[expect]]\ntest = \"doubtful\"\nmetric = \"ttft.p90\"\nmax = \"1ms\"\n\
    [[test]]\nname = \"doubtful\"\nkind = \"decode\"\nduration = \"1s\"\nmin-tokens = 10\nmax-output = 64\n";
/// A chat template is longer than two tokens, so that no prompt has the length that is asked for.
const TOO_SHORT: &str = "matrix.context = [2]\nrequest.api = \"chat\"\n";

/// What a suite of one decode cell and `more` exits with, on an engine with this fault.
fn code(fault: &str, more: &str) -> i32 {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "codes"
[engine]
kind = "sim"
clock = "virtual"
profile = "first.toml"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 64
{more}"#
    ));
    let profile = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    project.file("first.toml", &format!("{profile}{fault}"));
    let dies = "\n[[fault]]\nkind = \"die-while-loading\"\n";
    project.file("dies.toml", &format!("{profile}{dies}"));
    project.run(&[]).code
}

#[test]
fn each_reason_has_its_code() {
    assert_eq!(code("", ""), 0);
    assert_eq!(code("", BROKEN), 10);
    assert_eq!(code("", &format!("{DOUBTFUL}[policy]\ninconclusive = \"fail\"\n")), 11);
    assert_eq!(code("", "[policy]\nunjudged = \"error\"\n"), 20);
    assert_eq!(code("", "[variant.a]\nengine.version = \"9.9.9\"\n"), 22);
    assert_eq!(code("", "[variant.a]\nengine.profile = \"dies.toml\"\n"), 30);
    assert_eq!(code("", TOO_SHORT), 31);
}

#[test]
fn the_one_who_must_act_first_wins() {
    let both = |one: &str, other: &str| format!("{one}{other}");
    let two = |second: &str| format!("[variant.a]\n[variant.b]\n{second}\n");
    // Who suite and machine belong to, before the author of the change.
    assert_eq!(code("", &both(BROKEN, &two("engine.version = \"9.9.9\""))), 22);
    let silent =
        "[[test]]\nname = \"silent\"\nkind = \"prefill\"\n[policy]\nunjudged = \"error\"\n";
    assert_eq!(code("", &both(BROKEN, silent)), 20);
    // Who changed the engine, before whoever runs it.
    assert_eq!(code("", &both(BROKEN, &two("engine.profile = \"dies.toml\""))), 10);
    // What could not be measured, before what is in doubt.
    let doubt = both(DOUBTFUL, "[policy]\ninconclusive = \"fail\"\n");
    assert_eq!(code("", &both(TOO_SHORT, &doubt)), 31);
    assert_eq!(code("", &both(&doubt, &two("engine.profile = \"dies.toml\""))), 30);
}

#[test]
fn failures_that_are_too_many_leave_the_code_to_themselves() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "codes"
[engine]
kind = "sim"
clock = "virtual"
profile = "first.toml"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 64
matrix.concurrency = [1, 2, 4]
matrix.context = [2]
request.api = "chat"
"#,
    );
    let profile = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    project.file("first.toml", &profile);
    project.run(&["--fail-fast"]).exits(31);
}

#[test]
fn a_lost_terminal_is_129() {
    let project = Project::with(
        "version = 1\n[suite]\nname = \"long\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"decode\"\nduration = \"5m\"\n",
    );
    let child = project
        .command(&["run", "suite.toml", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = project.path().join("out/journal.jsonl");
    eventually("a cell begins", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("cell-started"))
    });
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    project.ran(child.wait_with_output().unwrap()).exits(129);
}
