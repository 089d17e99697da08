//! `tokgate try`: an endpoint or a command without a suite. The engine is asked what it is, sizes that fit it
//! become a suite, and that runs as any suite does.
//!
//! An engine that a command starts is asked and measured in one life: loading a model may take minutes.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::engine::LaunchSpec;
use crate::engine::launch::{self, LaunchError, Running};
use crate::engine::redact::Redactor;
use crate::engine::remote::Remote;
use crate::engine::supervise as process;
use crate::hardware;
use crate::matrix::{Plan, Runtime};
use crate::quantity::print_number;
use crate::report::{json, sanitise, screen};
use crate::run::{Cause, Given, Halt, Halter, Parent};
use crate::suite::model::TimeLimit;
use crate::transport::Transport;
use crate::trial::floors::Floors;
use crate::trial::pace::{self, Pace};
use crate::trial::portrait::{self, Approach, Portrait, Refusal};
use crate::trial::script::{self, Machine, Script};
use crate::trial::sizes::Sizes;
use crate::trial::source::{Source, Start};

use super::annotate::Annotations;
use super::directory::{Directory, shown};
use super::exit::Exit;
use super::limit::Limits;
use super::offer::{self, Offer};
use super::preflight;
use super::run::Up;
use super::shape::{self, Choice, Overlay};
use super::shard::Sharding;
use super::share::Shares;
use super::{Global, hindrance, resume, run, say, secrecy};

/// The name of a trial's suite, and the last part of its directory.
const NAME: &str = "try";
/// The trial's suite, in its output directory.
const SUITE: &str = "suite.toml";
/// How often a start that takes long is told.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// How long the end of an engine is waited for that is not measured after all.
const HURRY: Duration = Duration::from_secs(3);
/// How long that of one whose start was cut short is, its supervisor's own grace included.
const ENDING: Duration = Duration::from_secs(6);

/// Arguments of `tokgate try`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The engine runs here already: http://127.0.0.1:8000
    #[arg(value_name = "URL", conflicts_with = "command")]
    endpoint: Option<String>,
    /// The same
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "endpoint"])]
    url: Option<String>,
    /// The model to ask for [default: the first that the engine lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The environment variable with the engine's api key
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
    /// About how many minutes it may take
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = minutes)]
    minutes: f64,
    /// Write a suite with what was seen as limits to FILE; on a terminal it is offered
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Write results to DIR [default: tokgate-out/try]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the prompts [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// What starts the engine, behind `--`: llama-server -m model.gguf --port 8000
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "write a number of minutes, like 2".to_owned())?;
    if (0.05..=24.0 * 60.0).contains(&number) {
        Ok(number)
    } else {
        Err("write minutes from 0.05 to 1440".to_owned())
    }
}

