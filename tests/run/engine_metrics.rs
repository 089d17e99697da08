//! What an engine says of itself while a cell is measured, from its metrics to the reports.

use serde_json::Value;

use crate::harness::{Project, Ran, shipped};

const PROFILE: &str = r#"version = "1.0.0"
max-model-len = "8K"
kv-capacity = 16384
start-up = "1ms"
[prefill]
tokens = [16, "32K"]
ms = [1, 100]
[admit]
at = [1, 4]
grid = [["1K", 20, 20]]
[step]
at = [1, 4]
grid = [["1K", 10, 10]]
"#;

fn run(engine: &str) -> Ran {
    let suite = format!(
        r#"version = 1
[suite]
name = "metrics"
[engine]
kind = "sim"
clock = "virtual"
profile = "profile.toml"
{engine}
[[test]]
kind = "prefill"
matrix.context = ["2K"]
[[test]]
kind = "decode"
duration = "2s"
max-output = 64
matrix.concurrency = [4]
[policy]
unjudged = "allow"
"#
    );
    let project = Project::with(&suite);
    project.file("profile.toml", PROFILE);
    project.run(&[]).exits(0)
}

/// What the engine said of the cell of a test.
fn said(record: &Value, test: &str) -> Value {
    let planned = record["header"]["cells"].as_array().unwrap();
    let at = planned.iter().position(|cell| cell["test"] == test).unwrap();
    record["cells"][at]["state"]["measured"]["engine"].clone()
}

#[test]
fn gauges_of_the_window_and_growth_of_counters_stand_in_every_report() {
    let ran = run("");
    let record = ran.record();
    let decode = said(&record, "decode");
    let number = |key: &str| decode[key].as_f64().unwrap();
    // One of four streams may be between two requests when the gauges are read.
    assert!((3.0..=4.0).contains(&number("running-mean")), "{decode}");
    // Four streams of 1024 tokens and up to 64 more, of 16 384.
    assert!((0.2..0.3).contains(&number("kv-usage-max")), "{decode}");
    assert!(number("kv-usage-mean") <= number("kv-usage-max"));
    // The prompts were warmed: all but the last block comes out of the cache, each time.
    assert!(number("prefix-hit-share") > 0.97, "{decode}");
    assert!(number("prefix-queries") >= 4.0 * 1024.0, "{decode}");
    assert_eq!(decode["preemptions"], 0);
    assert!(decode.get("draft-tokens").is_none(), "it does not speculate: {decode}");

    // Prompts never seen before, of 2048 tokens: looked up and not found.
    let prefill = said(&record, "prefill");
    let queries = prefill["prefix-queries"].as_u64().unwrap();
    assert!(queries >= 3 * 2048 && queries.is_multiple_of(2048), "{prefill}");
    assert!(prefill["prefix-hit-share"].as_f64().unwrap() < 0.05, "{prefill}");
    assert!(prefill.get("running-mean").is_none(), "nobody read it meanwhile: {prefill}");

    let junit = ran.read("junit.xml");
    let property = "<property name=\"engine.preemptions\" value=\"0\"/>";
    assert_eq!(junit.matches(property).count(), 2, "{junit}");
    assert!(junit.contains("<property name=\"engine.kv-usage.max\" value=\"0.2"), "{junit}");
    let line = "of prompt tokens from the prefix cache";
    assert!(junit.contains(line) && ran.read("summary.md").contains(line), "{junit}");
}

#[test]
fn an_engine_without_metrics_is_measured_all_the_same_and_says_nothing() {
    // The simulated engine has no such page.
    let ran = run("metrics-url = [\"http://{{ host }}:{{ port }}/none\"]");
    let record = ran.record();
    assert_eq!((said(&record, "prefill"), said(&record, "decode")), (Value::Null, Value::Null));
    assert!(!ran.read("junit.xml").contains("name=\"engine.running"));
}

/// The record of a run on a real vLLM: read, checked against the schema, rendered again.
#[test]
fn the_record_of_a_real_vllm_is_read_and_rendered() {
    let text = std::fs::read_to_string(shipped("tests/data/vllm-cpu-tiny/record.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let schema = std::fs::read_to_string(shipped("schemas/record.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<_> = validator.iter_errors(&record).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    let facts = &record["launches"][0]["facts"];
    assert_eq!(facts["version"], "0.32.0");
    assert_eq!((&facts["kv-capacity"], &facts["max-model-len"]), (&1_048_576.into(), &2048.into()));
    let planned = record["header"]["cells"].as_array().unwrap();
    let cells = planned.iter().zip(record["cells"].as_array().unwrap());
    for (planned, cell) in cells.filter(|(planned, _)| planned["kind"] != "startup") {
        let measured = &cell["state"]["measured"];
        let context = planned["axes"].as_array().unwrap().iter().find(|axis| axis[0] == "context");
        // Blocks of 128 tokens are cached whole, and the last token of a prompt is always computed.
        if let (Some(context), "decode") = (context, planned["kind"].as_str().unwrap()) {
            let context = context[1]["tokens"].as_f64().unwrap();
            assert_eq!(measured["prompt-tokens"][1].as_f64(), Some(context), "{planned}");
            let share = ((context - 1.0) / 128.0).floor() * 128.0 / context;
            assert_eq!(measured["engine"]["prefix-hit-share"].as_f64(), Some(share), "{planned}");
        }
        assert_eq!(measured["engine"]["preemptions"], 0, "{planned}");
        assert!(measured["failures"].as_object().unwrap().is_empty(), "{planned}");
    }

    let project = Project::new();
    project.file("out/record.json", &text);
    project.tokgate(&["report", "out"]).exits(0);
    let ran = |name: &str| std::fs::read_to_string(project.path().join("out").join(name)).unwrap();
    let (junit, summary) = (ran("junit.xml"), ran("summary.md"));
    assert!(junit.contains("<property name=\"engine.kv-capacity\" value=\"1048576\"/>"), "{junit}");
    assert!(
        junit.contains("<property name=\"engine.prefix-hit-share\" value=\"0.75\"/>"),
        "{junit}"
    );
    assert!(summary.contains("- version 0.32.0\n- KV capacity 1048576 tokens\n"), "{summary}");
    assert!(summary.contains("75 % of prompt tokens from the prefix cache"), "{summary}");
}
