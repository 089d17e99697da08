//! Figures of small windows, worked out by hand.

use super::*;
use crate::load::{Failure, FailureClass};

fn at(ms: f64) -> Stamp {
    Stamp((ms * 1e6).round() as u64)
}

/// A request that was sent at `sent` ms and got `tokens` at each of `events` ms.
fn request(stream: u32, sent: f64, events: &[f64], tokens: u32) -> Trace {
    Trace {
        stream,
        sent: at(sent),
        events: events.iter().map(|ms| TokenEvent { at: at(*ms), tokens: Some(tokens) }).collect(),
        ended: at(*events.last().unwrap()),
        outcome: Outcome::Cancelled,
        finish: None,
        usage: None,
        warnings: Vec::new(),
    }
}

fn every(step: f64, count: u32) -> Vec<f64> {
    (0..=count).map(|i| f64::from(i) * step).collect()
}

fn over(traces: &[Trace], from: f64, to: f64) -> BTreeMap<Base, Observations> {
    decode(&DecodeInput { traces, from: at(from), to: at(to), batches: 10 })
}

fn exact(found: &BTreeMap<Base, Observations>, base: Base) -> f64 {
    let Observations::Exact(value) = &found[&base] else { panic!("{base:?} is a count") };
    *value
}

fn batches(found: &BTreeMap<Base, Observations>, base: Base) -> (f64, Vec<f64>, f64) {
    let Observations::Batches { rate, means, floor } = &found[&base] else {
        panic!("{base:?} is a rate")
    };
    (*rate, means.clone(), *floor)
}

fn sorted(found: &BTreeMap<Base, Observations>, base: Base) -> Vec<f64> {
    let Observations::Samples(samples) = &found[&base] else { panic!("{base:?} has samples") };
    let mut samples = samples.clone();
    samples.sort_by(f64::total_cmp);
    samples
}

fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{got} is not {want}");
}

#[test]
fn a_slow_stream_counts_no_token_too_many_or_too_few() {
    // 4 tok/s for 5 s: 20 tokens. One more or less would be 5 %.
    let found = over(&[request(0, -0.0, &every(250.0, 20), 1)], 0.0, 5000.0);
    assert_eq!(exact(&found, Base::OutputTokens), 20.0);
    let (rate, means, floor) = batches(&found, Base::OutputThroughput);
    near(rate, 4.0);
    near(floor, 2.0);
    // The window opens and closes at events, so every batch is alike.
    means.iter().for_each(|mean| near(*mean, 4.0));
}

#[test]
fn a_token_on_a_batch_boundary_is_shared_pro_rata() {
    // 7 steps of 100 ms in 10 batches of 70 ms.
    let found = over(&[request(0, 0.0, &every(100.0, 7), 1)], 0.0, 700.0);
    let (rate, means, _) = batches(&found, Base::OutputThroughput);
    near(rate, 10.0);
    means.iter().for_each(|mean| near(*mean, 10.0));
}

#[test]
fn a_slow_half_shows_in_its_batches() {
    let mut events = every(10.0, 50);
    events.extend((1..=25).map(|i| 500.0 + f64::from(i) * 20.0));
    let found = over(&[request(0, 0.0, &events, 1)], 0.0, 1000.0);
    let (rate, means, _) = batches(&found, Base::OutputThroughput);
    near(rate, 75.0);
    assert_eq!(means.len(), 10);
    means[..5].iter().for_each(|mean| near(*mean, 100.0));
    means[5..].iter().for_each(|mean| near(*mean, 50.0));
    let (rate, means, _) = batches(&found, Base::PerRequestThroughput);
    near(rate, 75.0);
    near(means[9], 50.0);
}

#[test]
fn streams_in_lockstep_add_up() {
    let traces: Vec<_> = (0..4).map(|s| request(s, 0.0, &every(10.0, 100), 1)).collect();
    let found = over(&traces, 0.0, 1000.0);
    near(batches(&found, Base::OutputThroughput).0, 400.0);
    near(batches(&found, Base::PerRequestThroughput).0, 100.0);
    near(exact(&found, Base::ActiveRequests), 4.0);
    near(exact(&found, Base::MeasuredTime), 1.0);
    assert_eq!(sorted(&found, Base::Tpot), [10.0; 4]);
    assert_eq!(exact(&found, Base::CompletedRequests), 0.0);
}

#[test]
fn tokens_outside_the_window_do_not_count() {
    let found = over(&[request(0, 0.0, &every(10.0, 300), 1)], 1000.0, 2000.0);
    assert_eq!(exact(&found, Base::OutputTokens), 100.0);
    assert_eq!(found[&Base::Itl].count(), 100);
}

#[test]
fn the_gap_between_two_requests_costs_throughput_and_no_rate_of_a_request() {
    // 0 to 500 ms at 10 ms, 100 ms for the next first token, then on to 1000 ms.
    let mut first = request(0, -10.0, &every(10.0, 50), 1);
    first.outcome = Outcome::Complete;
    let second: Vec<f64> = (0..=40).map(|i| 600.0 + f64::from(i) * 10.0).collect();
    let found = over(&[first, request(0, 500.0, &second, 1)], 0.0, 1000.0);
    near(batches(&found, Base::OutputThroughput).0, 91.0);
    let (rate, means, _) = batches(&found, Base::PerRequestThroughput);
    near(rate, 100.0);
    means.iter().for_each(|mean| near(*mean, 100.0));
    near(exact(&found, Base::ActiveRequests), 0.9);
    assert_eq!(exact(&found, Base::CompletedRequests), 1.0);
    assert_eq!(sorted(&found, Base::ChunkGap).len(), 90);
}

