//! The client itself: its files, its connections, and whether it keeps up what it promises.

use std::time::Duration;

use super::{decode, exact, measured, sound, suite};
use crate::harness::Project;
use crate::toy::Toy;

/// Runs the suite in a shell that has set this limit of open files.
fn limited(project: &Project, limit: &str) -> crate::harness::Ran {
    let mut command = std::process::Command::new("sh");
    command.current_dir(project.path()).args([
        "-c",
        &format!("ulimit {limit} && exec \"$0\" run suite.toml --out out --no-progress"),
        env!("CARGO_BIN_EXE_tokgate"),
    ]);
    project.ran(command.output().unwrap())
}

#[test]
fn a_low_limit_of_open_files_is_raised_or_refused_before_anything_is_sent() {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.step = Duration::from_millis(20);
        stream.acts()
    });
    let project =
        suite(&toy, "vllm", "", &decode("matrix.concurrency = [1, 100]\nmax-output = 64"));
    let ran = limited(&project, "-Sn 64").exits(0);
    sound(&measured(&ran, 1));
    assert_eq!(toy.most_in_flight(), 100);

    let untouched = Toy::start(|asked| asked.stream().acts());
    let project = suite(&untouched, "vllm", "", &decode("matrix.concurrency = [1, 100]"));
    let ran = limited(&project, "-n 200").exits(22);
    assert_eq!(untouched.connections(), 0);
    for words in ["100 streams need", "the hard limit is 200", "ulimit -Hn"] {
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    }
    assert_eq!(ran.having("error").len(), 2);
}

#[test]
fn an_idle_connection_that_the_server_closed_is_no_failure_of_the_server() {
    // While a stream warms its prompt, those of the next sixteen wait longer than the server does.
    let toy = Toy::with(
        |asked| {
            let mut stream = asked.stream();
            stream.first = Duration::from_millis(if asked.max_tokens() == 1 { 600 } else { 2 });
            stream.step = Duration::from_millis(20);
            stream.acts()
        },
        || None,
        Some(Duration::from_millis(200)),
    );
    let ran = suite(&toy, "vllm", "", &decode("matrix.concurrency = [40]\nmax-output = 64"))
        .run(&[])
        .exits(0);
    let found = measured(&ran, 0);
    sound(&found);
    assert_eq!(found["failures"], serde_json::json!({}));
    assert!(toy.connections() > 60, "{} connections: none was closed", toy.connections());
}

#[test]
fn as_many_requests_are_in_flight_as_the_cell_says_and_none_waits_in_the_client() {
    let toy = Toy::start(|asked| {
        let mut stream = asked.stream();
        stream.step = Duration::from_millis(5);
        stream.acts()
    });
    let ran = suite(&toy, "vllm", "", &decode("matrix.concurrency = [150]")).run(&[]).exits(0);
    assert_eq!(toy.most_in_flight(), 150);
    let found = measured(&ran, 0);
    sound(&found);
    let active = exact(&found, "active-requests");
    assert!(active > 100.0 && active < 150.1, "{active}");
}
