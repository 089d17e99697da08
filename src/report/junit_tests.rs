//! Both dialects held against each other, against Jenkins' schema and against a real reader.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::report::fixture;

fn times(xml: &str, tag: &str) -> Vec<String> {
    let tags = xml.split('<').filter(|part| part.starts_with(&format!("{tag} ")));
    tags.map(|tag| tag.split("time=\"").nth(1).unwrap().split('"').next().unwrap().to_owned())
        .collect()
}

#[test]
fn times_are_plain_with_at_most_three_digits_whatever_their_sum() {
    let mut record = fixture::page();
    // This one comes out of binary addition with sixteen digits.
    record.cells[0].seconds = 4.637;
    assert!(!prints_plainly(4637));
    for (at, cell) in record.cells.iter_mut().enumerate() {
        cell.seconds += at as f64 * 0.137;
    }
    let xml = render(&record, Dialect::Strict);
    let all = [times(&xml, "testcase"), times(&xml, "testsuite")].concat();
    assert_eq!(all.len(), 76);
    for time in &all {
        let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
        assert!(whole.parse::<u64>().is_ok() && fraction.len() <= 3, "{time}");
    }
    assert!(
        times(&render(&record, Dialect::Rich), "testcase")
            .iter()
            .all(|time| { time.split_once('.').is_some_and(|(_, fraction)| fraction.len() == 3) })
    );
}

#[test]
fn both_dialects_have_the_same_cases() {
    let compared = [fixture::compare(), fixture::compare_cut_short()];
    let others = [fixture::page(), fixture::page_with_a_loss(), fixture::every_verdict()];
    for record in compared.into_iter().chain(others) {
        let (rich, strict) = (render(&record, Dialect::Rich), render(&record, Dialect::Strict));
        for tag in ["testsuite ", "testcase ", "failure ", "error ", "skipped "] {
            let count = |xml: &str| xml.matches(&format!("<{tag}")).count();
            assert_eq!(count(&rich), count(&strict), "{tag}");
        }
        for case in case::cases(&record).suites.iter().flat_map(|suite| &suite.cases) {
            for xml in [&rich, &strict] {
                assert!(xml.contains(&format!("name=\"{}\"", case.name)), "{}", case.name);
            }
        }
    }
}

#[test]
fn compared_cells_and_their_mean_ratio_have_properties() {
    let xml = render(&fixture::compare(), Dialect::Rich);
    let (_, mean) = xml.split_once("<testcase name=\"mean ratio\"").unwrap();
    let from =
        xml.find("<testcase name=\"context=8K,concurrency=16\" classname=\"upgrade.new.decode\"");
    let (cell, _) = xml[from.unwrap()..].split_once("</testcase>").unwrap();
    let (mean, _) = mean.split_once("</testsuite>").unwrap();
    insta::assert_snapshot!(format!("{cell}\n=====\n{mean}"));
}

#[test]
fn no_text_closes_its_section() {
    for record in records() {
        let strict = render(&record, Dialect::Strict);
        assert!(!strict.is_empty());
        assert_eq!(strict.matches("<![CDATA[").count(), strict.matches("]]>").count());
    }
}

#[test]
fn rich_reads_as_designed() {
    let mut record = fixture::every_verdict();
    record.header.cells.truncate(4);
    record.cells.truncate(4);
    record.header.launches.truncate(1);
    record.launches.truncate(1);
    insta::assert_snapshot!(render(&record, Dialect::Rich));
}

