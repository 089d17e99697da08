//! One upgrade carried out: a folder with the suite and both engines, `tokgate run` in it, and what its record
//! says.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tokgate::judge::Estimate;
use tokgate::judge::paired::{Pair, order};

use super::rules::Said;
use super::{CELLS, CONTEXTS, Change, ENGINE, SUITE, Upgrade};

/// Measures an old engine against a new one, in so many pairs.
///
/// # Errors
/// It ended as no judged run does, in its own words; or the folder can't be written.
pub fn carry_out(
    mut tokgate: Command,
    folder: &Path,
    change: Change,
    pairs: u32,
    seed: u64,
) -> Result<Upgrade, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let suite = SUITE.replace("pairs = 8", &format!("pairs = {pairs}"));
    for (name, text) in
        [("suite.toml", suite.as_str()), ("old.toml", ENGINE), ("new.toml", &change.profile())]
    {
        std::fs::write(folder.join(name), text).map_err(wrong)?;
    }
    let seed = seed.to_string();
    tokgate.current_dir(folder).stdin(Stdio::null());
    tokgate.args(["run", "suite.toml", "--out", "out", "--no-progress"]);
    let output = tokgate.args(["--seed", &seed]).output().map_err(wrong)?;
    let told = |what: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("seed {seed}, {}, {}: {what}\n{said}", change.words(), output.status)
    };
    let red = match output.status.code() {
        Some(0) => false,
        Some(10) => true,
        Some(_) | None => return Err(told("it was not judged")),
    };
    let record = std::fs::read(folder.join("out/record.json")).map_err(wrong)?;
    let record = serde_json::from_slice(&record).map_err(|error| told(&error.to_string()))?;
    let upgrade = read(&record).ok_or_else(|| told("its record lacks something"))?;
    if upgrade.said.red() == red { Ok(upgrade) } else { Err(told("its record says otherwise")) }
}

/// What a record says of an upgrade; `None` where a cell lacks a value or a verdict.
fn read(record: &Value) -> Option<Upgrade> {
    let mut sides = [const { None::<&Value> }; 2 * CELLS];
    for (planned, cell) in
        record["header"]["cells"].as_array()?.iter().zip(record["cells"].as_array()?)
    {
        let axis = |index: usize, kind: &str| planned["axes"][index][1][kind].as_u64();
        let row = CONTEXTS.iter().position(|context| axis(0, "tokens") == Some(*context))?;
        let at = 6 * row + usize::try_from(axis(1, "integer")?.checked_sub(1)?).ok()?;
        let side = if planned["variant"] == "new" { CELLS } else { 0 };
        *sides.get_mut(side + at)? = Some(cell);
    }
    let mut upgrade = Upgrade {
        cells: Vec::with_capacity(CELLS),
        said: Said { whole: fails(&record["compare"]["judgement"])?, ..Said::default() },
        ratios: Vec::with_capacity(CELLS),
        mean: estimate(&record["compare"]["judgement"]),
        minutes: record["seconds"].as_f64()? / 60.0,
    };
    for (index, (old, new)) in sides[..CELLS].iter().zip(&sides[CELLS..]).enumerate() {
        let (old, new) = (rates((*old)?)?, rates((*new)?)?);
        let pair =
            |(index, (baseline, candidate))| Pair { order: order(index), baseline, candidate };
        upgrade.cells.push((0..).zip(old.into_iter().zip(new)).map(pair).collect());
        let judgement = &sides[CELLS + index]?["judgement"];
        if fails(judgement)? {
            upgrade.said.named.insert(index);
        }
        upgrade.ratios.push(estimate(judgement));
    }
    Some(upgrade)
}

/// The rate of each launch of a cell.
fn rates(cell: &Value) -> Option<Vec<f64>> {
    let observed = |round: &Value| {
        round["state"]["measured"]["observations"]["output-throughput"]["batches"]["rate"].as_f64()
    };
    cell["rounds"].as_array()?.iter().map(observed).collect()
}

/// Whether something that was judged fails.
fn fails(judgement: &Value) -> Option<bool> {
    match judgement["verdict"].as_str()? {
        "fail" => Some(true),
        "pass" | "inconclusive" => Some(false),
        _ => None,
    }
}

fn estimate(judgement: &Value) -> Option<Estimate> {
    serde_json::from_value(judgement["bounds"][0]["estimate"].clone()).ok()
}
