//! `rocm-smi`: one document, an object for each `cardN` and one for the system, all values texts.

use std::path::Path;

use serde_json::Value;

use super::{Census, Patience, ask, bytes, is_told, link, number, text, uuid, whole};
use crate::hardware::Gpu;
use crate::hardware::host::process_name;
use crate::hardware::occupancy::{Occupancy, Tenant};
use crate::hardware::probe::GpuNow;
use crate::hardware::visible::{Device, Found, Place};

/// What it is asked, beside `--json`.
const QUESTIONS: [&str; 11] = [
    "--showproductname",
    "--showuniqueid",
    "--showdriverversion",
    "--showtemp",
    "--showpower",
    "--showmaxpower",
    "--showclocks",
    "--showpids",
    "--showmeminfo",
    "vram",
    "--json",
];

/// Asks it.
pub(super) fn take(tool: &Path, patience: &Patience) -> Result<Census, String> {
    let census = census(&ask(tool, &QUESTIONS, patience)?);
    if census.places.is_empty() { Err("it names no GPU".to_owned()) } else { Ok(census) }
}

/// What its document says.
pub(super) fn census(document: &Value) -> Census {
    let mut cards: Vec<(u32, &Value)> = document
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, card)| Some((key.strip_prefix("card")?.parse().ok()?, card)))
        .collect();
    cards.sort_by_key(|(index, _)| *index);
    let system = document.get("system");
    let mut tenants = system.map(tenants).unwrap_or_default();
    let mut notes = Vec::new();
    if cards.len() > 1 && !tenants.is_empty() {
        let names: Vec<String> = tenants.iter().map(ToString::to_string).collect();
        notes.push(format!("rocm-smi does not say on which GPU: {}", names.join(", ")));
        tenants.clear();
    }
    let places = cards.into_iter().map(|(index, card)| {
        let whole = card_of(index, card, tenants.clone());
        Place::Device(Box::new(Device { whole, slices: Vec::new() }))
    });
    Census {
        places: places.collect(),
        driver: system.and_then(|it| at(it, "Driver version")).and_then(text),
        rocm: None,
        notes,
    }
}

fn card_of(index: u32, card: &Value, tenants: Vec<Tenant>) -> Found {
    let names = ["Card Series", "Card series", "Device Name", "Card Model", "Card model"];
    let name = names
        .into_iter()
        .filter_map(|key| at(card, key).and_then(text))
        .find(|name| !name.starts_with("0x"));
    let name = name.unwrap_or_else(|| format!("AMD GPU {index}"));
    let one = |keys: &[&str]| keys.iter().find_map(|key| at(card, key));
    let gpu = Gpu {
        name: name.clone(),
        memory: one(&["VRAM Total Memory (B)"]).and_then(|it| bytes(it, "B")).unwrap_or_default(),
        index: Some(index),
        uuid: one(&["Unique ID"]).and_then(text).and_then(|serial| uuid(&serial)),
        power_limit: one(&["Max Graphics Package Power (W)"]).and_then(number),
        ..Gpu::default()
    };
    let used = one(&["VRAM Total Used Memory (B)"]).and_then(|it| bytes(it, "B"));
    let power = ["Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)"];
    let hot = ["Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"];
    let now = GpuNow {
        occupancy: Occupancy {
            index,
            name,
            used: used.unwrap_or_default(),
            tenants,
            graphics: Vec::new(),
        },
        sm_clock: one(&["sclk clock speed:"]).and_then(whole),
        memory_clock: one(&["mclk clock speed:"]).and_then(whole),
        pcie: one(&["pcie clock level"]).and_then(text).and_then(|level| pcie(&level)),
        temperature: one(&hot).and_then(number),
        power: one(&power).and_then(number),
    };
    Found { gpu, now }
}

/// The value of a key, where there is one.
fn at<'a>(card: &'a Value, key: &str) -> Option<&'a Value> {
    card.get(key).filter(|it| is_told(it))
}

/// A link in words like `3 (16.0GT/s x16)`.
fn pcie(level: &str) -> Option<String> {
    let (_, told) = level.split_once('(')?;
    let (speed, width) = told.trim_end_matches(')').split_once("GT/s x")?;
    link(speed.trim().parse().ok()?, width.trim().parse().ok()?)
}

/// The processes: `"PID1905652": "name, GPUs, memory, …"`. Those that hold none only look at GPUs, as this tool does.
fn tenants(system: &Value) -> Vec<Tenant> {
    let tenant = |(key, told): (&String, &Value)| {
        let pid = key.strip_prefix("PID")?.parse().ok()?;
        let mut parts = told.as_str()?.split(',').map(str::trim);
        let name = parts.next().filter(|name| !matches!(*name, "" | "UNKNOWN"));
        let bytes = parts.nth(1).and_then(|it| it.parse().ok()).filter(|bytes| *bytes > 0)?;
        let name = process_name(pid).or(name.map(str::to_owned));
        Some(Tenant { pid, bytes: Some(bytes), name })
    };
    system.as_object().into_iter().flatten().filter_map(tenant).collect()
}

#[cfg(test)]
mod tests;
