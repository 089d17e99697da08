//! Engines that crash, hang or refuse: whose fault it is, what is told of it, and what goes on.

use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Project, Ran, eventually};
use crate::run::interrupted::left;
use crate::soak::soak;

const PROFILE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
[prefill]
tokens = [16, "1K"]
ms = [4, 4]
[admit]
at = [1]
grid = [["1K", 2]]
[step]
at = [1]
grid = [["1K", 5]]
"#;

/// How an engine ends whose worker has no memory left.
const OUT_OF_MEMORY: &str =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";

/// A project whose engine is `engine.sh`: the simulated one, with these faults, after this shell code. The
/// shell's process, whose id is in the file `pid`, becomes the engine.
fn project(policy: &str, faults: &str, shell: &str, tests: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"mortal\"\n[policy]\nmax-client-lag = \"10s\"\n{policy}\n\
         [engine]\nkind = \"vllm\"\ncommand = \"bash engine.sh {{{{ host }}}} {{{{ port }}}}\"\n\
         stop = {{ grace = \"1s\" }}\n[request]\nidle-timeout = \"1s\"\ntimeout = \"2s\"\n{tests}\n"
    ));
    project.file("profile.toml", &format!("{PROFILE}{faults}"));
    project.file(
        "engine.sh",
        &format!(
            "echo $$ > pid\n{shell}\nexec {} sim --profile profile.toml --host \"$1\" --port \"$2\"\n",
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    project
}

/// The same engine inside of tokgate, in virtual time.
fn virtually(faults: &str, tests: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"mortal\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         profile = \"profile.toml\"\n{tests}\n"
    ));
    project.file("profile.toml", &format!("{PROFILE}{faults}"));
    project
}

const PREFILL: &str = "[[test]]\nkind = \"prefill\"\nmatrix.context = [512]\n\
    [[expect]]\ntest = \"prefill\"\nmetric = \"prefill-throughput\"\nmin = 1\n";

/// Decode cells with so many streams each.
fn decode(duration: &str, streams: &str) -> String {
    format!(
        "[[test]]\nkind = \"decode\"\nduration = \"{duration}\"\nmin-tokens = 10\nmax-output = 64\n\
         matrix.concurrency = {streams}\n\
         [[expect]]\ntest = \"decode\"\nmetric = \"output-throughput\"\nmin = 1\n"
    )
}

/// A serve test with so many requests of 16 tokens.
fn serve(arrival: &str, requests: u32) -> String {
    format!(
        "[[test]]\nkind = \"serve\"\nrequests = {requests}\ninput = 64\noutput = 16\n{arrival}\n\
         [[expect]]\ntest = \"serve\"\nmetric = \"request-throughput\"\nmin = 0.1\n"
    )
}

const OPEN: &str = "arrival = \"constant\"\nmatrix.request_rate = [40]";

fn states(ran: &Ran) -> Vec<Value> {
    ran.record()["cells"].as_array().unwrap().iter().map(|cell| cell["state"].clone()).collect()
}

/// Class and message of a cell that broke.
#[track_caller]
fn broken(state: &Value) -> (String, String) {
    let text = |key: &str| state["broken"][key].as_str().unwrap_or_else(|| panic!("{state}"));
    (text("class").to_owned(), text("message").to_owned())
}

fn journal(project: &Project) -> String {
    std::fs::read_to_string(project.path().join("out/journal.jsonl")).unwrap_or_default()
}

/// Runs each at the same time as the others: they wait far more than they work.
fn side_by_side<T: Send>(all: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for one in all {
            let run = &run;
            scope.spawn(move || run(one));
        }
    });
}

#[test]
fn an_engine_that_dies_in_any_phase_of_a_cell_is_told_with_its_exit_and_its_log() {
    // The canary is its first token.
    let moments = [
        ("prefill", PREFILL.to_owned(), 3),
        ("warm-up", decode("10s", "[2]"), 3),
        ("ttft", decode("10s", "[2]"), 9),
        ("window", decode("10s", "[2]"), 60),
        ("closed loop", serve("matrix.concurrency = [2]", 5000), 80),
        ("open loop", serve(OPEN, 500), 80),
    ];
    side_by_side(moments, |(moment, test, token)| {
        let crash = format!(
            "[[fault]]\nkind = \"crash\"\nat-token = {token}\nexit-code = 3\nlog = [\"{OUT_OF_MEMORY}\"]\n"
        );
        let ran = project("restarts = 0", &crash, "", &test).run(&[]).exits(30);
        let (class, message) = broken(&states(&ran)[0]);
        assert_eq!(class, "engine-died", "{moment}");
        let first = format!("the engine died: exit code 3; its log says: {OUT_OF_MEMORY}");
        assert_eq!(message.lines().next(), Some(first.as_str()), "{moment}");
        for (name, text) in [
            ("junit.xml", ran.read("junit.xml")),
            ("summary.md", ran.read("summary.md")),
            ("stdout", ran.stdout.clone()),
        ] {
            assert!(text.contains("exit code 3"), "{moment} {name}: {text}");
            assert!(text.contains("CUDA out of memory"), "{moment} {name}: {text}");
        }
        assert!(ran.read("junit.xml").contains("type=\"engine-died\""), "{moment}");
    });
}

