//! `summary.md`: the verdict, the counts, what failed and why, the matrix of each test, details.
//!
//! What failed comes first, so that a reader who sees only the beginning sees that, and cutting
//! takes the end. Everything foreign is escaped.

use std::fmt::Write;

use crate::judge::Verdict;
use crate::record::RunRecord;
use crate::record::run_record::CellState;

use super::case::verdict_name;
use super::console::verdict_word;
use super::count::{inconclusive_fails, last_line};
use super::engine;
use super::figure::{self, Headline};
use super::grid::{self, Block, Sheet};
use super::hardware;
use super::message;
use super::part;
use super::rounds;
use super::sanitise::{line, lines, markdown};

pub mod comment;
mod compare;

/// A job summary on GitHub is dropped as a whole beyond 1 MiB.
const MOST: usize = 1_000_000;
/// Bytes that are kept for the words that say that something is left out.
const LAST_WORDS: usize = 200;

/// Renders a record as Markdown.
pub fn render(record: &RunRecord) -> String {
    within(record, MOST)
}

/// As [`render`], in at most `most` bytes.
pub fn within(record: &RunRecord, most: usize) -> String {
    let most = most.saturating_sub(LAST_WORDS);
    let mut out = Budget { text: String::new(), most, dropped: 0 };
    let (word, _) = verdict_word(record);
    out.push(&format!("# {word}: {}\n\n", markdown(&record.header.suite)));
    out.push(&format!("{}\n\n", markdown(&last_line(record))));
    out.push(&format!("{}\n", markdown(&message::title(record))));
    if let Some(part) = part::told(record) {
        out.push(&format!("\n{}\n", markdown(&part)));
    }
    launches(record, &mut out);
    let not_run = |at: usize| matches!(record.cells[at].state, CellState::NotRun { .. });
    let broken = compare::broken(record);
    let heading = "What needs an eye";
    cells(record, &mut out, (heading, broken.as_deref()), |record, at| {
        needs_an_eye(record, at) && !not_run(at)
    });
    // One line for all that a failed launch or an early end took with it.
    let reasons = message::not_run(record);
    if !reasons.is_empty() {
        out.push("\n## Not run\n\n");
    }
    for (who, reason) in reasons {
        out.push(&format!("- {who}: {}\n", markdown(&reason)));
    }
    warnings(record, &mut out);
    compare::overall(record, &mut out);
    compare::ratios(record, &mut out);
    for sheet in grid::sheets(record) {
        matrix(record, &sheet, 2, &mut out);
    }
    facts(record, 2, &mut out);
    cells(record, &mut out, ("Other cells", None), |record, at| {
        !needs_an_eye(record, at) && record.cells[at].judgement.verdict != Verdict::Pass
    });
    details(record, &mut out);
    if out.dropped > 0 {
        let _ = write!(out.text, "\n… {} bytes dropped, record.json has all\n", out.dropped);
    }
    out.text
}

/// Markdown that stays under its cap: pieces that don't fit any more are counted and left out.
struct Budget {
    text: String,
    most: usize,
    dropped: usize,
}

impl Budget {
    fn push(&mut self, piece: &str) {
        if self.dropped == 0 && self.text.len() + piece.len() <= self.most {
            self.text.push_str(piece);
        } else {
            self.dropped += piece.len();
        }
    }
}

fn needs_an_eye(record: &RunRecord, at: usize) -> bool {
    let judgement = &record.cells[at].judgement;
    match judgement.verdict {
        Verdict::Fail | Verdict::Error => true,
        Verdict::Inconclusive => inconclusive_fails(record.header.policy.inconclusive, judgement),
        Verdict::Pass | Verdict::Measured | Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {
            false
        }
    }
}

fn launches(record: &RunRecord, out: &mut Budget) {
    for (planned, launch) in record.header.launches.iter().zip(&record.launches) {
        let Some(failure) = &launch.failure else { continue };
        out.push(&format!("\n## Launch {} failed\n\n", markdown(&planned.name)));
        out.push(&format!("{}\n\n", markdown(&message::one_line(&failure.message))));
        let told = message::of_launch(failure, launch.log.as_deref()).join("\n");
        out.push(&fenced(&super::sanitise::cut(&told, 16 * 1024)));
    }
}

fn cells(
    record: &RunRecord,
    out: &mut Budget,
    (heading, first): (&str, Option<&str>),
    wanted: impl Fn(&RunRecord, usize) -> bool,
) {
    let chosen: Vec<usize> = (0..record.cells.len()).filter(|at| wanted(record, *at)).collect();
    if chosen.is_empty() && first.is_none() {
        return;
    }
    out.push(&format!("\n## {heading}\n\n"));
    out.push(first.unwrap_or_default());
    for at in chosen {
        let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
        let said = message::of_cell(outcome).unwrap_or_default();
        let mut piece = format!(
            "- **{}** {}: {}\n",
            markdown(&message::name(planned)),
            verdict_name(outcome.judgement.verdict),
            markdown(&said)
        );
        for detail in message::details(planned, outcome) {
            let _ = writeln!(piece, "  - {}", markdown(&detail));
        }
        if needs_an_eye(record, at) {
            let place = message::place(planned, outcome).to_string();
            let _ = writeln!(piece, "  - at {}", markdown(&place));
            let _ = writeln!(piece, "  - rerun: {}", code(&message::rerun(record, planned)));
        }
        out.push(&piece);
    }
}

