//! Calibrations: what is judged of unchanged launches, and what each limit sees, by hand.

use super::*;
use crate::judge::Severity;
use crate::judge::golden::close;
use crate::judge::power::power;
use crate::record::Event;
use crate::record::noise::tests::{launch, planned};
use crate::record::run_record::tests::header;
use crate::record::run_record::{RelativeRecord, VariantRecord};
use crate::suite::model::Place;

const METRIC: &str = "output-throughput";

pub(crate) fn floor(target: f64, slack: f64) -> BoundRecord {
    BoundRecord {
        noise: None,
        name: None,
        metric: METRIC.parse().unwrap(),
        bound: Some(Bound { side: Side::Min, target, limit: target * (1.0 - slack) }),
        relative: None,
        slack,
        severity: Severity::Fail,
        place: Place { file: "suite.toml".into(), line: 20 },
    }
}

pub(crate) fn ratio(limit: f64, paired: Option<bool>) -> BoundRecord {
    let variant = paired.map(|paired| VariantRecord { name: "old".into(), paired });
    let relative = RelativeRecord {
        git: None,
        file: "runs.jsonl".into(),
        variant,
        runs: Vec::new(),
        comparisons: 4,
        halved: false,
        recorded: false,
        sees: None,
    };
    let bound = Some(Bound { side: Side::Min, target: 1.0, limit });
    BoundRecord { bound, relative: Some(relative), ..floor(1.0, 0.0) }
}

/// A record of one cell that each of these launches gave such batches, and the cell with bounds as the
/// suite's runs have it.
pub(crate) fn calibrated(
    launches: &[Vec<f64>],
    rounds: u32,
    bounds: Vec<BoundRecord>,
) -> (RunRecord, Vec<PlannedCellRecord>) {
    let mut header = header();
    let own = PlannedCellRecord { rounds, bounds, ..planned("concurrency=1") };
    let alone = PlannedCellRecord {
        rounds: launches.len() as u32,
        bounds: Vec::new(),
        ..planned("concurrency=1")
    };
    header.cells = vec![alone];
    header.provenance.workloads.insert("decode".into(), BTreeMap::new());
    let mut record = RunRecord::new(header);
    for (round, means) in (0..).zip(launches) {
        let state = CellState::Measured(Box::new(launch(means, 0.0)));
        record.apply(&Event::CellFinished { cell: 0, round, state, seconds: 1.0 });
    }
    (record, vec![own])
}

/// Launches with these values, and batches that spread by 1 % about them.
pub(crate) fn values(of: &[f64]) -> Vec<Vec<f64>> {
    of.iter().map(|value| vec![value * 0.99, value * 1.01, value * 0.99, value * 1.01]).collect()
}

fn gate_of(values: &[Vec<f64>], rounds: u32, bound: BoundRecord) -> Gate {
    let (record, asked) = calibrated(values, rounds, vec![bound]);
    calibration(&record, &asked).gates.remove(0)
}

#[test]
fn launches_are_judged_alone_by_the_limits_of_the_suite() {
    // Batches with an sd of 1.2 % in four: a launch proves losses from 1.4 %.
    let launches = values(&[100.0, 101.0, 90.0, 99.5, 100.0]);
    let gate = gate_of(&launches, 1, floor(100.0, 0.0));
    assert_eq!((gate.tried, gate.failed, gate.doubtful), (5, 1, 1));
    assert_eq!(gate.judged, Judged::Launches(1));
    let gate = gate_of(&launches, 1, floor(100.0, 0.2));
    assert_eq!((gate.tried, gate.failed, gate.doubtful), (5, 0, 0), "room for what they do");
}

#[test]
fn launches_are_held_against_the_others_as_if_those_were_recorded() {
    let launches = values(&[100.0, 100.1, 99.9, 100.0, 100.05, 90.0]);
    let gate = gate_of(&launches, 1, ratio(0.97, None));
    assert_eq!((gate.tried, gate.failed), (6, 1), "the slow one");
    let gate = gate_of(&launches[..2], 1, ratio(0.97, None));
    assert_eq!(gate.tried, 0, "one other shows no noise");
}

