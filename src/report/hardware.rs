//! What was seen of the hardware while a cell was measured, as reports show it: plain values for programs, one
//! line for people. It sums up and decides nothing; what is suspicious stands in the judgement.

use crate::hardware::blame::held_back;
use crate::hardware::telemetry::{GpuTelemetry, Series, Telemetry, Throttle};
use crate::quantity::print_number;
use crate::record::run_record::{CellOutcome, CellState};

use super::count::plural;

/// One value of a cell's hardware.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Its name in properties: `hardware.power.mean`.
    pub name: &'static str,
    /// `W`, `MHz`, `°C`, `bytes`; empty for shares, which are 0 to 1, and counts.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// What it is.
    pub help: &'static str,
}

/// Units of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// W.
    Watt,
    /// MHz.
    Megahertz,
    /// °C.
    Celsius,
    /// Bytes.
    Byte,
    /// 0 to 1.
    Share,
    /// So many.
    Count,
}

impl Unit {
    /// As it is written behind a value.
    pub fn sign(self) -> &'static str {
        match self {
            Unit::Watt => "W",
            Unit::Megahertz => "MHz",
            Unit::Celsius => "°C",
            Unit::Byte => "bytes",
            Unit::Share | Unit::Count => "",
        }
    }
}

/// The telemetry of a cell: of each launch that it was measured in, in their order.
pub fn stretches(outcome: &CellOutcome) -> Vec<&Telemetry> {
    if outcome.rounds.is_empty() {
        return of_state(&outcome.state).into_iter().collect();
    }
    outcome.rounds.iter().filter_map(|round| of_state(&round.state)).collect()
}

fn of_state(state: &CellState) -> Option<&Telemetry> {
    match state {
        CellState::Measured(measured) => measured.telemetry.as_deref(),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
    }
}

/// What is known of a cell's hardware, in a fixed order.
pub fn readings(outcome: &CellOutcome) -> Vec<Reading> {
    let seen = Seen { stretches: stretches(outcome) };
    if seen.stretches.is_empty() {
        return Vec::new();
    }
    let gpus = || seen.gpus();
    let some = |any: bool, value: f64| any.then_some(value);
    let has_gpus = gpus().next().is_some();
    let count = |of: fn(&GpuTelemetry) -> Option<u64>| -> Option<f64> {
        let counted: Vec<u64> = gpus().filter_map(of).collect();
        some(!counted.is_empty(), counted.iter().sum::<u64>() as f64)
    };
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(None, greatest);
    let share = |percent: f64| percent / 100.0;
    let all: [(&'static str, Unit, Option<f64>, &'static str); 14] = [
        ("hardware.power.mean", Unit::Watt, seen.power(), "mean power of all GPUs together"),
        (
            "hardware.utilisation.mean",
            Unit::Share,
            seen.mean(|gpu| gpu.utilisation.as_ref()).map(share),
            "mean share of the time in which a GPU ran a kernel",
        ),
        (
            "hardware.sm-clock.mean",
            Unit::Megahertz,
            seen.mean(|gpu| gpu.sm_clock.as_ref()),
            "mean clock of the multiprocessors",
        ),
        (
            "hardware.sm-clock.min",
            Unit::Megahertz,
            gpus()
                .filter_map(|gpu| Some(-gpu.sm_clock.as_ref()?.min))
                .fold(None, greatest)
                .map(|it| -it),
            "least clock of the multiprocessors of any GPU",
        ),
        (
            "hardware.temperature.max",
            Unit::Celsius,
            most(&mut gpus().filter_map(|gpu| Some(gpu.temperature.as_ref()?.max))),
            "greatest temperature of any GPU",
        ),
        (
            "hardware.memory.max",
            Unit::Byte,
            most(&mut gpus().filter_map(|gpu| Some(gpu.memory.as_ref()?.max))),
            "most memory in use on any GPU",
        ),
        (
            "hardware.throttled",
            Unit::Share,
            some(has_gpus, most(&mut gpus().map(held_back)).unwrap_or(0.0)),
            "greatest share of any GPU's samples in which heat, power supply or hardware held it back",
        ),
        (
            "hardware.power-capped",
            Unit::Share,
            some(has_gpus, seen.reason(Throttle::PowerCap)),
            "greatest share of any GPU's samples in which it was at its power cap",
        ),
        (
            "hardware.ecc.uncorrected",
            Unit::Count,
            count(|gpu| gpu.ecc_uncorrected),
            "memory errors that ECC could not correct",
        ),
        (
            "hardware.ecc.corrected",
            Unit::Count,
            count(|gpu| gpu.ecc_corrected),
            "memory errors that ECC corrected",
        ),
        (
            "hardware.xid",
            Unit::Count,
            some(has_gpus, gpus().map(|gpu| gpu.xid.len()).sum::<usize>() as f64),
            "errors of GPUs that the driver told",
        ),
        (
            "hardware.cpu.mean",
            Unit::Share,
            seen.host(|one| one.host.cpu.as_ref()).map(share),
            "mean share of the host's cores that were busy",
        ),
        (
            "hardware.host-memory.max",
            Unit::Byte,
            most(&mut seen.stretches.iter().filter_map(|one| Some(one.host.memory.as_ref()?.max))),
            "most memory in use on the host",
        ),
        (
            "hardware.suspects",
            Unit::Count,
            Some(outcome.judgement.suspects.len() as f64),
            "what was not in order with the hardware",
        ),
    ];
    let known = all.into_iter().filter_map(|(name, unit, value, help)| {
        let value = value.filter(|value| value.is_finite())?;
        Some(Reading { name, unit, value, help })
    });
    known.collect()
}

