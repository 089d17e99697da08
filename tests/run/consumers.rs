//! What people see of a run where they look at it: each consumer of JUnit XML picks something else out of the file, and
//! with each of them a failing cell's name, value, limit and reason must arrive.
//!
//! Consumers are read after their sources; those in JavaScript with the parsers that they use, where Node.js and npm
//! are, and junit-to-ctrf is run itself.

mod picks;
pub mod xml;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use super::junit::{python_with, skipped, tool};
use crate::harness::{Project, Ran, shipped};
use picks::{ALL, Shown, Status};

const DIALECTS: [&str; 2] = ["rich", "strict"];

/// A case that somebody looks for.
struct Wanted<'a> {
    classname: &'a str,
    name: &'a str,
    status: Status,
    /// What must be seen at once, or stand first in what is seen after a click.
    first: &'a str,
    /// What must be seen of it, at once or after a click.
    seen: &'a [&'a str],
    /// Where the reader is sent; empty where that does not matter.
    place: &'a str,
}

/// Writes both dialects of a run again, each under its name.
fn written(project: &Project, ran: &Ran) {
    for dialect in DIALECTS {
        project.tokgate(&["report", "out", "--junit-dialect", dialect]).exits(0);
        std::fs::copy(ran.out.join("junit.xml"), ran.out.join(format!("{dialect}.xml"))).unwrap();
    }
}

/// What each consumer shows of both dialects.
fn all(ran: &Ran) -> Vec<(String, Vec<Shown>)> {
    let mut all = Vec::new();
    for dialect in DIALECTS {
        let file = format!("{dialect}.xml");
        let root = xml::parse(&ran.read(&file));
        for consumer in &ALL {
            all.push((format!("{}, {dialect}", consumer.name), (consumer.read)(&root)));
        }
        for (name, shown) in in_javascript(&ran.out.join(file)) {
            all.push((format!("{name}, {dialect}"), shown));
        }
    }
    all
}

/// A folder with the JavaScript of consumers, below that of the build.
fn packages() -> Option<PathBuf> {
    static PACKAGES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| shipped("target"), PathBuf::from);
        let dir = target.join("junit-consumers");
        let ready = dir.join("ready");
        std::fs::create_dir_all(&dir).unwrap();
        let files = ["package.json", "package-lock.json", "read.js"];
        let mut marks = String::new();
        for file in files {
            let from = shipped("tests/consumers").join(file);
            marks.push_str(&std::fs::read_to_string(&from).unwrap());
            std::fs::copy(from, dir.join(file)).unwrap();
        }
        if std::fs::read_to_string(&ready).is_ok_and(|it| it == marks) {
            return Some(dir);
        }
        let (_, version) = tool(Command::new("node").arg("--version"), "no Node.js")?;
        let major = version.trim_start_matches('v').split('.').next().unwrap_or_default();
        if major.parse::<u32>().unwrap_or(0) < 20 {
            skipped(&format!("Node.js {} is older than 20", version.trim()));
            return None;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(&dir).args(["ci", "--no-audit", "--no-fund", "--silent"]);
        npm.args(["--fetch-retries=1", "--fetch-timeout=20000"]);
        let (installed, said) = tool(&mut npm, "no npm")?;
        if !installed {
            skipped(&format!("packages of JavaScript could not be installed: {said}"));
            return None;
        }
        std::fs::write(ready, marks).unwrap();
        Some(dir)
    };
    PACKAGES.get_or_init(make).clone()
}

/// What consumers in JavaScript show of a file; none where there are none.
fn in_javascript(file: &Path) -> Vec<(String, Vec<Shown>)> {
    let Some(packages) = packages() else { return Vec::new() };
    let mut node = Command::new("node");
    let (read, said) = tool(node.arg(packages.join("read.js")).arg(file), "node").unwrap();
    assert!(read, "{said}");
    let told: Value = serde_json::from_str(&said).unwrap();
    let shown = |case: &Value| {
        let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
        let words = [text("words")].into_iter().filter(|it| !it.is_empty());
        Shown {
            name: text("name"),
            status: match case["status"].as_str().unwrap() {
                "passed" => Status::Passed,
                "failed" => Status::Failed,
                "skipped" => Status::Skipped,
                other => panic!("{other}"),
            },
            headline: text("headline"),
            details: text("details"),
            place: None,
            earlier: words.collect(),
            attachment: None,
        }
    };
    ["dorny", "mikepenz", "ctrf"]
        .map(|name| (name.to_owned(), told[name].as_array().unwrap().iter().map(shown).collect()))
        .into()
}

