//! Cells that are measured in several fresh launches.

use super::pairs::{fold, rate, round};
use super::*;
use crate::judge::Method;
use crate::record::RunRecord;
use crate::record::run_record::tests::header;
use crate::record::run_record::{NoiseRecord, RelativeRecord};

fn planned(rounds: u32, bounds: Vec<BoundRecord>) -> RunRecord {
    let mut header = header();
    header.cells = vec![PlannedCellRecord { rounds, ..cell(bounds) }];
    RunRecord::new(header)
}

fn judged(bounds: Vec<BoundRecord>, states: Vec<CellState>) -> Judgement {
    let record = planned(states.len() as u32, bounds);
    let events: Vec<_> = (0..).zip(states).map(|(at, state)| round(0, at, state)).collect();
    fold(record.header, &events).cells.remove(0).judgement
}

#[test]
fn the_spread_of_launches_is_the_interval_and_none_is_extended() {
    let bound = || floor("output-throughput", 110.0, 58);
    let states = || vec![rate(90.0), rate(100.0), rate(110.0)];
    let judgement = judged(vec![bound()], states());
    let estimate = judgement.bounds[0].estimate.unwrap();
    assert_eq!((estimate.value, estimate.n, estimate.method), (100.0, 3, Method::Launches));
    // t of 2 degrees at .05, since nothing is looked at twice: 2.92 × 10/√3.
    assert!((estimate.lower.unwrap() - (100.0 - 16.858_545_2)).abs() < 1e-6, "{estimate:?}");
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    let message = judgement.message.unwrap();
    assert!(message.contains("noise reaches 116.9, 3 launches, suite.toml:58"), "{message}");
    let cell = PlannedCellRecord { rounds: 3, ..cell(vec![bound()]) };
    assert!(extension(&cell, &window(100.0, 30.0), &policy(), 8).is_empty());
    // Quiet launches that are slower are a loss, whatever each shows within.
    let judgement = self::judged(vec![bound()], vec![rate(100.0), rate(100.1), rate(99.9)]);
    assert_eq!(judgement.verdict, Verdict::Fail);
}

#[test]
fn a_cell_has_not_run_until_all_launches_have_and_one_that_broke_breaks_it() {
    let bounds = || vec![floor("output-throughput", 100.0, 58)];
    let waiting = CellState::NotRun { reason: "not run".into() };
    let judgement = judged(bounds(), vec![rate(100.0), waiting]);
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Error, Some("not-run")));
    let broke = CellState::Broken { class: "time-out".into(), message: "mute".into() };
    let judgement = judged(bounds(), vec![rate(100.0), broke, rate(100.0)]);
    assert_eq!(judgement.message.unwrap(), "in launch 2 of 3: mute");
    let unfit = CellState::Unfit { class: UnfitClass::OverCapacity, message: "full".into() };
    assert_eq!(judged(bounds(), vec![rate(100.0), unfit]).verdict, Verdict::Fail);
    let failing = with(validity::error_rate(3, 128, 0.0), window(100.0, 1.0));
    let judgement = judged(bounds(), vec![rate(100.0), CellState::Measured(Box::new(failing))]);
    assert_eq!(judgement.verdict, Verdict::Fail);
    let message = judgement.message.unwrap();
    assert!(message.starts_with("in launch 2 of 2: 3 of 128 requests failed"), "{message}");
}

#[test]
fn what_is_exact_stays_exact_and_points_get_a_spread() {
    let startup = |seconds: f64, tokens: u64| {
        let observations = crate::measure::observe::startup(Some(seconds), Some(tokens));
        CellState::Measured(Box::new(Measurement { observations, ..Measurement::default() }))
    };
    let bounds = || vec![ceiling("ready-time", 60.0, 70), floor("kv-capacity", 1000.0, 71)];
    let judgement = judged(bounds(), vec![startup(58.0, 1000), startup(66.0, 1000)]);
    let [ready, capacity] = [0, 1].map(|at| judgement.bounds[at].estimate.unwrap());
    assert_eq!((ready.value, ready.method), (62.0, Method::Launches));
    assert_eq!((capacity.value, capacity.method), (1000.0, Method::Exact));
    assert_eq!(judgement.bounds[0].verdict, BoundVerdict::Inconclusive);
    assert_eq!(judgement.bounds[1].verdict, BoundVerdict::Clear);
}

