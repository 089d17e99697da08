//! Ten thousand cells: how long `tokgate report` takes, how much memory, and how large each file is.
//!
//! `cargo bench --bench reports` runs a small suite in virtual time, makes a record of 10 000 cells out of it and renders
//! all its reports. It ends with an error beyond 5 s, 500 MB, or what the readers of a file take.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

#[path = "../tests/large.rs"]
mod large;

const CELLS: usize = 10_000;
const MOST_TIME: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 500_000_000;
const RUNS: usize = 5;

/// Files, and what their readers take.
const FILES: [(&str, u64); 5] = [
    ("junit.xml", 20_000_000),
    ("summary.md", 1 << 20),
    ("report.html", 10_000_000),
    ("metrics.prom", 10_000_000),
    ("cells.csv", 20_000_000),
];

fn main() -> ExitCode {
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<bool, Box<dyn std::error::Error>> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("suite.toml"), large::SUITE)?;
    let mut run = tokgate(&dir);
    run.args(["run", "suite.toml", "--out", "small", "--no-progress", "--seed", "7"]);
    run.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let small = std::fs::read_to_string(dir.join("small/record.json"))?;
    let record = large::record(&serde_json::from_str(&small)?, CELLS);
    std::fs::create_dir_all(dir.join("large"))?;
    let text = record.to_string();
    std::fs::write(dir.join("large/record.json"), &text)?;
    println!("{CELLS} cells, record.json {}", megabytes(text.len() as u64));

    let mut fits = true;
    for arguments in [
        &["report", "large"][..],
        &["report", "large", "--junit-dialect", "strict"],
        &["report", "large", "--comment"],
        &["report", "large", "--annotations", "github"],
    ] {
        let mut best = (Duration::MAX, 0);
        for _ in 0..RUNS {
            let (time, bytes) = large::child(tokgate(&dir).args(arguments))?;
            best = (best.0.min(time), best.1.max(bytes));
        }
        let fit = best.0 <= MOST_TIME && best.1 <= MOST_BYTES;
        fits &= fit;
        println!(
            "{:44} {:6.2} s {:>10}{}",
            arguments.join(" "),
            best.0.as_secs_f64(),
            megabytes(best.1),
            if fit { "" } else { "  too much" }
        );
    }
    for (file, most) in FILES {
        let bytes = std::fs::metadata(dir.join("large").join(file))?.len();
        let fit = bytes <= most;
        fits &= fit;
        println!("{file:44} {:>19}{}", megabytes(bytes), if fit { "" } else { "  too much" });
    }
    Ok(fits)
}

fn tokgate(dir: &PathBuf) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokgate"));
    command.current_dir(dir).env_remove("GITHUB_STEP_SUMMARY");
    command
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
