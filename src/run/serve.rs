//! A serve cell: requests as a service gets them, and a window over them.
//!
//! A load is sent once, or `repeat` times, and once more as often where the verdict asks for it. Here
//! loads are put together and held against the suite; what requests say is in `script`, when they go
//! out in `drive`, what they came to in `ledger`. Figures are made in `measure::serve`.

mod audit;
mod deck;
mod drive;
mod ledger;
mod outcome;
mod script;

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Stamp;
use crate::load::arrival::Schedule;
use crate::load::{Arrival, Cancel, Client, Outcome, Trace};
use crate::measure::power;
use crate::measure::serve::{Note, Span};
use crate::record::judgement;
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::{Amount, Dataset, ServeSetting};

use super::cell::{Bench, Form, Tally, broken, broken_words, make_room};
use super::heartbeat::Lags;
use super::prompts::{Wording, cell_number};
use super::watch::{Watch, drained};
use audit::Audit;
use deck::Wish;
use drive::{Open, Pool};
use ledger::Ledger;
use script::{Asked, Material, Script, Stock};

pub(super) use deck::Decks;

/// Beginnings that are warmed at once: an engine with few slots is not buried.
const WARM_AT_ONCE: usize = 16;
/// How often the engine's gauges are read: so that readings don't keep step with requests that arrive
/// so many a second, and find the engine in the same moment each time.
const WATCH_PACE: Duration = Duration::from_millis(618);
/// Measured requests that a stream of a closed loop needs for its window to be steady.
const LEAST_PER_STREAM: u64 = 4;
/// Measured requests that an open loop needs for the same.
const LEAST_OPEN: u64 = 10;
/// Entries that are dealt to a load that has no number of requests.
const DEALT: u64 = 4096;

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &ServeSetting) -> CellState {
    match attempt(bench, setting).await {
        Ok(measurement) => CellState::Measured(Box::new(measurement)),
        Err(state) => state,
    }
}

async fn attempt(bench: &mut Bench<'_>, setting: &ServeSetting) -> Result<Measurement, CellState> {
    let mut cell = Cell::prepare(bench, setting).await?;
    cell.warm_beginnings(bench).await?;
    let before = bench.remote.gauges().await.ok().flatten();
    let mut watch = Watch::new(before.as_ref(), cell.streams, None);
    let repeat = u64::from(setting.repeat.max(1));
    let mut planned = repeat;
    let mut extended = false;
    let measurement = loop {
        let mut hopeless = false;
        while (cell.loads.len() as u64) < planned && !hopeless {
            hopeless = cell.send(bench, &mut watch, planned).await?;
        }
        let mut measurement = Measurement { extended, ..cell.measurement(bench, &watch) };
        if let Some(seen) = bench.instruments.so_far(&cell.stretches()) {
            power::observe(&mut measurement.observations, &seen);
        }
        let more = !extended
            && !hopeless
            && judgement::wants_extension(bench.planned, &measurement, bench.policy, bench.gpus);
        if !more {
            break measurement;
        }
        extended = true;
        planned = 2 * repeat;
    };
    bench.phase("drain", String::new());
    let idle = drained(bench).await;
    let seen = bench.instruments.over(&cell.stretches()).await;
    Ok(cell.finish(bench, measurement, idle, seen))
}

/// A cell under way.
struct Cell<'a> {
    setting: &'a ServeSetting,
    form: Rc<Form>,
    wording: Option<Rc<Wording>>,
    /// Streams of a closed loop, requests of a burst; 1 for an open loop.
    streams: u32,
    /// Requests a second of an open loop.
    rate: f64,
    /// Where the longest prompt had to be cut to fit: as asked, and as sent.
    shortened: Option<(u64, u64)>,
    tally: Tally,
    audit: Audit,
    loads: Vec<Sent>,
    /// How late the client woke up, and what its thread did.
    lags: Lags,
    /// How late it sent what was due.
    sending: Duration,
    /// Whether the kernel stamps what it reads.
    stamped: bool,
    warnings: Vec<String>,
}

/// A load that has been sent.
struct Sent {
    traces: Vec<Trace>,
    notes: Vec<Note>,
    span: Span,
}

