//! Counts of a run: how many cells came to which verdict, in how long, and the line that says so. The
//! mean ratio of compared variants is one more case, here as in every report.

use std::time::Duration;

use crate::judge::{BoundVerdict, Verdict};
use crate::record::RunRecord;
use crate::record::run_record::{CellState, Judgement};
use crate::suite::model::InconclusivePolicy;

use super::{overall, part};

/// Cells, and the mean ratio, by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// [`Verdict::Pass`].
    pub pass: usize,
    /// [`Verdict::Fail`].
    pub fail: usize,
    /// [`Verdict::Inconclusive`].
    pub inconclusive: usize,
    /// [`Verdict::Error`] of what ran.
    pub error: usize,
    /// [`Verdict::Error`] of what has not run.
    pub not_run: usize,
    /// [`Verdict::Measured`].
    pub measured: usize,
    /// [`Verdict::Skip`].
    pub skip: usize,
    /// [`Verdict::Xfail`].
    pub xfail: usize,
    /// [`Verdict::Xpass`].
    pub xpass: usize,
    /// Launches that failed.
    pub launches_failed: usize,
}

impl Counts {
    /// Counts a record.
    pub fn of(record: &RunRecord) -> Counts {
        let mut counts = Counts {
            launches_failed: record.launches.iter().filter(|l| l.failure.is_some()).count(),
            ..Counts::default()
        };
        let cells = record
            .cells
            .iter()
            .map(|cell| (cell.judgement.verdict, matches!(cell.state, CellState::NotRun { .. })));
        let overall = overall::of(record).map(|it| (it.judgement().verdict, it.is_pending()));
        for (verdict, waits) in cells.chain(overall) {
            let slot = match verdict {
                Verdict::Pass => &mut counts.pass,
                Verdict::Fail => &mut counts.fail,
                Verdict::Inconclusive => &mut counts.inconclusive,
                Verdict::Error if waits => &mut counts.not_run,
                Verdict::Error => &mut counts.error,
                Verdict::Measured => &mut counts.measured,
                Verdict::Skip => &mut counts.skip,
                Verdict::Xfail => &mut counts.xfail,
                Verdict::Xpass => &mut counts.xpass,
            };
            *slot += 1;
        }
        counts
    }

    /// `45 passed, 28 skipped, 0 failed, 0 inconclusive, 0 errors`, and what else is not zero.
    pub fn sentence(&self) -> String {
        let mut parts = vec![
            format!("{} passed", self.pass),
            format!("{} skipped", self.skip),
            format!("{} failed", self.fail),
            format!("{} inconclusive", self.inconclusive),
            plural(self.error, "error"),
        ];
        for (n, word) in [
            (self.not_run, "not run"),
            (self.measured, "measured only"),
            (self.xfail, "failed as expected"),
            (self.xpass, "passed in quarantine"),
        ] {
            if n > 0 {
                parts.push(format!("{n} {word}"));
            }
        }
        if self.launches_failed > 0 {
            parts.push(format!("{} failed", plural(self.launches_failed, "launch")));
        }
        parts.join(", ")
    }
}

/// The last line of a run: all counts, in brackets what the mean ratio among them came to, and how long
/// it took.
pub fn last_line(record: &RunRecord) -> String {
    let mut counts = Counts::of(record).sentence();
    if let Some(overall) = overall::of(record) {
        counts.push_str(&format!(" ({})", overall.in_a_word()));
    }
    let shards = part::suffix(record);
    match record.seconds {
        Some(seconds) if record.header.virtual_time => {
            format!("{counts} in {} of virtual time{shards}", elapsed(seconds))
        }
        Some(seconds) => format!("{counts} in {}{shards}", elapsed(seconds)),
        None => format!("{counts}{shards}; the run has not ended"),
    }
}

/// Whether an inconclusive cell stands as failed: `policy.inconclusive` is `fail`, or it is `point`
/// and an estimate is beyond its limit.
pub fn inconclusive_fails(policy: InconclusivePolicy, judgement: &Judgement) -> bool {
    match policy {
        InconclusivePolicy::Fail => true,
        InconclusivePolicy::Point => judgement
            .bounds
            .iter()
            .any(|bound| matches!(bound.verdict, BoundVerdict::Inconclusive | BoundVerdict::Fail)),
        InconclusivePolicy::Warn | InconclusivePolicy::Pass => false,
    }
}

/// A duration for people: `0.4s`, `12.3s`, `1m12s`, `2h03m`.
pub fn elapsed(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs_f64();
    let whole = if seconds < 59.95 { 0.0 } else { seconds.round() };
    let (minutes, hours) = ((whole / 60.0).floor(), (whole / 3600.0).floor());
    if hours >= 1.0 {
        format!("{hours}h{:02}m", (minutes - hours * 60.0))
    } else if minutes >= 1.0 {
        format!("{minutes}m{:02}s", whole - minutes * 60.0)
    } else {
        format!("{seconds:.1}s")
    }
}

/// `1 error`, `2 errors`, `2 launches`.
pub fn plural(n: usize, word: &str) -> String {
    match (n, word.ends_with("ch")) {
        (1, _) => format!("1 {word}"),
        (_, true) => format!("{n} {word}es"),
        (_, false) => format!("{n} {word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_last_line_has_all_counts() {
        let record = fixture::page();
        assert_eq!(
            last_line(&record),
            "46 passed, 28 skipped, 0 failed, 0 inconclusive, 0 errors in 12m30s"
        );
        let record = fixture::every_verdict();
        assert_eq!(
            last_line(&record),
            "1 passed, 2 skipped, 2 failed, 1 inconclusive, 1 error, 2 not run, 1 measured only, \
             1 failed as expected, 1 passed in quarantine, 1 launch failed in 1m12s"
        );
    }

    #[test]
    fn durations_read_well() {
        for (seconds, text) in [
            (0.0, "0.0s"),
            (12.34, "12.3s"),
            (59.96, "1m00s"),
            (72.0, "1m12s"),
            (7380.0, "2h03m"),
            (f64::NAN, "0.0s"),
        ] {
            assert_eq!(elapsed(seconds), text);
        }
    }
}
