//! The suites that show how an upgrade is gated: `suites/upgrade.toml` is run, and `suites/vllm-upgrade.toml` says
//! what it would start.

use serde_json::Value;

use super::{mean, starts, verdict};
use crate::harness::{Project, Ran, shipped};

/// Runs the upgrade suite; where `slow` is a fault, with a new engine that has it.
fn upgrade(slow: &str) -> Ran {
    let project = Project::new();
    let read = |name: &str| std::fs::read_to_string(shipped(name)).unwrap();
    project.file("suite.toml", &read("suites/upgrade.toml"));
    let profile = read("suites/sim/upgrade.toml");
    project.file("sim/upgrade.toml", &profile);
    project.file("sim/upgrade-slower.toml", &read("suites/sim/upgrade-slower.toml"));
    project.file("sim/other.toml", &format!("{profile}\n{slow}"));
    let set = match slow {
        "" => vec![],
        "slower" => vec!["--set", "variant.new.engine.profile=sim/upgrade-slower.toml"],
        _ => vec!["--set", "variant.new.engine.profile=sim/other.toml"],
    };
    project.run(&[&["--seed", "7"], &set[..]].concat())
}

#[test]
fn an_unchanged_engine_is_green_although_launches_differ() {
    let ran = upgrade("").exits(0);
    assert_eq!(starts(&ran).len(), 16);
    assert_eq!(
        (ran.having("pass").len(), ran.having("measured").len()),
        (9, 9),
        "{:?}",
        ran.verdicts()
    );
    let (found, message) = mean(&ran);
    assert_eq!(found, "pass", "{message}");
    assert!(message.contains("over 9 cells") && message.contains("8 pairs"), "{message}");
    // Every ratio has an interval that is not empty, and says what it could have seen.
    for (name, _) in super::cells(&ran).iter().filter(|(name, _)| name.starts_with("new")) {
        let (_, message) = verdict(&ran, name);
        assert!(
            message.contains("sees losses from ") && message.contains("one of 9 "),
            "{message}"
        );
        let cell = super::cell(&ran, name);
        let estimate = &cell["judgement"]["bounds"][0]["estimate"];
        assert!(estimate["lower"].as_f64() < estimate["upper"].as_f64(), "{estimate}");
    }
}

#[test]
fn a_loss_in_one_cell_is_red_there_and_nowhere_else() {
    let ran = upgrade("slower").exits(10);
    assert_eq!(ran.having("fail"), ["decode context=8K,concurrency=16"]);
    assert_eq!(ran.having("pass").len(), 8, "{:?}", ran.verdicts());
    let (_, message) = verdict(&ran, "new decode context=8K,concurrency=16");
    assert!(message.contains(" < 0.97 (8 pairs, sees losses from "), "{message}");
    // In the mean it is two thirds of a percent.
    assert_eq!(mean(&ran).0, "pass", "{:?}", mean(&ran));
}

#[test]
fn a_small_loss_everywhere_is_seen_by_the_mean_alone() {
    let ran = upgrade("[[fault]]\nkind = \"slow\"\nwhat = \"all\"\nby = \"2.5%\"\n").exits(10);
    assert_eq!(ran.having("fail"), [""; 0], "{:?}", ran.verdicts());
    let (found, message) = mean(&ran);
    assert_eq!(found, "fail", "{message}");
    assert!(message.starts_with("mean ratio 0.97") && message.contains(" < 0.99 "), "{message}");
}

#[test]
fn the_suite_for_vllm_starts_each_version_out_of_its_environment() {
    let project = Project::new();
    let suite = shipped("suites/vllm-upgrade.toml");
    let suite = suite.to_str().unwrap();
    let checked = project.tokgate(&["check", suite]).exits(0);
    assert!(!checked.stderr.contains("warning"), "{}", checked.stderr);
    let list = project.tokgate(&["list", suite, "--format", "json"]).exits(0);
    let lines: Vec<Value> =
        list.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let launches = of("launch");
    assert_eq!(launches.len(), 2);
    for (launch, version) in launches.iter().zip(["0.31.0", "0.32.0"]) {
        let text = launch.to_string();
        assert!(text.contains(&format!("/opt/vllm-{version}/bin/vllm")), "{text}");
    }
    // Prefill, decode, serve and startup, each in both variants.
    assert_eq!(of("cell").len(), 2 * (4 + 11 + 2 + 1));
}
