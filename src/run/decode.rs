//! A decode cell: prompts warmed, waves of one-token requests for TTFT, then C looping streams and
//! a window over their tokens.
//!
//! The window, the figures and the checks are decided in `measure`; here are the streams, the
//! gauges and the waiting.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::engine::metrics::Gauges;
use crate::judge::interval;
use crate::load::socket::make_room_for;
use crate::load::{Cancel, Canceller, Client, Dialect, Outcome, Prompt, Trace};
use crate::measure::observe::{self, DecodeInput};
use crate::measure::window::State;
use crate::measure::{Base, Check, Observations, Stat, validity};
use crate::quantity::print_duration;
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::{DecodeSetting, Prefix};

use super::cell::{Bench, Tally, broken, broken_words};
use super::prompts::Purpose;
use super::stream::{Looping, Shared, unpoisoned};

/// Prompts that are warmed at once: an engine with few slots is not buried.
const WARM_AT_ONCE: usize = 16;
/// A wave is one observation, so fewer give no interval.
const LEAST_WAVES: u32 = 3;
/// How often the engine's gauges are read while a window is not yet open.
const GAUGE_PACE: Duration = Duration::from_millis(200);
/// How often they are read while it is open.
const WATCH_PACE: Duration = Duration::from_secs(1);
/// How long streams may emit before a queue that does not empty is taken as the engine's state.
const QUEUE_PATIENCE: Duration = Duration::from_secs(20);
/// How long an engine may take to fall idle after a cell.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);

/// Pace of the task whose lateness tells the client's lag.
const HEARTBEAT: Duration = Duration::from_millis(5);

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
    let mut tally = Tally::default();
    let mut lanes = Lanes::open(bench, setting, streams, length).await?;
    if setting.prefix != Prefix::Cold {
        lanes.warm(bench, setting, &mut tally).await?;
    }
    let mut waves = lanes.waves(bench, setting, 0, &mut tally).await?;

    let before = bench.remote.gauges().await.ok().flatten();
    let requests = bench.requests(&lanes.prompts, setting.max_output)?;
    let shared = Arc::new(Shared::new(streams, setting, before.is_none()));
    let canceller = Canceller::new();
    let mut tasks = JoinSet::new();
    for (stream, (client, request)) in lanes.clients.into_iter().zip(requests).enumerate() {
        let looping = Looping {
            stream: stream as u32,
            client,
            request,
            shared: Arc::clone(&shared),
            cancel: canceller.handle(),
            clock: bench.clock,
        };
        tasks.spawn_local(looping.run());
    }
    drop(lanes.prompts);
    let lag = Arc::new(Mutex::new(Vec::new()));
    let heartbeat = tokio::task::spawn_local(heartbeat(bench.clock, Arc::clone(&lag)));
    let mut watch = Watch::new(before.as_ref(), streams);
    let outcome = window(bench, setting, &shared, &mut watch, &waves, &tally).await;
    heartbeat.abort();
    shared.close();
    // A server that counts only at the end is let finish; every other is cut at once.
    if bench.endpoint.dialect != Dialect::OpenAi {
        canceller.cancel();
    }
    while tasks.join_next().await.is_some() {}
    let doubts = outcome?;

    bench.phase("drain", String::new());
    let idle = drained(bench).await;
    if doubts.contains(&Base::Ttft) {
        let mut lanes = Lanes::open(bench, setting, streams, length).await?;
        waves.extend(lanes.waves(bench, setting, waves.len() as u32, &mut tally).await?);
    }
    let traces = shared.traces(true);
    for trace in &traces {
        tally.prompt(trace, length, None);
    }
    let window = shared.seen().window.state();
    let sight = Sight { window, traces: &traces, waves: &waves, tally: &tally, doubts: &doubts };
    let mut measurement = sight.measurement(bench, streams);
    measurement.checks.extend(watch.checks());
    let lag = percentile_99(&mut unpoisoned(&lag));
    let matters =
        judgement::lag_matters(bench.planned, &measurement, bench.policy, bench.gpus, lag);
    measurement.checks.push(validity::client_lag(lag, bench.policy.max_client_lag, matters));
    if !idle {
        measurement.warnings.push("the engine was not idle again after the cell".to_owned());
    }
    Ok(measurement)
}

/// The streams of a cell before they loop: a prompt and an open connection each.
struct Lanes {
    prompts: Vec<Prompt>,
    clients: Vec<Client>,
    length: u64,
}

impl Lanes {
    async fn open(
        bench: &mut Bench<'_>,
        setting: &DecodeSetting,
        streams: u32,
        length: u64,
    ) -> Result<Lanes, CellState> {
        bench.phase("connect", format!("{streams} streams"));
        let mut prompts = Vec::with_capacity(streams as usize);
        for stream in 0..streams {
            let purpose = Purpose::Stream { stream, prefix: setting.prefix };
            prompts.push(bench.prompt(purpose, length).await?);
        }
        make_room_for(u64::from(streams)).map_err(|e| broken_words("client", &e.to_string()))?;
        let mut clients = Vec::with_capacity(streams as usize);
        for _ in 0..streams {
            clients.push(bench.client().await?);
        }
        Ok(Lanes { prompts, clients, length })
    }

