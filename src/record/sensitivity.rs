//! Sensitivity: which limits of a run would have noticed a loss, and which never would.
//!
//! Each metric of each cell is made worse by so much, and the cell is judged again by the rules that
//! judged it. It decides what counts as noticed; what follows from a limit that notices nothing is the
//! caller's.

use std::collections::BTreeMap;

use super::RunRecord;
use super::judgement::{self, Rounds};
use super::run_record::{
    BoundRecord, CellOutcome, CellState, Judgement, Measurement, PlannedCellRecord,
};
use crate::judge::lattice::Faults;
use crate::judge::{BoundVerdict, Severity, Side, Verdict};
use crate::measure::{Base, Metric, Observations};
use crate::suite::model::{InconclusivePolicy, Place};

/// No loss beyond this is looked for: a latency a hundred times as long.
const WORST: f64 = 99.0;
/// A throughput can't lose more than all of itself, and none at all is never judged.
const ALMOST_ALL: f64 = 0.999;

/// One limit: a line of the suite and the metric that it bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Where it stands.
    pub place: Place,
    /// The expectation's name.
    pub name: Option<String>,
    /// The metric.
    pub metric: Metric,
    /// What becomes of it in each of its cells, in the order of the plan.
    pub cells: Vec<Watched>,
}

/// A limit in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// Index into the cells of the record.
    pub cell: usize,
    /// Index into the bounds of the cell.
    pub bound: usize,
    /// What it sees.
    pub sight: Sight,
}

/// What a limit sees in a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// Nothing, whatever the loss.
    Blind(Blindness),
    /// What it says of each loss that was asked about.
    Open {
        /// In the order of the losses.
        notices: Vec<Notice>,
        /// The smallest loss at which it fails, as a fraction; 0 where it fails as things are, `None`
        /// where no loss makes it fail.
        from: Option<f64>,
    },
}

/// What a limit says of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It fails the cell.
    Fails,
    /// The loss could be noise.
    Doubts,
    /// It holds.
    Holds,
}

/// Why a limit sees nothing in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blindness {
    /// The cell has no figures: it did not run, does not fit, broke. In the cell's words.
    Unmeasured(String),
    /// The cell was measured and this metric was not.
    Unobserved(String),
    /// The measurement is invalid, so nothing is judged by it.
    Invalid(String),
    /// The cell is expected to be over capacity, which exempts it.
    Exempt,
    /// A quarantine excuses the cell.
    Quarantined,
    /// The run was slowed, and this was not. In words.
    NotSlowed(String),
}

impl Limit {
    /// Whether it fails in any cell at any of the losses asked about.
    pub fn notices(&self) -> bool {
        self.cells.iter().any(|watched| match &watched.sight {
            Sight::Open { notices, from } => notices.contains(&Notice::Fails) || *from == Some(0.0),
            Sight::Blind(_) => false,
        })
    }

    /// Whether it says nothing by intent: all of its cells are excused for a while, or were not slowed.
    pub fn is_excused(&self) -> bool {
        let excused = |watched: &Watched| {
            matches!(watched.sight, Sight::Blind(Blindness::Quarantined | Blindness::NotSlowed(_)))
        };
        !self.cells.is_empty() && self.cells.iter().all(excused)
    }

    /// In how many cells it fails at the loss with this index.
    pub fn failing(&self, loss: usize) -> usize {
        let fails = |watched: &&Watched| match &watched.sight {
            Sight::Open { notices, .. } => notices.get(loss) == Some(&Notice::Fails),
            Sight::Blind(_) => false,
        };
        self.cells.iter().filter(fails).count()
    }

