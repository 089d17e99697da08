//! Validity: whether a measurement counts, and whose fault it is if it does not.
//!
//! Each check is a function of plain numbers, and its message has them. Where the numbers come from
//! is the run's business; what a fault leads to is decided in `judge`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::distribution::t_critical;
use crate::quantity::{print_duration, print_number};

/// Whose fault a failed check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The measurement's: the cell is an error.
    Invalid,
    /// The engine's: the cell fails, figures still shown.
    Degraded,
    /// Nobody's: a warning that caps the verdict at inconclusive.
    Drifting,
    /// A word in the report, nothing more.
    Notice,
}

/// What is checked.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// The prompt has the length that was asked for.
    PromptLength,
    /// Cached tokens are as `prefix` declares.
    CacheState,
    /// Delivered concurrency is at least 98 %.
    Concurrency,
    /// Client lag is within `policy.max-client-lag`.
    ClientLag,
    /// The client's thread has time to spare.
    ClientBusy,
    /// Enough samples.
    Samples,
    /// Token counts are known.
    TokenCount,
    /// Failed requests are within `policy.max-error-rate`.
    ErrorRate,
    /// No request was preempted.
    Preemption,
    /// Nothing queued below capacity.
    Queued,
    /// No stream stalled.
    Stall,
    /// No drift over the window.
    Steady,
}

/// One check with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Check {
    /// What was checked.
    pub kind: CheckKind,
    /// `None`: it held.
    pub fault: Option<Fault>,
    /// The numbers, as words.
    pub message: String,
}

/// Delivered concurrency below this share of the declared one is the client's failing.
pub const DELIVERED: f64 = 0.98;

/// Significance of the slope beyond which a window may be called drifting.
const SLOPE_LEVEL: f64 = 0.01;

/// Change over the window, as a share of the mean, beyond which a significant slope is drift.
const SLOPE_CHANGE: f64 = 0.1;

impl Check {
    fn new(kind: CheckKind, fault: Option<Fault>, message: String) -> Check {
        Check { kind, fault, message }
    }

    /// A check that the client fails: nothing that was measured is the engine's.
    fn of_client(holds: bool, kind: CheckKind, message: String) -> Check {
        let message = if holds { message } else { format!("the client was the limit: {message}") };
        Check::unless(holds, kind, Fault::Invalid, message)
    }

    fn unless(holds: bool, kind: CheckKind, fault: Fault, message: String) -> Check {
        Check::new(kind, (!holds).then_some(fault), message)
    }
}

fn percent(share: f64) -> String {
    print_number(share * 100.0, 2)
}

/// Whether the server counted the prompt as long as it was sent. `tolerance` is a fraction, one
/// token is always allowed; `None` means that the suite does not ask.
pub fn prompt_length(sent: u64, counted: Option<u64>, tolerance: Option<f64>) -> Check {
    let kind = CheckKind::PromptLength;
    let (Some(tolerance), Some(counted)) = (tolerance, counted) else {
        let message = match (tolerance, counted) {
            (Some(_), _) => format!(
                "a prompt of {sent} tokens was sent and the server counts no prompt tokens; \
                 write prompt-tolerance = \"off\" if that is all right"
            ),
            (None, Some(counted)) => {
                format!("prompt of {sent} tokens, {counted} by the server, tolerance off")
            }
            (None, None) => format!("prompt of {sent} tokens, not counted by the server"),
        };
        return Check::new(kind, tolerance.map(|_| Fault::Invalid), message);
    };
    let allowed = (sent as f64 * tolerance).max(1.0);
    let off = sent.abs_diff(counted) as f64;
    let message = format!(
        "prompt of {sent} tokens, {counted} by the server, tolerance {} tokens",
        print_number(allowed, 1)
    );
    Check::unless(off <= allowed, kind, Fault::Invalid, message)
}

/// What `prefix` says of the prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Nothing of the prompt may come out of it.
    Cold,
    /// So many tokens of the prompt must come out of it.
    Warm {
        /// The common or warmed beginning.
        tokens: u64,
    },
}