/// Tries an engine.
pub fn run(args: &Args, global: &Global) -> Exit {
    match attempt(args, global) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn attempt(args: &Args, global: &Global) -> Result<Exit, Exit> {
    let parent = Parent::now();
    let source = source(args)?;
    if let Some(path) = &args.write {
        offer::must_be_new(path)?;
    }
    key_is_set(args)?;
    let mut shares = Shares::begin(Limits::begin(None, None), parent);
    let machine = hardware::probe();
    let out = args.out.clone().unwrap_or_else(|| Path::new("tokgate-out").join(NAME));
    let directory = Directory::open(&out, "tokgate try").map_err(|error| {
        hindrance::unopened(&error, &out, "nothing was launched");
        Exit::Unwritten
    })?;
    match directory.clear() {
        Ok(Some(previous)) if !global.quiet => {
            resume::farewell(&previous, &shown(&previous)).iter().for_each(|line| say(line));
        }
        Ok(_) => {}
        Err(error) => {
            hindrance::unmoved(&error, &directory, "nothing was launched");
            return Err(Exit::Unwritten);
        }
    }
    let suite = out.join(SUITE);
    let (asked, up) = {
        let least = Sizes::least();
        let first = Script {
            name: NAME,
            source: &source,
            kind: crate::engine::Kind::Openai,
            model: args.model.as_deref(),
            key_env: args.api_key_env.as_deref(),
            chat: false,
            sizes: &least,
        };
        store(&suite, &first.trial())?;
        let plan =
            shape::plan(&suite, &Overlay::default(), &Choice::default(), global.color_stderr())?;
        if plan.warnings.list.iter().any(|problem| problem.code == "bare-secret") {
            // It would stand in the suite that is written.
            let _ = std::fs::remove_file(&suite);
            say(
                "error: the command or the url holds what looks like a secret, and a suite is for all to read",
            );
            say(
                "  help: put it into an environment variable, name that with --api-key-env NAME, and write '{{ secret.api_key }}' in its place",
            );
            return Err(Exit::Suite);
        }
        let (secrets, redactor) = secrecy::of_run(&plan.plan)?;
        let halter = Halter::default();
        shares.signals.tell(&halter);
        let asking = Asking {
            plan: &plan.plan,
            secrets,
            redactor: &redactor,
            model: args.model.as_deref(),
            out: directory.path.clone(),
            budget: args.minutes * 60.0,
            quiet: global.quiet,
        };
        asking.ask(&halter).inspect_err(|_| {
            let hints = preflight::hints(&plan.plan, &machine);
            hints.iter().for_each(|hint| say(&format!("  – {hint}")));
        })?
    };
    let Asked { portrait, pace, seconds, .. } = asked;
    // What was spent on asking is part of the time, but not the engine's start.
    let left = (args.minutes * 60.0 - seconds).max(args.minutes * 30.0);
    let sizes = Sizes::choose(&portrait, &pace, left);
    if !global.quiet {
        tell(&portrait, &pace, &sizes);
    }
    let model = args.model.clone().unwrap_or_else(|| portrait.facts.model.clone());
    let script = Script {
        name: NAME,
        source: &source,
        kind: portrait.kind,
        model: Some(&model),
        key_env: args.api_key_env.as_deref(),
        chat: portrait.chat,
        sizes: &sizes,
    };
    let of_run = of_run(args, &suite);
    let prepared = store(&suite, &script.trial())
        .and_then(|()| run::prepare(&suite, &of_run, global, &machine, false));
    let ready = match prepared {
        Ok(ready) => ready,
        Err(exit) => {
            up.into_iter().for_each(end);
            return Err(exit);
        }
    };
    // A bound for an engine that becomes far slower than it was, and may have to be started again.
    let ready_time = up.as_ref().map_or(Duration::ZERO, |up| up.given.running.ready_time);
    let bound = 2.0 * args.minutes * 60.0 + 2.0 * ready_time.as_secs_f64() + 30.0;
    let limit = TimeLimit::After(Duration::from_secs_f64(bound));
    shares.limits = Limits::begin(Some(limit), None);
    let with = (&mut shares, up);
    let exit = run::carry_out_in(directory, &ready, &of_run, global, with);
    if let Some(signal) = shares.signals.first() {
        return Err(exit.or(Exit::Signal(signal)));
    }
    let record = json::read(&out.join("record.json")).map_err(|error| {
        say(&format!("error: {error}"));
        exit.or(Exit::Unwritten)
    })?;
    let floors = Floors::of(&record, shares_its_cores(&source, &machine));
    let gpu = machine.gpus.first().filter(|_| matches!(source, Source::Command(_)));
    let offer = Offer {
        script,
        floors: &floors,
        machine: gpu.map(|gpu| Machine { gpu: &gpu.name, count: machine.gpus.len() }),
        signals: &shares.signals,
    };
    Ok(exit.or(offer.make(args.write.as_deref(), global)))
}

/// What is to be tried.
fn source(args: &Args) -> Result<Source, Exit> {
    let refuse = |message: &str, help: &str| {
        say(&format!("error: {message}"));
        say(&format!("  help: {help}"));
        Exit::Suite
    };
    match args.url.as_ref().or(args.endpoint.as_ref()) {
        Some(url) if url.starts_with("https://") => Err(refuse(
            &format!("`{url}` can't be used"),
            "TLS is not spoken here; give the engine's plain http url",
        )),
        Some(url) if !url.starts_with("http://") => {
            let why = match url.contains([':', '.']) || url == "localhost" {
                true => format!("write one that begins with http://: --url http://{url}"),
                false => format!(
                    "write one that begins with http://, like http://127.0.0.1:8000; a command stands \
                     behind `--`: tokgate try -- {url} … --port 8000"
                ),
            };
            Err(refuse(&format!("`{url}` is no url"), &why))
        }
        Some(url) => Ok(Source::Url(url.clone())),
        None if args.command.is_empty() => Err(refuse(
            "there is no engine to try",
            "write --url http://127.0.0.1:8000 for one that runs, or `-- COMMAND` for one to be started: \
             tokgate try -- llama-server -m model.gguf --port 8000",
        )),
        None => Start::read(&args.command)
            .map(Source::Command)
            .map_err(|wrong| refuse(&wrong.message, &wrong.help)),
    }
}

fn key_is_set(args: &Args) -> Result<(), Exit> {
    let Some(name) = &args.api_key_env else { return Ok(()) };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        say("error: --api-key-env takes the name of an environment variable, not the key");
        say("  help: export API_KEY=…, then --api-key-env API_KEY");
        return Err(Exit::Suite);
    }
    if std::env::var_os(name).is_none_or(|value| value.is_empty()) {
        say(&format!("error: the environment variable {name} is not set"));
        say(&format!("  help: put the engine's api key there: export {name}=…"));
        return Err(Exit::Suite);
    }
    Ok(())
}

