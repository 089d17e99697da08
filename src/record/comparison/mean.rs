//! `min-mean-ratio` of a suite applied to two runs: what a small loss in every cell comes to.
//!
//! The same mean as in a run: the cells that its `[compare]` compares, each with the same weight, turned so that less is
//! worse. Of pairs each pair's mean is an observation; of two runs that were not paired, each launch's mean is.

use super::rules::{Held, Rule, bare, held, said};
use super::side::Cell;
use super::{Both, Which, estimate};
use crate::judge::paired::{fit, over_cells};
use crate::judge::ratio::logarithms;
use crate::judge::{Bound, Estimate, Method, NoData, Side as Edge};
use crate::measure::{Direction, Metric};
use crate::record::RunRecord;
use crate::record::run_record::{CompareRecord, PlannedCellRecord};
use crate::suite::model::Policy;

/// The limit of a suite on the mean ratio.
pub(super) struct Limit<'s> {
    of: Which,
    least: f64,
    compare: &'s CompareRecord,
    policy: &'s Policy,
    shard: bool,
}

/// That of a record, if its suite has one.
pub(super) fn limit(of: Which, record: &RunRecord) -> Option<Limit<'_>> {
    let compare = record.header.compare.as_ref()?;
    let shard = record.header.shard.is_some();
    let policy = &record.header.policy;
    Some(Limit { of, least: compare.min_mean_ratio?, compare, policy, shard })
}

/// The values of a cell on both sides by launch, as logarithms turned so that less is worse.
struct Logs {
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Limit<'_> {
    /// The limit.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// What it comes to.
    pub fn judged(&self, both: &Both<'_, '_>) -> Rule {
        let (held, said) = match self.cells(both) {
            _ if self.shard => (
                Held::Excused,
                format!("{} is a shard, and the mean ratio is judged of all shards", self.of),
            ),
            Err(why) => (Held::Unjudged, format!("no mean ratio: {why}")),
            Ok(cells) => self.of_cells(both, &cells),
        };
        Rule {
            of: self.of,
            test: "compare".to_owned(),
            cell: "mean ratio".to_owned(),
            metric: String::new(),
            held,
            said: format!("{said} ({})", self.compare.place),
        }
    }

    fn of_cells(&self, both: &Both<'_, '_>, cells: &[Logs]) -> (Held, String) {
        let bound = Bound { side: Edge::Min, target: 1.0, limit: self.least };
        // The other half of the level is that of the cells.
        let level = self.policy.alpha / 2.0;
        let over = format!(" over {} cell{}", cells.len(), if cells.len() == 1 { "" } else { "s" });
        let (known, why) = match ratio(both, cells, level) {
            Ok(found) => (found, None),
            Err(Failed::None(why)) => return (Held::Unjudged, format!("no mean ratio: {why}")),
            Err(Failed::Noiseless(value, why)) => (bare(value, 1), Some(why.to_string())),
        };
        (held(&known, &bound, self.policy), said(&known, &bound, &over, why.as_deref()))
    }

    /// The cells in the mean.
    fn cells(&self, both: &Both<'_, '_>) -> Result<Vec<Logs>, String> {
        let side = match self.of {
            Which::A => both.a,
            Which::B => both.b,
        };
        let places = both.places(self.of);
        let mut found = Vec::new();
        for (at, cell) in side.cells.iter().enumerate() {
            let Some(planned) = cell.planned() else { continue };
            let metrics = self.metrics(planned);
            // What is known to fail is in no mean.
            if metrics.is_empty() || planned.quarantine.is_some() {
                continue;
            }
            let name = format!("{} {}", cell.test, cell.id);
            let Some((at_a, at_b)) = places.get(&at) else {
                return Err(format!("{name} is only in {}", self.of));
            };
            let (a, b) = (&both.a.cells[*at_a], &both.b.cells[*at_b]);
            if a.unfit && b.unfit {
                continue;
            }
            found.push(logs(a, b, &metrics).map_err(|why| format!("{name}: {why}"))?);
        }
        if found.is_empty() { Err("no cell is compared".to_owned()) } else { Ok(found) }
    }

    /// The metrics of a cell that the suite compares in pairs, each once.
    fn metrics(&self, planned: &PlannedCellRecord) -> Vec<Metric> {
        let mut found: Vec<Metric> = Vec::new();
        for bound in &planned.bounds {
            let variant = bound.relative.as_ref().and_then(|relative| relative.variant.as_ref());
            let compared = variant.is_some_and(|it| it.paired && it.name == self.compare.baseline);
            if compared && !found.contains(&bound.metric) {
                found.push(bound.metric);
            }
        }
        found
    }
}

fn logs(a: &Cell<'_>, b: &Cell<'_>, metrics: &[Metric]) -> Result<Logs, String> {
    let of = |cell: &Cell<'_>, which: Which| -> Result<Vec<f64>, String> {
        if let Some(lack) = &cell.lack {
            return Err(format!("{which} has no figures: {lack}"));
        }
        let mut sum: Vec<f64> = Vec::new();
        for metric in metrics {
            let name = metric.to_string();
            let values = cell.values(&name).ok_or_else(|| format!("{which} has no {name}"))?;
            let logs = logarithms(&values.launches, &which.to_string());
            let logs = logs.map_err(|why| format!("{name}: {why}"))?;
            let weight = match values.better {
                Direction::Higher => 1.0,
                Direction::Lower => -1.0,
            } / metrics.len() as f64;
            if sum.is_empty() {
                sum = vec![0.0; logs.len()];
            }
            if sum.len() != logs.len() {
                return Err(format!("{which} does not have every metric of every launch"));
            }
            sum.iter_mut().zip(logs).for_each(|(sum, log)| *sum += weight * log);
        }
        Ok(sum)
    };
    Ok(Logs { a: of(a, Which::A)?, b: of(b, Which::B)? })
}

/// Why there is no ratio, or none with an interval.
enum Failed {
    None(String),
    Noiseless(f64, NoData),
}

fn ratio(both: &Both<'_, '_>, cells: &[Logs], level: f64) -> Result<Estimate, Failed> {
    if let Some(pairs) = both.pairs
        && cells.iter().all(|cell| pairs.are(&cell.a, &cell.b))
    {
        let of = |cell: &Logs| {
            let values = |logs: &[f64]| logs.iter().map(|log| log.exp()).collect::<Vec<_>>();
            pairs.log_ratios(&values(&cell.a), &values(&cell.b))
        };
        let ratios: Result<Vec<_>, NoData> = cells.iter().map(of).collect();
        let found = ratios.and_then(|ratios| over_cells(&ratios)).and_then(|over| fit(&over));
        let found = found.and_then(|fit| fit.log_mean(None).estimate(level, Method::Paired));
        return found.map_err(|why| Failed::None(why.to_string()));
    }
    let means = |of: fn(&Logs) -> &Vec<f64>, which: Which| {
        let launches = cells.first().map_or(0, |cell| of(cell).len());
        if launches == 0 || cells.iter().any(|cell| of(cell).len() != launches) {
            return Err(Failed::None(format!("not every cell of {which} has every launch")));
        }
        let mean = |at: usize| cells.iter().map(|cell| of(cell)[at]).sum::<f64>();
        Ok((0..launches).map(|at| (mean(at) / cells.len() as f64).exp()).collect::<Vec<_>>())
    };
    let (a, b) = (means(|cell| &cell.a, Which::A)?, means(|cell| &cell.b, Which::B)?);
    let middle = |values: &[f64]| values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64;
    estimate((&a, &b), None, None, level)
        .map_err(|why| Failed::Noiseless((middle(&b) - middle(&a)).exp(), why))
}
