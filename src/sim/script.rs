//! The script of faults: what goes wrong, for which requests, after which token.
//!
//! It decides; the scheduler and the API carry it out. The same seed picks the same requests.

use std::time::Duration;

use super::noise::mix;

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The process ends once it has generated so many tokens.
    Crash { at_token: u64, death: Death },
    /// The process ends before it serves.
    DieWhileLoading(Death),
    /// The whole engine pauses once it has generated so many tokens; for ever without a length.
    Hang { at_token: u64, pause: Option<Duration> },
    /// A request's stream pauses after so many tokens; for ever without a length.
    Stall { pick: Pick, at_token: u64, pause: Option<Duration> },
    /// The connection is closed without an answer.
    Refuse { pick: Pick },
    /// Another status than 200.
    Status { pick: Pick, status: u16, message: String },
    /// An error object inside the stream after so many tokens, then `[DONE]`.
    StreamError { pick: Pick, at_token: u64, message: String },
    /// The connection is cut after so many tokens.
    Truncate { pick: Pick, at_token: u64 },
    /// From a time after the start on, requests of a path are read and never answered.
    Mute { path: Option<String>, after: Duration, pick: Pick },
    /// Once so many tokens are generated health is an error, and so is every answer.
    Sick { at_token: u64, message: String },
    /// Times are longer by a fraction.
    Slow { by: f64, what: Slowed, context: Option<u64>, batch: Option<u64> },
    /// Each finished request keeps so many tokens of KV cache for ever.
    Leak { tokens: u64 },
}

/// How a process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Death {
    /// Time from the start, while loading.
    pub(crate) after: Duration,
    /// Exit code.
    pub(crate) exit_code: u8,
    /// Last lines of the log.
    pub(crate) log: Vec<String>,
}

/// Which times a `slow` fault acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Slowed {
    /// Steps, prefill and admission.
    #[default]
    All,
    /// Decode steps.
    Step,
    /// Prefill and admission.
    FirstToken,
}

/// Which requests a fault befalls; all that are given must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Pick {
    /// These requests, counted from 1 since the start.
    pub(crate) nth: Vec<u64>,
    /// Each so many-th request.
    pub(crate) every: Option<u64>,
    /// This share of requests, drawn by the seed.
    pub(crate) share: Option<f64>,
    /// Only requests that ask for at least so many tokens: waves and canaries ask for one.
    pub(crate) min_output: u64,
}

impl Pick {
    fn hits(&self, seed: u64, fault: usize, request: &Asked) -> bool {
        let drawn =
            || (mix(mix(seed, fault as u64), request.ordinal) >> 11) as f64 / (1u64 << 53) as f64;
        request.output >= self.min_output
            && (self.nth.is_empty() || self.nth.contains(&request.ordinal))
            && self.every.is_none_or(|every| request.ordinal.is_multiple_of(every))
            && self.share.is_none_or(|share| drawn() < share)
    }
}

/// What a pick looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The request's number since the start, from 1.
    pub(crate) ordinal: u64,
    /// Tokens that it asks for.
    pub(crate) output: u64,
}

/// What befalls one request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Fate {
    /// It gets no answer at all.
    pub(crate) refused: bool,
    /// It gets this status and message.
    pub(crate) status: Option<(u16, String)>,
    /// It pauses after so many tokens; for ever without a length.
    pub(crate) stall: Option<(u64, Option<Duration>)>,
    /// It ends after so many tokens; with a message inside the stream, or cut.
    pub(crate) broken: Option<(u64, Option<String>)>,
}

/// What befalls a request: the first fault of each kind that picks it.
pub(crate) fn fate(faults: &[Fault], seed: u64, request: &Asked) -> Fate {
    let mut fate = Fate::default();
    for (index, fault) in faults.iter().enumerate() {
        let picked = |pick: &Pick| pick.hits(seed, index, request);
        match fault {
            Fault::Refuse { pick } if picked(pick) => fate.refused = true,
            Fault::Status { pick, status, message } if picked(pick) && fate.status.is_none() => {
                fate.status = Some((*status, message.clone()));
            }
            Fault::Stall { pick, at_token, pause } if picked(pick) && fate.stall.is_none() => {
                fate.stall = Some((*at_token, *pause));
            }
            Fault::StreamError { pick, at_token, message }
                if picked(pick) && fate.broken.is_none() =>
            {
                fate.broken = Some((*at_token, Some(message.clone())));
            }
            Fault::Truncate { pick, at_token } if picked(pick) && fate.broken.is_none() => {
                fate.broken = Some((*at_token, None));
            }
            Fault::Refuse { .. }
            | Fault::Status { .. }
            | Fault::Stall { .. }
            | Fault::StreamError { .. }
            | Fault::Truncate { .. }
            | Fault::Crash { .. }
            | Fault::DieWhileLoading(_)
            | Fault::Hang { .. }
            | Fault::Mute { .. }
            | Fault::Sick { .. }
            | Fault::Slow { .. }
            | Fault::Leak { .. } => {}
        }
    }
    fate
}

