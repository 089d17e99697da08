//! Reading the files that live beside a suite, baselines and noise files: each way in which one can be
//! wrong has words of its own.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{Baseline, FORMAT, Line};

/// A kind of file that lives beside a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Recorded runs.
    Baseline,
    /// What a calibration told.
    Noise,
}

impl std::fmt::Display for Kept {
    /// As messages name it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kept::Baseline => "baseline",
            Kept::Noise => "noise file",
        })
    }
}

impl Kept {
    /// The key of its first line.
    fn key(self) -> &'static str {
        match self {
            Kept::Baseline => "baseline",
            Kept::Noise => "noise",
        }
    }

    /// Whether a file is one of this kind, whatever is wrong with it, or has nothing in it: what is written in
    /// its place then takes nothing else away.
    pub fn may_replace(self, path: &Path) -> bool {
        let Ok(bytes) = std::fs::read(path) else { return false };
        let text = String::from_utf8_lossy(&bytes);
        let Some(first) = text.lines().find(|line| !line.trim().is_empty()) else { return true };
        first.trim_start().starts_with(&format!("{{\"{}\":", self.key()))
            || first.starts_with(POINTER)
            || MARKERS.iter().any(|marker| first.starts_with(marker))
    }

    fn anew(self) -> &'static str {
        match self {
            Kept::Baseline => "take it from git again, or record it anew",
            Kept::Noise => "take it from git again, or calibrate anew",
        }
    }
}

/// Why a file can't be used: a run can't be held against it, or judged by it.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// There is none.
    #[error("there is no {kind} {}", path.display())]
    Absent {
        /// What it was to be.
        kind: Kept,
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
        /// What it was to be.
        kind: Kept,
        /// The file.
        path: PathBuf,
        /// The last line.
        line: usize,
    },
    /// A value is no number.
    #[error("{}:{line} has a value that is no number (`{word}`)", path.display())]
    NoNumber {
        /// What it is.
        kind: Kept,
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What stands there.
        word: &'static str,
    },
    /// A line is none of such a file.
    #[error("{}:{line} is no line of a {kind}: {why}", path.display())]
    Line {
        /// What it was to be.
        kind: Kept,
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// Why.
        why: String,
    },
    /// The first line does not say what it is of.
    #[error("{} is no {kind}: its first line does not say what it is of", path.display())]
    Headless {
        /// What it was to be.
        kind: Kept,
        /// The file.
        path: PathBuf,
    },
    /// Another version of tokgate wrote it.
    #[error("{} has format {found}, this tokgate reads format {reads}", path.display())]
    Format {
        /// What it is.
        kind: Kept,
        /// The file.
        path: PathBuf,
        /// The format in it.
        found: u64,
        /// The format of this version.
        reads: u32,
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
    /// A cell of a test of which the file does not say how it was measured.
    #[error("{}:{line} is of test `{test}`, of which the file has no line", path.display())]
    Untold {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// The test.
        test: String,
    },
    /// One launch does not show how launches differ.
    #[error("{}:{line} has fewer than two launches: one shows no noise", path.display())]
    Few {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
    /// A spread by which nothing can be judged.
    #[error("{}:{line} has a spread of {spread}: by it every difference would be proven, or none", path.display())]
    Spread {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What stands there.
        spread: f64,
    },
}

impl BaselineError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            BaselineError::Absent { kind: Kept::Baseline, .. } => {
                "`tokgate baseline record SUITE --runs 5` writes it; `on-missing` of [baseline] can let it pass"
            }
            BaselineError::Absent { kind: Kept::Noise, .. } => {
                "`tokgate calibrate SUITE` writes it; `on-missing = \"skip\"` in [baseline] has each cell judged by its own noise"
            }
            BaselineError::File { .. } => "make it readable, or name another file",
            BaselineError::Pointer { .. } => {
                "`git lfs pull` fetches what is checked out; of another revision git itself must hold the file: take baselines out of LFS, they are small"
            }
            BaselineError::Conflict { .. } => {
                "keep one of the two, line by line, and remove the markers; or record it anew"
            }
            BaselineError::Torn { kind, .. } => kind.anew(),
            BaselineError::NoNumber { kind: Kept::Baseline, .. } => {
                "remove that value, or record it anew: nothing can be held against it"
            }
            BaselineError::NoNumber { kind: Kept::Noise, .. } => {
                "remove that line, or calibrate anew: nothing can be judged by it"
            }
            BaselineError::Line { kind: Kept::Baseline, .. }
            | BaselineError::Headless { kind: Kept::Baseline, .. } => {
                "`tokgate baseline record` and `promote` write these files; take it from git again"
            }
            BaselineError::Line { kind: Kept::Noise, .. }
            | BaselineError::Headless { kind: Kept::Noise, .. } => {
                "`tokgate calibrate` writes these files; take it from git again"
            }
            BaselineError::Format { kind: Kept::Baseline, .. } => {
                "use the tokgate that wrote it, or record it anew"
            }
            BaselineError::Format { kind: Kept::Noise, .. } => {
                "use the tokgate that wrote it, or calibrate anew"
            }
            BaselineError::Twice { .. } => "remove one of the two lines",
            BaselineError::Stray { .. } => {
                "take the run's line from git again, or remove the value"
            }
            BaselineError::Untold { .. } => {
                "take the test's line from git again: without it nobody knows whether it was measured in the same way"
            }
            BaselineError::Few { .. } | BaselineError::Spread { .. } => {
                "calibrate that cell anew with `tokgate calibrate SUITE -E …`, or remove the line"
            }
        }
    }
}

