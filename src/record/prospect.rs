//! Prospects: what the comparisons of a plan will be able to see, and what it takes to see a given loss,
//! before anything has run.
//!
//! Each limit is asked as it will be judged: by pairs, by launches against recorded runs or another
//! variant, or by launches alone, at the level that all comparisons of the plan leave it, by its own
//! spread or by that of a noise file. How much launches differ is stated, or told by a file of noise or of
//! runs. The mathematics is in `judge::power`; how long an effort takes is the plan's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::baseline::{Baseline, CellLine, Key, LEAST_RUNS};
use super::noise::{NoiseFile, has_noise};
use crate::judge::power::{Design, Losses, Question, SURELY, fewest, power};
use crate::judge::ratio::{Noise, family_level, logarithms, moments};
use crate::judge::{Bound, Severity};
use crate::matrix::{Cell, CellBound, Plan};
use crate::measure::{Base, Metric};
use crate::suite::model::{Place, Reference};

/// The most pairs or launches that are looked at: nobody starts an engine more often for one comparison.
pub const MOST: u64 = 1_000;
/// Recorded runs that are reckoned with where there is no file yet.
pub const USUAL_RUNS: u64 = 5;
/// A limit is blind if losses go unseen that are so many times as large as what it tolerates …
const BLIND: f64 = 2.0;
/// … where what it tolerates is taken to be this at least: no limit is asked to see less than 2 %.
const LEAST_TOLERATED: f64 = 0.01;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// The loss, as a fraction.
    pub loss: f64,
    /// With which probability it is to be seen.
    pub surely: f64,
}

/// What is known of noise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// Standard deviation of the logarithm of a launch's value, of all cells and metrics: stated.
    pub stated: Option<f64>,
    /// A noise file that tells it.
    pub told: Option<&'a NoiseFile>,
    /// The noise file that the run will be judged by.
    pub judging: Option<&'a NoiseFile>,
    /// Recorded runs that could be read, by file.
    pub baselines: Option<&'a BTreeMap<PathBuf, Baseline>>,
}

/// By what a limit is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// So many pairs.
    Pairs(u64),
    /// So many launches of either of two variants.
    Variants(u64),
    /// So many launches against recorded runs.
    Runs {
        /// The runs that are recorded, or will be.
        recorded: u64,
        /// The launches.
        launches: u64,
    },
    /// So many launches, by themselves.
    Launches(u64),
}

impl Way {
    /// How many pairs or launches are declared.
    pub fn declared(self) -> u64 {
        match self {
            Way::Pairs(n) | Way::Variants(n) | Way::Launches(n) => n,
            Way::Runs { launches, .. } => launches,
        }
    }

    /// The same with `n` pairs or launches.
    pub fn with(self, n: u64) -> Way {
        match self {
            Way::Pairs(_) => Way::Pairs(n),
            Way::Variants(_) => Way::Variants(n),
            Way::Launches(_) => Way::Launches(n),
            Way::Runs { recorded, .. } => Way::Runs { recorded, launches: n },
        }
    }

    /// The design, judged by its own spread or by one with `known` degrees of freedom; `None` where its own
    /// can't be seen.
    fn design(self, known: Option<f64>) -> Option<Design> {
        let own = match self {
            Way::Pairs(n) => Design::pairs(n),
            Way::Variants(n) if known.is_some() => Some(Design { factor: 2.0 / n as f64, df: 0.0 }),
            Way::Variants(n) => Design::runs(n, n),
            Way::Runs { recorded, launches } => Design::runs(recorded, launches),
            Way::Launches(n) => (n >= 2 || (n == 1 && known.is_some()))
                .then(|| Design { factor: 1.0 / n as f64, df: n as f64 - 1.0 }),
        }?;
        Some(known.map_or(own, |df| own.calibrated(df)))
    }

    /// Standard deviation of one observation, given that of one launch: a pair has the noise of two.
    fn sd(self, launch: f64) -> f64 {
        match self {
            Way::Pairs(_) => launch * std::f64::consts::SQRT_2,
            Way::Variants(_) | Way::Runs { .. } | Way::Launches(_) => launch,
        }
    }

    /// The fewest that can be asked for, and in which steps.
    fn steps(self) -> (u64, u64) {
        match self {
            Way::Pairs(_) => (4, 2),
            Way::Variants(_) | Way::Runs { .. } | Way::Launches(_) => (1, 1),
        }
    }
}

