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

/// GPU memory around one launch.
#[derive(Default)]
pub(super) struct Vacancy {
    /// The driver's library; loaded with the first launch.
    library: Option<Option<Arc<Library>>>,
    /// What the GPUs held before the launch.
    before: Vec<Occupancy>,
    /// Processes of the engine, as often as they were counted.
    tree: BTreeSet<u32>,
}

impl Vacancy {
    /// Looks at the GPUs before a launch.
    pub(super) async fn before(&mut self) {
        self.tree.clear();
        if self.library.is_none() {
            let loading = tokio::task::spawn_blocking(|| Library::load().ok().map(Arc::new));
            self.library = Some(loading.await.unwrap_or_default());
        }
        self.before = self.look().await;
    }

    /// Remembers processes of the engine: one that is gone may still be named by the driver.
    pub(super) fn count(&mut self, processes: &[i32]) {
        self.tree.extend(processes.iter().filter_map(|pid| u32::try_from(*pid).ok()));
    }

    /// Waits until the ended engine has given its memory back, at most `limit`; what it still holds
    /// then. Cancel-safe.
    pub(super) async fn wait(&self, limit: Duration) -> Vec<Held> {
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

    async fn held(&self) -> Vec<Held> {
        held(&self.before, &self.look().await, &self.tree)
    }

    async fn look(&self) -> Vec<Occupancy> {
        let Some(library) = self.library.clone().flatten() else { return Vec::new() };
        let looking = tokio::task::spawn_blocking(move || library.occupancy());
        looking.await.unwrap_or_default()
    }
}
