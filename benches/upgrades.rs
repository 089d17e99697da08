//! Upgrades: how often a verdict on an old engine against a new one is right, beside a threshold on single
//! runs and a t test of each cell.
//!
//! `cargo bench --bench upgrades -- --upgrades N --numbers N --seed N --pairs N` simulates so many of each kind (a
//! quarter of the kind in which all cells are slower) in virtual time on an engine whose truth is known, and judges so many more whose pairs are drawn. It prints the
//! tables, and ends with an error where a promise is broken: red in more than 5 % of the upgrades that change
//! nothing, a loss seen less often than the plan says, a cell named that lost nothing, or intervals that do not
//! hold the truth as often as they say.

#![allow(clippy::unwrap_used)] // A bench that can not go on panics.

#[path = "../tests/upgrades/mod.rs"]
mod upgrades;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokgate::judge::power::{Question, SURELY, pairs_needed};
use upgrades::rules::{ALPHA, Coverage, Noise, Share, chance, level, mean_ratio, paired, ratio};
use upgrades::table::Table;
use upgrades::{CELLS, Change, LEAST, LEAST_MEAN, Upgrade, drive};

/// What a cell loses that must be seen, and what all lose together.
const LOSS: f64 = 0.05;
const LOSS_OF_ALL: f64 = 0.02;
/// What launches of the engine differ by, as its profile has it, and what is left over a window of the noise
/// within.
const NOISE: Noise = Noise { launch: 0.01, cell: 0.0042 };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map_or(Some(default), |at| arguments.get(at + 1)?.parse().ok())
    };
    let needed = pairs_needed(
        Question { alpha: level(CELLS), limit: -LEAST.ln() },
        NOISE.of_a_pair(1),
        LOSS,
        SURELY,
        None,
        100,
    );
    let (Some(count), Some(drawn), Some(seed), Some(pairs)) = (
        number("--upgrades", 400),
        number("--numbers", 4_000),
        number("--seed", 1),
        number("--pairs", needed.unwrap()),
    ) else {
        eprintln!("--upgrades, --numbers, --seed and --pairs take a number");
        return ExitCode::FAILURE;
    };
    let pairs = pairs as u32;
    let mut broken = Vec::new();
    if count > 0 {
        println!("{count} upgrades, of the last kind {}, simulated, seed {seed}\n", count / 4);
        tables(pairs, seed, &mut broken, |change, seed| {
            // What the mean ratio sees is a matter of judging alone, which the drawn ones repeat.
            let count = match change {
                Change::None | Change::OneCell(_) => count,
                Change::All(_) => (count / 4).max(1),
            };
            simulated(change, pairs, count, seed)
        });
    }
    if drawn > 0 {
        println!("{drawn} upgrades of each kind, drawn, seed {seed}\n");
        tables(pairs, seed, &mut broken, |change, seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            (0..drawn).map(|_| numbers(change, pairs, &mut rng)).collect()
        });
    }
    broken.iter().for_each(|what| println!("BROKEN: {what}"));
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what the rules made of upgrades of each kind, and adds what must not be.
fn tables(
    pairs: u32,
    seed: u64,
    broken: &mut Vec<String>,
    upgrades: impl Fn(Change, u64) -> Vec<Upgrade>,
) {
    let (mut rows, mut covers) = (String::new(), String::new());
    let changes = [Change::None, Change::OneCell(LOSS), Change::All(LOSS_OF_ALL)];
    for (part, change) in (0..).zip(changes) {
        let mut table = Table::new(change, pairs);
        for upgrade in upgrades(change, seed << 2 | part) {
            table.add(&upgrade);
        }
        rows += &table.rows();
        covers += &table.coverage(level(CELLS));
        promises(change, pairs, &table, broken);
    }
    println!("{}{rows}", Table::head());
    println!(
        "| upgrade | intervals of | should hold the truth | do |\n|---|---|---:|---:|\n{covers}"
    );
}

/// Upgrades that are carried out, as many at once as there are cores.
fn simulated(change: Change, pairs: u32, count: u64, seed: u64) -> Vec<Upgrade> {
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let _ = std::fs::remove_dir_all(folder.path().join("out"));
            let tokgate = Command::new(env!("CARGO_BIN_EXE_tokgate"));
            let seed = seed << 32 | index;
            match drive::carry_out(tokgate, folder.path(), change, pairs, seed) {
                Ok(upgrade) => done.lock().unwrap().push((index, upgrade)),
                Err(error) => panic!("{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, upgrade)| upgrade).collect()
}

/// An upgrade whose pairs are drawn.
fn numbers(change: Change, pairs: u32, rng: &mut StdRng) -> Upgrade {
    let cells = NOISE.draw(rng, &change.ratios(), pairs);
    Upgrade {
        said: paired(&cells, LEAST, LEAST_MEAN),
        ratios: cells.iter().map(|pairs| ratio(pairs, level(CELLS))).collect(),
        mean: mean_ratio(&cells, ALPHA / 2.0),
        minutes: 0.0,
        cells,
    }
}

/// What must hold of a table.
fn promises(change: Change, pairs: u32, table: &Table, broken: &mut Vec<String>) {
    let ours = &table.ours;
    let mut must = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{}: {what}", change.words()));
        }
    };
    let off = |seen: &Share, planned: f64| (seen.value() - planned).abs() <= seen.doubt(planned);
    match change {
        Change::None => {
            must(ours.red.value() <= ALPHA, format!("{} are red", ours.red.words()));
        }
        Change::OneCell(loss) => {
            let planned = chance(pairs, NOISE.of_a_pair(1), level(CELLS), LEAST, loss);
            must(ours.red.reaches(SURELY), format!("{} are red", ours.red.words()));
            must(
                off(&ours.found, planned),
                format!("named in {}, planned {planned:.3}", ours.found.words()),
            );
            must(
                ours.wrong.stays_below(ALPHA),
                format!("another is named in {}", ours.wrong.words()),
            );
        }
        Change::All(loss) => {
            let sd = NOISE.of_a_pair(CELLS);
            let planned = chance(pairs, sd, ALPHA / 2.0, LEAST_MEAN, loss);
            must(
                off(&ours.whole, planned),
                format!("seen in {}, planned {planned:.3}", ours.whole.words()),
            );
        }
    }
    let close = |found: &Coverage, level: f64| {
        let (value, error) = found.value();
        (value - (1.0 - 2.0 * level)).abs() <= 3.0 * error
    };
    must(close(&table.at_alpha, ALPHA), "cells' intervals do not hold the truth".to_owned());
    must(close(&table.mean_at_alpha, ALPHA), "mean ratios do not hold it".to_owned());
}
