//! Metrics that a suite's `command` tests define.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::Direction::{self, Higher, Lower};

/// A metric that a `command` test of a suite defines: `[a-z][a-z0-9_]*`, unlike every name of the catalogue
/// that has a dash; `check` refuses the others.
///
/// In a record it is written with all that is known of it, `exact_match{higher,%}`, so that a record
/// needs no suite to be read. Names and units live as long as the program: there are a few for each suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserMetric {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Direction,
}

impl UserMetric {
    /// The metric of this name.
    pub fn new(name: &str, unit: &str, better: Direction) -> UserMetric {
        UserMetric { name: kept(name), unit: kept(unit), better }
    }

    /// Its name in suites and reports.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// How a record spells it.
    pub(super) fn spelled(self) -> String {
        let better = match self.better {
            Higher => "higher",
            Lower => "lower",
        };
        let comma = if self.unit.is_empty() { "" } else { "," };
        format!("{}{{{better}{comma}{}}}", self.name, self.unit)
    }

    /// Reads what [`UserMetric::spelled`] wrote.
    pub(super) fn read(text: &str) -> Option<UserMetric> {
        let (name, rest) = text.strip_suffix('}')?.split_once('{')?;
        let (better, unit) = rest.split_once(',').unwrap_or((rest, ""));
        let better = match better {
            "higher" => Higher,
            "lower" => Lower,
            _ => return None,
        };
        Some(UserMetric::new(name, unit, better))
    }
}

/// The one copy of a text that lives as long as the program.
fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.get(text) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(text.to_owned().into_boxed_str());
            kept.insert(new);
            new
        }
    }
}