#[test]
fn an_engine_that_a_signal_ends_is_told_by_the_signal() {
    side_by_side(["KILL", "SEGV", "ABRT"], |signal| {
        // The first SIGSEGV from outside does nothing to a Rust program.
        let shell = format!("(sleep 1; while kill -{signal} $$; do sleep 0.1; done) 2>/dev/null &");
        let ran = project("restarts = 0", "", &shell, &decode("60s", "[1]")).run(&[]).exits(30);
        let (class, message) = broken(&states(&ran)[0]);
        assert_eq!(class, "engine-died");
        let words = format!("the engine died: killed by SIG{signal}");
        assert!(message.starts_with(&words), "{message}");
        let failure = &ran.record()["launches"][0]["failure"];
        assert!(failure["exit"].as_str().unwrap().contains(signal), "{failure}");
    });
}

/// Kills the engine whenever one of these cells has begun.
fn killer(cells: &str) -> String {
    format!(
        "(while sleep 0.1; do last=$(tail -n 1 out/journal.jsonl); for cell in {cells}; do \
         case $last in *'\"cell-started\":{{\"cell\":'$cell,*) kill -KILL $$ ;; esac; done; done) &"
    )
}

#[test]
fn cells_that_kill_the_engine_are_named_and_passed_over_as_far_as_restarts_go() {
    let (first, second) = ("in decode concurrency=2", "in decode concurrency=4");
    let cases = [
        (0, ["pass", "error", "error", "error", "error"]),
        (1, ["pass", "error", "pass", "error", "error"]),
        (3, ["pass", "error", "pass", "error", "pass"]),
    ];
    side_by_side(cases, |(restarts, verdicts)| {
        let policy = format!("restarts = {restarts}");
        let project = project(&policy, "", &killer("1 3"), &decode("1s", "[1, 2, 3, 4, 5]"));
        let ran = project.run(&[]).exits(30);
        let found: Vec<String> =
            ran.verdicts().iter().map(|it| it.rsplit(' ').next().unwrap().to_owned()).collect();
        assert_eq!(found, verdicts, "{restarts}: {}", ran.stdout);
        let record = ran.record();
        let reason = |cell: usize| record["cells"][cell]["state"]["not-run"]["reason"].as_str();
        let failure = &record["launches"][0]["failure"];
        let warnings = record["warnings"].to_string();
        match restarts {
            0 => {
                let words = format!(
                    "not run: launch engine failed: the engine died {first}: killed by SIGKILL; policy.restarts = 0"
                );
                assert_eq!((reason(2), reason(4)), (Some(&*words), Some(&*words)));
            }
            1 => {
                let words = format!(
                    "not run: launch engine failed: the engine was lost 2 times: {first} (killed by SIGKILL), \
                     {second} (killed by SIGKILL); policy.restarts = 1"
                );
                assert_eq!(reason(4), Some(&*words));
                assert!(ran.read("junit.xml").contains(&words), "{}", ran.read("junit.xml"));
                assert!(warnings.contains("(restart 1 of 1)"), "{warnings}");
            }
            _ => {
                assert_eq!(*failure, Value::Null);
                for place in [first, second] {
                    assert!(warnings.contains(place), "{warnings}");
                }
            }
        }
        assert_eq!(left(&project), Vec::<String>::new());
    });
}

