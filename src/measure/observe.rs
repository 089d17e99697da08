//! Observations: what the traces of a cell come to, metric by metric.
//!
//! Formulas only, over stamps and counts; the catalogue in `metric` has them in words. A request
//! that failed enters no figure. Where a token count is unknown, the metrics that need it are
//! absent, never guessed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::absence::Absences;
use super::quantile::{Tally, median};
use super::{Base, Observations};
use crate::clock::Stamp;
use crate::load::{Outcome, TokenEvent, Trace};

/// A request's rate is taken from its part inside the window if that has at least so many tokens:
/// one that began just before the end says little.
const ENOUGH_TOKENS: u64 = 10;

/// A stream's rate in a batch is taken if it decoded for at least this share of the batch.
const ENOUGH_OF_BATCH: f64 = 0.1;

/// The traces of a decode cell and its window.
#[derive(Debug, Clone, Copy)]
pub struct DecodeInput<'a> {
    /// Every request, finished or cut; those of a stream in the order in which it sent them.
    pub traces: &'a [Trace],
    /// The window's begin, exclusive.
    pub from: Stamp,
    /// The window's end, inclusive.
    pub to: Stamp,
    /// Batches of equal length: 10, or 20 after an extension.
    pub batches: u32,
}

/// The observations of a decode window.
///
/// Absent: what nothing was observed for. An empty window yields nothing.
pub fn decode(input: &DecodeInput<'_>) -> BTreeMap<Base, Observations> {
    let mut found = BTreeMap::new();
    let length = input.to.seconds_since(input.from);
    if length <= 0.0 || input.batches == 0 {
        return found;
    }
    let window = Cut { from: input.from, to: input.to, batches: input.batches, length };
    let good: Vec<&Trace> =
        input.traces.iter().filter(|trace| !matches!(trace.outcome, Outcome::Failed(_))).collect();
    found.insert(Base::MeasuredTime, Observations::Exact(length));
    found.insert(Base::ActiveRequests, Observations::Exact(emitting(&good, &window)));
    let completed =
        good.iter().filter(|trace| trace.outcome == Outcome::Complete && window.holds(trace.ended));
    found.insert(Base::CompletedRequests, Observations::Exact(completed.count() as f64));
    put(&mut found, Base::ChunkGap, chunk_gaps(&good, &window));

    let Some(counted) = good.iter().map(|trace| Counted::of(trace)).collect::<Option<Vec<_>>>()
    else {
        return found;
    };
    if let Some((tokens, throughput)) = output_throughput(&counted, &window) {
        found.insert(Base::OutputTokens, Observations::Exact(tokens as f64));
        found.insert(Base::OutputThroughput, throughput);
        put(&mut found, Base::Itl, token_gaps(&counted, &window));
        let tpot = times_per_token(&counted, &window);
        put(&mut found, Base::PerRequestThroughput, stream_rates(&counted, &tpot, &window));
        let mut tally = Tally::default();
        tpot.iter().for_each(|seconds| tally.add(seconds * 1e3, 1));
        put(&mut found, Base::Tpot, tally.finish());
    }
    found
}

pub(super) fn put(
    found: &mut BTreeMap<Base, Observations>,
    base: Base,
    observed: Option<Observations>,
) {
    if let Some(observed) = observed {
        found.insert(base, observed);
    }
}

/// Time to first token of a request in milliseconds; `None` where it failed or had none.
pub fn ttft(trace: &Trace) -> Option<f64> {
    match trace.outcome {
        Outcome::Complete | Outcome::Cancelled => {
            trace.events.first().map(|event| event.at.seconds_since(trace.sent) * 1e3)
        }
        Outcome::Failed(_) => None,
    }
}

/// The `ttft` of a decode cell: for each wave the milliseconds of its requests.
///
/// `None` where no wave has any.
pub fn waves(waves: &[Vec<f64>]) -> Option<Observations> {
    let told: Vec<_> = waves.iter().filter(|wave| !wave.is_empty()).cloned().collect();
    (!told.is_empty()).then_some(Observations::Waves(told))
}

