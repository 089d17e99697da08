//! Suites that are right: what they come to, through the front door of the suite room.

mod overlays;
mod served;

pub use served::SERVED;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokgate::engine::Kind;
use tokgate::hardware::need::{Count, Need, Sampling, Vram};
use tokgate::judge::{Severity, Side};
use tokgate::load::Api;
use tokgate::suite::model::{
    AxisValue, Capacity, CommandForm, EngineSource, GridLimit, InconclusivePolicy, Limits, Prefix,
    Reference, SecretSource, SimClock, Suite, TestSetting, TimeLimit, UnjudgedPolicy,
};
use tokgate::suite::{LoadOptions, Loaded, defaults, load};

/// Writes files into a folder of their own and loads the last one.
struct Files {
    dir: tempfile::TempDir,
    last: PathBuf,
}

fn files(texts: &[(&str, &str)]) -> Files {
    let dir = tempfile::tempdir().unwrap();
    let mut last = PathBuf::new();
    for (name, text) in texts {
        last = dir.path().join(name);
        std::fs::create_dir_all(last.parent().unwrap()).unwrap();
        std::fs::write(&last, text).unwrap();
    }
    Files { dir, last }
}

impl Files {
    fn load(&self, options: LoadOptions) -> Loaded {
        load(&self.last, &options).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn refused(&self, options: LoadOptions) -> String {
        load(&self.last, &options).unwrap_err().render(false)
    }
}

fn loaded(text: &str) -> Loaded {
    files(&[("suite.toml", text)]).load(LoadOptions::default())
}

fn suite(text: &str) -> Suite {
    loaded(text).suite
}

const SMALL: &str = r#"version = 1
[suite]
name = "my-card"
[engine]
kind = "llama-cpp"
command = "llama-server -m model.gguf --port {{ port }}"
[[test]]
kind = "decode"
matrix.concurrency = [1, 4]
[[expect]]
metric = "output-throughput"
min = 50
"#;

#[test]
fn the_smallest_suite_has_all_defaults() {
    let suite = suite(SMALL);
    assert_eq!(suite.name, "my-card");
    assert!(suite.hardware.is_none());
    let engine = &suite.settings[0].engine;
    assert_eq!((engine.host.as_str(), engine.port, engine.gpus), ("127.0.0.1", None, None));
    assert_eq!(engine.ready.timeout, Duration::from_secs(600));
    assert!(engine.ready.models && engine.ready.completion && !engine.shell);
    assert_eq!(engine.stop_grace, Duration::from_secs(30));
    assert_eq!(engine.setup_timeout, Duration::from_secs(3600));
    assert_eq!(engine.metrics_url, None);
    let test = &suite.tests[0];
    assert_eq!((test.name.as_str(), test.place.line), ("decode", 7));
    let TestSetting::Decode(decode) = &test.kind else { panic!("{:?}", test.kind) };
    assert_eq!(decode.duration, Duration::from_secs(30));
    assert_eq!((decode.min_tokens, decode.max_output, decode.ttft_samples), (100, 256, 6));
    assert_eq!((decode.context, decode.concurrency), (1024, 1));
    assert_eq!((decode.prefix, decode.capacity), (Prefix::Unique, Capacity::Reserve));
    assert_eq!((test.request.api, test.request.prompt_tolerance), (Api::Completions, Some(0.005)));
    assert_eq!(test.request.output_tolerance, Some(0.01));
    assert_eq!(test.request.timeout, Duration::from_secs(300));
    assert_eq!(test.request.idle_timeout, Duration::from_secs(60));
    let expect = &suite.expectations[0];
    assert_eq!(
        (expect.tests.as_slice(), expect.slack, expect.severity),
        ([0].as_slice(), 0.0, Severity::Fail)
    );
    let (Side::Min, Limits::Scalar { value, place, .. }) = &expect.bounds[0] else { panic!() };
    assert_eq!((*value, place.line), (50.0, 12));
    let policy = &suite.policy;
    assert_eq!((policy.alpha, policy.restarts, policy.max_error_rate), (0.05, 1, 0.0));
    assert_eq!(policy.max_client_lag, Duration::from_millis(5));
    assert_eq!(policy.inconclusive, InconclusivePolicy::Warn);
    assert_eq!((policy.unjudged, policy.time_limit), (UnjudgedPolicy::Warn, None));
}

/// What a command test must say.
const TOOL: &str = "command = \"tool --out {{ cell.dir }}/out.json\"\nresult = \"out.json\"\n\
    metrics.score = { pointer = \"/score\", better = \"higher\" }\n";

/// What the table of defaults says, a suite that spells it out gets too.
#[test]
fn the_table_of_defaults_is_true() {
    let row = |key: &str| defaults::TABLE.iter().find(|(known, _)| *known == key);
    let value = |key: &str| row(key).unwrap().1;
    let key = |key: &str| format!("{} = {}\n", key.split_once('.').unwrap().1, value(key));
    let several = |keys: &[&str]| keys.iter().map(|one| key(one)).collect::<String>();
    let spelled = format!(
        "version = 1\n[suite]\nname = \"my-card\"\n{}[engine]\nkind = \"llama-cpp\"\n\
         command = \"llama-server -m model.gguf --port {{{{ port }}}}\"\n{}[hardware]\n{}[request]\n{}\
         [[test]]\nkind = \"decode\"\n{}ttft-samples = {}\n[[test]]\nkind = \"prefill\"\n{}\
         [[test]]\nkind = \"serve\"\n{}[[test]]\nkind = \"command\"\n{TOOL}{}\
         [[expect]]\nmetric = \"output-throughput\"\nmin = 50\n{}[policy]\n{}",
        key("suite.tags"),
        several(&[
            "engine.host",
            "engine.setup-timeout",
            "engine.ready.timeout",
            "engine.ready.models",
            "engine.ready.completion",
            "engine.stop.grace",
            "engine.shell"
        ]),
        several(&["hardware.on-mismatch", "hardware.allow-busy", "hardware.sampling"]),
        several(&[
            "request.api",
            "request.timeout",
            "request.idle-timeout",
            "request.prompt-tolerance",
            "request.output-tolerance"
        ]),
        several(&[
            "test.duration",
            "test.min-tokens",
            "test.max-output",
            "test.prefix",
            "test.capacity"
        ]),
        value("test.ttft-samples").split(',').next().unwrap(),
        key("test.samples"),
        several(&[
            "test.arrival",
            "test.requests-per-stream",
            "test.warmup-per-stream",
            "test.input",
            "test.output",
            "test.repeat",
        ]),
        several(&["test.timeout", "test.repeat"]),
        several(&["expect.slack", "expect.severity"]),
        several(&[
            "policy.alpha",
            "policy.inconclusive",
            "policy.unjudged",
            "policy.max-client-lag",
            "policy.restarts"
        ]),
    );
    let bare = format!(
        "version = 1\n[suite]\nname = \"my-card\"\n[engine]\nkind = \"llama-cpp\"\n\
         command = \"llama-server -m model.gguf --port {{{{ port }}}}\"\n[[test]]\nkind = \"decode\"\n\
         [[test]]\nkind = \"prefill\"\n[[test]]\nkind = \"serve\"\n[[test]]\nkind = \"command\"\n{TOOL}\
         [[expect]]\nmetric = \"output-throughput\"\nmin = 50\n"
    );
    let (spelled, bare) = (suite(&spelled), suite(&bare));
    assert_eq!(spelled.hardware, Some(Need { here: true, ..Need::default() }));
    let tests = |suite: &Suite| {
        let of = |test: &tokgate::suite::model::Test| {
            let mut kind = test.kind.clone();
            if let TestSetting::Command(setting) = &mut kind {
                // Its place is another one.
                (setting.command.place, setting.command.span) = Default::default();
            }
            (kind, test.request.clone())
        };
        suite.tests.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(tests(&spelled), tests(&bare));
    assert_eq!(spelled.policy, bare.policy);
    assert_eq!(spelled.tags, bare.tags);
    let engine = |suite: &Suite| {
        let engine = &suite.settings[0].engine;
        (
            engine.host.clone(),
            engine.ready.clone(),
            engine.stop_grace,
            engine.setup_timeout,
            engine.shell,
        )
    };
    assert_eq!(engine(&spelled), engine(&bare));
    assert_eq!(spelled.expectations[0].slack, bare.expectations[0].slack);
    assert_eq!(spelled.expectations[0].severity, bare.expectations[0].severity);
}

/// Every key that there is, once.
pub const WHOLE: &str = r#"#:schema ../schemas/suite.editor.schema.json
version = 1
[suite]
name = "inkling-small-h200x8"
tags = ["nightly"]
[hardware]
where = "here"
gpu = "H200"
count = 8
vram = "141GB"
driver = ">=570"
cuda = ">=12.8, <14"
os = "linux"
on-mismatch = "skip"
allow-busy = true
probe = ["srun", "{{ tokgate.path }}", "probe", "--format", "json"]
cool-below = 50
sampling = "500ms"
[model]
name = "thinkingmachines/Inkling-Small"
revision = "main"
quantization = "bf16"
[engine]
kind = "vllm"
version = "0.29.0"
command = """
vllm serve {{ model.name }} --tensor-parallel-size {{ engine.gpus }}
  --max-model-len {{ vars.max_model_len | tokens }} --port {{ port }} {{ vars.extra }}
"""
host = "127.0.0.1"
port = 8000
env = { VLLM_USE_V2_MODEL_RUNNER = "1" }
setup = ["hf download {{ model.name }}", ["echo", "a b"]]
setup-timeout = "2h"
ready = { timeout = "60m", models = false, completion = true }
stop = { grace = "10s", command = "docker rm -f tokgate-{{ run.id }}" }
metrics-url = ["http://{{ host }}:{{ port }}/metrics"]
log-must-contain = ["Using FLASH_ATTN"]
shell = false
[[engine.file]]
path = "engine.yaml"
content = "a: 1"
[request]
api = "chat"
body = { temperature = 0, tag = "{{ suite.name }}" }
headers = { x-tenant = "perf" }
timeout = "200s"
idle-timeout = "30s"
prompt-tolerance = "off"
output-tolerance = "2%"
[vars]
max_model_len = "1024K"
extra = ["--reasoning-parser", "inkling"]
tp = 8
[secrets]
api_key = { generate = true }
[matrix]
layout = [{ id = "tp8", tp = 8 }, { id = "dp8", tp = 1, dp = 8 }]
[[test]]
kind = "startup"
[[test]]
name = "prefill"
kind = "prefill"
samples = 4
matrix.context = ["8K", "16K", 1048576]
request.api = "completions"
request.headers.x-more = "1"
[[test]]
name = "decode"
kind = "decode"
duration = "10s"
min-tokens = 50
max-output = "4K"
prefix = { groups = 150, length = 6000 }
capacity = "share"
ttft-samples = 12
matrix.concurrency = { from = 1, to = 128, times = 2 }
matrix.context = { from = "8K", to = "64K", times = 2 }
exclude = [{ layout = "tp8", concurrency = "65.." }]
[[expect]]
name = "floors"
test = "decode"
metric = "output-throughput-per-gpu"
slack = "5%"
min.rows = "context"
min.columns = "concurrency"
min.at   = [       1,     2 ]
min.grid = [
  ["8K",       135.5, 238 ],
  [16384,       "-", "over"],
]
[[expect]]
test = ["prefill", "decode"]
where = { context = "..64K", layout = ["tp8", "dp8"] }
except = { context = "!8K" }
metric = "ttft.p50"
max = "350ms"
severity = "warn"
[[expect]]
metric = "kv-capacity"
min = "1024K"
[[quarantine]]
where = { test = "decode", context = "64K" }
reason = "page fault storm"
issue = "https://example.com/1"
expires = 2099-06-30
max-loss = "10%"
[policy]
alpha = 0.01
inconclusive = "fail"
unjudged = "allow"
max-error-rate = "1%"
max-client-lag = "20ms"
restarts = 0
time-limit = "4h"
[profile.smoke]
test.decode.duration = "5s"
select = ["context=8K concurrency=..4", "test=startup"]
"#;

#[test]
fn every_key_of_a_suite_arrives() {
    let loaded = loaded(WHOLE);
    assert_eq!(loaded.warnings, []);
    let suite = loaded.suite;
    let hardware = suite.hardware.unwrap();
    assert!(hardware.here);
    assert_eq!(hardware.count, Some(Count::Exactly(8)));
    assert_eq!(hardware.cuda.as_deref(), Some(">=12.8, <14"));
    assert!(hardware.allow_busy);
    assert_eq!(hardware.probe.as_deref(), Some("srun {{ tokgate.path }} probe --format json"));
    assert!(matches!(suite.hardware_probe.unwrap().form, CommandForm::Words(_)));
    assert_eq!(hardware.cool_below, Some(50.0));
    assert_eq!(hardware.sampling, Sampling::Every(Duration::from_millis(500)));
    let Some(Vram::About(size)) = hardware.vram else { panic!() };
    assert_eq!(size.bytes, 141e9);
    let setting = &suite.settings[0];
    let engine = &setting.engine;
    assert_eq!((setting.variant.as_ref(), setting.place.line), (None, 23));
    assert_eq!((engine.kind, engine.gpus, engine.port), (Kind::Vllm, Some(8), Some(8000)));
    let EngineSource::Command(command) = &engine.source else { panic!() };
    assert_eq!(command.place.line, 26);
    let CommandForm::Line(line) = &command.form else { panic!() };
    let at = line.find("{{ vars.extra }}").unwrap();
    let part = loaded.source.inside(&command.span, line, &(at..at + 16));
    assert_eq!(loaded.source.text(&part), "{{ vars.extra }}");
    assert_eq!(loaded.source.place(part.start).line, 28);
    assert_eq!(engine.setup.len(), 2);
    assert_eq!(engine.setup[1].form, CommandForm::Words(vec!["echo".into(), "a b".into()]));
    assert!(!engine.ready.models);
    assert!(engine.stop_command.is_some());
    assert_eq!(engine.files, [("engine.yaml".to_owned(), "a: 1".to_owned())]);
    let span = setting.spans.of("engine.file.0.content").unwrap();
    assert_eq!(loaded.source.text(&span), "\"a: 1\"");
    assert_eq!(loaded.source.text(&setting.spans.of("engine.setup.1.1").unwrap()), "\"a b\"");
    let vars: Vec<_> = setting.vars.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(vars, ["max_model_len", "extra", "tp"], "in order of writing");
    assert_eq!(setting.secrets, [("api_key".to_owned(), SecretSource::Generate)]);

    let [startup, prefill, decode] = suite.tests.as_slice() else { panic!() };
    let names = |test: &tokgate::suite::model::Test| {
        test.axes.iter().map(|axis| axis.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(startup), ["layout"]);
    assert_eq!(names(prefill), ["context", "layout"]);
    assert_eq!(names(decode), ["context", "concurrency", "layout"]);
    let values = |axis: usize| {
        decode.axes[axis].values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(values(0), "8K 16K 32K 64K");
    assert_eq!(values(1), "1 2 4 8 16 32 64 128");
    assert_eq!(values(2), "tp8 dp8");
    let AxisValue::Table { fields, .. } = &decode.axes[2].values[1] else { panic!() };
    assert_eq!(fields["dp"], 8);
    assert_eq!(prefill.axes[0].values[2].to_string(), "1024K");
    assert_eq!(decode.exclude[0].text, "layout=tp8 concurrency=65..");
    assert_eq!((prefill.request.api, decode.request.api), (Api::Completions, Api::Chat));
    assert_eq!(prefill.request.headers.len(), 2);
    assert_eq!(decode.request.prompt_tolerance, None);
    assert_eq!(decode.request.output_tolerance, Some(0.02));
    let TestSetting::Decode(setting) = &decode.kind else { panic!() };
    assert_eq!(setting.prefix, Prefix::Groups { groups: 150, length: 6000 });
    assert_eq!((setting.max_output, setting.capacity), (4096, Capacity::Share));

    let [floors, ceiling, capacity] = suite.expectations.as_slice() else { panic!() };
    let Limits::Grid(grid) = &floors.bounds[0].1 else { panic!() };
    let entries: Vec<_> = grid
        .entries
        .iter()
        .map(|entry| (entry.row.as_str(), entry.column.as_deref(), entry.limit, entry.place.line))
        .collect();
    let first =
        1 + u32::try_from(WHOLE[..WHOLE.find("  [\"8K\", ").unwrap()].matches('\n').count())
            .unwrap();
    assert_eq!(
        entries,
        [
            ("8K", Some("1"), GridLimit::Value(135.5), first),
            ("8K", Some("2"), GridLimit::Value(238.0), first),
            ("16K", Some("1"), GridLimit::None, first + 1),
            ("16K", Some("2"), GridLimit::Over, first + 1),
        ]
    );
    assert_eq!((floors.slack, floors.tests.as_slice()), (0.05, [2].as_slice()));
    assert_eq!(ceiling.tests, [1, 2]);
    assert_eq!(ceiling.filter.text, "context=..64K layout=tp8,dp8");
    assert_eq!(ceiling.except.as_ref().unwrap().text, "context=!8K");
    let Limits::Scalar { value, .. } = ceiling.bounds[0].1 else { panic!() };
    assert_eq!(value, 350.0);
    let Limits::Scalar { value, .. } = capacity.bounds[0].1 else { panic!() };
    assert_eq!((value, capacity.tests.as_slice()), (1_048_576.0, [0].as_slice()));
    let quarantine = &suite.quarantines[0];
    assert_eq!(
        (quarantine.expires.to_string().as_str(), quarantine.max_loss),
        ("2099-06-30", Some(0.1))
    );
    assert_eq!((suite.policy.alpha, suite.policy.restarts), (0.01, 0));
    let limit = TimeLimit::After(Duration::from_secs(4 * 3600));
    assert_eq!(suite.policy.time_limit, Some(limit));
    assert!(suite.select.is_empty(), "no profile was chosen");
}

#[test]
fn odd_but_not_wrong_is_a_warning() {
    let warnings =
        |text: &str| loaded(text).warnings.iter().map(|problem| problem.code).collect::<Vec<_>>();
    let with = |more: &str| format!("{SMALL}{more}");
    assert_eq!(
        warnings(&with("[[expect]]\nmetric = \"ttft.p99\"\nmax = \"1s\"\n")),
        ["few-samples"]
    );
    assert_eq!(warnings(&with("[[expect]]\nmetric = \"ttft.p50\"\nmax = \"1s\"\n")), [""; 0]);
    assert_eq!(
        warnings(&with("[secrets]\nkey = { env = \"TOKGATE_TEST_IS_NEVER_SET\" }\n")),
        ["unset-variable"]
    );
    assert_eq!(
        warnings(&with("[[test]]\nname = \"b\"\nkind = \"decode\"\nmatrix.concurency = [1]\n")),
        ["free-axis"]
    );
    assert_eq!(warnings(&SMALL.replace("min = 50", "min = 0")), ["empty-bound"]);
    assert_eq!(warnings(&with("[matrix]\nconcurrency = [8]\n")), ["no-effect"]);
    let grid = "min.rows = \"concurrency\"\nmin.grid = [[1, \"-\"], [4, \"-\"]]";
    assert_eq!(warnings(&SMALL.replace("min = 50", grid)), ["empty-bound"]);
    let url = SMALL.replace(
        "command = \"llama-server -m model.gguf --port {{ port }}\"",
        "url = \"http://box:1\"\nport = 1",
    );
    assert_eq!(warnings(&url), ["no-effect"]);
}

#[test]
fn a_default_scope_is_the_tests_that_measure_the_metric() {
    let text = format!(
        "{SMALL}[[test]]\nkind = \"prefill\"\n[[expect]]\nmetric = \"ttft.mean\"\nmax = 5000\n"
    );
    let suite = suite(&text);
    assert_eq!(suite.expectations[0].tests, [0]);
    assert_eq!(suite.expectations[1].tests, [0, 1]);
}

#[test]
fn two_levels_of_severity_are_two_rules() {
    let two = format!(
        "{SMALL}[[expect]]\nmetric = \"output-throughput\"\nmin = 80\nseverity = \"warn\"\n"
    );
    assert_eq!(suite(&two).expectations.len(), 2);
}

#[test]
fn a_million_cells_are_read() {
    let values: Vec<String> = (1..=1000).map(|n| n.to_string()).collect();
    let rows: Vec<String> = (1..=1000).map(|n| format!("[{n}, 1, 2]")).collect();
    let text = format!(
        "{}[[expect]]\nmetric = \"tpot.mean\"\nwhere = {{ context = [{all}] }}\nmax.rows = \"context\"\nmax.columns = \"concurrency\"\nmax.at = [1, 2]\nmax.grid = [{grid}]\n",
        SMALL.replace("[1, 4]", &format!("[{}]\nmatrix.context = [{0}]", values.join(", "))),
        all = values.join(", "),
        grid = rows.join(", "),
    );
    let files = files(&[("suite.toml", &text)]);
    let suite = files.load(LoadOptions::default()).suite;
    let cells: usize = suite.tests[0].axes.iter().map(|axis| axis.values.len()).product();
    assert_eq!(cells, 1_000_000);
}

#[test]
fn a_file_that_is_not_there_says_how_to_begin() {
    let said = load(Path::new("no/such.toml"), &LoadOptions::default()).unwrap_err().render(false);
    assert!(said.contains("can't read `no/such.toml`") && said.contains("tokgate init"), "{said}");
}
