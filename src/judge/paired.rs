//! Pairs: candidate and baseline measured one beside the other, in whole ABBA blocks.
//!
//! A pair is two adjacent fresh launches. Whatever drifts makes the second launch of a pair differ
//! from the first, so the order alternates in blocks (AB BA, or BA AB) and its effect is taken out by
//! least squares. What a limit makes of the ratio is decided in `limit`.

use super::NoData;
use super::ratio::{LogMean, Noise, logarithms, moments};

/// Which of a pair was measured first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The baseline, then the candidate.
    BaselineFirst,
    /// The candidate, then the baseline.
    CandidateFirst,
}

/// The order of the pair with that index, from 0: pairs 0 and 1 are the block BA AB, where A is the
/// baseline, 2 and 3 the next. So the candidate comes last, and its verdict is known with its last launch.
pub fn order(pair: u32) -> Order {
    if pair.is_multiple_of(2) { Order::CandidateFirst } else { Order::BaselineFirst }
}

/// One pair of values of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Which was first.
    pub order: Order,
    /// The baseline's value.
    pub baseline: f64,
    /// The candidate's value.
    pub candidate: f64,
}

/// What least squares make of log ratios d = μ + γ × order, with order +1 where the baseline was
/// first and −1 where the candidate was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// μ: the mean log ratio without the order's effect.
    pub mean: f64,
    /// γ: half of what the order makes of it.
    pub order_effect: f64,
    /// Variance of a log ratio about the fit, with `df` degrees of freedom.
    pub variance: f64,
    /// Pairs less two.
    pub df: f64,
    /// Variance of μ in units of `variance`: 1/n of a balanced design.
    pub factor: f64,
    /// Pairs.
    pub n: u64,
}

/// The log ratios of pairs.
///
/// # Errors
/// A value of which no ratio can be made.
pub fn log_ratios(pairs: &[Pair]) -> Result<Vec<(Order, f64)>, NoData> {
    let of = |value: fn(&Pair) -> f64, whose| {
        logarithms(&pairs.iter().map(value).collect::<Vec<_>>(), whose)
    };
    let baseline = of(|pair| pair.baseline, "the baseline")?;
    let candidate = of(|pair| pair.candidate, "the candidate")?;
    let logs = candidate.iter().zip(&baseline).map(|(candidate, baseline)| candidate - baseline);
    Ok(pairs.iter().map(|pair| pair.order).zip(logs).collect())
}

/// Fits the order's effect and the mean log ratio.
///
/// The mean is that of the two orders' means, whatever their numbers, and its variance a quarter of
/// 1/n_AB + 1/n_BA, which is what least squares give.
///
/// # Errors
/// Fewer than three pairs, or all of one order: the effect of the order, the ratio and the noise
/// can't be told apart.
pub fn fit(ratios: &[(Order, f64)]) -> Result<Fit, NoData> {
    let of = |wanted| -> Vec<f64> {
        ratios.iter().filter(|(order, _)| *order == wanted).map(|(_, ratio)| *ratio).collect()
    };
    let (first, second) = (of(Order::BaselineFirst), of(Order::CandidateFirst));
    if ratios.len() < 3 || first.is_empty() || second.is_empty() {
        let n = ratios.len();
        let pairs = if n == 1 { "1 pair".to_owned() } else { format!("{n} pairs") };
        return Err(NoData(format!("{pairs}, and it takes 4 in both orders to see their noise")));
    }
    let ((ab, ab_squares), (ba, ba_squares)) = (moments(&first), moments(&second));
    let df = (ratios.len() - 2) as f64;
    Ok(Fit {
        mean: (ab + ba) / 2.0,
        order_effect: (ab - ba) / 2.0,
        variance: (ab_squares + ba_squares) / df,
        df,
        factor: (1.0 / first.len() as f64 + 1.0 / second.len() as f64) / 4.0,
        n: ratios.len() as u64,
    })
}

impl Fit {
    /// The mean log ratio with its error: by the pairs' own spread, or by `noise`, of which each side
    /// of a pair has its share.
    pub fn log_mean(&self, noise: Option<Noise>) -> LogMean {
        let (variance, df) = match noise {
            Some(noise) => (2.0 * noise.sd * noise.sd, noise.df),
            None => (self.variance, self.df),
        };
        LogMean { mean: self.mean, error: (variance * self.factor).sqrt(), df, n: self.n }
    }
}

