//! Provenance: what a run's figures belong to, so that they can be held against those of another day.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::redact::Redactor;

/// By key of the suite what makes the figures of a test comparable.
pub type Workload = BTreeMap<String, String>;

/// What a run's figures belong to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Provenance {
    /// Hash of the suite: two with the same hash measure and judge the same.
    pub suite_hash: String,
    /// What a baseline can be known by: `hardware.gpu`, `model.name`, …. What nobody says is absent.
    pub facts: BTreeMap<String, String>,
    /// By test what was asked of its measurement.
    pub workloads: BTreeMap<String, Workload>,
    /// Which of the facts a baseline of this suite is known by.
    pub identity: Vec<String>,
    /// The file of the suite's `[baseline]`.
    pub baseline: Option<String>,
}

impl Provenance {
    /// Whether nothing is known, as of records of earlier versions.
    pub fn is_unknown(&self) -> bool {
        self.suite_hash.is_empty()
    }

    /// The same with secrets hidden: a suite may have written one where it should not.
    #[must_use]
    pub fn hidden(mut self, redactor: &Redactor) -> Provenance {
        let values = self.workloads.values_mut().flat_map(BTreeMap::values_mut);
        for text in values.chain(self.facts.values_mut()).chain(&mut self.baseline) {
            *text = redactor.said(text);
        }
        self
    }

    /// The facts that a baseline is known by.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let known = self.facts.iter().filter(|(key, _)| self.identity.contains(key));
        known.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
