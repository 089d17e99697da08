//! What each check says of which numbers.

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_prompt_may_be_off_by_its_tolerance_and_always_by_one_token() {
    assert_eq!(prompt_length(100, Some(101), Some(0.005)).fault, None);
    assert_eq!(prompt_length(8192, Some(8232), Some(0.005)).fault, None);
    let off = prompt_length(8192, Some(8233), Some(0.005));
    assert_eq!(off.fault, Some(Fault::Invalid));
    assert_eq!(off.message, "prompt of 8192 tokens, 8233 by the server, tolerance 41 tokens");
    assert_eq!(prompt_length(8192, Some(4000), None).fault, None);
    assert_eq!(prompt_length(8192, None, Some(0.005)).fault, Some(Fault::Invalid));
}

#[test]
fn cached_tokens_must_be_as_declared() {
    assert_eq!(cache_state(Cache::Cold, 8192, Some(64)).fault, None);
    assert_eq!(cache_state(Cache::Cold, 8192, Some(4096)).fault, Some(Fault::Invalid));
    assert_eq!(cache_state(Cache::Warm { tokens: 8192 }, 8192, Some(8176)).fault, None);
    assert_eq!(
        cache_state(Cache::Warm { tokens: 8192 }, 8192, Some(0)).fault,
        Some(Fault::Invalid)
    );
    assert_eq!(cache_state(Cache::Cold, 8192, None).fault, None);
}

#[test]
fn what_the_client_fails_at_is_invalid() {
    assert_eq!(concurrency(125.5, 128, true).fault, None);
    assert_eq!(concurrency(125.0, 128, true).fault, Some(Fault::Invalid));
    let harmless = concurrency(125.0, 128, false);
    assert_eq!(harmless.fault, Some(Fault::Notice));
    assert!(harmless.message.contains("fewer by the client's doing"));
    // So few that nobody knows what the others would have done.
    assert_eq!(concurrency(95.0, 128, false).fault, Some(Fault::Invalid));
    let late = client_lag(Duration::from_micros(6120), ms(9), ms(5), true);
    assert_eq!(late.fault, Some(Fault::Invalid));
    assert_eq!(
        late.message,
        "the client was the limit: client lag 6.2ms (p99), 9ms at most, 5ms allowed"
    );
    let harmless = client_lag(ms(6), ms(6), ms(5), false);
    assert_eq!(harmless.fault, Some(Fault::Notice));
    assert_eq!(harmless.message, "client lag 6ms (p99), 6ms at most, 5ms allowed");
    // A lag that is rare is told where it could have changed a verdict.
    assert_eq!(client_lag(ms(1), ms(400), ms(5), false).fault, None);
    assert_eq!(client_lag(ms(1), ms(400), ms(5), true).fault, Some(Fault::Invalid));
    assert_eq!(samples(0, 1).fault, Some(Fault::Invalid));
}

#[test]
fn a_client_without_time_to_spare_was_the_limit() {
    let thread = |running, waiting| Thread {
        running: ms(running),
        waiting: ms(waiting),
        whole: Duration::from_secs(10),
    };
    // Waiting for a core shows as lag, where it hurts.
    assert_eq!(client_busy(Some(thread(9000, 900))).fault, None);
    let full = client_busy(Some(thread(9310, 520)));
    assert_eq!(full.fault, Some(Fault::Invalid));
    assert_eq!(
        full.message,
        "the client was the limit: the client's thread ran 93.1 % of the time, 90 % allowed, \
         and waited 5.2 % for a core"
    );
    assert_eq!(client_busy(None).fault, None);
}

#[test]
fn the_kernels_stamps_move_only_with_a_lag_that_reaches_the_next_event() {
    assert_eq!(stamp_shift(ms(8), false, Some(ms(20))), ms(8));
    assert_eq!(stamp_shift(ms(8), true, Some(ms(20))), Duration::ZERO);
    assert_eq!(stamp_shift(ms(10), true, Some(ms(20))), ms(10));
    assert_eq!(stamp_shift(ms(500), true, None), Duration::ZERO);
}