    /// The cell in which it would notice the smallest loss, with that loss.
    pub fn nearest(&self) -> Option<(&Watched, f64)> {
        let open = self.cells.iter().filter_map(|watched| match &watched.sight {
            Sight::Open { from: Some(from), .. } => Some((watched, *from)),
            Sight::Open { from: None, .. } | Sight::Blind(_) => None,
        });
        open.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What the limits of a record that can fail a cell see of these losses (fractions, such as 0.05), in
/// the order of the suite's lines. Limits of another severity than `fail` are meant to fail nothing
/// and are left out.
pub fn sensitivity(record: &RunRecord, losses: &[f64]) -> Vec<Limit> {
    limits(record, |cell, bound, rule| cell.sight(bound, rule, losses))
}

/// The limits of a record that can fail a cell, in the order of the suite's lines, each with what it sees
/// in its cells.
pub(super) fn limits<'r>(
    record: &'r RunRecord,
    sight: impl Fn(Cell<'r>, usize, &BoundRecord) -> Sight,
) -> Vec<Limit> {
    let mut limits: BTreeMap<(String, u32, Metric), Limit> = BTreeMap::new();
    for (cell, planned) in record.header.cells.iter().enumerate() {
        for (bound, rule) in planned.bounds.iter().enumerate() {
            if rule.bound.is_none() || rule.severity != Severity::Fail {
                continue;
            }
            let sight = sight(Cell { record, cell, planned }, bound, rule);
            let key = (rule.place.file.clone(), rule.place.line, rule.metric);
            let limit = limits.entry(key).or_insert_with(|| Limit {
                place: rule.place.clone(),
                name: rule.name.clone(),
                metric: rule.metric,
                cells: Vec::new(),
            });
            limit.cells.push(Watched { cell, bound, sight });
        }
    }
    limits.into_values().collect()
}

/// The limit on the mean ratio of compared variants: a case of its own, with no cell.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanLimit {
    /// Where it stands.
    pub place: Place,
    /// The mean ratio, where there is one.
    pub value: Option<f64>,
    /// The limit.
    pub limit: f64,
    /// What it sees of losses that every cell has.
    pub sight: Sight,
}

impl MeanLimit {
    /// Whether it fails at any of the losses asked about.
    pub fn notices(&self) -> bool {
        match &self.sight {
            Sight::Open { notices, from } => notices.contains(&Notice::Fails) || *from == Some(0.0),
            Sight::Blind(_) => false,
        }
    }
}

/// What the limit on the mean ratio sees, if there is one. Without losses, of the run as it is: what it says
/// is its one notice.
pub fn mean_sensitivity(record: &RunRecord, losses: &[f64]) -> Option<MeanLimit> {
    let compare = record.header.compare.as_ref()?;
    let says = |loss: f64| -> Option<Result<Notice, String>> {
        let verdict = judgement::overall::worsened(record, loss)?;
        Some(verdict.map(|verdict| spoken(record, Some(verdict), false)))
    };
    let sight = match says(0.0)? {
        Err(why) => Sight::Blind(Blindness::Unmeasured(why)),
        Ok(now) => {
            let at = |loss: f64| says(loss).and_then(Result::ok).unwrap_or(Notice::Holds);
            let notices = match losses {
                [] => vec![now],
                losses => losses.iter().map(|loss| at(*loss)).collect(),
            };
            Sight::Open { notices, from: smallest(Side::Min, |loss| at(loss) == Notice::Fails) }
        }
    };
    let value = record.compare.as_ref().and_then(|it| Some(it.estimate.as_ref()?.value));
    Some(MeanLimit { place: compare.place.clone(), value, limit: compare.min_mean_ratio?, sight })
}

/// What a limit's verdict means for a case that may be excused.
fn spoken(record: &RunRecord, verdict: Option<BoundVerdict>, excused: bool) -> Notice {
    let doubt_fails = match record.header.policy.inconclusive {
        InconclusivePolicy::Fail | InconclusivePolicy::Point => true,
        InconclusivePolicy::Warn | InconclusivePolicy::Pass => false,
    };
    match verdict {
        Some(BoundVerdict::Fail) if !excused => Notice::Fails,
        Some(BoundVerdict::Inconclusive) if !excused && doubt_fails => Notice::Fails,
        Some(BoundVerdict::Inconclusive) => Notice::Doubts,
        Some(
            BoundVerdict::Fail | BoundVerdict::Clear | BoundVerdict::Close | BoundVerdict::NoData,
        )
        | None => Notice::Holds,
    }
}

/// A cell that is judged again.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    record: &'a RunRecord,
    cell: usize,
    pub(super) planned: &'a PlannedCellRecord,
}

