//! The spellings of a secret: what it looks like in texts of many kinds.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{SHORTEST, of_base64};

/// A text that gives a secret away.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Spelling {
    pub(super) text: Vec<u8>,
    /// Whether characters of base64 before and after it hold bits of the secret too.
    edges: (bool, bool),
}

impl Spelling {
    fn plain(text: impl Into<Vec<u8>>) -> Spelling {
        Spelling { text: text.into(), edges: (false, false) }
    }

    /// What is to be hidden where it stands at `place` of `text`.
    pub(super) fn reach(&self, text: &[u8], place: usize) -> Range<usize> {
        let end = place + self.text.len();
        let before = self.edges.0 && place > 0 && of_base64(text[place - 1]);
        let after = self.edges.1 && text.get(end).is_some_and(|byte| of_base64(*byte));
        place - usize::from(before)..end + usize::from(after)
    }
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

/// Every spelling of these secrets, none twice.
pub(super) fn of_all(secrets: &[String]) -> Vec<Spelling> {
    let mut all = Vec::new();
    for secret in secrets {
        // The line end behind a value that came out of a file is often left out.
        let secret = secret.trim();
        spell(secret, &mut all);
        // A log shows a text of several lines with something else between them.
        let lines = secret.lines().map(str::trim).filter(|line| telling(line));
        lines.filter(|line| *line != secret).for_each(|line| spell(line, &mut all));
    }
    all.sort_by(|a: &Spelling, b| (&a.text, a.edges).cmp(&(&b.text, b.edges)));
    all.dedup();
    all
}

/// Whether a line of a secret gives something away; `-----` does not.
fn telling(line: &str) -> bool {
    line.chars().count() >= SHORTEST && line.contains(char::is_alphanumeric)
}

fn spell(secret: &str, all: &mut Vec<Spelling>) {
    let json = escaped(secret);
    let mut plain = vec![
        secret.to_owned(),
        json.replace('/', "\\/"),
        ascii(&json, |unit| format!("\\u{unit:04x}")),
        ascii(&json, |unit| format!("\\u{unit:04X}")),
        // JSON as a string in JSON.
        escaped(&json),
        json,
        secret.replace('\\', "\\\\"),
        secret.replace('\'', "'\\''"),
        secret.replace('\'', "'\"'\"'"),
    ];
    for (double, single) in [("&quot;", "&#39;"), ("&#34;", "&#39;"), ("&quot;", "&#x27;")] {
        let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        plain.push(html.clone());
        plain.push(html.replace('"', double).replace('\'', single));
    }
    for set in [&UNRESERVED, NON_ALPHANUMERIC, &LENIENT] {
        let upper = utf8_percent_encode(secret, set).to_string();
        let lower = lower_escapes(&upper);
        plain.extend([upper.replace("%20", "+"), lower.replace("%20", "+"), lower, upper]);
    }
    all.extend(plain.into_iter().map(Spelling::plain));
    for start in 0..3 {
        all.extend(base64(secret.as_bytes(), start));
    }
}

/// As JSON writes it, without the quotes around.
fn escaped(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// `text` with all but ASCII written by `unit`, as many programs write JSON.
fn ascii(text: &str, unit: impl Fn(u16) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|it| out.push_str(&unit(*it)));
        }
    }
    out
}

/// The characters of base64 that depend on `secret` alone when it begins `start` bytes into a
/// group of three, in both alphabets.
fn base64(secret: &[u8], start: usize) -> [Spelling; 2] {
    let mut bytes = vec![0; start];
    bytes.extend_from_slice(secret);
    let first = (start * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    let edges = (!(start * 8).is_multiple_of(6), !(bytes.len() * 8).is_multiple_of(6));
    [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
        .map(|text| Spelling { text: text.as_bytes()[first..end].to_vec(), edges })
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
