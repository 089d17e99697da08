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

/// What begins a launch's warning that it failed before the run was resumed.
pub(super) const RESUMED: &str = "started again after: ";
/// What parts, in the warning that an engine is started again, why from how often.
const AGAIN: &str = "; started again for the remaining cells (";

/// The warning that the engine of a launch is started again, for the `count`th time of `of`.
pub fn started_again(launch: &str, why: &str, count: usize, of: usize) -> String {
    format!("launch {launch}: {why}{AGAIN}restart {count} of {of})")
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

    /// Why the engine of a launch was lost, each time that it was started again: by policy, or since the run was
    /// resumed.
    pub fn losses(&self, launch: usize) -> Vec<&str> {
        let name = self.header.launches.get(launch).map_or("", |planned| planned.name.as_str());
        let own = self.warnings.iter().filter_map(|warning| {
            let told = warning.strip_prefix("launch ")?.strip_prefix(name)?.strip_prefix(": ")?;
            told.rsplit_once(AGAIN).map(|(why, _)| why)
        });
        let resumed = self.launches.get(launch).into_iter().flat_map(|it| &it.warnings);
        own.chain(resumed.filter_map(|it| it.strip_prefix(RESUMED))).collect()
    }

    /// Which of several starts came last: `launch 3 of 4`; none of a launch that is planned once.
    pub fn which_start(&self, launch: usize) -> Option<String> {
        let rounds = self.rounds_of(launch);
        let last = self.launches.get(launch)?.starts.last()?;
        (rounds > 1).then(|| format!("launch {} of {rounds}", last.round + 1))
    }
}
