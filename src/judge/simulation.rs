//! Error rates by seeded simulation: what the rules promise, held against many runs of noise.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Exp1, Normal};

use super::interval::{estimate, estimate_shared, level};
use super::{Bound, BoundVerdict, Side, limit};
use crate::measure::{Observations, Stat};

mod ratio;

const ALPHA: f64 = 0.05;
const TRUTH: f64 = 100.0;

/// Three standard errors of a share that should be `share`.
fn doubt(share: f64, runs: u32) -> f64 {
    3.0 * (share * (1.0 - share) / f64::from(runs)).sqrt()
}

fn share(runs: u32, seed: u64, mut hit: impl FnMut(&mut StdRng) -> bool) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed);
    f64::from((0..runs).map(|_| u32::from(hit(&mut rng))).sum::<u32>()) / f64::from(runs)
}

fn noise(rng: &mut StdRng, n: usize) -> Vec<f64> {
    let normal = Normal::new(TRUTH, 4.0).unwrap();
    (0..n).map(|_| normal.sample(rng)).collect()
}

fn batches(means: &[f64]) -> Observations {
    let rate = means.iter().sum::<f64>() / means.len() as f64;
    Observations::Batches { rate, means: means.to_vec(), floor: 0.0 }
}

fn samples(values: &[f64]) -> Observations {
    Observations::Samples(values.to_vec())
}

/// Judges `n` observations, and where they are in doubt twice as many, both at `level`. The truth
/// lies at the target.
fn fails(
    rng: &mut StdRng,
    n: usize,
    level: f64,
    bound: &Bound,
    of: fn(&[f64]) -> Observations,
) -> bool {
    let mut seen = noise(rng, n);
    let judge = |seen: &[f64]| limit::judge(&estimate(&of(seen), None, level).unwrap(), bound);
    let mut verdict = judge(&seen);
    if verdict == BoundVerdict::Inconclusive {
        seen.extend(noise(rng, n));
        verdict = judge(&seen);
    }
    verdict == BoundVerdict::Fail
}

const FLOOR: Bound = Bound { side: Side::Min, target: TRUTH, limit: TRUTH };
const CEILING: Bound = Bound { side: Side::Max, target: TRUTH, limit: TRUTH };

#[test]
fn with_nothing_changed_a_fail_is_as_rare_as_alpha_over_both_looks() {
    let runs = 20_000;
    let most = ALPHA + doubt(ALPHA, runs);
    for (seed, bound) in [(1, FLOOR), (2, CEILING)] {
        let kept = level(ALPHA, 10, false);
        let got = share(runs, seed, |rng| fails(rng, 10, kept, &bound, batches));
        assert!(got <= most, "batches: {got}");
        let got = share(runs, seed, |rng| fails(rng, 3, level(ALPHA, 3, false), &bound, samples));
        assert!(got <= most, "samples: {got}");
    }
    // Judging both times at alpha itself would not keep it, so this test can see the difference.
    let naive = share(runs, 3, |rng| fails(rng, 10, ALPHA, &FLOOR, batches));
    assert!(naive > most, "{naive}");
}

#[test]
fn slack_costs_nothing_in_false_alarms_and_a_real_loss_is_seen() {
    let slack = Bound { side: Side::Min, target: TRUTH, limit: 0.98 * TRUTH };
    let kept = level(ALPHA, 10, false);
    let alarms = share(5_000, 4, |rng| fails(rng, 10, kept, &slack, batches));
    assert!(alarms <= ALPHA + doubt(ALPHA, 5_000), "{alarms}");
    // A loss of 6 % against a limit of 2 %, noise 4 % a batch.
    let moved = Bound { side: Side::Min, target: TRUTH / 0.94, limit: 0.98 * TRUTH / 0.94 };
    let seen = share(5_000, 5, |rng| fails(rng, 10, kept, &moved, batches));
    assert!(seen > 0.98, "{seen}");
}

