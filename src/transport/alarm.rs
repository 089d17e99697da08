//! An alarm: it wakes a connection when bytes are due.
//!
//! tokio's timers round up to the next millisecond, which is a good part of a short delay. Where real time
//! passes and the system is Linux, a timer of the kernel wakes to some microseconds.

use tokio::time::Instant;

/// Wakes one task at a time.
#[derive(Debug)]
pub(super) struct Alarm(Option<timer::Timer>);

impl Alarm {
    /// One that follows the runtime's time, paused or not, to a millisecond.
    pub(super) fn coarse() -> Alarm {
        Alarm(None)
    }

    /// One of real time, as exact as the system has it. Call it inside the runtime that it shall wake.
    pub(super) fn fine() -> Alarm {
        Alarm(timer::Timer::new())
    }

    /// Waits until `due` has come.
    pub(super) async fn at(&mut self, due: Instant) {
        if let Some(timer) = &self.0 {
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                if !timer.wait(left).await {
                    break;
                }
            }
        }
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::fs::Timespec;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timer of the kernel.
    #[derive(Debug)]
    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        /// `None` where the system has none to give.
        #[allow(unsafe_code)]
        pub(super) fn new() -> Option<Timer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
            // SAFETY: the descriptor is owned by what is registered, and nobody replaces or closes it
            // before both go.
            let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
            timer.ok().map(Timer)
        }

        /// Waits so long; false where it can't.
        pub(super) async fn wait(&self, left: Duration) -> bool {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let Ok(it_value) = Timespec::try_from(left) else { return false };
            let time = Itimerspec { it_interval: zero, it_value };
            if timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &time).is_err() {
                return false;
            }
            loop {
                let Ok(mut ready) = self.0.readable().await else { return false };
                let mut count = [0; 8];
                let read = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?));
                match read {
                    Ok(read) => return read.is_ok(),
                    // It has not come yet.
                    Err(_would_block) => {}
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::time::Duration;

    /// There is none.
    #[derive(Debug)]
    pub(super) enum Timer {}

    impl Timer {
        pub(super) fn new() -> Option<Timer> {
            None
        }

        pub(super) async fn wait(&self, _: Duration) -> bool {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_alarm_is_never_early_and_serves_again() {
        let mut alarm = Alarm::fine();
        assert_eq!(alarm.0.is_some(), cfg!(target_os = "linux"));
        for micros in [0, 1, 50, 300, 1500, 7000, 20] {
            let due = Instant::now() + Duration::from_micros(micros);
            alarm.at(due).await;
            assert!(Instant::now() >= due);
        }
    }

    #[tokio::test]
    async fn one_that_was_not_waited_for_does_not_ring_for_the_next() {
        let mut alarm = Alarm::fine();
        let soon = Instant::now() + Duration::from_millis(2);
        let cut = tokio::time::timeout(Duration::from_millis(1), alarm.at(soon)).await;
        // The timer may have run out meanwhile, and its end be unread.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let due = Instant::now() + Duration::from_millis(20);
        alarm.at(due).await;
        assert!(Instant::now() >= due, "{cut:?}");
    }
}
