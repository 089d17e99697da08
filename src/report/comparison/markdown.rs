//! A comparison as Markdown, for the summary of a job or a comment.

use std::fmt::Write as _;

use super::{
    caution, figure, held, interval, label, lacks, lone, mark, metric, name, ratio, rule, rules,
    sentence, verdict,
};
use crate::record::comparison::{Comparison, Standing, Which};
use crate::report::sanitise::markdown as safe;

/// What it comes to first, then the rules, what changed, and the figures.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {}\n", safe(&format!("{} compared", comparison.b.suite)));
    let _ = writeln!(out, "- {}", safe(&label(Which::A, &comparison.a)));
    let _ = writeln!(out, "- {}", safe(&label(Which::B, &comparison.b)));
    for remark in &comparison.remarks {
        let _ = writeln!(out, "- note: {}", safe(remark));
    }
    let said = [verdict(comparison), Some(sentence(comparison)), caution(comparison)];
    for words in said.into_iter().flatten() {
        let _ = writeln!(out, "\n{}", safe(&words));
    }
    if !comparison.rules.is_empty() {
        out.push_str("\n## Relative rules\n\n");
        for one in rules(comparison) {
            let (what, said) = rule(one);
            let _ = writeln!(out, "- {}: {}: {}", safe(held(one.held)), safe(&what), safe(&said));
        }
    }
    if !comparison.changes.is_empty() {
        out.push_str("\n## What changed\n\n| | A | B |\n|---|---|---|\n");
        for change in &comparison.changes {
            let [what, a, b] = [&change.what, &change.a, &change.b].map(|text| safe(text));
            let _ = writeln!(out, "| {what} | {a} | {b} |");
        }
    }
    if !comparison.cells.is_empty() {
        out.push_str("\n## Figures\n\n");
        out.push_str("| cell | metric | A (launches) | B (launches) | B/A | 90 % interval | |\n");
        out.push_str("|---|---|---:|---:|---:|---|---|\n");
    }
    for pair in &comparison.cells {
        let cell = safe(&name(pair));
        for lack in lacks(pair) {
            let _ = writeln!(out, "| {cell} | {} | | | | | |", safe(&lack));
        }
        for row in &pair.rows {
            let bold = if row.standing == Standing::Worse { "**" } else { "" };
            let _ = writeln!(
                out,
                "| {cell} | {} | {} | {} | {} | {} | {bold}{}{bold} |",
                safe(&metric(row)),
                figure(row.a.as_ref()),
                figure(row.b.as_ref()),
                ratio(row),
                safe(&interval(row)),
                mark(row.standing)
            );
        }
    }
    if !comparison.lone.is_empty() {
        out.push('\n');
    }
    for one in &comparison.lone {
        let _ = writeln!(out, "- {}", safe(&lone(one)));
    }
    out
}
