//! What is sent in several launches: in a pair the same, in the next one something else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Mutex;

use serde_json::Value;

use super::super::prompted::answer;
use crate::harness::Project;

/// This executable, started again as an engine that writes down what it is sent.
#[test]
#[ignore = "it is an engine"]
fn as_engine() {
    let listener =
        TcpListener::bind(format!("127.0.0.1:{}", std::env::var("PORT").unwrap())).unwrap();
    for stream in listener.incoming().map_while(Result::ok) {
        std::thread::spawn(move || {
            let kept: Mutex<Vec<Value>> = Mutex::default();
            while answer(&stream, &kept).is_some() {
                let mut said = std::fs::File::options();
                let mut said =
                    said.append(true).create(true).open(std::env::var("SAID").unwrap()).unwrap();
                for body in std::mem::take(&mut *kept.lock().unwrap()) {
                    said.write_all(format!("{body}\n").as_bytes()).unwrap();
                }
            }
        });
    }
}

#[test]
fn both_of_a_pair_get_the_same_prompts_and_the_next_pair_others() {
    let engine = std::env::current_exe().unwrap();
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "pairs"
[policy]
max-client-lag = "10s"
[model]
name = "toy"
[engine]
kind = "openai"
command = "{} --exact run::rounds::prompts::as_engine --ignored --nocapture {{{{ port }}}}"
env = {{ PORT = "{{{{ port }}}}", SAID = "{{{{ run.dir }}}}/said-{{{{ launch.id }}}}" }}
stop = {{ grace = "1s" }}
[variant.old]
vars.x = 0
[variant.new]
vars.x = 1
[compare]
baseline = "old"
candidate = "new"
[[test]]
kind = "serve"
input = {{ uniform = [60, 120] }}
output = 5
requests = 4
matrix.concurrency = [1]
[[expect]]
metric = "e2e-latency.p50"
max-ratio = 1.05
severity = "warn"
"#,
        engine.display()
    ));
    let ran = project.run(&["--seed", "7"]);
    let mut sent: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(&ran.out).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Some(launch) = name.strip_prefix("said-") else { continue };
        // Without the run's identity: `0-0`, `1-n2-0`.
        let launch = launch.split_once('-').unwrap().1.to_owned();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let bodies = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let asked = bodies.filter(|body| body["max_tokens"] == 5);
        sent.insert(launch, asked.map(|body| body["prompt"].to_string()).collect());
    }
    let keys: Vec<&str> = sent.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["0-0", "0-n2-0", "0-n3-0", "0-n4-0", "1-0", "1-n2-0", "1-n3-0", "1-n4-0"],
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    for round in ["", "n2-", "n3-", "n4-"] {
        let of = |launch: u32| &sent[&format!("{launch}-{round}0")];
        assert_eq!(of(0), of(1));
        assert_eq!(of(0).len(), 5, "four, and one to warm up");
    }
    let different: BTreeSet<&String> = sent.values().flatten().collect();
    assert_eq!(different.len(), 4 * 5);
}
