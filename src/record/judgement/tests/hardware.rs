//! Cells whose hardware was not in order, through the record.

use super::pairs::{compare, fold, round, share};
use super::*;
use crate::hardware::telemetry::{GpuTelemetry, Series, Telemetry, Throttle};
use crate::judge::Severity;
use crate::record::run_record::tests::header;
use crate::record::run_record::{HARDWARE, RunHeader};
use crate::record::{Event, RunRecord};

const HOT: &str = "GPU 3 throttled by heat in 62 % of the time";

fn gpu(clock: f64, power: f64) -> GpuTelemetry {
    let flat = |value| Some(Series { min: value, mean: value, max: value, points: vec![] });
    GpuTelemetry {
        index: 3,
        name: "H200".into(),
        sm_clock: flat(clock),
        power: flat(power),
        ..GpuTelemetry::default()
    }
}

fn seen(gpu: GpuTelemetry) -> Telemetry {
    Telemetry { seconds: 30.0, samples: 150, gpus: vec![gpu], ..Telemetry::default() }
}

fn hot() -> Telemetry {
    let throttled = BTreeMap::from([(Throttle::ThermalSoftware, 0.62)]);
    seen(GpuTelemetry { throttled, ..gpu(1305.0, 420.0) })
}

fn lost() -> Telemetry {
    seen(GpuTelemetry { lost: Some("GPU is lost".into()), ..gpu(1980.0, 600.0) })
}

fn measured(rate: f64, telemetry: Telemetry) -> CellState {
    let mut measurement = window(rate, 20.0);
    measurement.telemetry = Some(Box::new(telemetry));
    CellState::Measured(Box::new(measurement))
}

fn fine(rate: f64) -> CellState {
    measured(rate, seen(gpu(1980.0, 600.0)))
}

/// One launch with so many cells of one floor.
fn header_of(cells: usize, fault: HardwareFault) -> RunHeader {
    let mut header = header();
    header.policy.hardware_fault = fault;
    header.launches.truncate(1);
    let one = |at| PlannedCellRecord {
        id: format!("c={at}"),
        ..cell(vec![floor("output-throughput", 7302.0, 58)])
    };
    header.cells = (0..cells).map(one).collect();
    header
}

fn one(state: CellState, fault: HardwareFault) -> Judgement {
    let record = fold(header_of(1, fault), &[round(0, 0, state)]);
    record.cells[0].judgement.clone()
}

#[test]
fn a_failing_cell_says_that_hardware_was_suspect_and_stays_a_failure() {
    let judgement = one(measured(6871.0, hot()), HardwareFault::Warn);
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Fail, Some("limit")));
    let line =
        "output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, in this launch, suite.toml:58)";
    let said = format!("hardware was suspect: {HOT}");
    assert_eq!(judgement.message.unwrap(), format!("{line}; {said}"));
    assert_eq!(judgement.warnings, [said]);
    assert_eq!(judgement.suspects[0].suspicion.gpus, [3]);
    assert_eq!(judgement.bounds[0].message, line);
}

#[test]
fn a_passing_cell_only_warns() {
    let judgement = one(measured(7302.0, hot()), HardwareFault::Warn);
    assert_eq!(judgement.verdict, Verdict::Pass);
    assert_eq!(judgement.warnings, [format!("hardware was suspect: {HOT}")]);
    assert!(!judgement.message.unwrap().contains("suspect"));
    let judgement = one(fine(7302.0), HardwareFault::Error);
    assert_eq!((judgement.verdict, judgement.suspects.len()), (Verdict::Pass, 0));
}

#[test]
fn by_policy_it_is_an_error_whatever_the_figures_say() {
    for (rate, otherwise) in [
        (6871.0, "output-throughput 6 871 tok/s < 6 936.9"),
        (7302.0, "output-throughput 7 302 tok/s ≥"),
    ] {
        let judgement = one(measured(rate, hot()), HardwareFault::Error);
        assert_eq!(
            (judgement.verdict, judgement.class.as_deref()),
            (Verdict::Error, Some(HARDWARE))
        );
        let begins =
            format!("hardware was suspect: {HOT} (an error by policy.hardware-fault); {otherwise}");
        let message = judgement.message.as_ref().unwrap();
        assert!(message.starts_with(&begins), "{message}");
        assert!(judgement.is_of_hardware() && judgement.bounds[0].estimate.is_some());
    }
}

