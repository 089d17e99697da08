//! Measurements that leave doubt: a pace that drifts, and too few samples.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{faulty, measured, suite, told_everywhere};
use crate::harness::Project;
use crate::toy::{Toy, whole};

/// A decode cell of 20 s in virtual time, whose steps get longer by this share a minute.
fn drifting(share: &str, floor: u32) -> Project {
    let project = Project::with(&format!(
        "version = 1\n[suite]\nname = \"drift\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
         profile = \"engine.toml\"\n[[test]]\nkind = \"decode\"\nduration = \"20s\"\nmax-output = 16384\n\
         [[expect]]\nmetric = \"output-throughput\"\nmin = {floor}\n"
    ));
    let profile = format!(
        "max-model-len = \"32K\"\nkv-capacity = \"64K\"\n[prefill]\ntokens = [16, \"16K\"]\nms = [1, 100]\n\
         [admit]\nat = [1]\ngrid = [[\"1K\", 9]]\n[step]\nat = [1]\ngrid = [[\"1K\", 5.0]]\n\
         [noise]\nwithin = \"1%\"\ndrift = \"{share}\"\n"
    );
    project.file("engine.toml", &profile);
    project
}

#[test]
fn a_pace_that_drifts_is_at_best_inconclusive() {
    let verdict = |share, floor, code| {
        let ran = drifting(share, floor).run(&["--seed", "7"]).exits(code);
        let verdict = ran.verdicts()[0].rsplit(' ').next().unwrap().to_owned();
        (ran, verdict)
    };
    assert_eq!(verdict("0%", 150, 0).1, "pass");
    let (ran, found) = verdict("100%", 50, 0);
    assert_eq!(found, "inconclusive");
    let words = faulty(&measured(&ran, 0), "steady", "drifting");
    assert!(words.starts_with("change over the window −"), "{words}");
    told_everywhere(&ran, &words);
    // A limit that is broken surely is broken.
    assert_eq!(verdict("100%", 300, 10).1, "fail");
}

#[test]
fn a_sample_that_stands_alone_is_an_error() {
    // Of three samples two fail, which the suite allows.
    let asked = AtomicUsize::new(0);
    let toy = Toy::start(move |one| match asked.fetch_add(1, Ordering::SeqCst) {
        1 | 2 => whole("500 Internal Server Error", "", b"{}"),
        _ => one.stream().acts(),
    });
    let test = "[[test]]\nkind = \"prefill\"\nmatrix.context = [64]\n";
    let project = suite(&toy, "vllm", "", test);
    let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    project.file("suite.toml", &text.replace("[policy]", "[policy]\nmax-error-rate = \"90%\""));
    let ran = project.run(&[]).exits(31);
    let words = faulty(&measured(&ran, 0), "samples", "invalid");
    assert_eq!(words, "1 samples, at least 2 needed");
    told_everywhere(&ran, &words);
}
