//! Relative rules of a suite applied to two runs: which of its `min-ratio`, `max-ratio` and `min-mean-ratio` B ÷ A
//! breaks.
//!
//! A loss must be beyond the limit and real, as in a run: `judge::limit` decides, at the level that all rules
//! of the comparison share.

use std::collections::BTreeSet;

use serde::Serialize;

use super::pairs::Pairs;
use super::side::Cell;
use super::{Both, Incomparable, Which, estimate, mean};
use crate::judge::ratio::family_level;
use crate::judge::{Bound, BoundVerdict, Estimate, Method, Severity, Side as Edge, limit};
use crate::record::baseline::middle;
use crate::record::run_record::{BoundRecord, PlannedCellRecord};
use crate::record::wording::{share, shares};
use crate::suite::model::{InconclusivePolicy, Policy};

/// What a rule comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// It holds.
    Holds,
    /// It is broken.
    Broken,
    /// It is broken, and is but to warn.
    Warns,
    /// B is beyond it, as far as the noise lets it be known, or nothing shows the noise.
    Doubtful,
    /// As doubtful, and the suite's policy has that fail.
    DoubtFails,
    /// It could not be judged: a side has no figures that count.
    Unjudged,
    /// Nothing is asked: A had no room for the cell, or it is quarantined.
    Excused,
}

/// A rule on a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rule {
    /// Whose suite it stands in.
    pub of: Which,
    /// The test's name; `compare` of the mean ratio.
    pub test: String,
    /// The cell's id; `mean ratio` of all cells together.
    pub cell: String,
    /// The metric; empty of the mean ratio, which may be over several.
    pub metric: String,
    /// What it comes to.
    pub held: Held,
    /// One line: `0.941 of A [0.925, 0.957] < 0.97 (suite.toml:58)`.
    pub said: String,
}

/// A rule before it is judged.
struct Asked<'s> {
    of: Which,
    planned: &'s PlannedCellRecord,
    record: &'s BoundRecord,
    bound: Bound,
    policy: &'s Policy,
    cells: Option<(usize, usize)>,
}

/// Applies the rules of the sides that are named.
///
/// # Errors
/// A side has none.
pub(super) fn apply(
    both: &Both<'_, '_>,
    rules: &BTreeSet<Which>,
) -> Result<Vec<Rule>, Incomparable> {
    let (a, b) = (both.a, both.b);
    let mut means: Vec<mean::Limit<'_>> = Vec::new();
    let mut asked: Vec<Asked<'_>> = Vec::new();
    for which in rules {
        let side = match which {
            Which::A => a,
            Which::B => b,
        };
        let record = side.record.ok_or(Incomparable::Ruleless { which: *which })?;
        let before = asked.len();
        let places = both.places(*which);
        for (at, cell) in side.cells.iter().enumerate() {
            let Some(planned) = cell.planned() else { continue };
            for bound in &planned.bounds {
                let judged = match bound.severity {
                    Severity::Fail | Severity::Warn => true,
                    Severity::Report => false,
                };
                if let (Some(limit), Some(_), true) = (bound.bound, &bound.relative, judged) {
                    asked.push(Asked {
                        of: *which,
                        planned,
                        record: bound,
                        bound: limit,
                        policy: &record.header.policy,
                        cells: places.get(&at).copied(),
                    });
                }
            }
        }
        let limit = mean::limit(*which, record);
        if asked.len() == before && limit.is_none() {
            return Err(Incomparable::NoRatio { which: *which });
        }
        means.extend(limit);
    }
    // What the suites of both sides say alike counts once.
    let mut seen = BTreeSet::new();
    asked.retain(|it| {
        let binds = it.record.severity == Severity::Fail;
        let metric = it.record.metric.to_string();
        let key = (it.cells, metric, it.bound.side, it.bound.limit.to_bits(), binds);
        it.cells.is_none() || seen.insert(key)
    });
    means.dedup_by(|one, other| one.least() == other.least());
    let binding = asked.iter().filter(|it| it.record.severity == Severity::Fail).count() as u64;
    // A limit on the mean takes half of the level, and all cells together the other half, as in a run.
    let binding = binding * if means.is_empty() { 1 } else { 2 };
    let mut found: Vec<Rule> = means.iter().map(|mean| mean.judged(both)).collect();
    found.extend(asked.iter().map(|it| it.judged(both, binding)));
    Ok(found)
}

