//! Presets against result files of the tools, with the values worked out from those files by hand.

use serde_json::json;

use super::*;

const VLLM: &str = include_str!("../../tests/data/results/vllm-bench-serve.json");
const GUIDELLM: &str = include_str!("../../tests/data/results/guidellm.json");
const AIPERF: &str = include_str!("../../tests/data/results/aiperf.json");
const SGLANG: &str = include_str!("../../tests/data/results/sglang-bench-serving.jsonl");
const LLAMA: &str = include_str!("../../tests/data/results/llama-bench.json");

const ALL: [(Preset, &str); 5] = [
    (Preset::VllmBenchServe, VLLM),
    (Preset::Guidellm, GUIDELLM),
    (Preset::Aiperf, AIPERF),
    (Preset::SglangBenchServing, SGLANG),
    (Preset::LlamaBench, LLAMA),
];

fn metric(name: &str) -> Metric {
    name.parse().unwrap()
}

fn told(preset: Preset, text: &str) -> Told {
    preset.read(&document::read(text).unwrap(), &[]).unwrap()
}

/// The figures as `name value`, rounded to a thousandth.
#[track_caller]
fn holds(preset: Preset, text: &str, expected: &[(&str, f64)]) {
    let told = told(preset, text);
    for (name, value) in expected {
        let found = told.figures.get(&metric(name)).unwrap_or_else(|| panic!("no {name}"));
        assert!((found - value).abs() < 5e-4, "{name} is {found}, not {value}");
        assert!(preset.produces(metric(name)), "{name}");
    }
    let names: Vec<String> = told.figures.keys().map(ToString::to_string).collect();
    assert_eq!(told.figures.len(), expected.len(), "{names:?}");
}

/// A file with some of its keys replaced; `null` takes one away.
fn changed(text: &str, changes: Value) -> Vec<Value> {
    let mut documents = document::read(text).unwrap();
    let last = documents.last_mut().unwrap();
    for (pointer, value) in changes.as_object().unwrap() {
        match last.pointer_mut(pointer) {
            Some(there) => *there = value.clone(),
            None => {
                last.as_object_mut().unwrap().insert(pointer[1..].to_owned(), value.clone());
            }
        }
    }
    documents
}

#[track_caller]
fn refused(preset: Preset, documents: &[Value], wanted: &[&str]) -> String {
    let wanted: Vec<Metric> = wanted.iter().map(|name| metric(name)).collect();
    preset.read(documents, &wanted).unwrap_err().to_string()
}

#[test]
fn vllm_bench_serve() {
    holds(
        Preset::VllmBenchServe,
        VLLM,
        &[
            ("output-throughput", 186.824),
            ("request-throughput", 1.460),
            ("ttft.mean", 200.428),
            ("ttft.p50", 200.310),
            ("ttft.p90", 200.730),
            ("ttft.p99", 201.056),
            ("tpot.mean", 20.000),
            ("tpot.p50", 20.000),
            ("tpot.p90", 20.003),
            ("tpot.p99", 20.003),
            ("itl.mean", 20.000),
            ("itl.p50", 20.000),
            ("itl.p90", 20.046),
            ("itl.p99", 22.599),
            ("e2e-latency.mean", 2740.379),
            ("e2e-latency.p50", 2740.344),
            ("e2e-latency.p90", 2740.583),
            ("e2e-latency.p99", 2740.621),
            ("error-rate", 0.0),
            ("completed-requests", 12.0),
            ("output-tokens", 1536.0),
            // 1536 tokens ÷ 186.824 tok/s.
            ("measured-time", 8.222),
        ],
    );
    assert_eq!(told(Preset::VllmBenchServe, VLLM).requests, Some((0, 12)));
}

