//! Disks that are missing, read-only or full, before a run and in the middle of one.
//!
//! A small disk is a tmpfs in a mount namespace of its own (`unshare`); where the kernel forbids that, these
//! tests are skipped with a word.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::OnceLock;

use super::whole::{junit, record, suite};
use crate::harness::{Project, Ran, eventually};
use crate::run::interrupted::left;
use crate::run::resumed::finished;
use crate::run::written::facts_agree;

/// Whether small disks can be made here; says so where not.
fn has_disks() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let script = "mount -t tmpfs -o size=64k none /tmp && mount -o remount,ro /tmp";
        let tried = Command::new("unshare").args(["-rm", "sh", "-c", script]).output();
        let has = tried.as_ref().is_ok_and(|it| it.status.success());
        if !has {
            // Past the capture of the test harness, which hides it otherwise.
            let why = tried.map(|it| String::from_utf8_lossy(&it.stderr).into_owned());
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of full disks: {why:?}");
        }
        has
    })
}

/// Runs a script with a small disk at `disk`, where `$tokgate` is the program; what stands in `disk/out` at
/// its end is copied to `out`, in place of what was there.
fn on_disk(project: &Project, options: &str, script: &str) -> Ran {
    let script = format!(
        "mkdir -p disk && mount -t tmpfs -o {options} none disk || exit 99\n\
         tokgate={}\n{script}\ncode=$?\n\
         rm -rf out && mkdir out && cp -a disk/out/. out/ 2>/dev/null\nexit $code",
        env!("CARGO_BIN_EXE_tokgate")
    );
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script]).current_dir(project.path());
    let ran = project.ran(command.env_remove("NO_COLOR").env_remove("CI").output().unwrap());
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

const RUN: &str = "$tokgate run suite.toml --no-progress --out disk/out";

