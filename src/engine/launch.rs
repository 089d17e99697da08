//! A launch: an engine started and made sure of, or one that already runs; and its end.
//!
//! The steps are `process`, `health`, `models`, `canary`, `facts`, `log`; a failure says which one
//! it was, what was last seen, and shows the telling lines of the log. Whatever fails, the tree is
//! ended before the error is returned. A second try with another port is the caller's.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::facts;
use super::log::LogFile;
use super::port::{self, Listener};
use super::process::{ExitInfo, Start, Supervised};
use super::ready::{self, Listed, Sign};
use super::redact::Redactor;
use super::remote::{Answer, LIMIT, Remote, RemoteError};
use super::{Canary, Facts, LaunchSpec};
use crate::clock::Clock;
use crate::quantity::print_duration;
use crate::transport::Transport;

pub use super::port::free_port;

/// How long a stranger may answer on the engine's port before the launch is given up: until then
/// the engine's own end, with its own words, is the better explanation.
const STRANGER: Duration = Duration::from_secs(10);
/// How long the log may lag behind the engine.
const LOG_LAG: Duration = Duration::from_secs(5);
/// How long the end of a tree may take beyond the grace.
const END: Duration = Duration::from_secs(10);
/// From when on a request without an answer says more than the answer before it.
const MUTE: Duration = Duration::from_secs(1);
/// How long the port may stay taken after the end.
const PORT_FREE: Duration = Duration::from_secs(5);

/// A launch that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {message}")]
pub struct LaunchError {
    /// `process`, `health`, `models`, `canary`, `facts` or `log`.
    pub step: &'static str,
    /// One line, redacted.
    pub message: String,
    /// How the process ended, where it did.
    pub exit: Option<String>,
    /// The telling lines of the log, redacted.
    pub log_tail: Vec<String>,
    /// Whether the engine is not what the suite declares, rather than broken.
    pub mismatch: bool,
    /// Whether its port was taken: another try with another port may help.
    pub address_in_use: bool,
}

/// What went wrong, before the log is looked at.
struct Fault {
    step: &'static str,
    message: String,
    mismatch: bool,
    address_in_use: bool,
}

impl Fault {
    fn new(step: &'static str, message: impl Into<String>) -> Fault {
        Fault { step, message: message.into(), mismatch: false, address_in_use: false }
    }

    fn mismatch(step: &'static str, message: impl Into<String>) -> Fault {
        Fault { mismatch: true, ..Fault::new(step, message) }
    }

    fn taken(message: impl Into<String>) -> Fault {
        Fault { address_in_use: true, ..Fault::new("process", message) }
    }
}

/// An engine that is ready.
#[derive(Debug)]
pub struct Running {
    /// What it says of itself.
    pub facts: Facts,
    /// From the start of the process to the canary's token.
    pub ready_time: Duration,
    /// The way to ask it.
    pub remote: Remote,
    /// Whether it was started here, so that its start could be timed.
    pub started: bool,
    process: Option<Supervised>,
    log: LogFile,
    redact: Redactor,
    host: String,
    port: u16,
}

/// How an engine was ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopReport {
    /// How its process ended; `None` where none was started.
    pub exit: Option<ExitInfo>,
    /// Processes that did not obey TERM within the grace.
    pub killed: Vec<String>,
    /// Processes that are still there.
    pub survivors: Vec<String>,
    /// Whether its port is still taken.
    pub port_taken: bool,
    /// Words worth reading.
    pub notes: Vec<String>,
}

/// Launches an engine, or makes sure of the one at `spec.url`. `on_step` hears each step's name as
/// it begins.
///
/// # Errors
/// See [`LaunchError`]; nothing of the engine runs any more then.
pub async fn launch(
    spec: &LaunchSpec,
    transport: &Transport,
    clock: &Clock,
    redact: &Redactor,
    on_step: &mut (dyn FnMut(&str) + Send),
) -> Result<Running, LaunchError> {
    let log = LogFile::from_here(&spec.log);
    let mut process = None;
    let outcome = bring_up(spec, transport, clock, &log, &mut process, on_step).await;
    match outcome {
        Ok((remote, facts, ready_time)) => Ok(Running {
            facts,
            ready_time,
            remote,
            started: process.is_some() || matches!(transport, Transport::InProcess(_)),
            process,
            log,
            redact: redact.clone(),
            host: spec.host.clone(),
            port: spec.port,
        }),
        Err(fault) => {
            let exit = process.as_ref().and_then(|process| process.state().exit);
            // Before the end: what the engine says while it is being ended is not the cause.
            let log_tail = if process.is_some() { log.telling(redact) } else { Vec::new() };
            let ended = matches!(exit, Some(ExitInfo::Code(_) | ExitInfo::Signal(_)));
            let address_in_use = fault.address_in_use || (ended && log.address_in_use());
            if let Some(process) = &mut process {
                end(process, spec.stop.grace).await;
            }
            Err(LaunchError {
                step: fault.step,
                message: redact.text(&fault.message),
                exit: exit
                    .filter(|exit| !matches!(exit, ExitInfo::NotStarted(_)))
                    .map(|exit| exit.to_string()),
                log_tail,
                mismatch: fault.mismatch,
                address_in_use,
            })
        }
    }
}

