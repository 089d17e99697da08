//! What is left when a run is killed.

use super::{KEY, WORDS, every_route, files, generated, nothing_of, run, start};
use crate::harness::eventually;

#[test]
fn the_supervisor_cleans_up_after_a_killed_run() {
    let project = every_route();
    project.file("tool.sh", "source echo.sh\necho \"$KEY\" > \"$1/key-$WORDS\"\nsleep 100\n");
    let child = start(run(&project, &["-E", "test=good"]));
    let generated = generated(&project);
    let out = project.path().join("out");
    eventually("the tool runs", || {
        files(&out).iter().any(|it| it.ends_with(format!("key-{WORDS}")))
    });
    let conf = out.join("engine-engine/conf/keys.txt");
    assert!(std::fs::read_to_string(&conf).unwrap().contains(KEY), "the engine is to read it");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let ran = project.ran(child.wait_with_output().unwrap());
    eventually("the files are clean", || {
        !std::fs::read_to_string(&conf).unwrap().contains(KEY)
            && files(&out).iter().any(|it| it.ends_with("key-[redacted]"))
    });
    nothing_of(&[KEY, WORDS, &generated], &ran);
}

#[test]
fn an_engine_that_is_never_ready_leaves_none() {
    let project = every_route();
    project.file("engine.sh", "source echo.sh\necho \"RuntimeError: no model for $KEY\"\nexit 3\n");
    let ran = project.ran(run(&project, &["-v"]).output().unwrap()).exits(30);
    nothing_of(&[KEY, WORDS], &ran);
    assert!(ran.stdout.contains("RuntimeError: no model for [redacted]"), "{}", ran.stdout);
    assert!(ran.read("engine-engine/conf/keys.txt").contains("[redacted]"));

    let project = every_route();
    project.file("echo.sh", "printf 'Error: %s, %s\\n' \"$KEY\" \"$1\"; exit 5\n");
    let ran = project.ran(run(&project, &[]).output().unwrap()).exits(30);
    nothing_of(&[KEY, WORDS], &ran);
    assert!(ran.read("record.json").contains("setup command failed: bash echo.sh [redacted]"));
}
