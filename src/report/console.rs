//! The closing page on a terminal: what ran, a table for each test that reads like a result page,
//! failures with their messages and rerun commands, warnings, the verdict.
//!
//! It decides arrangement and colour only; the cells' places and marks come from `grid`, the words
//! from `message`. Nothing that an engine printed reaches the terminal unwashed.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::RunRecord;
use crate::record::run_record::CellState;

use super::count::{Counts, inconclusive_fails, plural};
use super::figure::{self, Figure, Headline};
use super::grid::{self, Block, Mark, Sheet, Tone};
use super::message;
use super::part;

pub use super::count::last_line;

/// Failures, and warnings, that are shown in full; the files have all.
const MOST_TOLD: usize = 40;
/// Cells of a test that are shown; beyond, those that need no eye are left out.
const MOST_CELLS: usize = 2_000;

/// How much of the page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// What failed or could not be judged, and the verdict.
    Troubles,
}

/// Renders the closing page for a terminal so many columns wide.
pub fn render(record: &RunRecord, width: usize, color: bool, extent: Extent) -> String {
    let page = Page { record, width: width.max(40), color };
    let mut out = String::new();
    page.wrapped(&mut out, "", &message::title(record), Paint::Bold);
    if let Some(part) = part::words(record) {
        page.wrapped(&mut out, "", &part, Paint::Dim);
    }
    match extent {
        Extent::Whole => {
            for sheet in grid::sheets(record) {
                page.sheet(&mut out, &sheet);
            }
            page.legend(&mut out);
            page.troubles(&mut out);
            page.warnings(&mut out);
        }
        Extent::Troubles => page.troubles(&mut out),
    }
    page.verdict(&mut out);
    out
}

struct Page<'a> {
    record: &'a RunRecord,
    width: usize,
    color: bool,
}

/// How a piece of text is coloured.
#[derive(Debug, Clone, Copy)]
enum Paint {
    Bold,
    Dim,
    Tone(Tone),
}

/// One cell of a table: its lines, the last one coloured by its tone.
struct Face {
    lines: Vec<String>,
    mark: Option<Mark>,
}

/// One line of a list.
struct Row {
    name: String,
    figures: [String; 2],
    mark: Mark,
}

