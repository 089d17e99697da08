//! The fold: what readings come to over the stretches that a cell was measured in.
//!
//! Several stretches count as one, put end to end.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Line, Stretch, length, rounded};
use super::reading::{GpuLog, HostReading, Reading, Readings, Sighting};
use super::{GpuTelemetry, HostTelemetry, Telemetry, Throttle};
use crate::clock::Stamp;

/// Energy is told where the power is known for this share of the time.
const KNOWN: f64 = 0.9;
/// A driver's counter of energy is believed where it is within this factor of the integral of the power.
const FACTOR: f64 = 2.0;
/// Shares of processor time are taken over no less than so many seconds: ticks are coarse.
const LEAST_STEP: f64 = 0.1;

/// Whose the processes on the GPUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The engine is started here: what came until it was ready may be its own. Before its start the GPUs had
    /// been looked at.
    Started {
        /// When it was ready.
        ready: Stamp,
    },
    /// The engine was running already: whatever was there at that time may be its own.
    Running {
        /// When the cell began.
        since: Stamp,
    },
}

/// What was seen over the stretches, which are in the order of their time and don't overlap.
pub fn fold(
    gpus: &[GpuLog],
    host: &Readings<HostReading>,
    whose: Whose,
    stretches: &[Stretch],
) -> Telemetry {
    let own_seen = own_seen(gpus, whose);
    let told: Vec<GpuTelemetry> =
        gpus.iter().map(|log| of_gpu(log, whose, own_seen, stretches)).collect();
    let within = |at: Stamp| stretches.iter().any(|(from, to)| at >= *from && at <= *to);
    let of_gpus =
        gpus.iter().map(|log| log.readings.iter().filter(|reading| within(reading.at)).count());
    let of_host = host.iter().filter(|reading| within(reading.at)).count();
    let samples = of_gpus.max().unwrap_or(of_host);
    Telemetry {
        seconds: (stretches.iter().copied().map(length).sum::<f64>() * 1e6).round() / 1e6,
        samples: u32::try_from(samples).unwrap_or(u32::MAX),
        gpus: told,
        host: of_the_host(host, stretches),
        notes: Vec::new(),
    }
}

fn of_gpu(log: &GpuLog, whose: Whose, own_seen: bool, stretches: &[Stretch]) -> GpuTelemetry {
    let lost = log.lost.as_ref().filter(|(at, _)| stretches.iter().any(|(_, to)| at <= to));
    let end = lost.map(|(at, _)| *at);
    let power = log.readings.iter().filter_map(|reading| Some((reading.at, reading.power?)));
    let power = Line::through(stretches, power, end);
    let held = |of: fn(&Reading) -> Option<f64>| {
        let values =
            log.readings.iter().filter_map(move |reading| Some((reading.at, of(reading)?)));
        Line::held(stretches, values, end).series()
    };
    let energy = energy(&power, &log.readings, stretches).filter(|_| lost.is_none());
    GpuTelemetry {
        index: log.index,
        name: log.name.clone(),
        energy: energy.map(milli),
        power: power.series(),
        utilisation: held(|reading| reading.utilisation.map(f64::from)),
        memory: held(|reading| reading.memory.map(|bytes| bytes as f64)),
        sm_clock: held(|reading| reading.sm_clock.map(f64::from)),
        memory_clock: held(|reading| reading.memory_clock.map(f64::from)),
        temperature: held(|reading| reading.temperature.map(f64::from)),
        throttled: throttled(&log.readings, stretches),
        ecc_corrected: growth(&log.readings, stretches, |reading| reading.ecc_corrected),
        ecc_uncorrected: growth(&log.readings, stretches, |reading| reading.ecc_uncorrected),
        xid: told_errors(log, stretches),
        foreign: foreign(log, whose, own_seen, stretches),
        lost: lost.map(|(_, why)| why.clone()),
    }
}

/// Joules: by the driver's counter where it tells both ends of each stretch, else the integral of the power.
fn energy(power: &Line, readings: &Readings<Reading>, stretches: &[Stretch]) -> Option<f64> {
    let integral = (power.seconds() > 0.0 && power.known() >= KNOWN * power.seconds())
        .then(|| power.area() * power.seconds() / power.known());
    match counted(readings, stretches) {
        // A counter that stands still, or is of something else, is no counter.
        Some(counted) => match integral {
            Some(integral) if !(integral / FACTOR..=integral * FACTOR).contains(&counted) => {
                Some(integral)
            }
            Some(_) | None => Some(counted),
        },
        None => integral,
    }
}

/// How much the counter of energy has grown; `None` where it does not tell, or began anew.
fn counted(readings: &Readings<Reading>, stretches: &[Stretch]) -> Option<f64> {
    let counts = || readings.iter().filter_map(|it| Some((it.at, it.energy?)));
    let at = |stamp: Stamp| {
        let before = counts().take_while(|(at, _)| *at <= stamp).last()?;
        let after = counts().find(|(at, _)| *at >= stamp)?;
        let span = after.0.seconds_since(before.0);
        let share = if span > 0.0 { stamp.seconds_since(before.0) / span } else { 0.0 };
        Some((before.1 + (after.1 - before.1) * share, after.1 < before.1))
    };
    let mut sum = 0.0;
    for (from, to) in stretches {
        let (begin, end) = (at(*from)?, at(*to)?);
        let grown = end.0 - begin.0;
        if begin.1 || end.1 || grown < 0.0 {
            return None;
        }
        sum += grown;
    }
    (sum > 0.0).then_some(sum)
}

