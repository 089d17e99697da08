//! The figures of a load: what a `serve` test's requests come to, metric by metric.
//!
//! Formulas only, over stamps and counts; the catalogue in `metric` has them in words. Latencies are
//! of the measured requests, all of which were waited for; rates are of the window alone. A request
//! that failed enters no figure but the share of errors.

use std::collections::BTreeMap;

use super::observe::{self, Counted, Cut, put};
use super::quantile::{Ordered, Tally};
use super::{Base, Check, CheckKind, Fault, Observations, Stat};
use crate::clock::Stamp;
use crate::load::{Outcome, Trace};
use crate::quantity::print_number;

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
    let completed: Vec<Rate> = sights.iter().map(|sight| sight.ended(|_| true)).collect();
    put(&mut found, Base::CompletedRequests, exact(completed.iter().map(|rate| rate.total).sum()));
    put(&mut found, Base::RequestThroughput, chained(&sights, &completed));
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

/// Outputs that came to their end, against what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outputs {
    requests: u64,
    asked: u64,
    brought: u64,
    off: u64,
}

impl Outputs {
    /// Takes a request of which so many tokens were asked for. One that was cut or failed is passed
    /// over, and so is one that the server did not count.
    pub fn see(&mut self, trace: &Trace, asked: u64) {
        let tokens: Option<u64> = trace.events.iter().map(|e| e.tokens.map(u64::from)).sum();
        if let (Outcome::Complete, Some(tokens)) = (&trace.outcome, tokens) {
            self.requests += 1;
            self.asked += asked;
            self.brought += tokens;
            self.off += tokens.abs_diff(asked);
        }
    }

    /// Whether they are as long as was asked for: off by a hundredth or a token on average. An engine
    /// that stops early makes other tokens, at other batch sizes, than those that were to be measured.
    /// Where the length could only be wished for (`enforced` is false) it is told, and no fault.
    pub fn check(&self, enforced: bool) -> Check {
        let mean = |sum: u64| sum as f64 / self.requests.max(1) as f64;
        let holds = mean(self.off) <= (mean(self.asked) / 100.0).max(1.0);
        let message = format!(
            "{} output tokens asked for, {} on average",
            print_number(mean(self.asked), 1),
            print_number(mean(self.brought), 1)
        );
        let fault = (enforced && !holds).then_some(Fault::Invalid);
        Check { kind: CheckKind::OutputLength, fault, message }
    }
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

    /// The requests that ended well in the span and are as asked. A request is worked on from its
    /// sending to its end, so batches share it by time, as they share tokens.
    fn ended(&self, asked: impl Fn(usize) -> bool) -> Rate {
        let mut rate = Rate { total: 0.0, batches: vec![0.0; BATCHES as usize] };
        for (index, trace) in self.load.traces.iter().enumerate() {
            if trace.outcome != Outcome::Complete || !self.cut.holds(trace.ended) || !asked(index) {
                continue;
            }
            rate.total += 1.0;
            let span = trace.ended.seconds_since(trace.sent.max(self.cut.from));
            self.cut.overlaps(trace.sent, trace.ended, |batch, overlap| {
                rate.batches[batch] += if span > 0.0 { overlap / span } else { 1.0 };
            });
        }
        rate
    }

