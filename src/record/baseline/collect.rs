//! What a record gives to a baseline: the values of its cells, if all of them count.

use std::collections::{BTreeMap, BTreeSet};

use super::{CellLine, Run};
use crate::judge::interval;
use crate::judge::lattice::Faults;
use crate::measure::{Base, Metric, Stat, TestKind};
use crate::record::RunRecord;
use crate::record::provenance::Workload;
use crate::record::run_record::{CellOutcome, CellState, Measurement, PlannedCellRecord, Round};

/// The values of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// Where they come from: one for each launch of the cell that was launched most often, since each
    /// value is that of one fresh launch.
    pub runs: Vec<Run>,
    /// What was asked of each test.
    pub tests: BTreeMap<String, Workload>,
    /// One line for each cell and metric, with the value of each launch.
    pub cells: Vec<CellLine>,
}

/// Why a run's values are no baseline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncollected {
    /// The record says too little of itself.
    #[error("its record is of an earlier version and does not say what its figures belong to")]
    Unknown,
    /// It is a part of a run.
    #[error("it is shard {shard} of {of}, which is a part of a run")]
    Shard {
        /// Which.
        shard: u32,
        /// Of how many.
        of: u32,
    },
    /// Everything was held back in it.
    #[error("it was slowed by `tokgate selftest --slow`, so that its figures are not the engine's")]
    Slowed,
    /// Cells have no figures that count.
    #[error("{} of its cells have no figures that count: {}", cells.len(), first(cells))]
    Cells {
        /// The cells, each with its reason.
        cells: Vec<String>,
    },
    /// No cell gave a value.
    #[error("none of its cells gave a value")]
    Nothing,
}

impl Uncollected {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Uncollected::Shard { .. } => {
                "`tokgate merge` joins the shards of a run: promote what it writes"
            }
            Uncollected::Slowed => "promote what `tokgate run` of the same suite writes",
            Uncollected::Unknown | Uncollected::Cells { .. } | Uncollected::Nothing => {
                "promote runs in which every cell was measured"
            }
        }
    }
}

fn first(cells: &[String]) -> String {
    let more = if cells.len() > 3 { "; …" } else { "" };
    format!("{}{more}", cells.iter().take(3).cloned().collect::<Vec<_>>().join("; "))
}

/// Takes the values out of a record.
///
/// Cells that can't run on this engine (over capacity, too long) are left out: they have none.
///
/// # Errors
/// The run was slowed, or is a part of one; a cell was not run, broke, or was measured in a way that does not count: part of a run is no
/// baseline, since what is missing may be what failed.
pub fn collect(record: &RunRecord) -> Result<Collected, Uncollected> {
    let header = &record.header;
    if header.provenance.is_unknown() {
        return Err(Uncollected::Unknown);
    }
    if let Some(part) = &header.shard {
        return Err(Uncollected::Shard { shard: part.shard, of: part.of });
    }
    if header.slowed.is_some() {
        return Err(Uncollected::Slowed);
    }
    let mut bad = Vec::new();
    let mut lines = Vec::new();
    let mut most = 0;
    for (planned, outcome) in header.cells.iter().zip(&record.cells) {
        let mut refuse = |why: &str| bad.push(format!("{} {}: {why}", planned.test, planned.id));
        match &outcome.state {
            CellState::NotRun { reason } => refuse(reason),
            CellState::Broken { message, .. } => refuse(message.lines().next().unwrap_or_default()),
            CellState::Unfit { .. } => {}
            CellState::Measured(measured) => {
                let faults = Faults::of(&measured.checks);
                if faults.invalid || faults.degraded || outcome.judgement.is_of_hardware() {
                    refuse(outcome.judgement.message.as_deref().unwrap_or("it does not count"));
                    continue;
                }
                let gpus = header.launches.get(planned.launch).map_or(1, |launch| launch.gpus);
                let launches = launches(outcome, measured);
                most = most.max(launches.len());
                for metric in metrics(planned) {
                    let values = (0..).zip(&launches).filter_map(|(round, one)| {
                        Some((id(&header.run_id, round), value(one, metric, gpus)?))
                    });
                    let values: BTreeMap<String, f64> = values.collect();
                    if !values.is_empty() {
                        lines.push(line(planned, metric, values));
                    }
                }
            }
        }
    }
    if !bad.is_empty() {
        return Err(Uncollected::Cells { cells: bad });
    }
    if lines.is_empty() {
        return Err(Uncollected::Nothing);
    }
    let measured: BTreeSet<&String> = lines.iter().map(|line| &line.test).collect();
    let workloads = header.provenance.workloads.iter();
    let tests = workloads
        .filter(|(name, _)| measured.contains(name))
        .map(|(name, workload)| (name.clone(), workload.clone()));
    let of_all = run(record);
    let runs = (0..most).map(|round| Run { id: id(&of_all.id, round), ..of_all.clone() });
    Ok(Collected { runs: runs.collect(), tests: tests.collect(), cells: lines })
}

