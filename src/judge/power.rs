//! Power: how surely a comparison sees a loss, the smallest loss that it can see, and what it takes
//! to see a given one.
//!
//! Of the rule in `limit`: a loss fails where the estimate is beyond the limit *and* the interval
//! wholly on the bad side of the target. Losses are fractions: 0.05 makes a ratio of 0.95, for
//! metrics that are better when lower one of 1/0.95.

use std::collections::HashMap;

use super::spread::{around, critical, expectation, falling_root, normal_tail};

/// The probability with which a loss that is called visible is seen.
pub const SURELY: f64 = 0.95;

/// A planned comparison on the logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// Variance of the estimated log ratio, in units of that of one observation.
    pub factor: f64,
    /// Degrees of freedom of the estimated spread; infinite where it is known.
    pub df: f64,
}

impl Design {
    /// Pairs in whole blocks, judged by their own spread: an observation is a pair's log ratio.
    /// `None` for fewer than four, whose noise can't be told from their order's effect.
    pub fn pairs(n: u64) -> Option<Design> {
        (n >= 4).then(|| Design { factor: 1.0 / n as f64, df: n as f64 - 2.0 })
    }

    /// `launches` against `recorded` runs: an observation is the logarithm of one launch's value.
    /// `None` where the spread of neither can be seen.
    pub fn runs(recorded: u64, launches: u64) -> Option<Design> {
        (recorded >= 2 && launches >= 1).then(|| Design {
            factor: 1.0 / recorded as f64 + 1.0 / launches as f64,
            df: (recorded + launches) as f64 - 2.0,
        })
    }

    /// The same with a spread that a calibration with `df` degrees of freedom told.
    pub fn calibrated(self, df: f64) -> Design {
        Design { df, ..self }
    }
}

/// What a comparison must decide: its level and its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// The one-sided level of the comparison; of a family, of one member.
    pub alpha: f64,
    /// The loss that the limit tolerates, as a positive logarithm: −ln of `min-ratio`, ln of
    /// `max-ratio`.
    pub limit: f64,
}

/// The probability that a loss of `gap` (a positive logarithm) fails, where one observation has the
/// standard deviation `sd`.
///
/// With the estimate W normal about −gap and S the estimated spread in units of the true one, it
/// fails where W < −max(limit, t × S × error). Given S that is a normal probability; S has the chi
/// distribution. Without a limit it is the tail of the noncentral t distribution.
pub fn power(design: Design, question: Question, sd: f64, gap: f64) -> f64 {
    power_beyond(critical(question.alpha, design.df), design, question, sd, gap)
}

/// [`power`] given the critical value, which a search for a loss needs once only.
fn power_beyond(t: f64, design: Design, question: Question, sd: f64, gap: f64) -> f64 {
    let error = sd * design.factor.sqrt();
    if error <= 0.0 {
        return f64::from(gap > question.limit.max(0.0));
    }
    let (gap, limit) = (gap / error, question.limit.max(0.0) / error);
    let seen = |s: f64| normal_tail(limit.max(t * s) - gap);
    let [begins, ends] = around(t, gap);
    let mut breaks = [limit / t, begins, ends];
    breaks.sort_by(f64::total_cmp);
    expectation(design.df, &breaks, seen)
}

/// The smallest loss, as a fraction, that fails with probability `surely`.
pub fn smallest_loss(design: Design, question: Question, sd: f64, surely: f64) -> f64 {
    let t = critical(question.alpha, design.df);
    1.0 - (-smallest_gap(t, design, question, sd, surely)).exp()
}

/// The same as a positive logarithm, given the critical value.
fn smallest_gap(t: f64, design: Design, question: Question, sd: f64, surely: f64) -> f64 {
    let unseen = |gap: f64| surely - power_beyond(t, design, question, sd, gap);
    let mut high = question.limit.max(0.0) + 10.0 * sd * design.factor.sqrt() + 1e-9;
    while unseen(high) > 0.0 && high < 1e6 {
        high *= 2.0;
    }
    falling_root(0.0, high, unseen)
}

/// Smallest losses of many comparisons that differ in little but their noise: a search for one takes a hundred
/// thousand operations, and in units of its error it follows from its limit alone.
#[derive(Debug, Default)]
pub struct Losses(HashMap<[u64; 3], Curve>);

/// How far beyond its limit a loss has to lie, both in units of the error, by the limit: at multiples of [`STEP`],
/// as they are asked for. Between them it is smooth.
#[derive(Debug)]
struct Curve {
    t: f64,
    nodes: HashMap<u64, f64>,
}

const STEP: f64 = 1.0 / 8.0;
/// No spread looks so many times as large as it is.
const WIDEST: f64 = 9.0;

