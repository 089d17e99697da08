//! The figures of a load: what a `serve` test's requests come to, metric by metric.
//!
//! Formulas only, over stamps and counts; the catalogue in `metric` has them in words. Latencies are
//! of the measured requests, all of which were waited for; rates are of the window alone. A request
//! that failed enters no figure but the share of errors.

use std::collections::BTreeMap;

use super::observe::{self, Counted, Cut, put};
use super::quantile::{Ordered, Tally};
use super::{Base, Observations, Stat};
use crate::clock::Stamp;
use crate::load::{Outcome, Trace};

mod sharing;

pub use sharing::sharing;

/// Batches of a window.
const BATCHES: u32 = 10;

/// What is known of a request beside its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// When it was due; where it had no due time of its own, when it was sent.
    pub due: Stamp,
    /// Whether its latencies count; if not it warmed up.
    pub measured: bool,
}

/// Where rates are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Exclusive.
    pub from: Stamp,
    /// Inclusive.
    pub to: Stamp,
    /// Whether the load was the same all through, so that its parts tell the noise; if not, it is one
    /// observation.
    pub steady: bool,
}

/// What goodput asks of a request, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Goals {
    /// Longest time to first token.
    pub ttft: Option<f64>,
    /// Longest time per output token.
    pub tpot: Option<f64>,
    /// Longest time to the end.
    pub e2e: Option<f64>,
}

/// One load from its first request to its last.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Every request; those of a stream in the order in which it sent them.
    pub traces: &'a [Trace],
    /// What is known of each, in the same order.
    pub notes: &'a [Note],
    /// Where rates are taken from.
    pub span: Span,
    /// What goodput asks.
    pub goals: Goals,
    /// Whether requests had due times of their own, whatever the engine did.
    pub open: bool,
}

