//! Supervised processes, seen from tokgate: started, watched, ended.
//!
//! Each has a supervisor with its guard between it and tokgate. Dropping a [`Supervised`] cuts the
//! lifeline, upon which the supervisor ends the tree; and should both be killed, what they leave
//! behind falls to tokgate and is ended here. What an end means for a run is decided elsewhere.

use std::collections::HashSet;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::watch;

use super::Command;
use super::redact::Redactor;
use super::supervise::{Order, Report, SHORT_GRACE, SUBCOMMAND, Task, words_of};
#[cfg(target_os = "linux")]
use super::tree;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitInfo {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It never ran; why.
    NotStarted(String),
    /// Its supervisor was killed, and it was ended with it.
    Unsupervised,
}

impl ExitInfo {
    /// Whether it ended with exit code 0.
    pub fn success(&self) -> bool {
        *self == ExitInfo::Code(0)
    }
}

impl std::fmt::Display for ExitInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitInfo::Code(code) => f.write_str(&words_of(Some(*code), None)),
            ExitInfo::Signal(signal) => {
                write!(f, "killed by {}", words_of(None, Some(*signal)))
            }
            ExitInfo::NotStarted(why) => f.write_str(why),
            ExitInfo::Unsupervised => f.write_str("its supervisor was killed"),
        }
    }
}

/// A process that could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The log can't be written.
    #[error("the log {} can't be written: {source}", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The supervisor can't be started.
    #[error("the supervisor can't be started: {0}")]
    Supervisor(std::io::Error),
    /// The program can't be started.
    #[error("{0}")]
    NotStarted(String),
    /// It did not end in time, and was ended.
    #[error("not done within {}", crate::quantity::print_duration(*.0))]
    TimedOut(Duration),
}

/// Which executable supervises: this one, unless [`use_executable`] named another.
static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// The supervisors that this process has started, by their guards.
#[derive(Default)]
struct Supervisors {
    /// Those that are watched now: neither they nor what is in their sessions are strays.
    alive: HashSet<i32>,
    /// All ever: their process ids are the sessions of what they started.
    ever: HashSet<i32>,
}

/// Held while a supervisor is started, lest it be taken for a stray.
static SUPERVISORS: Mutex<Option<Supervisors>> = Mutex::new(None);

/// Has `path`, a tokgate executable, supervise: for programs that use the library. The first call
/// counts.
pub fn use_executable(path: &Path) {
    let _ = EXECUTABLE.set(path.to_owned());
}

/// Makes this process inherit what a killed supervisor leaves behind.
pub fn become_subreaper() {
    #[cfg(target_os = "linux")]
    {
        // Kernels before 3.4 can't; then a supervisor killed by force leaves processes behind.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// What to start under a supervisor.
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) command: &'a Command,
    pub(crate) env: &'a [(String, String)],
    pub(crate) cwd: Option<&'a Path>,
    pub(crate) log: &'a Path,
    pub(crate) grace: Duration,
    pub(crate) stop: Option<&'a Command>,
    pub(crate) secrecy: Secrecy<'a>,
}

/// What of a program's words and files must not be seen.
#[derive(Debug, Clone, Copy)]
pub struct Secrecy<'a> {
    /// Hides secrets in the log.
    pub redactor: &'a Redactor,
    /// Files and directories that must not hold secrets any more when its tree is gone.
    pub clean: &'a [PathBuf],
    /// Whether they are cleaned in any case, or only should this process be gone by then: who reads
    /// results in there cleans up after it.
    pub always: bool,
}

/// What is known of a supervised process.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The process id, once it runs.
    pub(crate) engine: Option<i32>,
    /// How it ended, once it has.
    pub(crate) exit: Option<ExitInfo>,
    /// Processes that had to be killed.
    pub(crate) killed: Vec<String>,
    /// Processes that outlive KILL.
    pub(crate) stuck: Vec<String>,
    /// Words worth reading.
    pub(crate) notes: Vec<String>,
    /// Whether the whole tree is gone.
    pub(crate) gone: bool,
}

