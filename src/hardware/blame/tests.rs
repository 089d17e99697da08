//! Stretches of telemetry and what is suspicious of them.

use std::collections::BTreeMap;

use super::*;
use crate::hardware::telemetry::{HostTelemetry, Series};

fn flat(value: f64) -> Option<Series> {
    Some(Series { min: value, mean: value, max: value, points: vec![value as f32; 2] })
}

/// A GPU at work: 600 W, 1 980 MHz.
fn gpu(index: u32) -> GpuTelemetry {
    GpuTelemetry {
        index,
        name: "NVIDIA H200".into(),
        power: flat(600.0),
        utilisation: flat(97.0),
        sm_clock: flat(1980.0),
        temperature: flat(64.0),
        ecc_corrected: Some(0),
        ecc_uncorrected: Some(0),
        ..GpuTelemetry::default()
    }
}

fn at_cap(index: u32, clock: f64, power: f64) -> GpuTelemetry {
    GpuTelemetry {
        sm_clock: flat(clock),
        power: flat(power),
        throttled: BTreeMap::from([(Throttle::PowerCap, 1.0)]),
        ..gpu(index)
    }
}

fn stretch(gpus: impl IntoIterator<Item = GpuTelemetry>) -> Telemetry {
    let host = HostTelemetry { cpu: flat(12.0), memory: flat(64e9) };
    Telemetry { seconds: 30.0, samples: 150, gpus: gpus.into_iter().collect(), host, notes: vec![] }
}

const MEMORY: u64 = 256 << 30;

fn words(telemetry: &Telemetry, peers: Option<&Peers>) -> Vec<String> {
    suspicions(telemetry, peers, MEMORY).into_iter().map(|found| found.words).collect()
}

fn alone(changed: impl FnOnce(&mut GpuTelemetry)) -> Vec<String> {
    let mut gpu = gpu(3);
    changed(&mut gpu);
    words(&stretch([gpu]), None)
}

#[test]
fn a_gpu_at_its_power_cap_is_as_it_should_be() {
    assert_eq!(words(&stretch([gpu(0), gpu(1)]), None), [""; 0]);
    assert_eq!(words(&stretch([at_cap(0, 1600.0, 700.0)]), None), [""; 0]);
    let set = |gpu: &mut GpuTelemetry| {
        gpu.throttled = BTreeMap::from([(Throttle::ApplicationClocks, 1.0)]);
    };
    assert_eq!(alone(set), [""; 0], "somebody may want it so");
}

#[test]
fn heat_the_power_supply_and_the_hardware_are_told_with_their_share() {
    let of = |reason, share| alone(|gpu| gpu.throttled = BTreeMap::from([(reason, share)]));
    assert_eq!(
        of(Throttle::ThermalSoftware, 0.62),
        ["GPU 3 throttled by heat in 62 % of the time"]
    );
    assert_eq!(
        of(Throttle::ThermalHardware, 0.031),
        ["GPU 3 throttled by heat in 3.1 % of the time"]
    );
    assert_eq!(
        of(Throttle::PowerBrake, 1.0),
        ["GPU 3 throttled by the power supply in 100 % of the time"]
    );
    assert_eq!(
        of(Throttle::HardwareSlowdown, 0.5),
        ["GPU 3 slowed down by hardware in 50 % of the time"]
    );
    assert_eq!(of(Throttle::ThermalSoftware, 0.01), [""; 0], "it moves no mean");
    // The general reason is not told beside the particular one.
    let both = alone(|gpu| {
        gpu.throttled =
            BTreeMap::from([(Throttle::ThermalHardware, 0.4), (Throttle::HardwareSlowdown, 0.4)]);
    });
    assert_eq!(both, ["GPU 3 throttled by heat in 40 % of the time"]);
    assert_eq!(of(Throttle::PowerBrake, f64::NAN), [""; 0]);
}

#[test]
fn one_sample_of_many_is_a_moment_and_the_only_one_is_all_there_is() {
    let hot = |samples, share| {
        let throttled = BTreeMap::from([(Throttle::ThermalSoftware, share)]);
        let telemetry = Telemetry { samples, ..stretch([GpuTelemetry { throttled, ..gpu(0) }]) };
        words(&telemetry, None).len()
    };
    assert_eq!((hot(20, 0.05), hot(20, 0.1), hot(1, 1.0), hot(2, 0.5)), (0, 1, 1, 0));
}

#[test]
fn gpus_of_one_reason_are_told_together() {
    let hot = |index, share| GpuTelemetry {
        throttled: BTreeMap::from([(Throttle::ThermalSoftware, share)]),
        ..gpu(index)
    };
    let all = stretch((0..8).map(|index| hot(index, 0.1 + 0.05 * f64::from(index))));
    assert_eq!(words(&all, None), ["GPUs 0 to 7 throttled by heat in up to 45 % of the time"]);
    let some = stretch([hot(0, 0.1), gpu(1), hot(2, 0.2), hot(5, 0.2)]);
    assert_eq!(words(&some, None), ["GPUs 0, 2 and 5 throttled by heat in up to 20 % of the time"]);
    assert_eq!(suspicions(&some, None, MEMORY)[0].gpus, [0, 2, 5]);
}

/// The same GPU in cells of growing concurrency: it takes more power, and at the cap its clocks fall.
fn cells() -> Vec<Telemetry> {
    [(1980.0, 320.0), (1980.0, 410.0), (1950.0, 560.0), (1800.0, 690.0), (1500.0, 700.0)]
        .map(|(clock, power)| stretch([at_cap(0, clock, power)]))
        .to_vec()
}

