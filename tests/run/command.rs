//! Command tests: external tools against the simulated engine, and tools that go wrong.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Project, Ran, eventually, shipped};

/// A project on the simulated engine over TCP with one command test that runs `script` in a shell;
/// `test` goes below `[[test]]`, `more` behind everything.
fn tool(script: &str, test: &str, more: &str) -> Project {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "tools"
[engine]
kind = "sim"
[[test]]
name = "gsm8k"
kind = "command"
command = ["sh", "tool.sh", "{{{{ cell.dir }}}}", "{{{{ url }}}}"]
{test}
{more}"#
    ));
    project.file("tool.sh", script);
    project
}

const EXACT: &str = r#"result = "out.json"
metrics.exact_match = { pointer = "/results/gsm8k/exact_match", better = "higher" }"#;

const AT_LEAST: &str = "[[expect]]\nmetric = \"exact_match\"\nmin = 0.9\n";

/// A tool that writes its score.
fn scores(score: &str) -> String {
    format!(r#"echo '{{"results": {{"gsm8k": {{"exact_match": {score}}}}}}}' > "$1/out.json""#)
}

fn state(ran: &Ran) -> Value {
    ran.record()["cells"][0]["state"].clone()
}

/// The class and the message of a cell that broke, which is an error and exits 31.
#[track_caller]
fn broken(project: &Project) -> (String, String, Ran) {
    let ran = project.run(&[]).exits(31);
    assert_eq!(ran.having("error"), ["gsm8k gsm8k"]);
    let state = state(&ran);
    let text =
        |key: &str| state["broken"][key].as_str().unwrap_or_else(|| panic!("{state}")).to_owned();
    (text("class"), text("message"), ran)
}

#[test]
fn a_tool_that_reaches_the_limit_passes_and_is_shown() {
    let ran = tool(&scores("0.912"), EXACT, AT_LEAST).run(&[]).exits(0);
    assert_eq!(ran.having("pass"), ["gsm8k gsm8k"]);
    assert_eq!(
        state(&ran)["measured"]["observations"],
        json!({ "exact_match{higher}": { "point": 0.912 } })
    );
    let junit = ran.read("junit.xml");
    assert!(junit.contains("<property name=\"metric.exact_match\" value=\"0.912\"/>"), "{junit}");
    assert!(junit.contains("exact_match              0.912"), "{junit}");
    let summary = ran.read("summary.md");
    assert!(summary.contains("\nexact\\_match\n"), "{summary}");
    assert!(summary.contains("0.912<br>✓ pass"), "{summary}");
    assert!(ran.stdout.contains("gsm8k · exact_match"), "{}", ran.stdout);
    assert!(ran.stdout.contains("0.912"), "{}", ran.stdout);
}

#[test]
fn a_tool_below_the_limit_fails_with_metric_and_line() {
    let ran = tool(&scores("0.88"), EXACT, AT_LEAST).run(&[]).exits(10);
    assert_eq!(ran.having("fail"), ["gsm8k gsm8k"]);
    let junit = ran.read("junit.xml");
    let said = "exact_match 0.88 &lt; 0.9 (−2.2 % of 0.9, point, in this launch, suite.toml:14)";
    assert!(junit.contains(&format!("message=\"{said}\"")), "{junit}");
    assert!(junit.contains("file=\"suite.toml\" line=\"14\""), "{junit}");
}

#[test]
fn a_tool_asks_the_engine_that_was_launched() {
    let script = r#"
port="${2##*:}"
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n' >&3
grep -q '"object"' <&3 && echo '{"up": 1}' > "$1/out.json"
"#;
    let test = "result = \"out.json\"\nmetrics.up = { pointer = \"/up\", better = \"higher\" }";
    let project = tool(script, test, "");
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &suite.replace("[\"sh\", \"tool.sh\"", "[\"bash\", \"tool.sh\""));
    project.run(&[]).exits(0);
}

#[test]
fn repeats_have_a_directory_each_and_give_samples() {
    let script = r#"
n=$(cat count 2>/dev/null || echo 0)
echo $((n + 1)) > count
ls "$1" | grep -q . && exit 9
echo "{\"share\": 0.9$n}" > "$1/out.json"
"#;
    let test = "repeat = 3\nresult = \"out.json\"\nmetrics.share = { pointer = \"/share\", better = \"higher\" }";
    let ran = tool(script, test, "").run(&[]).exits(0);
    let observed = &state(&ran)["measured"]["observations"]["share{higher}"];
    assert_eq!(*observed, json!({ "samples": [0.90, 0.91, 0.92] }));
}

