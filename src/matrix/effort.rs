//! Effort: what carrying out a plan takes, as it is or with another number of pairs or launches.
//!
//! A first guess out of settings and limits, as a list of cells shows it; nothing is started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Plan;
use super::shard::Timings;
use crate::suite::model::EngineSource;

/// Starts of engines, and how long all of it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Starts of engines; one that runs already is not started.
    pub starts: usize,
    /// Starts and cells together, one after the other.
    pub time: Duration,
}

impl Plan {
    /// What the plan takes.
    pub fn effort(&self) -> Effort {
        let started = |launch: usize| {
            let setting = self.launches[launch].setting as usize;
            match self.suite.settings[setting].engine.source {
                EngineSource::Url(_) => false,
                EngineSource::Command(_) | EngineSource::Sim { .. } => true,
            }
        };
        let starts = self.starts().iter().filter(|start| started(start.launch)).count();
        let times = self.times(&Timings::default());
        Effort { starts, time: times.into_iter().fold(Duration::ZERO, Duration::saturating_add) }
    }

    /// The plan with that many pairs, and launches of tests by their index; what is not named stays.
    pub fn with_rounds(&self, pairs: Option<u32>, launches: &BTreeMap<u32, u32>) -> Plan {
        let mut plan = self.clone();
        let suite = Arc::make_mut(&mut plan.suite);
        if let (Some(compare), Some(pairs)) = (&mut suite.compare, pairs) {
            compare.pairs = pairs;
        }
        for (test, launches) in launches {
            if let Some(test) = suite.tests.get_mut(*test as usize) {
                test.launches = *launches;
            }
        }
        plan
    }
}
