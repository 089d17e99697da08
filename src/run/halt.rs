//! Halting: why a run must end before its last cell, known to everyone who waits.
//!
//! The first cause stands; a second signal only hurries what is already being ended.

use tokio::sync::watch;

/// Why a run ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// SIGINT, SIGTERM or SIGHUP, by number.
    Signal(i32),
    /// The time limit.
    TimeLimit,
    /// So many cells failed as `--max-fail` allows.
    MaxFail,
    /// The results can't be written.
    Unwritable,
    /// This program broke.
    Broken,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    cause: Option<Cause>,
    hurry: bool,
}

/// The side that asks for the end.
#[derive(Debug, Clone)]
pub struct Halter(watch::Sender<State>);

/// The side that waits for it.
#[derive(Debug, Clone)]
pub struct Halt(watch::Receiver<State>);

/// A connected pair.
pub fn pair() -> (Halter, Halt) {
    let (sender, receiver) = watch::channel(State::default());
    (Halter(sender), Halt(receiver))
}

impl Halter {
    /// Asks for the end. The first cause stands; a signal after it asks to hurry.
    pub fn halt(&self, cause: Cause) {
        self.0.send_modify(|state| match (state.cause, cause) {
            (None, _) => state.cause = Some(cause),
            (Some(_), Cause::Signal(_)) => state.hurry = true,
            (Some(_), Cause::TimeLimit | Cause::MaxFail | Cause::Unwritable | Cause::Broken) => {}
        });
    }
}

impl Halt {
    /// The cause, if the end has been asked for.
    pub fn cause(&self) -> Option<Cause> {
        self.0.borrow().cause
    }

    /// Waits until the end is asked for; for ever if it never is.
    pub async fn wait(&mut self) -> Cause {
        loop {
            if let Some(cause) = self.cause() {
                return cause;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until a second signal asks to hurry; for ever if none does.
    pub async fn hurry(&mut self) {
        while !self.0.borrow().hurry {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stands_and_a_later_signal_hurries() {
        let (halter, halt) = pair();
        halter.halt(Cause::TimeLimit);
        halter.halt(Cause::Signal(15));
        assert_eq!(halt.cause(), Some(Cause::TimeLimit));
        assert!(halt.0.borrow().hurry);
    }
}
