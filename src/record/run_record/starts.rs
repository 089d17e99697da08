//! Starts: how often the engine of a launch was started, for which round, and what became of each start.

use serde::{Deserialize, Serialize};

use super::{LaunchFailure, LaunchOutcome, RunRecord};

/// One start of a launch's engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EngineStart {
    /// Which round it was for, from 0: which of the launches that its cells are measured in.
    pub round: u32,
    /// The log's file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Seconds from start to ready; absent where it did not get so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_time: Option<f64>,
    /// Why it failed, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl LaunchOutcome {
    pub(super) fn began(&mut self, round: u32, log: Option<&str>) {
        let log = log.map(str::to_owned);
        self.starts.push(EngineStart { round, log, ready_time: None, failure: None });
    }

    pub(super) fn was_ready(&mut self, seconds: f64) {
        self.ready_time = Some(seconds);
        if let Some(start) = self.starts.last_mut() {
            start.ready_time = Some(seconds);
        }
    }

    pub(super) fn failed(&mut self, failure: &LaunchFailure) {
        if let Some(start) = self.starts.last_mut() {
            start.failure = Some(failure.message.clone());
        }
        self.failure = Some(failure.clone());
    }
}

impl RunRecord {
    /// How many rounds a launch is planned for: those of the cell that has most.
    pub fn rounds_of(&self, launch: usize) -> u32 {
        let own = self.header.cells.iter().filter(|cell| cell.launch == launch);
        own.map(|cell| cell.rounds).max().unwrap_or(1)
    }

    /// Which of several starts came last: `launch 3 of 4`; none of a launch that is planned once.
    pub fn which_start(&self, launch: usize) -> Option<String> {
        let rounds = self.rounds_of(launch);
        let last = self.launches.get(launch)?.starts.last()?;
        (rounds > 1).then(|| format!("launch {} of {rounds}", last.round + 1))
    }
}
