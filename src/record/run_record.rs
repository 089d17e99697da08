//! The run record: the fold of a plan and its events, written as `record.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::{Event, StopReason};
use super::provenance::Provenance;
use crate::hardware::telemetry::Telemetry;
use crate::judge::{Bound, BoundVerdict, Estimate, Severity, Verdict};
use crate::load::FailureClass;
use crate::measure::{Base, Check, Metric, Observations, TestKind};
use crate::suite::model::{AxisValue, Place, Policy};

mod compare;
mod kin;
mod starts;
mod suspects;
pub use compare::{CompareOutcome, CompareRecord, NoiseRecord, Round, VariantRecord};
pub use kin::Kin;
pub use starts::{EngineStart, started_again};
pub use suspects::{HARDWARE, Suspected};

/// What is known before the first launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RunHeader {
    /// Version of this format.
    pub format: u32,
    /// Version of tokgate.
    pub tokgate: String,
    /// Identity of this run.
    pub run_id: String,
    /// `suite.name`.
    pub suite: String,
    /// The suite file as the user named it.
    pub path: String,
    /// `suite.tags`.
    pub tags: Vec<String>,
    /// Hash of the plan; of a shard that of the whole plan.
    pub plan_hash: String,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Whether its seconds are those of a clock that runs as fast as the machine can.
    pub virtual_time: bool,
    /// Facts of the machine.
    pub machine: crate::hardware::Facts,
    /// What the suite says of model and hardware, for the heading.
    pub declared: Declared,
    /// Flags that shaped the run, in their command line spelling, for rerun commands.
    pub flags: Vec<String>,
    /// What was selected, in command line spelling: `-E` and `--skip`, each with its selector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selection: Vec<String>,
    /// Which part of the plan it carries out, where it is a shard; launches and cells are those of the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<super::shard::Part>,
    /// Which shards it was merged from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<super::shard::Merged>,
    /// What its figures belong to.
    #[serde(default, skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
    /// By which share of its time everything that was measured took longer than it does, where the run was a
    /// self-test of its suite (`tokgate selftest --slow`): 0.1 for a tenth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed: Option<f64>,
    /// `[policy]`.
    pub policy: Policy,
    /// `[compare]`: which variants were measured in pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<CompareRecord>,
    /// Planned launches.
    pub launches: Vec<PlannedLaunchRecord>,
    /// Planned cells.
    pub cells: Vec<PlannedCellRecord>,
}

/// The flag that only calibrations have.
pub const LAUNCHES: &str = "--launches";

impl RunHeader {
    /// The subcommand that made it: `run` or `calibrate`.
    pub fn subcommand(&self) -> &'static str {
        // Each flag stands there with its value.
        let mut names = self.flags.iter().step_by(2);
        if names.any(|flag| flag == LAUNCHES) { "calibrate" } else { "run" }
    }
}

/// What the suite declares, for the heading of reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Declared {
    /// `model.name`.
    pub model: Option<String>,
    /// `model.revision`.
    pub revision: Option<String>,
    /// `model.quantization`.
    pub quantization: Option<String>,
    /// `hardware.gpu` with count, as `8 × H200`.
    pub hardware: Option<String>,
    /// `engine.kind` with version.
    pub engine: String,
}

/// A planned launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedLaunchRecord {
    /// Its name.
    pub name: String,
    /// Its variant.
    pub variant: Option<String>,
    /// `engine.gpus`, divisor of the per-GPU metrics.
    pub gpus: u32,
    /// Where `[engine]` stands.
    pub place: Place,
}

/// A planned cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedCellRecord {
    /// `context=8K,concurrency=128`; empty axes give the test's name.
    pub id: String,
    /// The test's name.
    pub test: String,
    /// What it measures.
    pub kind: TestKind,
    /// The variant.
    pub variant: Option<String>,
    /// `<suite>[.<variant>].<test>`.
    pub classname: String,
    /// Axis values by name, in the order of the id.
    pub axes: Vec<(String, AxisValue)>,
    /// Index of its launch.
    pub launch: usize,
    /// Where the test stands.
    pub place: Place,
    /// In how many fresh launches it is measured.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub rounds: u32,
    /// Bounds on it.
    pub bounds: Vec<BoundRecord>,
    /// The quarantine that holds for it.
    pub quarantine: Option<QuarantineRecord>,
}

/// Rounds of what is measured in one launch.
fn once() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_once(rounds: &u32) -> bool {
    *rounds == 1
}

