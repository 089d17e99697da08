//! The cells of a run arranged as on a result page: for each test a sheet, rows by context or lengths,
//! columns by concurrency or rate; every other axis makes a block of its own.
//!
//! It decides where a cell stands and which words mark its verdict; how that is drawn is decided by
//! console and Markdown.

use std::collections::BTreeMap;

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, CellState, Judgement, PlannedCellRecord, UnfitClass};
use crate::suite::model::AxisValue;

use super::figure::{self, Headline};
use super::rounds;
use super::sanitise::line;

/// The cells of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// The test's name.
    pub test: String,
    /// What it measures.
    pub kind: TestKind,
    /// Which of its figures are shown.
    pub headline: Headline,
    /// One block for each combination of the axes that are neither row nor column.
    pub blocks: Vec<Block>,
}

/// Cells by row and column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// The values that its cells share, `layout=tp8`; empty where there is nothing to tell apart.
    pub heading: String,
    /// Axis of the rows; absent: its rows are labelled by whatever names a cell.
    pub row_axis: Option<String>,
    /// Axis of the columns; absent: a list.
    pub column_axis: Option<String>,
    /// Labels of the rows.
    pub rows: Vec<String>,
    /// Labels of the columns; one empty label in a list.
    pub columns: Vec<String>,
    /// Index of the cell at row and column; holes are cells that the plan does not have.
    pub cells: Vec<Vec<Option<usize>>>,
}

const ROWS: [&str; 3] = ["context", "input", "output"];
const COLUMNS: [&str; 2] = ["concurrency", "request_rate"];

/// Arranges all cells of a record, tests in the order of the plan.
pub fn sheets(record: &RunRecord) -> Vec<Sheet> {
    let mut tests: Vec<(&str, TestKind, Vec<usize>)> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, cell) in record.header.cells.iter().enumerate() {
        let at = *known.entry(&cell.test).or_insert_with(|| {
            tests.push((&cell.test, cell.kind, Vec::new()));
            tests.len() - 1
        });
        tests[at].2.push(index);
    }
    tests
        .into_iter()
        .map(|(test, kind, cells)| {
            let pairs = cells.iter().map(|at| (&record.header.cells[*at], &record.cells[*at]));
            let headline = figure::headline(kind, pairs);
            Sheet { test: line(test), kind, headline, blocks: blocks(record, &cells) }
        })
        .collect()
}

/// Arranges some cells of one test.
pub fn blocks(record: &RunRecord, cells: &[usize]) -> Vec<Block> {
    let has = |name: &&&str| {
        cells.iter().any(|cell| record.header.cells[*cell].axes.iter().any(|(k, _)| k == **name))
    };
    let (row, column) = (ROWS.iter().find(has), COLUMNS.iter().find(has));
    // With one of the two there is a list by it; with none, by whatever is left.
    let (row, column) = if row.is_some() { (row, column) } else { (column, None) };

    let mut headings: Vec<String> = Vec::new();
    let mut grouped: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for cell in cells {
        let planned = &record.header.cells[*cell];
        let heading = match row {
            Some(_) => rest(planned, row.copied(), column.copied()),
            None => String::new(),
        };
        if !grouped.contains_key(&heading) {
            headings.push(heading.clone());
        }
        grouped.entry(heading).or_default().push(*cell);
    }
    headings
        .into_iter()
        .map(|heading| {
            let cells = grouped.remove(&heading).unwrap_or_default();
            block(record, heading, &cells, row.copied(), column.copied())
        })
        .collect()
}

fn block(
    record: &RunRecord,
    heading: String,
    cells: &[usize],
    row: Option<&str>,
    column: Option<&str>,
) -> Block {
    let label = |cell: usize, axis: Option<&str>| -> (String, Option<f64>) {
        let planned = &record.header.cells[cell];
        match axis.and_then(|axis| value(planned, axis)) {
            Some(value) => (line(&value.to_string()), value.number()),
            None => (String::new(), None),
        }
    };
    let row_label = |cell: usize| match row {
        Some(_) => label(cell, row),
        None => {
            let planned = &record.header.cells[cell];
            let rest = rest(planned, None, None);
            let launch = record.header.launches.get(planned.launch).map(|l| l.name.clone());
            (if rest.is_empty() { line(&launch.unwrap_or_default()) } else { rest }, None)
        }
    };
    let labelled: Vec<_> =
        cells.iter().map(|cell| (row_label(*cell), label(*cell, column))).collect();
    let rows = in_order(labelled.iter().map(|(row, _)| row.clone()).collect());
    let columns = in_order(labelled.iter().map(|(_, column)| column.clone()).collect());
    let places = |labels: &[String]| -> BTreeMap<String, usize> {
        labels.iter().enumerate().map(|(at, label)| (label.clone(), at)).collect()
    };
    let (row_places, column_places) = (places(&rows), places(&columns));
    let mut placed = vec![vec![None; columns.len()]; rows.len()];
    for (cell, (row, column)) in cells.iter().zip(&labelled) {
        placed[row_places[&row.0]][column_places[&column.0]] = Some(*cell);
    }
    Block {
        heading,
        row_axis: row.map(Into::into),
        column_axis: column.map(Into::into),
        rows,
        columns,
        cells: placed,
    }
}

/// Labels without repetition: by number where all have one, else in order of appearance.
fn in_order(labels: Vec<(String, Option<f64>)>) -> Vec<String> {
    let mut unique: Vec<(String, Option<f64>)> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for label in labels {
        if known.insert(label.0.clone()) {
            unique.push(label);
        }
    }
    if unique.iter().all(|(_, number)| number.is_some()) {
        unique.sort_by(|a, b| a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0)));
    }
    unique.into_iter().map(|(label, _)| label).collect()
}

