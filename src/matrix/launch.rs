//! A launch rendered: the engine's command, environment, files and addresses; setup commands and
//! requests beside it.
//!
//! The same code renders for the plan, with stand-ins for what only a run knows, and for a run. What
//! a run makes of it is said in [`super::spec`].

use std::collections::BTreeSet;
use std::path::{Component, Path};

use minijinja::Value;

use super::scene::{Blame, Moment, Role, Scene, rendered_json};
use super::spec::RenderedRequest;
use crate::engine::Kind;
use crate::suite::model::{
    CommandForm, CommandText, Engine, EngineSource, Setting, SimClock, Suite, Test,
};
use crate::template::{self, Context, TemplateError};

/// The port that a plan assumes for templates that reckon with it.
const PLANNED_PORT: u16 = 8000;

/// A launch as rendered. Cells whose launches are equal share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Rendered {
    pub(super) setting: u32,
    pub(super) host: String,
    pub(super) command: Option<Vec<String>>,
    pub(super) url: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) files: Vec<(String, String)>,
    pub(super) stop: Option<Vec<String>>,
    pub(super) metrics: Vec<String>,
}

/// The templates of an engine, setup aside.
pub(super) fn engine_templates(engine: &Engine) -> Vec<&str> {
    let mut all = vec![engine.host.as_str()];
    match &engine.source {
        EngineSource::Command(command) => all.extend(texts(command)),
        EngineSource::Url(url) => all.push(url),
        EngineSource::Sim { .. } => {}
    }
    all.extend(engine.env.iter().map(|(_, value)| value.as_str()));
    all.extend(engine.stop_command.iter().flat_map(texts));
    all.extend(engine.metrics_url.iter().flatten().map(String::as_str));
    all.extend(engine.files.iter().flat_map(|(path, content)| [path.as_str(), content.as_str()]));
    all
}

/// The templates of a command.
pub(super) fn texts(command: &CommandText) -> Vec<&str> {
    match &command.form {
        CommandForm::Line(line) => vec![line],
        CommandForm::Words(words) => words.iter().map(String::as_str).collect(),
    }
}

/// The templates of a test's requests.
pub(super) fn request_templates(test: &Test) -> Vec<&str> {
    fn walk<'a>(value: &'a serde_json::Value, all: &mut Vec<&'a str>) {
        match value {
            serde_json::Value::String(text) => all.push(text),
            serde_json::Value::Array(items) => items.iter().for_each(|item| walk(item, all)),
            serde_json::Value::Object(fields) => fields.values().for_each(|field| walk(field, all)),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            }
        }
    }
    let mut all: Vec<&str> = test.request.headers.iter().map(|(_, value)| value.as_str()).collect();
    test.request.body.values().for_each(|value| walk(value, &mut all));
    all
}

pub(super) fn render_command(
    command: &CommandText,
    shell: bool,
    context: &Context,
) -> Result<Vec<String>, TemplateError> {
    match &command.form {
        CommandForm::Line(line) if shell => {
            let line = template::render_shell(line, context)?;
            Ok(vec!["/bin/sh".to_owned(), "-c".to_owned(), line])
        }
        CommandForm::Line(line) => template::render_line(line, context),
        CommandForm::Words(words) => template::render_words(words, context),
    }
}

pub(super) fn blame(command: &CommandText, key: &str, error: TemplateError) -> Blame {
    Blame {
        span: Some(command.span.clone()),
        place: Some(command.place.clone()),
        ..Blame::new(key, error)
    }
}

/// Where an engine answers, read from a url.
pub(super) fn address(url: &str) -> Result<(String, u16), TemplateError> {
    let refused = |why: &str| {
        TemplateError::new(format!("`{url}` is no url of an engine: {why}"))
            .help("write it like \"http://127.0.0.1:8000\"")
    };
    // What a plan has in place of a secret could not stand in a url.
    let readable = match url.contains("<redacted:") {
        true => url.replace("<redacted:", "-").replace('>', "-"),
        false => url.to_owned(),
    };
    let uri: hyper::Uri = readable.parse().map_err(|_| refused("it can't be read"))?;
    let port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) | None => return Err(refused("it begins with neither http:// nor https://")),
    };
    let host = uri.host().ok_or_else(|| refused("it names no host"))?;
    Ok((host.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(port)))
}

/// A url without what follows from the API: no trailing slash, no `/v1`.
fn base_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/').to_owned()
}

/// When and where an engine is started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occasion<'a> {
    /// Identity of the launch in this run.
    pub(super) id: &'a str,
    /// Directory of the launch.
    pub(super) dir: &'a str,
    /// Before the run, or in it.
    pub(super) moment: Moment<'a>,
    /// For the simulated engine.
    pub(super) seed: u64,
}