/// How a pointer of Git LFS begins, in all versions of its format.
const POINTER: &str = "version https://git-lfs.github.com/spec/";

/// Signs that git leaves where two branches changed the same lines.
const MARKERS: [&str; 4] = ["<<<<<<<", "=======", ">>>>>>>", "|||||||"];

/// One line of such a file.
pub(in crate::record) trait Entry: DeserializeOwned {
    /// What it is a line of.
    const KIND: Kept;
    /// The format that this version reads.
    const FORMAT: u32;
    /// The format that it says, of a first line.
    fn format(&self) -> Option<u32>;
    /// What it tells, so that telling it twice shows.
    fn what(&self) -> String;
}

impl Entry for Line {
    const KIND: Kept = Kept::Baseline;
    const FORMAT: u32 = FORMAT;

    fn format(&self) -> Option<u32> {
        match self {
            Line::Baseline(head) => Some(head.format),
            Line::Test(_) | Line::Run(_) | Line::Cell(_) => None,
        }
    }

    fn what(&self) -> String {
        match self {
            Line::Baseline(_) => "what it is of".to_owned(),
            Line::Test(test) => format!("test {}", test.name),
            Line::Run(run) => format!("run {}", run.id),
            Line::Cell(cell) => cell.key().to_string(),
        }
    }
}

/// The text of a file.
///
/// # Errors
/// There is none, or it can't be read.
pub(in crate::record) fn text(path: &Path, kind: Kept) -> Result<String, BaselineError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(BaselineError::Absent { kind, path: path.to_owned() })
        }
        Err(source) => Err(BaselineError::File { path: path.to_owned(), source }),
    }
}

