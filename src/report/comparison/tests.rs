//! Comparisons of records that were made by hand, in each form.

use std::collections::BTreeSet;

use super::*;
use crate::judge::{Bound, Side};
use crate::measure::{Base, Metric};
use crate::record::RunRecord;
use crate::record::comparison::{Choice, Incomparable, Source, compare};
use crate::record::run_record::{CellState, RelativeRecord, UnfitClass};
use crate::report::fixture::{self, nasty};
use crate::suite::model::InconclusivePolicy;

fn source(record: RunRecord) -> Source {
    Source::Record(Box::new(record))
}

fn of(a: RunRecord, b: RunRecord, choice: &Choice) -> Comparison {
    compare(("a", &source(a)), ("b", &source(b)), choice).unwrap()
}

fn rules_of(which: Which) -> Choice {
    Choice { rules: BTreeSet::from([which]), ..Choice::default() }
}

/// Two variants of one run, four launches each; one cell of the new one is a twentieth slower.
fn variants() -> Comparison {
    let choice = Choice {
        variant_a: Some("old".into()),
        variant_b: Some("new".into()),
        rules: BTreeSet::from([Which::B]),
    };
    of(fixture::compare(), fixture::compare(), &choice)
}

/// A record whose cells of one metric are all to have a ratio of 0.97 at least.
fn with_ratios(mut record: RunRecord) -> RunRecord {
    for cell in &mut record.header.cells {
        for bound in &mut cell.bounds {
            bound.metric = Metric { base: Base::OutputThroughput, stat: None, per_gpu: false };
            bound.bound = Some(Bound { side: Side::Min, target: 1.0, limit: 0.97 });
            bound.relative = Some(RelativeRecord {
                file: "b.jsonl".into(),
                git: None,
                variant: None,
                runs: Vec::new(),
                comparisons: 1,
                halved: false,
                recorded: false,
                sees: None,
            });
        }
        cell.bounds.truncate(1);
        cell.quarantine = None;
    }
    record.header.cells.retain(|cell| cell.test == "decode");
    let keep = record.header.cells.len();
    let from = record.cells.len() - keep;
    record.cells.drain(..from);
    record
}

#[test]
fn launches_have_intervals_and_rules_are_judged_by_them() {
    let found = variants();
    assert_eq!(found.cells.len(), 6);
    assert!(found.lone.is_empty());
    assert!(found.cells.iter().flat_map(|pair| &pair.rows).all(|row| row.interval.is_some()));
    // Five of six cells hold; one is broken, and the mean of all with it.
    assert_eq!((found.ruled(Held::Broken), found.ruled(Held::Holds)), (2, 5));
    insta::assert_snapshot!("variants_text", text(&found));
    insta::assert_snapshot!("variants_markdown", markdown(&found));
}

#[test]
fn pairs_of_one_run_come_to_what_its_own_report_says() {
    let record = fixture::compare();
    let found = variants();
    let interval = |estimate: &crate::judge::Estimate| {
        bounds([estimate.lower.unwrap(), estimate.upper.unwrap()])
    };
    let mut told = 0;
    for (planned, outcome) in record.header.cells.iter().zip(&record.cells) {
        for (bound, judged) in planned.bounds.iter().zip(&outcome.judgement.bounds) {
            let rule = found.rules.iter().find(|rule| {
                (&rule.test, &rule.cell) == (&planned.test, &planned.id)
                    && rule.metric == bound.metric.to_string()
            });
            let rule = rule.unwrap();
            assert!(rule.said.contains(&interval(&judged.estimate.unwrap())), "{rule:?}");
            assert_eq!(
                rule.held == Held::Broken,
                judged.verdict == crate::judge::BoundVerdict::Fail
            );
            told += 1;
        }
    }
    assert_eq!(told, 6);
    let mean = found.rules.iter().find(|rule| rule.test == "compare").unwrap();
    let own = record.compare.unwrap();
    assert!(mean.said.contains(&interval(&own.estimate.unwrap())), "{mean:?}");
    assert_eq!((mean.held, own.judgement.verdict), (Held::Broken, crate::judge::Verdict::Fail));
    // The other way round the ratios are turned over, and so are their intervals.
    let choice = Choice {
        variant_a: Some("new".into()),
        variant_b: Some("old".into()),
        ..Choice::default()
    };
    let turned = of(fixture::compare(), fixture::compare(), &choice);
    for (one, other) in found.cells.iter().zip(&turned.cells) {
        for (one, other) in one.rows.iter().zip(&other.rows) {
            let ([low, high], [from, to]) = (one.interval.unwrap(), other.interval.unwrap());
            assert!((low * to - 1.0).abs() < 1e-9 && (high * from - 1.0).abs() < 1e-9, "{other:?}");
            assert_eq!(one.pairs, Some(4));
        }
    }
}

