//! `cells.csv`: a line for each cell and metric, for spreadsheets and data frames (RFC 4180).
//!
//! It arranges what was judged and observed and computes nothing itself. Every planned cell is there, one without
//! figures with a line that has no value. Names and paths are the suite's own; no text of an engine is in it.

use std::fmt::Write;

use serde::Serialize;

use crate::judge::{Bound, BoundVerdict, Estimate, Severity, Side};
use crate::measure::Metric;
use crate::record::RunRecord;
use crate::record::judgement::estimated;
use crate::record::run_record::PlannedCellRecord;
use crate::suite::model::{AxisValue, Place};

use super::case::verdict_name;
use super::figure;
use super::hardware;
use super::sanitise::line;

/// Bytes that the file stays under, but for the bare lines of a plan so large that they alone take more.
const MOST: usize = 20_000_000;

/// The columns before those of the axes.
pub const COLUMNS: [&str; 20] = [
    "suite",
    "variant",
    "test",
    "cell",
    "launch",
    "cell_verdict",
    "metric",
    "unit",
    "against",
    "value",
    "lower",
    "upper",
    "n",
    "method",
    "side",
    "limit",
    "target",
    "severity",
    "verdict",
    "place",
];

/// How much of a run is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Every figure.
    All,
    /// Figures that something is asked of.
    Judged,
    /// A line a cell.
    Bare,
}

/// Renders a record as CSV: all figures, or as many as fit.
pub fn render(record: &RunRecord) -> String {
    within(record, MOST)
}

fn within(record: &RunRecord, most: usize) -> String {
    let whole = [Extent::All, Extent::Judged].into_iter();
    let fits = whole.map(|extent| table(record, extent, most)).find_map(Result::ok);
    fits.unwrap_or_else(|| table(record, Extent::Bare, usize::MAX).unwrap_or_default())
}

/// It has more bytes than it may have.
struct TooLarge;

fn table(record: &RunRecord, extent: Extent, most: usize) -> Result<String, TooLarge> {
    let axes = axes(record);
    let mut out = String::new();
    let names = axes.iter().map(|axis| format!("axis.{axis}"));
    put(&mut out, COLUMNS.map(str::to_owned).into_iter().chain(names));
    for at in 0..record.header.cells.len() {
        let planned = &record.header.cells[at];
        for row in rows(record, at, extent) {
            let values = axes.iter().map(|axis| axis_value(planned, axis));
            put(&mut out, row.fields().into_iter().chain(values));
        }
        if out.len() > most {
            return Err(TooLarge);
        }
    }
    if let Some(row) = mean_ratio(record) {
        put(&mut out, row.fields().into_iter().chain(axes.iter().map(|_| String::new())));
    }
    Ok(out)
}

/// One line.
struct Row<'a> {
    /// Suite, variant, test, cell, launch and the cell's verdict.
    cell: [&'a str; 6],
    metric: String,
    unit: &'a str,
    against: &'a str,
    estimate: Option<Told>,
    bound: Option<Asked>,
    place: &'a Place,
}

/// A figure, with its interval where that is known.
#[derive(Clone, Copy)]
struct Told {
    value: f64,
    rest: Option<Estimate>,
}

/// What is asked of it, and what came of that.
struct Asked {
    bound: Option<Bound>,
    severity: String,
    verdict: Option<BoundVerdict>,
}

impl Row<'_> {
    fn fields(&self) -> [String; COLUMNS.len()] {
        let text = |text: &str| line(text);
        let rest = self.estimate.and_then(|told| told.rest);
        let bound = self.bound.as_ref();
        let limits = bound.and_then(|asked| asked.bound);
        let side = match (bound, limits) {
            (None, _) => "",
            (Some(_), Some(Bound { side: Side::Min, .. })) => "min",
            (Some(_), Some(Bound { side: Side::Max, .. })) => "max",
            (Some(_), None) => "over",
        };
        let [suite, variant, test, cell, launch, verdict] = self.cell.map(text);
        [
            suite,
            variant,
            test,
            cell,
            launch,
            verdict,
            text(&self.metric),
            text(self.unit),
            text(self.against),
            number(self.estimate.map(|told| told.value)),
            number(rest.and_then(|estimate| estimate.lower)),
            number(rest.and_then(|estimate| estimate.upper)),
            rest.map(|estimate| estimate.n.to_string()).unwrap_or_default(),
            rest.map(|estimate| word(&estimate.method)).unwrap_or_default(),
            side.to_owned(),
            number(limits.map(|limits| limits.limit)),
            number(limits.map(|limits| limits.target)),
            bound.map(|asked| asked.severity.clone()).unwrap_or_default(),
            bound.and_then(|asked| asked.verdict).map(|it| word(&it)).unwrap_or_default(),
            text(&self.place.to_string()),
        ]
    }
}