#[test]
fn what_the_engine_fails_at_is_degraded() {
    let failed = error_rate(3, 128, 0.0);
    assert_eq!(failed.fault, Some(Fault::Degraded));
    assert_eq!(failed.message, "3 of 128 requests failed (2.34 %, 0 % allowed)");
    assert_eq!(error_rate(3, 128, 0.05).fault, None);
    assert_eq!(preemption(Some(24)).fault, Some(Fault::Degraded));
    assert_eq!(preemption(Some(0)).fault, None);
    let gap = |longest, present, median| stall(ms(longest), ms(present), stall_limit(ms(median)));
    assert_eq!(gap(2500, 2500, 17).fault, Some(Fault::Degraded));
    assert_eq!(gap(2500, 2500, 250).fault, None);
    // Whatever else happened, an engine that stalled while we looked has stalled.
    assert_eq!(gap(9000, 2500, 17).fault, Some(Fault::Degraded));
    let frozen = gap(2400, 12, 17);
    assert_eq!(frozen.fault, Some(Fault::Notice));
    assert_eq!(
        frozen.message,
        "longest gap between events 2.4s, a stall from 2s on; but for 12ms of it this program \
         itself did not run"
    );
}

#[test]
fn a_queue_is_what_stays_and_not_who_waits_for_a_step() {
    let queue = |shown: &[u64]| {
        let mut queue = Queue::default();
        shown.iter().for_each(|waiting| queue.see(*waiting));
        Some(queue)
    };
    let stays = queued(queue(&[2; 30]), 8, Some(4096));
    assert_eq!(stays.fault, Some(Fault::Degraded));
    assert_eq!(stays.message, "2 of 8 requests queued below capacity on average, 2 at most");
    assert_eq!(queued(queue(&[1; 10]), 128, Some(4096)).fault, Some(Fault::Degraded));
    let mut once = [0; 30];
    once[7] = 1;
    assert_eq!(queued(queue(&once), 128, Some(4096)).fault, None);
    // 64 streams of 16 tokens: two wait for a step at any time.
    assert_eq!(queued(queue(&[2; 30]), 64, Some(16)).fault, None);
    assert_eq!(queued(queue(&[8; 30]), 64, Some(16)).fault, Some(Fault::Degraded));
    assert_eq!(queued(queue(&[8; 30]), 64, None).fault, None);
}

#[test]
fn an_unknown_gauge_is_unknown_and_no_fault() {
    assert_eq!(preemption(None).fault, None);
    assert_eq!(preemption(None).message, "the engine has no preemption counter, or began it anew");
    assert_eq!(queued(None, 8, Some(256)).fault, None);
    assert_eq!(token_count(false).fault, Some(Fault::Notice));
}

#[test]
fn drift_needs_a_sure_slope_and_a_large_one() {
    let line = |per_batch: f64, noise: f64| -> Vec<f64> {
        let wiggle = [1.0, -1.0, 0.5, -0.5, -1.0, 1.0, 0.0, -0.5, 0.5, 0.0];
        (0..10).map(|i| 100.0 + per_batch * f64::from(i) + noise * wiggle[i as usize]).collect()
    };
    assert_eq!(steady(&line(2.0, 0.5)).fault, Some(Fault::Drifting));
    assert_eq!(steady(&line(-2.0, 0.5)).fault, Some(Fault::Drifting));
    // Sure, but 5 % only.
    assert_eq!(steady(&line(0.5, 0.01)).fault, None);
    // Large, but not sure.
    assert_eq!(steady(&line(2.0, 20.0)).fault, None);
    assert_eq!(steady(&[100.0; 10]).fault, None);
    // Ten batches leave 8 degrees of freedom: |t| must exceed 3.355.
    assert!(steady(&[100.0; 10]).message.ends_with("critical 3.36)"));
    assert_eq!(steady(&[]).fault, None);
}

#[test]
fn the_slope_is_that_of_least_squares() {
    let slope = Slope::of(&[1.5, 2.6, 3.1, 3.8]).unwrap();
    let by_hand = {
        let (x, y) = ([-1.5, -0.5, 0.5, 1.5], [1.5, 2.6, 3.1, 3.8]);
        let b: f64 = x.iter().zip(y).map(|(x, y)| x * (y - 2.75)).sum::<f64>() / 5.0;
        let r: f64 = x.iter().zip(y).map(|(x, y)| (y - 2.75 - b * x).powi(2)).sum();
        (b, b / (r / 2.0 / 5.0).sqrt())
    };
    assert!((slope.change - by_hand.0 * 4.0 / 2.75).abs() < 1e-12);
    assert!((slope.t - by_hand.1).abs() < 1e-12);
}