async fn bring_up(
    spec: &LaunchSpec,
    transport: &Transport,
    clock: &Clock,
    log: &LogFile,
    process: &mut Option<Supervised>,
    on_step: &mut (dyn FnMut(&str) + Send),
) -> Result<(Remote, Facts, Duration), Fault> {
    on_step("process");
    let remote = Remote::new(spec.kind, &spec.url, &spec.headers, &spec.metrics_urls, transport)
        .map_err(|error| Fault::new("process", error.to_string()))?;
    write_files(&spec.dir, &spec.files).map_err(|message| Fault::new("process", message))?;
    let begin = clock.now();
    if let Some(command) = &spec.command {
        refuse_taken_port(spec).await?;
        let start = Start {
            name: &spec.name,
            command,
            env: &spec.env,
            cwd: None,
            log: &spec.log,
            grace: spec.stop.grace,
            stop: spec.stop.command.as_ref(),
        };
        let started = Supervised::start(&start).await;
        let started = started.map_err(|error| Fault::new("process", error.to_string()))?;
        let started = process.insert(started);
        started.started().await.map_err(|message| Fault::new("process", message))?;
    }
    let mut wait = Wait {
        spec,
        step: "health",
        begin: Instant::now(),
        seen: "nothing".to_owned(),
        open: None,
        supervisor: process.as_ref().map(Supervised::supervisor),
    };
    let probes = async {
        let outcome = wait.until_ready(&remote, on_step).await;
        // Before the facts, which are no part of it.
        let ready_time = clock.now().since(begin);
        outcome.map(|(remote, model)| (remote, model, ready_time))
    };
    let (remote, model, ready_time) = match process {
        None => probes.await?,
        Some(process) => tokio::select! {
            biased;
            exit = process.ended() => return Err(ended_early(&exit)),
            outcome = probes => outcome?,
        },
    };
    on_step("facts");
    let facts = read_facts(spec, &remote, &model);
    let facts = match process {
        None => facts.await?,
        Some(process) => tokio::select! {
            biased;
            exit = process.ended() => return Err(ended_early(&exit)),
            facts = facts => facts?,
        },
    };
    on_step("log");
    check_log(spec, log, process.is_some()).await?;
    if let Some(exit) = process.as_ref().and_then(|process| process.state().exit) {
        return Err(ended_early(&exit));
    }
    Ok((remote, facts, ready_time))
}

fn ended_early(exit: &ExitInfo) -> Fault {
    Fault::new("process", format!("the engine ended before it was ready: {exit}"))
}

/// Writes engine files below `dir`, readable by the user alone, since they may hold secrets.
fn write_files(dir: &Path, files: &[(PathBuf, String)]) -> Result<(), String> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    for (relative, content) in files {
        if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(format!(
                "the engine file `{}` is outside of the launch directory; write a relative path without `..`",
                relative.display()
            ));
        }
        let path = dir.join(relative);
        // An engine of an earlier start could have put links there, in place of the directory too.
        let way = relative.ancestors().filter(|part| !part.as_os_str().is_empty());
        let mut way = way.map(|part| dir.join(part)).chain([dir.to_owned()]);
        if let Some(link) = way.find(|part| part.is_symlink()) {
            return Err(format!(
                "the engine file `{}` would be written through the link {}; remove that",
                relative.display(),
                link.display()
            ));
        }
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&path)?.write_all(content.as_bytes())
        };
        write().map_err(|error: std::io::Error| {
            format!("the engine file {} can't be written: {error}", path.display())
        })?;
    }
    Ok(())
}

async fn refuse_taken_port(spec: &LaunchSpec) -> Result<(), Fault> {
    if !port::taken(&spec.host, spec.port).await {
        return Ok(());
    }
    let who =
        port::owner(spec.port).map_or_else(String::new, |owner| format!(" by process {owner}"));
    Err(Fault::taken(format!(
        "port {} of {} is already taken{who}; nothing was started",
        spec.port, spec.host
    )))
}

