//! The tally of a run: how many of its measurements and engine starts are done, and how long the rest takes.
//!
//! It counts what it is told of, cells by rounds, and decides no words.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::RunRecord;
use crate::record::run_record::CellState;

/// How far the run is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    /// Planned cells.
    pub cells: usize,
    /// Planned measurements: each cell as often as it is measured.
    pub total: usize,
    /// Measurements that are finished, or that a cell which broke does without.
    pub done: usize,
    /// Measurements that won't be, since a launch failed.
    pub lost: usize,
    /// Cells that failed or could not be judged.
    pub bad: usize,
    /// Measurements that sent requests: what was skipped says nothing about the rest.
    pub timed: usize,
    /// Time that passed from the first cell's start to the last one's end, without that of engines to
    /// start. Not the sum of their own times, which on a simulated engine may have passed on another clock.
    pub spent: Duration,
    /// Starts of engines that are still to come.
    pub starts_left: usize,
    /// Starts so far, and the time from each to a ready engine.
    pub started: usize,
    /// That time.
    pub starting: Duration,
}

impl Tally {
    /// How long the rest will take if it goes on like this: measurements and starts of engines.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.saturating_sub(self.done + self.lost);
        let each = |whole: Duration, n: usize, left: usize| match n {
            0 => Duration::ZERO,
            n => whole.mul_f64(left as f64 / n as f64),
        };
        let starts = each(self.starting, self.started, self.starts_left);
        (self.timed > 0).then(|| each(self.spent, self.timed, rest) + starts)
    }

    /// What is counted: `cells`, or `measurements` where cells have several.
    pub fn unit(&self) -> &'static str {
        if self.total == self.cells { "cells" } else { "measurements" }
    }
}

/// What the tally is made of.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) tally: Tally,
    /// Cells and rounds that are finished.
    finished: HashSet<(usize, u32)>,
    /// Cells that are told as bad, each with its verdict.
    pub(super) bad: HashMap<usize, Verdict>,
    /// Launches and rounds that have been started, and launches that failed with what they took along.
    started: HashSet<(usize, u32)>,
    lost: HashMap<usize, (usize, usize)>,
    /// When the engine that is being started was started.
    starting: Option<Duration>,
    /// When the first cell began, later by the time that engines took to start since.
    pub(super) first: Option<Duration>,
}

impl Progress {
    /// Counts what is planned, and of a run that goes on what ran before: its verdicts count, its time says
    /// nothing of this session.
    pub(super) fn count(&mut self, record: &RunRecord, goes_on: bool) {
        let cells = record.header.cells.iter().zip(&record.cells).enumerate();
        self.tally.cells = record.cells.len();
        self.tally.total = 0;
        let mut rounds = vec![0; record.launches.len()];
        for (at, (planned, outcome)) in cells {
            self.tally.total += planned.rounds.max(1) as usize;
            if let Some(most) = rounds.get_mut(planned.launch) {
                *most = planned.rounds.max(*most);
            }
            if !goes_on {
                continue;
            }
            if !matches!(outcome.state, CellState::NotRun { .. }) {
                self.settle(at, record);
                self.weigh(at, record);
                continue;
            }
            for (round, part) in (0..).zip(&outcome.rounds) {
                if !matches!(part.state, CellState::NotRun { .. }) {
                    self.finished.insert((at, round));
                }
            }
        }
        self.tally.done = self.finished.len();
        for (launch, most) in rounds.into_iter().enumerate() {
            let left = (0..most).filter(|round| self.is_left(launch, *round, record));
            self.tally.starts_left += left.count();
        }
    }

    /// Whether a launch has something to measure in that round.
    fn is_left(&self, launch: usize, round: u32, record: &RunRecord) -> bool {
        let mut own = record.header.cells.iter().enumerate().filter(|(_, it)| it.launch == launch);
        own.any(|(at, it)| round < it.rounds.max(1) && !self.finished.contains(&(at, round)))
    }