/// One request of a prefill cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrefillSample {
    /// Tokens of the prompt, as the server counted them where it does.
    pub prompt: u64,
    /// Tokens of it that came out of the prefix cache.
    pub cached: u64,
    /// Time to first token in milliseconds.
    pub ttft: f64,
}

/// The observations of a prefill cell. Failed requests are not among the samples.
pub fn prefill(samples: &[PrefillSample]) -> BTreeMap<Base, Observations> {
    let mut found = BTreeMap::new();
    found.insert(Base::CompletedRequests, Observations::Exact(samples.len() as f64));
    if samples.is_empty() {
        return found;
    }
    let ttft = samples.iter().map(|sample| sample.ttft).collect();
    found.insert(Base::Ttft, Observations::Samples(ttft));
    if samples.iter().all(|sample| sample.ttft > 0.0 && sample.prompt > sample.cached) {
        let rates = samples
            .iter()
            .map(|sample| (sample.prompt - sample.cached) as f64 / (sample.ttft / 1e3));
        found.insert(Base::PrefillThroughput, Observations::Samples(rates.collect()));
    }
    found
}

/// The observations of a launch: seconds from start to ready, KV capacity in tokens.
pub fn startup(ready_time: Option<f64>, kv_capacity: Option<u64>) -> BTreeMap<Base, Observations> {
    let mut found = BTreeMap::new();
    put(&mut found, Base::ReadyTime, ready_time.map(Observations::Point));
    let capacity = kv_capacity.map(|tokens| Observations::Exact(tokens as f64));
    put(&mut found, Base::KvCapacity, capacity);
    found
}

/// Requests in flight, sent and not ended, averaged over a window: what the client delivered of
/// the concurrency that it was to keep up. Failed requests were in flight too, and the rest that a
/// stream takes after one is the engine's doing. `traces` as in [`DecodeInput`].
pub fn in_flight(traces: &[Trace], from: Stamp, to: Stamp) -> f64 {
    let length = to.seconds_since(from);
    if length <= 0.0 {
        return 0.0;
    }
    let mut next_sent: BTreeMap<u32, Stamp> = BTreeMap::new();
    let seconds = traces.iter().rev().map(|trace| {
        let next = next_sent.insert(trace.stream, trace.sent).unwrap_or(to);
        let end = match trace.outcome {
            Outcome::Failed(_) => next.max(trace.ended),
            Outcome::Complete | Outcome::Cancelled => trace.ended,
        };
        end.min(to).seconds_since(trace.sent.max(from)).max(0.0)
    });
    seconds.sum::<f64>() / length
}

/// The longest gap between two events of a request that ends in the window or was open when it
/// ended, and the longest stretch of one in which this program was there to see it. The end of a
/// request that was cut ends its gap.
pub fn longest_gaps(
    traces: &[Trace],
    from: Stamp,
    to: Stamp,
    away: &Absences,
) -> (Duration, Duration) {
    let good = traces.iter().filter(|trace| !matches!(trace.outcome, Outcome::Failed(_)));
    let gaps = good.flat_map(|trace| {
        let cut = (trace.outcome == Outcome::Cancelled).then_some(trace.ended);
        let ends = trace.events.iter().map(|event| event.at);
        ends.clone().zip(ends.skip(1).chain(cut))
    });
    let seen = gaps.filter(|(begin, end)| *end > from && *begin <= to);
    seen.fold((Duration::ZERO, Duration::ZERO), |(longest, present), (begin, end)| {
        let gap = end.since(begin);
        // What is no longer than what is known already needs no closer look.
        let there = if gap > present { away.present(begin, end) } else { Duration::ZERO };
        (longest.max(gap), present.max(there))
    })
}

/// The window, and its batches.
pub(super) struct Cut {
    pub(super) from: Stamp,
    pub(super) to: Stamp,
    pub(super) batches: u32,
    /// In seconds.
    pub(super) length: f64,
}

