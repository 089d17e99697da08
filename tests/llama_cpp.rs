//! Against a real llama.cpp server: lengths, cached tokens, and its own timings.
//!
//! It needs the engine, so that it runs only where `TOKGATE_ENGINES` names the folder that
//! `tests/engines/llama-cpp.sh` installs into (or may), as `.ci/run` does. Some minutes on two cores.

#![allow(clippy::unwrap_used)] // A test that can not go on panics.

#[path = "harness.rs"]
#[allow(dead_code)] // This executable needs a part of it.
mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use harness::{Project, Ran, shipped};

/// One thread: those of llama.cpp wait for each other in tight loops, which other work on the machine
/// turns into a standstill.
const FLAGS: [&str; 9] =
    ["-c", "18432", "-np", "4", "--threads", "1", "--metrics", "--alias", "gemma"];

/// Where the engine is installed; `None`, said loudly, where nobody says so.
fn engines() -> Option<PathBuf> {
    let folder = std::env::var_os("TOKGATE_ENGINES").filter(|folder| !folder.is_empty());
    if folder.is_none() {
        let name = thread::current().name().unwrap_or_default().to_owned();
        eprintln!(
            "SKIPPED {name}: TOKGATE_ENGINES does not say where llama.cpp is or may be installed"
        );
    }
    folder.map(|folder| std::path::absolute(folder).unwrap())
}

fn script() -> String {
    shipped("tests/engines/llama-cpp.sh").to_str().unwrap().to_owned()
}

/// A suite whose engine is this. No limit on how late the client may be, and a floor so low that requests which a busy
/// machine keeps the client from sending in time change no verdict.
fn suite(engine: &str, tests: &str) -> Project {
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"llama\"\n[policy]\nmax-client-lag = \"10s\"\nunjudged = \"allow\"\n\
         [request]\nbody = {{ temperature = 0 }}\nidle-timeout = \"5m\"\nprompt-tolerance = \"0%\"\n\
         [engine]\nkind = \"llama-cpp\"\n{engine}\n{tests}\n\
         [[expect]]\nmetric = \"output-throughput\"\nmin = 0.1"
    ))
}

/// The test for both APIs.
fn both(name: &str, test: &str) -> String {
    ["completions", "chat"]
        .map(|api| {
            format!("[[test]]\nname = \"{name}-{api}\"\nrequest = {{ api = \"{api}\" }}\n{test}\n")
        })
        .concat()
}

struct Cell {
    test: String,
    context: u64,
    measured: Value,
}

fn cells(ran: &Ran) -> Vec<Cell> {
    let record = ran.record();
    let planned = record["header"]["cells"].as_array().unwrap();
    let cells = record["cells"].as_array().unwrap();
    planned
        .iter()
        .zip(cells)
        .map(|(planned, cell)| Cell {
            test: planned["test"].as_str().unwrap().to_owned(),
            context: cell["state"]["measured"]["prompt-tokens"][0].as_u64().unwrap(),
            measured: cell["state"]["measured"].clone(),
        })
        .collect()
}

impl Cell {
    /// What the checks of the cache say.
    fn cache(&self) -> Vec<&str> {
        let checks = self.measured["checks"].as_array().unwrap();
        let of_cache = checks.iter().filter(|check| check["kind"] == "cache-state");
        of_cache.map(|check| check["message"].as_str().unwrap()).collect()
    }

    /// Cached tokens of the request that was furthest from what it should be.
    fn cached(&self) -> u64 {
        self.cache()[0].split(' ').next().unwrap().parse().unwrap()
    }
}

#[test]
fn lengths_are_exact_and_the_cache_is_as_declared() {
    let Some(engines) = engines() else { return };
    let (script, engines) = (script(), engines.display());
    let engine = format!(
        "setup = [\"bash {script} {engines}\"]\n\
         command = \"bash {script} {engines} serve {{{{ port }}}} --host {{{{ host }}}} {}\"\n\
         ready = {{ timeout = \"5m\" }}\nstop = {{ grace = \"5s\" }}",
        FLAGS.join(" ")
    );
    // The longest prompt takes half a minute, so that it is sent no oftener than it must be.
    let contexts = "matrix.context = [128, 1024, 4096]";
    let decode = "kind = \"decode\"\nduration = \"500ms\"\nmin-tokens = 8\nmax-output = 32\nttft-samples = 3";
    let tests = [
        both("prefill", &format!("kind = \"prefill\"\nsamples = 1\n{contexts}")),
        both(
            "shared",
            &format!("{decode}\nprefix = \"shared\"\nmatrix.concurrency = [2]\n{contexts}"),
        ),
        both("cold", &format!("{decode}\nprefix = \"cold\"\nmatrix.context = [128]")),
    ]
    .concat();
    let ran = suite(&engine, &tests).run(&[]).exits(0);
    let cells = cells(&ran);
    assert_eq!(cells.len(), 14);
    for cell in &cells {
        println!("{} {}: {:?}", cell.test, cell.context, cell.cache());
        let counted = cell.measured["prompt-tokens"][1].as_u64().unwrap();
        assert_eq!(counted, cell.context, "{}", cell.test);
        let cached = cell.cached();
        if cell.test.contains("shared") {
            // The engine computes the last few tokens anew.
            assert!(cached + 16 >= cell.context, "{}: {cached} of {}", cell.test, cell.context);
        } else if cell.test.contains("chat") {
            // What the template begins with is in every prompt.
            assert!(cached <= 16, "{}: {cached}", cell.test);
        } else {
            assert_eq!(cached, 0, "{}", cell.test);
        }
    }
}

