//! The HTTP surface: vLLM's paths, answers and refusals.
//!
//! It reads requests, hands them to the scheduler and writes what comes back. When a token is due
//! is decided elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, SERVER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::clock::{Order, SharedGauges, drive};
use super::metrics;
use super::noise::mix;
use super::profile::Profile;
use super::request::{self, Refusal, Wanted};
use super::scheduler::{Finish, Job, Scheduler};
use super::script::{self, Asked, Fate};
use super::stream::{AbortOnDrop, Names, Stream, error_event};
use super::tokenizer;
use super::truth::{self, Pen, Truth};
use crate::clock::{Clock, Stamp};

/// Marks an answer that must not be given: the connection is closed instead.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection is refused")]
pub(crate) struct Hangup;

type Answer = Response<Either<Full<Bytes>, Stream>>;

/// The engine as connections see it.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    profile: Arc<Profile>,
    seed: u64,
    model: String,
    api_key: Option<String>,
    orders: mpsc::UnboundedSender<Order>,
    gauges: SharedGauges,
    clock: Clock,
    ready: Stamp,
    requests: AtomicU64,
    /// Requests on paths that may be mute.
    mute: AtomicU64,
    truth: Option<Truth>,
    started: u64,
}

impl Api {
    /// Starts the scheduler on the current runtime. With `loading`, every path answers 503 until
    /// the profile's start-up has passed; without, the engine has loaded already. The receiver
    /// turns true when a scripted end has come.
    pub(crate) fn start(
        profile: Arc<Profile>,
        seed: u64,
        model: &str,
        api_key: Option<&str>,
        truth: Option<Truth>,
        loading: bool,
    ) -> (Api, watch::Receiver<bool>) {
        let clock = Clock::start();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (death, dead) = watch::channel(false);
        let gauges = SharedGauges::default();
        let scheduler = Scheduler::new(Arc::clone(&profile), seed);
        let end = profile.faults.iter().find_map(script::Fault::while_loading);
        let ready = match end {
            Some(end) if loading => {
                let (after, death) = (end.after, death.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    death.send_replace(true);
                });
                Stamp(u64::MAX)
            }
            None if loading => clock.now() + profile.start_up,
            Some(_) | None => Stamp(0),
        };
        tokio::spawn(drive(scheduler, inbox, clock, Arc::clone(&gauges), death));
        let inner = Inner {
            profile,
            seed,
            model: model.to_owned(),
            api_key: api_key.map(str::to_owned),
            orders,
            gauges,
            clock,
            ready,
            requests: AtomicU64::new(0),
            mute: AtomicU64::new(0),
            truth,
            started: epoch(),
        };
        (Api { inner: Arc::new(inner) }, dead)
    }

    /// A pen for one connection, where there is a truth log.
    pub(crate) fn pen(&self) -> Option<Pen> {
        self.inner.truth.as_ref().map(Truth::pen)
    }

    /// Answers one request; `pen` is its connection's.
    pub(crate) async fn answer(&self, request: Request<Incoming>, pen: Option<Pen>) -> Answer {
        // Due times count from here, before the body is read.
        let arrival = self.inner.clock.now();
        let read_at = truth::now();
        if arrival < self.inner.ready {
            return empty(StatusCode::SERVICE_UNAVAILABLE);
        }
        let path = request.uri().path().to_owned();
        let (faults, seed) = (&self.inner.profile.faults, self.inner.seed);
        if script::may_be_mute(faults, &path) {
            let ordinal = self.inner.mute.fetch_add(1, Ordering::Relaxed) + 1;
            if script::is_mute(faults, seed, &path, ordinal, arrival.since(Stamp(0))) {
                return std::future::pending().await;
            }
        }
        let post = match path.as_str() {
            "/health" | "/ping" | "/version" | "/metrics" | "/v1/models" => false,
            "/v1/completions" | "/v1/chat/completions" | "/tokenize" | "/detokenize" => true,
            _ => return json_answer(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
        };
        if request.method() != (if post { Method::POST } else { Method::GET }) {
            let body = json!({"detail": "Method Not Allowed"});
            let mut answer = json_answer(StatusCode::METHOD_NOT_ALLOWED, &body);
            let allowed = HeaderValue::from_static(if post { "POST" } else { "GET" });
            answer.headers_mut().insert(ALLOW, allowed);
            return answer;
        }
        if path.starts_with("/v1/") && !self.allowed(&request) {
            return json_answer(StatusCode::UNAUTHORIZED, &json!({"error": "Unauthorized"}));
        }
        let inner = &self.inner;
        match path.as_str() {
            "/health" | "/ping" => {
                let sick = inner.sick().is_some();
                return empty(if sick { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK });
            }
            "/version" => return ok(&json!({"version": inner.profile.version})),
            "/v1/models" => return ok(&inner.models()),
            "/metrics" => {
                let gauges = *inner.gauges.lock().unwrap_or_else(PoisonError::into_inner);
                let page = metrics::render(&inner.profile, &inner.model, &gauges, inner.started);
                return text(StatusCode::OK, "text/plain; version=1.0.0; charset=utf-8", page);
            }
            _ => {}
        }
        let Ok(body) = request.into_body().collect().await else {
            // The client went away in the middle of its request.
            return hang_up();
        };
        let body = body.to_bytes();
        match path.as_str() {
            "/tokenize" => match request::tokenize(&body, &inner.model) {
                Ok(tokens) => ok(&json!({
                    "count": tokens.len(),
                    "max_model_len": inner.profile.max_model_len,
                    "tokens": tokens,
                    "token_strs": null,
                })),
                Err(refusal) => refuse(&refusal),
            },
            "/detokenize" => match request::detokenize(&body, &inner.model) {
                Ok(prompt) => ok(&json!({"prompt": prompt})),
                Err(refusal) => refuse(&refusal),
            },
            _ => inner.generate(&body, path == "/v1/chat/completions", arrival, read_at, pen).await,
        }
    }

    fn allowed(&self, request: &Request<Incoming>) -> bool {
        let Some(key) = &self.inner.api_key else { return true };
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        given.and_then(|value| value.strip_prefix("Bearer ")) == Some(key)
    }
}