fn warnings(record: &RunRecord, out: &mut Budget) {
    let warnings = message::warnings(record);
    if warnings.is_empty() {
        return;
    }
    out.push("\n## Warnings\n\n");
    for warning in warnings {
        out.push(&format!("- {}\n", markdown(&warning)));
    }
}

/// The matrix of a test, its heading of that level.
fn matrix(record: &RunRecord, sheet: &Sheet, level: usize, out: &mut Budget) {
    out.push(&format!("\n{} {}\n", heading(level), markdown(&sheet.test)));
    let Headline { first, second } = sheet.headline;
    let unit = match first.base.entry().unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let below = second.map_or(String::new(), |second| format!(", {second} below"));
    let shown = markdown(&format!("{first}{unit}{below}"));
    for block in &sheet.blocks {
        if !block.heading.is_empty() {
            out.push(&format!("\n{} {}\n", heading(level + 1), markdown(&block.heading)));
        }
        out.push(&format!("\n{shown}\n\n{}", table(record, block, sheet)));
    }
}

fn table(record: &RunRecord, block: &Block, sheet: &Sheet) -> String {
    let Headline { first, second } = sheet.headline;
    let axis = block.row_axis.as_deref().unwrap_or("");
    let corner = match &block.column_axis {
        Some(column) => format!("{axis} \\ {column}"),
        None => axis.to_owned(),
    };
    let mut out = format!("| {} |", markdown(&corner));
    for column in &block.columns {
        let name = if block.column_axis.is_some() { column.clone() } else { first.to_string() };
        let _ = write!(out, " {} |", markdown(&name));
    }
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(block.columns.len()));
    for (row, cells) in block.rows.iter().zip(&block.cells) {
        let _ = write!(out, "| {} |", markdown(row));
        for cell in cells {
            let text = cell.map(|at| {
                let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
                let shown = std::iter::once(first).chain(second);
                let figures = shown.filter_map(|metric| figure::one(planned, outcome, metric));
                let mut parts: Vec<String> = Vec::new();
                if figure::measurement(outcome).is_some() {
                    parts.extend(figures.map(|figure| markdown(&figure.text())));
                }
                parts.extend(rounds::spread(record, at, first).map(|spread| markdown(&spread)));
                let mark = grid::mark(outcome).to_string();
                let bad = needs_an_eye(record, at);
                parts.push(if bad { format!("**{mark}**") } else { mark });
                parts.join("<br>")
            });
            let _ = write!(out, " {} |", text.unwrap_or_default());
        }
        out.push('\n');
    }
    out
}

/// What ran where, its heading of that level.
fn facts(record: &RunRecord, level: usize, out: &mut Budget) {
    let header = &record.header;
    let mut rows: Vec<(&str, String)> = vec![
        ("suite", header.path.clone()),
        ("started", header.started.clone()),
        ("run", header.run_id.clone()),
        ("tokgate", header.tokgate.clone()),
    ];
    // Shards have their own, told below.
    let whole = header.merged.is_none();
    if whole {
        rows.insert(3, ("seed", header.seed.to_string()));
    }
    if let Some(last) = record.resumptions.last() {
        let often = match record.resumptions.len() {
            1 => String::new(),
            n => format!("{n} times, last "),
        };
        rows.push(("resumed", format!("{often}{}", last.started)));
    }
    let machine = &header.machine;
    if whole && !machine.hostname.is_empty() {
        rows.push(("machine", format!("{}, {} {}", machine.hostname, machine.os, machine.kernel)));
    }
    if !machine.cpu.is_empty() {
        rows.push(("CPU", format!("{}, {} cores", machine.cpu, machine.cores)));
    }
    rows.extend(machine.gpus_in_words().map(|gpus| ("GPU", gpus)));
    rows.extend(machine.gpu_note.iter().map(|note| ("GPU", note.clone())));
    rows.extend(machine.driver.iter().map(|driver| ("driver", driver.clone())));
    out.push(&format!("\n{} Run\n\n| | |\n|---|---|\n", heading(level)));
    let rows = rows.into_iter().map(|(name, value)| (name.to_owned(), value));
    for (name, value) in rows.chain(part::shards(record)) {
        out.push(&format!("| {name} | {} |\n", markdown(&value)));
    }
    for (at, (planned, launch)) in header.launches.iter().zip(&record.launches).enumerate() {
        out.push(&format!("\n{} Launch {}\n\n", heading(level + 1), markdown(&planned.name)));
        if !launch.command.is_empty() {
            out.push(&fenced(&line(&shell_words::join(&launch.command))));
            out.push("\n");
        }
        let facts = launch.facts.as_ref();
        let said = [
            facts.map(|facts| format!("model {}", facts.model)),
            facts.and_then(|f| f.version.as_ref()).map(|version| format!("version {version}")),
            facts.and_then(|f| f.kv_capacity).map(|n| format!("KV capacity {n} tokens")),
            facts.and_then(|f| f.max_model_len).map(|n| format!("longest sequence {n} tokens")),
            launch.ready_time.map(|seconds| format!("ready after {seconds:.1} s")),
            launch.log.as_ref().map(|log| format!("log {log}")),
        ];
        for fact in said.into_iter().flatten().chain(message::starts(record, at)) {
            out.push(&format!("- {}\n", markdown(&fact)));
        }
    }
}

