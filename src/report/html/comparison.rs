//! Two runs beside each other as a page that needs nothing else, and has no script.
//!
//! It decides the order and how much fits: what rules say, what is worse, what changed, then all figures.

use super::markup::{Markup, put};
use super::{MOST, STYLE, hash, spark};
use crate::record::comparison::{Comparison, Figure, Held, Pair, Row, Rule, Standing, Which};
use crate::record::wording::number;
use crate::report::comparison::{
    caution, figure, held, interval, label, lacks, launches, lone, mark, metric, name, ratio, rule,
    rules, sentence, verdict,
};
use crate::report::count::plural;

/// Figures that are listed at once as worse, and behind a fold.
const AT_ONCE: usize = 8;
const FOLDED: usize = 200;
/// Cells of a table; a comparison of more is cut into several, which a browser lays out when they come into sight.
const BAND: usize = 40;
/// Rules that are listed; those that need an eye come first.
const MOST_RULES: usize = 1_000;

/// Renders a comparison as a page.
pub fn render(comparison: &Comparison) -> String {
    let mut out = Markup::default();
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; style-src "
        (hash(STYLE))
        "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>"
        (comparison.b.suite) " compared</title>\n<style>"
    );
    out.tag(STYLE);
    put!(
        out,
        "</style>\n</head>\n<body>\n<a class=\"to-main\" href=\"#main\">Skip to the results</a>\n"
    );
    top(&mut out, comparison);
    put!(out, "<nav aria-label=\"Sections\"><ul>\n");
    if !comparison.rules.is_empty() {
        put!(out, "<li><a href=\"#rules\">Relative rules</a></li>\n");
    }
    put!(
        out,
        "<li><a href=\"#changed\">What changed</a></li>\n<li><a href=\"#figures\">Figures</a></li>\n"
        "<li class=\"only\"><input type=\"checkbox\" id=\"only\"> <label for=\"only\">Only what is better or worse</label></li>\n</ul></nav>\n<main id=\"main\">\n"
    );
    remarks(&mut out, comparison);
    ruled(&mut out, comparison);
    worse(&mut out, comparison);
    changed(&mut out, comparison);
    figures(&mut out, comparison);
    put!(out, "</main>\n<footer><p>Written by tokgate compare.</p></footer>\n</body>\n</html>\n");
    out.finish()
}

/// What it comes to, and of what.
fn top(out: &mut Markup, comparison: &Comparison) {
    let (tone, word) = word(comparison);
    put!(out, "<header class=\"top " (tone) "\">\n<p class=\"eyebrow\">tokgate compare</p>\n<h1>"
        (comparison.b.suite) "</h1>\n<div class=\"subject\">");
    for (which, side) in [(Which::A, &comparison.a), (Which::B, &comparison.b)] {
        put!(out, "<p>" (label(which, side)) "</p>");
    }
    put!(out, "</div>\n<div class=\"verdict\"><p class=\"word\">" (word) "</p>");
    for words in [verdict(comparison), Some(sentence(comparison))].into_iter().flatten() {
        put!(out, "<p class=\"meaning\">" (words) "</p>");
    }
    put!(out, "</div>\n</header>\n");
}

/// The tone of the whole, and the word for it.
fn word(comparison: &Comparison) -> (&'static str, String) {
    let ruled = |held: Held| comparison.ruled(held) > 0;
    let count = |standing: Standing| comparison.count(standing);
    if !comparison.rules.is_empty() {
        return match () {
            () if ruled(Held::Broken) => ("bad", "✗ Rules are broken".to_owned()),
            () if ruled(Held::Unjudged) => ("bad", "! Not judged".to_owned()),
            () if ruled(Held::DoubtFails) => ("doubtful", "? In doubt".to_owned()),
            () => ("good", "✓ Rules hold".to_owned()),
        };
    }
    let (worse, better) = (count(Standing::Worse), count(Standing::Better));
    match () {
        () if comparison.cells.is_empty() => ("quiet", "– Nothing in common".to_owned()),
        () if worse > 0 => ("doubtful", format!("▼ {} worse", plural(worse, "figure"))),
        () if better > 0 => ("good", format!("▲ {} better", plural(better, "figure"))),
        () if count(Standing::WithinNoise) > 0 => ("quiet", "≈ All within noise".to_owned()),
        () => ("quiet", "– Nothing proven".to_owned()),
    }
}

fn remarks(out: &mut Markup, comparison: &Comparison) {
    if comparison.remarks.is_empty() && caution(comparison).is_none() {
        return;
    }
    put!(out, "<section aria-label=\"Notes\">\n");
    for remark in &comparison.remarks {
        put!(out, "<p><b>note:</b> " (remark) "</p>\n");
    }
    if let Some(words) = caution(comparison) {
        put!(out, "<p class=\"note\">" (words) "</p>\n");
    }
    put!(out, "</section>\n");
}

