//! The table: what each rule made of many upgrades whose truth is known.
//!
//! It counts, and decides nothing about the upgrades.

use std::fmt::Write as _;

use super::rules::{ALPHA, Coverage, Said, Share, mean_ratio, ratio, threshold, uncorrected};
use super::{CELLS, Change, LEAST, SLOWER, Upgrade};

/// What one rule made of the upgrades.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// Upgrades that it calls red.
    pub red: Share,
    /// Those in which it names the cell that is slower.
    pub found: Share,
    /// Those in which it names a cell that is not.
    pub wrong: Share,
    /// Those in which it calls the whole slower.
    pub whole: Share,
    minutes: f64,
}

impl Rule {
    fn add(&mut self, change: Change, said: &Said, minutes: f64) {
        let slower = |cell: &usize| match change {
            Change::None => false,
            Change::OneCell(_) => *cell == SLOWER,
            Change::All(_) => true,
        };
        self.red.add(said.red());
        self.found.add(said.named.iter().any(slower));
        self.wrong.add(said.named.iter().any(|cell| !slower(cell)));
        self.whole.add(said.whole);
        self.minutes += minutes;
    }

    fn row(&self, change: Change, name: &str) -> String {
        let (found, wrong) = match change {
            Change::None => ("–".to_owned(), self.wrong.words()),
            Change::OneCell(_) => (self.found.words(), self.wrong.words()),
            Change::All(_) => (self.found.words(), "–".to_owned()),
        };
        // Numbers out of a generator hold no engine.
        let minutes = match self.minutes / f64::from(self.red.of) {
            0.0 => "–".to_owned(),
            minutes => format!("{minutes:.1}"),
        };
        format!(
            "| {} | {name} | {} | {found} | {wrong} | {} | {minutes} |\n",
            change.words(),
            self.red.words(),
            self.whole.words(),
        )
    }
}

/// What all rules made of upgrades with one change.
#[derive(Debug, Clone)]
pub struct Table {
    change: Change,
    pairs: u32,
    pub ours: Rule,
    pub single: Rule,
    pub plain: Rule,
    /// The cells' intervals as they were judged, and those of the same pairs at [`ALPHA`] for each side.
    pub judged: Coverage,
    pub at_alpha: Coverage,
    pub mean_at_alpha: Coverage,
}

impl Table {
    pub fn new(change: Change, pairs: u32) -> Table {
        let rule = Rule::default;
        let none = Coverage::default;
        Table {
            change,
            pairs,
            ours: rule(),
            single: rule(),
            plain: rule(),
            judged: none(),
            at_alpha: none(),
            mean_at_alpha: none(),
        }
    }

    /// One upgrade more.
    pub fn add(&mut self, upgrade: &Upgrade) {
        let Upgrade { cells, minutes, .. } = upgrade;
        self.ours.add(self.change, &upgrade.said, *minutes);
        // It takes the first pair alone.
        let first = minutes / f64::from(self.pairs);
        self.single.add(self.change, &threshold(cells, LEAST), first);
        self.plain.add(self.change, &uncorrected(cells), *minutes);
        let truths = self.change.ratios();
        let mean = truths.iter().map(|ratio| ratio.ln()).sum::<f64>() / CELLS as f64;
        self.judged.add(&upgrade.ratios, &truths);
        let again: Vec<_> = cells.iter().map(|pairs| ratio(pairs, ALPHA)).collect();
        self.at_alpha.add(&again, &truths);
        self.mean_at_alpha.add(&[mean_ratio(cells, ALPHA)], &[mean.exp()]);
    }

    /// The head of the table.
    pub fn head() -> &'static str {
        "| upgrade | rule | red | slower cell named | another cell named | mean ratio red | engine minutes |\n\
         |---|---|---:|---:|---:|---:|---:|\n"
    }

    /// Its rows for this change.
    pub fn rows(&self) -> String {
        [
            self.ours.row(self.change, &format!("tokgate, {} pairs", self.pairs)),
            self.single.row(self.change, "one run each, threshold 3 %"),
            self.plain.row(self.change, &format!("t test at 5 % per cell, {} pairs", self.pairs)),
        ]
        .concat()
    }

    /// How often intervals hold the truth; `level`: one-sided, of those that were judged by.
    pub fn coverage(&self, level: f64) -> String {
        let mut out = String::new();
        for (name, found, level) in [
            ("cells, as judged", &self.judged, level),
            ("cells, at 5 % each side", &self.at_alpha, ALPHA),
            ("mean ratio, at 5 % each side", &self.mean_at_alpha, ALPHA),
        ] {
            let (value, error) = found.value();
            let _ = writeln!(
                out,
                "| {} | {name} | {:.2} % | {:.2} % ± {:.2} |",
                self.change.words(),
                100.0 * (1.0 - 2.0 * level),
                100.0 * value,
                100.0 * error
            );
        }
        out
    }
}