impl Cut {
    pub(super) fn holds(&self, at: Stamp) -> bool {
        at > self.from && at <= self.to
    }

    /// Length of a batch in seconds.
    pub(super) fn batch(&self) -> f64 {
        self.length / f64::from(self.batches)
    }

    /// Visits the batches that a stretch of time overlaps, with the seconds of each overlap. A
    /// stretch without length falls into the batch whose end, included, is next.
    pub(super) fn overlaps(&self, start: Stamp, end: Stamp, mut visit: impl FnMut(usize, f64)) {
        let batch = self.batch();
        let (start, end) = (start.max(self.from), end.min(self.to));
        if end < start {
            return;
        }
        let last = self.batches as usize - 1;
        let (a, b) = (start.seconds_since(self.from), end.seconds_since(self.from));
        let to = ((b / batch).ceil() as usize).saturating_sub(1).min(last);
        let from = ((a / batch).floor() as usize).min(to);
        for index in from..=to {
            let (left, right) = (index as f64 * batch, (index + 1) as f64 * batch);
            visit(index, if from == to { b - a } else { (b.min(right) - a.max(left)).max(0.0) });
        }
    }

    /// Shares what came at `at` and was made since `before` among the batches: visits each with its
    /// part, all of which make 1.
    pub(super) fn share(&self, before: Stamp, at: Stamp, mut visit: impl FnMut(usize, f64)) {
        let span = at.seconds_since(before.max(self.from));
        self.overlaps(before, at, |index, overlap| {
            visit(index, if span > 0.0 { overlap / span } else { 1.0 });
        });
    }
}

/// A request whose tokens are all known.
///
/// It is walked through again for each metric: a copy of a long window's events would double what
/// the client needs.
pub(super) struct Counted<'a>(&'a Trace);

impl<'a> Counted<'a> {
    /// `None` where a count is unknown.
    pub(super) fn of(trace: &'a Trace) -> Option<Counted<'a>> {
        trace.events.iter().all(|event| event.tokens.is_some()).then_some(Counted(trace))
    }

    /// Stamp and tokens of each arrival, the latter not 0: events of one stamp came in one read and
    /// are one arrival.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (Stamp, u64)> + 'a {
        let mut events = self.0.events.iter().peekable();
        let tokens = |event: &TokenEvent| u64::from(event.tokens.unwrap_or(0));
        std::iter::from_fn(move || {
            let first = events.next()?;
            let mut count = tokens(first);
            while let Some(more) = events.next_if(|event| event.at == first.at) {
                count += tokens(more);
            }
            Some((first.at, count))
        })
        .filter(|(_, tokens)| *tokens > 0)
    }

    /// Each gap between two arrivals: begin, end, tokens that came at its end.
    fn gaps(&self) -> impl Iterator<Item = (Stamp, Stamp, u64)> + 'a {
        let ends = self.arrivals().skip(1);
        self.arrivals().zip(ends).map(|((begin, _), (end, tokens))| (begin, end, tokens))
    }
}

