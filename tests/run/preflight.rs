//! What is looked at before anything is launched: the GPUs that an engine will see, and who is on them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::harness::{Project, Ran, shipped};
use crate::nvml;

mod probed;

/// Memory of an H200 as its driver says it.
const H200: u64 = 143_771 << 20;
const GIB: u64 = 1 << 30;

/// GPUs as the driver describes them.
#[derive(Clone)]
struct Gpus {
    driver: &'static str,
    names: Vec<&'static str>,
    total: u64,
    /// `GPU, process, bytes`.
    tenants: Vec<(usize, u32, u64)>,
    /// Bytes in use besides.
    rest: u64,
}

impl Gpus {
    fn h200s(count: usize) -> Gpus {
        let names = vec!["NVIDIA H200"; count];
        Gpus { driver: "580.65.06", names, total: H200, tenants: Vec::new(), rest: 0 }
    }

    fn script(&self) -> String {
        let mut text = format!("driver {}\n", self.driver);
        for (gpu, name) in self.names.iter().enumerate() {
            let tenants = self.tenants.iter().filter(|(at, ..)| *at == gpu);
            let used = self.rest + tenants.clone().map(|(_, _, bytes)| bytes).sum::<u64>();
            let total = self.total;
            writeln!(text, "gpu {gpu} name {name}\ngpu {gpu} total {total}").unwrap();
            writeln!(text, "gpu {gpu} used {used}\ngpu {gpu} uuid GPU-{gpu}").unwrap();
            for (_, pid, bytes) in tenants {
                writeln!(text, "gpu {gpu} process {pid} {bytes}").unwrap();
            }
        }
        text
    }
}

/// A machine with these GPUs, or with none.
struct Machine {
    project: Project,
    library: PathBuf,
}

impl Machine {
    fn with(suite: &str, gpus: &Gpus) -> Option<Machine> {
        let machine = Machine { project: Project::with(suite), library: nvml::library()? };
        machine.project.file("gpus", &gpus.script());
        Some(machine)
    }

    fn without_gpus(suite: &str) -> Machine {
        let project = Project::with(suite);
        let library = project.path().join("libnvidia-ml.so.1");
        Machine { project, library }
    }

