//! Hardware that is not in order while cells are measured on the simulated engine, in real time over TCP: the
//! sampler looks at a stub of the driver, and verdict, message and exit code follow.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::telemetry::{PROFILE, disturbed, exits, h200};
use crate::harness::{Project, Ran, eventually};
use crate::nvml;

const DRIVER: &str = "driver 580.65.06\n";

/// Runs its suite where the driver says what stands in `gpus`.
fn command(project: &Project, library: &Path, gpus: &str, more: &[&str]) -> std::process::Command {
    project.file("gpus", &format!("{DRIVER}{gpus}"));
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    command.args(more).env("TOKGATE_NVML", library);
    command.env(nvml::SCRIPT, project.path().join("gpus")).env_remove("CUDA_VISIBLE_DEVICES");
    command
}

fn run(project: &Project, library: &Path, gpus: &str, more: &[&str]) -> Ran {
    let mut command = command(project, library, gpus, more);
    project.ran(command.arg("--no-progress").output().unwrap())
}

/// Lets the driver say something else from now on, all at once.
fn say(project: &Project, gpus: &str) {
    let new = project.file("new", &format!("{DRIVER}{gpus}"));
    std::fs::rename(new, project.path().join("gpus")).unwrap();
}

fn measured(ran: &Ran) -> Value {
    ran.record()["cells"][0]["state"]["measured"].clone()
}

fn judgement(ran: &Ran, cell: usize) -> Value {
    ran.record()["cells"][cell]["judgement"].clone()
}

/// Two GPUs, of which one is hot in the second of three cells. The engine of each changes what the driver says, and
/// serves once the sampler has been told.
fn heated(library: &Path, least: &str, policy: &str, more: &[&str]) -> Ran {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"blamed\"\n[hardware]\nsampling = \"20ms\"\n\
         [engine]\nkind = \"vllm\"\ncommand = \"bash engine.sh {{{{ port }}}} {{{{ axis.n }}}}\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"300ms\"\nmin-tokens = 1\nmax-output = 400\n\
         ttft-samples = 3\nmatrix.n = [1, 2, 3]\n\
         [[expect]]\nmetric = \"output-throughput\"\nmin = {least}\n\
         [policy]\nmax-client-lag = \"10m\"\nhardware-fault = \"{policy}\"\n"
    ));
    project.file("profile.toml", PROFILE);
    let sim = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "mv gpus-$2 gpus\nuntil [ -e gpus.$2 ]; do sleep 0.05; done\n\
         exec {sim} sim --profile profile.toml --port $1\n"
    );
    project.file("engine.sh", &script);
    let gpus = |throttle: &str| h200(0, &[IDLE, SOUND]) + &h200(1, &[IDLE, throttle]);
    // By software, for heat.
    for (n, throttle) in [(1, SOUND), (2, "throttle 36"), (3, SOUND)] {
        project.file(&format!("gpus-{n}"), &format!("{DRIVER}tell {n}\n{}", gpus(throttle)));
    }
    run(&project, library, &gpus(SOUND), more)
}

/// At its power cap.
const SOUND: &str = "throttle 4";
/// How busy the host is, which these tests are not about, is told where GPUs work.
const IDLE: &str = "utilisation 0";
const HOT: &str = "hardware was suspect: GPU 1 throttled by heat in 100 % of the time";

#[test]
fn one_cell_of_three_that_was_throttled_says_so_where_it_fails() {
    let Some(library) = nvml::library() else { return };
    let ran = exits(heated(&library, "1e9", "warn", &[]), 10);
    for cell in 0..3 {
        let judged = judgement(&ran, cell);
        let suspect = cell == 1;
        assert_eq!(judged["message"].as_str().unwrap().contains(HOT), suspect, "{judged}");
        assert_eq!(judged["warnings"].to_string().contains("hardware"), suspect, "{judged}");
        if !disturbed(&ran) {
            assert_eq!((&judged["verdict"], &judged["class"]), (&"fail".into(), &"limit".into()));
        }
    }
    for report in ["junit.xml", "summary.md", "report.html"] {
        assert!(ran.read(report).contains(HOT), "{report}");
    }
}

