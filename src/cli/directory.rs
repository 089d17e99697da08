//! The output directory of a run: made, locked, and cleared of an earlier run unless that goes on.
//!
//! It is taken only when nothing of an earlier run is alive that writes there: the engine of a killed run
//! may take some seconds to end. The files of an earlier run move to `<directory>.previous`, or to `previous` inside it where nothing
//! can be made beside it (a mounted volume); other people's files stay where they are.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// The name of the journal in an output directory.
pub const JOURNAL: &str = "journal.jsonl";
const LOCK: &str = ".lock";
/// Where an earlier run goes when nothing can be made beside the directory.
const PREVIOUS: &str = "previous";
/// What an earlier run has left alive is waited for so long: a supervisor whose run was killed ends its
/// engine within five seconds.
const LINGER: Duration = Duration::from_secs(10);

/// An output directory that this process alone writes to, until it is dropped.
#[derive(Debug)]
pub struct Directory {
    /// Its absolute path.
    pub path: PathBuf,
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
    /// Something of an earlier run is alive.
    #[error(
        "of an earlier run in {} there is still {process}, which writes to its log; end it first",
        path.display()
    )]
    Alive {
        /// The directory.
        path: PathBuf,
        /// Its number and name.
        process: String,
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
    /// Makes `path` a directory that this process alone writes to; what stands there stays.
    ///
    /// # Errors
    /// It can't be made, written or locked, or something of an earlier run there is alive.
    pub fn open(path: &Path) -> Result<Directory, DirectoryError> {
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { action, path, source }
        };
        make(path).map_err(fail("create the directory", path))?;
        let path = path.canonicalize().map_err(fail("open", path))?;
        let lock = lock(&path)?;
        let since = Instant::now();
        while let Some(process) = alive(&path) {
            if since.elapsed() > LINGER {
                return Err(DirectoryError::Alive { path, process });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        sweep(&path);
        Ok(Directory { path, _lock: lock })
    }

    /// The journal of the run there, or of the one to come.
    pub fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Moves an earlier run out of the way, and says where it went.
    ///
    /// # Errors
    /// It can't be moved, or what is there is no earlier run or one that is going on.
    pub fn clear(&self) -> Result<Option<PathBuf>, DirectoryError> {
        let path = &self.path;
        if !self.journal().exists() {
            return Ok(None);
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".previous");
        let beside = path.with_file_name(name);
        let previous = match move_aside(path, &beside) {
            // Nothing can be made beside a mounted volume, or not in its file system.
            Err(DirectoryError::Io { .. }) => {
                let inside = path.join(PREVIOUS);
                move_aside(path, &inside)?;
                inside
            }
            Err(
                error @ (DirectoryError::Foreign { .. }
                | DirectoryError::Locked { .. }
                | DirectoryError::Alive { .. }),
            ) => return Err(error),
            Ok(()) => beside,
        };
        Ok(Some(previous))
    }
}

/// A process that prints into a log of this directory: a supervisor, an engine, a tool.
fn alive(path: &Path) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.map(|entry| entry.path()).find_map(|process| {
        let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let writes = |descriptor: &str| {
            let file = fs::read_link(process.join("fd").join(descriptor)).ok()?;
            let name = file.file_name()?.to_str()?;
            let log = name.ends_with(".log")
                && (name.starts_with("engine-") || name.starts_with("command-"));
            (log && file.parent()? == path).then_some(())
        };
        (number != std::process::id()).then_some(())?;
        writes("1").or_else(|| writes("2"))?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(format!("process {number} ({})", name.trim()))
    })
}

/// Removes what a killed process has left of files that it was about to rename.
fn sweep(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(half) = name.to_str().and_then(|name| name.strip_prefix('.')) else { continue };
        let Some((of, number)) = half.strip_suffix(".part").and_then(|it| it.rsplit_once('.'))
        else {
            continue;
        };
        let ours = of == "probe" || crate::report::FILES.contains(&of);
        let gone = number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists();
        if ours && gone {
            // A leftover is noise and nothing worse.
            let _ = fs::remove_file(entry.path());
        }
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
        // A run that goes on there holds its lock.
        let _lock = lock(previous)?;
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
        || name.starts_with("shard-")
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
        drop(Directory::open(&out).unwrap());
        assert!(out.join("notes.txt").exists());
        fs::write(out.join(JOURNAL), "{}").unwrap();
        let of_launches = ["engine-tp8", "cells", "command-gsm8k.log"];
        of_launches.iter().for_each(|name| fs::create_dir(out.join(name)).unwrap());
        let taken = Directory::open(&out).unwrap();
        let previous = taken.clear().unwrap().unwrap();
        assert!(!out.join(JOURNAL).exists());
        assert_eq!(taken.clear().unwrap(), None);
        assert!(previous.join(JOURNAL).exists());
        assert!(of_launches.iter().all(|name| previous.join(name).exists()));
        assert!(out.join("notes.txt").exists() && !previous.join("notes.txt").exists());
        assert!(matches!(Directory::open(&out), Err(DirectoryError::Locked { .. })));
    }

    #[test]
    fn what_is_no_earlier_run_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let (out, beside) = (root.path().join("out"), root.path().join("out.previous"));
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("thesis.tex"), "").unwrap();
        drop(Directory::open(&out).unwrap());
        fs::write(out.join(JOURNAL), "{}").unwrap();
        let taken = Directory::open(&out).unwrap();
        assert!(matches!(taken.clear(), Err(DirectoryError::Foreign { .. })));
        assert!(beside.join("thesis.tex").exists() && out.join(JOURNAL).exists());
    }

    #[test]
    fn a_run_that_goes_on_beside_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (out, beside) = (root.path().join("out"), root.path().join("out.previous"));
        for dir in [&out, &beside] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join(JOURNAL), "{}").unwrap();
        }
        let resumed = Directory::open(&beside).unwrap();
        let taken = Directory::open(&out).unwrap();
        let refused = taken.clear();
        assert!(matches!(&refused, Err(DirectoryError::Locked { path }) if *path == beside));
        drop(resumed);
        assert_eq!(taken.clear().unwrap(), Some(beside));
    }

    #[test]
    fn halves_of_files_that_a_killed_run_has_left_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let mine = format!(".record.json.{}.part", std::process::id());
        let names =
            [".record.json.4294967295.part", ".probe.4294967295.part", ".notes.part", &mine];
        names.iter().for_each(|name| fs::write(root.path().join(name), "").unwrap());
        let taken = Directory::open(root.path()).unwrap();
        assert_eq!(names.map(|name| taken.path.join(name).exists()), [false, false, true, true]);
    }

    #[test]
    fn only_its_owner_looks_into_a_new_directory() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::open(&root.path().join("a/out")).unwrap();
        assert_eq!(fs::metadata(&taken.path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        fs::write(&out, "").unwrap();
        let told = Directory::open(&out).unwrap_err().to_string();
        assert!(told.starts_with("cannot create the directory"), "{told}");
    }
}
