//! Ratios to recorded runs, as examples.

use super::*;
use crate::record::run_record::RelativeRecord;

/// At least 0.97 of five runs about 7302 tok/s whose logarithms have a standard deviation of 0.79 %.
fn ratio(comparisons: u64) -> BoundRecord {
    let runs = [-0.01f64, -0.005, 0.0, 0.005, 0.01].map(|log| 7302.0 * log.exp());
    let relative = RelativeRecord {
        variant: None,
        file: "b.jsonl".into(),
        git: None,
        runs: runs.to_vec(),
        comparisons,
        halved: false,
        recorded: false,
        sees: None,
    };
    BoundRecord {
        bound: Some(Bound { side: Side::Min, target: 1.0, limit: 0.97 }),
        relative: Some(relative),
        slack: 0.0,
        ..floor("output-throughput", 1.0, 58)
    }
}

#[test]
fn a_loss_fails_by_the_noise_of_the_recorded_runs() {
    let judgement = judged(vec![ratio(1)], &window(7000.0, 20.0));
    assert_eq!(judgement.verdict, Verdict::Fail);
    // t of 4 degrees at .05 is 2.1318, the error 0.00791 × √1.2: 0.0185 to either side of ln 0.9586.
    assert_eq!(
        judgement.message.unwrap(),
        "output-throughput 7 000 tok/s is 0.959 of the baseline's 7 302 [0.941, 0.977] < 0.97 \
         (5 runs, b.jsonl, suite.toml:58)"
    );
    let estimate = judgement.bounds[0].estimate.unwrap();
    assert!((estimate.upper.unwrap() - 0.976_504_618_1).abs() < 1e-9, "{estimate:?}");
    // However quiet the window is, it is one launch.
    assert_eq!(judged(vec![ratio(1)], &window(7000.0, 0.1)).bounds[0].estimate, Some(estimate));
}

#[test]
fn many_comparisons_share_the_level_and_a_longer_window_would_not_help() {
    let window = window(7000.0, 20.0);
    let judgement = judged(vec![ratio(36)], &window);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    let message = judgement.message.unwrap();
    assert!(message.contains("within their noise, one of 36 comparisons"), "{message}");
    assert!(extension(&cell(vec![ratio(36)]), &window, &policy(), 8).is_empty());
    let point = Policy { inconclusive: InconclusivePolicy::Point, ..policy() };
    let judgement = judge(&cell(vec![ratio(36)]), &window, &point);
    assert_eq!(judgement.verdict, Verdict::Fail);
    assert!(judgement.message.unwrap().contains("is 0.959 of the baseline's 7 302"));
}

#[test]
fn equal_better_and_exactly_at_the_limit_pass() {
    // The geometric mean of the runs is 7302.
    for rate in [7302.0, 7302.0 * 1.3, 7302.0 * 0.97 * (1.0 + 1e-12)] {
        assert_eq!(judged(vec![ratio(1)], &window(rate, 20.0)).verdict, Verdict::Pass, "{rate}");
    }
    let better = judged(vec![ratio(1)], &window(7302.0 * 1.3, 20.0));
    assert!(better.warnings[0].starts_with("better than its baseline: output-throughput 9 492.6"));
    assert!(judged(vec![ratio(1)], &window(7400.0, 20.0)).warnings.is_empty());
}

#[test]
fn a_lag_turns_a_ratio_as_it_turns_its_figure() {
    let near = cell(vec![ratio(1)]);
    let measured = window(7302.0 * 0.971, 20.0);
    // 2 × 50 ms of 30 s are a third of a percent, and 0.971 is a tenth from its limit.
    let matters = |ms| lag_matters(&near, &measured, &policy(), 8, Duration::from_millis(ms));
    assert_eq!((matters(50), matters(5)), (true, false));
}

#[test]
fn ratios_per_gpu_compare_what_one_gpu_does() {
    let mut bound = ratio(1);
    bound.metric.per_gpu = true;
    if let Some(relative) = &mut bound.relative {
        relative.runs.iter_mut().for_each(|run| *run /= 8.0);
    }
    let judgement = judged(vec![bound], &window(7302.0, 20.0));
    assert_eq!(judgement.verdict, Verdict::Pass);
    let message = judgement.message.unwrap();
    assert!(message.contains("912.8 tok/s is 1.000 of the baseline's 912.7"), "{message}");
}

#[test]
fn what_the_baseline_lacks_is_shown_and_fails_nothing() {
    let mut bound = ratio(1);
    bound.severity = Severity::Report;
    if let Some(relative) = &mut bound.relative {
        relative.runs.clear();
    }
    let judgement = judged(vec![bound], &window(10.0, 1.0));
    assert_eq!(judgement.verdict, Verdict::Measured);
    assert_eq!(
        judgement.bounds[0].message,
        "output-throughput ≥ 0.97 of the baseline: no data, not judged: the baseline has none of it (suite.toml:58)"
    );
}
