//! The start of a launch: setup where it has not run yet, then the engine, ready; tried again where
//! somebody took its port meanwhile.
//!
//! How an engine is made sure of is decided in `engine::launch`; what a failure means for the run in
//! `conductor`.

use std::sync::PoisonError;

use crate::engine::Kind;
use crate::engine::launch::{self, LaunchError, Running};
use crate::engine::log::LogFile;
use crate::engine::supervise::{self as process, Secrecy};
use crate::load::Dialect;
use crate::matrix::{Plan, Runtime};
use crate::record::Event;
use crate::record::run_record::{CellState, LaunchFailure, UnfitClass};
use crate::sim;
use crate::suite::model::{EngineSource, Setting, SimClock};
use crate::transport::Transport;

use super::cell::broken_words;
use super::command;
use super::conductor::{Conduct, State, Unfit};
use super::halt::Cause;
use super::slowed;

/// The log of setup commands, in the output directory.
const SETUP_LOG: &str = "engine-setup.log";

/// Whether the engine is simulated in this process for the whole plan, so that time need not pass.
pub fn in_virtual_time(plan: &Plan) -> bool {
    plan.suite.settings.iter().all(|setting| match &setting.engine.source {
        EngineSource::Sim { clock: SimClock::Virtual, .. } => true,
        EngineSource::Sim { clock: SimClock::Real, .. }
        | EngineSource::Command(_)
        | EngineSource::Url(_) => false,
    })
}

/// Lets real time pass in a run in virtual time: for what is no simulation.
struct RealTime(bool);

impl RealTime {
    fn during(plan: &Plan) -> RealTime {
        let paused = in_virtual_time(plan);
        if paused {
            tokio::time::resume();
        }
        RealTime(paused)
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if self.0 {
            tokio::time::pause();
        }
    }
}

/// An engine that was started and made sure of before the run began, by the runtime that carries it out.
#[derive(Debug)]
pub struct Given {
    /// The engine.
    pub running: Running,
    /// The port that its command got.
    pub port: u16,
}

impl Conduct<'_> {
    /// The engine that runs already, once.
    pub(super) fn take_given(&self) -> Option<Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Why a launch gave no engine.
pub(super) enum Start {
    Failed(LaunchFailure),
    Halted(Cause),
    /// None is needed: every cell is finished.
    Pointless,
}

