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
use crate::quantity::print_number;
use crate::suite::model::DecodeSetting;

/// A stream that fails so often in a row will not have its tokens.
const FAILURES_IN_A_ROW: u32 = 6;
/// Rest of a stream after a failed request, so that a dead engine is not hammered.
const FAILURE_REST: Duration = Duration::from_millis(250);

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    /// The request in flight of each stream, where there is one.
    flying: Vec<Option<Flying>>,
    failures: u64,
    /// Failures in a row over all streams; any token resets it.
    fruitless: u64,
    /// Failures in a row of each stream; a request that ends well resets it.
    in_a_row: Vec<u32>,
    pace: Pace,
}

/// How many tokens came of late, for whoever looks on.
#[derive(Debug, Default)]
struct Pace {
    tokens: u64,
    /// Events that did not say how many tokens they carried.
    uncounted: u64,
    /// When the last second began, and how much there was then.
    mark: Option<(Stamp, u64)>,
    /// Of the second before.
    rate: Option<f64>,
}

impl Pace {
    fn count(&mut self, tokens: Option<u32>) {
        self.tokens += u64::from(tokens.unwrap_or(1));
        self.uncounted += u64::from(tokens.is_none());
    }

    /// Looks at what has come by now: `801 tok/s`; `tokens` of a server that counts at the end are events.
    fn words(&mut self, now: Stamp) -> Option<String> {
        let (since, before) = *self.mark.get_or_insert((now, self.tokens));
        let gone = now.seconds_since(since);
        if gone >= 1.0 || (self.rate.is_none() && gone >= 0.2) {
            self.rate = Some((self.tokens - before) as f64 / gone);
            self.mark = Some((now, self.tokens));
        }
        let unit = if self.uncounted > 0 { "events/s" } else { "tok/s" };
        self.rate.map(|rate| match rate {
            rate if rate < 10.0 => format!("{rate:.1} {unit}"),
            rate => format!("{} {unit}", print_number(rate, 0)),
        })
    }
}

/// A request in flight: when it was begun, and its events.
struct Flying {
    sent: Stamp,
    events: Vec<TokenEvent>,
}

impl Shared {
    pub(super) fn new(streams: u32, setting: &DecodeSetting, gauges_ok: bool) -> Shared {
        let mut window = Window::new(streams, setting.duration, setting.min_tokens);
        window.set_gauges_ok(gauges_ok);
        let flying = (0..streams).map(|_| None).collect();
        let in_a_row = vec![0; streams as usize];
        let seen = Seen {
            window,
            ended: Vec::new(),
            flying,
            failures: 0,
            fruitless: 0,
            in_a_row,
            pace: Pace::default(),
        };
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
        self.seen().flying[stream as usize] = Some(Flying { sent: at, events: Vec::new() });
    }

    fn token(&self, stream: u32, event: TokenEvent) {
        let mut seen = self.seen();
        if let Some(flying) = &mut seen.flying[stream as usize] {
            flying.events.push(event);
        }
        seen.fruitless = 0;
        seen.pace.count(event.tokens);
        let before = seen.window.state();
        if seen.window.on_token(stream, event.at, event.tokens.unwrap_or(0)) != before {
            self.changed.notify_one();
        }
    }

    fn end(&self, trace: Trace) {
        let mut seen = self.seen();
        seen.flying[trace.stream as usize] = None;
        match &trace.outcome {
            Outcome::Failed(_) => {
                seen.failures += 1;
                seen.fruitless += 1;
                seen.in_a_row[trace.stream as usize] += 1;
                self.changed.notify_one();
            }
            Outcome::Complete => seen.in_a_row[trace.stream as usize] = 0,
            Outcome::Cancelled => {}
        }
        seen.ended.push(trace);
    }

    /// Has every stream end with the request that it is in.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Nothing but failures, of all streams or of one: more waiting would not help. A stalled request
    /// takes the whole idle limit to fail, so this is what bounds a cell.
    pub(super) fn hopeless(&self) -> bool {
        let seen = self.seen();
        seen.fruitless >= u64::from(self.streams).max(2) * 2
            || seen.in_a_row.iter().any(|failures| *failures >= FAILURES_IN_A_ROW)
    }

    pub(super) fn note(&self, now: Stamp) -> String {
        let mut seen = self.seen();
        let pace = seen.pace.words(now);
        let share = (seen.window.progress() * 100.0).round();
        let mut note = match seen.window.state() {
            State::Ramp => format!("{} of {} streams emit", seen.window.emitting(), self.streams),
            State::Open { .. } | State::Closed { .. } => {
                let pace = pace.map(|pace| format!(", {pace}")).unwrap_or_default();
                format!("{share} %{pace}")
            }
        };
        if seen.failures > 0 {
            note.push_str(&format!(", {} failed requests", seen.failures));
        }
        note
    }

