//! Baselines as a suite names them: which file, and what it must have in common with a run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Place;

/// What can be asked to be the same of recorded runs and of this one, by the key of the suite that
/// says it.
pub const IDENTITY: [&str; 9] = [
    "engine.gpus",
    "engine.kind",
    "hardware.count",
    "hardware.cpu",
    "hardware.driver",
    "hardware.gpu",
    "model.name",
    "model.quantization",
    "model.revision",
];

/// `[baseline]`, with its defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineSetting {
    /// `file`.
    pub file: Option<Against>,
    /// `identity`: some of [`IDENTITY`].
    pub identity: Vec<String>,
    /// `on-missing`.
    pub on_missing: OnMissing,
}

impl Default for BaselineSetting {
    fn default() -> BaselineSetting {
        let identity = ["hardware.gpu", "hardware.count", "model.name", "model.quantization"];
        BaselineSetting {
            file: None,
            identity: identity.map(str::to_owned).to_vec(),
            on_missing: OnMissing::default(),
        }
    }
}

/// A file of recorded runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Against {
    /// The file, resolved against the suite's folder.
    pub file: PathBuf,
    /// Where the suite names it.
    pub place: Place,
}

/// What a cell that the recorded runs lack leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnMissing {
    /// Nothing is launched, exit 21.
    #[default]
    Error,
    /// Its ratios are not judged, with a warning.
    Skip,
    /// Its ratios are not judged, and what is measured is added to the file.
    Record,
}
