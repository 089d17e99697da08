//! A prefill cell: one long cold prompt at a time, one token out of each.

use std::time::Duration;

use crate::engine::readings::Readings;
use crate::load::{Cancel, Outcome, Trace};
use crate::measure::observe::{self, PrefillSample};
use crate::measure::validity::{self, Cache};
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::Prefix;

use super::cell::{Bench, Lag, Tally, enough};
use super::heartbeat::Lags;
use super::watch;

/// Ordinal of the prompt that warms up, behind those of the samples.
const WARM_UP: u64 = 1 << 32;
/// With fewer samples than this there is no interval.
const LEAST_SAMPLES: u32 = 2;
/// So many failed samples in a row end the cell.
const FAILURES_IN_A_ROW: usize = 3;

/// Measures the cell with `samples` requests, and as many again where the verdict asks for it.
pub(super) async fn measure(bench: &mut Bench<'_>, samples: u32) -> CellState {
    match attempt(bench, samples).await {
        Ok(measurement) => CellState::Measured(Box::new(measurement)),
        Err(state) => state,
    }
}

async fn attempt(bench: &mut Bench<'_>, samples: u32) -> Result<Measurement, CellState> {
    let length = bench.fit_length(1)?;
    let source = bench.source(Prefix::Cold, length).await?;
    let form = bench.form();
    let mut client = bench.client().await?;
    let stamped = client.is_stamped();
    let lags = Lags::default();
    let mut tally = Tally::default();
    // The first request of a length may pay for compiling what this length needs.
    bench.phase("warm-up", String::new());
    let request = form.prepared(&source.prompt(0, WARM_UP), 1)?;
    tally.count(&client.stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await);
    let before = bench.remote.gauges().await.ok().flatten();
    let mut readings = Readings::begin(before.as_ref());
    let mut taken = Vec::new();
    let mut planned = samples;
    let mut extended = false;
    let mut hopeless = false;
    let begun = bench.clock.now();
    loop {
        for ordinal in taken.len() as u32..planned {
            bench.phase("prefill", format!("sample {} of {planned}", ordinal + 1));
            let request = form.prepared(&source.prompt(0, ordinal.into()), 1)?;
            let heartbeat = lags.beat(bench.clock);
            let trace = client.stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await;
            drop(heartbeat);
            tally.count(&trace);
            tally.prompt(&trace, length, Some(Prefix::Cold));
            tally.output(&trace, 1);
            taken.push(sample(&trace, length));
            // Each may take the whole idle limit to fail.
            if taken.iter().rev().take(FAILURES_IN_A_ROW).filter(|it| it.is_none()).count()
                == FAILURES_IN_A_ROW
            {
                hopeless = true;
                break;
            }
        }
        let good = taken.iter().flatten().copied().collect::<Vec<_>>();
        let mut measurement = Measurement { extended, ..tally.measurement(bench) };
        measurement.observations = observe::prefill(&good);
        let more = !extended
            && !hopeless
            && samples > 1
            && judgement::wants_extension(bench.planned, &measurement, bench.policy, bench.gpus);
        if !more {
            let ended = bench.clock.now();
            let after = bench.remote.gauges().await.ok().flatten();
            if let Some(after) = &after {
                readings.count(after);
            }
            measurement.engine = readings.figures();
            measurement.telemetry = bench.instruments.over(&[(begun, ended)]).await.map(Box::new);
            let lookups = watch::lookups(before.as_ref(), after.as_ref());
            measurement.checks.push(validity::cache_counters(Cache::Cold, length, lookups));
            // One sample has no interval, unless no more were asked for.
            enough(&mut measurement, good.len() as u64, samples.min(LEAST_SAMPLES).into());
            let (waking, away) = (lags.p99(), lags.away().longest());
            let lag = Lag { waking, sending: Duration::ZERO, stamped, away };
            let checks = bench.client_checks(&measurement, None, None, &lag, &lags);
            measurement.checks.extend(checks);
            return Ok(measurement);
        }
        extended = true;
        planned = samples * 2;
    }
}

fn sample(trace: &Trace, length: u64) -> Option<PrefillSample> {
    let first = trace.events.first()?;
    match &trace.outcome {
        Outcome::Complete => Some(PrefillSample {
            prompt: trace.usage.and_then(|usage| usage.prompt).unwrap_or(length),
            cached: trace.usage.and_then(|usage| usage.cached).unwrap_or(0),
            ttft: first.at.seconds_since(trace.sent) * 1e3,
        }),
        Outcome::Cancelled | Outcome::Failed(_) => None,
    }
}
