//! Which GPUs an engine sees, as examples.

use super::*;

fn gpu(index: u32, name: &str) -> Gpu {
    Gpu {
        name: name.to_owned(),
        memory: 1 << 37,
        index: Some(index),
        uuid: Some(format!("GPU-{index}{index}aa")),
        mig: Some(false),
        ..Gpu::default()
    }
}

fn place(gpu: Gpu) -> Place {
    let whole = Found { gpu, now: GpuNow::default() };
    Place::Device(Box::new(Device { whole, slices: Vec::new() }))
}

fn four() -> Vec<Place> {
    (0..4).map(|at| place(gpu(at, "H200"))).collect()
}

/// A GPU that is cut into a slice of each of these profiles.
fn cut(index: u32, profiles: &[&str]) -> Place {
    let mut whole = gpu(index, "H200");
    whole.mig = Some(true);
    let slices = (1u32..).zip(profiles).map(|(nth, profile)| {
        let uuid = Some(format!("MIG-{index}{nth}bb-cc"));
        let memory = 1 << 34;
        let slice = Some((*profile).to_owned());
        let gpu = Gpu { uuid, memory, slice, ..gpu(index, "H200") };
        Slice { found: Found { gpu, now: GpuNow::default() }, instance: Some((nth + 2, 0)) }
    });
    let whole = Found { gpu: whole, now: GpuNow::default() };
    let slices = slices.collect();
    Place::Device(Box::new(Device { whole, slices }))
}

fn with(pairs: &[(&str, &str)]) -> Visible {
    let value = |name: &str| pairs.iter().find(|(key, _)| *key == name);
    Visible::of(|name| value(name).map(|(_, value)| (*value).to_owned()))
}

/// Places and slices that are seen.
fn words(choice: &Choice) -> Vec<String> {
    let word = |found: &Found| {
        let slice = found.gpu.slice.as_ref().map(|slice| format!(" {slice}")).unwrap_or_default();
        format!("{}{slice}", found.gpu.index.unwrap())
    };
    choice.seen.iter().map(word).collect()
}

fn cuda(list: &str, places: &[Place]) -> (Vec<String>, String) {
    let choice = with(&[("CUDA_VISIBLE_DEVICES", list)]).cuda(places);
    (words(&choice), choice.why.join("; "))
}

fn shown(list: &str) -> Vec<String> {
    cuda(list, &four()).0
}

#[test]
fn without_a_variable_every_gpu_is_seen() {
    let choice = Visible::default().cuda(&four());
    assert_eq!(words(&choice), ["0", "1", "2", "3"]);
    assert!(choice.why.is_empty() && choice.notes.is_empty(), "{choice:?}");
}

#[test]
fn the_engine_sees_what_cuda_visible_devices_shows() {
    assert_eq!(shown("2,0"), ["2", "0"]);
    assert_eq!(shown("GPU-33, 1"), ["3", "1"]);
    // As the C library reads numbers.
    assert_eq!(shown("+1gpu2, 3x"), ["1", "3"]);
    // The first that is no GPU ends the list.
    assert_eq!(shown("0,-1,2"), ["0"]);
    assert_eq!(shown("0,9,2"), ["0"]);
    // An id may be cut short as long as it names one GPU.
    assert_eq!(shown("GPU-3,GPU-,1"), ["3"]);
    for nothing in ["", "-1", "NoDevFiles", "none", "1,2,1", "GPU-11aa,1"] {
        assert!(shown(nothing).is_empty(), "{nothing}");
    }
}

#[test]
fn what_is_hidden_is_told_and_why() {
    let why = |list: &str| cuda(list, &four()).1;
    assert_eq!(why("1"), "CUDA_VISIBLE_DEVICES=\"1\" shows 1 of 4 GPUs");
    assert_eq!(why("-1"), "CUDA_VISIBLE_DEVICES=\"-1\" shows 0 of 4 GPUs");
    assert_eq!(why("0,7"), "CUDA_VISIBLE_DEVICES=\"0,7\" shows 1 of 4 GPUs: there is no 7");
    assert_eq!(
        why("0,1,2,3,GPU-9"),
        "CUDA_VISIBLE_DEVICES=\"0,1,2,3,GPU-9\" shows 4 of 4 GPUs: there is no GPU-9"
    );
    assert_eq!(why("2,2"), "CUDA_VISIBLE_DEVICES=\"2,2\" shows 0 of 4 GPUs: 2 stands there twice");
    assert_eq!(why("3,2,1,0"), "");
}

#[test]
fn numbers_are_places_in_the_driver_s_order_lost_gpus_included() {
    let mut places = four();
    places[1] = Place::Lost(Lost { index: 1, why: "fell off the bus".to_owned() });
    assert_eq!(cuda("1,2", &places).0, ["2"]);
    assert_eq!(words(&Visible::default().cuda(&places)), ["0", "2", "3"]);
}

#[test]
fn an_order_that_may_be_another_is_told_where_it_matters() {
    let notes = |pairs: &[(&str, &str)], places: &[Place]| with(pairs).cuda(places).notes.len();
    let mut unlike = four();
    unlike[3] = place(gpu(3, "RTX 2000"));
    let numbers = ("CUDA_VISIBLE_DEVICES", "1,3");
    assert_eq!(notes(&[numbers], &unlike), 1);
    assert_eq!(notes(&[numbers, ("CUDA_DEVICE_ORDER", "FASTEST_FIRST")], &unlike), 1);
    assert_eq!(notes(&[numbers, ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], &unlike), 0);
    assert_eq!(notes(&[numbers], &four()), 0, "alike");
    assert_eq!(notes(&[("CUDA_VISIBLE_DEVICES", "GPU-33")], &unlike), 0, "an id is no number");
}

