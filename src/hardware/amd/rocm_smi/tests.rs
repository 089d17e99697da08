//! Documents of real machines.

use super::*;

fn read(text: &str) -> Census {
    census(&serde_json::from_str(text).unwrap())
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
fn cards_of_rocm_6_are_read() {
    let census = read(include_str!("../../../../tests/data/amd/rocm-smi-mi250-rocm6.json"));
    assert_eq!(census.driver.as_deref(), Some("6.2.4"));
    let found = found(&census);
    assert_eq!(
        found[0].gpu,
        Gpu {
            name: "AMD INSTINCT MI250 (MCM) OAM AC MBA".to_owned(),
            memory: 68_702_699_520,
            index: Some(0),
            uuid: Some("GPU-1f9de0957d137942".to_owned()),
            power_limit: Some(560.0),
            ..Gpu::default()
        }
    );
    let now = &found[0].now;
    assert_eq!((now.sm_clock, now.memory_clock), (Some(800), Some(1600)));
    assert_eq!((now.temperature, now.power), (Some(44.0), Some(91.0)));
    assert_eq!(now.pcie.as_deref(), Some("gen1 x8"));
    assert_eq!(now.occupancy.used, 8_600_780_800);
    // Of one card alone it is plain where a process is.
    let tenants = &now.occupancy.tenants;
    assert_eq!((tenants.len(), tenants[0].pid), (1, 1_905_799));
    assert_eq!(tenants[0].bytes, Some(8 << 30));
}

#[test]
fn cards_of_rocm_5_spell_their_names_otherwise_and_processes_have_no_card() {
    let census = read(include_str!("../../../../tests/data/amd/rocm-smi-mi210-rocm5.json"));
    let found = found(&census);
    let indices: Vec<_> = found.iter().map(|it| it.gpu.index).collect();
    assert_eq!(indices, [Some(0), Some(3)]);
    assert_eq!(found[0].gpu.name, "Instinct MI210");
    assert!(found.iter().all(|it| it.now.occupancy.tenants.is_empty()));
    assert_eq!(census.notes.len(), 1);
    let note = &census.notes[0];
    assert!(note.contains("process 1905799 ") && !note.contains("1905652"), "{note}");
}

#[test]
fn what_is_not_there_is_absent() {
    let census = read(include_str!("../../../../tests/data/amd/rocm-smi-rx7900xt.json"));
    let gpu = &found(&census)[0].gpu;
    assert_eq!((gpu.name.as_str(), gpu.memory), ("Radeon RX 7900 XT", 21_458_059_264));
    assert_eq!((gpu.power_limit, census.driver.clone()), (None, None));
    assert!(read("{\"system\": {}}").places.is_empty());
    assert!(read("[]").places.is_empty());
}
