//! The output directory of a run: made, locked, and cleared of an earlier run unless that goes on.
//!
//! It is taken only when nothing of an earlier run is alive that writes there: the engine of a killed run
//! may take some seconds to end. The files of an earlier run move to `<directory>.previous`, or to `previous` inside it where nothing
//! can be made beside it (a mounted volume); other people's files stay where they are. A run of a few chosen cells, such as the rerun
//! of a failed one, does not push the whole run out of there: it moves to `<directory>.previous-part`.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::record::{Event, journal};

use super::lock::{LOCK, Lock, Refusal};
use super::remedy;

/// The name of the journal in an output directory.
pub const JOURNAL: &str = "journal.jsonl";
/// What the directory's name ends with that an earlier run goes to.
const PREVIOUS_SUFFIX: &str = ".previous";
/// Where an earlier run goes when nothing can be made beside the directory.
const PREVIOUS: &str = "previous";
/// What both of these end with besides for a run of chosen cells, where the whole run is there already.
const PART: &str = "-part";
/// What an earlier run has left alive is waited for so long: a supervisor whose run was killed ends its
/// engine within five seconds.
const LINGER: Duration = Duration::from_secs(10);

/// An output directory that this process alone writes to, until it is dropped.
#[derive(Debug)]
pub struct Directory {
    /// Its absolute path.
    pub path: PathBuf,
    _lock: Lock,
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
    #[error("another tokgate run writes to {} (lock held by {holder})", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who, in words.
        holder: String,
    },
    /// Something of an earlier run is alive.
    #[error(
        "of an earlier run in {} there is still {process}, which writes to its log",
        path.display()
    )]
    Alive {
        /// The directory.
        path: PathBuf,
        /// Its number and name.
        process: String,
    },
    /// The place of the run before holds something else.
    #[error("{} is no earlier run, so it is not replaced", path.display())]
    Foreign {
        /// What is in the way.
        path: PathBuf,
    },
}

impl DirectoryError {
    fn lock(path: &Path, refusal: Refusal) -> DirectoryError {
        match refusal {
            Refusal::Held(holder) => DirectoryError::Locked { path: path.to_owned(), holder },
            Refusal::Io(source) => {
                DirectoryError::Io { action: "lock", path: path.join(LOCK), source }
            }
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            DirectoryError::Io { path, source, .. } => remedy::of(path, source),
            DirectoryError::Locked { .. } => "wait for it, or give another --out".to_owned(),
            DirectoryError::Alive { .. } => "end it first, or give another --out".to_owned(),
            DirectoryError::Foreign { .. } => "move it away, or give another --out".to_owned(),
        }
    }
}