fn ruled(out: &mut Markup, comparison: &Comparison) {
    if comparison.rules.is_empty() {
        return;
    }
    put!(
        out,
        "<section id=\"rules\" aria-labelledby=\"rules-name\">\n<h2 id=\"rules-name\">Relative rules</h2>\n"
    );
    let (calm, loud): (Vec<&Rule>, Vec<&Rule>) =
        rules(comparison).into_iter().partition(|one| match one.held {
            Held::Holds | Held::Excused => true,
            Held::Broken | Held::Unjudged | Held::Doubtful | Held::DoubtFails | Held::Warns => {
                false
            }
        });
    list_rules(out, &loud);
    if !calm.is_empty() {
        put!(out, "<details><summary>" (plural(calm.len(), "rule")) " without trouble</summary>\n");
        list_rules(out, &calm);
        put!(out, "</details>\n");
    }
    put!(out, "</section>\n");
}

fn list_rules(out: &mut Markup, all: &[&Rule]) {
    if all.is_empty() {
        return;
    }
    put!(out, "<ol class=\"worst both\">\n");
    for one in all.iter().take(MOST_RULES) {
        out.tag(match one.held {
            Held::Broken => "<li class=\"fail\">",
            Held::Unjudged => "<li class=\"error\">",
            Held::Doubtful | Held::DoubtFails | Held::Warns => "<li class=\"unsure\">",
            Held::Excused => "<li class=\"skip\">",
            Held::Holds => "<li class=\"pass\">",
        });
        let (what, said) = rule(one);
        put!(out, "<span class=\"which\"><span class=\"k\">" (held(one.held)) "</span> <b>" (what)
            "</b></span> <span class=\"said\">" (said) "</span></li>\n");
    }
    put!(out, "</ol>\n");
    if all.len() > MOST_RULES {
        put!(out, "<p class=\"note\">" (all.len() - MOST_RULES) " more: --format json has them.</p>\n");
    }
}

/// What is worse, the greatest loss first, each with a link to its line.
fn worse(out: &mut Markup, comparison: &Comparison) {
    let mut found: Vec<(usize, usize, f64)> = Vec::new();
    for (at, pair) in comparison.cells.iter().enumerate() {
        for (line, row) in pair.rows.iter().enumerate() {
            if row.standing == Standing::Worse
                && let Some(ratio) = row.ratio
            {
                found.push((at, line, ratio.ln().abs()));
            }
        }
    }
    if found.is_empty() {
        return;
    }
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    put!(
        out,
        "<section aria-labelledby=\"worse\">\n<h2 id=\"worse\">What is worse</h2>\n<ol class=\"worst both\">\n"
    );
    let list = |out: &mut Markup, some: &[(usize, usize, f64)]| {
        for (at, line, _) in some {
            let (pair, row) = (&comparison.cells[*at], &comparison.cells[*at].rows[*line]);
            put!(out, "<li class=\"fail\"><a href=\"#f" (at) "-" (line) "\"><span class=\"k\">" (mark(row.standing))
                "</span> <b>" (name(pair)) "</b></a> <span class=\"said\">" (metric(row)) ": " (figure(row.b.as_ref()))
                " is " (ratio(row)) " of " (figure(row.a.as_ref())) " " (interval(row)) "</span></li>\n");
        }
    };
    let (first, rest) = found.split_at(found.len().min(AT_ONCE));
    list(out, first);
    put!(out, "</ol>\n");
    if !rest.is_empty() {
        put!(out, "<details><summary>" (rest.len()) " more</summary>\n<ol class=\"worst both\">\n");
        list(out, &rest[..rest.len().min(FOLDED)]);
        put!(out, "</ol>\n");
        if rest.len() > FOLDED {
            put!(out, "<p class=\"note\">" (rest.len() - FOLDED) " more: see the tables.</p>\n");
        }
        put!(out, "</details>\n");
    }
    put!(out, "</section>\n");
}

fn changed(out: &mut Markup, comparison: &Comparison) {
    put!(
        out,
        "<section id=\"changed\" aria-labelledby=\"changed-name\">\n<h2 id=\"changed-name\">What changed</h2>\n"
    );
    if comparison.changes.is_empty() {
        put!(out, "<p>Nothing else is known to have changed.</p>\n</section>\n");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What changed\">\n<table class=\"matrix list\">\n"
        "<thead><tr><th scope=\"col\">what</th><th scope=\"col\">A</th><th scope=\"col\">B</th></tr></thead>\n<tbody>\n"
    );
    for change in &comparison.changes {
        put!(
            out,
            "<tr><th scope=\"row\">" (change.what) "</th><td>" (change.a) "</td><td>" (change.b) "</td></tr>\n"
        );
    }
    put!(out, "</tbody></table>\n</div>\n</section>\n");
}

