//! The lattice: what the bounds and checks of a cell come to together.
//!
//! An error is never a failure, and what could not be judged never passes. Policies and messages
//! are the record's business.

use super::{BoundVerdict, Severity, Verdict};
use crate::measure::{Check, Fault};

/// What the checks of a cell found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The measurement does not count.
    pub invalid: bool,
    /// The engine under test misbehaved.
    pub degraded: bool,
    /// The rate drifts.
    pub drifting: bool,
}

impl Faults {
    /// The worst of every kind.
    pub fn of(checks: &[Check]) -> Faults {
        let any = |fault| checks.iter().any(|check| check.fault == Some(fault));
        Faults {
            invalid: any(Fault::Invalid),
            degraded: any(Fault::Degraded),
            drifting: any(Fault::Drifting),
        }
    }
}

/// The verdict on a cell: invalid, then degraded or a failing bound, then a bound without data,
/// then inconclusive or drifting, then pass; `Measured` where no bound of severity `fail` stands.
pub fn cell(faults: Faults, bounds: &[(Severity, BoundVerdict)]) -> Verdict {
    let binding = bounds.iter().filter(|(severity, _)| match severity {
        Severity::Fail => true,
        Severity::Warn | Severity::Report => false,
    });
    let worst = binding.map(|(_, verdict)| match verdict {
        BoundVerdict::Clear | BoundVerdict::Close => Verdict::Pass,
        BoundVerdict::Inconclusive => Verdict::Inconclusive,
        BoundVerdict::NoData => Verdict::Error,
        BoundVerdict::Fail => Verdict::Fail,
    });
    let weight = |verdict: &Verdict| {
        [Verdict::Pass, Verdict::Inconclusive, Verdict::Error, Verdict::Fail]
            .iter()
            .position(|known| known == verdict)
    };
    if faults.invalid {
        return Verdict::Error;
    }
    if faults.degraded {
        return Verdict::Fail;
    }
    match worst.max_by_key(weight) {
        Some(Verdict::Pass) if faults.drifting => Verdict::Inconclusive,
        Some(verdict) => verdict,
        None => Verdict::Measured,
    }
}

/// A verdict under quarantine: failures that it covers are expected, passes are told. `covered`
/// says that the loss is not beyond `max-loss`. An error stays one.
pub fn quarantined(verdict: Verdict, covered: bool) -> Verdict {
    match verdict {
        Verdict::Fail | Verdict::Inconclusive if covered => Verdict::Xfail,
        Verdict::Pass => Verdict::Xpass,
        Verdict::Fail
        | Verdict::Inconclusive
        | Verdict::Error
        | Verdict::Measured
        | Verdict::Skip
        | Verdict::Xfail
        | Verdict::Xpass => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BoundVerdict::{Clear, Close, Fail, Inconclusive, NoData};
    use proptest::prelude::*;

    fn judged(bounds: &[BoundVerdict]) -> Verdict {
        let bounds: Vec<_> = bounds.iter().map(|verdict| (Severity::Fail, *verdict)).collect();
        cell(Faults::default(), &bounds)
    }

    #[test]
    fn bounds_alone() {
        assert_eq!(judged(&[]), Verdict::Measured);
        assert_eq!(judged(&[Clear, Close]), Verdict::Pass);
        assert_eq!(judged(&[Clear, Inconclusive]), Verdict::Inconclusive);
        assert_eq!(judged(&[Inconclusive, NoData]), Verdict::Error);
        assert_eq!(judged(&[NoData, Fail, Inconclusive]), Verdict::Fail);
    }

    #[test]
    fn faults_come_before_bounds() {
        let bounds = [(Severity::Fail, Fail)];
        let invalid = Faults { invalid: true, degraded: true, drifting: true };
        assert_eq!(cell(invalid, &bounds), Verdict::Error);
        assert_eq!(cell(invalid, &[]), Verdict::Error);
        let degraded = Faults { degraded: true, ..Faults::default() };
        assert_eq!(cell(degraded, &[]), Verdict::Fail);
        assert_eq!(cell(degraded, &[(Severity::Fail, Clear)]), Verdict::Fail);
    }

    #[test]
    fn drift_takes_a_pass_away_and_nothing_else() {
        let drifting = Faults { drifting: true, ..Faults::default() };
        assert_eq!(cell(drifting, &[(Severity::Fail, Clear)]), Verdict::Inconclusive);
        assert_eq!(cell(drifting, &[(Severity::Fail, Fail)]), Verdict::Fail);
        assert_eq!(cell(drifting, &[]), Verdict::Measured);
    }

    #[test]
    fn a_quarantine_covers_failures_and_never_an_error() {
        assert_eq!(quarantined(Verdict::Fail, true), Verdict::Xfail);
        assert_eq!(quarantined(Verdict::Inconclusive, true), Verdict::Xfail);
        assert_eq!(quarantined(Verdict::Fail, false), Verdict::Fail);
        assert_eq!(quarantined(Verdict::Pass, true), Verdict::Xpass);
        assert_eq!(quarantined(Verdict::Error, true), Verdict::Error);
        assert_eq!(quarantined(Verdict::Skip, true), Verdict::Skip);
        assert_eq!(quarantined(Verdict::Measured, true), Verdict::Measured);
    }

    fn verdicts() -> impl Strategy<Value = BoundVerdict> {
        prop::sample::select(vec![Clear, Close, Inconclusive, Fail, NoData])
    }

    proptest! {
        #[test]
        fn the_order_of_bounds_is_nothing(
            mut bounds in prop::collection::vec(verdicts(), 0..6)
        ) {
            let verdict = judged(&bounds);
            bounds.reverse();
            prop_assert_eq!(verdict, judged(&bounds));
            bounds.extend(bounds.clone());
            prop_assert_eq!(verdict, judged(&bounds));
        }

        #[test]
        fn another_bound_never_makes_a_failure_good(
            bounds in prop::collection::vec(verdicts(), 1..6), more in verdicts()
        ) {
            let mut longer = bounds.clone();
            longer.push(more);
            if judged(&longer) == Verdict::Pass {
                prop_assert_eq!(judged(&bounds), Verdict::Pass);
            }
            if judged(&bounds) == Verdict::Fail {
                prop_assert_eq!(judged(&longer), Verdict::Fail);
            }
        }

        #[test]
        fn warnings_and_reports_change_nothing(
            bounds in prop::collection::vec(verdicts(), 0..6), other in verdicts(), warn in any::<bool>()
        ) {
            let mut all: Vec<_> = bounds.iter().map(|verdict| (Severity::Fail, *verdict)).collect();
            all.push((if warn { Severity::Warn } else { Severity::Report }, other));
            prop_assert_eq!(cell(Faults::default(), &all), judged(&bounds));
        }

        #[test]
        fn what_could_not_be_judged_never_passes(
            bounds in prop::collection::vec(verdicts(), 0..6), degraded in any::<bool>()
        ) {
            let mut bounds = bounds;
            bounds.push(NoData);
            let all: Vec<_> = bounds.iter().map(|verdict| (Severity::Fail, *verdict)).collect();
            let verdict = cell(Faults { degraded, ..Faults::default() }, &all);
            prop_assert!(matches!(verdict, Verdict::Error | Verdict::Fail));
        }
    }
}