    /// The shipped suite of eight H200, whose engine is a program that fails at once.
    fn of_the_page(gpus: &Gpus) -> Option<Machine> {
        let page = std::fs::read_to_string(shipped("suites/inkling-small-h200x8.toml")).unwrap();
        let machine = Machine::with(&page, gpus)?;
        for (program, script) in [("hf", "exit 0"), ("vllm", "touch launched; exit 3")] {
            let path = machine.project.file(program, &format!("#!/bin/sh\n{script}\n"));
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(machine)
    }

    fn tokgate(&self, arguments: &[&str]) -> Ran {
        self.with_environment(arguments, &[])
    }

    fn with_environment(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.project.command(arguments);
        command
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env("TOKGATE_NVML", &self.library)
            .env(nvml::SCRIPT, self.project.path().join("gpus"))
            .env("PATH", format!("{}:{path}", self.project.path().display()))
            .envs(environment.iter().copied());
        self.project.ran(command.output().unwrap())
    }

    /// Runs the suite with these values in place of its own.
    fn run(&self, set: &[&str]) -> Ran {
        let mut arguments = vec!["run", "suite.toml", "--out", "out", "--no-progress"];
        arguments.extend(set.iter().flat_map(|set| ["--set", set]));
        self.tokgate(&arguments)
    }

    fn launched(&self) -> bool {
        self.project.path().join("launched").exists()
    }
}

fn failure(ran: &Ran, launch: usize) -> (String, String) {
    let failure = &ran.record()["launches"][launch]["failure"];
    let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
    (text("step"), text("message"))
}

fn warnings(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let warnings = record["warnings"].as_array().unwrap().iter();
    warnings.map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn eight_h200_pass_for_the_page_and_the_launch_goes_on() {
    let Some(machine) = Machine::of_the_page(&Gpus::h200s(8)) else { return };
    let ran = machine.run(&["hardware.driver=\">=570, <590\""]).exits(30);
    assert!(machine.launched());
    assert_ne!(failure(&ran, 0).0, "hardware");
    assert_eq!(warnings(&ran), Vec::<String>::new());
    assert_eq!(ran.record()["header"]["machine"]["gpus"].as_array().unwrap().len(), 8);
}

#[test]
fn another_machine_than_the_page_has_is_refused_with_what_was_declared_and_found() {
    let seven = Gpus::h200s(7);
    let another = Gpus {
        names: [vec!["NVIDIA H100 80GB HBM3"; 2], vec!["NVIDIA H200"; 6]].concat(),
        ..Gpus::h200s(8)
    };
    let less = Gpus { total: 80 * GIB, ..Gpus::h200s(8) };
    let old = Gpus { driver: "550.54.15", ..Gpus::h200s(8) };
    let busy = Gpus { tenants: vec![(3, std::process::id(), 120 * GIB)], ..Gpus::h200s(8) };
    let by = format!("GPUs are busy: GPU 3 (NVIDIA H200): process {} (", std::process::id());
    for (gpus, told) in [
        (seven, "hardware.count: declared 8, found 7"),
        (another, "hardware.gpu: declared \"H200\", found NVIDIA H100 80GB HBM3 (GPU 0, 1)"),
        (
            less,
            "hardware.vram: declared 141 GB (or 141 GiB), within 5 %, found 80 GiB (GPU 0, 1, 2, 3, 4, 5, 6, 7)",
        ),
        (old, "hardware.driver: declared \">=570\", found 550.54.15"),
        (busy, by.as_str()),
    ] {
        let Some(machine) = Machine::of_the_page(&gpus) else { return };
        let ran = machine.run(&["hardware.driver=\">=570\""]).exits(22);
        let (step, message) = failure(&ran, 0);
        assert_eq!(step, "hardware", "{message}");
        assert!(message.contains(told), "{message}");
        assert!(!machine.launched(), "{message}");
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
        assert!(ran.read("junit.xml").contains("hardware"));
        assert!(ran.having("pass").is_empty() && !ran.having("error").is_empty());
    }
}

#[test]
fn who_is_on_a_gpu_may_be_allowed() {
    let tenants = vec![(0, 4_000_000_001, 30 * GIB), (0, std::process::id(), GIB)];
    let Some(machine) = Machine::of_the_page(&Gpus { tenants, ..Gpus::h200s(8) }) else { return };
    let (_, message) = failure(&machine.run(&[]).exits(22), 0);
    assert!(
        message.contains("process 4000000001 (not to be seen from here) 30.0 GiB, process "),
        "{message}"
    );
    assert!(
        message
            .ends_with("end what runs there, or write `allow-busy = true` in [hardware] to go on"),
        "{message}"
    );
    let ran = machine.run(&["hardware.allow-busy=true"]).exits(30);
    assert!(machine.launched());
    let [warning] = &warnings(&ran)[..] else { panic!("{:?}", warnings(&ran)) };
    assert!(
        warning.contains("process 4000000001") && warning.ends_with("figures may suffer"),
        "{warning}"
    );
    let ran = machine.run(&["hardware.on-mismatch=\"warn\""]).exits(30);
    assert!(warnings(&ran)[0].contains("process 4000000001"), "{:?}", warnings(&ran));
    let ran = machine.run(&["hardware.on-mismatch=\"skip\""]).exits(0);
    assert!(
        ran.having("error").is_empty() && !ran.having("skip").is_empty(),
        "{:?}",
        ran.verdicts()
    );
}

#[test]
fn memory_that_nobody_is_named_for_is_a_warning() {
    let Some(machine) = Machine::of_the_page(&Gpus { rest: 20 * GIB, ..Gpus::h200s(8) }) else {
        return;
    };
    let ran = machine.run(&[]).exits(30);
    let told = "GPU 7 (NVIDIA H200) has 20.0 GiB in use by no process that the driver names";
    assert!(warnings(&ran).iter().any(|it| it.contains(told)), "{:?}", warnings(&ran));
}

/// A suite whose engine fails at once, with a launch for each of `n`.
fn small(tables: &str, engine: &str, n: &str) -> String {
    format!(
        "version = 1\n[suite]\nname = \"small\"\n{tables}\n[engine]\nkind = \"openai\"\n\
         command = \"sh -c 'touch launched-{{{{ axis.n }}}}; exit 3' {{{{ port }}}}\"\n{engine}\n\
         [[test]]\nkind = \"startup\"\nmatrix.n = {n}\n"
    )
}

#[test]
fn a_suite_that_declares_no_gpu_is_warned_of_busy_ones() {
    let gpus = Gpus { tenants: vec![(0, 4_000_000_001, 30 * GIB)], ..Gpus::h200s(1) };
    for tables in ["", "[hardware]\nos = \"linux\"\n"] {
        let Some(machine) = Machine::with(&small(tables, "", "[1]"), &gpus) else { return };
        let ran = machine.run(&[]).exits(30);
        let warnings = warnings(&ran);
        let told = "GPUs are busy: GPU 0 (NVIDIA H200): process 4000000001";
        assert!(warnings.len() == 1 && warnings[0].starts_with(told), "{warnings:?}");
        // Where no engine is launched on them, they are nobody's business.
        let sim = machine.project.path().join("sim.toml");
        let suite = "version = 1\n[suite]\nname = \"sim\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
                     [[test]]\nkind = \"decode\"\n";
        std::fs::write(sim, suite).unwrap();
        let ran = machine.tokgate(&["run", "sim.toml", "--out", "out", "--no-progress"]).exits(0);
        assert!(!ran.read("record.json").contains("busy"));
    }
}

#[test]
fn each_launch_is_judged_by_the_gpus_that_its_engine_sees() {
    let gpus = Gpus { names: vec!["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"], ..Gpus::h200s(3) };
    let tables = "[hardware]\ngpu = \"H200\"\ncount = 1\n";
    let env = "env = { CUDA_VISIBLE_DEVICES = \"{{ axis.n }}\" }";
    let Some(machine) = Machine::with(&small(tables, env, "[0, 1, 2]"), &gpus) else { return };
    let started = |n: u32| machine.project.path().join(format!("launched-{n}")).exists();
    let ran = machine.run(&[]).exits(22);
    assert_eq!([started(0), started(1), started(2)], [true, false, true]);
    let (step, message) = failure(&ran, 1);
    assert_eq!(step, "hardware");
    assert!(
        message.ends_with("hardware.gpu: declared \"H200\", found NVIDIA A100 (GPU 1)"),
        "{message}"
    );
    assert_ne!(failure(&ran, 0).0, "hardware");
    // The record has all that any of them sees, in the driver's order.
    let record = ran.record();
    let names = record["header"]["machine"]["gpus"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|gpu| gpu["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["NVIDIA H200", "NVIDIA A100", "NVIDIA H200"]);
    // The suite's own word counts, not that of the shell.
    let ran = machine.with_environment(
        &["run", "suite.toml", "--out", "out", "-E", "n=0"],
        &[("CUDA_VISIBLE_DEVICES", "1")],
    );
    assert_ne!(failure(&ran.exits(30), 0).0, "hardware");
}

#[test]
fn a_variant_has_the_gpus_of_its_own_environment() {
    let gpus = Gpus { names: vec!["NVIDIA H200", "NVIDIA A100"], ..Gpus::h200s(2) };
    let tables = "[hardware]\ngpu = \"H200\"\n[variant.one]\nengine.env.CUDA_VISIBLE_DEVICES = \"0\"\n\
                  [variant.other]\nengine.env.CUDA_VISIBLE_DEVICES = \"1\"\n";
    let Some(machine) = Machine::with(&small(tables, "", "[1]"), &gpus) else { return };
    let ran = machine.run(&[]).exits(22);
    assert_ne!(failure(&ran, 0).0, "hardware");
    assert_eq!(failure(&ran, 1).0, "hardware");
}

#[test]
fn an_engine_that_runs_here_is_expected_on_its_gpus_and_nobody_else() {
    let suite = "version = 1\n[suite]\nname = \"url\"\n[hardware]\nwhere = \"here\"\ngpu = \"H200\"\n\
                 [engine]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:PORT\"\n[[test]]\nkind = \"startup\"\n";
    let port = tokgate::engine::launch::free_port("127.0.0.1").unwrap();
    let suite = suite.replace("PORT", &port.to_string());
    let Some(machine) = Machine::with(&suite, &Gpus::h200s(1)) else { return };
    let mut engine = crate::harness::tokgate();
    // In a session of its own, as a service is.
    use std::os::unix::process::CommandExt as _;
    #[allow(unsafe_code)]
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        engine.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    let mut engine = engine
        .args(["sim", "--port", &port.to_string()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    crate::harness::eventually("the engine listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let with = |tenants: &[u32]| {
        let tenants = tenants.iter().map(|pid| (0, *pid, 10 * GIB)).collect();
        machine.project.file("gpus", &Gpus { tenants, ..Gpus::h200s(1) }.script());
        machine.run(&[])
    };
    let own = engine.id();
    let alone = with(&[own]);
    let hidden = with(&[4_000_000_001]);
    let beside = with(&[own, 4_000_000_001]);
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(warnings(&alone.exits(0)), Vec::<String>::new());
    assert_eq!(warnings(&hidden.exits(0)), Vec::<String>::new(), "it may be in a container");
    let (step, message) = failure(&beside.exits(22), 0);
    assert_eq!(step, "hardware");
    assert!(
        message.contains("process 4000000001") && !message.contains(&format!("process {own} ")),
        "{message}"
    );
}

#[test]
fn without_a_gpu_a_suite_that_declares_some_says_what_is_missing() {
    let declared = "[hardware]\ngpu = \"H200\"\ncount = 8\nvram = \"141GB\"\ndriver = \">=570\"\n";
    let machine = Machine::without_gpus(&small(declared, "", "[1]"));
    let (step, message) = failure(&machine.run(&[]).exits(22), 0);
    assert_eq!(step, "hardware");
    let told = "hardware is not as declared: declared 8 × H200 of 141 GB (or 141 GiB), within 5 %, found no GPU (";
    assert!(message.starts_with(told), "{message}");
    let machine = Machine::without_gpus(&small("", "", "[1]"));
    let ran = machine.run(&[]).exits(30);
    assert_ne!(failure(&ran, 0).0, "hardware");
    assert_eq!(warnings(&ran), Vec::<String>::new());
}

#[test]
fn whatever_launches_an_engine_looks_first() {
    let gpus = Gpus { tenants: vec![(0, 4_000_000_001, 30 * GIB)], ..Gpus::h200s(1) };
    let tables = "[hardware]\ngpu = \"H200\"\n";
    let limit = "\n[[test]]\nkind = \"decode\"\nmatrix.n = [1]\n[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n";
    let suite = small(tables, "", "[1]") + limit;
    let Some(machine) = Machine::with(&suite, &gpus) else { return };
    for arguments in [
        &["calibrate", "suite.toml", "--write", "noise.jsonl"][..],
        &["baseline", "record", "suite.toml", "--file", "base.jsonl", "--runs", "2"],
        &["selftest", "suite.toml", "--slow", "10%"],
    ] {
        let ran = machine.tokgate(arguments);
        assert_eq!(ran.code, 22, "{arguments:?}\n{}\n{}", ran.stdout, ran.stderr);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("process 4000000001"), "{arguments:?}\n{said}");
        assert!(!machine.project.path().join("launched-1").exists());
    }
    for arguments in
        [&["check", "suite.toml"][..], &["list", "suite.toml"], &["plan", "suite.toml"]]
    {
        let ran = machine.tokgate(arguments);
        assert!(ran.code != 22 && !ran.stderr.contains("busy"), "{arguments:?}\n{}", ran.stderr);
    }
}

#[test]
fn a_baseline_of_the_declared_gpus_is_not_blamed_for_a_machine_without() {
    let text = "version = 1\n[suite]\nname = \"sim\"\n[hardware]\ngpu = \"H200\"\n[engine]\nkind = \"sim\"\n\
                [[test]]\nkind = \"startup\"\n[baseline]\nfile = \"base.jsonl\"\n\
                [[expect]]\nmetric = \"kv-capacity\"\nmin-ratio = 0.9\n";
    let Some(machine) = Machine::with(text, &Gpus::h200s(1)) else { return };
    machine.tokgate(&["baseline", "record", "suite.toml", "--runs", "3"]).exits(0);
    machine.run(&[]).exits(0);
    machine.project.file("gpus", &Gpus { names: vec!["NVIDIA A100"], ..Gpus::h200s(1) }.script());
    let (_, message) = failure(&machine.run(&[]).exits(22), 0);
    assert!(message.contains("declared \"H200\", found NVIDIA A100"), "{message}");
    let ran = machine.run(&["hardware.on-mismatch=\"skip\""]).exits(0);
    assert_eq!(ran.having("skip").len(), 1);
    // Where the mismatch only warns, what was recorded there does not fit.
    machine.run(&["hardware.on-mismatch=\"warn\""]).exits(21);
}

#[test]
fn an_engine_that_is_tried_is_warned_of_who_is_there() {
    let gpus = Gpus { tenants: vec![(0, 4_000_000_001, 30 * GIB)], ..Gpus::h200s(1) };
    let Some(machine) = Machine::with("", &gpus) else { return };
    let ran = machine.tokgate(&[
        "try",
        "--",
        "sh",
        "-c",
        "echo CUDA out of memory; exit 3",
        "--port",
        "8000",
    ]);
    assert_eq!(ran.code, 30, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("GPUs are busy: GPU 0 (NVIDIA H200): process 4000000001"),
        "{}",
        ran.stderr
    );
}

/// The slice of each GPU, of which there are `count`.
fn sliced(count: usize) -> String {
    let mut script = Gpus::h200s(count).script();
    for gpu in 0..count {
        writeln!(script, "gpu {gpu} mig 1\ngpu {gpu} slice MIG-{gpu} 3g.71gb {} 0 2 0", 69 * GIB)
            .unwrap();
    }
    script
}

#[test]
fn an_engine_that_is_given_a_slice_has_that_alone() {
    let Some(machine) = Machine::of_the_page(&Gpus::h200s(8)) else { return };
    // Whoever is on another slice is no neighbour.
    let others = format!("{}gpu 0 process 4000000001 {GIB}\n", sliced(1));
    machine.project.file("gpus", &others);
    let (_, message) = failure(&machine.run(&[]).exits(22), 0);
    for told in ["hardware.count: declared 8, found 1", "found 69 GiB (GPU 0 slice 3g.71gb)"] {
        assert!(message.contains(told), "{message}");
    }
    assert!(!message.contains("busy"), "{message}");
    let one = ["hardware.count=1", "hardware.vram=\"69GiB\"", "engine.gpus=1"];
    assert_ne!(failure(&machine.run(&one).exits(30), 0).0, "hardware");
    let on_it = format!("{}gpu 0 slice0-process 4000000001 {GIB}\n", sliced(1));
    machine.project.file("gpus", &on_it);
    let (_, message) = failure(&machine.run(&one).exits(22), 0);
    assert!(
        message.contains("GPUs are busy: GPU 0 (NVIDIA H200") && message.contains("4000000001"),
        "{message}"
    );
    machine.project.file("gpus", &format!("{}gpu 7 mig 1\n", Gpus::h200s(8).script()));
    let (_, message) = failure(&machine.run(&[]).exits(22), 0);
    assert!(
        message.contains("declared 8, found 7 (GPU 7 is in MIG mode and has no slice"),
        "{message}"
    );
}

#[test]
fn a_desktop_is_no_obstacle_and_a_lost_gpu_is_named() {
    let Some(machine) = Machine::of_the_page(&Gpus::h200s(8)) else { return };
    let desktop = |bytes: u64| {
        let own = std::process::id();
        let script = Gpus { rest: bytes, ..Gpus::h200s(8) }.script();
        let script: String = script
            .lines()
            .map(|line| match line {
                line if line.contains(" used ") && !line.starts_with("gpu 0 ") => String::new(),
                line => format!("{line}\n"),
            })
            .collect();
        machine.project.file("gpus", &format!("{script}gpu 0 graphics {own} {bytes}\n"));
        machine.run(&[]).exits(30)
    };
    assert_eq!(warnings(&desktop(GIB)), Vec::<String>::new());
    let told = warnings(&desktop(20 * GIB));
    assert!(
        told.len() == 1
            && told[0].starts_with("graphics take 20.0 GiB of GPU 0 (NVIDIA H200): process "),
        "{told:?}"
    );
    machine.project.file("gpus", &format!("{}gpu 2 lost yes\n", Gpus::h200s(8).script()));
    let (_, message) = failure(&machine.run(&[]).exits(22), 0);
    assert!(message.contains("declared 8, found 7 (GPU 2 can't be asked: "), "{message}");
    let ran = machine.run(&["hardware.count=7"]).exits(30);
    assert!(warnings(&ran)[0].starts_with("GPU 2 can't be asked: "), "{:?}", warnings(&ran));
}
