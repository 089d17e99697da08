//! The heartbeat: a task that is to wake at a steady pace, whose lateness tells how late our own
//! machine may have read what it stamped, and when it was away; and how busy the thread was meanwhile.
//!
//! Time in which nobody could wake is counted beat by beat, however few times the task then woke:
//! a thread that was away for a second missed two hundred beats, not one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use crate::clock::{Clock, Stamp};
use crate::measure::absence::Absences;
use crate::measure::validity::Thread;

const PACE: Duration = Duration::from_millis(5);

/// tokio's timers round up to the next millisecond.
const ROUNDING: Duration = Duration::from_millis(1);

/// A beat that is later than this was missed because nobody was there.
const AWAY: Duration = Duration::from_millis(5);

/// The lags of a stretch of measuring, and what the thread did in it.
#[derive(Default)]
pub(super) struct Lags(Rc<RefCell<Late>>, Rc<Cell<Thread>>);

/// How late each beat was, and when the thread was away.
#[derive(Default)]
struct Late {
    beats: Vec<Duration>,
    away: Absences,
}

/// A heart that beats until it is dropped.
pub(super) struct Heartbeat {
    clock: Clock,
    beats: Rc<RefCell<Beats>>,
    task: JoinHandle<()>,
    /// What the thread had done when it began, and where what it does is added.
    thread: Option<Thread>,
    threads: Rc<Cell<Thread>>,
}

struct Beats {
    due: Stamp,
    lags: Rc<RefCell<Late>>,
}

impl Beats {
    /// Every beat that was due by `now`, each as late as it is.
    fn catch_up(&mut self, now: Stamp) {
        let mut lags = self.lags.borrow_mut();
        if now.since(self.due).saturating_sub(ROUNDING) > AWAY {
            lags.away.add(self.due, now);
        }
        while self.due <= now {
            lags.beats.push(now.since(self.due).saturating_sub(ROUNDING));
            self.due = self.due + PACE;
        }
    }
}

impl Lags {
    /// Beats while what it is for goes on. Call it inside a `LocalSet`.
    pub(super) fn beat(&self, clock: Clock) -> Heartbeat {
        let due = clock.now() + PACE;
        let beats = Rc::new(RefCell::new(Beats { due, lags: Rc::clone(&self.0) }));
        let own = Rc::clone(&beats);
        let task = tokio::task::spawn_local(async move {
            loop {
                let due = own.borrow().due;
                clock.sleep_until(due).await;
                own.borrow_mut().catch_up(clock.now());
            }
        });
        let threads = Rc::clone(&self.1);
        Heartbeat { clock, beats, task, thread: so_far(), threads }
    }

    /// What the thread did; `None` where the system does not say.
    pub(super) fn thread(&self) -> Option<Thread> {
        Some(self.1.get()).filter(|thread| !thread.whole.is_zero())
    }

    /// The 99th percentile; zero where nothing beat.
    pub(super) fn p99(&self) -> Duration {
        let lags = &mut self.0.borrow_mut().beats;
        lags.sort_unstable();
        let rank = (lags.len() * 99).div_ceil(100).max(1) - 1;
        lags.get(rank).copied().unwrap_or_default()
    }

    /// When the thread was away.
    pub(super) fn away(&self) -> Absences {
        self.0.borrow().away.clone()
    }
}

impl Heartbeat {
    /// When the thread was away until now.
    pub(super) fn away(&self) -> Absences {
        let mut beats = self.beats.borrow_mut();
        beats.catch_up(self.clock.now());
        beats.lags.borrow().away.clone()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
        // A thread that was away until now has had no time for the task.
        self.beats.borrow_mut().catch_up(self.clock.now());
        if let (Some(before), Some(after)) = (self.thread, so_far()) {
            let Thread { running, waiting, whole } = self.threads.get();
            self.threads.set(Thread {
                running: running + after.running.saturating_sub(before.running),
                waiting: waiting + after.waiting.saturating_sub(before.waiting),
                whole: whole + after.whole.saturating_sub(before.whole),
            });
        }
    }
}

/// What this thread has done since the system started; Linux alone says it.
fn so_far() -> Option<Thread> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut times = stat.split_whitespace().map_while(|time| time.parse().ok());
    let now = clock_gettime(ClockId::Monotonic);
    Some(Thread {
        running: Duration::from_nanos(times.next()?),
        waiting: Duration::from_nanos(times.next()?),
        whole: Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lags(until: &[u64]) -> Vec<u64> {
        let lags = Lags::default();
        let mut beats = Beats { due: Stamp(0) + PACE, lags: Rc::clone(&lags.0) };
        until.iter().for_each(|ms| beats.catch_up(Stamp(ms * 1_000_000)));
        lags.0.borrow().beats.iter().map(|lag| lag.as_millis() as u64).collect()
    }

    #[test]
    fn a_beat_in_time_is_not_late() {
        assert_eq!(lags(&[4, 5, 10, 16]), [0, 0, 0]);
    }

    #[test]
    fn every_beat_that_was_missed_counts() {
        assert_eq!(lags(&[5, 31, 35]), [0, 20, 15, 10, 5, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_time_has_no_lag() {
        let work = async {
            let lags = Lags::default();
            let clock = Clock::start();
            let beat = lags.beat(clock);
            clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
            drop(beat);
            assert_eq!(lags.p99(), Duration::ZERO);
            assert_eq!(lags.0.borrow().beats.len(), 200);
            assert_eq!(lags.away(), Absences::default());
        };
        tokio::task::LocalSet::new().run_until(work).await;
    }

    #[tokio::test]
    async fn a_client_that_is_away_a_few_times_only_is_late_all_the_same() {
        let work = async {
            let lags = Lags::default();
            let clock = Clock::start();
            let beat = lags.beat(clock);
            for _ in 0..20 {
                clock.sleep_until(clock.now() + Duration::from_millis(20)).await;
            }
            std::thread::sleep(Duration::from_millis(100));
            drop(beat);
            assert!(lags.p99() > Duration::from_millis(80), "{:?}", lags.p99());
            assert!(lags.away().longest() > Duration::from_millis(90), "{:?}", lags.away());
            if let Some(thread) = lags.thread() {
                assert!(thread.whole >= Duration::from_millis(500), "{thread:?}");
                assert!(thread.running < thread.whole, "{thread:?}");
            }
        };
        tokio::task::LocalSet::new().run_until(work).await;
    }
}
