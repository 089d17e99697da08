//! The process that started this one: whether a run that it started may outlive it.
//!
//! A job that was cut (its shell killed, its runner gone) must not hold a GPU for hours, and somebody who
//! sends a run into the background means it. Both leave a run without a parent, so what tells them apart
//! is how the run was started.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getpgid, getpgrp, getppid};

use super::signal::is_ignored;

/// What a run owes to the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bond {
    /// It runs in the foreground of a script or a runner, and ends with it.
    Job,
    /// It was put into the background or has a session of its own, and ends when besides nobody hears it.
    Heard,
    /// It was told to outlive it.
    None,
}

/// How a run was started.
#[derive(Debug, Clone, Copy)]
struct Started {
    /// Whether it shares a process group with its parent: no shell with job control parted them.
    in_group: bool,
    /// As under `nohup`.
    ignores_hangup: bool,
    /// As where a script writes `&`: shells without job control have such a process ignore SIGINT.
    ignores_interrupt: bool,
}

impl Started {
    fn bond(self) -> Bond {
        match self {
            Started { ignores_hangup: true, .. } => Bond::None,
            Started { in_group: true, ignores_interrupt: false, .. } => Bond::Job,
            Started { .. } => Bond::Heard,
        }
    }
}

/// The process that started this one.
#[derive(Debug)]
pub struct Parent {
    process: Pid,
    bond: Bond,
}

impl Parent {
    /// The present one. None where it is the first process of the machine or container, which adopts
    /// whatever is left and outlives all.
    pub fn now() -> Option<Parent> {
        let process = getppid().filter(|process| !process.is_init())?;
        let started = Started {
            in_group: getpgid(Some(process)).is_ok_and(|group| group == getpgrp()),
            ignores_hangup: is_ignored(rustix::process::Signal::HUP),
            ignores_interrupt: is_ignored(rustix::process::Signal::INT),
        };
        Some(Parent { process, bond: started.bond() })
    }

    /// Whether it is gone and this run has to follow.
    pub(super) fn calls_away(&self) -> bool {
        match self.bond {
            Bond::None => false,
            Bond::Job => self.is_gone(),
            Bond::Heard => self.is_gone() && nobody_hears(),
        }
    }

    fn is_gone(&self) -> bool {
        getppid() != Some(self.process)
    }
}

/// Whether stdout and stderr are pipes or terminals whose other end is gone. A file may be read later.
fn nobody_hears() -> bool {
    let (out, err) = (std::io::stdout(), std::io::stderr());
    let mut both = [PollFd::new(&out, PollFlags::empty()), PollFd::new(&err, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::ERR | PollFlags::HUP;
    poll(&mut both, Some(&at_once)).is_ok() && both.iter().all(|it| it.revents().intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bond(in_group: bool, ignores_hangup: bool, ignores_interrupt: bool) -> Bond {
        Started { in_group, ignores_hangup, ignores_interrupt }.bond()
    }

    #[test]
    fn how_a_run_was_started_says_whether_it_may_outlive_its_parent() {
        assert_eq!(bond(true, false, false), Bond::Job, "a step of a script");
        assert_eq!(bond(true, false, true), Bond::Heard, "`&` in a script");
        assert_eq!(bond(false, false, false), Bond::Heard, "a job of a terminal, setsid, ssh");
        for (in_group, ignores_interrupt) in [(true, false), (true, true), (false, false)] {
            assert_eq!(bond(in_group, true, ignores_interrupt), Bond::None, "nohup");
        }
    }

    #[test]
    fn a_parent_that_lives_calls_nobody_away() {
        // The tests' own; where it is the first process, there is nobody to lose.
        assert!(Parent::now().is_none_or(|parent| !parent.is_gone() && !parent.calls_away()));
    }
}
