//! Shards in records: which part of its plan a run carried out, and which shards a merged record is of.
//!
//! The record of a shard tells the whole plan, what other shards carry out included: so that shards can be
//! put together, a missing one can be told cell by cell, and whatever depends on how much was planned is
//! the same in each shard and in the whole.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::StopReason;
use super::run_record::{
    CellState, PlannedCellRecord, PlannedLaunchRecord, Resumption, RunHeader, RunRecord,
};
use crate::hardware;
use crate::matrix::shard::Timings;

/// Which part of its plan a run carries out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Part {
    /// Which shard, from 1.
    pub shard: u32,
    /// Of how many.
    pub of: u32,
    /// The record by whose times the launches were split; without one by estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsFile>,
    /// Whether engines run on the machine of the shard, so that its GPUs are theirs.
    pub here: bool,
    /// For each launch of the whole plan, in its order, the shard that carries it out. The header's launches
    /// are those of this shard, `elsewhere` has the others, each in this order.
    pub owners: Vec<u32>,
    /// What other shards carry out.
    pub elsewhere: Elsewhere,
}

/// The file that told how long launches take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TimingsFile {
    /// As it was named.
    pub path: String,
    /// SHA-256 of its bytes.
    pub hash: String,
}

/// The part of a plan that other shards carry out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Elsewhere {
    /// Planned launches.
    pub launches: Vec<PlannedLaunchRecord>,
    /// Their cells; `launch` is an index of the launches here.
    pub cells: Vec<PlannedCellRecord>,
}

/// Which shards a merged record is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Merged {
    /// Into how many shards the plan was split.
    pub of: u32,
    /// The record by whose times the launches were split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsFile>,
    /// For each launch the shard that carried it out.
    pub owners: Vec<u32>,
    /// The shards that are here, and those that are missed; shards without a launch may be absent.
    pub shards: Vec<MergedShard>,
}

/// A shard of a merged record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct MergedShard {
    /// Which, from 1.
    pub shard: u32,
    /// Its run; absent where the shard is missing.
    pub run: Option<ShardRun>,
}

/// The run of a shard, as far as it is its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ShardRun {
    /// Identity of the run.
    pub run_id: String,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Facts of the machine.
    pub machine: hardware::Facts,
    /// Flags that shaped it, for rerun commands.
    pub flags: Vec<String>,
    /// Each time that it went on after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumptions: Vec<Resumption>,
    /// Seconds that it took, all sessions together, once it has ended.
    pub seconds: Option<f64>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it ended early.
    pub stopped: Option<StopReason>,
}

/// Launches and cells of a whole plan, in its order.
pub type Whole = (Vec<PlannedLaunchRecord>, Vec<PlannedCellRecord>);

/// Where a launch and its cells come from: the run, or that of its shard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Origin<'a> {
    /// Its shard and of how many, where the plan was split.
    pub shard: Option<(u32, u32)>,
    /// Whether that shard is missing.
    pub missing: bool,
    /// Identity of the run.
    pub run_id: &'a str,
    /// Seed of prompts and arrivals.
    pub seed: u64,
    /// When it began.
    pub started: &'a str,
    /// The machine.
    pub machine: &'a hardware::Facts,
    /// Flags for rerun commands.
    pub flags: &'a [String],
    /// Why it ended early.
    pub stopped: Option<StopReason>,
}

impl RunHeader {
    /// Cells of the whole plan: of a shard those that other shards carry out too. The same in every shard
    /// and in what they are merged to.
    pub fn planned_cells(&self) -> usize {
        self.cells.len() + self.shard.as_ref().map_or(0, |part| part.elsewhere.cells.len())
    }

    /// Launches of the whole plan, likewise.
    pub fn planned_launches(&self) -> usize {
        self.launches.len() + self.shard.as_ref().map_or(0, |part| part.elsewhere.launches.len())
    }

