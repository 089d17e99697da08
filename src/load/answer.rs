//! The answer to one request: head and bytes with their stamps in, a [`Trace`] out.
//!
//! A pure state machine. It decides what is a token, when a request is over, and whether it
//! succeeded: with at least one token, and a finish reason that means completion or `[DONE]`. It
//! knows no socket; time-outs and cancelling are told to it.

use std::time::Duration;

use super::event::{self, Chunk, Event, Finish};
use super::sse::{Message, Sse};
use super::tally::Tally;
use super::{Failure, FailureClass, Outcome, TokenEvent, Trace, Usage, Warning};
use crate::clock::Stamp;

/// As much of an answer that is no stream is kept for its message, in bytes.
const LONGEST_REFUSAL: usize = 16 * 1024;

/// What the status line and headers of an answer say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The status.
    pub status: u16,
    /// `content-type`.
    pub content_type: Option<&'a str>,
    /// `content-encoding`.
    pub content_encoding: Option<&'a str>,
}

/// Whether more bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The request goes on.
    More,
    /// It is decided; whatever still comes does not matter.
    Over,
}

/// Why no more bytes come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The body ended as HTTP ends bodies, or the request was over before.
    Clean,
    /// The connection broke; the system's words.
    Broken(String),
    /// We cut it.
    Cancelled,
    /// Nothing generated for this long.
    Idle(Duration),
    /// The request took longer than it may.
    TimedOut(Duration),
}

/// An answer being read.
#[derive(Debug)]
pub struct Answer {
    mode: Mode,
    sse: Sse,
    bytes: u64,
    /// The beginning of a stream in which nothing of the grammar was seen yet.
    stray: Vec<u8>,
    reading: Reading,
}

#[derive(Debug)]
enum Mode {
    /// An event stream.
    Stream,
    /// A 200 that does not say that it is one; its first byte decides.
    Unsure(String),
    /// No stream: what it is, and its body.
    Refused { class: FailureClass, what: String, body: Vec<u8> },
}

/// What the events said so far.
#[derive(Debug, Default)]
struct Reading {
    tally: Tally,
    /// When something generated came last.
    alive: Option<Stamp>,
    usage: Option<Usage>,
    finish: Option<(Finish, Stamp)>,
    done: bool,
    failure: Option<(Failure, Stamp)>,
}