#[test]
fn launches_that_drift_are_alike_in_pairs() {
    let drift: Vec<f64> = (0..8).map(|at| 100.0 * (0.02 * f64::from(at)).exp()).collect();
    let gate = gate_of(&values(&drift), 4, ratio(0.99, Some(true)));
    assert_eq!((gate.tried, gate.failed, gate.judged), (2, 0, Judged::Pairs(4)));
    let gate = gate_of(&values(&drift[..7]), 4, ratio(0.99, Some(true)));
    assert_eq!(gate.tried, 0, "7 launches are no 4 pairs");
    // What is slow in each second launch is no drift.
    let slow: Vec<f64> = [100.0, 90.0, 90.1, 100.1, 100.0, 90.0, 90.2, 100.0].into();
    let gate = gate_of(&values(&slow), 4, ratio(0.99, Some(true)));
    assert_eq!((gate.tried, gate.failed), (2, 1), "with either as the candidate");
}

#[test]
fn the_smallest_loss_is_seen_nineteen_times_of_twenty() {
    let launches = values(&[100.0, 101.0, 99.0, 100.5, 99.5]);
    let (record, asked) = calibrated(&launches, 2, vec![floor(95.0, 0.02)]);
    let found = calibration(&record, &asked);
    let (line, gate) = (&found.lines[0], &found.gates[0]);
    let middle = crate::record::baseline::middle(&line.values).unwrap();
    // From today's value down to the target nothing is noticed; two launches halve the variance.
    let gap = -(-gate.sees.unwrap()).ln_1p() - (middle / 95.0).ln();
    let question = Question { alpha: 0.05, limit: -0.98f64.ln() };
    let seen = power(Design { factor: 0.5, df: 4.0 }, question, line.sd, gap);
    close(seen, SURELY, 1e-6);

    let of = |bound, rounds| {
        let gate = gate_of(&launches, rounds, bound);
        -(-gate.sees.unwrap()).ln_1p()
    };
    let question = Question { alpha: 0.05 / 4.0, limit: -0.97f64.ln() };
    let seen = |factor, sd, gap| power(Design { factor, df: 4.0 }, question, sd, gap);
    close(seen(1.0 / 5.0 + 1.0, line.sd, of(ratio(0.97, None), 1)), SURELY, 1e-6);
    close(seen(1.0 / 3.0 + 1.0 / 3.0, line.sd, of(ratio(0.97, Some(false)), 3)), SURELY, 1e-6);
    let pair = line.sd * 2f64.sqrt();
    close(seen(1.0 / 6.0, pair, of(ratio(0.97, Some(true)), 6)), SURELY, 1e-6);
    // A limit far above fails as things are.
    assert_eq!(gate_of(&launches, 1, floor(150.0, 0.0)).sees, Some(0.0));
}

#[test]
fn a_cell_that_broke_in_one_launch_tells_nothing_and_leaves_the_others() {
    let (record, asked) = calibrated(&values(&[100.0, 101.0]), 1, vec![floor(90.0, 0.0)]);
    let mut header = record.header.clone();
    header.cells.push(PlannedCellRecord { id: "concurrency=2".into(), ..header.cells[0].clone() });
    header.cells.push(PlannedCellRecord { id: "concurrency=4".into(), ..header.cells[0].clone() });
    let mut both = RunRecord::new(header);
    for round in 0..2 {
        let whole = CellState::Measured(Box::new(launch(&[100.0, 101.0], 0.0)));
        let broken = CellState::Broken { class: "time-out".into(), message: "slow\nvery".into() };
        let second = if round == 1 { broken } else { whole.clone() };
        let mut late = launch(&[100.0, 101.0], 0.0);
        late.checks.push(crate::measure::Check {
            kind: crate::measure::validity::CheckKind::ClientLag,
            fault: Some(crate::measure::Fault::Invalid),
            message: "the client was late".into(),
        });
        let third = CellState::Measured(Box::new(late));
        for (cell, state) in [whole, second, third].into_iter().enumerate() {
            both.apply(&Event::CellFinished { cell, round, state, seconds: 1.0 });
        }
    }
    let found = calibration(&both, &asked);
    assert_eq!(found.lines.len(), 1);
    assert_eq!(found.lines[0].cell, "concurrency=1");
    assert_eq!(
        found.uncounted,
        [
            "decode concurrency=2: in launch 2 of 2: slow",
            "decode concurrency=4: in launch 1 of 2: the client was late; in launch 2 of 2: the client was late",
        ]
    );
    assert_eq!(found.tests.len(), 1);
}