impl Inner {
    fn models(&self) -> serde_json::Value {
        json!({"object": "list", "data": [{
            "id": self.model,
            "object": "model",
            "created": self.started,
            "owned_by": "vllm",
            "root": self.model,
            "parent": null,
            "max_model_len": self.profile.max_model_len,
            "permission": [],
        }]})
    }

    /// What the engine says that is wrong with it.
    fn sick(&self) -> Option<&str> {
        let generated = self.gauges.lock().unwrap_or_else(PoisonError::into_inner).generated_tokens;
        self.profile.faults.iter().find_map(|fault| fault.sick(generated))
    }

    async fn generate(
        &self,
        body: &[u8],
        chat: bool,
        arrival: Stamp,
        read_at: u64,
        pen: Option<Pen>,
    ) -> Answer {
        let ordinal = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let mut wanted = match request::wanted(body, chat, &self.model, &self.profile) {
            Ok(wanted) => wanted,
            Err(refusal) => return refuse(&refusal),
        };
        let asked = Asked { ordinal, output: wanted.most };
        let Fate { refused, status, stall, broken } =
            script::fate(&self.profile.faults, self.seed, &asked);
        if refused {
            return hang_up();
        }
        let status = status.or_else(|| self.sick().map(|message| (500, message.to_owned())));
        if let Some((status, message)) = status {
            return scripted(status, message);
        }
        let prefix = if chat { "chatcmpl" } else { "cmpl" };
        let names = Names {
            id: format!("{prefix}-{:016x}", mix(self.seed, ordinal)),
            created: epoch(),
            model: self.model.clone(),
            fingerprint: format!("vllm-{}-sim", self.profile.version),
        };
        if let Some(truth) = &self.truth {
            truth.read(read_at, ordinal, &names.id, wanted.prompt, wanted.output);
        }
        let (reply, mut chunks) = mpsc::unbounded_channel();
        let job = Job {
            ordinal,
            arrival,
            prompt: wanted.prompt,
            hashes: std::mem::take(&mut wanted.hashes),
            output: wanted.output,
            finish: wanted.finish,
            stall,
            reply,
        };
        let mut guard = AbortOnDrop { orders: self.orders.clone(), ordinal, ended: false };
        if self.orders.send(Order::Submit(Box::new(job))).is_err() {
            return hang_up();
        }
        if wanted.stream {
            let stream = Stream::new(wanted, names, chunks, guard, broken, pen);
            let mut answer = Response::new(Either::Right(stream));
            head(&mut answer, "text/event-stream; charset=utf-8");
            return answer;
        }
        let mut made = 0;
        while let Some(chunk) = chunks.recv().await {
            made += u64::from(chunk.tokens);
            if broken.as_ref().is_some_and(|(after, _)| made >= *after) {
                break;
            }
            if chunk.finish.is_some() {
                guard.ended = true;
                if let Some(pen) = &pen {
                    pen.hand(ordinal, made, made as u32);
                }
                return ok(&whole(&wanted, &names, chunk.cached));
            }
        }
        match broken {
            Some((_, Some(message))) => scripted(500, message),
            Some((_, None)) | None => hang_up(),
        }
    }
}

