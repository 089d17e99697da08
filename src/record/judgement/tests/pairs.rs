//! Cells of two variants measured in pairs, through the record: whatever the order of finishing.

use super::*;
use crate::judge::Method;
use crate::judge::golden::{cases, close, number};
use crate::record::Event;
use crate::record::RunRecord;
use crate::record::run_record::tests::header;
use crate::record::run_record::{
    CompareRecord, NoiseRecord, RelativeRecord, RunHeader, VariantRecord,
};

/// At least that share of what `old` has in pairs.
pub(super) fn share(metric: &str, limit: f64, comparisons: u64) -> BoundRecord {
    let side = if limit > 1.0 { Side::Max } else { Side::Min };
    BoundRecord {
        bound: Some(Bound { side, target: 1.0, limit }),
        relative: Some(RelativeRecord {
            git: None,
            file: "variant old".into(),
            variant: Some(VariantRecord { name: "old".into(), paired: true }),
            runs: Vec::new(),
            comparisons,
            halved: false,
            recorded: false,
            sees: None,
        }),
        slack: 0.0,
        ..floor(metric, 1.0, 31)
    }
}

/// `old` with 4 GPUs and `new` with 8, and so many cells of each, `old` first.
pub(super) fn compare(cells: usize, pairs: u32, bounds: &[BoundRecord]) -> RunHeader {
    let mut header = header();
    header.launches[0].gpus = 4;
    header.launches[1].gpus = 8;
    header.cells.clear();
    for (launch, variant) in ["old", "new"].into_iter().enumerate() {
        for at in 0..cells {
            let bounds = if launch == 1 { bounds.to_vec() } else { Vec::new() };
            header.cells.push(PlannedCellRecord {
                id: format!("c={at}"),
                variant: Some(variant.into()),
                launch,
                rounds: pairs,
                ..cell(bounds)
            });
        }
    }
    header.compare = Some(CompareRecord {
        baseline: "old".into(),
        candidate: "new".into(),
        pairs,
        min_mean_ratio: None,
        place: place(15),
    });
    header
}

pub(super) fn round(cell: usize, round: u32, state: CellState) -> Event {
    Event::CellFinished { cell, round, state, seconds: 1.0 }
}

pub(super) fn rate(value: f64) -> CellState {
    CellState::Measured(Box::new(window(value, value / 1000.0)))
}

fn broken() -> CellState {
    CellState::Broken { class: "time-out".into(), message: "no token for 60 s".into() }
}

/// Of one cell of each: rates of `old` (cell 0) and `new` (cell 1), a pair after the other.
fn finished(old: &[f64], new: &[f64]) -> Vec<Event> {
    let both = (0..).zip(old.iter().zip(new));
    both.flat_map(|(pair, (old, new))| [round(1, pair, rate(*new)), round(0, pair, rate(*old))])
        .collect()
}

pub(super) fn fold(header: RunHeader, events: &[Event]) -> RunRecord {
    let mut record = RunRecord::new(header);
    events.iter().for_each(|event| record.apply(event));
    record
}

const OLD: [f64; 4] = [1000.0, 1010.0, 1000.0, 990.0];

fn slower(by: f64) -> [f64; 4] {
    let noise = [1.001, 0.999, 1.002, 0.998];
    std::array::from_fn(|at| OLD[at] * (1.0 - by) * noise[at])
}

fn judgement(record: &RunRecord) -> &Judgement {
    &record.cells[1].judgement
}

#[test]
fn pairs_come_to_what_forty_digits_say() {
    let mut held = 0;
    for case in cases("group_sequential") {
        let results = case["results"].as_array().unwrap();
        let Some(want) = results.iter().rfind(|it| !it["order_effect"].is_null()) else { continue };
        let all = &case["pairs"].as_array().unwrap()[..want["pairs"].as_u64().unwrap() as usize];
        let of = |order: &str| all.iter().filter(|it| it["order"] == order).collect::<Vec<_>>();
        let (ab, ba) = (of("AB"), of("BA"));
        if ab.len() != ba.len() {
            continue;
        }
        // The blocks of a run are BA AB; which pair was when is nothing to the fit.
        let pairs: Vec<_> = ba.into_iter().zip(ab).flat_map(|(ba, ab)| [ba, ab]).collect();
        let values = |key: &str| pairs.iter().map(|it| number(it, key)).collect::<Vec<_>>();
        let least = number(&case, "min_ratio");
        let bound = share("output-throughput", least, 1);
        let mut header = compare(1, pairs.len() as u32, &[bound]);
        header.policy.alpha = number(&case, "level_per_look");
        let record = fold(header, &finished(&values("baseline"), &values("candidate")));
        let estimate = judgement(&record).bounds[0].estimate.unwrap();
        assert_eq!((estimate.method, estimate.n), (Method::Paired, pairs.len() as u64));
        close(estimate.value, number(want, "ratio"), 1e-8);
        close(estimate.lower.unwrap(), number(want, "lower_ratio"), 1e-8);
        close(estimate.upper.unwrap(), number(want, "upper_ratio"), 1e-8);
        held += 1;
    }
    assert!(held > 5, "{held}");
}

