//! Report files on disk: written beside, flushed, renamed, so that a reader never meets half a
//! file; and the pace at which they are rewritten during a run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file or directory that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Unwritten {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl Unwritten {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Unwritten {
        let path = path.to_owned();
        |source| Unwritten { path, source }
    }
}

/// Replaces a file by one with these bytes: as a whole or not at all.
///
/// # Errors
/// The directory is missing, not writable or full; then the file is as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Unwritten> {
    replace_with(path, |file| file.write_all(bytes))
}

/// As [`replace`], by one that is written piece by piece.
///
/// # Errors
/// As there, and those of `write`.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Unwritten> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = (|| {
        let mut file = BufWriter::with_capacity(1 << 20, anew(&beside)?);
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_parent(path)
    })();
    if written.is_err() {
        // A leftover would only be noise beside the error itself.
        let _ = std::fs::remove_file(&beside);
    }
    written.map_err(Unwritten::at(path))
}

/// Room on a disk that is held back for the end of a run, when engine logs may have filled the rest.
///
/// It is a file without a name, so that it is free again however the process ends.
#[derive(Debug)]
pub struct Room {
    _file: File,
}

impl Room {
    /// Holds `bytes` in a directory, which is made where it is missing: whether results can be written is
    /// known before anything expensive begins.
    ///
    /// # Errors
    /// It can't be made, is not writable, or has less room.
    pub fn hold(dir: &Path, bytes: usize) -> Result<Room, Unwritten> {
        std::fs::create_dir_all(dir).map_err(Unwritten::at(dir))?;
        let path = dir.join(format!(".room.{}.part", std::process::id()));
        let held = (|| {
            let mut file = anew(&path)?;
            file.write_all(&noise(bytes))?;
            file.sync_all()?;
            Ok(Room { _file: file })
        })();
        let removed = std::fs::remove_file(&path);
        held.and_then(|room| removed.map(|()| room)).map_err(Unwritten::at(dir))
    }
}

/// Bytes that a file system which compresses can't make less of.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(length).collect()
}

/// The files of these names as they stand, by which it is seen later which of them were replaced.
#[derive(Debug)]
pub struct Standing(Vec<(PathBuf, u64)>);

impl Standing {
    /// Those in a directory now.
    pub fn of(dir: &Path, names: &[&str]) -> Standing {
        let paths = names.iter().map(|name| dir.join(name));
        let number = |path: PathBuf| std::fs::metadata(&path).ok().map(|it| (path, it.ino()));
        Standing(paths.filter_map(number).collect())
    }

    /// Removes those that were not replaced since, and says which. One that can't be removed stays.
    pub fn withdraw(&self) -> Vec<&Path> {
        let old = |(path, number): &&(PathBuf, u64)| {
            std::fs::metadata(path).is_ok_and(|now| now.is_file() && now.ino() == *number)
        };
        let removed = |path: &&Path| std::fs::remove_file(path).is_ok();
        self.0.iter().filter(old).map(|(path, _)| path.as_path()).filter(removed).collect()
    }
}

/// Makes a file of this name that was not there before: whatever engine or tool put in its place, a link
/// to somebody's file too, is removed and not written to.
fn anew(path: &Path) -> io::Result<File> {
    let make = || File::options().write(true).create_new(true).open(path);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            make()
        }
        made => made,
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// When reports are rewritten: after a cell, at most every second and so rarely that rendering
/// takes no more than a twentieth of the time. The end is always due and needs no leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// When the last rendering ended, on the run's clock, and how long it took.
    last: Option<(Duration, Duration)>,
}

impl Pace {
    /// Whether a finished cell at `now` is to be followed by a rendering.
    pub fn due(&self, now: Duration) -> bool {
        self.last.is_none_or(|(ended, took)| {
            now.saturating_sub(ended) >= Duration::from_secs(1).max(took * 20)
        })
    }

    /// Notes a rendering that ended at `now` and took so long.
    pub fn rendered(&mut self, now: Duration, took: Duration) {
        self.last = Some((now, took));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_paced_by_what_they_cost() {
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        let mut pace = Pace::default();
        assert!(pace.due(s(0)), "the first cell is reported at once");
        pace.rendered(s(10), ms(1));
        assert!(!pace.due(ms(10_999)));
        assert!(pace.due(s(11)));
        pace.rendered(s(20), ms(500));
        assert!(!pace.due(s(29)));
        assert!(pace.due(s(30)));
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("junit.xml");
        replace(&path, b"first, and longer").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        let out = dir.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let half = format!(".junit.xml.{}.part", std::process::id());
        for name in ["junit.xml", &half] {
            std::os::unix::fs::symlink(&victim, out.join(name)).unwrap();
        }
        replace(&out.join("junit.xml"), b"ours").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        assert_eq!(std::fs::read(out.join("junit.xml")).unwrap(), b"ours");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let below = file.join("junit.xml");
        let said = replace(&below, b"").unwrap_err().to_string();
        assert!(said.starts_with(&format!("cannot write {}: ", below.display())), "{said}");
        assert!(Room::hold(&file.join("out"), 10).is_err());
        let _room = Room::hold(&dir.path().join("new/out"), 1 << 16).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("new/out")).unwrap().count(), 0);
        // A failed replacement leaves what was there: here a directory stands in the way.
        std::fs::create_dir(dir.path().join("taken")).unwrap();
        assert!(replace(&dir.path().join("taken"), b"x").is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_was_not_replaced_is_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["old", "new"] {
            std::fs::write(at(name), "before").unwrap();
        }
        std::fs::create_dir(at("folder")).unwrap();
        let standing = Standing::of(dir.path(), &["old", "new", "folder", "missing"]);
        replace(&at("new"), b"after").unwrap();
        assert_eq!(standing.withdraw(), [at("old")]);
        assert!(at("new").exists() && at("folder").exists() && !at("old").exists());
    }
}