impl Page<'_> {
    fn paint(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Bold => "1",
            Paint::Dim | Paint::Tone(Tone::Quiet) => "2",
            Paint::Tone(Tone::Good) => "32",
            Paint::Tone(Tone::Bad) => "1;31",
            Paint::Tone(Tone::Doubtful) => "33",
        };
        if self.color && !text.trim().is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn sheet(&self, out: &mut String, sheet: &Sheet) {
        let Headline { first, second } = sheet.headline;
        let unit = first.base.entry().unit;
        let what = match sheet.kind {
            TestKind::Decode | TestKind::Serve => format!("total {unit}, median TTFT"),
            TestKind::Prefill => format!("prompt {unit}, median TTFT"),
            TestKind::Command => {
                let blank = if unit.is_empty() { "" } else { " " };
                let second = second.map_or(String::new(), |second| format!(", {second}"));
                super::sanitise::line(&format!("{first}{blank}{unit}{second}"))
            }
            TestKind::Startup => "time to ready, KV capacity".to_owned(),
        };
        for block in &sheet.blocks {
            let axes = match (&block.row_axis, &block.column_axis) {
                (Some(row), Some(column)) => format!("rows are {row}, columns are {column}"),
                (Some(row), None) => format!("by {row}"),
                (None, _) => String::new(),
            };
            let parts = [sheet.test.as_str(), block.heading.as_str(), what.as_str(), axes.as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            out.push('\n');
            self.wrapped(out, "", &parts.join(" · "), Paint::Bold);
            let shown = block.cells.iter().flatten().flatten().count();
            if shown > MOST_CELLS {
                let _ = writeln!(out, "  {} cells: too many for a table here", shown);
            } else if block.column_axis.is_some() {
                self.matrix(out, sheet.headline, block);
            } else {
                self.list(out, sheet, block);
            }
        }
    }

    /// Value, TTFT and mark under each other, in as many groups of columns as the width asks for.
    fn matrix(&self, out: &mut String, shown: Headline, block: &Block) {
        let Headline { first, second } = shown;
        let digits = self.digits(block, first);
        let faces: Vec<Vec<Face>> = block
            .cells
            .iter()
            .map(|row| row.iter().map(|cell| self.face(*cell, (first, digits), second)).collect())
            .collect();
        let axis = block.row_axis.as_deref().unwrap_or_default();
        let label = block.rows.iter().map(|row| row.width()).chain([axis.width()]).max();
        let label = label.unwrap_or(0) + 1;
        let widths: Vec<usize> = (0..block.columns.len())
            .map(|column| {
                let lines = faces.iter().flat_map(|row| row[column].lines.iter());
                let widest = lines.map(|line| line.width()).max().unwrap_or(0);
                widest.max(block.columns[column].width()) + 2
            })
            .collect();
        // Equal columns read best, where they fit; else each is as narrow as it can be.
        let widest = widths.iter().copied().max().unwrap_or(0);
        let widths = if label + widest * widths.len() <= self.width {
            vec![widest; widths.len()]
        } else {
            widths
        };
        for (at, group) in groups(&widths, self.width.saturating_sub(label)).into_iter().enumerate()
        {
            if at > 0 {
                out.push('\n');
            }
            let mut head = format!("{axis:>label$}");
            for column in group.clone() {
                let _ = write!(head, "{:>1$}", block.columns[column], widths[column]);
            }
            let _ = writeln!(out, "{}", self.paint(Paint::Bold, &head));
            let ruler = label + widths[group.clone()].iter().sum::<usize>();
            let _ = writeln!(out, " {}", self.paint(Paint::Dim, &"─".repeat(ruler - 1)));
            for (row, faces) in block.rows.iter().zip(&faces) {
                let faces = &faces[group.clone()];
                let height = faces.iter().map(|face| face.lines.len()).max().unwrap_or(0).max(1);
                for line in 0..height {
                    let name = if line == 0 { row.as_str() } else { "" };
                    let mut text = format!("{}{}", " ".repeat(label - name.width()), name);
                    for (face, column) in faces.iter().zip(group.clone()) {
                        text.push_str(&self.piece(face, line, widths[column]));
                    }
                    let _ = writeln!(out, "{}", text.trim_end());
                }
                if height > 1 {
                    out.push('\n');
                }
            }
            // The gap below the last row is the next heading's.
            if out.ends_with("\n\n") {
                out.pop();
            }
        }
    }

    fn face(
        &self,
        cell: Option<usize>,
        (first, digits): (crate::measure::Metric, usize),
        second: Option<crate::measure::Metric>,
    ) -> Face {
        let Some(cell) = cell else { return Face { lines: vec![], mark: None } };
        let (planned, outcome) = (&self.record.header.cells[cell], &self.record.cells[cell]);
        let mark = grid::mark(outcome);
        let mut lines = Vec::new();
        if figure::measurement(outcome).is_some() {
            let value = figure::one(planned, outcome, first);
            lines.push(value.map_or("—".into(), |f| figure::column(f.value, digits)));
            let below = second.and_then(|second| figure::one(planned, outcome, second));
            lines.extend(below.map(|f| latency(&f)));
        }
        lines.push(mark.to_string());
        Face { lines, mark: Some(mark) }
    }

    /// One line of a cell, right-aligned in its column.
    fn piece(&self, face: &Face, line: usize, width: usize) -> String {
        let Some(text) = face.lines.get(line) else { return " ".repeat(width) };
        let pad = " ".repeat(width.saturating_sub(text.width()));
        let paint = match face.mark {
            Some(mark) if line + 1 == face.lines.len() => Some(Paint::Tone(mark.tone)),
            Some(mark) if line == 0 && mark.tone == Tone::Bad => Some(Paint::Tone(Tone::Bad)),
            Some(_) if line > 0 => Some(Paint::Dim),
            Some(_) | None => None,
        };
        format!("{pad}{}", paint.map_or(text.clone(), |paint| self.paint(paint, text)))
    }

    /// A line for each cell.
    fn list(&self, out: &mut String, sheet: &Sheet, block: &Block) {
        let Headline { first, second } = sheet.headline;
        let digits = self.digits(block, first);
        let mut lines: Vec<Row> = Vec::new();
        for (row, cells) in block.rows.iter().zip(&block.cells) {
            for cell in cells.iter().flatten() {
                let (planned, outcome) =
                    (&self.record.header.cells[*cell], &self.record.cells[*cell]);
                let value = figure::one(planned, outcome, first).map(|f| {
                    let unit = f.metric.base.entry().unit;
                    let blank = if unit.is_empty() { "" } else { " " };
                    let number = figure::column(f.value, digits);
                    super::sanitise::line(&format!("{number}{blank}{unit}"))
                });
                let below = second.and_then(|second| figure::one(planned, outcome, second));
                let below = below.map(|f| match sheet.kind {
                    TestKind::Prefill | TestKind::Decode | TestKind::Serve => {
                        format!("{} TTFT", latency(&f))
                    }
                    TestKind::Startup => f.text(),
                    TestKind::Command => {
                        super::sanitise::line(&format!("{} {}", f.metric, f.text()))
                    }
                });
                let figures = [value.unwrap_or_default(), below.unwrap_or_default()];
                lines.push(Row { name: row.clone(), figures, mark: grid::mark(outcome) });
            }
        }
        let widest = |of: &dyn Fn(&Row) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let label = widest(&|row| row.name.width());
        let columns =
            [widest(&|row| row.figures[0].width()), widest(&|row| row.figures[1].width())];
        let marks = widest(&|row| row.mark.to_string().width());
        // Narrow terminals get narrow gaps, then the first figure alone.
        let needed = |gap: usize, shown: usize| {
            let figures = columns.iter().take(shown).filter(|width| **width > 0);
            2 + label + figures.map(|width| width + gap).sum::<usize>() + gap + marks
        };
        let fits = |(gap, shown): &(usize, usize)| needed(*gap, *shown) <= self.width;
        let (gap, shown) = [(3, 2), (1, 2), (1, 1)].into_iter().find(fits).unwrap_or((1, 0));
        for Row { name, figures, mark } in &lines {
            let mut text = format!("  {}{name}", " ".repeat(label - name.width()));
            let figures = figures.iter().zip(columns).take(shown);
            for (figure, width) in figures.filter(|(_, width)| *width > 0) {
                let _ = write!(text, "{}{figure}", " ".repeat(width + gap - figure.width()));
            }
            let mark = self.paint(Paint::Tone(mark.tone), &mark.to_string());
            let _ = writeln!(out, "{text}{}{mark}", " ".repeat(gap));
        }
    }

    /// Digits behind the point for a column of figures: as many as the smallest needs to keep three.
    fn digits(&self, block: &Block, metric: crate::measure::Metric) -> usize {
        let cells = block.cells.iter().flatten().flatten();
        let values = cells.filter_map(|cell| {
            let figure =
                figure::one(&self.record.header.cells[*cell], &self.record.cells[*cell], metric);
            figure.map(|figure| figure.value.abs())
        });
        let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        match least {
            v if v >= 1_000.0 => 0,
            v if v >= 1.0 => 1,
            v if v >= 0.1 => 3,
            _ => 4,
        }
    }

    fn legend(&self, out: &mut String) {
        let mut told: Vec<&str> = Vec::new();
        for outcome in &self.record.cells {
            let mark = grid::mark(outcome);
            if !told.contains(&mark.word)
                && let Some(meaning) = grid::explained(mark.word)
            {
                if told.is_empty() {
                    out.push('\n');
                }
                told.push(mark.word);
                self.wrapped(out, &format!("{mark}  "), meaning, Paint::Dim);
            }
        }
    }

    /// Launches and cells that need somebody's eye, with what to run to see them again.
    fn troubles(&self, out: &mut String) {
        let record = self.record;
        for (planned, launch) in record.header.launches.iter().zip(&record.launches) {
            let Some(failure) = &launch.failure else { continue };
            let name = super::sanitise::line(&planned.name);
            let head = self.paint(Paint::Tone(Tone::Bad), &format!("! launch {name}"));
            let _ = writeln!(out, "\n{head}");
            self.wrapped(out, "    ", &message::one_line(&failure.message), Paint::Bold);
            for line in message::of_launch(failure, launch.log.as_deref()).iter().take(MOST_TOLD) {
                self.wrapped(out, "    ", line, Paint::Dim);
            }
        }
        let policy = record.header.policy.inconclusive;
        let mut told = 0;
        let mut left = 0;
        for (planned, outcome) in record.header.cells.iter().zip(&record.cells) {
            let stands = match outcome.judgement.verdict {
                Verdict::Fail => true,
                Verdict::Inconclusive => inconclusive_fails(policy, &outcome.judgement),
                // Why a cell did not run is told once for all of them.
                Verdict::Error => !matches!(outcome.state, CellState::NotRun { .. }),
                Verdict::Pass
                | Verdict::Measured
                | Verdict::Skip
                | Verdict::Xfail
                | Verdict::Xpass => false,
            };
            if !stands {
                continue;
            }
            if told == MOST_TOLD {
                left += 1;
                continue;
            }
            told += 1;
            let mark = grid::mark(outcome);
            let head = format!("{} {}", mark.sign, message::name(planned));
            let _ = writeln!(out, "\n{}", self.paint(Paint::Tone(mark.tone), &head));
            let said = message::of_cell(outcome).unwrap_or_default();
            self.wrapped(out, "    ", &said, Paint::Bold);
            for line in message::details(planned, outcome) {
                self.wrapped(out, "    ", &line, Paint::Dim);
            }
            // Not wrapped: it is there to be copied.
            let _ = writeln!(out, "    rerun: {}", message::rerun(record, planned));
        }
        if left > 0 {
            let _ = writeln!(out, "\n… and {left} more, see report.html");
        }
        let not_run = message::not_run(record);
        if !not_run.is_empty() {
            out.push('\n');
        }
        for (reason, n) in not_run.iter().take(MOST_TOLD) {
            self.wrapped(out, "", &format!("{}: {reason}", plural(*n, "cell")), Paint::Bold);
        }
    }

    fn warnings(&self, out: &mut String) {
        let mut warnings = message::warnings(self.record);
        let unsure = self.record.header.cells.iter().zip(&self.record.cells);
        for (planned, outcome) in unsure {
            let fails =
                inconclusive_fails(self.record.header.policy.inconclusive, &outcome.judgement);
            if outcome.judgement.verdict == Verdict::Inconclusive && !fails {
                let said = message::of_cell(outcome).unwrap_or_default();
                warnings.push(format!("{}: inconclusive: {said}", message::name(planned)));
            }
        }
        if warnings.is_empty() {
            return;
        }
        let head = plural(warnings.len(), "warning");
        let _ = writeln!(out, "\n{}", self.paint(Paint::Tone(Tone::Doubtful), &head));
        for warning in warnings.iter().take(MOST_TOLD) {
            self.wrapped(out, "  – ", warning, Paint::Dim);
        }
        if warnings.len() > MOST_TOLD {
            let _ = writeln!(out, "  … and {} more, see report.html", warnings.len() - MOST_TOLD);
        }
    }

    fn verdict(&self, out: &mut String) {
        let (word, tone) = verdict_word(self.record);
        let said = format!("{word}: {}", super::sanitise::line(&self.record.header.suite));
        out.push('\n');
        self.wrapped(out, "", &said, Paint::Tone(tone));
    }

    /// Text after a prefix, broken at blanks so that it stays within the width.
    fn wrapped(&self, out: &mut String, prefix: &str, text: &str, paint: Paint) {
        let indent = prefix.width();
        let room = self.width.saturating_sub(indent).max(20);
        let mut line = String::new();
        let mut lead = prefix.to_owned();
        let kept = text.len() - text.trim_start().len();
        line.push_str(&text[..kept]);
        let mut flush = |line: &mut String| {
            let _ = writeln!(out, "{lead}{}", self.paint(paint, line));
            lead = " ".repeat(indent);
            line.clear();
        };
        for word in words(text) {
            let gap = usize::from(!line.trim().is_empty());
            if gap == 1 && line.width() + 1 + word.width() > room {
                flush(&mut line);
                line.push_str(&text[..kept]);
            } else if gap == 1 {
                line.push(' ');
            }
            line.push_str(&word);
        }
        flush(&mut line);
    }
}

