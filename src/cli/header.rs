//! The record's header: everything that is known before the first launch.

use super::reference::References;
use crate::engine::redact::Redactor;
use crate::hardware;
use crate::hardware::need::Need;
use crate::judge::Severity;
use crate::matrix::{Cell, Plan};
use crate::record::provenance::Provenance;
use crate::record::run_record::{
    BoundRecord, CompareRecord, Declared, PlannedCellRecord, PlannedLaunchRecord, QuarantineRecord,
    RelativeRecord, RunHeader,
};
use crate::record::shard::{Elsewhere, Part};
use crate::suite::model::{EngineSource, Suite};
use crate::transport::Delay;

use super::shard::Split;

/// What a header is made of.
pub struct HeaderInput<'a> {
    /// The plan, of a shard its part.
    pub plan: &'a Plan,
    /// The split that it is a part of.
    pub split: Option<&'a Split>,
    /// Seed of prompts.
    pub seed: u64,
    /// Facts of the machine.
    pub machine: &'a hardware::Facts,
    /// Flags for rerun commands.
    pub flags: Vec<String>,
    /// Flags that selected cells.
    pub selection: Vec<String>,
    /// What its figures belong to.
    pub provenance: Provenance,
    /// What relative bounds are held against.
    pub references: &'a References,
    /// How much longer everything takes, in a self-test.
    pub slow: Option<Delay>,
    /// Hides secrets in what is no name.
    pub redactor: &'a Redactor,
}

/// Makes the header.
pub fn make(input: &HeaderInput<'_>) -> RunHeader {
    let plan = input.plan;
    let suite = &plan.suite;
    let places = match input.split {
        Some(split) => split.places(true),
        None => (0..plan.cells.len()).collect(),
    };
    let (launches, cells) = contents(plan, &places, input.references);
    let mut header = RunHeader {
        format: 1,
        tokgate: env!("CARGO_PKG_VERSION").to_owned(),
        run_id: format!("{:012x}", rand::random::<u64>() >> 16),
        suite: suite.name.clone(),
        path: suite.path.clone(),
        tags: suite.tags.clone(),
        plan_hash: plan.hash.clone(),
        seed: input.seed,
        virtual_time: crate::run::in_virtual_time(plan),
        started: now(),
        machine: input.machine.clone(),
        declared: declared(plan),
        flags: input.flags.clone(),
        selection: input.selection.clone(),
        provenance: input.provenance.clone(),
        shard: input.split.map(|split| part(split, input.references)),
        merged: None,
        slowed: input.slow.map(Delay::share),
        policy: suite.policy.clone(),
        compare: compare(suite),
        launches,
        cells,
    };
    if !input.redactor.is_empty() {
        hide(&mut header, input.redactor);
    }
    header
}

/// What the record says of a plan's launches and cells. `places`: of each cell its place in the plan that
/// the references are of.
fn contents(
    plan: &Plan,
    places: &[usize],
    references: &References,
) -> (Vec<PlannedLaunchRecord>, Vec<PlannedCellRecord>) {
    let launches = plan.launches.iter().map(|launch| {
        let setting = &plan.suite.settings[launch.setting as usize];
        PlannedLaunchRecord {
            name: launch.name.clone(),
            variant: setting.variant.clone(),
            gpus: setting.engine.gpus.unwrap_or(1),
            place: setting.place.clone(),
        }
    });
    let cells = plan.cells.iter().zip(places);
    let cells = cells.map(|(cell, place)| planned(plan, cell, *place, references));
    (launches.collect(), cells.collect())
}

/// What the record says of a shard.
fn part(split: &Split, references: &References) -> Part {
    let whole = &split.whole;
    let (launches, cells) = contents(&split.elsewhere(), &split.places(false), references);
    let started = whole.suite.settings.iter().any(|setting| match setting.engine.source {
        EngineSource::Url(_) => false,
        EngineSource::Command(_) | EngineSource::Sim { .. } => true,
    });
    Part {
        shard: split.shard.index,
        of: split.shard.of,
        timings: split.timings.clone(),
        here: whole.suite.hardware.as_ref().map_or(started, Need::is_checked),
        owners: split.owners.clone(),
        elsewhere: Elsewhere { launches, cells },
    }
}

