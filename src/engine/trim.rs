//! Keeping a log from filling the disk: of one that grows without end, the beginning and the end are
//! kept.
//!
//! The program writes into the file itself, always at its end, so the file is cut behind its back.
//! What it writes in the moment of the cut may be lost, in the middle of a log that loses most of it.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::log::LogFile;

/// How often a log's length is looked at.
pub(crate) const PACE: Duration = Duration::from_millis(250);

/// Bytes that are kept.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// A log of more is cut.
    most: u64,
    /// What is left of its beginning, and of its end.
    head: u64,
    tail: u64,
}

const LIMITS: Limits = Limits { most: 64 << 20, head: 1 << 20, tail: 16 << 20 };

/// The log of one program.
pub(crate) struct Trim {
    path: PathBuf,
    /// Where its part of the file begins.
    start: u64,
}

impl Trim {
    /// What follows in the file belongs to the program.
    pub(crate) fn from_here(path: &Path) -> Trim {
        let LogFile { path, start } = LogFile::from_here(path);
        Trim { path, start }
    }

    /// Cuts the log where it is too long. One that can't be cut goes on growing: nobody's measurement
    /// should end for that.
    pub(crate) fn trim(&self) {
        let _ = self.cut(LIMITS);
    }

    fn cut(&self, Limits { most, head, tail }: Limits) -> io::Result<()> {
        let length = std::fs::metadata(&self.path)?.len();
        if length.saturating_sub(self.start) <= most {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        // A link that an engine put in its place may lead to somebody's file, which is not to be cut.
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&self.path)?;
        file.seek(SeekFrom::Start(length - tail))?;
        let mut kept = Vec::with_capacity(tail as usize);
        file.by_ref().take(2 * tail).read_to_end(&mut kept)?;
        // What is kept begins with a whole line, if lines there are.
        let whole = kept.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        kept.drain(..whole);
        let place = self.start + head;
        let gone = length - tail + whole as u64 - place;
        let mut text = format!("\n… {gone} bytes left out: the log grew too long …\n").into_bytes();
        text.append(&mut kept);
        file.write_all_at(&text, place)?;
        file.set_len(place + text.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, vec![b'x'; 4096]).unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "").unwrap();
        let log = Trim::from_here(&path);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        log.cut(Limits { most: 1024, head: 64, tail: 512 }).unwrap_err();
        assert_eq!(std::fs::metadata(&victim).unwrap().len(), 4096);
    }

    #[test]
    fn beginning_and_end_are_kept_however_often_it_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        writeln!(file, "what was there before").unwrap();
        let log = Trim::from_here(&path);
        let limits = Limits { most: 4096, head: 64, tail: 512 };
        for number in 0..10_000 {
            writeln!(file, "line {number}").unwrap();
            log.cut(limits).unwrap();
            assert!(std::fs::metadata(&path).unwrap().len() <= 4096 + 64);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("what was there before\nline 0\nline 1\n"), "{text}");
        assert_eq!(text.matches(" bytes left out: the log grew too long").count(), 1, "{text}");
        // The end is whole: no line is missing since the last cut.
        let (_, end) = text.rsplit_once("…\n").unwrap();
        let numbers: Vec<u32> = end.lines().map(|line| line[5..].parse().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        assert_eq!(numbers.last(), Some(&9999));
        assert!(end.len() >= 400, "{}", end.len());
    }

    #[test]
    fn one_without_line_ends_is_cut_too_and_a_short_one_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Trim::from_here(&path);
        let limits = Limits { most: 4096, head: 64, tail: 512 };
        assert!(log.cut(limits).is_err(), "there is no file yet");
        std::fs::write(&path, vec![b'x'; 4096]).unwrap();
        log.cut(limits).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        std::fs::write(&path, vec![b'x'; 5000]).unwrap();
        log.cut(limits).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n… 4424 bytes left out: the log grew too long …\nxxx"), "{text}");
        assert_eq!(text.matches('x').count(), 64 + 512);
    }
}
