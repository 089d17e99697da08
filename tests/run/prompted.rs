//! What the requests of a serve test say: prompts out of files, and the same bytes for the same seed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Project, Ran};

/// A server of the OpenAI API that counts a token for each word and keeps what it was sent. It has no
/// tokenizer that can be asked.
struct Toy {
    url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Toy {
    fn start() -> Toy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || while answer(&stream, &kept).is_some() {});
            }
        });
        Toy { url, bodies }
    }

    /// Takes the prompts that were to have `output` tokens.
    fn prompts(&self, output: u64) -> Vec<String> {
        let bodies = std::mem::take(&mut *self.bodies.lock().unwrap());
        let asked = bodies.iter().filter(|body| body["max_tokens"] == output);
        let said =
            |body: &Value| body.get("messages").unwrap_or_else(|| &body["prompt"]).to_string();
        asked.map(said).collect()
    }
}

/// Answers one request; `None` once the client has gone.
pub(super) fn answer(mut stream: &TcpStream, kept: &Mutex<Vec<Value>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let length = head.to_ascii_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length:").and_then(|value| value.trim().parse::<usize>().ok())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    let text = if path.ends_with("/models") {
        plain(&json!({ "data": [{ "id": "toy" }] }))
    } else if path.contains("/completions") {
        let body: Value = serde_json::from_slice(&body).ok()?;
        let text = if body["stream"] == true { streamed(&body) } else { plain(&canary()) };
        kept.lock().unwrap().push(body);
        text
    } else {
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
    };
    stream.write_all(text.as_bytes()).ok()
}

/// What is asked for before anything is measured.
fn canary() -> Value {
    let said = json!({ "text": "a", "message": { "role": "assistant", "content": "a" }, "finish_reason": "length" });
    json!({ "choices": [said], "usage": { "prompt_tokens": 1, "completion_tokens": 1 } })
}

fn plain(body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn streamed(body: &Value) -> String {
    let said = body["prompt"].as_str().map(str::to_owned);
    let said = said.unwrap_or_else(|| body["messages"][0]["content"].to_string());
    let tokens = body["max_tokens"].as_u64().unwrap_or(1);
    let chat = body["messages"].is_array();
    let choice = |text: &str, finish: Value| match chat {
        true => json!({ "delta": { "content": text }, "finish_reason": finish }),
        false => json!({ "text": text, "finish_reason": finish }),
    };
    let mut events = String::new();
    for token in 1..=tokens {
        let finish = if token == tokens { json!("length") } else { Value::Null };
        events.push_str(&format!("data: {}\n\n", json!({ "choices": [choice("a", finish)] })));
    }
    let usage = json!({
        "prompt_tokens": said.split_whitespace().count() + 9, "completion_tokens": tokens,
    });
    events.push_str(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })));
    events.push_str("data: [DONE]\n\n");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
        events.len()
    )
}

/// A serve test against a server that runs already.
fn against(toy: &Toy, test: &str) -> Project {
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"prompted\"\n[policy]\nmax-client-lag = \"10s\"\n[engine]\nkind = \"openai\"\n\
         url = \"{}\"\n[[test]]\nkind = \"serve\"\n{test}",
        toy.url
    ))
}

/// One on the simulated engine, which has a tokenizer that can be asked.
fn simulated(test: &str) -> Project {
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"prompted\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n[[test]]\n\
         kind = \"serve\"\n{test}"
    ))
}

fn state(ran: &Ran) -> Value {
    ran.record()["cells"][0]["state"].clone()
}

#[track_caller]
fn measured(ran: &Ran) -> Value {
    let found = state(ran)["measured"].clone();
    assert!(found.is_object(), "{}{}", ran.stdout, ran.stderr);
    found
}

