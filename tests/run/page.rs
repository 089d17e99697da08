//! The result page as a suite, on an engine fitted to it: what must turn red, and nothing else.

use crate::harness::{Project, Ran, shipped};

/// The page's suites and profile in a folder of their own, with one text replaced.
fn page(file: &str, from: &str, to: &str) -> Project {
    let project = Project::new();
    for name in [
        "suites/inkling-small-h200x8.toml",
        "suites/inkling-small-on-sim.toml",
        "suites/sim/inkling.toml",
    ] {
        let text = std::fs::read_to_string(shipped(name)).unwrap();
        let text = if name == file {
            assert_eq!(text.matches(from).count(), 1, "{from} stands once in {name}");
            text.replace(from, to)
        } else {
            text
        };
        project.file(name, &text);
    }
    project
}

fn run(project: &Project, select: &str) -> Ran {
    project.tokgate(&[
        "run",
        "suites/inkling-small-on-sim.toml",
        "--out",
        "out",
        "--seed",
        "7",
        "-E",
        select,
    ])
}

#[test]
fn a_floor_raised_by_a_tenth_fails_exactly_its_cell() {
    let project = page("suites/inkling-small-h200x8.toml", "4222.9", "4645.2");
    let ran = run(&project, "test=decode context=8K concurrency=32..").exits(10);
    assert_eq!(ran.having("fail"), ["decode context=8K,concurrency=64"]);
    assert_eq!(ran.having("pass").len(), 2);
    let junit = ran.read("junit.xml");
    assert_eq!(junit.matches("<failure").count(), 1, "{junit}");
    // Measured value, limit, margin and line, in one message.
    let message = junit.split("<failure").nth(1).unwrap();
    for part in ["output-throughput 4 2", "&lt; 4 412.9", "of 4 645.2", "in this launch"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let suite =
        std::fs::read_to_string(project.path().join("suites/inkling-small-h200x8.toml")).unwrap();
    let line = suite.lines().position(|line| line.contains("4645.2")).unwrap() + 1;
    assert!(message.contains(&format!("suites/inkling-small-h200x8.toml:{line})")), "{message}");
}

#[test]
fn a_smaller_kv_cache_fails_exactly_the_largest_cell_as_capacity() {
    let project = page("suites/sim/inkling.toml", "1_600_000", "1_440_000");
    let ran = run(&project, "test=decode concurrency=128").exits(10);
    assert_eq!(ran.having("fail"), ["decode context=8K,concurrency=128"]);
    assert_eq!(ran.having("skip").len(), 7);
    assert!(ran.read("junit.xml").contains("type=\"capacity\""));
}

#[test]
fn rows_of_the_page_come_out_as_on_the_page() {
    let project = page("suites/sim/inkling.toml", "1_600_000", "1_600_000");
    let ran = run(&project, "context=16K").exits(0);
    assert_eq!(ran.having("skip"), ["decode context=16K,concurrency=128"]);
    assert_eq!(ran.having("pass").len(), 8);
    let record = ran.record();
    let page = [104.1, 194.3, 364.0, 653.0, 1221.9, 2139.7, 3748.5];
    let rates = record["cells"].as_array().unwrap().iter().filter_map(|cell| {
        cell["state"]["measured"]["observations"]["output-throughput"]["batches"]["rate"].as_f64()
    });
    let rates: Vec<f64> = rates.collect();
    assert_eq!(rates.len(), page.len());
    for (rate, page) in rates.iter().zip(page) {
        assert!((rate / page - 1.0).abs() < 0.02, "{rate} for {page}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let project = page("suites/sim/inkling.toml", "1_600_000", "1_600_000");
    let select = "context=32K concurrency=..4";
    let cells = |ran: Ran| ran.record()["cells"].clone();
    let first = cells(run(&project, select).exits(0));
    let second = cells(run(&project, select).exits(0));
    assert_eq!(first, second);
}
