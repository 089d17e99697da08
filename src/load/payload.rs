//! The shape of a payload: which of its JSON matters, read without keeping the rest.
//!
//! Each type here can be read from any JSON at all: a value of another shape than expected counts
//! as absent, since servers differ in what they leave out, send as null, or wrap. Texts are only
//! looked at, never copied. What it all means is decided in `event`.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Usage;
use super::event::Finish;

/// The top of a payload.
#[derive(Default)]
pub(super) struct Payload {
    pub(super) object: bool,
    pub(super) choices: Option<Choices>,
    pub(super) usage: Option<Counts>,
    pub(super) timings: Option<Timings>,
    pub(super) error: Option<Value>,
    /// `"object": "error"`, with the message beside it.
    pub(super) is_error: bool,
    pub(super) message: Option<Value>,
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
pub(super) struct Choices {
    pub(super) generated: bool,
    pub(super) finish: Option<Finish>,
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
            TokenIds,
            #[serde(alias = "message")]
            Delta,
            FinishReason,
            #[serde(other)]
            Other,
        }
        let mut choice = Choices::default();
        while let Some(key) = map.next_key()? {
            match key {
                // Where a server tells ids, half a character shows as an id without text.
                Key::Text | Key::TokenIds => choice.generated |= map.next_value::<Material>()?.0,
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
pub(super) struct Counts(pub(super) Usage);

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
pub(super) struct Timings(pub(super) Usage);

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
