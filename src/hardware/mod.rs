//! What the engine runs on: facts of the host and its GPUs, read and compared with what a suite
//! declares.
//!
//! It reads and compares; what a mismatch leads to is decided by the run.

pub mod blame;
pub mod host;
pub mod need;
pub mod nvml;
pub mod occupancy;
pub mod oom;
pub mod telemetry;

use serde::{Deserialize, Serialize};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Gpu {
    /// Product name as the driver says it; of a slice that of the GPU it is cut from.
    pub name: String,
    /// Memory in bytes; of a slice its own.
    pub memory: u64,
    /// Its place in the driver's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Unique id as the driver says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Of a slice (MIG) its profile, like `3g.71gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Whether it is cut into slices (MIG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
    /// Whether memory errors are corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Enforced power limit in W.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<f64>,
    /// Greatest clock of the multiprocessors in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sm_clock: Option<u32>,
    /// Greatest clock of the memory in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_clock: Option<u32>,
    /// PCIe link as the GPU could have it, like `gen5 x16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<String>,
    /// Active NVLinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<u32>,
}

/// The facts of the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Facts {
    /// Operating system, as `std::env::consts::OS`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Host name.
    pub hostname: String,
    /// What the kernel calls this boot of the host, which containers on it share; empty where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// GPUs that the engine will see; empty means no GPU.
    pub gpus: Vec<Gpu>,
    /// GPU driver version.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver runs, or the version of ROCm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Why no GPU was found, where that is worth a word.
    pub gpu_note: Option<String>,
}

impl Facts {
    /// In which ways `now` is another machine than this one, or no longer the same; empty where a run that
    /// began on this one can go on there. A host is known by its name or by its boot: a container has
    /// another name each time, a restarted host another boot.
    pub fn differences(&self, now: &Facts) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, was: &str, is: &str| {
            if was != is {
                found.push(format!("{what} was {}, is {}", named(was), named(is)));
            }
        };
        let same_boot = !self.boot.is_empty() && self.boot == now.boot;
        if !same_boot {
            compare("the host", &self.hostname, &now.hostname);
        }
        compare("the system", &self.os, &now.os);
        compare("the kernel", &self.kernel, &now.kernel);
        compare("the CPU", &self.cpu, &now.cpu);
        compare("the number of cores", &self.cores.to_string(), &now.cores.to_string());
        // The kernel keeps some of it for itself, at each boot a little more or less.
        if self.memory.abs_diff(now.memory) > self.memory / 50 {
            compare("memory", &gibibytes(self.memory), &gibibytes(now.memory));
        }
        compare("the set of GPUs", &self.gpu_words(), &now.gpu_words());
        let driver = |facts: &Facts| facts.driver.clone().unwrap_or_default();
        compare("the GPU driver", &driver(self), &driver(now));
        found
    }

    /// What tells this kind of machine from another, by name; nothing that two machines of one kind differ in.
    pub fn properties(&self) -> Vec<(&'static str, String)> {
        vec![
            ("system", self.os.clone()),
            ("CPU", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            // In steps that are wider than what a kernel keeps for itself.
            (
                "memory",
                format!("{:.0} GiB", (self.memory as f64 / f64::from(1 << 30) / 4.0).round() * 4.0),
            ),
            (GPUS, self.gpu_words()),
            ("GPU driver", self.driver.clone().unwrap_or_default()),
        ]
    }

    fn gpu_words(&self) -> String {
        let words = |gpu: &Gpu| format!("{} ({})", gpu.name, gibibytes(gpu.memory));
        self.gpus.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// The name of the property that tells the GPUs.
pub const GPUS: &str = "GPUs";

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn named(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// Reads the facts of the machine; GPUs as this process would see them.
pub fn probe() -> Facts {
    probe_for(std::env::var_os("CUDA_VISIBLE_DEVICES").as_ref())
}

/// Reads the facts of the machine; GPUs as an engine with this `CUDA_VISIBLE_DEVICES` would see
/// them, `None` where it is not set.
pub fn probe_for(visible: Option<&std::ffi::OsString>) -> Facts {
    let seen = nvml::seen(visible);
    Facts { gpus: seen.gpus, driver: seen.driver, gpu_note: seen.note, ..host::facts() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_name_or_its_boot() {
        let gpu = Gpu { name: "H200".into(), memory: 141 << 30, ..Gpu::default() };
        let facts = |hostname: &str, boot: &str| Facts {
            hostname: hostname.into(),
            boot: boot.into(),
            cores: 8,
            memory: 1 << 40,
            gpus: vec![gpu.clone(); 2],
            ..Facts::default()
        };
        let here = facts("runner-1", "b1");
        assert!(here.differences(&facts("runner-1", "b2")).is_empty(), "restarted");
        assert!(here.differences(&facts("9f3c", "b1")).is_empty(), "in another container");
        assert_eq!(
            here.differences(&facts("runner-2", "b2")),
            ["the host was runner-1, is runner-2"]
        );
        assert_eq!(facts("a", "").differences(&facts("b", "")).len(), 1);
        let mut less = here.clone();
        (less.cores, less.memory) = (4, (1 << 40) - (1 << 20));
        less.gpus.pop();
        assert_eq!(
            here.differences(&less),
            [
                "the number of cores was 8, is 4",
                "the set of GPUs was H200 (141.0 GiB), H200 (141.0 GiB), is H200 (141.0 GiB)"
            ]
        );
        less.gpus.clear();
        assert!(here.differences(&less)[1].ends_with(", is none"));
    }
}
