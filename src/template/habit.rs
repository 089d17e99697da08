//! Pasted habits: what people bring from shells and container command lines, which would not do
//! here what it did there.
//!
//! Judged on the template's text by a reader that knows quotes and template syntax; what stands in
//! single quotes or behind a backslash is meant literally.

use std::ops::Range;

use super::TemplateError;
use super::quote::{Quote, Reader};

/// Stands for `{{ … }}` in a word.
const HOLE: char = '\u{FFFC}';

/// A word of a command template.
#[derive(Debug)]
struct Word {
    /// Its text without quotes; a [`HOLE`] for each value.
    text: String,
    /// Whether any of it is quoted.
    quoted: bool,
    /// Whether it is the first of its line.
    leads: bool,
    span: Range<usize>,
}

/// What a pass over a template finds.
#[derive(Debug, Default)]
struct Reading {
    words: Vec<Word>,
    /// `$NAME` and `${NAME}`, with the name.
    variables: Vec<(String, Range<usize>)>,
    /// `$(…)` and backquotes.
    substitutions: Vec<Range<usize>>,
    /// Docker's `{{.Name}}`.
    foreign: Vec<Range<usize>>,
}

fn read(template: &str) -> Reading {
    let mut reading = Reading::default();
    let mut reader = Reader::new();
    let mut word: Option<Word> = None;
    let mut leads = true;
    let mut at = 0;
    while let Some(c) = template[at..].chars().next() {
        let rest = &template[at..];
        if let Some(length) = template_syntax(rest) {
            let prints = rest.starts_with("{{") || raw_block(rest).is_some();
            if prints && reader.quote() != Quote::Comment {
                if rest.starts_with("{{") && rest[2..].trim_start().starts_with('.') {
                    reading.foreign.push(at..at + length);
                }
                reader.word();
                let open = word.get_or_insert_with(|| new_word(at, leads));
                open.text.push(HOLE);
                open.span.end = at + length;
                leads = false;
            }
            at += length;
            continue;
        }
        let stands = reader.quote();
        let next = reader.step(c);
        let end = at + c.len_utf8();
        let literal = matches!(stands, Quote::Single | Quote::Escaped | Quote::Comment);
        if c == '$' && !literal {
            let tail = &template[end..];
            let name: String = tail
                .strip_prefix('{')
                .unwrap_or(tail)
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            if tail.starts_with('(') {
                reading.substitutions.push(at..end + 1);
            } else if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                let braces = if tail.starts_with('{') { 2 } else { 0 };
                let stop = (end + name.len() + braces).min(template.len());
                reading.variables.push((name, at..stop));
            }
        }
        if c == '`' && !literal && next == Quote::Back {
            reading.substitutions.push(at..end);
        }
        let blank = stands == Quote::None && matches!(c, ' ' | '\t' | '\n' | '\r');
        let comment = stands == Quote::Comment || next == Quote::Comment;
        if blank || comment {
            reading.words.extend(word.take());
            leads |= c == '\n';
        } else {
            let open = word.get_or_insert_with(|| new_word(at, leads));
            leads = false;
            open.span.end = end;
            let delimits = match (stands, next) {
                (Quote::None, Quote::Single | Quote::Double | Quote::Escaped) => true,
                (Quote::Single | Quote::Double, Quote::None) => true,
                (Quote::Double, Quote::Escaped) => true,
                (_, Quote::None | Quote::Single | Quote::Double | Quote::Escaped) => false,
                (_, Quote::Comment | Quote::Back) => false,
            };
            if delimits {
                open.quoted = true;
            } else {
                open.text.push(c);
            }
        }
        at = end;
    }
    reading.words.extend(word.take());
    reading
}

fn new_word(at: usize, leads: bool) -> Word {
    Word { text: String::new(), quoted: false, leads, span: at..at }
}

/// The length of the `{{ }}`, `{% %}` or `{# #}` that a text begins with.
fn template_syntax(text: &str) -> Option<usize> {
    if let Some(length) = raw_block(text) {
        return Some(length);
    }
    let close = match text.get(..2)? {
        "{{" => "}}",
        "{%" => "%}",
        "{#" => "#}",
        _ => return None,
    };
    // A closing mark inside a string of the expression does not close.
    let mut open: Option<char> = None;
    for (at, c) in text.char_indices().skip(2) {
        match open {
            Some(quote) if c == quote => open = None,
            Some(_) => {}
            None if text[at..].starts_with(close) => return Some(at + 2),
            None if close != "#}" && matches!(c, '\'' | '"') => open = Some(c),
            None => {}
        }
    }
    // An apostrophe outside of a string, as in docker's syntax, hides the end: take the first.
    Some(text.find(close).map_or(text.len(), |at| at + 2))
}

