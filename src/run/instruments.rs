//! Instruments: what looks at the hardware while the cells of a launch are measured, and how a cell gets what
//! was seen of its window.
//!
//! Who looks is `hardware::sampler`; what the readings come to is decided in `hardware::telemetry`, what they
//! are worth in `measure::power`. In virtual time nobody looks: no hardware does that work.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use crate::clock::{Clock, Stamp};
use crate::engine::LaunchSpec;
use crate::hardware::blame::{self, Suspect};
use crate::hardware::need::Sampling;
use crate::hardware::occupancy::Warmth;
use crate::hardware::sampler::{Sampler, Sight};
use crate::hardware::telemetry::{Stretch, Telemetry, Whose};
use crate::hardware::visible::Visible;
use crate::measure::power;
use crate::quantity::print_duration;
use crate::record::Event;
use crate::record::run_record::{CellState, PlannedCellRecord};
use crate::record::wording;
use crate::suite::model::{EngineSource, SimClock, Suite};

use super::conductor::State;
use super::start::Start;

/// How long the first look may take: it may have to wake GPUs that sleep.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a look may take once a cell has broken.
const LAST: Duration = Duration::from_secs(5);
/// What is said of a driver that takes longer.
const SILENT: &str = "the driver does not answer";
/// How long GPUs may take to cool down before a launch.
const COOLING: Duration = Duration::from_secs(300);

/// What looks at the hardware of one launch. Copies look at the same.
#[derive(Clone, Default)]
pub(super) struct Instruments(Option<Rc<Looking>>);

struct Looking {
    sampler: Sampler,
    clock: Clock,
    /// When the engine that was started here was ready; none where it was running already.
    ready: Option<Cell<Stamp>>,
}

impl State<'_> {
    /// Makes the hardware ready for a launch: waits until its GPUs are cool enough, and begins to look at it.
    pub(super) async fn attend(&mut self, launch: usize, spec: &LaunchSpec) -> Result<(), Start> {
        let plan = self.conduct.plan;
        let suite = &plan.suite;
        let source = &suite.settings[plan.launches[launch].setting as usize].engine.source;
        let sight = sight(suite, source, spec);
        let below = suite.hardware.as_ref().and_then(|need| need.cool_below);
        if let (Some(below), Sight::Here(visible)) = (below, &sight)
            && self.takes_memory(launch)
        {
            let mut vacancy = std::mem::take(&mut self.vacancy);
            let (events, at) = (self.events, self.seconds());
            let told = |warm: &[Warmth]| {
                let step = format!("waiting until {} at most: {}", celsius(below), listed(warm));
                events.send(Event::LaunchStep { launch, step, at });
            };
            let warm = tokio::select! {
                biased;
                cause = self.halted() => return Err(Start::Halted(cause)),
                warm = vacancy.cool(visible.clone(), below, COOLING, told) => warm,
            };
            self.vacancy = vacancy;
            if !warm.is_empty() {
                let (name, waited) = (&plan.launches[launch].name, print_duration(COOLING));
                let (limit, warm) = (celsius(below), listed(&warm));
                let message = format!(
                    "launch {name}: {warm} after {waited} of waiting for {limit} (hardware.cool-below)"
                );
                self.events.send(Event::Warning { message });
            }
        }
        let begun = tokio::select! {
            biased;
            cause = self.halted() => return Err(Start::Halted(cause)),
            begun = Instruments::begin(suite, source, sight, self.clock) => begun,
        };
        self.instruments = begun;
        Ok(())
    }

    /// What came of a cell that began at `began`: where it broke, with what befell the hardware meanwhile. Figures have
    /// telemetry beside them, and are blamed by that when they are judged; a cell that broke has none.
    pub(super) async fn with_hardware(
        &self,
        instruments: &Instruments,
        began: Stamp,
        state: CellState,
    ) -> CellState {
        let CellState::Broken { class, mut message } = state else { return state };
        let befell = tokio::select! {
            biased;
            _ = self.halted() => None,
            befell = instruments.befell(began) => befell,
        };
        if let Some(words) = befell {
            // The lines of a log stand below.
            let end = message.find('\n').unwrap_or(message.len());
            message.insert_str(end, &format!("; {}", wording::suspect(&words)));
        }
        CellState::Broken { class, message }
    }
}

