//! What looking at the hardware costs: processor time of the threads that look at eight GPUs and at the host, five
//! times a second for twenty seconds, as a share of a core.
//!
//! `cargo bench --bench sampling` takes a stub of the driver's library, whose answers cost next to nothing: what is
//! measured is tokgate's own part. It ends with an error where that is more than 0.5 % of a core. What a real driver adds
//! is bounded by the sampler itself, which looks less often where looks cost more. Linux only.

mod rig;

use std::process::{Command, ExitCode};
use std::time::Duration;

use tokgate::clock::Clock;
use tokgate::hardware::sampler::{Sampler, Sight};
use tokgate::hardware::telemetry::Whose;
use tokgate::hardware::visible::Visible;

const PACE: Duration = Duration::from_millis(200);
const LENGTH: Duration = Duration::from_secs(20);
/// Target, as a share of a core.
const MOST: f64 = 0.005;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    // The library is found by variables, which only a process of its own has from the start.
    let good = if std::env::var_os("NVML_STUB").is_some() { bench() } else { again(&arguments) };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn again(arguments: &[String]) -> std::io::Result<bool> {
    let folder = rig::folder("sampling")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).envs(rig::eight_gpus(&folder)?).env_remove("CUDA_VISIBLE_DEVICES");
    Ok(command.status()?.success())
}

fn bench() -> std::io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clock = Clock::start();
        let sampler = Sampler::start(Sight::Here(Visible::default()), PACE, clock);
        // The first look, which finds out what there is, is before all cells.
        sampler.look(clock.now(), Duration::from_secs(20)).await;
        let (from, before) = (clock.now(), spent()?);
        tokio::time::sleep(LENGTH).await;
        let (to, after) = (clock.now(), spent()?);
        let whose = Whose::Running { since: from };
        let seen = sampler.over(&[(from, to)], whose).await;
        let seconds = to.seconds_since(from);
        let [gpus, host] = [0, 1].map(|thread| (after[thread] - before[thread]) / seconds);
        println!(
            "{} GPUs, {} looks in {seconds:.1} s: GPUs {:.3} % of a core, host {:.3} %, {:.0} µs a look",
            seen.gpus.len(),
            seen.samples,
            gpus * 100.0,
            host * 100.0,
            gpus * seconds / f64::from(seen.samples.max(1)) * 1e6
        );
        let text = serde_json::to_string(&seen).map_err(std::io::Error::other)?;
        println!("telemetry of such a cell: {} bytes of a record", text.len());
        Ok(gpus + host <= MOST && seen.gpus.len() == 8)
    })
}

/// Processor seconds of the threads that look at GPUs and at the host.
fn spent() -> std::io::Result<[f64; 2]> {
    let mut spent = [0.0; 2];
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = std::fs::read_to_string(task.join("comm"))?;
        let stat = std::fs::read_to_string(task.join("schedstat"))?;
        let nanoseconds = stat.split(' ').next().and_then(|time| time.parse::<f64>().ok());
        let place = ["gpus", "host"].iter().position(|one| *one == name.trim());
        if let (Some(place), Some(nanoseconds)) = (place, nanoseconds) {
            spent[place] += nanoseconds / 1e9;
        }
    }
    Ok(spent)
}