#[test]
fn a_server_is_tried_and_its_suite_runs() {
    let Some(engines) = engines() else { return };
    let (script, engines) = (script(), engines.display().to_string());
    let project = Project::new();
    let command = ["bash", &script, &engines, "serve", "{{", "port", "}}"];
    let before = ["try", "--minutes", "0.5", "--write", "gate.toml", "--"];
    let ran = project.tokgate(&[&before[..], &command, &FLAGS].concat()).exits(0);
    // Three slots and more are known by asking it alone.
    assert!(
        ran.stderr.contains("found: llama-cpp ") && ran.stderr.contains(" 4 at once"),
        "{}",
        ran.stderr
    );
    assert_eq!(project.tokgate(&["check", "gate.toml"]).exits(0).stderr, "");
    let ran = project.tokgate(&["run", "gate.toml", "--no-progress"]);
    // Whether it keeps its limits on a machine that does other things meanwhile is not asked here.
    assert!([0, 10].contains(&ran.code), "{}", ran.stderr);
    let ran = Ran { out: project.path().join("tokgate-out/gate"), ..ran };
    assert_eq!(ran.having("measured").len() + ran.having("error").len(), 0, "{:?}", ran.verdicts());
}

/// A server between client and engine that writes down what the engine says.
struct Tee {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Tee {
    fn before(engine: SocketAddr) -> Tee {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tee = Tee { address: listener.local_addr().unwrap(), heard: Arc::default() };
        let heard = Arc::clone(&tee.heard);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(engine) else { continue };
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || pass(from, to, |_| {}));
                let heard = Arc::clone(&heard);
                let connection = {
                    let mut all = heard.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                thread::spawn(move || {
                    pass(far, near, |bytes| {
                        heard.lock().unwrap()[connection].extend_from_slice(bytes);
                    });
                });
            }
        });
        tee
    }

    /// `predicted_per_second` of each request of so many tokens that came to its end.
    fn rates(&self, tokens: u64) -> Vec<f64> {
        let heard = self.heard.lock().unwrap();
        let streams = heard.iter().map(|bytes| String::from_utf8_lossy(bytes));
        let mut rates = Vec::new();
        for stream in streams {
            for event in stream.lines().filter_map(|line| line.strip_prefix("data: {")) {
                let Ok(event) = serde_json::from_str::<Value>(&format!("{{{event}")) else {
                    continue;
                };
                let timings = &event["timings"];
                if timings["predicted_n"] == tokens && event["usage"].is_object() {
                    rates.push(timings["predicted_per_second"].as_f64().unwrap());
                }
            }
        }
        rates
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut hear: impl FnMut(&[u8])) {
    let mut buffer = [0; 65536];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        hear(&buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rates_agree_with_the_engines_own_timings() {
    let Some(engines) = engines() else { return };
    // A port that was free a moment ago; the engine says so if it is not any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _engine = Killed(
        Command::new("bash")
            .arg(script())
            .args([engines.as_os_str(), "serve".as_ref(), address.port().to_string().as_ref()])
            .args(["--host", "127.0.0.1"])
            .args(FLAGS)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let started = std::time::Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(1200), "the engine does not start");
        thread::sleep(Duration::from_millis(200));
    }
    const OUTPUT: u64 = 200;
    for api in ["completions", "chat"] {
        let tee = Tee::before(address);
        let tests = format!(
            "[[test]]\nkind = \"decode\"\nrequest = {{ api = \"{api}\" }}\nduration = \"2s\"\n\
             min-tokens = {}\nmax-output = {OUTPUT}\nttft-samples = 3\nmatrix.context = [128]\n",
            OUTPUT * 3
        );
        let engine = format!("url = \"http://{}\"\nready = {{ timeout = \"5m\" }}", tee.address);
        let ran = suite(&engine, &tests).run(&[]).exits(0);
        let found = &ran.record()["cells"][0]["state"]["measured"]["observations"];
        // The machine may change its pace from one request to the next: each is compared by itself.
        let ours = found["tpot"]["samples"].as_array().unwrap();
        let ours: Vec<f64> = ours.iter().map(|ms| 1e3 / ms.as_f64().unwrap()).collect();
        let theirs = tee.rates(OUTPUT);
        assert!(theirs.len() >= 2, "{theirs:?}");
        for rate in &theirs {
            let off = |our: &f64| (our / rate - 1.0).abs();
            let nearest = ours.iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap();
            println!(
                "{api}: {nearest:.2} tok/s, {rate:.2} by the engine ({:.2} %)",
                off(nearest) * 1e2
            );
            assert!(off(nearest) <= 0.03, "{rate} by the engine, not in {ours:?}");
        }
    }
}

