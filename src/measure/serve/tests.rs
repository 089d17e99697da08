//! Figures of loads, by hand.

use super::*;
use crate::load::{Failure, FailureClass, TokenEvent};

fn at(ms: f64) -> Stamp {
    Stamp((ms * 1e6).round() as u64)
}

/// A request due at `due`, sent at `sent`, with a token at each of `events`, all in ms.
fn request(due: f64, sent: f64, events: &[f64]) -> (Trace, Note) {
    let token = |ms: &f64| TokenEvent { at: at(*ms), tokens: Some(1) };
    let mut trace = crate::load::answer::unanswered(
        0,
        at(sent),
        at(*events.last().unwrap()),
        Outcome::Complete,
    );
    trace.events = events.iter().map(token).collect();
    (trace, Note { due: at(due), measured: true })
}

fn broken(mut request: (Trace, Note)) -> (Trace, Note) {
    request.0.outcome = Outcome::Failed(Failure::new(FailureClass::RateLimited, "busy"));
    request
}

/// Back to back requests of one stream: 50 ms to the first token, then nine more 10 ms apart.
fn back_to_back(count: u32) -> Vec<(Trace, Note)> {
    (0..count)
        .map(|i| {
            let begin = f64::from(i) * 140.0;
            let events: Vec<f64> = (0..10).map(|k| begin + 50.0 + f64::from(k) * 10.0).collect();
            request(begin, begin, &events)
        })
        .collect()
}

fn see(
    requests: &[(Trace, Note)],
    to: f64,
    steady: bool,
    goals: Goals,
    open: bool,
) -> BTreeMap<Base, Observations> {
    let (traces, notes): (Vec<Trace>, Vec<Note>) = requests.iter().cloned().unzip();
    let span = Span { from: at(0.0), to: at(to), steady };
    together(&[Load { traces: &traces, notes: &notes, span, goals, open }])
}

fn plain(requests: &[(Trace, Note)], to: f64) -> BTreeMap<Base, Observations> {
    see(requests, to, true, Goals::default(), false)
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

fn samples_of(found: &BTreeMap<Base, Observations>, base: Base) -> Vec<f64> {
    let Observations::Samples(samples) = &found[&base] else { panic!("{base:?} has samples") };
    samples.clone()
}

fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{got} is not {want}");
}

#[test]
fn requests_back_to_back_have_the_rates_of_their_length() {
    let found = plain(&back_to_back(20), 2800.0);
    let (rate, means, floor) = batches(&found, Base::RequestThroughput);
    near(rate, 1.0 / 0.14);
    means.iter().for_each(|mean| near(*mean, 1.0 / 0.14));
    near(floor, 0.1 / 0.28);
    near(batches(&found, Base::OutputThroughput).0, 10.0 / 0.14);
    near(exact(&found, Base::ActiveRequests), 1.0);
    assert_eq!(exact(&found, Base::CompletedRequests), 20.0);
    assert_eq!(exact(&found, Base::OutputTokens), 200.0);
    assert_eq!(exact(&found, Base::ErrorRate), 0.0);
    assert_eq!(samples_of(&found, Base::Ttft), [50.0; 20]);
    assert_eq!(samples_of(&found, Base::Tpot), [10.0; 20]);
    assert_eq!(samples_of(&found, Base::E2eLatency), [140.0; 20]);
    assert_eq!(samples_of(&found, Base::Itl).len(), 180);
    for base in [Base::Goodput, Base::TtftDue, Base::E2eLatencyDue] {
        assert!(!found.contains_key(&base), "{base:?}");
    }
}

#[test]
fn what_was_in_flight_at_the_end_counts_as_latency_and_in_part_as_rate() {
    // The window ends with the third of the tenth request's ten tokens.
    let found = plain(&back_to_back(10), 1330.0);
    assert_eq!(exact(&found, Base::CompletedRequests), 9.0);
    assert_eq!(samples_of(&found, Base::E2eLatency).len(), 10);
    near(batches(&found, Base::RequestThroughput).0, 9.3 / 1.33);
    near(exact(&found, Base::ActiveRequests), 1.0);
}

#[test]
fn warm_ups_have_no_latencies() {
    let mut requests = back_to_back(10);
    requests[..3].iter_mut().for_each(|(_, note)| note.measured = false);
    let found = plain(&requests, 1400.0);
    assert_eq!(samples_of(&found, Base::Ttft).len(), 7);
    assert_eq!(exact(&found, Base::CompletedRequests), 10.0);
}

