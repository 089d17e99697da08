//! Baselines through the front door, on the simulated engine in virtual time: recorded, held against,
//! promoted, compared, and refused before anything is launched.

use std::path::Path;

use crate::harness::{Project, Ran, shipped};

/// The simulated engine, slower by a factor, with noise between launches and within.
fn profile(slower: f64) -> String {
    let text = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    let (head, _) = text.split_once("[noise]").unwrap();
    let noise = "[noise]\nwithin = \"1%\"\nbetween = \"0.5%\"\n";
    if slower == 1.0 {
        return format!("{head}{noise}");
    }
    let slow = format!("[[fault]]\nkind = \"slow\"\nby = \"{}%\"\n", (slower - 1.0) * 100.0);
    format!("{head}{noise}{slow}")
}

fn text(more: &str) -> String {
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
matrix.concurrency = [1, 4]
[baseline]
file = "baselines/card.jsonl"
{more}"#
    )
}

const RATIO: &str = "[[expect]]\nmetric = \"output-throughput\"\nmin-ratio = 0.97\n";

fn project(more: &str) -> Project {
    let project = Project::with(&text(more));
    project.file("engine.toml", &profile(1.0));
    project
}

/// A project whose baseline has five runs.
fn recorded(more: &str) -> Project {
    let project = project(more);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "5", "--seed", "11"]).exits(0);
    project
}

fn file(project: &Project) -> String {
    std::fs::read_to_string(project.path().join("baselines/card.jsonl")).unwrap()
}

fn rewrite(project: &Project, change: impl FnOnce(String) -> String) {
    let text = change(file(project));
    project.file("baselines/card.jsonl", &text);
}

fn messages(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    cells
        .iter()
        .map(|cell| cell["judgement"]["message"].as_str().unwrap_or("").to_owned())
        .collect()
}

fn warnings(ran: &Ran) -> String {
    ran.record()["warnings"].to_string()
}

fn launched(project: &Project) -> bool {
    project.path().join("out").exists()
}

#[test]
fn the_same_engine_passes_and_a_slower_one_fails_with_the_ratio_in_words() {
    let project = recorded(RATIO);
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass").len(), 2);
    let said = messages(&ran);
    assert!(said[0].contains(" of the baseline's "), "{said:?}");
    assert!(said[0].contains("(5 runs, clear, sees losses from "), "{said:?}");
    assert!(
        said[0].contains("one of 2 comparisons, baselines/card.jsonl, suite.toml:20)"),
        "{said:?}"
    );

    project.file("engine.toml", &profile(1.1));
    let ran = project.run(&["--seed", "3"]).exits(10);
    assert_eq!(ran.having("fail").len(), 2);
    let said = messages(&ran);
    assert!(said[0].contains("tok/s is 0.9"), "{said:?}");
    assert!(said[0].contains("] < 0.97 (5 runs, sees losses"), "{said:?}");
    // The figure that tables show is the engine's and not the ratio.
    let rate =
        ran.record()["cells"][0]["judgement"]["bounds"][0]["estimate"]["value"].as_f64().unwrap();
    assert!(rate < 0.97 && rate > 0.8, "{rate}");
    let property = format!("value=\"{rate}");
    assert!(!ran.read("junit.xml").contains(&property), "a ratio is no metric of the cell");
}

#[test]
fn a_quicker_engine_passes_with_a_word_that_its_baseline_is_old() {
    let project = project(RATIO);
    project.file("engine.toml", &profile(1.1));
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "5", "--seed", "11"]).exits(0);
    project.file("engine.toml", &profile(1.0));
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass").len(), 2);
    assert!(ran.stdout.contains("better than its baseline: output-throughput"), "{}", ran.stdout);
    project.run(&["--seed", "3", "--deny-warnings"]).exits(11);
}