/// An answer in one piece.
fn whole(wanted: &Wanted, names: &Names, cached: u64) -> serde_json::Value {
    let ids: Vec<u32> =
        (0..wanted.output).map(|place| tokenizer::answer(wanted.digest, place)).collect();
    let text = tokenizer::decode(&ids);
    let finish = match wanted.finish {
        Finish::Length => "length",
        Finish::Stop => "stop",
    };
    let (object, choice) = if wanted.chat {
        let message = json!({"role": "assistant", "content": text});
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish, "stop_reason": null, "token_ids": null});
        ("chat.completion", choice)
    } else {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null, "token_ids": null});
        ("text_completion", choice)
    };
    json!({
        "id": names.id,
        "object": object,
        "created": names.created,
        "model": names.model,
        "choices": [choice],
        "system_fingerprint": names.fingerprint,
        "usage": {
            "prompt_tokens": wanted.prompt,
            "total_tokens": wanted.prompt + wanted.output,
            "completion_tokens": wanted.output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    })
}

fn refuse(refusal: &Refusal) -> Answer {
    let Refusal { status, kind, param, message, in_stream } = refusal;
    if *in_stream {
        let events = error_event(message, kind, *status) + "data: [DONE]\n\n";
        return text(StatusCode::OK, "text/event-stream; charset=utf-8", events);
    }
    let body = json!({"error": {"message": message, "type": kind, "param": param, "code": status}});
    json_answer(StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_REQUEST), &body)
}

/// A status that the script gives.
fn scripted(status: u16, message: String) -> Answer {
    let kind = match status {
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    refuse(&Refusal { status, kind, param: None, message, in_stream: false })
}

fn hang_up() -> Answer {
    let mut answer = empty(StatusCode::SERVICE_UNAVAILABLE);
    answer.extensions_mut().insert(Hangup);
    answer
}

fn ok(body: &serde_json::Value) -> Answer {
    json_answer(StatusCode::OK, body)
}

fn json_answer(status: StatusCode, body: &serde_json::Value) -> Answer {
    text(status, "application/json", body.to_string())
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Either::Left(Full::default()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(SERVER, HeaderValue::from_static("uvicorn"));
    answer
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Either::Left(Full::from(body)));
    *answer.status_mut() = status;
    head(&mut answer, kind);
    answer
}

fn head(answer: &mut Answer, kind: &'static str) {
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(SERVER, HeaderValue::from_static("uvicorn"));
}

fn epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
