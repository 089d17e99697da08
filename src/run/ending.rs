//! The end of a launch: its engine ended as soon as is asked, its GPUs' memory back before the next one.
//!
//! How a tree of processes is ended is decided in `engine::supervise`, how soon a run is to end in
//! `halt`, what memory counts as back in `vacate`.

use std::time::Duration;

use crate::engine::launch::{Running, StopReport};
use crate::engine::supervise as process;
use crate::record::Event;
use crate::suite::model::EngineSource;

use super::conductor::State;
use super::halt::Haste;
use super::start::in_virtual_time;

/// Engine and supervisor have this long to end once the run is being halted.
const HALT_GRACE: Duration = Duration::from_secs(3);
/// The end of what was started is waited for so long in all once the run is being halted; supervisors
/// go on without us. It is more than a stop command gets, and leaves time to say what came of the run.
const HALT_LIMIT: Duration = Duration::from_millis(5500);

impl State<'_> {
    /// Ends the engine, in the time that its suite gives it or, once the run is being halted, as soon as
    /// is asked.
    pub(super) async fn stop(&mut self, launch: usize, mut running: Running) {
        let setting = self.conduct.plan.launches[launch].setting as usize;
        let declared = self.conduct.plan.suite.settings[setting].engine.stop_grace;
        self.vacancy.count(&running.processes());
        let mut halt = self.halt.clone();
        loop {
            let haste = halt.haste();
            let (grace, limit) = match haste {
                Haste::Orderly => (declared, Duration::MAX),
                Haste::Soon => (declared.min(HALT_GRACE), self.left()),
                Haste::Now => (Duration::ZERO, self.left()),
                Haste::Leave => (Duration::ZERO, Duration::ZERO),
            };
            let report = tokio::select! {
                biased;
                report = tokio::time::timeout(limit, running.stop(grace)) => report,
                () = halt.sooner(haste) => {
                    if let Some(cause) = halt.cause() {
                        self.end_unless_ended(cause);
                    }
                    continue;
                }
            };
            match report {
                Ok(report) => self.stopped(launch, report),
                Err(_) => {
                    let name = &self.conduct.plan.launches[launch].name;
                    let message = format!("launch {name} is still being ended by its supervisor");
                    self.events.send(Event::Warning { message });
                }
            }
            break;
        }
        // A run that ends starts nothing that would need the memory.
        if !self.ended {
            self.vacated(launch).await;
        }
    }

    /// Waits for the supervisors of what was given up: a launch, a tool, a setup command. They are ending
    /// it by themselves.
    pub(super) async fn leave(&mut self) {
        if in_virtual_time(self.conduct.plan) {
            // They live in real time.
            tokio::time::resume();
        }
        let mut halt = self.halt.clone();
        loop {
            let haste = halt.haste();
            match haste {
                Haste::Orderly | Haste::Soon => {}
                Haste::Now => process::hurry_all(),
                Haste::Leave => return,
            }
            let limit = self.left();
            tokio::select! {
                biased;
                () = process::all_gone(limit) => return,
                () = halt.sooner(haste) => {}
            }
        }
    }

    /// Whether a launch may take memory of GPUs that are seen from here.
    pub(super) fn takes_memory(&self, launch: usize) -> bool {
        let plan = self.conduct.plan;
        match plan.suite.settings[plan.launches[launch].setting as usize].engine.source {
            EngineSource::Command(_) => !in_virtual_time(plan),
            EngineSource::Url(_) | EngineSource::Sim { .. } => false,
        }
    }

    /// Waits until the GPUs have the memory back that an ended engine took, as long as its stop may
    /// take; warns of what they have not.
    pub(super) async fn vacated(&mut self, launch: usize) {
        if !self.takes_memory(launch) {
            return;
        }
        let planned = &self.conduct.plan.launches[launch];
        let limit = self.conduct.plan.suite.settings[planned.setting as usize].engine.stop_grace;
        let mut vacancy = std::mem::take(&mut self.vacancy);
        let held = tokio::select! {
            biased;
            cause = self.halted() => return self.end_unless_ended(cause),
            held = vacancy.wait(limit) => held,
        };
        self.vacancy = vacancy;
        for held in held {
            let waited = crate::quantity::print_duration(limit);
            let message = format!("launch {}: {held}, {waited} after its end", planned.name);
            self.events.send(Event::Warning { message });
        }
    }

    /// What is left of the time in which a halted run ends.
    fn left(&mut self) -> Duration {
        let since = *self.hurried.get_or_insert_with(std::time::Instant::now);
        HALT_LIMIT.saturating_sub(since.elapsed())
    }

    fn stopped(&self, launch: usize, report: StopReport) {
        for message in report.notes {
            self.events.send(Event::Warning { message });
        }
        for survivor in report.survivors {
            let message = format!("still there after the launch was ended: {survivor}");
            self.events.send(Event::Warning { message });
        }
        self.events.send(Event::LaunchStopped { launch, at: self.seconds() });
    }
}