/// Hides secrets in flags and words. Names stay: no secret is part of one.
fn hide(header: &mut RunHeader, redactor: &Redactor) {
    let hide = |text: &mut String| *text = redactor.said(text);
    let Declared { model, revision, quantization, hardware, engine } = &mut header.declared;
    [model, revision, quantization, hardware].into_iter().flatten().for_each(hide);
    hide(engine);
    hide(&mut header.path);
    header.tags.iter_mut().chain(&mut header.flags).chain(&mut header.selection).for_each(hide);
    hide_in_plan(&mut header.launches, &mut header.cells, redactor);
    if let Some(Part { timings, elsewhere, .. }) = &mut header.shard {
        timings.iter_mut().for_each(|file| hide(&mut file.path));
        hide_in_plan(&mut elsewhere.launches, &mut elsewhere.cells, redactor);
    }
}

fn hide_in_plan(
    launches: &mut [PlannedLaunchRecord],
    cells: &mut [PlannedCellRecord],
    redactor: &Redactor,
) {
    let hide = |text: &mut String| *text = redactor.said(text);
    launches.iter_mut().for_each(|launch| hide(&mut launch.place.file));
    for cell in cells {
        hide(&mut cell.place.file);
        cell.bounds.iter_mut().for_each(|bound| hide(&mut bound.place.file));
        if let Some(QuarantineRecord { reason, issue, place, .. }) = &mut cell.quarantine {
            hide(reason);
            issue.iter_mut().for_each(hide);
            hide(&mut place.file);
        }
    }
}

/// The present, RFC 3339 in UTC, to the second.
pub fn now() -> String {
    jiff::Timestamp::now()
        .round(jiff::Unit::Second)
        .map_or_else(|_| jiff::Timestamp::now().to_string(), |now| now.to_string())
}

fn planned(plan: &Plan, cell: &Cell, index: usize, references: &References) -> PlannedCellRecord {
    let suite = &plan.suite;
    let test = &suite.tests[cell.test as usize];
    let bounds = plan.bounds(cell).into_iter().enumerate().map(|(position, bound)| {
        let relative = references.relative.get(&(index, position)).cloned();
        // What the recorded runs lack is shown, and fails nothing.
        let lacks = |it: &RelativeRecord| it.runs.is_empty() && it.variant.is_none();
        let silent = relative.as_ref().is_some_and(lacks);
        BoundRecord {
            name: suite.expectations[bound.expectation].name.clone(),
            metric: bound.metric,
            bound: bound.bound,
            relative,
            noise: references.noise.get(&(index, position)).cloned(),
            slack: bound.slack,
            severity: if silent { Severity::Report } else { bound.severity },
            place: bound.place,
        }
    });
    let quarantine = plan.quarantine(cell).map(|quarantine| QuarantineRecord {
        reason: quarantine.reason.clone(),
        issue: quarantine.issue.clone(),
        expires: quarantine.expires.to_string(),
        max_loss: quarantine.max_loss,
        place: quarantine.place.clone(),
    });
    PlannedCellRecord {
        id: plan.cell_id(cell),
        test: test.name.clone(),
        kind: test.kind.kind(),
        variant: suite.settings[cell.setting as usize].variant.clone(),
        classname: plan.classname(cell),
        axes: plan.axes(cell),
        launch: cell.launch as usize,
        rounds: plan.rounds(cell),
        place: test.place.clone(),
        bounds: bounds.collect(),
        quarantine,
    }
}

fn compare(suite: &Suite) -> Option<CompareRecord> {
    let compare = suite.compare.as_ref()?;
    let name = |setting: u32| suite.settings[setting as usize].variant.clone().unwrap_or_default();
    let limit = compare.min_mean_ratio.as_ref();
    Some(CompareRecord {
        baseline: name(compare.baseline),
        candidate: name(compare.candidate),
        pairs: compare.pairs,
        min_mean_ratio: limit.map(|(limit, _)| *limit),
        place: limit.map_or_else(|| compare.place.clone(), |(_, place)| place.clone()),
    })
}

fn declared(plan: &Plan) -> Declared {
    use crate::hardware::need::Count;
    let Some(setting) = plan.suite.settings.first() else { return Declared::default() };
    let kind = serde_json::to_value(setting.engine.kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default();
    let hardware = plan.suite.hardware.as_ref().and_then(|need| {
        let gpu = need.gpu.clone()?;
        Some(match need.count {
            Some(Count::Exactly(n)) => format!("{n} × {gpu}"),
            Some(Count::AtLeast(n)) => format!("{n} or more × {gpu}"),
            None => gpu,
        })
    });
    Declared {
        model: setting.model.name.clone(),
        revision: setting.model.revision.clone(),
        quantization: setting.model.quantization.clone(),
        hardware,
        engine: match &setting.engine.version {
            Some(version) => format!("{kind} {version}"),
            None => kind,
        },
    }
}
