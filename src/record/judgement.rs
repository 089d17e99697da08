//! Judgement: what the recorded facts of a cell come to.
//!
//! A pure function of plan, facts and policy, so that a report rendered next year says the same.
//! The mathematics is in `judge`, the words in `wording`; here is what an unfit cell, a policy and a
//! quarantine make of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::run_record::{
    BoundJudgement, BoundRecord, CellState, Judgement, Measurement, PlannedCellRecord, UnfitClass,
};
use super::wording;
use crate::hardware::blame::Suspicion;
use crate::judge::lattice::{self, Faults};
use crate::judge::{BoundVerdict, Estimate, Severity, Verdict, limit};
use crate::measure::{Base, Fault, Metric, TestKind};
use crate::suite::model::Policy;

mod estimate;
pub use estimate::error_within;
pub(in crate::record) mod hardware;
pub mod overall;
mod policy;
mod relative;
use policy::quarantine;

/// Whether cells of a kind are extended once where they are inconclusive. It sets the level of
/// both judgements, so it follows from the plan and not from what became of the cell.
pub fn extendable(kind: TestKind) -> bool {
    match kind {
        TestKind::Prefill | TestKind::Decode | TestKind::Serve => true,
        TestKind::Startup | TestKind::Command => false,
    }
}

/// What several launches of a cell gave, and those of the cells that it is held against.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// The figures of each launch of a cell that is measured in several, in their order; else empty.
    pub own: &'a [Option<&'a Measurement>],
    /// The same cell of other variants, by variant.
    pub others: &'a BTreeMap<String, Other<'a>>,
    /// Whether the same cell of another variant is held against it.
    pub reference: bool,
    /// What was not in order with the hardware, by launch; of a cell that is measured once there is one.
    pub suspects: &'a [Vec<Suspicion>],
}

/// The same cell of another variant.
#[derive(Debug, Clone)]
pub struct Other<'a> {
    /// The figures of each launch, one at least.
    pub rounds: Vec<Option<&'a Measurement>>,
    /// What divides its per-GPU metrics.
    pub gpus: u32,
    /// Why nothing can be held against it.
    pub lack: Option<Lack>,
    /// What was not in order with the hardware, by launch.
    pub suspects: Vec<Vec<Suspicion>>,
}

/// Why a cell of another variant is nothing to be held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// It has not run, for a reason that may be known: it may yet.
    Waits(Option<String>),
    /// It did not fit, broke, or its measurement is invalid: in its words.
    Useless(String),
}

/// Judges a cell with all its launches. Where there are several, nothing is extended.
pub fn judge_rounds(
    cell: &PlannedCellRecord,
    state: &CellState,
    policy: &Policy,
    gpus: u32,
    rounds: Rounds<'_>,
) -> Judgement {
    let extendable = cell.rounds == 1 && extendable(cell.kind);
    judged(cell, state, policy, gpus, extendable, Some(rounds))
}

/// Judges a cell of one launch, by itself. `gpus` divides the per-GPU metrics; `extendable` says that the cell could be
/// extended once, so that both judgements share `policy.alpha`.
pub fn judge_cell(
    cell: &PlannedCellRecord,
    state: &CellState,
    policy: &Policy,
    gpus: u32,
    extendable: bool,
) -> Judgement {
    judged(cell, state, policy, gpus, extendable, None)
}

fn judged(
    cell: &PlannedCellRecord,
    state: &CellState,
    policy: &Policy,
    gpus: u32,
    extendable: bool,
    rounds: Option<Rounds<'_>>,
) -> Judgement {
    match state {
        CellState::NotRun { reason } => {
            let own = rounds.map_or(&[][..], |rounds| rounds.own);
            let words = match own.iter().flatten().count() {
                0 => reason.clone(),
                done => format!("{reason}; {done} of {} launches measured", own.len()),
            };
            unjudged(cell, Verdict::Error, Some("not-run"), &words)
        }
        CellState::Broken { class, message } => {
            unjudged(cell, Verdict::Error, Some(class), message)
        }
        CellState::Unfit { class, message } => unfit(cell, *class, message),
        CellState::Measured(measurement) => {
            Sight { cell, measurement, policy, gpus, extendable, rounds }.judgement()
        }
    }
}

