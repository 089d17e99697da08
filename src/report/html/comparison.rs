//! Two runs beside each other as a page that needs nothing else, and has no script.

use super::markup::{Markup, put};
use super::{STYLE, hash};
use crate::record::comparison::{Comparison, Held, Pair, Row, Standing, Which};
use crate::report::comparison::{
    caution, figure, held, interval, label, lacks, lone, mark, metric, name, ratio, rule, rules,
    sentence, verdict,
};

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
    put!(out, "</style>\n</head>\n<body>\n<header>\n<h1>" (comparison.b.suite) " compared</h1>\n");
    for (which, side) in [(Which::A, &comparison.a), (Which::B, &comparison.b)] {
        put!(out, "<p class=\"subject\">" (label(which, side)) "</p>\n");
    }
    put!(out, "</header>\n<main>\n<section>\n");
    if let Some(words) = verdict(comparison) {
        put!(out, "<p><b>" (words) "</b></p>\n");
    }
    put!(out, "<p>" (sentence(comparison)) "</p>\n");
    for remark in &comparison.remarks {
        put!(out, "<p><b>note:</b> " (remark) "</p>\n");
    }
    if let Some(words) = caution(comparison) {
        put!(out, "<p class=\"note\">" (words) "</p>\n");
    }
    put!(out, "</section>\n");
    ruled(&mut out, comparison);
    changed(&mut out, comparison);
    figures(&mut out, comparison);
    put!(out, "</main>\n<footer><p>Written by tokgate compare.</p></footer>\n</body>\n</html>\n");
    out.finish()
}

fn ruled(out: &mut Markup, comparison: &Comparison) {
    if comparison.rules.is_empty() {
        return;
    }
    put!(out, "<section>\n<h2>Relative rules</h2>\n<ul>\n");
    for one in rules(comparison) {
        out.tag(match one.held {
            Held::Broken => "<li class=\"fail\">",
            Held::Unjudged => "<li class=\"error\">",
            Held::Doubtful | Held::DoubtFails | Held::Warns => "<li class=\"unsure\">",
            Held::Excused => "<li class=\"skip\">",
            Held::Holds => "<li class=\"pass\">",
        });
        put!(out, "<span class=\"k\">" (held(one.held)) "</span> " (rule(one)) "</li>\n");
    }
    put!(out, "</ul>\n</section>\n");
}

fn changed(out: &mut Markup, comparison: &Comparison) {
    put!(out, "<section>\n<h2>What changed</h2>\n");
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
    put!(out, "<section>\n<h2>Figures</h2>\n");
    if comparison.cells.is_empty() {
        put!(out, "<p>No cell is in both.</p>\n");
    } else {
        put!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\">\n<table class=\"matrix list\">\n"
            "<caption>In parentheses the launches, where there are several.</caption>\n"
            "<thead><tr><th scope=\"col\">cell</th><th scope=\"col\">metric</th><th scope=\"col\" class=\"n\">A</th>"
            "<th scope=\"col\" class=\"n\">B</th><th scope=\"col\" class=\"n\">B/A</th><th scope=\"col\">90 % interval</th>"
            "<th scope=\"col\">B is</th></tr></thead>\n<tbody>\n"
        );
        comparison.cells.iter().for_each(|pair| of_cell(out, pair));
        put!(out, "</tbody></table>\n</div>\n");
    }
    if !comparison.lone.is_empty() {
        put!(out, "<ul>\n");
    }
    for one in &comparison.lone {
        put!(out, "<li>" (lone(one)) "</li>\n");
    }
    if !comparison.lone.is_empty() {
        put!(out, "</ul>\n");
    }
    put!(out, "</section>\n");
}

fn of_cell(out: &mut Markup, pair: &Pair) {
    for lack in lacks(pair) {
        put!(out, "<tr class=\"error\"><th scope=\"row\">" (name(pair)) "</th><td colspan=\"6\">" (lack) "</td></tr>\n");
    }
    for row in &pair.rows {
        of_row(out, pair, row);
    }
}

fn of_row(out: &mut Markup, pair: &Pair, row: &Row) {
    out.tag(match row.standing {
        Standing::Worse => "<tr class=\"fail\">",
        Standing::Better => "<tr class=\"pass\">",
        Standing::WithinNoise | Standing::Same => "<tr class=\"quiet\">",
        Standing::BetterUnproven | Standing::WorseUnproven | Standing::Unknown => "<tr>",
    });
    put!(
        out,
        "<th scope=\"row\">" (name(pair)) "</th><td>" (metric(row)) "</td><td class=\"n\">" (figure(row.a.as_ref()))
        "</td><td class=\"n\">" (figure(row.b.as_ref())) "</td><td class=\"n\">" (ratio(row)) "</td><td>" (interval(row))
        "</td><td><span class=\"k\">" (mark(row.standing)) "</span></td></tr>\n"
    );
}
