//! `--shard m/n`: which launches of a plan this machine carries out, and by whose times they are split.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::matrix::shard::{Timings, split};
use crate::matrix::{Plan, Shard};
use crate::record::run_record::RunHeader;
use crate::record::shard::TimingsFile;
use crate::report::json;

use super::exit::Exit;
use super::say;

/// Flags that split a suite over several machines.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Sharding {
    /// Only the m-th of n parts: whole launches, split so that each part takes about as long, those that are
    /// compared together; `tokgate merge` joins them
    #[arg(long, value_name = "M/N", value_parser = |text: &str| text.parse::<Shard>().map_err(|e| e.to_string()))]
    pub shard: Option<Shard>,
    /// Split by the times in this record of an earlier run, the same file for all shards [default: as
    /// estimated by `tokgate list`]
    #[arg(long, value_name = "RECORD", requires = "shard")]
    pub timings: Option<PathBuf>,
}

/// A plan that is split, and the shard of it that is asked for.
#[derive(Debug, Clone)]
pub struct Split {
    /// The whole plan.
    pub whole: Plan,
    /// The shard.
    pub shard: Shard,
    /// For each launch of the whole plan its shard.
    pub owners: Vec<u32>,
    /// The record whose times count.
    pub timings: Option<TimingsFile>,
}

impl Split {
    /// The part that the shard carries out.
    pub fn part(&self) -> Plan {
        self.whole.only(|launch| self.owners[launch] == self.shard.index)
    }

    /// The part that other shards carry out.
    pub fn elsewhere(&self) -> Plan {
        self.whole.only(|launch| self.owners[launch] != self.shard.index)
    }

    /// Where the cells of [`Split::part`], or those of [`Split::elsewhere`], stand in the whole plan.
    pub fn places(&self, own: bool) -> Vec<usize> {
        let launches = self.whole.launches.iter().zip(&self.owners);
        let wanted = launches.filter(|(_, owner)| (**owner == self.shard.index) == own);
        wanted.flat_map(|(launch, _)| launch.cells.clone()).collect()
    }
}

impl Sharding {
    /// Splits a plan; `None` where no shard is asked for.
    ///
    /// # Errors
    /// [`Exit::Suite`]: the record of times can't be read, or is that of another suite.
    pub fn split(&self, plan: &Plan) -> Result<Option<Split>, Exit> {
        let Some(shard) = self.shard else { return Ok(None) };
        let (times, timings) = match &self.timings {
            Some(path) => {
                let (times, file) = read(path, plan)?;
                (times, Some(file))
            }
            None => (Timings::default(), None),
        };
        let owners = split(&plan.times(&times), &plan.together(), shard.of);
        Ok(Some(Split { whole: plan.clone(), shard, owners, timings }))
    }
}

/// The times in a record of the same suite.
fn read(path: &Path, plan: &Plan) -> Result<(Timings, TimingsFile), Exit> {
    let refuse = |message: &str| {
        say(&format!("error: --timings: {message}"));
        say(
            "  help: give the record.json of an earlier run of this suite, or leave --timings away",
        );
        Exit::Suite
    };
    let record = json::read(path).map_err(|error| refuse(&error.to_string()))?;
    if record.header.suite != plan.suite.name {
        let (theirs, ours) = (&record.header.suite, &plan.suite.name);
        let path = path.display();
        return Err(refuse(&format!("{path} is a record of the suite {theirs}, not of {ours}")));
    }
    let bytes = std::fs::read(path).map_err(|error| refuse(&error.to_string()))?;
    let hash = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((record.timings(), TimingsFile { path: path.to_string_lossy().into_owned(), hash }))
}

/// The directory of a suite's results below `tokgate-out`: that of a shard is its own.
pub fn default_directory(suite: &str, shard: Option<Shard>) -> PathBuf {
    let name = match shard {
        Some(Shard { index, of }) => format!("{suite}.shard-{index}-of-{of}"),
        None => suite.to_owned(),
    };
    Path::new("tokgate-out").join(name)
}

/// The flags that make a run the shard that it is; a rerun of one cell needs none of them.
pub fn flags(header: &RunHeader) -> Vec<String> {
    let Some(part) = &header.shard else { return Vec::new() };
    let mut flags = vec!["--shard".to_owned(), format!("{}/{}", part.shard, part.of)];
    if let Some(file) = &part.timings {
        flags.extend(["--timings".to_owned(), file.path.clone()]);
    }
    flags
}

/// How the run that began is another shard than the one that is asked for; `None` where it is not.
pub fn other(began: &RunHeader, now: &RunHeader) -> Option<String> {
    let words = |header: &RunHeader| match &header.shard {
        Some(part) => format!("{}/{}", part.shard, part.of),
        None => "none".to_owned(),
    };
    if words(began) != words(now) {
        return Some(format!("--shard was {}, is {}", words(began), words(now)));
    }
    let timings = |header: &RunHeader| {
        let file = header.shard.as_ref().and_then(|part| part.timings.as_ref());
        file.map(|file| file.hash.clone())
    };
    if timings(began) != timings(now) {
        return Some("the record that --timings names is another file".to_owned());
    }
    let owners = |header: &RunHeader| header.shard.as_ref().map(|part| part.owners.clone());
    (owners(began) != owners(now)).then(|| "the launches are split otherwise".to_owned())
}
