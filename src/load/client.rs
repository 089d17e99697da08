//! The client of one stream: one keep-alive HTTP/1.1 connection, one request at a time, a trace of
//! each.
//!
//! Connection, answer and time-outs are driven by the task that calls it and by no other, so that a
//! read is stamped when it happens and nobody has to be woken. A connection is opened before a
//! request's clock starts; one that died while idle is replaced, and its delay enters no latency.
//! What bytes mean is decided in `answer`; redirects, proxies and TLS are not followed.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::answer::{self, Answer, End, Head, Progress};
use super::socket::{Marks, Socket};
use super::{Cancel, Dialect, Failure, FailureClass, Outcome, Prepared, TokenEvent, Trace};
use crate::clock::{Clock, Stamp};
use crate::transport::Transport;

/// Longest time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Within this time of its sending, a request lost with an idle connection is sent once more: the
/// server had closed the connection and has not seen it.
const LOST_AT_ONCE: Duration = Duration::from_secs(1);

/// Largest read buffer of a connection, in bytes; it begins with 8 KiB.
const READ_BUFFER: usize = 64 * 1024;

/// Pieces of an old answer that are thrown away before its connection is given up.
const OLD_PIECES: usize = 16;

/// Where requests go, and what they all carry.
#[derive(Clone)]
pub struct Endpoint {
    /// Base url without `/v1`; plain http.
    pub url: String,
    /// The way there.
    pub transport: Transport,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// How the engine is asked for exact lengths and counts.
    pub dialect: Dialect,
}

impl std::fmt::Debug for Endpoint {
    // Values of headers stay out: an api key is among them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Endpoint")
            .field("transport", &self.transport)
            .field("headers", &names)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

/// An endpoint that no request can go to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// The url is none, or has no host.
    #[error("`{0}` is no url of a server: write it like \"http://127.0.0.1:8000\"")]
    Url(String),
    /// Another scheme than http.
    #[error("streams are measured over plain http, not {0}: give the engine's own http address")]
    Scheme(String),
    /// A header that HTTP does not allow. The value is not shown.
    #[error("header `{0}` cannot be sent: names are like x-tenant, values are one line of text")]
    Header(String),
}

/// An endpoint taken apart.
#[derive(Debug)]
struct Target {
    transport: Transport,
    host: String,
    port: u16,
    prefix: String,
    headers: HeaderMap,
}

impl Target {
    fn new(endpoint: &Endpoint) -> Result<Target, BadEndpoint> {
        let bad = || BadEndpoint::Url(endpoint.url.clone());
        let uri: Uri = endpoint.url.parse().map_err(|_| bad())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => return Err(BadEndpoint::Scheme(other.to_owned())),
            None => return Err(bad()),
        }
        let authority = uri.authority().ok_or_else(bad)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let prefix = uri.path().trim_end_matches('/');
        let (user, at) = match authority.as_str().rsplit_once('@') {
            Some((user, at)) => (Some(user), at),
            None => (None, authority.as_str()),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(at).map_err(|_| bad())?);
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("tokgate/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(user) = user {
            let user: Vec<u8> = percent_decode_str(user).collect();
            let basic = format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(user));
            let basic = HeaderValue::from_str(&basic).map_err(|_| bad())?;
            headers.insert(header::AUTHORIZATION, basic);
        }
        for (name, value) in &endpoint.headers {
            let refused = || BadEndpoint::Header(name.clone());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
            headers.insert(key, HeaderValue::from_str(value).map_err(|_| refused())?);
        }
        Ok(Target {
            transport: endpoint.transport.clone(),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
            prefix: prefix.strip_suffix("/v1").unwrap_or(prefix).to_owned(),
            headers,
        })
    }

    async fn connect(&self, clock: Clock) -> Result<Box<Wire>, Failure> {
        let refused = |words: String| {
            let words = format!("no connection to {}:{}: {words}", self.host, self.port);
            Failure::new(FailureClass::Connection, words)
        };
        let socket = match &self.transport {
            Transport::InProcess(connect) => Socket::in_process(connect(), clock),
            Transport::Tcp | Transport::Relayed(_) => {
                let connecting = async {
                    match &self.transport {
                        Transport::Relayed(relay) => TcpStream::connect(relay.address()).await,
                        Transport::Tcp | Transport::InProcess(_) => {
                            TcpStream::connect((self.host.as_str(), self.port)).await
                        }
                    }
                };
                let stream = tokio::time::timeout(CONNECT_LIMIT, connecting)
                    .await
                    .map_err(|_| refused(format!("none in {} s", CONNECT_LIMIT.as_secs())))?
                    .map_err(|error| refused(error.to_string()))?;
                Socket::tcp(stream, clock).map_err(|error| refused(error.to_string()))?
            }
        };
        let (marks, stamped) = (socket.marks(), socket.is_stamped());
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(socket)
            .await
            .map_err(|error| refused(words(&error)))?;
        Ok(Box::new(Wire { sender, connection, marks, stamped, closed: false, old: None }))
    }

    fn request(&self, prepared: &Prepared) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::new(Full::new(prepared.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{}{}", self.prefix, prepared.path).parse().map_err(|_| {
            Failure::new(FailureClass::Connection, format!("`{}` is no path", prepared.path))
        })?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// One connection.