#[test]
fn what_is_better_when_less_is_held_from_above() {
    let expect = "[[expect]]\nmetric = \"tpot.p50\"\nmax-ratio = 1.03\nagainst = { file = \"other.jsonl\" }\n";
    let project = project(expect);
    let record = [
        "baseline",
        "record",
        "suite.toml",
        "--runs",
        "5",
        "--seed",
        "11",
        "--file",
        "other.jsonl",
    ];
    project.tokgate(&record).exits(0);
    project.run(&["--seed", "3"]).exits(0);
    project.file("engine.toml", &profile(1.1));
    let ran = project.run(&["--seed", "3"]).exits(10);
    let said = messages(&ran);
    assert!(said[0].contains("] > 1.03 (5 runs, sees rises from "), "{said:?}");
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_anything_is_launched() {
    let cut = |text: String| text[..text.len() - 40].to_owned();
    let first_cell =
        |text: &str| text.lines().position(|line| line.starts_with("{\"cell\"")).unwrap();
    type Change = Box<dyn Fn(String) -> String>;
    let cases: Vec<(&str, Change)> = vec![
        (
            "does not fit: it is of hardware.gpu = `NVIDIA H200`, and this is `simulated`",
            Box::new(|text| {
                text.replacen(
                    "\"hardware.gpu\":\"simulated\"",
                    "\"hardware.gpu\":\"NVIDIA H200\"",
                    1,
                )
            }),
        ),
        (
            "does not fit: it is of hardware.gpu = unknown, and this is `simulated`",
            Box::new(|text| text.replacen("\"hardware.gpu\":\"simulated\",", "", 1)),
        ),
        (
            "does not fit: it is of suite `dart`, and this is `card`",
            Box::new(|text| text.replacen("\"suite\":\"card\"", "\"suite\":\"dart\"", 1)),
        ),
        (
            "test `decode` was recorded with another version of the suite: duration was 30s, is 2s",
            Box::new(|text| text.replacen("\"duration\":\"2s\"", "\"duration\":\"30s\"", 1)),
        ),
        (
            "the cells of test `decode` were recorded by the axes streams, and have concurrency now",
            Box::new(|text| text.replace("concurrency=", "streams=")),
        ),
        (
            "has a value that is no number (`NaN`)",
            Box::new(|text| {
                let at = text.find("\"values\":{").unwrap();
                let colon = at + text[at + 10..].find(':').unwrap() + 11;
                let end = colon + text[colon..].find([',', '}']).unwrap();
                format!("{}NaN{}", &text[..colon], &text[end..])
            }),
        ),
        ("is cut short", Box::new(cut)),
        (
            "is a marker of a merge conflict, `<<<<<<<`",
            Box::new(move |text| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let at = first_cell(&text);
                let line = lines[at].clone();
                lines[at] = format!("<<<<<<< HEAD\n{line}\n=======\n{line}\n>>>>>>> nightly");
                lines.join("\n") + "\n"
            }),
        ),
        (
            "has format 9, this tokgate reads format 1",
            Box::new(|text| text.replacen("\"format\":1", "\"format\":9", 1)),
        ),
        (
            "lacks 1 value: decode concurrency=4 output-throughput",
            Box::new(|text| {
                let keep = |line: &&str| {
                    !(line.contains("concurrency=4") && line.contains("output-throughput"))
                };
                text.lines().filter(keep).map(|line| format!("{line}\n")).collect()
            }),
        ),
    ];
    let project = recorded(RATIO);
    let whole = file(&project);
    for (words, change) in cases {
        project.file("baselines/card.jsonl", &change(whole.clone()));
        let ran = project.run(&[]).exits(21);
        let words_seen = ran.stderr.contains(words) && ran.stderr.contains("baselines/card.jsonl");
        assert!(words_seen, "{words}:\n{}", ran.stderr);
        assert!(ran.stderr.contains("  help: "), "{}", ran.stderr);
        assert!(!launched(&project), "{words}");
    }
    std::fs::remove_file(project.path().join("baselines/card.jsonl")).unwrap();
    let ran = project.run(&[]).exits(21);
    assert!(ran.stderr.contains("there is no baseline baselines/card.jsonl"), "{}", ran.stderr);
    assert!(!launched(&project));
}

#[test]
fn one_run_shows_no_noise() {
    let project = project(RATIO);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "1"]).exits(0);
    let ran = project.run(&[]).exits(21);
    assert!(
        ran.stderr.contains("has fewer than 2 runs of 2 values: decode concurrency=1"),
        "{}",
        ran.stderr
    );
    assert!(!launched(&project));
    // A second run, whenever it comes, is enough.
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "1"]).exits(0);
    project.run(&[]).exits(0);
}

