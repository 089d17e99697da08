//! Blame: what of the telemetry may be why a cell is slow, in words with numbers.
//!
//! Pure. It decides what is a suspicion; what a suspicion leads to is a policy's, in `record::judgement`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::telemetry::{GpuTelemetry, Telemetry, Throttle};
use crate::quantity::print_number;

/// Something that was not in order with the hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Suspicion {
    /// What kind of thing.
    pub what: Suspect,
    /// The GPUs that it is about, by their place in the driver's order; none where it is the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    /// A clause with numbers: `GPU 3 throttled by heat in 62 % of the time`.
    pub words: String,
}

/// Kinds of suspicion, the worst first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Suspect {
    /// A GPU could not be asked any more.
    Lost,
    /// The driver told an error of a GPU.
    Xid,
    /// Memory errors that ECC could not correct, or very many that it did.
    Ecc,
    /// Clocks were held back by heat, the power supply or the hardware.
    Throttled,
    /// Clocks were below those of the same GPU in other cells, and not because this one takes more power.
    Clocks,
    /// Somebody else computed on a GPU.
    Foreign,
    /// The host's cores were all busy while GPUs had to be fed.
    Cpu,
    /// The host's memory was nearly full.
    Memory,
}

/// Share of the samples from which on a slowdown by heat, power supply or hardware is suspicious. Such a
/// slowdown about halves the clocks, so that less of it moves a mean by less than a hundredth.
const THROTTLED: f64 = 0.02;
/// Share of the samples in which something must have held a GPU back whose clocks are compared.
const HELD_BACK: f64 = 0.1;
/// A clock is below the others' where it is less than so much of their median. The boost clocks of one GPU
/// wander by a few steps of 15 MHz with temperature, which is one or two in a hundred.
const BELOW: f64 = 0.9;
/// Other stretches that make a median.
const PEERS: usize = 3;
/// Corrected memory errors in one stretch that are a burst. One now and then is what ECC is for.
const BURST: u64 = 10;
/// Mean share of the host's cores, in %, from which on they were saturated.
const SATURATED: f64 = 95.0;
/// Share of the host's memory from which on it is nearly full.
const NEARLY_FULL: f64 = 0.97;

/// Clock and power of each GPU in all stretches that are compared: those of the cells of one test in one
/// launch, which do the same kind of work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Peers {
    gpus: BTreeMap<u32, Known>,
}

/// Means of one GPU, each list in order.
#[derive(Debug, Clone, PartialEq, Default)]
struct Known {
    clocks: Vec<f64>,
    powers: Vec<f64>,
}

impl Peers {
    /// What these stretches have in common.
    pub fn of<'t>(stretches: impl IntoIterator<Item = &'t Telemetry>) -> Peers {
        let mut peers = Peers::default();
        for gpu in stretches.into_iter().flat_map(|one| &one.gpus) {
            let known = peers.gpus.entry(gpu.index).or_default();
            known.clocks.extend(clock(gpu));
            known.powers.extend(power(gpu));
        }
        for known in peers.gpus.values_mut() {
            known.clocks.sort_by(f64::total_cmp);
            known.powers.sort_by(f64::total_cmp);
        }
        peers
    }

    /// Whether no GPU is known.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Median clock and power of a GPU in the stretches other than its own, where there are enough.
    fn others(&self, gpu: &GpuTelemetry) -> Option<(f64, Option<f64>)> {
        let known = self.gpus.get(&gpu.index)?;
        let clock = median_without(&known.clocks, clock(gpu)?)?;
        Some((clock, power(gpu).and_then(|power| median_without(&known.powers, power))))
    }
}

fn clock(gpu: &GpuTelemetry) -> Option<f64> {
    gpu.sm_clock.as_ref().map(|series| series.mean).filter(|mean| mean.is_finite() && *mean > 0.0)
}

fn power(gpu: &GpuTelemetry) -> Option<f64> {
    gpu.power.as_ref().map(|series| series.mean).filter(|mean| mean.is_finite() && *mean > 0.0)
}

/// The median of what is left of sorted values without this one.
fn median_without(sorted: &[f64], own: f64) -> Option<f64> {
    let own = sorted.binary_search_by(|value| value.total_cmp(&own)).ok();
    let left = sorted.len() - usize::from(own.is_some());
    let at = |index: usize| sorted[index + usize::from(own.is_some_and(|own| index >= own))];
    (left >= PEERS).then(|| (at((left - 1) / 2) + at(left / 2)) / 2.0)
}

