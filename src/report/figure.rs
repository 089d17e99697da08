//! Figures of a cell as reports show them: a value for each metric and statistic, with its unit.
//!
//! Where a bound was judged, the figure is the estimate that was judged; elsewhere it is computed
//! here from the recorded observations, by the same definitions (nearest rank, waves as units). It
//! judges nothing.

use crate::measure::metric::CATALOGUE;
use crate::measure::{Base, Metric, Observations, Stat, TestKind};
use crate::quantity::print_number;
use crate::record::run_record::{CellOutcome, CellState, Measurement, PlannedCellRecord};

/// One figure of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Which metric.
    pub metric: Metric,
    /// Its value in the metric's unit.
    pub value: f64,
}

impl Figure {
    /// Value and unit for people: `7 302 tok/s`.
    pub fn text(&self) -> String {
        let unit = self.metric.base.entry().unit;
        let number = print_number(self.value, decimals(self.value));
        if unit.is_empty() { number } else { format!("{number} {unit}") }
    }
}

/// The figures of a cell's measurement, if it has any.
pub fn measurement(outcome: &CellOutcome) -> Option<&Measurement> {
    match &outcome.state {
        CellState::Measured(measurement) => Some(measurement),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
    }
}

/// All figures of a cell in the catalogue's order. A percentile that the samples can't carry is
/// left out.
pub fn all(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Vec<Figure> {
    let Some(measured) = measurement(outcome) else { return Vec::new() };
    let mut figures = Vec::new();
    for entry in &CATALOGUE {
        let Some(observations) = measured.observations.get(&entry.base) else { continue };
        let stats: Vec<Option<Stat>> = if entry.latency {
            let n = observations.len();
            Stat::ALL.iter().filter(|stat| carried(**stat, n)).map(|stat| Some(*stat)).collect()
        } else {
            vec![None]
        };
        for stat in stats {
            let metric = Metric { base: entry.base, stat, per_gpu: false };
            figures.extend(one(planned, outcome, metric));
        }
        let per_gpu = Metric { base: entry.base, stat: None, per_gpu: true };
        figures.extend(estimate(planned, outcome, per_gpu));
    }
    figures.retain(|figure| figure.value.is_finite());
    figures
}

/// One figure of a cell: the judged estimate, else what the observations say.
pub fn one(planned: &PlannedCellRecord, outcome: &CellOutcome, metric: Metric) -> Option<Figure> {
    estimate(planned, outcome, metric).or_else(|| {
        let observations = measurement(outcome)?.observations.get(&metric.base)?;
        let value = observations.value(metric.stat)?;
        (!metric.per_gpu).then_some(Figure { metric, value })
    })
}

fn estimate(planned: &PlannedCellRecord, outcome: &CellOutcome, metric: Metric) -> Option<Figure> {
    let judged = planned.bounds.iter().zip(&outcome.judgement.bounds);
    judged
        .filter(|(bound, _)| bound.metric == metric)
        .find_map(|(_, judged)| judged.estimate)
        .map(|estimate| Figure { metric, value: estimate.value })
}

/// The figure that a table shows first for a kind of test, and the one below it.
pub fn headline(kind: TestKind) -> (Metric, Metric) {
    let plain = |base| Metric { base, stat: None, per_gpu: false };
    let ttft = Metric { base: Base::Ttft, stat: Some(Stat::P50), per_gpu: false };
    match kind {
        TestKind::Decode => (plain(Base::OutputThroughput), ttft),
        TestKind::Prefill => (plain(Base::PrefillThroughput), ttft),
        TestKind::Startup => (plain(Base::ReadyTime), plain(Base::KvCapacity)),
    }
}

/// Digits behind the point that a value deserves: about four significant ones.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 10_000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

/// A number for a column: the same digits behind the point for all, thousands apart.
pub fn column(value: f64, decimals: usize) -> String {
    let rounded = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = rounded.split_once('.').unwrap_or((&rounded, ""));
    let whole = print_number(whole.parse().unwrap_or(0.0), 0);
    let sign = if value < 0.0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Whether `n` samples carry a percentile: one beyond it is to be expected.
fn carried(stat: Stat, n: u64) -> bool {
    stat.percent().is_none_or(|percent| n * u64::from(100 - percent) >= 100)
}

/// What recorded observations come to.
trait Described {
    /// How many there are.
    fn len(&self) -> u64;
    /// The statistic; without one the estimate itself, for samples their mean.
    fn value(&self, stat: Option<Stat>) -> Option<f64>;
}

impl Described for Observations {
    fn len(&self) -> u64 {
        match self {
            Observations::Batches { means, .. } => means.len() as u64,
            Observations::Samples(samples) => samples.len() as u64,
            Observations::Histogram(buckets) => buckets.iter().map(|(_, n)| n).sum(),
            Observations::Waves(waves) => waves.iter().map(|wave| wave.len() as u64).sum(),
            Observations::Exact(_) | Observations::Point(_) => 1,
        }
    }

    fn value(&self, stat: Option<Stat>) -> Option<f64> {
        let stat = stat.unwrap_or(Stat::Mean);
        match self {
            Observations::Batches { rate, .. } => Some(*rate),
            Observations::Samples(samples) => of_counts(counted(samples), stat),
            Observations::Histogram(buckets) => of_counts(buckets.clone(), stat),
            Observations::Waves(waves) => match stat {
                Stat::P50 | Stat::Mean => {
                    let each: Option<Vec<f64>> =
                        waves.iter().map(|wave| of_counts(counted(wave), stat)).collect();
                    of_counts(counted(&each?), Stat::Mean)
                }
                Stat::P90 | Stat::P95 | Stat::P99 | Stat::Max => {
                    of_counts(counted(&waves.concat()), stat)
                }
            },
            Observations::Exact(value) | Observations::Point(value) => Some(*value),
        }
    }
}

fn counted(samples: &[f64]) -> Vec<(f64, u64)> {
    let mut counts: Vec<(f64, u64)> = samples.iter().map(|value| (*value, 1)).collect();
    counts.sort_by(|a, b| a.0.total_cmp(&b.0));
    counts
}

/// A statistic of values with counts in rising order; percentiles by nearest rank.
fn of_counts(counts: Vec<(f64, u64)>, stat: Stat) -> Option<f64> {
    let n: u64 = counts.iter().map(|(_, n)| n).sum();
    if n == 0 {
        return None;
    }
    match stat {
        Stat::Mean => Some(counts.iter().map(|(v, n)| v * *n as f64).sum::<f64>() / n as f64),
        Stat::Max => counts.last().map(|(value, _)| *value),
        Stat::P50 | Stat::P90 | Stat::P95 | Stat::P99 => {
            let rank = (n * u64::from(stat.percent()?)).div_ceil(100).max(1);
            let mut seen = 0;
            counts
                .iter()
                .find(|(_, n)| {
                    seen += n;
                    seen >= rank
                })
                .map(|(value, _)| *value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn percentiles_are_by_nearest_rank_and_waves_are_units() {
        let samples = Observations::Samples((1..=100).rev().map(f64::from).collect());
        assert_eq!(samples.value(Some(Stat::P50)), Some(50.0));
        assert_eq!(samples.value(Some(Stat::P99)), Some(99.0));
        assert_eq!(samples.value(Some(Stat::Max)), Some(100.0));
        assert_eq!(
            Observations::Histogram(vec![(7.0, 60), (8.0, 40)]).value(Some(Stat::P90)),
            Some(8.0)
        );
        let waves = Observations::Waves(vec![vec![1.0, 9.0], vec![3.0, 3.0]]);
        assert_eq!(waves.value(Some(Stat::P50)), Some(2.0));
        assert_eq!(waves.value(Some(Stat::Mean)), Some(4.0));
        assert_eq!(Observations::Samples(vec![]).value(Some(Stat::P50)), None);
    }

    #[test]
    fn percentiles_that_the_samples_cannot_carry_are_left_out() {
        let record = fixture::page();
        let (planned, outcome) = (&record.header.cells[1], &record.cells[1]);
        let names: Vec<String> =
            all(planned, outcome).iter().map(|figure| figure.metric.to_string()).collect();
        assert_eq!(names, ["prefill-throughput", "ttft.p50", "ttft.mean", "ttft.max"]);
    }

    #[test]
    fn numbers_for_columns_keep_their_digits() {
        assert_eq!(column(7302.0, 1), "7 302.0");
        assert_eq!(column(999.96, 1), "1 000.0");
        assert_eq!(column(-0.05, 2), "-0.05");
        assert_eq!(column(16_100.0, 0), "16 100");
    }
}