impl Answer {
    /// An answer whose head has come.
    pub fn new(head: Head<'_>) -> Answer {
        let content_type = head.content_type.unwrap_or("").trim();
        let is_stream = content_type
            .split(';')
            .next()
            .is_some_and(|mime| mime.trim().eq_ignore_ascii_case("text/event-stream"));
        let encoding = head.content_encoding.unwrap_or("identity").trim();
        let refused = |class, what| Mode::Refused { class, what, body: Vec::new() };
        let mode = match head.status {
            200 if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") => {
                let what = format!("content-encoding {encoding} although identity was asked for");
                refused(FailureClass::NotAStream, what)
            }
            200 if is_stream => Mode::Stream,
            200 => Mode::Unsure(content_type.to_owned()),
            429 | 503 => refused(FailureClass::RateLimited, format!("HTTP {}", head.status)),
            status => refused(FailureClass::Status, format!("HTTP {status}")),
        };
        Answer { mode, sse: Sse::new(), bytes: 0, stray: Vec::new(), reading: Reading::default() }
    }

    /// Takes bytes that were read at `at`, and hands over each event with generated material.
    pub fn feed(
        &mut self,
        at: Stamp,
        bytes: &[u8],
        on_token: &mut dyn FnMut(TokenEvent),
    ) -> Progress {
        self.bytes += bytes.len() as u64;
        if let Mode::Unsure(content_type) = &self.mode
            && let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            self.mode = match first {
                b'{' | b'[' | b'<' | b'"' => Mode::Refused {
                    class: FailureClass::NotAStream,
                    what: match content_type.as_str() {
                        "" => "no event stream".to_owned(),
                        content_type => format!("content-type {content_type}"),
                    },
                    body: Vec::new(),
                },
                _ => Mode::Stream,
            };
        }
        match &mut self.mode {
            Mode::Unsure(_) => {
                // Blanks so far: they belong to the first line, should it become a stream.
                self.sse.feed(bytes, &mut |_| {});
                Progress::More
            }
            Mode::Refused { body, .. } => {
                let bytes = if body.is_empty() { bytes.trim_ascii_start() } else { bytes };
                body.extend_from_slice(&bytes[..bytes.len().min(LONGEST_REFUSAL - body.len())]);
                if body.len() < LONGEST_REFUSAL { Progress::More } else { Progress::Over }
            }
            Mode::Stream => {
                let reading = &mut self.reading;
                self.sse.feed(bytes, &mut |message| reading.take(at, message, on_token));
                if !self.sse.spoke() {
                    let room = LONGEST_REFUSAL.saturating_sub(self.stray.len());
                    self.stray.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                if reading.is_over() { Progress::Over } else { Progress::More }
            }
        }
    }

    /// When something generated came last, as text or by the server's count. Anything else is no sign
    /// of life.
    pub fn last_token(&self) -> Option<Stamp> {
        self.reading.alive
    }

    /// Ends it. `at` is when the end was learnt of; `sent` is when the request went out.
    pub fn end(
        mut self,
        stream: u32,
        sent: Stamp,
        at: Stamp,
        end: &End,
        on_token: &mut dyn FnMut(TokenEvent),
    ) -> Trace {
        if let Mode::Refused { class, what, body } = &self.mode {
            let failure = Failure::new(*class, refusal(what, body));
            self.reading.failure = Some((failure, at));
        }
        self.reading.hidden_tokens(on_token);
        let (outcome, ended) = self.outcome(at, end);
        let reading = self.reading;
        let mut warnings = Vec::new();
        let events = match outcome {
            Outcome::Complete => {
                if reading.tally.last().is_none() {
                    warnings.push(Warning::NoUsage);
                }
                if !reading.done {
                    warnings.push(Warning::NoDone);
                }
                if reading.finish.is_none() {
                    warnings.push(Warning::NoFinishReason);
                }
                reading.tally.finish()
            }
            Outcome::Cancelled | Outcome::Failed(_) => reading.tally.cut(),
        };
        let finish = reading.finish.map(|(finish, _)| finish);
        Trace { stream, sent, events, ended, outcome, finish, usage: reading.usage, warnings }
    }

    fn outcome(&self, at: Stamp, end: &End) -> (Outcome, Stamp) {
        let reading = &self.reading;
        let failed = |class, message: String| (Outcome::Failed(Failure::new(class, message)), at);
        if let Some((failure, at)) = &reading.failure {
            return (Outcome::Failed(failure.clone()), *at);
        }
        let tokens = reading.tally.events();
        if reading.done || reading.finish.is_some() {
            // What comes behind the last token and the finish reason (usage, `[DONE]`, a silence)
            // does not move the end.
            let last = tokens.last().map(|event| event.at);
            let finish = reading.finish.map(|(_, at)| at);
            return match last {
                Some(last) => (Outcome::Complete, finish.map_or(last, |at| at.max(last))),
                None => failed(FailureClass::NoOutput, "ended without a token".to_owned()),
            };
        }
        let after = match tokens.len() {
            1 => "1 event with tokens".to_owned(),
            n => format!("{n} events with tokens"),
        };
        match end {
            End::Cancelled => (Outcome::Cancelled, at),
            End::Idle(limit) => failed(
                FailureClass::Stalled,
                format!("nothing generated for {} s, after {after}", limit.as_secs_f64()),
            ),
            End::TimedOut(limit) => failed(
                FailureClass::Stalled,
                format!("not finished within {} s, after {after}", limit.as_secs_f64()),
            ),
            End::Broken(words) => {
                failed(FailureClass::Truncated, format!("broke off after {after}: {words}"))
            }
            End::Clean if self.bytes > 0 && !self.sse.spoke() => {
                let what = "the body is no event stream";
                failed(FailureClass::NotAStream, refusal(what, &self.stray))
            }
            End::Clean if self.bytes == 0 => {
                failed(FailureClass::Truncated, "the body is empty".to_owned())
            }
            End::Clean => failed(
                FailureClass::Truncated,
                format!("ended after {after} with neither finish reason nor [DONE]"),
            ),
        }
    }
}

