//! Process trees: who descends from whom, and signals to all of them.
//!
//! A signal goes through a pidfd that was checked against the start time seen in `/proc`, so that a
//! process id used again meanwhile is never hit. Elsewhere than on Linux there is the process group
//! alone. It decides nothing: `supervise` says when to send what.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal};

/// A process as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process id.
    pub(crate) pid: i32,
    /// Its parent.
    pub(crate) parent: i32,
    /// Its session.
    pub(crate) session: i32,
    /// When it began, in clock ticks since the machine did: with `pid` its identity.
    pub(crate) start: u64,
    /// Whether it has ended and waits to be collected.
    pub(crate) ended: bool,
    /// Its name, at most 15 bytes.
    pub(crate) name: String,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// Every process that can be seen; none where there is no `/proc`.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

/// One process; `None` where it is gone.
pub(crate) fn process(pid: i32) -> Option<Process> {
    read_stat(&String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Reads a line of `/proc/PID/stat`. The name stands in parentheses and may hold any character.
fn read_stat(line: &str) -> Option<Process> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: number(1)?,
        session: number(3)?,
        start: fields.get(19)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
        name: name.to_owned(),
    })
}

/// All that descend from `roots`, the roots left out.
pub(crate) fn descendants(roots: &[i32], all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut open: Vec<i32> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                open.push(child.pid);
                found.push((*child).clone());
            }
        }
    }
    found
}

/// `root`, a leader of a session, with its session and all that descends from them: the session still
/// tells what belongs to a leader that was killed.
pub(crate) fn family(root: i32, all: &[Process]) -> Vec<Process> {
    let near = all.iter().filter(|process| process.pid == root || process.session == root);
    let near: Vec<Process> = near.cloned().collect();
    let pids: Vec<i32> = near.iter().map(|process| process.pid).collect();
    let mut family = descendants(&pids, all);
    family.extend(near);
    family
}

/// This process and all that descend from it.
pub(crate) fn own() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let below = descendants(&[me], &processes());
    below.iter().map(|process| process.pid).chain([me]).collect()
}

/// Processes of whoever listens on `port`, as far as it can be told: its session, since what listens may be
/// one of several children, and all that descends from that.
pub(crate) fn serving(port: u16) -> Vec<i32> {
    let Some(owner) = super::port::owner(port) else { return Vec::new() };
    let all = processes();
    let session = family(owner.session, &all).into_iter();
    session.chain(family(owner.pid, &all)).map(|process| process.pid).collect()
}

/// Sends `signal` to the very process that was seen; nothing where it is gone.
#[cfg(target_os = "linux")]
pub(crate) fn signal(seen: &Process, signal: Signal) {
    use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};
    let Some(pid) = Pid::from_raw(seen.pid) else { return };
    let same = || process(seen.pid).is_some_and(|now| now.start == seen.start);
    // A process that is gone meanwhile needs no signal, so failures have no consequence.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => {
            if same() {
                let _ = pidfd_send_signal(&handle, signal);
            }
        }
        Err(rustix::io::Errno::SRCH) => {}
        // Kernels and sandboxes without pidfds.
        Err(_) => {
            if same() {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// Sends signals to a tree, each process getting each kind once.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    told: HashSet<(i32, u64)>,
}

impl Signals {
    /// Asks those of `tree` to end that were not asked before.
    #[cfg(target_os = "linux")]
    pub(crate) fn ask(&mut self, tree: &[Process]) {
        for process in tree.iter().filter(|process| !process.ended) {
            if self.told.insert((process.pid, process.start)) {
                signal(process, Signal::TERM);
                // A stopped process could not obey.
                signal(process, Signal::CONT);
            }
        }
    }

    /// Ends all of `tree` at once.
    #[cfg(target_os = "linux")]
    pub(crate) fn force(&mut self, tree: &[Process]) {
        for process in tree.iter().filter(|process| !process.ended) {
            signal(process, Signal::KILL);
        }
    }

    /// Asks the process group of `leader` to end, once.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn ask_group(&mut self, leader: i32) {
        if self.told.insert((leader, 0)) {
            signal_group(leader, Signal::TERM);
            signal_group(leader, Signal::CONT);
        }
    }

    /// Ends the process group of `leader` at once.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn force_group(&mut self, leader: i32) {
        signal_group(leader, Signal::KILL);
    }
}

#[cfg(not(target_os = "linux"))]
fn signal_group(leader: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(leader) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// The name of a signal: `SIGKILL`.
pub(crate) fn signal_name(number: i32) -> String {
    const NAMES: [(Signal, &str); 16] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES
        .iter()
        .find(|(signal, _)| signal.as_raw() == number)
        .map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, session: 1, start: 0, ended: false, name: "x".to_owned() }
    }

    #[test]
    fn a_name_may_hold_parentheses_and_blanks() {
        let fields = "S 7 9 5 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 88664 1 2 3";
        let read = read_stat(&format!("12 (a) b (c) {fields}")).unwrap();
        assert_eq!((read.pid, read.parent, read.session, read.start), (12, 7, 5, 88664));
        assert_eq!((read.name.as_str(), read.ended), ("a) b (c", false));
        assert!(read_stat("12 (a) Z 7").is_none());
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_in_any_order() {
        let all = [process(4, 3), process(3, 2), process(2, 1), process(9, 8), process(1, 0)];
        let mut found: Vec<i32> = descendants(&[2], &all).iter().map(|p| p.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        assert!(descendants(&[4], &all).is_empty());
    }

    #[test]
    fn a_family_is_known_by_its_session_where_its_root_is_gone() {
        let of = |pid, parent, session| Process { session, ..process(pid, parent) };
        // The root was 2; 3 fell to another parent, 4 left the session, 9 is somebody else.
        let all = [of(1, 0, 1), of(3, 1, 2), of(4, 3, 4), of(9, 1, 9)];
        let mut found: Vec<i32> = family(2, &all).iter().map(|p| p.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        assert_eq!(family(9, &all).len(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_seen() {
        let me = std::process::id() as i32;
        assert!(processes().iter().any(|process| process.pid == me && process.start > 0));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(64), "signal 64");
    }
}
