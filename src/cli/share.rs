//! What the suites of a command share: its limits, the signals that end it, and what engines leave behind.

use std::time::Duration;

use crate::engine::{stranded, supervise as process};
use crate::run::{Parent, Signals};

use super::directory;
use super::exit::Exit;
use super::limit::Limits;
use super::say;

/// How long a run that does not end in time tries to say so.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// What the suites of a command share.
pub(super) struct Shares {
    /// How long it may take, and how many cells may fail.
    pub(super) limits: Limits,
    /// What ends the run that goes on.
    pub(super) signals: Signals,
}

impl Shares {
    /// From now on signals are heard, and what engines leave behind falls to this process.
    pub(super) fn begin(limits: Limits, parent: Option<Parent>) -> Shares {
        crate::report::outlet::open();
        directory::survive_size_limits();
        process::become_subreaper();
        let stranded = stranded::end_stranded();
        if !stranded.is_empty() {
            say(&format!(
                "warning: ended what an earlier run left behind: {}",
                stranded.join(", ")
            ));
        }
        let signals = Signals::listen(parent, |signal| {
            say("warning: the run did not end in time, and is left as it stands");
            std::thread::sleep(LAST_WORDS);
            std::process::exit(Exit::Signal(signal).code().into());
        });
        let signals = signals.unwrap_or_else(|error| {
            say(&format!("warning: signals are not caught: {error}"));
            Signals::default()
        });
        Shares { limits, signals }
    }
}
