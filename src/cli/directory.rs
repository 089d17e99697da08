//! The output directory of a run: made, locked, and cleared of an earlier run.
//!
//! The files of an earlier run move to `<directory>.previous`, or to `previous` inside it where nothing
//! can be made beside it (a mounted volume); other people's files stay where they are.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The name of the journal in an output directory.
pub const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = ".lock";
/// Where an earlier run goes when nothing can be made beside the directory.
const PREVIOUS: &str = "previous";

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
    /// The place of the run before holds something else.
    #[error(
        "{} is no earlier run, so it is not replaced; move it away or give another --out",
        path.display()
    )]
    Foreign {
        /// What is in the way.
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
        make(path).map_err(fail("create the directory", path))?;
        let path = path.canonicalize().map_err(fail("open", path))?;
        let lock = lock(&path)?;
        if !path.join(JOURNAL).exists() {
            return Ok(Directory { path, previous: None, _lock: lock });
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".previous");
        let beside = path.with_file_name(name);
        let previous = match move_aside(&path, &beside) {
            // Nothing can be made beside a mounted volume, or not in its file system.
            Err(DirectoryError::Io { .. }) => {
                let inside = path.join(PREVIOUS);
                move_aside(&path, &inside)?;
                inside
            }
            Err(error @ (DirectoryError::Foreign { .. } | DirectoryError::Locked { .. })) => {
                return Err(error);
            }
            Ok(()) => beside,
        };
        Ok(Directory { path, previous: Some(previous), _lock: lock })
    }
}

/// Makes a directory that only its owner can look into: an engine's log may hold what is secret.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Moves the files of a run to `previous`, in place of the run that is there.
fn move_aside(path: &Path, previous: &Path) -> Result<(), DirectoryError> {
    let fail = |action, path: &Path| {
        let path = path.to_owned();
        move |source| DirectoryError::Io { action, path, source }
    };
    if previous.symlink_metadata().is_ok() {
        if !previous.join(JOURNAL).exists() {
            return Err(DirectoryError::Foreign { path: previous.to_owned() });
        }
        fs::remove_dir_all(previous).map_err(fail("remove", previous))?;
    }
    make(previous).map_err(fail("create the directory", previous))?;
    let mut names: Vec<_> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
        .map_err(fail("read", path))?;
    names.retain(|name| is_ours(&name.to_string_lossy()));
    // The journal last: where it stands, an earlier run is to be moved.
    names.sort_by_key(|name| name == JOURNAL);
    for name in names {
        let moved = fs::rename(path.join(&name), previous.join(&name));
        if let Err(source) = moved {
            // Nothing moved leaves nothing behind.
            let _ = fs::remove_dir(previous);
            return Err(fail("move the earlier run to", previous)(source));
        }
    }
    Ok(())
}

/// Whether a run writes a file or folder of this name.
fn is_ours(name: &str) -> bool {
    name == JOURNAL
        || name == "samples"
        || name == "cells"
        || name == "report.html"
        || crate::report::FILES.contains(&name)
        || name.starts_with("engine-")
        || name.starts_with("command-")
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
        let of_launches = ["engine-tp8", "cells", "command-gsm8k.log"];
        of_launches.iter().for_each(|name| fs::create_dir(out.join(name)).unwrap());
        let taken = Directory::take(&out).unwrap();
        assert!(!out.join(JOURNAL).exists());
        let previous = taken.previous.as_ref().unwrap();
        assert!(previous.join(JOURNAL).exists());
        assert!(of_launches.iter().all(|name| previous.join(name).exists()));
        assert!(out.join("notes.txt").exists() && !previous.join("notes.txt").exists());
        assert!(matches!(Directory::take(&out), Err(DirectoryError::Locked { .. })));
    }

    #[test]
    fn what_is_no_earlier_run_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let (out, beside) = (root.path().join("out"), root.path().join("out.previous"));
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("thesis.tex"), "").unwrap();
        drop(Directory::take(&out).unwrap());
        fs::write(out.join(JOURNAL), "{}").unwrap();
        assert!(matches!(Directory::take(&out), Err(DirectoryError::Foreign { .. })));
        assert!(beside.join("thesis.tex").exists() && out.join(JOURNAL).exists());
    }

    #[test]
    fn only_its_owner_looks_into_a_new_directory() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::take(&root.path().join("a/out")).unwrap();
        assert_eq!(fs::metadata(&taken.path).unwrap().permissions().mode() & 0o777, 0o700);
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
