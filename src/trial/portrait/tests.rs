//! Engines that say what real ones say, and what is made of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::*;

/// Path, status and body.
type Page = (&'static str, u16, &'static str);

const MODELS: Page =
    ("/v1/models", 200, r#"{"data":[{"id":"m","max_model_len":4096},{"id":"n"}]}"#);
const TOKEN: &str = r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}"#;
const COMPLETIONS: Page = ("/v1/completions", 200, TOKEN);

/// A server of these pages; any other path is a 404.
fn serve(pages: Vec<Page>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let pages = pages.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    let mut length = 0;
                    loop {
                        let mut header = String::new();
                        reader.read_line(&mut header).unwrap();
                        let header = header.to_ascii_lowercase();
                        if let Some(text) = header.strip_prefix("content-length:") {
                            length = text.trim().parse().unwrap();
                        }
                        if header.trim().is_empty() {
                            break;
                        }
                    }
                    reader.read_exact(&mut vec![0; length]).unwrap();
                    let path = line.split(' ').nth(1).unwrap();
                    let page = pages.iter().find(|(at, _, _)| *at == path);
                    let (status, body) =
                        page.map_or((404, "{}"), |(_, status, body)| (*status, *body));
                    let head =
                        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                    if stream
                        .write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    url
}

async fn taken(pages: &[Page], model: Option<&str>) -> Result<Portrait, Refusal> {
    at(&serve(pages.to_vec()), model, &[]).await
}

async fn at(
    url: &str,
    model: Option<&str>,
    headers: &[(String, String)],
) -> Result<Portrait, Refusal> {
    let approach = Approach { url, headers, model, patience: Duration::from_secs(60) };
    take(&approach).await.map(|(portrait, _)| portrait)
}

#[tokio::test]
async fn an_engine_is_known_by_what_only_it_answers() {
    let props = ("/props", 200, include_str!("../../../tests/data/engine/llama-props.json"));
    let llama = taken(&[MODELS, COMPLETIONS, props], None).await.unwrap();
    assert_eq!((llama.kind, llama.facts.slots), (Kind::LlamaCpp, Some(4)));
    assert_eq!((llama.facts.max_model_len, llama.facts.kv_capacity), (Some(1024), Some(4096)));

    let version = ("/version", 200, r#"{"version":"0.29.0"}"#);
    let page = include_str!("../../../tests/data/engine/vllm-under-load.prom");
    let vllm = taken(&[MODELS, COMPLETIONS, version, ("/metrics", 200, page)], None).await.unwrap();
    assert_eq!((vllm.kind, vllm.facts.version.as_deref()), (Kind::Vllm, Some("0.29.0")));
    assert_eq!(vllm.facts.max_model_len, Some(4096));
    assert!(vllm.facts.kv_capacity.is_some());

    let info = r#"{"version":"0.5.4","max_total_num_tokens":131072,"tp_size":2}"#;
    let sglang =
        taken(&[MODELS, COMPLETIONS, ("/get_server_info", 200, info)], None).await.unwrap();
    assert_eq!((sglang.kind, sglang.facts.kv_capacity), (Kind::Sglang, Some(131_072)));

    let other = taken(&[MODELS, COMPLETIONS, version], Some("n")).await.unwrap();
    assert_eq!((other.kind, other.chat), (Kind::Openai, false));
    assert_eq!(other.facts.model, "n");
}

#[tokio::test]
async fn an_engine_that_only_chats_is_asked_to_chat() {
    let chat = ("/v1/chat/completions", 200, r#"{"choices":[{"message":{"content":"a"}}]}"#);
    assert!(taken(&[MODELS, chat], None).await.unwrap().chat);
    let neither = taken(&[MODELS], None).await.unwrap_err();
    assert!(neither.to_string().contains("neither /v1/completions nor"), "{neither}");
}

#[tokio::test]
async fn each_refusal_says_what_to_write() {
    let wrong = taken(&[MODELS, COMPLETIONS], Some("x")).await.unwrap_err();
    assert_eq!(wrong.to_string(), "the engine has no model `x`; it serves `m`, `n`");
    assert_eq!(wrong.help(), "write --model m, or leave --model away");

    let locked: Page = ("/v1/models", 401, r#"{"error":"Unauthorized"}"#);
    let key = taken(&[locked], None).await.unwrap_err();
    assert!(key.help().contains("--api-key-env API_KEY"), "{}", key.help());
    let header = [("authorization".to_owned(), "Bearer x".to_owned())];
    let key = at(&serve(vec![locked]), None, &header).await.unwrap_err();
    assert!(key.help().contains("was refused"), "{}", key.help());
    // A key may be wanted of completions alone, as by llama.cpp.
    let key = taken(&[MODELS, ("/v1/completions", 401, "{}")], None).await.unwrap_err();
    assert!(matches!(key, Refusal::Key { sent: false, .. }), "{key}");

    let loading = taken(&[("/v1/models", 503, "loading")], None).await.unwrap_err();
    assert!(loading.to_string().contains("503 loading"), "{loading}");
    for stranger in [("/v1/models", 200, "<html>"), ("/", 200, "hello")] {
        let refused = taken(&[stranger], None).await.unwrap_err();
        assert!(matches!(refused, Refusal::Stranger { .. }), "{refused}");
    }
    let dead = at("http://127.0.0.1:1", None, &[]).await.unwrap_err();
    assert!(dead.to_string().contains("no engine answers at http://127.0.0.1:1"), "{dead}");
    let silent = ("/v1/completions", 200, r#"{"choices":[{"text":""}]}"#);
    assert!(matches!(taken(&[MODELS, silent], None).await, Err(Refusal::Mute { .. })));
}
