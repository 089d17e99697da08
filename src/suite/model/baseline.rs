//! What ratios are held against, as a suite says it: recorded runs and what they must have in common
//! with a run, and variants that are measured beside each other.

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
    pub file: Option<BaselineFile>,
    /// `noise`: what `tokgate calibrate` wrote.
    pub noise: Option<BaselineFile>,
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
            noise: None,
            identity: identity.map(str::to_owned).to_vec(),
            on_missing: OnMissing::default(),
        }
    }
}

/// A file of recorded runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaselineFile {
    /// The file, resolved against the suite's folder.
    pub file: PathBuf,
    /// Where the suite names it.
    pub place: Place,
}

/// What a ratio is held against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Against {
    /// What it is.
    pub reference: Reference,
    /// Where the suite names it.
    pub place: Place,
}

/// What can be held against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A file of recorded runs, resolved against the suite's folder.
    File(PathBuf),
    /// Such a file as it stands in a revision of its git repository.
    Git {
        /// The revision, as git understands it.
        revision: String,
        /// The file, resolved against the suite's folder.
        file: PathBuf,
    },
    /// A variant of the same run: index into `Suite::settings`.
    Variant(u32),
}

/// The fewest pairs whose noise can be told from the effect of their order with a margin.
pub const LEAST_PAIRS: u32 = 4;

/// `[compare]`: two variants measured in pairs of fresh launches.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// What is held against: index into `Suite::settings`.
    pub baseline: u32,
    /// What is judged: index into `Suite::settings`.
    pub candidate: u32,
    /// How many pairs of launches: even, at least [`LEAST_PAIRS`].
    pub pairs: u32,
    /// `min-mean-ratio`: what the mean ratio of all cells must be at least, with where it stands.
    pub min_mean_ratio: Option<(f64, Place)>,
    /// Where the table stands.
    pub place: Place,
    /// Byte span in the source map, for carets.
    pub span: std::ops::Range<usize>,
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
