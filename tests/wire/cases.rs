//! Bodies of answers, each with what must come of it: read whole, cut, and byte by byte, by the
//! pure reader and over a socket.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokgate::load::event::{self, Event, Finish};
use tokgate::load::sse::Sse;
use tokgate::load::{FailureClass, Outcome, Trace, Warning};
use tokgate::measure::delivery::Reads;
use tokgate::measure::{Fault, validity};

use super::server::{Act, LAST_CHUNK, Server, head_chunked, head_until_close, http_chunk};
use super::{client, one, request};

struct Case {
    file: String,
    body: Vec<u8>,
    content_type: String,
    split_at: Vec<usize>,
    close: String,
    expect: Value,
}

fn cases() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/cases");
    let index = std::fs::read(directory.join("expected.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cases: Vec<Case> = index["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| Case {
            file: text(&case["file"]),
            body: std::fs::read(directory.join(text(&case["file"]))).unwrap(),
            content_type: text(&case["delivery"]["content_type"]),
            split_at: case["delivery"]["split_at"]
                .as_array()
                .unwrap()
                .iter()
                .map(|at| usize::try_from(at.as_u64().unwrap()).unwrap())
                .collect(),
            close: text(&case["delivery"]["close"]),
            expect: case["expect"].clone(),
        })
        .collect();
    assert_eq!(cases.len(), 35);
    cases
}

impl Case {
    /// The body in the pieces that its delivery names.
    fn pieces(&self) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for &at in &self.split_at {
            pieces.push(&self.body[from..at]);
            from = at;
        }
        pieces.push(&self.body[from..]);
        pieces
    }

    fn is_stream(&self) -> bool {
        self.content_type.starts_with("text/event-stream")
    }
}

/// What the pure reader sees of a body, in the words of `expected.json`.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    completion_events: u64,
    token_events: u64,
    first_token_event: Option<u64>,
    last_token_event: Option<u64>,
    text: String,
    reasoning: String,
    /// The first finish reason: completion, or the limit.
    finish: Option<Finish>,
    done: bool,
}

fn see<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut sse = Sse::new();
    let mut seen = Seen::default();
    let mut over = false;
    for piece in pieces {
        sse.feed(piece, &mut |message| {
            if over {
                return;
            }
            match event::read(message.data) {
                Event::Done => (seen.done, over) = (true, true),
                Event::Error(_) => {
                    seen.completion_events += 1;
                    over = true;
                }
                Event::Chunk(chunk) => {
                    seen.completion_events += 1;
                    if chunk.generated {
                        seen.token_events += 1;
                        seen.first_token_event.get_or_insert(seen.completion_events);
                        seen.last_token_event = Some(seen.completion_events);
                    }
                    seen.finish = seen.finish.or(chunk.finish);
                    let payload: Value = serde_json::from_slice(message.data).unwrap();
                    let choice = &payload["choices"][0];
                    let delta = &choice["delta"];
                    seen.text += choice["text"].as_str().unwrap_or("");
                    seen.text += delta["content"].as_str().unwrap_or("");
                    let reasoning = delta["reasoning"].as_str();
                    let reasoning = reasoning.or(delta["reasoning_content"].as_str());
                    seen.reasoning += reasoning.unwrap_or("");
                }
                Event::Foreign | Event::Malformed => {}
            }
        });
    }
    seen
}

#[test]
fn the_reader_sees_the_same_however_the_bytes_are_cut() {
    for case in cases().iter().filter(|case| case.is_stream()) {
        let whole = see([case.body.as_slice()]);
        let number = |key: &str| case.expect[key].as_u64();
        let expected = Seen {
            completion_events: number("completion_events").unwrap(),
            token_events: number("token_events").unwrap(),
            first_token_event: number("first_token_event"),
            last_token_event: number("last_token_event"),
            text: case.expect["text"].as_str().unwrap().to_owned(),
            reasoning: case.expect["reasoning"].as_str().unwrap().to_owned(),
            finish: case.expect["finish_reason"].as_str().map(|reason| match reason {
                "length" => Finish::Length,
                "stop" | "tool_calls" => Finish::Complete,
                other => panic!("{}: unknown finish reason {other}", case.file),
            }),
            done: case.expect["done_seen"].as_bool().unwrap(),
        };
        assert_eq!(whole, expected, "{}", case.file);
        assert_eq!(see(case.pieces()), whole, "{} in pieces", case.file);
        assert_eq!(see(case.body.chunks(1)), whole, "{} byte by byte", case.file);
    }
}

/// How a body is put on the wire.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    /// One HTTP chunk, one write.
    Whole,
    /// As the case says, an HTTP chunk a piece.
    Cut,
    /// Head and body a byte a write, the body up to the close.
    Trickled,
}