/// Renders one launch; all errors at once.
pub(super) fn render(
    suite: &Suite,
    scene: &Scene,
    index: u32,
    uses: &BTreeSet<String>,
    at: (&Test, &[u16]),
    occasion: Occasion<'_>,
) -> Result<Rendered, Vec<Blame>> {
    let setting = &suite.settings[index as usize];
    let engine = &setting.engine;
    let Occasion { id, dir, moment, seed } = occasion;
    let role = Role::Engine { launch: id.to_owned(), dir: dir.to_owned() };
    let context = scene.context(suite, uses, Some(at), &role, moment).map_err(|b| vec![b])?;
    let mut blames = Vec::new();
    let mut note = |result: Result<String, Blame>| {
        result.unwrap_or_else(|blame| {
            blames.push(blame);
            String::new()
        })
    };
    let mut host = note(
        template::render_text(&engine.host, &context)
            .map_err(|error| Blame::new("engine.host", error)),
    );
    let port = context.root.get_attr("port").map(|port| port.to_string()).unwrap_or_default();
    let mut context = context.with("host", Value::from(host.as_str()));
    let url = match &engine.source {
        EngineSource::Url(url) => {
            let url = note(
                template::render_text(url, &context)
                    .and_then(|url| address(&url).map(|_| base_url(&url)))
                    .map_err(|error| Blame::new("engine.url", error)),
            );
            if let Ok((named, port)) = address(&url) {
                context = context.with_all([
                    ("host".to_owned(), Value::from(named.as_str())),
                    ("port".to_owned(), Value::from(port)),
                ]);
                host = named;
            }
            url
        }
        EngineSource::Command(_) | EngineSource::Sim { .. }
            if host.contains(':') && !host.starts_with('[') =>
        {
            format!("http://[{host}]:{port}")
        }
        EngineSource::Command(_) | EngineSource::Sim { .. } => format!("http://{host}:{port}"),
    };
    let env = engine
        .env
        .iter()
        .map(|(name, value)| {
            let value = template::render_text(value, &context)
                .map_err(|error| Blame::new(format!("engine.env.{name}"), error));
            (name.clone(), note(value))
        })
        .collect();
    let files = engine
        .files
        .iter()
        .map(|(path, content)| {
            let key = format!("engine.file \"{path}\"");
            let rendered = template::render_text(path, &context).and_then(inside);
            let rendered = note(rendered.map_err(|error| Blame::new(key.clone(), error)));
            let content = template::render_text(content, &context);
            (rendered, note(content.map_err(|error| Blame::new(key, error))))
        })
        .collect();
    let metrics = match &engine.metrics_url {
        Some(urls) => urls
            .iter()
            .map(|url| {
                let url = template::render_text(url, &context);
                note(url.map_err(|error| Blame::new("engine.metrics-url", error)))
            })
            .collect(),
        None => match engine.kind {
            Kind::Openai => Vec::new(),
            Kind::Vllm | Kind::Sglang | Kind::LlamaCpp | Kind::Sim => {
                vec![format!("{url}/metrics")]
            }
        },
    };
    let mut run = |command: &CommandText, key: &str| {
        render_command(command, engine.shell, &context)
            .map_err(|error| blames.push(blame(command, key, error)))
            .ok()
    };
    let command = match &engine.source {
        EngineSource::Command(command) => run(command, "engine.command"),
        EngineSource::Url(_) => None,
        EngineSource::Sim { clock: SimClock::Virtual, .. } => None,
        EngineSource::Sim { clock: SimClock::Real, profile } => {
            Some(sim_command(setting, profile.as_deref(), moment, (&host, &port), seed))
        }
    };
    let stop = engine.stop_command.as_ref().and_then(|stop| run(stop, "engine.stop.command"));
    if blames.is_empty() {
        Ok(Rendered { setting: index, host, command, url, env, files, stop, metrics })
    } else {
        Err(blames)
    }
}

/// Renders one launch for the plan: run-time values are stand-ins.
pub(super) fn render_planned(
    suite: &Suite,
    scene: &Scene,
    index: u32,
    uses: &BTreeSet<String>,
    at: (&Test, &[u16]),
) -> Result<Rendered, Vec<Blame>> {
    let at_moment = |moment| {
        let occasion = Occasion { id: "{launch.id}", dir: "{launch.dir}", moment, seed: 0 };
        render(suite, scene, index, uses, at, occasion)
    };
    at_moment(Moment::Planned).or_else(|_| at_moment(Moment::PlannedWithPort(PLANNED_PORT)))
}

/// The path of an engine file, which must stay inside the launch's directory.
fn inside(path: String) -> Result<String, TemplateError> {
    let stays = !path.is_empty()
        && Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
    if stays {
        return Ok(path);
    }
    Err(TemplateError::new(format!("`{path}` does not stay in the launch's directory"))
        .help("write a relative path without `..`; templates reach it as {{ launch.dir }}/…"))
}

