//! Recorded runs out of files and directories, put together as one baseline of a suite.
//!
//! No machine is asked: what the suite declares is all that runs are held against, so that floors can be
//! computed wherever the files are.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::hardware;
use crate::hardware::need::{Count, Need};
use crate::matrix::Plan;
use crate::record::baseline::{Baseline, Key, Misfit, collect};
use crate::record::provenance::Provenance;
use crate::report::json;
use crate::suite::model::EngineSource;

use super::super::exit::Exit;
use super::super::{provenance, say, voice};
use super::{engines, refuse};

/// Reads the runs and puts them together.
///
/// # Errors
/// Each is said: a file or directory can't be read, is of something else than the suite, or of something else
/// than those before it.
pub fn gather(paths: &[PathBuf], plan: &Plan) -> Result<Baseline, Exit> {
    let here = declared(plan);
    let mut all: Option<(&Path, Baseline)> = None;
    for path in paths {
        let one = read(path)?;
        let tests = plan.suite.tests.iter().map(|test| test.name.as_str());
        let misfit = one.misfits(&plan.suite.name, &here, tests).into_iter().next();
        if let Some(misfit) = misfit.or_else(|| other_machine(plan, &one)) {
            let what = format!("the baseline {} does not fit: {misfit}", path.display());
            return Err(refuse(&what, misfit.help()));
        }
        all = Some(match all {
            None => (path, one),
            Some((first, mut all)) => {
                if let Some(why) = apart(&all, &one) {
                    let what =
                        format!("{} and {} are not alike: {why}", first.display(), path.display());
                    return Err(refuse(
                        &what,
                        "give runs of one machine, model and engine together",
                    ));
                }
                join(&mut all, one);
                (first, all)
            }
        });
    }
    Ok(all.map_or_else(|| Baseline::new(&plan.suite.name, here.identity()), |(_, all)| all))
}

/// A baseline, or the values of a run's directory or record.
fn read(path: &Path) -> Result<Baseline, Exit> {
    let record = match path.extension() {
        _ if path.is_dir() => path.join("record.json"),
        Some(end) if end == "json" => path.to_owned(),
        Some(_) | None => {
            return Baseline::read(path).map_err(|error| refuse(&error.to_string(), error.help()));
        }
    };
    let record = json::read(&record).map_err(|error| {
        say(&format!("error: {error}"));
        say("  help: give baselines, or output directories of finished runs, such as tokgate-out/<suite>");
        Exit::Suite
    })?;
    let collected = collect(&record).map_err(|why| {
        let what = format!("{} is no baseline: {why}", path.display());
        refuse(&what, why.help())
    })?;
    let mut one = Baseline::new(&record.header.suite, record.header.provenance.identity());
    one.add(&[collected], false);
    Ok(one)
}

/// What a suite says of its runs by itself.
fn declared(plan: &Plan) -> Provenance {
    let mut declared = provenance::of(plan, &hardware::Facts::default()).hidden(&voice::redactor());
    if asked(plan) {
        declared.identity.retain(|key| !key.starts_with("hardware."));
    }
    declared
}

/// Whether a run asks the machine what it is.
fn asked(plan: &Plan) -> bool {
    let url = |source: &EngineSource| matches!(source, EngineSource::Url(_));
    let remote = || plan.suite.settings.iter().any(|setting| url(&setting.engine.source));
    let here = plan.suite.hardware.as_ref().map_or_else(|| !remote(), Need::is_checked);
    here && !crate::run::in_virtual_time(plan)
}

/// In which way runs are of another machine than the suite asks for.
fn other_machine(plan: &Plan, one: &Baseline) -> Option<Misfit> {
    let Need { gpu, count, .. } = plan.suite.hardware.as_ref().filter(|_| asked(plan))?;
    let misfit = |key: &str, there: &str, here: String| {
        Some(Misfit::Identity { key: key.to_owned(), there: format!("`{there}`"), here })
    };
    if let (Some(wanted), Some(there)) = (gpu, one.head.identity.get("hardware.gpu")) {
        let is = |name: &str| name.to_lowercase().contains(&wanted.to_lowercase());
        if !there.split(", ").all(is) {
            return misfit("hardware.gpu", there, format!("`{wanted}`"));
        }
    }
    if let (Some(wanted), Some(there)) = (count, one.head.identity.get("hardware.count")) {
        let number: Option<u32> = there.parse().ok();
        let (fits, wanted) = match wanted {
            Count::Exactly(n) => (number == Some(*n), n.to_string()),
            Count::AtLeast(n) => (number.is_some_and(|number| number >= *n), format!(">={n}")),
        };
        if !fits {
            return misfit("hardware.count", there, format!("`{wanted}`"));
        }
    }
    None
}

/// Why runs can't stand together.
fn apart(all: &Baseline, one: &Baseline) -> Option<String> {
    let of = |baseline: &Baseline, key: &String| {
        baseline.head.identity.get(key).cloned().unwrap_or_else(|| "unknown".to_owned())
    };
    let keys = all.head.identity.keys().chain(one.head.identity.keys());
    let mut other = keys.filter(|key| of(all, key) != of(one, key));
    if let Some(key) = other.next() {
        return Some(format!("{key} is {} and {}", of(all, key), of(one, key)));
    }
    let (there, here) = (engines(&all.runs), engines(&one.runs));
    let words = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
    (there != here).then(|| format!("the engine is {} and {}", words(there), words(here)))
}

/// Adds runs to others; a run that is in both counts once.
fn join(all: &mut Baseline, one: Baseline) {
    for run in one.runs {
        if !all.runs.iter().any(|known| known.id == run.id) {
            all.runs.push(run);
        }
    }
    let places: HashMap<Key, usize> =
        all.cells.iter().enumerate().map(|(at, line)| (line.key(), at)).collect();
    for line in one.cells {
        match places.get(&line.key()) {
            Some(at) => all.cells[*at].values.extend(line.values),
            None => all.cells.push(line),
        }
    }
    for (test, workload) in one.tests {
        all.tests.entry(test).or_insert(workload);
    }
}
