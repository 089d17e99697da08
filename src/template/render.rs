//! Rendering: text as it is, a command split into arguments, or a line for a shell.
//!
//! One formatter decides what a value looks like in a text; markers decide where values end up in
//! a command.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, OutputSpanKind, UndefinedBehavior, Value};

use super::quote::{Quote, Reader, quoted};
use super::{Context, TemplateError};
use crate::quantity::Tokens;

// Markers are framed by characters of a private-use plane: no command has reason to hold them.
const OPEN: char = '\u{F0000}';
const CLOSE: char = '\u{F0001}';

/// An environment with this program's strictness, syntax and filters.
pub(super) fn environment<'source>() -> Environment<'source> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment.add_filter("tokens", tokens);
    environment
}

/// The filter `tokens`: `"1024K"` becomes 1048576, a whole number stays.
fn tokens(value: &Value) -> Result<u64, Error> {
    let refused = |error: TemplateError| {
        Error::new(ErrorKind::InvalidOperation, error.message.clone()).with_source(error)
    };
    if let Some(text) = value.as_str() {
        return text.parse::<Tokens>().map(|tokens| tokens.0).map_err(|unreadable| {
            refused(TemplateError {
                help: unreadable.help,
                ..TemplateError::new(unreadable.message)
            })
        });
    }
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    u64::try_from(value.clone()).map_err(|_| {
        refused(
            TemplateError::new(format!("`{value}` is not a token count"))
                .help("`tokens` takes a whole number or a text like \"8K\""),
        )
    })
}

/// What a value comes to in a command.
#[derive(Debug, Clone)]
enum Piece {
    /// A scalar.
    One(String),
    /// An array of scalars.
    Many(Vec<String>),
}

fn piece(value: &Value) -> Result<Piece, TemplateError> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|_| {
                TemplateError::new("a list could not be read")
                    .help("render a list of texts and numbers")
            })?;
            let mut texts = Vec::new();
            for item in items {
                match piece(&item)? {
                    Piece::One(text) => texts.push(text),
                    Piece::Many(_) => {
                        return Err(TemplateError::new("a list inside a list can't be rendered")
                            .help("write one list of texts and numbers"));
                    }
                }
            }
            Ok(Piece::Many(texts))
        }
        ValueKind::Bool => Ok(Piece::One(value.is_true().to_string())),
        ValueKind::Number | ValueKind::String => {
            let text = value.to_string();
            if text.contains('\0') {
                return Err(TemplateError::new("a value holds a NUL character")
                    .help("no program can be handed one: take it out"));
            }
            Ok(Piece::One(text))
        }
        ValueKind::None => Err(TemplateError::new("the value is none, which has no text")
            .help("give it a value, or write {% if … is not none %} around it")),
        ValueKind::Map => {
            let names: Vec<String> = value
                .try_iter()
                .map(|names| names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
                .unwrap_or_default();
            let error = TemplateError::new("a table has no text");
            Err(if names.is_empty() {
                error.help("name one of its values")
            } else {
                error.help(format!("name one of its values: {}", names.join(", ")))
            })
        }
        ValueKind::Undefined | ValueKind::Bytes | ValueKind::Plain | ValueKind::Invalid => {
            let error = TemplateError::new(format!("a value of kind {} has no text", value.kind()));
            Err(error.help("render a text, a number, or true or false"))
        }
        // The engine's list of kinds is open; what it may add has no text here.
        _ => Err(TemplateError::new("a value of an unknown kind has no text")
            .help("render a text, a number, or true or false")),
    }
}

fn carried(error: TemplateError) -> Error {
    Error::new(ErrorKind::InvalidOperation, error.message.clone()).with_source(error)
}