#[test]
fn chunks_are_not_tokens() {
    // Events of 4 tokens each 40 ms: the tokens are 10 ms apart, the chunks 40.
    let found = over(&[request(0, 0.0, &every(40.0, 25), 4)], 0.0, 1000.0);
    near(batches(&found, Base::OutputThroughput).0, 100.0);
    assert_eq!(sorted(&found, Base::Itl), [10.0; 100]);
    assert_eq!(sorted(&found, Base::ChunkGap), [40.0; 25]);
    assert_eq!(sorted(&found, Base::Tpot), [10.0]);
}

#[test]
fn events_of_one_read_are_one_arrival_of_tokens() {
    let found = over(&[request(0, 0.0, &[0.0, 20.0, 20.0, 40.0], 1)], 0.0, 40.0);
    assert_eq!(sorted(&found, Base::Itl), [10.0, 10.0, 20.0]);
    assert_eq!(sorted(&found, Base::ChunkGap), [20.0, 20.0]);
}

#[test]
fn a_failed_request_enters_no_figure() {
    let good = request(0, 0.0, &every(10.0, 100), 1);
    let mut bad = request(1, 0.0, &every(10.0, 100), 1);
    bad.outcome = Outcome::Failed(Failure {
        class: FailureClass::ServerError,
        message: "engine says no".into(),
    });
    assert_eq!(ttft(&bad), None);
    assert_eq!(
        over(&[good.clone(), bad.clone()], 0.0, 1000.0),
        over(std::slice::from_ref(&good), 0.0, 1000.0)
    );
    near(in_flight(&[good, bad], at(0.0), at(1000.0)), 2.0);
}

#[test]
fn a_rest_after_a_failure_is_not_the_clients_failing() {
    let mut failed = request(0, 0.0, &[100.0], 1);
    failed.outcome =
        Outcome::Failed(Failure { class: FailureClass::RateLimited, message: "busy".into() });
    let next = request(0, 350.0, &every(10.0, 100), 1);
    near(in_flight(&[failed.clone(), next], at(0.0), at(1000.0)), 1.0);
    near(in_flight(&[failed], at(0.0), at(1000.0)), 1.0);
    // A gap behind a request that went well is.
    let mut good = request(0, 0.0, &[100.0], 1);
    good.outcome = Outcome::Complete;
    near(in_flight(&[good, request(0, 350.0, &[1000.0], 1)], at(0.0), at(1000.0)), 0.75);
}

#[test]
fn a_gap_that_is_open_at_the_end_is_seen() {
    let longest = |trace, away: &Absences| {
        let (longest, present) = longest_gaps(&[trace], at(0.0), at(1000.0), away);
        (longest.as_millis(), present.as_millis())
    };
    let there = Absences::default();
    let silent = |ended| Trace { ended: at(ended), ..request(0, 0.0, &[10.0, 20.0], 1) };
    assert_eq!(longest(silent(3000.0), &there), (2980, 2980));
    let late = request(0, 0.0, &[10.0, 20.0, 1500.0], 1);
    assert_eq!(longest(late, &there), (1480, 1480));
    let complete = Trace { outcome: Outcome::Complete, ..silent(20.0) };
    assert_eq!(longest(complete, &there), (10, 10));
    // What begins behind the window is not of it.
    assert_eq!(longest(request(0, 0.0, &[1010.0, 4000.0], 1), &there).0, 0);
    // The longest gap is ours, and of another one the engine has 400 ms.
    let mut away = Absences::default();
    away.add(at(40.0), at(1990.0));
    let both = request(0, 0.0, &[10.0, 410.0, 2000.0], 1);
    assert_eq!(longest(both, &away), (1590, 30));
}

#[test]
fn unknown_counts_leave_token_metrics_out() {
    let mut trace = request(0, 0.0, &every(10.0, 100), 1);
    trace.events[50].tokens = None;
    let found = over(&[trace], 0.0, 1000.0);
    for base in [Base::OutputThroughput, Base::Itl, Base::Tpot, Base::OutputTokens] {
        assert!(!found.contains_key(&base), "{base:?}");
    }
    assert!(found.contains_key(&Base::ChunkGap));
}

#[test]
fn a_window_without_tokens_has_no_throughput() {
    let found = over(&[request(0, 0.0, &[0.0, 5.0], 1)], 100.0, 200.0);
    assert!(!found.contains_key(&Base::OutputThroughput));
    assert!(over(&[], 100.0, 100.0).is_empty());
}

#[test]
fn a_long_window_keeps_counts_instead_of_samples() {
    let traces: Vec<_> = (0..8).map(|s| request(s, 0.0, &every(1.0, 1000), 1)).collect();
    let found = over(&traces, 0.0, 1000.0);
    let Observations::Histogram(buckets) = &found[&Base::Itl] else {
        panic!("8000 samples are more than are kept")
    };
    assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 8000);
    assert!((buckets[0].0 - 1.0).abs() < 0.0005);
}

#[test]
fn prefill_counts_only_what_was_computed() {
    let sample = |ttft| PrefillSample { prompt: 8192, cached: 192, ttft };
    let found = prefill(&[sample(500.0), sample(400.0)]);
    assert_eq!(found[&Base::PrefillThroughput], Observations::Samples(vec![16e3, 20e3]));
    assert_eq!(found[&Base::Ttft], Observations::Samples(vec![500.0, 400.0]));
    assert_eq!(exact(&found, Base::CompletedRequests), 2.0);
    assert!(!prefill(&[]).contains_key(&Base::Ttft));
}

#[test]
fn ttft_counts_from_the_sending() {
    assert_eq!(ttft(&request(0, 30.0, &[80.0, 90.0], 1)), Some(50.0));
    assert_eq!(waves(&[vec![], vec![50.0]]), Some(Observations::Waves(vec![vec![50.0]])));
    assert_eq!(waves(&[vec![]]), None);
}
