//! Compares a run of `suites/inkling-small-on-sim.toml` with the result page, row by row.
//!
//! `cargo bench --bench page` runs the suite and prints each of the page's 73 rows: its figures,
//! those of the run, and how far they are apart. It ends with an error where output-throughput is
//! off by more than 2 %, per-request-throughput by more than 3 % (but for 8K × 1 and × 2, where a
//! stream ended and the page's own two rates differ by 4–5 %) or TTFT by more than 5 % and 5 ms, or where a
//! row is missing or over capacity on one side only. `-- --record FILE` compares a finished run.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::Value;

const SUITE: &str = "suites/inkling-small-on-sim.toml";
const PAGE: &str = include_str!("../tests/data/seed-measurements.csv");

/// Figures of a cell; NaN where there is none.
#[derive(Clone, Copy)]
struct Figures {
    total: f64,
    per_request: f64,
    ttft: f64,
}

struct Row {
    phase: String,
    context: String,
    concurrency: u64,
    /// `None`: over capacity.
    figures: Option<Figures>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    let record = match arguments.iter().position(|argument| argument == "--record") {
        Some(at) => arguments.get(at + 1).map(PathBuf::from),
        None if arguments.iter().any(|argument| argument == "--bench") => run(),
        None => return ExitCode::SUCCESS,
    };
    let Some(record) = record else { return ExitCode::FAILURE };
    let record = match std::fs::read_to_string(&record).map(|text| serde_json::from_str(&text)) {
        Ok(Ok(record)) => record,
        Ok(Err(error)) => return fail(&format!("{}: {error}", record.display())),
        Err(error) => return fail(&format!("{}: {error}", record.display())),
    };
    if compare(&page(), &record) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

/// Runs the suite; the record's path.
fn run() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let begun = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_tokgate"))
        .current_dir(root)
        .args(["run", SUITE, "--out"])
        .arg(&out)
        .status();
    match status {
        Ok(status) => println!("{SUITE}: {status} after {:.1} s", begun.elapsed().as_secs_f64()),
        Err(error) => {
            eprintln!("can't start tokgate: {error}");
            return None;
        }
    }
    Some(out.join("record.json"))
}

fn page() -> Vec<Row> {
    let number = |text: &str| text.parse().unwrap_or(f64::NAN);
    let row = |line: &str| {
        let field: Vec<&str> = line.split(',').collect();
        let figures = Figures {
            total: number(field[4]),
            per_request: number(field[5]),
            ttft: number(field[6]),
        };
        Row {
            phase: field[0].to_owned(),
            context: field[1].to_owned(),
            concurrency: field[2].parse().unwrap_or(0),
            figures: (field[3] == "valid").then_some(figures),
        }
    };
    PAGE.lines().skip(1).map(row).collect()
}

/// What a run has to say of a row.
enum Found {
    Measured(Figures),
    Over,
    /// Anything else, as words.
    Other(String),
}

fn find(record: &Value, row: &Row) -> Found {
    let id = match row.phase.as_str() {
        "prefill" => format!("context={}", row.context),
        _ => format!("context={},concurrency={}", row.context, row.concurrency),
    };
    let planned = record["header"]["cells"].as_array().map_or(&[][..], Vec::as_slice);
    let at = planned
        .iter()
        .position(|cell| cell["kind"] == row.phase.as_str() && cell["id"] == id.as_str());
    let Some(at) = at else { return Found::Other("not in the record".to_owned()) };
    let state = &record["cells"][at]["state"];
    if let Some(measured) = state.get("measured") {
        let seen = &measured["observations"];
        let rate = if row.phase == "prefill" { "prefill-throughput" } else { "output-throughput" };
        return Found::Measured(Figures {
            total: estimate(&seen[rate]),
            per_request: estimate(&seen["per-request-throughput"]),
            ttft: estimate(&seen["ttft"]),
        });
    }
    if state["unfit"]["class"] == "over-capacity" {
        return Found::Over;
    }
    Found::Other(state.to_string())
}

