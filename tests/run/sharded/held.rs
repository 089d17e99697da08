//! Shards that are held against recorded runs: judged as the whole run is, recorded and promoted as one.

use super::{SUITE, at, merge};
use crate::harness::{Project, Ran};

const BASELINE: &str = "baselines/card.jsonl";

/// The four launches, with a ratio in place of the floor and nothing that fails.
fn project(more: &str) -> Project {
    let (head, _) = SUITE.split_once("[[expect]]").unwrap();
    let ratio = "[[expect]]\ntest = [\"decode\", \"long\"]\nmetric = \"output-throughput\"\nmin-ratio = 0.9\n";
    let baseline = format!("[baseline]\nfile = \"{BASELINE}\"\n{more}");
    let project = Project::with(&format!("{head}{baseline}{ratio}"));
    project.file("engine.toml", super::ENGINE);
    project
}

/// One whose baseline has three runs of what is selected.
fn recorded(more: &str, select: &[&str]) -> Project {
    let project = project(more);
    let mut all = vec!["baseline", "record", "suite.toml", "--runs", "3", "--seed", "11"];
    all.extend(select);
    project.tokgate(&all).exits(0);
    project
}

fn shard(project: &Project, m: u32) -> Ran {
    let (shard, out) = (format!("{m}/2"), format!("{m}-of-2"));
    let ran =
        project.tokgate(&["run", "suite.toml", "--seed", "7", "--shard", &shard, "--out", &out]);
    at(project, ran, &out)
}

const TWO: [&str; 2] = ["1-of-2", "2-of-2"];

fn baseline(project: &Project) -> String {
    std::fs::read_to_string(project.path().join(BASELINE)).unwrap()
}

#[test]
fn shards_are_judged_at_the_level_of_the_whole_run() {
    let project = recorded("", &[]);
    let whole = project.run(&["--seed", "7"]).exits(0).record();
    let shards = [1, 2].map(|m| shard(&project, m).exits(0));
    for ran in &shards {
        let cells = ran.record()["cells"].to_string();
        // Two cells in each of four launches and one more in one of them.
        assert!(cells.contains("one of 9 comparisons"), "{cells}");
        assert!(!cells.contains("one of 4") && !cells.contains("one of 5"), "{cells}");
    }
    let second = shards[1].record()["cells"].to_string();
    let merged = merge(&project, &TWO, &[]).exits(0);
    let record = merged.record();
    assert_eq!(record["header"]["cells"], whole["header"]["cells"], "runs and level too");
    assert_eq!(record["header"]["provenance"], whole["header"]["provenance"]);
    assert_eq!(record["cells"], whole["cells"]);
    // Nor does an interruption change it.
    super::kill(&project, "2-of-2");
    let resume = ["run", "suite.toml", "--shard", "2/2", "--resume", "2-of-2"];
    let resumed = at(&project, project.tokgate(&resume).exits(0), "2-of-2").record();
    assert!(resumed["resumptions"].as_array().unwrap().len() == 1);
    let told = resumed["cells"].to_string();
    let often = |text: &str| text.matches("one of 9 comparisons").count();
    assert_eq!(often(&told), often(&second), "the same level");
    // A gate that was run in shards is tested like any other.
    let told = project.tokgate(&["selftest", "out"]).exits(0);
    assert!(told.stderr.contains("notice"), "{}", told.stderr);
}

#[test]
fn what_is_merged_can_be_promoted_and_a_lone_shard_can_not() {
    let project = recorded("", &[]);
    (1..=2).for_each(|m| drop(shard(&project, m).exits(0)));
    let before = baseline(&project);
    let refused = project.tokgate(&["baseline", "promote", "2-of-2", "--add"]).exits(21);
    assert!(
        refused
            .stderr
            .contains("2-of-2 is no baseline: it is shard 2 of 2, which is a part of a run")
            && refused.stderr.contains("`tokgate merge` joins the shards"),
        "{}",
        refused.stderr
    );
    assert_eq!(baseline(&project), before);
    merge(&project, &TWO, &[]).exits(0);
    let told = project
        .tokgate(&["baseline", "promote", "out", "--add", "--reason", "a new engine"])
        .exits(0);
    assert!(told.stderr.contains("promoted 1 run: "), "{}", told.stderr);
    // A fourth value for all of them, of one run.
    let now = baseline(&project);
    let values = |text: &str| text.lines().filter(|line| line.contains("\"cell\"")).count();
    assert_eq!(values(&now), values(&before));
    assert_eq!(now.lines().count(), before.lines().count() + 1);
}

#[test]
fn what_a_baseline_lacks_is_recorded_when_shards_are_merged() {
    let project = recorded("on-missing = \"record\"\n", &["-E", "layout=a,c,d"]);
    let before = baseline(&project);
    for m in [1, 2] {
        let ran = shard(&project, m).exits(0);
        let told = ran.stderr.contains("`tokgate merge` records what");
        assert_eq!(told, m == 2, "what is missing is the second's: {}", ran.stderr);
        assert_eq!(baseline(&project), before, "the next shard is held against the same");
    }
    let merged = merge(&project, &TWO, &[]).exits(0);
    assert!(
        merged.stderr.contains("recorded 2 values in baselines/card.jsonl"),
        "{}",
        merged.stderr
    );
    assert_ne!(baseline(&project), before);
    // Once: a merge that is done again is the same run.
    let once = baseline(&project);
    merge(&project, &TWO, &[]).exits(0);
    assert_eq!(baseline(&project), once);
}

#[test]
fn shards_that_were_held_against_other_runs_are_not_merged() {
    let project = recorded("", &[]);
    shard(&project, 1).exits(0);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "1", "--seed", "50"]).exits(0);
    shard(&project, 2).exits(0);
    let refused = merge(&project, &TWO, &[]).exits(20);
    let told = "it was held against other runs of the baseline baselines/card.jsonl";
    assert!(refused.stderr.contains(told) && !refused.out.exists(), "{}", refused.stderr);
}

#[test]
fn a_baseline_that_lacks_cells_of_any_shard_stops_every_shard() {
    let project = recorded("", &["-E", "layout=a,c,d"]);
    for m in [1, 2] {
        let refused = shard(&project, m).exits(21);
        assert!(refused.stderr.contains("lacks 2 values"), "{}", refused.stderr);
        assert!(!refused.out.exists());
    }
}
