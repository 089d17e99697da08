//! Values as a profile spells them: token counts, durations, percentages, entries of a grid.
//!
//! Read by plain serde; `quantity` decides what a suffix means.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::quantity::{self, Tokens};

/// A token count: an integer or a text like `"8K"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) u64);

/// A duration: a text like `"2s"`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Time(pub(crate) Duration);

/// A fraction: a text like `"5%"`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share(pub(crate) f64);

/// A context or a time in a grid.
#[derive(Debug, Clone)]
pub(crate) enum GridValue {
    Number(f64),
    Text(String),
}

impl GridValue {
    /// As a context.
    pub(crate) fn tokens(&self) -> Option<u64> {
        match self {
            GridValue::Number(number) if number.fract() == 0.0 && *number > 0.0 => {
                Some(*number as u64)
            }
            GridValue::Number(_) => None,
            GridValue::Text(text) => text.parse::<Tokens>().ok().map(|tokens| tokens.0),
        }
    }

    /// As milliseconds.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            GridValue::Number(number) => Some(*number),
            GridValue::Text(_) => None,
        }
    }
}

impl fmt::Display for GridValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GridValue::Number(number) => write!(f, "{number}"),
            GridValue::Text(text) => write!(f, "{text:?}"),
        }
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of tokens, or a text like \"8K\"")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Count, E> {
        u64::try_from(value).map(Count).map_err(|_| E::custom("a token count can't be negative"))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
        text.parse::<Tokens>().map(|tokens| Count(tokens.0)).map_err(unreadable)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        quantity::parse_duration(&text).map(Time).map_err(unreadable)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        let text = String::deserialize(deserializer)?;
        quantity::parse_percent(&text).map(Share).map_err(unreadable)
    }
}

fn unreadable<E: de::Error>(error: quantity::Unreadable) -> E {
    match error.help {
        Some(help) => E::custom(format!("{}: {help}", error.message)),
        None => E::custom(error.message),
    }
}

struct GridVisitor;

impl Visitor<'_> for GridVisitor {
    type Value = GridValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a context like \"8K\" or a number of milliseconds")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<GridValue, E> {
        Ok(GridValue::Number(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<GridValue, E> {
        Ok(GridValue::Number(value as f64))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<GridValue, E> {
        Ok(GridValue::Number(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GridValue, E> {
        Ok(GridValue::Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for GridValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GridValue, D::Error> {
        deserializer.deserialize_any(GridVisitor)
    }
}
