//! Runs that are killed at any moment, again and again, and go on.

use std::time::Duration;

use super::interrupted::left;
use super::resumed::{bytes, finished, journal, real, start, structure, whole};
use super::written::facts_agree;
use crate::harness::{Project, shipped};

/// Numbers that look like chance and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Kills runs of a suite at moments up to `longest` milliseconds after their start, `kills` times in all,
/// each followed by another that goes on; what each comes to at last is what one comes to that nobody cut.
fn kill(make: impl Fn() -> Project, kills: u32, longest: u64, code: i32) {
    let mut dice = Dice(20_261_130);
    let once = structure(&make().run(&["--seed", "7"]).exits(code));
    let mut killed = 0;
    while killed < kills {
        let project = make();
        let path = journal(&project);
        let mut kept = Vec::new();
        loop {
            let mut child = start(&project, &["--out", "out", "--resume", "auto", "--seed", "7"]);
            let pause = if killed < kills { dice.roll(longest) } else { 120_000 };
            let mut slept = 0;
            while slept < pause && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
                slept += 1;
            }
            let gone = child.try_wait().unwrap().is_some();
            child.kill().unwrap();
            let ran = project.ran(child.wait_with_output().unwrap());
            let told = bytes(&path);
            // What was whole on disk stays as it was.
            assert!(told.starts_with(&kept), "{}", ran.stderr);
            let counts = finished(&told);
            assert!(counts.iter().all(|count| *count <= 1), "measured twice: {counts:?}");
            if gone {
                let ran = ran.exits(code);
                assert!(counts.iter().all(|count| *count == 1), "lost: {counts:?}");
                assert_eq!(structure(&ran), once);
                facts_agree(&ran);
                break;
            }
            killed += 1;
            kept = whole(&told).to_vec();
            // Whatever a reader finds is whole.
            if ran.out.join("record.json").exists() {
                ran.record();
            }
            if ran.out.join("junit.xml").exists() {
                assert!(ran.read("junit.xml").trim_end().ends_with("</testsuites>"));
            }
        }
        assert_eq!(left(&project), Vec::<String>::new());
    }
}

#[test]
fn killed_at_any_moment_a_run_goes_on_where_it_was() {
    kill(real, 8, 1100, 10);
}

#[test]
#[ignore = "takes three minutes"]
fn the_smoke_suite_killed_a_hundred_times() {
    let smoke = || {
        let project = Project::new();
        for name in ["smoke.toml", "sim/smoke.toml"] {
            let text = std::fs::read_to_string(shipped(&format!("suites/{name}"))).unwrap();
            project.file(if name == "smoke.toml" { "suite.toml" } else { name }, &text);
        }
        project
    };
    kill(smoke, 100, 3000, 0);
}