/// Turns the engine's error into ours: unknown names get their nearest neighbours.
pub(super) fn readable(error: &Error, template: &str, context: &Context) -> TemplateError {
    let span = error.range().filter(|range| !range.is_empty() && range.end <= template.len());
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(own) = inner.downcast_ref::<TemplateError>() {
            return TemplateError { span: own.span.clone().or(span), ..own.clone() };
        }
        source = inner.source();
    }
    let detail = error.detail().unwrap_or("");
    let kind = error.kind();
    // Operators and filters tell of undefined operands in the detail of another kind.
    let undefined = kind == ErrorKind::UndefinedError || detail.contains("` is undefined");
    let mut readable = if kind == ErrorKind::SyntaxError {
        let plain = TemplateError::new(format!("the template can't be read: {detail}"));
        if template.contains("{{.") || template.contains("{{ .") {
            plain.help("for a literal {{ write {{ '{{' }}, for }} write {{ '}}' }}")
        } else {
            plain.help("a value stands between {{ and }}, a statement between {% and %}")
        }
    } else if undefined && let Some(name) = blamed(detail, span.clone(), template, context) {
        context.unknown(&name)
    } else if kind == ErrorKind::UnknownFilter {
        TemplateError::new(detail.to_owned())
            .help("among the filters are tokens, max, min, default, join, int, lower, replace")
    } else if kind == ErrorKind::UnknownFunction {
        TemplateError::new(detail.to_owned())
            .help("filters do most of what functions would: {{ matrix.concurrency | max }}")
    } else {
        let said = if detail.is_empty() { kind.to_string() } else { detail.to_owned() };
        TemplateError::new(said).help("write an expression that has a value for every cell")
    };
    readable.span = readable.span.or(span);
    readable
}

/// The dotted name that an undefined-value error is about, if it is one of the context's.
fn blamed(
    detail: &str,
    span: Option<std::ops::Range<usize>>,
    template: &str,
    context: &Context,
) -> Option<String> {
    let outer = super::names(template).ok()?;
    let unresolved = |name: &String| context.look_up(name).is_none();
    // The engine names the expression where it can: "`vars.x` is undefined".
    let said = detail
        .find("` is undefined")
        .and_then(|end| detail[..end].rfind('`').map(|start| detail[start + 1..end].to_owned()));
    if let Some(said) = said {
        // A longer chain, `a.b.c`, fails at its first unknown link.
        let found = outer
            .iter()
            .find(|name| **name == said || name.starts_with(&format!("{said}.")))
            .filter(|name| unresolved(name));
        if let Some(name) = found {
            return Some(name.clone());
        }
    }
    let slice = span.and_then(|span| template.get(span));
    let inner = slice.and_then(|slice| super::names(&format!("{{{{ {slice} }}}}")).ok());
    inner
        .unwrap_or_default()
        .into_iter()
        .find(|name| outer.contains(name) && unresolved(name))
        .or_else(|| outer.iter().find(|name| unresolved(name)).cloned())
}

/// Renders a text as it is: no quoting, no escaping, the last line end kept.
///
/// # Errors
/// An unreadable template, an undefined name, or a value without a text: none, a list, a table.
pub fn render_text(template: &str, context: &Context) -> Result<String, TemplateError> {
    if !super::has_syntax(template) {
        return Ok(template.to_owned());
    }
    let mut environment = environment();
    environment.set_formatter(|out, _, value| match piece(value) {
        Ok(Piece::One(text)) => Ok(out.write_str(&text)?),
        // An if-expression without else whose condition is false.
        Err(_) if value.is_undefined() => Ok(()),
        Ok(Piece::Many(_)) => Err(carried(
            TemplateError::new("a list has no text here")
                .help("a list can only be arguments of a command; join it: … | join(\",\")"),
        )),
        Err(error) => Err(carried(error)),
    });
    environment
        .template_from_named_str("template", template)
        .and_then(|parsed| parsed.render(context.root.clone()))
        .map_err(|error| readable(&error, template, context).of(template))
}

/// A template rendered to text with markers.
struct Marked {
    text: String,
    pieces: Vec<Piece>,
    /// For each piece the bytes of the template that it comes from, where they are known.
    spans: Vec<Option<std::ops::Range<usize>>>,
}

