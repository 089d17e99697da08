//! Floors: what one run showed, as limits that the same engine keeps.
//!
//! Pure: a record in, tables out. The number of a limit is the far end of the figure's own interval, so that what
//! one launch shows by chance asks for nothing, and its slack is for what one launch can't show: how launches
//! differ. A figure that does not count gives no limit.

use crate::judge::{Estimate, Verdict, interval};
use crate::measure::{Base, CheckKind, Stat, TestKind};
use crate::record::RunRecord;
use crate::record::run_record::{CellState, Measurement, PlannedCellRecord};
use crate::suite::model::AxisValue;

/// Smallest slack of a rate where an engine has a machine of its own, as a fraction.
const STEADY: f64 = 0.10;
/// The same where it shares its cores with whatever else runs there, tokgate among it.
const SHARED: f64 = 0.25;
/// Smallest slack of a time to first token, as a fraction.
const LATENCY: f64 = 0.30;
/// What a scheduler may add to a latency, in ms: more than the whole of a short one.
const SCHEDULING: f64 = 5.0;
/// Largest slack: more asks for nothing.
const MOST: f64 = 0.90;
/// Half-widths of an interval that a slack holds.
const WIDTHS: f64 = 2.0;

/// Limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Floors {
    /// One for each metric that was seen.
    pub tables: Vec<Table>,
    /// Longest start, in seconds.
    pub ready: Option<f64>,
    /// Whether the machine kept tokgate from reading in time.
    pub lagged: bool,
}

/// Limits of one metric: rows by context, columns by concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The expectation's name.
    pub name: &'static str,
    /// The test that it is of.
    pub test: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// Whether it is a floor, not a ceiling.
    pub floor: bool,
    /// Slack, in per cent.
    pub slack: u32,
    /// What it is, and what it can't see.
    pub said: String,
    /// Numbers of streams, where the test has any.
    pub columns: Option<Vec<u64>>,
    /// Context and limits; none where there was no figure.
    pub rows: Vec<(u64, Vec<Option<f64>>)>,
}

/// What is made a table of.
struct Kind {
    name: &'static str,
    test: TestKind,
    metric: &'static str,
    base: Base,
    stat: Option<Stat>,
    floor: bool,
    least: f64,
    what: &'static str,
}

impl Floors {
    /// Limits out of a record of a trial. `shared`: the engine shares its cores.
    pub fn of(record: &RunRecord, shared: bool) -> Floors {
        let rate = if shared { SHARED } else { STEADY };
        let kinds = [
            Kind {
                name: "prompts",
                test: TestKind::Prefill,
                metric: "prefill-throughput",
                base: Base::PrefillThroughput,
                stat: None,
                floor: true,
                least: rate,
                what: "Prompt tokens a second, one prompt at a time",
            },
            Kind {
                name: "tokens",
                test: TestKind::Decode,
                metric: "output-throughput",
                base: Base::OutputThroughput,
                stat: None,
                floor: true,
                least: rate,
                what: "Tokens a second of all streams together",
            },
            Kind {
                name: "first-token",
                test: TestKind::Decode,
                metric: "ttft.p50",
                base: Base::Ttft,
                stat: Some(Stat::P50),
                floor: false,
                least: rate.max(LATENCY),
                what: "Milliseconds to the first token of prompts that the engine has seen before, 5 added for scheduling",
            },
        ];
        let tables = kinds.iter().filter_map(|kind| table(record, kind)).collect();
        let started = record.header.cells.iter().any(|cell| cell.kind == TestKind::Startup);
        let ready = record.launches.iter().find_map(|launch| launch.ready_time);
        // A start of a second is one of scheduling.
        let ready = ready.filter(|_| started).map(|seconds| (2.0 * seconds).max(5.0));
        let lagged = record.cells.iter().any(|cell| match &cell.state {
            CellState::Measured(measured) => measured
                .checks
                .iter()
                .any(|check| check.kind == CheckKind::ClientLag && check.fault.is_some()),
            CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => false,
        });
        Floors { tables, ready: ready.map(|seconds| rounded(seconds, false)), lagged }
    }

    /// How many limits there are.
    pub fn count(&self) -> usize {
        let entries = self.tables.iter().flat_map(|table| &table.rows);
        let grids: usize = entries.map(|(_, row)| row.iter().flatten().count()).sum();
        grids + usize::from(self.ready.is_some())
    }
}

