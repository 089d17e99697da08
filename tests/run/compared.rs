//! `tokgate compare` through the front door, and records of each format that there was.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Project, shipped};

/// The simulated engine, slower by that many percent.
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

/// A project whose runs `a` and `b` are of two engines, with a baseline of the first.
fn project(slower: u32) -> Project {
    let project = Project::with(
        r#"version = 1
[suite]
name = "card"
[model]
name = "sim-model"
[engine]
kind = "sim"
profile = "old.toml"
clock = "virtual"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 128
launches = 3
matrix.concurrency = [1, 4]
[baseline]
file = "card.jsonl"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
"#,
    );
    project.file("old.toml", &profile(0));
    project.file("new.toml", &profile(slower));
    let record = ["baseline", "record", "suite.toml", "--runs", "2", "--seed", "11"];
    project.tokgate(&record).exits(0);
    let run = ["run", "suite.toml", "--no-progress", "--out"];
    project.tokgate(&[&run[..], &["a", "--seed", "3"]].concat()).exits(0);
    let new = ["b", "--seed", "4", "--set", "engine.profile=new.toml"];
    let ran = project.tokgate(&[&run[..], &new].concat());
    assert!([0, 10].contains(&ran.code), "{}", ran.stderr);
    project
}

#[test]
fn a_slower_engine_is_worse_and_breaks_the_rules_that_are_asked() {
    let project = project(20);
    let ran = project.tokgate(&["compare", "a", "b"]).exits(0);
    assert!(ran.stdout.contains("▼ worse"), "{}", ran.stdout);
    assert!(ran.stdout.contains("--set 'engine.profile=new.toml'"), "{}", ran.stdout);
    assert!(ran.stdout.contains("6 figures in 2 cells of both: 6 worse\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("Relative rules"), "{}", ran.stdout);

    for whose in ["a", "b", "a,b"] {
        let ran = project.tokgate(&["compare", "a", "b", "--fail-on", whose]).exits(10);
        assert!(ran.stdout.contains("2 relative rules: 2 broken\n"), "{}", ran.stdout);
    }
    // The other way round it is a gain.
    let ran = project.tokgate(&["compare", "b/record.json", "a", "--fail-on", "b"]).exits(0);
    assert!(ran.stdout.contains(": 6 better\n"), "{}", ran.stdout);

    let ran = project.tokgate(&["compare", "card.jsonl", "b", "--fail-on", "b"]).exits(10);
    assert!(ran.stdout.contains(", 3 launches against 6\n"), "{}", ran.stdout);
    let ran = project.tokgate(&["compare", "card.jsonl", "b", "--fail-on", "a"]).exits(20);
    assert!(ran.stderr.contains("A is a baseline, which has no rules"), "{}", ran.stderr);

    let ran = project.tokgate(&["compare", "a", "b", "--fail-on", "b", "--format", "json"]);
    let value: Value = serde_json::from_str(&ran.exits(10).stdout).unwrap();
    assert_eq!(value["cells"][0]["rows"][0]["standing"], "worse");
    assert_eq!(value["rules"][0]["held"], "broken");
    assert_eq!(value["a"]["kind"], "record");
    for (format, begins) in [("markdown", "# card compared\n"), ("html", "<!doctype html>")] {
        let ran = project.tokgate(&["compare", "a", "b", "--format", format]).exits(0);
        assert!(ran.stdout.starts_with(begins), "{}", ran.stdout);
    }
}

#[test]
fn pairs_of_one_run_are_judged_as_the_run_judged_them_and_so_is_their_mean() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "upgrade"
[engine]
kind = "sim"
profile = "old.toml"
clock = "virtual"
[variant.old]
[variant.new]
engine.profile = "new.toml"
[compare]
baseline = "old"
candidate = "new"
pairs = 4
min-mean-ratio = 0.99
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
"#,
    );
    project.file("old.toml", &profile(0));
    project.file("new.toml", &profile(20));
    let ran = project.run(&["--seed", "3"]).exits(10);
    let record = ran.record();
    let pair = ["compare", "out", "out", "--variant-a", "old", "--variant-b", "new"];
    let ran = project.tokgate(&[&pair[..], &["--fail-on", "b"]].concat()).exits(10);
    assert!(ran.stdout.contains("3 relative rules: 3 broken\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("one run measured A and B in 4 pairs"), "{}", ran.stdout);
    let interval = |estimate: &Value| {
        let bound = |key: &str| estimate[key].as_f64().unwrap();
        format!("[{:.3}, {:.3}]", bound("lower"), bound("upper"))
    };
    let told: String = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mean = interval(&record["compare"]["estimate"]);
    assert!(told.contains("mean ratio: 0.") && told.contains(&mean), "{told}");
    for cell in record["cells"].as_array().unwrap() {
        for bound in cell["judgement"]["bounds"].as_array().unwrap() {
            let own = interval(&bound["estimate"]);
            assert!(told.contains(&own), "{own} in {told}");
        }
    }
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let project = Project::new();
    let run = shipped("tests/records/format-1/run");
    let run = run.to_str().unwrap();
    let other = shipped("tests/data/vllm-cpu-tiny/record.json");
    let other = other.to_str().unwrap();
    let ran = project.tokgate(&["compare", run, other]).exits(12);
    assert!(ran.stdout.contains("A  sim-model\n    B  tiny-llama\n"), "{}", ran.stdout);
    assert!(ran.stderr.contains("no cell is in both"), "{}", ran.stderr);
    let ran = project.tokgate(&["compare", run, "gone"]).exits(20);
    assert!(ran.stderr.contains("there is no gone"), "{}", ran.stderr);
    project.file("empty/journal.jsonl", "");
    project.tokgate(&["compare", run, "empty"]).exits(20);
    let ran = project.tokgate(&["compare", run, run, "--variant-a", "old"]).exits(20);
    assert!(ran.stderr.contains("A has no variant `old`"), "{}", ran.stderr);
    let ran = project.tokgate(&["compare", other, other, "--fail-on", "a"]).exits(20);
    assert!(ran.stderr.contains("no `min-ratio`"), "{}", ran.stderr);
}

/// The directories with a record of each format, each copied.
fn stored(project: &Project) -> Vec<String> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    };
    for format in folders(&shipped("tests/records")) {
        for one in folders(&format) {
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            found.push((format!("{}/{}", name(&format), name(&one)), one.join("record.json")));
        }
    }
    found.push(("vllm".into(), shipped("tests/data/vllm-cpu-tiny/record.json")));
    for (name, path) in &found {
        project.file(&format!("{name}/record.json"), &std::fs::read_to_string(path).unwrap());
    }
    let mut names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

#[test]
fn records_of_every_format_are_reported_merged_and_compared() {
    let project = Project::new();
    let stored = stored(&project);
    assert!(stored.len() >= 4, "{stored:?}");
    for name in &stored {
        project.tokgate(&["report", name]).exits(0);
        let page = std::fs::read_to_string(project.path().join(name).join("report.html")).unwrap();
        assert!(page.starts_with("<!doctype html>"), "{name}");
        let ran = project.tokgate(&["compare", name, name]).exits(0);
        assert!(ran.stdout.contains(" is on both sides\n"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("better") && !ran.stdout.contains("worse"), "{}", ran.stdout);
    }
    // Shards of each format join to a run that can be compared.
    let mut formats: Vec<&str> =
        stored.iter().filter_map(|name| Some(name.split_once('/')?.0)).collect();
    formats.dedup();
    for format in formats {
        let shards: Vec<&str> = stored
            .iter()
            .filter(|name| name.starts_with(&format!("{format}/shard-")))
            .map(String::as_str)
            .collect();
        let merge = [&["merge", "--out", "merged"], &shards[..]].concat();
        project.tokgate(&merge).exits(0);
        let ran = project.tokgate(&["compare", shards[0], "merged"]).exits(0);
        assert!(
            ran.stdout.contains("note: A is shard 1 of 2, a part of a run\n"),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("; 2 cells only in B\n"), "{}", ran.stdout);
    }
    // A whole run is no shard.
    project.tokgate(&["merge", "--out", "other", "format-1/run"]).exits(20);
}
