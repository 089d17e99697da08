//! The mean ratio of all cells of two variants: what a small loss everywhere comes to.
//!
//! Cells of one launch share its luck, so the mean over the cells of each pair is one observation, and
//! the pairs tell its noise. It is a case of its own with a limit of its own; a shard, which has some of
//! the cells only, does not judge it.

use std::collections::BTreeSet;

use super::{Rounds, Sight, extendable};
use crate::hardware::blame::told;
use crate::judge::paired::{Order, fit, order, over_cells};
use crate::judge::power::{Design, Question, SURELY, smallest_loss};
use crate::judge::{Bound, BoundVerdict, Estimate, Method, NoData, Side, Verdict, limit};
use crate::measure::metric::Direction;
use crate::measure::{Check, Fault};
use crate::record::run_record::{
    BoundJudgement, CellOutcome, CellState, CompareOutcome, CompareRecord, Judgement,
    PlannedCellRecord, RunRecord, VariantRecord,
};
use crate::record::wording;
use crate::suite::model::InconclusivePolicy;

/// Logarithms of ratios by pair, with what was measured first.
type Ratios = Vec<(Order, f64)>;

/// Why there is no mean.
enum Lack {
    /// No cell of the plan is compared.
    Unplanned,
    /// Something has not run yet.
    Pending(String),
    /// It ran, and there is none.
    None(String),
}

/// What the mean ratio comes to as things stand. `all` are the cells in it, each with the same of the
/// baseline; the first `settled` of them are known to have figures. Returns how many are now.
pub(in crate::record) fn compared(
    record: &RunRecord,
    compare: &CompareRecord,
    all: &[(usize, Option<usize>)],
    settled: usize,
) -> (usize, CompareOutcome) {
    let first = (settled.min(all.len())..all.len())
        .find_map(|at| lack(record, all[at]).map(|lack| (at, lack)));
    let (settled, found) = match first {
        Some((at, lack)) => (at, Err(lack)),
        None => (all.len(), cells(record, compare, all)),
    };
    let found = found.and_then(|cells| {
        let over = over_cells(&cells).map_err(|why| Lack::None(why.to_string()))?;
        Ok((cells.len(), over))
    });
    let outcome = match found {
        Ok((cells, ratios)) => {
            let shown = ratios.iter().map(|(_, ratio)| ratio.exp()).collect();
            let (judgement, found) = match mean(record, compare, &ratios) {
                Ok(mean) => {
                    let sides = one_sided(record, all);
                    (judged(record, compare, cells, &mean, sides), Some(mean))
                }
                Err(why) => (unjudged(record, compare, "no-data", &why.to_string()), None),
            };
            CompareOutcome {
                ratios: shown,
                cells,
                estimate: found.as_ref().map(|mean| mean.estimate),
                sees: found.as_ref().map(|mean| mean.sees),
                judgement,
            }
        }
        Err(lack) => {
            let (class, why) = match lack {
                Lack::Unplanned => {
                    let judgement = shown("no cell of this run is compared".to_owned());
                    let outcome = CompareOutcome {
                        ratios: Vec::new(),
                        cells: 0,
                        estimate: None,
                        sees: None,
                        judgement,
                    };
                    return (settled, outcome);
                }
                Lack::Pending(why) => ("not-run", why),
                Lack::None(why) => ("no-data", format!("no mean ratio: {why}")),
            };
            let judgement = unjudged(record, compare, class, &why);
            CompareOutcome { ratios: Vec::new(), cells: 0, estimate: None, sees: None, judgement }
        }
    };
    (settled, outcome)
}

/// What a cell and the same of the baseline lack to be in a mean, if anything. One that neither engine
/// can run lacks nothing: it is in no mean.
fn lack(record: &RunRecord, (own, twin): (usize, Option<usize>)) -> Option<Lack> {
    let both = [Some(own), twin];
    let cells: Vec<&CellOutcome> = both.iter().flatten().map(|at| &record.cells[*at]).collect();
    let states: Vec<&CellState> = cells.iter().map(|cell| &cell.state).collect();
    if states.iter().all(|state| matches!(state, CellState::Unfit { .. })) {
        return None;
    }
    let none = |why: &str| {
        let planned = &record.header.cells[own];
        Some(Lack::None(format!("{} {}: {why}", planned.test, planned.id)))
    };
    // What broke stays so, whatever else has still to run.
    for state in &states {
        match state {
            CellState::Unfit { message, .. } | CellState::Broken { message, .. } => {
                return none(message);
            }
            CellState::Measured(measurement) => {
                let invalid = |check: &&Check| check.fault == Some(Fault::Invalid);
                if let Some(check) = measurement.checks.iter().find(invalid) {
                    return none(&check.message);
                }
            }
            CellState::NotRun { .. } => {}
        }
    }
    if let Some(spoilt) = cells.iter().find(|cell| cell.judgement.is_of_hardware()) {
        return none(spoilt.judgement.message.as_deref().unwrap_or_default());
    }
    states.iter().find_map(|state| match state {
        CellState::NotRun { reason } => Some(Lack::Pending(reason.clone())),
        CellState::Unfit { .. } | CellState::Broken { .. } | CellState::Measured(_) => None,
    })
}

