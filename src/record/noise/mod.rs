//! A noise file: how much the launches of a suite differ, as `tokgate calibrate` found it.
//!
//! It lives beside the suite, as a baseline does and in the same form: JSON Lines in one order, what
//! it is of, the workload of each test, each calibration with its provenance, and one line for each
//! cell and metric. `read` takes a file apart, `of` tells what a calibration's launches come to; here
//! is what a line holds and whether a file fits a run.

mod of;
mod read;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::baseline::{self, Head, Key, Misfit, Run, TestLine};
use super::provenance::{Provenance, Workload};
use crate::judge::ratio::Noise;
use crate::measure::Base;

pub use of::{Figures, LEAST_SPREAD, figures, lag_one};

/// The format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Launches that a calibration must have of a cell: one alone shows no noise.
pub const LEAST_LAUNCHES: usize = 2;

/// The fact that a noise file is known by beside those that the suite names: another engine has other noise.
const ENGINE: &str = "engine.kind";

/// What calibrations told.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseFile {
    /// What it is of.
    pub head: Head,
    /// The workload of each test.
    pub tests: BTreeMap<String, Workload>,
    /// The calibrations, oldest first.
    pub runs: Vec<Run>,
    lines: BTreeMap<Key, NoiseLine>,
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first line: what the file is of.
    Noise(Head),
    /// What was asked of a test's measurement.
    Test(TestLine),
    /// A calibration.
    Run(Run),
    /// The noise of a metric in a cell.
    Cell(NoiseLine),
}

/// The noise of a metric in a cell. Spreads are standard deviations of logarithms: 0.01 is 1 %.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NoiseLine {
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
    /// The calibration that told.
    pub run: String,
    /// How much the value of one launch spreads over fresh launches: all noise is in it, also that
    /// within a launch. Never less than what the value can show.
    pub sd: f64,
    /// Its degrees of freedom: launches less one.
    pub df: u32,
    /// The standard error of the value of one launch, as its own batches, samples or waves tell it, over
    /// all launches; absent where one launch gives one reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// What is left of `sd` without `within`: how launches differ by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<f64>,
    /// Correlation of successive batch means within a launch, averaged over launches; absent where
    /// there are no batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<f64>,
    /// Seconds over which a launch was measured, averaged; absent of what has no window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,
    /// The value of each launch, in their order.
    pub values: Vec<f64>,
}

impl NoiseLine {
    /// Which metric of which cell it is of.
    pub fn key(&self) -> Key {
        Key {
            test: self.test.clone(),
            variant: self.variant.clone(),
            cell: self.cell.clone(),
            metric: self.metric.clone(),
        }
    }

    /// What `judge` makes intervals of.
    pub fn noise(&self) -> Noise {
        Noise { sd: self.sd, df: self.df.into() }
    }
}

/// Whether a metric has noise that a calibration can tell: counts of a fixed load and capacities are what
/// they are.
pub fn has_noise(base: Base) -> bool {
    match base {
        Base::ActiveRequests
        | Base::CompletedRequests
        | Base::OutputTokens
        | Base::MeasuredTime
        | Base::KvCapacity
        | Base::GpuMemoryMax => false,
        Base::OutputThroughput
        | Base::PerRequestThroughput
        | Base::Ttft
        | Base::Tpot
        | Base::Itl
        | Base::ChunkGap
        | Base::PrefillThroughput
        | Base::ReadyTime
        | Base::E2eLatency
        | Base::TtftDue
        | Base::E2eLatencyDue
        | Base::RequestThroughput
        | Base::Goodput
        | Base::ErrorRate
        | Base::PowerMean
        | Base::JoulesPerToken
        | Base::User(_) => true,
    }
}

/// Whether a metric may be 0 in good order, so that its noise is no share of it and no file has it.
pub fn may_be_zero(base: Base) -> bool {
    matches!(base, Base::Goodput | Base::ErrorRate | Base::User(_))
}