/// What a refused run says, launching nothing.
#[track_caller]
fn refused(ran: Ran, words: &[&str]) {
    let ran = ran.exits(33);
    for words in words {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
    assert!(ran.stderr.contains("help: nothing was launched; "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("launch engine") && ran.stdout.is_empty(), "{}", ran.stderr);
}

#[test]
fn a_directory_that_can_not_be_made_is_told_with_what_to_do() {
    let project = suite("virtual", 2, "20ms");
    let at = |name: &str| project.path().join(name);
    project.file("file", "");
    symlink("nowhere", at("dangling")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let long = "x".repeat(300);
    for (out, words) in [
        ("file", &["cannot create the directory file: ", "file is a file: move it away"][..]),
        ("file/out", &["file/out", "file is a file: move it away"]),
        ("dangling", &["dangling is a symbolic link to nowhere, which does not exist"]),
        ("dangling/out", &["dangling is a symbolic link to nowhere, which does not exist"]),
        ("circle", &["symbolic links lead in a circle"]),
        ("circle/out", &["symbolic links lead in a circle"]),
        (&long, &["File name too long", "shorter name"]),
    ] {
        refused(project.tokgate(&["run", "suite.toml", "--out", out]), words);
    }
    // A missing parent is made; of a name that is nearly too long the earlier run goes inside.
    let nearly = format!("made/{}", "x".repeat(250));
    for _ in 0..2 {
        project.tokgate(&["run", "suite.toml", "--out", &nearly]).exits(0);
    }
    assert!(at(&nearly).join("previous/junit.xml").exists());
}

#[test]
fn a_directory_in_place_of_a_result_is_told_before_the_launch() {
    for name in tokgate::report::FILES.into_iter().chain([".lock"]) {
        let project = suite("virtual", 2, "20ms");
        std::fs::create_dir_all(project.path().join("out").join(name)).unwrap();
        let words = format!("{name} is a directory: move it away");
        refused(project.run(&[]), &[&words, "Is a directory"]);
        assert!(project.path().join("out").join(name).is_dir());
    }
    // One in place of the journal is an earlier run's, however odd.
    let project = suite("virtual", 2, "20ms");
    std::fs::create_dir_all(project.path().join("out/journal.jsonl")).unwrap();
    project.run(&[]).exits(0);
}

#[test]
fn a_read_only_disk_is_told_and_so_is_whose_reports_stand_there() {
    if !has_disks() {
        return;
    }
    let project = suite("virtual", 2, "20ms");
    let ran = on_disk(&project, "size=1m", &format!("mount -o remount,ro disk; {RUN}"));
    refused(ran, &["cannot create the directory disk/out: Read-only", "is mounted read-only"]);
    let script = format!("{RUN} || exit 1; mount -o remount,ro disk; {RUN}");
    let ran = on_disk(&project, "size=1m", &script).exits(33);
    assert!(
        ran.stderr.contains("note: the reports in disk/out are an earlier run's"),
        "{}",
        ran.stderr
    );
    // Rendering needs no lock, and fails with the same words.
    let script = format!("{RUN} || exit 1; mount -o remount,ro disk; $tokgate report disk/out");
    let ran = on_disk(&project, "size=1m", &script).exits(33);
    assert!(ran.stderr.contains("is mounted read-only"), "{}", ran.stderr);
    assert!(ran.stdout.matches("PASSED").count() == 2, "{}", ran.stdout);
}

#[test]
fn a_full_disk_is_told_before_the_launch() {
    if !has_disks() {
        return;
    }
    let project = suite("virtual", 2, "20ms");
    for options in ["size=64k", "size=4k"] {
        let ran = on_disk(&project, options, RUN);
        refused(ran, &["No space left on device", "make room on its file system"]);
    }
    let fill = "head -c 4m /dev/zero >disk/filler 2>/dev/null";
    refused(on_disk(&project, "size=1m", &format!("{fill}; {RUN}")), &["No space left"]);
    // Also reports whose journal somebody has removed go aside first.
    let script = format!("{RUN} >&2 || exit 1; rm disk/out/journal.jsonl; {fill}; {RUN}");
    let ran = on_disk(&project, "size=1m", &script).exits(33);
    assert!(ran.stderr.contains("help: nothing was launched; make room"), "{}", ran.stderr);
    assert!(!ran.out.join("junit.xml").exists(), "{}", ran.stderr);
    for inodes in 2..9 {
        let ran = on_disk(&project, &format!("size=4m,nr_inodes={inodes}"), RUN);
        if ran.code == 0 {
            assert!(inodes > 6, "five files and two directories");
            continue;
        }
        refused(ran, &["No space left", "can hold no more files (inodes)"]);
    }
}

#[test]
fn a_mounted_volume_keeps_the_earlier_run_inside_and_what_is_beside_it_is_not_touched() {
    if !has_disks() {
        return;
    }
    let project = suite("virtual", 2, "20ms");
    project.tokgate(&["run", "suite.toml", "--out", "disk.previous"]).exits(0);
    let run = "$tokgate run suite.toml --no-progress --out disk";
    let script = format!(
        "{run} && {run} --seed 1; code=$?; mkdir disk/out; mv disk/previous disk/out; (exit $code)"
    );
    let ran = on_disk(&project, "size=2m", &script).exits(0);
    assert!(ran.stderr.contains("the earlier run went to disk/previous"), "{}", ran.stderr);
    assert!(ran.out.join("previous/junit.xml").exists());
    assert!(project.path().join("disk.previous/junit.xml").exists());
}

/// The reports of an earlier run, all green, in `before`.
fn with_an_earlier_run(project: &Project) {
    project.tokgate(&["run", "suite.toml", "--out", "before", "--seed", "77"]).exits(0);
}

#[test]
fn an_earlier_run_that_can_not_be_moved_leaves_no_report_that_looks_new() {
    let project = suite("virtual", 2, "20ms");
    let before = project.run(&[]).exits(0).read("record.json");
    project.file("out.previous/thesis.tex", "");
    let ran = project.run(&[]);
    let removed = "junit.xml, summary.md, report.html, metrics.prom, cells.csv";
    let told = format!("{removed} of the earlier run were removed");
    refused(
        ran,
        &["out.previous is no earlier run", &told, "`tokgate report out` renders them again"],
    );
    let out = project.path().join("out");
    assert!(!out.join("junit.xml").exists() && !out.join("summary.md").exists());
    project.tokgate(&["report", "out"]).exits(0);
    assert!(out.join("junit.xml").exists());
    assert_eq!(std::fs::read_to_string(out.join("record.json")).unwrap(), before);
}

/// What must hold of a directory on a disk of any size, whatever came of the run there.
#[track_caller]
fn invariants(project: &Project, ran: Ran, size: usize) {
    let case = format!("{size} KiB, exit {}:\n{}", ran.code, ran.stderr);
    assert!(ran.code == 0 || ran.code == 33, "{case}");
    let out = project.path().join("out");
    let text = |name: &str| std::fs::read_to_string(out.join(name)).ok();
    let journal = text("journal.jsonl").unwrap_or_default();
    let done = finished(journal.as_bytes());
    let launched = ran.stderr.contains("launch engine");
    assert_eq!(!ran.stdout.is_empty(), launched, "the verdict is on stdout: {case}");
    // The earlier run is never in its place; where it could not go aside, its reports are gone.
    let seed_of = |text: &str| -> Option<u64> {
        serde_json::from_str::<serde_json::Value>(text).ok()?["header"]["seed"].as_u64()
    };
    let mine = text("record.json").is_none_or(|text| seed_of(&text) == Some(1));
    assert!(mine || text("junit.xml").is_none(), "an old report looks new: {case}");
    // No report claims more than the journal has, and none is green that is not whole.
    if let Some(told) = text("junit.xml").filter(|_| mine).map(|text| junit(&text)) {
        let green = told.bad.is_empty();
        assert!(!green || done.iter().filter(|count| **count == 1).count() == CELLS, "{case}");
    }
    if let Some(told) = text("record.json").filter(|_| mine).map(|text| record(&text)) {
        assert_eq!(told.all.len(), CELLS, "{case}");
        assert!(told.finished.len() <= done.iter().sum(), "{case}");
    }
    if ran.code == 0 {
        assert!(junit(&ran.read("junit.xml")).bad.is_empty() && done == [1; CELLS], "{case}");
        facts_agree(&ran);
    } else {
        assert!(ran.stderr.contains("help: ") && ran.stderr.contains("disk/out"), "{case}");
    }
    // With room it goes on; no finished cell is measured again.
    if mine && !journal.is_empty() && ran.code != 0 {
        let resume = ["run", "suite.toml", "--no-progress", "--resume", "out"];
        let on = project.tokgate(&resume).exits(0);
        let now = on.read("journal.jsonl");
        let whole = journal.rfind('\n').map_or(0, |at| at + 1);
        assert!(now.starts_with(&journal[..whole]), "{case}");
        assert_eq!(finished(now.as_bytes()), [1; CELLS], "{case}");
        assert!(junit(&on.read("junit.xml")).bad.is_empty(), "{case}");
        facts_agree(&on);
    }
}

const CELLS: usize = 8;

/// Runs on disks of these sizes that hold the reports of an earlier run.
fn sweep(sizes: impl Iterator<Item = usize>) {
    if !has_disks() {
        return;
    }
    let project = suite("virtual", CELLS, "20ms");
    with_an_earlier_run(&project);
    let (mut refused, mut cut, mut recovered, mut whole) = (0, 0, 0, 0);
    for size in sizes {
        let script = format!("cp -a before disk/out; {RUN} --seed 1");
        let ran = on_disk(&project, &format!("size={size}k"), &script);
        match (ran.code, ran.stderr.contains("launch engine")) {
            // Reports that found no room and found it later cost nothing.
            (0, _) if ran.stderr.contains("tried again after later cells") => recovered += 1,
            (0, _) => whole += 1,
            (_, true) => cut += 1,
            (_, false) => refused += 1,
        }
        invariants(&project, ran, size);
    }
    let counts = [refused, cut, recovered, whole];
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn whatever_the_size_of_the_disk_no_report_claims_what_is_not_so() {
    sweep((400..760).step_by(12));
}

#[test]
#[ignore = "takes a minute"]
fn whatever_the_size_of_the_disk_to_the_page() {
    sweep((4..1000).step_by(8));
}

/// A run on an engine that does something once the first cell is finished.
fn disturbed(then: &str) -> Project {
    let project = suite("real", 3, "200ms");
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    let engine = "kind = \"vllm\"\ncommand = \"sh engine.sh {{ host }} {{ port }}\"";
    let text = text.replace("kind = \"sim\"\nprofile = \"engine.toml\"\nclock = \"real\"", engine);
    project.file("suite.toml", &text);
    let script = format!(
        "{} sim --host $1 --port $2 --profile engine.toml &\n\
         until grep -q cell-finished $OUT/journal.jsonl; do sleep 0.02; done\n{then}\nwait\n",
        env!("CARGO_BIN_EXE_tokgate")
    );
    project.file("engine.sh", &script);
    project
}

#[test]
fn an_engine_that_fills_the_disk_with_its_log_leaves_room_for_the_verdict() {
    if !has_disks() {
        return;
    }
    for size in ["512k", "1m"] {
        let project = disturbed("while :; do echo filling; done");
        let ran =
            on_disk(&project, &format!("size={size}"), &format!("export OUT=disk/out; {RUN}"));
        let ran = ran.exits(33);
        assert!(
            ran.stderr.contains("the run ended early: cannot write the journal"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("what it had measured is written"), "{}", ran.stderr);
        assert!(ran.stderr.contains("make room on its file system"), "{}", ran.stderr);
        assert!(ran.stdout.contains("results could not be written"), "{}", ran.stdout);
        facts_agree(&ran);
        let told = junit(&ran.read("junit.xml"));
        assert!(!told.finished.is_empty() && !told.bad.is_empty(), "{told:?}");
        assert_eq!(left(&project), Vec::<String>::new());
        let before = ran.read("journal.jsonl");
        // With room it goes on, on an engine that minds its log.
        project.file(
            "engine.sh",
            &format!(
                "exec {} sim --host $1 --port $2 --profile engine.toml\n",
                env!("CARGO_BIN_EXE_tokgate")
            ),
        );
        let on =
            project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(0);
        assert!(on.read("journal.jsonl").starts_with(&before));
        assert_eq!(finished(on.read("journal.jsonl").as_bytes()), [1; 3]);
    }
}

/// A directory that somebody takes away in the middle of a run.
fn taken_away(then: &str, words: &str) {
    let project = disturbed(then);
    let mut command = project.command(&["run", "suite.toml", "--no-progress", "--out", "out"]);
    let ran = project.ran(command.env("OUT", "out").output().unwrap()).exits(33);
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    assert!(ran.stdout.contains("number=1"), "the verdict is on stdout: {}", ran.stdout);
    let last = ran.stderr.trim_end().lines().last().unwrap();
    assert!(last.starts_with("1 passed") || last.starts_with("2 passed"), "{last}");
    eventually("every process is gone", || left(&project).is_empty());
}

#[test]
fn a_pipe_in_place_of_a_file_of_the_run_holds_up_neither_this_run_nor_the_next() {
    // The reader of a pipe would be waited for for ever.
    let replaced = |name: &str| format!("rm -f $OUT/{name}; mkfifo $OUT/{name};");
    let log = format!("{} kill -9 $!; exit 3", replaced("engine-engine.log"));
    for (then, code) in [(log, 30), (replaced("journal.jsonl"), 33), (replaced(".lock"), 0)] {
        let project = disturbed(&then);
        let run = || {
            let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
            project.ran(command.env("OUT", "out").output().unwrap())
        };
        let ran = run().exits(code);
        let goes_on = !then.contains("journal");
        assert!(goes_on || ran.stderr.contains("and begin anew"), "{}", ran.stderr);
        assert!(goes_on || !ran.stderr.contains("--resume"), "{}", ran.stderr);
        assert_eq!(run().code, code, "{then}");
    }
}

#[test]
fn a_directory_that_is_removed_moved_or_replaced_is_noticed() {
    taken_away("rm -rf out", "removed or moved away while the run wrote it");
    taken_away("mv out elsewhere", "removed or moved away while the run wrote it");
    taken_away("mv out elsewhere; cp -a elsewhere out", "another file has taken its place");
}

#[test]
fn files_that_may_not_grow_end_the_run_and_not_the_process() {
    let limited = |blocks: u32| {
        let project = disturbed("");
        let tokgate = env!("CARGO_BIN_EXE_tokgate");
        // Bash counts in KiB.
        let script =
            format!("ulimit -f {blocks}; exec {tokgate} run suite.toml --no-progress --out out");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(project.path()).env("OUT", "out");
        (project.ran(command.output().unwrap()), project)
    };
    let (ran, _project) = limited(16);
    refused(ran, &["File too large", "raise the limit (`ulimit -f`)"]);
    let (ran, _project) = limited(1024);
    ran.exits(0);
}

#[test]
fn a_report_that_may_not_grow_is_written_when_it_may() {
    // The record of so many cells is larger than a file may be, the journal is not yet.
    let project = suite("virtual", 150, "20ms");
    let tokgate = env!("CARGO_BIN_EXE_tokgate");
    let script = format!("ulimit -f 260; exec {tokgate} run suite.toml --no-progress --out out");
    let mut command = Command::new("bash");
    let output = command.args(["-c", &script]).current_dir(project.path()).output().unwrap();
    let ran = project.ran(output).exits(33);
    assert!(ran.stderr.contains("results could not be written: cannot write"), "{}", ran.stderr);
    assert!(ran.stderr.contains("raise the limit (`ulimit -f`)"), "{}", ran.stderr);
    assert!(ran.stdout.contains("number=150"), "the verdict is on stdout");
    let before = ran.read("journal.jsonl");
    let on = project.tokgate(&["run", "suite.toml", "--no-progress", "--resume", "out"]).exits(0);
    assert!(on.read("journal.jsonl").starts_with(&before));
    assert_eq!(finished(on.read("journal.jsonl").as_bytes()), [1; 150]);
    facts_agree(&on);
}

#[test]
fn a_disk_that_can_hold_no_more_files_costs_no_verdict() {
    if !has_disks() {
        return;
    }
    let project = disturbed(
        "i=0; while :; do if true 2>/dev/null >disk/$i; then i=$((i+1)); else sleep 0.02; fi; done",
    );
    let script = format!("export OUT=disk/out; {RUN}");
    let ran = on_disk(&project, "size=4m,nr_inodes=64", &script);
    // Reports are tried again to the end, when the room that was held back is one file.
    let ran = ran.exits(0);
    assert!(ran.stderr.contains("tried again after later cells"), "{}", ran.stderr);
    facts_agree(&ran);
    // Before the engine has its log it is the engine that can't be started.
    let project = suite("real", 2, "20ms");
    let codes: Vec<i32> = (7..14)
        .map(|inodes| {
            let ran = on_disk(&project, &format!("size=4m,nr_inodes={inodes}"), RUN);
            if ran.code == 30 {
                assert!(ran.stderr.contains("can't be written: No space left"), "{}", ran.stderr);
                assert!(!junit(&ran.read("junit.xml")).bad.is_empty());
            }
            ran.code
        })
        .collect();
    assert_eq!((codes[0], codes[codes.len() - 1]), (33, 0), "{codes:?}");
    assert!(codes.contains(&30), "{codes:?}");
}

#[test]
fn streams_that_are_full_are_told_where_they_can_be() {
    let project = suite("virtual", 2, "20ms");
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = ["run", "suite.toml", "--no-progress", "--out", "out"];
    for arguments in [&run[..], &["report", "out"]] {
        let output = project.command(arguments).stdout(full()).output().unwrap();
        let ran = project.ran(output).exits(33);
        assert!(ran.stderr.contains("stdout can't be written: No space left"), "{}", ran.stderr);
        assert!(
            ran.stderr.trim_end().ends_with("virtual time"),
            "counts come last: {}",
            ran.stderr
        );
        let output = project.command(arguments).stderr(full()).output().unwrap();
        assert!(project.ran(output).exits(0).stdout.contains("PASSED"));
    }
}

#[test]
fn a_report_that_can_not_be_rendered_again_is_no_older_one() {
    if !has_disks() {
        return;
    }
    // The record of a run with a broken limit beside the green reports of another.
    let project = suite("virtual", CELLS, "20ms");
    with_an_earlier_run(&project);
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &text.replace("min = 1\n", "min = 1000000\n"));
    project.run(&[]).exits(10);
    std::fs::rename(project.path().join("out"), project.path().join("red")).unwrap();
    let (mut failed, mut whole) = (0, 0);
    for spare in (0..256).step_by(16) {
        let script = format!(
            "cp -a before disk/out; cp red/record.json disk/out/; rm disk/out/journal.jsonl\n\
             head -c {spare}k /dev/zero >disk/spare; cat /dev/zero >disk/filler 2>/dev/null; rm disk/spare\n\
             $tokgate report disk/out"
        );
        let ran = on_disk(&project, "size=1m", &script);
        let red = |ran: &Ran| {
            let path = ran.out.join("junit.xml");
            !path.exists() || !junit(&ran.read("junit.xml")).bad.is_empty()
        };
        match ran.code {
            0 => whole += 1,
            _ => {
                failed += 1;
                assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
                assert!(ran.stderr.contains("was removed: what it said may be another record's"));
            }
        }
        assert!(ran.code == 0 || ran.code == 33, "{}", ran.stderr);
        assert!(red(&ran), "{spare} KiB: {}", ran.stderr);
        assert!(ran.stdout.contains("FAILED"), "{}", ran.stdout);
        let summary = ran.out.join("summary.md");
        assert!(!summary.exists() || ran.read("summary.md").contains("FAILED"), "{}", ran.stderr);
    }
    assert!(failed > 0 && whole > 0, "{failed} {whole}");
}