#[test]
fn a_missing_cell_is_what_the_suite_says_it_is() {
    let without_four = |text: String| -> String {
        text.lines()
            .filter(|line| !line.contains("concurrency=4"))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let project = recorded(&format!("on-missing = \"skip\"\n{RATIO}"));
    rewrite(&project, without_four);
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass"), ["decode concurrency=1"]);
    assert_eq!(ran.having("measured"), ["decode concurrency=4"]);
    let note = "not judged, since the baseline baselines/card.jsonl lacks it (baseline.on-missing): 1 value: decode concurrency=4 output-throughput";
    assert!(warnings(&ran).contains(note), "{}", warnings(&ran));

    let project = recorded(&format!("on-missing = \"record\"\n{RATIO}"));
    rewrite(&project, without_four);
    for run in 1..=3 {
        let ran = project.run(&["--seed", &run.to_string()]).exits(0);
        let judged = ran.having("pass").len();
        assert_eq!(judged, if run < 3 { 1 } else { 2 }, "run {run}: {}", ran.stderr);
    }
    let lines = file(&project);
    let line = lines.lines().find(|line| line.contains("concurrency=4")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["cell"]["values"].as_object().unwrap().len(), 2);
}

#[test]
fn a_baseline_with_a_cell_more_names_it() {
    let project = recorded(RATIO);
    project.file("suite.toml", &text(RATIO).replace("concurrency = [1, 4]", "concurrency = [1]"));
    let ran = project.run(&["--seed", "3"]).exits(0);
    let words = "has cells that the suite has not: 1 cell: decode concurrency=4";
    assert!(warnings(&ran).contains(words), "{}", warnings(&ran));
    project.file("suite.toml", &text(RATIO));
    let ran = project.run(&["-E", "concurrency=1", "--seed", "3"]).exits(0);
    assert_eq!(warnings(&ran), "[]", "a selection leaves cells out on purpose");
}

#[test]
fn recording_adds_runs_of_the_same_engine_and_suite_alone() {
    let project = recorded(RATIO);
    let runs =
        |project: &Project| file(project).lines().filter(|it| it.starts_with("{\"run\"")).count();
    assert_eq!(runs(&project), 5);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "2"]).exits(0);
    assert_eq!(runs(&project), 7);
    let other = text(RATIO).replace("duration = \"2s\"", "duration = \"1s\"");
    project.file("suite.toml", &other);
    let ran = project.tokgate(&["baseline", "record", "suite.toml", "--runs", "2"]).exits(21);
    assert!(ran.stderr.contains("duration was 2s, is 1s"), "{}", ran.stderr);
    assert_eq!(runs(&project), 7);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "2", "--replace"]).exits(0);
    assert_eq!(runs(&project), 2);
    // A run with a cell that could not be measured is recorded in no part.
    project.file(
        "engine.toml",
        &format!("{}[[fault]]\nkind = \"crash\"\nat-token = 40\n", profile(1.0)),
    );
    let ran = project.tokgate(&["baseline", "record", "suite.toml", "--runs", "1"]);
    assert_ne!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("run 1 of 1 is not recorded"), "{}", ran.stderr);
    assert_eq!(runs(&project), 2);
}