/// A process under a supervisor.
#[derive(Debug)]
pub(crate) struct Supervised {
    lifeline: ChildStdin,
    supervisor: i32,
    state: watch::Receiver<State>,
}

impl Supervised {
    /// Starts a program. That it could not be executed is told by [`Supervised::ended`].
    pub(crate) async fn start(start: &Start<'_>) -> Result<Supervised, SuperviseError> {
        become_subreaper();
        let grace = start.grace.min(SHORT_GRACE);
        let log_error = |source| SuperviseError::Log { path: start.log.to_owned(), source };
        if let Some(folder) = start.log.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(log_error)?;
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            // What an engine prints is its owner's business.
            .mode(0o600)
            // What an engine before it left in its place is not followed to somebody's file, nor is a
            // reader of it waited for.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(start.log)
            .map_err(log_error)?;
        let task = Task {
            argv: start.command.argv.clone(),
            env: start.env.to_vec(),
            cwd: start.cwd.map(Path::to_owned),
            log: start.log.to_owned(),
            grace: start.grace,
            stop: start.stop.map(|command| command.argv.clone()),
            secrets: start.secrecy.redactor.secrets().to_vec(),
            clean: start.secrecy.clean.to_vec(),
            clean_always: start.secrecy.always,
        };
        // A path that is no UTF-8 can't be told; a supervisor that is told nothing waits for ever.
        let task = line(&task).map_err(SuperviseError::Supervisor)?;
        let mut child = spawn(start.name, grace, log).map_err(SuperviseError::Supervisor)?;
        let missing = || SuperviseError::Supervisor(std::io::Error::other("it has no pipes"));
        let supervisor = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or_else(missing)?;
        let mut lifeline = child.stdin.take().ok_or_else(missing)?;
        let reports = child.stdout.take().ok_or_else(missing)?;
        let (sender, state) = watch::channel(State::default());
        tokio::spawn(follow(child, supervisor, reports, grace, sender));
        // Where it is gone already, the state says so.
        let _ = write(&mut lifeline, &task).await;
        Ok(Supervised { lifeline, supervisor, state })
    }

    /// Process id of the supervisor's guard, the root of the tree.
    pub(crate) fn supervisor(&self) -> i32 {
        self.supervisor
    }

    /// What is known now.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the process has ended. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> ExitInfo {
        match self.state.wait_for(|state| state.exit.is_some()).await {
            Ok(state) => state.exit.clone().unwrap_or(ExitInfo::Unsupervised),
            Err(_) => ExitInfo::Unsupervised,
        }
    }

    /// Waits until the process runs, or never will.
    pub(crate) async fn started(&mut self) -> Result<(), String> {
        let known = |state: &State| state.engine.is_some() || state.exit.is_some();
        match self.state.wait_for(known).await.map(|state| state.clone()) {
            Ok(State { engine: Some(_), .. }) => Ok(()),
            Ok(State { exit: Some(exit), .. }) => Err(exit.to_string()),
            Ok(_) | Err(_) => Err(ExitInfo::Unsupervised.to_string()),
        }
    }

    /// Orders the end of the tree; a later order may shorten the grace.
    pub(crate) async fn order_stop(&mut self, grace: Duration) {
        // Somebody may have stopped it.
        tell(Some(self.supervisor), Signal::CONT);
        let _ = say(&mut self.lifeline, &Order::Stop { grace }).await;
    }

    /// Waits until the whole tree is gone, at most `limit`; what is known then. Cancel-safe.
    pub(crate) async fn gone(&mut self, limit: Duration) -> State {
        let all = self.state.wait_for(|state| state.gone);
        let _ = tokio::time::timeout(limit, all).await;
        self.state()
    }
}

async fn say(pipe: &mut ChildStdin, word: &impl serde::Serialize) -> std::io::Result<()> {
    write(pipe, &line(word)?).await
}

fn line(word: &impl serde::Serialize) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    Ok(line)
}

async fn write(pipe: &mut ChildStdin, line: &[u8]) -> std::io::Result<()> {
    pipe.write_all(line).await?;
    pipe.flush().await
}

