//! What GPUs did while a cell was measured, by a stub of the driver: in the record, as metrics, and when one is lost.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Project, Ran, eventually};
use crate::nvml;
use crate::toy::Toy;

/// An engine of 100 tokens a second for each stream.
pub(super) const PROFILE: &str = "max-model-len = \"8K\"\nkv-capacity = 65536\nstart-up = \"1ms\"\n[prefill]\ntokens = [16, \"32K\"]\nms = [1, 10]\n[admit]\nat = [1]\n\
     grid = [[\"1K\", 5]]\n[step]\nat = [1]\ngrid = [[\"1K\", 10]]\n";

/// A decode test of a second and a half against the simulated engine in real time.
fn project(more: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"telemetry\"\n[engine]\nkind = \"sim\"\nprofile = \"profile.toml\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"1500ms\"\nmin-tokens = 1\nmax-output = 400\nttft-samples = 3\n\
         matrix.concurrency = [2]\n[policy]\nunjudged = \"allow\"\nmax-client-lag = \"10m\"\n{more}"
    ));
    project.file("profile.toml", PROFILE);
    project
}

/// Runs it on a machine whose driver says `script`, whose epoch is now.
fn run(project: &Project, library: &Path, script: &str) -> Ran {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let script = project.file("gpus", &format!("epoch {now}\ndriver 580.65.06\n{script}"));
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
    command.env("TOKGATE_NVML", library).env(nvml::SCRIPT, script);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    project.ran(command.output().unwrap())
}

pub(super) fn h200(index: u32, more: &[&str]) -> String {
    let lines = ["name NVIDIA H200", "total 151397597184"];
    let lines = lines.iter().chain(more);
    lines.map(|line| format!("gpu {index} {line}\n")).collect()
}

/// Asserts the exit code, unless an overloaded machine has disturbed the load: then its checks say so, and what was
/// seen of the hardware is right all the same.
#[track_caller]
pub(super) fn exits(ran: Ran, code: i32) -> Ran {
    if disturbed(&ran) { ran } else { ran.exits(code) }
}

/// Whether an overloaded machine has disturbed the load, by the checks of its cells.
pub(super) fn disturbed(ran: &Ran) -> bool {
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    let checks = cells.iter().flat_map(|cell| cell["state"]["measured"]["checks"].as_array());
    let disturbs = |check: &Value| check["fault"] == "invalid" || check["fault"] == "degraded";
    checks.flatten().any(disturbs)
}

/// What the first bound of the first cell says.
fn verdict(ran: &Ran) -> String {
    let bound = &ran.record()["cells"][0]["judgement"]["bounds"][0];
    bound["verdict"].as_str().unwrap_or_else(|| panic!("{bound}")).to_owned()
}

fn measured(ran: &Ran) -> Value {
    ran.record()["cells"][0]["state"]["measured"].clone()
}

/// A figure of the first cell.
fn figure(measured: &Value, metric: &str) -> f64 {
    let observed = &measured["observations"][metric];
    observed["point"]
        .as_f64()
        .or(observed["exact"].as_f64())
        .unwrap_or_else(|| panic!("{measured}"))
}

