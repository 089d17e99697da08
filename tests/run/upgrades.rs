//! What verdicts on upgrades are worth: the rules over pairs, on numbers out of a generator.

use std::collections::BTreeSet;
use std::process::Command;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::upgrades::rules::{
    ALPHA, Coverage, Noise, Said, Share, chance, level, mean_ratio, paired, ratio, threshold,
    uncorrected,
};
use crate::upgrades::{CELLS, Change, LEAST, LEAST_MEAN, SLOWER, drive};

const NOISE: Noise = Noise { launch: 0.01, cell: 0.005 };

#[test]
fn an_upgrade_that_changes_nothing_is_rarely_red_and_only_by_this_rule() {
    let mut rng = StdRng::seed_from_u64(1);
    let (mut ours, mut plain, mut single) = (Share::default(), Share::default(), Share::default());
    for _ in 0..400 {
        let cells = NOISE.draw(&mut rng, &[1.0; CELLS], 8);
        // Without room below 1, so that the level alone holds.
        ours.add(paired(&cells, 1.0, 1.0).red());
        plain.add(uncorrected(&cells).red());
        single.add(threshold(&cells, LEAST).red());
    }
    assert!(ours.stays_below(ALPHA), "{}", ours.words());
    assert!(plain.value() > 0.1, "{}", plain.words());
    assert!(single.value() > 0.02, "{}", single.words());
}

#[test]
fn one_slower_cell_is_named_and_no_other() {
    let mut rng = StdRng::seed_from_u64(2);
    let planned = chance(8, NOISE.of_a_pair(1), level(CELLS), LEAST, 0.05);
    let (mut seen, mut alone) = (Share::default(), Share::default());
    for _ in 0..400 {
        let said = paired(&NOISE.draw(&mut rng, &Change::OneCell(0.05).ratios(), 8), LEAST, 0.95);
        seen.add(said.named.contains(&SLOWER));
        alone.add(said.named.len() == 1 && said.named.contains(&SLOWER) && !said.whole);
    }
    assert!((seen.value() - planned).abs() <= seen.doubt(planned), "{planned} {}", seen.words());
    assert!(alone.reaches(planned), "{planned} {}", alone.words());
}

#[test]
fn a_loss_of_all_is_seen_as_often_as_it_is_planned() {
    let mut rng = StdRng::seed_from_u64(3);
    for pairs in [8, 16] {
        let planned = chance(pairs, NOISE.of_a_pair(CELLS), ALPHA / 2.0, LEAST_MEAN, 0.02);
        let mut seen = Share::default();
        for _ in 0..2_000 {
            let cells = NOISE.draw(&mut rng, &[0.98; CELLS], pairs);
            seen.add(paired(&cells, LEAST, LEAST_MEAN).whole);
        }
        let off = (seen.value() - planned).abs();
        assert!(off <= seen.doubt(planned), "{pairs} pairs: {planned} {}", seen.words());
    }
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let mut rng = StdRng::seed_from_u64(4);
    let (mut of_cells, mut of_means) = (Coverage::default(), Coverage::default());
    let truths = Change::OneCell(0.05).ratios();
    let mean = truths.iter().map(|ratio| ratio.ln()).sum::<f64>() / CELLS as f64;
    for _ in 0..400 {
        let cells = NOISE.draw(&mut rng, &truths, 6);
        let intervals: Vec<_> = cells.iter().map(|pairs| ratio(pairs, ALPHA)).collect();
        of_cells.add(&intervals, &truths);
        of_means.add(&[mean_ratio(&cells, ALPHA)], &[mean.exp()]);
    }
    for found in [of_cells, of_means] {
        let (value, error) = found.value();
        assert!((value - 0.9).abs() <= 3.0 * error, "{value} ± {error}");
    }
}

/// In short what `benches/upgrades.rs` does with hundreds: the suite, both engines, `tokgate run`.
#[test]
fn upgrades_are_judged_as_their_truth_is() {
    // The one cell that changed is named, and the mean of all is none the wiser.
    let one = Change::OneCell(0.05);
    for (change, seed, named, whole) in [
        (Change::None, 1, false, false),
        (one, 4, true, false),
        (Change::All(0.02), 3, false, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let tokgate = Command::new(env!("CARGO_BIN_EXE_tokgate"));
        let upgrade = drive::carry_out(tokgate, folder.path(), change, 8, seed).unwrap();
        let wanted: BTreeSet<usize> = named.then_some(SLOWER).into_iter().collect();
        assert_eq!(upgrade.said, Said { named: wanted, whole }, "{}", change.words());
        // The rules of the bench are those of the program.
        assert_eq!(upgrade.said, paired(&upgrade.cells, LEAST, LEAST_MEAN), "{}", change.words());
    }
}
