//! Engines that can't be started, die, or are not what the suite declares.

use crate::harness::Project;

const DECODE: &str = r#"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 64
matrix.concurrency = [1, 2]
[[expect]]
metric = "output-throughput"
min = 1
"#;

fn suite(engine: &str) -> Project {
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"broken\"\n[policy]\nmax-client-lag = \"10s\"\n{engine}\n{DECODE}"
    ))
}

/// A project whose engine is a bash script `engine.sh PORT`.
fn scripted(script: &str, more: &str) -> Project {
    let project = suite(&format!(
        "[engine]\nkind = \"openai\"\ncommand = \"bash engine.sh {{{{ port }}}}\"\n{more}"
    ));
    project.file("engine.sh", script);
    project
}

#[test]
fn a_misspelled_command_is_an_error_of_the_launch() {
    let project = suite("[engine]\nkind = \"vllm\"\ncommand = \"vlllm serve x --port {{ port }}\"");
    let ran = project.run(&[]).exits(30);
    assert_eq!(ran.having("error").len(), 2, "every planned cell, none as pass");
    let junit = ran.read("junit.xml");
    assert!(junit.contains("vlllm"), "{junit}");
    assert!(junit.contains("not found") || junit.contains("No such file"), "{junit}");
    // The launch has a case of its own, which carries the cause; its cells say that they did not run.
    assert_eq!(junit.matches("<error").count(), 3, "{junit}");
    assert!(junit.contains("not run: launch engine failed"), "{junit}");
    assert!(ran.stdout.contains("vlllm"), "{}", ran.stdout);
}

#[test]
fn an_engine_that_dies_while_loading_shows_the_telling_lines() {
    let script = r#"
echo "INFO loading weights"
echo "ERROR ValueError: Available memory (18.1 GiB) is less than requested memory for kv"
for i in $(seq 150); do echo "  File \"worker.py\", line $i, in spin"; done
echo "RuntimeError: Engine core initialization failed. See root cause above."
exit 3
"#;
    let ran = scripted(script, "").run(&[]).exits(30);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("Available memory (18.1 GiB)"), "{junit}");
    assert!(junit.contains("exit code 3"), "{junit}");
    assert_eq!(ran.having("error").len(), 2);
}

#[test]
fn what_an_engine_prints_can_not_break_a_report() {
    let script = r#"
printf 'ERROR \033[31mred\033[0m \x00\x01 ]]> & < \xff\xfe \xef\xbf\xbe end\n'
exit 1
"#;
    for dialect in ["rich", "strict"] {
        let ran = scripted(script, "").run(&["--junit-dialect", dialect]).exits(30);
        let junit = ran.read("junit.xml");
        assert!(junit.contains("red"), "{junit}");
        for forbidden in ['\u{1b}', '\u{0}', '\u{1}', '\u{fffe}'] {
            assert!(!junit.contains(forbidden), "{forbidden:?} in {junit}");
        }
        assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    }
}

#[test]
fn a_start_that_takes_too_long_says_what_was_last_seen() {
    let ran = scripted("echo waiting for nothing; sleep 60", "ready = { timeout = \"2s\" }")
        .run(&[])
        .exits(30);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("2s"), "{junit}");
    assert!(junit.contains("waiting for nothing"), "{junit}");
}

#[test]
fn another_version_than_declared_is_a_mismatch() {
    let engine = "[engine]\nkind = \"sim\"\nversion = \"0.99.0\"\nclock = \"virtual\"";
    let ran = suite(engine).run(&[]).exits(22);
    assert!(ran.stdout.contains("0.99.0"), "{}", ran.stdout);
    assert_eq!(ran.having("error").len(), 2);
}

#[test]
fn hardware_that_is_not_there_is_told_before_anything_is_launched() {
    let engine = "[hardware]\ngpu = \"H200\"\ncount = 8\n[engine]\nkind = \"openai\"\ncommand = \"touch launched\"";
    let project = suite(engine);
    let ran = project.run(&[]).exits(22);
    assert!(!project.path().join("launched").exists());
    assert!(ran.stdout.contains("H200"), "{}", ran.stdout);
}

#[test]
fn an_engine_that_crashes_in_a_cell_is_started_again_for_the_others() {
    let profile =
        std::fs::read_to_string(crate::harness::shipped("suites/sim/default.toml")).unwrap();
    let project = suite("[engine]\nkind = \"sim\"\nprofile = \"crash.toml\"");
    project.file("crash.toml", &format!("{profile}\n[[fault]]\nkind = \"crash\"\nat-token = 40\n"));
    let ran = project.run(&[]);
    // The crash comes back with each start: each cell has its own, and the run ends as an error.
    assert_eq!(ran.code, 30, "{}\n{}", ran.stdout, ran.stderr);
    let record = ran.record();
    for cell in record["cells"].as_array().unwrap() {
        assert_eq!(cell["state"]["broken"]["class"], "engine-died", "{cell}");
    }
    assert!(ran.stdout.contains("started again"), "{}", ran.stdout);
}

