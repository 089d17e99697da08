//! Presets: which figures the result files of known tools hold.
//!
//! Pure readers of JSON. It decides which of a tool's numbers is which metric and in which unit; it
//! runs no tool and opens no file.

use super::Metric;
use serde::{Deserialize, Serialize};

/// A tool whose result file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// `vllm bench serve --save-result`, and vllm-bench.
    VllmBenchServe,
    /// `guidellm … --output kind=json`.
    Guidellm,
    /// `aiperf profile`.
    Aiperf,
    /// `python -m sglang.bench_serving --output-file`.
    SglangBenchServing,
    /// `llama-bench -o json`.
    LlamaBench,
}

impl Preset {
    /// Whether this tool's file holds the metric.
    pub fn produces(self, metric: Metric) -> bool {
        let _ = metric;
        false
    }
}
