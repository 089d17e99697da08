//! Whole reports at every moment: readers that look all the time while a run goes on, and whatever a killed
//! run leaves.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use quick_xml::events::{BytesStart, Event};
use serde_json::Value;

use crate::harness::{Project, eventually};

/// A suite with so many short cells, all of which pass.
pub fn suite(clock: &str, cells: usize, duration: &str) -> Project {
    let numbers: Vec<String> = (1..=cells).map(|number| number.to_string()).collect();
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "many"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "{clock}"
[[test]]
kind = "decode"
duration = "{duration}"
min-tokens = 1
ttft-samples = 1
matrix.number = [{}]
[[expect]]
metric = "output-throughput"
min = 1
"#,
        numbers.join(", ")
    ));
    project.file(
        "engine.toml",
        "max-model-len = \"32K\"\nkv-capacity = \"512K\"\n[prefill]\ntokens = [16, \"1K\"]\nms = [1, 1]\n\
         [admit]\nat = [1]\ngrid = [[\"1K\", 1]]\n[step]\nat = [1]\ngrid = [[\"1K\", 2]]\n",
    );
    project
}

/// What a report says of the cells: all of them, and those that are finished.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub all: BTreeSet<String>,
    pub finished: BTreeSet<String>,
    /// Those among them that something is wrong with.
    pub bad: BTreeSet<String>,
}

fn attribute(element: &BytesStart<'_>, name: &str) -> String {
    let found = element.try_get_attribute(name).unwrap();
    found
        .map(|it| it.normalized_value(quick_xml::XmlVersion::Explicit1_0).unwrap().into_owned())
        .unwrap_or_default()
}

/// Reads a `junit.xml` strictly; panics where it is no whole, valid XML or has a case twice.
pub fn junit(text: &str) -> Told {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut told = Told::default();
    let (mut depth, mut roots) = (0, 0);
    let mut case = String::new();
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let (element, opens) = match &event {
            Event::Eof => break,
            Event::Start(element) => (element, true),
            Event::Empty(element) => (element, false),
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Text(text) => {
                assert!(depth > 0 || text.iter().all(u8::is_ascii_whitespace));
                continue;
            }
            Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => continue,
        };
        roots += usize::from(depth == 0);
        depth += usize::from(opens);
        for attribute in element.attributes() {
            attribute.unwrap().normalized_value(quick_xml::XmlVersion::Explicit1_0).unwrap();
        }
        match element.name().as_ref() {
            b"testcase" => {
                case =
                    format!("{} {}", attribute(element, "classname"), attribute(element, "name"));
                assert!(told.all.insert(case.clone()), "twice: {case}");
                told.finished.insert(case.clone());
            }
            b"error" | b"failure" => {
                told.bad.insert(case.clone());
                if attribute(element, "message").starts_with("not run") {
                    told.finished.remove(&case);
                }
            }
            _ => {}
        }
    }
    assert_eq!((depth, roots), (0, 1), "{text}");
    told
}

/// Reads a `record.json`.
pub fn record(text: &str) -> Told {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut told = Told::default();
    let planned = value["header"]["cells"].as_array().unwrap();
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(planned.len(), cells.len());
    for (planned, cell) in planned.iter().zip(cells) {
        let name = planned["id"].as_str().unwrap().to_owned();
        if cell["state"]["not-run"].is_null() {
            told.finished.insert(name.clone());
        }
        if matches!(cell["judgement"]["verdict"].as_str(), Some("fail" | "error")) {
            told.bad.insert(name.clone());
        }
        assert!(told.all.insert(name), "a cell twice");
    }
    told
}

/// Reads a report by its name; `None` where it is not there yet.
fn read(dir: &Path, name: &str) -> Option<Told> {
    let text = std::fs::read_to_string(dir.join(name)).ok()?;
    Some(match name {
        "junit.xml" => junit(&text),
        "record.json" => record(&text),
        "summary.md" => {
            assert!(text.starts_with("# ") && text.ends_with('\n'), "{text}");
            assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
            Told::default()
        }
        "report.html" => {
            assert!(text.trim_end().ends_with("</html>"), "{text}");
            Told::default()
        }
        "metrics.prom" => {
            assert!(text.starts_with("# TYPE ") && text.ends_with("\n# EOF\n"), "{text}");
            Told::default()
        }
        "cells.csv" => {
            assert!(text.starts_with("suite,variant,") && text.ends_with("\r\n"), "{text}");
            Told::default()
        }
        other => panic!("nobody reads {other} here: add how"),
    })
}

