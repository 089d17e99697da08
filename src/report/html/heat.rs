//! The cells of a test as a heat map: rows and columns as on a result page, one table for each value
//! of the other axes; as a list where a test has no two axes.
//!
//! Each cell shows a figure, its limit with the room to it, the time to the first token, and its
//! verdict by sign and word. Which figure is shown is switched by a group of radio buttons and style
//! alone; where styles don't know how, the first one is.

use crate::judge::{Bound, Side, Verdict, limit};
use crate::measure::metric::Stat;
use crate::measure::{Base, Metric, TestKind};
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, PlannedCellRecord};
use crate::record::wording::number;
use crate::report::grid::{self, Block, Sheet};
use crate::report::{figure, rounds};

use super::class_of;
use super::markup::{Markup, put};
use super::matrix::{Frame, LARGE};

/// Figures that a heat map can be switched to; of a large test only as many as [`FEW`].
const MOST: usize = 6;
const FEW: usize = 2;
/// Lines of a band of a large list.
const BAND: usize = 50;
/// Shades of a heat map.
const SHADES: f64 = 8.0;

/// What the tables of a test show.
pub struct Shown {
    /// The figures, the first one to begin with.
    pub metrics: Vec<Metric>,
    /// Least and greatest value of each over the test.
    ranges: Vec<(f64, f64)>,
    /// Whether there are very many cells.
    large: bool,
}

impl Shown {
    /// Chooses the figures of a sheet: what the test is for, what is expected of it, what tells more.
    pub fn of(record: &RunRecord, sheet: &Sheet) -> Shown {
        let cells: Vec<usize> = cells(sheet).collect();
        let mut wanted: Vec<Metric> = vec![sheet.headline.first];
        wanted.extend(sheet.headline.second);
        for cell in &cells {
            wanted.extend(record.header.cells[*cell].bounds.iter().map(|bound| bound.metric));
            if wanted.len() > 64 {
                break;
            }
        }
        wanted.extend(more(sheet.kind));
        let large = cells.len() > LARGE;
        let most = if large { FEW } else { MOST };
        let mut shown = Shown { metrics: Vec::new(), ranges: Vec::new(), large };
        for metric in wanted {
            if shown.metrics.contains(&metric) || shown.metrics.len() >= most {
                continue;
            }
            let values = cells.iter().filter_map(|cell| {
                let found = figure::one(&record.header.cells[*cell], &record.cells[*cell], metric)?;
                found.value.is_finite().then_some(found.value)
            });
            let range = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            // A figure that no cell has is shown only as the one that all lack.
            if range.0 <= range.1 || shown.metrics.is_empty() {
                shown.metrics.push(metric);
                shown.ranges.push(range);
            }
        }
        shown
    }

    /// The shade of a value: 0 for the least of the test, in steps of equal ratio.
    fn shade(&self, at: usize, value: f64) -> usize {
        let (low, high) = self.ranges[at];
        let share = if low > 0.0 && high > low {
            (value / low).ln() / (high / low).ln()
        } else if high > low {
            (value - low) / (high - low)
        } else {
            0.0
        };
        (share * SHADES).clamp(0.0, SHADES).round() as usize
    }
}

/// The cells of a sheet.
pub fn cells(sheet: &Sheet) -> impl Iterator<Item = usize> {
    sheet.blocks.iter().flat_map(|block| block.cells.iter().flatten().flatten().copied())
}

/// Figures worth a map of their own.
fn more(kind: TestKind) -> Vec<Metric> {
    let plain = |base| Metric { base, stat: None, per_gpu: false };
    let of = |base, stat| Metric { base, stat: Some(stat), per_gpu: false };
    match kind {
        TestKind::Decode => vec![
            plain(Base::PerRequestThroughput),
            of(Base::Itl, Stat::P50),
            of(Base::Itl, Stat::P99),
            of(Base::Tpot, Stat::P50),
        ],
        TestKind::Serve => vec![
            of(Base::E2eLatency, Stat::P50),
            of(Base::Tpot, Stat::P50),
            plain(Base::RequestThroughput),
            plain(Base::Goodput),
        ],
        TestKind::Prefill | TestKind::Startup | TestKind::Command => vec![],
    }
}

