//! Holds the chapters in `docs/` to the code: their tables name what there is, wherever they stand.

#![allow(clippy::unwrap_used, reason = "what can't be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::Project;
use tokgate::measure::metric::{CATALOGUE, Direction};

/// The head of the tables of keys; those of tests have another column behind it.
const KEYS: &str = "| key | default |";
/// The head of the table of metrics. The generated one beside the formulas has other columns.
const METRICS: &str = "| metric | unit | better | of | what it is |";

/// The rows of all tables of the book whose head begins so, by what stands in backticks in their first column. A row
/// of `a.b` and `.c` is one of `a.b` and of `a.c`.
fn rows(head: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for page in crate::book::pages::book() {
        let mut within = false;
        for line in page.text.lines() {
            within = line.starts_with('|') && (within || line.starts_with(head));
            let row = line.strip_prefix("| ").filter(|row| within && row.starts_with('`'));
            let Some((names, rest)) = row.and_then(|row| row.split_once(" |")) else { continue };
            let cells: Vec<_> = rest.split('|').map(|cell| cell.trim().replace('`', "")).collect();
            let mut stem = "";
            for name in names.split('`').skip(1).step_by(2) {
                let whole = if name.starts_with('.') {
                    format!("{stem}{name}")
                } else {
                    stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
                    name.to_owned()
                };
                let before = rows.insert(whole.clone(), cells.clone());
                assert!(before.is_none(), "{}: a second row for {whole}", page.name);
            }
        }
    }
    rows
}

#[test]
fn every_metric_stands_in_the_guide_with_unit_and_direction() {
    let rows = rows(METRICS);
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
    let rows = rows(KEYS);
    for (key, default) in tokgate::suite::defaults::TABLE {
        let row = rows.get(key).unwrap_or_else(|| panic!("no row for {key}"));
        assert_eq!(row[0], default, "{key}");
    }
}

/// Keys of tables that are values of other keys (lengths, axes, grids, groups, revisions), explained where those are.
const PARTS: [&str; 14] = [
    "around", "at", "columns", "from", "git", "grid", "groups", "jitter", "length", "normal",
    "rows", "times", "to", "uniform",
];

/// Names that a suite's author chooses, and axes, which the schema takes under any name.
const FREE: [&str; 4] = ["NAME", "concurrency", "context", "request_rate"];

#[test]
fn every_key_of_a_suite_has_a_row_and_every_row_a_key() {
    let schema = serde_json::from_str(include_str!("../schemas/suite.schema.json")).unwrap();
    let mut keys = BTreeSet::new();
    properties(&schema, &mut keys);
    let rows = rows(KEYS);
    let told: BTreeSet<&str> = rows.keys().flat_map(|key| key.split('.')).collect();
    let parts = BTreeSet::from(PARTS);
    let missing: Vec<_> = keys
        .iter()
        .filter(|key| !told.contains(key.as_str()) && !parts.contains(key.as_str()))
        .collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let gone: Vec<_> =
        told.iter().filter(|key| !keys.contains(**key) && !FREE.contains(*key)).collect();
    assert!(gone.is_empty(), "the schema has no key {gone:?}");
}

/// The names of all properties below a schema.
fn properties(schema: &serde_json::Value, names: &mut BTreeSet<String>) {
    if let Some(own) = schema.get("properties").and_then(serde_json::Value::as_object) {
        names.extend(own.keys().cloned());
    }
    let below = schema.as_object().into_iter().flat_map(serde_json::Map::values);
    let listed = schema.as_array().into_iter().flatten();
    below.chain(listed).for_each(|it| properties(it, names));
}

/// What is no chapter; `book` checks the suites of those.
const PAGES: [(&str, &str); 2] = [
    ("README.md", include_str!("../README.md")),
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
    assert!(seen >= 1, "{seen}");
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
