//! Answers of engines: captures of real ones (`.http`), replayed byte for byte, and streams written
//! after what the sources of others send (`.sse`).

use std::path::Path;
use std::time::Duration;

use tokgate::load::{FailureClass, Finish, Outcome, Trace, Usage, Warning};

use super::server::{Act, LAST_CHUNK, Server, head_chunked, head_until_close, http_chunk};
use super::{client, one, request};

fn file(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/engines");
    std::fs::read(directory.join(name)).unwrap()
}

async fn replay(name: &str) -> Trace {
    let bytes = file(&format!("{name}.http"));
    let server = Server::start(vec![vec![Act::ReadRequest, Act::Write(bytes), Act::AwaitClose]]);
    one(&mut client(&server), &request(Duration::from_secs(60))).await
}

/// The trace of a written stream: the same whether it comes at once or byte by byte, stamps aside.
async fn written(name: &str) -> Trace {
    let body = file(&format!("{name}.sse"));
    let whole = [http_chunk(&body), LAST_CHUNK.to_vec()].concat();
    let trickled = [head_until_close("text/event-stream"), body].concat();
    let mut traces = Vec::new();
    for script in [
        vec![Act::ReadRequest, Act::Write(head_chunked("text/event-stream")), Act::Write(whole)],
        vec![Act::ReadRequest, Act::Trickle(trickled)],
    ] {
        let server = Server::start(vec![script]);
        traces.push(one(&mut client(&server), &request(Duration::from_secs(60))).await);
    }
    let seen = |trace: &Trace| {
        (tokens(trace), trace.outcome.clone(), trace.finish, trace.usage, trace.warnings.clone())
    };
    assert_eq!(seen(&traces[0]), seen(&traces[1]), "{name}");
    traces.swap_remove(0)
}

fn failure(trace: &Trace) -> (FailureClass, &str) {
    match &trace.outcome {
        Outcome::Failed(failure) => (failure.class, failure.message.as_str()),
        Outcome::Complete | Outcome::Cancelled => panic!("not failed: {trace:?}"),
    }
}

fn tokens(trace: &Trace) -> Vec<Option<u32>> {
    trace.events.iter().map(|event| event.tokens).collect()
}

#[tokio::test]
async fn vllm_counts_as_it_goes_for_both_apis() {
    for name in ["vllm-completions-running-usage", "vllm-chat-running-usage"] {
        let trace = replay(name).await;
        assert_eq!(trace.outcome, Outcome::Complete, "{name}");
        assert_eq!(tokens(&trace), [Some(1); 8], "{name}");
        assert_eq!(trace.usage.unwrap().completion, Some(8), "{name}");
        assert_eq!(trace.warnings, [], "{name}");
    }
}

#[tokio::test]
async fn vllm_counts_at_the_end_or_not_at_all_as_it_is_asked() {
    assert_eq!(tokens(&replay("vllm-completions-usage").await), [Some(1); 8]);
    let uncounted = replay("vllm-completions-no-usage").await;
    assert_eq!(uncounted.outcome, Outcome::Complete);
    assert_eq!(tokens(&uncounted), [None; 8]);
    assert_eq!(uncounted.warnings, [Warning::NoUsage]);
}

#[tokio::test]
async fn llama_cpp_counts_on_its_finish_event() {
    let trace = replay("llama-completions").await;
    assert_eq!(trace.outcome, Outcome::Complete);
    assert_eq!(tokens(&trace), [Some(1); 8]);
    assert_eq!(trace.usage, Some(Usage { prompt: Some(5), completion: Some(8), cached: Some(1) }));
    let chat = replay("llama-chat-usage").await;
    assert_eq!(tokens(&chat), [Some(1); 8]);
    assert_eq!(chat.usage.unwrap().prompt, Some(26));
}

#[tokio::test]
async fn llama_cpp_begins_some_streams_with_null() {
    let trace = replay("llama-nested-ids").await;
    assert_eq!(trace.outcome, Outcome::Complete);
    assert!(trace.events.len() >= 5);
}

#[tokio::test]
async fn refusals_keep_the_engines_words() {
    for (name, class, words) in [
        ("vllm-bad-token-id", FailureClass::ServerError, "Token id 99999999 is out of vocabulary"),
        (
            "vllm-unknown-model",
            FailureClass::Status,
            "HTTP 404: The model `no-such-model` does not exist",
        ),
        (
            "llama-prompt-too-long",
            FailureClass::Status,
            "HTTP 400: request (1500 tokens) exceeds the available context size (1024 tokens)",
        ),
        ("vllm-chat-nostream", FailureClass::NotAStream, "content-type application/json"),
    ] {
        let trace = replay(name).await;
        let Outcome::Failed(failure) = &trace.outcome else { panic!("{name}: {trace:?}") };
        assert_eq!(failure.class, class, "{name}");
        assert!(failure.message.contains(words), "{name}: {}", failure.message);
    }
}

#[tokio::test]
async fn vllm_tells_ids_and_probabilities_without_changing_what_is_counted() {
    for (name, expected) in [("vllm-token-ids", 3), ("vllm-logprobs", 3), ("vllm-chat-no-usage", 8)]
    {
        let trace = replay(name).await;
        assert_eq!(trace.outcome, Outcome::Complete, "{name}");
        assert_eq!(trace.finish, Some(Finish::Length), "{name}");
        assert_eq!(trace.events.len(), expected, "{name}");
        assert_eq!(trace.warnings, [Warning::NoUsage], "{name}");
    }
    let one = replay("vllm-one-token").await;
    assert_eq!((tokens(&one), one.warnings), (vec![Some(1)], vec![]));
}

