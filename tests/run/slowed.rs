//! The live self-test of a gate: a suite is run while everything takes longer, and has to go red.

use serde_json::Value;

use crate::harness::{Project, Ran};

/// Limits at a distance that a tenth covers, in virtual time, where the figures are the same on every
/// machine: about 199 tok/s for one stream and 737 for four, 145 ms for a prompt, 1.35 s for a request.
const TIGHT: &str = r#"
[[expect]]
name = "floors"
test = "decode"
metric = "output-throughput"
min.rows = "context"
min.columns = "concurrency"
min.at = [1, 4]
min.grid = [
    ["1K", 190, 700],
    ["4K", 175, 620],
]
[[expect]]
name = "pace"
test = "decode"
metric = "tpot.p50"
max = "6.1ms"
[[expect]]
name = "prompts"
test = "prefill"
metric = "prefill-throughput"
min = 54000
[[expect]]
name = "requests"
test = "serve"
metric = "e2e-latency.p50"
max = "1.42s"
[[expect]]
name = "rate"
test = "serve"
metric = "output-throughput"
min = 360
"#;

fn suite(clock: &str, more: &str) -> Project {
    Project::with(&format!(
        r#"version = 1
[suite]
name = "gate"
[engine]
kind = "sim"
clock = "{clock}"
[[test]]
name = "prefill"
kind = "prefill"
matrix.context = ["8K"]
[[test]]
name = "decode"
kind = "decode"
duration = "5s"
min-tokens = 10
max-output = 256
matrix.context = ["1K", "4K"]
matrix.concurrency = [1, 4]
[[test]]
name = "serve"
kind = "serve"
duration = "60s"
matrix.concurrency = [2]
{more}"#
    ))
}

/// One decode test on one stream, of which about 199 tok/s come.
fn stream(clock: &str, more: &str) -> Project {
    Project::with(&format!(
        r#"version = 1
[suite]
name = "gate"
[engine]
kind = "sim"
clock = "{clock}"
[[test]]
name = "decode"
kind = "decode"
duration = "2s"
min-tokens = 10
max-output = 64
matrix.concurrency = [1]
{more}"#
    ))
}

/// `tokgate selftest suite.toml --slow 10%`, with results where [`Ran::read`] looks for them.
fn selftest(project: &Project, more: &[&str]) -> Ran {
    let mut arguments =
        vec!["selftest", "suite.toml", "--slow", "10%", "--out", "out", "--seed", "1"];
    arguments.extend(more);
    project.tokgate(&arguments)
}

/// The last word of each limit's row by its name.
fn response<'a>(ran: &'a Ran, name: &str) -> &'a str {
    let row = ran.stdout.lines().find(|line| line.contains(&format!(" {name} ")));
    let row = row.unwrap_or_else(|| panic!("{name}: {}", ran.stdout));
    row.rsplit("  ").next().unwrap().trim()
}

fn estimate(ran: &Ran, cell: usize) -> f64 {
    let bound = &ran.record()["cells"][cell]["judgement"]["bounds"][0];
    bound["estimate"]["value"].as_f64().unwrap_or_else(|| panic!("{bound}"))
}

#[test]
fn a_suite_with_tight_limits_goes_red_in_every_cell() {
    let project = suite("virtual", TIGHT);
    let ran = project.run(&["--seed", "1"]).exits(0);
    let before: Vec<f64> = (0..6).map(|cell| estimate(&ran, cell)).collect();

    let told = selftest(&project, &[]).exits(0);
    for name in ["floors", "prompts", "requests", "rate"] {
        assert_eq!(response(&told, name), "noticed", "{}", told.stdout);
    }
    // A grid's numbers are told apart by their lines.
    let floors = told.stdout.lines().filter(|line| line.contains(" floors ")).count();
    assert_eq!(floors, 2, "{}", told.stdout);
    // Some cells are further from this limit than others.
    assert_eq!(response(&told, "pace"), "noticed", "{}", told.stdout);
    assert!(
        told.stderr.contains("selftest: each of 6 limits noticed that everything took 10% longer"),
        "{}",
        told.stderr
    );
    assert_eq!(told.having("fail").len(), 6, "{:?}", told.verdicts());

    // Rates fall by 1 ÷ 1.1, and times grow by a tenth.
    for (cell, before) in before.iter().enumerate() {
        let ratio = estimate(&told, cell) / before;
        let expected =
            if told.record()["header"]["cells"][cell]["test"] == "serve" { 1.1 } else { 1.0 / 1.1 };
        assert!((ratio / expected - 1.0).abs() < 0.012, "cell {cell}: {ratio} for {expected}");
    }
}

