//! A figure against recorded runs or another variant: the ratio, its line, and a gain that makes recorded
//! runs out of date.

use super::{Lack, Other, Sight, binds};
use crate::judge::paired::{Pair, fit, log_ratios, order};
use crate::judge::power::{Design, Question, SURELY, smallest_loss};
use crate::judge::ratio::{LogMean, Noise, against_runs, family_level, logarithms};
use crate::judge::{Bound, BoundVerdict, Estimate, Method, NoData, limit};
use crate::measure::{Fault, Metric};
use crate::record::baseline::middle;
use crate::record::run_record::{
    BoundRecord, Judgement, Measurement, RelativeRecord, VariantRecord,
};
use crate::record::wording::{self, Compared};

impl Sight<'_> {
    /// The figure as a ratio to what it is held against, at the level that all comparisons of the plan
    /// share.
    pub(super) fn compared(
        &self,
        record: &BoundRecord,
        relative: &RelativeRecord,
    ) -> Result<Compared, String> {
        let level = family_level(self.policy.alpha, relative.comparisons);
        let own = self.values(record.metric)?;
        let noise = record.noise.as_ref().map(|noise| noise.noise());
        let Some(variant) = &relative.variant else {
            if relative.runs.is_empty() {
                return Err("not judged: the baseline has none of it".to_owned());
            }
            let ratio = against_runs(&relative.runs, &own, noise)
                .and_then(|ratio| ratio.estimate(level, Method::Baseline))
                .map_err(|why| why.to_string())?;
            return Ok(Compared {
                ratio,
                whose: "the baseline".to_owned(),
                middle: middle(&relative.runs),
                by: wording::runs(relative.runs.len(), own.len()),
                sees: relative.sees,
                origin: Some(relative.file.clone()),
            });
        };
        let theirs = self.theirs(record.metric, variant)?;
        self.have_ratios(&theirs, &own, variant)?;
        let paired = variant.paired && theirs.len() == own.len();
        let (found, design, sd) = match paired {
            true => paired_mean(&theirs, &own, noise),
            false => unpaired_mean(&theirs, &own, noise),
        }
        .map_err(|why| why.to_string())?;
        let method = if paired { Method::Paired } else { Method::Baseline };
        let ratio = found.estimate(level, method).map_err(|why| why.to_string())?;
        let tolerated = record.bound.as_ref().map_or(0.0, |bound| bound.limit.ln().abs());
        let question = Question { alpha: level, limit: tolerated };
        Ok(Compared {
            ratio,
            whose: variant.name.clone(),
            middle: middle(&theirs),
            by: match paired {
                true => format!("{} pairs", own.len()),
                false => wording::launches_against(own.len(), theirs.len()),
            },
            sees: Some(smallest_loss(design, question, sd, SURELY)),
            origin: None,
        })
    }

    /// The log ratios of each pair.
    pub(super) fn pair_ratios(
        &self,
        metric: Metric,
        variant: &VariantRecord,
    ) -> Result<Vec<f64>, String> {
        let (theirs, own) = (self.theirs(metric, variant)?, self.values(metric)?);
        self.have_ratios(&theirs, &own, variant)?;
        let pairs = pairs(&theirs, &own);
        let ratios = log_ratios(&pairs).map_err(|why| why.to_string())?;
        Ok(ratios.into_iter().map(|(_, ratio)| ratio).collect())
    }

    /// Says whose value is nothing that a ratio can be made of.
    fn have_ratios(
        &self,
        theirs: &[f64],
        own: &[f64],
        variant: &VariantRecord,
    ) -> Result<(), String> {
        let name = self.cell.variant.as_deref().unwrap_or("this run");
        let both = logarithms(theirs, &variant.name).and_then(|_| logarithms(own, name));
        both.map(|_| ()).map_err(|why| why.to_string())
    }

    /// What each launch gave.
    fn values(&self, metric: Metric) -> Result<Vec<f64>, String> {
        let launches = self.launches();
        if launches.is_empty() {
            return self.of_one(metric).map(|own| vec![own.value]);
        }
        launches.iter().map(|one| one.of_one(metric).map(|own| own.value)).collect()
    }

    /// Each launch by itself; none of a cell that is measured once.
    pub(super) fn launches(&self) -> Vec<Sight<'_>> {
        let own = self.rounds.map_or(&[][..], |rounds| rounds.own);
        let of = |measurement| Sight { measurement, rounds: None, extendable: false, ..*self };
        own.iter().flatten().map(|measurement| of(*measurement)).collect()
    }

    /// What each launch of another variant gave. A measurement that does not count is none: whoever is held
    /// against it would be blamed for it.
    fn theirs(&self, metric: Metric, variant: &VariantRecord) -> Result<Vec<f64>, String> {
        let unknown = || format!("{} has not been measured", variant.name);
        let others = self.rounds.map(|rounds| rounds.others).ok_or_else(unknown)?;
        let Other { rounds, gpus, lack, suspects: _ } =
            others.get(&variant.name).ok_or_else(unknown)?;
        match lack {
            None | Some(Lack::Waits(None)) => {}
            Some(Lack::Waits(Some(why)) | Lack::Useless(why)) => {
                return Err(format!("{} has none: {why}", variant.name));
            }
        }
        let mut values = Vec::new();
        for measurement in rounds {
            let measurement = measurement.ok_or_else(unknown)?;
            if let Some(why) = discounted(measurement) {
                return Err(format!("that of {} does not count: {why}", variant.name));
            }
            let one = Sight { measurement, rounds: None, extendable: false, gpus: *gpus, ..*self };
            let found = one.of_one(metric);
            let found = found.map_err(|why| format!("{} has none: {why}", variant.name))?;
            values.push(found.value);
        }
        Ok(values)
    }

    /// What a ratio to a variant tolerates, where the variant's figures are not known: as a logarithm.
    pub(super) fn unpaired_room(&self, record: &BoundRecord) -> Option<f64> {
        let variant = record.relative.as_ref().and_then(|relative| relative.variant.as_ref());
        let bound = record.bound.as_ref().filter(|_| variant.is_some() && self.rounds.is_none())?;
        Some(bound.limit.ln().abs())
    }

    /// The one line on a judged bound.
    pub(super) fn line(
        &self,
        record: &BoundRecord,
        bound: &Bound,
        estimate: &Estimate,
        ratio: Option<&Compared>,
        verdict: BoundVerdict,
        by_point: bool,
    ) -> String {
        match (&record.relative, ratio, self.estimate(record.metric, None)) {
            (Some(relative), Some(ratio), Ok(own)) => {
                wording::ratio(record, relative, own.value, bound, ratio, verdict, by_point)
            }
            (_, _, _) => wording::bound(record, bound, estimate, verdict, by_point),
        }
    }

    /// Whether all that could fail the cell and has no figure waits for another variant to be measured.
    pub(super) fn waits(&self, judgement: &Judgement) -> bool {
        let bounds = self.cell.bounds.iter().zip(&judgement.bounds);
        let mut lacking = bounds
            .filter(|(record, judged)| binds(record) && judged.verdict == BoundVerdict::NoData)
            .peekable();
        let waits = |record: &BoundRecord| {
            let variant = record.relative.as_ref().and_then(|relative| relative.variant.as_ref());
            let others = self.rounds.map(|rounds| rounds.others);
            let other = variant.zip(others).and_then(|(it, others)| others.get(&it.name));
            matches!(other.and_then(|other| other.lack.as_ref()), Some(Lack::Waits(_)))
        };
        lacking.peek().is_some() && lacking.all(|(record, _)| waits(record))
    }

    /// The figure behind an estimate of a bound, and by how much the estimate moves as it does: a ratio
    /// moves with its figure.
    pub(super) fn figure(&self, record: &BoundRecord, estimate: &Estimate) -> (f64, f64) {
        match (&record.relative, self.estimate(record.metric, None)) {
            (None, _) => (estimate.value, 1.0),
            (Some(_), Ok(own)) if own.value != 0.0 => (own.value, estimate.value / own.value),
            (Some(_), _) => (0.0, 1.0),
        }
    }

    /// A gain as large as the loss that would fail means that the recorded runs are out of date.
    pub(super) fn warn_of_gains(&self, judgement: &mut Judgement) {
        for (record, judged) in self.cell.bounds.iter().zip(&judgement.bounds) {
            let recorded = record.relative.as_ref().filter(|relative| relative.variant.is_none());
            if let (Some(bound), Some(_), Some(estimate)) =
                (&record.bound, recorded, &judged.estimate)
                && limit::gained(estimate, bound)
            {
                let words = format!(
                    "better than its baseline: {}; `tokgate baseline promote` keeps the gain",
                    judged.message
                );
                judgement.warnings.push(words);
            }
        }
    }
}

