//! The audit of a load: whether its requests were what the suite says, and whose fault it is if they
//! were not.
//!
//! It only gathers; what will do is decided in `measure::validity`.

use std::time::Duration;

use crate::judge::interval;
use crate::load::{Outcome, Trace};
use crate::measure::absence::Absences;
use crate::measure::serve::{self, Load};
use crate::measure::validity::{self, Cache};
use crate::measure::{Base, Check, Observations, Stat, observe};

use super::script::Asked;

/// What requests asked for, against what the server counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Audit {
    /// Prompt tokens asked for and counted, of the request that is furthest off.
    prompt: Option<(u64, u64)>,
    /// Requests whose prompt was to have a length, and those that the server counted.
    sized: u64,
    counted: u64,
    /// Prompt tokens of all of them, asked for and counted.
    asked_in_all: u64,
    counted_in_all: u64,
    /// Prompt tokens of the requests without a length of their own.
    unsized_in_all: (u64, u64),
    /// What the cache was to hold, the prompt, what came out of it: of the request that is furthest off.
    cache: Option<(Cache, u64, Option<u64>)>,
}

impl Audit {
    /// Takes a request.
    pub(super) fn see(&mut self, trace: &Trace, asked: &Asked) {
        match trace.outcome {
            Outcome::Failed(_) => return,
            // Cut before the server had counted anything.
            Outcome::Cancelled if trace.usage.is_none() => return,
            Outcome::Cancelled | Outcome::Complete => {}
        }
        let usage = trace.usage.unwrap_or_default();
        match (asked.input, usage.prompt) {
            (Some(input), counted) => {
                self.sized += 1;
                self.asked_in_all += input;
                if let Some(counted) = counted {
                    self.counted += 1;
                    self.counted_in_all += counted;
                    let off = |(asked, counted): (u64, u64)| {
                        asked.abs_diff(counted) as f64 / asked.max(1) as f64
                    };
                    if self.prompt.is_none_or(|worst| off((input, counted)) > off(worst)) {
                        self.prompt = Some((input, counted));
                    }
                }
            }
            (None, Some(counted)) => {
                self.unsized_in_all.0 += 1;
                self.unsized_in_all.1 += counted;
            }
            (None, None) => {}
        }
        if let Some(expected) = asked.cache {
            let prompt = usage.prompt.or(asked.input).unwrap_or(0);
            let off = |(expected, cached): (Cache, Option<u64>)| match (expected, cached) {
                (_, None) => -1,
                (Cache::Cold, Some(cached)) => cached as i64,
                (Cache::Warm { tokens }, Some(cached)) => tokens as i64 - cached as i64,
            };
            let now = (expected, usage.cached);
            if self.cache.is_none_or(|(cache, _, cached)| off(now) > off((cache, cached))) {
                self.cache = Some((expected, prompt, usage.cached));
            }
        }
    }

    /// Tokens of a prompt on average, as sent and as counted.
    pub(super) fn prompt_tokens(&self) -> Option<(u64, Option<u64>)> {
        let mean = |sum: u64, count: u64| (sum as f64 / count as f64).round() as u64;
        let (count, sum) = self.unsized_in_all;
        if self.sized > 0 {
            let counted = (self.counted > 0).then(|| mean(self.counted_in_all, self.counted));
            Some((mean(self.asked_in_all, self.sized), counted))
        } else {
            (count > 0).then(|| (mean(sum, count), Some(mean(sum, count))))
        }
    }

    /// Whether prompts and cache were as the suite says.
    pub(super) fn checks(&self, tolerance: Option<f64>) -> Vec<Check> {
        let mut checks = Vec::new();
        if let Some(mean) = self.asked_in_all.checked_div(self.sized) {
            let (asked, counted) = match self.prompt {
                Some((asked, counted)) => (asked, Some(counted)),
                None => (mean, None),
            };
            checks.push(validity::prompt_length(asked, counted, tolerance));
        }
        if let Some((expected, prompt, cached)) = self.cache {
            checks.push(validity::cache_state(expected, prompt, cached));
        }
        checks
    }
}