/// The mean ratio with what it is judged by.
struct Mean {
    estimate: Estimate,
    bound: Bound,
    sees: f64,
}

/// The mean of all pairs. It takes half of the level where it has a limit, and all cells together the
/// other half.
fn mean(record: &RunRecord, compare: &CompareRecord, ratios: &Ratios) -> Result<Mean, NoData> {
    let alpha = record.header.policy.alpha;
    let level = alpha / if compare.min_mean_ratio.is_some() { 2.0 } else { 1.0 };
    let limit = compare.min_mean_ratio.unwrap_or(1.0);
    let fit = fit(ratios)?;
    let estimate = fit.log_mean(None).estimate(level, Method::Paired)?;
    let question = Question { alpha: level, limit: -limit.ln() };
    let design = Design { factor: fit.factor, df: fit.df };
    let sees = smallest_loss(design, question, fit.variance.sqrt(), SURELY);
    Ok(Mean { estimate, bound: Bound { side: Side::Min, target: 1.0, limit }, sees })
}

/// Whether the mean ratio is judged: it has a limit, and the record has all of its cells.
fn is_judged(record: &RunRecord, compare: &CompareRecord) -> bool {
    compare.min_mean_ratio.is_some() && record.header.shard.is_none()
}

/// What the limit on the mean ratio would say, had every cell lost so much more (a fraction): `None` where
/// there is no such limit, an error where there is no mean.
pub(in crate::record) fn worsened(
    record: &RunRecord,
    loss: f64,
) -> Option<Result<BoundVerdict, String>> {
    let compare = record.header.compare.as_ref().filter(|it| is_judged(record, it))?;
    let outcome = record.compare.as_ref()?;
    if outcome.ratios.is_empty() {
        return Some(Err(outcome.judgement.message.clone().unwrap_or_default()));
    }
    let worse = |(pair, ratio): (u32, &f64)| (order(pair), ratio.ln() + (-loss).ln_1p());
    let ratios: Ratios = (0..).zip(&outcome.ratios).map(worse).collect();
    let mean = mean(record, compare, &ratios).map_err(|why| why.to_string());
    Some(mean.map(|mean| limit::judge(&mean.estimate, &mean.bound)))
}

/// The log ratios of each cell that is compared, turned so that less is worse; of a cell with several
/// metrics their mean.
fn cells(
    record: &RunRecord,
    compare: &CompareRecord,
    all: &[(usize, Option<usize>)],
) -> Result<Vec<Ratios>, Lack> {
    let mut found = Vec::new();
    for (index, _) in all {
        let (planned, outcome) = (&record.header.cells[*index], &record.cells[*index]);
        let CellState::Measured(measurement) = &outcome.state else { continue };
        let none = |why: String| Lack::None(format!("{} {}: {why}", planned.test, planned.id));
        let own = outcome.rounds.iter().map(|round| match &round.state {
            CellState::Measured(measurement) => Some(&**measurement),
            CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
        });
        let own: Vec<_> = own.collect();
        let others = record.others(*index);
        let sight = Sight {
            cell: planned,
            measurement,
            policy: &record.header.policy,
            gpus: record.gpus(planned),
            extendable: extendable(planned.kind),
            rounds: Some(Rounds { own: &own, others: &others, reference: false, suspects: &[] }),
        };
        let metrics = metrics(planned, compare);
        let mut sum: Vec<f64> = vec![0.0; compare.pairs as usize];
        for (metric, variant) in &metrics {
            let ratios = sight
                .pair_ratios(*metric, variant)
                .map_err(|why| none(format!("{metric}: {why}")))?;
            let sign = match metric.base.entry().better {
                Direction::Higher => 1.0,
                Direction::Lower => -1.0,
            };
            if ratios.len() != sum.len() {
                return Err(none(format!("it has {} pairs", ratios.len())));
            }
            for (sum, ratio) in sum.iter_mut().zip(ratios) {
                *sum += sign * ratio / metrics.len() as f64;
            }
        }
        found.push((0..).zip(sum).map(|(pair, ratio)| (order(pair), ratio)).collect());
    }
    if all.is_empty() { Err(Lack::Unplanned) } else { Ok(found) }
}

/// What is said in place of a verdict.
fn shown(message: String) -> Judgement {
    Judgement {
        verdict: Verdict::Measured,
        class: None,
        message: Some(message),
        bounds: Vec::new(),
        decided_by: None,
        warnings: Vec::new(),
        suspects: Vec::new(),
    }
}

fn elsewhere(message: &str) -> String {
    format!("{message}; the mean ratio is judged when all shards are merged")
}

