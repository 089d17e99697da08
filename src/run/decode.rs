//! A decode cell: prompts warmed, waves of one-token requests for TTFT, then C looping streams and
//! a window over their tokens.
//!
//! The window, the figures and the checks are decided in `measure`; here are the streams, the
//! gauges and the waiting.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::hardware::telemetry::Telemetry;
use crate::judge::interval;
use crate::load::{Cancel, Canceller, Client, Outcome, Prepared, Prompt, Trace};
use crate::measure::absence::Absences;
use crate::measure::observe::{self, DecodeInput};
use crate::measure::window::State;
use crate::measure::{Base, Check, Observations, Stat, power, validity};
use crate::quantity::print_duration;
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::{DecodeSetting, Prefix};

use super::cell::{
    Bench, Flight, Form, Lag, Tally, broken, broken_words, enough, expected_cache, make_room,
};
use super::heartbeat::{Heartbeat, Lags};
use super::prompts::Source;
use super::stream::{Looping, Shared};
use super::watch::{Watch, drained};

/// Prompts that are warmed at once: an engine with few slots is not buried.
const WARM_AT_ONCE: usize = 16;
/// A wave is one observation, so fewer give no interval.
const LEAST_WAVES: u32 = 3;
/// How often the engine's gauges are read while a window is not yet open.
const GAUGE_PACE: Duration = Duration::from_millis(200);
/// How often they are read while it is open, at least.
const WATCH_PACE: Duration = Duration::from_secs(1);
/// How long streams may emit before a queue that does not empty is taken as the engine's state.
const QUEUE_PATIENCE: Duration = Duration::from_secs(20);

/// Output of requests that are to be served side by side, in tokens.
const TOGETHER: u64 = 8;
/// Ordinal of the wave that warms up, behind those that are measured.
const REHEARSAL: u64 = 1 << 31;
/// Ordinal of the first request of a looping stream, behind those of the waves.
const LOOPS: u64 = 1 << 32;

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &DecodeSetting) -> CellState {
    match attempt(bench, setting).await {
        Ok(measurement) => CellState::Measured(Box::new(measurement)),
        Err(state) => state,
    }
}

