//! Exit codes: the one table, and which of them a record comes to.
//!
//! When several hold, the one that somebody else must act on first wins: signals, then what makes
//! the run meaningless (20–22), then broken limits (10), then what kept cells from being judged
//! (30–33), then doubt (11), then nothing at all (12).

use std::process::ExitCode;

use crate::judge::Verdict;
use crate::record::RunRecord;
use crate::record::event::StopReason;
use crate::record::run_record::{CellOutcome, CellState};
use crate::report::count::inconclusive_fails;
use crate::report::message;

/// What the process ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: every judged cell passed; warnings are allowed.
    Pass,
    /// 10: a limit was broken, or an engine degraded. The change's author acts.
    Limit,
    /// 11: inconclusive where policy says that this fails; warnings with `--deny-warnings`. Run more.
    Doubt,
    /// 12: no cell was selected.
    NothingSelected,
    /// 20: suite, filter or flag is wrong. The suite's author acts.
    Suite,
    /// 21: a baseline is missing or mismatched; a quarantine has expired.
    Baseline,
    /// 22: hardware or engine is not what the suite declares, or is not the engine's alone. The runner's owner acts.
    Mismatch,
    /// 30: the engine could not be started, or died. Infrastructure; CI may retry.
    Engine,
    /// 31: a measurement is invalid, or the tool of a command test failed.
    Invalid,
    /// 32: the time limit was reached before all cells ran. Resume.
    TimeLimit,
    /// 33: results could not be written. The runner's owner acts.
    Unwritten,
    /// 128 and the signal's number: interrupted, reports still written.
    Signal(i32),
}

/// A line of [`TABLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Those that it is about.
    pub exits: &'static [Exit],
    /// What happened, in Markdown.
    pub meaning: &'static str,
    /// Who has to do something, or what; empty where nobody has.
    pub acts: &'static str,
}

