//! The closing page on a terminal: what ran, a table for each test that reads like a result page,
//! failures with their messages and rerun commands, warnings, the verdict.
//!
//! `table` has the tables, `compare` what is said of variants that are compared. It decides arrangement and
//! colour only; the cells' places and marks come from `grid`, the words
//! from `message`. Nothing that an engine printed reaches the terminal unwashed.

use std::collections::HashMap;
use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::judge::Verdict;
use crate::record::RunRecord;

use super::count::{Counts, inconclusive_fails, plural};
use super::grid::{self, Mark, Tone};
use super::message;
use super::overall;
use super::part;
use super::screen;
use super::worst::{self, Need};

mod compare;
mod table;

pub use super::count::last_line;

/// Lines of a failed launch, and reasons why cells have not run, that are shown; the files have all.
const MOST_TOLD: usize = 40;
/// Cells that are shown in full, the worst; warnings of one kind count as one.
const MOST_IN_FULL: usize = 10;
/// Cells that are named beyond those.
const MOST_NAMED: usize = 20;

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
    if let Some(part) = part::told(record) {
        page.wrapped(&mut out, "", &part, Paint::Dim);
    }
    match extent {
        Extent::Whole => {
            for sheet in grid::sheets(record) {
                page.sheet(&mut out, &sheet);
            }
            page.ratios(&mut out);
            page.overall(&mut out);
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
pub(super) enum Paint {
    /// A head.
    Bold,
    /// What is there to be looked up.
    Dim,
    /// A mark.
    Tone(Tone),
}

impl Paint {
    /// The text, painted if it is to be.
    pub(super) fn on(self, text: &str, color: bool) -> String {
        let code = match self {
            Paint::Bold => "1",
            Paint::Dim | Paint::Tone(Tone::Quiet) => "2",
            Paint::Tone(Tone::Good) => "32",
            Paint::Tone(Tone::Bad) => "1;31",
            Paint::Tone(Tone::Doubtful) => "33",
        };
        if color && !text.trim().is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

impl Page<'_> {
    fn paint(&self, paint: Paint, text: &str) -> String {
        paint.on(text, self.color)
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
        self.broken_overall(out);
        let cells: Vec<usize> = worst::cells(record)
            .into_iter()
            // Why a cell did not run is told once for all of them.
            .filter(|(_, need)| need.fails() && *need != Need::NotRun)
            .map(|(cell, _)| cell)
            .collect();
        // Where one more would be left out, it is shown.
        let shown = if cells.len() == MOST_IN_FULL + 1 { cells.len() } else { MOST_IN_FULL };
        let (shown, rest) = cells.split_at(shown.min(cells.len()));
        for cell in shown {
            self.trouble(out, *cell);
        }
        self.rest(out, rest);
        let not_run = message::not_run(record);
        if !not_run.is_empty() {
            out.push('\n');
        }
        for (who, reason) in not_run.iter().take(MOST_TOLD) {
            self.wrapped(out, "", &format!("{who}: {reason}"), Paint::Bold);
        }
    }

    /// A cell that failed or could not be judged, in full.
    fn trouble(&self, out: &mut String, cell: usize) {
        let (planned, outcome) = (&self.record.header.cells[cell], &self.record.cells[cell]);
        let mark = grid::mark(outcome);
        let head = format!("{} {}", mark.sign, message::name(planned));
        out.push('\n');
        self.wrapped(out, "", &head, Paint::Tone(mark.tone));
        let said = message::of_cell(outcome).unwrap_or_default();
        self.wrapped(out, "    ", &said, Paint::Bold);
        let details = message::details(planned, outcome);
        for line in details.iter().take(MOST_TOLD) {
            self.wrapped(out, "    ", line, Paint::Dim);
        }
        if let Some(left @ 1..) = details.len().checked_sub(MOST_TOLD) {
            let _ = writeln!(out, "    … and {}, see report.html", plural(left, "line"));
        }
        // Not wrapped: it is there to be copied.
        let _ = writeln!(out, "    rerun: {}", message::rerun(self.record, planned));
    }

    /// Those that are not shown in full: the next ones by name and message, the others counted.
    fn rest(&self, out: &mut String, rest: &[usize]) {
        if rest.is_empty() {
            return;
        }
        let _ = writeln!(out, "\n{}:", plural(rest.len(), "more cell"));
        for cell in rest.iter().take(MOST_NAMED) {
            let (planned, outcome) = (&self.record.header.cells[*cell], &self.record.cells[*cell]);
            let mark = grid::mark(outcome);
            let said = message::of_cell(outcome).unwrap_or_default();
            // The beginning of a message has the figure and its limit.
            let line = format!("{}: {said}", message::name(planned));
            let line = screen::cut(&line, self.width.saturating_sub(4));
            let sign = self.paint(Paint::Tone(mark.tone), &mark.sign.to_string());
            let _ = writeln!(out, "  {sign} {line}");
        }
        let mut counted: Vec<(Mark, usize)> = Vec::new();
        for cell in rest.iter().skip(MOST_NAMED) {
            let mark = grid::mark(&self.record.cells[*cell]);
            match counted.iter_mut().find(|(known, _)| known.word == mark.word) {
                Some((_, n)) => *n += 1,
                None => counted.push((mark, 1)),
            }
        }
        if !counted.is_empty() {
            let counted: Vec<String> =
                counted.iter().map(|(mark, n)| format!("{n} × {}", mark.word)).collect();
            let _ = writeln!(out, "  … and {}: see report.html", counted.join(", "));
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
        if let Some(overall) = overall::of(self.record) {
            let judgement = overall.judgement();
            let fails = inconclusive_fails(self.record.header.policy.inconclusive, judgement);
            if judgement.verdict == Verdict::Inconclusive && !fails {
                warnings.push(format!("{}: inconclusive: {}", overall::NAME, overall.said()));
            }
        }
        if warnings.is_empty() {
            return;
        }
        let head = plural(warnings.len(), "warning");
        let _ = writeln!(out, "\n{}", self.paint(Paint::Tone(Tone::Doubtful), &head));
        let alike = alike(&warnings);
        for (warning, n) in alike.iter().take(MOST_IN_FULL) {
            let more = match n {
                1 => String::new(),
                n => format!(" (and {} like it)", n - 1),
            };
            self.wrapped(out, "  – ", &format!("{warning}{more}"), Paint::Dim);
        }
        let left: usize = alike.iter().skip(MOST_IN_FULL).map(|(_, n)| n).sum();
        if left > 0 {
            let _ = writeln!(out, "  … and {left} more, see report.html");
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
    }) || overall::of(record).is_some_and(|it| {
        it.judgement().verdict == Verdict::Inconclusive
            && inconclusive_fails(policy, it.judgement())
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

/// Warnings, those that differ in their numbers alone as one: the first of them, and how many there are.
fn alike(warnings: &[String]) -> Vec<(&str, usize)> {
    let shape = |text: &str| {
        let mut shape = String::with_capacity(text.len());
        for c in text.chars() {
            match c.is_ascii_digit() {
                // However many digits, a point and the parts of 1 000.
                true if shape.ends_with(['0', '.']) => {}
                true => shape.push('0'),
                false => shape.push(c),
            }
        }
        shape.replace("0 0", "0").replace("0.0", "0").replace("0.", "0")
    };
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for warning in warnings {
        let at = *known.entry(shape(warning)).or_insert_with(|| {
            found.push((warning, 0));
            found.len() - 1
        });
        found[at].1 += 1;
    }
    found
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
    fn what_was_suspect_stands_at_the_cell_that_fails() {
        let page = render(&fixture::throttled(), 80, false, Extent::Whole);
        let trouble = page.split("\n✗ decode").nth(1).unwrap().split("rerun:").next().unwrap();
        let trouble = trouble.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = "hardware was suspect: GPU 3 throttled by heat in 62 % of the time";
        assert_eq!(trouble.matches(said).count(), 1, "{page}");
    }

    #[test]
    fn variants_are_compared() {
        insta::assert_snapshot!(render(&fixture::compare(), 100, false, Extent::Whole));
    }

    #[test]
    fn launches_that_lack_are_told() {
        insta::assert_snapshot!(render(&fixture::compare_cut_short(), 100, false, Extent::Whole));
    }

    #[test]
    fn no_line_but_a_rerun_command_is_wider_than_the_terminal() {
        for width in [40, 60, 80, 100, 140] {
            let compared = [fixture::compare(), fixture::compare_cut_short()];
            let others = [fixture::page_with_a_loss(), fixture::every_verdict()];
            for record in compared.into_iter().chain(others) {
                for line in render(&record, width, false, Extent::Whole).lines() {
                    assert!(line.contains("rerun: ") || line.width() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn of_many_failures_the_worst_are_told_and_the_rest_counted() {
        let mut record = fixture::page_with_a_loss();
        let bad = record.cells.iter().position(|it| it.judgement.verdict == Verdict::Fail).unwrap();
        let (planned, outcome) = (record.header.cells[bad].clone(), record.cells[bad].clone());
        for n in 0..100 {
            let mut planned = planned.clone();
            planned.axes[1].1 = crate::suite::model::AxisValue::Text(format!("{n}"));
            let mut outcome = outcome.clone();
            // The last one lost most.
            let figure = outcome.judgement.bounds[0].estimate.as_mut().unwrap();
            figure.value *= 1.0 - f64::from(n) / 1e3;
            let lost = format!("output-throughput {:.1} tok/s is too slow", figure.value);
            outcome.judgement.message = Some(lost);
            record.header.cells.push(planned);
            record.cells.push(outcome);
        }
        let page = render(&record, 80, false, Extent::Troubles);
        let lines: Vec<&str> = page.lines().collect();
        let first = lines.iter().find(|line| line.starts_with('✗'));
        assert_eq!(first, Some(&"✗ decode context=8K concurrency=99"));
        assert_eq!(page.matches("rerun: ").count(), MOST_IN_FULL);
        assert!(page.contains("\n91 more cells:\n"), "{page}");
        assert!(page.contains("  … and 71 × fail: see report.html\n"), "{page}");
        assert!(lines.len() < 100, "{page}");
    }

    #[test]
    fn warnings_that_differ_in_numbers_alone_are_one() {
        let lag =
            |cell: u32, ms: &str| format!("decode concurrency={cell}: lag {ms}ms, 5ms allowed");
        let warnings = [lag(1, "12"), lag(16, "1 012.5"), lag(2, "3.25"), "decode: other".into()];
        assert_eq!(alike(&warnings), [(warnings[0].as_str(), 3), ("decode: other", 1)]);
    }

    #[test]
    fn a_number_is_not_torn_apart() {
        assert_eq!(
            words("< 1 936 202.5 tok/s (8 of 12)"),
            ["<", "1 936 202.5", "tok/s", "(8", "of", "12)"]
        );
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
