//! `report.html`: the run as one page that needs nothing else.
//!
//! A verdict, what needs an eye, a heat map and charts for each test, each cell in full behind a link,
//! launches, machine, provenance. Everything works by markup and style; the script only makes it
//! quicker. The page says in its content policy which script and style are ours, by their hashes, so
//! that a text which slipped through would not run.
//!
//! It decides the order and how much fits. What foreign text may do is decided in `markup`: nothing.

mod banner;
mod compare;
pub mod comparison;
mod detail;
mod facts;
mod heat;
mod markup;
mod matrix;
mod plot;
mod spark;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, CellState, Judgement};

use detail::Extent;
use markup::{Markup, put};

use super::grid::{self, Sheet};
use super::overall;
use super::worst;

/// Bytes that the page stays under, but for a plan of so many cells that their names alone take more.
pub const MOST: usize = 9_500_000;
/// Bytes of heat maps beyond which the rest of a test's cells are only counted.
const MOST_MAPS: usize = 6_000_000;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Renders a record as a page.
pub fn render(record: &RunRecord) -> String {
    let sheets = grid::sheets(record);
    let mut out = Markup::default();
    head(&mut out, record);
    banner::top(&mut out, record);
    navigation(&mut out, record, &sheets);
    put!(out, "<main id=\"main\">\n");
    banner::troubles(&mut out, record);
    compare::overall(&mut out, record);
    for (at, sheet) in sheets.iter().enumerate() {
        test(&mut out, record, sheet, at);
    }
    banner::warnings(&mut out, record);
    facts::launches(&mut out, record);
    facts::run(&mut out, record);
    put!(out, "</main>\n");
    panels(&mut out, record);
    put!(
        out,
        "<footer><p>Written by tokgate " (record.header.tokgate)
        ". The same run is in <code>record.json</code>, <code>junit.xml</code> and <code>summary.md</code> beside this page; "
        "<code>tokgate report</code> renders them again.</p></footer>\n<script>"
    );
    out.tag(SCRIPT);
    put!(out, "</script>\n</body>\n</html>\n");
    out.finish()
}

/// A script or style of ours, as the content policy names it.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

fn head(out: &mut Markup, record: &RunRecord) {
    let (word, _) = super::console::verdict_word(record);
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; style-src "
    );
    // Hashes are letters, digits, `+`, `/` and `=`, and stand in an attribute in double quotes.
    put!(out, (hash(STYLE)) "; script-src " (hash(SCRIPT)) "\">\n");
    put!(
        out,
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>"
        (word) ": " (record.header.suite) "</title>\n<style>"
    );
    out.tag(STYLE);
    put!(
        out,
        "</style>\n</head>\n<body>\n<a class=\"to-main\" href=\"#main\">Skip to the results</a>\n"
    );
}

fn navigation(out: &mut Markup, record: &RunRecord, sheets: &[Sheet]) {
    put!(out, "<nav aria-label=\"Sections\"><ul>\n");
    if let Some(overall) = overall::of(record) {
        put!(out, "<li><a href=\"#compare\">"(overall.heading()));
        if overall.mark().tone == grid::Tone::Bad {
            put!(out, " <b>✗</b>");
        }
        put!(out, "</a></li>\n");
    }
    for (at, sheet) in sheets.iter().enumerate() {
        let bad = heat::cells(sheet)
            .filter(|cell| worst::Need::of(record, *cell).is_some_and(worst::Need::fails))
            .count();
        put!(out, "<li><a href=\"#test-" (at) "\">" (sheet.test));
        if bad > 0 {
            put!(out, " <b>" (bad) " ✗</b>");
        }
        put!(out, "</a></li>\n");
    }
    put!(
        out,
        "<li><a href=\"#launches\">Launches</a></li>\n<li><a href=\"#run\">Run</a></li>\n"
        "<li class=\"only\"><input type=\"checkbox\" id=\"only\"> <label for=\"only\">Only what needs an eye</label></li>\n</ul></nav>\n"
    );
}

