//! Runs that are told to stop.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Project, eventually};

/// A suite that would go on for minutes, on an engine that ignores TERM and leaves a child behind.
fn endless() -> Project {
    let project = Project::with(
        r#"version = 1
[suite]
name = "endless"
[engine]
kind = "vllm"
command = "bash engine.sh {{ host }} {{ port }}"
stop = { grace = "1s" }
[[test]]
kind = "decode"
duration = "5m"
matrix.concurrency = [1, 2]
[[expect]]
metric = "output-throughput"
min = 1
"#,
    );
    project.file(
        "engine.sh",
        &format!(
            "trap '' TERM\nsetsid sleep 3133 &\n{} sim --host \"$1\" --port \"$2\" &\nwait\n",
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    project
}

fn start(project: &Project) -> Child {
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
    child
}

/// Processes whose command line names the project's folder or the forgotten child.
pub fn left(project: &Project) -> Vec<String> {
    let folder = project.path().to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let dir = entry.path();
            let cwd = std::fs::read_link(dir.join("cwd")).ok()?;
            let line = std::fs::read(dir.join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (cwd.to_string_lossy() == folder && !line.is_empty()).then_some(line)
        })
        .collect()
}

fn signalled(signal: Signal, code: i32) {
    let project = endless();
    let child = start(&project);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    let ran = project.ran(output).exits(code);
    assert_eq!(ran.having("error").len(), 2, "cells that did not run are errors");
    assert!(ran.read("junit.xml").trim_end().ends_with("</testsuites>"));
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn sigint_leaves_whole_reports_and_no_process() {
    signalled(Signal::INT, 130);
}

#[test]
fn sigterm_leaves_whole_reports_and_no_process() {
    signalled(Signal::TERM, 143);
}

#[test]
fn a_killed_run_leaves_no_process() {
    let project = endless();
    let mut child = start(&project);
    assert!(left(&project).len() > 2);
    child.kill().unwrap();
    let ran = project.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.having("error").len(), 2, "reports were there before the first cell");
    eventually("every process is gone", || left(&project).is_empty());
}

#[test]
fn a_time_limit_ends_the_run_with_its_own_code() {
    let project = endless();
    let ran = project.run(&["--time-limit", "3s"]).exits(32);
    assert_eq!(ran.having("error").len(), 2);
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn two_runs_in_one_directory_are_refused() {
    let project = endless();
    let mut child = start(&project);
    let second = project.run(&[]);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(second.exits(33).stderr.contains("another tokgate run"));
}

/// A run of an engine that ignores TERM, sent a signal once its journal says `moment`.
fn signalled_at(moment: &str, stop: &str, engine: &str, code: i32) {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"stubborn\"\n[engine]\nkind = \"vllm\"\n\
         command = \"bash engine.sh {{{{ host }}}} {{{{ port }}}}\"\nstop = {{ grace = \"10m\"{stop} }}\n\
         [[test]]\nkind = \"startup\"\n"
    ));
    let engine = engine.replace("SIM", env!("CARGO_BIN_EXE_tokgate"));
    project.file("engine.sh", &format!("trap '' TERM\n{engine}\n"));
    let mut child = project
        .command(&["run", "suite.toml", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = project.path().join("out/journal.jsonl");
    eventually(moment, || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains(moment))
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    eventually("the run ends", || child.try_wait().unwrap().is_some());
    let ran = project.ran(child.wait_with_output().unwrap()).exits(code);
    assert_eq!(ran.verdicts().len(), 1);
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn a_signal_while_the_engine_loads_leaves_no_process() {
    signalled_at("\"health\"", "", "sleep 3134", 143);
}

#[test]
fn a_signal_while_the_engine_is_being_stopped_hurries_it() {
    signalled_at("cell-finished", "", "SIM sim --host $1 --port $2; sleep 3135", 143);
}

#[test]
fn a_stop_command_that_hangs_keeps_no_interrupted_run() {
    let stop = ", command = \"sleep 3136\"";
    signalled_at("cell-finished", stop, "SIM sim --host $1 --port $2; sleep 3137", 143);
}