#[test]
fn a_tool_that_fails_is_an_error_that_shows_its_words() {
    let script = "echo 'ValueError: no such task: gsm9k'; for i in $(seq 40); do echo line $i; done; echo the end >&2; exit 3";
    let (class, message, ran) = broken(&tool(script, EXACT, AT_LEAST));
    assert_eq!(class, "command-failed");
    let first = message.lines().next().unwrap();
    assert_eq!(first, "`sh` failed: exit code 3; its last line: the end (see command-gsm8k.log)");
    assert!(message.contains("ValueError: no such task: gsm9k"), "{message}");
    assert!(ran.read("command-gsm8k.log").contains("line 17\n"));
    let junit = ran.read("junit.xml");
    assert!(junit.contains("type=\"command-failed\""), "{junit}");
    assert!(junit.contains(&format!("message=\"{first}\"")), "{junit}");
    assert!(junit.contains("\n  ValueError: no such task: gsm9k\n"), "{junit}");
    assert!(ran.stdout.contains("no such task: gsm9k"), "{}", ran.stdout);
    assert!(ran.read("summary.md").contains("no such task: gsm9k"));

    let (class, message, _) = broken(&tool("kill -9 $$", EXACT, AT_LEAST));
    assert_eq!(class, "command-failed");
    assert_eq!(message, "`sh` failed: killed by SIGKILL (it printed nothing)");
}

#[test]
fn of_a_log_that_grows_without_end_the_beginning_and_the_end_are_kept() {
    let script = "echo how it began; yes 'the same again' | head -c 100000000; echo; echo how it ended; exit 3";
    let (_, message, ran) = broken(&tool(script, EXACT, AT_LEAST));
    let first = message.lines().next().unwrap();
    assert!(first.ends_with("its last line: how it ended (see command-gsm8k.log)"), "{first}");
    let log = ran.read("command-gsm8k.log");
    assert!(log.len() <= 64 << 20, "{}", log.len());
    assert!(log.starts_with("how it began\nthe same again\n"), "{}", &log[..80]);
    assert!(log.ends_with("the same a\nhow it ended\n"));
    assert!(log.contains(" bytes left out: the log grew too long …\nthe same again\n"));
}

#[test]
fn a_tool_that_hangs_is_ended_and_is_an_error() {
    let script = "echo waiting; sleep 600 & echo $! > \"$1/../child\"; wait";
    let project = tool(script, &format!("timeout = \"1s\"\n{EXACT}"), AT_LEAST);
    let (class, message, ran) = broken(&project);
    assert_eq!(class, "command-time-out");
    assert!(message.starts_with("`sh`: not done within 1s; its last line: waiting"), "{message}");
    gone(&ran, "cells/engine-engine/child");
}

/// Holds that the process whose id a file has is gone.
#[track_caller]
fn gone(ran: &Ran, file: &str) {
    let pid: u32 = ran.read(file).trim().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(!stat.contains("sleep"), "{pid} is still there");
}