    /// The requests that kept every goal; `None` where there is none, or it can't be known.
    fn kept(&self) -> Option<Rate> {
        let Load { traces, notes, goals, open, .. } = self.load;
        if *goals == Goals::default() || (goals.tpot.is_some() && self.counted().is_none()) {
            return None;
        }
        let within = |value: Option<f64>, most: Option<f64>| match (value, most) {
            (Some(value), Some(most)) => value <= most,
            (None, _) | (_, None) => true,
        };
        Some(self.ended(|index| {
            let (trace, note) = (&traces[index], &notes[index]);
            let (ttft, e2e) = if *open {
                (ttft_due(trace, note), milliseconds(note.due, trace.ended))
            } else {
                (observe::ttft(trace), milliseconds(trace.sent, trace.ended))
            };
            within(ttft, goals.ttft)
                && within(time_per_token(trace), goals.tpot)
                && within(Some(e2e), goals.e2e)
        }))
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
            },
            Some(_) | None => Rate { total: 0.0, batches: vec![0.0; BATCHES as usize] },
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
        let shortest = sights.iter().map(|sight| sight.cut.batch()).fold(f64::INFINITY, f64::min);
        return Some(Observations::Batches {
            rate: total / length,
            means: means.collect(),
            floor: 1.0 / shortest,
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
mod tests {
    use super::*;
    use crate::load::{Failure, FailureClass, TokenEvent};

    fn at(ms: f64) -> Stamp {
        Stamp((ms * 1e6).round() as u64)
    }

    /// A request due at `due`, sent at `sent`, with a token at each of `events`, all in ms.
    fn request(due: f64, sent: f64, events: &[f64]) -> (Trace, Note) {
        let token = |ms: &f64| TokenEvent { at: at(*ms), tokens: Some(1) };
        let mut trace = crate::load::answer::unanswered(
            0,
            at(sent),
            at(*events.last().unwrap()),
            Outcome::Complete,
        );
        trace.events = events.iter().map(token).collect();
        (trace, Note { due: at(due), measured: true })
    }

    fn broken(mut request: (Trace, Note)) -> (Trace, Note) {
        request.0.outcome = Outcome::Failed(Failure::new(FailureClass::RateLimited, "busy"));
        request
    }

    /// Back to back requests of one stream: 50 ms to the first token, then nine more 10 ms apart.
    fn back_to_back(count: u32) -> Vec<(Trace, Note)> {
        (0..count)
            .map(|i| {
                let begin = f64::from(i) * 140.0;
                let events: Vec<f64> =
                    (0..10).map(|k| begin + 50.0 + f64::from(k) * 10.0).collect();
                request(begin, begin, &events)
            })
            .collect()
    }

    fn see(
        requests: &[(Trace, Note)],
        to: f64,
        steady: bool,
        goals: Goals,
        open: bool,
    ) -> BTreeMap<Base, Observations> {
        let (traces, notes): (Vec<Trace>, Vec<Note>) = requests.iter().cloned().unzip();
        let span = Span { from: at(0.0), to: at(to), steady };
        together(&[Load { traces: &traces, notes: &notes, span, goals, open }])
    }

    fn plain(requests: &[(Trace, Note)], to: f64) -> BTreeMap<Base, Observations> {
        see(requests, to, true, Goals::default(), false)
    }

    fn exact(found: &BTreeMap<Base, Observations>, base: Base) -> f64 {
        let Observations::Exact(value) = &found[&base] else { panic!("{base:?} is a count") };
        *value
    }

    fn batches(found: &BTreeMap<Base, Observations>, base: Base) -> (f64, Vec<f64>, f64) {
        let Observations::Batches { rate, means, floor } = &found[&base] else {
            panic!("{base:?} is a rate")
        };
        (*rate, means.clone(), *floor)
    }

    fn samples_of(found: &BTreeMap<Base, Observations>, base: Base) -> Vec<f64> {
        let Observations::Samples(samples) = &found[&base] else { panic!("{base:?} has samples") };
        samples.clone()
    }

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{got} is not {want}");
    }

    #[test]
    fn requests_back_to_back_have_the_rates_of_their_length() {
        let found = plain(&back_to_back(20), 2800.0);
        let (rate, means, floor) = batches(&found, Base::RequestThroughput);
        near(rate, 1.0 / 0.14);
        means.iter().for_each(|mean| near(*mean, 1.0 / 0.14));
        near(floor, 1.0 / 0.28);
        near(batches(&found, Base::OutputThroughput).0, 10.0 / 0.14);
        near(exact(&found, Base::ActiveRequests), 1.0);
        assert_eq!(exact(&found, Base::CompletedRequests), 20.0);
        assert_eq!(exact(&found, Base::OutputTokens), 200.0);
        assert_eq!(exact(&found, Base::ErrorRate), 0.0);
        assert_eq!(samples_of(&found, Base::Ttft), [50.0; 20]);
        assert_eq!(samples_of(&found, Base::Tpot), [10.0; 20]);
        assert_eq!(samples_of(&found, Base::E2eLatency), [140.0; 20]);
        assert_eq!(samples_of(&found, Base::Itl).len(), 180);
        for base in [Base::Goodput, Base::TtftDue, Base::E2eLatencyDue] {
            assert!(!found.contains_key(&base), "{base:?}");
        }
    }

    #[test]
    fn what_was_in_flight_at_the_end_counts_as_latency_and_not_as_rate() {
        // The window ends in the middle of the tenth request.
        let found = plain(&back_to_back(10), 1330.0);
        assert_eq!(exact(&found, Base::CompletedRequests), 9.0);
        assert_eq!(samples_of(&found, Base::E2eLatency).len(), 10);
        near(batches(&found, Base::RequestThroughput).0, 9.0 / 1.33);
        near(exact(&found, Base::ActiveRequests), 1.0);
    }

    #[test]
    fn warm_ups_have_no_latencies() {
        let mut requests = back_to_back(10);
        requests[..3].iter_mut().for_each(|(_, note)| note.measured = false);
        let found = plain(&requests, 1400.0);
        assert_eq!(samples_of(&found, Base::Ttft).len(), 7);
        assert_eq!(exact(&found, Base::CompletedRequests), 10.0);
    }

    #[test]
    fn errors_enter_the_share_of_errors_alone() {
        let mut requests = back_to_back(10);
        requests[4] = broken(requests[4].clone());
        requests[7] = broken(requests[7].clone());
        let found =
            see(&requests, 1400.0, true, Goals { e2e: Some(1000.0), ..Goals::default() }, false);
        assert_eq!(exact(&found, Base::ErrorRate), 20.0);
        near(batches(&found, Base::RequestThroughput).0, 8.0 / 1.4);
        near(batches(&found, Base::Goodput).0, 8.0 / 1.4);
        assert_eq!(samples_of(&found, Base::E2eLatency).len(), 8);
        assert_eq!(exact(&found, Base::OutputTokens), 80.0);
    }

    #[test]
    fn due_times_show_what_the_queue_hid() {
        // Both are sent the moment they can be, the second one 100 ms after it was due.
        let requests =
            [request(0.0, 0.0, &[50.0, 60.0, 70.0]), request(10.0, 110.0, &[160.0, 170.0])];
        let found =
            see(&requests, 200.0, true, Goals { ttft: Some(60.0), ..Goals::default() }, true);
        assert_eq!(samples_of(&found, Base::Ttft), [50.0, 50.0]);
        assert_eq!(samples_of(&found, Base::TtftDue), [50.0, 150.0]);
        assert_eq!(samples_of(&found, Base::E2eLatencyDue), [70.0, 160.0]);
        // Goodput asks from the due time on.
        near(batches(&found, Base::Goodput).0, 1.0 / 0.2);
    }

    #[test]
    fn goodput_asks_every_goal_of_a_request() {
        let fast = request(0.0, 0.0, &[40.0, 50.0]);
        let late = request(0.0, 0.0, &[60.0, 70.0]);
        let slow = request(0.0, 0.0, &[40.0, 90.0]);
        let one_token = request(0.0, 0.0, &[40.0]);
        let requests = [fast, late, slow, one_token];
        let count = |goals| {
            let found = see(&requests, 100.0, false, goals, false);
            let Observations::Point(rate) = found[&Base::Goodput] else {
                panic!("one observation")
            };
            rate * 0.1
        };
        near(count(Goals { ttft: Some(50.0), ..Goals::default() }), 3.0);
        near(count(Goals { tpot: Some(20.0), ..Goals::default() }), 3.0);
        near(count(Goals { ttft: Some(50.0), tpot: Some(20.0), e2e: None }), 2.0);
        near(count(Goals { e2e: Some(75.0), ..Goals::default() }), 3.0);
    }

    #[test]
    fn unknown_counts_leave_token_metrics_out() {
        let mut requests = back_to_back(4);
        requests[2].0.events[3].tokens = None;
        let goals = Goals { tpot: Some(20.0), ..Goals::default() };
        let found = see(&requests, 560.0, true, goals, false);
        for base in [Base::OutputThroughput, Base::Itl, Base::Tpot, Base::Goodput] {
            assert!(!found.contains_key(&base), "{base:?}");
        }
        assert_eq!(samples_of(&found, Base::Ttft).len(), 4);
    }

    #[test]
    fn two_loads_stand_one_after_the_other() {
        let (traces, notes): (Vec<Trace>, Vec<Note>) = back_to_back(10).into_iter().unzip();
        let load = |steady| Load {
            traces: &traces,
            notes: &notes,
            span: Span { from: at(0.0), to: at(1400.0), steady },
            goals: Goals::default(),
            open: false,
        };
        let found = together(&[load(true), load(true)]);
        let (rate, means, _) = batches(&found, Base::RequestThroughput);
        near(rate, 1.0 / 0.14);
        assert_eq!(means.len(), 20);
        assert_eq!(samples_of(&found, Base::Ttft).len(), 20);
        assert_eq!(exact(&found, Base::OutputTokens), 200.0);
        near(exact(&found, Base::MeasuredTime), 2.8);
        let bursts = together(&[load(false), load(false)]);
        assert_eq!(samples_of(&bursts, Base::RequestThroughput).len(), 2);
    }

    #[test]
    fn a_repeat_is_one_observation() {
        let (traces, notes): (Vec<Trace>, Vec<Note>) = back_to_back(10).into_iter().unzip();
        for steady in [true, false] {
            let span = Span { from: at(0.0), to: at(1400.0), steady };
            let load =
                Load { traces: &traces, notes: &notes, span, goals: Goals::default(), open: false };
            let found = repeated(&[load, load, load]);
            let rates = samples_of(&found, Base::OutputThroughput);
            assert_eq!(rates.len(), 3);
            near(rates[0], 10.0 / 0.14);
            let Observations::Told(told) = &found[&Base::E2eLatency] else { panic!("told") };
            // Ten requests carry a ninetieth percentile and no ninety-fifth.
            let stats: Vec<Stat> = told.keys().copied().collect();
            assert_eq!(stats, [Stat::P50, Stat::P90, Stat::Mean, Stat::Max]);
            assert_eq!(told[&Stat::P90], [140.0; 3]);
            assert_eq!(exact(&found, Base::CompletedRequests), 30.0);
        }
    }

    #[test]
    fn an_empty_span_has_no_figures() {
        assert!(plain(&back_to_back(1), 0.0).is_empty());
    }
}
