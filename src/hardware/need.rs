//! What a suite declares of the hardware, compared with the facts.

use serde::{Deserialize, Serialize};

use crate::quantity::Size;

/// `[hardware]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Need {
    /// Whether the machine at hand is checked, or the hardware is elsewhere and only declared.
    pub here: bool,
    /// Case-insensitive part of every GPU's product name.
    pub gpu: Option<String>,
    /// How many GPUs.
    pub count: Option<Count>,
    /// Memory per GPU.
    pub vram: Option<Vram>,
    /// Version requirement on the driver.
    pub driver: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// What a mismatch leads to.
    pub on_mismatch: OnMismatch,
}

/// How many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// So many.
    Exactly(u32),
    /// So many or more.
    AtLeast(u32),
}

/// Memory per GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Vram {
    /// Within 5 % of either reading.
    About(Size),
    /// So much or more, by the reading as written.
    AtLeast(Size),
}

/// What a mismatch leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    /// Exit 22, nothing launched.
    #[default]
    Error,
    /// Every cell skipped.
    Skip,
    /// A warning.
    Warn,
}
