//! Rounds: a cell that is measured in several launches, and cells that are held against others.
//!
//! A cell of several rounds has its facts once each round has them; until then it has not run. What
//! it comes to is decided in `judgement`, once more whenever what it is held against changes.

use std::collections::BTreeMap;

use super::kin::variants_of;
use super::{
    CellOutcome, CellState, Judgement, Measurement, NOT_RUN, PlannedCellRecord, Round, RunRecord,
};
use crate::hardware::telemetry;
use crate::measure::Fault;
use crate::measure::pool::pool_all;
use crate::record::judgement::{self, Lack, Other, Rounds};

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
        if self.judge_again(index) {
            self.compare_all();
        }
    }

    /// Judges a cell by its facts, and those that are held against it; says whether it is in the mean ratio,
    /// which is then another.
    pub(super) fn judge_again(&mut self, index: usize) -> bool {
        self.cells[index].judgement = self.judge(index, &self.cells[index].state);
        let known = self.kin.of(&self.header);
        if !known.variants {
            return false;
        }
        for dependent in known.dependents(&self.header, index) {
            self.cells[dependent].judgement = self.judge(dependent, &self.cells[dependent].state);
        }
        let Some(place) = known.place.get(&index) else { return false };
        self.kin.settled = self.kin.settled.min(*place);
        true
    }

    /// What the mean ratio of all cells comes to as things stand.
    pub(super) fn compare_all(&mut self) {
        let Some(compare) = &self.header.compare else { return };
        let known = self.kin.of(&self.header);
        let (settled, outcome) =
            judgement::overall::compared(self, compare, &known.compared, self.kin.settled);
        self.kin.settled = settled;
        self.compare = Some(outcome);
    }

    /// Takes over what is known of a cell, as it stands in the record of a shard.
    pub(in crate::record) fn adopt(&mut self, index: usize, outcome: &CellOutcome) {
        if let Some(own) = self.cells.get_mut(index) {
            own.rounds.clone_from(&outcome.rounds);
            self.finish(index, &outcome.state, outcome.seconds);
        }
    }

    /// Whether a cell is measured and what it is held against is not yet: its verdict is to come.
    pub fn waits(&self, index: usize) -> bool {
        let (Some(cell), Some(outcome)) = (self.header.cells.get(index), self.cells.get(index))
        else {
            return false;
        };
        if !matches!(outcome.state, CellState::Measured(_)) {
            return false;
        }
        let unrun = |variant: &super::VariantRecord| {
            let twin = self.twin(index, &variant.name);
            twin.is_some_and(|at| matches!(self.cells[at].state, CellState::NotRun { .. }))
        };
        variants_of(cell).any(unrun)
    }

    /// What a cell comes to in that state.
    pub(super) fn judge(&self, index: usize, state: &CellState) -> Judgement {
        let cell = &self.header.cells[index];
        let own = measured(self.cells.get(index).map_or(&[][..], |outcome| &outcome.rounds[..]));
        let others = self.others(index);
        let suspects = match own.is_empty() {
            true => self.suspicions(index, &[figures_of(state)]),
            false => self.suspicions(index, &own),
        };
        let reference = self.is_reference(index);
        judgement::judge_rounds(
            cell,
            state,
            &self.header.policy,
            self.gpus(cell),
            Rounds { own: &own, others: &others, reference, suspects: &suspects },
        )
    }

    /// Whether nothing is expected of a cell itself, but other cells are held against it.
    fn is_reference(&self, index: usize) -> bool {
        let Some(cell) = self.header.cells.get(index) else { return false };
        cell.bounds.is_empty()
            && cell.variant.is_some()
            && !self.kin.of(&self.header).dependents(&self.header, index).is_empty()
    }

    /// The figures of the same cell of the variants that one is held against, by variant.
    pub(in crate::record) fn others(&self, index: usize) -> BTreeMap<String, Other<'_>> {
        let mut found = BTreeMap::new();
        let mut variants = variants_of(&self.header.cells[index]).peekable();
        if variants.peek().is_none() {
            return found;
        }
        let known = self.kin.of(&self.header);
        for variant in variants {
            if !found.contains_key(&variant.name)
                && let Some(twin) = known.twin(&self.header, index, &variant.name)
                && let Some(outcome) = self.cells.get(twin)
            {
                let gpus = self.gpus(&self.header.cells[twin]);
                let rounds = figures(outcome);
                let suspects = self.suspicions(twin, &rounds);
                let lack = lack(&outcome.state)
                    .or_else(|| judgement::hardware::lack(&self.header.policy, &suspects));
                found.insert(variant.name.clone(), Other { rounds, gpus, lack, suspects });
            }
        }
        found
    }

    /// The index of the same cell of another variant.
    pub fn twin(&self, index: usize, variant: &str) -> Option<usize> {
        let at = self.kin.of(&self.header).twin(&self.header, index, variant)?;
        (at < self.cells.len()).then_some(at)
    }

    pub(in crate::record) fn gpus(&self, cell: &PlannedCellRecord) -> u32 {
        self.header.launches.get(cell.launch).map_or(1, |launch| launch.gpus)
    }
}

/// Why nothing can be held against a cell in that state.
fn lack(state: &CellState) -> Option<Lack> {
    match state {
        CellState::NotRun { reason } if reason == NOT_RUN => Some(Lack::Waits(None)),
        CellState::NotRun { reason } => Some(Lack::Waits(Some(reason.clone()))),
        CellState::Unfit { message, .. } | CellState::Broken { message, .. } => {
            Some(Lack::Useless(message.clone()))
        }
        CellState::Measured(measurement) => {
            let spoilt = measurement.checks.iter().find(|it| it.fault == Some(Fault::Invalid));
            spoilt.map(|check| Lack::Useless(check.message.clone()))
        }
    }
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
    let seen: Vec<_> = figures.iter().filter_map(|one| one.telemetry.as_deref()).collect();
    pooled.telemetry = telemetry::join(&seen).map(Box::new);
    pooled
}

#[cfg(test)]
mod tests;