/// The whole run in one word.
pub fn verdict_word(record: &RunRecord) -> (&'static str, Tone) {
    let counts = Counts::of(record);
    let policy = record.header.policy.inconclusive;
    let undecided = record.cells.iter().any(|cell| {
        cell.judgement.verdict == Verdict::Inconclusive
            && inconclusive_fails(policy, &cell.judgement)
    });
    if record.signal.is_some() {
        ("INTERRUPTED", Tone::Bad)
    } else if counts.fail > 0 {
        ("FAILED", Tone::Bad)
    } else if counts.error + counts.not_run + counts.launches_failed > 0 {
        ("NOT JUDGED", Tone::Bad)
    } else if undecided {
        ("UNDECIDED", Tone::Bad)
    } else if record.header.cells.is_empty() && record.header.shard.is_some() {
        ("NOTHING TO DO", Tone::Good)
    } else if record.header.cells.is_empty() {
        ("NOTHING SELECTED", Tone::Bad)
    } else {
        ("PASSED", Tone::Good)
    }
}

/// Milliseconds as a result page shows them: whole from 10 on.
fn latency(figure: &Figure) -> String {
    if !figure.metric.base.entry().latency {
        return super::sanitise::line(&figure.text());
    }
    let digits = usize::from(figure.value < 9.95);
    format!("{} {}", figure::column(figure.value, digits), figure.metric.base.entry().unit)
}

