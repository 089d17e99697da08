//! Simulated upgrades: an old engine against a new one over 36 cells, with noise whose truth is known.
//!
//! `benches/upgrades.rs` judges hundreds of them and prints what the verdicts were worth, `run::upgrades` a few.

// The bench uses one part of it, the tests another.
#![allow(dead_code)]

pub mod drive;
pub mod rules;
pub mod table;

use rules::{Cells, Said};
use tokgate::judge::Estimate;

/// Cells of the suite: six contexts by six concurrencies.
pub const CELLS: usize = 36;
/// The cell that becomes slower where one does, by index: neither first nor last, neither quickest nor slowest.
pub const SLOWER: usize = 20;
/// The suite, whose variants are `old` and `new`.
pub const SUITE: &str = include_str!("suite.toml");
/// The profile of the old engine.
pub const ENGINE: &str = include_str!("engine.toml");
/// What `SUITE` says a cell's ratio must be at least, and the mean of all.
pub const LEAST: f64 = 0.97;
pub const LEAST_MEAN: f64 = 0.99;

/// What an upgrade does to the engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Nothing at all.
    None,
    /// One cell loses such a share of its rate.
    OneCell(f64),
    /// All of them do.
    All(f64),
}

impl Change {
    /// In words.
    pub fn words(self) -> String {
        let percent = |loss: f64| (loss * 100.0).round();
        match self {
            Change::None => "nothing changed".to_owned(),
            Change::OneCell(loss) => format!("one cell {} % slower", percent(loss)),
            Change::All(loss) => format!("all cells {} % slower", percent(loss)),
        }
    }

    /// The true ratio of each cell, new to old.
    pub fn ratios(self) -> Vec<f64> {
        let of = |cell: usize| match self {
            Change::None => 1.0,
            Change::OneCell(loss) => {
                if cell == SLOWER {
                    1.0 - loss
                } else {
                    1.0
                }
            }
            Change::All(loss) => 1.0 - loss,
        };
        (0..CELLS).map(of).collect()
    }

    /// The profile of the new engine. A rate that is less by a share comes of steps that are longer by
    /// more than that.
    pub fn profile(self) -> String {
        let longer = |loss: f64| format!("{}%", 100.0 * loss / (1.0 - loss));
        let fault = match self {
            Change::None => String::new(),
            Change::OneCell(loss) => {
                let (context, concurrency) = (CONTEXTS[SLOWER / 6], SLOWER % 6 + 1);
                format!(
                    "\n[[fault]]\nkind = \"slow\"\nwhat = \"step\"\nby = \"{}\"\ncontext = {context}\nbatch = {concurrency}\n",
                    longer(loss)
                )
            }
            Change::All(loss) => {
                format!("\n[[fault]]\nkind = \"slow\"\nwhat = \"all\"\nby = \"{}\"\n", longer(loss))
            }
        };
        format!("{ENGINE}{fault}")
    }
}

/// The contexts of `SUITE`, whose concurrencies are 1 to 6.
const CONTEXTS: [u64; 6] = [64, 96, 128, 160, 192, 256];

/// What one upgrade came to.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// The values of both engines, pair by pair.
    pub cells: Cells,
    /// What tokgate said.
    pub said: Said,
    /// The ratio of each cell as it was judged.
    pub ratios: Vec<Option<Estimate>>,
    /// The mean ratio of all.
    pub mean: Option<Estimate>,
    /// Minutes that engines were held, both sides together.
    pub minutes: f64,
}