    /// An engine is started. Once more for the same round costs time, and is no other start.
    pub(super) fn start(&mut self, launch: usize, round: u32, now: Duration) {
        self.starting = Some(now);
        if let Some((parts, starts)) = self.lost.remove(&launch) {
            self.tally.lost -= parts;
            self.tally.starts_left += starts;
        }
        if self.started.insert((launch, round)) {
            self.tally.starts_left = self.tally.starts_left.saturating_sub(1);
        }
    }

    /// An engine is ready, or has failed to be.
    pub(super) fn ready(&mut self, now: Duration) {
        let Some(began) = self.starting.take() else { return };
        let took = now.saturating_sub(began);
        self.tally.started += 1;
        self.tally.starting += took;
        // The time of cells goes on behind it.
        self.first = self.first.map(|first| first + took);
    }

    /// What a failed launch takes along.
    pub(super) fn lose(&mut self, launch: usize, record: &RunRecord) {
        let own = record.header.cells.iter().enumerate().filter(|(_, it)| it.launch == launch);
        let parts = own
            .flat_map(|(at, it)| (0..it.rounds.max(1)).map(move |round| (at, round)))
            .filter(|part| !self.finished.contains(part))
            .count();
        let starts = (0..record.rounds_of(launch))
            .filter(|round| !self.started.contains(&(launch, *round)))
            .filter(|round| self.is_left(launch, *round, record))
            .count();
        if self.lost.insert(launch, (parts, starts)).is_none() {
            self.tally.lost += parts;
            self.tally.starts_left = self.tally.starts_left.saturating_sub(starts);
        }
    }

    /// All rounds of a cell are over.
    fn settle(&mut self, cell: usize, record: &RunRecord) {
        let rounds = record.header.cells.get(cell).map_or(1, |planned| planned.rounds.max(1));
        self.finished.extend((0..rounds).map(|round| (cell, round)));
    }

    /// Counts a measurement that is finished.
    pub(super) fn take(&mut self, cell: usize, round: u32, record: &RunRecord, now: Duration) {
        let Some(outcome) = record.cells.get(cell) else { return };
        if self.finished.insert((cell, round)) {
            let kind = record.header.cells[cell].kind;
            let state = outcome.rounds.get(round as usize).map_or(&outcome.state, |it| &it.state);
            let measured = matches!(state, CellState::Measured(_));
            self.tally.timed += usize::from(measured && kind != TestKind::Startup);
            self.tally.spent = now.saturating_sub(self.first.unwrap_or(now));
        }
        match outcome.state {
            CellState::NotRun { .. } => {}
            CellState::Measured(_) | CellState::Unfit { .. } | CellState::Broken { .. } => {
                self.settle(cell, record);
                self.weigh(cell, record);
            }
        }
        self.tally.done = self.finished.len();
    }

    /// Counts a cell that is whole as bad, if it is.
    pub(super) fn weigh(&mut self, cell: usize, record: &RunRecord) {
        let verdict = record.cells[cell].judgement.verdict;
        match verdict {
            Verdict::Fail | Verdict::Error => self.bad.insert(cell, verdict),
            Verdict::Pass
            | Verdict::Inconclusive
            | Verdict::Measured
            | Verdict::Skip
            | Verdict::Xfail
            | Verdict::Xpass => self.bad.remove(&cell),
        };
        self.tally.bad = self.bad.keys().filter(|cell| !record.waits(**cell)).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_rest_is_reckoned_by_what_was() {
        let tally = Tally { total: 10, done: 4, timed: 2, spent: S(20), ..Tally::default() };
        assert_eq!(tally.left(), Some(S(60)), "two that were skipped are no measure");
        let lost = Tally { lost: 4, ..tally.clone() };
        assert_eq!(lost.left(), Some(S(20)), "what a failed launch took along is not waited for");
        let starts = Tally { starts_left: 3, started: 2, starting: S(60), ..tally.clone() };
        assert_eq!(starts.left(), Some(S(60 + 90)), "engines that are to be started take time too");
        let tally = Tally { timed: 0, ..tally };
        assert_eq!(tally.left(), None);
        assert_eq!(Tally::default().left(), None);
    }
}
