//! What readings come to: examples, and what must hold of any.

use proptest::prelude::*;

use super::line::length;
use super::reading::{GpuLog, HostReading, Reading, Readings, Ticks, Usage};
use super::*;
use crate::clock::Stamp;
use crate::hardware::occupancy::Tenant;

const STARTED: Whose = Whose::Started { ready: Stamp(2_000_000_000) };

fn s(seconds: f64) -> Stamp {
    Stamp((seconds * 1e9).round() as u64)
}

/// A GPU that was looked at at these times, whose readings are made by `of`.
fn gpu(times: &[f64], of: impl Fn(f64) -> Reading) -> GpuLog {
    let mut log = GpuLog { index: 1, name: "H200".to_owned(), ..GpuLog::default() };
    times.iter().for_each(|at| log.readings.push(Reading { at: s(*at), ..of(*at) }));
    log
}

fn power(of: impl Fn(f64) -> f64) -> impl Fn(f64) -> Reading {
    move |at| Reading { power: Some(of(at)), ..Reading::default() }
}

fn every(pace: f64, to: f64) -> Vec<f64> {
    (0..=(to / pace).round() as usize).map(|n| n as f64 * pace).collect()
}

fn folded(log: &GpuLog, stretches: &[(f64, f64)]) -> GpuTelemetry {
    let stretches: Vec<Stretch> = stretches.iter().map(|(a, b)| (s(*a), s(*b))).collect();
    let mut all = fold(std::slice::from_ref(log), &Readings::default(), STARTED, &stretches);
    all.gpus.remove(0)
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-3 + 1e-5 * b.abs(), "{a} is not {b}");
}

#[test]
fn the_ends_of_a_stretch_lie_between_readings() {
    // A ramp from 0 W, 100 W a second: over 1.1 s to 2.9 s it is 200 W in the mean.
    let log = gpu(&every(0.4, 4.0), power(|at| 100.0 * at));
    let seen = folded(&log, &[(1.1, 2.9)]);
    near(seen.energy.unwrap(), 360.0);
    let series = seen.power.unwrap();
    near(series.mean, 200.0);
    near(series.min, 120.0);
    near(series.max, 280.0);
    assert_eq!(series.points.len(), 5, "one for each reading in it");
    // A stretch between two readings.
    let between = folded(&log, &[(1.25, 1.35)]);
    near(between.energy.unwrap(), 13.0);
    near(between.power.unwrap().mean, 130.0);
}

#[test]
fn several_stretches_are_one_without_what_lies_between() {
    let log = gpu(&every(0.2, 6.0), power(|at| if at < 3.0 { 100.0 } else { 500.0 }));
    let seen = folded(&log, &[(1.0, 2.0), (4.0, 5.0)]);
    near(seen.energy.unwrap(), 600.0);
    let series = seen.power.unwrap();
    near(series.mean, 300.0);
    let half = series.points.len() / 2;
    assert!(series.points[..half].iter().all(|point| *point == 100.0), "{series:?}");
    assert!(series.points[half..].iter().all(|point| *point == 500.0), "{series:?}");
}

#[test]
fn a_drivers_own_counter_of_energy_goes_before_the_integral() {
    // A peak that no reading of the power met.
    let both = |at: f64| Reading {
        power: Some(100.0),
        energy: Some(1e6 + 100.0 * at + if at > 2.0 { 50.0 } else { 0.0 }),
        ..Reading::default()
    };
    let log = gpu(&every(0.2, 4.0), both);
    near(folded(&log, &[(1.0, 3.0)]).energy.unwrap(), 250.0);
    // Before that there was none of it.
    near(folded(&log, &[(0.5, 1.5)]).energy.unwrap(), 100.0);
    // One that begins anew, or stands still, is none.
    let anew = |at: f64| Reading { energy: Some(if at < 2.0 { 1e6 } else { at }), ..both(at) };
    near(folded(&gpu(&every(0.2, 4.0), anew), &[(1.0, 3.0)]).energy.unwrap(), 200.0);
    let still = |at: f64| Reading { energy: Some(7.0), ..both(at) };
    near(folded(&gpu(&every(0.2, 4.0), still), &[(1.0, 3.0)]).energy.unwrap(), 200.0);
}

