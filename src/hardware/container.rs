//! Limits of the control group that this process is in: a container's, a batch job's or a service's.
//!
//! The least of its own and those above it holds. Both versions of control groups are read. It reads and decides
//! nothing.

use std::path::PathBuf;

/// What the group may use.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Limits {
    /// Bytes of memory.
    pub(super) memory: Option<u64>,
    /// Bytes of memory in use where that limit is.
    pub(super) used: Option<u64>,
    /// CPUs' worth of time.
    pub(super) cpus: Option<f64>,
}

/// No limit is written as the greatest number of pages; nothing real comes near to it.
const UNLIMITED: u64 = 1 << 60;

/// Reads the limits.
pub(super) fn limits() -> Limits {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of(&groups, &read)
}

/// The limits, given `/proc/self/cgroup` and what reads a file.
fn of(groups: &str, read: &dyn Fn(PathBuf) -> Option<String>) -> Limits {
    let mut limits = Limits::default();
    let number = |path: PathBuf| read(path).and_then(|text| text.trim().parse::<u64>().ok());
    let mut remember = |folder: &PathBuf, memory: Option<u64>, used: &str| {
        let memory = memory.filter(|bytes| *bytes < UNLIMITED);
        if let Some(memory) = memory.filter(|bytes| limits.memory.is_none_or(|it| *bytes < it)) {
            (limits.memory, limits.used) = (Some(memory), number(folder.join(used)));
        }
    };
    let mut cpus: Option<f64> = None;
    let mut share = |quota: Option<f64>, period: Option<f64>| {
        let worth = quota.zip(period).filter(|(quota, period)| *quota > 0.0 && *period > 0.0);
        if let Some(worth) = worth.map(|(quota, period)| quota / period) {
            cpus = Some(cpus.map_or(worth, |it| it.min(worth)));
        }
    };
    for (controllers, path) in lines(groups) {
        let named = |name: &str| controllers.split(',').any(|it| it == name);
        if controllers.is_empty() {
            for folder in upwards("/sys/fs/cgroup", path) {
                remember(&folder, number(folder.join("memory.max")), "memory.current");
                let max = read(folder.join("cpu.max")).unwrap_or_default();
                let mut parts = max.split_whitespace().map(|part| part.parse().ok());
                share(parts.next().flatten(), parts.next().flatten());
            }
        }
        if named("memory") {
            for folder in upwards("/sys/fs/cgroup/memory", path) {
                let limit = number(folder.join("memory.limit_in_bytes"));
                remember(&folder, limit, "memory.usage_in_bytes");
            }
        }
        if named("cpu") {
            for folder in upwards("/sys/fs/cgroup/cpu", path) {
                let figure =
                    |file: &str| read(folder.join(file)).and_then(|it| it.trim().parse().ok());
                share(figure("cpu.cfs_quota_us"), figure("cpu.cfs_period_us"));
            }
        }
    }
    limits.cpus = cpus;
    limits
}

/// Controllers (none: version 2) and path of each group.
fn lines(groups: &str) -> impl Iterator<Item = (&str, &str)> {
    groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

/// The folder of a group and those above it up to the top. Inside of a container there may be the top alone.
fn upwards(top: &str, path: &str) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(top)];
    for part in path.split('/').filter(|part| !part.is_empty() && *part != "..") {
        let next = folders.last().map(|folder| folder.join(part)).unwrap_or_default();
        folders.push(next);
    }
    folders.reverse();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(groups: &str, files: &[(&str, &str)]) -> Limits {
        let read = |path: PathBuf| {
            let found = files.iter().find(|(name, _)| PathBuf::from(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        of(groups, &read)
    }

    #[test]
    fn a_container_of_version_2_has_the_least_of_all_limits_above_it() {
        let found = with(
            "0::/system.slice/docker-ab.scope\n",
            &[
                ("/sys/fs/cgroup/system.slice/docker-ab.scope/memory.max", "max\n"),
                ("/sys/fs/cgroup/system.slice/docker-ab.scope/cpu.max", "400000 100000\n"),
                ("/sys/fs/cgroup/system.slice/memory.max", "17179869184\n"),
                ("/sys/fs/cgroup/system.slice/memory.current", "1073741824\n"),
                ("/sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
                ("/sys/fs/cgroup/memory.max", "34359738368\n"),
                ("/sys/fs/cgroup/memory.current", "2\n"),
            ],
        );
        assert_eq!(found, Limits { memory: Some(16 << 30), used: Some(1 << 30), cpus: Some(4.0) });
        // Inside of it, its own group is the top.
        let inside = [("/sys/fs/cgroup/cpu.max", "150000 100000\n")];
        assert_eq!(with("0::/\n", &inside), Limits { cpus: Some(1.5), ..Limits::default() });
    }

    #[test]
    fn version_1_has_a_group_for_each_controller_and_great_numbers_for_no_limit() {
        let groups = "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/\n0::/\n";
        let found = with(
            groups,
            &[
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n"),
                ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"),
                ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "200000\n"),
                ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(found, Limits { memory: Some(8 << 30), used: Some(4096), cpus: Some(2.0) });
        let free = with(
            groups,
            &[
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "-1\n"),
                ("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(free, Limits::default());
        assert_eq!(with("", &[]), Limits::default());
    }
}
