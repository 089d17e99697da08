//! What a run hands to the service that it runs on, beside its own directory.

use crate::harness::{Project, Ran};

const SUITE: &str = r#"version = 1
[suite]
name = "handed"
[engine]
kind = "sim"
clock = "virtual"
env.LAYOUT = "{{ axis.layout }}"
[matrix]
layout = ["a", "b"]
[[test]]
kind = "decode"
duration = "400ms"
min-tokens = 10
max-output = 128
[[expect]]
metric = "output-throughput"
min = 100_000
"#;

/// Runs with the summary of a step in `place`.
fn in_step(project: &Project, place: &str, arguments: &[&str]) -> Ran {
    let mut command = project.command(arguments);
    command.env("GITHUB_STEP_SUMMARY", project.path().join(place));
    project.ran(command.output().unwrap())
}

#[test]
fn a_step_on_github_gets_the_summary() {
    let project = Project::with(SUITE);
    let step = project.file("step.md", "of the step\n");
    let ran = in_step(&project, "step.md", &["run", "suite.toml", "--out", "out", "-q"]).exits(10);
    let text = std::fs::read_to_string(&step).unwrap();
    assert_eq!(text, format!("of the step\n\n\n{}", ran.read("summary.md")));
    // To render again is no run.
    in_step(&project, "step.md", &["report", "out"]).exits(0);
    assert_eq!(std::fs::read_to_string(&step).unwrap(), text);
}

#[test]
fn a_merge_adds_one_summary() {
    let project = Project::with(SUITE);
    for shard in ["1/2", "2/2"] {
        let out = format!("out-{}", &shard[..1]);
        project.tokgate(&["run", "suite.toml", "--out", &out, "--shard", shard]).exits(10);
    }
    let merged = ["merge", "out-1", "out-2", "--out", "out"];
    let ran = in_step(&project, "step.md", &merged).exits(10);
    let text = std::fs::read_to_string(project.path().join("step.md")).unwrap();
    assert_eq!(text, ran.read("summary.md"));
    assert!(text.contains("2 shards merged"), "{text}");
}

#[test]
fn a_summary_that_can_not_be_written_changes_no_verdict() {
    let project = Project::with(SUITE);
    let victim = project.file("victim", "mine");
    std::os::unix::fs::symlink(&victim, project.path().join("link")).unwrap();
    for place in ["link", ".", "nowhere/step.md"] {
        let ran = in_step(&project, place, &["run", "suite.toml", "--out", "out"]).exits(10);
        assert!(ran.stderr.contains("warning: no summary is added to "), "{}", ran.stderr);
        assert!(ran.read("summary.md").starts_with("# FAILED: handed\n"));
    }
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "mine");
}

#[test]
fn junit_is_written_to_another_place_too() {
    let project = Project::with(SUITE);
    // A link there gives way and is not followed.
    let victim = project.file("victim", "mine");
    project.file("ci/old.xml", "an earlier run's");
    std::os::unix::fs::symlink(&victim, project.path().join("ci/junit.xml")).unwrap();
    let at = |name: &str| std::fs::read_to_string(project.path().join(name)).unwrap();
    let ran = project.run(&["--junit", "ci/junit.xml"]).exits(10);
    assert_eq!(at("ci/junit.xml"), ran.read("junit.xml"));
    let ran = project.tokgate(&["report", "out", "--junit", "ci/old.xml"]).exits(0);
    assert_eq!(at("ci/old.xml"), ran.read("junit.xml"));
    for shard in ["1/2", "2/2"] {
        let out = format!("out-{}", &shard[..1]);
        project.tokgate(&["run", "suite.toml", "--out", &out, "--shard", shard]).exits(10);
    }
    let merge = ["merge", "out-1", "out-2", "--out", "out", "--junit", "new/dir/all.xml"];
    let ran = project.tokgate(&merge).exits(10);
    assert_eq!(at("new/dir/all.xml"), ran.read("junit.xml"));
    assert!(ran.read("junit.xml").contains("layout=b"));
    assert_eq!(at("victim"), "mine");
    let left = std::fs::read_dir(project.path().join("ci")).unwrap().count();
    assert_eq!(left, 2, "nothing is left beside it");
}

