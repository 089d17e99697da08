//! The conductor: owner of the run's state. It walks launches and cells in plan order, sends what
//! happens as events, and ends the engine whatever comes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::process::Signal;

use crate::clock::Clock;
use crate::engine::launch::Running;
use crate::engine::redact::Redactor;
use crate::engine::supervise::{self as process, ExitInfo};
use crate::hardware::oom::Kills;
use crate::load::Endpoint;
use crate::matrix::{self, Plan, Runtime};
use crate::measure::TestKind;
use crate::record::event::StopReason;
use crate::record::run_record::{CellState, LaunchFailure, RunHeader, started_again};
use crate::record::{Earlier, Event};
use crate::suite::model::EngineSource;
use crate::transport::{Delay, Transport};

use super::cell::{Bench, broken_words};
use super::demise::{Loss, Losses, Silence, cell_name, engine_lost, exit_words, is_doubtful};
use super::events::Events;
use super::halt::{Cause, Halt, Halter};
use super::instruments::Instruments;
use super::prompts::Prompts;
use super::start::{Given, Start, dialect};
use super::vacate::Vacancy;

/// Whoever ends a job signals the engine and this program at nearly the same time, in any order. An
/// engine's end, and what may come of it, is put down to a cell when no halt has come for so long.
const HALT_LAG: Duration = Duration::from_secs(1);
/// A dead engine's connections break a little before its supervisor tells.
const DEATH_LAG: Duration = Duration::from_millis(500);

/// Everything that carrying out a plan needs.
pub struct Conduct<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// What the record says of it.
    pub header: &'a RunHeader,
    /// The output directory, absolute.
    pub out: &'a Path,
    /// This program, which is its own supervisor and simulated engine.
    pub executable: PathBuf,
    /// Names and values of the secrets.
    pub secrets: Vec<(String, String)>,
    /// Hides them.
    pub redactor: &'a Redactor,
    /// From when on the run is halted, counted from its beginning.
    pub time_limit: Option<Duration>,
    /// Where failures end the run: says of each event that may be one that it has been counted, so that no
    /// cell begins that should not.
    pub counted: Option<Mutex<Receiver<()>>>,
    /// Launches that are not started: why the machine is not fit for each.
    pub unfit: BTreeMap<usize, Unfit>,
    /// What the sessions before this one have done.
    pub earlier: Earlier,
    /// How much longer what is measured takes than it does, in a self-test.
    pub slow: Option<Delay>,
    /// An engine that runs already, for the first launch.
    pub given: Mutex<Option<Given>>,
}

/// The machine is not what the suite declares, or not free.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// Declared and found.
    pub message: String,
    /// Whether every cell is skipped (`on-mismatch = "skip"`) instead of an error.
    pub skip: bool,
}

/// Carries out the plan. Call it inside a `LocalSet` of the runtime whose time it shall follow.
pub async fn conduct(conduct: &Conduct<'_>, events: Sender<Event>, halter: &Halter) {
    let counted = conduct.counted.as_ref();
    let events = Events { to: events, redactor: conduct.redactor, counted };
    let clock = Clock::start();
    let mut state = State {
        conduct,
        events: &events,
        clock,
        halt: halter.waiter(),
        prepared: false,
        settled: conduct.earlier.finished.clone(),
        over: conduct.earlier.over.clone(),
        round: 0,
        ended: false,
        vacancy: Vacancy::default(),
        instruments: Instruments::default(),
        hurried: None,
    };
    if conduct.time_limit.is_some_and(|limit| limit.is_zero()) {
        // A timer would fire a little later.
        halter.halt(Cause::TimeLimit);
    }
    let timed = async {
        if let Some(limit) = conduct.time_limit {
            clock.sleep_until(crate::clock::Stamp(0) + limit).await;
            halter.halt(Cause::TimeLimit);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = timed => {}
        () = state.walk() => {}
    }
    if !state.ended {
        state.end(None);
    }
    // What no launch took ends with the rest.
    drop(conduct.take_given());
    state.leave().await;
}

pub(super) struct State<'a> {
    pub(super) conduct: &'a Conduct<'a>,
    pub(super) events: &'a Events<'a>,
    pub(super) clock: Clock,
    pub(super) halt: Halt,
    /// Whether the setup commands have run.
    pub(super) prepared: bool,
    /// Cells that were finished before their turn: in an earlier session, or without an engine.
    pub(super) settled: BTreeSet<(usize, u32)>,
    /// Cells that no further round can mend.
    pub(super) over: BTreeSet<usize>,
    /// The round that is being carried out.
    pub(super) round: u32,
    pub(super) ended: bool,
    pub(super) vacancy: Vacancy,
    /// What looks at the hardware of the launch under way.
    pub(super) instruments: Instruments,
    /// When the end began to be pressing.
    pub(super) hurried: Option<std::time::Instant>,
}

