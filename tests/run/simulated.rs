//! What verdicts are worth: many cells of noise with a known truth, in virtual time.

use serde_json::Value;

use crate::harness::Project;

/// Noise is a fifth of a step, so that a window of 400 steps is known to 1 %. Two streams get
/// 200 tok/s together.
const PROFILE: &str = r#"version = "1.0.0"
max-model-len = "32K"
kv-capacity = "256K"
start-up = "1ms"
[prefill]
tokens = [16, "32K"]
ms = [1, 100]
[admit]
at = [1, 4]
grid = [["1K", 20, 20]]
[step]
at = [1, 4]
grid = [["1K", 10, 10]]
[noise]
within = "20%"
"#;

/// The truth, in tok/s.
const RATE: f64 = 200.0;

/// A test of so many cells alike, each with noise of its own, and what is expected of them.
fn cells(name: &str, count: u32, floor: f64, more: &str) -> String {
    let nights: Vec<u32> = (1..=count).collect();
    format!(
        r#"
[[test]]
name = "{name}"
kind = "decode"
duration = "4s"
max-output = 4096
matrix.concurrency = [2]
matrix.night = {nights:?}
[[expect]]
test = "{name}"
metric = "output-throughput"
min = {floor}
{more}
"#
    )
}

/// The share of a test's cells with this verdict.
fn share(verdicts: &[String], test: &str, verdict: &str) -> f64 {
    let of_test: Vec<_> =
        verdicts.iter().filter(|cell| cell.starts_with(&format!("{test} "))).collect();
    let having = of_test.iter().filter(|cell| cell.ends_with(&format!(" {verdict}"))).count();
    having as f64 / of_test.len() as f64
}

/// The share of a test's cells whose bound of this number fails.
fn bound_fails(record: &Value, test: &str, bound: usize) -> f64 {
    let planned = record["header"]["cells"].as_array().unwrap();
    let cells = planned.iter().zip(record["cells"].as_array().unwrap());
    let verdicts: Vec<&str> = cells
        .filter(|(planned, _)| planned["test"] == test)
        .map(|(_, cell)| cell["judgement"]["bounds"][bound]["verdict"].as_str().unwrap())
        .collect();
    verdicts.iter().filter(|verdict| **verdict == "fail").count() as f64 / verdicts.len() as f64
}

#[test]
fn false_alarms_stay_below_alpha_and_losses_are_found() {
    let time = "[[expect]]\ntest = \"unchanged\"\nmetric = \"tpot.mean\"\nmax = 10\nseverity = \"report\"\n";
    let suite = [
        "version = 1\n[suite]\nname = \"simulated\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         profile = \"noisy.toml\"\n"
            .to_owned(),
        cells("unchanged", 150, RATE, time),
        cells("slower-by-a-tenth", 25, RATE / 0.9, ""),
        cells("beyond-its-slack", 25, RATE / 0.9, "slack = \"5%\""),
        cells("within-its-slack", 25, RATE / 0.98, "slack = \"6%\""),
    ]
    .concat();
    let project = Project::with(&suite);
    project.file("noisy.toml", PROFILE);
    let ran = project.run(&["--seed", "7"]).exits(10);
    let verdicts = ran.verdicts();

    // Three standard errors above alpha, for both looks together. Judging at alpha twice, or with
    // intervals a third too narrow, is seen.
    let most = 0.05 + 3.0 * (0.05f64 * 0.95 / 150.0).sqrt();
    let alarms = share(&verdicts, "unchanged", "fail");
    assert!(alarms > 0.0 && alarms <= most, "{alarms}");
    // The streams of a window share its steps: two of them are no two witnesses.
    let alarms = bound_fails(&ran.record(), "unchanged", 1);
    assert!(alarms > 0.0 && alarms <= most, "{alarms}");

    assert!(share(&verdicts, "slower-by-a-tenth", "fail") > 0.95, "{verdicts:#?}");
    assert!(share(&verdicts, "beyond-its-slack", "fail") > 0.95, "{verdicts:#?}");
    assert_eq!(share(&verdicts, "within-its-slack", "fail"), 0.0, "{verdicts:#?}");
    // What could be doubted was measured once more.
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    let extended = cells.iter().filter(|cell| cell["state"]["measured"]["extended"] == true);
    assert!(extended.count() > 50);
}