/// The name of a run's launch of that round: from the second on it has the number.
fn id(run: &str, round: usize) -> String {
    if round == 0 { run.to_owned() } else { format!("{run}-n{}", round + 1) }
}

/// The figures of each launch of a cell; of one that is launched once its own.
fn launches<'c>(outcome: &'c CellOutcome, whole: &'c Measurement) -> Vec<&'c Measurement> {
    if outcome.rounds.is_empty() {
        return vec![whole];
    }
    let of = |round: &'c Round| match &round.state {
        CellState::Measured(measured) => Some(&**measured),
        CellState::NotRun { .. } | CellState::Broken { .. } | CellState::Unfit { .. } => None,
    };
    outcome.rounds.iter().filter_map(of).collect()
}

/// Where the figures of a record come from.
pub(in crate::record) fn run(record: &RunRecord) -> Run {
    let header = &record.header;
    let launches = || header.launches.iter().zip(&record.launches);
    let engine = |version: Option<&String>| match version {
        Some(version) if !header.declared.engine.contains(version.as_str()) => {
            let kind = header.declared.engine.split(' ').next().unwrap_or_default();
            format!("{kind} {version}")
        }
        Some(_) | None => header.declared.engine.clone(),
    };
    let engines = launches().map(|(planned, launch)| {
        let version = launch.facts.as_ref().and_then(|facts| facts.version.as_ref());
        (planned.name.clone(), engine(version))
    });
    let commands = launches()
        .filter(|(_, launch)| !launch.command.is_empty())
        .map(|(planned, launch)| (planned.name.clone(), shell_words::join(&launch.command)));
    Run {
        id: header.run_id.clone(),
        started: header.started.clone(),
        tokgate: header.tokgate.clone(),
        suite_hash: header.provenance.suite_hash.clone(),
        engines: engines.collect(),
        commands: commands.collect(),
        gpu: header.provenance.facts.get("hardware.gpu").cloned().unwrap_or_default(),
        driver: header.machine.driver.clone(),
        reason: None,
    }
}

fn line(planned: &PlannedCellRecord, metric: Metric, values: BTreeMap<String, f64>) -> CellLine {
    let entry = metric.base.entry();
    CellLine {
        test: planned.test.clone(),
        variant: planned.variant.clone(),
        cell: planned.id.clone(),
        metric: metric.to_string(),
        unit: entry.unit.to_owned(),
        better: entry.better,
        values,
    }
}

/// What is recorded of a cell: what its kind is for, and whatever something is expected of.
pub(in crate::record) fn metrics(planned: &PlannedCellRecord) -> BTreeSet<Metric> {
    let plain = |base| Metric { base, stat: None, per_gpu: false };
    let median = |base| Metric { base, stat: Some(Stat::P50), per_gpu: false };
    let mut metrics: BTreeSet<Metric> = match planned.kind {
        TestKind::Prefill => [plain(Base::PrefillThroughput), median(Base::Ttft)].into(),
        TestKind::Decode => {
            [plain(Base::OutputThroughput), median(Base::Ttft), median(Base::Tpot)].into()
        }
        TestKind::Serve => [
            plain(Base::OutputThroughput),
            plain(Base::RequestThroughput),
            median(Base::Ttft),
            median(Base::Tpot),
            median(Base::E2eLatency),
        ]
        .into(),
        TestKind::Startup => [plain(Base::ReadyTime), plain(Base::KvCapacity)].into(),
        TestKind::Command => BTreeSet::new(),
    };
    metrics.extend(planned.bounds.iter().map(|bound| bound.metric));
    metrics
}

/// The value of a metric, as a judgement estimates it.
pub(in crate::record) fn value(measured: &Measurement, metric: Metric, gpus: u32) -> Option<f64> {
    let observed = measured.observations.get(&metric.base)?;
    let value = interval::value(observed, metric.stat)?;
    let divisor = if metric.per_gpu { f64::from(gpus.max(1)) } else { 1.0 };
    Some(value / divisor).filter(|value| value.is_finite())
}