#[test]
fn a_loss_fails_and_says_of_what_by_how_many_pairs_and_what_they_see() {
    let header = compare(1, 4, &[share("output-throughput", 0.97, 1)]);
    let record = fold(header, &finished(&OLD, &slower(0.05)));
    assert_eq!(judgement(&record).verdict, Verdict::Fail);
    let sees = judgement(&record).bounds[0].sees.unwrap();
    assert!(sees > 0.03 && sees < 0.05, "{sees}");
    let message = judgement(&record).message.clone().unwrap();
    assert_eq!(
        message,
        "output-throughput 950 tok/s is 0.950 of old's 1 000 [0.949, 0.951] < 0.97 (4 pairs, \
         sees losses from 3.1 %, suite.toml:31)"
    );
    // Nothing is expected of the old engine, and nothing said of it.
    assert_eq!(record.cells[0].judgement.verdict, Verdict::Measured);
}

#[test]
fn it_is_judged_alike_whichever_finished_last() {
    let header = || compare(1, 4, &[share("output-throughput", 0.97, 36)]);
    let mut events = finished(&OLD, &slower(0.05));
    let want = fold(header(), &events);
    events.reverse();
    assert_eq!(fold(header(), &events).cells, want.cells);
    // All of the candidate before any of the baseline: until then it waits, and has not failed.
    events.sort_by_key(|event| matches!(event, Event::CellFinished { cell: 0, .. }));
    let waiting = fold(header(), &events[..5]);
    assert_eq!(judgement(&waiting).class.as_deref(), Some("not-run"));
    let message = judgement(&waiting).message.clone().unwrap();
    assert_eq!(
        message,
        "output-throughput ≥ 0.97 of old: no data, old has not been measured (suite.toml:31)"
    );
    assert_eq!(fold(header(), &events).cells, want.cells);
    // Out of the records of shards.
    let mut merged = RunRecord::new(header());
    for index in [1, 0] {
        merged.adopt(index, &want.cells[index]);
    }
    assert_eq!((merged.cells, merged.compare), (want.cells, want.compare));
}

#[test]
fn a_latency_is_held_to_a_ceiling() {
    let latency = |ms: f64| {
        let mut measurement = window(1000.0, 1.0);
        let waves = vec![vec![ms], vec![ms * 1.01], vec![ms * 0.99]];
        measurement.observations.insert(Base::Ttft, Observations::Waves(waves));
        CellState::Measured(Box::new(measurement))
    };
    let judged = |ms: f64| {
        let both = (0..4u32).flat_map(|pair| {
            let noise = 1.0 + f64::from(pair % 3) * 1e-3;
            [round(0, pair, latency(100.0)), round(1, pair, latency(ms * noise))]
        });
        let header = compare(1, 4, &[share("ttft.p50", 1.05, 1)]);
        fold(header, &both.collect::<Vec<_>>())
    };
    assert_eq!(judgement(&judged(109.0)).verdict, Verdict::Fail);
    assert_eq!(judgement(&judged(104.0)).verdict, Verdict::Pass);
    assert_eq!(judgement(&judged(60.0)).verdict, Verdict::Pass);
    let message = judgement(&judged(109.0)).message.clone().unwrap();
    assert!(message.contains("> 1.05 (4 pairs, sees rises from "), "{message}");
}

#[test]
fn figures_per_gpu_are_divided_by_the_gpus_of_each() {
    let bound = share("output-throughput-per-gpu", 0.97, 1);
    // Twice the GPUs and twice the tokens: what one GPU does is the same.
    let record =
        fold(compare(1, 4, &[bound]), &finished(&OLD, &slower(0.0).map(|value| value * 2.0)));
    assert_eq!(judgement(&record).verdict, Verdict::Pass);
    let estimate = judgement(&record).bounds[0].estimate.unwrap();
    assert!((estimate.value - 1.0).abs() < 1e-3, "{estimate:?}");
}

