//! The fold of events, as examples.

use super::*;
use crate::suite::model::{InconclusivePolicy, UnjudgedPolicy};

fn planned(launch: usize, id: &str) -> PlannedCellRecord {
    PlannedCellRecord {
        rounds: 1,
        id: id.into(),
        test: "decode".into(),
        kind: TestKind::Decode,
        variant: None,
        classname: "suite.decode".into(),
        axes: Vec::new(),
        launch,
        place: Place::default(),
        bounds: Vec::new(),
        quarantine: None,
    }
}

/// Two launches, `old` with two cells and `new` with one.
pub(crate) fn header() -> RunHeader {
    let launch = |name: &str| PlannedLaunchRecord {
        name: name.into(),
        variant: None,
        gpus: 1,
        place: Place::default(),
    };
    RunHeader {
        compare: None,
        format: 1,
        tokgate: "0.1.0".into(),
        run_id: "r1".into(),
        suite: "suite".into(),
        path: "suite.toml".into(),
        tags: Vec::new(),
        plan_hash: "h".into(),
        seed: 1,
        virtual_time: false,
        started: "2026-11-30T00:00:00Z".into(),
        machine: crate::hardware::Facts::default(),
        declared: Declared::default(),
        flags: Vec::new(),
        selection: Vec::new(),
        shard: None,
        merged: None,
        slowed: None,
        provenance: Default::default(),
        policy: Policy {
            hardware_fault: crate::suite::model::HardwareFault::Warn,
            alpha: 0.05,
            inconclusive: InconclusivePolicy::Warn,
            unjudged: UnjudgedPolicy::Allow,
            max_error_rate: 0.0,
            max_client_lag: std::time::Duration::from_millis(5),
            restarts: 1,
            time_limit: None,
        },
        launches: vec![launch("old"), launch("new")],
        cells: vec![planned(0, "a"), planned(0, "b"), planned(1, "c")],
    }
}

fn finished(cell: usize) -> Event {
    let mut measurement = Measurement::default();
    measurement.observations.insert(Base::MeasuredTime, Observations::Exact(30.0));
    let state = CellState::Measured(Box::new(measurement));
    Event::CellFinished { round: 0, cell, state, seconds: 31.5 }
}

fn failed(launch: usize) -> Event {
    let failure = LaunchFailure {
        step: "process".into(),
        message: "exited with status 1".into(),
        exit: Some("exit status 1".into()),
        log_tail: Vec::new(),
        mismatch: false,
        seconds: 0.0,
    };
    Event::LaunchFailed { launch, failure }
}

fn started(launch: usize) -> Event {
    let command = vec!["vllm".to_owned()];
    Event::LaunchStarted {
        round: 0,
        launch,
        command,
        log: Some("engine-old.log".into()),
        ordinal: 0,
        at: 0.5,
    }
}

fn ended(stopped: Option<StopReason>) -> Event {
    Event::RunFinished { signal: None, stopped, at: 60.0 }
}

fn messages(record: &RunRecord) -> Vec<&str> {
    record.cells.iter().map(|cell| cell.judgement.message.as_deref().unwrap()).collect()
}

fn fold(events: &[Event]) -> RunRecord {
    let mut record = RunRecord::new(header());
    events.iter().for_each(|event| record.apply(event));
    record
}

#[test]
fn every_planned_cell_stands_there_before_it_runs() {
    let record = fold(&[]);
    assert_eq!(messages(&record), ["not run"; 3]);
    assert_eq!(record.counts(), BTreeMap::from([(Verdict::Error, 3)]));
    assert_eq!(record.cells[0].judgement.class.as_deref(), Some("not-run"));
}

#[test]
fn a_finished_cell_is_judged() {
    let record = fold(&[started(0), finished(1)]);
    assert_eq!(record.cells[1].judgement.verdict, Verdict::Measured);
    assert_eq!(record.cells[1].seconds, 31.5);
    assert_eq!(record.launches[0].command, ["vllm"]);
    assert_eq!(record.counts(), BTreeMap::from([(Verdict::Error, 2), (Verdict::Measured, 1)]));
}

