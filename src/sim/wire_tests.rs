//! The HTTP surface over in-memory pipes in paused time, and once over TCP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::*;

const PROFILE: &str = r#"
version = "1.2.3"
max-model-len = "4K"
kv-capacity = "16K"
start-up = "2s"
prefill = { tokens = [17, "4K"], ms = [100, 100] }
admit = { at = [1, 4], grid = [["1K", 10, 30]] }
step = { at = [1, 4], grid = [["1K", 4, 6]] }
"#;

/// A loaded engine with faults, in paused time.
async fn engine(faults: &str) -> Connect {
    let profile = Profile::parse(&format!("{PROFILE}\n{faults}")).unwrap();
    let connect = start_in_process(profile, 1, "tiny", Some("secret"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    connect
}

async fn send_over<S>(
    stream: S,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> hyper::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "sim")
        .header("authorization", "Bearer secret")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    sender.send_request(request).await
}

async fn call(connect: &Connect, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = send_over(connect(), method, path, body).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Events of a stream with milliseconds since it was sent; an error where it was cut.
async fn events(connect: &Connect, path: &str, body: Value) -> (Vec<(u64, String)>, bool) {
    let sent = Instant::now();
    let mut response =
        send_over(connect(), "POST", path, body.to_string().into_bytes()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let mut events = Vec::new();
    while let Some(frame) = response.body_mut().frame().await {
        let Ok(frame) = frame else { return (events, true) };
        let at = (Instant::now() - sent).as_millis() as u64;
        let data = frame.into_data().unwrap();
        for event in String::from_utf8(data.to_vec()).unwrap().split_terminator("\n\n") {
            events.push((at, event.strip_prefix("data: ").unwrap().to_owned()));
        }
    }
    (events, false)
}

fn redacted(text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap();
    value["created"] = json!(0);
    value.to_string()
}

/// Events of a stream without their times.
async fn said(connect: &Connect, path: &str, body: Value) -> String {
    let (events, cut) = events(connect, path, body).await;
    assert!(!cut);
    let lines = events.iter().map(|(_, event)| match event.as_str() {
        "[DONE]" => event.clone(),
        event => redacted(event),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn it_is_not_healthy_before_it_has_loaded() {
    let profile = Profile::parse(PROFILE).unwrap();
    let connect = start_in_process(profile, 1, "tiny", None);
    assert_eq!(call(&connect, "GET", "/health", Value::Null).await.0, 503);
    assert_eq!(call(&connect, "POST", "/v1/completions", json!({"prompt": "a"})).await.0, 503);
    tokio::time::sleep(Duration::from_millis(2001)).await;
    assert_eq!(call(&connect, "GET", "/health", Value::Null).await, (StatusCode::OK, json!("")));
}

#[tokio::test(start_paused = true)]
async fn it_says_what_it_is() {
    let connect = engine("").await;
    assert_eq!(call(&connect, "GET", "/version", Value::Null).await.1, json!({"version": "1.2.3"}));
    let models = call(&connect, "GET", "/v1/models", Value::Null).await.1;
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(models["data"][0]["max_model_len"], 4096);
    let (_, page) = call(&connect, "GET", "/metrics", Value::Null).await;
    assert!(page.as_str().unwrap().contains("num_gpu_blocks=\"1024\""));
}

#[tokio::test(start_paused = true)]
async fn refusals_have_vllms_status_and_shape() {
    let connect = engine("").await;
    let not_found = (StatusCode::NOT_FOUND, json!({"detail": "Not Found"}));
    assert_eq!(call(&connect, "GET", "/v1/nothing", Value::Null).await, not_found);
    let method = (StatusCode::METHOD_NOT_ALLOWED, json!({"detail": "Method Not Allowed"}));
    assert_eq!(call(&connect, "GET", "/v1/completions", Value::Null).await, method);
    let (status, body) =
        call(&connect, "POST", "/v1/completions", json!({"model": "other", "prompt": "a"})).await;
    assert_eq!(status, 404);
    assert_eq!(
        body,
        json!({"error": {"message": "The model `other` does not exist. Valid aliases: tiny.", "type": "NotFoundError", "param": "model", "code": 404}})
    );
    let long = json!({"prompt": vec![1; 4096], "max_tokens": 1});
    assert_eq!(call(&connect, "POST", "/v1/completions", long).await.0, 400);

    let locked = start_in_process(Profile::parse(PROFILE).unwrap(), 1, "tiny", Some("other"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let refused = (StatusCode::UNAUTHORIZED, json!({"error": "Unauthorized"}));
    assert_eq!(call(&locked, "GET", "/v1/models", Value::Null).await, refused);
    assert_eq!(call(&locked, "GET", "/health", Value::Null).await.0, 200);
    assert_eq!(call(&locked, "POST", "/tokenize", json!({"prompt": "a"})).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_completions_looks_like_vllms() {
    let connect = engine("").await;
    let body = json!({"model": "tiny", "prompt": "Once upon", "max_tokens": 2, "ignore_eos": true, "stream": true});
    insta::assert_snapshot!(said(&connect, "/v1/completions", body).await);
    let body = json!({"prompt": [2, 10, 11], "max_tokens": 2, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    insta::assert_snapshot!(said(&connect, "/v1/completions", body).await);
    let body = json!({"prompt": [2, 99999999], "max_tokens": 4, "stream": true});
    let (events, _) = events(&connect, "/v1/completions", body).await;
    let error = r#"{"error": {"message": "Token id 99999999 is out of vocabulary", "type": "BadRequestError", "param": null, "code": 400}}"#;
    assert_eq!(events[0].1, error);
    assert_eq!(events[1].1, "[DONE]");
}

#[tokio::test(start_paused = true)]
async fn running_usage_counts_tokens_not_events() {
    let profile = Profile::parse(&format!("tokens-per-chunk = 3\n{PROFILE}")).unwrap();
    let connect = start_in_process(profile, 1, "tiny", None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let body = json!({"prompt": "a", "max_tokens": 9, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let (events, _) = events(&connect, "/v1/completions", body).await;
    let parsed = events.iter().filter_map(|(_, event)| serde_json::from_str::<Value>(event).ok());
    let events: Vec<Value> = parsed.collect();
    let counts: Vec<_> = events.iter().map(|event| &event["usage"]["completion_tokens"]).collect();
    assert_eq!(counts, [1, 4, 7, 9, 9]);
    assert_eq!(events[1]["choices"][0]["text"].as_str().unwrap().split_whitespace().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_chat_stream_begins_with_its_role() {
    let connect = engine("").await;
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 2,
        "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true}});
    insta::assert_snapshot!(said(&connect, "/v1/chat/completions", body).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_has_the_same_text_and_usage() {
    let connect = engine("").await;
    let prompt = "all work and no play makes jack a dull boy and all that jazz for ever and a day";
    let body = json!({"prompt": prompt, "max_tokens": 3, "ignore_eos": true});
    let (_, first) = call(&connect, "POST", "/v1/completions", body.clone()).await;
    let (_, again) = call(&connect, "POST", "/v1/completions", body).await;
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
    assert_eq!(first["choices"], again["choices"]);
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    assert_eq!(first["usage"]["completion_tokens"], 3);
    let text = first["choices"][0]["text"].as_str().unwrap();
    let (_, tokens) = call(&connect, "POST", "/tokenize", json!({"prompt": text})).await;
    assert_eq!(tokens["count"], 3);
    let (_, back) =
        call(&connect, "POST", "/detokenize", json!({"tokens": tokens["tokens"]})).await;
    assert_eq!(back["prompt"], text);
}

/// Times of the first ten token events of a prompt, cold and then cached.
async fn times(connect: &Connect) -> Vec<Vec<u64>> {
    let body =
        json!({"prompt": vec![7; 1024], "max_tokens": 10, "ignore_eos": true, "stream": true});
    let mut all = Vec::new();
    for _ in 0..2 {
        let (events, _) = events(connect, "/v1/completions", body.clone()).await;
        all.push(events.iter().filter(|(_, e)| e != "[DONE]").map(|(at, _)| *at).collect());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn tokens_come_when_the_profile_says() {
    let connect = engine("").await;
    let times = times(&connect).await;
    // Rounded up to the next tick of 1 ms, without adding up.
    for (got, begin) in times.iter().zip([100, 10]) {
        let late: Vec<i64> =
            got.iter().enumerate().map(|(i, at)| *at as i64 - (begin + 4 * i as i64)).collect();
        assert!(late.iter().all(|late| (0..=1).contains(late)), "{got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_prompts_is_admitted_together() {
    let connect = engine("").await;
    times(&connect).await;
    let body =
        json!({"prompt": vec![7; 1024], "max_tokens": 3, "ignore_eos": true, "stream": true});
    let streams: Vec<_> = (0..4)
        .map(|_| {
            let (connect, body) = (connect.clone(), body.clone());
            tokio::spawn(async move { events(&connect, "/v1/completions", body).await.0 })
        })
        .collect();
    for stream in streams {
        let at: Vec<u64> = stream.await.unwrap().iter().map(|(at, _)| *at).collect();
        assert!((30..=31).contains(&at[0]) && (42..=43).contains(&at[2]), "{at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn noise_follows_the_seed() {
    let noisy = format!("{PROFILE}\n[noise]\nwithin = \"20%\"\nbetween = \"10%\"\n");
    let mut all = Vec::new();
    for seed in [5, 5, 6] {
        let connect = start_in_process(Profile::parse(&noisy).unwrap(), seed, "tiny", None);
        tokio::time::sleep(Duration::from_secs(3)).await;
        all.push(times(&connect).await);
    }
    assert_eq!(all[0], all[1]);
    assert_ne!(all[0], all[2]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_frees_the_engine() {
    let connect = engine("").await;
    let body = json!({"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true});
    let mut response =
        send_over(connect(), "POST", "/v1/completions", body.to_string().into_bytes())
            .await
            .unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    let running = async || {
        let (_, page) = call(&connect, "GET", "/metrics", Value::Null).await;
        let page = page.as_str().unwrap().to_owned();
        let line = page.lines().find(|line| line.starts_with("vllm:num_requests_running")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(running().await, "1.0");
    drop(response);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(running().await, "0.0");
}

#[tokio::test(start_paused = true)]
async fn faults_happen_to_whom_they_should() {
    let connect = engine(
        r#"
[[fault]]
kind = "status"
status = 429
message = "too many requests"
requests = { nth = [1] }
[[fault]]
kind = "refuse"
requests = { nth = [2] }
[[fault]]
kind = "truncate"
at-token = 2
requests = { nth = [3] }
[[fault]]
kind = "stream-error"
at-token = 1
message = "CUDA error"
requests = { nth = [4] }
[[fault]]
kind = "stall"
at-token = 1
for = "5s"
requests = { nth = [5] }
"#,
    )
    .await;
    let body = json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true, "stream": true});
    let (status, answer) = call(&connect, "POST", "/v1/completions", body.clone()).await;
    assert_eq!((status.as_u16(), &answer["error"]["message"]), (429, &json!("too many requests")));
    let bytes = body.to_string().into_bytes();
    assert!(send_over(connect(), "POST", "/v1/completions", bytes).await.is_err());
    let (cut, broken) = events(&connect, "/v1/completions", body.clone()).await;
    assert_eq!((cut.len(), broken), (2, true));
    let (error, broken) = events(&connect, "/v1/completions", body.clone()).await;
    assert!(!broken && error[1].1.contains("CUDA error") && error[2].1 == "[DONE]");
    let (stalled, _) = events(&connect, "/v1/completions", body.clone()).await;
    assert!(stalled[0].0 < 100 && stalled[1].0 > 5000, "{stalled:?}");
    let (good, _) = events(&connect, "/v1/completions", body).await;
    assert_eq!(good.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_crash_closes_every_connection_and_refuses_new_ones() {
    let connect = engine("[[fault]]\nkind = \"crash\"\nat-token = 3").await;
    let body = json!({"prompt": "a", "max_tokens": 9, "ignore_eos": true, "stream": true});
    let (events, cut) = events(&connect, "/v1/completions", body).await;
    assert!(cut && events.len() <= 3, "{events:?}");
    assert!(send_over(connect(), "GET", "/health", Vec::new()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_while_loading_never_serves() {
    let fault = "[[fault]]\nkind = \"die-while-loading\"\nafter = \"1s\"";
    let profile = Profile::parse(&format!("{PROFILE}\n{fault}")).unwrap();
    let connect = start_in_process(profile, 1, "tiny", None);
    assert_eq!(call(&connect, "GET", "/health", Value::Null).await.0, 503);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(send_over(connect(), "GET", "/health", Vec::new()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_a_million_ids_is_read() {
    let profile = Profile::parse(
        r#"
max-model-len = "1024K"
kv-capacity = "1024K"
prefill = { tokens = [1], ms = [100] }
admit = { at = [1], grid = [["1K", 10]] }
step = { at = [1], grid = [["1K", 4]] }
"#,
    )
    .unwrap();
    let connect = start_in_process(profile, 1, "tiny", None);
    let body = format!(r#"{{"prompt":[30000{}],"max_tokens":1}}"#, ",30000".repeat((1 << 20) - 2));
    let response =
        send_over(connect(), "POST", "/v1/completions", body.into_bytes()).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], (1 << 20) - 1);
}

/// Over TCP in real time, with the truth log beside what a client sees.
#[test]
fn the_truth_log_agrees_with_a_client_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("truth.jsonl");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = local(port);
    let truth = Truth::create(&log).unwrap();
    let profile = Profile::parse(&PROFILE.replace("2s", "10ms")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let seen = runtime.block_on(async {
        let serving = tokio::spawn({
            let truth = truth.clone();
            async move { serve(&args, profile, Some(truth)).await }
        });
        let client = async {
            let stream = loop {
                match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            let body = json!({"prompt": "a", "max_tokens": 20, "ignore_eos": true, "stream": true});
            let sent = truth::now();
            let bytes = body.to_string().into_bytes();
            let mut response = send_over(stream, "POST", "/v1/completions", bytes).await.unwrap();
            let mut seen = vec![sent];
            while let Some(frame) = response.body_mut().frame().await {
                let data = frame.unwrap().into_data().unwrap();
                let at = truth::now();
                let text = String::from_utf8(data.to_vec()).unwrap();
                seen.extend(text.matches("\"text\":").map(|_| at));
            }
            seen
        };
        let seen = tokio::time::timeout(Duration::from_secs(20), client).await.unwrap();
        serving.abort();
        seen
    });
    truth.flush();
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), seen.len()), (21, 21));
    assert_eq!(lines[0]["event"], "read");
    let at = |line: &Value| line["at"].as_u64().unwrap();
    assert!(at(&lines[0]) >= seen[0], "read after it was sent");
    for (line, seen) in lines.iter().zip(&seen).skip(1) {
        assert!(at(line) <= *seen, "written before it was read");
    }
    // Steps of 4 ms from the first token on: no token is early.
    let first = at(&lines[1]) - at(&lines[0]);
    assert!(first >= 10_000_000, "first token after {first} ns");
    assert!(at(&lines[20]) - at(&lines[0]) >= 10_000_000 + 19 * 4_000_000);
}

fn local(port: u16) -> Args {
    Args {
        profile: None,
        host: "127.0.0.1".to_owned(),
        port,
        model: "tiny".to_owned(),
        seed: 1,
        truth: None,
        api_key: None,
    }
}

#[tokio::test]
async fn a_process_that_cannot_serve_ends_with_the_code_it_should() {
    let fault =
        "[[fault]]\nkind = \"die-while-loading\"\nexit-code = 137\nlog = [\"out of memory\"]";
    let dying = Profile::parse(&format!("{PROFILE}\n{fault}")).unwrap();
    assert_eq!(serve(&local(0), dying, None).await, 137);

    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(serve(&local(port), Profile::default(), None).await, 1);
}