/// What an estimate comes to by a bound and the policy of its suite.
pub(super) fn held(estimate: &Estimate, bound: &Bound, policy: &Policy) -> Held {
    match limit::judge(estimate, bound) {
        BoundVerdict::Clear | BoundVerdict::Close => Held::Holds,
        BoundVerdict::Fail => Held::Broken,
        BoundVerdict::NoData => Held::Unjudged,
        BoundVerdict::Inconclusive => match policy.inconclusive {
            InconclusivePolicy::Warn => Held::Doubtful,
            InconclusivePolicy::Fail => Held::DoubtFails,
            InconclusivePolicy::Pass => Held::Holds,
            InconclusivePolicy::Point => Held::Broken,
        },
    }
}

/// A ratio beside its bound: `0.941 of A [0.925, 0.957] < 0.97`; `over` stands behind the interval, `why` in its place.
pub(super) fn said(estimate: &Estimate, bound: &Bound, over: &str, why: Option<&str>) -> String {
    let sign = match (bound.side, limit::beyond(estimate.value, bound)) {
        (Edge::Min, true) => "<",
        (Edge::Min, false) => "≥",
        (Edge::Max, true) => ">",
        (Edge::Max, false) => "≤",
    };
    let (value, edge) = shares(estimate.value, bound.limit);
    let interval = match (estimate.lower, estimate.upper, why) {
        (Some(low), Some(high), _) => format!(" [{}, {}]", share(low), share(high)),
        (_, _, Some(why)) => format!(" ({why})"),
        (_, _, None) => String::new(),
    };
    format!("{value} of A{interval}{over} {sign} {edge}")
}

/// A ratio that nothing shows the noise of.
pub(super) fn bare(value: f64, n: u64) -> Estimate {
    Estimate { value, lower: None, upper: None, n, method: Method::Baseline }
}

impl Asked<'_> {
    fn judged(&self, both: &Both<'_, '_>, binding: u64) -> Rule {
        let (a, b) = (both.a, both.b);
        let (held, said) = match self.cells {
            None if self.of == Which::A => (Held::Unjudged, "B does not have the cell".to_owned()),
            None => (Held::Unjudged, "A does not have the cell".to_owned()),
            Some((at_a, at_b)) => {
                self.of_cells(&a.cells[at_a], &b.cells[at_b], both.pairs, binding)
            }
        };
        let held = match (held, self.record.severity) {
            (Held::Broken | Held::DoubtFails, Severity::Warn | Severity::Report) => Held::Warns,
            (Held::Unjudged, Severity::Warn | Severity::Report) => Held::Excused,
            (held, _) => held,
        };
        Rule {
            of: self.of,
            test: self.planned.test.clone(),
            cell: self.planned.id.clone(),
            metric: self.record.metric.to_string(),
            held,
            said: format!("{said} ({})", self.record.place),
        }
    }

    fn of_cells(
        &self,
        a: &Cell<'_>,
        b: &Cell<'_>,
        pairs: Option<Pairs>,
        binding: u64,
    ) -> (Held, String) {
        if let Some(quarantine) = &self.planned.quarantine {
            return (Held::Excused, format!("quarantined: {}", quarantine.reason));
        }
        if a.unfit {
            return (Held::Excused, "A has no room for the cell".to_owned());
        }
        for (cell, which) in [(a, Which::A), (b, Which::B)] {
            if let Some(lack) = &cell.lack {
                // An engine that no longer has room for a cell has lost all of it.
                let held = if cell.unfit { Held::Broken } else { Held::Unjudged };
                return (held, format!("{which} has no figures: {lack}"));
            }
        }
        let name = self.record.metric.to_string();
        let values = |cell: &Cell<'_>| cell.values(&name).map(|it| it.launches).unwrap_or_default();
        let (of_a, of_b) = (values(a), values(b));
        let Some(ratio) = middle(&of_b).zip(middle(&of_a)).map(|(b, a)| b / a) else {
            let whose = if middle(&of_a).is_none() { Which::A } else { Which::B };
            return (Held::Unjudged, format!("{whose} has no value that a ratio can be made of"));
        };
        let noise = self.record.noise.as_ref().map(|noise| noise.noise());
        let level = family_level(self.policy.alpha, binding);
        let found = estimate((&of_a, &of_b), pairs, noise, level);
        let (known, why) = match found {
            Ok(found) => (found, None),
            Err(why) => (bare(ratio, of_b.len() as u64), Some(why.to_string())),
        };
        let held = held(&known, &self.bound, self.policy);
        let point = match self.policy.inconclusive {
            InconclusivePolicy::Point if held == Held::Broken && known.lower.is_none() => {
                ", by the point estimate"
            }
            InconclusivePolicy::Point
            | InconclusivePolicy::Warn
            | InconclusivePolicy::Fail
            | InconclusivePolicy::Pass => "",
        };
        (held, format!("{}{point}", said(&known, &self.bound, "", why.as_deref())))
    }
}
