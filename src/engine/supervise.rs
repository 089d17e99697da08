//! The supervisor: a process between tokgate and an engine that ends the engine's whole tree,
//! however tokgate dies.
//!
//! It is the hidden subcommand `__supervise` of the same executable. It has a session of its own and
//! above it a guard (see `guard`), reads what to start and later orders from its standard input, which is at the same time the
//! lifeline: when that ends, tokgate is gone. Being a child subreaper it inherits whatever the
//! engine's processes leave behind, so that "no child left" means that nothing is left. Reports go
//! to its standard output, a line each; its standard error is the log, into which `drain` leads what
//! the engine prints. What has been printed is in the log before an end is reported. Secrets come to
//! it on its standard input alone, and are gone from the engine's files when it ends.
//!
//! When to send what is decided by `due`, a pure function; `process` is tokgate's side.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::artefact;
use super::drain::Drain;
use super::redact::Redactor;
use super::tree;

pub use super::process::{
    ExitInfo, Secrecy, SuperviseError, all_gone, become_subreaper, hurry_all, reap_strays,
    run_secretive, run_supervised, use_executable,
};

/// The hidden subcommand, `argv[1]` of a supervisor.
pub const SUBCOMMAND: &str = "__supervise";

/// Longest grace when nobody waits for an orderly end: the lifeline is lost, the supervisor got a
/// signal, or the engine has ended and left others behind.
pub(crate) const SHORT_GRACE: Duration = Duration::from_secs(3);
/// Shortest time that a stop command gets: it ends what is outside of the tree. An interrupted run
/// waits for it, and is to be gone soon.
const STOP_COMMAND_TIME: Duration = Duration::from_secs(5);
/// How long processes may outlive KILL before they are reported.
const STUCK: Duration = Duration::from_secs(2);
/// How often the tree is looked at while it ends.
const STEP: Duration = Duration::from_millis(20);
/// How often it is looked at before, whatever happens.
const PACE: Duration = Duration::from_millis(250);
/// How long cleaning the engine's files may take.
const CLEANING: Duration = Duration::from_secs(1);

/// What to start: the first line on the supervisor's standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) argv: Vec<String>,
    /// Added to the inherited environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<PathBuf>,
    /// The file that standard error is.
    pub(crate) log: PathBuf,
    pub(crate) grace: Duration,
    /// Run first when the end begins, whatever began it.
    pub(crate) stop: Option<Vec<String>>,
    /// Values that the log must not show.
    pub(crate) secrets: Vec<String>,
    /// Files and directories that must not hold them any more when the tree is gone.
    pub(crate) clean: Vec<PathBuf>,
    /// Whether that is the supervisor's business even while tokgate lives.
    pub(crate) clean_always: bool,
}

/// An order: a further line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// End the tree. A later order may shorten the grace, not prolong it.
    Stop { grace: Duration },
}

/// What the supervisor reports, a line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The engine runs, with this process id.
    Started(i32),
    /// The engine could not be started.
    Failed(String),
    /// The engine ended.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// Processes had to be killed.
    Killed(Vec<String>),
    /// These outlive KILL.
    Stuck(Vec<String>),
    /// Something worth a word.
    Note(String),
}

/// Runs the supervisor. `args` is what follows the subcommand, for the guard and for people who read
/// `ps`. To be called before any thread or runtime is started.
pub fn main(args: Vec<OsString>) -> ExitCode {
    // Fails where the process leads a session or group already, which serves as well.
    let _ = rustix::process::setsid();
    if let Some(code) = super::guard::stand(&args) {
        return code;
    }
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        // The executable is started through /proc/self/exe, which would be named `exe`.
        let _ = rustix::thread::set_name(c"tokgate-watch");
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report(&Report::Failed(format!("the supervisor can't run: {error}")));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(supervise());
    // A lifeline that is read in the background must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&Report::Failed(format!("the supervisor failed: {error}")));
            ExitCode::FAILURE
        }
    }
}

