//! What of a suite is secret: the values of `[secrets]`, and what stands bare in its text or in the
//! environment and plainly is one.
//!
//! Names of suites, tests and cells are what results are compared by, so that nothing can be hidden in
//! them: a declared secret that is part of one is refused, what only looks like a secret is shown.

use std::collections::BTreeSet;

use crate::engine::bare::{self, Bare};
use crate::engine::redact::{Redactor, check_secret};
use crate::matrix::Plan;
use crate::suite::Problem;
use crate::suite::model::SecretSource;
use crate::suite::source::SourceMap;

use super::exit::Exit;
use super::{say, voice};

/// Launches whose rendered commands are searched for bare secrets: further ones have the same literals.
const SEARCHED: usize = 100;

/// Secrets of the environment that tokgate was started in: an engine inherits them and may print them.
pub fn of_environment() -> Vec<String> {
    let variables = std::env::vars_os();
    let text = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    bare::inherited(text)
}

/// Hides what the texts of a suite tell of secrets, before anything is said of them. Warns of those
/// that stand there bare.
pub fn of_text(source: &SourceMap) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in source.files() {
        // Whether it can be read as a suite or not: `{ env = "NAME" }` names a secret.
        voice::hide(named(&file.text).into_iter().filter(|value| check_secret("", value).is_ok()));
        for Bare { name, value, span } in bare::in_text(&file.text) {
            voice::hide([value]);
            let span = file.start + span.start..file.start + span.end;
            problems.push(warning(&name, Problem::at("bare-secret", span, "")));
        }
    }
    problems
}

/// As [`of_text`], for what comes of templates, which may have come a long way.
pub fn of_plan(plan: &Plan) -> Vec<(String, Problem)> {
    let known = voice::redactor();
    let mut said = BTreeSet::new();
    let mut problems = Vec::new();
    for launch in 0..plan.launches.len().min(SEARCHED) {
        // What can't be rendered was an error.
        let Ok(spec) = plan.preview(launch) else { continue };
        let mut found: Vec<(String, Bare)> = Vec::new();
        let mut add = |key: &str, all: Vec<Bare>| {
            found.extend(all.into_iter().map(|bare| (key.to_owned(), bare)));
        };
        if let Some(command) = &spec.command {
            add("engine.command", bare::in_arguments(&command.argv));
        }
        if let Some(command) = &spec.stop.command {
            add("engine.stop.command", bare::in_arguments(&command.argv));
        }
        add("engine.url", bare::in_text(&spec.url));
        spec.metrics_urls.iter().for_each(|url| add("engine.metrics-url", bare::in_text(url)));
        for (name, value) in &spec.env {
            add(&format!("engine.env.{name}"), bare::in_value(name, value));
        }
        for (name, value) in &spec.headers {
            add(&format!("request.headers.{name}"), bare::in_value(name, value));
        }
        for (path, content) in &spec.files {
            add(&format!("engine.file \"{}\"", path.display()), bare::in_text(content));
        }
        for (key, Bare { name, value, .. }) in found {
            // Without a trace of the part that is hidden already.
            if known.text(&value) == value && said.insert((key.clone(), name.clone())) {
                problems.push((key, warning(&name, Problem::new("bare-secret", ""))));
            }
            voice::hide([value]);
        }
    }
    problems
}

fn warning(name: &str, problem: Problem) -> Problem {
    let message = match name {
        "url" => "this url has a password or a key in it".to_owned(),
        "Bearer" | "bearer" => "a key stands here for all to read".to_owned(),
        name => format!("`{name}` is given a secret for all to read"),
    };
    let help = "put it in [secrets], such as `api_key = { env = \"API_KEY\" }`, and write \
                `{{ secret.api_key }}` here; reports hide it all the same";
    Problem { message, ..problem }.help(help).warning()
}

/// The values of environment variables that a text names as sources of secrets.
fn named(text: &str) -> Vec<String> {
    let value = |(at, _): (usize, &str)| {
        let rest = text[at + "env".len()..].trim_start().strip_prefix('=')?.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        std::env::var(rest[1..].split(quote).next()?).ok()
    };
    text.match_indices("env").filter_map(value).collect()
}

/// Names and values of the secrets of a plan; what hides them, and everything else that is secret.
///
/// # Errors
/// [`Exit::Suite`]: one is not set, is none, or is part of a name; each is said.
pub fn of_run(plan: &Plan) -> Result<(Vec<(String, String)>, Redactor), Exit> {
    let secrets = declared(plan)?;
    let values = || secrets.iter().map(|(_, value)| value.clone());
    let mut found = Ok(());
    for (name, value) in &secrets {
        if let Some(place) = part_of_name(plan, std::slice::from_ref(value)) {
            let place = place.replace(value.trim(), &format!("<{name}>"));
            say(&format!("error: the value of the secret `{name}` is part of the name {place}"));
            say("  help: names can't be hidden; rename it, or take another value");
            found = Err(Exit::Suite);
        }
    }
    found?;
    let bare = voice::redactor();
    if part_of_name(plan, bare.secrets()).is_some() {
        let shown =
            bare.secrets().iter().filter(|it| part_of_name(plan, &[(*it).clone()]).is_some());
        voice::show(&shown.cloned().collect::<Vec<_>>());
    }
    voice::hide(values());
    Ok((secrets.clone(), voice::redactor()))
}

/// The first name of a plan in which one of these values stands.
fn part_of_name(plan: &Plan, values: &[String]) -> Option<String> {
    let redactor = Redactor::new(values);
    if redactor.is_empty() {
        return None;
    }
    let suite = &plan.suite;
    let tests = suite.tests.iter().map(|test| test.name.clone());
    let launches = plan.launches.iter().map(|launch| launch.name.clone());
    let variants = suite.settings.iter().filter_map(|setting| setting.variant.clone());
    let expectations = suite.expectations.iter().filter_map(|it| it.name.clone());
    let cells = plan.cells.iter().map(|cell| plan.cell_id(cell));
    let mut names = std::iter::once(suite.name.clone())
        .chain(tests)
        .chain(launches)
        .chain(variants)
        .chain(expectations)
        .chain(cells);
    names.find(|name| redactor.text(name) != *name)
}

fn declared(plan: &Plan) -> Result<Vec<(String, String)>, Exit> {
    let mut values = Vec::new();
    let mut found = Ok(());
    // A variant can't override a secret, so that the first setting speaks for all.
    for (name, source) in plan.suite.settings.iter().take(1).flat_map(|setting| &setting.secrets) {
        let value = match source {
            SecretSource::Generate => format!("{:032x}", rand::random::<u128>()),
            SecretSource::Env(variable) => match std::env::var(variable) {
                Ok(value) if !value.is_empty() => value,
                Ok(_) | Err(std::env::VarError::NotPresent) => {
                    say(&format!(
                        "error: secret {name}: the environment variable {variable} is not set"
                    ));
                    found = Err(Exit::Suite);
                    continue;
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    say(&format!(
                        "error: secret {name}: the environment variable {variable} is no text"
                    ));
                    found = Err(Exit::Suite);
                    continue;
                }
            },
        };
        if let Err(error) = check_secret(name, &value) {
            say(&format!("error: {error}"));
            found = Err(Exit::Suite);
        }
        values.push((name.clone(), value));
    }
    found.map(|()| values)
}
