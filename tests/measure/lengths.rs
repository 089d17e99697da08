//! Prompts and outputs of another length than was asked for.

use std::time::Duration;

use super::{checks, decode, faulty, measured, samples, sound, suite, told_everywhere};
use crate::harness::{Project, Ran};
use crate::toy::{Asked, Toy};

fn prefill(contexts: &str) -> String {
    format!("[[test]]\nkind = \"prefill\"\nmatrix.context = {contexts}\n")
}

/// An engine that counts this much for a prompt.
fn counting(count: impl Fn(&Asked) -> u64 + Send + Sync + 'static) -> Toy {
    Toy::start(move |asked| {
        let mut stream = asked.stream();
        stream.prompt = count(asked);
        stream.acts()
    })
}

/// Asked for and counted, of a cell.
fn prompt_tokens(ran: &Ran, cell: usize) -> (u64, u64) {
    let both = measured(ran, cell)["prompt-tokens"].clone();
    (both[0].as_u64().unwrap(), both[1].as_u64().unwrap())
}

#[test]
fn a_prompt_of_another_length_is_an_error_with_both_numbers() {
    let fewer = || counting(|asked| asked.prompt().len() as u64 * 93 / 100);
    for test in [prefill("[\"1K\"]"), decode("")] {
        let ran = suite(&fewer(), "vllm", "", &test).run(&[]).exits(31);
        let words = faulty(&measured(&ran, 0), "prompt-length", "invalid");
        assert_eq!(words, "prompt of 1024 tokens, 952 by the server, tolerance 5.1 tokens");
        told_everywhere(&ran, &words);
    }
    // Where the suite does not ask, the figures still use the real count.
    let off = "prompt-tolerance = \"off\"";
    let ran = suite(&fewer(), "vllm", off, &prefill("[\"1K\"]")).run(&[]).exits(0);
    let found = measured(&ran, 0);
    for (rate, ttft) in samples(&found, "prefill-throughput").iter().zip(samples(&found, "ttft")) {
        let tokens = rate * ttft / 1e3;
        assert!((tokens - 952.0).abs() < 1e-6, "{tokens}");
    }
}

#[test]
fn a_chat_template_is_part_of_the_length() {
    // What the template puts behind the text is one token with a full stop and two without.
    let toy = || {
        counting(|asked| {
            let text = asked.body["messages"][0]["content"].as_str().unwrap_or(".");
            asked.prompt().len() as u64 + 29 + u64::from(!text.ends_with('.'))
        })
    };
    let test = prefill("[64, 300, 2048]") + &decode("matrix.context = [64, 300]");
    let ran = suite(&toy(), "vllm", "api = \"chat\"", &test).run(&[]).exits(0);
    for (cell, length) in [64, 300, 2048, 64, 300].into_iter().enumerate() {
        assert_eq!(prompt_tokens(&ran, cell), (length, length));
        sound(&measured(&ran, cell));
    }
    // A server without a tokenizer that can be asked has its texts fitted in the same way.
    let ran = suite(&toy(), "openai", "", &prefill("[64]")).run(&[]).exits(0);
    assert_eq!(prompt_tokens(&ran, 0), (64, 64));
}

#[test]
fn lengths_of_one_and_two_tokens_are_no_empty_prompts() {
    let toy = counting(|asked| asked.prompt().len() as u64);
    let ran = suite(&toy, "vllm", "", &prefill("[1, 2]")).run(&[]).exits(0);
    assert_eq!((prompt_tokens(&ran, 0), prompt_tokens(&ran, 1)), ((1, 1), (2, 2)));
    let ran = suite(&toy, "vllm", "api = \"chat\"", &prefill("[1, 2]")).run(&[]).exits(0);
    assert_eq!((prompt_tokens(&ran, 0), prompt_tokens(&ran, 1)), ((1, 1), (2, 2)));
    assert!(toy.asked().iter().all(|asked| !asked.prompt().is_empty()));

    // With a template of 30 tokens there is no prompt as short.
    let toy = counting(|asked| asked.prompt().len() as u64 + 30);
    let ran = suite(&toy, "vllm", "api = \"chat\"", &prefill("[1]")).run(&[]).exits(31);
    let words = faulty(&measured(&ran, 0), "prompt-length", "invalid");
    assert_eq!(words, "prompt of 1 tokens, 31 by the server, tolerance 1 tokens");
}

/// Every third request of more than a token ends after 4 tokens, and says this of it.
fn stopping(finish: &'static str) -> Toy {
    Toy::start(move |asked| {
        let mut stream = asked.stream();
        stream.step = Duration::from_millis(10);
        if asked.n.is_multiple_of(3) && stream.tokens > 4 {
            (stream.tokens, stream.finish) = (4, finish);
        }
        stream.acts()
    })
}

fn decode_of_32(toy: &Toy, request: &str) -> Project {
    let floor = "[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n";
    suite(
        toy,
        "vllm",
        request,
        &(decode("max-output = 32\nduration = \"1s\"\nmatrix.concurrency = [2]") + floor),
    )
}

#[test]
fn outputs_that_are_shorter_than_asked_are_no_speed() {
    for finish in ["stop", "length"] {
        let ran = decode_of_32(&stopping(finish), "").run(&[]).exits(31);
        let words = faulty(&measured(&ran, 0), "output-length", "invalid");
        assert!(words.starts_with("32 output tokens asked for, "), "{words}");
        assert!(words.contains(" on average, 4 at least (finish reasons: "), "{words}");
        assert_eq!(words.contains(" stop)"), finish == "stop", "{words}");
        let write = "; write request.body = { ignore_eos = true } where the server takes it, or \
                     request.output-tolerance = \"off\"";
        assert!(words.ends_with(&format!("tolerance 1 tokens{write}")), "{words}");
        told_everywhere(&ran, words.trim_end_matches(write));
    }
    let ran = decode_of_32(&stopping("stop"), "output-tolerance = \"off\"").run(&[]).exits(0);
    let said = &checks(&measured(&ran, 0), "output-length")[0].1;
    assert!(said.ends_with("tolerance off"), "{said}");
}

#[test]
fn a_server_that_does_not_stop_where_it_is_told_is_no_measurement_either() {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.tokens = 40;
        stream.acts()
    });
    let ran = suite(&toy, "vllm", "", &prefill("[64]")).run(&[]).exits(31);
    let words = faulty(&measured(&ran, 0), "output-length", "invalid");
    assert!(words.starts_with("1 output tokens asked for, 40 on average"), "{words}");
}

#[test]
fn where_a_length_can_only_be_wished_for_another_one_is_told_and_no_error() {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.tokens = stream.tokens.min(4);
        stream.finish = "stop";
        stream.acts()
    });
    let serve = "[[test]]\nkind = \"serve\"\ninput = 64\noutput = 16\nrequests = 8\narrival = \"constant\"\nmatrix.request_rate = [20]\n";
    // Engines of the other kinds are told to go on behind an end token.
    let ran = suite(&toy, "vllm", "", serve).run(&[]).exits(31);
    faulty(&measured(&ran, 0), "output-length", "invalid");
    let ran = suite(&toy, "openai", "", serve).run(&[]).exits(0);
    let words = faulty(&measured(&ran, 0), "output-length", "notice");
    assert!(words.starts_with("16 output tokens asked for, 4 on average"), "{words}");
    told_everywhere(&ran, words.split("; write").next().unwrap());
    let ran = suite(&toy, "openai", "output-tolerance = \"off\"", serve).run(&[]).exits(0);
    assert_eq!(checks(&measured(&ran, 0), "output-length")[0].0, serde_json::Value::Null);
}
