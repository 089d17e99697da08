//! Signals, from whichever moment of the program on: SIGINT, SIGTERM and SIGHUP ask a run to end, and so
//! does the death of whoever started it; SIGUSR1, SIGUSR2 and SIGXCPU, which batch systems send shortly
//! before they kill, end it as a time limit does.
//!
//! They are heard on a thread of their own, so that a run that blocks hears them, between two suites too;
//! and a run that does not end in time after the first is ended from there. A SIGHUP that is ignored from the
//! start stays so, which is how `nohup` asks to go on. SIGINT does not: a script's `&` has it ignored without
//! meaning the run.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::halt::{Cause, Halter};
use super::parent::Parent;

/// A run that was told to end has ended after this time, or is left where it stands: seven seconds are
/// promised, and who asked may send SIGKILL soon after.
const OVERDUE: Duration = Duration::from_millis(6250);

/// Signals that follow each other so soon are one request: `timeout` signals its child and then the group
/// that both are in, a closing terminal and its shell both send SIGHUP.
const ONE_ACT: Duration = Duration::from_millis(250);

/// How often the parent is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// What this program has been sent, and the run that is told.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// What asked for the end first.
    cause: Option<Cause>,
    /// The number of the first signal that is an exit code.
    signal: Option<i32>,
    /// When the last request came that was one of its own.
    last: Option<Instant>,
    /// The run that goes on now.
    run: Option<Halter>,
}

impl Heard {
    /// Takes a request for the end; true where it is the first that presses.
    fn hear(&mut self, cause: Cause, now: Instant) -> bool {
        let number = match cause {
            Cause::Signal(number) => Some(number),
            // As if the terminal had been closed.
            Cause::Orphaned => Some(Signal::HUP.as_raw()),
            Cause::TimeLimit
            | Cause::TimeUp(_)
            | Cause::MaxFail
            | Cause::Unwritable
            | Cause::Broken => None,
        };
        let first = number.is_some() && self.signal.is_none();
        let again = self.last.is_some_and(|last| now.saturating_duration_since(last) < ONE_ACT);
        if number.is_some() && again {
            return false;
        }
        if number.is_some() {
            self.last = Some(now);
        }
        self.signal = self.signal.or(number);
        self.cause.get_or_insert(cause);
        if let Some(run) = &self.run {
            run.halt(cause);
        }
        first
    }
}

impl Signals {
    /// Listens from now on until the program ends. `overdue` is called with the number of the first signal
    /// where the program does not end in time after it, and has to end it.
    ///
    /// # Errors
    /// The thread or a handler can't be set up.
    pub fn listen(
        parent: Option<Parent>,
        overdue: impl FnOnce(i32) + Send + 'static,
    ) -> io::Result<Signals> {
        let signals = Signals::default();
        let heard = signals.clone();
        let (sender, ready) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let listening = runtime.and_then(|runtime| {
                let inside = runtime.enter();
                let ears = Ear::all()?;
                drop(inside);
                Ok((runtime, ears))
            });
            match listening {
                Ok((runtime, ears)) => {
                    let _ = sender.send(Ok(()));
                    runtime.block_on(heard.attend(ears, parent, overdue));
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        })?;
        ready.recv().unwrap_or_else(|_| Err(io::Error::other("their thread has ended")))?;
        Ok(signals)
    }

    /// Has a run hear of them, of those too that came before it.
    pub fn tell(&self, run: &Halter) {
        let mut heard = self.lock();
        heard.run = Some(run.clone());
        if let Some(cause) = heard.cause {
            run.halt(cause);
        }
    }

