//! `metrics.prom`: the figures of a run in OpenMetrics text, for a push gateway or a metrics report of CI.
//!
//! It decides how families and labels are named; names, units and labels are an interface. Values are in base units:
//! seconds, ratios, tokens. Label values are the suite's own names; no text of an engine is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::judge::Verdict;
use crate::measure::{Base, Metric};
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, PlannedCellRecord};

use super::case::verdict_name;
use super::figure;
use super::hardware::{self, Unit};
use super::ratio;
use super::sanitise::line;

/// Bytes that the file stays under: a gateway refuses what is much larger.
const MOST: usize = 10_000_000;
/// What no axis is named in a label: our own labels, and those that Prometheus gives a meaning.
const TAKEN: [&str; 12] = [
    "suite", "test", "variant", "stat", "verdict", "metric", "against", "le", "quantile", "job",
    "instance", AGAIN,
];
/// Tells cells apart that are alike in all else.
const AGAIN: &str = "again";
const VERDICTS: [Verdict; 8] = [
    Verdict::Pass,
    Verdict::Fail,
    Verdict::Inconclusive,
    Verdict::Error,
    Verdict::Measured,
    Verdict::Skip,
    Verdict::Xfail,
    Verdict::Xpass,
];

/// How much of a run is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Every figure.
    All,
    /// Figures that something is asked of.
    Judged,
    /// No cell by itself.
    Counts,
}

/// Renders a record as OpenMetrics text: all figures, or as many as fit.
pub fn render(record: &RunRecord) -> String {
    within(record, MOST)
}

fn within(record: &RunRecord, most: usize) -> String {
    let fits = |extent| {
        let text = families(record, extent, most).text();
        (text.len() <= most).then_some(text)
    };
    let whole = [Extent::All, Extent::Judged].into_iter().find_map(fits);
    whole.unwrap_or_else(|| families(record, Extent::Counts, most).text())
}

/// Families in the order in which they appeared.
#[derive(Debug, Default)]
struct Families {
    list: Vec<Family>,
    known: BTreeMap<String, usize>,
    /// Bytes of their samples.
    size: usize,
}

#[derive(Debug)]
struct Family {
    name: String,
    kind: Kind,
    unit: &'static str,
    help: String,
    /// Lines.
    samples: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Info,
}

impl Families {
    /// Adds a sample to a gauge.
    fn gauge(&mut self, named: &Named, labels: &str, value: f64) {
        if value.is_finite() {
            self.add(Kind::Gauge, named, labels, value);
        }
    }

    /// Adds a sample that only has labels.
    fn info(&mut self, name: &str, help: &str, labels: &str) {
        let named = Named { name: name.to_owned(), unit: "", help: help.to_owned(), per: 1.0 };
        self.add(Kind::Info, &named, labels, 1.0);
    }

