//! Two runs beside each other: the figures of each cell as a ratio, and what else is different.
//!
//! Pure: records and baselines in, a [`Comparison`] out. It decides which cells belong together, which ratio
//! has an interval, and what the relative rules of a suite say of it. It reads no file and renders nothing.

mod difference;
mod mean;
mod pairs;
mod rules;
mod side;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::RunRecord;
use super::baseline::{Baseline, middle};
use crate::judge::ratio::{LogMean, Noise, against_runs, logarithms};
use crate::judge::{Estimate, Method, NoData};
use crate::measure::Direction;

pub use difference::Change;
use pairs::Pairs;
pub use rules::{Held, Rule};
use side::{Cell, Side};

/// The level of each bound of the intervals that are shown: both make 90 %.
pub const ALPHA: f64 = 0.05;

/// Where one side's figures come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A run.
    Record(Box<RunRecord>),
    /// Recorded runs.
    Baseline(Baseline),
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// What is held against.
    A,
    /// What is looked at.
    B,
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Which::A => "A",
            Which::B => "B",
        })
    }
}

/// What of two sources is compared.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The variant of A, where it is to be one alone.
    pub variant_a: Option<String>,
    /// The variant of B.
    pub variant_b: Option<String>,
    /// Whose relative rules are applied to B ÷ A.
    pub rules: BTreeSet<Which>,
}

/// Why two sources can't be compared in that way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// A variant that is not there.
    #[error("{which} has no variant `{name}`; it has {known}")]
    Variant {
        /// Whose.
        which: Which,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Rules of what has none.
    #[error("{which} is a baseline, which has no rules")]
    Ruleless {
        /// Whose.
        which: Which,
    },
    /// A suite without ratios.
    #[error(
        "the suite of {which} has no `min-ratio`, `max-ratio` or `min-mean-ratio` on cells that are compared"
    )]
    NoRatio {
        /// Whose.
        which: Which,
    },
}

/// What a side is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Label {
    /// As it was named.
    pub name: String,
    /// `record` or `baseline`.
    pub kind: &'static str,
    /// `suite.name`.
    pub suite: String,
    /// Identities of its runs.
    pub runs: Vec<String>,
    /// When the last of them began, RFC 3339 in UTC.
    pub started: Option<String>,
}

/// A figure of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figure {
    /// The geometric mean of its launches, the arithmetic one where one of them is not above zero.
    pub value: f64,
    /// How many.
    pub launches: usize,
}

/// How B stands to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The interval is wholly on the good side of 1.
    Better,
    /// The interval is wholly on the bad side of 1.
    Worse,
    /// The interval has 1 in it.
    WithinNoise,
    /// Better as far as the ratio goes, which has no interval.
    BetterUnproven,
    /// Worse as far as the ratio goes, which has no interval.
    WorseUnproven,
    /// The same figure, without an interval.
    Same,
    /// There is no ratio.
    Unknown,
}

/// A metric of a cell on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Row {
    /// The metric, like `ttft.p50`.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way it gets better.
    pub better: Direction,
    /// A's figure.
    pub a: Option<Figure>,
    /// B's figure.
    pub b: Option<Figure>,
    /// B ÷ A.
    pub ratio: Option<f64>,
    /// Its interval at 90 %.
    pub interval: Option<[f64; 2]>,
    /// The noise file that told how launches differ, where one did.
    pub noise: Option<String>,
    /// Of how many pairs of launches the ratio is, where one run measured both sides in pairs.
    pub pairs: Option<usize>,
    /// Why there is no interval.
    pub no_interval: Option<String>,
    /// How B stands.
    pub standing: Standing,
}

/// A cell that both sides have.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pair {
    /// The test's name.
    pub test: String,
    /// The cell's id.
    pub cell: String,
    /// The variant of A.
    pub variant_a: Option<String>,
    /// The variant of B.
    pub variant_b: Option<String>,
    /// Why A has no figures that count.
    pub lack_a: Option<String>,
    /// Why B has none.
    pub lack_b: Option<String>,
    /// The metrics.
    pub rows: Vec<Row>,
}

/// A cell that one side alone has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lone {
    /// Who has it.
    pub side: Which,
    /// The test's name.
    pub test: String,
    /// The cell's id.
    pub cell: String,
    /// The variant.
    pub variant: Option<String>,
}

