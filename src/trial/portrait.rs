//! A portrait of an engine: which kind it is, which model it serves, which API, and what it says of itself.
//!
//! It asks, one request after the other; each refusal says what to write instead.

use std::time::Duration;

use serde_json::Value;

use crate::engine::ready::{self, Listed, Sign};
use crate::engine::remote::{Answer, LIMIT, Remote, RemoteError};
use crate::engine::{Facts, Kind, facts};
use crate::transport::Transport;

/// What an engine is.
#[derive(Debug, Clone, PartialEq)]
pub struct Portrait {
    /// Which engine.
    pub kind: Kind,
    /// Whether it only chats.
    pub chat: bool,
    /// What it says of itself.
    pub facts: Facts,
}

/// Why an engine can't be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A url that can't be used.
    #[error("{0}")]
    Url(String),
    /// Nobody answers.
    #[error("no engine answers at {url}: {why}")]
    Dead {
        /// Where.
        url: String,
        /// Why, in words.
        why: String,
    },
    /// It says that it can't serve yet, or any more.
    #[error("the engine at {url} does not serve: {told}")]
    Unready {
        /// Where.
        url: String,
        /// What it said.
        told: String,
    },
    /// It wants a key, or another one.
    #[error("the engine at {url} wants an api key: {told}")]
    Key {
        /// Where.
        url: String,
        /// What it said.
        told: String,
        /// Whether one was sent.
        sent: bool,
    },
    /// Something else answers.
    #[error("what answers at {url} is no OpenAI-compatible engine: {told}")]
    Stranger {
        /// Where.
        url: String,
        /// What it said.
        told: String,
    },
    /// It serves other models.
    #[error("the engine has no model `{wanted}`; it serves {}", quoted(.listed))]
    Model {
        /// What was asked for.
        wanted: String,
        /// What it lists.
        listed: Vec<String>,
    },
    /// It gave no token for the smallest request.
    #[error("the engine made no token of a first request: {told}")]
    Mute {
        /// What it said.
        told: String,
    },
    /// It is too slow for the time that there is.
    #[error("the engine is too slow for {}: {what}", crate::quantity::print_duration(*.budget))]
    Slow {
        /// The time.
        budget: Duration,
        /// What did not end in time.
        what: String,
    },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Refusal {
    /// What to write or do instead.
    pub fn help(&self) -> String {
        match self {
            Refusal::Url(_) => {
                "write the base url of the engine: --url http://127.0.0.1:8000".to_owned()
            }
            Refusal::Dead { .. } => {
                "start the engine first, or look at host and port; or let tokgate start it: tokgate try -- COMMAND --port 8000"
                    .to_owned()
            }
            Refusal::Unready { .. } => "wait until it serves, and try again".to_owned(),
            Refusal::Key { sent: false, .. } => {
                "put the key into an environment variable and name that: export API_KEY=…, then --api-key-env API_KEY"
                    .to_owned()
            }
            Refusal::Key { sent: true, .. } => {
                "the key that --api-key-env names was refused: look at the variable's value".to_owned()
            }
            Refusal::Stranger { .. } => {
                "give the url under which /v1/models is found, without /v1: --url http://127.0.0.1:8000"
                    .to_owned()
            }
            Refusal::Model { listed, .. } => match listed.first() {
                Some(first) => format!("write --model {first}, or leave --model away"),
                None => "leave --model away".to_owned(),
            },
            Refusal::Mute { .. } => {
                "look at the engine's log; a request like this one has to work: \
                 curl URL/v1/completions -d '{\"model\": …, \"prompt\": \"Hello\", \"max_tokens\": 1}'"
                    .to_owned()
            }
            Refusal::Slow { .. } => "give it more time: --minutes 10".to_owned(),
        }
    }
}

/// How an engine is asked, before it is known which it is.
#[derive(Debug, Clone)]
pub struct Approach<'a> {
    /// Base url.
    pub url: &'a str,
    /// Headers of every request.
    pub headers: &'a [(String, String)],
    /// The model that is wanted.
    pub model: Option<&'a str>,
    /// Longest time for its first token.
    pub patience: Duration,
}

/// Asks an engine what it is. The way to ask it further comes along.
///
/// # Errors
/// See [`Refusal`].
pub async fn take(approach: &Approach<'_>) -> Result<(Portrait, Remote), Refusal> {
    let unknown = remote(approach, Kind::Openai)?;
    let model = model(approach, &unknown).await?;
    let unknown = unknown.with_model(&model.id);
    let kind = kind(&unknown).await;
    let remote = remote(approach, kind)?.with_model(&model.id);
    let chat = only_chats(approach, &remote).await?;
    let facts = facts::read(&remote, &model).await.map_err(|error| dead(approach.url, &error))?;
    Ok((Portrait { kind, chat, facts }, remote))
}

fn remote(approach: &Approach<'_>, kind: Kind) -> Result<Remote, Refusal> {
    let metrics = match kind {
        Kind::Openai => Vec::new(),
        Kind::Vllm | Kind::Sglang | Kind::LlamaCpp | Kind::Sim => {
            vec![format!("{}/metrics", approach.url)]
        }
    };
    Remote::new(kind, approach.url, approach.headers, &metrics, &Transport::Tcp)
        .map_err(|error| Refusal::Url(error.to_string()))
}

