//! One event's payload: what it means in the completions and chat APIs.
//!
//! It reads what servers send rather than what they should: usage anywhere, null or empty text,
//! both names of reasoning, errors as objects or strings. A value of an unexpected shape counts as
//! absent; only a payload that is no JSON is malformed. Nothing of the text is kept.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Usage;

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
    fn of(reason: &str) -> Option<Finish> {
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

/// The top of a payload.
#[derive(Default)]
struct Payload {
    object: bool,
    choices: Option<Choices>,
    usage: Option<Counts>,
    timings: Option<Timings>,
    error: Option<Value>,
    /// `"object": "error"`, with the message beside it.
    is_error: bool,
    message: Option<Value>,
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

/// Lets a visitor take values of other shapes for nothing.
macro_rules! absent {
    ($($shape:ident)*) => { $(absent!(@$shape);)* };
    (@bool) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@number) => {
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@text) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@null) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (@list) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@expecting) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("any JSON") }
    };
}

/// Makes a type readable from any JSON through its visitor.
macro_rules! lenient {
    ($type:ty, $visitor:ident) => {
        struct $visitor;

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($visitor)
            }
        }
    };
}

lenient!(Payload, PayloadVisitor);

impl<'de> Visitor<'de> for PayloadVisitor {
    type Value = Payload;

    absent!(expecting bool number text null list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Payload, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            Choices,
            Usage,
            Timings,
            Error,
            Object,
            Message,
            #[serde(other)]
            Other,
        }
        let mut payload = Payload { object: true, ..Payload::default() };
        while let Some(key) = map.next_key()? {
            match key {
                Key::Choices => payload.choices = Some(map.next_value()?),
                Key::Usage => payload.usage = map.next_value::<Counts>()?.known(),
                Key::Timings => payload.timings = Some(map.next_value()?),
                Key::Error => payload.error = Some(map.next_value()?),
                Key::Object => payload.is_error = map.next_value_seed(Is("error"))?,
                Key::Message => payload.message = Some(map.next_value()?),
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(payload)
    }
}

/// Whether a value is this very text.
struct Is(&'static str);

impl<'de> DeserializeSeed<'de> for Is {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Is {
    type Value = bool;

    absent!(expecting bool number null list map);

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text == self.0)
    }
}

/// The choices, folded into one.
#[derive(Default)]
struct Choices {
    generated: bool,
    finish: Option<Finish>,
}

impl Choices {
    fn add(&mut self, generated: bool, finish: Option<Finish>) {
        self.generated |= generated;
        if let Some(finish) = finish
            && !matches!(self.finish, Some(Finish::Aborted(_)))
        {
            self.finish = Some(finish);
        }
    }
}

lenient!(Choices, ChoicesVisitor);

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices;

    absent!(expecting bool number text null map);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices, A::Error> {
        let mut all = Choices::default();
        while let Some(Choice(one)) = list.next_element()? {
            all.add(one.generated, one.finish);
        }
        Ok(all)
    }
}

#[derive(Default)]
struct Choice(Choices);

lenient!(Choice, ChoiceVisitor);

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = Choice;

    absent!(expecting bool number text null list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Choice, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            Text,
            #[serde(alias = "message")]
            Delta,
            FinishReason,
            #[serde(other)]
            Other,
        }
        let mut choice = Choices::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Text => choice.generated |= map.next_value::<Material>()?.0,
                Key::Delta => choice.generated |= map.next_value::<Delta>()?.0,
                Key::FinishReason => choice.finish = map.next_value::<Reason>()?.0,
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Choice(choice))
    }
}

/// Whether a delta carries generated material.
#[derive(Default)]
struct Delta(bool);

lenient!(Delta, DeltaVisitor);

impl<'de> Visitor<'de> for DeltaVisitor {
    type Value = Delta;

    absent!(expecting bool number text null list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Delta, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            Content,
            Reasoning,
            ReasoningContent,
            Refusal,
            ToolCalls,
            FunctionCall,
            #[serde(other)]
            Other,
        }
        let mut generated = false;
        while let Some(key) = map.next_key()? {
            generated |= match key {
                Key::Content | Key::Reasoning | Key::ReasoningContent | Key::Refusal => {
                    map.next_value::<Material>()?.0
                }
                Key::ToolCalls | Key::FunctionCall => map.next_value::<ToolCall>()?.0,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
        }
        Ok(Delta(generated))
    }
}

/// Whether a value holds generated text: a text that is not empty, or a list of content parts.
#[derive(Default)]
struct Material(bool);

lenient!(Material, MaterialVisitor);

impl<'de> Visitor<'de> for MaterialVisitor {
    type Value = Material;

