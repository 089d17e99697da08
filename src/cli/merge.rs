//! `tokgate merge`: the records of all shards of a run, joined and reported as one.
//!
//! Everything that hinders it is said before anything is written. Of a shard that was killed its journal
//! counts, which its record.json may be a little behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::merge::{MergeError, Source, folder, merge, named};
use crate::record::run_record::RunRecord;
use crate::record::{History, journal};
use crate::report::console::{self, Extent};
use crate::report::count::plural;
use crate::report::junit::Dialect;
use crate::report::{self, json};

use super::directory::{Directory, JOURNAL};
use super::exit::{self, Exit};
use super::{Global, say, shard};

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
    /// The dialect of junit.xml: rich, or strict for Jenkins' junit-10.xsd
    #[arg(long, value_enum, default_value_t, value_name = "DIALECT", hide_possible_values = true)]
    junit_dialect: Dialect,
    /// Exit 11 when there are warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Merges shards, writes the reports and prints the closing page. Ends with the exit code of the merged
/// record.
pub fn run(args: &Args, global: &Global) -> Exit {
    let (record, shards) = match joined(args) {
        Ok(joined) => joined,
        Err(exit) => return exit,
    };
    let out =
        args.out.clone().unwrap_or_else(|| shard::default_directory(&record.header.suite, None));
    if let Some(dir) = args.dirs.iter().find(|dir| same(dir, &out)) {
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
    let printed = super::print(&console::render(&record, width, global.color_stdout(), extent));
    match &written {
        Err(error) => say(&format!("error: results could not be written: {error}")),
        Ok(()) if !global.quiet => say(&format!("results in {}", out.display())),
        Ok(()) => {}
    }
    let flags = exit::Flags { deny_warnings: args.deny_warnings, unwritten: written.is_err() };
    let exit = exit::of(&record, flags).or(printed);
    say(&console::last_line(&record));
    exit
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
            "run all shards with one suite, the same flags but --shard, and one version of tokgate".to_owned()
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

/// Whether two paths are one directory.
fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Writes the reports, and the logs of the shards beside them, each in the folder of its shard.
fn write(
    args: &Args,
    record: &RunRecord,
    shards: &[Logs],
    out: &Path,
    global: &Global,
) -> Result<(), Box<dyn std::error::Error>> {
    let directory = Directory::open(out)?;
    if let (Some(previous), false) = (directory.clear()?, global.quiet) {
        say(&format!("the earlier run went to {}", previous.display()));
    }
    for shard in shards {
        let missed = bring(shard, &directory.path.join(&shard.to))?;
        if missed > 0 {
            say(&format!("warning: {} not there: {}", plural(missed, "log"), shard.from.display()));
        }
    }
    report::write_all(&directory.path, record, args.junit_dialect)?;
    Ok(())
}

/// Brings the logs of a shard into a folder: as second names of the same files where that can be, since they
/// may be large. Says how many the record names that are not there.
fn bring(shard: &Logs, to: &Path) -> io::Result<usize> {
    let names: Vec<_> = fs::read_dir(&shard.from)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().ends_with(".log"))
        .collect();
    if !names.is_empty() {
        fs::create_dir_all(to)?;
    }
    for name in &names {
        let (old, new) = (shard.from.join(name), to.join(name));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        if fs::hard_link(&old, &new).is_err() {
            fs::copy(&old, &new)?;
        }
    }
    let there = |log: &&String| names.iter().any(|name| name == log.as_str());
    Ok(shard.named.iter().filter(|log| !there(log)).count())
}
