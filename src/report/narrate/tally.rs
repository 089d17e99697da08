//! The tally of a run: how many of its measurements and engine starts are done, and how long the rest takes.
//!
//! It counts what it is told of, cells by rounds, and decides no words.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::RunRecord;
use crate::record::run_record::CellState;

use super::forecast::{Forecast, Guess};

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
    /// Starts of engines that are still to come.
    pub starts_left: usize,
}

impl Tally {
    /// What is counted: `cells`, or `measurements` where cells have several.
    pub fn unit(&self) -> &'static str {
        if self.total == self.cells { "cells" } else { "measurements" }
    }
}

/// How far the launch under way is: one start of an engine, and what is measured on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Here {
    /// Measurements that it has, and those of them that are finished.
    pub total: usize,
    /// Those.
    pub done: usize,
    /// How long the rest of them takes, if that can be said.
    pub left: Option<Duration>,
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
    lost: HashMap<usize, (Vec<(usize, u32)>, usize)>,
    /// The engine that is being started, and since when.
    starting: Option<(usize, Duration)>,
    /// Starts so far, and the time from each to a ready engine.
    starts: u32,
    took: Duration,
    /// The launch and round under way, with the measurements that it still has to do by kind.
    here: Option<(usize, u32)>,
    parts: (usize, usize),
    ahead: HashMap<TestKind, f64>,
    forecast: Forecast,
    /// Whether a guess is told before anything was timed: a simulated engine has another clock.
    guessed: bool,
}

impl Progress {
    /// A tally that says from the first how long it will take.
    pub(super) fn expecting(guess: Guess) -> Progress {
        Progress { forecast: Forecast::of(guess), ..Progress::default() }
    }

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
        self.guessed = !record.header.virtual_time;
        for (cell, planned) in record.header.cells.iter().enumerate() {
            let parts =
                (0..planned.rounds.max(1)).filter(|at| !self.finished.contains(&(cell, *at)));
            let work = self.forecast.weight(cell) * parts.count() as f64;
            self.forecast.add(planned.kind, work);
        }
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
    pub(super) fn start(&mut self, launch: usize, round: u32, record: &RunRecord, now: Duration) {
        self.starting = Some((launch, now));
        if let Some((parts, starts)) = self.lost.remove(&launch) {
            self.tally.lost -= parts.len();
            self.tally.starts_left += starts;
            parts.iter().for_each(|(cell, _)| self.weigh_in(*cell, 1.0, record));
        }
        if self.started.insert((launch, round)) {
            self.tally.starts_left = self.tally.starts_left.saturating_sub(1);
        }
        self.here = Some((launch, round));
        (self.parts, self.ahead) = ((0, 0), HashMap::new());
        for (cell, planned) in record.header.cells.iter().enumerate() {
            if planned.launch != launch || round >= planned.rounds.max(1) {
                continue;
            }
            self.parts.1 += 1;
            if self.finished.contains(&(cell, round)) {
                self.parts.0 += 1;
            } else {
                *self.ahead.entry(planned.kind).or_default() += self.forecast.weight(cell);
            }
        }
    }

    /// An engine is ready, or has failed to be.
    pub(super) fn ready(&mut self, now: Duration) {
        let Some((_, began)) = self.starting.take() else { return };
        self.starts += 1;
        self.took += now.saturating_sub(began);
    }

    /// A measurement begins.
    pub(super) fn begin(&mut self, cell: usize, record: &RunRecord, now: Duration) {
        if let Some(planned) = record.header.cells.get(cell) {
            self.forecast.begin(planned.kind, cell, now);
        }
    }

    fn weigh_in(&mut self, cell: usize, sign: f64, record: &RunRecord) {
        let kind = record.header.cells[cell].kind;
        self.forecast.add(kind, sign * self.forecast.weight(cell));
    }

    /// How long a start takes: as those before did, else as it was guessed.
    fn start_time(&self, launch: usize) -> Duration {
        match self.starts {
            0 => self.forecast.start(launch).unwrap_or_default(),
            starts => self.took / starts,
        }
    }

    /// What is left of the start under way.
    fn start_left(&self, now: Duration) -> Duration {
        let left = self.starting.map(|(launch, began)| {
            self.start_time(launch).saturating_sub(now.saturating_sub(began))
        });
        left.unwrap_or_default()
    }

    /// How long the rest of the run takes: measurements and starts of engines.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        let parts = self.forecast.left(self.guessed, now)?;
        let launch = self.here.map_or(0, |(launch, _)| launch);
        let starts = self.start_time(launch).saturating_mul(self.tally.starts_left as u32);
        Some(parts + starts + self.start_left(now))
    }

    /// The launch under way.
    pub(super) fn here(&self, now: Duration) -> Here {
        let (done, total) = self.parts;
        let parts = self.forecast.time(&self.ahead, self.guessed, now);
        Here { total, done, left: parts.map(|parts| parts + self.start_left(now)) }
    }

    /// What a failed launch takes along.
    pub(super) fn lose(&mut self, launch: usize, record: &RunRecord) {
        let own = record.header.cells.iter().enumerate().filter(|(_, it)| it.launch == launch);
        let parts: Vec<(usize, u32)> = own
            .flat_map(|(at, it)| (0..it.rounds.max(1)).map(move |round| (at, round)))
            .filter(|part| !self.finished.contains(part))
            .collect();
        let starts = (0..record.rounds_of(launch))
            .filter(|round| !self.started.contains(&(launch, *round)))
            .filter(|round| self.is_left(launch, *round, record))
            .count();
        if self.lost.contains_key(&launch) {
            return;
        }
        self.tally.lost += parts.len();
        self.tally.starts_left = self.tally.starts_left.saturating_sub(starts);
        parts.iter().for_each(|(cell, _)| self.weigh_in(*cell, -1.0, record));
        self.ahead.clear();
        self.lost.insert(launch, (parts, starts));
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
            // What was skipped says nothing about the rest.
            let measured = matches!(state, CellState::Measured(_));
            self.forecast.end(kind, cell, measured && kind != TestKind::Startup, now);
            if self.here == Some((record.header.cells[cell].launch, round)) {
                self.parts.0 += 1;
                *self.ahead.entry(kind).or_default() -= self.forecast.weight(cell);
            }
        }
        match outcome.state {
            CellState::NotRun { .. } => {}
            CellState::Measured(_) | CellState::Unfit { .. } | CellState::Broken { .. } => {
                let before = self.finished.len();
                self.settle(cell, record);
                // Rounds that a cell which broke does without.
                (before..self.finished.len()).for_each(|_| self.weigh_in(cell, -1.0, record));
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