#[test]
fn percentiles_waves_and_told_figures_are_means_of_what_each_launch_says() {
    let launch = |ms: f64| {
        let mut measurement = window(100.0, 1.0);
        let observations = &mut measurement.observations;
        observations.insert(Base::Ttft, Observations::Waves(vec![vec![ms]; 3]));
        let samples = (0..100).map(|at| ms + f64::from(at)).collect();
        observations.insert(Base::E2eLatency, Observations::Samples(samples));
        let told = BTreeMap::from([(crate::measure::Stat::P99, vec![ms * 2.0])]);
        observations.insert(Base::Itl, Observations::Told(told));
        CellState::Measured(Box::new(measurement))
    };
    let bounds = vec![
        ceiling("ttft.p50", 900.0, 60),
        ceiling("e2e-latency.p50", 900.0, 61),
        ceiling("itl.p99", 900.0, 62),
    ];
    let judgement = judged(bounds, vec![launch(100.0), launch(102.0), launch(104.0)]);
    let estimates: Vec<_> = judgement.bounds.iter().map(|it| it.estimate.unwrap()).collect();
    assert!(estimates.iter().all(|it| it.method == Method::Launches && it.n == 3));
    let values: Vec<f64> = estimates.iter().map(|it| it.value).collect();
    assert_eq!((values[0], values[2]), (102.0, 204.0));
    assert!((values[1] - 151.5).abs() <= 0.5, "{values:?}");
}

#[test]
fn a_calibration_tells_of_one_launch_how_others_differ() {
    let noise = |sd| NoiseRecord { file: "noise.jsonl".into(), sd, df: 4.0 };
    let bound =
        |sd| BoundRecord { noise: Some(noise(sd)), ..floor("output-throughput", 7302.0, 58) };
    let judgement = |sd| self::judged(vec![bound(sd)], vec![rate(6871.0)]);
    let estimate = judgement(0.01).bounds[0].estimate.unwrap();
    // t of 4 degrees at .05 times one percent, as a logarithm.
    let upper = 6871.0 * (0.021_318_467_863_266_5f64).exp();
    assert!((estimate.upper.unwrap() - upper).abs() < 1e-6, "{estimate:?}");
    assert_eq!(
        (judgement(0.01).verdict, judgement(0.05).verdict),
        (Verdict::Fail, Verdict::Inconclusive)
    );
    let message = judgement(0.01).message.unwrap();
    assert!(message.contains("1 launch, noise of noise.jsonl, suite.toml:58"), "{message}");
    // How launches differ no longer window tells.
    assert!(extension(&cell(vec![bound(0.05)]), &window(6871.0, 20.0), &policy(), 8).is_empty());
}

#[test]
fn several_launches_narrow_a_ratio_to_recorded_runs() {
    let runs = [-0.01f64, -0.005, 0.0, 0.005, 0.01].map(|log| 7302.0 * log.exp());
    let relative = RelativeRecord {
        git: None,
        variant: None,
        file: "b.jsonl".into(),
        runs: runs.to_vec(),
        comparisons: 1,
        halved: false,
        recorded: false,
        sees: Some(0.05),
    };
    let bound = || BoundRecord {
        bound: Some(Bound { side: Side::Min, target: 1.0, limit: 0.97 }),
        relative: Some(relative.clone()),
        slack: 0.0,
        ..floor("output-throughput", 1.0, 58)
    };
    let width = |states: Vec<CellState>| {
        let judgement = self::judged(vec![bound()], states);
        let estimate = judgement.bounds[0].estimate.unwrap();
        let width = (estimate.upper.unwrap() / estimate.value).ln();
        (width, judgement.message.unwrap())
    };
    let (one, _) = width(vec![rate(7000.0)]);
    let (three, message) = width(vec![rate(6930.0), rate(7000.0), rate(7070.0)]);
    assert!(three < one * 0.8, "{one} {three}");
    assert!(message.contains("(5 runs, 3 launches, sees losses from 5 %"), "{message}");
}
