//! The way of events to those who look on.
//!
//! What others say (a server's refusal, a line of a log) may repeat a secret that it was sent, so every
//! word of theirs is redacted here, whoever sends it on.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use crate::engine::redact::Redactor;
use crate::record::Event;
use crate::record::run_record::CellState;

/// Sends events. A lost onlooker loses no run.
pub(super) struct Events<'a> {
    pub(super) to: Sender<Event>,
    pub(super) redactor: &'a Redactor,
    /// Where failures are counted: says that what may be one has been.
    pub(super) counted: Option<&'a Mutex<Receiver<()>>>,
}

impl Events<'_> {
    pub(super) fn send(&self, mut event: Event) {
        redact(self.redactor, &mut event);
        let may_fail = matches!(event, Event::CellFinished { .. } | Event::LaunchFailed { .. });
        let sent = self.to.send(event).is_ok();
        if let (true, true, Some(counted)) = (may_fail, sent, self.counted) {
            // No stream is measured now, and virtual time must not go on meanwhile.
            let _ = counted.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

fn redact(redactor: &Redactor, event: &mut Event) {
    let hide = |text: &mut String| *text = redactor.said(text);
    match event {
        Event::RunStarted(_)
        | Event::RunResumed { .. }
        | Event::LaunchStep { .. }
        | Event::LaunchStopped { .. }
        | Event::CellStarted { .. }
        | Event::RunFinished { .. } => {}
        Event::LaunchStarted { command, .. } => command.iter_mut().for_each(hide),
        Event::LaunchReady { facts, warnings, .. } => {
            facts.version.iter_mut().for_each(hide);
            hide(&mut facts.model);
            warnings.iter_mut().for_each(hide);
        }
        Event::LaunchFailed { failure, .. } => {
            hide(&mut failure.message);
            failure.exit.iter_mut().for_each(hide);
            failure.log_tail.iter_mut().for_each(hide);
        }
        Event::CellPhase { note: text, .. } | Event::Warning { message: text } => hide(text),
        Event::CellFinished { state, .. } => match state {
            CellState::NotRun { reason: text }
            | CellState::Unfit { message: text, .. }
            | CellState::Broken { message: text, .. } => hide(text),
            CellState::Measured(measurement) => {
                measurement.failures.values_mut().for_each(|(_, words)| hide(words));
                measurement.checks.iter_mut().for_each(|check| hide(&mut check.message));
                measurement.warnings.iter_mut().for_each(hide);
            }
        },
    }
}
