//! A run as a comment on a change: the verdict, a row for each failing cell, the worst first, the rest folded.
//!
//! It is short enough for GitHub and GitLab, and begins with a mark by which whoever posts it finds the one that it
//! posted before. Nothing in it notifies anybody or refers to another change.

use std::fmt::Write;

use crate::judge::{BoundVerdict, Estimate, Method, Side};
use crate::record::RunRecord;
use crate::record::run_record::{BoundRecord, CellOutcome, Judgement, PlannedCellRecord};
use crate::record::wording::{apart, number, share, shares};
use crate::report::console::verdict_word;
use crate::report::count::last_line;
use crate::report::grid::{self, Mark};
use crate::report::sanitise::{cut, line, markdown};
use crate::report::worst::{self, Which};
use crate::report::{message, overall};

use super::{Budget, LAST_WORDS, code, facts, matrix};

/// GitHub takes 65 536 characters of a comment, GitLab a million.
const MOST: usize = 60_000;
/// Rows of the table: who wants more opens the report.
const ROWS: usize = 20;
/// Bytes of what is said in a row; all of it stands below.
const WORDS: usize = 160;

/// Renders a record as a comment.
pub fn render(record: &RunRecord) -> String {
    let mut out = Budget { text: String::new(), most: MOST - LAST_WORDS, dropped: 0 };
    let (word, _) = verdict_word(record);
    out.push(&format!("{}\n", mark(&record.header.suite)));
    out.push(&format!("### {word}: {}\n\n", markdown(&record.header.suite)));
    out.push(&format!("{}\n\n", markdown(&last_line(record))));
    out.push(&format!("{}\n", markdown(&message::title(record))));
    launches(record, &mut out);
    let all = worst::cases(record);
    let ran: Vec<Which> =
        all.into_iter().filter(|(_, need)| *need != worst::Need::NotRun).map(|it| it.0).collect();
    table(record, &ran, &mut out);
    for (who, reason) in message::not_run(record) {
        out.push(&format!("\n{who}: {}\n", markdown(&reason)));
    }
    why(record, &ran, &mut out);
    folded("Everything measured", &mut out, |out| {
        for sheet in grid::sheets(record) {
            matrix(record, &sheet, 4, out);
        }
    });
    folded("The run", &mut out, |out| facts(record, 4, out));
    if out.dropped > 0 {
        out.text.push_str("\n… the rest is in report.html\n");
    }
    out.text
}

/// The mark of a suite's comment, which readers don't see.
pub fn mark(suite: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = suite.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    format!("<!-- tokgate:{name} -->")
}

/// A section that opens at a click; what of it does not fit is left out, and the section closed.
fn folded(title: &str, out: &mut Budget, fill: impl FnOnce(&mut Budget)) {
    let before = out.text.len();
    out.push(&format!("\n<details><summary>{title}</summary>\n"));
    if out.text.len() == before {
        return;
    }
    let opened = out.text.len();
    fill(out);
    if out.text.len() == opened {
        out.text.truncate(before);
    } else {
        out.text.push_str("\n</details>\n");
    }
}

fn launches(record: &RunRecord, out: &mut Budget) {
    for (planned, launch) in record.header.launches.iter().zip(&record.launches) {
        let Some(failure) = &launch.failure else { continue };
        let said = markdown(&message::one_line(&failure.message));
        out.push(&format!("\n**Launch {} failed**: {said}\n", markdown(&planned.name)));
    }
}

fn table(record: &RunRecord, ran: &[Which], out: &mut Budget) {
    if ran.is_empty() {
        return;
    }
    out.push("\n| | cell | asked | measured | of target | how sure |\n");
    out.push("|---|---|---|---:|---:|---|\n");
    for which in &ran[..ran.len().min(ROWS)] {
        let row = match which {
            Which::Cell(cell) => of_cell(&record.header.cells[*cell], &record.cells[*cell]),
            Which::MeanRatio => of_mean_ratio(record),
        };
        out.push(&format!("| {} |\n", row.join(" | ")));
    }
    if ran.len() > ROWS {
        out.push(&format!("\n… and {} more\n", ran.len() - ROWS));
    }
}

