//! Selectors: conjunctions of predicates on a cell's test, variant and axes.
//!
//! One type serves expectations, exclude, quarantine, profiles and the command line. This reads
//! predicates from their spelling and asks them of values; which axes there are, and whether a
//! selector matches any cell, is for those who know the suite.

use std::fmt;

use crate::quantity::{Tokens, Unreadable};
use crate::suite::model::{AxisKind, AxisValue, Key, Predicate, Selector};

const RANGES: &str = "write a range with both ends included: \"32..\", \"..4\" or \"8K..64K\"";

impl Key {
    /// Reads a key: `test`, `variant`, or the name of an axis.
    pub fn parse(name: &str) -> Key {
        match name {
            "test" => Key::Test,
            "variant" => Key::Variant,
            axis => Key::Axis(axis.to_owned()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Test => f.write_str("test"),
            Key::Variant => f.write_str("variant"),
            Key::Axis(name) => f.write_str(name),
        }
    }
}

/// What the values of the axis of a name mean: the known axes have their meaning in every suite.
pub fn axis_kind(name: &str) -> AxisKind {
    match name {
        "context" | "input" | "output" => AxisKind::Tokens,
        "concurrency" => AxisKind::Count,
        "request_rate" => AxisKind::Rate,
        _ => AxisKind::Free,
    }
}

impl Selector {
    /// Reads the command line's spelling: `context=8K,16K concurrency=32.. test=decode`.
    ///
    /// # Errors
    /// No predicate, one without `=`, a key twice, or a predicate that can't be read.
    pub fn parse_line(line: &str) -> Result<Selector, Unreadable> {
        const HELP: &str = "write 'context=8K,16K concurrency=32.. test=decode'";
        let mut predicates: Vec<(Key, Predicate)> = Vec::new();
        for word in line.split_whitespace() {
            let Some((name, text)) = word.split_once('=') else {
                let help = format!("write '{word}=…', or the name of a test as 'test={word}'");
                return Err(unreadable(format!("`{word}` has no `=`"), help));
            };
            if let Some(apart) = apart(name, text) {
                let message = format!("`{word}` is several predicates in one word");
                return Err(unreadable(message, format!("put blanks between them: '{apart}'")));
            }
            if let Some(stem) = name.strip_suffix(['!', '<', '>']) {
                let help = match &name[stem.len()..] {
                    "!" => format!("write '{stem}=!{text}'"),
                    "<" => format!("write '{stem}=..{text}'"),
                    _ => format!("write '{stem}={text}..'"),
                };
                return Err(unreadable(format!("`{word}` is no predicate"), help));
            }
            if name.is_empty() {
                return Err(unreadable(format!("`{word}` names no axis"), HELP));
            }
            let key = Key::parse(name);
            if predicates.iter().any(|(other, _)| *other == key) {
                let help = format!("write one predicate, a list or a range: '{name}=8K,16K'");
                return Err(unreadable(format!("`{name}` stands twice in one selector"), help));
            }
            let predicate = parse_predicate(&key, None, text)?;
            predicates.push((key, predicate));
        }
        if predicates.is_empty() {
            return Err(unreadable("the selector is empty".to_owned(), HELP));
        }
        Ok(Selector { predicates, text: line.trim().to_owned(), place: None, span: None })
    }

    /// Whether it matches a cell: its test, its variant and the value of each of its axes. A
    /// predicate on an axis that the test does not have, or on the variant where there is none,
    /// does not match.
    pub fn matches<'a>(
        &self,
        test: &str,
        variant: Option<&str>,
        axis: impl Fn(&str) -> Option<&'a AxisValue>,
    ) -> bool {
        self.predicates.iter().all(|(key, predicate)| match key {
            Key::Test => predicate.holds_for_name(test),
            Key::Variant => variant.is_some_and(|name| predicate.holds_for_name(name)),
            Key::Axis(name) => axis(name).is_some_and(|value| predicate.holds_for(value)),
        })
    }
}

