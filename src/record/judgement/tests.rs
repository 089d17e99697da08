//! Cells and what they come to, as examples.

use super::*;
use crate::judge::{Bound, Side};
use crate::load::FailureClass;
use crate::measure::validity;
use crate::measure::{Check, Observations};
use crate::record::run_record::QuarantineRecord;
use crate::suite::model::{HardwareFault, InconclusivePolicy, Place, UnjudgedPolicy};

mod hardware;
mod launches;
mod pairs;
mod relative;

fn place(line: u32) -> Place {
    Place { file: "suite.toml".into(), line }
}

fn policy() -> Policy {
    Policy {
        alpha: 0.05,
        inconclusive: InconclusivePolicy::Warn,
        unjudged: UnjudgedPolicy::Warn,
        hardware_fault: HardwareFault::Warn,
        max_error_rate: 0.0,
        max_client_lag: Duration::from_millis(5),
        restarts: 1,
        time_limit: None,
    }
}

fn floor(metric: &str, target: f64, line: u32) -> BoundRecord {
    let limit = target * 0.95;
    BoundRecord {
        noise: None,
        name: None,
        metric: metric.parse().unwrap(),
        bound: Some(Bound { side: Side::Min, target, limit }),
        relative: None,
        slack: 0.05,
        severity: Severity::Fail,
        place: place(line),
    }
}

fn ceiling(metric: &str, target: f64, line: u32) -> BoundRecord {
    let bound = Some(Bound { side: Side::Max, target, limit: target });
    BoundRecord { bound, slack: 0.0, ..floor(metric, target, line) }
}

fn over_capacity(line: u32) -> BoundRecord {
    BoundRecord { bound: None, ..floor("output-throughput", 1.0, line) }
}

fn cell(bounds: Vec<BoundRecord>) -> PlannedCellRecord {
    PlannedCellRecord {
        rounds: 1,
        id: "context=8K,concurrency=128".into(),
        test: "decode".into(),
        kind: TestKind::Decode,
        variant: None,
        classname: "suite.decode".into(),
        axes: Vec::new(),
        launch: 0,
        place: place(20),
        bounds,
        quarantine: None,
    }
}

fn quarantined(max_loss: Option<f64>, bounds: Vec<BoundRecord>) -> PlannedCellRecord {
    let rule = QuarantineRecord {
        reason: "page fault storm".into(),
        issue: Some("https://example.org/1".into()),
        expires: "2027-06-30".into(),
        max_loss,
        place: place(90),
    };
    PlannedCellRecord { quarantine: Some(rule), ..cell(bounds) }
}

/// A decode window at `rate` with batch means that spread by about `spread`, TTFT near 1 s.
fn window(rate: f64, spread: f64) -> Measurement {
    let means = (0..10).map(|i| rate + if i % 2 == 0 { spread } else { -spread }).collect();
    let mut measurement = Measurement { requests: 128, ..Measurement::default() };
    let observations = &mut measurement.observations;
    let throughput = Observations::Batches { rate, means, floor: 0.3 };
    observations.insert(Base::OutputThroughput, throughput);
    observations.insert(
        Base::Ttft,
        Observations::Waves(vec![vec![1000.0, 1004.0], vec![1010.0, 1006.0], vec![990.0, 996.0]]),
    );
    observations.insert(Base::ActiveRequests, Observations::Exact(2.0));
    observations.insert(Base::MeasuredTime, Observations::Exact(30.0));
    measurement
}

fn with(check: Check, mut measurement: Measurement) -> Measurement {
    measurement.checks.push(check);
    measurement
}

fn judge(cell: &PlannedCellRecord, measurement: &Measurement, policy: &Policy) -> Judgement {
    judge_cell(cell, &CellState::Measured(Box::new(measurement.clone())), policy, 8, true)
}

fn judged(bounds: Vec<BoundRecord>, measurement: &Measurement) -> Judgement {
    judge(&cell(bounds), measurement, &policy())
}

