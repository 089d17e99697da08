//! GPUs as the NVIDIA driver's management library (NVML) names them.
//!
//! The library is loaded at run time: without a driver there is no GPU and a word why, never a
//! failure. `TOKGATE_NVML` names another library file. `census` counts what is there, `device` reads one GPU;
//! which of them an engine sees is decided in `hardware::visible`.

pub(super) mod census;
mod device;

use std::ffi::OsStr;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use super::Gpu;
use super::PATIENCE;
use super::occupancy::Occupancy;
use super::patience::Patience;
use super::visible::{Choice, Place, Visible};

pub(super) mod reading;

/// Names a library file to load in place of the driver's.
pub const LIBRARY_VARIABLE: &str = "TOKGATE_NVML";

/// Where the driver's library may be: its package names the first, development packages the second.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The loaded library.
pub struct Library {
    nvml: Nvml,
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

    /// The newest CUDA version that the driver runs, like `13.0`.
    pub fn cuda(&self) -> Option<String> {
        let version = self.nvml.sys_cuda_driver_version().ok()?;
        Some(format!(
            "{}.{}",
            cuda_driver_version_major(version),
            cuda_driver_version_minor(version)
        ))
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
            Some(device::occupancy(&device, index, name, used))
        };
        (0..count).filter_map(look).collect()
    }
}

/// The GPUs that an engine sees, by their place in the driver's order; of a slice that of its GPU.
pub fn visible(visible: &Visible) -> Vec<u32> {
    let seen = seen(visible).map(|seen| seen.gpus).unwrap_or_default();
    let mut places: Vec<u32> = seen.iter().filter_map(|gpu| gpu.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// What of the driver's GPUs an engine sees.
pub(super) struct Seen {
    pub(super) gpus: Vec<Gpu>,
    /// Why that is not every GPU.
    pub(super) note: Option<String>,
}

/// The GPUs that an engine sees, slices among them.
///
/// # Errors
/// There is no driver, or it does not answer; in words.
pub(super) fn seen(visible: &Visible) -> Result<Seen, String> {
    let census =
        census::take(&Patience::of(PATIENCE)).map_err(|why| format!("no NVIDIA driver: {why}"))?;
    let Choice { seen, mut why, .. } = visible.cuda(&census.places);
    let lost = census.places.into_iter().filter_map(Place::lost);
    why.extend(lost.map(|lost| lost.to_string()));
    let gpus = seen.into_iter().map(|found| found.gpu).collect();
    Ok(Seen { gpus, note: Some(why.join("; ")).filter(|why| !why.is_empty()) })
}

fn words(error: &NvmlError) -> String {
    // The outer error only says that something could not be loaded.
    if let NvmlError::LibloadingError(inner) = error {
        inner.to_string()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_none_is_said_in_words() {
        let error = Library::open(OsStr::new("/nowhere/libnvidia-ml.so")).err().unwrap();
        assert!(words(&error).contains("/nowhere/libnvidia-ml.so"), "{error}");
    }
}
