//! Templates: commands, urls, environment values and bodies, rendered strictly.
//!
//! A value can never add an argument whatever the author quoted: in a string command each `{{ }}`
//! renders to a marker, the text is split as a POSIX shell splits words, then the markers are
//! replaced inside the words. An undefined name is an error. It launches nothing.

use std::ops::Range;

/// A template that can't be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Bytes of the template that are to blame.
    pub span: Option<Range<usize>>,
}

/// What templates see: `vars model hardware engine suite axis matrix env secret host port tokgate
/// run launch cell`.
#[derive(Debug, Clone)]
pub struct Context {
    /// The names and their values.
    pub root: minijinja::Value,
}