impl Losses {
    /// [`smallest_loss`], to three digits.
    pub fn smallest(&mut self, design: Design, question: Question, sd: f64, surely: f64) -> f64 {
        let error = sd * design.factor.sqrt();
        if design.df.is_nan() || error <= 0.0 || !error.is_finite() {
            return smallest_loss(design, question, sd, surely);
        }
        let key = [design.df, question.alpha, surely].map(f64::to_bits);
        let curve = self.0.entry(key).or_insert_with(|| {
            let t = critical(question.alpha, design.df);
            Curve { t, nodes: HashMap::new() }
        });
        let limit = question.limit.max(0.0) / error;
        // Where the limit decides whatever the spread looks like, it takes the same beyond any limit.
        let limited = limit.min(WIDEST * curve.t.max(1.0));
        let mut at = |node: u64| {
            *curve.nodes.entry(node).or_insert_with(|| {
                let limit = node as f64 * STEP;
                let unit = Design { factor: 1.0, ..design };
                let asked = Question { limit, ..question };
                smallest_gap(curve.t, unit, asked, 1.0, surely) - limit
            })
        };
        // Lagrange's cubic through the four nodes around.
        let first = ((limited / STEP) as u64).saturating_sub(1);
        let x = limited / STEP - first as f64;
        let beyond: f64 = (0..4)
            .map(|i| {
                let others = (0..4).filter(|j| *j != i).map(f64::from);
                let own = f64::from(i);
                at(first + i as u64) * others.map(|j| (x - j) / (own - j)).product::<f64>()
            })
            .sum();
        1.0 - (-(limit + beyond) * error).exp()
    }
}

/// The fewest pairs, even, that see a loss (a fraction) with probability `surely`, where one pair's
/// log ratio has the standard deviation `sd`; `None` where not even `most` do, or where the limit
/// tolerates the loss.
///
/// `known`: degrees of freedom of a calibrated spread; else the pairs' own is used.
pub fn pairs_needed(
    question: Question,
    sd: f64,
    loss: f64,
    surely: f64,
    known: Option<f64>,
    most: u64,
) -> Option<u64> {
    let gap = -(-loss).ln_1p();
    if gap <= question.limit {
        return None;
    }
    let sees = |n: u64| {
        Design::pairs(n).is_some_and(|own| {
            let design = known.map_or(own, |df| own.calibrated(df));
            power(design, question, sd, gap) >= surely
        })
    };
    fewest(4, 2, most, sees)
}

