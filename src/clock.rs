//! Time as the run sees it: real, or virtual for the simulated engine.
//!
//! A [`Clock`] counts from its origin in nanoseconds. It stands on tokio's clock, so that in a
//! runtime with paused time a whole matrix runs as fast as the machine can. It decides nothing:
//! due times and windows are computed from [`Stamp`]s by those who hold one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Nanoseconds since the origin of the run's clock.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Time from `earlier` to `self`; zero where `earlier` is later.
    pub fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds from `earlier` to `self`, negative where `earlier` is later.
    pub fn seconds_since(self, earlier: Stamp) -> f64 {
        (self.0 as f64 - earlier.0 as f64) / 1e9
    }
}

impl std::ops::Add<Duration> for Stamp {
    type Output = Stamp;

    fn add(self, rhs: Duration) -> Stamp {
        Stamp(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The run's clock. Copies share one origin.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now. Call it inside the runtime whose time it shall follow.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The present.
    pub fn now(&self) -> Stamp {
        self.stamp(Instant::now())
    }

    /// The stamp of a tokio instant; zero for instants before the origin.
    pub fn stamp(&self, at: Instant) -> Stamp {
        Stamp(
            u64::try_from(at.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX),
        )
    }

    /// The tokio instant of a stamp.
    pub fn instant(&self, at: Stamp) -> Instant {
        self.origin + Duration::from_nanos(at.0)
    }

    /// Sleeps until `at` has come.
    pub async fn sleep_until(&self, at: Stamp) {
        tokio::time::sleep_until(self.instant(at)).await;
    }
}
