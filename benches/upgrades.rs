//! Upgrades: how often a verdict on an old engine against a new one is right, beside a threshold on single
//! runs and a t test of each cell.
//!
//! `cargo bench --bench upgrades -- --upgrades N --seed N --pairs N` simulates them in virtual time on an engine
//! whose truth is known, prints the tables, and ends with an error where a promise is broken: red in more than
//! 5 % of the upgrades that change nothing, a lost cell seen less often than the plan says, another one named, or
//! intervals that do not hold the truth as often as they say. `--numbers` judges pairs out of a generator of
//! numbers instead.

#![allow(clippy::unwrap_used)] // A bench that can not go on panics.

#[path = "../tests/upgrades/mod.rs"]
mod upgrades;

use std::process::ExitCode;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokgate::judge::power::{Question, SURELY, pairs_needed};
use upgrades::rules::{ALPHA, Coverage, Noise, Share, chance, level, mean_ratio, paired, ratio};
use upgrades::table::Table;
use upgrades::{CELLS, Change, LEAST, LEAST_MEAN, Upgrade};

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
    let (Some(count), Some(seed), Some(pairs)) =
        (number("--upgrades", 400), number("--seed", 1), number("--pairs", needed.unwrap()))
    else {
        eprintln!("--upgrades, --seed and --pairs take a number");
        return ExitCode::FAILURE;
    };
    let pairs = pairs as u32;
    let mut broken = Vec::new();
    let (mut rows, mut covers) = (String::new(), String::new());
    for (part, change) in (0..).zip([Change::None, Change::OneCell(LOSS), Change::All(LOSS_OF_ALL)])
    {
        let mut table = Table::new(change, pairs);
        let mut rng = StdRng::seed_from_u64(seed << 2 | part);
        for _ in 0..count {
            table.add(&numbers(change, pairs, &mut rng));
        }
        rows += &table.rows();
        covers += &table.coverage(level(CELLS));
        promises(change, pairs, &table, &mut broken);
    }
    print!("{count} upgrades each, seed {seed}\n\n{}{rows}\n", Table::head());
    print!(
        "| upgrade | intervals of | should hold the truth | do |\n|---|---|---:|---:|\n{covers}"
    );
    broken.iter().for_each(|what| println!("BROKEN: {what}"));
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
