//! The truth log, read: when the engine read each request and wrote each token.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    event: String,
    at: u64,
    request: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    tokens: u64,
}

/// A request as the engine saw it; stamps in nanoseconds.
#[derive(Debug, Default)]
pub struct Request {
    /// When its head was read.
    pub read: u64,
    /// Tokens that it asked for.
    pub output: u64,
    /// When tokens were written, and how many.
    pub tokens: Vec<(u64, u64)>,
}

impl Request {
    /// Time to first token in milliseconds.
    pub fn ttft(&self) -> Option<f64> {
        self.tokens.first().map(|(at, _)| (at - self.read) as f64 / 1e6)
    }
}

/// The requests of a log, in the order in which they were read.
pub fn read(path: &Path) -> std::io::Result<Vec<Request>> {
    let mut requests: BTreeMap<u64, Request> = BTreeMap::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let line: Line = serde_json::from_str(line)?;
        let request = requests.entry(line.request).or_default();
        match line.event.as_str() {
            "read" => (request.read, request.output) = (line.at, line.output),
            _ => request.tokens.push((line.at, line.tokens)),
        }
    }
    Ok(requests.into_values().collect())
}

/// The stretch in which all of `requests` emit: from the last first token to the first last one.
pub fn steady(requests: &[&Request]) -> (u64, u64) {
    let first = requests.iter().filter_map(|request| request.tokens.first());
    let last = requests.iter().filter_map(|request| request.tokens.last());
    (first.map(|(at, _)| *at).max().unwrap_or(0), last.map(|(at, _)| *at).min().unwrap_or(0))
}

/// Tokens written after `from` and up to `to`.
pub fn tokens(requests: &[&Request], from: u64, to: u64) -> u64 {
    let all = requests.iter().flat_map(|request| &request.tokens);
    all.filter(|(at, _)| *at > from && *at <= to).map(|(_, tokens)| tokens).sum()
}

/// Milliseconds between successive writes of a request, where the second falls after `from` and up
/// to `to`.
pub fn gaps(requests: &[&Request], from: u64, to: u64) -> Vec<f64> {
    let pairs = requests.iter().flat_map(|request| request.tokens.windows(2));
    pairs
        .filter(|pair| pair[1].0 > from && pair[1].0 <= to)
        .map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e6)
        .collect()
}
