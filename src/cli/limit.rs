//! Limits of a whole command: how long it may take, and how many cells may fail.
//!
//! They hold over all suites of the command. What is left of them when a suite begins is decided here;
//! when they are reached, in `run` and in the onlooker.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::suite::model::TimeLimit;

/// Of a time limit this much is kept for an orderly end, which seldom needs it.
const END: Duration = Duration::from_secs(6);
/// Slurm's job has to be over by its end: beside the engine's end there is what the script does after it.
const JOB_END: Duration = Duration::from_secs(30);

/// Reads `--time-limit`.
pub fn time_limit(text: &str) -> Result<TimeLimit, String> {
    if text == "auto" {
        return Ok(TimeLimit::Auto);
    }
    let limit = crate::quantity::parse_duration(text).map_err(|error| {
        error
            .help
            .map_or_else(|| error.message.clone(), |help| format!("{}; {help}", error.message))
    })?;
    if limit.is_zero() {
        return Err("a limit of nothing; write a time like 90m, or leave it away".to_owned());
    }
    Ok(TimeLimit::After(limit))
}

/// Reads `--max-fail`.
pub fn max_fail(text: &str) -> Result<NonZeroUsize, String> {
    let number: usize = text.parse().map_err(|_| "write a number of cells, like 3".to_owned())?;
    NonZeroUsize::new(number).ok_or_else(|| {
        "no run could begin; write 1 to end after the first failed cell, or leave it away to run all"
            .to_owned()
    })
}

/// What is left to the suites of a command.
#[derive(Debug)]
pub struct Limits {
    began: Instant,
    /// The flag.
    time: Option<TimeLimit>,
    /// Cells that may still fail, where that is limited.
    failures: Option<usize>,
}

impl Limits {
    /// Begins to count.
    pub fn begin(time: Option<TimeLimit>, failures: Option<usize>) -> Limits {
        Limits { began: Instant::now(), time, failures }
    }

    /// When the suite that begins now has to be halted; `own` is what it says of itself, which the flag
    /// goes before.
    pub fn time_left(&self, own: Option<TimeLimit>) -> Option<Duration> {
        match self.time {
            Some(TimeLimit::After(limit)) => {
                Some(halted_after(limit).saturating_sub(self.began.elapsed()))
            }
            Some(TimeLimit::Auto) => job_left(),
            None => match own? {
                TimeLimit::After(limit) => Some(halted_after(limit)),
                TimeLimit::Auto => job_left(),
            },
        }
    }

    /// Cells that may still fail in the suite that begins now.
    pub fn failures_left(&self) -> Option<usize> {
        self.failures
    }

    /// Counts the failed cells of a suite that has ended.
    pub fn failed(&mut self, cells: usize) {
        self.failures = self.failures.map(|left| left.saturating_sub(cells));
    }
}

/// When a run of so long is halted, so that its end is inside of the limit.
fn halted_after(limit: Duration) -> Duration {
    limit - END.min(limit / 10)
}

/// What Slurm leaves to the job that this is a part of, as it is told to its processes.
fn job_left() -> Option<Duration> {
    let end = std::env::var("SLURM_JOB_END_TIME").ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    left_until(&end, now)
}

/// What is left at `now` until a job's end in seconds, both since 1970; none where it has no end.
fn left_until(end: &str, now: Duration) -> Option<Duration> {
    let end: u64 = end.trim().parse().ok()?;
    // 0 and the largest number of 32 bits stand for "unlimited".
    (end != 0 && end < u64::from(u32::MAX))
        .then(|| Duration::from_secs(end).saturating_sub(now).saturating_sub(JOB_END))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn the_end_is_inside_of_the_limit() {
        assert_eq!(halted_after(3600 * S), 3594 * S);
        assert_eq!(halted_after(10 * S), 9 * S);
        assert_eq!(halted_after(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_flag_goes_before_the_suite_and_both_may_be_absent() {
        let own = Some(TimeLimit::After(100 * S));
        assert_eq!(Limits::begin(None, None).time_left(own), Some(94 * S));
        assert_eq!(Limits::begin(None, None).time_left(None), None);
        let flag = Limits::begin(Some(TimeLimit::After(50 * S)), None);
        assert!(flag.time_left(own).is_some_and(|left| left <= 45 * S && left > 30 * S));
    }

    #[test]
    fn a_job_of_slurm_leaves_what_it_has_left() {
        let now = 1_800_000_000 * S;
        assert_eq!(left_until("1800000130", now), Some(100 * S));
        assert_eq!(left_until("1800000010\n", now), Some(Duration::ZERO));
        for endless in ["", "0", "4294967295", "soon", "18446744073709551615"] {
            assert_eq!(left_until(endless, now), None, "{endless}");
        }
    }

    #[test]
    fn failures_count_over_all_suites() {
        let mut limits = Limits::begin(None, Some(3));
        limits.failed(1);
        assert_eq!(limits.failures_left(), Some(2));
        limits.failed(4);
        assert_eq!(limits.failures_left(), Some(0));
        let mut endless = Limits::begin(None, None);
        endless.failed(9);
        assert_eq!(endless.failures_left(), None);
    }

    #[test]
    fn limits_of_nothing_are_refused_in_words() {
        assert_eq!(time_limit("auto"), Ok(TimeLimit::Auto));
        assert_eq!(time_limit("90m"), Ok(TimeLimit::After(5400 * S)));
        assert!(time_limit("0s").unwrap_err().contains("like 90m"));
        assert!(time_limit("90").is_err());
        assert_eq!(max_fail("2").map(NonZeroUsize::get), Ok(2));
        assert!(max_fail("0").unwrap_err().contains("write 1"));
        assert!(max_fail("-1").unwrap_err().contains("like 3"));
    }
}
