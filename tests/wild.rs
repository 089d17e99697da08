//! Public configurations, respelled: each passes whole and starts its engines with the arguments of the
//! source.

use serde_json::Value;
use tokgate::suite::tree::{parse, to_json};

use crate::harness::{shipped, tokgate};

const FOLDER: &str = "tests/wild";

fn said(arguments: &[&str], file: &str) -> (Option<i32>, String, String) {
    let output = tokgate()
        .current_dir(shipped(""))
        .env("HOME", "/home/me")
        .env("HF_HOME", "/hf cache")
        .env("VLLM_IMAGE", "vllm/vllm-openai:nightly")
        .env("GATEWAY_URL", "http://gateway/v1")
        .env("GATEWAY_TOKEN", "a-token-of-the-gateway")
        .env("POD_0", "pod-0")
        .env("POD_1", "pod-1")
        .env("NO_COLOR", "1")
        .args(arguments)
        .arg(format!("{FOLDER}/{file}"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What `list` says of a suite's launches, as name and arguments, and its number of cells.
fn listed(file: &str) -> (Vec<(String, String)>, usize) {
    let (code, stdout, stderr) = said(&["check"], file);
    assert_eq!(code, Some(0), "{file}: {stdout}{stderr}");
    let (code, stdout, stderr) = said(&["list", "--format", "json"], file);
    assert_eq!(code, Some(0), "{file}: {stderr}");
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let launches = lines
        .iter()
        .filter(|line| line["type"] == "launch")
        .map(|launch| {
            let words = launch["argv"].as_array().map(Vec::as_slice).unwrap_or_default();
            let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
            let told = match words.as_slice() {
                [] => launch["url"].as_str().unwrap().to_owned(),
                words => shell_words::join(words),
            };
            (launch["name"].as_str().unwrap().to_owned(), told)
        })
        .collect();
    (launches, lines.iter().filter(|line| line["type"] == "cell").count())
}

fn launch(name: &str, command: &str) -> (String, String) {
    (name.to_owned(), shell_words::join(shell_words::split(command).unwrap()))
}

#[test]
fn a_nightly_in_a_container_starts_as_its_source_does() {
    let (launches, cells) = listed("01-perf-eval-gpt-oss-120b-h200.toml");
    let command = "docker run --rm --name tokgate-{run.id} --gpus all --ipc=host \
        --ulimit nofile=65536:65536 -e VLLM_ENGINE_READY_TIMEOUT_S=3600 -e 'HF_HOME=/hf cache' \
        -v '/hf cache:/hf cache' -p 127.0.0.1:{port}:{port} vllm/vllm-openai:nightly \
        openai/gpt-oss-120b --port {port} --tensor-parallel-size 4 --max-model-len 32768 \
        --max-num-seqs 512 --tool-call-parser openai --enable-auto-tool-choice";
    assert_eq!((launches, cells), (vec![launch("engine", command)], 2));
}

#[test]
fn a_sweep_over_two_layouts_starts_two_engines() {
    let (launches, cells) = listed("03-inferencex-dsv4-h200-slurm.toml");
    let command = |layout: &str| {
        format!(
            "vllm serve deepseek-ai/DeepSeek-V4-Pro --host 127.0.0.1 --port {{port}} \
             --trust-remote-code --kv-cache-dtype fp8 --block-size 256 --no-enable-prefix-caching \
             {layout} --max-model-len 10240 --quantization deepseek_v4_fp8 \
             --gpu-memory-utilization 0.95 --max-num-seqs 512 --max-num-batched-tokens 512 \
             --no-enable-flashinfer-autotune --compilation-config \
             '{{\"mode\":0,\"cudagraph_mode\":\"FULL_DECODE_ONLY\"}}' --tokenizer-mode deepseek_v4 \
             --tool-call-parser deepseek_v4 --enable-auto-tool-choice --reasoning-parser deepseek_v4"
        )
    };
    let expected = [
        ("layout=tp8", "--tensor-parallel-size 8 --data-parallel-size 1"),
        (
            "layout=dp8ep",
            "--tensor-parallel-size 1 --data-parallel-size 8 --enable-expert-parallel",
        ),
    ];
    assert_eq!(launches, expected.map(|(name, layout)| launch(name, &command(layout))));
    // Nine concurrencies and the accuracy, in each.
    assert_eq!(cells, 20);
}

#[test]
fn flags_for_each_test_start_an_engine_for_each() {
    let (launches, cells) = listed("04-sglang-ci-1gpu.toml");
    let expected = [
        ("default", ""),
        ("no-radix", "--disable-radix-cache"),
        ("no-chunk", "--chunked-prefill-size -1"),
        ("triton", "--attention-backend triton --context-length 8192"),
        ("small-batch", "--max-running-requests 10"),
    ];
    let expected = expected.map(|(name, flags)| {
        let command = format!(
            "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct \
             --host 127.0.0.1 --port {{port}} --enable-metrics {flags}"
        );
        launch(&format!("server={name}"), &command)
    });
    // The first engine serves two tests.
    assert_eq!((launches, cells), (expected.to_vec(), 6));
}

#[test]
fn one_card_and_two_builds_start_six_engines() {
    let (launches, cells) = listed("05-llama-cpp-server-bench.toml");
    let mut expected = Vec::new();
    for (variant, build) in [("old", "b5449"), ("new", "b5450")] {
        for ftype in ["q4_0", "q8_0", "f16"] {
            let command = format!(
                "/opt/llama-{build}/llama-server -m /home/me/models/phi-2-{ftype}.gguf --alias phi-2 \
                 --host 127.0.0.1 --port {{port}} --n-gpu-layers 99 --flash-attn on --metrics \
                 --batch-size 2048 --ubatch-size 256 --parallel 8 --ctx-size 16384"
            );
            expected.push(launch(&format!("{variant}.ftype={ftype}"), &command));
        }
    }
    assert_eq!(launches, expected);
    // Two contexts of prefill and two concurrencies of decode in each engine, the chats in two.
    assert_eq!(cells, 26);
}

#[test]
fn a_ladder_of_rates_finds_its_gateway() {
    let (launches, cells) = listed("06-llm-d-gateway-rate-ladder.toml");
    assert_eq!(launches, [("engine".to_owned(), "http://gateway".to_owned())]);
    assert_eq!(cells, 16);
}

/// The arguments of its engines are tested in `matrix`.
#[test]
fn a_benchmark_of_three_models_is_held_against_a_baseline() {
    let file = "02-vllm-ci-serving-tests.toml";
    let (launches, cells) = listed(file);
    let names: Vec<&str> = launches.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, cells), (vec!["llama8b", "llama70b", "gemma4"], 49));
    // Nothing has been recorded, and nothing is launched. The GPUs that it asks for are not here either.
    let fits = ["run", "-E", "test=random", "--set", "hardware.on-mismatch=\"warn\""];
    let (code, _, stderr) = said(&fits, file);
    assert!(
        stderr.contains("there is no baseline tests/wild/baselines/vllm-ci-serving-h100.jsonl"),
        "{stderr}"
    );
    assert_eq!(code, Some(21), "{stderr}");
}

/// What an editor that reads draft 7 says of a suite.
#[test]
fn editors_take_every_suite_and_no_misspelled_key() {
    let schema = std::fs::read_to_string(shipped("schemas/suite.editor.schema.json")).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::draft7::new(&schema).unwrap();
    let right = |text: &str| validator.is_valid(&to_json(&parse(text, 0).unwrap()));
    let of_ours = std::fs::read_dir(shipped("suites")).unwrap().map(|entry| entry.unwrap().path());
    let of_others = ["01-perf-eval-gpt-oss-120b-h200", "02-vllm-ci-serving-tests"]
        .into_iter()
        .chain(["03-inferencex-dsv4-h200-slurm"])
        .chain(["04-sglang-ci-1gpu", "05-llama-cpp-server-bench", "06-llm-d-gateway-rate-ladder"])
        .map(|name| shipped(&format!("{FOLDER}/{name}.toml")));
    let suites = of_ours.chain(of_others).chain([shipped("src/cli/init.toml")]);
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