#[test]
fn a_sure_and_material_loss_fails_and_says_where_it_is_written() {
    let judgement = judged(vec![floor("output-throughput", 7302.0, 58)], &window(6871.0, 20.0));
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert_eq!(judgement.class.as_deref(), Some("limit"));
    assert_eq!(judgement.decided_by, Some(0));
    assert_eq!(
        judgement.message.unwrap(),
        "output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, in this launch, suite.toml:58)"
    );
}

#[test]
fn several_broken_limits_are_told_worst_first() {
    let bounds = vec![
        ceiling("ttft.p50", 990.0, 60),
        floor("output-throughput", 7302.0, 58),
        ceiling("ttft.p50", 2000.0, 62),
    ];
    let judgement = judged(bounds, &window(6000.0, 20.0));
    assert_eq!(judgement.decided_by, Some(1));
    // The TTFT lies above its ceiling, but three waves do not prove it.
    assert_eq!(
        judgement.message.unwrap(),
        "output-throughput 6 000 tok/s < 6 936.9 (−17.8 % of 7 302, in this launch, suite.toml:58)"
    );
    let bounds = vec![
        ceiling("ttft.p50", 900.0, 60),
        floor("output-throughput", 7302.0, 58),
        ceiling("ttft.p50", 2000.0, 62),
    ];
    let judgement = judged(bounds, &window(6000.0, 20.0));
    assert_eq!(
        judgement.message.unwrap(),
        "2 of 3 limits: output-throughput 6 000 tok/s < 6 936.9 (−17.8 % of 7 302, in this launch, \
         suite.toml:58); ttft.p50 1 000 ms > 900 (+11.1 % of 900, in this launch, suite.toml:60)"
    );
}

#[test]
fn a_pass_is_told_by_its_tightest_bound() {
    let bounds = vec![ceiling("ttft.p50", 5000.0, 60), floor("output-throughput", 7302.0, 58)];
    let judgement = judged(bounds, &window(7310.0, 20.0));
    assert_eq!((judgement.verdict, judgement.decided_by), (Verdict::Pass, Some(1)));
    assert_eq!(
        judgement.message.unwrap(),
        "output-throughput 7 310 tok/s ≥ 6 936.9 (+0.1 % of 7 302, clear, in this launch, \
         suite.toml:58)"
    );
    assert!(judgement.warnings.is_empty());
}

#[test]
fn doubt_is_inconclusive_until_policy_says_otherwise() {
    let cell = cell(vec![floor("output-throughput", 7302.0, 58)]);
    let noisy = window(6871.0, 900.0);
    let under = |inconclusive| judge(&cell, &noisy, &Policy { inconclusive, ..policy() });

    let warn = under(InconclusivePolicy::Warn);
    assert_eq!(warn.verdict, Verdict::Inconclusive);
    assert!(warn.message.unwrap().contains("noise reaches 7 "));
    assert_eq!(under(InconclusivePolicy::Fail).verdict, Verdict::Inconclusive);

    let pass = under(InconclusivePolicy::Pass);
    assert_eq!((pass.verdict, pass.class), (Verdict::Pass, None));
    assert!(pass.warnings[0].starts_with("inconclusive, passed by policy: output-throughput"));

    let point = under(InconclusivePolicy::Point);
    assert_eq!(point.verdict, Verdict::Fail);
    assert!(point.message.unwrap().contains("by the point estimate, in this launch"));
    assert_eq!(point.bounds[0].verdict, BoundVerdict::Inconclusive);
}