fn value<'a>(cell: &'a PlannedCellRecord, axis: &str) -> Option<&'a AxisValue> {
    cell.axes.iter().find(|(name, _)| name == axis).map(|(_, value)| value)
}

/// `variant=new layout=tp8`: what tells a cell apart beside row and column.
fn rest(cell: &PlannedCellRecord, row: Option<&str>, column: Option<&str>) -> String {
    let variant = cell.variant.iter().map(|variant| format!("variant={variant}"));
    let axes = cell.axes.iter().filter(|(name, _)| {
        let name = Some(name.as_str());
        name != row && name != column
    });
    let axes = axes.map(|(name, value)| format!("{name}={value}"));
    line(&variant.chain(axes).collect::<Vec<_>>().join(" "))
}

/// How good or bad a mark is, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Broken.
    Bad,
    /// Worth a look.
    Doubtful,
    /// Nothing to say.
    Quiet,
}

/// A verdict in one sign and one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// One column wide.
    pub sign: char,
    /// The word.
    pub word: &'static str,
    /// Its tone.
    pub tone: Tone,
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.sign, self.word)
    }
}

/// The mark of a cell.
pub fn mark(outcome: &CellOutcome) -> Mark {
    if rounds::partial(outcome).is_some() {
        return Mark { sign: '·', word: "in part", tone: Tone::Bad };
    }
    let unfit = match &outcome.state {
        CellState::Unfit { class: UnfitClass::OverCapacity, .. } => Some("over"),
        CellState::Unfit { class: UnfitClass::TooLong, .. } => Some("too long"),
        CellState::Unfit { class: UnfitClass::Hardware, .. } => Some("hardware"),
        CellState::NotRun { .. } | CellState::Measured(_) | CellState::Broken { .. } => None,
    };
    let not_run = matches!(outcome.state, CellState::NotRun { .. });
    mark_of(&outcome.judgement, unfit, not_run)
}

/// The mark of what something came to.
pub fn mark_of(judgement: &Judgement, unfit: Option<&'static str>, not_run: bool) -> Mark {
    let class = judgement.class.as_deref();
    let (sign, word, tone) = match judgement.verdict {
        Verdict::Pass => ('✓', "pass", Tone::Good),
        Verdict::Fail if class == Some("degraded") => ('✗', "degraded", Tone::Bad),
        Verdict::Fail => ('✗', unfit.unwrap_or("fail"), Tone::Bad),
        Verdict::Inconclusive => ('?', "unsure", Tone::Doubtful),
        Verdict::Error if not_run => ('·', "not run", Tone::Bad),
        Verdict::Error => ('!', "error", Tone::Bad),
        Verdict::Measured => ('○', "measured", Tone::Quiet),
        Verdict::Skip => ('–', unfit.unwrap_or("skip"), Tone::Quiet),
        Verdict::Xfail => ('~', "xfail", Tone::Doubtful),
        Verdict::Xpass => ('✓', "xpass", Tone::Doubtful),
    };
    Mark { sign, word, tone }
}

/// What the words of the marks mean, for those that need it.
pub fn explained(word: &str) -> Option<&'static str> {
    match word {
        "over" => Some(
            "not run, since so many requests at this context would exceed the engine's KV cache",
        ),
        "too long" => Some("not run, since prompt and output exceed the engine's longest sequence"),
        "hardware" => Some("not run, since the hardware is not what the suite declares"),
        "in part" => Some("not all of the launches that it is measured in have run"),
        "unsure" => Some("beyond a limit, but the noise can't exclude that nothing was lost"),
        "measured" => Some("nothing is expected of it, or others are held against it"),
        "xfail" => Some("fails as its quarantine expects"),
        "xpass" => Some("passes although it is in quarantine"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn rows_are_context_and_columns_concurrency() {
        let sheets = sheets(&fixture::page());
        let names: Vec<&str> = sheets.iter().map(|sheet| sheet.test.as_str()).collect();
        assert_eq!(names, ["startup", "prefill", "decode"]);
        let decode = &sheets[2].blocks[0];
        assert_eq!(decode.rows, ["8K", "16K", "32K", "64K", "128K", "256K", "512K", "1019K"]);
        assert_eq!(decode.columns, ["1", "2", "4", "8", "16", "32", "64", "128"]);
        assert_eq!(decode.cells[7][7], Some(73));
        let prefill = &sheets[1].blocks[0];
        assert_eq!((prefill.column_axis.as_ref(), prefill.columns.len()), (None, 1));
        assert_eq!(sheets[0].blocks[0].rows, ["engine"]);
    }

    #[test]
    fn other_axes_make_blocks() {
        let mut record = fixture::every_verdict();
        // A cell that the plan doesn't have leaves a hole, and rows keep the order of numbers.
        record.header.cells.reverse();
        record.cells.reverse();
        let sheets = sheets(&record);
        let blocks = &sheets[0].blocks;
        let headings: Vec<&str> = blocks.iter().map(|block| block.heading.as_str()).collect();
        assert_eq!(headings, ["layout=dp8", "layout=tp8"]);
        assert_eq!(blocks[0].rows, ["1", "2"]);
        assert_eq!(blocks[1].rows[..4], ["1", "2", "4", "8"]);
        assert_eq!(blocks[1].row_axis.as_deref(), Some("concurrency"));
    }

    #[test]
    fn every_verdict_has_its_mark() {
        let record = fixture::every_verdict();
        let words: Vec<&str> = record.cells.iter().map(|cell| mark(cell).word).collect();
        assert_eq!(
            words,
            [
                "pass", "fail", "degraded", "unsure", "error", "measured", "xfail", "xpass",
                "over", "too long", "not run", "not run"
            ]
        );
    }
}
