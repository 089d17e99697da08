//! Rounds: a cell that is measured in several launches, and cells that are held against others.
//!
//! A cell of several rounds has its facts once each round has them; until then it has not run. What
//! it comes to is decided in `judgement`, once more whenever what it is held against changes.

use std::collections::BTreeMap;

use super::{
    CellOutcome, CellState, CompareOutcome, Judgement, Measurement, NOT_RUN, PlannedCellRecord,
    Round, RunRecord, VariantRecord,
};
use crate::measure::pool::pool_all;
use crate::record::judgement::{self, Other, Rounds};

/// The rounds of a cell that has not run; none of one that is measured once.
pub(super) fn none(cell: &PlannedCellRecord) -> Vec<Round> {
    let rounds = if cell.rounds > 1 { cell.rounds as usize } else { 0 };
    vec![Round { state: CellState::NotRun { reason: NOT_RUN.to_owned() }, seconds: 0.0 }; rounds]
}

impl RunRecord {
    /// Settles one round of a cell.
    pub(super) fn finish_round(
        &mut self,
        index: usize,
        round: u32,
        state: &CellState,
        seconds: f64,
    ) {
        let Some(outcome) = self.cells.get_mut(index) else { return };
        if outcome.rounds.is_empty() {
            return self.finish(index, state, seconds);
        }
        let Some(known) = outcome.rounds.get_mut(round as usize) else { return };
        *known = Round { state: state.clone(), seconds };
        let seconds = outcome.rounds.iter().map(|round| round.seconds).sum();
        let state = joined(&outcome.rounds);
        self.finish(index, &state, seconds);
    }

    /// Settles a cell as a whole, and judges those that are held against it again.
    pub(in crate::record) fn finish(&mut self, index: usize, state: &CellState, seconds: f64) {
        if index >= self.cells.len() {
            return;
        }
        self.cells[index].state = state.clone();
        self.cells[index].seconds = seconds;
        self.cells[index].judgement = self.judge(index, state);
        if !self.has_variants() {
            return;
        }
        for dependent in self.dependents(index) {
            self.cells[dependent].judgement = self.judge(dependent, &self.cells[dependent].state);
        }
        self.compare = self.compared();
    }

    /// Takes over what is known of a cell, as it stands in the record of a shard.
    pub(in crate::record) fn adopt(&mut self, index: usize, outcome: &CellOutcome) {
        if let Some(own) = self.cells.get_mut(index) {
            own.rounds.clone_from(&outcome.rounds);
            self.finish(index, &outcome.state, outcome.seconds);
        }
    }

    fn has_variants(&self) -> bool {
        self.header.compare.is_some()
            || self.header.cells.iter().any(|cell| variants_of(cell).next().is_some())
    }

    /// The cells that are held against that one.
    fn dependents(&self, index: usize) -> Vec<usize> {
        let Some(changed) = self.header.cells.get(index) else { return Vec::new() };
        let of = |cell: &PlannedCellRecord| {
            cell.test == changed.test
                && cell.id == changed.id
                && variants_of(cell).any(|variant| Some(&variant.name) == changed.variant.as_ref())
        };
        (0..self.header.cells.len()).filter(|at| of(&self.header.cells[*at])).collect()
    }

    /// What a cell comes to in that state.
    pub(super) fn judge(&self, index: usize, state: &CellState) -> Judgement {
        let cell = &self.header.cells[index];
        let own = measured(&self.cells.get(index).map_or(&[][..], |outcome| &outcome.rounds[..]));
        let others = self.others(cell);
        judgement::judge_rounds(
            cell,
            state,
            &self.header.policy,
            self.gpus(cell),
            Rounds { own: &own, others: &others },
        )
    }

