//! A project in a temporary folder, and tokgate run in it as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;

/// Many tests are about signals, which whoever started the tests may ignore: `nohup`, or a script that
/// sent them into the background. From now on what is started here hears them.
#[allow(unsafe_code)]
pub fn hear_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed, only the default is restored.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The executable under test.
pub fn tokgate() -> Command {
    hear_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokgate"));
    command.stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("CI");
    // Those of a pipeline that runs these tests.
    command.env_remove("GITHUB_STEP_SUMMARY").env_remove("CI_PROJECT_DIR");
    command
}

/// A folder with suites in it.
pub struct Project {
    dir: Arc<tempfile::TempDir>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 where a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    /// Its output directory.
    pub out: PathBuf,
    /// Keeps the folder.
    pub _dir: Arc<tempfile::TempDir>,
}

impl Project {
    /// An empty folder.
    pub fn new() -> Project {
        hear_signals();
        Project { dir: Arc::new(tempfile::tempdir().unwrap()) }
    }

    /// A folder with one `suite.toml`.
    pub fn with(suite: &str) -> Project {
        let project = Project::new();
        project.file("suite.toml", suite);
        project
    }

    /// Writes a file.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What a child process of it came to.
    pub fn ran(&self, output: std::process::Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            out: self.dir.path().join("out"),
            _dir: Arc::clone(&self.dir),
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `tokgate` with these arguments, in the folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tokgate();
        command.current_dir(self.dir.path()).args(arguments);
        command
    }

    /// Runs `tokgate` to its end.
    pub fn tokgate(&self, arguments: &[&str]) -> Ran {
        self.ran(self.command(arguments).output().unwrap())
    }

    /// `tokgate run suite.toml --out out` with more arguments.
    pub fn run(&self, more: &[&str]) -> Ran {
        let mut arguments = vec!["run", "suite.toml", "--out", "out", "--no-progress"];
        arguments.extend(more);
        self.tokgate(&arguments)
    }
}

impl Ran {
    /// A file of the output directory.
    pub fn read(&self, name: &str) -> String {
        let path = self.out.join(name);
        std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", path.display(), self.stderr))
    }

    /// The record.
    pub fn record(&self) -> Value {
        serde_json::from_str(&self.read("record.json")).unwrap()
    }

    /// `test id verdict` of each cell, in order.
    pub fn verdicts(&self) -> Vec<String> {
        let record = self.record();
        let planned = record["header"]["cells"].as_array().unwrap();
        let cells = record["cells"].as_array().unwrap();
        assert_eq!(planned.len(), cells.len());
        planned
            .iter()
            .zip(cells)
            .map(|(planned, cell)| {
                format!(
                    "{} {} {}",
                    planned["test"].as_str().unwrap(),
                    planned["id"].as_str().unwrap(),
                    cell["judgement"]["verdict"].as_str().unwrap()
                )
            })
            .collect()
    }

    /// Those of the cells with this verdict, without it.
    pub fn having(&self, verdict: &str) -> Vec<String> {
        let suffix = format!(" {verdict}");
        self.verdicts()
            .iter()
            .filter_map(|cell| cell.strip_suffix(&suffix).map(str::to_owned))
            .collect()
    }

    /// Asserts the exit code, showing everything where it is another.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// A file of the project under test.
pub fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Waits until `holds`, at most ten seconds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{what}: not within ten seconds");
}
