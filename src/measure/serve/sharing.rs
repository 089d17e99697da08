//! Sharing: how many requests of a load are worth one that stands alone.
//!
//! Requests that follow each other find the same queue and share the same steps. Taken as so many
//! witnesses, those of an engine near its capacity raise four times as many false alarms as they
//! may. How alike neighbours are is seen from the load itself: the more they have in common, the
//! more the means of consecutive batches differ. What an interval makes of it is decided in `judge`.

use std::collections::BTreeMap;

use super::{Load, Note, Sight, milliseconds, time_per_token, ttft_due};
use crate::clock::Stamp;
use crate::load::{Outcome, Trace};
use crate::measure::distribution::t_critical;
use crate::measure::{Base, observe};

/// Batches of a load: with more of them neighbours of an engine near its capacity would still be
/// alike, with fewer hardly anything could be said.
const BATCHES: usize = 6;

/// Requests that each batch needs.
const LEAST: usize = 2;

/// The level at which the spread of so few means is taken to be as wide as it may be. Intervals are
/// near it, and little depends on it.
const CAUTION: f64 = 0.05;

/// How many samples of a latency are worth one, by metric. Empty where a load was not steady or is
/// too short to tell.
pub fn sharing(loads: &[Load<'_>]) -> BTreeMap<Base, f64> {
    type Latency = fn(&Trace, &Note) -> Option<f64>;
    const LATENCIES: [(Base, Latency); 5] = [
        (Base::Ttft, |trace, _| observe::ttft(trace)),
        (Base::Tpot, |trace, _| time_per_token(trace)),
        (Base::E2eLatency, |trace, _| Some(milliseconds(trace.sent, trace.ended))),
        (Base::TtftDue, ttft_due),
        (Base::E2eLatencyDue, |trace, note| Some(milliseconds(note.due, trace.ended))),
    ];
    if !loads.iter().all(|load| load.span.steady) {
        return BTreeMap::new();
    }
    let sights: Vec<Sight<'_>> = loads.iter().filter_map(Sight::new).collect();
    let told = LATENCIES.into_iter().filter_map(|(base, of)| {
        let series: Vec<Vec<f64>> = sights.iter().map(|sight| in_order(sight, of)).collect();
        let apart = sights.iter().zip(&series).map(|(sight, of)| distinct(sight, of.len()));
        let apart = apart.fold(1.0, f64::min);
        let count = series.iter().map(Vec::len).sum::<usize>() as f64;
        let shared = (alike(&series)? / apart).max(1.0);
        Some((base, shared * caution(count / shared, series.len() * BATCHES)))
    });
    told.collect()
}

/// By how much fewer witnesses are left where their number is known from `batches` alone: an
/// interval is to be no narrower than that of the batch means.
fn caution(witnesses: f64, batches: usize) -> f64 {
    let freedom = (batches - 1) as f64;
    if witnesses - 1.0 <= freedom {
        return 1.0;
    }
    (t_critical(CAUTION, freedom) / t_critical(CAUTION, witnesses - 1.0)).powi(2)
}

/// A latency of the measured requests that ended well, in the order in which they were due.
fn in_order(sight: &Sight<'_>, of: impl Fn(&Trace, &Note) -> Option<f64>) -> Vec<f64> {
    let good = sight.measured().filter(|(trace, _)| trace.outcome == Outcome::Complete);
    let mut timed: Vec<(Stamp, f64)> =
        good.filter_map(|(trace, note)| Some((note.due, of(trace, note)?))).collect();
    timed.sort_by_key(|(due, _)| *due);
    timed.into_iter().map(|(_, value)| value).collect()
}

/// Spread of batch means against what it would be if all samples stood alone, which is 1. `None`
/// where there are too few.
fn alike(series: &[Vec<f64>]) -> Option<f64> {
    if series.is_empty() || series.iter().any(|values| values.len() < LEAST * BATCHES) {
        return None;
    }
    let total: usize = series.iter().map(Vec::len).sum();
    let mean = series.iter().flatten().sum::<f64>() / total as f64;
    let squares: f64 = series.iter().flatten().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (total - 1) as f64;
    if variance <= 0.0 {
        return Some(1.0);
    }
    let between: f64 = series
        .iter()
        .flat_map(|values| {
            let edge = |batch: usize| batch * values.len() / BATCHES;
            (0..BATCHES).map(move |batch| &values[edge(batch)..edge(batch + 1)])
        })
        .map(|batch| {
            let size = batch.len() as f64;
            size * (batch.iter().sum::<f64>() / size - mean).powi(2)
        })
        .sum();
    let freedom = (series.len() * BATCHES - 1) as f64;
    Some(between / freedom / variance)
}

/// The share of their variance that batch means show: a request that is worked on in two batches
/// has what befell it in both, which makes their means alike. For a length of x batches it is
/// 1 − x/3, beyond one batch (1 − 1/3x)/x. Waiting in the queue of an open loop is no such work.
fn distinct(sight: &Sight<'_>, count: usize) -> f64 {
    let together = if sight.load.open {
        observe::emitting(&sight.good, &sight.cut)
    } else {
        sight.seconds_in_flight() / sight.cut.length
    };
    // Those of one stream follow each other and have no step in common.
    let length = (together - 1.0).max(0.0) / (count as f64 / BATCHES as f64).max(1.0);
    if length <= 1.0 { 1.0 - length / 3.0 } else { (1.0 - 1.0 / (3.0 * length)) / length }
}