fn heading(level: usize) -> String {
    "#".repeat(level)
}

/// All figures of all measured cells.
fn details(record: &RunRecord, out: &mut Budget) {
    out.push("\n<details><summary>All figures</summary>\n\n");
    let opened = out.dropped == 0;
    out.push("| cell | verdict | figures |\n|---|---|---|\n");
    for (at, (planned, outcome)) in record.header.cells.iter().zip(&record.cells).enumerate() {
        let figures: Vec<String> = figure::all(planned, outcome)
            .iter()
            .map(|figure| markdown(&format!("{} {}", figure.metric, figure.text())))
            .chain(engine::words(outcome).map(|words| format!("engine: {words}")))
            .chain(hardware::words(outcome).map(|words| markdown(&format!("hardware: {words}"))))
            .chain(rounds::lines(record, at).iter().map(|line| markdown(line)))
            .collect();
        out.push(&format!(
            "| {} | {} | {} |\n",
            markdown(&message::name(planned)),
            verdict_name(outcome.judgement.verdict),
            figures.join("<br>")
        ));
    }
    // What was opened is closed, whatever of it was dropped.
    if opened {
        out.text.push_str("\n</details>\n");
    }
}

/// A block of code that no content can close.
fn fenced(text: &str) -> String {
    let text = lines(text);
    let fence = "`".repeat(longest_run(&text).max(2) + 1);
    format!("{fence}text\n{text}\n{fence}\n")
}

/// Inline code that no content can close.
fn code(text: &str) -> String {
    let text = line(text);
    let ticks = "`".repeat(longest_run(&text) + 1);
    let gap = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{gap}{text}{gap}{ticks}")
}

/// Length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_summary_has_what_failed_first() {
        let text = render(&fixture::every_verdict());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn variants_are_compared() {
        insta::assert_snapshot!(render(&fixture::compare()));
    }

    #[test]
    fn what_was_seen_of_the_hardware_stands_with_the_figures() {
        let text = render(&fixture::throttled());
        let said = "hardware was suspect: GPU 3 throttled by heat in 62 % of the time\n";
        let first = text.split("\n## Warnings").next().unwrap();
        assert_eq!(first.matches(said).count(), 1, "{first}");
        assert!(text.contains("<br>hardware: 8 GPUs · 5 000 W · "), "{text}");
    }

    #[test]
    fn launches_that_lack_are_told() {
        let text = render(&fixture::compare_cut_short());
        assert!(text.contains("- 6 cells: not run: launch new failed in its launch 2 of 4; 1 of 4 launches measured\n"), "{text}");
        assert!(
            text.contains("- launch 1 of 4: ready after 1m00s, log engine-new.0.log\n"),
            "{text}"
        );
        assert!(
            text.contains("- launch 2 of 4: FAILED: exited with status 1, log engine-new.1.log\n")
        );
        assert!(text.contains("1 of 4 launches<br>**· in part**"), "{text}");
    }

    #[test]
    fn the_matrix_is_a_table() {
        let text = render(&fixture::page_with_a_loss());
        assert!(text.starts_with("# FAILED: inkling-small-h200x8\n"), "{text}");
        let row =
            text.lines().find(|line| line.starts_with("| 8K | 135.5 tok/s<br>50 ms<br>✓ pass |"));
        assert!(row.is_some_and(|row| row.ends_with("| 6 871 tok/s<br>1 044 ms<br>**✗ fail** |")));
    }

    #[test]
    fn nothing_foreign_is_markup() {
        let mut record = fixture::every_verdict();
        record.launches[1].failure.as_mut().unwrap().log_tail = vec!["```".into(), "# big".into()];
        record.cells[1].judgement.message = Some("a | b ``` <script>\n# head".into());
        record.header.suite = "<b>x</b>".into();
        let text = render(&record);
        assert!(text.contains("````text\n"), "a fence longer than any in the log");
        assert!(text.contains("a \\| b \\`\\`\\` &lt;script&gt; \\# head"));
        assert!(!text.contains("<b>") && !text.contains("<script>"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert_eq!(code("a`b"), "``a`b``");
    }

    #[test]
    fn a_summary_stays_under_what_its_readers_take() {
        let mut record = fixture::page();
        let (planned, outcome) = (record.header.cells[20].clone(), record.cells[20].clone());
        record.header.cells.extend(std::iter::repeat_n(planned, 9_000));
        record.cells.extend(std::iter::repeat_n(outcome, 9_000));
        let text = render(&record);
        assert!(text.len() <= MOST && text.contains("bytes dropped"), "{}", text.len());
    }
}
