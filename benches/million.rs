//! A million cells: how long `tokgate check` and `tokgate list --format json` take, and how much
//! memory.
//!
//! `cargo bench --bench million` writes suites of four axes with a grid of floors, a bound with
//! `where` and `except`, and a quarantine; in one of them all cells share an engine, in the others
//! there are a thousand and forty thousand. It ends with an error beyond 10 s or 1 GiB.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const MOST_TIME: Duration = Duration::from_secs(10);
const MOST_KIB: u64 = 1 << 20;

fn main() -> ExitCode {
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let mut fits = true;
    for (name, command) in [
        ("one engine", "serve --port {{ port }}"),
        ("1 000 engines", "serve --port {{ port }} {{ axis.layout }} {{ axis.depth }}"),
        (
            "40 000 engines",
            "serve --port {{ port }} {{ axis.layout }} {{ axis.depth }} {{ axis.concurrency }}",
        ),
    ] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("million.toml");
        if let Err(error) = std::fs::write(&path, suite(command)) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        for arguments in [&["check"][..], &["list", "--format", "json"]] {
            let Some((time, kib)) = measure(&path, arguments) else { return ExitCode::FAILURE };
            let fit = time <= MOST_TIME && kib <= MOST_KIB;
            fits &= fit;
            println!(
                "{name:15} {:20} {:6.2} s {:6} MiB{}",
                arguments.join(" "),
                time.as_secs_f64(),
                kib / 1024,
                if fit { "" } else { "  too much" }
            );
        }
    }
    if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// 25 × 40 × 25 × 40 cells.
fn suite(command: &str) -> String {
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let concurrency = list(&mut (1..=40).map(|n| n.to_string()));
    let mut grid = String::new();
    for context in 1..=25 {
        let floor = |column| match column {
            39 => "\"over\"".to_owned(),
            40 => "\"-\"".to_owned(),
            _ => (100 + context + column).to_string(),
        };
        let _ = writeln!(grid, "  [\"{context}K\", {}],", list(&mut (1..=40).map(floor)));
    }
    format!(
        r#"version = 1
[suite]
name = "million"
[engine]
kind = "llama-cpp"
command = "{command}"
[[test]]
kind = "decode"
matrix.context = [{context}]
matrix.concurrency = [{concurrency}]
matrix.layout = [{layout}]
matrix.depth = [{concurrency}]
[[expect]]
metric = "output-throughput"
slack = "5%"
min.rows = "context"
min.columns = "concurrency"
min.at = [{concurrency}]
min.grid = [
{grid}]
[[expect]]
metric = "ttft.p50"
where = {{ layout = ["l1", "l2"], concurrency = "4..20" }}
except = {{ context = "8K" }}
max = "2s"
[[quarantine]]
where = {{ depth = 7, layout = "!l3" }}
reason = "known"
expires = 2099-12-31
"#,
        context = list(&mut (1..=25).map(|n| format!("\"{n}K\""))),
        layout = list(&mut (1..=25).map(|n| format!("\"l{n}\""))),
    )
}

/// Time, and peak memory in KiB, of a run that must succeed.
fn measure(path: &Path, arguments: &[&str]) -> Option<(Duration, u64)> {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tokgate"))
        .args(arguments)
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .ok()?;
    // The kernel keeps the peak as long as the process is there to be asked.
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        match child.try_wait().ok()? {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if !ended.success() {
        eprintln!("{arguments:?}: {ended}");
        return None;
    }
    Some((begun.elapsed(), peak))
}
