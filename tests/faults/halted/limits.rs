//! Limits of time and of failures: which cells they leave, in which words, and how the engine ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use super::{COMMAND, Running, STARTUP, cells, left, profile, project};
use crate::harness::Project;

const DECODE: &str = "[[test]]\nkind = \"decode\"\nduration = \"5m\"\n";
const TIME: &str = "not run: the time limit was reached";
const ENOUGH: &str = "not run: enough cells had failed";

/// A suite on the simulated engine whose first cells fail and whose last one would pass.
fn failing(first: &[u32], more: &str) -> Project {
    let cells = first.iter().chain(&[64]).map(u32::to_string).collect::<Vec<_>>().join(", ");
    Project::with(&format!(
        "version = 1\n[suite]\nname = \"halted\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"1s\"\nmatrix.concurrency = [{cells}]\n\
         [[expect]]\nwhere = {{ concurrency = \"..63\" }}\nmetric = \"output-throughput\"\nmin = 10_000_000\n\
         [[expect]]\nwhere = {{ concurrency = 64 }}\nmetric = \"output-throughput\"\nmin = 1\n{more}"
    ))
}

#[test]
fn a_limit_of_time_in_each_phase_leaves_the_rest_to_a_resumption() {
    let mute = "[[fault]]\nkind = \"mute\"\npath = \"/v1/completions\"\n";
    let stop = format!("{COMMAND}\nstop = {{ grace = \"10m\" }}");
    // Engine, tests, profile, what makes it go wrong, cells that are finished by then.
    let phases = [
        (COMMAND, STARTUP, profile(2, 2, 2, ""), "unready", 0),
        (COMMAND, STARTUP, profile(2, 2, 2, mute), "none", 0),
        (
            COMMAND,
            "[[test]]\nkind = \"startup\"\n[[test]]\nkind = \"decode\"\nduration = \"1s\"\nmin-tokens = 10\n",
            profile(2, 2, 3000, ""),
            "none",
            1,
        ),
        (&stop, STARTUP, profile(2, 2, 2, ""), "deaf", 1),
    ];
    std::thread::scope(|scope| {
        for (engine, tests, slow, fault, kept) in phases {
            scope.spawn(move || {
                let project = project(engine, tests, &slow);
                project.file(fault, "");
                let ran = project.run(&["--time-limit", "6s"]);
                let found = cells(&ran.out);
                let rest = &found[kept..];
                // What was measured before the engine had to be stopped counts as any other.
                let ran = ran.exits(if rest.is_empty() { 0 } else { 32 });
                assert!(
                    rest.iter().all(|(_, verdict, why)| verdict == "error" && why == TIME),
                    "{found:?}"
                );
                assert_eq!(ran.stderr.contains("to go on: "), !rest.is_empty(), "{}", ran.stderr);
                assert_eq!(left(&project), Vec::<String>::new());
                project.file("calm", "");
                let resumed = project.tokgate(&["run", "suite.toml", "--resume", "out", "-q"]);
                let after = cells(&resumed.out);
                assert!(after.iter().all(|cell| !cell.2.starts_with("not run")), "{after:?}");
            });
        }
    });
}

#[test]
fn a_suite_has_a_limit_of_time_too() {
    let tests = format!("{DECODE}[policy]\ntime-limit = \"4s\"\n");
    let project = project(COMMAND, &tests, &profile(2, 2, 2, ""));
    let ran = project.run(&[]).exits(32);
    assert_eq!(cells(&ran.out)[0].2, TIME);
}

