//! What a run leaves on disk, and what others read out of it.

use tokgate::record::{RunRecord, journal};

use crate::harness::{Project, Ran, shipped};

fn quick() -> Project {
    Project::with(
        r#"version = 1
[suite]
name = "written"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "prefill"
matrix.context = [512]
[[expect]]
metric = "prefill-throughput"
min = 1
"#,
    )
}

#[test]
fn the_output_directory_is_whole() {
    let project = quick();
    let ran = project.run(&[]).exits(0);
    for name in ["journal.jsonl", "record.json", "junit.xml", "summary.md", "report.html"] {
        assert!(!ran.read(name).is_empty(), "{name}");
    }
    facts_agree(&ran);
}

/// The record of a run is valid by its schema, and its journal comes to the same record.
#[track_caller]
pub fn facts_agree(ran: &Ran) {
    let schema: serde_json::Value = serde_json::from_str(
        &std::fs::read_to_string(shipped("schemas/record.schema.json")).unwrap(),
    )
    .unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let value = ran.record();
    let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());

    let written: RunRecord = serde_json::from_str(&ran.read("record.json")).unwrap();
    let told = journal::read(&ran.out.join("journal.jsonl")).unwrap();
    assert_eq!(told.torn, 0);
    let mut folded = RunRecord::new(written.header.clone());
    told.events.iter().for_each(|event| folded.apply(event));
    assert_eq!(folded, written);
}

#[test]
fn an_earlier_run_moves_aside() {
    let project = quick();
    let first = project.run(&[]).exits(0).read("record.json");
    project.run(&[]).exits(0);
    let moved = std::fs::read_to_string(project.path().join("out.previous/record.json")).unwrap();
    assert_eq!(moved, first);
}

#[test]
fn reruns_of_a_cell_leave_the_whole_run_where_it_is() {
    let project = quick();
    let record = |dir: &str| std::fs::read_to_string(project.path().join(dir).join("record.json"));
    let whole = project.run(&[]).exits(0).read("record.json");
    let first = project.run(&["-E", "test=prefill"]).exits(0);
    assert!(first.stderr.contains("the earlier run went to out.previous\n"), "{}", first.stderr);
    let first = first.read("record.json");
    let second = project.run(&["-E", "test=prefill"]).exits(0);
    let told = "the earlier run went to out.previous-part\n";
    assert!(second.stderr.contains(told), "{}", second.stderr);
    assert_eq!(record("out.previous").unwrap(), whole);
    assert_eq!(record("out.previous-part").unwrap(), first);
    // The next whole run is the one before, as soon as another moves it.
    let next = project.run(&[]).exits(0).read("record.json");
    assert_eq!(record("out.previous").unwrap(), whole);
    project.run(&[]).exits(0);
    assert_eq!(record("out.previous").unwrap(), next);
}

#[test]
fn reports_can_be_rendered_again() {
    let project = quick();
    let ran = project.run(&[]).exits(0);
    let junit = ran.read("junit.xml");
    std::fs::remove_file(ran.out.join("junit.xml")).unwrap();
    project.tokgate(&["report", "out"]).exits(0);
    assert_eq!(ran.read("junit.xml"), junit);
}

#[test]
fn results_that_can_not_be_written_are_told_before_the_launch() {
    let project = quick();
    project.file("out", "a file in its place");
    let ran = project.run(&[]).exits(33);
    assert!(ran.stderr.contains("out"), "{}", ran.stderr);
}
