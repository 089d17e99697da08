//! Ratios: how a candidate compares with what it is held against, on a logarithmic scale.
//!
//! A ratio of 1 is no change, and a bound on it is a [`Bound`](super::Bound) whose target is 1 and
//! whose limit is the tolerated ratio: `limit` judges it like any other. Here is what one run or some
//! launches say against recorded runs; pairs are in `paired`.

use super::spread::critical;
use super::{Estimate, Method, NoData};

/// What is known beforehand of how much one launch differs from the next: out of a calibration, or
/// stated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Standard deviation of the logarithm of a cell's value over fresh launches, each measured over
    /// the same window as the value that is judged by it. The noise within a launch is in it.
    pub sd: f64,
    /// Its degrees of freedom: launches of the calibration less one, or infinite where it is stated.
    pub df: f64,
}

impl Noise {
    /// The noise of either side of a ratio whose sides have each their own: the mean of both variances,
    /// so that the ratio's error has each once, with Satterthwaite's degrees of freedom of their sum.
    #[must_use]
    pub fn with(self, other: Noise) -> Noise {
        let (one, two) = (self.sd * self.sd, other.sd * other.sd);
        let df = (one + two).powi(2) / (one * one / self.df + two * two / other.df);
        Noise { sd: ((one + two) / 2.0).sqrt(), df }
    }
}

/// A mean of logarithms with what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogMean {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of that error.
    pub df: f64,
    /// Observations behind it.
    pub n: u64,
}

impl LogMean {
    /// The ratio with its bounds, each one-sided at `alpha`.
    ///
    /// # Errors
    /// It is no number.
    pub fn estimate(&self, alpha: f64, method: Method) -> Result<Estimate, NoData> {
        let half = critical(alpha, self.df) * self.error;
        // What is beyond all numbers is no bound, and a record could not keep it.
        let bound = |log: f64| Some(log.exp()).filter(|bound| bound.is_finite());
        let found = Estimate {
            value: self.mean.exp(),
            lower: bound(self.mean - half),
            upper: bound(self.mean + half),
            n: self.n,
            method,
        };
        if found.value.is_finite() && half.is_finite() {
            Ok(found)
        } else {
            Err(NoData("the ratio is no number".to_owned()))
        }
    }
}

/// Logarithms of values of which a ratio can be made.
///
/// # Errors
/// A value is not above zero: against a baseline of 0 only an absolute bound means anything.
pub fn logarithms(values: &[f64], whose: &str) -> Result<Vec<f64>, NoData> {
    match values.iter().find(|value| !(value.is_finite() && **value > 0.0)) {
        None => Ok(values.iter().map(|value| value.ln()).collect()),
        Some(value) => {
            Err(NoData(format!("{whose} has a value of {value}, of which no ratio can be made")))
        }
    }
}

/// Mean and sum of squares about it.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum())
}

/// The candidate's launches against the runs of a baseline, in logarithms.
///
/// Every value is one fresh launch, so the ratio's error has the noise of both sides in it:
/// sd × √(1/m + 1/k) of m recorded runs and k launches. The standard deviation is taken to be the same
/// on both sides ("nothing changed" includes the noise), and is theirs together, with m + k − 2
/// degrees of freedom, or that of `noise`. Of one launch alone (k = 1) the recorded runs tell it, which
/// makes the interval that of a prediction.
///
/// # Errors
/// Fewer than two recorded runs (with `noise` none), no launch, or a value of which there is no ratio.
pub fn against_runs(
    baseline: &[f64],
    launches: &[f64],
    noise: Option<Noise>,
) -> Result<LogMean, NoData> {
    if baseline.is_empty() || (baseline.len() < 2 && noise.is_none()) {
        return Err(NoData(format!(
            "the baseline has {} run{}, and its noise shows in two or more only",
            baseline.len(),
            if baseline.len() == 1 { "" } else { "s" }
        )));
    }
    if launches.is_empty() {
        return Err(NoData("no launch gave a value".to_owned()));
    }
    let baseline = logarithms(baseline, "the baseline")?;
    let launches = logarithms(launches, "this run")?;
    let (recorded, now) = (moments(&baseline), moments(&launches));
    let freedom = (baseline.len() + launches.len() - 2) as f64;
    let (sd, df) = match noise {
        Some(noise) => (noise.sd, noise.df),
        None => (((recorded.1 + now.1) / freedom).sqrt(), freedom),
    };
    let factor = 1.0 / baseline.len() as f64 + 1.0 / launches.len() as f64;
    Ok(LogMean {
        mean: now.0 - recorded.0,
        error: sd * factor.sqrt(),
        df,
        n: launches.len() as u64,
    })
}

