//! Looking at a GPU while something is measured: the questions, and what is never asked again.
//!
//! A question costs a driver call, and some of them much: what a GPU does not support is asked once, and what
//! changes slowly not every time. What the answers mean is decided in `telemetry`.

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock as Domain, EccCounter, MemoryError, TemperatureSensor,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::{Library, words};
use crate::clock::Stamp;
use crate::hardware::Gpu;
use crate::hardware::occupancy::Warmth;
use crate::hardware::telemetry::Throttle;
use crate::hardware::telemetry::reading::{Reading, Throttles};

/// A GPU is lost when so many looks in a row bring nothing but errors.
const PATIENCE: u32 = 5;
/// So many errors of the driver are heard at a time.
const MOST_EVENTS: usize = 64;
/// What the driver calls an error whose number it does not know.
const UNKNOWN_XID: u64 = 999;

/// A GPU that is looked at again and again.
pub(in crate::hardware) struct Watched<'a> {
    device: Device<'a>,
    /// What it does not support, a bit for each question.
    lacks: u16,
    /// Looks in a row that brought nothing but errors.
    silent: u32,
    /// Whether processes are asked for: those of other slices of a GPU are no neighbours.
    whole: bool,
}

/// The questions. What changes slowly, and costs most, is asked less often.
#[derive(Clone, Copy)]
enum Question {
    Power,
    Energy,
    Utilisation,
    Memory,
    SmClock,
    MemoryClock,
    Temperature,
    Throttles,
    Corrected,
    Uncorrected,
    Processes,
}

/// What one look came to.
struct Look {
    answers: u32,
    failures: u32,
    last: Option<NvmlError>,
    gone: bool,
}

impl Library {
    /// What is watched of a GPU.
    ///
    /// # Errors
    /// It can't be asked; in words.
    pub(in crate::hardware) fn watched(&self, gpu: &Gpu) -> Result<Watched<'_>, String> {
        let index = gpu.index.unwrap_or_default();
        let device = self.nvml.device_by_index(index).map_err(|error| words(&error))?;
        Ok(Watched { device, lacks: 0, silent: 0, whole: gpu.slice.is_none() })
    }

    /// What the driver tells of errors of these GPUs; `None` where it tells nothing.
    pub(in crate::hardware) fn errors<'a>(&'a self, gpus: &[Watched<'a>]) -> Option<EventSet<'a>> {
        let mut set = self.nvml.create_event_set().ok()?;
        for gpu in gpus {
            set = gpu.device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
        }
        Some(set)
    }

    /// How warm these GPUs are, by their place in the driver's order; those that don't tell are left out.
    pub fn warmth(&self, gpus: &[u32]) -> Vec<Warmth> {
        let look = |index: &u32| {
            let device = self.nvml.device_by_index(*index).ok()?;
            let celsius = f64::from(device.temperature(TemperatureSensor::Gpu).ok()?);
            Some(Warmth { index: *index, name: device.name().unwrap_or_default(), celsius })
        };
        gpus.iter().filter_map(look).collect()
    }
}

/// Hands over the errors that have come since they were last asked for: place of the GPU in the driver's
/// order, and number.
pub(in crate::hardware) fn hear(set: &EventSet<'_>, mut told: impl FnMut(u32, u64)) {
    for _ in 0..MOST_EVENTS {
        // Nothing has come, or nothing will: a GPU that is lost is told by its readings.
        let Ok(event) = set.wait(0) else { return };
        let number = match event.event_data {
            Some(XidError::Value(number)) => number,
            Some(XidError::Unknown) => UNKNOWN_XID,
            None => continue,
        };
        if let Ok(index) = event.device.index() {
            told(index, number);
        }
    }
}

