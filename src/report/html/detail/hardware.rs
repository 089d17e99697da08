//! The hardware while a cell was measured: what was not in order, each quantity drawn over the time with a
//! line for each GPU, and a table with the figures of the lines.

use crate::hardware::telemetry::{GpuTelemetry, Series, Telemetry};
use crate::quantity::print_number;
use crate::record::RunRecord;
use crate::record::run_record::{CellOutcome, Suspected};
use crate::report::hardware::{gibibytes, reasons, stretches, words};
use crate::report::html::markup::{Markup, put};
use crate::report::html::spark::{self, Strand};
use crate::report::sanitise::cut;
use crate::report::worst::Need;

use super::{MOST_LINES, MOST_TEXT};

/// Cells of a run up to which each is drawn; of larger runs those that need an eye or are suspect.
const MOST_DRAWN: usize = 400;
/// GPUs that are drawn and listed.
const MOST_GPUS: usize = 16;
/// Launches that are drawn.
const MOST_LAUNCHES: usize = 8;
/// Lines have colours of their own as far as there are any.
const COLOURS: usize = 8;

/// A series of the host.
type OfHost = for<'t> fn(&'t Telemetry) -> Option<&'t Series>;
const GIB: f64 = (1u64 << 30) as f64;

/// A quantity that is drawn.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// The top of the drawing, where it does not follow from the values.
    top: Option<f64>,
    of: fn(&GpuTelemetry) -> Option<&Series>,
    /// What one of its unit is in those of the record.
    per: f64,
}

const QUANTITIES: [Quantity; 5] = [
    Quantity { name: "power", unit: "W", top: None, of: |gpu| gpu.power.as_ref(), per: 1.0 },
    Quantity {
        name: "SM clock",
        unit: "MHz",
        top: None,
        of: |gpu| gpu.sm_clock.as_ref(),
        per: 1.0,
    },
    Quantity {
        name: "temperature",
        unit: "°C",
        top: Some(100.0),
        of: |gpu| gpu.temperature.as_ref(),
        per: 1.0,
    },
    Quantity {
        name: "utilisation",
        unit: "%",
        top: Some(100.0),
        of: |gpu| gpu.utilisation.as_ref(),
        per: 1.0,
    },
    Quantity {
        name: "GPU memory",
        unit: "GiB",
        top: None,
        of: |gpu| gpu.memory.as_ref(),
        per: GIB,
    },
];

/// Tells the hardware of a cell, if anything was seen of it.
pub fn tell(out: &mut Markup, record: &RunRecord, at: usize) {
    let outcome = &record.cells[at];
    let seen = stretches(outcome);
    let Some(said) = words(outcome) else { return };
    put!(out, "<h4>The hardware meanwhile</h4>\n");
    suspects(out, outcome);
    put!(out, "<p>" (cut(&said, MOST_TEXT)) "</p>\n");
    let few = record.cells.len() <= MOST_DRAWN;
    if few || !outcome.judgement.suspects.is_empty() || Need::of(record, at).is_some() {
        drawings(out, &seen);
        if let [one] = seen.as_slice() {
            table(out, one);
        }
    }
    let notes: Vec<&String> = seen.iter().flat_map(|one| &one.notes).take(MOST_LINES).collect();
    for note in notes {
        put!(out, "<p class=\"note\">" (cut(note, MOST_TEXT)) "</p>\n");
    }
}

fn suspects(out: &mut Markup, outcome: &CellOutcome) {
    let suspects = &outcome.judgement.suspects;
    if suspects.is_empty() {
        return;
    }
    put!(out, "<ul class=\"checks\">\n");
    for Suspected { round, suspicion } in suspects.iter().take(MOST_LINES) {
        put!(
            out,
            "<li class=\"unsure\"><span class=\"k\">! suspect</span> "(cut(
                &suspicion.words,
                MOST_TEXT
            ))
        );
        if let Some(round) = round {
            put!(out, " <small>in launch " (round + 1) "</small>");
        }
        put!(out, "</li>\n");
    }
    put!(out, "</ul>\n");
}

