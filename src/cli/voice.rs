//! The voice: whatever the program says on stdout and stderr goes through here, and secrets are hidden
//! in it. It knows the secrets that were found so far.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use crate::engine::redact::{Redactor, Stream};
use crate::report::{github, outlet};

#[derive(Default)]
struct Known {
    values: Vec<String>,
    /// Made when something is said.
    redactor: Option<Redactor>,
}

static KNOWN: RwLock<Known> = RwLock::new(Known { values: Vec::new(), redactor: None });

/// Hides these values from now on.
pub fn hide(values: impl IntoIterator<Item = String>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.values.extend(values);
    known.redactor = None;
}

/// Hides these values no longer.
pub fn show(values: &[String]) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.values.retain(|value| !values.contains(value));
    known.redactor = None;
}

/// What hides all secrets that were found so far.
pub fn redactor() -> Redactor {
    if let Some(redactor) = &KNOWN.read().unwrap_or_else(PoisonError::into_inner).redactor {
        return redactor.clone();
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let redactor = Redactor::new(&known.values);
    known.redactor.insert(redactor).clone()
}

/// Writes to stderr what ends its lines itself. Nobody may be there to read it, and that is no reason
/// to end.
pub fn say_as_is(text: &str) {
    outlet::say(redactor().text(&for_the_log(text)).as_bytes());
}

/// Text that no CI service which reads along takes for a command.
pub fn for_the_log(text: &str) -> Cow<'_, str> {
    if github::reads_along() { github::disarmed(text) } else { text.into() }
}

/// Writes to stdout.
///
/// # Errors
/// Stdout does not take it.
pub fn print(text: &str) -> io::Result<()> {
    print_as_is(&for_the_log(text))
}

/// Writes to stdout, what is meant to be a command to a CI service too.
///
/// # Errors
/// Stdout does not take it.
pub fn print_as_is(text: &str) -> io::Result<()> {
    outlet::print(redactor().text(text).as_bytes())
}

/// Has a panic say its words here, too.
pub fn carry_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        let captured = trace.status() == std::backtrace::BacktraceStatus::Captured;
        let trace = if captured { format!("\n{trace}") } else { String::new() };
        say_as_is(&format!("error: tokgate is at fault: {panic}{trace}\n"));
    }));
}

/// Writes to another writer, secrets hidden. What is held back is written when it is closed.
pub struct Veil<W: Write> {
    out: W,
    stream: Stream,
    clear: Vec<u8>,
}

impl<W: Write> Veil<W> {
    /// Hides what is known to be secret now.
    pub fn new(out: W) -> Veil<W> {
        Veil { out, stream: Stream::new(redactor()), clear: Vec::new() }
    }

    /// The end.
    ///
    /// # Errors
    /// The other writer does not take it.
    pub fn close(mut self) -> io::Result<()> {
        self.stream.end(&mut self.clear);
        self.out.write_all(&self.clear)?;
        self.out.flush()
    }
}

impl<W: Write> Write for Veil<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.stream.push(text, &mut self.clear);
        self.out.write_all(&self.clear)?;
        self.clear.clear();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