/// Two runs beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// What is held against.
    pub a: Label,
    /// What is looked at.
    pub b: Label,
    /// What differs beside the figures.
    pub changes: Vec<Change>,
    /// Words worth reading.
    pub remarks: Vec<String>,
    /// The cells of both, in the order of A.
    pub cells: Vec<Pair>,
    /// The cells of one alone.
    pub lone: Vec<Lone>,
    /// What the relative rules say; empty where none were asked for.
    pub rules: Vec<Rule>,
}

impl Comparison {
    /// How many figures stand so.
    pub fn count(&self, standing: Standing) -> usize {
        let rows = self.cells.iter().flat_map(|pair| &pair.rows);
        rows.filter(|row| row.standing == standing).count()
    }

    /// How many rules came to that.
    pub fn ruled(&self, held: Held) -> usize {
        self.rules.iter().filter(|rule| rule.held == held).count()
    }
}

/// Compares B with A, each with the name that it goes by.
///
/// # Errors
/// A variant is not there, or rules were asked for of a side that has none.
pub fn compare(
    (name_a, a): (&str, &Source),
    (name_b, b): (&str, &Source),
    choice: &Choice,
) -> Result<Comparison, Incomparable> {
    let a = Side::new(Which::A, name_a, a, choice.variant_a.as_deref())?;
    let b = Side::new(Which::B, name_b, b, choice.variant_b.as_deref())?;
    let alone = a.variants.len() == 1 && b.variants.len() == 1;
    let key = |cell: &Cell<'_>| {
        let variant = cell.variant.clone().filter(|_| !alone);
        (cell.test.clone(), cell.id.clone(), variant)
    };
    let there: HashMap<_, usize> =
        b.cells.iter().enumerate().map(|(at, cell)| (key(cell), at)).collect();
    let mut matched = Vec::new();
    let mut lone = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, cell) in a.cells.iter().enumerate() {
        match there.get(&key(cell)) {
            Some(other) => {
                taken.insert(*other);
                matched.push((at, *other));
            }
            None => lone.push(cell.lone(Which::A)),
        }
    }
    let rest = b.cells.iter().enumerate().filter(|(at, _)| !taken.contains(at));
    lone.extend(rest.map(|(_, cell)| cell.lone(Which::B)));
    let pairs = Pairs::of(&a, &b);
    let rules = rules::apply(&Both { a: &a, b: &b, matched: &matched, pairs }, &choice.rules)?;
    Ok(Comparison {
        changes: difference::changes(&a, &b, alone),
        remarks: remarks(&a, &b, pairs),
        cells: matched.iter().map(|(x, y)| pair(&a.cells[*x], &b.cells[*y], pairs)).collect(),
        lone,
        rules,
        a: a.label,
        b: b.label,
    })
}

/// Two sides, which of their cells belong together, and the pairs that they are of.
struct Both<'c, 's> {
    a: &'c Side<'s>,
    b: &'c Side<'s>,
    matched: &'c [(usize, usize)],
    pairs: Option<Pairs>,
}

impl Both<'_, '_> {
    /// For each cell of a side that both have, where it stands in A and in B.
    fn places(&self, which: Which) -> BTreeMap<usize, (usize, usize)> {
        let own = |pair: &(usize, usize)| match which {
            Which::A => pair.0,
            Which::B => pair.1,
        };
        self.matched.iter().map(|pair| (own(pair), *pair)).collect()
    }
}

/// What the reader should know before believing a ratio.
fn remarks(a: &Side<'_>, b: &Side<'_>, pairs: Option<Pairs>) -> Vec<String> {
    let mut found = Vec::new();
    for side in [a, b] {
        found.extend(side.remarks.iter().map(|words| format!("{} {words}", side.which)));
    }
    if let Some(pairs) = pairs {
        found.push(format!(
            "one run measured A and B in {} pairs, and each ratio is that of its pairs",
            pairs.count
        ));
    }
    let both = a.label.runs.iter().filter(|id| b.label.runs.contains(id));
    let both: Vec<&str> = both.map(String::as_str).collect();
    if !both.is_empty() && a.variants == b.variants {
        found.push(format!("run {} is on both sides", both.join(", ")));
    }
    found
}

