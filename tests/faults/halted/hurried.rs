//! Signals that follow each other, and what else may be sent to a run.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{COMMAND, LIMIT, Running, STARTUP, cells, left, profile, project, reached};
use crate::harness::Project;

const DECODE: &str = "[[test]]\nkind = \"decode\"\nduration = \"5m\"\n";

/// A run that would go on for minutes, on an engine that takes a second and a half to end after TERM and
/// leaves a note of having done so.
fn careful() -> Project {
    let project = project(&format!("{COMMAND}\nstop = {{ grace = \"30s\" }}"), DECODE, "");
    let engine = "trap 'touch asked; trap \"\" TERM; sleep 1.5; touch orderly; exit 0' TERM\n\
                  TOKGATE sim --host $1 --port $2 --profile calm.toml & wait; wait\n";
    project.file("engine.sh", &engine.replace("TOKGATE", env!("CARGO_BIN_EXE_tokgate")));
    project
}

fn is_there(project: &Project, file: &str) -> bool {
    project.path().join(file).exists()
}

#[test]
fn the_first_signal_leaves_an_engine_its_time() {
    let project = careful();
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    run.ended_by(Signal::TERM, 143);
    assert!(is_there(&project, "orderly"), "{}", run.said());
}

#[test]
fn a_second_signal_hurries_and_the_first_names_the_end() {
    let project = careful();
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    run.send(Signal::INT);
    run.until_file("asked");
    std::thread::sleep(Duration::from_millis(300));
    run.ended_by(Signal::TERM, 130);
    assert!(!is_there(&project, "orderly"), "it was killed");
    assert_eq!(left(&project), Vec::<String>::new());
    assert_eq!(cells(&run.out())[0].2, "not run: the run was interrupted");
}

#[test]
fn a_second_signal_hurries_what_was_given_up_too() {
    let project = project(&format!("{COMMAND}\nsetup = [\"bash setup.sh\"]"), STARTUP, "");
    project.file("setup.sh", "trap 'touch asked; trap \"\" TERM; sleep 1.5; touch orderly; exit 0' TERM\nsleep 3151 & wait; wait\n");
    let mut run = Running::start(&project, &[]);
    run.until_journal("\"setup\"");
    reached("it sleeps", || left(&project).iter().any(|line| line.contains("3151")));
    run.send(Signal::TERM);
    run.until_file("asked");
    std::thread::sleep(Duration::from_millis(300));
    run.ended_by(Signal::TERM, 143);
    assert!(!is_there(&project, "orderly"), "it was killed");
    assert_eq!(left(&project), Vec::<String>::new());
}

#[test]
fn a_signal_to_the_child_and_its_group_is_one() {
    // As `timeout` does, which is a common way to run anything in CI.
    let project = careful();
    let tokgate = env!("CARGO_BIN_EXE_tokgate");
    let script = format!(
        "timeout 5 {tokgate} run suite.toml --out out -v > stdout.txt 2> stderr.txt; echo $? > code"
    );
    let status = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(project.path())
        .status()
        .unwrap();
    assert!(status.success());
    let code = std::fs::read_to_string(project.path().join("code")).unwrap();
    assert_eq!(code.trim(), "124");
    assert!(is_there(&project, "orderly"), "it was not hurried");
    assert_eq!(cells(&project.path().join("out"))[0].1, "error");
}

#[test]
fn a_storm_of_signals_does_no_harm() {
    let project = project(COMMAND, &format!("{STARTUP}{DECODE}"), &profile(2, 2, 2, ""));
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    for at in 0..50 {
        run.send([Signal::TERM, Signal::HUP, Signal::INT][at % 3]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, took) = run.ends();
    assert_eq!(code, 143, "{}", run.said());
    assert!(took < LIMIT);
    let found = cells(&run.out());
    assert_eq!((found[0].1.as_str(), found[1].1.as_str()), ("measured", "error"));
    // Whatever the third found alive is ended without it.
    reached("no process is left", || left(&project).is_empty());
}

#[test]
fn a_supervisor_that_hangs_keeps_nobody() {
    let project = project(COMMAND, DECODE, &profile(2, 2, 2, ""));
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    let parent = run.child.id().to_string();
    let children = std::process::Command::new("pgrep").args(["-P", &parent]).output();
    let Ok(children) = children else {
        eprintln!("SKIPPED: no pgrep (package procps)");
        return;
    };
    let children = String::from_utf8(children.stdout).unwrap();
    let supervisor = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (code, took) = std::thread::scope(|scope| {
        // Again and again, since the run lets it go on.
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = kill_process(supervisor, Signal::STOP);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        run.send(Signal::TERM);
        let ends = run.ends();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        ends
    });
    let _ = kill_process(supervisor, Signal::CONT);
    assert_eq!(code, 143, "{}", run.said());
    assert!(took < LIMIT, "{took:?}");
    assert!(run.said().contains("is still being ended by its supervisor"), "{}", run.said());
    assert_eq!(cells(&run.out())[0].1, "error");
    reached("no process is left", || left(&project).is_empty());
}

#[test]
fn nobody_who_reads_is_no_reason_to_stay() {
    // The page at the end waits for a reader who never comes: for a while, and less once the run is told to end.
    let project = project(COMMAND, STARTUP, &profile(2, 2, 2, ""));
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&[b'.'; 4096]).unwrap();
    let mut command =
        project.command(&["run", "suite.toml", "--out", "out", "-v", "--no-progress"]);
    let stderr = File::create(project.path().join("stderr.txt")).unwrap();
    let child = command.stdout(Stdio::from(writer)).stderr(stderr).spawn().unwrap();
    let mut run = Running { project: &project, child };
    run.until_journal("\"run-finished\"");
    reached("the engine is gone", || left(&project).len() == 1);
    run.ended_by(Signal::TERM, 143);
    drop(reader);
    assert_eq!(cells(&run.out())[0].1, "measured", "it had been finished");
}

#[test]
fn a_run_that_was_stopped_for_a_while_says_so_and_goes_on() {
    let tests = "[[test]]\nkind = \"decode\"\nduration = \"2s\"\nmin-tokens = 10\nmax-output = 64\n\
                 [[expect]]\nmetric = \"chunk-gap.max\"\nmax = \"1s\"\n";
    let project = project(COMMAND, tests, &profile(2, 2, 5, ""));
    let mut run = Running::start(&project, &[]);
    run.until_said(": window");
    run.send(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1500));
    run.send(Signal::CONT);
    let (code, _) = run.ends();
    // No figure of the engine's, and so nobody is blamed.
    assert_eq!(code, 31, "{}\n{}", run.said(), run.text("stdout.txt"));
    let found = cells(&run.out());
    assert!(found[0].2.contains("the client was the limit"), "{found:?}");
}

#[test]
fn what_batch_systems_send_before_they_kill_ends_a_run_like_a_limit_of_time() {
    for (signal, name) in
        [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2"), (Signal::XCPU, "SIGXCPU")]
    {
        let project = project(COMMAND, &format!("{STARTUP}{DECODE}"), &profile(2, 2, 2, ""));
        let mut run = Running::start(&project, &[]);
        run.until_said(": window");
        run.ended_by(signal, 32);
        let found = cells(&run.out());
        assert_eq!(found[0].1, "measured");
        assert_eq!(found[1].2, "not run: the time limit was reached");
        assert!(
            run.text("out/record.json").contains(&format!("{name} said that time is nearly up"))
        );
        assert!(run.said().contains("to go on: "), "{}", run.said());
    }
}
