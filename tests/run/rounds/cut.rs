//! Runs of several launches that are cut short and go on.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::resumed::{bytes, journal, start, structure};
use super::super::written::facts_agree;
use super::{SLOWER, cells, events, mean, project, round, starts, verdict};
use crate::harness::{Project, Ran, eventually};

/// The journal without the line that would have finished another round than the first `n`.
fn cut_after(project: &Project, n: usize) -> Vec<u8> {
    let path = journal(project);
    let text = String::from_utf8(bytes(&path)).unwrap();
    let mut seen = 0;
    let kept: String = text
        .split_inclusive('\n')
        .take_while(|line| {
            seen += usize::from(line.contains("\"cell-finished\""));
            seen <= n
        })
        .collect();
    std::fs::write(&path, &kept).unwrap();
    kept.into_bytes()
}

/// How often each round of each cell was finished.
fn rounds(ran: &Ran) -> Vec<(u64, u64)> {
    let finished = events(ran, "cell-finished");
    let mut all: Vec<(u64, u64)> =
        finished.iter().map(|it| (it["cell"].as_u64().unwrap(), round(it))).collect();
    all.sort_unstable();
    all
}

fn each_once(ran: &Ran) {
    let planned: Vec<(u64, u64)> = (0..6).flat_map(|cell| (0..4).map(move |r| (cell, r))).collect();
    assert_eq!(rounds(ran), planned);
}

#[test]
fn after_any_round_a_run_ends_as_if_it_had_not_been_cut() {
    let project = project("virtual", SLOWER);
    let once = project.run(&["--seed", "7"]).exits(10);
    each_once(&once);
    let (structure_once, mean_once) = (structure(&once), mean(&once));
    let cells_once = cells(&once);
    let whole = bytes(&journal(&project));
    // In the first pair, in the second, at its end, in the last one, before the very last.
    for n in [1, 5, 8, 12, 13, 22, 23] {
        std::fs::write(journal(&project), &whole).unwrap();
        let kept = cut_after(&project, n);
        let ran =
            project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(10);
        assert!(bytes(&journal(&project)).starts_with(&kept));
        let told = format!(" of 6 cells finished, {n} of 24 measurements");
        assert!(ran.stderr.contains(&told), "{}", ran.stderr);
        each_once(&ran);
        assert_eq!(structure(&ran), structure_once, "cut after {n}");
        assert_eq!((mean(&ran).0, mean_once.0.clone()), ("fail".into(), "fail".into()));
        facts_agree(&ran);
        // Rounds that were finished are those that they were.
        let kept = String::from_utf8(kept).unwrap();
        let lines = kept.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let (now, before) = (cells(&ran), cells_once.clone());
        for event in lines.filter_map(|line| line.get("cell-finished").cloned()) {
            let at = usize::try_from(event["cell"].as_u64().unwrap()).unwrap();
            let of = usize::try_from(round(&event)).unwrap();
            assert_eq!(now[at].1["rounds"][of], before[at].1["rounds"][of], "{}", now[at].0);
        }
    }
    let ran = project.tokgate(&["run", "suite.toml", "--resume", "out"]).exits(10);
    assert!(ran.stderr.contains("nothing to resume"), "{}", ran.stderr);
}

#[test]
fn a_time_limit_says_how_many_launches_a_cell_has() {
    let project = project("virtual", "");
    // A start takes about a second and a half.
    let cut = project.run(&["--time-limit", "6s"]).exits(32);
    let told = starts(&cut);
    assert!((3..=7).contains(&told.len()), "the limit of the test does not fit: {told:?}");
    let mut counted = 0;
    for (name, cell) in cells(&cut) {
        let done = cell["rounds"].as_array().unwrap();
        let done = done.iter().filter(|round| round["state"].get("measured").is_some()).count();
        let (found, message) = verdict(&cut, &name);
        assert_eq!(found, "error");
        let expected = match done {
            0 => "not run: the time limit was reached".to_owned(),
            done => format!("not run: the time limit was reached; {done} of 4 launches measured"),
        };
        assert_eq!(message, expected, "{name}");
        counted += usize::from(done > 0);
        assert_eq!(cell["seconds"].as_f64().unwrap() > 0.0, done > 0, "their time was spent");
    }
    assert!(counted > 0);
    assert_eq!(mean(&cut).0, "error");
    let ran = project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(0);
    each_once(&ran);
    assert_eq!(ran.having("pass").len(), 3);
}

#[test]
fn a_signal_in_the_second_pair_leaves_what_was_measured() {
    let project = project("real", "");
    let child = start(&project, &["--out", "out", "-E", "test=decode concurrency=1"]);
    eventually("the second round has begun", || {
        String::from_utf8_lossy(&bytes(&journal(&project))).contains("\"round\":1,")
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let cut = project.ran(child.wait_with_output().unwrap()).exits(130);
    let (found, message) = verdict(&cut, "old decode concurrency=1");
    assert_eq!(found, "error");
    assert!(message.starts_with("not run: the run was interrupted; "), "{message}");
    let kept = bytes(&journal(&project));
    let arguments = [
        "run",
        "suite.toml",
        "--no-progress",
        "-E",
        "test=decode concurrency=1",
        "--resume",
        "out",
    ];
    let ran = project.tokgate(&arguments).exits(0);
    assert!(bytes(&journal(&project)).starts_with(&kept));
    let planned: Vec<(u64, u64)> = (0..2).flat_map(|cell| (0..4).map(move |r| (cell, r))).collect();
    assert_eq!(rounds(&ran), planned, "no round is repeated");
    // Each start has a log of its own, whatever session it is of.
    let mut logs: Vec<String> = events(&ran, "launch-started")
        .iter()
        .map(|event| event["log"].as_str().unwrap().to_owned())
        .collect();
    assert!(logs.contains(&"engine-old.log".to_owned()), "{logs:?}");
    assert!(logs.iter().any(|log| log.starts_with("engine-new-resumed1-n")), "{logs:?}");
    logs.iter().for_each(|log| drop(ran.read(log)));
    let count = logs.len();
    logs.sort();
    logs.dedup();
    assert_eq!(logs.len(), count);
}
