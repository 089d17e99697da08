//! What requests say: the bytes that the engine was sent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{decode, measured, sound, suite};
use crate::toy::{Asked, Toy};

fn toy() -> Toy {
    Toy::start(|asked| asked.stream().acts())
}

const PREFILL: &str = "[[test]]\nkind = \"prefill\"\nmatrix.context = [64, 256]\n";

#[test]
fn every_test_speaks_to_the_chat_api_with_body_headers_and_key() {
    let toy = toy();
    let request = "api = \"chat\"\nbody = { temperature = 0, tag = \"{{ suite.name }}\" }\n\
                   headers = { x-tenant = \"perf\", authorization = \"Bearer {{ secret.key }}\" }\n\
                   [secrets]\nkey = { env = \"TOY_KEY\" }";
    let test = format!("[[test]]\nkind = \"startup\"\n{PREFILL}{}", decode("prefix = \"cold\""));
    let project = suite(&toy, "vllm", request, &test);
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    let output = command.env("TOY_KEY", "sk-0123456789").output().unwrap();
    let ran = project.ran(output).exits(0);
    (1..4).for_each(|cell| sound(&measured(&ran, cell)));
    let asked = toy.asked();
    assert!(asked.len() > 20);
    for one in asked {
        assert_eq!(one.path, "/v1/chat/completions");
        assert_eq!(one.headers["authorization"], "Bearer sk-0123456789");
        assert_eq!(one.headers["x-tenant"], "perf");
        assert_eq!(one.headers["accept-encoding"], "identity");
        let body = &one.body;
        assert_eq!((&body["temperature"], &body["tag"]), (&0.into(), &"toy".into()));
        assert_eq!(body["messages"].as_array().unwrap().len(), 1);
        assert_eq!(body["messages"][0]["role"], "user");
        assert!(body["prompt"].is_null());
        assert_eq!((&body["model"], &body["stream"]), (&"toy".into(), &true.into()));
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["ignore_eos"], true);
    }
}

#[test]
fn a_test_may_speak_to_another_api_than_its_neighbour() {
    let toy = toy();
    let test = format!("{PREFILL}{}", decode("request = { api = \"chat\", body = { top_k = 3 } }"));
    suite(&toy, "vllm", "body = { seed = 1 }", &test).run(&[]).exits(0);
    let chat = |one: &Asked| one.is_chat();
    let (chats, others): (Vec<_>, Vec<_>) = toy.asked().into_iter().partition(chat);
    assert!(!chats.is_empty() && !others.is_empty());
    assert!(chats.iter().all(|one| one.body["top_k"] == 3 && one.body["seed"] == 1));
    assert!(others.iter().all(|one| one.body["top_k"].is_null() && one.body["seed"] == 1));
}

/// The different bodies that a run sent, and those of its first requests in their order.
fn sent(
    project: &crate::harness::Project,
    toy: &Toy,
    seed: &[&str],
) -> (BTreeSet<String>, Vec<Value>) {
    let before = toy.asked().len();
    project.run(seed).exits(0);
    let bodies: Vec<Value> = toy.asked()[before..].iter().map(|one| one.body.clone()).collect();
    (bodies.iter().map(Value::to_string).collect(), bodies[..8].to_vec())
}

#[test]
fn the_same_seed_sends_the_same_bytes_and_another_run_sends_others() {
    for request in ["", "api = \"chat\""] {
        let toy = toy();
        let test = format!("{PREFILL}{}", decode("matrix.concurrency = [3]"));
        let project = suite(&toy, "vllm", request, &test);
        let seven = sent(&project, &toy, &["--seed", "7"]);
        assert_eq!(sent(&project, &toy, &["--seed", "7"]), seven);
        let (eight, _) = sent(&project, &toy, &["--seed", "8"]);
        assert!(eight.is_disjoint(&seven.0));
        // Without a seed each run has one of its own, which is in its record.
        let (first, _) = sent(&project, &toy, &[]);
        let (second, _) = sent(&project, &toy, &[]);
        assert!(first.is_disjoint(&second));
    }
}

#[test]
fn two_launches_of_one_run_send_different_prompts() {
    for api in ["completions", "chat"] {
        let toy = toy();
        let request =
            format!("api = \"{api}\"\nheaders = {{ x-launch = \"{{{{ launch.id }}}}\" }}");
        let variants = "[variant.a]\nvars.x = 1\n[variant.b]\nvars.x = 2\n[vars]\nx = 0\n";
        let decode = decode("matrix.concurrency = [3]");
        let project = suite(&toy, "vllm", &request, &format!("{variants}{PREFILL}{decode}"));
        project.run(&["--seed", "7"]).exits(0);
        let mut prompts: BTreeMap<String, BTreeSet<Vec<u64>>> = BTreeMap::new();
        for one in toy.asked() {
            prompts.entry(one.headers["x-launch"].clone()).or_default().insert(one.prompt());
        }
        let launches: Vec<_> = prompts.values().collect();
        assert_eq!(launches.len(), 2);
        assert!(launches[0].len() > 6 && launches[0].is_disjoint(launches[1]), "{api}");
    }
}
