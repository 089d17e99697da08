//! Shards of a suite that compares variants: what is compared stays on one machine, and the mean ratio is
//! judged when all are there.

use serde_json::Value;

use super::super::resumed::structure;
use super::{ENGINE, SLOWER, SUITE, mean, starts};
use crate::harness::{Project, Ran};

/// Four layouts, so that there are four bundles of two launches.
fn project(more: &str) -> Project {
    let layouts = "env.LAYOUT = \"{{ axis.layout }}\"\n[matrix]\nlayout = [\"a\", \"b\", \"c\", \"d\"]\n[variant.old]";
    let suite = SUITE.replace("CLOCK", "virtual").replace("[variant.old]", layouts);
    let project = Project::with(&suite);
    project.file("engine.toml", ENGINE);
    project.file("new.toml", &format!("{ENGINE}{more}"));
    project
}

fn shard(project: &Project, m: u32, more: &[&str]) -> Ran {
    let (shard, out) = (format!("{m}/4"), format!("{m}-of-4"));
    let mut all = vec!["run", "suite.toml", "--no-progress", "--seed", "7"];
    all.extend(["--shard", &shard, "--out", &out]);
    all.extend(more);
    let ran = project.tokgate(&all);
    Ran { out: project.path().join(out), ..ran }
}

fn merge(project: &Project) -> Ran {
    project.tokgate(&["merge", "1-of-4", "2-of-4", "3-of-4", "4-of-4", "--out", "out"])
}

#[test]
fn four_shards_merged_are_the_run() {
    let project = project(SLOWER);
    let once = project.run(&["--seed", "7"]).exits(10);
    let (whole, structure_once, mean_once) = (once.record(), structure(&once), mean(&once));
    assert_eq!((once.having("fail").len(), mean_once.0.as_str()), (4, "fail"));
    for m in 1..=4 {
        let ran = shard(&project, m, &[]).exits(10);
        let record = ran.record();
        assert_eq!(record["header"]["launches"].as_array().unwrap().len(), 2, "both of one layout");
        assert_eq!(starts(&ran).len(), 8);
        // Judged at the level of the whole: 12 ratios, of which the mean takes half.
        assert!(record["cells"].to_string().contains("one of 12 comparisons"));
        let (found, message) = mean(&ran);
        assert_eq!(found, "measured", "a part of the cells is no mean: {message}");
        assert!(
            message.ends_with("; the mean ratio is judged when all shards are merged"),
            "{message}"
        );
    }
    let merged = merge(&project).exits(10);
    let record = merged.record();
    for what in ["launches", "cells", "compare"] {
        assert_eq!(record["header"][what], whole["header"][what]);
        assert_eq!(record[what], whole[what], "the same figures, whichever shard they are of");
    }
    assert_eq!((structure(&merged), mean(&merged)), (structure_once, mean_once));
}

#[test]
fn the_mean_alone_may_fail_the_whole_although_each_shard_passed() {
    // 2.4 % in two cells of three: within the limit of each, beyond that of their mean.
    let project = project("[[fault]]\nkind = \"slow\"\nwhat = \"step\"\nby = \"2.5%\"\n");
    (1..=4).for_each(|m| drop(shard(&project, m, &[]).exits(0)));
    let merged = merge(&project).exits(10);
    assert_eq!(merged.having("fail"), [""; 0]);
    let (found, message) = mean(&merged);
    assert_eq!(found, "fail", "{message}");
    assert!(message.contains("over 12 cells"), "{message}");
}

#[test]
fn a_shard_without_a_cell_that_is_compared_is_no_error() {
    let project = project("");
    let ran = shard(&project, 4, &["-E", "layout=a,b test=decode"]).exits(0);
    assert_eq!(mean(&ran).0, "measured");
    let ran = shard(&project, 4, &["-E", "layout=a,b,c,d test=decode variant=old"]).exits(0);
    assert_eq!(mean(&ran).0, "measured");
}

#[test]
fn a_shard_that_was_cut_keeps_what_its_launches_measured() {
    let project = project("");
    (1..=4).for_each(|m| drop(shard(&project, m, &["-E", "test=decode"]).exits(0)));
    // As a kill would have left it: two pairs, and reports of that moment.
    let dir = project.path().join("3-of-4");
    let mut record: Value =
        serde_json::from_slice(&std::fs::read(dir.join("record.json")).unwrap()).unwrap();
    record["seconds"] = Value::Null;
    for cell in record["cells"].as_array_mut().unwrap() {
        let left =
            serde_json::json!({ "state": { "not-run": { "reason": "not run" } }, "seconds": 0.0 });
        cell["state"] = left["state"].clone();
        for round in &mut cell["rounds"].as_array_mut().unwrap()[2..] {
            *round = left.clone();
        }
    }
    std::fs::write(dir.join("record.json"), record.to_string()).unwrap();
    std::fs::remove_file(dir.join("journal.jsonl")).unwrap();
    let merged = merge(&project).exits(30);
    let left = "not run: shard 3 of 4 did not end; 2 of 4 launches measured";
    assert_eq!(merged.having("error").len(), 4);
    assert_eq!(merged.record()["cells"].to_string().matches(left).count(), 4, "{}", merged.stdout);
    assert_eq!(mean(&merged), ("error".into(), "not run: shard 3 of 4 did not end".into()));
}

#[test]
fn recorded_times_are_those_of_one_launch() {
    let project = project("");
    let list = |arguments: &[&str]| {
        let mut all = vec!["list", "suite.toml", "--format", "json", "--shard"];
        all.extend(arguments);
        let ran = project.tokgate(&all).exits(0);
        let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let launches = lines.filter(|line| line["type"] == "launch");
        launches.map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&["1/4"]).len(), 2);
    // Layout `a` takes as long as all others together: it has a shard of two for itself.
    let mut record = project.run(&["--seed", "7"]).exits(0).record();
    let planned = record["header"]["cells"].as_array().unwrap().clone();
    for (planned, cell) in planned.iter().zip(record["cells"].as_array_mut().unwrap()) {
        let slow = planned["id"].as_str().unwrap().contains("layout=a");
        cell["seconds"] = if slow { 90.0 } else { 20.0 }.into();
    }
    project.file("times.json", &record.to_string());
    let first = list(&["1/2", "--timings", "times.json"]);
    assert_eq!(first.len(), 2, "{first:?}");
    assert!(first.iter().all(|name| name.contains("layout=a")), "{first:?}");
    assert_eq!(list(&["2/2", "--timings", "times.json"]).len(), 6);
}