/// A metric's name with its unit: `output-throughput, tok/s`.
pub fn title(metric: Metric) -> String {
    match metric.base.entry().unit {
        "" => metric.to_string(),
        unit => format!("{metric}, {unit}"),
    }
}

/// The tables of a sheet.
pub fn sheet(out: &mut Markup, record: &RunRecord, sheet: &Sheet, shown: &Shown, test: usize) {
    let switched = sheet.blocks.iter().any(|block| block.column_axis.is_some());
    if switched && shown.metrics.len() > 1 {
        put!(out, "<fieldset class=\"switch\"><legend>Show</legend>");
        for (at, metric) in shown.metrics.iter().enumerate() {
            put!(
                out,
                "<input type=\"radio\" name=\"metric-" (test) "\" class=\"s" (at) "\" id=\"metric-"
                (test) "-" (at) "\""
            );
            out.tag(if at == 0 { " checked>" } else { ">" });
            put!(out, "<label for=\"metric-" (test) "-" (at) "\">" (title(*metric)) "</label>");
        }
        put!(out, "</fieldset>\n");
    }
    for block in &sheet.blocks {
        if !block.heading.is_empty() {
            put!(out, "<h3 class=\"block\">" (block.heading) "</h3>\n");
        }
        if block.column_axis.is_some() {
            matrix(out, record, sheet, block, shown);
        } else {
            list(out, record, sheet, block, shown);
        }
    }
    legend(out, record, sheet, switched);
}

/// What stands in a cell, and what the words of its verdicts mean.
fn legend(out: &mut Markup, record: &RunRecord, sheet: &Sheet, switched: bool) {
    let mut marks: Vec<grid::Mark> = Vec::new();
    for cell in cells(sheet) {
        let mark = grid::mark(&record.cells[cell]);
        if grid::explained(mark.word).is_some() && !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    if !switched && marks.is_empty() {
        return;
    }
    put!(out, "<p class=\"legend\">");
    if switched {
        put!(
            out,
            "<span>In a cell: verdict and value, limit and room to it, median time to first token (TTFT). Darker is more.</span>"
        );
    }
    for mark in marks {
        put!(out, "<span>" (mark) ": " (grid::explained(mark.word).unwrap_or_default()) ".</span>");
    }
    put!(out, "</p>\n");
}

fn matrix(out: &mut Markup, record: &RunRecord, sheet: &Sheet, block: &Block, shown: &Shown) {
    let row_axis = block.row_axis.as_deref().unwrap_or_default();
    let column_axis = block.column_axis.as_deref().unwrap_or_default();
    Frame {
        name: format!("{} {}", sheet.test, block.heading).trim(),
        block,
        caption: &format!("Rows are {row_axis}, columns are {column_axis}"),
        only: "",
        large: shown.large,
        ratios: false,
    }
    .put(
        out,
        |at| Some(class_of(&record.cells[at])),
        |out, at| face(out, record, at, sheet, shown),
    );
}

/// What stands in a cell of the map.
fn face(out: &mut Markup, record: &RunRecord, at: usize, sheet: &Sheet, shown: &Shown) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    put!(out, "<a id=\"m" (at) "\" href=\"#c" (at) "\">");
    let mark = grid::mark(outcome);
    put!(out, "<span class=\"k\">" (mark) "</span>");
    if figure::measurement(outcome).is_some() {
        for (which, metric) in shown.metrics.iter().enumerate() {
            let found = figure::one(planned, outcome, *metric).filter(|f| f.value.is_finite());
            let Some(found) = found else {
                put!(out, "<span class=\"v m" (which) "\"><b>—</b></span>");
                continue;
            };
            let shade = shown.shade(which, found.value);
            put!(out, "<span class=\"v m" (which) " h" (shade) "\"><b>" (short(*metric, found.value)) "</b>");
            match nearest(planned, outcome, *metric) {
                Some((limit, room)) if shown.large => {
                    put!(out, "<i>" (limit) " &ensp;" (room) "</i>");
                }
                Some((limit, room)) => put!(out, "<i>" (limit) "</i><i>" (room) "</i>"),
                None => {}
            }
            put!(out, "</span>");
        }
        let second = sheet.headline.second;
        let below = second.and_then(|second| figure::one(planned, outcome, second));
        if let Some(below) = below.filter(|found| found.value.is_finite()) {
            put!(out, "<span class=\"t\">" (short(below.metric, below.value)) " " (below.metric.base.entry().unit));
            if below.metric.base == Base::Ttft {
                put!(out, " TTFT");
            }
            put!(out, "</span>");
        }
        if let Some(spread) = rounds::spread(record, at, sheet.headline.first) {
            put!(out, "<span class=\"l\">" (spread) "</span>");
        }
        // What is not in order may be so by another figure than those in sight.
        if let Some((metric, room)) = decided_by_another(planned, outcome, shown) {
            put!(out, "<span class=\"d\">" (metric) " " (room) "</span>");
        }
    }
    if figure::measurement(outcome).is_none()
        && let Some(spread) = rounds::spread(record, at, sheet.headline.first)
    {
        put!(out, "<span class=\"l\">" (spread) "</span>");
    }
    put!(out, "</a>");
}

