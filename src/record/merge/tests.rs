//! Merging, as examples on hand-made records.

use super::*;
use crate::hardware::{Facts, Gpu};
use crate::judge::Verdict;
use crate::record::Event;
use crate::record::event::StopReason;
use crate::record::run_record::tests::header;
use crate::record::run_record::{BoundRecord, LaunchFailure};
use crate::record::shard::{Elsewhere, TimingsFile};

/// The plan of two launches and three cells: the first shard has `new`, the second `old`, the third nothing.
fn shard(index: u32) -> RunHeader {
    let whole = header();
    let owners = vec![2, 1];
    let own = |launch: usize| owners[launch] == index;
    let pick = |ours: bool| {
        let launches: Vec<usize> = (0..2).filter(|launch| own(*launch) == ours).collect();
        let place = |launch: usize| launches.iter().position(|it| *it == launch);
        let cells = whole.cells.iter().filter_map(|cell| {
            Some(PlannedCellRecord { launch: place(cell.launch)?, ..cell.clone() })
        });
        let cells: Vec<_> = cells.collect();
        (launches.iter().map(|it| whole.launches[*it].clone()).collect::<Vec<_>>(), cells)
    };
    let ((launches, cells), (others, elsewhere)) = (pick(true), pick(false));
    RunHeader {
        run_id: format!("run-{index}"),
        started: format!("2026-11-30T00:00:0{}Z", 9 - index),
        flags: vec!["--out".into(), format!("out-{index}"), "--seed".into(), index.to_string()],
        shard: Some(Part {
            shard: index,
            of: 3,
            timings: None,
            here: true,
            owners: owners.clone(),
            elsewhere: Elsewhere { launches: others, cells: elsewhere },
        }),
        launches,
        cells,
        ..whole
    }
}

fn finished(cell: usize) -> Event {
    let state = CellState::Measured(Box::default());
    Event::CellFinished { round: 0, cell, state, seconds: 2.0 + cell as f64 }
}

fn ready(launch: usize) -> [Event; 2] {
    let log = Some("engine.log".to_owned());
    [
        Event::LaunchStarted {
            round: 0,
            launch,
            command: vec!["serve".into()],
            log,
            ordinal: 0,
            at: 0.0,
        },
        Event::LaunchReady { launch, ready_time: 1.0, facts: Default::default(), warnings: vec![] },
    ]
}

fn ended(signal: Option<i32>) -> Event {
    let stopped = signal.map(|_| StopReason::Signal);
    Event::RunFinished { signal, stopped, at: 10.0 }
}

fn run(header: RunHeader, events: impl IntoIterator<Item = Event>) -> Source {
    let name = format!("dir-{}", header.shard.as_ref().map_or(0, |part| part.shard));
    let mut record = RunRecord::new(header);
    events.into_iter().for_each(|event| record.apply(&event));
    Source { name, record }
}

/// All three shards, each at its end.
fn whole() -> Vec<Source> {
    let events = |cells: usize| {
        ready(0)
            .into_iter()
            .chain((0..cells).map(finished))
            .chain([ended(None)])
            .collect::<Vec<_>>()
    };
    vec![run(shard(1), events(1)), run(shard(2), events(2)), run(shard(3), [ended(None)])]
}

fn said(sources: Vec<Source>) -> Vec<String> {
    merge(sources, false).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn shards_come_to_the_whole_in_the_order_of_the_plan() {
    let record = merge(whole(), false).unwrap();
    let ids: Vec<&str> = record.header.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!((ids, &record.header.launches), (vec!["a", "b", "c"], &header().launches));
    assert_eq!(record.header.cells, header().cells);
    let seconds: Vec<f64> = record.cells.iter().map(|cell| cell.seconds).collect();
    assert_eq!((seconds, record.seconds), (vec![2.0, 3.0, 2.0], Some(30.0)));
    let logs: Vec<_> = record.launches.iter().map(|it| it.log.as_deref().unwrap()).collect();
    assert_eq!(logs, ["shard-2-of-3/engine.log", "shard-1-of-3/engine.log"]);
    assert_eq!(record.header.started, "2026-11-30T00:00:06Z", "the earliest");
    assert_eq!((record.header.planned_cells(), record.header.planned_launches()), (3, 2));
    let origin = record.origin(0);
    assert_eq!((origin.shard, origin.seed, origin.run_id), (Some((2, 3)), 1, "run-2"));
    assert_eq!(origin.flags, ["--seed", "2"]);
    assert_eq!(record.header.misfit(), None);
}

#[test]
fn the_order_in_which_shards_are_given_is_nothing_to_the_record() {
    let all = whole();
    let record = merge(all.clone(), false).unwrap();
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let sources = order.iter().map(|at| all[*at].clone()).collect();
        assert_eq!(merge(sources, false).as_ref(), Ok(&record));
    }
}

