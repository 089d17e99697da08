//! `amd-smi`: what it calls static, what it measures, who is on a GPU, and its versions, each a document.
//!
//! A document is a list of GPUs, bare or as `gpu_data`.

use std::path::Path;

use serde_json::Value;

use super::{Census, Patience, ask, at, bytes, link, number, text, uuid, whole};
use crate::hardware::Gpu;
use crate::hardware::host::process_name;
use crate::hardware::occupancy::{Occupancy, Tenant};
use crate::hardware::probe::GpuNow;
use crate::hardware::visible::{Device, Found, Place};

/// Asks all of it at once: each answer takes the better part of a second.
pub(super) fn take(tool: &Path, patience: &Patience) -> Result<Census, String> {
    let [facts, now, processes, versions] = std::thread::scope(|scope| {
        let asked = [&["static"], &["metric"], &["process"], &["version"]]
            .map(|what: &[&str; 1]| scope.spawn(|| ask(tool, &[what[0], "--json"], patience)));
        asked.map(|it| it.join().unwrap_or_else(|_| Err("it could not be asked".to_owned())))
    });
    let mut census =
        census(&facts?, now.as_ref().ok(), processes.as_ref().ok(), versions.ok().as_ref());
    if census.places.is_empty() {
        return Err("it names no GPU".to_owned());
    }
    let more = [("metric", now.err()), ("process", processes.err())];
    let missing = more.into_iter().filter_map(|(what, why)| Some((what, why?)));
    census.notes.extend(missing.map(|(what, why)| format!("amd-smi {what}: {why}")));
    Ok(census)
}

/// What its documents say.
pub(super) fn census(
    facts: &Value,
    now: Option<&Value>,
    processes: Option<&Value>,
    versions: Option<&Value>,
) -> Census {
    let of = |document: Option<&Value>, index: u32| {
        document
            .and_then(|it| gpus(it).into_iter().find(|(at, _)| *at == index))
            .map(|it| it.1.clone())
    };
    let facts = gpus(facts);
    let places = facts.iter().map(|(index, facts)| {
        let gpu = gpu(*index, facts);
        let state = of(now, *index).unwrap_or_default();
        let tenants = of(processes, *index).map(|it| tenants(&it)).unwrap_or_default();
        let now = state_of(&gpu, &state, tenants);
        let whole = Found { gpu, now };
        Place::Device(Box::new(Device { whole, slices: Vec::new() }))
    });
    let first = facts.first().map(|(_, facts)| *facts);
    let driver = first.and_then(|it| at(it, &["driver.version", "driver.driver_version"]));
    let versions = versions.map(|it| it.get(0).unwrap_or(it));
    Census {
        places: places.collect(),
        driver: driver.and_then(text).map(|version| driver_version(&version)),
        rocm: versions.and_then(|it| at(it, &["rocm_version"])).and_then(text),
        notes: Vec::new(),
    }
}

/// The GPUs of a document with their places.
fn gpus(document: &Value) -> Vec<(u32, &Value)> {
    let list = document.get("gpu_data").unwrap_or(document);
    let list = list.as_array().map_or_else(|| vec![list], |list| list.iter().collect());
    let place = |gpu: &Value| u32::try_from(gpu.get("gpu")?.as_u64()?).ok();
    list.into_iter().filter_map(|gpu| Some((place(gpu)?, gpu))).collect()
}