/// Holds what each consumer shows of a case.
#[track_caller]
fn reaches(all: &[(String, Vec<Shown>)], wanted: &Wanted<'_>) {
    for (consumer, cases) in all {
        let ours: Vec<&Shown> = cases
            .iter()
            .filter(|case| case.name.contains(wanted.name))
            // The CTRF reader takes a suite for what a classname is.
            .filter(|case| consumer.starts_with("ctrf") || case.name.contains(wanted.classname))
            .collect();
        let [case] = ours[..] else { panic!("{consumer}: {} of {}", ours.len(), wanted.name) };
        assert_eq!(case.status, wanted.status, "{consumer}: {case:?}");
        let whole = format!("{}\n{}", case.headline, case.details);
        // These say of a skip that it is one.
        let silent = ["dorny", "mikepenz", "ctrf"].iter().any(|it| consumer.starts_with(it));
        if wanted.status == Status::Skipped && silent {
            continue;
        }
        let first = if case.headline.is_empty() { &case.details } else { &case.headline };
        let first = first.trim().lines().next().unwrap_or_default();
        assert!(first.contains(wanted.first), "{consumer}: {first:?} has no {:?}", wanted.first);
        for piece in wanted.seen {
            assert!(whole.contains(piece), "{consumer}: no {piece:?} in {whole}");
        }
        if let Some(place) = &case.place
            && consumer.ends_with("rich")
            && !wanted.place.is_empty()
        {
            let file = wanted.place.split(':').next().unwrap();
            assert!(place == wanted.place || place == file, "{consumer}: {place}");
        }
    }
}

const SLOW: &str = r#"version = 1
[suite]
name = "slow"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4, 16]
[[test]]
name = "big"
kind = "decode"
max-output = 128
matrix.context = ["16K"]
matrix.concurrency = [16]
[[expect]]
test = "decode"
metric = "output-throughput"
slack = "5%"
min.rows = "concurrency"
min.grid = [[1, 1], [4, 100_000], [16, 100_000]]
[[expect]]
test = "decode"
where = { concurrency = 4 }
metric = "ttft.mean"
max = "1ms"
[[quarantine]]
where = { test = "decode", concurrency = 16 }
reason = "page fault storm"
expires = 2999-12-31
"#;