/// What an inconclusive cell should be extended for: the metrics that are in doubt. Empty where an
/// extension would change nothing: a fault, a bound that failed surely, or no doubt at all.
///
/// Ask after the first window or samples; a measurement that was extended gets no second one.
pub fn extension(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
) -> Vec<Base> {
    let sight = Sight { cell, measurement, policy, gpus, extendable: true, rounds: None };
    let bounds = sight.bounds();
    let faults = Faults::of(&measurement.checks);
    // Of several launches the spread counts, which no longer window tells.
    let mut known = binding(cell, &bounds);
    // What it is held against in this run is not known here, and no longer window would tell.
    for (record, (_, verdict)) in cell.bounds.iter().zip(&mut known) {
        if record.relative.as_ref().is_some_and(|relative| relative.variant.is_some()) {
            *verdict = BoundVerdict::Close;
        }
    }
    if measurement.extended
        || cell.rounds > 1
        || lattice::cell(faults, &known) != Verdict::Inconclusive
    {
        return Vec::new();
    }
    // What makes a ratio doubtful is how launches differ, which no longer window tells.
    let doubtful = |(record, judged): &(&BoundRecord, &BoundJudgement)| {
        binds(record)
            && record.relative.is_none()
            && record.noise.is_none()
            && judged.verdict == BoundVerdict::Inconclusive
    };
    let mut bases: Vec<Base> = cell
        .bounds
        .iter()
        .zip(&bounds)
        .filter(doubtful)
        .map(|(record, _)| record.metric.base)
        .collect();
    if faults.drifting {
        bases.push(Base::OutputThroughput);
    }
    bases.sort_unstable();
    bases.dedup();
    bases
}

/// Whether a cell should be extended: some bound is inconclusive at the level of the first look, or
/// the window drifts, and nothing has settled the verdict.
pub fn wants_extension(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
) -> bool {
    !extension(cell, measurement, policy, gpus).is_empty()
}

/// Whether stamps that are late or early by `lag` could change what a bound says: the client's lag
/// invalidates a measurement only then.
pub fn lag_matters(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
    lag: Duration,
) -> bool {
    let sight =
        Sight { cell, measurement, policy, gpus, extendable: extendable(cell.kind), rounds: None };
    sight.could_turn(|base, value| sight.shift(base, value, lag))
}

/// Whether it could change what a bound says that only a `share` of the declared requests was in
/// flight: the requests that the client lacks invalidate a measurement only then, or where nothing
/// is expected, so that its figures are all there is.
pub fn shortage_matters(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
    share: f64,
) -> bool {
    let sight =
        Sight { cell, measurement, policy, gpus, extendable: extendable(cell.kind), rounds: None };
    !cell.bounds.iter().any(binds)
        || sight.could_turn(|base, value| sight.missed(base, value, share))
}

/// Whether bounds say something else of `still`: the same cell on a clock that stood still while this
/// program was away. Then its absence, and not the engine, may be what they speak of.
///
/// Latencies have every absence in them. Rates have only that of a whole machine, `frozen`: where a
/// client alone was away, what the engine made meanwhile was read thereafter.
pub fn absence_matters(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    still: &Measurement,
    policy: &Policy,
    gpus: u32,
    frozen: bool,
) -> bool {
    let extendable = extendable(cell.kind);
    let still = Measurement { extended: measurement.extended, ..still.clone() };
    let bounds =
        |measurement| Sight { cell, measurement, policy, gpus, extendable, rounds: None }.bounds();
    let both = bounds(measurement).into_iter().zip(bounds(&still));
    cell.bounds.iter().zip(both).any(|(record, (judged, still))| {
        let paired = record.relative.as_ref().is_some_and(|it| it.variant.is_some());
        binds(record)
            && (frozen || record.metric.base.entry().latency)
            && (paired || within(judged.verdict) != within(still.verdict))
    })
}

/// Verdicts that mean the same to a cell.
fn within(verdict: BoundVerdict) -> u8 {
    match verdict {
        BoundVerdict::Clear | BoundVerdict::Close => 0,
        BoundVerdict::Inconclusive => 1,
        BoundVerdict::Fail => 2,
        BoundVerdict::NoData => 3,
    }
}

