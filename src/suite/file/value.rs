//! Values of a suite file as typed: with spans, and in every shape that a key takes.
//!
//! Each type reads what TOML has and says in its JSON Schema, under `x-expects`, what belongs there
//! in words: what a validator says of an `anyOf` helps nobody. Quantities stay text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value and where it stands in the source map.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its byte span.
    pub span: Range<usize>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<T>, D::Error> {
        let spanned = serde_spanned::Spanned::<T>::deserialize(deserializer)?;
        Ok(At { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A table with names that the suite's author chose, in order of writing.
#[derive(Debug, Clone)]
pub struct Entries<V>(pub Vec<(At<String>, V)>);

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries<V>, D::Error> {
        struct Reader<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
            type Value = Entries<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<At<String>, V>()? {
                    entries.push(entry);
                }
                // The parser's tables are sorted by name; spans tell the order of writing.
                entries.sort_by_key(|(name, _)| name.span.start);
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

impl<V: JsonSchema> JsonSchema for Entries<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Entries_of_{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": generator.subschema_for::<V>(),
        })
    }
}

/// A single value of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A text.
    Text(String),
    /// Yes or no.
    Bool(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Integer(n) => write!(f, "{n}"),
            Scalar::Float(n) => write!(f, "{n}"),
            Scalar::Text(text) => f.write_str(text),
            Scalar::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// One value of an axis: a single value, or a table of values that belong together.
#[derive(Debug, Clone, PartialEq)]
pub enum AxisItem {
    /// A single value.
    Scalar(Scalar),
    /// Values that belong together, `id` among them.
    Table(Map<String, Value>),
}

/// The values of an axis: a list, or a geometric sequence.
#[derive(Debug, Clone)]
pub enum AxisValues {
    /// As written.
    List(Vec<At<AxisItem>>),
    /// From, to and factor.
    Geometric(Geometric),
}

/// `{ from, to, times }`.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(inline, extend("required" = ["from", "to", "times"]))]
pub struct Geometric {
    /// The first value.
    #[schemars(extend("x-expects" = "a number or a token count"))]
    pub from: Option<At<Scalar>>,
    /// The last value, if the factor hits it.
    #[schemars(extend("x-expects" = "a number or a token count"))]
    pub to: Option<At<Scalar>>,
    /// The factor from one value to the next.
    pub times: Option<At<f64>>,
}

/// What a predicate asks: one value, range or negation, or a list of values.
#[derive(Debug, Clone)]
pub enum Selection {
    /// One text such as `"8K..64K"`, or one value.
    One(Scalar),
    /// One of these.
    Many(Vec<At<Scalar>>),
}

/// A command: one text, or a list with one argument each.
#[derive(Debug, Clone)]
pub enum CommandValue {
    /// To be split.
    Line(String),
    /// One argument each.
    Words(Vec<At<String>>),
}

/// One text or a list of texts.
#[derive(Debug, Clone)]
pub struct OneOrMany(pub Vec<At<String>>);

/// The number of a bound.
#[derive(Debug, Clone)]
pub enum LimitValue {
    /// In the metric's unit.
    Number(f64),
    /// A quantity with a unit.
    Text(String),
    /// By one or two axes.
    Grid(GridTable),
}

/// Numbers by one or two axes.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(inline)]
pub struct GridTable {
    /// The axis of the rows.
    pub rows: Option<At<String>>,
    /// The axis of the columns.
    pub columns: Option<At<String>>,
    /// The values of the column axis.
    pub at: Option<At<Vec<At<Scalar>>>>,
    /// The rows: first the value of the row axis, then a number for each column; `"-"` for no limit,
    /// `"over"` where the cell must be over capacity.
    pub grid: Option<At<Vec<At<Vec<At<Scalar>>>>>>,
}

/// How prompts share their beginnings.
#[derive(Debug, Clone)]
pub enum PrefixValue {
    /// By name.
    Word(PrefixWord),
    /// In groups.
    Groups(GroupsTable),
}

/// `unique`, `shared`, `cold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum PrefixWord {
    /// Each stream has its own prompt, warmed before the window.
    Unique,
    /// One prompt for all.
    Shared,
    /// Never seen before.
    Cold,
}

/// `{ groups, length }`.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(inline, extend("required" = ["groups", "length"]))]
pub struct GroupsTable {
    /// How many groups.
    pub groups: Option<At<Whole>>,
    /// Length of the common beginning in tokens.
    pub length: Option<At<TokenCount>>,
}

/// A date, and whether it was written in quotes.
#[derive(Debug, Clone)]
pub struct DateText {
    /// As written.
    pub text: String,
    /// Whether it stood in quotes.
    pub quoted: bool,
}

/// A whole number from 1 on.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(transparent)]
pub struct Whole(pub u32);

/// A token count as typed.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(transparent)]
pub struct TokenCount(pub Scalar);

macro_rules! text {
    ($($(#[$doc:meta])* $name:ident: $expects:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "x-expects": $expects })
            }
        }
    )*};
}

