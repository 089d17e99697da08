//! A request ready to send: its body built once, cheap to send many times.
//!
//! It decides what each dialect is asked for so that outputs have exact lengths and the server says
//! what it counted. What the suite's `request.body` says wins over that, but for the model, the
//! prompt, the limit on the output, and streaming itself.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Api, Dialect, Prompt};

/// What a request asks.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The endpoint.
    pub api: Api,
    /// How the engine is asked for exact lengths and counts.
    pub dialect: Dialect,
    /// The model's id.
    pub model: &'a str,
    /// The prompt.
    pub prompt: &'a Prompt,
    /// Tokens to generate.
    pub max_tokens: u64,
    /// Whether the server may answer out of its prefix cache, where it can be told per request.
    pub cache_prompt: bool,
    /// `request.body` of the suite.
    pub body: &'a Map<String, Value>,
    /// Longest time without generated material.
    pub idle_timeout: Duration,
    /// Longest time in all, where there is a limit.
    pub timeout: Option<Duration>,
}

/// A prompt that its endpoint does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongPrompt {
    /// Token ids cannot go to the chat API.
    #[error("the chat api takes no token ids: give the prompt as text")]
    IdsInChat,
    /// Messages cannot go to the completions API.
    #[error("the completions api takes no messages: write api = \"chat\"")]
    MessagesInCompletions,
}

/// A request ready to send. Clones share the body.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The path below the endpoint's url.
    pub path: &'static str,
    /// The body.
    pub body: Bytes,
    /// Longest time without generated material.
    pub idle_timeout: Duration,
    /// Longest time in all, where there is a limit.
    pub timeout: Option<Duration>,
}

impl Prepared {
    /// Builds the body.
    ///
    /// # Errors
    /// Token ids for the chat API, messages for the other one.
    pub fn new(ask: &Ask<'_>) -> Result<Prepared, WrongPrompt> {
        let mut fields = ask.dialect.fields(ask.cache_prompt);
        for (key, value) in ask.body {
            match (fields.get_mut(key), value) {
                // A suite that adds a stream option must not lose the counts by it.
                (Some(Value::Object(ours)), Value::Object(theirs)) => {
                    ours.extend(theirs.iter().map(|(k, v)| (k.clone(), v.clone())));
                }
                (Some(_) | None, _) => {
                    fields.insert(key.clone(), value.clone());
                }
            }
        }
        fields.insert("model".to_owned(), ask.model.into());
        fields.insert("max_tokens".to_owned(), ask.max_tokens.into());
        fields.insert("stream".to_owned(), true.into());
        fields.remove("prompt");
        fields.remove("messages");
        let (path, key, prompt) = match (ask.api, ask.prompt) {
            (Api::Completions, Prompt::Ids(ids)) => ("/v1/completions", "prompt", id_list(ids)),
            (Api::Completions, Prompt::Text(text)) => {
                ("/v1/completions", "prompt", Value::from(&**text).to_string())
            }
            (Api::Chat, Prompt::Text(text)) => {
                let messages = json!([{ "role": "user", "content": &**text }]);
                ("/v1/chat/completions", "messages", messages.to_string())
            }
            (Api::Chat, Prompt::Messages(messages)) => {
                ("/v1/chat/completions", "messages", messages.to_string())
            }
            (Api::Chat, Prompt::Ids(_)) => return Err(WrongPrompt::IdsInChat),
            (Api::Completions, Prompt::Messages(_)) => {
                return Err(WrongPrompt::MessagesInCompletions);
            }
        };
        // The prompt is set in as text: a million ids need no tree of values.
        let rest = Value::Object(fields).to_string();
        let body = format!("{{\"{key}\":{prompt},{}", rest.trim_start_matches('{'));
        Ok(Prepared {
            path,
            body: body.into(),
            idle_timeout: ask.idle_timeout,
            timeout: ask.timeout,
        })
    }
}

impl Dialect {
    /// What this dialect is asked for beside prompt and limit.
    fn fields(self, cache_prompt: bool) -> Map<String, Value> {
        let fields = match self {
            Dialect::Vllm => json!({
                "ignore_eos": true,
                "stream_options": { "include_usage": true, "continuous_usage_stats": true },
            }),
            Dialect::LlamaCpp => json!({
                "ignore_eos": true,
                "timings_per_token": true,
                "cache_prompt": cache_prompt,
                "stream_options": { "include_usage": true },
            }),
            Dialect::OpenAi => json!({ "stream_options": { "include_usage": true } }),
        };
        match fields {
            Value::Object(fields) => fields,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        }
    }
}

fn id_list(ids: &[u32]) -> String {
    use std::fmt::Write as _;
    let mut list = String::with_capacity(ids.len() * 6 + 2);
    list.push('[');
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            list.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(list, "{id}");
    }
    list.push(']');
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(api: Api, dialect: Dialect, prompt: &Prompt, extra: Value) -> Value {
        let Value::Object(extra) = extra else { panic!("an object") };
        let ask = Ask {
            api,
            dialect,
            model: "toy",
            prompt,
            max_tokens: 7,
            cache_prompt: false,
            body: &extra,
            idle_timeout: Duration::from_secs(60),
            timeout: None,
        };
        serde_json::from_slice(&Prepared::new(&ask).unwrap().body).unwrap()
    }

    #[test]
    fn each_dialect_is_asked_for_lengths_and_counts_in_its_own_words() {
        let ids = Prompt::Ids(vec![1, 20, 300].into());
        assert_eq!(
            body(Api::Completions, Dialect::Vllm, &ids, json!({ "temperature": 0 })),
            json!({
                "model": "toy", "prompt": [1, 20, 300], "max_tokens": 7, "stream": true,
                "stream_options": { "include_usage": true, "continuous_usage_stats": true },
                "ignore_eos": true, "temperature": 0,
            })
        );
        assert_eq!(
            body(Api::Completions, Dialect::LlamaCpp, &ids, json!({})),
            json!({
                "model": "toy", "prompt": [1, 20, 300], "max_tokens": 7, "stream": true,
                "stream_options": { "include_usage": true },
                "ignore_eos": true, "timings_per_token": true, "cache_prompt": false,
            })
        );
        let text = Prompt::Text("say \"hi\"\n".into());
        assert_eq!(
            body(Api::Chat, Dialect::OpenAi, &text, json!({})),
            json!({
                "model": "toy", "max_tokens": 7, "stream": true,
                "messages": [{ "role": "user", "content": "say \"hi\"\n" }],
                "stream_options": { "include_usage": true },
            })
        );
    }

    #[test]
    fn the_suites_body_wins_but_not_over_what_is_measured() {
        let prompt = Prompt::Text("x".into());
        let extra = json!({
            "ignore_eos": false, "prompt": "mine", "stream": false, "max_tokens": 1, "top_k": 3,
            "stream_options": { "include_obfuscation": false },
        });
        let body = body(Api::Completions, Dialect::Vllm, &prompt, extra);
        assert_eq!(body["ignore_eos"], false);
        assert_eq!(body["top_k"], 3);
        assert_eq!(body["prompt"], "x");
        assert_eq!(body["stream"], true);
        assert_eq!(body["max_tokens"], 7);
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["stream_options"]["include_obfuscation"], false);
    }
}
