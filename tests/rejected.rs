//! Suites that must be refused: each `tests/rejected/NAME.toml` with the words that it gets in
//! `NAME.txt`. A first line `#$ --set …` holds command line options.
//!
//! `TOKGATE_BLESS=1 cargo test --test tests rejected` writes the texts anew; read them before they
//! are committed.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::harness::{shipped, tokgate};

fn suites() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(shipped("tests/rejected"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths
}

/// Exit code and stderr of `tokgate check` on a suite, called from the root of the project.
fn check(path: &Path) -> (Option<i32>, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().next().and_then(|line| line.strip_prefix("#$ ")).unwrap_or("");
    let output = tokgate()
        .current_dir(shipped(""))
        .env_remove("TOKGATE_UNSET")
        .arg("check")
        .arg(path.strip_prefix(shipped("")).unwrap())
        .args(shell_words::split(line).unwrap())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn each_is_refused_in_the_words_beside_it() {
    let bless = std::env::var_os("TOKGATE_BLESS").is_some();
    let mut wrong = String::new();
    for path in suites() {
        let (code, said) = check(&path);
        if code != Some(20) {
            let _ = writeln!(wrong, "{}: exit {code:?}, not 20\n{said}", path.display());
            continue;
        }
        let beside = path.with_extension("txt");
        if bless {
            std::fs::write(&beside, &said).unwrap();
            continue;
        }
        match std::fs::read_to_string(&beside) {
            Ok(expected) if expected == said => {}
            Ok(expected) => {
                let _ = writeln!(
                    wrong,
                    "{}: other words\n--- expected\n{expected}\n--- said\n{said}",
                    path.display()
                );
            }
            Err(_) => {
                let _ = writeln!(wrong, "{}: no {}", path.display(), beside.display());
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}\nTOKGATE_BLESS=1 writes the texts anew");
}

#[test]
fn there_are_thirty_kinds_and_each_says_what_to_write() {
    let texts: Vec<String> = suites()
        .iter()
        .filter_map(|path| std::fs::read_to_string(path.with_extension("txt")).ok())
        .collect();
    assert!(texts.len() >= 30, "{} kinds", texts.len());
    for text in &texts {
        assert!(text.contains("help: "), "no help in:\n{text}");
        assert!(!text.contains('\u{1b}'), "colour in:\n{text}");
    }
}

#[test]
fn three_errors_in_one_file_give_three_messages() {
    let (_, said) = check(&shipped("tests/rejected/three-errors.toml"));
    assert!(said.contains("3 errors"), "{said}");
}
