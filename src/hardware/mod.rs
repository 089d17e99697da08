//! What the engine runs on: facts of the host and its GPUs, read and compared with what a suite
//! declares.
//!
//! It reads and compares; what a mismatch leads to is decided by the run.

mod amd;
pub mod blame;
mod container;
pub mod host;
pub mod need;
pub mod nvml;
pub mod occupancy;
pub mod oom;
mod patience;
pub mod preflight;
pub mod probe;
pub mod sampler;
pub mod telemetry;
pub mod visible;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use patience::Patience;
use probe::{Lost, Probe};
use visible::{Choice, Found, Place, Visible};

/// How long drivers and their tools may take for an answer; the first wakes GPUs that sleep.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Gpu {
    /// Product name as the driver says it; of a slice that of the GPU it is cut from.
    pub name: String,
    /// Memory in bytes; of a slice its own.
    pub memory: u64,
    /// Its place in the driver's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Unique id as the driver says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Of a slice (MIG) its profile, like `3g.71gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Whether it is cut into slices (MIG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<bool>,
    /// Whether memory errors are corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Enforced power limit in W.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<f64>,
    /// Greatest clock of the multiprocessors in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sm_clock: Option<u32>,
    /// Greatest clock of the memory in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_clock: Option<u32>,
    /// PCIe link as the GPU could have it, like `gen5 x16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<String>,
    /// Active NVLinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<u32>,
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "GPU {index} ({})", self.full_name()),
            None => f.write_str(&self.full_name()),
        }
    }
}

/// The facts of the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Facts {
    /// Operating system, as `std::env::consts::OS`.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// Host name.
    pub hostname: String,
    /// What the kernel calls this boot of the host, which containers on it share; empty where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// GPUs that the engine will see; empty means no GPU.
    pub gpus: Vec<Gpu>,
    /// GPU driver version.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver runs, or the version of ROCm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Why no GPU was found, where that is worth a word.
    pub gpu_note: Option<String>,
}