/// Whether a bound can fail its cell.
fn binds(record: &BoundRecord) -> bool {
    match record.severity {
        Severity::Fail => record.bound.is_some(),
        Severity::Warn | Severity::Report => false,
    }
}

/// The place of an `"over"`, which exempts its cell from every other bound.
fn over(cell: &PlannedCellRecord) -> Option<&BoundRecord> {
    cell.bounds.iter().find(|record| record.bound.is_none())
}

fn binding(cell: &PlannedCellRecord, judged: &[BoundJudgement]) -> Vec<(Severity, BoundVerdict)> {
    if over(cell).is_some() {
        return Vec::new();
    }
    let pairs = cell.bounds.iter().zip(judged);
    pairs.map(|(record, judged)| (record.severity, judged.verdict)).collect()
}

/// A cell without figures.
fn unjudged(
    cell: &PlannedCellRecord,
    verdict: Verdict,
    class: Option<&str>,
    message: &str,
) -> Judgement {
    let bounds = cell.bounds.iter().map(|record| match &record.bound {
        Some(bound) => BoundJudgement {
            verdict: BoundVerdict::NoData,
            sees: None,
            estimate: None,
            message: wording::no_data(record, bound, "no data"),
        },
        None => BoundJudgement {
            verdict: BoundVerdict::NoData,
            sees: None,
            estimate: None,
            message: format!("expected to be over capacity ({})", record.place),
        },
    });
    Judgement {
        verdict,
        class: class.map(str::to_owned),
        message: Some(message.to_owned()),
        bounds: bounds.collect(),
        decided_by: None,
        warnings: Vec::new(),
        suspects: Vec::new(),
    }
}

/// A cell that this engine can't run: expected, a failure if something else is expected, else
/// skipped.
fn unfit(cell: &PlannedCellRecord, class: UnfitClass, message: &str) -> Judgement {
    let failure = match class {
        UnfitClass::OverCapacity => Some("capacity"),
        UnfitClass::TooLong => Some("too-long"),
        UnfitClass::Hardware => None,
    };
    if let Some(record) = over(cell) {
        let text = format!("{message}; as expected ({})", record.place);
        let mut judgement = match class {
            UnfitClass::OverCapacity => unjudged(cell, Verdict::Skip, None, &text),
            UnfitClass::TooLong | UnfitClass::Hardware => {
                unjudged(cell, Verdict::Skip, None, message)
            }
        };
        judgement.decided_by = cell.bounds.iter().position(|record| record.bound.is_none());
        if class == UnfitClass::OverCapacity
            && let Some(index) = judgement.decided_by
        {
            judgement.bounds[index].verdict = BoundVerdict::Clear;
        }
        return judgement;
    }
    match (failure, cell.bounds.iter().position(binds)) {
        (Some(class), Some(decided)) => {
            let text = format!("{message}; {}", expected(&cell.bounds[decided]));
            let mut judgement = unjudged(cell, Verdict::Fail, Some(class), &text);
            judgement.decided_by = Some(decided);
            // Nothing was lost by so and so much, so a greatest loss covers it not.
            let covered = cell.quarantine.as_ref().is_none_or(|rule| rule.max_loss.is_none());
            quarantine(cell, &mut judgement, covered);
            judgement
        }
        (_, _) => unjudged(cell, Verdict::Skip, None, message),
    }
}

fn expected(record: &BoundRecord) -> String {
    match &record.bound {
        Some(bound) => {
            format!("expected: {}", wording::no_data(record, bound, "not reached"))
        }
        None => format!("expected to be over capacity ({})", record.place),
    }
}

/// What a measurement says of a metric, with the interval that a bound on it would be judged by; none
/// where it has no such figure.
pub fn estimated(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
    metric: Metric,
) -> Option<Estimate> {
    let sight =
        Sight { cell, measurement, policy, gpus, extendable: extendable(cell.kind), rounds: None };
    sight.estimate(metric, None).ok()
}

