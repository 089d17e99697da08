//! Holds docs/guide.md to the code: its tables name what there is.

#![allow(clippy::unwrap_used, reason = "what can't be read fails the test")]

use std::collections::BTreeMap;

use crate::harness::Project;
use tokgate::measure::metric::{CATALOGUE, Direction};

/// The rows of the guide's tables, by what stands in backticks in their first column.
fn rows() -> BTreeMap<String, Vec<String>> {
    let guide = include_str!("../docs/guide.md");
    let tables = guide.lines().filter_map(|line| line.strip_prefix("| `"));
    tables
        .filter_map(|line| {
            let (key, rest) = line.split_once('`')?;
            let cells = rest.split('|').skip(1).map(|cell| cell.trim().replace('`', "")).collect();
            Some((key.to_owned(), cells))
        })
        .collect()
}

#[test]
fn every_metric_stands_in_the_guide_with_unit_and_direction() {
    let rows = rows();
    for entry in CATALOGUE {
        let row = rows.get(entry.name).unwrap_or_else(|| panic!("no row for {}", entry.name));
        let better = match entry.better {
            Direction::Higher => "higher",
            Direction::Lower => "lower",
        };
        let mut of: Vec<_> = entry.tests.iter().map(|test| test.name()).collect();
        let mut told: Vec<_> = row[2].split(", ").collect();
        of.sort_unstable();
        told.sort_unstable();
        assert_eq!((row[0].as_str(), row[1].as_str()), (entry.unit, better), "{}", entry.name);
        assert_eq!(told, of, "{}", entry.name);
    }
}

#[test]
fn every_default_stands_in_the_guide_as_it_is() {
    let rows = rows();
    for (key, default) in tokgate::suite::defaults::TABLE {
        let row = rows.get(key).unwrap_or_else(|| panic!("no row for {key}"));
        assert_eq!(row[0], default, "{key}");
    }
}

const PAGES: [(&str, &str); 3] = [
    ("README.md", include_str!("../README.md")),
    ("docs/guide.md", include_str!("../docs/guide.md")),
    ("src/cli/init.toml", include_str!("../src/cli/init.toml")),
];

#[test]
fn every_suite_on_a_page_is_right() {
    let mut seen = 0;
    for (page, text) in PAGES {
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks.filter(|block| block.starts_with("version = 1")) {
            let ran = Project::with(block).tokgate(&["check", "suite.toml"]).exits(0);
            assert_eq!(ran.stderr, "", "{page}");
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn every_subcommand_and_flag_on_a_page_exists() {
    let help = |arguments: &[&str]| Project::new().tokgate(arguments).exits(0).stdout;
    let commands = |help: &str| -> Vec<String> {
        let (_, commands) = help.split_once("Commands:\n").unwrap_or_default();
        // A line that goes on where the last one ended is indented further.
        let begins = |line: &&str| !line.starts_with("   ");
        let lines = commands.lines().take_while(|line| !line.is_empty()).filter(begins);
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    // Of a command with commands of its own, all their flags.
    let whole = |command: &str| -> String {
        let own = help(&["help", command]);
        let below = commands(&own);
        let below = below.iter().filter(|it| *it != "help").map(|it| help(&["help", command, it]));
        below.chain([own.clone()]).collect()
    };
    let helps: Vec<(String, String)> = commands(&help(&["--help"]))
        .into_iter()
        .map(|command| {
            (command.clone(), if command == "help" { String::new() } else { whole(&command) })
        })
        .collect();
    let pages = PAGES.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned()));
    let book = crate::book::pages::book().into_iter().map(|page| (page.name, page.text));
    for (page, text) in pages.chain(book) {
        for (at, _) in text.match_indices("tokgate ") {
            let rest = text[at + "tokgate ".len()..].split(['`', '\n']).next().unwrap();
            let before = text[..at].chars().next_back();
            if !matches!(before, Some('`' | ' ' | '\n')) || rest.starts_with("--") {
                continue;
            }
            let mut words = rest.split_whitespace();
            let Some((_, help)) = words.next().and_then(|w| helps.iter().find(|(c, _)| c == w))
            else {
                // In prose, "tokgate is": only what stands in code is a command.
                assert!(before != Some('`'), "{page}: no subcommand in `tokgate {rest}`");
                continue;
            };
            // What stands behind `--` is somebody else's.
            let own = words.take_while(|word| *word != "--" && !matches!(*word, "|" | ">"));
            for flag in own.filter(|word| word.starts_with('-')) {
                assert!(help.contains(flag), "{page}: `tokgate {rest}` has no {flag}");
            }
        }
    }
}