/// The metrics of a cell that are compared in pairs, each once.
fn metrics<'c>(
    planned: &'c PlannedCellRecord,
    compare: &CompareRecord,
) -> Vec<(crate::measure::Metric, &'c VariantRecord)> {
    let mut found: Vec<(crate::measure::Metric, &VariantRecord)> = Vec::new();
    for bound in &planned.bounds {
        let variant = bound.relative.as_ref().and_then(|relative| relative.variant.as_ref());
        if let Some(variant) = variant
            && variant.paired
            && variant.name == compare.baseline
            && !found.iter().any(|(metric, _)| *metric == bound.metric)
        {
            found.push((bound.metric, variant));
        }
    }
    found
}

fn unjudged(record: &RunRecord, compare: &CompareRecord, class: &str, why: &str) -> Judgement {
    if record.header.shard.is_some() {
        return shown(elsewhere(why));
    }
    let judged = is_judged(record, compare);
    let bounds = compare.min_mean_ratio.filter(|_| judged).map(|_| BoundJudgement {
        verdict: BoundVerdict::NoData,
        estimate: None,
        sees: None,
        message: format!("mean ratio: {why} ({})", compare.place),
    });
    Judgement {
        verdict: if judged { Verdict::Error } else { Verdict::Measured },
        class: Some(class.to_owned()),
        message: Some(why.to_owned()),
        bounds: bounds.into_iter().collect(),
        decided_by: None,
        warnings: Vec::new(),
        suspects: Vec::new(),
    }
}

/// The compared cells in which hardware was suspect of one variant alone, in words.
fn one_sided(record: &RunRecord, all: &[(usize, Option<usize>)]) -> Option<String> {
    let rounds = |at: usize| -> BTreeSet<Option<u32>> {
        record.cells[at].judgement.suspects.iter().map(|suspected| suspected.round).collect()
    };
    let alone = |one: usize, other: usize| rounds(one).difference(&rounds(other)).next().copied();
    let mut count = 0;
    let mut first = None;
    for (own, twin) in all {
        let Some(twin) = *twin else { continue };
        let found = alone(*own, twin).map(|round| (*own, round));
        let Some((at, round)) = found.or_else(|| Some((twin, alone(twin, *own)?))) else {
            continue;
        };
        count += 1;
        first.get_or_insert((at, round));
    }
    let (at, round) = first?;
    let planned = &record.header.cells[at];
    let suspects = record.cells[at].judgement.suspects.iter();
    let words = suspects.filter(|it| it.round == round).map(|it| it.suspicion.words.as_str());
    let place =
        round.map(|round| wording::of_several("pair", &[round as usize], planned.rounds as usize));
    Some(format!(
        "hardware was suspect of one variant alone in {count} of {} cells, first of {} in {} {}{}: {}",
        all.len(),
        planned.variant.as_deref().unwrap_or_default(),
        planned.test,
        planned.id,
        place.map(|place| format!(" {place}")).unwrap_or_default(),
        told(words),
    ))
}

fn judged(
    record: &RunRecord,
    compare: &CompareRecord,
    cells: usize,
    mean: &Mean,
    sides: Option<String>,
) -> Judgement {
    let policy = &record.header.policy;
    let Mean { estimate, bound, sees } = *mean;
    let found = limit::judge(&estimate, &bound);
    let chosen = !record.header.selection.is_empty();
    let line = wording::mean_ratio(compare, (cells, chosen), &estimate, &bound, found, sees);
    let message = match sides {
        Some(sides) => format!("{line}; {sides}"),
        None => line.clone(),
    };
    if record.header.shard.is_some() {
        return shown(elsewhere(&message));
    }
    if compare.min_mean_ratio.is_none() {
        return shown(message);
    }
    let judged = |verdict, class: Option<&str>, warnings| Judgement {
        verdict,
        class: class.map(str::to_owned),
        message: Some(message.clone()),
        bounds: vec![BoundJudgement {
            verdict: found,
            estimate: Some(estimate),
            sees: Some(sees),
            message: line.clone(),
        }],
        decided_by: Some(0),
        warnings,
        suspects: Vec::new(),
    };
    let by_policy = |estimate: &Estimate| match policy.inconclusive {
        InconclusivePolicy::Warn | InconclusivePolicy::Fail => {
            judged(Verdict::Inconclusive, Some("inconclusive"), Vec::new())
        }
        InconclusivePolicy::Pass => {
            judged(Verdict::Pass, None, vec![format!("inconclusive, passed by policy: {message}")])
        }
        InconclusivePolicy::Point if limit::beyond(estimate.value, &bound) => judged(
            Verdict::Fail,
            Some("limit"),
            vec![format!("inconclusive, failed by the point estimate: {message}")],
        ),
        InconclusivePolicy::Point => judged(Verdict::Pass, None, Vec::new()),
    };
    match found {
        BoundVerdict::Clear | BoundVerdict::Close => judged(Verdict::Pass, None, Vec::new()),
        BoundVerdict::Fail => judged(Verdict::Fail, Some("limit"), Vec::new()),
        BoundVerdict::Inconclusive => by_policy(&estimate),
        BoundVerdict::NoData => judged(Verdict::Error, Some("no-data"), Vec::new()),
    }
}