/// Tokens of the window and their rate. The tokens of an arrival were made since the one before
/// it, so batches share them by time; the window's own edges are events, where nothing is shared.
pub(super) fn output_throughput(
    requests: &[Counted<'_>],
    window: &Cut,
) -> Option<(u64, Observations)> {
    let mut total = 0;
    let mut batches = vec![0.0; window.batches as usize];
    for request in requests {
        let mut before = request.0.sent;
        for (at, tokens) in request.arrivals() {
            if window.holds(at) {
                total += tokens;
                window.share(before, at, |index, part| batches[index] += tokens as f64 * part);
            }
            before = at;
        }
    }
    let batch = window.batch();
    (total > 0).then(|| {
        let observed = Observations::Batches {
            rate: total as f64 / window.length,
            means: batches.iter().map(|tokens| tokens / batch).collect(),
            floor: 1.0 / batch,
        };
        (total, observed)
    })
}

/// Seconds per output token of each request, over its part inside the window: from its last
/// arrival before the window, else its first one inside, to its last one inside.
fn times_per_token(requests: &[Counted<'_>], window: &Cut) -> Vec<f64> {
    let mut parts = Vec::new();
    for request in requests {
        let inside: Vec<_> = request.gaps().filter(|(_, end, _)| window.holds(*end)).collect();
        let (Some((begin, _, _)), Some((_, end, _))) = (inside.first(), inside.last()) else {
            continue;
        };
        let count: u64 = inside.iter().map(|(_, _, tokens)| tokens).sum();
        parts.push((end.seconds_since(*begin) / count as f64, count));
    }
    let enough = parts.iter().map(|(_, count)| *count).max().unwrap_or(0).min(ENOUGH_TOKENS);
    parts.iter().filter(|(_, count)| *count >= enough).map(|(seconds, _)| *seconds).collect()
}

/// The median rate of a request, with the median rate of a stream in each batch.
fn stream_rates(requests: &[Counted<'_>], tpot: &[f64], window: &Cut) -> Option<Observations> {
    let rates: Vec<f64> = tpot.iter().filter(|s| **s > 0.0).map(|s| 1.0 / s).collect();
    let rate = median(&rates)?;
    // Tokens and seconds of decoding, by stream and batch. The gap between two requests of a
    // stream is no decoding.
    let mut by_stream: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for request in requests {
        let batches = by_stream
            .entry(request.0.stream)
            .or_insert_with(|| vec![(0.0, 0.0); window.batches as usize]);
        for (begin, end, tokens) in
            request.gaps().filter(|(begin, end, _)| *end > window.from && *begin < window.to)
        {
            let span = end.seconds_since(begin);
            window.overlaps(begin, end, |index, overlap| {
                batches[index].0 += tokens as f64 * overlap / span;
                batches[index].1 += overlap;
            });
        }
    }
    let batch = window.batch();
    let means = (0..window.batches as usize).filter_map(|index| {
        let told = |least: f64| -> Vec<f64> {
            let parts = by_stream.values().map(|batches| batches[index]);
            parts.filter(|(_, time)| *time > least).map(|(tokens, time)| tokens / time).collect()
        };
        median(&told(batch * ENOUGH_OF_BATCH)).or_else(|| median(&told(0.0)))
    });
    Some(Observations::Batches { rate, means: means.collect(), floor: 1.0 / batch })
}

/// Gaps whose end lies in the window, shared among the tokens that they brought.
pub(super) fn token_gaps(requests: &[Counted<'_>], window: &Cut) -> Option<Observations> {
    let mut tally = Tally::default();
    for (begin, end, tokens) in requests.iter().flat_map(Counted::gaps) {
        if window.holds(end) {
            tally.add(end.seconds_since(begin) * 1e3 / tokens as f64, tokens);
        }
    }
    tally.finish()
}

/// Gaps between events whose end lies in the window. Those of one read have no gap between them:
/// whatever held them back says nothing of the engine.
pub(super) fn chunk_gaps(good: &[&Trace], window: &Cut) -> Option<Observations> {
    let mut tally = Tally::default();
    for pair in good.iter().flat_map(|trace| trace.events.windows(2)) {
        if window.holds(pair[1].at) && pair[1].at > pair[0].at {
            tally.add(pair[1].at.seconds_since(pair[0].at) * 1e3, 1);
        }
    }
    tally.finish()
}

/// Requests between first token and end, averaged over the window.
pub(super) fn emitting(good: &[&Trace], window: &Cut) -> f64 {
    let seconds = good.iter().filter_map(|trace| {
        let first = trace.events.first()?.at.max(window.from);
        let last = trace.events.last()?.at.max(trace.ended).min(window.to);
        Some(last.seconds_since(first).max(0.0))
    });
    seconds.sum::<f64>() / window.length
}

#[cfg(test)]
mod tests;
