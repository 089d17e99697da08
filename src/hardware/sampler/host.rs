//! Looking at the host: processor time of the cores that this process may use, and memory, of its container
//! where that has a limit.
//!
//! What can't be read is unknown. Where files lie is found out once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::clock::Stamp;
use crate::hardware::telemetry::reading::{HostReading, Ticks, Usage};

/// More than this of `/proc/stat` is never needed: lines of cores stand first.
const LONGEST: usize = 1 << 20;

/// The host as it is looked at again and again.
pub(super) struct Host {
    stat: Option<File>,
    cores: Vec<bool>,
    processor: Option<Limited>,
    memory: Memory,
    text: Vec<u8>,
}

/// A container's processor time, which is limited.
struct Limited {
    file: File,
    /// So many cores it may use.
    cores: f64,
    /// What one of its units is in seconds.
    unit: f64,
    /// The word before the number; none where the number stands alone.
    key: &'static str,
}

/// Whose memory is told.
enum Memory {
    /// A container's: what it uses, and of that what the kernel only keeps for later.
    Container { used: File, stat: Option<File>, key: &'static str },
    /// The host's.
    Host(Option<File>),
}

impl Host {
    pub(super) fn find() -> Host {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let processor = folders(&groups, "cpu").into_iter().find_map(limited);
        let memory = folders(&groups, "memory").into_iter().find_map(container);
        Host {
            stat: File::open("/proc/stat").ok(),
            cores: usable(),
            processor,
            memory: memory.unwrap_or_else(|| Memory::Host(File::open("/proc/meminfo").ok())),
            text: Vec::new(),
        }
    }

    pub(super) fn look(&mut self, at: Stamp) -> HostReading {
        let text = &mut self.text;
        let cores = self.stat.as_ref().and_then(|file| ticks(read(file, text)?, &self.cores));
        let container = self.processor.as_ref().and_then(|limited| {
            let used = counted(read(&limited.file, text)?, limited.key)? as f64 * limited.unit;
            Some(Usage { seconds: used, cores: limited.cores })
        });
        let memory = match &self.memory {
            Memory::Container { used, stat, key } => {
                read(used, text).and_then(|text| counted(text, "")).map(|used| {
                    let spare = stat.as_ref().and_then(|stat| counted(read(stat, text)?, key));
                    used.saturating_sub(spare.unwrap_or_default())
                })
            }
            Memory::Host(file) => file.as_ref().and_then(|file| in_use(read(file, text)?)),
        };
        HostReading { at, cores, container, memory }
    }
}

/// The cores that this process may use, by number; empty where all are.
fn usable() -> Vec<bool> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).map(|core| set.is_set(core)).collect()
}

fn read<'a>(file: &File, text: &'a mut Vec<u8>) -> Option<&'a str> {
    if text.is_empty() {
        text.resize(1 << 14, 0);
    }
    loop {
        let length = file.read_at(text, 0).ok()?;
        if length < text.len() || text.len() >= LONGEST {
            let end = text[..length].iter().rposition(|byte| *byte == b'\n').unwrap_or(length);
            return std::str::from_utf8(&text[..end]).ok();
        }
        let longer = text.len() * 2;
        text.resize(longer, 0);
    }
}

/// What cores have done, by `/proc/stat`. Cores that stand still have no line.
fn ticks(stat: &str, cores: &[bool]) -> Option<Ticks> {
    let mut sum = Ticks::default();
    for line in stat.lines().skip(1).map_while(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        let core: usize = words.next()?.parse().ok()?;
        if !cores.is_empty() && !cores.get(core).copied().unwrap_or_default() {
            continue;
        }
        // user nice system idle iowait irq softirq steal; what guests use is in the first two.
        for (place, word) in words.take(8).enumerate() {
            let count: u64 = word.parse().ok()?;
            sum.all += count;
            if place != 3 && place != 4 {
                sum.busy += count;
            }
        }
    }
    (sum.all > 0).then_some(sum)
}

/// The number behind a word in a file of words and numbers; without a word the first one.
fn counted(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines();
    if key.is_empty() {
        return lines.next()?.trim().parse().ok();
    }
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Bytes in use by `/proc/meminfo`: all but what could be had.
fn in_use(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let mut lines = meminfo.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())
    };
    Some(kib("MemTotal:")?.saturating_sub(kib("MemAvailable:")?) * 1024)
}

/// A folder of the kernel's control groups.
struct Folder {
    path: PathBuf,
    /// Whether it is of the second version.
    unified: bool,
}

