//! What a run says, on which stream, and that its exit code needs no listener.

use std::process::Stdio;

use crate::harness::Project;

const SUITE: &str = r#"version = 1
[suite]
name = "heard"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
matrix.concurrency = [1, 2]
[[expect]]
metric = "output-throughput"
min.rows = "concurrency"
min.grid = [[1, 1], [2, 1000000]]
"#;

/// A stream whose reader has gone away.
fn deaf() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn nobody_has_to_listen() {
    let project = Project::with(SUITE);
    project.file("bad.toml", "version = 2\n");
    for (arguments, code) in [
        (&["run", "suite.toml", "--out", "out"][..], 10),
        (&["run", "suite.toml", "--out", "out", "-v"], 10),
        (&["run", "suite.toml", "--out", "suite.toml"], 33),
        (&["run", "suite.toml", "-E", "concurrency=9.."], 12),
        (&["run", "bad.toml"], 20),
        (&["report", "out"], 0),
        (&["report", "nowhere"], 20),
        (&["check", "suite.toml"], 0),
        (&["check", "bad.toml"], 20),
        (&["list", "suite.toml"], 0),
        (&["list", "suite.toml", "--explain", "suite.nam"], 20),
        (&["list", "suite.toml", "-E", "concurrency"], 20),
        (&["init"], 0),
        (&["init"], 20),
        (&["schema"], 0),
        (&["schema", "--check", "--out", "nowhere"], 20),
        (&["completions", "bash"], 0),
        (&["--version"], 0),
        (&["--vresion"], 20),
    ] {
        let mut command = project.command(arguments);
        let status = command.stdout(deaf()).stderr(deaf()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn what_stdout_cannot_take_is_no_success() {
    let project = Project::with(SUITE);
    for arguments in [&["completions", "bash"][..], &["check", "suite.toml"], &["schema"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let status = project.command(arguments).stdout(full).stderr(deaf()).status().unwrap();
        assert_eq!(status.code(), Some(33), "{arguments:?}");
    }
}

#[test]
fn the_last_line_on_stderr_has_all_counts() {
    for more in [&[][..], &["-q"], &["-v"]] {
        let ran = Project::with(SUITE).run(more).exits(10);
        let last = ran.stderr.lines().last().unwrap();
        let counts = "1 passed, 0 skipped, 1 failed, 0 inconclusive, 0 errors in ";
        assert!(last.starts_with(counts), "{last}");
        assert!(ran.stdout.ends_with("\nFAILED: heard\n"), "{}", ran.stdout);
    }
}

#[test]
fn quiet_tells_what_failed_and_verbose_every_step() {
    let plain = Project::with(SUITE).run(&[]);
    let quiet = Project::with(SUITE).run(&["-q"]);
    let verbose = Project::with(SUITE).run(&["-v"]);
    for ran in [&plain, &quiet, &verbose] {
        assert!(ran.stdout.contains("rerun: tokgate run suite.toml"), "{}", ran.stdout);
    }
    assert!(plain.stdout.contains("✓ pass") && !quiet.stdout.contains("✓ pass"));
    assert_eq!(quiet.stderr.lines().count(), 1, "{}", quiet.stderr);
    for step in ["launch engine: health", "decode concurrency=2: window"] {
        assert!(verbose.stderr.contains(step), "{}", verbose.stderr);
        assert!(!plain.stderr.contains(step), "{}", plain.stderr);
    }
    assert!(!plain.stderr.contains(['\r', '\u{1b}']), "{}", plain.stderr);
}

#[test]
fn a_selection_without_cells_is_told_by_whoever_is_asked() {
    for subcommand in ["run", "list", "check"] {
        let project = Project::with(SUITE);
        let ran = project.tokgate(&[subcommand, "suite.toml", "-E", "concurrency=9.."]).exits(12);
        assert!(ran.stderr.contains("no cell of suite.toml is selected"), "{}", ran.stderr);
        assert!(ran.stderr.contains("tokgate list suite.toml"), "{}", ran.stderr);
    }
}

#[test]
fn an_engine_that_nothing_tells_its_port_is_warned_of() {
    let suite = |engine: &str| {
        let text = format!(
            "version = 1\nsuite.name = \"port\"\n{engine}\n[[test]]\nkind = \"prefill\"\n\
             [[expect]]\nmetric = \"prefill-throughput\"\nmin = 1\n"
        );
        Project::with(&text).tokgate(&["check", "suite.toml"]).exits(0).stderr
    };
    let head = "[engine]\nkind = \"vllm\"\n";
    for told in [
        "command = \"serve --port {{ port }}\"",
        "command = [\"serve\", \"--listen={{ host }}:{{ port }}\"]",
        "command = \"serve --port 8000\"\nport = 8000",
        "command = \"serve\"\nenv.PORT = \"{{port}}\"",
        "command = \"serve {{ vars.more }}\"\n[vars]\nmore = [\"--port\", \"{{ port }}\"]",
        "command = \"serve c\"\n[[engine.file]]\npath = \"c\"\ncontent = \"port: {{ port }}\"",
        "url = \"http://localhost:8000\"",
    ] {
        assert_eq!(suite(&format!("{head}{told}")), "", "{told}");
    }
    for untold in ["command = \"serve --port 8000\"", "command = [\"serve\", \"{{ host }}\"]"] {
        let said = suite(&format!("{head}{untold}"));
        assert!(said.contains("nothing tells the engine its port"), "{untold}: {said}");
    }
}
