//! Serve and command tests that are right: what their keys come to, and what can be expected of them.

use tokgate::load::{Arrival, Length};
use tokgate::measure::{Base, Direction, Metric, Preset};
use tokgate::suite::model::{
    Amount, CommandSetting, DatasetFormat, LengthSetting, ServeSetting, Slo, Test,
};

use super::*;
use crate::harness::Project;

/// Every key of serve and command tests, once.
pub const SERVED: &str = r#"version = 1
[suite]
name = "served"
[model]
name = "org/model"
[engine]
kind = "vllm"
command = "vllm serve {{ model.name }} --port {{ port }}"
gpus = 2
setup = ["fetch sharegpt.json"]
[secrets]
api_key = { generate = true }
[vars]
streams = "{{ axis.concurrency }}"
[matrix]
concurrency = [1, 4]
context = ["8K"]
layout = ["a", "b"]
[[test]]
name = "closed"
kind = "serve"
requests-per-stream = 20
warmup-per-stream = 0
input = { jitter = "20%" }
output = { normal = ["1K", 50] }
prefix = "cold"
slo = { ttft = "500ms", tpot = "50ms", e2e-latency = "10s" }
repeat = 3
matrix.input = ["8K", "16K"]
[[test]]
name = "ladder"
kind = "serve"
arrival = "poisson"
duration = "2m"
input = { uniform = ["6000", 8000] }
output = { jitter = "10%", around = 512 }
prefix = { groups = 150, length = 6000 }
matrix.request_rate = [0.5, 3, 10]
request.timeout = "100s"
[[test]]
name = "all-at-once"
kind = "serve"
arrival = "burst"
requests = 500
matrix.output = [128]
[[test]]
name = "chats"
kind = "serve"
requests = 300
dataset = { file = "data/sharegpt.json", format = "sharegpt", min-input = 4, max-input = "1K", min-output = 2, max-output = 1000, max-total = "2K" }
request.api = "chat"
[[test]]
name = "gsm8k"
kind = "command"
command = """
lm_eval --base_url {{ url }}/v1 --streams {{ vars.streams }} --key {{ secret.api_key }}
  --output_path {{ cell.dir }}/out.json
"""
result = "out.json"
metrics.exact_match = { pointer = "/results/gsm8k/exact_match,strict-match", better = "higher", unit = "%" }
metrics.seconds = { pointer = "/total~1time", better = "lower" }
timeout = "20m"
repeat = 2
[[test]]
name = "bench"
kind = "command"
command = ["vllm", "bench", "serve", "--port", "{{ port }}", "--result-dir", "{{ cell.dir }}"]
result = "{{ cell.dir }}/bench.json"
preset = "vllm-bench-serve"
matrix.input = [128]
matrix.shots = [0, 5]
[[test]]
kind = "decode"
[[expect]]
metric = "exact_match"
min = "91%"
where = { concurrency = 4 }
[[expect]]
test = "gsm8k"
metric = "seconds"
max.rows = "layout"
max.grid = [["a", 100], ["b", 200.5]]
[[expect]]
test = "closed"
metric = "goodput-per-gpu"
min = 1.5
[[expect]]
test = "ladder"
metric = "error-rate"
max = "0.1%"
where = { request_rate = "..3" }
[[expect]]
metric = "ttft-due.p50"
max = "2s"
"#;

fn tests(suite: &Suite) -> Vec<(&str, String)> {
    let axes = |test: &Test| {
        let names: Vec<&str> = test.axes.iter().map(|axis| axis.name.as_str()).collect();
        names.join(" ")
    };
    suite.tests.iter().map(|test| (test.name.as_str(), axes(test))).collect()
}

fn serve<'s>(suite: &'s Suite, name: &str) -> &'s ServeSetting {
    let test = suite.tests.iter().find(|test| test.name == name).unwrap();
    let TestSetting::Serve(setting) = &test.kind else { panic!("{:?}", test.kind) };
    setting
}

fn command<'s>(suite: &'s Suite, name: &str) -> &'s CommandSetting {
    let test = suite.tests.iter().find(|test| test.name == name).unwrap();
    let TestSetting::Command(setting) = &test.kind else { panic!("{:?}", test.kind) };
    setting
}

fn served() -> Loaded {
    files(&[("data/sharegpt.json", "[]"), ("suite.toml", SERVED)]).load(LoadOptions::default())
}

