//! Prospects held against golden values, and against pairs that are drawn and judged.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Normal};

use super::*;
use crate::judge::golden::{cases, number};
use crate::judge::paired::{Order, fit, order, over_cells};
use crate::judge::power::Losses;
use crate::judge::ratio::{against_runs, of_launches};
use crate::judge::{BoundVerdict, Method, Side, limit};

fn outlook(way: Way, level: f64, least: f64, sd: f64) -> Outlook {
    Outlook { way, level, limit: -least.ln(), noise: Some((sd, Teller::Stated)), known: None }
}

#[test]
fn pairs_needed_are_those_of_the_golden_table() {
    for case in cases("pairs_needed") {
        // The noise of a pair is that of its two launches.
        let sd = number(&case, "sd_log") / 2f64.sqrt();
        let loss = 1.0 - number(&case, "min_ratio") / number(&case, "true_ratio");
        let asked = Asked { loss, surely: number(&case, "power") };
        let found = outlook(Way::Pairs(4), number(&case, "alpha_one_sided"), 1.0, sd)
            .needs(asked, &mut Losses::default());
        let want = case["pairs_order_term_even"].as_u64().unwrap();
        assert_eq!(found, Need::Enough(want), "{case}");
    }
}

#[test]
fn the_chance_is_the_golden_power() {
    let mut held = 0;
    for case in cases("power") {
        let (pairs, df) = (number(&case, "pairs"), number(&case, "df"));
        let sd = number(&case, "sd_log") / 2f64.sqrt();
        let way = Way::Pairs(pairs as u64);
        let mut outlook = outlook(way, number(&case, "alpha_one_sided"), 1.0, sd);
        outlook.known = Some(df);
        let Some(found) = outlook.chance(1.0 - (-number(&case, "gap_log")).exp()) else { continue };
        let want = number(&case, "power");
        assert!((found - want).abs() < 1e-8, "{case}: {found}");
        held += 1;
    }
    assert!(held >= 3, "{held}");
}

#[test]
fn a_limit_that_tolerates_the_loss_needs_another_limit() {
    let of = |least| {
        outlook(Way::Pairs(4), 0.05, least, 0.01)
            .needs(Asked { loss: 0.05, surely: 0.95 }, &mut Losses::default())
    };
    assert_eq!((of(0.95), of(0.9)), (Need::Tolerated, Need::Tolerated));
    assert!(matches!(of(0.96), Need::Enough(n) if n > 4));
    let mut unknown = outlook(Way::Pairs(4), 0.05, 0.97, 0.01);
    unknown.noise = None;
    assert_eq!(
        unknown.needs(Asked { loss: 0.05, surely: 0.95 }, &mut Losses::default()),
        Need::Unknown
    );
    assert_eq!((unknown.sees(0.95, &mut Losses::default()), unknown.is_blind()), (None, false));
}

#[test]
fn recorded_runs_keep_their_noise_whatever_is_launched() {
    let runs = |recorded| outlook(Way::Runs { recorded, launches: 1 }, 0.05, 0.97, 0.02);
    let asked = Asked { loss: 0.05, surely: 0.95 };
    assert_eq!(runs(2).needs(asked, &mut Losses::default()), Need::TooMany);
    assert!(matches!(runs(40).needs(asked, &mut Losses::default()), Need::Enough(n) if n > 1));
}

#[test]
fn one_launch_needs_a_noise_file_to_say_anything() {
    let mut one = outlook(Way::Launches(1), 0.05, 0.97, 0.01);
    assert_eq!((one.chance(0.06), one.sees(0.95, &mut Losses::default())), (None, None));
    assert!(
        matches!(one.needs(Asked { loss: 0.06, surely: 0.95 }, &mut Losses::default()), Need::Enough(n) if n >= 2)
    );
    one.known = Some(9.0);
    let sees = one.sees(0.95, &mut Losses::default()).unwrap();
    assert!(sees > 0.03 && sees < 0.06, "{sees}");
}

#[test]
fn a_limit_is_blind_beyond_twice_what_it_tolerates() {
    let blind = |least, sd| outlook(Way::Pairs(4), 0.05, least, sd).is_blind();
    assert!(!blind(0.97, 0.005) && blind(0.97, 0.02));
    // One that tolerates nothing is asked for two percent.
    assert!(!blind(1.0, 0.002) && blind(1.0, 0.01));
    let edge = outlook(Way::Pairs(4), 0.05, 0.97, 0.0);
    assert!((edge.worth_seeing() - 0.06).abs() < 1e-12);
}

/// Three standard errors of a share.
fn doubt(share: f64, runs: u32) -> f64 {
    3.0 * (share * (1.0 - share) / f64::from(runs)).sqrt()
}

fn share(runs: u32, seed: u64, mut hit: impl FnMut(&mut StdRng) -> bool) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed);
    f64::from((0..runs).map(|_| u32::from(hit(&mut rng))).sum::<u32>()) / f64::from(runs)
}

fn normal(rng: &mut StdRng, sd: f64) -> f64 {
    Normal::new(0.0, sd).unwrap().sample(rng)
}

