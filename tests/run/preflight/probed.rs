//! Facts out of `hardware.probe`: the GPUs are where tokgate is not.

use serde_json::json;

use super::{GIB, H200, Machine, failure, small};
use crate::harness::Ran;

/// What `tokgate probe --format json` prints where these GPUs are.
fn probe(gpus: &[serde_json::Value], processes: &[u32]) -> String {
    let tenants: Vec<_> =
        processes.iter().map(|pid| json!({ "pid": pid, "bytes": GIB, "name": "train" })).collect();
    let now: Vec<_> = gpus
        .iter()
        .map(|gpu| {
            let occupancy = json!({ "index": gpu["index"], "name": gpu["name"], "used": 0, "tenants": tenants });
            json!({ "occupancy": occupancy })
        })
        .collect();
    let facts = json!({
        "os": "linux", "kernel": "6.8", "hostname": "node-7", "cpu": "EPYC", "cores": 96, "memory": 1u64 << 40,
        "gpus": gpus, "driver": "580.65.06", "cuda": "13.0", "gpu-note": null,
    });
    let probe = json!({ "format": 1, "tokgate": "1", "time": "2026-01-01T00:00:00Z", "facts": facts, "gpus": now, "host": {} });
    format!("srun: job 7 has been allocated\n{}\n", serde_json::to_string_pretty(&probe).unwrap())
}

fn remote(index: u32) -> serde_json::Value {
    json!({ "name": "NVIDIA H200", "memory": H200, "index": index })
}

fn eight() -> Vec<serde_json::Value> {
    (0..8).map(remote).collect()
}

const PROBED: &str = "[hardware]\ngpu = \"H200\"\ncount = 8\nvram = \"141GB\"\ndriver = \">=570\"\ncuda = \">=12.8, <14\"\n\
                      probe = \"sh probe.sh {{ env.NODE }}\"\n[secrets]\nnode_key = { generate = true }\n";

fn probed(script: &str, more: &str) -> Machine {
    let machine = Machine::without_gpus(&small(PROBED, more, "[1]"));
    machine.project.file("probe.sh", script);
    machine
}

fn run_probed(machine: &Machine, more: &[&str]) -> Ran {
    let mut arguments = vec!["run", "suite.toml", "--out", "out", "--no-progress"];
    arguments.extend(more);
    machine.with_environment(&arguments, &[("NODE", "node-7")])
}

#[test]
fn facts_may_come_from_where_the_gpus_are() {
    let machine = probed(
        "echo $1 $CUDA_VISIBLE_DEVICES > asked; echo 'srun: warning' >&2; cat probe.json",
        "env = { CUDA_VISIBLE_DEVICES = \"0,1,2,3,4,5,6,7\" }",
    );
    machine.project.file("probe.json", &probe(&eight(), &[]));
    for arguments in
        [&["check", "suite.toml"][..], &["list", "suite.toml"], &["plan", "suite.toml"]]
    {
        machine.with_environment(arguments, &[("NODE", "node-7")]);
        assert!(!machine.project.path().join("asked").exists(), "{arguments:?}");
    }
    let ran = run_probed(&machine, &[]).exits(30);
    assert_ne!(failure(&ran, 0).0, "hardware");
    let asked = std::fs::read_to_string(machine.project.path().join("asked")).unwrap();
    assert_eq!(asked, "node-7 0,1,2,3,4,5,6,7\n");
    let record = ran.record();
    let told = &record["header"]["machine"];
    assert_eq!(told["gpus"].as_array().unwrap().len(), 8);
    assert_eq!((&told["driver"], &told["cuda"]), (&json!("580.65.06"), &json!("13.0")));
    assert_ne!(told["hostname"], "node-7", "the host is the one of this run");
    let facts = &record["header"]["provenance"]["facts"];
    assert_eq!((&facts["hardware.count"], &facts["hardware.cpu"]), (&json!("8"), &json!("EPYC")));

    machine.project.file("probe.json", &probe(&eight()[..7], &[]));
    let (step, message) = failure(&run_probed(&machine, &[]).exits(22), 0);
    assert_eq!(
        (step.as_str(), message.as_str()),
        ("hardware", "hardware is not as declared: hardware.count: declared 8, found 7")
    );
    machine.project.file("probe.json", &probe(&eight(), &[4711]));
    let (_, message) = failure(&run_probed(&machine, &[]).exits(22), 0);
    assert!(message.contains("GPU 5 (NVIDIA H200): process 4711 (train) 1.0 GiB"), "{message}");
    // Of an engine that runs there, these are its own.
    let ran = run_probed(
        &machine,
        &["--url", "http://127.0.0.1:1", "--set", "engine.ready.timeout=\"1s\""],
    )
    .exits(30);
    assert_ne!(failure(&ran, 0).0, "hardware");
}

#[test]
fn a_slice_is_no_whole_gpu() {
    let machine = probed("cat probe.json", "");
    let slice = |index: u32| json!({ "name": "NVIDIA H200", "memory": 69u64 << 30, "index": index, "slice": "3g.71gb", "mig": true });
    machine.project.file("probe.json", &probe(&(0..8).map(slice).collect::<Vec<_>>(), &[]));
    let (_, message) = failure(&run_probed(&machine, &[]).exits(22), 0);
    assert!(message.contains("hardware.vram: declared 141 GB (or 141 GiB), within 5 %, found 69 GiB (GPU 0 slice 3g.71gb, 1 slice"), "{message}");
    let ran = run_probed(&machine, &["--set", "hardware.vram=\"69GiB\""]).exits(30);
    assert_ne!(failure(&ran, 0).0, "hardware");
}

#[test]
fn a_probe_that_tells_nothing_is_told_with_what_it_printed() {
    for (script, told) in [
        (
            "echo 'srun: error: Unable to allocate' >&2; exit 3",
            ["failed: exit code 3", "it printed: srun: error: Unable to allocate"],
        ),
        (
            "echo 'bash: tokgate: command not found'",
            [
                "ended well and told no JSON document in it",
                "it printed: bash: tokgate: command not found",
            ],
        ),
        ("exit 0", ["told no JSON document", "it printed nothing"]),
        (
            "echo '{\"gpus\": 3}'",
            ["not what `tokgate probe --format json` prints", "it printed: {\"gpus\": 3}"],
        ),
        ("kill -9 $$", ["failed: killed by", "it printed nothing"]),
        // What never ends is ended before it fills the disk.
        ("exec yes", ["failed: killed by", "it printed: y / y / y"]),
    ] {
        let machine = probed(script, "");
        let ran = run_probed(&machine, &[]).exits(22);
        let (step, message) = failure(&ran, 0);
        assert_eq!(step, "hardware");
        assert!(message.starts_with("hardware.probe: `sh probe.sh node-7` "), "{message}");
        assert!(told.iter().all(|told| message.contains(told)), "{message}");
        assert!(!machine.project.path().join("launched-1").exists());
    }
    let machine = probed("exit 3", "");
    run_probed(&machine, &["--set", "hardware.probe=\"no-such-program\""]).exits(22);
}

#[test]
fn a_probe_knows_secrets_and_does_not_tell_them() {
    let machine = probed("echo $1; exit 3", "");
    let set = "hardware.probe=\"sh probe.sh {{ secret.node_key }}\"";
    let (_, message) = failure(&run_probed(&machine, &["--set", set]).exits(22), 0);
    assert!(
        message.contains("`sh probe.sh [redacted]`") && message.contains("exit code 3"),
        "{message}"
    );
}