#[test]
fn only_doubt_is_extended_and_only_once() {
    let wants = |bounds: Vec<BoundRecord>, measurement: &Measurement| {
        extension(&cell(bounds), measurement, &policy(), 8)
    };
    let floor = || floor("output-throughput", 7302.0, 58);
    assert_eq!(wants(vec![floor()], &window(6871.0, 900.0)), [Base::OutputThroughput]);
    assert_eq!(wants(vec![floor()], &window(6871.0, 20.0)), []);
    assert_eq!(wants(vec![floor()], &window(7310.0, 20.0)), []);
    assert_eq!(wants(vec![], &window(7310.0, 20.0)), []);
    assert_eq!(
        wants(vec![floor(), ceiling("ttft.p50", 999.0, 60)], &window(7310.0, 20.0)),
        [Base::Ttft]
    );
    // Settled by another bound, by a fault, or extended already.
    assert_eq!(wants(vec![floor(), ceiling("ttft.p50", 900.0, 60)], &window(6871.0, 900.0)), []);
    let broken = with(validity::error_rate(1, 128, 0.0), window(6871.0, 900.0));
    assert_eq!(wants(vec![floor()], &broken), []);
    let extended = Measurement { extended: true, ..window(6871.0, 900.0) };
    assert_eq!(wants(vec![floor()], &extended), []);
    let warn = BoundRecord { severity: Severity::Warn, ..floor() };
    assert_eq!(wants(vec![warn], &window(6871.0, 900.0)), []);
    let drifting = with(drift(), window(7310.0, 20.0));
    assert_eq!(wants(vec![floor()], &drifting), [Base::OutputThroughput]);
    assert!(wants_extension(&cell(vec![floor()]), &drifting, &policy(), 8));
}

fn drift() -> Check {
    validity::steady(&(0..10).map(|i| 100.0 + 3.0 * f64::from(i)).collect::<Vec<_>>())
}

#[test]
fn both_looks_share_alpha_and_a_single_one_has_it_all() {
    let bounds = vec![floor("output-throughput", 7302.0, 58)];
    let state = CellState::Measured(Box::new(window(6871.0, 200.0)));
    let width = |extendable| {
        let judgement = judge_cell(&cell(bounds.clone()), &state, &policy(), 8, extendable);
        let estimate = judgement.bounds[0].estimate.unwrap();
        estimate.upper.unwrap() - estimate.value
    };
    // t quantiles with 9 degrees of freedom at .0298 and .05.
    assert!((width(true) / width(false) - 2.154_485_794 / 1.833_112_933).abs() < 1e-8);
}

#[test]
fn an_invalid_measurement_is_an_error_whatever_it_shows() {
    let checks = with(
        validity::concurrency(100.0, 128, true),
        with(validity::error_rate(3, 128, 0.0), window(1.0, 0.0)),
    );
    let judgement = judged(vec![floor("output-throughput", 7302.0, 58)], &checks);
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Error, Some("invalid")));
    assert_eq!(
        judgement.message.unwrap(),
        "the client was the limit: 100 of 128 requests in flight on average, 98 % at least are needed"
    );
}

#[test]
fn a_degraded_engine_fails_with_its_figures_shown() {
    let mut measurement = with(validity::error_rate(3, 128, 0.0), window(7310.0, 20.0));
    measurement.failures.insert(FailureClass::Stalled, (3, "silent for 60 s".into()));
    let judgement = judged(vec![floor("output-throughput", 7302.0, 58)], &measurement);
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Fail, Some("degraded")));
    assert_eq!(judgement.message.unwrap(), "3 of 128 requests failed (2.34 %, 0 % allowed)");
    assert_eq!(judgement.bounds[0].verdict, BoundVerdict::Clear);

    let slow = with(validity::error_rate(3, 128, 0.0), window(6000.0, 20.0));
    let judgement = judged(vec![floor("output-throughput", 7302.0, 58)], &slow);
    assert!(judgement.message.unwrap().contains("allowed); output-throughput 6 000 tok/s <"));
    assert_eq!(judgement.decided_by, Some(0));
}

#[test]
fn drift_is_at_best_inconclusive() {
    let judgement =
        judged(vec![floor("output-throughput", 7302.0, 58)], &with(drift(), window(7310.0, 20.0)));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.message.unwrap().starts_with("drifting: change over the window +"));
    let judgement =
        judged(vec![floor("output-throughput", 7302.0, 58)], &with(drift(), window(6000.0, 20.0)));
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert!(judgement.warnings[0].starts_with("drifting: "));
    let policy = Policy { inconclusive: InconclusivePolicy::Point, ..policy() };
    let cell = cell(vec![floor("output-throughput", 7302.0, 58)]);
    let judgement = judge(&cell, &with(drift(), window(7310.0, 20.0)), &policy);
    assert_eq!(judgement.verdict, Verdict::Pass);
}

