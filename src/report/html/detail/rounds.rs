//! The launches of a cell that is measured in several: what each gave, and in pairs the ratios, as a table
//! and drawn.

use crate::measure::Metric;
use crate::record::RunRecord;
use crate::record::run_record::{BoundRecord, CellState};
use crate::record::wording::number;
use crate::report::html::markup::{Markup, put};
use crate::report::html::plot::pairs::{Ratios, Values};
use crate::report::html::{compare, heat};
use crate::report::message;
use crate::report::ratio::{self, Ratio};
use crate::report::rounds::{self, Paired};

/// A metric of the cell, by launch.
struct Series {
    metric: Metric,
    values: Vec<Option<f64>>,
    pairs: Vec<Paired>,
}

/// Tells the launches of a cell, if it is measured in several.
pub fn tell(out: &mut Markup, record: &RunRecord, at: usize) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    if outcome.rounds.is_empty() {
        return;
    }
    let paired = |metric: Metric| -> Vec<Paired> {
        let bounds = planned.bounds.iter().filter(|bound| bound.metric == metric);
        let variant = bounds.filter_map(variant_of).next();
        variant.map(|variant| rounds::pairs(record, at, variant, metric)).unwrap_or_default()
    };
    let series: Vec<Series> = rounds::told(planned, outcome)
        .into_iter()
        .map(|metric| Series {
            metric,
            values: rounds::values(record, at, metric),
            pairs: paired(metric),
        })
        .filter(|one| one.values.iter().any(Option::is_some))
        .collect();
    put!(out, "<h4>Launches</h4>\n");
    if let Some(partial) = rounds::partial(outcome) {
        put!(out, "<p class=\"note\">" (partial) ".</p>\n");
    }
    // Pairs take a table each, what has no other side stands in one.
    let (paired, alone): (Vec<&Series>, Vec<&Series>) =
        series.iter().partition(|one| !one.pairs.is_empty());
    for one in paired {
        table(out, record, at, &[one]);
    }
    if !alone.is_empty() || series.is_empty() {
        table(out, record, at, &alone);
    }
    drawings(out, record, at, &series);
}

fn variant_of(bound: &BoundRecord) -> Option<&crate::record::run_record::VariantRecord> {
    bound.relative.as_ref()?.variant.as_ref().filter(|variant| variant.paired)
}