#[test]
fn a_limit_that_lets_a_tenth_pass_is_named_with_its_line() {
    let planted = r#"
[[expect]]
name = "close"
where = { concurrency = 1 }
metric = "output-throughput"
min = 192
[[expect]]
name = "far"
metric = "output-throughput"
min = 20
"#;
    let project = stream("virtual", planted);
    let told = selftest(&project, &[]).exits(20);
    assert_eq!(response(&told, "close"), "noticed");
    assert_eq!(response(&told, "far"), "did not notice");
    let (_, below) = told.stdout.split_once("Limits that did not notice:\n").unwrap();
    let named: Vec<&str> = below.lines().collect();
    assert_eq!(named[0].trim(), "suite.toml:23 far output-throughput", "{below}");
    assert!(named[1].contains("decode concurrency=1 has 17"), "{below}");
    assert!(named[1].contains("where at least 20 is asked"), "{below}");
    assert!(told.stderr.contains("1 of 2 limits noticed"), "{}", told.stderr);
    // The cell is red all the same.
    assert!(!told.stdout.contains("Cells that no limit failed"), "{}", told.stdout);
}

#[test]
fn a_cell_that_no_limit_fails_is_named_though_its_limits_notice_elsewhere() {
    let project = suite(
        "virtual",
        "[[expect]]\nname = \"flat\"\ntest = \"decode\"\nmetric = \"output-throughput\"\nmin = 175\n",
    );
    let told = selftest(&project, &["-E", "test=decode concurrency=1"]).exits(20);
    assert_eq!(response(&told, "flat"), "noticed", "{}", told.stdout);
    let (_, below) = told.stdout.split_once("Cells that no limit failed:\n").unwrap();
    assert!(below.trim().starts_with("decode context=1K concurrency=1 (suite.toml:"), "{below}");
    assert_eq!(below.lines().count(), 1, "{below}");
    assert!(told.stderr.contains("; 1 cell stayed green"), "{}", told.stderr);
}

const CLOSE: &str = "[[expect]]\nname = \"close\"\nmetric = \"output-throughput\"\nmin = 192\n";

#[test]
fn over_tcp_and_in_real_time_streams_are_held_back_too() {
    let more = format!("{CLOSE}[policy]\nmax-client-lag = \"10s\"\n");
    let project = stream("real", &more);
    let told = selftest(&project, &[]).exits(0);
    assert_eq!(response(&told, "close"), "noticed");
    assert!(told.stderr.contains("the one limit noticed"), "{}", told.stderr);
    // However busy the machine is, the delay is never less than it is to be.
    let rate = estimate(&told, 0);
    assert!(rate <= 200.0 / 1.1 + 0.5, "{rate} tok/s");
}

