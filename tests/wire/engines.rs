//! Answers of real engines, replayed byte for byte.

use std::path::Path;
use std::time::Duration;

use tokgate::load::{FailureClass, Outcome, Trace, Usage, Warning};

use super::server::{Act, Server};
use super::{client, one, request};

async fn replay(name: &str) -> Trace {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/engines");
    let bytes = std::fs::read(directory.join(format!("{name}.http"))).unwrap();
    let server = Server::start(vec![vec![Act::ReadRequest, Act::Write(bytes), Act::AwaitClose]]);
    one(&mut client(&server), &request(Duration::from_secs(60))).await
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