fn spawn(name: &str, grace: Duration, log: std::fs::File) -> std::io::Result<Child> {
    let real = std::env::current_exe();
    let path = match EXECUTABLE.get() {
        Some(path) => path.clone(),
        // It names the running executable even when the file was replaced meanwhile.
        None if cfg!(target_os = "linux") => PathBuf::from("/proc/self/exe"),
        None => real.as_deref().map(Path::to_owned).unwrap_or_else(|_| PathBuf::from("tokgate")),
    };
    let shown = EXECUTABLE.get().cloned().or(real.ok()).unwrap_or_else(|| path.clone());
    let mut command = tokio::process::Command::new(path);
    command
        .arg0(shown)
        .args([SUBCOMMAND, name, &grace.as_millis().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log);
    let mut supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let supervisors = supervisors.get_or_insert_default();
        supervisors.alive.insert(pid);
        supervisors.ever.insert(pid);
    }
    Ok(child)
}

/// Follows a supervisor's reports until it is gone.
async fn follow(
    mut child: Child,
    pid: i32,
    reports: ChildStdout,
    grace: Duration,
    state: watch::Sender<State>,
) {
    let mut lines = BufReader::new(reports).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(report) = serde_json::from_str::<Report>(&line) else { continue };
        state.send_modify(|state| match report {
            Report::Started(engine) => state.engine = Some(engine),
            Report::Failed(why) => {
                state.exit.get_or_insert(ExitInfo::NotStarted(why));
            }
            Report::Exited { code, signal } => {
                let exit = match (code, signal) {
                    (Some(code), _) => ExitInfo::Code(code),
                    (None, Some(signal)) => ExitInfo::Signal(signal),
                    (None, None) => ExitInfo::Unsupervised,
                };
                state.exit.get_or_insert(exit);
            }
            Report::Killed(names) => state.killed = names,
            Report::Stuck(names) => state.stuck = names,
            Report::Note(note) => state.notes.push(note),
        });
    }
    let status = child.wait().await;
    {
        let mut supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors.get_or_insert_default().alive.remove(&pid);
    }
    let in_order = status.is_ok_and(|status| status.success());
    let failed = state.borrow().exit.is_some();
    if !in_order {
        // It was killed, and perhaps its guard with it: then its tree fell to this process.
        let _ = tokio::task::spawn_blocking(move || end_strays(grace)).await;
    }
    state.send_modify(|state| {
        if !failed {
            state.exit.get_or_insert(ExitInfo::Unsupervised);
        }
        state.stuck.clear();
        state.gone = true;
    });
}