    absent!(expecting bool number null map);

    fn visit_str<E>(self, text: &str) -> Result<Material, E> {
        Ok(Material(!text.is_empty()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Material, A::Error> {
        let mut parts = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            parts = true;
        }
        Ok(Material(parts))
    }
}

/// Whether tool calls carry a piece of a name or of arguments; ids and indices are not generated.
#[derive(Default)]
struct ToolCall(bool);

lenient!(ToolCall, ToolCallVisitor);

impl<'de> Visitor<'de> for ToolCallVisitor {
    type Value = ToolCall;

    absent!(expecting bool number text null);

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ToolCall, A::Error> {
        let mut generated = false;
        while let Some(ToolCall(one)) = list.next_element()? {
            generated |= one;
        }
        Ok(ToolCall(generated))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolCall, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            #[serde(alias = "arguments", alias = "input")]
            Name,
            #[serde(alias = "custom")]
            Function,
            #[serde(other)]
            Other,
        }
        let mut generated = false;
        while let Some(key) = map.next_key()? {
            generated |= match key {
                Key::Name => map.next_value::<Material>()?.0,
                Key::Function => map.next_value::<ToolCall>()?.0,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
        }
        Ok(ToolCall(generated))
    }
}

/// A finish reason: a text, or an object with its type.
#[derive(Default)]
struct Reason(Option<Finish>);

lenient!(Reason, ReasonVisitor);

impl<'de> Visitor<'de> for ReasonVisitor {
    type Value = Reason;

    absent!(expecting bool number null list);

    fn visit_str<E>(self, text: &str) -> Result<Reason, E> {
        Ok(Reason(Finish::of(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reason, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            Type,
            #[serde(other)]
            Other,
        }
        let mut reason = Reason::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Type => reason = map.next_value()?,
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(reason)
    }
}

/// A usage object.
#[derive(Default)]
struct Counts(Usage);

impl Counts {
    /// Itself, unless it says nothing (`null`, `{}`).
    fn known(self) -> Option<Counts> {
        (self.0 != Usage::default()).then_some(self)
    }
}

lenient!(Counts, CountsVisitor);

impl<'de> Visitor<'de> for CountsVisitor {
    type Value = Counts;

    absent!(expecting bool number text null list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counts, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            PromptTokens,
            CompletionTokens,
            PromptTokensDetails,
            #[serde(alias = "prompt_cache_hit_tokens")]
            CachedTokens,
            #[serde(other)]
            Other,
        }
        let mut usage = Usage::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::PromptTokens => usage.prompt = map.next_value::<Count>()?.0,
                Key::CompletionTokens => usage.completion = map.next_value::<Count>()?.0,
                Key::CachedTokens => usage.cached = map.next_value::<Count>()?.0.or(usage.cached),
                Key::PromptTokensDetails => {
                    usage.cached = map.next_value::<Counts>()?.0.cached.or(usage.cached);
                }
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Counts(usage))
    }
}

/// llama.cpp's `timings`, read as a usage.
#[derive(Default)]
struct Timings(Usage);

lenient!(Timings, TimingsVisitor);

impl<'de> Visitor<'de> for TimingsVisitor {
    type Value = Timings;

    absent!(expecting bool number text null list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Timings, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "snake_case")]
        enum Key {
            CacheN,
            PromptN,
            PredictedN,
            #[serde(other)]
            Other,
        }
        let mut usage = Usage::default();
        let mut evaluated = None;
        while let Some(key) = map.next_key()? {
            match key {
                Key::CacheN => usage.cached = map.next_value::<Count>()?.0,
                Key::PromptN => evaluated = map.next_value::<Count>()?.0,
                Key::PredictedN => usage.completion = map.next_value::<Count>()?.0,
                Key::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        // `prompt_n` leaves out what came from the cache; without `cache_n` the whole is unknown.
        usage.prompt = usage.cached.zip(evaluated).and_then(|(a, b)| a.checked_add(b));
        Ok(Timings(usage))
    }
}

/// A count of tokens; anything but a whole number from 0 up is none.
#[derive(Default)]
struct Count(Option<u64>);

lenient!(Count, CountVisitor);

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    absent!(expecting bool text null list map);

    fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
        Ok(Count(Some(count)))
    }

    fn visit_i64<E>(self, count: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(count).ok()))
    }

    fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
        Ok(Count((count >= 0.0 && count.fract() == 0.0 && count < 1e15).then_some(count as u64)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(data: &str) -> Chunk {
        match read(data.as_bytes()) {
            Event::Chunk(chunk) => chunk,
            other => panic!("{data} is no chunk but {other:?}"),
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
            other => panic!("{data} is no error but {other:?}"),
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
