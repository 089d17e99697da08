//! Verdicts and exit codes of whole runs, on the simulated engine in virtual time.

use crate::harness::Project;

fn suite(more: &str) -> Project {
    Project::with(&format!(
        r#"version = 1
[suite]
name = "judged"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
{more}"#
    ))
}

#[test]
fn limits_that_hold_pass_and_one_that_is_broken_fails_its_cells() {
    let project = suite("[[expect]]\nmetric = \"output-throughput\"\nmin = 10\n");
    assert_eq!(project.run(&[]).exits(0).having("pass").len(), 2);
    let project = suite(
        "[[expect]]\nmetric = \"output-throughput\"\nwhere = { concurrency = 4 }\nmin = 100_000\n",
    );
    let ran = project.run(&[]).exits(10);
    assert_eq!(ran.having("fail"), ["decode concurrency=4"]);
    assert_eq!(ran.having("measured"), ["decode concurrency=1"]);
    assert!(ran.stderr.trim_end().lines().last().unwrap().contains("1 failed"), "{}", ran.stderr);
    // What is printed for a failing cell runs just this cell again.
    assert!(ran.stdout.contains("-E 'test=decode concurrency=4'"), "{}", ran.stdout);
}

#[test]
fn severity_warn_never_fails() {
    let project =
        suite("[[expect]]\nmetric = \"output-throughput\"\nmin = 100_000\nseverity = \"warn\"\n");
    let ran = project.run(&[]).exits(0);
    assert!(ran.stdout.contains("warning"), "{}", ran.stdout);
    project.run(&["--deny-warnings"]).exits(11);
}

#[test]
fn a_cell_without_expectations_is_measured_or_an_error_by_policy() {
    assert_eq!(suite("").run(&[]).exits(0).having("measured").len(), 2);
    let ran = suite("[policy]\nunjudged = \"error\"\n").run(&[]).exits(20);
    assert_eq!(ran.having("error").len(), 2);
}

#[test]
fn selecting_nothing_is_its_own_exit_code() {
    let project = suite("");
    project.run(&["-E", "concurrency=4", "--skip", "concurrency=4"]).exits(12);
    project.tokgate(&["check", "suite.toml", "-E", "concurrency=2..3"]).exits(12);
    project.tokgate(&["list", "suite.toml", "-E", "concurrency=2..3"]).exits(12);
    let ran = project.run(&["-E", "concurency=4"]).exits(20);
    assert!(ran.stderr.contains("concurrency"), "{}", ran.stderr);
    let ran = project.run(&["-E", "concurrency=4"]).exits(0);
    assert_eq!(ran.verdicts().len(), 1);
}

#[test]
fn quarantine_excuses_until_its_day() {
    let quarantine = |day: &str| {
        format!(
            "[[expect]]\nmetric = \"output-throughput\"\nwhere = {{ concurrency = 4 }}\nmin = 100_000\n\
             [[quarantine]]\nwhere = {{ concurrency = 4 }}\nreason = \"known\"\nexpires = {day}\n"
        )
    };
    let ran = suite(&quarantine("2099-12-31")).run(&[]).exits(0);
    assert_eq!(ran.having("xfail"), ["decode concurrency=4"]);
    let project = suite(&quarantine("2020-01-31"));
    let ran = project.run(&[]).exits(21);
    assert!(ran.stderr.contains("expired on 2020-01-31"), "{}", ran.stderr);
    assert!(!project.path().join("out").exists(), "nothing was launched or written");
}

#[test]
fn an_over_capacity_cell_is_skipped_or_fails_by_what_is_expected_of_it() {
    let set = ["--set", "test.decode.max-output=100000", "--set", "engine.profile=tiny.toml"];
    let profile =
        std::fs::read_to_string(crate::harness::shipped("suites/sim/default.toml")).unwrap();
    let tiny = profile
        .replace("kv-capacity = \"128K\"", "kv-capacity = \"200K\"")
        .replace("max-model-len = \"32K\"", "max-model-len = \"128K\"");
    for (expect, code, verdict) in [
        ("", 0, "skip"),
        ("[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n", 10, "fail"),
        (
            "[[expect]]\nmetric = \"output-throughput\"\nmin.rows = \"concurrency\"\nmin.grid = [[1, 1], [4, \"over\"]]\n",
            0,
            "skip",
        ),
    ] {
        let project = suite(expect);
        project.file("tiny.toml", &tiny);
        let ran = project.run(&set).exits(code);
        assert_eq!(ran.having(verdict), ["decode concurrency=4"], "{expect}");
    }
}

#[test]
fn a_secret_is_in_no_file_and_on_no_stream() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "secret"
[secrets]
api_key = { env = "TOKGATE_TEST_KEY" }
[engine]
kind = "openai"
command = "bash engine.sh --api-key={{ secret.api_key }} {{ port }}"
[[test]]
kind = "decode"
[[expect]]
metric = "output-throughput"
min = 1
"#,
    );
    project.file("engine.sh", "echo \"ERROR bad key $1\"; echo -n \"$1\" | base64; exit 1");
    let missing = project.run(&[]).exits(20);
    assert!(missing.stderr.contains("TOKGATE_TEST_KEY"), "{}", missing.stderr);
    let output = project
        .command(&["run", "suite.toml", "--out", "out"])
        .env("TOKGATE_TEST_KEY", "hunter2hunter2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(30));
    let mut texts = vec![output.stdout, output.stderr];
    for name in ["journal.jsonl", "record.json", "junit.xml", "summary.md"] {
        texts.push(std::fs::read(project.path().join("out").join(name)).unwrap());
    }
    for text in texts {
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("aHVudGVyMmh1bnRlcj"), "{text}");
    }
}

#[test]
fn a_running_engine_is_measured_by_its_url() {
    let project = suite(
        "[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n[policy]\nmax-client-lag = \"10s\"\n",
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut engine = crate::harness::tokgate()
        .args(["sim", "--port", &port.to_string()])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let ran = project.run(&["--url", &url]);
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(ran.exits(0).having("pass").len(), 2);
}