struct Wire {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<Socket, Full<Bytes>>,
    marks: Arc<Marks>,
    /// Whether reads have the kernel's stamps.
    stamped: bool,
    closed: bool,
    /// The answer before, whose body may still have its end to come.
    old: Option<Incoming>,
}

/// One step of a body.
enum Piece {
    Data(Bytes),
    End(End),
}

impl Wire {
    /// Lets the connection read and write what it can.
    fn drive(&mut self, cx: &mut Context<'_>) {
        // Its error, if any, also comes out of the answer or the body.
        if !self.closed && Pin::new(&mut self.connection).poll(cx).is_ready() {
            self.closed = true;
        }
    }

    /// Whether a request can go out now, without waiting for anything.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        for _ in 0..OLD_PIECES {
            let Some(body) = &mut self.old else { break };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) | Poll::Pending => return false,
                Poll::Ready(None) => self.old = None,
            }
            self.drive(cx);
        }
        self.old.is_none()
            && !self.closed
            && matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(())))
    }

    /// The next piece of a body. What the body has is taken before the connection may read again,
    /// so that the last read is the one that brought it.
    ///
    /// Only the connection can move the body on, and it is polled here: the body needs no waker.
    fn poll_piece(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Piece> {
        let quiet = &mut Context::from_waker(Waker::noop());
        let mut driven = false;
        loop {
            match Pin::new(&mut *body).poll_frame(quiet) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => return Poll::Ready(Piece::Data(data)),
                    Err(_trailers) => driven = false,
                },
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Piece::End(End::Broken(words(&error))));
                }
                Poll::Ready(None) => return Poll::Ready(Piece::End(End::Clean)),
                Poll::Pending if self.closed => {
                    let words = "the connection was closed".to_owned();
                    return Poll::Ready(Piece::End(End::Broken(words)));
                }
                Poll::Pending if driven => return Poll::Pending,
                Poll::Pending => {
                    self.drive(cx);
                    driven = true;
                }
            }
        }
    }
}

/// The time-outs of a request. The timer is set anew only when it fires, not at every token.
struct Limits<'a> {
    clock: Clock,
    idle: Duration,
    total: Option<Duration>,
    timer: Pin<&'a mut Sleep>,
}

impl Limits<'_> {
    /// Whether the request, sent at `sent` and last alive at `alive`, has used up its time.
    fn poll(&mut self, sent: Stamp, alive: Stamp, cx: &mut Context<'_>) -> Poll<End> {
        let idle = (alive + self.idle, End::Idle(self.idle));
        let (due, end) = match self.total {
            Some(total) if sent + total < idle.0 => (sent + total, End::TimedOut(total)),
            Some(_) | None => idle,
        };
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.clock.now() >= due {
                return Poll::Ready(end);
            }
            self.timer.as_mut().reset(self.clock.instant(due));
        }
        Poll::Pending
    }
}

/// The client of one stream.
pub struct Client {
    target: Target,
    clock: Clock,
    wire: Option<Box<Wire>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("host", &self.target.host)
            .field("port", &self.target.port)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client without a connection yet.
    ///
    /// # Errors
    /// The url or a header cannot be used.
    pub fn new(endpoint: &Endpoint, clock: Clock) -> Result<Client, BadEndpoint> {
        Ok(Client { target: Target::new(endpoint)?, clock, wire: None })
    }