#[test]
fn the_same_seed_sends_the_same_bytes_and_another_sends_others() {
    let toy = Toy::start();
    for api in ["completions", "chat"] {
        let sent = |seed: &str| {
            let test = format!(
                "input = {{ uniform = [60, 120] }}\noutput = 5\nrequests = 20\nrequest.api = \"{api}\"\n\
                 matrix.concurrency = [3]"
            );
            let ran = against(&toy, &test).run(&["--seed", seed]);
            measured(&ran);
            toy.prompts(5)
        };
        let first = sent("7");
        // Three streams warm up with a request each. Who sends what is a matter of timing, what is
        // sent is none.
        assert_eq!(first.len(), 23);
        let set = |prompts: &[String]| prompts.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(set(&first).len(), 23, "no prompt is sent twice");
        assert_eq!(set(&first), set(&sent("7")));
        assert!(set(&first).is_disjoint(&set(&sent("8"))));
        let lengths: BTreeSet<usize> =
            first.iter().map(|prompt| prompt.split_whitespace().count()).collect();
        assert!(lengths.len() > 10, "{lengths:?}");
    }
}

#[test]
fn a_shard_sends_what_the_whole_run_sends_of_it() {
    let toy = Toy::start();
    let test = "input = 60\noutput = 5\nrequests = 6\nmatrix.concurrency = [2]\nmatrix.layout = [\"a\", \"b\"]\n\
                [engine.env]\nLAYOUT = \"{{ axis.layout }}\"\n";
    let sent = |more: &[&str]| {
        let ran = against(&toy, test).run(&[&["--seed", "7"], more].concat());
        measured(&ran);
        toy.prompts(5).into_iter().collect::<BTreeSet<_>>()
    };
    let whole = sent(&[]);
    assert_eq!(whole.len(), 16, "both launches have their own");
    let [first, second] = ["1/2", "2/2"].map(|shard| sent(&["--shard", shard]));
    assert!(first.len() == 8 && first.is_disjoint(&second));
    assert_eq!(&first | &second, whole);
    assert_eq!(sent(&["-E", "layout=b"]), second, "nor does it matter what is selected beside it");
}

/// Conversations with prompts and answers of rising length.
fn talks(count: u32) -> String {
    let words = |word: &str, n: u32| vec![word; n as usize].join(" ");
    let talk = |i: u32| {
        json!({ "id": i, "conversations": [
            { "from": "human", "value": format!("q{i} {}", words("cat", 20 + i)) },
            { "from": "gpt", "value": words("dog", 5 + i) },
        ] })
    };
    Value::from((0..count).map(talk).collect::<Vec<_>>()).to_string()
}

#[test]
fn prompts_and_lengths_of_answers_come_out_of_a_file() {
    let taken = |requests: u32, more: &str| {
        let project = simulated(&format!(
            "dataset = {{ file = \"talks.json\", format = \"sharegpt\"{more} }}\nrequests = {requests}\n\
             matrix.concurrency = [1]"
        ));
        project.file("talks.json", &talks(30));
        let ran = project.run(&["--seed", "7"]).exits(0);
        measured(&ran)
    };
    let mean = |found: &Value| {
        let of = |metric: &str| found["observations"][metric]["exact"].as_f64().unwrap();
        of("output-tokens") / of("completed-requests")
    };
    // All but one are sent: one of them warms up. Answers have 5 to 34 tokens.
    let all = taken(28, "");
    assert!((mean(&all) - 19.5).abs() < 2.0, "{}", mean(&all));
    assert_eq!(all["warnings"], json!([]));
    let lengths = all["prompt-tokens"].as_array().unwrap();
    assert!(lengths[0].as_u64().unwrap() > 30 && lengths[0] == lengths[1], "{lengths:?}");
    let short = taken(6, ", max-output = 12");
    assert!(mean(&short) <= 12.0, "{}", mean(&short));
    assert_eq!(short["warnings"], json!([]));
    let few = taken(10, ", max-output = 12");
    let said = few["warnings"].to_string();
    assert!(said.contains("too few prompts") && said.contains("sent again"), "{said}");
    // A window of a length needs as many as are sent in it, and no more.
    let window = |seconds: u32| {
        let project = simulated(&format!(
            "dataset = {{ file = \"talks.json\", format = \"sharegpt\" }}\nduration = \"{seconds}s\"\n\
             matrix.concurrency = [1]\n[[test]]\nname = \"again\"\nkind = \"serve\"\nrequests = 10\n\
             dataset = {{ file = \"talks.json\", format = \"sharegpt\" }}"
        ));
        project.file("talks.json", &talks(60));
        let record = project.run(&["--seed", "7"]).exits(0).record();
        [0, 1].map(|cell| record["cells"][cell]["state"]["measured"]["warnings"].to_string())
    };
    assert_eq!(window(2), ["[]", "[]"]);
    assert!(window(60).iter().all(|said| said.contains("too few prompts")), "{:?}", window(60));
}

