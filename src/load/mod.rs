//! Load: requests, when they go out, what they say, how they travel, and the time-stamped traces
//! they leave.
//!
//! It reads streams whatever the server sends, stamps every read at once, and names each failure.
//! It decides nothing about figures or verdicts: `measure` makes figures of traces.

pub mod answer;
pub mod arrival;
pub mod cancel;
pub mod client;
pub mod dataset;
pub mod event;
pub mod fit;
mod kernel;
pub mod length;
mod payload;
pub mod prompt;
pub mod request;
pub mod socket;
pub mod sse;
pub mod tally;
pub mod trace;
pub mod yardstick;

pub use arrival::Arrival;
pub use cancel::{Cancel, Canceller};
pub use client::{Client, Endpoint};
pub use event::Finish;
pub use fit::Fit;
pub use length::Length;
pub use prompt::{Prompt, PromptKey, PromptKind, Vocabulary};
pub use request::{Ask, Prepared};
pub use trace::{Failure, FailureClass, Outcome, TokenEvent, Trace, Usage, Warning};
pub use yardstick::Yardstick;

/// Which of the two OpenAI-compatible endpoints a request goes to.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// `/v1/completions`, with the prompt as token ids where the engine takes them.
    #[default]
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

/// How an engine is asked for exact lengths and for its token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// vLLM, SGLang and sim: `ignore_eos`, running usage by `stream_options.continuous_usage_stats`.
    Vllm,
    /// llama.cpp: `ignore_eos`, running counts by `timings_per_token`, `cache_prompt`.
    LlamaCpp,
    /// Any other server: final usage by `stream_options.include_usage`, nothing else is asked for.
    OpenAi,
}