/// The observations of one load, or of several of the same kind as if they were one: their batches
/// stand one after the other, their latencies together.
///
/// Absent: what nothing was observed for.
pub fn together(loads: &[Load<'_>]) -> BTreeMap<Base, Observations> {
    let mut found = BTreeMap::new();
    let sights: Vec<Sight<'_>> = loads.iter().filter_map(Sight::new).collect();
    let length: f64 = sights.iter().map(|sight| sight.cut.length).sum();
    if sights.is_empty() {
        return found;
    }
    let sum = |of: &dyn Fn(&Sight<'_>) -> f64| sights.iter().map(of).sum::<f64>();
    let exact = |value: f64| Some(Observations::Exact(value));
    put(&mut found, Base::MeasuredTime, exact(length));
    put(&mut found, Base::ActiveRequests, exact(sum(&|sight| sight.seconds_in_flight()) / length));
    put(&mut found, Base::CompletedRequests, exact(sum(&|sight| sight.completed() as f64)));
    let served: Vec<Rate> = sights.iter().map(|sight| sight.served(|_| true)).collect();
    put(&mut found, Base::RequestThroughput, chained(&sights, &served));
    let measured = sum(&|sight| sight.measured().count() as f64);
    if measured > 0.0 {
        let failed =
            sum(&|sight| sight.measured().filter(|(trace, _)| failed(trace)).count() as f64);
        put(&mut found, Base::ErrorRate, exact(failed / measured * 100.0));
    }
    put(&mut found, Base::Ttft, samples(&sights, |trace, _| observe::ttft(trace)));
    put(
        &mut found,
        Base::E2eLatency,
        samples(&sights, |trace, _| Some(milliseconds(trace.sent, trace.ended))),
    );
    if loads.iter().all(|load| load.open) {
        put(&mut found, Base::TtftDue, samples(&sights, ttft_due));
        put(
            &mut found,
            Base::E2eLatencyDue,
            samples(&sights, |trace, note| Some(milliseconds(note.due, trace.ended))),
        );
    }
    put(
        &mut found,
        Base::ChunkGap,
        pooled(sights.iter().map(|s| observe::chunk_gaps(&s.good, &s.cut))),
    );
    let kept: Option<Vec<Rate>> = sights.iter().map(Sight::kept).collect();
    if let Some(kept) = kept {
        put(&mut found, Base::Goodput, chained(&sights, &kept));
    }
    tokens(&mut found, &sights);
    found
}

/// The metrics that need token counts; nothing where one is unknown.
fn tokens(found: &mut BTreeMap<Base, Observations>, sights: &[Sight<'_>]) {
    let counted: Option<Vec<Vec<Counted<'_>>>> = sights.iter().map(Sight::counted).collect();
    let Some(counted) = counted else { return };
    let rates: Vec<Rate> =
        sights.iter().zip(&counted).map(|(sight, of)| sight.tokens(of)).collect();
    let total: f64 = rates.iter().map(|rate| rate.total).sum();
    if total == 0.0 {
        return;
    }
    put(found, Base::OutputTokens, Some(Observations::Exact(total)));
    put(found, Base::OutputThroughput, chained(sights, &rates));
    let gaps = sights.iter().zip(&counted).map(|(sight, of)| observe::token_gaps(of, &sight.cut));
    put(found, Base::Itl, pooled(gaps));
    put(found, Base::Tpot, samples(sights, |trace, _| time_per_token(trace)));
}

/// The observations of repeats of a load, each of which is one observation. Counts stay counts of all.
pub fn repeated(loads: &[Load<'_>]) -> BTreeMap<Base, Observations> {
    let apart: Vec<_> = loads.iter().map(|load| together(std::slice::from_ref(load))).collect();
    let mut found = together(loads);
    for (base, observed) in &mut found {
        let each: Vec<&Observations> = apart.iter().filter_map(|one| one.get(base)).collect();
        match observed {
            Observations::Exact(_) => {}
            Observations::Batches { .. } | Observations::Point(_) => {
                *observed =
                    Observations::Samples(each.iter().filter_map(|one| rate(one)).collect());
            }
            Observations::Samples(values) => {
                *observed = if base.entry().latency {
                    Observations::Told(told(&each))
                } else {
                    Observations::Samples(values.clone())
                };
            }
            Observations::Histogram(_) | Observations::Waves(_) | Observations::Told(_) => {
                *observed = Observations::Told(told(&each));
            }
        }
    }
    found
}

fn rate(observed: &Observations) -> Option<f64> {
    match observed {
        Observations::Batches { rate: value, .. } | Observations::Point(value) => Some(*value),
        Observations::Samples(_)
        | Observations::Histogram(_)
        | Observations::Waves(_)
        | Observations::Told(_)
        | Observations::Exact(_) => None,
    }
}

/// Each statistic in each repeat, as far as the samples of all of them carry it.
fn told(each: &[&Observations]) -> BTreeMap<Stat, Vec<f64>> {
    let ordered: Vec<Ordered> = each
        .iter()
        .map(|observed| match observed {
            Observations::Samples(values) => Ordered::of(values),
            Observations::Histogram(values) => Ordered::counted(values.clone()),
            Observations::Batches { .. }
            | Observations::Waves(_)
            | Observations::Told(_)
            | Observations::Exact(_)
            | Observations::Point(_) => Ordered::default(),
        })
        .collect();
    let value = |of: &Ordered, stat: Stat| match stat {
        Stat::Mean => of.mean(),
        Stat::Max => of.max(),
        Stat::P50 => of.percentile(50),
        Stat::P90 | Stat::P95 | Stat::P99 => stat
            .percent()
            .filter(|percent| carried(of.total(), *percent))
            .and_then(|p| of.percentile(p)),
    };
    let all = |stat| ordered.iter().map(|of| value(of, stat)).collect::<Option<Vec<f64>>>();
    Stat::ALL.into_iter().filter_map(|stat| Some((stat, all(stat)?))).collect()
}

/// Whether so many samples carry a percentile: one beyond it is to be expected.
fn carried(n: u64, percent: u32) -> bool {
    n * u64::from(100 - percent) >= 100
}

/// One load in its span.
struct Sight<'a> {
    load: &'a Load<'a>,
    cut: Cut,
    /// The requests that did not fail.
    good: Vec<&'a Trace>,
}

/// What was counted in a span, whole and by batches.
struct Rate {
    total: f64,
    batches: Vec<f64>,
    /// The least by which a batch can differ from another.
    least: f64,
}

impl<'a> Sight<'a> {
    /// `None` where the span has no length.
    fn new(load: &'a Load<'a>) -> Option<Sight<'a>> {
        let Span { from, to, .. } = load.span;
        let length = to.seconds_since(from);
        let good = load.traces.iter().filter(|trace| !failed(trace)).collect();
        (length > 0.0).then_some(Sight {
            load,
            cut: Cut { from, to, batches: BATCHES, length },
            good,
        })
    }

    fn measured(&self) -> impl Iterator<Item = (&'a Trace, &'a Note)> {
        self.load.traces.iter().zip(self.load.notes).filter(|(_, note)| note.measured)
    }

    /// Requests between their sending and their end, summed over the span.
    fn seconds_in_flight(&self) -> f64 {
        let seconds = self.load.traces.iter().map(|trace| {
            let (begin, end) = (trace.sent.max(self.cut.from), trace.ended.min(self.cut.to));
            end.seconds_since(begin).max(0.0)
        });
        seconds.sum()
    }

    /// Requests that ended well inside the span.
    fn completed(&self) -> usize {
        let traces = self.load.traces.iter();
        let inside = |trace: &&Trace| self.cut.holds(trace.ended);
        traces.filter(|trace| trace.outcome == Outcome::Complete).filter(inside).count()
    }

    /// The requests that ended well and are as asked, each by the part of its events that lies in the
    /// span. Requests are few and long: counted whole, by their ends, those that reach over an edge
    /// would be a noise that no engine makes. A queue makes no events, so waiting is no part.
    fn served(&self, asked: impl Fn(usize) -> bool) -> Rate {
        let mut rate = Rate { total: 0.0, batches: vec![0.0; BATCHES as usize], least: 1.0 };
        let mut events = 0u64;
        for (index, trace) in self.load.traces.iter().enumerate() {
            if trace.outcome != Outcome::Complete || !asked(index) {
                continue;
            }
            let each = 1.0 / trace.events.len() as f64;
            let mut before = trace.sent;
            for event in &trace.events {
                if self.cut.holds(event.at) {
                    events += 1;
                    rate.total += each;
                    let batches = &mut rate.batches;
                    self.cut.share(before, event.at, |batch, part| batches[batch] += each * part);
                }
                before = event.at;
            }
        }
        if events > 0 {
            rate.least = rate.total / events as f64;
        }
        rate
    }

    /// The requests that kept every goal; `None` where there is none, or it can't be known.
    fn kept(&self) -> Option<Rate> {
        let Load { traces, notes, goals, open, .. } = self.load;
        if *goals == Goals::default() || (goals.tpot.is_some() && self.counted().is_none()) {
            return None;
        }
        // A request keeps its goals or does not, so a batch differs by a whole one.
        let whole = |rate| Rate { least: 1.0, ..rate };
        let within = |value: Option<f64>, most: Option<f64>| match (value, most) {
            (Some(value), Some(most)) => value <= most,
            (None, _) | (_, None) => true,
        };
        Some(whole(self.served(|index| {
            let (trace, note) = (&traces[index], &notes[index]);
            let (ttft, e2e) = if *open {
                (ttft_due(trace, note), milliseconds(note.due, trace.ended))
            } else {
                (observe::ttft(trace), milliseconds(trace.sent, trace.ended))
            };
            within(ttft, goals.ttft)
                && within(time_per_token(trace), goals.tpot)
                && within(Some(e2e), goals.e2e)
        })))
    }

    /// `None` where a count is unknown.
    fn counted(&self) -> Option<Vec<Counted<'a>>> {
        self.good.iter().map(|trace| Counted::of(trace)).collect()
    }

    fn tokens(&self, counted: &[Counted<'_>]) -> Rate {
        let batch = self.cut.batch();
        match observe::output_throughput(counted, &self.cut) {
            Some((tokens, Observations::Batches { means, .. })) => Rate {
                total: tokens as f64,
                batches: means.iter().map(|mean| mean * batch).collect(),
                least: 1.0,
            },
            Some(_) | None => Rate { total: 0.0, batches: vec![0.0; BATCHES as usize], least: 1.0 },
        }
    }
}

fn failed(trace: &Trace) -> bool {
    matches!(trace.outcome, Outcome::Failed(_))
}

fn milliseconds(from: Stamp, to: Stamp) -> f64 {
    to.seconds_since(from) * 1e3
}

fn ttft_due(trace: &Trace, note: &Note) -> Option<f64> {
    trace.events.first().map(|event| milliseconds(note.due, event.at))
}

/// Milliseconds per output token behind the first event; `None` where there is none, or a count is
/// unknown.
fn time_per_token(trace: &Trace) -> Option<f64> {
    let counted = Counted::of(trace)?;
    let mut arrivals = counted.arrivals();
    let (first, _) = arrivals.next()?;
    let (last, tokens) = arrivals.fold((first, 0), |(_, tokens), (at, more)| (at, tokens + more));
    (tokens > 0).then(|| milliseconds(first, last) / tokens as f64)
}

/// A latency of the measured requests that came to their end.
fn samples(
    sights: &[Sight<'_>],
    of: impl Fn(&Trace, &Note) -> Option<f64>,
) -> Option<Observations> {
    let mut tally = Tally::default();
    let requests = sights.iter().flat_map(Sight::measured);
    requests
        .filter(|(trace, _)| trace.outcome == Outcome::Complete)
        .filter_map(|(trace, note)| of(trace, note))
        .for_each(|value| tally.add(value, 1));
    tally.finish()
}

/// Samples of several loads together.
fn pooled(each: impl Iterator<Item = Option<Observations>>) -> Option<Observations> {
    let mut tally = Tally::default();
    for observed in each.flatten() {
        match observed {
            Observations::Samples(values) => values.iter().for_each(|value| tally.add(*value, 1)),
            Observations::Histogram(values) => {
                values.iter().for_each(|(value, count)| tally.add(*value, *count));
            }
            Observations::Batches { .. }
            | Observations::Waves(_)
            | Observations::Told(_)
            | Observations::Exact(_)
            | Observations::Point(_) => {}
        }
    }
    tally.finish()
}

/// The rates of loads one after the other: by batches where all of them were steady, else each one a
/// single observation.
fn chained(sights: &[Sight<'_>], rates: &[Rate]) -> Option<Observations> {
    let each = || sights.iter().zip(rates);
    if sights.iter().all(|sight| sight.load.span.steady) {
        let total: f64 = rates.iter().map(|rate| rate.total).sum();
        let length: f64 = sights.iter().map(|sight| sight.cut.length).sum();
        let means = each().flat_map(|(sight, rate)| {
            rate.batches.iter().map(|count| count / sight.cut.batch()).collect::<Vec<_>>()
        });
        let least = each().map(|(sight, rate)| rate.least / sight.cut.batch());
        return Some(Observations::Batches {
            rate: total / length,
            means: means.collect(),
            floor: least.fold(0.0, f64::max),
        });
    }
    let values: Vec<f64> = each().map(|(sight, rate)| rate.total / sight.cut.length).collect();
    match values[..] {
        [] => None,
        [value] => Some(Observations::Point(value)),
        _ => Some(Observations::Samples(values)),
    }
}

#[cfg(test)]
mod tests;