#[tokio::test]
async fn llama_cpp_tells_its_counts_by_timings_where_nobody_asked_for_usage() {
    let chat = replay("llama-chat").await;
    assert_eq!((chat.outcome.clone(), tokens(&chat)), (Outcome::Complete, vec![Some(1); 8]));
    assert_eq!(chat.usage.unwrap().prompt, Some(26));
    assert_eq!(chat.finish, Some(Finish::Length));
    // Asked for none it makes one, and says so.
    let none = replay("llama-no-tokens-asked").await;
    assert_eq!((none.outcome.clone(), tokens(&none)), (Outcome::Complete, vec![Some(1)]));
    let probable = replay("llama-logprobs").await;
    assert_eq!(probable.outcome, Outcome::Complete);
    let sum: u32 = tokens(&probable).iter().map(|tokens| tokens.unwrap()).sum();
    assert_eq!(Some(u64::from(sum)), probable.usage.unwrap().completion);
    // It takes any model's name for its own, and a limit beyond its context for none.
    assert_eq!(replay("llama-unknown-model").await.outcome, Outcome::Complete);
    let stopped = replay("llama-stop-word").await;
    assert_eq!((stopped.finish, tokens(&stopped)), (Some(Finish::Complete), vec![Some(1); 2]));
}

#[tokio::test]
async fn engines_that_die_in_a_stream_leave_no_good_request() {
    let killed = replay("vllm-enginecore-killed").await;
    let (class, words) = failure(&killed);
    assert_eq!(class, FailureClass::ServerError);
    assert!(words.starts_with("EngineCore encountered an issue"), "{words}");

    // Told to end, vLLM falls silent and holds the connection; llama.cpp sends a comment and cuts it.
    let patience = request(Duration::from_millis(300));
    let play = |name: &str, last: Option<Act>| {
        let mut script = vec![Act::ReadRequest, Act::Write(file(name))];
        script.extend(last);
        Server::start(vec![script])
    };
    let silent = play("vllm-told-to-end.http", Some(Act::AwaitClose));
    let trace = one(&mut client(&silent), &patience).await;
    assert_eq!(failure(&trace).0, FailureClass::Stalled);
    assert!(trace.events.len() > 5);
    for name in ["vllm-server-killed.http", "llama-told-to-end.http"] {
        let trace = one(&mut client(&play(name, None)), &patience).await;
        let (class, words) = failure(&trace);
        assert_eq!(class, FailureClass::Truncated, "{name}");
        assert!(words.starts_with("broke off after"), "{words}");
    }
    assert_eq!(
        failure(&replay("llama-bad-token-id").await),
        (FailureClass::Status, "HTTP 400: Prompt contains invalid tokens")
    );
}

#[tokio::test]
async fn text_generation_inference_has_no_blank_and_no_null_reasons() {
    // A special token has no text of its own, the end token neither.
    let chat = written("tgi-chat").await;
    assert_eq!(chat.outcome, Outcome::Complete);
    assert_eq!((chat.finish, chat.events.len()), (Some(Finish::Complete), 3));
    assert_eq!(tokens(&chat), [Some(2), Some(2), Some(1)]);
    assert_eq!(chat.warnings, []);
    let call = written("tgi-tool-call").await;
    assert_eq!((call.outcome.clone(), call.events.len()), (Outcome::Complete, 3));
    let plain = written("tgi-completions").await;
    assert_eq!((plain.finish, tokens(&plain)), (Some(Finish::Length), vec![Some(1); 3]));
    assert_eq!(plain.warnings, [Warning::NoDone]);
    let error = written("tgi-error").await;
    let words = "Request failed during generation: Server error: CUDA out of memory";
    assert_eq!(failure(&error), (FailureClass::ServerError, words));
}

#[tokio::test]
async fn tensorrt_llm_counts_as_it_goes_and_leaves_nulls_out() {
    // One event carries a thought, the next a token without text, then several tokens an event.
    let chat = written("trtllm-chat-speculative").await;
    assert_eq!(chat.outcome, Outcome::Complete);
    assert_eq!(tokens(&chat), [Some(1), Some(4), Some(3), Some(1)]);
    assert_eq!(chat.usage, Some(Usage { prompt: Some(21), completion: Some(9), cached: Some(16) }));
    let ids = written("trtllm-ids-without-text").await;
    assert_eq!((ids.outcome.clone(), tokens(&ids)), (Outcome::Complete, vec![Some(1); 3]));
    let late = written("trtllm-timeout").await;
    assert_eq!(failure(&late), (FailureClass::Aborted, "finish reason timeout"));
}

#[tokio::test]
async fn sglang_thinks_first_and_tells_an_abort_as_an_error() {
    let chat = written("sglang-chat-reasoning").await;
    assert_eq!((chat.outcome.clone(), chat.events.len()), (Outcome::Complete, 3));
    assert_eq!(tokens(&chat), [Some(2), Some(1), Some(1)]);
    let aborted = written("sglang-aborted").await;
    let (class, words) = failure(&aborted);
    assert_eq!(class, FailureClass::ServerError);
    assert!(words.starts_with("Request aborted"), "{words}");
}
