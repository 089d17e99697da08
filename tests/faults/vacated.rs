//! Ports and GPU memory between launches: given back before the next one, and never a stranger's.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use tokgate::engine::launch::free_port;

use super::odd;
use crate::harness::{Project, Ran, eventually, tokgate};
use crate::nvml;

/// A suite whose engine is a bash script `engine.sh PORT N`, launched for each of `n`.
fn scripted(script: &str, n: &str, more: &str) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"vacated\"\n[model]\nname = \"ours\"\n[engine]\nkind = \"openai\"\n\
         command = \"bash engine.sh {{{{ port }}}} {{{{ axis.n }}}}\"\nstop = {{ grace = \"1s\" }}\n{more}\n\
         [[test]]\nkind = \"startup\"\nmatrix.n = {n}\n"
    ));
    let sim = format!("{} sim --model ours --port $1", env!("CARGO_BIN_EXE_tokgate"));
    let script = script.replace("SIM", &sim);
    project.file("engine.sh", &script.replace("SERVER", &odd::command()));
    project
}

fn launch_failure(ran: &Ran) -> String {
    let record = ran.record();
    record["launches"][0]["failure"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{record}"))
        .to_owned()
}

#[test]
fn a_launch_waits_until_the_port_of_the_one_before_is_free() {
    // The listener ignores TERM in a session of its own; the engine that started it obeys at once.
    let script = "export ODD=sound ODD_PORT=$1\n( trap '' TERM; setsid SERVER & )\n\
                  trap 'exit 0' TERM\nsleep 600 & wait\n";
    let port = free_port("127.0.0.1").unwrap();
    let project = scripted(script, "[1, 2, 3]", &format!("port = {port}"));
    let ran = project.run(&[]).exits(0);
    assert_eq!(ran.having("measured").len(), 3);
    assert!(!ran.stdout.contains("still taken"), "{}", ran.stdout);
}

/// A server that this run did not start.
struct Stranger {
    child: Child,
    truth: PathBuf,
}

impl Stranger {
    fn start(project: &Project, port: u16, model: &str) -> Stranger {
        let truth = project.path().join("truth");
        let mut command = tokgate();
        command.args(["sim", "--model", model, "--port", &port.to_string(), "--truth"]).arg(&truth);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the stranger listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Stranger { child, truth }
    }

    /// Asserts that it was asked for no completion; its process in words.
    #[track_caller]
    fn was_left_alone(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        assert_eq!(std::fs::read_to_string(&self.truth).unwrap_or_default(), "");
        format!("process {} (tokgate)", self.child.id())
    }
}

#[test]
fn a_port_that_a_stranger_has_is_refused_with_its_process() {
    let port = free_port("127.0.0.1").unwrap();
    let project = scripted("touch started; exec SIM", "[1]", &format!("port = {port}"));
    let stranger = Stranger::start(&project, port, "ours");
    let ran = project.run(&[]).exits(30);
    let message = launch_failure(&ran);
    let who = stranger.was_left_alone();
    assert!(message.contains(&format!("already taken by {who}; nothing was started")), "{message}");
    assert!(!project.path().join("started").exists());
}

/// Runs an engine whose port a stranger takes once it has looked at it; its script waits for `taken`.
fn robbed(script: &str, fixed: bool, model: &str) -> (Ran, String) {
    let port = free_port("127.0.0.1").unwrap();
    let more = if fixed { format!("port = {port}") } else { String::new() };
    let script = "if [ ! -e taken ]; then echo $1 > new; mv new looked; \
                  while [ ! -e taken ]; do sleep 0.05; done; ROBBED; fi\nexec SIM"
        .replace("ROBBED", script);
    let project = scripted(&script, "[1]", &more);
    let child = project
        .command(&["run", "suite.toml", "--out", "out", "--no-progress"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let looked = project.path().join("looked");
    eventually("the engine looks", || looked.exists());
    let port = std::fs::read_to_string(&looked).unwrap().trim().parse().unwrap();
    let stranger = Stranger::start(&project, port, model);
    project.file("taken", "");
    let ran = project.ran(child.wait_with_output().unwrap());
    (ran, stranger.was_left_alone())
}

/// As an engine does that can't have its port.
const IN_USE: &str = "sleep 2; echo 'OSError: [Errno 98] Address already in use' >&2; exit 1";

#[test]
fn a_stranger_that_was_quicker_is_named_and_never_measured() {
    let (ran, who) = robbed(IN_USE, true, "ours");
    let message = launch_failure(&ran.exits(30));
    assert!(message.contains("ended before it was ready: exit code 1"), "{message}");
    assert!(message.contains(&format!("; {who} holds port ")), "{message}");
}

#[test]
fn a_stranger_on_a_free_port_is_evaded() {
    let (ran, _) = robbed(IN_USE, false, "theirs");
    let ran = ran.exits(0);
    assert_eq!(ran.having("measured").len(), 1);
    assert!(ran.stdout.contains("was taken meanwhile; tried another"), "{}", ran.stdout);
}

#[test]
fn a_stranger_that_answers_while_the_engine_hangs_is_found_out() {
    std::thread::scope(|scope| {
        for model in ["ours", "theirs"] {
            scope.spawn(move || {
                let (ran, who) = robbed("sleep 600", true, model);
                let message = launch_failure(&ran.exits(30));
                let told = format!("{who}, which this launch did not start, answers on port ");
                assert!(message.contains(&told), "{message}");
            });
        }
    });
}

/// A run of two starts on a machine with one GPU that `gpu` describes, if there is a stub: two launches, or one
/// launch twice.
struct Gpu {
    project: Project,
    child: Child,
}

impl Gpu {
    fn start(library: &std::path::Path, grace: &str, launches: &str) -> Gpu {
        // Takes 40 GiB, and notes where the one before it has not given them back.
        let script = "grep -q 'used 42949672960' gpu && touch early\n\
             printf 'driver 580.65\\ngpu 0 name H200\\ngpu 0 total 150000000000\\ngpu 0 used 42949672960\\ngpu 0 process %s 42949672960\\n' $$ > new\n\
             mv new gpu\nexec SIM";
        let project = scripted(script, launches, "");
        let suite = project.path().join("suite.toml");
        let text = std::fs::read_to_string(&suite).unwrap();
        std::fs::write(&suite, text.replace("\"1s\"", &format!("\"{grace}\""))).unwrap();
        Gpu::give_back(&project);
        let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
        command.env("TOKGATE_NVML", library).env(nvml::SCRIPT, project.path().join("gpu"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Gpu { project, child }
    }

    fn give_back(project: &Project) {
        project.file(
            "empty",
            "driver 580.65\ngpu 0 name H200\ngpu 0 total 150000000000\ngpu 0 used 0\n",
        );
        std::fs::rename(project.path().join("empty"), project.path().join("gpu")).unwrap();
    }

    fn ran(self) -> (Project, Ran) {
        let output = self.child.wait_with_output().unwrap();
        let ran = self.project.ran(output);
        (self.project, ran)
    }
}

#[test]
fn a_launch_waits_until_the_gpu_has_its_memory_back() {
    for (launches, cells) in [("[1, 2]", 2), ("[1]\nlaunches = 2", 1)] {
        waits_for_the_gpu(launches, cells);
    }
}

fn waits_for_the_gpu(launches: &str, cells: usize) {
    let Some(library) = nvml::library() else { return };
    let gpu = Gpu::start(&library, "30s", launches);
    let journal = gpu.project.path().join("out/journal.jsonl");
    for stops in 1..=2 {
        eventually("a launch has ended", || {
            let text = std::fs::read_to_string(&journal).unwrap_or_default();
            text.matches("\"launch-stopped\"").count() >= stops
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        Gpu::give_back(&gpu.project);
    }
    let (project, ran) = gpu.ran();
    let ran = ran.exits(0);
    assert_eq!(ran.having("measured").len(), cells);
    assert!(!project.path().join("early").exists(), "the second had to wait");
    assert!(!ran.stdout.contains("still holds"), "{}", ran.stdout);
}

#[test]
fn gpu_memory_that_does_not_come_back_is_named() {
    let Some(library) = nvml::library() else { return };
    let (project, ran) = Gpu::start(&library, "1s", "[1, 2]").ran();
    let ran = ran.exits(0);
    assert!(project.path().join("early").exists(), "the wait is bounded");
    let warnings = ran.record()["warnings"].to_string();
    let told = "GPU 0 (H200) still holds 40.0 GiB: process ";
    assert!(
        warnings.contains(told) && warnings.contains("40.0 GiB, 1s after its end"),
        "{warnings}"
    );
    assert!(ran.read("junit.xml").contains(told) || ran.stdout.contains(told), "{}", ran.stdout);
}