#[test]
fn an_interrupted_run_leaves_no_tool_behind() {
    let script = "sleep 600 & echo $! > \"$1/../child\"; wait";
    let project = tool(script, EXACT, AT_LEAST);
    let child = project
        .command(&["run", "suite.toml", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = project.path().join("out/cells/engine-engine/child");
    eventually("the tool runs", || {
        std::fs::read_to_string(&written).is_ok_and(|text| text.ends_with('\n'))
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ran = project.ran(child.wait_with_output().unwrap()).exits(143);
    gone(&ran, "cells/engine-engine/child");
    assert_eq!(state(&ran)["not-run"]["reason"], "not run: the run was interrupted");
}

#[test]
fn what_a_tool_leaves_behind_is_ended() {
    let script = format!("sleep 600 & echo $! > \"$1/../child\"\n{}", scores("0.95"));
    let ran = tool(&script, EXACT, AT_LEAST).run(&[]).exits(0);
    gone(&ran, "cells/engine-engine/child");
}

#[test]
fn a_result_that_is_none_is_an_error() {
    for (script, class, said) in [
        ("touch \"$1/other.json\"", "result-missing", "`sh` ended well and wrote no out.json in "),
        ("touch \"$1/other.json\"", "result-missing", "; there are other.json"),
        ("true", "result-missing", "; nothing is there"),
        (": > \"$1/out.json\"", "result-unreadable", "the result out.json: it is empty"),
        (
            "echo 'no result' > \"$1/out.json\"",
            "result-unreadable",
            "the result out.json: it is no JSON: ",
        ),
        (
            "mkdir \"$1/out.json\"",
            "result-unreadable",
            "the result out.json can't be read: it is no file",
        ),
        (
            "mkfifo \"$1/out.json\"",
            "result-unreadable",
            "the result out.json can't be read: it is no file",
        ),
        (
            "ln -s /etc/hostname \"$1/out.json\"",
            "result-unreadable",
            "the result out.json is outside of {{ cell.dir }}",
        ),
        (
            &scores("NaN"),
            "result-unfit",
            "metrics.exact_match: /results/gsm8k/exact_match is NaN, no number",
        ),
        (
            &scores("\"0.9\""),
            "result-unfit",
            "/results/gsm8k/exact_match is the text \"0.9\"; a number is needed",
        ),
        (
            "echo '{\"results\": {\"gsm8k\": {\"exact_match,none\": 1}}}' > \"$1/out.json\"",
            "result-unfit",
            "no key `exact_match` at /results/gsm8k; did you mean `exact_match,none`?",
        ),
    ] {
        let (found, message, _) = broken(&tool(script, EXACT, AT_LEAST));
        assert_eq!(found, class, "{message}");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn a_result_may_have_a_time_in_its_name() {
    let script = "mkdir \"$1/model\"; echo '{\"results\": {\"gsm8k\": {\"exact_match\": 0.95}}}' > \"$1/model/results_$(date +%s).json\"";
    let test = EXACT.replace("out.json", "*/results_*.json");
    tool(script, &test, AT_LEAST).run(&[]).exits(0);
    let twice = format!("{script}; cp \"$1\"/model/*.json \"$1/model/results_x.json\"");
    let (class, message, _) = broken(&tool(&twice, &test, AT_LEAST));
    assert_eq!(class, "result-unreadable");
    assert!(message.contains("2 files are called so, and one is the result"), "{message}");
}

#[test]
fn a_result_that_a_template_leads_outside_is_refused() {
    let project = tool(
        "echo '{\"results\": {\"gsm8k\": {\"exact_match\": 1}}}' > \"$1/../out.json\"",
        &EXACT.replace("\"out.json\"", "\"{{ vars.up }}/out.json\""),
        "[vars]\nup = \"..\"",
    );
    let ran = project.run(&[]);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("outside of") || said.contains("leaves"), "{said}");
    assert!([20, 31].contains(&ran.code), "{said}");
}

#[test]
fn a_tool_that_is_not_there_is_told_before_the_engine_is_loaded() {
    let project = tool("", EXACT, AT_LEAST);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &suite.replace("[\"sh\", \"tool.sh\"", "[\"lm_evall\""));
    let (class, message, ran) = broken(&project);
    assert_eq!(class, "command-failed");
    assert_eq!(message, "can't start `lm_evall`: not found in any directory of PATH");
    assert_eq!(ran.record()["launches"][0]["ready-time"], Value::Null, "nothing was launched");
    // Another test of the same launch is measured all the same.
    let suite = suite.replace("[\"sh\", \"tool.sh\"", "[\"lm_evall\"");
    project.file("suite.toml", &format!("{suite}\n[[test]]\nkind = \"startup\"\n"));
    let ran = project.run(&[]).exits(31);
    assert_eq!(ran.having("measured"), ["startup startup"]);
    assert_eq!(ran.having("error"), ["gsm8k gsm8k"]);
    assert_eq!(ran.read("journal.jsonl").matches("cell-finished").count(), 2, "once each");
}

#[test]
fn a_tool_that_the_setup_installs_is_found() {
    let project = tool(&scores("1"), EXACT, AT_LEAST);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let suite = suite.replace("[\"sh\", \"tool.sh\"", "[\"./installed.sh\"").replace(
        "kind = \"sim\"",
        "kind = \"sim\"\nsetup = [[\"sh\", \"-c\", \"(echo '#!/bin/sh'; cat tool.sh) > installed.sh; chmod +x installed.sh\"]]",
    );
    project.file("suite.toml", &suite);
    assert_eq!(project.run(&[]).exits(0).having("pass"), ["gsm8k gsm8k"]);
}

#[test]
fn a_secret_that_a_tool_prints_is_shown_nowhere() {
    const KEY: &str = "sk-0123456789abcdef";
    let script = "echo \"Unauthorized: $KEY\"; exit 1";
    let project = tool(
        script,
        EXACT,
        &format!("{AT_LEAST}[secrets]\nkey = {{ env = \"TOKGATE_TEST_KEY\" }}"),
    );
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let env = "kind = \"sim\"\nenv = { KEY = \"{{ secret.key }}\" }";
    project.file("suite.toml", &suite.replace("kind = \"sim\"", env));
    let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
    let output = command.env("TOKGATE_TEST_KEY", KEY).output().unwrap();
    let ran = project.ran(output).exits(31);
    assert!(ran.stdout.contains("Unauthorized: [redacted]"), "{}", ran.stdout);
    assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY));
    for name in ["record.json", "junit.xml", "summary.md", "journal.jsonl"] {
        assert!(!ran.read(name).contains(KEY), "{name}");
    }
    use std::os::unix::fs::PermissionsExt;
    let log = std::fs::metadata(ran.out.join("command-gsm8k.log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_engine_that_dies_meanwhile_is_what_is_told() {
    // The tool ends the engine and then has nothing to score; once it says so, once it does not.
    for (end, restarts) in [("exit 1", 0), (scores("0").as_str(), 0)] {
        let script = format!("kill -9 $(cat \"$1/../../../../pid\")\n{end}");
        let project = tool(&script, EXACT, &format!("{AT_LEAST}[policy]\nrestarts = {restarts}"));
        let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
        let engine = format!(
            "kind = \"openai\"\ncommand = [\"sh\", \"-c\", \"echo $$ > pid; exec {} sim --port {{{{ port }}}}\"]",
            env!("CARGO_BIN_EXE_tokgate")
        );
        project.file("suite.toml", &suite.replacen("kind = \"sim\"", &engine, 1));
        let ran = project.run(&[]).exits(30);
        let state = state(&ran);
        assert_eq!(state["broken"]["class"], "engine-died", "{state}");
        assert!(ran.stdout.contains("SIGKILL"), "{}", ran.stdout);
    }
}

#[test]
fn a_preset_reads_what_its_tool_wrote() {
    let file = shipped("tests/data/results/vllm-bench-serve.json");
    let copy = format!("cp {} \"$1/out.json\"", file.display());
    let test = "result = \"out.json\"\npreset = \"vllm-bench-serve\"\nmetrics.steady = { pointer = \"/steady_state/output_throughput\", better = \"higher\", unit = \"tok/s\" }";
    let expect = r#"
[[expect]]
metric = "output-throughput-per-gpu"
min = 90
[[expect]]
metric = "ttft.p99"
max = "205ms"
[[expect]]
metric = "steady"
min = 180
"#;
    let ran = tool(&copy, test, expect).run(&["--set", "engine.gpus=2"]).exits(0);
    assert_eq!(ran.having("pass"), ["gsm8k gsm8k"]);
    let junit = ran.read("junit.xml");
    for property in [
        "\"metric.output-throughput-per-gpu\" value=\"93.412183\"",
        "\"metric.ttft.p99\" value=\"201.055796\"",
        "\"metric.steady\" value=\"186.343374\"",
        "\"metric.completed-requests\" value=\"12\"",
    ] {
        assert!(junit.contains(property), "{property}: {junit}");
    }
    // The percentile that vllm bench writes only where it is asked for.
    let ran =
        tool(&copy, test, "[[expect]]\nmetric = \"ttft.p95\"\nmax = \"1s\"").run(&[]).exits(31);
    assert!(ran.stdout.contains("no key `p95_ttft_ms`"), "{}", ran.stdout);
}

#[test]
fn requests_that_a_tool_saw_fail_are_the_engine_s_doing() {
    let script = r#"echo '{"completed": 8, "failed": 2, "duration": 1, "output_throughput": 100}' > "$1/out.json""#;
    let test = "result = \"out.json\"\npreset = \"vllm-bench-serve\"";
    let expect = "[[expect]]\nmetric = \"output-throughput\"\nmin = 50\n";
    let ran = tool(script, test, expect).run(&[]).exits(10);
    assert!(ran.read("junit.xml").contains("2 of 10 requests failed"), "{}", ran.read("junit.xml"));
    let allowed = format!("{expect}[policy]\nmax-error-rate = \"20%\"");
    tool(script, test, &allowed).run(&[]).exits(0);
}

#[test]
fn no_tool_reaches_an_engine_inside_of_tokgate() {
    let ran = tool(&scores("1"), EXACT, AT_LEAST).run(&["--set", "engine.clock=\"virtual\""]);
    assert!([20, 31].contains(&ran.code), "{}", ran.stderr);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("clock = \"real\""), "{said}");
}

#[test]
fn figures_that_a_suite_now_takes_from_elsewhere_are_not_held_against_recorded_ones() {
    let test = |how: &str| format!("result = \"out.json\"\nmetrics.score = {{ {how} }}");
    let more =
        "[[expect]]\nmetric = \"score\"\nmin-ratio = 0.9\n[baseline]\nfile = \"runs.jsonl\"\n";
    let script = r#"echo '{"s": 2, "ms": 2000}' > "$1/out.json""#;
    let project = tool(script, &test("pointer = \"/s\", unit = \"s\", better = \"higher\""), more);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "2"]).exits(0);
    project.run(&[]).exits(0);
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    for (was, is, words) in [
        ("pointer = \"/s\"", "pointer = \"/ms\"", "metrics.score was /s s higher, is /ms s higher"),
        ("unit = \"s\"", "unit = \"ms\"", "metrics.score was /s s higher, is /s ms higher"),
    ] {
        project.file("suite.toml", &text.replace(was, is));
        let ran = project.run(&[]).exits(21);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}