/// Whether the cached tokens of one request are as `prefix` declares.
///
/// Engines cache whole blocks and always compute the last token anew, so a warm prompt may lack
/// 128 tokens or a tenth, whichever is more; a cold one may share its beginning (the first block
/// holds the special tokens), 64 tokens or a hundredth.
pub fn cache_state(expected: Cache, prompt: u64, cached: Option<u64>) -> Check {
    let kind = CheckKind::CacheState;
    let Some(cached) = cached else {
        return Check::new(kind, None, "the engine does not say what came out of its cache".into());
    };
    match expected {
        Cache::Cold => Check::unless(
            cached <= 64.max(prompt / 100),
            kind,
            Fault::Invalid,
            format!(
                "{cached} of {prompt} prompt tokens came out of the cache, which was to be cold"
            ),
        ),
        Cache::Warm { tokens } => Check::unless(
            cached + 128.max(tokens / 10) >= tokens,
            kind,
            Fault::Invalid,
            format!(
                "{cached} of {prompt} prompt tokens came out of the cache, which was to hold {tokens}"
            ),
        ),
    }
}

/// Whether the client kept as many requests in flight as the cell declares.
pub fn concurrency(delivered: f64, streams: u32) -> Check {
    let holds = delivered >= DELIVERED * f64::from(streams);
    let message = format!("{} of {streams} requests in flight", print_number(delivered, 2));
    Check::of_client(holds, CheckKind::Concurrency, message)
}

/// Whether the client read in time: `p99` of its wake-up delays against `policy.max-client-lag`.
/// Where such a lag could not change a verdict (`matters`), it is only a notice.
pub fn client_lag(p99: Duration, allowed: Duration, matters: bool) -> Check {
    let message = format!(
        "client lag {} (p99), {} allowed",
        print_duration(rounded(p99)),
        print_duration(allowed)
    );
    if matters || p99 <= allowed {
        return Check::of_client(p99 <= allowed, CheckKind::ClientLag, message);
    }
    Check::new(CheckKind::ClientLag, Some(Fault::Notice), message)
}

/// How far a lag of the client can move its stamps.
///
/// A stamp of our own is late by the lag. The kernel's is that of the newest bytes of a read: it
/// moves only where more of the same stream came before we read, for which the lag must reach the
/// gap between events. Half the median `gap` is taken for that; without one there is one event.
pub fn stamp_shift(lag: Duration, by_kernel: bool, gap: Option<Duration>) -> Duration {
    let reaches = gap.is_some_and(|gap| lag >= gap / 2);
    if by_kernel && !reaches { Duration::ZERO } else { lag }
}

/// What the thread that reads the streams did over a stretch of measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thread {
    /// Time that it ran.
    pub running: Duration,
    /// Time that it could have run and waited for a core.
    pub waiting: Duration,
    /// The whole stretch.
    pub whole: Duration,
}

/// A thread that runs for more than this share of the time has none to spare.
const BUSY: f64 = 0.9;

/// Whether the client's thread had time to spare. `None`: the system does not say.
pub fn client_busy(thread: Option<Thread>) -> Check {
    let kind = CheckKind::ClientBusy;
    let Some(Thread { running, waiting, whole }) = thread.filter(|it| !it.whole.is_zero()) else {
        return Check::new(kind, None, "the system does not say how busy the client was".into());
    };
    let share = |part: Duration| part.as_secs_f64() / whole.as_secs_f64();
    let message = format!(
        "the client's thread ran {} % of the time, {} % allowed, and waited {} % for a core",
        print_number(share(running) * 100.0, 1),
        percent(BUSY),
        print_number(share(waiting) * 100.0, 1),
    );
    Check::of_client(share(running) <= BUSY, kind, message)
}

/// Whether there are enough samples to say anything.
pub fn samples(got: u64, least: u64) -> Check {
    let message = format!("{got} samples, at least {least} needed");
    Check::unless(got >= least, CheckKind::Samples, Fault::Invalid, message)
}

/// Whether the server told its token counts. Metrics that need them are absent if not, and a bound
/// on an absent metric is an error, so this is only a notice.
pub fn token_count(known: bool) -> Check {
    let message = if known {
        "token counts by the server"
    } else {
        "the server sent no usage: token counts are unknown and their metrics absent"
    };
    Check::unless(known, CheckKind::TokenCount, Fault::Notice, message.into())
}

