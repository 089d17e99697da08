//! A baseline: recorded runs in a file that lives beside the suite.
//!
//! JSON Lines in one order whatever the order of recording: what it is of, the workload of each
//! test, each run with its provenance, and one line for each cell and metric with the value of every
//! run. So a change is a line, and so is a conflict between two branches. `read` takes a file apart,
//! `hold` says whether it fits a run, `collect` takes the values out of records.

mod collect;
mod floor;
mod hold;
mod read;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::provenance::Workload;
use super::run_record::PlannedCellRecord;
use crate::measure::Direction;
use crate::quantity::Tokens;

pub use collect::{Collected, Uncollected, collect};
pub(super) use collect::{metrics, run, value};
pub use floor::{Floor, Floors, Left, Number, POWER, Promise, floors, numbers};
pub use hold::{Misfit, axes};
pub(super) use hold::{misfits, other_axes};
pub use read::{BaselineError, Kept};
pub(super) use read::{Entry, entries, text};

/// The format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Runs that a baseline must have of a cell: one alone shows no noise.
pub const LEAST_RUNS: usize = 2;

/// Recorded runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// What it is of.
    pub head: Head,
    /// The workload of each test.
    pub tests: BTreeMap<String, Workload>,
    /// The runs, oldest first.
    pub runs: Vec<Run>,
    /// The values, in canonical order.
    pub cells: Vec<CellLine>,
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first line: what the file is of.
    Baseline(Head),
    /// What was asked of a test's measurement.
    Test(TestLine),
    /// A run.
    Run(Run),
    /// The values of a metric in a cell.
    Cell(CellLine),
}

/// What a baseline is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Head {
    /// Version of this format.
    pub format: u32,
    /// `suite.name`.
    pub suite: String,
    /// What it is known by: GPU, model and the like, by key of the suite.
    pub identity: BTreeMap<String, String>,
}

/// What was asked of a test's measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TestLine {
    /// The test's name.
    pub name: String,
    /// By key of the suite.
    pub workload: Workload,
}

/// Where a run came from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Run {
    /// The run's identity.
    pub id: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Version of tokgate.
    pub tokgate: String,
    /// Hash of the suite.
    pub suite_hash: String,
    /// Kind and version of the engine, as it said itself, by launch.
    pub engines: BTreeMap<String, String>,
    /// Its command, redacted, by launch; absent for an engine that ran already.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, String>,
    /// The GPUs.
    pub gpu: String,
    /// Their driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Why it stands here although it lowered a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The values of a metric in a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CellLine {
    /// The test's name.
    pub test: String,
    /// The variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The cell's id, like `context=8K,concurrency=128`.
    pub cell: String,
    /// The metric, like `ttft.p50`.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way it gets better.
    pub better: Direction,
    /// Its value by run.
    pub values: BTreeMap<String, f64>,
}

/// Which values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The test's name.
    pub test: String,
    /// The variant.
    pub variant: Option<String>,
    /// The cell's id.
    pub cell: String,
    /// The metric.
    pub metric: String,
}

impl Key {
    /// A metric of a cell.
    pub fn of(cell: &PlannedCellRecord, metric: &str) -> Key {
        Key {
            test: cell.test.clone(),
            variant: cell.variant.clone(),
            cell: cell.id.clone(),
            metric: metric.to_owned(),
        }
    }
}

impl std::fmt::Display for Key {
    /// `decode context=8K,concurrency=128 output-throughput`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(variant) = &self.variant {
            write!(f, "{variant} ")?;
        }
        write!(f, "{} {} {}", self.test, self.cell, self.metric)
    }
}

impl CellLine {
    /// Which values these are.
    pub fn key(&self) -> Key {
        Key {
            test: self.test.clone(),
            variant: self.variant.clone(),
            cell: self.cell.clone(),
            metric: self.metric.clone(),
        }
    }

    /// The values alone.
    pub fn runs(&self) -> Vec<f64> {
        self.values.values().copied().collect()
    }

    /// Their geometric mean: what a ratio is held against. `None` where a value is not above zero.
    pub fn middle(&self) -> Option<f64> {
        middle(&self.runs())
    }
}

/// The geometric mean of runs: what a ratio is held against. `None` where a value is not above zero.
pub fn middle(runs: &[f64]) -> Option<f64> {
    if runs.is_empty() || runs.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
        return None;
    }
    Some((runs.iter().map(|value| value.ln()).sum::<f64>() / runs.len() as f64).exp())
}