/// Where limits of this process on a resource may stand, given `/proc/self/cgroup`: its own group, those above it,
/// and, inside of a container, the top.
fn folders(groups: &str, controller: &str) -> Vec<Folder> {
    let mut found: Vec<Folder> = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        let top = match (unified, controller) {
            (true, _) => "/sys/fs/cgroup".to_owned(),
            (false, name) => format!("/sys/fs/cgroup/{name}"),
        };
        let own = PathBuf::from(format!("{top}/{}", path.trim_start_matches('/')));
        let up = own.ancestors().take_while(|above| above.starts_with(&top));
        found.extend(up.map(|path| Folder { path: path.to_owned(), unified }));
    }
    found
}

/// A group's processor time, where it has a limit.
fn limited(folder: Folder) -> Option<Limited> {
    let text = |name: &str| std::fs::read_to_string(folder.path.join(name)).ok();
    if folder.unified {
        let cores = share(&text("cpu.max")?)?;
        let file = File::open(folder.path.join("cpu.stat")).ok()?;
        return Some(Limited { file, cores, unit: 1e-6, key: "usage_usec" });
    }
    let quota = text("cpu.cfs_quota_us")?;
    let cores = share(&format!("{} {}", quota.trim(), text("cpu.cfs_period_us")?.trim()))?;
    let file = File::open(folder.path.join("cpuacct.usage")).ok()?;
    Some(Limited { file, cores, unit: 1e-9, key: "" })
}

/// Cores of a limit like `400000 100000`; `None` where it is none.
fn share(limit: &str) -> Option<f64> {
    let mut words = limit.split_whitespace().map(|word| word.parse::<f64>().ok());
    let (quota, period) = (words.next()??, words.next()??);
    Some(quota / period).filter(|cores| cores.is_finite() && *cores > 0.0)
}

/// A group's memory, where it has a limit.
fn container(folder: Folder) -> Option<Memory> {
    let (limit, used, key) = match folder.unified {
        true => ("memory.max", "memory.current", "inactive_file"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    };
    let limit: u64 = std::fs::read_to_string(folder.path.join(limit)).ok()?.trim().parse().ok()?;
    // The first version has a number for "none" which no machine reaches.
    if limit >= 1 << 60 {
        return None;
    }
    let used = File::open(folder.path.join(used)).ok()?;
    Some(Memory::Container { used, stat: File::open(folder.path.join("memory.stat")).ok(), key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_of_the_cores_that_may_be_used() {
        let stat =
            "cpu  9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 1 1\ncpu2 10 0 0 10 0 0 0 0 0 0\nintr 5 cpu\n";
        assert_eq!(ticks(stat, &[]), Some(Ticks { busy: 27 + 10, all: 72 + 20 }));
        assert_eq!(ticks(stat, &[false, true, true]), Some(Ticks { busy: 10, all: 20 }));
        assert_eq!(ticks(stat, &[false, true]), None);
        assert_eq!(ticks("", &[]), None);
    }

    #[test]
    fn files_of_numbers_are_read() {
        assert_eq!(
            in_use("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   30 kB\n"),
            Some(70 << 10)
        );
        assert_eq!(in_use("MemTotal: 100 kB\n"), None);
        assert_eq!(counted("usage_usec 12\nuser_usec 9", "usage_usec"), Some(12));
        assert_eq!(counted("4096", ""), Some(4096));
        assert_eq!(counted("inactive_file_x 3\ninactive_file 4", "inactive_file"), Some(4));
        assert_eq!((share("max 100000"), share("-1 100000")), (None, None));
        assert_eq!(share("250000 100000\n"), Some(2.5));
    }

    #[test]
    fn limits_are_looked_for_in_both_versions_of_control_groups_and_above() {
        let paths = |controller| -> Vec<String> {
            let groups = "4:memory:/docker/ab\n2:cpu,cpuacct:/\n0::/user.slice/one\n";
            let all = folders(groups, controller).into_iter();
            all.map(|folder| folder.path.display().to_string()).collect()
        };
        assert_eq!(
            paths("memory"),
            [
                "/sys/fs/cgroup/memory/docker/ab",
                "/sys/fs/cgroup/memory/docker",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/user.slice/one",
                "/sys/fs/cgroup/user.slice",
                "/sys/fs/cgroup",
            ]
        );
        assert_eq!(paths("cpu")[0], "/sys/fs/cgroup/cpu/");
    }

    #[test]
    fn this_host_tells_of_itself() {
        let mut host = Host::find();
        let before = host.look(Stamp(1));
        let now = host.look(Stamp(2));
        if cfg!(target_os = "linux") {
            let (before, now) = (before.cores.unwrap(), now.cores.unwrap());
            assert!(now.all >= before.all && now.busy <= now.all, "{before:?} {now:?}");
        }
    }
}
