//! What a suite declares of the hardware, compared with the facts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Facts, Gpu};
use crate::quantity::{Size, print_number};
use crate::version;

/// `[hardware]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Need {
    /// Whether the machine at hand is checked, or the hardware is elsewhere and only declared.
    pub here: bool,
    /// Case-insensitive part of every GPU's product name.
    pub gpu: Option<String>,
    /// How many GPUs.
    pub count: Option<Count>,
    /// Memory per GPU.
    pub vram: Option<Vram>,
    /// Version requirement on the driver.
    pub driver: Option<String>,
    /// Version requirement on the newest CUDA that the driver runs.
    pub cuda: Option<String>,
    /// Whether GPUs that others compute on are a warning instead of a mismatch.
    pub allow_busy: bool,
    /// A command, a template, that prints what `tokgate probe --format json` prints where the GPUs are.
    pub probe: Option<String>,
    /// Highest temperature in °C that a GPU may have when an engine is started.
    pub cool_below: Option<f64>,
    /// How often GPUs and host are looked at while a cell is measured.
    pub sampling: Sampling,
    /// Operating system.
    pub os: Option<String>,
    /// What a mismatch leads to.
    pub on_mismatch: OnMismatch,
}

/// How often the hardware is looked at while a cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Never.
    Off,
    /// Once in so long.
    Every(Duration),
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling::Every(Duration::from_millis(200))
    }
}

/// How many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// So many.
    Exactly(u32),
    /// So many or more.
    AtLeast(u32),
}

/// Memory per GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Vram {
    /// Within 5 % of either reading.
    About(Size),
    /// So much or more, by the reading as written.
    AtLeast(Size),
}

/// What a mismatch leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnMismatch {
    /// Exit 22, nothing launched.
    #[default]
    Error,
    /// Every cell skipped.
    Skip,
    /// A warning.
    Warn,
}

/// How far a GPU's memory may be from either reading of what is declared.
const VRAM_TOLERANCE: f64 = 0.05;

impl Need {
    /// Whether there are facts to hold it against: of this machine, or those that a probe brings.
    pub fn is_checked(&self) -> bool {
        self.here || self.probe.is_some()
    }

    /// Whether the engine is to have GPUs.
    pub fn wants_gpus(&self) -> bool {
        self.gpu.is_some()
            || self.vram.is_some()
            || self.driver.is_some()
            || self.cuda.is_some()
            || self.count.is_some_and(some)
    }

    /// What of the machine is not as declared, each with what was declared and what was found;
    /// empty where all is as declared or nothing is known of the machine.
    pub fn problems(&self, facts: &Facts) -> Vec<String> {
        if !self.is_checked() {
            return Vec::new();
        }
        let mut problems = Vec::new();
        if let Some(os) = &self.os
            && !os.eq_ignore_ascii_case(&facts.os)
        {
            problems.push(format!("hardware.os: declared \"{os}\", found {}", facts.os));
        }
        let wanted = self.gpu.is_some() || self.vram.is_some() || self.count.is_some_and(some);
        if wanted && facts.gpus.is_empty() {
            // One word on what is not there at all, instead of one for each of its properties.
            problems.push(format!("declared {}, found {}", self.gpus(), nothing(facts, "no GPU")));
            return problems;
        }
        self.gpu_problems(facts, &mut problems);
        let versions = [
            ("driver", &self.driver, &facts.driver, "no driver"),
            ("cuda", &self.cuda, &facts.cuda, "no CUDA"),
        ];
        for (key, required, found, none) in versions {
            let Some(required) = required else { continue };
            let met = found.as_deref().map_or(Ok(false), |it| version::matches(required, it));
            match met {
                Ok(true) => {}
                Ok(false) => problems.push(format!(
                    "hardware.{key}: declared \"{required}\", found {}",
                    found.clone().unwrap_or_else(|| nothing(facts, none))
                )),
                Err(error) => problems.push(format!("hardware.{key}: {error}")),
            }
        }
        problems
    }