/// Looks at the reports of a directory again and again.
#[derive(Default)]
pub struct Reader {
    last: Vec<Option<Told>>,
    pub looks: usize,
    /// How often a report told more than before.
    pub news: usize,
}

impl Reader {
    /// Looks once; panics where a report is torn, gone again, of other cells, or takes a finished cell back.
    pub fn look(&mut self, dir: &Path) {
        let names = tokgate::report::FILES;
        self.last.resize_with(names.len(), || None);
        for (name, last) in names.iter().zip(&mut self.last) {
            let now = read(dir, name);
            if let Some(before) = &last {
                let now = now.as_ref().unwrap_or_else(|| panic!("{name} is gone"));
                assert_eq!(now.all, before.all, "{name}: other cells");
                let lost: Vec<_> = before.finished.difference(&now.finished).collect();
                assert!(lost.is_empty(), "{name} takes back {lost:?}");
                self.news += usize::from(now.finished.len() > before.finished.len());
            }
            if let Some(told) = &now {
                // What has not run is an error, never nothing.
                assert!(
                    told.all.iter().all(|it| told.finished.contains(it) || told.bad.contains(it))
                );
            }
            *last = now.or(last.take());
        }
        self.looks += 1;
    }
}

#[test]
fn a_reader_at_any_moment_sees_whole_reports() {
    let project = suite("real", 24, "20ms");
    let mut run = project
        .command(&["run", "suite.toml", "--out", "out", "--no-progress"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = project.path().join("out");
    let mut reader = Reader::default();
    while run.try_wait().unwrap().is_none() {
        reader.look(&out);
    }
    let ran = project.ran(run.wait_with_output().unwrap()).exits(0);
    reader.look(&out);
    assert!(reader.looks > 20 && reader.news > 2, "{} {}", reader.looks, reader.news);
    let all = junit(&ran.read("junit.xml"));
    assert_eq!(all.finished, all.all);
    assert_eq!((all.bad.len(), record(&ran.read("record.json")).finished.len()), (0, 24));
}

#[test]
fn a_killed_run_leaves_whole_reports_and_takes_nothing_back_when_it_goes_on() {
    let project = suite("real", 24, "20ms");
    let out = project.path().join("out");
    let mut reader = Reader::default();
    // Multiples of a prime, so that moments fall anywhere between writing, flushing and renaming.
    for pause in [137, 419, 811, 1231, 1607, 60_000] {
        let mut run = project
            .command(&["run", "suite.toml", "--out", "out", "--resume", "auto", "--no-progress"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..pause {
            if run.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if pause < 60_000 {
            run.kill().unwrap();
        }
        let status = run.wait().unwrap();
        reader.look(&out);
        assert!(matches!(status.code(), None | Some(0)), "{status}");
        // Also one that was killed on its way out has ended.
        let journal = std::fs::read_to_string(out.join("journal.jsonl")).unwrap_or_default();
        if journal.contains("\"run-finished\"") {
            break;
        }
    }
    project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(0);
    let text = std::fs::read_to_string(out.join("junit.xml")).unwrap();
    assert_eq!((junit(&text).bad.len(), junit(&text).finished.len()), (0, junit(&text).all.len()));
    let halves = || {
        let names = std::fs::read_dir(&out).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|it| it.to_string_lossy().ends_with(".part")).count()
    };
    eventually("halves of files are swept", || halves() == 0);
}

#[test]
fn a_reader_keeps_the_report_that_it_opened_when_another_run_moves_it_aside() {
    use std::io::Read;
    let project = suite("virtual", 3, "20ms");
    let first = project.run(&[]).exits(0).read("junit.xml");
    let mut opened = std::fs::File::open(project.path().join("out/junit.xml")).unwrap();
    let second = project.run(&["--seed", "1"]).exits(0);
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!(text, first);
    assert_ne!(second.read("junit.xml"), first);
    let moved = project.path().join("out.previous/junit.xml");
    assert_eq!(std::fs::read_to_string(moved).unwrap(), first);
}
