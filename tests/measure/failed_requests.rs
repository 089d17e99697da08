//! Requests that fail, each in its way: counted, told in the server's words, and in no figure.

use std::time::Duration;

use super::{exact, faulty, measured, suite, told_everywhere};
use crate::toy::{Act, Asked, Toy, chunk, end, head, whole};

/// How each class comes about, its words, and what the server does after it has spoken of a hundred
/// thousand tokens, where it speaks at all.
const CLASSES: [(&str, &str); 12] = [
    ("connection", "no answer"),
    ("rate-limited", "HTTP 503: too busy"),
    ("status", "HTTP 500: out of memory"),
    ("server-error", "EngineCore encountered an issue"),
    ("server-error", "Incomplete generation"),
    ("aborted", "finish reason abort"),
    ("truncated", "with neither finish reason nor [DONE]"),
    ("malformed", "no JSON: {oh"),
    ("no-output", "ended without a token"),
    ("not-a-stream", "content-type application/json"),
    ("not-a-stream", "content-encoding gzip although identity was asked for"),
    ("stalled", "nothing generated for 0.5 s"),
];

const MANY: &str = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}],\
                    \"usage\":{\"prompt_tokens\":64,\"completion_tokens\":100000}}\n\n";

fn failing(how: usize) -> Vec<Act> {
    let json = "content-type: application/json\r\n";
    let stream = |after: &[Act]| {
        let mut acts = vec![head("text/event-stream"), chunk(MANY)];
        acts.extend_from_slice(after);
        acts
    };
    let event = |data: &str| chunk(&format!("data: {data}\n\n"));
    match how {
        0 => vec![Act::Close],
        1 => whole("503 Service Unavailable", json, b"{\"error\":{\"message\":\"too busy\"}}"),
        2 => whole("500 Internal Server Error", json, b"{\"error\":\"out of memory\"}"),
        3 => stream(&[
            event("{\"error\":{\"message\":\"EngineCore encountered an issue\",\"code\":500}}"),
            event("[DONE]"),
            end(),
        ]),
        4 => stream(&[
            event("{\"error\":\"Incomplete generation\",\"error_type\":\"incomplete_generation\"}"),
            end(),
        ]),
        5 => stream(&[
            event("{\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}"),
            event("[DONE]"),
            end(),
        ]),
        6 => stream(&[end()]),
        7 => stream(&[event("{oh"), end()]),
        8 => vec![head("text/event-stream"), event("[DONE]"), end()],
        9 => {
            whole("200 OK", json, b"{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}")
        }
        10 => whole(
            "200 OK",
            "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n",
            b"\x1f\x8b\x08\x00",
        ),
        // One that the end of the window cuts has not stalled yet, and its tokens count.
        _ => vec![
            head("text/event-stream"),
            chunk(&MANY.replace("100000", "1")),
            Act::Repeat(b"8\r\n: ping\n\n\r\n".into(), Duration::from_millis(50)),
        ],
    }
}

/// An engine that fails every fourth request of a cell's loop in the way that a header names.
fn engine() -> Toy {
    Toy::start(|asked: &Asked| {
        let how: usize = asked.headers["x-how"].parse().unwrap();
        // A connection that breaks is tried once more, since it may have been closed while idle.
        let bad = asked.n.is_multiple_of(4) || (how == 0 && asked.n % 4 == 1);
        if bad && asked.max_tokens() > 1 {
            return failing(how);
        }
        let mut stream = asked.stream();
        stream.step = Duration::from_millis(6);
        stream.acts()
    })
}

fn cells(toy: &Toy) -> crate::harness::Project {
    let all: Vec<String> = (0..CLASSES.len()).map(|how| format!("\"{how}\"")).collect();
    let more = format!(
        "headers = {{ x-how = \"{{{{ axis.how }}}}\" }}\nidle-timeout = \"500ms\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"100ms\"\nmin-tokens = 120\nmax-output = 16\n\
         matrix.context = [64]\nmatrix.how = [{}]\n",
        all.join(", ")
    );
    let suite = suite(toy, "vllm", "", &more);
    let text = std::fs::read_to_string(suite.path().join("suite.toml")).unwrap();
    suite.file("suite.toml", &text.replace("idle-timeout = \"10s\"\n", ""));
    suite
}

#[test]
fn every_class_of_failure_is_counted_and_told_and_in_no_figure() {
    let project = cells(&engine());
    let ran = project.run(&[]).exits(10);
    assert_eq!(ran.having("fail").len(), CLASSES.len(), "{:?}", ran.verdicts());
    for (cell, (class, words)) in CLASSES.iter().enumerate() {
        let found = measured(&ran, cell);
        let (count, message) = {
            let failed = &found["failures"][*class];
            assert!(failed.is_array(), "{class} in {}", found["failures"]);
            (failed[0].as_u64().unwrap(), failed[1].as_str().unwrap().to_owned())
        };
        assert!(message.contains(words), "{class}: {message}");
        assert_eq!(found["failures"].as_object().unwrap().len(), 1, "{}", found["failures"]);
        let told = faulty(&found, "error-rate", "degraded");
        assert!(told.starts_with(&format!("{count} of ")), "{told}");
        // Each failed request spoke of a hundred thousand tokens.
        let tokens = exact(&found, "output-tokens");
        assert!((8.0..5000.0).contains(&tokens), "{class}: {tokens}");
        told_everywhere(&ran, &told);
        assert!(ran.read("junit.xml").contains(&format!("{count} × {class}: ")), "{class}");
    }
}
