//! A tool's result file: its text read as JSON, and numbers found in it by JSON pointer.
//!
//! Pure. What is missing is told by what is there: how far a pointer matched, which keys stand at that
//! place, which of them is nearest. What a number means is decided in `preset`, or by the suite.

use std::fmt::Write;

use serde_json::Value;

/// Keys that a message lists.
const LISTED: usize = 12;
/// Longest key or text in a message, in characters.
const SHOWN: usize = 60;

/// A text that is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nothing but blanks.
    #[error("it is empty")]
    Empty,
    /// No JSON; where and why.
    #[error("it is no JSON: {0}")]
    NotJson(String),
}

/// A pointer that leads to no number, with the whole message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoNumber(pub String);

/// The JSON values of a text: one of a JSON file, one a line of JSON Lines.
///
/// Python writes `NaN` and `Infinity`, which JSON does not have; they become the texts of these
/// names, so that one somewhere in a file costs no other number.
///
/// # Errors
/// Nothing there, or no JSON.
pub fn read(text: &str) -> Result<Vec<Value>, Unreadable> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(Unreadable::Empty);
    }
    let quoted = quote_words(text);
    serde_json::Deserializer::from_str(&quoted)
        .into_iter::<Value>()
        .collect::<Result<Vec<Value>, _>>()
        .map_err(|error| Unreadable::NotJson(error.to_string()))
}

/// `NaN`, `Infinity` and `-Infinity` outside of texts, in quotes.
fn quote_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut inside = false;
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| rest.starts_with(word));
        let taken = match (inside, c, word) {
            (true, '\\', _) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (false, _, Some(word)) => {
                let _ = write!(out, "\"{word}\"");
                rest = &rest[word.len()..];
                continue;
            }
            (_, '"', _) => {
                inside = !inside;
                1
            }
            (_, other, _) => other.len_utf8(),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

/// The number at a JSON pointer (RFC 6901: `~1` is `/`, `~0` is `~`).
///
/// # Errors
/// The pointer is none, does not match, or leads to something else than a number.
pub fn number(document: &Value, pointer: &str) -> Result<f64, NoNumber> {
    let found = find(document, pointer)?;
    let what = match found {
        Value::Number(number) => {
            return number.as_f64().filter(|number| number.is_finite()).ok_or_else(|| {
                NoNumber(format!("{}: {number} is beyond every number", named(pointer)))
            });
        }
        Value::Null => "null: the tool did not measure it".to_owned(),
        Value::Bool(truth) => format!("{truth}, no number"),
        Value::String(text) if ["NaN", "Infinity", "-Infinity"].contains(&text.as_str()) => {
            format!("{text}, no number")
        }
        Value::String(text) if text.trim().parse::<f64>().is_ok() => {
            format!(
                "the text \"{}\"; a number is needed: have the tool write it without quotes",
                cut(text)
            )
        }
        Value::String(text) => format!("the text \"{}\", no number", cut(text)),
        Value::Array(entries) => {
            format!("an array of {}; the pointer must go on to a number", entries.len())
        }
        Value::Object(_) => format!("an object; the pointer must go on ({})", keys(found)),
    };
    Err(NoNumber(format!("{} is {what}", named(pointer))))
}

/// Whether there is something other than null at a pointer.
pub fn is_there(document: &Value, pointer: &str) -> bool {
    find(document, pointer).is_ok_and(|found| !found.is_null())
}

/// What stands at a pointer.
fn find<'a>(document: &'a Value, pointer: &str) -> Result<&'a Value, NoNumber> {
    if pointer.is_empty() {
        return Ok(document);
    }
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(NoNumber(format!(
            "`{pointer}` is no JSON pointer: write \"/{}\"",
            pointer.replace('.', "/")
        )));
    };
    let mut at = document;
    let mut matched = String::new();
    for token in path.split('/') {
        let key = unescaped(token).ok_or_else(|| {
            NoNumber(format!("`{pointer}` is no JSON pointer: write ~0 for ~, and ~1 for /"))
        })?;
        let here = || match matched.as_str() {
            "" => "the top".to_owned(),
            path => path.to_owned(),
        };
        let next = match at {
            Value::Object(entries) => entries
                .get(&key)
                .ok_or_else(|| format!("no key `{}` at {}{}", cut(&key), here(), near(at, &key))),
            Value::Array(entries) => key
                .parse::<usize>()
                .ok()
                .filter(|_| key == "0" || !key.starts_with(['0', '+']))
                .and_then(|index| entries.get(index))
                .ok_or_else(|| {
                    format!("no entry `{}` at {}, an array of {}", cut(&key), here(), entries.len())
                }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("nothing is below {}, which is {}", here(), cut(&at.to_string())))
            }
        };
        at = next.map_err(|why| NoNumber(format!("{pointer}: {why}")))?;
        let _ = write!(matched, "/{token}");
    }
    Ok(at)
}

fn named(pointer: &str) -> &str {
    if pointer.is_empty() { "the whole file" } else { pointer }
}

fn unescaped(token: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        match (c, c == '~') {
            (_, true) => match chars.next() {
                Some('0') => out.push('~'),
                Some('1') => out.push('/'),
                Some(_) | None => return None,
            },
            (c, false) => out.push(c),
        }
    }
    Some(out)
}