impl Directory {
    /// Makes `path` a directory that this process alone writes to; what stands there stays. `command`
    /// says to others what this process does.
    ///
    /// # Errors
    /// It can't be made, written or locked, or something of an earlier run there is alive.
    pub fn open(path: &Path, command: &str) -> Result<Directory, DirectoryError> {
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { action, path, source }
        };
        make(path).map_err(fail("create the directory", path))?;
        let path = path.canonicalize().map_err(fail("open", path))?;
        if path.to_str().is_none() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
            return Err(DirectoryError::Io { action: "use", path, source });
        }
        let lock = Lock::take(&path, command).map_err(|it| DirectoryError::lock(&path, it))?;
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

    /// Moves an earlier run out of the way, and says where it went. One that has launched nothing, or has
    /// reports and no journal, is removed where the run before it would have to give way: that is worth more.
    ///
    /// # Errors
    /// It can't be moved, or what is there is no earlier run or one that is going on.
    pub fn clear(&self) -> Result<Option<PathBuf>, DirectoryError> {
        let path = &self.path;
        let journal = self.journal();
        if !journal.exists() && reports(path).next().is_none() {
            return Ok(None);
        }
        let (mut beside, mut inside) = (beside(path, PREVIOUS_SUFFIX), path.join(PREVIOUS));
        let before = || [&beside, &inside].into_iter().any(|it| it.join(JOURNAL).exists());
        if launched_nothing(&journal) || (!journal.exists() && before()) {
            self.remove_shards()?;
            for file in reports(path).chain(journal.exists().then_some(journal.clone())) {
                fs::remove_file(&file).map_err(|source| DirectoryError::Io {
                    action: "remove",
                    path: file,
                    source,
                })?;
            }
            return Ok(None);
        }
        let whole = |dir: &PathBuf| is_choice(dir) == Some(false);
        if is_choice(path) == Some(true) && [&beside, &inside].into_iter().any(whole) {
            beside.as_mut_os_string().push(PART);
            inside.as_mut_os_string().push(PART);
        }
        // From a mounted volume nothing moves beside it.
        let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
        if path.parent().and_then(device) != device(path) {
            move_aside(path, &inside)?;
            return Ok(Some(inside));
        }
        let previous = match move_aside(path, &beside) {
            // Nothing can be made there.
            Err(DirectoryError::Io { .. }) => {
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

    /// Removes the folders with the logs of shards that were merged here.
    fn remove_shards(&self) -> Result<(), DirectoryError> {
        for name in names(&self.path).unwrap_or_default().iter().filter(|name| is_of_a_shard(name))
        {
            let folder = self.path.join(name);
            let removed = fs::remove_dir_all(&folder);
            removed.map_err(|source| DirectoryError::Io {
                action: "remove",
                path: folder,
                source,
            })?;
        }
        Ok(())
    }

    /// Removes the reports of an earlier run that could not be moved, since they would be taken for those
    /// of this one, and says which. Its record and its journal stay.
    pub fn withdraw(&self) -> Vec<PathBuf> {
        let rendered = reports(&self.path).filter(|file| !file.ends_with(crate::report::FILES[0]));
        rendered.filter(|file| fs::remove_file(file).is_ok()).collect()
    }
}

/// Has a file that may not grow any more (`ulimit -f`) answered with an error, as a full disk is, instead
/// of a signal that ends the process. Programs that are started have the signal as it was: a handler, unlike
/// a signal that is ignored, does not survive their start.
#[allow(unsafe_code)]
pub fn survive_size_limits() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing at all, so that it may run at any time.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t);
    }
}

/// The reports that stand in a directory.
pub fn reports(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let path = path.to_owned();
    crate::report::FILES.into_iter().map(move |name| path.join(name)).filter(|file| file.is_file())
}

/// A path as short as the working directory allows.
pub fn shown(path: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    match here.ok().and_then(|here| path.strip_prefix(here).ok()) {
        Some(below) if below.as_os_str().is_empty() => PathBuf::from("."),
        Some(below) => below.to_owned(),
        None => path.to_owned(),
    }
}

/// Where the files of a run go beside its directory.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Whether the run in a directory is one of chosen cells (`-E`, `--skip`), if a run is there.
fn is_choice(dir: &Path) -> Option<bool> {
    if let Ok(contents) = journal::read(&dir.join(JOURNAL)) {
        let Some(Event::RunStarted(header)) = contents.events.first() else { return None };
        return Some(!header.selection.is_empty());
    }
    // A merged run has no journal.
    let record = crate::report::json::read(&dir.join(crate::report::FILES[0])).ok()?;
    Some(!record.header.selection.is_empty())
}

