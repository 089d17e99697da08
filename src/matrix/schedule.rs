//! The schedule: which engine is started when, and which cells it measures then.
//!
//! A launch of the plan is one engine. It is started once, or as often as its cells are to be
//! measured in fresh launches (rounds). Variants that are compared are measured in pairs, in whole ABBA
//! blocks: what drifts over hours befalls both alike. It decides orders, and starts nothing.

use std::collections::{BTreeMap, HashMap};

use super::{Cell, Plan};
use crate::judge::paired::{Order, order};
use crate::suite::model::{Compare, EngineSource, Suite};

/// One start of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Index into `Plan::launches`.
    pub launch: usize,
    /// How many times before it the cells are measured, from 0. Of variants that are compared it is the
    /// number of the pair.
    pub round: u32,
    /// The cells that are measured, by index into `Plan::cells`.
    pub cells: Vec<usize>,
}

/// How often a cell of a test is measured, each time in a fresh launch.
pub(super) fn rounds(suite: &Suite, test: u32, setting: u32) -> u32 {
    match &suite.compare {
        Some(compare) if compares(compare, setting) => compare.pairs,
        Some(_) | None => suite.tests[test as usize].launches.max(1),
    }
}

fn compares(compare: &Compare, setting: u32) -> bool {
    setting == compare.baseline || setting == compare.candidate
}

impl Plan {
    /// How often a cell is measured, each time in a fresh launch.
    pub fn rounds(&self, cell: &Cell) -> u32 {
        rounds(&self.suite, cell.test, cell.setting)
    }

    /// The cells of the same test and point in that setting, by test and point.
    pub fn twins(&self, setting: u32) -> HashMap<(u32, &[u16]), usize> {
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| cell.setting == setting);
        cells.map(|(index, cell)| ((cell.test, &*cell.point), index)).collect()
    }

    /// For each launch the first of those that must be carried out beside it, itself included: those
    /// of two variants that measure the same cells to be compared.
    pub fn bundles(&self) -> Vec<usize> {
        let mut first: Vec<usize> = (0..self.launches.len()).collect();
        let Some(compare) = &self.suite.compare else { return first };
        let twins = self.twins(compare.baseline);
        for cell in self.cells.iter().filter(|cell| cell.setting == compare.candidate) {
            let Some(twin) = twins.get(&(cell.test, &*cell.point)) else { continue };
            let (one, other) = (
                root(&mut first, cell.launch as usize),
                root(&mut first, self.cells[*twin].launch as usize),
            );
            first[one.max(other)] = one.min(other);
        }
        (0..first.len()).map(|launch| root(&mut first, launch)).collect()
    }

    /// The number that a launch's prompts follow from: variants that are compared get the same ones, but
    /// for engines that were running already, which would remember them.
    pub fn prompts(&self, launch: usize) -> u32 {
        let setting = self.launches[launch].setting as usize;
        let first = match (&self.suite.compare, &self.suite.settings[setting].engine.source) {
            (None, _) | (Some(_), EngineSource::Url(_)) => launch,
            (Some(_), EngineSource::Command(_) | EngineSource::Sim { .. }) => {
                self.bundles()[launch]
            }
        };
        self.launches[first].number
    }

    /// Every start of an engine, in order.
    pub fn starts(&self) -> Vec<Start> {
        let bundles = self.bundles();
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (launch, bundle) in bundles.iter().enumerate() {
            members.entry(*bundle).or_default().push(launch);
        }
        let mut starts = Vec::new();
        for launches in members.values() {
            match &self.suite.compare {
                Some(compare) if launches.len() > 1 => self.pairs(compare, launches, &mut starts),
                Some(_) | None => self.in_turn(launches, &mut starts),
            }
        }
        starts
    }

    /// The starts of engines that are compared with none: all of one, then all of the next.
    fn in_turn(&self, launches: &[usize], starts: &mut Vec<Start>) {
        for &launch in launches {
            let cells = self.launches[launch].cells.clone();
            let most = cells.clone().map(|cell| self.rounds(&self.cells[cell])).max().unwrap_or(0);
            for round in 0..most {
                let left = cells.clone().filter(|cell| self.rounds(&self.cells[*cell]) > round);
                starts.push(Start { launch, round, cells: left.collect() });
            }
        }
    }

    /// The starts of engines that are compared, in the order of the pairs. Engines that are running
    /// already are asked in turn for each cell: that costs no start, and brings the two closer together.
    fn pairs(&self, compare: &Compare, launches: &[usize], starts: &mut Vec<Start>) {
        let side = |setting: u32| {
            let of = move |launch: &&usize| self.launches[**launch].setting == setting;
            launches.iter().filter(of).copied().collect::<Vec<usize>>()
        };
        let (baseline, candidate) = (side(compare.baseline), side(compare.candidate));
        let running = |setting: u32| match self.suite.settings[setting as usize].engine.source {
            EngineSource::Url(_) => true,
            EngineSource::Command(_) | EngineSource::Sim { .. } => false,
        };
        let turn = |pair: u32| match order(pair) {
            Order::BaselineFirst => [&baseline, &candidate],
            Order::CandidateFirst => [&candidate, &baseline],
        };
        if !(running(compare.baseline) && running(compare.candidate)) {
            for pair in 0..compare.pairs {
                for launch in turn(pair).into_iter().flatten() {
                    let cells = self.launches[*launch].cells.clone().collect();
                    starts.push(Start { launch: *launch, round: pair, cells });
                }
            }
            return;
        }
        // By test and point, in the order in which they come; one that only one side has is measured too.
        let mut points: Vec<(u32, &[u16])> = Vec::new();
        let mut cells: HashMap<(u32, &[u16]), Vec<usize>> = HashMap::new();
        for launch in baseline.iter().chain(&candidate) {
            for index in self.launches[*launch].cells.clone() {
                let point = (self.cells[index].test, &*self.cells[index].point);
                let known = cells.entry(point).or_default();
                if known.is_empty() {
                    points.push(point);
                }
                known.push(index);
            }
        }
        for point in points {
            for pair in 0..compare.pairs {
                for launch in turn(pair).into_iter().flatten() {
                    let of = |index: &&usize| self.cells[**index].launch as usize == *launch;
                    let here: Vec<usize> = cells[&point].iter().filter(of).copied().collect();
                    if !here.is_empty() {
                        starts.push(Start { launch: *launch, round: pair, cells: here });
                    }
                }
            }
        }
    }
}

fn root(first: &mut [usize], mut at: usize) -> usize {
    while first[at] != at {
        first[at] = first[first[at]];
        at = first[at];
    }
    at
}
