//! Old engine against new, in pairs.

use super::{ENGINE, SLOWER, SUITE, cell, events, mean, measured, project, starts, verdict};
use crate::harness::Project;

#[test]
fn equal_engines_pass_and_each_ratio_says_what_it_could_have_seen() {
    let ran = project("virtual", "").run(&["--seed", "7"]).exits(0);
    assert_eq!(
        starts(&ran),
        ["new 0", "old 0", "old 1", "new 1", "new 2", "old 2", "old 3", "new 3"]
    );
    for id in ["concurrency=1", "concurrency=2"] {
        let (verdict, message) = verdict(&ran, &format!("new decode {id}"));
        assert_eq!(verdict, "pass", "{message}");
        for words in
            ["tok/s is 1.000 of old's ", " [1.000, 1.000] ≥ 0.97 (4 pairs, clear, sees losses"]
        {
            assert!(message.contains(words), "{message}");
        }
        // Three ratios, beside the mean, which takes half of the level.
        assert!(message.contains("one of 3 comparisons"), "{message}");
        let held = ("measured".to_owned(), "another variant is held against it".to_owned());
        assert_eq!(super::verdict(&ran, &format!("old decode {id}")), held);
    }
    assert!(!ran.stdout.contains("policy.unjudged"), "{}", ran.stdout);
    let (verdict, message) = mean(&ran);
    assert_eq!(verdict, "pass", "{message}");
    assert!(
        message.contains("of old over 3 cells [1.000, 1.000] ≥ 0.99 (4 pairs, clear"),
        "{message}"
    );
    let rounds = cell(&ran, "new decode concurrency=1")["rounds"].as_array().unwrap().len();
    assert_eq!((rounds, measured(&ran, "new decode concurrency=1")), (4, 4));
}

#[test]
fn what_others_are_held_against_is_asked_for() {
    let suite = SUITE.replace("CLOCK", "virtual");
    let project = project("virtual", "");
    project.file("suite.toml", &suite.replace("[policy]", "[policy]\nunjudged = \"error\""));
    project.run(&["-E", "test=decode"]).exits(0);
    // By itself it is not.
    project.run(&["-E", "test=decode variant=old"]).exits(20);
}

#[test]
fn a_slower_cell_is_red_and_no_other() {
    let ran = project("virtual", SLOWER).run(&["--seed", "7"]).exits(10);
    assert_eq!(ran.having("fail"), ["decode concurrency=2"]);
    let (_, message) = verdict(&ran, "new decode concurrency=2");
    assert!(
        message.contains(" is 0.909 of old's ") && message.contains(" < 0.97 (4 pairs, "),
        "{message}"
    );
    assert_eq!(verdict(&ran, "new decode concurrency=1").0, "pass");
    // A third of ln 0.909 is a loss of 3.1 % in the mean.
    let (verdict, message) = mean(&ran);
    assert_eq!(verdict, "fail", "{message}");
    assert!(message.starts_with("mean ratio 0.969 of old over 3 cells"), "{message}");
    // Its rerun brings along what it is held against.
    let ran = project("virtual", SLOWER);
    let ran = ran.run(&["-E", "variant=new test=decode concurrency=2"]).exits(10);
    assert_eq!((ran.having("fail").len(), ran.having("measured").len()), (1, 1));
}

#[test]
fn what_nothing_of_a_selection_is_compared_in_has_no_mean() {
    let ran = project("virtual", "").run(&["-E", "variant=old test=decode"]).exits(0);
    assert_eq!(starts(&ran), ["old 0", "old 1", "old 2", "old 3"]);
    assert_eq!(mean(&ran), ("measured".into(), "no cell of this run is compared".into()));
}

#[test]
fn a_cell_that_does_not_fit_is_found_once() {
    let suite = SUITE.replace("CLOCK", "virtual");
    let suite = suite.replace("concurrency = [1, 2]", "concurrency = [1, 2, 600]");
    let project = Project::with(&suite);
    project.file("engine.toml", ENGINE);
    project.file("new.toml", ENGINE);
    let ran = project.run(&[]).exits(10);
    for variant in ["old", "new"] {
        assert_eq!(measured(&ran, &format!("{variant} decode concurrency=600")), 1);
    }
    let (found, message) = verdict(&ran, "new decode concurrency=600");
    assert_eq!(found, "fail");
    assert!(message.contains("exceed the engine's KV cache"), "{message}");
    assert_eq!(verdict(&ran, "old decode concurrency=600").0, "skip");
    // What fits in neither is no part of the mean.
    assert!(mean(&ran).1.contains("over 3 cells"), "{:?}", mean(&ran));
    // Where it fits one of them only, there is no pair.
    project.file("engine.toml", &ENGINE.replace("512K", "4M"));
    let ran = project.run(&["-E", "test=decode"]).exits(10);
    assert_eq!(measured(&ran, "old decode concurrency=600"), 4);
    let (found, message) = mean(&ran);
    assert_eq!(found, "error");
    assert!(message.contains("decode concurrency=600: 600 × "), "{message}");
}

#[test]
fn failures_end_a_run_when_a_cell_is_whole_and_count_once() {
    let slow = "[[fault]]\nkind = \"slow\"\nwhat = \"all\"\nby = \"30%\"\n";
    let ran = project("virtual", slow).run(&["--fail-fast"]).exits(10);
    // The candidate is measured last, so that its cells are judged as they come.
    assert_eq!(ran.having("fail").len(), 1, "{:?}", ran.verdicts());
    assert_eq!(starts(&ran).len(), 8);
    let left = "not run: enough cells had failed; 3 of 4 launches measured";
    assert_eq!(verdict(&ran, "new decode concurrency=2"), ("error".into(), left.into()));
    assert!(ran.read("junit.xml").contains(left));
    let ran = project("virtual", slow).run(&["--max-fail", "2"]).exits(10);
    assert_eq!(ran.having("fail").len(), 2, "{:?}", ran.verdicts());
}

#[test]
fn launches_of_each_layout_are_pairs_of_their_own() {
    let suite = SUITE.replace("CLOCK", "virtual").replace(
        "[variant.old]",
        "env.LAYOUT = \"{{ axis.layout }}\"\n[matrix]\nlayout = [\"a\", \"b\"]\n[variant.old]",
    );
    let project = Project::with(&suite);
    project.file("engine.toml", ENGINE);
    project.file("new.toml", ENGINE);
    let ran = project.run(&["-E", "test=decode concurrency=1"]).exits(0);
    let told = starts(&ran);
    assert_eq!(told.len(), 16, "{told:?}");
    let layout = |start: &str| start.split("layout=").nth(1).unwrap()[..1].to_owned();
    for pair in told.chunks(2) {
        assert_eq!(layout(&pair[0]), layout(&pair[1]), "{told:?}");
    }
    assert!(told[..8].iter().all(|it| layout(it) == "a"), "{told:?}");
    let finished = events(&ran, "cell-finished");
    assert_eq!(finished.len(), 16);
}
