//! Runs whose cells are measured in several launches: variants in pairs, and tests with `launches`.

use serde_json::Value;

use crate::harness::{Project, Ran};

mod broken;
mod cut;
mod launches;
mod pairs;
mod prompts;
mod running;
mod sharded;
mod upgrade;

/// Two variants in four pairs, in virtual time or real: two decode cells and a prefill cell.
pub const SUITE: &str = r#"version = 1
[suite]
name = "upgrade"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "CLOCK"
[variant.old]
vars.x = 0
[variant.new]
engine.profile = "new.toml"
[compare]
baseline = "old"
candidate = "new"
pairs = 4
min-mean-ratio = 0.99
[[test]]
kind = "prefill"
samples = 2
[[test]]
kind = "decode"
duration = "400ms"
min-tokens = 10
matrix.concurrency = [1, 2]
[[expect]]
test = "decode"
metric = "output-throughput"
min-ratio = 0.97
[[expect]]
test = "prefill"
metric = "ttft.p50"
max-ratio = 1.06
"#;

/// An engine without noise, so that equal variants are surely equal.
pub const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
start-up = "50ms"
[prefill]
tokens = [16, "1K"]
ms = [20, 20]
[admit]
at = [1]
grid = [["1K", 5]]
[step]
at = [1]
grid = [["1K", 10]]
"#;

/// A step that is slower with two streams, and only then.
pub const SLOWER: &str = "[[fault]]\nkind = \"slow\"\nwhat = \"step\"\nby = \"10%\"\nbatch = 2\n";

/// The suite in real time, with limits so wide that no busy machine breaks them.
pub fn real_suite() -> String {
    let wide = SUITE.replace("min-ratio = 0.97", "min-ratio = 0.3");
    let wide = wide.replace("min-mean-ratio = 0.99", "min-mean-ratio = 0.3");
    wide.replace("max-ratio = 1.06", "max-ratio = 5").replace("CLOCK", "real")
}

/// A project with both profiles; `more` is what the candidate's has beside the baseline's.
pub fn project(clock: &str, more: &str) -> Project {
    let suite = if clock == "real" { real_suite() } else { SUITE.replace("CLOCK", clock) };
    let project = Project::with(&suite);
    project.file("engine.toml", ENGINE);
    project.file("new.toml", &format!("{ENGINE}{more}"));
    project
}

/// The events of a journal by their kind.
pub fn events(ran: &Ran, kind: &str) -> Vec<Value> {
    let journal = ran.read("journal.jsonl");
    let lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get(kind).cloned()).collect()
}

/// The round of an event, which the first one does not say.
pub fn round(event: &Value) -> u64 {
    event["round"].as_u64().unwrap_or(0)
}

/// `old 0` for each start of an engine, in order.
pub fn starts(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let name = |launch: &Value| {
        let at = usize::try_from(launch.as_u64().unwrap()).unwrap();
        record["header"]["launches"][at]["name"].as_str().unwrap().to_owned()
    };
    let starts = events(ran, "launch-started");
    starts.iter().map(|it| format!("{} {}", name(&it["launch"]), round(it))).collect()
}

/// `old decode concurrency=1` with its outcome, for each cell.
pub fn cells(ran: &Ran) -> Vec<(String, Value)> {
    let record = ran.record();
    let planned = record["header"]["cells"].as_array().unwrap();
    let named = planned.iter().zip(record["cells"].as_array().unwrap()).map(|(planned, cell)| {
        let of = |key: &str| planned[key].as_str().unwrap_or_default().to_owned();
        (format!("{} {} {}", of("variant"), of("test"), of("id")), cell.clone())
    });
    named.collect()
}

/// The outcome of a cell.
#[track_caller]
pub fn cell(ran: &Ran, name: &str) -> Value {
    let all = cells(ran);
    let found = all.iter().find(|(known, _)| known == name);
    found
        .unwrap_or_else(|| panic!("{name} in {:?}", all.iter().map(|it| &it.0).collect::<Vec<_>>()))
        .1
        .clone()
}

/// Its verdict with its message.
#[track_caller]
pub fn verdict(ran: &Ran, name: &str) -> (String, String) {
    let judgement = cell(ran, name)["judgement"].clone();
    let text = |key: &str| judgement[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("message"))
}

/// How many rounds of a cell came to an end, by the journal.
pub fn measured(ran: &Ran, name: &str) -> usize {
    let at = cells(ran).iter().position(|(known, _)| known == name).unwrap();
    events(ran, "cell-finished").iter().filter(|event| event["cell"] == at).count()
}

/// What the mean ratio came to: verdict and message.
pub fn mean(ran: &Ran) -> (String, String) {
    let judgement = ran.record()["compare"]["judgement"].clone();
    let text = |key: &str| judgement[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("message"))
}