/// `8 GPUs · 4 812 W · 97 % busy · SM clock 1 305 to 1 980 MHz · 84 °C and 131.2 GiB at most · throttled by
/// heat in up to 62 % of the time · host CPU 12 %`. None where nothing was seen.
pub fn words(outcome: &CellOutcome) -> Option<String> {
    let seen = Seen { stretches: stretches(outcome) };
    let readings = readings(outcome);
    let known = |name: &str| readings.iter().find(|it| it.name == name).map(|it| it.value);
    let percent = |share: f64| format!("{} %", print_number(share * 100.0, 0));
    let mut parts = Vec::new();
    let gpus = seen.stretches.iter().map(|one| one.gpus.len()).max().unwrap_or(0);
    if gpus > 0 {
        parts.push(plural(gpus, "GPU"));
    }
    parts.extend(known("hardware.power.mean").map(|watts| format!("{} W", print_number(watts, 0))));
    parts.extend(known("hardware.utilisation.mean").map(|it| format!("{} busy", percent(it))));
    let clocks = seen.gpus().filter_map(|gpu| gpu.sm_clock.as_ref());
    let (low, high) = clocks.fold((f64::INFINITY, 0.0f64), |(low, high), clock| {
        (low.min(clock.min), high.max(clock.max))
    });
    if low < high {
        let (low, high) = (print_number(low, 0), print_number(high, 0));
        parts.push(format!("SM clock {low} to {high} MHz"));
    } else if low.is_finite() {
        parts.push(format!("SM clock {} MHz", print_number(low, 0)));
    }
    let hot = known("hardware.temperature.max").map(|it| format!("{} °C", print_number(it, 0)));
    let full = known("hardware.memory.max").map(gibibytes);
    let most: Vec<String> = hot.into_iter().chain(full).collect();
    if !most.is_empty() {
        parts.push(format!("{} at most", most.join(" and ")));
    }
    let reasons = reasons(|reason| seen.reason(reason));
    parts.extend(reasons.into_iter().map(|(what, share)| {
        let up_to = if gpus > 1 { "up to " } else { "" };
        format!("{what} in {up_to}{} of the time", percent(share))
    }));
    for (name, what) in
        [("hardware.ecc.uncorrected", "memory error"), ("hardware.xid", "error told by the driver")]
    {
        let count = known(name).filter(|count| *count > 0.0).map(|count| count as usize);
        parts.extend(count.map(|count| match what {
            "memory error" => format!("{} uncorrected", plural(count, what)),
            _ if count == 1 => format!("1 {what}"),
            _ => format!("{count} errors told by the driver"),
        }));
    }
    parts.extend(known("hardware.cpu.mean").map(|share| format!("host CPU {}", percent(share))));
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// Why a GPU's clocks were held back, with the share of the time; reasons of the same words once.
pub fn reasons(share: impl Fn(Throttle) -> f64) -> Vec<(&'static str, f64)> {
    let mut found: Vec<(&'static str, f64)> = Vec::new();
    for reason in Throttle::ALL {
        let share = share(reason);
        if !(share.is_finite() && share >= 0.005) {
            continue;
        }
        match found.iter_mut().find(|(words, _)| *words == reason.words()) {
            Some((_, most)) => *most = most.max(share),
            None => found.push((reason.words(), share)),
        }
    }
    found
}

/// `131.2 GiB`.
pub fn gibibytes(bytes: f64) -> String {
    format!("{} GiB", print_number(bytes / f64::from(1 << 30), 1))
}

fn greatest(most: Option<f64>, value: f64) -> Option<f64> {
    Some(most.map_or(value, |most| most.max(value)))
}

struct Seen<'a> {
    stretches: Vec<&'a Telemetry>,
}

impl<'a> Seen<'a> {
    fn gpus(&self) -> impl Iterator<Item = &'a GpuTelemetry> {
        self.stretches.iter().flat_map(|one| &one.gpus)
    }

    /// The mean over GPUs and time.
    fn mean(&self, of: impl Fn(&GpuTelemetry) -> Option<&Series>) -> Option<f64> {
        let told = self.stretches.iter().flat_map(|one| {
            one.gpus.iter().filter_map(|gpu| Some((one.seconds, of(gpu)?.mean))).collect::<Vec<_>>()
        });
        over_time(told)
    }

    fn host(&self, of: impl Fn(&Telemetry) -> Option<&Series>) -> Option<f64> {
        over_time(self.stretches.iter().filter_map(|one| Some((one.seconds, of(one)?.mean))))
    }

    /// The power of all GPUs, where it is known of each.
    fn power(&self) -> Option<f64> {
        let whole = |one: &&'a Telemetry| -> Option<(f64, f64)> {
            let all: Option<Vec<f64>> =
                one.gpus.iter().map(|gpu| Some(gpu.power.as_ref()?.mean)).collect();
            let all = all.filter(|all| !all.is_empty())?;
            Some((one.seconds, all.iter().sum()))
        };
        over_time(self.stretches.iter().filter_map(whole))
    }

    /// The greatest share of any GPU's samples in which it was held back for that reason.
    fn reason(&self, reason: Throttle) -> f64 {
        let shares = self.gpus().filter_map(|gpu| gpu.throttled.get(&reason).copied());
        shares.filter(|share| share.is_finite()).fold(0.0, f64::max)
    }
}