/// Whether a command hands the engine to somebody else, so that its listener is no descendant.
fn hands_over(argv: &[String]) -> bool {
    const HANDS: [&str; 10] = [
        "docker",
        "podman",
        "nerdctl",
        "srun",
        "sbatch",
        "ssh",
        "kubectl",
        "systemd-run",
        "machinectl",
        "enroot",
    ];
    argv.iter()
        .flat_map(|word| word.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|')))
        .any(|word| HANDS.contains(&word.rsplit('/').next().unwrap_or(word)))
}

/// Waiting for readiness.
struct Wait<'a> {
    spec: &'a LaunchSpec,
    step: &'static str,
    begin: Instant,
    seen: String,
    /// What is being asked, and since when.
    open: Option<(String, Instant)>,
    supervisor: Option<i32>,
}

impl Wait<'_> {
    /// Asks until the engine is ready, in the time that it has.
    async fn until_ready(
        &mut self,
        remote: &Remote,
        on_step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(Remote, Listed), Fault> {
        let limit = self.spec.ready.timeout;
        match tokio::time::timeout_at(self.begin + limit, self.steps(remote, on_step)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seen = match &self.open {
                    Some((what, since)) if since.elapsed() >= MUTE => {
                        format!("no answer to {what} for {} s", since.elapsed().as_secs())
                    }
                    Some(_) | None => self.seen.clone(),
                };
                let limit = print_duration(limit);
                Err(Fault::new(self.step, format!("not ready within {limit}; last seen: {seen}")))
            }
        }
    }

    async fn steps(
        &mut self,
        remote: &Remote,
        on_step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(Remote, Listed), Fault> {
        on_step("health");
        self.health(remote).await?;
        self.step = "models";
        on_step("models");
        let model = self.models(remote).await?;
        let remote = remote.with_model(&model.id);
        if self.spec.ready.completion {
            self.step = "canary";
            on_step("canary");
            self.canary(&remote).await?;
        }
        Ok((remote, model))
    }

    /// An answer, or why there is none; what is asked is known meanwhile.
    async fn ask(
        &mut self,
        what: &str,
        asking: impl Future<Output = Result<Answer, RemoteError>>,
    ) -> Result<Answer, RemoteError> {
        if self.open.as_ref().is_none_or(|(open, _)| open != what) {
            self.open = Some((what.to_owned(), Instant::now()));
        }
        let answer = asking.await;
        // An engine that is asked again has been mute since the first time.
        if !matches!(answer, Err(RemoteError::TimedOut { .. })) {
            self.open = None;
        }
        answer
    }

    async fn pause(&self) {
        tokio::time::sleep(ready::pause(self.begin.elapsed())).await;
    }

    async fn health(&mut self, remote: &Remote) -> Result<(), Fault> {
        let mut strange_since: Option<Instant> = None;
        loop {
            let sign = match self.ask("GET /health", remote.get("/health", LIMIT)).await {
                Ok(answer) => ready::health(self.spec.kind, &answer),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match sign {
                Sign::Ready(()) => match self.stranger().await {
                    None => return Ok(()),
                    Some(stranger) => {
                        self.seen = stranger;
                        let since = *strange_since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= STRANGER {
                            return Err(Fault {
                                address_in_use: true,
                                ..Fault::new("health", self.seen.clone())
                            });
                        }
                    }
                },
                Sign::NotYet(seen) => self.seen = seen,
                Sign::Never(why) => return Err(Fault::new("health", why)),
            }
            self.pause().await;
        }
    }

    /// Who answers in the engine's place; `None` where nobody does, or it can't be told.
    async fn stranger(&self) -> Option<String> {
        let root = self.supervisor?;
        let command = self.spec.command.as_ref()?;
        if hands_over(&command.argv) {
            return None;
        }
        let port = self.spec.port;
        let listener = tokio::task::spawn_blocking(move || port::listener(port, root)).await;
        match listener {
            Ok(Listener::Other(owner)) => Some(format!(
                "process {owner}, which this launch did not start, answers on port {port}"
            )),
            Ok(Listener::Unknown | Listener::Ours | Listener::Forwarder) | Err(_) => None,
        }
    }

    async fn models(&mut self, remote: &Remote) -> Result<Listed, Fault> {
        let named = self.spec.model.as_deref();
        loop {
            let answer = self.ask("GET /v1/models", remote.get("/v1/models", LIMIT)).await;
            let sign = match answer {
                Ok(answer) => ready::models(self.spec.kind, &answer, named),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match (sign, named) {
                (Sign::Ready(model), _) => return Ok(model),
                // What the list says does not matter then, once there is a name.
                (Sign::NotYet(_) | Sign::Never(_), Some(named)) if !self.spec.ready.models => {
                    return Ok(Listed { id: named.to_owned(), ..Listed::default() });
                }
                (Sign::NotYet(seen), _) => self.seen = seen,
                (Sign::Never(why), _) => return Err(Fault::mismatch("models", why)),
            }
            self.pause().await;
        }
    }

    async fn canary(&mut self, remote: &Remote) -> Result<(), Fault> {
        let mut chat = match self.spec.canary {
            Canary::Completions | Canary::Either => false,
            Canary::Chat => true,
        };
        loop {
            let (path, body) = ready::canary(remote.model(), chat);
            // The first completion may compile kernels for minutes: it has all the time there is.
            let asking = remote.post(path, &body, self.spec.ready.timeout);
            let sign = match self.ask(&format!("POST {path}"), asking).await {
                Ok(answer) if answer.is_absent() && !chat && self.spec.canary == Canary::Either => {
                    chat = true;
                    continue;
                }
                Ok(answer) => ready::canary_sign(path, &answer),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match sign {
                Sign::Ready(()) => return Ok(()),
                Sign::NotYet(seen) => self.seen = seen,
                Sign::Never(why) => return Err(Fault::new("canary", why)),
            }
            self.pause().await;
        }
    }
}

async fn read_facts(spec: &LaunchSpec, remote: &Remote, model: &Listed) -> Result<Facts, Fault> {
    let facts =
        facts::read(remote, model).await.map_err(|error| Fault::new("facts", error.to_string()))?;
    let Some(required) = &spec.version else { return Ok(facts) };
    let Some(actual) = &facts.version else {
        return Err(Fault::mismatch(
            "facts",
            format!(
                "the suite declares version \"{required}\"; the engine does not say its version"
            ),
        ));
    };
    match facts::version_matches(required, actual) {
        Ok(true) => Ok(facts),
        Ok(false) => Err(Fault::mismatch(
            "facts",
            format!("the suite declares version \"{required}\"; the engine says {actual}"),
        )),
        Err(error) => Err(Fault::mismatch("facts", error.to_string())),
    }
}

async fn check_log(spec: &LaunchSpec, log: &LogFile, has_log: bool) -> Result<(), Fault> {
    if spec.log_must_contain.is_empty() {
        return Ok(());
    }
    if !has_log {
        return Err(Fault::mismatch(
            "log",
            "log-must-contain needs a log, which an engine that was not started here does not have",
        ));
    }
    let begin = Instant::now();
    loop {
        let missing = log
            .missing(&spec.log_must_contain)
            .map_err(|error| Fault::new("log", format!("the log can't be read: {error}")))?;
        if missing.is_empty() {
            return Ok(());
        }
        if begin.elapsed() >= LOG_LAG {
            let texts: Vec<String> = missing.iter().map(|text| format!("`{text}`")).collect();
            let message = format!("the log does not contain {}", texts.join(", "));
            return Err(Fault::mismatch("log", message));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Ends a tree and waits for it, in bounded time.
async fn end(process: &mut Supervised, grace: Duration) -> StopReport {
    process.order_stop(grace).await;
    let state = process.gone(grace + END).await;
    let survivors = match (state.gone, state.stuck.is_empty()) {
        (true, _) => Vec::new(),
        (false, false) => state.stuck,
        (false, true) => vec![format!("{} (supervisor)", process.supervisor())],
    };
    StopReport {
        exit: state.exit,
        killed: state.killed,
        survivors,
        port_taken: false,
        notes: state.notes,
    }
}

impl Running {
    /// Ends the engine: the stop command, TERM to its whole tree, KILL after `grace`; waits until
    /// the processes are gone and the port is free, in bounded time. Cancel-safe, and may be called
    /// again with a shorter grace to hurry. An engine that was not started here is left alone.
    pub async fn stop(&mut self, grace: Duration) -> StopReport {
        let Some(process) = &mut self.process else { return StopReport::default() };
        let mut report = end(process, grace).await;
        let begin = Instant::now();
        loop {
            report.port_taken = port::taken(&self.host, self.port).await;
            if !report.port_taken || begin.elapsed() >= PORT_FREE {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        report.notes = self.redact.lines(report.notes);
        report
    }

    /// Resolves when the engine's process ends; never for an engine that was not started here.
    /// Cancel-safe.
    pub async fn died(&mut self) -> ExitInfo {
        match &mut self.process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    }

    /// The log from here on; `None` for an engine that was not started here.
    pub fn log_from_here(&self) -> Option<LogFile> {
        self.process.is_some().then(|| LogFile::from_here(&self.log.path))
    }

    /// What the log says of the engine's end since `began`, in words; `None` where it says nothing.
    pub fn last_words(&self, began: Option<&LogFile>) -> Option<String> {
        match began.and_then(|log| log.cause(&self.redact)) {
            Some(cause) => Some(format!("its log says: {cause}")),
            None => self.log_tail().last().map(|line| format!("its last line: {line}")),
        }
    }

    /// The telling lines of the log, redacted; none for an engine that was not started here.
    pub fn log_tail(&self) -> Vec<String> {
        if self.process.is_some() { self.log.telling(&self.redact) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests;