/// The whole suite's log ratios: in each pair the mean over the cells, each with the same weight.
///
/// Cells of one launch share its luck, so they are no witnesses of their own: the pairs are, and
/// [`fit`] judges their means. `cells` has the log ratios of each cell in order of the pairs, turned
/// so that less is worse.
///
/// # Errors
/// No cell, or cells that lack pairs: a mean over other cells in every pair compares nothing.
pub fn over_cells(cells: &[Vec<(Order, f64)>]) -> Result<Vec<(Order, f64)>, NoData> {
    let Some(first) = cells.first() else {
        return Err(NoData("no cell has pairs".to_owned()));
    };
    let orders = |cell: &[(Order, f64)]| cell.iter().map(|(order, _)| *order).collect::<Vec<_>>();
    if cells.iter().any(|cell| orders(cell) != orders(first)) {
        return Err(NoData("not every cell has every pair".to_owned()));
    }
    let mean =
        |pair: usize| cells.iter().map(|cell| cell[pair].1).sum::<f64>() / cells.len() as f64;
    Ok(first.iter().enumerate().map(|(pair, (order, _))| (*order, mean(pair))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::golden::{cases, close, number};
    use crate::judge::spread::critical;
    use crate::judge::{Bound, BoundVerdict, Method, Side, limit};
    use proptest::prelude::*;

    fn pairs(case: &serde_json::Value) -> Vec<Pair> {
        let read = |pair: &serde_json::Value| Pair {
            order: if pair["order"] == "AB" { Order::BaselineFirst } else { Order::CandidateFirst },
            baseline: number(pair, "baseline"),
            candidate: number(pair, "candidate"),
        };
        case["pairs"].as_array().unwrap().iter().map(read).collect()
    }

    #[test]
    fn ratios_of_pairs_are_those_of_forty_digits() {
        let mut held = 0;
        for case in cases("group_sequential") {
            let all = pairs(&case);
            let alpha = number(&case, "level_per_look");
            let least = number(&case, "min_ratio");
            let last = case["results"].as_array().unwrap().len() - 1;
            for (look, want) in case["results"].as_array().unwrap().iter().enumerate() {
                if want["order_effect"].is_null() {
                    continue;
                }
                let seen = &all[..want["pairs"].as_u64().unwrap() as usize];
                let fit = fit(&log_ratios(seen).unwrap()).unwrap();
                let mean = fit.log_mean(None);
                for (got, key) in [
                    (fit.mean, "mean_log_ratio"),
                    (fit.order_effect, "order_effect"),
                    (fit.variance, "s_squared"),
                    (mean.error, "se"),
                    (critical(alpha, fit.df), "t_critical"),
                ] {
                    close(got, number(want, key), 1e-8);
                }
                assert_eq!(fit.df, number(want, "df"));
                let found = mean.estimate(alpha, Method::Paired).unwrap();
                close(found.value, number(want, "ratio"), 1e-8);
                close(found.lower.unwrap(), number(want, "lower_ratio"), 1e-8);
                close(found.upper.unwrap(), number(want, "upper_ratio"), 1e-8);
                // Judged against the limit alone, as the golden decisions are.
                let bound = Bound { side: Side::Min, target: least, limit: least };
                let decision = match limit::judge(&found, &bound) {
                    BoundVerdict::Clear => "pass",
                    BoundVerdict::Fail => "fail",
                    BoundVerdict::Close | BoundVerdict::Inconclusive => "inconclusive",
                    BoundVerdict::NoData => "no data",
                };
                let want =
                    if look == last { case["decision"].as_str().unwrap() } else { "inconclusive" };
                assert_eq!(decision, want, "{case}");
                held += 1;
            }
        }
        assert!(held > 20, "{held}");
    }

    #[test]
    fn a_calibrated_noise_replaces_the_pairs_own() {
        let ratios: Vec<_> = (0..4).map(|pair| (order(pair), f64::from(pair))).collect();
        let fit = fit(&ratios).unwrap();
        let mean = fit.log_mean(Some(Noise { sd: 0.01, df: 9.0 }));
        close(mean.error, (2.0f64 * 0.01 * 0.01 / 4.0).sqrt(), 1e-12);
        assert_eq!(mean.df, 9.0);
    }

    #[test]
    fn the_suite_is_the_mean_of_its_cells_in_each_pair() {
        let cell = |logs: [f64; 2]| vec![(order(0), logs[0]), (order(1), logs[1])];
        let mean = over_cells(&[cell([0.1, 0.3]), cell([0.3, 0.5])]).unwrap();
        close(mean[0].1, 0.2, 1e-12);
        close(mean[1].1, 0.4, 1e-12);
        assert_eq!((mean[0].0, mean[1].0), (Order::CandidateFirst, Order::BaselineFirst));
        assert!(over_cells(&[cell([0.1, 0.3]), vec![(order(0), 0.1)]]).is_err());
        assert!(over_cells(&[]).is_err());
    }

    #[test]
    fn too_few_pairs_say_so() {
        let ratios: Vec<_> = (0..2).map(|pair| (order(pair), 0.0)).collect();
        assert!(fit(&ratios).unwrap_err().0.contains("2 pairs"));
        let same: Vec<_> = (0..4).map(|_| (Order::BaselineFirst, 0.0)).collect();
        assert!(fit(&same).is_err());
        let nothing = Pair { order: order(0), baseline: 0.0, candidate: 1.0 };
        assert!(log_ratios(&[nothing]).unwrap_err().0.contains("the baseline"));
    }

    proptest! {
        /// Least squares in the plain: the normal equations of d = μ + γ × order.
        #[test]
        fn it_is_least_squares(
            ratios in proptest::collection::vec((any::<bool>(), -1.0f64..1.0), 3..12)
        ) {
            let ratios: Vec<_> = ratios
                .into_iter()
                .map(|(first, d)| {
                    (if first { Order::BaselineFirst } else { Order::CandidateFirst }, d)
                })
                .collect();
            let Ok(found) = fit(&ratios) else { return Ok(()) };
            let sign = |order| if order == Order::BaselineFirst { 1.0 } else { -1.0 };
            let n = ratios.len() as f64;
            let x: f64 = ratios.iter().map(|(order, _)| sign(*order)).sum();
            let y: f64 = ratios.iter().map(|(_, d)| d).sum();
            let xy: f64 = ratios.iter().map(|(order, d)| sign(*order) * d).sum();
            let determinant = n * n - x * x;
            let mean = (n * y - x * xy) / determinant;
            let effect = (n * xy - x * y) / determinant;
            let squares: f64 =
                ratios.iter().map(|(order, d)| (d - mean - effect * sign(*order)).powi(2)).sum();
            prop_assert!((found.mean - mean).abs() < 1e-9);
            prop_assert!((found.order_effect - effect).abs() < 1e-9);
            prop_assert!((found.variance - squares / (n - 2.0)).abs() < 1e-9);
            prop_assert!((found.factor - n / determinant).abs() < 1e-9);
        }
    }
}