#[test]
fn a_cell_that_killed_the_engine_is_passed_over_and_named_after_a_resumption_too() {
    let project = project("", "", &killer("1 3"), &decode("700ms", "[1, 2, 3, 4, 5]"));
    project.run(&[]).exits(30);
    // Cut where the engine has just been started again.
    let text = journal(&project);
    let second = text.match_indices("{\"launch-started\"").nth(1).unwrap().0;
    let cut = &text[..second + text[second..].find('\n').unwrap() + 1];
    std::fs::write(project.path().join("out/journal.jsonl"), cut).unwrap();
    let ran = project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(30);
    assert!(journal(&project).starts_with(cut));
    assert_eq!(ran.having("pass").len(), 2, "{:?}", ran.verdicts());
    let reason = ran.record()["cells"][4]["state"]["not-run"]["reason"].to_string();
    let words = "the engine was lost 2 times: in decode concurrency=2, in decode concurrency=4 (killed by SIGKILL)";
    assert!(reason.contains(words), "{reason}");
}

#[test]
fn a_restart_that_fails_is_tried_again_while_restarts_are_left() {
    // The second start finds its memory still taken, as after a kill.
    let shell = "n=$(cat starts 2>/dev/null || echo 0); echo $((n + 1)) > starts\n\
         if [ $n = 1 ]; then echo 'ValueError: Free memory on device is less than desired'; exit 1; fi";
    for (restarts, passed) in [(1, 1), (2, 2)] {
        let policy = format!("restarts = {restarts}");
        let shell = format!("{shell}\n{}", killer("1"));
        let project = project(&policy, "", &shell, &decode("700ms", "[1, 2, 3]"));
        let ran = project.run(&[]).exits(30);
        assert_eq!(ran.having("pass").len(), passed, "{:?}", ran.verdicts());
        let failure = ran.record()["launches"][0]["failure"]["message"].to_string();
        let told = "the engine died in decode concurrency=2: killed by SIGKILL; started again: the engine ended";
        assert_eq!(failure.contains(told), restarts == 1, "{failure}");
    }
}

/// A run whose engine and itself are ended at nearly the same time, the way schedulers do.
struct Cancelled {
    signal: Signal,
    /// How the engine ends.
    shell: &'static str,
    /// What the journal says when the signals come.
    moment: &'static str,
    /// Time from the engine's signal to that of tokgate; negative where tokgate has its own first.
    gap: i64,
}

