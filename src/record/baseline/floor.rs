//! Floors and ceilings out of recorded runs: which number stands for which cells, and what it is to be.
//!
//! A limit is the one-sided tolerance bound of the loosest of its cells, rounded to the loose side, or looser
//! where the suite grants more slack than the noise asks for. It reads and writes no file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::{Baseline, CellLine, Key, LEAST_RUNS};
use crate::judge::tolerance::{Tolerance, factor};
use crate::judge::{Bound, Side};
use crate::matrix::Plan;
use crate::matrix::bound::with_slack;
use crate::measure::{Base, Metric};
use crate::suite::SourceMap;
use crate::suite::model::{GridLimit, Limits, Place};
use crate::suite::revise::Written;

/// How often a loss is seen that a floor is said to see.
pub const POWER: f64 = 0.95;

/// What a floor promises of runs of an unchanged engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// The share of such runs that is within the limit of a cell.
    pub coverage: f64,
    /// How surely.
    pub confidence: f64,
}

/// A number of a suite that bounds cells by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The metric.
    pub metric: Metric,
    /// Whether it is a floor or a ceiling.
    pub side: Side,
    /// Slack as a fraction.
    pub slack: f64,
    /// What it is, in the metric's unit.
    pub value: f64,
    /// Where it stands.
    pub place: Place,
    /// Its byte span in the source map.
    pub span: Range<usize>,
    /// The values that it bounds, in plan order.
    pub keys: Vec<Key>,
}

/// Every number of a suite that bounds cells by itself, in order of its place. `plan` has all cells of the
/// suite, for a number that also holds for others would be too tight for them.
pub fn numbers(plan: &Plan) -> Vec<Number> {
    let mut found: BTreeMap<usize, Number> = BTreeMap::new();
    for expectation in &plan.suite.expectations {
        let mut add = |side, value, place: &Place, span: &Range<usize>| {
            let number = Number {
                metric: expectation.metric,
                side,
                slack: expectation.slack,
                value,
                place: place.clone(),
                span: span.clone(),
                keys: Vec::new(),
            };
            found.insert(span.start, number);
        };
        for (side, limits) in &expectation.bounds {
            match limits {
                Limits::Scalar { value, place, span } => add(*side, *value, place, span),
                Limits::Grid(grid) => {
                    for entry in &grid.entries {
                        match entry.limit {
                            GridLimit::Value(value) => add(*side, value, &entry.place, &entry.span),
                            GridLimit::None | GridLimit::Over => {}
                        }
                    }
                }
                Limits::Ratio { .. } => {}
            }
        }
    }
    for cell in &plan.cells {
        for bound in plan.bounds(cell) {
            if bound.bound.is_none() || bound.against.is_some() {
                continue;
            }
            if let Some(number) = found.get_mut(&bound.span.start) {
                number.keys.push(Key {
                    test: plan.test(cell).name.clone(),
                    variant: plan.variant(cell).map(str::to_owned),
                    cell: plan.cell_id(cell),
                    metric: bound.metric.to_string(),
                });
            }
        }
    }
    found.into_values().collect()
}

/// What recorded runs say of the numbers of a suite.
#[derive(Debug, Default)]
pub struct Floors<'n> {
    /// Numbers with another one to stand in their place.
    pub computed: Vec<Floor<'n>>,
    /// Numbers that stay, each with the reason.
    pub left: Vec<(&'n Number, Left)>,
    /// Values with too few runs to show their noise.
    pub few: Vec<Key>,
}

/// Why a number stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Left {
    /// It holds for no cell, or another bound says that they are over capacity.
    #[error("bounds no cell that could be measured")]
    Idle,
    /// None of its cells was recorded.
    #[error("no recorded runs")]
    Unrecorded,
    /// The tolerance bound is no floor.
    #[error("the runs differ so much that no floor above 0 is left; record more of them")]
    Noise,
    /// It can't be written in the way the old one is.
    #[error("a quantity that can't be kept in its spelling; write one number with one unit")]
    Spelling,
    /// It stands in no file.
    #[error("stands in no file")]
    Fileless,
}

