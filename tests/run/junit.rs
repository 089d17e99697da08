//! `junit.xml` of whole runs as its consumers read it: Jenkins' schema for the strict dialect,
//! junitparser for the rich one. Each run's record is held against its schema and its journal too.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use super::written::facts_agree;
use crate::harness::{Project, Ran, eventually, shipped};

/// Cases of a file by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub cases: usize,
    pub failures: usize,
    pub errors: usize,
    pub skipped: usize,
}

/// Says what was not tested; past the capture of the test harness, which hides it otherwise.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED a check of reports: {why}");
}

/// Runs a tool; `None`, and a word on stderr, where it isn't there.
pub fn tool(command: &mut Command, why: &str) -> Option<(bool, String)> {
    match command.output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            Some((out.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(error) => {
            skipped(&format!("{why}: {error}"));
            None
        }
    }
}

/// Validates a file by Jenkins' schema; `None` where schema or tool is missing.
fn valid(file: &std::path::Path) -> Option<(bool, String)> {
    let schema = std::env::var_os("TOKGATE_JUNIT_XSD")
        .map_or_else(|| shipped("../shared/schemas/junit-10.xsd"), PathBuf::from);
    if !schema.exists() {
        skipped(&format!("no schema at {} (set TOKGATE_JUNIT_XSD)", schema.display()));
        return None;
    }
    let mut xmllint = Command::new("xmllint");
    xmllint.args(["--noout", "--nonet", "--schema"]).arg(schema).arg(file);
    tool(&mut xmllint, "no xmllint (package libxml2-utils)")
}

/// A Python that has junitparser, in the build folder.
fn python() -> Option<PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON.get_or_init(|| python_with("junitparser-venv", "junitparser==5.0.3")).clone()
}

/// A Python that has a package, in that folder below that of the build.
pub fn python_with(folder: &str, package: &str) -> Option<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| shipped("target"), PathBuf::from);
    let venv = target.join(folder);
    let python = venv.join("bin/python");
    if venv.join("ready").exists() {
        return Some(python);
    }
    let mut create = Command::new("python3");
    let (made, said) = tool(create.args(["-m", "venv"]).arg(&venv), "no python3")?;
    if !made {
        skipped(&format!("no virtual environment: {said}"));
        return None;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--timeout", "20", "--retries", "1"]);
    let (installed, said) = tool(pip.arg(package), "no pip")?;
    if !installed {
        skipped(&format!("{package} could not be installed: {said}"));
        return None;
    }
    std::fs::write(venv.join("ready"), "").unwrap();
    Some(python)
}

/// Prints cases, failures, errors and skips as junitparser sees them, and holds what each case must have.
const READ: &str = r#"
import sys, junitparser
xml = junitparser.JUnitXml.fromfile(sys.argv[1])
seen = {"failure": 0, "error": 0, "skipped": 0}
names = []
for suite in xml:
    assert suite.hostname and suite.timestamp, suite
    assert suite.tests == len(list(suite)), suite
    for case in suite:
        names.append((case.classname, case.name))
        assert case.classname and case.name and case.time is not None
        # An absent file is GitLab's cue to link nowhere.
        assert case._elem.get("file") and int(case._elem.get("line")) > 0, case.name
        whole, fraction = case._elem.get("time").split(".")
        assert whole.isdigit() and fraction.isdigit() and len(fraction) == 3, case._elem.get("time")
        assert len(case.result) <= 1, case.name
        for result in case.result:
            seen[result._tag] += 1
            assert result.type and result.message and "\n" not in result.message, case.name
            assert result.text.startswith(result.message), result.text
        for text in [r.text for r in case.result] + [case.system_out or ""]:
            lines = [line for line in text.splitlines() if line.strip()]
            assert len(lines) == len(set(lines)), text
        for properties in case.iterchildren(junitparser.junitparser.Properties):
            for p in properties:
                if p.name.startswith("metric."):
                    float(p.value)
                    assert "e" not in p.value and len(p.value.split(".")[-1]) <= 12, p.value
assert len(names) == len(set(names)), names
declared = (xml.tests, xml.failures, xml.errors, xml.skipped)
found = (len(names), seen["failure"], seen["error"], seen["skipped"])
assert declared == found, (declared, found)
print(*found)
"#;

/// Holds both dialects of a run, its record and its journal.
#[track_caller]
pub fn read_by_all(project: &Project, ran: &Ran, counts: Counts) {
    facts_agree(ran);
    consumers_read(project, ran, counts);
}

/// Holds both dialects of what stands in `out`.
#[track_caller]
pub fn consumers_read(project: &Project, ran: &Ran, counts: Counts) {
    for (dialect, name) in [("strict", "strict.xml"), ("rich", "rich.xml")] {
        project.tokgate(&["report", "out", "--junit-dialect", dialect]).exits(0);
        std::fs::copy(ran.out.join("junit.xml"), ran.out.join(name)).unwrap();
    }
    if let Some((valid, said)) = valid(&ran.out.join("strict.xml")) {
        assert!(valid, "{said}");
    }
    if let Some(python) = python() {
        let mut read = Command::new(python);
        let (read, said) =
            tool(read.args(["-c", READ]).arg(ran.out.join("rich.xml")), "python").unwrap();
        assert!(read, "{said}");
        let said: Vec<usize> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let wanted = [counts.cases, counts.failures, counts.errors, counts.skipped];
        assert_eq!(said, wanted, "{}", ran.read("rich.xml"));
    }
}

