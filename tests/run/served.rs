//! Serve tests on the simulated engine in virtual time: their figures against what the engine was told
//! to do, and what becomes of engines that fail under load.

use serde_json::Value;

use crate::harness::{Project, Ran};

/// Without noise. A prompt of 1K tokens takes 40 ms, one at a time; 1, 4 and 16 streams make a token
/// each in 5, 5.4 and 6.6 ms.
pub(super) const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
[prefill]
tokens = [16, "1K", "16K"]
ms     = [ 4,  40,  600]
[admit]
at = [1, 4, 16]
grid = [["1K", 9, 12, 20]]
[step]
at = [1, 4, 16]
grid = [["1K", 5.0, 5.4, 6.6]]
"#;

/// A serve test in virtual time; `test` goes below `[[test]]`, `more` behind everything.
pub(super) fn serve(engine: &str, test: &str, more: &str) -> Project {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "served"
[engine]
kind = "sim"
clock = "virtual"
profile = "engine.toml"
[[test]]
kind = "serve"
{test}
{more}"#
    ));
    project.file("engine.toml", engine);
    project
}

pub(super) fn run(project: &Project) -> Ran {
    project.run(&["--seed", "7"])
}

/// What was measured in a cell.
pub(super) fn measured(ran: &Ran, cell: usize) -> Value {
    let found = ran.record()["cells"][cell]["state"]["measured"].clone();
    assert!(found.is_object(), "{}\n{}", ran.record()["cells"][cell], ran.stderr);
    found
}

/// A rate, by batches or as one observation.
pub(super) fn rate(measured: &Value, metric: &str) -> f64 {
    let observed = &measured["observations"][metric];
    let value = observed["batches"]["rate"].as_f64().or(observed["point"].as_f64());
    value.unwrap_or_else(|| panic!("{metric} is no rate: {observed}"))
}

fn exact(measured: &Value, metric: &str) -> f64 {
    let observed = &measured["observations"][metric];
    observed["exact"].as_f64().unwrap_or_else(|| panic!("{metric} is no count: {observed}"))
}

