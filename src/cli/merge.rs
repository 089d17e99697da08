//! `tokgate merge`: the records of all shards of a run, joined and reported as one.
//!
//! Everything that hinders it is said before anything is written. Of a shard that was killed its journal
//! counts, which its record.json may be a little behind; one that is going on is waited for by whoever merges.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::merge::{MergeError, Source, folder, merge, named};
use crate::record::run_record::RunRecord;
use crate::record::{History, journal};
use crate::report::console::{self, Extent};
use crate::report::count::plural;
use crate::report::files::{Room, Unwritten};
use crate::report::{self, json};

use super::annotate::Annotations;
use super::directory::{self, Directory, JOURNAL, shown};
use super::exit::{self, Exit};
use super::junit::Junit;
use super::lock::{Lock, Refusal};
use super::onlooker::Trouble;
use super::run::ROOM;
use super::{Global, hindrance, resume, say, shard, step_summary};

/// What did not happen where there is no output directory.
const WROTE_NOTHING: &str = "nothing was written";

/// Arguments of `tokgate merge`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The output directories of all shards, in any order
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Write results to DIR [default: tokgate-out/<suite>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Merge although shards are missing: their cells are errors, not run
    #[arg(long)]
    allow_missing: bool,
    #[command(flatten)]
    junit: Junit,
    /// Have the worst cells shown on their lines of the suite: auto (on GitHub Actions), github or none
    #[arg(long, value_enum, default_value_t, value_name = "WHERE", hide_possible_values = true)]
    annotations: Annotations,
    /// Exit 11 when there are warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Merges shards, writes the reports and prints the closing page. Ends with the exit code of the merged
/// record.
pub fn run(args: &Args, global: &Global) -> Exit {
    directory::survive_size_limits();
    if let Err(exit) = args.junit.check() {
        return exit;
    }
    // Held to the end: what is read is what is merged.
    let _locks = match hold(&args.dirs) {
        Ok(locks) => locks,
        Err(exit) => return exit,
    };
    let (record, shards) = match joined(args) {
        Ok(joined) => joined,
        Err(exit) => return exit,
    };
    let out =
        args.out.clone().unwrap_or_else(|| shard::default_directory(&record.header.suite, None));
    if let Some(dir) = args.dirs.iter().find(|dir| in_the_way(dir, &out)) {
        say(&format!(
            "error: {} is a shard, and what is merged would be written over it",
            dir.display()
        ));
        say("  help: give another --out");
        return Exit::Suite;
    }
    let written = write(args, &record, &shards, &out, global);
    let width = super::report::terminal_width();
    let extent = if global.quiet { Extent::Troubles } else { Extent::Whole };
    let page = console::render(&record, width, global.color_stdout(), extent);
    step_summary::add(&record);
    let printed = super::print(&page).or(args.annotations.print(&record));
    match &written {
        Ok(directory) if !global.quiet => {
            say(&format!("results in {}", shown(directory).display()))
        }
        Ok(_) => {}
        Err(troubles) => {
            for Trouble { said, help } in troubles {
                say(&format!("error: results could not be written: {said}"));
                say(&format!("  help: {help}; then merge again"));
            }
        }
    }
    let flags = exit::Flags { deny_warnings: args.deny_warnings, unwritten: written.is_err() };
    let exit = exit::of(&record, flags).or(printed).or(super::baseline::supplement(&record));
    say(&console::last_line(&record));
    exit
}

/// Takes the locks of the shards, where they have some, so that none goes on meanwhile.
fn hold(dirs: &[PathBuf]) -> Result<Vec<Lock>, Exit> {
    // One that is given twice is told by its record.
    let mut known: Vec<PathBuf> = Vec::new();
    let mut locks = Vec::new();
    let mut free = Ok(());
    for dir in dirs {
        let path = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        if known.contains(&path) {
            continue;
        }
        known.push(path);
        match Lock::take_if_there(dir, "tokgate merge") {
            Ok(lock) => locks.extend(lock),
            Err(Refusal::Held(holder)) => {
                let dir = dir.display();
                say(&format!("error: the shard in {dir} has not ended (lock held by {holder})"));
                say(
                    "  help: wait for it; or leave it out, with --allow-missing: its cells are errors then",
                );
                free = Err(Exit::Unwritten);
            }
            // Whoever can't write there, as in what was brought from another machine, can't run there.
            Err(Refusal::Io(_)) => {}
        }
    }
    free.map(|()| locks)
}

/// Where the logs of a shard are, and where they go.
struct Logs {
    from: PathBuf,
    to: String,
    /// Those that its record names.
    named: Vec<String>,
}

/// Reads all shards and joins their records; says every problem.
fn joined(args: &Args) -> Result<(RunRecord, Vec<Logs>), Exit> {
    let mut sources = Vec::new();
    let mut logs = Vec::new();
    let mut exit = Exit::Pass;
    for dir in &args.dirs {
        match read(dir) {
            Ok(record) => {
                if let Some(part) = &record.header.shard {
                    let to = folder(part.shard, part.of);
                    let named = record.launches.iter().filter_map(|launch| launch.log.clone());
                    logs.push(Logs { from: dir.clone(), to, named: named.collect() });
                }
                sources.push(Source { name: dir.display().to_string(), record });
            }
            Err(error) => {
                say(&format!("error: {error}"));
                if !dir.join("record.json").exists() {
                    say("  help: give the output directories of `tokgate run --shard`");
                }
                exit = exit.or(Exit::Suite);
            }
        }
    }
    if exit != Exit::Pass {
        return Err(exit);
    }
    let merged = merge(sources, args.allow_missing).map_err(|errors| {
        for error in &errors {
            say(&format!("error: {error}"));
            say(&format!("  help: {}", help(error)));
        }
        errors.iter().map(code).fold(Exit::Pass, Exit::or)
    })?;
    Ok((merged, logs))
}

/// The record of a shard. Where that does not tell its end, what its journal has come to.
fn read(dir: &Path) -> Result<RunRecord, json::Unreadable> {
    let record = json::read(&dir.join("record.json"));
    if record.as_ref().is_ok_and(|record| record.seconds.is_some()) {
        return record;
    }
    let told = journal::read(&dir.join(JOURNAL)).ok();
    let told = told.and_then(|contents| History::of(&contents.events)).map(|it| it.record);
    match (record, told) {
        (Ok(written), Some(told)) if written.header == told.header => Ok(told),
        (Err(json::Unreadable::File { .. }), Some(told)) if told.header.misfit().is_none() => {
            Ok(told)
        }
        (record, _) => record,
    }
}

fn help(error: &MergeError) -> String {
    match error {
        MergeError::Whole { name } => {
            format!("`tokgate report {name}` renders the reports of one run; leave it out here")
        }
        MergeError::Merged { .. } => "give the directories of the shards themselves".to_owned(),
        MergeError::Foreign { .. } => {
            "run all shards with one suite, the same flags but --shard, the same baselines, and one version of tokgate".to_owned()
        }
        MergeError::Doubled { .. } => {
            "give one of them; a directory that ends with .previous holds the run before".to_owned()
        }
        MergeError::Missing { shards, .. } => format!(
            "give the directory of {} too, or --allow-missing: its cells are errors then",
            named(shards)
        ),
        MergeError::OtherGpus { .. } => {
            "run all shards on machines with the same GPUs; `hardware.where = \"elsewhere\"` says that the \
             engines are not on the machines of the shards"
                .to_owned()
        }
    }
}

fn code(error: &MergeError) -> Exit {
    match error {
        MergeError::Whole { .. }
        | MergeError::Merged { .. }
        | MergeError::Foreign { .. }
        | MergeError::Doubled { .. }
        | MergeError::Missing { .. } => Exit::Suite,
        MergeError::OtherGpus { .. } => Exit::Mismatch,
    }
}

/// Whether a shard's directory is the one that is written to, or would give way when an earlier run does.
fn in_the_way(dir: &Path, out: &Path) -> bool {
    let (Ok(dir), Ok(out)) = (dir.canonicalize(), out.canonicalize()) else { return false };
    dir == out || directory::gives_way(&dir, &out)
}

/// Writes the reports, and the logs of the shards beside them, each in the folder of its shard; says where
/// an earlier run went. What hinders it comes back, unless it has been said.
fn write(
    args: &Args,
    record: &RunRecord,
    shards: &[Logs],
    out: &Path,
    global: &Global,
) -> Result<PathBuf, Vec<Trouble>> {
    let directory = Directory::open(out, "tokgate merge").map_err(|error| {
        hindrance::unopened(&error, out, WROTE_NOTHING);
        Vec::new()
    })?;
    let previous = directory.clear().map_err(|error| {
        hindrance::unmoved(&error, &directory, WROTE_NOTHING);
        Vec::new()
    })?;
    if let (Some(previous), false) = (previous, global.quiet) {
        resume::farewell(&previous, &shown(&previous)).iter().for_each(|line| say(line));
    }
    // Logs may be large, and reports are worth more.
    let room = Room::hold(&directory.path, ROOM).map_err(|error| vec![error.into()])?;
    let mut troubles = Vec::new();
    for shard in shards {
        match bring(shard, &directory.path.join(&shard.to)) {
            Ok(0) => {}
            Ok(missed) => {
                let (missed, from) = (plural(missed, "log"), shard.from.display());
                say(&format!("warning: {missed} not there: {from}"));
            }
            Err(error) => troubles.push(error.into()),
        }
    }
    drop(room);
    let written = report::write_all(&directory.path, record, &args.junit.order(&directory.path));
    troubles.extend(written.err().map(Trouble::from));
    if troubles.is_empty() { Ok(directory.path) } else { Err(troubles) }
}

/// Brings the logs of a shard into a folder: as second names of the same files where that can be, since they
/// may be large. Says how many the record names that are not there.
fn bring(shard: &Logs, to: &Path) -> Result<usize, Unwritten> {
    let names: Vec<_> = fs::read_dir(&shard.from)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().ends_with(".log"))
        .collect();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| Unwritten { path, source }
    };
    if !names.is_empty() {
        fs::create_dir_all(to).map_err(at(to))?;
    }
    for name in &names {
        let (old, new) = (shard.from.join(name), to.join(name));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&new)(error)),
            Ok(()) | Err(_) => {}
        }
        if fs::hard_link(&old, &new).is_err() {
            fs::copy(&old, &new).map_err(at(&new))?;
        }
    }
    let there = |log: &&String| names.iter().any(|name| name == log.as_str());
    Ok(shard.named.iter().filter(|log| !there(log)).count())
}