fn marked(template: &str, context: &Context) -> Result<Marked, TemplateError> {
    if let Some(at) = template.find([OPEN, CLOSE]) {
        return Err(TemplateError::new("the command holds a private-use character")
            .help("remove it: U+F0000 and U+F0001 have no meaning in a command")
            .at(at..at + OPEN.len_utf8()));
    }
    let pieces: Arc<Mutex<Vec<Piece>>> = Arc::default();
    let mut environment = environment();
    let sink = Arc::clone(&pieces);
    environment.set_formatter(move |out, _, value| {
        let piece = match piece(value) {
            Err(_) if value.is_undefined() => return Ok(()),
            other => other.map_err(carried)?,
        };
        let mut pieces = sink.lock().unwrap_or_else(PoisonError::into_inner);
        write!(out, "{OPEN}{}{CLOSE}", pieces.len())?;
        pieces.push(piece);
        Ok(())
    });
    let (text, output) = environment
        .template_from_named_str("command", template)
        .and_then(|parsed| parsed.render_with_spans(context.root.clone()))
        .map_err(|error| readable(&error, template, context))?;
    let pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut spans = vec![None; pieces.len()];
    for span in output.iter().filter(|span| span.kind() == OutputSpanKind::Expression) {
        if let Some(Part::Marker(index)) = parts(&text[span.output_range()]).next()
            && let Some(slot) = spans.get_mut(index)
        {
            *slot = Some(span.source_range());
        }
    }
    Ok(Marked { text, pieces, spans })
}

/// Part of a marked text.
enum Part<'a> {
    Text(&'a str),
    Marker(usize),
}

fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(tail) = rest.strip_prefix(OPEN)
            && let Some((digits, tail)) = tail.split_once(CLOSE)
            && let Ok(index) = digits.parse()
        {
            rest = tail;
            return Some(Part::Marker(index));
        }
        // Skip the first character, which may be a marker's that is none.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = rest[first..].find(OPEN).map_or(rest.len(), |at| first + at);
        let (text, tail) = rest.split_at(end);
        rest = tail;
        Some(Part::Text(text))
    })
}

impl Marked {
    /// One word of the command: an array that is a whole word becomes that many.
    fn put(&self, word: &str, into: &mut Vec<String>) -> Result<(), TemplateError> {
        let mut found = parts(word);
        if let (Some(Part::Marker(index)), None) = (found.next(), found.next())
            && let Some(Piece::Many(items)) = self.pieces.get(index)
        {
            into.extend(items.iter().cloned());
            return Ok(());
        }
        let mut out = String::new();
        self.fill(word, self.pieces.len(), &mut out)?;
        into.push(out);
        Ok(())
    }

    /// Replaces markers below `limit`. A captured block (`{% set %}`) is itself a marked text whose
    /// markers are older than its own.
    fn fill(&self, text: &str, limit: usize, out: &mut String) -> Result<(), TemplateError> {
        for part in parts(text) {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Marker(index) if index < limit => match &self.pieces[index] {
                    Piece::One(text) => self.fill(text, index, out)?,
                    Piece::Many(_) => return Err(self.misplaced(index)),
                },
                Part::Marker(index) => {
                    let _ = write!(out, "{OPEN}{index}{CLOSE}");
                }
            }
        }
        Ok(())
    }

    fn misplaced(&self, index: usize) -> TemplateError {
        self.blame(
            index,
            TemplateError::new("a list must be a whole word of the command")
                .help("set it apart by blanks, or join it: … | join(\",\")"),
        )
    }

    fn blame(&self, index: usize, error: TemplateError) -> TemplateError {
        TemplateError { span: self.spans.get(index).cloned().flatten(), ..error }
    }
}

/// Renders a command in one string to its arguments: each value becomes a marker, the text is split
/// as a POSIX shell splits words, then the markers are replaced. A list must be a whole word and
/// becomes that many arguments. An if-expression without else renders to nothing.
///
/// # Errors
/// As [`render_text`], a missing closing quote, a misplaced list, or no word at all.
pub fn render_line(template: &str, context: &Context) -> Result<Vec<String>, TemplateError> {
    split(template, context).map_err(|error| error.of(template))
}

