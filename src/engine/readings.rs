//! Readings of an engine's metrics over a while, and what they come to: growth of counters, means and
//! maxima of gauges.
//!
//! What was not read, or read no sense of, is unknown and never 0: a counter that the first reading
//! lacked, or that went backwards because the engine was started anew. What a figure means for the
//! verdict is decided in `measure::validity`.

use serde::{Deserialize, Serialize};

use super::metrics::Gauges;

/// What an engine's own metrics said while a cell was measured. Absent: the engine does not say.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EngineFigures {
    /// Requests being served, mean of the readings in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_mean: Option<f64>,
    /// Requests in the queue, mean of the readings in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_mean: Option<f64>,
    /// The most requests in the queue at a reading in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_max: Option<f64>,
    /// Share of the KV cache in use, 0 to 1, mean of the readings in the window and over engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_usage_mean: Option<f64>,
    /// The largest share at a reading in the window, that of the fullest engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_usage_max: Option<f64>,
    /// Requests preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptions: Option<u64>,
    /// Prompt tokens looked up in the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_queries: Option<u64>,
    /// Prompt tokens found in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hits: Option<u64>,
    /// Hits ÷ queries, 0 to 1; without both counters the engine's own share, mean of the readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hit_share: Option<f64>,
    /// Tokens that drafts of speculative decoding proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_tokens: Option<u64>,
    /// Those of them that the model accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_tokens: Option<u64>,
    /// Accepted ÷ proposed, 0 to 1; without both counters the engine's own share, mean of the
    /// readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_acceptance: Option<f64>,
    /// Tokens that a step of speculative decoding yielded: 1 + accepted ÷ drafts; without counters
    /// the engine's own mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_length: Option<f64>,
}

/// Readings so far.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    preemptions: Growth,
    prefix_queries: Growth,
    prefix_hits: Growth,
    drafts: Growth,
    draft_tokens: Growth,
    accepted_tokens: Growth,
    running: Level,
    waiting: Level,
    kv_usage: Level,
    kv_fullest: Level,
    prefix_share: Level,
    draft_acceptance: Level,
    accepted_length: Level,
}

impl Readings {
    /// Begins with what the metrics said before the load; `None` where they can't be read.
    pub fn begin(before: Option<&Gauges>) -> Readings {
        let mut readings = Readings::default();
        if let Some(before) = before {
            readings.each_counter(before, Growth::begin);
        }
        readings
    }

    /// Takes a reading outside of the window: its counters count, its gauges show another load.
    pub fn count(&mut self, gauges: &Gauges) {
        self.each_counter(gauges, Growth::see);
    }

    /// Takes a reading inside of the window.
    pub fn see(&mut self, gauges: &Gauges) {
        self.count(gauges);
        self.running.see(gauges.running);
        self.waiting.see(gauges.waiting);
        self.kv_usage.see(gauges.kv_usage);
        self.kv_fullest.see(gauges.kv_fullest);
        self.prefix_share.see(gauges.prefix_share);
        self.draft_acceptance.see(gauges.draft_acceptance);
        self.accepted_length.see(gauges.accepted_length);
    }

    fn each_counter(&mut self, gauges: &Gauges, mut take: impl FnMut(&mut Growth, Option<f64>)) {
        take(&mut self.preemptions, gauges.preemptions);
        take(&mut self.prefix_queries, gauges.prefix_queries);
        take(&mut self.prefix_hits, gauges.prefix_hits);
        take(&mut self.drafts, gauges.drafts);
        take(&mut self.draft_tokens, gauges.draft_tokens);
        take(&mut self.accepted_tokens, gauges.accepted_tokens);
    }

    /// Requests preempted since the beginning, by the engine's counter.
    pub fn preemptions(&self) -> Option<u64> {
        self.preemptions.total()
    }

    /// What the readings come to; `None` where they say nothing at all.
    pub fn figures(&self) -> Option<EngineFigures> {
        let ratio = |part: &Growth, whole: &Growth| {
            let (part, whole) = (part.total()?, whole.total()?);
            (whole > 0).then(|| part as f64 / whole as f64)
        };
        let figures = EngineFigures {
            running_mean: self.running.mean(),
            waiting_mean: self.waiting.mean(),
            waiting_max: self.waiting.most,
            kv_usage_mean: self.kv_usage.mean(),
            kv_usage_max: self.kv_fullest.most,
            preemptions: self.preemptions.total(),
            prefix_queries: self.prefix_queries.total(),
            prefix_hits: self.prefix_hits.total(),
            prefix_hit_share: ratio(&self.prefix_hits, &self.prefix_queries)
                .or_else(|| self.prefix_share.mean()),
            draft_tokens: self.draft_tokens.total(),
            accepted_tokens: self.accepted_tokens.total(),
            draft_acceptance: ratio(&self.accepted_tokens, &self.draft_tokens)
                .or_else(|| self.draft_acceptance.mean()),
            accepted_length: ratio(&self.accepted_tokens, &self.drafts)
                .map(|accepted| 1.0 + accepted)
                .or_else(|| self.accepted_length.mean()),
        };
        (figures != EngineFigures::default()).then_some(figures)
    }
}