fn report(report: &Report) {
    let Ok(mut line) = serde_json::to_string(report) else { return };
    line.push('\n');
    // Nobody reads it where tokgate is gone; the tree is ended all the same.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// What comes from tokgate.
enum Word {
    Line(String),
    Lost,
}

async fn supervise() -> std::io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut words = lifeline()?;
    let task: Task = match words.recv().await {
        Some(Word::Line(line)) => serde_json::from_str(&line)?,
        Some(Word::Lost) | None => return Ok(()),
    };
    let redactor = Redactor::new(&task.secrets);
    let drain = Drain::open(&task.log, redactor.clone())?;
    let engine = match spawn(&task.argv, &task, &drain) {
        Ok(engine) => engine,
        Err(error) => {
            report(&Report::Failed(why_not(&error, &task.argv, &task)));
            clean(&task, task.clean_always, &redactor);
            return Ok(());
        }
    };
    report(&Report::Started(engine));
    let mut watch =
        Watch { task, drain, engine, engine_ended: false, ending: None, unsaid: Vec::new() };
    let mut alone = false;
    loop {
        let childless = watch.collect();
        watch.tell(childless);
        if childless {
            clean(&watch.task, watch.task.clean_always || alone, &redactor);
            return Ok(());
        }
        watch.step();
        let pause = if watch.ending.is_some() { STEP } else { PACE };
        tokio::select! {
            _ = children.recv() => {}
            _ = terminate.recv() => watch.end_soon(),
            _ = interrupt.recv() => watch.end_soon(),
            _ = hangup.recv() => watch.end_soon(),
            _ = quit.recv() => watch.end(Duration::ZERO),
            word = words.recv() => match word {
                Some(Word::Line(line)) => match serde_json::from_str(&line) {
                    Ok(Order::Stop { grace }) => watch.end(grace),
                    Err(_) => watch.end_soon(),
                },
                Some(Word::Lost) => {
                    alone = true;
                    watch.end_soon();
                }
                None => tokio::time::sleep(pause.min(STEP)).await,
            },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Reads the lifeline in the background, so that a line cut by another event is not lost.
fn lifeline() -> std::io::Result<mpsc::UnboundedReceiver<Word>> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin)?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(Word::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Word::Lost);
        // The sender stays, so that the end is told once.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

/// Cleans files of secrets where that is to be done here.
fn clean(task: &Task, here: bool, redactor: &Redactor) {
    for path in task.clean.iter().filter(|_| here) {
        for word in artefact::clean(path, redactor, CLEANING) {
            report(&Report::Note(word));
        }
    }
}

/// Starts a program in a process group of its own.
fn spawn(argv: &[String], task: &Task, drain: &Drain) -> std::io::Result<i32> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(task.env.iter().map(|(name, value)| (name, value)))
        .env(super::stranded::VARIABLE, super::stranded::mark())
        .stdin(Stdio::null())
        .stdout(drain.entrance()?)
        .stderr(drain.entrance()?)
        .process_group(0);
    if let Some(cwd) = &task.cwd {
        command.current_dir(cwd);
    }
    die_with_parent(&mut command);
    let child = command.spawn()?;
    // The supervisor collects every child by itself, in `Watch::collect`.
    i32::try_from(child.id()).map_err(std::io::Error::other)
}

/// Has the kernel kill the child when this process is killed.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() == Some(parent) { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls through rustix, which
    // neither allocate nor take locks.
    unsafe {
        command.pre_exec(before_exec);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}

/// Why a program could not be started, in words.
fn why_not(error: &std::io::Error, argv: &[String], task: &Task) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let program = argv.first().map_or("", String::as_str);
    if let Some(cwd) = task.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return format!("can't start `{program}` in {}: {text}", cwd.display());
    }
    if error.kind() == std::io::ErrorKind::NotFound && program.contains('/') {
        let found = task.cwd.as_deref().unwrap_or(".".as_ref()).join(program);
        if found.exists() {
            return format!(
                "can't start `{program}`: the interpreter that its first line names is not there"
            );
        }
    }
    if error.kind() == std::io::ErrorKind::NotFound && !program.contains('/') {
        return format!("can't start `{program}`: {text} in any directory of PATH");
    }
    format!("can't start `{program}`: {text}")
}

/// What is due while a tree ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing: the stop command has its turn.
    Nothing,
    /// TERM to those who have not had it.
    Ask,
    /// KILL to all that is left.
    Force,
}

/// What is due `elapsed` after the end began: TERM once the stop command is done, or after half the
/// grace if it is not; KILL when the grace is over.
pub(crate) fn due(elapsed: Duration, grace: Duration, stop_command_runs: bool) -> Due {
    if elapsed >= grace {
        Due::Force
    } else if stop_command_runs && elapsed < grace / 2 {
        Due::Nothing
    } else {
        Due::Ask
    }
}

/// An end under way.
struct Ending {
    began: Instant,
    grace: Duration,
    stop_command: Option<i32>,
    signals: tree::Signals,
    killed: bool,
    stuck: bool,
}

struct Watch {
    task: Task,
    drain: Drain,
    engine: i32,
    engine_ended: bool,
    ending: Option<Ending>,
    /// What is to be reported once the log has what was printed before.
    unsaid: Vec<Report>,
}

impl Watch {
    /// Reports what was found, after all that was printed before is in the log.
    fn tell(&mut self, last: bool) {
        if last {
            self.drain.finish();
        } else if !self.unsaid.is_empty() {
            self.drain.catch_up();
        }
        self.unsaid.drain(..).for_each(|it| report(&it));
    }

