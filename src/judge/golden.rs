//! Golden values of the statistics, read for the tests.

use serde_json::Value;

/// The cases of a section.
pub fn cases(section: &str) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(include_str!("../../tests/golden/statistics.json")).unwrap();
    all[section]["cases"].as_array().unwrap().clone()
}

/// A number of a case.
pub fn number(case: &Value, key: &str) -> f64 {
    case[key].as_f64().unwrap()
}

/// Numbers of a case.
pub fn numbers(case: &Value, key: &str) -> Vec<f64> {
    case[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Asserts a relative agreement.
#[track_caller]
pub fn close(got: f64, want: f64, within: f64) {
    assert!((got - want).abs() <= within * want.abs(), "{got} is not {want}");
}
