//! The same client in virtual time: over a pipe in memory to a hyper server, as fast as the machine
//! can, and with every stamp exact.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokgate::clock::Clock;
use tokgate::load::Outcome;
use tokgate::measure::observe::{self, DecodeInput};
use tokgate::measure::{Base, Observations};
use tokgate::transport::Transport;
use tokio::time::{Instant, Sleep};

use super::{client_of, one, request};

const TOKENS: u64 = 500;
const FIRST: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(20);

/// A body of one token a step, counted as it goes.
struct Tokens {
    due: Pin<Box<Sleep>>,
    begun: Instant,
    given: u64,
}

impl Body for Tokens {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.given > TOKENS {
            return Poll::Ready(None);
        }
        if self.given == TOKENS {
            self.given += 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: [DONE]\n\n")))));
        }
        std::task::ready!(self.due.as_mut().poll(cx));
        self.given += 1;
        let finish = if self.given == TOKENS { "\"length\"" } else { "null" };
        let event = format!(
            "data: {{\"choices\":[{{\"text\":\"a\",\"finish_reason\":{finish}}}],\
             \"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":{}}}}}\n\n",
            self.given
        );
        let due = self.begun + FIRST + STEP * u32::try_from(self.given).unwrap();
        self.due.as_mut().reset(due);
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}

fn connect() -> tokio::io::DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service_fn(|_: Request<_>| async {
        let begun = Instant::now();
        let due = Box::pin(tokio::time::sleep_until(begun + FIRST));
        let response = Response::builder()
            .header("content-type", "text/event-stream")
            .body(Tokens { due, begun, given: 0 });
        Ok::<_, Infallible>(response.unwrap())
    });
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
    tokio::spawn(async move { serving.await.ok() });
    near
}

#[tokio::test(start_paused = true)]
async fn eight_streams_of_five_hundred_tokens_have_exact_stamps() {
    let clock = Clock::start();
    let streams: Vec<_> = (0..8)
        .map(|_| {
            let transport = Transport::InProcess(Arc::new(connect));
            let mut client = client_of("http://sim".to_owned(), transport, clock);
            tokio::spawn(async move {
                client.open().await.unwrap();
                let first = one(&mut client, &request(Duration::from_secs(1))).await;
                let second = one(&mut client, &request(Duration::from_secs(1))).await;
                [first, second]
            })
        })
        .collect();
    for stream in streams {
        for trace in stream.await.unwrap() {
            assert_eq!(trace.outcome, Outcome::Complete);
            assert_eq!(trace.events.len(), 500);
            assert_eq!(trace.events[0].at.since(trace.sent), FIRST);
            for pair in trace.events.windows(2) {
                assert_eq!(pair[1].at.since(pair[0].at), STEP);
            }
            assert!(trace.events.iter().all(|event| event.tokens == Some(1)));
            assert_eq!(trace.ended, trace.events[499].at);
        }
    }
}

/// A body of pieces, each after its pause.
struct Paced {
    due: Pin<Box<Sleep>>,
    left: std::vec::IntoIter<(Duration, String)>,
    next: Option<String>,
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.next.is_none() {
            let Some((pause, piece)) = self.left.next() else { return Poll::Ready(None) };
            self.next = Some(piece);
            let due = Instant::now() + pause;
            self.due.as_mut().reset(due);
        }
        std::task::ready!(self.due.as_mut().poll(cx));
        Poll::Ready(self.next.take().map(|piece| Ok(Frame::data(piece.into()))))
    }
}

/// First token at 400 ms, then ten more every 50 ms, and the count 300 ms behind the last.
fn paced(chat: bool) -> Paced {
    let ms = Duration::from_millis;
    let event = |text: &str, finish: &str| {
        let text = if chat {
            format!("\"delta\":{{\"content\":\"{text}\"}}")
        } else {
            format!("\"text\":\"{text}\"")
        };
        format!("data: {{\"choices\":[{{{text},\"finish_reason\":{finish}}}]}}\n\n")
    };
    let mut pieces = Vec::new();
    if chat {
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        pieces.push((ms(100), role.to_owned()));
    }
    pieces.push((ms(if chat { 300 } else { 400 }), event("a", "null")));
    for count in 1..=10 {
        pieces.push((ms(50), event("a", if count == 10 { "\"length\"" } else { "null" })));
    }
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":11}}\n\n";
    pieces.push((ms(300), usage.to_owned()));
    pieces.push((ms(0), "data: [DONE]\n\n".to_owned()));
    Paced { due: Box::pin(tokio::time::sleep(ms(0))), left: pieces.into_iter(), next: None }
}

#[tokio::test(start_paused = true)]
async fn both_apis_give_the_same_figures_and_a_late_count_moves_no_end() {
    let mut figures = Vec::new();
    for chat in [false, true] {
        let connect = move || {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let service = service_fn(move |_: Request<_>| async move {
                let response = Response::builder()
                    .header("content-type", "text/event-stream")
                    .body(paced(chat));
                Ok::<_, Infallible>(response.unwrap())
            });
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(far), service);
            tokio::spawn(async move { serving.await.ok() });
            near
        };
        let transport = Transport::InProcess(Arc::new(connect));
        let mut client = client_of("http://sim".to_owned(), transport, Clock::start());
        let trace = one(&mut client, &request(Duration::from_secs(1))).await;
        assert_eq!(trace.outcome, Outcome::Complete);
        assert_eq!(observe::ttft(&trace), Some(400.0));
        assert_eq!(trace.ended.since(trace.sent), Duration::from_millis(900));
        let input = DecodeInput { from: trace.sent, to: trace.ended, batches: 1, traces: &[trace] };
        let found = observe::decode(&input);
        assert_eq!(found[&Base::Itl], Observations::Samples(vec![50.0; 10]));
        assert_eq!(found[&Base::ChunkGap], Observations::Samples(vec![50.0; 10]));
        assert_eq!(found[&Base::Tpot], Observations::Samples(vec![50.0]));
        assert_eq!(found[&Base::OutputTokens], Observations::Exact(11.0));
        figures.push(found);
    }
    assert_eq!(figures[0], figures[1]);
}