/// The length of the `{% raw %}…{% endraw %}` that a text begins with.
fn raw_block(text: &str) -> Option<usize> {
    let tag = |text: &str| text.trim_matches(['-', '+', ' ', '\n', '\t']).to_owned();
    let inner = text.strip_prefix("{%")?;
    if tag(&inner[..inner.find("%}")?]) != "raw" {
        return None;
    }
    let mut from = 2;
    while let Some(at) = text[from..].find("{%") {
        let start = from + at + 2;
        let end = start + text[start..].find("%}")?;
        if tag(&text[start..end]) == "endraw" {
            return Some(end + 2);
        }
        from = start;
    }
    None
}

/// What a command in one string, started without a shell, holds that only a shell would understand
/// (`NAME=value`, `export`, `&`, redirections, pipes, `$NAME`, `$(…)`, `~`), or that would hide the
/// engine (`docker run -d`). Each with what to write instead.
pub fn pasted_habits(template: &str) -> Vec<TemplateError> {
    let reading = read(template);
    let mut found = Vec::new();
    assignments(&reading, &mut found);
    operators(&reading, &mut found);
    for (name, span) in &reading.variables {
        found.push(
            TemplateError::new(format!("${name} is not replaced, since no shell runs"))
                .help(format!("write {{{{ env.{name} }}}}, or set shell = true"))
                .at(span.clone()),
        );
    }
    for span in &reading.substitutions {
        found.push(
            TemplateError::new("a command inside the command is not run, since no shell runs")
                .help("put its result into [vars] or an environment variable, or set shell = true")
                .at(span.clone()),
        );
    }
    containers(&reading, &mut found);
    foreign(&reading, &mut found);
    found
}

/// What a line for `/bin/sh -c` holds that would hide the engine: a trailing `&`, `docker run -d`.
pub fn pasted_habits_in_shell(template: &str) -> Vec<TemplateError> {
    let reading = read(template);
    let mut found = Vec::new();
    if let Some(last) = reading.words.last()
        && !last.quoted
        && last.text.ends_with('&')
        && !last.text.ends_with("&&")
    {
        found.push(background(last.span.clone()));
    }
    containers(&reading, &mut found);
    foreign(&reading, &mut found);
    found
}

/// What a command given as an array holds that would hide the engine: `docker run -d`.
pub fn pasted_habits_in_words(words: &[String]) -> Vec<TemplateError> {
    let mut reading = Reading::default();
    for word in words {
        let inner = read(word);
        reading.foreign.extend(inner.foreign);
        reading.words.push(Word { text: word.clone(), quoted: false, leads: false, span: 0..0 });
    }
    let mut found = Vec::new();
    if let Some(first) = words.first()
        && let Some((name, value)) = assignment(first)
    {
        found.push(assigned(&[(name, value)]));
    }
    containers(&reading, &mut found);
    foreign(&reading, &mut found);
    // The spans are those of single words: no place in the whole.
    found.into_iter().map(|error| TemplateError { span: None, ..error }).collect()
}

/// `NAME=value`, split.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    named.then_some((name, value))
}

fn assigned(pairs: &[(&str, &str)]) -> TemplateError {
    let table: Vec<String> = pairs
        .iter()
        .map(|(name, value)| {
            let value = if value.contains(HOLE) { "…" } else { value };
            format!("{name} = \"{value}\"")
        })
        .collect();
    TemplateError::new(format!("`{}=` in front is for a shell, and none runs", pairs[0].0))
        .help(format!("write env = {{ {} }}", table.join(", ")))
}

