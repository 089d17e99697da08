//! Redaction: secrets hidden in everything that leaves the process.
//!
//! A secret is hidden as it is, as JSON writes it, percent-encoded, and inside base64 at each of
//! the three places where its bytes may begin. It decides what a secret may be; it reads none.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands in place of a secret.
pub const HIDDEN: &str = "[redacted]";

/// Shortest secret, in characters: hiding shorter ones would garble ordinary text.
pub const SHORTEST: usize = 8;

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
/// A value shorter than [`SHORTEST`] characters.
pub fn check_secret(name: &str, value: &str) -> Result<(), NoSecret> {
    let length = value.chars().count();
    if length < SHORTEST {
        return Err(NoSecret { name: name.to_owned(), length });
    }
    Ok(())
}

/// Hides secrets in texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Spellings to hide, longest first.
    spellings: Vec<Spelling>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} spellings)", self.spellings.len())
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Spelling {
    text: String,
    /// Whether base64 characters before and after it hold bits of the secret too.
    edges: (bool, bool),
}

/// What `encodeURIComponent` and Python's `quote` leave as it is.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What stays as it is in a url's path or query.
const LENIENT: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'%')
    .add(b'&')
    .add(b'+');

impl Redactor {
    /// A redactor of these secrets. Values shorter than [`SHORTEST`] characters are left visible:
    /// [`check_secret`] refuses them before anything is launched.
    pub fn new(secrets: &[String]) -> Redactor {
        let mut spellings = Vec::new();
        for secret in secrets.iter().filter(|s| s.chars().count() >= SHORTEST) {
            let mut plain = vec![secret.clone()];
            if let Ok(json) = serde_json::to_string(secret) {
                plain.push(json[1..json.len() - 1].to_owned());
            }
            for set in [&UNRESERVED, NON_ALPHANUMERIC, &LENIENT] {
                let upper = utf8_percent_encode(secret, set).to_string();
                plain.push(upper.replace("%20", "+"));
                plain.push(lower_escapes(&upper));
                plain.push(upper);
            }
            spellings
                .extend(plain.into_iter().map(|text| Spelling { text, edges: (false, false) }));
            for start in 0..3 {
                spellings.extend(base64_spellings(secret.as_bytes(), start));
            }
        }
        spellings.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        spellings.dedup();
        Redactor { spellings }
    }

    /// `text` with every secret hidden.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for spelling in &self.spellings {
            if text.contains(&spelling.text) {
                text = spelling.hide(&text);
            }
        }
        text
    }

    /// Lines with every secret hidden.
    pub fn lines(&self, lines: Vec<String>) -> Vec<String> {
        lines.iter().map(|line| self.text(line)).collect()
    }
}

impl Spelling {
    fn hide(&self, text: &str) -> String {
        let of_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(&self.text) {
            out.push_str(&rest[..at]);
            if self.edges.0 && out.chars().next_back().is_some_and(|c| of_base64(&c)) {
                out.pop();
            }
            out.push_str(HIDDEN);
            rest = &rest[at + self.text.len()..];
            if self.edges.1 && rest.chars().next().is_some_and(|c| of_base64(&c)) {
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        out
    }
}

/// The characters of base64 that depend on `secret` alone when it begins `start` bytes into a
/// group of three, in both alphabets.
fn base64_spellings(secret: &[u8], start: usize) -> [Spelling; 2] {
    let mut bytes = vec![0; start];
    bytes.extend_from_slice(secret);
    let first = (start * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    let edges = (!(start * 8).is_multiple_of(6), !(bytes.len() * 8).is_multiple_of(6));
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|text| Spelling { text: text[first..end].to_owned(), edges })
}

/// `%2F` as `%2f`: some programs write small letters.
fn lower_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut left = 0;
    for c in text.chars() {
        if c == '%' {
            left = 3;
        }
        out.push(if left > 0 { c.to_ascii_lowercase() } else { c });
        left = i32::max(left - 1, 0);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    const KEY: &str = "sk-p+q/r==s&t u";

    #[test]
    fn a_secret_is_hidden_in_every_spelling() {
        let redactor = Redactor::new(&[KEY.to_owned()]);
        for text in [
            "Authorization: Bearer sk-p+q/r==s&t u",
            "https://user:sk-p%2Bq%2Fr%3D%3Ds%26t%20u@host/",
            "?key=sk-p%2bq%2fr%3d%3ds%26t%20u",
            "form: sk-p%2Bq%2Fr%3D%3Ds%26t+u",
        ] {
            let out = redactor.text(text);
            assert!(out.contains(HIDDEN) && !out.contains("sk-p"), "{out}");
        }
        let quoted = "pass\"word\\long".to_owned();
        let json = serde_json::json!({ "key": quoted }).to_string();
        assert_eq!(Redactor::new(&[quoted]).text(&json), "{\"key\":\"[redacted]\"}");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let redactor = Redactor::new(&["abcdefgh".to_owned()]);
        assert_eq!(
            redactor.text("abcdefg is not it, ünïcode stays"),
            "abcdefg is not it, ünïcode stays"
        );
    }

    #[test]
    fn short_values_are_no_secrets() {
        let refused = check_secret("api_key", "abc").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`api_key` has 3 characters: that is no secret, put it in [vars]"
        );
        assert!(check_secret("api_key", "abcdefgh").is_ok());
        assert_eq!(Redactor::new(&["abc".to_owned()]).text("abc"), "abc");
    }

    proptest! {
        #[test]
        fn base64_hides_nothing_from_us(
            secret in "[a-zA-Z0-9+/_=-]{8,40}",
            before in proptest::collection::vec(any::<u8>(), 0..7),
            after in proptest::collection::vec(any::<u8>(), 0..7),
            url_safe: bool,
        ) {
            let mut bytes = before.clone();
            bytes.extend_from_slice(secret.as_bytes());
            bytes.extend_from_slice(&after);
            let text = if url_safe { URL_SAFE.encode(&bytes) } else { STANDARD.encode(&bytes) };
            let out = Redactor::new(&[secret]).text(&text);
            prop_assert!(out.contains(HIDDEN), "{} of {}", out, text);
            // What is left may hold at most the neighbours.
            let left = out.replace(HIDDEN, "").replace('=', "").len();
            prop_assert!(left <= (before.len() + after.len()) * 8 / 6 + 2, "{}", out);
        }

        #[test]
        fn any_text_goes_through(secret in "\\PC{8,12}", text in "\\PC{0,60}") {
            let out = Redactor::new(std::slice::from_ref(&secret)).text(&format!("{text}{secret}{text}"));
            prop_assert!(!out.contains(&secret) || HIDDEN.contains(&secret));
        }
    }
}
