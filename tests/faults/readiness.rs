//! Engines that seem to be ready, and those that never are.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::odd;
use crate::harness::{Project, Ran, eventually};

const TEST: &str = "[[test]]\nkind = \"startup\"\n";

fn suite(engine: &str) -> Project {
    Project::with(&format!("version = 1\n[suite]\nname = \"readiness\"\n{engine}\n{TEST}"))
}

/// A project whose engine is a bash script `engine.sh HOST PORT`; `SIM` is the simulated engine.
fn scripted(script: &str, more: &str) -> Project {
    let project = suite(&format!(
        "[engine]\nkind = \"openai\"\ncommand = \"bash engine.sh {{{{ host }}}} {{{{ port }}}}\"\n\
         stop = {{ grace = \"1s\" }}\n{more}"
    ));
    project.file(
        "engine.sh",
        &script.replace("SIM", &format!("{} sim", env!("CARGO_BIN_EXE_tokgate"))),
    );
    project
}

/// Step and message of the launch that failed.
#[track_caller]
fn failure(ran: &Ran) -> (String, String) {
    let record = ran.record();
    let failure = &record["launches"][0]["failure"];
    let text = |key: &str| failure[key].as_str().unwrap_or_else(|| panic!("{record}")).to_owned();
    (text("step"), text("message"))
}

/// Runs odd engines that are never ready, side by side: at which step and with which words each is
/// given up.
fn given_up(odds: &[(&str, &str, &str)]) {
    std::thread::scope(|scope| {
        for (odd, step, words) in odds {
            scope.spawn(move || {
                let ran = suite(&odd::engine(odd, "2s")).run(&[]).exits(30);
                let (at, message) = failure(&ran);
                assert_eq!(at, *step, "{odd}: {message}");
                assert!(message.contains(words), "{odd}: {message}");
                assert_eq!(ran.having("error").len(), 1, "{odd}");
            });
        }
    });
}

#[test]
fn a_server_that_never_answers_is_given_up_at_the_step_where_it_fell_silent() {
    let mute = |path: &str| format!("not ready within 2s; last seen: no answer to {path} for ");
    let [health, models] = [mute("GET /health"), mute("GET /v1/models")];
    given_up(&[
        ("deaf", "health", &health),
        ("mute-health", "health", &health),
        ("mute-models", "models", &models),
        ("mute-canary", "canary", &mute("POST /v1/completions")),
    ]);
}

#[test]
fn an_answer_that_is_none_is_given_up_with_what_was_seen() {
    given_up(&[
        ("garbage", "health", "last seen: GET /health: "),
        ("redirect", "health", "GET /health: 302 a redirect, which is not followed"),
        ("endless-health", "health", "the answer is longer than 4194304 bytes"),
        ("trickle", "health", "no answer to GET /health for "),
        ("never-loaded", "models", "GET /v1/models lists no model"),
    ]);
}

#[test]
fn a_canary_without_a_token_is_no_readiness() {
    given_up(&[
        ("zero-tokens", "canary", "the completion has no token"),
        ("error-in-200", "canary", "CUDA error: an illegal access"),
        ("html", "canary", "<html><body>Welcome"),
        ("endless-canary", "canary", "the answer is longer than 4194304 bytes"),
    ]);
}

#[test]
fn an_engine_is_ready_when_its_model_is_loaded_not_when_it_is_healthy() {
    let ran = suite(&odd::engine("loading", "60s")).run(&[]).exits(0);
    assert_eq!(ran.having("measured").len(), 1);
    let journal = ran.read("journal.jsonl");
    let at = |step: &str| {
        journal.find(&format!("\"step\":\"{step}\"")).unwrap_or_else(|| panic!("{step}"))
    };
    assert!(at("health") < at("models") && at("models") < at("canary"));
}

#[test]
fn another_model_is_told_apart() {
    let engine = odd::engine("sound", "60s");
    let ran = suite(&format!("[model]\nname = \"theirs\"\n{engine}")).run(&[]).exits(22);
    let told = ("models".to_owned(), "the server lists `ours`, not `theirs`".to_owned());
    assert_eq!(failure(&ran), told);
}

#[test]
fn a_long_start_with_signs_of_life_has_the_time_that_is_declared() {
    let ran = suite(&odd::engine("slow", "60s")).run(&[]).exits(0);
    assert_eq!(ran.having("measured").len(), 1);
    // Too long for a shorter time: what it was at is said, and how long ago.
    let ran = suite(&odd::engine("slow", "2s")).run(&[]).exits(30);
    let (step, message) = failure(&ran);
    assert_eq!(step, "health");
    assert!(message.starts_with("not ready within 2s; last seen: GET /health: "), "{message}");
    assert!(message.contains("; last line of its log, 0 s ago: loading shard "), "{message}");
}

#[test]
fn an_engine_that_says_nothing_has_an_empty_log() {
    let ran = scripted("exec sleep 600", "ready = { timeout = \"1s\" }").run(&[]).exits(30);
    assert!(failure(&ran).1.ends_with("; its log is empty"), "{:?}", failure(&ran));
}

/// The most memory that a process has had at once, in bytes.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
fn the_end_of_an_engine_is_noticed_at_once() {
    for (script, exit) in
        [("sleep 0.5; exit 0", "exit code 0"), ("kill -KILL $$", "killed by SIGKILL")]
    {
        let project = scripted(script, "ready = { timeout = \"1h\" }");
        let mut child = project
            .command(&["run", "suite.toml", "--out", "out"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the run ends", || child.try_wait().unwrap().is_some());
        let ran = project.ran(child.wait_with_output().unwrap()).exits(30);
        let (step, message) = failure(&ran);
        assert_eq!(step, "process");
        assert!(message.contains("the engine ended before it was ready: "), "{message}");
        assert!(message.contains(exit), "{message}");
    }
}

#[test]
fn a_server_left_in_the_background_is_no_engine() {
    let script = "setsid SIM --host $1 --port $2 > /dev/null 2>&1 & echo $! > server; exit 0";
    let project = scripted(script, "ready = { timeout = \"1h\" }");
    let ran = project.run(&[]).exits(30);
    let message = failure(&ran).1;
    assert!(message.contains("exit code 0; a server that goes on in the background"), "{message}");
    let server = std::fs::read_to_string(project.path().join("server")).unwrap();
    assert!(!Path::new("/proc").join(server.trim()).join("exe").exists(), "it is ended");
}

#[test]
fn a_chatty_engine_is_neither_blocked_nor_kept_in_memory() {
    let script = "head -c 60000000 /dev/zero | tr '\\0' x\n\
                  { yes 'a line on stderr' | head -c 60000000; printf '\\xff\\xfe\\x80 no UTF-8\\n'; } >&2\n\
                  exec SIM --host $1 --port $2";
    let project = scripted(script, "ready = { timeout = \"5m\" }");
    let mut child = project
        .command(&["run", "suite.toml", "--out", "out"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // Whatever it has started and is not the engine: the supervisor and its guard.
        let own = super::orphaned::processes_in(project.path());
        let own = own.iter().filter(|process| process.line.contains("__supervise"));
        let all = own.map(|process| process.pid).chain([child.id()]);
        most = all.filter_map(peak).fold(most, u64::max);
        assert!(begun.elapsed() < Duration::from_secs(120), "it hangs");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(0));
    assert!(most > 0 && most < 100 << 20, "{} MiB", most >> 20);
    let record: Value =
        serde_json::from_slice(&std::fs::read(project.path().join("out/record.json")).unwrap())
            .unwrap();
    assert_eq!(record["cells"][0]["judgement"]["verdict"], "measured");
}
