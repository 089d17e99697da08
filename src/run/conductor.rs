//! The conductor: owner of the run's state. It walks launches and cells in plan order, sends what
//! happens as events, and ends the engine whatever comes.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::launch::{self, LaunchError, Running};
use crate::engine::log::LogFile;
use crate::engine::redact::Redactor;
use crate::engine::supervise::{self as process, ExitInfo};
use crate::load::Endpoint;
use crate::matrix::{Plan, Runtime};
use crate::record::Event;
use crate::record::event::StopReason;
use crate::record::run_record::{CellState, LaunchFailure, RunHeader};
use crate::sim;
use crate::suite::model::{EngineSource, Setting, SimClock};
use crate::transport::Transport;

use super::cell::{Bench, dialect};
use super::halt::{Cause, Halt};
use super::prompts::Prompts;

/// Engine and supervisor have this long to end once the run is being halted.
const HALT_GRACE: Duration = Duration::from_secs(3);

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
}

/// The machine is not what the suite declares.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// Declared and found.
    pub message: String,
    /// Whether every cell is skipped (`on-mismatch = "skip"`) instead of an error.
    pub skip: bool,
}

/// The way of events to those who look on. A lost onlooker loses no run.
pub(super) struct Events(Sender<Event>);

impl Events {
    pub(super) fn send(&self, event: Event) {
        let _ = self.0.send(event);
    }
}

/// Carries out the plan. Call it inside a `LocalSet` of the runtime whose time it shall follow.
pub async fn conduct(conduct: &Conduct<'_>, events: Sender<Event>, halt: Halt) {
    let events = Events(events);
    let clock = Clock::start();
    let mut state = State { conduct, events: &events, clock, halt, prepared: false, ended: false };
    state.walk().await;
    if !state.ended {
        state.end(None);
    }
}

