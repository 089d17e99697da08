//! `record.json`: the whole record, from which every report can be rendered again.
//!
//! It decides the layout alone: what is large lies on one line each (a planned cell, the state of a
//! cell, its judgement), so that the file reads in an editor and differs line by line.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::record::RunRecord;

/// The format of `record.json` that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Levels of nesting that stand on lines of their own.
const OPEN_LEVELS: usize = 3;

/// Writes a record as JSON, keys in the order of the types. It is never whole in memory: with what was seen
/// of the hardware the text of a large run is larger than its record by far.
///
/// # Errors
/// Those of `out`.
pub fn write(record: &RunRecord, out: &mut impl io::Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Outline::default());
    record.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// As [`write()`], into memory.
pub fn render(record: &RunRecord) -> String {
    let mut bytes = Vec::new();
    // The types have no map with keys that JSON lacks, and memory does not refuse bytes.
    match write(record, &mut bytes) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Why a record can't be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no record.
    #[error("{} is not a record of tokgate: {source}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// Another version of tokgate wrote it.
    #[error("{} has format {found}, this tokgate reads format {FORMAT}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// The format in it.
        found: u64,
    },
    /// Its parts do not fit each other.
    #[error("{} is not whole: {message}", path.display())]
    Misfit {
        /// Which.
        path: PathBuf,
        /// What does not fit.
        message: String,
    },
}

/// Reads a record back.
///
/// # Errors
/// No such file, no record, another format, or parts that do not fit each other.
pub fn read(path: &Path) -> Result<RunRecord, Unreadable> {
    let unreadable = |source| Unreadable::File { path: path.to_owned(), source };
    // A pipe in its place would be waited for.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is no file")));
    }
    let open = || File::open(path).map(|file| BufReader::with_capacity(1 << 20, file));
    parse(path, || open().map_err(unreadable))
}

/// The part of a record that says how the rest is to be read.
#[derive(Deserialize)]
struct Head {
    header: HeadFormat,
}

#[derive(Deserialize)]
struct HeadFormat {
    format: u64,
}

/// Reads from `open`, a second time where that fails. The text is never whole in memory, as in [`write`].
fn parse<R: io::Read>(
    path: &Path,
    open: impl Fn() -> Result<R, Unreadable>,
) -> Result<RunRecord, Unreadable> {
    let record: RunRecord = match serde_json::from_reader(open()?) {
        Ok(record) => record,
        Err(source) if source.is_io() => {
            return Err(Unreadable::File { path: path.to_owned(), source: source.into() });
        }
        Err(source) => {
            // Another format rarely reads as this one; then its number says more than the mismatch.
            let head: Option<Head> = serde_json::from_reader(open()?).ok();
            return Err(match head.map(|head| head.header.format) {
                Some(found) if found != u64::from(FORMAT) => {
                    Unreadable::Format { path: path.to_owned(), found }
                }
                Some(_) | None => Unreadable::Content { path: path.to_owned(), source },
            });
        }
    };
    if record.header.format != FORMAT {
        let found = u64::from(record.header.format);
        return Err(Unreadable::Format { path: path.to_owned(), found });
    }
    let (cells, launches) = (record.header.cells.len(), record.header.launches.len());
    for (what, planned, found) in
        [("cells", cells, record.cells.len()), ("launches", launches, record.launches.len())]
    {
        if planned != found {
            let message = format!("{planned} {what} planned, outcomes of {found}");
            return Err(Unreadable::Misfit { path: path.to_owned(), message });
        }
    }
    if let Some(cell) = record.header.cells.iter().find(|cell| cell.launch >= launches) {
        let message = format!("cell {} names launch {} of {launches}", cell.id, cell.launch);
        return Err(Unreadable::Misfit { path: path.to_owned(), message });
    }
    if let Some(message) = record.header.misfit() {
        return Err(Unreadable::Misfit { path: path.to_owned(), message });
    }
    Ok(record)
}

/// The JSON Schema of `record.json`, as `schemas/record.schema.json` has it.
pub fn record_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(RunRecord);
    schema.insert("title".into(), "tokgate run record".into());
    schema.to_value()
}

/// The generated file below `schemas/`: its name and its text.
pub fn schema_file() -> (&'static str, String) {
    let mut text = serde_json::to_string_pretty(&record_schema()).unwrap_or_default();
    text.push('\n');
    ("record.schema.json", text)
}

/// Writes the outer levels on lines of their own and the inner ones compactly.
#[derive(Default)]
struct Outline {
    depth: usize,
    /// For each open level whether it has an element yet.
    filled: Vec<bool>,
}

impl Outline {
    fn begin<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled.push(false);
        writer.write_all(bracket)
    }

    fn element<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if let Some(filled) = self.filled.last_mut() {
            *filled = true;
        }
        if self.depth <= OPEN_LEVELS {
            return self.new_line(writer);
        }
        if first { Ok(()) } else { writer.write_all(b" ") }
    }

    fn end<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        let open = self.depth <= OPEN_LEVELS;
        self.depth -= 1;
        if self.filled.pop() == Some(true) && open {
            self.new_line(writer)?;
        }
        writer.write_all(bracket)
    }

    fn new_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        writer.write_all(&b"  ".repeat(self.depth))
    }
}

impl Formatter for Outline {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.element(w, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.element(w, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        CompactFormatter.begin_object_value(writer)?;
        writer.write_all(b" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_record_reads_back_as_itself() {
        for record in [fixture::page_with_a_loss(), fixture::every_verdict()] {
            let text = render(&record);
            assert_eq!(parse(Path::new("record.json"), || Ok(text.as_bytes())).unwrap(), record);
        }
    }

    #[test]
    fn what_is_large_lies_on_one_line() {
        let mut record = fixture::page();
        record.header.cells.truncate(2);
        record.cells.truncate(2);
        insta::assert_snapshot!(render(&record));
    }

    #[test]
    fn a_record_is_valid_by_its_schema() {
        let schema = record_schema();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for record in [fixture::page(), fixture::every_verdict()] {
            let value: serde_json::Value = serde_json::from_str(&render(&record)).unwrap();
            let errors: Vec<String> =
                validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
            let mut wrong = value;
            wrong["cells"][0]["judgement"]["verdict"] = "splendid".into();
            assert!(!validator.is_valid(&wrong));
        }
    }

    #[test]
    fn the_schema_in_the_project_is_this_one() {
        let (name, here) = schema_file();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(here == there, "{} is stale: run `tokgate schema`", path.display());
    }

    #[test]
    fn what_is_no_record_is_refused_with_a_reason() {
        let said = |text: &str| {
            parse(Path::new("x.json"), || Ok(text.as_bytes())).unwrap_err().to_string()
        };
        assert!(
            said("{}").starts_with("x.json is not a record of tokgate: missing field `header`")
        );
        assert_eq!(
            said(r#"{"header": {"format": 9}}"#),
            "x.json has format 9, this tokgate reads format 1"
        );
        let mut record = fixture::page();
        record.cells.pop();
        assert_eq!(said(&render(&record)), "x.json is not whole: 74 cells planned, outcomes of 73");
    }
}
