#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

#[allow(dead_code, reason = "each target uses one of them")]
#[path = "../../tests/fuzz/targets.rs"]
mod targets;

static FOLDER: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

fuzz_target!(|input: &[u8]| targets::suite(FOLDER.path(), input));