/// The metric that decided on a cell which is not in order, with the room to its limit, where it is not
/// the one that the map begins with.
fn decided_by_another(
    planned: &PlannedCellRecord,
    outcome: &CellOutcome,
    shown: &Shown,
) -> Option<(Metric, String)> {
    let judgement = &outcome.judgement;
    if !matches!(judgement.verdict, Verdict::Fail | Verdict::Inconclusive | Verdict::Xfail) {
        return None;
    }
    let bound = planned.bounds.get(judgement.decided_by?)?;
    if shown.metrics.first() == Some(&bound.metric) || bound.relative.is_some() {
        return None;
    }
    let value = judgement.bounds.get(judgement.decided_by?)?.estimate?.value;
    Some((bound.metric, room_words(value, &bound.bound?)))
}

/// A line for each cell, a column for each figure.
fn list(out: &mut Markup, record: &RunRecord, sheet: &Sheet, block: &Block, shown: &Shown) {
    let name = format!("{} {}", sheet.test, block.heading);
    let large = shown.large;
    let spreads =
        block.cells.iter().flatten().flatten().any(|at| !record.cells[*at].rounds.is_empty());
    put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" (name.trim()) "\">");
    let band = if large { BAND } else { block.rows.len().max(1) };
    for (rows, cells) in block.rows.chunks(band).zip(block.cells.chunks(band)) {
        if large {
            put!(out, "<div class=\"band\"><table class=\"list matrix large\">\n");
        } else {
            put!(out, "<table class=\"list matrix\">\n");
        }
        list_head(out, block, shown, spreads);
        for (row, cells) in rows.iter().zip(cells) {
            for at in cells.iter().flatten() {
                list_row(out, record, (*at, row), sheet, shown, spreads);
            }
        }
        put!(out, "</tbody></table>");
        if large {
            put!(out, "</div>");
        }
    }
    put!(out, "</div>\n");
}

fn list_head(out: &mut Markup, block: &Block, shown: &Shown, spreads: bool) {
    let axis = block.row_axis.as_deref().unwrap_or("cell");
    put!(out, "<caption>By " (axis) "</caption>\n<thead><tr><th scope=\"col\">" (axis)
        "</th><th scope=\"col\">verdict</th>");
    for metric in &shown.metrics {
        put!(out, "<th scope=\"col\" class=\"n\">" (title(*metric)) "</th>");
    }
    if spreads {
        put!(out, "<th scope=\"col\">launches</th>");
    }
    put!(out, "</tr></thead>\n<tbody>\n");
}