#[test]
fn launches_and_external_tools_are_not_slowed_and_said_to_be() {
    let more = format!(
        "{CLOSE}test = \"decode\"\n{}",
        r#"[[test]]
name = "startup"
kind = "startup"
[[test]]
name = "score"
kind = "command"
command = ["sh", "tool.sh", "{{ cell.dir }}/out.json"]
result = "out.json"
metrics.score = { pointer = "/score", better = "higher" }
[[expect]]
name = "ready"
test = "startup"
metric = "ready-time"
max = "10s"
[[expect]]
name = "tool"
test = "score"
metric = "score"
min = 1
[[expect]]
name = "failures"
test = "decode"
metric = "ttft.p50"
max = "10ms"
severity = "warn"
[policy]
max-client-lag = "10s"
"#
    );
    let project = stream("real", &more);
    project.file("tool.sh", "echo '{\"score\": 1}' > \"$1\"\n");
    let told = selftest(&project, &[]).exits(0);
    assert_eq!(response(&told, "close"), "noticed");
    assert_eq!(response(&told, "ready"), "1 cell: not slowed: the launch itself");
    assert_eq!(response(&told, "tool"), "1 cell: not slowed: an external tool");
    assert!(!told.stdout.contains("failures"), "what only warns fails nothing: {}", told.stdout);
}

#[test]
fn a_slowed_run_says_so_and_is_no_baseline() {
    let project = stream("virtual", CLOSE);
    project.tokgate(&["run", "suite.toml", "-q"]).exits(0);
    let kept = std::fs::read(project.path().join("tokgate-out/gate/record.json")).unwrap();
    project.tokgate(&["selftest", "suite.toml", "--slow", "10%"]).exits(0);
    let of_run = std::fs::read(project.path().join("tokgate-out/gate/record.json")).unwrap();
    assert!(kept == of_run, "the suite's results are left alone");

    let told = selftest(&project, &[]).exits(0);
    let record = told.record();
    assert_eq!(record["header"]["slowed"], 0.1);
    for report in ["summary.md", "report.html", "junit.xml", "record.json"] {
        let text = told.read(report);
        assert!(text.contains("a self-test: whatever the engine answered"), "{report}: {text}");
    }
    let rerun = "tokgate selftest suite.toml --slow '10%' -E";
    assert!(told.read("summary.md").contains(rerun), "{}", told.read("summary.md"));

    let slowed = "tokgate-out/gate.selftest";
    let refused =
        project.tokgate(&["baseline", "promote", slowed, "--file", "base.jsonl"]).exits(21);
    assert!(
        refused.stderr.contains("it was slowed by `tokgate selftest --slow`"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("help: promote what `tokgate run`"), "{}", refused.stderr);
    let refused = project.tokgate(&["run", "suite.toml", "--resume", slowed]).exits(20);
    assert!(refused.stderr.contains("it is a self-test"), "{}", refused.stderr);

    // What it came to can be read again.
    let again = project.tokgate(&["selftest", slowed]).exits(0);
    assert!(again.stderr.contains("the one limit noticed"), "{}", again.stderr);
    let again = project.tokgate(&["selftest", slowed, "--format", "json"]).exits(0);
    let json: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(json["slow"], 0.1);
    assert_eq!(json["limits"][0]["response"], "noticed");
    assert_eq!(json["limits"][0]["line"], 17);
    assert_eq!(json["limits"][0]["cells"][0]["says"], "fails");
    assert_eq!(json["green-cells"], serde_json::json!([]));
}

#[test]
fn a_ratio_to_recorded_runs_notices_and_nothing_is_added_to_them() {
    let baseline = "[baseline]\nfile = \"base.jsonl\"\non-missing = \"record\"\n\
                    [[expect]]\nname = \"ratio\"\nmetric = \"output-throughput\"\nmin-ratio = 0.95\n";
    let project = stream("virtual", baseline);
    // Nothing is recorded of it, and nothing can notice.
    let told = selftest(&project, &[]).exits(20);
    assert!(!project.path().join("base.jsonl").exists(), "{}", told.stderr);
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "3", "--seed", "1"]).exits(0);
    let recorded = std::fs::read(project.path().join("base.jsonl")).unwrap();
    let told = selftest(&project, &[]).exits(0);
    assert_eq!(response(&told, "ratio"), "noticed");
    assert!(recorded == std::fs::read(project.path().join("base.jsonl")).unwrap());
}

