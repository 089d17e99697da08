//! The ledger of a load: what its requests came to so far, when its window opened and closed, and
//! whether there is any hope left.
//!
//! All who write into it run on one thread. What the figures are is decided in `measure::serve`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Stamp};
use crate::load::{Cancel, Canceller, Client, Failure, FailureClass, Outcome, Trace, answer};
use crate::measure::serve::Note;
use crate::quantity::print_number;
use crate::record::run_record::CellState;
use crate::suite::model::Amount;

use super::script::{Asked, Request, Stock};

/// Rest of a stream after a failed request, so that a dead engine is not hammered.
const FAILURE_REST: Duration = Duration::from_millis(250);

/// Failures in a row, by the order of sending, that end a load in which no request has ended well, and one
/// in which some have.
const HOPELESS: (u64, u64) = (4, 16);
/// Stalls among those failures that end any load, if each stream has had one: a stall takes the whole idle limit.
const STALLED: u64 = 4;

/// What those who send share.
pub(super) struct Ledger {
    seen: RefCell<Seen>,
    /// Told when a request has ended or the window has changed.
    pub(super) changed: Notify,
    pub(super) clock: Clock,
    pub(super) canceller: Canceller,
    pub(super) amount: Amount,
    /// Requests that go out at once, as far as that is known.
    pub(super) streams: u32,
}

/// A load so far.
pub(super) struct Seen {
    stock: Stock,
    pub(super) traces: Vec<Trace>,
    pub(super) notes: Vec<Note>,
    pub(super) asked: Vec<Asked>,
    /// How late each request of an open loop went out by our own doing.
    pub(super) lags: Vec<Duration>,
    /// Streams that have not ended their warm-ups.
    warming: u32,
    /// Warm-ups that have ended.
    warmed: u64,
    /// Output tokens of the measured requests that have ended, as the server counts them.
    output: u64,
    flying: u64,
    good: u64,
    failures: u64,
    row: Row,
    pub(super) opened: Option<Stamp>,
    pub(super) closed: Option<Stamp>,
    /// A request that could not be made or sent, by our own doing.
    pub(super) broken: Option<CellState>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Failed,
    /// Failed, by saying nothing for as long as it may.
    Stalled,
    Cut,
}

/// Failures in a row, by the order of sending: a refusal comes at once and an answer takes its time, so
/// that of requests that are sent together all refusals end first.
#[derive(Debug, Default)]
struct Row {
    /// How requests ended, from the oldest that has not.
    ends: VecDeque<Option<Ended>>,
    /// Requests before those.
    before: u64,
    /// The last so many of them failed.
    fruitless: u64,
    /// So many of those stalled.
    stalled: u64,
}

impl Row {
    /// A request is sent; its number.
    fn join(&mut self) -> u64 {
        self.ends.push_back(None);
        self.before + self.ends.len() as u64 - 1
    }

    fn leave(&mut self, number: u64, ended: Ended) {
        if let Some(end) = self.ends.get_mut((number - self.before) as usize) {
            *end = Some(ended);
        }
        while let Some(Some(ended)) = self.ends.front().copied() {
            self.ends.pop_front();
            self.before += 1;
            match ended {
                Ended::Well => (self.fruitless, self.stalled) = (0, 0),
                Ended::Failed => self.fruitless += 1,
                Ended::Stalled => {
                    self.fruitless += 1;
                    self.stalled += 1;
                }
                Ended::Cut => {}
            }
        }
    }
}

/// What a load came to.
pub(super) struct Whole {
    pub(super) seen: Seen,
    pub(super) hopeless: bool,
}

impl Ledger {
    pub(super) fn new(stock: Stock, clock: Clock, amount: Amount, streams: u32) -> Ledger {
        let seen = Seen {
            stock,
            traces: Vec::new(),
            notes: Vec::new(),
            asked: Vec::new(),
            lags: Vec::new(),
            warming: streams,
            warmed: 0,
            output: 0,
            flying: 0,
            good: 0,
            failures: 0,
            row: Row::default(),
            opened: None,
            closed: None,
            broken: None,
        };
        Ledger {
            seen: RefCell::new(seen),
            changed: Notify::new(),
            clock,
            canceller: Canceller::new(),
            amount,
            streams,
        }
    }