    /// Sends every prompt once, one token each, so that the cache holds it.
    async fn warm(
        &mut self,
        bench: &Bench<'_>,
        setting: &DecodeSetting,
        tally: &mut Tally,
    ) -> Result<(), CellState> {
        // One shared prompt needs one request.
        let distinct = if setting.prefix == Prefix::Shared { 1 } else { self.prompts.len() };
        let mut done = 0;
        while done < distinct {
            bench.phase("warm-up", format!("{done} of {distinct} prompts"));
            let part = done..(done + WARM_AT_ONCE).min(distinct);
            for trace in self.wave(bench, part.clone()).await? {
                tally.count(&trace);
                if let Outcome::Failed(failure) = &trace.outcome {
                    return Err(broken(failure.clone()));
                }
            }
            done = part.end;
        }
        Ok(())
    }

    /// One request of one token on each of some lanes at once.
    async fn wave(
        &mut self,
        bench: &Bench<'_>,
        part: std::ops::Range<usize>,
    ) -> Result<Vec<Trace>, CellState> {
        let requests = bench.requests(&self.prompts[part.clone()], 1)?;
        let clients = self.clients[part].iter_mut();
        let sent =
            clients.zip(&requests).enumerate().map(|(stream, (client, request))| async move {
                client.stream(request, stream as u32, &mut |_| {}, &mut Cancel::never()).await
            });
        Ok(futures_util::future::join_all(sent).await)
    }

    /// Waves of C one-token requests; returns the TTFT in ms of each, by wave. `before` waves have
    /// been already, whose cold prompts are not repeated.
    async fn waves(
        &mut self,
        bench: &mut Bench<'_>,
        setting: &DecodeSetting,
        before: u32,
        tally: &mut Tally,
    ) -> Result<Vec<Vec<f64>>, CellState> {
        let streams = self.clients.len().max(1) as u32;
        let count = setting.ttft_samples.div_ceil(streams).max(LEAST_WAVES);
        let mut waves = Vec::with_capacity(count as usize);
        for ordinal in before..before + count {
            bench.phase("ttft", format!("wave {} of {}", ordinal + 1, before + count));
            if setting.prefix == Prefix::Cold {
                for (stream, prompt) in self.prompts.iter_mut().enumerate() {
                    let (ordinal, stream) = (u64::from(ordinal), stream as u32);
                    *prompt = bench.prompt(Purpose::Cold { ordinal, stream }, self.length).await?;
                }
            }
            let traces = self.wave(bench, 0..self.clients.len()).await?;
            for trace in &traces {
                tally.count(trace);
                tally.prompt(trace, self.length, Some(setting.prefix));
            }
            waves.push(traces.iter().filter_map(observe::ttft).collect());
        }
        Ok(waves)
    }
}

