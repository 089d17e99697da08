//! Variants that are held against each other: what is listed before a run, which command repeats a cell,
//! and what is recorded.

use serde_json::Value;

use crate::harness::{Project, shipped};

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

/// Two variants, the second slower by that many percent.
fn project(slower: u32, more: &str) -> Project {
    let text = format!(
        r#"version = 1
[suite]
name = "card"
[model]
name = "sim-model"
[engine]
kind = "sim"
clock = "virtual"
[variant.old]
engine.profile = "old.toml"
[variant.new]
engine.profile = "new.toml"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
{more}"#
    );
    let project = Project::with(&text);
    project.file("old.toml", &profile(0));
    project.file("new.toml", &profile(slower));
    project
}

const COMPARE: &str = r#"[compare]
baseline = "old"
candidate = "new"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
"#;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_list_says_how_often_engines_are_started_and_what_is_compared() {
    let with_limit = COMPARE.replace("[[expect]]", "min-mean-ratio = 0.99\n[[expect]]");
    let project = project(0, &with_limit);
    let ran = project.tokgate(&["list", "suite.toml"]).exits(0);
    let said = &ran.stdout;
    assert!(said.contains("launch new: 2 cells, started 4 times\n"), "{said}");
    let bound = "  output-throughput ≥ 0.97 × variant old in 4 pairs (suite.toml:25)\n";
    assert_eq!(said.matches(bound).count(), 2, "{said}");
    assert!(said.contains("concurrency=1  4 × "), "{said}");
    assert!(said.contains("card: 4 cells in 2 launches (8 engine starts), about "), "{said}");
    assert!(said.contains("; mean ratio of 4 pairs ≥ 0.99 (suite.toml:22)\n"), "{said}");
    assert!(!said.contains("nothing is expected"), "the other variant is held against: {said}");

    let json = |more: &[&str]| {
        let ran = project.tokgate(&[&["list", "suite.toml", "--format", "json"], more].concat());
        lines(&ran.exits(0).stdout)
    };
    let four = json(&[]);
    let of = |lines: &[Value], kind: &str| -> Vec<Value> {
        lines.iter().filter(|line| line["type"] == kind).cloned().collect()
    };
    assert!(of(&four, "launch").iter().all(|launch| launch["starts"] == 4), "{four:?}");
    assert!(of(&four, "cell").iter().all(|cell| cell["launches"] == 4), "{four:?}");
    let new = of(&four, "cell").into_iter().find(|cell| cell["variant"] == "new").unwrap();
    assert_eq!(new["bounds"][0]["pairs"], 4);
    assert_eq!(new["bounds"][0]["against"], "variant old");
    assert_eq!(of(&four, "summary")[0]["starts"], 8);
    // Twice the pairs take twice the time.
    let eight = json(&["--set", "compare.pairs=8"]);
    assert_eq!(of(&eight, "summary")[0]["starts"], 16);
    let time = |lines: &[Value]| of(lines, "summary")[0]["estimate"].as_f64().unwrap();
    assert!((time(&eight) / time(&four) - 2.0).abs() < 0.02, "{} {}", time(&four), time(&eight));

    let ran = project.tokgate(&["check", "suite.toml"]).exits(0);
    assert!(ran.stdout.contains("2 launches (8 engine starts), 4 cells"), "{}", ran.stdout);
    let explain = |more: &[&str]| {
        let arguments = [&["list", "suite.toml", "--explain", "compare.pairs"], more].concat();
        project.tokgate(&arguments).exits(0).stdout
    };
    assert_eq!(explain(&[]), "compare.pairs is not set; default: 4\n");
    assert_eq!(explain(&["--set", "compare.pairs=6"]), "compare.pairs = 6  # --set\n");
}