/// A counter between its first reading and its last.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    first: Option<f64>,
    last: Option<f64>,
    went_back: bool,
}

impl Growth {
    fn begin(&mut self, value: Option<f64>) {
        self.first = value;
    }

    fn see(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        self.went_back |= self.last.or(self.first).is_some_and(|before| value < before);
        self.last = Some(value);
    }

    fn total(&self) -> Option<u64> {
        let grown = self.last? - self.first?;
        (!self.went_back).then_some(grown.round() as u64)
    }
}

/// A gauge at its readings.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    readings: u64,
    sum: f64,
    most: Option<f64>,
}

impl Level {
    fn see(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        self.readings += 1;
        self.sum += value;
        self.most = Some(self.most.map_or(value, |most| most.max(value)));
    }

    fn mean(&self) -> Option<f64> {
        (self.readings > 0).then(|| self.sum / self.readings as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges(running: f64, kv: f64, queries: f64, hits: f64) -> Gauges {
        Gauges {
            running: Some(running),
            kv_usage: Some(kv),
            kv_fullest: Some(kv + 0.1),
            prefix_queries: Some(queries),
            prefix_hits: Some(hits),
            preemptions: Some(2.0),
            ..Gauges::default()
        }
    }

    #[test]
    fn counters_grow_and_gauges_are_averaged_in_the_window() {
        let mut readings = Readings::begin(Some(&gauges(0.0, 0.0, 1000.0, 10.0)));
        readings.count(&gauges(3.0, 0.9, 1100.0, 10.0));
        readings.see(&gauges(8.0, 0.2, 1200.0, 60.0));
        readings.see(&gauges(7.0, 0.4, 1300.0, 160.0));
        readings.count(&gauges(8.0, 0.5, 1400.0, 310.0));
        let figures = readings.figures().unwrap();
        assert_eq!(figures.running_mean, Some(7.5));
        assert!((figures.kv_usage_mean.unwrap() - 0.3).abs() < 1e-12);
        assert_eq!(figures.kv_usage_max, Some(0.5));
        assert_eq!((figures.prefix_queries, figures.prefix_hits), (Some(400), Some(300)));
        assert_eq!(figures.prefix_hit_share, Some(0.75));
        assert_eq!(figures.preemptions, Some(0));
        assert_eq!((figures.waiting_mean, figures.draft_acceptance), (None, None));
    }

    #[test]
    fn a_counter_that_went_backwards_is_unknown_even_if_it_caught_up() {
        let mut readings = Readings::begin(Some(&gauges(0.0, 0.0, 1000.0, 10.0)));
        readings.see(&gauges(1.0, 0.1, 5.0, 20.0));
        readings.see(&gauges(1.0, 0.1, 2000.0, 30.0));
        let figures = readings.figures().unwrap();
        assert_eq!((figures.prefix_queries, figures.prefix_hits), (None, Some(20)));
        assert_eq!(figures.prefix_hit_share, None);
    }

    #[test]
    fn what_was_not_read_twice_has_not_grown_by_zero() {
        let begun = Readings::begin(Some(&gauges(0.0, 0.0, 1000.0, 10.0)));
        assert_eq!(begun.figures(), None);
        // A labelled series appears with its first token: since when is unknown.
        let mut late = Readings::begin(Some(&Gauges::default()));
        late.count(&gauges(0.0, 0.0, 1000.0, 10.0));
        assert_eq!(late.figures(), None);
        assert_eq!(Readings::begin(None).figures(), None);
    }

    #[test]
    fn speculation_is_counted_where_there_are_counters_and_believed_where_not() {
        let counted = |n: f64| Gauges {
            drafts: Some(100.0 * n),
            draft_tokens: Some(300.0 * n),
            accepted_tokens: Some(210.0 * n),
            draft_acceptance: Some(0.1),
            ..Gauges::default()
        };
        let mut readings = Readings::begin(Some(&counted(1.0)));
        readings.see(&counted(3.0));
        let figures = readings.figures().unwrap();
        assert_eq!((figures.draft_tokens, figures.accepted_tokens), (Some(600), Some(420)));
        assert_eq!((figures.draft_acceptance, figures.accepted_length), (Some(0.7), Some(3.1)));

        // No drafts in the window: the counters stand, and a share of nothing is unknown.
        let mut idle = Readings::begin(Some(&Gauges { draft_acceptance: None, ..counted(1.0) }));
        idle.see(&Gauges { draft_acceptance: None, ..counted(1.0) });
        let figures = idle.figures().unwrap();
        assert_eq!((figures.draft_tokens, figures.draft_acceptance), (Some(0), None));

        let own = Gauges {
            draft_acceptance: Some(0.27),
            accepted_length: Some(2.9),
            prefix_share: Some(0.5),
            ..Gauges::default()
        };
        let mut believed = Readings::begin(Some(&own));
        believed.see(&own);
        let figures = believed.figures().unwrap();
        assert_eq!(
            (figures.draft_acceptance, figures.accepted_length, figures.prefix_hit_share),
            (Some(0.27), Some(2.9), Some(0.5))
        );
    }
}