#[test]
fn joules_of_a_token_are_the_integral_of_the_power_of_all_gpus() {
    let Some(library) = nvml::library() else { return };
    // One with a counter of its energy, two without.
    let gpus = [
        h200(0, &["power 300000", "energy counter", "used 1000000000"]),
        h200(1, &["power 450500", "used 80000000000"]),
        h200(2, &["power 99500", "used 7"]),
    ];
    let ran = exits(run(&project(""), &library, &gpus.concat()), 0);
    let measured = measured(&ran);
    let (seconds, tokens) =
        (figure(&measured, "measured-time"), figure(&measured, "output-tokens"));
    let each = figure(&measured, "joules-per-token");
    let expected = 850.0 * seconds / tokens;
    assert!((each / expected - 1.0).abs() < 0.01, "{each} and not {expected}");
    assert!((figure(&measured, "power.mean") / 850.0 - 1.0).abs() < 0.01);
    let seen = &measured["telemetry"];
    assert!((seen["seconds"].as_f64().unwrap() - seconds).abs() < 0.001, "{seen}");
    let gpus = seen["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 3);
    assert_eq!(gpus[1]["power"]["mean"], 450.5);
    assert_eq!(gpus[1]["power"]["points"], serde_json::json!([450.5]), "nothing happened");
    assert_eq!(gpus[1]["name"], "NVIDIA H200");
    assert!(seen["host"]["memory"]["mean"].as_f64().unwrap() > 0.0, "{seen}");
    // The most of any GPU, though not of the one with the most power.
    assert_eq!(figure(&measured, "gpu-memory.max"), 80e9);
}

#[test]
fn a_ramp_is_integrated_where_the_window_was() {
    let Some(library) = nvml::library() else { return };
    // The same power told by readings and by the driver's own counter: 100 W, and 10 W more each second.
    let ramp = "series power 0:100000 600:6100000";
    let gpus = [h200(0, &[ramp]), h200(1, &[ramp, "energy counter"])].concat();
    let ran = exits(run(&project(""), &library, &gpus), 0);
    let measured = measured(&ran);
    let seen = &measured["telemetry"];
    let joules = |gpu: usize| seen["gpus"][gpu]["energy"].as_f64().unwrap();
    assert!((joules(0) / joules(1) - 1.0).abs() < 0.01, "{seen}");
    let power = &seen["gpus"][0]["power"];
    let (least, mean, most) = (&power["min"], power["mean"].as_f64().unwrap(), &power["max"]);
    assert!(least.as_f64().unwrap() < mean && mean < most.as_f64().unwrap(), "{power}");
    assert!(
        mean > 100.0 && (joules(0) / seen["seconds"].as_f64().unwrap() / mean - 1.0).abs() < 0.01
    );
    let points = power["points"].as_array().unwrap();
    assert!(points.len() > 1, "{power}");
    assert!(points.windows(2).all(|pair| pair[1].as_f64() > pair[0].as_f64()), "{power}");
}

#[test]
fn figures_of_gpus_are_judged_like_all_others() {
    let Some(library) = nvml::library() else { return };
    let expect =
        |metric: &str, max: &str| format!("[[expect]]\nmetric = \"{metric}\"\nmax = {max}\n");
    let gpus = h200(0, &["power 700000", "used 90000000000"]);
    let kept = [
        expect("power.mean", "701"),
        expect("gpu-memory.max", "90000000000"),
        expect("joules-per-token", "1000000"),
    ];
    let ran = exits(run(&project(&kept.concat()), &library, &gpus), 0);
    assert!(matches!(verdict(&ran).as_str(), "clear" | "close"), "{}", ran.stdout);
    let ran = exits(run(&project(&expect("power.mean", "650")), &library, &gpus), 10);
    let junit = ran.read("junit.xml");
    // Readings interpolate the driver's whole milliwatts: 700 W, or nearly.
    assert!(junit.contains("power.mean ") && junit.contains(" W &gt; 650 ("), "{junit}");
    assert_eq!(verdict(&ran), "fail");
    let ran = exits(run(&project(&expect("gpu-memory.max", "80e9")), &library, &gpus), 10);
    assert_eq!(verdict(&ran), "fail");
}

#[test]
fn without_a_gpu_a_bound_says_what_it_lacks() {
    let bound = "[[expect]]\nmetric = \"joules-per-token\"\nmax = 10\n";
    let project = project(bound);
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
    command.env("TOKGATE_NVML", "/nowhere/libnvidia-ml.so");
    let ran = exits(project.ran(command.output().unwrap()), 31);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("needs GPU telemetry: no NVIDIA driver: "), "{junit}");
    assert!(junit.contains("/nowhere/libnvidia-ml.so"), "{junit}");
    let seen = &measured(&ran)["telemetry"];
    assert!(
        seen.get("gpus").is_none() && seen["host"]["memory"]["mean"].as_f64() > Some(0.0),
        "{seen}"
    );
}

#[test]
fn in_virtual_time_nobody_looks_at_hardware() {
    let bound = "[[expect]]\nmetric = \"power.mean\"\nmax = 10\n";
    let project = project(bound);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file(
        "suite.toml",
        &suite.replace("kind = \"sim\"", "kind = \"sim\"\nclock = \"virtual\""),
    );
    let ran = exits(project.run(&[]), 31);
    assert!(measured(&ran).get("telemetry").is_none());
    assert!(ran.read("junit.xml").contains("time is virtual"), "{}", ran.stdout);
}