/// A trace of a request that got no answer.
pub fn unanswered(stream: u32, sent: Stamp, at: Stamp, outcome: Outcome) -> Trace {
    Trace {
        stream,
        sent,
        events: Vec::new(),
        ended: at,
        outcome,
        finish: None,
        usage: None,
        warnings: Vec::new(),
    }
}

impl Reading {
    fn is_over(&self) -> bool {
        self.done || self.failure.is_some()
    }

    fn take(&mut self, at: Stamp, message: Message<'_>, on_token: &mut dyn FnMut(TokenEvent)) {
        if self.is_over() {
            return;
        }
        let read = event::read(message.data);
        if message.event == b"error" {
            let words = match read {
                Event::Error(words) => words,
                Event::Done | Event::Chunk(_) | Event::Foreign | Event::Malformed => {
                    event::error_message(message.data).unwrap_or_else(|| excerpt(message.data))
                }
            };
            self.failure = Some((Failure::new(FailureClass::ServerError, words), at));
            return;
        }
        match read {
            Event::Done => self.done = true,
            Event::Chunk(chunk) => self.chunk(at, chunk, on_token),
            Event::Error(words) => {
                self.failure = Some((Failure::new(FailureClass::ServerError, words), at));
            }
            Event::Foreign => {}
            // Named events (`ping`) are another party's, whatever they carry.
            Event::Malformed if !message.event.is_empty() && message.event != b"message" => {}
            Event::Malformed => {
                let words = format!("no JSON: {}", excerpt(message.data));
                self.failure = Some((Failure::new(FailureClass::Malformed, words), at));
            }
        }
    }

    fn chunk(&mut self, at: Stamp, chunk: Chunk, on_token: &mut dyn FnMut(TokenEvent)) {
        if chunk.generated {
            self.tally.event(at);
            self.alive = Some(at);
        }
        if chunk.usage != Usage::default() {
            let usage = self.usage.get_or_insert_default();
            usage.prompt = chunk.usage.prompt.or(usage.prompt);
            usage.completion = chunk.usage.completion.or(usage.completion);
            usage.cached = chunk.usage.cached.or(usage.cached);
        }
        if let Some(count) = chunk.usage.completion {
            if count > self.tally.last().unwrap_or(0) {
                self.alive = Some(at);
            }
            self.tally.count(count);
        }
        if chunk.generated
            && let Some(event) = self.tally.events().last()
        {
            on_token(*event);
        }
        match chunk.finish {
            Some(Finish::Aborted(reason)) => {
                let words = format!("finish reason {reason}");
                self.failure = Some((Failure::new(FailureClass::Aborted, words), at));
            }
            Some(finish) => {
                self.finish.get_or_insert((finish, at));
            }
            None => {}
        }
    }

    /// A request that reached its token limit without visible text (its one token was half a
    /// character) has generated by the server's own count: its tokens stand at the finish.
    fn hidden_tokens(&mut self, on_token: &mut dyn FnMut(TokenEvent)) {
        if let (Some((Finish::Length, at)), Some(count @ 1..)) = (self.finish, self.tally.last())
            && self.tally.events().is_empty()
            && self.failure.is_none()
        {
            self.tally.event(at);
            self.tally.count(count);
            if let Some(event) = self.tally.events().last() {
                on_token(*event);
            }
        }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(1200)]).trim().to_owned()
}