/// A test of so many loads alike, each with noise of its own: eight streams whose steps take as long
/// for one as for all. `bounds` holds for all of its cells.
fn loads(count: u32, bounds: &str) -> Project {
    let nights: Vec<u32> = (1..=count).collect();
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"loads\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\nprofile = \"noisy.toml\"\n\
         [[test]]\nkind = \"serve\"\ninput = 64\noutput = 32\nrequests-per-stream = 6\nmatrix.concurrency = [8]\n\
         matrix.night = {nights:?}\n{bounds}"
    ));
    project.file("noisy.toml", &PROFILE.replace("at = [1, 4]", "at = [1, 16]"));
    project
}

/// A figure in each cell.
fn figures(record: &Value, of: impl Fn(&Value) -> f64) -> Vec<f64> {
    let cells = record["cells"].as_array().unwrap().iter();
    cells.map(|cell| of(&cell["state"]["measured"]["observations"])).collect()
}

#[test]
fn requests_that_share_their_steps_raise_no_more_false_alarms() {
    // What the engine can do is learnt from loads, and asked of others.
    let record = loads(80, "").run(&["--seed", "1"]).exits(0).record();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let average = |metric: &str| {
        mean(&figures(&record, |observed| {
            let samples = observed[metric]["samples"].as_array().unwrap();
            mean(&samples.iter().map(|value| value.as_f64().unwrap()).collect::<Vec<_>>())
        }))
    };
    let rate =
        mean(&figures(&record, |o| o["output-throughput"]["batches"]["rate"].as_f64().unwrap()));
    let bound = |metric: &str, side: &str, value: f64| {
        format!("[[expect]]\nmetric = \"{metric}\"\n{side} = {value}\n")
    };
    let bounds = [
        bound("output-throughput", "min", rate),
        bound("tpot.mean", "max", average("tpot")),
        bound("e2e-latency.mean", "max", average("e2e-latency")),
    ];
    let ran = loads(80, &bounds.concat()).run(&["--seed", "2"]);
    let most = 0.05 + 3.0 * (0.05f64 * 0.95 / 80.0).sqrt();
    for (index, bound) in bounds.iter().enumerate() {
        let alarms = bound_fails(&ran.record(), "serve", index);
        assert!(alarms <= most, "{bound}: {alarms}");
    }
    // A loss of a tenth is found in nearly every load.
    let worse = [
        bound("output-throughput", "min", rate / 0.9),
        bound("tpot.mean", "max", average("tpot") * 0.9),
    ];
    let ran = loads(20, &worse.concat()).run(&["--seed", "3"]).exits(10);
    for (index, bound) in worse.iter().enumerate() {
        let found = bound_fails(&ran.record(), "serve", index);
        assert!(found > 0.85, "{bound}: {found}");
    }
}

/// One prompt at a time, 40 ms each, and steps with a noise of 1 %.
const SERVICE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
start-up = "1ms"
[prefill]
tokens = [16, "1K", "16K"]
ms     = [ 4,  40,  600]
[admit]
at = [1, 16]
grid = [["1K", 9, 20]]
[step]
at = [1, 4, 16]
grid = [["1K", 5.0, 5.4, 6.6]]
[noise]
within = "1%"
first-token = "1%"
"#;

/// So many loads alike, each with noise and arrivals of its own.
fn services(count: u32, test: &str, bounds: &str) -> Project {
    let nights: Vec<u32> = (1..=count).collect();
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"services\"\n[policy]\nunjudged = \"allow\"\n\
         [engine]\nkind = \"sim\"\nclock = \"virtual\"\nprofile = \"service.toml\"\n\
         [[test]]\nkind = \"serve\"\n{test}\nmatrix.night = {nights:?}\n{bounds}"
    ));
    project.file("service.toml", SERVICE);
    project
}

