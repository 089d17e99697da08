//! `tokgate try`, as somebody meets it who has an engine and no suite.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;

use crate::harness::{Project, Ran, eventually};

/// A tenth of the two minutes.
const SHORT: [&str; 3] = ["try", "--minutes", "0.1"];

/// So slow that a busy machine's lateness is a small part of each of its times.
const ENGINE: &str = r#"
version = "0.29.0"
max-model-len = "32K"
kv-capacity = "128K"
[prefill]
tokens = [16, "1K", "32K"]
ms = [60, 150, 5000]
[admit]
at = [1, 4, 64]
grid = [["1K", 60, 80, 300], ["32K", 200, 300, 2000]]
[step]
at = [1, 4, 64]
grid = [["1K", 30, 33, 60], ["32K", 45, 60, 200]]
[noise]
within = "1%"
first-token = "2%"
"#;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The simulated engine, over TCP.
struct Engine {
    child: Child,
    url: String,
}

impl Engine {
    fn start(project: &Project, more: &[&str]) -> Engine {
        Engine::like(ENGINE, project, more)
    }

    fn like(profile: &str, project: &Project, more: &[&str]) -> Engine {
        let port = free_port();
        project.file("engine.toml", profile);
        let mut command = project.command(&[
            "sim",
            "--profile",
            "engine.toml",
            "--model",
            "org/model",
            "--port",
            &port.to_string(),
        ]);
        let child = command.args(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the engine serves", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Engine { child, url: format!("http://127.0.0.1:{port}") }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tried(project: &Project, arguments: &[&str]) -> Ran {
    let ran = project.tokgate(&[&SHORT, arguments].concat());
    Ran { out: project.path().join("tokgate-out/try"), ..ran }
}

/// The suite that was written is right, runs, and the same engine keeps it. The last is asked of it in virtual time:
/// a machine that is busier now than it was while the limits were made says nothing of them.
fn holds(project: &Project, suite: &str) {
    let checked = project.tokgate(&["check", suite]).exits(0);
    assert_eq!(checked.stderr, "");
    let ran = project.tokgate(&["run", suite, "--no-progress"]);
    assert!([0, 10, 11, 31].contains(&ran.code), "{}: {}", ran.code, ran.stderr);
    let still = format!(
        "version = 1\nextends = \"{suite}\"\n[suite]\nname = \"still\"\n[engine]\nkind = \"sim\"\n\
         profile = \"engine.toml\"\nclock = \"virtual\"\n"
    );
    project.file("still.toml", &still);
    let ran = project.tokgate(&["run", "still.toml", "--no-progress"]).exits(0);
    assert!(
        ran.stderr.contains(" passed, 0 skipped, 0 failed, 0 inconclusive, 0 errors"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_endpoint_becomes_a_suite_that_it_keeps() {
    let project = Project::new();
    let engine = Engine::start(&project, &[]);
    let ran = tried(&project, &["--url", &engine.url, "--write", "gate.toml"]).exits(0);
    assert!(ran.stderr.contains("found: vllm 0.29.0, org/model, "), "{}", ran.stderr);
    assert!(ran.stderr.contains("tokgate run gate.toml"), "{}", ran.stderr);
    assert!(ran.stdout.contains("total tok/s"), "the page's table: {}", ran.stdout);
    assert!(ran.read("report.html").contains("</html>"));
    assert!(ran.having("measured").len() >= 2, "{:?}", ran.verdicts());
    let suite = std::fs::read_to_string(project.path().join("gate.toml")).unwrap();
    for part in
        ["name = \"gate\"", &engine.url, "slack = ", "min.grid", "max.grid", "tokgate selftest"]
    {
        assert!(suite.contains(part), "{part}:\n{suite}");
    }
    holds(&project, "gate.toml");
    // Each limit can be asked what it sees.
    let selftest = project.tokgate(&["selftest", "tokgate-out/still", "--worse", "80%"]);
    for limit in ["prompts prefill-throughput", "tokens output-throughput", "first-token ttft.p50"]
    {
        assert!(selftest.stdout.contains(limit), "{}", selftest.stdout);
    }
}

#[test]
fn a_command_is_started_asked_and_written_down() {
    let project = Project::new();
    let tokgate = env!("CARGO_BIN_EXE_tokgate");
    let port = free_port().to_string();
    project.file("engine.toml", ENGINE);
    let command =
        ["--write", "gate.toml", "--", tokgate, "sim", "--profile", "engine.toml", "--port", &port];
    let ran = tried(&project, &command).exits(0);
    let verdicts = ran.verdicts();
    assert!(verdicts.iter().any(|it| it.starts_with("startup")), "{verdicts:?}");
    let suite = std::fs::read_to_string(project.path().join("gate.toml")).unwrap();
    assert!(suite.contains("\"--port\", \"{{ port }}\"]"), "{suite}");
    assert!(suite.contains(&format!("port = {port}")), "{suite}");
    assert!(suite.contains("metric = \"ready-time\""), "{suite}");
    holds(&project, "gate.toml");
}

#[test]
fn an_engine_that_is_slow_to_load_is_loaded_once() {
    let project = Project::new();
    let tokgate = env!("CARGO_BIN_EXE_tokgate");
    project.file("engine.toml", ENGINE);
    // Each start leaves a line.
    let script =
        format!("echo start >> starts; exec {tokgate} sim --profile engine.toml --port $0");
    let command = ["--write", "gate.toml", "--", "sh", "-c", &script, "{{ port }}"];
    let ran = tried(&project, &command).exits(0);
    let starts = || std::fs::read_to_string(project.path().join("starts")).unwrap().lines().count();
    assert_eq!(starts(), 1, "{}", ran.stderr);
    // Its start is among the figures, and its log where that of a run is.
    let record = ran.record();
    let launch = &record["launches"][0];
    assert!(launch["ready-time"].as_f64().unwrap() > 0.0, "{launch}");
    assert!(ran.out.join(launch["log"].as_str().unwrap()).exists(), "{launch}");
    assert!(ran.verdicts().iter().any(|it| it.starts_with("startup")), "{:?}", ran.verdicts());
    // Nothing of it is left.
    holds(&project, "gate.toml");
    assert_eq!(starts(), 2);
}

#[test]
fn without_a_terminal_and_without_write_nothing_is_written_but_said() {
    let project = Project::new();
    let engine = Engine::start(&project, &[]);
    let ran = tried(&project, &["--url", &engine.url]).exits(0);
    assert!(ran.stderr.contains("the same command with --write tokgate.toml"), "{}", ran.stderr);
    assert!(!project.path().join("tokgate.toml").exists());
}

/// A trial in a terminal, in which somebody answers: each answer to the question that ends like this. The exit
/// code, and what stood on the screen.
fn in_a_terminal(project: &Project, url: &str, answers: &[(&str, Answer)]) -> (i32, String) {
    let (master, slave) = crate::faults::orphaned::terminal();
    let mut command = project.command(&[&SHORT[..], &["--url", url]].concat());
    command.env("TERM", "xterm");
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut screen, mut keys) = (master.try_clone().unwrap(), master);
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    let mut left = answers.iter();
    let mut next = left.next();
    // A terminal that nobody has open any more is an error to its reader.
    while let Ok(n) = screen.read(&mut buffer) {
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        if let Some((question, answer)) = next
            && seen.trim_end().ends_with(question)
        {
            match answer {
                Answer::Line(line) => keys.write_all(format!("{line}\n").as_bytes()).unwrap(),
                Answer::Interrupt => {
                    let pid = rustix::process::Pid::from_child(&child);
                    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
                }
            }
            next = left.next();
        }
    }
    assert!(next.is_none(), "not asked: {seen}");
    (child.wait().unwrap().code().unwrap_or(-1), seen)
}

enum Answer {
    Line(&'static str),
    Interrupt,
}

#[test]
fn a_terminal_is_asked() {
    let project = Project::new();
    project.file("there.toml", "mine");
    let engine = Engine::start(&project, &[]);
    let answers = [
        ("[y/N]", Answer::Line("y")),
        ("Path [tokgate.toml]:", Answer::Line("there.toml")),
        ("Path [tokgate.toml]:", Answer::Line("")),
    ];
    let (code, seen) = in_a_terminal(&project, &engine.url, &answers);
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains("there.toml is there already"), "{seen}");
    assert_eq!(std::fs::read_to_string(project.path().join("there.toml")).unwrap(), "mine");
    holds(&project, "tokgate.toml");
}

#[test]
fn a_question_ends_with_an_interrupt_and_nothing_is_written() {
    let project = Project::new();
    let engine = Engine::start(&project, &[]);
    let (code, seen) = in_a_terminal(&project, &engine.url, &[("[y/N]", Answer::Interrupt)]);
    assert_eq!(code, 130, "{seen}");
    assert!(!project.path().join("tokgate.toml").exists());
}

#[test]
fn a_key_is_named_and_never_written() {
    let project = Project::new();
    let engine = Engine::start(&project, &["--api-key", "k3y-of-the-engine"]);
    let url = ["--url", &engine.url];
    let locked = tried(&project, &url).exits(22);
    assert!(locked.stderr.contains("wants an api key"), "{}", locked.stderr);
    assert!(locked.stderr.contains("--api-key-env API_KEY"), "{}", locked.stderr);
    let unset = tried(&project, &["--api-key-env", "NOT_SET", url[0], url[1]]).exits(20);
    assert!(unset.stderr.contains("export NOT_SET="), "{}", unset.stderr);
    let bare = tried(&project, &["--api-key-env", "k3y-of-the-engine", url[0], url[1]]).exits(20);
    assert!(bare.stderr.contains("takes the name of an environment variable"), "{}", bare.stderr);

    let run = |key: &str, more: &[&str]| {
        let mut command =
            project.command(&[&SHORT[..], &url, &["--api-key-env", "MY_KEY"], more].concat());
        project.ran(command.env("MY_KEY", key).output().unwrap())
    };
    let wrong = run("another-key", &[]).exits(22);
    assert!(wrong.stderr.contains("was refused"), "{}", wrong.stderr);
    run("k3y-of-the-engine", &["--write", "gate.toml"]).exits(0);
    let suite = std::fs::read_to_string(project.path().join("gate.toml")).unwrap();
    assert!(suite.contains("api_key = { env = \"MY_KEY\" }"), "{suite}");
    let mut texts = vec![suite];
    for name in ["record.json", "journal.jsonl", "suite.toml", "report.html"] {
        let path = project.path().join("tokgate-out/try").join(name);
        texts.push(std::fs::read_to_string(path).unwrap());
    }
    assert!(texts.iter().all(|text| !text.contains("k3y-of-the-engine")));
}

#[test]
fn an_interrupt_while_the_engine_starts_leaves_nothing() {
    let project = Project::new();
    // Seconds that nobody else sleeps.
    let mark = format!("9{}", std::process::id());
    let lives = || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        let words = format!("sleep\0{mark}\0").into_bytes();
        lines.filter(|line| line.starts_with(&words)).count() > 0
    };
    let script = format!("sleep {mark}; : {{{{ port }}}}");
    let mut command = project.command(&["try", "--", "sh", "-c", &script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the engine starts", lives);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    project.ran(child.wait_with_output().unwrap()).exits(130);
    assert!(!lives());
}

#[test]
fn a_secret_in_the_command_is_refused() {
    let project = Project::new();
    let ran = tried(
        &project,
        &["--", "vllm", "serve", "m", "--api-key", "sk-1234567890abcdef", "--port", "1"],
    );
    let ran = ran.exits(20);
    assert!(ran.stderr.contains("'{{ secret.api_key }}'"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("sk-1234567890abcdef"), "{}", ran.stderr);
    assert!(!project.path().join("tokgate-out/try/suite.toml").exists());
}

#[test]
fn whatever_can_not_be_tried_says_what_to_write() {
    let project = Project::new();
    let says = |arguments: &[&str], code: i32, words: &[&str]| {
        let ran = tried(&project, arguments).exits(code);
        for word in words {
            assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
    };
    says(&[], 20, &["no engine to try", "--url http://127.0.0.1:8000"]);
    says(&["--url", "127.0.0.1:8000"], 20, &["begins with http://: --url http://127.0.0.1:8000"]);
    says(&["llama-server"], 20, &["no url", "tokgate try -- llama-server"]);
    says(&["--url", "https://example.org"], 20, &["plain http"]);
    let dead = format!("http://127.0.0.1:{}", free_port());
    says(&["--url", &dead], 30, &["no engine answers", "start the engine first"]);
    says(
        &["--", "llama-server", "-m", "x"],
        20,
        &["nothing tells the engine its port", "--port 8000"],
    );
    says(&["--", "no-such-program", "--port", "{{", "port", "}}"], 30, &["no-such-program"]);
    says(
        &["--", "sh", "-c", "echo out of memory; exit 3 # {{ port }}"],
        30,
        &["did not start", "code 3", "| out of memory"],
    );
    project.file("there.toml", "mine");
    says(&["--url", &dead, "--write", "there.toml"], 20, &["not replaced"]);
    assert_eq!(std::fs::read_to_string(project.path().join("there.toml")).unwrap(), "mine");
    let engine = Engine::start(&project, &[]);
    says(
        &["--url", &engine.url, "--model", "other"],
        22,
        &["no model `other`", "write --model org/model"],
    );
}

#[test]
fn an_engine_that_is_too_slow_for_the_time_is_told_before_it_is_measured() {
    let project = Project::new();
    let slow = ENGINE.replace("ms = [60, 150, 5000]", "ms = [4000, 4000, 9000]");
    let engine = Engine::like(&slow, &project, &[]);
    let ran = project.tokgate(&["try", "--minutes", "0.05", "--url", &engine.url]).exits(32);
    assert!(ran.stderr.contains("too slow for 3s"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--minutes 10"), "{}", ran.stderr);
}

#[test]
fn an_engine_that_only_chats_is_measured_by_chat() {
    let project = Project::new();
    let engine = Engine::start(&project, &[]);
    let front = Front::before(&engine.url, |path| path == "/v1/completions");
    let ran = tried(&project, &["--url", &front, "--write", "gate.toml"]).exits(0);
    assert!(ran.stderr.contains("no /v1/completions, so that the chat API"), "{}", ran.stderr);
    let suite = std::fs::read_to_string(project.path().join("gate.toml")).unwrap();
    assert!(suite.contains("api = \"chat\""), "{suite}");
    assert!(ran.having("measured").len() >= 2, "{:?}", ran.verdicts());
}

/// A server in front of an engine that lacks some paths.
struct Front;

impl Front {
    fn before(engine: &str, lacks: fn(&str) -> bool) -> String {
        let engine = engine.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let engine = engine.clone();
                thread::spawn(move || Front::pass(client, &engine, lacks));
            }
        });
        url
    }

    /// Passes on what comes, request by request; the first line tells the path.
    fn pass(mut client: TcpStream, engine: &str, lacks: fn(&str) -> bool) {
        client.set_nodelay(true).unwrap();
        let mut behind = TcpStream::connect(engine).unwrap();
        behind.set_nodelay(true).unwrap();
        let (mut from, mut to) = (behind.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = client.read(&mut buffer).unwrap_or(0);
            if n == 0 {
                let _ = behind.shutdown(std::net::Shutdown::Both);
                return;
            }
            // A request begins with a read of its own: nobody sends the next one before the answer.
            let line = String::from_utf8_lossy(&buffer[..n.min(200)]).into_owned();
            if line.split(' ').nth(1).is_some_and(lacks) && line.starts_with("POST /") {
                let _ = client.write_all(
                    b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
                let _ = client.shutdown(std::net::Shutdown::Both);
                return;
            }
            if behind.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    }
}
