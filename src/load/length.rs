//! Lengths: how many tokens the prompts and outputs of a `serve` test have.
//!
//! A pure function of seed and ordinal.

use serde::{Deserialize, Serialize};

/// How lengths are distributed, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// All alike.
    Fixed(u64),
    /// Evenly between both, ends included.
    Uniform(u64, u64),
    /// By a normal distribution, cut off at 1 token and at four deviations.
    Normal {
        /// The middle.
        mean: f64,
        /// The standard deviation.
        sd: f64,
    },
}
