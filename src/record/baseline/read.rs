//! Reading a baseline: each way in which a file can be wrong has words of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Baseline, FORMAT, Line};

/// Why a file is no baseline that a run can be held against.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// There is none.
    #[error("there is no baseline {}", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// It can't be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is what Git LFS leaves in the place of a file.
    #[error("{} is a pointer of Git LFS, and not the file itself", path.display())]
    Pointer {
        /// The file.
        path: PathBuf,
    },
    /// Two branches changed the same lines.
    #[error("{}:{line} is a marker of a merge conflict, `{marker}`", path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// The marker.
        marker: String,
    },
    /// It ends in the midst of a line.
    #[error("{} is cut short: line {line} ends in the midst", path.display())]
    Torn {
        /// The file.
        path: PathBuf,
        /// The last line.
        line: usize,
    },
    /// A value is no number.
    #[error("{}:{line} has a value that is no number (`{word}`)", path.display())]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What stands there.
        word: &'static str,
    },
    /// A line is none of a baseline.
    #[error("{}:{line} is no line of a baseline: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// Why.
        why: String,
    },
    /// The first line does not say what it is of.
    #[error("{} is no baseline: its first line does not say what it is of", path.display())]
    Headless {
        /// The file.
        path: PathBuf,
    },
    /// Another version of tokgate wrote it.
    #[error("{} has format {found}, this tokgate reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format in it.
        found: u64,
    },
    /// One thing is said twice.
    #[error("{}:{line} says again what line {first} says: {what}", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The second.
        line: usize,
        /// The first.
        first: usize,
        /// What.
        what: String,
    },
    /// A value of a run that the file does not have.
    #[error("{}:{line} has a value of run {run}, of which the file has no line", path.display())]
    Stray {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// The run.
        run: String,
    },
}

impl BaselineError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            BaselineError::Absent { .. } => {
                "`tokgate baseline record SUITE --runs 5` writes it; `on-missing` of [baseline] can let it pass"
            }
            BaselineError::File { .. } => "make it readable, or name another file",
            BaselineError::Pointer { .. } => {
                "`git lfs pull` fetches what is checked out; of another revision git itself must hold the file: take baselines out of LFS, they are small"
            }
            BaselineError::Conflict { .. } => {
                "keep one of the two, line by line, and remove the markers; or record it anew"
            }
            BaselineError::Torn { .. } => "take it from git again, or record it anew",
            BaselineError::NoNumber { .. } => {
                "remove that value, or record it anew: nothing can be held against it"
            }
            BaselineError::Line { .. } | BaselineError::Headless { .. } => {
                "`tokgate baseline record` and `promote` write these files; take it from git again"
            }
            BaselineError::Format { .. } => "use the tokgate that wrote it, or record it anew",
            BaselineError::Twice { .. } => "remove one of the two lines",
            BaselineError::Stray { .. } => {
                "take the run's line from git again, or remove the value"
            }
        }
    }
}

/// How a pointer of Git LFS begins, in all versions of its format.
const POINTER: &str = "version https://git-lfs.github.com/spec/";

/// Signs that git leaves where two branches changed the same lines.
const MARKERS: [&str; 4] = ["<<<<<<<", "=======", ">>>>>>>", "|||||||"];

impl Baseline {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path) -> Result<Baseline, BaselineError> {
        match std::fs::read(path) {
            Ok(bytes) => Baseline::parse(path, &String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(BaselineError::Absent { path: path.to_owned() })
            }
            Err(source) => Err(BaselineError::File { path: path.to_owned(), source }),
        }
    }

    /// Takes a text apart; `path` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Baseline, BaselineError> {
        let of = || path.to_owned();
        if text.starts_with(POINTER) {
            return Err(BaselineError::Pointer { path: of() });
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if let Some(marker) = MARKERS.iter().find(|marker| line.starts_with(*marker)) {
                let marker = (*marker).to_owned();
                return Err(BaselineError::Conflict { path: of(), line: at + 1, marker });
            }
        }
        let whole = text.ends_with('\n');
        let mut read = Baseline::new("", Default::default());
        let mut headed = false;
        let mut seen: Vec<(String, usize)> = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let number = at + 1;
            let last = number == lines.len();
            if line.trim().is_empty() {
                continue;
            }
            let parsed = match serde_json::from_str::<Line>(line) {
                Ok(parsed) => parsed,
                Err(_) if last && !whole => {
                    return Err(BaselineError::Torn { path: of(), line: number });
                }
                Err(error) => return Err(wrong(path, number, line, &error)),
            };
            let what = match &parsed {
                Line::Baseline(head) if u64::from(head.format) != u64::from(FORMAT) => {
                    let found = head.format.into();
                    return Err(BaselineError::Format { path: of(), found });
                }
                Line::Baseline(_) => "what it is of".to_owned(),
                Line::Test(test) => format!("test {}", test.name),
                Line::Run(run) => format!("run {}", run.id),
                Line::Cell(cell) => cell.key().to_string(),
            };
            if !headed && !matches!(parsed, Line::Baseline(_)) {
                return Err(BaselineError::Headless { path: of() });
            }
            if let Some((_, first)) = seen.iter().find(|(known, _)| *known == what) {
                let first = *first;
                return Err(BaselineError::Twice { path: of(), line: number, first, what });
            }
            seen.push((what, number));
            match parsed {
                Line::Baseline(head) => {
                    read.head = head;
                    headed = true;
                }
                Line::Test(test) => {
                    read.tests.insert(test.name, test.workload);
                }
                Line::Run(run) => read.runs.push(run),
                Line::Cell(cell) => {
                    let known = |id: &&String| !read.runs.iter().any(|run| run.id == **id);
                    // A run's line stands above all cells.
                    if let Some(run) = cell.values.keys().find(known) {
                        let run = run.clone();
                        return Err(BaselineError::Stray { path: of(), line: number, run });
                    }
                    read.cells.push(cell);
                }
            }
        }
        if !headed {
            return Err(if whole || text.is_empty() {
                BaselineError::Headless { path: of() }
            } else {
                BaselineError::Torn { path: of(), line: lines.len() }
            });
        }
        if !whole {
            return Err(BaselineError::Torn { path: of(), line: lines.len() });
        }
        read.settle();
        Ok(read)
    }
}

/// A line that can't be read: a word of a number that JSON lacks, another format, or whatever else.
fn wrong(path: &Path, line: usize, text: &str, error: &serde_json::Error) -> BaselineError {
    let path = path.to_owned();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let numbers = ["NaN", "nan", "Infinity", "inf", "null"];
    if let Some(word) = numbers.into_iter().find(|word| words.contains(word)) {
        return BaselineError::NoNumber { path, line, word };
    }
    let head = serde_json::from_str::<serde_json::Value>(text).ok();
    let found = head.and_then(|head| head["baseline"]["format"].as_u64());
    if let Some(found) = found.filter(|found| *found != u64::from(FORMAT)) {
        return BaselineError::Format { path, found };
    }
    BaselineError::Line { path, line, why: error.to_string() }
}
