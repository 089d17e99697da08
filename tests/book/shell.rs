//! A page followed as a reader follows it: files written, commands typed, outputs compared.

use std::path::Path;
use std::process::{Command, Stdio};

use super::pages::Page;
use crate::harness::{Project, hear_signals, shipped};

/// Carries out a page.
pub fn follow(name: &str) {
    let page = Page::read(name);
    let project = Project::new();
    copy(&shipped("suites"), &project.path().join("suites"));
    let bless = std::env::var_os("TOKGATE_BLESS").is_some();
    let mut wrong = Vec::new();
    let mut blessed = page.text.clone();
    // From the end, so that places on the page stay.
    let mut edits = Vec::new();
    for block in page.blocks() {
        if let Some(file) = block.marked("file:") {
            project.file(file, &block.text);
        } else if let Some(file) = block.marked("more of:") {
            let before = std::fs::read_to_string(project.path().join(file)).unwrap();
            project.file(file, &(before + &block.text));
        } else if !block.has_commands() || block.marked("not run:").is_some() {
        } else if block.language == "sh" {
            let (code, output) = typed(&project, &format!("set -e\n{}", block.text), 0);
            assert_eq!(code, 0, "{name}:{}: {output}", block.line);
        } else {
            let mut code = 0;
            let mut text = String::new();
            for (command, expected) in block.session() {
                let asks = command == "echo $?";
                assert!(code == 0 || asks, "{name}:{}: exit {code} before `{command}`", block.line);
                let (ended, output) = typed(&project, &command, code);
                let alike = alike(&expected, &output);
                if !alike {
                    wrong.push(format!("{name}:{}: $ {command}\n{output}", block.line));
                }
                // What only looks alike, as a date does, is made new too; what was left out stays so.
                let stays = alike && expected.lines().any(|line| line == "…");
                text.push_str(&format!("$ {command}\n{}", if stays { &expected } else { &output }));
                code = ended;
            }
            assert!(code == 0 || bless, "{name}:{}: the last command exits {code}", block.line);
            edits.push((block.range.clone(), text));
        }
    }
    if bless {
        for (range, text) in edits.into_iter().rev() {
            blessed.replace_range(range, &text);
        }
        std::fs::write(shipped(name), blessed).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "printed was\n{}\nTOKGATE_BLESS=1 writes it anew", wrong.join("\n"));
}

/// What a command comes to, typed where the last one ended with `before`: exit code, stdout and stderr as they came.
fn typed(project: &Project, command: &str, before: i32) -> (i32, String) {
    hear_signals();
    let tokgate = Path::new(env!("CARGO_BIN_EXE_tokgate")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([tokgate].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("exec 2>&1\n(exit {before})\n{command}\n")])
        .current_dir(project.path())
        .stdin(Stdio::null())
        .env("PATH", path)
        .env("HOME", project.path())
        .env("LC_ALL", "C.UTF-8");
    for name in [
        "NO_COLOR",
        "CI",
        "CI_PROJECT_DIR",
        "COLUMNS",
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
        "TOKGATE_NVML",
    ] {
        shell.env_remove(name);
    }
    let output = shell.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

/// Whether an output is the expected one, in which a line `…` stands for any number of lines.
fn alike(expected: &str, output: &str) -> bool {
    // A sign of life is there where the machine is slow.
    let sign = |line: &&str| line.starts_with("… ") && line.ends_with(" done");
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !sign(line)).map(everywhere_alike).collect()
    };
    let (expected, output) = (lines(expected), lines(output));
    let mut parts: Vec<&[String]> = expected.split(|line| line == "…").collect();
    let mut rest = output.as_slice();
    let first = parts.remove(0);
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = (0..=rest.len()).find(|at| rest[*at..].starts_with(part)) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A line without what differs from machine to machine and from run to run.
fn everywhere_alike(line: &str) -> String {
    // The head of a page: suite, model, machine, engine.
    let parts: Vec<&str> = line.split(" · ").collect();
    let line = match parts.as_slice() {
        [before @ .., _, engine] if !before.is_empty() && engine.starts_with("sim") => {
            format!("{} · MACHINE · {engine}", before.join(" · "))
        }
        _ => line.to_owned(),
    };
    // How long a run took depends on the machine, in virtual time too where it was cut.
    let line = match line.rsplit_once(" in ") {
        Some((before, took)) if before.contains(" passed, ") => {
            let behind = took.split_once(' ').map_or("", |(_, behind)| behind);
            format!("{before} in TIME {behind}")
        }
        Some(_) | None => line,
    };
    let words = line.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', ')']);
        let hex = bare.len() == 12 && bare.chars().all(|c| c.is_ascii_hexdigit());
        let date = bare.len() >= 10
            && bare.starts_with("20")
            && bare[..10].chars().enumerate().all(|(at, c)| match at {
                4 | 7 => c == '-',
                _ => c.is_ascii_digit(),
            });
        if hex {
            "RUN"
        } else if date {
            "DATE"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).map(drop).unwrap()
        }
    }
}

#[test]
fn outputs_are_alike_where_only_time_and_place_differ() {
    assert!(alike("a\n…\nd\n", "a\nb\nc\nd\n"));
    assert!(alike("a\n…\nc\n…\n", "a\nb\nc\nd\n"));
    assert!(alike("a · AMD EPYC (2 cores) · sim (1)\n", "a · 8 × H200 · sim (1)\n"));
    assert!(alike(
        "1 passed, 0 failed in 7.0s of virtual time\n",
        "1 passed, 0 failed in 1m7s of virtual time\n"
    ));
    assert!(!alike("1 passed, 0 failed in 7.0s\n", "1 passed, 1 failed in 7.0s\n"));
    assert!(alike(
        "run 1eb40738bc93 of 2026-11-30T16:27:05Z\n",
        "run aaaaaaaaaaaa of 2027-01-02T00:00:00Z\n"
    ));
    assert!(alike("a\nb\n", "a\n… cell 2 for 1m, 1 of 4 cells done\nb\n"));
    assert!(!alike("a\n", "a\nb\n"));
    assert!(!alike("a\n…\nd\n", "a\nb\nc\n"));
    assert!(!alike("a\n…\nc\n…\n", "a\nb\nd\n"));
    assert!(!alike("200.3 tok/s\n", "200.4 tok/s\n"));
}
