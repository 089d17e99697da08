//! Open loops on the simulated engine: near what it can do, beyond it, and while it hangs.

use super::served::{ENGINE, measured, near, rate, run, samples, serve, warnings};
use serde_json::Value;

fn share_above(values: &[f64], limit: f64) -> f64 {
    values.iter().filter(|value| **value > limit).count() as f64 / values.len() as f64
}

fn last(values: &[f64]) -> f64 {
    *values.last().unwrap()
}

/// A prompt takes 40 ms, so that 25 a second are all the engine can do.
fn loop_of(arrival: &str, rate: f64, seconds: u32) -> Value {
    let test = format!(
        "input = 1024\noutput = 16\narrival = \"{arrival}\"\nduration = \"{seconds}s\"\nmatrix.request_rate = [{rate}]"
    );
    measured(&run(&serve(ENGINE, &test, "")).exits(0), 0)
}

#[test]
fn close_to_what_the_engine_can_do_requests_wait_and_it_keeps_up() {
    let found = loop_of("poisson", 22.5, 120);
    assert!(!warnings(&found).contains("arrived"), "{}", warnings(&found));
    let due = samples(&found, "ttft-due");
    near(rate(&found, "request-throughput"), due.len() as f64 / 120.0, 0.03);
    // M/D/1 at a load of 0.9: 40 × 0.9 ÷ (2 × 0.1) = 180 ms of waiting on average, in so short a time
    // half as much or twice.
    let waits = due.iter().sum::<f64>() / due.len() as f64 - 40.0;
    assert!((90.0..360.0).contains(&waits), "{waits}");
    // Requests find the same queue as their neighbours.
    assert!(found["sharing"]["ttft-due"].as_f64().unwrap() > 10.0, "{}", found["sharing"]);
}

#[test]
fn beyond_what_the_engine_can_do_latencies_grow_with_the_length_of_the_load() {
    let longest = |seconds| {
        let found = loop_of("constant", 30.0, seconds);
        let told = "30 requests a second arrived and 2";
        assert!(warnings(&found).contains(told), "{}", warnings(&found));
        // The window ends with the last due time, however long the queue behind it.
        near(rate(&found, "request-throughput"), 25.0, 0.03);
        near(rate(&found, "output-throughput"), 25.0 * 16.0, 0.03);
        let count = samples(&found, "e2e-latency-due").len() as f64;
        near(count, 30.0 * f64::from(seconds), 0.01);
        last(&samples(&found, "ttft-due"))
    };
    // 5 more a second than are served; each waits for 40 ms.
    let (short, long) = (longest(10), longest(40));
    near(short, 10.0 * 5.0 * 40.0, 0.1);
    near(long, 40.0 * 5.0 * 40.0, 0.1);
}

#[test]
fn the_ramp_of_an_open_loop_is_outside_of_its_window() {
    // Requests of 1 024 tokens stay for five seconds and more.
    let test = "input = 1024\noutput = 1024\narrival = \"constant\"\nduration = \"30s\"\nmatrix.request_rate = [2]";
    let expect = "[[expect]]\nmetric = \"output-throughput\"\nmin = 1950\n";
    let ran = run(&serve(ENGINE, test, expect)).exits(0);
    let found = measured(&ran, 0);
    near(rate(&found, "output-throughput"), 2048.0, 0.02);
    near(rate(&found, "request-throughput"), 2.0, 0.02);
    assert_eq!(found["extended"], false);
    let means = found["observations"]["output-throughput"]["batches"]["means"].clone();
    means.as_array().unwrap().iter().for_each(|mean| near(mean.as_f64().unwrap(), 2048.0, 0.06));
}

#[test]
fn who_is_kept_from_sending_by_a_hang_has_waited_all_the_same() {
    let engine = format!("{ENGINE}\n[[fault]]\nkind = \"hang\"\nat-token = 1500\nfor = \"2s\"\n");
    let load = |arrival: &str| {
        let test = format!("input = 1024\noutput = 16\n{arrival}");
        measured(&run(&serve(&engine, &test, "")), 0)
    };
    // A closed loop sends nothing while the engine hangs, so that one request a stream tells of it.
    let closed = load("requests = 200\nmatrix.concurrency = [1]");
    assert!(share_above(&samples(&closed, "e2e-latency"), 1000.0) <= 0.005);
    // An open loop of the same rate has those that came meanwhile: a second's worth waited for more
    // than a second.
    let open = load("arrival = \"constant\"\nrequests = 200\nmatrix.request_rate = [8]");
    let told = share_above(&samples(&open, "e2e-latency-due"), 1000.0);
    assert!(told > 0.03, "{told}");
    assert_eq!(samples(&open, "ttft-due").len(), 200);
}