/// Waits until every supervisor that this process started is gone, at most `limit`: one whose
/// handle was dropped still ends its tree.
pub async fn all_gone(limit: Duration) {
    // Those that somebody stopped.
    tell(None, Signal::CONT);
    let waiting = async {
        loop {
            if alive() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(limit, waiting).await;
}

/// Has every supervisor that this process started end its tree by force, at once. Those whose handle is
/// still there would do so too on `Supervised::order_stop`.
pub fn hurry_all() {
    tell(None, Signal::QUIT);
    tell(None, Signal::CONT);
}

/// Sends a signal to one supervisor, or to all, by way of their guards.
fn tell(one: Option<i32>, signal: Signal) {
    let supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    // None of them has been collected, so that no other process has its number.
    let alive = supervisors.iter().flat_map(|known| &known.alive).copied();
    for pid in alive.filter(|pid| one.is_none_or(|one| one == *pid)).filter_map(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// How many supervisors of this process there are.
fn alive() -> usize {
    let supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    supervisors.as_ref().map_or(0, |known| known.alive.len())
}

/// Ends processes that a killed supervisor left to this process, TERM then KILL, and says which.
/// Blocks until they are gone, about three seconds at most for those that do not obey.
pub fn reap_strays() -> Vec<String> {
    end_strays(SHORT_GRACE)
}

/// As [`reap_strays`], with KILL after `grace`.
///
/// Children that this program started by itself, and whatever another program left to it where it is
/// the first process of a container, are not touched.
#[cfg(target_os = "linux")]
fn end_strays(grace: Duration) -> Vec<String> {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let began = Instant::now();
    let mut names = Vec::new();
    let mut signals = tree::Signals::default();
    while began.elapsed() < grace + Duration::from_secs(5) {
        let (strays, left) = strays();
        if strays.is_empty() {
            break;
        }
        for name in left.iter().filter(|process| !process.ended).map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if began.elapsed() < grace {
            signals.ask(&left);
        } else {
            signals.force(&left);
        }
        std::thread::sleep(Duration::from_millis(20));
        for pid in strays.iter().filter_map(|stray| Pid::from_raw(stray.pid)) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
    names
}

/// None, where processes are not left to anybody but the first process of the machine.
#[cfg(not(target_os = "linux"))]
fn end_strays(_grace: Duration) -> Vec<String> {
    Vec::new()
}

/// Children of this process that a supervisor left to it, and those with all that descends from them.
#[cfg(target_os = "linux")]
fn strays() -> (Vec<tree::Process>, Vec<tree::Process>) {
    let me = std::process::id() as i32;
    let supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    let all = tree::processes();
    let Some(own) = all.iter().find(|process| process.pid == me) else { return Default::default() };
    let known = supervisors.as_ref();
    let strays: Vec<tree::Process> = all
        .iter()
        .filter(|process| process.parent == me && process.session != own.session)
        // Nothing below a supervisor can come back to our session, and what this program starts by
        // itself stays in it. The first process of a container inherits from others too; there only
        // the sessions of supervisors are surely ours.
        // A supervisor whose guard was killed falls to us as well, and goes on with its work.
        .filter(|process| known.is_none_or(|k| !k.alive.contains(&process.session)))
        .filter(|process| me != 1 || known.is_some_and(|k| k.ever.contains(&process.session)))
        .cloned()
        .collect();
    drop(supervisors);
    let roots: Vec<i32> = strays.iter().map(|process| process.pid).collect();
    let mut tree = tree::descendants(&roots, &all);
    tree.extend(strays.iter().cloned());
    (strays, tree)
}

/// Runs a command under a supervisor until it ends; its whole tree is gone then. Its log is as it
/// prints it.
///
/// # Errors
/// As [`run_secretive`].
pub async fn run_supervised(
    command: &Command,
    env: &[(String, String)],
    cwd: Option<&Path>,
    log: &Path,
    timeout: Duration,
) -> Result<ExitInfo, SuperviseError> {
    let secrecy = Secrecy { redactor: &Redactor::default(), clean: &[], always: false };
    run_secretive(command, env, cwd, (log, secrecy), timeout).await
}

/// As [`run_supervised`], for a command that knows secrets.
///
/// # Errors
/// The log can't be written, the program can't be started, or it is not done within `timeout`.
pub async fn run_secretive(
    command: &Command,
    env: &[(String, String)],
    cwd: Option<&Path>,
    (log, secrecy): (&Path, Secrecy<'_>),
    timeout: Duration,
) -> Result<ExitInfo, SuperviseError> {
    // Seen in lists of processes.
    let name = command.argv.first().map_or("command", String::as_str);
    let name = &secrecy.redactor.text(name);
    let start = Start { name, command, env, cwd, log, grace: SHORT_GRACE, stop: None, secrecy };
    let mut process = Supervised::start(&start).await?;
    let Ok(exit) = tokio::time::timeout(timeout, process.ended()).await else {
        process.order_stop(SHORT_GRACE).await;
        process.gone(2 * SHORT_GRACE).await;
        return Err(SuperviseError::TimedOut(timeout));
    };
    process.gone(2 * SHORT_GRACE).await;
    match exit {
        ExitInfo::NotStarted(why) => Err(SuperviseError::NotStarted(why)),
        ExitInfo::Code(_) | ExitInfo::Signal(_) | ExitInfo::Unsupervised => Ok(exit),
    }
}
