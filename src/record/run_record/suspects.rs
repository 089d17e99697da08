//! Suspects: what was not in order with the hardware while cells were measured.
//!
//! Clocks are compared within a launch, so those of a cell are known once it has stopped; cells whose
//! suspicions change by that are judged again. Everything is asked once for each cell, whatever their number.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rounds::figures;
use super::{CellState, Judgement, Measurement, RunRecord};
use crate::hardware::blame::{self, Peers, Suspicion};
use crate::hardware::telemetry::Telemetry;
use crate::judge::Verdict;
use crate::record::judgement::hardware::suspected;

/// The class of a cell that is an error since hardware was not in order.
pub const HARDWARE: &str = "hardware";

/// Something that was not in order with the hardware while a cell was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Suspected {
    /// In which of the launches that the cell is measured in, from 0; absent where it is measured once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// What.
    pub suspicion: Suspicion,
}

impl Judgement {
    /// Whether the cell is an error since hardware was not in order.
    pub fn is_of_hardware(&self) -> bool {
        self.verdict == Verdict::Error && self.class.as_deref() == Some(HARDWARE)
    }
}

impl RunRecord {
    /// What was not in order in each launch of a cell, given its figures.
    pub(super) fn suspicions(
        &self,
        index: usize,
        figures: &[Option<&Measurement>],
    ) -> Vec<Vec<Suspicion>> {
        let cell = &self.header.cells[index];
        let clocks = self.kin.clocks.get(&cell.launch).and_then(|tests| tests.get(&cell.test));
        let of = |telemetry: &Telemetry| {
            let memory = self.origin(cell.launch).machine.memory;
            blame::suspicions(telemetry, clocks, memory)
        };
        let seen = figures.iter().map(|one| one.and_then(|one| one.telemetry.as_deref()));
        seen.map(|telemetry| telemetry.map(of).unwrap_or_default()).collect()
    }

    /// Compares the clocks of a launch's cells, as far as they are measured.
    pub(super) fn settle_hardware(&mut self, launch: usize) {
        let known = self.kin.of(&self.header);
        let Some(cells) = known.launches.get(launch) else { return };
        let mut tests: HashMap<&str, Vec<&Telemetry>> = HashMap::new();
        for index in cells {
            let Some(outcome) = self.cells.get(*index) else { continue };
            let seen = figures(outcome).into_iter().flatten();
            let seen = seen.filter_map(|one| one.telemetry.as_deref());
            tests.entry(&self.header.cells[*index].test).or_default().extend(seen);
        }
        let clocks: HashMap<String, Peers> = tests
            .into_iter()
            .map(|(test, seen)| (test.to_owned(), Peers::of(seen)))
            .filter(|(_, peers)| !peers.is_empty())
            .collect();
        if clocks.is_empty() {
            return;
        }
        self.kin.clocks.insert(launch, Arc::new(clocks));
        let mut compared = false;
        for index in cells {
            let Some(outcome) = self.cells.get(*index) else { continue };
            let judged = &outcome.judgement.suspects;
            if matches!(outcome.state, CellState::Measured(_))
                && *judged != suspected(&self.suspicions(*index, &figures(outcome)))
            {
                compared |= self.judge_again(*index);
            }
        }
        if compared {
            self.compare_all();
        }
    }

    /// Compares the clocks of all launches.
    pub(in crate::record) fn settle_all_hardware(&mut self) {
        for launch in 0..self.header.launches.len() {
            self.settle_hardware(launch);
        }
    }
}
