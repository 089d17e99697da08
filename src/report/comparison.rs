//! Two runs beside each other, rendered: text, Markdown, a page and JSON.
//!
//! What is compared and how it stands is decided in `record::comparison`; here are the words. Whether a figure
//! got better is said by a sign and a word, never by colour alone.

mod json;
mod markdown;
mod text;

pub use super::html::comparison::render as html;
pub use json::json;
pub use markdown::markdown;
pub use text::text;

use super::count::plural;
use super::sanitise::line;
use crate::record::comparison::{
    Comparison, Figure, Held, Label, Lone, Pair, Row, Rule, Standing, Which,
};
use crate::record::wording::{number, share};

/// What stands in the place of a figure that is not there.
const NONE: &str = "–";

/// Sign and word of a standing.
pub(super) fn mark(standing: Standing) -> &'static str {
    match standing {
        Standing::Better => "▲ better",
        Standing::Worse => "▼ worse",
        Standing::WithinNoise => "≈ within noise",
        Standing::BetterUnproven => "△ better, unproven",
        Standing::WorseUnproven => "▽ worse, unproven",
        Standing::Same => "= same",
        Standing::Unknown => "",
    }
}

/// Sign and word of what a rule comes to.
pub(super) fn held(held: Held) -> &'static str {
    match held {
        Held::Holds => "✓ holds",
        Held::Broken => "✗ broken",
        Held::Warns => "! warning",
        Held::Doubtful | Held::DoubtFails => "? in doubt",
        Held::Unjudged => "! not judged",
        Held::Excused => "– excused",
    }
}

/// `A  base/record.json: record of card, run 7f3a of 2026-09-17T20:47:00Z`.
pub(super) fn label(which: Which, label: &Label) -> String {
    let runs = match &label.runs[..] {
        [one] => format!("run {one}"),
        all => plural(all.len(), "run"),
    };
    let started = label.started.as_ref();
    let started = started.map(|at| format!(" of {at}")).unwrap_or_default();
    let Label { name, kind, suite, .. } = label;
    line(&format!("{which} {name}: {kind} of {suite}, {runs}{started}"))
}

/// `decode context=8K,concurrency=1`, with the variants where there are some.
pub(super) fn name(pair: &Pair) -> String {
    let variants = match (&pair.variant_a, &pair.variant_b) {
        (None, None) => String::new(),
        (Some(a), Some(b)) if a == b => format!(" ({a})"),
        (a, b) => {
            let word =
                |variant: &Option<String>| variant.clone().unwrap_or_else(|| NONE.to_owned());
            format!(" ({} → {})", word(a), word(b))
        }
    };
    line(&format!("{}{variants}", cell(&pair.test, &pair.cell)))
}

/// The test's name and the id, once where they are the same.
fn cell(test: &str, id: &str) -> String {
    if test == id { test.to_owned() } else { format!("{test} {id}") }
}

/// `decode concurrency=4 (new) is only in B`.
pub(super) fn lone(lone: &Lone) -> String {
    let variant = lone.variant.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    line(&format!("{}{variant} is only in {}", cell(&lone.test, &lone.cell), lone.side))
}

/// Why the cell has no figures, of either side.
pub(super) fn lacks(pair: &Pair) -> Vec<String> {
    if let (Some(why), true) = (&pair.lack_a, pair.lack_a == pair.lack_b) {
        return vec![line(&format!("neither has figures: {why}"))];
    }
    let both = [(Which::A, &pair.lack_a), (Which::B, &pair.lack_b)];
    let of = |(which, lack): (Which, &Option<String>)| {
        lack.as_ref().map(|why| line(&format!("{which} has no figures: {why}")))
    };
    both.into_iter().filter_map(of).collect()
}

/// Metric and unit: `ttft.p50, ms`.
pub(super) fn metric(row: &Row) -> String {
    match row.unit.is_empty() {
        true => line(&row.metric),
        false => line(&format!("{}, {}", row.metric, row.unit)),
    }
}

/// `7 302 (3)`: the figure, and of how many launches it is where that is more than one.
pub(super) fn figure(figure: Option<&Figure>) -> String {
    match figure {
        None => NONE.to_owned(),
        Some(Figure { value, launches: 1 }) => number(*value),
        Some(Figure { value, launches }) => format!("{} ({launches})", number(*value)),
    }
}

/// B ÷ A.
pub(super) fn ratio(row: &Row) -> String {
    row.ratio.map_or_else(|| NONE.to_owned(), share)
}

/// `[0.925, 0.957]`.
pub(super) fn bounds([low, high]: [f64; 2]) -> String {
    format!("[{}, {}]", share(low), share(high))
}

