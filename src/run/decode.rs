//! A decode cell: prompts warmed, waves of one-token requests for TTFT, then C looping streams and
//! a window over their tokens.
//!
//! The window, the figures and the checks are decided in `measure`; here are the streams, the
//! gauges and the waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::{Clock, Stamp};
use crate::engine::metrics::Gauges;
use crate::load::socket::make_room_for;
use crate::load::{
    Cancel, Canceller, Client, Dialect, Outcome, Prepared, Prompt, TokenEvent, Trace,
};
use crate::measure::observe::{self, DecodeInput};
use crate::measure::window::{State, Window};
use crate::judge::interval;
use crate::measure::{Base, Check, Observations, Stat, validity};
use crate::quantity::print_duration;
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::{DecodeSetting, Prefix};

use super::cell::{Bench, Tally, broken_words};
use super::prompts::Purpose;

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
/// Rest of a stream after a failed request, so that a dead engine is not hammered.
const FAILURE_REST: Duration = Duration::from_millis(250);

/// Pace of the task whose lateness tells the client's lag.
const HEARTBEAT: Duration = Duration::from_millis(5);

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &DecodeSetting) -> CellState {
    match attempt(bench, setting).await {
        Ok(measurement) => CellState::Measured(Box::new(measurement)),
        Err(state) => state,
    }
}