#[test]
fn a_large_batch_at_the_cap_clocks_lower_by_itself() {
    let cells = cells();
    let peers = Peers::of(&cells);
    for cell in &cells {
        assert_eq!(words(cell, Some(&peers)), [""; 0]);
    }
}

#[test]
fn clocks_below_the_other_cells_with_no_more_power_are_suspicious() {
    let mut cells = cells();
    cells.push(stretch([at_cap(0, 1200.0, 300.0)]));
    let peers = Peers::of(&cells);
    assert_eq!(
        words(&cells[5], Some(&peers)),
        [
            "GPU 0 ran 38 % below its clocks in other cells (SM clock 1 200 MHz, 1 950 MHz in other cells), \
          at its power cap"
        ]
    );
    // Without a reason it had nothing to do.
    cells[5].gpus[0].throttled.clear();
    assert_eq!(words(&cells[5], Some(&peers)), [""; 0]);
    // Its power unknown, a lowered cap and a large batch look alike; clocks that were set do not.
    cells[5].gpus[0].power = None;
    cells[5].gpus[0].throttled = BTreeMap::from([(Throttle::PowerCap, 1.0)]);
    assert_eq!(words(&cells[5], Some(&peers)), [""; 0]);
    cells[5].gpus[0].throttled = BTreeMap::from([(Throttle::ApplicationClocks, 1.0)]);
    assert!(words(&cells[5], Some(&peers))[0].ends_with(", at clocks that are set"));
    // Too few cells make no median, and another GPU is no peer.
    assert_eq!(words(&cells[5], Some(&Peers::of(&cells[3..]))), [""; 0]);
    let other = stretch([GpuTelemetry { index: 1, ..cells[5].gpus[0].clone() }]);
    assert_eq!(words(&other, Some(&peers)), [""; 0]);
}

#[test]
fn what_throttled_has_its_clocks_beside_it() {
    let mut cells = cells();
    let mut hot = at_cap(0, 1305.0, 420.0);
    hot.throttled.insert(Throttle::ThermalHardware, 0.62);
    cells.push(stretch([hot]));
    assert_eq!(
        words(&cells[5], Some(&Peers::of(&cells))),
        [
            "GPU 0 throttled by heat in 62 % of the time (SM clock 1 305 MHz, 1 950 MHz in other cells)"
        ]
    );
}

#[test]
fn a_lost_gpu_comes_first_then_what_the_driver_told() {
    let found = alone(|gpu| {
        gpu.lost = Some("GPU is lost".into());
        gpu.xid = vec![79, 119, 79, 31, 999];
        (gpu.ecc_uncorrected, gpu.ecc_corrected) = (Some(1), Some(340));
        gpu.foreign = vec!["process 4711 (train.py)".into()];
    });
    assert_eq!(
        found,
        [
            "GPU 3 was lost: GPU is lost",
            "GPU 3 had an error, Xid 79 (it has fallen off the bus)",
            "GPU 3 had an error, Xid 119 (its system processor does not answer)",
            "GPU 3 had an error, Xid 999",
            "GPU 3 had a memory error that ECC could not correct",
            "GPU 3 had 340 memory errors that ECC corrected",
            "GPU 3 also computed for process 4711 (train.py)",
        ]
    );
    assert_eq!(
        told(found.iter().map(String::as_str)),
        format!("{}; {}; {}; and 4 more", found[0], found[1], found[2])
    );
    let few = alone(|gpu| (gpu.ecc_corrected, gpu.xid) = (Some(2), vec![13, 43]));
    assert_eq!(few, [""; 0], "ECC does its work, and a program's faults are its own");
}

#[test]
fn a_process_on_several_gpus_is_told_once() {
    let with = |index| GpuTelemetry { foreign: vec!["process 7 (train)".into()], ..gpu(index) };
    let found = words(&stretch([with(0), with(1), gpu(2), with(4)]), None);
    assert_eq!(found, ["GPUs 0, 1 and 4 also computed for process 7 (train)"]);
}

#[test]
fn a_saturated_host_is_suspicious_where_gpus_have_to_be_fed() {
    let mut telemetry = stretch([gpu(0)]);
    telemetry.host.cpu = flat(97.4);
    assert_eq!(words(&telemetry, None), ["the host's CPU was saturated, 97 % on average"]);
    telemetry.gpus[0].utilisation = flat(0.0);
    assert_eq!(words(&telemetry, None), [""; 0], "the engine does not use it");
    telemetry.gpus.clear();
    assert_eq!(words(&telemetry, None), [""; 0], "an engine on the CPU takes all of it");
    telemetry.host.memory = flat(255.0 * f64::from(1 << 30));
    assert_eq!(words(&telemetry, None), ["the host's memory was nearly full, 255 of 256 GiB"]);
    assert!(suspicions(&telemetry, None, 0).is_empty(), "nobody knows how much it has");
}

#[test]
fn the_median_leaves_its_own_out() {
    assert_eq!(median_without(&[1.0, 2.0, 3.0, 4.0], 1.0), Some(3.0));
    assert_eq!(median_without(&[1.0, 2.0, 3.0, 4.0], 4.0), Some(2.0));
    assert_eq!(median_without(&[1.0, 2.0, 3.0], 2.5), Some(2.0), "it is not among them");
    assert_eq!(median_without(&[1.0, 2.0, 3.0], 2.0), None);
}
