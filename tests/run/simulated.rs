//! What verdicts are worth: many cells of noise with a known truth, in virtual time.

use serde_json::Value;

use crate::harness::Project;

/// Noise is a fifth of a step, so that a window of 400 steps is known to 1 %. Two streams get
/// 200 tok/s together.
const PROFILE: &str = r#"version = "1.0.0"
max-model-len = "32K"
kv-capacity = "256K"
start-up = "1ms"
[prefill]
tokens = [16, "32K"]
ms = [1, 100]
[admit]
at = [1, 4]
grid = [["1K", 20, 20]]
[step]
at = [1, 4]
grid = [["1K", 10, 10]]
[noise]
within = "20%"
"#;

/// The truth, in tok/s.
const RATE: f64 = 200.0;

/// A test of so many cells alike, each with noise of its own, and what is expected of them.
fn cells(name: &str, count: u32, floor: f64, more: &str) -> String {
    let nights: Vec<u32> = (1..=count).collect();
    format!(
        r#"
[[test]]
name = "{name}"
kind = "decode"
duration = "4s"
max-output = 4096
matrix.concurrency = [2]
matrix.night = {nights:?}
[[expect]]
test = "{name}"
metric = "output-throughput"
min = {floor}
{more}
"#
    )
}

/// The share of a test's cells with this verdict.
fn share(verdicts: &[String], test: &str, verdict: &str) -> f64 {
    let of_test: Vec<_> =
        verdicts.iter().filter(|cell| cell.starts_with(&format!("{test} "))).collect();
    let having = of_test.iter().filter(|cell| cell.ends_with(&format!(" {verdict}"))).count();
    having as f64 / of_test.len() as f64
}

/// The share of a test's cells whose bound of this number fails.
fn bound_fails(record: &Value, test: &str, bound: usize) -> f64 {
    let planned = record["header"]["cells"].as_array().unwrap();
    let cells = planned.iter().zip(record["cells"].as_array().unwrap());
    let verdicts: Vec<&str> = cells
        .filter(|(planned, _)| planned["test"] == test)
        .map(|(_, cell)| cell["judgement"]["bounds"][bound]["verdict"].as_str().unwrap())
        .collect();
    verdicts.iter().filter(|verdict| **verdict == "fail").count() as f64 / verdicts.len() as f64
}

#[test]
fn false_alarms_stay_below_alpha_and_losses_are_found() {
    let time = "[[expect]]\ntest = \"unchanged\"\nmetric = \"tpot.mean\"\nmax = 10\nseverity = \"report\"\n";
    let suite = [
        "version = 1\n[suite]\nname = \"simulated\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         profile = \"noisy.toml\"\n"
            .to_owned(),
        cells("unchanged", 150, RATE, time),
        cells("slower-by-a-tenth", 25, RATE / 0.9, ""),
        cells("beyond-its-slack", 25, RATE / 0.9, "slack = \"5%\""),
        cells("within-its-slack", 25, RATE / 0.98, "slack = \"6%\""),
    ]
    .concat();
    let project = Project::with(&suite);
    project.file("noisy.toml", PROFILE);
    let ran = project.run(&["--seed", "7"]).exits(10);
    let verdicts = ran.verdicts();

    // Three standard errors above alpha, for both looks together. Judging at alpha twice, or with
    // intervals a third too narrow, is seen.
    let most = 0.05 + 3.0 * (0.05f64 * 0.95 / 150.0).sqrt();
    let alarms = share(&verdicts, "unchanged", "fail");
    assert!(alarms > 0.0 && alarms <= most, "{alarms}");
    // The streams of a window share its steps: two of them are no two witnesses.
    let alarms = bound_fails(&ran.record(), "unchanged", 1);
    assert!(alarms > 0.0 && alarms <= most, "{alarms}");

    assert!(share(&verdicts, "slower-by-a-tenth", "fail") > 0.95, "{verdicts:#?}");
    assert!(share(&verdicts, "beyond-its-slack", "fail") > 0.95, "{verdicts:#?}");
    assert_eq!(share(&verdicts, "within-its-slack", "fail"), 0.0, "{verdicts:#?}");
    // What could be doubted was measured once more.
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    let extended = cells.iter().filter(|cell| cell["state"]["measured"]["extended"] == true);
    assert!(extended.count() > 50);
}
