//! Figures of a cell as reports show them: a value for each metric and statistic, with its unit.
//!
//! Where a bound was judged, the figure is the estimate that was judged; elsewhere it is the value
//! that would have been. It computes and judges nothing itself.

use crate::judge::interval;
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

/// All figures of a cell in the catalogue's order, then those that its test defines. A percentile that the samples can't carry is
/// left out.
pub fn all(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Vec<Figure> {
    let Some(measured) = measurement(outcome) else { return Vec::new() };
    let mut figures = Vec::new();
    let own = measured.observations.keys().filter(|base| matches!(base, Base::User(_)));
    let entries = CATALOGUE.into_iter().chain(own.map(|base| base.entry()));
    for entry in entries {
        let Some(observations) = measured.observations.get(&entry.base) else { continue };
        let stats: Vec<Option<Stat>> = if !entry.latency {
            vec![None]
        } else if let Observations::Told(told) = observations {
            Stat::ALL
                .iter()
                .filter(|stat| told.contains_key(stat))
                .map(|stat| Some(*stat))
                .collect()
        } else {
            let n = samples(observations);
            Stat::ALL.iter().filter(|stat| carried(**stat, n)).map(|stat| Some(*stat)).collect()
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
        let value = interval::value(observations, metric.stat)?;
        (!metric.per_gpu).then_some(Figure { metric, value })
    })
}

fn estimate(planned: &PlannedCellRecord, outcome: &CellOutcome, metric: Metric) -> Option<Figure> {
    let judged = planned.bounds.iter().zip(&outcome.judgement.bounds);
    judged
        // What is estimated of a relative bound is a ratio.
        .filter(|(bound, _)| bound.metric == metric && bound.relative.is_none())
        .find_map(|(_, judged)| judged.estimate)
        .map(|estimate| Figure { metric, value: estimate.value })
}

/// What a table shows of the cells of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headline {
    /// The figure that stands first.
    pub first: Metric,
    /// The one below it.
    pub second: Option<Metric>,
}

/// What a table shows of cells of one kind: what the kind is for. A tool may tell anything, so its
/// cells show what something is expected of, else what comes first.
pub fn headline<'a>(
    kind: TestKind,
    cells: impl Iterator<Item = (&'a PlannedCellRecord, &'a CellOutcome)>,
) -> Headline {
    let plain = |base| Metric { base, stat: None, per_gpu: false };
    let ttft = Some(Metric { base: Base::Ttft, stat: Some(Stat::P50), per_gpu: false });
    match kind {
        TestKind::Decode | TestKind::Serve => {
            Headline { first: plain(Base::OutputThroughput), second: ttft }
        }
        TestKind::Prefill => Headline { first: plain(Base::PrefillThroughput), second: ttft },
        TestKind::Startup => {
            Headline { first: plain(Base::ReadyTime), second: Some(plain(Base::KvCapacity)) }
        }
        TestKind::Command => {
            let mut shown: Vec<Metric> = Vec::new();
            let mut there: Vec<Metric> = Vec::new();
            for (planned, outcome) in cells {
                let bounds = planned.bounds.iter().map(|bound| bound.metric);
                let new: Vec<Metric> = bounds.filter(|metric| !shown.contains(metric)).collect();
                shown.extend(new);
                if there.is_empty() {
                    there = all(planned, outcome).iter().map(|figure| figure.metric).collect();
                }
            }
            let told = if shown.is_empty() { there } else { shown };
            Headline {
                first: told.first().copied().unwrap_or(plain(Base::OutputThroughput)),
                second: told.get(1).copied(),
            }
        }
    }
}

/// Digits behind the point that a value deserves: three or four significant ones.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 10_000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 || v == 0.0 => 3,
        v if v >= 0.01 => 4,
        _ => 6,
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

/// How many samples the percentiles of a metric are taken from.
fn samples(observations: &Observations) -> u64 {
    if let Observations::Waves(waves) = observations {
        return waves.iter().map(|wave| wave.len() as u64).sum();
    }
    observations.count()
}

/// Whether `n` samples carry a percentile: one beyond it is to be expected.
fn carried(stat: Stat, n: u64) -> bool {
    stat.percent().is_none_or(|percent| n * u64::from(100 - percent) >= 100)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::{Direction, UserMetric};
    use crate::report::fixture;

    #[test]
    fn a_figure_is_the_same_whether_a_bound_stands_on_it_or_not() {
        let mut record = fixture::page();
        let waves = Observations::Waves(vec![vec![1.0, 9.0, 10.0], vec![3.0, 4.0, 8.0]]);
        let CellState::Measured(measurement) = &mut record.cells[12].state else { panic!() };
        measurement.observations.insert(Base::Ttft, waves.clone());
        let (planned, outcome) = (&mut record.header.cells[12], &mut record.cells[12]);
        for stat in Stat::ALL {
            planned.bounds[0].metric =
                Metric { base: Base::Ttft, stat: Some(stat), per_gpu: false };
            let judged = interval::estimate(&waves, Some(stat), 0.05).unwrap();
            outcome.judgement.bounds[0].estimate = Some(judged);
            let metric = planned.bounds[0].metric;
            let with = one(planned, outcome, metric).unwrap();
            outcome.judgement.bounds[0].estimate = None;
            assert_eq!(one(planned, outcome, metric), Some(with), "{stat:?}");
        }
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
    fn figures_of_a_tool_are_all_that_it_told() {
        let mut record = fixture::page();
        let exact = UserMetric::new("exact_match", "", Direction::Higher);
        let told = BTreeMap::from([(Stat::P50, vec![200.0]), (Stat::P99, vec![210.0])]);
        let observations = BTreeMap::from([
            (Base::User(exact), Observations::Point(0.912)),
            (Base::Ttft, Observations::Told(told)),
        ]);
        let (planned, outcome) = (&mut record.header.cells[12], &mut record.cells[12]);
        let measurement = Measurement { observations, ..Measurement::default() };
        outcome.state = CellState::Measured(Box::new(measurement));
        planned.kind = TestKind::Command;
        planned.bounds.clear();
        let texts: Vec<String> = all(planned, outcome)
            .iter()
            .map(|figure| format!("{} {}", figure.metric, figure.text()))
            .collect();
        assert_eq!(texts, ["ttft.p50 200 ms", "ttft.p99 210 ms", "exact_match 0.912"]);
        let shown = headline(TestKind::Command, std::iter::once((&*planned, &*outcome)));
        assert_eq!(shown.first.to_string(), "ttft.p50");
        let mut bound = fixture::page().header.cells[12].bounds[0].clone();
        bound.metric = exact.into();
        planned.bounds = vec![bound];
        let shown = headline(TestKind::Command, std::iter::once((&*planned, &*outcome)));
        assert_eq!((shown.first, shown.second), (exact.into(), None));
    }

    #[test]
    fn numbers_for_columns_keep_their_digits() {
        assert_eq!(column(7302.0, 1), "7 302.0");
        assert_eq!(column(999.96, 1), "1 000.0");
        assert_eq!(column(-0.05, 2), "-0.05");
        assert_eq!(column(16_100.0, 0), "16 100");
    }
}