/// Runs a decode test on a machine whose driver says `before`, and from the middle of its window on `then`. The window
/// lasts until the driver has told so, where it will.
fn changed(more: &str, library: &Path, before: &str, then: &str) -> Ran {
    let project = Project::new();
    let gpus = project.path().join("gpus");
    let say = {
        let (new, gpus) = (project.path().join("new"), gpus.clone());
        move |script: &str| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let script = format!("epoch {now}\ndriver 580.65.06\n{script}");
            std::fs::write(&new, script).unwrap();
            std::fs::rename(&new, &gpus).unwrap();
        }
    };
    say(before);
    let told = project.path().join("gpus.told");
    let (then, waits) = (then.to_owned(), then.contains("lost") || then.contains("hang"));
    let looping = AtomicUsize::new(0);
    // The window is open until its stream has had more tokens than one request brings.
    let toy = Toy::start(move |asked| {
        if asked.max_tokens() == 40 && looping.fetch_add(1, Ordering::SeqCst) == 1 {
            say(&then);
            if waits {
                eventually("the driver has told it", || told.exists());
            }
        }
        asked.stream().acts()
    });
    project.file(
        "suite.toml",
        &format!(
            "version = 1\n[suite]\nname = \"telemetry\"\n[engine]\nkind = \"vllm\"\nurl = \"{}\"\n\
             [[test]]\nkind = \"decode\"\nduration = \"100ms\"\nmin-tokens = 60\nmax-output = 40\n\
             [policy]\nunjudged = \"allow\"\nmax-client-lag = \"10m\"\n{more}",
            toy.url()
        ),
    );
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
    command.env("TOKGATE_NVML", library).env(nvml::SCRIPT, &gpus);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    project.ran(command.output().unwrap())
}

#[test]
fn a_gpu_that_is_lost_in_a_window_is_named_and_others_go_on() {
    let Some(library) = nvml::library() else { return };
    let bound = "[[expect]]\nmetric = \"power.mean\"\nmax = 10000\n";
    let first = h200(0, &["power 300000"]);
    let second = |more: &str| h200(1, &["power 300000", "temperature 60", more]);
    let (before, then) = (second("sm-clock 1980"), second("lost 0"));
    let ran = exits(changed(bound, &library, &(first.clone() + &before), &(first + &then)), 31);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("GPU 1 (NVIDIA H200) was lost: "), "{junit}");
    assert_eq!(verdict(&ran), "no-data");
    let seen = &measured(&ran)["telemetry"];
    let (first, second) = (&seen["gpus"][0], &seen["gpus"][1]);
    assert!(second["lost"].is_string() && second.get("energy").is_none(), "{seen}");
    assert!(first.get("lost").is_none() && first["energy"].as_f64() > Some(0.0), "{seen}");
}

#[test]
fn a_cell_that_passes_and_loses_a_gpu_says_so_and_is_an_error_by_policy() {
    let Some(library) = nvml::library() else { return };
    let bound = "[[expect]]\nmetric = \"output-throughput\"\nmin = 0.001\n";
    let gpus = |more: &str| h200(0, &["utilisation 0"]) + &h200(1, &["utilisation 0", more]);
    for (policy, code, verdict) in [("warn", 0, "pass"), ("error", 31, "error")] {
        let more = format!("hardware-fault = \"{policy}\"\n{bound}");
        let ran = exits(changed(&more, &library, &gpus("temperature 60"), &gpus("lost 0")), code);
        let judged = &ran.record()["cells"][0]["judgement"];
        let said = "hardware was suspect: GPU 1 was lost: ";
        assert!(judged["message"].as_str().unwrap().contains(said), "{judged}");
        assert!(ran.read("junit.xml").contains(said));
        if !disturbed(&ran) {
            assert_eq!(judged["verdict"], verdict, "{judged}");
        }
    }
}