impl<'a> Cell<'a> {
    async fn prepare(
        bench: &mut Bench<'_>,
        setting: &'a ServeSetting,
    ) -> Result<Cell<'a>, CellState> {
        let plan = bench.plan;
        let mut shortened = None;
        let wording = match setting.dataset {
            Some(_) => None,
            None => {
                let asked = plan.input_length(bench.cell).greatest();
                let output = plan.output_length(bench.cell).greatest();
                let fits = bench.fit("input", asked, output)?;
                shortened = (fits < asked).then_some((asked, fits));
                Some(Rc::new(bench.wording().await?))
            }
        };
        let streams = u32::try_from(plan.concurrency(bench.cell)).unwrap_or(u32::MAX);
        let streams = match setting.arrival {
            Arrival::Closed => streams,
            Arrival::Burst => {
                let count = ledger::count(setting.amount, streams).unwrap_or(1);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            Arrival::Constant | Arrival::Poisson => 1,
        };
        let rate = plan.request_rate(bench.cell).unwrap_or(1.0);
        let form = Rc::new(bench.form().within(bench.request.timeout));
        let mut warnings = Vec::new();
        if setting.warmup_per_stream == 0 {
            warnings.push("cold: no request warmed up before the first one counted".to_owned());
        }
        Ok(Cell {
            setting,
            form,
            wording,
            streams,
            rate,
            shortened,
            tally: Tally::default(),
            audit: Audit::default(),
            loads: Vec::new(),
            lags: Lags::default(),
            sending: Duration::ZERO,
            stamped: true,
            warnings,
        })
    }

    /// Requests that one load sends, as far as that is known: warm-ups and measured ones.
    fn amounts(&self) -> (u64, Option<u64>) {
        let warm_ups = u64::from(self.setting.warmup_per_stream);
        match self.setting.arrival {
            Arrival::Closed => {
                let streams = u64::from(self.streams);
                (warm_ups * streams, ledger::count(self.setting.amount, self.streams))
            }
            Arrival::Burst => {
                let count = u64::from(self.streams);
                (warm_ups * count, Some(count))
            }
            Arrival::Constant | Arrival::Poisson => {
                let measured = match self.setting.amount {
                    Amount::Duration(length) => {
                        (self.rate * length.as_secs_f64() * 1.1).ceil() as u64
                    }
                    Amount::Requests(count) | Amount::PerStream(count) => count,
                };
                (warm_ups.max((self.rate * 10.0).ceil() as u64), Some(measured))
            }
        }
    }

    /// What the requests of a load say.
    async fn script(&mut self, bench: &mut Bench<'_>, load: u64) -> Result<Script, CellState> {
        let lane = cell_number(&bench.planned.test, &bench.planned.id);
        let (warm_ups, measured) = self.amounts();
        let longest = bench.facts.max_model_len;
        let material = match (&self.setting.dataset, &self.wording) {
            (Some(dataset), _) => {
                let count = warm_ups + measured.unwrap_or(DEALT);
                self.entries(bench, dataset, lane.wrapping_add(load), count).await?
            }
            (None, Some(wording)) => Material::Words(Rc::clone(wording)),
            (None, None) => return Err(broken_words("prompt", "there is nothing to send")),
        };
        Ok(Script {
            form: Rc::clone(&self.form),
            seed: bench.prompts.seed,
            launch: bench.prompts.launch,
            cell: bench.number(),
            lane,
            load,
            input: bench.plan.input_length(bench.cell),
            output: bench.plan.output_length(bench.cell),
            longest,
            prefix: self.setting.prefix,
            material,
        })
    }

    async fn entries(
        &mut self,
        bench: &mut Bench<'_>,
        dataset: &Dataset,
        draws: u64,
        count: u64,
    ) -> Result<Material, CellState> {
        bench.phase("data set", dataset.file.display().to_string());
        let wish = Wish {
            dataset,
            api: bench.request.api,
            seed: bench.prompts.seed,
            draws,
            count,
            longest: bench.facts.max_model_len,
        };
        let hand = bench.prompts.decks.deal(&wish, &bench.remote).await?;
        self.warn(hand.warnings);
        Ok(Material::Entries(hand.dealt))
    }

