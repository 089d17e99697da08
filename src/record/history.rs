//! The history of a run, as its journal tells it: what is finished and stays so, and what is left.
//!
//! A cell is finished with its line, whatever its verdict: nothing is measured again until it passes. A
//! launch that failed stays failed with the cells that it took along. Everything else that was cut short
//! is left. Pure: whether and where a run goes on is decided by those who ask.

use std::collections::BTreeSet;

use super::event::Event;
use super::run_record::{CellState, RunRecord};

/// What a session needs to know of those before it. The default is that of a run's first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Earlier {
    /// How many sessions there were.
    pub sessions: usize,
    /// Cells that are finished, with the round.
    pub finished: BTreeSet<(usize, u32)>,
    /// Cells that no further round can mend: something broke in one, or they don't fit.
    pub over: BTreeSet<usize>,
    /// Those of them in which the engine died.
    pub died: BTreeSet<usize>,
    /// Launches that failed.
    pub failed: BTreeSet<usize>,
    /// Engines that were started again after they had died, by launch; launches without one may be
    /// missing.
    pub restarts: Vec<usize>,
}

impl Earlier {
    /// How often the engine of a launch was started again.
    pub fn restarts(&self, launch: usize) -> usize {
        self.restarts.get(launch).copied().unwrap_or(0)
    }
}

/// A run as its journal tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The record so far.
    pub record: RunRecord,
    /// What the next session needs to know.
    pub earlier: Earlier,
    /// Seconds that all sessions took, as far as they tell.
    pub seconds: f64,
    /// Whether the run went to its end; one that was stopped early did not.
    pub ended: bool,
}

impl History {
    /// Reads it out of the events of a journal; `None` without a header.
    pub fn of(events: &[Event]) -> Option<History> {
        let Some(Event::RunStarted(header)) = events.first() else { return None };
        let mut record = RunRecord::new((**header).clone());
        let mut earlier =
            Earlier { sessions: 1, restarts: vec![0; record.launches.len()], ..Earlier::default() };
        // Of the session that is being read: seconds, and the last start of each launch.
        let mut seconds = 0.0;
        let mut before = 0.0;
        let mut ended = false;
        let mut ordinals = vec![0; record.launches.len()];
        for event in &events[1..] {
            record.apply(event);
            if let Some(at) = reached(event, seconds) {
                seconds = at;
            }
            match event {
                Event::RunResumed { session, after, .. } => {
                    earlier.sessions = session + 1;
                    settle(&mut earlier.restarts, &mut ordinals);
                    (before, seconds, ended) = (*after, 0.0, false);
                }
                Event::LaunchStarted { launch, ordinal, .. } => {
                    if let Some(last) = ordinals.get_mut(*launch) {
                        if *ordinal == 0 {
                            // The next round counts anew.
                            earlier.restarts[*launch] += std::mem::take(last);
                        }
                        *last = (*ordinal).max(*last);
                    }
                }
                Event::RunFinished { stopped, .. } => ended = stopped.is_none(),
                Event::RunStarted(_)
                | Event::LaunchStep { .. }
                | Event::LaunchReady { .. }
                | Event::LaunchFailed { .. }
                | Event::LaunchStopped { .. }
                | Event::CellStarted { .. }
                | Event::CellPhase { .. }
                | Event::CellFinished { .. }
                | Event::Warning { .. } => {}
            }
        }
        settle(&mut earlier.restarts, &mut ordinals);
        for (index, cell) in record.cells.iter().enumerate() {
            let ran = |state: &CellState| !matches!(state, CellState::NotRun { .. });
            if cell.rounds.is_empty() {
                if ran(&cell.state) {
                    earlier.finished.insert((index, 0));
                }
                continue;
            }
            let rounds = (0..).zip(&cell.rounds).filter(|(_, round)| ran(&round.state));
            earlier.finished.extend(rounds.map(|(round, _)| (index, round)));
            if matches!(cell.state, CellState::Broken { .. } | CellState::Unfit { .. }) {
                earlier.over.insert(index);
            }
        }
        let died = |index: &usize| {
            matches!(&record.cells[*index].state,
                CellState::Broken { class, .. } if class == "engine-died")
        };
        earlier.died = (0..record.cells.len()).filter(died).collect();
        let failed = |index: &usize| record.launches[*index].failure.is_some();
        earlier.failed = (0..record.launches.len()).filter(failed).collect();
        Some(History { record, earlier, seconds: before + seconds, ended })
    }
}