/// Who tells how launches differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Teller {
    /// Whoever asks.
    Stated,
    /// A noise file.
    File,
    /// The recorded runs themselves.
    Runs,
}

/// What it takes to see the loss that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// So many pairs or launches.
    Enough(u64),
    /// No number: the limit tolerates the loss.
    Tolerated,
    /// No number up to [`MOST`].
    TooMany,
    /// Nobody knows the noise.
    Unknown,
}

/// A limit of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Prospect {
    /// Index into the plan's cells.
    pub cell: usize,
    /// The metric.
    pub metric: Metric,
    /// What is asked; of a ratio its target is 1.
    pub bound: Bound,
    /// Where it stands.
    pub place: Place,
    /// By what it is judged.
    pub way: Way,
    /// What its view follows from.
    pub outlook: Outlook,
    /// What it sees.
    pub view: View,
}

/// What a comparison sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Its one-sided level.
    pub level: f64,
    /// What its limit tolerates, as a fraction.
    pub tolerated: f64,
    /// Standard deviation of the logarithm of one launch's value, with who told it.
    pub noise: Option<(f64, Teller)>,
    /// The smallest loss, as a fraction, that is seen as surely as asked, by what is declared; `None` where
    /// the noise is unknown or will not show.
    pub sees: Option<f64>,
    /// The probability that the loss that was asked about is seen by what is declared; likewise.
    pub chance: Option<f64>,
    /// What it takes.
    pub needs: Need,
}

/// The mean ratio of all cells: its loss is one of every cell.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanProspect {
    /// The pairs that are declared.
    pub pairs: u64,
    /// Cells in it.
    pub cells: usize,
    /// The limit.
    pub limit: f64,
    /// Where it stands.
    pub place: Place,
    /// What it sees. What launches have in common is taken to be all of their noise, so that no cell adds to
    /// what the others tell.
    pub view: View,
}

/// What a comparison's view follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// By what it is judged.
    pub way: Way,
    /// Its one-sided level.
    pub level: f64,
    /// What its limit tolerates, as a positive logarithm.
    pub limit: f64,
    /// Standard deviation of the logarithm of one launch's value, with who told it.
    pub noise: Option<(f64, Teller)>,
    /// Degrees of freedom of the noise file that it is judged by, if it is.
    pub known: Option<f64>,
}

impl Outlook {
    /// What its limit tolerates, as a fraction.
    pub fn tolerated(&self) -> f64 {
        1.0 - (-self.limit).exp()
    }

    fn question(&self) -> Question {
        Question { alpha: self.level, limit: self.limit }
    }

    /// The probability that `n` pairs or launches see a loss (a fraction).
    fn chance_of(&self, n: u64, loss: f64) -> Option<f64> {
        let (launch, _) = self.noise?;
        let design = self.way.with(n).design(self.known)?;
        Some(power(design, self.question(), self.way.sd(launch), -(-loss).ln_1p()))
    }

    /// The probability that what is declared sees a loss (a fraction).
    pub fn chance(&self, loss: f64) -> Option<f64> {
        self.chance_of(self.way.declared(), loss)
    }

    /// The smallest loss, as a fraction, that what is declared sees so surely.
    pub fn sees(&self, surely: f64, losses: &mut Losses) -> Option<f64> {
        self.sees_with(self.way.declared(), surely, losses)
    }

    /// The same of `n` pairs or launches.
    fn sees_with(&self, n: u64, surely: f64, losses: &mut Losses) -> Option<f64> {
        let (launch, _) = self.noise?;
        let design = self.way.with(n).design(self.known)?;
        Some(losses.smallest(design, self.question(), self.way.sd(launch), surely))
    }

    /// What it takes to see a loss.
    pub fn needs(&self, asked: Asked, losses: &mut Losses) -> Need {
        if self.noise.is_none() {
            return Need::Unknown;
        }
        if -(-asked.loss).ln_1p() <= self.limit {
            return Need::Tolerated;
        }
        let (first, step) = self.way.steps();
        let enough =
            |n: u64| self.sees_with(n, asked.surely, losses).is_some_and(|seen| seen <= asked.loss);
        fewest(first, step, MOST, enough).map_or(Need::TooMany, Need::Enough)
    }

