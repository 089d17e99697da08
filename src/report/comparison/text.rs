//! A comparison as text, for a terminal and a log.

use std::fmt::Write as _;

use super::{
    caution, figure, held, interval, label, lacks, lone, mark, metric, name, ratio, rule, rules,
    sentence, verdict,
};
use crate::record::comparison::{Comparison, Which};
use crate::report::columns::columns;
use crate::report::sanitise::line;

/// Both sides, what changed, the figures of each cell, what one alone has, the rules; last what it comes to.
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", label(Which::A, &comparison.a));
    let _ = writeln!(out, "{}", label(Which::B, &comparison.b));
    for remark in &comparison.remarks {
        let _ = writeln!(out, "note: {}", line(remark));
    }
    if comparison.changes.is_empty() {
        out.push_str("\nNothing else is known to have changed.\n");
    } else {
        out.push_str("\nWhat changed:\n");
        for change in &comparison.changes {
            let _ = writeln!(out, "  {}", line(&change.what));
            let _ = writeln!(out, "    A  {}", line(&change.a));
            let _ = writeln!(out, "    B  {}", line(&change.b));
        }
    }
    table(&mut out, comparison);
    if !comparison.lone.is_empty() {
        out.push('\n');
    }
    for one in &comparison.lone {
        let _ = writeln!(out, "{}", lone(one));
    }
    if !comparison.rules.is_empty() {
        out.push_str("\nRelative rules:\n");
    }
    for one in rules(comparison) {
        let _ = writeln!(out, "  {}  {}", held(one.held), rule(one));
    }
    let _ = writeln!(out, "\n{}", sentence(comparison));
    if let Some(words) = caution(comparison) {
        let _ = writeln!(out, "{words}");
    }
    if let Some(words) = verdict(comparison) {
        let _ = writeln!(out, "{words}");
    }
    out
}

fn table(out: &mut String, comparison: &Comparison) {
    if comparison.cells.is_empty() {
        return;
    }
    let mut rows = vec![["  (launches)", "A", "B", "B/A", "90 % interval", ""].map(str::to_owned)];
    for row in comparison.cells.iter().flat_map(|pair| &pair.rows) {
        rows.push([
            format!("  {}", metric(row)),
            figure(row.a.as_ref()),
            figure(row.b.as_ref()),
            ratio(row),
            interval(row),
            mark(row.standing).to_owned(),
        ]);
    }
    // One table has its columns below each other over all cells; their names stand between its rows.
    let shown = columns(&rows, 1..4);
    let mut lines = shown.lines();
    let _ = writeln!(out, "\n{}", lines.next().unwrap_or_default());
    for pair in &comparison.cells {
        let _ = writeln!(out, "{}", name(pair));
        for lack in lacks(pair) {
            let _ = writeln!(out, "  {lack}");
        }
        for row in lines.by_ref().take(pair.rows.len()) {
            let _ = writeln!(out, "{row}");
        }
    }
}
