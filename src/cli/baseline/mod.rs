//! `tokgate baseline`: files of recorded runs, written, kept up and compared.
//!
//! What a file holds and when it fits is decided in `record::baseline`; here runs are made, records
//! read and files replaced.

mod diff;
mod floors;
mod promote;
mod record;
mod rewrite;
mod sources;

pub(super) use diff::read as named;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::measure::Direction;
use crate::record::RunRecord;
use crate::record::baseline::{Baseline, BaselineError, CellLine, Collected, Kept, Key, collect};
use crate::record::provenance::Provenance;
use crate::record::wording::number;
use crate::report::count::plural;
use crate::report::files;

use super::exit::Exit;
use super::{Global, say};

/// Values that a message names.
const NAMED: usize = 10;

/// Arguments of `tokgate baseline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a suite some times, each with fresh launches, and add the runs to its baseline
    Record(record::Args),
    /// Make finished runs the baseline, in place of what it has of the same cells
    Promote(promote::Args),
    /// Show how two baselines differ, value by value
    Diff(diff::Args),
    /// Compute the floors and ceilings of a suite from recorded runs, and write them into it
    ///
    /// The limit of a cell (its number less the slack for `min`, plus the slack for `max`) becomes the
    /// one-sided tolerance bound of its runs: with the given confidence, at least the given share of the runs of
    /// an unchanged engine is within it. Where the slack is more than that, the number becomes the mean of
    /// the runs and the slack stays the tolerance. A number that holds for several cells is that of the
    /// loosest, and rounding is always to the loose side.
    ///
    /// Only the digits of `min` and `max` change, each in the file that it stands in; comments, columns, and the way in
    /// which numbers are written stay. "over", "-", ratios, and numbers without recorded runs are left alone.
    Floors(floors::Args),
}

/// Runs the subcommand.
pub fn run(args: &Args, global: &Global) -> Exit {
    match &args.command {
        Command::Record(args) => record::run(args, global),
        Command::Promote(args) => promote::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Floors(args) => floors::run(args, global),
    }
}

fn refuse(what: &str, help: &str) -> Exit {
    say(&format!("error: {what}"));
    say(&format!("  help: {help}"));
    Exit::Baseline
}

/// The baseline in a file, or one without runs where there is none.
fn read_or_new(path: &Path, suite: &str, provenance: &Provenance) -> Result<Baseline, Exit> {
    match Baseline::read(path) {
        Ok(baseline) => Ok(baseline),
        Err(BaselineError::Absent { .. }) => Ok(Baseline::new(suite, provenance.identity())),
        Err(error) => Err(refuse(&error.to_string(), error.help())),
    }
}

/// Says that a file that can't be used begins anew.
///
/// # Errors
/// It is something else, which would be lost.
pub(super) fn begin_anew(path: &Path, kind: Kept, why: &BaselineError) -> Result<(), Exit> {
    if kind.may_replace(path) {
        say(&format!("warning: {why}; the file begins anew"));
        return Ok(());
    }
    Err(refuse(&why.to_string(), "name another file: what stands there would be lost"))
}

/// Makes sure that a file can be written, before anything is measured for it.
///
/// # Errors
/// The folder above it can't be made, or nothing can be written there.
pub(super) fn can_keep(path: &Path) -> Result<(), Exit> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let room = files::Room::hold(folder.unwrap_or(Path::new(".")), 0);
    room.map(drop).map_err(|error| {
        say(&format!("error: {} can't be written: {error}", path.display()));
        say("  help: make the folder writable, or name another file; nothing was measured");
        Exit::Unwritten
    })
}

/// Writes a file as a whole, and the folders above it.
fn store(path: &Path, baseline: &Baseline) -> Result<(), Exit> {
    keep(path, &baseline.render())
}

/// Writes a text as a whole file, and the folders above it.
pub(super) fn keep(path: &Path, text: &str) -> Result<(), Exit> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && let Err(error) = std::fs::create_dir_all(folder)
    {
        say(&format!("error: cannot create {}: {error}", folder.display()));
        return Err(Exit::Unwritten);
    }
    files::replace(path, text.as_bytes()).map_err(|error| {
        say(&format!("error: {error}"));
        Exit::Unwritten
    })
}

/// The engines of a run, by what they said of themselves.
fn engines(runs: &[crate::record::baseline::Run]) -> BTreeSet<String> {
    runs.iter().flat_map(|run| run.engines.values().cloned()).collect()
}

