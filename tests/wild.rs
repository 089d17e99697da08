//! Public configurations, respelled: what can be said today passes whole, and of the rest nothing is
//! wrong but what is not built yet.

use std::collections::BTreeSet;

use serde_json::Value;
use tokgate::suite::tree::{parse, to_json};

use crate::harness::{shipped, tokgate};

const FOLDER: &str = "tests/wild";

fn said(arguments: &[&str], file: &str) -> (Option<i32>, String, String) {
    let output = tokgate()
        .current_dir(shipped(""))
        .env("HOME", "/home/me")
        .env("NO_COLOR", "1")
        .args(arguments)
        .arg(format!("{FOLDER}/{file}"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Each problem as `message` and the text that its caret points at, of the lines that `check` prints.
fn problems(said: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = said.lines().collect();
    let mut found = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        if let Some(message) = line.trim().strip_prefix("× ") {
            let place = lines[at + 1].trim();
            assert!(place.starts_with("╭─["), "no place: {message}");
            found.insert(message.to_owned());
        }
    }
    found
}

#[test]
fn one_card_two_builds_passes_with_the_arguments_of_its_source() {
    let file = "05-llama-cpp-server-bench.toml";
    let (code, stdout, stderr) = said(&["check"], file);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let (code, stdout, _) = said(&["list", "--format", "json"], file);
    assert_eq!(code, Some(0));
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let launches: Vec<&Value> = lines.iter().filter(|line| line["type"] == "launch").collect();
    let mut expected = Vec::new();
    for (variant, build) in [("old", "b5449"), ("new", "b5450")] {
        for ftype in ["q4_0", "q8_0", "f16"] {
            let command = format!(
                "/opt/llama-{build}/llama-server -m /home/me/models/phi-2-{ftype}.gguf --alias phi-2 \
                 --host 127.0.0.1 --port {{port}} --n-gpu-layers 99 --flash-attn on --metrics \
                 --batch-size 2048 --ubatch-size 256 --parallel 8 --ctx-size 16384"
            );
            let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
            expected.push((format!("{variant}.ftype={ftype}"), argv));
        }
    }
    let found: Vec<(String, Vec<String>)> = launches
        .iter()
        .map(|launch| {
            let words = launch["argv"].as_array().unwrap().iter();
            (
                launch["name"].as_str().unwrap().to_owned(),
                words.map(|word| word.as_str().unwrap().to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(found, expected);
    // Two contexts of prefill, two concurrencies of decode, in each of six engines.
    assert_eq!(lines.iter().filter(|line| line["type"] == "cell").count(), 24);
}

/// The others wait for kinds of tests and keys that come later. What is refused is these, and
/// nothing besides; when one of them is built, this list must shrink. (What could only be said of a
/// test whose kind is known waits with it; the arguments of their engines are tested in `matrix`.)
#[test]
fn of_the_others_nothing_is_wrong_but_what_is_not_built() {
    let waits: &[(&str, &[&str])] = &[
        (
            "01-perf-eval-gpt-oss-120b-h200.toml",
            &[
                "`command` is not a value of `kind`",
                "`serve` is not a value of `kind`",
                "unknown key `command` in [[test]]",
                "unknown key `metrics` in [[test]]",
                "unknown key `repeat` in [[test]]",
                "unknown key `requests` in [[test]]",
                "unknown key `result` in [[test]]",
                "unknown key `warmup-per-stream` in [[test]]",
            ],
        ),
        (
            "02-vllm-ci-serving-tests.toml",
            &[
                "`serve` is not a value of `kind`",
                "unknown key `against` in [[expect]]",
                "unknown key `dataset` in [[test]]",
                "unknown key `min-ratio` in [[expect]]",
                "unknown key `requests` in [[test]]",
            ],
        ),
        (
            "03-inferencex-dsv4-h200-slurm.toml",
            &[
                "`command` is not a value of `kind`",
                "`exact_match` is not a metric",
                "`serve` is not a value of `kind`",
                "unknown key `command` in [[test]]",
                "unknown key `metrics` in [[test]]",
                "unknown key `requests-per-stream` in [[test]]",
                "unknown key `result` in [[test]]",
                "unknown key `warmup-per-stream` in [[test]]",
            ],
        ),
        (
            "04-sglang-ci-1gpu.toml",
            &[
                "`e2e-latency.p50` is not a metric",
                "`serve` is not a value of `kind`",
                "unknown key `arrival` in [[test]]",
                "unknown key `dataset` in [[test]]",
                "unknown key `requests` in [[test]]",
            ],
        ),
        (
            "06-llm-d-gateway-rate-ladder.toml",
            &[
                "`error-rate` is not a metric",
                "`goodput` is not a metric",
                "`serve` is not a value of `kind`",
                "unknown key `arrival` in [[test]]",
                "unknown key `input` in [[test]]",
                "unknown key `output` in [[test]]",
                "unknown key `slo` in [[test]]",
            ],
        ),
    ];
    for (file, expected) in waits {
        let (code, _, stderr) = said(&["check"], file);
        assert_eq!(code, Some(20), "{file}: {stderr}");
        let expected: BTreeSet<String> = expected.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(problems(&stderr), expected, "{file}:\n{stderr}");
    }
}

/// What an editor that reads draft 7 says of a suite.
#[test]
fn editors_take_every_suite_and_no_misspelled_key() {
    let schema = std::fs::read_to_string(shipped("schemas/suite.editor.schema.json")).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::draft7::new(&schema).unwrap();
    let right = |text: &str| validator.is_valid(&to_json(&parse(text, 0).unwrap()));
    let of_ours = std::fs::read_dir(shipped("suites")).unwrap().map(|entry| entry.unwrap().path());
    let of_others = shipped("tests/wild/05-llama-cpp-server-bench.toml");
    let suites = of_ours.chain([of_others, shipped("src/cli/init.toml")]);
    for path in suites.filter(|path| path.extension().is_some_and(|it| it == "toml")) {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(right(&text), "{}", path.display());
    }
    for name in
        ["engine", "expect", "policy", "profile", "quarantine", "suite", "test", "test-snake"]
    {
        let path = shipped(&format!("tests/rejected/key-in-{name}.toml"));
        assert!(!right(&std::fs::read_to_string(&path).unwrap()), "{}", path.display());
    }
}

#[test]
fn every_suite_names_the_schema_for_editors() {
    for folder in ["suites", FOLDER] {
        for entry in std::fs::read_dir(shipped(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let named = text.lines().next().unwrap().strip_prefix("#:schema ");
            let schema = path.parent().unwrap().join(named.unwrap()).canonicalize().unwrap();
            let meant = shipped("schemas/suite.editor.schema.json").canonicalize().unwrap();
            assert_eq!(schema, meant, "{}", path.display());
        }
    }
}