#[test]
fn one_cell_of_three_that_was_throttled_is_an_error_where_policy_says_so() {
    let Some(library) = nvml::library() else { return };
    let ran = exits(heated(&library, "0.001", "error", &[]), 31);
    let judged = judgement(&ran, 1);
    assert_eq!(judged["verdict"], "error", "{judged}");
    if !disturbed(&ran) {
        assert_eq!(judged["class"], "hardware", "{judged}");
        let message = judged["message"].as_str().unwrap();
        assert!(
            message.starts_with(HOT) && message.contains("by policy.hardware-fault"),
            "{message}"
        );
        assert_eq!(ran.having("pass").len(), 2);
        assert!(ran.read("junit.xml").contains("type=\"hardware\""));
    }
}

#[test]
fn one_cell_of_three_that_was_throttled_and_passes_is_a_warning() {
    let Some(library) = nvml::library() else { return };
    let ran = exits(heated(&library, "0.001", "warn", &["--deny-warnings"]), 11);
    let judged = judgement(&ran, 1);
    assert!(judged["warnings"].to_string().contains(HOT), "{judged}");
    if !disturbed(&ran) {
        assert_eq!(ran.having("pass").len(), 3);
    }
}

#[test]
fn an_engine_that_dies_with_its_gpu_says_so() {
    let Some(library) = nvml::library() else { return };
    let project = Project::with(
        "version = 1\n[suite]\nname = \"blamed\"\n[hardware]\nsampling = \"20ms\"\n\
         [engine]\nkind = \"openai\"\ncommand = \"bash engine.sh {{ port }}\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"10m\"\nmax-output = 400\n\
         [policy]\nunjudged = \"allow\"\nmax-client-lag = \"10m\"\nrestarts = 0\n",
    );
    project.file("profile.toml", PROFILE);
    // Once the cell has begun a GPU falls off the bus, and the engine goes as soon as that is known.
    let sim = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "{sim} sim --profile profile.toml --port $1 &\nuntil grep -q cell-started out/journal.jsonl; do sleep 0.05; done\n\
         mv lost gpus\nuntil [ -e gpus.told ]; do sleep 0.05; done\nkill -9 $!\nexit 134\n"
    );
    project.file("engine.sh", &script);
    let first = h200(0, &["power 600000"]);
    let more = ["xid 0 31", "lost yes"];
    project.file("lost", &format!("{DRIVER}{first}{}", h200(1, &more)));
    let ran = run(&project, &library, &(first + &h200(1, &["power 600000"])), &[]).exits(30);
    let cell = &ran.record()["cells"][0];
    let (broken, judged) = (&cell["state"]["broken"], &cell["judgement"]);
    assert_eq!(broken["class"], "engine-died", "{cell}");
    let message = broken["message"].as_str().unwrap();
    let said = "; hardware was suspect: GPU 1 was lost: ";
    assert!(
        message.starts_with("the engine died: exit code 134") && message.contains(said),
        "{message}"
    );
    assert!(judged["message"].as_str().unwrap().contains(said), "{judged}");
    assert!(ran.read("junit.xml").contains(said) && ran.read("summary.md").contains(said));
}

#[test]
fn an_engine_that_dies_on_sound_hardware_blames_nobody() {
    let Some(library) = nvml::library() else { return };
    let project = Project::with(
        "version = 1\n[suite]\nname = \"blamed\"\n[engine]\nkind = \"sim\"\nprofile = \"profile.toml\"\n\
         [[test]]\nkind = \"decode\"\nmax-output = 400\n[policy]\nunjudged = \"allow\"\nrestarts = 0\n",
    );
    project.file("profile.toml", &format!("{PROFILE}[[fault]]\nkind = \"crash\"\nat-token = 40\n"));
    let ran = run(&project, &library, &h200(0, &["throttle 36", "temperature 95"]), &[]).exits(30);
    let broken = &ran.record()["cells"][0]["state"]["broken"];
    assert_eq!(broken["class"], "engine-died", "{broken}");
    assert!(!broken["message"].as_str().unwrap().contains("hardware"), "{broken}");
}

