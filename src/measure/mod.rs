//! Measuring: traces in, observations of metrics out, with the checks that say whether they count.
//!
//! Pure functions of stamps and counts. It knows no socket and judges nothing against a limit.

pub mod absence;
pub mod delivery;
pub mod distribution;
pub mod document;
pub mod metric;
pub mod observe;
pub mod pool;
pub mod power;
pub mod preset;
pub mod quantile;
pub mod serve;
pub mod told;
pub mod validity;
pub mod window;

pub use metric::{Base, Direction, Metric, Stat, TestKind, UserMetric};
pub use preset::Preset;
pub use validity::{Check, CheckKind, Fault};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The sufficient statistics of one metric in one cell: every later judgement needs nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Observations {
    /// A rate by means over consecutive batches of the window, in the metric's unit.
    Batches {
        /// The rate over the whole window (the estimate).
        rate: f64,
        /// Means of the batches, 10 or after an extension 20.
        means: Vec<f64>,
        /// Floor under their spread: the rate that one token a batch makes.
        floor: f64,
    },
    /// Independent samples, up to 4 096.
    Samples(Vec<f64>),
    /// Samples beyond 4 096, as counts: `(value, count)` in rising order, 3 digits kept.
    Histogram(Vec<(f64, u64)>),
    /// Samples by wave: the requests of a wave share steps, so a wave is one observation.
    Waves(Vec<Vec<f64>>),
    /// A statistic's value in each of some repeats of a load, by statistic: what another tool
    /// told, or each repeat as a whole. A repeat is one observation.
    Told(BTreeMap<Stat, Vec<f64>>),
    /// A count or a reading without noise.
    Exact(f64),
    /// One observation without noise estimate, judged by value.
    Point(f64),
}

impl Observations {
    /// How many observations there are: batches, samples or waves.
    pub fn count(&self) -> u64 {
        match self {
            Observations::Batches { means, .. } => means.len() as u64,
            Observations::Samples(samples) => samples.len() as u64,
            Observations::Histogram(buckets) => buckets.iter().map(|(_, count)| count).sum(),
            Observations::Waves(waves) => waves.len() as u64,
            Observations::Told(values) => {
                values.values().map(|values| values.len() as u64).max().unwrap_or(0)
            }
            Observations::Exact(_) | Observations::Point(_) => 1,
        }
    }

    /// The same observations with each value as `of` makes it. `of` must keep the order of values; the
    /// floor under the spread of batches, one token, stays.
    #[must_use]
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Observations {
        let each = |values: &Vec<f64>| values.iter().map(|value| of(*value)).collect();
        match self {
            Observations::Batches { rate, means, floor } => {
                Observations::Batches { rate: of(*rate), means: each(means), floor: *floor }
            }
            Observations::Samples(samples) => Observations::Samples(each(samples)),
            Observations::Histogram(buckets) => Observations::Histogram(
                buckets.iter().map(|(value, count)| (of(*value), *count)).collect(),
            ),
            Observations::Waves(waves) => Observations::Waves(waves.iter().map(each).collect()),
            Observations::Told(told) => Observations::Told(
                told.iter().map(|(stat, values)| (*stat, each(values))).collect(),
            ),
            Observations::Exact(value) => Observations::Exact(of(*value)),
            Observations::Point(value) => Observations::Point(of(*value)),
        }
    }
}