/// What was not in order in a stretch, the worst first. `peers` are the stretches that its clocks are
/// compared with, `memory` the bytes that the host has; 0 where nobody knows.
pub fn suspicions(telemetry: &Telemetry, peers: Option<&Peers>, memory: u64) -> Vec<Suspicion> {
    let mut found = Vec::new();
    let mut add = |what, gpus: &[u32], words: String| {
        found.push(Suspicion { what, gpus: gpus.to_vec(), words });
    };
    for gpu in &telemetry.gpus {
        let (own, name) = ([gpu.index], format!("GPU {}", gpu.index));
        if let Some(why) = &gpu.lost {
            add(Suspect::Lost, &own, format!("{name} was lost: {why}"));
        }
        let mut told: Vec<u64> =
            gpu.xid.iter().copied().filter(|xid| !of_a_program(*xid)).collect();
        told.sort_unstable();
        told.dedup();
        for xid in told {
            let meaning = meaning(xid).map(|it| format!(" ({it})")).unwrap_or_default();
            add(Suspect::Xid, &own, format!("{name} had an error, Xid {xid}{meaning}"));
        }
        if let Some(count) = gpu.ecc_uncorrected.filter(|count| *count > 0) {
            let errors = if count == 1 { "a memory error" } else { "memory errors" };
            let many = if count == 1 { String::new() } else { format!("{count} ") };
            add(
                Suspect::Ecc,
                &own,
                format!("{name} had {many}{errors} that ECC could not correct"),
            );
        }
        if let Some(count) = gpu.ecc_corrected.filter(|count| *count >= BURST) {
            add(Suspect::Ecc, &own, format!("{name} had {count} memory errors that ECC corrected"));
        }
    }
    throttled(telemetry, peers, &mut add);
    for gpu in &telemetry.gpus {
        if let Some(words) = below_others(gpu, peers, telemetry) {
            add(Suspect::Clocks, &[gpu.index], words);
        }
    }
    foreign(telemetry, &mut add);
    host(telemetry, memory, &mut add);
    found.sort_by_key(|suspicion| suspicion.what);
    found
}

/// Errors that NVIDIA's list of Xids puts down to the program that ran: what an engine does to itself is no
/// fault of the hardware.
fn of_a_program(xid: u64) -> bool {
    matches!(xid, 13 | 31 | 43 | 45)
}

/// The commonest of the others, as that list explains them.
fn meaning(xid: u64) -> Option<&'static str> {
    Some(match xid {
        48 => "a double bit error of its memory",
        61 | 62 => "its microcontroller halted",
        63 | 64 => "a row of its memory was replaced",
        74 => "an error of NVLink",
        79 => "it has fallen off the bus",
        92 => "many single bit errors of its memory",
        94 | 95 => "an uncorrectable error of its memory",
        119 | 120 => "its system processor does not answer",
        _ => return None,
    })
}

/// Reasons that are a fault whatever the work: a cause, and the share of the samples.
fn faults(gpu: &GpuTelemetry) -> Vec<(&'static str, f64)> {
    let share = |reason| {
        let share = gpu.throttled.get(&reason).copied().unwrap_or(0.0);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    };
    let (hot, too_hot) = (share(Throttle::ThermalSoftware), share(Throttle::ThermalHardware));
    let brake = share(Throttle::PowerBrake);
    // The driver sets this for every slowdown by hardware, also where it tells the reason.
    let unexplained = share(Throttle::HardwareSlowdown) - too_hot.max(brake);
    vec![
        (Throttle::ThermalHardware.words(), hot.max(too_hot)),
        (Throttle::PowerBrake.words(), brake),
        (Throttle::HardwareSlowdown.words(), unexplained),
    ]
}

/// A share of the samples that is worth a word: one in very few samples may be a moment between two cells.
fn is_fault(share: f64, samples: u32) -> bool {
    let samples = f64::from(samples);
    share >= THROTTLED && share * samples >= 1.5f64.min(samples) - 1e-6
}

/// The greatest share of a GPU's samples, 0 to 1, in which heat, the power supply or the hardware held its
/// clocks back.
pub fn held_back(gpu: &GpuTelemetry) -> f64 {
    faults(gpu).iter().map(|(_, share)| *share).fold(0.0, f64::max)
}

fn throttled(
    telemetry: &Telemetry,
    peers: Option<&Peers>,
    add: &mut impl FnMut(Suspect, &[u32], String),
) {
    // GPUs of one reason are told together: what heats one of eight often heats all.
    let mut by_reason: BTreeMap<&'static str, Vec<(&GpuTelemetry, f64)>> = BTreeMap::new();
    for gpu in &telemetry.gpus {
        for (reason, share) in faults(gpu) {
            if is_fault(share, telemetry.samples) {
                by_reason.entry(reason).or_default().push((gpu, share));
            }
        }
    }
    for (reason, gpus) in by_reason {
        let indices: Vec<u32> = gpus.iter().map(|(gpu, _)| gpu.index).collect();
        let most = gpus.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let up_to = if gpus.len() > 1 { "up to " } else { "" };
        let clocks = match gpus.as_slice() {
            [(gpu, _)] => peers.and_then(|peers| clocks(gpu, peers)),
            _ => None,
        };
        let clocks = clocks.map(|words| format!(" ({words})")).unwrap_or_default();
        let words =
            format!("{} {reason} in {up_to}{} of the time{clocks}", named(&indices), percent(most));
        add(Suspect::Throttled, &indices, words);
    }
}