#[test]
fn a_failing_cell_arrives_with_name_value_limit_and_reason() {
    let project = Project::with(SLOW);
    let ran = project.run(&[]).exits(10);
    written(&project, &ran);
    let record = ran.record();
    let cells = record["header"]["cells"].as_array().unwrap();
    let at = cells.iter().position(|cell| cell["id"] == "concurrency=4").unwrap();
    let judgement = &record["cells"][at]["judgement"];
    let message = judgement["message"].as_str().unwrap();
    assert!(message.starts_with("2 of 2 limits: ttft.mean "), "{message}");
    // The values are those that were measured.
    for (metric, bound) in [("ttft.mean ", 1), ("output-throughput ", 0)] {
        let value = judgement["bounds"][bound]["estimate"]["value"].as_f64().unwrap();
        let told = message.split(metric).nth(1).unwrap();
        let told: String =
            told.chars().take_while(|c| c.is_ascii_digit() || ". ".contains(*c)).collect();
        let told: f64 = told.replace(' ', "").parse().unwrap();
        assert!((told / value - 1.0).abs() < 0.01, "{told} is not {value}: {message}");
    }
    let all = all(&ran);
    let rerun = "rerun: tokgate run suite.toml -E 'test=decode concurrency=4'";
    let words = |consumer: &str| -> Vec<&str> {
        let limits = [message, "> 1 (", "< 95 000 (", " of 100 000", "suite.toml:"];
        // CircleCI shows the one line and nothing else.
        let more =
            if consumer.starts_with("CircleCI") { &[][..] } else { &[rerun, "at suite.toml:"] };
        limits.iter().chain(more).copied().collect()
    };
    for one in &all {
        let wanted = Wanted {
            classname: "slow.decode",
            name: "concurrency=4",
            status: Status::Failed,
            first: message,
            seen: &words(&one.0),
            place: "suite.toml:29",
        };
        reaches(std::slice::from_ref(one), &wanted);
    }
    let quarantined = "quarantined until 2999-12-31: page fault storm";
    for (classname, name, status, first) in [
        ("slow.decode", "concurrency=1", Status::Passed, ""),
        ("slow.decode", "concurrency=16", Status::Skipped, quarantined),
        (
            "slow.big",
            "context=16K,concurrency=16",
            Status::Skipped,
            "tokens exceed the engine's KV cache of ",
        ),
    ] {
        // `concurrency=1` is a part of `concurrency=16`, and both tests have that.
        let exact: Vec<(String, Vec<Shown>)> = all
            .iter()
            .map(|(consumer, cases)| {
                let ours = |case: &&Shown| {
                    let mut words = case.name.split([' ', '►', '.']).filter(|it| !it.is_empty());
                    words.any(|word| word == name)
                };
                (consumer.clone(), cases.iter().filter(ours).cloned().collect())
            })
            .collect();
        reaches(&exact, &Wanted { classname, name, status, first, seen: &[], place: "" });
    }
    // On GitLab a failing case links to the page of the run.
    let mut report = project.command(&["report", "out"]);
    assert!(report.env("CI_PROJECT_DIR", project.path()).output().unwrap().status.success());
    let root = xml::parse(&ran.read("junit.xml"));
    let linked: Vec<String> = (ALL[0].read)(&root)
        .into_iter()
        .filter_map(|case| case.attachment.map(|path| format!("{} {path}", case.name)))
        .collect();
    assert_eq!(linked, ["slow.decode concurrency=4 out/report.html"]);
}

#[test]
fn an_engine_that_does_not_start_arrives_with_its_log() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "broken"
[engine]
kind = "openai"
command = "bash engine.sh {{ port }}"
[[test]]
kind = "decode"
matrix.concurrency = [1, 4]
[[expect]]
metric = "output-throughput"
min = 1
"#,
    );
    // What would end a section of the strict dialect, and a GitHub command.
    project.file(
        "engine.sh",
        "echo 'ERROR: CUDA out of memory ]]> <b> &amp;'; echo '::error::boo'; exit 3",
    );
    let ran = project.run(&[]).exits(30);
    written(&project, &ran);
    let all = all(&ran);
    for one in &all {
        let short = one.0.starts_with("CircleCI");
        // Where a text has two sections, mikepenz joins them with a comma.
        let line = if one.0 == "mikepenz, strict" { "]],> <b>" } else { "]]> <b>" };
        let line = format!("ERROR: CUDA out of memory {line} &amp;");
        let log: &[&str] = if short { &[] } else { &[&line, "step: "] };
        let launch = Wanted {
            classname: "broken",
            name: "engine",
            status: Status::Failed,
            first: "exit code 3",
            seen: log,
            place: "suite.toml:4",
        };
        // Cells are named behind a suite's name that has the launch's in it.
        let launches: Vec<Shown> =
            one.1.iter().filter(|case| !case.name.contains("concurrency")).cloned().collect();
        reaches(&[(one.0.clone(), launches)], &launch);
        let cell = Wanted {
            classname: "broken.decode",
            name: "concurrency=4",
            status: Status::Failed,
            first: "not run: launch engine failed",
            seen: &[],
            place: "suite.toml:7",
        };
        reaches(std::slice::from_ref(one), &cell);
    }
}