/// A cell's name as people copy it, `context=8K,concurrency=4`, with its predicates set apart.
fn apart(name: &str, text: &str) -> Option<String> {
    let has_meaning = |name: &str| match Key::parse(name) {
        Key::Test | Key::Variant => true,
        Key::Axis(name) => axis_kind(&name) != AxisKind::Free,
    };
    let begins = |part: &str| {
        part.split_once('=').is_some_and(|(other, _)| {
            super::name::is_word(other) && (has_meaning(other) || has_meaning(name))
        })
    };
    let mut parts = text.split(',');
    let mut said = format!("{name}={}", parts.next().unwrap_or_default());
    let mut several = false;
    for part in parts {
        several |= begins(part);
        said.push(if begins(part) { ' ' } else { ',' });
        said.push_str(part);
    }
    several.then_some(said)
}

impl fmt::Display for Selector {
    /// The canonical spelling, as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, predicate)) in self.predicates.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            write!(f, "{blank}{key}=")?;
            let tokens = matches!(key, Key::Axis(name) if axis_kind(name) == AxisKind::Tokens);
            predicate.write(f, tokens)?;
        }
        Ok(())
    }
}

impl Predicate {
    /// Whether it holds for a name: of a test, of a variant.
    pub fn holds_for_name(&self, name: &str) -> bool {
        match self {
            Predicate::OneOf(values) => values.iter().any(|value| value == name),
            Predicate::Range(..) => false,
            Predicate::Not(inner) => !inner.holds_for_name(name),
        }
    }

    /// Whether it holds for a value of an axis.
    pub fn holds_for(&self, value: &AxisValue) -> bool {
        match self {
            Predicate::OneOf(values) => {
                let canonical = value.to_string();
                values.iter().any(|text| *text == canonical || same_number(value, text))
            }
            Predicate::Range(from, to) => value.number().is_some_and(|number| {
                from.is_none_or(|from| number >= from) && to.is_none_or(|to| number <= to)
            }),
            Predicate::Not(inner) => !inner.holds_for(value),
        }
    }

    /// Whether it holds a range somewhere.
    pub fn is_range(&self) -> bool {
        match self {
            Predicate::OneOf(_) => false,
            Predicate::Range(..) => true,
            Predicate::Not(inner) => inner.is_range(),
        }
    }

