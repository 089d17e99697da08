//! The catalogue of metrics: name, unit, better direction, formula, which tests produce it.
//!
//! The only list; whoever names a metric parses it here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod stat;
mod user;

pub use stat::Stat;
pub use user::UserMetric;

/// What a test measures.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TestKind {
    /// One long prompt at a time, cold.
    Prefill,
    /// Looping streams in a window, prompts warmed.
    Decode,
    /// Requests as a service gets them, from their arrival to their end.
    Serve,
    /// The launch itself.
    Startup,
    /// An external tool against the launched engine, its result read.
    Command,
}

impl TestKind {
    /// Every kind, in the order in which a launch runs them.
    pub const ALL: [TestKind; 5] = [
        TestKind::Startup,
        TestKind::Prefill,
        TestKind::Decode,
        TestKind::Serve,
        TestKind::Command,
    ];

    /// The name in a suite file.
    pub fn name(self) -> &'static str {
        match self {
            TestKind::Prefill => "prefill",
            TestKind::Decode => "decode",
            TestKind::Serve => "serve",
            TestKind::Startup => "startup",
            TestKind::Command => "command",
        }
    }
}

/// Which way a metric gets better.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More is better: bounds are `min`.
    Higher,
    /// Less is better: bounds are `max`.
    Lower,
}

/// A row of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The metric without suffix.
    pub base: Base,
    /// Name in suites, records and reports.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: &'static str,
    /// Which way it gets better.
    pub better: Direction,
    /// Whether it is a latency and takes a suffix like `.p50`.
    pub latency: bool,
    /// Whether `-per-gpu` exists.
    pub per_gpu: bool,
    /// The tests that produce it.
    pub tests: &'static [TestKind],
    /// Formula, for documentation.
    pub formula: &'static str,
}

/// A metric without its suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// Tokens stamped in the window ÷ window.
    OutputThroughput,
    /// Median over requests of 1/TPOT.
    PerRequestThroughput,
    /// Time to first token.
    Ttft,
    /// Time per output token, per request.
    Tpot,
    /// Inter-token latency, token-weighted.
    Itl,
    /// Gaps between events that came in different reads.
    ChunkGap,
    /// (prompt − cached) ÷ TTFT.
    PrefillThroughput,
    /// Streams that emit, of a serve test requests in flight, averaged over the window.
    ActiveRequests,
    /// Requests that ended in the window.
    CompletedRequests,
    /// Tokens stamped in the window.
    OutputTokens,
    /// Length of the window.
    MeasuredTime,
    /// Launch to first canary token.
    ReadyTime,
    /// KV capacity that the engine reports.
    KvCapacity,
    /// From the sending of a request to its end.
    E2eLatency,
    /// As [`Base::Ttft`], from the time at which the request was due.
    TtftDue,
    /// As [`Base::E2eLatency`], from the time at which the request was due.
    E2eLatencyDue,
    /// Requests that ended well in the window ÷ window.
    RequestThroughput,
    /// Of these the ones that kept every limit of the test's `slo`.
    Goodput,
    /// Share of the requests that failed.
    ErrorRate,
    /// Power of all GPUs that the engine sees.
    PowerMean,
    /// Energy of these GPUs over the window ÷ tokens stamped in it.
    JoulesPerToken,
    /// The most memory in use on any of them.
    GpuMemoryMax,
    /// A metric that a `command` test defines.
    User(UserMetric),
}

use Direction::{Higher, Lower};
use TestKind::{Command, Decode, Prefill, Serve, Startup};