text! {
    /// A duration as typed.
    DurationText: "a duration with a unit, like \"30s\"";
    /// A percentage as typed.
    PercentText: "a percentage, like \"5%\"";
    /// A percentage or `off`, as typed.
    ToleranceText: "a percentage, like \"0.5%\", or \"off\"";
    /// A size as typed.
    SizeText: "a size with a unit, like \"141GB\"";
    /// A version requirement as typed.
    VersionText: "a version in quotes, like \"0.29.0\" or \">=0.28, <0.30\"";
}

macro_rules! schema {
    ($($name:ident($generator:ident) => $schema:tt)*) => {$(
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

schema! {
    Scalar(_generator) => {
        "type": ["integer", "number", "string", "boolean"],
        "x-expects": "a text, a number, or true or false",
    }
    AxisItem(_generator) => {
        "type": ["integer", "number", "string", "boolean", "object"],
        "x-expects": "a single value, or a table of values that belong together with an `id`",
    }
    AxisValues(generator) => {
        "anyOf": [
            { "type": "array", "items": generator.subschema_for::<AxisItem>() },
            generator.subschema_for::<Geometric>(),
        ],
        "x-expects": "a list of values, or { from = 1, to = 128, times = 2 }",
    }
    Selection(generator) => {
        "anyOf": [
            generator.subschema_for::<Scalar>(),
            { "type": "array", "items": generator.subschema_for::<Scalar>() },
        ],
        "x-expects": "a value, a range like \"8K..64K\", or a list of values",
    }
    CommandValue(_generator) => {
        "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
        ],
        "x-expects": "a text, or a list with one text for each argument",
    }
    OneOrMany(_generator) => {
        "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
        ],
        "x-expects": "a text, or a list of texts",
    }
    LimitValue(generator) => {
        "anyOf": [
            { "type": "number" },
            { "type": "string" },
            generator.subschema_for::<GridTable>(),
        ],
        "x-expects": "a number, a quantity like \"350ms\", or a grid with rows, columns, at and grid",
    }
    PrefixValue(generator) => {
        "anyOf": [
            generator.subschema_for::<PrefixWord>(),
            generator.subschema_for::<GroupsTable>(),
        ],
        "x-expects": "\"unique\", \"shared\", \"cold\", or { groups = 150, length = 6000 }",
    }
    DateText(_generator) => {
        "type": "string",
        "format": "date",
        "x-expects": "a date without quotes, like 2027-06-30",
    }
    Whole(_generator) => {
        "type": "integer",
        "minimum": 1,
        "maximum": 4_294_967_295u32,
        "x-expects": "a whole number from 1 on",
    }
    TokenCount(_generator) => {
        "type": ["integer", "string"],
        "x-expects": "a token count, like 8192 or \"8K\"",
    }
}

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

shapes! { Scalar AxisItem AxisValues Selection CommandValue OneOrMany LimitValue PrefixValue DateText }

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