    /// Launches and cells of the whole plan, in its order. [`RunHeader::misfit`] must have found nothing.
    pub fn whole(&self) -> Whole {
        let Some(part) = &self.shard else { return (self.launches.clone(), self.cells.clone()) };
        let (mut launches, mut cells) = (Vec::new(), Vec::new());
        let mut places = [(&self.launches, &self.cells, 0, 0), {
            let Elsewhere { launches, cells } = &part.elsewhere;
            (launches, cells, 0, 0)
        }];
        for (at, owner) in part.owners.iter().enumerate() {
            let (from, all, launch, cell) = &mut places[usize::from(*owner != part.shard)];
            launches.extend(from.get(*launch).cloned());
            while let Some(next) = all.get(*cell).filter(|cell| cell.launch == *launch) {
                cells.push(PlannedCellRecord { launch: at, ..next.clone() });
                *cell += 1;
            }
            *launch += 1;
        }
        (launches, cells)
    }

    /// What of shards does not fit the rest of the header, where something does not.
    pub fn misfit(&self) -> Option<String> {
        if let Some(part) = &self.shard {
            if part.shard == 0 || part.shard > part.of {
                return Some(format!("there is no shard {} of {}", part.shard, part.of));
            }
            let own = part.owners.iter().filter(|owner| **owner == part.shard).count();
            let others = part.owners.len() - own;
            if (own, others) != (self.launches.len(), part.elsewhere.launches.len()) {
                return Some(format!(
                    "{own} launches of this shard and {others} of others are planned, {} and {} are told",
                    self.launches.len(),
                    part.elsewhere.launches.len()
                ));
            }
            let ordered = |cells: &[PlannedCellRecord], launches: usize| {
                cells.is_sorted_by_key(|cell| cell.launch)
                    && cells.last().is_none_or(|cell| cell.launch < launches)
            };
            if !ordered(&self.cells, own) || !ordered(&part.elsewhere.cells, others) {
                return Some("its cells are not in the order of their launches".to_owned());
            }
        }
        let merged = self.merged.as_ref()?;
        (merged.owners.len() != self.launches.len()).then(|| {
            let (owners, launches) = (merged.owners.len(), self.launches.len());
            format!("shards of {owners} launches, and {launches} are planned")
        })
    }
}

impl RunRecord {
    /// Where a launch and its cells come from.
    pub fn origin(&self, launch: usize) -> Origin<'_> {
        let header = &self.header;
        let whole = Origin {
            shard: header.shard.as_ref().map(|part| (part.shard, part.of)),
            missing: false,
            run_id: &header.run_id,
            seed: header.seed,
            started: &header.started,
            machine: &header.machine,
            flags: &header.flags,
            stopped: self.stopped,
        };
        let Some(merged) = &header.merged else { return whole };
        let Some(owner) = merged.owners.get(launch) else { return whole };
        let shard = Some((*owner, merged.of));
        let told = merged.shards.iter().find(|shard| shard.shard == *owner);
        match told.and_then(|shard| shard.run.as_ref()) {
            Some(run) => Origin {
                shard,
                missing: false,
                run_id: &run.run_id,
                seed: run.seed,
                started: &run.started,
                machine: &run.machine,
                flags: &run.flags,
                stopped: run.stopped,
            },
            None => Origin { shard, missing: true, stopped: None, ..whole },
        }
    }

    /// How long its launches and cells took, for a split of the same suite. What did not come to a result
    /// tells nothing.
    pub fn timings(&self) -> Timings {
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let launches = self.header.launches.iter().zip(&self.launches);
        let starts = launches.filter_map(|(planned, outcome)| {
            Some((planned.name.clone(), duration(outcome.ready_time?)?))
        });
        let cells = self.header.cells.iter().zip(&self.cells).filter_map(|(planned, outcome)| {
            let told = match outcome.state {
                CellState::Measured(_) | CellState::Unfit { .. } => true,
                CellState::NotRun { .. } | CellState::Broken { .. } => false,
            };
            // Of one launch, so that it tells of as many as the next run has.
            let launches = f64::from(planned.rounds.max(1));
            let took = duration(outcome.seconds / launches).filter(|_| told)?;
            Some(((planned.classname.clone(), planned.id.clone()), took))
        });
        Timings { starts: starts.collect(), cells: cells.collect() }
    }
}
