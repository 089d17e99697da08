//! Runs behind a shell, and runs whose shell is gone.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{COMMAND, STARTUP, cells, left, profile, project, reached};
use crate::harness::Project;

const DECODE: &str = "[[test]]\nkind = \"decode\"\nduration = \"5m\"\n";
/// `tokgate` in its window; what it says goes to files.
const RUN: &str = "TOKGATE run suite.toml --out out -v --no-progress > stdout.txt 2> stderr.txt";

fn endless() -> Project {
    project(COMMAND, &format!("{STARTUP}{DECODE}"), &profile(2, 2, 2, ""))
}

/// A shell that runs a script in the project, once the run in it has come to its window.
fn shell(project: &Project, script: &str) -> Child {
    let script = script.replace("RUN", RUN).replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate"));
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(project.path()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    reached("the window", || said(project).contains(": window"));
    child
}

fn said(project: &Project) -> String {
    std::fs::read_to_string(project.path().join("stderr.txt")).unwrap_or_default()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The run has ended by itself, in order.
fn ended_with_its_parent(project: &Project) {
    reached("no process is left", || left(project).is_empty());
    let found = cells(&project.path().join("out"));
    assert_eq!((found[0].1.as_str(), found[1].1.as_str()), ("measured", "error"));
    assert_eq!(found[1].2, "not run: the run was interrupted");
    assert!(
        said(project).contains("the process that started this run is gone"),
        "{}",
        said(project)
    );
    let record = std::fs::read_to_string(project.path().join("out/record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["signal"], 1);
}

#[test]
fn a_shell_that_made_way_hands_the_signal_on() {
    let project = endless();
    let mut child = shell(&project, "exec RUN");
    send(&child, Signal::TERM);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(143));
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn a_shell_that_stays_tells_the_exit_code() {
    let project = endless();
    let mut child = shell(&project, "RUN & wait -n; echo $? > code");
    let tokgate = left(&project);
    assert!(tokgate.len() > 2, "{tokgate:?}");
    let pid = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = format!("PPid:\t{}\n", child.id());
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        status.contains(&parent).then_some(pid)
    });
    // Started in the background by a script it ignores no SIGINT: who sends it means it.
    kill_process(Pid::from_raw(pid.unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    let code = std::fs::read_to_string(project.path().join("code")).unwrap();
    assert_eq!(code.trim(), "130");
}

#[test]
fn a_run_ends_with_the_script_that_it_is_a_step_of() {
    // The signal reaches the shell alone, and ends it without a word to the run.
    for signal in [Signal::TERM, Signal::KILL] {
        let project = endless();
        let mut child = shell(&project, "RUN; echo $? > code");
        send(&child, signal);
        child.wait().unwrap();
        ended_with_its_parent(&project);
    }
}

#[test]
fn a_run_that_is_to_outlive_its_shell_does() {
    // Told not to hang up; put into the background by a script; with a session of its own.
    for script in ["nohup RUN; true", "RUN & sleep 3161", "setsid -w RUN; true"] {
        let project = endless();
        let mut child = shell(&project, script);
        send(&child, Signal::KILL);
        child.wait().unwrap();
        // Several times as long as it takes to notice.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        let line = format!("{} run", env!("CARGO_BIN_EXE_tokgate"));
        let runs = |project: &Project| {
            std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
                let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
                let ours = cwd == project.path().canonicalize().unwrap();
                let text = std::fs::read(entry.path().join("cmdline")).ok()?;
                let text = String::from_utf8_lossy(&text).replace('\0', " ");
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                (ours && text.starts_with(&line)).then_some(pid)
            })
        };
        let pid = runs(&project).unwrap_or_else(|| panic!("{script}: {}", said(&project)));
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        reached("it ends", || runs(&project).is_none());
        let sleeps = left(&project);
        assert!(sleeps.iter().all(|line| line.contains("3161")), "{sleeps:?}");
        end_of(&project);
    }
}

/// Ends what a killed script has left of its own.
fn end_of(project: &Project) {
    let folder = project.path().canonicalize().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(pid)) = (here, pid.and_then(Pid::from_raw)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn a_run_that_nobody_hears_ends_when_its_parent_is_gone() {
    // As over `ssh`: a session of its own, and pipes whose other end goes with the connection.
    let project = endless();
    let run = "TOKGATE run suite.toml --out out -v --no-progress";
    let script = format!("setsid -w {run} 2> >(tee stderr.txt) | cat; true");
    let script = script.replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate"));
    let mut command = Command::new("setsid");
    command.args(["-w", "bash", "-c", &script]).current_dir(project.path());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    reached("the window", || said(&project).contains(": window"));
    // The connection: all of it but the run.
    let folder = project.path().canonicalize().unwrap();
    let others = ["bash", "setsid", "tee", "cat"];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let engine = line.windows(9).any(|part| part == b"engine.sh");
        let other = others.iter().any(|name| first == name.as_bytes());
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, true, false, Some(pid)) = (here, other, engine, pid.and_then(Pid::from_raw)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = child.wait();
    reached("no process is left", || left(&project).is_empty());
    let found = cells(&project.path().join("out"));
    assert_eq!(found[1].2, "not run: the run was interrupted");
}
