//! Runs that are told to stop, in each phase of their life.

mod closed;
mod hurried;
mod limits;
mod orphans;
mod phases;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Project;

/// Signals that interrupt a run, and what it exits with.
const SIGNALS: [(Signal, i32); 3] = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)];

/// What a halted run may take; who asked sends SIGKILL later.
const LIMIT: Duration = Duration::from_secs(7);

/// Waits until `holds`, as long as a busy machine may need.
#[track_caller]
fn reached(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(15));
    }
}

/// The profile of an engine that takes so many milliseconds for a prompt of 1K, a wave and a step.
fn profile(prefill: u64, wave: u64, step: u64, more: &str) -> String {
    format!(
        "version = \"0.29.0\"\nmax-model-len = \"32K\"\nkv-capacity = \"128K\"\n\
         [prefill]\ntokens = [16, 512, \"1K\"]\nms = [1, 2, {prefill}]\n\
         [admit]\nat = [1]\ngrid = [[64, 1], [512, 2], [\"1K\", {wave}]]\n\
         [step]\nat = [1]\ngrid = [[64, 2], [512, 2], [\"1K\", {step}]]\n{more}"
    )
}

/// A project whose engine has `slow` as its profile until the file `calm` is there. Before that it does not
/// listen while `unready` is there, and ignores TERM while `deaf` is.
fn project(engine: &str, tests: &str, slow: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"halted\"\n[engine]\nkind = \"vllm\"\n{engine}\n{tests}"
    ));
    project.file("slow.toml", slow);
    project.file("calm.toml", &profile(2, 2, 2, ""));
    let engine = r#"touch started
if [ -e calm ]; then exec TOKGATE sim --host "$1" --port "$2" --profile calm.toml; fi
if [ -e unready ]; then sleep 3141; fi
if [ -e deaf ]; then trap '' TERM; TOKGATE sim --host "$1" --port "$2" --profile slow.toml & sleep 3142; fi
exec TOKGATE sim --host "$1" --port "$2" --profile slow.toml
"#;
    project.file("engine.sh", &engine.replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate")));
    project
}

/// How the engine of [`project`] is started.
const COMMAND: &str = "command = \"bash engine.sh {{ host }} {{ port }}\"";
/// The launch itself as a cell, finished before all others.
const STARTUP: &str = "[[test]]\nkind = \"startup\"\n";

/// A run whose streams go to files, so that nobody has to read them.
struct Running<'a> {
    project: &'a Project,
    child: Child,
}

impl<'a> Running<'a> {
    /// `tokgate run suite.toml --out out -v` with more arguments.
    fn start(project: &'a Project, more: &[&str]) -> Running<'a> {
        let mut arguments = vec!["run", "suite.toml", "--out", "out", "-v", "--no-progress"];
        arguments.extend(more);
        let mut command = project.command(&arguments);
        let file = |name: &str| Stdio::from(File::create(project.path().join(name)).unwrap());
        command.stdout(file("stdout.txt")).stderr(file("stderr.txt"));
        Running { project, child: command.spawn().unwrap() }
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.project.path().join(file)).unwrap_or_default()
    }

    fn journal(&self) -> String {
        self.text("out/journal.jsonl")
    }

    fn said(&self) -> String {
        self.text("stderr.txt")
    }

    /// Waits until the journal has a word.
    #[track_caller]
    fn until_journal(&self, word: &str) {
        reached(word, || self.journal().contains(word));
    }

    /// Waits until it has said a word.
    #[track_caller]
    fn until_said(&self, word: &str) {
        reached(word, || self.said().contains(word));
    }

    #[track_caller]
    fn until_file(&self, name: &str) {
        reached(name, || self.project.path().join(name).exists());
    }

    fn send(&self, signal: Signal) {
        // One that has ended already is told by what it exits with.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Its exit code, and how long it took to end from now on.
    #[track_caller]
    fn ends(&mut self) -> (i32, Duration) {
        let begin = Instant::now();
        reached("the run ends", || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), begin.elapsed())
    }

    /// Has a signal end it.
    #[track_caller]
    fn ended_by(&mut self, signal: Signal, code: i32) {
        self.send(signal);
        let (got, took) = self.ends();
        assert_eq!(got, code, "{signal:?}\n{}\n{}", self.said(), self.journal());
        assert!(took < LIMIT, "it took {took:?}\n{}", self.said());
    }

    fn out(&self) -> PathBuf {
        self.project.path().join("out")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A test that fails leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `(test, verdict, message)` of each cell in the reports, all of which are read whole and say the same.
#[track_caller]
fn cells(out: &std::path::Path) -> Vec<(String, String, String)> {
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&read("record.json")).unwrap();
    let planned = record["header"]["cells"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let cells: Vec<_> = planned
        .iter()
        .zip(record["cells"].as_array().unwrap())
        .map(|(planned, cell)| {
            let judgement = &cell["judgement"];
            (text(&planned["test"]), text(&judgement["verdict"]), text(&judgement["message"]))
        })
        .collect();
    assert_eq!(planned.len(), cells.len());
    let junit = quick_junit::Report::deserialize_from_str(&read("junit.xml")).unwrap();
    let errors = cells.iter().filter(|cell| cell.1 == "error").count();
    // Each launch is a case of its own.
    let launches = record["launches"].as_array().unwrap().len();
    assert!((errors..=errors + launches).contains(&junit.errors), "{}", read("junit.xml"));
    let cases = junit.test_suites.iter().map(|suite| suite.test_cases.len()).sum::<usize>();
    assert_eq!(cases, cells.len() + launches);
    let summary = read("summary.md");
    assert!(summary.ends_with('\n') && summary.contains("halted"), "{summary}");
    assert_eq!(summary.matches("```").count() % 2, 0, "{summary}");
    cells
}

/// Processes that run in the project's folder.
fn left(project: &Project) -> Vec<String> {
    let folder = project.path().canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder))
        .filter_map(|process| std::fs::read(process.join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| !line.is_empty())
        .collect()
}
