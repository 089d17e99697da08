//! Reading a noise file: beside what can be wrong with any file beside a suite, spreads by which
//! nothing can be judged.

use std::path::Path;

use super::{FORMAT, LEAST_LAUNCHES, LEAST_SPREAD, Line, NoiseFile, NoiseLine};
use crate::record::baseline::{BaselineError, Entry, Kept, entries, text};
use crate::record::provenance::Provenance;

/// The greatest spread that a file may tell: launches that differ by factors of thousands have no value that
/// anything could be held against.
const MOST_SPREAD: f64 = 10.0;

impl Entry for Line {
    const KIND: Kept = Kept::Noise;
    const FORMAT: u32 = FORMAT;

    fn format(&self) -> Option<u32> {
        match self {
            Line::Noise(head) => Some(head.format),
            Line::Test(_) | Line::Run(_) | Line::Cell(_) => None,
        }
    }

    fn what(&self) -> String {
        match self {
            Line::Noise(_) => "what it is of".to_owned(),
            Line::Test(test) => format!("test {}", test.name),
            Line::Run(run) => format!("run {}", run.id),
            Line::Cell(line) => line.key().to_string(),
        }
    }
}

impl NoiseFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path) -> Result<NoiseFile, BaselineError> {
        NoiseFile::parse(path, &text(path, Kept::Noise)?)
    }

    /// Takes a text apart; `path` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<NoiseFile, BaselineError> {
        let mut read = NoiseFile::new("", &Provenance::default());
        for (number, entry) in entries::<Line>(path, text)? {
            match entry {
                Line::Noise(head) => read.head = head,
                Line::Test(test) => {
                    read.tests.insert(test.name, test.workload);
                }
                Line::Run(run) => read.runs.push(run),
                Line::Cell(line) => {
                    // Lines of tests and calibrations stand above all cells.
                    if !read.tests.contains_key(&line.test) {
                        let (path, test) = (path.to_owned(), line.test);
                        return Err(BaselineError::Untold { path, line: number, test });
                    }
                    if !read.runs.iter().any(|run| run.id == line.run) {
                        let (path, run) = (path.to_owned(), line.run);
                        return Err(BaselineError::Stray { path, line: number, run });
                    }
                    usable(path, number, &line)?;
                    read.lines.insert(line.key(), line);
                }
            }
        }
        read.settle();
        Ok(read)
    }
}

/// Whether something can be judged by a line.
fn usable(path: &Path, number: usize, line: &NoiseLine) -> Result<(), BaselineError> {
    let launches = line.values.len();
    let path = path.to_owned();
    if launches < LEAST_LAUNCHES {
        return Err(BaselineError::Few { path, line: number });
    }
    if line.df as usize != launches - 1 {
        let why = format!("`df` is {} of {launches} values, and it is one less", line.df);
        return Err(BaselineError::Line { kind: Kept::Noise, path, line: number, why });
    }
    if !(LEAST_SPREAD..=MOST_SPREAD).contains(&line.sd) {
        return Err(BaselineError::Spread { path, line: number, spread: line.sd });
    }
    Ok(())
}