    /// The loss that the limit should see: twice what it tolerates, 2 % at least.
    pub fn worth_seeing(&self) -> f64 {
        BLIND * self.tolerated().max(LEAST_TOLERATED)
    }

    /// Whether losses that are worth seeing go unseen more than once in 20 times. A number without slack says
    /// of no loss that it is worth seeing: how far the engine stands from it nobody tells.
    pub fn is_blind(&self) -> bool {
        if matches!(self.way, Way::Launches(_)) && self.limit == 0.0 {
            return false;
        }
        self.chance(self.worth_seeing().min(0.999)).is_some_and(|chance| chance < SURELY)
    }
}

/// Views by what they follow from: many cells are alike, and each takes a search.
#[derive(Debug, Default)]
struct Views {
    known: HashMap<(Way, [u64; 4], Option<u64>), View>,
    losses: Losses,
}

impl Views {
    /// What a comparison sees.
    fn of(&mut self, outlook: Outlook, asked: Option<Asked>) -> View {
        let Outlook { way, level, limit, noise, known } = outlook;
        let blank = View {
            level,
            tolerated: outlook.tolerated(),
            noise,
            sees: None,
            chance: None,
            needs: Need::Unknown,
        };
        let (Some(asked), Some((sd, teller))) = (asked, noise) else { return blank };
        let bits = [level, limit, sd].map(f64::to_bits);
        let key = (way, [bits[0], bits[1], bits[2], teller as u64], known.map(f64::to_bits));
        let losses = &mut self.losses;
        *self.known.entry(key).or_insert_with(|| View {
            sees: outlook.sees(asked.surely, losses),
            chance: outlook.chance(asked.loss),
            needs: outlook.needs(asked, losses),
            ..blank
        })
    }
}

/// What the limits of a plan that can fail a cell will see, in the order of the plan; then the mean ratio,
/// where it has a limit. Limits on what has no noise, such as counts, are left out. Where nothing is
/// asked, views are blank.
pub fn prospects(
    plan: &Plan,
    sources: Sources<'_>,
    asked: Option<Asked>,
) -> (Vec<Prospect>, Option<MeanProspect>) {
    let alpha = plan.suite.policy.alpha;
    let ratio_level = family_level(alpha, plan.comparisons());
    let lines = recorded(sources);
    let mut views = Views::default();
    let mut found = Vec::new();
    let mut mean = Mean::default();
    for (cell, planned) in plan.cells.iter().enumerate() {
        let key = |metric: Metric| Key {
            test: plan.test(planned).name.clone(),
            variant: plan.variant(planned).map(str::to_owned),
            cell: plan.cell_id(planned),
            metric: metric.to_string(),
        };
        let mut compared: Vec<f64> = Vec::new();
        let mut metrics: HashSet<Metric> = HashSet::new();
        for bound in plan.bounds(planned) {
            let Some(asks) = bound.bound else { continue };
            // Shares of failed requests are counted, and may be none.
            if !has_noise(bound.metric.base) || bound.metric.base == Base::ErrorRate {
                continue;
            }
            let key = key(bound.metric);
            let line = match bound.against.as_ref().map(|against| &against.reference) {
                Some(Reference::File(file)) => lines.get(&(file, key.clone())).copied(),
                Some(Reference::Git { .. } | Reference::Variant(_)) | None => None,
            };
            let Some((way, relative)) = way(plan, planned, &bound, line) else { continue };
            // The two sides of a ratio of variants have each their own noise.
            let other = match bound.against.as_ref().map(|against| &against.reference) {
                Some(Reference::Variant(setting)) => {
                    let variant = plan.suite.settings[*setting as usize].variant.clone();
                    Some(Key { variant, ..key.clone() })
                }
                Some(Reference::File(_) | Reference::Git { .. }) | None => None,
            };
            let of = |file: &NoiseFile| told(file, &key, other.as_ref());
            let noise = noise(sources, &of, line);
            if let (Way::Pairs(_), None) = (way, plan.quarantine(planned))
                && metrics.insert(bound.metric)
            {
                compared.extend(noise.map(|(sd, _)| sd));
            }
            let limit = (asks.limit / asks.target).ln().abs();
            if bound.severity != Severity::Fail || !limit.is_finite() {
                continue;
            }
            let known = sources.judging.and_then(of).map(|noise| noise.df);
            let level = if relative { ratio_level } else { alpha };
            let outlook = Outlook { way, level, limit, noise, known };
            let view = views.of(outlook, asked);
            let (metric, place) = (bound.metric, bound.place);
            found.push(Prospect { cell, metric, bound: asks, place, way, outlook, view });
        }
        mean.add(metrics.len(), &compared);
    }
    (found, mean.prospect(plan, &mut views, asked))
}

