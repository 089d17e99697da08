//! Joining: what was seen in several launches of a cell, as if their windows had followed one another.

use std::collections::BTreeMap;

use super::line::{condensed, rounded};
use super::{GpuTelemetry, HostTelemetry, POINTS, Series, Telemetry};

/// The telemetry of several launches, in their order; `None` of none.
///
/// Energy is that of all only where each tells it. What is said in words says in which launch.
pub fn join(all: &[&Telemetry]) -> Option<Telemetry> {
    let (first, rest) = all.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let mut gpus: BTreeMap<u32, Vec<(usize, &Telemetry, &GpuTelemetry)>> = BTreeMap::new();
    for (launch, one) in (1..).zip(all) {
        for gpu in &one.gpus {
            gpus.entry(gpu.index).or_default().push((launch, one, gpu));
        }
    }
    let mut notes: Vec<String> = Vec::new();
    for note in all.iter().flat_map(|one| &one.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    let of_host = |of: fn(&HostTelemetry) -> Option<&Series>| {
        series(all.iter().map(|one| (one.seconds, of(&one.host))))
    };
    Some(Telemetry {
        seconds: rounded(all.iter().map(|one| one.seconds).sum(), 9),
        samples: all.iter().map(|one| one.samples).sum(),
        gpus: gpus.into_values().map(|each| gpu(&each, all.len())).collect(),
        host: HostTelemetry {
            cpu: of_host(|host| host.cpu.as_ref()),
            memory: of_host(|host| host.memory.as_ref()),
        },
        notes,
    })
}

/// One GPU in the launches that it was seen in, of so many.
fn gpu(each: &[(usize, &Telemetry, &GpuTelemetry)], count: usize) -> GpuTelemetry {
    let of = |of: fn(&GpuTelemetry) -> Option<&Series>| {
        series(each.iter().map(|(_, one, gpu)| (one.seconds, of(gpu))))
    };
    let in_launch =
        |launch: usize, words: &String| format!("in launch {launch} of {count}: {words}");
    let (_, _, first) = each[0];
    let energy: Option<f64> = each.iter().map(|(_, _, gpu)| gpu.energy).sum();
    let whole: f64 = each.iter().map(|(_, one, _)| one.seconds).sum();
    let mut throttled = BTreeMap::new();
    for (_, one, gpu) in each {
        for (reason, share) in &gpu.throttled {
            *throttled.entry(*reason).or_insert(0.0) += share * one.seconds;
        }
    }
    throttled.values_mut().for_each(|share| *share = rounded(*share / whole.max(1e-9), 4));
    let mut xid: Vec<u64> = each.iter().flat_map(|(_, _, gpu)| gpu.xid.iter().copied()).collect();
    xid.sort_unstable();
    xid.dedup();
    let counted = |of: fn(&GpuTelemetry) -> Option<u64>| {
        each.iter().filter_map(|(_, _, gpu)| of(gpu)).reduce(u64::saturating_add)
    };
    let foreign = each
        .iter()
        .flat_map(|(launch, _, gpu)| gpu.foreign.iter().map(|words| in_launch(*launch, words)));
    GpuTelemetry {
        index: first.index,
        name: first.name.clone(),
        energy: energy.map(|joules| rounded(joules, 12)),
        power: of(|gpu| gpu.power.as_ref()),
        utilisation: of(|gpu| gpu.utilisation.as_ref()),
        memory: of(|gpu| gpu.memory.as_ref()),
        sm_clock: of(|gpu| gpu.sm_clock.as_ref()),
        memory_clock: of(|gpu| gpu.memory_clock.as_ref()),
        temperature: of(|gpu| gpu.temperature.as_ref()),
        throttled,
        ecc_corrected: counted(|gpu| gpu.ecc_corrected),
        ecc_uncorrected: counted(|gpu| gpu.ecc_uncorrected),
        xid,
        foreign: foreign.collect(),
        lost: each
            .iter()
            .find_map(|(launch, _, gpu)| gpu.lost.as_ref().map(|words| in_launch(*launch, words))),
    }
}

/// One series behind the other, each as long as its launch's window.
fn series<'a>(each: impl Iterator<Item = (f64, Option<&'a Series>)> + Clone) -> Option<Series> {
    let known = each.clone().filter_map(|(seconds, series)| Some((seconds, series?)));
    let whole: f64 = known.clone().map(|(seconds, _)| seconds).sum();
    let min = known.clone().map(|(_, series)| series.min).reduce(f64::min)?;
    let max = known.clone().map(|(_, series)| series.max).reduce(f64::max)?;
    let mean = known.clone().map(|(seconds, series)| seconds * series.mean).sum::<f64>()
        / whole.max(f64::MIN_POSITIVE);
    // The points as steps over their part of the time, cut anew.
    let count = known.clone().map(|(_, series)| series.points.len()).sum::<usize>();
    let count = count.clamp(1, POINTS);
    let width = whole / count as f64;
    let mut sums = vec![0.0; count];
    let mut begin = 0.0;
    for (seconds, series) in known {
        let step = seconds / series.points.len().max(1) as f64;
        for point in &series.points {
            let end = begin + step;
            let last = ((end / width) as usize).min(count - 1);
            for (bin, sum) in
                sums.iter_mut().enumerate().take(last + 1).skip((begin / width) as usize)
            {
                let right = if bin + 1 == count { end } else { (bin + 1) as f64 * width };
                let overlap = end.min(right) - (begin.max(bin as f64 * width));
                *sum += overlap.max(0.0) * f64::from(*point);
            }
            begin = end;
        }
    }
    let points = sums.into_iter().map(|sum| rounded(sum / width.max(f64::MIN_POSITIVE), 4) as f32);
    let mean = rounded(mean, 6);
    Some(Series {
        min: min.min(mean),
        mean,
        max: max.max(mean),
        points: condensed(points.collect()),
    })
}
