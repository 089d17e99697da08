//! The engine's own gauges over a decode cell: whether all streams run, what queued, what was
//! preempted, whether it is idle again.
//!
//! What a queue or a preemption means is decided in `measure::validity`.

use std::time::Duration;

use crate::engine::metrics::Gauges;
use crate::engine::readings::{EngineFigures, Readings};
use crate::measure::Check;
use crate::measure::validity::{self, Lookups, Queue};

use super::cell::Bench;

/// How long an engine may take to fall idle after a cell.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the engine says that nothing runs; true where it can't be asked.
pub(super) async fn drained(bench: &Bench<'_>) -> bool {
    busy(bench).await.is_none()
}

/// Waits until the engine says that nothing runs; else what still ran and waited when patience had
/// ended. `None` where it can't be asked, too.
pub(super) async fn busy(bench: &Bench<'_>) -> Option<(f64, f64)> {
    let begun = bench.clock.now();
    loop {
        let (running, waiting) = match bench.remote.gauges().await {
            Ok(Some(Gauges { running: Some(running), waiting, .. })) => {
                (running, waiting.unwrap_or(0.0))
            }
            Ok(Some(_) | None) | Err(_) => return None,
        };
        if running == 0.0 && waiting == 0.0 {
            return None;
        }
        if bench.clock.now().since(begun) > IDLE_PATIENCE {
            return Some((running, waiting));
        }
        bench.clock.sleep_until(bench.clock.now() + Duration::from_millis(50)).await;
    }
}

/// How the engine's counters of its prefix cache have grown; `None` where it has none, or has begun
/// anew.
pub(super) fn lookups(before: Option<&Gauges>, now: Option<&Gauges>) -> Option<Lookups> {
    let (before, now) = before.zip(now)?;
    let queries = now.prefix_queries? - before.prefix_queries?;
    let hits = now.prefix_hits? - before.prefix_hits?;
    (queries >= 0.0 && hits >= 0.0).then_some(Lookups { queries, hits })
}

/// What the engine's gauges showed over the cell.
pub(super) struct Watch {
    /// Whether there are metrics at all.
    askable: bool,
    readings: Readings,
    before: Option<Gauges>,
    last: Option<Gauges>,
    queue: Queue,
    streams: u32,
    /// Tokens after which a stream's request makes way for its next one; `None` where each waits
    /// for a prefill of its own, so that a queue is the load and no fault.
    output: Option<u64>,
}

impl Watch {
    /// `output`: tokens after which a stream's request makes way for its next one; `None` where a
    /// queue is the load and no fault.
    pub(super) fn new(before: Option<&Gauges>, streams: u32, output: Option<u64>) -> Watch {
        Watch {
            askable: before.is_some(),
            readings: Readings::begin(before),
            before: before.copied(),
            last: None,
            queue: Queue::default(),
            streams,
            output,
        }
    }

    /// Reads the gauges, where they can be read; true where all streams run and none waits. A queue
    /// counts against the engine once the window is open.
    pub(super) async fn read(&mut self, bench: &Bench<'_>, open: bool) -> bool {
        if !self.askable {
            return false;
        }
        match bench.remote.gauges().await {
            Ok(Some(gauges)) => self.see(&gauges, open),
            Ok(None) | Err(_) => false,
        }
    }

    fn see(&mut self, gauges: &Gauges, open: bool) -> bool {
        let waiting = gauges.waiting.unwrap_or(0.0);
        if open {
            if gauges.waiting.is_some() {
                self.queue.see(waiting as u64);
            }
            self.readings.see(gauges);
        } else {
            self.readings.count(gauges);
        }
        self.last = Some(*gauges);
        gauges.running.is_none_or(|running| running >= f64::from(self.streams)) && waiting == 0.0
    }

    /// How the counters of the prefix cache have grown since the streams began.
    pub(super) fn lookups(&self) -> Option<Lookups> {
        lookups(self.before.as_ref(), self.last.as_ref())
    }

    pub(super) fn checks(&self) -> [Check; 2] {
        let queue = self.before.and_then(|gauges| gauges.waiting).map(|_| self.queue);
        let preempted = self.readings.preemptions();
        [validity::queued(queue, self.streams, self.output), validity::preemption(preempted)]
    }

    /// What the engine's metrics came to: counters from before the streams' first request to the end
    /// of the window, gauges at readings inside it.
    pub(super) fn engine(&self) -> Option<EngineFigures> {
        self.readings.figures()
    }
}
