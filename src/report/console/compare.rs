//! Variants that are compared, and other ratios, on a terminal: each cell's ratio with its interval, its
//! verdict and the smallest loss that it could have seen; the mean ratio of all.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::judge::Verdict;
use crate::report::count::inconclusive_fails;
use crate::report::grid::{Block, Tone};
use crate::report::ratio::{self, Ratio, Table};
use crate::report::{message, overall};

use super::table::{Face, MOST_CELLS};
use super::{Page, Paint};

impl Page<'_> {
    /// A table for each test and metric that has ratios.
    pub(super) fn ratios(&self, out: &mut String) {
        for table in ratio::tables(self.record) {
            for block in &table.blocks {
                let axes = match (&block.row_axis, &block.column_axis) {
                    (Some(row), Some(column)) => format!("rows are {row}, columns are {column}"),
                    (Some(row), None) => format!("by {row}"),
                    (None, _) => String::new(),
                };
                let title = table.title();
                let parts = [title.as_str(), block.heading.as_str(), axes.as_str()];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                out.push('\n');
                self.wrapped(out, "", &parts.join(" · "), Paint::Bold);
                let shown = block.cells.iter().flatten().flatten().count();
                if shown > MOST_CELLS {
                    let _ = writeln!(out, "  {shown} cells: too many for a table here");
                } else if block.column_axis.is_some() {
                    self.grid(out, block, |cell| self.ratio_face(&table, cell));
                } else {
                    self.ratio_list(out, &table, block);
                }
            }
        }
    }

    fn ratio_face(&self, table: &Table, cell: usize) -> Face {
        let Some(ratio) = table.ratio(self.record, cell) else {
            return Face { lines: vec![], mark: None };
        };
        let mark = ratio.mark();
        let last = match ratio.sees() {
            Some(sees) => format!("{} {sees}", mark.sign),
            None => mark.to_string(),
        };
        let lines = [ratio.value(), ratio.interval(), Some(last)];
        Face { lines: lines.into_iter().flatten().collect(), mark: Some(mark) }
    }

    fn ratio_list(&self, out: &mut String, table: &Table, block: &Block) {
        let mut rows: Vec<(String, String, Ratio<'_>)> = Vec::new();
        for (row, cells) in block.rows.iter().zip(&block.cells) {
            for cell in cells.iter().flatten() {
                let Some(ratio) = table.ratio(self.record, *cell) else { continue };
                let parts = [ratio.value(), ratio.interval()];
                let figure: Vec<String> = parts.into_iter().flatten().collect();
                rows.push((row.clone(), figure.join(" "), ratio));
            }
        }
        let widest = |of: &dyn Fn(&(String, String, Ratio<'_>)) -> usize| {
            rows.iter().map(of).max().unwrap_or(0)
        };
        let (label, figures) = (widest(&|row| row.0.width()), widest(&|row| row.1.width()));
        for (name, figure, ratio) in &rows {
            let mark = ratio.mark();
            let told = match ratio.sees() {
                Some(sees) => format!("{mark}, {sees}"),
                None => mark.to_string(),
            };
            let text = format!(
                "  {}{name}  {}{figure}",
                " ".repeat(label - name.width()),
                " ".repeat(figures - figure.width())
            );
            // A narrow terminal has the verdict below its figures.
            if text.width() + 2 + told.width() <= self.width {
                let _ = writeln!(out, "{text}  {}", self.paint(Paint::Tone(mark.tone), &told));
            } else {
                self.wrapped(out, "  ", &format!("{name} {figure}"), Paint::Bold);
                self.wrapped(out, "    ", &told, Paint::Tone(mark.tone));
            }
        }
    }

    /// The mean ratio: what it comes to, and the pairs that it is made of.
    pub(super) fn overall(&self, out: &mut String) {
        let Some(overall) = overall::of(self.record) else { return };
        let (mark, policy) = (overall.mark(), self.record.header.policy.inconclusive);
        let judgement = overall.judgement();
        // What fails is told with everything else that does.
        let tone = match judgement.verdict {
            Verdict::Inconclusive if inconclusive_fails(policy, judgement) => Tone::Bad,
            Verdict::Pass
            | Verdict::Fail
            | Verdict::Error
            | Verdict::Inconclusive
            | Verdict::Measured
            | Verdict::Skip
            | Verdict::Xfail
            | Verdict::Xpass => mark.tone,
        };
        out.push('\n');
        self.wrapped(out, "", &format!("{} · all cells", overall.heading()), Paint::Bold);
        self.wrapped(out, "  ", &format!("{mark}: {}", overall.behind_mark()), Paint::Tone(tone));
        let pairs = overall.pairs_words();
        if !pairs.is_empty() {
            self.wrapped(out, "  ", &pairs, Paint::Dim);
        }
    }

    /// A mean ratio that needs somebody's eye, with what to run to see it again.
    pub(super) fn broken_overall(&self, out: &mut String) {
        let Some(overall) = overall::of(self.record) else { return };
        let (mark, judgement) = (overall.mark(), overall.judgement());
        let stands = match judgement.verdict {
            Verdict::Fail => true,
            Verdict::Inconclusive => {
                inconclusive_fails(self.record.header.policy.inconclusive, judgement)
            }
            // Why something did not run is told once for all of it.
            Verdict::Error => !overall.is_pending(),
            Verdict::Pass | Verdict::Measured | Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {
                false
            }
        };
        if !stands {
            return;
        }
        let head = format!("{} {}, {}", mark.sign, overall::NAME, overall.heading());
        out.push('\n');
        self.wrapped(out, "", &head, Paint::Tone(mark.tone));
        self.wrapped(out, "    ", &overall.said(), Paint::Bold);
        for warning in &judgement.warnings {
            self.wrapped(out, "    ", &message::one_line(warning), Paint::Dim);
        }
        let _ = writeln!(out, "    rerun: {}", message::rerun_all(self.record));
    }
}