#[test]
fn the_mean_of_two_runs_that_were_not_paired_is_one_of_launches() {
    let mut other = fixture::compare();
    other.header.run_id = "8b1c".into();
    let judged = |a: &str, b: &str| {
        let choice = Choice {
            variant_a: Some(a.into()),
            variant_b: Some(b.into()),
            rules: BTreeSet::from([Which::B]),
        };
        let found = of(fixture::compare(), other.clone(), &choice);
        assert!(found.cells.iter().flat_map(|pair| &pair.rows).all(|row| row.pairs.is_none()));
        found.rules.into_iter().find(|rule| rule.test == "compare").unwrap()
    };
    let lost = judged("old", "new");
    assert!(
        lost.said.starts_with("0.992 of A [") && lost.said.contains("] over 6 cells <"),
        "{lost:?}"
    );
    assert!(matches!(lost.held, Held::Broken | Held::Doubtful), "{lost:?}");
    assert_eq!(judged("new", "new").held, Held::Holds);
    // A cell that lacks figures leaves no mean, rather than one over fewer cells.
    let at = other.header.cells.iter().position(|it| it.variant.as_deref() == Some("new")).unwrap();
    other.cells[at].state =
        CellState::Broken { class: "engine-died".into(), message: "gone".into() };
    let choice = Choice { rules: BTreeSet::from([Which::B]), ..Choice::default() };
    let found = of(fixture::compare(), other.clone(), &choice);
    let mean = found.rules.iter().find(|rule| rule.test == "compare").unwrap();
    assert_eq!(mean.held, Held::Unjudged);
    assert!(mean.said.contains("B has no figures: engine-died: gone"), "{mean:?}");
}

#[test]
fn text_has_no_line_beyond_eighty_columns_but_for_words_without_a_blank() {
    use unicode_width::UnicodeWidthStr;
    let mut after = fixture::page_with_a_loss();
    after.header.run_id = "8b1c".into();
    after.launches[0].command = vec!["vllm".to_owned(); 60];
    let records = [(fixture::page(), after), (fixture::compare(), fixture::compare())];
    for (a, b) in records {
        let found = of(a, b, &Choice::default());
        for line in text(&found).lines().chain(text(&variants()).lines()) {
            assert!(line.width() <= 80, "{line}");
        }
    }
}

#[test]
fn one_launch_each_has_no_interval_and_proves_nothing() {
    let mut after = fixture::page_with_a_loss();
    after.header.run_id = "8b1c".into();
    after.header.seed = 43;
    after.header.provenance.suite_hash = "0123456789abcdef".into();
    after.header.declared.engine = "vllm 0.30.0".into();
    after.launches[0].facts.as_mut().unwrap().version = Some("0.30.0".into());
    after.header.machine.driver = Some("580.1".into());
    let found = of(fixture::page(), after, &Choice::default());
    assert!(found.cells.iter().flat_map(|pair| &pair.rows).all(|row| row.interval.is_none()));
    assert_eq!(found.count(Standing::Worse) + found.count(Standing::Better), 0);
    assert!(found.count(Standing::WorseUnproven) > 0);
    let shown = text(&found);
    assert!(shown.contains("one launch each, no interval"), "{shown}");
    assert!(shown.contains("  neither has figures: over capacity: "), "{shown}");
    let what: Vec<&str> = found.changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(what, ["suite hash", "engine", "GPU driver", "seed"], "{shown}");
    assert!(caution(&found).is_none());
}

#[test]
fn cells_of_one_side_and_cells_without_figures_are_named() {
    let mut after = fixture::page();
    let last = after.header.cells.pop().unwrap();
    after.cells.pop();
    after.cells[3].state =
        CellState::Broken { class: "engine-died".into(), message: "exit status 1".into() };
    let found = of(fixture::page(), after, &Choice::default());
    assert_eq!(found.lone.len(), 1);
    assert_eq!((found.lone[0].side, &found.lone[0].cell), (Which::A, &last.id));
    let shown = text(&found);
    assert!(shown.contains(&format!("{} is only in A\n", last.id)), "{shown}");
    assert!(shown.contains("  B has no figures: engine-died: exit status 1\n"), "{shown}");
    assert!(found.cells[3].rows.iter().all(|row| row.b.is_none() && row.ratio.is_none()));
}