/// By what a bound is judged, and whether it is one of the comparisons that share a level.
fn way(
    plan: &Plan,
    cell: &Cell,
    bound: &CellBound,
    line: Option<&CellLine>,
) -> Option<(Way, bool)> {
    let rounds = u64::from(plan.rounds(cell));
    let Some(against) = &bound.against else { return Some((Way::Launches(rounds), false)) };
    let way = match &against.reference {
        Reference::Variant(setting) => {
            let pairs = plan.suite.compare.as_ref().is_some_and(|compare| {
                compare.baseline == *setting && compare.candidate == cell.setting
            });
            if pairs { Way::Pairs(rounds) } else { Way::Variants(rounds) }
        }
        Reference::File(_) | Reference::Git { .. } => {
            let recorded = line.map_or(USUAL_RUNS, |line| line.values.len() as u64);
            Way::Runs { recorded, launches: rounds }
        }
    };
    Some((way, true))
}

/// What a noise file tells of a cell, and of the same cell of the variant that it is held against.
fn told(file: &NoiseFile, key: &Key, other: Option<&Key>) -> Option<Noise> {
    let of = |key| file.find(key).map(|line| line.noise());
    match (of(key), other.and_then(of)) {
        (Some(own), Some(other)) => Some(own.with(other)),
        (own, other) => own.or(other),
    }
}

/// How launches of a cell differ.
fn noise(
    sources: Sources<'_>,
    of: &dyn Fn(&NoiseFile) -> Option<Noise>,
    line: Option<&CellLine>,
) -> Option<(f64, Teller)> {
    if let Some(stated) = sources.stated {
        return Some((stated, Teller::Stated));
    }
    if let Some(noise) = sources.told.or(sources.judging).and_then(of) {
        return Some((noise.sd, Teller::File));
    }
    let runs = logarithms(&line?.runs(), "the baseline").ok()?;
    let (_, squares) = moments(&runs);
    (runs.len() >= LEAST_RUNS).then(|| ((squares / (runs.len() - 1) as f64).sqrt(), Teller::Runs))
}

/// The lines of recorded runs by file and key.
fn recorded<'a>(sources: Sources<'a>) -> HashMap<(&'a PathBuf, Key), &'a CellLine> {
    let files = sources.baselines.into_iter().flatten();
    files
        .flat_map(|(file, baseline)| {
            baseline.cells.iter().map(move |line| ((file, line.key()), line))
        })
        .collect()
}

/// The mean ratio in the making.
#[derive(Debug, Default)]
struct Mean {
    cells: usize,
    sum: f64,
    unknown: bool,
}

impl Mean {
    /// Adds a cell that has so many metrics in pairs, with the noise of those whose noise is known.
    fn add(&mut self, metrics: usize, known: &[f64]) {
        if metrics == 0 {
            return;
        }
        self.cells += 1;
        self.unknown |= known.len() < metrics;
        self.sum += known.iter().sum::<f64>() / metrics as f64;
    }

    fn prospect(
        self,
        plan: &Plan,
        views: &mut Views,
        asked: Option<Asked>,
    ) -> Option<MeanProspect> {
        let compare = plan.suite.compare.as_ref()?;
        let (limit, place) = compare.min_mean_ratio.clone()?;
        let pairs = u64::from(compare.pairs);
        // Of noise that all cells have in common no mean takes anything away.
        let sd = self.sum / self.cells as f64;
        let noise = (self.cells > 0 && !self.unknown).then_some((sd, Teller::Stated));
        let level = plan.suite.policy.alpha / 2.0;
        let way = Way::Pairs(pairs);
        let outlook = Outlook { way, level, limit: limit.ln().abs(), noise, known: None };
        let view = views.of(outlook, asked);
        Some(MeanProspect { pairs, cells: self.cells, limit, place, view })
    }
}

#[cfg(test)]
mod tests;
