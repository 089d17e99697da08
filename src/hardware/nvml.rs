//! GPUs as the NVIDIA driver's management library (NVML) names them.
//!
//! The library is loaded at run time: without a driver there is no GPU and a word why, never a
//! failure. `TOKGATE_NVML` names another library file. Which GPUs an engine sees follows
//! `CUDA_VISIBLE_DEVICES`, whose numbers are taken in NVML's order.

use std::ffi::{OsStr, OsString};

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::Gpu;
use super::occupancy::{Occupancy, Tenant};

pub(super) mod reading;

/// Names a library file to load in place of the driver's.
pub const LIBRARY_VARIABLE: &str = "TOKGATE_NVML";

/// Where the driver's library may be: its package names the first, development packages the second.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The loaded library.
pub struct Library {
    nvml: Nvml,
}

/// What the library says.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    pub(super) gpus: Vec<Gpu>,
    pub(super) driver: Option<String>,
    pub(super) note: Option<String>,
}

impl Library {
    /// Loads the library: the file that [`LIBRARY_VARIABLE`] names, else the driver's.
    ///
    /// # Errors
    /// There is none, or no driver behind it; in words.
    pub fn load() -> Result<Library, String> {
        match std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Library::open(&path).map_err(|error| {
                format!("{LIBRARY_VARIABLE} = {}: {}", path.to_string_lossy(), words(&error))
            }),
            None => {
                let mut last = None;
                for name in LIBRARIES {
                    match Library::open(OsStr::new(name)) {
                        Ok(library) => return Ok(library),
                        // A library that is there says more than one that is not.
                        Err(error) => match last {
                            Some(NvmlError::LibloadingError(_)) | None => last = Some(error),
                            Some(_) => {}
                        },
                    }
                }
                Err(last.as_ref().map_or_else(|| "no library".to_owned(), words))
            }
        }
    }

    fn open(path: &OsStr) -> Result<Library, NvmlError> {
        Nvml::builder().lib_path(path).init().map(|nvml| Library { nvml })
    }

    /// The driver's version.
    pub fn driver(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// All GPUs of the machine with their unique ids, in the library's order.
    ///
    /// # Errors
    /// A GPU that can't be asked; in words.
    pub fn gpus(&self) -> Result<Vec<(String, Gpu)>, String> {
        let count = self.nvml.device_count().map_err(|error| words(&error))?;
        (0..count)
            .map(|index| {
                let read = || {
                    let device = self.nvml.device_by_index(index)?;
                    let gpu = Gpu {
                        name: device.name()?,
                        memory: device.memory_info()?.total,
                        index: Some(index),
                        ..Gpu::default()
                    };
                    Ok((device.uuid().unwrap_or_default(), gpu))
                };
                read().map_err(|error: NvmlError| format!("GPU {index}: {}", words(&error)))
            })
            .collect()
    }
}

impl Library {
    /// What each GPU of the machine holds; those that can't be asked are left out.
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let count = self.nvml.device_count().unwrap_or(0);
        let look = |index: u32| {
            let device = self.nvml.device_by_index(index).ok()?;
            let used = device.memory_info().ok()?.used;
            let name = device.name().unwrap_or_default();
            // Some drivers and containers name no processes.
            let tenants = device.running_compute_processes().unwrap_or_default().into_iter();
            let tenants = tenants.map(|process| Tenant {
                pid: process.pid,
                bytes: match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                },
                name: super::host::process_name(process.pid),
            });
            Some(Occupancy { index, name, used, tenants: tenants.collect() })
        };
        (0..count).filter_map(look).collect()
    }
}

/// The GPUs that an engine with this `CUDA_VISIBLE_DEVICES` sees, by their place in the driver's order.
pub fn visible(visible: Option<&OsString>) -> Vec<u32> {
    let mut places: Vec<u32> = seen(visible).gpus.iter().filter_map(|gpu| gpu.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn words(error: &NvmlError) -> String {
    // The outer error only says that something could not be loaded.
    if let NvmlError::LibloadingError(inner) = error {
        inner.to_string()
    } else {
        error.to_string()
    }
}

/// What an engine with this `CUDA_VISIBLE_DEVICES` sees.
pub(super) fn seen(visible: Option<&OsString>) -> Seen {
    let library = match Library::load() {
        Ok(library) => library,
        Err(why) => {
            let note = cfg!(target_os = "linux").then(|| format!("no NVIDIA driver: {why}"));
            return Seen { note, ..Seen::default() };
        }
    };
    let driver = library.driver();
    match library.gpus() {
        Err(note) => Seen { driver, note: Some(note), ..Seen::default() },
        Ok(all) => {
            let visible = visible.map(|text| text.to_string_lossy().into_owned());
            let (gpus, note) = choose(all, visible.as_deref());
            Seen { gpus, driver, note }
        }
    }
}

/// Those of `all` that `CUDA_VISIBLE_DEVICES` shows, in its order, by the rules of CUDA: numbers or
/// beginnings of unique ids; the first that is no GPU ends the list.
fn choose(all: Vec<(String, Gpu)>, visible: Option<&str>) -> (Vec<Gpu>, Option<String>) {
    let Some(visible) = visible else {
        return (all.into_iter().map(|(_, gpu)| gpu).collect(), None);
    };
    let mut chosen = Vec::new();
    for entry in visible.split(',').map(str::trim) {
        let found = match entry.parse::<usize>() {
            Ok(index) => all.get(index),
            Err(_) if entry.starts_with("GPU-") => all.iter().find(|(id, _)| id.starts_with(entry)),
            // A slice of a GPU: its parent is named in the older form, and memory is then the parent's.
            Err(_) => entry
                .strip_prefix("MIG-GPU-")
                .and_then(|id| id.split('/').next())
                .and_then(|id| all.iter().find(|(uuid, _)| uuid.strip_prefix("GPU-") == Some(id))),
        };
        match found {
            Some((_, gpu)) => chosen.push(gpu.clone()),
            None => break,
        }
    }
    let hidden = (chosen.len() != all.len()).then(|| {
        format!("CUDA_VISIBLE_DEVICES=\"{visible}\" shows {} of {} GPUs", chosen.len(), all.len())
    });
    (chosen, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Vec<(String, Gpu)> {
        (0..4)
            .map(|i| {
                let gpu = Gpu { name: format!("card {i}"), memory: 1 << 30, ..Gpu::default() };
                (format!("GPU-{i}{i}aa"), gpu)
            })
            .collect()
    }

    fn names(visible: Option<&str>) -> Vec<String> {
        choose(four(), visible).0.into_iter().map(|gpu| gpu.name).collect()
    }

    #[test]
    fn the_engine_sees_what_cuda_visible_devices_shows() {
        assert_eq!(names(None).len(), 4);
        assert_eq!(names(Some("2,0")), ["card 2", "card 0"]);
        assert_eq!(names(Some("GPU-33, 1")), ["card 3", "card 1"]);
        assert_eq!(names(Some("0,-1,2")), ["card 0"]);
        assert_eq!(names(Some("0,9,2")), ["card 0"]);
        assert!(names(Some("")).is_empty());
        assert!(names(Some("NoDevFiles")).is_empty());
        let note = choose(four(), Some("1")).1.unwrap();
        assert_eq!(note, "CUDA_VISIBLE_DEVICES=\"1\" shows 1 of 4 GPUs");
    }

    #[test]
    fn a_library_that_is_none_is_said_in_words() {
        let error = Library::open(OsStr::new("/nowhere/libnvidia-ml.so")).err().unwrap();
        assert!(words(&error).contains("/nowhere/libnvidia-ml.so"), "{error}");
    }
}