impl<'a> Cell<'a> {
    pub(super) fn outcome(self) -> &'a CellOutcome {
        &self.record.cells[self.cell]
    }

    /// The cell's figures, if they say something of a limit.
    pub(super) fn figures(
        self,
        bound: usize,
        rule: &BoundRecord,
    ) -> Result<&'a Measurement, Blindness> {
        let outcome = self.outcome();
        let words = || outcome.judgement.message.clone().unwrap_or_default();
        if self.planned.bounds.iter().any(|rule| rule.bound.is_none()) {
            return Err(Blindness::Exempt);
        }
        let measurement = match &outcome.state {
            CellState::Measured(measurement) => measurement,
            CellState::NotRun { reason } => return Err(Blindness::Unmeasured(reason.clone())),
            CellState::Unfit { .. } | CellState::Broken { .. } => {
                return Err(Blindness::Unmeasured(words()));
            }
        };
        if Faults::of(&measurement.checks).invalid || outcome.judgement.is_of_hardware() {
            return Err(Blindness::Invalid(words()));
        }
        let base = rule.metric.base;
        let judged = outcome.judgement.bounds.get(bound);
        if !measurement.observations.contains_key(&base)
            || judged.is_none_or(|judged| judged.verdict == BoundVerdict::NoData)
        {
            let why = judged.map(|judged| judged.message.clone()).unwrap_or_default();
            return Err(Blindness::Unobserved(why));
        }
        Ok(measurement)
    }

    fn sight(self, bound: usize, rule: &BoundRecord, losses: &[f64]) -> Sight {
        let measurement = match self.figures(bound, rule) {
            Ok(measurement) => measurement,
            Err(why) => return Sight::Blind(why),
        };
        let base = rule.metric.base;
        let side = rule.bound.as_ref().map_or(Side::Min, |bound| bound.side);
        let says = |loss: f64| self.says(measurement, bound, base, side, loss);
        let from = smallest(side, |loss| says(loss) == Notice::Fails);
        let excused = self.planned.quarantine.as_ref();
        if excused.is_some_and(|rule| rule.max_loss.is_none()) {
            return Sight::Blind(Blindness::Quarantined);
        }
        Sight::Open { notices: losses.iter().map(|loss| says(*loss)).collect(), from }
    }

    /// What the limit says where the metric has lost so much.
    fn says(
        self,
        measurement: &Measurement,
        bound: usize,
        base: Base,
        side: Side,
        loss: f64,
    ) -> Notice {
        let worse = |measurement: &Measurement| {
            let mut worse = measurement.clone();
            if let Some(observed) = worse.observations.get_mut(&base) {
                *observed = worsened(observed, base, side, loss);
            }
            worse
        };
        let header = &self.record.header;
        // All launches of the cell lose as much; what it is held against stays as it was.
        let rounds: Vec<Option<Measurement>> = self.record.cells[self.cell]
            .rounds
            .iter()
            .map(|round| match &round.state {
                CellState::Measured(measurement) => Some(worse(measurement)),
                CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => {
                    None
                }
            })
            .collect();
        let own: Vec<Option<&Measurement>> = rounds.iter().map(Option::as_ref).collect();
        let others = self.record.others(self.cell);
        let judgement = judgement::judge_rounds(
            self.planned,
            &CellState::Measured(Box::new(worse(measurement))),
            &header.policy,
            self.record.gpus(self.planned),
            Rounds { own: &own, others: &others, reference: false, suspects: &[] },
        );
        self.notice(&judgement, bound)
    }

    /// What a judgement of the cell says of a limit.
    pub(super) fn notice(self, judgement: &Judgement, bound: usize) -> Notice {
        let of_bound = judgement.bounds.get(bound).map(|judged| judged.verdict);
        spoken(self.record, of_bound, judgement.verdict == Verdict::Xfail)
    }
}

/// The smallest loss that `fails`, to a thousandth of itself and never closer than a millionth; failing
/// losses are taken to have no gap.
fn smallest(side: Side, fails: impl Fn(f64) -> bool) -> Option<f64> {
    let worst = match side {
        Side::Min => ALMOST_ALL,
        Side::Max => WORST,
    };
    if fails(0.0) {
        return Some(0.0);
    }
    if !fails(worst) {
        return None;
    }
    let (mut holds, mut broken) = (0.0, worst);
    while broken - holds > (1e-3 * broken).max(1e-6) {
        let middle = (holds + broken) / 2.0;
        if fails(middle) {
            broken = middle;
        } else {
            holds = middle;
        }
    }
    Some(broken)
}

/// Observations of a metric that has lost so much, towards the bad side of a bound.
fn worsened(observed: &Observations, base: Base, side: Side, loss: f64) -> Observations {
    match (side, base) {
        // A share of nothing is nothing: what has no failures gets so many percent of them.
        (Side::Max, Base::ErrorRate) => observed.map(|value| (value + 100.0 * loss).min(100.0)),
        (Side::Min, _) => observed.map(|value| value * (1.0 - loss)),
        (Side::Max, _) => observed.map(|value| value * (1.0 + loss)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_found_to_a_thousandth() {
        let found = smallest(Side::Min, |loss| loss >= 0.0731).unwrap();
        assert!((0.0731..0.0732).contains(&found), "{found}");
        assert_eq!(smallest(Side::Min, |_| true), Some(0.0));
        assert_eq!(smallest(Side::Max, |_| false), None);
        // A count at its limit.
        assert!(smallest(Side::Min, |loss| loss > 0.0).is_some_and(|loss| loss <= 1e-6));
        let far = smallest(Side::Max, |loss| loss >= 14.0).unwrap();
        assert!((14.0..14.02).contains(&far), "{far}");
    }

    #[test]
    fn each_kind_of_observation_is_worsened_as_a_whole() {
        let batches = Observations::Batches { rate: 100.0, means: vec![90.0, 110.0], floor: 1.0 };
        let worse = worsened(&batches, Base::OutputThroughput, Side::Min, 0.1);
        let expected = Observations::Batches { rate: 90.0, means: vec![81.0, 99.0], floor: 1.0 };
        let Observations::Batches { rate, means, floor } = worse else { panic!("{expected:?}") };
        assert!((rate - 90.0).abs() < 1e-9 && (means[1] - 99.0).abs() < 1e-9 && floor == 1.0);
        let failures = worsened(&Observations::Exact(0.0), Base::ErrorRate, Side::Max, 0.05);
        assert_eq!(failures, Observations::Exact(5.0));
        let waves = Observations::Waves(vec![vec![10.0], vec![20.0, 30.0]]);
        let worse = worsened(&waves, Base::Ttft, Side::Max, 1.0);
        assert_eq!(worse, Observations::Waves(vec![vec![20.0], vec![40.0, 60.0]]));
    }
}
