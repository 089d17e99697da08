//! The outlet: what a run says on stderr and stdout, so that nobody who fails to read holds it up.
//!
//! A pipe that is full and a terminal that was stopped take nothing until somebody reads. While a run goes
//! on, what it says waits in memory and a thread writes it; what would be too much is left out and counted.
//! At the end it is waited for as long as it moves. It decides nothing about what is said.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Most bytes that wait.
const MOST: usize = 1 << 20;
/// Bytes that are written at once: what a pipe takes as a whole or not at all.
const PIECE: usize = 4096;
const LEFT_OUT: &str = "… lines are left out: nobody read them in time …\n";

/// How long a reader who takes nothing is waited for at the end, in milliseconds.
static PATIENCE: AtomicU64 = AtomicU64::new(20_000);
/// The least of it.
const LEAST: Duration = Duration::from_secs(1);
/// Once it was in vain.
const AGAIN: Duration = Duration::from_millis(100);

/// One way out of the program.
#[derive(Debug, Clone, Default)]
struct Outlet(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes that are being written now.
    under_way: usize,
    /// Bytes that were written so far.
    written: u64,
    /// Whether texts were left out since.
    lost: bool,
    /// Whether it was waited for in vain.
    given_up: bool,
    /// The first that went wrong.
    error: Option<io::Error>,
}

impl Outlet {
    /// An outlet into `out`, with a thread of its own.
    fn open(mut out: impl Write + Send + 'static) -> io::Result<Outlet> {
        let outlet = Outlet::default();
        let shared = outlet.clone();
        std::thread::Builder::new().name("outlet".into()).spawn(move || {
            loop {
                let piece = shared.next();
                let outcome = out.write_all(&piece).and_then(|()| out.flush());
                let mut state = shared.lock();
                state.under_way = 0;
                state.written += piece.len() as u64;
                if let Err(error) = outcome {
                    state.error.get_or_insert(error);
                }
                shared.0.1.notify_all();
            }
        })?;
        Ok(outlet)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write.
    fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let length = state.waiting.len().min(PIECE);
        let piece: Vec<u8> = state.waiting.drain(..length).collect();
        state.under_way = length;
        piece
    }

    /// Has a text written as soon as it can be, unless too much waits already.
    fn say(&self, text: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + text.len() > MOST {
            state.lost = true;
            return;
        }
        if std::mem::take(&mut state.lost) {
            state.waiting.extend_from_slice(LEFT_OUT.as_bytes());
        }
        state.waiting.extend_from_slice(text);
        self.0.1.notify_all();
    }

    /// Has a text written however long it is.
    fn say_all(&self, text: &[u8]) {
        self.lock().waiting.extend_from_slice(text);
        self.0.1.notify_all();
    }

    /// Waits until all is written, as long as some of it is within `patience`; hardly any more where
    /// that was in vain before.
    fn settle(&self, patience: Duration) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if state.waiting.is_empty() && state.under_way == 0 {
                return Ok(());
            }
            let before = state.written;
            let patience = if state.given_up { patience.min(AGAIN) } else { patience };
            let waited = self.0.1.wait_timeout_while(state, patience, |it| it.written == before);
            let (now, limit) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            state.given_up = limit.timed_out();
            if state.given_up {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
            }
        }
    }
}

/// Those of stderr and stdout, where a run has opened them.
static OPEN: OnceLock<Option<[Outlet; 2]>> = OnceLock::new();

fn outlets() -> Option<&'static [Outlet; 2]> {
    OPEN.get()?.as_ref()
}

/// From now on nobody who fails to read stderr or stdout holds up this program.
pub fn open() {
    let both = || Some([Outlet::open(io::stderr()).ok()?, Outlet::open(io::stdout()).ok()?]);
    // Without threads there are the streams themselves.
    OPEN.get_or_init(both);
}

/// Says a text on stderr. That nobody may be there to read it is no reason to end.
pub fn say(text: &[u8]) {
    match outlets() {
        Some([stderr, _]) => stderr.say(text),
        None => {
            let _ = io::stderr().write_all(text);
        }
    }
}

/// From now on nobody is waited for longer than so, or than a second.
pub fn hurry(limit: Duration) {
    let limit = u64::try_from(limit.max(LEAST).as_millis()).unwrap_or(u64::MAX);
    PATIENCE.fetch_min(limit, Ordering::Relaxed);
}

fn patience() -> Duration {
    Duration::from_millis(PATIENCE.load(Ordering::Relaxed))
}

/// Waits until all that was said on stderr is written, as long as somebody reads it.
pub fn settle() {
    if let Some([stderr, _]) = outlets() {
        let _ = stderr.settle(patience());
    }
}

/// Writes a text to stdout; once [`open`] was called, as long as somebody reads it.
///
/// # Errors
/// Stdout does not take it, or nobody reads it.
pub fn print(text: &[u8]) -> io::Result<()> {
    match outlets() {
        Some([_, stdout]) => {
            stdout.say_all(text);
            stdout.settle(patience())
        }
        None => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text)?;
            stdout.flush()
        }
    }
}

/// Stderr as something to write to.
#[derive(Debug, Clone, Copy)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        say(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_who_does_not_read_is_waited_for_in_the_end_alone() {
        let (mut reader, writer) = io::pipe().unwrap();
        let outlet = Outlet::open(writer).unwrap();
        let text = vec![b'x'; MOST];
        outlet.say(&text);
        let error = outlet.settle(SHORT).unwrap_err();
        assert_eq!(error.to_string(), "nobody reads it");
        // The pipe holds a part of it, the rest waits.
        outlet.say(&vec![b'y'; MOST]);
        // Somebody comes: what waited is there, and a word on what was left out.
        let reading = std::thread::spawn(move || {
            let mut read = vec![0; MOST + LEFT_OUT.len() + 5];
            reader.read_exact(&mut read).map(|()| read).unwrap()
        });
        while outlet.settle(LONG).is_err() {}
        outlet.say(b"then.");
        outlet.settle(LONG).unwrap();
        let read = reading.join().unwrap();
        assert_eq!(read[..MOST], text);
        assert_eq!(read[MOST..], *format!("{LEFT_OUT}then.").as_bytes());
    }

    #[test]
    fn a_reader_who_went_away_is_told() {
        let (reader, writer) = io::pipe().unwrap();
        let outlet = Outlet::open(writer).unwrap();
        drop(reader);
        outlet.say_all(&vec![b'x'; 2 * MOST]);
        assert_eq!(outlet.settle(LONG).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