#[test]
fn a_job_of_slurm_ends_before_it_is_killed() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let tests = format!("{DECODE}[policy]\ntime-limit = \"auto\"\n");
    let project = project(COMMAND, &tests, &profile(2, 2, 2, ""));
    let run = |end: u64, more: &[&str]| {
        let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
        command.args(more).env("SLURM_JOB_END_TIME", end.to_string());
        project.ran(command.output().unwrap())
    };
    // Half a minute is kept for the end of the job.
    let ran = run(now + 34, &[]).exits(32);
    assert_eq!(cells(&ran.out)[0].2, TIME);
    assert!(ran.read("journal.jsonl").contains("\"launch-started\""));
    let ran = run(now + 5, &[]).exits(32);
    assert!(!ran.read("journal.jsonl").contains("\"launch-started\""), "it is too late to begin");
    // The flag goes before the suite, and says the same word.
    assert_eq!(cells(&run(now + 5, &["--time-limit", "auto"]).exits(32).out)[0].2, TIME);
    let ran = run(now + 5, &["--time-limit", "3s"]).exits(32);
    assert!(ran.read("journal.jsonl").contains("\"launch-started\""));
}

#[test]
fn a_limit_of_time_holds_for_all_suites_of_a_command() {
    let project = project(COMMAND, DECODE, &profile(2, 2, 2, ""));
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("second.toml", &text.replace("halted", "halted-too"));
    // What an earlier day has left there must not look new.
    project.file("tokgate-out/halted-too/journal.jsonl", "");
    project.file("tokgate-out/halted-too/junit.xml", "<testsuites/>");
    let ran =
        project.tokgate(&["run", "suite.toml", "second.toml", "--time-limit", "4s"]).exits(32);
    for suite in ["halted", "halted-too"] {
        let found = cells(&project.path().join("tokgate-out").join(suite));
        assert_eq!(found[0].2, TIME, "{}", ran.stderr);
    }
    let journal = project.path().join("tokgate-out/halted-too/journal.jsonl");
    assert!(!std::fs::read_to_string(journal).unwrap().contains("launch-started"));
}

