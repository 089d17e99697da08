//! The body of a streamed answer: server-sent events as vLLM writes them.
//!
//! One event a chunk of the scheduler, each in a frame of its own. The unchanging parts are made
//! once; an event costs no allocation of its own.

use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

use super::clock::Order;
use super::request::Wanted;
use super::scheduler::{Chunk, Finish};
use super::tokenizer;
use super::truth::Pen;

/// The connection is to be cut here.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the stream is cut")]
pub(crate) struct Cut;

/// Tells the scheduler that the client has gone, unless the request has ended.
#[derive(Debug)]
pub(crate) struct AbortOnDrop {
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    pub(crate) ordinal: u64,
    pub(crate) ended: bool,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.orders.send(Order::Abort(self.ordinal));
        }
    }
}

/// Names that every event of an answer carries.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The answer's id.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model.
    pub(crate) model: String,
    /// `system_fingerprint`.
    pub(crate) fingerprint: String,
}

enum Stage {
    Tokens,
    Usage,
    Done,
    /// What was written goes out before the connection is cut.
    Cut,
    End,
}

/// The stream of one answer.
pub(crate) struct Stream {
    wanted: Wanted,
    names: Names,
    head: Bytes,
    chunks: mpsc::UnboundedReceiver<Chunk>,
    guard: AbortOnDrop,
    broken: Option<(u64, Option<String>)>,
    pen: Option<Pen>,
    stage: Stage,
    made: u64,
    cached: u64,
    buffer: BytesMut,
    word: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(
        wanted: Wanted,
        names: Names,
        chunks: mpsc::UnboundedReceiver<Chunk>,
        guard: AbortOnDrop,
        broken: Option<(u64, Option<String>)>,
        pen: Option<Pen>,
    ) -> Stream {
        let object = if wanted.chat { "chat.completion.chunk" } else { "text_completion" };
        let model = serde_json::Value::from(names.model.as_str());
        let head = format!(
            r#"data: {{"id":"{}","object":"{object}","created":{},"model":{model},"choices":["#,
            names.id, names.created
        );
        Stream {
            wanted,
            names,
            head: head.into(),
            chunks,
            guard,
            broken,
            pen,
            stage: Stage::Tokens,
            made: 0,
            cached: 0,
            buffer: BytesMut::new(),
            word: Vec::new(),
        }
    }

    fn text(&mut self, tokens: u32) {
        for place in self.made..self.made + u64::from(tokens) {
            self.word.clear();
            tokenizer::spell(tokenizer::answer(self.wanted.digest, place), &mut self.word);
            self.buffer.put_slice(&self.word);
        }
    }

    /// The event of a chunk; before the first of a chat the one that only has a role.
    fn chunk(&mut self, chunk: Chunk) -> Bytes {
        // Generous for one event, so that most are cut from the same allocation.
        self.buffer.reserve(1024 + 4 * chunk.tokens as usize);
        self.cached = chunk.cached;
        let finish = match chunk.finish {
            None => "null",
            Some(Finish::Length) => "\"length\"",
            Some(Finish::Stop) => "\"stop\"",
        };
        if self.wanted.chat && self.made == 0 {
            self.buffer.put_slice(&self.head);
            self.buffer.put_slice(br#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#);
            self.running_usage();
            self.buffer.put_slice(b",\"prompt_token_ids\":null,\"prompt_text\":null}\n\n");
        }
        self.buffer.put_slice(&self.head);
        let open: &[u8] = if self.wanted.chat {
            br#"{"index":0,"delta":{"content":""#
        } else {
            br#"{"index":0,"text":""#
        };
        self.buffer.put_slice(open);
        self.text(chunk.tokens);
        self.made += u64::from(chunk.tokens);
        self.buffer.put_slice(if self.wanted.chat { b"\"}" } else { b"\"" });
        self.buffer.put_slice(b",\"logprobs\":null,\"finish_reason\":");
        self.buffer.put_slice(finish.as_bytes());
        if !self.wanted.chat || chunk.finish.is_some() {
            self.buffer.put_slice(b",\"stop_reason\":null");
        }
        if !self.wanted.chat {
            self.buffer.put_slice(b",\"prompt_token_ids\":null");
        }
        self.buffer.put_slice(b",\"token_ids\":null}]");
        self.running_usage();
        if chunk.finish.is_some() && !self.wanted.include_usage {
            let fingerprint = serde_json::Value::from(self.names.fingerprint.as_str());
            let _ = write!(self.buffer, ",\"system_fingerprint\":{fingerprint}");
        }
        self.buffer.put_slice(b"}\n\n");
        self.buffer.split().freeze()
    }

    fn running_usage(&mut self) {
        if self.wanted.continuous_usage {
            let (prompt, made) = (self.wanted.prompt, self.made);
            let _ = write!(
                self.buffer,
                r#","usage":{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{made}}}"#,
                prompt + made
            );
        }
    }

    fn usage(&self) -> Bytes {
        let (prompt, made) = (self.wanted.prompt, self.made);
        let head = String::from_utf8_lossy(&self.head);
        format!(
            "{head}],\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{made},\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}},\"system_fingerprint\":{}}}\n\n",
            prompt + made,
            self.cached,
            serde_json::Value::from(self.names.fingerprint.as_str())
        )
        .into()
    }
}

/// An error object inside a stream.
pub(crate) fn error_event(message: &str, kind: &str, code: u16) -> String {
    let message = serde_json::Value::from(message);
    format!(
        "data: {{\"error\": {{\"message\": {message}, \"type\": \"{kind}\", \"param\": null, \"code\": {code}}}}}\n\n"
    )
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        let bytes = match this.stage {
            Stage::Tokens => {
                if let Some((after, message)) = &this.broken
                    && this.made >= *after
                {
                    let Some(message) = message else {
                        this.stage = Stage::Cut;
                        // Waiting once makes hyper flush.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    };
                    this.stage = Stage::Done;
                    let event = error_event(message, "InternalServerError", 500);
                    return Poll::Ready(Some(Ok(Frame::data(event.into()))));
                }
                let Some(chunk) = ready!(this.chunks.poll_recv(cx)) else {
                    // The scheduler is gone and with it every connection.
                    this.stage = Stage::End;
                    return Poll::Ready(Some(Err(Cut)));
                };
                if chunk.finish.is_some() {
                    this.guard.ended = true;
                    this.stage = if this.wanted.include_usage { Stage::Usage } else { Stage::Done };
                }
                let bytes = this.chunk(chunk);
                if let Some(pen) = &this.pen {
                    pen.hand(this.guard.ordinal, this.made, chunk.tokens);
                }
                bytes
            }
            Stage::Usage => {
                this.stage = Stage::Done;
                this.usage()
            }
            Stage::Done => {
                this.stage = Stage::End;
                Bytes::from_static(b"data: [DONE]\n\n")
            }
            Stage::Cut => {
                this.stage = Stage::End;
                return Poll::Ready(Some(Err(Cut)));
            }
            Stage::End => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}