fn assignments(reading: &Reading, found: &mut Vec<TemplateError>) {
    let leading: Vec<&Word> =
        reading.words.iter().take_while(|word| assignment(&word.text).is_some()).collect();
    if let (Some(first), Some(last)) = (leading.first(), leading.last()) {
        let pairs: Vec<(&str, &str)> =
            leading.iter().filter_map(|word| assignment(&word.text)).collect();
        found.push(assigned(&pairs).at(first.span.start..last.span.end));
    }
    for (index, word) in reading.words.iter().enumerate() {
        if word.text != "export" || word.quoted || !word.leads {
            continue;
        }
        let exported = reading.words.get(index + 1).and_then(|word| assignment(&word.text));
        let error = TemplateError::new("`export` is for a shell, and none runs");
        let error = match exported {
            Some((name, value)) if !value.contains(HOLE) => {
                let value = value.trim_end_matches(';');
                error.help(format!("write env = {{ {name} = \"{value}\" }}"))
            }
            Some((name, _)) => error.help(format!("write env = {{ {name} = \"…\" }}")),
            None => error.help("write env = { NAME = \"value\" }"),
        };
        found.push(error.at(word.span.clone()));
    }
}

fn background(span: Range<usize>) -> TemplateError {
    TemplateError::new("`&` would send the program to the background, out of sight")
        .help("remove it: it is started beside the run and ended with it")
        .at(span)
}

fn operators(reading: &Reading, found: &mut Vec<TemplateError>) {
    for (index, word) in reading.words.iter().enumerate() {
        if word.quoted {
            continue;
        }
        let text = word.text.as_str();
        let last = index + 1 == reading.words.len();
        let error = match text {
            "|" | "||" | "|&" => TemplateError::new(format!(
                "`{text}` is for a shell, and none runs"
            ))
            .help("name one program, or set shell = true; the output goes to the log anyway"),
            "&&" | ";" => TemplateError::new(format!("`{text}` is for a shell, and none runs"))
                .help("put what comes first into setup = [\"…\"], or set shell = true"),
            "&" => background(0..0),
            _ if text.ends_with('&') && last => background(0..0),
            _ if text.ends_with(';') && text.len() > 1 && !last => {
                TemplateError::new("`;` is for a shell, and none runs")
                    .help("put what comes first into setup = [\"…\"], or set shell = true")
            }
            _ if redirects(text) => TemplateError::new(format!(
                "the redirection `{text}` is for a shell, and none runs"
            ))
            .help("remove it: what is printed goes to a log; or set shell = true"),
            _ if text == "~" || text.starts_with("~/") => {
                TemplateError::new("`~` is not replaced, since no shell runs")
                    .help(format!("write {{{{ env.HOME }}}}{}", &text[1..].replace(HOLE, "…")))
            }
            _ => continue,
        };
        found.push(error.at(word.span.clone()));
    }
}

/// Whether a word begins as a redirection does: `>log`, `2>&1`, `&>log`, `<in`; but not `>=1`.
fn redirects(text: &str) -> bool {
    let text = text.strip_prefix('&').unwrap_or(text);
    let text = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with(['>', '<']) && !text.starts_with(">=") && !text.starts_with("<=")
}

/// Options of `docker run` that take no value.
const SWITCHES: [&str; 14] = [
    "--detach",
    "--disable-content-trust",
    "--help",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
];

fn containers(reading: &Reading, found: &mut Vec<TemplateError>) {
    let words = &reading.words;
    let Some(run) = words.windows(2).position(|pair| {
        let program = pair[0].text.rsplit('/').next().unwrap_or("");
        matches!(program, "docker" | "podman" | "nerdctl") && pair[1].text == "run"
    }) else {
        return;
    };
    let mut rest = words[run + 2..].iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            // The image: what follows is the engine's.
            return;
        }
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let switches =
            letters.is_some_and(|l| !l.is_empty() && l.chars().all(|c| "ditPq".contains(c)));
        let has = |letter: char| switches && letters.is_some_and(|l| l.contains(letter));
        if has('d') || text == "--detach" {
            found.push(
                TemplateError::new(format!("`{text}` hides the container: its end is not seen"))
                    .help(format!("remove {text}, and end it with stop.command: docker rm -f NAME"))
                    .at(word.span.clone()),
            );
        } else if has('t') || text == "--tty" {
            found.push(
                TemplateError::new(format!("`{text}` needs a terminal, and the engine has none"))
                    .help(format!("remove {text}"))
                    .at(word.span.clone()),
            );
        }
        if !switches && !SWITCHES.contains(&text) && !text.contains('=') {
            rest.next();
        }
    }
}

fn foreign(reading: &Reading, found: &mut Vec<TemplateError>) {
    for span in &reading.foreign {
        found.push(
            TemplateError::new("{{.…}} is docker's own template syntax")
                .help("write {% raw %}{{.…}}{% endraw %} to hand it to docker")
                .at(span.clone()),
        );
    }
}