async fn attempt(bench: &mut Bench<'_>, setting: &DecodeSetting) -> Result<Measurement, CellState> {
    let streams = u32::try_from(bench.concurrency()).unwrap_or(u32::MAX);
    let length = bench.fit_length(setting.max_output)?;
    let source = Rc::new(bench.source(setting.prefix, length).await?);
    let form = Rc::new(bench.form());
    let mut tally = Tally::default();
    let mut lanes = Lanes::open(bench, setting, streams, length, &source).await?;
    if setting.prefix != Prefix::Cold {
        lanes.warm(bench, &form, &mut tally).await?;
    }
    let mut waves = lanes.waves(bench, &form, 0, &mut tally).await?;

    let before = bench.remote.gauges().await.ok().flatten();
    let shared = Arc::new(Shared::new(streams, setting, before.is_none()));
    let canceller = Canceller::new();
    let mut tasks = JoinSet::new();
    let Lanes { clients, prompts, mut lag, .. } = lanes;
    let stamped = clients.iter().all(Client::is_stamped);
    let mut requests = form.requests(&prompts, setting.max_output)?.into_iter();
    drop(prompts);
    for (stream, client) in (0u32..).zip(clients) {
        let next: Box<dyn FnMut() -> Option<Prepared>> = match requests.next() {
            Some(request) => Box::new(move || Some(request.clone())),
            None => {
                let (source, form, output) =
                    (Rc::clone(&source), Rc::clone(&form), setting.max_output);
                let mut ordinals = LOOPS..;
                Box::new(move || {
                    form.prepared(&source.prompt(stream, ordinals.next()?), output).ok()
                })
            }
        };
        let looping = Looping {
            stream,
            client,
            next,
            shared: Arc::clone(&shared),
            cancel: canceller.handle(),
            clock: bench.clock,
        };
        tasks.spawn_local(looping.run());
    }
    let lags = Lags::default();
    let heartbeat = lags.beat(bench.clock);
    // Where each request waits for a prefill of its own, a queue is the load.
    let output = (setting.prefix != Prefix::Cold).then_some(setting.max_output);
    let mut watch = Watch::new(before.as_ref(), streams, output);
    let outcome = window(bench, setting, &shared, &mut watch, &heartbeat, &waves, &tally).await;
    drop(heartbeat);
    lag = lag.max(lags.p99());
    watch.read(bench, false).await;
    shared.close();
    // Where a server counts only at the end, its streams are let finish; all others are cut at once.
    if shared.all_counted() {
        canceller.cancel();
    }
    while tasks.join_next().await.is_some() {}
    let doubts = outcome?;

    bench.phase("drain", String::new());
    let idle = drained(bench).await;
    if doubts.contains(&Base::Ttft) {
        let mut lanes = Lanes::open(bench, setting, streams, length, &source).await?;
        waves.extend(lanes.waves(bench, &form, waves.len() as u32, &mut tally).await?);
        lag = lag.max(lanes.lag);
    }
    let mut traces = shared.take_traces();
    // Whether a request was cached is known when it ends; where all are to be cold, each is looked at.
    let cold = Some(setting.prefix).filter(|prefix| *prefix == Prefix::Cold);
    for trace in &traces {
        tally.prompt(trace, length, cold);
    }
    let window = shared.seen().window.state();
    let output = setting.max_output;
    let away = lags.away();
    let seen = match window {
        State::Closed { from, to } => bench.instruments.over(&[(from, to)]).await,
        State::Ramp | State::Open { .. } => None,
    };
    let sight = |window: State, traces: &[Trace]| {
        let (away, waves, tally, doubts) = (&away, &waves, &tally, &doubts);
        let seen = seen.as_ref();
        let sight = Sight { window, traces, away, waves, tally, output, doubts, seen };
        (sight.measurement(bench), sight.flight(streams))
    };
    let (mut measurement, flight) = sight(window, &traces);
    let still = (away.longest() > bench.policy.max_client_lag).then(|| {
        traces.iter_mut().for_each(|trace| away.cut(trace));
        sight(window.on(&away), &traces).0
    });
    measurement.telemetry = seen.map(Box::new);
    measurement.checks.extend(watch.checks());
    measurement.engine = watch.engine();
    let expected = expected_cache(setting.prefix, length);
    measurement.checks.push(validity::cache_counters(expected, length, watch.lookups()));
    let told = waves.iter().filter(|wave| !wave.is_empty()).count();
    enough(&mut measurement, told as u64, LEAST_WAVES.into());
    let lag = Lag { waking: lag, sending: Duration::ZERO, stamped, away: away.longest() };
    let checks = bench.client_checks(&measurement, still.as_ref(), flight, &lag, &lags);
    measurement.checks.extend(checks);
    if !idle {
        measurement.warnings.push("the engine was not idle again after the cell".to_owned());
    }
    Ok(measurement)
}

/// The streams of a cell before they loop: an open connection each, and a prompt where it is warmed.
struct Lanes<'a> {
    source: &'a Source,
    prefix: Prefix,
    ttft_samples: u32,
    /// Empty where prompts are cold: each is used once.
    prompts: Vec<Prompt>,
    clients: Vec<Client>,
    length: u64,
    /// The client's lag over the waves.
    lag: Duration,
}