/// The lines of a text with their numbers, the first of which says what it is of; `path` is for messages.
///
/// # Errors
/// The first thing that is wrong with it.
pub(in crate::record) fn entries<E: Entry>(
    path: &Path,
    text: &str,
) -> Result<Vec<(usize, E)>, BaselineError> {
    let of = || path.to_owned();
    let kind = E::KIND;
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(marker) = MARKERS.iter().find(|marker| line.starts_with(*marker)) {
            let marker = (*marker).to_owned();
            return Err(BaselineError::Conflict { path: of(), line: at + 1, marker });
        }
    }
    let whole = text.ends_with('\n');
    let torn = |line| BaselineError::Torn { kind, path: of(), line };
    let mut found: Vec<(usize, E)> = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let number = at + 1;
        if line.trim().is_empty() {
            continue;
        }
        let parsed = match serde_json::from_str::<E>(line) {
            Ok(parsed) => parsed,
            Err(_) if number == lines.len() && !whole => return Err(torn(number)),
            Err(error) => return Err(wrong::<E>(path, number, line, &error)),
        };
        match parsed.format() {
            Some(format) if format != E::FORMAT => {
                let (found, reads) = (format.into(), E::FORMAT);
                return Err(BaselineError::Format { kind, path: of(), found, reads });
            }
            None if found.is_empty() => return Err(BaselineError::Headless { kind, path: of() }),
            Some(_) | None => {}
        }
        let what = parsed.what();
        if let Some(&first) = seen.get(&what) {
            return Err(BaselineError::Twice { path: of(), line: number, first, what });
        }
        seen.insert(what, number);
        found.push((number, parsed));
    }
    if found.is_empty() && (whole || text.is_empty()) {
        return Err(BaselineError::Headless { kind, path: of() });
    }
    if !whole {
        return Err(torn(lines.len()));
    }
    Ok(found)
}

impl Baseline {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(path: &Path) -> Result<Baseline, BaselineError> {
        Baseline::parse(path, &text(path, Kept::Baseline)?)
    }

    /// Takes a text apart; `path` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Baseline, BaselineError> {
        if text.starts_with(POINTER) {
            return Err(BaselineError::Pointer { path: path.to_owned() });
        }
        let mut read = Baseline::new("", Default::default());
        for (line, entry) in entries::<Line>(path, text)? {
            match entry {
                Line::Baseline(head) => read.head = head,
                Line::Test(test) => {
                    read.tests.insert(test.name, test.workload);
                }
                Line::Run(run) => read.runs.push(run),
                Line::Cell(cell) => {
                    let unknown = |id: &&String| !read.runs.iter().any(|run| run.id == **id);
                    // Lines of tests and runs stand above all cells.
                    if !read.tests.contains_key(&cell.test) {
                        let (path, test) = (path.to_owned(), cell.test);
                        return Err(BaselineError::Untold { path, line, test });
                    }
                    if let Some(run) = cell.values.keys().find(unknown) {
                        let (path, run) = (path.to_owned(), run.clone());
                        return Err(BaselineError::Stray { path, line, run });
                    }
                    read.cells.push(cell);
                }
            }
        }
        read.settle();
        Ok(read)
    }
}

/// A line that can't be read: a word of a number that JSON lacks, another format, or whatever else.
fn wrong<E: Entry>(
    path: &Path,
    line: usize,
    text: &str,
    error: &serde_json::Error,
) -> BaselineError {
    let (kind, path) = (E::KIND, path.to_owned());
    let values = unquoted(text);
    let words: BTreeSet<&str> = values.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let numbers = ["NaN", "nan", "Infinity", "inf", "null"];
    if let Some(word) = numbers.into_iter().find(|word| words.contains(word)) {
        return BaselineError::NoNumber { kind, path, line, word };
    }
    let head = serde_json::from_str::<serde_json::Value>(text).ok();
    let found = head.and_then(|head| head[kind.key()]["format"].as_u64());
    if let Some(found) = found.filter(|found| *found != u64::from(E::FORMAT)) {
        return BaselineError::Format { kind, path, found, reads: E::FORMAT };
    }
    BaselineError::Line { kind, path, line, why: error.to_string() }
}

/// What of a line of JSON stands outside of quotes: an axis may have a value `inf`.
fn unquoted(text: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    text.chars()
        .filter(|c| {
            let was = quoted;
            quoted ^= *c == '"' && !escaped;
            escaped = was && *c == '\\' && !escaped;
            !was
        })
        .collect()
}