    /// The number of the first that asked for the end.
    pub fn first(&self) -> Option<i32> {
        self.lock().signal
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears until the program ends.
    async fn attend(self, ears: Vec<Ear>, parent: Option<Parent>, overdue: impl FnOnce(i32)) {
        let (sender, mut causes) = tokio::sync::mpsc::unbounded_channel();
        for mut ear in ears {
            let sender = sender.clone();
            tokio::spawn(async move {
                while ear.stream.recv().await.is_some() {
                    let _ = sender.send(ear.cause);
                }
            });
        }
        if let Some(parent) = parent {
            tokio::spawn(async move {
                while !parent.calls_away() {
                    tokio::time::sleep(LOOK).await;
                }
                let _ = sender.send(Cause::Orphaned);
            });
        }
        // Until the first that presses, whoever waits for it waits for ever.
        while let Some(cause) = causes.recv().await {
            if self.lock().hear(cause, Instant::now()) {
                break;
            }
        }
        let further = async {
            while let Some(cause) = causes.recv().await {
                self.lock().hear(cause, Instant::now());
            }
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(OVERDUE, further).await;
        overdue(self.first().unwrap_or(Signal::TERM.as_raw()));
    }
}

/// One signal that is listened to.
struct Ear {
    stream: tokio::signal::unix::Signal,
    cause: Cause,
}

impl Ear {
    /// Listens to all that is not ignored. Call it inside the runtime that is to hear.
    fn all() -> io::Result<Vec<Ear>> {
        let mut ears = Vec::new();
        for asked in [Signal::INT, Signal::TERM, Signal::HUP] {
            if asked != Signal::HUP || !is_ignored(asked) {
                ears.push((asked, Cause::Signal(asked.as_raw())));
            }
        }
        for notice in [Signal::USR1, Signal::USR2, Signal::XCPU] {
            if !is_ignored(notice) {
                ears.push((notice, Cause::TimeUp(notice.as_raw())));
            }
        }
        let listen = |(kind, cause): (Signal, Cause)| {
            let stream = signal(SignalKind::from_raw(kind.as_raw()))?;
            Ok(Ear { stream, cause })
        };
        ears.into_iter().map(listen).collect()
    }
}

/// Whether this process was started with the signal ignored, where it can be told.
pub(super) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, signal.as_raw())
}

/// Reads the mask of ignored signals out of `/proc/self/status`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::super::halt::Haste;
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\ttokgate\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000000001\n";
        assert!(ignores(status, 1));
        assert!(!ignores(status, 2) && !ignores("", 1));
    }

    /// Causes with the milliseconds at which they come, and how soon the end of the run comes then.
    fn after(causes: &[(Cause, u64)]) -> (Option<i32>, Haste) {
        let signals = Signals::default();
        let run = Halter::default();
        signals.tell(&run);
        let begin = Instant::now();
        for (cause, at) in causes {
            signals.lock().hear(*cause, begin + Duration::from_millis(*at));
        }
        (signals.first(), run.waiter().haste())
    }

    #[test]
    fn signals_at_once_are_one_request_and_the_first_names_it() {
        let (int, term, hup) = (Cause::Signal(2), Cause::Signal(15), Cause::Signal(1));
        assert_eq!(after(&[(term, 0), (term, 1)]), (Some(15), Haste::Soon));
        assert_eq!(after(&[(term, 0), (hup, 5)]), (Some(15), Haste::Soon));
        assert_eq!(after(&[(int, 0), (term, 7500)]), (Some(2), Haste::Now));
        assert_eq!(after(&[(int, 0), (int, 300), (int, 600)]), (Some(2), Haste::Leave));
        assert_eq!(after(&[(Cause::Orphaned, 0)]), (Some(1), Haste::Soon));
        assert_eq!(after(&[(Cause::TimeUp(10), 0)]), (None, Haste::Soon));
        assert_eq!(after(&[(Cause::TimeUp(10), 0), (term, 1)]), (Some(15), Haste::Soon));
    }

    #[test]
    fn a_run_that_begins_later_is_told_what_came_before() {
        let signals = Signals::default();
        assert!(signals.lock().hear(Cause::Signal(15), Instant::now()));
        assert!(!signals.lock().hear(Cause::Signal(15), Instant::now() + 2 * ONE_ACT));
        let run = Halter::default();
        signals.tell(&run);
        assert_eq!(run.waiter().cause(), Some(Cause::Signal(15)));
    }
}
