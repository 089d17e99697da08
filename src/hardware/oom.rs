//! The kernel's OOM killer: how many processes it has killed, as its counters say.
//!
//! A process that it kills has no last words, and nobody else tells. It reads and compares.

use std::path::Path;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kills {
    /// Processes of this process's control group that were killed, whatever limit was reached.
    group: Option<u64>,
    /// Processes of the whole machine, other containers included.
    machine: Option<u64>,
}

impl Kills {
    /// The counters now.
    pub fn now() -> Kills {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let groups = read(Path::new("/proc/self/cgroup"));
        let group = files(&groups).iter().find_map(|path| counter(&read(Path::new(path))));
        Kills { group, machine: counter(&read(Path::new("/proc/vmstat"))) }
    }

    /// What the counters say of a process that ended between `before` and now; `killed`: by a SIGKILL
    /// that nobody here sent. `None` where that is nothing.
    pub fn since(&self, before: &Kills, killed: bool) -> Option<&'static str> {
        let rose = |was: Option<u64>, is: Option<u64>| was.zip(is).map(|(was, is)| is > was);
        match (rose(before.group, self.group), rose(before.machine, self.machine)) {
            (Some(true), _) if killed => Some("out of memory: by the kernel's OOM killer"),
            (Some(true), _) => {
                Some("out of memory: the kernel's OOM killer has killed a process of it meanwhile")
            }
            // An engine in a container has a group of its own.
            (Some(false) | None, Some(true)) if killed => Some(
                "by the kernel's OOM killer? it has killed a process on this machine meanwhile",
            ),
            (None, None) if killed => Some("by the kernel's OOM killer?"),
            (Some(false) | None, Some(_) | None) => None,
        }
    }
}

/// Where the counter of this process's own control group may be, given `/proc/self/cgroup`: version 2,
/// then version 1, each by its path and, inside of a container, at the top.
fn files(groups: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_end_matches('/');
        if controllers.is_empty() {
            found.push(format!("/sys/fs/cgroup{path}/memory.events"));
            found.push("/sys/fs/cgroup/memory.events".to_owned());
        } else if controllers.split(',').any(|name| name == "memory") {
            found.push(format!("/sys/fs/cgroup/memory{path}/memory.oom_control"));
            found.push("/sys/fs/cgroup/memory/memory.oom_control".to_owned());
        }
    }
    found
}

/// The value of `oom_kill` in a file of names and values.
fn counter(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn kills(group: Option<u64>, machine: Option<u64>) -> Kills {
        Kills { group, machine }
    }

    #[test]
    fn counters_are_found_in_both_versions_of_control_groups() {
        assert_eq!(
            files("4:memory:/docker/ab\n1:cpu:/\n0::/\n"),
            [
                "/sys/fs/cgroup/memory/docker/ab/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup/memory.events",
                "/sys/fs/cgroup/memory.events",
            ]
        );
        assert_eq!(files("0::/user.slice\n")[0], "/sys/fs/cgroup/user.slice/memory.events");
        assert_eq!(counter("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(counter("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(counter(""), None);
    }

    #[test]
    fn a_kill_is_put_down_to_the_oom_killer_as_far_as_its_counters_tell() {
        let of = |before, now: Kills, killed| now.since(&before, killed).unwrap_or("nothing");
        let rise = |group: bool, killed| {
            let after = kills(Some(u64::from(group)), Some(1));
            of(kills(Some(0), Some(0)), after, killed)
        };
        assert_eq!(rise(true, true), "out of memory: by the kernel's OOM killer");
        assert!(
            rise(true, false).starts_with("out of memory: "),
            "a worker of it may have been killed"
        );
        assert!(rise(false, true).contains("killer? "), "it may have been another container's");
        assert_eq!(rise(false, false), "nothing");
        let unknown = kills(None, None);
        assert_eq!(of(unknown, unknown, true), "by the kernel's OOM killer?");
        assert_eq!(of(unknown, unknown, false), "nothing");
        let machine = |killed| of(kills(None, Some(4)), kills(None, Some(5)), killed);
        assert!(machine(true).contains("on this machine meanwhile"));
        assert_eq!(machine(false), "nothing");
        assert_eq!(of(kills(None, Some(4)), kills(None, Some(4)), true), "nothing");
    }
}