#[test]
fn a_bound_without_data_is_an_error_and_no_pass() {
    let bounds = vec![floor("output-throughput", 7302.0, 58), ceiling("itl.p99", 50.0, 61)];
    let judgement = judged(bounds, &window(7310.0, 20.0));
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Error, Some("no-data")));
    assert_eq!(judgement.decided_by, Some(1));
    assert_eq!(
        judgement.message.unwrap(),
        "itl.p99 ≤ 50: no data, no itl was observed (suite.toml:61)"
    );
}

#[test]
fn warnings_and_reports_do_not_decide() {
    for (severity, warnings) in [(Severity::Warn, 1), (Severity::Report, 0)] {
        let soft = BoundRecord { severity, ..ceiling("ttft.p50", 900.0, 60) };
        let judgement = judged(
            vec![floor("output-throughput", 7302.0, 58), soft.clone()],
            &window(7310.0, 20.0),
        );
        assert_eq!(judgement.verdict, Verdict::Pass);
        assert_eq!(judgement.warnings.len(), warnings);
        assert_eq!(judgement.bounds[1].verdict, BoundVerdict::Fail);
        let alone = judged(vec![soft], &window(7310.0, 20.0));
        assert_eq!(alone.verdict, Verdict::Measured);
    }
}

#[test]
fn a_cell_that_nothing_is_expected_of_follows_its_policy() {
    let under =
        |unjudged| judge(&cell(vec![]), &window(7310.0, 20.0), &Policy { unjudged, ..policy() });
    let allowed = under(UnjudgedPolicy::Allow);
    assert_eq!((allowed.verdict, allowed.warnings.len()), (Verdict::Measured, 0));
    let warned = under(UnjudgedPolicy::Warn);
    assert_eq!((warned.verdict, warned.warnings.len()), (Verdict::Measured, 0));
    assert_eq!(warned.message.unwrap(), "nothing is expected of this cell");
    let refused = under(UnjudgedPolicy::Error);
    assert_eq!((refused.verdict, refused.class.as_deref()), (Verdict::Error, Some("unjudged")));
}

fn unfit(class: UnfitClass) -> CellState {
    CellState::Unfit { class, message: "needs 1 572 864 tokens of 1 440 000".into() }
}

fn of_state(cell: &PlannedCellRecord, state: &CellState) -> Judgement {
    judge_cell(cell, state, &policy(), 8, true)
}

#[test]
fn over_capacity_is_skipped_expected_or_a_failure() {
    let skipped = of_state(&cell(vec![]), &unfit(UnfitClass::OverCapacity));
    assert_eq!((skipped.verdict, skipped.class), (Verdict::Skip, None));
    assert_eq!(skipped.message.unwrap(), "needs 1 572 864 tokens of 1 440 000");

    let expected = of_state(&cell(vec![over_capacity(61)]), &unfit(UnfitClass::OverCapacity));
    assert_eq!(expected.verdict, Verdict::Skip);
    assert_eq!(
        expected.message.unwrap(),
        "needs 1 572 864 tokens of 1 440 000; as expected (suite.toml:61)"
    );

    let failed = of_state(
        &cell(vec![floor("output-throughput", 7302.0, 58)]),
        &unfit(UnfitClass::OverCapacity),
    );
    assert_eq!((failed.verdict, failed.class.as_deref()), (Verdict::Fail, Some("capacity")));
    assert_eq!(failed.decided_by, Some(0));
    assert_eq!(
        failed.message.unwrap(),
        "needs 1 572 864 tokens of 1 440 000; expected: output-throughput ≥ 6 936.9: not reached \
         (suite.toml:58)"
    );

    let soft = BoundRecord { severity: Severity::Warn, ..floor("output-throughput", 1.0, 58) };
    let skipped = of_state(&cell(vec![soft]), &unfit(UnfitClass::OverCapacity));
    assert_eq!(skipped.verdict, Verdict::Skip);
}

