//! Readiness: what an answer means, and how often to ask.
//!
//! Pure: answers in, verdicts out. `launch` asks; this decides whether the engine is ready, not yet,
//! or never will be.

use std::time::Duration;

use serde_json::{Value, json};

use super::Kind;
use super::remote::{Answer, excerpt};

/// What an answer means for readiness.
#[derive(Debug, Clone, PartialEq)]
pub enum Sign<T> {
    /// This step is done.
    Ready(T),
    /// Not yet; what was seen.
    NotYet(String),
    /// It never will be; why.
    Never(String),
}

/// How long to wait before asking again, when `elapsed` has gone since the start. Short at first,
/// so that the ready-time of a quick engine is exact to a few percent; a second at most.
pub fn pause(elapsed: Duration) -> Duration {
    (elapsed / 50).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

/// A model that the server lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listed {
    /// What requests name.
    pub id: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// Longest prompt + output in tokens.
    pub max_model_len: Option<u64>,
}

/// Whether an answer to `GET /health` says that the engine is up.
pub fn health(kind: Kind, answer: &Answer) -> Sign<()> {
    match (answer.status, kind) {
        (200..=299, _) => Sign::Ready(()),
        // Not every OpenAI-compatible server has the endpoint, and some guard it.
        (401 | 403 | 404 | 405, Kind::Openai) => Sign::Ready(()),
        (_, _) => Sign::NotYet(told("GET /health", answer)),
    }
}

/// What was asked and answered, on one line.
fn told(what: &str, answer: &Answer) -> String {
    let status = answer.status;
    let hint = match status {
        300..=399 => "a redirect, which is not followed; give the url itself: ",
        _ => "",
    };
    format!("{what}: {status} {hint}{}", excerpt(&answer.text())).trim().to_owned()
}

/// Which listed model requests will name: the one that is wanted, else the first.
pub fn models(kind: Kind, answer: &Answer, wanted: Option<&str>) -> Sign<Listed> {
    let told = told("GET /v1/models", answer);
    match answer.status {
        200 => {}
        401 | 403 => {
            return Sign::Never(format!(
                "{told}: the key was refused; give it in request.headers.authorization"
            ));
        }
        404 | 405 if kind != Kind::Openai => {
            return Sign::Never(format!("{told}: this is no OpenAI-compatible server"));
        }
        _ => return Sign::NotYet(told),
    }
    let Some(listed) = answer.json().as_ref().and_then(listed) else {
        return Sign::NotYet(format!("{told}: no list of models"));
    };
    let Some(first) = listed.first() else {
        return Sign::NotYet("GET /v1/models lists no model".to_owned());
    };
    let Some(wanted) = wanted else { return Sign::Ready(first.clone()) };
    let found = listed
        .iter()
        .find(|model| model.id == wanted)
        .or_else(|| listed.iter().find(|model| model.aliases.iter().any(|name| name == wanted)));
    match found {
        Some(model) => Sign::Ready(model.clone()),
        None => {
            let names: Vec<String> = listed.iter().map(|m| format!("`{}`", m.id)).collect();
            Sign::Never(format!("the server lists {}, not `{wanted}`", names.join(", ")))
        }
    }
}

/// Reads a model list; `None` where it has another shape.
pub fn listed(body: &Value) -> Option<Vec<Listed>> {
    let entries = body.get("data")?.as_array()?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let models = entries.iter().filter_map(|entry| {
        let mut aliases: Vec<String> = text(entry.get("root")).into_iter().collect();
        if let Some(names) = entry.get("aliases").and_then(Value::as_array) {
            aliases.extend(names.iter().filter_map(|name| text(Some(name))));
        }
        Some(Listed {
            id: text(entry.get("id"))?,
            aliases,
            max_model_len: entry.get("max_model_len").and_then(Value::as_u64),
        })
    });
    Some(models.collect())
}

/// The canary: path and body of the smallest completion.
pub fn canary(model: &str, chat: bool) -> (&'static str, Value) {
    if chat {
        let messages = json!([{ "role": "user", "content": "Hello" }]);
        ("/v1/chat/completions", json!({ "model": model, "messages": messages, "max_tokens": 1 }))
    } else {
        ("/v1/completions", json!({ "model": model, "prompt": "Hello", "max_tokens": 1 }))
    }
}

