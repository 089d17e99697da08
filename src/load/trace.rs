//! A trace: what one request did, with a stamp for everything that matters.
//!
//! Plain values. Which figures come of them is decided in `measure`.

use serde::{Deserialize, Serialize};

use super::event::Finish;
use crate::clock::Stamp;

/// One event of a stream that carried generated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEvent {
    /// When its bytes were read.
    pub at: Stamp,
    /// Tokens in it by the server's running count; `None` until a count is known. When only a final
    /// usage came, the client spreads it over the events before it hands the trace out.
    pub tokens: Option<u32>,
}

/// What the server said it counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens generated.
    pub completion: Option<u64>,
    /// Tokens of the prompt that came out of the prefix cache.
    pub cached: Option<u64>,
}

/// Why a request entered no figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of it.
    pub class: FailureClass,
    /// The server's or the system's own words, cut to 300 characters.
    pub message: String,
}

/// Longest message of a failure, in characters.
const LONGEST_MESSAGE: usize = 300;

impl Failure {
    /// A failure with its message cut to 300 characters.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        if let Some((cut, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
            message.truncate(cut);
        }
        Failure { class, message }
    }
}

/// The kinds of failed request.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// No connection, or it broke before an answer began.
    Connection,
    /// 429 or 503: the server asked for patience.
    RateLimited,
    /// Another status than 200.
    Status,
    /// An error told inside a stream that began with 200.
    ServerError,
    /// Finish reason `abort` or `error`.
    Aborted,
    /// The stream ended with neither finish reason nor `[DONE]`.
    Truncated,
    /// Bytes that are no event of the API.
    Malformed,
    /// A well-formed end without a token.
    NoOutput,
    /// A 200 that is no event stream.
    NotAStream,
    /// Nothing generated for longer than the idle limit, or the request's time-out.
    Stalled,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A finish reason that means completion, or `[DONE]`, with at least one token.
    Complete,
    /// Cut by us, for instance at the end of a window; its events count, its end does not.
    Cancelled,
    /// Its figures enter no metric.
    Failed(Failure),
}

/// Conditions worth a word although the request is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// The server gave no usage; the token count is unknown.
    NoUsage,
    /// The stream ended without `[DONE]`.
    NoDone,
    /// The stream ended without a finish reason.
    NoFinishReason,
}

/// One request from its sending to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The ordinal of the stream that sent it.
    pub stream: u32,
    /// When its first byte was handed to the socket.
    pub sent: Stamp,
    /// Events with generated material, in order.
    pub events: Vec<TokenEvent>,
    /// When the last byte that mattered was read.
    pub ended: Stamp,
    /// How it ended.
    pub outcome: Outcome,
    /// What the server said of its end, if it said anything.
    pub finish: Option<Finish>,
    /// The server's last usage, if any came.
    pub usage: Option<Usage>,
    /// Conditions worth a word.
    pub warnings: Vec<Warning>,
}