/// Mark, cell, what is asked, what there is, its share of what would be no loss, how sure that is.
fn of_cell(planned: &PlannedCellRecord, outcome: &CellOutcome) -> [String; 6] {
    let (mark, name) = (grid::mark(outcome), markdown(&message::name(planned)));
    let decided = outcome.judgement.decided_by.and_then(|at| {
        let record = planned.bounds.get(at)?;
        let judged = outcome.judgement.bounds.get(at)?;
        Some((record, record.bound?, judged.estimate?, judged.verdict))
    });
    let Some((record, bound, estimate, verdict)) = decided else {
        let said = message::of_cell(outcome).unwrap_or_default();
        let said = markdown(&line(&cut(&said, WORDS)));
        return [bold(mark), name, said, String::new(), String::new(), String::new()];
    };
    let sign = match bound.side {
        Side::Min => '≥',
        Side::Max => '≤',
    };
    let (value, limit) = told(record, &estimate, bound.limit);
    let whose = record
        .relative
        .as_ref()
        .map(|relative| relative.variant.as_ref().map_or("the baseline", |variant| &variant.name));
    let of = whose.map(|whose| format!(" of {whose}")).unwrap_or_default();
    let asked = format!("{} {sign} {limit}{of}", record.metric);
    let share = if bound.target == 0.0 { f64::NAN } else { estimate.value / bound.target };
    [
        bold(mark),
        name,
        markdown(&asked),
        markdown(&value),
        percent(share),
        markdown(&sure(verdict, &estimate, record.relative.is_some())),
    ]
}

/// The value with its unit, and the limit, with digits enough to tell them apart.
fn told(record: &BoundRecord, estimate: &Estimate, limit: f64) -> (String, String) {
    if record.relative.is_some() {
        return shares(estimate.value, limit);
    }
    let (value, limit) = apart(estimate.value, limit);
    match record.metric.base.entry().unit {
        "" => (value, limit),
        unit => (format!("{value} {unit}"), limit),
    }
}

fn of_mean_ratio(record: &RunRecord) -> [String; 6] {
    let Some(overall) = overall::of(record) else { return Default::default() };
    let (compare, judgement) = (overall.compare, overall.judgement());
    let asked = compare
        .min_mean_ratio
        .map(|least| format!("≥ {} of {}", shares(least, least).1, compare.baseline));
    let estimate = overall.outcome.estimate;
    let verdict = mean_verdict(judgement);
    [
        bold(overall.mark()),
        markdown(&format!("{} {}", overall::NAME, overall.heading())),
        markdown(&asked.unwrap_or_default()),
        estimate.map(|it| share(it.value)).unwrap_or_default(),
        estimate.map(|it| percent(it.value)).unwrap_or_default(),
        estimate.map(|it| markdown(&sure(verdict, &it, true))).unwrap_or_default(),
    ]
}

fn mean_verdict(judgement: &Judgement) -> BoundVerdict {
    judgement.bounds.first().map_or(BoundVerdict::NoData, |judged| judged.verdict)
}

/// Whether noise can explain it, with the interval.
fn sure(verdict: BoundVerdict, estimate: &Estimate, is_ratio: bool) -> String {
    let word = match (verdict, estimate.method) {
        (BoundVerdict::Fail, Method::Point | Method::Exact) => "by its value",
        (BoundVerdict::Fail, _) => "sure",
        (BoundVerdict::Inconclusive, _) => "may be noise",
        (BoundVerdict::Clear | BoundVerdict::Close | BoundVerdict::NoData, _) => "",
    };
    let print = |value: f64| if is_ratio { share(value) } else { number(value) };
    let interval = match (estimate.lower, estimate.upper) {
        (Some(low), Some(high)) if low < high => format!("{} – {}", print(low), print(high)),
        (Some(_) | None, _) => String::new(),
    };
    let parts = [word.to_owned(), interval];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { String::new() }
}

fn bold(mark: Mark) -> String {
    format!("**{}**", mark.to_string().replace(' ', "\u{a0}"))
}