#[test]
fn what_was_held_back_is_a_share_of_the_time() {
    let hot = |at: f64| Reading {
        throttled: Some(if (1.0..2.0).contains(&at) {
            [Throttle::ThermalHardware, Throttle::PowerCap].into_iter().collect()
        } else {
            Default::default()
        }),
        ..Reading::default()
    };
    let seen = folded(&gpu(&every(0.2, 6.0), hot), &[(0.0, 4.0)]);
    let keys: Vec<_> = seen.throttled.keys().copied().collect();
    assert_eq!(keys, [Throttle::PowerCap, Throttle::ThermalHardware]);
    assert!(seen.throttled.values().all(|share| *share == 0.25), "{:?}", seen.throttled);
    assert!(folded(&gpu(&every(0.2, 6.0), hot), &[(3.0, 5.0)]).throttled.is_empty());
}

#[test]
fn errors_are_of_the_stretch_that_they_fell_into() {
    // Counters are asked once in five readings.
    let counting = |at: f64| Reading {
        ecc_corrected: (at.fract() == 0.0).then_some(if at > 4.0 { 17 } else { 10 }),
        ecc_uncorrected: (at.fract() == 0.0).then_some(if at > 7.0 { 1 } else { 4 }),
        ..Reading::default()
    };
    let mut log = gpu(&every(0.25, 10.0), counting);
    log.error(s(4.5), 79);
    log.error(s(5.25), 79);
    log.error(s(9.0), 63);
    let seen = folded(&log, &[(3.3, 5.1)]);
    assert_eq!((seen.ecc_corrected, seen.ecc_uncorrected), (Some(7), Some(0)));
    assert_eq!(seen.xid, [79], "told by the first look behind it, too");
    let seen = folded(&log, &[(6.2, 9.5)]);
    assert_eq!((seen.ecc_corrected, seen.ecc_uncorrected), (Some(0), Some(1)), "anew");
    assert_eq!(seen.xid, [63]);
    assert!(folded(&log, &[(5.3, 6.0)]).xid.is_empty());
    assert_eq!(folded(&gpu(&[1.0], power(|_| 1.0)), &[(0.0, 2.0)]).ecc_corrected, None);
}

#[test]
fn a_gpu_that_is_lost_has_no_energy_of_the_whole() {
    let mut log = gpu(&every(0.2, 3.0), power(|_| 100.0));
    log.lost = Some((s(3.2), "it has fallen off the bus".to_owned()));
    let seen = folded(&log, &[(1.0, 9.0)]);
    assert_eq!(seen.lost.as_deref(), Some("it has fallen off the bus"));
    assert_eq!(seen.energy, None);
    near(seen.power.unwrap().mean, 100.0);
    let before = folded(&log, &[(1.0, 3.0)]);
    assert_eq!((before.lost, before.energy), (None, Some(200.0)));
    let after = folded(&log, &[(12.0, 14.0)]);
    assert!(after.lost.is_some() && after.power.is_none(), "nothing is known of it: {after:?}");
}

#[test]
fn a_driver_that_has_fallen_silent_is_not_believed_for_long() {
    let log = gpu(&every(0.2, 3.0), power(|_| 100.0));
    assert!(folded(&log, &[(1.0, 3.1)]).energy.is_some());
    assert_eq!(folded(&log, &[(1.0, 60.0)]).energy, None);
    assert!(folded(&log, &[(100.0, 160.0)]).power.is_none());
    assert!(folded(&gpu(&[], power(|_| 1.0)), &[(1.0, 2.0)]).power.is_none());
}