    /// Measured requests, where there is a number of them.
    pub(super) fn count(&self) -> Option<u64> {
        count(self.amount, self.streams)
    }

    pub(super) fn see<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    fn write<T>(&self, write: impl FnOnce(&mut Seen) -> T) -> T {
        let found = write(&mut self.seen.borrow_mut());
        self.changed.notify_one();
        found
    }

    /// Opens the window, unless it is open.
    pub(super) fn open(&self, at: Stamp) {
        self.write(|seen| {
            seen.opened.get_or_insert(at);
        });
    }

    /// Closes the window, unless it is closed.
    pub(super) fn close(&self, at: Stamp) {
        self.write(|seen| {
            seen.closed.get_or_insert(at);
        });
    }

    /// A stream has ended its warm-ups; with the last one the window opens.
    pub(super) fn warmed_up(&self) {
        let now = self.clock.now();
        self.write(|seen| {
            seen.warming = seen.warming.saturating_sub(1);
            if seen.warming == 0 {
                seen.opened.get_or_insert(now);
            }
        });
    }

    /// Warm-ups that have ended.
    pub(super) fn warmed(&self) -> u64 {
        self.see(|seen| seen.warmed)
    }

    /// Whether nothing more goes out.
    pub(super) fn is_over(&self) -> bool {
        self.canceller.handle().is_cancelled() || self.see(|seen| seen.broken.is_some())
    }

    /// The next request; `None` where there is none, or it can't be made.
    pub(super) fn take(&self, measured: bool) -> Option<Request> {
        let taken = self.seen.borrow_mut().stock.take(measured);
        match taken {
            Ok(request) => Some(request),
            Err(state) => {
                self.give_up(state);
                None
            }
        }
    }

    /// Measured requests that were taken.
    pub(super) fn taken(&self) -> u64 {
        self.see(|seen| seen.stock.taken())
    }

    /// Nothing more can be sent, by our own doing.
    pub(super) fn give_up(&self, state: CellState) {
        self.write(|seen| {
            seen.broken.get_or_insert(state);
        });
        self.canceller.cancel();
    }

    /// Sends a request over a connection that is open and writes down what came of it. `due` is when it
    /// should have gone out, if it has such a time. True where it ended well.
    pub(super) async fn send(
        &self,
        client: &mut Client,
        stream: u32,
        request: Request,
        measured: bool,
        due: Option<Due>,
    ) -> bool {
        let number = self.depart();
        let mut cancel = self.canceller.handle();
        let trace = client.stream(&request.prepared, stream, &mut |_| {}, &mut cancel).await;
        self.enter(number, trace, request.asked, measured, due)
    }

    /// A request that found no connection.
    pub(super) fn unsent(
        &self,
        stream: u32,
        request: &Request,
        measured: bool,
        due: Due,
        failure: Failure,
    ) {
        let number = self.depart();
        let now = self.clock.now();
        let trace = answer::unanswered(stream, due.at, now, Outcome::Failed(failure));
        self.enter(number, trace, request.asked, measured, Some(due));
    }

    /// A request goes out; its number.
    fn depart(&self) -> u64 {
        self.write(|seen| {
            seen.flying += 1;
            seen.row.join()
        })
    }

    fn enter(
        &self,
        number: u64,
        trace: Trace,
        asked: Asked,
        measured: bool,
        due: Option<Due>,
    ) -> bool {
        let ended = match trace.outcome {
            Outcome::Complete => Ended::Well,
            Outcome::Failed(Failure { class: FailureClass::Stalled, .. }) => Ended::Stalled,
            Outcome::Failed(_) => Ended::Failed,
            Outcome::Cancelled => Ended::Cut,
        };
        self.write(|seen| {
            seen.flying -= 1;
            seen.good += u64::from(ended == Ended::Well);
            seen.failures += u64::from(matches!(ended, Ended::Failed | Ended::Stalled));
            seen.row.leave(number, ended);
            seen.warmed += u64::from(!measured);
            if measured && let Some(usage) = &trace.usage {
                seen.output += usage.completion.unwrap_or(0);
            }
            if let Some(due) = due {
                seen.lags.push(trace.sent.since(due.at).saturating_sub(due.connecting));
            }
            seen.notes.push(Note { due: due.map_or(trace.sent, |due| due.at), measured });
            seen.traces.push(trace);
            seen.asked.push(asked);
        });
        ended == Ended::Well
    }

