//! The journal: what happened, in order, as JSON Lines that survive whatever ends the run.
//!
//! The first line is the run's header. Each event is one line, written whole; after a header, the
//! begin of a session and a finished cell the bytes are on the disk before the call returns. A cell is
//! finished when its line is whole: a last line without its end is torn, by a crash or a full disk, and
//! never counts. A run that goes on cuts it off and appends; no whole line is ever changed. Phases of
//! cells are for onlookers and are not written.
//!
//! A line that can't be written is owed: it is tried again before the next one, so that a disk that gets
//! room again leaves no gap.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::event::Event;

/// The journal could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the journal {}: {source}", path.display())]
pub struct JournalError {
    /// Which file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No such file, or no leave to read it.
    #[error("cannot read the journal {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A whole line that is no event: something else than a crash wrote into the file.
    #[error("the journal {} is damaged in line {line}: {source}", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It has whole lines, and the first is not a run's header.
    #[error("the journal {} does not begin with the header of a run", path.display())]
    Headless {
        /// Which file.
        path: PathBuf,
    },
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// The events of all whole lines.
    pub events: Vec<Event>,
    /// Bytes of the whole lines.
    pub whole: u64,
    /// Bytes of a torn last line; 0 where the journal ends with a whole one.
    pub torn: u64,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of the whole lines.
    length: u64,
    /// Whether half a line may stand behind them.
    torn: bool,
    /// Lines that are still to be written, and which of them must be on disk before the run goes on.
    owed: VecDeque<(Vec<u8>, bool)>,
}

impl Journal {
    fn at(path: &Path, file: File, length: u64) -> Journal {
        Journal { file, path: path.to_owned(), length, torn: false, owed: VecDeque::new() }
    }

    /// Begins a journal. An existing file is never written over.
    ///
    /// # Errors
    /// The file exists, or can't be made.
    pub fn create(path: &Path) -> Result<Journal, JournalError> {
        let begun = (|| {
            let file = OpenOptions::new().append(true).create_new(true).open(path)?;
            // The name itself must survive a crash too.
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        })();
        match begun {
            Ok(file) => Ok(Journal::at(path, file, 0)),
            Err(source) => Err(JournalError { path: path.to_owned(), source }),
        }
    }

    /// Goes on with a journal whose whole lines have `whole` bytes, as [`read`] said; a torn rest is cut
    /// off.
    ///
    /// # Errors
    /// The file can't be opened, or not be shortened.
    pub fn resume(path: &Path, whole: u64) -> Result<Journal, JournalError> {
        let opened = (|| {
            let file = OpenOptions::new().append(true).open(path)?;
            file.set_len(whole)?;
            file.sync_all()?;
            Ok(file)
        })();
        match opened {
            Ok(file) => Ok(Journal::at(path, file, whole)),
            Err(source) => Err(JournalError { path: path.to_owned(), source }),
        }
    }

    /// Appends an event; phases of cells are passed over.
    ///
    /// # Errors
    /// The line, or one before it, could not be written or flushed. What of it reached the file is taken
    /// back, so that a later line does not follow half a one, and it is owed.
    pub fn append(&mut self, event: &Event) -> Result<(), JournalError> {
        let Some(durable) = durability(event) else { return Ok(()) };
        let mut line = serde_json::to_vec(event).map_err(|error| self.error(error.into()))?;
        line.push(b'\n');
        self.owed.push_back((line, durable));
        self.settle()
    }

    /// Writes the lines that are owed.
    ///
    /// # Errors
    /// As for [`Journal::append`].
    pub fn settle(&mut self) -> Result<(), JournalError> {
        if self.owed.is_empty() {
            return Ok(());
        }
        self.write().map_err(|source| {
            self.torn = self.file.set_len(self.length).is_err();
            self.error(source)
        })
    }

