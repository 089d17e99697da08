//! Settings of tests by kind: what there is to say of a measurement besides its axes.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandText, Place};
use crate::load::{Arrival, Length};
use crate::measure::{Base, Metric, Preset, TestKind, UserMetric};

/// Settings by kind.
#[derive(Debug, Clone, PartialEq)]
pub enum TestSetting {
    /// `kind = "prefill"`.
    Prefill {
        /// Requests a cell.
        samples: u32,
        /// Prompt length where no axis says it.
        context: u64,
    },
    /// `kind = "decode"`.
    Decode(DecodeSetting),
    /// `kind = "serve"`.
    Serve(Box<ServeSetting>),
    /// `kind = "startup"`.
    Startup,
    /// `kind = "command"`.
    Command(Box<CommandSetting>),
}

impl TestSetting {
    /// The kind alone.
    pub fn kind(&self) -> TestKind {
        match self {
            TestSetting::Prefill { .. } => TestKind::Prefill,
            TestSetting::Decode(_) => TestKind::Decode,
            TestSetting::Serve(_) => TestKind::Serve,
            TestSetting::Startup => TestKind::Startup,
            TestSetting::Command(_) => TestKind::Command,
        }
    }

    /// Whether such a test measures a metric.
    pub fn produces(&self, metric: Metric) -> bool {
        match self {
            TestSetting::Command(setting) => {
                if let Base::User(user) = metric.base {
                    setting.metrics.iter().any(|(own, _)| *own == user)
                } else {
                    setting.preset.is_some_and(|preset| preset.produces(metric))
                }
            }
            TestSetting::Serve(setting) => {
                let due = matches!(metric.base, Base::TtftDue | Base::E2eLatencyDue);
                metric.base.entry().tests.contains(&TestKind::Serve)
                    && (!due || setting.arrival.is_open())
                    && (metric.base != Base::Goodput || setting.slo != Slo::default())
            }
            TestSetting::Prefill { .. } | TestSetting::Decode(_) | TestSetting::Startup => {
                metric.base.entry().tests.contains(&self.kind())
            }
        }
    }
}

/// Settings of a serve test.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeSetting {
    /// How requests arrive.
    pub arrival: Arrival,
    /// How many are measured.
    pub amount: Amount,
    /// Requests of each stream before the measured ones; in open loop, that many at least.
    pub warmup_per_stream: u32,
    /// Length of prompts; an axis `input` goes before it.
    pub input: LengthSetting,
    /// Length of outputs; an axis `output` goes before it.
    pub output: LengthSetting,
    /// Prompts out of a file, instead of `input`.
    pub dataset: Option<Dataset>,
    /// How prompts share their beginnings.
    pub prefix: Prefix,
    /// What goodput asks of each request.
    pub slo: Slo,
    /// How often the whole load is sent in one launch.
    pub repeat: u32,
    /// Streams of a closed loop where no axis says it.
    pub concurrency: u64,
}

/// How many requests of a serve test are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// So many.
    Requests(u64),
    /// So many for each stream.
    PerStream(u64),
    /// As many as there are in this time.
    Duration(Duration),
}

/// How lengths are told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LengthSetting {
    /// Outright.
    Plain(Length),
    /// Evenly within a share of a middle, which the axis gives, or `around`.
    Jitter {
        /// The middle where no axis gives it.
        around: u64,
        /// The share, 0 to 1.
        share: f64,
    },
}

/// Prompts out of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The file, resolved against the suite's folder.
    pub file: PathBuf,
    /// Where the suite names it.
    pub place: Place,
    /// How it is written.
    pub format: DatasetFormat,
    /// Shortest and longest prompt in tokens that is taken.
    pub input: (Option<u64>, Option<u64>),
    /// Shortest and longest output in tokens that is taken.
    pub output: (Option<u64>, Option<u64>),
    /// Longest prompt and output together.
    pub total: Option<u64>,
}

/// How a file of prompts is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DatasetFormat {
    /// One JSON array of conversations (`conversations: [{ from, value }, …]`), or one such object a line.
    Sharegpt,
    /// One JSON object a line: `prompt` or `messages`, and `output-tokens` if it says so.
    Jsonl,
}

/// What goodput asks of each request; in open loop the first and last are taken from the due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slo {
    /// Longest time to first token.
    pub ttft: Option<Duration>,
    /// Longest time per output token.
    pub tpot: Option<Duration>,
    /// Longest time to the end.
    pub e2e_latency: Option<Duration>,
}

/// Settings of a command test.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandSetting {
    /// What is run, a template that sees the cell.
    pub command: CommandText,
    /// The file that it writes, relative to `{{ cell.dir }}`, a template.
    pub result: String,
    /// Which tool's file it is.
    pub preset: Option<Preset>,
    /// Metrics of its own, each with the JSON pointer to its number.
    pub metrics: Vec<(UserMetric, String)>,
    /// Longest time that it may take.
    pub timeout: Duration,
    /// How often it is run.
    pub repeat: u32,
}

/// Settings of a decode test.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeSetting {
    /// Shortest window.
    pub duration: Duration,
    /// The window stays open until each stream has had as many.
    pub min_tokens: u32,
    /// Longest output of a request.
    pub max_output: u64,
    /// How prompts share their beginnings.
    pub prefix: Prefix,
    /// How KV capacity is reckoned.
    pub capacity: Capacity,
    /// One-token requests whose TTFT is taken.
    pub ttft_samples: u32,
    /// Prompt length where no axis says it.
    pub context: u64,
    /// Streams where no axis says it.
    pub concurrency: u64,
}

/// How the prompts of a cell share their beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefix {
    /// Each stream has its own prompt, warmed before the window.
    Unique,
    /// One prompt for all.
    Shared,
    /// Never seen before.
    Cold,
    /// So many groups with a common beginning of so many tokens.
    Groups {
        /// How many groups.
        groups: u32,
        /// Length of the common beginning.
        length: u64,
    },
}

/// How KV capacity is reckoned.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Capacity {
    /// `concurrency × (context + max-output)` must fit.
    #[default]
    Reserve,
    /// A shared prefix counts once.
    Share,
    /// Not reckoned.
    Off,
}