/// Whether the canary yielded a token.
pub fn canary_sign(path: &str, answer: &Answer) -> Sign<()> {
    let told = told(&format!("POST {path}"), answer);
    match answer.status {
        200 => {}
        // Overloaded, loading or broken: a process that breaks for good ends, and that is noticed.
        408 | 425 | 429 | 500..=599 => return Sign::NotYet(told),
        _ => return Sign::Never(told),
    }
    let Some(body) = answer.json() else { return Sign::Never(format!("{told}: no JSON")) };
    let counted = body.pointer("/usage/completion_tokens").and_then(Value::as_u64);
    let says = |pointer: &str| {
        body.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    };
    let spoken = says("/choices/0/text")
        || says("/choices/0/message/content")
        || says("/choices/0/message/reasoning_content")
        || says("/choices/0/message/reasoning");
    // A first token may be no text (part of a character); then the count tells.
    if body.get("choices").is_some() && (spoken || counted.is_some_and(|tokens| tokens > 0)) {
        Sign::Ready(())
    } else {
        Sign::Never(format!("{told}: the completion has no token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_owned().into() }
    }

    #[test]
    fn a_loading_engine_is_not_ready_yet() {
        let loading =
            r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
        let sign = health(Kind::LlamaCpp, &answer(503, loading));
        assert_eq!(sign, Sign::NotYet(format!("GET /health: 503 {loading}")));
        assert_eq!(health(Kind::Vllm, &answer(200, "")), Sign::Ready(()));
        assert!(matches!(health(Kind::Vllm, &answer(404, "")), Sign::NotYet(_)));
        assert_eq!(health(Kind::Openai, &answer(404, "")), Sign::Ready(()));
    }

    #[test]
    fn the_models_of_real_engines_are_read() {
        let vllm = answer(200, include_str!("../../tests/data/engine/vllm-models.json"));
        let Sign::Ready(model) = models(Kind::Vllm, &vllm, None) else { panic!() };
        assert_eq!((model.id.as_str(), model.max_model_len), ("tiny", Some(2048)));
        let llama = answer(200, include_str!("../../tests/data/engine/llama-models.json"));
        let Sign::Ready(model) = models(Kind::LlamaCpp, &llama, Some("gemma3")) else { panic!() };
        assert_eq!(model.id, "gemma3");
    }

    #[test]
    fn another_model_is_somebody_elses_server() {
        let list = answer(200, r#"{"data":[{"id":"theirs","root":"/models/theirs"}]}"#);
        assert_eq!(
            models(Kind::Vllm, &list, Some("ours")),
            Sign::Never("the server lists `theirs`, not `ours`".to_owned())
        );
        let Sign::Ready(model) = models(Kind::Vllm, &list, Some("/models/theirs")) else {
            panic!()
        };
        assert_eq!(model.id, "theirs");
        assert!(matches!(
            models(Kind::Vllm, &answer(200, r#"{"data":[]}"#), None),
            Sign::NotYet(_)
        ));
        assert!(matches!(models(Kind::Vllm, &answer(401, "{}"), None), Sign::Never(_)));
        assert!(matches!(models(Kind::Vllm, &answer(503, "{}"), None), Sign::NotYet(_)));
        assert!(matches!(models(Kind::Vllm, &answer(200, "<html>"), None), Sign::NotYet(_)));
    }

    #[test]
    fn a_canary_must_yield_a_token() {
        let sign = |status, body: &str| canary_sign("/v1/completions", &answer(status, body));
        let silent =
            r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":{"completion_tokens":1}}"#;
        assert_eq!(sign(200, silent), Sign::Ready(()));
        assert_eq!(sign(200, r#"{"choices":[{"text":"a"}]}"#), Sign::Ready(()));
        assert!(matches!(sign(200, r#"{"choices":[{"text":""}]}"#), Sign::Never(_)));
        assert!(matches!(sign(200, r#"{"error":{"message":"no"}}"#), Sign::Never(_)));
        assert!(matches!(sign(400, "{}"), Sign::Never(_)));
        assert!(matches!(sign(503, "{}"), Sign::NotYet(_)));
    }

    #[test]
    fn pauses_grow_with_the_wait() {
        assert_eq!(pause(Duration::ZERO), Duration::from_millis(20));
        assert_eq!(pause(Duration::from_secs(10)), Duration::from_millis(200));
        assert_eq!(pause(Duration::from_secs(3600)), Duration::from_secs(1));
    }
}