/// A bound on a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct BoundRecord {
    /// The expectation's name.
    pub name: Option<String>,
    /// The metric.
    pub metric: Metric,
    /// What is asked; absent is `"over"`.
    pub bound: Option<Bound>,
    /// The recorded runs that it is a share of: what is asked is then a ratio, whose target is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<RelativeRecord>,
    /// How much launches differ, where a calibration told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseRecord>,
    /// Slack as a fraction.
    pub slack: f64,
    /// How much it matters.
    pub severity: Severity,
    /// Where the number stands.
    pub place: Place,
}

/// What a ratio is held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RelativeRecord {
    /// The file of recorded runs, `REVISION:FILE (COMMIT)` of git, or `variant NAME`.
    pub file: String,
    /// Where the file stands in git, where the suite names a revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitRecord>,
    /// The variant, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<VariantRecord>,
    /// What they had in this cell; empty where they lack it and the suite lets that pass.
    pub runs: Vec<f64>,
    /// How many shares `policy.alpha` is divided into: one for each comparison, or two where it has half of its
    /// share.
    pub comparisons: u64,
    /// Whether the other half of `policy.alpha` is the mean ratio's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halved: bool,
    /// Whether the file lacks it and gets what this run measures (`on-missing = "record"`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// The smallest loss, as a fraction, that fails 19 times out of 20 by the noise of these runs.
    pub sees: Option<f64>,
}

/// A file as it stands in a revision of a git repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GitRecord {
    /// The revision, as the suite names it.
    pub revision: String,
    /// Hash of the commit that it was.
    pub commit: String,
    /// The file in the working tree, which gets what is recorded.
    pub file: String,
}

/// A quarantine in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct QuarantineRecord {
    /// Why.
    pub reason: String,
    /// Where it is followed up.
    pub issue: Option<String>,
    /// Last day on which it holds.
    pub expires: String,
    /// Greatest loss it covers, as a fraction.
    pub max_loss: Option<f64>,
    /// Where it stands.
    pub place: Place,
}

/// What came of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CellState {
    /// It has not run.
    NotRun {
        /// Why, as words: `not run`, `not run: launch engine failed`.
        reason: String,
    },
    /// It can't run on this engine: over capacity, too long, other hardware.
    Unfit {
        /// Which.
        class: UnfitClass,
        /// The numbers.
        message: String,
    },
    /// It ran and there are figures.
    Measured(Box<Measurement>),
    /// It ran and there are none.
    Broken {
        /// What broke (`engine-died`, `time-out`, …).
        class: String,
        /// The words.
        message: String,
    },
}

/// Why a cell can't run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnfitClass {
    /// `concurrency × (context + max-output)` exceeds the KV capacity.
    OverCapacity,
    /// context + output exceeds the engine's maximum.
    TooLong,
    /// `[hardware]` does not match and `on-mismatch = "skip"`.
    Hardware,
}

/// Figures of a cell, as sufficient statistics.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Measurement {
    /// By metric.
    pub observations: BTreeMap<Base, Observations>,
    /// How many samples of a serve test's latency are worth one that stands alone, where its load
    /// tells; elsewhere it is as many as were in flight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sharing: BTreeMap<Base, f64>,
    /// Requests sent.
    pub requests: u64,
    /// Failed requests by class, with the first message of each.
    pub failures: BTreeMap<FailureClass, (u64, String)>,
    /// Validity checks, passed ones too.
    pub checks: Vec<Check>,
    /// Whether it was extended once.
    pub extended: bool,
    /// Prompt length in tokens as sent, and as the server counted it.
    pub prompt_tokens: Option<(u64, Option<u64>)>,
    /// What the engine's own metrics said meanwhile; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<crate::engine::readings::EngineFigures>,
    /// What was seen of the hardware meanwhile; absent in virtual time, and where nothing could be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Box<Telemetry>>,
    /// Words worth reading.
    pub warnings: Vec<String>,
}

/// What became of a launch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LaunchOutcome {
    /// Rendered command, redacted.
    pub command: Vec<String>,
    /// The log's file name.
    pub log: Option<String>,
    /// Seconds from start to ready.
    pub ready_time: Option<f64>,
    /// What the engine says of itself.
    pub facts: Option<crate::engine::Facts>,
    /// Why it failed.
    pub failure: Option<LaunchFailure>,
    /// Words worth reading.
    pub warnings: Vec<String>,
    /// Each start of its engine, in their order; the fields above tell of the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<EngineStart>,
}