const DECODE: &str = r#"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
"#;

#[test]
fn the_smoke_suite() {
    let project = Project::new();
    let suite = shipped("suites/smoke.toml");
    let arguments = ["run", suite.to_str().unwrap(), "--out", "out", "--no-progress"];
    let virtually = ["--set", "engine.clock=\"virtual\""];
    let ran = project.tokgate(&[arguments.as_slice(), &virtually].concat()).exits(0);
    // The launch and 15 cells; two do not fit, one is quarantined.
    read_by_all(&project, &ran, Counts { cases: 16, failures: 0, errors: 0, skipped: 3 });
}

#[test]
fn a_run_with_broken_limits() {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "slow"
[engine]
kind = "sim"
clock = "virtual"
{DECODE}
[[expect]]
metric = "output-throughput"
where = {{ concurrency = 4 }}
slack = "5%"
min = 100_000
[[expect]]
metric = "ttft.mean"
where = {{ concurrency = 4 }}
max = "1ms"
[[expect]]
metric = "ttft.p50"
max = "10s"
"#
    ));
    let ran = project.run(&[]).exits(10);
    read_by_all(&project, &ran, Counts { cases: 3, failures: 1, errors: 0, skipped: 0 });
    let junit = ran.read("rich.xml");
    let case = junit.split("<testcase ").find(|case| case.contains("<failure")).unwrap();
    // Where to look, and what is wrong, worst first.
    assert!(case.contains("name=\"concurrency=4\" classname=\"slow.decode\""), "{case}");
    assert!(case.contains("file=\"suite.toml\" line=\"23\""), "{case}");
    let message = case.split("message=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(message.starts_with("2 of 3 limits: ttft.mean "), "{message}");
    assert!(message.contains(" ms &gt; 1 (+"), "{message}");
    assert!(message.contains("; output-throughput "), "{message}");
    assert!(message.contains(" tok/s &lt; 95 000 (−99."), "{message}");
    assert!(message.ends_with(" % of 100 000, in this launch, suite.toml:19)"), "{message}");
}

#[test]
fn a_launch_that_fails_with_a_hostile_log() {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "hostile"
[engine]
kind = "openai"
command = "bash engine.sh {{{{ port }}}}"
{DECODE}
[[expect]]
metric = "output-throughput"
min = 1
"#
    ));
    project.file(
        "engine.sh",
        "for i in $(seq 3); do\n\
         printf 'ERROR \\033[31mred\\033[0m \\x00\\x01\\x08 ]]> <![CDATA[ & < \\\" \\xff\\xfe \\xef\\xbf\\xbe \\xed\\xa0\\x80 %s\\r\\n' $i\n\
         done\nhead -c 300000 /dev/urandom\nexit 1\n",
    );
    let ran = project.run(&[]).exits(30);
    read_by_all(&project, &ran, Counts { cases: 3, failures: 0, errors: 3, skipped: 0 });
}

#[test]
fn a_run_that_was_interrupted() {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "long"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
{DECODE}
[[test]]
name = "long"
kind = "decode"
duration = "5m"
[[expect]]
metric = "output-throughput"
min = 1
"#
    ));
    let child = project
        .command(&["run", "suite.toml", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = project.path().join("out/journal.jsonl");
    eventually("the long cell begins", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| {
            let begun =
                |cell: usize| text.contains(&format!("{{\"cell-started\":{{\"cell\":{cell},"));
            begun(0) && begun(1)
        })
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ran = project.ran(child.wait_with_output().unwrap()).exits(143);
    read_by_all(&project, &ran, Counts { cases: 4, failures: 0, errors: 2, skipped: 0 });
    assert!(ran.read("rich.xml").contains("not run: the run was interrupted"));
}

#[test]
fn policy_decides_how_doubt_and_silence_stand() {
    // The first token takes some 10 ms; six of them can't prove a 90th percentile.
    let suite = |policy: &str| {
        Project::with(&format!(
            r#"version = 1
[suite]
name = "doubt"
[engine]
kind = "sim"
clock = "virtual"
[policy]
{policy}
{DECODE}
[[expect]]
metric = "ttft.p90"
where = {{ concurrency = 4 }}
max = "1ms"
"#
        ))
    };
    for (policy, code, failures, errors) in [
        ("inconclusive = \"warn\"", 0, 0, 0),
        ("inconclusive = \"pass\"", 0, 0, 0),
        ("inconclusive = \"fail\"", 11, 1, 0),
        ("inconclusive = \"point\"", 10, 1, 0),
        ("unjudged = \"error\"", 20, 0, 1),
    ] {
        let project = suite(policy);
        let ran = project.run(&[]).exits(code);
        read_by_all(&project, &ran, Counts { cases: 3, failures, errors, skipped: 0 });
    }
}
