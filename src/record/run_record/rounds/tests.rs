//! Cells of several launches and of variants, folded from events, as examples.

use super::super::VariantRecord;
use super::*;
use crate::judge::{Bound, Severity, Side, Verdict};
use crate::measure::{Base, Observations, TestKind, validity};
use crate::record::Event;
use crate::record::event::StopReason;
use crate::record::run_record::tests::header as plain;
use crate::record::run_record::{BoundRecord, RelativeRecord, RunHeader};
use crate::record::run_record::{CompareRecord, LaunchFailure};
use crate::suite::model::Place;

/// A throughput that must be 0.97 of what the variant `old` has.
fn ratio(paired: bool) -> BoundRecord {
    let relative = RelativeRecord {
        git: None,
        file: "variant old".into(),
        variant: Some(VariantRecord { name: "old".into(), paired }),
        runs: Vec::new(),
        comparisons: 1,
        halved: false,
        recorded: false,
        sees: None,
    };
    BoundRecord {
        noise: None,
        name: None,
        metric: "output-throughput".parse().unwrap(),
        bound: Some(Bound { side: Side::Min, target: 1.0, limit: 0.97 }),
        relative: Some(relative),
        slack: 0.0,
        severity: Severity::Fail,
        place: Place { file: "suite.toml".into(), line: 58 },
    }
}

/// Two cells of `old`, then the same two of `new`, in so many launches.
fn header(rounds: u32, paired: bool) -> RunHeader {
    let mut header = plain();
    let cell = |launch: usize, variant: &str, id: &str| {
        let bounds = if variant == "new" { vec![ratio(paired)] } else { Vec::new() };
        PlannedCellRecord {
            rounds,
            id: id.into(),
            kind: TestKind::Decode,
            variant: Some(variant.into()),
            launch,
            bounds,
            ..plain().cells[0].clone()
        }
    };
    header.cells =
        vec![cell(0, "old", "a"), cell(0, "old", "b"), cell(1, "new", "a"), cell(1, "new", "b")];
    let place = Place { file: "suite.toml".into(), line: 30 };
    header.compare = paired.then(|| CompareRecord {
        baseline: "old".into(),
        candidate: "new".into(),
        pairs: rounds,
        min_mean_ratio: Some(0.99),
        place,
    });
    header
}

fn measurement(rate: f64) -> Measurement {
    let mut measurement = Measurement { requests: 4, ..Measurement::default() };
    let means = vec![rate; 10];
    let batches = Observations::Batches { rate, means, floor: 0.1 };
    measurement.observations.insert(Base::OutputThroughput, batches);
    measurement
}

fn finished(cell: usize, round: u32, measurement: Measurement) -> Event {
    let state = CellState::Measured(Box::new(measurement));
    Event::CellFinished { cell, round, state, seconds: 10.0 }
}

fn fold(header: RunHeader, events: &[Event]) -> RunRecord {
    let mut record = RunRecord::new(header);
    events.iter().for_each(|event| record.apply(event));
    record
}

/// All rounds of the four cells, in pairs; cell `b` of `new` at so much of 100 tok/s.
fn all(rounds: u32, share: f64) -> Vec<Event> {
    let of = |cell: usize, round: u32| {
        // Launches differ a little.
        let rate = 100.0 + f64::from(round % 3) * 0.1;
        finished(cell, round, measurement(if cell == 3 { rate * share } else { rate }))
    };
    (0..rounds).flat_map(|round| (0..4).map(move |cell| of(cell, round))).collect()
}

fn verdicts(record: &RunRecord) -> Vec<Verdict> {
    record.cells.iter().map(|cell| cell.judgement.verdict).collect()
}

fn message(record: &RunRecord, cell: usize) -> &str {
    record.cells[cell].judgement.message.as_deref().unwrap()
}

#[test]
fn a_cell_is_judged_when_its_last_launch_is_there() {
    let events = all(4, 0.9);
    let mut record = RunRecord::new(header(4, true));
    for (at, event) in events.iter().enumerate() {
        record.apply(event);
        let whole = at / 4 == 3;
        for cell in 0..4 {
            let seen = events[..=at].iter().filter(
                |event| matches!(event, Event::CellFinished { cell: of, .. } if *of == cell),
            );
            let seen = seen.count();
            let state = &record.cells[cell].state;
            assert_eq!(matches!(state, CellState::Measured(_)), seen == 4, "{cell} after {at}");
            if seen > 0 && seen < 4 {
                assert_eq!(
                    message(&record, cell),
                    format!("not run; {seen} of 4 launches measured")
                );
                assert_eq!(record.cells[cell].seconds, 10.0 * seen as f64);
            }
        }
        assert!(whole || record.compare.as_ref().unwrap().ratios.is_empty());
    }
    assert_eq!(
        verdicts(&record),
        [Verdict::Measured, Verdict::Measured, Verdict::Pass, Verdict::Fail]
    );
    let compare = record.compare.as_ref().unwrap();
    assert_eq!((compare.cells, compare.ratios.len()), (2, 4));
    assert!((compare.ratios[0] - 0.9f64.sqrt()).abs() < 1e-12);
    assert_eq!(compare.judgement.verdict, Verdict::Fail);
}

#[test]
fn the_order_of_events_between_cells_changes_nothing() {
    let mut events = all(4, 0.9);
    let straight = fold(header(4, true), &events);
    events.reverse();
    let reversed = fold(header(4, true), &events);
    assert_eq!(straight.cells, reversed.cells);
    assert_eq!(straight.compare, reversed.compare);
}