#[test]
fn an_engine_is_started_once_its_gpus_are_cool() {
    let Some(library) = nvml::library() else { return };
    let project = Project::with(
        "version = 1\n[suite]\nname = \"blamed\"\n[hardware]\ncool-below = 50\n\
         [engine]\nkind = \"openai\"\ncommand = \"bash engine.sh {{ port }}\"\n\
         [[test]]\nkind = \"startup\"\nlaunches = 2\n[policy]\nunjudged = \"allow\"\n",
    );
    // It heats its GPU as soon as it is there.
    let sim = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "grep -q 'temperature 50' gpus || touch early\nmv hot gpus; exec {sim} sim --port $1\n"
    );
    project.file("engine.sh", &script);
    let gpus = |celsius: u32| {
        h200(0, &["temperature 30"]) + &h200(1, &[&format!("temperature {celsius}")])
    };
    let said = project.path().join("said");
    let file = std::fs::File::create(&said).unwrap();
    let hot = || drop(project.file("hot", &format!("{DRIVER}{}", gpus(70))));
    hot();
    let mut command = command(&project, &library, &gpus(70), &["--verbose"]);
    command.stdout(file.try_clone().unwrap()).stderr(file).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    for starts in 1..=2 {
        let waits = "waiting until 50 °C at most: GPU 1 (NVIDIA H200) has 70 °C";
        eventually("it waits", || {
            std::fs::read_to_string(&said).unwrap().matches(waits).count() == starts
        });
        assert!(!project.path().join("early").exists());
        say(&project, &gpus(51));
        hot();
        say(&project, &gpus(50));
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", std::fs::read_to_string(&said).unwrap());
    assert!(!project.path().join("early").exists());
}

/// A decode test of a second, looked at as `sampling` says.
fn sampled(library: &Path, sampling: &str, more: &str, code: i32) -> Ran {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"blamed\"\n[hardware]\nsampling = \"{sampling}\"\n\
         [engine]\nkind = \"sim\"\nprofile = \"profile.toml\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"1s\"\nmin-tokens = 1\nmax-output = 400\nttft-samples = 3\n\
         [policy]\nunjudged = \"allow\"\nmax-client-lag = \"10m\"\n{more}"
    ));
    project.file("profile.toml", PROFILE);
    exits(run(&project, library, &h200(0, &["power 500000"]), &[]), code)
}

#[test]
fn who_looks_rarely_knows_the_energy_all_the_same() {
    let Some(library) = nvml::library() else { return };
    let ran = sampled(&library, "1m", "", 0);
    let measured = &measured(&ran);
    let seen = &measured["telemetry"];
    // Only what was asked for at the ends of the window.
    assert!(seen["samples"].as_u64() <= Some(2), "{seen}");
    let joules = 500.0 * seen["seconds"].as_f64().unwrap();
    let told = seen["gpus"][0]["energy"].as_f64().unwrap_or_else(|| panic!("{seen}"));
    assert!((told / joules - 1.0).abs() < 0.01, "{seen}");
}

#[test]
fn who_does_not_look_has_no_figures_and_says_why() {
    let Some(library) = nvml::library() else { return };
    let ran = sampled(&library, "off", "", 0);
    assert!(measured(&ran).get("telemetry").is_none());
    let bound = "[[expect]]\nmetric = \"power.mean\"\nmax = 1000\n";
    let ran = sampled(&library, "off", bound, 31);
    let junit = ran.read("junit.xml");
    assert!(
        junit.contains("needs GPU telemetry, of which there is none where nothing is sampled"),
        "{junit}"
    );
}