fn figures(out: &mut Markup, comparison: &Comparison) {
    put!(
        out,
        "<section id=\"figures\" aria-labelledby=\"figures-name\">\n<h2 id=\"figures-name\">Figures</h2>\n"
    );
    if comparison.cells.is_empty() {
        put!(out, "<p>No cell is in both.</p>\n");
    }
    let all: Vec<(usize, &Pair)> = comparison.cells.iter().enumerate().collect();
    let mut left = 0;
    for cells in all.chunks(BAND) {
        if out.len() > MOST {
            left += cells.len();
            continue;
        }
        table(out, comparison, cells, all.len() > BAND);
    }
    if left > 0 {
        put!(out, "<p class=\"note\">" (left) " more cells: --format json has them.</p>\n");
    }
    if !comparison.cells.is_empty() {
        put!(
            out,
            "<p class=\"legend\">Drawn: the ratio with its interval, the line is no change.</p>\n"
        );
    }
    let shown = comparison.lone.iter().take(MOST_RULES);
    if !comparison.lone.is_empty() {
        put!(out, "<ul>\n");
        shown.for_each(|one| put!(out, "<li>" (lone(one)) "</li>\n"));
        put!(out, "</ul>\n");
        if comparison.lone.len() > MOST_RULES {
            put!(out, "<p class=\"note\">" (comparison.lone.len() - MOST_RULES) " more: --format json has them.</p>\n");
        }
    }
    put!(out, "</section>\n");
}

fn table(out: &mut Markup, comparison: &Comparison, cells: &[(usize, &Pair)], large: bool) {
    let [first, last] = [cells.first(), cells.last()].map(|one| one.map_or(0, |(at, _)| at + 1));
    put!(out, "<div class=\"scroll");
    if large {
        put!(out, " band");
    }
    put!(out, "\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of cells " (first) " to " (last)
        "\">\n<table class=\"matrix list compared\">\n<caption><span>B against A; in parentheses the launches, where they are not told beside the cell.</span></caption>\n"
        "<thead><tr><th scope=\"col\">metric</th><th scope=\"col\" class=\"n\">A</th>"
        "<th scope=\"col\" class=\"n\">B</th><th scope=\"col\" class=\"n\">B/A</th><th scope=\"col\">90 % interval</th>"
        "<th scope=\"col\">drawn</th><th scope=\"col\">B is</th></tr></thead>\n");
    let scale =
        spark::scale(comparison.cells.iter().flat_map(|pair| &pair.rows).filter_map(|it| it.ratio));
    for (at, pair) in cells {
        of_cell(out, *at, pair, scale);
    }
    put!(out, "</table>\n</div>\n");
}

fn of_cell(out: &mut Markup, at: usize, pair: &Pair, scale: (f64, f64)) {
    let calm = pair.rows.iter().all(|row| match row.standing {
        Standing::Worse | Standing::Better => false,
        Standing::WithinNoise
        | Standing::Same
        | Standing::BetterUnproven
        | Standing::WorseUnproven
        | Standing::Unknown => true,
    }) && lacks(pair).is_empty();
    out.tag(if calm { "<tbody class=\"calm\">" } else { "<tbody>" });
    put!(out, "<tr><th scope=\"rowgroup\" colspan=\"7\">"(name(pair)));
    if let Some(launches) = launches(pair) {
        put!(out, " <small>" (launches) "</small>");
    }
    put!(out, "</th></tr>\n");
    for lack in lacks(pair) {
        put!(out, "<tr class=\"error\"><td colspan=\"7\">" (lack) "</td></tr>\n");
    }
    let told = launches(pair).is_some();
    for (line, row) in pair.rows.iter().enumerate() {
        of_row(out, (at, line), row, (told, scale));
    }
    put!(out, "</tbody>\n");
}

/// A figure of a cell; `told`: the cell has said in how many launches it was measured.
fn of_row(
    out: &mut Markup,
    (at, line): (usize, usize),
    row: &Row,
    (told, scale): (bool, (f64, f64)),
) {
    let shown = |side: &Option<Figure>| match (told, side) {
        (true, Some(side)) => number(side.value),
        (_, side) => figure(side.as_ref()),
    };
    out.tag(match row.standing {
        Standing::Worse => "<tr class=\"fail\"",
        Standing::Better => "<tr class=\"pass\"",
        Standing::WithinNoise | Standing::Same => "<tr class=\"quiet\"",
        Standing::BetterUnproven | Standing::WorseUnproven | Standing::Unknown => "<tr",
    });
    put!(
        out,
        " id=\"f" (at) "-" (line) "\"><th scope=\"row\">" (metric(row)) "</th><td class=\"n\">" (shown(&row.a))
        "</td><td class=\"n\">" (shown(&row.b)) "</td><td class=\"n\">" (ratio(row)) "</td><td>" (interval(row))
        "</td><td>"
    );
    if let Some(ratio) = row.ratio {
        spark::ratio(out, ratio, row.interval, scale);
    }
    put!(out, "</td><td><span class=\"k\">" (mark(row.standing)) "</span></td></tr>\n");
}
