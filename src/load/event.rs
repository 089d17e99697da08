//! One event's payload: what it means in the completions and chat APIs.
//!
//! It reads what servers send rather than what they should: usage anywhere, null or empty text,
//! both names of reasoning, errors as objects or strings. A value of an unexpected shape counts as
//! absent (`payload` reads it so); only a payload that is no JSON is malformed. Nothing of the text is
//! kept.

use serde_json::Value;

use super::Usage;
use super::payload::{Payload, Timings};

/// What a payload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `[DONE]`.
    Done,
    /// A piece of the answer.
    Chunk(Chunk),
    /// The server's words about its failure.
    Error(String),
    /// Well-formed, but nothing of this API (`null`, a ping); it changes nothing.
    Foreign,
    /// No JSON at all.
    Malformed,
}

/// A payload with choices, usage, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunk {
    /// Whether it carries generated material: text, content, reasoning, a refusal, or a piece of a
    /// tool call.
    pub generated: bool,
    /// The finish reason, where it has one.
    pub finish: Option<Finish>,
    /// Counts, from `usage` or from llama.cpp's `timings`; running ones or the last.
    pub usage: Usage,
}

/// What a finish reason means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model came to an end.
    Complete,
    /// The token limit was reached.
    Length,
    /// The server gave up; its word for it.
    Aborted(&'static str),
}

/// Finish reasons that mean that the server gave up.
const ABORTS: [&str; 7] =
    ["abort", "aborted", "error", "cancelled", "canceled", "timeout", "network_error"];

impl Finish {
    /// A word for it, as the API has it.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Complete => "stop",
            Finish::Length => "length",
            Finish::Aborted(reason) => reason,
        }
    }

    pub(super) fn of(reason: &str) -> Option<Finish> {
        match reason {
            "" => None,
            "length" | "max_tokens" => Some(Finish::Length),
            reason => match ABORTS.iter().find(|abort| **abort == reason) {
                Some(abort) => Some(Finish::Aborted(abort)),
                None => Some(Finish::Complete),
            },
        }
    }
}

/// Reads the payload of one event.
pub fn read(data: &[u8]) -> Event {
    let data = data.trim_ascii();
    if data == b"[DONE]" {
        return Event::Done;
    }
    if data.is_empty() {
        return Event::Foreign;
    }
    let payload = serde_json::from_slice::<Payload>(data).or_else(|error| {
        // Event streams are UTF-8 with broken bytes replaced; JSON alone would refuse them.
        if std::str::from_utf8(data).is_ok() {
            return Err(error);
        }
        serde_json::from_str(&String::from_utf8_lossy(data))
    });
    match payload {
        Ok(payload) => payload.meaning(),
        Err(_) => Event::Malformed,
    }
}

/// The server's words in an error body, also of an answer that is no stream. `None` where the JSON
/// tells no error or the text is no JSON.
pub fn error_message(body: &[u8]) -> Option<String> {
    let value = serde_json::from_slice::<Value>(body).ok()?;
    let object = value.as_object()?;
    object
        .get("error")
        .and_then(error_text)
        .or_else(|| object.get("message").and_then(error_text))
        .or_else(|| object.get("detail").and_then(error_text))
}

/// What an `error` value says; `None` for null, false, and emptiness.
fn error_text(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Object(object) if object.is_empty() => None,
        Value::Object(object) => match object.get("message") {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(_) | None => Some(error.to_string()),
        },
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => Some(error.to_string()),
    }
}

