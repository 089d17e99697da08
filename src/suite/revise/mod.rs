//! Numbers of a suite's file replaced by others, and nothing else of it: comments, order, columns, line ends
//! and the way in which numbers are written stay.
//!
//! The bytes of a number are known by its span; what comes of replacing them is read again, and refused
//! unless those numbers alone are others. It reads and writes no file.

mod layout;
mod number;

use std::ops::Range;

use toml_edit::{Document, Item, Table, Value};

pub use number::Written;

/// Bytes of a file to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Which, counted from the file's first byte.
    pub span: Range<usize>,
    /// What stands there then.
    pub text: String,
}

/// Why a file is not revised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrevised {
    /// The file, as it was or as it would be, is no TOML.
    #[error("it would be no TOML: {0}")]
    Syntax(String),
    /// Another value would be another one, or one would not be what was meant.
    #[error("more than numbers of bounds would change")]
    More,
}

/// Replaces numbers. `grids`: the spans of the entries of each grid in the file, whether replaced or not, by
/// which columns are known. No two edits overlap.
///
/// # Errors
/// The text would no longer be the same but for these numbers.
pub fn revise(
    text: &str,
    grids: &[Vec<Range<usize>>],
    edits: &[Edit],
) -> Result<String, Unrevised> {
    let mut all = layout::blanks(text, grids, edits);
    all.extend(edits.iter().cloned());
    all.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut revised = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for edit in &all {
        // Spans are of whole tokens and of blanks between them.
        revised.push_str(text.get(done..edit.span.start).ok_or(Unrevised::More)?);
        revised.push_str(&edit.text);
        done = edit.span.end;
    }
    revised.push_str(text.get(done..).ok_or(Unrevised::More)?);
    verify(text, &revised, edits)?;
    Ok(revised)
}

/// Reads both texts and compares every value.
fn verify(before: &str, after: &str, edits: &[Edit]) -> Result<(), Unrevised> {
    let read =
        |text| Document::parse(text).map_err(|error| Unrevised::Syntax(error.message().to_owned()));
    let (old, new): (Document<&str>, Document<&str>) = (read(before)?, read(after)?);
    let mut comparison = Comparison { after, edits, met: 0 };
    if comparison.tables(old.as_table(), new.as_table()) && comparison.met == edits.len() {
        Ok(())
    } else {
        Err(Unrevised::More)
    }
}

struct Comparison<'a> {
    after: &'a str,
    edits: &'a [Edit],
    /// Edits whose value was met.
    met: usize,
}

impl Comparison<'_> {
    fn tables(&mut self, old: &Table, new: &Table) -> bool {
        let same = old.iter().count() == new.iter().count();
        same && old
            .iter()
            .zip(new.iter())
            .all(|((key, old), (name, new))| key == name && self.items(old, new))
    }

    fn items(&mut self, old: &Item, new: &Item) -> bool {
        match (old, new) {
            (Item::None, Item::None) => true,
            (Item::Value(old), Item::Value(new)) => self.values(old, new),
            (Item::Table(old), Item::Table(new)) => self.tables(old, new),
            (Item::ArrayOfTables(old), Item::ArrayOfTables(new)) => {
                old.len() == new.len()
                    && old.iter().zip(new.iter()).all(|(old, new)| self.tables(old, new))
            }
            (_, _) => false,
        }
    }

    fn values(&mut self, old: &Value, new: &Value) -> bool {
        if let Some(edit) = self.edits.iter().find(|edit| Some(&edit.span) == old.span().as_ref()) {
            self.met += 1;
            let text = new.span().and_then(|span| self.after.get(span));
            return text == Some(edit.text.as_str());
        }
        match (old, new) {
            (Value::Array(old), Value::Array(new)) => {
                old.len() == new.len()
                    && old.iter().zip(new.iter()).all(|(old, new)| self.values(old, new))
            }
            (Value::InlineTable(old), Value::InlineTable(new)) => {
                old.len() == new.len()
                    && old
                        .iter()
                        .zip(new.iter())
                        .all(|((key, old), (name, new))| key == name && self.values(old, new))
            }
            (Value::String(old), Value::String(new)) => old.value() == new.value(),
            (Value::Integer(old), Value::Integer(new)) => old.value() == new.value(),
            (Value::Float(old), Value::Float(new)) => {
                old.value().to_bits() == new.value().to_bits()
            }
            (Value::Boolean(old), Value::Boolean(new)) => old.value() == new.value(),
            (Value::Datetime(old), Value::Datetime(new)) => old.value() == new.value(),
            (_, _) => false,
        }
    }
}

#[cfg(test)]
mod tests;