impl Facts {
    /// Its GPUs by kind: `8 × NVIDIA H200`, `1 × NVIDIA A100, 2 × NVIDIA H200`; `None` where there is none.
    pub fn gpus_in_words(&self) -> Option<String> {
        let mut kinds: Vec<(String, usize)> = Vec::new();
        for name in self.gpus.iter().map(Gpu::full_name) {
            match kinds.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => kinds.push((name, 1)),
            }
        }
        let words: Vec<String> =
            kinds.iter().map(|(name, count)| format!("{count} × {name}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// In which ways `now` is another machine than this one, or no longer the same; empty where a run that
    /// began on this one can go on there. A host is known by its name or by its boot: a container has
    /// another name each time, a restarted host another boot.
    pub fn differences(&self, now: &Facts) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, was: &str, is: &str| {
            if was != is {
                found.push(format!("{what} was {}, is {}", named(was), named(is)));
            }
        };
        let same_boot = !self.boot.is_empty() && self.boot == now.boot;
        if !same_boot {
            compare("the host", &self.hostname, &now.hostname);
        }
        compare("the system", &self.os, &now.os);
        compare("the kernel", &self.kernel, &now.kernel);
        compare("the CPU", &self.cpu, &now.cpu);
        compare("the number of cores", &self.cores.to_string(), &now.cores.to_string());
        // The kernel keeps some of it for itself, at each boot a little more or less.
        if self.memory.abs_diff(now.memory) > self.memory / 50 {
            compare("memory", &gibibytes(self.memory), &gibibytes(now.memory));
        }
        compare("the set of GPUs", &self.gpu_words(), &now.gpu_words());
        // Whoever changes these in between makes the same GPU faster or slower. A record of before they were told says
        // nothing of them.
        for setting in SETTINGS {
            let (was, is) = (self.setting(setting), now.setting(setting));
            if !was.is_empty() && !is.is_empty() {
                compare(setting.0, &was, &is);
            }
        }
        let driver = |facts: &Facts| facts.driver.clone().unwrap_or_default();
        compare("the GPU driver", &driver(self), &driver(now));
        found
    }

    /// What tells this kind of machine from another, by name; nothing that two machines of one kind differ in.
    pub fn properties(&self) -> Vec<(&'static str, String)> {
        vec![
            ("system", self.os.clone()),
            ("CPU", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            // In steps that are wider than what a kernel keeps for itself.
            (
                "memory",
                format!("{:.0} GiB", (self.memory as f64 / f64::from(1 << 30) / 4.0).round() * 4.0),
            ),
            (GPUS, self.gpu_words()),
            (SETTINGS[0].0, self.setting(SETTINGS[0])),
            (SETTINGS[1].0, self.setting(SETTINGS[1])),
            (SETTINGS[2].0, self.setting(SETTINGS[2])),
            ("GPU driver", self.driver.clone().unwrap_or_default()),
        ]
    }

    fn gpu_words(&self) -> String {
        let words = |gpu: &Gpu| format!("{} ({})", gpu.full_name(), gibibytes(gpu.memory));
        self.gpus.iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// A setting of all GPUs in words, once where they are alike; empty where none of them tells.
    fn setting(&self, (_, words): Setting) -> String {
        let mut told: Vec<Option<String>> = self.gpus.iter().map(words).collect();
        if told.iter().all(Option::is_none) {
            return String::new();
        }
        if told.iter().all(|it| *it == told[0]) {
            told.truncate(1);
        }
        let words = told.into_iter().map(|it| it.unwrap_or_else(|| "unknown".to_owned()));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A setting of a GPU: what it is called, and its words.
type Setting = (&'static str, fn(&Gpu) -> Option<String>);

/// What decides how fast a GPU of one kind is: the power that it may take, memory bandwidth that error correction takes
/// (of GPUs without HBM), and how many of the links are up that tensor-parallel engines talk over. Clocks, temperature
/// and the state of the PCIe link change with load, and are none.
const SETTINGS: [Setting; 3] = [
    ("the power limit of the GPUs", |gpu| gpu.power_limit.map(|watts| format!("{watts:.0} W"))),
    ("error correction (ECC) of the GPUs", |gpu| {
        gpu.ecc.map(|on| if on { "on" } else { "off" }.to_owned())
    }),
    ("the number of NVLinks of the GPUs", |gpu| gpu.nvlinks.map(|links| links.to_string())),
];

impl Gpu {
    /// Its name; of a slice with its profile, as the driver calls it: `NVIDIA H200 MIG 3g.71gb`.
    pub fn full_name(&self) -> String {
        match &self.slice {
            Some(slice) => format!("{} MIG {slice}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether another one is of the same kind and set alike, whichever of them it is.
    pub fn alike(&self, other: &Gpu) -> bool {
        let kind = |gpu: &Gpu| Gpu { index: None, uuid: None, ..gpu.clone() };
        kind(self) == kind(other)
    }
}

/// The name of the property that tells the GPUs.
pub const GPUS: &str = "GPUs";

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn named(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// Reads the facts of the machine; GPUs as this process would see them.
pub fn probe() -> Facts {
    survey(&Visible::here(), PATIENCE).facts
}

/// What was found of GPUs, of whatever make.
#[derive(Default)]
struct Gpus {
    choice: Choice,
    places: Vec<Place>,
    driver: Option<String>,
    cuda: Option<String>,
}

/// Looks at the whole machine, GPUs as an engine in such an environment would see them. Each driver and tool that
/// does not answer within `limit` is given up, and said so.
pub fn survey(visible: &Visible, limit: Duration) -> Probe {
    let Gpus { choice, places, driver, cuda } = gpus(visible, limit);
    let Choice { seen, mut why, mut notes } = choice;
    let lost: Vec<Lost> = places.into_iter().filter_map(Place::lost).collect();
    why.extend(lost.iter().map(ToString::to_string));
    notes.extend(seen.iter().filter_map(narrow));
    let (gpus, now) = seen.into_iter().map(|found| (found.gpu, found.now)).unzip();
    let note = Some(why.join("; ")).filter(|why| !why.is_empty());
    Probe {
        format: probe::FORMAT,
        tokgate: env!("CARGO_PKG_VERSION").to_owned(),
        time: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .map_or_else(|_| String::new(), |now| now.to_string()),
        facts: Facts { gpus, driver, cuda, gpu_note: note, ..host::facts() },
        gpus: now,
        lost,
        host: host::now(),
        notes,
    }
}

/// The GPUs: NVIDIA's, else AMD's. A machine that has both is taken for one with NVIDIA's: the other is what the
/// processor brings along for a screen.
fn gpus(visible: &Visible, limit: Duration) -> Gpus {
    let mut found = Gpus::default();
    match nvml::census::take(&Patience::of(limit)) {
        Ok(census) => {
            (found.driver, found.cuda) = (census.driver, census.cuda);
            found.choice = visible.cuda(&census.places);
            found.places = census.places;
            if census.forbidden > 0 {
                let forbidden = census.forbidden;
                found.choice.notes.push(format!("{forbidden} more GPUs may not be used from here"));
            }
            if found.places.is_empty() {
                found.choice.why.push("the NVIDIA driver has none that may be used".to_owned());
            }
        }
        Err(why) => {
            found.choice.why.push(format!("no NVIDIA driver: {why}"));
            found.choice.why.extend(visible.container());
        }
    }
    if !found.places.is_empty() {
        return found;
    }
    match amd::take(limit) {
        None if cfg!(target_os = "linux") => {}
        // Nobody expects a GPU of these makes there.
        None => found.choice.why.clear(),
        Some(Err(why)) => found.choice.why.insert(0, format!("AMD: {why}")),
        Some(Ok(census)) => {
            found.choice = visible.rocm(&census.places);
            found.choice.notes.extend(census.notes);
            found.places = census.places;
            (found.driver, found.cuda) = (census.driver, census.rocm);
        }
    }
    found
}

/// A word on a GPU whose link has fewer lanes than it could have: data gets to it more slowly. An idle GPU lowers the
/// link's generation and not its width.
fn narrow(found: &Found) -> Option<String> {
    let width = |link: &str| link.rsplit_once('x').and_then(|(_, width)| width.parse::<u32>().ok());
    let (most, now) = (found.gpu.pcie.as_ref()?, found.now.pcie.as_ref()?);
    (width(now)? < width(most)?).then(|| {
        let index = found.gpu.index.unwrap_or_default();
        format!("GPU {index} is on a PCIe link of {now} that could be {most}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_set_otherwise_is_another_one() {
        let with = |watts: Option<f64>, slice: Option<&str>| {
            let slice = slice.map(str::to_owned);
            let gpu = Gpu { name: "H200".into(), power_limit: watts, slice, ..Gpu::default() };
            Facts { gpus: vec![gpu.clone(), gpu], ..Facts::default() }
        };
        let full = with(Some(700.0), None);
        assert!(full.differences(&full).is_empty());
        assert_eq!(
            full.differences(&with(Some(500.0), None)),
            ["the power limit of the GPUs was 700 W, is 500 W"]
        );
        let mut one = full.clone();
        one.gpus[1].power_limit = Some(500.0);
        assert_eq!(
            full.differences(&one),
            ["the power limit of the GPUs was 700 W, is 700 W, 500 W"]
        );
        // A record of before it was told.
        assert!(with(None, None).differences(&full).is_empty());
        let slice = full.differences(&with(Some(700.0), Some("3g.71gb")));
        assert!(
            slice[0].ends_with("is H200 MIG 3g.71gb (0.0 GiB), H200 MIG 3g.71gb (0.0 GiB)"),
            "{slice:?}"
        );
        for (what, value) in one.properties() {
            assert!(what != SETTINGS[0].0 || value == "700 W, 500 W", "{value}");
        }
        let mut other = one.gpus[0].clone();
        (other.index, other.uuid) = (Some(7), Some("GPU-7".into()));
        assert!(other.alike(&one.gpus[0]) && !other.alike(&one.gpus[1]));
    }

    #[test]
    fn a_link_with_fewer_lanes_is_told_and_one_that_sleeps_is_not() {
        let on = |most: &str, now: &str| {
            let pcie = |link: &str| Some(link.to_owned()).filter(|link| !link.is_empty());
            let gpu = Gpu { index: Some(3), pcie: pcie(most), ..Gpu::default() };
            narrow(&Found {
                gpu,
                now: probe::GpuNow { pcie: pcie(now), ..probe::GpuNow::default() },
            })
        };
        assert_eq!(
            on("gen5 x16", "gen5 x8").as_deref(),
            Some("GPU 3 is on a PCIe link of gen5 x8 that could be gen5 x16")
        );
        assert_eq!(on("gen5 x16", "gen1 x16"), None);
        assert_eq!(on("gen5 x16", ""), None);
    }

    #[test]
    fn a_host_is_known_by_its_name_or_its_boot() {
        let gpu = Gpu { name: "H200".into(), memory: 141 << 30, ..Gpu::default() };
        let facts = |hostname: &str, boot: &str| Facts {
            hostname: hostname.into(),
            boot: boot.into(),
            cores: 8,
            memory: 1 << 40,
            gpus: vec![gpu.clone(); 2],
            ..Facts::default()
        };
        let here = facts("runner-1", "b1");
        assert!(here.differences(&facts("runner-1", "b2")).is_empty(), "restarted");
        assert!(here.differences(&facts("9f3c", "b1")).is_empty(), "in another container");
        assert_eq!(
            here.differences(&facts("runner-2", "b2")),
            ["the host was runner-1, is runner-2"]
        );
        assert_eq!(facts("a", "").differences(&facts("b", "")).len(), 1);
        let mut less = here.clone();
        (less.cores, less.memory) = (4, (1 << 40) - (1 << 20));
        less.gpus.pop();
        assert_eq!(
            here.differences(&less),
            [
                "the number of cores was 8, is 4",
                "the set of GPUs was H200 (141.0 GiB), H200 (141.0 GiB), is H200 (141.0 GiB)"
            ]
        );
        less.gpus.clear();
        assert!(here.differences(&less)[1].ends_with(", is none"));
    }

    #[test]
    fn gpus_are_told_by_kind() {
        let of = |names: &[&str]| {
            let gpu = |name: &&str| Gpu { name: (*name).to_owned(), ..Gpu::default() };
            Facts { gpus: names.iter().map(gpu).collect(), ..Facts::default() }.gpus_in_words()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["H200"; 8]).as_deref(), Some("8 × H200"));
        assert_eq!(of(&["H200", "A100", "H200"]).as_deref(), Some("2 × H200, 1 × A100"));
    }
}
