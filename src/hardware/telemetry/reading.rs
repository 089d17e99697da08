//! Readings: what one look at a GPU or at the host told, with its stamp on the run's clock.

use std::collections::VecDeque;

use super::Throttle;
use crate::clock::Stamp;
use crate::hardware::occupancy::Tenant;

/// So many readings of one thing are kept at most.
pub const MOST_READINGS: usize = 9000;
/// So many processes of one GPU, and so many of its errors, are remembered at most.
const MOST_REMEMBERED: usize = 256;

/// One look at a GPU. What the driver does not tell, or was not asked this time, is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// When.
    pub at: Stamp,
    /// Power in W.
    pub power: Option<f64>,
    /// Joules since the driver was loaded.
    pub energy: Option<f64>,
    /// Share of the time in which a kernel ran, in %.
    pub utilisation: Option<u32>,
    /// Bytes in use by anybody.
    pub memory: Option<u64>,
    /// Clock of the multiprocessors in MHz.
    pub sm_clock: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock: Option<u32>,
    /// Temperature in °C.
    pub temperature: Option<u32>,
    /// Why clocks are held back.
    pub throttled: Option<Throttles>,
    /// Corrected memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors since then that could not be corrected.
    pub ecc_uncorrected: Option<u64>,
}

/// Some of the reasons for which clocks are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttles(u8);

impl Throttles {
    /// These and one more.
    #[must_use]
    pub fn and(self, reason: Throttle) -> Throttles {
        Throttles(self.0 | bit(reason))
    }

    /// Whether it is among them.
    pub fn has(self, reason: Throttle) -> bool {
        self.0 & bit(reason) != 0
    }
}

impl FromIterator<Throttle> for Throttles {
    fn from_iter<I: IntoIterator<Item = Throttle>>(reasons: I) -> Throttles {
        reasons.into_iter().fold(Throttles::default(), Throttles::and)
    }
}

fn bit(reason: Throttle) -> u8 {
    1 << Throttle::ALL.iter().position(|one| *one == reason).unwrap_or_default()
}

/// One look at the host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostReading {
    /// When.
    pub at: Stamp,
    /// What the cores that this process may use have done since the host was started.
    pub cores: Option<Ticks>,
    /// What the processes of its container have used since it was made, where they may not use as much as they
    /// like.
    pub container: Option<Usage>,
    /// Bytes in use.
    pub memory: Option<u64>,
}

/// Time of cores in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    /// In which they ran anything, or another guest of the machine did in their place.
    pub busy: u64,
    /// All of it.
    pub all: u64,
}

/// Processor time of a container that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Seconds of processor time.
    pub seconds: f64,
    /// So many cores it may use.
    pub cores: f64,
}

/// Things with a stamp.
pub trait Stamped {
    /// When it was taken.
    fn at(&self) -> Stamp;
}

impl Stamped for Reading {
    fn at(&self) -> Stamp {
        self.at
    }
}

impl Stamped for HostReading {
    fn at(&self) -> Stamp {
        self.at
    }
}

/// Readings in the order of their time, bounded: where there would be too many, each second one is given up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings<R>(VecDeque<R>);

impl<R: Stamped> Readings<R> {
    /// Adds one that is later than all others; an earlier one is passed over.
    pub fn push(&mut self, reading: R) {
        if self.0.back().is_some_and(|last| last.at() >= reading.at()) {
            return;
        }
        if self.0.len() >= MOST_READINGS {
            let mut kept = false;
            self.0.retain(|_| {
                kept = !kept;
                kept
            });
        }
        self.0.push_back(reading);
    }

    /// Gives up what no stretch that begins at `from` or later needs: all but the last one before.
    pub fn forget_before(&mut self, from: Stamp) {
        let before = self.0.partition_point(|reading| reading.at() <= from);
        self.0.drain(..before.saturating_sub(KEPT_BEFORE).min(self.0.len()));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &R> + Clone {
        self.0.iter()
    }

    /// The last one.
    pub fn last(&self) -> Option<&R> {
        self.0.back()
    }
}

/// What is asked less often is told by one of so many readings.
const KEPT_BEFORE: usize = 100;

/// A process that was seen computing on a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    /// The process, with the most memory that it held.
    pub tenant: Tenant,
    /// Whether it descends from this program.
    pub ours: bool,
    /// When it was first seen; zero where it was there at the first look.
    pub first: Stamp,
    /// When it was last seen.
    pub last: Stamp,
}

/// What is known of one GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GpuLog {
    /// Its place in the driver's order.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// What looks at it told.
    pub readings: Readings<Reading>,
    /// The processes that were on it.
    pub sightings: Vec<Sighting>,
    /// Errors that the driver told, by number.
    pub xid: Vec<(Stamp, u64)>,
    /// When and why it could not be asked any more.
    pub lost: Option<(Stamp, String)>,
}

impl GpuLog {
    /// Takes note of an error that the driver told.
    pub fn error(&mut self, at: Stamp, number: u64) {
        if self.xid.len() < MOST_REMEMBERED {
            self.xid.push((at, number));
        }
    }

    /// Takes note of a process that is on it now. `ours` is asked of one that was not there before: whether
    /// it descends from this program.
    pub fn meet(&mut self, at: Stamp, tenant: Tenant, ours: impl FnOnce() -> bool) {
        let known = self.sightings.iter_mut().find(|seen| seen.tenant.pid == tenant.pid);
        if let Some(seen) = known {
            seen.last = at;
            seen.tenant.bytes = seen.tenant.bytes.max(tenant.bytes);
        } else if self.sightings.len() < MOST_REMEMBERED {
            let first = if self.readings.last().is_none() { Stamp(0) } else { at };
            self.sightings.push(Sighting { ours: ours(), tenant, first, last: at });
        }
    }

    /// Gives up what no stretch that begins at `from` or later needs; processes stay, since when they came tells
    /// whose they are.
    pub fn forget_before(&mut self, from: Stamp) {
        self.readings.forget_before(from);
        self.xid.retain(|(at, _)| *at >= from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Reading {
        Reading { at: Stamp(n), ..Reading::default() }
    }

    #[test]
    fn readings_are_bounded_and_keep_their_whole_stretch() {
        let mut readings = Readings::default();
        (1..=100_000).for_each(|n| readings.push(at(n)));
        let stamps: Vec<u64> = readings.iter().map(|reading| reading.at.0).collect();
        assert!(stamps.len() <= MOST_READINGS && stamps.len() >= MOST_READINGS / 2);
        assert_eq!((stamps[0], stamps.last()), (1, Some(&100_000)));
        assert!(stamps.windows(2).all(|pair| pair[1] > pair[0]));
        readings.push(at(7));
        assert_eq!(readings.last(), Some(&at(100_000)), "an earlier one is passed over");
        readings.forget_before(Stamp(99_000));
        assert_eq!(readings.iter().filter(|it| it.at.0 <= 99_000).count(), KEPT_BEFORE);
    }

    #[test]
    fn reasons_are_told_apart() {
        for reason in Throttle::ALL {
            let only: Throttles = [reason].into_iter().collect();
            assert!(Throttle::ALL.iter().all(|other| only.has(*other) == (*other == reason)));
        }
    }
}
