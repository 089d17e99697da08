//! Validity: whether a measurement counts, and whose fault it is if it does not.
//!
//! Each check is a function of plain numbers, and its message has them. Where the numbers come from
//! is the run's business; what a fault leads to is decided in `judge`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::delivery::{Outputs, Reads};
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
    /// Outputs have the length that was asked for.
    OutputLength,
    /// Cached tokens are as `prefix` declares.
    CacheState,
    /// The engine was idle before the cell.
    Idle,
    /// Delivered concurrency is at least 98 %, where less could change a verdict.
    Concurrency,
    /// Client lag is within `policy.max-client-lag`.
    ClientLag,
    /// The client's thread has time to spare.
    ClientBusy,
    /// Enough samples.
    Samples,
    /// Token counts are known.
    TokenCount,
    /// Events come as they are made.
    Buffered,
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

/// Below this share it is, whatever is expected: what the rest would have done is guesswork.
const LEAST_DELIVERED: f64 = 0.75;

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

/// Whether the outputs that came to their end have the length that was asked for: tokens too few or
/// too many, averaged over the requests, against `tolerance`, a fraction; one token is always
/// allowed. `None` means that the suite does not ask.
///
/// An engine that stops early is not quick: it makes other tokens, at other batch sizes, than those
/// that were to be measured.
pub fn output_length(outputs: &Outputs, tolerance: Option<f64>) -> Check {
    let kind = CheckKind::OutputLength;
    if outputs.requests == 0 {
        return Check::new(kind, None, "no counted output came to its end".into());
    }
    let mean = |sum: u64| sum as f64 / outputs.requests as f64;
    let finishes: Vec<String> =
        outputs.finishes.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let allowed = tolerance.map(|share| (mean(outputs.asked) * share).max(1.0));
    let mut message = format!(
        "{} output tokens asked for, {} on average, {} at least (finish reasons: {}), {}",
        print_number(mean(outputs.asked), 1),
        print_number(mean(outputs.brought), 1),
        outputs.least,
        finishes.join(", "),
        match allowed {
            Some(allowed) => format!("tolerance {} tokens", print_number(allowed, 1)),
            None => "tolerance off".to_owned(),
        }
    );
    let holds = allowed.is_none_or(|allowed| mean(outputs.off) <= allowed);
    if !holds {
        message.push_str(
            "; write request.body = { ignore_eos = true } where the server takes it, \
             or request.output-tolerance = \"off\"",
        );
    }
    Check::unless(holds, kind, Fault::Invalid, message)
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

/// Growth of the engine's own prefix-cache counters over the measured part, in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookups {
    /// Prompt tokens that were looked up.
    pub queries: f64,
    /// Prompt tokens that were found.
    pub hits: f64,
}

/// Whether the engine's own counters agree with what `prefix` declares, for prompts of `prompt`
/// tokens; `None`: it has none, which is unknown, not zero. As for one request, see [`cache_state`].
pub fn cache_counters(expected: Cache, prompt: u64, lookups: Option<Lookups>) -> Check {
    let kind = CheckKind::CacheState;
    let Some(Lookups { queries, hits }) = lookups else {
        let message = "the engine has no counters of its prefix cache".to_owned();
        return Check::new(kind, None, message);
    };
    if queries <= 0.0 || prompt == 0 {
        let message = "the engine's counters of its prefix cache did not move".to_owned();
        return Check::new(kind, None, message);
    }
    let share = hits / queries;
    let prompt = prompt as f64;
    let (holds, words) = match expected {
        Cache::Cold => (share <= f64::max(64.0 / prompt, 0.01), "which was to be cold".to_owned()),
        Cache::Warm { tokens } => {
            let tokens = tokens as f64;
            let least = (tokens - f64::max(128.0, tokens / 10.0)) / prompt;
            (share >= least, format!("which was to hold {} %", percent(tokens / prompt)))
        }
    };
    let message = format!(
        "{} % of the prompt tokens came out of the cache by the engine's counters, {words}",
        percent(share)
    );
    Check::unless(holds, kind, Fault::Invalid, message)
}

