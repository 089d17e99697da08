//! Figures of whole runs against what the simulated engine was told to do, and whose fault it is
//! where an engine does not do as it should.

use serde_json::Value;

use crate::harness::{Project, Ran};

/// Without noise: 1, 4 and 16 streams make a token each in 5, 5.4 and 6.6 ms.
const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
[prefill]
tokens = [16, "1K", "16K"]
ms     = [ 4,  40,  600]
[admit]
at = [1, 4, 16]
grid = [["1K", 9, 12, 20]]
[step]
at = [1, 4, 16]
grid = [["1K", 5.0, 5.4, 6.6]]
"#;

/// A decode test of a second in virtual time; `request` goes below `[request]`, `test` below
/// `[[test]]`, `more` behind everything.
fn decode(engine: &str, request: &str, test: &str, more: &str) -> Project {
    let length = if test.contains("duration") { "" } else { "duration = \"1s\"\nmin-tokens = 20" };
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "measured"
[engine]
kind = "sim"
clock = "virtual"
profile = "engine.toml"
[request]
{request}
[[test]]
kind = "decode"
{length}
{test}
{more}"#
    ));
    project.file("engine.toml", engine);
    project
}

fn run(project: &Project) -> Ran {
    project.run(&["--seed", "7"])
}

/// What was measured in a cell.
fn measured(ran: &Ran, cell: usize) -> Value {
    let found = ran.record()["cells"][cell]["state"]["measured"].clone();
    assert!(found.is_object(), "{}\n{}", ran.read("record.json"), ran.stderr);
    found
}

fn rate(measured: &Value, metric: &str) -> f64 {
    measured["observations"][metric]["batches"]["rate"].as_f64().unwrap()
}

fn exact(measured: &Value, metric: &str) -> f64 {
    measured["observations"][metric]["exact"].as_f64().unwrap()
}