#[test]
fn guidellm() {
    holds(
        Preset::Guidellm,
        GUIDELLM,
        &[
            ("output-throughput", 185.587),
            ("request-throughput", 1.450),
            ("ttft.mean", 202.948),
            ("ttft.p50", 202.319),
            ("ttft.p90", 205.558),
            ("ttft.p95", 209.052),
            ("ttft.p99", 209.052),
            ("ttft.max", 209.052),
            ("tpot.mean", 19.999),
            ("tpot.p50", 19.992),
            ("tpot.p90", 20.031),
            ("tpot.p95", 20.039),
            ("tpot.p99", 20.039),
            ("tpot.max", 20.039),
            // Each gap between tokens counts once in it; in the percentiles each request does.
            ("itl.mean", 19.999),
            // Written in seconds: 2.743267, 2.741868, …
            ("e2e-latency.mean", 2743.267),
            ("e2e-latency.p50", 2741.868),
            ("e2e-latency.p90", 2746.841),
            ("e2e-latency.p95", 2747.084),
            ("e2e-latency.p99", 2747.084),
            ("e2e-latency.max", 2747.084),
            ("error-rate", 0.0),
            ("completed-requests", 12.0),
            ("output-tokens", 1536.0),
            ("measured-time", 8.276),
        ],
    );
    assert!(!Preset::Guidellm.produces(metric("itl.p50")));
}

#[test]
fn aiperf() {
    holds(
        Preset::Aiperf,
        AIPERF,
        &[
            ("output-throughput", 185.085),
            ("request-throughput", 1.446),
            ("ttft.mean", 206.250),
            ("ttft.p50", 202.934),
            ("ttft.p90", 212.853),
            ("ttft.p95", 216.206),
            ("ttft.p99", 219.438),
            ("ttft.max", 220.246),
            ("tpot.mean", 20.007),
            ("tpot.p50", 20.008),
            ("tpot.p90", 20.016),
            ("tpot.p95", 20.018),
            ("tpot.p99", 20.020),
            ("tpot.max", 20.020),
            ("e2e-latency.mean", 2747.170),
            ("e2e-latency.p50", 2744.049),
            ("e2e-latency.p90", 2753.518),
            ("e2e-latency.p95", 2756.115),
            ("e2e-latency.p99", 2758.620),
            ("e2e-latency.max", 2759.246),
            ("error-rate", 0.0),
            ("completed-requests", 12.0),
            ("output-tokens", 1536.0),
            ("measured-time", 8.286),
        ],
    );
    assert!(!Preset::Aiperf.produces(metric("itl.mean")));
}

#[test]
fn sglang_bench_serving_by_its_last_line() {
    holds(
        Preset::SglangBenchServing,
        SGLANG,
        &[
            ("output-throughput", 192.0),
            ("request-throughput", 1.5),
            ("ttft.mean", 200.0),
            ("ttft.p50", 199.5),
            ("ttft.p99", 204.0),
            ("tpot.mean", 20.0),
            ("tpot.p50", 19.9),
            ("tpot.p99", 20.4),
            ("itl.mean", 20.0),
            ("itl.p50", 19.8),
            ("itl.p95", 20.9),
            ("itl.p99", 22.5),
            ("itl.max", 31.0),
            ("e2e-latency.mean", 2740.0),
            ("e2e-latency.p50", 2738.5),
            ("e2e-latency.p90", 2745.0),
            ("e2e-latency.p99", 2749.0),
            ("completed-requests", 12.0),
            ("output-tokens", 1536.0),
            ("measured-time", 8.0),
        ],
    );
    let said =
        refused(Preset::SglangBenchServing, &document::read(SGLANG).unwrap(), &["error-rate"]);
    assert!(said.ends_with("run sglang.bench_serving with --output-details"), "{said}");
    let details = changed(SGLANG, json!({ "/errors": ["", "refused", "", ""] }));
    let told = Preset::SglangBenchServing.read(&details, &[]).unwrap();
    assert_eq!(told.requests, Some((1, 13)));
}