fn outputs(requests: u64, asked: u64, short: u64, least: u64) -> Outputs {
    let off = short * (asked - least);
    let finishes = [("length", requests - short), ("stop", short)];
    Outputs {
        requests,
        asked: requests * asked,
        brought: requests * asked - off,
        off,
        least,
        finishes: finishes.into_iter().filter(|(_, count)| *count > 0).collect(),
    }
}

#[test]
fn an_output_that_is_shorter_than_asked_is_no_measurement_of_what_was_asked() {
    let third = output_length(&outputs(30, 512, 10, 38), Some(0.01));
    assert_eq!(third.fault, Some(Fault::Invalid));
    assert_eq!(
        third.message,
        "512 output tokens asked for, 354 on average, 38 at least (finish reasons: 20 length, \
         10 stop), tolerance 5.1 tokens; write request.body = { ignore_eos = true } where the server \
         takes it, or request.output-tolerance = \"off\""
    );
    assert_eq!(output_length(&outputs(30, 512, 0, 512), Some(0.01)).fault, None);
    assert_eq!(output_length(&outputs(30, 512, 10, 38), None).fault, None);
    // One short output of a thousand does not move a figure.
    assert_eq!(output_length(&outputs(1000, 512, 1, 38), Some(0.01)).fault, None);
    // An end token more or less is no matter.
    assert_eq!(output_length(&outputs(10, 16, 10, 15), Some(0.01)).fault, None);
    assert_eq!(output_length(&Outputs::default(), Some(0.01)).fault, None);
}

#[test]
fn too_long_does_not_make_up_for_too_short() {
    let both = Outputs {
        requests: 2,
        asked: 512,
        brought: 512,
        off: 400,
        least: 56,
        finishes: [("stop", 2)].into(),
    };
    assert_eq!(output_length(&both, Some(0.01)).fault, Some(Fault::Invalid));
}

#[test]
fn the_engines_cache_counters_must_agree() {
    let check = |expected, hits: f64| {
        cache_counters(expected, 1000, Some(Lookups { queries: 20_000.0, hits }))
    };
    let warm = Cache::Warm { tokens: 1000 };
    assert_eq!(check(Cache::Cold, 0.0).fault, None);
    assert_eq!(check(Cache::Cold, 1200.0).fault, None);
    let hit = check(Cache::Cold, 5000.0);
    assert_eq!(hit.fault, Some(Fault::Invalid));
    assert_eq!(
        hit.message,
        "25 % of the prompt tokens came out of the cache by the engine's counters, which was to be cold"
    );
    assert_eq!(check(warm, 19_900.0).fault, None);
    assert_eq!(check(warm, 5000.0).fault, Some(Fault::Invalid));
    // Half of each prompt is a common beginning.
    assert_eq!(check(Cache::Warm { tokens: 500 }, 9800.0).fault, None);
    assert_eq!(cache_counters(warm, 1000, None).fault, None);
    let still = Some(Lookups { queries: 0.0, hits: 0.0 });
    assert_eq!(cache_counters(warm, 1000, still).fault, None);
}

#[test]
fn events_that_come_together_are_told() {
    let reads = |events, together, most| Reads { events, together, most };
    assert_eq!(buffered(&reads(1000, 200, 2)).fault, None);
    let burst = buffered(&reads(40, 40, 40));
    assert_eq!(burst.fault, Some(Fault::Notice));
    assert!(burst.message.starts_with("buffered: 100 % of the events"), "{}", burst.message);
    assert_eq!(buffered(&Reads::default()).fault, None);
}

#[test]
fn an_engine_that_serves_others_measures_nothing() {
    assert_eq!(idle(None).fault, None);
    let busy = idle(Some((3.0, 1.0)));
    assert_eq!(busy.fault, Some(Fault::Invalid));
    assert!(busy.message.starts_with("3 requests ran and 1 waited"), "{}", busy.message);
}