struct State<'a> {
    conduct: &'a Conduct<'a>,
    events: &'a Events,
    clock: Clock,
    halt: Halt,
    /// Whether the setup commands have run.
    prepared: bool,
    ended: bool,
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
    fn seconds(&self) -> f64 {
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
    async fn halted(&mut self) -> Cause {
        let limit = self.conduct.time_limit;
        let clock = self.clock;
        let timed = async move {
            match limit {
                Some(limit) => clock.sleep_until(crate::clock::Stamp(0) + limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            cause = self.halt.wait() => cause,
            () = timed => Cause::TimeLimit,
        }
    }

    async fn walk(&mut self) {
        let plan = self.conduct.plan;
        for launch in 0..plan.launches.len() {
            if let Some(unfit) = &self.conduct.unfit {
                self.refuse(launch, unfit);
                continue;
            }
            if let Some(cause) = self.halt.cause() {
                self.end(Some(cause));
                return;
            }
            let cells = plan.launches[launch].cells.clone();
            let mut next = cells.start;
            let mut restarts = 0;
            while next < cells.end {
                let (running, runtime, transport) = match self.start(launch, restarts).await {
                    Ok(started) => started,
                    Err(Start::Halted(cause)) => {
                        self.end_unless_ended(cause);
                        return;
                    }
                    Err(Start::Failed(failure)) => {
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
                match served {
                    Served::Whole => break,
                    Served::Halted(_) => return,
                    Served::Died { next: left, failure } => {
                        next = left;
                        if next < cells.end && restarts < plan.suite.policy.restarts as usize {
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

    fn end_unless_ended(&mut self, cause: Cause) {
        if !self.ended {
            self.end(Some(cause));
        }
    }

    /// Says that nothing is launched on this machine.
    fn refuse(&self, launch: usize, unfit: &Unfit) {
        if unfit.skip {
            for cell in self.conduct.plan.launches[launch].cells.clone() {
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
                },
            });
        }
    }
}

/// Why a launch gave no engine.
enum Start {
    Failed(LaunchFailure),
    Halted(Cause),
}

impl State<'_> {
    fn step(&self, launch: usize, step: &str) {
        self.events.send(Event::LaunchStep { launch, step: step.to_owned(), at: self.seconds() });
    }

    /// Setup where it has not run yet, then the engine, ready.
    async fn start(
        &mut self,
        launch: usize,
        restarts: usize,
    ) -> Result<(Running, Runtime, Transport), Start> {
        let plan = self.conduct.plan;
        let setting = &plan.suite.settings[plan.launches[launch].setting as usize];
        let mut attempt = 0;
        loop {
            let port =
                setting.engine.port.map_or_else(|| launch::free_port(&setting.engine.host), Ok);
            let port = port.map_err(|error| {
                Start::Failed(plain_failure("process", &format!("no free port: {error}")))
            })?;
            let runtime = self.runtime(port, restarts);
            let spec = plan
                .launch_spec(launch, &runtime)
                .map_err(|error| Start::Failed(plain_failure("process", &error.to_string())))?;
            self.events.send(Event::LaunchStarted {
                launch,
                command: spec
                    .command
                    .iter()
                    .flat_map(|command| &command.argv)
                    .map(|word| self.conduct.redactor.text(word))
                    .collect(),
                log: spec
                    .command
                    .as_ref()
                    .and(spec.log.file_name())
                    .map(|name| name.to_string_lossy().into_owned()),
                at: self.seconds(),
            });
            self.setup(launch, &spec.env, &runtime).await?;
            let transport = self.transport(launch, &runtime, setting)?;
            let events = self.events;
            let clock = self.clock;
            let mut on_step = |step: &str| {
                let at = clock.now().0 as f64 / 1e9;
                events.send(Event::LaunchStep { launch, step: step.to_owned(), at });
            };
            let launching =
                launch::launch(&spec, &transport, &clock, self.conduct.redactor, &mut on_step);
            let launched = tokio::select! {
                biased;
                launched = launching => launched,
                cause = self.halted() => return Err(Start::Halted(cause)),
            };
            match launched {
                Ok(running) => {
                    self.events.send(Event::LaunchReady {
                        launch,
                        ready_time: running.ready_time.as_secs_f64(),
                        facts: running.facts.clone(),
                        warnings: Vec::new(),
                    });
                    return Ok((running, runtime, transport));
                }
                // Someone took the port between our look and the engine's bind.
                Err(error)
                    if error.address_in_use && setting.engine.port.is_none() && attempt == 0 =>
                {
                    attempt += 1;
                    self.events.send(Event::Warning {
                        message: format!("port {port} was taken meanwhile; tried another"),
                    });
                }
                Err(error) => return Err(Start::Failed(failure(error))),
            }
        }
    }

    fn runtime(&self, port: u16, restarts: usize) -> Runtime {
        Runtime {
            port,
            secrets: self.conduct.secrets.clone(),
            run_id: self.conduct.header.run_id.clone(),
            run_dir: self.conduct.out.to_owned(),
            out_dir: self.conduct.out.to_owned(),
            launch_ordinal: restarts,
            executable: self.conduct.executable.clone(),
            seed: self.conduct.header.seed,
        }
    }

    /// Runs the setup commands, once before the first launch.
    async fn setup(
        &mut self,
        launch: usize,
        env: &[(String, String)],
        runtime: &Runtime,
    ) -> Result<(), Start> {
        if self.prepared {
            return Ok(());
        }
        let plan = self.conduct.plan;
        let engine = &plan.suite.settings[plan.launches[launch].setting as usize].engine;
        let commands = plan
            .setup(runtime)
            .map_err(|error| Start::Failed(plain_failure("setup", &error.to_string())))?;
        for command in commands {
            self.step(launch, "setup");
            let log = self.conduct.out.join("engine-setup.log");
            let written = LogFile::from_here(&log);
            let running = process::run_supervised(&command, env, None, &log, engine.setup_timeout);
            let ended = tokio::select! {
                biased;
                ended = running => ended,
                cause = self.halted() => return Err(Start::Halted(cause)),
            };
            let words = self.conduct.redactor.text(&command.argv.join(" "));
            let exit = match ended {
                Ok(exit) if exit.success() => continue,
                Ok(exit) => exit.to_string(),
                Err(error) => error.to_string(),
            };
            let tail = written.telling(self.conduct.redactor);
            return Err(Start::Failed(LaunchFailure {
                step: "setup".to_owned(),
                message: format!("setup command failed: {words}: {exit}"),
                exit: Some(exit),
                log_tail: tail,
                mismatch: false,
            }));
        }
        // A setup that failed is tried again by a later launch.
        self.prepared = true;
        Ok(())
    }

    /// The way to the engine; starts the simulated one where it lives in this process.
    fn transport(
        &self,
        launch: usize,
        runtime: &Runtime,
        setting: &Setting,
    ) -> Result<Transport, Start> {
        match &setting.engine.source {
            EngineSource::Sim { profile, clock: SimClock::Virtual } => {
                let profile = match profile {
                    Some(path) => sim::Profile::load(path),
                    None => Ok(sim::Profile::default()),
                };
                let profile = profile
                    .map_err(|error| Start::Failed(plain_failure("process", &error.to_string())))?;
                let seed = self.conduct.plan.engine_seed(launch, runtime);
                let model = setting.model.name.as_deref().unwrap_or("sim");
                Ok(Transport::InProcess(sim::start_in_process(profile, seed, model, None)))
            }
            EngineSource::Sim { clock: SimClock::Real, .. }
            | EngineSource::Command(_)
            | EngineSource::Url(_) => Ok(Transport::Tcp),
        }
    }

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
        // Restarts have prompts of their own, since a cold one must be cold there too.
        let ordinal = launch as u64 | (runtime.launch_ordinal as u64) << 32;
        let seed = self.conduct.header.seed;
        let mut prompts = Prompts::learn(seed, ordinal, &running.remote, dialect).await;
        for index in cells {
            if let Some(cause) = self.halt.cause() {
                return (running, Served::Halted(cause));
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
            };
            enum Came {
                State(CellState),
                Died(ExitInfo),
                Halted(Cause),
            }
            let came = {
                let measuring = bench.measure();
                let died = running.died();
                tokio::select! {
                    biased;
                    state = measuring => Came::State(state),
                    exit = died => Came::Died(exit),
                    cause = self.halted() => Came::Halted(cause),
                }
            };
            match came {
                Came::State(state) => self.finish(index, began, state),
                Came::Halted(cause) => return (running, Served::Halted(cause)),
                Came::Died(exit) => {
                    let log_tail = running.log_tail();
                    let message = format!("the engine died: {exit}");
                    self.finish(
                        index,
                        began,
                        CellState::Broken {
                            class: "engine-died".to_owned(),
                            message: match log_tail.last() {
                                Some(line) => format!("{message}; its last line: {line}"),
                                None => message.clone(),
                            },
                        },
                    );
                    let failure = LaunchFailure {
                        step: "serving".to_owned(),
                        message,
                        exit: Some(exit.to_string()),
                        log_tail,
                        mismatch: false,
                    };
                    return (running, Served::Died { next: index + 1, failure });
                }
            }
        }
        (running, Served::Whole)
    }

    fn finish(&self, cell: usize, began: crate::clock::Stamp, state: CellState) {
        let seconds = self.clock.now().since(began).as_secs_f64();
        self.events.send(Event::CellFinished { cell, state, seconds });
    }

    async fn stop(&mut self, launch: usize, mut running: Running, halted: bool) {
        let setting = self.conduct.plan.launches[launch].setting as usize;
        let declared = self.conduct.plan.suite.settings[setting].engine.stop_grace;
        let grace = if halted { declared.min(HALT_GRACE) } else { declared };
        let mut halt = self.halt.clone();
        let hurried = tokio::select! {
            report = running.stop(grace) => Some(report),
            () = halt.hurry() => None,
        };
        let report = match hurried {
            Some(report) => report,
            None => running.stop(Duration::ZERO).await,
        };
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

fn plain_failure(step: &str, message: &str) -> LaunchFailure {
    LaunchFailure {
        step: step.to_owned(),
        message: message.to_owned(),
        exit: None,
        log_tail: Vec::new(),
        mismatch: false,
    }
}

fn failure(error: LaunchError) -> LaunchFailure {
    LaunchFailure {
        step: error.step.to_owned(),
        message: error.message,
        exit: error.exit,
        log_tail: error.log_tail,
        mismatch: error.mismatch,
    }
}