#[test]
fn a_lost_gpu_is_said_whatever_the_verdict() {
    let judgement = one(measured(7302.0, lost()), HardwareFault::Warn);
    assert_eq!(judgement.verdict, Verdict::Pass);
    let said = "; hardware was suspect: GPU 3 was lost: GPU is lost";
    assert!(judgement.message.as_ref().unwrap().ends_with(said), "{judgement:?}");
    let mut header = header_of(1, HardwareFault::Warn);
    header.cells[0].bounds[0].severity = Severity::Report;
    let record = fold(header, &[round(0, 0, measured(7302.0, lost()))]);
    let judgement = &record.cells[0].judgement;
    assert_eq!(judgement.verdict, Verdict::Measured);
    assert!(judgement.message.as_ref().unwrap().ends_with(said), "{judgement:?}");
}

#[test]
fn what_does_not_count_anyway_says_it_too_and_a_quarantine_excuses_no_hardware() {
    let mut measurement = window(6871.0, 20.0);
    measurement.telemetry = Some(Box::new(hot()));
    measurement.checks.push(validity::samples(1, 3));
    let judgement = one(CellState::Measured(Box::new(measurement)), HardwareFault::Error);
    assert_eq!(judgement.class.as_deref(), Some("invalid"));
    assert!(judgement.message.unwrap().ends_with(&format!("; hardware was suspect: {HOT}")));

    let mut header = header_of(1, HardwareFault::Warn);
    header.cells[0] = quarantined(None, header.cells[0].bounds.clone());
    let state = measured(6871.0, hot());
    let record = fold(header.clone(), &[round(0, 0, state.clone())]);
    let judgement = &record.cells[0].judgement;
    assert_eq!(judgement.verdict, Verdict::Xfail);
    assert!(judgement.message.as_ref().unwrap().ends_with(HOT));
    header.policy.hardware_fault = HardwareFault::Error;
    let record = fold(header, &[round(0, 0, state)]);
    assert_eq!(record.cells[0].judgement.verdict, Verdict::Error);
}

/// Clocks of one GPU, at its power cap all the time, in cells that take the same power but for the last.
fn by_clock(cells: usize) -> Vec<Event> {
    let capped = |clock, power| {
        let throttled = BTreeMap::from([(Throttle::PowerCap, 1.0)]);
        seen(GpuTelemetry { throttled, ..gpu(clock, power) })
    };
    let clock = |at| if at + 1 == cells { 1200.0 } else { 1900.0 + at as f64 };
    let power = |at| if at + 1 == cells { 350.0 } else { 650.0 };
    (0..cells).map(|at| round(at, 0, measured(7302.0, capped(clock(at), power(at))))).collect()
}

#[test]
fn clocks_are_compared_once_the_launch_has_stopped_in_whatever_order_cells_finished() {
    let stopped = Event::LaunchStopped { launch: 0, at: 9.0 };
    let mut events = by_clock(5);
    let before = fold(header_of(5, HardwareFault::Warn), &events);
    assert!(before.cells.iter().all(|cell| cell.judgement.suspects.is_empty()));
    events.push(stopped.clone());
    let record = fold(header_of(5, HardwareFault::Warn), &events);
    let suspect: Vec<usize> =
        (0..5).filter(|at| !record.cells[*at].judgement.suspects.is_empty()).collect();
    assert_eq!(suspect, [4]);
    let warning = &record.cells[4].judgement.warnings[0];
    assert!(warning.contains("GPU 3 ran 37 % below its clocks in other cells"), "{warning}");
    events[..5].reverse();
    let reversed = fold(header_of(5, HardwareFault::Warn), &events);
    assert_eq!(reversed.cells, record.cells);
    // A run that was cut before the launch stopped knows them at its end.
    events.pop();
    events.push(Event::RunFinished { signal: None, stopped: None, at: 9.0 });
    assert_eq!(fold(header_of(5, HardwareFault::Warn), &events).cells, record.cells);
}

