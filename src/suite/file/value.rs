//! Values of a suite file as typed: with spans, and in every shape that a key takes.
//!
//! Each type reads what TOML has and says in its JSON Schema, under `x-expects`, what belongs there
//! in words: what a validator says of an `anyOf` helps nobody. Quantities stay text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
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
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
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

/// A row of a grid: the value of the row axis, then the limits.
pub type GridRow = Vec<At<Scalar>>;

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
    pub grid: Option<At<Vec<At<GridRow>>>>,
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

/// Lengths in tokens: all alike, or how they vary.
#[derive(Debug, Clone)]
pub enum LengthValue {
    /// All alike.
    Count(Scalar),
    /// How they vary.
    Table(LengthTable),
}

/// `{ uniform }`, `{ normal }` or `{ jitter, around }`.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(inline)]
pub struct LengthTable {
    /// Evenly between both, ends included.
    pub uniform: Option<At<PairOfCounts>>,
    /// By a normal distribution: mean and standard deviation.
    pub normal: Option<At<PairOfCounts>>,
    /// Evenly within such a share of a middle: the axis' value, or `around`.
    pub jitter: Option<At<PercentText>>,
    /// The middle where no axis gives it.
    pub around: Option<At<TokenCount>>,
}

/// Two token counts as typed.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(transparent)]
pub struct PairOfCounts(pub Vec<At<TokenCount>>);

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
    /// A duration or `auto`, as typed.
    TimeLimitText: "a duration with a unit, like \"4h\", or \"auto\"";
    /// A percentage as typed.
    PercentText: "a percentage, like \"5%\"";
    /// A percentage or `off`, as typed.
    ToleranceText: "a percentage, like \"0.5%\", or \"off\"";
    /// A duration or `off`, as typed.
    SamplingText: "a duration with a unit, like \"200ms\", or \"off\"";
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
    LengthValue(generator) => {
        "anyOf": [
            { "type": ["integer", "string"] },
            generator.subschema_for::<LengthTable>(),
        ],
        "x-expects": "a token count, { uniform = [6000, 8000] }, { normal = [7000, 500] } or { jitter = \"20%\" }",
    }
    PairOfCounts(generator) => {
        "type": "array",
        "items": generator.subschema_for::<TokenCount>(),
        "minItems": 2,
        "maxItems": 2,
        "x-expects": "two token counts, like [6000, 8000]",
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
