//! Error rates of comparisons: pairs, families of cells, recorded runs, and the power that is
//! promised for each.

use super::*;
use crate::judge::paired::{Order, fit, order, over_cells};
use crate::judge::power::{Design, Question, SURELY, pairs_needed, power, smallest_loss};
use crate::judge::ratio::{LogMean, Noise, against_runs, family_level, moments, of_launches};
use crate::judge::tolerance::{Tolerance, factor};
use crate::judge::{Method, NoData};

/// Standard deviation of a launch's logarithm.
const SD: f64 = 0.01;

/// Launches' logarithms about a mean.
fn launches(rng: &mut StdRng, n: usize, mean: f64) -> Vec<f64> {
    let normal = Normal::new(mean, SD).unwrap();
    (0..n).map(|_| normal.sample(rng)).collect()
}

/// Log ratios of pairs of launches whose true ratio is exp(−`gap`), where the second launch of a pair
/// is faster by `effect` and every pair by `drift` than the one before.
fn paired(rng: &mut StdRng, n: u32, gap: f64, effect: f64, drift: f64) -> Vec<(Order, f64)> {
    let normal = Normal::new(0.0, SD).unwrap();
    (0..n)
        .map(|pair| {
            let order = order(pair);
            let (a, b) = match order {
                Order::BaselineFirst => (0.0, effect),
                Order::CandidateFirst => (effect, 0.0),
            };
            let baseline: f64 = normal.sample(rng) + a + drift * f64::from(pair);
            let candidate: f64 = normal.sample(rng) + b + drift * f64::from(pair) - gap;
            (order, candidate - baseline)
        })
        .collect()
}

fn judged(mean: Result<LogMean, NoData>, alpha: f64, least: f64) -> BoundVerdict {
    let estimate = mean.unwrap().estimate(alpha, Method::Paired).unwrap();
    limit::judge(&estimate, &Bound { side: Side::Min, target: 1.0, limit: least })
}

fn pairs_fail(rng: &mut StdRng, n: u32, gap: f64, alpha: f64, least: f64) -> bool {
    let ratios = paired(rng, n, gap, 0.02, 0.005);
    judged(fit(&ratios).map(|fit| fit.log_mean(None)), alpha, least) == BoundVerdict::Fail
}

#[track_caller]
fn near(got: f64, want: f64, runs: u32) {
    assert!((got - want).abs() <= doubt(want, runs), "{got} is not {want}");
}

#[test]
fn pairs_miss_the_truth_as_often_as_they_say_whatever_their_order_does() {
    let runs = 20_000;
    for (seed, n) in [(21, 4), (22, 6), (23, 8)] {
        let missed = |upper: bool, seed| {
            share(runs, seed, |rng| {
                let ratios = paired(rng, n, 0.0, 0.05, 0.01);
                let mean = fit(&ratios).unwrap().log_mean(None);
                let found = mean.estimate(ALPHA, Method::Paired).unwrap();
                if upper { found.upper.unwrap() < 1.0 } else { found.lower.unwrap() > 1.0 }
            })
        };
        near(missed(true, seed), ALPHA, runs);
        near(missed(false, seed + 10), ALPHA, runs);
    }
    // A plain t over the log ratios counts the order's effect as noise and sees nothing.
    let plain = share(2_000, 24, |rng| {
        let ratios: Vec<f64> =
            paired(rng, 4, 0.05, 0.05, 0.0).iter().map(|(_, ratio)| ratio.exp()).collect();
        of_launches(&ratios, None, ALPHA).unwrap().upper.unwrap() < 1.0
    });
    let fitted = share(2_000, 24, |rng| pairs_fail(rng, 4, 0.05, ALPHA, 1.0));
    assert!(fitted > 0.6 && plain < fitted - 0.3, "{fitted} {plain}");
}

#[test]
fn a_calibrated_noise_keeps_its_rate() {
    let runs = 20_000;
    for (seed, calibration) in [(41, 4usize), (42, 9)] {
        let missed = |pairs: bool, seed| {
            share(runs, seed, |rng| {
                let seen = launches(rng, calibration, 0.0);
                let mean = seen.iter().sum::<f64>() / seen.len() as f64;
                let squares: f64 = seen.iter().map(|log| (log - mean).powi(2)).sum();
                let df = (calibration - 1) as f64;
                let noise = Noise { sd: (squares / df).sqrt(), df };
                let found = if pairs {
                    let ratios = paired(rng, 4, 0.0, 0.03, 0.0);
                    fit(&ratios).unwrap().log_mean(Some(noise)).estimate(ALPHA, Method::Paired)
                } else {
                    let one = launches(rng, 1, 0.0)[0].exp();
                    of_launches(&[one], Some(noise), ALPHA)
                };
                found.unwrap().upper.unwrap() < 1.0
            })
        };
        near(missed(true, seed), ALPHA, runs);
        near(missed(false, seed + 10), ALPHA, runs);
    }
}

