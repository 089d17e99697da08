//! What is estimated of a metric of a cell, and how far the client can move it.

use std::time::Duration;

use super::Sight;
use crate::judge::ratio::of_launches;
use crate::judge::spread::critical;
use crate::judge::{Estimate, Method, interval};
use crate::measure::{Base, Metric, Observations, Stat, power};
use crate::record::run_record::{Measurement, NoiseRecord, PlannedCellRecord};
use crate::suite::model::Policy;

/// The standard error of a metric as one launch tells it by its own batches, samples or waves, as a share
/// of the value. `None` where one launch has no noise to tell: a single reading, a count.
pub fn error_within(
    cell: &PlannedCellRecord,
    measurement: &Measurement,
    policy: &Policy,
    gpus: u32,
    metric: Metric,
) -> Option<f64> {
    // Any level would do: the error is taken out of an interval again.
    let sight = Sight { cell, measurement, policy, gpus, extendable: false, rounds: None };
    let found = sight.of_one(metric).ok()?;
    let half = (found.upper? - found.lower?) / 2.0;
    let df = match found.method {
        Method::BatchMeans | Method::StudentT => (found.n as f64 - 1.0).max(1.0),
        // Counts lie about as a normal variable does.
        Method::Binomial => f64::INFINITY,
        Method::Exact | Method::Point => return None,
        Method::Launches | Method::Baseline | Method::Paired => return None,
    };
    let error = half / critical(policy.alpha, df) / found.value;
    Some(error).filter(|error| error.is_finite() && *error >= 0.0)
}

