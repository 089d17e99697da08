//! The sampler: looks at the GPUs that an engine sees and at the host while cells are measured.
//!
//! Each lives on a thread of its own, off those of the client: a driver that hangs hangs its own thread and
//! nothing else. What was seen over a stretch of time is decided in `telemetry`, once somebody asks.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::nvml::reading::{self, Watched};
use super::nvml::{self, Library};
use super::occupancy::Tenant;
use super::telemetry::reading::{GpuLog, HostReading, Readings};
use super::telemetry::{self, Stretch, Telemetry, Whose};
use super::visible::Visible;
use super::{Gpu, host::process_name};
use crate::clock::{Clock, Stamp};

mod host;
mod watch;

use host::Host;
use watch::Watch;

/// What changes slowly is asked for once in so long.
const SLOWLY: Duration = Duration::from_secs(1);
/// The host is looked at no more often: the kernel counts processor time in ticks.
const HOST_PACE: Duration = Duration::from_millis(500);
/// What looking may cost, as a share of a core: at the GPUs, and at the host.
const SHARES: (f64, f64) = (0.0038, 0.001);
/// Readings behind a stretch that has ended are waited for so long.
const BEHIND: Duration = Duration::from_secs(10);
/// A chain of parents is no longer than this.
const ANCESTORS: usize = 64;

/// Which GPUs are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Those of this machine that an engine sees.
    Here(Visible),
    /// None, and why.
    None(String),
}

/// Looks at GPUs and host until it is dropped.
pub struct Sampler {
    clock: Clock,
    gpus: Option<Watch<Gpus>>,
    host: Option<Watch<Readings<HostReading>>>,
    /// Why no GPU is looked at.
    note: Option<String>,
}

/// What is known of the GPUs.
#[derive(Default)]
struct Gpus {
    logs: Vec<GpuLog>,
    /// Why there is none, or not all.
    note: Option<String>,
    /// Whether it is known which there are.
    known: bool,
}

impl Sampler {
    /// Begins to look, once every `pace`.
    pub fn start(sight: Sight, pace: Duration, clock: Clock) -> Sampler {
        let (visible, mut note) = match sight {
            Sight::Here(visible) => (Some(visible), None),
            Sight::None(why) => (None, Some(why)),
        };
        let gpus = visible.and_then(|visible| {
            let looking = move |log: &Mutex<Gpus>, again: &mut Again<'_>| {
                look_at_gpus(&visible, pace, log, again);
            };
            let started = Watch::start("gpus", (pace, SHARES.0), clock, Gpus::default(), looking);
            started.map_err(|error| note = Some(format!("no thread to look at GPUs: {error}"))).ok()
        });
        let looking = |log: &Mutex<Readings<HostReading>>, again: &mut Again<'_>| {
            let mut host = Host::find();
            again(&mut |at, _| {
                let reading = host.look(at);
                lock(log).push(reading);
            });
        };
        let host = Watch::start(
            "host",
            (pace.max(HOST_PACE), SHARES.1),
            clock,
            Readings::default(),
            looking,
        )
        .ok();
        Sampler { clock, gpus, host, note }
    }

    /// Waits until everything was looked at `at` or later, at most `limit`; false where GPUs were not.
    /// Cancel-safe.
    pub async fn look(&self, at: Stamp, limit: Duration) -> bool {
        let gpus = async {
            match &self.gpus {
                Some(gpus) => gpus.look(at, limit).await,
                None => true,
            }
        };
        let host = async {
            match &self.host {
                Some(host) => host.look(at, limit).await,
                None => false,
            }
        };
        tokio::join!(gpus, host).0
    }

    /// Gives up what no stretch that begins at `from` or later needs.
    pub fn forget_before(&self, from: Stamp) {
        if let Some(gpus) = &self.gpus {
            gpus.log().logs.iter_mut().for_each(|log| log.forget_before(from));
        }
        if let Some(host) = &self.host {
            host.log().forget_before(from);
        }
    }

    /// What was seen over the stretches, with readings from behind the last one's end. Energy is unknown where the
    /// driver gave none. Cancel-safe.
    pub async fn over(&self, stretches: &[Stretch], whose: Whose) -> Telemetry {
        let end = stretches.last().map(|(_, to)| *to).unwrap_or_default();
        let answered = self.look(end, BEHIND).await;
        let mut seen = self.so_far(stretches, whose);
        let silent = self.gpus.as_ref().filter(|gpus| !answered && !gpus.log().is_empty());
        if let Some(gpus) = silent {
            let silence = self.clock.now().since(gpus.looked()).as_secs();
            seen.notes.push(match gpus.log().known {
                true => format!("the driver has not answered for {silence} s"),
                false => "the driver has not answered".to_owned(),
            });
            seen.gpus.iter_mut().for_each(|gpu| gpu.energy = None);
        }
        seen
    }

    /// What was seen so far over the stretches.
    pub fn so_far(&self, stretches: &[Stretch], whose: Whose) -> Telemetry {
        let host = self.host.as_ref().map(|host| host.log().clone()).unwrap_or_default();
        let Some(gpus) = &self.gpus else {
            let mut seen = telemetry::fold(&[], &host, whose, stretches);
            seen.notes.extend(self.note.clone());
            return seen;
        };
        let log = gpus.log();
        let mut seen = telemetry::fold(&log.logs, &host, whose, stretches);
        seen.notes.extend(log.note.clone());
        seen
    }
}

