//! One upgrade carried out: a folder with the suite and both engines, and `tokgate run` in it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Change, ENGINE, SUITE};

/// Measures an old engine against a new one, in so many pairs; the record.
///
/// # Errors
/// It ended as no judged run does, in its own words; or the folder can't be written.
pub fn carry_out(
    mut tokgate: Command,
    folder: &Path,
    change: Change,
    pairs: u32,
    seed: u64,
) -> Result<Value, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    for (name, text) in
        [("suite.toml", SUITE), ("old.toml", ENGINE), ("new.toml", &change.profile())]
    {
        std::fs::write(folder.join(name), text).map_err(wrong)?;
    }
    let (pairs, seed) = (format!("compare.pairs={pairs}"), seed.to_string());
    tokgate.current_dir(folder).stdin(Stdio::null());
    tokgate.args(["run", "suite.toml", "--out", "out", "--no-progress"]);
    let output = tokgate.args(["--set", &pairs, "--seed", &seed]).output().map_err(wrong)?;
    match output.status.code() {
        Some(0 | 10) => {}
        Some(_) | None => {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("seed {seed}, {}: {}\n{said}", change.words(), output.status));
        }
    }
    let record = std::fs::read(folder.join("out/record.json")).map_err(wrong)?;
    serde_json::from_slice(&record).map_err(|error| format!("seed {seed}: {error}"))
}