/// Log ratios of pairs of launches of noise `sd`, the candidate slower by `loss`; who comes second is
/// faster by two percent.
fn drawn(rng: &mut StdRng, pairs: u64, sd: f64, loss: f64) -> Vec<(Order, f64)> {
    (0..pairs as u32)
        .map(|pair| {
            let second = match order(pair) {
                Order::BaselineFirst => 0.02,
                Order::CandidateFirst => -0.02,
            };
            (order(pair), normal(rng, sd) - normal(rng, sd) + second + (1.0 - loss).ln())
        })
        .collect()
}

fn fails(ratios: &[(Order, f64)], level: f64, least: f64) -> bool {
    let found = fit(ratios).unwrap().log_mean(None).estimate(level, Method::Paired).unwrap();
    let bound = Bound { side: Side::Min, target: 1.0, limit: least };
    limit::judge(&found, &bound) == BoundVerdict::Fail
}

#[test]
fn the_pairs_that_are_named_see_the_loss_as_often_as_said() {
    let runs = 4_000;
    for (seed, sd, level, least, loss, surely) in [
        (1, 0.01, 0.05 / 72.0, 0.97, 0.05, 0.95),
        (2, 0.015, 0.05, 0.98, 0.04, 0.9),
        (3, 0.005, 0.01 / 36.0, 0.99, 0.02, 0.95),
    ] {
        let of = outlook(Way::Pairs(4), level, least, sd);
        let Need::Enough(pairs) = of.needs(Asked { loss, surely }, &mut Losses::default()) else {
            panic!("{of:?}")
        };
        let seen =
            |n: u64, seed| share(runs, seed, |rng| fails(&drawn(rng, n, sd, loss), level, least));
        let (chance, got) = (of.chance_of(pairs, loss).unwrap(), seen(pairs, seed));
        assert!(chance >= surely && got >= surely - doubt(surely, runs), "{pairs}: {got}");
        assert!((got - chance).abs() <= doubt(chance, runs), "{pairs}: {got} is not {chance}");
        if pairs > 4 {
            // Two fewer would not have been enough.
            let got = seen(pairs - 2, seed + 10);
            assert!(got < surely + doubt(surely, runs), "{pairs}: {got}");
            assert!(of.chance_of(pairs - 2, loss).unwrap() < surely);
        }
    }
}

#[test]
fn a_loss_in_every_cell_is_seen_by_the_mean_as_often_as_said_or_more() {
    let runs = 4_000;
    let (cells, sd, loss, least) = (12, 0.01, 0.02, 0.99);
    let level = 0.05 / 2.0;
    let of = outlook(Way::Pairs(8), level, least, sd);
    let chance = of.chance(loss).unwrap();
    // So much of the variance is common to the cells of a launch, the rest each cell's own.
    let seen = |common: f64, seed| {
        share(runs, seed, |rng| {
            let all = drawn(rng, 8, sd * common.sqrt(), loss);
            let cell = |rng: &mut StdRng| {
                let own = drawn(rng, 8, sd * (1.0 - common).sqrt(), 0.0);
                let both = all.iter().zip(&own);
                both.map(|((order, all), (_, own))| (*order, all + own)).collect::<Vec<_>>()
            };
            let cells: Vec<_> = (0..cells).map(|_| cell(rng)).collect();
            fails(&over_cells(&cells).unwrap(), level, least)
        })
    };
    let all = seen(1.0, 21);
    assert!((all - chance).abs() <= doubt(chance, runs), "{all} is not {chance}");
    assert!(seen(0.5, 22) > chance + doubt(chance, runs));
}

#[test]
fn launches_see_what_is_said_against_runs_and_by_themselves() {
    let (runs, sd) = (4_000, 0.01);
    let values = |rng: &mut StdRng, n: u64, loss: f64| -> Vec<f64> {
        (0..n).map(|_| (normal(rng, sd) + (1.0 - loss).ln()).exp()).collect()
    };
    let bound = Bound { side: Side::Min, target: 1.0, limit: 0.97 };
    let of = outlook(Way::Runs { recorded: 8, launches: 3 }, 0.005, 0.97, sd);
    let seen = share(runs, 31, |rng| {
        let (recorded, now) = (values(rng, 8, 0.0), values(rng, 3, 0.05));
        let found = against_runs(&recorded, &now, None).unwrap();
        let found = found.estimate(0.005, Method::Baseline).unwrap();
        limit::judge(&found, &bound) == BoundVerdict::Fail
    });
    let chance = of.chance(0.05).unwrap();
    assert!((seen - chance).abs() <= doubt(chance, runs), "{seen} is not {chance}");
    // Of launches by themselves the interval is one of values and not of logarithms, which one percent
    // does not tell apart.
    let of = outlook(Way::Launches(4), 0.05, 0.97, sd);
    let seen = share(runs, 32, |rng| {
        let found = of_launches(&values(rng, 4, 0.04), None, 0.05).unwrap();
        limit::judge(&found, &bound) == BoundVerdict::Fail
    });
    let chance = of.chance(0.04).unwrap();
    assert!((seen - chance).abs() <= doubt(chance, runs) + 0.005, "{seen} is not {chance}");
}