    fn warn(&mut self, words: impl IntoIterator<Item = String>) {
        for words in words {
            if !self.warnings.contains(&words) {
                self.warnings.push(words);
            }
        }
    }

    /// Sends every beginning that requests share once, so that the cache holds it.
    async fn warm_beginnings(&mut self, bench: &mut Bench<'_>) -> Result<(), CellState> {
        if self.setting.dataset.is_some() {
            return Ok(());
        }
        let requests = self.script(bench, 0).await?.beginnings()?;
        let mut done = 0;
        while done < requests.len() {
            bench.phase("warm-up", format!("{done} of {} beginnings", requests.len()));
            let part = &requests[done..(done + WARM_AT_ONCE).min(requests.len())];
            let mut clients = Vec::with_capacity(part.len());
            for _ in part {
                clients.push(bench.client().await?);
            }
            let sent = clients.iter_mut().zip(part).map(|(client, request)| async move {
                client.stream(request, 0, &mut |_| {}, &mut Cancel::never()).await
            });
            for trace in futures_util::future::join_all(sent).await {
                self.tally.count(&trace);
                if let Outcome::Failed(failure) = trace.outcome {
                    return Err(broken(failure));
                }
            }
            done += part.len();
        }
        Ok(())
    }

    /// Sends the load once; true where nothing but failures came of it.
    async fn send(
        &mut self,
        bench: &mut Bench<'_>,
        watch: &mut Watch,
        planned: u64,
    ) -> Result<bool, CellState> {
        let load = self.loads.len() as u64;
        let script = self.script(bench, load).await?;
        let draws = script.draws();
        let (warm_ups, measured) = self.amounts();
        bench.phase("connect", String::new());
        let stock = Stock::new(script, warm_ups, measured)?;
        let setting = self.setting;
        let ledger = Rc::new(Ledger::new(stock, bench.clock, setting.amount, self.streams));
        let mut tasks = JoinSet::new();
        match setting.arrival {
            Arrival::Closed | Arrival::Burst => {
                make_room(&bench.endpoint, u64::from(self.streams))?;
                let mut clients = Vec::with_capacity(self.streams as usize);
                for _ in 0..self.streams {
                    clients.push(bench.client().await?);
                }
                self.stamped &= clients.iter().all(Client::is_stamped);
                if setting.arrival == Arrival::Burst {
                    let rehearsals = setting.warmup_per_stream;
                    tasks.spawn_local(drive::bursts(Rc::clone(&ledger), clients, rehearsals));
                } else {
                    for (number, client) in (0u32..).zip(clients) {
                        let warm_ups = setting.warmup_per_stream;
                        tasks.spawn_local(drive::stream(
                            Rc::clone(&ledger),
                            number,
                            client,
                            warm_ups,
                        ));
                    }
                }
            }
            Arrival::Constant | Arrival::Poisson => {
                let schedule = if setting.arrival == Arrival::Poisson {
                    Schedule::poisson(self.rate, bench.prompts.seed, draws)
                } else {
                    Schedule::constant(self.rate)
                };
                let pool = Rc::new(Pool::open(&bench.endpoint, bench.clock, self.rate).await?);
                self.stamped &= pool.is_stamped();
                let warm_ups = u64::from(setting.warmup_per_stream);
                let open = Open { ledger: Rc::clone(&ledger), schedule, warm_ups, pool };
                tasks.spawn_local(open.run());
            }
        }
        let heartbeat = self.lags.beat(bench.clock);
        let which =
            if planned > 1 { format!("load {} of {planned}: ", load + 1) } else { String::new() };
        attend(bench, &ledger, watch, &mut tasks, &which).await;
        drop(heartbeat);
        drop(tasks);
        let Ok(ledger) = Rc::try_unwrap(ledger) else {
            return Err(broken_words("client", "requests are still under way"));
        };
        if let Some(Dataset { file, .. }) = &setting.dataset
            && bench.prompts.decks.sent(file, ledger.sent().into_iter())
        {
            self.warn([format!(
                "{} has too few prompts for the loads of this launch: some were sent again, and may have \
                 come out of the cache",
                file.display()
            )]);
        }
        let whole = ledger.into_whole();
        if let Some(broken) = whole.seen.broken {
            return Err(broken);
        }
        self.sending = self.sending.max(p99(whole.seen.lags));
        let (opened, closed) = (whole.seen.opened, whole.seen.closed);
        self.take(whole.seen.traces, whole.seen.notes, &whole.seen.asked, opened, closed);
        Ok(whole.hopeless)
    }

