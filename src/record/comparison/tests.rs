//! Ratios of two sides, as examples.

use super::*;

fn bounds(a: &[f64], b: &[f64], noise: Option<Noise>) -> [f64; 3] {
    let found = estimate((a, b), None, noise, ALPHA).unwrap();
    [found.value, found.lower.unwrap(), found.upper.unwrap()]
}

#[test]
fn which_side_has_the_only_launch_makes_no_difference() {
    let several = [100.0, 102.0, 99.0];
    let [ratio, low, high] = bounds(&several, &[90.0], None);
    let [inverse, inverse_low, inverse_high] = bounds(&[90.0], &several, None);
    for (one, other) in [(ratio, inverse), (low, inverse_high), (high, inverse_low)] {
        assert!((one * other - 1.0).abs() < 1e-12, "{one} {other}");
    }
    assert!(low < ratio && ratio < high && high < 1.0, "{low} {ratio} {high}");
}

#[test]
fn one_launch_each_has_an_interval_only_where_a_calibration_tells_one() {
    let why = estimate((&[100.0], &[90.0]), None, None, ALPHA).unwrap_err();
    assert_eq!(why.to_string(), "one launch each, no interval");
    let noise = Noise { sd: 0.01, df: f64::INFINITY };
    let [ratio, low, high] = bounds(&[100.0], &[90.0], Some(noise));
    // 1.645 standard errors of the logarithm, each side with its own.
    let half = 1.644_853_626_951_472_7 * 0.01 * 2f64.sqrt();
    assert!((ratio - 0.9).abs() < 1e-12);
    assert!((low / ratio - (-half).exp()).abs() < 1e-9 && (high / ratio - half.exp()).abs() < 1e-9);
    let why = estimate((&[100.0, 101.0], &[0.0]), None, None, ALPHA).unwrap_err();
    assert!(why.to_string().starts_with("B has a value of 0"), "{why}");
}

#[test]
fn better_depends_on_the_metric() {
    let of = |ratio, interval| {
        [Direction::Higher, Direction::Lower].map(|better| standing(ratio, interval, better))
    };
    use Standing::*;
    assert_eq!(of(Some(0.9), Some([0.85, 0.95])), [Worse, Better]);
    assert_eq!(of(Some(1.1), Some([1.05, 1.15])), [Better, Worse]);
    assert_eq!(of(Some(0.9), Some([0.7, 1.1])), [WithinNoise, WithinNoise]);
    assert_eq!(of(Some(0.9), None), [WorseUnproven, BetterUnproven]);
    assert_eq!(of(Some(1.0), None), [Same, Same]);
    assert_eq!(of(None, None), [Unknown, Unknown]);
}
