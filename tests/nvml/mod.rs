//! A stub of the driver's library, so that what GPUs say is tested without one: `nvml.c` says how it is
//! scripted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that names the stub's script.
pub const SCRIPT: &str = "NVML_STUB";

/// The built stub, to be named in `TOKGATE_NVML`; `None`, said aloud, where there is no C compiler.
pub fn library() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: what GPUs say, since there is no C compiler (cc) to build a stub with");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = folder.join(format!("nvml-{}.so", std::process::id()));
    let source = crate::harness::shipped("tests/nvml/nvml.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&built).arg(source);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // By one name, however many test processes there were.
    let library = folder.join("nvml-stub.so");
    std::fs::rename(built, &library).unwrap();
    Some(library)
}
