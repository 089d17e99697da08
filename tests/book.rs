//! Holds the book in `docs/` to the code: links lead somewhere, generated parts are new, suites are right, commands run and
//! print what stands below them.
//!
//! Each page is followed in a temporary folder with the `suites/` of the project in it, from its first block to its last. A
//! `console` block has commands behind `$ ` with what each prints; a line `…` stands for any number of lines. A command that
//! does not exit 0 has `echo $?` below it. An `sh` block is a script. What is unlike in every run or on every machine (processor,
//! run ids, dates, how long a run took) is taken as alike. `TOKGATE_BLESS=1 cargo test --test tests book::` writes outputs that differ anew; read
//! them before they are committed.
//!
//! A comment above a block says what else it is:
//!
//! | comment | block |
//! |---|---|
//! | `file: NAME` | this file of the folder |
//! | `more of: NAME` | what is added to its end |
//! | `excerpt of PATH` | lines of a file of the project, in order |
//! | `part of a suite` | TOML that is no suite by itself |
//! | `not run: WHY` | commands of which only the spelling is checked |

#![allow(clippy::unwrap_used, reason = "what can't be read fails the test")]

mod links;
pub mod pages;
mod shell;

use std::collections::BTreeSet;

use crate::harness::{Project, shipped, tokgate};
use pages::{Block, Page};

/// References: their commands are examples with names of files that readers have, so that only their spelling is checked.
const REFERENCES: [&str; 8] = [
    "README.md",
    "docs/baselines.md",
    "docs/hardware.md",
    "docs/junit.md",
    "docs/results.md",
    "docs/runs.md",
    "docs/try.md",
    "docs/verdicts.md",
];

#[test]
fn installing() {
    shell::follow("docs/install.md");
}

#[test]
fn the_first_suite() {
    shell::follow("docs/first-suite.md");
}

#[test]
fn gating_an_upgrade() {
    shell::follow("docs/upgrades.md");
}

#[test]
fn limits_that_do_not_flake() {
    shell::follow("docs/limits.md");
}

#[test]
fn trouble_by_exit_code() {
    shell::follow("docs/trouble.md");
}

#[test]
fn every_page_with_commands_is_followed() {
    let this = std::fs::read_to_string(shipped("tests/book.rs")).unwrap();
    for page in pages::book().into_iter().chain([Page::read("README.md")]) {
        let followed = this.contains(&format!("shell::follow(\"{}\")", page.name));
        let commands = page.blocks().iter().any(Block::has_commands);
        assert!(
            !commands || followed != REFERENCES.contains(&page.name.as_str()),
            "{}: nothing runs its commands",
            page.name
        );
    }
}

