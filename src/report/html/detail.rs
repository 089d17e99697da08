//! A cell in full: its verdict in words, limits with the lines that set them, figures with their
//! intervals, what was observed, checks, warnings, and the command that runs just this cell.
//!
//! Of a run with very many cells most are told in brief: see [`Extent`].

use crate::judge::{Bound, BoundVerdict, Severity, limit};
use crate::measure::metric::Stat;
use crate::measure::{Base, Fault, Metric, Observations};
use crate::record::RunRecord;
use crate::record::judgement::estimated;
use crate::record::run_record::{
    BoundJudgement, BoundRecord, CellOutcome, CellState, Measurement, PlannedCellRecord,
};
use crate::record::wording::{number, share};
use crate::report::ratio::Ratio;
use crate::report::sanitise::cut;
use crate::report::worst::Need;
use crate::report::{engine, figure, grid, message};

use super::heat::{limit_words, room_words};
use super::markup::{Markup, put};
use super::{class_of, spark, whole_numbers};

mod hardware;
mod rounds;

/// How much is told of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// Verdict, limits that are not clear, and how to run it again.
    Brief,
}

/// Bytes of a foreign text that a page repeats.
const MOST_TEXT: usize = 4_096;
/// Lines of a kind that are told of a cell.
const MOST_LINES: usize = 40;

/// The panel of a cell, which a link to `#c<index>` opens.
pub fn panel(out: &mut Markup, record: &RunRecord, at: usize, extent: Extent) {
    let outcome = &record.cells[at];
    put!(out, "<article class=\"cell "(class_of(outcome)));
    if Need::of(record, at).is_some() {
        put!(out, " eye");
    }
    match extent {
        Extent::Full => {
            put!(out, "\" id=\"c" (at) "\" tabindex=\"-1\" aria-labelledby=\"t" (at) "\">\n");
            full(out, record, at);
        }
        Extent::Brief => {
            put!(out, " brief\" id=\"c" (at) "\" tabindex=\"-1\" aria-labelledby=\"t" (at) "\">\n");
            brief(out, record, at);
        }
    }
    put!(out, "<pre class=\"command\"><code>" (message::rerun(record, &record.header.cells[at]))
        "</code></pre>\n</article>\n");
}

fn full(out: &mut Markup, record: &RunRecord, at: usize) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let mark = grid::mark(outcome);
    put!(out, "<header><a class=\"close\" href=\"#m" (at) "\">Close</a><p class=\"mark\">" (mark)
        "</p><h3 id=\"t" (at) "\">" (planned.test) "</h3><p class=\"axes\">");
    if let Some(variant) = &planned.variant {
        put!(out, "<span>variant <b>" (variant) "</b></span> ");
    }
    for (name, value) in &planned.axes {
        put!(out, "<span>" (name) " <b>" (value) "</b></span> ");
    }
    put!(out, "</p></header>\n");
    if let Some(said) = message::of_cell(outcome) {
        put!(out, "<p class=\"said\">" (whole_numbers(&said)) "</p>\n");
    }
    if let Some(word) = grid::explained(mark.word) {
        put!(out, "<p class=\"note\">" (mark.word) ": " (word) ".</p>\n");
    }
    bounds(out, planned, outcome);
    rounds::tell(out, record, at);
    if let Some(measured) = figure::measurement(outcome) {
        Cell { record, planned, outcome, measured }.tell(out);
    }
    hardware::tell(out, record, at);
    if let CellState::Broken { message, .. } = &outcome.state {
        let printed: Vec<&str> = message.lines().skip(1).collect();
        if !printed.is_empty() {
            put!(out, "<h4>What it printed</h4><pre>");
            out.lines(&cut(&printed.join("\n"), MOST_TEXT));
            put!(out, "</pre>\n");
        }
    }
    words(out, record, planned, outcome);
    put!(out, "<h4>Run this cell again</h4>");
}