#[test]
fn llama_bench_rows() {
    holds(
        Preset::LlamaBench,
        LLAMA,
        &[("prefill-throughput", 812.5), ("output-throughput", 61.25)],
    );
    // One object a line is the same.
    let rows = document::read(LLAMA).unwrap();
    let lines = rows[0].as_array().unwrap().clone();
    assert_eq!(
        Preset::LlamaBench.read(&lines, &[]).unwrap(),
        Preset::LlamaBench.read(&rows, &[]).unwrap()
    );
    let mut several = lines.clone();
    several.push(lines[0].clone());
    several[2]["n_prompt"] = json!(1024);
    let said = refused(Preset::LlamaBench, &[Value::Array(several)], &[]);
    assert!(
        said.starts_with("there are several prompt rows (n_prompt 512, n_gen 0, n_depth 0; n_prompt 1024, n_gen 0, n_depth 0)"),
        "{said}"
    );
    assert!(said.contains("narrow the command"), "{said}");
    let said = refused(Preset::LlamaBench, &lines[..1], &["output-throughput"]);
    assert!(said.contains("no row with generation alone") && said.contains("-n"), "{said}");
    let both = changed(LLAMA, json!({ "/0/n_gen": 32, "/1/n_prompt": 32 }));
    assert!(refused(Preset::LlamaBench, &both, &[]).starts_with("there is no row with"));
}

#[test]
fn what_is_expected_must_be_there_and_what_is_not_need_not() {
    for (preset, text) in ALL {
        let documents = document::read(text).unwrap();
        // Each metric that a preset produces is in its file, or its place there is named.
        for entry in crate::measure::metric::CATALOGUE {
            let stats: Vec<Option<Stat>> =
                if entry.latency { Stat::ALL.map(Some).to_vec() } else { vec![None] };
            for stat in stats {
                let metric = Metric { base: entry.base, stat, per_gpu: false };
                if !preset.produces(metric) {
                    continue;
                }
                match preset.read(&documents, &[metric]) {
                    Ok(told) => assert!(told.figures.contains_key(&metric), "{metric}"),
                    Err(why) => assert!(why.to_string().contains('/'), "{why}"),
                }
            }
        }
    }
    let said = refused(Preset::VllmBenchServe, &document::read(VLLM).unwrap(), &["ttft.p95"]);
    assert_eq!(said, "/p95_ttft_ms: no key `p95_ttft_ms` at the top; did you mean `p99_ttft_ms`?");
    let said = refused(Preset::VllmBenchServe, &document::read(VLLM).unwrap(), &["goodput"]);
    assert_eq!(said, "/request_goodput is null: the tool did not measure it");
}

#[test]
fn numbers_that_are_none_are_refused_where_something_is_expected_of_them() {
    for (value, message) in [
        (json!("NaN"), "/median_ttft_ms is NaN, no number"),
        (json!(-1.5), "/median_ttft_ms is -1.5: it can't be negative"),
        (json!(0.0), "/median_ttft_ms is 0: the tool did not measure it"),
        (
            json!("200"),
            "/median_ttft_ms is the text \"200\"; a number is needed: have the tool write it without quotes",
        ),
    ] {
        let documents = changed(VLLM, json!({ "/median_ttft_ms": value }));
        assert_eq!(refused(Preset::VllmBenchServe, &documents, &["ttft.p50"]), message);
        let told = Preset::VllmBenchServe.read(&documents, &[metric("ttft.mean")]).unwrap();
        assert!(!told.figures.contains_key(&metric("ttft.p50")));
    }
}

#[test]
fn a_run_without_a_good_request_is_no_result() {
    for (preset, text, pointer) in [
        (Preset::VllmBenchServe, VLLM, "/completed"),
        (Preset::SglangBenchServing, SGLANG, "/completed"),
        (Preset::Aiperf, AIPERF, "/request_count/avg"),
        (Preset::Guidellm, GUIDELLM, "/benchmarks/0/metrics/request_totals/successful"),
    ] {
        let said = refused(preset, &changed(text, json!({ pointer: 0 })), &[]);
        assert_eq!(said, format!("{pointer} is 0: no request ended well"));
        let said = refused(preset, &[json!({ "results": {} })], &[]);
        assert!(said.ends_with(&format!("(preset {})", preset.name())), "{said}");
    }
    let cut = changed(AIPERF, json!({ "/was_cancelled": true }));
    assert!(refused(Preset::Aiperf, &cut, &[]).contains("cut short"));
}

