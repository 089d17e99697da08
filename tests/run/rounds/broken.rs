//! Engines that die, or don't start, in one of several launches.

use super::super::resumed::{bytes, journal};
use super::{ENGINE, cell, events, mean, measured, real_suite, starts, verdict};
use crate::harness::{Project, Ran};

/// Two variants of an engine that is a script, which sees as `$2` which launch it is. `odd` is what it does
/// before it serves; where that sets `profile`, by that.
fn scripted(odd: &str) -> Project {
    let engine = "kind = \"vllm\"\ncommand = [\"bash\", \"engine.sh\", \"{{ port }}\", \"{{ launch.id }}\", \
                  \"{{ launch.dir }}\", \"{{ secret.key }}\"]\nstop.grace = \"2s\"\n[secrets]\n\
                  key = { generate = true }";
    let suite =
        real_suite().replace("kind = \"sim\"\nprofile = \"engine.toml\"\nclock = \"real\"", engine);
    let project = Project::with(&suite.replace("engine.profile = \"new.toml\"", "vars.x = 1"));
    let script = format!(
        "echo \"$2 $3\" >> starts\necho \"my key is $4\"\nprofile=engine.toml\n{odd}\n\
         exec {} sim --port $1 --profile $profile",
        env!("CARGO_BIN_EXE_tokgate")
    );
    // The second launch of the plan is the candidate.
    project.file("engine.sh", &script);
    project.file("engine.toml", ENGINE);
    let crash = "[[fault]]\nkind = \"crash\"\nat-token = 12\nexit-code = 3\n";
    project.file("crash.toml", &format!("{ENGINE}{crash}"));
    project
}

#[track_caller]
fn all_starts_differ(project: &Project, count: usize) {
    let text = std::fs::read_to_string(project.path().join("starts")).unwrap();
    for column in [0, 1] {
        let words = text.lines().map(|line| line.split(' ').nth(column).unwrap());
        let words: std::collections::BTreeSet<&str> = words.collect();
        assert_eq!(words.len(), count, "{text}");
    }
}

