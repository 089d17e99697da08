//! Ratios: what a cell has, as a share of what it is held against, in the form that tables show.
//!
//! It decides which ratios stand in one table and how one is written; it judges nothing. The absolute
//! figures of both sides stand in tables of their own.

use crate::judge::{BoundVerdict, Estimate, Severity};
use crate::measure::Metric;
use crate::record::RunRecord;
use crate::record::run_record::{
    BoundJudgement, BoundRecord, CellOutcome, CellState, PlannedCellRecord, RelativeRecord,
};
use crate::record::wording::{seen, share, shares};

use super::grid::{self, Block, Mark, Tone};
use super::sanitise::line;

/// A bound of a cell that is a ratio, with what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Ratio<'a> {
    /// The bound.
    pub record: &'a BoundRecord,
    /// What it is held against.
    pub relative: &'a RelativeRecord,
    /// What it says.
    pub judged: &'a BoundJudgement,
    /// Whether its cell has not run.
    pub waits: bool,
}

/// The ratios of a cell, in the order of its bounds.
pub fn of<'a>(
    planned: &'a PlannedCellRecord,
    outcome: &'a CellOutcome,
) -> impl Iterator<Item = Ratio<'a>> {
    let waits = matches!(outcome.state, CellState::NotRun { .. });
    let both = planned.bounds.iter().zip(&outcome.judgement.bounds);
    both.filter_map(move |(record, judged)| {
        record.relative.as_ref().map(|relative| Ratio { record, relative, judged, waits })
    })
}

impl Ratio<'_> {
    /// Whose figure it is a share of: a variant's, or that of a file of recorded runs.
    pub fn whose(&self) -> String {
        line(self.relative.variant.as_ref().map_or(&self.relative.file, |variant| &variant.name))
    }

    /// The ratio with its interval, where there is one.
    pub fn estimate(&self) -> Option<Estimate> {
        self.judged.estimate
    }

    /// `0.941`, with as many digits as it takes to tell it from its limit.
    pub fn value(&self) -> Option<String> {
        let value = self.judged.estimate?.value;
        Some(self.record.bound.map_or_else(|| share(value), |bound| shares(value, bound.limit).0))
    }

    /// `[0.925, 0.957]`.
    pub fn interval(&self) -> Option<String> {
        let estimate = self.judged.estimate?;
        Some(format!("[{}, {}]", share(estimate.lower?), share(estimate.upper?)))
    }

    /// How it stands.
    pub fn mark(&self) -> Mark {
        if self.waits {
            return Mark { sign: '·', word: "not run", tone: Tone::Bad };
        }
        let (sign, word, tone) = match (self.judged.verdict, self.record.severity) {
            (BoundVerdict::Clear | BoundVerdict::Close, _) => ('✓', "pass", Tone::Good),
            (BoundVerdict::Fail, Severity::Fail) => ('✗', "fail", Tone::Bad),
            (BoundVerdict::Inconclusive, Severity::Fail) => ('?', "unsure", Tone::Doubtful),
            (BoundVerdict::NoData, Severity::Fail) => ('!', "no data", Tone::Bad),
            (BoundVerdict::Fail | BoundVerdict::Inconclusive, Severity::Warn) => {
                ('!', "warning", Tone::Doubtful)
            }
            (BoundVerdict::NoData, Severity::Warn | Severity::Report) => {
                ('–', "no data", Tone::Quiet)
            }
            (BoundVerdict::Fail | BoundVerdict::Inconclusive, Severity::Report) => {
                ('○', "beyond", Tone::Quiet)
            }
        };
        Mark { sign, word, tone }
    }

    /// `sees 2.1 %`: the smallest loss that would have failed 19 times out of 20.
    pub fn sees(&self) -> Option<String> {
        let side = self.record.bound?.side;
        let sees = self.judged.sees?;
        Some(seen(side, sees).map_or("sees nothing".to_owned(), |least| format!("sees {least}")))
    }
}

/// The ratios of the cells of a test in one metric to one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The test's name, washed.
    pub test: String,
    /// Which metric.
    pub metric: Metric,
    /// What they are held against, washed.
    pub whose: String,
    /// The cells that have such a ratio, as on the sheet of the test.
    pub blocks: Vec<Block>,
}

impl Table {
    /// `decode · output-throughput as a share of old`.
    pub fn title(&self) -> String {
        format!("{} · {}", self.test, self.caption())
    }

    /// `output-throughput as a share of old`.
    pub fn caption(&self) -> String {
        line(&format!("{} as a share of {}", self.metric, self.whose))
    }

    /// The ratio of a cell in this table.
    pub fn ratio<'a>(&self, record: &'a RunRecord, cell: usize) -> Option<Ratio<'a>> {
        let mut all = of(&record.header.cells[cell], &record.cells[cell]);
        all.find(|it| it.record.metric == self.metric && it.whose() == self.whose)
    }
}

/// What the ratios of a table have in common: test, metric, what they are held against.
type Key<'a> = (&'a str, Metric, String);

/// The tables of a record: tests in the order of the plan, metrics in that of the bounds.
pub fn tables(record: &RunRecord) -> Vec<Table> {
    let mut found: Vec<(Key<'_>, Vec<usize>)> = Vec::new();
    for (at, (planned, outcome)) in record.header.cells.iter().zip(&record.cells).enumerate() {
        for ratio in of(planned, outcome) {
            let key = (planned.test.as_str(), ratio.record.metric, ratio.whose());
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, cells)) if cells.last() == Some(&at) => {}
                Some((_, cells)) => cells.push(at),
                None => found.push((key, vec![at])),
            }
        }
    }
    let table = |((test, metric, whose), cells): (Key<'_>, Vec<usize>)| Table {
        test: line(test),
        metric,
        whose,
        blocks: grid::blocks(record, &cells),
    };
    found.into_iter().map(table).collect()
}
