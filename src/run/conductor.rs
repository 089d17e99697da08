//! The conductor: owner of the run's state. It walks launches and cells in plan order, sends what
//! happens as events, and ends the engine whatever comes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::launch::{Running, StopReport};
use crate::engine::redact::Redactor;
use crate::engine::supervise::{self as process, ExitInfo};
use crate::load::{Endpoint, FailureClass};
use crate::matrix::{Plan, Runtime};
use crate::measure::TestKind;
use crate::record::event::StopReason;
use crate::record::run_record::{CellState, LaunchFailure, RunHeader};
use crate::record::{Earlier, Event};
use crate::suite::model::EngineSource;
use crate::transport::Transport;

use super::cell::{Bench, dialect, is_doubtful};
use super::events::Events;
use super::halt::{Cause, Halt};
use super::prompts::Prompts;
use super::start::Start;

/// Engine and supervisor have this long to end once the run is being halted.
const HALT_GRACE: Duration = Duration::from_secs(3);
/// The end of an engine is waited for so long once the run is being halted; its supervisor goes on
/// without us.
const HALT_LIMIT: Duration = Duration::from_secs(6);
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
    /// `policy.time-limit` or the flag.
    pub time_limit: Option<Duration>,
    /// Launch nothing: why the machine is not what the suite declares.
    pub unfit: Option<Unfit>,
    /// What the sessions before this one have done.
    pub earlier: Earlier,
}

/// The machine is not what the suite declares.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// Declared and found.
    pub message: String,
    /// Whether every cell is skipped (`on-mismatch = "skip"`) instead of an error.
    pub skip: bool,
}

/// Carries out the plan. Call it inside a `LocalSet` of the runtime whose time it shall follow.
pub async fn conduct(conduct: &Conduct<'_>, events: Sender<Event>, halt: Halt) {
    let events = Events { to: events, redactor: conduct.redactor };
    let clock = Clock::start();
    let settled = conduct.earlier.finished.clone();
    let mut state =
        State { conduct, events: &events, clock, halt, prepared: false, settled, ended: false };
    state.walk().await;
    if !state.ended {
        state.end(None);
    }
    // A launch that was given up still has its supervisor, which is ending it.
    process::all_gone(HALT_LIMIT).await;
}

pub(super) struct State<'a> {
    pub(super) conduct: &'a Conduct<'a>,
    pub(super) events: &'a Events<'a>,
    pub(super) clock: Clock,
    halt: Halt,
    /// Whether the setup commands have run.
    pub(super) prepared: bool,
    /// Cells that were finished before their turn: in an earlier session, or without an engine.
    pub(super) settled: BTreeSet<usize>,
    ended: bool,
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
    /// The engine died; cells from here on are left.
    Died { next: usize, failure: LaunchFailure },
    /// The run is being halted.
    Halted(Cause),
}