/// A measured cell as it is judged.
#[derive(Clone, Copy)]
struct Sight<'a> {
    cell: &'a PlannedCellRecord,
    measurement: &'a Measurement,
    policy: &'a Policy,
    gpus: u32,
    extendable: bool,
    /// Its launches, and what it is held against; of one launch by itself nothing is known of either.
    rounds: Option<Rounds<'a>>,
}

impl Sight<'_> {
    fn judgement(&self) -> Judgement {
        let faults = Faults::of(&self.measurement.checks);
        let bounds = self.bounds();
        let verdict = lattice::cell(faults, &binding(self.cell, &bounds));
        let mut judgement = Judgement {
            verdict,
            class: None,
            message: None,
            bounds,
            decided_by: None,
            warnings: self.warnings(),
            suspects: Vec::new(),
        };
        self.warn_of_bounds(&mut judgement);
        self.warn_of_gains(&mut judgement);
        match verdict {
            Verdict::Error if faults.invalid => {
                self.settle(&mut judgement, "invalid", Some(self.told(Fault::Invalid)), &[]);
            }
            Verdict::Error => {
                let class = if self.waits(&judgement) { "not-run" } else { "no-data" };
                self.settle(&mut judgement, class, None, &[BoundVerdict::NoData]);
            }
            Verdict::Fail if self.is_yardstick() => self.nobodys_fault(&mut judgement),
            Verdict::Fail => {
                let degraded = faults.degraded.then(|| self.told(Fault::Degraded));
                let class = if faults.degraded { "degraded" } else { "limit" };
                self.settle(&mut judgement, class, degraded, &[BoundVerdict::Fail]);
            }
            Verdict::Inconclusive => self.inconclusive(&mut judgement),
            Verdict::Measured => self.nothing_expected(&mut judgement),
            Verdict::Pass => self.tightest(&mut judgement),
            Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {}
        }
        self.blame(&mut judgement);
        quarantine(self.cell, &mut judgement, self.covered());
        judgement
    }

    fn bounds(&self) -> Vec<BoundJudgement> {
        self.cell.bounds.iter().map(|record| self.bound(record)).collect()
    }

    fn bound(&self, record: &BoundRecord) -> BoundJudgement {
        let Some(bound) = &record.bound else {
            return BoundJudgement {
                verdict: BoundVerdict::Close,
                estimate: None,
                sees: None,
                message: format!("capacity grew: expected to be over capacity ({})", record.place),
            };
        };
        // Made once: what it says includes the smallest loss that it sees, which costs most of judging.
        let compared = record.relative.as_ref().map(|relative| self.compared(record, relative));
        let estimated = match &compared {
            Some(compared) => compared.as_ref().map(|it| it.ratio).map_err(String::clone),
            None => self.estimate(record.metric, record.noise.as_ref()),
        };
        match estimated {
            Ok(estimate) => {
                let verdict = limit::judge(&estimate, bound);
                let ratio = compared.as_ref().and_then(|compared| compared.as_ref().ok());
                let message = self.line(record, bound, &estimate, ratio, verdict, false);
                let sees = compared.and_then(Result::ok).and_then(|compared| compared.sees);
                BoundJudgement { verdict, estimate: Some(estimate), sees, message }
            }
            Err(why) => BoundJudgement {
                verdict: BoundVerdict::NoData,
                estimate: None,
                sees: None,
                message: wording::no_data(record, bound, &format!("no data, {why}")),
            },
        }
    }

    /// Whether a bound that can fail the cell would say otherwise of a figure that is larger or
    /// smaller by so much as `shift` says of its metric and value.
    fn could_turn(&self, shift: impl Fn(Base, f64) -> f64) -> bool {
        let rank = |verdict| match verdict {
            BoundVerdict::Clear | BoundVerdict::Close => 0,
            BoundVerdict::Inconclusive => 1,
            BoundVerdict::Fail => 2,
            BoundVerdict::NoData => 3,
        };
        self.cell.bounds.iter().zip(self.bounds()).any(|(record, judged)| {
            if let Some(room) = self.unpaired_room(record) {
                // Its pair is not known here: what moves it by a part of what it tolerates may turn it.
                let figure = self.estimate(record.metric, None).map_or(0.0, |own| own.value);
                let shift = shift(record.metric.base, figure);
                return binds(record) && shift > figure.abs() * room / 4.0;
            }
            let (Some(bound), Some(estimate)) = (&record.bound, judged.estimate) else {
                return false;
            };
            let (figure, scale) = self.figure(record, &estimate);
            let shift = shift(record.metric.base, figure) * scale;
            binds(record)
                && [shift, -shift].iter().any(|shift| {
                    let moved = Estimate {
                        value: estimate.value + shift,
                        lower: estimate.lower.map(|lower| lower + shift),
                        upper: estimate.upper.map(|upper| upper + shift),
                        ..estimate
                    };
                    rank(limit::judge(&moved, bound)) != rank(judged.verdict)
                })
        })
    }

    /// What the checks with a fault say, joined.
    fn told(&self, fault: Fault) -> String {
        let checks = &self.measurement.checks;
        let told: Vec<&str> = checks
            .iter()
            .filter(|check| check.fault == Some(fault))
            .map(|check| check.message.as_str())
            .collect();
        told.join("; ")
    }

    /// Settles class and message of an error or failure: what the checks say, then the bounds of
    /// these verdicts, worst first.
    fn settle(
        &self,
        judgement: &mut Judgement,
        class: &str,
        told: Option<String>,
        verdicts: &[BoundVerdict],
    ) {
        let mut broken: Vec<usize> = (0..self.cell.bounds.len())
            .filter(|index| {
                over(self.cell).is_none()
                    && binds(&self.cell.bounds[*index])
                    && verdicts.contains(&judgement.bounds[*index].verdict)
            })
            .collect();
        broken.sort_by(|a, b| {
            self.room(judgement, *a).total_cmp(&self.room(judgement, *b)).then(a.cmp(b))
        });
        let lines: Vec<String> =
            broken.iter().map(|index| judgement.bounds[*index].message.clone()).collect();
        let limits = self.cell.bounds.iter().filter(|record| binds(record)).count();
        let told =
            told.into_iter().chain((!lines.is_empty()).then(|| wording::several(&lines, limits)));
        judgement.message = Some(told.collect::<Vec<_>>().join("; "));
        judgement.class = Some(class.to_owned());
        judgement.decided_by = broken.first().copied();
    }

    fn room(&self, judgement: &Judgement, index: usize) -> f64 {
        match (&self.cell.bounds[index].bound, judgement.bounds[index].estimate) {
            (Some(bound), Some(estimate)) => limit::room(estimate.value, bound),
            (_, _) => f64::INFINITY,
        }
    }

    /// Words of checks that only warn.
    fn warnings(&self) -> Vec<String> {
        let checks = self.measurement.checks.iter();
        checks
            .filter_map(|check| match check.fault {
                Some(Fault::Notice) => Some(check.message.clone()),
                Some(Fault::Drifting) => Some(format!("drifting: {}", check.message)),
                Some(Fault::Invalid | Fault::Degraded) | None => None,
            })
            .collect()
    }

    fn warn_of_bounds(&self, judgement: &mut Judgement) {
        for (record, judged) in self.cell.bounds.iter().zip(&judgement.bounds) {
            match (record.severity, judged.verdict) {
                (
                    Severity::Warn,
                    BoundVerdict::Fail | BoundVerdict::Inconclusive | BoundVerdict::NoData,
                ) => judgement.warnings.push(judged.message.clone()),
                (Severity::Fail | Severity::Warn | Severity::Report, _) => {}
            }
        }
    }

    /// Whether the quarantine covers what was lost.
    fn covered(&self) -> bool {
        let Some(most) = self.cell.quarantine.as_ref().and_then(|rule| rule.max_loss) else {
            return true;
        };
        self.cell.bounds.iter().zip(self.bounds()).filter(|(record, _)| binds(record)).all(
            |(record, judged)| match (&record.bound, judged.estimate, judged.verdict) {
                (Some(bound), Some(estimate), BoundVerdict::Fail | BoundVerdict::Inconclusive) => {
                    limit::loss(estimate.value, bound).is_some_and(|loss| loss <= most)
                }
                // Of a degraded engine that gave no figure nobody knows how much was lost.
                (_, _, BoundVerdict::NoData) => false,
                (_, _, _) => true,
            },
        )
    }
}

#[cfg(test)]
mod tests;
