//! Ratios against a baseline as it stands in a revision of git, through the front door and with real
//! repositories. Skipped, and said, where there is no git.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Project, Ran, shipped};

/// Whether there is a git to ask.
fn here() -> bool {
    let found = Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no git in PATH, so that no revision is tested");
    }
    found
}

/// `git` in a folder, with no settings but these.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    command.args(["-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always"]);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(folder: &Path, message: &str) -> String {
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--allow-empty", "-m", message]);
    git(folder, &["rev-parse", "HEAD"])
}

/// The simulated engine, slower by that many percent.
fn profile(slower: u32) -> String {
    let text = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    let (head, _) = text.split_once("[noise]").unwrap();
    let noise = "[noise]\nwithin = \"1%\"\nbetween = \"0.5%\"\n";
    let slow = match slower {
        0 => String::new(),
        by => format!("[[fault]]\nkind = \"slow\"\nby = \"{by}%\"\n"),
    };
    format!("{head}{noise}{slow}")
}

fn suite(more: &str, against: &str) -> String {
    format!(
        r#"version = 1
[suite]
name = "card"
[model]
name = "sim-model"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "virtual"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1]
[baseline]
file = "baselines/card.jsonl"
{more}
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
against = {{ {against} }}
"#
    )
}

fn record(project: &Project, runs: &str) {
    let arguments = ["baseline", "record", "suite.toml", "--runs", runs, "--seed", "11"];
    project.tokgate(&arguments).exits(0);
}

/// A repository with five runs of the quick engine on `main`.
fn repository(against: &str) -> Project {
    let project = Project::with(&suite("", against));
    project.file("engine.toml", &profile(0));
    project.file(".gitignore", "tokgate-out/\nout/\n");
    // Recording needs no repository.
    record(&project, "5");
    git(project.path(), &["init", "--quiet", "--initial-branch", "main"]);
    commit(project.path(), "five runs");
    project
}

#[track_caller]
fn refused(project: &Project, words: &[&str]) -> Ran {
    let ran = project.run(&[]).exits(21);
    for words in words {
        assert!(ran.stderr.contains(words), "{words}:\n{}", ran.stderr);
    }
    assert!(ran.stderr.contains("  help: "), "{}", ran.stderr);
    assert!(!project.path().join("out").exists(), "nothing may be launched");
    ran
}

#[test]
fn a_ratio_is_held_against_the_revision_whatever_is_checked_out() {
    if !here() {
        return;
    }
    let project = repository("git = \"main\"");
    let hash = git(project.path(), &["rev-parse", "main"]);
    // A branch on which the engine became slower, and the baseline with it.
    git(project.path(), &["checkout", "--quiet", "-b", "slower"]);
    project.file("engine.toml", &profile(10));
    std::fs::remove_file(project.path().join("baselines/card.jsonl")).unwrap();
    record(&project, "5");
    commit(project.path(), "slower, and its baseline too");
    let ran = project.run(&["--seed", "3"]).exits(10);
    let relative = &ran.record()["header"]["cells"][0]["bounds"][0]["relative"];
    let named = format!("main:baselines/card.jsonl ({})", &hash[..7]);
    assert_eq!(relative["file"], named.as_str());
    assert_eq!(relative["git"]["commit"], hash.as_str());
    assert_eq!(relative["git"]["revision"], "main");
    assert!(ran.stdout.contains(&named), "{}", ran.stdout);
    // What the branch itself has would let it pass.
    project.file("suite.toml", &suite("", "git = \"HEAD\""));
    project.run(&["--seed", "3"]).exits(0);
    let ran = project.tokgate(&["list", "suite.toml"]).exits(0);
    assert!(ran.stdout.contains("≥ 0.97 × HEAD:baselines/card.jsonl (suite"), "{}", ran.stdout);
    // Two revisions beside each other.
    let diff = ["baseline", "diff", "main:baselines/card.jsonl", "baselines/card.jsonl"];
    let ran = project.tokgate(&diff).exits(0);
    let row = ran.stdout.lines().find(|line| line.contains("output-throughput")).unwrap();
    assert!(row.ends_with("worse"), "{row}");
    let ran = project.tokgate(&["baseline", "diff", "mian:a.jsonl", "main:a.jsonl"]).exits(21);
    assert!(ran.stderr.contains("there is no revision `mian`"), "{}", ran.stderr);
}