fn store(path: &Path, text: &str) -> Result<(), Exit> {
    std::fs::write(path, text).map_err(|error| {
        say(&format!("error: {} can't be written: {error}", path.display()));
        Exit::Unwritten
    })
}

/// Whether the engine has no machine of its own: it runs here, and on no GPU.
fn shares_its_cores(source: &Source, machine: &hardware::Facts) -> bool {
    let here = match source {
        Source::Command(_) => true,
        Source::Url(url) => ["//127.", "//localhost", "//[::1]"].iter().any(|it| url.contains(it)),
    };
    here && machine.gpus.is_empty()
}

fn of_run(args: &Args, suite: &Path) -> run::Args {
    run::Args {
        calibration: None,
        suites: vec![suite.to_owned()],
        choice: Choice::default(),
        overlay: Overlay::default(),
        sharding: Sharding::default(),
        seed: args.seed,
        out: args.out.clone(),
        resume: None,
        junit: Default::default(),
        annotations: Annotations::None,
        deny_warnings: false,
        fail_fast: false,
        max_fail: None,
        time_limit: None,
    }
}

/// Says what was found out, and what comes of it.
fn tell(portrait: &Portrait, pace: &Pace, sizes: &Sizes) {
    let facts = &portrait.facts;
    let count = |n: u64| print_number(n as f64, 0);
    let mut words = vec![script::name(portrait.kind).to_owned()];
    words.extend(facts.version.clone());
    let mut known = vec![words.join(" "), facts.model.clone()];
    known.extend(facts.max_model_len.map(|n| format!("requests of up to {} tokens", count(n))));
    known.extend(facts.kv_capacity.map(|n| format!("KV cache of {} tokens", count(n))));
    known.extend(facts.slots.map(|n| format!("{n} at once")));
    if portrait.chat {
        known.push("no /v1/completions, so that the chat API is measured".to_owned());
    }
    say(&format!("found: {}", known.join(", ")));
    say(&format!(
        "about {} prompt tok/s and {} tok/s of one stream; {} cells, about {}",
        print_number(pace.prefill, 0),
        print_number(pace.decode, 0),
        sizes.cells(),
        crate::report::count::elapsed(sizes.seconds)
    ));
}

/// What asking came to.
struct Asked {
    portrait: Portrait,
    pace: Pace,
    /// The way to ask it further.
    remote: Remote,
    /// How long it took to its first token.
    first: Duration,
    /// Seconds that it took, without the engine's start.
    seconds: f64,
}

/// Everything that asking an engine needs.
struct Asking<'a> {
    /// Of a suite that names the engine.
    plan: &'a Plan,
    secrets: Vec<(String, String)>,
    redactor: &'a Redactor,
    model: Option<&'a str>,
    /// The output directory, where the engine's log goes.
    out: PathBuf,
    /// Seconds that the whole trial has.
    budget: f64,
    quiet: bool,
}