impl Payload {
    fn meaning(self) -> Event {
        if let Some(text) = self.error.as_ref().and_then(error_text) {
            return Event::Error(text);
        }
        if self.is_error {
            let text = self.message.as_ref().and_then(error_text);
            return Event::Error(text.unwrap_or_else(|| "an error without a message".to_owned()));
        }
        if !self.object || (self.choices.is_none() && self.usage.is_none()) {
            return Event::Foreign;
        }
        let choices = self.choices.unwrap_or_default();
        let mut usage = self.usage.map(|counts| counts.0).unwrap_or_default();
        if let Some(Timings(timings)) = self.timings {
            usage.prompt = usage.prompt.or(timings.prompt);
            usage.completion = usage.completion.or(timings.completion);
            usage.cached = usage.cached.or(timings.cached);
        }
        Event::Chunk(Chunk { generated: choices.generated, finish: choices.finish, usage })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(data: &str) -> Chunk {
        match read(data.as_bytes()) {
            Event::Chunk(chunk) => chunk,
            other @ (Event::Done | Event::Error(_) | Event::Foreign | Event::Malformed) => {
                panic!("{data} is no chunk but {other:?}")
            }
        }
    }

    fn generated(delta: &str) -> bool {
        chunk(&format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#))
            .generated
    }

    #[test]
    fn every_channel_of_generated_material_counts() {
        assert!(chunk(r#"{"choices":[{"text":" a"}]}"#).generated);
        assert!(chunk(r#"{"choices":[{"text":"\n"}]}"#).generated);
        for delta in [
            r#"{"content":"a"}"#,
            r#"{"content":null,"reasoning":"a"}"#,
            r#"{"reasoning_content":"a","content":""}"#,
            r#"{"refusal":"no"}"#,
            r#"{"content":[{"type":"text","text":"a"}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
            r#"{"function_call":{"arguments":"{"}}"#,
        ] {
            assert!(generated(delta), "{delta}");
        }
    }

    #[test]
    fn null_empty_and_role_are_no_material() {
        assert!(!chunk(r#"{"choices":[{"text":""}]}"#).generated);
        for delta in [
            "null",
            "{}",
            r#"{"role":"assistant","content":""}"#,
            r#"{"role":"assistant","content":null,"reasoning":null,"tool_calls":[]}"#,
            r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"","arguments":""}}]}"#,
            r#"{"content":[]}"#,
        ] {
            assert!(!generated(delta), "{delta}");
        }
    }

    #[test]
    fn finish_reasons_mean_completion_limit_or_abort() {
        let finish = |reason: &str| {
            chunk(&format!(r#"{{"choices":[{{"text":"a","finish_reason":{reason}}}]}}"#)).finish
        };
        assert_eq!(finish("null"), None);
        assert_eq!(finish(r#""""#), None);
        assert_eq!(finish(r#""stop""#), Some(Finish::Complete));
        assert_eq!(finish(r#""tool_calls""#), Some(Finish::Complete));
        assert_eq!(finish(r#""length""#), Some(Finish::Length));
        assert_eq!(finish(r#""abort""#), Some(Finish::Aborted("abort")));
        assert_eq!(finish(r#"{"type":"abort","message":"x"}"#), Some(Finish::Aborted("abort")));
    }

    #[test]
    fn usage_is_read_wherever_it_stands() {
        let usage = |data: &str| chunk(data).usage;
        let full = Usage { prompt: Some(9), completion: Some(4), cached: Some(5) };
        assert_eq!(
            usage(
                r#"{"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5}}}"#
            ),
            full
        );
        assert_eq!(
            usage(
                r#"{"choices":[],"timings":{"cache_n":5,"prompt_n":4,"predicted_n":4,"predicted_ms":1.5}}"#
            ),
            full
        );
        assert_eq!(usage(r#"{"choices":[{"text":"a"}],"usage":null}"#), Usage::default());
        assert_eq!(
            usage(r#"{"choices":[],"usage":{"prompt_tokens":3,"prompt_tokens_details":null}}"#),
            Usage { prompt: Some(3), ..Usage::default() }
        );
    }

    #[test]
    fn errors_are_told_in_the_servers_words() {
        let error = |data: &str| match read(data.as_bytes()) {
            Event::Error(text) => text,
            other @ (Event::Done | Event::Chunk(_) | Event::Foreign | Event::Malformed) => {
                panic!("{data} is no error but {other:?}")
            }
        };
        assert_eq!(error(r#"{"error":{"message":"gone","code":500}}"#), "gone");
        assert_eq!(error(r#"{"error":"gone"}"#), "gone");
        assert_eq!(error(r#"{"error":{"code":500}}"#), r#"{"code":500}"#);
        assert_eq!(error(r#"{"object":"error","message":"gone"}"#), "gone");
        assert_eq!(error_message(br#"{"detail":"Not Found"}"#).unwrap(), "Not Found");
        assert_eq!(error_message(b"<html>"), None);
        assert!(chunk(r#"{"choices":[{"text":"a"}],"error":null}"#).generated);
    }

    #[test]
    fn what_is_nothing_of_the_api_is_foreign_and_what_is_no_json_is_malformed() {
        for foreign in ["", "null", "17", "[]", "{}", r#"{"type":"ping"}"#, r#"{"usage":null}"#] {
            assert_eq!(read(foreign.as_bytes()), Event::Foreign, "{foreign}");
        }
        for malformed in ["{", "ping", r#"{"choices":[]} x"#, "[DONE"] {
            assert_eq!(read(malformed.as_bytes()), Event::Malformed, "{malformed}");
        }
        assert_eq!(read(b" [DONE] "), Event::Done);
    }

    #[test]
    fn values_of_odd_shapes_count_as_absent() {
        let odd = r#"{"id":7,"choices":[null,3,{"text":4,"delta":"x","finish_reason":5}],"usage":"no","timings":[]}"#;
        assert_eq!(chunk(odd), Chunk::default());
        let odd = r#"{"choices":null,"usage":{"prompt_tokens":-1,"completion_tokens":2.0}}"#;
        assert_eq!(chunk(odd).usage, Usage { completion: Some(2), ..Usage::default() });
    }

    #[test]
    fn broken_utf8_in_the_text_is_still_text() {
        assert_eq!(
            read(b"{\"choices\":[{\"text\":\"\xF0\x9F\"}]}"),
            Event::Chunk(Chunk { generated: true, ..Chunk::default() })
        );
    }

    proptest! {
        #[test]
        fn random_payloads_never_panic(text in r#"[\[\]{}":,a-z0-9. \\]{0,80}"#) {
            read(text.as_bytes());
        }

        #[test]
        fn any_json_under_known_keys_is_read(depth in 0usize..4, leaf in prop_oneof![
            Just("null"), Just("1"), Just("-1.5"), Just("\"\""), Just("\"x\""), Just("true"),
        ], key in prop_oneof![
            Just("choices"), Just("delta"), Just("usage"), Just("text"), Just("finish_reason"),
            Just("tool_calls"), Just("prompt_tokens"), Just("timings"), Just("object"),
        ]) {
            let mut json = leaf.to_owned();
            for level in 0..depth {
                json = if level % 2 == 0 { format!("[{json}]") } else { format!("{{\"{key}\":{json}}}") };
            }
            let json = format!("{{\"{key}\":{json},\"choices\":[{{\"{key}\":{json}}}]}}");
            prop_assert_ne!(read(json.as_bytes()), Event::Malformed);
        }
    }
}