    fn write(&mut self) -> io::Result<()> {
        self.stands()?;
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        while let Some((line, durable)) = self.owed.front() {
            self.file.write_all(line)?;
            if *durable {
                self.file.sync_data()?;
            }
            self.length += line.len() as u64;
            self.owed.pop_front();
        }
        Ok(())
    }

    /// Whether whoever looks for the journal finds this file: one that was removed takes lines that nobody
    /// will ever read.
    fn stands(&self) -> io::Result<()> {
        let mine = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (mine.dev(), mine.ino()) => Ok(()),
            Ok(_) => Err(io::Error::other("another file has taken its place")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it was removed or moved away while the run wrote it",
            )),
            Err(error) => Err(error),
        }
    }

    fn error(&self, source: io::Error) -> JournalError {
        JournalError { path: self.path.clone(), source }
    }
}

/// Whether an event's line must be on disk before the run goes on; `None`: it is not written.
fn durability(event: &Event) -> Option<bool> {
    match event {
        Event::RunStarted(_)
        | Event::RunResumed { .. }
        | Event::CellFinished { .. }
        | Event::RunFinished { .. } => Some(true),
        Event::LaunchStarted { .. }
        | Event::LaunchStep { .. }
        | Event::LaunchReady { .. }
        | Event::LaunchFailed { .. }
        | Event::LaunchStopped { .. }
        | Event::CellStarted { .. }
        | Event::Warning { .. } => Some(false),
        Event::CellPhase { .. } => None,
    }
}

