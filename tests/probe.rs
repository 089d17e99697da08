//! `tokgate probe`: what hardware an engine would see, on machines that a stub of the driver's library and recorded
//! output of AMD's tools stand for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tokgate::hardware::probe::Probe;

use crate::harness::{Project, Ran, shipped};
use crate::nvml;

/// A machine: what its driver says, which tools there are, what its environment hides.
struct Machine {
    project: Project,
    library: PathBuf,
}

impl Machine {
    /// With GPUs as the stub is scripted; `None` where it can't be built.
    fn nvidia(script: &str) -> Option<Machine> {
        let project = Project::new();
        project.file("gpu", script);
        Some(Machine { project, library: nvml::library()? })
    }

    /// Without a driver of NVIDIA's.
    fn plain() -> Machine {
        Machine { project: Project::new(), library: "/nowhere/libnvidia-ml.so".into() }
    }

    /// A tool on its `PATH`.
    fn tool(self, name: &str, script: &str) -> Machine {
        let path = self.project.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        mode.set_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        self
    }

    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = self.project.command(arguments);
        for hides in [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "NVIDIA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
        ] {
            command.env_remove(hides);
        }
        // No tool of the machine that the tests run on.
        command.env("PATH", self.project.path().join("bin"));
        command
            .env("TOKGATE_NVML", &self.library)
            .env(nvml::SCRIPT, self.project.path().join("gpu"));
        command.envs(variables.iter().copied());
        command
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        self.project.ran(self.command(arguments, variables).output().unwrap()).exits(0)
    }

    /// What it prints for people.
    fn text(&self, variables: &[(&str, &str)]) -> String {
        self.run(&["probe"], variables).stdout
    }

    /// What it prints for programs.
    fn json(&self, variables: &[(&str, &str)]) -> Value {
        let ran = self.run(&["probe", "--format", "json"], variables);
        assert_eq!(ran.stderr, "");
        // The type reads back what it wrote, and the schema holds of it.
        Probe::parse(&ran.stdout).unwrap();
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let schema = std::fs::read_to_string(shipped("schemas/probe.schema.json")).unwrap();
        let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
        let problems: Vec<String> =
            schema.iter_errors(&document).map(|it| it.to_string()).collect();
        assert!(problems.is_empty(), "{problems:?}\n{document:#}");
        document
    }
}

/// The lines of one GPU.
fn h200(index: u32) -> String {
    format!(
        "gpu {index} name NVIDIA H200\ngpu {index} total 150754820096\ngpu {index} used 1073741824\n\
         gpu {index} uuid GPU-{index}0000000-aaaa\ngpu {index} ecc 1\ngpu {index} mig 0\n\
         gpu {index} power-limit 700000\ngpu {index} power 121500\ngpu {index} sm-clock 345\n\
         gpu {index} max-sm-clock 1980\ngpu {index} memory-clock 3201\ngpu {index} max-memory-clock 3201\n\
         gpu {index} max-pcie 5 16\ngpu {index} pcie 1 16\ngpu {index} temperature 34\n{}",
        format!("gpu {index} nvlink 1\n").repeat(18)
    )
}

fn machine(gpus: u32) -> String {
    let gpus: String = (0..gpus).map(h200).collect();
    format!("driver 580.65.06\ncuda 13000\n{gpus}")
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn a_machine_without_a_gpu_says_so_and_why() {
    let machine = Machine::plain();
    let text = machine.text(&[]);
    assert!(text.contains("no GPU: "), "{text}");
    for row in ["host", "CPU", "memory", "load"] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}\n{text}");
    }
    let probe = machine.json(&[]);
    assert_eq!(probe["facts"]["gpus"], json!([]));
    assert!(probe["host"]["load"].is_array() && probe["host"]["affinity"].is_number(), "{probe:#}");
    let given = machine.json(&[("NVIDIA_VISIBLE_DEVICES", "all")]);
    if !Path::new("/dev/kfd").exists() {
        let note = given["facts"]["gpu-note"].as_str().unwrap();
        assert!(note.starts_with("no NVIDIA driver: TOKGATE_NVML = /nowhere"), "{note}");
        assert!(note.contains("was this container started with the NVIDIA runtime?"), "{note}");
    }
}

