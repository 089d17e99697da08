//! Streams that are closed from the start, or whose reader goes away: no panic, no verdict lost, and reports
//! all the same.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Command, Stdio};

use crate::harness::{Project, eventually};

/// One cell passes, one fails.
const SUITE: &str = r#"version = 1
[suite]
name = "closed"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
matrix.concurrency = [1, 2]
[[expect]]
metric = "output-throughput"
min.rows = "concurrency"
min.grid = [[1, 1], [2, 1000000]]
"#;

/// Subcommands, what they exit with, and what they say on stderr besides.
const COMMANDS: [(&str, i32); 9] = [
    ("run suite.toml --out out", 10),
    ("run suite.toml --out out -v", 10),
    ("report out", 0),
    ("check suite.toml", 0),
    ("check bad.toml", 20),
    ("list suite.toml", 0),
    ("schema", 0),
    ("init", 0),
    ("completions bash", 0),
];

fn project() -> Project {
    let project = Project::with(SUITE);
    project.file("bad.toml", "version = 2\n");
    project
}

/// Runs `tokgate` with these redirections of a shell.
fn shell(project: &Project, arguments: &str, redirections: &str) -> (Option<i32>, String) {
    let tokgate = env!("CARGO_BIN_EXE_tokgate");
    let script = format!("{tokgate} {arguments} {redirections}");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(project.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_closed_stream_is_no_reason_to_fail() {
    for closed in [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        let project = project();
        for (arguments, code) in COMMANDS {
            let (exit, said) = shell(&project, arguments, closed);
            assert_eq!(exit, Some(code), "{arguments} {closed}: {said}");
            assert!(!said.contains("panicked"), "{arguments} {closed}: {said}");
            if arguments == "init" {
                // The next round begins anew.
                std::fs::remove_dir_all(project.path().join("suites")).ok();
                std::fs::remove_file(project.path().join("tokgate.toml")).ok();
            }
        }
        let junit = std::fs::read_to_string(project.path().join("out/junit.xml")).unwrap();
        assert!(junit.contains("failures=\"1\"") && junit.trim_end().ends_with("</testsuites>"));
        // No file of the run was taken for a stream that had its number.
        let journal = std::fs::read_to_string(project.path().join("out/journal.jsonl")).unwrap();
        assert!(journal.lines().all(|line| line.starts_with('{')), "{journal}");
    }
}

#[test]
fn a_closed_stream_harms_no_engine_either() {
    let suite = SUITE.replace("clock = \"virtual\"", "clock = \"real\"");
    for closed in [">&-", "2>&-", "<&- >&- 2>&-"] {
        let project = Project::with(&suite);
        let (exit, said) = shell(&project, "run suite.toml --out out", closed);
        assert_eq!(exit, Some(10), "{closed}: {said}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_no_run() {
    for verbose in [false, true] {
        for (out, err) in [(true, false), (false, true), (true, true)] {
            let project = Project::with(&SUITE.replace("clock = \"virtual\"", "clock = \"real\""));
            let mut arguments = vec!["run", "suite.toml", "--out", "out", "--no-progress"];
            arguments.extend(verbose.then_some("-v"));
            let mut command = project.command(&arguments);
            let null = || Stdio::from(File::create("/dev/null").unwrap());
            command.stdout(if out { Stdio::piped() } else { null() });
            command.stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            drop(child.stdout.take());
            // It reads a line, as `head -1` does, and leaves; or to the end.
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            lines.next().unwrap().unwrap();
            let rest = if err { Vec::new() } else { lines.map(Result::unwrap).collect() };
            assert_eq!(child.wait().unwrap().code(), Some(10), "{out} {err} {rest:?}");
            if !err {
                assert!(rest.last().unwrap().starts_with("1 passed, "), "{rest:?}");
            }
            let junit = std::fs::read_to_string(project.path().join("out/junit.xml")).unwrap();
            assert!(junit.contains("failures=\"1\""), "{junit}");
        }
    }
}

#[test]
fn a_stdout_that_takes_nothing_loses_no_limit_that_was_broken() {
    let project = project();
    let (exit, said) = shell(&project, "run suite.toml --out out", "> /dev/full");
    // What somebody else has to act on first is not hidden by a full disk.
    assert_eq!(exit, Some(10), "{said}");
    assert!(said.contains("stdout can't be written"), "{said}");
    let passing = SUITE.replace("1000000", "1");
    project.file("suite.toml", &passing);
    let (exit, said) = shell(&project, "run suite.toml --out out", "> /dev/full");
    assert_eq!(exit, Some(33), "{said}");
}

/// A pipe that takes nothing more, and its reader, who does not read.
fn stuck() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() || writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

#[test]
fn a_reader_who_does_not_read_holds_up_no_run_and_costs_no_cell() {
    let suite = SUITE
        .replace("clock = \"virtual\"", "clock = \"real\"")
        .replace("matrix.concurrency = [1, 2]", "matrix.concurrency = [1, 2, 3]")
        .replace("[2, 1000000]", "[2, 1000000], [3, 1]");
    for verbose in [false, true] {
        let project = Project::with(&suite);
        let mut arguments = vec!["run", "suite.toml", "--out", "out", "--fail-fast"];
        arguments.extend(verbose.then_some("-v"));
        let (reader, writer) = stuck();
        let mut command = project.command(&arguments);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        // It ends at all, with the verdict as its exit code.
        eventually("the run ends", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(10));
        drop(reader);
        let journal = std::fs::read_to_string(project.path().join("out/journal.jsonl")).unwrap();
        assert_eq!(journal.matches("cell-finished").count(), 2, "{journal}");
        let junit = std::fs::read_to_string(project.path().join("out/junit.xml")).unwrap();
        assert!(junit.contains("failures=\"1\"") && junit.contains("errors=\"1\""), "{junit}");
    }
}