/// The catalogue, in the order in which reports show it.
pub const CATALOGUE: [Entry; 22] = [
    Entry {
        base: Base::OutputThroughput,
        name: "output-throughput",
        unit: "tok/s",
        better: Higher,
        latency: false,
        per_gpu: true,
        tests: &[Decode, Serve, Command],
        formula: "tokens stamped in the window ÷ window",
    },
    Entry {
        base: Base::PerRequestThroughput,
        name: "per-request-throughput",
        unit: "tok/s",
        better: Higher,
        latency: false,
        per_gpu: false,
        tests: &[Decode],
        formula: "median over requests of 1/TPOT",
    },
    Entry {
        base: Base::PrefillThroughput,
        name: "prefill-throughput",
        unit: "tok/s",
        better: Higher,
        latency: false,
        per_gpu: true,
        tests: &[Prefill, Command],
        formula: "(prompt − cached) ÷ TTFT",
    },
    Entry {
        base: Base::Ttft,
        name: "ttft",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Prefill, Decode, Serve, Command],
        formula: "t_1 − t_send",
    },
    Entry {
        base: Base::Tpot,
        name: "tpot",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Decode, Serve, Command],
        formula: "(t_last − t_1) ÷ (n − tokens of the first event), per request",
    },
    Entry {
        base: Base::Itl,
        name: "itl",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Decode, Serve, Command],
        formula: "gaps, token-weighted: a gap g that carried k tokens is k samples of g/k",
    },
    Entry {
        base: Base::ChunkGap,
        name: "chunk-gap",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Decode, Serve],
        formula: "gaps between events that came in different reads",
    },
    Entry {
        base: Base::RequestThroughput,
        name: "request-throughput",
        unit: "1/s",
        better: Higher,
        latency: false,
        per_gpu: true,
        tests: &[Serve, Command],
        formula: "requests that ended well in the window ÷ window",
    },
    Entry {
        base: Base::Goodput,
        name: "goodput",
        unit: "1/s",
        better: Higher,
        latency: false,
        per_gpu: true,
        tests: &[Serve, Command],
        formula: "requests that ended well in the window and kept every limit of `slo` ÷ window",
    },
    Entry {
        base: Base::E2eLatency,
        name: "e2e-latency",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Serve, Command],
        formula: "t_end − t_send, per request",
    },
    Entry {
        base: Base::TtftDue,
        name: "ttft-due",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Serve],
        formula: "t_1 − the time at which the request was due (open loop)",
    },
    Entry {
        base: Base::E2eLatencyDue,
        name: "e2e-latency-due",
        unit: "ms",
        better: Lower,
        latency: true,
        per_gpu: false,
        tests: &[Serve],
        formula: "t_end − the time at which the request was due (open loop)",
    },
    Entry {
        base: Base::ErrorRate,
        name: "error-rate",
        unit: "%",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Serve, Command],
        formula: "failed requests ÷ requests",
    },
    Entry {
        base: Base::ActiveRequests,
        name: "active-requests",
        unit: "",
        better: Higher,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve],
        formula: "emitting streams (serve: requests in flight), averaged over the window",
    },
    Entry {
        base: Base::CompletedRequests,
        name: "completed-requests",
        unit: "",
        better: Higher,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Prefill, Serve, Command],
        formula: "requests that ended in the window",
    },
    Entry {
        base: Base::OutputTokens,
        name: "output-tokens",
        unit: "tokens",
        better: Higher,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve, Command],
        formula: "tokens stamped in the window",
    },
    Entry {
        base: Base::MeasuredTime,
        name: "measured-time",
        unit: "s",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve, Command],
        formula: "length of the window",
    },
    Entry {
        base: Base::PowerMean,
        name: "power.mean",
        unit: "W",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve],
        formula: "energy of all GPUs that the engine sees over the window ÷ window",
    },
    Entry {
        base: Base::JoulesPerToken,
        name: "joules-per-token",
        unit: "J",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve],
        formula: "energy of all GPUs that the engine sees over the window ÷ tokens stamped in it",
    },
    Entry {
        base: Base::GpuMemoryMax,
        name: "gpu-memory.max",
        unit: "bytes",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Decode, Serve],
        formula: "the most bytes in use in the window on any GPU that the engine sees",
    },
    Entry {
        base: Base::ReadyTime,
        name: "ready-time",
        unit: "s",
        better: Lower,
        latency: false,
        per_gpu: false,
        tests: &[Startup],
        formula: "from the start of the process to the canary's token",
    },
    Entry {
        base: Base::KvCapacity,
        name: "kv-capacity",
        unit: "tokens",
        better: Higher,
        latency: false,
        per_gpu: false,
        tests: &[Startup],
        formula: "as the engine reports it",
    },
];

impl Base {
    /// Its row of the catalogue; for a metric of a `command` test the row that it would have.
    pub fn entry(self) -> Entry {
        if let Base::User(UserMetric { name, unit, better }) = self {
            return Entry {
                base: self,
                name,
                unit,
                better,
                latency: false,
                per_gpu: false,
                tests: &[Command],
                formula: "as the tool wrote it",
            };
        }
        // The test below holds that every base has exactly one row.
        *CATALOGUE.iter().find(|entry| entry.base == self).unwrap_or(&CATALOGUE[0])
    }
}

impl Serialize for Base {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Base::User(metric) = self {
            return serializer.serialize_str(&metric.spelled());
        }
        serializer.serialize_str(self.entry().name)
    }
}