#[test]
fn every_fact_of_eight_h200_is_told() {
    let Some(machine) = Machine::nvidia(&machine(8)) else { return };
    let probe = machine.json(&[]);
    let facts = &probe["facts"];
    assert_eq!((&facts["driver"], &facts["cuda"]), (&json!("580.65.06"), &json!("13.0")));
    assert_eq!(facts["gpus"].as_array().unwrap().len(), 8);
    assert_eq!(
        facts["gpus"][7],
        json!({
            "name": "NVIDIA H200", "memory": 150_754_820_096_u64, "index": 7, "uuid": "GPU-70000000-aaaa",
            "mig": false, "ecc": true, "power-limit": 700.0, "max-sm-clock": 1980, "max-memory-clock": 3201,
            "pcie": "gen5 x16", "nvlinks": 18
        })
    );
    let now = &probe["gpus"][7];
    assert_eq!(now["occupancy"]["used"], json!(1_073_741_824));
    assert_eq!((&now["sm-clock"], &now["pcie"]), (&json!(345), &json!("gen1 x16")));
    assert_eq!((&now["temperature"], &now["power"]), (&json!(34.0), &json!(121.5)));
    // A link that sleeps is nothing to note.
    assert_eq!((&facts["gpu-note"], &probe["notes"]), (&Value::Null, &Value::Null));
    let text = machine.text(&[]);
    for line in [
        "driver    580.65.06 · CUDA 13.0",
        "GPU 7     NVIDIA H200 · 140.4 GiB, 1 GiB in use · ECC on · 18 NVLinks · GPU-70000000-aaaa",
        "          122 of 700 W · 345 of 1980 MHz SM · 3201 of 3201 MHz memory · PCIe gen1 x16 of gen5 x16 · 34 °C",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
}

#[test]
fn what_the_driver_does_not_tell_is_absent() {
    let script = "driver 470.57.02\ngpu 0 name Tesla V100\ngpu 0 total 17179869184\n";
    let Some(machine) = Machine::nvidia(script) else { return };
    let gpu = json!({ "name": "Tesla V100", "memory": 17_179_869_184_u64, "index": 0 });
    let probe = machine.json(&[]);
    assert_eq!(probe["facts"]["gpus"], json!([gpu]));
    assert!(machine.text(&[]).contains("GPU 0     Tesla V100 · 16 GiB, 0 GiB in use\n"));
}

#[test]
fn those_who_compute_are_told_from_those_who_draw() {
    let own = std::process::id();
    let script = format!(
        "{}gpu 0 process {own} 2147483648\ngpu 0 process 3999999999 1073741824\n\
         gpu 0 graphics {own} 1048576\ngpu 0 graphics 3999999998 104857600\n",
        machine(1)
    );
    let Some(machine) = Machine::nvidia(&script) else { return };
    let probe = machine.json(&[]);
    let occupancy = &probe["gpus"][0]["occupancy"];
    assert_eq!(occupancy["tenants"][0]["pid"], json!(own));
    assert!(occupancy["tenants"][0]["name"].as_str().unwrap().starts_with("tests"), "{occupancy}");
    assert_eq!(
        occupancy["tenants"][1],
        json!({ "pid": 3_999_999_999_u32, "bytes": 1_073_741_824 })
    );
    // One that does both stands in both of the driver's lists, and computes.
    assert_eq!(occupancy["graphics"], json!([{ "pid": 3_999_999_998_u32, "bytes": 104_857_600 }]));
    let text = machine.text(&[]);
    assert!(text.contains(&format!("computes: process {own} (tests")), "{text}");
    assert!(
        text.contains("draws: process 3999999998 (not to be seen from here) 0.1 GiB"),
        "{text}"
    );
}

#[test]
fn only_what_cuda_visible_devices_shows_counts() {
    let Some(machine) = Machine::nvidia(&machine(4)) else { return };
    let shown = |variables: &[(&str, &str)]| {
        let probe = machine.json(variables);
        let gpus = probe["facts"]["gpus"].as_array().unwrap();
        let shown: Vec<u64> = gpus.iter().map(|gpu| gpu["index"].as_u64().unwrap()).collect();
        let now = probe["gpus"].as_array().unwrap();
        let beside: Vec<u64> =
            now.iter().map(|it| it["occupancy"]["index"].as_u64().unwrap()).collect();
        assert_eq!(shown, beside, "readings stand beside their GPUs");
        (shown, probe["facts"]["gpu-note"].as_str().unwrap_or_default().to_owned())
    };
    let hides = |list: &'static str| shown(&[("CUDA_VISIBLE_DEVICES", list)]);
    assert_eq!(hides("2,0").0, [2, 0]);
    assert_eq!(hides("GPU-3,1").0, [3, 1]);
    assert_eq!(hides("1,8,2"), {
        let note = "CUDA_VISIBLE_DEVICES=\"1,8,2\" shows 1 of 4 GPUs: there is no 8";
        (vec![1], note.to_owned())
    });
    assert_eq!(hides("").0, [0_u64; 0]);
    // What a container was given is there already; this hides nothing.
    assert_eq!(shown(&[("NVIDIA_VISIBLE_DEVICES", "1")]).0.len(), 4);
    let none = machine.text(&[("CUDA_VISIBLE_DEVICES", "-1")]);
    assert!(none.contains("no GPU: CUDA_VISIBLE_DEVICES=\"-1\" shows 0 of 4 GPUs"), "{none}");
}

#[test]
fn an_order_that_cuda_may_not_share_is_noted() {
    let script = format!("{}gpu 1 name NVIDIA RTX 2000\ngpu 1 total 1\n", machine(1));
    let Some(machine) = Machine::nvidia(&script) else { return };
    let notes = |order: &str| {
        let first = ("CUDA_VISIBLE_DEVICES", "0");
        machine.json(&[first, ("CUDA_DEVICE_ORDER", order)])["notes"].to_string()
    };
    assert!(notes("FASTEST_FIRST").contains("CUDA_DEVICE_ORDER=PCI_BUS_ID makes them one"));
    assert_eq!(notes("PCI_BUS_ID"), "null");
}

#[test]
fn a_slice_is_what_the_engine_sees_with_its_own_memory() {
    let script = machine(2).replace("gpu 1 mig 0", "gpu 1 mig 1")
        + "gpu 1 slice MIG-aaaa-1 3g.71gb 74893492224 1048576 2 0\n\
           gpu 1 slice MIG-bbbb-2 1g.18gb 18790481920 2097152 9 1\n\
           gpu 1 slice1-process 3999999999 2097152\n";
    let Some(machine) = Machine::nvidia(&script) else { return };
    let of = |list: &str| machine.json(&[("CUDA_VISIBLE_DEVICES", list)]);
    let second = json!([{
        "name": "NVIDIA H200", "memory": 18_790_481_920_u64, "index": 1, "uuid": "MIG-bbbb-2",
        "slice": "1g.18gb", "ecc": true
    }]);
    for spelling in ["MIG-bbbb-2", "MIG-GPU-10000000-aaaa/9/1"] {
        let probe = of(spelling);
        assert_eq!(probe["facts"]["gpus"], second, "{spelling}");
        let occupancy = &probe["gpus"][0]["occupancy"];
        assert_eq!(occupancy["used"], json!(2_097_152));
        assert_eq!(occupancy["tenants"][0]["pid"], json!(3_999_999_999_u32));
    }
    assert_eq!(of("1")["facts"]["gpus"][0]["slice"], json!("3g.71gb"), "its first slice");
    assert_eq!(of("0")["facts"]["gpus"][0]["slice"], Value::Null);
    assert_eq!(of("MIG-GPU-10000000-aaaa/9/0")["facts"]["gpus"], json!([]));
    // Told nothing, CUDA shows one slice and no whole GPU beside it.
    let probe = machine.json(&[]);
    let gpus = probe["facts"]["gpus"].as_array().unwrap();
    assert_eq!((gpus.len(), &gpus[0]["uuid"]), (1, &json!("MIG-aaaa-1")));
    let note = probe["facts"]["gpu-note"].as_str().unwrap();
    assert!(note.contains("one slice (MIG), and there are 2"), "{note}");
    let text = machine.text(&[("CUDA_VISIBLE_DEVICES", "MIG-bbbb-2")]);
    assert!(text.contains("GPU 1     NVIDIA H200 MIG 1g.18gb · 17.5 GiB"), "{text}");
}

#[test]
fn a_link_that_lacks_lanes_is_noted() {
    let script = machine(2).replace("gpu 1 pcie 1 16", "gpu 1 pcie 5 8");
    let Some(machine) = Machine::nvidia(&script) else { return };
    let note = "GPU 1 is on a PCIe link of gen5 x8 that could be gen5 x16";
    assert_eq!(machine.json(&[])["notes"], json!([note]));
    assert!(machine.text(&[]).contains(&format!("note      {note}\n")));
}

#[test]
fn a_lost_gpu_is_named_and_the_others_are_there() {
    let Some(machine) = Machine::nvidia(&(machine(3) + "gpu 1 lost yes\n")) else { return };
    let probe = machine.json(&[]);
    let gpus = probe["facts"]["gpus"].as_array().unwrap();
    let places: Vec<_> = gpus.iter().map(|gpu| gpu["index"].as_u64().unwrap()).collect();
    assert_eq!(places, [0, 2]);
    assert_eq!(probe["lost"][0]["index"], json!(1));
    let note = probe["facts"]["gpu-note"].as_str().unwrap();
    assert!(note.starts_with("GPU 1 can't be asked: device fell off the bus"), "{note}");
    assert!(machine.text(&[]).contains("GPUs      GPU 1 can't be asked"));
    // Its number stays its own.
    let probe = machine.json(&[("CUDA_VISIBLE_DEVICES", "1,2")]);
    assert_eq!(probe["facts"]["gpus"][0]["index"], json!(2));
}

#[test]
fn one_that_may_not_be_used_is_not_counted() {
    let Some(machine) = Machine::nvidia(&(machine(2) + "gpu 0 forbidden yes\n")) else { return };
    let probe = machine.json(&[("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(probe["facts"]["gpus"][0]["index"], json!(1), "the first that may");
    assert_eq!(strings(&probe["notes"]), ["1 more GPUs may not be used from here"]);
}

#[test]
fn a_gpu_that_does_not_answer_holds_up_nobody() {
    let Some(machine) = Machine::nvidia(&(machine(3) + "gpu 2 hang yes\n")) else { return };
    let ran = machine.run(&["probe", "--format", "json", "--timeout", "10s"], &[]);
    let probe = Probe::parse(&ran.stdout).unwrap();
    assert_eq!(probe.facts.gpus.len(), 2);
    let note = probe.facts.gpu_note.unwrap();
    assert_eq!(note, "GPU 2 can't be asked: it does not answer within 10s");
}

#[test]
fn a_driver_that_does_not_answer_is_no_driver() {
    let Some(machine) = Machine::nvidia(&(machine(1) + "hang yes\n")) else { return };
    let text = machine.run(&["probe", "--timeout", "300ms"], &[]).stdout;
    if !Path::new("/dev/kfd").exists() {
        let word = "no GPU: no NVIDIA driver: it does not answer within 300ms\n";
        assert!(text.contains(word), "{text}");
    }
    let wrong = machine.command(&["probe", "--timeout", "300"], &[]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(20));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("300s"), "{said}");
}

/// Prints a recorded output for each of these first words.
fn amd_smi(answers: &[(&str, &str)]) -> String {
    let folder = shipped("tests/data/amd");
    let case = |(word, file): &(&str, &str)| {
        format!("{word}) /bin/cat '{}';;", folder.join(file).display())
    };
    let cases: Vec<String> = answers.iter().map(case).collect();
    format!("[ \"$2\" = --json ] || exit 2\ncase $1 in {} *) exit 1;; esac", cases.join(" "))
}

fn mi300x() -> Machine {
    Machine::plain().tool(
        "amd-smi",
        &amd_smi(&[
            ("static", "amd-smi-static-mi300x.txt"),
            ("metric", "amd-smi-metric-mi300x.json"),
            ("process", "amd-smi-process-mi300x.json"),
            ("version", "amd-smi-version.json"),
        ]),
    )
}

#[test]
fn amd_s_gpus_are_told_by_amd_smi() {
    let machine = mi300x();
    let probe = machine.json(&[]);
    let facts = &probe["facts"];
    assert_eq!((&facts["driver"], &facts["cuda"]), (&json!("6.16.6"), &json!("7.0.2")));
    assert_eq!(facts["gpus"].as_array().unwrap().len(), 2);
    assert_eq!(facts["gpus"][1]["name"], json!("AMD Instinct MI300X"));
    assert_eq!(facts["gpus"][1]["memory"], json!(196_592_u64 << 20));
    assert_eq!(probe["gpus"][0]["occupancy"]["tenants"][0]["pid"], json!(2_168_274));
    assert_eq!((&facts["gpu-note"], &probe["notes"]), (&Value::Null, &Value::Null));
    let text = machine.text(&[]);
    assert!(text.contains("driver    6.16.6 · ROCm 7.0.2\n"), "{text}");
    assert!(text.contains("GPU 1     AMD Instinct MI300X · 192 GiB, 0.3 GiB in use"), "{text}");
    // Each variable counts what the one before it has left.
    let rocr = ("ROCR_VISIBLE_DEVICES", "GPU-6f1f0a2b3c4d5e6f,0");
    let probe = machine.json(&[rocr, ("HIP_VISIBLE_DEVICES", "0")]);
    assert_eq!(probe["facts"]["gpus"][0]["index"], json!(1));
    let note = probe["facts"]["gpu-note"].as_str().unwrap();
    assert!(note.contains("HIP_VISIBLE_DEVICES=\"0\" shows 1 of 2 GPUs"), "{note}");
}

#[test]
fn rocm_smi_is_asked_where_amd_smi_can_not_tell() {
    let file = shipped("tests/data/amd/rocm-smi-mi210-rocm5.json");
    let rocm_smi = format!("echo 'WARNING: odd'\n/bin/cat '{}'", file.display());
    for machine in
        [Machine::plain(), Machine::plain().tool("amd-smi", "echo 'no group render'; exit 1")]
    {
        let probe = machine.tool("rocm-smi", &rocm_smi).json(&[]);
        assert_eq!(probe["facts"]["gpus"].as_array().unwrap().len(), 2, "{probe:#}");
        assert_eq!(probe["facts"]["gpus"][1]["power-limit"], json!(300.0));
        assert!(strings(&probe["notes"])[0].contains("process 1905799"), "{probe:#}");
    }
}

#[test]
fn a_tool_that_tells_nothing_is_no_gpu_and_named() {
    let why = |script: &str| {
        let machine = Machine::plain().tool("amd-smi", script);
        let ran = machine.run(&["probe", "--format", "json", "--timeout", "2s"], &[]);
        Probe::parse(&ran.stdout).unwrap().facts.gpu_note.unwrap()
    };
    let silent = why("exec /bin/sleep 600");
    assert!(silent.starts_with("AMD: amd-smi: it does not answer within 2s; "), "{silent}");
    let machine = Machine::plain().tool("amd-smi", "echo 'no group render'; exit 1");
    let note = machine.json(&[])["facts"]["gpu-note"].as_str().unwrap().to_owned();
    let word = "AMD: amd-smi: it prints no JSON but: no group render; no NVIDIA driver: ";
    assert!(note.starts_with(word), "{note}");
    let hostile = Machine::plain().tool("amd-smi", "printf 'no\\033[31m group\\007'").text(&[]);
    assert!(hostile.contains("no GPU") && !hostile.contains(['\x1b', '\x07']), "{hostile:?}");
}

#[test]
fn a_machine_with_both_makes_is_one_with_nvidia_s() {
    let Some(machine) = Machine::nvidia(&machine(1)) else { return };
    let machine = machine.tool("amd-smi", "echo asked >> asked");
    let hidden = machine.json(&[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!(hidden["facts"]["gpus"], json!([]));
    assert!(!machine.project.path().join("asked").exists(), "hidden is not absent");
}

#[test]
fn a_record_has_the_facts_of_its_gpus() {
    let Some(machine) = Machine::nvidia(&machine(1)) else { return };
    machine.project.file(
        "suite.toml",
        "version = 1\n[suite]\nname = \"facts\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         [[test]]\nkind = \"prefill\"\n",
    );
    let ran = machine.run(&["run", "suite.toml", "--out", "out", "--no-progress"], &[]);
    let record = ran.record();
    let facts = &record["header"]["machine"];
    assert_eq!(facts["cuda"], json!("13.0"));
    assert_eq!(facts["gpus"][0]["power-limit"], json!(700.0));
    assert_eq!(facts["gpus"][0]["nvlinks"], json!(18));
}