#[test]
fn every_command_on_a_page_is_one_that_tokgate_takes() {
    let mut seen = 0;
    for page in pages::book().into_iter().chain([Page::read("README.md")]) {
        for block in page.blocks().iter().filter(|block| block.has_commands()) {
            for arguments in block.tokgate_commands() {
                seen += 1;
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                if let Err(why) = tokgate::cli::manual::takes(&words) {
                    panic!("{}:{}: tokgate {}\n{why}", page.name, block.line, words.join(" "));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} commands found: the reader of this test no longer reads");
}

#[test]
fn every_toml_on_a_page_can_be_read() {
    let mut suites = 0;
    for page in pages::book() {
        for block in page.blocks().iter().filter(|block| block.language == "toml") {
            if let Err(error) = block.text.parse::<toml::Table>() {
                panic!("{}:{}: {error}", page.name, block.line);
            }
            if let Some(path) = block.marked("excerpt of") {
                let whole = std::fs::read_to_string(shipped(path)).unwrap();
                let mut rest = whole.lines();
                for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
                    let found = rest.any(|it| it == line);
                    assert!(
                        found,
                        "{}:{}: not in {path}, or not in this order: {line}",
                        page.name, block.line
                    );
                }
            } else if block.marked("file:").is_none() && block.text.starts_with("version = 1") {
                let ran = Project::with(&block.text).tokgate(&["check", "suite.toml"]).exits(0);
                assert_eq!(ran.stderr, "", "{}:{}", page.name, block.line);
                suites += 1;
            }
        }
    }
    assert!(suites >= 3, "only {suites} suites found: the reader of this test no longer reads");
}

#[test]
fn generated_parts_are_what_this_version_writes() {
    let output = tokgate().current_dir(shipped("")).args(["manual", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pipelines_on_the_page_are_those_that_init_writes() {
    let page = Page::read("docs/upgrades.md").text;
    let project = Project::new();
    project.file("suites/vllm-upgrade.toml", "version = 1\n");
    for (service, path) in [
        ("github", ".github/workflows/tokgate.yml"),
        ("gitlab", ".gitlab-ci.yml"),
        ("jenkins", "Jenkinsfile"),
    ] {
        project.tokgate(&["init", "suites/vllm-upgrade.toml", "--ci", service]).exits(0);
        let written = std::fs::read_to_string(project.path().join(path)).unwrap();
        assert!(page.contains(&format!("\n{written}```\n")), "docs/upgrades.md has another {path}");
    }
}

#[test]
fn a_page_that_is_old_is_told_and_written_anew() {
    let project = Project::new();
    let page = "# A\n\n<!-- generated: exit-codes -->\n\n| 0 | fine |\n\n<!-- /generated -->\n";
    let path = project.file("docs/a.md", page);
    let refused = project.tokgate(&["manual", "--check"]).exits(20);
    assert!(
        refused.stderr.contains("docs/a.md is not what this version writes"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
    assert_eq!(project.tokgate(&["manual"]).exits(0).stdout, "docs/a.md\n");
    assert!(
        std::fs::read_to_string(&path).unwrap().contains("| 33 | results could not be written |")
    );
    project.tokgate(&["manual", "--check"]).exits(0);
}

#[test]
fn results_and_trouble_have_the_exit_codes_of_the_code() {
    let results = Page::read("docs/results.md").text;
    let generated = Page::read("docs/cli.md").text;
    let (_, rows) =
        generated.split_once("| exit code | meaning | who acts |\n|---|---|---|\n").unwrap();
    let rows: Vec<_> = rows.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 12);
    for row in &rows {
        assert!(results.contains(&format!("\n{row}\n")), "docs/results.md lacks {row}");
    }
    // Each has its place in the page on trouble.
    let trouble = Page::read("docs/trouble.md").text;
    for row in rows {
        let codes = row.trim_start_matches("| ").split(" |").next().unwrap();
        let told = trouble.lines().any(|line| line.starts_with(&format!("## {codes}: ")));
        assert!(told, "docs/trouble.md has no heading for {codes}");
    }
}

/// Messages stand in the first column of the tables of that page, `…` for what differs from case to case.
#[test]
fn every_message_that_is_explained_is_one_that_is_said() {
    let mut sources = String::new();
    pages::walk(&shipped("src"), "rs", &mut |_, text| sources.push_str(text));
    // A long text goes on in the next line behind a backslash.
    let sources: String = sources
        .split("\\\n")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.trim_start() })
        .collect();
    let trouble = Page::read("docs/trouble.md").text;
    let messages: Vec<&str> = trouble
        .lines()
        .filter_map(|line| line.strip_prefix("| `").and_then(|rest| rest.split_once("` |")))
        .map(|(message, _)| message)
        .collect();
    assert!(messages.len() >= 12, "{}", messages.len());
    for message in messages {
        for fragment in message.split('…').map(str::trim).filter(|part| !part.is_empty()) {
            assert!(sources.contains(fragment), "no source says `{fragment}` of `{message}`");
        }
    }
}

#[test]
fn every_page_is_a_chapter_and_every_chapter_a_page() {
    let summary = Page::read("docs/SUMMARY.md");
    let chapters: BTreeSet<String> =
        links::links(&summary.text).into_iter().map(|link| format!("docs/{link}")).collect();
    let pages: BTreeSet<String> = pages::book().into_iter().map(|page| page.name).collect();
    let missing: Vec<_> = pages.difference(&chapters).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
    let gone: Vec<_> = chapters.difference(&pages).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md has {gone:?}, which are no pages");
    let listed = links::links(&Page::read("docs/decisions/README.md").text).into_iter();
    let listed: BTreeSet<String> = listed.map(|link| format!("docs/decisions/{link}")).collect();
    let decisions = pages.iter().filter(|it| it.starts_with("docs/decisions/0"));
    let unlisted: Vec<_> = decisions.filter(|it| !listed.contains(*it)).collect();
    assert!(unlisted.is_empty(), "docs/decisions/README.md lacks {unlisted:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "docs/SUMMARY.md",
        "fuzz/README.md",
        "tests/data/README.md",
    ];
    let others = others.into_iter().map(Page::read);
    for page in pages::book().into_iter().chain(others) {
        for link in links::links(&page.text) {
            seen += 1;
            wrong.extend(
                links::problem(&page.name, &link)
                    .map(|why| format!("{}: {link}: {why}", page.name)),
            );
        }
    }
    assert!(seen > 80, "only {seen} links found: the reader of this test no longer reads");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