fn list_row(
    out: &mut Markup,
    record: &RunRecord,
    (at, row): (usize, &str),
    sheet: &Sheet,
    shown: &Shown,
    spreads: bool,
) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    put!(
        out,
        "<tr class=\"" (class_of(outcome)) "\"><th scope=\"row\"><a id=\"m" (at) "\" href=\"#c" (at)
        "\">" (row) "</a></th><td class=\"k\">" (grid::mark(outcome)) "</td>"
    );
    for (which, metric) in shown.metrics.iter().enumerate() {
        let found = figure::one(planned, outcome, *metric).filter(|f| f.value.is_finite());
        let Some(found) = found else {
            put!(out, "<td class=\"n\"></td>");
            continue;
        };
        let shade = shown.shade(which, found.value);
        put!(out, "<td class=\"n h" (shade) "\"><b>" (short(*metric, found.value)) "</b>");
        if let Some((limit, room)) = nearest(planned, outcome, *metric) {
            put!(out, " <i>" (limit) "</i> <i>" (room) "</i>");
        }
        put!(out, "</td>");
    }
    if spreads {
        let spread = rounds::spread(record, at, sheet.headline.first);
        put!(out, "<td class=\"launches\">" (spread.unwrap_or_default()) "</td>");
    }
    put!(out, "</tr>\n");
}

/// A figure as short as three or four digits allow; milliseconds are whole from 10 on.
fn short(metric: Metric, value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1_000.0 => 0,
        v if v >= 9.95 && metric.base.entry().latency => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    figure::column(value, decimals)
}

/// The limit on a metric with the least room, and that room: `≥ 6 937`, `+5.3 %`.
fn nearest(
    planned: &PlannedCellRecord,
    outcome: &CellOutcome,
    metric: Metric,
) -> Option<(String, String)> {
    let judged = planned.bounds.iter().zip(&outcome.judgement.bounds);
    let (bound, value, _) = judged
        // Ratios stand in tables of their own.
        .filter(|(record, _)| record.metric == metric && record.relative.is_none())
        .filter_map(|(record, judged)| {
            let (bound, value) = (record.bound?, judged.estimate?.value);
            Some((bound, value, limit::room(value, &bound)))
        })
        .min_by(|a, b| a.2.total_cmp(&b.2))?;
    let sign = side_sign(bound.side);
    Some((format!("{sign} {}", short(metric, bound.limit)), room_words(value, &bound)))
}

/// `≥ 6 936.9`.
pub fn limit_words(bound: &Bound) -> String {
    format!("{} {}", side_sign(bound.side), number(bound.limit))
}

fn side_sign(side: Side) -> char {
    match side {
        Side::Min => '≥',
        Side::Max => '≤',
    }
}

/// The room to a limit as a share of it, with its sign; of a limit of zero as it is.
pub fn room_words(value: f64, bound: &Bound) -> String {
    let room = limit::room(value, bound);
    let (size, unit) = if bound.limit == 0.0 { (room, "") } else { (room * 100.0, " %") };
    let digits = if size.abs() >= 100.0 { 0 } else { 1 };
    let text = figure::column(size.abs(), digits);
    let none = text.chars().all(|c| c == '0' || c == '.');
    let sign = match (none, size < 0.0) {
        (true, _) => "±",
        (false, true) => "−",
        (false, false) => "+",
    };
    format!("{sign}{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_said_with_its_sign() {
        let floor = Bound { side: Side::Min, target: 100.0, limit: 95.0 };
        let ceiling = Bound { side: Side::Max, target: 0.0, limit: 0.0 };
        assert_eq!(limit_words(&floor), "≥ 95");
        for (value, text) in
            [(95.0, "±0.0 %"), (94.0, "−1.1 %"), (100.0, "+5.3 %"), (300.0, "+216 %")]
        {
            assert_eq!(room_words(value, &floor), text);
        }
        assert_eq!(
            (limit_words(&ceiling), room_words(2.5, &ceiling)),
            ("≤ 0".into(), "−2.5".into())
        );
    }

    #[test]
    fn shades_go_by_ratio() {
        let ranges = vec![(1.0, 256.0), (0.0, 8.0), (5.0, 5.0)];
        let shown = Shown { metrics: vec![], ranges, large: false };
        let shades = [1.0, 16.0, 256.0, f64::MAX].map(|value| shown.shade(0, value));
        assert_eq!(shades, [0, 4, 8, 8]);
        assert_eq!((shown.shade(1, 2.0), shown.shade(2, 5.0)), (2, 0));
    }
}
