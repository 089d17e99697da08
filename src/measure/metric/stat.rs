//! Statistics of a latency: the suffixes of its name.

use serde::{Deserialize, Serialize};

/// Which statistic of a latency.
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
pub enum Stat {
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// Arithmetic mean.
    Mean,
    /// Greatest value.
    Max,
}

impl Stat {
    /// Every statistic, in the order in which reports show them.
    pub const ALL: [Stat; 6] = [Stat::P50, Stat::P90, Stat::P95, Stat::P99, Stat::Mean, Stat::Max];

    /// The suffix without its dot.
    pub fn name(self) -> &'static str {
        match self {
            Stat::P50 => "p50",
            Stat::P90 => "p90",
            Stat::P95 => "p95",
            Stat::P99 => "p99",
            Stat::Mean => "mean",
            Stat::Max => "max",
        }
    }

    /// The percentile in whole hundredths, for exact counting; `None` for mean and max.
    pub fn percent(self) -> Option<u32> {
        match self {
            Stat::P50 => Some(50),
            Stat::P90 => Some(90),
            Stat::P95 => Some(95),
            Stat::P99 => Some(99),
            Stat::Mean | Stat::Max => None,
        }
    }
}
