//! The tool of a command test, rendered: what is run against the engine, and the file that it
//! writes.
//!
//! The same code renders for the plan, with stand-ins for what only a run knows, and for a run. It
//! starts nothing and reads no file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use minijinja::Value;

use super::launch::{address, blame, planned_cell_role, render_command, texts};
use super::scene::{Blame, Moment, Role, Scene};
use super::spec::{Runtime, first};
use super::{Cell, Plan};
use crate::suite::model::{CommandSetting, Suite, Test, TestSetting};
use crate::template::{self, TemplateError};

/// What a command test runs in one cell, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment variables besides the inherited ones: those of the engine.
    pub env: Vec<(String, String)>,
    /// `{{ cell.dir }}`: its own directory below the run's, another one for each repeat. It is to be
    /// made, and empty, before the tool is started.
    pub dir: PathBuf,
    /// The file that it writes, below `dir`.
    pub result: PathBuf,
    /// Longest time that it may take.
    pub timeout: Duration,
}

impl Plan {
    /// What a command test runs in a cell, rendered with the values of a run: `repeat` counts from
    /// 0. `None` for tests of other kinds.
    ///
    /// # Errors
    /// A template that can't be rendered: a secret or an environment variable that is not set.
    pub fn command_spec(
        &self,
        cell: &Cell,
        runtime: &Runtime,
        repeat: u32,
    ) -> Result<Option<CommandSpec>, TemplateError> {
        let TestSetting::Command(setting) = &self.test(cell).kind else { return Ok(None) };
        let rendered = self.rendered(cell.launch as usize, Some(runtime)).map_err(first)?;
        let mut role = self.cell_role(cell, Some(runtime));
        if let Role::Cell { dir, .. } = &mut role
            && repeat > 0
        {
            dir.push_str(&format!("-{}", u64::from(repeat) + 1));
        }
        let port = address(&rendered.url).map_or(runtime.port, |(_, port)| port);
        let answers = Answers {
            host: rendered.host.into(),
            port: Some(port.into()),
            url: rendered.url.into(),
        };
        let (argv, result) = render_tool(
            &self.suite,
            &self.scenes[cell.setting as usize],
            cell.setting,
            (self.test(cell), &cell.point),
            setting,
            Occasion { role: &role, moment: Moment::Running(runtime), answers },
        )
        .map_err(first)?;
        let dir = match role {
            Role::Cell { dir, .. } => PathBuf::from(dir),
            Role::Probe | Role::Setup | Role::Engine { .. } => PathBuf::new(),
        };
        // A result that was written with `{{ cell.dir }}` in front has it already.
        let result =
            if Path::new(&result).starts_with(&dir) { result.into() } else { dir.join(result) };
        Ok(Some(CommandSpec { argv, env: rendered.env, dir, result, timeout: setting.timeout }))
    }
}

/// Where the engine answers, as a tool's templates see it.
struct Answers {
    host: Value,
    /// `None`: as the scene has it.
    port: Option<Value>,
    url: Value,
}

/// When and for which cell a tool is rendered.
struct Occasion<'a> {
    role: &'a Role,
    moment: Moment<'a>,
    answers: Answers,
}

/// The templates of a command test; none for others.
pub(super) fn tool_templates(test: &Test) -> Vec<&str> {
    match &test.kind {
        TestSetting::Command(setting) => of_setting(setting),
        TestSetting::Prefill { .. }
        | TestSetting::Decode(_)
        | TestSetting::Serve(_)
        | TestSetting::Startup => Vec::new(),
    }
}

fn of_setting(setting: &CommandSetting) -> Vec<&str> {
    let mut all = texts(&setting.command);
    all.push(&setting.result);
    all
}

/// Renders the tool of a command test for the plan; `None` for tests of other kinds.
pub(super) fn render_tool_planned(
    suite: &Suite,
    scene: &Scene,
    index: u32,
    at: (&Test, &[u16]),
) -> Option<Result<(), Vec<Blame>>> {
    /// The port that a plan assumes for templates that reckon with it.
    const PLANNED_PORT: u16 = 8000;
    let TestSetting::Command(setting) = &at.0.kind else { return None };
    let role = planned_cell_role();
    let at_moment = |moment| {
        let answers = Answers { host: "{host}".into(), port: None, url: "{url}".into() };
        let occasion = Occasion { role: &role, moment, answers };
        render_tool(suite, scene, index, at, setting, occasion).map(|_| ())
    };
    Some(at_moment(Moment::Planned).or_else(|_| at_moment(Moment::PlannedWithPort(PLANNED_PORT))))
}

/// Renders arguments and result of a tool; all errors at once.
fn render_tool(
    suite: &Suite,
    scene: &Scene,
    index: u32,
    at: (&Test, &[u16]),
    setting: &CommandSetting,
    occasion: Occasion<'_>,
) -> Result<(Vec<String>, String), Vec<Blame>> {
    let Occasion { role, moment, answers } = occasion;
    let shell = suite.settings[index as usize].engine.shell;
    let uses = scene.uses(of_setting(setting).into_iter());
    let context =
        scene.context(suite, &uses, Some(at), role, moment).map_err(|blame| vec![blame])?;
    let mut names = vec![("host".to_owned(), answers.host), ("url".to_owned(), answers.url)];
    names.extend(answers.port.map(|port| ("port".to_owned(), port)));
    let context = context.with_all(names);
    let argv = render_command(&setting.command, shell, &context)
        .map_err(|error| blame(&setting.command, "command", error));
    let result = template::render_text(&setting.result, &context)
        .map_err(|error| Blame { place: Some(at.0.place.clone()), ..Blame::new("result", error) });
    match (argv, result) {
        (Ok(argv), Ok(result)) => Ok((argv, result)),
        (Err(one), Err(other)) if one.error.message != other.error.message => Err(vec![one, other]),
        (Err(blame), _) | (_, Err(blame)) => Err(vec![blame]),
    }
}