/// The case of a classname.
#[track_caller]
fn find<'a>(root: &'a xml::Element, classname: &str) -> &'a xml::Element {
    let mut cases = root.all("testsuite").flat_map(|suite| suite.all("testcase"));
    cases.find(|case| case.attribute("classname") == Some(classname)).unwrap()
}

#[test]
fn what_was_extended_is_told_as_flaky() {
    // Six waves can't prove a 90th percentile.
    let project = Project::with(
        r#"version = 1
[suite]
name = "flaky"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
[[expect]]
metric = "ttft.p90"
max = "1ms"
"#,
    );
    let ran = project.run(&[]).exits(0);
    written(&project, &ran);
    let root = xml::parse(&ran.read("rich.xml"));
    let extended = find(&root, "flaky.decode").child("flakyFailure").unwrap();
    assert_eq!(extended.attribute("type"), Some("extended"));
    let message =
        "extended: inconclusive at the first look, so measured on once; then still inconclusive";
    assert_eq!(extended.attribute("message"), Some(message));
    let told = extended.text_of("stackTrace");
    assert!(told.starts_with(message) && told.contains("No verdict was retried"), "{told}");
    // Where policy fails it, it is what was before a failure.
    let failing = project.run(&["--set", "policy.inconclusive=\"fail\""]).exits(11);
    let failed = xml::parse(&failing.read("junit.xml"));
    let failed = find(&failed, "flaky.decode");
    assert!(failed.child("failure").is_some() && failed.child("flakyFailure").is_none());
    assert_eq!(failed.child("rerunFailure").unwrap().attribute("message"), Some(message));

    let jenkins = (ALL[1].read)(&root);
    let seen = jenkins.iter().find(|case| case.name.starts_with("flaky.decode")).unwrap();
    assert!(seen.status == Status::Passed && seen.earlier[0].starts_with(message), "{seen:?}");
    for (name, cases) in in_javascript(&ran.out.join("rich.xml")) {
        let words: Vec<&String> = cases.iter().flat_map(|case| &case.earlier).collect();
        assert_eq!(words.len(), usize::from(name == "ctrf"), "{name}: {words:?}");
    }
    // The strict dialect knows no such thing, and says it in its output.
    let strict = xml::parse(&ran.read("strict.xml"));
    let strict = find(&strict, "flaky.decode");
    assert!(strict.child("flakyFailure").is_none());
    let output = strict.text_of("system-out");
    assert!(output.contains("\nextended: inconclusive at the first look"), "{output}");
}

#[test]
fn an_engine_that_was_started_again_is_told_as_flaky() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "flaky"
[policy]
max-client-lag = "10s"
[engine]
kind = "openai"
command = "bash engine.sh {{ port }}"
[[test]]
name = "first"
kind = "decode"
duration = "30s"
min-tokens = 1000
max-output = 2000
[[test]]
name = "second"
kind = "decode"
duration = "200ms"
min-tokens = 4
max-output = 16
"#,
    );
    let profile = std::fs::read_to_string(shipped("suites/sim/default.toml")).unwrap();
    project.file("well.toml", &profile);
    project.file("ill.toml", &format!("{profile}\n[[fault]]\nkind = \"crash\"\nat-token = 60\n"));
    let engine = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "profile=well.toml\n[ -e started ] || profile=ill.toml\ntouch started\n\
         exec \"{engine}\" sim --profile $profile --port $1\n"
    );
    project.file("engine.sh", &script);
    let ran = project.run(&[]).exits(30);
    written(&project, &ran);
    let root = xml::parse(&ran.read("rich.xml"));
    // The launch stands well in the end, and was an error before.
    let launch = find(&root, "flaky");
    assert!(launch.child("error").is_none());
    let again = launch.child("flakyError").unwrap();
    assert_eq!(again.attribute("type"), Some("restarted"));
    let message = "engine started again after: the engine died in first: exit code 1";
    assert!(again.said("message").starts_with(message), "{}", again.said("message"));
    // The cell that it died in is not measured again.
    let first = find(&root, "flaky.first");
    assert!(first.child("error").is_some() && first.child("rerunError").is_none());
    assert!(find(&root, "flaky.second").child("error").is_none());
    // No consumer but CTRF's shows an error before; all that show output show that.
    for (consumer, cases) in all(&ran) {
        let launch = cases.iter().find(|case| !case.name.contains(".first")).unwrap();
        if consumer == "Jenkins junit, rich" || consumer == "Jenkins junit, strict" {
            assert!(launch.details.contains(message), "{consumer}: {launch:?}");
        }
        if consumer == "ctrf, rich" {
            assert!(launch.earlier[0].contains(message), "{consumer}: {launch:?}");
        }
    }
    super::junit::read_by_all(
        &project,
        &ran,
        super::junit::Counts { cases: 3, failures: 0, errors: 1, skipped: 0 },
    );
}