/// Why nothing can be held against a measurement, if nothing can: a loss would pass beside an engine that
/// degraded.
fn discounted(measurement: &Measurement) -> Option<&str> {
    let counts_not = |fault: &Option<Fault>| match fault {
        Some(Fault::Invalid | Fault::Degraded) => true,
        Some(Fault::Drifting | Fault::Notice) | None => false,
    };
    let check = measurement.checks.iter().find(|check| counts_not(&check.fault))?;
    Some(&check.message)
}

/// The mean log ratio of pairs, how it was planned, and the spread of one observation.
type Found = (LogMean, Design, f64);

fn pairs(theirs: &[f64], own: &[f64]) -> Vec<Pair> {
    let both = (0..).zip(theirs.iter().zip(own));
    both.map(|(at, (baseline, candidate))| Pair {
        order: order(at),
        baseline: *baseline,
        candidate: *candidate,
    })
    .collect()
}

fn paired_mean(theirs: &[f64], own: &[f64], noise: Option<Noise>) -> Result<Found, NoData> {
    let fit = fit(&log_ratios(&pairs(theirs, own))?)?;
    let mean = fit.log_mean(noise);
    let design = Design { factor: fit.factor, df: mean.df };
    Ok((mean, design, mean.error / fit.factor.sqrt()))
}

fn unpaired_mean(theirs: &[f64], own: &[f64], noise: Option<Noise>) -> Result<Found, NoData> {
    let mean = against_runs(theirs, own, noise)?;
    let factor = 1.0 / theirs.len() as f64 + 1.0 / own.len() as f64;
    Ok((mean, Design { factor, df: mean.df }, mean.error / factor.sqrt()))
}