fn table(record: &RunRecord, kind: &Kind) -> Option<Table> {
    let alpha = record.header.policy.alpha;
    let all = record.header.cells.iter().zip(&record.cells);
    let mut seen: Vec<(u64, Option<u64>, Option<Estimate>)> = Vec::new();
    for (planned, cell) in all.filter(|(planned, _)| planned.kind == kind.test) {
        let Some(context) = axis(planned, "context") else { continue };
        let counts = match cell.judgement.verdict {
            Verdict::Pass | Verdict::Measured | Verdict::Inconclusive | Verdict::Xpass => true,
            Verdict::Fail | Verdict::Error | Verdict::Skip | Verdict::Xfail => false,
        };
        let measured = match &cell.state {
            CellState::Measured(measured) if counts => Some(measured),
            CellState::Measured(_)
            | CellState::NotRun { .. }
            | CellState::Unfit { .. }
            | CellState::Broken { .. } => None,
        };
        let figure = measured.and_then(|measured| estimate(measured, kind, alpha));
        seen.push((context, axis(planned, "concurrency"), figure));
    }
    let figures: Vec<&Estimate> =
        seen.iter().filter_map(|(_, _, figure)| figure.as_ref()).collect();
    if figures.is_empty() {
        return None;
    }
    let widest = figures.iter().map(|figure| width(figure, kind.floor)).fold(0.0, f64::max);
    let slack = (WIDTHS * widest).clamp(kind.least, MOST);
    let slack = (slack * 100.0).ceil() as u32;
    let share = f64::from(slack) / 100.0;
    let blind = figures.iter().map(|figure| {
        let limit = number(figure, kind.floor) * (1.0 + if kind.floor { -share } else { share });
        (limit / figure.value - 1.0).abs()
    });
    let blind = (blind.fold(0.0, f64::max) * 100.0).round();
    let columns: Option<Vec<u64>> = seen.iter().map(|(_, n, _)| *n).collect();
    let columns = columns.map(|mut columns| {
        columns.sort_unstable();
        columns.dedup();
        columns
    });
    let mut rows: Vec<(u64, Vec<Option<f64>>)> = Vec::new();
    let width = columns.as_ref().map_or(1, Vec::len);
    for (context, streams, figure) in &seen {
        let at = columns.as_ref().zip(*streams).and_then(|(all, n)| all.binary_search(&n).ok());
        let row = match rows.iter().position(|(row, _)| row == context) {
            Some(row) => row,
            None => {
                rows.push((*context, vec![None; width]));
                rows.len() - 1
            }
        };
        rows[row].1[at.unwrap_or(0)] = figure.as_ref().map(|figure| number(figure, kind.floor));
    }
    let worse = if kind.floor { "less" } else { "more" };
    let said = format!("{}. Up to {blind:.0} % {worse} than was seen passes.", kind.what);
    Some(Table {
        name: kind.name,
        test: kind.test.name(),
        metric: kind.metric,
        floor: kind.floor,
        slack,
        said,
        columns,
        rows,
    })
}

fn axis(planned: &PlannedCellRecord, name: &str) -> Option<u64> {
    let (_, value) = planned.axes.iter().find(|(axis, _)| axis == name)?;
    match value {
        AxisValue::Tokens(count) => Some(*count),
        AxisValue::Integer(count) => u64::try_from(*count).ok(),
        AxisValue::Float(_) | AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => {
            None
        }
    }
}

fn estimate(measured: &Measurement, kind: &Kind, alpha: f64) -> Option<Estimate> {
    let observed = measured.observations.get(&kind.base)?;
    let level = interval::levels(observed, kind.stat, alpha, measured.extended);
    let found = interval::estimate(observed, kind.stat, level).ok()?;
    (found.value > 0.0).then_some(found)
}

/// The end of its interval that a figure is held to; the figure where it has none.
fn end(figure: &Estimate, floor: bool) -> f64 {
    let end = if floor { figure.lower } else { figure.upper };
    end.filter(|end| *end > 0.0).unwrap_or(figure.value)
}

/// Half of an interval, as a share of the figure.
fn width(figure: &Estimate, floor: bool) -> f64 {
    (end(figure, floor) / figure.value - 1.0).abs()
}

/// What is written as the limit's number.
fn number(figure: &Estimate, floor: bool) -> f64 {
    let end = end(figure, floor);
    rounded(if floor { end } else { end + SCHEDULING }, floor)
}

/// Three digits, on the lenient side.
fn rounded(value: f64, down: bool) -> f64 {
    let scale = 10f64.powi(2 - value.abs().max(1e-9).log10().floor() as i32);
    // A number that has three digits already is itself, whatever its last bit.
    let scaled = value * scale;
    let nearest = scaled.round();
    let whole = if (scaled - nearest).abs() < 1e-6 {
        nearest
    } else if down {
        scaled.floor()
    } else {
        scaled.ceil()
    };
    whole / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(value: f64, lower: f64, upper: f64) -> Estimate {
        let method = crate::judge::Method::BatchMeans;
        Estimate { value, lower: Some(lower), upper: Some(upper), n: 10, method }
    }

    #[test]
    fn a_limit_is_the_far_end_of_what_was_seen() {
        assert_eq!(number(&figure(1234.5, 1200.9, 1270.0), true), 1200.0);
        assert_eq!(number(&figure(31.1, 30.0, 32.51), false), 37.6);
        let bare = Estimate { lower: None, upper: None, ..figure(99.96, 0.0, 0.0) };
        assert_eq!(number(&bare, true), 99.9);
    }

    proptest! {
        /// Rounding never asks for more than was seen, and loses less than a per cent.
        #[test]
        fn numbers_are_rounded_to_the_lenient_side(value in 1e-3f64..1e7) {
            let (floor, ceiling) = (rounded(value, true), rounded(value, false));
            prop_assert!(floor <= value * (1.0 + 1e-7) && floor >= value * 0.99, "{value} {floor}");
            prop_assert!(ceiling >= value * (1.0 - 1e-7) && ceiling <= value * 1.01, "{value} {ceiling}");
        }
    }
}
