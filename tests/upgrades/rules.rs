//! Rules by which an upgrade can be judged, over plain pairs of values, and how often each is right.
//!
//! Pure. Where the pairs come from, a simulated engine or a generator of numbers, is not known here.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use tokgate::judge::paired::{self, Pair};
use tokgate::judge::power::{self, Design, Question};
use tokgate::judge::ratio::{LogMean, moments};
use tokgate::judge::{Bound, BoundVerdict, Estimate, Method, Side, limit};

/// One-sided level of a verdict on a whole upgrade.
pub const ALPHA: f64 = 0.05;

/// The pairs of each cell, in order of the pairs; more is better.
pub type Cells = Vec<Vec<Pair>>;

/// What a rule says of an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Cells that it calls slower.
    pub named: BTreeSet<usize>,
    /// Whether it calls the whole slower.
    pub whole: bool,
}

impl Said {
    /// Whether the upgrade does not go through.
    pub fn red(&self) -> bool {
        self.whole || !self.named.is_empty()
    }
}

/// A loss is one where both are so: the estimate is below the least ratio, and the interval below 1.
pub fn bound(least: f64) -> Bound {
    Bound { side: Side::Min, target: 1.0, limit: least }
}

/// The ratio of a cell's pairs without the effect of their order; `None` of too few pairs.
pub fn ratio(pairs: &[Pair], alpha: f64) -> Option<Estimate> {
    let ratios = paired::log_ratios(pairs).ok()?;
    paired::fit(&ratios).ok()?.log_mean(None).estimate(alpha, Method::Paired).ok()
}

/// The mean ratio over all cells.
pub fn mean_ratio(cells: &Cells, alpha: f64) -> Option<Estimate> {
    let ratios: Option<Vec<_>> = cells.iter().map(|pairs| paired::log_ratios(pairs).ok()).collect();
    let whole = paired::over_cells(&ratios?).ok()?;
    paired::fit(&whole).ok()?.log_mean(None).estimate(alpha, Method::Paired).ok()
}

/// The level of each cell where the mean of all takes half of alpha, and the cells share the other half.
pub fn level(cells: usize) -> f64 {
    ALPHA / 2.0 / cells as f64
}

/// tokgate's own rule.
pub fn paired(cells: &Cells, least: f64, least_mean: f64) -> Said {
    let fails = |found: Option<Estimate>, least: f64| {
        found.is_some_and(|found| limit::judge(&found, &bound(least)) == BoundVerdict::Fail)
    };
    Said {
        named: named(cells, |pairs| fails(ratio(pairs, level(cells.len())), least)),
        whole: fails(mean_ratio(cells, ALPHA / 2.0), least_mean),
    }
}

/// One run of each side, and a threshold: what most gates do.
pub fn threshold(cells: &Cells, least: f64) -> Said {
    let lost = |pairs: &[Pair]| pairs[0].candidate / pairs[0].baseline < least;
    Said { named: named(cells, lost), whole: false }
}

/// A one-sided t test of each cell's pairs at five percent, whatever the number of cells.
pub fn uncorrected(cells: &Cells) -> Said {
    let lost = |pairs: &[Pair]| {
        let logs: Vec<f64> =
            pairs.iter().map(|pair| (pair.candidate / pair.baseline).ln()).collect();
        let (mean, squares) = moments(&logs);
        let n = logs.len() as f64;
        let error = (squares / (n - 1.0) / n).sqrt();
        let found = LogMean { mean, error, df: n - 1.0, n: logs.len() as u64 };
        let upper = found.estimate(ALPHA, Method::Paired).ok().and_then(|found| found.upper);
        upper.is_some_and(|upper| upper < 1.0)
    };
    Said { named: named(cells, lost), whole: false }
}

fn named(cells: &Cells, lost: impl Fn(&[Pair]) -> bool) -> BTreeSet<usize> {
    cells.iter().enumerate().filter(|(_, pairs)| lost(pairs)).map(|(index, _)| index).collect()
}

