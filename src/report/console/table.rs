//! The tables of a test on a terminal: matrices in as many groups of columns as the width asks for, and
//! lists.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::measure::TestKind;
use crate::report::figure::{self, Figure, Headline};
use crate::report::grid::{self, Block, Mark, Sheet, Tone};
use crate::report::{rounds, sanitise};

use super::{Page, Paint};

/// Cells of a test that are shown; beyond, those that need no eye are left out.
pub(super) const MOST_CELLS: usize = 2_000;

/// One cell of a table: its lines, the last one coloured by its tone.
pub(super) struct Face {
    pub(super) lines: Vec<String>,
    pub(super) mark: Option<Mark>,
}

/// One line of a list.
struct Row {
    name: String,
    figures: [String; 3],
    mark: Mark,
}

impl Page<'_> {
    pub(super) fn sheet(&self, out: &mut String, sheet: &Sheet) {
        let Headline { first, second } = sheet.headline;
        let unit = first.base.entry().unit;
        let what = match sheet.kind {
            TestKind::Decode | TestKind::Serve => format!("total {unit}, median TTFT"),
            TestKind::Prefill => format!("prompt {unit}, median TTFT"),
            TestKind::Command => {
                let blank = if unit.is_empty() { "" } else { " " };
                let second = second.map_or(String::new(), |second| format!(", {second}"));
                sanitise::line(&format!("{first}{blank}{unit}{second}"))
            }
            TestKind::Startup => "time to ready, KV capacity".to_owned(),
        };
        for block in &sheet.blocks {
            let axes = match (&block.row_axis, &block.column_axis) {
                (Some(row), Some(column)) => format!("rows are {row}, columns are {column}"),
                (Some(row), None) => format!("by {row}"),
                (None, _) => String::new(),
            };
            let launches =
                rounds::alike(self.record, block.cells.iter().flatten().flatten().copied());
            let often = launches.as_ref().map(|launches| format!("± over {launches}"));
            let often = often.filter(|_| block.column_axis.is_some()).unwrap_or_default();
            let parts = [
                sheet.test.as_str(),
                block.heading.as_str(),
                what.as_str(),
                axes.as_str(),
                often.as_str(),
            ];
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

    /// Value, TTFT, spread and mark under each other.
    fn matrix(&self, out: &mut String, shown: Headline, block: &Block) {
        let Headline { first, second } = shown;
        let digits = self.digits(block, first);
        let alike =
            rounds::alike(self.record, block.cells.iter().flatten().flatten().copied()).is_some();
        self.grid(out, block, |cell| self.face(cell, (first, digits), second, alike));
    }

    /// A table with the face of each cell, in as many groups of columns as the width asks for.
    pub(super) fn grid(&self, out: &mut String, block: &Block, face: impl Fn(usize) -> Face) {
        let hole = || Face { lines: vec![], mark: None };
        let faces: Vec<Vec<Face>> = block
            .cells
            .iter()
            .map(|row| row.iter().map(|cell| cell.map_or_else(hole, &face)).collect())
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
        cell: usize,
        (first, digits): (crate::measure::Metric, usize),
        second: Option<crate::measure::Metric>,
        alike: bool,
    ) -> Face {
        let (planned, outcome) = (&self.record.header.cells[cell], &self.record.cells[cell]);
        let mark = grid::mark(outcome);
        let mut lines = Vec::new();
        if figure::measurement(outcome).is_some() {
            let value = figure::one(planned, outcome, first);
            lines.push(value.map_or("—".into(), |f| figure::column(f.value, digits)));
            let below = second.and_then(|second| figure::one(planned, outcome, second));
            lines.extend(below.map(|f| latency(&f)));
        }
        let spread = if alike { rounds::short } else { rounds::spread };
        lines.extend(spread(self.record, cell, first));
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
                    sanitise::line(&format!("{number}{blank}{unit}"))
                });
                let below = second.and_then(|second| figure::one(planned, outcome, second));
                let below = below.map(|f| match sheet.kind {
                    TestKind::Prefill | TestKind::Decode | TestKind::Serve => {
                        format!("{} TTFT", latency(&f))
                    }
                    TestKind::Startup => f.text(),
                    TestKind::Command => sanitise::line(&format!("{} {}", f.metric, f.text())),
                });
                let spread = rounds::spread(self.record, *cell, first).unwrap_or_default();
                let figures = [value.unwrap_or_default(), below.unwrap_or_default(), spread];
                lines.push(Row { name: row.clone(), figures, mark: grid::mark(outcome) });
            }
        }
        let widest = |of: &dyn Fn(&Row) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let label = widest(&|row| row.name.width());
        let columns = [0, 1, 2].map(|at| widest(&|row| row.figures[at].width()));
        let marks = widest(&|row| row.mark.to_string().width());
        // Narrow terminals get narrow gaps, then the first figure alone.
        let needed = |gap: usize, shown: usize| {
            let figures = columns.iter().take(shown).filter(|width| **width > 0);
            2 + label + figures.map(|width| width + gap).sum::<usize>() + gap + marks
        };
        let fits = |(gap, shown): &(usize, usize)| needed(*gap, *shown) <= self.width;
        let (gap, shown) =
            [(3, 3), (1, 3), (1, 2), (1, 1)].into_iter().find(fits).unwrap_or((1, 0));
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
}

/// Milliseconds as a result page shows them: whole from 10 on.
fn latency(figure: &Figure) -> String {
    if !figure.metric.base.entry().latency {
        return sanitise::line(&figure.text());
    }
    let digits = usize::from(figure.value < 9.95);
    format!("{} {}", figure::column(figure.value, digits), figure.metric.base.entry().unit)
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

    #[test]
    fn columns_wrap_into_groups() {
        assert_eq!(groups(&[10, 10, 10], 30).len(), 1);
        assert_eq!(groups(&[10, 10, 10], 29), [0..2, 2..3]);
        assert_eq!(groups(&[50, 10], 20), [0..1, 1..2]);
    }
}