/// The fewest of `first`, `first` + `step` … that is enough, where more is always enough too; `None`
/// where not even `most` is.
pub fn fewest(
    first: u64,
    step: u64,
    most: u64,
    mut enough: impl FnMut(u64) -> bool,
) -> Option<u64> {
    // Counted in steps: double until it is enough, then halve the gap.
    let at = |steps: u64| first + steps * step;
    let last = most.checked_sub(first)? / step;
    if enough(first) {
        return Some(first);
    }
    let (mut low, mut high) = (0, 1.min(last));
    while !enough(at(high)) {
        if high == last {
            return None;
        }
        (low, high) = (high, (high * 2).min(last));
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if enough(at(middle)) { high = middle } else { low = middle }
    }
    Some(at(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_losses_are_found_as_each_by_itself() {
        let mut losses = Losses::default();
        for df in [1.0, 2.0, 4.0, 14.0, f64::INFINITY] {
            for alpha in [0.05, 0.05 / 72.0] {
                for limit in [0.0, 0.01, 0.03, 0.2] {
                    for sd in [0.0, 1e-6, 3e-4, 0.004, 0.011, 0.07, 0.4] {
                        let design = Design { factor: 0.4, df };
                        let question = Question { alpha, limit };
                        let one = smallest_loss(design, question, sd, SURELY);
                        let of_many = losses.smallest(design, question, sd, SURELY);
                        let close = (one - of_many).abs() <= 3e-4 * one.max(1e-3);
                        assert!(close, "{df} {alpha} {limit} {sd}: {one} {of_many}");
                    }
                }
            }
        }
    }
    use crate::judge::golden::{cases, close, number};
    use crate::judge::spread::noncentral_t_tail;

    const NO_LIMIT: Question = Question { alpha: 0.05, limit: 0.0 };

    #[test]
    fn without_room_it_is_the_tail_of_forty_digits() {
        for case in cases("power") {
            let design = Design { factor: 1.0 / number(&case, "pairs"), df: number(&case, "df") };
            let question = Question { alpha: number(&case, "alpha_one_sided"), limit: 0.0 };
            let got = power(design, question, number(&case, "sd_log"), number(&case, "gap_log"));
            close(got, number(&case, "power"), 1e-8);
        }
    }

    #[test]
    fn pairs_needed_match_exactly() {
        for case in cases("pairs_needed") {
            let question = Question { alpha: number(&case, "alpha_one_sided"), limit: 0.0 };
            let loss = 1.0 - number(&case, "min_ratio") / number(&case, "true_ratio");
            let (sd, surely) = (number(&case, "sd_log"), number(&case, "power"));
            let got = pairs_needed(question, sd, loss, surely, None, 1000);
            assert_eq!(got, case["pairs_order_term_even"].as_u64(), "{case}");
            // The column without an order term has the same formula with n − 1.
            let plain = (2u32..100).find(|n| {
                let design = Design { factor: 1.0 / f64::from(*n), df: f64::from(*n) - 1.0 };
                power(design, question, sd, -(-loss).ln_1p()) >= surely
            });
            assert_eq!(plain.map(u64::from), case["pairs_no_order_term"].as_u64(), "{case}");
        }
    }

    /// By adaptive quadrature over the chi density in scipy 1.17.
    #[test]
    fn with_a_limit_it_agrees_with_another_quadrature() {
        for (n, alpha, limit, sd, gap, want) in [
            (8, 0.05, 0.03, 0.0141, 0.045, 0.998_689_303_549_516_3),
            (4, 0.05 / 36.0, 0.0305, 0.0141, 0.3, 0.993_433_167_666_542_8),
            (6, 0.01, 0.02, 0.01, 0.02, 0.465_978_774_258_797_86),
            (10, 0.05 / 36.0, 0.03, 0.0141, 0.0513, 0.999_998_264_798_302_7),
        ] {
            let got = power(Design::pairs(n).unwrap(), Question { alpha, limit }, sd, gap);
            close(got, want, 1e-8);
        }
    }

    /// The table of losses that are seen four times out of five, to its two digits.
    #[test]
    fn smallest_losses_of_noise_of_one_percent_are_known() {
        for (n, percent) in [(4, 1.99), (6, 1.24), (8, 1.00), (12, 0.77)] {
            let loss = smallest_loss(Design::pairs(n).unwrap(), NO_LIMIT, 0.01, 0.8);
            assert!((-(-loss).ln_1p() * 100.0 - percent).abs() < 0.006, "{n}: {loss}");
        }
    }

    #[test]
    fn a_limit_costs_power_only_near_it() {
        let design = Design::pairs(8).unwrap();
        let limited = Question { limit: 0.03, ..NO_LIMIT };
        let at = |question, gap| power(design, question, 0.01, gap);
        // At the limit half of the estimates are within it.
        close(at(limited, 0.03), 0.5, 1e-3);
        assert!(at(limited, 0.0) < 1e-6 && at(limited, 0.05) > 0.999);
        assert!(at(limited, 0.045) < at(NO_LIMIT, 0.045));
        // With noise that hides the limit, the limit costs nothing.
        let blind = |limit| power(design, Question { alpha: 0.05, limit }, 0.2, 0.3);
        close(blind(0.001), blind(0.0), 1e-3);
        // With nothing changed it fails as often as alpha says.
        close(at(NO_LIMIT, 0.0), 0.05, 1e-9);
    }

    #[test]
    fn the_fewest_is_found_whatever_the_steps() {
        for wanted in 1..40u64 {
            for (first, step) in [(1, 1), (4, 2), (2, 3)] {
                let want = (0..).map(|steps| first + steps * step).find(|n| *n >= wanted).unwrap();
                let found = fewest(first, step, 30, |n| n >= wanted);
                assert_eq!(found, Some(want).filter(|n| *n <= 30), "{wanted} {first} {step}");
            }
        }
        assert_eq!(fewest(4, 2, 3, |_| true), None);
    }

    #[test]
    fn a_known_spread_leaves_the_normal_distribution() {
        let design = Design::pairs(4).unwrap().calibrated(f64::INFINITY);
        let want = noncentral_t_tail(critical(0.05, f64::INFINITY), f64::INFINITY, 3.0);
        close(power(design, NO_LIMIT, 0.02, 0.03), want, 1e-12);
        assert_eq!(power(design, NO_LIMIT, 0.0, 0.001), 1.0);
    }

    #[test]
    fn smallest_losses_are_seen_just_so_surely() {
        for n in [4, 6, 8, 12] {
            let design = Design::pairs(n).unwrap();
            for limit in [0.0, 0.01, 0.03] {
                let question = Question { alpha: 0.05 / 36.0, limit };
                let loss = smallest_loss(design, question, 0.01, SURELY);
                close(power(design, question, 0.01, -(-loss).ln_1p()), SURELY, 1e-6);
            }
        }
        // Pairs that `pairs_needed` names see the loss, and two fewer do not.
        let question = Question { alpha: 0.05 / 36.0, limit: 0.03 };
        let n = pairs_needed(question, 0.0141, 0.06, SURELY, None, 1000).unwrap();
        let seen = |n| power(Design::pairs(n).unwrap(), question, 0.0141, -0.94f64.ln());
        assert!(seen(n) >= SURELY && seen(n - 2) < SURELY, "{n}");
        assert_eq!(pairs_needed(question, 0.0141, 0.02, SURELY, None, 1000), None);
        assert_eq!(pairs_needed(question, 0.5, 0.04, SURELY, None, 8), None);
    }
}