#[test]
fn a_place_that_can_not_be_written_is_told_before_the_launch() {
    let project = Project::with(SUITE);
    project.file("file", "");
    std::fs::create_dir(project.path().join("folder")).unwrap();
    for (path, code, said) in [
        ("file/junit.xml", 33, "cannot write file"),
        ("folder", 33, "something else than a file stands there"),
        ("/dev/null", 33, "something else than a file stands there"),
        ("..", 33, "this names no file"),
        ("out/record.json", 20, "a run has another file of that name"),
    ] {
        let ran = project.run(&["--junit", path]).exits(code);
        assert!(ran.stderr.contains(&format!("error: --junit {path}: {said}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("--junit") && !ran.stderr.contains("another --out"));
        assert!(!project.path().join("out").exists(), "{path}");
    }
    let two = ["run", "suite.toml", "suite.toml", "--junit", "junit.xml"];
    let ran = project.tokgate(&two).exits(20);
    assert!(ran.stderr.contains("--junit names one file, and 2 suites"), "{}", ran.stderr);
}

#[test]
fn failing_cases_point_to_the_page_on_gitlab() {
    let project =
        Project::with(&SUITE.replace("max-output = 128", "max-output = 128\nname = \"x\""));
    let within = |root: &std::path::Path, arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.env("CI_PROJECT_DIR", root);
        project.ran(command.output().unwrap())
    };
    let run = ["run", "suite.toml", "--out", "out", "--no-progress"];
    let ran = within(project.path(), &run).exits(10);
    let junit = ran.read("junit.xml");
    let line = "[[ATTACHMENT|out/report.html]]";
    for case in junit.split("<testcase ").skip(1) {
        let output = case.split_once("<system-out>").map(|(_, rest)| rest.to_owned());
        let points = output.is_some_and(|it| it.starts_with(line));
        assert_eq!(points, case.contains("<failure"), "{case}");
    }
    assert_eq!(junit.matches(line).count(), 2);
    let strict = ["report", "out", "--junit-dialect", "strict"];
    let junit = within(project.path(), &strict).exits(0).read("junit.xml");
    assert_eq!(junit.matches(line).count(), 2, "{junit}");
    // What is outside of the project is no artifact of it.
    let elsewhere = tempfile::tempdir().unwrap();
    let junit = within(elsewhere.path(), &run).exits(10).read("junit.xml");
    assert!(!junit.contains("ATTACHMENT"), "{junit}");
    assert!(!project.run(&[]).exits(10).read("junit.xml").contains("ATTACHMENT"));
}

#[test]
fn figures_are_there_for_gateways_and_spreadsheets() {
    let project = Project::with(SUITE);
    let ran = project.run(&[]).exits(10);
    let metrics = ran.read("metrics.prom");
    let cell = "{suite=\"handed\",test=\"decode\",layout=\"a\"";
    for (name, rest) in [
        ("tokgate_cells", "{suite=\"handed\",verdict=\"fail\"} 2\n"),
        ("tokgate_cell_info", &format!("{cell},verdict=\"fail\"}} 1\n")),
        ("tokgate_output_throughput_tokens_per_second", &format!("{cell}}} ")),
        ("tokgate_ttft_seconds", &format!("{cell},stat=\"p50\"}} 0.")),
    ] {
        assert!(metrics.contains(&format!("\n{name}{rest}")), "{name}{rest}:\n{metrics}");
    }
    let cells = ran.read("cells.csv");
    let failed = cells.lines().filter(|line| line.contains(",output-throughput,tok/s,,"));
    let failed: Vec<&str> = failed.collect();
    assert_eq!(failed.len(), 2, "{cells}");
    assert!(failed.iter().all(|line| line.contains(",min,100000,100000,fail,fail,suite.toml:")));
    // The record alone makes them.
    for name in ["metrics.prom", "cells.csv"] {
        let before = ran.read(name);
        std::fs::remove_file(ran.out.join(name)).unwrap();
        project.tokgate(&["report", "out"]).exits(0);
        assert_eq!(ran.read(name), before);
    }
}
