//! Variants whose engines are running already: each cell is asked of both in turn.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use super::{ENGINE, SLOWER, cell, events, mean, measured, round, verdict};
use crate::harness::{Project, Ran, eventually};

/// A simulated engine in a process of its own.
struct Server(Child, u16);

impl Server {
    fn start(project: &Project, profile: &str) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["sim", "--profile", profile, "--port", &port.to_string()];
        let mut command = project.command(&arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(command.spawn().unwrap(), port);
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

/// Runs both, each round of a cell with a window of so long and so many tokens; `more` is what the candidate's
/// profile has beside the baseline's.
fn run(more: &str, duration: &str, tokens: u32) -> Ran {
    let project = Project::new();
    project.file("engine.toml", ENGINE);
    project.file("new.toml", &format!("{}{more}", ENGINE));
    let (old, new) = (Server::start(&project, "engine.toml"), Server::start(&project, "new.toml"));
    project.file(
        "suite.toml",
        &format!(
            r#"version = 1
[suite]
name = "running"
[policy]
max-client-lag = "10s"
[engine]
kind = "vllm"
url = "http://127.0.0.1:1"
[variant.old]
engine.url = "http://127.0.0.1:{}"
[variant.new]
engine.url = "http://127.0.0.1:{}"
[compare]
baseline = "old"
candidate = "new"
min-mean-ratio = 0.9
[[test]]
kind = "decode"
duration = "{duration}"
min-tokens = {tokens}
matrix.concurrency = [1, 2]
[[expect]]
metric = "output-throughput"
min-ratio = 0.9
"#,
            old.1, new.1
        ),
    );
    project.run(&[])
}

/// `new 1 0` for the first round of a cell, in the order of measuring.
fn order(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let finished = events(ran, "cell-finished");
    let told = finished.iter().map(|event| {
        let at = usize::try_from(event["cell"].as_u64().unwrap()).unwrap();
        let planned = &record["header"]["cells"][at];
        let id = planned["id"].as_str().unwrap().strip_prefix("concurrency=").unwrap();
        format!("{} {id} {}", planned["variant"].as_str().unwrap(), round(event))
    });
    told.collect()
}

#[test]
fn cells_are_asked_of_both_in_turn_and_the_slower_engine_is_found() {
    // Far slower than a busy machine could make the other one.
    let ran = run(&SLOWER.replace("10%", "400%"), "300ms", 10).exits(10);
    assert_eq!(
        order(&ran)[..8],
        ["new 1 0", "old 1 0", "old 1 1", "new 1 1", "new 1 2", "old 1 2", "old 1 3", "new 1 3"]
    );
    assert_eq!(order(&ran).len(), 16);
    assert!(
        ran.having("fail").contains(&"decode concurrency=2".to_owned()),
        "{:?}",
        ran.verdicts()
    );
    let (_, message) = verdict(&ran, "new decode concurrency=2");
    assert!(message.contains(" of old's ") && message.contains("4 pairs"), "{message}");
    for name in ["old decode concurrency=1", "new decode concurrency=1"] {
        assert_eq!(cell(&ran, name)["rounds"].as_array().unwrap().len(), 4);
        assert_eq!(measured(&ran, name), 4, "a prompt that is remembered would break it");
    }
    assert_ne!(mean(&ran).0, "pass", "{:?}", mean(&ran));
}

#[test]
fn an_engine_that_dies_costs_its_cells_and_the_other_is_asked_on() {
    // However slow the machine is, a round takes its 40 tokens and a few more: it ends in the third one or
    // about it.
    let ran = run("[[fault]]\nkind = \"crash\"\nat-token = 150\n", "50ms", 40).exits(30);
    let dead = "new decode concurrency=1";
    let (found, message) = verdict(&ran, dead);
    assert_eq!(found, "error");
    assert!(
        message.contains("in launch ") && message.contains(" of 4: the engine does"),
        "{message}"
    );
    assert!(measured(&ran, dead) >= 1);
    let (found, message) = verdict(&ran, "new decode concurrency=2");
    assert_eq!(found, "error");
    assert!(message.starts_with("not run: launch new failed in its launch "), "{message}");
    for name in ["old decode concurrency=1", "old decode concurrency=2"] {
        assert_eq!((verdict(&ran, name).0.as_str(), measured(&ran, name)), ("measured", 4));
    }
}
