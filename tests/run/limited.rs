//! A client that is the limit itself: its cell is an error, whatever the figures say.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Project;

/// The bound is close to what the engine does, so that a lag of the client could change the verdict.
const SUITE: &str = r#"version = 1
[suite]
name = "limited"
[engine]
kind = "sim"
profile = "engine.toml"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 20
matrix.concurrency = [4]
[[expect]]
metric = "itl.p50"
max = "11ms"
"#;

const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
[prefill]
tokens = [16, "1K"]
ms = [4, 4]
[admit]
at = [1]
grid = [["1K", 5]]
[step]
at = [1]
grid = [["1K", 10]]
"#;

#[test]
fn a_client_that_is_kept_from_its_work_was_the_limit() {
    let project = Project::with(SUITE);
    project.file("engine.toml", ENGINE);
    let mut command =
        project.command(&["run", "suite.toml", "--out", "out", "--no-progress", "--seed", "7"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A stopped process is away for certain, however many cores there are; the engine goes on.
    let process = Pid::from_child(&child);
    while child.try_wait().unwrap().is_none() {
        for signal in [Signal::STOP, Signal::CONT] {
            kill_process(process, signal).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let ran = project.ran(child.wait_with_output().unwrap()).exits(31);
    assert_eq!(ran.having("error").len(), 1, "{:?}", ran.verdicts());
    let junit = ran.read("junit.xml");
    let told = "the client was the limit: client lag ";
    assert!(junit.contains(told) && junit.contains("(p99), 5ms allowed"), "{junit}");
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}
