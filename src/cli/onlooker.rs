//! The onlooker of a run: journal first, then the record, then what people see.
//!
//! It lives on a thread of its own, so that neither a disk nor a terminal delays a stamp. The journal is
//! the truth: where it can't be written the conductor is asked to halt, since what is measured from then
//! on may be lost. Reports that can't be written are tried again after later cells and hold up nothing, for
//! the journal has what they would say. In both cases the record goes on in memory, so that the verdict
//! reaches stdout.
//!
//! Some room on the disk is held back. It is let go when no engine is alive that could fill it with its
//! log, and the last lines and reports are written then.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use crate::matrix::Plan;
use crate::record::journal::{Journal, JournalError};
use crate::record::{Event, RunRecord};
use crate::report::Unwritten;
use crate::report::files::{Pace, Room};
use crate::report::junit::Order;
use crate::report::narrate::Guess;
use crate::report::progress::Progress;
use crate::run::{Cause, Halter};

use super::remedy;

/// What the onlooker needs.
pub struct Onlooker<'a> {
    /// The record that the events are folded into.
    pub record: RunRecord,
    /// How the session began: what the record has taken in and the display has not.
    pub opening: Event,
    /// The journal, already open.
    pub journal: Journal,
    /// Room for the end.
    pub room: Room,
    /// The output directory.
    pub out: &'a Path,
    /// What is asked of junit.xml.
    pub order: Order,
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
    /// Why results could not be written, for good.
    pub unwritten: Option<Trouble>,
    /// Why the journal could not be written at first, where that ended the run early.
    pub cut: Option<Trouble>,
}

/// Something that could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Where, and the system's words.
    pub said: String,
    /// What to do about it.
    pub help: String,
}

impl Trouble {
    fn of(said: String, path: &Path, source: &io::Error) -> Trouble {
        Trouble { said, help: remedy::of(path, source) }
    }
}

impl From<JournalError> for Trouble {
    fn from(error: JournalError) -> Trouble {
        Trouble::of(error.to_string(), &error.path, &error.source)
    }
}

impl From<Unwritten> for Trouble {
    fn from(error: Unwritten) -> Trouble {
        Trouble::of(error.to_string(), &error.path, &error.source)
    }
}

impl Onlooker<'_> {
    /// Takes events until the conductor has sent its last.
    pub fn watch(mut self, events: Receiver<Event>) -> Seen {
        // What is wrong now, of the reports; and what was wrong first, of the journal.
        let mut reports: Option<Trouble> = None;
        let mut cut: Option<Trouble> = None;
        let mut pace = Pace::default();
        // Whether the reports lack something: an interrupted run says its end before it ends the engine.
        let mut behind = false;
        let began = Instant::now();
        self.progress.see(&self.opening, &self.record);
        while let Ok(event) = events.recv() {
            if let Err(error) = self.journal.append(&event)
                && cut.is_none()
            {
                self.halter.halt(Cause::Unwritable);
                let trouble = Trouble::from(error);
                self.warn(format!("{}; the run ends", trouble.said));
                cut = Some(trouble);
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
            if last || (cell && pace.due(began.elapsed())) {
                let before = began.elapsed();
                let now = self.write();
                behind = now.is_some();
                if let (Some(trouble), None) = (&now, &reports) {
                    self.warn(format!("{}; tried again after later cells", trouble.said));
                }
                reports = now;
                let took = began.elapsed() - before;
                pace.rendered(began.elapsed(), took);
            }
        }
        // The conductor's last word comes when no engine is left.
        let Onlooker { record, mut journal, room, out, order, progress, .. } = self;
        drop(room);
        let lines = journal.settle().err().map(Trouble::from);
        if behind {
            reports = crate::report::write_all(out, &record, &order).err().map(Trouble::from);
        }
        progress.finish();
        Seen { record, unwritten: lines.or(reports), cut }
    }

    /// Writes the reports; what is wrong where that fails.
    fn write(&self) -> Option<Trouble> {
        let written = crate::report::write_all(self.out, &self.record, &self.order);
        written.err().map(Trouble::from)
    }

    /// Says something that is no part of the record.
    fn warn(&mut self, message: String) {
        self.progress.see(&Event::Warning { message }, &self.record);
    }
}

/// What the parts of a plan are taken to last.
pub fn guess(plan: &Plan) -> Guess {
    Guess {
        cells: plan.cells.iter().map(|cell| plan.estimate(cell)).collect(),
        starts: plan.launches.iter().map(|launch| plan.start_of(launch)).collect(),
    }
}

/// Cells that failed, and launches that failed with no such cell. A cell whose verdict is to come has not
/// failed yet.
pub fn failures(record: &RunRecord) -> usize {
    let failed = |cell: &usize| failed(&record.cells[*cell]) && !record.waits(*cell);
    let cells: Vec<usize> = (0..record.cells.len()).filter(failed).collect();
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
    // What waits for the variant that it is held against has not failed.
    let waits = cell.judgement.class.as_deref() == Some("not-run");
    ran && !waits && matches!(cell.judgement.verdict, Verdict::Fail | Verdict::Error)
}
