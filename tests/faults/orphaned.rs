//! What engines start is gone, however tokgate ends.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::harness::{Project, Ran, eventually};

/// Longest time that a tree may outlive tokgate: the contract's five seconds, and two for a busy machine.
const PATIENCE: Duration = Duration::from_secs(7);

/// A tree that obeys nothing, around an engine that serves where there is a file `serve`, and loads for
/// ever where there is none.
const STUBBORN: &str = r#"trap '' TERM HUP INT
setsid bash -c 'trap "" TERM HUP; while :; do sleep 1; done' &
( ( bash -c 'trap "" TERM HUP; while :; do sleep 1; done' & ) & )
nohup bash -c 'exec sleep 1000' > /dev/null 2>&1 &
bash -c 'trap "" TERM HUP; exec sleep 1001' >&- 2>&- &
bash -c 'kill -STOP $$; sleep 1002' &
setsid -f bash -c 'trap "" TERM HUP; ( sleep 1003 ); sleep 1004'
touch whole
if [ -e serve ]; then TOKGATE sim --host $1 --port $2; fi
while :; do sleep 1; done
"#;
/// How many processes it has at least.
const TREE: usize = 8;

/// A process, its number made sure of by its start.
#[derive(Debug, Clone)]
pub struct Seen {
    pub pid: u32,
    pub parent: u32,
    start: u64,
    pub line: String,
}

impl Seen {
    fn lives(&self) -> bool {
        stat(self.pid).is_some_and(|(_, start)| start == self.start)
    }
}

/// Parent and start of a process that has not ended.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    (fields[0] != "Z").then_some((fields[1].parse().ok()?, fields[19].parse().ok()?))
}

/// Processes that work in a folder.
pub fn processes_in(folder: &Path) -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let (parent, start) = stat(pid)?;
            (cwd == folder).then_some(Seen { pid, parent, start, line })
        })
        .collect()
}

/// When a run is ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// While the engine starts.
    Start,
    /// In the middle of a cell.
    Cell,
}

/// A run under way, with all that it has started.
struct Run {
    project: Project,
    child: Child,
    /// What it has started, itself left out.
    tree: Vec<Seen>,
    guard: u32,
    supervisor: u32,
}

/// `grace` is what an orderly end may take; a tree without tokgate has three seconds at most.
fn suite(grace: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"orphaned\"\n[engine]\nkind = \"vllm\"\n\
         command = \"bash engine.sh {{{{ host }}}} {{{{ port }}}}\"\nstop = {{ grace = \"{grace}\" }}\n\
         [policy]\nrestarts = 0\n\
         [[test]]\nkind = \"decode\"\nduration = \"10m\"\nmatrix.concurrency = [1, 2]\n"
    ));
    project.file("engine.sh", &STUBBORN.replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate")));
    project
}

impl Run {
    /// Starts a run, its command prepared further, and waits for the moment.
    fn start(moment: Moment, grace: &str, prepare: impl FnOnce(&mut Command)) -> Run {
        let project = suite(grace);
        if moment == Moment::Cell {
            project.file("serve", "");
        }
        let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        prepare(&mut command);
        Run::follow(moment, project, command)
    }

    /// Starts the run that `command` is, in a project, and waits for the moment.
    fn follow(moment: Moment, project: Project, mut command: Command) -> Run {
        let child = command.spawn().unwrap();
        drop(command);
        let journal = project.path().join("out/journal.jsonl");
        let sign = match moment {
            Moment::Start => "\"health\"",
            Moment::Cell => "cell-started",
        };
        eventually("the moment comes", || {
            let text = std::fs::read_to_string(&journal).unwrap_or_default();
            text.contains(sign) && project.path().join("whole").exists()
        });
        let mut tree = Vec::new();
        eventually("the tree is whole", || {
            tree = processes_in(project.path());
            tree.retain(|process| !process.line.contains(" run suite.toml"));
            tree.len() >= TREE + 2
        });
        let supervising = |process: &&Seen| process.line.contains("__supervise");
        let pids: Vec<u32> = tree.iter().filter(supervising).map(|process| process.pid).collect();
        let supervisor = tree.iter().find(|p| supervising(p) && pids.contains(&p.parent)).unwrap();
        let (guard, supervisor) = (supervisor.parent, supervisor.pid);
        Run { project, child, tree, guard, supervisor }
    }

    fn tokgate(&self) -> u32 {
        self.child.id()
    }

