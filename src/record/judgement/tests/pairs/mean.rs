//! The mean ratio of all cells.

use super::*;
use crate::judge::Severity;

/// Three cells of each; `new` is slower by so much in each of them, with the same noise.
fn events(by: [f64; 3]) -> Vec<Event> {
    let cells = by.into_iter().enumerate();
    cells
        .flat_map(|(at, by)| {
            let new = slower(by);
            (0..4u32).flat_map(move |pair| {
                let of = |rates: [f64; 4]| rate(rates[pair as usize]);
                [round(at, pair, of(OLD)), round(at + 3, pair, of(new))]
            })
        })
        .collect()
}

fn limited(limit: Option<f64>) -> RunHeader {
    let mut header = compare(3, 4, &[share("output-throughput", 0.97, 6)]);
    header.compare.as_mut().unwrap().min_mean_ratio = limit;
    header
}

#[test]
fn a_small_loss_everywhere_fails_where_no_cell_does() {
    let record = fold(limited(Some(0.99)), &events([0.02; 3]));
    assert!(record.cells[3..].iter().all(|cell| cell.judgement.verdict == Verdict::Pass));
    let compare = record.compare.unwrap();
    assert_eq!(
        (compare.judgement.verdict, compare.cells, compare.ratios.len()),
        (Verdict::Fail, 3, 4)
    );
    // At half of alpha: t of 2 degrees at .025 is 4.3027.
    let estimate = compare.judgement.bounds[0].estimate.unwrap();
    let logs: Vec<f64> = compare.ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / 4.0;
    let half = |a: f64, b: f64| ((a - b) / 2.0).powi(2) * 2.0;
    let variance = (half(logs[0], logs[2]) + half(logs[1], logs[3])) / 2.0;
    let wide = 4.302_652_729_749_464 * (variance / 4.0).sqrt();
    close(estimate.value, mean.exp(), 1e-9);
    close(estimate.upper.unwrap(), (mean + wide).exp(), 1e-9);
    let message = compare.judgement.message.unwrap();
    assert!(message.starts_with("mean ratio 0.980 of old over 3 cells [0.97"), "{message}");
    assert!(message.contains("< 0.99 (4 pairs, sees losses from "), "{message}");
}

#[test]
fn without_a_limit_it_is_shown_and_fails_nothing() {
    let compare = fold(limited(None), &events([0.2; 3])).compare.unwrap();
    assert_eq!(compare.judgement.verdict, Verdict::Measured);
    assert!(compare.judgement.bounds.is_empty());
    let message = compare.judgement.message.unwrap();
    assert!(message.starts_with("mean ratio 0.800 of old over 3 cells"), "{message}");
}

#[test]
fn cells_have_the_same_weight_and_so_have_their_metrics() {
    // Twice as long to the first token in one cell, as many tokens: half of a factor of two there.
    let mut header = limited(None);
    for cell in &mut header.cells[3..] {
        cell.bounds.push(BoundRecord { severity: Severity::Report, ..share("ttft.p50", 1.5, 6) });
    }
    let mut events = events([0.0; 3]);
    for event in &mut events {
        let Event::CellFinished { cell: 5, state: CellState::Measured(it), .. } = event else {
            continue;
        };
        let waves = vec![vec![2000.0, 2008.0], vec![2020.0, 2012.0], vec![1980.0, 1992.0]];
        it.observations.insert(Base::Ttft, Observations::Waves(waves));
    }
    let compare = fold(header, &events).compare.unwrap();
    let estimate = compare.judgement.message.unwrap();
    let mean = compare.ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / 4.0;
    assert!((mean + 2f64.ln() / 6.0).abs() < 1e-3, "{mean} {estimate}");
}

#[test]
fn it_waits_for_every_cell_and_lacks_what_broke() {
    let mut all = events([0.02; 3]);
    let last = all.pop().unwrap();
    let pending = fold(limited(Some(0.99)), &all).compare.unwrap();
    assert_eq!(pending.judgement.verdict, Verdict::Error);
    assert_eq!(pending.judgement.class.as_deref(), Some("not-run"));
    all.push(round(5, 3, broken()));
    let lacks = fold(limited(Some(0.99)), &all).compare.unwrap().judgement;
    assert_eq!((lacks.verdict, lacks.class.as_deref()), (Verdict::Error, Some("no-data")));
    let message = lacks.message.unwrap();
    assert!(message.contains("no mean ratio: decode c=2: in launch 4 of 4: no token"), "{message}");
    // Whichever is settled last: it is a function of the facts.
    all.push(last);
    let want = fold(limited(Some(0.99)), &all);
    all.reverse();
    all.remove(1);
    assert_eq!(fold(limited(Some(0.99)), &all).compare, want.compare);
}

#[test]
fn figures_that_are_invalid_are_in_no_mean_and_what_fits_in_neither_lacks_nothing() {
    let mut all = events([0.02; 3]);
    let spoilt = super::super::with(validity::concurrency(100.0, 128, true), window(990.0, 1.0));
    all.push(round(1, 0, CellState::Measured(Box::new(spoilt))));
    let message = fold(limited(Some(0.99)), &all).compare.unwrap().judgement.message.unwrap();
    assert!(
        message.contains("decode c=1: in launch 1 of 4: the client was the limit"),
        "{message}"
    );
    let unfit = || CellState::Unfit { class: UnfitClass::OverCapacity, message: "too many".into() };
    all.extend([round(1, 0, unfit()), round(4, 0, unfit())]);
    let compare = fold(limited(Some(0.99)), &all).compare.unwrap();
    assert_eq!((compare.cells, compare.judgement.verdict), (2, Verdict::Fail));
    all.push(round(4, 0, rate(900.0)));
    let message = fold(limited(Some(0.99)), &all).compare.unwrap().judgement.message.unwrap();
    assert!(message.contains("decode c=1: too many"), "{message}");
}

#[test]
fn each_policy_has_its_say() {
    let under = |inconclusive| {
        let mut header = limited(Some(0.99));
        header.policy.inconclusive = inconclusive;
        let mut events = events([0.02; 3]);
        for event in &mut events {
            let Event::CellFinished { cell: 3.., round: 0 | 3, state, .. } = event else {
                continue;
            };
            *state = rate(930.0);
        }
        fold(header, &events).compare.unwrap().judgement
    };
    assert_eq!(under(InconclusivePolicy::Warn).verdict, Verdict::Inconclusive);
    assert_eq!(under(InconclusivePolicy::Fail).verdict, Verdict::Inconclusive);
    let pass = under(InconclusivePolicy::Pass);
    assert_eq!((pass.verdict, pass.warnings.len()), (Verdict::Pass, 1));
    let point = under(InconclusivePolicy::Point);
    assert_eq!((point.verdict, point.warnings.len()), (Verdict::Fail, 1));
    assert_eq!(point.bounds[0].verdict, BoundVerdict::Inconclusive);
}

#[test]
fn a_shard_judges_no_mean_whatever_it_lacks() {
    let shard = || {
        let mut header = limited(Some(0.99));
        header.shard = Some(crate::record::shard::Part {
            shard: 1,
            of: 2,
            timings: None,
            here: true,
            owners: vec![1, 1],
            elsewhere: Default::default(),
        });
        header
    };
    let whole = fold(shard(), &events([0.2; 3])).compare.unwrap();
    assert_eq!((whole.judgement.verdict, whole.cells), (Verdict::Measured, 3));
    let mut none = shard();
    none.cells.clear();
    let nothing = fold(none, &[]).compare.unwrap().judgement;
    assert_eq!((nothing.verdict, nothing.bounds.len()), (Verdict::Measured, 0));
}
