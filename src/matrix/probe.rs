//! `hardware.probe` rendered: the command that tells what GPUs there are where the engine runs.
//!
//! It sees what a suite declares and nothing of the run, which has not begun. It starts nothing.

use super::launch::{blame, render_command, texts};
use super::scene::{Blame, Moment, Role, Scene};
use super::spec::{Runtime, first};
use super::{Plan, Trouble};
use crate::engine::Command;
use crate::suite::model::{CommandText, Suite};
use crate::template::TemplateError;

impl Plan {
    /// What `hardware.probe` runs for a launch, with the values of a run; `None` where the suite has none.
    ///
    /// # Errors
    /// A template that can't be rendered: a secret or an environment variable that is not set.
    pub fn hardware_probe(
        &self,
        launch: usize,
        runtime: &Runtime,
    ) -> Result<Option<Command>, TemplateError> {
        let Some(command) = &self.suite.hardware_probe else { return Ok(None) };
        let setting = self.launches[launch].setting;
        let scene = &self.scenes[setting as usize];
        let argv = render(&self.suite, scene, setting, command, Moment::Running(runtime));
        argv.map(|argv| Some(Command { argv })).map_err(|blame| first(vec![blame]))
    }
}

/// What can't be rendered of it, in any setting.
pub(super) fn troubles(suite: &Suite, scenes: &[Scene]) -> Vec<Trouble> {
    let Some(command) = &suite.hardware_probe else { return Vec::new() };
    let mut troubles: Vec<Trouble> = Vec::new();
    for (index, scene) in (0u32..).zip(scenes) {
        if let Err(blame) = render(suite, scene, index, command, Moment::Planned) {
            let trouble = super::expand::template_trouble(blame);
            if !troubles.contains(&trouble) {
                troubles.push(trouble);
            }
        }
    }
    troubles
}

/// Rendered as the commands of a setting are: by a shell where its engine's are.
fn render(
    suite: &Suite,
    scene: &Scene,
    setting: u32,
    command: &CommandText,
    moment: Moment<'_>,
) -> Result<Vec<String>, Blame> {
    let shell = suite.settings[setting as usize].engine.shell;
    let uses = scene.uses(texts(command).into_iter());
    let context = scene.context(suite, &uses, None, &Role::Probe, moment)?;
    render_command(command, shell, &context).map_err(|error| blame(command, KEY, error))
}

/// The key of the suite.
pub(super) const KEY: &str = "hardware.probe";
