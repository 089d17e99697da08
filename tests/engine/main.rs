//! Engines as real processes: started, made sure of, and ended whatever they do.
//!
//! The engines are small Python servers and shell scripts; the supervisor is the built executable.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod trees;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokgate::clock::Clock;
use tokgate::engine::launch::{LaunchError, Running, free_port, launch};
use tokgate::engine::redact::Redactor;
use tokgate::engine::supervise::{ExitInfo, use_executable};
use tokgate::engine::{Canary, Command, Kind, LaunchSpec, ReadySpec, StopSpec};
use tokgate::transport::Transport;

const SECOND: Duration = Duration::from_secs(1);
/// Longest wait for what should happen at once, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "sk-very-secret-key";

/// A toy engine: vLLM's surface as far as a launch looks at it.
const TOY: &str = include_str!("../data/engine/toy.py");

struct Stage {
    dir: tempfile::TempDir,
    port: u16,
}

impl Stage {
    fn new() -> Stage {
        use_executable(Path::new(env!("CARGO_BIN_EXE_tokgate")));
        Stage { dir: tempfile::tempdir().unwrap(), port: free_port("127.0.0.1").unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A launch of the toy engine with these arguments.
    fn toy(&self, arguments: &str) -> LaunchSpec {
        let toy = self.path("toy.py");
        std::fs::write(&toy, TOY).unwrap();
        let mut argv = vec!["python3".to_owned(), toy.to_str().unwrap().to_owned()];
        argv.push(self.port.to_string());
        argv.extend(arguments.split_whitespace().map(str::to_owned));
        self.spec(argv)
    }

    fn shell(&self, script: &str) -> LaunchSpec {
        self.spec(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()])
    }

    fn spec(&self, argv: Vec<String>) -> LaunchSpec {
        let url = format!("http://127.0.0.1:{}", self.port);
        LaunchSpec {
            name: "engine".to_owned(),
            kind: Kind::Vllm,
            command: Some(Command { argv }),
            env: vec![("TOY".to_owned(), "1".to_owned())],
            files: Vec::new(),
            dir: self.path("launch"),
            log: self.path("engine.log"),
            host: "127.0.0.1".to_owned(),
            port: self.port,
            metrics_urls: vec![format!("{url}/metrics")],
            url,
            headers: vec![("authorization".to_owned(), format!("Bearer {SECRET}"))],
            model: None,
            version: None,
            ready: ReadySpec { timeout: PATIENCE, models: true, completion: true },
            stop: StopSpec { grace: SECOND, command: None },
            canary: Canary::Completions,
            log_must_contain: Vec::new(),
        }
    }
}

async fn start(spec: &LaunchSpec) -> (Result<Running, LaunchError>, Vec<String>) {
    let mut steps = Vec::new();
    let clock = Clock::start();
    let redact = Redactor::new(&[SECRET.to_owned()]);
    let mut on_step = |step: &str| steps.push(step.to_owned());
    let outcome = launch(spec, &Transport::Tcp, &clock, &redact, &mut on_step).await;
    (outcome, steps)
}

async fn refused(spec: &LaunchSpec) -> LaunchError {
    start(spec).await.0.unwrap_err()
}

/// Whether a process runs; a zombie does not.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !matches!(stat.rsplit(") ").next(), Some(rest) if rest.starts_with('Z')))
}