#[test]
fn what_befell_a_gpu_in_the_window_stands_in_the_record() {
    let Some(library) = nvml::library() else { return };
    let own = std::process::id();
    let gpus = h200(
        0,
        &[
            "power 500000",
            "utilisation 97",
            "sm-clock 1410",
            "memory-clock 3201",
            "temperature 88",
            // By heat, by software; and at its power cap.
            "throttle 36",
            "ecc-uncorrected 0",
            "series ecc-corrected 0:0 6000:60000",
            &format!("process {own} 1073741824"),
        ],
    );
    // One each second, since nobody knows when the window is.
    let xids: String = (1..120).map(|n| format!("gpu 0 xid {n}.5 {}\n", 100 + n)).collect();
    let ran = exits(run(&project(""), &library, &(gpus + &xids)), 0);
    let seen = measured(&ran)["telemetry"].clone();
    let gpu = &seen["gpus"][0];
    assert_eq!(gpu["throttled"], serde_json::json!({"power-cap": 1.0, "thermal-software": 1.0}));
    for (series, level) in [
        ("utilisation", 97.0),
        ("sm-clock", 1410.0),
        ("memory-clock", 3201.0),
        ("temperature", 88.0),
    ] {
        assert_eq!(gpu[series]["mean"], level, "{series}");
    }
    assert!(gpu["ecc-corrected"].as_u64() >= Some(1) && gpu["ecc-uncorrected"] == 0, "{gpu}");
    assert!(!gpu["xid"].as_array().unwrap().is_empty(), "{gpu}");
    // This test's own process computes there, as the driver says, and tokgate did not start it.
    let foreign = gpu["foreign"][0].as_str().unwrap_or_else(|| panic!("{gpu}"));
    assert!(foreign.starts_with(&format!("process {own} (")), "{foreign}");
    assert!(foreign.ends_with(" 1.0 GiB"), "{foreign}");
}