    /// Makes sure that there is a connection. Call it before the load begins, so that requests do
    /// not wait for it.
    ///
    /// # Errors
    /// A failure of class connection.
    pub async fn open(&mut self) -> Result<(), Failure> {
        if !self.is_live().await {
            self.wire = Some(self.target.connect(self.clock).await?);
        }
        Ok(())
    }

    /// Whether its open connection has the kernel's receive stamps, which do not move when we read
    /// late.
    pub fn is_stamped(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.stamped)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.wire = None;
    }

    /// Sends a request and reads its answer to the end, to the time-out, or until it is cancelled;
    /// in the last two cases the connection is closed, so that the server sees it.
    ///
    /// `on_token` hears each event with generated material at once. Its tokens are those known at
    /// that time; the trace has the final ones.
    pub async fn stream(
        &mut self,
        request: &Prepared,
        stream: u32,
        on_token: &mut (dyn FnMut(TokenEvent) + Send),
        cancel: &mut Cancel,
    ) -> Trace {
        let mut begun = self.clock.now();
        let failed =
            |begun, at, failure| answer::unanswered(stream, begun, at, Outcome::Failed(failure));
        let mut may_repeat = self.is_live().await;
        loop {
            if self.wire.is_none() {
                let opened = tokio::select! {
                    biased;
                    () = cancel.cancelled() => None,
                    opened = self.target.connect(self.clock) => Some(opened),
                };
                let now = self.clock.now();
                match opened {
                    Some(Ok(wire)) => self.wire = Some(wire),
                    Some(Err(failure)) => return failed(begun, now, failure),
                    None => return answer::unanswered(stream, begun, now, Outcome::Cancelled),
                }
                begun = now;
            }
            let Some(wire) = self.wire.take() else { continue };
            let request_head = match self.target.request(request) {
                Ok(head) => head,
                Err(failure) => return failed(begun, begun, failure),
            };
            let exchange = Exchange { clock: self.clock, begun, stream, request };
            match exchange.run(wire, request_head, on_token, cancel).await {
                Ended::Answered(trace, wire) => {
                    self.wire = wire;
                    return trace;
                }
                Ended::Lost { sent, failure } => {
                    let now = self.clock.now();
                    if !std::mem::take(&mut may_repeat) || now.since(sent) > LOST_AT_ONCE {
                        return failed(sent, now, failure);
                    }
                }
            }
        }
    }

    /// Whether the connection kept from before is still good. A dead one is dropped.
    async fn is_live(&mut self) -> bool {
        let Some(mut wire) = self.wire.take() else { return false };
        let ready = std::future::poll_fn(|cx| Poll::Ready(wire.is_ready(cx))).await;
        if ready {
            self.wire = Some(wire);
        }
        ready
    }
}

/// One request on one connection.
struct Exchange<'a> {
    clock: Clock,
    begun: Stamp,
    stream: u32,
    request: &'a Prepared,
}

/// How an exchange ended.
enum Ended {
    /// With a trace, and the connection if it can serve again.
    Answered(Trace, Option<Box<Wire>>),
    /// The connection broke before an answer began.
    Lost { sent: Stamp, failure: Failure },
}

