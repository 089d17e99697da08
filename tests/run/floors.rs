//! Floors out of recorded runs through the front door: what is computed, what is written and what is not.

use std::fmt::Write as _;
use std::path::Path;

use crate::harness::{Project, Ran, shipped};

// --------------------------------------------------------------------------------------------- the seed page's suite

const SEED: &str = "suites/inkling-small-h200x8.toml";

/// A project with the seed page's suite and the one that extends it.
fn page() -> Project {
    let project = Project::new();
    for name in [SEED, "suites/inkling-small-on-sim.toml", "suites/sim/inkling.toml"] {
        project.file(name, &std::fs::read_to_string(shipped(name)).unwrap());
    }
    project
}

/// A baseline of all numbers of the seed page's suite: five runs, by default of a standard deviation of 1 %, about
/// the page's figures times a gain, of what is better when less divided by it.
fn recorded(suite: &str, gain: f64) -> String {
    let h200 = suite == "inkling-small-h200x8";
    let (gpu, count) = if h200 { ("NVIDIA H200", "8") } else { ("simulated", "simulated") };
    let mut text = format!(
        r#"{{"baseline":{{"format":1,"suite":"{suite}","identity":{{"hardware.count":"{count}","hardware.gpu":"{gpu}","model.name":"thinkingmachines/Inkling-Small","model.quantization":"bf16"}}}}}}"#
    );
    text.push('\n');
    let file = shipped(&format!("suites/{suite}.toml"));
    let loaded = tokgate::suite::load(&file, &tokgate::suite::LoadOptions::default());
    for test in loaded.unwrap_or_else(|problems| panic!("{problems}")).suite.tests {
        let line = serde_json::json!({ "name": test.name, "workload": test.workload() });
        writeln!(text, "{}", serde_json::json!({ "test": line })).unwrap();
    }
    for run in 1..=5 {
        writeln!(
            text,
            r#"{{"run":{{"id":"r{run}","started":"2027-01-0{run}T00:00:00Z","tokgate":"0.1.0","suite-hash":"x","engines":{{"engine":"vllm 0.29.0"}},"gpu":"{gpu}"}}}}"#
        )
        .unwrap();
    }
    let suite: toml::Value =
        toml::from_str(&std::fs::read_to_string(shipped(SEED)).unwrap()).unwrap();
    for expect in suite["expect"].as_array().unwrap() {
        let word = |key: &str| expect[key].as_str().unwrap();
        let (side, unit, better, gain) = match expect.get("min") {
            Some(_) => ("min", "tok/s", "higher", gain),
            None => ("max", "ms", "lower", 1.0 / gain),
        };
        let at = expect[side].get("at").map(|at| at.as_array().unwrap().clone());
        for row in expect[side]["grid"].as_array().unwrap() {
            let row = row.as_array().unwrap();
            for (column, figure) in row[1..].iter().enumerate() {
                let Some(figure) = figure.as_float().or(figure.as_integer().map(|n| n as f64))
                else {
                    continue;
                };
                let context = row[0].as_str().unwrap();
                let cell = match &at {
                    Some(at) => format!("context={context},concurrency={}", at[column]),
                    None => format!("context={context}"),
                };
                let values: Vec<String> = [-1.264_911, -0.632_456, 0.0, 0.632_456, 1.264_911]
                    .iter()
                    .zip(1..)
                    .map(|(sd, run)| format!("\"r{run}\":{}", figure * gain * (1.0 + sd / 100.0)))
                    .collect();
                writeln!(
                    text,
                    r#"{{"cell":{{"test":"{}","cell":"{cell}","metric":"{}","unit":"{unit}","better":"{better}","values":{{{}}}}}}}"#,
                    word("test"),
                    word("metric"),
                    values.join(",")
                )
                .unwrap();
            }
        }
    }
    text
}

/// A line with a sign for each number and without blanks, outside of comments.
fn masked(line: &str) -> String {
    let (code, comment) = line.split_at(line.find('#').unwrap_or(line.len()));
    let mut masked = String::new();
    for c in code.chars().filter(|c| *c != ' ') {
        let digit = c.is_ascii_digit() || (c == '.' && masked.ends_with('9'));
        if digit && masked.ends_with('9') {
            continue;
        }
        masked.push(if digit { '9' } else { c });
    }
    masked.replace("9_9", "9") + comment
}

