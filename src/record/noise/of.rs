//! What the launches of a calibrated cell come to: one metric's spread over them, and how much of it
//! each launch could tell by itself.

use super::{LEAST_LAUNCHES, NoiseLine};
use crate::judge::ratio::moments;
use crate::measure::{Base, Metric, Observations};
use crate::record::baseline::value;
use crate::record::judgement::error_within;
use crate::record::run_record::{Measurement, PlannedCellRecord};
use crate::suite::model::Policy;

/// The least spread that a line tells. Launches that agree more closely agree by chance, or their value has
/// no more digits; by a spread of 0 every difference would be proven.
pub const LEAST_SPREAD: f64 = 1e-4;

/// Launches of one cell.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    /// The cell.
    pub cell: &'a PlannedCellRecord,
    /// What each launch gave.
    pub launches: &'a [&'a Measurement],
    /// The policy of the run.
    pub policy: &'a Policy,
    /// What divides the per-GPU metrics.
    pub gpus: u32,
    /// The calibration.
    pub run: &'a str,
}

/// The noise of a metric. `None` where it has none to tell: a count that is what it is, a value of which
/// there is no logarithm, one that not every launch has, or too few launches.
pub fn figures(of: Figures<'_>, metric: Metric) -> Option<NoiseLine> {
    let Figures { cell, launches, policy, gpus, run } = of;
    let observed: Option<Vec<&Observations>> =
        launches.iter().map(|one| one.observations.get(&metric.base)).collect();
    let observed = observed.filter(|it| it.len() >= LEAST_LAUNCHES)?;
    if observed.iter().all(|one| matches!(one, Observations::Exact(_))) {
        return None;
    }
    let values: Option<Vec<f64>> = launches.iter().map(|one| value(one, metric, gpus)).collect();
    let values = values.filter(|values| values.iter().all(|value| *value > 0.0))?;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let (_, squares) = moments(&logarithms);
    let sd = (squares / (values.len() - 1) as f64).sqrt();
    let errors: Option<Vec<f64>> =
        launches.iter().map(|one| error_within(cell, one, policy, gpus, metric)).collect();
    let within = errors.map(|errors| {
        (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt()
    });
    let entry = metric.base.entry();
    Some(NoiseLine {
        test: cell.test.clone(),
        variant: cell.variant.clone(),
        cell: cell.id.clone(),
        metric: metric.to_string(),
        unit: entry.unit.to_owned(),
        run: run.to_owned(),
        sd: sd.max(LEAST_SPREAD),
        df: (values.len() - 1) as u32,
        within,
        between: within.map(|within| (sd * sd - within * within).max(0.0).sqrt()),
        lag: mean(launches.iter().filter_map(|one| lag_one(batches(one, metric.base)?))),
        window: mean(launches.iter().filter_map(|one| window(one))),
        values,
    })
}

/// The batches that tell the noise of a metric within its window: of a time per token those of the rate of
/// a request.
fn batches(launch: &Measurement, base: Base) -> Option<&[f64]> {
    let of = if base == Base::Tpot { Base::PerRequestThroughput } else { base };
    match launch.observations.get(&of)? {
        Observations::Batches { means, .. } => Some(means),
        Observations::Samples(_)
        | Observations::Histogram(_)
        | Observations::Waves(_)
        | Observations::Told(_)
        | Observations::Exact(_)
        | Observations::Point(_) => None,
    }
}

fn window(launch: &Measurement) -> Option<f64> {
    match launch.observations.get(&Base::MeasuredTime)? {
        Observations::Exact(seconds) => Some(*seconds),
        Observations::Batches { .. }
        | Observations::Samples(_)
        | Observations::Histogram(_)
        | Observations::Waves(_)
        | Observations::Told(_)
        | Observations::Point(_) => None,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Lag-1 correlation of a series about its mean: the sum of the products of neighbours over that of the
/// squares. 0 of a series without spread; `None` of fewer than two values.
///
/// Of b independent values it is −1/b on average.
pub fn lag_one(series: &[f64]) -> Option<f64> {
    if series.len() < 2 {
        return None;
    }
    let (mean, squares) = moments(series);
    let neighbours = series.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum::<f64>();
    Some(if squares > 0.0 { neighbours / squares } else { 0.0 })
}
