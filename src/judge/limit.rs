//! One bound against one estimate.
//!
//! A loss must be both material and real to fail: the estimate beyond the *limit*, and the whole
//! interval on the bad side of the *target*. With nothing changed a fail thus has probability alpha
//! at most, whatever the noise, and a limit with room costs no power.

use super::{Bound, BoundVerdict, Estimate, Method, Side};

impl Side {
    /// Turns values so that more is better.
    fn upright(self, value: f64) -> f64 {
        match self {
            Side::Min => value,
            Side::Max => -value,
        }
    }
}

/// Whether a value alone is beyond the limit.
pub fn beyond(value: f64, bound: &Bound) -> bool {
    bound.side.upright(value) < bound.side.upright(bound.limit)
}

/// What a bound says of an estimate.
///
/// Without an interval a value within the limit is close, and one beyond it inconclusive: nothing
/// proves the loss. Only an estimate that is a point by nature fails by its value.
pub fn judge(estimate: &Estimate, bound: &Bound) -> BoundVerdict {
    if !estimate.value.is_finite() {
        return BoundVerdict::NoData;
    }
    let (worst, best) = match bound.side {
        Side::Min => (estimate.lower, estimate.upper),
        Side::Max => (estimate.upper, estimate.lower),
    };
    if !beyond(estimate.value, bound) {
        return match worst {
            Some(worst) if !beyond(worst, bound) => BoundVerdict::Clear,
            Some(_) | None => BoundVerdict::Close,
        };
    }
    let target = bound.side.upright(bound.target);
    match best {
        Some(best) if bound.side.upright(best) < target => BoundVerdict::Fail,
        None if estimate.method == Method::Point => BoundVerdict::Fail,
        Some(_) | None => BoundVerdict::Inconclusive,
    }
}

/// Whether a ratio is as much better than no change as the limit lets it be worse, and surely better.
pub fn gained(ratio: &Estimate, bound: &Bound) -> bool {
    let worst = match bound.side {
        Side::Min => ratio.lower,
        Side::Max => ratio.upper,
    };
    let mirror = Bound { limit: 1.0 / bound.limit, ..*bound };
    let target = bound.side.upright(bound.target);
    !beyond(ratio.value, &mirror)
        && ratio.value != bound.target
        && worst.is_some_and(|worst| bound.side.upright(worst) > target)
}

/// The loss against the target as a fraction of it, negative for a gain; `None` where the target is
/// zero.
pub fn loss(value: f64, bound: &Bound) -> Option<f64> {
    let lost = bound.side.upright(bound.target) - bound.side.upright(value);
    (bound.target != 0.0).then(|| lost / bound.target.abs())
}