/// Asserts that nothing but numbers of a text is another, and returns how many lines are.
fn numbers_alone(before: &str, after: &str) -> usize {
    assert_eq!(before.lines().count(), after.lines().count());
    let pairs = || before.lines().zip(after.lines());
    for (old, new) in pairs() {
        assert_eq!(masked(old), masked(new));
        if old.contains('#') || !old.contains('[') {
            assert_eq!(old, new);
        }
    }
    pairs().filter(|(old, new)| old != new).count()
}

fn read(project: &Project, name: &str) -> String {
    std::fs::read_to_string(project.path().join(name)).unwrap()
}

/// Where the figures of a grid end: columns that end below each other give few different ones.
fn ends(text: &str, name: &str) -> Vec<Vec<usize>> {
    let (_, grid) = text.split_once(&format!("name = \"{name}\"")).unwrap();
    let (_, grid) = grid.split_once("grid = [\n").unwrap();
    let rows = grid.lines().take_while(|line| *line != "]");
    rows.map(|row| row.match_indices([',', ']']).map(|(at, _)| at).collect()).collect()
}

#[test]
fn the_seed_pages_suite_is_changed_in_its_numbers_alone() {
    let project = page();
    project.file("runs.jsonl", &recorded("inkling-small-h200x8", 1.25));
    let before = read(&project, SEED);
    let floors = ["baseline", "floors", SEED, "--from", "runs.jsonl"];
    let ran = project.tokgate(&floors).exits(0);
    assert_eq!(read(&project, SEED), before, "without --write nothing is written");
    // The page's 7 302 tok/s × 1.25 × (1 − 5.741 %) is the limit, and that less 5 % of the number.
    let row = ran
        .stdout
        .lines()
        .find(|line| line.contains("context=8K,concurrency=128 ") && line.contains(" output-"));
    let row = row.unwrap_or_else(|| panic!("{}", ran.stdout));
    let words: Vec<&str> = row.split_whitespace().collect();
    let number: f64 = 7302.0 * 1.25 * (1.0 - 0.057_410_845) / 0.95;
    let number = format!("{:.1}", (number * 10.0).floor() / 10.0);
    assert_eq!(words[4..], ["7302.0", &number, "5", "7.4", "%", "tighter"], "{row}");
    assert!(row.contains("  suites/inkling-small-h200x8.toml:92  "), "{row}");
    assert!(ran.stdout.contains("the smallest loss") || ran.stdout.contains("smallest loss"));

    let ran = project.tokgate(&[&floors[..], &["--write"]].concat()).exits(0);
    assert!(ran.stderr.contains("wrote 81 numbers in suites/"), "{}", ran.stderr);
    let after = read(&project, SEED);
    assert_eq!(numbers_alone(&before, &after), 9 + 8 + 8);
    for grid in ["prefill-floors", "decode-floors", "decode-ttft"] {
        assert_eq!(ends(&before, grid), ends(&after, grid), "{grid}:\n{after}");
    }
    project.tokgate(&["check", SEED]).exits(0);
    let ran = project.tokgate(&[&floors[..], &["--write"]].concat()).exits(0);
    assert!(ran.stderr.contains("every number is as it should be"), "{}", ran.stderr);
    assert_eq!(read(&project, SEED), after);
}