#[test]
fn promoting_refuses_to_lower_without_a_reason() {
    let project = recorded(RATIO);
    let run = |out: &str, seed: &str| {
        project.tokgate(&["run", "suite.toml", "--out", out, "--seed", seed]);
    };
    project.file("engine.toml", &profile(1.05));
    run("slow-1", "21");
    run("slow-2", "22");
    let before = file(&project);
    let ran = project.tokgate(&["baseline", "promote", "slow-1", "slow-2"]).exits(21);
    assert!(ran.stderr.contains("this would make"), "{}", ran.stderr);
    assert!(ran.stderr.contains("decode concurrency=4 output-throughput: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("--reason"), "{}", ran.stderr);
    assert_eq!(file(&project), before);
    let reason = "safer kernels";
    project.tokgate(&["baseline", "promote", "slow-1", "slow-2", "--reason", reason]).exits(0);
    let after = file(&project);
    assert_eq!(after.matches(reason).count(), 2, "{after}");
    assert_eq!(after.lines().filter(|line| line.starts_with("{\"run\"")).count(), 2);
    project.run(&["--seed", "3"]).exits(0);
    // One run alone is no baseline, but may stand beside others.
    let ran = project.tokgate(&["baseline", "promote", "slow-1", "--file", "one.jsonl"]).exits(21);
    assert!(ran.stderr.contains("one run shows no noise"), "{}", ran.stderr);
    assert!(!Path::new(&project.path().join("one.jsonl")).exists());
    project.file("engine.toml", &profile(1.0));
    run("quick", "23");
    project.tokgate(&["baseline", "promote", "quick", "--add"]).exits(0);
    assert_eq!(file(&project).lines().filter(|line| line.starts_with("{\"run\"")).count(), 3);
}

#[test]
fn two_baselines_are_shown_side_by_side() {
    let project = recorded(RATIO);
    project.file("engine.toml", &profile(1.1));
    let record =
        ["baseline", "record", "suite.toml", "--runs", "3", "--seed", "5", "--file", "slow.jsonl"];
    project.tokgate(&record).exits(0);
    let ran = project.tokgate(&["baseline", "diff", "baselines/card.jsonl", "slow.jsonl"]).exits(0);
    assert!(ran.stdout.contains("note: runs: A 5, B 3"), "{}", ran.stdout);
    let row =
        ran.stdout.lines().find(|line| line.starts_with("decode concurrency=4 output-throughput"));
    let row = row.unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(row.ends_with("worse") && row.contains(" 0.9"), "{row}");
    let row =
        ran.stdout.lines().find(|line| line.starts_with("decode concurrency=4 tpot.p50")).unwrap();
    assert!(row.ends_with("worse") && row.contains(" 1."), "{row}");
}

#[test]
fn the_level_is_shared_by_what_is_planned() {
    let project = recorded(RATIO);
    let bounds = |ran: &Ran| {
        ran.record()["header"]["cells"][0]["bounds"][0]["relative"]["comparisons"].as_u64()
    };
    assert_eq!(bounds(&project.run(&["--seed", "3"]).exits(0)), Some(2));
    // A cell that the baseline lacks is a comparison that was planned all the same.
    project.file("suite.toml", &text(&format!("on-missing = \"skip\"\n{RATIO}")));
    rewrite(&project, |text| {
        text.lines()
            .filter(|line| !line.contains("concurrency=4"))
            .map(|line| format!("{line}\n"))
            .collect()
    });
    assert_eq!(bounds(&project.run(&["--seed", "3"]).exits(0)), Some(2));
}

#[test]
fn a_list_says_what_a_ratio_is_held_against() {
    let project = project(RATIO);
    let ran = project.tokgate(&["list", "suite.toml"]).exits(0);
    assert!(
        ran.stdout.contains("output-throughput ≥ 0.97 × baselines/card.jsonl (suite.toml:20)"),
        "{}",
        ran.stdout
    );
    let ran = project.tokgate(&["list", "suite.toml", "--format", "json"]).exits(0);
    assert!(
        ran.stdout.contains(r#""min-ratio":0.97,"against":"baselines/card.jsonl""#),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_a_recording_could_not_write_is_said_before_it_measures() {
    let project = project(RATIO);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let record = |name: &str| {
        let arguments =
            ["baseline", "record", "suite.toml", "--runs", "2", "--replace", "--file", name];
        project.tokgate(&arguments)
    };
    let ran = record("suite.toml").exits(21);
    let lost = "help: name another file: what stands there would be lost";
    assert!(ran.stderr.contains(lost), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(project.path().join("suite.toml")).unwrap(), suite);
    std::os::unix::fs::symlink("nowhere", project.path().join("link")).unwrap();
    let ran = record("link/runs.jsonl").exits(33);
    assert!(ran.stderr.contains("nothing was measured"), "{}", ran.stderr);
    assert!(!project.path().join("tokgate-out").exists());
}
