//! The output directory of a run: made, locked, and cleared of an earlier run.
//!
//! An earlier run moves to `<directory>.previous`; a foreign folder is written into, never moved.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The name of the journal in an output directory.
pub const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = ".lock";

/// An output directory that this process alone writes to, until it is dropped.
#[derive(Debug)]
pub struct Directory {
    /// Its absolute path.
    pub path: PathBuf,
    /// Where the earlier run went, if there was one.
    pub previous: Option<PathBuf>,
    _lock: File,
}

/// Why results can't be written.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error(
        "another tokgate run writes to {} (lock held); wait for it or give another --out",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// It holds an earlier run and can't be moved, since the working directory is in it.
    #[error(
        "{} holds an earlier run and is in use as the working directory; give another --out",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

impl Directory {
    /// Makes `path` a directory ready for a new run.
    ///
    /// # Errors
    /// It can't be made, written or locked.
    pub fn take(path: &Path) -> Result<Directory, DirectoryError> {
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { action, path, source }
        };
        fs::create_dir_all(path).map_err(fail("create the directory", path))?;
        let path = path.canonicalize().map_err(fail("open", path))?;
        let lock = lock(&path)?;
        if !path.join(JOURNAL).exists() {
            return Ok(Directory { path, previous: None, _lock: lock });
        }
        let here = std::env::current_dir().and_then(|dir| dir.canonicalize()).ok();
        if here.is_some_and(|here| here.starts_with(&path)) {
            return Err(DirectoryError::InUse { path });
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".previous");
        let previous = path.with_file_name(name);
        if previous.exists() {
            fs::remove_dir_all(&previous).map_err(fail("remove", &previous))?;
        }
        fs::rename(&path, &previous).map_err(fail("move the earlier run to", &previous))?;
        drop(lock);
        fs::create_dir_all(&path).map_err(fail("create the directory", &path))?;
        let lock = self::lock(&path)?;
        Ok(Directory { path, previous: Some(previous), _lock: lock })
    }
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let file = path.join(LOCK);
    let opened = File::options().create(true).truncate(false).write(true).open(&file);
    let opened =
        opened.map_err(|source| DirectoryError::Io { action: "write to", path: file, source })?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(opened),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DirectoryError::Locked { path: path.to_owned() }),
        Err(errno) => {
            Err(DirectoryError::Io { action: "lock", path: path.to_owned(), source: errno.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_run_moves_aside_and_a_foreign_folder_stays() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        fs::create_dir(&out).unwrap();
        fs::write(out.join("notes.txt"), "mine").unwrap();
        drop(Directory::take(&out).unwrap());
        assert!(out.join("notes.txt").exists());
        fs::write(out.join(JOURNAL), "{}").unwrap();
        let taken = Directory::take(&out).unwrap();
        assert!(!out.join(JOURNAL).exists());
        assert!(taken.previous.as_ref().unwrap().join("notes.txt").exists());
        assert!(matches!(Directory::take(&out), Err(DirectoryError::Locked { .. })));
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        fs::write(&out, "").unwrap();
        let told = Directory::take(&out).unwrap_err().to_string();
        assert!(told.starts_with("cannot create the directory"), "{told}");
    }
}
