//! A suite that cannot be wrong: every name resolved, every quantity read, every default filled in.
//!
//! Plain values, made by `check` alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Kind, ReadySpec};
use crate::judge::{Severity, Side};
use crate::load::Api;
use crate::measure::Metric;

mod baseline;
mod setting;
mod workload;
pub use baseline::{
    Against, BaselineFile, BaselineSetting, Compare, IDENTITY, LEAST_PAIRS, OnMissing, Reference,
};
pub use setting::{
    Amount, Capacity, CommandSetting, Dataset, DatasetFormat, DecodeSetting, LengthSetting, Prefix,
    ServeSetting, Slo, TestSetting,
};

/// A place in a suite file.
#[derive(
    Debug,
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct Place {
    /// The file as the user named it, relative paths kept.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A checked suite.
#[derive(Debug, Clone)]
pub struct Suite {
    /// `suite.name`.
    pub name: String,
    /// `suite.tags`.
    pub tags: Vec<String>,
    /// The file as the user named it.
    pub path: String,
    /// Hash of the merged tree: two suites with the same hash measure and judge the same.
    pub hash: String,
    /// `[hardware]`.
    pub hardware: Option<crate::hardware::need::Need>,
    /// `hardware.probe`: what prints the facts of the machine where the GPUs are.
    pub hardware_probe: Option<CommandText>,
    /// One for each variant in order of declaration; exactly one, without a name, where none is declared.
    pub settings: Vec<Setting>,
    /// `[[test]]`, in order.
    pub tests: Vec<Test>,
    /// `[[expect]]`, in order.
    pub expectations: Vec<Expectation>,
    /// `[baseline]`.
    pub baseline: BaselineSetting,
    /// `[compare]`.
    pub compare: Option<Compare>,
    /// `[[quarantine]]`, in order.
    pub quarantines: Vec<Quarantine>,
    /// `[policy]`.
    pub policy: Policy,
    /// `select` of the profile in force; empty means all. Several are alternatives.
    pub select: Vec<Selector>,
}

/// What a variant settles: the engine and what its templates see.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The variant's name.
    pub variant: Option<String>,
    /// `[model]`.
    pub model: Model,
    /// `[engine]`.
    pub engine: Engine,
    /// `[vars]` in order, as typed.
    pub vars: Vec<(String, serde_json::Value)>,
    /// `[secrets]` in order.
    pub secrets: Vec<(String, SecretSource)>,
    /// Where `[engine]` stands.
    pub place: Place,
    /// Where its texts stand, for carets in template errors.
    pub spans: Spans,
}

/// Byte spans in the source map by dotted key: `engine.url`, `engine.env.NAME`,
/// `engine.file.0.content` (also as `engine.file "PATH"`),
/// `engine.setup.0`, `engine.metrics-url.0`, `vars.NAME`, `secrets.NAME`, `request.body`, `request.headers.NAME`.
/// Tables have one too (`engine`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans(pub BTreeMap<String, Range<usize>>);

impl Spans {
    /// The span of a key; where it has none, that of the nearest table above it.
    pub fn of(&self, key: &str) -> Option<Range<usize>> {
        let mut key = key;
        loop {
            if let Some(span) = self.0.get(key) {
                return Some(span.clone());
            }
            key = &key[..key.rfind('.')?];
        }
    }
}

/// `[model]`.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Default: what `/v1/models` says.
    pub name: Option<String>,
    /// Revision.
    pub revision: Option<String>,
    /// Quantization.
    pub quantization: Option<String>,
}

/// Where a secret comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Made anew for each run.
    Generate,
    /// An environment variable.
    Env(String),
}

/// `[engine]`.
#[derive(Debug, Clone)]
pub struct Engine {
    /// `kind`.
    pub kind: Kind,
    /// `version`, a requirement such as `0.29.0` or `>=0.28, <0.30`.
    pub version: Option<String>,
    /// Divisor of the `*-per-gpu` metrics.
    pub gpus: Option<u32>,
    /// What is started, or where it runs.
    pub source: EngineSource,
    /// `host`, a template.
    pub host: String,
    /// A pinned port.
    pub port: Option<u16>,
    /// `env`, values are templates.
    pub env: Vec<(String, String)>,
    /// `setup`, command templates.
    pub setup: Vec<CommandText>,
    /// `setup-timeout`.
    pub setup_timeout: Duration,
    /// `ready`.
    pub ready: ReadySpec,
    /// `stop.grace`.
    pub stop_grace: Duration,
    /// `stop.command`.
    pub stop_command: Option<CommandText>,
    /// `metrics-url`, templates; `None`: the default of the kind.
    pub metrics_url: Option<Vec<String>>,
    /// `log-must-contain`.
    pub log_must_contain: Vec<String>,
    /// `shell`.
    pub shell: bool,
    /// `[[engine.file]]`: path and content templates.
    pub files: Vec<(String, String)>,
}