#[test]
fn lines_of_prompts_and_of_messages_are_sent_as_they_stand() {
    let toy = Toy::start();
    let lines: String = (0..6).map(|i| format!("{{\"prompt\": \"tell me {i}\"}}\n")).collect();
    let test = "dataset = { file = \"p.jsonl\", format = \"jsonl\" }\noutput = 4\nrequests = 5\n";
    let project = against(&toy, test);
    project.file("p.jsonl", &lines);
    measured(&project.run(&[]));
    let sent: BTreeSet<String> = toy.prompts(4).into_iter().collect();
    let expected: BTreeSet<String> = (0..6).map(|i| format!("\"tell me {i}\"")).collect();
    assert_eq!(sent, expected);

    let messages = r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "max_tokens": 4}"#;
    let project = against(&toy, &format!("{test}request.api = \"chat\"\n"));
    project.file("p.jsonl", messages);
    let ran = project.run(&[]);
    let said = measured(&ran)["warnings"].to_string();
    assert!(said.contains("sent again"), "{said}");
    let sent = toy.prompts(4);
    assert_eq!(sent.len(), 6);
    assert!(sent[0].contains("Be brief.") && sent[0].contains("Hi"), "{}", sent[0]);
    // The other endpoint takes none.
    let project = against(&toy, test);
    project.file("p.jsonl", messages);
    let ran = project.run(&[]);
    let said = state(&ran)["broken"]["message"].to_string();
    assert!(said.contains("it has messages: write request.api = \\\"chat\\\""), "{said}");
}

#[test]
fn a_file_that_can_not_serve_says_why() {
    let toy = Toy::start();
    let limited = "dataset = { file = \"d\", format = \"jsonl\", max-input = 9 }\nrequests = 5\n";
    let whole = limited.replace(", max-input = 9", "");
    let told = |project: Project, text: &str| {
        project.file("d", text);
        let ran = project.run(&[]);
        assert_eq!(ran.having("error").len(), 1, "{}", ran.record()["cells"][0]);
        let state = state(&ran);
        assert_eq!(state["broken"]["class"], "dataset", "{state}");
        state["broken"]["message"].as_str().unwrap().to_owned()
    };
    let line = "{\"prompt\": \"a b c d e f g h i j k l m n o\"}\n";
    let said = told(against(&toy, limited), line);
    assert!(said.contains("the server has no tokenizer to count them by"), "{said}");
    let said = told(simulated(limited), line);
    assert!(said.contains("none of its 1 prompts keeps the limits"), "{said}");
    let said = told(simulated(&whole), &format!("{line}{{\"text\": \"x\"}}\n"));
    assert!(said.contains("d: line 2: it has neither `prompt` nor `messages`"), "{said}");
}

#[test]
fn a_chat_of_hardly_more_than_its_template_has_the_length_that_was_asked_for() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "short"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "virtual"
[request]
api = "chat"
[[test]]
kind = "prefill"
samples = 2
matrix.context = [32, 40]
"#,
    );
    project.file(
        "engine.toml",
        "max-model-len = \"32K\"\nkv-capacity = \"128K\"\n[prefill]\ntokens = [16, \"1K\"]\nms = [60, 150]\n\
         [admit]\nat = [1]\ngrid = [[\"1K\", 60]]\n[step]\nat = [1]\ngrid = [[\"1K\", 30]]\n",
    );
    // Seeds of which some draw a long first word.
    for seed in ["2", "3", "12", "13"] {
        let ran = project.run(&["--seed", seed]).exits(0);
        assert_eq!(ran.having("measured").len(), 2, "{}", ran.stderr);
    }
}
