//! What a reader learns in ten seconds: the verdict, the counts, what it means, the worst cells.

use crate::record::RunRecord;
use crate::record::run_record::CellOutcome;
use crate::report::case::verdict_name;
use crate::report::console::verdict_word;
use crate::report::count::{Counts, elapsed, plural};
use crate::report::grid::{self, Tone};
use crate::report::worst::{self, Need, Which};
use crate::report::{message, overall, part, sanitise};

use super::markup::{Markup, put};
use super::{class_of, class_of_judgement, whole_numbers};

/// Cells that are listed at once, and behind a fold.
const AT_ONCE: usize = 8;
const FOLDED: usize = 200;
/// Warnings that are shown.
const MOST_WARNINGS: usize = 200;
/// Bytes of a launch's telling lines.
const MOST_LOG: usize = 16 * 1024;

/// The head of the page.
pub fn top(out: &mut Markup, record: &RunRecord) {
    let header = &record.header;
    let (mut word, tone) = verdict_word(record);
    // A run that goes on, or was killed, has judged what it has judged.
    if word == "NOT JUDGED" && record.seconds.is_none() {
        word = "NOT FINISHED";
    }
    let counts = Counts::of(record);
    let (class, sign) = match tone {
        Tone::Good => ("good", "✓"),
        Tone::Bad => ("bad", "✗"),
        Tone::Doubtful => ("doubtful", "?"),
        Tone::Quiet => ("quiet", "–"),
    };
    put!(out, "<header class=\"top " (class) "\">\n<p class=\"eyebrow\">tokgate <span>" (day(&header.started)) "</span></p>\n<h1>"
        (header.suite) "</h1>\n<p class=\"subject\">" (subject(record)));
    if let Some(part) = part::told(record) {
        put!(out, "<br>"(part));
    }
    put!(out, "</p>\n<div class=\"verdict\"><p class=\"word\"><span aria-hidden=\"true\">"
        (sign) "</span> " (sentence_case(word)) "</p>\n<p class=\"meaning\">" (meaning(word, &counts)));
    match record.seconds {
        Some(seconds) if header.virtual_time => {
            put!(out, " Took " (elapsed(seconds)) " of virtual time.")
        }
        Some(seconds) => put!(out, " Took " (elapsed(seconds)) "."),
        None => {}
    }
    put!(out, "</p></div>\n");
    tally(out, &counts);
    put!(out, "</header>\n");
}