/// The lines of a cell: its bounds in the order of the plan, then what nothing is asked of.
fn rows(record: &RunRecord, at: usize, extent: Extent) -> Vec<Row<'_>> {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let launch = record.header.launches.get(planned.launch);
    let row = |metric: Option<Metric>, place| Row {
        cell: [
            &record.header.suite,
            planned.variant.as_deref().unwrap_or_default(),
            &planned.test,
            &planned.id,
            launch.map_or("", |launch| &launch.name),
            verdict_name(outcome.judgement.verdict),
        ],
        metric: metric.map(|metric| metric.to_string()).unwrap_or_default(),
        unit: metric.map_or("", |metric| metric.base.entry().unit),
        against: "",
        estimate: None,
        bound: None,
        place,
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (index, bound) in planned.bounds.iter().enumerate() {
        let judged = outcome.judgement.bounds.get(index);
        let estimate = judged.and_then(|judged| judged.estimate);
        let mut told = Row {
            estimate: estimate.map(|it| Told { value: it.value, rest: Some(it) }),
            bound: Some(Asked {
                bound: bound.bound,
                severity: word(&bound.severity),
                verdict: judged.map(|judged| judged.verdict),
            }),
            ..row(Some(bound.metric), &bound.place)
        };
        if let Some(relative) = &bound.relative {
            // A ratio has no unit.
            told.unit = "";
            told.against =
                relative.variant.as_ref().map_or(&relative.file, |variant| &variant.name);
        }
        rows.push(told);
    }
    match extent {
        Extent::All => {}
        Extent::Judged if rows.is_empty() => return vec![row(None, &planned.place)],
        Extent::Judged => return rows,
        Extent::Bare => {
            let decided = outcome.judgement.decided_by.filter(|index| *index < rows.len());
            return vec![match decided {
                Some(index) => rows.swap_remove(index),
                None => row(None, &planned.place),
            }];
        }
    }
    let asked = |metric: Metric| {
        planned.bounds.iter().any(|bound| bound.metric == metric && bound.relative.is_none())
    };
    let measured = figure::measurement(outcome);
    for figure in figure::all(planned, outcome).into_iter().filter(|it| !asked(it.metric)) {
        // What several launches gave together has another noise than one of them.
        let one = measured.filter(|_| outcome.rounds.is_empty());
        let rest = one.and_then(|measured| {
            let gpus = launch.map_or(1, |launch| launch.gpus);
            estimated(planned, measured, &record.header.policy, gpus, figure.metric)
        });
        rows.push(Row {
            estimate: Some(Told { value: figure.value, rest }),
            ..row(Some(figure.metric), &planned.place)
        });
    }
    rows.extend(hardware::readings(outcome).into_iter().map(|it| Row {
        metric: it.name.to_owned(),
        unit: it.unit.sign(),
        estimate: Some(Told { value: it.value, rest: None }),
        ..row(None, &planned.place)
    }));
    if rows.is_empty() {
        rows.push(row(None, &planned.place));
    }
    rows
}

/// The line of the mean ratio, where variants are compared.
fn mean_ratio(record: &RunRecord) -> Option<Row<'_>> {
    let (compare, outcome) = record.mean_ratio()?;
    let limit = compare.min_mean_ratio;
    Some(Row {
        cell: [
            &record.header.suite,
            &compare.candidate,
            "compare",
            "mean ratio",
            "",
            verdict_name(outcome.judgement.verdict),
        ],
        metric: "mean-ratio".to_owned(),
        unit: "",
        against: &compare.baseline,
        estimate: outcome.estimate.map(|it| Told { value: it.value, rest: Some(it) }),
        bound: limit.map(|limit| Asked {
            bound: Some(Bound { side: Side::Min, target: 1.0, limit }),
            severity: word(&Severity::Fail),
            verdict: outcome.judgement.bounds.first().map(|judged| judged.verdict),
        }),
        place: &compare.place,
    })
}

/// The axes of all cells, in the order in which they appear.
fn axes(record: &RunRecord) -> Vec<&str> {
    let mut axes: Vec<&str> = Vec::new();
    for (name, _) in record.header.cells.iter().flat_map(|cell| &cell.axes) {
        if !axes.contains(&name.as_str()) {
            axes.push(name);
        }
    }
    axes
}

/// The value of an axis, a number as one: 8192, where the cell's name has `8K`.
fn axis_value(planned: &PlannedCellRecord, axis: &str) -> String {
    let found = planned.axes.iter().find(|(name, _)| name == axis);
    let spelled = |value: &AxisValue| match value.number() {
        Some(value) => number(Some(value)),
        None => line(&value.to_string()),
    };
    found.map(|(_, value)| spelled(value)).unwrap_or_default()
}

/// A number as it reads back to the same; empty for what is none.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

/// How a record spells it.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Writes a line.
fn put(out: &mut String, fields: impl Iterator<Item = String>) {
    for (at, field) in fields.enumerate() {
        if at > 0 {
            out.push(',');
        }
        let quoted = field.contains(['"', ',', '\r', '\n'])
            || field.starts_with(' ')
            || field.ends_with(' ');
        if quoted {
            let _ = write!(out, "\"{}\"", field.replace('"', "\"\""));
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
