//! A shell's quotes: where in a text one is, and how a value is written for one.

/// What the next character stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    /// Nothing: blanks split words here.
    None,
    /// `'…'`.
    Single,
    /// `"…"`.
    Double,
    /// Behind a backslash outside of single quotes.
    Escaped,
    /// Behind a `#` that begins a word.
    Comment,
    /// `` `…` ``.
    Back,
}

/// Reads a text character by character and keeps track of its quotes, as a POSIX shell does.
#[derive(Debug)]
pub(super) struct Reader {
    quote: Quote,
    /// What the backslash stood in.
    beneath: Quote,
    /// Whether a word has begun.
    in_word: bool,
    /// `<` characters in a row, outside of quotes.
    angles: usize,
    here_document: bool,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader {
            quote: Quote::None,
            beneath: Quote::None,
            in_word: false,
            angles: 0,
            here_document: false,
        }
    }

    /// What the next character stands in.
    pub(super) fn quote(&self) -> Quote {
        self.quote
    }

    /// Whether a here-document (`<<`, but not `<<<`) has begun.
    pub(super) fn here_document(&self) -> bool {
        self.here_document || self.angles == 2
    }

    /// Something that is part of a word and no character of the text: a value.
    pub(super) fn word(&mut self) {
        self.here_document |= self.angles == 2;
        self.angles = 0;
        self.in_word = true;
    }

    /// Takes a character; returns what the one behind it stands in.
    pub(super) fn step(&mut self, c: char) -> Quote {
        if c == '<' && self.quote == Quote::None {
            self.angles += 1;
        } else {
            self.here_document |= self.angles == 2;
            self.angles = 0;
        }
        self.quote = match (self.quote, c) {
            (Quote::None, '\'') => self.begin(Quote::Single),
            (Quote::None, '"') => self.begin(Quote::Double),
            (Quote::None, '`') => self.begin(Quote::Back),
            (Quote::None | Quote::Double | Quote::Back, '\\') => {
                self.beneath = self.quote;
                Quote::Escaped
            }
            (Quote::None, '#') if !self.in_word => Quote::Comment,
            (Quote::None, ' ' | '\t' | '\n') => {
                self.in_word = false;
                Quote::None
            }
            // Operators end a word, so a `#` behind one begins a comment.
            (Quote::None, ';' | '&' | '|' | '(' | ')') => {
                self.in_word = false;
                Quote::None
            }
            (Quote::None, _) => self.begin(Quote::None),
            (Quote::Single, '\'') | (Quote::Double, '"') | (Quote::Back, '`') => Quote::None,
            (Quote::Escaped, '\n') => self.beneath,
            (Quote::Escaped, _) => self.begin(self.beneath),
            (Quote::Comment, '\n') => Quote::None,
            (Quote::Single | Quote::Double | Quote::Back | Quote::Comment, _) => self.quote,
        };
        self.quote
    }

    fn begin(&mut self, quote: Quote) -> Quote {
        self.in_word = true;
        quote
    }
}

/// A value as one word of a shell, whatever it holds.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