/// Middle of samples, waves or counts.
fn middle(measured: &Value, metric: &str) -> f64 {
    let observed = &measured["observations"][metric];
    let numbers = |of: &Value| -> Vec<f64> {
        of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let mut all: Vec<f64> = match observed.as_object().unwrap().iter().next().unwrap() {
        (kind, of) if kind == "samples" => numbers(of),
        (kind, of) if kind == "waves" => of.as_array().unwrap().iter().flat_map(numbers).collect(),
        (kind, of) => panic!("{metric} is {kind}: {of}"),
    };
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The fault of a check, `null` where it holds.
fn fault(measured: &Value, check: &str) -> Value {
    let checks = measured["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["kind"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {checks:?}"))["fault"].clone()
}

#[track_caller]
fn near(got: f64, want: f64, share: f64) {
    assert!((got / want - 1.0).abs() <= share, "{got} for {want}");
}

const STREAMS: &str = "matrix.concurrency = [1, 4, 16]";

#[test]
fn rates_and_latencies_are_those_of_the_engine() {
    // Tokens that come together have the same rate and shared gaps.
    for (more, chunk) in [("", 1.0), ("tokens-per-chunk = 4", 4.0)] {
        for request in ["", "api = \"chat\""] {
            let ran = run(&decode(&format!("{more}{ENGINE}"), request, STREAMS, "")).exits(0);
            let expected = [(1.0, 5.0, 9.0), (4.0, 5.4, 12.0), (16.0, 6.6, 20.0)];
            for (cell, (streams, step, first)) in expected.into_iter().enumerate() {
                let found = measured(&ran, cell);
                near(rate(&found, "output-throughput"), streams * 1e3 / step, 0.01);
                near(rate(&found, "per-request-throughput"), 1e3 / step, 0.01);
                near(middle(&found, "tpot"), step, 0.01);
                near(exact(&found, "active-requests"), streams, 0.01);
                // Its tokens leave at whole milliseconds.
                let ttft = middle(&found, "ttft");
                assert!(ttft >= first && ttft <= first + 1.0, "{ttft} for {first}");
                let gap = middle(&found, "chunk-gap");
                assert!((gap - step * chunk).abs() <= 1.0, "{gap} for {}", step * chunk);
                assert_eq!(fault(&found, "client-lag"), Value::Null);
            }
        }
    }
}

#[test]
fn requests_that_end_in_the_window_cost_their_first_tokens() {
    // 8 tokens in 20 + 7 × 6.6 ms, of which the first 20 ms have no token.
    let ran = run(&decode(ENGINE, "", "max-output = 8\nmatrix.concurrency = [16]", "")).exits(0);
    let found = measured(&ran, 0);
    near(rate(&found, "output-throughput"), 16.0 * 8.0 / 0.0662, 0.03);
    near(rate(&found, "per-request-throughput"), 1e3 / 6.6, 0.02);
    near(exact(&found, "active-requests"), 16.0 * 46.2 / 66.2, 0.03);
    let requests = exact(&found, "completed-requests");
    near(exact(&found, "output-tokens"), requests * 8.0, 0.1);
    // More tokens are asked for than a request has.
    assert!(exact(&found, "output-tokens") >= 16.0 * 20.0);
}

#[test]
fn a_cold_prompt_is_cold_in_every_request() {
    for request in ["", "api = \"chat\""] {
        let warm = measured(&run(&decode(ENGINE, request, "max-output = 8", "")).exits(0), 0);
        near(rate(&warm, "output-throughput"), 8.0 / 0.044, 0.03);
        let ran = run(&decode(ENGINE, request, "max-output = 8\nprefix = \"cold\"", "")).exits(0);
        let cold = measured(&ran, 0);
        near(rate(&cold, "output-throughput"), 8.0 / 0.075, 0.03);
        assert!((middle(&cold, "ttft") - 40.0).abs() <= 1.0);
        assert_eq!(fault(&cold, "cache-state"), Value::Null);
    }
}

#[test]
fn prefill_is_cold_whatever_the_prompts_are_made_of() {
    for request in ["", "api = \"chat\""] {
        let project = Project::with(&format!(
            "version = 1\n[suite]\nname = \"prefill\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
             profile = \"engine.toml\"\n[request]\n{request}\n\
             [[test]]\nkind = \"prefill\"\nmatrix.context = [\"1K\", \"16K\"]\n"
        ));
        project.file("engine.toml", ENGINE);
        let ran = run(&project).exits(0);
        for (cell, ms) in [(0, 40.0), (1, 600.0)] {
            let found = measured(&ran, cell);
            near(middle(&found, "ttft"), ms, 0.025);
            assert_eq!(fault(&found, "client-lag"), Value::Null);
        }
    }
}

#[test]
fn groups_share_their_beginning() {
    for request in ["", "api = \"chat\""] {
        let test = "prefix = { groups = 2, length = 600 }\nmatrix.concurrency = [4]";
        let found = measured(&run(&decode(ENGINE, request, test, "")).exits(0), 0);
        assert_eq!(fault(&found, "cache-state"), Value::Null);
        assert_eq!(fault(&found, "prompt-length"), Value::Null);
        near(rate(&found, "output-throughput"), 4e3 / 5.4, 0.01);
    }
}

#[test]
fn a_prompt_that_is_a_little_too_long_is_shortened_and_the_record_says_so() {
    let test = "matrix.context = [\"31K\", \"32K\", \"33K\"]\nmax-output = 64";
    let ran = run(&decode(ENGINE, "", test, "")).exits(0);
    assert_eq!(ran.having("skip"), ["decode context=33K"]);
    let said = |cell: usize| {
        let checks = measured(&ran, cell)["checks"].clone();
        checks.as_array().unwrap()[0]["message"].as_str().unwrap().to_owned()
    };
    assert!(said(0).starts_with("prompt of 31744 tokens, 31744 by the server"), "{}", said(0));
    assert!(!said(0).contains("shortened"), "{}", said(0));
    assert!(said(1).starts_with("prompt of 32704 tokens, 32704 by the server"), "{}", said(1));
    assert!(said(1).contains("shortened from 32768"), "{}", said(1));
}

#[test]
fn both_clocks_come_to_the_same_verdicts() {
    let more = r#"[[expect]]
metric = "output-throughput"
min.rows = "concurrency"
min.grid = [[1, 60], [4, 4_000], [16, "over"]]
[[expect]]
where = { concurrency = 2 }
metric = "ttft.p50"
max = "1ms"
[[quarantine]]
where = { concurrency = 2 }
reason = "known"
expires = 2099-12-31
[policy]
max-client-lag = "10s"
"#;
    let engine = ENGINE.replace("512K", "32K");
    let test = "max-output = 2048\nmatrix.concurrency = [1, 2, 4, 16]";
    let project = decode(&format!("{engine}[noise]\nwithin = \"2%\""), "", test, more);
    let expected = [
        "decode concurrency=1 pass",
        "decode concurrency=2 xfail",
        "decode concurrency=4 fail",
        "decode concurrency=16 skip",
    ];
    assert_eq!(run(&project).exits(10).verdicts(), expected);
    let real = ["--seed", "7", "--set", "engine.clock=real"];
    assert_eq!(project.run(&real).exits(10).verdicts(), expected);
}

/// A fault of the engine and the check that must tell it; the cell is a failure, never an error.
fn degrades(engine: &str, test: &str, check: &str) {
    let ran = run(&decode(engine, "", test, "")).exits(10);
    assert_eq!(ran.having("fail").len(), 1, "{:?}", ran.verdicts());
    assert_eq!(fault(&measured(&ran, 0), check), "degraded", "{engine}");
    assert!(ran.read("junit.xml").contains("type=\"degraded\""));
}

#[test]
fn what_the_engine_does_wrong_is_its_fault() {
    let fault = |text: &str| format!("{ENGINE}\n[[fault]]\n{text}");
    // Requests that are refused leave their streams without one for a while.
    degrades(
        &fault("kind = \"status\"\nstatus = 429\nrequests = { share = \"20%\", min-output = 2 }"),
        "max-output = 16\nmatrix.concurrency = [4]",
        "error-rate",
    );
    degrades(
        &fault("kind = \"stall\"\nat-token = 30\nfor = \"3s\"\nrequests = { min-output = 2 }"),
        "matrix.concurrency = [4]\nmax-output = 100",
        "stall",
    );
    degrades(
        &ENGINE.replace("32K", "4K").replace("512K", "17K"),
        "capacity = \"off\"\nmatrix.concurrency = [16]",
        "preemption",
    );
    degrades(
        &format!("max-num-seqs = 8{ENGINE}"),
        "max-output = 64\nmatrix.concurrency = [16]",
        "queued",
    );
}

#[test]
fn a_stall_that_outlasts_the_window_is_seen() {
    // Only the last request, which does not open the window, goes silent, and for good: its gap has no end.
    let stall = "[[fault]]\nkind = \"stall\"\nat-token = 150\nfor = \"30s\"\n\
                 requests = { every = 4, min-output = 2 }";
    degrades(
        &format!("{ENGINE}\n{stall}"),
        "duration = \"3s\"\nmin-tokens = 100\nmatrix.concurrency = [4]",
        "stall",
    );
}

/// Measures a cell of a noisy engine without a limit, then with one a little beyond what came out: it
/// must be extended. Returns what was measured the first time and with the extension.
fn extended(test: &str, middle: impl Fn(&Value) -> f64, limit: &str) -> [Value; 2] {
    let project = Project::new();
    let noise = "[noise]\nwithin = \"25%\"\nfirst-token = \"25%\"";
    project.file("engine.toml", &format!("{ENGINE}{noise}"));
    let run = |expect: &str| {
        project.file(
            "suite.toml",
            &format!(
                "version = 1\n[suite]\nname = \"doubt\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
                 profile = \"engine.toml\"\n[[test]]\n{test}\n{expect}"
            ),
        );
        measured(&run(&project), 0)
    };
    let first = run("");
    let beyond = limit.replace("LOW", &(middle(&first) * 0.999).to_string());
    let beyond = beyond.replace("HIGH", &(middle(&first) * 1.001).to_string());
    let second = run(&format!("[[expect]]\n{beyond}"));
    assert_eq!((&first["extended"], &second["extended"]), (&false.into(), &true.into()));
    [first, second]
}

#[test]
fn what_is_in_doubt_is_measured_twice_as_long() {
    let count = |found: &Value, metric: &str, pointer: &str| {
        found["observations"][metric].pointer(pointer).unwrap().as_array().unwrap().len()
    };
    let batches = |found: &Value| count(found, "output-throughput", "/batches/means");
    let waves = |found: &Value| count(found, "ttft", "/waves");
    let decode = "kind = \"decode\"\nduration = \"2s\"\nmin-tokens = 20\nmatrix.concurrency = [4]";

    // The rate: the window goes on, and no wave more.
    let throughput = |found: &Value| rate(found, "output-throughput");
    let limit = "metric = \"output-throughput\"\nmin = HIGH";
    let [first, second] = extended(decode, throughput, limit);
    assert_eq!([&first, &second].map(batches), [10, 20]);
    assert_eq!([&first, &second].map(waves), [3, 3]);
    near(exact(&second, "measured-time"), 2.0 * exact(&first, "measured-time"), 0.02);

    // First tokens: waves, and no longer window.
    let limit = "metric = \"ttft.p50\"\nmax = \"LOWms\"";
    let [first, second] = extended(decode, |found| middle(found, "ttft"), limit);
    assert_eq!([&first, &second].map(waves), [3, 6]);
    assert_eq!([&first, &second].map(batches), [10, 10]);

    // Prefill: as many samples again, each of a prompt of its own.
    let mean = |found: &Value| {
        let samples = found["observations"]["prefill-throughput"]["samples"].as_array().unwrap();
        samples.iter().map(|sample| sample.as_f64().unwrap()).sum::<f64>() / samples.len() as f64
    };
    let limit = "metric = \"prefill-throughput\"\nmin = HIGH";
    let [first, second] = extended("kind = \"prefill\"\nsamples = 3", mean, limit);
    assert_eq!([&first, &second].map(|found| count(found, "ttft", "/samples")), [3, 6]);
    assert_eq!(fault(&second, "cache-state"), Value::Null);
}
