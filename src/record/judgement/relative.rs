//! A figure against recorded runs: the ratio, its line, and a gain that makes them out of date.

use super::Sight;
use crate::judge::ratio::{against_runs, family_level};
use crate::judge::{Bound, BoundVerdict, Estimate, Method, limit};
use crate::measure::Metric;
use crate::record::run_record::{BoundRecord, Judgement, RelativeRecord};
use crate::record::wording;

impl Sight<'_> {
    /// The figure as a ratio to recorded runs, at the level that all comparisons of the plan share.
    pub(super) fn ratio(
        &self,
        metric: Metric,
        relative: &RelativeRecord,
    ) -> Result<Estimate, String> {
        if relative.runs.is_empty() {
            return Err("not judged: the baseline has none of it".to_owned());
        }
        let own = self.estimate(metric)?;
        let level = family_level(self.policy.alpha, relative.comparisons);
        against_runs(&relative.runs, &[own.value], None)
            .and_then(|ratio| ratio.estimate(level, Method::Baseline))
            .map_err(|why| why.to_string())
    }

    /// The one line on a judged bound.
    pub(super) fn line(
        &self,
        record: &BoundRecord,
        bound: &Bound,
        estimate: &Estimate,
        verdict: BoundVerdict,
        by_point: bool,
    ) -> String {
        match (&record.relative, self.estimate(record.metric)) {
            (Some(relative), Ok(own)) => {
                let value = own.value;
                wording::ratio(record, relative, value, bound, estimate, verdict, by_point)
            }
            (Some(_), Err(_)) | (None, _) => {
                wording::bound(record, bound, estimate, verdict, by_point)
            }
        }
    }

    /// The figure behind an estimate of a bound, and by how much the estimate moves as it does: a ratio
    /// moves with its figure.
    pub(super) fn figure(&self, record: &BoundRecord, estimate: &Estimate) -> (f64, f64) {
        match (&record.relative, self.estimate(record.metric)) {
            (None, _) => (estimate.value, 1.0),
            (Some(_), Ok(own)) if own.value != 0.0 => (own.value, estimate.value / own.value),
            (Some(_), _) => (0.0, 1.0),
        }
    }

    /// A gain as large as the loss that would fail means that the recorded runs are out of date.
    pub(super) fn warn_of_gains(&self, judgement: &mut Judgement) {
        for (record, judged) in self.cell.bounds.iter().zip(&judgement.bounds) {
            if let (Some(bound), Some(_), Some(estimate)) =
                (&record.bound, &record.relative, &judged.estimate)
                && limit::gained(estimate, bound)
            {
                let words = format!(
                    "better than its baseline: {}; `tokgate baseline promote` keeps the gain",
                    judged.message
                );
                judgement.warnings.push(words);
            }
        }
    }
}
