//! Intervals: an estimate of a metric, and how far the noise lets the truth lie from it.
//!
//! Both bounds are one-sided, each at the level asked for. How an interval is made follows from
//! what was observed: batch means and samples by Student's t, percentiles by exact binomial counts,
//! counts and single readings not at all. What a limit makes of it is decided in `limit`.

use super::{Estimate, Method};
use crate::measure::distribution::{exceedances, t_critical};
use crate::measure::quantile::{Ordered, median};
use crate::measure::{Observations, Stat};

/// Waves from which on their percentiles other than the median carry an interval.
const WAVES_FOR_PERCENTILES: usize = 30;

/// Observations that no estimate can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoData(pub String);

/// The level at which a cell that may be extended once, to twice its observations, is judged, the
/// first time and the second, so that `alpha` holds over both.
///
/// `n` is the number of observations at the first judgement. The levels are by simulation for the
/// usual `alpha`; any other, and every percentile (`counts`), gets half of it, which holds always.
pub fn level(alpha: f64, n: u64, counts: bool) -> f64 {
    // Rising with n, so that a row serves every n from its own on.
    const LEVELS: [(f64, u64, f64); 8] = [
        (0.05, 3, 0.0283),
        (0.05, 5, 0.0291),
        (0.05, 10, 0.0298),
        (0.025, 10, 0.0143),
        (0.01, 3, 0.0053),
        (0.01, 10, 0.0055),
        (0.005, 10, 0.0027),
        (0.001, 10, 0.000525),
    ];
    let known = LEVELS
        .iter()
        .rev()
        .find(|(of, least, _)| (of - alpha).abs() < 1e-12 && n >= *least && !counts);
    known.map_or(alpha / 2.0, |(_, _, level)| *level)
}

/// [`level`] for what was observed: at the first judgement, or with `extended` at the second.
pub fn levels(observed: &Observations, stat: Option<Stat>, alpha: f64, extended: bool) -> f64 {
    let (n, counts) = match observed {
        Observations::Batches { means, .. } => (means.len(), false),
        Observations::Samples(samples) => {
            (samples.len(), stat.is_some_and(|stat| stat != Stat::Mean))
        }
        Observations::Histogram(_) => (usize::MAX, stat != Some(Stat::Mean)),
        Observations::Waves(waves) => {
            (waves.len(), !matches!(stat, None | Some(Stat::Mean | Stat::P50)))
        }
        Observations::Exact(_) | Observations::Point(_) => return alpha,
    };
    level(alpha, if extended { n as u64 / 2 } else { n as u64 }, counts)
}

/// Estimates a metric, each bound one-sided at `alpha`. `stat` is the suffix of a latency; metrics
/// without one are estimated by their mean.
///
/// # Errors
/// Nothing was observed, or what was observed is no number.
pub fn estimate(
    observed: &Observations,
    stat: Option<Stat>,
    alpha: f64,
) -> Result<Estimate, NoData> {
    estimate_shared(observed, stat, alpha, 1.0)
}

/// Like [`estimate`], of samples of which so many each are one independent observation.
///
/// Streams of one batch emit together, and the tokens of one event came together: 128 streams
/// whose steps are slow are late 128 times at once. Counting them as 128 witnesses would make
/// every interval 11 times too narrow. `shared` ≥ 1 is how many samples one step makes.
///
/// # Errors
/// Nothing was observed, or what was observed is no number.
pub fn estimate_shared(
    observed: &Observations,
    stat: Option<Stat>,
    alpha: f64,
    shared: f64,
) -> Result<Estimate, NoData> {
    let found = match observed {
        Observations::Batches { rate, means, floor } => batches(*rate, means, *floor, alpha),
        Observations::Samples(values) => {
            samples(&Ordered::of(values), stat.unwrap_or(Stat::Mean), alpha, shared)?
        }
        Observations::Histogram(values) => {
            samples(&Ordered::counted(values.clone()), stat.unwrap_or(Stat::Mean), alpha, shared)?
        }
        Observations::Waves(waves) => self::waves(waves, stat.unwrap_or(Stat::Mean), alpha)?,
        Observations::Exact(value) => Estimate {
            value: *value,
            lower: Some(*value),
            upper: Some(*value),
            n: 1,
            method: Method::Exact,
        },
        Observations::Point(value) => point(*value, 1),
    };
    let numbers = [Some(found.value), found.lower, found.upper];
    if numbers.iter().flatten().all(|number| number.is_finite()) {
        Ok(found)
    } else {
        Err(NoData("what was observed is no number".to_owned()))
    }
}

fn point(value: f64, n: u64) -> Estimate {
    Estimate { value, lower: None, upper: None, n, method: Method::Point }
}

/// An estimate with a t interval around `center`, widened where need be to hold the estimate.
/// `deviation` is that of one observation.
fn around(
    value: f64,
    center: f64,
    deviation: f64,
    n: f64,
    alpha: f64,
    method: Method,
) -> Estimate {
    let bounds = (n >= 2.0).then(|| {
        let half = t_critical(alpha, n - 1.0) * deviation / n.sqrt();
        ((center - half).min(value), (center + half).max(value))
    });
    Estimate {
        value,
        lower: bounds.map(|(lower, _)| lower),
        upper: bounds.map(|(_, upper)| upper),
        n: n as u64,
        method,
    }
}

