//! A calibration: a suite measured against itself, and what its launches come to.
//!
//! A pure function of the record of such a run and of the bounds that the suite has: the noise of each
//! metric of each cell, how often a bound would have failed although nothing changed (false alarms),
//! and the smallest loss that each bound sees by this noise. The mathematics is in `judge`.

use std::collections::BTreeMap;

use super::baseline::{Key, Run, metrics, run};
use super::judgement::judge_cell;
use super::noise::{Figures, NoiseLine, figures};
use super::provenance::Workload;
use super::run_record::{
    BoundRecord, CellOutcome, CellState, Measurement, PlannedCellRecord, RunRecord,
};
use crate::judge::lattice::Faults;
use crate::judge::paired::{Order, Pair, fit, log_ratios, order};
use crate::judge::power::{Design, Question, SURELY, smallest_loss};
use crate::judge::ratio::{against_runs, family_level};
use crate::judge::{Bound, BoundVerdict, Method, NoData, Side, limit};
use crate::suite::model::Policy;

/// The correlation of successive batch means beyond which they are no witnesses of their own: batches are
/// too short.
pub const MOST_LAG: f64 = 0.2;

/// What a calibration told.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Where it comes from.
    pub run: Run,
    /// What was asked of each test.
    pub tests: BTreeMap<String, Workload>,
    /// The noise of each metric of each cell.
    pub lines: Vec<NoiseLine>,
    /// The bounds of the suite.
    pub gates: Vec<Gate>,
    /// Cells that tell nothing since they broke or do not count, each with its reason.
    pub uncounted: Vec<String>,
}

/// One bound of a cell, and what the calibration says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Which metric of which cell it is on.
    pub key: Key,
    /// The bound.
    pub bound: BoundRecord,
    /// What is judged by it in a run.
    pub judged: Judged,
    /// How many times it was judged although nothing had changed.
    pub tried: u32,
    /// How many of them failed.
    pub failed: u32,
    /// How many of them were inconclusive.
    pub doubtful: u32,
    /// The smallest loss, as a fraction of what was measured here, that fails 19 times out of 20 where the
    /// suite's runs are judged by this noise. 0: it fails as things are.
    pub sees: Option<f64>,
}

/// What a bound judges in a run of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// So many launches by themselves.
    Launches(u32),
    /// So many launches against recorded runs, or against as many of a variant.
    Against(u32),
    /// So many pairs.
    Pairs(u32),
}

/// What the record of a calibration comes to. `asked`: the cells of the suite as its runs have them, with
/// their bounds and in how many launches or pairs they are measured.
pub fn calibration(record: &RunRecord, asked: &[PlannedCellRecord]) -> Calibration {
    let header = &record.header;
    let run = run(record);
    let of = |cell: &PlannedCellRecord| (cell.test.clone(), cell.variant.clone(), cell.id.clone());
    let bounds: BTreeMap<_, &PlannedCellRecord> =
        asked.iter().map(|cell| (of(cell), cell)).collect();
    let mut found = Calibration {
        tests: BTreeMap::new(),
        lines: Vec::new(),
        gates: Vec::new(),
        uncounted: Vec::new(),
        run,
    };
    for (planned, outcome) in header.cells.iter().zip(&record.cells) {
        let launches = match usable(outcome) {
            Ok(Some(launches)) => launches,
            Ok(None) => continue,
            Err(why) => {
                let name = Key::of(planned, "").to_string();
                found.uncounted.push(format!("{}: {why}", name.trim_end()));
                continue;
            }
        };
        let cell = bounds.get(&of(planned)).copied().unwrap_or(planned);
        let gpus = header.launches.get(planned.launch).map_or(1, |launch| launch.gpus);
        let policy = &header.policy;
        let of = Figures { cell, launches: &launches, policy, gpus, run: &found.run.id.clone() };
        let mut lines = BTreeMap::new();
        for metric in metrics(cell) {
            if let Some(line) = figures(of, metric) {
                lines.insert(metric, line);
            }
        }
        for (position, bound) in cell.bounds.iter().enumerate() {
            let line = lines.get(&bound.metric);
            let tried = Tried { cell, position, launches: &launches, policy, gpus };
            found.gates.extend(gate(tried, bound, line));
        }
        if let (false, Some(workload)) =
            (lines.is_empty(), header.provenance.workloads.get(&planned.test))
        {
            found.tests.insert(planned.test.clone(), workload.clone());
        }
        found.lines.extend(lines.into_values());
    }
    found
}

/// The launches of a cell, if all of them count; none of a cell that can't run on this engine.
fn usable(outcome: &CellOutcome) -> Result<Option<Vec<&Measurement>>, String> {
    match &outcome.state {
        CellState::NotRun { reason } => Err(reason.clone()),
        CellState::Broken { message, .. } => {
            Err(message.lines().next().unwrap_or_default().to_owned())
        }
        CellState::Unfit { .. } => Ok(None),
        CellState::Measured(pooled) => {
            let faults = Faults::of(&pooled.checks);
            if faults.invalid || faults.degraded {
                let said = outcome.judgement.message.as_deref();
                return Err(said.unwrap_or("it does not count").to_owned());
            }
            let launches = outcome.rounds.iter().filter_map(|round| match &round.state {
                CellState::Measured(measurement) => Some(&**measurement),
                CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => {
                    None
                }
            });
            Ok(Some(launches.collect()))
        }
    }
}

/// A bound on launches in which nothing changed.
#[derive(Clone, Copy)]
struct Tried<'a> {
    cell: &'a PlannedCellRecord,
    position: usize,
    launches: &'a [&'a Measurement],
    policy: &'a Policy,
    gpus: u32,
}

