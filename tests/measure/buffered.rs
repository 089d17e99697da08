//! Events that come together, and events that carry several tokens.

use std::time::Duration;

use super::{decode, faulty, measured, samples, sound, suite, told_everywhere};
use crate::toy::{Act, Toy, chunk, end, head};

#[test]
fn a_proxy_that_collects_events_is_told_and_its_gaps_are_no_speed() {
    // Eight events a write, thirty milliseconds apart.
    let toy = Toy::start(|asked| {
        let mut acts = vec![head("text/event-stream")];
        for part in asked.stream().events().chunks(8) {
            acts.extend([Act::Pause(Duration::from_millis(30)), chunk(&part.concat())]);
        }
        acts.extend([chunk("data: [DONE]\n\n"), end()]);
        acts
    });
    let ran = suite(&toy, "vllm", "", &decode("max-output = 128")).run(&[]).exits(0);
    let found = measured(&ran, 0);
    let words = faulty(&found, "buffered", "notice");
    assert!(words.starts_with("buffered: 100 % of the events"), "{words}");
    assert!(words.contains("up to 8 at once"), "{words}");
    told_everywhere(&ran, &words);
    for metric in ["itl", "chunk-gap"] {
        // A share of the gap between two reads, or all of it.
        let least = samples(&found, metric).into_iter().fold(f64::INFINITY, f64::min);
        assert!(least > 1.0, "{metric}: {least} ms");
    }
}

#[test]
fn a_stream_that_comes_at_once_has_no_gaps_to_be_judged() {
    let toy = Toy::start(|asked| {
        let whole = asked.stream().events().concat() + "data: [DONE]\n\n";
        vec![head("text/event-stream"), Act::Pause(Duration::from_millis(20)), chunk(&whole), end()]
    });
    let expect = "[[expect]]\nmetric = \"chunk-gap.p50\"\nmax = \"50ms\"\n";
    let ran = suite(&toy, "vllm", "", &(decode("max-output = 8") + expect)).run(&[]).exits(31);
    assert_eq!(ran.having("error").len(), 1);
    faulty(&measured(&ran, 0), "buffered", "notice");
}

#[test]
fn several_tokens_in_an_event_are_no_buffer_and_each_has_its_share_of_the_gap() {
    // As with speculative decoding: every fourth count is told, with its text, in one event.
    let toy = Toy::start(|asked| {
        let events = asked.stream().events();
        let mut acts = vec![head("text/event-stream")];
        for event in events.iter().skip(3).step_by(4) {
            acts.extend([Act::Pause(Duration::from_millis(20)), chunk(event)]);
        }
        if events.len() < 4 {
            acts.push(chunk(&events[events.len() - 1]));
        }
        acts.extend([chunk("data: [DONE]\n\n"), end()]);
        acts
    });
    let ran = suite(&toy, "vllm", "", &decode("max-output = 128")).run(&[]).exits(0);
    let found = measured(&ran, 0);
    sound(&found);
    assert!(super::checks(&found, "buffered")[0].0.is_null(), "{found}");
    let (itl, gaps) = (samples(&found, "itl"), samples(&found, "chunk-gap"));
    assert_eq!(itl.len(), gaps.len() * 4);
    let sum = |samples: &[f64]| samples.iter().sum::<f64>();
    assert!((sum(&itl) / sum(&gaps) - 1.0).abs() < 1e-6);
}
