//! A watch: a thread that looks at something at a steady pace, and whenever it is asked to.
//!
//! Whoever asks waits for a look, never for the thread: a look that hangs hangs nobody else. Its own share of a
//! core is bounded, so that where looks cost much there are fewer of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::clock::{Clock, Stamp};

/// Looks are no further apart than this on that account.
const RAREST: Duration = Duration::from_secs(5);

/// Looks at something until it is dropped.
pub(super) struct Watch<L> {
    log: Arc<Mutex<L>>,
    order: Arc<(Mutex<Order>, Condvar)>,
    /// When the last look began that has ended.
    looked: watch::Receiver<Stamp>,
    /// Whether the last look that somebody waited for did not end in time.
    stuck: Mutex<Option<Stamp>>,
}

#[derive(Default)]
struct Order {
    now: bool,
    stop: bool,
}

impl<L: Send + 'static> Watch<L> {
    /// Looks every `pace`, and less often where that would cost more than a `share` of a core. `look_with` runs on
    /// the thread, and calls its argument with what looks, unless there is nothing to look at. A look is told its
    /// time, and whether somebody waits for it.
    pub(super) fn start<F>(
        name: &str,
        (pace, share): (Duration, f64),
        clock: Clock,
        log: L,
        look_with: F,
    ) -> std::io::Result<Watch<L>>
    where
        F: FnOnce(&Mutex<L>, &mut dyn FnMut(&mut dyn FnMut(Stamp, bool))) + Send + 'static,
    {
        let log = Arc::new(Mutex::new(log));
        let order = Arc::new((Mutex::new(Order::default()), Condvar::new()));
        let (told, looked) = watch::channel(Stamp(0));
        let own = (Arc::clone(&log), Arc::clone(&order));
        let body = move || {
            let (log, order) = own;
            look_with(&log, &mut |look| again_and_again((pace, share), clock, &order, &told, look));
        };
        // Nobody waits for this thread: the driver may keep it.
        std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Watch { log, order, looked, stuck: Mutex::new(None) })
    }

    /// What is known.
    pub(super) fn log(&self) -> MutexGuard<'_, L> {
        lock(&self.log)
    }

    /// When the last look was.
    pub(super) fn looked(&self) -> Stamp {
        *self.looked.borrow()
    }

    /// Asks for a look, and waits until there has been one that began at `at` or later, at most `limit`; false
    /// where there was none. After one that hung nobody waits for the next.
    pub(super) async fn look(&self, at: Stamp, limit: Duration) -> bool {
        let mut looked = self.looked.clone();
        if *looked.borrow() >= at {
            return true;
        }
        if lock(&self.stuck).is_some_and(|before| before == *looked.borrow()) {
            return false;
        }
        self.tell(|order| order.now = true);
        let there = tokio::time::timeout(limit, looked.wait_for(|last| *last >= at)).await;
        match there {
            Ok(found) => found.is_ok(),
            Err(_) => {
                *lock(&self.stuck) = Some(self.looked());
                false
            }
        }
    }

    fn tell(&self, how: impl FnOnce(&mut Order)) {
        how(&mut lock(&self.order.0));
        self.order.1.notify_one();
    }
}

impl<L> Drop for Watch<L> {
    fn drop(&mut self) {
        lock(&self.order.0).stop = true;
        self.order.1.notify_one();
    }
}

/// Looks at once, then at the pace, until it is to stop.
fn again_and_again(
    (pace, share): (Duration, f64),
    clock: Clock,
    order: &(Mutex<Order>, Condvar),
    told: &watch::Sender<Stamp>,
    look: &mut dyn FnMut(Stamp, bool),
) {
    let mut asked = true;
    loop {
        let (begun, cost) = (Instant::now(), processor_time());
        let at = clock.now();
        look(at, asked);
        told.send_replace(at);
        let cost = processor_time().saturating_sub(cost).div_f64(share).min(RAREST);
        let rest = pace.max(cost).saturating_sub(begun.elapsed());
        let waiting = lock(&order.0);
        let (mut now, _) = order
            .1
            .wait_timeout_while(waiting, rest, |order| !order.now && !order.stop)
            .unwrap_or_else(PoisonError::into_inner);
        if now.stop {
            return;
        }
        asked = std::mem::take(&mut now.now);
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    type Again<'a> = dyn FnMut(&mut dyn FnMut(Stamp, bool)) + 'a;

    const LONG: Duration = Duration::from_secs(3600);

    fn counting(pace: Duration, clock: Clock) -> Watch<u32> {
        let looking = |log: &Mutex<u32>, again: &mut Again<'_>| {
            again(&mut |_, _| *lock(log) += 1);
        };
        Watch::start("counting", (pace, 1.0), clock, 0, looking).unwrap()
    }

    #[tokio::test]
    async fn a_look_that_is_asked_for_is_not_waited_for_until_its_turn() {
        let clock = Clock::start();
        let watch = counting(LONG, clock);
        for n in 1..4 {
            assert!(watch.look(clock.now(), LONG).await);
            assert!(*watch.log() >= n, "a new one each time");
        }
        let known = watch.looked();
        assert!(watch.look(known, Duration::ZERO).await, "there was one already");
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_waited_for_once() {
        let clock = Clock::start();
        let (let_go, hanging) = std::sync::mpsc::channel::<()>();
        let (hangs, hung) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (told, tells) = (Arc::clone(&hangs), Arc::clone(&hung));
        let looking = move |_: &Mutex<u32>, again: &mut Again<'_>| {
            again(&mut |_, _| {
                if told.swap(false, Ordering::SeqCst) {
                    tells.store(true, Ordering::SeqCst);
                    let _ = hanging.recv();
                }
            });
        };
        let watch = Watch::start("hanging", (LONG, 1.0), clock, 0, looking).unwrap();
        assert!(watch.look(clock.now(), LONG).await);
        hangs.store(true, Ordering::SeqCst);
        // One that was under way may still end.
        while !hung.load(Ordering::SeqCst) {
            watch.look(clock.now(), Duration::from_millis(5)).await;
        }
        assert!(!watch.look(clock.now(), Duration::from_millis(5)).await);
        let begun = Instant::now();
        assert!(!watch.look(clock.now(), LONG).await);
        assert!(begun.elapsed() < LONG);
        // It comes to itself again.
        let_go.send(()).unwrap();
        while !watch.look(clock.now(), Duration::from_secs(1)).await {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_has_nothing_to_look_at_is_not_waited_for() {
        let watch =
            Watch::start("nothing", (LONG, 1.0), Clock::start(), 0, |_: &Mutex<u32>, _: &mut _| {})
                .unwrap();
        assert!(!watch.look(Stamp(1), LONG).await);
    }
}
