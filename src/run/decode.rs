//! A decode cell: prompts warmed, waves of one-token requests for TTFT, then C looping streams and
//! a window over their tokens.
//!
//! The window, the figures and the checks are decided in `measure`; here are the streams, the
//! gauges and the waiting.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::{Clock, Stamp};
use crate::engine::metrics::Gauges;
use crate::load::client::{Cancel, Canceller, Client, Prepared};
use crate::load::{Outcome, TokenEvent, Trace, Usage};
use crate::measure::observe::{self, DecodeInput};
use crate::measure::window::{State, Window};
use crate::measure::{Check, Fault, validity};
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::{DecodeSetting, Prefix};

use super::cell::{Bench, Broken, Tally, broken};
use super::prompts::Purpose;

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
        prompts.push(bench.prompt(Purpose::Stream { stream, prefix: setting.prefix }, length).await?);
    }
    bench.phase("connect", format!("{streams} streams"));
    let mut clients = Vec::with_capacity(streams as usize);
    for _ in 0..streams {
        clients.push(Client::connect(&bench.endpoint, bench.clock).await.map_err(broken)?);
    }

    if setting.prefix != Prefix::Cold {
        warm(bench, setting, &prompts, &mut clients, &mut tally).await?;
    }
    let waves = ttft_waves(bench, setting, &mut prompts, &mut clients, length, &mut tally).await?;
    let before = bench.remote.gauges().await.ok().flatten();

    let requests = prompts
        .iter()
        .map(|prompt| bench.prepared(prompt, setting.max_output))
        .collect::<Vec<_>>();
    let shared = Rc::new(Shared::new(streams, setting, before.is_none()));
    let (canceller, cancel) = Canceller::new();
    let mut tasks = JoinSet::new();
    for (stream, (client, request)) in clients.into_iter().zip(requests).enumerate() {
        let looping = Looping {
            stream: stream as u32,
            client,
            request,
            shared: Rc::clone(&shared),
            cancel: cancel.clone(),
            clock: bench.clock,
        };
        tasks.spawn_local(looping.run());
    }
    let lag = Rc::new(RefCell::new(Vec::new()));
    let heartbeat = tokio::task::spawn_local(heartbeat(bench.clock, Rc::clone(&lag)));

    let mut watch = Watch::new(before, streams);
    let outcome = window(bench, setting, &shared, &mut watch, &waves, &tally).await;
    heartbeat.abort();
    // Servers that count only at the end are let finish; all others are cut at once.
    let whole = bench.dialect.counts_only_at_end();
    shared.closing.set(true);
    if !whole {
        canceller.cancel();
    }
    while tasks.join_next().await.is_some() {}
    let (extended, checks) = outcome?;

    bench.phase("drain", String::new());
    let idle = drained(bench).await;
    let mut measurement = shared.assemble(&waves, &tally, extended, bench, length, true);
    measurement.checks.extend(checks);
    measurement.checks.extend(watch.checks());
    measurement.checks.push(validity::client_lag(&lag.borrow(), bench.policy.max_client_lag));
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
        for trace in wave(bench, prompts, clients).await {
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
async fn wave(bench: &Bench<'_>, prompts: &[Prompt], clients: &mut [Client]) -> Vec<Trace> {
    let requests = prompts.iter().map(|prompt| bench.prepared(prompt, 1)).collect::<Vec<_>>();
    let (_canceller, cancel) = Canceller::new();
    let sent = clients.iter_mut().zip(&requests).enumerate().map(|(stream, (client, request))| {
        let mut cancel = cancel.clone();
        async move { client.stream(request, stream as u32, &mut |_| {}, &mut cancel).await }
    });
    futures_util::future::join_all(sent).await
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
        for trace in wave(bench, prompts, clients).await {
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
    shared: &Rc<Shared>,
    watch: &mut Watch,
    waves: &[Vec<f64>],
    tally: &Tally,
) -> Result<(bool, Vec<Check>), CellState> {
    let mut extended = false;
    let mut checks = Vec::new();
    let started = bench.clock.now();
    // A stream that emits nothing for longer than this has failed by its idle limit already.
    let ramp_limit = setting_ramp(bench, setting);
    let mut next_gauges = started;
    loop {
        let state = shared.window.borrow_mut().on_time(bench.clock.now());
        match state {
            State::Closed { .. } if extended => return Ok((true, checks)),
            State::Closed { .. } => {
                let measurement = shared.assemble(waves, tally, false, bench, 0, false);
                if !judgement::wants_extension(bench.planned, &measurement, bench.policy, bench.gpus)
                {
                    return Ok((false, checks));
                }
                extended = true;
                shared.window.borrow_mut().extend();
                bench.phase("extension", "inconclusive so far".to_owned());
            }
            State::Ramp | State::Open { .. } => {}
        }
        if shared.hopeless() {
            return Ok((extended, checks));
        }
        let now = bench.clock.now();
        let waited = now.since(started);
        if state == State::Ramp && waited > ramp_limit {
            return Err(broken_words(
                "no-window",
                &format!(
                    "only {} of {} streams emitted within {}",
                    shared.window.borrow().emitting(),
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
                let all = shared.window.borrow().emitting() as u64 == bench.concurrency();
                if settled {
                    shared.window.borrow_mut().set_gauges_ok(true);
                } else if state == State::Ramp && all && waited > QUEUE_PATIENCE {
                    checks.push(validity::queued(
                        watch.running,
                        watch.waiting,
                        bench.concurrency(),
                    ));
                    shared.window.borrow_mut().set_gauges_ok(true);
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

fn setting_ramp(bench: &Bench<'_>, setting: &DecodeSetting) -> Duration {
    // First tokens of cold prompts may queue behind each other's prefill; a stream's own idle limit
    // bounds each of them, so their sum bounds the ramp.
    let queue = if setting.prefix == Prefix::Cold { bench.concurrency() as u32 } else { 2 };
    bench.idle_timeout.saturating_mul(queue.max(2)) + QUEUE_PATIENCE
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

/// Records how late a task is woken, in seconds: what our own machine adds to every stamp.
async fn heartbeat(clock: Clock, lag: Rc<RefCell<Vec<f64>>>) {
    let mut due = clock.now();
    loop {
        due = due + Duration::from_millis(5);
        clock.sleep_until(due).await;
        let now = clock.now();
        lag.borrow_mut().push(now.since(due).as_secs_f64());
        if now.since(due) > Duration::from_millis(5) {
            due = now;
        }
    }
}

/// What the streams of a cell share with the one who watches them. One thread, no locks.
struct Shared {
    window: RefCell<Window>,
    /// Requests that have ended.
    ended: RefCell<Vec<Trace>>,
    /// The request in flight of each stream: when it was begun, and its events.
    flying: RefCell<Vec<(Stamp, Vec<TokenEvent>)>>,
    failures: Cell<u64>,
    /// Failures in a row over all streams; any token resets it.
    fruitless: Cell<u64>,
    tokens: Cell<u64>,
    closing: Cell<bool>,
    changed: Notify,
    streams: u32,
}

impl Shared {
    fn new(streams: u32, setting: &DecodeSetting, gauges_ok: bool) -> Shared {
        let mut window = Window::new(streams, setting.duration, setting.min_tokens);
        window.set_gauges_ok(gauges_ok);
        Shared {
            window: RefCell::new(window),
            ended: RefCell::default(),
            flying: RefCell::new(vec![(Stamp(0), Vec::new()); streams as usize]),
            failures: Cell::new(0),
            fruitless: Cell::new(0),
            tokens: Cell::new(0),
            closing: Cell::new(false),
            changed: Notify::new(),
            streams,
        }
    }

    fn begin(&self, stream: u32, at: Stamp) {
        self.flying.borrow_mut()[stream as usize] = (at, Vec::new());
    }

    fn token(&self, stream: u32, event: TokenEvent) {
        self.flying.borrow_mut()[stream as usize].1.push(event);
        self.fruitless.set(0);
        self.tokens.set(self.tokens.get() + u64::from(event.tokens.unwrap_or(1)));
        let mut window = self.window.borrow_mut();
        let before = window.state();
        if window.on_token(stream, event.at, event.tokens.unwrap_or(0)) != before {
            self.changed.notify_one();
        }
    }

    fn end(&self, trace: Trace) {
        self.flying.borrow_mut()[trace.stream as usize].1 = Vec::new();
        match &trace.outcome {
            Outcome::Failed(_) => {
                self.failures.set(self.failures.get() + 1);
                self.fruitless.set(self.fruitless.get() + 1);
                self.changed.notify_one();
            }
            Outcome::Complete | Outcome::Cancelled => {}
        }
        self.ended.borrow_mut().push(trace);
    }

    /// Nothing but failures: more waiting would not help.
    fn hopeless(&self) -> bool {
        self.fruitless.get() >= u64::from(self.streams).max(4) * 3
    }

    fn note(&self) -> String {
        let window = self.window.borrow();
        let share = (window.progress() * 100.0).round();
        match (window.state(), self.failures.get()) {
            (State::Ramp, 0) => format!("{} of {} streams emit", window.emitting(), self.streams),
            (State::Open { .. } | State::Closed { .. }, 0) => {
                format!("{share} %, {} tokens", self.tokens.get())
            }
            (State::Ramp | State::Open { .. } | State::Closed { .. }, failures) => {
                format!("{share} %, {} tokens, {failures} failed requests", self.tokens.get())
            }
        }
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
        let mut traces =
            if last { self.ended.take() } else { self.ended.borrow().clone() };
        for trace in &traces {
            tally.count(trace);
            if last {
                tally.prompt(trace, length, None);
            }
        }
        for (stream, (sent, events)) in self.flying.borrow_mut().iter_mut().enumerate() {
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
        if let State::Closed { from, to } = self.window.borrow().state() {
            let input = DecodeInput {
                traces: &traces,
                from,
                to,
                streams: self.streams,
                batches: if extended { 20 } else { 10 },
            };
            measurement.observations = observe::decode(&input);
            measurement.checks.extend(observe::checks(&input, &measurement.observations));
        }
        if !waves.is_empty() {
            measurement.observations.insert(Base::Ttft, observe::waves(waves));
        }
        measurement
    }
}

/// One stream: request after request until it is told to stop.
struct Looping {
    stream: u32,
    client: Client,
    request: Prepared,
    shared: Rc<Shared>,
    cancel: Cancel,
    clock: Clock,
}

impl Looping {
    async fn run(mut self) {
        while !self.shared.closing.get() && !self.cancel.cancelled() {
            self.shared.begin(self.stream, self.clock.now());
            let shared = Rc::clone(&self.shared);
            let stream = self.stream;
            let trace = self
                .client
                .stream(
                    &self.request,
                    stream,
                    &mut |event| shared.token(stream, event),
                    &mut self.cancel,
                )
                .await;
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
    running: f64,
    waiting: f64,
    most_waiting: f64,
    streams: u32,
}

impl Watch {
    fn new(before: Option<Gauges>, streams: u32) -> Watch {
        let running = before.as_ref().is_some_and(|gauges| gauges.running.is_some());
        Watch {
            readable: running,
            preemptions: before.and_then(|gauges| gauges.preemptions),
            preempted: 0.0,
            running: 0.0,
            waiting: 0.0,
            most_waiting: 0.0,
            streams,
        }
    }

    /// Takes a reading; true where all streams run and none waits.
    fn see(&mut self, gauges: &Gauges, open: bool) -> bool {
        self.running = gauges.running.unwrap_or(0.0);
        self.waiting = gauges.waiting.unwrap_or(0.0);
        if open {
            self.most_waiting = self.most_waiting.max(self.waiting);
        }
        if let (Some(before), Some(now)) = (self.preemptions, gauges.preemptions) {
            self.preempted = self.preempted.max(now - before);
        }
        self.running >= f64::from(self.streams) && self.waiting == 0.0
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        if self.readable {
            checks.push(validity::queued(self.running, self.most_waiting, u64::from(self.streams)));
            if self.preemptions.is_some() {
                checks.push(validity::preemptions(self.preempted));
            }
        }
        checks
    }
}
