//! `tokgate probe`: the hardware that an engine would see here, for people or as one JSON document.

use std::fmt::Write as _;
use std::time::Duration;

use crate::hardware::probe::{GpuNow, HostNow, Probe};
use crate::hardware::visible::Visible;
use crate::hardware::{self, Facts, Gpu};
use crate::quantity::{parse_duration, print_number};
use crate::report::sanitise;

use super::exit::Exit;
use super::print;

/// Arguments of `tokgate probe`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "What CUDA_VISIBLE_DEVICES hides (on AMD ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES) is not counted."
)]
pub struct Args {
    /// How it is written: text or json, the document that `hardware.probe` of a suite reads
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true, default_value_t = Format::Text)]
    format: Format,
    /// How long a driver or its tool may take to answer, like 5s
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "20s")]
    timeout: Duration,
}

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

fn limit(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| match &error.help {
        Some(help) => format!("{error}; {help}"),
        None => error.to_string(),
    })
}

/// Looks and prints. Hardware that is not there or does not answer is an answer.
pub fn run(args: &Args) -> Exit {
    let probe = hardware::survey(&Visible::here(), args.timeout);
    match args.format {
        Format::Text => print(&text(&probe)),
        Format::Json => print(&probe.document()),
    }
}

/// The probe for people.
fn text(probe: &Probe) -> String {
    let mut out = String::new();
    let facts = &probe.facts;
    let mut row = |key: &str, value: String| {
        if !value.is_empty() {
            // Names of processes and what tools print are foreign.
            let _ = writeln!(out, "{key:<8}  {}", sanitise::line(&value));
        }
    };
    let words = |words: &[String]| {
        let told = words.iter().filter(|word| !word.is_empty()).cloned();
        told.collect::<Vec<_>>().join(" · ")
    };
    let system = format!("{} {}", facts.os, facts.kernel);
    row("host", words(&[facts.hostname.clone(), system.trim().to_owned()]));
    row("CPU", words(&[facts.cpu.clone(), cores(facts, &probe.host)]));
    for node in &probe.host.numa {
        let cpus = format!("CPUs {}", node.cpus);
        row(&format!("NUMA {}", node.node), words(&[cpus, gibibytes(node.memory)]));
    }
    row("memory", words(&memory(facts, &probe.host)));
    if let Some(load) = probe.host.load {
        let [one, five, fifteen] = load.map(|figure| print_number(figure, 2));
        row("load", format!("{one} {five} {fifteen} (mean of 1, 5, 15 minutes)"));
    }
    let runtime = if facts.driver.is_some() || facts.cuda.is_some() {
        let driver = facts.driver.clone().unwrap_or_else(|| "version unknown".to_owned());
        words(&[driver, facts.cuda.as_ref().map(|it| runtime(facts, it)).unwrap_or_default()])
    } else {
        String::new()
    };
    row("driver", runtime);
    if facts.gpus.is_empty() {
        let why = facts.gpu_note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        row("GPU", format!("no GPU{why}"));
    } else {
        for (gpu, now) in facts.gpus.iter().zip(&probe.gpus) {
            let index = gpu.index.map(|index| index.to_string()).unwrap_or_default();
            row(&format!("GPU {index}"), words(&of_gpu(gpu, now)));
            row("", words(&right_now(gpu, now)));
            for tenant in &now.occupancy.tenants {
                row("", format!("computes: {tenant}"));
            }
            for tenant in &now.occupancy.graphics {
                row("", format!("draws: {tenant}"));
            }
        }
        row("GPUs", facts.gpu_note.clone().unwrap_or_default());
    }
    for note in &probe.notes {
        row("note", note.clone());
    }
    out
}

fn runtime(facts: &Facts, version: &str) -> String {
    // The fact is CUDA's version or ROCm's, by the make of the GPUs.
    let name = facts.gpus.first().map(|gpu| gpu.name.as_str()).unwrap_or_default();
    let amd = ["AMD", "Radeon", "Instinct"].iter().any(|make| name.contains(make));
    format!("{} {version}", if amd { "ROCm" } else { "CUDA" })
}

fn cores(facts: &Facts, host: &HostNow) -> String {
    let all = host.cores.and_then(|cores| usize::try_from(cores).ok()).unwrap_or(facts.cores);
    if all == facts.cores && host.cpu_quota.is_none() {
        return format!("{all} cores");
    }
    let mut why = Vec::new();
    if let Some(affinity) = host.affinity.filter(|cores| Some(*cores) != host.cores) {
        why.push(format!("affinity {affinity}"));
    }
    if let Some(quota) = host.cpu_quota {
        why.push(format!("quota of the container {}", print_number(quota, 2)));
    }
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
    format!("{all} cores, {} for this process{why}", facts.cores)
}

fn memory(facts: &Facts, host: &HostNow) -> [String; 3] {
    let available = host.memory_available.map(|it| format!("{} available", gibibytes(it)));
    let limit = host.memory_limit.map(|limit| {
        let used = host.memory_used.map(|used| format!(", {} used", gibibytes(used)));
        format!("limit of the container {}{}", gibibytes(limit), used.unwrap_or_default())
    });
    [gibibytes(facts.memory), available.unwrap_or_default(), limit.unwrap_or_default()]
}

/// What a GPU is.
fn of_gpu(gpu: &Gpu, now: &GpuNow) -> Vec<String> {
    let used = format!("{}, {} in use", gibibytes(gpu.memory), gibibytes(now.occupancy.used));
    let ecc = gpu.ecc.map(|on| format!("ECC {}", if on { "on" } else { "off" }));
    let links = gpu.nvlinks.map(|links| format!("{links} NVLinks"));
    let mut words = vec![gpu.full_name(), used];
    words.extend([ecc, links].into_iter().flatten());
    if gpu.mig == Some(true) {
        words.push("MIG on".to_owned());
    }
    words.extend(gpu.uuid.clone());
    words
}

/// How it is: what it reads and what is the most of it.
fn right_now(gpu: &Gpu, now: &GpuNow) -> Vec<String> {
    let of = |now: Option<String>, most: Option<String>, unit: &str| match (now, most) {
        (Some(now), Some(most)) => Some(format!("{now} of {most}{unit}")),
        (Some(now), None) => Some(format!("{now}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    let number = |value: Option<f64>| value.map(|value| print_number(value, 0));
    let clock = |now: Option<u32>, most: Option<u32>, of_what: &str| {
        let text = |clock: Option<u32>| clock.map(|clock| clock.to_string());
        of(text(now), text(most), &format!(" MHz {of_what}"))
    };
    let pcie = match (&now.pcie, &gpu.pcie) {
        (Some(now), Some(most)) if now == most => Some(format!("PCIe {most}")),
        (now, most) => of(now.clone(), most.clone(), "").map(|it| format!("PCIe {it}")),
    };
    let all = [
        of(number(now.power), number(gpu.power_limit), " W"),
        clock(now.sm_clock, gpu.max_sm_clock, "SM"),
        clock(now.memory_clock, gpu.max_memory_clock, "memory"),
        pcie,
        now.temperature.map(|celsius| format!("{} °C", print_number(celsius, 0))),
    ];
    all.into_iter().flatten().collect()
}

fn gibibytes(bytes: u64) -> String {
    format!("{} GiB", print_number(bytes as f64 / f64::from(1 << 30), 1))
}