/// The interval, or why there is none.
pub(super) fn interval(row: &Row) -> String {
    let noise = row.noise.as_ref().map(|file| format!(" by {file}")).unwrap_or_default();
    match (row.interval, &row.no_interval) {
        (Some(interval), _) => line(&format!("{}{noise}", bounds(interval))),
        (None, Some(why)) => line(why),
        (None, None) => String::new(),
    }
}

/// What a rule is on, and what it says: `decode concurrency=4 output-throughput`, `0.941 of A …`.
pub(super) fn rule(rule: &Rule) -> (String, String) {
    let what = match rule.metric.is_empty() {
        true => rule.cell.clone(),
        false => format!("{} {}", cell(&rule.test, &rule.cell), rule.metric),
    };
    (line(&what), line(&rule.said))
}

/// In how many launches a cell was measured, where that is not one and the same for all of its figures: `8 pairs`,
/// `3 launches each`, `3 launches against 2`.
pub(super) fn launches(pair: &Pair) -> Option<String> {
    let of = |row: &Row| Some((row.a.as_ref()?.launches, row.b.as_ref()?.launches, row.pairs));
    let mut all = pair.rows.iter().filter_map(of);
    let first = all.next()?;
    if all.any(|other| other != first) {
        return None;
    }
    match first {
        (_, _, Some(pairs)) => Some(plural(pairs, "pair")),
        (1, 1, None) => None,
        (a, b, None) if a == b => Some(format!("{} each", plural(a, "launch"))),
        (a, b, None) => Some(format!("{} against {a}", plural(b, "launch"))),
    }
}

/// The rules in the order in which they need an eye.
pub(super) fn rules(comparison: &Comparison) -> Vec<&Rule> {
    let mut all: Vec<&Rule> = comparison.rules.iter().collect();
    all.sort_by_key(|rule| match rule.held {
        Held::Broken => 0,
        Held::Unjudged => 1,
        Held::DoubtFails => 2,
        Held::Doubtful => 3,
        Held::Warns => 4,
        Held::Excused => 5,
        Held::Holds => 6,
    });
    all
}

/// What the table comes to, in a sentence.
pub fn sentence(comparison: &Comparison) -> String {
    let rows: usize = comparison.cells.iter().map(|pair| pair.rows.len()).sum();
    let mut parts = Vec::new();
    for (standing, word) in [
        (Standing::Worse, "worse"),
        (Standing::Better, "better"),
        (Standing::WithinNoise, "within noise"),
    ] {
        let count = comparison.count(standing);
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    let bare: usize = [Standing::BetterUnproven, Standing::WorseUnproven, Standing::Same]
        .into_iter()
        .map(|standing| comparison.count(standing))
        .sum();
    if bare > 0 {
        parts.push(format!("{bare} without an interval"));
    }
    let unknown = comparison.count(Standing::Unknown);
    if unknown > 0 {
        parts.push(format!("{unknown} without a ratio"));
    }
    let mut said =
        format!("{} in {} of both", plural(rows, "figure"), plural(comparison.cells.len(), "cell"));
    if !parts.is_empty() {
        said.push_str(&format!(": {}", parts.join(", ")));
    }
    for side in [Which::A, Which::B] {
        let count = comparison.lone.iter().filter(|lone| lone.side == side).count();
        if count > 0 {
            said.push_str(&format!("; {} only in {side}", plural(count, "cell")));
        }
    }
    said
}

/// What the rules come to, in a sentence; `None` where none was asked for.
pub fn verdict(comparison: &Comparison) -> Option<String> {
    if comparison.rules.is_empty() {
        return None;
    }
    let parts: Vec<String> = [
        (Held::Broken, "broken"),
        (Held::Unjudged, "not judged"),
        (Held::DoubtFails, "in doubt, which fails"),
        (Held::Doubtful, "in doubt"),
        (Held::Warns, "to warn"),
        (Held::Excused, "excused"),
        (Held::Holds, "held"),
    ]
    .into_iter()
    .map(|(held, word)| (comparison.ruled(held), word))
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    Some(format!("{}: {}", plural(comparison.rules.len(), "relative rule"), parts.join(", ")))
}

/// How the marks are to be read, where one may come of noise; `None` where no figure has an interval.
pub(super) fn caution(comparison: &Comparison) -> Option<String> {
    let judged = [Standing::Better, Standing::Worse, Standing::WithinNoise];
    let judged: usize = judged.into_iter().map(|standing| comparison.count(standing)).sum();
    (judged > 0).then(|| {
        format!(
            "each interval is for itself: of {} that did not change about {} would be marked",
            plural(judged, "figure"),
            (judged as f64 / 10.0).ceil()
        )
    })
}

#[cfg(test)]
mod tests;