#[test]
fn a_missing_shard_is_refused_and_an_empty_one_needs_not_be_there() {
    let [first, second, third] = <[Source; 3]>::try_from(whole()).unwrap();
    assert!(merge(vec![first.clone(), second.clone()], false).is_ok());
    assert_eq!(said(vec![first.clone(), third.clone()]), ["shard 2 of 3 is missing"]);
    assert_eq!(said(vec![third.clone()]), ["shards 1 and 2 of 3 are missing"]);
    let record = merge(vec![third, first], true).unwrap();
    let told = |cell: usize| record.cells[cell].judgement.message.as_deref();
    assert_eq!(told(1), Some("not run: shard 2 of 3 is missing"));
    let verdicts: Vec<Verdict> = record.cells.iter().map(|cell| cell.judgement.verdict).collect();
    assert_eq!(verdicts, [Verdict::Error, Verdict::Error, Verdict::Measured]);
    assert!(record.origin(0).missing && !record.origin(1).missing);
    assert_eq!((record.seconds, record.header.planned_cells()), (None, 3));
    drop(second);
}

#[test]
fn a_shard_that_is_there_twice_is_refused() {
    let mut all = whole();
    let again = Source { name: "dir-2.previous".into(), ..all[1].clone() };
    all.push(again);
    assert_eq!(said(all), ["shard 2 of 3 is there more than once: dir-2, dir-2.previous"]);
}

#[test]
fn what_is_no_shard_of_the_same_run_is_refused_with_the_difference() {
    let told = |change: fn(&mut RunHeader)| {
        let mut all = whole();
        change(&mut all[1].record.header);
        said(all).join("\n").replace("dir-2 is no shard of the same run as dir-1: ", "")
    };
    fn part(header: &mut RunHeader) -> &mut Part {
        header.shard.as_mut().unwrap()
    }
    assert_eq!(told(|it| it.suite = "other".into()), "its suite is `other`, not `suite`");
    assert_eq!(told(|it| it.tokgate = "9".into()), "its version of tokgate is `9`, not `0.1.0`");
    assert_eq!(told(|it| part(it).of = 4), "the number of its shards is `4`, not `3`");
    assert_eq!(
        told(|it| {
            it.plan_hash = "other".into();
            it.selection = vec!["-E".into(), "test=a b=c".into()];
        }),
        "its selection is `-E 'test=a b=c'`, not none"
    );
    assert_eq!(
        told(|it| it.plan_hash = "other".into()),
        "its suite has the same name and another content"
    );
    assert_eq!(
        told(|it| {
            it.plan_hash = "other".into();
            it.flags.extend(["--profile".into(), "smoke".into()]);
        }),
        "what else shapes it is `--profile smoke`, not none"
    );
    assert_eq!(
        told(|it| {
            let hash = "0123456789abcdef".into();
            part(it).timings = Some(TimingsFile { path: "t.json".into(), hash });
        }),
        "its launches were split by `--timings t.json` (0123456789ab), not by estimates"
    );
    assert!(told(|it| part(it).elsewhere.cells[0].id = "z".into()).contains("environment"));
    assert!(told(|it| part(it).owners.swap(0, 1)).contains("the split"));
    let mut all = whole();
    all[0].record.header.shard = None;
    assert_eq!(said(all), ["dir-1 holds a whole run, no shard"]);
    let mut all = whole();
    all[0].record = merge(whole(), false).unwrap();
    assert_eq!(said(all), ["dir-1 holds shards that are merged already"]);
}

#[test]
fn interrupted_resumed_and_killed_shards_keep_what_became_of_them() {
    let resumed = Event::RunResumed { session: 1, started: "2026-12-01".into(), after: 5.0 };
    let failure = LaunchFailure {
        step: "process".into(),
        message: "no".into(),
        exit: None,
        log_tail: vec![],
        mismatch: false,
        seconds: 0.0,
    };
    let warned = || Event::Warning { message: "hot".into() };
    let first = run(shard(1), [warned(), Event::LaunchFailed { launch: 0, failure }, ended(None)]);
    let cut = [warned(), finished(0), ended(Some(15))];
    let cut = run(shard(2), ready(0).into_iter().chain([resumed.clone()]).chain(cut));
    let record = merge(vec![first.clone(), cut], false).unwrap();
    assert_eq!((record.signal, record.stopped), (Some(15), Some(StopReason::Signal)));
    assert_eq!((record.warnings.len(), record.resumptions.len()), (1, 1));
    let told =
        |record: &RunRecord, cell: usize| record.cells[cell].judgement.message.clone().unwrap();
    assert_eq!(told(&record, 1), "not run: the run was interrupted");
    assert_eq!(told(&record, 2), "not run: launch new failed");
    assert_eq!(record.origin(1).stopped, None, "the other shard was not interrupted");
    let killed = run(shard(2), ready(0).into_iter().chain([finished(0)]));
    let record = merge(vec![first, killed], false).unwrap();
    assert_eq!(told(&record, 1), "not run: shard 2 of 3 did not end");
    assert_eq!((record.signal, record.seconds), (None, None));
}

