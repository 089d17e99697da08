//! GPUs between launches: what memory was in use before one, waiting until an ended engine has given it
//! back, and until they are cool enough.
//!
//! What counts as given back is decided in `hardware::occupancy`; that a launch has ended, in
//! `conductor`. Without a driver there is nothing to wait for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::hardware::nvml::{self, Library};
use crate::hardware::occupancy::{Held, Occupancy, Warmth, held};
use crate::hardware::visible::Visible;

/// How often GPUs are looked at while they are waited for.
const PACE: Duration = Duration::from_millis(200);
/// How often they are looked at while they cool down.
const COOLING_PACE: Duration = Duration::from_secs(1);
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

    /// Waits until every GPU that such an engine sees has at most `below` °C, no
    /// longer than `most`; those that are still warmer then. `told` gets those that are waited for. Cancel-safe.
    pub(super) async fn cool(
        &mut self,
        visible: Visible,
        below: f64,
        most: Duration,
        told: impl FnOnce(&[Warmth]),
    ) -> Vec<Warmth> {
        let Some(library) = self.library.clone() else { return Vec::new() };
        let places = answered(move || nvml::visible(&visible)).await.unwrap_or_default();
        let look = async || {
            let (library, places) = (Arc::clone(&library), places.clone());
            // A driver that does not answer can't be waited for.
            answered(move || library.warmth(&places)).await.unwrap_or_default()
        };
        cooled(below, most, look, told).await
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

/// Looks until nothing is warmer than `below`, no longer than `most`; what still is then.
async fn cooled(
    below: f64,
    most: Duration,
    mut look: impl AsyncFnMut() -> Vec<Warmth>,
    told: impl FnOnce(&[Warmth]),
) -> Vec<Warmth> {
    let end = tokio::time::Instant::now() + most;
    let mut told = Some(told);
    loop {
        let mut warm = look().await;
        warm.retain(|gpu| gpu.celsius > below);
        if warm.is_empty() || tokio::time::Instant::now() >= end {
            return warm;
        }
        if let Some(told) = told.take() {
            told(&warm);
        }
        tokio::time::sleep(COOLING_PACE).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn warmth(celsius: f64) -> Vec<Warmth> {
        vec![
            Warmth { index: 0, name: "H200".to_owned(), celsius: 40.0 },
            Warmth { index: 1, name: "H200".to_owned(), celsius },
        ]
    }

    /// What is waited for, what is still warm in the end, and seconds, of a GPU that cools by a degree a second.
    async fn cooling(from: f64, most: u64) -> (String, Vec<String>, u64) {
        let begun = tokio::time::Instant::now();
        let mut waited = String::new();
        let look = async || warmth(from - begun.elapsed().as_secs_f64());
        let told = |warm: &[Warmth]| waited = warm[0].to_string();
        let warm = cooled(60.0, Duration::from_secs(most), look, told).await;
        let warm = warm.iter().map(ToString::to_string).collect();
        (waited, warm, begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_warm_is_waited_for() {
        assert_eq!(cooling(60.0, 300).await, (String::new(), vec![], 0));
        assert_eq!(cooling(70.0, 300).await, ("GPU 1 (H200) has 70 °C".to_owned(), vec![], 10));
        let (waited, warm, seconds) = cooling(90.0, 20).await;
        assert_eq!((warm, seconds), (vec!["GPU 1 (H200) has 70 °C".to_owned()], 20));
        assert_eq!(waited, "GPU 1 (H200) has 90 °C");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_waited_for_where_no_gpu_tells() {
        let warm = cooled(60.0, Duration::from_secs(9), async || Vec::new(), |_| {}).await;
        assert!(warm.is_empty());
    }
}