    /// What of the GPUs this asks nothing about and is worth a word: a slice has the name of the whole.
    pub fn doubts(&self, facts: &Facts) -> Vec<String> {
        let by_profile = self.gpu.as_ref().is_some_and(|gpu| gpu.to_lowercase().contains("mig"));
        let named = self.is_checked() && self.wants_gpus() && self.vram.is_none() && !by_profile;
        let slices = facts.gpus.iter().filter(|gpu| gpu.slice.is_some());
        let slices: Vec<String> = slices.map(|gpu| gpu.to_string()).collect();
        if !named || slices.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the engine sees {}, and no whole GPU there: `vram` in [hardware] would have that checked",
            slices.join(", ")
        )]
    }

    /// The GPUs that are declared, in words.
    fn gpus(&self) -> String {
        let count = match self.count {
            Some(Count::Exactly(n)) => format!("{n} × "),
            Some(Count::AtLeast(n)) => format!("at least {n} × "),
            None => String::new(),
        };
        let memory = self.vram.as_ref().map_or(String::new(), |vram| format!(" of {vram}"));
        format!("{count}{}{memory}", self.gpu.as_deref().unwrap_or("GPU"))
    }

    fn gpu_problems(&self, facts: &Facts, problems: &mut Vec<String>) {
        let gpus = &facts.gpus;
        if let Some(part) = &self.gpu {
            let wanted = part.to_lowercase();
            // A profile may be asked for as well: `H200 MIG 3g.71gb`.
            let others = |gpu: &Gpu| !gpu.full_name().to_lowercase().contains(&wanted);
            if gpus.is_empty() || gpus.iter().any(others) {
                let found = listed(facts, others, |gpu| gpu.name.clone());
                problems.push(format!("hardware.gpu: declared \"{part}\", found {found}"));
            }
        }
        let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let declared = match self.count {
            Some(Count::Exactly(n)) if count != n => Some(n.to_string()),
            Some(Count::AtLeast(n)) if count < n => Some(format!("\">={n}\"")),
            Some(Count::Exactly(_) | Count::AtLeast(_)) | None => None,
        };
        if let Some(declared) = declared {
            let found = match &facts.gpu_note {
                Some(note) => format!("{count} ({note})"),
                None => count.to_string(),
            };
            problems.push(format!("hardware.count: declared {declared}, found {found}"));
        }
        if let Some(vram) = &self.vram {
            let off = |gpu: &Gpu| !vram.holds(gpu.memory);
            if gpus.is_empty() || gpus.iter().any(off) {
                let found = listed(facts, off, |gpu| memory(gpu.memory as f64));
                problems.push(format!("hardware.vram: declared {vram}, found {found}"));
            }
        }
    }
}

fn some(count: Count) -> bool {
    match count {
        Count::Exactly(n) | Count::AtLeast(n) => n > 0,
    }
}

impl Vram {
    fn holds(&self, memory: u64) -> bool {
        let memory = memory as f64;
        let near = |declared: f64| (memory - declared).abs() <= declared * VRAM_TOLERANCE;
        match self {
            Vram::About(size) => near(size.bytes) || near(size.binary_reading),
            Vram::AtLeast(size) => memory >= size.bytes,
        }
    }
}

impl std::fmt::Display for Vram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Vram::About(size) if size.bytes != size.binary_reading => write!(
                f,
                "{} GB (or {}), within 5 %",
                print_number(size.bytes / 1e9, 1),
                memory(size.binary_reading)
            ),
            Vram::About(size) => write!(f, "{}, within 5 %", memory(size.bytes)),
            Vram::AtLeast(size) => write!(f, "at least {}", memory(size.bytes)),
        }
    }
}

fn memory(bytes: f64) -> String {
    format!("{} GiB", print_number(bytes / 1024f64.powi(3), 1))
}

/// What the GPUs that differ have in its place, or that there is none.
fn listed(facts: &Facts, differs: impl Fn(&Gpu) -> bool, what: impl Fn(&Gpu) -> String) -> String {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (position, gpu) in facts.gpus.iter().enumerate().filter(|(_, gpu)| differs(gpu)) {
        let text = what(gpu);
        let mut place = gpu.index.map_or_else(|| position.to_string(), |index| index.to_string());
        if let Some(slice) = &gpu.slice {
            place.push_str(&format!(" slice {slice}"));
        }
        match found.iter_mut().find(|(known, _)| *known == text) {
            Some((_, places)) => places.push(place),
            None => found.push((text, vec![place])),
        }
    }
    if found.is_empty() {
        return nothing(facts, "no GPU");
    }
    let texts = found.iter().map(|(text, at)| format!("{text} (GPU {})", at.join(", ")));
    texts.collect::<Vec<_>>().join(", ")
}