/// The title without the suite's name, which stands above it.
fn subject(record: &RunRecord) -> String {
    let title = message::title(record);
    title.split_once(" · ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// `2026-09-17 20:47 UTC`.
fn day(started: &str) -> String {
    match started.split_once('T') {
        Some((day, time)) => format!("{day} {} UTC", time.get(..5).unwrap_or_default()),
        None => started.to_owned(),
    }
}

fn sentence_case(word: &str) -> String {
    let lower = word.to_lowercase();
    let mut letters = lower.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What the word asks of whom, as the table of exit codes has it.
fn meaning(word: &str, counts: &Counts) -> &'static str {
    match word {
        "PASSED" if counts.inconclusive > 0 => {
            "No limit is surely broken; what is inconclusive may pass by policy."
        }
        "PASSED" if counts.xfail > 0 => {
            "Every judged cell is within its limits, but for those in quarantine."
        }
        "PASSED" if counts.pass == 0 => "No limit is broken, and none was there to break.",
        "PASSED" => "Every judged cell is within its limits.",
        "FAILED" => "A limit is broken, or the engine degraded: for the author of the change.",
        "NOT FINISHED" => "The run goes on, or was killed: what has run so far is here.",
        "NOT JUDGED" => {
            "Something kept cells from being judged; that is no verdict on the engine's speed."
        }
        "UNDECIDED" => {
            "A cell is beyond its limit, but the noise can't exclude that nothing was lost: measure more."
        }
        "INTERRUPTED" => "A signal ended the run; what had been measured is here.",
        "NOTHING TO DO" => "There are more shards than launches, and none is left for this one.",
        "NOTHING SELECTED" => "No cell was selected, so nothing was measured.",
        _ => "",
    }
}

/// Cells by verdict, as a bar and in words.
fn tally(out: &mut Markup, counts: &Counts) {
    let parts = [
        ("fail", "✗", "failed", counts.fail),
        ("error", "!", "errors", counts.error),
        ("unrun", "·", "not run", counts.not_run),
        ("unsure", "?", "inconclusive", counts.inconclusive),
        ("xfail", "~", "failed as expected", counts.xfail),
        ("xpass", "✓", "passed in quarantine", counts.xpass),
        ("pass", "✓", "passed", counts.pass),
        ("measured", "○", "measured only", counts.measured),
        ("skip", "–", "skipped", counts.skip),
    ];
    let total: usize = parts.iter().map(|(_, _, _, n)| n).sum();
    if total == 0 {
        return;
    }
    put!(
        out,
        "<svg class=\"tally\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
    );
    let mut done = 0;
    for (class, _, _, n) in parts.iter().filter(|(_, _, _, n)| *n > 0) {
        let edge = |n: usize| n as f64 / total as f64 * 1000.0;
        put!(out, "<polygon class=\"" (class) "\" points=\"");
        let (left, right) = (edge(done), edge(done + n));
        out.points([(left, 0.0), (right, 0.0), (right, 10.0), (left, 10.0)]);
        put!(out, "\"/>");
        done += n;
    }
    put!(out, "</svg>\n<ul class=\"counts\" aria-label=\"Cases by verdict\">\n");
    for (class, sign, words, n) in
        parts.iter().filter(|(class, _, _, n)| *n > 0 || *class == "fail")
    {
        put!(out, "<li class=\"" (class) "\"><span class=\"k\" aria-hidden=\"true\">" (sign) "</span> <b>" (n) "</b> " (words) "</li>\n");
    }
    if counts.launches_failed > 0 {
        put!(out, "<li class=\"error\"><span class=\"k\" aria-hidden=\"true\">!</span> <b>" (counts.launches_failed)
            "</b> failed to launch</li>\n");
    }
    put!(out, "</ul>\n");
}

/// Launches that failed, cells that need an eye, cells that have not run.
pub fn troubles(out: &mut Markup, record: &RunRecord) {
    launches(out, record);
    let worst: Vec<(Which, Need)> =
        worst::cases(record).into_iter().filter(|(_, need)| *need != Need::NotRun).collect();
    if !worst.is_empty() {
        put!(out, "<section aria-labelledby=\"eye\">\n<h2 id=\"eye\">Look at these first</h2>\n");
        let (first, rest) = worst.split_at(worst.len().min(AT_ONCE));
        cells(out, record, first);
        if !rest.is_empty() {
            put!(out, "<details><summary>" (plural(rest.len(), "more cell")) "</summary>\n");
            cells(out, record, &rest[..rest.len().min(FOLDED)]);
            if rest.len() > FOLDED {
                put!(out, "<p class=\"note\">" (rest.len() - FOLDED) " more: see the tables.</p>\n");
            }
            put!(out, "</details>\n");
        }
        put!(out, "</section>\n");
    }
    let reasons = message::not_run(record);
    if !reasons.is_empty() {
        put!(out, "<section aria-labelledby=\"not-run\">\n<h2 id=\"not-run\">Not run</h2>\n<ul>\n");
        for (who, reason) in reasons.iter().take(FOLDED) {
            put!(out, "<li>" (who) ": " (reason) "</li>\n");
        }
        put!(out, "</ul>\n</section>\n");
    }
}

fn cells(out: &mut Markup, record: &RunRecord, chosen: &[(Which, Need)]) {
    put!(out, "<ol class=\"worst\">\n");
    for (which, _) in chosen {
        let at = match which {
            Which::Cell(at) => at,
            Which::MeanRatio => {
                let Some(overall) = overall::of(record) else { continue };
                put!(out, "<li class=\"" (class_of_judgement(overall.judgement(), overall.is_pending()))
                    "\"><a href=\"#compare\"><span class=\"k\">" (overall.mark()) "</span> <b>" (overall::NAME) ", "
                    (overall.heading()) "</b></a> <span class=\"said\">" (whole_numbers(&overall.said()))
                    "</span></li>\n");
                continue;
            }
        };
        let (planned, outcome) = (&record.header.cells[*at], &record.cells[*at]);
        put!(out, "<li class=\"" (class_of(outcome)) "\"><a href=\"#c" (at) "\"><span class=\"k\">" (grid::mark(outcome))
            "</span> <b>" (message::name(planned)) "</b></a> <span class=\"said\">"
            (whole_numbers(&said(outcome)))
            "</span></li>\n");
    }
    put!(out, "</ol>\n");
}

fn said(outcome: &CellOutcome) -> String {
    let word = || verdict_name(outcome.judgement.verdict).to_owned();
    message::of_cell(outcome).unwrap_or_else(word)
}

fn launches(out: &mut Markup, record: &RunRecord) {
    for (at, (planned, launch)) in record.header.launches.iter().zip(&record.launches).enumerate() {
        let Some(failure) = &launch.failure else { continue };
        put!(out, "<section class=\"broken\">\n<h2>Launch " (planned.name) " failed</h2>\n<p class=\"said\">"
            (message::one_line(&failure.message)) "</p>\n<pre tabindex=\"0\" role=\"region\" aria-label=\"What launch " (planned.name) " printed\">");
        let told = message::of_launch(failure, launch.log.as_deref()).join("\n");
        out.lines(&sanitise::cut(&told, MOST_LOG));
        put!(out, "</pre>\n<p class=\"note\"><a href=\"#launch-" (at) "\">Its command and settings</a></p>\n</section>\n");
    }
}

/// Every warning of the run.
pub fn warnings(out: &mut Markup, record: &RunRecord) {
    let warnings = message::warnings(record);
    if warnings.is_empty() {
        return;
    }
    put!(out, "<section aria-labelledby=\"warnings\">\n<h2 id=\"warnings\">Warnings <small>" (warnings.len())
        "</small></h2>\n<ul class=\"warnings\">\n");
    for warning in warnings.iter().take(MOST_WARNINGS) {
        put!(out, "<li>" (message::one_line(warning)) "</li>\n");
    }
    put!(out, "</ul>\n");
    if warnings.len() > MOST_WARNINGS {
        put!(out, "<p class=\"note\">" (warnings.len() - MOST_WARNINGS) " more are in record.json.</p>\n");
    }
    put!(out, "</section>\n");
}
