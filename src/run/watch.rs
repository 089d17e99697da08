//! The engine's own gauges over a decode cell: whether all streams run, what queued, what was
//! preempted, whether it is idle again.
//!
//! What a queue or a preemption means is decided in `measure::validity`.

use std::time::Duration;

use crate::engine::metrics::Gauges;
use crate::engine::readings::{EngineFigures, Readings};
use crate::measure::Check;
use crate::measure::validity::{self, Queue};
use crate::suite::model::{DecodeSetting, Prefix};

use super::cell::Bench;

/// How long an engine may take to fall idle after a cell.
const IDLE_PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the engine says that nothing runs; true where it can't be asked.
pub(super) async fn drained(bench: &Bench<'_>) -> bool {
    let begun = bench.clock.now();
    loop {
        match bench.remote.gauges().await {
            Ok(Some(Gauges { running: Some(running), waiting, .. })) => {
                if running == 0.0 && waiting.unwrap_or(0.0) == 0.0 {
                    return true;
                }
            }
            Ok(Some(_) | None) | Err(_) => return true,
        }
        if bench.clock.now().since(begun) > IDLE_PATIENCE {
            return false;
        }
        bench.clock.sleep_until(bench.clock.now() + Duration::from_millis(50)).await;
    }
}

/// What the engine's gauges showed over the cell.
pub(super) struct Watch {
    readable: bool,
    before: Option<Gauges>,
    readings: Readings,
    queue: Queue,
    streams: u32,
    /// Tokens after which a stream's request makes way for its next one; `None` where each waits
    /// for a prefill of its own, so that a queue is the load and no fault.
    output: Option<u64>,
}

impl Watch {
    pub(super) fn new(before: Option<&Gauges>, streams: u32, setting: &DecodeSetting) -> Watch {
        Watch {
            readable: before.is_some(),
            before: before.copied(),
            readings: Readings::begin(before),
            queue: Queue::default(),
            streams,
            output: match setting.prefix {
                Prefix::Cold => None,
                Prefix::Unique | Prefix::Shared | Prefix::Groups { .. } => Some(setting.max_output),
            },
        }
    }

    /// Reads the gauges, where they can be read; true where all streams run and none waits. A queue
    /// counts against the engine once the window is open.
    pub(super) async fn read(&mut self, bench: &Bench<'_>, open: bool) -> bool {
        if !self.readable {
            return false;
        }
        match bench.remote.gauges().await {
            Ok(Some(gauges)) => self.see(&gauges, open),
            Ok(None) | Err(_) => false,
        }
    }

    fn see(&mut self, gauges: &Gauges, open: bool) -> bool {
        let waiting = gauges.waiting.unwrap_or(0.0);
        if open && gauges.waiting.is_some() {
            self.queue.see(waiting as u64);
        }
        if open {
            self.readings.see(gauges);
        } else {
            self.readings.count(gauges);
        }
        gauges.running.is_none_or(|running| running >= f64::from(self.streams)) && waiting == 0.0
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
