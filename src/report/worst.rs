//! The cells, and the mean ratio, that need somebody's eye, the worst first: the order of the HTML page and of the
//! annotations, which show only so many.

use crate::judge::{Verdict, limit};
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, CellState, Judgement, PlannedCellRecord};

use super::count::inconclusive_fails;
use super::overall;

/// How much a cell needs an eye.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Judged and too slow.
    Failed,
    /// It ran and could not be judged.
    Unjudged,
    /// In doubt, where policy fails it.
    Doubtful,
    /// It has not run.
    NotRun,
    /// In doubt, and policy lets that pass.
    Tolerated,
}

impl Need {
    /// Of a cell that needs an eye, how much.
    pub fn of(record: &RunRecord, cell: usize) -> Option<Need> {
        let outcome = record.cells.get(cell)?;
        let waits = matches!(outcome.state, CellState::NotRun { .. });
        Need::of_judgement(record, &outcome.judgement, waits)
    }

    fn of_judgement(record: &RunRecord, judgement: &Judgement, waits: bool) -> Option<Need> {
        let policy = record.header.policy.inconclusive;
        match judgement.verdict {
            Verdict::Fail => Some(Need::Failed),
            Verdict::Error if waits => Some(Need::NotRun),
            Verdict::Error => Some(Need::Unjudged),
            Verdict::Inconclusive if inconclusive_fails(policy, judgement) => Some(Need::Doubtful),
            Verdict::Inconclusive => Some(Need::Tolerated),
            Verdict::Pass | Verdict::Measured | Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {
                None
            }
        }
    }

    /// Whether it turns the run red.
    pub fn fails(self) -> bool {
        match self {
            Need::Failed | Need::Unjudged | Need::Doubtful | Need::NotRun => true,
            Need::Tolerated => false,
        }
    }
}

/// Something with a verdict of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The mean ratio of compared variants.
    MeanRatio,
    /// A cell, by index.
    Cell(usize),
}

/// Every case that needs an eye: the mean ratio before all cells of its need, since it speaks for all of
/// them.
pub fn cases(record: &RunRecord) -> Vec<(Which, Need)> {
    let cells = cells(record).into_iter().map(|(cell, need)| (Which::Cell(cell), need));
    let mut all: Vec<(Which, Need)> = cells.collect();
    let need =
        |it: &overall::Overall<'_>| Need::of_judgement(record, it.judgement(), it.is_pending());
    if let Some(need) = overall::of(record).as_ref().and_then(need) {
        let at = all.iter().position(|(_, other)| *other >= need).unwrap_or(all.len());
        all.insert(at, (Which::MeanRatio, need));
    }
    all
}

/// Every cell that needs an eye: by need, those of one need by the share that was lost, in the order of
/// the plan where that is alike or unknown.
pub fn cells(record: &RunRecord) -> Vec<(usize, Need)> {
    let mut found: Vec<(usize, Need, f64)> = (0..record.cells.len())
        .filter_map(|cell| {
            let need = Need::of(record, cell)?;
            Some((cell, need, lost(&record.header.cells[cell], &record.cells[cell])))
        })
        .collect();
    found.sort_by(|a, b| a.1.cmp(&b.1).then(b.2.total_cmp(&a.2)).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(cell, need, _)| (cell, need)).collect()
}

/// The share that the bound which decided says was lost; 0 where it says nothing.
fn lost(planned: &PlannedCellRecord, outcome: &CellOutcome) -> f64 {
    let decided = outcome.judgement.decided_by;
    let pair = decided.and_then(|at| {
        Some((planned.bounds.get(at)?.bound?, outcome.judgement.bounds.get(at)?.estimate?))
    });
    pair.and_then(|(bound, estimate)| limit::loss(estimate.value, &bound))
        .filter(|loss| loss.is_finite())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_worst_stands_first_and_what_is_fine_not_at_all() {
        let record = fixture::every_verdict();
        let needs: Vec<Need> = cells(&record).into_iter().map(|(_, need)| need).collect();
        use Need::*;
        assert_eq!(needs, [Failed, Failed, Unjudged, NotRun, NotRun, Tolerated]);
        // The one with a figure lost something, the other is degraded.
        assert_eq!(cells(&record)[0].0, 1);
    }
}