/// The value of some launches, each a fresh start, as an estimate of what the next launches will
/// have on average.
///
/// With `noise` one launch is enough, and its logarithm has the calibration's interval; else the
/// spread of two launches or more makes it, by Student's t.
///
/// # Errors
/// No launch, or without `noise` a single one.
pub fn of_launches(launches: &[f64], noise: Option<Noise>, alpha: f64) -> Result<Estimate, NoData> {
    let n = launches.len();
    if n == 0 {
        return Err(NoData("no launch gave a value".to_owned()));
    }
    if let Some(noise) = noise {
        let (mean, _) = moments(&logarithms(launches, "this run")?);
        let error = noise.sd / (n as f64).sqrt();
        return LogMean { mean, error, df: noise.df, n: n as u64 }
            .estimate(alpha, Method::Launches);
    }
    if n == 1 {
        return Err(NoData("one launch does not show how launches differ".to_owned()));
    }
    let (mean, squares) = moments(launches);
    let error = (squares / (n - 1) as f64 / n as f64).sqrt();
    let half = critical(alpha, (n - 1) as f64) * error;
    if !(mean.is_finite() && half.is_finite()) {
        return Err(NoData("what was observed is no number".to_owned()));
    }
    let (lower, upper) = (Some(mean - half), Some(mean + half));
    Ok(Estimate { value: mean, lower, upper, n: n as u64, method: Method::Launches })
}