fn sim_command(
    setting: &Setting,
    profile: Option<&Path>,
    moment: Moment<'_>,
    (host, port): (&str, &str),
    seed: u64,
) -> Vec<String> {
    let (executable, seed) = match moment {
        Moment::Running(runtime) => {
            (runtime.executable.to_string_lossy().into_owned(), seed.to_string())
        }
        Moment::Planned | Moment::PlannedWithPort(_) => ("tokgate".to_owned(), "{seed}".to_owned()),
    };
    let mut argv = vec![executable, "sim".to_owned()];
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    if let Some(profile) = profile {
        option("--profile", profile.to_string_lossy().into_owned());
    }
    option("--host", host.to_owned());
    option("--port", port.to_owned());
    if let Some(model) = &setting.model.name {
        option("--model", model.clone());
    }
    option("--seed", seed);
    argv
}

/// The role of a cell before the run.
pub(super) fn planned_cell_role() -> Role {
    Role::Cell {
        launch: "{launch.id}".to_owned(),
        launch_dir: "{launch.dir}".to_owned(),
        dir: "{cell.dir}".to_owned(),
    }
}

/// Renders the setup commands of one setting; all errors at once.
pub(super) fn render_setup(
    suite: &Suite,
    scene: &Scene,
    setting: u32,
    moment: Moment<'_>,
) -> Result<Vec<Vec<String>>, Vec<Blame>> {
    let engine = &suite.settings[setting as usize].engine;
    if engine.setup.is_empty() {
        return Ok(Vec::new());
    }
    let host = engine.host.as_str();
    let uses = scene.uses(engine.setup.iter().flat_map(texts).chain([host]));
    let context =
        scene.context(suite, &uses, None, &Role::Setup, moment).map_err(|blame| vec![blame])?;
    // A host that differs by cell is not known yet; a setup command has no use for it.
    let context = match template::render_text(host, &context) {
        Ok(host) => context.with("host", Value::from(host)),
        Err(_) => context,
    };
    let mut blames = Vec::new();
    let mut commands = Vec::new();
    for command in &engine.setup {
        match render_command(command, engine.shell, &context) {
            Ok(argv) => commands.push(argv),
            Err(error) => blames.push(blame(command, "engine.setup", error)),
        }
    }
    if blames.is_empty() { Ok(commands) } else { Err(blames) }
}

/// Renders headers and body of the requests at one point of a test; all errors at once.
pub(super) fn render_request(
    suite: &Suite,
    scene: &Scene,
    at: (&Test, &[u16]),
    role: &Role,
    moment: Moment<'_>,
) -> Result<RenderedRequest, Vec<Blame>> {
    let (test, _) = at;
    let headers = render_headers(suite, scene, at, role, moment);
    let uses = scene.uses(request_templates(test).into_iter());
    let body = scene.context(suite, &uses, Some(at), role, moment).and_then(|context| {
        test.request
            .body
            .iter()
            .map(|(name, value)| {
                rendered_json(value, &context).map(|value| (name.clone(), value)).map_err(|error| {
                    Blame {
                        place: Some(test.place.clone()),
                        ..Blame::new(format!("request.body.{name}"), error)
                    }
                })
            })
            .collect()
    });
    match (headers, body) {
        (Ok(headers), Ok(body)) => Ok(RenderedRequest { headers, body }),
        (Err(blame), Ok(_)) | (Ok(_), Err(blame)) => Err(vec![blame]),
        (Err(one), Err(other)) if one == other => Err(vec![one]),
        (Err(one), Err(other)) => Err(vec![one, other]),
    }
}

/// Renders the headers of the requests at one point of a test; the api key becomes `authorization`.
pub(super) fn render_headers(
    suite: &Suite,
    scene: &Scene,
    at: (&Test, &[u16]),
    role: &Role,
    moment: Moment<'_>,
) -> Result<Vec<(String, String)>, Blame> {
    let (test, _) = at;
    let mut templates: Vec<&str> =
        test.request.headers.iter().map(|(_, value)| value.as_str()).collect();
    const KEY: &str = "Bearer {{ secret.api_key }}";
    templates.push(KEY);
    let uses = scene.uses(templates.into_iter());
    let context = scene.context(suite, &uses, Some(at), role, moment)?;
    let mut headers = Vec::with_capacity(test.request.headers.len() + 1);
    for (name, value) in &test.request.headers {
        let value = template::render_text(value, &context).map_err(|error| Blame {
            place: Some(test.place.clone()),
            ..Blame::new(format!("request.headers.{name}"), error)
        })?;
        headers.push((name.to_ascii_lowercase(), value));
    }
    let keyed = scene.has_secret("api_key");
    if keyed && headers.iter().all(|(name, _)| name != "authorization") {
        let value = template::render_text(KEY, &context)
            .map_err(|error| Blame::new("secrets.api_key", error))?;
        headers.push(("authorization".to_owned(), value));
    }
    Ok(headers)
}