fn split(template: &str, context: &Context) -> Result<Vec<String>, TemplateError> {
    let marked = marked(template, context)?;
    let words = shell_words::split(&marked.text).map_err(|_| {
        let mut reader = Reader::new();
        let open = template.char_indices().fold(None, |open, (at, c)| {
            let was = reader.quote();
            match (was, reader.step(c)) {
                (Quote::None, Quote::Single | Quote::Double) => Some(at),
                (_, Quote::Single | Quote::Double) => open,
                (_, Quote::None | Quote::Escaped | Quote::Comment | Quote::Back) => {
                    if was == Quote::Double { open } else { None }
                }
            }
        });
        TemplateError {
            span: open.map(|at| at..at + 1),
            ..TemplateError::new("a quote is not closed").help("close it, or write \\' or \\\"")
        }
    })?;
    let mut arguments = Vec::with_capacity(words.len());
    for word in words {
        marked.put(&word, &mut arguments)?;
    }
    program(arguments)
}

/// Renders a command given as one template for each argument. A list that is a whole word becomes
/// that many arguments.
///
/// # Errors
/// As [`render_text`], a misplaced list, or no word at all.
pub fn render_words(words: &[String], context: &Context) -> Result<Vec<String>, TemplateError> {
    let mut arguments = Vec::with_capacity(words.len());
    for word in words {
        marked(word, context)
            .and_then(|marked| marked.put(&marked.text, &mut arguments))
            .map_err(|error| error.of(word))?;
    }
    program(arguments)
}

fn program(arguments: Vec<String>) -> Result<Vec<String>, TemplateError> {
    match arguments.first().map(String::as_str) {
        None => Err(TemplateError::new("the command is empty").help("name a program to start")),
        Some("") => {
            let error = TemplateError::new("the program's name is empty");
            Err(error.help("begin the command with a program to start"))
        }
        Some(_) => Ok(arguments),
    }
}

/// Renders a line for `/bin/sh -c`: values are quoted, a list becomes that many quoted words.
///
/// # Errors
/// As [`render_text`], a value inside quotes, backquotes, a comment or a here-document, or a
/// misplaced list.
pub fn render_shell(template: &str, context: &Context) -> Result<String, TemplateError> {
    quote(template, context).map_err(|error| error.of(template))
}

fn quote(template: &str, context: &Context) -> Result<String, TemplateError> {
    let marked = marked(template, context)?;
    let mut reader = Reader::new();
    let mut out = String::new();
    let mut here_document = false;
    let mut found = parts(&marked.text).peekable();
    while let Some(part) = found.next() {
        let index = match part {
            Part::Text(text) => {
                for c in text.chars() {
                    reader.step(c);
                }
                here_document |= reader.here_document();
                out.push_str(text);
                continue;
            }
            Part::Marker(index) => index,
        };
        let inside = match reader.quote() {
            Quote::None if here_document => Some("in a here-document"),
            Quote::None => None,
            Quote::Single | Quote::Double => Some("inside quotes"),
            Quote::Escaped => Some("behind a backslash"),
            Quote::Comment => Some("in a comment"),
            Quote::Back => Some("inside backquotes"),
        };
        if let Some(inside) = inside {
            return Err(marked.blame(
                index,
                TemplateError::new(format!("a value can't stand {inside} with shell = true"))
                    .help("move it out: values are quoted for the shell as they are"),
            ));
        }
        match &marked.pieces[index] {
            Piece::One(_) => {
                let mut text = String::new();
                marked.fill(&format!("{OPEN}{index}{CLOSE}"), index + 1, &mut text)?;
                out.push_str(&quoted(&text));
            }
            Piece::Many(items) => {
                let apart = |c: Option<char>| c.is_none_or(|c| c.is_ascii_whitespace());
                let next = match found.peek() {
                    Some(Part::Text(text)) => text.chars().next(),
                    Some(Part::Marker(_)) => Some(OPEN),
                    None => None,
                };
                if !apart(out.chars().next_back()) || !apart(next) {
                    return Err(marked.misplaced(index));
                }
                let words: Vec<String> = items.iter().map(|item| quoted(item)).collect();
                out.push_str(&words.join(" "));
            }
        }
        reader.word();
    }
    Ok(out)
}
