//! Who set a value: for `list --explain KEY`.
//!
//! It knows every single value of the merged suite with its place, and what each one replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use toml::de::DeValue;

use super::load::{Assembled, Layered};
use super::merge::{self, Overridden};
use super::source::SourceMap;
use super::tree::{Node, Tree};
use super::{defaults, name};
use crate::quantity::Unreadable;

/// Every value of a suite with its origin.
#[derive(Debug, Clone, Default)]
pub struct Explain {
    values: Vec<Origin>,
}

/// One value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The variant that it holds for; `None`: all.
    pub variant: Option<String>,
    /// Dotted key; tests and expectations by name.
    pub key: String,
    /// Where it stands.
    pub span: Range<usize>,
    /// `profile NAME` or `variant NAME`, where it stands in one.
    pub by: Option<String>,
    /// What it replaced, latest first.
    pub overrode: Vec<Range<usize>>,
}

impl Explain {
    /// Flattens the merged trees. `owners` says for the first byte of a value which profile or
    /// variant it stands in.
    pub(super) fn new(assembled: &Assembled<'_>, owners: &BTreeMap<usize, String>) -> Explain {
        let mut values = Vec::new();
        let several = assembled.trees.len() > 1;
        for Layered { variant, tree, log } in &assembled.trees {
            let mut found = Vec::new();
            flatten_table(tree, "", &mut found);
            for (key, span) in found {
                let settled = ["engine.", "model.", "vars."].iter().any(|top| key.starts_with(top));
                if several && settled != variant.is_some() {
                    continue;
                }
                let mut overrode = Vec::new();
                replaced(&span, log, &mut overrode);
                let by = owners.get(&span.start).cloned();
                values.push(Origin { variant: variant.clone(), key, span, by, overrode });
            }
        }
        Explain { values }
    }

    /// Every value in force, in no particular order.
    pub fn values(&self) -> &[Origin] {
        &self.values
    }

    /// What is known of a key, or of all keys below it, one line each and one for each value that
    /// was replaced.
    ///
    /// # Errors
    /// A key that no suite has.
    pub fn key(&self, key: &str, source: &SourceMap) -> Result<String, Unreadable> {
        let below = format!("{key}.");
        let mut out = String::new();
        for origin in &self.values {
            if origin.key != key && !origin.key.starts_with(&below) {
                continue;
            }
            let variant =
                origin.variant.as_ref().map_or(String::new(), |name| format!(" [{name}]"));
            let by = origin.by.as_ref().map_or(String::new(), |by| format!(" ({by})"));
            let _ = writeln!(
                out,
                "{}{variant} = {}  # {}{by}",
                origin.key,
                one_line(source.text(&origin.span)),
                place(source, &origin.span),
            );
            for loser in &origin.overrode {
                let text = one_line(source.text(loser));
                let _ = writeln!(out, "  instead of {text}  # {}", place(source, loser));
            }
        }
        if !out.is_empty() {
            return Ok(out);
        }
        for (known, default) in self.defaults() {
            if known == key || known.starts_with(&below) {
                let _ = writeln!(out, "{known} is not set; default: {default}");
            }
        }
        if !out.is_empty() {
            return Ok(out);
        }
        let keys = self.values.iter().map(|origin| origin.key.clone());
        let known: Vec<String> = keys.chain(self.defaults().map(|(key, _)| key)).collect();
        let near = name::nearest(key, known.iter().map(String::as_str));
        Err(Unreadable {
            message: format!("nothing sets `{key}`"),
            help: near
                .map(|near| format!("did you mean `{near}`?"))
                .or_else(|| Some("write a dotted key, like test.decode.duration".to_owned())),
        })
    }
}

impl Explain {
    /// Keys with a default, those of tests and expectations for each by its name and for all.
    fn defaults(&self) -> impl Iterator<Item = (String, &'static str)> {
        let mut tables: BTreeSet<(&str, &str)> = BTreeSet::new();
        for origin in &self.values {
            let mut parts = origin.key.split('.');
            if let (Some(table @ ("test" | "expect")), Some(name)) = (parts.next(), parts.next()) {
                tables.insert((table, name));
            }
        }
        defaults::TABLE.iter().flat_map(move |(key, default)| {
            let (table, rest) = key.split_once('.').unwrap_or((key, ""));
            let named = tables.iter().filter(|(of, _)| *of == table);
            let named: Vec<String> =
                named.map(|(table, name)| format!("{table}.{name}.{rest}")).collect();
            named.into_iter().chain([(*key).to_owned()]).map(|key| (key, *default))
        })
    }
}

/// What a value replaced, and what that had replaced.
fn replaced(winner: &Range<usize>, log: &[Overridden], out: &mut Vec<Range<usize>>) {
    for entry in log.iter().filter(|entry| entry.winner == *winner) {
        if !out.contains(&entry.loser) {
            out.push(entry.loser.clone());
            replaced(&entry.loser, log, out);
        }
    }
}

/// `suite.toml:12`; texts of the command line have no lines.
fn place(source: &SourceMap, span: &Range<usize>) -> String {
    let place = source.place(span.start);
    if place.file.starts_with("--") { place.file } else { place.to_string() }
}

fn one_line(text: &str) -> String {
    const SHOWN: usize = 60;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn flatten_table(table: &Tree<'_>, above: &str, out: &mut Vec<(String, Range<usize>)>) {
    for (name, value) in table {
        let key =
            if above.is_empty() { name.to_string() } else { format!("{above}.{}", name.get_ref()) };
        flatten(value, &key, out);
    }
}

fn flatten(node: &Node<'_>, key: &str, out: &mut Vec<(String, Range<usize>)>) {
    match node.get_ref() {
        DeValue::Table(table) => flatten_table(table, key, out),
        DeValue::Array(array)
            if matches!(key, "test" | "expect" | "quarantine" | "engine.file") =>
        {
            for (at, item) in array.iter().enumerate() {
                let name = merge::effective_name(item).unwrap_or_else(|| (at + 1).to_string());
                flatten(item, &format!("{key}.{name}"), out);
            }
        }
        DeValue::Array(_)
        | DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => out.push((key.to_owned(), node.span())),
    }
}

/// Notes which profile or variant each value of a tree stands in.
pub(super) fn own(tree: &Tree<'_>, owner: &str, owners: &mut BTreeMap<usize, String>) {
    let mut found = Vec::new();
    flatten_table(tree, "", &mut found);
    for (_, span) in found {
        owners.insert(span.start, owner.to_owned());
    }
}