/// The level of each of some comparisons, so that `alpha` holds over all of them together, whatever
/// they have in common (Bonferroni).
///
/// `planned` counts every relative comparison of the plan, of all shards, whether or not it ran: a
/// shard, a resumed run and the merged whole then judge alike.
pub fn family_level(alpha: f64, planned: u64) -> f64 {
    alpha / planned.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::golden::{cases, close, number, numbers};

    #[test]
    fn a_bound_beyond_all_numbers_is_none() {
        use crate::judge::{Bound, BoundVerdict, Side, limit};
        // Two runs tell little, and of ten thousand comparisons each has little of the level.
        let level = family_level(0.05, 10_000);
        let judged = |launch: f64, side| {
            let ratio = against_runs(&[100.0, 104.0], &[launch], None).unwrap();
            let found = ratio.estimate(level, Method::Baseline).unwrap();
            assert_eq!(found.upper, None);
            let text = serde_json::to_string(&found).unwrap();
            assert_eq!(serde_json::from_str::<crate::judge::Estimate>(&text).unwrap(), found);
            let limit = if side == Side::Min { 0.97 } else { 1.03 };
            limit::judge(&found, &Bound { side, target: 1.0, limit })
        };
        assert_eq!(judged(50.0, Side::Min), BoundVerdict::Inconclusive);
        assert_eq!(judged(200.0, Side::Max), BoundVerdict::Inconclusive);
        assert_eq!(judged(102.0, Side::Min), BoundVerdict::Close);
        assert_eq!(judged(102.0, Side::Max), BoundVerdict::Close);
    }

    #[test]
    fn one_run_against_several_is_a_prediction() {
        for case in cases("floors_from_runs") {
            // The golden interval is of the values themselves, so their exponentials have it in
            // logarithms.
            let runs: Vec<f64> =
                numbers(&case, "runs").iter().map(|run| (run / 1e3).exp()).collect();
            let mean = number(&case, "mean") / 1e3;
            let found = against_runs(&runs, &[mean.exp()], None).unwrap();
            assert_eq!((found.df, found.n), (runs.len() as f64 - 1.0, 1));
            close(found.mean + 1.0, 1.0, 1e-8);
            let half =
                critical(number(&case, "prediction_alpha_one_sided"), found.df) * found.error;
            close((mean - half) * 1e3, number(&case, "prediction_lower"), 1e-8);
            close((mean + half) * 1e3, number(&case, "prediction_upper"), 1e-8);
        }
    }

    #[test]
    fn two_samples_by_hand() {
        // Logarithms 0, 2 (mean 1, squares 2) and 4, 5, 9 (mean 6, squares 14): s² = 16/3.
        let of = |logs: &[f64]| logs.iter().map(|log| log.exp()).collect::<Vec<_>>();
        let found = against_runs(&of(&[0.0, 2.0]), &of(&[4.0, 5.0, 9.0]), None).unwrap();
        close(found.mean, 5.0, 1e-12);
        close(found.error, (16.0f64 / 3.0 * (1.0 / 2.0 + 1.0 / 3.0)).sqrt(), 1e-12);
        assert_eq!((found.df, found.n), (3.0, 3));
        let known = Noise { sd: 0.5, df: 7.0 };
        let found = against_runs(&of(&[0.0, 2.0]), &of(&[4.0]), Some(known)).unwrap();
        close(found.error, 0.5 * 1.5f64.sqrt(), 1e-12);
        assert_eq!(found.df, 7.0);
        let shown = found.estimate(0.05, Method::Baseline).unwrap();
        close(shown.value, 3f64.exp(), 1e-12);
        close(shown.lower.unwrap() * shown.upper.unwrap(), 6f64.exp(), 1e-12);
    }

    #[test]
    fn what_has_no_noise_or_no_ratio_is_no_data() {
        assert!(against_runs(&[7.0], &[7.0], None).unwrap_err().0.contains("has 1 run,"));
        assert!(against_runs(&[7.0, 8.0], &[], None).is_err());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(against_runs(&[7.0, wrong], &[7.0], None).is_err());
            assert!(against_runs(&[7.0, 7.1], &[wrong], None).is_err());
        }
        assert!(of_launches(&[7.0], None, 0.05).is_err());
        assert!(of_launches(&[], None, 0.05).is_err());
    }

    #[test]
    fn launches_spread_their_interval() {
        let found = of_launches(&[90.0, 100.0, 110.0], None, 0.05).unwrap();
        assert_eq!((found.value, found.n, found.method), (100.0, 3, Method::Launches));
        close(found.lower.unwrap(), 100.0 - 2.919_985_580_353_725_6 * 10.0 / 3f64.sqrt(), 1e-9);
        let noise = Noise { sd: 0.01, df: 4.0 };
        let found = of_launches(&[100.0], Some(noise), 0.05).unwrap();
        close(found.upper.unwrap(), 100.0 * (0.01 * 2.131_846_786_326_650_4f64).exp(), 1e-9);
    }

    #[test]
    fn two_noises_by_hand() {
        // Variances 9 and 16 with 4 and 8 degrees of freedom: 25² / (81/4 + 256/8).
        let both = Noise { sd: 3.0, df: 4.0 }.with(Noise { sd: 4.0, df: 8.0 });
        close(both.sd, 12.5f64.sqrt(), 1e-12);
        close(both.df, 625.0 / 52.25, 1e-12);
        let same = Noise { sd: 2.0, df: 7.0 };
        assert_eq!(same.with(same), Noise { sd: 2.0, df: 14.0 });
        let stated = Noise { sd: 2.0, df: f64::INFINITY };
        assert_eq!(stated.with(stated), stated);
    }

    #[test]
    fn a_family_shares_its_level() {
        assert_eq!(family_level(0.05, 0), 0.05);
        assert_eq!(family_level(0.05, 1), 0.05);
        assert_eq!(family_level(0.05, 50), 0.001);
    }
}