/// How noisy launches are: standard deviations as shares of a value.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// What all cells of a launch have in common.
    pub launch: f64,
    /// What each cell of a launch has by itself.
    pub cell: f64,
}

impl Noise {
    /// Standard deviation of the log ratio of a pair: of one cell, and of the mean of so many.
    pub fn of_a_pair(&self, cells: usize) -> f64 {
        (2.0 * (self.launch.powi(2) + self.cell.powi(2) / cells as f64)).sqrt()
    }

    /// Draws the pairs of an upgrade whose cells have these ratios of new to old.
    pub fn draw(&self, rng: &mut StdRng, ratios: &[f64], pairs: u32) -> Cells {
        let mut normal = || -> f64 { StandardNormal.sample(rng) };
        let mut cells: Cells = vec![Vec::new(); ratios.len()];
        for index in 0..pairs {
            let (old, new) = (normal() * self.launch, normal() * self.launch);
            for (cell, ratio) in cells.iter_mut().zip(ratios) {
                let order = paired::order(index);
                let baseline = 100.0 * (old + normal() * self.cell).exp();
                let candidate = 100.0 * ratio * (new + normal() * self.cell).exp();
                cell.push(Pair { order, baseline, candidate });
            }
        }
        cells
    }
}

/// The chance that a loss is seen in so many pairs.
pub fn chance(pairs: u32, sd: f64, alpha: f64, least: f64, loss: f64) -> f64 {
    let design = Design::pairs(pairs.into()).expect("at least four pairs");
    power::power(design, Question { alpha, limit: -least.ln() }, sd, -(-loss).ln_1p())
}

/// A share of some trials.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    pub hits: u32,
    pub of: u32,
}

impl Share {
    pub fn add(&mut self, hit: bool) {
        self.hits += u32::from(hit);
        self.of += 1;
    }

    /// The share itself.
    pub fn value(&self) -> f64 {
        f64::from(self.hits) / f64::from(self.of)
    }

    /// Its 95 % interval, as Wilson has it.
    pub fn interval(&self) -> (f64, f64) {
        let (z, n, p) = (1.959_964, f64::from(self.of), self.value());
        let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }

    /// Whether it is at least `wanted`, less three standard errors.
    pub fn reaches(&self, wanted: f64) -> bool {
        self.value() >= wanted - self.doubt(wanted)
    }

    /// Whether it is at most `allowed`, and three standard errors.
    pub fn stays_below(&self, allowed: f64) -> bool {
        self.value() <= allowed + self.doubt(allowed)
    }

    /// Three standard errors of a share that should be `truth`.
    pub fn doubt(&self, truth: f64) -> f64 {
        3.0 * (truth * (1.0 - truth) / f64::from(self.of)).sqrt()
    }

    /// In words.
    pub fn words(&self) -> String {
        let (low, high) = self.interval();
        format!("{:.1} % ({:.1}–{:.1})", 100.0 * self.value(), 100.0 * low, 100.0 * high)
    }
}

/// How often intervals hold the truth, where those of an upgrade have noise in common: each upgrade
/// is one witness.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    /// Of each upgrade the share of its intervals that hold it.
    shares: Vec<f64>,
}

impl Coverage {
    /// An upgrade's intervals, in which `truths` should lie.
    pub fn add(&mut self, intervals: &[Option<Estimate>], truths: &[f64]) {
        let holds = |(found, truth): (&Option<Estimate>, &f64)| {
            let bounds = found.and_then(|found| found.lower.zip(found.upper));
            bounds.is_some_and(|(lower, upper)| lower <= *truth && *truth <= upper)
        };
        let hits = intervals.iter().zip(truths).filter(|one| holds(*one)).count();
        self.shares.push(hits as f64 / intervals.len() as f64);
    }

    /// The share over all upgrades, and its standard error.
    pub fn value(&self) -> (f64, f64) {
        let (mean, squares) = moments(&self.shares);
        let n = self.shares.len() as f64;
        (mean, (squares / (n - 1.0) / n).sqrt())
    }
}