/// Batches without spread are no proof of a rate without noise: one token more or less in each
/// would not show, so that much is assumed at least.
fn batches(rate: f64, means: &[f64], floor: f64, alpha: f64) -> Estimate {
    let deviation = Ordered::of(means).deviation().unwrap_or(0.0).max(floor);
    around(rate, rate, deviation, means.len() as f64, alpha, Method::BatchMeans)
}

fn samples(ordered: &Ordered, stat: Stat, alpha: f64, shared: f64) -> Result<Estimate, NoData> {
    let nothing = || NoData("no sample".to_owned());
    let mean = ordered.mean().ok_or_else(nothing)?;
    if !ordered.finite() {
        return Err(NoData("a sample is no number".to_owned()));
    }
    let witnesses = (ordered.total() as f64 / shared.max(1.0)).floor().max(1.0);
    let deviation = ordered.deviation().unwrap_or(0.0);
    let by_t = |value| around(value, mean, deviation, witnesses, alpha, Method::StudentT);
    let Some(percent) = stat.percent() else {
        return match stat {
            // The greatest value seen is a fact of this window, without an interval.
            Stat::Max => Ok(point(ordered.max().ok_or_else(nothing)?, ordered.total())),
            Stat::Mean | Stat::P50 | Stat::P90 | Stat::P95 | Stat::P99 => Ok(by_t(mean)),
        };
    };
    let counted = by_counts(ordered, percent, alpha, witnesses as u64).ok_or_else(nothing)?;
    if stat == Stat::P50 && (counted.lower.is_none() || counted.upper.is_none()) {
        // Fewer samples than a median can be proven with (5 at .05): the noise of a prefill is
        // taken to be symmetric, where the interval of the mean is one of the median.
        return Ok(by_t(counted.value));
    }
    Ok(counted)
}

/// A percentile by exact binomial counts, of samples worth `witnesses` independent ones.
fn by_counts(ordered: &Ordered, percent: u32, alpha: f64, witnesses: u64) -> Option<Estimate> {
    let n = ordered.total();
    let counts = exceedances(witnesses, percent, alpha);
    // Ranks among the witnesses become ranks among the samples, rounded outwards.
    let scaled = |rank: u64, up: bool| {
        let product = u128::from(rank) * u128::from(n);
        let witnesses = u128::from(witnesses.max(1));
        u64::try_from(if up { product.div_ceil(witnesses) } else { product / witnesses }).ok()
    };
    // At most s samples lie above the sample of rank n − s; at least s lie at or above that of
    // rank n − s + 1.
    let upper = counts.proven_below.and_then(|s| scaled(witnesses - s, true));
    let lower = counts.proven_above.and_then(|s| scaled(witnesses - s, false)).map(|rank| rank + 1);
    Some(Estimate {
        value: ordered.percentile(percent)?,
        lower: lower.and_then(|rank| ordered.at(rank)),
        upper: upper.and_then(|rank| ordered.at(rank)),
        n: witnesses,
        method: Method::Binomial,
    })
}

/// The requests of a wave share their steps, so a wave is one observation.
fn waves(waves: &[Vec<f64>], stat: Stat, alpha: f64) -> Result<Estimate, NoData> {
    let told: Vec<Ordered> =
        waves.iter().filter(|wave| !wave.is_empty()).map(|wave| Ordered::of(wave)).collect();
    let all = Ordered::of(&waves.concat());
    let nothing = || NoData("no wave of requests had a first token".to_owned());
    if !all.finite() {
        return Err(NoData("a sample is no number".to_owned()));
    }
    let n = told.len() as f64;
    let over_waves = |value: f64, of: Vec<f64>| {
        let of = Ordered::of(&of);
        let center = of.mean().unwrap_or(value);
        around(value, center, of.deviation().unwrap_or(0.0), n, alpha, Method::StudentT)
    };
    match stat {
        Stat::P50 => {
            let medians = waves.iter().filter_map(|wave| median(wave)).collect();
            Ok(over_waves(all.percentile(50).ok_or_else(nothing)?, medians))
        }
        Stat::Mean => {
            let means = told.iter().filter_map(Ordered::mean).collect();
            Ok(over_waves(all.mean().ok_or_else(nothing)?, means))
        }
        Stat::Max => Ok(point(all.max().ok_or_else(nothing)?, told.len() as u64)),
        Stat::P90 | Stat::P95 | Stat::P99 => {
            let percent = stat.percent().unwrap_or(100);
            let counted =
                by_counts(&all, percent, alpha, told.len() as u64).ok_or_else(nothing)?;
            // Few waves can't carry a tail: the value is shown, and without an interval it never
            // proves a failure.
            let carried = told.len() >= WAVES_FOR_PERCENTILES;
            Ok(if carried { counted } else { Estimate { lower: None, upper: None, ..counted } })
        }
    }
}

/// The value of a metric alone, for tables.
pub fn value(observed: &Observations, stat: Option<Stat>) -> Option<f64> {
    let ordered = match observed {
        Observations::Batches { rate, .. } => return Some(*rate),
        Observations::Exact(value) | Observations::Point(value) => return Some(*value),
        Observations::Samples(values) => Ordered::of(values),
        Observations::Histogram(values) => Ordered::counted(values.clone()),
        Observations::Waves(waves) => Ordered::of(&waves.concat()),
    };
    match stat.unwrap_or(Stat::Mean) {
        Stat::Mean => ordered.mean(),
        Stat::Max => ordered.max(),
        stat @ (Stat::P50 | Stat::P90 | Stat::P95 | Stat::P99) => {
            stat.percent().and_then(|percent| ordered.percentile(percent))
        }
    }
}
