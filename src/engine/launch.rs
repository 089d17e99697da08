//! A launch: an engine started and made sure of, or one that already runs; and its end.
//!
//! The steps are `process`, `health`, `models`, `canary`, `facts`, `log`; a failure says which one
//! it was, what was last seen, and shows the telling lines of the log. Whatever fails, the tree is
//! ended before the error is returned. A second try with another port is the caller's.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::artefact;
use super::facts;
use super::log::LogFile;
use super::port;
use super::process::{ExitInfo, Secrecy, Start, Supervised};
use super::ready::Listed;
use super::redact::Redactor;
use super::remote::Remote;
use super::wait::{Wait, stranger};
use super::{Facts, LaunchSpec, tree};
use crate::clock::Clock;
use crate::transport::Transport;

pub use super::port::free_port;

/// How long the log may lag behind the engine.
const LOG_LAG: Duration = Duration::from_secs(5);
/// How long the end of a tree may take beyond the grace.
const END: Duration = Duration::from_secs(10);
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
pub(super) struct Fault {
    pub(super) step: &'static str,
    pub(super) message: String,
    pub(super) mismatch: bool,
    pub(super) address_in_use: bool,
    /// Whether it took too long; then it matters what the engine was at.
    pub(super) timed_out: bool,
}

impl Fault {
    pub(super) fn new(step: &'static str, message: impl Into<String>) -> Fault {
        Fault {
            step,
            message: message.into(),
            mismatch: false,
            address_in_use: false,
            timed_out: false,
        }
    }

    pub(super) fn mismatch(step: &'static str, message: impl Into<String>) -> Fault {
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
    let outcome = bring_up(spec, transport, clock, (&log, redact), &mut process, on_step).await;
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
            let lost_its_port = ended && log.address_in_use();
            let address_in_use = fault.address_in_use || lost_its_port;
            let mut message = fault.message;
            if lost_its_port && let Some(owner) = port::owner(spec.port) {
                message.push_str(&format!("; process {owner} holds port {}", spec.port));
            }
            if fault.timed_out && process.is_some() {
                message.push_str(&log_end(&log, log_tail.last()));
            }
            if let Some(process) = &mut process {
                let left = end(process, spec.stop.grace).await.survivors;
                if !left.is_empty() {
                    message.push_str(&format!("; still there: {}", left.join(", ")));
                }
                if !address_in_use {
                    port_is_free(&spec.host, spec.port).await;
                }
            }
            Err(LaunchError {
                step: fault.step,
                message: redact.said(&message),
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
    (log, redact): (&LogFile, &Redactor),
    process: &mut Option<Supervised>,
    on_step: &mut (dyn FnMut(&str) + Send),
) -> Result<(Remote, Facts, Duration), Fault> {
    on_step("process");
    let remote = Remote::new(spec.kind, &spec.url, &spec.headers, &spec.metrics_urls, transport)
        .map_err(|error| Fault::new("process", error.to_string()))?;
    let begin = clock.now();
    if let Some(command) = &spec.command {
        refuse_taken_port(spec).await?;
        write_files(&spec.dir, &spec.files).map_err(|message| Fault::new("process", message))?;
        // Its files are to hold secrets while it runs, and no longer: first those that surely do.
        let mut clean: Vec<PathBuf> =
            spec.files.iter().map(|(path, _)| spec.dir.join(path)).collect();
        clean.push(spec.dir.clone());
        let start = Start {
            name: &spec.name,
            command,
            env: &spec.env,
            cwd: None,
            log: &spec.log,
            grace: spec.stop.grace,
            stop: spec.stop.command.as_ref(),
            secrecy: Secrecy { redactor: redact, clean: &clean, always: true },
        };
        let started = Supervised::start(&start).await;
        let started = started.map_err(|error| {
            // Nobody else is there to clean up.
            artefact::clean(&spec.dir, redact, END);
            Fault::new("process", error.to_string())
        })?;
        let started = process.insert(started);
        started.started().await.map_err(|message| Fault::new("process", message))?;
    }
    let root = process.as_ref().map(Supervised::supervisor);
    let mut wait = Wait::begin(spec, root);
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
    check_log(spec, log, redact, process.is_some()).await?;
    if let Some(exit) = process.as_ref().and_then(|process| process.state().exit) {
        return Err(ended_early(&exit));
    }
    // Once more at the end: both may listen, and the kernel choose who is asked.
    if let Some(root) = root
        && let Some(stranger) = stranger(spec, root).await
    {
        return Err(Fault { address_in_use: true, ..Fault::new("health", stranger) });
    }
    Ok((remote, facts, ready_time))
}

fn ended_early(exit: &ExitInfo) -> Fault {
    let hint = if exit.success() {
        "; a server that goes on in the background can't be watched: let the command stay with it (`exec`, \
         no `&`, no `--detach`)"
    } else {
        ""
    };
    Fault::new("process", format!("the engine ended before it was ready: {exit}{hint}"))
}

/// How the log ends, for the message of a time-out: a start of an hour may be alive or stuck.
fn log_end(log: &LogFile, last: Option<&String>) -> String {
    let quiet = std::fs::metadata(&log.path).and_then(|meta| meta.modified());
    let quiet = quiet.ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    match last {
        Some(line) => format!("; last line of its log, {} s ago: {line}", quiet.as_secs()),
        None => "; its log is empty".to_owned(),
    }
}

/// Writes engine files below `dir`, readable by the user alone, since they may hold secrets.
fn write_files(dir: &Path, files: &[(PathBuf, String)]) -> Result<(), String> {
    use std::io::Write;
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
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
            let folder = path.parent().unwrap_or(dir);
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
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

async fn check_log(
    spec: &LaunchSpec,
    log: &LogFile,
    redact: &Redactor,
    has_log: bool,
) -> Result<(), Fault> {
    if spec.log_must_contain.is_empty() {
        return Ok(());
    }
    if !has_log {
        return Err(Fault::mismatch(
            "log",
            "log-must-contain needs a log, which an engine that was not started here does not have",
        ));
    }
    // The log holds them as it holds everything, secrets hidden.
    let wanted: Vec<String> = spec.log_must_contain.iter().map(|it| redact.text(it)).collect();
    let begin = Instant::now();
    loop {
        let missing = log
            .missing(&wanted)
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

/// Waits until nobody answers on a port any more; whether that came in time.
async fn port_is_free(host: &str, port: u16) -> bool {
    let begin = Instant::now();
    while port::taken(host, port).await {
        if begin.elapsed() >= PORT_FREE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
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
        if !port_is_free(&self.host, self.port).await {
            let who = port::owner(self.port).map(|owner| format!(" by process {owner}"));
            report.port_taken = true;
            report.notes.push(format!(
                "port {} is still taken{} after the engine's end",
                self.port,
                who.unwrap_or_default()
            ));
        }
        report.notes = self.redact.lines(report.notes);
        report
    }

    /// Ids of the processes that belong to the engine now; none for one that was not started here.
    pub fn processes(&self) -> Vec<i32> {
        let root = self.process.as_ref().map(Supervised::supervisor);
        let all = root.map(|root| tree::family(root, &tree::processes()));
        all.iter().flatten().map(|process| process.pid).collect()
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