#[test]
fn looser_numbers_need_a_reason() {
    let project = page();
    project.file("runs.jsonl", &recorded("inkling-small-h200x8", 0.9));
    let before = read(&project, SEED);
    let write = ["baseline", "floors", SEED, "--from", "runs.jsonl", "--write"];
    let ran = project.tokgate(&write).exits(21);
    assert!(ran.stderr.contains("this would loosen 81 numbers:"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(
            ".toml:92 decode context=8K,concurrency=128 output-throughput: 7302.0 → 6520."
        ) || ran.stderr.contains("and 71 more"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("--reason"), "{}", ran.stderr);
    project.tokgate(&[&write[..], &["--reason", "  "]].concat()).exits(21);
    assert_eq!(read(&project, SEED), before);
    let ran = project.tokgate(&[&write[..], &["--reason", "safer kernels"]].concat()).exits(0);
    assert!(ran.stderr.contains("for the commit: safer kernels"), "{}", ran.stderr);
    assert_eq!(numbers_alone(&before, &read(&project, SEED)), 25);
}

#[test]
fn numbers_are_edited_in_the_file_that_they_stand_in() {
    let project = page();
    project.file("runs.jsonl", &recorded("inkling-small-on-sim", 1.25));
    let suite = "suites/inkling-small-on-sim.toml";
    let (base, own) = (read(&project, SEED), read(&project, suite));
    let write = ["baseline", "floors", suite, "--from", "runs.jsonl", "--write"];
    let ran = project.tokgate(&write).exits(0);
    assert!(ran.stderr.contains("wrote 81 numbers in suites/inkling-small-h200x8.toml"));
    assert_eq!(read(&project, suite), own);
    assert_eq!(numbers_alone(&base, &read(&project, SEED)), 25);
}

#[test]
fn runs_of_another_gpu_than_the_suite_declares_are_refused() {
    let project = page();
    let runs = recorded("inkling-small-h200x8", 1.25);
    let refused = |from: &str, to: &str, words: &str| {
        project.file("runs.jsonl", &runs.replace(from, to));
        let ran = project
            .tokgate(&["baseline", "floors", SEED, "--from", "runs.jsonl", "--write"])
            .exits(21);
        assert!(ran.stderr.contains(words), "{words}:\n{}", ran.stderr);
        assert!(ran.stderr.contains("runs.jsonl") && ran.stderr.contains("  help: "));
    };
    let before = read(&project, SEED);
    let gpu = "it is of hardware.gpu = `NVIDIA A100`, and this is `H200`";
    refused("NVIDIA H200", "NVIDIA A100", gpu);
    refused(
        r#""hardware.count":"8""#,
        r#""hardware.count":"4""#,
        "it is of hardware.count = `4`, and this is `8`",
    );
    refused(
        "Inkling-Small",
        "Inkling-Large",
        "it is of model.name = `thinkingmachines/Inkling-Large`",
    );
    refused("\"context=", "\"ctx=", "were recorded by the axes ctx, and have context now");
    assert_eq!(read(&project, SEED), before);
    project.file("runs.jsonl", &runs);
    project.tokgate(&["baseline", "floors", SEED, "--from", "runs.jsonl"]).exits(0);
}

#[test]
fn runs_that_are_not_alike_are_not_put_together() {
    let project = page();
    let runs = recorded("inkling-small-h200x8", 1.25);
    project.file("runs.jsonl", &runs);
    let together = |other: &str| {
        project.file("more.jsonl", other);
        project.tokgate(&["baseline", "floors", SEED, "--from", "runs.jsonl", "more.jsonl"])
    };
    for (from, to, words) in [
        ("vllm 0.29.0", "vllm 0.28.0", "the engine is vllm 0.29.0 and vllm 0.28.0"),
        ("NVIDIA H200", "NVIDIA H200 NVL", "hardware.gpu is NVIDIA H200 and NVIDIA H200 NVL"),
    ] {
        let ran = together(&runs.replace(from, to)).exits(21);
        let words = format!("runs.jsonl and more.jsonl are not alike: {words}");
        assert!(ran.stderr.contains(&words), "{}", ran.stderr);
    }
    let mut others = runs.clone();
    for run in 1..=5 {
        others = others.replace(&format!("\"r{run}\""), &format!("\"s{run}\""));
    }
    let ran = together(&others).exits(0);
    let row = ran.stdout.lines().nth(1).unwrap();
    assert_eq!(row.split_whitespace().nth(6), Some("10"), "{row}");
}

// ------------------------------------------------------------------------------------------------- runs that were made

/// The simulated engine, slower by a share, with noise between launches and within.
fn profile(slower: f64) -> String {
    let text = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    let (head, _) = text.split_once("[noise]").unwrap();
    let noise = "[noise]\nwithin = \"1%\"\nbetween = \"0.5%\"\n";
    let slow = format!("[[fault]]\nkind = \"slow\"\nby = \"{}%\"\n", slower * 100.0);
    format!("{head}{noise}{}", if slower > 0.0 { slow.as_str() } else { "" })
}

fn text(more: &str) -> String {
    format!(
        r#"version = 1
[suite]
name = "card"
[model]
name = "sim-model"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "virtual"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
[baseline]
file = "baselines/card.jsonl"
{more}"#
    )
}

const FLOORS: &str = r#"
[[expect]]
metric = "output-throughput"
min.rows = "concurrency"
min.grid = [
  [1,  1.0],   # alone
  [4, 1.00],
]
[[expect]]
metric = "tpot.p50"
max = "10s"      # of both
"#;

fn card(more: &str, runs: &str) -> Project {
    let project = Project::with(&text(more));
    project.file("engine.toml", &profile(0.0));
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", runs, "--seed", "11"]).exits(0);
    project
}

fn floors(project: &Project, more: &[&str]) -> Ran {
    project.tokgate(&[&["baseline", "floors", "suite.toml"], more].concat())
}

#[test]
fn floors_of_recorded_runs_let_the_engine_pass_and_a_slower_one_fail() {
    let project = card(FLOORS, "5");
    let before = read(&project, "suite.toml");
    floors(&project, &["--write"]).exits(0);
    let after = read(&project, "suite.toml");
    let changed: Vec<&str> =
        before.lines().zip(after.lines()).filter(|(old, new)| old != new).map(|it| it.1).collect();
    assert_eq!(changed.len(), 3, "{after}");
    assert!(changed[0].ends_with(" # alone") && changed[2].ends_with(" # of both"), "{changed:?}");
    assert!(changed[2].starts_with("max = \"0.0"), "{changed:?}");
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass").len(), 2);
    project.file("engine.toml", &profile(0.1));
    let ran = project.run(&["--seed", "3"]).exits(10);
    assert_eq!(ran.having("fail").len(), 2);
}

#[test]
fn directories_of_runs_are_as_good_as_a_file() {
    let project = Project::with(&text(FLOORS));
    project.file("engine.toml", &profile(0.0));
    for (out, seed) in [("one", "1"), ("two", "2"), ("three", "3")] {
        project.tokgate(&["run", "suite.toml", "--out", out, "--seed", seed]).exits(0);
    }
    let ran = floors(&project, &["--from", "one", "two", "three", "one"]).exits(0);
    let row = ran
        .stdout
        .lines()
        .find(|line| line.starts_with("decode concurrency=4 ") && line.contains(" output-"));
    let row = row.unwrap_or_else(|| panic!("{}", ran.stdout));
    assert_eq!(row.split_whitespace().nth(6), Some("3"), "a run given twice counts once: {row}");
    let row = ran.stdout.lines().find(|line| line.contains("tpot.p50")).unwrap();
    assert!(row.contains("(loosest of 2)"), "{row}");
    // A lower coverage asks for more.
    let number = |ran: &Ran| -> f64 {
        let row = ran
            .stdout
            .lines()
            .find(|line| line.starts_with("decode concurrency=4 ") && line.contains(" output-"));
        row.unwrap().split_whitespace().nth(5).unwrap().parse().unwrap()
    };
    let narrow = floors(&project, &["--from", "one", "two", "three", "--coverage", "90%"]).exits(0);
    assert!(number(&narrow) > number(&ran), "{}", narrow.stdout);
    let ran = floors(&project, &["--from", "one"]).exits(21);
    assert!(ran.stderr.contains("has fewer than 2 runs of 4 values"), "{}", ran.stderr);
    floors(&project, &["--from", "nowhere.json"]).exits(20);
    project.file("engine.toml", &profile(0.0).replace("0.5%", "0.4%"));
    let other = text(FLOORS).replace("duration = \"2s\"", "duration = \"1s\"");
    project.file("other/suite.toml", &other);
    project.file("other/engine.toml", &profile(0.0));
    project.tokgate(&["run", "other/suite.toml", "--out", "four"]).exits(0);
    let ran = floors(&project, &["--from", "one", "two", "four"]).exits(21);
    assert!(ran.stderr.contains("duration was 1s, is 2s"), "{}", ran.stderr);
}

#[test]
fn what_can_be_no_ground_for_floors_is_refused_with_a_reason() {
    let project = card(FLOORS, "2");
    let (whole, suite) = (read(&project, "baselines/card.jsonl"), read(&project, "suite.toml"));
    let first = |text: &str| {
        let at = text.find("\"values\":{").unwrap() + 10;
        (at, at + text[at..].find('}').unwrap())
    };
    type Change = Box<dyn Fn(&str) -> String>;
    let cases: Vec<(&str, Change)> = vec![
        (
            "it is of suite `dart`, and this is `card`",
            Box::new(|it| it.replacen("\"card\"", "\"dart\"", 1)),
        ),
        (
            "it is of hardware.gpu = `NVIDIA H200`, and this is `simulated`",
            Box::new(|it| {
                it.replacen("\"hardware.gpu\":\"simulated\"", "\"hardware.gpu\":\"NVIDIA H200\"", 1)
            }),
        ),
        (
            "duration was 30s, is 2s",
            Box::new(|it| it.replacen("\"duration\":\"2s\"", "\"duration\":\"30s\"", 1)),
        ),
        (
            "recorded by the axes streams, and have concurrency now",
            Box::new(|it| it.replace("concurrency=", "streams=")),
        ),
        ("is cut short", Box::new(|it| it[..it.len() - 30].to_owned())),
        ("is a marker of a merge conflict", Box::new(|it| format!("<<<<<<< HEAD\n{it}"))),
        (
            "has a value that is no number (`NaN`)",
            Box::new(move |it| {
                let (at, end) = first(it);
                let colon = at + it[at..end].find(':').unwrap() + 1;
                let stop = colon + it[colon..].find([',', '}']).unwrap();
                format!("{}NaN{}", &it[..colon], &it[stop..])
            }),
        ),
        (
            "has fewer than 2 runs of 1 value: decode concurrency=1 output-throughput: one run",
            Box::new(move |it| {
                let (at, end) = first(it);
                let comma = at + it[at..end].find(',').unwrap();
                format!("{}{}", &it[..comma], &it[end..])
            }),
        ),
        (
            "has no runs of any cell that a number bounds",
            Box::new(|it| {
                it.lines()
                    .filter(|line| !line.starts_with("{\"cell\""))
                    .map(|line| format!("{line}\n"))
                    .collect()
            }),
        ),
    ];
    for (words, change) in cases {
        project.file("baselines/card.jsonl", &change(&whole));
        let ran = floors(&project, &["--write"]).exits(21);
        assert!(ran.stderr.contains(words), "{words}:\n{}", ran.stderr);
        assert!(ran.stderr.contains("baselines/card.jsonl") && ran.stderr.contains("  help: "));
        assert_eq!(read(&project, "suite.toml"), suite, "{words}");
    }
    std::fs::remove_file(project.path().join("baselines/card.jsonl")).unwrap();
    let ran = floors(&project, &[]).exits(21);
    assert!(ran.stderr.contains("there is no baseline baselines/card.jsonl"), "{}", ran.stderr);
}

#[test]
fn a_suite_without_numbers_or_with_mistakes_is_the_suites_author_to_mend() {
    let project = Project::with(&text(""));
    project.file("engine.toml", &profile(0.0));
    let ran = floors(&project, &[]).exits(20);
    assert!(ran.stderr.contains("suite.toml has no `min` or `max` to compute"), "{}", ran.stderr);
    project.file("suite.toml", &text("[[expect]]\nmetric = \"nonsense\"\nmin = 1\n"));
    floors(&project, &[]).exits(20);
    let unnamed = text(FLOORS).replace("[baseline]\nfile = \"baselines/card.jsonl\"\n", "");
    project.file("suite.toml", &unnamed);
    let ran = floors(&project, &[]).exits(20);
    assert!(ran.stderr.contains("names no baseline"), "{}", ran.stderr);
    project.file("suite.toml", &text(FLOORS));
    let ran = floors(&project, &["--coverage", "99"]).exits(20);
    assert!(ran.stderr.contains("write a share from 0.5 to 0.999999"), "{}", ran.stderr);
    floors(&project, &["--reason", "why"]).exits(20);
}

#[test]
fn what_was_not_recorded_stays_and_is_named() {
    let project = card(FLOORS, "2");
    let lines = read(&project, "baselines/card.jsonl");
    let kept = lines.lines().filter(|line| !line.contains("concurrency=4"));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    project.file("baselines/card.jsonl", &kept);
    let ran = floors(&project, &["--write"]).exits(0);
    let unchanged =
        "unchanged: suite.toml:24 output-throughput (decode concurrency=4): no recorded runs";
    assert!(ran.stdout.contains(unchanged), "{}", ran.stdout);
    let note =
        "note: suite.toml:28 holds for 1 cell without recorded runs too: decode concurrency=4";
    assert!(ran.stdout.contains(note), "{}", ran.stdout);
    assert!(read(&project, "suite.toml").contains("\n  [4, 1.00],\n"));
}

#[test]
fn a_selection_chooses_numbers_and_not_what_they_are_computed_from() {
    let project = card(FLOORS, "3");
    let whole = floors(&project, &[]).exits(0);
    let some = floors(&project, &["-E", "concurrency=1"]).exits(0);
    let rows = |ran: &Ran| -> Vec<Vec<String>> {
        let rows = ran.stdout.lines().skip(1).take_while(|line| !line.is_empty());
        rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let (whole, some) = (rows(&whole), rows(&some));
    assert_eq!(whole.len(), 3);
    // The ceiling holds for both cells, and is computed from both.
    assert_eq!(some, [whole[0].clone(), whole[2].clone()]);
    let other = FLOORS
        .replace("metric = \"tpot.p50\"", "metric = \"tpot.p50\"\nwhere = { concurrency = 1 }");
    let other = other.replace("  [4, 1.00],\n", "  [4, \"-\"],\n");
    project.file("suite.toml", &text(&other));
    let ran = floors(&project, &["-E", "concurrency=4"]).exits(20);
    assert!(ran.stderr.contains("no number of the suite bounds the selected"), "{}", ran.stderr);
}

#[test]
fn links_are_followed_and_line_ends_kept() {
    let project = card(FLOORS, "3");
    let dos = read(&project, "suite.toml").replace('\n', "\r\n");
    std::fs::remove_file(project.path().join("suite.toml")).unwrap();
    project.file("real/suite.toml", &format!("\u{feff}{dos}"));
    std::os::unix::fs::symlink("real/suite.toml", project.path().join("suite.toml")).unwrap();
    floors(&project, &["--write"]).exits(0);
    assert!(Path::new(&project.path().join("suite.toml")).is_symlink());
    let after = read(&project, "real/suite.toml");
    assert!(after.starts_with('\u{feff}') && after.contains(" # alone\r\n"), "{after:?}");
    assert_eq!(after.matches("\r\n").count(), dos.matches("\r\n").count());
    assert!(!after.replace("\r\n", "").contains('\n'));
}

#[test]
fn numbers_of_two_files_are_written_in_both_or_in_none() {
    use std::os::unix::fs::PermissionsExt;
    let project = card(FLOORS, "3");
    let (base, own) = FLOORS.split_at(FLOORS.rfind("[[expect]]").unwrap());
    project.file("base.toml", &text(base));
    project.file("suite.toml", &format!("version = 1\nextends = \"base.toml\"\n{own}"));
    let before = ["base.toml", "suite.toml"].map(|name| read(&project, name));
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(project.path().join(name), permissions).unwrap();
    };
    for name in ["base.toml", "suite.toml"] {
        mode(name, 0o444);
        let ran = floors(&project, &["--write"]).exits(33);
        assert!(ran.stderr.contains(&format!("{name} is read-only")), "{}", ran.stderr);
        mode(name, 0o644);
        assert_eq!(["base.toml", "suite.toml"].map(|name| read(&project, name)), before);
    }
    let ran = floors(&project, &["--write"]).exits(0);
    assert!(ran.stderr.contains("wrote 2 numbers in base.toml"), "{}", ran.stderr);
    assert!(ran.stderr.contains("wrote 1 number in suite.toml"), "{}", ran.stderr);
    let after = ["base.toml", "suite.toml"].map(|name| read(&project, name));
    let changed = |at: usize| {
        before[at].lines().zip(after[at].lines()).filter(|(old, new)| old != new).count()
    };
    assert_eq!((changed(0), changed(1)), (2, 1));
    assert_eq!(
        std::fs::read_dir(project.path())
            .unwrap()
            .filter(|it| { it.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part") })
            .count(),
        0
    );
}