    /// The figures of the same cell of the variants that one is held against, by variant.
    pub(in crate::record) fn others(
        &self,
        cell: &PlannedCellRecord,
    ) -> BTreeMap<String, Other<'_>> {
        let mut found = BTreeMap::new();
        for variant in variants_of(cell) {
            if !found.contains_key(&variant.name)
                && let Some(twin) = self.twin(cell, &variant.name)
            {
                let (planned, outcome) = (&self.header.cells[twin], &self.cells[twin]);
                let other = Other { rounds: figures(outcome), gpus: self.gpus(planned) };
                found.insert(variant.name.clone(), other);
            }
        }
        found
    }

    /// The index of the same cell of another variant.
    pub(in crate::record) fn twin(&self, cell: &PlannedCellRecord, variant: &str) -> Option<usize> {
        let same = |other: &PlannedCellRecord| {
            other.test == cell.test
                && other.id == cell.id
                && other.variant.as_deref() == Some(variant)
        };
        let at = self.header.cells.iter().position(same)?;
        (at < self.cells.len()).then_some(at)
    }

    pub(in crate::record) fn gpus(&self, cell: &PlannedCellRecord) -> u32 {
        self.header.launches.get(cell.launch).map_or(1, |launch| launch.gpus)
    }

    pub(super) fn compared(&self) -> Option<CompareOutcome> {
        self.header.compare.as_ref().map(|compare| judgement::overall::compared(self, compare))
    }
}

/// The variants that a cell is held against.
fn variants_of(cell: &PlannedCellRecord) -> impl Iterator<Item = &VariantRecord> {
    let relative = cell.bounds.iter().filter_map(|bound| bound.relative.as_ref());
    relative.filter_map(|relative| relative.variant.as_ref())
}

/// The figures of each launch of a cell; of one that is measured once its own.
pub(in crate::record) fn figures(outcome: &CellOutcome) -> Vec<Option<&Measurement>> {
    if !outcome.rounds.is_empty() {
        return measured(&outcome.rounds);
    }
    vec![figures_of(&outcome.state)]
}

fn measured(rounds: &[Round]) -> Vec<Option<&Measurement>> {
    rounds.iter().map(|round| figures_of(&round.state)).collect()
}

fn figures_of(state: &CellState) -> Option<&Measurement> {
    match state {
        CellState::Measured(measurement) => Some(measurement),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
    }
}

/// What the rounds of a cell are together: what broke in one broke the cell.
fn joined(rounds: &[Round]) -> CellState {
    let count = rounds.len();
    for (at, round) in (1..).zip(rounds) {
        match &round.state {
            CellState::Broken { class, message } => {
                let message = format!("in launch {at} of {count}: {message}");
                return CellState::Broken { class: class.clone(), message };
            }
            // A cell that does not fit fits in no launch.
            CellState::Unfit { .. } => return round.state.clone(),
            CellState::NotRun { .. } | CellState::Measured(_) => {}
        }
    }
    let figures: Vec<&Measurement> = measured(rounds).into_iter().flatten().collect();
    if figures.len() < count {
        return CellState::NotRun { reason: NOT_RUN.to_owned() };
    }
    CellState::Measured(Box::new(pooled(&figures)))
}

/// The figures of all launches as if one had them.
fn pooled(figures: &[&Measurement]) -> Measurement {
    let count = figures.len();
    let observations: Vec<_> = figures.iter().map(|one| &one.observations).collect();
    let mut pooled =
        Measurement { observations: pool_all(&observations), ..Measurement::default() };
    for (at, one) in (1..).zip(figures) {
        pooled.requests += one.requests;
        for (class, (number, message)) in &one.failures {
            pooled.failures.entry(*class).or_insert_with(|| (0, message.clone())).0 += number;
        }
        let in_launch = |words: &str| format!("in launch {at} of {count}: {words}");
        pooled.checks.extend(one.checks.iter().cloned().map(|mut check| {
            if check.fault.is_some() {
                check.message = in_launch(&check.message);
            }
            check
        }));
        pooled.warnings.extend(one.warnings.iter().map(|words| in_launch(words)));
        pooled.extended |= one.extended;
    }
    if let Some(first) = figures.first() {
        pooled.sharing.clone_from(&first.sharing);
        pooled.prompt_tokens = first.prompt_tokens;
        pooled.engine.clone_from(&first.engine);
    }
    pooled
}
