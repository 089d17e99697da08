//! What spreadsheets and data frames read.

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use crate::report::fixture;

/// Lines by column, as Python's csv reads them with all its strictness; `None`, said loudly, without Python.
fn python(text: &str) -> Option<Vec<HashMap<String, String>>> {
    let reader = "import csv, io, json, sys\n\
                  text = sys.stdin.buffer.read().decode('utf-8')\n\
                  rows = list(csv.reader(io.StringIO(text, newline=''), strict=True))\n\
                  assert all(len(row) == len(rows[0]) for row in rows)\n\
                  print(json.dumps([dict(zip(rows[0], row)) for row in rows[1:]]))";
    let spawned = Command::new("python3")
        .args(["-c", reader])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        let _ = writeln!(std::io::stderr(), "SKIPPED the reading of CSV: there is no python3");
        return None;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn every_cell_and_figure_is_a_line_that_reads_back() {
    let record = fixture::page_with_a_loss();
    let text = render(&record);
    assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']));
    let Some(rows) = python(&text) else { return };
    let cells: std::collections::BTreeSet<_> =
        rows.iter().map(|row| (&row["test"], &row["cell"])).collect();
    assert_eq!(cells.len(), record.cells.len());
    let lost = rows.iter().find(|row| row["verdict"] == "fail").unwrap();
    let expected = [
        ("suite", "inkling-small-h200x8"),
        ("test", "decode"),
        ("cell", "context=8K,concurrency=128"),
        ("cell_verdict", "fail"),
        ("metric", "output-throughput"),
        ("unit", "tok/s"),
        ("side", "min"),
        ("target", "7302"),
        ("limit", "6936.9"),
        ("place", "suites/page.toml:58"),
        ("axis.context", "8192"),
        ("axis.concurrency", "128"),
    ];
    for (column, value) in expected {
        assert_eq!(lost[column], value, "{column}");
    }
    // Numbers are those of the record, to the last digit.
    let at =
        record.cells.iter().position(|cell| cell.judgement.verdict == crate::judge::Verdict::Fail);
    let estimate = record.cells[at.unwrap()].judgement.bounds[0].estimate.unwrap();
    assert_eq!(lost["value"].parse(), Ok(estimate.value));
    assert_eq!(lost["lower"].parse().ok(), estimate.lower);
    assert_eq!(lost["upper"].parse().ok(), estimate.upper);
    assert_eq!(lost["n"], estimate.n.to_string());
    assert_eq!(lost["method"], word(&estimate.method));
    // What nothing is asked of has its value and interval, and no verdict.
    let mut free = rows.iter().filter(|row| row["verdict"].is_empty());
    assert!(free.clone().any(|row| row["metric"] == "ttft.p50" && !row["value"].is_empty()));
    assert!(free.all(|row| row["limit"].is_empty() && row["severity"].is_empty()));
}

#[test]
fn cells_without_figures_and_ratios_are_there() {
    let Some(rows) = python(&render(&fixture::every_verdict())) else { return };
    let verdicts: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row["cell_verdict"].as_str()).collect();
    assert_eq!(verdicts.len(), 8, "{verdicts:?}");
    assert!(rows.iter().any(|row| row["cell_verdict"] == "error" && row["value"].is_empty()));
    let rows = python(&render(&fixture::compare())).unwrap();
    let ratio = rows.iter().find(|row| row["against"] == "old" && row["test"] == "decode").unwrap();
    assert!(ratio["unit"].is_empty() && ratio["variant"] == "new" && ratio["method"] == "paired");
    let mean = rows.last().unwrap();
    assert_eq!((mean["metric"].as_str(), mean["test"].as_str()), ("mean-ratio", "compare"));
    assert!(mean["value"].parse::<f64>().is_ok() && mean["lower"].parse::<f64>().is_ok());
}

#[test]
fn what_was_seen_of_the_hardware_has_lines_with_units() {
    let record = fixture::throttled();
    let Some(rows) = python(&render(&record)) else { return };
    let id = &record.header.cells[fixture::hot_cell(&record)].id;
    let value = |metric: &str| {
        let row = rows.iter().find(|row| row["cell"] == *id && row["metric"] == metric).unwrap();
        assert!(row["verdict"].is_empty() && row["limit"].is_empty() && row["place"].contains(':'));
        (row["value"].clone(), row["unit"].clone())
    };
    assert_eq!(value("hardware.power.mean"), ("5000".into(), "W".into()));
    assert_eq!(value("hardware.sm-clock.min"), ("1290".into(), "MHz".into()));
    assert_eq!(value("hardware.throttled"), ("0.62".into(), String::new()));
    assert_eq!(value("hardware.suspects"), ("1".into(), String::new()));
}

#[test]
fn hostile_names_stay_in_their_column() {
    let mut record = fixture::page();
    record.header.suite = format!("a,\"b\"\r\n{}", fixture::nasty());
    record.header.cells[3].axes[0].1 = AxisValue::Text(" =x,\"y\" ".into());
    let text = render(&record);
    assert!(!text.replace("\r\n", "").contains(|c: char| c.is_control()));
    let Some(rows) = python(&text) else { return };
    assert!(rows.iter().all(|row| row["suite"] == line(&record.header.suite)));
    assert!(rows.iter().any(|row| row["axis.context"] == line(" =x,\"y\" ")));
}

#[test]
fn a_very_large_run_keeps_every_verdict() {
    let record = fixture::page_with_a_loss();
    let all = render(&record);
    let judged = within(&record, all.len() - 1);
    assert!(judged.len() < all.len() && judged.contains(",output-throughput,"));
    assert!(all.contains(",ttft.mean,") && !judged.contains(",ttft.mean,"));
    // Even where nothing fits each cell is named, with the limit that decided.
    let bare = within(&record, 10);
    assert_eq!(bare.lines().count(), record.cells.len() + 1);
    assert!(bare.contains(",fail,output-throughput,tok/s,"), "{bare}");
}
