//! What a case was before it came to stand as it does: a cell that was measured on because the first look at it was
//! inconclusive, a launch whose engine was lost and started again.
//!
//! Consumers know this as flaky tests and reruns. No verdict is tried again until it passes: an extension is one more
//! look at the same measurement, at a level that both looks share, and an engine that is started again measures only
//! cells that have not been measured. So the words say what was done.

use crate::judge::Verdict;
use crate::record::RunRecord;
use crate::report::message::extended;
use crate::report::sanitise::{cut, line};

use super::verdict_name;

/// Losses of one launch that are told one by one.
const MOST: usize = 4;
/// Bytes of XML that the reason of one takes.
const WORDS: usize = 400;

/// What a case was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// Whether it could not be judged then; else it was judged, and not well.
    pub error: bool,
    /// `extended` or `restarted`.
    pub kind: &'static str,
    /// One line.
    pub message: String,
    /// The message again, and what was done.
    pub text: String,
}

/// The first look at a cell that was extended.
pub(super) fn of_cell(record: &RunRecord, at: usize) -> Vec<Earlier> {
    let outcome = &record.cells[at];
    let Some(told) = extended(outcome) else { return Vec::new() };
    let verdict = outcome.judgement.verdict;
    // A quarantine decides over the verdict, and not over what was measured.
    let came_to = match verdict {
        Verdict::Inconclusive => "still inconclusive",
        Verdict::Pass
        | Verdict::Fail
        | Verdict::Error
        | Verdict::Measured
        | Verdict::Skip
        | Verdict::Xfail
        | Verdict::Xpass => verdict_name(verdict),
    };
    let message = format!("{told}; then {came_to}");
    let alpha = record.header.policy.alpha;
    let text = format!(
        "{message}\nNo verdict was retried: the same measurement went on in the same launch, and both looks share policy.alpha = {alpha}."
    );
    vec![Earlier { error: false, kind: "extended", message, text }]
}

/// Each time that a launch's engine was lost and started again.
pub(super) fn of_launch(record: &RunRecord, launch: usize) -> Vec<Earlier> {
    let losses = record.losses(launch);
    let earlier = |why: &str| {
        let message = restarted(why);
        let text = format!(
            "{message}\nWhat it had measured stands; only cells that were not measured yet were left to the new start."
        );
        Earlier { error: true, kind: "restarted", message, text }
    };
    losses.into_iter().take(MOST).map(earlier).collect()
}

/// That an engine was started again, and why.
pub(super) fn restarted(why: &str) -> String {
    line(&cut(&line(&format!("engine started again after: {why}")), WORDS))
}

#[cfg(test)]
mod tests {
    use super::super::{Standing, cases};
    use super::*;
    use crate::record::run_record::{CellState, started_again};
    use crate::report::fit::fit;
    use crate::report::fixture;

    fn extend(record: &mut RunRecord, at: usize) {
        let CellState::Measured(measured) = &mut record.cells[at].state else { panic!("{at}") };
        measured.extended = true;
    }

    #[test]
    fn an_extended_cell_says_what_was_done_whatever_came_of_it() {
        let mut record = fixture::every_verdict();
        for at in 0..4 {
            extend(&mut record, at);
        }
        let cases = cases(&record);
        let told: Vec<&str> = cases.suites[0].cases[1..5]
            .iter()
            .map(|case| case.earlier[0].message.rsplit("then ").next().unwrap())
            .collect();
        assert_eq!(told, ["pass", "fail", "fail", "still inconclusive"]);
        assert!(cases.suites[0].cases[5].earlier.is_empty());
        let [first, ..] = &cases.suites[0].cases[1].earlier[..] else { panic!() };
        assert!(!first.error && first.text.contains("share policy.alpha = 0.05"), "{first:?}");
        // Consumers that know no flaky tests read it too.
        assert!(cases.suites[0].cases[1].output.contains("\nextended: inconclusive at the first"));
        let Standing::Failure(note) = &cases.suites[0].cases[2].standing else { panic!() };
        assert!(note.text.contains("\nextended: inconclusive at the first"), "{}", note.text);
    }

    #[test]
    fn a_launch_says_each_loss_of_its_own_engine() {
        let mut record = fixture::every_verdict();
        let why = |n: u32| format!("the engine died in decode concurrency={n}: exit code 1");
        record.warnings = vec![
            started_again("layout=tp8", &why(1), 1, 2),
            started_again("layout=dp8", &why(2), 1, 2),
            "launch layout=tp8: something else".into(),
        ];
        record.launches[0].warnings.push(format!("started again after: {}", why(3)));
        let cases = cases(&record);
        let told = |suite: usize| -> Vec<&str> {
            cases.suites[suite].cases[0].earlier.iter().map(|it| it.message.as_str()).collect()
        };
        let line = |n: u32| format!("engine started again after: {}", why(n));
        assert_eq!(told(0), [line(1), line(3)]);
        // One that failed in the end has been started again as well.
        assert_eq!(told(1), [line(2)]);
        assert!(cases.suites[0].cases[0].output.contains(&line(1)));
        // However often, and whatever it printed.
        let flood = fixture::nasty().repeat(1_000);
        record.warnings = vec![started_again("layout=tp8", &flood, 1, 9); 9];
        let told = of_launch(&record, 0);
        let bytes = |text: &str| crate::report::sanitise::escaped_len(text);
        assert!(told.iter().map(|it| bytes(&it.message) + bytes(&it.text)).sum::<usize>() < 5_000);
        assert_eq!(told.len(), MOST);
        let mut small = cases.clone();
        fit(&mut small, 10);
        assert!(small.suites[0].cases[0].earlier.is_empty());
    }
}
