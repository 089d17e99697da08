//! `[engine]`, `[model]`, `[vars]` and `[secrets]`: what a variant settles.

use std::ops::Range;
use std::path::PathBuf;

use super::Checker;
use crate::engine::{Kind, ReadySpec};
use crate::suite::defaults;
use crate::suite::file::{At, CommandValue, EngineTable, Entries, File, ModelTable, SecretTable};
use crate::suite::model::{
    CommandForm, CommandText, Engine, EngineSource, Model, SecretSource, Setting, Spans,
};
use crate::suite::problem::Problem;

impl Checker<'_> {
    /// What one variant settles; `None` where its engine can't be told.
    pub(super) fn setting(
        &mut self,
        variant: Option<String>,
        file: &File,
        hardware_gpus: Option<u32>,
        top: Range<usize>,
    ) -> Option<Setting> {
        let mut spans = Spans::default();
        let model = self.model(file.model.as_ref());
        let vars = self.vars(&file.vars, &mut spans);
        let secrets = self.secrets(&file.secrets, &mut spans);
        let Some(table) = &file.engine else {
            self.missing(
                "engine",
                top,
                "`[engine]` is missing",
                "say what serves the model:\n[engine]\nkind = \"sim\"",
            );
            return None;
        };
        let engine = self.engine(table, hardware_gpus, &mut spans)?;
        let place = self.place(&table.span);
        Some(Setting { variant, model, engine, vars, secrets, place, spans })
    }

    fn model(&mut self, table: Option<&At<ModelTable>>) -> Model {
        let Some(table) = table else { return Model::default() };
        let mut text = |at: &Option<At<String>>| {
            let at = at.as_ref()?;
            (!self.not_a_template(&at.value, &at.span)).then(|| at.value.clone())
        };
        Model {
            name: text(&table.value.name),
            revision: text(&table.value.revision),
            quantization: text(&table.value.quantization),
        }
    }

    fn vars(
        &mut self,
        vars: &Entries<At<serde_json::Value>>,
        spans: &mut Spans,
    ) -> Vec<(String, serde_json::Value)> {
        let mut out = Vec::new();
        for (name, value) in &vars.0 {
            if self.word(name, "the name of a var") {
                spans.0.insert(format!("vars.{}", name.value), value.span.clone());
                out.push((name.value.clone(), value.value.clone()));
            }
        }
        out
    }

    fn secrets(
        &mut self,
        secrets: &Entries<At<SecretTable>>,
        spans: &mut Spans,
    ) -> Vec<(String, SecretSource)> {
        const HELP: &str = "write { generate = true }, or { env = \"NAME\" }";
        let mut out = Vec::new();
        for (name, table) in &secrets.0 {
            if !self.word(name, "the name of a secret") {
                continue;
            }
            spans.0.insert(format!("secrets.{}", name.value), table.span.clone());
            let generate = table.value.generate.as_ref();
            let source = match (generate, &table.value.env) {
                (None, Some(env)) => {
                    self.environment(name, env);
                    SecretSource::Env(env.value.clone())
                }
                (Some(At { value: true, .. }), None) => SecretSource::Generate,
                (Some(_), Some(env)) => {
                    self.say(
                        Problem::at(
                            "secret",
                            env.span.clone(),
                            format!("the secret `{}` has two sources", name.value),
                        )
                        .help(HELP),
                    );
                    continue;
                }
                (Some(At { value: false, span }), None) => {
                    self.say(
                        Problem::at(
                            "secret",
                            span.clone(),
                            format!("the secret `{}` has no source", name.value),
                        )
                        .help(HELP),
                    );
                    continue;
                }
                (None, None) => {
                    if !self.known.lost.contains("env") && !self.known.lost.contains("generate") {
                        let message = format!("the secret `{}` has no source", name.value);
                        self.say(Problem::at("secret", table.span.clone(), message).help(HELP));
                    }
                    continue;
                }
            };
            out.push((name.value.clone(), source));
        }
        out
    }

    fn environment(&mut self, name: &At<String>, env: &At<String>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if env.value.is_empty() || !env.value.chars().all(plain) {
            self.say(
                Problem::at(
                    "secret",
                    env.span.clone(),
                    format!("`{}` is not the name of an environment variable", env.value),
                )
                .help("write the name alone, like \"HF_TOKEN\""),
            );
        } else if !(self.known.env)(&env.value) {
            self.say(
                Problem::at(
                    "unset-variable",
                    env.span.clone(),
                    format!(
                        "the environment variable `{}` of the secret `{}` is not set",
                        env.value, name.value
                    ),
                )
                .help("a run ends with exit code 20 until it is set")
                .warning(),
            );
        }
    }

    fn engine(
        &mut self,
        table: &At<EngineTable>,
        hardware_gpus: Option<u32>,
        spans: &mut Spans,
    ) -> Option<Engine> {
        let engine = &table.value;
        spans.0.insert("engine".to_owned(), table.span.clone());
        if let Some(urls) = &engine.metrics_url {
            spans.0.insert("engine.metrics-url".to_owned(), urls.span.clone());
        }
        let version = self.version(engine.version.as_ref());
        let Some(kind) = &engine.kind else {
            self.missing(
                "kind",
                table.span.clone(),
                "`[engine]` has no `kind`",
                "write one of vllm, sglang, llama-cpp, openai or sim, like `kind = \"vllm\"`",
            );
            return None;
        };
        let source = self.engine_source(table, kind, spans);
        let mut text = |key: &str, at: &At<String>| {
            spans.0.insert(format!("engine.{key}"), at.span.clone());
            at.value.clone()
        };
        let host =
            engine.host.as_ref().map_or_else(|| defaults::HOST.to_owned(), |at| text("host", at));
        let env = (engine.env.0.iter())
            .map(|(name, at)| (name.value.clone(), text(&format!("env.{}", name.value), at)))
            .collect();
        let urls = engine.metrics_url.as_ref().map(|at| at.texts()).unwrap_or_default();
        let metrics_url: Vec<String> = urls
            .iter()
            .enumerate()
            .map(|(at, url)| text(&format!("metrics-url.{at}"), url))
            .collect();
        let mut files = Vec::new();
        for (at, file) in engine.file.iter().enumerate() {
            match (&file.value.path, &file.value.content) {
                (Some(path), Some(content)) => {
                    let pair = (
                        text(&format!("file.{at}.path"), path),
                        text(&format!("file.{at}.content"), content),
                    );
                    // Messages about a file name it by its path.
                    text(&format!("file \"{}\"", path.value), content);
                    files.push(pair);
                }
                (path, _) => {
                    let key = if path.is_none() { "path" } else { "content" };
                    self.missing(
                        key,
                        file.span.clone(),
                        &format!("`[[engine.file]]` has no `{key}`"),
                        "write `path = \"engine.yaml\"` and `content = \"…\"`",
                    );
                }
            }
        }
        for url in &urls {
            self.http(url);
        }
        for path in engine.file.iter().filter_map(|file| file.value.path.as_ref()) {
            self.path_below(path);
        }
        for (name, _) in &engine.env.0 {
            if name.value.is_empty() || name.value.contains(['=', ' ', '\0']) {
                self.say(
                    Problem::at(
                        "bad-name",
                        name.span.clone(),
                        format!("`{}` can't be the name of an environment variable", name.value),
                    )
                    .help("use letters, digits and `_`"),
                );
            }
        }
        let setup = (engine.setup.iter().enumerate())
            .filter_map(|(at, command)| self.command(&format!("engine.setup.{at}"), command, spans))
            .collect();
        let (ready, stop) = (engine.ready.as_ref(), engine.stop.as_ref());
        Some(Engine {
            kind: kind.value,
            version,
            gpus: engine.gpus.as_ref().map(|at| at.value.0).or(hardware_gpus),
            host,
            port: engine.port.as_ref().map(|at| at.value),
            env,
            setup,
            setup_timeout: self.duration(engine.setup_timeout.as_ref(), defaults::SETUP),
            ready: ReadySpec {
                timeout: self
                    .duration(ready.and_then(|at| at.value.timeout.as_ref()), defaults::READY),
                models: ready.and_then(|at| at.value.models.as_ref()).is_none_or(|at| at.value),
                completion: ready
                    .and_then(|at| at.value.completion.as_ref())
                    .is_none_or(|at| at.value),
            },
            stop_grace: self.duration(stop.and_then(|at| at.value.grace.as_ref()), defaults::GRACE),
            stop_command: stop
                .and_then(|at| at.value.command.as_ref())
                .and_then(|command| self.command("engine.stop.command", command, spans)),
            metrics_url: engine.metrics_url.is_some().then_some(metrics_url),
            log_must_contain: engine.log_must_contain.iter().map(|at| at.value.clone()).collect(),
            shell: engine.shell.as_ref().is_some_and(|at| at.value),
            files,
            source: source?,
        })
    }

    /// What is started, or where it runs.
    fn engine_source(
        &mut self,
        table: &At<EngineTable>,
        kind: &At<Kind>,
        spans: &mut Spans,
    ) -> Option<EngineSource> {
        let engine = &table.value;
        let sim = kind.value == Kind::Sim;
        if !sim {
            let only = [
                ("profile", engine.profile.as_ref().map(|at| &at.span)),
                ("clock", engine.clock.as_ref().map(|at| &at.span)),
            ];
            for (key, span) in only {
                if let Some(span) = span {
                    self.say(
                        Problem::at(
                            "engine-source",
                            span.clone(),
                            format!("only the simulated engine has `{key}`"),
                        )
                        .help("leave it out, or write `kind = \"sim\"`"),
                    );
                }
            }
        }
        match (&engine.command, &engine.url) {
            (Some(command), Some(url)) => {
                self.say(
                    Problem::at("engine-source", url.span.clone(), "`[engine]` has both a command and a url")
                        .also(command.span.clone(), "the command")
                        .help("keep `command` for an engine to be started, `url` for one that already runs"),
                );
                None
            }
            (Some(command), None) if sim => {
                self.say(
                    Problem::at(
                        "engine-source",
                        command.span.clone(),
                        "the simulated engine brings its own command",
                    )
                    .help("leave `command` out; `profile` says what is simulated"),
                );
                None
            }
            (Some(command), None) => {
                self.command("engine.command", command, spans).map(EngineSource::Command)
            }
            (None, Some(url)) => {
                self.ignored_with_url(engine, url);
                spans.0.insert("engine.url".to_owned(), url.span.clone());
                self.http(url).then(|| {
                    let trimmed = url.value.trim().trim_end_matches('/');
                    EngineSource::Url(trimmed.strip_suffix("/v1").unwrap_or(trimmed).to_owned())
                })
            }
            (None, None) if sim => Some(EngineSource::Sim {
                profile: engine.profile.as_ref().and_then(|at| self.sim_profile(at)),
                clock: engine.clock.as_ref().map(|at| at.value).unwrap_or_default(),
            }),
            (None, None) => {
                if !self.known.lost.contains("url") {
                    self.missing(
                        "command",
                        table.span.clone(),
                        "`[engine]` has neither a command nor a url",
                        "write `command = \"…\"` for an engine to be started, or `url = \"http://host:8000\"` for one that already runs",
                    );
                }
                None
            }
        }
    }

    /// What is only of use for an engine that is started here.
    fn ignored_with_url(&mut self, engine: &EngineTable, url: &At<String>) {
        // `run --url` overrides the command of a suite that has all of these, rightly.
        if self.source.file(url.span.start).is_some_and(|file| file.name == "--url") {
            return;
        }
        let first = |at: Option<&At<CommandValue>>| at.map(|at| at.span.clone());
        let written = [
            ("host", engine.host.as_ref().map(|at| at.span.clone())),
            ("port", engine.port.as_ref().map(|at| at.span.clone())),
            ("env", engine.env.0.first().map(|(name, _)| name.span.clone())),
            ("setup", first(engine.setup.first())),
            ("stop", engine.stop.as_ref().map(|at| at.span.clone())),
            ("shell", engine.shell.as_ref().map(|at| at.span.clone())),
            ("log-must-contain", engine.log_must_contain.first().map(|at| at.span.clone())),
            ("file", engine.file.first().map(|at| at.span.clone())),
        ];
        for (key, span) in written {
            if let Some(span) = span {
                self.say(
                    Problem::at("no-effect", span, format!("`{key}` has no effect with a url"))
                        .also(url.span.clone(), "the engine already runs")
                        .help("leave it out")
                        .warning(),
                );
            }
        }
    }

    /// Whether a url is one that the load client can reach.
    fn http(&mut self, url: &At<String>) -> bool {
        let text = url.value.trim();
        let problem = |message: String| Problem::at("url", url.span.clone(), message);
        if text.starts_with("{{") {
            return true;
        }
        if let Some(rest) = text.strip_prefix("https://") {
            self.say(problem("https is not supported: load goes over plain http".to_owned()).help(
                format!(
                    "write \"http://{rest}\", or put a plain-http proxy in front of the engine"
                ),
            ));
            return false;
        }
        let Some(rest) = text.strip_prefix("http://") else {
            let help = match text.split_once("://") {
                Some((_, rest)) => format!("write \"http://{rest}\""),
                None => format!("write \"http://{text}\""),
            };
            self.say(problem(format!("`{text}` is not an http url")).help(help));
            return false;
        };
        if rest.is_empty()
            || rest.starts_with('/')
            || text.contains([' ', '?', '#']) && !text.contains("{{")
        {
            self.say(
                problem(format!("`{text}` is not a base url"))
                    .help("write scheme, host and port, like \"http://localhost:8000\""),
            );
            return false;
        }
        true
    }

    /// A file of the engine may not leave its directory.
    fn path_below(&mut self, path: &At<String>) {
        let parts = std::path::Path::new(&path.value).components();
        let inside = parts.clone().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !inside || path.value.is_empty() {
            self.say(
                Problem::at("engine-file", path.span.clone(), format!("`{}` leaves the launch directory", path.value))
                    .help("write a path below it, like \"engine.yaml\"; `{{ launch.dir }}` is where it will stand"),
            );
        }
    }

    fn sim_profile(&mut self, at: &At<String>) -> Option<PathBuf> {
        let folder = self.source.file(at.span.start).and_then(|file| file.folder.clone());
        let path = folder.unwrap_or_default().join(&at.value);
        if !(self.known.exists)(&path) {
            self.say(
                Problem::at(
                    "missing-file",
                    at.span.clone(),
                    format!("there is no profile `{}`", path.display()),
                )
                .help("the path counts from the folder of the file that names it, one of --set from here"),
            );
        }
        Some(path)
    }

    /// A command as written.
    pub(super) fn command(
        &mut self,
        key: &str,
        at: &At<CommandValue>,
        spans: &mut Spans,
    ) -> Option<CommandText> {
        spans.0.insert(key.to_owned(), at.span.clone());
        let form = match &at.value {
            CommandValue::Line(line) => CommandForm::Line(line.clone()),
            CommandValue::Words(words) => {
                for (index, word) in words.iter().enumerate() {
                    spans.0.insert(format!("{key}.{index}"), word.span.clone());
                }
                CommandForm::Words(words.iter().map(|word| word.value.clone()).collect())
            }
        };
        let empty = match &form {
            CommandForm::Line(line) => line.trim().is_empty(),
            CommandForm::Words(words) => words.first().is_none_or(|word| word.trim().is_empty()),
        };
        if empty {
            self.say(
                Problem::at("engine-source", at.span.clone(), "a command that starts nothing")
                    .help("write the program and its arguments"),
            );
            return None;
        }
        Some(CommandText { form, place: self.place(&at.span), span: at.span.clone() })
    }
}
