//! Whether a baseline fits a run: the same suite, machine and model, the same work.

use std::collections::{BTreeMap, BTreeSet};

use super::{Baseline, Head, Kept};
use crate::record::provenance::{Provenance, Workload};

/// In which way a baseline is of something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is of another suite.
    #[error("it is of suite `{there}`, and this is `{here}`")]
    Suite {
        /// The recorded suite.
        there: String,
        /// This one.
        here: String,
    },
    /// It is of another machine, model or the like.
    #[error("it is of {key} = {there}, and this is {here}")]
    Identity {
        /// The key.
        key: String,
        /// What was recorded.
        there: String,
        /// What is now.
        here: String,
    },
    /// A test was another one.
    #[error("test `{test}` was recorded with another version of the suite: {differences}")]
    Workload {
        /// The test.
        test: String,
        /// `duration was 30s, is 5s`, joined.
        differences: String,
    },
    /// A test's cells had other axes.
    #[error("the cells of test `{test}` were recorded by the axes {there}, and have {here} now")]
    Axes {
        /// The test.
        test: String,
        /// The recorded axes.
        there: String,
        /// Those of today.
        here: String,
    },
}

impl Misfit {
    /// What to do about it, of a baseline.
    pub fn help(&self) -> &'static str {
        self.remedy(Kept::Baseline)
    }

    /// What to do about it.
    pub fn remedy(&self, kind: Kept) -> &'static str {
        match kind {
            Kept::Baseline => self.of_baseline(),
            Kept::Noise => match self {
                Misfit::Suite { .. } => {
                    "name this suite's own noise file, or write one with `tokgate calibrate`"
                }
                Misfit::Identity { .. } => {
                    "machines, engines and models have their own noise: name the file of this one, or calibrate; `identity` of [baseline] says what must be the same"
                }
                Misfit::Workload { .. } => {
                    "what is measured in another way has other noise: take the change back, or calibrate anew"
                }
                Misfit::Axes { .. } => "name the axes as they were, or calibrate anew",
            },
        }
    }

    fn of_baseline(&self) -> &'static str {
        match self {
            Misfit::Suite { .. } => "name this suite's own baseline, or record one",
            Misfit::Identity { .. } => {
                "figures of different machines or models say nothing of each other: name the baseline of this one, or record it; `identity` of [baseline] says what must be the same"
            }
            Misfit::Workload { .. } => {
                "what is measured in another way can't be compared: take the change back, or record the baseline anew"
            }
            Misfit::Axes { .. } => "name the axes as they were, or record the baseline anew",
        }
    }
}

impl Baseline {
    /// In which ways it is of something else than a run of these tests.
    pub fn misfits<'t>(
        &self,
        suite: &str,
        provenance: &Provenance,
        tests: impl Iterator<Item = &'t str>,
    ) -> Vec<Misfit> {
        misfits(&self.head, &self.tests, suite, provenance, &provenance.identity, tests)
    }

    /// How the axes of a test were named when they are others than those of `cell`; `None` where some
    /// cell of the test has the same, or the test is not recorded.
    pub fn other_axes(&self, test: &str, cell: &str) -> Option<Misfit> {
        let of_test = self.cells.iter().filter(|line| line.test == test);
        other_axes(of_test.map(|line| line.cell.as_str()), test, cell)
    }
}

/// In which ways a file is of something else than a run of `tests`. `keys`: the facts that it is known by.
pub(in crate::record) fn misfits<'t>(
    head: &Head,
    workloads: &BTreeMap<String, Workload>,
    suite: &str,
    provenance: &Provenance,
    keys: &[String],
    tests: impl Iterator<Item = &'t str>,
) -> Vec<Misfit> {
    let mut found = Vec::new();
    if head.suite != suite {
        found.push(Misfit::Suite { there: head.suite.clone(), here: suite.to_owned() });
    }
    let word = |value: Option<&String>| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("`{value}`"))
    };
    for key in keys {
        let (there, here) = (head.identity.get(key), provenance.facts.get(key));
        if there != here {
            let (there, here) = (word(there), word(here));
            found.push(Misfit::Identity { key: key.clone(), there, here });
        }
    }
    for test in tests {
        let (Some(there), Some(here)) = (workloads.get(test), provenance.workloads.get(test))
        else {
            continue;
        };
        let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        let word =
            |value: Option<&String>| value.map_or_else(|| "not set".to_owned(), String::to_owned);
        let differences: Vec<String> = keys
            .into_iter()
            .filter(|key| there.get(*key) != here.get(*key))
            .map(|key| format!("{key} was {}, is {}", word(there.get(key)), word(here.get(key))))
            .collect();
        if !differences.is_empty() {
            let differences = differences.join("; ");
            found.push(Misfit::Workload { test: test.to_owned(), differences });
        }
    }
    found
}

/// How the axes of a test were named in its recorded `cells`, where they are others than those of `cell`.
pub(in crate::record) fn other_axes<'l>(
    cells: impl Iterator<Item = &'l str>,
    test: &str,
    cell: &str,
) -> Option<Misfit> {
    let here = axes(cell);
    let mut there = cells.map(axes);
    let first = there.next()?;
    if first == here || there.any(|names| names == here) {
        return None;
    }
    let words =
        |names: &[&str]| if names.is_empty() { "(none)".to_owned() } else { names.join(", ") };
    Some(Misfit::Axes { test: test.to_owned(), there: words(&first), here: words(&here) })
}

/// The names of the axes in a cell's id.
pub fn axes(cell: &str) -> Vec<&str> {
    cell.split(',').filter_map(|part| Some(part.split_once('=')?.0)).collect()
}