fn dead(url: &str, error: &RemoteError) -> Refusal {
    let url = url.to_owned();
    match error {
        RemoteError::Url { .. } => Refusal::Url(error.to_string()),
        RemoteError::Unreachable { why, .. } => Refusal::Dead { url, why: why.clone() },
        RemoteError::TimedOut { .. } => Refusal::Dead { url, why: error.to_string() },
        RemoteError::Refused { .. } | RemoteError::Unreadable { .. } => {
            Refusal::Stranger { url, told: error.to_string() }
        }
    }
}

fn told(what: &str, answer: &Answer) -> String {
    let text = crate::engine::remote::excerpt(&answer.text());
    format!("{what}: {} {text}", answer.status).trim_end().to_owned()
}

fn key(approach: &Approach<'_>, told: String) -> Refusal {
    let sent = approach.headers.iter().any(|(name, _)| name == "authorization");
    Refusal::Key { url: approach.url.to_owned(), told, sent }
}

async fn model(approach: &Approach<'_>, remote: &Remote) -> Result<Listed, Refusal> {
    const WHAT: &str = "GET /v1/models";
    let answer = remote.get("/v1/models", LIMIT).await.map_err(|it| dead(approach.url, &it))?;
    let (url, told) = (approach.url.to_owned(), told(WHAT, &answer));
    match answer.status {
        200 => {}
        401 | 403 => return Err(key(approach, told)),
        408 | 425 | 429 | 500..=599 => return Err(Refusal::Unready { url, told }),
        _ => return Err(Refusal::Stranger { url, told }),
    }
    let Some(listed) = answer.json().as_ref().and_then(ready::listed) else {
        return Err(Refusal::Stranger { url, told });
    };
    if listed.is_empty() {
        return Err(Refusal::Unready { url, told: format!("{WHAT} lists no model") });
    }
    match ready::models(Kind::Openai, &answer, approach.model) {
        Sign::Ready(model) => Ok(model),
        Sign::NotYet(_) | Sign::Never(_) => Err(Refusal::Model {
            wanted: approach.model.unwrap_or_default().to_owned(),
            listed: listed.into_iter().map(|model| model.id).collect(),
        }),
    }
}

/// Which engine it is, by what only one of them answers. One that says nothing of the kind is asked as any
/// OpenAI-compatible one.
async fn kind(remote: &Remote) -> Kind {
    let has = |body: &Option<Value>, keys: &[&str]| {
        body.as_ref().is_some_and(|body| keys.iter().any(|key| body.get(key).is_some()))
    };
    let fact = async |path: &str| remote.fact(path).await.ok().flatten();
    if has(&fact("/props").await, &["default_generation_settings", "total_slots"]) {
        return Kind::LlamaCpp;
    }
    for path in ["/server_info", "/get_server_info"] {
        if has(&fact(path).await, &["max_total_num_tokens", "mem_fraction_static", "tp_size"]) {
            return Kind::Sglang;
        }
    }
    if has(&fact("/version").await, &["version"]) {
        let metrics = remote.get("/metrics", LIMIT).await.ok();
        let page = metrics.filter(|answer| answer.status == 200).map(|answer| answer.text());
        if page.is_some_and(|page| page.lines().any(|line| line.starts_with("vllm:"))) {
            return Kind::Vllm;
        }
        let models = fact("/v1/models").await;
        let owner = models.as_ref().and_then(|models| models.pointer("/data/0/owned_by"));
        if owner.and_then(Value::as_str) == Some("vllm") {
            return Kind::Vllm;
        }
    }
    Kind::Openai
}

/// Whether the engine has the chat API alone. The smallest request of the API has to yield a token.
async fn only_chats(approach: &Approach<'_>, remote: &Remote) -> Result<bool, Refusal> {
    for chat in [false, true] {
        let (path, body) = ready::canary(remote.model(), chat);
        let answer = match remote.post(path, &body, approach.patience).await {
            Ok(answer) => answer,
            Err(RemoteError::TimedOut { what, limit }) => {
                return Err(Refusal::Slow { budget: limit, what: format!("{what} has no answer") });
            }
            Err(error) => return Err(dead(approach.url, &error)),
        };
        if answer.is_absent() {
            continue;
        }
        let told = told(&format!("POST {path}"), &answer);
        match (ready::canary_sign(path, &answer), answer.status) {
            (Sign::Ready(()), _) => return Ok(chat),
            (Sign::NotYet(_) | Sign::Never(_), 401 | 403) => return Err(key(approach, told)),
            (Sign::NotYet(_), _) => {
                return Err(Refusal::Unready { url: approach.url.to_owned(), told });
            }
            (Sign::Never(_), _) => return Err(Refusal::Mute { told }),
        }
    }
    Err(Refusal::Mute {
        told: "it has neither /v1/completions nor /v1/chat/completions".to_owned(),
    })
}

#[cfg(test)]
mod tests;