/// What is started, or where it runs.
#[derive(Debug, Clone)]
pub enum EngineSource {
    /// A command template.
    Command(CommandText),
    /// A url template of a running engine.
    Url(String),
    /// The simulated engine.
    Sim {
        /// The profile, resolved against the suite's folder; `None`: the built-in one.
        profile: Option<PathBuf>,
        /// A child process over TCP, or in process in virtual time.
        clock: SimClock,
    },
}

/// Which time the simulated engine runs in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SimClock {
    /// A child process over TCP.
    #[default]
    Real,
    /// In process, as fast as the machine can.
    Virtual,
}

/// A command template as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandText {
    /// One string to be split, or one template for each argument.
    pub form: CommandForm,
    /// Where it stands.
    pub place: Place,
    /// Byte span in the source map, for carets in template errors.
    pub span: Range<usize>,
}

/// The two spellings of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandForm {
    /// A string, split as a POSIX shell splits words.
    Line(String),
    /// An array, one argument each.
    Words(Vec<String>),
}

/// `[request]`, with a test's own on top.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// `api`.
    pub api: Api,
    /// `body`: extra fields, string values are templates.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// `headers`, values are templates.
    pub headers: Vec<(String, String)>,
    /// `timeout` of serve requests.
    pub timeout: Duration,
    /// `idle-timeout` of a stream.
    pub idle_timeout: Duration,
    /// `prompt-tolerance` as a fraction; `None` is `"off"`.
    pub prompt_tolerance: Option<f64>,
    /// `output-tolerance` as a fraction; `None` is `"off"`.
    pub output_tolerance: Option<f64>,
}

/// One `[[test]]`.
#[derive(Debug, Clone)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// What it measures, with its settings.
    pub kind: TestSetting,
    /// Byte span in the source map, for carets.
    pub span: Range<usize>,
    /// Its request settings.
    pub request: Request,
    /// Where the texts of its request stand (`request.body`, `request.headers.NAME`).
    pub spans: Spans,
    /// Its axes in the order of a cell's id, suite axes included.
    pub axes: Vec<Axis>,
    /// `exclude`.
    pub exclude: Vec<Selector>,
    /// `launches`: how many fresh launches measure each of its cells; at least 1.
    pub launches: u32,
}

/// What the values of an axis mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisKind {
    /// Token counts (`context`, `input`, `output`).
    Tokens,
    /// Counts (`concurrency`).
    Count,
    /// Rates (`request_rate`).
    Rate,
    /// For templates only.
    Free,
}

/// A named list of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// What its values mean.
    pub kind: AxisKind,
    /// Its values, no two alike.
    pub values: Vec<AxisValue>,
    /// Where it stands.
    pub place: Place,
    /// Byte span in the source map, for carets.
    pub span: Range<usize>,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AxisValue {
    /// A token count.
    Tokens(u64),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A word.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// Values that belong together.
    Table {
        /// The name in cell ids.
        id: String,
        /// What templates see below `axis.NAME`.
        fields: serde_json::Map<String, serde_json::Value>,
    },
}

impl std::fmt::Display for AxisValue {
    /// The canonical spelling, as in a cell's id.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AxisValue::Tokens(n) => crate::quantity::Tokens(*n).fmt(f),
            AxisValue::Integer(n) => write!(f, "{n}"),
            AxisValue::Float(n) => write!(f, "{n}"),
            AxisValue::Text(text) => f.write_str(text),
            AxisValue::Bool(b) => write!(f, "{b}"),
            AxisValue::Table { id, .. } => f.write_str(id),
        }
    }
}

impl AxisValue {
    /// Its number, where it has one: for ranges.
    pub fn number(&self) -> Option<f64> {
        match self {
            AxisValue::Tokens(n) => Some(*n as f64),
            AxisValue::Integer(n) => Some(*n as f64),
            AxisValue::Float(n) => Some(*n),
            AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => None,
        }
    }
}

/// A conjunction of predicates, one per key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selector {
    /// Key and predicate, in order of writing.
    pub predicates: Vec<(Key, Predicate)>,
    /// As written, for messages.
    pub text: String,
    /// Where it stands, when in a file.
    pub place: Option<Place>,
    /// Byte span in the source map, when in a file.
    pub span: Option<Range<usize>>,
}

/// What a predicate looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The test's name.
    Test,
    /// The variant's name.
    Variant,
    /// An axis.
    Axis(String),
}

/// What a predicate asks of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// One of these, by canonical spelling.
    OneOf(Vec<String>),
    /// Within both ends.
    Range(Option<f64>, Option<f64>),
    /// Not so.
    Not(Box<Predicate>),
}

