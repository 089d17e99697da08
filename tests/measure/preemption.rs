//! The engine's own gauges: what was preempted, and names that come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{checks, decode, faulty, measured, sound, suite, told_everywhere};
use crate::toy::Toy;

/// An engine whose page is made of how often it was read.
fn paging(page: impl Fn(u64) -> Option<String> + Send + Sync + 'static) -> Toy {
    let read = AtomicU64::new(0);
    Toy::with(
        |asked| {
            let mut stream = asked.stream();
            stream.step = Duration::from_millis(3);
            stream.acts()
        },
        move || page(read.fetch_add(1, Ordering::SeqCst)),
        None,
    )
}

#[test]
fn preemptions_are_counted_under_each_name_and_degrade_the_cell() {
    for name in ["vllm:num_preemptions_total", "vllm:num_preemptions"] {
        // It stood at 7 before anything was measured, and rises by 24 then.
        let toy =
            paging(move |read| Some(format!("{name} {}.0\n", 7 + 12 * read.clamp(2, 4) - 24)));
        let ran = suite(&toy, "vllm", "", &decode("")).run(&[]).exits(10);
        let words = faulty(&measured(&ran, 0), "preemption", "degraded");
        assert!(words.ends_with(" preemptions in the window"), "{words}");
        assert!(!words.starts_with('0'), "{words}");
        told_everywhere(&ran, &words);
    }
}

#[test]
fn a_counter_that_does_not_move_is_no_preemption() {
    let toy = paging(|_| Some("vllm:num_preemptions_total 24.0\n".to_owned()));
    let ran = suite(&toy, "vllm", "", &decode("")).run(&[]).exits(0);
    let said = checks(&measured(&ran, 0), "preemption");
    assert_eq!(said, [(serde_json::Value::Null, "0 preemptions in the window".to_owned())]);
}

#[test]
fn a_counter_that_is_not_there_is_unknown_and_never_zero() {
    for page in [None, Some("vllm:kv_cache_usage_perc 0.5\n".to_owned())] {
        let toy = paging(move |_| page.clone());
        let ran = suite(&toy, "vllm", "", &decode("")).run(&[]).exits(0);
        let found = measured(&ran, 0);
        sound(&found);
        let said = checks(&found, "preemption");
        assert_eq!(said[0].1, "the engine has no preemption counter, or began it anew");
        assert_eq!(checks(&found, "queued")[0].1, "the engine has no gauge of waiting requests");
    }
}

#[test]
fn an_engine_that_serves_somebody_else_is_not_measured() {
    // Somebody's request runs before the cell begins, and goes on.
    let toy =
        paging(|_| Some("vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\n".into()));
    let test = "[[test]]\nkind = \"prefill\"\nmatrix.context = [64]\n";
    let ran = suite(&toy, "vllm", "", test).run(&[]).exits(31);
    let words = faulty(&measured(&ran, 0), "idle", "invalid");
    assert_eq!(
        words,
        "1 requests ran and 0 waited on the engine before the cell, and none is ours"
    );
}