/// The mean of values that each held for so many seconds.
fn over_time(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (time, sum) = values.fold((0.0, 0.0), |(time, sum), (seconds, value)| {
        let seconds = seconds.max(1e-9);
        (time + seconds, sum + seconds * value)
    });
    (time > 0.0).then(|| sum / time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn what_is_known_is_told_and_nothing_else() {
        let record = fixture::throttled();
        let hot = fixture::hot_cell(&record);
        let outcome = &record.cells[hot];
        assert_eq!(
            words(outcome).unwrap(),
            "8 GPUs · 5 000 W · 98 % busy · SM clock 1 290 to 1 980 MHz · 91 °C and 131.2 GiB at most · \
             at its power cap in up to 30 % of the time · throttled by heat in up to 62 % of the time \
             · host CPU 12 %"
        );
        let readings = readings(outcome);
        let named: Vec<(&str, f64)> = readings.iter().map(|it| (it.name, it.value)).collect();
        for known in [
            ("hardware.power.mean", 5000.0),
            ("hardware.sm-clock.min", 1290.0),
            ("hardware.temperature.max", 91.0),
            ("hardware.throttled", 0.62),
            ("hardware.power-capped", 0.3),
            ("hardware.ecc.uncorrected", 0.0),
            ("hardware.suspects", 1.0),
        ] {
            assert!(named.contains(&known), "{known:?} in {named:?}");
        }
        assert!((1..readings.len()).all(|at| readings[at].help != readings[at - 1].help));
        let other = &fixture::page().cells[hot];
        assert_eq!((words(other), self::readings(other)), (None, vec![]));
    }

    #[test]
    fn a_host_without_gpus_has_its_own_figures_alone() {
        let mut record = fixture::throttled();
        let hot = fixture::hot_cell(&record);
        let CellState::Measured(measured) = &mut record.cells[hot].state else { panic!() };
        measured.telemetry.as_mut().unwrap().gpus.clear();
        record.cells[hot].judgement.suspects.clear();
        let outcome = &record.cells[hot];
        assert_eq!(words(outcome).unwrap(), "host CPU 12 %");
        let names: Vec<&str> = readings(outcome).iter().map(|it| it.name).collect();
        assert_eq!(names, ["hardware.cpu.mean", "hardware.host-memory.max", "hardware.suspects"]);
    }

    #[test]
    fn launches_are_told_together() {
        let mut record = fixture::throttled();
        let hot = fixture::hot_cell(&record);
        let (cold, state) = (record.cells[hot - 1].state.clone(), record.cells[hot].state.clone());
        let outcome = &mut record.cells[hot];
        outcome.rounds = [cold, state]
            .map(|state| crate::record::run_record::Round { state, seconds: 30.0 })
            .into();
        assert_eq!(stretches(outcome).len(), 2);
        let power = readings(outcome)[0].value;
        assert!((5000.0..5600.0).contains(&power), "{power}");
    }
}