/// `; did you mean …?`, or which keys there are.
fn near(object: &Value, key: &str) -> String {
    let Value::Object(entries) = object else { return String::new() };
    let best = entries
        .keys()
        .map(|known| (strsim::jaro_winkler(key, known), known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, known)) if score > 0.85 => format!("; did you mean `{}`?", cut(known)),
        Some(_) | None => format!("; {}", keys(object)),
    }
}

fn keys(object: &Value) -> String {
    let Value::Object(entries) = object else { return String::new() };
    let names: Vec<String> =
        entries.keys().take(LISTED).map(|key| format!("`{}`", cut(key))).collect();
    match entries.len() {
        0 => "it has no keys".to_owned(),
        n if n > LISTED => format!("its keys are {} and {} more", names.join(", "), n - LISTED),
        _ => format!("its keys are {}", names.join(", ")),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn said(document: &Value, pointer: &str) -> String {
        number(document, pointer).unwrap_err().to_string()
    }

    #[test]
    fn numbers_are_found_as_the_standard_has_it() {
        let document = json!({
            "": 0, "a/b": 1, "m~n": 8, "foo": [3, 4], "k\"l": 6,
            "results": { "gsm8k": { "exact_match,strict-match": 0.912 } },
        });
        for (pointer, value) in [
            ("/", 0.0),
            ("/a~1b", 1.0),
            ("/m~0n", 8.0),
            ("/foo/1", 4.0),
            ("/k\"l", 6.0),
            ("/results/gsm8k/exact_match,strict-match", 0.912),
        ] {
            assert_eq!(number(&document, pointer), Ok(value), "{pointer}");
        }
        assert_eq!(number(&json!(7), ""), Ok(7.0));
    }

    #[test]
    fn what_does_not_match_is_told_by_what_is_there() {
        let document = json!({
            "results": { "gsm8k": { "exact_match,strict-match": 0.9, "alias": "gsm8k" } },
            "rows": [1, 2], "n": null, "text": "0.9", "word": "many", "yes": true,
        });
        for (pointer, message) in [
            (
                "/results/gsm8k/exact_match",
                "/results/gsm8k/exact_match: no key `exact_match` at /results/gsm8k; did you mean `exact_match,strict-match`?",
            ),
            (
                "/results/mmlu/acc",
                "/results/mmlu/acc: no key `mmlu` at /results; its keys are `gsm8k`",
            ),
            ("/rows/2", "/rows/2: no entry `2` at /rows, an array of 2"),
            ("/rows/01", "/rows/01: no entry `01` at /rows, an array of 2"),
            ("/text/x", "/text/x: nothing is below /text, which is \"0.9\""),
            ("/n", "/n is null: the tool did not measure it"),
            (
                "/text",
                "/text is the text \"0.9\"; a number is needed: have the tool write it without quotes",
            ),
            ("/word", "/word is the text \"many\", no number"),
            ("/yes", "/yes is true, no number"),
            ("/rows", "/rows is an array of 2; the pointer must go on to a number"),
            ("/results", "/results is an object; the pointer must go on (its keys are `gsm8k`)"),
            ("results.gsm8k", "`results.gsm8k` is no JSON pointer: write \"/results/gsm8k\""),
            ("/a~2", "`/a~2` is no JSON pointer: write ~0 for ~, and ~1 for /"),
        ] {
            assert_eq!(said(&document, pointer), message);
        }
    }

    #[test]
    fn many_and_long_keys_are_cut() {
        let many: serde_json::Map<String, Value> =
            (0..40).map(|i| (format!("{i}{}", "k".repeat(100)), json!(i))).collect();
        let said = said(&Value::Object(many), "/zzz");
        assert!(said.contains("and 28 more") && said.chars().count() < 1_000, "{said}");
    }

    #[test]
    fn what_python_writes_for_no_number_costs_no_other_number() {
        let text = r#"{"a": NaN, "b": -Infinity, "c": [Infinity, 1], "d": "NaN \" NaN", "e": 2}"#;
        let document = &read(text).unwrap()[0];
        assert_eq!(number(document, "/c/1"), Ok(1.0));
        assert_eq!(number(document, "/e"), Ok(2.0));
        assert_eq!(said(document, "/a"), "/a is NaN, no number");
        assert_eq!(said(document, "/b"), "/b is -Infinity, no number");
        assert_eq!(document["d"], "NaN \" NaN");
    }

    #[test]
    fn a_file_has_one_value_or_one_a_line() {
        assert_eq!(read("\u{feff}{\"a\": 1}\n"), Ok(vec![json!({ "a": 1 })]));
        assert_eq!(read("{\"a\": 1}\n{\"a\": 2}\n").unwrap().len(), 2);
        assert_eq!(read(" \n"), Err(Unreadable::Empty));
        assert!(read("Traceback").unwrap_err().to_string().starts_with("it is no JSON: "));
        assert!(read("{\"a\": 1").unwrap_err().to_string().contains("EOF"));
    }

    proptest! {
        #[test]
        fn any_text_and_any_pointer_are_taken(text in "\\PC{0,40}", pointer in "\\PC{0,20}") {
            let _ = read(&text);
            let document = json!({ text: { "NaN": [1] } });
            let _ = number(&document, &pointer);
        }

        #[test]
        fn every_key_has_its_pointer(key in "\\PC{0,12}", value in -1e9..1e9f64) {
            let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            prop_assert_eq!(number(&json!({ key: value }), &pointer), Ok(value));
        }
    }
}