#[test]
fn failed_requests_are_counted() {
    let told = |preset: Preset, documents: &[Value]| {
        let told = preset.read(documents, &[metric("error-rate")]).unwrap();
        (told.requests.unwrap(), told.figures[&metric("error-rate")])
    };
    let failed = changed(VLLM, json!({ "/failed": 4 }));
    assert_eq!(told(Preset::VllmBenchServe, &failed), ((4, 16), 25.0));
    // Older versions say how many were sent alone.
    let older = changed(VLLM, json!({ "/failed": null, "/completed": 9 }));
    assert_eq!(told(Preset::VllmBenchServe, &older), ((3, 12), 25.0));
    let failed = changed(GUIDELLM, json!({ "/benchmarks/0/metrics/request_totals/errored": 12 }));
    assert_eq!(told(Preset::Guidellm, &failed), ((12, 24), 50.0));
    let failed = changed(AIPERF, json!({ "/completed_request_count/avg": 15 }));
    assert_eq!(told(Preset::Aiperf, &failed), ((3, 15), 20.0));
}

#[test]
fn gaps_between_events_of_several_tokens_are_no_inter_token_latencies() {
    // Four tokens an event: as many tokens in as much time, each gap four times as long.
    let gaps = json!({ "/mean_itl_ms": 80.0, "/median_itl_ms": 80.0 });
    for (preset, text) in [(Preset::VllmBenchServe, VLLM), (Preset::SglangBenchServing, SGLANG)] {
        let documents = changed(text, gaps.clone());
        assert!(!preset.read(&documents, &[]).unwrap().figures.contains_key(&metric("itl.p50")));
        let said = refused(preset, &documents, &["itl.p50"]);
        assert!(said.contains("an event carried 4.0 tokens on average"), "{said}");
        // Without the time to the end, by the times per token.
        let documents = changed(
            text,
            json!({
                "/mean_itl_ms": 80.0, "/mean_e2el_ms": null, "/mean_e2e_latency_ms": null,
            }),
        );
        assert!(refused(preset, &documents, &["itl.mean"]).contains("4.0 tokens"));
    }
    let speculative = changed(SGLANG, json!({ "/accept_length": 2.7 }));
    let said = refused(Preset::SglangBenchServing, &speculative, &["itl.p99"]);
    assert!(said.contains("2.7 tokens"), "{said}");
}

#[test]
fn several_benchmarks_in_one_file_are_refused() {
    let mut documents = document::read(GUIDELLM).unwrap();
    let first = documents[0]["benchmarks"][0].clone();
    documents[0]["benchmarks"].as_array_mut().unwrap().push(first);
    let said = refused(Preset::Guidellm, &documents, &[]);
    assert!(said.starts_with("/benchmarks has 2 benchmarks"), "{said}");
    let twice = format!("{VLLM}\n{VLLM}");
    let said = refused(Preset::VllmBenchServe, &document::read(&twice).unwrap(), &[]);
    assert_eq!(said, "it has 2 JSON values, where one is expected");
}

#[test]
fn an_unknown_unit_is_refused() {
    let documents = changed(AIPERF, json!({ "/time_to_first_token/unit": "sec" }));
    let told = Preset::Aiperf.read(&documents, &[]).unwrap();
    assert!((told.figures[&metric("ttft.p50")] - 202_934.019).abs() < 1e-3);
    let documents = changed(AIPERF, json!({ "/time_to_first_token/unit": "fortnights" }));
    let said = refused(Preset::Aiperf, &documents, &["ttft.p50"]);
    assert!(said.starts_with("/time_to_first_token/unit is \"fortnights\""), "{said}");
}
