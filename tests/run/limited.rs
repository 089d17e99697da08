//! A client that is the limit itself: its cell is an error, whatever the figures say.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Project, Ran, eventually};

/// The bound is close to what the engine does, so that a lag of the client could change the verdict.
const SUITE: &str = r#"version = 1
[suite]
name = "limited"
[engine]
kind = "sim"
profile = "engine.toml"
[[test]]
kind = "decode"
duration = "2s"
min-tokens = 20
matrix.concurrency = [4]
[[expect]]
metric = "itl.p50"
max = "11ms"
"#;

const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
[prefill]
tokens = [16, "1K"]
ms = [4, 4]
[admit]
at = [1]
grid = [["1K", 5]]
[step]
at = [1]
grid = [["1K", 10]]
"#;

#[test]
fn a_client_that_is_kept_from_its_work_was_the_limit() {
    let project = Project::with(SUITE);
    project.file("engine.toml", ENGINE);
    let mut command =
        project.command(&["run", "suite.toml", "--out", "out", "--no-progress", "--seed", "7"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A stopped process is away for certain, however many cores there are; the engine goes on.
    let process = Pid::from_child(&child);
    while child.try_wait().unwrap().is_none() {
        for signal in [Signal::STOP, Signal::CONT] {
            kill_process(process, signal).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let ran = project.ran(child.wait_with_output().unwrap()).exits(31);
    assert_eq!(ran.having("error").len(), 1, "{:?}", ran.verdicts());
    let junit = ran.read("junit.xml");
    let told = "the client was the limit: client lag ";
    assert!(junit.contains(told) && junit.contains("at most, 5ms allowed"), "{junit}");
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}

/// A simulated engine in a process of its own.
struct Server(Child, u16);

impl Server {
    fn start(project: &Project) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["sim", "--profile", "engine.toml", "--port", &port.to_string()];
        let mut command = project.command(&arguments);
        let server = Server(command.stderr(Stdio::null()).spawn().unwrap(), port);
        eventually("the engine serves", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Frozen {
    Client,
    Engine,
    Both,
}

/// Runs a test, and stops somebody for five seconds in the middle of its window. What came meanwhile a
/// client reads in two pieces or three, each of which has a stamp.
fn freeze(who: Frozen, test: &str) -> Ran {
    let project = Project::new();
    project.file("engine.toml", ENGINE);
    let server = Server::start(&project);
    project.file(
        "suite.toml",
        &format!(
            "version = 1\n[suite]\nname = \"frozen\"\n[engine]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:{}\"\n\
             [[test]]\n{test}",
            server.1
        ),
    );
    let mut command =
        project.command(&["run", "suite.toml", "--out", "out", "--no-progress", "-v"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("window") {
        assert_ne!(lines.read_line(&mut stderr).unwrap(), 0, "no window opened: {stderr}");
    }
    let stopped: Vec<Pid> = match who {
        Frozen::Client => vec![Pid::from_child(&child)],
        Frozen::Engine => vec![Pid::from_child(&server.0)],
        Frozen::Both => vec![Pid::from_child(&child), Pid::from_child(&server.0)],
    };
    for signal in [Signal::STOP, Signal::CONT] {
        stopped.iter().for_each(|process| kill_process(*process, signal).unwrap());
        std::thread::sleep(AWAY);
    }
    lines.read_to_string(&mut stderr).unwrap();
    let output = child.wait_with_output().unwrap();
    project.ran(Output { stderr: stderr.into_bytes(), ..output })
}

const AWAY: Duration = Duration::from_secs(5);
const DECODE: &str = "kind = \"decode\"\nduration = \"8s\"\nmax-output = 4096\nmin-tokens = 20\nmatrix.concurrency = [4]\n";
const SERVE: &str =
    "kind = \"serve\"\nduration = \"8s\"\ninput = 256\noutput = 64\nmatrix.concurrency = [4]\n";

fn expect(metric: &str, bound: &str) -> String {
    format!("[[expect]]\nmetric = \"{metric}\"\n{bound}\n")
}

#[test]
fn a_client_that_was_stopped_is_no_stall_of_the_engine() {
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // Nothing is expected that it could have changed.
            let ran = freeze(Frozen::Client, DECODE).exits(0);
            let record = ran.read("record.json");
            assert!(record.contains("this program itself did not run"), "{record}");
        });
        for test in [DECODE, SERVE] {
            threads.spawn(move || {
                let near = expect("chunk-gap.max", "max = \"200ms\"");
                let ran = freeze(Frozen::Client, &format!("{test}{near}")).exits(31);
                let junit = ran.read("junit.xml");
                assert!(junit.contains("the client was the limit: client lag"), "{junit}");
            });
        }
    });
}

#[test]
fn a_machine_that_was_stopped_is_no_loss_of_the_engine() {
    // More than half of the window is lost.
    let near = expect("output-throughput", "min = 320");
    let ran = freeze(Frozen::Both, &format!("{DECODE}{near}")).exits(31);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("the client was the limit: client lag"), "{junit}");
}

#[test]
fn an_engine_that_was_stopped_has_stalled() {
    std::thread::scope(|threads| {
        for test in [DECODE, SERVE] {
            threads.spawn(move || {
                let far = expect("output-throughput", "min = 1");
                let ran = freeze(Frozen::Engine, &format!("{test}{far}")).exits(10);
                let junit = ran.read("junit.xml");
                assert!(junit.contains("longest gap between events 5"), "{junit}");
            });
        }
    });
}
