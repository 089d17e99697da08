//! Two at once in one directory, and runs that may not go on: each told apart, with who and why.

use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::whole::suite;
use crate::harness::{Project, Ran, eventually};

/// A run that goes on for minutes on a simulated engine of its own, and has begun.
fn going_on() -> (Project, Child) {
    let project = suite("real", 2, "5m");
    let run = project
        .command(&["run", "suite.toml", "--out", "out", "--no-progress"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = project.path().join("out/journal.jsonl");
    eventually("a cell begins", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("cell-started"))
    });
    (project, run)
}

fn end(run: &mut Child) {
    run.kill().unwrap();
    run.wait().unwrap();
}

fn journal(project: &Project) -> std::path::PathBuf {
    project.path().join("out/journal.jsonl")
}

#[test]
fn whoever_comes_second_is_told_by_whom_the_directory_is_held() {
    let (project, mut run) = going_on();
    let told = std::fs::read_to_string(journal(&project)).unwrap();
    let resume = ["run", "suite.toml", "--resume", "out"];
    for arguments in [&["run", "suite.toml", "--out", "out"][..], &resume, &["report", "out"]] {
        let second = project.tokgate(arguments).exits(33);
        let who = format!("lock held by process {} since 20", run.id());
        assert!(second.stderr.contains(&who), "{}", second.stderr);
        assert!(second.stderr.contains("`tokgate run suite.toml`"), "{}", second.stderr);
        assert!(second.stderr.contains("wait for it"), "{}", second.stderr);
    }
    let now = std::fs::read_to_string(journal(&project)).unwrap();
    assert!(now.starts_with(&told), "nothing of the first run is touched");
    // One that is stopped would be waited for in vain.
    kill_process(Pid::from_child(&run), Signal::STOP).unwrap();
    eventually("the run is stopped", || {
        let second = project.tokgate(&resume).exits(33);
        second.stderr.contains(&format!("which is stopped: `kill -CONT {}`", run.id()))
    });
    kill_process(Pid::from_child(&run), Signal::CONT).unwrap();
    end(&mut run);
    // The file stays, and locks nothing.
    assert!(project.path().join("out/.lock").exists());
    project.tokgate(&["report", "out"]).exits(0);
}

/// Files that a process has open.
fn open_files(process: &Path) -> Vec<String> {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn no_child_inherits_what_the_run_has_open() {
    let (project, mut run) = going_on();
    let out = project.path().join("out").canonicalize().unwrap();
    let here = |name: &str| out.join(name).to_string_lossy().into_owned();
    let mine = open_files(format!("/proc/{}", run.id()).as_ref());
    assert!(mine.contains(&here(".lock")) && mine.contains(&here("journal.jsonl")), "{mine:?}");
    let mut children = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let process = entry.path();
        let cwd = std::fs::read_link(process.join("cwd"));
        if cwd.is_ok_and(|cwd| out.starts_with(cwd)) && !process.ends_with(run.id().to_string()) {
            children += 1;
            let ours: Vec<String> = open_files(&process)
                .into_iter()
                .filter(|name| name.starts_with(&here("")) && !name.ends_with(".log"))
                .collect();
            assert_eq!(ours, Vec::<String>::new(), "{}", process.display());
        }
    }
    end(&mut run);
    assert!(children >= 2, "a supervisor and an engine");
}

#[test]
fn a_lock_that_a_process_was_left_with_names_that_process() {
    let project = suite("virtual", 2, "20ms");
    project.run(&[]).exits(0);
    // As if a child had inherited the lock of a run that is gone.
    let lock = std::fs::File::open(project.path().join("out/.lock")).unwrap();
    let inherited = Stdio::from(lock.try_clone().unwrap());
    let mut child =
        std::process::Command::new("sleep").arg("3141").stdin(inherited).spawn().unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    drop(lock);
    let ran = project.run(&[]);
    end(&mut child);
    let ran = ran.exits(33);
    let who = format!("lock held by process {} (sleep), which process ", child.id());
    assert!(ran.stderr.contains(&who), "{}", ran.stderr);
    assert!(ran.stderr.contains("has left behind"), "{}", ran.stderr);
}

/// A run of six cells of which three are finished, in virtual time.
fn cut() -> (Project, Vec<String>) {
    let project = suite("virtual", 6, "20ms");
    project.run(&[]).exits(0);
    let text = std::fs::read_to_string(journal(&project)).unwrap();
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    let third = lines.iter().enumerate().filter(|(_, line)| line.contains("\"cell-finished\""));
    let end = third.map(|(at, _)| at).nth(2).unwrap() + 1;
    lines.truncate(end);
    std::fs::write(journal(&project), lines.concat()).unwrap();
    (project, lines)
}

fn resume(project: &Project) -> Ran {
    project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"])
}

/// Resumes a journal of which one thing is changed; it stays as it is where that is refused.
fn refused(change: impl Fn(&mut Vec<String>), code: i32, words: &[&str]) {
    let (project, mut lines) = cut();
    change(&mut lines);
    std::fs::write(journal(&project), lines.concat()).unwrap();
    let ran = resume(&project).exits(code);
    for words in words {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(journal(&project)).unwrap(), lines.concat());
}

fn header(lines: &mut [String], change: impl Fn(&mut Value)) {
    let mut header: Value = serde_json::from_str(&lines[0]).unwrap();
    change(&mut header["run-started"]);
    lines[0] = format!("{header}\n");
}

#[test]
fn what_keeps_a_run_from_going_on_is_told_apart() {
    let anew = "begin anew, without --resume";
    // A line in the middle is not torn by any crash.
    refused(
        |lines| {
            let middle = lines.len() / 2;
            lines[middle].truncate(9);
            lines[middle].push('\n');
        },
        20,
        &["journal.jsonl is damaged in line ", anew],
    );
    refused(|lines| drop(lines.remove(0)), 20, &["does not begin with the header of a run", anew]);
    refused(
        |lines| header(lines, |it| it["machine"]["memory"] = 1.into()),
        22,
        &["began on another machine", "memory was ", "go on where it began"],
    );
    refused(
        |lines| header(lines, |it| it["tokgate"] = "0.0.1".into()),
        20,
        &["it began with tokgate 0.0.1"],
    );
    refused(
        |lines| header(lines, |it| it["plan-hash"] = "other".into()),
        20,
        &["is another one", "go on with the suite and the flags that it began with"],
    );
    // One of a later tokgate has what this one can't know.
    refused(
        |lines| lines.push("{\"cell-paused\":{}}\n".into()),
        20,
        &["is damaged in line ", anew],
    );
}

#[test]
fn a_torn_last_line_alone_lets_it_go_on() {
    let (project, mut lines) = cut();
    let kept = lines[..lines.len() - 1].concat();
    let last = lines.last_mut().unwrap();
    last.truncate(last.len() / 2);
    std::fs::write(journal(&project), lines.concat()).unwrap();
    let ran = resume(&project).exits(0);
    assert!(ran.stderr.contains("was cut short: its "), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 of 6 cells finished"), "{}", ran.stderr);
    assert!(std::fs::read_to_string(journal(&project)).unwrap().starts_with(&kept));
}

#[test]
fn a_journal_that_can_not_be_read_is_neither_empty_nor_another_run() {
    let (project, _) = cut();
    std::fs::remove_file(journal(&project)).unwrap();
    std::fs::create_dir(journal(&project)).unwrap();
    let ran = resume(&project).exits(20);
    assert!(ran.stderr.contains("cannot read the journal"), "{}", ran.stderr);
    assert!(journal(&project).is_dir());
}