impl Gpus {
    /// Whether it is known that there is none.
    fn is_empty(&self) -> bool {
        self.known && self.logs.is_empty()
    }
}

/// What calls a look again and again.
type Again<'a> = dyn FnMut(&mut dyn FnMut(Stamp, bool)) + 'a;

fn look_at_gpus(visible: &Visible, pace: Duration, log: &Mutex<Gpus>, again: &mut Again<'_>) {
    let say = |note: Option<String>| {
        let mut log = lock(log);
        (log.note, log.known) = (note, true);
    };
    let library = match Library::load() {
        Ok(library) => library,
        Err(why) => return say(Some(format!("no NVIDIA driver: {why}"))),
    };
    let seen = match nvml::seen(visible) {
        Ok(seen) => seen,
        Err(why) => return say(Some(why)),
    };
    let mut watched: Vec<Watched<'_>> = Vec::new();
    let mut known: BTreeSet<u32> = BTreeSet::new();
    let mut sliced: Vec<String> = Vec::new();
    for gpu in seen.gpus {
        let Gpu { index: Some(index), name, slice, .. } = &gpu else { continue };
        // Several slices of a GPU are one GPU to its sensors.
        if !known.insert(*index) {
            continue;
        }
        if slice.is_some() {
            sliced.push(index.to_string());
        }
        match library.watched(&gpu) {
            Ok(it) => watched.push(it),
            Err(why) => return say(Some(format!("GPU {index}: {why}"))),
        }
        let name = name.clone();
        lock(log).logs.push(GpuLog { index: *index, name, ..GpuLog::default() });
    }
    let sliced = (!sliced.is_empty()).then(|| {
        format!("figures are those of the whole of GPU {}, not of slices alone", sliced.join(", "))
    });
    let none = known.is_empty().then(|| seen.note.unwrap_or_else(|| "no GPU".to_owned()));
    say(none.or(sliced));
    if known.is_empty() {
        return;
    }
    let errors = library.errors(&watched);
    let mut lost = vec![false; watched.len()];
    let mut wholly: Option<Stamp> = None;
    let slowly = SLOWLY.saturating_sub(pace / 2);
    again(&mut |at, asked| {
        let whole = asked || wholly.is_none_or(|last| at.since(last) >= slowly);
        if whole {
            wholly = Some(at);
        }
        for (place, gpu) in watched.iter_mut().enumerate() {
            if lost[place] {
                continue;
            }
            let looked = gpu.look(at, whole);
            let processes = if whole { gpu.processes() } else { Vec::new() };
            let mut log = lock(log);
            let Some(of_it) = log.logs.get_mut(place) else { continue };
            match looked {
                Ok(reading) => {
                    for (pid, bytes) in processes {
                        let tenant = Tenant { pid, bytes, name: process_name(pid) };
                        of_it.meet(at, tenant, || is_ours(pid));
                    }
                    of_it.readings.push(reading);
                }
                Err(why) => {
                    of_it.lost = Some((at, why));
                    lost[place] = true;
                }
            }
        }
        if let Some(errors) = &errors {
            reading::hear(errors, |index, number| {
                let mut log = lock(log);
                if let Some(of_it) = log.logs.iter_mut().find(|it| it.index == index) {
                    of_it.error(at, number);
                }
            });
        }
    });
}

/// Whether a process descends from this program. One that is not to be seen from here does not.
fn is_ours(pid: u32) -> bool {
    let own = std::process::id();
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may have any characters, stand the state and the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let chain = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|pid| *pid > 1));
    chain.take(ANCESTORS).any(|pid| pid == own)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_ours_and_parents_are_not() {
        assert!(is_ours(std::process::id()));
        assert!(!is_ours(1) && !is_ours(u32::MAX));
        if cfg!(target_os = "linux") {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            assert!(is_ours(child.id()));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!is_ours(std::os::unix::process::parent_id()));
        }
    }

    #[tokio::test]
    async fn without_a_driver_the_host_is_looked_at_all_the_same() {
        let clock = Clock::start();
        let sight = Sight::None("the engine runs elsewhere".to_owned());
        let sampler = Sampler::start(sight, Duration::from_millis(10), clock);
        sampler.look(clock.now(), Duration::from_secs(60)).await;
        let from = clock.now();
        tokio::time::sleep(Duration::from_millis(150)).await;
        let stretch = [(from, clock.now())];
        let whose = Whose::Running { since: from };
        let seen = sampler.over(&stretch, whose).await;
        assert_eq!(seen.notes, ["the engine runs elsewhere"]);
        assert!(seen.gpus.is_empty() && seen.seconds >= 0.15, "{seen:?}");
        if cfg!(target_os = "linux") {
            let memory = seen.host.memory.unwrap();
            assert!(memory.min > 0.0 && memory.min <= memory.mean && memory.mean <= memory.max);
            let cpu = seen.host.cpu.unwrap();
            assert!((0.0..=100.0).contains(&cpu.mean), "{cpu:?}");
        }
    }
}
