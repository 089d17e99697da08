//! What `tokgate probe` tells: the facts of a machine, and how it is right now, as one JSON document.
//!
//! It says what the document holds and reads one back. The facts go into records; what is only true at the moment
//! (who is on a GPU, clocks, load) does not.

use serde::{Deserialize, Serialize};

use super::Facts;
use super::occupancy::Occupancy;

/// The version of the document that this tokgate writes.
pub const FORMAT: u32 = 1;

/// The name of its schema.
const SCHEMA_NAME: &str = "probe.schema.json";

/// A machine as `tokgate probe` finds it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Probe {
    /// Version of this document.
    pub format: u32,
    /// Version of tokgate that wrote it.
    pub tokgate: String,
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// What a suite's `[hardware]` is held against.
    pub facts: Facts,
    /// How each of `facts.gpus` is right now, in the same order.
    pub gpus: Vec<GpuNow>,
    /// GPUs of the machine that could not be asked; none of them is in `facts.gpus`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
    /// The host, and what of it this process may use.
    pub host: HostNow,
    /// What is odd, or may make an engine see something else, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How a GPU, or a slice of one, is right now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GpuNow {
    /// Memory in use and the processes on it.
    pub occupancy: Occupancy,
    /// Clock of the multiprocessors in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock: Option<u32>,
    /// Clock of the memory in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock: Option<u32>,
    /// PCIe link as it is, like `gen5 x16`; an idle GPU lowers its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie: Option<String>,
    /// Temperature in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Power in W.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
}

/// A GPU that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Lost {
    /// Its place in the driver's order.
    pub index: u32,
    /// Why, in words.
    pub why: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GPU {} can't be asked: {}", self.index, self.why)
    }
}

/// The host right now, and what of it this process may use.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HostNow {
    /// Logical CPUs of the host that are online; `facts.cores` says how many of them this process may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Logical CPUs that this process may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<u32>,
    /// How many CPUs' worth of time the container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// NUMA nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaNode>,
    /// Memory in bytes that can be had without swapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<u64>,
    /// Memory in bytes that the container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Memory in bytes that the container uses, where it has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<u64>,
    /// Mean number of processes that ran or waited for the disk over the last 1, 5 and 15 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its logical CPUs as the kernel lists them, like `0-31,64-95`.
    pub cpus: String,
    /// Its memory in bytes.
    pub memory: u64,
}

/// Why a text is no probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No JSON document in it.
    #[error("no JSON document in it; `tokgate probe --format json` prints one")]
    Nothing,
    /// Another document.
    #[error("not what `tokgate probe --format json` prints: {0}")]
    Other(String),
    /// More than one.
    #[error(
        "more than one document; have one process print it (with Slurm `srun --nodes=1 --ntasks=1`)"
    )]
    Several,
    /// A format of another version.
    #[error("format {0}, this tokgate reads format {FORMAT}; use one version in both places")]
    Format(u32),
}

impl Probe {
    /// Reads what `tokgate probe --format json` printed. What stands before and behind the document, as schedulers
    /// and login shells print it, is passed over.
    ///
    /// # Errors
    /// There is no such document in it, more than one, or one of another format.
    pub fn parse(text: &str) -> Result<Probe, ProbeError> {
        let mut starts = text.match_indices('{').map(|(at, _)| at);
        let at_line_start = |at: &usize| text[..*at].chars().next_back().is_none_or(|c| c == '\n');
        let start = starts.find(at_line_start).ok_or(ProbeError::Nothing)?;
        let mut documents =
            serde_json::Deserializer::from_str(&text[start..]).into_iter::<serde_json::Value>();
        let document = match documents.next() {
            Some(Ok(document)) => document,
            Some(Err(error)) => return Err(ProbeError::Other(error.to_string())),
            None => return Err(ProbeError::Nothing),
        };
        let rest = start + documents.byte_offset();
        if text[rest..].trim_start().starts_with('{') {
            return Err(ProbeError::Several);
        }
        // Before the shape, which another format may have changed.
        let format = document.get("format").and_then(serde_json::Value::as_u64);
        match format.map(|format| u32::try_from(format).unwrap_or(u32::MAX)) {
            Some(FORMAT) | None => {}
            Some(other) => return Err(ProbeError::Format(other)),
        }
        serde_json::from_value(document).map_err(|error| ProbeError::Other(error.to_string()))
    }

    /// The document, as `tokgate probe --format json` prints it.
    pub fn document(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The JSON Schema of the document: name of its file and text.
    pub fn schema_file() -> (&'static str, String) {
        let mut schema = serde_json::to_value(schemars::schema_for!(Probe)).unwrap_or_default();
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("title".to_owned(), "What tokgate probe finds, format 1".into());
        }
        let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
        text.push('\n');
        (SCHEMA_NAME, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe { format: FORMAT, tokgate: "1.0.0".to_owned(), ..Probe::default() }
    }

    #[test]
    fn a_document_is_read_back_whatever_stands_around_it() {
        let text = probe().document();
        assert_eq!(Probe::parse(&text), Ok(probe()));
        let noisy = format!("srun: job 7 {{queued}}\nmodule {{x}} loaded\n{text}\nbye {{}}\n");
        assert_eq!(Probe::parse(&noisy), Ok(probe()));
        let one_line = serde_json::to_string(&probe()).unwrap();
        assert_eq!(Probe::parse(&one_line), Ok(probe()));
    }

    #[test]
    fn what_is_no_probe_is_refused_with_a_reason() {
        let said = |text: &str| Probe::parse(text).unwrap_err().to_string();
        assert!(said("").starts_with("no JSON document"));
        assert!(said("bash: tokgate: command not found\n").starts_with("no JSON document"));
        assert!(said("{\"gpus\": 3}").starts_with("not what `tokgate probe --format json` prints"));
        assert!(said("{\"format\": 1, ").contains("EOF"));
        assert!(said(&probe().document().repeat(2)).contains("--ntasks=1"));
        assert_eq!(
            said("{\"format\": 2, \"gpus\": 3}"),
            "format 2, this tokgate reads format 1; use one version in both places"
        );
    }

    #[test]
    fn the_schema_on_disk_is_the_one_of_the_types() {
        let (name, here) = Probe::schema_file();
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(here == there, "{} is stale: run `tokgate schema`", path.display());
    }
}
