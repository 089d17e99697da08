//! What an earlier run left alive, found by a mark in its environment.
//!
//! Every process that a supervisor starts carries the names of its watchers, the supervisor and its
//! guard, in [`VARIABLE`]. Where both are gone and the process is not, somebody killed tokgate and
//! both watchers by force at once, and nobody but the next run is left to end it. A process that wiped
//! its environment is still known by its session or its parent. It starts nothing and decides nothing
//! about the run to come.

use std::collections::HashSet;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use super::tree::{Process, process};

/// The variable that holds the mark.
pub const VARIABLE: &str = "TOKGATE_LAUNCH";

/// A process id and when that process began: together no two processes have them.
type Identity = (i32, u64);

/// The mark of what this supervisor starts: itself and its parent, the guard.
pub(super) fn mark() -> String {
    let own = process(std::process::id() as i32);
    let guard = own.as_ref().and_then(|own| process(own.parent));
    let watchers: Vec<String> = own
        .iter()
        .chain(&guard)
        .map(|watcher| format!("{}.{}", watcher.pid, watcher.start))
        .collect();
    watchers.join(",")
}

/// Reads a mark; `None` where it is none.
fn read_mark(text: &str) -> Option<Vec<Identity>> {
    text.split(',')
        .map(|part| {
            let (pid, start) = part.split_once('.')?;
            Some((pid.parse().ok()?, start.parse().ok()?))
        })
        .collect()
}

/// Those of `all` whose watchers are gone, and what belongs to them. `marked` says a process's mark.
fn stranded(all: &[Process], marked: impl Fn(&Process) -> Option<Vec<Identity>>) -> Vec<Process> {
    let alive: HashSet<Identity> =
        all.iter().filter(|p| !p.ended).map(|p| (p.pid, p.start)).collect();
    let mut sessions = HashSet::new();
    let mut found: HashSet<i32> = HashSet::new();
    for process in all.iter().filter(|process| !process.ended) {
        let Some(watchers) = marked(process) else { continue };
        if watchers.iter().any(|watcher| alive.contains(watcher)) {
            continue;
        }
        found.insert(process.pid);
        // As long as this one is in the guard's session, none can have the same number.
        if watchers.iter().any(|(pid, _)| *pid == process.session) {
            sessions.insert(process.session);
        }
    }
    found.extend(all.iter().filter(|p| sessions.contains(&p.session)).map(|p| p.pid));
    let roots: Vec<i32> = found.iter().copied().collect();
    found.extend(super::tree::descendants(&roots, all).iter().map(|process| process.pid));
    all.iter().filter(|p| !p.ended && found.contains(&p.pid)).cloned().collect()
}

/// Ends what earlier runs of this user left alive; says which, and of those that outlive KILL that they do. Blocks until they are gone, about
/// five seconds at most.
#[cfg(target_os = "linux")]
pub fn end_stranded() -> Vec<String> {
    let began = Instant::now();
    let mut names: Vec<String> = Vec::new();
    let mut signals = super::tree::Signals::default();
    while began.elapsed() < super::supervise::SHORT_GRACE + Duration::from_secs(2) {
        let left = find();
        if left.is_empty() {
            break;
        }
        for name in left.iter().map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if began.elapsed() < super::supervise::SHORT_GRACE {
            signals.ask(&left);
        } else {
            signals.force(&left);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let left: Vec<String> = find().iter().map(ToString::to_string).collect();
    for name in names.iter_mut().filter(|name| left.contains(name)) {
        name.push_str(", which is still there");
    }
    names
}

/// Ends what earlier runs left alive: nothing is known of it where there is no `/proc`.
#[cfg(not(target_os = "linux"))]
pub fn end_stranded() -> Vec<String> {
    Vec::new()
}

/// Processes of this user whose watchers are gone, none of them this one or above it.
#[cfg(target_os = "linux")]
fn find() -> Vec<Process> {
    use std::os::unix::fs::MetadataExt;
    let all = super::tree::processes();
    let user = rustix::process::geteuid().as_raw();
    // A mark names processes as its own container numbers them.
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(here) = namespace("self") else { return Vec::new() };
    let marked = |process: &Process| {
        let pid = process.pid.to_string();
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        if owner != user || namespace(&pid).as_ref() != Some(&here) {
            return None;
        }
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        environment.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?;
            read_mark(std::str::from_utf8(value).ok()?)
        })
    };
    let mut above = HashSet::new();
    let mut next = Some(std::process::id() as i32);
    while let Some(pid) = next.filter(|pid| above.insert(*pid)) {
        next = all.iter().find(|process| process.pid == pid).map(|process| process.parent);
    }
    let mut found = stranded(&all, marked);
    found.retain(|process| !above.contains(&process.pid));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, session, start: 100, ended: false, name: "x".to_owned() }
    }

    fn found(all: &[Process], marks: &[(i32, &str)]) -> Vec<i32> {
        let marked = |process: &Process| {
            let mark = marks.iter().find(|(pid, _)| *pid == process.pid)?;
            read_mark(mark.1)
        };
        stranded(all, marked).iter().map(|process| process.pid).collect()
    }

    #[test]
    fn what_has_no_watcher_left_is_stranded_with_its_session_and_children() {
        // The guard was 10, the supervisor 11; 12 wiped its environment, 13 left the session.
        let left = [seen(1, 0, 1), seen(14, 1, 10), seen(12, 1, 10), seen(13, 14, 13)];
        assert_eq!(found(&left, &[(14, "11.5,10.4")]), [14, 12, 13]);
        // A process elsewhere, with no mark and no kin, is nobody's.
        let other = [seen(1, 0, 1), seen(20, 1, 20)];
        assert!(found(&other, &[]).is_empty());
    }

    #[test]
    fn what_has_a_watcher_is_left_alone() {
        let guarded = [seen(10, 1, 10), seen(14, 1, 10)];
        assert!(found(&guarded, &[(14, "11.5,10.100")]).is_empty());
        // Another process has the number of one that is gone.
        let another = [seen(11, 1, 11), seen(14, 1, 10)];
        assert_eq!(found(&another, &[(14, "11.5,10.4")]), [14]);
    }

    #[test]
    fn a_session_of_the_same_number_that_no_marked_process_is_in_is_another() {
        let all = [seen(14, 1, 14), seen(12, 1, 10)];
        assert_eq!(found(&all, &[(14, "11.5,10.4")]), [14]);
    }

    #[test]
    fn a_mark_is_read_whole_or_not_at_all() {
        assert_eq!(read_mark("7.88,8.89"), Some(vec![(7, 88), (8, 89)]));
        for text in ["", "7", "7.x", "7.8,"] {
            assert_eq!(read_mark(text), None, "{text}");
        }
        #[cfg(target_os = "linux")]
        assert_eq!(read_mark(&mark()).map(|watchers| watchers.len()), Some(2));
    }
}