/// What the calibration says of a bound; none of `"over"`.
fn gate(tried: Tried<'_>, record: &BoundRecord, line: Option<&NoiseLine>) -> Option<Gate> {
    let bound = record.bound.as_ref()?;
    let cell = tried.cell;
    let paired = |record: &BoundRecord| {
        let variant = record.relative.as_ref().and_then(|relative| relative.variant.as_ref());
        variant.is_some_and(|variant| variant.paired)
    };
    let (judged, verdicts) = match &record.relative {
        None => (Judged::Launches(cell.rounds), tried.alone()),
        Some(relative) => {
            let alpha = family_level(tried.policy.alpha, relative.comparisons);
            let values = line.map_or(&[][..], |line| &line.values);
            if paired(record) {
                (Judged::Pairs(cell.rounds), in_pairs(values, bound, alpha))
            } else {
                (Judged::Against(cell.rounds), left_out(values, bound, alpha))
            }
        }
    };
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count() as u32;
    Some(Gate {
        key: Key::of(cell, &record.metric.to_string()),
        bound: record.clone(),
        judged,
        tried: verdicts.len() as u32,
        failed: count(BoundVerdict::Fail),
        doubtful: count(BoundVerdict::Inconclusive),
        sees: line.and_then(|line| sees(tried.policy, record, bound, judged, line)),
    })
}

impl Tried<'_> {
    /// Each launch judged as if it were the only one of a run.
    fn alone(&self) -> Vec<BoundVerdict> {
        let one = PlannedCellRecord { rounds: 1, ..self.cell.clone() };
        let judged = self.launches.iter().map(|launch| {
            let state = CellState::Measured(Box::new((*launch).clone()));
            judge_cell(&one, &state, self.policy, self.gpus, false)
        });
        judged
            .filter_map(|judgement| Some(judgement.bounds.get(self.position)?.verdict))
            .filter(|verdict| *verdict != BoundVerdict::NoData)
            .collect()
    }
}

/// Each launch held against the others as if those were recorded runs.
fn left_out(values: &[f64], bound: &Bound, alpha: f64) -> Vec<BoundVerdict> {
    let one = |at: usize| -> Result<BoundVerdict, NoData> {
        let mut others = values.to_vec();
        let own = others.remove(at);
        let ratio = against_runs(&others, &[own], None)?;
        Ok(limit::judge(&ratio.estimate(alpha, Method::Baseline)?, bound))
    };
    (0..values.len()).filter_map(|at| one(at).ok()).collect()
}

/// Successive launches as pairs, once with either of each pair in the place of the candidate. None where
/// they make no whole blocks of pairs that show their noise.
fn in_pairs(values: &[f64], bound: &Bound, alpha: f64) -> Vec<BoundVerdict> {
    let whole = values.len() / 4 * 4;
    let one = |swapped: bool| -> Result<BoundVerdict, NoData> {
        let pairs = (0..).zip(values[..whole].chunks_exact(2)).map(|(at, two)| {
            let order = order(at);
            let baseline_first = matches!(order, Order::BaselineFirst) != swapped;
            let (baseline, candidate) =
                if baseline_first { (two[0], two[1]) } else { (two[1], two[0]) };
            let order = if baseline_first { Order::BaselineFirst } else { Order::CandidateFirst };
            Pair { order, baseline, candidate }
        });
        let fit = fit(&log_ratios(&pairs.collect::<Vec<_>>())?)?;
        Ok(limit::judge(&fit.log_mean(None).estimate(alpha, Method::Paired)?, bound))
    };
    if whole < 8 {
        return Vec::new();
    }
    [false, true].into_iter().filter_map(|swapped| one(swapped).ok()).collect()
}

/// The smallest loss that a bound sees by this noise, as a fraction of what was measured.
fn sees(
    policy: &Policy,
    record: &BoundRecord,
    bound: &Bound,
    judged: Judged,
    line: &NoiseLine,
) -> Option<f64> {
    let df = f64::from(line.df);
    let launches = line.values.len() as u64;
    let (design, sd) = match judged {
        Judged::Launches(n) => (Design { factor: 1.0 / f64::from(n.max(1)), df }, line.sd),
        // Of recorded runs there are taken to be as many as there were launches here.
        Judged::Against(n) => {
            let variant = record.relative.as_ref().is_some_and(|it| it.variant.is_some());
            let others = if variant { n.into() } else { launches };
            let factor = 1.0 / others.max(1) as f64 + 1.0 / f64::from(n.max(1));
            (Design { factor, df }, line.sd)
        }
        // A pair has the noise of two launches.
        Judged::Pairs(n) => {
            (Design::pairs(n.into())?.calibrated(df), line.sd * std::f64::consts::SQRT_2)
        }
    };
    let logarithm = |of: f64| (of > 0.0).then(|| of.ln()).filter(|log| log.is_finite());
    let worse = |from: f64, to: f64| match bound.side {
        Side::Min => from - to,
        Side::Max => to - from,
    };
    let (target, tolerated) = (logarithm(bound.target)?, logarithm(bound.limit)?);
    let (alpha, room) = match &record.relative {
        Some(relative) => (family_level(policy.alpha, relative.comparisons), 0.0),
        None => {
            let middle = crate::record::baseline::middle(&line.values)?;
            (policy.alpha, worse(middle.ln(), target))
        }
    };
    let question = Question { alpha, limit: worse(target, tolerated) };
    let loss = smallest_loss(design, question, sd, SURELY);
    // What is lost until the target is reached is lost unseen.
    Some((1.0 - (1.0 - loss) * (-room).exp()).max(0.0))
}

#[cfg(test)]
pub(crate) mod tests;
