//! An engine: something that serves a model. Launching it, watching over it, asking it things,
//! ending it.
//!
//! Each step that can hang has a time-out, and each failure says which step it was. It measures
//! nothing.

pub mod artefact;
pub mod bare;
mod drain;
pub mod exposition;
pub mod facts;
mod guard;
pub mod launch;
pub mod log;
pub mod metrics;
mod port;
mod process;
pub mod readings;
pub mod ready;
pub mod redact;
pub mod remote;
pub mod stranded;
pub mod supervise;
pub(crate) mod tree;
mod wait;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which engine it is: what it can be asked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// Anything with the OpenAI-compatible API.
    Openai,
    /// The simulated engine of this program.
    Sim,
}

/// A command ready to run: rendered and split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// What must hold before load is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadySpec {
    /// Longest time from start to ready.
    pub timeout: Duration,
    /// Whether `/v1/models` must list the model.
    pub models: bool,
    /// Whether a canary completion must yield a token.
    pub completion: bool,
}

/// Which endpoint the canary asks: that of the requests that will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
    /// Completions, or chat where there are none: no request follows.
    Either,
}

/// How an engine is ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopSpec {
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// What to run besides, for what the process tree does not hold.
    pub command: Option<Command>,
}

/// Everything that one launch needs, rendered.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// The launch's name, also that of its log.
    pub name: String,
    /// Which engine.
    pub kind: Kind,
    /// What to start; `None` where an engine is already running at `url`.
    pub command: Option<Command>,
    /// Added to the inherited environment.
    pub env: Vec<(String, String)>,
    /// Files to write before the start: path relative to `dir`, content.
    pub files: Vec<(PathBuf, String)>,
    /// Directory of this launch (engine files).
    pub dir: PathBuf,
    /// The log file.
    pub log: PathBuf,
    /// Host where the engine answers.
    pub host: String,
    /// Port where the engine answers.
    pub port: u16,
    /// Base url without trailing slash, without `/v1`.
    pub url: String,
    /// Headers of every request, rendered; the api key stands here as `authorization`.
    pub headers: Vec<(String, String)>,
    /// Where metrics are read; empty where the kind has none.
    pub metrics_urls: Vec<String>,
    /// The model that requests name; `None`: the first that `/v1/models` lists.
    pub model: Option<String>,
    /// The suite's requirement on the engine's version, as `>=0.28, <0.30`.
    pub version: Option<String>,
    /// Readiness.
    pub ready: ReadySpec,
    /// Which endpoint the canary asks.
    pub canary: Canary,
    /// Stopping.
    pub stop: StopSpec,
    /// Texts that the log must hold once ready.
    pub log_must_contain: Vec<String>,
}

/// What an engine says of itself once it is ready.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Facts {
    /// Version as the engine says it.
    pub version: Option<String>,
    /// The model id that requests use.
    pub model: String,
    /// KV cache capacity in tokens.
    pub kv_capacity: Option<u64>,
    /// Longest prompt + output in tokens.
    pub max_model_len: Option<u64>,
    /// Whether it has a tokenizer endpoint.
    pub tokenize: bool,
    /// Streams that it serves at once, where it says so (llama.cpp's slots).
    pub slots: Option<u64>,
}
