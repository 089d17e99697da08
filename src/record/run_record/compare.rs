//! What a record says of several launches of a cell, of variants that are compared, and of noise.

use serde::{Deserialize, Serialize};

use super::{CellState, Judgement};
use crate::suite::model::Place;

/// Two variants that are measured in pairs of fresh launches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CompareRecord {
    /// The variant that is held against.
    pub baseline: String,
    /// The variant that is judged.
    pub candidate: String,
    /// How many pairs.
    pub pairs: u32,
    /// What the mean ratio of all cells must be at least.
    pub min_mean_ratio: Option<f64>,
    /// Where that stands, else the table.
    pub place: Place,
}

/// How much launches differ in a metric of a cell, out of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NoiseRecord {
    /// The file that told.
    pub file: String,
    /// Standard deviation of the logarithm of the value over fresh launches.
    pub sd: f64,
    /// Its degrees of freedom.
    pub df: f64,
}

impl NoiseRecord {
    /// What `judge` makes intervals of.
    pub fn noise(&self) -> crate::judge::ratio::Noise {
        crate::judge::ratio::Noise { sd: self.sd, df: self.df }
    }
}

/// A variant of the same run that a ratio is held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct VariantRecord {
    /// Its name.
    pub name: String,
    /// Whether both are measured in pairs.
    pub paired: bool,
}

/// One launch's part of a cell that is measured in several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Round {
    /// What came of it.
    pub state: CellState,
    /// Seconds that it took.
    pub seconds: f64,
}

/// What the mean ratio of all cells of two variants comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CompareOutcome {
    /// The mean ratio of each pair over all cells, in their order; less is worse, whatever the metric. Empty
    /// as long as not every cell has every pair.
    pub ratios: Vec<f64>,
    /// How many cells are in it.
    pub cells: usize,
    /// What it comes to; its one bound is the limit, if there is one.
    pub judgement: Judgement,
}