/// One `[[expect]]`.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// `name`.
    pub name: Option<String>,
    /// Where it stands.
    pub place: Place,
    /// Byte span in the source map, for carets.
    pub span: Range<usize>,
    /// Indices of the tests it holds for.
    pub tests: Vec<usize>,
    /// The metric.
    pub metric: Metric,
    /// `min`, `max`, `min-ratio` and `max-ratio`, in that order, with their limits.
    pub bounds: Vec<(Side, Limits)>,
    /// `slack` as a fraction.
    pub slack: f64,
    /// `where`.
    pub filter: Selector,
    /// `except`.
    pub except: Option<Selector>,
    /// `severity`.
    pub severity: Severity,
}

/// The limits of one side.
#[derive(Debug, Clone)]
pub enum Limits {
    /// One number for every cell.
    Scalar {
        /// In the metric's unit.
        value: f64,
        /// Where it stands.
        place: Place,
        /// Byte span in the source map, for carets.
        span: Range<usize>,
    },
    /// Numbers by one or two axes.
    Grid(Grid),
    /// A share of what recorded runs or another variant had.
    Ratio {
        /// The share, with 1 for no change.
        value: f64,
        /// What it is held against.
        against: Against,
        /// Where it stands.
        place: Place,
        /// Byte span in the source map, for carets.
        span: Range<usize>,
    },
}

/// Numbers by one or two axes.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Axis of the rows.
    pub rows: String,
    /// Axis of the columns.
    pub columns: Option<String>,
    /// Entries: canonical row value, canonical column value, what is asked.
    pub entries: Vec<GridEntry>,
}

/// One entry of a grid.
#[derive(Debug, Clone)]
pub struct GridEntry {
    /// Canonical row value.
    pub row: String,
    /// Canonical column value.
    pub column: Option<String>,
    /// What is asked.
    pub limit: GridLimit,
    /// Where it stands.
    pub place: Place,
    /// Byte span in the source map, for carets.
    pub span: Range<usize>,
}

/// What a grid asks of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GridLimit {
    /// `"-"`.
    None,
    /// `"over"`: it must be over capacity.
    Over,
    /// A number in the metric's unit.
    Value(f64),
}

/// One `[[quarantine]]`.
#[derive(Debug, Clone)]
pub struct Quarantine {
    /// `where`.
    pub filter: Selector,
    /// `reason`.
    pub reason: String,
    /// `issue`.
    pub issue: Option<String>,
    /// `expires`, the last day on which it holds, as `YYYY-MM-DD`.
    pub expires: jiff::civil::Date,
    /// `max-loss` as a fraction.
    pub max_loss: Option<f64>,
    /// Where it stands.
    pub place: Place,
    /// Byte span in the source map, for carets.
    pub span: Range<usize>,
}

/// `[policy]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    /// One-sided level of every judgement.
    pub alpha: f64,
    /// What an inconclusive cell leads to.
    pub inconclusive: InconclusivePolicy,
    /// What a cell that nothing is expected of leads to.
    pub unjudged: UnjudgedPolicy,
    /// Share of failed requests that is tolerated.
    pub max_error_rate: f64,
    /// Client lag beyond which a measurement is invalid.
    pub max_client_lag: Duration,
    /// What hardware leads to that was not in order while a cell was measured.
    #[serde(default, skip_serializing_if = "HardwareFault::is_warn")]
    pub hardware_fault: HardwareFault,
    /// Restarts of a dead engine.
    pub restarts: u32,
    /// `time-limit`.
    pub time_limit: Option<TimeLimit>,
}

/// How long a run, or a session of one that is resumed, may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimeLimit {
    /// As long as the batch system leaves to the job that it runs in; for ever outside of one.
    Auto,
    /// So long.
    #[serde(untagged)]
    After(Duration),
}

/// What an inconclusive cell leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum InconclusivePolicy {
    /// Exit 0, counted and listed.
    #[default]
    Warn,
    /// Exit 11, a `failure` in JUnit.
    Fail,
    /// It counts as passed.
    Pass,
    /// The estimate decides, and the report says so.
    Point,
}

/// What hardware leads to that was not in order while a cell was measured.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareFault {
    /// A warning on the cell, and a word in its message where it fails.
    #[default]
    Warn,
    /// The measurement is invalid: an error.
    Error,
}

impl HardwareFault {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_warn(&self) -> bool {
        *self == HardwareFault::Warn
    }
}

/// What a cell that nothing is expected of leads to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum UnjudgedPolicy {
    /// Nothing.
    Allow,
    /// A warning.
    #[default]
    Warn,
    /// An error.
    Error,
}