#[test]
fn a_slice_is_named_in_either_spelling() {
    let places = [place(gpu(0, "H200")), cut(1, &["3g.71gb", "1g.18gb"])];
    let shown = |list: &str| cuda(list, &places).0;
    assert_eq!(shown("MIG-12bb-cc"), ["1 1g.18gb"]);
    assert_eq!(shown("MIG-12"), ["1 1g.18gb"]);
    assert_eq!(shown("MIG-GPU-11aa/3/0"), ["1 3g.71gb"]);
    assert_eq!(shown("MIG-GPU-11aa/4/0"), ["1 1g.18gb"]);
    // Another instance, another GPU, several slices: no slice.
    for none in ["MIG-GPU-11aa/4/1", "MIG-GPU-00aa/3/0", "MIG-1", "MIG-GPU-11aa/x"] {
        assert!(shown(none).is_empty(), "{none}");
    }
    // The number of a GPU that is cut is its first slice.
    assert_eq!(shown("1"), ["1 3g.71gb"]);
    let choice = with(&[("CUDA_VISIBLE_DEVICES", "MIG-11bb,MIG-12bb")]).cuda(&places);
    assert_eq!(words(&choice), ["1 3g.71gb", "1 1g.18gb"]);
    assert!(choice.notes[0].contains("one process sees the first"), "{:?}", choice.notes);
}

#[test]
fn a_process_sees_one_slice_and_no_gpu_beside_it() {
    let places = [place(gpu(0, "H200")), cut(1, &["3g.71gb", "1g.18gb"])];
    let choice = Visible::default().cuda(&places);
    assert_eq!(words(&choice), ["1 3g.71gb"]);
    assert_eq!(
        choice.why,
        [
            "beside a slice (MIG) CUDA shows no whole GPU: 1 hidden",
            "CUDA shows a process one slice (MIG), and there are 2: CUDA_VISIBLE_DEVICES names another",
        ]
    );
    assert_eq!(cuda("0", &places).0, ["0"]);
    let (shown, why) = cuda("0,MIG-12bb", &places);
    assert_eq!(shown, ["1 1g.18gb"]);
    assert!(why.contains("no whole GPU"), "{why}");
    // In MIG mode without slices there is nothing to see.
    let choice = Visible::default().cuda(&[cut(0, &[])]);
    assert!(choice.seen.is_empty());
    assert!(choice.why[0].contains("in MIG mode and has no slice"), "{:?}", choice.why);
}

#[test]
fn rocm_counts_what_the_variable_before_has_left() {
    let rocm = |pairs: &[(&str, &str)]| words(&with(pairs).rocm(&four()));
    let rocr = ("ROCR_VISIBLE_DEVICES", "3,1");
    let hip = ("HIP_VISIBLE_DEVICES", "1");
    let cuda = ("CUDA_VISIBLE_DEVICES", "0");
    assert_eq!(rocm(&[]), ["0", "1", "2", "3"]);
    assert_eq!(rocm(&[rocr]), ["3", "1"]);
    assert_eq!(rocm(&[rocr, hip]), ["1"]);
    assert_eq!(rocm(&[rocr, cuda]), ["3"], "in place of HIP_VISIBLE_DEVICES");
    assert_eq!(rocm(&[hip, cuda]), ["1"], "not beside it");
    assert_eq!(rocm(&[("ROCR_VISIBLE_DEVICES", "GPU-22AA,0")]), ["2", "0"]);
    let why = with(&[rocr, hip]).rocm(&four()).why;
    assert!(why.contains(&"ROCR_VISIBLE_DEVICES=\"3,1\" shows 2 of 4 GPUs".to_owned()), "{why:?}");
    assert!(why.contains(&"HIP_VISIBLE_DEVICES=\"1\" shows 1 of 2 GPUs".to_owned()), "{why:?}");
}

#[test]
fn what_a_container_was_given_is_a_word_on_a_driver_that_is_not_there() {
    let word = |given: &str| with(&[("NVIDIA_VISIBLE_DEVICES", given)]).container().unwrap();
    assert!(word("void").contains("gives this container no GPU"));
    assert!(word("all").contains("NVIDIA runtime?"));
    assert_eq!(Visible::default().container(), None);
}

proptest::proptest! {
    #[test]
    fn whatever_a_list_says_each_gpu_is_seen_once_at_most(list in "([0-9GPU,+ -]|MIG-|GPU-[0-3]{2}aa|\\PC){0,12}") {
        let places = [place(gpu(0, "H200")), cut(1, &["3g.71gb", "1g.18gb"]), place(gpu(2, "H100"))];
        for variable in ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] {
            let visible = with(&[(variable, &list)]);
            for choice in [visible.cuda(&places), visible.rocm(&places)] {
                let mut seen: Vec<_> = choice.seen.iter().map(|found| &found.gpu.uuid).collect();
                let all = seen.len();
                seen.sort();
                seen.dedup();
                proptest::prop_assert_eq!(seen.len(), all);
            }
        }
    }
}
