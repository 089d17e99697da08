//! Judging: observations and limits in, verdicts out.
//!
//! Pure mathematics. `fail` means judged and too slow; `error` means it could not be judged; the
//! two are never mixed.

#[cfg(test)]
pub(crate) mod golden;
pub mod interval;
pub mod lattice;
pub mod limit;
pub mod paired;
pub mod power;
pub mod ratio;
#[cfg(test)]
mod simulation;
pub mod spread;
pub mod tolerance;

pub use interval::NoData;

use serde::{Deserialize, Serialize};

/// An estimate with its one-sided bounds at the level that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Estimate {
    /// The estimate itself, in the metric's unit.
    pub value: f64,
    /// Lower one-sided bound; `None` where the data can't give one (point metrics, too few samples).
    pub lower: Option<f64>,
    /// Upper one-sided bound.
    pub upper: Option<f64>,
    /// Observations behind it: batches, samples, waves.
    pub n: u64,
    /// How the interval was made.
    pub method: Method,
}

/// How an interval was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Batch means and Student's t.
    BatchMeans,
    /// Student's t over samples or wave means.
    StudentT,
    /// Exact binomial counts.
    Binomial,
    /// No noise: the value is the truth.
    Exact,
    /// One observation; judged by value.
    Point,
    /// Several launches and Student's t, or the noise of a calibration.
    Launches,
    /// A ratio to recorded runs, with their noise in it.
    Baseline,
    /// A ratio of pairs without the effect of their order.
    Paired,
}

/// Which side a bound stands on.
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
pub enum Side {
    /// The estimate must be at least the limit.
    Min,
    /// The estimate must be at most the limit.
    Max,
}

/// A bound on one metric: what is tolerated, and what "no loss" would be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bound {
    /// Which side it stands on.
    pub side: Side,
    /// The number as written.
    pub target: f64,
    /// What is tolerated: `target` less (min) or more (max) the slack.
    pub limit: f64,
}

/// What one bound says of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundVerdict {
    /// Within the limit, and the whole interval too.
    Clear,
    /// Within the limit, the interval reaches beyond it.
    Close,
    /// Beyond the limit, but the noise can't exclude the target.
    Inconclusive,
    /// Beyond the limit, and the interval wholly on the bad side of the target.
    Fail,
    /// There is nothing to judge by.
    NoData,
}

/// How much a broken bound matters.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It fails the cell.
    #[default]
    Fail,
    /// It is shown as a warning.
    Warn,
    /// It is only reported.
    Report,
}

/// The verdict on a cell.
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
pub enum Verdict {
    /// Every bound holds.
    Pass,
    /// A bound is broken, or the engine degraded.
    Fail,
    /// Beyond a limit, but not surely.
    Inconclusive,
    /// It could not be judged.
    Error,
    /// Nothing was expected.
    Measured,
    /// Not run, for a reason that is no fault.
    Skip,
    /// Fails as the quarantine expects.
    Xfail,
    /// Passes although quarantined.
    Xpass,
}