#[test]
fn an_engine_that_dies_in_one_launch_costs_the_cell_that_it_dies_in() {
    let project = scripted("case $2 in *-1-n3-0) profile=crash.toml;; esac");
    let ran = project.run(&["--seed", "7"]).exits(30);
    // It is the third launch; the restart is a start of the same.
    assert_eq!(
        starts(&ran),
        ["new 0", "old 0", "old 1", "new 1", "new 2", "new 2", "old 2", "old 3", "new 3"]
    );
    let logs: Vec<String> = events(&ran, "launch-started")
        .iter()
        .map(|event| event["log"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        logs,
        [
            "engine-new.log",
            "engine-old.log",
            "engine-old-n2.log",
            "engine-new-n2.log",
            "engine-new-n3.log",
            "engine-new-n3-2.log",
            "engine-old-n3.log",
            "engine-old-n4.log",
            "engine-new-n4.log",
        ]
    );
    for log in &logs {
        let text = ran.read(log);
        assert!(text.contains("my key is [redacted]"), "{text}");
    }
    all_starts_differ(&project, 9);
    let dead = "new decode concurrency=1";
    let (found, message) = verdict(&ran, dead);
    assert_eq!(found, "error");
    assert!(message.starts_with("in launch 3 of 4: the engine died: exit code 3"), "{message}");
    assert_eq!(measured(&ran, dead), 3, "what broke is not measured further");
    // All others have their four launches.
    for name in ["new prefill prefill", "new decode concurrency=2", "old decode concurrency=1"] {
        assert_eq!(measured(&ran, name), 4, "{name}");
    }
    assert_eq!(ran.having("error"), ["decode concurrency=1"]);
    assert_ne!(verdict(&ran, "new decode concurrency=2").0, "error");
    let (found, message) = mean(&ran);
    assert_eq!(found, "error");
    assert!(
        message.contains("no mean ratio: decode concurrency=1: in launch 3 of 4: "),
        "{message}"
    );
}

#[test]
fn an_engine_that_dies_in_the_last_cell_of_a_launch_ends_that_launch_and_no_later_one() {
    let project = scripted("case $2 in *-1-n3-0) profile=crash.toml;; esac");
    let ran = project.run(&["-E", "test=prefill", "-E", "test=decode concurrency=1"]).exits(30);
    assert_eq!(
        starts(&ran),
        ["new 0", "old 0", "old 1", "new 1", "new 2", "old 2", "old 3", "new 3"]
    );
    assert_eq!(measured(&ran, "new decode concurrency=1"), 3);
    assert_eq!((measured(&ran, "new prefill prefill"), ran.having("error").len()), (4, 1));
    let words = "launch new: the engine died in decode concurrency=1: exit code 3";
    assert!(ran.record()["warnings"].to_string().contains(words), "{}", ran.record()["warnings"]);
}

#[test]
fn each_launch_has_its_restarts_over_all_sessions() {
    // One death in the third launch and one in the fourth; either is allowed one.
    let odd = "case $2 in *-1-n3-0|*-1-n4-0) profile=crash.toml;; esac";
    let project = scripted(odd);
    let path = project.path().join("suite.toml");
    let suite = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, suite.replace("concurrency = [1, 2]", "concurrency = [1, 2, 3]"))
        .unwrap();
    let ran = project.run(&["--seed", "7"]).exits(30);
    assert_eq!(ran.having("error"), ["decode concurrency=1", "decode concurrency=2"]);
    assert!(!ran.stdout.contains("policy.restarts"), "{}", ran.stdout);
    assert_eq!(starts(&ran).len(), 10);
    // Cut behind the start that followed the first death: no restart is left to that launch.
    let text = String::from_utf8(bytes(&journal(&project))).unwrap();
    let again = text.match_indices("\"launch-started\"").nth(5).unwrap().0;
    let end = again + text[again..].find('\n').unwrap() + 1;
    std::fs::write(journal(&project), &text[..end]).unwrap();
    let script = std::fs::read_to_string(project.path().join("engine.sh")).unwrap();
    let dies_again = "case $2 in *-r1-1-n3-0) profile=crash.toml;; esac";
    project.file("engine.sh", &script.replace(odd, dies_again));
    let ran = project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(30);
    assert!(bytes(&journal(&project)).starts_with(&text.as_bytes()[..end]));
    assert_eq!(measured(&ran, "new decode concurrency=1"), 3);
    let (_, message) = verdict(&ran, "new decode concurrency=2");
    assert!(message.starts_with("in launch 3 of 4: the engine died"), "{message}");
    let (_, message) = verdict(&ran, "new decode concurrency=3");
    assert!(message.contains("policy.restarts = 1; 2 of 4 launches measured"), "{message}");
    assert_eq!(measured(&ran, "old decode concurrency=3"), 4);
}

#[test]
fn a_launch_that_fails_in_a_later_round_takes_its_cells_along() {
    let project = scripted("case $2 in *-1-n2-0) echo no memory is left; exit 4;; esac");
    let ran = project.run(&[]).exits(30);
    // It is not tried again; the other variant is measured to its end.
    assert_eq!(starts(&ran), ["new 0", "old 0", "old 1", "new 1", "old 2", "old 3"]);
    let left = "not run: launch new failed in its launch 2 of 4; 1 of 4 launches measured";
    for name in ["new decode concurrency=1", "new prefill prefill"] {
        assert_eq!(verdict(&ran, name), ("error".into(), left.into()));
        assert_eq!(measured(&ran, name), 1);
    }
    assert_eq!(verdict(&ran, "old decode concurrency=1").0, "measured");
    let junit = ran.read("junit.xml");
    assert!(junit.contains(left) && junit.contains("no memory is left"), "{junit}");
    assert_eq!(cell(&ran, "old prefill prefill")["rounds"].as_array().unwrap().len(), 4);
    assert_eq!(
        mean(&ran),
        ("error".into(), "not run: launch new failed in its launch 2 of 4".into())
    );
}

#[test]
fn the_reference_that_fails_is_named_where_it_is_missed() {
    let project = scripted("case $2 in *-0-n2-0) exit 4;; esac");
    let ran: Ran = project.run(&["-E", "test=decode concurrency=1"]).exits(30);
    let (found, message) = verdict(&ran, "new decode concurrency=1");
    assert_eq!(found, "error");
    assert!(message.contains("old has none: not run: launch old failed"), "{message}");
}
