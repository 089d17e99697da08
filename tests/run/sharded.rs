//! Suites that are run in shards, and shards that are merged to one run.

use std::path::Path;

use serde_json::Value;

use super::junit::{Counts, consumers_read, read_by_all};
use super::resumed::{bytes, structure};
use crate::harness::{Project, Ran, shipped};

mod beside;
mod held;

/// Four launches with six cells each, of which the capacity fails; one takes longer than the others.
const SUITE: &str = r#"version = 1
[suite]
name = "parted"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "virtual"
env.LAYOUT = "{{ axis.layout }}"
[matrix]
layout = ["a", "b", "c", "d"]
[[test]]
kind = "startup"
[[test]]
kind = "prefill"
samples = 2
matrix.context = [256, "1K"]
[[test]]
kind = "decode"
duration = "400ms"
min-tokens = 10
matrix.concurrency = [1, 2]
[[test]]
name = "long"
kind = "decode"
duration = "2s"
min-tokens = 10
exclude = [{ layout = ["a", "b", "d"] }]
[[expect]]
test = ["decode", "long"]
metric = "output-throughput"
min = 10
[[expect]]
test = "startup"
metric = "kv-capacity"
min = "1M"
"#;

const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
start-up = "50ms"
[prefill]
tokens = [16, "1K"]
ms = [4, 4]
[admit]
at = [1]
grid = [["1K", 5]]
[step]
at = [1]
grid = [["1K", 10]]
[noise]
within = "2%"
between = "1%"
"#;

fn project() -> Project {
    let project = Project::with(SUITE);
    project.file("engine.toml", ENGINE);
    project
}

/// What a run left in another directory than `out`.
fn at(project: &Project, ran: Ran, dir: &str) -> Ran {
    Ran { out: project.path().join(dir), ..ran }
}

/// Runs one shard with more arguments; its directory is `m-of-n`.
fn shard(project: &Project, m: u32, n: u32, more: &[&str]) -> Ran {
    let (shard, out) = (format!("{m}/{n}"), format!("{m}-of-{n}"));
    let mut all = vec!["run", "suite.toml", "--no-progress", "--seed", "7"];
    all.extend(["--shard", &shard, "--out", &out]);
    all.extend(more);
    let ran = project.tokgate(&all);
    at(project, ran, &out)
}

/// Merges directories into `out`.
fn merge(project: &Project, dirs: &[&str], more: &[&str]) -> Ran {
    let mut all = vec!["merge"];
    all.extend(dirs);
    all.extend(["--out", "out"]);
    all.extend(more);
    project.tokgate(&all)
}

const FOUR: [&str; 4] = ["1-of-4", "2-of-4", "3-of-4", "4-of-4"];

/// Runs all shards of four; each ends with the code of the capacity that fails in each launch.
fn four(project: &Project) -> Vec<Ran> {
    (1..=4).map(|m| shard(project, m, 4, &[]).exits(10)).collect()
}

fn cases(junit: &str) -> Vec<String> {
    let case = |text: &str| {
        let of = |key: &str| text.split(&format!(" {key}=\"")).nth(1).unwrap().split('"').next();
        format!("{} {}", of("classname").unwrap(), of("name").unwrap())
    };
    junit.split("<testcase").skip(1).map(case).collect()
}

#[test]
fn shards_that_are_merged_are_one_run() {
    let project = project();
    let once = project.run(&["--seed", "7"]).exits(10);
    let whole = once.record();
    let shards = four(&project);
    // A shard has its own cells and no others, and says so.
    let mut all: Vec<String> = Vec::new();
    for (at, ran) in (1..).zip(&shards) {
        let own = cases(&ran.read("junit.xml"));
        let record = ran.record();
        assert_eq!(own.len(), 1 + record["cells"].as_array().unwrap().len());
        all.extend(own);
        let said = format!(
            "shard {at} of 4: {} of 21 cells in 1 of 4 launches",
            if at == 1 { 6 } else { 5 }
        );
        assert!(ran.stdout.contains(&said), "{}", ran.stdout);
        assert!(ran.read("summary.md").contains(&said));
        assert!(ran.read("junit.xml").contains(&format!("value=\"{at}/4\"")));
        assert!(ran.stderr.trim_end().ends_with(&format!(" of virtual time (shard {at} of 4)")));
        assert_eq!(record["header"]["plan-hash"], whole["header"]["plan-hash"]);
    }
    all.sort();
    let mut planned = cases(&once.read("junit.xml"));
    planned.sort();
    assert_eq!(all, planned, "every case in one shard");

    let once = (structure(&once), cases(&once.read("junit.xml")));
    let merged = merge(&project, &FOUR, &[]).exits(10);
    let record = merged.record();
    for what in ["launches", "cells"] {
        assert_eq!(record["header"][what], whole["header"][what]);
        assert_eq!(record[what], whole[what], "the same figures, whichever shard they are of");
    }
    assert_eq!((structure(&merged), cases(&merged.read("junit.xml"))), once);
    consumers_read(&project, &merged, Counts { cases: 25, failures: 4, errors: 0, skipped: 0 });
    assert!(merged.stdout.contains("\n4 shards merged\n"), "{}", merged.stdout);
    let summary = merged.read("summary.md");
    assert!(summary.contains("4 shards merged") && summary.contains("| shard 3 | 5 cells, run "));
    assert!(merged.stderr.trim_end().ends_with(" of virtual time in 4 shards"));
    let rerun = "tokgate run suite.toml -E 'test=startup layout=b' --seed 7\n";
    assert!(merged.stdout.contains(rerun), "{}", merged.stdout);
    schema_holds(&merged);
}