impl<'a> Watched<'a> {
    /// Looks at it; `wholly` with what is asked less often.
    ///
    /// # Errors
    /// It is lost: in words.
    pub(in crate::hardware) fn look(&mut self, at: Stamp, wholly: bool) -> Result<Reading, String> {
        use Question as Q;
        let mut look = Look { answers: 0, failures: 0, last: None, gone: false };
        let mut reading = Reading { at, ..Reading::default() };
        // The power first, as near as can be to the stamp.
        reading.power =
            self.ask(&mut look, Q::Power, Device::power_usage).map(|mw| f64::from(mw) / 1e3);
        let energy = self.ask(&mut look, Q::Energy, Device::total_energy_consumption);
        reading.energy = energy.map(|millijoules| millijoules as f64 / 1e3);
        let of = self.ask(&mut look, Q::Utilisation, Device::utilization_rates);
        reading.utilisation = of.map(|rates| rates.gpu);
        reading.sm_clock = self.ask(&mut look, Q::SmClock, |it| it.clock_info(Domain::SM));
        let reasons = self.ask(&mut look, Q::Throttles, Device::current_throttle_reasons);
        reading.throttled = reasons.map(throttles);
        reading.memory = self.ask(&mut look, Q::Memory, Device::memory_info).map(|it| it.used);
        if wholly {
            reading.memory_clock =
                self.ask(&mut look, Q::MemoryClock, |it| it.clock_info(Domain::Memory));
            reading.temperature =
                self.ask(&mut look, Q::Temperature, |it| it.temperature(TemperatureSensor::Gpu));
            let errors =
                |kind| move |it: &Device<'a>| it.total_ecc_errors(kind, EccCounter::Volatile);
            reading.ecc_corrected =
                self.ask(&mut look, Q::Corrected, errors(MemoryError::Corrected));
            reading.ecc_uncorrected =
                self.ask(&mut look, Q::Uncorrected, errors(MemoryError::Uncorrected));
        }
        self.silent = if look.answers == 0 && look.failures > 0 { self.silent + 1 } else { 0 };
        match look.last {
            Some(error) if look.gone || self.silent >= PATIENCE => Err(words(&error)),
            Some(_) | None => Ok(reading),
        }
    }

    /// The processes that compute on it: id, and bytes where the driver tells them.
    pub(in crate::hardware) fn processes(&mut self) -> Vec<(u32, Option<u64>)> {
        if !self.whole {
            return Vec::new();
        }
        let mut look = Look { answers: 0, failures: 0, last: None, gone: false };
        let all = self.ask(&mut look, Question::Processes, Device::running_compute_processes);
        let each = all.unwrap_or_default().into_iter().map(|process| {
            let bytes = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            (process.pid, bytes)
        });
        each.collect()
    }

    fn ask<T>(
        &mut self,
        look: &mut Look,
        question: Question,
        ask: impl FnOnce(&Device<'a>) -> Result<T, NvmlError>,
    ) -> Option<T> {
        let bit = 1 << question as u16;
        if look.gone || self.lacks & bit != 0 {
            return None;
        }
        match ask(&self.device) {
            Ok(answer) => {
                look.answers += 1;
                Some(answer)
            }
            Err(error) => {
                #[expect(
                    clippy::wildcard_enum_match_arm,
                    reason = "the library's list of errors grows"
                )]
                match error {
                    NvmlError::NotSupported
                    | NvmlError::FunctionNotFound
                    | NvmlError::FailedToLoadSymbol(_)
                    | NvmlError::NoPermission => self.lacks |= bit,
                    NvmlError::GpuLost | NvmlError::ResetRequired => {
                        look.gone = true;
                        look.last = Some(error);
                    }
                    other => {
                        look.failures += 1;
                        look.last = Some(other);
                    }
                }
                None
            }
        }
    }
}

fn throttles(reasons: ThrottleReasons) -> Throttles {
    const KNOWN: [(ThrottleReasons, Throttle); 7] = [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::ApplicationClocks),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, Throttle::ApplicationClocks),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::ThermalSoftware),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::ThermalHardware),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
    ];
    let told = KNOWN.iter().filter(|(bit, _)| reasons.contains(*bit));
    let told: Throttles = told.map(|(_, reason)| *reason).collect();
    // The driver sets this one beside the reason for it, where it knows one.
    let known = told.has(Throttle::ThermalHardware) || told.has(Throttle::PowerBrake);
    if reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !known {
        return told.and(Throttle::HardwareSlowdown);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_by_hardware_is_told_by_its_reason_where_there_is_one() {
        let has = |bits: ThrottleReasons| {
            let told = throttles(bits);
            Throttle::ALL.into_iter().filter(|it| told.has(*it)).collect::<Vec<_>>()
        };
        assert_eq!(has(ThrottleReasons::HW_SLOWDOWN), [Throttle::HardwareSlowdown]);
        let hot = ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(has(hot), [Throttle::ThermalHardware]);
        assert_eq!(has(ThrottleReasons::GPU_IDLE), []);
        let busy = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::DISPLAY_CLOCK_SETTING;
        assert_eq!(has(busy), [Throttle::PowerCap, Throttle::ApplicationClocks]);
    }
}