/// What came of something that the engine or a halt may cut short.
enum Came<T> {
    Done(T),
    Died(ExitInfo),
    Halted(Cause),
}

/// How a launch's cells ended.
enum Served {
    /// All are finished.
    Whole,
    /// The engine was lost; cells from here on are left.
    Lost { next: usize, loss: Lost },
    /// The run is being halted.
    Halted(Cause),
}

/// An engine that serves no more.
struct Lost {
    /// `in decode concurrency=1`, `before …`.
    place: String,
    loss: Loss,
    /// How its process ended, if it did.
    exit: Option<String>,
    log_tail: Vec<String>,
}

impl State<'_> {
    pub(super) fn seconds(&self) -> f64 {
        self.clock.now().0 as f64 / 1e9
    }

    fn end(&mut self, cause: Option<Cause>) {
        let warn = |message: String| self.events.send(Event::Warning { message });
        let (signal, stopped) = match cause {
            None => (None, None),
            Some(Cause::Signal(number)) => (Some(number), Some(StopReason::Signal)),
            Some(Cause::Orphaned) => {
                warn("the process that started this run is gone, and the run ended with it".into());
                (Some(Signal::HUP.as_raw()), Some(StopReason::Signal))
            }
            Some(Cause::TimeLimit) => (None, Some(StopReason::TimeLimit)),
            Some(Cause::TimeUp(number)) => {
                let name = process::words_of(None, Some(number));
                warn(format!("{name} said that time is nearly up: ended as by a time limit"));
                (None, Some(StopReason::TimeLimit))
            }
            Some(Cause::MaxFail) => (None, Some(StopReason::MaxFail)),
            Some(Cause::Unwritable) => (None, Some(StopReason::Unwritable)),
            // No end is told, so that the run can go on.
            Some(Cause::Broken) => return self.ended = true,
        };
        self.ended = true;
        self.events.send(Event::RunFinished { signal, stopped, at: self.seconds() });
    }

    /// Waits until the end is asked for.
    pub(super) async fn halted(&self) -> Cause {
        self.halt.clone().wait().await
    }

    async fn walk(&mut self) {
        let plan = self.conduct.plan;
        let mut failed = self.conduct.earlier.failed.clone();
        let starts = plan.starts();
        for (at, start) in starts.iter().enumerate() {
            let launch = start.launch;
            let cells = &start.cells;
            if failed.contains(&launch) || !self.is_left(start.round, cells) {
                continue;
            }
            if let Some(unfit) = self.conduct.unfit.get(&launch) {
                self.refuse(launch, unfit);
                failed.insert(launch);
                continue;
            }
            self.round = start.round;
            let mut next = 0;
            let mut restarts = 0;
            let mut losses = self.lost_before(cells);
            while next < cells.len() {
                if let Some(cause) = self.halt.cause() {
                    self.end(Some(cause));
                    return;
                }
                let began = self.clock.now();
                let again = losses.all();
                if self.takes_memory(launch) {
                    self.vacancy.before().await;
                }
                let (running, runtime, transport) = match self.start(launch, cells, restarts).await
                {
                    Ok(started) => started,
                    Err(Start::Halted(cause)) => {
                        self.end_unless_ended(cause);
                        return;
                    }
                    Err(Start::Pointless) => break,
                    Err(Start::Failed(mut failure)) => {
                        failure.seconds = self.clock.now().seconds_since(began);
                        if restarts > 0 {
                            // It has been ready before: memory or a port may not be free again yet.
                            let goes_on = !failure.mismatch && self.restarts_left(launch, restarts);
                            failure.message =
                                format!("{again}; started again: {}", failure.message);
                            if goes_on {
                                restarts += 1;
                                self.restarted(launch, restarts, &failure.message);
                                continue;
                            }
                        }
                        failed.insert(launch);
                        self.events.send(Event::LaunchFailed { launch, failure });
                        self.vacated(launch).await;
                        if self.ended {
                            return;
                        }
                        break;
                    }
                };
                self.vacancy.count(&running.processes());
                let (running, served) =
                    self.serve(launch, next, cells, running, &runtime, transport).await;
                match &served {
                    // Reports first: whoever halts us may not wait for the engine.
                    Served::Halted(cause) => self.end(Some(*cause)),
                    Served::Whole | Served::Lost { .. } => {}
                }
                self.stop(launch, running).await;
                if self.ended {
                    return;
                }
                match served {
                    Served::Whole => break,
                    Served::Halted(_) => return,
                    Served::Lost { next: left, loss: Lost { place, loss, exit, log_tail } } => {
                        next = left;
                        losses.add(place, loss);
                        let some_left = self.is_left(start.round, &cells[next..]);
                        if some_left && self.restarts_left(launch, restarts) {
                            restarts += 1;
                            self.restarted(launch, restarts, &losses.last());
                            continue;
                        }
                        let later = |next: &matrix::schedule::Start| {
                            next.launch == launch && self.is_left(next.round, &next.cells)
                        };
                        if !some_left && self.is_ours(launch) && starts[at + 1..].iter().any(later)
                        {
                            // It had measured what it was started for, and the next round starts afresh.
                            let name = &plan.launches[launch].name;
                            let message = format!("launch {name}: {}", losses.last());
                            self.events.send(Event::Warning { message });
                            break;
                        }
                        let mut message = losses.all();
                        if some_left {
                            let allowed = self.restarts(launch);
                            message.push_str(&format!("; policy.restarts = {allowed}"));
                        }
                        let failure = LaunchFailure {
                            step: "serving".to_owned(),
                            message,
                            exit,
                            log_tail,
                            mismatch: false,
                            seconds: self.clock.now().seconds_since(began),
                        };
                        failed.insert(launch);
                        self.events.send(Event::LaunchFailed { launch, failure });
                        break;
                    }
                }
            }
        }
    }

    /// What earlier sessions have told of engines of this start that died.
    fn lost_before(&self, cells: &[usize]) -> Losses {
        let died = &self.conduct.earlier.died;
        let died = cells.iter().filter(|cell| died.contains(&(**cell, self.round)));
        Losses::before(died.map(|cell| self.name(*cell)))
    }

    fn name(&self, cell: usize) -> String {
        cell_name(&self.conduct.header.cells[cell])
    }

    /// Whether the engine of a launch may be started once more.
    fn restarts_left(&self, launch: usize, restarts: usize) -> bool {
        self.conduct.earlier.restarts(launch, self.round) + restarts < self.restarts(launch)
    }

    /// Says that the engine of a launch is started again.
    fn restarted(&self, launch: usize, restarts: usize, why: &str) {
        let count = self.conduct.earlier.restarts(launch, self.round) + restarts;
        self.events.send(Event::Warning {
            message: started_again(
                &self.conduct.plan.launches[launch].name,
                why,
                count,
                self.restarts(launch),
            ),
        });
    }

    /// Whether any of these cells is not finished.
    fn is_left(&self, round: u32, cells: &[usize]) -> bool {
        cells.iter().any(|cell| !self.is_settled(*cell, round))
    }

    /// Whether a cell needs no measuring in that round.
    pub(super) fn is_settled(&self, cell: usize, round: u32) -> bool {
        self.settled.contains(&(cell, round)) || self.over.contains(&cell)
    }

    /// How often the engine of a launch is started again: never where it is not started here.
    fn restarts(&self, launch: usize) -> usize {
        let restarts = self.conduct.plan.suite.policy.restarts as usize;
        if self.is_ours(launch) { restarts } else { 0 }
    }

    /// Whether the engine of a launch is started here.
    fn is_ours(&self, launch: usize) -> bool {
        let plan = self.conduct.plan;
        match plan.suite.settings[plan.launches[launch].setting as usize].engine.source {
            EngineSource::Url(_) => false,
            EngineSource::Command(_) | EngineSource::Sim { .. } => true,
        }
    }

    pub(super) fn end_unless_ended(&mut self, cause: Cause) {
        if !self.ended {
            self.end(Some(cause));
        }
    }
}

