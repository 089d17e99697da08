//! The mean ratio of two variants as a case of its own: what it is called, how it stands, what is said of it.
//!
//! What it comes to was judged; the formats arrange what is here as they arrange cells.

use crate::judge::Verdict;
use crate::judge::paired::{Order, order};
use crate::record::RunRecord;
use crate::record::run_record::{CompareOutcome, CompareRecord, Judgement};
use crate::record::wording::share;

use super::count::plural;
use super::grid::{self, Mark};
use super::message;
use super::sanitise::line;

/// The name of the case.
pub const NAME: &str = "mean ratio";

/// The case of a record whose variants are compared.
#[derive(Debug, Clone, Copy)]
pub struct Overall<'a> {
    /// What was planned.
    pub compare: &'a CompareRecord,
    /// What came of it.
    pub outcome: &'a CompareOutcome,
}

/// The case of a record; none where nothing is compared, and none of a shard.
pub fn of(record: &RunRecord) -> Option<Overall<'_>> {
    record.mean_ratio().map(|(compare, outcome)| Overall { compare, outcome })
}

impl<'a> Overall<'a> {
    /// What it comes to.
    pub fn judgement(&self) -> &'a Judgement {
        &self.outcome.judgement
    }

    /// Whether it waits for cells that have not run.
    pub fn is_pending(&self) -> bool {
        self.outcome.judgement.class.as_deref() == Some("not-run")
    }

    /// Its mark.
    pub fn mark(&self) -> Mark {
        grid::mark_of(&self.outcome.judgement, None, self.is_pending())
    }

    /// `new against old`.
    pub fn heading(&self) -> String {
        line(&format!("{} against {}", self.compare.candidate, self.compare.baseline))
    }

    /// `<suite>.<candidate>.compare`.
    pub fn classname(&self, record: &RunRecord) -> String {
        line(&format!("{}.{}.compare", record.header.suite, self.compare.candidate))
    }

    /// The one line that says what came of it.
    pub fn said(&self) -> String {
        let said = self.outcome.judgement.message.as_deref().unwrap_or("not judged");
        message::one_line(said)
    }

    /// What is said of it behind its mark, which has said already that it has not run.
    pub fn behind_mark(&self) -> String {
        let said = self.said();
        let rest = said.strip_prefix(self.mark().word).map(|rest| rest.trim_start_matches(": "));
        match rest {
            Some("") => "its cells have not run".to_owned(),
            Some(rest) => rest.to_owned(),
            None => said,
        }
    }

    /// The ratio of each pair over all cells, with which of the two was measured first.
    pub fn pairs(&self) -> impl Iterator<Item = (Order, f64)> + 'a {
        (0..).map(order).zip(self.outcome.ratios.iter().copied())
    }

    /// The pairs' ratios in one line: `8 pairs over 36 cells: 0.998 · 1.002 · …`; empty as long as
    /// there are none.
    pub fn pairs_words(&self) -> String {
        if self.outcome.ratios.is_empty() {
            return String::new();
        }
        let ratios: Vec<String> = self.outcome.ratios.iter().map(|ratio| share(*ratio)).collect();
        format!(
            "{} over {}: {}",
            plural(ratios.len(), "pair"),
            plural(self.outcome.cells, "cell"),
            ratios.join(" · ")
        )
    }

    /// How the last line of a run tells of it: `mean ratio: failed`.
    pub fn in_a_word(&self) -> String {
        let word = match self.outcome.judgement.verdict {
            Verdict::Pass => "passed",
            Verdict::Fail => "failed",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Error if self.is_pending() => "not run",
            Verdict::Error => "error",
            Verdict::Measured => "measured only",
            Verdict::Skip => "skipped",
            Verdict::Xfail => "failed as expected",
            Verdict::Xpass => "passed in quarantine",
        };
        format!("{NAME}: {word}")
    }
}