/// What the windows of loads say of whether they count. `away`: when this program did not run.
pub(super) fn checks(loads: &[Load<'_>], away: &Absences) -> Vec<Check> {
    let found = serve::together(loads);
    let mut checks = Vec::new();
    // What no request brought, no usage could have counted.
    if loads.iter().any(|load| load.traces.iter().any(|trace| trace.outcome == Outcome::Complete)) {
        checks.push(validity::token_count(found.contains_key(&Base::OutputTokens)));
    }
    let steady = loads.iter().filter_map(|load| {
        match serve::together(std::slice::from_ref(load)).remove(&Base::OutputThroughput) {
            Some(Observations::Batches { means, .. }) => Some(validity::steady(&means)),
            Some(_) | None => None,
        }
    });
    let steady: Vec<Check> = steady.collect();
    let drifting = steady.iter().find(|check| check.fault.is_some()).or(steady.first());
    checks.extend(drifting.cloned());
    if let Some(gaps) = found.get(&Base::ChunkGap)
        && let Some(median) = interval::value(gaps, Some(Stat::P50))
    {
        let limit = validity::stall_limit(Duration::from_secs_f64((median / 1e3).max(0.0)));
        let each = loads.iter().map(|Load { traces, span, .. }| {
            observe::longest_gaps(traces, span.from, span.to, away)
        });
        let most = |a: (Duration, Duration), b: (Duration, Duration)| (a.0.max(b.0), a.1.max(b.1));
        let (longest, present) = each.reduce(most).unwrap_or_default();
        checks.push(validity::stall(longest, present, limit));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Stamp;
    use crate::load::{TokenEvent, Usage, answer};
    use crate::measure::Fault;

    fn request(prompt: u64, cached: u64, tokens: u32) -> Trace {
        let mut trace = answer::unanswered(0, Stamp(0), Stamp(9), Outcome::Complete);
        trace.events = vec![TokenEvent { at: Stamp(5), tokens: Some(tokens) }];
        let (prompt, completion) = (Some(prompt), Some(u64::from(tokens)));
        trace.usage = Some(Usage { prompt, completion, cached: Some(cached) });
        trace
    }

    fn asked(input: u64, cache: Cache) -> Asked {
        Asked { input: Some(input), output: 16, cache: Some(cache) }
    }

    fn faults(audit: &Audit) -> Vec<(&'static str, String)> {
        let checks = audit.checks(Some(0.005));
        let named = |check: &Check| {
            let fault = match check.fault {
                Some(Fault::Invalid) => "invalid",
                Some(Fault::Degraded | Fault::Drifting | Fault::Notice) => "other",
                None => "holds",
            };
            (fault, check.message.clone())
        };
        checks.iter().map(named).collect()
    }

    #[test]
    fn the_request_that_is_furthest_off_speaks_for_all() {
        let mut audit = Audit::default();
        audit.see(&request(1000, 16, 16), &asked(1000, Cache::Cold));
        audit.see(&request(2000, 0, 16), &asked(2000, Cache::Cold));
        assert_eq!(audit.prompt_tokens(), Some((1500, Some(1500))));
        assert!(faults(&audit).iter().all(|(fault, _)| *fault == "holds"));
        audit.see(&request(510, 400, 16), &asked(500, Cache::Cold));
        audit.see(&request(3010, 0, 16), &asked(3000, Cache::Cold));
        let told = faults(&audit);
        assert_eq!((told[0].0, told[1].0), ("invalid", "invalid"));
        assert!(told[0].1.contains("500 tokens, 510"), "{}", told[0].1);
        assert!(told[1].1.contains("400 of 510"), "{}", told[1].1);
    }

    #[test]
    fn a_request_that_was_cut_before_its_first_token_says_nothing() {
        let mut audit = Audit::default();
        audit.see(
            &answer::unanswered(0, Stamp(0), Stamp(9), Outcome::Cancelled),
            &asked(1000, Cache::Cold),
        );
        assert_eq!((audit.prompt_tokens(), faults(&audit).len()), (None, 0));
    }

    #[test]
    fn a_warm_beginning_that_is_not_in_the_cache_is_told() {
        let mut audit = Audit::default();
        audit.see(&request(2000, 1000, 16), &asked(2000, Cache::Warm { tokens: 1000 }));
        audit.see(&request(2000, 0, 16), &asked(2000, Cache::Warm { tokens: 1000 }));
        assert_eq!(faults(&audit)[1].0, "invalid");
    }
}
