//! Where numbers stand: the blanks beside them, so that columns stay where they were.
//!
//! A number that became shorter or longer gives or takes blanks before it, where the numbers of its column end
//! below each other, or behind it, where they begin below each other. At least one blank stays where there was one; what
//! does not fit moves the rest of its line, no further than the next blanks that can take it up. Nothing
//! but blanks between entries of a line changes, and none of those that indent it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Edit;

/// Something on a line that has a column: an entry, or what follows the last one.
#[derive(Debug, Clone)]
struct Item {
    span: Range<usize>,
    /// The grid that it is an entry of.
    grid: Option<usize>,
    /// Which one on its line.
    position: usize,
}

/// How the items of a column are lined up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alignment {
    /// They begin in this column.
    Left(usize),
    /// They end in this column.
    Right(usize),
    /// They are not.
    None,
}

/// The changes of blanks that go with changes of numbers. `grids`: where the entries of each grid stand.
pub(super) fn blanks(text: &str, grids: &[Vec<Range<usize>>], edits: &[Edit]) -> Vec<Edit> {
    let lines = lines(text, grids, edits);
    let columns = columns(text, &lines);
    let mut blanks = Vec::new();
    for items in lines.values() {
        if items.iter().any(|item| edits.iter().any(|edit| edit.span == item.span)) {
            blanks.extend(line(text, items, &columns, edits));
        }
    }
    blanks
}

/// The first byte of the line of an offset.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// How many characters stand before an offset in its line.
fn column(text: &str, at: usize) -> usize {
    text[line_start(text, at)..at].chars().count()
}

/// All items, by the first byte of their line.
fn lines(text: &str, grids: &[Vec<Range<usize>>], edits: &[Edit]) -> BTreeMap<usize, Vec<Item>> {
    let mut all: Vec<(Option<usize>, Range<usize>)> = Vec::new();
    for (grid, entries) in grids.iter().enumerate() {
        all.extend(entries.iter().map(|span| (Some(grid), span.clone())));
    }
    let alone = edits.iter().filter(|edit| !grids.iter().flatten().any(|it| *it == edit.span));
    all.extend(alone.map(|edit| (None, edit.span.clone())));
    all.sort_by_key(|(_, span)| span.start);
    let mut lines: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
    for (grid, span) in all {
        let items = lines.entry(line_start(text, span.start)).or_default();
        let position = items.iter().filter(|item| item.grid == grid).count();
        items.push(Item { span, grid, position });
    }
    for items in lines.values_mut() {
        let Some(last) = items.last().cloned() else { continue };
        let grid = last.grid;
        let tail = tail(text, last.span.end);
        items.extend((last.position + 1..).zip(tail).map(|(position, span)| Item {
            span,
            grid,
            position,
        }));
    }
    lines
}

/// The closing bracket and the comment behind the last entry of a line, where nothing else stands between.
fn tail(text: &str, from: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, c) in text[from..].char_indices().map(|(at, c)| (from + at, c)) {
        match c {
            ' ' | ',' | '}' => {}
            ']' if found.is_empty() => found.push(at..at + 1),
            ']' => {}
            '#' => {
                found.push(at..at + 1);
                break;
            }
            _ => break,
        }
    }
    found
}

/// How each column of each grid is lined up: as most of its items are, where two or more are.
fn columns(text: &str, lines: &BTreeMap<usize, Vec<Item>>) -> BTreeMap<(usize, usize), Alignment> {
    let mut ends: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
    for item in lines.values().flatten() {
        if let Some(grid) = item.grid {
            let at = (column(text, item.span.start), column(text, item.span.end));
            ends.entry((grid, item.position)).or_default().push(at);
        }
    }
    let most = |numbers: Vec<usize>| {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for number in numbers {
            *counts.entry(number).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
    };
    let alignment = |spans: Vec<(usize, usize)>| {
        let (start, starts) = most(spans.iter().map(|(start, _)| *start).collect());
        let (end, ends) = most(spans.iter().map(|(_, end)| *end).collect());
        match (starts, ends) {
            (0 | 1, 0 | 1) => Alignment::None,
            (starts, ends) if ends >= starts => Alignment::Right(end),
            (_, _) => Alignment::Left(start),
        }
    };
    ends.into_iter().map(|(key, spans)| (key, alignment(spans))).collect()
}

/// The changes of one line's blanks.
fn line(
    text: &str,
    items: &[Item],
    columns: &BTreeMap<(usize, usize), Alignment>,
    edits: &[Edit],
) -> Vec<Edit> {
    let mut blanks = Vec::new();
    // By how much what comes now stands further right than it did.
    let mut drift = 0isize;
    for item in items {
        let edit = edits.iter().find(|edit| edit.span == item.span);
        let old = text[item.span.clone()].chars().count();
        let grown =
            edit.map_or(0, |edit| edit.text.chars().count().cast_signed() - old.cast_signed());
        let before = &text[line_start(text, item.span.start)..item.span.start];
        let gap = before.len() - before.trim_end_matches(' ').len();
        // Indentation, and what tabs have lined up, is left alone.
        let fixed = gap == before.len() || before.trim_end_matches(' ').ends_with('\t');
        let alignment = item.grid.and_then(|grid| columns.get(&(grid, item.position)));
        let here = (column(text, item.span.start), column(text, item.span.end));
        let is_entry = edit.is_some() || !matches!(&text[item.span.clone()], "]" | "#");
        let wished = match alignment {
            _ if fixed => 0,
            Some(Alignment::Right(end)) if *end == here.1 => -drift - grown,
            Some(Alignment::Left(start)) if *start == here.0 => -drift,
            // Nobody writes two blanks who does not want to line something up.
            _ if gap >= 2 && is_entry => -drift - grown,
            _ if gap >= 2 => -drift,
            _ => 0,
        };
        let least = gap.min(1).cast_signed();
        let new = (gap.cast_signed() + wished).max(least);
        if new != gap.cast_signed() {
            let span = item.span.start - gap..item.span.start;
            blanks.push(Edit { span, text: " ".repeat(new.unsigned_abs()) });
        }
        drift += new - gap.cast_signed() + grown;
    }
    blanks
}