impl Sight<'_> {
    /// What is estimated of a metric: of several launches by their spread, where a calibration told how
    /// launches differ by that, else in the one launch.
    pub(super) fn estimate(
        &self,
        metric: Metric,
        noise: Option<&NoiseRecord>,
    ) -> Result<Estimate, String> {
        let launches = self.launches();
        if launches.is_empty() && noise.is_none() {
            return self.of_one(metric);
        }
        let values = match launches.as_slice() {
            [] => vec![self.of_one(metric)?],
            launches => launches.iter().map(|one| one.of_one(metric)).collect::<Result<_, _>>()?,
        };
        let exact = values.iter().all(|one| one.method == Method::Exact);
        let values: Vec<f64> = values.iter().map(|one| one.value).collect();
        // Of nothing there is no logarithm, and a calibration tells of logarithms.
        let known = noise.filter(|_| values.iter().all(|value| *value > 0.0));
        if exact || (known.is_none() && values.len() == 1) {
            return self.of_one(metric);
        }
        of_launches(&values, known.map(NoiseRecord::noise), self.policy.alpha)
            .map_err(|why| why.to_string())
    }

    /// What is estimated of a metric in one launch.
    pub(super) fn of_one(&self, metric: Metric) -> Result<Estimate, String> {
        let observations = &self.measurement.observations;
        let observed = observations.get(&metric.base).ok_or_else(|| {
            if power::of_gpus(metric.base) {
                return power::lack(self.measurement.telemetry.as_deref());
            }
            format!("no {} was observed", metric.base.entry().name)
        })?;
        let alpha = self.policy.alpha;
        let level = |of: &Observations| {
            if self.extendable {
                interval::levels(of, metric.stat, alpha, self.measurement.extended)
            } else {
                alpha
            }
        };
        let found = match observations.get(&Base::PerRequestThroughput) {
            // The requests of a window share its steps, whose noise only its batches tell.
            Some(rates @ Observations::Batches { .. }) if metric.base == Base::Tpot => {
                let level = level(rates).min(level(observed));
                interval::estimate_in_window(observed, metric.stat, rates, level)
            }
            Some(_) | None => {
                let shared = self.shared(metric.base);
                interval::estimate_shared(observed, metric.stat, level(observed), shared)
            }
        };
        let found = found.map_err(|why| why.to_string())?;
        let divisor = if metric.per_gpu { f64::from(self.gpus.max(1)) } else { 1.0 };
        Ok(Estimate {
            value: found.value / divisor,
            lower: found.lower.map(|lower| lower / divisor),
            upper: found.upper.map(|upper| upper / divisor),
            ..found
        })
    }

    /// How many samples share what befell the engine: as many as the load itself tells, else one for
    /// each request in flight, which share its steps and its queue, and for the gaps of tokens one for
    /// each that an event carries.
    fn shared(&self, base: Base) -> f64 {
        let observations = &self.measurement.observations;
        let count = |base| observations.get(&base).map_or(0.0, |o| o.count() as f64);
        let streams = match observations.get(&Base::ActiveRequests) {
            Some(Observations::Exact(active)) => active.round().max(1.0),
            Some(_) | None => 1.0,
        };
        match base {
            Base::ChunkGap => streams,
            Base::Ttft | Base::Tpot | Base::E2eLatency | Base::TtftDue | Base::E2eLatencyDue => {
                self.measurement.sharing.get(&base).copied().unwrap_or(streams)
            }
            Base::Itl if count(Base::ChunkGap) > 0.0 => {
                streams * (count(Base::Itl) / count(Base::ChunkGap)).max(1.0)
            }
            Base::Itl
            | Base::OutputThroughput
            | Base::PerRequestThroughput
            | Base::PrefillThroughput
            | Base::ActiveRequests
            | Base::CompletedRequests
            | Base::OutputTokens
            | Base::MeasuredTime
            | Base::ReadyTime
            | Base::KvCapacity
            | Base::RequestThroughput
            | Base::Goodput
            | Base::ErrorRate
            | Base::PowerMean
            | Base::JoulesPerToken
            | Base::GpuMemoryMax
            | Base::User(_) => 1.0,
        }
    }

    /// How far a lag can move a figure, in its unit.
    pub(super) fn shift(&self, base: Base, value: f64, lag: Duration) -> f64 {
        let seconds = lag.as_secs_f64();
        let observations = &self.measurement.observations;
        let known = |base, stat| observations.get(&base).and_then(|o| interval::value(o, stat));
        match base {
            Base::Ttft
            | Base::Tpot
            | Base::Itl
            | Base::ChunkGap
            | Base::E2eLatency
            | Base::TtftDue
            | Base::E2eLatencyDue => seconds * 1e3,
            Base::ReadyTime | Base::MeasuredTime => seconds,
            Base::OutputThroughput
            | Base::PerRequestThroughput
            | Base::ActiveRequests
            | Base::RequestThroughput
            | Base::Goodput
            | Base::JoulesPerToken => {
                let window = known(Base::MeasuredTime, None).unwrap_or(0.0);
                value * (2.0 * seconds / window.max(seconds))
            }
            Base::PrefillThroughput => {
                let ttft = known(Base::Ttft, Some(Stat::P50)).unwrap_or(0.0) / 1e3;
                value * (seconds / ttft.max(seconds).max(1e-9))
            }
            Base::CompletedRequests
            | Base::OutputTokens
            | Base::KvCapacity
            | Base::ErrorRate
            | Base::PowerMean
            | Base::GpuMemoryMax
            | Base::User(_) => 0.0,
        }
    }
    /// How far a figure can be from what it would be with all requests in flight, in its unit, where
    /// a `share` of them was.
    ///
    /// An engine that is full serves no more per second for them, so a request takes longer in
    /// proportion (Little's law); what queues waits all of that for its first token. One that is not
    /// full serves more in proportion.
    pub(super) fn missed(&self, base: Base, value: f64, share: f64) -> f64 {
        let lack = 1.0 / share.max(1e-9) - 1.0;
        let observations = &self.measurement.observations;
        match base {
            Base::Ttft | Base::TtftDue | Base::E2eLatency | Base::E2eLatencyDue => {
                let whole = observations.get(&Base::E2eLatency);
                let whole = whole.and_then(|o| interval::value(o, Some(Stat::Mean)));
                value.max(whole.unwrap_or(0.0)) * lack
            }
            Base::Tpot
            | Base::Itl
            | Base::ChunkGap
            | Base::OutputThroughput
            | Base::PerRequestThroughput
            | Base::PrefillThroughput
            | Base::ActiveRequests
            | Base::RequestThroughput
            | Base::Goodput
            | Base::JoulesPerToken => value * lack,
            Base::ReadyTime
            | Base::MeasuredTime
            | Base::CompletedRequests
            | Base::OutputTokens
            | Base::KvCapacity
            | Base::ErrorRate
            | Base::PowerMean
            | Base::GpuMemoryMax
            | Base::User(_) => 0.0,
        }
    }
}
