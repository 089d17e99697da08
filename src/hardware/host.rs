//! The host: operating system, CPU, memory, and what of it this process may use right now.
//!
//! What can't be read is empty, absent or zero: no fact is worth a failed run.

use std::path::Path;

use super::probe::{HostNow, NumaNode};
use super::{Facts, container};

/// Where the kernel describes NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// The host's facts, without its GPUs.
pub(super) fn facts() -> Facts {
    let names = rustix::system::uname();
    Facts {
        os: std::env::consts::OS.to_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
        hostname: names.nodename().to_string_lossy().into_owned(),
        boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |id| id.trim().to_owned()),
        cpu: cpu(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory: memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        ..Facts::default()
    }
}

/// The host right now.
pub(super) fn now() -> HostNow {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let limits = container::limits();
    HostNow {
        cores: listed(&read("/sys/devices/system/cpu/online")),
        affinity: affinity(),
        cpu_quota: limits.cpus,
        numa: nodes(Path::new(NODES)),
        memory_available: kibibytes(&read("/proc/meminfo"), "MemAvailable:"),
        memory_limit: limits.memory,
        memory_used: limits.used,
        load: load(&read("/proc/loadavg")),
    }
}

/// Logical CPUs that this process may run on.
fn affinity() -> Option<u32> {
    #[cfg(target_os = "linux")]
    return rustix::thread::sched_getaffinity(None).ok().map(|cpus| cpus.count());
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// How many there are in a list of the kernel's, like `0-31,64`.
fn listed(list: &str) -> Option<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let list = list.trim();
    (!list.is_empty()).then(|| list.split(',').map(range).sum::<Option<u32>>())?
}

/// The NUMA nodes that a folder describes.
fn nodes(folder: &Path) -> Vec<NumaNode> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let Some(node) = number else { continue };
        let memory = read(&entry.path().join("meminfo"));
        // Each line begins with `Node 0`.
        let total = memory.lines().find_map(|line| line.split_once("MemTotal:"));
        let total =
            total.and_then(|(_, total)| kibibytes(&format!("MemTotal:{total}"), "MemTotal:"));
        let cpus = read(&entry.path().join("cpulist")).trim().to_owned();
        nodes.push(NumaNode { node, cpus, memory: total.unwrap_or_default() });
    }
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// The load averages in `/proc/loadavg`.
fn load(loadavg: &str) -> Option<[f64; 3]> {
    let mut figures = loadavg.split_whitespace().map(|figure| figure.parse().ok());
    let mut next = || figures.next().flatten();
    Some([next()?, next()?, next()?])
}

/// The name of a process of this machine; `None` where it is not to be seen from here.
pub(super) fn process_name(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

/// The model name in `/proc/cpuinfo`; on ARM, where there is none, the architecture.
fn cpu(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "model name" | "cpu model" | "Model"))
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Bytes of memory in `/proc/meminfo`.
fn memory(meminfo: &str) -> u64 {
    kibibytes(meminfo, "MemTotal:").unwrap_or(0)
}

/// The bytes of a line like `MemTotal:  24689012 kB`.
fn kibibytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok();
    meminfo.lines().find_map(line).map(|kib: u64| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let cpuinfo = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)\n";
        assert_eq!(cpu(cpuinfo), "Intel(R) Xeon(R)");
        assert_eq!(cpu(""), std::env::consts::ARCH);
        assert_eq!(memory("MemTotal:       24689012 kB\nMemFree: 1 kB\n"), 24_689_012 * 1024);
        assert_eq!(memory("MemTotal: many"), 0);
        assert_eq!(kibibytes("MemTotal: 4 kB\nMemAvailable: 2 kB\n", "MemAvailable:"), Some(2048));
        assert_eq!(load("0.52 1.5 10 3/812 40\n"), Some([0.52, 1.5, 10.0]));
        assert_eq!(load(""), None);
        assert_eq!(listed("0-31,64,96-97\n"), Some(35));
        for none in ["", "7-3", "some"] {
            assert_eq!(listed(none), None, "{none}");
        }
    }

    #[test]
    fn numa_nodes_are_read_with_their_cpus_and_memory() {
        let folder = tempfile::tempdir().unwrap();
        for (node, cpus) in [(10, "32-63\n"), (2, "0-31\n")] {
            let at = folder.path().join(format!("node{node}"));
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("cpulist"), cpus).unwrap();
            let memory =
                format!("Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n");
            std::fs::write(at.join("meminfo"), memory).unwrap();
        }
        std::fs::write(folder.path().join("online"), "2,10\n").unwrap();
        let node = |node, cpus: &str| NumaNode { node, cpus: cpus.to_owned(), memory: 1 << 20 };
        assert_eq!(nodes(folder.path()), [node(2, "0-31"), node(10, "32-63")]);
        assert!(nodes(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn this_host_has_facts() {
        let facts = facts();
        assert_eq!(facts.os, std::env::consts::OS);
        assert!(facts.cores >= 1 && !facts.kernel.is_empty());
        #[cfg(target_os = "linux")]
        assert!(now().load.is_some() && now().affinity.is_some_and(|cores| cores >= 1));
    }
}