#[test]
fn an_engine_that_ends_in_good_order_amid_a_cell_is_told_by_its_cause() {
    let profile =
        std::fs::read_to_string(crate::harness::shipped("suites/sim/default.toml")).unwrap();
    // As an API server does whose worker died; what was logged while it loaded is no cause of this.
    let script = format!(
        r#"
echo "ImportError: no flash attention here, another kernel is used"
"{}" sim --profile crash.toml --port $1
echo "(APIServer pid=7) ERROR 11-30 08:30:20 [async_llm.py:906] output_handler failed."
echo "(APIServer pid=7) ERROR 11-30 08:30:20 [async_llm.py:906] EngineDeadError: EngineCore encountered an issue."
echo "INFO:     Finished server process [7]"
"#,
        env!("CARGO_BIN_EXE_tokgate")
    );
    let project = scripted(&script, "");
    project.file("crash.toml", &format!("{profile}\n[[fault]]\nkind = \"crash\"\nat-token = 40\n"));
    let ran = project.run(&["-E", "concurrency=2"]).exits(30);
    let broken = &ran.record()["cells"][0]["state"]["broken"];
    assert_eq!(broken["class"], "engine-died");
    let message = broken["message"].as_str().unwrap();
    let cause = "EngineDeadError: EngineCore encountered an issue.";
    assert!(message.starts_with("the engine died: exit code 0; its log says: "), "{message}");
    let first = message.lines().next().unwrap();
    assert!(first.ends_with(cause) && !message.contains("ImportError"), "{message}");
    assert!(message.ends_with("INFO:     Finished server process [7]"), "{message}");
}

/// A project on the simulated engine with faults, which tests prefill.
fn faulty(more: &str, faults: &str) -> Project {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "faulty"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "faulty.toml"
{more}
[[test]]
kind = "prefill"
matrix.context = [512, 1024, 1536, 2048]
[[expect]]
metric = "prefill-throughput"
min = 1
"#
    ));
    let profile =
        std::fs::read_to_string(crate::harness::shipped("suites/sim/default.toml")).unwrap();
    project.file("faulty.toml", &format!("{profile}\n{faults}"));
    project
}

/// Every request but the canary is answered with an error.
fn refusing(message: &str) -> String {
    let nth: Vec<u32> = (2..200).collect();
    format!(
        "[[fault]]\nkind = \"status\"\nrequests = {{ nth = {nth:?} }}\nstatus = 500\nmessage = \"{message}\"\n"
    )
}

#[test]
fn an_engine_that_refuses_every_request_fails_and_is_quoted() {
    let decode = "clock = \"virtual\"\n[[test]]\nkind = \"decode\"\nduration = \"1s\"";
    let ran = faulty(decode, &refusing("an illegal memory access")).run(&[]).exits(10);
    assert_eq!(ran.having("fail").len(), 5, "{:?}", ran.verdicts());
    // Nothing is expected of the decode cell, and still it is no good.
    let ran = faulty(decode, &refusing("an illegal memory access")).run(&["-E", "test=decode"]);
    assert_eq!(ran.code, 10, "{}", ran.stderr);
    let junit = ran.read("junit.xml");
    assert!(junit.contains("type=\"degraded\""), "{junit}");
    assert!(junit.contains("an illegal memory access"), "{junit}");
}

#[test]
fn an_engine_that_dies_between_two_requests_is_dead_not_slow() {
    let crash = "[[fault]]\nkind = \"crash\"\nat-token = 3\n";
    let ran = faulty("", crash).run(&[]).exits(30);
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    for cell in &cells[..2] {
        assert_eq!(cell["state"]["broken"]["class"], "engine-died", "{cell}");
    }
    assert_eq!(record["launches"][0]["failure"]["step"], "serving");
}

#[test]
fn an_engine_that_answers_no_more_is_started_again_then_given_up() {
    let nth: Vec<u32> = (2..200).collect();
    let refuse = format!("[[fault]]\nkind = \"refuse\"\nrequests = {{ nth = {nth:?} }}\n");
    let ran = faulty("clock = \"virtual\"", &refuse).run(&[]).exits(30);
    let record = ran.record();
    let cells = record["cells"].as_array().unwrap();
    let died = cells.iter().filter(|cell| cell["state"]["broken"]["class"] == "engine-died");
    assert_eq!(died.count(), 2, "one of each start: {:?}", ran.verdicts());
    assert!(ran.having("pass").is_empty(), "{:?}", ran.verdicts());
    assert!(ran.stdout.contains("does not answer any more"), "{}", ran.stdout);
}

#[test]
fn what_a_server_says_of_a_secret_is_written_nowhere() {
    const KEY: &str = "sk-0123456789abcdef";
    let secret = "clock = \"virtual\"\n[request]\nheaders = { authorization = \"Bearer {{ secret.key }}\" }\n[secrets]\nkey = { env = \"TOKGATE_TEST_KEY\" }";
    let project = faulty(secret, &refusing(&format!("the key {KEY} is not known")));
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    let output = command.env("TOKGATE_TEST_KEY", KEY).output().unwrap();
    let ran = project.ran(output).exits(10);
    assert!(ran.stdout.contains("the key [redacted] is not known"), "{}", ran.stdout);
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY));
    for entry in std::fs::read_dir(&ran.out).unwrap().flatten() {
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
        assert!(!text.contains(KEY), "{}", entry.path().display());
    }
}

#[test]
fn only_the_owner_reads_an_engine_log() {
    use std::os::unix::fs::PermissionsExt;
    let ran = scripted("echo hello; exit 1", "").run(&[]).exits(30);
    let log = std::fs::metadata(ran.out.join("engine-engine.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

#[test]
fn setup_takes_real_time_where_the_engine_takes_none() {
    let project = faulty("clock = \"virtual\"\nsetup = [\"sleep 1\"]", "");
    assert_eq!(project.run(&[]).exits(0).having("pass").len(), 4);
}