/// Whether a journal tells that nothing was launched.
fn launched_nothing(path: &Path) -> bool {
    let idle = |event: &Event| match event {
        Event::RunStarted(_)
        | Event::RunResumed { .. }
        | Event::Warning { .. }
        | Event::RunFinished { .. } => true,
        Event::LaunchStarted { .. }
        | Event::LaunchStep { .. }
        | Event::LaunchReady { .. }
        | Event::LaunchFailed { .. }
        | Event::LaunchStopped { .. }
        | Event::CellStarted { .. }
        | Event::CellPhase { .. }
        | Event::CellFinished { .. } => false,
    };
    journal::read(path).is_ok_and(|contents| contents.events.iter().all(idle))
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
        let ours = of == "room" || crate::report::FILES.contains(&of);
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
    let mut locked = None;
    if previous.symlink_metadata().is_ok() {
        let journal = previous.join(JOURNAL);
        let mut there = names(previous).map_err(fail("read", previous))?;
        // Without a journal it is what a run that was killed here had moved so far, or nothing.
        let mine = |name: &String| name == LOCK || is_ours(name);
        if !journal.exists() && !there.iter().all(mine) {
            return Err(DirectoryError::Foreign { path: previous.to_owned() });
        }
        // A run that goes on there holds its lock.
        let lock = Lock::take(previous, "tokgate run (an earlier one is replaced)");
        locked = Some(lock.map_err(|it| DirectoryError::lock(previous, it))?);
        // Of two merged runs neither has a journal, and the older one gives way.
        if journal.exists() || !path.join(JOURNAL).exists() {
            // The journal last: while it stands, an earlier run is to be removed.
            there.sort_by_key(|name| name == JOURNAL);
            for name in there.iter().filter(|name| *name != LOCK) {
                let file = previous.join(name);
                let folder = file.symlink_metadata().is_ok_and(|it| it.is_dir());
                let removed =
                    if folder { fs::remove_dir_all(&file) } else { fs::remove_file(&file) };
                removed.map_err(fail("remove", &file))?;
            }
        }
    }
    make(previous).map_err(fail("create the directory", previous))?;
    let mut names = names(path).map_err(fail("read", path))?;
    names.retain(|name| is_ours(name));
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
    drop(locked);
    Ok(())
}

/// The names in a directory, as text; a run writes no others.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(path)?;
    entries.map(|entry| entry.map(|it| it.file_name().to_string_lossy().into_owned())).collect()
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
        || is_of_a_shard(name)
}

/// Whether a name is that of the folder with a merged shard's logs: `shard-2-of-4`.
fn is_of_a_shard(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix("shard-").and_then(|rest| rest.split_once("-of-"));
    parts.is_some_and(|(shard, of)| number(shard) && number(of))
}