#[test]
fn a_signal_holds_for_all_suites_of_a_command() {
    let project = project(COMMAND, DECODE, &profile(2, 2, 2, ""));
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("second.toml", &text.replace("halted", "halted-too"));
    let child = project
        .command(&["run", "suite.toml", "second.toml"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut run = Running { project: &project, child: child.unwrap() };
    super::reached("a cell", || {
        run.text("tokgate-out/halted/journal.jsonl").contains("cell-started")
    });
    run.ended_by(Signal::TERM, 143);
    for suite in ["halted", "halted-too"] {
        let found = cells(&project.path().join("tokgate-out").join(suite));
        assert_eq!(found[0].2, "not run: the run was interrupted");
    }
}

#[test]
fn the_first_failures_end_a_run_that_asks_for_it() {
    for (flags, failures) in [
        (&["--fail-fast"][..], 1),
        (&["--max-fail", "1"], 1),
        (&["--max-fail", "2"], 2),
        (&["--max-fail", "9"], 3),
        (&[], 3),
    ] {
        let ran = failing(&[1, 2, 4], "").run(flags).exits(10);
        let found = cells(&ran.out);
        let failed = found.iter().filter(|cell| cell.1 == "fail").count();
        assert_eq!(failed, failures, "{flags:?} {found:?}");
        let not_run = found.iter().filter(|cell| cell.2 == ENOUGH).count();
        assert_eq!(not_run, if failures == 3 { 0 } else { 4 - failures }, "{found:?}");
        let last = ran.stderr.lines().last().unwrap();
        assert!(last.contains(&format!("{failures} failed")), "{last}");
    }
}

#[test]
fn an_engine_has_its_time_to_end_after_a_failure() {
    let tests = format!("{STARTUP}[[expect]]\nmetric = \"ready-time\"\nmax = \"1ms\"\n{DECODE}");
    let project = project(&format!("{COMMAND}\nstop = {{ grace = \"20s\" }}"), &tests, "");
    // It takes longer than an interrupted run would wait.
    let engine = "trap 'trap \"\" TERM; sleep 4; touch orderly; exit 0' TERM\n\
                  TOKGATE sim --host $1 --port $2 --profile calm.toml & wait; wait\n";
    project.file("engine.sh", &engine.replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate")));
    let ran = project.run(&["--fail-fast"]).exits(10);
    assert_eq!(cells(&ran.out)[1].2, ENOUGH);
    assert!(project.path().join("orderly").exists());
}

#[test]
fn launches_that_fail_count_and_cells_that_did_not_run_do_not() {
    // Each launch has two cells, and none starts.
    let tests = "[[test]]\nkind = \"startup\"\n[[test]]\nkind = \"prefill\"\n[matrix]\nlane = [\"a\", \"b\", \"c\"]\n";
    let project = project("command = \"false {{ port }} {{ axis.lane }}\"", tests, "");
    for (most, launches) in [("1", 1), ("2", 2), ("3", 3)] {
        let ran = project.run(&["--max-fail", most]).exits(30);
        let record = ran.record();
        let failed = record["launches"].as_array().unwrap().iter();
        assert_eq!(failed.filter(|launch| !launch["failure"].is_null()).count(), launches);
        let enough = cells(&ran.out).iter().filter(|cell| cell.2 == ENOUGH).count();
        assert_eq!(enough, 2 * (3 - launches));
    }
}

#[test]
fn failures_count_over_all_suites_of_a_command() {
    let project = failing(&[1], "");
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("second.toml", &text.replace("halted", "halted-too"));
    project.tokgate(&["run", "suite.toml", "second.toml", "--fail-fast"]).exits(10);
    let out = |suite: &str| project.path().join("tokgate-out").join(suite);
    assert_eq!(cells(&out("halted"))[1].2, ENOUGH);
    assert!(cells(&out("halted-too")).iter().all(|cell| cell.2 == ENOUGH));
    project.tokgate(&["run", "suite.toml", "second.toml", "--max-fail", "2"]).exits(10);
    assert!(cells(&out("halted")).iter().all(|cell| cell.2 != ENOUGH));
    assert_eq!(cells(&out("halted-too"))[1].2, ENOUGH);
}

#[test]
fn limits_of_nothing_are_refused_in_words() {
    let project = failing(&[1], "");
    for (flags, words) in [
        (["--max-fail", "0"], "write 1 to end after the first failed cell"),
        (["--max-fail", "two"], "write a number of cells, like 3"),
        (["--time-limit", "0s"], "write a time like 90m"),
        (["--time-limit", "90"], "90"),
    ] {
        let ran = project.run(&flags).exits(20);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

#[test]
fn a_signal_goes_before_everything_else_that_holds() {
    // A broken limit before it, a limit of time beside it.
    let tests = format!("{STARTUP}[[expect]]\nmetric = \"ready-time\"\nmax = \"1ms\"\n{DECODE}");
    let broken = || project(COMMAND, &tests, &profile(2, 2, 2, ""));
    let project = broken();
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    run.ended_by(Signal::INT, 130);
    assert_eq!(cells(&run.out())[0].1, "fail");

    // A broken limit goes before the time that was up.
    let project = broken();
    let ran = project.run(&["--time-limit", "5s"]).exits(10);
    assert_eq!((cells(&ran.out)[0].1.as_str(), cells(&ran.out)[1].2.as_str()), ("fail", TIME));

    // A signal while the engine is being stopped, since time was up.
    let project = super::project(
        &format!("{COMMAND}\nstop = {{ grace = \"10m\" }}"),
        DECODE,
        &profile(2, 2, 2, ""),
    );
    project.file("deaf", "");
    let mut run = Running::start(&project, &["--time-limit", "4s"]);
    run.until_journal("\"run-finished\"");
    std::thread::sleep(Duration::from_millis(100));
    run.ended_by(Signal::TERM, 143);
    assert_eq!(cells(&run.out())[0].2, TIME, "which is why they did not run");
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn results_that_cannot_be_written_do_not_hide_a_signal() {
    let project = project(COMMAND, DECODE, &profile(2, 2, 2, ""));
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    // No report can be put in the place of a directory, whoever writes it.
    std::fs::remove_file(run.out().join("junit.xml")).unwrap();
    std::fs::create_dir(run.out().join("junit.xml")).unwrap();
    run.ended_by(Signal::TERM, 143);
    assert!(run.said().contains("results could not be written"), "{}", run.said());
}