impl State<'_> {
    /// Measures cells until all are done, the engine dies or the run is halted.
    async fn serve(
        &mut self,
        launch: usize,
        next: usize,
        cells: &[usize],
        mut running: Running,
        runtime: &Runtime,
        transport: Transport,
    ) -> (Running, Served) {
        let plan = self.conduct.plan;
        let setting = &plan.suite.settings[plan.launches[launch].setting as usize];
        let dialect = dialect(setting.engine.kind);
        let facts = running.facts.clone();
        let gpus = self.conduct.header.launches[launch].gpus;
        // Restarts and later sessions have prompts of their own: a cold one must be cold there too, and
        // an engine that was running already remembers what it was sent before an interruption.
        let start = (runtime.launch_ordinal as u64) << 32
            ^ (runtime.session as u64) << 48
            ^ u64::from(runtime.round) << 40;
        let ordinal = u64::from(plan.prompts(launch)) | start;
        let seed = self.conduct.header.seed;
        let kills = Kills::now();
        let remote = running.remote.clone();
        let instruments = std::mem::take(&mut self.instruments);
        let learning = async {
            instruments.ready().await;
            Came::Done(Prompts::learn(seed, ordinal, &remote, dialect).await)
        };
        let mut prompts = match self.unless_lost(&mut running, learning).await {
            Came::Done(prompts) => prompts,
            Came::Died(exit) => {
                let place = format!("before {}", self.name(cells[next]));
                return self.died(running, next, place, exit_words(&exit, &kills));
            }
            Came::Halted(cause) => return (running, Served::Halted(cause)),
        };
        for (at, &index) in cells.iter().enumerate().skip(next) {
            if self.is_settled(index, runtime.round) {
                continue;
            }
            // An engine that died after the cell before is no fault of this one.
            match self.unless_lost(&mut running, std::future::ready(Came::Done(()))).await {
                Came::Done(()) => {}
                Came::Died(exit) => {
                    let place = format!("before {}", self.name(index));
                    return self.died(running, at, place, exit_words(&exit, &kills));
                }
                Came::Halted(cause) => return (running, Served::Halted(cause)),
            }
            let cell = &plan.cells[index];
            let began = self.clock.now();
            self.events.send(Event::CellStarted {
                cell: index,
                round: runtime.round,
                at: self.seconds(),
            });
            let request = &plan.suite.tests[cell.test as usize].request;
            let rendered = match plan.request(cell, runtime) {
                Ok(rendered) => rendered,
                Err(error) => {
                    self.finish(
                        index,
                        began,
                        CellState::Broken {
                            class: "template".to_owned(),
                            message: error.to_string(),
                        },
                    );
                    continue;
                }
            };
            let planned = self.conduct.header.with_those_held(index);
            let mut bench = Bench {
                index,
                plan,
                cell,
                planned: &planned,
                policy: &plan.suite.policy,
                gpus,
                clock: self.clock,
                endpoint: Endpoint {
                    url: running.remote.url().to_owned(),
                    transport: transport.clone(),
                    headers: rendered.headers,
                    dialect,
                },
                remote: running.remote.clone(),
                facts: &facts,
                ready_time: running.started.then_some(running.ready_time.as_secs_f64()),
                prompts: &mut prompts,
                request,
                body: rendered.body,
                events: self.events,
                runtime,
                redactor: self.conduct.redactor,
                instruments: instruments.of_cell(&planned),
            };
            let with_tool = plan.suite.tests[cell.test as usize].kind.kind() == TestKind::Command;
            let log = running.log_from_here();
            let measuring = async { Came::Done(bench.measure().await) };
            let came = match self.unless_lost(&mut running, measuring).await {
                // A tool may have counted the engine's death as so many wrong answers.
                Came::Done(state) if is_doubtful(&state) || with_tool => {
                    let lag = if is_doubtful(&state) { HALT_LAG } else { DEATH_LAG };
                    let proof = async {
                        self.clock.sleep_until(self.clock.now() + lag).await;
                        Came::Done(bench.still_serves().await)
                    };
                    match self.unless_lost(&mut running, proof).await {
                        Came::Done(Ok(())) => Came::Done(state),
                        Came::Done(Err(loss)) => {
                            // Where nothing listens it is dead, whoever was its parent. One that is mute
                            // may be slow, which the cell's own failures tell.
                            let state = match &loss {
                                Silence::Gone(loss) => engine_lost(loss),
                                Silence::Mute(_) => state,
                            };
                            let state = self.with_hardware(&instruments, began, state).await;
                            self.finish(index, began, state);
                            let place = format!("in {}", self.name(index));
                            let (Silence::Gone(loss) | Silence::Mute(loss)) = loss;
                            return self.lost(running, at + 1, place, loss, None);
                        }
                        Came::Died(exit) => Came::Died(exit),
                        // What has failed may have failed by what halts the run.
                        Came::Halted(cause) => Came::Halted(cause),
                    }
                }
                came @ (Came::Done(_) | Came::Died(_) | Came::Halted(_)) => came,
            };
            match came {
                Came::Done(state) => {
                    let state = self.with_hardware(&instruments, began, state).await;
                    self.finish(index, began, state);
                }
                Came::Halted(cause) => return (running, Served::Halted(cause)),
                Came::Died(exit) => {
                    let exit = exit_words(&exit, &kills);
                    let mut message = format!("the engine died: {exit}");
                    if let Some(words) = running.last_words(log.as_ref()) {
                        message.push_str(&format!("; {words}"));
                    }
                    for line in log.iter().flat_map(|log| log.telling(self.conduct.redactor)) {
                        message.push_str(&format!("\n{line}"));
                    }
                    let state = broken_words("engine-died", &message);
                    let state = self.with_hardware(&instruments, began, state).await;
                    self.finish(index, began, state);
                    let place = format!("in {}", self.name(index));
                    return self.died(running, at + 1, place, exit);
                }
            }
        }
        (running, Served::Whole)
    }

    /// Waits for `work` unless the engine dies or the run is halted meanwhile.
    async fn unless_lost<T>(
        &self,
        running: &mut Running,
        work: impl Future<Output = Came<T>>,
    ) -> Came<T> {
        let exit = tokio::select! {
            biased;
            exit = running.died() => exit,
            cause = self.halted() => return Came::Halted(cause),
            came = work => return came,
        };
        match self.halted_soon().await {
            Some(cause) => Came::Halted(cause),
            None => Came::Died(exit),
        }
    }

    /// The halt that an engine's end belongs to, if one comes right after it.
    pub(super) async fn halted_soon(&self) -> Option<Cause> {
        let patience = self.clock.now() + HALT_LAG;
        tokio::select! {
            biased;
            cause = self.halted() => Some(cause),
            () = self.clock.sleep_until(patience) => None,
        }
    }

    fn died(
        &self,
        running: Running,
        next: usize,
        place: String,
        exit: String,
    ) -> (Running, Served) {
        self.lost(running, next, place, Loss::Died(exit.clone()), Some(exit))
    }

    /// The engine serves no more; cells from `next` on are left.
    fn lost(
        &self,
        running: Running,
        next: usize,
        place: String,
        loss: Loss,
        exit: Option<String>,
    ) -> (Running, Served) {
        let log_tail = running.log_tail();
        (running, Served::Lost { next, loss: Lost { place, loss, exit, log_tail } })
    }

    fn finish(&mut self, cell: usize, began: crate::clock::Stamp, state: CellState) {
        let seconds = self.clock.now().since(began).as_secs_f64();
        match state {
            // What broke in one round is not mended by the next.
            CellState::Broken { .. } | CellState::Unfit { .. } => self.over.insert(cell),
            CellState::Measured(_) | CellState::NotRun { .. } => false,
        };
        self.events.send(Event::CellFinished { cell, round: self.round, state, seconds });
    }
}