    /// Begins the end, or shortens it, when nobody waits for an orderly one.
    fn end_soon(&mut self) {
        self.end(self.task.grace.min(SHORT_GRACE));
    }

    /// Begins the end, or shortens it.
    fn end(&mut self, grace: Duration) {
        if let Some(ending) = &mut self.ending {
            ending.grace = ending.grace.min(ending.began.elapsed() + grace);
            return;
        }
        let stop_command = self.task.stop.as_ref().and_then(|argv| {
            let outcome = spawn(argv, &self.task, &self.drain);
            if let Err(error) = &outcome {
                let why = why_not(error, argv, &self.task);
                report(&Report::Note(format!("stop.command could not be started: {why}")));
            }
            outcome.ok()
        });
        self.ending = Some(Ending {
            began: Instant::now(),
            grace,
            stop_command,
            signals: tree::Signals::default(),
            killed: false,
            stuck: false,
        });
    }

    /// Collects children that have ended; true when there are none at all, and so no descendants.
    fn collect(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.collected(pid.as_raw_nonzero().get(), status),
                Ok(None) => return false,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    fn collected(&mut self, pid: i32, status: WaitStatus) {
        if pid == self.engine && !self.engine_ended {
            self.engine_ended = true;
            self.unsaid.push(Report::Exited {
                code: status.exit_status(),
                signal: status.terminating_signal(),
            });
            // It may have left others behind.
            self.end_soon();
        }
        if let Some(ending) = &mut self.ending
            && ending.stop_command == Some(pid)
        {
            ending.stop_command = None;
            if status.exit_status() != Some(0) {
                let words = words_of(status.exit_status(), status.terminating_signal());
                self.unsaid.push(Report::Note(format!("stop.command ended with {words}")));
            }
        }
    }

    /// Sends what is due.
    fn step(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        let elapsed = ending.began.elapsed();
        let due = due(elapsed, ending.grace, ending.stop_command.is_some());
        let stop_command_is_over = elapsed >= ending.grace.max(STOP_COMMAND_TIME);
        #[cfg(target_os = "linux")]
        {
            let me = std::process::id() as i32;
            let all = tree::processes();
            let mut left = tree::descendants(&[me], &all);
            if let Some(command) = ending.stop_command.filter(|_| !stop_command_is_over) {
                let its_own = tree::descendants(&[command], &all);
                left.retain(|p| p.pid != command && !its_own.iter().any(|own| own.pid == p.pid));
            }
            match due {
                Due::Nothing => {}
                Due::Ask => ending.signals.ask(&left),
                Due::Force => ending.signals.force(&left),
            }
            let names: Vec<String> =
                left.iter().filter(|p| !p.ended).map(ToString::to_string).collect();
            if due == Due::Force && !names.is_empty() {
                if !ending.killed {
                    ending.killed = true;
                    report(&Report::Killed(names));
                } else if elapsed >= ending.grace + STUCK && !ending.stuck {
                    ending.stuck = true;
                    report(&Report::Stuck(names));
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            match due {
                Due::Nothing => {}
                Due::Ask => ending.signals.ask_group(self.engine),
                Due::Force => {
                    if !self.engine_ended && !ending.killed {
                        ending.killed = true;
                        report(&Report::Killed(vec![self.engine.to_string()]));
                    }
                    ending.signals.force_group(self.engine);
                }
            }
            if let Some(command) = ending.stop_command.filter(|_| stop_command_is_over) {
                ending.signals.force_group(command);
            }
        }
    }
}

/// An exit status in words: `exit code 1`, `SIGKILL`.
pub(crate) fn words_of(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => tree::signal_name(signal),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn first_term_then_kill() {
        assert_eq!(due(Duration::ZERO, 3 * S, false), Due::Ask);
        assert_eq!(due(2 * S, 3 * S, false), Due::Ask);
        assert_eq!(due(3 * S, 3 * S, false), Due::Force);
        assert_eq!(due(Duration::ZERO, Duration::ZERO, true), Due::Force);
    }

    #[test]
    fn a_stop_command_goes_first_but_not_for_ever() {
        assert_eq!(due(S, 4 * S, true), Due::Nothing);
        assert_eq!(due(S, 4 * S, false), Due::Ask);
        assert_eq!(due(2 * S, 4 * S, true), Due::Ask);
        assert_eq!(due(4 * S, 4 * S, true), Due::Force);
    }

    #[test]
    fn reports_travel_as_lines() {
        for report in [
            Report::Started(7),
            Report::Failed("can't start `vllm`".to_owned()),
            Report::Exited { code: None, signal: Some(9) },
        ] {
            let line = serde_json::to_string(&report).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }
}
