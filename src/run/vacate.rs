//! GPU memory between launches: what there was before one, and waiting until an ended engine has
//! given it back.
//!
//! What counts as given back is decided in `hardware::occupancy`; that a launch has ended, in
//! `conductor`. Without a driver there is nothing to wait for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::hardware::nvml::Library;
use crate::hardware::occupancy::{Held, Occupancy, held};

/// How often GPUs are looked at while they are waited for.
const PACE: Duration = Duration::from_millis(200);
/// How long the driver may take for an answer; the first wakes GPUs that sleep.
const PATIENCE: Duration = Duration::from_secs(20);

/// GPU memory around one launch.
#[derive(Default)]
pub(super) struct Vacancy {
    /// Whether the library was looked for.
    asked: bool,
    /// The driver's library; none where there is no driver, or it did not answer.
    library: Option<Arc<Library>>,
    /// What the GPUs held before the launch.
    before: Vec<Occupancy>,
    /// Processes of the engine, as often as they were counted.
    tree: BTreeSet<u32>,
}

impl Vacancy {
    /// Looks at the GPUs before a launch.
    pub(super) async fn before(&mut self) {
        self.tree.clear();
        if !std::mem::replace(&mut self.asked, true) {
            self.library = answered(|| Library::load().ok().map(Arc::new)).await.flatten();
        }
        self.before = self.look().await;
    }

    /// Remembers processes of the engine: one that is gone may still be named by the driver.
    pub(super) fn count(&mut self, processes: &[i32]) {
        self.tree.extend(processes.iter().filter_map(|pid| u32::try_from(*pid).ok()));
    }

    /// Waits until the ended engine has given its memory back, at most `limit`; what it still holds
    /// then. Cancel-safe.
    pub(super) async fn wait(&mut self, limit: Duration) -> Vec<Held> {
        let waiting = async {
            while !self.held().await.is_empty() {
                tokio::time::sleep(PACE).await;
            }
        };
        match tokio::time::timeout(limit, waiting).await {
            Ok(()) => Vec::new(),
            Err(_) => self.held().await,
        }
    }

    async fn held(&mut self) -> Vec<Held> {
        let now = self.look().await;
        held(&self.before, &now, &self.tree)
    }

    async fn look(&mut self) -> Vec<Occupancy> {
        let Some(library) = self.library.clone() else { return Vec::new() };
        let seen = answered(move || library.occupancy()).await;
        if seen.is_none() {
            self.library = None;
        }
        seen.unwrap_or_default()
    }
}

/// What a question to the driver comes to; `None` where it takes too long: a GPU that has fallen off the
/// bus can hold the asker for ever, and neither the run nor its end may wait for that.
async fn answered<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (told, answer) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("driver".to_owned());
    // Nobody waits for this thread, unlike for one of the runtime's.
    thread.spawn(move || told.send(ask())).ok()?;
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}