fn listed(warm: &[Warmth]) -> String {
    warm.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn celsius(degrees: f64) -> String {
    format!("{degrees} °C")
}

/// Which GPUs a launch sees of this machine; why none where it is not here.
fn sight(suite: &Suite, source: &EngineSource, spec: &LaunchSpec) -> Sight {
    let declared = suite.hardware.as_ref().map(|need| need.here);
    let here = match source {
        EngineSource::Command(_) | EngineSource::Sim { .. } => declared.unwrap_or(true),
        EngineSource::Url(_) => declared.unwrap_or_else(|| is_here(&spec.url)),
    };
    if !here {
        return Sight::None("the engine's hardware is elsewhere".to_owned());
    }
    let own = |name: &str| spec.env.iter().rev().find(|(own, _)| own == name);
    let inherited = |name: &str| std::env::var_os(name).map(|it| it.to_string_lossy().into_owned());
    Sight::Here(Visible::of(|name| {
        own(name).map(|(_, value)| value.clone()).or_else(|| inherited(name))
    }))
}

/// Whether a url is one of this machine: an address that can be listened on here.
fn is_here(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    match host.parse::<IpAddr>() {
        Ok(address) => UdpSocket::bind((address, 0)).is_ok(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

impl Instruments {
    /// Begins to look, before the engine is started where it is started here, so that who was on its GPUs
    /// before is known.
    async fn begin(
        suite: &Suite,
        source: &EngineSource,
        sight: Sight,
        clock: Clock,
    ) -> Instruments {
        let sampling = suite.hardware.as_ref().map(|need| need.sampling).unwrap_or_default();
        let Sampling::Every(pace) = sampling else { return Instruments::default() };
        let ready = match source {
            EngineSource::Sim { clock: SimClock::Virtual, .. } => return Instruments::default(),
            EngineSource::Sim { clock: SimClock::Real, .. } | EngineSource::Command(_) => {
                Some(Cell::new(Stamp(u64::MAX)))
            }
            EngineSource::Url(_) => None,
        };
        let sampler = Sampler::start(sight, pace, clock);
        sampler.look(clock.now(), PATIENCE).await;
        Instruments(Some(Rc::new(Looking { sampler, clock, ready })))
    }

    /// The engine is ready: what is on its GPUs by now may be its own.
    pub(super) async fn ready(&self) {
        let Some(looking) = &self.0 else { return };
        let now = looking.clock.now();
        looking.sampler.look(now, PATIENCE).await;
        if let Some(ready) = &looking.ready {
            ready.set(looking.clock.now());
        }
    }

    /// What befell the hardware from `began` until now that can break an engine; `None` where nothing did.
    async fn befell(&self, began: Stamp) -> Option<String> {
        let looking = self.0.as_ref()?;
        let now = looking.clock.now();
        let answered = looking.sampler.look(now, LAST).await;
        let seen = looking.sampler.so_far(&[(began, now)], Whose::Running { since: began });
        let mut found = blame::suspicions(&seen, None, 0);
        found.retain(|one| matches!(one.what, Suspect::Lost | Suspect::Xid | Suspect::Ecc));
        let silent = (!answered && !seen.gpus.is_empty()).then_some(SILENT);
        let words: Vec<&str> = found.iter().map(|one| one.words.as_str()).chain(silent).collect();
        (!words.is_empty()).then(|| blame::told(words))
    }

    /// A cell begins: what was before it is no longer needed.
    pub(super) fn of_cell<'a>(&self, planned: &'a PlannedCellRecord) -> CellInstruments<'a> {
        let began = self.0.as_ref().map(|looking| {
            let now = looking.clock.now();
            looking.sampler.forget_before(now);
            now
        });
        CellInstruments { all: self.clone(), planned, began: began.unwrap_or_default() }
    }
}

/// What looks at the hardware while one cell is measured.
pub(super) struct CellInstruments<'a> {
    all: Instruments,
    planned: &'a PlannedCellRecord,
    began: Stamp,
}

impl CellInstruments<'_> {
    fn whose(&self, looking: &Looking) -> Whose {
        match &looking.ready {
            Some(ready) => Whose::Started { ready: ready.get() },
            None => Whose::Running { since: self.began },
        }
    }

    /// What was seen over the stretches, the last of which has ended. Cancel-safe.
    pub(super) async fn over(&self, stretches: &[Stretch]) -> Option<Telemetry> {
        let looking = self.all.0.as_ref()?;
        Some(self.told(looking.sampler.over(stretches, self.whose(looking)).await))
    }

    /// What was seen of them so far.
    pub(super) fn so_far(&self, stretches: &[Stretch]) -> Option<Telemetry> {
        let looking = self.all.0.as_ref()?;
        Some(self.told(looking.sampler.so_far(stretches, self.whose(looking))))
    }

    /// Why there are no GPUs is worth a word where something is expected of them.
    fn told(&self, mut seen: Telemetry) -> Telemetry {
        let asked = self.planned.bounds.iter().any(|bound| power::of_gpus(bound.metric.base));
        if seen.gpus.is_empty() && !asked {
            seen.notes.clear();
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_here_where_its_address_is_ours() {
        for url in ["http://127.0.0.1:8000", "http://localhost/v1", "http://u:p@127.0.0.9:1/x?y"] {
            assert!(is_here(url), "{url}");
        }
        // Documentation addresses are nobody's.
        for url in
            ["http://192.0.2.7:8000", "https://api.example.com/v1", "http://[2001:db8::1]:80"]
        {
            assert!(!is_here(url), "{url}");
        }
    }
}