/// Why a launch failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LaunchFailure {
    /// `setup`, `process`, `health`, `models`, `canary`, `facts`, `log`, `hardware`, or `serving` when it died later.
    pub step: String,
    /// One line.
    pub message: String,
    /// Exit status as words, where the process ended.
    pub exit: Option<String>,
    /// The telling lines of the log, redacted.
    pub log_tail: Vec<String>,
    /// Whether engine or hardware are not what the suite declares (exit 22), not infrastructure (30).
    pub mismatch: bool,
    /// Seconds from the start to the failure; 0 where nothing was started.
    pub seconds: f64,
}

/// What a cell's facts come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Type of a failure or error (`limit`, `capacity`, `degraded`, `invalid`, `no-data`, `not-run`, …).
    pub class: Option<String>,
    /// One line that says it all.
    pub message: Option<String>,
    /// Each bound, in the order of the plan.
    pub bounds: Vec<BoundJudgement>,
    /// The bound that decided.
    pub decided_by: Option<usize>,
    /// Words worth reading (capacity grew, drifting, inconclusive by policy, …).
    pub warnings: Vec<String>,
    /// What was not in order with the hardware meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspected>,
}

/// What one bound says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct BoundJudgement {
    /// What it says.
    pub verdict: BoundVerdict,
    /// What was estimated.
    pub estimate: Option<Estimate>,
    /// One line: `output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, in this launch, suite.toml:58)`.
    pub message: String,
    /// Of a ratio the smallest loss, as a fraction, that would have failed 19 times out of 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees: Option<f64>,
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RunRecord {
    /// What was known before.
    pub header: RunHeader,
    /// By launch.
    pub launches: Vec<LaunchOutcome>,
    /// By cell.
    pub cells: Vec<CellOutcome>,
    /// What the mean ratio of all cells comes to, where variants are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<CompareOutcome>,
    /// Words that belong to no cell.
    pub warnings: Vec<String>,
    /// Each time that it went on after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumptions: Vec<Resumption>,
    /// Seconds that it took, all sessions together, once it has ended.
    pub seconds: Option<f64>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it ended early.
    pub stopped: Option<StopReason>,
    /// Which cells are the same of several variants, remembered.
    #[serde(skip)]
    pub kin: Kin,
}

/// A run that was interrupted went on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Resumption {
    /// When, RFC 3339 in UTC.
    pub started: String,
    /// Seconds that the run had taken before, as far as its journal tells.
    pub after: f64,
}

/// A cell's facts and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CellOutcome {
    /// The facts; of a cell that is measured in several launches those of all together, once there are all.
    pub state: CellState,
    /// The facts of each launch, in their order, of a cell that is measured in several; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// What they come to.
    pub judgement: Judgement,
    /// Seconds that it took.
    pub seconds: f64,
}

impl RunRecord {
    /// The record before the first launch: every planned cell is an error, not run.
    pub fn new(header: RunHeader) -> RunRecord {
        let launches = header.launches.iter().map(|_| LaunchOutcome::default()).collect();
        let mut record = RunRecord {
            header,
            launches,
            cells: Vec::new(),
            compare: None,
            warnings: Vec::new(),
            resumptions: Vec::new(),
            seconds: None,
            signal: None,
            stopped: None,
            kin: Kin::default(),
        };
        for index in 0..record.header.cells.len() {
            let state = CellState::NotRun { reason: NOT_RUN.to_owned() };
            let judgement = record.judge(index, &state);
            let rounds = rounds::none(&record.header.cells[index]);
            record.cells.push(CellOutcome { state, rounds, judgement, seconds: 0.0 });
        }
        record.compare_all();
        record
    }