#[test]
fn a_rule_without_an_interval_is_in_doubt_and_the_policy_of_its_suite_says_what_that_means() {
    let judged = |policy| {
        let mut after = with_ratios(fixture::page_with_a_loss());
        after.header.policy.inconclusive = policy;
        of(with_ratios(fixture::page()), after, &rules_of(Which::B))
    };
    let count = |found: &Comparison, held| found.ruled(held);
    let warn = judged(InconclusivePolicy::Warn);
    assert!(!warn.rules.is_empty());
    assert_eq!(
        (count(&warn, Held::Doubtful), count(&warn, Held::Broken)),
        (1, 0),
        "{}",
        text(&warn)
    );
    assert_eq!(count(&judged(InconclusivePolicy::Fail), Held::DoubtFails), 1);
    assert_eq!(count(&judged(InconclusivePolicy::Pass), Held::Broken), 0);
    let point = judged(InconclusivePolicy::Point);
    assert_eq!(count(&point, Held::Broken), 1);
    assert!(text(&point).contains("by the point estimate"), "{}", text(&point));
}

#[test]
fn what_b_has_no_room_for_is_lost_and_what_broke_is_not_judged() {
    let measured = |record: &RunRecord| {
        let is = |cell: &CellState| matches!(cell, CellState::Measured(_));
        record.cells.iter().position(|cell| is(&cell.state)).unwrap()
    };
    let before = with_ratios(fixture::page());
    let at = measured(&before);
    let with = |state: CellState| {
        let mut after = before.clone();
        after.cells[at].state = state;
        after
    };
    let full = CellState::Unfit { class: UnfitClass::OverCapacity, message: "512K > 256K".into() };
    let died = CellState::Broken { class: "engine-died".into(), message: "gone".into() };
    let lost = of(before.clone(), with(full.clone()), &rules_of(Which::A));
    let never = of(with(full), before.clone(), &rules_of(Which::A));
    let broke = of(before.clone(), with(died), &rules_of(Which::A));
    let same = of(before.clone(), before.clone(), &rules_of(Which::A));
    let than = |found: &Comparison, held| found.ruled(held) - same.ruled(held);
    assert_eq!((than(&lost, Held::Broken), than(&lost, Held::Unjudged)), (1, 0));
    assert_eq!((than(&never, Held::Excused), than(&never, Held::Broken)), (1, 0));
    assert_eq!((than(&broke, Held::Unjudged), than(&broke, Held::Broken)), (1, 0));
}

#[test]
fn what_has_no_rules_or_no_such_variant_is_refused() {
    let page = || source(fixture::page());
    let refused = |choice: &Choice| compare(("a", &page()), ("b", &page()), choice).unwrap_err();
    assert_eq!(refused(&rules_of(Which::A)), Incomparable::NoRatio { which: Which::A });
    let choice = Choice { variant_b: Some("new".into()), ..Choice::default() };
    let why = refused(&choice).to_string();
    assert_eq!(why, "B has no variant `new`; it has none");
}

#[test]
fn a_lone_variant_is_paired_with_cells_of_none() {
    let mut after = fixture::page();
    after.header.cells.iter_mut().for_each(|cell| cell.variant = Some("new".into()));
    let found = of(fixture::page(), after, &Choice::default());
    assert_eq!(found.cells.len(), fixture::page().cells.len());
    assert!(found.lone.is_empty());
    // Of several, names must be the same.
    let found = of(fixture::compare(), fixture::compare(), &Choice::default());
    assert_eq!(found.cells.len(), 12);
    assert!(found.cells.iter().all(|pair| pair.variant_a == pair.variant_b));
}

#[test]
fn foreign_text_is_text_in_every_form() {
    let hostile = || {
        let mut record = fixture::page_with_a_loss();
        record.header.suite = nasty();
        record.header.path = format!("<script>{}", nasty());
        record.header.cells[2].test = format!("<img src=x>|{}", nasty());
        let message = nasty();
        record.cells[4].state = CellState::Broken { class: nasty(), message };
        record
    };
    let mut other = hostile();
    other.header.cells[2].id = nasty();
    other.header.path = nasty();
    let name = nasty();
    let found = compare((&name, &source(hostile())), ("b", &source(other)), &Choice::default());
    let found = found.unwrap();
    for shown in [text(&found), markdown(&found), html(&found)] {
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
    for shown in [markdown(&found), html(&found)] {
        assert!(!shown.contains("<script>") && !shown.contains("<img"), "{shown}");
    }
    let value: serde_json::Value = serde_json::from_str(&json(&found)).unwrap();
    assert_eq!(value["lone"][0]["side"], "a");
}

#[test]
fn a_page_says_what_the_text_says() {
    let found = variants();
    let page = html(&found);
    for words in [sentence(&found), verdict(&found).unwrap(), "▼ worse".to_owned()] {
        assert!(page.contains(&words), "{words}");
    }
    assert_eq!(page.matches("<tr").count() - page.matches("</tr>").count(), 0);
    assert!(page.contains("default-src 'none'") && !page.contains("<script"));
}