fn cancelled(case: &Cancelled) {
    let project = project("", "", case.shell, &decode("2s", "[1, 2]"));
    let child = project
        .command(&["run", "suite.toml", "--out", "out", "--no-progress"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the moment comes", || journal(&project).contains(case.moment));
    // Into the cell, if it is one.
    thread::sleep(Duration::from_millis(700));
    let pid = std::fs::read_to_string(project.path().join("pid")).unwrap();
    let engine = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let pause = Duration::from_millis(case.gap.unsigned_abs());
    let tokgate = Pid::from_child(&child);
    let order = if case.gap < 0 { [tokgate, engine] } else { [engine, tokgate] };
    kill_process(order[0], case.signal).unwrap();
    thread::sleep(pause);
    // It may be gone by now.
    let _ = kill_process(order[1], case.signal);
    let ran = project.ran(child.wait_with_output().unwrap());
    let what = format!("{:?} {} after {}", case.signal, case.gap, case.moment);
    assert_eq!(ran.code, 128 + case.signal.as_raw(), "{what}: {}", ran.stderr);
    let told = journal(&project);
    assert!(!told.contains("cell-finished") && !told.contains("launch-failed"), "{what}: {told}");
    for state in states(&ran) {
        assert_eq!(state["not-run"]["reason"], "not run: the run was interrupted", "{what}");
    }
    assert_eq!(left(&project), Vec::<String>::new());
    if case.gap == 100 {
        let arguments = ["run", "suite.toml", "--no-progress", "--resume", "out"];
        assert_eq!(project.tokgate(&arguments).exits(0).having("pass").len(), 2, "{what}");
    }
}

#[test]
fn an_engine_that_is_ended_together_with_the_run_has_not_died_in_a_cell() {
    let cell = "cell-started";
    let (term, int) = (Signal::TERM, Signal::INT);
    let case = |signal, shell, moment, gap| Cancelled { signal, shell, moment, gap };
    let cases = [
        case(term, IN_GOOD_ORDER, cell, 0),
        case(term, IN_GOOD_ORDER, cell, 100),
        case(term, IN_GOOD_ORDER, cell, 400),
        case(int, IN_GOOD_ORDER, cell, 200),
        case(term, IN_GOOD_ORDER, cell, -100),
        case(int, IN_GOOD_ORDER, cell, -300),
        case(term, BEHIND_A_SHELL, cell, 300),
        case(int, BEHIND_A_SHELL, cell, 0),
        case(term, BY_THE_SIGNAL, cell, 400),
        case(term, "exec sleep 600", "\"health\"", 300),
        case(term, "exec sleep 600", "\"health\"", 0),
    ];
    side_by_side(&cases, cancelled);
}

/// Ends with 0, as the simulated engine does by itself.
const IN_GOOD_ORDER: &str = "";
/// Ends with 143, as a shell in front of an engine does.
const BEHIND_A_SHELL: &str = "trap 'kill $engine; exit 143' TERM INT; run() { \"$@\" & engine=$!; wait; }; exec() { run \"$@\"; }";
/// Is killed by the signal.
const BY_THE_SIGNAL: &str = "exec() { \"$@\" & wait; }";

#[test]
fn an_engine_that_dies_alone_is_put_down_to_its_cell_whatever_its_exit() {
    // The same ends, and no signal for the run.
    let ends = [("TERM", IN_GOOD_ORDER, "exit code 0"), ("TERM", BEHIND_A_SHELL, "exit code 143")];
    side_by_side(ends, |(signal, shell, exit)| {
        let shell = format!("{shell}\n(sleep 1; kill -{signal} $$) &");
        let ran = project("restarts = 0", "", &shell, &decode("60s", "[1]")).run(&[]).exits(30);
        let (class, message) = broken(&states(&ran)[0]);
        assert_eq!(class, "engine-died");
        assert!(message.starts_with(&format!("the engine died: {exit}")), "{message}");
    });
}

/// `[[fault]]` of a status for these requests.
fn status(status: u16, requests: std::ops::Range<u32>, message: &str) -> String {
    let nth: Vec<u32> = requests.collect();
    format!(
        "[[fault]]\nkind = \"status\"\nstatus = {status}\nmessage = \"{message}\"\nrequests = {{ nth = {nth:?} }}\n"
    )
}

/// Class and count of the failures of each cell, and the verdict.
fn failures(ran: &Ran) -> Vec<(String, String)> {
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    let classes = |cell: &Value| {
        let failures = cell["state"]["measured"]["failures"].as_object();
        failures.into_iter().flatten().map(|(class, _)| class.clone()).collect::<Vec<_>>().join(" ")
    };
    let verdict = |cell: &Value| cell["judgement"]["verdict"].as_str().unwrap().to_owned();
    cells.iter().map(|cell| (verdict(cell), classes(cell))).collect()
}

#[test]
fn a_burst_of_refusals_fails_the_cell_that_it_befalls_and_no_other() {
    let pair = |verdict: &str, class: &str| (verdict.to_owned(), class.to_owned());
    for code in [429, 503] {
        for (test, first) in [
            (PREFILL.replace("[512]", "[256, 512, 1024]"), 6),
            (decode("1s", "[1, 2, 3]"), 8),
            (serve("matrix.concurrency = [1, 2, 3]", 40), 50),
        ] {
            let burst = status(code, first..first + 3, "slow down");
            let ran = virtually(&burst, &test).run(&[]).exits(10);
            let found = failures(&ran);
            assert_eq!(
                found.iter().filter(|cell| **cell == pair("fail", "rate-limited")).count(),
                1,
                "{code} {test}: {found:?}"
            );
            assert_eq!(
                found.iter().filter(|cell| **cell == pair("pass", "")).count(),
                2,
                "{code} {test}: {found:?}"
            );
            assert_eq!(ran.record()["launches"][0]["failure"], Value::Null);
        }
        // One that does not end fails every cell, and the engine is not started again: it is there.
        let tests =
            format!("{PREFILL}{}{}", decode("1s", "[2]"), serve("matrix.concurrency = [2]", 40));
        let ran = virtually(&status(code, 2..4000, "slow down"), &tests).run(&[]).exits(10);
        assert_eq!(failures(&ran), vec![pair("fail", "rate-limited"); 3]);
        assert!(ran.stdout.contains("slow down"), "{}", ran.stdout);
        assert_eq!(ran.record()["launches"][0]["failure"], Value::Null);
    }
}

#[test]
fn an_engine_without_memory_that_lives_on_fails_and_is_quoted() {
    let tests = format!("{}{}", decode("1s", "[2]"), serve("matrix.concurrency = [2]", 40));
    let ran = virtually(&status(500, 2..4000, OUT_OF_MEMORY), &tests).run(&[]).exits(10);
    assert_eq!(failures(&ran), vec![("fail".to_owned(), "status".to_owned()); 2]);
    assert!(ran.read("junit.xml").contains(OUT_OF_MEMORY), "{}", ran.read("junit.xml"));
}

#[test]
fn a_hang_fails_its_cell_within_the_idle_limit_and_the_engine_is_started_again() {
    let tests = format!("{}{}", decode("1s", "[2, 4]"), serve("matrix.concurrency = [2, 4]", 40));
    let hang = "[[fault]]\nkind = \"hang\"\nat-token = 60\n";
    let ran = virtually(hang, &tests).run(&[]).exits(10);
    let stalled = ("fail".to_owned(), "stalled".to_owned());
    assert_eq!(failures(&ran)[..2], [stalled.clone(), stalled], "one of each start");
    let record = ran.record();
    let seconds: Vec<f64> =
        (0..2).map(|i| record["cells"][i]["seconds"].as_f64().unwrap()).collect();
    // Each stream may stall twice before the cell is given up, and one request more is tried; sixty
    // seconds is the default of the idle limit.
    assert!(seconds.iter().all(|seconds| (60.0..240.0).contains(seconds)), "{seconds:?}");
    let failure = record["launches"][0]["failure"]["message"].as_str().unwrap();
    assert!(failure.contains("the engine does not answer any more"), "{failure}");
}

#[test]
fn an_engine_that_falls_mute_anywhere_is_noticed_in_bounded_time() {
    let tests = format!("{PREFILL}{}", decode("1s", "[2]"));
    let mute = |path: &str| format!("[[fault]]\nkind = \"mute\"\n{path}\n");
    // (faults, exit code, verdicts, words)
    for (path, code, verdicts, words) in [
        ("path = \"/health\"", 30, ["error", "error"], "no answer to GET /health"),
        ("path = \"/v1/models\"", 30, ["error", "error"], "no answer to GET /v1/models"),
        ("path = \"/v1/completions\"", 30, ["error", "error"], "no answer to POST /v1/completions"),
        ("path = \"/tokenize\"", 30, ["error", "error"], "POST /tokenize: no answer within 30s"),
        // Without gauges a cell can be measured all the same.
        ("path = \"/metrics\"\nafter = \"10ms\"", 0, ["pass", "pass"], ""),
        ("after = \"300ms\"", 10, ["pass", "fail"], "the engine does not answer any more"),
    ] {
        let ran = virtually(&mute(path), &tests).run(&[]).exits(code);
        let found: Vec<String> = failures(&ran).into_iter().map(|(verdict, _)| verdict).collect();
        assert_eq!(found, verdicts, "{path}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{path}: {}", ran.stdout);
    }
}

#[test]
fn an_engine_that_is_stopped_amid_a_cell_is_given_up_and_ended() {
    let shell = "(sleep 1; kill -STOP $$) &";
    let project = project("restarts = 0", "", shell, &decode("60s", "[1, 2]"));
    let began = Instant::now();
    let ran = project.run(&[]).exits(10);
    let (verdict, class) = failures(&ran).swap_remove(0);
    assert_eq!((verdict.as_str(), class.as_str()), ("fail", "stalled"), "{}", ran.stdout);
    let reason = ran.record()["cells"][1]["state"]["not-run"]["reason"].to_string();
    assert!(reason.contains("does not answer any more in decode concurrency=1"), "{reason}");
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn an_engine_that_says_that_it_is_broken_is_started_again() {
    // As vLLM's API server does whose engine core has died, before it ends itself.
    let sick = "[[fault]]\nkind = \"sick\"\nat-token = 60\nmessage = \"EngineCore encountered an issue\"\n";
    for test in [decode("1s", "[2, 4, 8]"), serve("matrix.concurrency = [2, 4, 8]", 40)] {
        let ran = virtually(sick, &test).run(&[]).exits(30);
        let states = states(&ran);
        for state in &states[..2] {
            let (class, message) = broken(state);
            assert_eq!(class, "engine-broken", "{message}");
            for words in ["the engine says that it is broken: GET /health: 503", "EngineCore"] {
                assert!(message.contains(words), "{message}");
            }
        }
        let reason = states[2]["not-run"]["reason"].as_str().unwrap();
        assert!(reason.contains("the engine was lost 2 times: in "), "{reason}");
    }
}

#[test]
fn a_short_soak_ends_clean() {
    let folder = tempfile::tempdir().unwrap();
    let soaked = soak(Path::new(env!("CARGO_BIN_EXE_tokgate")), folder.path(), 11, 6);
    assert!(soaked.broken.is_empty(), "{}", soaked.table());
}
