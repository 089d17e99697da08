//! The demise of engines: whether one that failed still serves, where a launch lost them, how often, and
//! in which words that is told.
//!
//! Whether an engine is lost and started again is decided in `conductor`.

use crate::engine::ready::{self, Sign};
use crate::engine::remote::LIMIT;
use crate::engine::supervise::ExitInfo;
use crate::hardware::oom::Kills;
use crate::load::{Cancel, Client, FailureClass, Outcome, Prompt};
use crate::record::run_record::{CellState, PlannedCellRecord};

use super::cell::{Bench, broken_words};
use super::command;

/// Places that a message names.
const NAMED: usize = 4;

/// How an engine was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its process ended: how.
    Died(String),
    /// Nobody answers any more: why.
    Mute(String),
    /// It answers that it is broken: what it says.
    Sick(String),
}

impl Loss {
    /// What the engine did.
    fn verb(&self) -> &'static str {
        match self {
            Loss::Died(_) => "the engine died",
            Loss::Mute(_) => "the engine does not answer any more",
            Loss::Sick(_) => "the engine says that it is broken",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Loss::Died(how) | Loss::Mute(how) | Loss::Sick(how) => how,
        }
    }
}

/// `the engine died: exit code 1`.
impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.verb(), self.detail())
    }
}

/// Whether a cell went so that the engine may be gone, dead or mute: a request found no connection, was
/// not answered, or failed as those of an engine do that is being ended or whose worker has died.
pub(super) fn is_doubtful(state: &CellState) -> bool {
    match state {
        CellState::Broken { class, .. } => {
            class == "connection" || class == "no-window" || command::is_tools_fault(class)
        }
        CellState::Measured(measurement) => !measurement.failures.is_empty(),
        CellState::NotRun { .. } | CellState::Unfit { .. } => false,
    }
}

/// An engine that serves no more.
pub(super) enum Silence {
    /// Nothing listens, or it says itself that it is broken.
    Gone(Loss),
    /// It does not answer.
    Mute(Loss),
}

impl Bench<'_> {
    /// Asks for one token, over a connection of its own.
    ///
    /// # Errors
    /// No connection, no answer, or an error from an engine whose health says that it is broken; any
    /// other answer shows that something serves.
    pub(super) async fn still_serves(&self) -> Result<(), Silence> {
        let prompt = Prompt::Text("Hello".into());
        let Ok(request) = self.form().prepared(&prompt, 1) else { return Ok(()) };
        let Ok(mut client) = Client::new(&self.endpoint, self.clock) else { return Ok(()) };
        let trace = client.stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await;
        let failure = match trace.outcome {
            Outcome::Failed(failure) => failure,
            Outcome::Complete | Outcome::Cancelled => return Ok(()),
        };
        match failure.class {
            FailureClass::Connection => Err(Silence::Gone(Loss::Mute(failure.message))),
            FailureClass::Truncated | FailureClass::Stalled => {
                Err(Silence::Mute(Loss::Mute(failure.message)))
            }
            FailureClass::RateLimited
            | FailureClass::Status
            | FailureClass::ServerError
            | FailureClass::Aborted
            | FailureClass::Malformed
            | FailureClass::NoOutput
            | FailureClass::NotAStream => {
                let answer = self.remote.get("/health", LIMIT).await;
                match answer.map(|answer| ready::health(self.remote.kind(), &answer)) {
                    Ok(Sign::NotYet(seen) | Sign::Never(seen)) => {
                        Err(Silence::Gone(Loss::Sick(format!("{seen}; {}", failure.message))))
                    }
                    Ok(Sign::Ready(())) | Err(_) => Ok(()),
                }
            }
        }
    }
}

/// An exit in words, with what the kernel's counters say of a SIGKILL that nobody owns up to.
/// `before`: those counters when the engine was well.
pub(super) fn exit_words(exit: &ExitInfo, before: &Kills) -> String {
    let by_kill = match exit {
        // A shell in front of the engine says it as a code.
        ExitInfo::Signal(9) | ExitInfo::Code(137) => true,
        ExitInfo::Signal(_)
        | ExitInfo::Code(_)
        | ExitInfo::NotStarted(_)
        | ExitInfo::Unsupervised => false,
    };
    match Kills::now().since(before, by_kill) {
        Some(words) => format!("{exit} ({words})"),
        None => exit.to_string(),
    }
}

/// A cell as people select it: `decode context=8K concurrency=1`.
pub(super) fn cell_name(planned: &PlannedCellRecord) -> String {
    // A cell without axes has the name of its test.
    if planned.id == planned.test {
        return planned.test.clone();
    }
    format!("{} {}", planned.test, planned.id.replace(',', " "))
}

/// The losses of one launch.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Where, and how, in order.
    told: Vec<(String, Option<Loss>)>,
}

impl Losses {
    /// A launch whose engine died in these cells in earlier sessions.
    pub(super) fn before(cells: impl Iterator<Item = String>) -> Losses {
        Losses { told: cells.map(|cell| (format!("in {cell}"), None)).collect() }
    }

    /// One more; `place` as `in decode concurrency=1`.
    pub(super) fn add(&mut self, place: String, loss: Loss) {
        self.told.push((place, Some(loss)));
    }

    /// The last one, in words.
    pub(super) fn last(&self) -> String {
        match self.told.last() {
            Some((place, Some(loss))) => format!("{} {place}: {}", loss.verb(), loss.detail()),
            Some((place, None)) => format!("the engine died {place}"),
            None => "the engine was lost".to_owned(),
        }
    }

    /// All of them, in words.
    pub(super) fn all(&self) -> String {
        if self.told.len() < 2 {
            return self.last();
        }
        let skipped = self.told.len().saturating_sub(NAMED);
        let mut places: Vec<String> = Vec::new();
        if skipped > 0 {
            places.push("…".to_owned());
        }
        places.extend(self.told[skipped..].iter().map(|(place, loss)| match loss {
            Some(Loss::Died(how)) => format!("{place} ({how})"),
            Some(loss @ (Loss::Mute(_) | Loss::Sick(_))) => format!("{place} ({loss})"),
            None => place.clone(),
        }));
        format!("the engine was lost {} times: {}", self.told.len(), places.join(", "))
    }
}

/// A cell whose engine serves no more.
pub(super) fn engine_lost(loss: &Loss) -> CellState {
    let class = match loss {
        Loss::Died(_) | Loss::Mute(_) => "engine-died",
        Loss::Sick(_) => "engine-broken",
    };
    broken_words(class, &loss.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_tells_where_it_lost_its_engines_and_how_often() {
        let mut losses = Losses::before(["decode concurrency=1".to_owned()].into_iter());
        assert_eq!(losses.all(), "the engine died in decode concurrency=1");
        losses.add("in decode concurrency=2".into(), Loss::Died("exit code 1".into()));
        assert_eq!(losses.last(), "the engine died in decode concurrency=2: exit code 1");
        losses.add("before serve".into(), Loss::Mute("no connection".into()));
        assert_eq!(
            losses.all(),
            "the engine was lost 3 times: in decode concurrency=1, in decode concurrency=2 (exit code 1), \
             before serve (the engine does not answer any more: no connection)"
        );
        for _ in 0..5 {
            losses.add("in prefill".into(), Loss::Died("SIGSEGV".into()));
        }
        assert!(losses.all().starts_with("the engine was lost 8 times: …, in prefill (SIGSEGV), "));
    }
}