/// Adds the restarts of a session to those before it.
fn settle(restarts: &mut [usize], ordinals: &mut [usize]) {
    for (sum, last) in restarts.iter_mut().zip(ordinals) {
        *sum += std::mem::take(last);
    }
}

/// How far a session was when an event happened, where it tells; `now` is what was known before.
fn reached(event: &Event, now: f64) -> Option<f64> {
    let at = match event {
        Event::LaunchStarted { at, .. }
        | Event::LaunchStep { at, .. }
        | Event::LaunchStopped { at, .. }
        | Event::CellStarted { at, .. }
        | Event::RunFinished { at, .. } => *at,
        // A cell begins when the last event happened, and its end has no other stamp.
        Event::CellFinished { seconds, .. } => now + seconds,
        Event::RunStarted(_)
        | Event::RunResumed { .. }
        | Event::LaunchReady { .. }
        | Event::LaunchFailed { .. }
        | Event::CellPhase { .. }
        | Event::Warning { .. } => return None,
    };
    at.is_finite().then_some(at.max(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::event::StopReason;
    use crate::record::run_record::LaunchFailure;
    use crate::record::run_record::tests::header;

    fn started(launch: usize, ordinal: usize, at: f64) -> Event {
        Event::LaunchStarted { round: 0, launch, command: Vec::new(), log: None, ordinal, at }
    }

    fn finished(cell: usize) -> Event {
        let state = CellState::Broken { class: "engine-died".into(), message: "gone".into() };
        Event::CellFinished { round: 0, cell, state, seconds: 2.0 }
    }

    fn resumed(session: usize, after: f64) -> Event {
        Event::RunResumed { session, started: String::new(), after }
    }

    fn ended(stopped: Option<StopReason>) -> Event {
        Event::RunFinished { signal: None, stopped, at: 9.0 }
    }

    fn failed(launch: usize) -> Event {
        let failure = LaunchFailure {
            step: "process".into(),
            message: "no".into(),
            exit: None,
            log_tail: Vec::new(),
            mismatch: false,
            seconds: 0.0,
        };
        Event::LaunchFailed { launch, failure }
    }

    /// Two launches, the first with two cells, the second with one.
    fn of(events: &[Event]) -> History {
        let first = Event::RunStarted(Box::new(header()));
        History::of(&[&[first], events].concat()).unwrap()
    }

    #[test]
    fn a_cell_is_finished_with_its_line_and_not_by_an_interruption() {
        assert_eq!(History::of(&[]), None);
        let cut = of(&[started(0, 0, 1.0), finished(0), ended(Some(StopReason::Signal))]);
        assert_eq!(cut.earlier.finished, BTreeSet::from([(0, 0)]));
        assert!(!cut.ended && of(&[ended(None)]).ended);
        let on = of(&[ended(Some(StopReason::TimeLimit)), resumed(1, 9.0), finished(2)]);
        assert_eq!((on.earlier.sessions, on.ended), (2, false));
        assert_eq!(on.earlier.finished, BTreeSet::from([(2, 0)]));
    }

    #[test]
    fn a_failed_launch_stays_failed() {
        let history = of(&[started(0, 0, 1.0), failed(0), ended(Some(StopReason::Signal))]);
        assert_eq!(history.earlier.failed, BTreeSet::from([0]));
        assert_eq!(history.earlier.finished, BTreeSet::new());
    }

    #[test]
    fn restarts_add_up_over_sessions() {
        let first = [started(0, 0, 1.0), started(0, 1, 2.0), started(0, 2, 3.0)];
        let second = [resumed(1, 3.0), started(0, 0, 0.0), started(0, 1, 1.0), started(1, 0, 2.0)];
        let earlier = of(&[&first[..], &second[..]].concat()).earlier;
        assert_eq!(earlier.restarts, [3, 0]);
        assert_eq!((earlier.restarts(0), earlier.restarts(7)), (3, 0));
    }

    #[test]
    fn seconds_add_up_as_far_as_they_are_told() {
        let cut = of(&[
            started(0, 0, 1.0),
            Event::CellStarted { round: 0, cell: 0, at: 4.0 },
            finished(0),
        ]);
        assert_eq!(cut.seconds, 6.0);
        let on = of(&[resumed(1, 6.0), started(0, 0, 0.5), ended(None)]);
        assert_eq!((on.seconds, on.record.seconds), (15.0, Some(15.0)));
    }
}
