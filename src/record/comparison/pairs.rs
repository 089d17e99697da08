//! Two variants that one run measured in pairs: which launches belong together, and the ratio that pairs make.
//!
//! The same statistics as in the run's own report: whatever both launches of a pair have in common is not in the
//! noise of the ratio.

use super::side::Side;
use crate::judge::paired::{Order, Pair, fit, log_ratios, order};
use crate::judge::ratio::Noise;
use crate::judge::{Estimate, Method, NoData};

/// The pairs that both sides are of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pairs {
    /// How many.
    pub count: usize,
    /// Whether A is the candidate.
    turned: bool,
}

impl Pairs {
    /// The pairs of two sides, where each is one of the variants that the same run compares.
    pub fn of(a: &Side<'_>, b: &Side<'_>) -> Option<Pairs> {
        let (of_a, of_b) = (a.record?, b.record?);
        let compare = of_b.header.compare.as_ref()?;
        let same = of_a.header.run_id == of_b.header.run_id
            && of_a.header.compare.as_ref() == Some(compare);
        let is = |side: &Side<'_>, variant: &String| {
            side.variants.len() == 1 && side.variants.contains(&Some(variant.clone()))
        };
        let straight = is(a, &compare.baseline) && is(b, &compare.candidate);
        let turned = is(a, &compare.candidate) && is(b, &compare.baseline);
        let count = compare.pairs as usize;
        (same && (straight || turned)).then_some(Pairs { count, turned })
    }

    /// Whether these are the values of all pairs.
    pub fn are(self, a: &[f64], b: &[f64]) -> bool {
        a.len() == self.count && b.len() == self.count
    }

    /// What each pair has: which was measured first, and the logarithm of B ÷ A.
    pub fn log_ratios(self, a: &[f64], b: &[f64]) -> Result<Vec<(Order, f64)>, NoData> {
        let first = |pair: u32| match (order(pair), self.turned) {
            (order, false) => order,
            (Order::BaselineFirst, true) => Order::CandidateFirst,
            (Order::CandidateFirst, true) => Order::BaselineFirst,
        };
        let pairs: Vec<Pair> = (0..)
            .zip(a.iter().zip(b))
            .map(|(at, (a, b))| Pair { order: first(at), baseline: *a, candidate: *b })
            .collect();
        log_ratios(&pairs)
    }

    /// B ÷ A with its interval, each bound one-sided at `alpha`.
    pub fn estimate(
        self,
        a: &[f64],
        b: &[f64],
        noise: Option<Noise>,
        alpha: f64,
    ) -> Result<Estimate, NoData> {
        fit(&self.log_ratios(a, b)?)?.log_mean(noise).estimate(alpha, Method::Paired)
    }
}
