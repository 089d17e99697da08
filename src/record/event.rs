//! Events: what happens in a run, in order. The conductor sends them; journal, progress and
//! reports look on.

use serde::{Deserialize, Serialize};

use crate::engine::Facts;

use super::run_record::{CellState, LaunchFailure, RunHeader};

/// One thing that happened. Indices are those of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The run begins; the journal's first line.
    RunStarted(Box<RunHeader>),
    /// The run goes on after an interruption: a session begins. What follows counts its seconds from here.
    RunResumed {
        /// Which session, from 1; the run began with session 0.
        session: usize,
        /// When, RFC 3339 in UTC.
        started: String,
        /// Seconds that the sessions before took, as far as the journal tells.
        after: f64,
    },
    /// A launch begins.
    LaunchStarted {
        /// Which.
        launch: usize,
        /// Rendered command, redacted; empty for a running engine.
        command: Vec<String>,
        /// The log's file name in the output directory.
        log: Option<String>,
        /// Which round it is of those that its cells are measured in.
        #[serde(default, skip_serializing_if = "is_first")]
        round: u32,
        /// How many engines were started for this round before in this session.
        #[serde(default)]
        ordinal: usize,
        /// Seconds since the session began.
        at: f64,
    },
    /// A step of the launch (`setup`, `process`, `health`, `models`, `canary`, `facts`).
    LaunchStep {
        /// Which.
        launch: usize,
        /// The step that begins.
        step: String,
        /// Seconds since the session began.
        at: f64,
    },
    /// The engine is ready.
    LaunchReady {
        /// Which.
        launch: usize,
        /// Seconds from start to ready.
        ready_time: f64,
        /// What the engine says of itself.
        facts: Facts,
        /// Mismatches that the suite lets pass as warnings.
        warnings: Vec<String>,
    },
    /// The launch failed or the engine died; its remaining cells can't be measured.
    LaunchFailed {
        /// Which.
        launch: usize,
        /// Why.
        failure: LaunchFailure,
    },
    /// The engine is gone.
    LaunchStopped {
        /// Which.
        launch: usize,
        /// Seconds since the session began.
        at: f64,
    },
    /// A cell begins.
    CellStarted {
        /// Which.
        cell: usize,
        /// Which of the launches that it is measured in, from 0.
        #[serde(default, skip_serializing_if = "is_first")]
        round: u32,
        /// Seconds since the session began.
        at: f64,
    },
    /// A phase of a cell (`warm-up`, `ttft`, `window`, `extension`, `drain`), with its share done.
    CellPhase {
        /// Which.
        cell: usize,
        /// The phase.
        phase: String,
        /// Tokens or samples so far, as words for the progress display.
        note: String,
    },
    /// A cell is finished, or one round of it: whole and final.
    CellFinished {
        /// Which.
        cell: usize,
        /// Which of the launches that it is measured in, from 0.
        #[serde(default, skip_serializing_if = "is_first")]
        round: u32,
        /// What came of it.
        state: CellState,
        /// Seconds that it took.
        seconds: f64,
    },
    /// Something worth a word that belongs to no cell.
    Warning {
        /// The word.
        message: String,
    },
    /// The run ends.
    RunFinished {
        /// The signal that ended it early.
        signal: Option<i32>,
        /// Why it ended early, if it did.
        stopped: Option<StopReason>,
        /// Seconds since the session began.
        at: f64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(round: &u32) -> bool {
    *round == 0
}

/// Why a run ended before all its cells ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// `policy.time-limit`.
    TimeLimit,
    /// `--fail-fast` or `--max-fail`.
    MaxFail,
    /// Results could not be written.
    Unwritable,
}