#[test]
fn a_case_stays_under_its_cap_and_keeps_the_verdict() {
    let mut record = fixture::every_verdict();
    let flood = fixture::nasty().repeat(100_000);
    record.launches[1].failure.as_mut().unwrap().log_tail = vec![flood.clone()];
    record.cells[0].judgement.warnings = vec![flood.clone()];
    record.cells[1].judgement.warnings = vec![flood.clone()];
    record.cells[3].judgement.message = Some(flood);
    for dialect in [Dialect::Rich, Dialect::Strict] {
        let xml = render(&record, dialect);
        for (at, case) in xml.split("<testcase ").skip(1).enumerate() {
            let failed = case.contains("<failure ") || case.contains("<error ");
            let most = if failed { 64 * 1024 } else { 16 * 1024 };
            assert!(case.len() <= most, "case {at} has {} bytes", case.len());
        }
        assert_eq!(xml.matches("bytes cut").count(), 4, "each cut is marked");
        assert!(xml.contains("output-throughput 100 tok/s &lt; 104.5"));
    }
}

/// Says what was not tested; past the capture of the test harness, which hides it otherwise.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED a JUnit check: {why}");
}

/// Runs a command; `None`, and a word on stderr, where it isn't there.
fn run(command: &mut Command, why: &str) -> Option<(bool, String)> {
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

fn records() -> Vec<RunRecord> {
    let mut empty = fixture::page();
    empty.header.cells.clear();
    empty.cells.clear();
    let mut hostile = fixture::every_verdict();
    hostile.header.suite = format!("small{}", fixture::nasty());
    for (planned, cell) in hostile.header.cells.iter_mut().zip(&mut hostile.cells) {
        planned.id.push_str(&fixture::nasty());
        planned.place.file.push_str(&fixture::nasty());
        cell.judgement.message = Some(fixture::nasty());
        cell.judgement.warnings.push(fixture::nasty());
    }
    hostile.launches[0].command.push(fixture::nasty());
    let mut named = fixture::compare();
    if let Some(compare) = &mut named.header.compare {
        compare.candidate = format!("new{}", fixture::nasty());
        compare.place.file = fixture::nasty();
    }
    let plain = [fixture::page(), fixture::page_with_a_loss(), fixture::every_verdict()];
    let compared = [fixture::compare(), fixture::compare_cut_short(), named];
    plain.into_iter().chain([hostile, empty]).chain(compared).collect()
}

#[test]
fn strict_is_valid_by_jenkins_schema() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let schema = std::env::var_os("TOKGATE_JUNIT_XSD")
        .map_or_else(|| root.join("../shared/schemas/junit-10.xsd"), PathBuf::from);
    if !schema.exists() {
        skipped(&format!("no schema at {} (set TOKGATE_JUNIT_XSD)", schema.display()));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (at, record) in records().iter().enumerate() {
        let file = dir.path().join(format!("{at}.xml"));
        std::fs::write(&file, render(record, Dialect::Strict)).unwrap();
        let mut xmllint = Command::new("xmllint");
        xmllint.args(["--noout", "--nonet", "--schema"]).arg(&schema).arg(&file);
        let Some((valid, said)) = run(&mut xmllint, "no xmllint (package libxml2-utils)") else {
            return;
        };
        assert!(valid, "record {at}: {said}");
    }
    // The check can fail: the rich dialect is not valid by this schema.
    let file = dir.path().join("rich.xml");
    std::fs::write(&file, render(&fixture::page(), Dialect::Rich)).unwrap();
    let mut xmllint = Command::new("xmllint");
    xmllint.args(["--noout", "--nonet", "--schema"]).arg(&schema).arg(&file);
    assert!(!run(&mut xmllint, "xmllint").unwrap().0);
}

const READ: &str = r#"
import json, sys, junitparser
out = []
for name in sys.argv[1:]:
    xml = junitparser.JUnitXml.fromfile(name)
    seen = {"suites": 0, "cases": 0, "failure": 0, "error": 0, "skipped": 0, "metrics": 0, "named": set()}
    for suite in xml:
        seen["suites"] += 1
        for case in suite:
            seen["cases"] += 1
            seen["named"].add((case.classname, case.name))
            assert case.time is not None
            for result in case.result:
                seen[result._tag] += 1
                assert result.message and result.text.startswith(result.message), result.message
            seen["metrics"] += sum(p.name.startswith("metric.") for p in case.iterchildren(junitparser.Property))
            for properties in case.iterchildren(junitparser.junitparser.Properties):
                for p in properties:
                    if p.name.startswith("metric."):
                        float(p.value)
                        seen["metrics"] += 1
    declared = (xml.tests, xml.failures, xml.errors, xml.skipped)
    assert declared == (seen["cases"], seen["failure"], seen["error"], seen["skipped"]), declared
    seen["named"] = len(seen["named"])
    out.append(seen)
print(json.dumps(out))
"#;

#[test]
fn rich_reads_in_junitparser_with_the_right_counts() {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
    let venv = target.join("junitparser-venv");
    let python = venv.join("bin/python");
    if !venv.join("ready").exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        let Some((made, said)) = run(&mut make, "no python3") else { return };
        if !made {
            skipped(&format!("no virtual environment: {said}"));
            return;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--timeout", "20", "--retries", "1"]);
        let Some((installed, said)) = run(pip.arg("junitparser==5.0.3"), "no pip") else { return };
        if !installed {
            skipped(&format!("junitparser could not be installed: {said}"));
            return;
        }
        std::fs::write(venv.join("ready"), "").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut read = Command::new(&python);
    read.args(["-c", READ]);
    for (at, record) in records().iter().enumerate() {
        let file = dir.path().join(format!("{at}.xml"));
        std::fs::write(&file, render(record, Dialect::Rich)).unwrap();
        read.arg(file);
    }
    let (read, said) = run(&mut read, "python").unwrap();
    assert!(read, "{said}");
    let seen: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap();
    let count = |at: usize, what: &str| seen[at][what].as_u64().unwrap();
    let figures = ["suites", "cases", "failure", "error", "skipped", "named"];
    let counts = |at: usize| figures.map(|what| count(at, what));
    assert_eq!(counts(0), [1, 75, 0, 0, 28, 75]);
    assert_eq!(counts(1), [1, 75, 1, 0, 28, 75]);
    assert_eq!(counts(2), [2, 14, 2, 4, 3, 14]);
    assert_eq!(counts(3), [2, 14, 2, 4, 3, 14]);
    assert_eq!(counts(4), [2, 2, 0, 1, 0, 2]);
    assert_eq!(counts(5), [3, 15, 2, 0, 0, 15]);
    assert_eq!(counts(6), [3, 15, 0, 14, 0, 15]);
    assert_eq!(counts(7), [3, 15, 2, 0, 0, 15]);
    assert!(count(0, "metrics") > 300);
}

#[test]
fn what_was_seen_of_the_hardware_is_a_property_and_a_line() {
    let record = fixture::throttled();
    let line =
        "hardware                 8 GPUs · 5 000 W · 98 % busy · SM clock 1 290 to 1 980 MHz";
    let rich = render(&record, Dialect::Rich);
    let name = format!("name=\"{}\"", record.header.cells[fixture::hot_cell(&record)].id);
    let case = rich.split("<testcase ").find(|case| case.contains(&name)).unwrap();
    for (property, value) in [
        ("hardware.power.mean", "5000"),
        ("hardware.sm-clock.min", "1290"),
        ("hardware.temperature.max", "91"),
        ("hardware.memory.max", "140874927308"),
        ("hardware.throttled", "0.62"),
        ("hardware.cpu.mean", "0.12"),
    ] {
        let property = format!("<property name=\"{property}\" value=\"{value}\"/>");
        assert!(case.contains(&property), "{property} in {case}");
    }
    let said = "hardware was suspect: GPU 3 throttled by heat in 62 % of the time";
    let message = case.split("message=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(message.ends_with(said), "{message}");
    assert_eq!(
        case.matches(said).count(),
        2,
        "in the attribute and in the text, not as a warning too"
    );
    for text in [rich.as_str(), &render(&record, Dialect::Strict)] {
        assert!(text.contains(line), "{text}");
    }
}