#[test]
fn what_the_other_lacks_is_said_in_its_words() {
    let with = |state: CellState| {
        let mut events = finished(&OLD, &slower(0.0));
        events.push(round(0, 3, state));
        let record = fold(compare(1, 4, &[share("output-throughput", 0.97, 1)]), &events);
        let judgement = judgement(&record);
        assert_eq!(judgement.verdict, Verdict::Error);
        (judgement.class.clone().unwrap(), judgement.message.clone().unwrap())
    };
    let (class, message) = with(broken());
    assert_eq!(class, "no-data");
    assert!(message.contains("old has none: in launch 4 of 4: no token for 60 s"), "{message}");
    let unfit = CellState::Unfit { class: UnfitClass::TooLong, message: "too long by 7".into() };
    let (_, message) = with(unfit);
    assert!(message.contains("old has none: too long by 7"), "{message}");
    // Figures that nobody may rely on are none to be held against.
    let invalid = super::with(validity::concurrency(100.0, 128, true), window(990.0, 1.0));
    let (_, message) = with(CellState::Measured(Box::new(invalid)));
    assert!(message.contains("old has none: in launch 4 of 4: the client"), "{message}");
    let (class, message) = with(CellState::NotRun { reason: "not run".into() });
    assert_eq!(class, "not-run");
    assert!(message.contains("old has not been measured"), "{message}");
}

#[test]
fn of_nothing_there_is_no_share() {
    let goodput = |value: f64| {
        let mut measurement = window(1000.0, 1.0);
        let batches = Observations::Batches { rate: value, means: vec![value; 10], floor: 0.0 };
        measurement.observations.insert(Base::Goodput, batches);
        CellState::Measured(Box::new(measurement))
    };
    let judged = |old: f64, new: f64| {
        let both =
            (0..4).flat_map(|pair| [round(0, pair, goodput(old)), round(1, pair, goodput(new))]);
        let mut header = compare(1, 4, &[share("goodput", 0.97, 1)]);
        header.compare.as_mut().unwrap().min_mean_ratio = Some(0.99);
        fold(header, &both.collect::<Vec<_>>())
    };
    let record = judged(0.0, 4.0);
    assert_eq!(judgement(&record).class.as_deref(), Some("no-data"));
    let message = judgement(&record).message.clone().unwrap();
    assert!(message.contains("no data, old has a value of 0, of which no ratio"), "{message}");
    let overall = record.compare.unwrap().judgement;
    assert_eq!(overall.verdict, Verdict::Error);
    let message = overall.message.unwrap();
    assert!(
        message.contains("no mean ratio: decode c=0: goodput: old has a value of 0"),
        "{message}"
    );
    let message = judgement(&judged(4.0, 0.0)).message.clone().unwrap();
    assert!(message.contains("no data, new has a value of 0, of which"), "{message}");
}

#[test]
fn severity_and_policy_are_those_of_any_limit() {
    let under = |severity, inconclusive| {
        let bound = BoundRecord { severity, ..share("output-throughput", 0.97, 1) };
        let mut header = compare(1, 4, &[bound]);
        header.policy.inconclusive = inconclusive;
        // Five percent less, with noise of as much.
        let new = [900.0, 890.0, 1010.0, 1000.0];
        fold(header, &finished(&OLD, &new)).cells[1].judgement.clone()
    };
    let warn = under(Severity::Fail, InconclusivePolicy::Warn);
    assert_eq!(warn.verdict, Verdict::Inconclusive);
    let message = warn.message.unwrap();
    assert!(message.contains("within their noise") && message.contains("sees losses from"));
    assert_eq!(under(Severity::Fail, InconclusivePolicy::Fail).verdict, Verdict::Inconclusive);
    assert_eq!(under(Severity::Fail, InconclusivePolicy::Pass).verdict, Verdict::Pass);
    let point = under(Severity::Fail, InconclusivePolicy::Point);
    assert_eq!(point.verdict, Verdict::Fail);
    let message = point.message.unwrap();
    assert!(message.contains("of old's") && message.contains("by the point estimate"), "{message}");
    let warned = under(Severity::Warn, InconclusivePolicy::Point);
    assert_eq!((warned.verdict, warned.warnings.len()), (Verdict::Measured, 1));
    let reported = under(Severity::Report, InconclusivePolicy::Point);
    assert_eq!((reported.verdict, reported.warnings.len()), (Verdict::Measured, 0));
}

#[test]
fn a_quarantine_covers_a_ratio_up_to_its_loss() {
    let judged = |max_loss| {
        let mut header = compare(1, 4, &[share("output-throughput", 0.97, 1)]);
        header.cells[1].quarantine = quarantined(max_loss, Vec::new()).quarantine;
        let record = fold(header, &finished(&OLD, &slower(0.08)));
        // What is known to fail is in no mean.
        assert!(record.compare.as_ref().unwrap().ratios.is_empty());
        judgement(&record).verdict
    };
    assert_eq!(judged(None), Verdict::Xfail);
    assert_eq!(judged(Some(0.1)), Verdict::Xfail);
    assert_eq!(judged(Some(0.05)), Verdict::Fail);
}