#[test]
fn launches_of_a_test_are_listed_and_an_engine_that_runs_is_started_by_nobody() {
    let project = project(
        0,
        "launches = 3\n[[expect]]\nmetric = \"output-throughput\"\nmin-ratio = 0.97\nagainst = { variant = \"old\" }\n",
    );
    let ran = project.tokgate(&["list", "suite.toml"]).exits(0);
    assert!(ran.stdout.contains("× variant old (suite.toml:22)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("started 3 times"), "{}", ran.stdout);
    assert!(ran.stdout.contains("(6 engine starts)"), "{}", ran.stdout);
    let ran = project.tokgate(&["check", "suite.toml", "--set", "test.decode.launches=2"]).exits(0);
    assert!(ran.stdout.contains("(4 engine starts)"), "{}", ran.stdout);
    let command = "version = 1\n[suite]\nname = \"card\"\n[engine]\nkind = \"llama-cpp\"\ncommand = \"llama-server --port {{ port }}\"\n[[test]]\nkind = \"decode\"\nlaunches = 3\n[[expect]]\nmetric = \"output-throughput\"\nmin = 5\n";
    let project = Project::with(command);
    let ran = project.tokgate(&["list", "suite.toml"]).exits(0);
    assert!(ran.stdout.contains("(3 engine starts), about "), "{}", ran.stdout);
    assert!(
        ran.stdout.ends_with(" at the pace of the limits and 6m for engine starts\n"),
        "{}",
        ran.stdout
    );
    let ran = project.tokgate(&["list", "suite.toml", "--url", "http://127.0.0.1:1"]).exits(0);
    assert!(ran.stdout.contains("decode  3 × "), "{}", ran.stdout);
    assert!(ran.stdout.contains("in 1 launch, about "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("engine starts aside\n"), "{}", ran.stdout);
}

#[test]
fn the_rerun_command_of_a_candidate_measures_both_variants_again() {
    let project = project(20, COMPARE);
    let ran = project.run(&["--seed", "3"]).exits(10);
    assert_eq!(ran.having("fail"), ["decode concurrency=1", "decode concurrency=4"]);
    let printed = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("rerun: tokgate "));
    let words = shell_words::split(printed.unwrap_or_else(|| panic!("{}", ran.stdout))).unwrap();
    let again = project.tokgate(&words.iter().map(String::as_str).collect::<Vec<_>>()).exits(10);
    let record = again.record();
    let cells = record["header"]["cells"].as_array().unwrap();
    let variants: Vec<&str> = cells.iter().map(|cell| cell["variant"].as_str().unwrap()).collect();
    assert_eq!(variants, ["old", "new"], "{}", again.stdout);
    assert_eq!(cells[0]["id"], cells[1]["id"]);
    assert!(cells.iter().all(|cell| cell["rounds"] == 4));
    let message = record["cells"][1]["judgement"]["message"].as_str().unwrap();
    assert!(message.contains("of old's") && message.contains("4 pairs"), "{message}");
}

#[test]
fn a_cell_that_others_are_held_against_is_not_one_of_which_nothing_is_expected() {
    let project = project(0, &format!("{COMPARE}[policy]\nunjudged = \"error\"\n"));
    let ran = project.run(&["--seed", "3", "--deny-warnings"]).exits(0);
    assert_eq!(ran.having("pass").len(), 2);
    assert_eq!(ran.having("measured").len(), 2);
    assert_eq!(ran.record()["cells"][0]["judgement"]["class"], "reference");
    // By itself it is one.
    assert_eq!(project.run(&["-E", "variant=old"]).code, 20);
}

#[test]
fn a_suite_whose_ratios_are_held_against_variants_needs_no_recorded_runs() {
    let project = project(0, COMPARE);
    let record = ["baseline", "record", "suite.toml", "--runs", "1", "--seed", "11"];
    let ran = project.tokgate(&record).exits(20);
    assert!(ran.stderr.contains("which are measured in the run itself"), "{}", ran.stderr);
    // Where a file is named, each launch of each variant is a value.
    let ran = project.tokgate(&[&record[..], &["--file", "b.jsonl"]].concat()).exits(0);
    assert!(ran.stderr.contains("launches both variants of [compare] 4 times"), "{}", ran.stderr);
    let text = std::fs::read_to_string(project.path().join("b.jsonl")).unwrap();
    let cells: Vec<Value> =
        lines(&text).into_iter().filter(|line| !line["cell"].is_null()).collect();
    assert!(!cells.is_empty());
    for line in &cells {
        assert_eq!(line["cell"]["values"].as_object().unwrap().len(), 4, "{line}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"run\"")).count(), 4);
}

#[test]
fn a_recorded_value_is_one_launch_also_where_a_run_has_several() {
    let more = "launches = 3\n[baseline]\nfile = \"b.jsonl\"\n[[expect]]\nmetric = \"output-throughput\"\nmin-ratio = 0.97\nwhere = { variant = \"old\" }\n";
    let project = project(0, more);
    let record = ["baseline", "record", "suite.toml", "--runs", "2", "--seed", "11"];
    project.tokgate(&record).exits(0);
    let text = std::fs::read_to_string(project.path().join("b.jsonl")).unwrap();
    let line = lines(&text).into_iter().find(|line| {
        line["cell"]["variant"] == "old" && line["cell"]["metric"] == "output-throughput"
    });
    let line = line.unwrap();
    let values = line["cell"]["values"].as_object().unwrap();
    assert_eq!(values.len(), 6, "{line}");
    let ran = project.run(&["--seed", "3"]).exits(0);
    let record = ran.record();
    let message = record["cells"][0]["judgement"]["message"].as_str().unwrap();
    assert!(message.contains("6 runs") || message.contains("3 launches"), "{message}");
}