/// Whether a directory would be moved or removed when [`Directory::clear`] clears `out`. Both are absolute.
pub fn gives_way(dir: &Path, out: &Path) -> bool {
    let part = format!("{PREVIOUS_SUFFIX}{PART}");
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let inside = dir.parent() == Some(out)
        && (is_ours(&name) || name.strip_suffix(PART).unwrap_or(&name) == PREVIOUS);
    inside || [PREVIOUS_SUFFIX, &part].into_iter().any(|suffix| dir == beside(out, suffix))
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
        drop(Directory::open(&out, "test").unwrap());
        assert!(out.join("notes.txt").exists());
        fs::write(out.join(JOURNAL), "{}\n").unwrap();
        let of_launches = ["engine-tp8", "cells", "command-gsm8k.log"];
        of_launches.iter().for_each(|name| fs::create_dir(out.join(name)).unwrap());
        let taken = Directory::open(&out, "test").unwrap();
        let previous = taken.clear().unwrap().unwrap();
        assert!(!out.join(JOURNAL).exists());
        assert_eq!(taken.clear().unwrap(), None);
        assert!(previous.join(JOURNAL).exists());
        assert!(of_launches.iter().all(|name| previous.join(name).exists()));
        assert!(out.join("notes.txt").exists() && !previous.join("notes.txt").exists());
        assert!(matches!(Directory::open(&out, "test"), Err(DirectoryError::Locked { .. })));
    }

    #[test]
    fn what_is_no_earlier_run_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let (out, beside) = (root.path().join("out"), root.path().join("out.previous"));
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("thesis.tex"), "").unwrap();
        drop(Directory::open(&out, "test").unwrap());
        fs::write(out.join(JOURNAL), "{}\n").unwrap();
        let taken = Directory::open(&out, "test").unwrap();
        assert!(matches!(taken.clear(), Err(DirectoryError::Foreign { .. })));
        assert!(beside.join("thesis.tex").exists() && out.join(JOURNAL).exists());
    }

    #[test]
    fn a_run_that_goes_on_beside_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (out, beside) = (root.path().join("out"), root.path().join("out.previous"));
        for dir in [&out, &beside] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join(JOURNAL), "{}\n").unwrap();
        }
        let resumed = Directory::open(&beside, "test").unwrap();
        let taken = Directory::open(&out, "test").unwrap();
        let refused = taken.clear();
        assert!(matches!(&refused, Err(DirectoryError::Locked { path, .. }) if *path == beside));
        drop(resumed);
        assert_eq!(taken.clear().unwrap(), Some(beside));
    }

    #[test]
    fn halves_of_files_that_a_killed_run_has_left_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let mine = format!(".record.json.{}.part", std::process::id());
        let names = [".record.json.4294967295.part", ".room.4294967295.part", ".notes.part", &mine];
        names.iter().for_each(|name| fs::write(root.path().join(name), "").unwrap());
        let taken = Directory::open(root.path(), "test").unwrap();
        assert_eq!(names.map(|name| taken.path.join(name).exists()), [false, false, true, true]);
    }

    #[test]
    fn a_run_that_launched_nothing_gives_way_to_the_one_before() {
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::open(&root.path().join("out"), "test").unwrap();
        for (journal, moves) in [("{\"run-st", false), ("{}\n", true)] {
            fs::write(taken.journal(), journal).unwrap();
            fs::write(taken.path.join("junit.xml"), "").unwrap();
            assert_eq!(taken.clear().unwrap().is_some(), moves, "{journal}");
            assert!(!taken.journal().exists() && reports(&taken.path).next().is_none());
        }
        // Reports whose journal is gone are an earlier run's too, and give way in the same manner.
        let previous = root.path().join("out.previous");
        fs::write(taken.path.join("junit.xml"), "").unwrap();
        assert_eq!(taken.clear().unwrap(), None);
        assert!(previous.join(JOURNAL).exists() && !taken.path.join("junit.xml").exists());
        fs::remove_dir_all(&previous).unwrap();
        fs::write(taken.path.join("junit.xml"), "").unwrap();
        assert_eq!(taken.clear().unwrap(), Some(previous.clone()));
        assert!(previous.join("junit.xml").exists() && !taken.path.join("junit.xml").exists());
    }

    #[test]
    fn a_move_that_was_cut_short_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::open(&root.path().join("out"), "test").unwrap();
        let previous = root.path().join("out.previous");
        fs::create_dir(&previous).unwrap();
        fs::write(previous.join("junit.xml"), "moved").unwrap();
        fs::write(taken.journal(), "{}\n").unwrap();
        assert_eq!(taken.clear().unwrap(), Some(previous.clone()));
        assert!(previous.join("junit.xml").exists() && previous.join(JOURNAL).exists());
        // What was half removed when it was cut has its journal still.
        fs::write(taken.journal(), "{}\n").unwrap();
        taken.clear().unwrap();
        assert!(!previous.join("junit.xml").exists() && previous.join(JOURNAL).exists());
    }

    #[test]
    fn reports_that_can_not_be_moved_are_withdrawn_and_the_facts_stay() {
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::open(root.path(), "test").unwrap();
        let names = ["record.json", "junit.xml", "summary.md", JOURNAL, "notes.txt"];
        names.iter().for_each(|name| fs::write(taken.path.join(name), "{}\n").unwrap());
        assert_eq!(taken.withdraw(), ["junit.xml", "summary.md"].map(|it| taken.path.join(it)));
        assert_eq!(
            names.map(|name| taken.path.join(name).exists()),
            [true, false, false, true, true]
        );
    }

    #[test]
    fn only_its_owner_looks_into_a_new_directory() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let taken = Directory::open(&root.path().join("a/out"), "test").unwrap();
        assert_eq!(fs::metadata(&taken.path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_path_that_can_not_be_told_to_engines_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join(std::ffi::OsStr::from_bytes(b"o\xffut"));
        let told = Directory::open(&out, "test").unwrap_err().to_string();
        assert!(told.starts_with("cannot use ") && told.ends_with("is not UTF-8"), "{told}");
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        fs::write(&out, "").unwrap();
        let told = Directory::open(&out, "test").unwrap_err().to_string();
        assert!(told.starts_with("cannot create the directory"), "{told}");
    }
}