/// A number as it is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor<'n> {
    /// The number that stands there.
    pub number: &'n Number,
    /// As it stands in the file.
    pub before: String,
    /// As it is to be written.
    pub after: String,
    /// What that is, in the metric's unit.
    pub value: f64,
    /// The cell that it is computed from: the loosest.
    pub loosest: Key,
    /// How many of its cells were recorded.
    pub cells: usize,
    /// Those that were not.
    pub unrecorded: Vec<Key>,
    /// The fewest and the most runs that a cell has.
    pub runs: (usize, usize),
    /// The smallest loss, as a fraction of the recorded mean, that takes a run beyond the limit with
    /// probability [`POWER`]: of the cell where it is least and of that where it is most. No number
    /// where the mean is 0.
    pub sees: (f64, f64),
}

impl Floor<'_> {
    /// By what fraction of the old number the new one asks for less; zero or below: it does not.
    pub fn loosened(&self) -> f64 {
        let (old, new) = (self.number.value, self.value);
        let by = match self.number.side {
            Side::Min => old - new,
            Side::Max => new - old,
        };
        if by == 0.0 { 0.0 } else { by / old.abs() }
    }

    /// Whether the file has another number than it is to have.
    pub fn is_news(&self) -> bool {
        self.before != self.after
    }
}

/// Computes what the numbers should be. `source` has the text of each.
pub fn floors<'n>(
    numbers: &'n [Number],
    baseline: &Baseline,
    source: &SourceMap,
    promise: Promise,
) -> Floors<'n> {
    let lines: HashMap<Key, &CellLine> =
        baseline.cells.iter().map(|line| (line.key(), line)).collect();
    let mut floors = Floors::default();
    let mut few = HashSet::new();
    let mut factors: BTreeMap<u64, f64> = BTreeMap::new();
    let mut of = |runs| {
        let new = || factor(runs, promise.coverage, promise.confidence);
        *factors.entry(runs).or_insert_with(new)
    };
    for number in numbers {
        match floor(number, &lines, source, &mut of) {
            Ok(floor) => floors.computed.push(floor),
            Err(Refused::Left(why)) => floors.left.push((number, why)),
            Err(Refused::Few(keys)) => {
                floors.few.extend(keys.into_iter().filter(|key| few.insert(key.clone())));
            }
        }
    }
    floors
}

enum Refused {
    Left(Left),
    Few(Vec<Key>),
}

fn floor<'n>(
    number: &'n Number,
    lines: &HashMap<Key, &CellLine>,
    source: &SourceMap,
    factor: &mut impl FnMut(u64) -> f64,
) -> Result<Floor<'n>, Refused> {
    let leave = |why| Err(Refused::Left(why));
    if number.keys.is_empty() {
        return leave(Left::Idle);
    }
    let mut recorded = Vec::new();
    let mut unrecorded = Vec::new();
    let mut few = Vec::new();
    for key in &number.keys {
        let Some(line) = lines.get(key) else {
            unrecorded.push(key.clone());
            continue;
        };
        let runs = line.runs();
        match Tolerance::by(&runs, number.side, &mut *factor) {
            Ok(tolerance) if runs.len() >= LEAST_RUNS => {
                recorded.push((key, tolerance, runs.len()));
            }
            Ok(_) | Err(_) => few.push(key.clone()),
        }
    }
    if !few.is_empty() {
        return Err(Refused::Few(few));
    }
    let aims = recorded.iter().map(|(key, tolerance, _)| (aim(tolerance, number), *key));
    let loosest = match number.side {
        Side::Min => aims.min_by(|a, b| a.0.total_cmp(&b.0)),
        Side::Max => aims.max_by(|a, b| a.0.total_cmp(&b.0)),
    };
    let Some((wanted, loosest)) = loosest else { return leave(Left::Unrecorded) };
    // What a tool counts may be below zero; nothing of the catalogue is.
    let any_sign = matches!(number.metric.base, Base::User(_));
    if !wanted.is_finite() || (wanted <= 0.0 && number.side == Side::Min && !any_sign) {
        return leave(Left::Noise);
    }
    let file = source.file(number.span.start).filter(|file| file.folder.is_some());
    if file.is_none() {
        return leave(Left::Fileless);
    }
    let before = source.text(&number.span);
    let written = Written::read(before, number.metric).and_then(|it| it.write(wanted, number.side));
    let Some((after, value)) = written else { return leave(Left::Spelling) };
    let Bound { limit, .. } = with_slack(number.side, value, number.slack);
    let sees = recorded.iter().map(|(_, tolerance, _)| tolerance.smallest_loss(limit, POWER));
    let runs = recorded.iter().map(|(_, _, runs)| *runs);
    Ok(Floor {
        number,
        before: before.to_owned(),
        after,
        value,
        loosest: loosest.clone(),
        cells: recorded.len(),
        unrecorded,
        runs: (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0)),
        sees: sees.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), loss| {
            (least.min(loss), most.max(loss))
        }),
    })
}