    /// Shows all requests so far, those in flight as cut `at` now. They are lent, not copied: a
    /// long window has millions of events.
    ///
    /// A server that counts at the end has not counted those in flight. So that it can be decided
    /// whether to go on measuring, they get as many tokens an event as the finished ones had.
    pub(super) fn look<T>(&self, at: Stamp, see: impl FnOnce(&[Trace]) -> T) -> T {
        let mut seen = self.seen();
        let mut traces = std::mem::take(&mut seen.ended);
        let ended = traces.len();
        let pace = tokens_per_event(&traces);
        let mut guessed = Vec::new();
        for (stream, flying) in seen.flying.iter_mut().enumerate() {
            let Some(Flying { sent, events }) = flying else { continue };
            let mut events = std::mem::take(events);
            guessed.push(fill(&mut events, pace));
            traces.push(Trace {
                stream: stream as u32,
                sent: *sent,
                ended: at,
                events,
                outcome: Outcome::Cancelled,
                finish: None,
                usage: None,
                warnings: Vec::new(),
            });
        }
        let found = see(&traces);
        for (mut trace, guessed) in traces.drain(ended..).zip(guessed) {
            trace.events[guessed..].iter_mut().for_each(|event| event.tokens = None);
            if let Some(flying) = &mut seen.flying[trace.stream as usize] {
                flying.events = trace.events;
            }
        }
        seen.ended = traces;
        found
    }

    /// Whether the server has counted everything so far, so that cutting the streams loses nothing.
    pub(super) fn all_counted(&self) -> bool {
        let seen = self.seen();
        let mut flying = seen.flying.iter().flatten();
        flying.all(|request| request.events.last().is_none_or(|event| event.tokens.is_some()))
    }

    /// All requests, once every stream has come to its end.
    pub(super) fn take_traces(&self) -> Vec<Trace> {
        std::mem::take(&mut self.seen().ended)
    }
}

/// Tokens an event carried in the requests whose tokens are all known; 1 where there is none.
fn tokens_per_event(traces: &[Trace]) -> f64 {
    let known = traces.iter().filter_map(|trace| {
        let tokens: Option<u64> = trace.events.iter().map(|e| e.tokens.map(u64::from)).sum();
        tokens.map(|tokens| (tokens, trace.events.len() as u64))
    });
    let (tokens, events) = known.fold((0, 0), |(a, b), (tokens, events)| (a + tokens, b + events));
    if events == 0 { 1.0 } else { tokens as f64 / events as f64 }
}

/// Gives each event from the first unknown one on its share of so many tokens an event; returns
/// where they begin.
fn fill(events: &mut [TokenEvent], pace: f64) -> usize {
    let from = events.iter().position(|event| event.tokens.is_none()).unwrap_or(events.len());
    let upto = |i: usize| (i as f64 * pace).round() as u32;
    for (i, event) in events[from..].iter_mut().enumerate() {
        event.tokens = Some(upto(i + 1) - upto(i));
    }
    from
}

/// One stream: request after request until it is told to stop.
pub(super) struct Looping {
    pub(super) stream: u32,
    pub(super) client: Client,
    /// Makes the next request; `None` ends the stream.
    pub(super) next: Box<dyn FnMut() -> Option<Prepared>>,
    pub(super) shared: Arc<Shared>,
    pub(super) cancel: Cancel,
    pub(super) clock: Clock,
}

impl Looping {
    pub(super) async fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) && !self.cancel.is_cancelled() {
            let Some(request) = (self.next)() else { return };
            self.shared.begin(self.stream, self.clock.now());
            let shared = Arc::clone(&self.shared);
            let stream = self.stream;
            let mut on_token = move |event| shared.token(stream, event);
            let trace = self.client.stream(&request, stream, &mut on_token, &mut self.cancel).await;
            let failed = matches!(trace.outcome, Outcome::Failed(_));
            self.shared.end(trace);
            if failed {
                self.clock.sleep_until(self.clock.now() + FAILURE_REST).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::model::{Capacity, Prefix};

    fn setting() -> DecodeSetting {
        DecodeSetting {
            duration: Duration::from_secs(1),
            min_tokens: 1,
            max_output: 64,
            prefix: Prefix::Unique,
            capacity: Capacity::Off,
            ttft_samples: 1,
            context: 1024,
            concurrency: 2,
        }
    }

    fn uncounted(shared: &Shared, stream: u32, events: u64) {
        shared.begin(stream, Stamp(0));
        (1..=events)
            .for_each(|at| shared.token(stream, TokenEvent { at: Stamp(at), tokens: None }));
    }

    #[test]
    fn a_look_counts_what_is_in_flight_as_the_finished_ones_and_forgets_it() {
        let shared = Shared::new(3, &setting(), true);
        shared.end(Trace {
            stream: 0,
            sent: Stamp(0),
            events: [5, 6].map(|at| TokenEvent { at: Stamp(at), tokens: Some(3) }).into(),
            ended: Stamp(6),
            outcome: Outcome::Complete,
            finish: None,
            usage: None,
            warnings: Vec::new(),
        });
        uncounted(&shared, 1, 4);
        shared.begin(2, Stamp(7));
        assert!(!shared.all_counted());
        for _ in 0..2 {
            shared.look(Stamp(9), |traces| {
                let tokens =
                    |i: usize| traces[i].events.iter().map(|e| e.tokens).collect::<Vec<_>>();
                assert_eq!(tokens(1), [Some(3); 4]);
                // One that waits for its first token is in flight as well.
                assert_eq!(
                    (traces.len(), traces[2].sent, traces[2].ended),
                    (3, Stamp(7), Stamp(9))
                );
            });
        }
        let seen = shared.seen();
        assert!(seen.flying[1].as_ref().unwrap().events.iter().all(|event| event.tokens.is_none()));
        assert_eq!((seen.flying[1].as_ref().unwrap().events.len(), seen.ended.len()), (4, 1));
    }
}
