//! Stand-in for the reader of selectors until the real one is merged: same signatures.

use super::model::{AxisKind, Key, Predicate, Selector};
use crate::quantity::{Tokens, Unreadable};

fn unreadable(message: String) -> Unreadable {
    Unreadable { message, help: None }
}

impl Selector {
    /// Reads `context=8K,16K concurrency=32.. test=decode`.
    ///
    /// # Errors
    /// A word without `=`, a predicate that can't be read.
    pub fn parse_line(text: &str) -> Result<Selector, Unreadable> {
        let mut predicates = Vec::new();
        for word in text.split_whitespace() {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| unreadable(format!("`{word}` is not of the form axis=value")))?;
            let key = match key {
                "test" => Key::Test,
                "variant" => Key::Variant,
                name => Key::Axis(name.to_owned()),
            };
            let kind = match &key {
                Key::Axis(name) if matches!(name.as_str(), "context" | "input" | "output") => {
                    Some(AxisKind::Tokens)
                }
                Key::Axis(_) | Key::Test | Key::Variant => None,
            };
            let predicate = parse_predicate(&key, kind, value)?;
            predicates.push((key, predicate));
        }
        Ok(Selector { predicates, text: text.to_owned(), ..Selector::default() })
    }
}

/// Reads one predicate: `8K..64K`, `65..`, `!8K`, `8K,16K`.
///
/// # Errors
/// A value that is none of the axis' kind.
pub fn parse_predicate(
    key: &Key,
    kind: Option<AxisKind>,
    text: &str,
) -> Result<Predicate, Unreadable> {
    if text.is_empty() {
        return Err(unreadable(format!("the predicate on {key:?} is empty")));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(Predicate::Not(Box::new(parse_predicate(key, kind, rest)?)));
    }
    let tokens = kind == Some(AxisKind::Tokens);
    if let Some((from, to)) = text.split_once("..") {
        let end = |text: &str| -> Result<Option<f64>, Unreadable> {
            if text.is_empty() {
                return Ok(None);
            }
            if tokens {
                return Ok(Some(text.parse::<Tokens>()?.0 as f64));
            }
            text.parse().map(Some).map_err(|_| unreadable(format!("`{text}` is not a number")))
        };
        return Ok(Predicate::Range(end(from)?, end(to)?));
    }
    let values = text.split(',').map(|value| {
        if tokens {
            value.parse::<Tokens>().map(|count| count.to_string())
        } else {
            Ok(value.to_owned())
        }
    });
    values.collect::<Result<_, _>>().map(Predicate::OneOf)
}
