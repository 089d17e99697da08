//! What the reports of a run tell of variants in pairs and of several launches.

use serde_json::Value;

use crate::harness::{Project, Ran};

/// Two streams get 200 tok/s together, in launches that differ by half a percent.
const PROFILE: &str = r#"version = "1.0.0"
max-model-len = "32K"
kv-capacity = "256K"
start-up = "1s"
[prefill]
tokens = [16, "32K"]
ms = [1, 100]
[admit]
at = [1, 4]
grid = [["1K", 20, 20]]
[step]
at = [1, 2, 4]
grid = [["1K", 10, 10, 10]]
[noise]
within = "2%"
between = "0.5%"
"#;

/// Three cells of two variants in four pairs; `step` is what a step of two streams takes in the new one.
fn upgrade(step: &str, limit: &str, more: &str) -> Project {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "upgrade"
[engine]
kind = "sim"
clock = "virtual"
profile = "old.toml"
[variant.old]
[variant.new.engine]
profile = "new.toml"
[compare]
baseline = "old"
candidate = "new"
pairs = 4
{limit}
[[test]]
kind = "decode"
duration = "4s"
max-output = 2048
matrix.concurrency = [1, 2, 4]
[[expect]]
metric = "output-throughput"
min-ratio = 0.95
{more}"#
    ));
    project.file("old.toml", PROFILE);
    project.file("new.toml", &PROFILE.replace("10, 10, 10", &format!("10, {step}, 10")));
    project
}

/// `tests, failures, errors` of junit.xml.
fn junit(ran: &Ran) -> [u64; 3] {
    let xml = ran.read("junit.xml");
    let head = xml.split_once("<testsuites ").unwrap().1.split_once('>').unwrap().0;
    ["tests", "failures", "errors"].map(|name| {
        let value = head.split_once(&format!("{name}=\"")).unwrap().1;
        value.split_once('"').unwrap().0.parse().unwrap()
    })
}

#[test]
fn a_loss_turns_the_build_red_and_every_report_says_where() {
    let project = upgrade("12", "min-mean-ratio = 0.99", "");
    let ran = project.run(&["--seed", "7", "--annotations", "github"]).exits(10);
    // Two launches, six cells and the mean ratio; the cell and the mean fail.
    assert_eq!(junit(&ran), [9, 2, 0]);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("2 passed, 0 skipped, 2 failed, 0 inconclusive, 0 errors, 3 measured only (mean ratio: failed) in "), "{last}");
    let (cell, mean) = ("output-throughput 166.", "mean ratio 0.9");
    for page in
        [&ran.stdout, &ran.read("summary.md"), &ran.read("report.html"), &ran.read("junit.xml")]
    {
        assert!(page.contains(cell) && page.contains(mean), "{page}");
    }
    assert!(
        ran.stdout.contains("suite.toml,line=15,title=✗ fail mean ratio new against old::"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("4 launches ±"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("policy.unjudged"), "what others are held against is no warning");
    // record.json is what its schema says, and renders again to the same.
    let record = ran.record();
    let estimate = &record["compare"]["estimate"];
    let of = |name: &str| estimate[name].as_f64().unwrap();
    assert!(of("lower") < of("value") && of("value") < of("upper"));
    let starts = record["launches"][0]["starts"].as_array().unwrap();
    let rounds: Vec<&Value> = starts.iter().map(|start| &start["round"]).collect();
    assert_eq!(rounds, [0, 1, 2, 3]);
    let again = project.tokgate(&["report", "out"]).exits(0);
    assert!(ran.stdout.starts_with(&again.stdout));
    let schema =
        std::fs::read_to_string(crate::harness::shipped("schemas/record.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let problems: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&record)
        .map(|it| it.to_string())
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn no_loss_is_green_and_the_mean_ratio_counts_as_passed() {
    let ran = upgrade("10", "min-mean-ratio = 0.97", "")
        .run(&["--seed", "7", "--deny-warnings"])
        .exits(0);
    assert_eq!(junit(&ran), [9, 0, 0]);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("4 passed, 0 skipped, 0 failed, "), "{last}");
    assert!(
        ran.read("junit.xml")
            .contains("<testcase name=\"mean ratio\" classname=\"upgrade.new.compare\"")
    );
}

#[test]
fn without_a_limit_the_mean_ratio_is_told_and_judges_nothing() {
    let ran = upgrade("12", "", "severity = \"report\"").run(&["--seed", "7"]).exits(0);
    assert_eq!(junit(&ran), [9, 0, 0]);
    assert!(ran.stdout.contains("○ measured: mean ratio 0.9"), "{}", ran.stdout);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.contains("7 measured only (mean ratio: measured only)"), "{last}");
}

#[test]
fn cells_that_others_are_held_against_may_have_no_bound_of_their_own() {
    let ran = upgrade("10", "", "[policy]\nunjudged = \"error\"\n").run(&["--seed", "7"]).exits(0);
    assert_eq!(ran.having("measured").len(), 3);
    assert!(ran.stdout.contains("○ measured"));
}