/// Who is told as foreign of processes: id, first and last seen, ours, whether it is to be seen from here.
fn strangers(met: &[(u32, f64, f64, bool, bool)], whose: Whose, stretch: (f64, f64)) -> Vec<u32> {
    let mut log = GpuLog::default();
    for (pid, first, last, ours, seen) in met {
        let name = seen.then(|| format!("p{pid}"));
        let tenant = || Tenant { pid: *pid, bytes: Some(*pid as u64), name: name.clone() };
        if *first > 0.0 {
            log.readings.push(Reading { at: s(0.5), ..Reading::default() });
        }
        log.meet(s(*first), tenant(), || *ours);
        log.meet(s(*last), tenant(), || unreachable!("it is known"));
    }
    every(0.2, 20.0)
        .iter()
        .for_each(|at| log.readings.push(Reading { at: s(*at), ..Reading::default() }));
    let stretches = [(s(stretch.0), s(stretch.1))];
    let found = fold(&[log], &Readings::default(), whose, &stretches);
    let words = &found.gpus[0].foreign;
    words.iter().map(|it| it.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn the_engines_own_processes_are_told_from_others() {
    let before = (1, 0.0, 20.0, false, true);
    let own = (2, 1.0, 20.0, true, true);
    let beside = (3, 1.5, 20.0, false, true);
    let hidden = (4, 1.5, 20.0, false, false);
    let later = (5, 6.0, 8.0, false, false);
    let gone = (6, 1.2, 1.8, false, true);
    let window = (5.0, 9.0);
    let of = |met: &[_], whose, window| strangers(met, whose, window);
    // The driver names what descends from here: whoever else is to be seen is another.
    assert_eq!(of(&[before, own, beside, gone], STARTED, window), [1, 3]);
    // It names what came with the engine and can't be seen, as from inside of a container, or descends from
    // nobody here, as an engine in a container does.
    assert_eq!(of(&[before, hidden, later], STARTED, window), [1, 5]);
    assert_eq!(of(&[beside, later], STARTED, window), [5]);
    assert_eq!(of(&[later], STARTED, (8.5, 9.0)), [0u32; 0], "it had gone");
    // Of an engine that was running nothing is known but who was there.
    let running = Whose::Running { since: s(5.0) };
    assert_eq!(of(&[before, beside, hidden, later], running, window), [5]);
}

#[test]
fn the_host_is_as_busy_as_what_is_nearest_to_its_limit() {
    let mut log = Readings::default();
    for n in 0..20u64 {
        log.push(HostReading {
            at: s(n as f64 / 2.0),
            // A quarter of the cores until 5 s, then half of them.
            cores: Some(Ticks { busy: 25 * n + 25 * n.saturating_sub(10), all: 100 * n }),
            // Of two cores that it may use one and a half.
            container: Some(Usage { seconds: 0.75 * n as f64, cores: 2.0 }),
            memory: Some(1000 * n),
        });
    }
    let host = |log: &Readings<HostReading>, from, to| fold(&[], log, STARTED, &[(s(from), s(to))]);
    let seen = host(&log, 1.0, 9.0);
    near(seen.host.cpu.unwrap().mean, 75.0);
    near(seen.host.memory.unwrap().mean, 10_000.0);
    assert_eq!(seen.samples, 17);
    let mut free = Readings::default();
    log.iter().for_each(|it| free.push(HostReading { container: None, ..*it }));
    let cpu = host(&free, 2.5, 7.5).host.cpu.unwrap();
    assert_eq!((cpu.min, cpu.mean, cpu.max), (25.0, 37.5, 50.0));
    // Readings that were asked for right after another say nothing by themselves.
    free.push(HostReading {
        at: s(9.51),
        cores: Some(Ticks { busy: 726, all: 1901 }),
        ..HostReading::default()
    });
    assert_eq!(host(&free, 7.0, 9.51).host.cpu.unwrap().max, 50.0);
}

#[test]
fn launches_are_joined_as_if_one_had_followed_the_other() {
    let of = |watts: f64, seconds: f64| {
        let log = gpu(&every(0.2, 20.0), power(move |_| watts));
        fold(&[log], &Readings::default(), STARTED, &[(s(1.0), s(1.0 + seconds))])
    };
    let (mut one, mut two) = (of(100.0, 6.0), of(400.0, 2.0));
    one.gpus[0].foreign = vec!["process 7".to_owned()];
    two.gpus[0].lost = Some("gone".to_owned());
    let both = join(&[&one, &two]).unwrap();
    assert_eq!((both.seconds, both.samples), (8.0, one.samples + two.samples));
    let gpu = &both.gpus[0];
    assert_eq!(gpu.energy, Some(1400.0));
    let series = gpu.power.as_ref().unwrap();
    assert_eq!((series.min, series.mean, series.max), (100.0, 175.0, 400.0));
    assert_eq!(gpu.foreign, ["in launch 1 of 2: process 7"]);
    assert_eq!(gpu.lost.as_deref(), Some("in launch 2 of 2: gone"));
    assert_eq!(join(&[&one]), Some(one.clone()));
    assert_eq!(join(&[]), None);
    two.gpus[0].energy = None;
    assert_eq!(join(&[&one, &two]).unwrap().gpus[0].energy, None, "of one it is not known");
}

type Pairs = Vec<(f64, f64)>;

/// Readings at rising times, and stretches of that time.
fn any_log() -> impl Strategy<Value = (Pairs, Pairs)> {
    let steps = prop::collection::vec((0.001..3.0f64, 0.0..1000.0f64), 0..60);
    let cuts = prop::collection::vec(0.0..2.0f64, 0..8);
    (steps, cuts).prop_map(|(steps, cuts)| {
        let mut at = 0.0;
        let readings = steps.into_iter().map(|(step, value)| {
            at += step;
            (at, value)
        });
        let readings = readings.collect();
        let mut at = 0.0;
        let ends: Vec<f64> = cuts
            .into_iter()
            .map(|cut| {
                at += cut + 0.01;
                at
            })
            .collect();
        (readings, ends.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    })
}

proptest! {
    #[test]
    fn of_any_readings_a_series_keeps_within_them((readings, stretches) in any_log()) {
        let mut log = gpu(&[], power(|_| 0.0));
        for (at, watts) in &readings {
            log.readings.push(Reading { at: s(*at), power: Some(*watts), ..Reading::default() });
        }
        let seen = folded(&log, &stretches);
        if let Some(series) = &seen.power {
            prop_assert!(series.min <= series.mean && series.mean <= series.max);
            prop_assert!(!series.points.is_empty() && series.points.len() <= POINTS);
            // Ends of stretches and what is drawn lie between readings.
            let least = readings.iter().map(|(_, watts)| *watts).fold(f64::MAX, f64::min);
            let most = readings.iter().map(|(_, watts)| *watts).fold(0.0, f64::max);
            for point in &series.points {
                let point = f64::from(*point);
                prop_assert!(point >= least * 0.999 - 1e-3 && point <= most * 1.001 + 1e-3);
            }
        }
        let text = serde_json::to_string(&seen).unwrap();
        prop_assert_eq!(serde_json::from_str::<GpuTelemetry>(&text).unwrap(), seen);
    }

    #[test]
    fn energy_of_two_halves_is_that_of_the_whole(
        watts in prop::collection::vec(0.0..1000.0f64, 30..60), cut in 1.0..5.0f64
    ) {
        let log = gpu(&every(0.2, 0.2 * (watts.len() - 1) as f64), power(|at| watts[(at / 0.2).round() as usize]));
        let whole = folded(&log, &[(0.5, 5.5)]).energy.unwrap();
        let halves = [(0.5, cut), (cut, 5.5)];
        let halves: Vec<_> = halves.into_iter().filter(|(a, b)| b > a).collect();
        let sum: f64 = halves.iter().map(|half| folded(&log, &[*half]).energy.unwrap()).sum();
        prop_assert!((sum - whole).abs() < 0.01, "{} and {}", sum, whole);
        let together = folded(&log, &halves).energy.unwrap();
        prop_assert!((together - whole).abs() < 0.01, "{} and {}", together, whole);
    }

    #[test]
    fn energy_is_that_of_the_mean_power((readings, stretches) in any_log()) {
        let mut log = gpu(&[], power(|_| 0.0));
        for (at, watts) in &readings {
            log.readings.push(Reading { at: s(*at), power: Some(*watts), ..Reading::default() });
        }
        let seen = folded(&log, &stretches);
        let seconds: f64 = stretches.iter().map(|(a, b)| length((s(*a), s(*b)))).sum();
        if let (Some(energy), Some(series)) = (seen.energy, seen.power) {
            prop_assert!((energy - series.mean * seconds).abs() < 0.01 + 1e-5 * energy);
        }
    }
}
