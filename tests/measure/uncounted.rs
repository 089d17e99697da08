//! A server that does not say how many tokens there are.

use super::{decode, measured, suite};
use crate::harness::Project;
use crate::toy::Toy;

fn uncounting(more: &str) -> Project {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.counts = false;
        stream.acts()
    });
    suite(&toy, "openai", "prompt-tolerance = \"off\"", &(decode("") + more))
}

#[test]
fn metrics_of_tokens_are_not_measured_and_all_others_are() {
    let ttft = "[[expect]]\nmetric = \"ttft.p50\"\nmax = \"10s\"\n";
    let ran = uncounting(ttft).run(&[]).exits(0);
    assert_eq!(ran.having("pass").len(), 1);
    let found = measured(&ran, 0);
    for metric in ["output-throughput", "output-tokens", "itl", "tpot", "per-request-throughput"] {
        assert!(found["observations"][metric].is_null(), "{metric}: {found}");
    }
    for metric in ["ttft", "chunk-gap", "active-requests", "completed-requests"] {
        assert!(found["observations"][metric].is_object(), "{metric}: {found}");
    }
    assert!(ran.read("junit.xml").contains("the server sent no usage"));
}

#[test]
fn what_is_expected_of_tokens_that_nobody_counted_is_an_error() {
    let floor = "[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n";
    let ran = uncounting(floor).run(&[]).exits(31);
    assert_eq!(ran.having("error").len(), 1);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("<error") && junit.contains("output-throughput"), "{junit}");
}