    fn add(&mut self, kind: Kind, named: &Named, labels: &str, value: f64) {
        let at = self.known.get(&named.name).copied().unwrap_or_else(|| {
            self.list.push(Family {
                name: named.name.clone(),
                kind,
                unit: named.unit,
                help: named.help.clone(),
                samples: String::new(),
            });
            self.known.insert(named.name.clone(), self.list.len() - 1);
            self.list.len() - 1
        });
        let suffix = match kind {
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        let value = value / named.per;
        let samples = &mut self.list[at].samples;
        let before = samples.len();
        let _ = writeln!(samples, "{}{suffix}{{{labels}}} {value}", named.name);
        self.size += samples.len() - before;
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for family in &self.list {
            let name = &family.name;
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            let _ = writeln!(out, "# TYPE {name} {kind}");
            if !family.unit.is_empty() {
                let _ = writeln!(out, "# UNIT {name} {}", family.unit);
            }
            let _ = writeln!(out, "# HELP {name} {}", escaped(&family.help));
            out.push_str(&family.samples);
        }
        out.push_str("# EOF\n");
        out
    }
}

/// What a family is called.
struct Named {
    name: String,
    unit: &'static str,
    help: String,
    /// What a value is divided by to be in that unit.
    per: f64,
}

fn ours(name: &str, unit: &'static str, help: &str) -> Named {
    Named { name: name.to_owned(), unit, help: help.to_owned(), per: 1.0 }
}

/// The family of a metric; all statistics of a latency are in one.
fn named(metric: Metric) -> Named {
    let entry = metric.base.entry();
    let owner = match metric.base {
        Base::User(_) => "tokgate_command_",
        // The catalogue's.
        Base::OutputThroughput
        | Base::PerRequestThroughput
        | Base::Ttft
        | Base::Tpot
        | Base::Itl
        | Base::ChunkGap
        | Base::PrefillThroughput
        | Base::ActiveRequests
        | Base::CompletedRequests
        | Base::OutputTokens
        | Base::MeasuredTime
        | Base::ReadyTime
        | Base::KvCapacity
        | Base::E2eLatency
        | Base::TtftDue
        | Base::E2eLatencyDue
        | Base::RequestThroughput
        | Base::Goodput
        | Base::ErrorRate
        | Base::PowerMean
        | Base::JoulesPerToken
        | Base::GpuMemoryMax => "tokgate_",
    };
    let per_gpu = if metric.per_gpu { "_per_gpu" } else { "" };
    let mut name = format!("{owner}{}{per_gpu}", identifier(entry.name));
    let (unit, per) = match entry.unit {
        "s" => ("seconds", 1.0),
        "ms" => ("seconds", 1e3),
        "us" | "µs" => ("seconds", 1e6),
        "%" => ("ratio", 100.0),
        "tok/s" => ("tokens_per_second", 1.0),
        "1/s" => ("requests_per_second", 1.0),
        "tokens" => ("tokens", 1.0),
        "B" | "bytes" => ("bytes", 1.0),
        "W" => ("watts", 1.0),
        "J" => ("joules", 1.0),
        // A unit of somebody's own is in the words alone.
        _ => ("", 1.0),
    };
    if !unit.is_empty() && !name.ends_with(&format!("_{unit}")) {
        let _ = write!(name, "_{unit}");
    }
    let own = if unit.is_empty() && !entry.unit.is_empty() {
        format!(", in {}", entry.unit)
    } else {
        String::new()
    };
    Named { name, unit, help: format!("{}{own}", entry.formula), per }
}

fn families(record: &RunRecord, extent: Extent, most: usize) -> Families {
    let header = &record.header;
    let mut all = Families::default();
    let suite = label("suite", &header.suite);
    let version = label("version", &header.tokgate);
    all.info("tokgate_run", "the run, and the tokgate that made it", &format!("{suite},{version}"));
    let complete = if extent == Extent::All { 1.0 } else { 0.0 };
    let help = "1 with all figures of the run, 0 where they would have been too many";
    all.gauge(&ours("tokgate_complete", "", help), &suite, complete);
    if let Some(seconds) = record.seconds {
        let time = ours("tokgate_run_time_seconds", "seconds", "how long the run took");
        all.gauge(&time, &suite, seconds);
    }
    let counts = record.counts();
    let cells = ours("tokgate_cells", "", "cells by verdict");
    for verdict in VERDICTS {
        let labels = format!("{suite},{}", label("verdict", verdict_name(verdict)));
        let count = counts.get(&verdict).copied().unwrap_or_default();
        all.gauge(&cells, &labels, count as f64);
    }
    if let Some((compare, outcome)) = record.mean_ratio()
        && let Some(estimate) = outcome.estimate
    {
        let variant = label("variant", &compare.candidate);
        let against = label("against", &compare.baseline);
        let help = "mean ratio of all cells of two variants, less is worse";
        let mean = ours("tokgate_mean_ratio", "ratio", help);
        all.gauge(&mean, &format!("{suite},{variant},{against}"), estimate.value);
    }
    if extent == Extent::Counts {
        return all;
    }
    let labels = labels(record);
    for (at, labels) in labels.iter().enumerate() {
        let verdict = verdict_name(record.cells[at].judgement.verdict);
        let labels = format!("{labels},{}", label("verdict", verdict));
        all.info("tokgate_cell", "the verdict on a cell", &labels);
    }
    for (at, labels) in labels.iter().enumerate() {
        cell(record, at, labels, extent, &mut all);
        if all.size > most {
            // Too large already: what follows is for nothing.
            break;
        }
    }
    all
}

/// The figures and ratios of a cell.
fn cell(record: &RunRecord, at: usize, labels: &str, extent: Extent, all: &mut Families) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let asked = |metric| planned.bounds.iter().any(|bound| bound.metric == metric);
    // Two alike in all that is told here would be one sample twice, which nobody takes.
    let mut told = BTreeSet::new();
    for figure in figure::all(planned, outcome) {
        if extent == Extent::Judged && !asked(figure.metric) {
            continue;
        }
        let named = named(figure.metric);
        let stat = figure.metric.stat.map(|stat| format!(",{}", label("stat", stat.name())));
        let labels = format!("{labels}{}", stat.unwrap_or_default());
        if told.insert(format!("{}{labels}", named.name)) {
            all.gauge(&named, &labels, figure.value);
        }
    }
    let help = "a figure as a share of what it is held against";
    let relative = ours("tokgate_relative_ratio", "ratio", help);
    for ratio in ratio::of(planned, outcome) {
        let Some(estimate) = ratio.estimate() else { continue };
        let metric = label("metric", &ratio.record.metric.to_string());
        let labels = format!("{labels},{metric},{}", label("against", &ratio.whose()));
        if told.insert(labels.clone()) {
            all.gauge(&relative, &labels, estimate.value);
        }
    }
    if extent == Extent::All {
        of_hardware(outcome, labels, all);
    }
}