#[test]
fn errors_enter_the_share_of_errors_alone() {
    let mut requests = back_to_back(10);
    requests[4] = broken(requests[4].clone());
    requests[7] = broken(requests[7].clone());
    let found =
        see(&requests, 1400.0, true, Goals { e2e: Some(1000.0), ..Goals::default() }, false);
    assert_eq!(exact(&found, Base::ErrorRate), 20.0);
    near(batches(&found, Base::RequestThroughput).0, 8.0 / 1.4);
    near(batches(&found, Base::Goodput).0, 8.0 / 1.4);
    assert_eq!(samples_of(&found, Base::E2eLatency).len(), 8);
    assert_eq!(exact(&found, Base::OutputTokens), 80.0);
}

#[test]
fn due_times_show_what_the_queue_hid() {
    // Both are sent the moment they can be, the second one 100 ms after it was due.
    let requests = [request(0.0, 0.0, &[50.0, 60.0, 70.0]), request(10.0, 110.0, &[160.0, 170.0])];
    let found = see(&requests, 200.0, true, Goals { ttft: Some(60.0), ..Goals::default() }, true);
    assert_eq!(samples_of(&found, Base::Ttft), [50.0, 50.0]);
    assert_eq!(samples_of(&found, Base::TtftDue), [50.0, 150.0]);
    assert_eq!(samples_of(&found, Base::E2eLatencyDue), [70.0, 160.0]);
    // Goodput asks from the due time on.
    near(batches(&found, Base::Goodput).0, 1.0 / 0.2);
}

#[test]
fn goodput_asks_every_goal_of_a_request() {
    let fast = request(0.0, 0.0, &[40.0, 50.0]);
    let late = request(0.0, 0.0, &[60.0, 70.0]);
    let slow = request(0.0, 0.0, &[40.0, 90.0]);
    let one_token = request(0.0, 0.0, &[40.0]);
    let requests = [fast, late, slow, one_token];
    let count = |goals| {
        let found = see(&requests, 100.0, false, goals, false);
        let Observations::Point(rate) = found[&Base::Goodput] else { panic!("one observation") };
        rate * 0.1
    };
    near(count(Goals { ttft: Some(50.0), ..Goals::default() }), 3.0);
    near(count(Goals { tpot: Some(20.0), ..Goals::default() }), 3.0);
    near(count(Goals { ttft: Some(50.0), tpot: Some(20.0), e2e: None }), 2.0);
    near(count(Goals { e2e: Some(75.0), ..Goals::default() }), 3.0);
}

#[test]
fn unknown_counts_leave_token_metrics_out() {
    let mut requests = back_to_back(4);
    requests[2].0.events[3].tokens = None;
    let goals = Goals { tpot: Some(20.0), ..Goals::default() };
    let found = see(&requests, 560.0, true, goals, false);
    for base in [Base::OutputThroughput, Base::Itl, Base::Tpot, Base::Goodput] {
        assert!(!found.contains_key(&base), "{base:?}");
    }
    assert_eq!(samples_of(&found, Base::Ttft).len(), 4);
}

#[test]
fn two_loads_stand_one_after_the_other() {
    let (traces, notes): (Vec<Trace>, Vec<Note>) = back_to_back(10).into_iter().unzip();
    let load = |steady| Load {
        traces: &traces,
        notes: &notes,
        span: Span { from: at(0.0), to: at(1400.0), steady },
        goals: Goals::default(),
        open: false,
    };
    let found = together(&[load(true), load(true)]);
    let (rate, means, _) = batches(&found, Base::RequestThroughput);
    near(rate, 1.0 / 0.14);
    assert_eq!(means.len(), 20);
    assert_eq!(samples_of(&found, Base::Ttft).len(), 20);
    assert_eq!(exact(&found, Base::OutputTokens), 200.0);
    near(exact(&found, Base::MeasuredTime), 2.8);
    let bursts = together(&[load(false), load(false)]);
    assert_eq!(samples_of(&bursts, Base::RequestThroughput).len(), 2);
}

#[test]
fn a_repeat_is_one_observation() {
    let (traces, notes): (Vec<Trace>, Vec<Note>) = back_to_back(10).into_iter().unzip();
    for steady in [true, false] {
        let span = Span { from: at(0.0), to: at(1400.0), steady };
        let load =
            Load { traces: &traces, notes: &notes, span, goals: Goals::default(), open: false };
        let found = repeated(&[load, load, load]);
        let rates = samples_of(&found, Base::OutputThroughput);
        assert_eq!(rates.len(), 3);
        near(rates[0], 10.0 / 0.14);
        let Observations::Told(told) = &found[&Base::E2eLatency] else { panic!("told") };
        // Ten requests carry a ninetieth percentile and no ninety-fifth.
        let stats: Vec<Stat> = told.keys().copied().collect();
        assert_eq!(stats, [Stat::P50, Stat::P90, Stat::Mean, Stat::Max]);
        assert_eq!(told[&Stat::P90], [140.0; 3]);
        assert_eq!(exact(&found, Base::CompletedRequests), 30.0);
    }
}