/// The number that a cell's runs ask for: its limit, the number less or more the slack, is the tolerance
/// bound, but the number, which is what no loss would be, is nowhere better than the mean of the runs.
fn aim(tolerance: &Tolerance, number: &Number) -> f64 {
    match number.side {
        Side::Min => (tolerance.bound / (1.0 - number.slack)).min(tolerance.mean),
        Side::Max => (tolerance.bound / (1.0 + number.slack)).max(tolerance.mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tolerance::{CONFIDENCE, COVERAGE};
    use crate::suite::{LoadOptions, load};
    use std::sync::Arc;

    const PROMISE: Promise = Promise { coverage: COVERAGE, confidence: CONFIDENCE };

    /// Five runs with a mean of 100 and a standard deviation of 1.
    const RUNS: [f64; 5] =
        [98.735_088_936, 99.367_544_468, 100.0, 100.632_455_532, 101.264_911_064];
    /// Their factor: 99 % of runs at 95 %, n = 5.
    const K: f64 = 5.741_084_5;

    /// A number as it is to be written and what it sees, or why it stays.
    type Found = Result<(String, (f64, f64)), Left>;

    /// What becomes of the numbers of a suite whose cells were recorded with these runs, each times a factor.
    fn outcome(expect: &str, cells: &[(&str, f64)]) -> Vec<Found> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("suite.toml");
        let text = format!(
            "version = 1\n[suite]\nname = \"card\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"decode\"\nmatrix.concurrency = [1, 4, 16]\n{expect}\n"
        );
        std::fs::write(&path, text).unwrap();
        let loaded = load(&path, &LoadOptions::default()).unwrap();
        let plan = crate::matrix::expand(Arc::new(loaded.suite), &Default::default()).unwrap();
        let numbers = numbers(&plan);
        let mut baseline = Baseline::new("card", BTreeMap::new());
        for (cell, factor) in cells {
            for number in &numbers {
                let metric = number.metric;
                baseline.cells.push(CellLine {
                    test: "decode".into(),
                    variant: None,
                    cell: (*cell).to_owned(),
                    metric: metric.to_string(),
                    unit: metric.base.entry().unit.to_owned(),
                    better: metric.base.entry().better,
                    values: ('a'..)
                        .map(String::from)
                        .zip(RUNS.map(|run| 100.0 + (run - 100.0) * factor))
                        .collect(),
                });
            }
        }
        let floors = floors(&numbers, &baseline, &loaded.source, PROMISE);
        let mut all: Vec<_> = floors
            .computed
            .iter()
            .map(|floor| (floor.number.span.start, Ok((floor.after.clone(), floor.sees))))
            .chain(floors.left.iter().map(|(number, why)| (number.span.start, Err(*why))))
            .collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, found)| found).collect()
    }

    fn one(expect: &str, cells: &[(&str, f64)]) -> (String, (f64, f64)) {
        outcome(expect, cells).remove(0).unwrap()
    }

    const ALL: [(&str, f64); 3] =
        [("concurrency=1", 1.0), ("concurrency=4", 1.0), ("concurrency=16", 1.0)];

    #[test]
    fn a_floor_is_the_tolerance_bound_and_a_ceiling_likewise() {
        let floor = "[[expect]]\nmetric = \"output-throughput\"\nmin = 50.0000";
        let (text, sees) = one(floor, &ALL);
        assert_eq!(text, format!("{:.4}", ((100.0 - K) * 1e4).floor() / 1e4));
        assert!((sees.0 - (K + 1.644_853_6) / 100.0).abs() < 1e-5, "{sees:?}");
        let ceiling = "[[expect]]\nmetric = \"ttft.p50\"\nmax = 50.0000";
        assert_eq!(one(ceiling, &ALL).0, format!("{:.4}", ((100.0 + K) * 1e4).ceil() / 1e4));
    }

    #[test]
    fn slack_is_taken_off_as_far_as_the_number_stays_below_what_was_recorded() {
        let with = |slack: &str| {
            let text = format!(
                "[[expect]]\nmetric = \"output-throughput\"\nslack = \"{slack}\"\nmin = 50.0000"
            );
            let (text, sees) = one(&text, &ALL);
            (text.parse::<f64>().unwrap(), sees.0)
        };
        // Less than the noise asks for: the limit is the tolerance bound.
        let (number, sees) = with("3%");
        assert!((number * 0.97 - (100.0 - K)).abs() < 1e-3, "{number}");
        assert!((sees - (K + 1.644_853_6) / 100.0).abs() < 1e-5, "{sees}");
        // More than that: the number is the mean, the limit as loose as the suite says.
        let (number, sees) = with("8%");
        assert!((number - 100.0).abs() < 1e-3, "{number}");
        assert!((sees - 0.096_448_536).abs() < 1e-5, "{sees}");
    }

    #[test]
    fn a_number_for_many_cells_is_that_of_the_loosest() {
        let expect = "[[expect]]\nmetric = \"output-throughput\"\nmin = 50.0000";
        let cells = [("concurrency=1", 1.0), ("concurrency=4", 3.0), ("concurrency=16", 0.5)];
        let (text, sees) = one(expect, &cells);
        assert_eq!(text, format!("{:.4}", ((100.0 - 3.0 * K) * 1e4).floor() / 1e4));
        // The quietest cell sees most below its own bound.
        assert!(sees.0 < sees.1 && (sees.1 - (3.0 * (K + 1.644_853_6)) / 100.0).abs() < 1e-5);
    }

    #[test]
    fn what_stays_says_why() {
        let grid = "[[expect]]\nmetric = \"output-throughput\"\nmin.rows = \"concurrency\"\nmin.grid = [[1, 10], [4, 20], [16, \"over\"]]\n[[expect]]\nmetric = \"per-request-throughput\"\nwhere = { concurrency = 16 }\nmin = 5";
        let found = outcome(grid, &[("concurrency=1", 1.0), ("concurrency=16", 1.0)]);
        assert_eq!(found[0].as_ref().unwrap().0, "94");
        assert_eq!(found[1], Err(Left::Unrecorded));
        assert_eq!(found[2], Err(Left::Idle));
        let wild = "[[expect]]\nmetric = \"output-throughput\"\nmin = 50";
        assert_eq!(outcome(wild, &[("concurrency=1", 20.0)]), [Err(Left::Noise)]);
        let spelt = "[[expect]]\nmetric = \"ttft.p50\"\nmax = \"1m30s\"";
        assert_eq!(outcome(spelt, &ALL), [Err(Left::Spelling)]);
        let number = Number {
            metric: "output-throughput".parse().unwrap(),
            side: Side::Min,
            slack: 0.0,
            value: 1.0,
            place: Place::default(),
            span: 0..1,
            keys: vec![Key {
                test: "decode".into(),
                variant: None,
                cell: String::new(),
                metric: "output-throughput".into(),
            }],
        };
        let mut baseline = Baseline::new("card", BTreeMap::new());
        let values = [("a".to_owned(), 1.0), ("b".to_owned(), 2.0)].into();
        baseline.cells.push(CellLine {
            test: "decode".into(),
            variant: None,
            cell: String::new(),
            metric: "output-throughput".into(),
            unit: "tok/s".into(),
            better: crate::measure::Direction::Higher,
            values,
        });
        let mut typed = SourceMap::default();
        typed.add("--set", "1", None);
        let wide = Promise { coverage: 0.5, confidence: 0.5 };
        let found = floors(std::slice::from_ref(&number), &baseline, &typed, wide);
        assert_eq!(found.left, [(&number, Left::Fileless)]);
    }
}