fn gpu(index: u32, facts: &Value) -> Gpu {
    let name = at(facts, &["asic.market_name", "board.product_name"]).and_then(text);
    let memory = at(facts, &["vram.size", "vram.vram_size_mb", "vram.size_mb"]);
    let limit = [
        "limit.socket_power",
        "limit.socket_power_limit",
        "limit.ppt0.socket_power_limit",
        "limit.current_power",
        "limit.max_power",
    ];
    let width = at(facts, &["bus.max_pcie_width"]).and_then(whole);
    let generation = at(facts, &["bus.pcie_interface_version"]).and_then(text);
    let generation = generation.map(|it| it.to_lowercase().replace(' ', ""));
    let speed = at(facts, &["bus.max_pcie_speed"]).and_then(number);
    let pcie = width.and_then(|width| match (generation, speed) {
        (Some(generation), _) => Some(format!("{generation} x{width}")),
        (None, Some(speed)) => link(speed, width),
        (None, None) => None,
    });
    let ecc = at(facts, &["ras.ecc_block_state.UMC"]).and_then(text);
    Gpu {
        name: name.unwrap_or_else(|| format!("AMD GPU {index}")),
        memory: memory.and_then(|it| bytes(it, "MB")).unwrap_or_default(),
        index: Some(index),
        uuid: at(facts, &["asic.asic_serial"]).and_then(text).and_then(|serial| uuid(&serial)),
        ecc: ecc.and_then(|state| match state.as_str() {
            "ENABLED" => Some(true),
            "DISABLED" => Some(false),
            _ => None,
        }),
        power_limit: at(facts, &limit).and_then(number),
        max_sm_clock: greatest(facts, "sys"),
        max_memory_clock: greatest(facts, "mem"),
        pcie,
        ..Gpu::default()
    }
}

/// The greatest of the clocks that a domain can have.
fn greatest(facts: &Value, domain: &str) -> Option<u32> {
    let levels = facts.get("clock")?.get(domain)?.get("frequency_levels")?.as_object()?;
    levels.values().filter_map(whole).max()
}

fn state_of(gpu: &Gpu, state: &Value, tenants: Vec<Tenant>) -> GpuNow {
    let used = at(state, &["mem_usage.used_vram", "fb_usage.fb_used", "vram.used_vram"]);
    let width = at(state, &["pcie.width", "pcie.current_lanes"]).and_then(whole);
    let speed = at(state, &["pcie.speed", "pcie.current_speed"]).and_then(number);
    GpuNow {
        occupancy: Occupancy {
            index: gpu.index.unwrap_or_default(),
            name: gpu.name.clone(),
            used: used.and_then(|it| bytes(it, "MB")).unwrap_or_default(),
            tenants,
            graphics: Vec::new(),
        },
        sm_clock: at(state, &["clock.gfx_0.clk", "clock.gfx.clk"]).and_then(whole),
        memory_clock: at(state, &["clock.mem_0.clk", "clock.mem.clk"]).and_then(whole),
        pcie: speed.zip(width).and_then(|(speed, width)| link(speed, width)),
        temperature: at(state, &["temperature.hotspot", "temperature.edge"]).and_then(number),
        power: at(state, &["power.socket_power", "power.average_socket_power"]).and_then(number),
    }
}

/// The processes on a GPU. All of them compute: this driver tells no others.
fn tenants(gpu: &Value) -> Vec<Tenant> {
    let list = at(gpu, &["process_list", "processes"]).and_then(Value::as_array);
    let tenant = |entry: &Value| {
        // In place of the facts there may be a sentence: that none was found.
        let facts = entry.get("process_info").unwrap_or(entry);
        let pid = at(facts, &["pid"]).and_then(whole)?;
        let held = ["memory_usage.vram_mem", "vram_mem", "mem_usage", "mem"];
        let told = at(facts, &["name"]).and_then(text);
        Some(Tenant {
            pid,
            bytes: at(facts, &held).and_then(|it| bytes(it, "B")),
            name: process_name(pid).or(told.map(|name| base(&name).to_owned())),
        })
    };
    list.map(|list| list.iter().filter_map(tenant).collect()).unwrap_or_default()
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The driver's version. One that came with the kernel is told as the kernel's banner without blanks.
fn driver_version(told: &str) -> String {
    match told.strip_prefix("Linuxversion") {
        Some(kernel) => kernel.split('(').next().unwrap_or(kernel).to_owned(),
        None => told.to_owned(),
    }
}

#[cfg(test)]
mod tests;