impl<'a> Lanes<'a> {
    async fn open(
        bench: &Bench<'_>,
        setting: &DecodeSetting,
        streams: u32,
        length: u64,
        source: &'a Source,
    ) -> Result<Lanes<'a>, CellState> {
        bench.phase("connect", format!("{streams} streams"));
        let prompts = match setting.prefix {
            Prefix::Cold => Vec::new(),
            Prefix::Unique | Prefix::Shared | Prefix::Groups { .. } => {
                (0..streams).map(|stream| source.prompt(stream, 0)).collect()
            }
        };
        make_room(&bench.endpoint, u64::from(streams))?;
        let mut clients = Vec::with_capacity(streams as usize);
        for _ in 0..streams {
            clients.push(bench.client().await?);
        }
        Ok(Lanes {
            source,
            prefix: setting.prefix,
            ttft_samples: setting.ttft_samples,
            prompts,
            clients,
            length,
            lag: Duration::ZERO,
        })
    }

    /// Sends every prompt once, one token each, so that the cache holds it.
    async fn warm(
        &mut self,
        bench: &Bench<'_>,
        form: &Form,
        tally: &mut Tally,
    ) -> Result<(), CellState> {
        // One shared prompt needs one request.
        let distinct = if self.prefix == Prefix::Shared { 1 } else { self.prompts.len() };
        let mut done = 0;
        while done < distinct {
            bench.phase("warm-up", format!("{done} of {distinct} prompts"));
            let part = done..(done + WARM_AT_ONCE).min(distinct);
            let requests = form.requests(&self.prompts[part.clone()], 1)?;
            for trace in wave(&mut self.clients[part.clone()], &requests).await {
                tally.count(&trace);
                if let Outcome::Failed(failure) = &trace.outcome {
                    return Err(broken(failure.clone()));
                }
            }
            done = part.end;
        }
        Ok(())
    }

    /// A one-token request for each stream, with prompts never sent before.
    fn cold(&self, form: &Form, ordinal: u64) -> Result<Vec<Prepared>, CellState> {
        let streams = 0..self.clients.len() as u32;
        let prompts: Vec<Prompt> =
            streams.map(|stream| self.source.prompt(stream, ordinal)).collect();
        form.requests(&prompts, 1)
    }

    /// Waves of C one-token requests; returns the TTFT in ms of each, by wave. `before` waves have
    /// been already, whose cold prompts are not repeated.
    async fn waves(
        &mut self,
        bench: &Bench<'_>,
        form: &Form,
        before: u32,
        tally: &mut Tally,
    ) -> Result<Vec<Vec<f64>>, CellState> {
        let streams = self.clients.len().max(1) as u32;
        let count = self.ttft_samples.div_ceil(streams).max(LEAST_WAVES);
        let mut waves = Vec::with_capacity(count as usize);
        let lags = Lags::default();
        let mut requests = form.requests(&self.prompts, 1)?;
        if before == 0 {
            bench.phase("warm-up", format!("a wave of {streams}"));
            if self.prefix == Prefix::Cold {
                requests = self.cold(form, REHEARSAL)?;
            } else if streams > 1 {
                // An engine may have a cache for each of its slots. Requests of one token slip through
                // the same slot one after another; these have to share it out among them.
                let together = form.requests(&self.prompts, TOGETHER)?;
                for trace in wave(&mut self.clients, &together).await {
                    tally.count(&trace);
                }
            }
            // The first wave may pay for compiling what so many requests of this length need.
            for trace in wave(&mut self.clients, &requests).await {
                tally.count(&trace);
            }
        }
        for ordinal in before..before + count {
            bench.phase("ttft", format!("wave {} of {}", ordinal + 1, before + count));
            if self.prefix == Prefix::Cold {
                requests = self.cold(form, ordinal.into())?;
            }
            let heartbeat = lags.beat(bench.clock);
            let traces = wave(&mut self.clients, &requests).await;
            drop(heartbeat);
            for trace in &traces {
                tally.count(trace);
                tally.prompt(trace, self.length, Some(self.prefix));
            }
            waves.push(traces.iter().filter_map(observe::ttft).collect());
        }
        self.lag = lags.p99();
        Ok(waves)
    }
}

/// One request on each of some connections at once.
async fn wave(clients: &mut [Client], requests: &[Prepared]) -> Vec<Trace> {
    let sent = clients.iter_mut().zip(requests).enumerate().map(
        |(stream, (client, request))| async move {
            client.stream(request, stream as u32, &mut |_| {}, &mut Cancel::never()).await
        },
    );
    futures_util::future::join_all(sent).await
}

/// Waits for the window to close, extending it once where the verdict asks for it.
async fn window(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
    shared: &Shared,
    watch: &mut Watch,
    heartbeat: &Heartbeat,
    waves: &[Vec<f64>],
    tally: &Tally,
) -> Result<Vec<Base>, CellState> {
    let mut doubts: Option<Vec<Base>> = None;
    let started = bench.clock.now();
    // A stream that emits nothing for longer than this has failed by its idle limit already.
    let limit = ramp_limit(bench, setting);
    let watch_pace = (setting.duration / 10).clamp(GAUGE_PACE / 2, WATCH_PACE);
    let mut next_gauges = started;
    loop {
        let state = shared.seen().window.on_time(bench.clock.now());
        match state {
            State::Closed { from, to } => match doubts {
                Some(doubts) => return Ok(doubts),
                None => {
                    let seen = bench.instruments.so_far(&[(from, to)]);
                    let found = shared.look(bench.clock.now(), |traces| {
                        let sight = Sight {
                            window: state,
                            traces,
                            away: &heartbeat.away(),
                            waves,
                            tally,
                            output: setting.max_output,
                            doubts: &[],
                            seen: seen.as_ref(),
                        };
                        let measurement = sight.measurement(bench);
                        judgement::extension(bench.planned, &measurement, bench.policy, bench.gpus)
                    });
                    // Doubts about TTFT alone ask for more waves, not for a longer window.
                    if found.iter().all(|base| *base == Base::Ttft) {
                        return Ok(found);
                    }
                    doubts = Some(found);
                    shared.seen().window.extend();
                    bench.phase("extension", "inconclusive so far".to_owned());
                }
            },
            State::Ramp | State::Open { .. } => {}
        }
        if shared.hopeless() {
            return Ok(doubts.unwrap_or_default());
        }
        let now = bench.clock.now();
        let waited = now.since(started);
        if state == State::Ramp && waited > limit {
            return Err(broken_words(
                "no-window",
                &format!(
                    "only {} of {} streams emitted within {}",
                    shared.seen().window.emitting(),
                    bench.concurrency(),
                    print_duration(waited)
                ),
            ));
        }
        if now >= next_gauges {
            let settled = watch.read(bench, matches!(state, State::Open { .. })).await;
            let all = shared.seen().window.emitting() as u64 == bench.concurrency();
            // A queue that does not empty is the engine's own state: measured, and told by the
            // check of the gauge.
            if settled || (state == State::Ramp && all && waited > QUEUE_PATIENCE) {
                shared.seen().window.set_gauges_ok(true);
            }
            let pace = if state == State::Ramp { GAUGE_PACE } else { watch_pace };
            next_gauges = bench.clock.now() + pace;
            bench.phase(
                match (state, &doubts) {
                    (State::Ramp, _) => "ramp",
                    (State::Open { .. } | State::Closed { .. }, None) => "window",
                    (State::Open { .. } | State::Closed { .. }, Some(_)) => "extension",
                },
                shared.note(now),
            );
        }
        tokio::select! {
            () = shared.changed.notified() => {}
            () = bench.clock.sleep_until(next_gauges) => {}
        }
    }
}

