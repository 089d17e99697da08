//! Arrivals: when the requests of a `serve` test go out.
//!
//! A pure function of seed, rate and ordinal. It sends nothing.

use serde::{Deserialize, Serialize};

/// How requests arrive.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// So many streams, each sending its next request when the one before has ended.
    #[default]
    Closed,
    /// All at once.
    Burst,
    /// At a steady pace, whether or not those before have ended.
    Constant,
    /// At random, so many a second on average, whether or not those before have ended.
    Poisson,
}

impl Arrival {
    /// Whether requests are due at a time of their own, whatever the engine does.
    pub fn is_open(self) -> bool {
        match self {
            Arrival::Closed | Arrival::Burst => false,
            Arrival::Constant | Arrival::Poisson => true,
        }
    }
}