impl Asking<'_> {
    /// Starts the engine where there is a command, and asks it. What was started is up then.
    fn ask(&self, halter: &Halter) -> Result<(Asked, Option<Up>), Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            say(&format!("error: no runtime: {error}"));
            Exit::Engine
        })?;
        let (asked, given) = runtime.block_on(async {
            let mut halt = halter.waiter();
            let spec = self.spec(None)?;
            let mut running = match spec.command {
                Some(_) => match self.start(&mut halt).await {
                    Ok(started) => Some(started),
                    Err(exit) => {
                        // Where the start was cut short its supervisor is ending it.
                        process::all_gone(ENDING).await;
                        return Err(exit);
                    }
                },
                None => None,
            };
            let asked = match &mut running {
                Some((running, spec)) => {
                    let portraying = portray(spec, self.model, self.budget);
                    tokio::select! {
                        biased;
                        cause = halt.wait() => Err(halted(cause)),
                        exit = running.died() => {
                            say(&format!("error: the engine ended while it was asked: {exit}"));
                            running.log_tail().iter().for_each(|line| say(&format!("  | {line}")));
                            Err(Exit::Engine)
                        }
                        asked = portraying => asked.map_err(|it| refused(&it)),
                    }
                }
                None => tokio::select! {
                    biased;
                    cause = halt.wait() => Err(halted(cause)),
                    asked = portray(&spec, self.model, self.budget) => asked.map_err(|it| refused(&it)),
                },
            };
            let asked = match (asked, &mut running) {
                (Ok(asked), _) => asked,
                (Err(exit), Some((running, spec))) => {
                    stop(running, spec.stop.grace).await;
                    return Err(exit);
                }
                (Err(exit), None) => return Err(exit),
            };
            let given = running.map(|(mut running, spec)| {
                // It is known by now which engine it is, and it has made its first token.
                running.facts = asked.portrait.facts.clone();
                running.remote = asked.remote.clone();
                running.ready_time += asked.first;
                Given { running, port: spec.port }
            });
            Ok((asked, given))
        })?;
        Ok((asked, given.map(|given| Up { runtime, given })))
    }

    fn spec(&self, port: Option<u16>) -> Result<LaunchSpec, Exit> {
        let runtime = Runtime {
            port: port.unwrap_or(1),
            secrets: self.secrets.clone(),
            run_id: NAME.to_owned(),
            run_dir: self.out.clone(),
            out_dir: self.out.clone(),
            session: 0,
            round: 0,
            launch_ordinal: 0,
            executable: std::env::current_exe().unwrap_or_else(|_| "tokgate".into()),
            seed: 0,
        };
        let mut spec = self.plan.launch_spec(0, &runtime).map_err(|error| {
            say(&format!("error: {error}"));
            Exit::Suite
        })?;
        // Which model, and whether it makes a token, is asked of every engine alike.
        spec.model = None;
        spec.ready.completion = false;
        Ok(spec)
    }

    async fn start(&self, halt: &mut Halt) -> Result<(Running, LaunchSpec), Exit> {
        let engine = &self.plan.suite.settings[0].engine;
        for attempt in 0.. {
            let port = engine.port.map_or_else(|| launch::free_port(&engine.host), Ok);
            let port = port.map_err(|error| {
                say(&format!("error: no free port: {error}"));
                Exit::Engine
            })?;
            let spec = self.spec(Some(port))?;
            if let (false, Some(command)) = (self.quiet, &spec.command) {
                let line = shell_words::join(&command.argv);
                say(&format!("starting the engine: {line}"));
                say(&format!("  its log: {}", shown(&spec.log).display()));
            }
            let clock = Clock::start();
            let mut step = String::new();
            let mut on_step = |name: &str| name.clone_into(&mut step);
            let began = Instant::now();
            let launched = {
                let launching =
                    launch::launch(&spec, &Transport::Tcp, &clock, self.redactor, &mut on_step);
                tokio::pin!(launching);
                loop {
                    tokio::select! {
                        biased;
                        launched = &mut launching => break launched,
                        cause = halt.wait() => return Err(halted(cause)),
                        () = tokio::time::sleep(SIGN_OF_LIFE) => if !self.quiet {
                            let said = last_words(&spec.log);
                            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                            say(&format!("still starting, {} s{said}", began.elapsed().as_secs()));
                        },
                    }
                }
            };
            match launched {
                Ok(running) => return Ok((running, spec)),
                Err(error) if error.address_in_use && engine.port.is_none() && attempt == 0 => {}
                Err(error) => return Err(unlaunched(&error, &spec)),
            }
        }
        Err(Exit::Engine)
    }
}

