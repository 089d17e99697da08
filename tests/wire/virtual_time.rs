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