impl Exchange<'_> {
    async fn run(
        self,
        mut wire: Box<Wire>,
        request: Request<Full<Bytes>>,
        on_token: &mut (dyn FnMut(TokenEvent) + Send),
        cancel: &mut Cancel,
    ) -> Ended {
        let Exchange { clock, begun, stream, request: prepared } = self;
        let limits = &mut Limits {
            clock,
            idle: prepared.idle_timeout,
            total: prepared.timeout,
            timer: pin!(tokio::time::sleep(
                prepared.timeout.map_or(prepared.idle_timeout, |t| t.min(prepared.idle_timeout))
            )),
        };
        let mut cancelled = pin!(cancel.cancelled());

        wire.marks.arm();
        let head = {
            let mut answered = pin!(wire.sender.send_request(request));
            let (connection, closed, marks) = (&mut wire.connection, &mut wire.closed, &wire.marks);
            std::future::poll_fn(|cx| {
                if cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(End::Cancelled));
                }
                let quiet = &mut Context::from_waker(Waker::noop());
                if !*closed && Pin::new(&mut *connection).poll(cx).is_ready() {
                    *closed = true;
                }
                if let Poll::Ready(answered) = answered.as_mut().poll(quiet) {
                    return Poll::Ready(Ok(answered));
                }
                if *closed {
                    return Poll::Ready(Err(End::Broken("the connection was closed".to_owned())));
                }
                let sent = marks.first_write().unwrap_or(begun);
                limits.poll(sent, sent, cx).map(Err)
            })
            .await
        };
        let sent = wire.marks.first_write().unwrap_or(begun);
        let response = match head {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let class = if error.is_parse() {
                    FailureClass::Malformed
                } else {
                    FailureClass::Connection
                };
                let failure = Failure::new(class, format!("no answer: {}", words(&error)));
                return Ended::Lost { sent, failure };
            }
            Err(End::Broken(words)) => {
                let failure = Failure::new(FailureClass::Connection, format!("no answer: {words}"));
                return Ended::Lost { sent, failure };
            }
            Err(end @ (End::Clean | End::Cancelled | End::Idle(_) | End::TimedOut(_))) => {
                // An empty stream that ends this way says the right thing.
                let head = Head { status: 200, content_type: None, content_encoding: None };
                let now = clock.now();
                let trace = Answer::new(head).end(stream, sent, now, &end, &mut |_| {});
                return Ended::Answered(trace, None);
            }
        };

        let (mut answer, mut body) = (begin(&response), response.into_body());
        loop {
            let step = std::future::poll_fn(|cx| {
                if cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Piece::End(End::Cancelled));
                }
                if let Poll::Ready(piece) = wire.poll_piece(&mut body, cx) {
                    return Poll::Ready(piece);
                }
                let alive = answer.last_token().unwrap_or(sent);
                limits.poll(sent, alive, cx).map(Piece::End)
            })
            .await;
            match step {
                Piece::Data(data) => {
                    let at = wire.marks.last_read();
                    if answer.feed(at, &data, &mut |event| on_token(event)) == Progress::Over {
                        let trace =
                            answer.end(stream, sent, at, &End::Clean, &mut |event| on_token(event));
                        let good = trace.outcome == Outcome::Complete;
                        wire.old = Some(body);
                        return Ended::Answered(trace, good.then_some(wire));
                    }
                }
                Piece::End(end) => {
                    let at = match end {
                        End::Clean | End::Broken(_) => wire.marks.last_read(),
                        End::Cancelled | End::Idle(_) | End::TimedOut(_) => clock.now(),
                    };
                    let trace = answer.end(stream, sent, at, &end, &mut |event| on_token(event));
                    let reusable = end == End::Clean && !wire.closed;
                    return Ended::Answered(trace, reusable.then_some(wire));
                }
            }
        }
    }
}

fn begin(response: &Response<Incoming>) -> Answer {
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    Answer::new(Head {
        status: response.status().as_u16(),
        content_type: text(header::CONTENT_TYPE),
        content_encoding: text(header::CONTENT_ENCODING),
    })
}

/// An error with its causes, in one line.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, BadEndpoint> {
        Target::new(&Endpoint {
            url: url.to_owned(),
            transport: Transport::Tcp,
            headers: vec![("X-Tenant".to_owned(), "perf".to_owned())],
            dialect: Dialect::OpenAi,
        })
    }

    #[test]
    fn urls_are_taken_apart() {
        let plain = target("http://127.0.0.1:8000").unwrap();
        assert_eq!(
            (plain.host.as_str(), plain.port, plain.prefix.as_str()),
            ("127.0.0.1", 8000, "")
        );
        assert_eq!(plain.headers["host"], "127.0.0.1:8000");
        assert_eq!(plain.headers["x-tenant"], "perf");
        assert_eq!(plain.headers["accept-encoding"], "identity");
        let six = target("http://[::1]:8000/proxy/v1/").unwrap();
        assert_eq!((six.host.as_str(), six.prefix.as_str()), ("::1", "/proxy"));
        assert_eq!(six.headers["host"], "[::1]:8000");
        let user = target("http://me:s%40crt@host").unwrap();
        assert_eq!((user.host.as_str(), user.port), ("host", 80));
        assert_eq!(user.headers["host"], "host");
        assert_eq!(user.headers["authorization"], "Basic bWU6c0BjcnQ=");
    }

    #[test]
    fn what_cannot_be_an_endpoint_is_refused() {
        assert_eq!(target("https://host").unwrap_err(), BadEndpoint::Scheme("https".to_owned()));
        assert!(matches!(target("127.0.0.1"), Err(BadEndpoint::Url(_))));
        assert!(matches!(target("/v1"), Err(BadEndpoint::Url(_))));
    }
}