/// A drawing for each quantity that anything is known of. Launches stand beside each other.
fn drawings(out: &mut Markup, seen: &[&Telemetry]) {
    let seen = &seen[..seen.len().min(MOST_LAUNCHES)];
    let mut drawn = Markup::default();
    for quantity in &QUANTITIES {
        let of = quantity.of;
        let lines = seen.iter().enumerate().flat_map(|(launch, one)| {
            let gpus = one.gpus.iter().take(MOST_GPUS).enumerate();
            gpus.filter_map(move |(line, gpu)| Some((launch, line, of(gpu)?)))
        });
        let lines: Vec<(usize, usize, &Series)> = lines.collect();
        figure(&mut drawn, quantity, seen.len(), &lines);
    }
    let hosts: [(&'static str, &'static str, Option<f64>, f64, OfHost); 2] = [
        ("host CPU", "%", Some(100.0), 1.0, |one| one.host.cpu.as_ref()),
        ("host memory", "GiB", None, GIB, |one| one.host.memory.as_ref()),
    ];
    for (name, unit, top, per, of) in hosts {
        let lines = seen.iter().enumerate();
        let lines: Vec<(usize, usize, &Series)> =
            lines.filter_map(|(launch, one)| Some((launch, 0, of(one)?))).collect();
        let quantity = Quantity { name, unit, top, of: |_| None, per };
        figure(&mut drawn, &quantity, seen.len(), &lines);
    }
    if drawn.len() == 0 {
        return;
    }
    put!(out, "<div class=\"sparks\">\n");
    out.append(&drawn);
    put!(out, "</div>\n");
    put!(out, "<p class=\"note\">Drawn over the time, from 0 at the bottom");
    if seen.iter().any(|one| one.gpus.len() > 1) {
        put!(out, ", a line for each GPU");
        if seen.len() == 1 {
            put!(out, " in its colour below");
        }
    }
    if seen.len() > 1 {
        put!(out, "; its launches stand beside each other, in their order");
    }
    put!(out, ".</p>\n");
}

fn figure(
    out: &mut Markup,
    quantity: &Quantity,
    launches: usize,
    lines: &[(usize, usize, &Series)],
) {
    if !lines.iter().any(|(_, _, series)| !series.points.is_empty()) {
        return;
    }
    let (low, high) = lines.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
        (low.min(it.2.min), high.max(it.2.max))
    });
    let strands: Vec<Strand<'_>> = lines
        .iter()
        .map(|(launch, line, series)| Strand {
            colour: line % COLOURS,
            from: *launch as f64 / launches as f64,
            to: (launch + 1) as f64 / launches as f64,
            points: &series.points,
        })
        .collect();
    let top = quantity.top.map_or(high, |top| top.max(high));
    put!(out, "<figure>");
    spark::strands(out, &strands, top);
    let shown = |value: f64| {
        print_number(value / quantity.per, if value / quantity.per < 10.0 { 1 } else { 0 })
    };
    put!(out, "<figcaption><b>" (quantity.name) "</b> ");
    if shown(low) == shown(high) {
        put!(out, (shown(high)));
    } else {
        put!(out, (shown(low)) " to " (shown(high)));
    }
    put!(out, " " (quantity.unit) "</figcaption></figure>\n");
}

/// The figures of each GPU, and what held its clocks back.
fn table(out: &mut Markup, seen: &Telemetry) {
    if seen.gpus.is_empty() {
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"GPUs\"><table class=\"figures gpus\"><thead><tr><th scope=\"col\">GPU</th><th scope=\"col\" class=\"n\">power</th><th scope=\"col\" class=\"n\">SM clock</th><th scope=\"col\" class=\"n\">hottest</th><th scope=\"col\" class=\"n\">busy</th><th scope=\"col\" class=\"n\">memory, most</th><th scope=\"col\">held back, of the time</th></tr></thead><tbody>\n"
    );
    for (line, gpu) in seen.gpus.iter().take(MOST_GPUS).enumerate() {
        put!(out, "<tr><th scope=\"row\"><span class=\"swatch g" (line % COLOURS) "\"></span> " (gpu.index) " <small>"
            (cut(&gpu.name, 128)) "</small></th>");
        let with = |value: f64, unit: &str| format!("{} {unit}", print_number(value, 0));
        let mut cell = |value: Option<String>, least: Option<String>| {
            put!(out, "<td class=\"n\">"(value.unwrap_or_else(|| "—".to_owned())));
            if let Some(least) = least {
                put!(out, " <small>least " (least) "</small>");
            }
            put!(out, "</td>");
        };
        cell(gpu.power.as_ref().map(|it| with(it.mean, "W")), None);
        let least = |it: &Series| (it.min < it.mean).then(|| print_number(it.min, 0));
        let clock = gpu.sm_clock.as_ref();
        cell(clock.map(|it| with(it.mean, "MHz")), clock.and_then(least));
        cell(gpu.temperature.as_ref().map(|it| with(it.max, "°C")), None);
        cell(gpu.utilisation.as_ref().map(|it| with(it.mean, "%")), None);
        cell(gpu.memory.as_ref().map(|it| gibibytes(it.max)), None);
        let held = reasons(|reason| gpu.throttled.get(&reason).copied().unwrap_or(0.0));
        put!(out, "<td>");
        for (what, share) in held {
            put!(out, "<span class=\"held\">" (what) ", " (print_number(share * 100.0, 0)) " %</span> ");
        }
        put!(out, "</td></tr>\n");
    }
    put!(out, "</tbody></table></div>\n");
    if let Some(more) = seen.gpus.len().checked_sub(MOST_GPUS).filter(|more| *more > 0) {
        put!(out, "<p class=\"note\">" (more) " more GPUs: record.json has them.</p>\n");
    }
}