impl Baseline {
    /// One without runs.
    pub fn new(suite: &str, identity: BTreeMap<String, String>) -> Baseline {
        Baseline {
            head: Head { format: FORMAT, suite: suite.to_owned(), identity },
            tests: BTreeMap::new(),
            runs: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// The values of a metric in a cell.
    pub fn cell(&self, key: &Key) -> Option<&CellLine> {
        self.cells.iter().find(|line| line.key() == *key)
    }

    /// The file, in canonical order.
    pub fn render(&self) -> String {
        let mut lines = vec![Line::Baseline(self.head.clone())];
        lines.extend(self.tests.iter().map(|(name, workload)| {
            Line::Test(TestLine { name: name.clone(), workload: workload.clone() })
        }));
        lines.extend(self.runs.iter().cloned().map(Line::Run));
        lines.extend(self.cells.iter().cloned().map(Line::Cell));
        let mut text = String::new();
        for line in lines {
            // The types have no map with keys that JSON lacks.
            text.push_str(&serde_json::to_string(&line).unwrap_or_default());
            text.push('\n');
        }
        text
    }

    /// Puts runs and cells in canonical order, and drops what nothing refers to any more.
    fn settle(&mut self) {
        self.cells.retain(|line| !line.values.is_empty());
        let used: BTreeSet<&String> = self.cells.iter().flat_map(|it| it.values.keys()).collect();
        self.runs.retain(|run| used.contains(&run.id));
        self.runs.sort_by(|a, b| (&a.started, &a.id).cmp(&(&b.started, &b.id)));
        self.cells.sort_by(|a, b| order(&a.key(), &b.key()));
        let cells = &self.cells;
        self.tests.retain(|name, _| cells.iter().any(|line| line.test == *name));
    }

    /// Adds runs beside those that are there; with `replace` instead of what is there of the same
    /// cells and metrics.
    pub fn add(&mut self, collected: &[Collected], replace: bool) {
        let mut known: BTreeMap<Key, CellLine> =
            self.cells.drain(..).map(|line| (line.key(), line)).collect();
        if replace {
            for line in collected.iter().flat_map(|run| &run.cells) {
                known.remove(&line.key());
            }
        }
        for run in collected {
            for one in &run.runs {
                if !self.runs.iter().any(|known| known.id == one.id) {
                    self.runs.push(one.clone());
                }
            }
            for (name, workload) in &run.tests {
                self.tests.entry(name.clone()).or_insert_with(|| workload.clone());
            }
            for line in &run.cells {
                known
                    .entry(line.key())
                    .and_modify(|known| known.values.extend(line.values.clone()))
                    .or_insert_with(|| line.clone());
            }
        }
        self.cells = known.into_values().collect();
        self.settle();
    }

    /// The JSON Schema of a line, as `schemas/baseline.schema.json` has it.
    pub fn schema_file() -> (&'static str, String) {
        let mut schema = schemars::schema_for!(Line);
        schema.insert("title".into(), "tokgate baseline, one line".into());
        let mut text = serde_json::to_string_pretty(&schema.to_value()).unwrap_or_default();
        text.push('\n');
        ("baseline.schema.json", text)
    }
}

/// Axis, value as a number where it is one, and as written.
type AxisOrder<'l> = (&'l str, f64, &'l str);

/// The order of lines: by test, variant, axis values as numbers where they are some, metric.
pub(super) fn order(one: &Key, other: &Key) -> std::cmp::Ordering {
    fn by(key: &Key) -> (&str, Option<&str>, Vec<AxisOrder<'_>>, &str) {
        let axes = key.cell.split(',').map(|part| {
            let (axis, value) = part.split_once('=').unwrap_or((part, ""));
            let number = value.parse::<Tokens>().ok().map(|tokens| tokens.0 as f64);
            let number = number.or_else(|| value.parse::<f64>().ok().filter(|it| it.is_finite()));
            (axis, number.unwrap_or(f64::MAX), value)
        });
        (&key.test, key.variant.as_deref(), axes.collect(), &key.metric)
    }
    by(one).partial_cmp(&by(other)).unwrap_or(std::cmp::Ordering::Equal)
}

#[cfg(test)]
pub(crate) mod tests;
