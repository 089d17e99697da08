//! Engines that crash, hang, refuse: whose fault it is, what is told, and what goes on.

use std::path::Path;

use crate::soak::soak;

#[test]
fn a_short_soak_ends_clean() {
    let folder = tempfile::tempdir().unwrap();
    let soaked = soak(Path::new(env!("CARGO_BIN_EXE_tokgate")), folder.path(), 11, 6);
    assert!(soaked.broken.is_empty(), "{}", soaked.table());
}
