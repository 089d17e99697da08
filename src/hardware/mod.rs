//! What the engine runs on: facts of the host and its GPUs, read and compared with what a suite
//! declares.
//!
//! It reads and compares; what a mismatch leads to is decided by the run.

pub mod host;
pub mod need;
pub mod nvml;

use serde::{Deserialize, Serialize};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Gpu {
    /// Product name as the driver says it.
    pub name: String,
    /// Memory in bytes.
    pub memory: u64,
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
    /// Why no GPU was found, where that is worth a word.
    pub gpu_note: Option<String>,
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