/// A project whose engine is the real one, which writes its process id to `pid`, with decode cells that
/// last so long.
fn mortal(engines: &std::path::Path, duration: &str, streams: &str) -> Project {
    let (script, engines) = (script(), engines.display());
    let engine = format!(
        "setup = [\"bash {script} {engines}\"]\n\
         command = \"bash engine.sh {{{{ host }}}} {{{{ port }}}}\"\n\
         ready = {{ timeout = \"5m\" }}\nstop = {{ grace = \"5s\" }}"
    );
    let test = format!(
        "[[test]]\nkind = \"decode\"\nduration = \"{duration}\"\nmin-tokens = 8\nmax-output = 512\n\
         ttft-samples = 1\nmatrix.context = [128]\nmatrix.concurrency = {streams}\n"
    );
    let project = suite(&engine, &test);
    project.file(
        "engine.sh",
        &format!(
            "echo $$ > pid\nexec bash {script} {engines} serve \"$2\" --host \"$1\" {}\n",
            FLAGS.join(" ")
        ),
    );
    project
}

fn start(project: &Project) -> Child {
    project
        .command(&["run", "suite.toml", "--out", "out", "--verbose"])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(project.path().join("said")).unwrap())
        .spawn()
        .unwrap()
}

/// Waits until a file of the project says this.
fn until(project: &Project, file: &str, words: &str) {
    let began = std::time::Instant::now();
    let path = project.path().join(file);
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains(words)) {
        assert!(began.elapsed() < Duration::from_secs(300), "no {words} in {file}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Process id of the engine, once it is in the window of a cell.
fn engine_of(project: &Project, cell: usize) -> rustix::process::Pid {
    until(project, "out/journal.jsonl", &format!("\"cell-started\":{{\"cell\":{cell},"));
    // Prompts of 128 tokens are warmed and timed in a second or two; the window is longer.
    thread::sleep(Duration::from_secs(8));
    let pid = std::fs::read_to_string(project.path().join("pid")).unwrap();
    rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
}

fn lives(process: rustix::process::Pid) -> bool {
    rustix::process::test_kill_process(process).is_ok()
}

#[test]
fn no_engine_is_left_where_tokgate_is_killed_amid_a_window() {
    let Some(engines) = engines() else { return };
    let project = mortal(&engines, "60s", "[2]");
    let mut child = start(&project);
    let engine = engine_of(&project, 0);
    assert!(lives(engine));
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = std::time::Instant::now();
    while lives(engine) {
        assert!(killed.elapsed() < Duration::from_secs(5), "llama-server is still there");
        thread::sleep(Duration::from_millis(20));
    }
    println!("gone {:.2} s after the kill", killed.elapsed().as_secs_f64());
    let told = std::fs::read_to_string(project.path().join("out/journal.jsonl")).unwrap();
    assert!(!told.contains("cell-finished"), "it was amid a cell: {told}");
}

#[test]
fn an_engine_that_is_killed_amid_a_window_costs_its_cell_and_is_started_again_for_the_others() {
    let Some(engines) = engines() else { return };
    let project = mortal(&engines, "15s", "[1, 2, 4]");
    let child = start(&project);
    let engine = engine_of(&project, 1);
    rustix::process::kill_process(engine, rustix::process::Signal::KILL).unwrap();
    let ran = project.ran(child.wait_with_output().unwrap()).exits(30);
    let verdicts = ran.verdicts();
    println!("{verdicts:#?}");
    let found: Vec<&str> = verdicts.iter().map(|it| it.rsplit(' ').next().unwrap()).collect();
    // A rate that drifts, as those of a shared machine may, is in doubt; it was measured all the same.
    let measured = |verdict: &str| ["pass", "inconclusive"].contains(&verdict);
    assert!(measured(found[0]) && found[1] == "error" && measured(found[2]), "{found:?}");
    assert_eq!(found.len(), 3);
    let record = ran.record();
    let broken = &record["cells"][1]["state"]["broken"];
    assert_eq!(broken["class"], "engine-died");
    let message = broken["message"].as_str().unwrap();
    assert!(message.starts_with("the engine died: killed by SIGKILL"), "{message}");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("started again for the remaining cells (restart 1 of 1)"),
        "{warnings}"
    );
    println!("{}", ran.stdout);
}

/// The median of the tokens per second that llama.cpp says in its logs of a variant it read prompts at.
fn told(ran: &Ran, variant: &str) -> f64 {
    let logs = std::fs::read_dir(&ran.out).unwrap().map(|entry| entry.unwrap().path());
    let mine = format!("engine-{variant}");
    let of_variant = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&mine) && name.ends_with(".log")
    };
    let mut rates = Vec::new();
    for log in logs.filter(of_variant) {
        let text = String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned();
        for line in text.lines().filter(|line| line.contains("prompt eval time")) {
            // `… = 685.54 ms / 64 tokens ( 10.71 ms per token, 93.36 tokens per second)`; the canary is short.
            let before = |words: &str| {
                let number = line.split(words).next().unwrap().split_whitespace().next_back();
                number.unwrap().parse::<f64>().unwrap()
            };
            if before(" tokens (") >= 32.0 {
                rates.push(before(" tokens per second"));
            }
        }
    }
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// A prompt of so many tokens at once (`-ub`): of one token at a time it takes several times as long.
fn upgrade(engines: &std::path::Path, at_once: u32, pairs: u32) -> Ran {
    let (script, engines) = (script(), engines.display());
    suite(
        &format!(
            "setup = [\"bash {script} {engines}\"]\n\
             command = \"bash {script} {engines} serve {{{{ port }}}} --host {{{{ host }}}} -c 2048 -np 1 \
             --threads 1 --metrics --alias gemma -ub {{{{ vars.at_once }}}}\"\n\
             ready = {{ timeout = \"5m\" }}\nstop = {{ grace = \"5s\" }}\n[vars]\nat_once = 512\n\
             [variant.old]\n[variant.new]\nvars.at_once = {at_once}\n\
             [compare]\nbaseline = \"old\"\ncandidate = \"new\"\npairs = {pairs}"
        ),
        "[[test]]\nkind = \"prefill\"\nsamples = 2\nmatrix.context = [128]\n\
         [[expect]]\ntest = \"prefill\"\nmetric = \"prefill-throughput\"\nmin-ratio = 0.8\n\
         [[test]]\nkind = \"decode\"\nduration = \"1s\"\nmin-tokens = 10\nmatrix.context = [64]",
    )
    .run(&[])
}