#[test]
fn what_fits_although_expected_over_is_told() {
    let judgement = judged(vec![over_capacity(61)], &window(7310.0, 20.0));
    assert_eq!(judgement.verdict, Verdict::Measured);
    assert_eq!(
        judgement.warnings,
        ["capacity grew: it fits, and was expected to be over (suite.toml:61)"]
    );
    // It exempts the cell from every other bound.
    let bounds = vec![over_capacity(61), floor("output-throughput", 9999.0, 58)];
    assert_eq!(judged(bounds.clone(), &window(10.0, 1.0)).verdict, Verdict::Measured);
    let broken = with(validity::error_rate(3, 128, 0.0), window(10.0, 1.0));
    let told = judged(bounds.clone(), &broken).message.unwrap();
    assert_eq!(told, "3 of 128 requests failed (2.34 %, 0 % allowed)");
    let state = unfit(UnfitClass::OverCapacity);
    assert_eq!(of_state(&cell(bounds), &state).verdict, Verdict::Skip);
}

#[test]
fn too_long_fails_what_is_expected_and_other_hardware_never() {
    let bounds = || vec![floor("output-throughput", 7302.0, 58)];
    let long = of_state(&cell(bounds()), &unfit(UnfitClass::TooLong));
    assert_eq!((long.verdict, long.class.as_deref()), (Verdict::Fail, Some("too-long")));
    assert_eq!(of_state(&cell(vec![]), &unfit(UnfitClass::TooLong)).verdict, Verdict::Skip);
    let other = of_state(&cell(bounds()), &unfit(UnfitClass::Hardware));
    assert_eq!(other.verdict, Verdict::Skip);
}

#[test]
fn cells_that_did_not_run_or_broke_are_errors_even_in_quarantine() {
    let state = CellState::NotRun { reason: "not run: launch engine failed".into() };
    let cell = quarantined(None, vec![floor("output-throughput", 7302.0, 58)]);
    let judgement = of_state(&cell, &state);
    assert_eq!((judgement.verdict, judgement.class.as_deref()), (Verdict::Error, Some("not-run")));
    assert_eq!(judgement.message.unwrap(), "not run: launch engine failed");
    assert_eq!(judgement.bounds[0].verdict, BoundVerdict::NoData);
    let state = CellState::Broken { class: "engine-died".into(), message: "exit status 1".into() };
    assert_eq!(of_state(&cell, &state).class.as_deref(), Some("engine-died"));
}

#[test]
fn a_quarantine_expects_the_failure_up_to_its_loss() {
    let bounds = || vec![floor("output-throughput", 7302.0, 58)];
    let bad = window(6000.0, 20.0);
    let expected = judge(&quarantined(None, bounds()), &bad, &policy());
    assert_eq!(expected.verdict, Verdict::Xfail);
    assert!(expected.message.unwrap().starts_with(
        "quarantined until 2027-06-30: page fault storm, https://example.org/1: output-throughput"
    ));
    assert_eq!(judge(&quarantined(Some(0.2), bounds()), &bad, &policy()).verdict, Verdict::Xfail);
    let beyond = judge(&quarantined(Some(0.1), bounds()), &bad, &policy());
    assert_eq!(beyond.verdict, Verdict::Fail);
    assert!(
        beyond
            .message
            .unwrap()
            .ends_with("; the quarantine covers losses up to 10 % only (suite.toml:90)")
    );
    let just = quarantined(Some(0.1), vec![floor("output-throughput", 100.0, 58)]);
    assert_eq!(judge(&just, &window(90.0, 0.1), &policy()).verdict, Verdict::Xfail);
    // Over capacity nothing was lost by so and so much.
    let over =
        |max_loss| of_state(&quarantined(max_loss, bounds()), &unfit(UnfitClass::OverCapacity));
    assert_eq!(over(None).verdict, Verdict::Xfail);
    assert_eq!(over(Some(0.9)).verdict, Verdict::Fail);
    let good = judge(&quarantined(None, bounds()), &window(7310.0, 20.0), &policy());
    assert_eq!(good.verdict, Verdict::Xpass);
    let doubtful = judge(&quarantined(None, bounds()), &window(6871.0, 900.0), &policy());
    assert_eq!(doubtful.verdict, Verdict::Xfail);
    let invalid = with(validity::samples(0, 1), window(6000.0, 20.0));
    assert_eq!(judge(&quarantined(None, bounds()), &invalid, &policy()).verdict, Verdict::Error);
}