#[test]
fn an_empty_span_has_no_figures() {
    assert!(plain(&back_to_back(1), 0.0).is_empty());
}

/// Sixteen streams, each request of which takes a second and fifty tokens. The streams begin so far
/// apart, in ms.
fn streams(apart: f64) -> Vec<(Trace, Note)> {
    let requests = (0..16u32).flat_map(|stream| (0..12u32).map(move |turn| (stream, turn)));
    requests
        .map(|(stream, turn)| {
            let begin = f64::from(stream) * apart + f64::from(turn) * 1000.0;
            let events: Vec<f64> = (1..=50).map(|token| begin + f64::from(token) * 20.0).collect();
            let (mut trace, note) = request(begin, begin, &events);
            trace.stream = stream;
            (trace, note)
        })
        .collect()
}

#[test]
fn requests_that_reach_over_an_edge_make_no_noise() {
    // All end together, or one after the other: the engine does the same.
    for apart in [0.0, 60.0] {
        let (traces, notes): (Vec<Trace>, Vec<Note>) = streams(apart).into_iter().unzip();
        let span = Span { from: at(1550.0), to: at(9550.0), steady: true };
        let goals = Goals { e2e: Some(2000.0), ..Goals::default() };
        let found = together(&[Load { traces: &traces, notes: &notes, span, goals, open: false }]);
        for base in [Base::RequestThroughput, Base::Goodput] {
            let (rate, means, _) = batches(&found, base);
            assert!((rate - 16.0).abs() < 0.1, "{rate}");
            means.iter().for_each(|mean| assert!((mean - 16.0).abs() < 0.4, "{mean}"));
        }
        // A token more or less would not show; of what keeps its goals, a request.
        near(batches(&found, Base::RequestThroughput).2, 0.02 / 0.8);
        near(batches(&found, Base::Goodput).2, 1.0 / 0.8);
    }
}

#[test]
fn waiting_in_a_queue_is_no_work_that_was_done() {
    // One at a time, 100 ms each, and twice as many come as can be served.
    let requests: Vec<(Trace, Note)> = (0..40u32)
        .map(|i| {
            let (due, begin) = (f64::from(i) * 50.0, f64::from(i) * 100.0);
            let events: Vec<f64> = (1..=10).map(|token| begin + f64::from(token) * 10.0).collect();
            request(due, due, &events)
        })
        .collect();
    let found = see(&requests, 2000.0, true, Goals::default(), true);
    let (rate, means, _) = batches(&found, Base::RequestThroughput);
    near(rate, 10.0);
    means.iter().for_each(|mean| assert!((mean - 10.0).abs() < 2.5, "{mean}"));
    // Neighbours wait alike: they are hardly more than a few witnesses.
    let (traces, notes): (Vec<Trace>, Vec<Note>) = requests.into_iter().unzip();
    let span = Span { from: at(0.0), to: at(2000.0), steady: true };
    let load = Load { traces: &traces, notes: &notes, span, goals: Goals::default(), open: true };
    let shared = sharing(&[load]);
    assert!(shared[&Base::TtftDue] > 7.0 && shared[&Base::TtftDue] < 14.0, "{shared:?}");
    assert_eq!(shared[&Base::Tpot], 1.0, "these are all the same");
    let burst = Load { span: Span { steady: false, ..span }, ..load };
    assert!(sharing(&[burst]).is_empty());
}

#[test]
fn what_is_drawn_anew_for_each_request_is_hardly_shared() {
    let mut requests = back_to_back(240);
    for (index, (trace, _)) in requests.iter_mut().enumerate() {
        // Up and down, whatever came before.
        trace.sent = Stamp(trace.sent.0.saturating_sub((index as u64 * 7919 % 13) * 1_000_000));
    }
    let (traces, notes): (Vec<Trace>, Vec<Note>) = requests.into_iter().unzip();
    let span = Span { from: at(0.0), to: at(240.0 * 140.0), steady: true };
    let load = Load { traces: &traces, notes: &notes, span, goals: Goals::default(), open: false };
    assert!(sharing(&[load])[&Base::Ttft] < 3.0);
    // Twenty requests are too few to tell.
    let few = Load { traces: &traces[..11], notes: &notes[..11], ..load };
    assert!(sharing(&[few]).is_empty());
}