impl NoiseFile {
    /// One that tells nothing yet of a suite.
    pub fn new(suite: &str, provenance: &Provenance) -> NoiseFile {
        let mut identity = provenance.identity();
        if let Some(engine) = provenance.facts.get(ENGINE) {
            identity.insert(ENGINE.to_owned(), engine.clone());
        }
        NoiseFile {
            head: Head { format: FORMAT, suite: suite.to_owned(), identity },
            tests: BTreeMap::new(),
            runs: Vec::new(),
            lines: BTreeMap::new(),
        }
    }

    /// The noise of a metric in a cell. That of `output-throughput` is also that of
    /// `output-throughput-per-gpu`.
    pub fn find(&self, key: &Key) -> Option<&NoiseLine> {
        self.lines.get(key).or_else(|| {
            let whole = key.metric.strip_suffix("-per-gpu");
            let metric = whole.map_or_else(|| format!("{}-per-gpu", key.metric), str::to_owned);
            self.lines.get(&Key { metric, ..key.clone() })
        })
    }

    /// All of it, in canonical order.
    pub fn lines(&self) -> Vec<&NoiseLine> {
        let mut lines: Vec<(&Key, &NoiseLine)> = self.lines.iter().collect();
        lines.sort_by(|a, b| baseline::order(a.0, b.0));
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Puts what a calibration told in the place of what was known of the same cells and metrics.
    pub fn add(&mut self, run: Run, tests: BTreeMap<String, Workload>, lines: Vec<NoiseLine>) {
        self.tests.extend(tests);
        self.runs.retain(|known| known.id != run.id);
        self.runs.push(run);
        self.lines.extend(lines.into_iter().map(|line| (line.key(), line)));
        self.settle();
    }

    /// Drops what nothing refers to any more.
    fn settle(&mut self) {
        let used: BTreeSet<&String> = self.lines.values().map(|line| &line.run).collect();
        self.runs.retain(|run| used.contains(&run.id));
        self.runs.sort_by(|a, b| (&a.started, &a.id).cmp(&(&b.started, &b.id)));
        let tests: BTreeSet<&String> = self.lines.values().map(|line| &line.test).collect();
        self.tests.retain(|name, _| tests.contains(name));
    }

    /// The file, in canonical order.
    pub fn render(&self) -> String {
        let mut lines = vec![Line::Noise(self.head.clone())];
        lines.extend(self.tests.iter().map(|(name, workload)| {
            Line::Test(TestLine { name: name.clone(), workload: workload.clone() })
        }));
        lines.extend(self.runs.iter().cloned().map(Line::Run));
        lines.extend(self.lines().into_iter().cloned().map(Line::Cell));
        let mut text = String::new();
        for line in lines {
            // The types have no map with keys that JSON lacks.
            text.push_str(&serde_json::to_string(&line).unwrap_or_default());
            text.push('\n');
        }
        text
    }

    /// In which ways it is of something else than a run of these tests.
    pub fn misfits<'t>(
        &self,
        suite: &str,
        provenance: &Provenance,
        tests: impl Iterator<Item = &'t str>,
    ) -> Vec<Misfit> {
        let mut keys = provenance.identity.clone();
        if !keys.iter().any(|key| key == ENGINE) {
            keys.push(ENGINE.to_owned());
        }
        baseline::misfits(&self.head, &self.tests, suite, provenance, &keys, tests)
    }

    /// How the axes of a test were named when they are others than those of `cell`; `None` where some
    /// cell of the test has the same, or the test was not calibrated.
    pub fn other_axes(&self, test: &str, cell: &str) -> Option<Misfit> {
        let of_test = self.lines.values().filter(|line| line.test == test);
        baseline::other_axes(of_test.map(|line| line.cell.as_str()), test, cell)
    }

    /// The JSON Schema of a line, as `schemas/noise.schema.json` has it.
    pub fn schema_file() -> (&'static str, String) {
        let mut schema = schemars::schema_for!(Line);
        schema.insert("title".into(), "tokgate noise file, one line".into());
        let mut text = serde_json::to_string_pretty(&schema.to_value()).unwrap_or_default();
        text.push('\n');
        ("noise.schema.json", text)
    }
}

#[cfg(test)]
pub(crate) mod tests;