    /// Takes what a load came to.
    fn take(
        &mut self,
        traces: Vec<Trace>,
        mut notes: Vec<Note>,
        asked: &[Asked],
        opened: Option<Stamp>,
        closed: Option<Stamp>,
    ) {
        if let (Amount::Duration(_), Arrival::Closed) = (self.setting.amount, self.setting.arrival)
        {
            // What was sent in the window counts, whoever sent it.
            let end = drive::end(self.setting.amount, opened);
            for (trace, note) in traces.iter().zip(&mut notes) {
                note.measured = opened.is_some_and(|opened| trace.sent >= opened)
                    && end.is_some_and(|end| trace.sent < end);
            }
        }
        for (trace, asked) in traces.iter().zip(asked) {
            self.tally.count(trace);
            self.tally.output(trace, asked.output);
            self.audit.see(trace, asked);
        }
        let measured = || traces.iter().zip(&notes).filter(|(_, note)| note.measured);
        let count = measured().count() as u64;
        let least = match self.setting.arrival {
            Arrival::Closed => LEAST_PER_STREAM * u64::from(self.streams),
            Arrival::Burst => u64::MAX,
            Arrival::Constant | Arrival::Poisson => LEAST_OPEN,
        };
        let window =
            opened.zip(closed).filter(|(opened, closed)| closed > opened && count >= least);
        let span = match window {
            Some((from, to)) => Span { from, to, steady: true },
            None => {
                let first = measured().map(|(trace, _)| trace.sent).min().unwrap_or_default();
                let last = measured().map(|(trace, _)| trace.ended).max().unwrap_or_default();
                Span { from: first, to: last, steady: false }
            }
        };
        if !span.steady && self.setting.arrival != Arrival::Burst {
            let requests = if count == 1 { "request leaves" } else { "requests leave" };
            let words = format!(
                "{count} measured {requests} no steady window ({least} would): rates are over the whole \
                 load, as one observation"
            );
            self.warn([words]);
        }
        self.loads.push(Sent { traces, notes, span });
    }
}

/// Waits for the load to end: reads gauges, says how far it is, and ends what is hopeless.
async fn attend(
    bench: &Bench<'_>,
    ledger: &Ledger,
    watch: &mut Watch,
    tasks: &mut JoinSet<()>,
    which: &str,
) {
    let mut next = bench.clock.now();
    loop {
        let now = bench.clock.now();
        let (opened, closed) = ledger.see(|seen| (seen.opened, seen.closed));
        let end = drive::end(ledger.amount, opened).filter(|_| closed.is_none());
        if let Some(end) = end
            && now >= end
        {
            ledger.close(end);
        }
        if ledger.hopeless() {
            ledger.canceller.cancel();
        }
        if now >= next {
            watch.read(bench, opened.is_some() && closed.is_none()).await;
            let (phase, note) = ledger.phase();
            bench.phase(phase, format!("{which}{note}"));
            next = bench.clock.now() + WATCH_PACE;
        }
        let wake = end.map_or(next, |end| end.min(next).max(now));
        tokio::select! {
            joined = tasks.join_next() => {
                if joined.is_none() {
                    // A load may be shorter than the pace; counters have all of it.
                    watch.read(bench, false).await;
                    return;
                }
            }
            () = ledger.changed.notified() => {}
            () = bench.clock.sleep_until(wake) => {}
        }
    }
}

/// The 99th percentile; zero of nothing.
fn p99(mut lags: Vec<Duration>) -> Duration {
    lags.sort_unstable();
    let rank = (lags.len() * 99).div_ceil(100).max(1) - 1;
    lags.get(rank).copied().unwrap_or_default()
}