/// Whether nobody else's requests were on the engine when the cell was to begin. `running` and
/// `waiting` are the engine's gauges once patience had ended; `None`: idle, or it has no gauges.
pub fn idle(busy: Option<(f64, f64)>) -> Check {
    let kind = CheckKind::Idle;
    match busy {
        None => Check::new(kind, None, "nothing ran on the engine before the cell".into()),
        Some((running, waiting)) => {
            let message = format!(
                "{running} requests ran and {waiting} waited on the engine before the cell, and none is ours"
            );
            Check::new(kind, Some(Fault::Invalid), message)
        }
    }
}

/// Share of the events beyond which their coming together is no chance.
const TOGETHER: f64 = 0.25;

/// Whether events with tokens come as they are made. Where many share a read with another one of
/// their request, something between engine and client collects them, or the engine makes tokens in
/// bursts that it sends as several events (one event with several tokens is none of this). Gaps
/// inside a read enter no figure, so that this is only a notice.
pub fn buffered(reads: &Reads) -> Check {
    let share = reads.together as f64 / reads.events.max(1) as f64;
    let told = format!(
        "{} % of the events with tokens came in one read with others of their stream, up to {} at once",
        percent(share),
        reads.most
    );
    let holds = share <= TOGETHER;
    let message = match holds {
        true => told,
        false => format!("buffered: {told}; how they are spaced is no engine speed"),
    };
    Check::unless(holds, CheckKind::Buffered, Fault::Notice, message)
}

/// Whether the client kept as many requests in flight as the cell declares. Where the few that lack
/// could not change a verdict (`matters`), it is only a notice.
pub fn concurrency(delivered: f64, streams: u32, matters: bool) -> Check {
    let kind = CheckKind::Concurrency;
    let least = |share: f64| delivered >= share * f64::from(streams);
    let mut message = format!("{} of {streams} requests in flight", print_number(delivered, 3));
    if !least(DELIVERED) {
        message.push_str(&format!(" on average, {} % at least are needed", DELIVERED * 100.0));
    }
    if matters || least(DELIVERED) || !least(LEAST_DELIVERED) {
        return Check::of_client(least(DELIVERED), kind, message);
    }
    let message =
        format!("{message}; fewer by the client's doing, but no limit is so near that it matters");
    Check::new(kind, Some(Fault::Notice), message)
}

/// Whether the client read in time: the 99th percentile and the greatest of its wake-up delays
/// against `policy.max-client-lag`. Where no verdict could change by them (`matters`), a lag is only
/// a notice, and one that is rare needs no word.
pub fn client_lag(p99: Duration, most: Duration, allowed: Duration, matters: bool) -> Check {
    let message = format!(
        "client lag {} (p99), {} at most, {} allowed",
        print_duration(rounded(p99)),
        print_duration(rounded(most.max(p99))),
        print_duration(allowed)
    );
    if matters || p99 <= allowed {
        return Check::of_client(!matters, CheckKind::ClientLag, message);
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
        None => {
            Check::new(kind, None, "the engine has no preemption counter, or began it anew".into())
        }
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

/// Whether a stream stalled: its longest gap against [`stall_limit`]. Of a gap the engine answers
/// for the stretch in which this program was there (`present`, of whichever gap has the longest one);
/// the rest may be ours, and is only a notice.
pub fn stall(longest: Duration, present: Duration, limit: Duration) -> Check {
    let mut message = format!(
        "longest gap between events {}, a stall from {} on",
        print_duration(rounded(longest)),
        print_duration(rounded(limit))
    );
    let fault = match (longest > limit, present > limit) {
        (_, true) => Some(Fault::Degraded),
        (true, false) => {
            let present = print_duration(rounded(present));
            message.push_str(&format!("; but for {present} of it this program itself did not run"));
            Some(Fault::Notice)
        }
        (false, false) => None,
    };
    Check::new(CheckKind::Stall, fault, message)
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
mod tests;
