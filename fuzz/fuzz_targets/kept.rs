#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target uses one of them")]
#[path = "../../tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|input: &[u8]| targets::kept(input));
