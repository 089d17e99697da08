//! Redaction: secrets hidden in everything that leaves the process.
//!
//! A secret is hidden as it is, as JSON, HTML and shells write it, percent-encoded, and inside base64
//! at each of the three places where its bytes may begin. Every byte that belongs to such a spelling
//! is hidden, whatever overlaps with what. It decides what a secret may be; it reads none.

mod spelling;
mod stream;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use spelling::Spelling;
pub use stream::Stream;

/// What stands in place of a secret.
pub const HIDDEN: &str = "[redacted]";

/// Shortest secret, in characters: hiding shorter ones would garble ordinary text.
pub const SHORTEST: usize = 8;

/// So many bytes of a secret give something away.
const TOLD: usize = 4;

/// A secret that is too short to be hidden.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` has {length} characters: that is no secret, put it in [vars]")]
pub struct NoSecret {
    /// Its name; the value is never shown.
    pub name: String,
    /// Its length in characters.
    pub length: usize,
}

/// Whether `value` may be a secret named `name`.
///
/// # Errors
/// A value shorter than [`SHORTEST`] characters, blanks around it left out.
pub fn check_secret(name: &str, value: &str) -> Result<(), NoSecret> {
    let length = value.trim().chars().count();
    if length < SHORTEST {
        return Err(NoSecret { name: name.to_owned(), length });
    }
    Ok(())
}

/// Hides secrets in texts. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Arc<[String]>,
    search: Option<Arc<Search>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

/// Finds spellings.
struct Search {
    /// Finds the next one at memory speed.
    next: AhoCorasick,
    spellings: Vec<Spelling>,
    /// Spellings by their first byte.
    by_first: Vec<Vec<u32>>,
    /// Bytes of the longest spelling.
    longest: usize,
}

impl Redactor {
    /// A redactor of these secrets. Values shorter than [`SHORTEST`] characters are left visible:
    /// [`check_secret`] refuses them before anything is launched.
    pub fn new(secrets: &[String]) -> Redactor {
        let mut secrets: Vec<String> =
            secrets.iter().filter(|it| check_secret("", it).is_ok()).cloned().collect();
        secrets.sort_unstable();
        secrets.dedup();
        let spellings = spelling::of_all(&secrets);
        let search = Search::new(spellings).map(Arc::new);
        Redactor { secrets: secrets.into(), search }
    }

    /// One that hides these secrets too.
    #[must_use]
    pub fn with(&self, more: &[String]) -> Redactor {
        Redactor::new(&[&self.secrets[..], more].concat())
    }

    /// The values that it hides, for the process that hides them in the engine's log.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Whether it hides nothing.
    pub fn is_empty(&self) -> bool {
        self.search.is_none()
    }

    /// `text` with every secret hidden.
    pub fn text(&self, text: &str) -> String {
        self.replaced(text, |_| HIDDEN.to_owned())
    }

    /// `text` with every secret hidden behind as many bytes as it had: places in the text stay valid.
    pub fn mask(&self, text: &str) -> String {
        self.replaced(text, |range| mask(range.len()))
    }

    /// What others say, with every secret hidden: also one that comes to light only when control
    /// characters and escape sequences are taken out, as every report does.
    pub fn said(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let hidden = self.cut_short(self.text(text));
        if !hidden.contains(|c: char| c.is_control() && c != '\n') {
            return hidden;
        }
        let clean = hidden.split('\n').map(super::log::clean).collect::<Vec<_>>().join("\n");
        let again = self.text(&clean);
        if again == clean { hidden } else { again }
    }

    /// Hides the beginning of a secret where a long text was cut: before `…`.
    fn cut_short(&self, mut text: String) -> String {
        let cuts: Vec<usize> = text.match_indices('…').map(|(at, _)| at).collect();
        for cut in cuts.into_iter().rev() {
            let begin = self.open(&text.as_bytes()[..cut]);
            if cut - begin >= TOLD && text.is_char_boundary(begin) {
                text.replace_range(begin..cut, HIDDEN);
            }
        }
        text
    }

    /// Lines with every secret hidden.
    pub fn lines(&self, lines: Vec<String>) -> Vec<String> {
        lines.iter().map(|line| self.said(line)).collect()
    }

    /// Where secrets stand in `text`, in order, with at least one byte between.
    pub(crate) fn hidden(&self, text: &[u8]) -> Vec<Range<usize>> {
        self.search.as_ref().map_or_else(Vec::new, |search| search.hidden(text))
    }

    fn replaced(&self, text: &str, by: impl Fn(&Range<usize>) -> String) -> String {
        let hidden = self.hidden(text.as_bytes());
        if hidden.is_empty() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        // Spellings are whole characters, so that what stands between is text.
        for range in &hidden {
            out.push_str(text.get(at..range.start).unwrap_or_default());
            out.push_str(&by(range));
            at = range.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        out
    }

    /// How many bytes around a place decide whether what stands there is hidden.
    pub(crate) fn reach(&self) -> usize {
        self.search.as_ref().map_or(0, |search| search.longest + 1)
    }

    /// Where in `text` a spelling may have begun that goes on behind its end.
    fn open(&self, text: &[u8]) -> usize {
        self.search.as_ref().map_or(text.len(), |search| search.open(text))
    }
}

/// What stands in place of a secret of `length` bytes where nothing may move.
pub(crate) fn mask(length: usize) -> String {
    let word = if length < HIDDEN.len() { "" } else { HIDDEN };
    format!("{word}{}", "*".repeat(length - word.len()))
}

fn of_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

impl Search {
    fn new(spellings: Vec<Spelling>) -> Option<Search> {
        let longest = spellings.iter().map(|spelling| spelling.text.len()).max()?;
        let next = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(spellings.iter().map(|spelling| &spelling.text))
            .ok()?;
        let mut by_first = vec![Vec::new(); 256];
        for (at, spelling) in (0_u32..).zip(&spellings) {
            by_first[usize::from(spelling.text[0])].push(at);
        }
        Some(Search { next, spellings, by_first, longest })
    }

    /// The spellings that may begin with `byte`.
    fn beginning(&self, byte: u8) -> impl Iterator<Item = &Spelling> {
        self.by_first[usize::from(byte)].iter().map(|at| &self.spellings[*at as usize])
    }

    fn hidden(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut hidden: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while let Some(found) = self.next.find(Input::new(text).range(at..)) {
            // All spellings that begin there, and those that begin inside or right behind them.
            let (mut begin, mut end, mut place) = (found.start(), found.end(), found.start());
            while place <= end && place < text.len() {
                for spelling in self.beginning(text[place]) {
                    if text[place..].starts_with(&spelling.text) {
                        let reach = spelling.reach(text, place);
                        (begin, end) = (begin.min(reach.start), end.max(reach.end));
                    }
                }
                place += 1;
            }
            match hidden.last_mut() {
                Some(last) if last.end >= begin => last.end = last.end.max(end),
                Some(_) | None => hidden.push(begin..end),
            }
            at = end;
        }
        hidden
    }

    fn open(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.longest - 1);
        (from..text.len())
            .find(|place| {
                let rest = &text[*place..];
                self.beginning(rest[0])
                    .any(|it| it.text.len() > rest.len() && it.text.starts_with(rest))
            })
            .unwrap_or(text.len())
    }
}
