//! `--set key=value`: a text of the command line as TOML.
//!
//! A value that is no TOML is taken as text, so that `5s` and `8K` need no quotes in a shell.

use std::ops::Range;

use super::problem::Problem;
use super::source::SourceMap;
use super::tree;

/// A `--set` as a text that is TOML, and where it stands.
pub(super) struct Set {
    pub(super) text: Result<String, Problem>,
    pub(super) start: usize,
    /// Span of the value inside the text as typed, where it had to be quoted.
    pub(super) value: Option<Range<usize>>,
}

/// Reads one, whose text becomes a file of its own in the source map.
pub(super) fn read_set(text: &str, source: &mut SourceMap) -> Set {
    let start = source.add("--set", text, None);
    let example = "write --set key=value, like --set test.decode.duration=5s";
    let Some((key, value)) = text.split_once('=') else {
        let problem = Problem::at("set", start..start + text.len(), format!("`{text}` has no `=`"))
            .help(example);
        return Set { text: Err(problem), start, value: None };
    };
    let problems = match tree::parse(text, start) {
        Ok(_) => return Set { text: Ok(text.to_owned()), start, value: None },
        Err(problems) => problems,
    };
    if value.trim_start().starts_with(['[', '{', '"', '\'']) {
        let problem =
            problems.into_iter().next().unwrap_or_else(|| Problem::new("set", "not TOML"));
        let problem = Problem { code: "set", ..problem }
            .help("quote texts inside a list, and the whole for the shell: --set 'matrix.context=[\"8K\", \"16K\"]'");
        return Set { text: Err(problem), start, value: None };
    }
    if tree::parse(&format!("{key}=0"), 0).is_err() {
        let problem = Problem::at("set", start..start + key.len(), format!("`{key}` is not a key"))
            .help(example);
        return Set { text: Err(problem), start, value: None };
    }
    let quoted = toml::Value::String(value.trim().to_owned()).to_string();
    Set {
        text: Ok(format!("{key}={quoted}")),
        start,
        value: Some(start + key.len() + 1..start + text.len()),
    }
}
