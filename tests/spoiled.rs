//! Spoiled suites: whatever is taken out of or put into a suite, the answer is a plan, or problems
//! that each say where and what to write instead.

use std::path::Path;
use std::sync::Arc;

use tokgate::matrix::{Selection, expand};
use tokgate::suite::{LoadOptions, Problem, load};

use crate::harness::{Project, shipped};
use crate::suite::{SERVED, WHOLE};

/// What people and programs put where it does not belong.
const ODD: [&str; 34] = [
    "",
    "\"\"",
    "[]",
    "{}",
    "[[]]",
    "nan",
    "-inf",
    "-1",
    "0",
    "1.0",
    "0.30",
    "2.5",
    "true",
    "1e400",
    "18446744073709551616",
    "9223372036854775807",
    "2027-01-01",
    "\"8k\"",
    "\"8K\"",
    "\"-5s\"",
    "\"5%\"",
    "\"..\"",
    "\"!\"",
    "\"4..1\"",
    "\"{{\"",
    "\"{{ nope.x }}\"",
    "\"{% if %}\"",
    "\"'\"",
    "é",
    "\u{202e}",
    "[[test]]",
    "[[expect]]",
    "[variant.a-b]",
    "\0",
];

/// Numbers that look random and are the same on each machine (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

/// Words, texts in quotes, comments and single signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let length = match first {
            '"' => rest[1..].find(['"', '\n']).map_or(rest.len(), |at| at + 2),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        found.push(&rest[..length]);
        rest = &rest[length..];
    }
    found
}

fn spoil(text: &str, dice: &mut Dice) -> String {
    let mut parts = tokens(text);
    for _ in 0..=dice.below(2) {
        let at = dice.below(parts.len());
        let other = dice.below(parts.len());
        match dice.below(5) {
            0 => {
                parts.remove(at);
            }
            1 => parts[at] = ODD[dice.below(ODD.len())],
            2 => parts[at] = parts[other],
            3 => parts.insert(at, parts[other]),
            _ => parts.swap(at, other),
        }
    }
    parts.concat()
}

/// What is wrong with a problem.
fn lacking(problem: &Problem, end: usize) -> Option<&'static str> {
    let inside = |span: &std::ops::Range<usize>| span.start <= span.end && span.end <= end;
    let nowhere = problem.span.is_none() && !problem.message.contains(".toml");
    if !problem.span.as_ref().is_none_or(inside) {
        Some("its place is outside of the text")
    } else if !problem.warning && nowhere {
        Some("it has no place")
    } else if problem.help.as_ref().is_none_or(String::is_empty) {
        Some("it does not help")
    } else {
        None
    }
}

#[test]
fn every_problem_of_a_spoiled_suite_has_a_place_and_a_help() {
    let project = Project::new();
    let read = |path: &str| std::fs::read_to_string(shipped(path)).unwrap();
    for name in ["default.toml", "inkling.toml", "smoke.toml"] {
        project.file(&format!("sim/{name}"), &read(&format!("suites/sim/{name}")));
    }
    project.file("inkling-small-h200x8.toml", &read("suites/inkling-small-h200x8.toml"));
    let sound = [
        read("suites/smoke.toml"),
        read("suites/inkling-small-on-sim.toml"),
        read("suites/llama-cpp-gemma3-270m.toml"),
        read("src/cli/init.toml"),
        read("tests/wild/05-llama-cpp-server-bench.toml"),
        read("tests/wild/06-llm-d-gateway-rate-ladder.toml"),
        WHOLE.to_owned(),
        SERVED.to_owned(),
    ];
    let mut dice = Dice(20_270_630);
    for case in 0..CASES {
        let text = spoil(&sound[case % sound.len()], &mut dice);
        let path = project.file("suite.toml", &text);
        judge(&path, &text);
    }
}

const CASES: usize = 600;

fn judge(path: &Path, text: &str) {
    match load(path, &LoadOptions::default()) {
        Err(problems) => {
            assert!(problems.has_errors(), "{text}");
            assert!(!problems.render(false).is_empty());
            for problem in &problems.list {
                if let Some(lack) = lacking(problem, problems.source.end()) {
                    panic!("{lack}: {problem:?}\n{text}");
                }
            }
        }
        Ok(loaded) => {
            let Err(troubles) = expand(Arc::new(loaded.suite), &Selection::default()) else {
                return;
            };
            for trouble in &troubles {
                let place =
                    trouble.span.is_some() || trouble.place.is_some() || trouble.key.is_some();
                // A matrix is too large as a whole.
                let place = place || trouble.code == "too-many-cells";
                assert!(place, "no place: {trouble:?}\n{text}");
                assert!(trouble.help.is_some(), "no help: {trouble:?}\n{text}");
            }
        }
    }
}
