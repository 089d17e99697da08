//! The mean ratio of all cells of two variants: what a small loss everywhere comes to.
//!
//! Cells of one launch share its luck, so the mean over the cells of each pair is one observation, and
//! the pairs tell its noise. It is a case of its own with a limit of its own; a shard, which has some of
//! the cells only, does not judge it.

use super::{Rounds, Sight, extendable};
use crate::judge::paired::{Order, fit, order, over_cells};
use crate::judge::power::{Design, Question, SURELY, smallest_loss};
use crate::judge::{Bound, BoundVerdict, Estimate, Method, Side, Verdict, limit};
use crate::measure::metric::Direction;
use crate::record::run_record::{
    BoundJudgement, CellState, CompareOutcome, CompareRecord, Judgement, PlannedCellRecord,
    RunRecord, VariantRecord,
};
use crate::record::wording;
use crate::suite::model::InconclusivePolicy;

/// Logarithms of ratios by pair, with what was measured first.
type Ratios = Vec<(Order, f64)>;

/// Why there is no mean.
enum Lack {
    /// Something has not run yet.
    Pending(String),
    /// It ran, and there is none.
    None(String),
}

/// What the mean ratio comes to as things stand.
pub fn compared(record: &RunRecord, compare: &CompareRecord) -> CompareOutcome {
    let found = cells(record, compare).and_then(|cells| {
        let over = over_cells(&cells).map_err(|why| Lack::None(why.to_string()))?;
        Ok((cells.len(), over))
    });
    let (cells, ratios) = match found {
        Ok(found) => found,
        Err(lack) => {
            let (class, why) = match lack {
                Lack::Pending(why) => ("not-run", why),
                Lack::None(why) => ("no-data", format!("no mean ratio: {why}")),
            };
            let judgement = unjudged(compare, class, &why);
            return CompareOutcome { ratios: Vec::new(), cells: 0, judgement };
        }
    };
    let shown = ratios.iter().map(|(_, ratio)| ratio.exp()).collect();
    let judgement = judged(record, compare, cells, &ratios);
    CompareOutcome { ratios: shown, cells, judgement }
}

/// The log ratios of each cell that is compared, turned so that less is worse; of a cell with several
/// metrics their mean.
fn cells(record: &RunRecord, compare: &CompareRecord) -> Result<Vec<Ratios>, Lack> {
    let mut found = Vec::new();
    for (planned, outcome) in record.header.cells.iter().zip(&record.cells) {
        let metrics = metrics(planned, compare);
        if planned.variant.as_deref() != Some(&compare.candidate) || metrics.is_empty() {
            continue;
        }
        let name = || format!("{} {}", planned.test, planned.id);
        let twin = record.twin(planned, &compare.baseline);
        let states = [Some(&outcome.state), twin.map(|twin| &record.cells[twin].state)];
        // A cell that fits in neither is none.
        if states.iter().all(|state| matches!(state, Some(CellState::Unfit { .. }))) {
            continue;
        }
        for state in states.into_iter().flatten() {
            match state {
                CellState::NotRun { reason } => return Err(Lack::Pending(reason.clone())),
                CellState::Unfit { message, .. } | CellState::Broken { message, .. } => {
                    return Err(Lack::None(format!("{}: {message}", name())));
                }
                CellState::Measured(_) => {}
            }
        }
        let CellState::Measured(measurement) = &outcome.state else { continue };
        let own = outcome.rounds.iter().map(|round| match &round.state {
            CellState::Measured(measurement) => Some(&**measurement),
            CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
        });
        let own: Vec<_> = own.collect();
        let others = record.others(planned);
        let sight = Sight {
            cell: planned,
            measurement,
            policy: &record.header.policy,
            gpus: record.gpus(planned),
            extendable: extendable(planned.kind),
            rounds: Some(Rounds { own: &own, others: &others }),
        };
        let mut sum: Vec<f64> = vec![0.0; compare.pairs as usize];
        for (metric, variant) in &metrics {
            let ratios = sight.pair_ratios(*metric, variant).map_err(Lack::None)?;
            let sign = match metric.base.entry().better {
                Direction::Higher => 1.0,
                Direction::Lower => -1.0,
            };
            if ratios.len() != sum.len() {
                return Err(Lack::None(format!("{} has {} pairs", name(), ratios.len())));
            }
            for (sum, ratio) in sum.iter_mut().zip(ratios) {
                *sum += sign * ratio / metrics.len() as f64;
            }
        }
        found.push((0..).zip(sum).map(|(pair, ratio)| (order(pair), ratio)).collect());
    }
    Ok(found)
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

fn unjudged(compare: &CompareRecord, class: &str, why: &str) -> Judgement {
    let bounds = compare.min_mean_ratio.map(|_| BoundJudgement {
        verdict: BoundVerdict::NoData,
        estimate: None,
        sees: None,
        message: format!("mean ratio: {why} ({})", compare.place),
    });
    Judgement {
        verdict: if compare.min_mean_ratio.is_some() { Verdict::Error } else { Verdict::Measured },
        class: Some(class.to_owned()),
        message: Some(why.to_owned()),
        bounds: bounds.into_iter().collect(),
        decided_by: None,
        warnings: Vec::new(),
    }
}

fn judged(record: &RunRecord, compare: &CompareRecord, cells: usize, ratios: &Ratios) -> Judgement {
    let policy = &record.header.policy;
    // The mean takes half of the level where it has a limit, and all cells together the other half.
    let level = policy.alpha / if compare.min_mean_ratio.is_some() { 2.0 } else { 1.0 };
    let limit = compare.min_mean_ratio.unwrap_or(1.0);
    let bound = Bound { side: Side::Min, target: 1.0, limit };
    let fit = match fit(ratios) {
        Ok(fit) => fit,
        Err(why) => return unjudged(compare, "no-data", &why.to_string()),
    };
    let estimate = match fit.log_mean(None).estimate(level, Method::Paired) {
        Ok(estimate) => estimate,
        Err(why) => return unjudged(compare, "no-data", &why.to_string()),
    };
    let question = Question { alpha: level, limit: -limit.ln() };
    let design = Design { factor: fit.factor, df: fit.df };
    let sees = smallest_loss(design, question, fit.variance.sqrt(), SURELY);
    let found = limit::judge(&estimate, &bound);
    let message = wording::mean_ratio(compare, cells, &estimate, &bound, found, sees);
    let judged = |verdict, class: Option<&str>, warnings| Judgement {
        verdict,
        class: class.map(str::to_owned),
        message: Some(message.clone()),
        bounds: vec![BoundJudgement {
            verdict: found,
            estimate: Some(estimate),
            sees: Some(sees),
            message: message.clone(),
        }],
        decided_by: Some(0),
        warnings,
    };
    if compare.min_mean_ratio.is_none() || record.header.shard.is_some() {
        return Judgement {
            bounds: Vec::new(),
            decided_by: None,
            ..judged(Verdict::Measured, None, Vec::new())
        };
    }
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