fn test(out: &mut Markup, record: &RunRecord, sheet: &Sheet, at: usize) {
    let cells = heat::cells(sheet).count();
    // A single list leaves room beside it for its charts.
    let listed = matches!(&sheet.blocks[..], [block] if block.column_axis.is_none());
    put!(out, "<section class=\"test" (if listed { " listed" } else { "" }) "\" id=\"test-" (at) "\" aria-labelledby=\"test-name-" (at) "\">\n<h2 id=\"test-name-" (at)
        "\">" (sheet.test) " <small>" (kind_words(sheet.kind)) ", " (super::count::plural(cells, "cell")) "</small></h2>\n");
    if out.len() > MOST_MAPS {
        put!(out, "<p class=\"note\">" (cells) " cells: too many for this page; record.json has them.</p>\n");
    } else {
        let shown = heat::Shown::of(record, sheet);
        put!(out, "<div class=\"sheets\">\n");
        compare::ratios(out, record, sheet);
        put!(out, "<div class=\"tables\">\n");
        heat::sheet(out, record, sheet, &shown, at);
        put!(out, "</div>\n</div>\n");
        plot::charts(out, record, sheet);
    }
    put!(out, "</section>\n");
}

fn kind_words(kind: TestKind) -> &'static str {
    match kind {
        TestKind::Prefill => "cold prompts, one at a time",
        TestKind::Decode => "looping streams",
        TestKind::Serve => "requests as a service gets them",
        TestKind::Startup => "the launch itself",
        TestKind::Command => "an external tool",
    }
}

/// The panels of all cells: in full as many as fit, those that need an eye first.
fn panels(out: &mut Markup, record: &RunRecord) {
    let of = |at: usize, extent: Extent| {
        let mut panel = Markup::default();
        detail::panel(&mut panel, record, at, extent);
        panel
    };
    let mut order: Vec<usize> = worst::cells(record).into_iter().map(|(at, _)| at).collect();
    let mut urgent = vec![false; record.cells.len()];
    order.iter().for_each(|at| urgent[*at] = true);
    order.extend((0..record.cells.len()).filter(|at| !urgent[*at]));
    let mut panels: Vec<Option<Markup>> = Vec::new();
    panels.resize_with(record.cells.len(), || None);
    let mut left = MOST.saturating_sub(out.len() + SCRIPT.len() + 1_000);
    // What all cells take in brief is set aside, then as many as fit are told in full.
    let mut briefs = Vec::with_capacity(order.len());
    for at in &order {
        let brief = of(*at, Extent::Brief);
        if brief.len() > left {
            break;
        }
        left -= brief.len();
        briefs.push(brief);
    }
    let told = briefs.len();
    let mut room = true;
    for (at, brief) in order.iter().zip(briefs) {
        // To render one in full takes time: what comes behind the first that doesn't fit is not tried.
        let full = room.then(|| of(*at, Extent::Full));
        let fitting = full.filter(|full| full.len().saturating_sub(brief.len()) <= left);
        room = fitting.is_some();
        if let Some(full) = &fitting {
            left -= full.len().saturating_sub(brief.len());
        }
        panels[*at] = Some(fitting.unwrap_or(brief));
    }
    put!(out, "<section class=\"panels\" aria-label=\"Cells\">\n<h2>Cells</h2>\n");
    panels.iter().flatten().for_each(|panel| out.append(panel));
    if told < order.len() {
        put!(out, "<p class=\"note\">" (order.len() - told) " more cells: record.json has them.</p>\n");
    }
    put!(out, "</section>\n");
}

/// The class of a cell in the style sheet.
fn class_of(outcome: &CellOutcome) -> &'static str {
    let waits = matches!(outcome.state, CellState::NotRun { .. });
    class_of_judgement(&outcome.judgement, waits)
}

fn class_of_judgement(judgement: &Judgement, waits: bool) -> &'static str {
    match judgement.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "unsure",
        Verdict::Error if waits => "unrun",
        Verdict::Error => "error",
        Verdict::Measured => "measured",
        Verdict::Skip => "skip",
        Verdict::Xfail => "xfail",
        Verdict::Xpass => "xpass",
    }
}

/// A text whose numbers don't part from their thousands at the end of a line.
fn whole_numbers(text: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    let digit = |at: usize| all.get(at).is_some_and(char::is_ascii_digit);
    let inside = |at: usize| {
        at > 0 && digit(at - 1) && (1..=3).all(|step| digit(at + step)) && !digit(at + 4)
    };
    let kept = |(at, c): (usize, &char)| if *c == ' ' && inside(at) { '\u{a0}' } else { *c };
    all.iter().enumerate().map(kept).collect()
}

/// A link to another page where the text is an address of one, else the text.
fn link(out: &mut Markup, address: &str) {
    let web = ["https://", "http://"].iter().any(|scheme| address.starts_with(scheme));
    if web && !address.contains(char::is_whitespace) {
        put!(out, "<a href=\"" (address) "\" rel=\"noreferrer noopener\">" (address) "</a>");
    } else {
        put!(out, (address));
    }
}

#[cfg(test)]
mod tests;