#[test]
fn every_key_of_a_serve_test_arrives() {
    let loaded = served();
    assert_eq!(loaded.warnings, []);
    let suite = loaded.suite;
    let closed = serve(&suite, "closed");
    assert_eq!((closed.arrival, closed.amount), (Arrival::Closed, Amount::PerStream(20)));
    assert_eq!((closed.warmup_per_stream, closed.repeat), (0, 3));
    assert_eq!(closed.input, LengthSetting::Jitter { around: 1024, share: 0.2 });
    let normal = Length::Normal { mean: 1024.0, sd: 50.0 };
    assert_eq!(closed.output, LengthSetting::Plain(normal));
    assert_eq!(closed.prefix, Prefix::Cold);
    let seconds = |n| Some(Duration::from_secs_f64(n));
    assert_eq!(
        closed.slo,
        Slo { ttft: seconds(0.5), tpot: seconds(0.05), e2e_latency: seconds(10.0) }
    );
    let ladder = serve(&suite, "ladder");
    assert_eq!(ladder.arrival, Arrival::Poisson);
    assert_eq!(ladder.amount, Amount::Duration(Duration::from_secs(120)));
    assert_eq!(ladder.input, LengthSetting::Plain(Length::Uniform(6000, 8000)));
    assert_eq!(ladder.output, LengthSetting::Jitter { around: 512, share: 0.1 });
    assert_eq!(ladder.prefix, Prefix::Groups { groups: 150, length: 6000 });
    assert_eq!(suite.tests[1].request.timeout, Duration::from_secs(100));
    let burst = serve(&suite, "all-at-once");
    assert_eq!((burst.arrival, burst.amount), (Arrival::Burst, Amount::Requests(500)));
    let chats = serve(&suite, "chats").dataset.as_ref().unwrap();
    assert_eq!(chats.format, DatasetFormat::Sharegpt);
    assert!(chats.file.ends_with("data/sharegpt.json"), "{:?}", chats.file);
    assert_eq!((chats.input, chats.output), ((Some(4), Some(1024)), (Some(2), Some(1000))));
    assert_eq!((chats.total, chats.place.line), (Some(2048), 50));
}

#[test]
fn axes_of_all_go_to_the_tests_that_have_a_use_for_them() {
    let suite = served().suite;
    let expected = [
        // A closed loop has streams, an open one a rate, a burst neither.
        ("closed", "input concurrency layout"),
        ("ladder", "request_rate layout"),
        ("all-at-once", "output layout"),
        ("chats", "concurrency layout"),
        // By way of `vars`, and not of `context`, which its command does not name.
        ("gsm8k", "concurrency layout"),
        ("bench", "input layout shots"),
        ("decode", "context concurrency layout"),
    ];
    assert_eq!(tests(&suite), expected.map(|(name, axes)| (name, axes.to_owned())));
}

#[test]
fn every_key_of_a_command_test_arrives() {
    let suite = served().suite;
    let gsm8k = command(&suite, "gsm8k");
    assert!(matches!(&gsm8k.command.form, CommandForm::Line(line) if line.contains("lm_eval")));
    assert_eq!((gsm8k.result.as_str(), gsm8k.preset), ("out.json", None));
    let metrics: Vec<_> =
        gsm8k.metrics.iter().map(|(metric, at)| (metric.name(), at.as_str())).collect();
    assert_eq!(
        metrics,
        [("exact_match", "/results/gsm8k/exact_match,strict-match"), ("seconds", "/total~1time")]
    );
    let entry = Base::User(gsm8k.metrics[0].0).entry();
    assert_eq!((entry.unit, entry.better), ("%", Direction::Higher));
    assert_eq!((gsm8k.timeout, gsm8k.repeat), (Duration::from_secs(1200), 2));
    let bench = command(&suite, "bench");
    assert_eq!((bench.preset, bench.repeat), (Some(Preset::VllmBenchServe), 1));
    assert_eq!(bench.timeout, Duration::from_secs(3600));
}

#[test]
fn what_a_tool_tells_is_bounded_like_the_catalogue() {
    let suite = served().suite;
    let found: Vec<(String, Vec<usize>, f64)> = suite
        .expectations
        .iter()
        .map(|expect| {
            let first = match &expect.bounds[0].1 {
                Limits::Scalar { value, .. } | Limits::Ratio { value, .. } => *value,
                Limits::Grid(grid) => match grid.entries[1].limit {
                    GridLimit::Value(value) => value,
                    other @ (GridLimit::None | GridLimit::Over) => panic!("{other:?}"),
                },
            };
            (expect.metric.to_string(), expect.tests.clone(), first)
        })
        .collect();
    let expected = [
        ("exact_match", vec![4], 91.0),
        ("seconds", vec![4], 200.5),
        ("goodput-per-gpu", vec![0], 1.5),
        ("error-rate", vec![1], 0.1),
        ("ttft-due.p50", vec![1], 2000.0),
    ];
    assert_eq!(found, expected.map(|(name, tests, value)| (name.to_owned(), tests, value)));
    let goodput: Metric = "goodput".parse().unwrap();
    let of = |at: usize| suite.tests[at].kind.produces(goodput);
    assert!(of(0) && !of(1), "only the first says what is good");
}