/// The estimate that observations lead to: the rate, or the median.
fn estimate(observations: &Value) -> f64 {
    if let Some(rate) = observations["batches"]["rate"].as_f64() {
        return rate;
    }
    for exact in ["exact", "point"] {
        if let Some(value) = observations[exact].as_f64() {
            return value;
        }
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut samples: Vec<f64> = list(&observations["samples"])
        .into_iter()
        .chain(list(&observations["waves"]).iter().flat_map(list))
        .filter_map(|sample| sample.as_f64())
        .collect();
    samples.sort_by(f64::total_cmp);
    match samples.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => samples[n / 2],
        n => (samples[n / 2 - 1] + samples[n / 2]) / 2.0,
    }
}

/// The largest deviation of a kind, with its row.
#[derive(Default)]
struct Worst {
    deviation: f64,
    row: String,
}

impl Worst {
    fn see(&mut self, deviation: f64, row: &str) {
        if deviation.abs() > self.deviation.abs() {
            *self = Worst { deviation, row: row.to_owned() };
        }
    }
}

fn compare(page: &[Row], record: &Value) -> bool {
    println!(
        "{:<20} {:>9} {:>9} {:>8}   {:>7} {:>7} {:>8}   {:>7} {:>9} {:>8}",
        "row", "tok/s", "run", "", "per req", "run", "", "TTFT", "run", ""
    );
    let (mut total, mut single, mut ttft) = (Worst::default(), Worst::default(), Worst::default());
    let mut wrong = Vec::new();
    let (mut measured, mut over) = (0, 0);
    for row in page {
        let name = format!("{} {} × {}", row.phase, row.context, row.concurrency);
        match (row.figures, find(record, row)) {
            (Some(expected), Found::Measured(figures)) => {
                measured += 1;
                let apart = |run: f64, page: f64| run / page - 1.0;
                let off = [
                    apart(figures.total, expected.total),
                    apart(figures.per_request, expected.per_request),
                    apart(figures.ttft, expected.ttft),
                ];
                println!(
                    "{name:<20} {:>9.1} {:>9.1} {:>+7.2}%   {:>7} {:>7} {:>8}   {:>7} {:>9.1} {:>+7.2}%",
                    expected.total,
                    figures.total,
                    100.0 * off[0],
                    shown(expected.per_request),
                    if expected.per_request.is_nan() {
                        "—".to_owned()
                    } else {
                        shown(figures.per_request)
                    },
                    if off[1].is_nan() {
                        "—".to_owned()
                    } else {
                        format!("{:+.2}%", 100.0 * off[1])
                    },
                    expected.ttft,
                    figures.ttft,
                    100.0 * off[2],
                );
                ttft.see(off[2], &name);
                // A comparison with NaN is false: what is missing counts as wrong.
                let near = off[2].abs() <= 0.05 || (figures.ttft - expected.ttft).abs() <= 5.0;
                if !near {
                    wrong.push(format!("{name}: TTFT"));
                }
                if row.phase != "decode" {
                    continue;
                }
                total.see(off[0], &name);
                let good = off[0].abs() <= 0.02;
                if !good {
                    wrong.push(format!("{name}: output-throughput"));
                }
                if row.context == "8K" && row.concurrency <= 2 {
                    continue;
                }
                single.see(off[1], &name);
                let good = off[1].abs() <= 0.03;
                if !good {
                    wrong.push(format!("{name}: per-request-throughput"));
                }
            }
            (None, Found::Over) => {
                over += 1;
                println!("{name:<20} over capacity on both sides");
            }
            (Some(_), Found::Over) => wrong.push(format!("{name}: over capacity in the run alone")),
            (None, Found::Measured(_)) => {
                wrong.push(format!("{name}: over capacity on the page alone"));
            }
            (Some(_) | None, Found::Other(state)) => wrong.push(format!("{name}: {state}")),
        }
    }
    println!("\n{} rows: {measured} measured, {over} over capacity", page.len());
    for (what, worst, limit) in [
        ("output-throughput", total, "2 %"),
        ("per-request-throughput", single, "3 %, but for 8K × 1 and × 2"),
        ("TTFT", ttft, "5 % or 5 ms"),
    ] {
        println!(
            "worst {what}: {:+.2} % at {} (limit {limit})",
            100.0 * worst.deviation,
            worst.row
        );
    }
    for one in &wrong {
        println!("WRONG {one}");
    }
    wrong.is_empty()
}

fn shown(value: f64) -> String {
    if value.is_nan() { "—".to_owned() } else { format!("{value:.1}") }
}
