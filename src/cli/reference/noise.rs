//! What a calibration tells of the noise of a plan's bounds, read and checked before anything is launched.
//!
//! Which files fit is decided in `record::noise`, what an interval is in `judge`. A bound that the file
//! lacks follows the suite's `on-missing`: an error, or it is judged by what its own launch tells.

use std::collections::BTreeSet;
use std::path::Path;

use super::{References, say, told};
use crate::judge::power::{Design, Question, SURELY, smallest_loss};
use crate::judge::ratio::{Noise, family_level};
use crate::matrix::{Cell, CellBound, Plan};
use crate::record::baseline::{BaselineError, Kept, Key};
use crate::record::noise::{NoiseFile, has_noise, may_be_zero};
use crate::record::provenance::Provenance;
use crate::record::run_record::NoiseRecord;
use crate::suite::model::{OnMissing, Reference};

/// A bound of a cell.
struct Asked<'p> {
    at: (usize, usize),
    cell: &'p Cell,
    bound: CellBound,
}

/// Finds what the suite's noise file tells of each bound, or says everything that is wrong. Call it when what
/// ratios are held against is found. Whether all went well.
pub(super) fn resolve(plan: &Plan, provenance: &Provenance, found: &mut References) -> bool {
    let Some(file) = plan.suite.baseline.noise.as_ref().map(|named| named.file.as_path()) else {
        return true;
    };
    let asked = asked(plan, found);
    if asked.is_empty() {
        return true;
    }
    let lenient = match plan.suite.baseline.on_missing {
        OnMissing::Error => false,
        OnMissing::Skip | OnMissing::Record => true,
    };
    let shown = file.display();
    let noise = match NoiseFile::read(file) {
        Ok(noise) => noise,
        Err(error @ BaselineError::Absent { .. }) if lenient => {
            found.notes.push(format!(
                "{error}: every cell is judged by its own noise (baseline.on-missing)"
            ));
            return true;
        }
        Err(error) => {
            refuse(&error.to_string(), error.help());
            return false;
        }
    };
    let tests: BTreeSet<&str> = asked.iter().map(|one| plan.test(one.cell).name.as_str()).collect();
    let misfits = noise.misfits(&plan.suite.name, provenance, tests.into_iter());
    for misfit in &misfits {
        let what = format!("the noise file {shown} does not fit: {misfit}");
        refuse(&what, misfit.remedy(Kept::Noise));
    }
    if !misfits.is_empty() {
        return false;
    }
    let mut renamed: BTreeSet<&str> = BTreeSet::new();
    let (mut missing, mut spared) = (Vec::new(), Vec::new());
    for one in &asked {
        match known(plan, &noise, one) {
            Some(known) => apply(plan, one, known, file, found),
            None => {
                let (key, test) = (key(plan, one, one.cell.setting), &plan.test(one.cell).name);
                // All cells of a test have the same axes, so one tells.
                if renamed.contains(test.as_str()) {
                    continue;
                }
                match noise.other_axes(test, &key.cell) {
                    Some(misfit) => {
                        renamed.insert(test);
                        let what = format!("the noise file {shown} does not fit: {misfit}");
                        refuse(&what, misfit.remedy(Kept::Noise));
                    }
                    None if lenient || may_be_zero(one.bound.metric.base) => {
                        spared.push(key.to_string());
                    }
                    None => missing.push(key.to_string()),
                }
            }
        }
    }
    if !spared.is_empty() {
        found.notes.push(format!(
            "judged by its own noise, since the noise file {shown} lacks it: {}",
            told(&spared)
        ));
    }
    if !missing.is_empty() {
        let what = format!("the noise file {shown} lacks {}", told(&missing));
        refuse(
            &what,
            "`tokgate calibrate` measures what is missing, with -E that alone; `on-missing = \"skip\"` in [baseline] has it judged by its own noise",
        );
    }
    missing.is_empty() && renamed.is_empty()
}

fn refuse(what: &str, help: &str) {
    say(&format!("error: {what}"));
    say(&format!("  help: {help}"));
}

/// The bounds whose noise is asked for: not those of counts, and not those that are not judged.
fn asked<'p>(plan: &'p Plan, found: &References) -> Vec<Asked<'p>> {
    let mut asked = Vec::new();
    for (index, cell) in plan.cells.iter().enumerate() {
        for (position, bound) in plan.bounds(cell).into_iter().enumerate() {
            let at = (index, position);
            let relative = found.relative.get(&at);
            let silent = relative.is_some_and(|it| it.runs.is_empty() && it.variant.is_none());
            if bound.bound.is_some() && has_noise(bound.metric.base) && !silent {
                asked.push(Asked { at, cell, bound });
            }
        }
    }
    asked
}

fn key(plan: &Plan, one: &Asked<'_>, setting: u32) -> Key {
    Key {
        test: plan.test(one.cell).name.clone(),
        variant: plan.suite.settings[setting as usize].variant.clone(),
        cell: plan.cell_id(one.cell),
        metric: one.bound.metric.to_string(),
    }
}

/// What the file tells: of a ratio to a variant the noise of both, or of the one that was calibrated; a
/// candidate is new, and nobody knows its noise yet.
fn known(plan: &Plan, noise: &NoiseFile, one: &Asked<'_>) -> Option<Noise> {
    let of = |setting| noise.find(&key(plan, one, setting)).map(|line| line.noise());
    let own = of(one.cell.setting);
    let Some(Reference::Variant(other)) = one.bound.against.as_ref().map(|it| &it.reference) else {
        return own;
    };
    match (own, of(*other)) {
        (Some(own), Some(other)) => Some(own.with(other)),
        (own, other) => own.or(other),
    }
}

fn apply(plan: &Plan, one: &Asked<'_>, noise: Noise, file: &Path, found: &mut References) {
    let record = NoiseRecord { file: file.display().to_string(), sd: noise.sd, df: noise.df };
    found.noise.insert(one.at, record);
    // What recorded runs could see by their own spread they see by the calibrated one now.
    if let Some(relative) = found.relative.get_mut(&one.at)
        && let Some(bound) = &one.bound.bound
        && let Some(design) = Design::runs(relative.runs.len() as u64, plan.rounds(one.cell).into())
    {
        let alpha = family_level(plan.suite.policy.alpha, relative.comparisons);
        let question = Question { alpha, limit: bound.limit.ln().abs() };
        let design = design.calibrated(noise.df);
        relative.sees = Some(smallest_loss(design, question, noise.sd, SURELY));
    }
}
