//! Tolerance bounds: a floor or ceiling out of recorded runs, below or above which a run of an
//! unchanged engine seldom falls, and what such a bound can't see.

use super::ratio::moments;
use super::spread::{critical, noncentral_t_critical, normal_critical};
use super::{NoData, Side};

/// The one-sided tolerance factor k: with probability `confidence` at least the share `coverage` of
/// a normal distribution lies above mean − k × sd of `n` values drawn from it (Natrella, *Experimental
/// Statistics*, NBS Handbook 91, section 2-5; Owen 1962).
///
/// k = t′/√n, where t′ is the quantile of the noncentral t distribution with n − 1 degrees of
/// freedom and the shift z √n: √n (mean − z_low)/sd has that distribution.
pub fn factor(n: u64, coverage: f64, confidence: f64) -> f64 {
    let root = (n as f64).sqrt();
    let shift = normal_critical(1.0 - coverage) * root;
    noncentral_t_critical(1.0 - confidence, n as f64 - 1.0, shift) / root
}

/// What share of the runs a written floor should hold for, and how surely.
pub const COVERAGE: f64 = 0.99;
/// The confidence of a written floor.
pub const CONFIDENCE: f64 = 0.95;

/// A bound out of recorded runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Mean of the runs.
    pub mean: f64,
    /// Their standard deviation, with divisor n − 1.
    pub sd: f64,
    /// The tolerance factor.
    pub factor: f64,
    /// The bound: `factor` standard deviations to the bad side of the mean.
    pub bound: f64,
    side: Side,
}

impl Tolerance {
    /// The bound on that side of which a share `coverage` of runs like these stays, with
    /// `confidence`.
    ///
    /// # Errors
    /// Fewer than two runs, or a value that is no number.
    pub fn of(
        runs: &[f64],
        side: Side,
        coverage: f64,
        confidence: f64,
    ) -> Result<Tolerance, NoData> {
        Tolerance::by(runs, side, |n| factor(n, coverage, confidence))
    }

    /// As [`Tolerance::of`], with the factor of so many runs from whoever has it: many cells share one, and it
    /// takes milliseconds to find.
    ///
    /// # Errors
    /// As there.
    pub fn by(
        runs: &[f64],
        side: Side,
        factor: impl FnOnce(u64) -> f64,
    ) -> Result<Tolerance, NoData> {
        if runs.len() < 2 {
            return Err(NoData("it takes two runs or more to see their noise".to_owned()));
        }
        let (mean, squares) = moments(runs);
        let sd = (squares / (runs.len() - 1) as f64).sqrt();
        if !sd.is_finite() {
            return Err(NoData("a run's value is no number".to_owned()));
        }
        let factor = factor(runs.len() as u64);
        let bound = match side {
            Side::Min => mean - factor * sd,
            Side::Max => mean + factor * sd,
        };
        Ok(Tolerance { mean, sd, factor, bound, side })
    }

    /// The smallest loss, as a fraction of the mean, after which a run is beyond `bound` (this one,
    /// or the number that was written of it) with probability `power`, if the noise is what the runs
    /// showed.
    pub fn smallest_loss(&self, bound: f64, power: f64) -> f64 {
        let room = match self.side {
            Side::Min => self.mean - bound,
            Side::Max => bound - self.mean,
        };
        (room + normal_critical(1.0 - power) * self.sd) / self.mean.abs()
    }
}

/// Where the next run of an unchanged engine lies: both bounds, each one-sided at `alpha`.
///
/// # Errors
/// Fewer than two runs.
pub fn prediction(runs: &[f64], alpha: f64) -> Result<(f64, f64), NoData> {
    let n = runs.len() as f64;
    if runs.len() < 2 {
        return Err(NoData("it takes two runs or more to see their noise".to_owned()));
    }
    let (mean, squares) = moments(runs);
    let half = critical(alpha, n - 1.0) * (squares / (n - 1.0) * (1.0 + 1.0 / n)).sqrt();
    Ok((mean - half, mean + half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::golden::{cases, close, number, numbers};

    #[test]
    fn factors_are_those_of_forty_digits() {
        for case in cases("tolerance_factors") {
            let n = case["n"].as_u64().unwrap();
            let got = factor(n, number(&case, "coverage"), number(&case, "confidence"));
            close(got, number(&case, "k"), 1e-8);
        }
        // The table of the handbook, to its three digits: n = 3, 10, 50 at 90 % and 95 %.
        for (n, k) in [(3, 6.158), (10, 2.355), (50, 1.646)] {
            assert!((factor(n, 0.9, 0.95) - k).abs() < 6e-3, "{n}: {}", factor(n, 0.9, 0.95));
        }
    }

    #[test]
    fn floors_and_ceilings_of_runs_are_those_of_forty_digits() {
        for case in cases("floors_from_runs") {
            let runs = numbers(&case, "runs");
            let of = |side| {
                Tolerance::of(&runs, side, number(&case, "coverage"), number(&case, "confidence"))
                    .unwrap()
            };
            let floor = of(Side::Min);
            for (got, key) in [
                (floor.mean, "mean"),
                (floor.sd, "sd"),
                (floor.factor, "k"),
                (floor.bound, "floor"),
                (of(Side::Max).bound, "ceiling"),
            ] {
                close(got, number(&case, key), 1e-8);
            }
            let (lower, upper) =
                prediction(&runs, number(&case, "prediction_alpha_one_sided")).unwrap();
            close(lower, number(&case, "prediction_lower"), 1e-8);
            close(upper, number(&case, "prediction_upper"), 1e-8);
        }
    }

    #[test]
    fn a_floor_says_what_it_cannot_see() {
        // Five runs with 1 % of noise: half of all losses of 5.7 % go unseen.
        let runs = [98.735_088_936, 99.367_544_468, 100.0, 100.632_455_532, 101.264_911_064];
        let floor = Tolerance::of(&runs, Side::Min, COVERAGE, CONFIDENCE).unwrap();
        close(floor.sd, 1.0, 1e-8);
        close(floor.smallest_loss(floor.bound, 0.5), 0.057_410_845, 1e-6);
        close(floor.smallest_loss(floor.bound, 0.95), 0.057_410_845 + 0.016_448_536, 1e-6);
        close(floor.smallest_loss(95.0, 0.5), 0.05, 1e-8);
        let ceiling = Tolerance::of(&runs, Side::Max, COVERAGE, CONFIDENCE).unwrap();
        close(ceiling.smallest_loss(105.0, 0.5), 0.05, 1e-8);
        assert!(Tolerance::of(&[1.0], Side::Min, COVERAGE, CONFIDENCE).is_err());
        assert!(Tolerance::of(&[1.0, f64::NAN], Side::Min, COVERAGE, CONFIDENCE).is_err());
    }
}