/// `old` and `new` in four pairs at these rates; `heat` says whether a launch of either was hot.
fn pairs(new: f64, fault: HardwareFault, heat: impl Fn(&str, u32) -> bool) -> RunRecord {
    let mut header = compare(1, 4, &[share("output-throughput", 0.97, 1)]);
    header.policy.hardware_fault = fault;
    let state = |name, pair: u32, rate: f64| {
        let rate = rate * (1.0 + f64::from(pair) / 1000.0);
        if heat(name, pair) { measured(rate, hot()) } else { fine(rate) }
    };
    let events: Vec<Event> = (0..4)
        .flat_map(|pair| {
            [round(0, pair, state("old", pair, 100.0)), round(1, pair, state("new", pair, new))]
        })
        .collect();
    fold(header, &events)
}

#[test]
fn a_comparison_says_which_side_alone_was_held_back() {
    let record = pairs(90.0, HardwareFault::Warn, |name, pair| name == "new" && pair > 1);
    let judgement = &record.cells[1].judgement;
    let said = format!("hardware was suspect of new alone in pairs 3 and 4 of 4, first: {HOT}");
    assert_eq!(judgement.verdict, Verdict::Fail);
    let message = judgement.message.as_ref().unwrap();
    assert!(message.ends_with(&format!("; {said}")), "{message}");
    assert_eq!(judgement.warnings, [said]);
    assert_eq!(
        judgement.suspects.iter().map(|it| it.round).collect::<Vec<_>>(),
        [Some(2), Some(3)]
    );

    // A baseline that was held back makes a loss look like none: a pass says so.
    let record = pairs(100.0, HardwareFault::Warn, |name, pair| name == "old" && pair == 0);
    let judgement = &record.cells[1].judgement;
    let said = format!("hardware was suspect of old alone in pair 1 of 4: {HOT}");
    assert_eq!(judgement.verdict, Verdict::Pass);
    assert!(judgement.message.as_ref().unwrap().ends_with(&format!("; {said}")), "{judgement:?}");
    assert_eq!((&judgement.warnings[..], judgement.suspects.len()), (&[said][..], 0));
    let old = &record.cells[0].judgement;
    assert_eq!(old.warnings, [format!("hardware was suspect: in launch 1 of 4: {HOT}")]);

    let both = pairs(90.0, HardwareFault::Warn, |_, pair| pair == 1);
    let message = both.cells[1].judgement.message.as_ref().unwrap();
    let said = format!("; hardware was suspect: in launch 2 of 4: {HOT}");
    assert!(message.ends_with(&said), "{message}");
}

#[test]
fn by_policy_nothing_is_held_against_a_side_that_was_held_back() {
    let record = pairs(90.0, HardwareFault::Error, |name, pair| name == "old" && pair == 0);
    assert!(record.cells[0].judgement.is_of_hardware());
    let judgement = &record.cells[1].judgement;
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Error, Some("no-data")));
    let message = judgement.message.as_ref().unwrap();
    assert!(
        message.contains(&format!("old has none: hardware was suspect: in launch 1 of 4: {HOT}")),
        "{message}"
    );
    let mean = &record.compare.as_ref().unwrap().judgement;
    assert_eq!(mean.class.as_deref(), Some("no-data"), "{mean:?}");
}

#[test]
fn the_mean_ratio_says_in_how_many_cells_one_side_alone_was_held_back() {
    let record = pairs(90.0, HardwareFault::Warn, |name, pair| name == "new" && pair == 2);
    let message = record.compare.as_ref().unwrap().judgement.message.as_ref().unwrap();
    let said = format!(
        "hardware was suspect of one variant alone in 1 of 1 cells, first of new in decode c=0 \
         in pair 3 of 4: {HOT}"
    );
    assert!(message.ends_with(&format!("; {said}")), "{message}");
    let record = pairs(90.0, HardwareFault::Warn, |_, pair| pair == 2);
    assert!(!record.compare.unwrap().judgement.message.unwrap().contains("suspect"));
}