/// Waits for the window to close, extending it once where the verdict asks for it.
async fn window(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
    shared: &Shared,
    watch: &mut Watch,
    waves: &[Vec<f64>],
    tally: &Tally,
) -> Result<Vec<Base>, CellState> {
    let mut doubts: Option<Vec<Base>> = None;
    let started = bench.clock.now();
    // A stream that emits nothing for longer than this has failed by its idle limit already.
    let limit = ramp_limit(bench, setting);
    let mut next_gauges = started;
    loop {
        let state = shared.seen().window.on_time(bench.clock.now());
        match state {
            State::Closed { .. } => match doubts {
                Some(doubts) => return Ok(doubts),
                None => {
                    let traces = shared.traces(false);
                    let sight = Sight { window: state, traces: &traces, waves, tally, doubts: &[] };
                    let measurement = sight.measurement(bench, shared.streams);
                    let found =
                        judgement::extension(bench.planned, &measurement, bench.policy, bench.gpus);
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
            if watch.readable
                && let Ok(Some(gauges)) = bench.remote.gauges().await
            {
                let settled = watch.see(&gauges, matches!(state, State::Open { .. }));
                let all = shared.seen().window.emitting() as u64 == bench.concurrency();
                // A queue that does not empty is the engine's own state: measured, and told by
                // the check of the gauge.
                if settled || (state == State::Ramp && all && waited > QUEUE_PATIENCE) {
                    shared.seen().window.set_gauges_ok(true);
                }
            }
            let pace = if state == State::Ramp { GAUGE_PACE } else { WATCH_PACE };
            next_gauges = bench.clock.now() + pace;
            bench.phase(
                match (state, &doubts) {
                    (State::Ramp, _) => "ramp",
                    (State::Open { .. } | State::Closed { .. }, None) => "window",
                    (State::Open { .. } | State::Closed { .. }, Some(_)) => "extension",
                },
                shared.note(),
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

/// Waits until the engine says that nothing runs; true where it can't be asked.
async fn drained(bench: &Bench<'_>) -> bool {
    let begun = bench.clock.now();
    loop {
        match bench.remote.gauges().await {
            Ok(Some(Gauges { running: Some(running), waiting, .. })) => {
                if running == 0.0 && waiting.unwrap_or(0.0) == 0.0 {
                    return true;
                }
            }
            Ok(Some(_) | None) | Err(_) => return true,
        }
        if bench.clock.now().since(begun) > IDLE_PATIENCE {
            return false;
        }
        bench.clock.sleep_until(bench.clock.now() + Duration::from_millis(50)).await;
    }
}

/// Records how late a task is woken: what our own machine adds to every stamp.
async fn heartbeat(clock: Clock, lag: Arc<Mutex<Vec<Duration>>>) {
    let mut due = clock.now();
    loop {
        due = due + HEARTBEAT;
        clock.sleep_until(due).await;
        let late = clock.now().since(due);
        unpoisoned(&lag).push(late);
        if late > HEARTBEAT {
            due = clock.now();
        }
    }
}

/// The 99th percentile of the lags, less the millisecond by which tokio's timers round up.
fn percentile_99(lags: &mut [Duration]) -> Duration {
    lags.sort_unstable();
    let rank = (lags.len() * 99).div_ceil(100).max(1) - 1;
    lags.get(rank).copied().unwrap_or_default().saturating_sub(Duration::from_millis(1))
}

/// What a decode cell's figures are made of.
struct Sight<'a> {
    window: State,
    traces: &'a [Trace],
    waves: &'a [Vec<f64>],
    tally: &'a Tally,
    /// What the cell was extended for.
    doubts: &'a [Base],
}

impl Sight<'_> {
    fn measurement(&self, bench: &Bench<'_>, streams: u32) -> Measurement {
        let mut tally = self.tally.clone();
        for trace in self.traces {
            tally.count(trace);
        }
        let extended = !self.doubts.is_empty();
        let mut measurement = Measurement { extended, ..tally.measurement(bench) };
        if let State::Closed { from, to } = self.window {
            let longer = self.doubts.iter().any(|base| *base != Base::Ttft);
            let batches = if longer { 20 } else { 10 };
            let input = DecodeInput { traces: self.traces, from, to, batches };
            measurement.observations = observe::decode(&input);
            measurement.checks.extend(checks(&input, &measurement, streams));
        }
        if let Some(waves) = observe::waves(self.waves) {
            measurement.observations.insert(Base::Ttft, waves);
        }
        measurement
    }
}

/// What the window itself says of whether it counts.
fn checks(input: &DecodeInput<'_>, measurement: &Measurement, streams: u32) -> Vec<Check> {
    let known = measurement.observations.contains_key(&Base::OutputTokens);
    let in_flight = observe::in_flight(input.traces, input.from, input.to);
    let mut checks = vec![validity::token_count(known), validity::concurrency(in_flight, streams)];
    if let Some(Observations::Batches { means, .. }) =
        measurement.observations.get(&Base::OutputThroughput)
    {
        checks.push(validity::steady(means));
    }
    if let Some(gaps) = measurement.observations.get(&Base::ChunkGap)
        && let (Some(median), Some(longest)) =
            (interval::value(gaps, Some(Stat::P50)), interval::value(gaps, Some(Stat::Max)))
    {
        let duration = |ms: f64| Duration::from_secs_f64((ms / 1e3).max(0.0));
        let limit = validity::stall_limit(duration(median));
        checks.push(validity::stall(duration(longest), limit));
    }
    checks
}

/// What the engine's gauges showed over the cell.
struct Watch {
    readable: bool,
    preemptions: Option<f64>,
    preempted: f64,
    most_waiting: f64,
    streams: u32,
}

impl Watch {
    fn new(before: Option<&Gauges>, streams: u32) -> Watch {
        Watch {
            readable: before.is_some_and(|gauges| gauges.running.is_some()),
            preemptions: before.and_then(|gauges| gauges.preemptions),
            preempted: 0.0,
            most_waiting: 0.0,
            streams,
        }
    }

    /// Takes a reading; true where all streams run and none waits. A queue counts against the
    /// engine once the window is open.
    fn see(&mut self, gauges: &Gauges, open: bool) -> bool {
        let waiting = gauges.waiting.unwrap_or(0.0);
        if open {
            self.most_waiting = self.most_waiting.max(waiting);
        }
        if let (Some(before), Some(now)) = (self.preemptions, gauges.preemptions) {
            self.preempted = self.preempted.max(now - before);
        }
        gauges.running.unwrap_or(0.0) >= f64::from(self.streams) && waiting == 0.0
    }

    fn checks(&self) -> [Check; 2] {
        let waiting = self.readable.then_some(self.most_waiting as u64);
        let preempted = self.preemptions.map(|_| self.preempted as u64);
        [validity::queued(waiting, self.streams), validity::preemption(preempted)]
    }
}
