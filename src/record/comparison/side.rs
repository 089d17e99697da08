//! One side of a comparison: the cells of a record or of a baseline, and what their figures are.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use super::{Incomparable, Label, Lone, Source, Which};
use crate::judge::lattice::Faults;
use crate::measure::{Base, Direction, Metric, Stat};
use crate::record::RunRecord;
use crate::record::baseline::{Baseline, CellLine, Run, metrics, run, value};
use crate::record::run_record::{
    CellOutcome, CellState, Measurement, NoiseRecord, PlannedCellRecord, UnfitClass,
};

/// One side.
pub(super) struct Side<'s> {
    /// Which.
    pub which: Which,
    /// What it is called.
    pub label: Label,
    /// The record behind it, if it is one.
    pub record: Option<&'s RunRecord>,
    /// The baseline behind it, if it is one.
    pub baseline: Option<&'s Baseline>,
    /// Its runs, of the chosen variant alone.
    pub runs: Vec<Run>,
    /// The variants of its cells; one of no name where there are none.
    pub variants: BTreeSet<Option<String>>,
    /// Its cells, in its order.
    pub cells: Vec<Cell<'s>>,
    /// Words that begin with what the side is.
    pub remarks: Vec<String>,
}

/// A cell of one side.
pub(super) struct Cell<'s> {
    /// The test's name.
    pub test: String,
    /// The cell's id.
    pub id: String,
    /// The variant.
    pub variant: Option<String>,
    /// Why it has no figures that count.
    pub lack: Option<String>,
    /// Whether the engine has no room for it.
    pub unfit: bool,
    figures: Figures<'s>,
}

/// Where a cell's figures are.
enum Figures<'s> {
    Measured { planned: &'s PlannedCellRecord, launches: Vec<&'s Measurement>, gpus: u32 },
    Lines(Vec<&'s CellLine>),
}

/// What each launch gave.
pub(super) struct Values {
    /// Unit of the metric.
    pub unit: String,
    /// Which way it gets better.
    pub better: Direction,
    /// By launch.
    pub launches: Vec<f64>,
}

impl<'s> Side<'s> {
    /// The side of a source, of one variant alone where one is chosen.
    pub fn new(
        which: Which,
        name: &str,
        source: &'s Source,
        variant: Option<&str>,
    ) -> Result<Side<'s>, Incomparable> {
        let mut side = match source {
            Source::Record(record) => of_record(which, name, record),
            Source::Baseline(baseline) => of_baseline(which, name, baseline),
        };
        if let Some(variant) = variant {
            let known: BTreeSet<&str> =
                side.cells.iter().filter_map(|it| it.variant.as_deref()).collect();
            if !known.contains(variant) {
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                let known = if known.is_empty() { "none".to_owned() } else { known };
                return Err(Incomparable::Variant { which, name: variant.to_owned(), known });
            }
            side.cells.retain(|cell| cell.variant.as_deref() == Some(variant));
            if let Some(record) = side.record {
                let planned = &record.header.launches;
                let of: BTreeSet<&String> = planned
                    .iter()
                    .filter(|launch| launch.variant.as_deref() == Some(variant))
                    .map(|launch| &launch.name)
                    .collect();
                for run in &mut side.runs {
                    run.engines.retain(|launch, _| of.contains(launch));
                    run.commands.retain(|launch, _| of.contains(launch));
                }
            }
        }
        side.variants = side.cells.iter().map(|cell| cell.variant.clone()).collect();
        Ok(side)
    }
}

fn of_record<'s>(which: Which, name: &str, record: &'s RunRecord) -> Side<'s> {
    let header = &record.header;
    let mut remarks = Vec::new();
    if let Some(part) = &header.shard {
        remarks.push(format!("is shard {} of {}, a part of a run", part.shard, part.of));
    }
    if let Some(share) = header.slowed {
        let percent = share * 100.0;
        remarks.push(format!(
            "was slowed by {percent} % to test its suite: its figures are not the engine's"
        ));
    }
    if record.seconds.is_none() || record.stopped.is_some() {
        remarks.push("did not run to its end".to_owned());
    }
    let cells = header.cells.iter().zip(&record.cells).map(|(planned, outcome)| {
        let gpus = header.launches.get(planned.launch).map_or(1, |launch| launch.gpus);
        let lack = lack(outcome);
        let launches = if lack.is_none() { launches(outcome) } else { Vec::new() };
        Cell {
            test: planned.test.clone(),
            id: planned.id.clone(),
            variant: planned.variant.clone(),
            lack,
            unfit: unfit(outcome),
            figures: Figures::Measured { planned, launches, gpus },
        }
    });
    Side {
        which,
        label: Label {
            name: name.to_owned(),
            kind: "record",
            suite: header.suite.clone(),
            runs: vec![header.run_id.clone()],
            started: Some(header.started.clone()),
        },
        record: Some(record),
        baseline: None,
        runs: vec![run(record)],
        variants: BTreeSet::new(),
        cells: cells.collect(),
        remarks,
    }
}