#[test]
fn recorded_runs_keep_alpha_with_their_own_noise_in_it() {
    let runs = 20_000;
    let exp = |logs: Vec<f64>| logs.into_iter().map(f64::exp).collect::<Vec<_>>();
    for (seed, recorded, now) in [(51, 2, 1), (52, 5, 1), (53, 5, 3)] {
        let failed = share(runs, seed, |rng| {
            let baseline = exp(launches(rng, recorded, 3.0));
            let launches = exp(launches(rng, now, 3.0));
            judged(against_runs(&baseline, &launches, None), ALPHA, 1.0) == BoundVerdict::Fail
        });
        near(failed, ALPHA, runs);
    }
    // Taking the recorded mean for the truth would not keep it.
    let naive = share(runs, 54, |rng| {
        let baseline = launches(rng, 3, 0.0);
        let mean = baseline.iter().sum::<f64>() / 3.0;
        let squares: f64 = baseline.iter().map(|log| (log - mean).powi(2)).sum();
        let half = crate::measure::distribution::t_critical(ALPHA, 2.0) * (squares / 2.0).sqrt();
        launches(rng, 1, 0.0)[0] + half < mean
    });
    assert!(naive > ALPHA + 2.0 * doubt(ALPHA, runs), "{naive}");
}

#[test]
fn a_family_is_red_as_seldom_as_one_comparison() {
    let runs = 5_000;
    let cells = 36;
    let red = |level: f64, shared: f64, seed| {
        share(runs, seed, |rng| {
            // What all cells of a launch have in common, and what each has for itself.
            let common = paired(rng, 4, 0.0, 0.01, 0.0);
            (0..cells).any(|_| {
                let own = paired(rng, 4, 0.0, 0.0, 0.0);
                let ratios: Vec<_> = common
                    .iter()
                    .zip(&own)
                    .map(|((order, common), (_, own))| {
                        (*order, shared.sqrt() * common + (1.0 - shared).sqrt() * own)
                    })
                    .collect();
                let mean = fit(&ratios).map(|fit| fit.log_mean(None));
                judged(mean, level, 1.0) == BoundVerdict::Fail
            })
        })
    };
    let level = family_level(ALPHA, cells);
    // Independent cells: 1 − (1 − α/m)^m, all but α.
    near(red(level, 0.0, 61), 1.0 - (1.0 - level).powi(cells as i32), runs);
    let together = red(level, 0.9, 62);
    assert!(together <= ALPHA + doubt(ALPHA, runs), "{together}");
    let naive = red(ALPHA, 0.0, 63);
    assert!(naive > 0.8, "{naive}");
}

#[test]
fn the_suites_mean_is_judged_over_pairs_and_not_over_cells() {
    let runs = 5_000;
    let missed = share(runs, 64, |rng| {
        let common = paired(rng, 4, 0.0, 0.02, 0.0);
        let cells: Vec<Vec<_>> = (0..12)
            .map(|_| {
                let own = paired(rng, 4, 0.0, 0.0, 0.0);
                common.iter().zip(&own).map(|((o, a), (_, b))| (*o, a + 0.5 * b)).collect()
            })
            .collect();
        let mean = fit(&over_cells(&cells).unwrap()).unwrap().log_mean(None);
        mean.estimate(ALPHA, Method::Paired).unwrap().upper.unwrap() < 1.0
    });
    near(missed, ALPHA, runs);
}

#[test]
fn target_and_limit_fail_as_often_as_power_says() {
    let runs = 20_000;
    let (n, least) = (6, 0.97f64);
    let question = |alpha| Question { alpha, limit: -least.ln() };
    let design = Design::pairs(u64::from(n)).unwrap();
    let sd = SD * 2f64.sqrt();
    // No change: never more than alpha. At the limit, beyond it, and in a family.
    for (seed, gap, alpha) in [
        (71, 0.0, ALPHA),
        (72, -least.ln(), ALPHA),
        (73, 0.045, ALPHA),
        (74, 0.06, ALPHA / 36.0),
        (75, 0.10, ALPHA / 36.0),
    ] {
        let want = power(design, question(alpha), sd, gap);
        let got = share(runs, seed, |rng| pairs_fail(rng, n, gap, alpha, least));
        assert!((got - want).abs() <= doubt(want.max(1e-3), runs), "{gap}: {got} is not {want}");
        if gap == 0.0 {
            assert!(got <= ALPHA + doubt(ALPHA, runs), "{got}");
        }
    }
    // With noise so large that the limit does not matter, no change fails as often as alpha.
    let loud = share(runs, 76, |rng| pairs_fail(rng, n, 0.0, ALPHA, 0.9999));
    near(loud, power(design, Question { alpha: ALPHA, limit: -0.9999f64.ln() }, sd, 0.0), runs);
    near(loud, ALPHA, runs);
}

