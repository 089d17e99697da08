//! The lock of an output directory: one process at a time writes there, and who comes second is told by
//! whom it is held.
//!
//! The kernel holds it (`flock`), so that it ends with its process, however that ends; the file only says
//! whose it is. A file that an earlier run has left locks nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Its name in the directory.
pub const LOCK: &str = ".lock";

/// A lock that is held until it is dropped. Processes that are started meanwhile don't inherit it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why there is none.
#[derive(Debug)]
pub enum Refusal {
    /// Another process has it; who, in words.
    Held(String),
    /// The file can't be made or locked.
    Io(io::Error),
}

/// Whose a lock is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    since: String,
    command: String,
}

impl Lock {
    /// Takes the lock of a directory. `command` says to others what its holder does; no secret belongs
    /// there.
    ///
    /// # Errors
    /// It is held, or can't be made.
    pub fn take(dir: &Path, command: &str) -> Result<Lock, Refusal> {
        let path = dir.join(LOCK);
        // A link or a pipe that an engine put there is no lock: it goes, and is neither followed to
        // somebody's file, which would be emptied, nor waited for.
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            fs::remove_file(&path).map_err(Refusal::Io)?;
        }
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = options.open(&path).map_err(Refusal::Io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let holder = Holder {
                    pid: std::process::id(),
                    host: host(),
                    since: super::header::now(),
                    command: command.to_owned(),
                };
                // A full disk is told by what needs more room than these words.
                let _ = file.set_len(0);
                let _ = serde_json::to_string(&holder).map(|line| writeln!(file, "{line}"));
                Ok(Lock { _file: file })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Refusal::Held(holder(&path))),
            Err(errno) => Err(Refusal::Io(errno.into())),
        }
    }

    /// As [`Lock::take`], where there is a lock file; a directory without one belongs to no run.
    ///
    /// # Errors
    /// As for [`Lock::take`].
    pub fn take_if_there(dir: &Path, command: &str) -> Result<Option<Lock>, Refusal> {
        if dir.join(LOCK).exists() { Lock::take(dir, command).map(Some) } else { Ok(None) }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Who holds the lock, in words.
fn holder(path: &Path) -> String {
    let told = fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
    match told {
        Some(told) => describe(&told, &host(), &state, || has_open(path)),
        // It was taken a moment ago, or the disk had no room for the words.
        None => has_open(path).unwrap_or_else(|| "a process that is not seen from here".to_owned()),
    }
}

/// What is known of a process: its state as `/proc` tells it; `None` where there is none.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn describe(
    told: &Holder,
    here: &str,
    state: &dyn Fn(u32) -> Option<char>,
    has_open: impl FnOnce() -> Option<String>,
) -> String {
    let Holder { pid, host, since, command } = told;
    if host != here {
        return format!("process {pid} on {host} since {since}, `{command}`");
    }
    match state(*pid) {
        Some('T' | 't') => format!(
            "process {pid} since {since}, `{command}`, which is stopped: `kill -CONT {pid}` lets it go on"
        ),
        Some(_) => format!("process {pid} since {since}, `{command}`"),
        None => match has_open() {
            Some(process) => {
                format!("{process}, which process {pid}, `{command}`, has left behind")
            }
            None => format!(
                "process {pid} since {since}, `{command}`, which is not seen from here: in another container?"
            ),
        },
    }
}

/// A process that has the file open.
fn has_open(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.map(|entry| entry.path()).find_map(|process: PathBuf| {
        let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
        (number != std::process::id()).then_some(())?;
        let mut files = fs::read_dir(process.join("fd")).ok()?.flatten();
        files.find(|file| fs::read_link(file.path()).is_ok_and(|file| file == path))?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(format!("process {number} ({})", name.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(host: &str) -> Holder {
        let (since, command) = ("2026-01-01T00:00:00Z".to_owned(), "tokgate run s.toml".to_owned());
        Holder { pid: 7, host: host.to_owned(), since, command }
    }

    fn said(host: &str, state: Option<char>, open: Option<&str>) -> String {
        describe(&told(host), "here", &move |_| state, || open.map(str::to_owned))
    }

    #[test]
    fn a_holder_is_told_with_what_can_be_done_about_it() {
        let who = "since 2026-01-01T00:00:00Z, `tokgate run s.toml`";
        assert_eq!(said("there", Some('T'), None), format!("process 7 on there {who}"));
        assert_eq!(said("here", Some('S'), None), format!("process 7 {who}"));
        assert!(said("here", Some('T'), None).ends_with("stopped: `kill -CONT 7` lets it go on"));
        let left = said("here", None, Some("process 9 (sleep)"));
        assert!(left.starts_with("process 9 (sleep), which process 7, "), "{left}");
        assert!(said("here", None, None).ends_with("in another container?"));
    }

    #[test]
    fn a_lock_is_taken_once_and_its_file_locks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lock::take_if_there(dir.path(), "report").unwrap().is_none());
        let first = Lock::take(dir.path(), "tokgate run a.toml").unwrap();
        let Err(Refusal::Held(who)) = Lock::take(dir.path(), "tokgate run b.toml") else {
            panic!()
        };
        assert!(who.starts_with(&format!("process {} since ", std::process::id())), "{who}");
        assert!(who.ends_with("`tokgate run a.toml`"), "{who}");
        drop(first);
        let shorter = Lock::take_if_there(dir.path(), "r").unwrap();
        let text = fs::read_to_string(dir.path().join(LOCK)).unwrap();
        let holder: Holder = serde_json::from_str(&text).unwrap();
        assert_eq!(holder.command, "r");
        drop(shorter);
    }

    #[test]
    fn what_an_engine_put_in_its_place_is_neither_written_to_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join(LOCK));
        fs::write(&victim, "mine").unwrap();
        let link = || std::os::unix::fs::symlink(&victim, &path).unwrap();
        let pipe = || rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        for put in [&link as &dyn Fn(), &pipe] {
            put();
            drop(Lock::take(dir.path(), "tokgate run a.toml").unwrap());
            assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
            fs::remove_file(&path).unwrap();
        }
    }
}