    /// The values that it names, for those who look for misspelled ones.
    pub fn values(&self) -> &[String] {
        match self {
            Predicate::OneOf(values) => values,
            Predicate::Range(..) => &[],
            Predicate::Not(inner) => inner.values(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, tokens: bool) -> fmt::Result {
        match self {
            Predicate::OneOf(values) => f.write_str(&values.join(",")),
            Predicate::Range(from, to) => {
                let end = |end: &Option<f64>| match end {
                    Some(n) if tokens && *n >= 0.0 => Tokens(*n as u64).to_string(),
                    Some(n) => n.to_string(),
                    None => String::new(),
                };
                write!(f, "{}..{}", end(from), end(to))
            }
            Predicate::Not(inner) => {
                f.write_str("!")?;
                inner.write(f, tokens)
            }
        }
    }
}

/// Whether a text is another spelling of a value's number: `1.50` for `1.5`, `8192` for `8K`.
fn same_number(value: &AxisValue, text: &str) -> bool {
    match value {
        AxisValue::Tokens(tokens) => text.parse() == Ok(Tokens(*tokens)),
        AxisValue::Integer(_) | AxisValue::Float(_) => {
            text.parse::<f64>().ok().is_some_and(|number| value.number() == Some(number))
        }
        AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => false,
    }
}

/// Reads a predicate from its text: `8K`, `8K,16K`, `32..`, `..4`, `8K..64K`, `!8K`. Values become
/// canonical, so that `8192` and `8K` are one. Without `kind` the axis has that of its name.
///
/// # Errors
/// An empty text or range, ends in the wrong order, ends that are no numbers, values that the kind
/// of axis can't have.
pub fn parse_predicate(
    key: &Key,
    kind: Option<AxisKind>,
    text: &str,
) -> Result<Predicate, Unreadable> {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('!') {
        if inner.trim_start().starts_with('!') {
            return Err(unreadable(format!("`{text}` denies twice"), "write it without `!`"));
        }
        return Ok(Predicate::Not(Box::new(parse_predicate(key, kind, inner)?)));
    }
    if text.is_empty() {
        return Err(unreadable(
            format!("the predicate on `{key}` is empty"),
            "write a value, a list or a range",
        ));
    }
    let kind = match key {
        Key::Test | Key::Variant => None,
        Key::Axis(name) => Some(kind.unwrap_or_else(|| axis_kind(name))),
    };
    if let Some((from, to)) = text.split_once("..") {
        let Some(kind) = kind else {
            let help = format!("write one or several names of a {key}");
            return Err(unreadable(format!("`{key}` has no numbers to make a range of"), help));
        };
        return range(kind, text, from.trim(), to.trim());
    }
    for sign in [">=", "<=", ">", "<"] {
        if let Some(end) = text.strip_prefix(sign) {
            let help = match sign {
                ">=" => format!("write \"{}..\", the end is included", end.trim()),
                "<=" => format!("write \"..{}\", the end is included", end.trim()),
                _ => RANGES.to_owned(),
            };
            return Err(unreadable(format!("`{text}` is no predicate"), help));
        }
    }
    let mut values = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        if part.is_empty() {
            return Err(unreadable(
                format!("the list `{text}` has an empty value"),
                "write values with one comma between them",
            ));
        }
        let value = match kind {
            None => part.to_owned(),
            Some(kind) => canonical(kind, part)?,
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(Predicate::OneOf(values))
}

/// The canonical spelling of one value of an axis.
///
/// # Errors
/// The text is no value that an axis of this kind can have.
pub fn canonical(kind: AxisKind, text: &str) -> Result<String, Unreadable> {
    match kind {
        AxisKind::Tokens => Ok(text.parse::<Tokens>()?.to_string()),
        AxisKind::Count => {
            text.replace('_', "").parse::<u64>().map(|n| n.to_string()).map_err(|_| {
                unreadable(format!("`{text}` is not a count"), "write a whole number, like 32")
            })
        }
        AxisKind::Rate => match text.replace('_', "").parse::<f64>() {
            Ok(rate) if rate.is_finite() => Ok(rate.to_string()),
            Ok(_) | Err(_) => Err(unreadable(
                format!("`{text}` is not a rate"),
                "write a number without unit, in requests per second",
            )),
        },
        AxisKind::Free => Ok(text.to_owned()),
    }
}

fn range(kind: AxisKind, text: &str, from: &str, to: &str) -> Result<Predicate, Unreadable> {
    let end = |part: &str| -> Result<Option<f64>, Unreadable> {
        if part.is_empty() {
            return Ok(None);
        }
        if kind == AxisKind::Tokens {
            return part.parse::<Tokens>().map(|tokens| Some(tokens.0 as f64));
        }
        match part.replace('_', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            Ok(_) | Err(_) => {
                Err(unreadable(format!("`{part}` is no number to end a range"), RANGES))
            }
        }
    };
    let (from, to) = (end(from)?, end(to)?);
    match (from, to) {
        (None, None) => Err(unreadable(format!("the range `{text}` has no end"), RANGES)),
        (Some(from), Some(to)) if from > to => Err(unreadable(
            format!("the range `{text}` ends before it begins"),
            "write the smaller end first",
        )),
        (from, to) => Ok(Predicate::Range(from, to)),
    }
}

fn unreadable(message: String, help: impl Into<String>) -> Unreadable {
    Unreadable { message, help: Some(help.into()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(line: &str, axes: &[(&str, AxisValue)]) -> bool {
        Selector::parse_line(line).unwrap().matches("decode", Some("old"), |name| {
            axes.iter().find(|(axis, _)| *axis == name).map(|(_, value)| value)
        })
    }

    #[test]
    fn what_people_copy_is_set_apart() {
        let help = |line: &str| Selector::parse_line(line).unwrap_err().help.unwrap();
        let apart = "put blanks between them: 'context=8K,16K concurrency=4'";
        assert_eq!(help("context=8K,16K,concurrency=4"), apart);
        assert_eq!(
            help("layout=tp8,context=8K test=decode"),
            "put blanks between them: 'layout=tp8 context=8K'"
        );
        assert!(Selector::parse_line("flags=a=1,b=2").is_ok(), "values of a free axis");
        assert!(help("decode context=8K").contains("'test=decode'"));
    }

    #[test]
    fn a_selector_is_a_conjunction() {
        let cell = [
            ("context", AxisValue::Tokens(8192)),
            ("concurrency", AxisValue::Integer(32)),
            ("layout", AxisValue::Text("tp8".to_owned())),
        ];
        for line in [
            "context=8K",
            "context=8192",
            "context=8K,16K concurrency=32.. test=decode",
            "context=..8K",
            "context=8K..64K",
            "context=!16K",
            "context=!16K..",
            "layout=tp8,dp8 variant=old",
            "variant=!new test=!prefill",
        ] {
            assert!(matches(line, &cell), "{line}");
        }
        for line in [
            "context=16K",
            "context=8K concurrency=33..",
            "test=prefill",
            "context=!8192",
            "context=8193..",
            "layout=!tp8",
            "variant=new",
            // An axis that the test does not have never matches, denied or not.
            "request_rate=1..",
            "request_rate=!1",
        ] {
            assert!(!matches(line, &cell), "{line}");
        }
    }

    #[test]
    fn numbers_match_in_any_spelling() {
        let cell = [("share", AxisValue::Float(1.5)), ("request_rate", AxisValue::Integer(2))];
        assert!(matches("share=1.50 request_rate=2.0", &cell));
        assert!(!matches("share=1.51", &cell));
    }

    #[test]
    fn the_canonical_spelling_is_printed() {
        let line = "context=8192,16K input=..65536 concurrency=!08 request_rate=0.50..";
        let selector = Selector::parse_line(line).unwrap();
        assert_eq!(
            selector.to_string(),
            "context=8K,16K input=..64K concurrency=!8 request_rate=0.5.."
        );
    }

    #[test]
    fn what_is_no_selector_says_what_to_write() {
        let refused = |line: &str| {
            let error = Selector::parse_line(line).unwrap_err();
            format!("{line} -> {} | {}", error.message, error.help.unwrap())
        };
        let all = [
            "",
            "decode",
            "context=",
            "context=8k",
            "context=8K,",
            "context=..",
            "context=64K..8K",
            "context=a..",
            "context!=8K",
            "context>=8K",
            "concurrency=>=4",
            "concurrency=8K",
            "test=a..b",
            "context=8K context=16K",
            "context=!!8K",
        ]
        .map(refused);
        insta::assert_snapshot!(all.join("\n"));
    }

    proptest! {
        #[test]
        fn both_ends_of_a_range_are_included(n in 0u64..1 << 22, from in 0u64..1 << 22, to in 0u64..1 << 22) {
            prop_assume!(from <= to);
            let cell = [("context", AxisValue::Tokens(n))];
            let line = format!("context={}..{}", Tokens(from), Tokens(to));
            prop_assert_eq!(matches(&line, &cell), from <= n && n <= to);
            let denied = format!("context=!{}..{}", Tokens(from), Tokens(to));
            prop_assert_ne!(matches(&denied, &cell), matches(&line, &cell));
        }

        #[test]
        fn the_canonical_spelling_means_the_same(a in 1u64..1 << 21, b in 1u64..1 << 21, n in 0u64..1 << 21) {
            for line in [format!("context={a},{b}"), format!("context=!{a}"), format!("context={a}..")] {
                let canonical = Selector::parse_line(&line).unwrap().to_string();
                for value in [a, b, n] {
                    let cell = [("context", AxisValue::Tokens(value))];
                    prop_assert_eq!(matches(&line, &cell), matches(&canonical, &cell));
                }
            }
        }
    }
}