    /// The rest that a stream takes after a failed request.
    pub(super) async fn rest(&self) {
        let mut cancel: Cancel = self.canceller.handle();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.clock.sleep_until(self.clock.now() + FAILURE_REST) => {}
        }
    }

    /// Whether nothing but failures comes: more waiting would not help.
    pub(super) fn hopeless(&self) -> bool {
        self.see(|seen| {
            let streams = u64::from(self.streams);
            let (never, any_more) = HOPELESS;
            let fruitless = seen.row.fruitless;
            fruitless >= never.max(2 * streams) && seen.good == 0
                || fruitless >= any_more.max(4 * streams)
                || seen.row.stalled >= STALLED.max(streams)
        })
    }

    /// What it is doing, and a word on how far it is.
    pub(super) fn phase(&self) -> (&'static str, String) {
        self.see(|seen| {
            let phase = match (seen.opened, seen.closed) {
                (None, _) => "warm-up",
                (Some(_), None) => "window",
                (Some(_), Some(_)) => "drain",
            };
            let ended = seen.notes.iter().filter(|note| note.measured).count();
            let mut note = match (self.amount, seen.opened) {
                (Amount::Duration(whole), Some(opened)) => {
                    let gone = self.clock.now().since(opened).min(whole);
                    let share = gone.as_secs_f64() / whole.as_secs_f64().max(1e-9);
                    format!("{:.0} %, {ended} requests", share * 100.0)
                }
                (_, None) => format!("{} requests", seen.warmed),
                (Amount::Requests(_) | Amount::PerStream(_), Some(_)) => {
                    format!("{ended} of {} requests", self.count().unwrap_or(0))
                }
            };
            if let (Some(opened), None) = (seen.opened, seen.closed)
                && seen.output > 0
            {
                let rate = seen.output as f64 / self.clock.now().seconds_since(opened).max(1e-3);
                note.push_str(&format!(", {} tok/s", print_number(rate, 0)));
            }
            note.push_str(&format!(", {} in flight", seen.flying));
            if seen.failures > 0 {
                note.push_str(&format!(", {} failed", seen.failures));
            }
            (phase, note)
        })
    }

    /// Where in their file the entries of a data set are that were sent, each as often as it was.
    pub(super) fn sent(&self) -> Vec<usize> {
        self.see(|seen| seen.stock.sent())
    }

    /// What it came to, once nobody writes any more.
    pub(super) fn into_whole(self) -> Whole {
        let hopeless = self.hopeless();
        Whole { seen: self.seen.into_inner(), hopeless }
    }
}

/// When a request should have gone out, and how long it then waited for a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) at: Stamp,
    pub(super) connecting: Duration,
}

/// Measured requests of an amount, where it is a number.
pub(super) fn count(amount: Amount, streams: u32) -> Option<u64> {
    match amount {
        Amount::Requests(count) => Some(count),
        Amount::PerStream(count) => Some(count.saturating_mul(u64::from(streams))),
        Amount::Duration(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_in_a_row_where_all_that_were_sent_before_have_failed() {
        let mut row = Row::default();
        let sent: Vec<u64> = (0..6).map(|_| row.join()).collect();
        sent[1..4].iter().for_each(|number| row.leave(*number, Ended::Failed));
        assert_eq!(row.fruitless, 0, "the first may still end well");
        row.leave(sent[0], Ended::Failed);
        assert_eq!(row.fruitless, 4);
        row.leave(sent[5], Ended::Failed);
        row.leave(sent[4], Ended::Well);
        assert_eq!(row.fruitless, 1);
        let last = row.join();
        row.leave(last, Ended::Cut);
        assert_eq!((row.fruitless, row.ends.len()), (1, 0));
        let sent: Vec<u64> = (0..3).map(|_| row.join()).collect();
        row.leave(sent[0], Ended::Stalled);
        row.leave(sent[1], Ended::Failed);
        assert_eq!((row.fruitless, row.stalled), (3, 1));
        row.leave(sent[2], Ended::Well);
        assert_eq!((row.fruitless, row.stalled), (0, 0));
    }
}