#[test]
fn a_startup_is_judged_by_value() {
    let observations = crate::measure::observe::startup(Some(65.4), Some(1_600_000));
    let measurement = Measurement { observations, ..Measurement::default() };
    let bounds = vec![ceiling("ready-time", 60.0, 70), floor("kv-capacity", 1_600_000.0, 71)];
    let mut startup = cell(bounds);
    startup.kind = TestKind::Startup;
    let judgement = judge_cell(
        &startup,
        &CellState::Measured(Box::new(measurement)),
        &policy(),
        8,
        extendable(TestKind::Startup),
    );
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert_eq!(
        judgement.message.unwrap(),
        "ready-time 65.4 s > 60 (+9 % of 60, point, in this launch, suite.toml:70)"
    );
    assert_eq!(judgement.bounds[1].verdict, BoundVerdict::Clear);
}

#[test]
fn per_gpu_metrics_divide_by_the_gpus() {
    let judgement =
        judged(vec![floor("output-throughput-per-gpu", 900.0, 58)], &window(7310.0, 20.0));
    let estimate = judgement.bounds[0].estimate.unwrap();
    assert_eq!(estimate.value, 7310.0 / 8.0);
    assert!(estimate.lower.unwrap() < estimate.value);
    assert_eq!(judgement.verdict, Verdict::Pass);
}

#[test]
fn gaps_of_streams_in_one_batch_are_not_so_many_witnesses() {
    let mut measurement = window(7310.0, 20.0);
    let gaps: Vec<f64> = (0..2000).map(|i| 10.0 + f64::from(i % 100) / 100.0).collect();
    measurement.observations.insert(Base::ChunkGap, Observations::Samples(gaps.clone()));
    measurement.observations.insert(Base::Itl, Observations::Samples(gaps.repeat(2)));
    measurement.observations.insert(Base::ActiveRequests, Observations::Exact(19.9));
    let bounds = vec![ceiling("itl.p50", 50.0, 58), ceiling("chunk-gap.p50", 50.0, 59)];
    let judgement = judged(bounds, &measurement);
    assert_eq!(judgement.bounds[0].estimate.unwrap().n, 100);
    assert_eq!(judgement.bounds[1].estimate.unwrap().n, 100);
}

#[test]
fn a_lag_matters_only_where_it_could_turn_a_verdict() {
    let matters = |bounds: Vec<BoundRecord>, ms: u64| {
        let lag = Duration::from_millis(ms);
        lag_matters(&cell(bounds), &window(7310.0, 20.0), &policy(), 8, lag)
    };
    assert!(!matters(vec![], 1000));
    assert!(!matters(vec![floor("output-throughput", 7302.0, 58)], 20));
    assert!(!matters(vec![ceiling("ttft.p50", 1100.0, 60)], 20));
    assert!(matters(vec![ceiling("ttft.p50", 1010.0, 60)], 20));
}

#[test]
fn requests_that_lack_matter_unless_every_limit_is_far() {
    let matters = |bounds: Vec<BoundRecord>, share: f64| {
        let mut measurement = window(7310.0, 20.0);
        measurement.observations.insert(Base::E2eLatency, Observations::Samples(vec![2000.0; 30]));
        shortage_matters(&cell(bounds), &measurement, &policy(), 8, share)
    };
    // A figure that nothing is expected of is reported, and somebody relies on it.
    assert!(matters(vec![], 0.97));
    assert!(!matters(vec![floor("output-throughput", 3650.0, 58)], 0.97));
    assert!(matters(vec![floor("output-throughput", 7500.0, 58)], 0.97));
    // The first token of a queued request waits for others to end: by all that a request takes.
    assert!(!matters(vec![ceiling("ttft.p50", 1100.0, 60)], 0.97));
    assert!(matters(vec![ceiling("ttft.p50", 1010.0, 60)], 0.97));
    assert!(matters(vec![ceiling("ttft.p50", 1100.0, 60)], 0.9));
}

