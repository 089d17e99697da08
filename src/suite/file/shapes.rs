//! Reading of the values that come in several shapes: text, number, list or table.
//!
//! Hand-written visitors, since serde's `untagged` loses the spans.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Map;

use super::value::{
    At, AxisItem, AxisValues, CommandValue, DateText, Geometric, GridTable, GroupsTable,
    LengthTable, LengthValue, LimitValue, OneOrMany, PrefixValue, PrefixWord, Scalar, Selection,
};

/// Reads any shape that a suite's values have and hands it to `T`.
trait Shapes<'de>: Sized {
    /// What belongs there, in words.
    const EXPECTS: &'static str;

    /// A single value.
    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Err(E::custom(format!("`{scalar}` does not belong here")))
    }

    /// A list.
    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        drop(seq);
        Err(A::Error::custom("a list does not belong here"))
    }

    /// A table.
    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        drop(map);
        Err(A::Error::custom("a table does not belong here"))
    }
}

struct ShapeReader<T>(PhantomData<T>);

impl<'de, T: Shapes<'de>> Visitor<'de> for ShapeReader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTS)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::scalar(Scalar::Integer(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        T::scalar(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        T::scalar(Scalar::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::list(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::table(map)
    }
}

macro_rules! shapes {
    ($($name:ty)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_any(ShapeReader::<$name>(PhantomData))
            }
        }
    )*};
}

shapes! { Scalar AxisItem AxisValues Selection CommandValue OneOrMany LimitValue PrefixValue LengthValue DateText }

impl<'de> Shapes<'de> for Scalar {
    const EXPECTS: &'static str = "a text, a number, or true or false";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(scalar)
    }
}

impl<'de> Shapes<'de> for AxisItem {
    const EXPECTS: &'static str = "a single value, or a table with an `id`";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(AxisItem::Scalar(scalar))
    }

    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Map::deserialize(MapAccessDeserializer::new(map)).map(AxisItem::Table)
    }
}

impl<'de> Shapes<'de> for AxisValues {
    const EXPECTS: &'static str = "a list of values, or { from, to, times }";

    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(AxisValues::List)
    }

    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Geometric::deserialize(MapAccessDeserializer::new(map)).map(AxisValues::Geometric)
    }
}

impl<'de> Shapes<'de> for Selection {
    const EXPECTS: &'static str = "a value, a range, or a list of values";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(Selection::One(scalar))
    }

    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Selection::Many)
    }
}

impl<'de> Shapes<'de> for CommandValue {
    const EXPECTS: &'static str = "a text, or a list of texts";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(CommandValue::Line(text(scalar)?))
    }

    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(CommandValue::Words)
    }
}

impl<'de> Shapes<'de> for OneOrMany {
    const EXPECTS: &'static str = "a text, or a list of texts";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        // The one text has the span of the whole value, which the `At` around this type holds.
        Ok(OneOrMany(vec![At { value: text(scalar)?, span: 0..0 }]))
    }

    fn list<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany)
    }
}

impl At<OneOrMany> {
    /// The texts, each with its span.
    pub fn texts(&self) -> Vec<At<String>> {
        let whole = |at: &At<String>| At {
            value: at.value.clone(),
            span: if at.span == (0..0) { self.span.clone() } else { at.span.clone() },
        };
        self.value.0.iter().map(whole).collect()
    }
}

impl<'de> Shapes<'de> for LimitValue {
    const EXPECTS: &'static str = "a number, a quantity, or a grid";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        match scalar {
            Scalar::Integer(n) => Ok(LimitValue::Number(n as f64)),
            Scalar::Float(n) => Ok(LimitValue::Number(n)),
            Scalar::Text(text) => Ok(LimitValue::Text(text)),
            Scalar::Bool(b) => Err(E::custom(format!("`{b}` is not a number"))),
        }
    }

    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        GridTable::deserialize(MapAccessDeserializer::new(map)).map(LimitValue::Grid)
    }
}

impl<'de> Shapes<'de> for PrefixValue {
    const EXPECTS: &'static str = "unique, shared, cold, or { groups, length }";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        match text::<E>(scalar)?.as_str() {
            "unique" => Ok(PrefixValue::Word(PrefixWord::Unique)),
            "shared" => Ok(PrefixValue::Word(PrefixWord::Shared)),
            "cold" => Ok(PrefixValue::Word(PrefixWord::Cold)),
            other => Err(E::custom(format!("`{other}` is not a prefix"))),
        }
    }

    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        GroupsTable::deserialize(MapAccessDeserializer::new(map)).map(PrefixValue::Groups)
    }
}

impl<'de> Shapes<'de> for LengthValue {
    const EXPECTS: &'static str = "a token count, or { uniform }, { normal } or { jitter }";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(LengthValue::Count(scalar))
    }

    fn table<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        LengthTable::deserialize(MapAccessDeserializer::new(map)).map(LengthValue::Table)
    }
}

impl<'de> Shapes<'de> for DateText {
    const EXPECTS: &'static str = "a date";

    fn scalar<E: Error>(scalar: Scalar) -> Result<Self, E> {
        Ok(DateText { text: text(scalar)?, quoted: true })
    }

    fn table<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        // The parser hands a date over as a table with one private key.
        match map.next_entry::<String, String>()? {
            Some((_, text)) => Ok(DateText { text, quoted: false }),
            None => Err(A::Error::custom("an empty table is not a date")),
        }
    }
}

fn text<E: Error>(scalar: Scalar) -> Result<String, E> {
    match scalar {
        Scalar::Text(text) => Ok(text),
        Scalar::Integer(_) | Scalar::Float(_) | Scalar::Bool(_) => {
            Err(E::custom(format!("`{scalar}` is not a text; put it in quotes")))
        }
    }
}
