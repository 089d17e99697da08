//! `tokgate baseline promote`: finished runs become the baseline.

use std::path::{Path, PathBuf};

use crate::record::RunRecord;
use crate::record::baseline::{Baseline, Collected, LEAST_RUNS, collect};
use crate::report::count::plural;
use crate::report::json;

use super::super::exit::Exit;
use super::super::say;
use super::{other_engine, read_or_new, refuse, store, unless_lowered};

/// Arguments of `tokgate baseline promote`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output directories of finished runs
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The file [default: that of the [baseline] of the runs' suite]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Beside what the file has of the same cells, not in its place
    #[arg(long)]
    add: bool,
    /// Why a value may get worse; the file keeps it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Reads the runs and writes the file.
pub fn run(args: &Args) -> Exit {
    match promote(args) {
        Ok(said) => {
            say(&said);
            Exit::Pass
        }
        Err(exit) => exit,
    }
}

fn promote(args: &Args) -> Result<String, Exit> {
    let records = records(&args.dirs)?;
    let (first, _) = &records[0];
    let header = &first.header;
    let named = header.provenance.baseline.as_ref().map(PathBuf::from);
    let Some(file) = args.file.clone().or(named) else {
        say("error: the runs' suite names no baseline to write");
        say("  help: give --file, or write `file = \"baselines/NAME.jsonl\"` in [baseline]");
        return Err(Exit::Suite);
    };
    alike(&args.dirs, &records)?;
    let before = read_or_new(&file, &header.suite, &header.provenance)?;
    let tests = header.provenance.workloads.keys().map(String::as_str);
    if let Some(misfit) = before.misfits(&header.suite, &header.provenance, tests).first() {
        let what = format!("{} does not fit: {misfit}", file.display());
        return Err(refuse(&what, misfit.help()));
    }
    let mut runs: Vec<Collected> = records.into_iter().map(|(_, collected)| collected).collect();
    if let Some(other) = runs.iter().find_map(|run| other_engine(&before, run)).filter(|_| args.add)
    {
        let what = format!("{} can't be added to: {other}", file.display());
        return Err(refuse(&what, "leave --add out: these runs then stand in place of those"));
    }
    for run in &mut runs {
        run.runs.iter_mut().for_each(|one| one.reason = args.reason.clone());
    }
    let mut after = before.clone();
    after.add(&runs, !args.add);
    let touched = |line: &&crate::record::baseline::CellLine| {
        runs.iter().flat_map(|run| &run.runs).any(|one| line.values.contains_key(&one.id))
    };
    if after.cells.iter().filter(touched).any(|line| line.values.len() < LEAST_RUNS) {
        let what = "one run shows no noise, so nothing can be judged by it";
        return Err(refuse(
            what,
            "give the directories of two runs or more, or --add to keep those that the file has",
        ));
    }
    unless_lowered(&before, &after, args.reason.as_ref(), &file)?;
    let values = after.cells.iter().filter(touched).count();
    store(&file, &after)?;
    Ok(format!(
        "promoted {}: {} in {}",
        plural(runs.len(), "run"),
        plural(values, "value"),
        file.display()
    ))
}

/// The records of finished runs with their values.
fn records(dirs: &[PathBuf]) -> Result<Vec<(RunRecord, Collected)>, Exit> {
    let mut found: Vec<(RunRecord, Collected)> = Vec::new();
    for dir in dirs {
        let record = json::read(&dir.join("record.json")).map_err(|error| {
            say(&format!("error: {error}"));
            say("  help: give the output directory of a finished run, such as tokgate-out/<suite>");
            Exit::Suite
        })?;
        let collected = collect(&record).map_err(|why| {
            let what = format!("{} is no baseline: {why}", dir.display());
            refuse(&what, why.help())
        })?;
        if found.iter().any(|(known, _)| known.header.run_id == record.header.run_id) {
            let what = format!("{} holds a run that is given twice", dir.display());
            return Err(refuse(&what, "leave one of them out"));
        }
        found.push((record, collected));
    }
    Ok(found)
}

/// Runs that stand together must be of one suite, machine and engine.
fn alike(dirs: &[PathBuf], records: &[(RunRecord, Collected)]) -> Result<(), Exit> {
    let (first, collected) = &records[0];
    let (suite, provenance) = (&first.header.suite, &first.header.provenance);
    let mut together = Baseline::new(suite, provenance.identity());
    together.add(std::slice::from_ref(collected), false);
    for (dir, (record, collected)) in dirs.iter().zip(records).skip(1) {
        let header = &record.header;
        let tests = header.provenance.workloads.keys().map(String::as_str);
        let misfit = together.misfits(&header.suite, &header.provenance, tests);
        let other = misfit.first().map(ToString::to_string);
        if let Some(other) = other.or_else(|| other_engine(&together, collected)) {
            let what = format!("{} and {} are not alike: {other}", shown(&dirs[0]), shown(dir));
            return Err(refuse(&what, "promote runs of one suite, machine and engine together"));
        }
    }
    Ok(())
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}
