//! Limits that can fail, and limits that can't: the self-test of a gate.

use serde_json::Value;

use crate::harness::Project;

/// Figures of the simulated engine in virtual time are the same on every machine, so limits can stand
/// close to them: about 200 tok/s for a stream, 10 ms to the first token.
fn suite(more: &str) -> Project {
    Project::with(&format!(
        r#"version = 1
[suite]
name = "gate"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
name = "decode"
kind = "decode"
duration = "10s"
min-tokens = 10
max-output = 256
matrix.context = ["1K", "4K"]
matrix.concurrency = [1, 4]
{more}"#
    ))
}

const CLOSE: &str = r#"
[[expect]]
name = "close"
metric = "output-throughput"
where = { context = "1K", concurrency = 1 }
min = 192
"#;

#[test]
fn limits_close_to_the_figures_notice_what_they_can_see() {
    let project = suite(CLOSE);
    let ran = project.run(&[]).exits(0);
    let value = &ran.record()["cells"][0]["judgement"]["bounds"][0]["estimate"]["value"];
    let value = value.as_f64().unwrap();
    assert!((196.0..201.0).contains(&value), "{value}: the limit of the test does not fit");
    let told = project.tokgate(&["selftest", "out"]).exits(0);
    let row = told.stdout.lines().find(|line| line.contains(":20 close")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().skip(3).collect();
    assert_eq!(cells, ["1", "0", "0", "1", "1", "1"], "{}", told.stdout);
    assert!(told.stderr.contains("the one limit notices a loss of 20 %"), "{}", told.stderr);
    // What is asked decides: no loss of a hundredth would be seen.
    let told = project.tokgate(&["selftest", "out", "--worse", "1%"]).exits(20);
    assert!(told.stdout.contains("at least 192 is asked: fails from"), "{}", told.stdout);
}

#[test]
fn whatever_can_not_fail_is_named_with_its_line_and_why() {
    let planted = r#"
[[test]]
name = "huge"
kind = "decode"
duration = "2s"
matrix.context = ["64K"]
[[expect]]
name = "far"
test = "decode"
metric = "output-throughput"
min = 20
where = { context = "4K" }
[[expect]]
name = "over"
test = "huge"
metric = "ttft.p50"
max = "10s"
severity = "fail"
[[expect]]
name = "tail"
test = "decode"
where = { concurrency = 4, context = "1K" }
metric = "ttft.p99"
max = "5s"
[[expect]]
name = "soft"
test = "decode"
metric = "tpot.p50"
max = "10s"
severity = "warn"
"#;
    let project = suite(&format!("{CLOSE}{planted}"));
    project.run(&[]);
    let told = project.tokgate(&["selftest", "out"]).exits(20);
    let named: Vec<&str> = told.stdout.lines().filter(|line| line.starts_with("  suite")).collect();
    assert_eq!(
        named.iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect::<Vec<_>>(),
        ["far", "over", "tail"],
        "{}",
        told.stdout
    );
    let why = |name: &str| {
        let at = told
            .stdout
            .lines()
            .position(|line| line.starts_with("  suite") && line.contains(&format!(" {name} ")));
        told.stdout.lines().nth(at.unwrap() + 1).unwrap().to_owned()
    };
    assert!(why("far").contains("where at least 20 is asked: fails from "), "{}", why("far"));
    assert!(why("far").contains("the nearest of 2 cells"), "{}", why("far"));
    assert!(why("over").contains("1 cell: "), "{}", why("over"));
    // Six requests in few waves prove no 99th percentile, whatever they come to.
    assert!(why("tail").contains("samples are too few"), "{}", why("tail"));
    assert!(told.stderr.contains("3 of 4 limits can't fail"), "{}", told.stderr);
    assert!(!told.stdout.contains("soft"), "what only warns fails nothing: {}", told.stdout);

    let told = project.tokgate(&["selftest", "out/record.json", "--format", "json"]).exits(20);
    let json: Value = serde_json::from_str(&told.stdout).unwrap();
    let limits = json["limits"].as_array().unwrap();
    let able: Vec<&Value> =
        limits.iter().filter(|limit| limit["can-fail"] == true).map(|l| &l["name"]).collect();
    assert_eq!(able, ["close"]);
    assert_eq!(limits[0]["cells"][0]["says"].as_array().unwrap().len(), 5);
}

#[test]
fn a_limit_in_quarantine_is_silent_by_intent() {
    let project = suite(&format!(
        "{CLOSE}\n[[quarantine]]\nwhere = {{ context = \"1K\", concurrency = 1 }}\nreason = \"known\"\n\
         expires = 2099-12-31\n"
    ));
    project.run(&[]).exits(0);
    let told = project.tokgate(&["selftest", "out"]).exits(0);
    assert!(told.stdout.contains("quarantined"), "{}", told.stdout);
}

#[test]
fn a_run_without_limits_is_a_gate_that_can_not_fail() {
    let project = suite("");
    project.run(&[]).exits(0);
    let told = project.tokgate(&["selftest", "out"]).exits(20);
    assert!(told.stderr.contains("no cell has a limit that can fail it"), "{}", told.stderr);
    let told = project.tokgate(&["selftest", "nowhere"]).exits(20);
    assert!(told.stderr.contains("nowhere"), "{}", told.stderr);
    let told = project.tokgate(&["selftest", "out", "--worse", "0%"]).exits(20);
    assert!(told.stderr.contains("above 0%"), "{}", told.stderr);
}

/// A mean ratio that may be a tenth of the old engine's is a gate that can't fail.
#[test]
fn the_mean_ratio_of_a_comparison_is_a_limit_too() {
    let suite = |mean: f64| {
        Project::with(&format!(
            r#"version = 1
[suite]
name = "gate"
[engine]
kind = "sim"
clock = "virtual"
[variant.old]
engine.version = ">=0"
[variant.new]
engine.version = ">=0"
[compare]
baseline = "old"
candidate = "new"
min-mean-ratio = {mean}
[[test]]
kind = "decode"
duration = "1s"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
"#
        ))
    };
    let project = suite(0.99);
    project.tokgate(&["run", "suite.toml", "--out", "out", "--seed", "1"]).exits(0);
    let ran = project.tokgate(&["selftest", "out"]).exits(0);
    assert!(ran.stderr.contains("each of 2 limits notices a loss of 20 %"), "{}", ran.stderr);
    let row = ran.stdout.lines().find(|line| line.starts_with("suite.toml:14 mean ratio"));
    assert!(row.is_some_and(|row| row.ends_with("       1")), "{}", ran.stdout);

    let project = suite(0.1);
    project.tokgate(&["run", "suite.toml", "--out", "out", "--seed", "1"]).exits(0);
    let ran = project.tokgate(&["selftest", "out"]).exits(20);
    assert!(ran.stderr.contains("1 of 2 limits can't fail"), "{}", ran.stderr);
    let said = "where at least 0.1 is asked: fails from 9";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    let ran = project.tokgate(&["selftest", "out", "--format", "json"]).exits(20);
    assert!(ran.stdout.contains("\"mean-ratio\": {"), "{}", ran.stdout);
}