/// Whether paths like this one are counted, since a fault may leave them without an answer.
pub(crate) fn may_be_mute(faults: &[Fault], asked: &str) -> bool {
    faults.iter().any(|fault| matches!(fault, Fault::Mute { path, .. } if is_path(path, asked)))
}

fn is_path(path: &Option<String>, asked: &str) -> bool {
    path.as_ref().is_none_or(|path| path == asked)
}

/// Whether a request, counted from 1 on paths that may be mute and so long after the start, is never
/// answered.
pub(crate) fn is_mute(
    faults: &[Fault],
    seed: u64,
    asked: &str,
    ordinal: u64,
    elapsed: Duration,
) -> bool {
    let request = Asked { ordinal, output: u64::MAX };
    faults.iter().enumerate().any(|(index, fault)| {
        matches!(fault, Fault::Mute { path, after, pick }
            if is_path(path, asked) && elapsed >= *after && pick.hits(seed, index, &request))
    })
}

/// Factor on a step (or else on a first token) of so many streams at a mean context.
pub(crate) fn slowness(faults: &[Fault], step: bool, context: f64, batch: usize) -> f64 {
    let mut factor = 1.0;
    for fault in faults {
        if let Fault::Slow { by, what, context: only_context, batch: only_batch } = fault {
            let acts = match what {
                Slowed::All => true,
                Slowed::Step => step,
                Slowed::FirstToken => !step,
            };
            // A prompt may miss its nominal length by a token or by the 2 % that shortening allows.
            let near = only_context.is_none_or(|only| (context / only as f64 - 1.0).abs() <= 0.02);
            if acts && near && only_batch.is_none_or(|only| only == batch as u64) {
                factor *= 1.0 + by;
            }
        }
    }
    factor
}

impl Fault {
    /// The end while loading, if this is one.
    pub(crate) fn while_loading(&self) -> Option<&Death> {
        if let Fault::DieWhileLoading(death) = self { Some(death) } else { None }
    }

    /// The message of an engine that is sick once it has generated so many tokens, if this is one.
    pub(crate) fn sick(&self, generated: u64) -> Option<&str> {
        if let Fault::Sick { at_token, message } = self {
            (generated >= *at_token).then_some(message)
        } else {
            None
        }
    }

    /// The end of a crash, if this is one.
    pub(crate) fn crash(&self) -> Option<&Death> {
        if let Fault::Crash { death, .. } = self { Some(death) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ordinal: u64) -> Asked {
        Asked { ordinal, output: 100 }
    }

    #[test]
    fn a_share_is_drawn_by_the_seed() {
        let faults = [Fault::Refuse { pick: Pick { share: Some(0.15), ..Pick::default() } }];
        let hit = |seed| {
            (1..=10_000).filter(|n| fate(&faults, seed, &asked(*n)).refused).collect::<Vec<_>>()
        };
        assert_eq!(hit(1), hit(1));
        assert_ne!(hit(1), hit(2));
        assert!((hit(1).len() as f64 / 1500.0 - 1.0).abs() < 0.1, "{} of 10 000", hit(1).len());
    }

    #[test]
    fn every_condition_of_a_pick_must_hold() {
        let pick = Pick { every: Some(3), min_output: 50, ..Pick::default() };
        let faults = [Fault::Status { pick, status: 429, message: "slow down".into() }];
        let status = |ordinal, output| {
            fate(&faults, 0, &Asked { ordinal, output }).status.map(|(status, _)| status)
        };
        assert_eq!(status(3, 100), Some(429));
        assert_eq!(status(4, 100), None);
        assert_eq!(status(3, 1), None);
    }

    #[test]
    fn a_path_may_fall_mute_and_so_may_all() {
        let mute = |path: Option<&str>| {
            let after = Duration::from_secs(1);
            [Fault::Mute { path: path.map(str::to_owned), after, pick: Pick::default() }]
        };
        let (before, later) = (Duration::from_millis(999), Duration::from_secs(1));
        assert!(is_mute(&mute(Some("/metrics")), 7, "/metrics", 1, later));
        assert!(!is_mute(&mute(Some("/metrics")), 7, "/metrics", 1, before));
        assert!(!is_mute(&mute(Some("/metrics")), 7, "/tokenize", 1, later));
        assert!(is_mute(&mute(None), 7, "/tokenize", 1, later));
    }

    #[test]
    fn slowness_can_be_held_to_one_cell() {
        let slow = |by, context, batch| Fault::Slow { by, what: Slowed::Step, context, batch };
        let faults = [slow(0.05, Some(8192), Some(16)), slow(0.1, None, None)];
        assert!((slowness(&faults, true, 8192.0, 16) - 1.155).abs() < 1e-12);
        assert!((slowness(&faults, true, 16384.0, 16) - 1.1).abs() < 1e-12);
        assert_eq!(slowness(&faults, false, 8192.0, 16), 1.0);
    }
}
