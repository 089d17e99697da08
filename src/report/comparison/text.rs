//! A comparison as text, for a terminal and a log, readable at 80 columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::{
    NONE, bounds, caution, figure, held, label, lacks, launches, lone, mark, name, ratio, rule,
    rules, sentence, verdict,
};
use crate::record::comparison::{Comparison, Figure, Standing, Which};
use crate::record::wording::number;
use crate::report::columns::columns;
use crate::report::sanitise::line;

/// Columns of a line.
const WIDTH: usize = 80;
/// What a metric's name may take of it at least.
const LEAST: usize = 12;

/// Both sides, what changed, the figures of each cell, what one alone has, the rules; last what it comes to.
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    fold(&mut out, 0, 2, &label(Which::A, &comparison.a));
    fold(&mut out, 0, 2, &label(Which::B, &comparison.b));
    for remark in &comparison.remarks {
        fold(&mut out, 0, 6, &format!("note: {}", line(remark)));
    }
    if comparison.changes.is_empty() {
        out.push_str("\nNothing else is known to have changed.\n");
    } else {
        out.push_str("\nWhat changed:\n");
        for change in &comparison.changes {
            fold(&mut out, 2, 4, &line(&change.what));
            fold(&mut out, 4, 7, &format!("A  {}", line(&change.a)));
            fold(&mut out, 4, 7, &format!("B  {}", line(&change.b)));
        }
    }
    table(&mut out, comparison);
    if !comparison.lone.is_empty() {
        out.push('\n');
    }
    for one in &comparison.lone {
        fold(&mut out, 0, 2, &lone(one));
    }
    if !comparison.rules.is_empty() {
        out.push_str("\nRelative rules:\n");
    }
    for one in rules(comparison) {
        let (what, said) = rule(one);
        fold(&mut out, 2, 4, &format!("{}  {what}: {said}", held(one.held)));
    }
    out.push('\n');
    let said = [Some(sentence(comparison)), caution(comparison), verdict(comparison)];
    said.into_iter().flatten().for_each(|words| fold(&mut out, 0, 2, &words));
    out
}

/// A text in lines of at most [`WIDTH`] columns, cut at blanks; the first begins at `first`, the others at `rest`.
fn fold(out: &mut String, first: usize, rest: usize, text: &str) {
    let mut indent = first;
    let mut row = String::new();
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            // An interval stays on one line.
            Some(last) if last.starts_with('[') && !last.ends_with(']') && last.len() < 12 => {
                *last = format!("{last} {word}");
            }
            Some(_) | None => words.push(word.to_owned()),
        }
    }
    for (at, word) in words.iter().enumerate() {
        let full = indent + row.width() + 1 + word.width() > WIDTH && !row.trim().is_empty();
        if at > 0 && full {
            let _ = writeln!(out, "{:indent$}{}", "", row.trim());
            (indent, row) = (rest, word.clone());
            continue;
        }
        if at > 0 {
            row.push(' ');
        }
        row.push_str(word);
    }
    let _ = writeln!(out, "{:indent$}{}", "", row.trim());
}

/// One table has its columns below each other over all cells; their names stand between its rows.
fn table(out: &mut String, comparison: &Comparison) {
    if comparison.cells.is_empty() {
        return;
    }
    let all = || comparison.cells.iter().flat_map(|pair| &pair.rows);
    let mut rows = vec![["A", "B", "", "B/A", "90 % interval", ""].map(str::to_owned)];
    for pair in &comparison.cells {
        let told = launches(pair).is_some();
        for row in &pair.rows {
            let one = |side: &Option<Figure>| match (told, side) {
                (true, Some(side)) => number(side.value),
                (_, side) => figure(side.as_ref()),
            };
            rows.push([
                one(&row.a),
                one(&row.b),
                line(&row.unit),
                ratio(row),
                row.interval.map_or_else(|| NONE.to_owned(), bounds),
                short(row.standing).to_owned(),
            ]);
        }
    }
    let shown = columns(&rows, 0..2);
    let widest = shown.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
    let room = WIDTH.saturating_sub(widest + 4).max(LEAST);
    // A name that there is no room for has a line of its own.
    let names = all().map(|row| line(&row.metric).width()).filter(|width| *width <= room);
    let room = names.max().unwrap_or(LEAST);
    let mut lines = shown.lines();
    let head = lines.next().unwrap_or_default();
    let _ = writeln!(out, "\n{}", format!("  {:room$}  {head}", "").trim_end());
    for pair in &comparison.cells {
        let told = launches(pair).map(|words| format!(", {words}")).unwrap_or_default();
        fold(out, 0, 2, &format!("{}{told}", name(pair)));
        for lack in lacks(pair) {
            fold(out, 2, 4, &lack);
        }
        for (row, rest) in pair.rows.iter().zip(lines.by_ref()) {
            let name = line(&row.metric);
            let blank = room.saturating_sub(name.width());
            if name.width() > room {
                let _ = writeln!(out, "  {name}\n  {:room$}  {rest}", "");
            } else {
                let _ = writeln!(out, "  {name}{:blank$}  {rest}", "");
            }
        }
    }
    let why: BTreeSet<String> =
        all().filter_map(|row| row.no_interval.as_deref()).map(line).collect();
    why.iter().for_each(|why| fold(out, 0, 3, &format!("{NONE}: {why}")));
    let noise: BTreeSet<String> = all().filter_map(|row| row.noise.as_deref()).map(line).collect();
    noise.iter().for_each(|file| fold(out, 0, 2, &format!("intervals by the noise of {file}")));
}

/// Sign and word of a standing, where there is little room.
fn short(standing: Standing) -> &'static str {
    match standing {
        Standing::WithinNoise => "≈ noise",
        Standing::BetterUnproven => "△ better?",
        Standing::WorseUnproven => "▽ worse?",
        Standing::Better | Standing::Worse | Standing::Same | Standing::Unknown => mark(standing),
    }
}