fn table(out: &mut Markup, record: &RunRecord, at: usize, series: &[&Series]) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let whose = planned.bounds.iter().filter_map(variant_of).next();
    let whose = whose.map_or("", |variant| variant.name.as_str());
    let own = planned.variant.as_deref().unwrap_or_default();
    let orders = series.iter().map(|one| &one.pairs).find(|pairs| !pairs.is_empty());
    let compare = record.header.compare.as_ref();
    let troubled =
        outcome.rounds.iter().any(|round| !matches!(round.state, CellState::Measured(_)));
    put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Launches");
    if let (Some(_), Some(one)) = (orders, series.first()) {
        put!(out, ", " (one.metric) "\"><table class=\"figures\"><caption>" (heat::title(one.metric)) "</caption>");
    } else {
        put!(out, "\"><table class=\"figures\">");
    }
    put!(out, "<thead><tr><th scope=\"col\" class=\"n\">launch</th>");
    if orders.is_some() {
        put!(out, "<th scope=\"col\">measured first</th>");
    }
    for one in series {
        if one.pairs.is_empty() {
            put!(out, "<th scope=\"col\" class=\"n\">" (heat::title(one.metric)) "</th>");
        } else {
            put!(out, "<th scope=\"col\" class=\"n\">" (whose) "</th><th scope=\"col\" class=\"n\">" (own)
                "</th><th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"n\">its logarithm</th>");
        }
    }
    if troubled {
        put!(out, "<th scope=\"col\">what came of it</th>");
    }
    put!(out, "</tr></thead><tbody>\n");
    let shown = |value: Option<f64>| value.map_or_else(|| "—".to_owned(), number);
    for (index, round) in outcome.rounds.iter().enumerate() {
        put!(out, "<tr><th scope=\"row\" class=\"n\">" (index + 1) "</th>");
        if let Some(pairs) = orders {
            let first = pairs.get(index).zip(compare).map(|(pair, it)| it.first(pair.order));
            put!(out, "<td>" (first.unwrap_or_default()) "</td>");
        }
        for one in series {
            let pair = one.pairs.get(index);
            if let Some(pair) = pair {
                put!(out, "<td class=\"n\">" (shown(pair.baseline)) "</td>");
            }
            put!(out, "<td class=\"n\">" (shown(one.values.get(index).copied().flatten())) "</td>");
            if let Some(pair) = pair {
                let ratio = pair.log_ratio.map(|log| format!("{:.4}", log.exp()));
                let log = pair.log_ratio.map(|log| format!("{log:+.4}").replace('-', "−"));
                put!(out, "<td class=\"n\">" (ratio.unwrap_or_else(|| "—".to_owned()))
                    "</td><td class=\"n\">" (log.unwrap_or_else(|| "—".to_owned())) "</td>");
            }
        }
        if troubled {
            let words = match &round.state {
                CellState::Measured(_) => "measured".to_owned(),
                CellState::NotRun { reason } => message::one_line(reason),
                CellState::Unfit { message, .. } | CellState::Broken { message, .. } => {
                    message::one_line(message.lines().next().unwrap_or_default())
                }
            };
            put!(out, "<td>" (words) "</td>");
        }
        put!(out, "</tr>\n");
    }
    put!(out, "</tbody></table></div>\n");
}

fn drawings(out: &mut Markup, record: &RunRecord, at: usize, series: &[Series]) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let ratio_in = |metric: Metric| -> Option<Ratio<'_>> {
        ratio::of(planned, outcome).find(|it| it.record.metric == metric)
    };
    let mut drawn = Markup::default();
    let mut words = Markup::default();
    for one in series {
        let theirs: Vec<Option<f64>> = one.pairs.iter().map(|pair| pair.baseline).collect();
        let values = Values { own: &one.values, theirs: &theirs };
        if let Some(drawing) = values.draw() {
            put!(drawn, "<figure class=\"plot\"><figcaption>" (heat::title(one.metric)) " by launch</figcaption><div role=\"img\" aria-label=\"Chart: "
                (one.metric) " by launch. The table above has its figures.\">");
            drawn.drawing(&drawing);
            put!(drawn, "</div></figure>\n");
        }
        let pairs: Vec<_> =
            one.pairs.iter().filter_map(|pair| Some((pair.order, pair.log_ratio?.exp()))).collect();
        let found = ratio_in(one.metric);
        let mean = found.and_then(|it| it.estimate());
        let limit = found.and_then(|it| it.record.bound).map(|bound| bound.limit);
        if let Some(drawing) = (Ratios { pairs: &pairs, mean, limit }).draw() {
            put!(drawn, "<figure class=\"plot\"><figcaption>Ratio of each pair</figcaption><div role=\"img\" aria-label=\"Chart: the ratio of each pair in "
                (one.metric) ". The table above has its figures.\">");
            drawn.drawing(&drawing);
            put!(drawn, "</div></figure>\n");
            if let (Some(variant), Some(own), 0) =
                (planned.bounds.iter().find_map(variant_of), &planned.variant, words.len())
            {
                put!(words, "<p class=\"note\">By launch: filled is " (own) ", hollow is " (variant.name) ".</p>\n");
                compare::chart_words(&mut words, (&variant.name, own), limit.is_some());
            }
        }
    }
    if drawn.len() > 0 {
        put!(out, "<div class=\"plots\">\n");
        out.append(&drawn);
        put!(out, "</div>\n");
        out.append(&words);
    }
}