/// Bounds that stand where the engine does, as far as other loads tell, each made harder to keep by a
/// share.
fn where_it_stands(record: &Value, harder: f64) -> Vec<String> {
    let cells = record["cells"].as_array().unwrap();
    let observed = |metric: &str| -> Vec<Value> {
        let of = |cell: &Value| cell["state"]["measured"]["observations"][metric].clone();
        cells.iter().map(of).collect()
    };
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let mut bounds = Vec::new();
    for metric in ["output-throughput", "request-throughput", "goodput"] {
        let rates: Vec<f64> =
            observed(metric).iter().map(|o| o["batches"]["rate"].as_f64().unwrap()).collect();
        let floor = mean(&rates) / (1.0 - harder);
        bounds.push(format!("[[expect]]\nmetric = \"{metric}\"\nmin = {floor}\n"));
    }
    for metric in ["ttft", "e2e-latency"] {
        let samples = observed(metric);
        let samples = samples.iter().flat_map(|o| o["samples"].as_array().unwrap());
        let mut samples: Vec<f64> = samples.map(|value| value.as_f64().unwrap()).collect();
        samples.sort_by(f64::total_cmp);
        let at = |percent: usize| samples[(samples.len() * percent).div_ceil(100) - 1];
        for (stat, value) in
            [("mean", mean(&samples)), ("p50", at(50)), ("p90", at(90)), ("p99", at(99))]
        {
            let ceiling = value * (1.0 - harder);
            bounds.push(format!("[[expect]]\nmetric = \"{metric}.{stat}\"\nmax = {ceiling}\n"));
        }
    }
    bounds
}

#[test]
fn loads_of_every_kind_raise_no_more_false_alarms_than_they_may() {
    const COUNT: u32 = 100;
    let most = 0.05 + 3.0 * (0.05f64 * 0.95 / f64::from(COUNT)).sqrt();
    for test in [
        "input = 1024\noutput = 64\nrequests-per-stream = 10\nmatrix.concurrency = [16]\nslo = { ttft = \"1s\" }",
        "input = 1024\noutput = { jitter = \"50%\", around = 64 }\nrequests-per-stream = 10\n\
         matrix.concurrency = [8]\nslo = { ttft = \"60ms\" }",
        "input = 1024\noutput = 16\narrival = \"poisson\"\nrequests = 300\nmatrix.request_rate = [10]\n\
         slo = { ttft = \"60ms\" }",
        // Four fifths of what it can do: neighbours wait for each other.
        "input = 1024\noutput = 16\narrival = \"poisson\"\nrequests = 300\nmatrix.request_rate = [20]\n\
         slo = { ttft = \"150ms\" }",
    ] {
        let bounds =
            where_it_stands(&services(COUNT, test, "").run(&["--seed", "1"]).record(), 0.0);
        let record = services(COUNT, test, &bounds.concat()).run(&["--seed", "2"]).record();
        for (index, bound) in bounds.iter().enumerate() {
            let alarms = bound_fails(&record, "serve", index);
            assert!(alarms <= most, "{test}\n{bound}: {alarms}");
        }
    }
}

#[test]
fn a_closed_loop_sees_a_loss_of_a_twentieth_and_an_open_one_that_it_is_swamped() {
    let closed = "input = 1024\noutput = 64\nrequests-per-stream = 10\nmatrix.concurrency = [16]\nslo = { ttft = \"1s\" }";
    let stands = services(20, closed, "").run(&["--seed", "1"]).record();
    let bounds = where_it_stands(&stands, 0.05);
    let record = services(20, closed, &bounds.concat()).run(&["--seed", "2"]).record();
    for (index, bound) in bounds.iter().enumerate() {
        let rate = index < 2;
        let found = bound_fails(&record, "serve", index);
        assert!(!rate || found > 0.95, "{bound}: {found}");
    }
    // It now has twice as much to do as it can, where it could do it before.
    let open = |rate: u32| {
        format!(
            "input = 1024\noutput = 16\narrival = \"poisson\"\nrequests = 300\nmatrix.request_rate = [{rate}]\n\
             slo = {{ ttft = \"150ms\" }}"
        )
    };
    let stands = services(20, &open(20), "").run(&["--seed", "1"]).record();
    let bounds: Vec<String> = where_it_stands(&stands, 0.0)
        .into_iter()
        .filter(|bound| bound.contains("ttft.mean") || bound.contains("ttft.p9"))
        .collect();
    let record = services(20, &open(50), &bounds.concat()).run(&["--seed", "2"]).record();
    for (index, bound) in bounds.iter().enumerate() {
        let found = bound_fails(&record, "serve", index);
        assert!(found > 0.95, "{bound}: {found}");
    }
}