#[test]
fn what_could_not_be_judged_is_no_proof_and_no_fault_of_the_suite() {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"gone\"\n[engine]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1\"\n\
         ready = {{ timeout = \"1s\" }}\n[[test]]\nkind = \"decode\"\nmatrix.concurrency = [1]\n{CLOSE}"
    ));
    let told = selftest(&project, &[]).exits(30);
    assert_eq!(response(&told, "close"), "could not be judged");
    assert!(told.stderr.contains("0 of 1 limit noticed"), "{}", told.stderr);
    assert!(told.stderr.contains("1 could not be judged"), "{}", told.stderr);
}

#[test]
fn limits_in_quarantine_need_not_notice() {
    let quarantine =
        "[[quarantine]]\nwhere = { concurrency = 1 }\nreason = \"known\"\nexpires = 2099-12-31\n";
    let project = stream("virtual", &format!("{CLOSE}{quarantine}"));
    let told = selftest(&project, &[]).exits(20);
    assert_eq!(response(&told, "close"), "1 cell: quarantined");
    assert!(told.stderr.contains("no cell has a limit that could notice"), "{}", told.stderr);
}

#[test]
fn what_is_asked_for_wrongly_is_told_with_what_to_write() {
    let project = stream("virtual", CLOSE);
    let refused = |arguments: &[&str], words: &str| {
        let told = project.tokgate(arguments).exits(20);
        assert!(told.stderr.contains(words), "{arguments:?}: {}", told.stderr);
        assert!(!project.path().join("tokgate-out").exists(), "nothing was run");
    };
    refused(&["selftest", "suite.toml"], "`tokgate selftest suite.toml --slow 10%` runs it");
    refused(&["selftest", "suite.toml", "--slow", "10"], "write a percentage like \"5%\"");
    refused(&["selftest", "suite.toml", "--slow", "0%"], "above 0% and up to 1000%");
    refused(&["selftest", "suite.toml", "--slow", "10%", "--worse", "5%"], "--worse");
    refused(&["selftest", ".", "--slow", "10%"], "--slow runs a suite, and . is none");
    refused(&["selftest", "some-run", "-E", "test=decode"], "-E shapes a run");
    refused(&["selftest", "nowhere.toml", "--slow", "10%"], "nowhere.toml");
}

/// Two variants of one engine that are held against each other, `old` with a floor of its own.
fn variants(more: &str) -> Project {
    stream(
        "virtual",
        &format!(
            r#"
[variant.old]
engine.version = ">=0"
[variant.new]
engine.version = ">=0"
[[expect]]
metric = "output-throughput"
where = {{ variant = "old" }}
min = 50
{more}"#
        ),
    )
}

/// Were both sides of a ratio slowed, no limit on it could notice.
#[test]
fn what_others_are_held_against_is_not_slowed() {
    let compared = r#"
[compare]
baseline = "old"
candidate = "new"
min-mean-ratio = 0.98
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
"#;
    let in_turn = r#"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
against = { variant = "old" }
"#;
    for more in [compared, in_turn] {
        let project = variants(more);
        let launches = ["--set", "test.decode.launches=3"];
        let launches = if more == in_turn { &launches[..] } else { &[] };
        let arguments = ["selftest", "suite.toml", "--slow", "10%", "--seed", "3"];
        let ran = project.tokgate(&[&arguments[..], launches].concat()).exits(0);
        let text = ran.stdout.as_str();
        assert!(text.contains("while everything but old took 10% longer"), "{text}");
        assert!(text.contains("not slowed: others are held against it"), "{text}");
        assert!(text.contains("  noticed"), "{text}");
        // The mean ratio is a limit like any other.
        let mean = text.lines().find(|line| line.contains(" mean ratio "));
        assert_eq!(mean.is_some(), more == compared, "{text}");
        assert!(mean.is_none_or(|line| line.ends_with("  noticed")), "{text}");
        // A ratio is told without a unit.
        let arguments = ["selftest", "suite.toml", "--slow", "1%", "--seed", "3"];
        let ran = project.tokgate(&[&arguments[..], launches].concat()).exits(20);
        assert!(ran.stdout.contains(" of old's where at least 0.97 is asked"), "{}", ran.stdout);
    }
}