#[test]
fn what_does_not_count_in_one_launch_is_an_error_of_the_cell_and_of_who_is_held_against_it() {
    let invalid = |cell: usize| {
        let mut events = all(4, 0.9);
        let mut bad = measurement(200.0);
        bad.checks.push(validity::samples(0, 1));
        events[4 * 2 + cell] = finished(cell, 2, bad);
        fold(header(4, true), &events)
    };
    // A candidate's own.
    let record = invalid(3);
    assert_eq!(record.cells[3].judgement.class.as_deref(), Some("invalid"));
    assert!(message(&record, 3).starts_with("in launch 3 of 4: "), "{}", message(&record, 3));
    // The reference's: the candidate looks half as quick, and nobody knows whether it is.
    let record = invalid(1);
    assert_eq!(verdicts(&record)[2..], [Verdict::Pass, Verdict::Error]);
    assert_eq!(record.cells[3].judgement.class.as_deref(), Some("no-data"));
    assert!(
        message(&record, 3).contains("old has none: in launch 3 of 4: "),
        "{}",
        message(&record, 3)
    );
    for record in [invalid(1), invalid(3)] {
        let judgement = &record.compare.unwrap().judgement;
        assert_eq!(judgement.verdict, Verdict::Error);
        assert!(judgement.message.as_ref().unwrap().contains(": in launch 3 of 4: "));
    }
}

#[test]
fn what_broke_in_one_launch_broke_the_cell() {
    let mut events = all(4, 1.0);
    let state = CellState::Broken { class: "engine-died".into(), message: "exit code 1".into() };
    events[7] = Event::CellFinished { cell: 3, round: 1, state, seconds: 1.0 };
    let record = fold(header(4, true), &events[..8]);
    assert_eq!(record.cells[3].judgement.class.as_deref(), Some("engine-died"));
    assert_eq!(message(&record, 3), "in launch 2 of 4: exit code 1");
    assert_eq!(message(&record, 2), "not run; 2 of 4 launches measured");
}

#[test]
fn an_end_that_comes_early_says_how_far_each_cell_was() {
    let mut events = all(4, 1.0)[..9].to_vec();
    let stopped = Some(StopReason::TimeLimit);
    events.push(Event::RunFinished { signal: None, stopped, at: 90.0 });
    let record = fold(header(4, true), &events);
    let counted =
        |done: u32| format!("not run: the time limit was reached; {done} of 4 launches measured");
    assert_eq!(message(&record, 0), counted(3));
    assert_eq!(message(&record, 3), counted(2));
    assert_eq!(record.cells[0].seconds, 30.0);
    // What is left goes on where it was.
    events.push(Event::RunResumed { session: 1, started: String::new(), after: 90.0 });
    let resumed = fold(header(4, true), &events);
    assert_eq!(message(&resumed, 0), "not run; 3 of 4 launches measured");
    events.extend(all(4, 1.0)[9..].iter().cloned());
    assert_eq!(fold(header(4, true), &events).cells, fold(header(4, true), &all(4, 1.0)).cells);
}

#[test]
fn a_launch_that_fails_leaves_the_cells_that_are_whole() {
    let mut planned = header(4, false);
    planned.cells[1].rounds = 1;
    let failure = LaunchFailure {
        step: "process".into(),
        message: "exited".into(),
        exit: None,
        log_tail: Vec::new(),
        mismatch: false,
        seconds: 0.0,
    };
    let events = [
        finished(0, 0, measurement(100.0)),
        finished(1, 0, measurement(100.0)),
        Event::LaunchFailed { launch: 0, failure },
    ];
    let record = fold(planned, &events);
    assert_eq!(message(&record, 0), "not run: launch old failed; 1 of 4 launches measured");
    assert_eq!(record.cells[1].judgement.verdict, Verdict::Measured);
}

#[test]
fn a_verdict_waits_for_what_it_is_held_against() {
    // Unpaired, and the candidate is measured first.
    let mut events = all(4, 1.0);
    events.sort_by_key(|event| matches!(event, Event::CellFinished { cell: 0 | 1, .. }));
    let early = fold(header(4, false), &events[..8]);
    assert_eq!(verdicts(&early)[2..], [Verdict::Error, Verdict::Error]);
    assert!((0..4).map(|cell| early.waits(cell)).eq([false, false, true, true]));
    let whole = fold(header(4, false), &events);
    assert_eq!(verdicts(&whole)[2..], [Verdict::Pass, Verdict::Pass]);
    assert!((0..4).all(|cell| !whole.waits(cell)));
    assert!(message(&whole, 2).contains("4 launches against 4"), "{}", message(&whole, 2));
}

#[test]
fn a_shard_does_not_judge_the_mean() {
    let part = || crate::record::shard::Part {
        shard: 1,
        of: 2,
        timings: None,
        here: true,
        owners: vec![1, 1],
        elsewhere: crate::record::shard::Elsewhere::default(),
    };
    let shard = |mut header: RunHeader, events: &[Event]| {
        header.shard = Some(part());
        fold(header, events).compare.unwrap().judgement
    };
    for (events, words) in
        [(&all(4, 0.9)[..], "mean ratio 0.949 of old over 2 cells"), (&all(4, 0.9)[..7], "not run")]
    {
        let judgement = shard(header(4, true), events);
        assert_eq!(judgement.verdict, Verdict::Measured);
        let message = judgement.message.unwrap();
        assert!(message.starts_with(words), "{message}");
        assert!(message.ends_with("judged when all shards are merged"), "{message}");
    }
    // One without a cell that is compared.
    let mut without = header(4, true);
    without.cells.truncate(2);
    assert_eq!(shard(without, &[]).verdict, Verdict::Measured);
}