/// Samples in rising order.
pub(super) fn samples(measured: &Value, metric: &str) -> Vec<f64> {
    let observed = &measured["observations"][metric]["samples"];
    let observed =
        observed.as_array().unwrap_or_else(|| panic!("{metric}: {}", measured["observations"]));
    let mut values: Vec<f64> = observed.iter().map(|value| value.as_f64().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The fault of a check, and what it says.
fn check(measured: &Value, kind: &str) -> (String, String) {
    let checks = measured["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["kind"] == kind);
    let found = found.unwrap_or_else(|| panic!("no check of {kind}: {checks:#?}"));
    let fault = found["fault"].as_str().unwrap_or("holds").to_owned();
    (fault, found["message"].as_str().unwrap().to_owned())
}

pub(super) fn warnings(measured: &Value) -> String {
    measured["warnings"].to_string()
}

/// Within a share of what is wanted.
#[track_caller]
pub(super) fn near(got: f64, want: f64, share: f64) {
    assert!((got - want).abs() <= share * want.abs(), "{got} is not {want}");
}

#[test]
fn a_closed_loop_of_one_has_the_latencies_of_its_engine() {
    let test = "input = 1024\noutput = 33\nrequests = 20";
    let ran = run(&serve(ENGINE, test, "")).exits(0);
    let found = measured(&ran, 0);
    // A token leaves at the next tick of a millisecond.
    samples(&found, "ttft").iter().for_each(|ttft| near(*ttft, 40.0, 0.04));
    samples(&found, "tpot").iter().for_each(|tpot| near(*tpot, 5.0, 0.01));
    samples(&found, "e2e-latency").iter().for_each(|e2e| near(*e2e, 200.0, 0.01));
    assert_eq!(samples(&found, "e2e-latency").len(), 20);
    near(rate(&found, "request-throughput"), 5.0, 0.02);
    near(rate(&found, "output-throughput"), 33.0 * 5.0, 0.02);
    near(exact(&found, "active-requests"), 1.0, 0.01);
    assert_eq!(exact(&found, "completed-requests"), 20.0);
    assert_eq!(exact(&found, "error-rate"), 0.0);
    assert_eq!(check(&found, "prompt-length").0, "holds");
    assert_eq!(check(&found, "cache-state").0, "holds");
    assert_eq!(check(&found, "output-length").0, "holds");
    assert!(
        found["observations"]["goodput"].is_null() && found["observations"]["ttft-due"].is_null()
    );
    // One more than is measured has warmed up.
    assert_eq!(found["requests"], 21);
}

#[test]
fn what_streams_of_a_closed_loop_deliver_obeys_littles_law() {
    let test = "input = 1024\noutput = 64\nrequests-per-stream = 12\nmatrix.concurrency = [4, 16]";
    let ran = run(&serve(ENGINE, test, "")).exits(0);
    for (cell, streams) in [(0, 4.0), (1, 16.0)] {
        let found = measured(&ran, cell);
        assert_eq!(check(&found, "concurrency").0, "holds");
        near(exact(&found, "active-requests"), streams, 0.02);
        let e2e = samples(&found, "e2e-latency");
        assert_eq!(e2e.len(), 12 * streams as usize);
        // In flight = rate × time in the system; the drain makes the last ones quicker.
        near(rate(&found, "request-throughput") * mean(&e2e) / 1e3, streams, 0.12);
        near(rate(&found, "output-throughput"), rate(&found, "request-throughput") * 64.0, 0.12);
        assert_eq!(
            found["observations"]["request-throughput"]["batches"]["means"]
                .as_array()
                .unwrap()
                .len(),
            10
        );
    }
}

#[test]
fn a_window_of_a_duration_measures_what_was_sent_in_it_to_its_end() {
    // 200 ms each: the fifth second ends in the middle of a request.
    let test = "input = 1024\noutput = 33\nduration = \"5100ms\"";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    near(exact(&found, "measured-time"), 5.1, 0.001);
    assert_eq!(exact(&found, "completed-requests"), 25.0);
    assert_eq!(samples(&found, "e2e-latency").len(), 26);
    near(exact(&found, "output-tokens"), 25.5 * 33.0, 0.03);
}

#[test]
fn a_burst_queues_for_its_prompts_and_is_one_observation() {
    let test = "input = 1024\noutput = 8\narrival = \"burst\"\nrequests = 8";
    let expect = "[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n";
    let ran = run(&serve(ENGINE, test, expect)).exits(0);
    let found = measured(&ran, 0);
    let ttft = samples(&found, "ttft");
    for (place, ttft) in (1u32..).zip(&ttft) {
        near(*ttft, 40.0 * f64::from(place), 0.03);
    }
    assert_eq!(ttft.len(), 8);
    assert!(found["observations"]["request-throughput"]["point"].is_f64());
    assert_eq!(found["requests"], 16, "one burst was a rehearsal");
    // The rehearsal ends in the moment in which the burst begins, and is no part of it.
    assert_eq!(exact(&found, "completed-requests"), 8.0);
    assert_eq!(exact(&found, "output-tokens"), 64.0);
    let judged = &ran.record()["cells"][0]["judgement"]["bounds"][0]["estimate"];
    assert_eq!(judged["method"], "point");
}

#[test]
fn requests_at_a_steady_pace_arrive_whatever_the_engine_does() {
    let test = "input = 1024\noutput = 33\narrival = \"constant\"\nrequests = 50\nmatrix.request_rate = [4]";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    near(rate(&found, "request-throughput"), 4.0, 0.03);
    // The window is from the first due time to the last.
    near(exact(&found, "measured-time"), 49.0 / 4.0, 0.001);
    let (ttft, due) = (samples(&found, "ttft"), samples(&found, "ttft-due"));
    assert_eq!((ttft.len(), due.len()), (50, 50));
    near(mean(&ttft), 40.0, 0.05);
    near(mean(&due), mean(&ttft), 0.05);
    assert_eq!(samples(&found, "e2e-latency-due").len(), 50);
    assert_eq!(check(&found, "client-lag").0, "holds");
}

#[test]
fn waiting_for_the_prompts_of_others_is_that_of_a_queue_with_random_arrivals() {
    // One prompt at a time, 40 ms each, 10 a second: M/D/1 at a load of 0.4, where a request waits
    // for 40 × 0.4 ÷ (2 × 0.6) = 13.3 ms on average.
    let test = "input = 1024\noutput = 4\narrival = \"poisson\"\nrequests = 3000\nmatrix.request_rate = [10]";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    near(mean(&samples(&found, "ttft")), 53.3 + 0.5, 0.05);
    near(rate(&found, "request-throughput"), 10.0, 0.06);
    assert!(!warnings(&found).contains("arrived"), "{}", warnings(&found));
}

#[test]
fn an_engine_that_falls_behind_is_told() {
    // 25 prompts a second is all it can.
    let test = "input = 1024\noutput = 4\narrival = \"constant\"\nduration = \"10s\"\nmatrix.request_rate = [50]";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    near(rate(&found, "request-throughput"), 25.0, 0.03);
    assert!(
        warnings(&found).contains("50 requests a second arrived and 2"),
        "{}",
        warnings(&found)
    );
    // Every request that was due in the window was waited for.
    assert_eq!(samples(&found, "ttft-due").len(), 500);
}

#[test]
fn an_engine_that_keeps_up_is_not_said_to_fall_behind() {
    // Chance alone brings fewer than the rate, requests that fail have ended, and a load that is not
    // warmed up begins with none in flight.
    let refusing = format!(
        "{ENGINE}\n[[fault]]\nkind = \"status\"\nstatus = 429\nrequests = {{ share = \"40%\", min-output = 2 }}\n"
    );
    for (engine, test) in [
        (ENGINE, "arrival = \"poisson\"\nrequests = 30"),
        (ENGINE, "arrival = \"poisson\"\nrequests = 30\nwarmup-per-stream = 0"),
        (ENGINE, "arrival = \"constant\"\nrequests = 40\nwarmup-per-stream = 0"),
        (&refusing, "arrival = \"constant\"\nrequests = 100"),
    ] {
        let test = format!("input = 1024\noutput = 250\n{test}\nmatrix.request_rate = [4]");
        let project = serve(engine, &test, "[policy]\nmax-error-rate = \"60%\"\n");
        for seed in ["1", "2", "3", "4", "5"] {
            let found = measured(&project.run(&["--seed", seed]).exits(0), 0);
            assert!(!warnings(&found).contains("arrived"), "{test}: {}", warnings(&found));
        }
    }
}

#[test]
fn gauges_are_not_read_in_step_with_arrivals() {
    // Each second a request of 200 ms.
    let test = "input = 1024\noutput = 33\narrival = \"constant\"\nrequests = 100\nmatrix.request_rate = [1]";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    near(exact(&found, "active-requests"), 0.2, 0.02);
    near(found["engine"]["running-mean"].as_f64().unwrap(), 0.2, 0.3);
}

#[test]
fn a_pause_of_the_engine_delays_all_who_arrive_in_it() {
    let engine = format!("{ENGINE}\n[[fault]]\nkind = \"hang\"\nat-token = 200\nfor = \"1s\"\n");
    let delayed = |test: &str, metric: &str| {
        let test = format!("input = 1024\noutput = 8\nrequests = 100\n{test}");
        let found = measured(&run(&serve(&engine, &test, "")).exits(0), 0);
        samples(&found, metric).iter().filter(|ms| **ms > 200.0).count()
    };
    // A closed loop waits with the engine: one request is slow, and nobody else would have come.
    assert_eq!(delayed("", "e2e-latency"), 1);
    let open = "arrival = \"constant\"\nmatrix.request_rate = [10]";
    for metric in ["e2e-latency", "e2e-latency-due"] {
        let count = delayed(open, metric);
        assert!((8..=11).contains(&count), "{metric}: {count}");
    }
}

#[test]
fn goodput_counts_the_requests_that_keep_their_limits() {
    // Each fourth request pauses for 300 ms: 200 ms or 500 ms to the end.
    let engine = format!(
        "{ENGINE}\n[[fault]]\nkind = \"stall\"\nat-token = 5\nfor = \"300ms\"\nrequests = {{ every = 4, min-output = 2 }}\n"
    );
    let good = |slo: &str| {
        let test = format!("input = 1024\noutput = 33\nrequests = 40\nslo = {{ {slo} }}");
        let found = measured(&run(&serve(&engine, &test, "")).exits(0), 0);
        rate(&found, "goodput") / rate(&found, "request-throughput")
    };
    near(good("e2e-latency = \"400ms\""), 0.75, 0.01);
    near(good("tpot = \"8ms\", ttft = \"60ms\""), 0.75, 0.01);
    near(good("e2e-latency = \"600ms\""), 1.0, 0.0);
    assert_eq!(good("ttft = \"30ms\""), 0.0);
}

#[test]
fn failed_requests_are_a_share_and_nothing_else() {
    let engine = format!(
        "{ENGINE}\n[[fault]]\nkind = \"status\"\nstatus = 429\nrequests = {{ every = 5, min-output = 2 }}\n"
    );
    let test = "input = 1024\noutput = 33\nrequests = 40\nslo = { e2e-latency = \"1s\" }";
    let allowed =
        "[policy]\nmax-error-rate = \"25%\"\n[[expect]]\nmetric = \"error-rate\"\nmax = 21\n";
    let found = measured(&run(&serve(&engine, test, allowed)).exits(0), 0);
    assert_eq!(exact(&found, "error-rate"), 20.0);
    assert_eq!(found["failures"]["rate-limited"][0], 8);
    assert_eq!(samples(&found, "e2e-latency").len(), 32);
    near(rate(&found, "goodput"), rate(&found, "request-throughput"), 0.0);
    // Where none may fail, the engine is at fault.
    let ran = run(&serve(&engine, test, "")).exits(10);
    assert_eq!(ran.record()["cells"][0]["judgement"]["class"], "degraded");
}

#[test]
fn a_request_that_takes_too_long_has_failed() {
    let engine = format!(
        "{ENGINE}\n[[fault]]\nkind = \"stall\"\nat-token = 5\nrequests = {{ every = 10, min-output = 2 }}\n"
    );
    let test = "input = 1024\noutput = 33\nrequests = 30\nrequest.timeout = \"2s\"\nmatrix.concurrency = [2]";
    let ran = run(&serve(&engine, test, "[policy]\nmax-error-rate = \"20%\"\n"));
    let found = measured(&ran, 0);
    assert_eq!(found["failures"]["stalled"][0], 3);
    near(exact(&found, "error-rate"), 10.0, 0.01);
    assert!(samples(&found, "e2e-latency").iter().all(|e2e| *e2e < 2000.0));
    assert!(ran.record()["cells"][0]["seconds"].as_f64().unwrap() < 30.0);
}

#[test]
fn failures_that_come_sooner_than_answers_end_no_load() {
    // Half of the requests fail at once, the others take more than a second.
    let engine = format!(
        "{ENGINE}\n[[fault]]\nkind = \"status\"\nstatus = 429\nrequests = {{ share = \"50%\", min-output = 2 }}\n"
    );
    for (arrival, requests) in [
        ("requests-per-stream = 6\nmatrix.concurrency = [16]", 16 * 7),
        ("requests = 60\narrival = \"poisson\"\nmatrix.request_rate = [5]", 60),
    ] {
        let test = format!("input = 1024\noutput = 250\n{arrival}");
        let project = serve(&engine, &test, "[policy]\nmax-error-rate = \"70%\"\n");
        for seed in ["1", "2", "3"] {
            let found = measured(&project.run(&["--seed", seed]).exits(0), 0);
            assert!(found["requests"].as_u64().unwrap() >= requests, "{}", found["requests"]);
        }
    }
}

#[test]
fn nothing_but_failures_ends_a_load_soon() {
    let engine = format!(
        "{ENGINE}\n[[fault]]\nkind = \"status\"\nstatus = 500\nrequests = {{ min-output = 2 }}\n"
    );
    for arrival in ["matrix.concurrency = [2]", "arrival = \"constant\"\nmatrix.request_rate = [5]"]
    {
        let test = format!("input = 1024\noutput = 33\nrequests = 5000\n{arrival}");
        let ran = run(&serve(&engine, &test, "")).exits(10);
        let found = measured(&ran, 0);
        assert!(found["requests"].as_u64().unwrap() < 30, "{}", found["requests"]);
        assert_eq!(ran.record()["cells"][0]["judgement"]["class"], "degraded");
        // No usage is missing where there was no answer.
        assert!(!found["checks"].to_string().contains("usage"), "{}", found["checks"]);
    }
}

#[test]
fn an_engine_that_dies_under_load_is_noticed() {
    let engine = format!("{ENGINE}\n[[fault]]\nkind = \"crash\"\nat-token = 500\n");
    for arrival in ["matrix.concurrency = [4]", "arrival = \"poisson\"\nmatrix.request_rate = [5]"]
    {
        let test = format!("input = 1024\noutput = 33\nrequests = 1000\n{arrival}");
        let ran = run(&serve(&engine, &test, "[policy]\nrestarts = 0\n")).exits(30);
        assert_eq!(ran.record()["cells"][0]["state"]["broken"]["class"], "engine-died");
    }
}

#[test]
fn lengths_vary_as_they_are_told_and_are_what_the_server_counts() {
    for (request, input) in [
        ("", "{ uniform = [200, 900] }"),
        ("", "{ normal = [600, 100] }"),
        ("request.api = \"chat\"", "{ uniform = [200, 900] }"),
        ("request.api = \"chat\"", "{ jitter = \"20%\", around = 1000 }"),
    ] {
        let test = format!(
            "input = {input}\noutput = {{ uniform = [10, 30] }}\nrequests = 60\nmatrix.concurrency = [4]\n{request}"
        );
        let found = measured(&run(&serve(ENGINE, &test, "")).exits(0), 0);
        let (fault, message) = check(&found, "prompt-length");
        assert_eq!(fault, "holds", "{input} {request}: {message}");
        let asked = found["prompt-tokens"][0].as_u64().unwrap();
        assert_eq!(found["prompt-tokens"][1].as_u64(), Some(asked), "{input} {request}");
        assert_eq!(check(&found, "cache-state").0, "holds");
        assert_eq!(check(&found, "output-length").0, "holds");
        let tokens = exact(&found, "output-tokens") / exact(&found, "completed-requests");
        near(tokens, 20.0, 0.15);
    }
}

#[test]
fn shared_beginnings_come_out_of_the_cache() {
    for api in ["completions", "chat"] {
        let first = |prefix: &str| {
            let test = format!(
                "prefix = {prefix}\ninput = {{ uniform = [800, 1024] }}\noutput = 8\nrequests = 40\n\
                 matrix.concurrency = [1]\nrequest.api = \"{api}\""
            );
            let found = measured(&run(&serve(ENGINE, &test, "")).exits(0), 0);
            let (fault, message) = check(&found, "cache-state");
            assert_eq!(fault, "holds", "{prefix} {api}: {message}");
            assert_eq!(check(&found, "prompt-length").0, "holds", "{prefix} {api}");
            mean(&samples(&found, "ttft"))
        };
        // The less there is to compute, the sooner the first token.
        let (cold, groups, shared) =
            (first("\"cold\""), first("{ groups = 5, length = 600 }"), first("\"shared\""));
        assert!(cold > 30.0 && groups < 0.7 * cold && shared < 12.0, "{cold} {groups} {shared}");
    }
}

#[test]
fn each_repeat_is_one_observation() {
    let test = "input = 1024\noutput = 33\nrequests = 20\nrepeat = 3";
    let expect = "[[expect]]\nmetric = \"e2e-latency.p90\"\nmax = \"1s\"\n";
    let ran = run(&serve(ENGINE, test, expect)).exits(0);
    let found = measured(&ran, 0);
    let throughput = samples(&found, "request-throughput");
    assert_eq!(throughput.len(), 3);
    near(mean(&throughput), 5.0, 0.02);
    let told = &found["observations"]["e2e-latency"]["told"];
    assert_eq!(told["p90"].as_array().unwrap().len(), 3);
    assert!(told["p99"].is_null(), "20 requests don't carry it");
    assert_eq!(exact(&found, "completed-requests"), 60.0);
    assert_eq!(found["requests"], 63, "each repeat warms up");
    assert_eq!(check(&found, "cache-state").0, "holds", "each repeat has prompts of its own");
    assert_eq!(ran.record()["cells"][0]["judgement"]["bounds"][0]["estimate"]["n"], 3);
}

#[test]
fn what_is_inconclusive_is_sent_once_more() {
    let engine = format!("{ENGINE}\n[noise]\nwithin = \"40%\"\nfirst-token = \"40%\"\n");
    // A little more than it can: beyond the limit, and not surely.
    let expect = "[[expect]]\nmetric = \"output-throughput\"\nmin = 168\n";
    let found = |more: &str| {
        let test = format!("input = 1024\noutput = 33\nrequests = 40\n{more}");
        measured(&run(&serve(&engine, &test, expect)), 0)
    };
    let once = found("");
    assert_eq!(once["extended"], true, "{}", once["observations"]["output-throughput"]);
    let means = &once["observations"]["output-throughput"]["batches"]["means"];
    assert_eq!(means.as_array().unwrap().len(), 20);
    assert_eq!(samples(&once, "ttft").len(), 80);
    assert_eq!(check(&once, "cache-state").0, "holds", "it has prompts of its own");
    let repeated = found("repeat = 2");
    assert_eq!(repeated["extended"], true, "{}", repeated["observations"]["output-throughput"]);
    assert_eq!(samples(&repeated, "output-throughput").len(), 4);
}

#[test]
fn too_few_requests_leave_no_window_and_no_warm_up_is_told() {
    let test =
        "input = 1024\noutput = 33\nrequests = 6\nwarmup-per-stream = 0\nmatrix.concurrency = [2]";
    let found = measured(&run(&serve(ENGINE, test, "")).exits(0), 0);
    assert!(found["observations"]["output-throughput"]["point"].is_f64());
    let said = warnings(&found);
    assert!(said.contains("6 measured requests leave no steady window (8 would)"), "{said}");
    assert!(said.contains("cold: no request warmed up"), "{said}");
    assert_eq!(found["requests"], 6);
    let test = "output = 4\nrequests = 1";
    let said = warnings(&measured(&run(&serve(ENGINE, test, "")).exits(0), 0));
    assert!(said.contains("1 measured request leaves no steady window"), "{said}");
}

#[test]
fn a_prompt_that_hardly_fits_is_shortened_and_one_that_does_not_is_told() {
    let test = "output = 512\nrequests = 8\nmatrix.input = [32400, 36000]";
    let expect = "[[expect]]\nwhere = { input = 36000 }\nmetric = \"ttft.p50\"\nmax = 1\n";
    let ran = run(&serve(ENGINE, test, expect)).exits(10);
    let found = measured(&ran, 0);
    assert_eq!(found["prompt-tokens"][0], 32 * 1024 - 512);
    let told = check(&found, "prompt-length").1;
    assert!(told.contains("shortened from 32400 to 32256"), "{told}");
    let record = ran.record();
    assert_eq!(record["cells"][1]["judgement"]["class"], "too-long");
    let told = record["cells"][1]["state"]["unfit"]["message"].to_string();
    assert!(told.contains("input 36000 + output 512"), "{told}");
}

#[test]
fn the_same_seed_is_the_same_load() {
    let test = "input = { uniform = [200, 900] }\noutput = { uniform = [10, 30] }\nrequests = 40\n\
                arrival = \"poisson\"\nmatrix.request_rate = [5]";
    let load = |seed: &str| {
        let ran = serve(ENGINE, test, "").run(&["--seed", seed]).exits(0);
        let found = measured(&ran, 0);
        (samples(&found, "ttft-due"), exact(&found, "output-tokens"))
    };
    let first = load("7");
    assert_eq!(first, load("7"));
    assert_ne!(first, load("8"));
}

#[test]
fn reports_show_serve_cells_by_lengths_and_rate() {
    let test = "output = 16\nrequests = 12\narrival = \"constant\"\nmatrix.input = [512, 1024]\nmatrix.request_rate = [2, 4]";
    let ran = run(&serve(ENGINE, test, "")).exits(0);
    let summary = ran.read("summary.md");
    assert!(summary.contains(r"| input \\ request\_rate | 2 | 4 |"), "{summary}");
    assert!(ran.stdout.contains("rows are input, columns are request_rate"), "{}", ran.stdout);
    let test = "requests = 8\nmatrix.output = [8, 16]\nmatrix.concurrency = [1, 2]";
    let ran = run(&serve(ENGINE, test, "")).exits(0);
    let summary = ran.read("summary.md");
    assert!(summary.contains(r"| output \\ concurrency | 1 | 2 |"), "{summary}");
}

#[test]
fn counters_of_the_engine_have_the_whole_of_a_short_load() {
    // A tenth of a second: shorter than the pace at which gauges are read.
    for (test, requests) in [
        ("requests = 8", 9),
        ("requests = 8\nrepeat = 2", 18),
        ("requests = 8\narrival = \"burst\"", 16),
    ] {
        let test = format!("input = 16\noutput = 1\n{test}");
        let found = measured(&run(&serve(ENGINE, &test, "")).exits(0), 0);
        assert_eq!(found["engine"]["prefix-queries"], requests * 16, "{test}: {}", found["engine"]);
    }
}