/// For which share of the time clocks were held back, by reason: each reading speaks for the time until the
/// next one.
fn throttled(readings: &Readings<Reading>, stretches: &[Stretch]) -> BTreeMap<Throttle, f64> {
    let known: Vec<_> = readings.iter().filter_map(|it| Some((it.at, it.throttled?))).collect();
    let mut whole = 0.0;
    let mut held: BTreeMap<Throttle, f64> = BTreeMap::new();
    for (from, to) in stretches.iter().copied() {
        for (at, (begin, reasons)) in known.iter().enumerate() {
            let begin = if at == 0 { from } else { (*begin).max(from) };
            let end = known.get(at + 1).map_or(to, |next| next.0).min(to);
            let seconds = end.seconds_since(begin);
            if seconds > 0.0 {
                whole += seconds;
                for reason in Throttle::ALL.into_iter().filter(|reason| reasons.has(*reason)) {
                    *held.entry(reason).or_default() += seconds;
                }
            }
        }
    }
    held.into_iter().map(|(reason, seconds)| (reason, rounded(seconds / whole, 4))).collect()
}

/// By how much a counter has grown between the readings that enclose each stretch; what began anew counts from
/// zero.
fn growth(
    readings: &Readings<Reading>,
    stretches: &[Stretch],
    of: impl Fn(&Reading) -> Option<u64>,
) -> Option<u64> {
    let counts: Vec<_> = readings.iter().filter_map(|it| Some((it.at, of(it)?))).collect();
    if counts.is_empty() {
        return None;
    }
    let grown = stretches.iter().map(|(from, to)| {
        let begin = counts.partition_point(|(at, _)| at <= from).saturating_sub(1);
        let end = counts.partition_point(|(at, _)| at < to).min(counts.len() - 1);
        let steps = counts[begin..=end.max(begin)].windows(2);
        steps.map(|pair| pair[1].1.checked_sub(pair[0].1).unwrap_or(pair[1].1)).sum::<u64>()
    });
    Some(grown.sum())
}

/// The errors told in the stretches: by the first reading behind a stretch, since that is when one in it may
/// have been heard of.
fn told_errors(log: &GpuLog, stretches: &[Stretch]) -> Vec<u64> {
    let told = |(from, to): &Stretch| {
        let heard = log.readings.iter().map(|reading| reading.at).find(|at| at >= to);
        let lost = log.lost.as_ref().map(|(at, _)| *at);
        let until = heard.or(lost).unwrap_or(*to).max(*to);
        let within = log.xid.iter().filter(move |(at, _)| at > from && *at <= until);
        within.map(|(_, number)| *number).collect::<Vec<_>>()
    };
    let numbers: BTreeSet<u64> = stretches.iter().flat_map(told).collect();
    numbers.into_iter().collect()
}

/// Whether the driver names processes that descend from this program: then those of the engine are known
/// by that, and need not be guessed at.
fn own_seen(gpus: &[GpuLog], whose: Whose) -> bool {
    let mut all = gpus.iter().flat_map(|log| &log.sightings);
    match whose {
        Whose::Started { .. } => all.any(|seen| seen.ours),
        Whose::Running { .. } => false,
    }
}

fn is_foreign(seen: &Sighting, whose: Whose, own_seen: bool) -> bool {
    if seen.ours {
        return false;
    }
    match whose {
        // In a container the driver may number processes as the host does; an engine in a container
        // descends from nobody here.
        Whose::Started { ready } => {
            let came_with_it = seen.first > Stamp(0) && seen.first <= ready;
            let hidden = seen.tenant.name.is_none();
            !(came_with_it && (hidden || !own_seen))
        }
        Whose::Running { since } => seen.first > since,
    }
}

fn foreign(log: &GpuLog, whose: Whose, own_seen: bool, stretches: &[Stretch]) -> Vec<String> {
    let heard = |to: Stamp| {
        log.readings.iter().map(|reading| reading.at).find(|at| *at >= to).unwrap_or(to)
    };
    let there = |seen: &&Sighting| {
        stretches.iter().any(|(from, to)| seen.last >= *from && seen.first <= heard(*to))
    };
    let all = log.sightings.iter().filter(there);
    let others = all.filter(|seen| is_foreign(seen, whose, own_seen));
    others.map(|seen| seen.tenant.to_string()).collect()
}

fn of_the_host(readings: &Readings<HostReading>, stretches: &[Stretch]) -> HostTelemetry {
    let memory = readings.iter().filter_map(|reading| Some((reading.at, reading.memory? as f64)));
    HostTelemetry {
        cpu: Line::of_steps(stretches, &busy(readings)).series(),
        memory: Line::through(stretches, memory, None).series(),
    }
}

/// How busy what may be used was between readings, in %: the cores, or the container where its limit is nearer.
fn busy(readings: &Readings<HostReading>) -> Vec<(Stamp, Stamp, f64)> {
    let mut steps: Vec<(Stamp, Stamp, f64)> = Vec::new();
    let mut known = readings.iter();
    let Some(mut before) = known.next() else { return steps };
    for now in known {
        let seconds = now.at.seconds_since(before.at);
        if seconds < LEAST_STEP {
            continue;
        }
        let cores = before.cores.zip(now.cores).and_then(|(before, now)| {
            let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
            Some(now.busy.saturating_sub(before.busy) as f64 / all as f64)
        });
        let container = before.container.zip(now.container).and_then(|(before, now)| {
            let share = (now.seconds - before.seconds) / seconds / now.cores;
            Some(share).filter(|share| share.is_finite() && *share >= 0.0)
        });
        if let Some(share) = cores.into_iter().chain(container).reduce(f64::max) {
            steps.push((before.at, now.at, rounded(100.0 * share.min(1.0), 4)));
        }
        before = now;
    }
    steps
}

fn milli(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