/// Reads a journal: the events of its whole lines, and how much of a last one is torn.
///
/// # Errors
/// The file can't be read, a whole line is no event, or the first is no header.
pub fn read(path: &Path) -> Result<Contents, ReadError> {
    let unreadable = |source| ReadError::File { path: path.to_owned(), source };
    // A pipe in its place would be waited for.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is no file")));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut events = Vec::new();
    for (at, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let event = serde_json::from_slice(line).map_err(|source| ReadError::Corrupt {
            path: path.to_owned(),
            line: at + 1,
            source,
        })?;
        events.push(event);
    }
    match events.first() {
        None | Some(Event::RunStarted(_)) => {
            Ok(Contents { events, whole: whole as u64, torn: (bytes.len() - whole) as u64 })
        }
        Some(
            Event::RunResumed { .. }
            | Event::LaunchStarted { .. }
            | Event::LaunchStep { .. }
            | Event::LaunchReady { .. }
            | Event::LaunchFailed { .. }
            | Event::LaunchStopped { .. }
            | Event::CellStarted { .. }
            | Event::CellPhase { .. }
            | Event::CellFinished { .. }
            | Event::Warning { .. }
            | Event::RunFinished { .. },
        ) => Err(ReadError::Headless { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::run_record::CellState;

    fn header() -> Event {
        let header = serde_json::json!({
            "format": 1, "tokgate": "0.1.0", "run-id": "r", "suite": "s", "path": "s.toml",
            "tags": [], "plan-hash": "h", "seed": 7, "started": "2026-01-01T00:00:00Z",
            "virtual-time": false,
            "machine": { "os": "linux", "kernel": "", "hostname": "", "cpu": "", "cores": 2,
                "memory": 0, "gpus": [], "driver": null, "gpu-note": null },
            "declared": { "model": null, "revision": null, "quantization": null,
                "hardware": null, "engine": "sim" },
            "flags": [],
            "policy": { "alpha": 0.05, "inconclusive": "warn", "unjudged": "warn",
                "max-error-rate": 0.0, "max-client-lag": { "secs": 0, "nanos": 5_000_000 },
                "restarts": 1, "time-limit": null },
            "launches": [], "cells": [],
        });
        Event::RunStarted(Box::new(serde_json::from_value(header).unwrap()))
    }

    fn finished(cell: usize) -> Event {
        let state = CellState::NotRun { reason: "line\nend".into() };
        Event::CellFinished { round: 0, cell, state, seconds: 1.5 }
    }

    fn written(dir: &tempfile::TempDir) -> PathBuf {
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        journal.append(&header()).unwrap();
        journal.append(&Event::CellStarted { round: 0, cell: 0, at: 0.5 }).unwrap();
        let note = Event::CellPhase { cell: 0, phase: "window".into(), note: "12 tokens".into() };
        journal.append(&note).unwrap();
        journal.append(&finished(0)).unwrap();
        path
    }

    #[test]
    fn events_read_back_in_order_without_phases() {
        let dir = tempfile::tempdir().unwrap();
        let contents = read(&written(&dir)).unwrap();
        let expected = [header(), Event::CellStarted { round: 0, cell: 0, at: 0.5 }, finished(0)];
        assert_eq!(contents.events, expected);
        assert_eq!(contents.torn, 0);
    }

    #[test]
    fn every_cut_leaves_whole_events_and_a_torn_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let bytes = std::fs::read(&path).unwrap();
        for end in 0..bytes.len() {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let contents = read(&path).unwrap();
            let lines = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(contents.events.len(), lines);
            assert_eq!(contents.whole + contents.torn, end as u64);
        }
    }

    #[test]
    fn a_damaged_line_is_told_from_a_torn_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(b"{\"cell-fin");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap().torn, 10);
        bytes.extend(b"\n");
        std::fs::write(&path, &bytes).unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("journal.jsonl is damaged in line 4"), "{said}");
        std::fs::write(&path, serde_json::to_string(&finished(0)).unwrap() + "\n").unwrap();
        assert!(matches!(read(&path), Err(ReadError::Headless { .. })));
    }

    #[test]
    fn what_goes_on_keeps_whole_lines_and_cuts_a_torn_one_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"cell-fin"].concat()).unwrap();
        let contents = read(&path).unwrap();
        let mut journal = Journal::resume(&path, contents.whole).unwrap();
        journal.append(&finished(1)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[..whole.len()], whole);
        assert_eq!(read(&path).unwrap().events[3..], [finished(1)]);
        assert!(Journal::resume(&dir.path().join("none"), 0).is_err());
    }

    #[test]
    fn a_journal_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let said = Journal::create(&path).unwrap_err().to_string();
        assert!(said.starts_with(&format!("cannot write the journal {}: ", path.display())));
        assert_eq!(read(&path).unwrap().events.len(), 3);
    }

    #[test]
    fn a_full_disk_is_an_error_with_the_path() {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut journal = Journal::at("/dev/full".as_ref(), full, 0);
        let said = journal.append(&finished(0)).unwrap_err().to_string();
        assert!(said.starts_with("cannot write the journal /dev/full: "), "{said}");
    }

    #[test]
    fn what_could_not_be_written_is_written_before_what_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let mut journal = Journal::resume(&path, read(&path).unwrap().whole).unwrap();
        // Away for a while: the file takes the line, and nobody would find it there.
        let away = dir.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        let said = journal.append(&finished(1)).unwrap_err().to_string();
        assert!(said.contains("removed or moved away"), "{said}");
        std::fs::write(&path, "").unwrap();
        let said = journal.append(&finished(2)).unwrap_err().to_string();
        assert!(said.contains("another file has taken its place"), "{said}");
        std::fs::rename(&away, &path).unwrap();
        journal.settle().unwrap();
        journal.append(&finished(3)).unwrap();
        assert_eq!(read(&path).unwrap().events[3..], [1, 2, 3].map(finished));
    }

    #[test]
    fn half_a_line_is_cut_off_before_the_next_try() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let mut journal = Journal::resume(&path, read(&path).unwrap().whole).unwrap();
        std::fs::write(&path, [std::fs::read(&path).unwrap(), b"{\"cell-f".to_vec()].concat())
            .unwrap();
        journal.torn = true;
        journal.append(&finished(1)).unwrap();
        assert_eq!(read(&path).unwrap().events[3..], [finished(1)]);
    }
}