/// Why runs can't stand beside those of a baseline: another engine made them.
fn other_engine(baseline: &Baseline, collected: &Collected) -> Option<String> {
    let (there, here) = (engines(&baseline.runs), engines(&collected.runs));
    let words = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    (!there.is_empty() && here.difference(&there).next().is_some())
        .then(|| format!("its runs are of {}, and these of {}", words(&there), words(&here)))
}

/// The values that would get worse, worst first, each in words.
fn lowered(before: &Baseline, after: &Baseline) -> Vec<String> {
    let old: BTreeMap<Key, &CellLine> =
        before.cells.iter().map(|line| (line.key(), line)).collect();
    let mut worse: Vec<(f64, String)> = after
        .cells
        .iter()
        .filter_map(|line| {
            let key = line.key();
            let (was, is) = (old.get(&key)?.middle()?, line.middle()?);
            let loss = match line.better {
                Direction::Higher => 1.0 - is / was,
                Direction::Lower => is / was - 1.0,
            };
            // What is left of the same values in another order of adding is no loss.
            (loss > 1e-12).then(|| {
                let percent = number(loss * 100.0);
                let (was, is) = (number(was), number(is));
                (loss, format!("{key}: {was} → {is} {} ({percent} % worse)", line.unit))
            })
        })
        .collect();
    worse.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    worse.into_iter().map(|(_, words)| words).collect()
}

/// Says that values would get worse, unless there is a reason.
fn unless_lowered(
    before: &Baseline,
    after: &Baseline,
    reason: Option<&String>,
    path: &Path,
) -> Result<(), Exit> {
    let worse = lowered(before, after);
    if worse.is_empty() || reason.is_some_and(|reason| !reason.trim().is_empty()) {
        return Ok(());
    }
    say(&format!(
        "error: this would make {} of {} worse:",
        plural(worse.len(), "value"),
        path.display()
    ));
    for words in worse.iter().take(NAMED) {
        say(&format!("  {words}"));
    }
    if worse.len() > NAMED {
        say(&format!("  and {} more", worse.len() - NAMED));
    }
    say(
        "  help: a worse baseline lets losses pass: say why with --reason 'TEXT', which the file keeps",
    );
    Err(Exit::Baseline)
}

/// The values that a run is to add to each baseline: what its relative bounds lack there.
fn wanted(record: &RunRecord) -> BTreeMap<PathBuf, BTreeSet<Key>> {
    let mut wanted: BTreeMap<PathBuf, BTreeSet<Key>> = BTreeMap::new();
    for cell in &record.header.cells {
        let relative =
            cell.bounds.iter().filter_map(|bound| Some((bound, bound.relative.as_ref()?)));
        for (bound, relative) in relative.filter(|(_, relative)| relative.recorded) {
            let key = Key {
                test: cell.test.clone(),
                variant: cell.variant.clone(),
                cell: cell.id.clone(),
                metric: bound.metric.to_string(),
            };
            // What a revision lacks goes where the next commit takes it from.
            let file = relative.git.as_ref().map_or(&relative.file, |git| &git.file);
            wanted.entry(PathBuf::from(file)).or_default().insert(key);
        }
    }
    wanted
}

/// Adds to baselines what a run has measured of cells that they lack (`on-missing = "record"`). What a shard
/// has measured is added when it is merged: other shards of the run are held against the file as it is.
pub fn supplement(record: &RunRecord) -> Exit {
    let wanted = wanted(record);
    if wanted.is_empty() || record.header.slowed.is_some() {
        return Exit::Pass;
    }
    if record.header.shard.is_some() {
        say("`tokgate merge` records what the baseline lacks, once all shards are there");
        return Exit::Pass;
    }
    let mut collected = match collect(record) {
        Ok(collected) => collected,
        Err(why) => {
            say(&format!("warning: nothing is recorded of this run: {why}"));
            return Exit::Pass;
        }
    };
    let all = std::mem::take(&mut collected.cells);
    let mut exit = Exit::Pass;
    for (path, keys) in &wanted {
        let cells = all.iter().filter(|line| keys.contains(&line.key())).cloned().collect();
        let part = Collected { cells, ..collected.clone() };
        let stored = read_or_new(path, &record.header.suite, &record.header.provenance).and_then(
            |mut baseline| {
                if let Some(other) = other_engine(&baseline, &part) {
                    let what = format!("{} is not added to: {other}", path.display());
                    return Err(refuse(
                        &what,
                        "`tokgate baseline record --replace` begins it anew",
                    ));
                }
                baseline.add(&[part], false);
                store(path, &baseline)
            },
        );
        match stored {
            Ok(()) => {
                say(&format!("recorded {} in {}", plural(keys.len(), "value"), path.display()))
            }
            Err(failed) => exit = exit.or(failed),
        }
    }
    exit
}