#[test]
fn a_calibrated_noise_judges_pairs_that_agree_too_well() {
    let verdict = |noise| {
        let bound = BoundRecord { noise, ..share("output-throughput", 0.97, 1) };
        let record = fold(compare(1, 4, &[bound]), &finished(&OLD, &slower(0.04)));
        (judgement(&record).verdict, judgement(&record).message.clone().unwrap())
    };
    assert_eq!(verdict(None).0, Verdict::Fail);
    let noise = |sd| Some(NoiseRecord { file: "noise.jsonl".into(), sd, df: 9.0 });
    // 0.05 × √(2/4) × 1.83 is more than the four percent that were lost.
    let (loud, message) = verdict(noise(0.05));
    assert_eq!(loud, Verdict::Inconclusive);
    assert!(message.contains("4 pairs, noise of noise.jsonl, within"), "{message}");
    assert_eq!(verdict(noise(0.01)).0, Verdict::Fail);
}

#[test]
fn variants_that_are_not_paired_are_compared_by_both_their_launches() {
    let mut bound = share("output-throughput", 0.97, 1);
    if let Some(VariantRecord { paired, .. }) =
        bound.relative.as_mut().and_then(|it| it.variant.as_mut())
    {
        *paired = false;
    }
    let mut header = compare(1, 4, &[bound]);
    header.compare = None;
    let record = fold(header, &finished(&OLD, &slower(0.06)));
    let message = judgement(&record).message.clone().unwrap();
    assert!(message.contains("< 0.97 (4 launches against 4, sees"), "{message}");
    let estimate = judgement(&record).bounds[0].estimate.unwrap();
    assert_eq!((judgement(&record).verdict, estimate.method), (Verdict::Fail, Method::Baseline));
}

#[test]
fn what_spoils_the_old_engines_figures_spoils_the_comparison() {
    let header = compare(1, 4, &[share("output-throughput", 0.97, 1)]);
    let old = header.with_those_held(0);
    assert_eq!((header.cells[0].bounds.len(), old.bounds.len()), (0, 1));
    let matters = |cell: &PlannedCellRecord, ms| {
        lag_matters(cell, &window(1000.0, 1.0), &policy(), 4, Duration::from_millis(ms))
    };
    // 2 × 200 ms of 30 s are 1.3 %, and 3 % are tolerated: half of them could come of it.
    for cell in [&old, &header.cells[1]] {
        assert!(matters(cell, 200) && !matters(cell, 20));
        assert!(shortage_matters(cell, &window(1000.0, 1.0), &policy(), 4, 0.97));
        assert!(!shortage_matters(cell, &window(1000.0, 1.0), &policy(), 4, 0.999));
        let still = window(1000.0, 1.0);
        let away = |frozen| absence_matters(cell, &still, &still, &policy(), 4, frozen);
        assert_eq!((away(true), away(false)), (true, false));
    }
    assert!(!matters(&header.cells[0], 200));
}

#[test]
fn a_limit_of_its_own_is_extended_whatever_the_other_variant_has() {
    let header = compare(
        1,
        1,
        &[share("output-throughput", 0.97, 1), floor("output-throughput", 7302.0, 58)],
    );
    let cell = &header.cells[1];
    assert_eq!(extension(cell, &window(6871.0, 900.0), &policy(), 8), [Base::OutputThroughput]);
    assert!(extension(cell, &window(7310.0, 20.0), &policy(), 8).is_empty());
}

mod mean;

#[test]
fn a_degraded_engine_that_others_are_held_against_is_no_failure_of_theirs() {
    let degraded = |value: f64| {
        let mut window = window(value, value / 1000.0);
        let message = "preempted 3 times".to_owned();
        let fault = Some(Fault::Degraded);
        window.checks.push(Check { kind: validity::CheckKind::Preemption, fault, message });
        CellState::Measured(Box::new(window))
    };
    let bounds = [share("output-throughput", 0.97, 1)];
    let header = compare(1, 4, &bounds);
    let mut events = finished(&OLD, &OLD);
    let first = (0..4).map(|pair| round(0, pair, degraded(OLD[pair as usize])));
    events.retain(|event| !matches!(event, Event::CellFinished { cell: 0, .. }));
    events.extend(first);
    let record = fold(header.clone(), &events);
    let old = &record.cells[0].judgement;
    assert_eq!((old.verdict, old.class.as_deref()), (Verdict::Error, Some("reference")));
    let message = old.message.as_deref().unwrap();
    assert!(message.starts_with("degraded, and another variant is held against it: "), "{message}");
    assert!(message.contains("preempted 3 times"), "{message}");
    assert_eq!(judgement(&record).verdict, Verdict::Error, "and nothing is held against it");
    // With a limit of its own, which could fail it, it is judged as any engine.
    let mut header = header;
    header.cells[0].bounds = vec![floor("output-throughput", 1.0, 31)];
    let old = &fold(header, &events).cells[0].judgement;
    assert_eq!((old.verdict, old.class.as_deref()), (Verdict::Fail, Some("degraded")));
}