/// `SM clock 1 305 MHz, 1 980 MHz in other cells`, where it was lower.
fn clocks(gpu: &GpuTelemetry, peers: &Peers) -> Option<String> {
    let (own, (others, _)) = (clock(gpu)?, peers.others(gpu)?);
    let mhz = |value| format!("{} MHz", print_number(value, 0));
    (own < others).then(|| format!("SM clock {}, {} in other cells", mhz(own), mhz(others)))
}

/// Whether a GPU's clocks were far below those that it had in other cells of the test, and why that is
/// suspicious.
///
/// A large batch takes more power, and a GPU at its power cap lowers its clocks for it: it has all the power
/// that it is entitled to, and its clocks are those of its work. So lower clocks count only where the driver
/// tells that something held them back and the GPU took no more power than elsewhere: then its cap was
/// lowered, its clocks set, or its group held back. A GPU that waits clocks down without a reason.
fn below_others(
    gpu: &GpuTelemetry,
    peers: Option<&Peers>,
    telemetry: &Telemetry,
) -> Option<String> {
    // That it was throttled says more, and has its clocks beside it.
    if faults(gpu).iter().any(|(_, share)| is_fault(*share, telemetry.samples)) {
        return None;
    }
    let peers = peers?;
    let (own, (others, usual)) = (clock(gpu)?, peers.others(gpu)?);
    let reasons = [Throttle::ApplicationClocks, Throttle::SyncBoost, Throttle::PowerCap];
    let (reason, _) = reasons
        .iter()
        .filter_map(|reason| Some((*reason, gpu.throttled.get(reason).copied()?)))
        .filter(|(_, share)| *share >= HELD_BACK)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let less_power = match (power(gpu), usual) {
        (Some(power), Some(usual)) => power <= usual,
        // Without power nobody can tell a lowered cap from a large batch.
        (_, _) => reason != Throttle::PowerCap,
    };
    (own < BELOW * others && less_power).then(|| {
        format!(
            "GPU {} ran {} below its clocks in other cells ({}), {}",
            gpu.index,
            percent(1.0 - own / others),
            clocks(gpu, peers).unwrap_or_default(),
            reason.words()
        )
    })
}

fn foreign(telemetry: &Telemetry, add: &mut impl FnMut(Suspect, &[u32], String)) {
    let mut by_process: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for gpu in &telemetry.gpus {
        for process in &gpu.foreign {
            by_process.entry(process).or_default().push(gpu.index);
        }
    }
    for (process, gpus) in by_process {
        add(Suspect::Foreign, &gpus, format!("{} also computed for {process}", named(&gpus)));
    }
}

fn host(telemetry: &Telemetry, memory: u64, add: &mut impl FnMut(Suspect, &[u32], String)) {
    // An engine that computes on the CPU takes all of it by design: only cores that have GPUs to feed are
    // missed where they are all busy.
    let busy = telemetry.host.cpu.as_ref().filter(|cpu| cpu.mean >= SATURATED);
    if let Some(cpu) = busy.filter(|_| telemetry.gpus.iter().any(works)) {
        let words =
            format!("the host's CPU was saturated, {} on average", percent(cpu.mean / 100.0));
        add(Suspect::Cpu, &[], words);
    }
    let memory = memory as f64;
    // Nobody uses more than there is: then the two are not of one host.
    let full = |used: f64| memory > 0.0 && (NEARLY_FULL * memory..=memory).contains(&used);
    if let Some(used) = telemetry.host.memory.as_ref().filter(|used| full(used.max)) {
        let words = format!(
            "the host's memory was nearly full, {} of {} GiB",
            print_number(used.max / f64::from(1 << 30), 1),
            print_number(memory / f64::from(1 << 30), 1)
        );
        add(Suspect::Memory, &[], words);
    }
}

/// Whether a GPU has work at all: a machine may have one that its engine does not use.
fn works(gpu: &GpuTelemetry) -> bool {
    gpu.utilisation.as_ref().is_none_or(|share| share.mean >= 1.0)
}

/// `62 %`; small shares with a digit more.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    format!("{} %", print_number(percent, if percent < 9.95 { 1 } else { 0 }))
}

/// `GPU 3`, `GPUs 0 and 3`, `GPUs 0 to 7`.
fn named(gpus: &[u32]) -> String {
    match gpus {
        [] => "no GPU".to_owned(),
        [one] => format!("GPU {one}"),
        [first, .., last] if gpus.windows(2).all(|two| two[0] + 1 == two[1]) && gpus.len() > 2 => {
            format!("GPUs {first} to {last}")
        }
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("GPUs {} and {last}", all.join(", "))
        }
    }
}

/// The first of several suspicions in one line, and how many there are besides.
pub fn told<'s>(words: impl IntoIterator<Item = &'s str>) -> String {
    const TOLD: usize = 3;
    let words: Vec<&str> = words.into_iter().collect();
    let more = words.len().saturating_sub(TOLD);
    let first = words[..words.len() - more].join("; ");
    if more > 0 { format!("{first}; and {more} more") } else { first }
}

#[cfg(test)]
mod tests;