fn refusal(what: &str, body: &[u8]) -> String {
    match event::error_message(body) {
        Some(words) => format!("{what}: {words}"),
        None if body.trim_ascii().is_empty() => what.to_owned(),
        None => format!("{what}: {}", excerpt(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Head<'_> =
        Head { status: 200, content_type: Some("text/event-stream"), content_encoding: None };

    /// Feeds each piece at its index in seconds and ends one second later.
    fn trace(head: Head<'_>, pieces: &[&str], end: &End) -> Trace {
        let mut answer = Answer::new(head);
        let mut at = Stamp(0);
        for piece in pieces {
            at = at + Duration::from_secs(1);
            if answer.feed(at, piece.as_bytes(), &mut |_| {}) == Progress::Over {
                return answer.end(0, Stamp(0), at, &End::Clean, &mut |_| {});
            }
        }
        answer.end(0, Stamp(0), at + Duration::from_secs(1), end, &mut |_| {})
    }

    fn text(text: &str, finish: &str, rest: &str) -> String {
        format!(
            "data: {{\"choices\":[{{\"text\":\"{text}\",\"finish_reason\":{finish}}}]{rest}}}\n\n"
        )
    }

    fn class(trace: &Trace) -> FailureClass {
        match &trace.outcome {
            Outcome::Failed(failure) => failure.class,
            other @ (Outcome::Complete | Outcome::Cancelled) => {
                panic!("not failed but {other:?}")
            }
        }
    }

    fn seconds(stamp: Stamp) -> f64 {
        stamp.seconds_since(Stamp(0))
    }

    #[test]
    fn a_late_usage_event_does_not_move_the_end() {
        let trace = trace(
            STREAM,
            &[
                &text("a", "null", ""),
                &text("b", "\"length\"", ""),
                "data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n",
                "data: [DONE]\n\n",
            ],
            &End::Clean,
        );
        assert_eq!(trace.outcome, Outcome::Complete);
        assert_eq!(seconds(trace.ended), 2.0);
        assert_eq!(trace.events.iter().map(|e| e.tokens).collect::<Vec<_>>(), [Some(3), Some(2)]);
        assert_eq!(trace.warnings, []);
    }

    #[test]
    fn a_stream_that_goes_silent_stalls_but_not_behind_its_finish_reason() {
        let idle = End::Idle(Duration::from_secs(60));
        let silent = trace(STREAM, &[&text("a", "null", ""), ": ping\n\n"], &idle);
        let Outcome::Failed(failure) = &silent.outcome else { panic!("{silent:?}") };
        assert_eq!(failure.class, FailureClass::Stalled);
        assert_eq!(failure.message, "nothing generated for 60 s, after 1 event with tokens");
        let finished = trace(STREAM, &[&text("a", "\"stop\"", "")], &idle);
        assert_eq!(finished.outcome, Outcome::Complete);
        assert_eq!(finished.warnings, [Warning::NoUsage, Warning::NoDone]);
        assert_eq!(seconds(finished.ended), 1.0);
    }

    #[test]
    fn counts_that_grow_are_a_sign_of_life_and_pings_are_none() {
        let mut answer = Answer::new(STREAM);
        let mut alive_after = |at, piece: &str| {
            answer.feed(Stamp(at), piece.as_bytes(), &mut |_| {});
            answer.last_token()
        };
        let counted =
            |count: u64| text("", "null", &format!(",\"usage\":{{\"completion_tokens\":{count}}}"));
        assert_eq!(alive_after(1, &counted(0)), None);
        assert_eq!(alive_after(2, &text("a", "null", "")), Some(Stamp(2)));
        assert_eq!(alive_after(3, ": ping\n\n"), Some(Stamp(2)));
        assert_eq!(alive_after(4, &text("", "null", "")), Some(Stamp(2)));
        assert_eq!(alive_after(5, &counted(2)), Some(Stamp(5)));
        assert_eq!(alive_after(6, &counted(2)), Some(Stamp(5)));
    }

    #[test]
    fn a_cut_stream_keeps_its_events_and_counts() {
        let running = ",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}";
        let trace = trace(STREAM, &[&text("a", "null", running)], &End::Cancelled);
        assert_eq!(trace.outcome, Outcome::Cancelled);
        assert_eq!(trace.events[0].tokens, Some(3));
        assert_eq!(trace.usage.unwrap().prompt, Some(7));
    }

    #[test]
    fn an_abort_fails_even_before_done() {
        let abort = trace(STREAM, &[&text("a", "\"abort\"", ""), "data: [DONE]\n\n"], &End::Clean);
        assert_eq!(class(&abort), FailureClass::Aborted);
    }

    #[test]
    fn named_events_are_foreign_but_an_error_event_is_an_error() {
        let ping = "event: ping\ndata: still here\n\n";
        let good =
            trace(STREAM, &[ping, &text("a", "\"stop\"", ""), "data: [DONE]\n\n"], &End::Clean);
        assert_eq!(good.outcome, Outcome::Complete);
        let error = trace(STREAM, &["event: error\ndata: out of memory\n\n"], &End::Clean);
        let Outcome::Failed(failure) = &error.outcome else { panic!("{error:?}") };
        assert_eq!(
            (failure.class, failure.message.as_str()),
            (FailureClass::ServerError, "out of memory")
        );
        let junk = trace(STREAM, &["data: still here\n\n"], &End::Clean);
        assert_eq!(class(&junk), FailureClass::Malformed);
    }

    #[test]
    fn one_hidden_token_at_the_limit_is_a_token_by_the_servers_count() {
        let usage = ",\"usage\":{\"completion_tokens\":1}";
        let mut told = Vec::new();
        let mut answer = Answer::new(STREAM);
        answer.feed(Stamp(5), text("", "\"length\"", usage).as_bytes(), &mut |_| {});
        answer.feed(Stamp(9), b"data: [DONE]\n\n", &mut |_| {});
        let trace = answer.end(0, Stamp(0), Stamp(9), &End::Clean, &mut |event| told.push(event));
        assert_eq!(trace.outcome, Outcome::Complete);
        assert_eq!(trace.events, [TokenEvent { at: Stamp(5), tokens: Some(1) }]);
        assert_eq!(told, trace.events);
    }

    #[test]
    fn what_is_no_stream_is_refused_with_the_servers_words() {
        let head = |status, content_type| Head { status, content_type, content_encoding: None };
        let words = |trace: &Trace| match &trace.outcome {
            Outcome::Failed(failure) => (failure.class, failure.message.clone()),
            other @ (Outcome::Complete | Outcome::Cancelled) => {
                panic!("not failed but {other:?}")
            }
        };
        let json = Some("application/json");
        let busy =
            trace(head(503, json), &[r#"{"error":{"message":"Loading model"}}"#], &End::Clean);
        assert_eq!(words(&busy), (FailureClass::RateLimited, "HTTP 503: Loading model".to_owned()));
        let unknown = trace(head(404, json), &[r#"{"detail":"Not Found"}"#], &End::Clean);
        assert_eq!(words(&unknown), (FailureClass::Status, "HTTP 404: Not Found".to_owned()));
        let empty = trace(head(401, None), &[], &End::Clean);
        assert_eq!(words(&empty), (FailureClass::Status, "HTTP 401".to_owned()));
        let whole = trace(head(200, json), &[r#"{"choices":[{"text":"a"}]}"#], &End::Clean);
        assert_eq!(class(&whole), FailureClass::NotAStream);
        let mislabelled = trace(
            head(200, json),
            &["\n", &text("a", "\"stop\"", ""), "data: [DONE]\n\n"],
            &End::Clean,
        );
        assert_eq!(mislabelled.outcome, Outcome::Complete);
        let mislabelled = trace(STREAM, &["{\"error\":\n ", "\"busy\"}"], &End::Clean);
        let told = "the body is no event stream: busy".to_owned();
        assert_eq!(words(&mislabelled), (FailureClass::NotAStream, told));
        let zipped = Head { content_encoding: Some("gzip"), ..STREAM };
        assert_eq!(class(&trace(zipped, &["\x1f"], &End::Clean)), FailureClass::NotAStream);
    }

    #[test]
    fn messages_are_cut_to_a_sane_length() {
        let long = "é".repeat(5_000_000);
        let error = trace(STREAM, &[&format!("data: {{\"error\":\"{long}\"}}\n\n")], &End::Clean);
        let Outcome::Failed(failure) = &error.outcome else { panic!() };
        assert_eq!(failure.message.chars().count(), 300);
    }
}