/// In as few elements as it takes: ten thousand of these are read before a page is there.
fn brief(out: &mut Markup, record: &RunRecord, at: usize) {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    put!(out, "<a class=\"close\" href=\"#m" (at) "\">Close</a><h3 id=\"t" (at) "\">" (grid::mark(outcome)) " "
        (message::name(planned)) "</h3>");
    if let Some(said) = message::of_cell(outcome) {
        put!(out, "<p class=\"said\">" (whole_numbers(&said)) "</p>");
    }
    // What is clear is told by the verdict, and what decided has been said.
    let judged = planned.bounds.iter().zip(&outcome.judgement.bounds).enumerate();
    for (at, (bound, judged)) in judged {
        let clear = matches!(judged.verdict, BoundVerdict::Clear | BoundVerdict::Close);
        if clear || outcome.judgement.decided_by == Some(at) {
            continue;
        }
        let (tone, word) = bound_word(judged.verdict, bound.severity);
        put!(out, "<p class=\"" (tone) "\"><span class=\"k\">" (word) "</span> " (cut(&judged.message, 512)) "</p>");
    }
    put!(out, "\n");
}

/// Each limit on a cell with what came of it.
fn bounds(out: &mut Markup, planned: &PlannedCellRecord, outcome: &CellOutcome) {
    if planned.bounds.is_empty() {
        put!(out, "<p class=\"note\">Declared at <code>" (planned.place) "</code>; nothing is expected of it.</p>\n");
        return;
    }
    let mut drawn = false;
    put!(
        out,
        "<h4>Limits</h4><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Limits\"><table class=\"bounds\"><thead><tr><th scope=\"col\">verdict</th><th scope=\"col\">metric</th><th scope=\"col\" class=\"n\">value</th><th scope=\"col\" class=\"n\">limit</th><th scope=\"col\" class=\"n\">room</th><th scope=\"col\">interval</th></tr></thead>\n"
    );
    for (at, bound) in planned.bounds.iter().enumerate() {
        let judged = outcome.judgement.bounds.get(at);
        let estimate = judged.and_then(|judged| judged.estimate);
        let (tone, word) = judged.map_or(("quiet", "– not judged"), |judged| {
            bound_word(judged.verdict, bound.severity)
        });
        put!(out, "<tbody class=\"" (tone) "\"><tr><td class=\"k\">" (word) "</td><th scope=\"row\">" (bound.metric));
        if outcome.judgement.decided_by == Some(at) {
            put!(out, " <small>decided</small>");
        }
        put!(out, "</th>");
        match (estimate, &bound.bound) {
            (Some(estimate), Some(limits)) => {
                match judged.and_then(|judged| ratio_of(bound, judged)) {
                    Some(ratio) => {
                        put!(out, "<td class=\"n\">" (ratio.value().unwrap_or_default()) " of " (ratio.whose()));
                        if let Some(sees) = ratio.sees() {
                            put!(out, "<small> " (sees) "</small>");
                        }
                        put!(out, "</td>");
                    }
                    None => {
                        let unit = bound.metric.base.entry().unit;
                        put!(out, "<td class=\"n\">" (number(estimate.value)) " " (unit) "</td>");
                    }
                }
                limit_cell(out, limits);
                put!(out, "<td class=\"n\">" (room_words(estimate.value, limits)) "</td><td>");
                drawn = true;
                spark::gauge(out, &estimate, limits);
                if let (Some(low), Some(high)) = (estimate.lower, estimate.upper) {
                    let shown = if bound.relative.is_some() { share } else { number };
                    put!(out, "<small>" (shown(low)) " – " (shown(high)) "</small>");
                }
                put!(out, "</td>");
            }
            (None, Some(limits)) => {
                put!(out, "<td class=\"n\">—</td>");
                limit_cell(out, limits);
                put!(out, "<td></td><td></td>");
            }
            (_, None) => put!(out, "<td></td><td class=\"n\">over capacity</td><td></td><td></td>"),
        }
        put!(out, "</tr><tr><td></td><td class=\"place\" colspan=\"5\">set at <code>" (bound.place) "</code>");
        if let Some(name) = &bound.name {
            put!(out, " <small>" (name) "</small>");
        }
        put!(out, "</td></tr></tbody>\n");
    }
    put!(out, "</table></div>\n");
    if drawn {
        put!(
            out,
            "<p class=\"note\">Drawn: the estimate with its interval, the limit in red, what was asked for in grey.</p>\n"
        );
    }
}