impl State<'_> {
    pub(super) fn seconds(&self) -> f64 {
        self.clock.now().0 as f64 / 1e9
    }

    fn end(&mut self, cause: Option<Cause>) {
        let (signal, stopped) = match cause {
            None => (None, None),
            Some(Cause::Signal(number)) => (Some(number), Some(StopReason::Signal)),
            Some(Cause::TimeLimit) => (None, Some(StopReason::TimeLimit)),
            Some(Cause::MaxFail) => (None, Some(StopReason::MaxFail)),
            Some(Cause::Unwritable) => (None, None),
        };
        self.ended = true;
        self.events.send(Event::RunFinished { signal, stopped, at: self.seconds() });
    }

    /// The end that is asked for, by anyone or by the time limit.
    pub(super) async fn halted(&self) -> Cause {
        let mut halt = self.halt.clone();
        let limit = self.conduct.time_limit;
        let clock = self.clock;
        let timed = async move {
            match limit {
                Some(limit) => clock.sleep_until(crate::clock::Stamp(0) + limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            cause = halt.wait() => cause,
            () = timed => Cause::TimeLimit,
        }
    }

    async fn walk(&mut self) {
        let plan = self.conduct.plan;
        for launch in 0..plan.launches.len() {
            let cells = plan.launches[launch].cells.clone();
            if self.conduct.earlier.failed.contains(&launch) || !self.is_left(cells.clone()) {
                continue;
            }
            if let Some(unfit) = &self.conduct.unfit {
                self.refuse(launch, unfit);
                continue;
            }
            if let Some(cause) = self.halt.cause() {
                self.end(Some(cause));
                return;
            }
            let mut next = cells.start;
            let mut restarts = 0;
            while next < cells.end {
                let began = self.clock.now();
                let (running, runtime, transport) = match self.start(launch, restarts).await {
                    Ok(started) => started,
                    Err(Start::Halted(cause)) => {
                        self.end_unless_ended(cause);
                        return;
                    }
                    Err(Start::Pointless) => break,
                    Err(Start::Failed(mut failure)) => {
                        failure.seconds = self.clock.now().seconds_since(began);
                        self.events.send(Event::LaunchFailed { launch, failure });
                        break;
                    }
                };
                let (running, served) =
                    self.serve(launch, next..cells.end, running, &runtime, transport).await;
                let halted = match &served {
                    Served::Halted(cause) => {
                        // Reports first: whoever halts us may not wait for the engine.
                        self.end(Some(*cause));
                        true
                    }
                    Served::Whole | Served::Died { .. } => false,
                };
                self.stop(launch, running, halted).await;
                if self.ended {
                    return;
                }
                match served {
                    Served::Whole => break,
                    Served::Halted(_) => return,
                    Served::Died { next: left, mut failure } => {
                        failure.seconds = self.clock.now().seconds_since(began);
                        next = left;
                        let before = self.conduct.earlier.restarts(launch);
                        if self.is_left(next..cells.end)
                            && before + restarts < self.restarts(launch)
                        {
                            restarts += 1;
                            self.events.send(Event::Warning {
                                message: format!(
                                    "launch {}: {}; started again for the remaining cells",
                                    plan.launches[launch].name, failure.message
                                ),
                            });
                        } else {
                            self.events.send(Event::LaunchFailed { launch, failure });
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Whether any of these cells is not finished.
    fn is_left(&self, mut cells: std::ops::Range<usize>) -> bool {
        cells.any(|cell| !self.settled.contains(&cell))
    }

    /// How often the engine of a launch is started again: never where it is not started here.
    fn restarts(&self, launch: usize) -> usize {
        let plan = self.conduct.plan;
        match plan.suite.settings[plan.launches[launch].setting as usize].engine.source {
            EngineSource::Url(_) => 0,
            EngineSource::Command(_) | EngineSource::Sim { .. } => {
                plan.suite.policy.restarts as usize
            }
        }
    }

    fn end_unless_ended(&mut self, cause: Cause) {
        if !self.ended {
            self.end(Some(cause));
        }
    }

    /// Says that nothing is launched on this machine.
    fn refuse(&self, launch: usize, unfit: &Unfit) {
        if unfit.skip {
            let cells = self.conduct.plan.launches[launch].cells.clone();
            for cell in cells.filter(|cell| !self.settled.contains(cell)) {
                self.events.send(Event::CellFinished {
                    cell,
                    state: CellState::Unfit {
                        class: crate::record::run_record::UnfitClass::Hardware,
                        message: unfit.message.clone(),
                    },
                    seconds: 0.0,
                });
            }
        } else {
            self.events.send(Event::LaunchFailed {
                launch,
                failure: LaunchFailure {
                    step: "hardware".to_owned(),
                    message: unfit.message.clone(),
                    exit: None,
                    log_tail: Vec::new(),
                    mismatch: true,
                    seconds: 0.0,
                },
            });
        }
    }
}

impl State<'_> {
    /// Measures cells until all are done, the engine dies or the run is halted.
    async fn serve(
        &mut self,
        launch: usize,
        cells: std::ops::Range<usize>,
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
        let start = (runtime.launch_ordinal as u64) << 32 ^ (runtime.session as u64) << 48;
        let ordinal = u64::from(plan.launches[launch].number) | start;
        let seed = self.conduct.header.seed;
        let remote = running.remote.clone();
        let learning = async { Came::Done(Prompts::learn(seed, ordinal, &remote, dialect).await) };
        let mut prompts = match self.unless_lost(&mut running, learning).await {
            Came::Done(prompts) => prompts,
            Came::Died(exit) => return self.died(running, cells.start, &exit),
            Came::Halted(cause) => return (running, Served::Halted(cause)),
        };
        for index in cells {
            if self.settled.contains(&index) {
                continue;
            }
            // An engine that died after the cell before is no fault of this one.
            match self.unless_lost(&mut running, std::future::ready(Came::Done(()))).await {
                Came::Done(()) => {}
                Came::Died(exit) => return self.died(running, index, &exit),
                Came::Halted(cause) => return (running, Served::Halted(cause)),
            }
            let cell = &plan.cells[index];
            let began = self.clock.now();
            self.events.send(Event::CellStarted { cell: index, at: self.seconds() });
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
            let mut bench = Bench {
                index,
                plan,
                cell,
                planned: &self.conduct.header.cells[index],
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
            };
            let with_tool = plan.suite.tests[cell.test as usize].kind.kind() == TestKind::Command;
            let log = running.log_from_here();
            let measuring = async { Came::Done(bench.measure().await) };
            let came = match self.unless_lost(&mut running, measuring).await {
                // A tool may have counted the engine's death as so many wrong answers.
                Came::Done(state) if is_doubtful(&state) || with_tool => {
                    let proof = async {
                        self.clock.sleep_until(self.clock.now() + DEATH_LAG).await;
                        Came::Done(bench.still_serves().await)
                    };
                    match self.unless_lost(&mut running, proof).await {
                        Came::Done(Ok(())) => Came::Done(state),
                        Came::Done(Err(why)) => {
                            let message =
                                format!("the engine does not answer any more: {}", why.message);
                            // Where nothing listens it is dead, whoever was its parent.
                            let dead = why.class == FailureClass::Connection;
                            self.finish(
                                index,
                                began,
                                if dead { engine_died(&message) } else { state },
                            );
                            return self.lost(running, index + 1, message, None);
                        }
                        Came::Died(exit) => Came::Died(exit),
                        Came::Halted(cause) => {
                            self.finish(index, began, state);
                            return (running, Served::Halted(cause));
                        }
                    }
                }
                came @ (Came::Done(_) | Came::Died(_) | Came::Halted(_)) => came,
            };
            match came {
                Came::Done(state) => self.finish(index, began, state),
                Came::Halted(cause) => return (running, Served::Halted(cause)),
                Came::Died(exit) => {
                    let message = match running.last_words(log.as_ref()) {
                        Some(words) => format!("the engine died: {exit}; {words}"),
                        None => format!("the engine died: {exit}"),
                    };
                    self.finish(index, began, engine_died(&message));
                    return self.died(running, index + 1, &exit);
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
        tokio::select! {
            biased;
            exit = running.died() => Came::Died(exit),
            cause = self.halted() => Came::Halted(cause),
            came = work => came,
        }
    }

    fn died(&self, running: Running, next: usize, exit: &ExitInfo) -> (Running, Served) {
        let message = format!("the engine died: {exit}");
        self.lost(running, next, message, Some(exit.to_string()))
    }

    /// The engine serves no more; cells from `next` on are left.
    fn lost(
        &self,
        running: Running,
        next: usize,
        message: String,
        exit: Option<String>,
    ) -> (Running, Served) {
        let step = "serving".to_owned();
        let log_tail = running.log_tail();
        let failure =
            LaunchFailure { step, message, exit, log_tail, mismatch: false, seconds: 0.0 };
        (running, Served::Died { next, failure })
    }

    fn finish(&self, cell: usize, began: crate::clock::Stamp, state: CellState) {
        let seconds = self.clock.now().since(began).as_secs_f64();
        self.events.send(Event::CellFinished { cell, state, seconds });
    }

    /// Ends the engine, in the time that its suite gives it or, once the run is being halted, soon.
    async fn stop(&mut self, launch: usize, mut running: Running, halted: bool) {
        let setting = self.conduct.plan.launches[launch].setting as usize;
        let declared = self.conduct.plan.suite.settings[setting].engine.stop_grace;
        if !halted {
            let came = tokio::select! {
                biased;
                cause = self.halted() => Err(cause),
                report = running.stop(declared) => Ok(report),
            };
            match came {
                Ok(report) => return self.stopped(launch, report),
                Err(cause) => self.end_unless_ended(cause),
            }
        }
        let mut halt = self.halt.clone();
        let ending = async {
            tokio::select! {
                report = running.stop(declared.min(HALT_GRACE)) => return report,
                () = halt.hurry() => {}
            }
            running.stop(Duration::ZERO).await
        };
        match tokio::time::timeout(HALT_LIMIT, ending).await {
            Ok(report) => self.stopped(launch, report),
            Err(_) => {
                let name = &self.conduct.plan.launches[launch].name;
                let message = format!("launch {name} is still being ended by its supervisor");
                self.events.send(Event::Warning { message });
            }
        }
    }

    fn stopped(&self, launch: usize, report: StopReport) {
        for message in report.notes {
            self.events.send(Event::Warning { message });
        }
        for survivor in report.survivors {
            let message = format!("still there after the launch was ended: {survivor}");
            self.events.send(Event::Warning { message });
        }
        self.events.send(Event::LaunchStopped { launch, at: self.seconds() });
    }
}

fn engine_died(message: &str) -> CellState {
    CellState::Broken { class: "engine-died".to_owned(), message: message.to_owned() }
}
