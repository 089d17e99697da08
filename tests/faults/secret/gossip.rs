//! A server that tells in every answer what it was told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use super::nothing_of;
use crate::harness::Project;

const KEY: &str = "sk-gossip-0123+4567";

/// Serves for as long as this process lives; its port.
fn gossip() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while serve(&mut reader, number).is_some() {}
            });
        }
    });
    port
}

fn serve(reader: &mut BufReader<TcpStream>, number: usize) -> Option<()> {
    let mut head = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let told = format!("{} {} {KEY}", head.join(" | "), String::from_utf8_lossy(&body));
    let path = head.first()?.split(' ').nth(1)?.split('?').next()?.to_owned();
    let long = serde_json::from_slice::<serde_json::Value>(&body)
        .is_ok_and(|body| body["max_tokens"].as_u64().is_some_and(|most| most > 2));
    let (status, text) = match path.as_str() {
        "/health" => ("200 OK", told.clone()),
        "/version" => ("200 OK", json!({ "version": format!("1.0-{KEY}") }).to_string()),
        "/v1/models" => {
            ("200 OK", json!({ "data": [{ "id": KEY, "max_model_len": 32768 }] }).to_string())
        }
        "/metrics" => {
            let label = format!("{{model_name=\"{KEY}\",told=\"{KEY}\"}}");
            let text = format!(
                "vllm:num_requests_running{label} 0\nvllm:num_requests_waiting{label} 0\n\
                 vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"9000\",key=\"{KEY}\"}} 1\n"
            );
            ("200 OK", text)
        }
        "/v1/completions" if long && number % 3 == 1 => {
            ("401 Unauthorized", json!({ "error": { "message": told } }).to_string())
        }
        "/v1/completions" if long && number % 3 == 2 => {
            ("500 Internal Server Error", told.chars().rev().collect::<String>() + &told)
        }
        "/v1/completions" if !String::from_utf8_lossy(&body).contains("\"stream\":true") => {
            let choice = json!({ "text": "a", "finish_reason": KEY });
            (
                "200 OK",
                json!({ "id": KEY, "choices": [choice], "usage": { "completion_tokens": 1 } })
                    .to_string(),
            )
        }
        "/v1/completions" => {
            let event = |finish| {
                json!({ "id": KEY, "model": KEY, "choices": [{ "text": "a", "finish_reason": finish }],
                    "usage": { "prompt_tokens": 8, "completion_tokens": 1 } })
            };
            let events = [event(None), event(Some(KEY))];
            let events: String = events.iter().map(|it| format!("data: {it}\n\n")).collect();
            ("200 OK", events + "data: [DONE]\n\n")
        }
        _ => ("404 Not Found", told.clone()),
    };
    let kind = if text.starts_with("data:") { "text/event-stream" } else { "application/json" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: {kind}\r\nserver: {KEY}\r\n\
         x-told: {KEY}\r\n\r\n{text}",
        text.len()
    );
    reader.get_mut().write_all(answer.as_bytes()).ok()
}

#[test]
fn what_a_server_repeats_is_hidden() {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "gossip"
[secrets]
key = {{ env = "TG_KEY" }}
[engine]
kind = "vllm"
url = "http://user:{{{{ secret.key }}}}@127.0.0.1:{}"
[request]
headers = {{ x-key = "{{{{ secret.key }}}}" }}
timeout = "2s"
[[test]]
kind = "decode"
duration = "300ms"
max-output = 16
[[test]]
kind = "serve"
requests = 9
output = 16
"#,
        gossip()
    ));
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "-v"]);
    let ran = project.ran(command.env("TG_KEY", KEY).output().unwrap());
    assert!(ran.code > 0, "{}", ran.stderr);
    nothing_of(&[KEY], &ran);
    let record = ran.read("record.json");
    assert!(record.contains("1.0-[redacted]"), "{record}");
    assert!(ran.read("junit.xml").contains("[redacted]"));
}