#[track_caller]
fn schema_holds(ran: &Ran) {
    let schema = std::fs::read_to_string(shipped("schemas/record.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&ran.record())
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [""; 0]);
}

#[test]
fn a_merge_is_the_same_in_any_order_and_can_be_rendered_again() {
    let project = project();
    four(&project);
    let files = ["record.json", "junit.xml", "summary.md"];
    let first = merge(&project, &FOUR, &[]).exits(10);
    let first = files.map(|name| first.read(name));
    let again = merge(&project, &["3-of-4", "1-of-4", "4-of-4", "2-of-4"], &[]).exits(10);
    assert_eq!(files.map(|name| again.read(name)), first);
    std::fs::write(again.out.join("junit.xml"), "stale").unwrap();
    let ran = project.tokgate(&["report", "out"]).exits(0);
    assert_eq!(files.map(|name| ran.read(name)), first);
    assert!(ran.stdout.contains("4 shards merged"));
}

#[test]
fn shards_may_have_seeds_of_their_own() {
    let project = project();
    for (shard, seed) in [("1/2", "7"), ("2/2", "8")] {
        let out = shard.replace('/', "-of-");
        let arguments = ["run", "suite.toml", "--shard", shard, "--seed", seed, "--out", &out];
        project.tokgate(&arguments).exits(10);
    }
    let merged = merge(&project, &["2-of-2", "1-of-2"], &[]).exits(10);
    for (layout, seed) in [("a", "8"), ("b", "8"), ("c", "7"), ("d", "7")] {
        let rerun = format!(
            "rerun: tokgate run suite.toml -E 'test=startup layout={layout}' --seed {seed}\n"
        );
        assert!(merged.stdout.contains(&rerun), "{}", merged.stdout);
    }
}

#[test]
fn a_single_shard_merged_is_that_shard() {
    let project = project();
    let one = shard(&project, 1, 1, &[]).exits(10).record();
    let merged = merge(&project, &["1-of-1"], &[]).exits(10).record();
    for what in ["launches", "cells", "warnings", "seconds", "signal", "stopped"] {
        assert_eq!(merged[what], one[what], "{what}");
    }
    let (mut one, mut merged) = (one["header"].clone(), merged["header"].clone());
    for header in [&mut one, &mut merged] {
        let header = header.as_object_mut().unwrap();
        ["run-id", "flags", "shard", "merged"].iter().for_each(|key| drop(header.remove(*key)));
    }
    assert_eq!(one, merged);
}

#[test]
fn four_shards_of_the_smoke_suite_have_its_cells_and_verdicts() {
    let project = Project::new();
    let suite = shipped("suites/smoke.toml");
    let suite = suite.to_str().unwrap();
    let run = |more: &[&str]| {
        let mut all = vec!["run", suite, "--set", "engine.clock=virtual", "--seed", "3"];
        all.extend(more);
        project.tokgate(&all).exits(0)
    };
    let once = run(&["--out", "out"]);
    let (verdicts, structure_once) = (once.verdicts(), structure(&once));
    // It has one launch: one shard has all of it, the others are empty.
    for m in 1..=4 {
        run(&["--shard", &format!("{m}/4")]);
    }
    let dirs = FOUR.map(|name| format!("tokgate-out/smoke.shard-{name}"));
    let merged = merge(&project, &dirs.each_ref().map(String::as_str), &[]).exits(0);
    assert_eq!((merged.verdicts(), structure(&merged)), (verdicts, structure_once));
}

#[test]
fn a_shard_without_a_launch_is_no_failure_and_has_a_case_that_says_so() {
    let project = project();
    let ran = project.run(&["--shard", "5/5"]).exits(0);
    let junit = ran.read("junit.xml");
    assert_eq!(cases(&junit), ["parted shard 5 of 5"]);
    assert!(junit.contains("the plan has 4 launches, none of them for this shard"), "{junit}");
    assert!(ran.stdout.contains("NOTHING TO DO: parted"), "{}", ran.stdout);
    read_by_all(&project, &ran, Counts { cases: 1, failures: 0, errors: 0, skipped: 1 });
    let list = project.tokgate(&["list", "suite.toml", "--shard", "5/5"]).exits(0);
    assert!(list.stdout.contains("shard 5 of 5: 0 of 21 cells in 0 of 4 launches"));
    // What is not selected is not selected in any shard.
    shard(&project, 1, 2, &["-E", "concurrency=77"]).exits(20);
    shard(&project, 1, 2, &["-E", "test=long", "--skip", "layout=c"]).exits(12);
}

#[test]
fn what_names_no_shard_is_refused_in_words() {
    let project = project();
    for (text, words) in [
        ("0/4", "there is no shard 0 of 4; the first is 1/4, the last 4/4"),
        ("5/4", "there is no shard 5 of 4"),
        ("2/0", "a suite can't be split into 0 shards"),
        ("a/b", "a shard is written m/n, like 2/4 for the second of four"),
        ("2", "a shard is written m/n"),
    ] {
        for command in ["run", "list"] {
            let ran = project.tokgate(&[command, "suite.toml", "--shard", text]).exits(20);
            assert!(ran.stderr.contains(words), "{}", ran.stderr);
        }
    }
    let ran = project.tokgate(&["run", "suite.toml", "--timings", "x.json"]).exits(20);
    assert!(ran.stderr.contains("--shard"), "{}", ran.stderr);
    assert!(!project.path().join("tokgate-out").exists());
}

#[test]
fn missing_doubled_and_foreign_shards_are_refused_before_anything_is_written() {
    let project = project();
    four(&project);
    shard(&project, 2, 3, &[]).exits(10);
    let other = SUITE.replace("min-tokens = 10", "min-tokens = 11");
    project.file("other.toml", &other);
    project.tokgate(&["run", "other.toml", "--shard", "4/4", "--out", "other"]).exits(10);
    project
        .tokgate(&["run", "suite.toml", "-E", "test=decode", "--shard", "4/4", "--out", "less"])
        .exits(0);
    project.tokgate(&["run", "suite.toml", "-E", "test=decode", "--out", "whole"]).exits(0);
    let three = ["1-of-4", "2-of-4", "3-of-4"];
    let refused = |more: &[&str], words: &str| {
        let ran = merge(&project, &[&three, more].concat(), &[]).exits(20);
        assert!(ran.stderr.contains(words), "{words}\n{}", ran.stderr);
        assert!(ran.stdout.is_empty() && !ran.out.exists());
    };
    refused(
        &[],
        "error: shard 4 of 4 is missing\n  help: give the directory of shard 4 too, or --allow-missing",
    );
    refused(&["2-of-4", "4-of-4"], "shard 2 of 4 is there more than once: 2-of-4, 2-of-4");
    refused(
        &["2-of-3"],
        "2-of-3 is no shard of the same run as 1-of-4: the number of its shards is `3`, not `4`",
    );
    refused(
        &["other"],
        "other is no shard of the same run as 1-of-4: its suite has the same name and another",
    );
    refused(&["less"], "its selection is `-E 'test=decode'`, not none");
    refused(&["whole"], "whole holds a whole run, no shard");
    refused(&["nowhere"], "cannot read nowhere/record.json");
    // Nor is a shard overwritten by what it is merged to.
    let ran =
        project.tokgate(&["merge", "1-of-4", "2-of-4", "3-of-4", "4-of-4", "--out", "./2-of-4"]);
    assert!(ran.exits(20).stderr.contains("2-of-4 is a shard"));
}

#[test]
fn cells_of_a_missing_shard_are_errors_if_that_is_allowed() {
    let project = project();
    four(&project);
    let dirs = ["1-of-4", "2-of-4", "4-of-4"];
    let ran = merge(&project, &dirs, &["--allow-missing"]).exits(10);
    assert_eq!(ran.having("error").len(), 5);
    assert!(ran.stdout.contains("3 of 4 shards merged; shard 3 is missing"), "{}", ran.stdout);
    assert!(ran.stdout.contains("5 cells: not run: shard 3 of 4 is missing"), "{}", ran.stdout);
    let junit = ran.read("junit.xml");
    assert_eq!(
        junit.matches("<error message=\"not run: shard 3 of 4 is missing\"").count(),
        6,
        "its launch too"
    );
    assert_eq!(cases(&junit).len(), 25);
    assert!(ran.read("summary.md").contains("| shard 3 | 5 cells, missing |"));
    // Without a broken limit it is infrastructure that failed.
    let all = ["-E", "test=decode"];
    (1..=2).for_each(|m| drop(shard(&project, m, 2, &all).exits(0)));
    merge(&project, &["1-of-2"], &["--allow-missing"]).exits(30);
    merge(&project, &["1-of-2", "2-of-2"], &["--allow-missing"]).exits(0);
    // What can't be written is still said.
    let ran = project.tokgate(&["merge", "1-of-2", "2-of-2", "--out", "suite.toml"]).exits(33);
    assert!(ran.stdout.contains("PASSED: parted"), "{}", ran.stdout);
    assert!(ran.stderr.contains("help: nothing was written; "), "{}", ran.stderr);
}

/// Cuts the journal of a run before its second finished cell, as a kill would have, and makes the reports
/// older still.
fn kill(project: &Project, dir: &str) {
    let path = project.path().join(dir).join("journal.jsonl");
    let text = String::from_utf8(bytes(&path)).unwrap();
    let mut seen = 0;
    let kept: String = text
        .split_inclusive('\n')
        .take_while(|line| {
            seen += usize::from(line.contains("\"cell-finished\""));
            seen <= 1
        })
        .collect();
    std::fs::write(&path, kept).unwrap();
    // Its reports are those of the beginning.
    let path = path.with_file_name("record.json");
    let mut record: Value = serde_json::from_slice(&bytes(&path)).unwrap();
    record["seconds"] = Value::Null;
    std::fs::write(&path, record.to_string()).unwrap();
}

#[test]
fn a_shard_that_was_cut_merges_as_far_as_it_came_and_goes_on_within_itself() {
    let project = project();
    let once = structure(&project.run(&["--seed", "7"]).exits(10));
    (1..=2).for_each(|m| drop(shard(&project, m, 2, &[]).exits(10)));
    kill(&project, "2-of-2");
    let dirs = ["1-of-2", "2-of-2"];
    let cut = merge(&project, &dirs, &[]).exits(10);
    let left = cut.having("error").len();
    assert!(left > 5, "{:?}", cut.verdicts());
    let told = format!("{left} cells: not run: shard 2 of 2 did not end");
    assert!(cut.stdout.contains(&told), "{}", cut.stdout);
    assert!(
        cut.stderr.trim_end().ends_with("in 2 shards; the run has not ended"),
        "{}",
        cut.stderr
    );

    let refused = |arguments: &[&str], words: &str| {
        let mut all = vec!["run", "suite.toml", "--resume", "2-of-2"];
        all.extend(arguments);
        let ran = project.tokgate(&all).exits(20);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    };
    refused(&["--shard", "1/2"], "--shard was 2/2, is 1/2");
    refused(&[], "--shard was 2/2, is none");
    // The directory of its own that a shard has says how to go on.
    let resumed =
        project.tokgate(&["run", "suite.toml", "--shard", "2/2", "--resume", "2-of-2"]).exits(10);
    assert!(resumed.stderr.contains("resumes the run in 2-of-2: 1 of "), "{}", resumed.stderr);
    let merged = merge(&project, &dirs, &[]).exits(10);
    assert_eq!(structure(&merged), once);
    assert_eq!(merged.record()["resumptions"].as_array().unwrap().len(), 1);
    let summary = merged.read("summary.md");
    assert!(summary.contains("| resumed |") && summary.contains("resumed once |"), "{summary}");
}

#[test]
fn a_shard_says_how_it_goes_on_and_what_stopped_it_stops_the_whole() {
    let project = project();
    shard(&project, 1, 2, &["-E", "test=decode"]).exits(0);
    let cut = shard(&project, 2, 2, &["-E", "test=decode", "--time-limit", "500ms"]).exits(32);
    let told = "to go on: tokgate run suite.toml -E 'test=decode' --shard 2/2 --resume 2-of-2\n";
    assert!(cut.stderr.contains(told), "{}", cut.stderr);
    let merged = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(32);
    assert!(merged.stdout.contains("not run: the time limit was reached"), "{}", merged.stdout);
    assert!(merged.read("summary.md").contains("ended by its time limit"));
}

#[test]
fn launches_are_split_by_recorded_times() {
    let project = project();
    let launches = |arguments: &[&str]| {
        let mut all = vec!["list", "suite.toml", "--format", "json", "--shard"];
        all.extend(arguments);
        let ran = project.tokgate(&all).exits(0);
        let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let launches = lines.filter(|line| line["type"] == "launch");
        launches.map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(launches(&["1/2"]), ["layout=c", "layout=d"], "the longest and the last");
    assert_eq!(launches(&["2/2"]), ["layout=a", "layout=b"]);
    let whole = project.run(&["--seed", "7"]).exits(10);
    let mut record = whole.record();
    for (planned, cell) in record["header"]["cells"]
        .as_array()
        .unwrap()
        .clone()
        .iter()
        .zip(record["cells"].as_array_mut().unwrap())
    {
        let slow = planned["id"].as_str().unwrap().contains("layout=a");
        cell["seconds"] = if slow { 90.0 } else { 1.0 }.into();
    }
    let path = project.file("times.json", &record.to_string());
    let timed = |shard: &str| launches(&[shard, "--timings", "times.json"]);
    assert_eq!(timed("1/2"), ["layout=a"]);
    assert_eq!(timed("2/2").len(), 3);
    // Shards that were split by other times are no shards of one run.
    shard(&project, 1, 2, &["--timings", "times.json"]).exits(10);
    let second = shard(&project, 2, 2, &["--timings", "times.json"]).exits(10).record();
    let file = &second["header"]["shard"]["timings"];
    assert_eq!((&file["path"], file["hash"].as_str().unwrap().len()), (&"times.json".into(), 64));
    merge(&project, &["1-of-2", "2-of-2"], &[]).exits(10);
    shard(&project, 2, 2, &[]).exits(10);
    let ran = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(20);
    assert!(
        ran.stderr.contains("split by estimates, not by `--timings times.json`"),
        "{}",
        ran.stderr
    );

    let refused = |words: &str| {
        let ran =
            project.tokgate(&["list", "suite.toml", "--shard", "1/2", "--timings", "times.json"]);
        assert!(ran.exits(20).stderr.contains(words));
    };
    project.file("times.json", &record.to_string().replace("parted", "other"));
    refused("times.json is a record of the suite other, not of parted");
    std::fs::remove_file(path).unwrap();
    refused("cannot read times.json");
}

#[test]
fn logs_of_shards_come_along() {
    let project = Project::with(&SUITE.replace("\"virtual\"", "\"real\""));
    project.file("engine.toml", ENGINE);
    let only = ["-E", "test=startup layout=a,b"];
    (1..=2).for_each(|m| drop(shard(&project, m, 2, &only).exits(10)));
    let merged = merge(&project, &["2-of-2", "1-of-2"], &[]).exits(10);
    for launch in merged.record()["launches"].as_array().unwrap() {
        let log = launch["log"].as_str().unwrap();
        assert!(log.starts_with("shard-") && merged.read(log).contains("sim"), "{log}");
    }
    let gone = |dir: &str| Path::new(&project.path().join(dir)).join("engine-layout=a.log");
    std::fs::remove_file(gone("1-of-2")).unwrap();
    let merged = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(10);
    assert!(merged.stderr.contains("warning: 1 log not there: 1-of-2"), "{}", merged.stderr);
}

#[test]
fn shards_on_machines_with_other_gpus_are_refused_as_a_mismatch() {
    let project = Project::with(&SUITE.replace("\"virtual\"", "\"real\""));
    project.file("engine.toml", ENGINE);
    let only = ["-E", "test=startup layout=a,b"];
    for m in 1..=2 {
        let ran = shard(&project, m, 2, &only).exits(10);
        let mut record = ran.record();
        let gpu = serde_json::json!({ "name": if m == 1 { "H200" } else { "H100" }, "memory": 1u64 << 36 });
        record["header"]["machine"]["gpus"] = Value::Array(vec![gpu]);
        std::fs::write(ran.out.join("record.json"), record.to_string()).unwrap();
        std::fs::remove_file(ran.out.join("journal.jsonl")).unwrap();
    }
    let ran = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(22);
    let told =
        "the shards ran on different GPUs: H200 (64.0 GiB) in shard 1, H100 (64.0 GiB) in shard 2";
    assert!(ran.stderr.contains(told) && !ran.out.exists(), "{}", ran.stderr);
}
