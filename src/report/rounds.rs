//! Several launches of a cell: how many have been measured, what each of them gave, how far they lie apart.

use crate::judge::interval;
use crate::judge::paired::{Order, Pair, log_ratios, order};
use crate::measure::Metric;
use crate::record::RunRecord;
use crate::record::judgement::estimated;
use crate::record::run_record::{
    CellOutcome, CellState, Measurement, PlannedCellRecord, VariantRecord,
};

use super::count::plural;
use super::figure;

/// How many launches of a cell have figures.
pub fn measured(outcome: &CellOutcome) -> usize {
    outcome.rounds.iter().filter(|round| matches!(round.state, CellState::Measured(_))).count()
}

/// Of a cell that is not whole yet how much of it there is: `2 of 4 launches measured`.
pub fn partial(outcome: &CellOutcome) -> Option<String> {
    let measured = measured(outcome);
    let waits = matches!(outcome.state, CellState::NotRun { .. });
    (waits && measured > 0)
        .then(|| format!("{measured} of {} measured", plural(outcome.rounds.len(), "launch")))
}

/// What each launch of a cell gave of a metric, in their order; empty of a cell that is measured once.
pub fn values(record: &RunRecord, cell: usize, metric: Metric) -> Vec<Option<f64>> {
    let (planned, outcome) = (&record.header.cells[cell], &record.cells[cell]);
    let states = outcome.rounds.iter().map(|round| &round.state);
    states.map(|state| value(record, planned, figures(state)?, metric)).collect()
}

fn figures(state: &CellState) -> Option<&Measurement> {
    match state {
        CellState::Measured(measurement) => Some(measurement),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
    }
}

/// What one launch gave: what it is judged by, else what would be shown of it.
fn value(
    record: &RunRecord,
    planned: &PlannedCellRecord,
    measurement: &Measurement,
    metric: Metric,
) -> Option<f64> {
    let gpus = record.header.launches.get(planned.launch).map_or(1, |launch| launch.gpus);
    let judged = estimated(planned, measurement, &record.header.policy, gpus, metric);
    let shown = || {
        let observations = measurement.observations.get(&metric.base)?;
        interval::value(observations, metric.stat).filter(|_| !metric.per_gpu)
    };
    judged.map(|estimate| estimate.value).or_else(shown).filter(|value| value.is_finite())
}

/// `3 launches ±0.8 %`: how many have been measured, and half the distance of the least from the
/// greatest as a share of their mean; `2 of 4 launches` of a cell that is not whole. None of one that is
/// measured once.
pub fn spread(record: &RunRecord, cell: usize, metric: Metric) -> Option<String> {
    let outcome = &record.cells[cell];
    let all = outcome.rounds.len();
    if all == 0 {
        return None;
    }
    if partial(outcome).is_some() {
        return Some(format!("{} of {}", measured(outcome), plural(all, "launch")));
    }
    figure::measurement(outcome)?;
    let half = half(record, cell, metric).map(|half| format!(" {half}"));
    Some(format!("{}{}", plural(all, "launch"), half.unwrap_or_default()))
}

/// The same where the number of launches is told elsewhere: `±0.8 %`, `2 of 4`.
pub fn short(record: &RunRecord, cell: usize, metric: Metric) -> Option<String> {
    let outcome = &record.cells[cell];
    match partial(outcome) {
        Some(_) => Some(format!("{} of {}", measured(outcome), outcome.rounds.len())),
        None => half(record, cell, metric),
    }
}

/// How many launches cells are measured in, where it is the same number for all, and not one.
pub fn alike(record: &RunRecord, cells: impl Iterator<Item = usize>) -> Option<String> {
    let mut counts: Vec<usize> = cells.map(|cell| record.cells[cell].rounds.len()).collect();
    counts.dedup();
    match counts.as_slice() {
        [n] if *n > 0 => Some(plural(*n, "launch")),
        _ => None,
    }
}

/// `±0.8 %`.
fn half(record: &RunRecord, cell: usize, metric: Metric) -> Option<String> {
    let values: Vec<f64> = values(record, cell, metric).into_iter().flatten().collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let half = (high - low) / 2.0 / mean.abs() * 100.0;
    Some(format!("±{} %", figure::column(half, if half < 9.95 { 1 } else { 0 })))
}

/// One pair of launches of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// Which was measured first.
    pub order: Order,
    /// What the variant that is held against gave.
    pub baseline: Option<f64>,
    /// What the cell gave.
    pub candidate: Option<f64>,
    /// The logarithm of their ratio.
    pub log_ratio: Option<f64>,
}

/// The pairs of a cell with the same cell of another variant; none where they are no pairs.
pub fn pairs(
    record: &RunRecord,
    cell: usize,
    variant: &VariantRecord,
    metric: Metric,
) -> Vec<Paired> {
    let twin = variant.paired.then(|| record.twin(cell, &variant.name)).flatten();
    let Some(twin) = twin else { return Vec::new() };
    let (own, theirs) = (values(record, cell, metric), values(record, twin, metric));
    let both = (0..).map(order).zip(theirs.into_iter().zip(own));
    let paired = both.map(|(order, (baseline, candidate))| {
        let pair = baseline.zip(candidate).map(|(baseline, candidate)| {
            let ratios = log_ratios(&[Pair { order, baseline, candidate }]);
            ratios.ok().and_then(|ratios| ratios.first().map(|(_, ratio)| *ratio))
        });
        Paired { order, baseline, candidate, log_ratio: pair.flatten() }
    });
    paired.collect()
}

/// The metrics of a cell whose values by launch are worth telling: what its test is for, then what
/// something is expected of.
pub fn told(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Vec<Metric> {
    let first = figure::headline(planned.kind, std::iter::once((planned, outcome))).first;
    let mut metrics = vec![first];
    for bound in planned.bounds.iter().filter(|bound| bound.bound.is_some()) {
        if !metrics.contains(&bound.metric) {
            metrics.push(bound.metric);
        }
    }
    metrics
}

/// A line for each of these metrics: `by launch, output-throughput tok/s: 7 302 · 7 290 · —`; none of a
/// cell that is measured once.
pub fn lines(record: &RunRecord, cell: usize) -> Vec<String> {
    let (planned, outcome) = (&record.header.cells[cell], &record.cells[cell]);
    if measured(outcome) == 0 {
        return Vec::new();
    }
    let line = |metric: Metric| {
        let values = values(record, cell, metric);
        let number = |value: &Option<f64>| match value {
            Some(value) => crate::record::wording::number(*value),
            None => "—".to_owned(),
        };
        let shown: Vec<String> = values.iter().map(number).collect();
        let unit = metric.base.entry().unit;
        let blank = if unit.is_empty() { "" } else { " " };
        values
            .iter()
            .any(Option::is_some)
            .then(|| format!("by launch, {metric}{blank}{unit}: {}", shown.join(" · ")))
    };
    let lines = told(planned, outcome).into_iter().filter_map(line);
    lines.map(|text| super::sanitise::line(&text)).collect()
}
