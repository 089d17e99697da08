//! Documents of real machines.

use super::*;
use crate::hardware::amd::document;

fn read(text: &str) -> Value {
    document(text).unwrap()
}

fn found(census: &Census) -> Vec<&Found> {
    census
        .places
        .iter()
        .filter_map(|place| match place {
            Place::Device(device) => Some(&device.whole),
            Place::Lost(_) => None,
        })
        .collect()
}

#[test]
fn the_static_document_has_the_facts() {
    let facts = read(include_str!("../../../../tests/data/amd/amd-smi-static-mi210.json"));
    let versions = read(include_str!("../../../../tests/data/amd/amd-smi-version.json"));
    let census = census(&facts, None, None, Some(&versions));
    assert_eq!(census.driver.as_deref(), Some("6.14.0-24-generic"), "out of the kernel's banner");
    assert_eq!(census.rocm.as_deref(), Some("7.0.2"));
    let gpu = &found(&census)[0].gpu;
    assert_eq!(
        *gpu,
        Gpu {
            name: "AMD Instinct MI210".to_owned(),
            memory: 65_520 << 20,
            index: Some(0),
            ecc: Some(true),
            power_limit: Some(300.0),
            max_sm_clock: Some(1700),
            max_memory_clock: Some(1600),
            pcie: Some("gen4 x16".to_owned()),
            ..Gpu::default()
        }
    );
}

#[test]
fn a_document_behind_warnings_is_read_and_what_it_lacks_is_absent() {
    let facts = read(include_str!("../../../../tests/data/amd/amd-smi-static-rx7800xt.txt"));
    let census = census(&facts, None, None, None);
    assert_eq!(census.driver, None);
    let found = found(&census);
    assert_eq!(found[0].gpu.name, "AMD Radeon RX 7800 XT");
    assert_eq!(found[0].gpu.uuid.as_deref(), Some("GPU-4162405e51bb99b0"));
    assert_eq!(found[0].gpu.memory, 16_368 << 20);
    assert_eq!((found[0].gpu.power_limit, found[0].gpu.ecc), (None, None));
    assert_eq!(found[0].now.power, None);
}

#[test]
fn what_it_measures_and_who_is_there_join_their_gpu() {
    let facts = read(include_str!("../../../../tests/data/amd/amd-smi-static-mi300x.txt"));
    let now = read(include_str!("../../../../tests/data/amd/amd-smi-metric-mi300x.json"));
    let who = read(include_str!("../../../../tests/data/amd/amd-smi-process-mi300x.json"));
    let census = census(&facts, Some(&now), Some(&who), None);
    assert_eq!(census.driver.as_deref(), Some("6.16.6"));
    let found = found(&census);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].gpu.power_limit, Some(750.0));
    assert_eq!(found[1].gpu.power_limit, Some(650.0), "the limit that is set, not the greatest");
    assert_eq!(found[0].gpu.uuid.as_deref(), Some("GPU-0136b01eaaeb0334"));
    assert_eq!(found[0].now.occupancy.used, 17_153 << 20);
    assert_eq!(found[0].now.power, Some(612.0));
    assert_eq!(found[1].now.power, None, "N/A is not 0");
    let tenants = &found[0].now.occupancy.tenants;
    assert_eq!((tenants[0].pid, tenants[0].bytes), (2_168_274, Some(17_986_224_128)));
    assert_eq!(tenants[0].name.as_deref(), Some("python3.12"));
    assert!(found[1].now.occupancy.tenants.is_empty(), "a sentence is no process");
}

#[test]
fn what_is_no_list_of_gpus_has_none() {
    for text in ["{}", "[]", "[7]", "{\"gpu_data\": {}}", "{\"gpu_data\": [{\"gpu\": \"N/A\"}]}"] {
        let census = census(&read(text), None, None, None);
        assert!(census.places.is_empty(), "{text}");
    }
}