fn of_baseline<'s>(which: Which, name: &str, baseline: &'s Baseline) -> Side<'s> {
    let mut places: BTreeMap<(&str, Option<&str>, &str), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&CellLine>> = Vec::new();
    for line in &baseline.cells {
        let key = (line.test.as_str(), line.variant.as_deref(), line.cell.as_str());
        let next = groups.len();
        let at = *places.entry(key).or_insert(next);
        if at == next {
            groups.push(Vec::new());
        }
        groups[at].push(line);
    }
    let cells = groups.into_iter().map(|lines| Cell {
        test: lines[0].test.clone(),
        id: lines[0].cell.clone(),
        variant: lines[0].variant.clone(),
        lack: None,
        unfit: false,
        figures: Figures::Lines(lines),
    });
    Side {
        which,
        label: Label {
            name: name.to_owned(),
            kind: "baseline",
            suite: baseline.head.suite.clone(),
            runs: baseline.runs.iter().map(|run| run.id.clone()).collect(),
            started: baseline.runs.last().map(|run| run.started.clone()),
        },
        record: None,
        baseline: Some(baseline),
        runs: baseline.runs.clone(),
        variants: BTreeSet::new(),
        cells: cells.collect(),
        remarks: Vec::new(),
    }
}

/// Why a cell has no figures that count.
fn lack(outcome: &CellOutcome) -> Option<String> {
    match &outcome.state {
        CellState::NotRun { reason } => Some(reason.clone()),
        CellState::Broken { class, message } => Some(format!("{class}: {message}")),
        CellState::Unfit { message, .. } => Some(message.clone()),
        CellState::Measured(measured) => {
            let faults = Faults::of(&measured.checks);
            let why = || outcome.judgement.message.clone().unwrap_or_default();
            let spoilt = faults.invalid || faults.degraded || outcome.judgement.is_of_hardware();
            spoilt.then(|| format!("does not count: {}", why()))
        }
    }
}

/// Whether the engine has no room for a cell.
fn unfit(outcome: &CellOutcome) -> bool {
    match &outcome.state {
        CellState::Unfit { class, .. } => match class {
            UnfitClass::OverCapacity | UnfitClass::TooLong => true,
            UnfitClass::Hardware => false,
        },
        CellState::NotRun { .. } | CellState::Broken { .. } | CellState::Measured(_) => false,
    }
}

/// The measurement of each launch of a cell.
fn launches(outcome: &CellOutcome) -> Vec<&Measurement> {
    fn of(state: &CellState) -> Option<&Measurement> {
        match state {
            CellState::Measured(measured) => Some(measured),
            CellState::NotRun { .. } | CellState::Broken { .. } | CellState::Unfit { .. } => None,
        }
    }
    if outcome.rounds.is_empty() {
        return of(&outcome.state).into_iter().collect();
    }
    outcome.rounds.iter().filter_map(|round| of(&round.state)).collect()
}

impl<'s> Cell<'s> {
    /// The cell as one that the other side lacks.
    pub fn lone(&self, side: Which) -> Lone {
        Lone { side, test: self.test.clone(), cell: self.id.clone(), variant: self.variant.clone() }
    }

    /// The plan of it, where it is that of a record.
    pub fn planned(&self) -> Option<&'s PlannedCellRecord> {
        match &self.figures {
            Figures::Measured { planned, .. } => Some(planned),
            Figures::Lines(_) => None,
        }
    }

    /// The metrics that it is looked at for: what its kind is for, whatever something is expected of, and of a
    /// tool's cell that nothing is expected of, all that it told.
    pub fn metrics(&self) -> Vec<String> {
        match &self.figures {
            Figures::Lines(lines) => lines.iter().map(|line| line.metric.clone()).collect(),
            Figures::Measured { planned, launches, .. } => {
                let mut found = metrics(planned);
                if let Some(first) = launches.first().filter(|_| found.is_empty()) {
                    found.extend(first.observations.keys().map(|base| headline(*base)));
                }
                found.iter().map(Metric::to_string).collect()
            }
        }
    }

    /// What each launch gave of a metric; `None` where it has none of it.
    pub fn values(&self, name: &str) -> Option<Values> {
        match &self.figures {
            Figures::Lines(lines) => {
                let line = lines.iter().find(|line| line.metric == name)?;
                let (unit, better) = (line.unit.clone(), line.better);
                Some(Values { unit, better, launches: line.runs() })
            }
            Figures::Measured { launches, gpus, .. } => {
                let own = launches.first()?.observations.keys();
                let own = own.map(|base| headline(*base)).find(|metric| metric.to_string() == name);
                let metric = own.or_else(|| Metric::from_str(name).ok())?;
                let entry = metric.base.entry();
                let found: Vec<f64> =
                    launches.iter().filter_map(|one| value(one, metric, *gpus)).collect();
                let (unit, better) = (entry.unit.to_owned(), entry.better);
                (!found.is_empty()).then_some(Values { unit, better, launches: found })
            }
        }
    }

    /// How launches differ in a metric, where a calibration told the run.
    pub fn noise(&self, name: &str) -> Option<&'s NoiseRecord> {
        let bounds = self.planned()?.bounds.iter();
        bounds
            .filter(|bound| bound.metric.to_string() == name)
            .find_map(|bound| bound.noise.as_ref())
    }
}

/// The metric that stands for a base: its median where it is a latency.
fn headline(base: Base) -> Metric {
    let stat = base.entry().latency.then_some(Stat::P50);
    Metric { base, stat, per_gpu: false }
}