/// Room to the limit as a fraction of it, negative beyond it: by this the bounds of a cell are
/// ranked. A limit of zero counts by absolute room.
pub fn room(value: f64, bound: &Bound) -> f64 {
    let room = bound.side.upright(value) - bound.side.upright(bound.limit);
    if bound.limit == 0.0 { room } else { room / bound.limit.abs() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn estimate(value: f64, half: f64) -> Estimate {
        Estimate {
            value,
            lower: Some(value - half),
            upper: Some(value + half),
            n: 10,
            method: Method::BatchMeans,
        }
    }

    /// Target 100, 5 % of slack.
    const FLOOR: Bound = Bound { side: Side::Min, target: 100.0, limit: 95.0 };
    const CEILING: Bound = Bound { side: Side::Max, target: 100.0, limit: 105.0 };

    #[test]
    fn a_loss_fails_only_when_material_and_real() {
        assert_eq!(judge(&estimate(94.0, 3.0), &FLOOR), BoundVerdict::Fail);
        assert_eq!(judge(&estimate(94.0, 7.0), &FLOOR), BoundVerdict::Inconclusive);
        assert_eq!(judge(&estimate(96.0, 0.5), &FLOOR), BoundVerdict::Clear);
        assert_eq!(judge(&estimate(96.0, 2.0), &FLOOR), BoundVerdict::Close);
        assert_eq!(judge(&estimate(106.0, 3.0), &CEILING), BoundVerdict::Fail);
        assert_eq!(judge(&estimate(106.0, 7.0), &CEILING), BoundVerdict::Inconclusive);
        assert_eq!(judge(&estimate(104.0, 0.5), &CEILING), BoundVerdict::Clear);
        assert_eq!(judge(&estimate(104.0, 2.0), &CEILING), BoundVerdict::Close);
    }

    #[test]
    fn exactly_at_the_limit_is_within_it() {
        assert_eq!(judge(&estimate(95.0, 0.0), &FLOOR), BoundVerdict::Clear);
        assert_eq!(judge(&estimate(105.0, 0.0), &CEILING), BoundVerdict::Clear);
        // An interval that still touches the target is not wholly on its bad side.
        assert_eq!(judge(&estimate(94.0, 6.0), &FLOOR), BoundVerdict::Inconclusive);
        assert_eq!(judge(&estimate(106.0, 6.0), &CEILING), BoundVerdict::Inconclusive);
    }

    #[test]
    fn a_point_is_judged_by_value_and_a_bare_sample_is_not() {
        let mut bare = Estimate { lower: None, upper: None, ..estimate(94.0, 0.0) };
        assert_eq!(judge(&bare, &FLOOR), BoundVerdict::Inconclusive);
        bare.method = Method::Point;
        assert_eq!(judge(&bare, &FLOOR), BoundVerdict::Fail);
        bare.value = 96.0;
        assert_eq!(judge(&bare, &FLOOR), BoundVerdict::Close);
        bare.value = f64::NAN;
        assert_eq!(judge(&bare, &FLOOR), BoundVerdict::NoData);
    }

    #[test]
    fn a_gain_counts_as_a_loss_does() {
        let floor = Bound { side: Side::Min, target: 1.0, limit: 0.95 };
        assert!(gained(&estimate(1.06, 0.05), &floor));
        assert!(!gained(&estimate(1.06, 0.07), &floor), "not surely");
        assert!(!gained(&estimate(1.04, 0.01), &floor), "not so much");
        let ceiling = Bound { side: Side::Max, target: 1.0, limit: 1.05 };
        assert!(gained(&estimate(0.94, 0.05), &ceiling));
        assert!(!gained(&estimate(1.06, 0.01), &ceiling));
        assert!(!gained(&estimate(1.0, 0.0), &Bound { limit: 1.0, ..floor }));
    }

    #[test]
    fn losses_count_against_the_target_and_room_against_the_limit() {
        assert_eq!(loss(94.0, &FLOOR), Some(0.06));
        assert_eq!(loss(106.0, &CEILING), Some(0.06));
        assert_eq!(room(95.0, &FLOOR), 0.0);
        assert!(room(94.0, &FLOOR) < 0.0 && room(106.0, &CEILING) < 0.0);
    }

    fn rank(verdict: BoundVerdict) -> u32 {
        match verdict {
            BoundVerdict::Clear => 0,
            BoundVerdict::Close => 1,
            BoundVerdict::Inconclusive => 2,
            BoundVerdict::Fail => 3,
            BoundVerdict::NoData => 4,
        }
    }

    proptest! {
        #[test]
        fn a_worse_estimate_never_gets_a_better_verdict(
            value in 50.0f64..150.0, worse in 0.0f64..50.0, half in 0.0f64..30.0,
            target in 80.0f64..120.0, slack in 0.0f64..0.2, max in any::<bool>(), point in any::<bool>()
        ) {
            let (side, sign) = if max { (Side::Max, -1.0) } else { (Side::Min, 1.0) };
            let bound = Bound { side, target, limit: target * (1.0 - sign * slack) };
            let of = |value: f64| {
                let mut made = estimate(value, half);
                if point {
                    made = Estimate { lower: None, upper: None, method: Method::Point, ..made };
                }
                rank(judge(&made, &bound))
            };
            prop_assert!(of(value) <= of(value - sign * worse));
        }

        #[test]
        fn a_floor_and_its_mirrored_ceiling_agree(
            value in -50.0f64..50.0, half in 0.0f64..30.0, target in -40.0f64..40.0, slack in 0.0f64..10.0
        ) {
            let floor = Bound { side: Side::Min, target, limit: target - slack };
            let ceiling = Bound { side: Side::Max, target: -target, limit: -target + slack };
            prop_assert_eq!(
                judge(&estimate(value, half), &floor),
                judge(&estimate(-value, half), &ceiling)
            );
        }

        #[test]
        fn more_noise_never_proves_more(
            value in 50.0f64..150.0, half in 0.0f64..30.0, more in 0.0f64..30.0
        ) {
            let (quiet, noisy) = (judge(&estimate(value, half), &FLOOR), judge(&estimate(value, half + more), &FLOOR));
            prop_assert!(noisy != BoundVerdict::Fail || quiet == BoundVerdict::Fail);
            prop_assert!(noisy != BoundVerdict::Clear || quiet == BoundVerdict::Clear);
        }
    }
}
