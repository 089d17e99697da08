//! Halting: why a run must end before its last cell, and how soon, known to everyone who waits.
//!
//! The first cause stands. Each signal makes the end come sooner: the first leaves the engine a few seconds,
//! the second none, the third waits for nothing.

use tokio::sync::watch;

/// Why a run ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// SIGINT, SIGTERM or SIGHUP, by number.
    Signal(i32),
    /// Whoever started this program, and would have waited for it, is gone.
    Orphaned,
    /// The time limit.
    TimeLimit,
    /// A signal, by number, with which batch systems say that time is nearly up.
    TimeUp(i32),
    /// So many cells failed as `--max-fail` allows.
    MaxFail,
    /// The results can't be written.
    Unwritable,
    /// This program broke.
    Broken,
}

impl Cause {
    /// Whether somebody asks who may not wait long, and less each time he asks.
    fn is_pressing(self) -> bool {
        match self {
            Cause::Signal(_) | Cause::Orphaned => true,
            Cause::TimeLimit
            | Cause::TimeUp(_)
            | Cause::MaxFail
            | Cause::Unwritable
            | Cause::Broken => false,
        }
    }

    /// Whether time is up.
    fn is_late(self) -> bool {
        match self {
            Cause::TimeLimit | Cause::TimeUp(_) => true,
            Cause::Signal(_)
            | Cause::Orphaned
            | Cause::MaxFail
            | Cause::Unwritable
            | Cause::Broken => false,
        }
    }
}

/// How soon the end is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// In the time that the suite gives its engine.
    Orderly,
    /// In seconds.
    Soon,
    /// By force.
    Now,
    /// Without waiting for anything: supervisors end what is left.
    Leave,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    cause: Option<Cause>,
    /// How often somebody asked who may not wait long.
    pressed: u8,
    /// Whether time is up.
    late: bool,
}

impl State {
    fn haste(self) -> Haste {
        match self.pressed {
            0 if !self.late => Haste::Orderly,
            0 | 1 => Haste::Soon,
            2 => Haste::Now,
            3.. => Haste::Leave,
        }
    }
}

/// The side that asks for the end.
#[derive(Debug, Clone)]
pub struct Halter(watch::Sender<State>);

/// The side that waits for it.
#[derive(Debug, Clone)]
pub struct Halt(watch::Receiver<State>);

impl Default for Halter {
    fn default() -> Halter {
        Halter(watch::Sender::new(State::default()))
    }
}

impl Halter {
    /// Asks for the end. The first cause stands; signals after it make the end come sooner.
    pub fn halt(&self, cause: Cause) {
        self.0.send_modify(|state| {
            state.cause.get_or_insert(cause);
            state.pressed = state.pressed.saturating_add(u8::from(cause.is_pressing()));
            state.late |= cause.is_late();
        });
    }

    /// One more who waits for it.
    pub fn waiter(&self) -> Halt {
        Halt(self.0.subscribe())
    }
}

impl Halt {
    /// The cause, if the end has been asked for.
    pub fn cause(&self) -> Option<Cause> {
        self.0.borrow().cause
    }

    /// How soon the end is to come, once it is asked for; until then an engine's end is orderly.
    pub fn haste(&self) -> Haste {
        self.0.borrow().haste()
    }

    /// Waits until the end is asked for; for ever if it never is.
    pub async fn wait(&mut self) -> Cause {
        loop {
            if let Some(cause) = self.cause() {
                return cause;
            }
            self.change().await;
        }
    }

    /// Waits until the end is to come sooner than so; for ever if it never is.
    pub async fn sooner(&mut self, than: Haste) {
        while self.haste() <= than {
            self.change().await;
        }
    }

    async fn change(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cause that stands, and how soon the end comes.
    fn after(causes: &[Cause]) -> (Option<Cause>, Haste) {
        let halter = Halter::default();
        let halt = halter.waiter();
        causes.iter().for_each(|cause| halter.halt(*cause));
        (halt.cause(), halt.haste())
    }

    #[test]
    fn the_first_cause_stands_and_each_signal_hurries() {
        let (int, term) = (Cause::Signal(2), Cause::Signal(15));
        assert_eq!(after(&[]), (None, Haste::Orderly));
        assert_eq!(after(&[int]), (Some(int), Haste::Soon));
        assert_eq!(after(&[int, term]), (Some(int), Haste::Now));
        assert_eq!(after(&[int, term, term]), (Some(int), Haste::Leave));
        assert_eq!(after(&[int; 300]), (Some(int), Haste::Leave));
    }

    #[test]
    fn failures_leave_an_engine_its_time_and_a_limit_of_time_does_not() {
        for (cause, haste) in [
            (Cause::MaxFail, Haste::Orderly),
            (Cause::Unwritable, Haste::Orderly),
            (Cause::TimeLimit, Haste::Soon),
            (Cause::TimeUp(10), Haste::Soon),
            (Cause::Orphaned, Haste::Soon),
        ] {
            assert_eq!(after(&[cause]), (Some(cause), haste));
        }
        let (failed, signal) = (Cause::MaxFail, Cause::Signal(15));
        assert_eq!(after(&[failed, Cause::Unwritable]), (Some(failed), Haste::Orderly));
        assert_eq!(after(&[failed, signal]), (Some(failed), Haste::Soon));
        assert_eq!(after(&[failed, Cause::TimeLimit]), (Some(failed), Haste::Soon));
        assert_eq!(after(&[failed, signal, signal]), (Some(failed), Haste::Now));
    }
}