#[test]
fn only_gpus_that_the_engine_sees_are_looked_at() {
    let Some(library) = nvml::library() else { return };
    let project = project("");
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let env = "kind = \"sim\"\nenv = { CUDA_VISIBLE_DEVICES = \"2\" }";
    project.file("suite.toml", &suite.replace("kind = \"sim\"", env));
    let gpus: String = (0..4).map(|n| h200(n, &[&format!("power {}00000", n + 1)])).collect();
    let ran = exits(run(&project, &library, &gpus), 0);
    let seen = measured(&ran)["telemetry"].clone();
    assert_eq!(seen["gpus"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(
        (&seen["gpus"][0]["index"], &seen["gpus"][0]["power"]["mean"]),
        (&2.into(), &300.0.into())
    );
    assert!((figure(&measured(&ran), "power.mean") - 300.0).abs() < 3.0);
}

#[test]
fn a_driver_that_hangs_hangs_nobody() {
    let Some(library) = nvml::library() else { return };
    let bound = "[[expect]]\nmetric = \"power.mean\"\nmax = 10000\n";
    let gpu = |more: &str| h200(0, &["power 300000", more]);
    let ran = exits(changed(bound, &library, &gpu("temperature 60"), &gpu("hang 0")), 31);
    assert!(ran.read("junit.xml").contains("the driver has not answered for "), "{}", ran.stdout);
    assert!(figure(&measured(&ran), "output-tokens") > 0.0);
}

#[test]
fn of_an_engine_that_was_running_only_who_comes_later_is_foreign() {
    let Some(library) = nvml::library() else { return };
    let (there, comes) = ("process 999999999 1073741824", "process 999999998 2147483648");
    let gpu = |more: &[&str]| h200(0, &[&["power 300000"], more].concat());
    let ran = exits(changed("", &library, &gpu(&[there]), &gpu(&[there, comes])), 0);
    let seen = &measured(&ran)["telemetry"]["gpus"][0];
    let words = "process 999999998 (not to be seen from here) 2.0 GiB";
    assert_eq!(seen["foreign"], serde_json::json!([words]));
}

#[test]
fn every_kind_of_test_has_what_was_seen_of_its_own_time() {
    let Some(library) = nvml::library() else { return };
    let project = project("");
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let more = "[[test]]\nkind = \"prefill\"\nsamples = 2\n\
                [[test]]\nkind = \"serve\"\nrequests-per-stream = 8\noutput = 40\nrepeat = 2\nmatrix.concurrency = [1]\n\
                [[test]]\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"sleep 0.5; echo '{}' > $0\", \"{{ cell.dir }}/out.json\"]\n\
                result = \"out.json\"\nmetrics.none = { pointer = \"/none\", better = \"higher\", unit = \"\" }\n\
                [[test]]\nkind = \"startup\"\n[policy]";
    let command = "echo '{}'";
    let more = more.replace(command, "echo '{\\\"none\\\": 1}'");
    project.file("suite.toml", &suite.replace("[policy]", &more));
    let gpus = h200(0, &["power 500000", "used 3000000000"]);
    let ran = exits(run(&project, &library, &gpus), 0);
    let record = ran.record();
    let planned = record["header"]["cells"].as_array().unwrap();
    let mut kinds: Vec<&str> = Vec::new();
    for (planned, cell) in planned.iter().zip(record["cells"].as_array().unwrap()) {
        let (kind, measured) = (planned["kind"].as_str().unwrap(), &cell["state"]["measured"]);
        let seen = &measured["telemetry"];
        kinds.push(kind);
        if kind == "startup" {
            assert!(seen.is_null(), "{seen}");
            continue;
        }
        assert_eq!(seen["gpus"][0]["power"]["mean"], 500.0, "{kind}: {seen}");
        let joules = 500.0 * seen["seconds"].as_f64().unwrap();
        assert!(
            (seen["gpus"][0]["energy"].as_f64().unwrap() / joules - 1.0).abs() < 0.01,
            "{kind}: {seen}"
        );
        let has = measured["observations"].get("power.mean").is_some();
        assert_eq!(has, matches!(kind, "decode" | "serve"), "{kind}");
        if kind == "serve" {
            // The windows of both loads, and no more.
            let window = figure(measured, "measured-time");
            assert!((seen["seconds"].as_f64().unwrap() - window).abs() < 0.001, "{seen}");
            let each = joules / figure(measured, "output-tokens");
            assert!((figure(measured, "joules-per-token") / each - 1.0).abs() < 0.01, "{measured}");
        }
        if kind == "command" {
            assert!(seen["seconds"].as_f64().unwrap() >= 0.5, "{seen}");
        }
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["command", "decode", "prefill", "serve", "startup"]);
}

#[test]
fn several_launches_give_an_interval_and_one_telemetry() {
    let Some(library) = nvml::library() else { return };
    let bound = "[[expect]]\nmetric = \"power.mean\"\nmax = 400\nslack = \"50%\"\n";
    let project = project(bound);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &suite.replace("min-tokens = 1", "min-tokens = 1\nlaunches = 2"));
    let ran = exits(run(&project, &library, &h200(0, &["power 400000"])), 0);
    let record = ran.record();
    let cell = &record["cells"][0];
    let of = |measured: &Value| measured["telemetry"]["seconds"].as_f64().unwrap();
    let rounds = cell["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    let each: f64 = rounds.iter().map(|round| of(&round["state"]["measured"])).sum();
    let whole = &cell["state"]["measured"];
    assert!((of(whole) - each).abs() < 1e-3, "{whole}");
    assert_eq!(whole["telemetry"]["gpus"][0]["power"]["mean"], 400.0);
    let estimate = &cell["judgement"]["bounds"][0]["estimate"];
    assert_eq!(
        (&estimate["method"], &estimate["n"]),
        (&"launches".into(), &2.into()),
        "{estimate}"
    );
}

#[test]
fn the_engines_own_processes_are_known_by_their_parents() {
    let Some(library) = nvml::library() else { return };
    let own = std::process::id();
    let project = project("");
    // The engine takes memory as it starts, and somebody else does at the same time.
    let lines = [
        "driver 580.65.06",
        "gpu 0 name NVIDIA H200",
        "gpu 0 total 151397597184",
        "gpu 0 process $$ 2147483648",
        &format!("gpu 0 process {own} 1073741824"),
    ];
    let sim = env!("CARGO_BIN_EXE_tokgate");
    let text = lines.join("\\n");
    let script = format!(
        "printf \"{text}\\n\" > new\nmv new gpus\nexec {sim} sim --profile profile.toml --port $1\n"
    );
    project.file("engine.sh", &script);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let engine = "kind = \"vllm\"\ncommand = \"bash engine.sh {{ port }}\"";
    project
        .file("suite.toml", &suite.replace("kind = \"sim\"\nprofile = \"profile.toml\"", engine));
    let ran = exits(run(&project, &library, &h200(0, &[])), 0);
    let seen = measured(&ran)["telemetry"]["gpus"][0].clone();
    let foreign = seen["foreign"].as_array().unwrap();
    assert_eq!(foreign.len(), 1, "{seen}");
    assert!(foreign[0].as_str().unwrap().starts_with(&format!("process {own} (")), "{seen}");
}
