//! The source map: every file of a suite in one run of byte offsets.
//!
//! A span of a merged tree says by itself which file and line wrote a value. It reads no file.

use std::ops::Range;
use std::path::PathBuf;

use super::model::Place;

/// Files end to end, one byte apart, so that the end of one is never the start of the next.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

/// One file, or one text of the command line.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// As the user named it; `--set` and `--url` for texts of the command line.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The folder that relative paths in it count from; `None`: the current one.
    pub folder: Option<PathBuf>,
    /// Global offset of its first byte.
    pub start: usize,
    /// Local offsets of the line starts.
    lines: Vec<usize>,
}

impl SourceFile {
    /// The line, from 1, of a global offset inside the file.
    pub fn line(&self, offset: usize) -> u32 {
        let local = offset.saturating_sub(self.start);
        u32::try_from(self.lines.partition_point(|start| *start <= local)).unwrap_or(u32::MAX)
    }

    /// A global span as one of this file, cut to its text.
    pub fn local(&self, span: &Range<usize>) -> Range<usize> {
        let start = span.start.saturating_sub(self.start).min(self.text.len());
        let end = span.end.saturating_sub(self.start).clamp(start, self.text.len());
        start..end
    }
}

impl SourceMap {
    /// Adds a file and returns the global offset of its first byte.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        folder: Option<PathBuf>,
    ) -> usize {
        let text = text.into();
        let start = self.end();
        let lines =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        self.files.push(SourceFile { name: name.into(), text, folder, start, lines });
        start
    }

    /// The offset that the next file will start at.
    pub fn end(&self) -> usize {
        self.files.last().map_or(0, |file| file.start + file.text.len() + 1)
    }

    /// The file that an offset lies in.
    pub fn file(&self, offset: usize) -> Option<&SourceFile> {
        let after = self.files.partition_point(|file| file.start <= offset);
        self.files.get(after.checked_sub(1)?)
    }

    /// The same with every text as `mask` has it, each as long as before.
    pub fn masked(&self, mask: impl Fn(&str) -> String) -> SourceMap {
        let masked = |file: &SourceFile| SourceFile { text: mask(&file.text), ..file.clone() };
        SourceMap { files: self.files.iter().map(masked).collect() }
    }

    /// The files, in order of their offsets.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// File and line of an offset.
    pub fn place(&self, offset: usize) -> Place {
        self.file(offset).map_or_else(Place::default, |file| Place {
            file: file.name.clone(),
            line: file.line(offset),
        })
    }

    /// The span of a line, without the blanks around it.
    pub fn line_span(&self, place: &Place) -> Option<Range<usize>> {
        let file = self.files.iter().find(|file| file.name == place.file)?;
        let start = *file.lines.get(place.line.checked_sub(1)? as usize)?;
        let line = file.text[start..].lines().next().unwrap_or("");
        let begin = file.start + start + (line.len() - line.trim_start().len());
        Some(begin..begin + line.trim().len())
    }

    /// The text of a span.
    pub fn text(&self, span: &Range<usize>) -> &str {
        self.file(span.start).and_then(|file| file.text.get(file.local(span))).unwrap_or("")
    }

    /// The part of a string literal at `span`, or of a list of them, that holds bytes `part` of a
    /// decoded text; all of `span` where escapes stand in that very part.
    pub fn inside(&self, span: &Range<usize>, decoded: &str, part: &Range<usize>) -> Range<usize> {
        let literal = self.text(span);
        let Some(piece) = decoded.get(part.clone()).filter(|piece| !piece.is_empty()) else {
            return span.clone();
        };
        let at = match literal.find(decoded) {
            Some(at) => Some(at + part.start),
            // Escapes elsewhere move it, but it is still as many pieces of its kind from the start.
            None => {
                let mut pieces = decoded.match_indices(piece).map(|(at, _)| at);
                let number = pieces.position(|at| at == part.start);
                number.and_then(|number| literal.match_indices(piece).nth(number)).map(|(at, _)| at)
            }
        };
        at.map_or(span.clone(), |at| span.start + at..span.start + at + piece.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_leads_to_file_and_line() {
        let mut map = SourceMap::default();
        let base = map.add("base.toml", "a = 1\nb = 2", None);
        let child = map.add("suite.toml", "c = 3\n", None);
        assert_eq!((base, child), (0, 12));
        assert_eq!(map.place(6).to_string(), "base.toml:2");
        assert_eq!(map.place(11).to_string(), "base.toml:2");
        assert_eq!(map.place(12).to_string(), "suite.toml:1");
        assert_eq!(map.text(&(16..17)), "3");
    }

    #[test]
    fn a_part_of_a_literal_is_found_unless_escapes_moved_it() {
        let mut map = SourceMap::default();
        map.add("s", "c = \"run {{ x }}\"\nd = \"a\\tb\"", None);
        let part = map.inside(&(4..17), "run {{ x }}", &(4..11));
        assert_eq!(map.text(&part), "{{ x }}");
        assert_eq!(map.text(&map.inside(&(22..28), "a\tb", &(2..3))), "b");
        assert_eq!(map.inside(&(22..28), "a\tb", &(1..2)), 22..28);
    }
}
