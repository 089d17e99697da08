//! Telemetry: what was seen of GPUs and host over a stretch of measuring, short enough for a record.
//!
//! Pure: who samples is `hardware::sampler`; whether what was seen may be why a cell fails is decided in
//! `hardware::blame`. What a driver does not tell is absent, never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod fold;
mod join;
mod line;
pub mod reading;

pub use fold::{Whose, fold};
pub use join::join;
pub use line::Stretch;

/// The hardware over the window of a cell, or over the part of it that is measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Telemetry {
    /// Length of the stretch in seconds.
    pub seconds: f64,
    /// How many samples were taken in it.
    pub samples: u32,
    /// The GPUs that the engine sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuTelemetry>,
    /// The host, as far as this process may use it.
    pub host: HostTelemetry,
    /// What could not be sampled, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One GPU over the stretch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GpuTelemetry {
    /// Its place in the driver's order.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// Joules over the stretch: by the driver's own counter where it has one, else the integral of the power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// Power in W.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Series>,
    /// Share of the time in which a kernel ran, in %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Series>,
    /// Memory in use by anybody, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Series>,
    /// Clock of the multiprocessors in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock: Option<Series>,
    /// Clock of the memory in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock: Option<Series>,
    /// Temperature in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Series>,
    /// For which share of the time, 0 to 1, clocks were held back, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub throttled: BTreeMap<Throttle, f64>,
    /// Memory errors that ECC corrected in the stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Memory errors that it could not correct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Numbers of the errors that the driver told meanwhile (Xid).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xid: Vec<u64>,
    /// Compute processes that were on it and are none of the engine's, as words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<String>,
    /// Why it could not be asked any more, where it was lost in the stretch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The host over the stretch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HostTelemetry {
    /// Share of the time of the cores that this process may use in which they ran anything, in %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Series>,
    /// Memory in use, in bytes: that of the container where it has a limit, else of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Series>,
}

/// A quantity over the stretch. The figures are over all samples, weighted by time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Series {
    /// Least.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Greatest.
    pub max: f64,
    /// What is drawn: means of equally long parts of the stretch, at most [`POINTS`] of them.
    pub points: Vec<f32>,
}

/// So many points of a series are kept at most.
pub const POINTS: usize = 60;

/// Why the driver holds a GPU's clocks back.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Throttle {
    /// The software's power cap. A GPU under full load is often at it: no fault by itself.
    PowerCap,
    /// Clocks that somebody has set.
    ApplicationClocks,
    /// Another GPU of the same group is held back.
    SyncBoost,
    /// Too hot, by software.
    ThermalSoftware,
    /// Too hot, by hardware.
    ThermalHardware,
    /// The power supply asked for it.
    PowerBrake,
    /// By hardware, the driver does not say why.
    HardwareSlowdown,
}

impl Throttle {
    /// Every reason.
    pub const ALL: [Throttle; 7] = [
        Throttle::PowerCap,
        Throttle::ApplicationClocks,
        Throttle::SyncBoost,
        Throttle::ThermalSoftware,
        Throttle::ThermalHardware,
        Throttle::PowerBrake,
        Throttle::HardwareSlowdown,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Throttle::PowerCap => "at its power cap",
            Throttle::ApplicationClocks => "at clocks that are set",
            Throttle::SyncBoost => "held back by another GPU of its group",
            Throttle::ThermalSoftware | Throttle::ThermalHardware => "throttled by heat",
            Throttle::PowerBrake => "throttled by the power supply",
            Throttle::HardwareSlowdown => "slowed down by hardware",
        }
    }
}

#[cfg(test)]
mod tests;
