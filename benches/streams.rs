//! Memory and processor time of the client alone, with 1 024 streams of 50 tok/s each for 30 s.
//!
//! `cargo bench --bench streams` runs such a cell against the simulated engine as a process of its own, with a soft
//! limit of 1 024 open files, and prints what tokgate itself took. It ends with an error where the run did not pass
//! or took 150 MB or more. Linux only, since it reads `/proc`.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const MOST: f64 = 150e6;

const PROFILE: &str = r#"
max-model-len = "8K"
kv-capacity = "16M"
[prefill]
tokens = [16, "1K"]
ms = [1, 2]
[admit]
at = [1, 1024]
grid = [["1K", 9, 200]]
[step]
at = [1]
grid = [["1K", 20]]
[noise]
within = "1%"
"#;

// The bound makes the run look at its figures in the middle of it, as one that gates does.
const SUITE: &str = r#"version = 1
[suite]
name = "streams"
[engine]
kind = "sim"
clock = "real"
profile = "profile.toml"
[[test]]
kind = "decode"
duration = "30s"
max-output = 4096
matrix.context = [256]
matrix.concurrency = [1024]
[[expect]]
metric = "output-throughput"
min = 40_000
[policy]
max-client-lag = "1s"
"#;

fn main() -> ExitCode {
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match bench() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> std::io::Result<bool> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("streams");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("profile.toml"), PROFILE)?;
    std::fs::write(folder.join("suite.toml"), SUITE)?;
    let begun = Instant::now();
    // The shell becomes tokgate, so its process id is tokgate's.
    let mut run = Command::new("sh")
        .current_dir(&folder)
        .args(["-c", "ulimit -Sn 1024; exec \"$0\" run suite.toml --out out --no-progress"])
        .arg(env!("CARGO_BIN_EXE_tokgate"))
        .stdin(Stdio::null())
        .spawn()?;
    let (mut peak, mut seconds) = (0.0, 0.0);
    let status = loop {
        if let Some(status) = run.try_wait()? {
            break status;
        }
        peak = peak_memory(run.id()).unwrap_or(peak);
        seconds = processor_seconds(run.id()).unwrap_or(seconds);
        std::thread::sleep(Duration::from_millis(100));
    };
    let took = begun.elapsed().as_secs_f64();
    println!("run: {status} after {took:.1} s");
    println!("peak memory of the client: {:.1} MB (limit {:.0})", peak / 1e6, MOST / 1e6);
    println!(
        "processor time of the client: {seconds:.1} s, {:.0} % of a core",
        seconds / took * 100.0
    );
    Ok(status.success() && peak > 0.0 && peak < MOST)
}

/// Greatest resident size in bytes.
fn peak_memory(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024.0)
}

/// User and system time, in ticks of 10 ms as Linux shows them.
fn processor_seconds(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