/// Process ids that a tree wrote, one a line.
fn pids(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[tokio::test]
async fn an_engine_is_launched_asked_and_ended() {
    let stage = Stage::new();
    let mut spec = stage.toy("--loading 3 --grandchild");
    spec.version = Some(">=0.29, <0.30".to_owned());
    spec.model = Some("toy".to_owned());
    spec.log_must_contain = vec!["Using FLASH_ATTN".to_owned()];
    spec.files = vec![("conf/engine.yaml".into(), "a: 1\n".to_owned())];
    let (running, steps) = start(&spec).await;
    let mut running = running.unwrap();
    assert_eq!(steps, ["process", "health", "models", "canary", "facts", "log"]);
    assert_eq!(running.facts.version.as_deref(), Some("0.29.0+cu132"));
    assert_eq!(running.facts.model, "toy");
    assert_eq!(running.facts.kv_capacity, Some(16_000));
    assert_eq!(running.facts.max_model_len, Some(4096));
    assert!(running.facts.tokenize);
    assert!(running.ready_time > Duration::ZERO);
    assert_eq!(running.remote.tokenize("ab").await, Ok(Some(vec![97, 98])));
    assert_eq!(running.remote.detokenize(&[97, 98]).await, Ok(Some("ab".to_owned())));
    let gauges = running.remote.gauges().await.unwrap().unwrap();
    assert_eq!((gauges.running, gauges.waiting), (Some(2.0), Some(1.0)));
    assert!(stage.path("launch/conf/engine.yaml").exists());
    let still = tokio::time::timeout(Duration::from_millis(50), running.died()).await;
    assert!(still.is_err(), "it lives");

    let tree = pids(&stage.path("pids"));
    let report = running.stop(SECOND).await;
    assert_eq!(report.exit, Some(ExitInfo::Code(0)), "{report:?}");
    assert!(report.survivors.is_empty() && !report.port_taken);
    assert!(!report.killed.is_empty(), "the grandchild ignores TERM: {report:?}");
    assert!(!tree.is_empty() && tree.iter().all(|pid| !alive(*pid)));
    assert_eq!(running.died().await, ExitInfo::Code(0));
}

#[tokio::test]
async fn a_misspelled_command_is_said_as_the_system_says_it() {
    let stage = Stage::new();
    let error = refused(&stage.spec(vec!["vllm-misspelled".to_owned(), "serve".to_owned()])).await;
    assert_eq!(
        (error.step, error.message.as_str()),
        (
            "process",
            "can't start `vllm-misspelled`: No such file or directory in any directory of PATH"
        )
    );
    assert!(error.exit.is_none() && !error.mismatch && !error.address_in_use);

    let script = stage.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let mut mode = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let error = refused(&stage.spec(vec![script.to_str().unwrap().to_owned()])).await;
    assert!(error.message.contains("the interpreter that"), "{error}");
    let error = refused(&stage.spec(vec![stage.dir.path().to_str().unwrap().to_owned()])).await;
    assert!(error.message.ends_with(": Permission denied"), "{error}");
}

#[tokio::test]
async fn an_engine_that_ends_while_loading_tells_why_at_once() {
    let stage = Stage::new();
    let script = format!(
        "for i in $(seq 150); do echo line $i; done; echo 'ValueError: no memory for {SECRET}' >&2; \
         for i in $(seq 150); do echo line $i; done; exit 3"
    );
    let mut spec = stage.shell(&script);
    spec.ready.timeout = Duration::from_secs(600);
    let error = refused(&spec).await;
    assert_eq!(error.step, "process");
    assert_eq!(error.exit.as_deref(), Some("exit code 3"));
    assert_eq!(error.log_tail[0], "ValueError: no memory for [redacted]");
    assert_eq!(error.log_tail.last().map(String::as_str), Some("line 150"));

    let error = refused(&stage.shell("kill -SEGV $$")).await;
    assert_eq!(error.exit.as_deref(), Some("killed by SIGSEGV"));
}

#[tokio::test]
async fn an_engine_that_hangs_is_given_up_with_what_was_last_seen() {
    let stage = Stage::new();
    let mut spec = stage.toy("--loading 1000000");
    spec.ready.timeout = SECOND * 2;
    let error = refused(&spec).await;
    assert_eq!(error.step, "health");
    assert!(
        error.message.starts_with("not ready within 2s; last seen: GET /health: 503"),
        "{error}"
    );
    assert!(error.message.contains("Loading model"), "{error}");

    let mut spec = stage.shell("echo one line; sleep 1000");
    spec.ready.timeout = SECOND;
    let error = refused(&spec).await;
    assert!(error.message.contains("last seen: GET /health: connection refused"), "{error}");
    assert_eq!(error.log_tail.last().map(String::as_str), Some("one line"));
}

#[tokio::test]
async fn what_the_suite_declares_is_held_against_the_engine() {
    let stage = Stage::new();
    let mut spec = stage.toy("");
    spec.model = Some("another".to_owned());
    let error = refused(&spec).await;
    assert_eq!((error.step, error.mismatch), ("models", true));
    assert_eq!(error.message, "the server lists `toy`, not `another`");

    let mut spec = stage.toy("");
    spec.version = Some("0.28.0".to_owned());
    let error = refused(&spec).await;
    assert_eq!((error.step, error.mismatch), ("facts", true));
    assert_eq!(
        error.message,
        "the suite declares version \"0.28.0\"; the engine says 0.29.0+cu132"
    );

    let mut spec = stage.toy("");
    spec.headers.clear();
    let error = refused(&spec).await;
    assert_eq!(error.step, "models");
    assert!(
        error.message.contains("401") && error.message.contains("headers.authorization"),
        "{error}"
    );

    let error = refused(&stage.toy("--mute")).await;
    assert_eq!(error.step, "canary");
    assert!(error.message.contains("no token"), "{error}");
}

#[tokio::test]
async fn the_canary_asks_what_the_tests_will_ask() {
    for (options, canary, path) in [
        ("", Canary::Chat, "/v1/chat/completions"),
        ("--chat", Canary::Completions, "/v1/completions"),
    ] {
        let stage = Stage::new();
        let mut spec = stage.toy(options);
        spec.canary = canary;
        let error = refused(&spec).await;
        assert_eq!(error.step, "canary");
        assert!(error.message.contains(path) && error.message.contains("404"), "{error}");
        spec.canary = Canary::Either;
        let mut running = start(&spec).await.0.unwrap();
        running.stop(SECOND).await;
    }
}

#[tokio::test]
async fn a_text_that_the_log_must_contain_is_missed() {
    let stage = Stage::new();
    let mut spec = stage.toy("");
    spec.log_must_contain = vec!["Using FLASHINFER".to_owned()];
    let error = refused(&spec).await;
    assert_eq!((error.step, error.mismatch), ("log", true));
    assert_eq!(error.message, "the log does not contain `Using FLASHINFER`");
}

#[tokio::test]
async fn a_port_that_somebody_holds_is_refused_before_the_launch() {
    let stage = Stage::new();
    let stranger = TcpListener::bind(("127.0.0.1", stage.port)).unwrap();
    let marker = stage.path("started");
    let error = refused(&stage.shell(&format!("touch {}", marker.display()))).await;
    assert_eq!((error.step, error.address_in_use), ("process", true));
    let me = format!("process {} (", std::process::id());
    assert!(
        error.message.contains(&me) && error.message.contains("nothing was started"),
        "{error}"
    );
    assert!(!marker.exists());
    drop(stranger);
}

#[tokio::test]
async fn an_engine_that_loses_its_port_meanwhile_says_so() {
    let stage = Stage::new();
    let error = refused(&stage.shell(
        "echo \"OSError: [Errno 98] error while attempting to bind: Address already in use\"; exit 1",
    ))
    .await;
    assert!(error.address_in_use);
    // A second try in the same log is not blamed for the first.
    let error = refused(&stage.shell("echo broken; exit 1")).await;
    assert!(!error.address_in_use);
    assert_eq!(error.log_tail, ["broken"]);
}

#[tokio::test]
async fn a_strangers_answers_are_not_taken_for_the_engines() {
    let stage = Stage::new();
    let theirs = stage.toy("");
    // The stranger takes the port just after the launch has found it free.
    let argv = theirs.command.unwrap().argv;
    let go = stage.path("go");
    let gate =
        format!("while [ ! -e {} ]; do sleep 0.02; done; exec {}", go.display(), argv.join(" "));
    let mut stranger = std::process::Command::new("sh")
        .args(["-c", &gate])
        .env("TOY", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let error = refused(&stage.shell(&format!("touch {}; sleep 1000", go.display()))).await;
    let pid = stranger.id();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!((error.step, error.address_in_use), ("health", true));
    assert!(error.message.contains(&format!("process {pid} (")), "{error}");
    assert!(error.message.contains("which this launch did not start"), "{error}");
}

#[tokio::test]
async fn a_running_engine_is_made_sure_of_and_left_alone() {
    let stage = Stage::new();
    let mut running = start(&stage.toy("")).await.0.unwrap();
    let mut spec = stage.toy("");
    spec.command = None;
    let mut by_url = start(&spec).await.0.unwrap();
    assert_eq!(by_url.facts.version.as_deref(), Some("0.29.0+cu132"));
    by_url.stop(SECOND).await;
    assert!(running.remote.get("/health", SECOND).await.is_ok());
    assert!(by_url.log_tail().is_empty());
    running.stop(SECOND).await;
}

#[tokio::test]
async fn a_chatty_engine_is_neither_blocked_nor_kept_in_memory() {
    let stage = Stage::new();
    let mut running = start(&stage.toy("--chatty")).await.0.unwrap();
    assert!(std::fs::metadata(stage.path("engine.log")).unwrap().len() > 10_000_000);
    let tail = running.log_tail();
    assert!(tail.len() <= 20 && tail.iter().all(|line| line.chars().count() <= 401));
    running.stop(SECOND).await;
}

#[tokio::test]
async fn an_engine_that_dies_later_is_noticed_at_once() {
    let stage = Stage::new();
    let mut running = start(&stage.toy("")).await.0.unwrap();
    let gone = running.remote.post("/die", &serde_json::json!({}), SECOND * 5).await;
    assert!(gone.is_err());
    let exit = tokio::time::timeout(PATIENCE, running.died()).await.unwrap();
    assert_eq!(exit, ExitInfo::Code(42));
    assert!(running.log_tail().iter().any(|line| line.contains("RuntimeError: told to die")));
    let report = running.stop(SECOND).await;
    assert_eq!(report.exit, Some(ExitInfo::Code(42)));
}

#[tokio::test]
async fn the_stop_command_goes_first_and_its_failure_is_said() {
    let stage = Stage::new();
    let mut spec = stage.toy("");
    let order = stage.path("order");
    let stop = format!("echo stop >> {}; exit 4", order.display());
    let stop = vec!["sh".to_owned(), "-c".to_owned(), stop];
    spec.stop.command = Some(Command { argv: stop });
    spec.env.push(("TOY_ORDER".to_owned(), order.to_str().unwrap().to_owned()));
    let mut running = start(&spec).await.0.unwrap();
    let report = running.stop(SECOND * 5).await;
    assert_eq!(report.notes, ["stop.command ended with exit code 4"]);
    assert_eq!(std::fs::read_to_string(order).unwrap(), "stop\nterm\n");
}

#[tokio::test]
async fn a_second_stop_hurries_the_first() {
    let stage = Stage::new();
    let mut running = start(&stage.toy("--grandchild")).await.0.unwrap();
    let tree = pids(&stage.path("pids"));
    let patient = tokio::time::timeout(SECOND, running.stop(SECOND * 600)).await;
    assert!(patient.is_err() && alive(tree[1]), "the grandchild ignores TERM");
    let report = tokio::time::timeout(PATIENCE, running.stop(Duration::ZERO)).await.unwrap();
    assert!(report.survivors.is_empty() && !report.killed.is_empty(), "{report:?}");
    assert!(tree.iter().all(|pid| !alive(*pid)));
}

/// A server in process that loads for 30 seconds of virtual time, then answers as vLLM; or never.
fn in_process(hangs: bool) -> Transport {
    use axum::routing::{get, post};
    let begin = tokio::time::Instant::now();
    let loaded = move || begin.elapsed() >= 30 * SECOND;
    let json = |text: &'static str| move || async move { text };
    let health = move || async move {
        if hangs {
            std::future::pending::<()>().await;
        }
        if loaded() {
            axum::http::StatusCode::OK
        } else {
            axum::http::StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let app = axum::Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(json(r#"{"data":[{"id":"virtual","max_model_len":8192}]}"#)))
        .route("/v1/completions", post(json(r#"{"choices":[{"text":"a"}]}"#)))
        .route("/version", get(json(r#"{"version":"0.1.0"}"#)));
    Transport::InProcess(std::sync::Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let service = hyper_util::service::TowerToHyperService::new(app.clone());
        let stream = hyper_util::rt::TokioIo::new(theirs);
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
        ours
    }))
}

#[tokio::test(start_paused = true)]
async fn in_process_the_launch_follows_virtual_time() {
    let stage = Stage::new();
    let mut spec = stage.toy("");
    (spec.command, spec.kind) = (None, Kind::Sim);
    spec.ready.timeout = 60 * SECOND;
    let redact = Redactor::default();
    let clock = Clock::start();
    let mut running =
        launch(&spec, &in_process(false), &clock, &redact, &mut |_| {}).await.unwrap();
    assert!((30.0..32.0).contains(&running.ready_time.as_secs_f64()), "{:?}", running.ready_time);
    assert_eq!(running.facts.model, "virtual");
    assert_eq!((running.facts.kv_capacity, running.facts.tokenize), (None, false));
    assert_eq!(running.remote.gauges().await, Ok(None));
    running.stop(SECOND).await;

    let error = launch(&spec, &in_process(true), &clock, &redact, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.message, "not ready within 1m; last seen: no answer to GET /health for 60 s");
}