/// What is said of each, where it stands, and how it is run again.
fn why(record: &RunRecord, ran: &[Which], out: &mut Budget) {
    if ran.is_empty() {
        return;
    }
    folded("Why, and how to run it again", out, |out| {
        out.push("\n");
        for which in &ran[..ran.len().min(ROWS)] {
            let (name, said, place, rerun) = match which {
                Which::Cell(cell) => {
                    let (planned, outcome) = (&record.header.cells[*cell], &record.cells[*cell]);
                    let place = message::place(planned, outcome);
                    let said = message::of_cell(outcome).unwrap_or_default();
                    (message::name(planned), said, place, message::rerun(record, planned))
                }
                Which::MeanRatio => {
                    let Some(overall) = overall::of(record) else { continue };
                    let place = &overall.compare.place;
                    let name = overall::NAME.to_owned();
                    (name, overall.said(), place, message::rerun_all(record))
                }
            };
            let mut piece = format!("- **{}**: {}\n", markdown(&name), markdown(&said));
            let _ = writeln!(piece, "  - at {}", markdown(&place.to_string()));
            let _ = writeln!(piece, "  - rerun: {}", code(&rerun));
            out.push(&piece);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_comment_has_the_worst_first() {
        insta::assert_snapshot!(render(&fixture::every_verdict()));
    }

    #[test]
    fn a_comment_has_the_ratios_of_variants() {
        let text = render(&fixture::compare());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| **")).collect();
        insta::assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn a_run_without_loss_has_no_table_of_failures() {
        let text = render(&fixture::page());
        let head = "<!-- tokgate:inkling-small-h200x8 -->\n### PASSED: inkling-small-h200x8\n";
        assert!(text.starts_with(head), "{text}");
        assert!(!text.contains("| asked |") && text.contains("Everything measured"), "{text}");
    }

    #[test]
    fn however_large_it_stays_short_and_every_section_is_closed() {
        let mut record = fixture::every_verdict();
        record.header.cells[1].id = "x".repeat(3_000);
        let (planned, outcome) = (record.header.cells[1].clone(), record.cells[1].clone());
        record.header.cells.extend(std::iter::repeat_n(planned, 3_000));
        record.cells.extend(std::iter::repeat_n(outcome, 3_000));
        for message in ["short".to_owned(), "@all #1 ".repeat(700_000)] {
            record.cells[1].judgement.message = Some(message.clone());
            for at in 2_000..2_500 {
                record.cells[at].judgement.message = Some(message.clone());
            }
            let text = render(&record);
            assert!(text.len() <= MOST, "{}", text.len());
            assert!(text.contains("\n… and 2"), "{text}");
            assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
        }
    }

    #[test]
    fn nothing_foreign_is_markup_or_calls_anybody() {
        let mut record = fixture::every_verdict();
        let hostile = "@me #1 !2 $3 GH-4 o/r#5 | <b> --> [x](y) ``` &6 ~7 %8\n# head";
        record.header.suite = hostile.into();
        record.header.cells[1].axes[0].0 = hostile.into();
        record.cells[1].judgement.message = Some(hostile.into());
        record.launches[1].failure.as_mut().unwrap().message = hostile.into();
        let text = render(&record);
        assert!(text.starts_with("<!-- tokgate:_me__1_"), "{text}");
        assert_eq!(text.lines().next().unwrap().matches("-->").count(), 1, "{text}");
        let mut shown = String::new();
        let options = pulldown_cmark::Options::ENABLE_TABLES;
        #[expect(clippy::wildcard_enum_match_arm, reason = "another library's list")]
        for event in pulldown_cmark::Parser::new_ext(&text, options) {
            match event {
                pulldown_cmark::Event::Text(text) => shown.push_str(&text),
                pulldown_cmark::Event::Html(html) | pulldown_cmark::Event::InlineHtml(html) => {
                    let ours = ["<!-- tokgate:", "<details>", "</details>", "<br>"];
                    assert!(ours.iter().any(|it| html.trim().starts_with(it)), "{html}");
                }
                pulldown_cmark::Event::Start(pulldown_cmark::Tag::Link { .. }) => panic!("{text}"),
                _ => {}
            }
        }
        for call in ["@me", "#1", "!2", "$3", "GH-4", "#5", "&6", "~7", "%8"] {
            assert!(!shown.contains(call), "{call} in {shown}");
            let parted = format!("{}\u{200b}{}", &call[..call.len() - 1], &call[call.len() - 1..]);
            let parted = if call == "@me" { "@\u{200b}me".to_owned() } else { parted };
            assert!(shown.contains(&parted), "{parted:?} in {shown}");
        }
    }
}