/// The table of exit codes as users read it.
pub const TABLE: [Row; 12] = [
    Row { exits: &[Exit::Pass], meaning: "every judged cell passed; warnings allowed", acts: "" },
    Row {
        exits: &[Exit::Limit],
        meaning: "a limit was broken, or an engine degraded",
        acts: "the change's author",
    },
    Row {
        exits: &[Exit::Doubt],
        meaning: "inconclusive where policy says that this fails; warnings with `--deny-warnings`",
        acts: "run more",
    },
    Row {
        exits: &[Exit::NothingSelected],
        meaning: "no cell selected; of two runs none in common",
        acts: "",
    },
    Row {
        exits: &[Exit::Suite],
        meaning: "suite, filter or flag wrong; not those of the run to resume; shards that can't be merged",
        acts: "the suite's author",
    },
    Row {
        exits: &[Exit::Baseline],
        meaning: "a baseline is missing, broken or of something else, or would be lowered without a reason; quarantine expired",
        acts: "the suite's author",
    },
    Row {
        exits: &[Exit::Mismatch],
        meaning: "hardware or engine is not what the suite declares, or others compute on its GPUs; the run to resume began on another machine; shards ran on different GPUs",
        acts: "the runner's owner",
    },
    Row {
        exits: &[Exit::Engine],
        meaning: "engine could not be started, or died; a shard is missing; tokgate itself broke (its message says so)",
        acts: "infrastructure; CI may retry",
    },
    Row {
        exits: &[Exit::Invalid],
        meaning: "measurement invalid; hardware not in order where `policy.hardware-fault` says that this is an error; the tool of a command test failed, or its result is none",
        acts: "the runner's owner",
    },
    Row {
        exits: &[Exit::TimeLimit],
        meaning: "time limit reached before all cells ran",
        acts: "resume",
    },
    Row {
        exits: &[Exit::Unwritten],
        meaning: "results could not be written",
        acts: "the runner's owner",
    },
    Row {
        exits: &[Exit::Signal(2), Exit::Signal(15), Exit::Signal(1)],
        meaning: "interrupted by SIGINT, SIGTERM, SIGHUP; reports still written",
        acts: "",
    },
];

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Limit => 10,
            Exit::Doubt => 11,
            Exit::NothingSelected => 12,
            Exit::Suite => 20,
            Exit::Baseline => 21,
            Exit::Mismatch => 22,
            Exit::Engine => 30,
            Exit::Invalid => 31,
            Exit::TimeLimit => 32,
            Exit::Unwritten => 33,
            Exit::Signal(signal) => u8::try_from(signal.clamp(0, 127)).unwrap_or(0) + 128,
        }
    }

    /// Its place in the precedence, 0 wins.
    fn rank(self) -> u8 {
        match self {
            Exit::Signal(_) => 0,
            Exit::Suite => 1,
            Exit::Baseline => 2,
            Exit::Mismatch => 3,
            Exit::Limit => 4,
            Exit::Engine => 5,
            Exit::Invalid => 6,
            Exit::TimeLimit => 7,
            Exit::Unwritten => 8,
            Exit::Doubt => 9,
            Exit::NothingSelected => 10,
            Exit::Pass => 11,
        }
    }

    /// The one that holds when both do.
    #[must_use]
    pub fn or(self, other: Exit) -> Exit {
        if other.rank() < self.rank() { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// What the exit code depends on beside the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `--deny-warnings`.
    pub deny_warnings: bool,
    /// A report or the journal could not be written.
    pub unwritten: bool,
}

/// What a record comes to.
pub fn of(record: &RunRecord, flags: Flags) -> Exit {
    let policy = &record.header.policy;
    let mut exit = Exit::Pass;
    if let Some(signal) = record.signal {
        exit = exit.or(Exit::Signal(signal));
    }
    // A shard may be empty: whether all was run is asked of all of them.
    if record.header.cells.is_empty() && record.header.shard.is_none() {
        exit = exit.or(Exit::NothingSelected);
    }
    for failure in record.launches.iter().filter_map(|launch| launch.failure.as_ref()) {
        exit = exit.or(if failure.mismatch { Exit::Mismatch } else { Exit::Engine });
    }
    for (at, (planned, cell)) in record.header.cells.iter().zip(&record.cells).enumerate() {
        let stopped = record.origin(planned.launch).stopped;
        exit = exit.or(match cell.judgement.verdict {
            Verdict::Fail => Exit::Limit,
            // What it waits for weighs for itself, and this is the least that is no pass.
            Verdict::Error if is_measured(cell) && record.waits(at) => Exit::Doubt,
            Verdict::Error => of_error(cell, stopped, flags),
            Verdict::Inconclusive if inconclusive_fails(policy.inconclusive, &cell.judgement) => {
                Exit::Doubt
            }
            Verdict::Inconclusive if flags.deny_warnings => Exit::Doubt,
            Verdict::Inconclusive
            | Verdict::Measured
            | Verdict::Pass
            | Verdict::Skip
            | Verdict::Xfail
            | Verdict::Xpass => Exit::Pass,
        });
    }
    if let Some((_, compare)) = record.mean_ratio() {
        let judgement = &compare.judgement;
        exit = exit.or(match judgement.verdict {
            Verdict::Fail => Exit::Limit,
            // What has not run or broke weighs for itself.
            Verdict::Error if judgement.class.as_deref() == Some("not-run") => Exit::Pass,
            Verdict::Error => Exit::Invalid,
            Verdict::Inconclusive if inconclusive_fails(policy.inconclusive, judgement) => {
                Exit::Doubt
            }
            Verdict::Inconclusive if flags.deny_warnings => Exit::Doubt,
            Verdict::Inconclusive
            | Verdict::Measured
            | Verdict::Pass
            | Verdict::Skip
            | Verdict::Xfail
            | Verdict::Xpass => Exit::Pass,
        });
    }
    if flags.deny_warnings && !message::warnings(record).is_empty() {
        exit = exit.or(Exit::Doubt);
    }
    if flags.unwritten {
        exit = exit.or(Exit::Unwritten);
    }
    exit
}

fn is_measured(cell: &CellOutcome) -> bool {
    let invalid = cell.judgement.class.as_deref() == Some("invalid");
    let spoilt = invalid || cell.judgement.is_of_hardware();
    matches!(cell.state, CellState::Measured(_)) && !spoilt
}

/// What a cell that could not be judged comes to, given why its run ended early. Never [`Exit::Pass`].
fn of_error(cell: &CellOutcome, stopped: Option<StopReason>, flags: Flags) -> Exit {
    if cell.judgement.class.as_deref() == Some("unjudged") {
        return Exit::Suite;
    }
    // What was measured and waits for the variant that it is held against has not run either.
    let waits = cell.judgement.class.as_deref() == Some("not-run");
    match &cell.state {
        CellState::NotRun { .. } => not_run(stopped, flags),
        CellState::Measured(_) if waits => not_run(stopped, flags),
        CellState::Broken { class, .. } if class.starts_with("engine") || class == "connection" => {
            Exit::Engine
        }
        CellState::Broken { class, .. } if class == "template" => Exit::Suite,
        CellState::Broken { .. } | CellState::Measured(_) | CellState::Unfit { .. } => {
            Exit::Invalid
        }
    }
}

/// What a cell that did not run comes to, given why its run ended early.
fn not_run(stopped: Option<StopReason>, flags: Flags) -> Exit {
    match stopped {
        Some(StopReason::TimeLimit) => Exit::TimeLimit,
        Some(StopReason::Unwritable) => Exit::Unwritten,
        // What stopped the run weighs for itself: a signal, the failures that were too many. The least
        // that is no pass leaves it the word.
        Some(StopReason::Signal | StopReason::MaxFail) => Exit::Doubt,
        None if flags.unwritten => Exit::Unwritten,
        // Its launch failed, or the run has not ended.
        None => Exit::Engine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::suite::model::InconclusivePolicy;

    const NONE: Flags = Flags { deny_warnings: false, unwritten: false };
    const DENY: Flags = Flags { deny_warnings: true, unwritten: false };

    /// The small record with all verdicts but these taken out.
    fn with(verdicts: &[Verdict]) -> RunRecord {
        let mut record = fixture::every_verdict();
        record.launches[1].failure = None;
        record.warnings.clear();
        let keep: Vec<bool> =
            record.cells.iter().map(|c| verdicts.contains(&c.judgement.verdict)).collect();
        let mut at = keep.iter();
        record.cells.retain(|_| *at.next().unwrap());
        let mut at = keep.iter();
        record.header.cells.retain(|_| *at.next().unwrap());
        record
    }

    #[test]
    fn codes_are_those_of_the_documentation() {
        let codes = [
            (Exit::Pass, 0),
            (Exit::Limit, 10),
            (Exit::Doubt, 11),
            (Exit::NothingSelected, 12),
            (Exit::Suite, 20),
            (Exit::Baseline, 21),
            (Exit::Mismatch, 22),
            (Exit::Engine, 30),
            (Exit::Invalid, 31),
            (Exit::TimeLimit, 32),
            (Exit::Unwritten, 33),
            (Exit::Signal(2), 130),
            (Exit::Signal(15), 143),
            (Exit::Signal(1), 129),
        ];
        for (exit, code) in codes {
            assert_eq!(exit.code(), code);
        }
    }

    #[test]
    fn precedence_is_signals_meaning_limits_judging_doubt_nothing() {
        let order = [
            Exit::Signal(2),
            Exit::Suite,
            Exit::Baseline,
            Exit::Mismatch,
            Exit::Limit,
            Exit::Engine,
            Exit::Invalid,
            Exit::TimeLimit,
            Exit::Unwritten,
            Exit::Doubt,
            Exit::NothingSelected,
            Exit::Pass,
        ];
        for (at, first) in order.into_iter().enumerate() {
            for second in order.into_iter().skip(at) {
                assert_eq!((first.or(second), second.or(first)), (first, first));
            }
        }
    }

    #[test]
    fn each_record_comes_to_its_code() {
        use Verdict::{Error, Fail, Inconclusive, Measured, Pass, Skip, Xfail, Xpass};
        let harmless = [Pass, Skip, Measured, Inconclusive, Xfail, Xpass];
        assert_eq!(of(&fixture::page(), NONE), Exit::Pass);
        assert_eq!(of(&fixture::page(), DENY), Exit::Pass);
        assert_eq!(of(&fixture::page_with_a_loss(), NONE), Exit::Limit);
        assert_eq!(of(&with(&harmless), NONE), Exit::Pass);
        assert_eq!(of(&with(&harmless), DENY), Exit::Doubt);
        assert_eq!(of(&with(&[Inconclusive]), DENY), Exit::Doubt);
        assert_eq!(of(&with(&[Fail, Error]), NONE), Exit::Limit);
        assert_eq!(of(&with(&[]), NONE), Exit::NothingSelected);
        // The launch that failed, and with it a limit that was broken.
        assert_eq!(of(&fixture::every_verdict(), NONE), Exit::Limit);
        let mut record = with(&[Pass, Error]);
        assert_eq!(of(&record, NONE), Exit::Engine, "cells that did not run outrank invalid ones");
        record.launches[1].failure = fixture::every_verdict().launches[1].failure.clone();
        assert_eq!(of(&record, NONE), Exit::Engine);
        record.launches[1].failure.as_mut().unwrap().mismatch = true;
        assert_eq!(of(&record, NONE), Exit::Mismatch);
        record.signal = Some(15);
        assert_eq!(of(&record, NONE).code(), 143);
        let unwritten = Flags { unwritten: true, ..NONE };
        assert_eq!(of(&fixture::page(), unwritten), Exit::Unwritten);
        assert_eq!(of(&fixture::page_with_a_loss(), unwritten), Exit::Limit);
        let mut cut = with(&[Pass, Error]);
        for cell in cut.cells.iter_mut().filter(|cell| cell.judgement.verdict == Error) {
            cell.state = CellState::NotRun { reason: "not run".into() };
        }
        assert_eq!(of(&cut, unwritten), Exit::Unwritten, "the disk kept it from running");
        cut.stopped = Some(StopReason::Unwritable);
        assert_eq!(of(&cut, NONE), Exit::Unwritten, "also where all was written in the end");
        cut.stopped = Some(StopReason::MaxFail);
        assert_eq!(of(&cut, NONE), Exit::Doubt, "the failures that were too many decide");
    }

    #[test]
    fn what_could_not_be_judged_is_never_a_pass() {
        let mut record = with(&[Verdict::Error]);
        record.cells.remove(0);
        record.header.cells.remove(0);
        record.stopped = Some(StopReason::TimeLimit);
        assert_eq!(of(&record, NONE), Exit::TimeLimit);
        let cell = &mut record.cells[0];
        cell.state = CellState::Broken { class: "engine-died".into(), message: "gone".into() };
        assert_eq!(of(&record, NONE), Exit::Engine);
        record.cells.truncate(1);
        record.cells[0].state =
            CellState::Broken { class: "time-out".into(), message: "slow".into() };
        assert_eq!(of(&record, NONE), Exit::Invalid);
        record.cells[0].judgement.class = Some("unjudged".into());
        assert_eq!(of(&record, NONE), Exit::Suite);
    }

    #[test]
    fn what_waits_for_the_variant_it_is_held_against_has_not_run() {
        let mut record = with(&[Verdict::Error]);
        record.cells.truncate(1);
        record.header.cells.truncate(1);
        record.cells[0].state = CellState::Measured(Box::default());
        assert_eq!(of(&record, NONE), Exit::Invalid);
        record.cells[0].judgement.class = Some("not-run".into());
        record.stopped = Some(StopReason::TimeLimit);
        assert_eq!(of(&record, NONE), Exit::TimeLimit);
        assert_eq!(crate::cli::onlooker::failures(&record), 0);
        record.cells[0].judgement.class = Some("no-data".into());
        assert_eq!(crate::cli::onlooker::failures(&record), 1);
    }

    #[test]
    fn a_mean_ratio_is_a_case_for_code_counts_and_junit_alike() {
        use crate::report::case::{Standing, cases};
        use crate::report::count::{Counts, last_line};
        let alone = || {
            let mut record = fixture::compare();
            // The cell's own limit lets it pass, and the mean ratio's does not.
            for bound in record.header.cells.iter_mut().flat_map(|cell| &mut cell.bounds) {
                bound.bound.as_mut().unwrap().limit = 0.9;
            }
            record
        };
        let mut again = alone();
        for at in 0..again.cells.len() {
            let event = crate::record::Event::CellFinished {
                cell: at,
                round: 0,
                state: again.cells[at].rounds[0].state.clone(),
                seconds: 1.0,
            };
            again.apply(&event);
        }
        for (record, failed, exit) in [
            (fixture::compare(), 2, Exit::Limit),
            (again, 1, Exit::Limit),
            (fixture::compare_without_loss(), 0, Exit::Pass),
        ] {
            let cases = cases(&record);
            let all = cases.suites.iter().flat_map(|suite| &suite.cases);
            let failures = all.filter(|case| matches!(case.standing, Standing::Failure(_)));
            assert_eq!((failures.count(), Counts::of(&record).fail), (failed, failed));
            assert_eq!(of(&record, NONE), exit);
            let word = if failed > 0 { "failed" } else { "passed" };
            assert!(last_line(&record).contains(&format!(" {failed} failed, ")));
            assert!(last_line(&record).contains(&format!(" (mean ratio: {word}) in ")));
        }
        let cut = fixture::compare_cut_short();
        let cases = cases(&cut);
        let all = cases.suites.iter().flat_map(|suite| &suite.cases);
        let errors = all.filter(|case| matches!(case.standing, Standing::Error(_))).count();
        let counts = Counts::of(&cut);
        assert_eq!(errors, counts.error + counts.not_run + counts.launches_failed);
        assert_eq!(of(&cut, NONE), Exit::Engine);
        // A shard has some of the cells only.
        let mut shard = fixture::compare();
        shard.header.shard = Some(crate::record::shard::Part {
            shard: 1,
            of: 2,
            timings: None,
            here: true,
            owners: Vec::new(),
            elsewhere: Default::default(),
        });
        assert_eq!(Counts::of(&shard).fail, 1);
    }

    #[test]
    fn doubt_and_warnings_of_a_mean_ratio_weigh_as_those_of_a_cell() {
        let mut record = fixture::compare_without_loss();
        assert_eq!(of(&record, DENY), Exit::Pass, "what others are held against is no warning");
        record.compare.as_mut().unwrap().judgement.warnings.push("by the point estimate".into());
        assert_eq!(message::warnings(&record), ["mean ratio: by the point estimate"]);
        assert_eq!((of(&record, NONE), of(&record, DENY)), (Exit::Pass, Exit::Doubt));
        let mut record = fixture::compare_without_loss();
        record.compare.as_mut().unwrap().judgement.verdict = Verdict::Inconclusive;
        assert_eq!((of(&record, NONE), of(&record, DENY)), (Exit::Pass, Exit::Doubt));
        record.header.policy.inconclusive = InconclusivePolicy::Fail;
        assert_eq!(of(&record, NONE), Exit::Doubt);
    }

    #[test]
    fn policy_decides_what_doubt_and_silence_cost() {
        let mut record = with(&[Verdict::Inconclusive, Verdict::Measured]);
        record.header.policy.inconclusive = InconclusivePolicy::Fail;
        assert_eq!(of(&record, NONE), Exit::Doubt);
    }

    #[test]
    fn what_stopped_a_run_weighs_for_itself() {
        let mut record = with(&[Verdict::Error]);
        let invalid = of(&record, NONE);
        assert_eq!(invalid, Exit::Engine, "a cell has not run and nobody knows why");
        record.stopped = Some(StopReason::MaxFail);
        assert_eq!(of(&record, NONE), Exit::Invalid, "by the cell that was one too many");
        record.cells.remove(0);
        record.header.cells.remove(0);
        record.stopped = None;
        assert_eq!(of(&record, Flags { unwritten: true, ..NONE }), Exit::Unwritten);
    }
}
