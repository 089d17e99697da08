//! Absences: stretches in which this program did not run, be it stopped, or the whole machine.
//!
//! Nothing that came meanwhile has a stamp of its own, so a gap across an absence may be ours as well
//! as the engine's. [`Absences::cut`] tells the same story on a clock that stood still in them: what
//! is judged otherwise then is not the engine's. Whether that is so is asked in `record::judgement`.

use std::time::Duration;

use crate::clock::Stamp;
use crate::load::Trace;

/// Absences in the order of their time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Absences(Vec<Absence>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Absence {
    from: Stamp,
    to: Stamp,
    /// Length of all before it.
    before: Duration,
}

impl Absences {
    /// Adds one that begins behind all others.
    pub fn add(&mut self, from: Stamp, to: Stamp) {
        let before = self.total();
        self.0.push(Absence { from, to, before });
    }

    /// The longest one; zero of none.
    pub fn longest(&self) -> Duration {
        self.0.iter().map(|it| it.to.since(it.from)).max().unwrap_or_default()
    }

    fn total(&self) -> Duration {
        self.0.last().map_or(Duration::ZERO, |last| last.before + last.to.since(last.from))
    }

    /// How long this program was away before `at`.
    fn until(&self, at: Stamp) -> Duration {
        let begun = self.0.partition_point(|it| it.from < at);
        self.0[..begun].last().map_or(Duration::ZERO, |it| it.before + at.min(it.to).since(it.from))
    }

    /// How much of a stretch this program was there.
    pub fn present(&self, from: Stamp, to: Stamp) -> Duration {
        to.since(from).saturating_sub(self.until(to).saturating_sub(self.until(from)))
    }

    /// A stamp of the clock that stood still.
    pub fn still(&self, at: Stamp) -> Stamp {
        Stamp(at.0 - u64::try_from(self.until(at).as_nanos()).unwrap_or(u64::MAX).min(at.0))
    }

    /// Gives a request the stamps of the clock that stood still.
    pub fn cut(&self, trace: &mut Trace) {
        for at in [&mut trace.sent, &mut trace.ended] {
            *at = self.still(*at);
        }
        for event in &mut trace.events {
            event.at = self.still(event.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(at: u64) -> Stamp {
        Stamp(at * 1_000_000)
    }

    #[test]
    fn a_clock_that_stood_still_has_no_absences() {
        let mut away = Absences::default();
        assert_eq!((away.longest(), away.still(ms(70))), (Duration::ZERO, ms(70)));
        away.add(ms(100), ms(130));
        away.add(ms(200), ms(250));
        let still = [50, 100, 115, 130, 150, 210, 250, 300].map(|at| away.still(ms(at)));
        assert_eq!(still, [50, 100, 100, 100, 120, 170, 170, 220].map(ms));
        assert_eq!(away.longest(), Duration::from_millis(50));
    }

    #[test]
    fn what_is_left_of_a_gap_is_the_time_in_which_somebody_looked() {
        let mut away = Absences::default();
        away.add(ms(100), ms(2500));
        let left = |from, to| away.present(ms(from), ms(to)).as_millis();
        assert_eq!((left(90, 2510), left(0, 90), left(200, 300)), (20, 90, 0));
        assert_eq!(left(0, 5000), 2600);
    }
}