impl State<'_> {
    fn step(&self, launch: usize, step: &str) {
        self.events.send(Event::LaunchStep { launch, step: step.to_owned(), at: self.seconds() });
    }

    /// Says that nothing is launched on this machine.
    pub(super) fn refuse(&self, launch: usize, unfit: &Unfit) {
        if unfit.skip {
            let cells = self.conduct.plan.launches[launch].cells.clone();
            for cell in cells.filter(|cell| !self.is_settled(*cell, 0)) {
                self.events.send(Event::CellFinished {
                    cell,
                    round: 0,
                    state: CellState::Unfit {
                        class: UnfitClass::Hardware,
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

    /// Setup where it has not run yet, then the engine, ready, and the way on which it is measured.
    pub(super) async fn start(
        &mut self,
        launch: usize,
        cells: &[usize],
        restarts: usize,
    ) -> Result<(Running, Runtime, Transport), Start> {
        let plan = self.conduct.plan;
        let setting = &plan.suite.settings[plan.launches[launch].setting as usize];
        let mut attempt = 0;
        loop {
            let given = self.conduct.take_given();
            let known = given.as_ref().map(|given| given.port).or(setting.engine.port);
            let port = known.map_or_else(|| launch::free_port(&setting.engine.host), Ok);
            let port = port.map_err(|error| {
                Start::Failed(plain_failure("process", &format!("no free port: {error}")))
            })?;
            let runtime = self.runtime(port, restarts);
            let spec = plan
                .launch_spec(launch, &runtime)
                .map_err(|error| Start::Failed(plain_failure("process", &error.to_string())))?;
            self.events.send(Event::LaunchStarted {
                launch,
                command: spec.command.iter().flat_map(|command| command.argv.clone()).collect(),
                log: spec
                    .command
                    .as_ref()
                    .and(spec.log.file_name())
                    .map(|name| name.to_string_lossy().into_owned()),
                round: self.round,
                ordinal: restarts,
                at: self.seconds(),
            });
            if let Some(Given { running, .. }) = given {
                self.ready(launch, &running);
                return Ok((running, runtime, Transport::Tcp));
            }
            self.setup(launch, &spec.env, &runtime).await?;
            self.look_for_tools(cells, &runtime);
            if cells.iter().all(|cell| self.is_settled(*cell, self.round)) {
                return Err(Start::Pointless);
            }
            let transport = self.transport(launch, &runtime, setting)?;
            // Were both sides of a ratio slowed, it would stay as it is.
            let slow =
                self.conduct.slow.filter(|_| !plan.is_yardstick(plan.launches[launch].setting));
            let measured = slowed::way(&transport, &spec, slow)
                .map_err(|why| Start::Failed(plain_failure("process", &why)))?;
            self.attend(launch, &spec).await?;
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
                    self.ready(launch, &running);
                    return Ok((running, runtime, measured));
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
                Err(error) => {
                    // What ends a job may have ended the engine first.
                    if error.exit.is_some()
                        && let Some(cause) = self.halted_soon().await
                    {
                        return Err(Start::Halted(cause));
                    }
                    return Err(Start::Failed(failure(error)));
                }
            }
        }
    }

    fn ready(&self, launch: usize, running: &Running) {
        self.events.send(Event::LaunchReady {
            launch,
            ready_time: running.ready_time.as_secs_f64(),
            facts: running.facts.clone(),
            warnings: Vec::new(),
        });
    }

    fn runtime(&self, port: u16, restarts: usize) -> Runtime {
        Runtime {
            port,
            secrets: self.conduct.secrets.clone(),
            run_id: self.conduct.header.run_id.clone(),
            run_dir: self.conduct.out.to_owned(),
            out_dir: self.conduct.out.to_owned(),
            session: self.conduct.earlier.sessions,
            round: self.round,
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
            let log = self.conduct.out.join(SETUP_LOG);
            let written = LogFile::from_here(&log);
            let _real = RealTime::during(plan);
            let redactor = self.conduct.redactor;
            let secrecy = Secrecy { redactor, clean: &[], always: false };
            let logged = (log.as_path(), secrecy);
            let running = process::run_secretive(&command, env, None, logged, engine.setup_timeout);
            let ended = tokio::select! {
                biased;
                ended = running => ended,
                cause = self.halted() => return Err(Start::Halted(cause)),
            };
            let words = command.argv.join(" ");
            let exit = match ended {
                Ok(exit) if exit.success() => continue,
                Ok(exit) => exit.to_string(),
                Err(error) => error.to_string(),
            };
            if let Some(cause) = self.halted_soon().await {
                return Err(Start::Halted(cause));
            }
            let tail = written.telling(self.conduct.redactor);
            return Err(Start::Failed(LaunchFailure {
                step: "setup".to_owned(),
                message: format!("setup command failed: {words}: {exit} (see {SETUP_LOG})"),
                exit: Some(exit),
                log_tail: tail,
                mismatch: false,
                seconds: 0.0,
            }));
        }
        // A setup that failed is tried again by a later launch.
        self.prepared = true;
        Ok(())
    }

    /// Finishes the cells whose tool is not there, before an engine is loaded for them; after the setup,
    /// which may install it.
    fn look_for_tools(&mut self, cells: &[usize], runtime: &Runtime) {
        let plan = self.conduct.plan;
        for &index in cells {
            if self.is_settled(index, self.round) {
                continue;
            }
            // What can't be rendered is told when it is the cell's turn.
            let spec = plan.command_spec(&plan.cells[index], runtime, 0).ok().flatten();
            if let Some(why) = spec.and_then(|spec| command::not_there(&spec)) {
                self.over.insert(index);
                let state = broken_words("command-failed", &why);
                let (cell, round) = (index, self.round);
                self.events.send(Event::CellFinished { cell, round, state, seconds: 0.0 });
            }
        }
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
}

fn plain_failure(step: &str, message: &str) -> LaunchFailure {
    LaunchFailure {
        step: step.to_owned(),
        message: message.to_owned(),
        exit: None,
        log_tail: Vec::new(),
        mismatch: false,
        seconds: 0.0,
    }
}

fn failure(error: LaunchError) -> LaunchFailure {
    LaunchFailure {
        step: error.step.to_owned(),
        message: error.message,
        exit: error.exit,
        log_tail: error.log_tail,
        mismatch: error.mismatch,
        seconds: 0.0,
    }
}

/// How an engine of a kind is asked.
pub(super) fn dialect(kind: Kind) -> Dialect {
    match kind {
        Kind::Vllm | Kind::Sglang | Kind::Sim => Dialect::Vllm,
        Kind::LlamaCpp => Dialect::LlamaCpp,
        Kind::Openai => Dialect::OpenAi,
    }
}