#[test]
fn a_revision_is_found_from_a_folder_that_is_gone_and_by_a_script_of_git_itself() {
    if !here() {
        return;
    }
    let project = repository("git = \"main\"");
    let text = suite("", "git = \"main\"");
    project.file("suites/card/suite.toml", &text.replace("\"baselines/", "\"../../baselines/"));
    project.file("suites/card/engine.toml", &profile(0));
    std::fs::remove_dir_all(project.path().join("baselines")).unwrap();
    let run = ["run", "suites/card/suite.toml", "--out", "out", "--seed", "3", "--no-progress"];
    let mut command = project.command(&run);
    // As in a hook of another repository, for somebody whose pager waits.
    command.env("GIT_DIR", "/nowhere/.git").env("GIT_WORK_TREE", "/nowhere");
    command.env("GIT_PAGER", "sleep 600").env("LC_ALL", "de_DE.UTF-8");
    let ran = project.ran(command.output().unwrap()).exits(0);
    assert_eq!(ran.having("pass").len(), 1);
}

#[test]
fn what_git_can_not_tell_is_refused_before_anything_is_launched() {
    if !here() {
        return;
    }
    let bare = Project::with(&suite("", "git = \"main\""));
    bare.file("engine.toml", &profile(0));
    let name = "cannot read main:baselines/card.jsonl: ";
    // A folder that holds no repository, whatever is above it.
    let mut command = bare.command(&["run", "suite.toml", "--out", "out"]);
    command.env("GIT_CEILING_DIRECTORIES", bare.path().parent().unwrap());
    let ran = bare.ran(command.output().unwrap()).exits(21);
    assert!(ran.stderr.contains(&format!("{name}. is in no git repository")), "{}", ran.stderr);

    let project = repository("git = \"mian\"");
    refused(&project, &["there is no revision `mian`", "`git branch --all`"]);

    project.file("suite.toml", &suite("", "git = \"main\", file = \"baselines/dart.jsonl\""));
    refused(&project, &["there is no baseline main:baselines/dart.jsonl (", "baseline record"]);
    project.file("baselines/dart.jsonl", "");
    refused(&project, &["there is no baseline main:baselines/dart.jsonl (", "commit the file"]);
    project.file("suite.toml", &suite("", "git = \"main\", file = \"baselines\""));
    refused(&project, &["cannot read main:baselines: it is no file there but a folder"]);

    // Nobody but git knows where git is.
    project.file("suite.toml", &suite("", "git = \"main\""));
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    let ran = project.ran(command.env("PATH", "/nowhere").output().unwrap()).exits(21);
    assert!(ran.stderr.contains(&format!("{name}git is not installed")), "{}", ran.stderr);
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    command.env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let ran = project.ran(command.output().unwrap()).exits(21);
    assert!(ran.stderr.contains("git does not trust the repository"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--add safe.directory /"), "{}", ran.stderr);
    assert!(!project.path().join("out").exists());
}

#[test]
fn a_clone_without_the_revision_is_told_how_to_get_it() {
    if !here() {
        return;
    }
    let origin = repository("git = \"main\"");
    git(origin.path(), &["checkout", "--quiet", "-b", "work"]);
    commit(origin.path(), "work");
    let url = format!("file://{}", origin.path().display());
    let clone = |more: &[&str]| {
        let project = Project::new();
        let arguments = [&["clone", "--quiet", "--branch", "work"], more, &[&url, "."]].concat();
        git(project.path(), &arguments);
        project
    };
    let shallow = clone(&["--depth", "1"]);
    let words = "there is no revision `main` in this shallow clone";
    let fetch = "git fetch --depth 1 origin main:main";
    refused(&shallow, &[words, fetch]);
    // What it says is what helps.
    git(shallow.path(), &fetch.split(' ').skip(1).collect::<Vec<_>>());
    shallow.run(&["--seed", "3"]).exits(0);
    // A clone that has all of it, but no branch of that name.
    let whole = clone(&[]);
    refused(&whole, &["there is no revision `main`", "write `git = \"origin/main\"`"]);
    whole.file("suite.toml", &suite("", "git = \"origin/main\""));
    whole.run(&["--seed", "3"]).exits(0);
}

#[test]
fn what_is_broken_in_a_revision_is_named_with_it() {
    if !here() {
        return;
    }
    let project = repository("git = \"main\"");
    let whole = std::fs::read_to_string(project.path().join("baselines/card.jsonl")).unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
    let last = whole.lines().count();
    let conflict = format!("{whole}<<<<<<< HEAD\n");
    let cut = &whole[..whole.len() - 20];
    let alien = whole.replacen("\"suite\":\"card\"", "\"suite\":\"dart\"", 1);
    let few: String = {
        let keep = |line: &&str| !line.contains("\"metric\":\"output-throughput\"");
        whole.lines().filter(keep).map(|line| format!("{line}\n")).collect()
    };
    let cases = [
        (pointer, "main:baselines/card.jsonl is a pointer of Git LFS".to_owned()),
        (&conflict, format!("main:baselines/card.jsonl:{} is a marker of a merge", last + 1)),
        (cut, "main:baselines/card.jsonl is cut short".to_owned()),
        (&alien, "the baseline main:baselines/card.jsonl (".to_owned()),
        (&few, "the baseline main:baselines/card.jsonl (".to_owned()),
    ];
    for (text, words) in &cases {
        project.file("baselines/card.jsonl", text);
        let hash = commit(project.path(), "broken");
        // What is checked out is whole, and helps nothing.
        project.file("baselines/card.jsonl", &whole);
        let ran = refused(&project, &[words]);
        if words.ends_with('(') {
            assert!(ran.stderr.contains(&hash[..7]), "{}", ran.stderr);
        }
    }
}

#[test]
fn what_a_revision_lacks_is_what_the_suite_says_it_is() {
    if !here() {
        return;
    }
    let project = repository("git = \"main\"");
    let without = git(project.path(), &["rev-parse", "HEAD"]);
    std::fs::remove_file(project.path().join("baselines/card.jsonl")).unwrap();
    commit(project.path(), "no baseline");
    project.file("suite.toml", &suite("on-missing = \"skip\"", "git = \"main\""));
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("measured").len(), 1);
    let warnings = ran.record()["warnings"].to_string();
    assert!(warnings.contains("the baseline main:baselines/card.jsonl ("), "{warnings}");
    // A revision that is not there is a mistake all the same.
    project.file("suite.toml", &suite("on-missing = \"skip\"", "git = \"mian\""));
    assert_eq!(project.run(&[]).code, 21);
    // What is recorded goes where the next commit takes it from.
    project.file("suite.toml", &suite("on-missing = \"record\"", "git = \"main\""));
    project.run(&["--seed", "3"]).exits(0);
    project.run(&["--seed", "4"]).exits(0);
    let text = std::fs::read_to_string(project.path().join("baselines/card.jsonl")).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"run\"")).count(), 2);
    commit(project.path(), "recorded");
    let ran = project.run(&["--seed", "5"]).exits(0);
    assert_eq!(ran.having("measured"), [""; 0]);
    // A commit by its hash, also a short one.
    project.file("suite.toml", &suite("", &format!("git = \"{}\"", &without[..12])));
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass").len(), 1);
}
