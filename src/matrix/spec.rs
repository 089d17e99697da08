//! What a run takes from its plan: the specification of a launch, setup commands, requests. What a
//! command test runs is said in [`super::tool`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::launch::{
    Occasion, Rendered, address, engine_templates, planned_cell_role, render, render_headers,
    render_planned, render_request, render_setup,
};
use super::scene::{Blame, Moment, Role};
use super::{Cell, Plan, naming};
use crate::engine::{Canary, Command, LaunchSpec, StopSpec};
use crate::load::Api;
use crate::measure::TestKind;
use crate::suite::model::EngineSource;
use crate::template::TemplateError;

/// What only a run knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The port that the engine shall use.
    pub port: u16,
    /// Secrets by name, with their values.
    pub secrets: Vec<(String, String)>,
    /// Identity of the run.
    pub run_id: String,
    /// `run.dir` of templates: where commands may put files.
    pub run_dir: PathBuf,
    /// Where logs and engine files go.
    pub out_dir: PathBuf,
    /// How often the run was resumed.
    pub session: usize,
    /// Which round of its launch it is: 0 where the engine is started once.
    pub round: u32,
    /// How many engines were started for this round before in this session: 0 for the first.
    pub launch_ordinal: usize,
    /// This program, for the simulated engine's command.
    pub executable: PathBuf,
    /// Seed of the run; the simulated engine gets one derived from it.
    pub seed: u64,
}

/// The parts of a cell's requests that templates decide.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RenderedRequest {
    /// Header names in lower case, with their values; the api key stands here as `authorization`.
    pub headers: Vec<(String, String)>,
    /// Extra fields of the body.
    pub body: serde_json::Map<String, serde_json::Value>,
}

impl Runtime {
    /// Which start of its launch it is: session, round and ordinal.
    fn start(&self) -> (usize, u32, usize) {
        (self.session, self.round, self.launch_ordinal)
    }
}

impl Plan {
    fn first_cell(&self, launch: usize) -> &Cell {
        &self.cells[self.launches[launch].cells.start]
    }