#[test]
fn percentiles_need_as_many_requests_as_they_say() {
    let warned = |test: &str, metric: &str| {
        let text = format!(
            "version = 1\n[suite]\nname = \"a\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"serve\"\n{test}[[expect]]\nmetric = \"{metric}\"\nmax = \"9s\"\n"
        );
        let found = loaded(&text).warnings;
        found.iter().map(|problem| problem.help.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    let per_stream = "requests-per-stream = 10\nmatrix.concurrency = [4, 64]\n";
    assert_eq!(
        warned(per_stream, "e2e-latency.p99"),
        ["write `requests-per-stream = 75` or more there, or bound the median, `e2e-latency.p50`"]
    );
    assert_eq!(warned(per_stream, "e2e-latency.p90"), [""; 0]);
    assert_eq!(
        warned("requests = 100\n", "tpot.p99"),
        ["write `requests = 300` or more there, or bound the median, `tpot.p50`"]
    );
    assert_eq!(warned("requests = 300\n", "tpot.p99"), [""; 0]);
    let open = "arrival = \"constant\"\nduration = \"60s\"\nmatrix.request_rate = [0.5, 20]\n";
    assert_eq!(
        warned(open, "ttft.p95"),
        ["write a longer `duration` there, or bound the median, `ttft.p50`"]
    );
    // Gaps are as many as tokens, and of a closed loop's duration nobody knows how many fit.
    assert_eq!(warned("requests = 10\n", "itl.p99"), [""; 0]);
    assert_eq!(warned("duration = \"60s\"\n", "ttft.p99"), [""; 0]);
}

#[test]
fn streams_that_have_nothing_to_send_are_a_warning() {
    let warned = |amount: &str| {
        let text = format!(
            "version = 1\n[suite]\nname = \"a\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"serve\"\n{amount}\nmatrix.concurrency = [1, 64]\n"
        );
        loaded(&text).warnings.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(warned("requests = 50"), ["50 requests can't keep 64 streams busy"]);
    assert_eq!(warned("requests = 64"), [""; 0]);
    assert_eq!(warned("requests-per-stream = 1"), [""; 0]);
}

#[test]
fn a_profile_lessens_the_work_and_says_another_length_whole() {
    let profile = "[profile.smoke]\ntest.ladder.input = { jitter = \"5%\", around = \"8K\" }\ntest.closed.requests-per-stream = 2\n";
    let text = format!("{SERVED}{profile}");
    let files = files(&[("data/sharegpt.json", "[]"), ("suite.toml", &text)]);
    let smoke = files.load(LoadOptions { profile: Some("smoke".into()), ..Default::default() });
    let suite = &smoke.suite;
    let around = LengthSetting::Jitter { around: 8192, share: 0.05 };
    assert_eq!(serve(suite, "ladder").input, around);
    assert_eq!(serve(suite, "closed").amount, Amount::PerStream(2));
}

/// A setup step may fetch it, so `check` only warns; a run without one would find out too late.
#[test]
fn a_data_set_that_is_not_there_stops_a_run_and_no_check() {
    let text = "version = 1\n[suite]\nname = \"a\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
        [[test]]\nkind = \"startup\"\n[[test]]\nkind = \"serve\"\nrequests = 2\n\
        dataset = { file = \"no.jsonl\", format = \"jsonl\" }\n";
    let project = Project::with(text);
    let checked = project.tokgate(&["check", "suite.toml"]).exits(0);
    assert!(checked.stderr.contains("⚠ there is no data set `no.jsonl`"), "{}", checked.stderr);
    let ran = project.tokgate(&["run", "suite.toml"]).exits(20);
    assert!(ran.stderr.contains("× there is no data set `no.jsonl`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("suite.toml:12:20"), "{}", ran.stderr);
    // What is not selected may lack its data.
    project.tokgate(&["run", "suite.toml", "-E", "test=startup"]).exits(0);
}
