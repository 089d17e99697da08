//! The schedule: which engine is started when, and which cells it measures then.
//!
//! A launch of the plan is one engine. It is started once, or as often as its cells are to be
//! measured in fresh launches (rounds). Variants that are compared are measured in pairs, in whole ABBA
//! blocks: what drifts over hours befalls both alike. It decides orders, and starts nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Cell, CellBound, Plan, PlannedLaunch};
use crate::judge::paired::{Order, order};
use crate::suite::model::{Against, Compare, EngineSource, Limits, Reference, Suite};

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

    /// How often a launch is started; 0 of an engine that runs already.
    pub fn starts_of(&self, launch: usize) -> u64 {
        let PlannedLaunch { setting, cells, .. } = &self.launches[launch];
        match self.suite.settings[*setting as usize].engine.source {
            EngineSource::Url(_) => 0,
            EngineSource::Command(_) | EngineSource::Sim { .. } => {
                let rounds = self.cells[cells.clone()].iter().map(|cell| self.rounds(cell));
                rounds.max().unwrap_or(0).into()
            }
        }
    }

    /// How many engines are started in all, restarts aside.
    pub fn engines(&self) -> u64 {
        (0..self.launches.len()).map(|launch| self.starts_of(launch)).sum()
    }

    /// How many pairs a bound of a cell is judged by; `None` where it is held against no variant, or one
    /// that is measured by itself.
    pub fn pairs_of(&self, cell: &Cell, against: &Against) -> Option<u32> {
        let compare = self.suite.compare.as_ref()?;
        let paired = against.reference == Reference::Variant(compare.baseline)
            && cell.setting == compare.candidate;
        paired.then_some(compare.pairs)
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
            unite(&mut first, cell.launch, self.cells[*twin].launch);
        }
        (0..first.len()).map(|launch| root(&mut first, launch)).collect()
    }

    /// For each launch the first of those that one machine must carry out together, itself included: its
    /// bundle, and the launches of variants that its cells are held against.
    pub fn together(&self) -> Vec<usize> {
        let mut first = self.bundles();
        if !self.index.has_variants() {
            return first;
        }
        let mut twins = HashMap::new();
        for cell in &self.cells {
            for bound in self.bounds(cell) {
                let Some(Against { reference: Reference::Variant(setting), .. }) = bound.against
                else {
                    continue;
                };
                let twins = twins.entry(setting).or_insert_with(|| self.twins(setting));
                if let Some(twin) = twins.get(&(cell.test, &*cell.point)) {
                    unite(&mut first, cell.launch, self.cells[*twin].launch);
                }
            }
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

    /// Every start of an engine, in order. Launches that others are held against come first, so that those
    /// have their verdict when they are measured.
    pub fn starts(&self) -> Vec<Start> {
        let bundles = self.bundles();
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (launch, bundle) in bundles.iter().enumerate() {
            members.entry(*bundle).or_default().push(launch);
        }
        let references = self.references();
        let waits = |launch: &usize| !references.contains(&self.launches[*launch].setting);
        let mut members: Vec<Vec<usize>> = members.into_values().collect();
        if !references.is_empty() {
            members.sort_by_key(|launches| launches.iter().any(waits));
        }
        let mut starts = Vec::new();
        for launches in &members {
            match &self.suite.compare {
                Some(compare) if launches.len() > 1 => self.pairs(compare, launches, &mut starts),
                Some(_) | None => self.in_turn(launches, &mut starts),
            }
        }
        starts
    }

    /// Whether cells of another variant are held against those of this setting.
    pub fn is_yardstick(&self, setting: u32) -> bool {
        let compared = |cell: &Cell| match &self.suite.compare {
            Some(compare) => (compare.baseline, compare.candidate) == (setting, cell.setting),
            None => false,
        };
        let named = |cell: &Cell| {
            let variant = Reference::Variant(setting);
            let against = |bound: &CellBound| {
                bound.against.as_ref().is_some_and(|it| it.reference == variant)
            };
            self.bounds(cell).iter().any(against)
        };
        self.cells.iter().any(|cell| compared(cell) || named(cell))
    }

    /// The variants that bounds of others are shares of.
    fn references(&self) -> BTreeSet<u32> {
        let bounds = self.suite.expectations.iter().flat_map(|it| &it.bounds);
        let variant = |limits: &Limits| match limits {
            Limits::Ratio { against, .. } => match against.reference {
                Reference::Variant(setting) => Some(setting),
                Reference::File(_) | Reference::Git { .. } => None,
            },
            Limits::Scalar { .. } | Limits::Grid(_) => None,
        };
        bounds.filter_map(|(_, limits)| variant(limits)).collect()
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

/// Puts two launches into one set.
fn unite(first: &mut [usize], one: u32, other: u32) {
    let (one, other) = (root(first, one as usize), root(first, other as usize));
    first[one.max(other)] = one.min(other);
}

fn root(first: &mut [usize], mut at: usize) -> usize {
    while first[at] != at {
        first[at] = first[first[at]];
        at = first[at];
    }
    at
}

#[cfg(test)]
mod tests;