    /// The seed of the simulated engine of a launch: it differs by launch, session and ordinal, and
    /// depends on nothing else but the run's seed, whatever is selected.
    pub fn engine_seed(&self, launch: usize, runtime: &Runtime) -> u64 {
        let mut hash = Sha256::new();
        hash.update(runtime.seed.to_le_bytes());
        let start = (runtime.launch_ordinal as u64) | u64::from(runtime.round) << 32;
        hash.update(start.to_le_bytes());
        hash.update(self.launches[launch].name.as_bytes());
        if runtime.session > 0 {
            hash.update((runtime.session as u64).to_le_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        // 63 bits, so that the number also fits the signed integers of TOML and JSON readers.
        digest[..8].iter().fold(0, |seed, byte| (seed << 8) | u64::from(*byte)) >> 1
    }

    /// `launch.id` of templates: no other engine start has it.
    fn launch_id(&self, launch: usize, runtime: &Runtime) -> String {
        let launch = self.launches[launch].number;
        let Runtime { run_id, session, launch_ordinal, round, .. } = runtime;
        let round = if *round > 0 { format!("n{}-", round + 1) } else { String::new() };
        match session {
            0 => format!("{run_id}-{launch}-{round}{launch_ordinal}"),
            session => format!("{run_id}-r{session}-{launch}-{round}{launch_ordinal}"),
        }
    }

    /// The name of a launch in file names: with the session once the run was resumed, with the round
    /// from the second on, and with the ordinal from a round's second engine on.
    fn stem(&self, launch: usize, (session, round, ordinal): (usize, u32, usize)) -> String {
        let mut stem = format!("engine-{}", self.launches[launch].name);
        if session > 0 {
            stem.push_str(&format!("-resumed{session}"));
        }
        if round > 0 {
            stem.push_str(&format!("-n{}", round + 1));
        }
        if ordinal > 0 {
            stem.push_str(&format!("-{}", ordinal + 1));
        }
        stem
    }

    pub(super) fn rendered(
        &self,
        launch: usize,
        running: Option<&Runtime>,
    ) -> Result<Rendered, Vec<Blame>> {
        let cell = self.first_cell(launch);
        let scene = &self.scenes[cell.setting as usize];
        let engine = &self.suite.settings[cell.setting as usize].engine;
        let uses = scene.uses(engine_templates(engine).into_iter());
        let at = (self.test(cell), &*cell.point);
        match running {
            None => render_planned(&self.suite, scene, cell.setting, &uses, at),
            Some(runtime) => {
                let dir = runtime.out_dir.join(self.stem(launch, runtime.start()));
                let seed = self.engine_seed(launch, runtime);
                let occasion = Occasion {
                    id: &self.launch_id(launch, runtime),
                    dir: &dir.to_string_lossy(),
                    moment: Moment::Running(runtime),
                    seed,
                };
                render(&self.suite, scene, cell.setting, &uses, at, occasion)
            }
        }
    }

    /// Everything that a launch needs, rendered with the values of a run.
    ///
    /// # Errors
    /// A template that can't be rendered: a secret or an environment variable that is not set.
    pub fn launch_spec(
        &self,
        launch: usize,
        runtime: &Runtime,
    ) -> Result<LaunchSpec, TemplateError> {
        let rendered = self.rendered(launch, Some(runtime)).map_err(first)?;
        let cell = self.first_cell(launch);
        let headers = self.headers(cell, Moment::Running(runtime)).map_err(Blame::into_error)?;
        let stem = self.stem(launch, runtime.start());
        Ok(self.spec(launch, rendered, headers, (runtime.port, &runtime.out_dir, &stem)))
    }

    /// A launch as it will be, with stand-ins for what only a run knows: `{port}`, `{run.id}`,
    /// `<redacted:NAME>` for secrets.
    ///
    /// # Errors
    /// A template that can't be rendered.
    pub fn preview(&self, launch: usize) -> Result<LaunchSpec, TemplateError> {
        let rendered = self.rendered(launch, None).map_err(first)?;
        let cell = self.first_cell(launch);
        let headers = self.headers(cell, Moment::Planned).map_err(Blame::into_error)?;
        let port = self.suite.settings[cell.setting as usize].engine.port.unwrap_or(0);
        Ok(self.spec(
            launch,
            rendered,
            headers,
            (port, Path::new(""), &self.stem(launch, (0, 0, 0))),
        ))
    }

    fn spec(
        &self,
        launch: usize,
        rendered: Rendered,
        headers: Vec<(String, String)>,
        (port, out, stem): (u16, &Path, &str),
    ) -> LaunchSpec {
        let planned = &self.launches[launch];
        let setting = &self.suite.settings[planned.setting as usize];
        let engine = &setting.engine;
        let port = match &engine.source {
            EngineSource::Url(_) => address(&rendered.url).map_or(port, |(_, port)| port),
            EngineSource::Command(_) | EngineSource::Sim { .. } => port,
        };
        let command = |argv: Vec<String>| Command { argv };
        LaunchSpec {
            name: planned.name.clone(),
            kind: engine.kind,
            version: engine.version.clone(),
            command: rendered.command.map(command),
            env: rendered.env,
            files: rendered.files.into_iter().map(|(path, text)| (path.into(), text)).collect(),
            dir: out.join(stem),
            log: out.join(format!("{stem}.log")),
            host: rendered.host,
            port,
            url: rendered.url,
            headers,
            metrics_urls: rendered.metrics,
            model: setting.model.name.clone(),
            ready: engine.ready.clone(),
            canary: self.canary(),
            stop: StopSpec { grace: engine.stop_grace, command: rendered.stop.map(command) },
            log_must_contain: engine.log_must_contain.clone(),
        }
    }

    /// The endpoint of the suite's requests.
    fn canary(&self) -> Canary {
        let requests = self.suite.tests.iter().filter(|test| match test.kind.kind() {
            TestKind::Prefill | TestKind::Decode | TestKind::Serve => true,
            TestKind::Startup | TestKind::Command => false,
        });
        let apis: Vec<Api> = requests.map(|test| test.request.api).collect();
        if apis.is_empty() {
            Canary::Either
        } else if apis.iter().all(|api| *api == Api::Chat) {
            Canary::Chat
        } else {
            Canary::Completions
        }
    }

    /// The setup commands of all settings that have launches, in order, no two alike.
    ///
    /// # Errors
    /// A template that can't be rendered.
    pub fn setup(&self, runtime: &Runtime) -> Result<Vec<Command>, TemplateError> {
        let settings: BTreeSet<u32> = self.launches.iter().map(|launch| launch.setting).collect();
        let mut commands: Vec<Command> = Vec::new();
        for setting in settings {
            let moment = Moment::Running(runtime);
            let scene = &self.scenes[setting as usize];
            for argv in render_setup(&self.suite, scene, setting, moment).map_err(first)? {
                if commands.iter().all(|command| command.argv != argv) {
                    commands.push(Command { argv });
                }
            }
        }
        Ok(commands)
    }

    /// Headers and body of a cell's requests, rendered with the values of a run.
    ///
    /// # Errors
    /// A template that can't be rendered.
    pub fn request(
        &self,
        cell: &Cell,
        runtime: &Runtime,
    ) -> Result<RenderedRequest, TemplateError> {
        render_request(
            &self.suite,
            &self.scenes[cell.setting as usize],
            (self.test(cell), &cell.point),
            &self.cell_role(cell, Some(runtime)),
            Moment::Running(runtime),
        )
        .map_err(first)
    }

    fn headers(&self, cell: &Cell, moment: Moment<'_>) -> Result<Vec<(String, String)>, Blame> {
        let runtime = match moment {
            Moment::Running(runtime) => Some(runtime),
            Moment::Planned | Moment::PlannedWithPort(_) => None,
        };
        render_headers(
            &self.suite,
            &self.scenes[cell.setting as usize],
            (self.test(cell), &cell.point),
            &self.cell_role(cell, runtime),
            moment,
        )
    }

    /// What a cell is called in file names: `decode.context=8K,concurrency=4`.
    pub fn cell_file(&self, cell: &Cell) -> String {
        let (test, id) = (&self.test(cell).name, self.cell_id(cell));
        naming::safe(&if *test == id { id } else { format!("{test}.{id}") })
    }

    pub(super) fn cell_role(&self, cell: &Cell, runtime: Option<&Runtime>) -> Role {
        let launch = cell.launch as usize;
        let Some(runtime) = runtime else {
            return planned_cell_role();
        };
        let stem = self.stem(launch, runtime.start());
        let name = self.cell_file(cell);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        Role::Cell {
            launch: self.launch_id(launch, runtime),
            launch_dir: text(runtime.out_dir.join(&stem)),
            dir: text(runtime.out_dir.join("cells").join(stem).join(name)),
        }
    }
}

/// The first of several errors: a run needs one, since `check` has told them all.
pub(super) fn first(blames: Vec<Blame>) -> TemplateError {
    blames
        .into_iter()
        .next()
        .map_or_else(|| TemplateError::new("a template can't be rendered"), Blame::into_error)
}
