//! Variants that are compared: the mean ratio with a chart of its pairs, and each test's ratios as tables.

use crate::record::RunRecord;
use crate::report::count::plural;
use crate::report::grid::{self, Block, Sheet, Tone};
use crate::report::overall;
use crate::report::ratio::{self, Ratio, Table};

use super::markup::{Markup, put};
use super::matrix::{Frame, LARGE};
use super::plot::{self, pairs};
use super::{MOST_MAPS, class_of_judgement, whole_numbers};

/// The mean ratio: verdict, interval, the pairs that it is made of.
pub fn overall(out: &mut Markup, record: &RunRecord) {
    let Some(overall) = overall::of(record) else { return };
    let (compare, outcome) = (overall.compare, overall.outcome);
    let class = class_of_judgement(overall.judgement(), overall.is_pending());
    put!(out, "<section class=\"compare\" id=\"compare\" aria-labelledby=\"compare-name\">\n<h2 id=\"compare-name\">"
        (overall.heading()) " <small>mean ratio of all cells, " (plural(compare.pairs as usize, "pair")) "</small></h2>\n<p class=\"said "
        (class) "\"><span class=\"k\">" (overall.mark()) "</span> " (whole_numbers(&overall.behind_mark())) "</p>\n");
    for warning in &overall.judgement().warnings {
        put!(out, "<p class=\"note\">" (crate::report::message::one_line(warning)) "</p>\n");
    }
    let ratios: Vec<_> = overall.pairs().collect();
    let chart =
        pairs::Ratios { pairs: &ratios, mean: outcome.estimate, limit: compare.min_mean_ratio };
    if let Some(drawing) = chart.draw() {
        put!(
            out,
            "<div class=\"plots\"><figure class=\"plot\"><figcaption>Mean ratio of each pair</figcaption>\
            <div role=\"img\" aria-label=\"Chart: the mean ratio of each pair. The table below has its figures.\">"
        );
        out.drawing(&drawing);
        put!(out, "</div></figure></div>\n");
        chart_words(out, (&compare.baseline, &compare.candidate), compare.min_mean_ratio.is_some());
    }
    if !ratios.is_empty() {
        put!(
            out,
            "<details><summary>The pairs</summary><table class=\"pairs\"><thead><tr><th scope=\"col\" class=\"n\">pair</th><th scope=\"col\">measured first</th><th scope=\"col\" class=\"n\">mean ratio</th></tr></thead><tbody>\n"
        );
        for (at, (order, ratio)) in (1..).zip(&ratios) {
            let ratio = format!("{ratio:.4}");
            put!(out, "<tr><td class=\"n\">" (at) "</td><td>" (compare.first(*order)) "</td><td class=\"n\">" (ratio) "</td></tr>\n");
        }
        put!(out, "</tbody></table></details>\n");
    }
    put!(out, "<p class=\"note\">Set at <code>" (compare.place) "</code>.</p>\n</section>\n");
}

/// What stands in a chart of ratios.
pub fn chart_words(out: &mut Markup, (baseline, candidate): (&str, &str), limited: bool) {
    put!(out, "<p class=\"note\">Drawn: the ratio of each pair, filled where " (baseline) " was measured first and hollow where "
        (candidate) " was; the mean as a line in the band of its interval");
    if limited {
        put!(out, "; the limit broken in red");
    }
    put!(out, ".</p>\n");
}

/// The ratios of a test's cells: tables, then every ratio with its interval drawn below each other.
pub fn ratios(out: &mut Markup, record: &RunRecord, sheet: &Sheet) {
    let tables = ratio::tables(record);
    let own = || tables.iter().enumerate().filter(|(_, table)| table.test == sheet.test);
    for (at, table) in own() {
        put!(out, "<div class=\"tables\">\n<h3 class=\"block\">" (table.caption()) "</h3>\n");
        let cells = table.blocks.iter().flat_map(|block| block.cells.iter().flatten().flatten());
        let large = cells.count() > LARGE;
        for block in &table.blocks {
            if out.len() > MOST_MAPS {
                let cells = block.cells.iter().flatten().flatten().count();
                put!(out, "<p class=\"note\">" (cells) " cells: too many for this page; record.json has them.</p>\n");
                continue;
            }
            of_block(out, record, (at, table), block, large);
        }
        put!(
            out,
            "<p class=\"legend\"><span>In a cell: verdict and ratio, its interval, the smallest loss that would have been seen.</span></p>\n</div>\n"
        );
    }
    let mut words = None;
    for (_, table) in own() {
        for block in table.blocks.iter().take(plot::MOST_BLOCKS) {
            let forest = plot::forest::of_block(record, block, |cell| table.ratio(record, cell));
            let Some(drawing) = forest.draw() else { continue };
            if words.is_none() {
                put!(out, "<div class=\"plots\">\n");
                words = Some(forest.words());
            }
            put!(out, "<figure class=\"plot\"><figcaption>" (table.caption()) ", each cell with its interval");
            if !block.heading.is_empty() {
                put!(out, " <small>" (block.heading) "</small>");
            }
            put!(
                out,
                "</figcaption><div role=\"img\" aria-label=\"Chart: the ratio of each cell with its interval. The table above has its figures.\">"
            );
            out.drawing(&drawing);
            put!(out, "</div></figure>\n");
        }
    }
    if let Some(words) = words {
        put!(out, "</div>\n<p class=\"note\">" (words) "</p>\n");
    }
}

fn of_block(
    out: &mut Markup,
    record: &RunRecord,
    (at, table): (usize, &Table),
    block: &Block,
    large: bool,
) {
    let mut caption = String::new();
    if !block.heading.is_empty() {
        caption.push_str(&format!("{}: ", block.heading));
    }
    caption.push_str(&format!("rows are {}", block.row_axis.as_deref().unwrap_or("cell")));
    if let Some(column) = &block.column_axis {
        caption.push_str(&format!(", columns are {column}"));
    }
    let of = |cell: usize| table.ratio(record, cell);
    Frame {
        name: format!("{} {}", table.title(), block.heading).trim(),
        block,
        caption: &caption,
        only: "ratio",
        large,
        ratios: true,
    }
    .put(
        out,
        |cell| of(cell).map(|ratio| class_of_tone(ratio.mark())),
        |out, cell| {
            if let Some(ratio) = of(cell) {
                face(out, (at, cell), &ratio);
            }
        },
    );
}

fn face(out: &mut Markup, (table, cell): (usize, usize), ratio: &Ratio<'_>) {
    let mark = ratio.mark();
    put!(out, "<a id=\"r" (table) "-" (cell) "\" href=\"#c" (cell)
        "\"><span class=\"k\">" (mark) "</span>");
    if let Some(value) = ratio.value() {
        put!(out, "<span class=\"r\">" (value) "</span>");
    }
    if let Some(interval) = ratio.interval() {
        put!(out, "<span class=\"between\">" (interval) "</span>");
    }
    if let Some(sees) = ratio.sees() {
        put!(out, "<span class=\"sees\">" (sees) "</span>");
    }
    put!(out, "</a>");
}

fn class_of_tone(mark: grid::Mark) -> &'static str {
    match mark.tone {
        Tone::Good => "pass",
        Tone::Bad if mark.sign == '·' => "unrun",
        Tone::Bad if mark.sign == '!' => "error",
        Tone::Bad => "fail",
        Tone::Doubtful => "unsure",
        Tone::Quiet => "measured",
    }
}