fn ratio_of<'a>(record: &'a BoundRecord, judged: &'a BoundJudgement) -> Option<Ratio<'a>> {
    record.relative.as_ref().map(|relative| Ratio { record, relative, judged, waits: false })
}

/// The limit, and under it what was asked for, where slack is between the two.
fn limit_cell(out: &mut Markup, bound: &Bound) {
    put!(out, "<td class=\"n\">"(limit_words(bound)));
    if bound.target != bound.limit {
        put!(out, "<small> of " (number(bound.target)) " </small>");
    }
    put!(out, "</td>");
}

fn bound_word(verdict: BoundVerdict, severity: Severity) -> (&'static str, &'static str) {
    match (verdict, severity) {
        (BoundVerdict::Clear, _) => ("pass", "✓ clear"),
        (BoundVerdict::Close, _) => ("pass", "✓ close"),
        (BoundVerdict::Fail, Severity::Fail) => ("fail", "✗ fail"),
        (BoundVerdict::Inconclusive, Severity::Fail) => ("unsure", "? unsure"),
        (BoundVerdict::NoData, Severity::Fail) => ("error", "! no data"),
        (
            BoundVerdict::Fail | BoundVerdict::Inconclusive | BoundVerdict::NoData,
            Severity::Warn,
        ) => ("unsure", "! warning"),
        (
            BoundVerdict::Fail | BoundVerdict::Inconclusive | BoundVerdict::NoData,
            Severity::Report,
        ) => ("quiet", "○ beyond, only reported"),
    }
}

struct Cell<'a> {
    record: &'a RunRecord,
    planned: &'a PlannedCellRecord,
    outcome: &'a CellOutcome,
    measured: &'a Measurement,
}