#[test]
fn an_upgrade_that_changes_nothing_is_green_and_one_that_slows_the_engine_down_is_red() {
    let Some(engines) = engines() else { return };
    // Others who use the machine may make a pair differ by half and more: a verdict that comes once in
    // three attempts is what is asked for, of an engine that is slower by a factor.
    let attempt = |at_once: u32, pairs: u32, code: i32| {
        let runs = (0..3).map(|_| upgrade(&engines, at_once, pairs));
        let ran = runs.inspect(|ran| println!("{}", ran.stdout)).find(|ran| ran.code == code);
        ran.unwrap_or_else(|| panic!("not once in three attempts: exit {code}"))
    };
    attempt(512, 4, 0);
    let slower = attempt(1, 8, 10);
    let (old, new) = (told(&slower, "old"), told(&slower, "new"));
    println!("llama.cpp reads {old} tokens per second as it was, {new} as it is");
    assert!(new <= 0.75 * old, "{new} of {old}");
    let record = slower.record();
    let cells = record["header"]["cells"].as_array().unwrap().iter();
    for (planned, cell) in cells.zip(record["cells"].as_array().unwrap()) {
        let wanted = match (planned["variant"].as_str(), planned["test"].as_str()) {
            (Some("new"), Some("prefill")) => "fail",
            (Some("old"), Some("prefill")) => "measured",
            // What others do on the machine may make a window drift, of which nothing is asked here.
            (_, _) => continue,
        };
        assert_eq!(cell["judgement"]["verdict"], wanted, "{}", planned["id"]);
    }
}
