//! Redaction of what comes in pieces: a secret is hidden however it is cut.
//!
//! Held back is only what may still become a secret: the longest end of the text that some spelling
//! begins with, and before it one character of base64, which may hold bits of a secret too.

use super::{HIDDEN, Redactor, of_base64};

/// Hides secrets in a stream of bytes.
#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    /// What was passed on last, as far as it matters, and behind it what is held back.
    text: Vec<u8>,
    /// How much of `text` was passed on.
    passed: usize,
    /// Whether the last byte that was passed on is hidden.
    inside: bool,
}

impl Stream {
    /// A stream that hides what `redactor` does.
    pub fn new(redactor: Redactor) -> Stream {
        Stream { redactor, text: Vec::new(), passed: 0, inside: false }
    }

    /// Takes the next piece, and adds to `out` what is decided.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.redactor.is_empty() {
            out.extend_from_slice(piece);
            return;
        }
        self.text.extend_from_slice(piece);
        let mut decided = self.redactor.open(&self.text);
        if decided > 0 && of_base64(self.text[decided - 1]) {
            decided -= 1;
        }
        self.pass(decided, out);
    }

    /// Nothing has come for a while: adds to `out` what was held back for few bits of a secret alone.
    pub fn pause(&mut self, out: &mut Vec<u8>) {
        self.pass(self.redactor.open(&self.text), out);
    }

    /// The end: adds to `out` what was held back.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.pass(self.text.len(), out);
    }

    fn pass(&mut self, until: usize, out: &mut Vec<u8>) {
        if until <= self.passed {
            return;
        }
        let mut at = self.passed;
        for range in self.redactor.hidden(&self.text) {
            if range.end <= at || range.start >= until {
                continue;
            }
            if range.start > at {
                out.extend_from_slice(&self.text[at..range.start]);
                self.inside = false;
            }
            if !self.inside {
                out.extend_from_slice(HIDDEN.as_bytes());
                self.inside = true;
            }
            at = range.end.min(until);
        }
        if at < until {
            out.extend_from_slice(&self.text[at..until]);
            self.inside = false;
        }
        let gone = until.saturating_sub(self.redactor.reach());
        self.text.drain(..gone);
        self.passed = until - gone;
    }
}
