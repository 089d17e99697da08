//! The record's header: everything that is known before the first launch.

use crate::hardware;
use crate::matrix::{Cell, Plan};
use crate::record::run_record::{
    BoundRecord, Declared, PlannedCellRecord, PlannedLaunchRecord, QuarantineRecord, RunHeader,
};
use crate::record::shard::{Elsewhere, Part};
use crate::suite::model::EngineSource;

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
}

/// Makes the header.
pub fn make(input: &HeaderInput<'_>) -> RunHeader {
    let plan = input.plan;
    let suite = &plan.suite;
    let (launches, cells) = contents(plan);
    RunHeader {
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
        shard: input.split.map(part),
        merged: None,
        policy: suite.policy.clone(),
        launches,
        cells,
    }
}

/// What the record says of a plan's launches and cells.
fn contents(plan: &Plan) -> (Vec<PlannedLaunchRecord>, Vec<PlannedCellRecord>) {
    let launches = plan.launches.iter().map(|launch| {
        let setting = &plan.suite.settings[launch.setting as usize];
        PlannedLaunchRecord {
            name: launch.name.clone(),
            variant: setting.variant.clone(),
            gpus: setting.engine.gpus.unwrap_or(1),
            place: setting.place.clone(),
        }
    });
    (launches.collect(), plan.cells.iter().map(|cell| planned(plan, cell)).collect())
}

/// What the record says of a shard.
fn part(split: &Split) -> Part {
    let whole = &split.whole;
    let (launches, cells) = contents(&split.elsewhere());
    let started = whole.suite.settings.iter().any(|setting| match setting.engine.source {
        EngineSource::Url(_) => false,
        EngineSource::Command(_) | EngineSource::Sim { .. } => true,
    });
    Part {
        shard: split.shard.index,
        of: split.shard.of,
        timings: split.timings.clone(),
        here: whole.suite.hardware.as_ref().map_or(started, |need| need.here),
        owners: split.owners.clone(),
        elsewhere: Elsewhere { launches, cells },
    }
}

/// The present, RFC 3339 in UTC, to the second.
pub fn now() -> String {
    jiff::Timestamp::now()
        .round(jiff::Unit::Second)
        .map_or_else(|_| jiff::Timestamp::now().to_string(), |now| now.to_string())
}

fn planned(plan: &Plan, cell: &Cell) -> PlannedCellRecord {
    let suite = &plan.suite;
    let test = &suite.tests[cell.test as usize];
    let bounds = plan.bounds(cell).into_iter().map(|bound| BoundRecord {
        name: suite.expectations[bound.expectation].name.clone(),
        metric: bound.metric,
        bound: bound.bound,
        slack: bound.slack,
        severity: bound.severity,
        place: bound.place,
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
        place: test.place.clone(),
        bounds: bounds.collect(),
        quarantine,
    }
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
