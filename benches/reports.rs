//! Ten thousand cells: how much processor time `tokgate report` takes, how much memory, and how large each file is.
//!
//! `cargo bench --bench reports` runs a small suite in virtual time, makes a record of 10 000 cells out of it and renders
//! all its reports, once without telemetry and once with that of 8 GPUs. It ends with an error beyond 5 s, 500 MB, or what the readers of a
//! file take. On two shared cores `tokgate report` took 2.8 s and 254 MB of a record without telemetry, 4.2 s and 454 MB of
//! one with it; report.html had 9.5 MB, junit.xml 12.7 MB and 14.7 MB.

use std::error::Error;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

#[path = "../tests/large.rs"]
#[allow(dead_code)]
mod large;

use large::Large;

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

fn measure() -> Result<bool, Box<dyn Error>> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("suite.toml"), large::SUITE)?;
    let mut run = tokgate(&dir);
    run.args(["run", "suite.toml", "--out", "small", "--no-progress", "--seed", "7"]);
    run.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let small = std::fs::read_to_string(dir.join("small/record.json"))?;
    let small = serde_json::from_str(&small)?;
    let mut fits = true;
    for (what, gpus) in [("no telemetry", 0), ("telemetry of 8 GPUs", 8)] {
        fits &= render(&dir, what, &small, gpus)?;
    }
    Ok(fits)
}

fn render(dir: &Path, what: &str, small: &Value, gpus: u32) -> Result<bool, Box<dyn Error>> {
    let mut small = small.clone();
    if gpus > 0 {
        watch(&mut small, gpus);
    }
    std::fs::create_dir_all(dir.join("large"))?;
    let bytes = Large::of(&small, CELLS).write(&dir.join("large/record.json"))?;
    println!("{CELLS} cells, {what}: record.json {}", megabytes(bytes));

    let mut fits = true;
    for arguments in [
        &["report", "large"][..],
        &["report", "large", "--junit-dialect", "strict"],
        &["report", "large", "--comment"],
        &["report", "large", "--annotations", "github"],
    ] {
        let mut best = (Duration::MAX, 0);
        for _ in 0..RUNS {
            let (time, bytes) = child(tokgate(dir).args(arguments))?;
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

fn tokgate(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokgate"));
    command.current_dir(dir).env_remove("GITHUB_STEP_SUMMARY");
    command
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Gives each measured cell of a record what a node of so many GPUs tells in a minute of full load: no two points are
/// alike.
fn watch(record: &mut Value, gpus: u32) {
    let mut state = 7_u32;
    let mut series = |low: f64, span: f64| {
        let points: Vec<f64> = (0..60)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                low + (span * f64::from(state >> 8) / f64::from(1 << 24) * 10.0).round() / 10.0
            })
            .collect();
        json!({ "min": low, "mean": low + span / 2.0, "max": low + span, "points": points })
    };
    for cell in record["cells"].as_array_mut().into_iter().flatten() {
        let Some(measured) = cell["state"].get_mut("measured") else { continue };
        let gpu = |index| {
            json!({
                "index": index,
                "name": "NVIDIA H200",
                "energy": 39_150.125,
                "power": series(420.0, 280.0),
                "utilisation": series(62.0, 38.0),
                "memory": series(131e9, 9e9),
                "sm-clock": series(1290.0, 690.0),
                "memory-clock": series(3201.0, 1.0),
                "temperature": series(48.0, 39.0),
                "throttled": { "power-cap": 0.3125, "thermal-software": 0.0125 },
                "ecc-corrected": 0,
                "ecc-uncorrected": 0
            })
        };
        let told: Vec<Value> = (0..gpus).map(gpu).collect();
        measured["telemetry"] = json!({
            "seconds": 60.0,
            "samples": 300,
            "gpus": told,
            "host": { "cpu": series(11.0, 3.0), "memory": series(212e9, 8e9) }
        });
    }
}

/// Runs a command to its end: how much processor time it took, which others on the machine hardly change, and the most
/// memory that it had. The system counts what this process had at that time for the child's, so it must not be much.
#[allow(unsafe_code)]
fn child(command: &mut Command) -> Result<(Duration, u64), Box<dyn Error>> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: both are written by the call and hold no pointers; all zeros is a value of `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    if ended != pid {
        return Err(std::io::Error::last_os_error().into());
    }
    let status = ExitStatus::from_raw(status);
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    let spent = |of: libc::timeval| {
        let micros = of.tv_sec * 1_000_000 + of.tv_usec;
        Duration::from_micros(micros.unsigned_abs())
    };
    let time = spent(usage.ru_utime) + spent(usage.ru_stime);
    Ok((time, u64::try_from(usage.ru_maxrss)? * 1024))
}