    /// Waits until nothing of the tree is alive.
    #[track_caller]
    fn is_gone(&self, what: &str) {
        let begun = Instant::now();
        while self.tree.iter().any(Seen::lives) {
            let left: Vec<&Seen> = self.tree.iter().filter(|process| process.lives()).collect();
            assert!(begun.elapsed() < PATIENCE, "{what}: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The exit code; -1 where a signal ended it.
    fn code(&mut self) -> i32 {
        eventually("tokgate ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Asserts that the reports are whole, with both cells as errors.
    #[track_caller]
    fn has_reports(&self) {
        let out = self.project.path().join("out");
        let ran = Ran {
            code: 0,
            stdout: String::new(),
            stderr: String::new(),
            _dir: tempfile::tempdir().unwrap().into(),
            out,
        };
        assert_eq!(ran.having("error").len(), 2);
        assert!(ran.read("junit.xml").trim_end().ends_with("</testsuites>"));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in self.tree.iter().filter(|process| process.lives()) {
            send(process.pid, Signal::KILL);
        }
    }
}

fn send(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Ends a run at both moments at once, in its way; its exit code where it has one to speak of.
#[track_caller]
fn nothing_is_left(what: &str, code: Option<i32>, end: impl Fn(&mut Run) + Sync) {
    std::thread::scope(|scope| {
        for (moment, grace) in [(Moment::Start, "10m"), (Moment::Cell, "1s")] {
            let end = &end;
            scope.spawn(move || {
                let mut run = Run::start(moment, grace, |command| {
                    command.process_group(0);
                });
                end(&mut run);
                run.is_gone(what);
                let came = run.code();
                assert!(code.is_none_or(|code| code == came), "{what} {moment:?}: {came}");
                run.has_reports();
            });
        }
    });
}

fn signalled(signal: Signal, code: i32) {
    nothing_is_left(&format!("{signal:?}"), Some(code), |run| send(run.tokgate(), signal));
}

#[test]
fn nothing_outlives_sigterm() {
    signalled(Signal::TERM, 143);
}

#[test]
fn nothing_outlives_sighup() {
    signalled(Signal::HUP, 129);
}

#[test]
fn nothing_outlives_sigkill() {
    signalled(Signal::KILL, -1);
}

#[test]
fn nothing_outlives_an_abort() {
    signalled(Signal::ABORT, -1);
}

#[test]
fn nothing_outlives_a_kill_of_the_whole_process_group() {
    nothing_is_left("kill -9 of the group", Some(-1), |run| {
        let group = Pid::from_raw(run.tokgate() as i32).unwrap();
        kill_process_group(group, Signal::KILL).unwrap();
    });
}

#[test]
fn nothing_outlives_the_supervisor() {
    nothing_is_left("the supervisor", Some(30), |run| send(run.supervisor, Signal::KILL));
}

#[test]
fn nothing_outlives_the_supervisor_and_its_guard() {
    nothing_is_left("supervisor and guard", Some(30), |run| {
        send(run.guard, Signal::KILL);
        send(run.supervisor, Signal::KILL);
    });
}

#[test]
fn nothing_outlives_the_supervisor_and_tokgate() {
    nothing_is_left("the supervisor, then tokgate", Some(-1), |run| {
        send(run.supervisor, Signal::KILL);
        send(run.tokgate(), Signal::KILL);
    });
}

#[test]
fn nothing_outlives_the_guard_and_tokgate() {
    nothing_is_left("the guard, then tokgate", Some(-1), |run| {
        send(run.guard, Signal::KILL);
        send(run.tokgate(), Signal::KILL);
    });
}

#[test]
fn nothing_outlives_tokgate_whose_supervisor_is_stopped() {
    nothing_is_left("the supervisor is stopped, then tokgate killed", Some(-1), |run| {
        send(run.supervisor, Signal::STOP);
        send(run.tokgate(), Signal::KILL);
    });
}

#[test]
fn nothing_outlives_a_run_whose_watchers_are_stopped() {
    nothing_is_left("guard and supervisor are stopped, then tokgate ended", Some(143), |run| {
        send(run.guard, Signal::STOP);
        send(run.supervisor, Signal::STOP);
        send(run.tokgate(), Signal::TERM);
    });
}

/// A terminal: its master, and its slave to be given to processes.
pub fn terminal() -> (File, File) {
    use std::os::fd::AsRawFd;
    let open = |path: &str| {
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            options.read(true).write(true),
            rustix::fs::OFlags::NOCTTY.bits() as i32,
        )
        .open(path)
        .unwrap()
    };
    let master = open("/dev/ptmx");
    let (mut number, unlock) = (0u32, 0i32);
    #[allow(unsafe_code)]
    // SAFETY: both calls read or write one integer behind the pointer that they are given.
    let done = unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock)
            | libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number)
    };
    assert_eq!(done, 0);
    (master, open(&format!("/dev/pts/{number}")))
}

#[test]
fn nothing_outlives_a_terminal_that_is_closed() {
    for moment in [Moment::Start, Moment::Cell] {
        let project = suite("1s");
        if moment == Moment::Cell {
            project.file("serve", "");
        }
        let (master, slave) = terminal();
        // As a shell in a terminal starts it: a session, a controlling terminal, all streams on it.
        let mut command = Command::new("setsid");
        command.arg("-c").arg(env!("CARGO_BIN_EXE_tokgate")).current_dir(project.path());
        command.args(["run", "suite.toml", "--out", "out"]);
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        // The terminal's window: whoever reads the master.
        let mut window = Command::new("cat").stdin(master).stdout(Stdio::null()).spawn().unwrap();
        let mut run = Run::follow(moment, project, command);
        window.kill().unwrap();
        window.wait().unwrap();
        run.is_gone("terminal closed");
        assert_eq!(run.code(), 129, "{moment:?}");
        run.has_reports();
    }
}

#[test]
fn a_run_in_the_background_outlives_its_shell_and_leaves_nothing_later() {
    let project = suite("1s");
    project.file("serve", "");
    let line = format!(
        "{} run suite.toml --out out --no-progress < /dev/null & echo $! > tokgate; wait",
        env!("CARGO_BIN_EXE_tokgate")
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &line]).current_dir(project.path());
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Run::follow(Moment::Cell, project, shell);
    run.tree
        .retain(|process| !process.line.starts_with("bash -c") || !process.line.contains("wait"));
    let pid = std::fs::read_to_string(run.project.path().join("tokgate")).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    // As `nohup` and `&` are meant: it goes on, and so does what watches over its engine.
    std::thread::sleep(Duration::from_millis(300));
    assert!(stat(pid).is_some() && run.tree.iter().all(Seen::lives));
    send(pid, Signal::TERM);
    run.is_gone("tokgate without its shell");
    eventually("tokgate ends", || stat(pid).is_none());
    run.has_reports();
}

#[test]
fn what_is_left_after_all_watchers_were_killed_at_once_is_ended_by_the_next_run() {
    let mut run = Run::start(Moment::Cell, "1s", |_| {});
    // Nobody may see the other's end.
    let watchers = [run.tokgate(), run.guard, run.supervisor];
    watchers.iter().for_each(|pid| send(*pid, Signal::STOP));
    watchers.iter().for_each(|pid| send(*pid, Signal::KILL));
    assert_eq!(run.code(), -1);
    run.tree.retain(|process| !watchers.contains(&process.pid));
    let left = run.tree.iter().filter(|process| process.lives()).count();
    assert!(left > 3, "the engine's own process alone is bound to its supervisor: {left}");

    let next = Project::with(
        "version = 1\n[suite]\nname = \"next\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         [[test]]\nkind = \"startup\"\n",
    );
    let ran = next.run(&[]).exits(0);
    assert!(
        ran.stderr.contains("warning: ended what an earlier run left behind: "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("(sleep)"), "{}", ran.stderr);
    run.is_gone("the next run");
}

#[test]
fn a_run_whose_guard_is_killed_goes_on_as_if_nothing_had_happened() {
    let project = Project::with(
        "version = 1\n[suite]\nname = \"unguarded\"\n[engine]\nkind = \"vllm\"\n\
         command = \"bash engine.sh {{ host }} {{ port }}\"\n[policy]\nrestarts = 0\n\
         [[test]]\nkind = \"startup\"\n",
    );
    let sim = env!("CARGO_BIN_EXE_tokgate");
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    project.file("engine.sh", &format!("touch begun; {wait}\n{sim} sim --host $1 --port $2\n"));
    let child = project
        .command(&["run", "suite.toml", "--out", "out", "--no-progress"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the engine begins", || project.path().join("begun").exists());
    let all = processes_in(project.path());
    let guard = all.iter().find(|process| process.parent == child.id()).unwrap();
    send(guard.pid, Signal::KILL);
    project.file("go", "");
    let ran = project.ran(child.wait_with_output().unwrap()).exits(0);
    assert_eq!(ran.having("measured").len(), 1);
    let said = ran.stdout.clone() + &ran.stderr;
    assert!(!said.contains("still") && !said.contains("supervisor"), "{said}");
    assert!(processes_in(project.path()).is_empty());
}