/// Whether failed requests stay within `policy.max-error-rate`, a fraction.
pub fn error_rate(failed: u64, requests: u64, allowed: f64) -> Check {
    let share = if requests == 0 { 0.0 } else { failed as f64 / requests as f64 };
    let message = format!(
        "{failed} of {requests} requests failed ({} %, {} % allowed)",
        percent(share),
        percent(allowed)
    );
    Check::unless(share <= allowed, CheckKind::ErrorRate, Fault::Degraded, message)
}

/// Whether the engine preempted requests, by the growth of its counter; `None`: it has none, which
/// is unknown, not zero.
pub fn preemption(growth: Option<u64>) -> Check {
    let kind = CheckKind::Preemption;
    match growth {
        None => Check::new(kind, None, "the engine has no preemption counter".into()),
        Some(count) => {
            let message = format!("{count} preemptions in the window");
            Check::unless(count == 0, kind, Fault::Degraded, message)
        }
    }
}

/// Waiting requests as the engine's gauge showed them at readings inside the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// How often it was read.
    readings: u64,
    /// The sum of what it showed.
    waiting: u64,
    /// The most that it showed.
    most: u64,
}

impl Queue {
    /// Takes a reading.
    pub fn see(&mut self, waiting: u64) {
        self.readings += 1;
        self.waiting += waiting;
        self.most = self.most.max(waiting);
    }
}

/// Whether requests queued although the cell fits the engine's capacity; `None`: it has no gauge.
///
/// A request joins a running batch at the end of a step and waits for half a step. Where requests
/// of `output` tokens follow each other, one reading in 2 × `output` finds a stream waiting so. What
/// goes beyond that by three standard deviations and three is a queue. Without `output` every
/// request waits for a prefill of its own, and a queue is the load.
pub fn queued(queue: Option<Queue>, streams: u32, output: Option<u64>) -> Check {
    let kind = CheckKind::Queued;
    let Some(Queue { readings, waiting, most }) = queue else {
        return Check::new(kind, None, "the engine has no gauge of waiting requests".into());
    };
    let mean = print_number(waiting as f64 / readings.max(1) as f64, 1);
    let Some(output) = output else {
        let message = format!("{mean} of {streams} requests queued for their prefill");
        return Check::new(kind, None, message);
    };
    let turns = (readings * u64::from(streams)) as f64 / (2 * output.max(1)) as f64;
    let message =
        format!("{mean} of {streams} requests queued below capacity on average, {most} at most");
    let holds = waiting as f64 <= turns + 3.0 * turns.sqrt() + 3.0;
    Check::unless(holds, kind, Fault::Degraded, message)
}

/// The gap between two events of a stream beyond which it stalled: far beyond what a prefill
/// between decode steps explains, in proportion to the cell's own pace.
pub fn stall_limit(median_gap: Duration) -> Duration {
    (median_gap * 100).max(Duration::from_secs(2))
}

/// Whether a stream stalled: its longest gap against [`stall_limit`].
pub fn stall(longest: Duration, limit: Duration) -> Check {
    let message = format!(
        "longest gap between events {}, a stall from {} on",
        print_duration(rounded(longest)),
        print_duration(rounded(limit))
    );
    Check::unless(longest <= limit, CheckKind::Stall, Fault::Degraded, message)
}

/// Whether the rate drifts over the window: the least-squares slope of its batch means is
/// significant (t with n − 2 degrees of freedom, level .01, both sides) *and* the change that it
/// makes over the window exceeds 10 % of the mean. Call it with what the extension left.
pub fn steady(means: &[f64]) -> Check {
    let kind = CheckKind::Steady;
    let Some(slope) = Slope::of(means) else {
        return Check::new(kind, None, format!("{} batches, too few to see drift", means.len()));
    };
    let critical = t_critical(SLOPE_LEVEL / 2.0, means.len() as f64 - 2.0);
    let drifts = slope.t.abs() > critical && slope.change.abs() > SLOPE_CHANGE;
    let message = format!(
        "change over the window {}{} % (t {}, critical {})",
        if slope.change < 0.0 { "−" } else { "+" },
        print_number(slope.change.abs() * 100.0, 1),
        print_number(slope.t, 1),
        print_number(critical, 2)
    );
    Check::unless(!drifts, kind, Fault::Drifting, message)
}

/// The straight line through batch means.
struct Slope {
    /// Change over the whole window as a share of the mean.
    change: f64,
    /// Slope over its standard error.
    t: f64,
}

