//! The forecast: how long the rest of a run takes, by what each of its parts was taken to last beforehand and how
//! long such parts then took. It counts and reckons, and decides no words.

use std::collections::HashMap;
use std::time::Duration;

use crate::measure::TestKind;

/// What the parts of a plan are taken to last before any of them has been timed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guess {
    /// One measurement of each cell.
    pub cells: Vec<Duration>,
    /// A start of each launch's engine.
    pub starts: Vec<Duration>,
}

/// Work of one kind: what it was taken to last, in seconds, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Work {
    guessed: f64,
    took: f64,
}

/// What is to come and what was, by kind.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    guess: Guess,
    /// Seconds of guessed work that is to come.
    left: HashMap<TestKind, f64>,
    done: HashMap<TestKind, Work>,
    /// The measurement under way.
    doing: Option<(TestKind, f64, Duration)>,
}

impl Forecast {
    /// A forecast out of a guess.
    pub(super) fn of(guess: Guess) -> Forecast {
        Forecast { guess, ..Forecast::default() }
    }

    /// What a measurement of a cell is taken to last, in seconds; without a guess all last the same.
    pub(super) fn weight(&self, cell: usize) -> f64 {
        match self.guess.cells.get(cell) {
            Some(guess) => guess.as_secs_f64(),
            None => 1.0,
        }
    }

    /// What a start is taken to last.
    pub(super) fn start(&self, launch: usize) -> Option<Duration> {
        self.guess.starts.get(launch).copied()
    }

    /// So much more work is to come; less, where it is negative.
    pub(super) fn add(&mut self, kind: TestKind, seconds: f64) {
        *self.left.entry(kind).or_default() += seconds;
    }

    /// A measurement begins.
    pub(super) fn begin(&mut self, kind: TestKind, cell: usize, now: Duration) {
        self.doing = Some((kind, self.weight(cell), now));
    }

    /// A measurement that was to come is over; `timed`: how long it took says something about others.
    pub(super) fn end(&mut self, kind: TestKind, cell: usize, timed: bool, now: Duration) {
        let weight = self.weight(cell);
        self.add(kind, -weight);
        if let Some((_, _, began)) = self.doing.take().filter(|_| timed) {
            let work = self.done.entry(kind).or_default();
            work.guessed += weight;
            work.took += now.saturating_sub(began).as_secs_f64();
        }
    }

    /// How many seconds one guessed second of such work takes: as it did before, else as other work did, else
    /// as guessed. Quick work of one kind promises nothing of another: a decode window is as long as it was
    /// declared, however quick the prefill. Nothing where there was no guess, or another clock, and nothing is
    /// timed yet.
    fn pace(&self, kind: TestKind, guessed: bool) -> Option<f64> {
        let of = |work: Work| (work.guessed > 0.0).then(|| work.took / work.guessed);
        let all = || {
            let sum = |of: fn(&Work) -> f64| self.done.values().map(of).sum();
            Work { guessed: sum(|work| work.guessed), took: sum(|work| work.took) }
        };
        let guess = (guessed && !self.guess.cells.is_empty()).then_some(1.0);
        let others = || of(all()).map(|pace| pace.max(guess.unwrap_or(0.0)));
        self.done.get(&kind).copied().and_then(of).or_else(others).or(guess)
    }

    /// How long all measurements take that are to come; `guessed`: if nothing was timed yet, the guess is told.
    pub(super) fn left(&self, guessed: bool, now: Duration) -> Option<Duration> {
        self.time(&self.left, guessed, now)
    }

    /// How long so much work takes, that under way among it.
    pub(super) fn time(
        &self,
        work: &HashMap<TestKind, f64>,
        guessed: bool,
        now: Duration,
    ) -> Option<Duration> {
        let mut seconds = 0.0;
        for (kind, left) in work.iter().filter(|(_, left)| **left > 1e-9) {
            seconds += left * self.pace(*kind, guessed)?;
        }
        if let Some((kind, weight, began)) = self.doing {
            // What takes longer than it should has nothing left, and takes nothing from the rest.
            let whole = weight * self.pace(kind, guessed)?;
            seconds -= now.saturating_sub(began).as_secs_f64().min(whole);
        }
        Duration::try_from_secs_f64(seconds.max(0.0)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_rest_is_reckoned_by_kind_and_counts_down() {
        use TestKind::{Decode, Prefill};
        let mut forecast =
            Forecast::of(Guess { cells: vec![S(10), S(10), S(30), S(30)], starts: vec![S(60)] });
        for (cell, kind) in [Prefill, Prefill, Decode, Decode].into_iter().enumerate() {
            forecast.add(kind, forecast.weight(cell));
        }
        assert_eq!(forecast.left(false, S(0)), None, "nothing is known");
        assert_eq!(forecast.left(true, S(0)), Some(S(80)), "as guessed");
        forecast.begin(Prefill, 0, S(100));
        assert_eq!(forecast.left(true, S(104)), Some(S(76)), "it counts down");
        assert_eq!(forecast.left(true, S(130)), Some(S(70)), "what is late is nearly over");
        forecast.end(Prefill, 0, true, S(120));
        assert_eq!(forecast.left(true, S(120)), Some(S(140)), "everything takes twice as long");
        forecast.begin(Prefill, 1, S(120));
        forecast.end(Prefill, 1, false, S(121));
        assert_eq!(forecast.left(true, S(120)), Some(S(120)), "what was skipped says nothing");
        forecast.begin(Decode, 2, S(200));
        forecast.end(Decode, 2, true, S(230));
        assert_eq!(forecast.left(true, S(230)), Some(S(30)), "decode is as guessed");
    }

    #[test]
    fn quick_prefill_promises_no_quick_decode() {
        use TestKind::{Decode, Prefill};
        let mut forecast = Forecast::of(Guess { cells: vec![S(10), S(30)], starts: vec![S(60)] });
        forecast.add(Prefill, 10.0);
        forecast.add(Decode, 30.0);
        forecast.begin(Prefill, 0, S(0));
        forecast.end(Prefill, 0, true, S(1));
        assert_eq!(forecast.left(true, S(1)), Some(S(30)));
        assert_eq!(forecast.left(false, S(1)), Some(S(3)), "in virtual time everything is quick");
    }

    #[test]
    fn without_a_guess_all_cells_last_the_same() {
        let mut forecast = Forecast::default();
        forecast.add(TestKind::Decode, 3.0);
        assert_eq!(forecast.left(true, S(0)), None);
        forecast.begin(TestKind::Decode, 0, S(0));
        forecast.end(TestKind::Decode, 0, true, S(7));
        assert_eq!(forecast.left(true, S(7)), Some(S(14)));
    }
}
