//! Connections: kept, lost, replaced, cut, and the limits on waiting.

use std::time::Duration;

use serde_json::{Map, Value};
use tokgate::load::{
    Api, Ask, Cancel, Canceller, Dialect, FailureClass, Outcome, Prepared, Prompt, Trace,
};
use tokgate::transport::Transport;

use super::server::{Act, LAST_CHUNK, Server, head_chunked, http_chunk};
use super::{client, client_of, one, request};

const TOKEN: &[u8] = b"data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";
const FINISH: &[u8] = b"data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}],\
    \"usage\":{\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
const LONG: Duration = Duration::from_secs(60);

/// A whole answer that leaves the connection open.
fn answer() -> Vec<Act> {
    let head = head_chunked("text/event-stream");
    let end = [&http_chunk(FINISH), LAST_CHUNK].concat();
    vec![Act::ReadRequest, Act::Write(head), Act::Write(http_chunk(TOKEN)), Act::Write(end)]
}

/// A head and one token, with more to come.
fn beginning() -> Vec<Act> {
    let head = head_chunked("text/event-stream");
    vec![Act::ReadRequest, Act::Write(head), Act::Write(http_chunk(TOKEN))]
}

fn failure(trace: &Trace) -> (FailureClass, &str) {
    match &trace.outcome {
        Outcome::Failed(failure) => (failure.class, failure.message.as_str()),
        Outcome::Complete | Outcome::Cancelled => panic!("not failed: {trace:?}"),
    }
}

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let script = [answer(), answer(), answer(), vec![Act::AwaitClose]].concat();
    let server = Server::start(vec![script]);
    let mut client = client(&server);
    client.open().await.unwrap();
    for _ in 0..3 {
        let trace = one(&mut client, &request(LONG)).await;
        assert_eq!(trace.outcome, Outcome::Complete);
        // The end of the body may come in a later read than [DONE].
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_token_is_stamped_when_it_comes_however_late_it_is_read() {
    let pause = Duration::from_millis(50);
    let script = [beginning(), vec![Act::Pause(pause), Act::Write(http_chunk(FINISH))]].concat();
    let server = Server::start(vec![script]);
    let mut client = client(&server);
    client.open().await.unwrap();
    if !client.is_stamped() {
        eprintln!("SKIPPED: this system has no receive stamps");
        return;
    }
    // Far longer than a server on a busy machine takes for the second token.
    let away = Duration::from_secs(2);
    let mut seen = 0;
    let mut on_token = |_| {
        seen += 1;
        if seen == 1 {
            std::thread::sleep(away);
        }
    };
    let trace = client.stream(&request(LONG), 0, &mut on_token, &mut Cancel::never()).await;
    let gap = trace.events[1].at.since(trace.events[0].at);
    assert!(gap >= pause, "{gap:?}");
    assert!(gap < away, "{gap:?}");
}

#[tokio::test]
async fn tokens_that_are_read_together_share_the_stamp_of_the_last() {
    let pause = Duration::from_millis(50);
    let second = [Act::Pause(pause), Act::Write(http_chunk(TOKEN))];
    let third = [Act::Pause(pause), Act::Write(http_chunk(FINISH))];
    let script = [beginning(), second.to_vec(), third.to_vec()].concat();
    let server = Server::start(vec![script]);
    let mut client = client(&server);
    let mut seen = 0;
    let mut on_token = |_| {
        seen += 1;
        if seen == 1 {
            std::thread::sleep(Duration::from_secs(2));
        }
    };
    let trace = client.stream(&request(LONG), 0, &mut on_token, &mut Cancel::never()).await;
    assert_eq!(trace.outcome, Outcome::Complete);
    let gaps: Vec<Duration> =
        trace.events.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect();
    assert!(gaps[0] >= 2 * pause, "{gaps:?}");
    assert_eq!(gaps[1], Duration::ZERO);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_is_replaced() {
    let server = Server::start(vec![answer(), answer()]);
    let mut client = client(&server);
    assert_eq!(one(&mut client, &request(LONG)).await.outcome, Outcome::Complete);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(one(&mut client, &request(LONG)).await.outcome, Outcome::Complete);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_request_lost_with_an_old_connection_is_sent_again_and_counts_from_then() {
    // The server closes just when the second request arrives: no client can see that before.
    let wait = Duration::from_millis(300);
    let first = [answer(), vec![Act::ReadRequest, Act::Pause(wait)]].concat();
    let server = Server::start(vec![first, answer()]);
    let mut client = client(&server);
    assert_eq!(one(&mut client, &request(LONG)).await.outcome, Outcome::Complete);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = tokio::time::Instant::now();
    let trace = one(&mut client, &request(LONG)).await;
    assert_eq!(trace.outcome, Outcome::Complete);
    assert_eq!(server.connections(), 2);
    assert!(begun.elapsed() >= wait, "the request was not lost");
    let in_trace = trace.ended.since(trace.sent);
    assert!(in_trace + wait <= begun.elapsed(), "the lost time is in the trace: {in_trace:?}");
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_a_failure_at_once() {
    let server = Server::start(vec![vec![Act::ReadRequest]]);
    let trace = one(&mut client(&server), &request(LONG)).await;
    assert_eq!(failure(&trace).0, FailureClass::Connection);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn nobody_listening_is_a_failed_connection() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let mut client = client_of(url, Transport::Tcp, tokgate::clock::Clock::start());
    let trace = one(&mut client, &request(LONG)).await;
    let (class, words) = failure(&trace);
    assert_eq!(class, FailureClass::Connection);
    assert!(words.contains(&format!("127.0.0.1:{port}")), "{words}");
}

#[tokio::test]
async fn what_is_no_http_is_malformed() {
    let server = Server::start(vec![vec![Act::ReadRequest, Act::Write(b"hello\r\n\r\n".to_vec())]]);
    let trace = one(&mut client(&server), &request(LONG)).await;
    assert_eq!(failure(&trace).0, FailureClass::Malformed);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_truncated() {
    let server = Server::start(vec![beginning()]);
    let trace = one(&mut client(&server), &request(LONG)).await;
    let (class, words) = failure(&trace);
    assert_eq!(class, FailureClass::Truncated);
    assert!(words.starts_with("broke off after 1 event with tokens"), "{words}");
}

#[tokio::test]
async fn a_cancelled_stream_keeps_its_tokens_and_the_server_sees_it_go() {
    let server = Server::start(vec![[beginning(), vec![Act::AwaitClose]].concat()]);
    let mut client = client(&server);
    let canceller = Canceller::new();
    let mut told = Vec::new();
    let trace = client
        .stream(
            &request(LONG),
            7,
            &mut |event| {
                told.push(event);
                canceller.cancel();
            },
            &mut canceller.handle(),
        )
        .await;
    assert_eq!(trace.outcome, Outcome::Cancelled);
    assert_eq!(trace.stream, 7);
    assert_eq!(trace.events, told);
    assert_eq!(told.len(), 1);
    for _ in 0..200 {
        if server.finished() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server still holds the connection");
}

#[tokio::test]
async fn pings_are_no_sign_of_life() {
    let ping = Act::Repeat(http_chunk(b": ping\n\n"), Duration::from_millis(30));
    let server = Server::start(vec![[beginning(), vec![ping]].concat()]);
    let trace = one(&mut client(&server), &request(Duration::from_millis(400))).await;
    let (class, words) = failure(&trace);
    assert_eq!(class, FailureClass::Stalled);
    assert_eq!(words, "nothing generated for 0.4 s, after 1 event with tokens");
    assert_eq!(trace.events.len(), 1);
}

#[tokio::test]
async fn tokens_keep_a_stream_alive_up_to_its_time_out() {
    let token = Act::Repeat(http_chunk(TOKEN), Duration::from_millis(50));
    let server = Server::start(vec![[beginning(), vec![token]].concat()]);
    let timeout = Some(Duration::from_millis(1500));
    let request = Prepared { timeout, ..request(Duration::from_millis(1000)) };
    let trace = one(&mut client(&server), &request).await;
    let (class, words) = failure(&trace);
    assert_eq!(class, FailureClass::Stalled);
    assert!(words.starts_with("not finished within 1.5 s"), "{words}");
}

#[tokio::test]
async fn a_server_that_never_answers_has_stalled() {
    let server = Server::start(vec![vec![Act::ReadRequest, Act::AwaitClose]]);
    let trace = one(&mut client(&server), &request(Duration::from_millis(200))).await;
    assert_eq!(failure(&trace).0, FailureClass::Stalled);
    assert_eq!(trace.events, []);
}

#[tokio::test]
async fn a_prompt_of_a_million_tokens_arrives_whole() {
    let server = Server::start(vec![answer()]);
    let ids: Vec<u32> = (0..1_048_576).map(|i| 100_000 + i % 7919).collect();
    let prompt = Prompt::Ids(ids.clone().into());
    let request = Prepared::new(&Ask {
        api: Api::Completions,
        dialect: Dialect::Vllm,
        model: "toy",
        prompt: &prompt,
        max_tokens: 1,
        cache_prompt: true,
        body: &Map::new(),
        idle_timeout: LONG,
        timeout: None,
    })
    .unwrap();
    let trace = client(&server).stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await;
    assert_eq!(trace.outcome, Outcome::Complete);
    let bodies = server.requests();
    let body: Value = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(body["prompt"].as_array().unwrap().len(), ids.len());
    assert_eq!(body["prompt"][7918], 107_918);
}