fn nothing(facts: &Facts, what: &str) -> String {
    match &facts.gpu_note {
        Some(note) => format!("{what} ({note})"),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::parse_size;

    /// Eight H200 as NVML describes them.
    fn h200s() -> Facts {
        let gpu =
            Gpu { name: "NVIDIA H200".to_owned(), memory: 143_771 * 1024 * 1024, ..Gpu::default() };
        Facts {
            os: "linux".to_owned(),
            gpus: vec![gpu; 8],
            driver: Some("580.65.06".to_owned()),
            ..Facts::default()
        }
    }

    fn page() -> Need {
        Need {
            here: true,
            gpu: Some("h200".to_owned()),
            count: Some(Count::Exactly(8)),
            vram: Some(Vram::About(parse_size("141GB").unwrap())),
            driver: Some(">=570".to_owned()),
            os: Some("linux".to_owned()),
            ..Need::default()
        }
    }

    #[test]
    fn the_machine_that_is_declared_has_no_problems() {
        assert_eq!(page().problems(&h200s()), Vec::<String>::new());
        let floor = Need { vram: Some(Vram::AtLeast(parse_size("140GiB").unwrap())), ..page() };
        assert_eq!(floor.problems(&h200s()), Vec::<String>::new());
    }

    #[test]
    fn every_difference_is_said_with_both_sides() {
        let mut facts = h200s();
        facts.os = "macos".to_owned();
        facts.driver = Some("550.1".to_owned());
        facts.gpus.truncate(4);
        facts.gpus[1] =
            Gpu { name: "NVIDIA A100-SXM4-80GB".to_owned(), memory: 80 << 30, ..Gpu::default() };
        facts.gpus[3] = facts.gpus[1].clone();
        assert_eq!(
            page().problems(&facts),
            [
                "hardware.os: declared \"linux\", found macos",
                "hardware.gpu: declared \"h200\", found NVIDIA A100-SXM4-80GB (GPU 1, 3)",
                "hardware.count: declared 8, found 4",
                "hardware.vram: declared 141 GB (or 141 GiB), within 5 %, found 80 GiB (GPU 1, 3)",
                "hardware.driver: declared \">=570\", found 550.1",
            ]
        );
    }

    #[test]
    fn a_machine_without_a_driver_says_why() {
        let facts = Facts {
            os: "linux".to_owned(),
            gpu_note: Some("no NVIDIA driver: libnvidia-ml.so.1 not found".to_owned()),
            ..Facts::default()
        };
        assert_eq!(
            page().problems(&facts),
            [
                "declared 8 × h200 of 141 GB (or 141 GiB), within 5 %, found no GPU (no NVIDIA driver: libnvidia-ml.so.1 not found)"
            ]
        );
        let driver_alone = Need { here: true, driver: Some(">=570".to_owned()), ..Need::default() };
        let said = driver_alone.problems(&facts);
        assert!(said[0].contains("found no driver (no NVIDIA driver"), "{said:?}");
    }

    #[test]
    fn memory_is_near_either_reading_or_above_a_floor() {
        let about = |text: &str, gib: f64| {
            Vram::About(parse_size(text).unwrap()).holds((gib * 1024f64.powi(3)) as u64)
        };
        assert!(about("80GB", 79.6) && about("80GB", 74.6) && about("80GiB", 79.6));
        assert!(!about("80GB", 40.0) && !about("80GiB", 74.6) && !about("80GB", 90.0));
        let floor = Vram::AtLeast(parse_size("80GiB").unwrap());
        assert!(floor.holds(80 << 30) && !floor.holds((80 << 30) - 1));
    }

    #[test]
    fn versions_are_within_bounds() {
        let said = |cuda: &str, found: Option<&str>| {
            let cuda = Some(cuda.to_owned());
            let facts = Facts { cuda: found.map(str::to_owned), ..h200s() };
            Need { here: true, cuda, ..Need::default() }.problems(&facts)
        };
        for within in ["12.8", "12.9", "13.0"] {
            assert!(said(">=12.8, <14", Some(within)).is_empty(), "{within}");
        }
        assert_eq!(
            said(">=12.8, <14", Some("12.4")),
            ["hardware.cuda: declared \">=12.8, <14\", found 12.4"]
        );
        assert_eq!(said(">=12.8, <14", Some("14.0")).len(), 1);
        assert_eq!(said("13", None), ["hardware.cuda: declared \"13\", found no CUDA"]);
        let driver = Need { driver: Some(">=570, <580".to_owned()), ..page() };
        assert_eq!(
            driver.problems(&h200s()),
            ["hardware.driver: declared \">=570, <580\", found 580.65.06"]
        );
    }

    #[test]
    fn hardware_elsewhere_is_checked_where_a_probe_tells_of_it() {
        let need = Need { here: false, ..page() };
        assert!(need.problems(&Facts::default()).is_empty());
        let probed = Need { probe: Some("srun tokgate probe".to_owned()), ..need };
        assert!(probed.problems(&h200s()).is_empty());
        assert!(!probed.problems(&Facts::default()).is_empty());
    }

    #[test]
    fn at_least_so_many_is_met_by_more() {
        let need = |n| Need { here: true, count: Some(Count::AtLeast(n)), ..Need::default() };
        assert!(need(4).problems(&h200s()).is_empty());
        assert_eq!(need(9).problems(&h200s()), ["hardware.count: declared \">=9\", found 8"]);
    }
}