#[test]
fn intervals_miss_the_truth_as_often_as_they_say() {
    let runs = 20_000;
    for (n, of) in [(10, batches as fn(&[f64]) -> Observations), (3, samples)] {
        let above = share(runs, 6, |rng| {
            estimate(&of(&noise(rng, n)), None, ALPHA).unwrap().lower.unwrap() > TRUTH
        });
        let below = share(runs, 7, |rng| {
            estimate(&of(&noise(rng, n)), None, ALPHA).unwrap().upper.unwrap() < TRUTH
        });
        for missed in [above, below] {
            assert!((missed - ALPHA).abs() <= doubt(ALPHA, runs), "{missed} of {n}");
        }
    }
}

#[test]
fn the_median_of_three_samples_keeps_alpha() {
    let runs = 20_000;
    let missed = share(runs, 8, |rng| {
        let found = estimate(&samples(&noise(rng, 3)), Some(Stat::P50), ALPHA).unwrap();
        found.lower.unwrap() > TRUTH
    });
    assert!(missed <= ALPHA + doubt(ALPHA, runs), "{missed}");
}

#[test]
fn percentile_bounds_keep_alpha_without_knowing_the_noise() {
    let runs = 3_000;
    // The 90th percentile of an exponential is ln 10.
    let truth = 10f64.ln();
    for upper in [false, true] {
        let missed = share(runs, 9, |rng| {
            let seen: Vec<f64> = (0..200).map(|_| Exp1.sample(rng)).collect();
            let found = estimate(&samples(&seen), Some(Stat::P90), ALPHA).unwrap();
            if upper { found.upper.unwrap() < truth } else { found.lower.unwrap() > truth }
        });
        assert!(missed <= ALPHA + doubt(ALPHA, runs), "{missed}");
        assert!(missed > 0.01, "{missed}: wider than need be");
    }
}

#[test]
fn streams_that_share_their_steps_are_one_witness_a_step() {
    let runs = 1_000;
    let streams = 8;
    let missed = |shared: f64| {
        share(runs, 10, |rng| {
            let steps = noise(rng, 100);
            let seen: Vec<f64> = steps.iter().flat_map(|step| vec![*step; streams]).collect();
            let found = estimate_shared(&samples(&seen), Some(Stat::P50), ALPHA, shared).unwrap();
            found.lower.unwrap() > TRUTH
        })
    };
    let kept = missed(streams as f64);
    assert!(kept <= ALPHA + doubt(ALPHA, runs), "{kept}");
    let naive = missed(1.0);
    assert!(naive > 0.15, "{naive}");
}

#[test]
fn the_slope_check_cries_drift_over_steady_noise_less_than_its_level() {
    use crate::measure::validity::steady;
    let runs = 5_000;
    let cried = share(runs, 11, |rng| {
        let spread = Normal::new(TRUTH, 30.0).unwrap();
        let means: Vec<f64> = (0..10).map(|_| spread.sample(rng)).collect();
        steady(&means).fault.is_some()
    });
    assert!(cried <= 0.01 + doubt(0.01, runs), "{cried}");
    assert!(cried > 0.003, "{cried}");
}

/// Noise whose bins remember the one before, with standard deviation 4 about the truth.
fn remembering(rng: &mut StdRng, bins: usize, memory: f64) -> Vec<f64> {
    let normal = Normal::new(0.0, 4.0).unwrap();
    let fresh = (1.0 - memory * memory).sqrt();
    let mut state = normal.sample(rng);
    (0..bins)
        .map(|_| {
            state = memory * state + fresh * normal.sample(rng);
            TRUTH + state
        })
        .collect()
}

#[test]
fn batch_means_keep_alpha_where_the_noise_remembers() {
    let runs = 20_000;
    let missed = |memory: f64, batches_of: usize, seed| {
        share(runs, seed, |rng| {
            let bins = remembering(rng, 250, memory);
            let means: Vec<f64> = bins
                .chunks(batches_of)
                .map(|batch| batch.iter().sum::<f64>() / batches_of as f64)
                .collect();
            estimate(&batches(&means), None, ALPHA).unwrap().lower.unwrap() > TRUTH
        })
    };
    for (seed, memory) in [(12, 0.0), (13, 0.2), (14, 0.5)] {
        let got = missed(memory, 25, seed);
        assert!((got - ALPHA).abs() <= doubt(ALPHA, runs), "{got} at {memory}");
    }
    // Bins taken for independent samples would not keep it.
    let naive = missed(0.5, 1, 15);
    assert!(naive > 0.15, "{naive}");
}