    /// Folds one event in. An index that the plan does not have changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::RunStarted(header) => *self = RunRecord::new((**header).clone()),
            Event::RunResumed { started, after, .. } => {
                self.resumptions.push(Resumption { started: started.clone(), after: *after });
                (self.seconds, self.signal, self.stopped) = (None, None, None);
                // What was not run because of the interruption is to run; what a failed launch took along
                // is not.
                for launch in 0..self.launches.len() {
                    if self.launches[launch].failure.is_none() {
                        self.mark_unfinished(Some(launch), NOT_RUN);
                    }
                }
            }
            Event::LaunchStarted { launch, command, log, round, .. } => {
                let Some(outcome) = self.launches.get_mut(*launch) else { return };
                outcome.command.clone_from(command);
                outcome.log.clone_from(log);
                outcome.began(*round, log.as_deref());
                // A second start of the same launch: its cells have another chance.
                if let Some(failure) = outcome.failure.take() {
                    let words = format!("{}{}", starts::RESUMED, failure.message);
                    outcome.warnings.push(words);
                    self.mark_unfinished(Some(*launch), NOT_RUN);
                }
            }
            Event::LaunchReady { launch, ready_time, facts, warnings } => {
                let resumed = !self.resumptions.is_empty();
                let Some(outcome) = self.launches.get_mut(*launch) else { return };
                let other = outcome.facts.as_ref().filter(|_| resumed);
                let other = other.and_then(|before| other_engine(before, facts));
                outcome.was_ready(*ready_time);
                outcome.facts = Some(facts.clone());
                for warning in warnings.iter().chain(&other) {
                    // A launch that was interrupted has said it before.
                    if !resumed || !outcome.warnings.contains(warning) {
                        outcome.warnings.push(warning.clone());
                    }
                }
            }
            Event::LaunchFailed { launch, failure } => {
                let Some(outcome) = self.launches.get_mut(*launch) else { return };
                outcome.failed(failure);
                let name = self.header.launches.get(*launch).map_or("", |planned| &planned.name);
                let mut reason = format!("{NOT_RUN}: launch {name} failed");
                // Unfit hardware is found before any start.
                let started = failure.step != "hardware";
                if let Some(which) = self.which_start(*launch).filter(|_| started) {
                    reason.push_str(&format!(" in its {which}"));
                }
                // Which cells brought the engine down is what the others want to know.
                if failure.step == "serving" {
                    reason.push_str(&format!(": {}", failure.message));
                }
                self.mark_unfinished(Some(*launch), &reason);
            }
            Event::CellFinished { cell, round, state, seconds } => {
                self.finish_round(*cell, *round, state, *seconds);
            }
            Event::Warning { message } => {
                // Each session says anew what holds for all of the run.
                if self.resumptions.is_empty() || !self.warnings.contains(message) {
                    self.warnings.push(message.clone());
                }
            }
            Event::LaunchStopped { launch, .. } => self.settle_hardware(*launch),
            Event::RunFinished { signal, stopped, at } => {
                self.settle_all_hardware();
                self.signal = *signal;
                self.stopped = *stopped;
                let before = self.resumptions.last().map_or(0.0, |resumption| resumption.after);
                self.seconds = Some(before + at);
                let why = match stopped {
                    Some(StopReason::Signal) => "the run was interrupted",
                    Some(StopReason::TimeLimit) => "the time limit was reached",
                    Some(StopReason::MaxFail) => "enough cells had failed",
                    Some(StopReason::Unwritable) => "results could not be written",
                    None => return,
                };
                self.mark_unfinished(None, &format!("{NOT_RUN}: {why}"));
            }
            Event::LaunchStep { .. } | Event::CellStarted { .. } | Event::CellPhase { .. } => {}
        }
    }

    /// How many cells have which verdict.
    pub fn counts(&self) -> BTreeMap<Verdict, usize> {
        let mut counts = BTreeMap::new();
        for cell in &self.cells {
            *counts.entry(cell.judgement.verdict).or_default() += 1;
        }
        counts
    }

    /// Says why the cells that have not run have not, of one launch or of all. A reason that names
    /// a failed launch is kept: it says more than the end of the run.
    fn mark_unfinished(&mut self, launch: Option<usize>, reason: &str) {
        for index in 0..self.cells.len() {
            let planned = self.header.cells[index].launch;
            let waits = match &self.cells[index].state {
                CellState::NotRun { reason } => launch.is_some() || reason == NOT_RUN,
                CellState::Unfit { .. } | CellState::Measured(_) | CellState::Broken { .. } => {
                    false
                }
            };
            if waits && launch.is_none_or(|launch| launch == planned) {
                // Of a cell with several launches some may have taken their time.
                let seconds = self.cells[index].rounds.iter().map(|round| round.seconds).sum();
                self.finish(index, &CellState::NotRun { reason: reason.to_owned() }, seconds);
            }
        }
    }
}

/// In which way a launch's engine is another one than before the run was interrupted.
fn other_engine(before: &crate::engine::Facts, now: &crate::engine::Facts) -> Option<String> {
    let words = |facts: &crate::engine::Facts| {
        let version = facts.version.as_deref().unwrap_or("of unknown version");
        format!("{version} with {}", facts.model)
    };
    let same = before.version == now.version && before.model == now.model;
    (!same).then(|| {
        format!("the engine is {}; before the run was resumed it was {}", words(now), words(before))
    })
}

/// The reason of a cell whose turn has not come.
pub(super) const NOT_RUN: &str = "not run";

mod rounds;

#[cfg(test)]
pub(crate) mod tests;