/// What was seen of a cell's hardware.
fn of_hardware(outcome: &CellOutcome, labels: &str, all: &mut Families) {
    for reading in hardware::readings(outcome) {
        let (unit, per) = match reading.unit {
            Unit::Watt => ("watts", 1.0),
            Unit::Megahertz => ("hertz", 1e-6),
            Unit::Celsius => ("celsius", 1.0),
            Unit::Byte => ("bytes", 1.0),
            Unit::Share => ("ratio", 1.0),
            Unit::Count => ("", 1.0),
        };
        let suffix = if unit.is_empty() { String::new() } else { format!("_{unit}") };
        let name = format!("tokgate_{}{suffix}", identifier(reading.name));
        let named = Named { name, unit, help: reading.help.to_owned(), per };
        all.gauge(&named, labels, reading.value);
    }
}

/// What names each cell: suite, variant, test and axes. No two are alike.
fn labels(record: &RunRecord) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_cell = |planned: &PlannedCellRecord| {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut labels = label("suite", &record.header.suite);
        let mut add = |name: &str, value: &str| {
            let _ = write!(labels, ",{}", label(name, value));
        };
        if let Some(variant) = &planned.variant {
            add("variant", variant);
        }
        add("test", &planned.test);
        for (axis, value) in &planned.axes {
            let mut name = identifier(axis);
            while TAKEN.contains(&name.as_str()) || name.starts_with("__") || names.contains(&name)
            {
                name = format!("axis_{name}");
            }
            add(&name, &value.to_string());
            names.insert(name);
        }
        let often = seen.entry(labels.clone()).or_insert(0);
        *often += 1;
        if *often > 1 {
            let _ = write!(labels, ",{}", label(AGAIN, &often.to_string()));
        }
        labels
    };
    record.header.cells.iter().map(&mut of_cell).collect()
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

/// Text as it stands in quotes and behind `# HELP`.
fn escaped(text: &str) -> String {
    line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// A name of ASCII letters, digits and `_`.
fn identifier(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        format!("_{name}")
    } else {
        name
    }
}

#[cfg(test)]
#[path = "openmetrics_tests.rs"]
mod tests;