#[test]
fn a_failed_launch_takes_its_unfinished_cells_along() {
    let record = fold(&[started(0), finished(0), failed(0)]);
    assert_eq!(record.cells[0].judgement.verdict, Verdict::Measured);
    assert_eq!(messages(&record)[1..], ["not run: launch old failed", "not run"]);
    assert_eq!(record.launches[0].failure.as_ref().unwrap().step, "process");
}

#[test]
fn a_second_start_gives_them_another_chance_and_is_told() {
    let record = fold(&[started(0), failed(0), started(0), finished(0)]);
    assert_eq!(record.launches[0].failure, None);
    assert_eq!(record.launches[0].warnings, ["started again after: exited with status 1"]);
    assert_eq!(record.cells[0].judgement.verdict, Verdict::Measured);
    assert_eq!(messages(&record)[1], "not run");
}

#[test]
fn an_early_end_is_the_reason_of_what_did_not_run() {
    let record = fold(&[started(0), failed(0), ended(Some(StopReason::TimeLimit))]);
    assert_eq!(
        messages(&record),
        [
            "not run: launch old failed",
            "not run: launch old failed",
            "not run: the time limit was reached"
        ]
    );
    assert_eq!((record.seconds, record.stopped), (Some(60.0), Some(StopReason::TimeLimit)));
}

#[test]
fn the_first_line_of_a_journal_starts_the_record() {
    let mut record = fold(&[started(0), finished(0)]);
    record.apply(&Event::RunStarted(Box::new(header())));
    assert_eq!(record, RunRecord::new(header()));
}

#[test]
fn events_of_no_cell_change_nothing_but_warnings() {
    let mut record = fold(&[]);
    record.apply(&finished(99));
    record.apply(&failed(99));
    assert_eq!(record, fold(&[]));
    record.apply(&Event::Warning { message: "the clock jumped".into() });
    assert_eq!(record.warnings, ["the clock jumped"]);
}

fn resumed(session: usize, after: f64) -> Event {
    Event::RunResumed { session, started: "2026-11-30T01:00:00Z".into(), after }
}

#[test]
fn a_run_that_goes_on_forgets_why_it_was_cut_and_nothing_else() {
    let mut events = vec![started(0), finished(0), ended(Some(StopReason::Signal))];
    let cut = fold(&events);
    assert_eq!(messages(&cut)[1..], ["not run: the run was interrupted"; 2]);
    events.push(resumed(1, 61.0));
    let record = fold(&events);
    assert_eq!(messages(&record)[1..], ["not run"; 2]);
    assert_eq!(record.cells[0], cut.cells[0]);
    assert_eq!((record.seconds, record.stopped), (None, None));
    events.extend([started(0), finished(1), finished(2), ended(None)]);
    let whole = fold(&events);
    assert_eq!(whole.seconds, Some(121.0), "all sessions together");
    assert_eq!(whole.counts(), BTreeMap::from([(Verdict::Measured, 3)]));
}

#[test]
fn a_launch_that_failed_before_the_interruption_stays_failed() {
    let record = fold(&[started(0), failed(0), ended(Some(StopReason::Signal)), resumed(1, 60.0)]);
    assert_eq!(
        messages(&record),
        ["not run: launch old failed", "not run: launch old failed", "not run"]
    );
}

#[test]
fn another_engine_after_an_interruption_is_told_and_a_warning_once() {
    let ready = |version: &str| {
        let facts = crate::engine::Facts { version: Some(version.into()), ..Default::default() };
        Event::LaunchReady { launch: 0, ready_time: 1.0, facts, warnings: vec!["odd".into()] }
    };
    let word = || Event::Warning { message: "the disk is slow".into() };
    let same = fold(&[word(), ready("1"), resumed(1, 5.0), word(), ready("1")]);
    assert_eq!((same.warnings.len(), &same.launches[0].warnings[..]), (1, &["odd".to_owned()][..]));
    let other = fold(&[ready("1"), resumed(1, 5.0), ready("2")]);
    let told = &other.launches[0].warnings[1];
    assert!(told.starts_with("the engine is 2 ") && told.contains("it was 1 "), "{told}");
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = fold(&[started(0), finished(0), failed(0), ended(None)]);
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), record);
}