fn pair(a: &Cell<'_>, b: &Cell<'_>, pairs: Option<Pairs>) -> Pair {
    // Records have the order of the catalogue, baselines that of names.
    let (first, second) = if a.planned().is_some() { (a, b) } else { (b, a) };
    let mut names = first.metrics();
    names.extend(second.metrics());
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Pair {
        test: a.test.clone(),
        cell: a.id.clone(),
        variant_a: a.variant.clone(),
        variant_b: b.variant.clone(),
        lack_a: a.lack.clone(),
        lack_b: b.lack.clone(),
        rows: names.iter().filter_map(|name| row(name, a, b, pairs)).collect(),
    }
}

fn row(metric: &str, a: &Cell<'_>, b: &Cell<'_>, pairs: Option<Pairs>) -> Option<Row> {
    let (of_a, of_b) = (a.values(metric), b.values(metric));
    let known = of_a.as_ref().or(of_b.as_ref())?;
    let (unit, better) = (known.unit.clone(), known.better);
    let [of_a, of_b] = [of_a, of_b].map(|it| it.map(|it| it.launches).unwrap_or_default());
    let noise = b.noise(metric).or_else(|| a.noise(metric));
    let ratio = middle(&of_b).zip(middle(&of_a)).map(|(b, a)| b / a);
    let found = match of_a.is_empty() || of_b.is_empty() {
        true => None,
        false => {
            let noise = noise.as_ref().map(|it| it.noise());
            Some(estimate((&of_a, &of_b), pairs, noise, ALPHA))
        }
    };
    let paired = pairs.filter(|pairs| pairs.are(&of_a, &of_b)).map(|pairs| pairs.count);
    let (interval, no_interval) = match found {
        None => (None, None),
        Some(Ok(found)) => (found.lower.zip(found.upper).map(|(low, high)| [low, high]), None),
        Some(Err(why)) => (None, Some(why.to_string())),
    };
    Some(Row {
        metric: metric.to_owned(),
        unit,
        better,
        a: figure(&of_a),
        b: figure(&of_b),
        ratio,
        interval,
        pairs: paired.filter(|_| interval.is_some()),
        noise: noise.filter(|_| interval.is_some()).map(|noise| noise.file.clone()),
        no_interval,
        standing: standing(ratio, interval, better),
    })
}

fn figure(launches: &[f64]) -> Option<Figure> {
    let mean = || launches.iter().sum::<f64>() / launches.len() as f64;
    let value = middle(launches).unwrap_or_else(mean);
    (!launches.is_empty()).then_some(Figure { value, launches: launches.len() })
}

/// How B stands to A by ratio and interval.
fn standing(ratio: Option<f64>, interval: Option<[f64; 2]>, better: Direction) -> Standing {
    let Some(ratio) = ratio else { return Standing::Unknown };
    // Upright: more is better.
    let (ratio, interval) = match better {
        Direction::Higher => (ratio, interval),
        Direction::Lower => (1.0 / ratio, interval.map(|[low, high]| [1.0 / high, 1.0 / low])),
    };
    match interval {
        Some([low, _]) if low > 1.0 => Standing::Better,
        Some([_, high]) if high < 1.0 => Standing::Worse,
        Some(_) => Standing::WithinNoise,
        None if ratio > 1.0 => Standing::BetterUnproven,
        None if ratio < 1.0 => Standing::WorseUnproven,
        None => Standing::Same,
    }
}

/// B ÷ A with its interval, each bound one-sided at `alpha`, from what each launch gave.
///
/// The pairs make it, where both sides are of pairs and have a value of each. Else the spread of launches on both
/// sides together makes the interval, or `noise`; which side has the only launch makes no difference.
///
/// # Errors
/// One launch each and no `noise`, or a value of which there is no ratio.
fn estimate(
    (a, b): (&[f64], &[f64]),
    pairs: Option<Pairs>,
    noise: Option<Noise>,
    alpha: f64,
) -> Result<Estimate, NoData> {
    if let Some(pairs) = pairs.filter(|pairs| pairs.are(a, b)) {
        return pairs.estimate(a, b, noise, alpha);
    }
    logarithms(a, "A").and_then(|_| logarithms(b, "B"))?;
    if noise.is_none() && a.len() < 2 && b.len() < 2 {
        return Err(NoData("one launch each, no interval".to_owned()));
    }
    let found = if a.len() < 2 && noise.is_none() {
        // The ratio the other way round has the same error.
        let inverse = against_runs(b, a, None)?;
        LogMean { mean: -inverse.mean, ..inverse }
    } else {
        against_runs(a, b, noise)?
    };
    found.estimate(alpha, Method::Baseline)
}

#[cfg(test)]
mod tests;