#[test]
fn an_absence_matters_where_a_clock_that_stood_still_says_something_else() {
    let with_gap = |longest: f64| {
        let mut measurement = window(6900.0, 20.0);
        let gaps = vec![20.0, 21.0, 22.0, longest];
        measurement.observations.insert(Base::ChunkGap, Observations::Samples(gaps));
        measurement
    };
    let matters = |bound: BoundRecord, still: &Measurement, frozen| {
        let cell = cell(vec![bound]);
        absence_matters(&cell, &with_gap(400.0), still, &policy(), 8, frozen)
    };
    let still = with_gap(60.0);
    assert!(matters(ceiling("chunk-gap.max", 100.0, 60), &still, false));
    assert!(!matters(ceiling("chunk-gap.max", 50.0, 60), &still, false));
    assert!(!matters(ceiling("chunk-gap.max", 500.0, 60), &still, false));
    let warn = BoundRecord { severity: Severity::Warn, ..ceiling("chunk-gap.max", 100.0, 60) };
    assert!(!matters(warn, &still, false));
    // A client that waits for a core loses no tokens; a machine that stands still does.
    let faster = window(7400.0, 20.0);
    assert!(!matters(floor("output-throughput", 7302.0, 58), &faster, false));
    assert!(matters(floor("output-throughput", 7302.0, 58), &faster, true));
}

#[test]
fn a_quarantine_with_a_greatest_loss_does_not_cover_what_gave_no_figure() {
    let degraded = |max_loss| {
        let cell = quarantined(max_loss, vec![ceiling("itl.p99", 50.0, 61)]);
        let measurement = with(validity::error_rate(128, 128, 0.0), window(0.0, 0.0));
        judge(&cell, &measurement, &policy()).verdict
    };
    assert_eq!(degraded(None), Verdict::Xfail);
    assert_eq!(degraded(Some(0.1)), Verdict::Fail);
}

#[test]
fn doubt_in_quarantine_is_expected_and_no_recovery() {
    let noisy = window(6871.0, 900.0);
    for inconclusive in [
        InconclusivePolicy::Warn,
        InconclusivePolicy::Pass,
        InconclusivePolicy::Point,
        InconclusivePolicy::Fail,
    ] {
        let policy = Policy { inconclusive, ..policy() };
        let covered = quarantined(Some(0.1), vec![floor("output-throughput", 7302.0, 58)]);
        assert_eq!(judge(&covered, &noisy, &policy).verdict, Verdict::Xfail, "{inconclusive:?}");
        let beyond = quarantined(Some(0.01), vec![floor("output-throughput", 7302.0, 58)]);
        assert_ne!(judge(&beyond, &noisy, &policy).verdict, Verdict::Xfail, "{inconclusive:?}");
    }
}

#[test]
fn times_per_token_are_judged_by_the_spread_of_the_batches() {
    let mut measurement = window(7310.0, 20.0);
    let observations = &mut measurement.observations;
    observations.insert(Base::Tpot, Observations::Samples(vec![10.0; 128]));
    let means = (0..10).map(|i| if i % 2 == 0 { 95.0 } else { 105.0 }).collect();
    observations.insert(
        Base::PerRequestThroughput,
        Observations::Batches { rate: 100.0, means, floor: 0.1 },
    );
    let estimate = |metric: &str| {
        judged(vec![ceiling(metric, 10.0, 60)], &measurement).bounds[0].estimate.unwrap()
    };
    // Over two looks: batches at .0298, percentiles at half of alpha.
    let half = |level: f64| {
        crate::measure::distribution::t_critical(level, 9.0) * 5.27046276694730 / 10f64.sqrt()
    };
    let upper = |level: f64| 1000.0 / (100.0 - half(level));
    assert!((estimate("tpot.mean").upper.unwrap() - upper(0.0298)).abs() < 1e-9);
    assert!((estimate("tpot.p50").upper.unwrap() - upper(0.025)).abs() < 1e-9);
    let verdict = |max| judged(vec![ceiling("tpot.p50", max, 60)], &measurement).verdict;
    assert_eq!(verdict(9.9), Verdict::Inconclusive);
    assert_eq!(verdict(9.0), Verdict::Fail);
    assert_eq!(verdict(10.1), Verdict::Pass);
}
