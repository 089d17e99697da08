//! The onlooker of a run: journal first, then the record, then what people see.
//!
//! It lives on a thread of its own, so that neither a disk nor a terminal delays a stamp. When
//! results can't be written it asks the conductor to halt, and keeps judging in memory: the verdict
//! still reaches stdout.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use crate::record::journal::Journal;
use crate::record::{Event, RunRecord};
use crate::report::files::Pace;
use crate::report::junit::Dialect;
use crate::report::progress::Progress;
use crate::run::{Cause, Halter};

/// What the onlooker needs.
pub struct Onlooker<'a> {
    /// The record that the events are folded into.
    pub record: RunRecord,
    /// How the session began: what the record has taken in and the display has not.
    pub opening: Event,
    /// The journal, already open.
    pub journal: Journal,
    /// The output directory.
    pub out: &'a Path,
    /// The dialect of junit.xml.
    pub dialect: Dialect,
    /// The live display or the quiet lines.
    pub progress: Progress,
    /// Asked when results can't be written.
    pub halter: Halter,
    /// Ends the run after so many failed cells.
    pub max_fail: Option<usize>,
    /// Told of each event that may be a failure once it has been counted.
    pub counted: Option<Sender<()>>,
}

/// What came of it.
pub struct Seen {
    /// The whole record.
    pub record: RunRecord,
    /// Why results could not be written.
    pub unwritten: Option<String>,
}

impl Onlooker<'_> {
    /// Takes events until the conductor has sent its last.
    pub fn watch(mut self, events: Receiver<Event>) -> Seen {
        let mut unwritten = None;
        let mut pace = Pace::default();
        // Whether the reports lack something: an interrupted run says its end before it ends the engine.
        let mut behind = false;
        let began = Instant::now();
        self.progress.see(&self.opening, &self.record);
        while let Ok(event) = events.recv() {
            if unwritten.is_none()
                && let Err(error) = self.journal.append(&event)
            {
                unwritten = Some(error.to_string());
                self.halter.halt(Cause::Unwritable);
            }
            self.record.apply(&event);
            behind = true;
            let last = matches!(event, Event::RunFinished { .. });
            let cell = matches!(event, Event::CellFinished { .. } | Event::LaunchFailed { .. });
            if cell && self.max_fail.is_some_and(|max| failures(&self.record) >= max) {
                self.halter.halt(Cause::MaxFail);
            }
            if let (true, Some(counted)) = (cell, &self.counted) {
                // A conductor that has ended does not wait for it.
                let _ = counted.send(());
            }
            self.progress.see(&event, &self.record);
            if unwritten.is_none() && (last || (cell && pace.due(began.elapsed()))) {
                let before = began.elapsed();
                unwritten = self.write();
                behind = false;
                let took = began.elapsed() - before;
                pace.rendered(began.elapsed(), took);
            }
        }
        if behind && unwritten.is_none() {
            unwritten = self.write();
        }
        self.progress.finish();
        Seen { record: self.record, unwritten }
    }

    /// Writes the reports; says why not where that fails, and asks for the end of the run.
    fn write(&self) -> Option<String> {
        let written = crate::report::write_all(self.out, &self.record, self.dialect);
        written.err().map(|error| {
            self.halter.halt(Cause::Unwritable);
            error.to_string()
        })
    }
}

/// Cells that failed, and launches that failed with no such cell.
pub fn failures(record: &RunRecord) -> usize {
    let cells: Vec<usize> = (0..record.cells.len()).filter(|i| failed(&record.cells[*i])).collect();
    let launches = record.launches.iter().enumerate().filter(|(index, launch)| {
        launch.failure.is_some()
            && !cells.iter().any(|cell| record.header.cells[*cell].launch == *index)
    });
    cells.len() + launches.count()
}

fn failed(cell: &crate::record::run_record::CellOutcome) -> bool {
    use crate::judge::Verdict;
    use crate::record::run_record::CellState;
    let ran = match cell.state {
        CellState::NotRun { .. } => false,
        CellState::Unfit { .. } | CellState::Measured(_) | CellState::Broken { .. } => true,
    };
    ran && matches!(cell.judgement.verdict, Verdict::Fail | Verdict::Error)
}
