//! The looping streams of a decode cell, and what they share with the one who watches them.
//!
//! Each stream sends request after request until it is told to stop; what comes of the tokens is
//! decided in `measure`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Stamp};
use crate::load::{Cancel, Client, Outcome, Prepared, TokenEvent, Trace};
use crate::measure::window::{State, Window};
use crate::suite::model::DecodeSetting;

/// Rest of a stream after a failed request, so that a dead engine is not hammered.
const FAILURE_REST: Duration = Duration::from_millis(250);

pub(super) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the streams of a cell share with the one who watches them. All run on one thread, so that
/// the lock is never waited for.
pub(super) struct Shared {
    seen: Mutex<Seen>,
    closing: AtomicBool,
    /// Told when the window's state or the hope for one changes.
    pub(super) changed: Notify,
    pub(super) streams: u32,
}

pub(super) struct Seen {
    pub(super) window: Window,
    /// Requests that have ended.
    ended: Vec<Trace>,
    /// The request in flight of each stream: when it was begun, and its events.
    flying: Vec<(Stamp, Vec<TokenEvent>)>,
    failures: u64,
    /// Failures in a row over all streams; any token resets it.
    fruitless: u64,
    tokens: u64,
}

impl Shared {
    pub(super) fn new(streams: u32, setting: &DecodeSetting, gauges_ok: bool) -> Shared {
        let mut window = Window::new(streams, setting.duration, setting.min_tokens);
        window.set_gauges_ok(gauges_ok);
        let flying = (0..streams).map(|_| (Stamp::default(), Vec::new())).collect();
        let seen = Seen { window, ended: Vec::new(), flying, failures: 0, fruitless: 0, tokens: 0 };
        Shared {
            seen: Mutex::new(seen),
            closing: AtomicBool::new(false),
            changed: Notify::new(),
            streams,
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        unpoisoned(&self.seen)
    }

    fn begin(&self, stream: u32, at: Stamp) {
        self.seen().flying[stream as usize] = (at, Vec::new());
    }

    fn token(&self, stream: u32, event: TokenEvent) {
        let mut seen = self.seen();
        seen.flying[stream as usize].1.push(event);
        seen.fruitless = 0;
        seen.tokens += u64::from(event.tokens.unwrap_or(1));
        let before = seen.window.state();
        if seen.window.on_token(stream, event.at, event.tokens.unwrap_or(0)) != before {
            self.changed.notify_one();
        }
    }

    fn end(&self, trace: Trace) {
        let mut seen = self.seen();
        seen.flying[trace.stream as usize].1 = Vec::new();
        match &trace.outcome {
            Outcome::Failed(_) => {
                seen.failures += 1;
                seen.fruitless += 1;
                self.changed.notify_one();
            }
            Outcome::Complete | Outcome::Cancelled => {}
        }
        seen.ended.push(trace);
    }

    /// Has every stream end with the request that it is in.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Nothing but failures: more waiting would not help.
    pub(super) fn hopeless(&self) -> bool {
        self.seen().fruitless >= u64::from(self.streams).max(4) * 3
    }

    pub(super) fn note(&self) -> String {
        let seen = self.seen();
        let share = (seen.window.progress() * 100.0).round();
        let mut note = match seen.window.state() {
            State::Ramp => format!("{} of {} streams emit", seen.window.emitting(), self.streams),
            State::Open { .. } | State::Closed { .. } => {
                format!("{share} %, {} tokens", seen.tokens)
            }
        };
        if seen.failures > 0 {
            note.push_str(&format!(", {} failed requests", seen.failures));
        }
        note
    }

    /// All requests so far, those in flight as cut. `last` moves them out instead of copying them.
    pub(super) fn traces(&self, last: bool) -> Vec<Trace> {
        let mut seen = self.seen();
        let mut traces = if last { std::mem::take(&mut seen.ended) } else { seen.ended.clone() };
        for (stream, (sent, events)) in seen.flying.iter_mut().enumerate() {
            if events.is_empty() {
                continue;
            }
            let events = if last { std::mem::take(events) } else { events.clone() };
            traces.push(Trace {
                stream: stream as u32,
                sent: *sent,
                ended: events.last().map_or(*sent, |event| event.at),
                events,
                outcome: Outcome::Cancelled,
                usage: None,
                warnings: Vec::new(),
            });
        }
        traces
    }
}

/// One stream: request after request until it is told to stop.
pub(super) struct Looping {
    pub(super) stream: u32,
    pub(super) client: Client,
    pub(super) request: Prepared,
    pub(super) shared: Arc<Shared>,
    pub(super) cancel: Cancel,
    pub(super) clock: Clock,
}

impl Looping {
    pub(super) async fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) && !self.cancel.is_cancelled() {
            self.shared.begin(self.stream, self.clock.now());
            let shared = Arc::clone(&self.shared);
            let stream = self.stream;
            let mut on_token = move |event| shared.token(stream, event);
            let trace =
                self.client.stream(&self.request, stream, &mut on_token, &mut self.cancel).await;
            let failed = matches!(trace.outcome, Outcome::Failed(_));
            self.shared.end(trace);
            if failed {
                self.clock.sleep_until(self.clock.now() + FAILURE_REST).await;
            }
        }
    }
}
