//! What a policy makes of a cell that is in doubt, that passed, or of which nothing is expected, and what a
//! quarantine makes of any.

use super::{Sight, binds, over};
use crate::judge::{BoundVerdict, Verdict, lattice};
use crate::measure::Fault;
use crate::record::run_record::{Judgement, PlannedCellRecord};
use crate::record::wording;
use crate::suite::model::{InconclusivePolicy, UnjudgedPolicy};

impl Sight<'_> {
    /// Whether the cell is there for another variant to be held against, and nothing is asked of it that
    /// could fail it.
    pub(super) fn is_yardstick(&self) -> bool {
        self.rounds.is_some_and(|rounds| rounds.reference) && !self.cell.bounds.iter().any(binds)
    }

    /// The engine that another variant is held against degraded: whoever changed that variant is not to blame,
    /// and nothing can be held against this.
    pub(super) fn nobodys_fault(&self, judgement: &mut Judgement) {
        judgement.verdict = Verdict::Error;
        let words = "degraded, and another variant is held against it";
        let told = format!("{words}: {}", self.told(Fault::Degraded));
        self.settle(judgement, "reference", Some(told), &[]);
    }

    /// Beyond a limit but not surely, or drifting: policy decides.
    pub(super) fn inconclusive(&self, judgement: &mut Judgement) {
        let drift = Some(self.told(Fault::Drifting)).filter(|told| !told.is_empty());
        let doubtful = &[BoundVerdict::Inconclusive];
        let told = drift.map(|told| format!("drifting: {told}"));
        // A quarantine that covers the cell expects this; policy is for what nobody expected.
        let policy = match &self.cell.quarantine {
            Some(_) if self.covered() => InconclusivePolicy::Warn,
            Some(_) | None => self.policy.inconclusive,
        };
        match policy {
            InconclusivePolicy::Warn | InconclusivePolicy::Fail => {
                self.settle(judgement, "inconclusive", told, doubtful);
            }
            InconclusivePolicy::Pass => {
                self.settle(judgement, "inconclusive", told, doubtful);
                let line = judgement.message.clone().unwrap_or_default();
                let words = format!("inconclusive, passed by policy: {line}");
                judgement.warnings.push(words.clone());
                judgement.message = Some(words);
                judgement.class = None;
                judgement.verdict = Verdict::Pass;
            }
            InconclusivePolicy::Point => self.by_point(judgement, told),
        }
    }

    /// The estimate decides, and every line that it decides says so.
    fn by_point(&self, judgement: &mut Judgement, told: Option<String>) {
        let mut broken = false;
        for (record, judged) in self.cell.bounds.iter().zip(&mut judgement.bounds) {
            let (Some(bound), Some(estimate), BoundVerdict::Inconclusive) =
                (&record.bound, judged.estimate, judged.verdict)
            else {
                continue;
            };
            if binds(record) {
                broken = true;
                let ratio =
                    record.relative.as_ref().map(|relative| self.compared(record, relative));
                let ratio = ratio.and_then(Result::ok);
                judged.message =
                    self.line(record, bound, &estimate, ratio.as_ref(), judged.verdict, true);
            }
        }
        let doubtful = &[BoundVerdict::Inconclusive];
        if broken {
            judgement.verdict = Verdict::Fail;
            self.settle(judgement, "limit", None, doubtful);
            let line = judgement.message.clone().unwrap_or_default();
            judgement.warnings.push(format!("inconclusive, failed by the point estimate: {line}"));
        } else {
            judgement.verdict = Verdict::Pass;
            self.tightest(judgement);
            let line = told.unwrap_or_default();
            judgement.warnings.push(format!("inconclusive, passed by the point estimate: {line}"));
        }
    }

    /// A pass is told by the bound with the least room.
    pub(super) fn tightest(&self, judgement: &mut Judgement) {
        let least = (0..self.cell.bounds.len())
            .filter(|index| binds(&self.cell.bounds[*index]))
            .min_by(|a, b| self.room(judgement, *a).total_cmp(&self.room(judgement, *b)));
        judgement.decided_by = least;
        judgement.message = least.map(|index| judgement.bounds[index].message.clone());
    }

    pub(super) fn nothing_expected(&self, judgement: &mut Judgement) {
        if let Some(record) = over(self.cell) {
            let words =
                format!("capacity grew: it fits, and was expected to be over ({})", record.place);
            judgement.warnings.push(words.clone());
            judgement.message = Some(words);
            judgement.decided_by = self.cell.bounds.iter().position(|b| b.bound.is_none());
            return;
        }
        if !self.cell.bounds.is_empty() {
            let words = "measured: warnings and reports alone are expected of it";
            judgement.message = Some(words.to_owned());
            return;
        }
        if self.rounds.is_some_and(|rounds| rounds.reference) {
            let words = "another variant is held against it";
            judgement.message = Some(words.to_owned());
            judgement.class = Some("reference".to_owned());
            return;
        }
        let words = "nothing is expected of this cell".to_owned();
        match self.policy.unjudged {
            // A warning of the run counts these cells; one for each would bury all others.
            UnjudgedPolicy::Allow | UnjudgedPolicy::Warn => {}
            UnjudgedPolicy::Error => {
                judgement.verdict = Verdict::Error;
                judgement.class = Some("unjudged".to_owned());
            }
        }
        judgement.message = Some(words);
    }
}

/// What a quarantine makes of a verdict; `covered`: the loss is not beyond what it covers.
pub(super) fn quarantine(cell: &PlannedCellRecord, judgement: &mut Judgement, covered: bool) {
    let Some(rule) = &cell.quarantine else { return };
    let before = judgement.verdict;
    judgement.verdict = lattice::quarantined(before, covered);
    let message = judgement.message.clone().unwrap_or_default();
    match judgement.verdict {
        Verdict::Xfail => {
            judgement.message = Some(format!("{}: {message}", wording::quarantine(rule)));
        }
        Verdict::Xpass => {
            let words = format!("passes although {}", wording::quarantine(rule));
            judgement.warnings.push(words.clone());
            judgement.message = Some(words);
        }
        Verdict::Fail | Verdict::Inconclusive => {
            if let Some(max) = rule.max_loss {
                let most = wording::number(max * 100.0);
                judgement.message = Some(format!(
                    "{message}; the quarantine covers losses up to {most} % only ({})",
                    rule.place
                ));
            }
        }
        Verdict::Pass | Verdict::Error | Verdict::Measured | Verdict::Skip => {}
    }
}
