//! Facts of the host: operating system, CPU, memory.
//!
//! What can't be read is empty or zero: no fact is worth a failed run.

use super::Facts;

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
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map_or(0, |kib: u64| kib.saturating_mul(1024))
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
    }

    #[test]
    fn this_host_has_facts() {
        let facts = facts();
        assert_eq!(facts.os, std::env::consts::OS);
        assert!(facts.cores >= 1 && !facts.kernel.is_empty());
    }
}
