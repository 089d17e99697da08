//! Trees: a text parsed with its spans, before anything is typed.
//!
//! Every node keeps the span of the text that wrote it, in the source map's offsets. Paths lead into
//! a tree, values that JSON has no word for are sorted out, and what the shape check found wrong is
//! taken away, so that later stages find the other problems. It knows nothing of what keys mean.

use std::fmt;
use std::ops::Range;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::problem::Problem;

/// A table with spans.
pub type Tree<'t> = DeTable<'t>;

/// A value with its span.
pub type Node<'t> = Spanned<DeValue<'t>>;

/// One step of a path into a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a table.
    Key(String),
    /// Into an array.
    Index(usize),
}

/// A path into a tree; prints as people name the place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The path one key further.
    pub fn key(&self, key: &str) -> Path {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Path(steps)
    }

    /// The last key on it.
    pub fn last_key(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
    }
}

impl fmt::Display for Path {
    /// `[engine]`, `[[test]]`, `test.matrix`, or `the suite` for the root.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("the suite"),
            [Step::Key(key)] => write!(f, "[{key}]"),
            [Step::Key(key), Step::Index(_)] => write!(f, "[[{key}]]"),
            [Step::Key(table), Step::Key(key)] if table == "variant" || table == "profile" => {
                write!(f, "[{table}.{key}]")
            }
            steps => {
                let mut first = true;
                for step in steps {
                    if let Step::Key(key) = step {
                        if !first {
                            f.write_str(".")?;
                        }
                        f.write_str(key)?;
                        first = false;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Parses a text whose first byte stands at `start` in the source map.
///
/// # Errors
/// What in it is no TOML, the first few: the rest mostly follows from these.
pub fn parse(text: &str, start: usize) -> Result<Tree<'_>, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().take(5).map(|error| syntax(error, text, start)).collect());
    }
    let mut tree = root.into_inner();
    shift_table(&mut tree, start);
    Ok(tree)
}

/// What TOML's parser says, with a help for what people forget: quotes.
fn syntax(error: &toml::de::Error, text: &str, start: usize) -> Problem {
    let message = format!("not TOML: {}", error.message());
    let Some(span) = error.span() else { return Problem::new("syntax", message) };
    let at = span.start.min(text.len());
    let from = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let to = text[at..].find('\n').map_or(text.len(), |end| at + end);
    let problem = Problem::at("syntax", moved(span, start), message);
    match bare_word(&text[from..to]) {
        Some(word) => problem.help(format!("put it in quotes: \"{word}\"")),
        None => problem.help(
            "in TOML texts stand in quotes, lists in [ ], tables within a line in { }, and each key on its own line",
        ),
    }
}

/// A value like `8K` or `30s` that should have been in quotes.
fn bare_word(line: &str) -> Option<&str> {
    let (_, value) = line.split_once('=')?;
    let value = value.split('#').next()?;
    value.split(['[', ']', ',', '{', '}', '=']).map(str::trim).find(|word| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        unit.len() < word.len()
            && !unit.is_empty()
            && unit.chars().all(|c| c.is_ascii_alphabetic() || c == '%')
    })
}

fn moved(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

fn shift_table(table: &mut Tree<'_>, by: usize) {
    *table = std::mem::take(table)
        .into_iter()
        .map(|(key, value)| {
            let span = moved(key.span(), by);
            (Spanned::new(span, key.into_inner()), shift(value, by))
        })
        .collect();
}

fn shift(value: Node<'_>, by: usize) -> Node<'_> {
    let span = moved(value.span(), by);
    let mut inner = value.into_inner();
    match &mut inner {
        DeValue::Table(table) => shift_table(table, by),
        DeValue::Array(array) => {
            for item in array.iter_mut() {
                let old = std::mem::replace(item, Spanned::new(0..0, DeValue::Boolean(false)));
                *item = shift(old, by);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
    Spanned::new(span, inner)
}

/// The node at a path, and the span of the key that leads to it.
pub fn locate<'a, 't>(tree: &'a Tree<'t>, path: &Path) -> Option<(Range<usize>, &'a Node<'t>)> {
    let (first, rest) = path.0.split_first()?;
    let Step::Key(first) = first else { return None };
    let (key, mut node) = tree.get_key_value(first.as_str())?;
    let mut key_span = key.span();
    for step in rest {
        match (step, node.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                let (key, value) = table.get_key_value(name.as_str())?;
                key_span = key.span();
                node = value;
            }
            (Step::Index(at), DeValue::Array(array)) => {
                node = array.get(*at)?;
                key_span = node.span();
            }
            (Step::Key(_) | Step::Index(_), _) => return None,
        }
    }
    Some((key_span, node))
}

/// Takes away the key at a path; for a path that ends in an array, the array's key. Returns that
/// key's name.
pub fn remove(tree: &mut Tree<'_>, path: &Path) -> Option<String> {
    let last = path.0.iter().rposition(|step| matches!(step, Step::Key(_)))?;
    let Step::Key(name) = &path.0[last] else { return None };
    let mut table = tree;
    let mut steps = path.0[..last].iter();
    while let Some(Step::Key(key)) = steps.next() {
        let mut node = table.get_mut(key.as_str())?.get_mut();
        loop {
            match node {
                DeValue::Array(array) => {
                    let Some(Step::Index(at)) = steps.next() else { return None };
                    node = array.get_mut(*at)?.get_mut();
                }
                DeValue::Table(inner) => {
                    table = inner;
                    break;
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => return None,
            }
        }
    }
    table.remove(name.as_str()).map(|_| name.clone())
}

/// A whole number, where it fits.
pub fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// The tree as JSON: without spans, dates as text. Numbers that JSON has no word for become null.
pub fn to_json(tree: &Tree<'_>) -> Value {
    let entries = tree.iter().map(|(key, value)| (key.to_string(), node_to_json(value.get_ref())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// As [`to_json`], of one value.
pub fn node_to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => integer(number).map_or(Value::Null, Value::from),
        DeValue::Float(number) => {
            let number = number.as_str().parse::<f64>().ok();
            number.and_then(Number::from_f64).map_or(Value::Null, Value::Number)
        }
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(array) => {
            Value::Array(array.iter().map(|item| node_to_json(item.get_ref())).collect())
        }
        DeValue::Table(table) => to_json(table),
    }
}

/// Sorts out what no key of a suite takes: NaN, infinities, numbers beyond 64 bits, and dates
/// elsewhere than at `expires`. Such a value becomes 1, so that its neighbours stay in place.
pub fn sort_out(tree: &mut Tree<'_>, problems: &mut Vec<Problem>) {
    *tree = std::mem::take(tree)
        .into_iter()
        .map(|(key, value)| {
            let name = key.get_ref().to_string();
            (key, sort_out_node(value, &name, problems))
        })
        .collect();
}

fn sort_out_node<'t>(node: Node<'t>, key: &str, problems: &mut Vec<Problem>) -> Node<'t> {
    let span = node.span();
    let mut inner = node.into_inner();
    let problem = match &mut inner {
        DeValue::Table(table) => {
            sort_out(table, problems);
            None
        }
        DeValue::Array(array) => {
            for item in array.iter_mut() {
                let old = std::mem::replace(item, Spanned::new(0..0, DeValue::Boolean(false)));
                *item = sort_out_node(old, key, problems);
            }
            None
        }
        DeValue::Integer(number) if integer(number).is_none() => Some(
            Problem::at(
                "number-range",
                span.clone(),
                format!("`{number}` does not fit in 64 bits"),
            )
            .help("write a smaller number"),
        ),
        DeValue::Float(number) if !number.as_str().parse().is_ok_and(f64::is_finite) => Some(
            Problem::at("not-a-number", span.clone(), format!("`{number}` is not a finite number"))
                .help(match key {
                    "request_rate" => {
                        "write `arrival = \"burst\"` for everything at once, and no axis `request_rate`"
                            .to_owned()
                    }
                    key => format!("write a number, or leave out `{key}`"),
                }),
        ),
        DeValue::Datetime(date) if key != "expires" => Some(
            Problem::at("date", span.clone(), format!("a date does not belong at `{key}`"))
                .help(format!("put it in quotes to make it text: \"{date}\"")),
        ),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    };
    if let Some(problem) = problem {
        problems.push(problem);
        inner = DeValue::parse("1").map_or(DeValue::Boolean(true), Spanned::into_inner);
    }
    Spanned::new(span, inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> Path {
        Path(
            steps
                .iter()
                .map(|step| {
                    step.parse().map_or_else(|_| Step::Key((*step).to_owned()), Step::Index)
                })
                .collect(),
        )
    }

    #[test]
    fn spans_are_those_of_the_source_map() {
        let text = "[[expect]]\nmin.grid = [\n  [\"8K\", 1.5],\n]\n";
        let tree = parse(text, 100).unwrap();
        let (_, node) = locate(&tree, &path(&["expect", "0", "min", "grid", "0", "1"])).unwrap();
        assert_eq!(&text[node.span().start - 100..node.span().end - 100], "1.5");
    }

    #[test]
    fn a_wrong_item_takes_its_whole_list_away() {
        let mut tree = parse("[[test]]\nname = \"a\"\nmatrix.context = [1, 2]\n", 0).unwrap();
        let name = remove(&mut tree, &path(&["test", "0", "matrix", "context", "1"]));
        assert_eq!(name.as_deref(), Some("context"));
        assert_eq!(to_json(&tree).to_string(), r#"{"test":[{"matrix":{},"name":"a"}]}"#);
    }

    #[test]
    fn what_json_has_no_word_for_is_a_problem() {
        let mut tree =
            parse("a = nan\nb = [1, inf]\nc = 2027-01-01\nexpires = 2027-01-01", 0).unwrap();
        let mut problems = Vec::new();
        sort_out(&mut tree, &mut problems);
        let codes: Vec<_> = problems.iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["not-a-number", "not-a-number", "date"]);
        assert_eq!(to_json(&tree).to_string(), r#"{"a":1,"b":[1,1],"c":1,"expires":"2027-01-01"}"#);
    }

    #[test]
    fn quotes_that_are_missing_are_asked_for() {
        let problems = parse("context = [8K, 16K]\n", 0).unwrap_err();
        assert_eq!(problems[0].help.as_deref(), Some("put it in quotes: \"8K\""));
    }
}