/// Words of a text; a number with its thousands apart stays one.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let figures = word.chars().take_while(|c| c.is_ascii_digit()).count();
        match out.last_mut() {
            Some(last) if figures == 3 && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => out.push(word.to_owned()),
        }
    }
    out
}

/// Columns in groups that each fit into a width; a group has one column at least.
fn groups(widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, width) in widths.iter().enumerate() {
        if at > start && used + width > room {
            groups.push(start..at);
            (start, used) = (at, 0);
        }
        used += width;
    }
    groups.push(start..widths.len());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_page_reads_like_the_result_page() {
        insta::assert_snapshot!(render(&fixture::page_with_a_loss(), 100, false, Extent::Whole));
    }

    #[test]
    fn every_verdict_is_told() {
        insta::assert_snapshot!(render(&fixture::every_verdict(), 80, false, Extent::Whole));
    }

    #[test]
    fn no_line_but_a_rerun_command_is_wider_than_the_terminal() {
        for width in [40, 60, 80, 100, 140] {
            for record in [fixture::page_with_a_loss(), fixture::every_verdict()] {
                for line in render(&record, width, false, Extent::Whole).lines() {
                    assert!(line.contains("rerun: ") || line.width() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_number_is_not_torn_apart() {
        assert_eq!(
            words("< 1 936 202.5 tok/s (8 of 12)"),
            ["<", "1 936 202.5", "tok/s", "(8", "of", "12)"]
        );
    }

    #[test]
    fn columns_wrap_into_groups() {
        assert_eq!(groups(&[10, 10, 10], 30).len(), 1);
        assert_eq!(groups(&[10, 10, 10], 29), [0..2, 2..3]);
        assert_eq!(groups(&[50, 10], 20), [0..1, 1..2]);
    }

    #[test]
    fn colour_only_when_asked_and_nothing_of_an_engine_either_way() {
        let mut record = fixture::every_verdict();
        record.header.suite.push_str(&fixture::nasty());
        record.header.cells[0].test.push_str(&fixture::nasty());
        record.cells[1].judgement.message = Some(fixture::nasty());
        let plain = render(&record, 80, false, Extent::Whole);
        assert!(plain.chars().all(|c| c == '\n' || !c.is_control()));
        let mut coloured = render(&record, 80, true, Extent::Whole);
        for code in ["1", "2", "32", "1;31", "33", "0"] {
            coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(coloured, plain);
    }
}