#[test]
fn a_comment_is_printed_for_a_change() {
    let project = Project::with(SLOW);
    let ran = project.run(&[]).exits(10);
    let comment = project.tokgate(&["report", "out", "--comment"]).exits(0).stdout;
    assert!(comment.starts_with("<!-- tokgate:slow -->\n### FAILED: slow\n\n"), "{comment}");
    let row = comment.lines().find(|line| line.starts_with("| **✗")).unwrap();
    let start = "| **✗\u{a0}fail** | decode concurrency=4 | ttft.mean ≤ 1 | ";
    assert!(row.starts_with(start) && row.contains(" ms | ") && row.contains(" | sure"), "{row}");
    assert!(comment.contains("tokgate run suite.toml -E 'test=decode concurrency=4'"), "{comment}");
    assert!(!comment.contains("page fault storm") || comment.len() < 60_000);
    // The reports are written as ever.
    assert!(ran.read("summary.md").starts_with("# FAILED: slow\n"));
    let both = project.tokgate(&["report", "out", "--comment", "--annotations", "github"]);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

/// Prints each sample as Prometheus' own client reads it, strictly.
const METRICS: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
text = open(sys.argv[1], encoding="utf-8", newline="").read()
print(json.dumps([
    [family.type, family.unit, sample.name, sample.labels, sample.value]
    for family in text_string_to_metric_families(text) for sample in family.samples
]))
"#;

#[test]
fn metrics_are_read_by_prometheus() {
    let Some(python) = python_with("prometheus-venv", "prometheus_client==0.26.0") else { return };
    let project = Project::with(SLOW);
    let ran = project.run(&[]).exits(10);
    let mut read = Command::new(python);
    read.args(["-c", METRICS]).arg(ran.out.join("metrics.prom"));
    let (read, said) = tool(&mut read, "python").unwrap();
    assert!(read, "{said}");
    let samples: Vec<Value> = serde_json::from_str(&said).unwrap();
    let of = |name: &str, labels: &Value| {
        let ours = |sample: &&Value| {
            let has = |(key, value): (&String, &Value)| sample[3][key] == *value;
            sample[2] == name && labels.as_object().unwrap().iter().all(has)
        };
        let found: Vec<&Value> = samples.iter().filter(ours).collect();
        let [one] = found[..] else { panic!("{name} {labels}: {found:?}") };
        one.clone()
    };
    let failed = of("tokgate_cells", &serde_json::json!({ "verdict": "fail" }));
    assert_eq!((failed[0].as_str(), failed[4].as_f64()), (Some("gauge"), Some(1.0)));
    let cell = serde_json::json!({ "test": "decode", "concurrency": "4", "verdict": "fail" });
    assert_eq!(of("tokgate_cell_info", &cell)[4].as_f64(), Some(1.0));
    let cell = serde_json::json!({ "test": "decode", "concurrency": "4" });
    let rate = of("tokgate_output_throughput_tokens_per_second", &cell);
    let record = ran.record();
    let cells = record["header"]["cells"].as_array().unwrap();
    let at = cells.iter().position(|cell| cell["id"] == "concurrency=4").unwrap();
    let judged = &record["cells"][at]["judgement"]["bounds"][0]["estimate"]["value"];
    assert_eq!(rate[4].as_f64(), judged.as_f64());
    assert_eq!(rate[1], "tokens_per_second");
}
