//! A calibration in words.

use super::*;
use crate::record::calibration::calibration;
use crate::record::calibration::tests::{calibrated, floor, ratio, values};

fn told() -> Calibration {
    let mut launches = values(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 101.5]);
    // Batches that rise and stay: correlated.
    launches.push(vec![90.0, 90.2, 90.1, 90.0, 110.0, 110.1, 110.3, 110.0]);
    let bounds =
        vec![floor(100.0, 0.0), floor(90.0, 0.05), ratio(0.97, None), ratio(0.97, Some(true))];
    let (record, asked) = calibrated(&launches, 4, bounds);
    let mut told = calibration(&record, &asked);
    told.uncounted.push("decode concurrency=2: timed \u{1b}[1mout".into());
    told
}

#[test]
fn tables_say_noise_and_limits_and_below_them_what_is_odd() {
    insta::assert_snapshot!(text(&told()));
}

#[test]
fn batches_that_are_too_short_and_limits_that_flake_are_named() {
    let mut told = told();
    told.lines[0].lag = Some(0.31);
    told.gates[0].failed = 2;
    told.gates[2].failed = 0;
    let odd = odd(&told);
    assert_eq!(odd.len(), 3, "{odd:?}");
    assert!(odd[0].starts_with("decode concurrency=1 output-throughput ≥ 100 (suite.toml:20) fails in 2 of 8 unchanged launches: it is a flaky gate"), "{odd:?}");
    assert!(
        odd[1].contains(
            "successive batches are correlated by 0.31 (more than 0.2): they are too short"
        ),
        "{odd:?}"
    );
    assert_eq!(odd[2], "not calibrated: decode concurrency=2: timed out");
    told.lines[0].lag = Some(0.19);
    assert_eq!(super::odd(&told).len(), 2);
    assert!(sentence(&told).ends_with("; 1 limit failed although nothing changed"));
}

#[test]
fn programs_get_all_of_it() {
    let value: Value = serde_json::from_str(&json(&told())).unwrap();
    assert_eq!(value["limits"].as_array().unwrap().len(), 4);
    assert_eq!(value["limits"][3]["judges"], "pairs");
    assert_eq!(value["noise"][0]["df"], 7);
}