impl Slope {
    fn of(means: &[f64]) -> Option<Slope> {
        let n = means.len() as f64;
        let mean = means.iter().sum::<f64>() / n;
        if means.len() < 3 || !mean.is_finite() || mean == 0.0 {
            return None;
        }
        let middle = (n - 1.0) / 2.0;
        let spread = n * (n * n - 1.0) / 12.0;
        let steps = means.iter().enumerate().map(|(i, value)| (i as f64 - middle, value - mean));
        let slope = steps.clone().map(|(x, y)| x * y).sum::<f64>() / spread;
        let left: f64 = steps.map(|(x, y)| (y - slope * x).powi(2)).sum();
        let error = (left / (n - 2.0) / spread).sqrt();
        let t = if slope == 0.0 { 0.0 } else { slope / error };
        Some(Slope { change: slope * n / mean, t })
    }
}

/// Whole tenths of a millisecond: more digits of a delay are noise.
fn rounded(duration: Duration) -> Duration {
    Duration::from_micros((duration.as_micros() as u64).div_ceil(100) * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_prompt_may_be_off_by_its_tolerance_and_always_by_one_token() {
        assert_eq!(prompt_length(100, Some(101), Some(0.005)).fault, None);
        assert_eq!(prompt_length(8192, Some(8232), Some(0.005)).fault, None);
        let off = prompt_length(8192, Some(8233), Some(0.005));
        assert_eq!(off.fault, Some(Fault::Invalid));
        assert_eq!(off.message, "prompt of 8192 tokens, 8233 by the server, tolerance 41 tokens");
        assert_eq!(prompt_length(8192, Some(4000), None).fault, None);
        assert_eq!(prompt_length(8192, None, Some(0.005)).fault, Some(Fault::Invalid));
    }

    #[test]
    fn cached_tokens_must_be_as_declared() {
        assert_eq!(cache_state(Cache::Cold, 8192, Some(64)).fault, None);
        assert_eq!(cache_state(Cache::Cold, 8192, Some(4096)).fault, Some(Fault::Invalid));
        assert_eq!(cache_state(Cache::Warm { tokens: 8192 }, 8192, Some(8176)).fault, None);
        assert_eq!(
            cache_state(Cache::Warm { tokens: 8192 }, 8192, Some(0)).fault,
            Some(Fault::Invalid)
        );
        assert_eq!(cache_state(Cache::Cold, 8192, None).fault, None);
    }

    #[test]
    fn what_the_client_fails_at_is_invalid() {
        assert_eq!(concurrency(125.5, 128).fault, None);
        assert_eq!(concurrency(125.0, 128).fault, Some(Fault::Invalid));
        let late = client_lag(Duration::from_micros(6120), ms(5), true);
        assert_eq!(late.fault, Some(Fault::Invalid));
        assert_eq!(late.message, "the client was the limit: client lag 6.2ms (p99), 5ms allowed");
        let harmless = client_lag(ms(6), ms(5), false);
        assert_eq!(harmless.fault, Some(Fault::Notice));
        assert_eq!(harmless.message, "client lag 6ms (p99), 5ms allowed");
        assert_eq!(client_lag(ms(5), ms(5), true).fault, None);
        assert_eq!(samples(0, 1).fault, Some(Fault::Invalid));
    }

    #[test]
    fn a_client_without_time_to_spare_was_the_limit() {
        let thread = |running, waiting| Thread {
            running: ms(running),
            waiting: ms(waiting),
            whole: Duration::from_secs(10),
        };
        // Waiting for a core shows as lag, where it hurts.
        assert_eq!(client_busy(Some(thread(9000, 900))).fault, None);
        let full = client_busy(Some(thread(9310, 520)));
        assert_eq!(full.fault, Some(Fault::Invalid));
        assert_eq!(
            full.message,
            "the client was the limit: the client's thread ran 93.1 % of the time, 90 % allowed, \
             and waited 5.2 % for a core"
        );
        assert_eq!(client_busy(None).fault, None);
    }

    #[test]
    fn the_kernels_stamps_move_only_with_a_lag_that_reaches_the_next_event() {
        assert_eq!(stamp_shift(ms(8), false, Some(ms(20))), ms(8));
        assert_eq!(stamp_shift(ms(8), true, Some(ms(20))), Duration::ZERO);
        assert_eq!(stamp_shift(ms(10), true, Some(ms(20))), ms(10));
        assert_eq!(stamp_shift(ms(500), true, None), Duration::ZERO);
    }

    #[test]
    fn what_the_engine_fails_at_is_degraded() {
        let failed = error_rate(3, 128, 0.0);
        assert_eq!(failed.fault, Some(Fault::Degraded));
        assert_eq!(failed.message, "3 of 128 requests failed (2.34 %, 0 % allowed)");
        assert_eq!(error_rate(3, 128, 0.05).fault, None);
        assert_eq!(preemption(Some(24)).fault, Some(Fault::Degraded));
        assert_eq!(preemption(Some(0)).fault, None);
        assert_eq!(stall(ms(2500), stall_limit(ms(17))).fault, Some(Fault::Degraded));
        assert_eq!(stall(ms(2500), stall_limit(ms(250))).fault, None);
    }

    #[test]
    fn a_queue_is_what_stays_and_not_who_waits_for_a_step() {
        let queue = |shown: &[u64]| {
            let mut queue = Queue::default();
            shown.iter().for_each(|waiting| queue.see(*waiting));
            Some(queue)
        };
        let stays = queued(queue(&[2; 30]), 8, Some(4096));
        assert_eq!(stays.fault, Some(Fault::Degraded));
        assert_eq!(stays.message, "2 of 8 requests queued below capacity on average, 2 at most");
        assert_eq!(queued(queue(&[1; 10]), 128, Some(4096)).fault, Some(Fault::Degraded));
        let mut once = [0; 30];
        once[7] = 1;
        assert_eq!(queued(queue(&once), 128, Some(4096)).fault, None);
        // 64 streams of 16 tokens: two wait for a step at any time.
        assert_eq!(queued(queue(&[2; 30]), 64, Some(16)).fault, None);
        assert_eq!(queued(queue(&[8; 30]), 64, Some(16)).fault, Some(Fault::Degraded));
        assert_eq!(queued(queue(&[8; 30]), 64, None).fault, None);
    }

    #[test]
    fn an_unknown_gauge_is_unknown_and_no_fault() {
        assert_eq!(preemption(None).fault, None);
        assert_eq!(preemption(None).message, "the engine has no preemption counter");
        assert_eq!(queued(None, 8, Some(256)).fault, None);
        assert_eq!(token_count(false).fault, Some(Fault::Notice));
    }

    #[test]
    fn drift_needs_a_sure_slope_and_a_large_one() {
        let line = |per_batch: f64, noise: f64| -> Vec<f64> {
            let wiggle = [1.0, -1.0, 0.5, -0.5, -1.0, 1.0, 0.0, -0.5, 0.5, 0.0];
            (0..10).map(|i| 100.0 + per_batch * f64::from(i) + noise * wiggle[i as usize]).collect()
        };
        assert_eq!(steady(&line(2.0, 0.5)).fault, Some(Fault::Drifting));
        assert_eq!(steady(&line(-2.0, 0.5)).fault, Some(Fault::Drifting));
        // Sure, but 5 % only.
        assert_eq!(steady(&line(0.5, 0.01)).fault, None);
        // Large, but not sure.
        assert_eq!(steady(&line(2.0, 20.0)).fault, None);
        assert_eq!(steady(&[100.0; 10]).fault, None);
        // Ten batches leave 8 degrees of freedom: |t| must exceed 3.355.
        assert!(steady(&[100.0; 10]).message.ends_with("critical 3.36)"));
        assert_eq!(steady(&[]).fault, None);
    }

    #[test]
    fn the_slope_is_that_of_least_squares() {
        let slope = Slope::of(&[1.5, 2.6, 3.1, 3.8]).unwrap();
        let by_hand = {
            let (x, y) = ([-1.5, -0.5, 0.5, 1.5], [1.5, 2.6, 3.1, 3.8]);
            let b: f64 = x.iter().zip(y).map(|(x, y)| x * (y - 2.75)).sum::<f64>() / 5.0;
            let r: f64 = x.iter().zip(y).map(|(x, y)| (y - 2.75 - b * x).powi(2)).sum();
            (b, b / (r / 2.0 / 5.0).sqrt())
        };
        assert!((slope.change - by_hand.0 * 4.0 / 2.75).abs() < 1e-12);
        assert!((slope.t - by_hand.1).abs() < 1e-12);
    }
}