/// The last line of an engine's log, as much of it as says how far it is.
fn last_words(log: &Path) -> Option<String> {
    const END: u64 = 4096;
    const COLUMNS: usize = 60;
    let mut file = std::fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END))).ok()?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end).ok()?;
    // A bar that is redrawn in place is one line, of which the last state counts.
    let end = String::from_utf8_lossy(&end).into_owned();
    let last = end.rsplit(['\n', '\r']).map(sanitise::line).find(|it| !it.trim().is_empty())?;
    Some(screen::cut(last.trim(), COLUMNS))
}

async fn portray(spec: &LaunchSpec, model: Option<&str>, budget: f64) -> Result<Asked, Refusal> {
    let began = Instant::now();
    let approach = Approach {
        url: &spec.url,
        headers: &spec.headers,
        model,
        patience: Duration::from_secs_f64(budget.max(10.0)),
    };
    let (portrait, remote) = portrait::take(&approach).await?;
    let first = began.elapsed();
    let pace = pace::take(&remote, &portrait, budget).await?;
    Ok(Asked { portrait, pace, remote, first, seconds: began.elapsed().as_secs_f64() })
}

/// Ends an engine that is not measured after all.
fn end(up: Up) {
    let Up { runtime, given: Given { mut running, .. } } = up;
    runtime.block_on(stop(&mut running, HURRY));
}

async fn stop(running: &mut Running, grace: Duration) {
    for survivor in running.stop(grace.min(HURRY)).await.survivors {
        say(&format!("warning: still there: {survivor}"));
    }
}

fn halted(cause: Cause) -> Exit {
    match cause {
        Cause::Signal(number) => Exit::Signal(number),
        Cause::Orphaned => Exit::Signal(rustix::process::Signal::HUP.as_raw()),
        Cause::TimeLimit | Cause::TimeUp(_) => Exit::TimeLimit,
        Cause::MaxFail | Cause::Unwritable | Cause::Broken => Exit::Engine,
    }
}

fn refused(refusal: &Refusal) -> Exit {
    say(&format!("error: {refusal}"));
    say(&format!("  help: {}", refusal.help()));
    match refusal {
        Refusal::Url(_) => Exit::Suite,
        Refusal::Key { .. } | Refusal::Stranger { .. } | Refusal::Model { .. } => Exit::Mismatch,
        Refusal::Dead { .. } | Refusal::Unready { .. } | Refusal::Mute { .. } => Exit::Engine,
        Refusal::Slow { .. } => Exit::TimeLimit,
    }
}

fn unlaunched(error: &LaunchError, spec: &LaunchSpec) -> Exit {
    say(&format!("error: the engine did not start: {error}"));
    if let Some(exit) = &error.exit {
        say(&format!("  it ended: {exit}"));
    }
    error.log_tail.iter().for_each(|line| say(&format!("  | {line}")));
    if !error.log_tail.is_empty() {
        say(&format!("  its log: {}", shown(&spec.log).display()));
    }
    if error.address_in_use {
        say("  help: end what holds the port, or write `--port {{ port }}` for a free one");
    } else if error.mismatch {
        say(
            "  help: an engine that wants a key gets it by --api-key-env NAME, and its command by '{{ secret.api_key }}'",
        );
    } else {
        say(
            "  help: the command must start a server that stays in the foreground and answers on its port",
        );
    }
    if error.mismatch { Exit::Mismatch } else { Exit::Engine }
}