impl Cell<'_> {
    fn tell(&self, out: &mut Markup) {
        self.observed(out);
        self.figures(out);
        self.checks(out);
        self.failures(out);
        self.engine(out);
    }

    /// What was observed, drawn: the headline in its order, gaps and first tokens by frequency.
    fn observed(&self, out: &mut Markup) {
        let observations = &self.measured.observations;
        let mut drawn = Vec::new();
        let bases = [Base::OutputThroughput, Base::PrefillThroughput, Base::RequestThroughput];
        for base in bases {
            match observations.get(&base) {
                Some(Observations::Batches { means, .. }) => drawn.push((base, means, "batches")),
                Some(Observations::Samples(samples)) => drawn.push((base, samples, "samples")),
                Some(_) | None => {}
            }
        }
        let distributed: Vec<(Base, f64, f64, Vec<f64>)> =
            [Base::Itl, Base::ChunkGap, Base::Ttft, Base::E2eLatency]
                .into_iter()
                .filter_map(|base| {
                    let (low, high, shares) = spark::distribution(observations.get(&base)?)?;
                    Some((base, low, high, shares))
                })
                .take(3)
                .collect();
        if drawn.is_empty() && distributed.is_empty() {
            return;
        }
        put!(out, "<h4>What was observed</h4><div class=\"sparks\">\n");
        for (base, values, what) in drawn {
            let entry = base.entry();
            let (low, high) = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
            put!(out, "<figure>");
            spark::series(out, values, self.limit(base));
            put!(out, "<figcaption><b>" (entry.name) "</b> in " (values.len()) " " (what) ", "
                (number(low)) " to " (number(high)) " " (entry.unit) "</figcaption></figure>\n");
        }
        for (base, low, high, shares) in distributed {
            let entry = base.entry();
            put!(out, "<figure>");
            spark::bars(out, &shares);
            let what = match base == Base::Itl {
                true => "gaps between tokens",
                false => entry.name,
            };
            put!(out, "<figcaption><b>" (what) "</b> from " (number(low)) " to " (number(high)) " "
                (entry.unit) ", by frequency</figcaption></figure>\n");
        }
        put!(out, "</div>\n");
    }

    /// The limit on a metric, where there is one and it has no suffix.
    fn limit(&self, base: Base) -> Option<f64> {
        let metric = Metric { base, stat: None, per_gpu: false };
        let bounds = self.planned.bounds.iter();
        let on = bounds.filter(|bound| bound.metric == metric && bound.relative.is_none());
        on.filter_map(|bound| Some(bound.bound?.limit)).next()
    }

    /// All figures: a line for each metric, latencies with their statistics beside each other.
    fn figures(&self, out: &mut Markup) {
        let all = figure::all(self.planned, self.outcome);
        let latency = |metric: &Metric| metric.base.entry().latency;
        let (latencies, plain): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|figure| latency(&figure.metric));
        if !plain.is_empty() {
            put!(
                out,
                "<h4>Figures</h4><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures\"><table class=\"figures\"><thead><tr><th scope=\"col\">metric</th><th scope=\"col\" class=\"n\">value</th><th scope=\"col\" class=\"n\">interval</th><th scope=\"col\">unit</th></tr></thead><tbody>\n"
            );
            for figure in &plain {
                put!(out, "<tr><th scope=\"row\">" (figure.metric) "</th><td class=\"n\">" (number(figure.value))
                    "</td><td class=\"n\">" (self.interval(figure.metric)) "</td><td>"
                    (figure.metric.base.entry().unit) "</td></tr>\n");
            }
            put!(out, "</tbody></table></div>\n");
        }
        if latencies.is_empty() {
            return;
        }
        put!(
            out,
            "<h4>Latencies</h4><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Latencies\"><table class=\"figures\"><thead><tr><th scope=\"col\">metric</th>"
        );
        for stat in Stat::ALL {
            put!(out, "<th scope=\"col\" class=\"n\">" (stat.name()) "</th>");
        }
        put!(out, "<th scope=\"col\">unit</th></tr></thead><tbody>\n");
        let mut bases: Vec<Base> = latencies.iter().map(|figure| figure.metric.base).collect();
        bases.dedup();
        for base in bases {
            let entry = base.entry();
            put!(out, "<tr><th scope=\"row\">" (entry.name) "</th>");
            for stat in Stat::ALL {
                let metric = Metric { base, stat: Some(stat), per_gpu: false };
                put!(out, "<td class=\"n\">");
                if let Some(figure) = latencies.iter().find(|figure| figure.metric == metric) {
                    put!(out, (number(figure.value)));
                    let interval = self.interval(metric);
                    if !interval.is_empty() {
                        put!(out, "<small>" (interval) "</small>");
                    }
                }
                put!(out, "</td>");
            }
            put!(out, "<td>" (entry.unit) "</td></tr>\n");
        }
        put!(out, "</tbody></table></div>\n");
        if let Some((sent, counted)) = self.measured.prompt_tokens {
            put!(out, "<p class=\"note\">Prompts of " (number(sent as f64)) " tokens");
            if let Some(counted) = counted {
                put!(out, ", " (number(counted as f64)) " as the server counted");
            }
            put!(out, "; " (number(self.measured.requests as f64)) " requests");
            put!(out, ".</p>\n");
        }
        if self.measured.extended {
            put!(
                out,
                "<p class=\"note\">Measured on once, since the first look was inconclusive.</p>\n"
            );
        }
    }

    /// `135.1 – 135.9`, at the level of the run.
    fn interval(&self, metric: Metric) -> String {
        let gpus = self.record.header.launches.get(self.planned.launch).map_or(1, |it| it.gpus);
        let policy = &self.record.header.policy;
        let found = estimated(self.planned, self.measured, policy, gpus, metric);
        match found.map(|estimate| (estimate.lower, estimate.upper)) {
            Some((Some(low), Some(high))) if low < high => {
                format!("{} – {}", number(low), number(high))
            }
            Some(_) | None => String::new(),
        }
    }

    fn checks(&self, out: &mut Markup) {
        if self.measured.checks.is_empty() {
            return;
        }
        put!(out, "<h4>Is the measurement valid?</h4><ul class=\"checks\">\n");
        for check in self.measured.checks.iter().take(MOST_LINES) {
            let (tone, word) = match check.fault {
                None => ("pass", "✓"),
                Some(Fault::Invalid) => ("error", "! invalid"),
                Some(Fault::Degraded) => ("fail", "✗ degraded"),
                Some(Fault::Drifting) => ("unsure", "? drifting"),
                Some(Fault::Notice) => ("quiet", "○ notice"),
            };
            put!(out, "<li class=\"" (tone) "\"><span class=\"k\">" (word) "</span> "
                (cut(&check.message, MOST_TEXT)) "</li>\n");
        }
        put!(out, "</ul>\n");
    }

    fn failures(&self, out: &mut Markup) {
        if self.measured.failures.is_empty() {
            return;
        }
        put!(out, "<h4>Failed requests</h4><ul>\n");
        for (class, (n, message)) in &self.measured.failures {
            put!(out, "<li>" (n) " × " (message::class_name(*class)) ": " (cut(message, MOST_TEXT)) "</li>\n");
        }
        put!(out, "</ul>\n");
    }

    fn engine(&self, out: &mut Markup) {
        let said = engine::properties(self.outcome);
        if said.is_empty() {
            return;
        }
        put!(out, "<h4>What the engine's metrics said meanwhile</h4>");
        if let Some(words) = engine::words(self.outcome) {
            put!(out, "<p>" (words) "</p>");
        }
        put!(out, "<dl class=\"counters\">\n");
        for (name, value) in said {
            put!(out, "<div><dt>" (name.trim_start_matches("engine.")) "</dt><dd>" (number(value)) "</dd></div>\n");
        }
        put!(out, "</dl>\n");
    }
}