#[test]
fn planned_pairs_see_the_planned_loss() {
    let runs = 5_000;
    let question = Question { alpha: ALPHA / 36.0, limit: -0.97f64.ln() };
    let sd = SD * 2f64.sqrt();
    let n = pairs_needed(question, sd, 0.05, SURELY, None, 1_000).unwrap();
    let seen =
        share(runs, 81, |rng| pairs_fail(rng, n as u32, -0.95f64.ln(), question.alpha, 0.97));
    assert!(seen >= SURELY - doubt(SURELY, runs), "{seen} of {n} pairs");
    let loss = smallest_loss(Design::pairs(8).unwrap(), question, sd, SURELY);
    let seen = share(runs, 82, |rng| pairs_fail(rng, 8, -(-loss).ln_1p(), question.alpha, 0.97));
    near(seen, SURELY, runs);
}

#[test]
fn a_floor_of_runs_holds_for_the_share_it_says_as_surely_as_it_says() {
    use crate::judge::spread::normal_tail;
    let runs = 20_000;
    let of = factor(5, 0.99, 0.95);
    let kept = share(runs, 91, |rng| {
        let seen = launches(rng, 5, 0.0);
        let (mean, squares) = moments(&seen);
        normal_tail((mean - of * (squares / 4.0).sqrt()) / SD) >= 0.99
    });
    near(kept, 0.95, runs);
    // A run that is slower by the loss it can just see falls below a floor of that height.
    let recorded = [1.0 - SD, 1.0, 1.0 + SD];
    let floor = Tolerance::of(&recorded, Side::Min, 0.99, 0.95).unwrap();
    let loss = floor.smallest_loss(0.95, 0.95);
    let seen = share(runs, 92, |rng| 1.0 - loss + launches(rng, 1, 0.0)[0] < 0.95);
    near(seen, 0.95, runs);
}

#[test]
fn the_spread_of_launches_keeps_alpha() {
    let runs = 20_000;
    for (seed, n) in [(101, 2), (102, 3), (103, 5)] {
        let missed = |upper: bool, seed| {
            share(runs, seed, |rng| {
                let values: Vec<f64> = launches(rng, n, 0.0).iter().map(|it| 100.0 + it).collect();
                let found = of_launches(&values, None, ALPHA).unwrap();
                if upper { found.upper.unwrap() < 100.0 } else { found.lower.unwrap() > 100.0 }
            })
        };
        near(missed(true, seed), ALPHA, runs);
        near(missed(false, seed + 10), ALPHA, runs);
    }
    // Beyond the limit is not enough, and with nothing changed a fail is as rare as alpha.
    let tight = Bound { side: Side::Min, target: 100.0, limit: 99.999 };
    let failed = share(runs, 120, |rng| {
        let values: Vec<f64> = launches(rng, 3, 0.0).iter().map(|it| 100.0 + it).collect();
        limit::judge(&of_launches(&values, None, ALPHA).unwrap(), &tight) == BoundVerdict::Fail
    });
    assert!(failed <= ALPHA + doubt(ALPHA, runs), "{failed}");
}

#[test]
fn cells_and_their_mean_share_alpha_by_halves() {
    let runs = 4_000;
    let cells = 12u64;
    let red = |halved: bool, seed| {
        let of = |share: f64| if halved { share / 2.0 } else { share };
        share(runs, seed, |rng| {
            let all: Vec<Vec<_>> = (0..cells).map(|_| paired(rng, 4, 0.0, 0.01, 0.0)).collect();
            let fails = |ratios: &[(Order, f64)], level| {
                judged(fit(ratios).map(|fit| fit.log_mean(None)), level, 1.0) == BoundVerdict::Fail
            };
            let each = family_level(of(ALPHA), cells);
            all.iter().any(|cell| fails(cell, each)) || fails(&over_cells(&all).unwrap(), of(ALPHA))
        })
    };
    let got = red(true, 131);
    assert!(got <= ALPHA + doubt(ALPHA, runs), "{got}");
    // Each with all of alpha would be red nearly twice as often, so this test can see the difference.
    assert!(red(false, 132) > ALPHA + 2.0 * doubt(ALPHA, runs));
}