impl<'de> Deserialize<'de> for Base {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        CATALOGUE
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.base)
            .or_else(|| UserMetric::read(&name).map(Base::User))
            .ok_or_else(|| serde::de::Error::custom(format!("unknown metric {name}")))
    }
}

/// In a schema it is its name, one of the catalogue's or one of a `command` test.
impl schemars::JsonSchema for Base {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Base".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
        schemars::json_schema!({
            "description": "A metric without its suffix; NAME{better,UNIT} is one that a command test defines.",
            "type": "string",
            "anyOf": [
                { "enum": names },
                { "pattern": "^[a-z][a-z0-9_]*\\{(higher|lower)(,.*)?\\}$" },
            ],
        })
    }
}

/// A metric as a bound names it: `ttft.p50`, `output-throughput-per-gpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// Which.
    pub base: Base,
    /// The suffix; `None` for metrics that are no latency.
    pub stat: Option<Stat>,
    /// Divided by `engine.gpus`.
    pub per_gpu: bool,
}

/// A name that is no metric a bound can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnknownMetric {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Metric, UnknownMetric> {
        let (head, suffix) = parts(text);
        let (name, per_gpu) = head.strip_suffix("-per-gpu").map_or((head, false), |n| (n, true));
        let Some(entry) = CATALOGUE.iter().find(|entry| entry.name == name) else {
            return Err(UnknownMetric {
                message: format!("`{text}` is not a metric"),
                help: nearest(text),
            });
        };
        if per_gpu && !entry.per_gpu {
            return Err(UnknownMetric {
                message: format!("`{name}` has no -per-gpu form"),
                help: format!("write \"{name}\""),
            });
        }
        let stat = match (entry.latency, suffix) {
            (true, None) => {
                return Err(UnknownMetric {
                    message: format!("`{text}` is a latency and needs a suffix"),
                    help: format!(
                        "write \"{name}.p50\"; suffixes are p50, p90, p95, p99, mean and max"
                    ),
                });
            }
            (true, Some(suffix)) => match Stat::ALL.iter().find(|stat| stat.name() == suffix) {
                Some(stat) => Some(*stat),
                None => {
                    return Err(UnknownMetric {
                        message: format!("`.{suffix}` is not a suffix of `{name}`"),
                        help: "suffixes are p50, p90, p95, p99, mean and max".to_owned(),
                    });
                }
            },
            (false, None) => None,
            (false, Some(_)) => {
                return Err(UnknownMetric {
                    message: format!("`{name}` takes no suffix"),
                    help: format!("write \"{head}\""),
                });
            }
        };
        Ok(Metric { base: entry.base, stat, per_gpu })
    }
}

/// A name and its suffix. Some names have a dot of their own.
fn parts(text: &str) -> (&str, Option<&str>) {
    let own = CATALOGUE.iter().map(|entry| entry.name).filter(|name| name.contains('.'));
    for name in own {
        match text.strip_prefix(name) {
            Some("") => return (name, None),
            Some(rest) if rest.starts_with('.') => return (name, Some(&rest[1..])),
            Some(_) | None => {}
        }
    }
    text.split_once('.').map_or((text, None), |(head, suffix)| (head, Some(suffix)))
}

fn nearest(text: &str) -> String {
    let best = CATALOGUE
        .iter()
        .map(|entry| (strsim::jaro_winkler(text, entry.name), entry.name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, name)) if score > 0.8 => format!("did you mean \"{name}\"?"),
        Some(_) | None => {
            let names: Vec<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
            format!("metrics are {}", names.join(", "))
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.entry().name)?;
        if self.per_gpu {
            f.write_str("-per-gpu")?;
        }
        if let Some(stat) = self.stat {
            write!(f, ".{}", stat.name())?;
        }
        Ok(())
    }
}

impl From<UserMetric> for Metric {
    fn from(metric: UserMetric) -> Metric {
        Metric { base: Base::User(metric), stat: None, per_gpu: false }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Base::User(metric) = self.base {
            return serializer.serialize_str(&metric.spelled());
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match UserMetric::read(&text) {
            Some(metric) => Ok(metric.into()),
            None => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// In a schema it is a text: name, `-per-gpu`, suffix.
impl schemars::JsonSchema for Metric {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A metric as a bound names it, such as ttft.p50.",
            "type": "string",
            "pattern": "^[a-z0-9-]+(\\.(p50|p90|p95|p99|mean|max))?$|^[a-z][a-z0-9_]*\\{(higher|lower)(,.*)?\\}$",
        })
    }
}

#[cfg(test)]
mod tests;