fn script(case: &Case, delivery: Delivery) -> Vec<Act> {
    let mut acts = vec![Act::ReadRequest];
    let pieces = match delivery {
        Delivery::Whole => vec![case.body.as_slice()],
        Delivery::Cut => case.pieces(),
        Delivery::Trickled => {
            let mut bytes = head_until_close(&case.content_type);
            bytes.extend_from_slice(&case.body);
            acts.push(Act::Trickle(bytes));
            Vec::new()
        }
    };
    if !pieces.is_empty() {
        acts.push(Act::Write(head_chunked(&case.content_type)));
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            acts.push(Act::Write(http_chunk(piece)));
            acts.push(Act::Pause(Duration::from_millis(20)));
        }
    }
    match (case.close.as_str(), delivery) {
        // The client has to leave first: it would wait for the idle limit and not finish in time.
        ("hold_open_30s" | "never", _) => acts.push(Act::AwaitClose),
        ("clean", Delivery::Whole | Delivery::Cut) => acts.push(Act::Write(LAST_CHUNK.to_vec())),
        ("clean", Delivery::Trickled) => {}
        (other, _) => panic!("unknown close {other}"),
    }
    acts
}

fn class_name(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Connection => "connection",
        FailureClass::RateLimited => "rate_limited",
        FailureClass::Status => "status",
        FailureClass::ServerError => "server_error",
        FailureClass::Aborted => "aborted",
        FailureClass::Truncated => "truncated",
        FailureClass::Malformed => "malformed",
        FailureClass::NoOutput => "no_output",
        FailureClass::NotAStream => "not_a_stream",
        FailureClass::Stalled => "stalled",
    }
}

fn warning_name(warning: Warning) -> &'static str {
    match warning {
        Warning::NoUsage => "no_usage",
        Warning::NoDone => "no_done",
        Warning::NoFinishReason => "no_finish_reason",
    }
}

fn check(case: &Case, trace: &Trace, how: Delivery) {
    let said = format!("{} {how:?}: {trace:?}", case.file);
    let expect = &case.expect;
    match &trace.outcome {
        Outcome::Complete => assert_eq!(expect["ok"], true, "{said}"),
        Outcome::Failed(failure) => {
            assert_eq!(expect["ok"], false, "{said}");
            assert_eq!(expect["error_class"], class_name(failure.class), "{said}");
            let words = expect["error_text_contains"].as_str().unwrap_or("");
            assert!(failure.message.contains(words), "{said}");
        }
        Outcome::Cancelled => panic!("{said}"),
    }
    assert_eq!(expect["token_events"], trace.events.len(), "{said}");
    let warnings: Vec<_> = trace.warnings.iter().map(|warning| warning_name(*warning)).collect();
    assert_eq!(expect["warnings"], Value::from(warnings), "{said}");
    let usage = trace.usage.unwrap_or_default();
    assert_eq!(expect["usage"]["prompt_tokens"].as_u64(), usage.prompt, "{said}");
    assert_eq!(expect["usage"]["completion_tokens"].as_u64(), usage.completion, "{said}");
    if trace.outcome == Outcome::Complete {
        let tokens: Option<u64> = trace.events.iter().map(|e| e.tokens.map(u64::from)).sum();
        assert_eq!(expect["output_tokens"].as_u64(), tokens, "{said}");
        assert_eq!(Some(trace.ended), trace.events.last().map(|e| e.at.max(trace.ended)), "{said}");
    }
    assert!(trace.events.is_sorted_by_key(|event| event.at), "{said}");
    assert!(trace.events.iter().all(|event| event.at >= trace.sent), "{said}");
}

#[tokio::test]
async fn every_case_comes_out_right_over_a_socket() {
    for case in cases() {
        for delivery in [Delivery::Whole, Delivery::Cut, Delivery::Trickled] {
            let server = Server::start(vec![script(&case, delivery)]);
            let trace = one(&mut client(&server), &request(Duration::from_secs(300))).await;
            check(&case, &trace, delivery);
        }
    }
}

#[tokio::test]
async fn a_burst_is_told_to_be_buffered() {
    let cases = cases();
    let case = cases.iter().find(|case| case.file == "14-burst.sse").unwrap();
    let server = Server::start(vec![script(case, Delivery::Whole)]);
    let trace = one(&mut client(&server), &request(Duration::from_secs(300))).await;
    let mut reads = Reads::default();
    reads.see(&trace);
    assert_eq!(reads, Reads { events: 40, together: 40, most: 40 });
    assert_eq!(validity::buffered(&reads).fault, Some(Fault::Notice));
}