/// Warnings, the quarantine, where the cell stands and on what it ran.
fn words(out: &mut Markup, record: &RunRecord, planned: &PlannedCellRecord, outcome: &CellOutcome) {
    let warnings = message::cell_warnings(outcome);
    let warnings: Vec<&String> = warnings.take(MOST_LINES).collect();
    if !warnings.is_empty() {
        put!(out, "<h4>Warnings</h4><ul>\n");
        for warning in warnings {
            put!(out, "<li>" (cut(warning, MOST_TEXT)) "</li>\n");
        }
        put!(out, "</ul>\n");
    }
    if let Some(quarantine) = &planned.quarantine {
        put!(out, "<h4>Quarantine</h4><p>Until " (quarantine.expires) ": " (cut(&quarantine.reason, MOST_TEXT)));
        if let Some(issue) = &quarantine.issue {
            put!(out, " (");
            super::link(out, issue);
            put!(out, ")");
        }
        if let Some(most) = quarantine.max_loss {
            put!(out, "; covers a loss of " (number(most * 100.0)) " % at most");
        }
        put!(out, ". Set at <code>" (quarantine.place) "</code>.</p>\n");
        if let Some(lost) = lost(planned, outcome) {
            put!(out, "<p class=\"note\">Lost now: " (number(lost * 100.0)) " %.</p>\n");
        }
    }
    let launch = record.header.launches.get(planned.launch).map_or("", |launch| &launch.name);
    put!(out, "<p class=\"note\">Test at <code>" (planned.place) "</code>, on <a href=\"#launch-"
        (planned.launch) "\">launch " (launch) "</a>");
    if outcome.seconds > 0.0 {
        put!(out, ", "(crate::report::count::elapsed(outcome.seconds)));
    }
    put!(out, ".</p>\n");
}

fn lost(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Option<f64> {
    let at = outcome.judgement.decided_by?;
    let value = outcome.judgement.bounds.get(at)?.estimate?.value;
    limit::loss(value, &planned.bounds.get(at)?.bound?).filter(|lost| *lost > 0.0)
}