async fn attempt(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
) -> Result<Measurement, CellState> {
    let streams = u32::try_from(bench.concurrency()).unwrap_or(u32::MAX);
    let length = bench.fit_length(setting.max_output)?;
    let mut tally = Tally::default();

    bench.phase("prompts", String::new());
    let mut prompts = Vec::with_capacity(streams as usize);
    for stream in 0..streams {
        let purpose = Purpose::Stream { stream, prefix: setting.prefix };
        prompts.push(bench.prompt(purpose, length).await?);
    }
    bench.phase("connect", format!("{streams} streams"));
    let mut clients = Vec::with_capacity(streams as usize);
    make_room_for(u64::from(streams)).map_err(|e| broken_words("client", &e.to_string()))?;
    for _ in 0..streams {
        clients.push(bench.client().await?);
    }

    if setting.prefix != Prefix::Cold {
        warm(bench, setting, &prompts, &mut clients, &mut tally).await?;
    }
    let waves = ttft_waves(bench, setting, &mut prompts, &mut clients, length, &mut tally).await?;
    let before = bench.remote.gauges().await.ok().flatten();

    let requests = bench.requests(&prompts, setting.max_output)?;
    drop(prompts);
    let shared = Arc::new(Shared::new(streams, setting, before.is_none()));
    let canceller = Canceller::new();
    let mut tasks = JoinSet::new();
    for (stream, (client, request)) in clients.into_iter().zip(requests).enumerate() {
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
    let lag = Arc::new(Mutex::new(Vec::new()));
    let heartbeat = tokio::task::spawn_local(heartbeat(bench.clock, Arc::clone(&lag)));

    let mut watch = Watch::new(before.as_ref(), streams);
    let outcome = window(bench, setting, &shared, &mut watch, &waves, &tally).await;
    heartbeat.abort();
    // Servers that count only at the end are let finish; all others are cut at once.
    shared.closing.store(true, Ordering::Relaxed);
    if bench.endpoint.dialect != Dialect::OpenAi {
        canceller.cancel();
    }
    while tasks.join_next().await.is_some() {}
    let extended = outcome?;

    bench.phase("drain", String::new());
    let idle = drained(bench).await;
    let mut measurement = shared.assemble(&waves, &tally, extended, bench, length, true);
    measurement.checks.extend(watch.checks());
    let lag = percentile_99(&mut unpoisoned(&lag));
    let judged = !bench.planned.bounds.is_empty();
    measurement.checks.push(validity::client_lag(lag, bench.policy.max_client_lag, judged));
    if !idle {
        measurement.warnings.push("the engine was not idle again after the cell".to_owned());
    }
    Ok(measurement)
}

/// Sends every prompt once, one token each, so that the cache holds it.
async fn warm(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
    prompts: &[Prompt],
    clients: &mut [Client],
    tally: &mut Tally,
) -> Result<(), CellState> {
    // One shared prompt needs one request; sixteen at a time otherwise, so that an engine with few
    // slots is not buried.
    let distinct = if setting.prefix == Prefix::Shared { 1 } else { prompts.len() };
    let mut done = 0;
    for (prompts, clients) in
        prompts[..distinct].chunks(WARM_AT_ONCE).zip(clients[..distinct].chunks_mut(WARM_AT_ONCE))
    {
        bench.phase("warm-up", format!("{done} of {distinct} prompts"));
        for trace in wave(bench, prompts, clients).await? {
            tally.count(&trace);
            if let Outcome::Failed(failure) = &trace.outcome {
                return Err(broken_words("warm-up", &failure.message));
            }
        }
        done += prompts.len();
    }
    Ok(())
}

/// One request of one token on each client at once.
async fn wave(
    bench: &Bench<'_>,
    prompts: &[Prompt],
    clients: &mut [Client],
) -> Result<Vec<Trace>, CellState> {
    let requests = bench.requests(prompts, 1)?;
    let sent = clients.iter_mut().zip(&requests).enumerate().map(|(stream, (client, request))| {
        async move {
            client.stream(request, stream as u32, &mut |_| {}, &mut Cancel::never()).await
        }
    });
    Ok(futures_util::future::join_all(sent).await)
}

/// Waves of C one-token requests; returns the TTFT in ms of each, by wave.
async fn ttft_waves(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
    prompts: &mut [Prompt],
    clients: &mut [Client],
    length: u64,
    tally: &mut Tally,
) -> Result<Vec<Vec<f64>>, CellState> {
    let streams = clients.len().max(1) as u32;
    let count = setting.ttft_samples.div_ceil(streams).max(LEAST_WAVES);
    let mut waves = Vec::with_capacity(count as usize);
    for ordinal in 0..count {
        bench.phase("ttft", format!("wave {} of {count}", ordinal + 1));
        if setting.prefix == Prefix::Cold {
            for (stream, prompt) in prompts.iter_mut().enumerate() {
                let purpose = Purpose::Cold { ordinal: u64::from(ordinal), stream: stream as u32 };
                *prompt = bench.prompt(purpose, length).await?;
            }
        }
        let mut values = Vec::with_capacity(clients.len());
        for trace in wave(bench, prompts, clients).await? {
            tally.count(&trace);
            tally.prompt(&trace, length, Some(setting.prefix));
            if let (Outcome::Complete, Some(first)) = (&trace.outcome, trace.events.first()) {
                values.push(first.at.since(trace.sent).as_secs_f64() * 1e3);
            }
        }
        if !values.is_empty() {
            waves.push(values);
        }
    }
    Ok(waves)
}

/// Waits for the window to close, extending it once where the verdict asks for it.
async fn window(
    bench: &mut Bench<'_>,
    setting: &DecodeSetting,
    shared: &Shared,
    watch: &mut Watch,
    waves: &[Vec<f64>],
    tally: &Tally,
) -> Result<bool, CellState> {
    let mut extended = false;
    let started = bench.clock.now();
    // A stream that emits nothing for longer than this has failed by its idle limit already.
    let limit = ramp_limit(bench, setting);
    let mut next_gauges = started;
    loop {
        let state = shared.seen().window.on_time(bench.clock.now());
        match state {
            State::Closed { .. } if extended => return Ok(true),
            State::Closed { .. } => {
                let measurement = shared.assemble(waves, tally, false, bench, 0, false);
                if !judgement::wants_extension(bench.planned, &measurement, bench.policy, bench.gpus)
                {
                    return Ok(false);
                }
                extended = true;
                shared.seen().window.extend();
                bench.phase("extension", "inconclusive so far".to_owned());
            }
            State::Ramp | State::Open { .. } => {}
        }
        if shared.hopeless() {
            return Ok(extended);
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
                if state == State::Ramp { "ramp" } else if extended { "extension" } else { "window" },
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

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the streams of a cell share with the one who watches them. All run on one thread, so that
/// the lock is never waited for.
struct Shared {
    seen: Mutex<Seen>,
    closing: AtomicBool,
    changed: Notify,
    streams: u32,
}

struct Seen {
    window: Window,
    /// Requests that have ended.
    ended: Vec<Trace>,
    /// The request in flight of each stream: when it was begun, and its events.
    flying: Vec<(Stamp, Vec<TokenEvent>)>,
    failures: u64,
    /// Failures in a row over all streams; any token resets it.
    fruitless: u64,
    tokens: u64,
}

impl Shared {
    fn new(streams: u32, setting: &DecodeSetting, gauges_ok: bool) -> Shared {
        let mut window = Window::new(streams, setting.duration, setting.min_tokens);
        window.set_gauges_ok(gauges_ok);
        let flying = (0..streams).map(|_| (Stamp::default(), Vec::new())).collect();
        let seen = Seen { window, ended: Vec::new(), flying, failures: 0, fruitless: 0, tokens: 0 };
        Shared {
            seen: Mutex::new(seen),
            closing: AtomicBool::new(false),
            changed: Notify::new(),
            streams,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        unpoisoned(&self.seen)
    }

    fn begin(&self, stream: u32, at: Stamp) {
        self.seen().flying[stream as usize] = (at, Vec::new());
    }

    fn token(&self, stream: u32, event: TokenEvent) {
        let mut seen = self.seen();
        seen.flying[stream as usize].1.push(event);
        seen.fruitless = 0;
        seen.tokens += u64::from(event.tokens.unwrap_or(1));
        let before = seen.window.state();
        if seen.window.on_token(stream, event.at, event.tokens.unwrap_or(0)) != before {
            self.changed.notify_one();
        }
    }

    fn end(&self, trace: Trace) {
        let mut seen = self.seen();
        seen.flying[trace.stream as usize].1 = Vec::new();
        match &trace.outcome {
            Outcome::Failed(_) => {
                seen.failures += 1;
                seen.fruitless += 1;
                self.changed.notify_one();
            }
            Outcome::Complete | Outcome::Cancelled => {}
        }
        seen.ended.push(trace);
    }

    /// Nothing but failures: more waiting would not help.
    fn hopeless(&self) -> bool {
        self.seen().fruitless >= u64::from(self.streams).max(4) * 3
    }

    fn note(&self) -> String {
        let seen = self.seen();
        let share = (seen.window.progress() * 100.0).round();
        let mut note = match seen.window.state() {
            State::Ramp => format!("{} of {} streams emit", seen.window.emitting(), self.streams),
            State::Open { .. } | State::Closed { .. } => {
                format!("{share} %, {} tokens", seen.tokens)
            }
        };
        if seen.failures > 0 {
            note.push_str(&format!(", {} failed requests", seen.failures));
        }
        note
    }

    /// The measurement so far. `last` moves the traces out instead of copying them.
    fn assemble(
        &self,
        waves: &[Vec<f64>],
        tally: &Tally,
        extended: bool,
        bench: &Bench<'_>,
        length: u64,
        last: bool,
    ) -> Measurement {
        let mut tally = tally.clone();
        let mut seen = self.seen();
        let mut traces =
            if last { std::mem::take(&mut seen.ended) } else { seen.ended.clone() };
        for trace in &traces {
            tally.count(trace);
            if last {
                tally.prompt(trace, length, None);
            }
        }
        for (stream, (sent, events)) in seen.flying.iter_mut().enumerate() {
            if events.is_empty() {
                continue;
            }
            let events = if last { std::mem::take(events) } else { events.clone() };
            traces.push(Trace {
                stream: stream as u32,
                sent: *sent,
                ended: events.last().map_or(*sent, |event| event.at),
                events,
                outcome: Outcome::Cancelled,
                usage: None,
                warnings: Vec::new(),
            });
        }
        let mut measurement = Measurement { extended, ..tally.measurement(bench) };
        if let State::Closed { from, to } = seen.window.state() {
            let batches = if extended { 20 } else { 10 };
            let input = DecodeInput { traces: &traces, from, to, batches };
            measurement.observations = observe::decode(&input);
            measurement.checks.extend(checks(&input, &measurement, self.streams));
        }
        if let Some(waves) = observe::waves(waves) {
            measurement.observations.insert(Base::Ttft, waves);
        }
        measurement
    }
}

/// What the window itself says of whether it counts.
fn checks(input: &DecodeInput<'_>, measurement: &Measurement, streams: u32) -> Vec<Check> {
    let known = measurement.observations.contains_key(&Base::OutputTokens);
    let in_flight = observe::in_flight(input.traces, input.from, input.to);
    let mut checks =
        vec![validity::token_count(known), validity::concurrency(in_flight, streams)];
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

/// One stream: request after request until it is told to stop.
struct Looping {
    stream: u32,
    client: Client,
    request: Prepared,
    shared: Arc<Shared>,
    cancel: Cancel,
    clock: Clock,
}

impl Looping {
    async fn run(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) && !self.cancel.is_cancelled() {
            self.shared.begin(self.stream, self.clock.now());
            let shared = Arc::clone(&self.shared);
            let stream = self.stream;
            let mut on_token = move |event| shared.token(stream, event);
            let trace =
                self.client.stream(&self.request, stream, &mut on_token, &mut self.cancel).await;
            let failed = matches!(trace.outcome, Outcome::Failed(_));
            self.shared.end(trace);
            if failed {
                self.clock.sleep_until(self.clock.now() + FAILURE_REST).await;
            }
        }
    }
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