fn ramp_limit(bench: &Bench<'_>, setting: &DecodeSetting) -> Duration {
    // First tokens of cold prompts may queue behind each other's prefill; a stream's own idle limit
    // bounds each of them, so their sum bounds the ramp.
    let queue = if setting.prefix == Prefix::Cold { bench.concurrency() as u32 } else { 2 };
    bench.request.idle_timeout.saturating_mul(queue.max(2)) + QUEUE_PATIENCE
}

/// What a decode cell's figures are made of.
struct Sight<'a> {
    window: State,
    traces: &'a [Trace],
    /// When this program did not run.
    away: &'a Absences,
    waves: &'a [Vec<f64>],
    tally: &'a Tally,
    /// Tokens that a request was asked for.
    output: u64,
    /// What the cell was extended for.
    doubts: &'a [Base],
    /// What was seen of the hardware in the window.
    seen: Option<&'a Telemetry>,
}

impl Sight<'_> {
    fn measurement(&self, bench: &Bench<'_>) -> Measurement {
        let mut tally = self.tally.clone();
        for trace in self.traces {
            tally.count(trace);
            tally.output(trace, self.output);
        }
        let extended = !self.doubts.is_empty();
        let mut measurement = Measurement { extended, ..tally.measurement(bench) };
        if let State::Closed { from, to } = self.window {
            let longer = self.doubts.iter().any(|base| *base != Base::Ttft);
            let batches = if longer { 20 } else { 10 };
            let input = DecodeInput { traces: self.traces, from, to, batches };
            measurement.observations = observe::decode(&input);
            if let Some(seen) = self.seen {
                power::observe(&mut measurement.observations, seen);
            }
            measurement.checks.extend(checks(&input, &measurement, self.away));
        }
        if let Some(waves) = observe::waves(self.waves) {
            measurement.observations.insert(Base::Ttft, waves);
        }
        measurement
    }

    /// Requests in flight in the window.
    fn flight(&self, streams: u32) -> Option<Flight> {
        match self.window {
            State::Closed { from, to } => {
                Some(Flight { delivered: observe::in_flight(self.traces, from, to), streams })
            }
            State::Ramp | State::Open { .. } => None,
        }
    }
}

/// What the window itself says of whether it counts.
fn checks(input: &DecodeInput<'_>, measurement: &Measurement, away: &Absences) -> Vec<Check> {
    let known = measurement.observations.contains_key(&Base::OutputTokens);
    let mut checks = vec![validity::token_count(known)];
    if let Some(Observations::Batches { means, .. }) =
        measurement.observations.get(&Base::OutputThroughput)
    {
        checks.push(validity::steady(means));
    }
    if let Some(gaps) = measurement.observations.get(&Base::ChunkGap)
        && let Some(median) = interval::value(gaps, Some(Stat::P50))
    {
        let limit = validity::stall_limit(Duration::from_secs_f64((median / 1e3).max(0.0)));
        let (longest, present) = observe::longest_gaps(input.traces, input.from, input.to, away);
        checks.push(validity::stall(longest, present, limit));
    }
    checks
}
