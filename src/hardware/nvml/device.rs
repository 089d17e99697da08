//! One GPU as the driver describes it, with its slices (MIG), and how it is right now.
//!
//! What a driver does not tell is absent; a GPU that gets lost meanwhile is an error.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device as Handle, Nvml};

use crate::hardware::Gpu;
use crate::hardware::host::process_name;
use crate::hardware::occupancy::{Occupancy, Tenant};
use crate::hardware::probe::GpuNow;
use crate::hardware::visible::{Device, Found, Slice};

/// A GPU has at most so many links to others.
const NVLINKS: u32 = 18;

/// Reads a GPU.
///
/// # Errors
/// The driver can't be asked about it.
pub(super) fn read(nvml: &Nvml, index: u32) -> Result<Device, NvmlError> {
    let handle = nvml.device_by_index(index)?;
    let mig = told(handle.mig_mode())?.map(|mode| mode.current == 1);
    let memory = match handle.memory_info() {
        Ok(memory) => (memory.total, memory.used),
        // Of a GPU in slices only an administrator is told.
        Err(error) if mig == Some(true) => told(Err(error))?.unwrap_or_default(),
        Err(error) => return Err(error),
    };
    let link = |generation, width| Some((told(generation).ok()??, told(width).ok()??));
    let most = link(handle.max_pcie_link_gen(), handle.max_pcie_link_width());
    let current = link(handle.current_pcie_link_gen(), handle.current_pcie_link_width());
    let gpu = Gpu {
        name: handle.name()?,
        memory: memory.0,
        index: Some(index),
        uuid: told(handle.uuid())?,
        slice: None,
        mig,
        ecc: told(handle.is_ecc_enabled())?.map(|ecc| ecc.currently_enabled),
        power_limit: told(handle.enforced_power_limit())?.map(watts),
        max_sm_clock: told(handle.max_clock_info(Clock::SM))?,
        max_memory_clock: told(handle.max_clock_info(Clock::Memory))?,
        pcie: most.map(pcie),
        nvlinks: nvlinks(&handle),
    };
    let now = GpuNow {
        occupancy: occupancy(&handle, index, gpu.name.clone(), memory.1),
        sm_clock: told(handle.clock_info(Clock::SM))?,
        memory_clock: told(handle.clock_info(Clock::Memory))?,
        pcie: current.map(pcie),
        temperature: told(handle.temperature(TemperatureSensor::Gpu))?.map(f64::from),
        power: told(handle.power_usage())?.map(watts),
    };
    let slices = if mig == Some(true) { slices(nvml, &handle, &gpu)? } else { Vec::new() };
    Ok(Device { whole: Found { gpu, now }, slices })
}

/// The slices that a GPU is cut into.
fn slices(nvml: &Nvml, handle: &Handle<'_>, of: &Gpu) -> Result<Vec<Slice>, NvmlError> {
    let most = told(handle.mig_device_count())?.unwrap_or(0);
    let mut slices = Vec::new();
    for nth in 0..most {
        // Not every number has a slice.
        let Some(slice) = told(handle.mig_device_by_index(nth))? else { continue };
        let memory = slice.memory_info()?;
        let profile = told(slice.name())?.and_then(|name| profile(&name).map(str::to_owned));
        let gpu = Gpu {
            name: of.name.clone(),
            memory: memory.total,
            index: of.index,
            uuid: told(slice.uuid())?,
            slice: profile.or_else(|| sizes(&slice)).or_else(|| Some("MIG".to_owned())),
            ecc: of.ecc,
            ..Gpu::default()
        };
        let index = of.index.unwrap_or_default();
        let occupancy = occupancy(&slice, index, of.name.clone(), memory.used);
        let found = Found { gpu, now: GpuNow { occupancy, ..GpuNow::default() } };
        slices.push(Slice { found, instance: instance(nvml, &slice) });
    }
    Ok(slices)
}

/// The profile in a slice's name, like `NVIDIA H200 MIG 3g.71gb`.
fn profile(name: &str) -> Option<&str> {
    name.rsplit_once(" MIG ").map(|(_, profile)| profile.trim())
}

/// The profile by a slice's sizes, where its name does not tell.
fn sizes(slice: &Handle<'_>) -> Option<String> {
    let sizes = slice.attributes().ok()?;
    let (of_gpu, of_compute) = (sizes.gpu_instance_slice_count, sizes.compute_instance_slice_count);
    let part = if of_compute == of_gpu { String::new() } else { format!("{of_compute}c.") };
    Some(format!("{part}{of_gpu}g.{}gb", sizes.memory_size_mb.div_ceil(1024)))
}

/// The numbers of a slice's GPU instance and compute instance, which older spellings name it by. The wrapper lacks the
/// two functions.
#[allow(unsafe_code)]
fn instance(nvml: &Nvml, slice: &Handle<'_>) -> Option<(u32, u32)> {
    let library = nvml.lib();
    let of_gpu = library.nvmlDeviceGetGpuInstanceId.as_ref().ok()?;
    let of_compute = library.nvmlDeviceGetComputeInstanceId.as_ref().ok()?;
    let (mut gpu, mut compute) = (0, 0);
    // SAFETY: the handle comes from this library, which is still loaded, and each function writes one number.
    let answers =
        unsafe { [of_gpu(slice.handle(), &mut gpu), of_compute(slice.handle(), &mut compute)] };
    (answers == [0, 0]).then_some((gpu, compute))
}

/// What a GPU or a slice of one holds.
pub(super) fn occupancy(handle: &Handle<'_>, index: u32, name: String, used: u64) -> Occupancy {
    // Some drivers and containers name no processes.
    let compute = handle.running_compute_processes().unwrap_or_default();
    let mut graphics = handle.running_graphics_processes().unwrap_or_default();
    // A process that does both stands in both lists.
    graphics.retain(|it| !compute.iter().any(|other| other.pid == it.pid));
    Occupancy { index, name, used, tenants: tenants(compute), graphics: tenants(graphics) }
}

fn tenants(processes: Vec<ProcessInfo>) -> Vec<Tenant> {
    let tenant = |process: ProcessInfo| Tenant {
        pid: process.pid,
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
        name: process_name(process.pid),
    };
    processes.into_iter().map(tenant).collect()
}

/// How many of its links to other GPUs are up; none where it has no such links.
fn nvlinks(handle: &Handle<'_>) -> Option<u32> {
    let links = (0..NVLINKS).map_while(|link| handle.link_wrapper_for(link).is_active().ok());
    let links: Vec<bool> = links.collect();
    let up = links.iter().filter(|up| **up).count();
    (!links.is_empty()).then(|| u32::try_from(up).unwrap_or(u32::MAX))
}

/// What the driver told; nothing where it does not tell that of this GPU.
fn told<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn pcie((generation, width): (u32, u32)) -> String {
    format!("gen{generation} x{width}")
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_s_name_ends_with_its_profile() {
        assert_eq!(profile("NVIDIA H200 MIG 3g.71gb"), Some("3g.71gb"));
        assert_eq!(profile("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), Some("1c.3g.20gb"));
        assert_eq!(profile("NVIDIA H200"), None);
    }
}
