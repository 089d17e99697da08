//! GitHub's step summary: what a run came to, added to the file that `GITHUB_STEP_SUMMARY` names.
//!
//! Its words are those of `summary.md`, as many as fit beside what the step has written there already. One
//! that can't be written is a warning: the run is what it is.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::record::RunRecord;
use crate::report::markdown;

use super::say;

const VARIABLE: &str = "GITHUB_STEP_SUMMARY";
/// Bytes of a summary beyond which GitHub drops all of it.
const MOST: u64 = 1 << 20;
/// Bytes below which there is no room for more than a heading.
const LEAST: u64 = 2048;
/// What parts it from what stands before.
const GAP: &str = "\n\n";

/// Why a summary was not added.
#[derive(Debug, thiserror::Error)]
enum Unadded {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no file")]
    Odd,
    #[error("it has {0} of the {MOST} bytes that GitHub takes")]
    Full(u64),
}

/// Adds the summary of a record, if there is a step that takes one.
pub fn add(record: &RunRecord) {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    let path = PathBuf::from(path);
    if let Err(error) = append(&path, record) {
        let path = path.display();
        say(&format!("warning: no summary is added to {path} ({VARIABLE}): {error}"));
    }
}

fn append(path: &Path, record: &RunRecord) -> Result<(), Unadded> {
    // A link is not followed, and a pipe that nobody reads is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = File::options().append(true).create(true).custom_flags(flags).open(path)?;
    let there = file.metadata()?;
    if !there.is_file() {
        return Err(Unadded::Odd);
    }
    let gap = if there.len() == 0 { "" } else { GAP };
    let room = MOST.saturating_sub(there.len() + gap.len() as u64);
    if room < LEAST {
        return Err(Unadded::Full(there.len()));
    }
    let text = markdown::within(record, usize::try_from(room).unwrap_or(usize::MAX));
    Ok(file.write_all(format!("{gap}{text}").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn it_is_added_to_what_is_there_and_never_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary");
        let mut record = fixture::every_verdict();
        let whole = markdown::render(&record);
        append(&path, &record).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        append(&path, &record).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}{GAP}{whole}"));
        // What does not fit is cut, and the end says so.
        let (planned, outcome) = (record.header.cells[1].clone(), record.cells[1].clone());
        record.header.cells.extend(std::iter::repeat_n(planned, 3_000));
        record.cells.extend(std::iter::repeat_n(outcome, 3_000));
        for before in [0, 1, MOST / 2, MOST - 100_000, MOST - LEAST - 2] {
            let other = "x".repeat(usize::try_from(before).unwrap());
            std::fs::write(&path, &other).unwrap();
            append(&path, &record).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.len() as u64 <= MOST, "{before}: {}", text.len());
            let added = text.strip_prefix(&other).unwrap().trim_start();
            assert!(added.starts_with("# FAILED: ") && added.contains("bytes dropped"), "{before}");
            assert_eq!(added.matches("<details>").count(), added.matches("</details>").count());
        }
        let full = "x".repeat(usize::try_from(MOST - LEAST).unwrap());
        std::fs::write(&path, &full).unwrap();
        assert!(matches!(append(&path, &record), Err(Unadded::Full(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), full);
    }

    #[test]
    fn what_is_no_file_is_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("victim"), "mine").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        let record = fixture::page();
        assert!(append(&at("link"), &record).is_err());
        assert!(append(&at("pipe"), &record).is_err());
        // Somebody who reads it makes it no file either.
        let _reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(at("pipe"));
        assert!(matches!(append(&at("pipe"), &record), Err(Unadded::Odd)));
        assert!(append(dir.path(), &record).is_err());
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "mine");
    }
}
