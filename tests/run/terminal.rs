//! What a run shows on a terminal, and that what it says to run again runs that.

use std::fs::File;
use std::io::Read;

use crate::faults::orphaned::terminal;
use crate::harness::{Project, eventually};

/// One cell passes and one fails. What the second says of its limit takes more than one line.
const SUITE: &str = r#"version = 1
[suite]
name = "shown"
[engine]
kind = "sim"
clock = "CLOCK"
[[test]]
kind = "decode"
duration = "SECONDS"
matrix.concurrency = [1, 2]
matrix.flavour = ["a_long_value"]
[[expect]]
metric = "output-throughput"
min.rows = "concurrency"
min.grid = [[1, 1], [2, 1000000]]
[policy]
max-client-lag = "10s"
"#;

fn project(clock: &str, seconds: &str) -> Project {
    Project::with(&SUITE.replace("CLOCK", clock).replace("SECONDS", seconds))
}

fn resize(master: &File, columns: u16) {
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size).unwrap();
}

/// What a run wrote to a terminal so wide, and its exit code; `resized`: from the first rate on it is that wide.
fn shown(
    project: &Project,
    columns: u16,
    more: &[(&str, &str)],
    resized: Option<u16>,
) -> (i32, String) {
    let (master, slave) = terminal();
    resize(&master, columns);
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--seed", "7"]);
    command.env("TERM", "xterm").env_remove("CI").env_remove("NO_COLOR");
    command.envs(more.iter().copied());
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    let mut screen = master.try_clone().unwrap();
    let mut resized = resized;
    // A terminal that nobody has open any more is an error to its reader.
    while let Ok(n @ 1..) = screen.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..n]);
        if String::from_utf8_lossy(&seen).contains(" tok/s")
            && let Some(columns) = resized.take()
        {
            resize(&master, columns);
        }
    }
    let mut code = None;
    eventually("the run ends", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    (code.unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&seen).into_owned())
}

/// A text without its control sequences.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split("\u{1b}[");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        out.push_str(&part[end..]);
    }
    out
}

#[test]
fn a_terminal_shows_the_rate_and_what_is_left_and_no_line_is_torn() {
    let (code, seen) = shown(&project("real", "3s"), 60, &[], Some(40));
    assert_eq!(code, 10, "{seen}");
    let text = plain(&seen);
    // The display, while a window is open.
    assert!(text.contains(": window ") && text.contains(" %, "), "{text}");
    assert!(text.contains(" tok/s") && text.contains("0/2 cells, "), "{text}");
    assert!(text.contains(" left"), "{text}");
    // What stays: the failed cell, broken between words, with its mark in colour.
    assert!(seen.contains("\u{1b}[1;31m✗ fail"), "{seen}");
    let page = text.rsplit_once("shown · ").unwrap().1;
    for line in page.lines().filter(|line| !line.contains("rerun: ")) {
        assert!(line.chars().count() <= 40, "{line}\n{text}");
    }
    let counts: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("FAILED")).collect();
    assert!(counts.join(" ").contains("1 passed, 0 skipped, 1 failed, "), "{counts:?}");
}

#[test]
fn where_nobody_watches_there_are_lines() {
    for more in [("CI", "true"), ("TERM", "dumb")] {
        let (code, seen) = shown(&project("virtual", "1s"), 80, &[more], None);
        assert_eq!(code, 10, "{seen}");
        assert!(!seen.contains("\u{1b}[K") && !seen.contains("\u{1b}[J"), "{more:?}: {seen}");
        let text = plain(&seen);
        assert!(text.contains("[1/2] ✓ pass") && text.contains("[2/2] ✗ fail"), "{text}");
        let last = text.trim_end().lines().last().unwrap();
        assert!(last.starts_with("1 passed, ") && last.contains(" in "), "one line: {last}");
    }
}

#[test]
fn no_colour_is_no_colour_and_the_display_goes_on() {
    let (code, seen) = shown(&project("virtual", "1s"), 80, &[("NO_COLOR", "1")], None);
    assert_eq!(code, 10, "{seen}");
    assert!(!seen.contains("m✗") && !seen.contains("\u{1b}[0m"), "{seen}");
    assert!(seen.contains("\u{1b}[J"), "{seen}");
}

#[test]
fn what_is_said_to_be_run_again_runs_that_cell() {
    let project = project("virtual", "1s");
    let ran = project.run(&["--seed", "7"]).exits(10);
    let line = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("rerun: ")).unwrap();
    let words = shell_words::split(line).unwrap();
    assert_eq!(words[0], "tokgate");
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let again = project.tokgate(&arguments).exits(10);
    assert_eq!(again.record()["header"]["cells"].as_array().unwrap().len(), 1);
    assert_eq!(again.having("fail"), ["decode concurrency=2,flavour=a_long_value"]);
}
