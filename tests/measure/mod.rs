//! What falsifies a measurement, each thing played by a toy engine or the simulated one, and what
//! tokgate must make of it.

mod asked;
mod buffered;
mod client;
mod compiling;
mod doubtful;
mod failed_requests;
mod lengths;
mod preemption;
mod prefix_cache;
mod uncounted;

use serde_json::Value;

use crate::harness::{Project, Ran};
use crate::toy::Toy;

/// A suite for a toy engine. `kind` is that of the engine, `request` goes below `[request]`, `rest` behind
/// everything.
fn suite(toy: &Toy, kind: &str, request: &str, rest: &str) -> Project {
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"toy\"\n[policy]\nmax-client-lag = \"10s\"\nunjudged = \"allow\"\n\
         [engine]\nkind = \"{kind}\"\nurl = \"{}\"\n[request]\nidle-timeout = \"10s\"\n{request}\n{rest}",
        toy.url()
    ))
}

/// A short decode test; `more` goes below `[[test]]` and may name what follows. Its window lies inside the
/// first request of each stream, so that on a busy machine no pause between two of them is in it.
fn decode(more: &str) -> String {
    let length = if more.contains("duration") { "" } else { "duration = \"300ms\"" };
    let output = if more.contains("max-output") { "" } else { "max-output = 256" };
    format!("[[test]]\nkind = \"decode\"\nmin-tokens = 20\n{length}\n{output}\n{more}\n")
}

/// What was measured in a cell.
#[track_caller]
fn measured(ran: &Ran, cell: usize) -> Value {
    let found = ran.record()["cells"][cell]["state"]["measured"].clone();
    assert!(found.is_object(), "{}\n{}", ran.read("record.json"), ran.stderr);
    found
}

/// Fault and message of each check of a kind.
fn checks(measured: &Value, kind: &str) -> Vec<(Value, String)> {
    let all = measured["checks"].as_array().unwrap();
    all.iter()
        .filter(|check| check["kind"] == kind)
        .map(|check| (check["fault"].clone(), check["message"].as_str().unwrap().to_owned()))
        .collect()
}

/// The message of the one check of a kind that has this fault.
#[track_caller]
fn faulty(measured: &Value, kind: &str, fault: &str) -> String {
    let found: Vec<_> =
        checks(measured, kind).into_iter().filter(|(found, _)| found == fault).collect();
    assert_eq!(found.len(), 1, "{kind} {fault}: {}", measured["checks"]);
    found[0].1.clone()
}

/// Asserts that no check has a fault, but for notices, and for a pace that a busy machine changes.
#[track_caller]
fn sound(measured: &Value) {
    for check in measured["checks"].as_array().unwrap() {
        let fault = &check["fault"];
        assert!(fault.is_null() || fault == "notice" || fault == "drifting", "{check}");
    }
}

/// Samples of a metric: all that there are, whatever their kind.
fn samples(measured: &Value, metric: &str) -> Vec<f64> {
    let observed = &measured["observations"][metric];
    let numbers = |of: &Value| -> Vec<f64> {
        of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    if observed["waves"].is_array() {
        return observed["waves"].as_array().unwrap().iter().flat_map(numbers).collect();
    }
    numbers(&observed["samples"])
}

/// A count.
fn exact(measured: &Value, metric: &str) -> f64 {
    measured["observations"][metric]["exact"].as_f64().unwrap()
}

/// Asserts that every report that people read has these words.
#[track_caller]
fn told_everywhere(ran: &Ran, words: &str) {
    for (name, page) in [
        ("junit.xml", ran.read("junit.xml")),
        ("summary.md", ran.read("summary.md")),
        ("stdout", ran.stdout.clone()),
    ] {
        let page = page.replace("&apos;", "'").replace("&quot;", "\"");
        // A line of the console may be broken at a blank.
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(words), "no `{words}` in {name}:\n{page}");
    }
}