#[test]
fn other_gpus_forbid_a_merge_and_other_machines_are_told() {
    let merged = |change: &dyn Fn(&mut RunHeader)| {
        let mut all = whole();
        for source in &mut all {
            let machine = &mut source.record.header.machine;
            let gpu = Gpu { name: "H200".into(), memory: 141 << 30, ..Gpu::default() };
            (machine.cpu, machine.gpus) = ("EPYC".into(), vec![gpu; 8]);
            machine.hostname = source.name.clone();
        }
        change(&mut all[1].record.header);
        merge(all, false)
    };
    fn gpu(header: &mut RunHeader) {
        header.machine.gpus.truncate(4);
    }
    assert_eq!(merged(&|_| {}).unwrap().warnings, [""; 0]);
    let refused = merged(&gpu).unwrap_err();
    assert!(matches!(refused[..], [MergeError::OtherGpus { .. }]), "{refused:?}");
    assert!(refused[0].to_string().ends_with("(141.0 GiB) in shard 2"), "{refused:?}");
    let elsewhere = |header: &mut RunHeader| {
        gpu(header);
        header.shard.as_mut().unwrap().here = false;
    };
    assert_eq!(merged(&elsewhere).unwrap().warnings, [""; 0]);
    assert_eq!(
        merged(&|header| header.machine.cpu = "Xeon".into()).unwrap().warnings,
        ["the shards ran on machines that differ: CPU: EPYC in shard 1, Xeon in shard 2"]
    );
    // A machine that measured nothing, since it was refused, is told by its launch's failure.
    let mut all = whole();
    let idle = run(shard(2), [ended(None)]);
    all[1] = idle;
    all[1].record.header.machine = Facts { cpu: "Xeon".into(), ..Facts::default() };
    assert_eq!(merge(all, false).unwrap().warnings, [""; 0]);
}

#[test]
fn what_figures_belong_to_is_what_the_shards_agree_on() {
    let mut all = whole();
    for source in &mut all {
        let shard = source.record.header.shard.as_ref().unwrap().shard;
        let driver = if shard == 1 { "570" } else { "580" };
        let facts = &mut source.record.header.provenance.facts;
        facts.insert("hardware.gpu".into(), if shard == 3 { "none" } else { "H200" }.into());
        facts.insert("hardware.driver".into(), driver.into());
    }
    let facts = merge(all.clone(), false).unwrap().header.provenance.facts;
    // On the machine of the third nothing was launched.
    assert_eq!(facts["hardware.gpu"], "H200");
    assert_eq!(facts["hardware.driver"], "570 in shard 1, 580 in shard 2");
    all[0].record.header.provenance.facts.remove("hardware.driver");
    let facts = merge(all, false).unwrap().header.provenance.facts;
    assert_eq!(facts["hardware.driver"], "not said in shard 1, 580 in shard 2");
}

#[test]
fn shards_that_were_held_against_other_runs_are_foreign() {
    let relative = |runs: &[f64], sees| {
        let (file, runs) = ("b.jsonl".into(), runs.to_vec());
        RelativeRecord {
            variant: None,
            file,
            git: None,
            runs,
            comparisons: 3,
            halved: false,
            recorded: false,
            sees,
        }
    };
    let held = |second: RelativeRecord| {
        let mut all = whole();
        let runs = [relative(&[1.0, 2.0], Some(0.1)), second, relative(&[1.0, 2.0], None)];
        for (source, relative) in all.iter_mut().zip(runs) {
            let header = &mut source.record.header;
            let part = header.shard.as_mut().unwrap();
            let cells = header.cells.iter_mut().chain(&mut part.elsewhere.cells);
            for cell in cells {
                cell.bounds.push(BoundRecord {
                    noise: None,
                    name: None,
                    metric: "output-throughput".parse().unwrap(),
                    bound: None,
                    relative: Some(relative.clone()),
                    slack: 0.0,
                    severity: crate::judge::Severity::Fail,
                    place: cell.place.clone(),
                });
            }
        }
        all
    };
    assert!(merge(held(relative(&[1.0, 2.0], Some(0.2))), false).is_ok());
    let said = said(held(relative(&[1.0, 2.5], Some(0.1))));
    assert_eq!(
        said,
        [
            "dir-2 is no shard of the same run as dir-1: it was held against other runs of the baseline b.jsonl"
        ]
    );
}

#[test]
fn a_header_that_does_not_fit_itself_is_found() {
    let misfit = |change: fn(&mut RunHeader)| {
        let mut header = shard(2);
        change(&mut header);
        header.misfit()
    };
    assert_eq!(misfit(|_| {}), None);
    assert_eq!(shard(2).whole(), (header().launches, header().cells));
    for change in [
        (|it: &mut RunHeader| it.launches.clear()) as fn(&mut RunHeader),
        |it| it.shard.as_mut().unwrap().shard = 9,
        |it| it.shard.as_mut().unwrap().owners.clear(),
        |it| it.shard.as_mut().unwrap().elsewhere.cells[0].launch = 7,
        |it| it.cells[0].launch = 1,
    ] {
        assert!(misfit(change).is_some());
    }
}
