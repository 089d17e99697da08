//! Validity: whether a measurement counts, and whose fault it is if it does not.

use serde::{Deserialize, Serialize};

/// Whose fault a failed check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The measurement's: the cell is an error.
    Invalid,
    /// The engine's: the cell fails, figures still shown.
    Degraded,
    /// Nobody's: a warning that caps the verdict at inconclusive.
    Drifting,
    /// A word in the report, nothing more.
    Notice,
}

/// What is checked.
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
pub enum CheckKind {
    /// The prompt has the length that was asked for.
    PromptLength,
    /// Cached tokens are as `prefix` declares.
    CacheState,
    /// Delivered concurrency is at least 98 %.
    Concurrency,
    /// Client lag is within `policy.max-client-lag`.
    ClientLag,
    /// Enough samples.
    Samples,
    /// Token counts are known.
    TokenCount,
    /// Failed requests are within `policy.max-error-rate`.
    ErrorRate,
    /// No request was preempted.
    Preemption,
    /// Nothing queued below capacity.
    Queued,
    /// No stream stalled.
    Stall,
    /// No drift over the window.
    Steady,
}

/// One check with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Check {
    /// What was checked.
    pub kind: CheckKind,
    /// `None`: it held.
    pub fault: Option<Fault>,
    /// The numbers, as words.
    pub message: String,
}
