//! A suite file as typed: every key with its span, nothing resolved.
//!
//! Plain serde, and the JSON Schema comes from these types: their documentation is what editors
//! show. It decides what shape a key has; `check` decides what it means and which keys must be there.

mod shapes;
mod value;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::engine::Kind;
use crate::hardware::need::OnMismatch;
use crate::judge::Severity;
use crate::load::{Api, Arrival};
use crate::measure::{Direction, Preset, TestKind};

pub use super::model::{
    Capacity, DatasetFormat, HardwareFault, InconclusivePolicy, OnMissing, SimClock, UnjudgedPolicy,
};
pub use value::{
    At, AxisItem, AxisValues, CommandValue, DateText, DurationText, Entries, Geometric, GridRow,
    GridTable, GroupsTable, LengthTable, LengthValue, LimitValue, OneOrMany, PairOfCounts,
    PercentText, PrefixValue, PrefixWord, SamplingText, Scalar, Selection, SizeText, TimeLimitText,
    TokenCount, ToleranceText, VersionText, Whole,
};

/// A tokgate suite: what is measured on which hardware and engine, and what is expected of it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "tokgate suite", extend("required" = ["version"]))]
pub struct File {
    /// Version of the format: 1.
    #[schemars(extend("const" = 1, "x-expects" = "1, the version of this format"))]
    pub version: Option<At<i64>>,
    /// A suite file that this one builds on, relative to this file. Tables merge by key, `[[test]]`
    /// and named `[[expect]]` by name; unnamed `[[expect]]` are added; other arrays replace; another
    /// `engine.kind` replaces `[engine]` wholly.
    pub extends: Option<At<String>>,
    /// Name and tags.
    pub suite: Option<At<SuiteTable>>,
    /// What the machine must have, checked before anything is launched.
    pub hardware: Option<At<HardwareTable>>,
    /// What is served.
    pub model: Option<At<ModelTable>>,
    /// What serves it, and how it is started.
    pub engine: Option<At<EngineTable>>,
    /// Defaults of the requests of all tests.
    pub request: Option<At<RequestTable>>,
    /// Values for templates, as `vars.NAME`.
    pub vars: Entries<At<Value>>,
    /// Secrets for templates, as `secret.NAME`; redacted in everything that is written.
    pub secrets: Entries<At<SecretTable>>,
    /// Axes of every test.
    pub matrix: Entries<At<AxisValues>>,
    /// What is measured.
    pub test: Vec<At<TestTable>>,
    /// What is expected of the figures.
    pub expect: Vec<At<ExpectTable>>,
    /// Recorded runs that `min-ratio` and `max-ratio` are held against.
    pub baseline: Option<At<BaselineTable>>,
    /// Named overrides of single values of engine, model and vars; each variant is an engine of its own.
    pub variant: Entries<At<VariantTable>>,
    /// Two variants measured one beside the other, in pairs of fresh launches.
    pub compare: Option<At<CompareTable>>,
    /// Cells that are known to fail.
    pub quarantine: Vec<At<QuarantineTable>>,
    /// How verdicts are made.
    pub policy: Option<At<PolicyTable>>,
    /// Named overrides of work and policy, chosen by `--profile`; never a bound.
    pub profile: Entries<At<ProfileTable>>,
}

/// Name and tags.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SuiteTable {
    /// Its name, in reports and directories: letters, digits, `_` and `-`.
    pub name: Option<At<String>>,
    /// Words to find it by.
    pub tags: Vec<At<String>>,
}

/// What the machine must have.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct HardwareTable {
    /// `here`: this machine is checked (default with a command); `elsewhere`: only declared (default with a url).
    #[serde(rename = "where")]
    pub location: Option<At<Location>>,
    /// Case-insensitive part of the product name of every GPU that the engine sees.
    pub gpu: Option<At<String>>,
    /// How many GPUs: `8` for exactly, `">=4"` for at least.
    #[schemars(extend("x-expects" = "a whole number like 8, or a text like \">=4\""))]
    pub count: Option<At<Scalar>>,
    /// Memory per GPU: `"141GB"` within 5 % of either reading of GB, `">=140GiB"` for a floor.
    #[schemars(extend("x-expects" = "a size like \"141GB\" or \">=140GiB\""))]
    pub vram: Option<At<SizeText>>,
    /// A requirement on the driver's version, like `">=570"`.
    pub driver: Option<At<VersionText>>,
    /// A requirement on the newest CUDA that the driver runs, like `">=12.8, <14"`.
    pub cuda: Option<At<VersionText>>,
    /// The operating system: `linux`, `macos`, `windows`.
    pub os: Option<At<String>>,
    /// What a mismatch leads to.
    pub on_mismatch: Option<At<OnMismatch>>,
    /// Whether GPUs on which others compute are a warning instead of a mismatch; default false.
    pub allow_busy: Option<At<bool>>,
    /// A command, a template, that prints what `tokgate probe --format json` prints where the GPUs are, like
    /// `"srun tokgate probe --format json"`; default: the GPUs are those of this machine.
    pub probe: Option<At<CommandValue>>,
    /// Highest temperature in °C that a GPU may have when an engine is started; default: any.
    pub cool_below: Option<At<f64>>,
    /// How often GPUs and host are looked at while a cell is measured, or `off`; default `"200ms"`.
    pub sampling: Option<At<SamplingText>>,
}

/// Where the hardware is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Location {
    /// This machine, checked.
    Here,
    /// Another one, declared only.
    Elsewhere,
}

/// What is served.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelTable {
    /// Its name in requests; default: what `/v1/models` says.
    pub name: Option<At<String>>,
    /// Revision.
    pub revision: Option<At<String>>,
    /// Quantization.
    pub quantization: Option<At<String>>,
}

/// What serves the model.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EngineTable {
    /// Which engine: what it can be asked, and how.
    pub kind: Option<At<Kind>>,
    /// A requirement on its version, like `"0.29.0"` or `">=0.28, <0.30"`, checked against what it says.
    pub version: Option<At<VersionText>>,
    /// Divisor of the `*-per-gpu` metrics; default: `hardware.count`.
    pub gpus: Option<At<Whole>>,
    /// What starts it, a template: one text split as a shell splits words, or a list with one argument each.
    pub command: Option<At<CommandValue>>,
    /// Where it already runs, a template; instead of a command.
    pub url: Option<At<String>>,
    /// Where it answers, a template; default `127.0.0.1`.
    pub host: Option<At<String>>,
    /// A fixed port; default: a free one.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<At<u16>>,
    /// Environment variables, templates.
    pub env: Entries<At<String>>,
    /// Commands to run once, before the first launch.
    pub setup: Vec<At<CommandValue>>,
    /// Longest time for them together; default `"1h"`.
    pub setup_timeout: Option<At<DurationText>>,
    /// What must hold before load is sent.
    pub ready: Option<At<ReadyTable>>,
    /// How it is ended.
    pub stop: Option<At<StopTable>>,
    /// Where its metrics are read, templates; default by kind; several are summed.
    pub metrics_url: Option<At<OneOrMany>>,
    /// Texts that its log must hold once it is ready.
    pub log_must_contain: Vec<At<String>>,
    /// Whether commands run under `/bin/sh -c`; default false.
    pub shell: Option<At<bool>>,
    /// `kind = "sim"` only: the profile to simulate, relative to this file; default: the built-in one.
    pub profile: Option<At<String>>,
    /// `kind = "sim"` only: `real`, a child process over TCP, or `virtual`, in process and as fast as the machine can.
    pub clock: Option<At<SimClock>>,
    /// Files that it wants, written below `{{ launch.dir }}`.
    pub file: Vec<At<EngineFile>>,
}

/// What must hold before load is sent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReadyTable {
    /// Longest time from start to ready; default `"10m"`.
    pub timeout: Option<At<DurationText>>,
    /// Whether `/v1/models` must list the model; default true.
    pub models: Option<At<bool>>,
    /// Whether a canary completion must yield a token; default true.
    pub completion: Option<At<bool>>,
}

/// How the engine is ended.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StopTable {
    /// Time between TERM and KILL; default `"30s"`.
    pub grace: Option<At<DurationText>>,
    /// What to run besides, for what the process tree does not hold.
    pub command: Option<At<CommandValue>>,
}

/// A file that the engine wants.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["path", "content"]))]
pub struct EngineFile {
    /// Its path below `{{ launch.dir }}`.
    pub path: Option<At<String>>,
    /// Its content, a template.
    pub content: Option<At<String>>,
}

/// How requests are made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestTable {
    /// Which endpoint; default `completions`.
    pub api: Option<At<Api>>,
    /// Further fields of the body; texts in it are templates.
    pub body: Option<At<Map<String, Value>>>,
    /// Further headers, templates.
    pub headers: Entries<At<String>>,
    /// Longest time of a serve request; default `"300s"`.
    pub timeout: Option<At<DurationText>>,
    /// Longest silence of a stream; default `"60s"`.
    pub idle_timeout: Option<At<DurationText>>,
    /// How far the server's count of prompt tokens may be off; default `"0.5%"`, and at least one token.
    pub prompt_tolerance: Option<At<ToleranceText>>,
    /// How far outputs may be off what is asked for, on average; default `"1%"`, and at least one token.
    pub output_tolerance: Option<At<ToleranceText>>,
}

/// Where a secret comes from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecretTable {
    /// `true`: made anew for each run.
    pub generate: Option<At<bool>>,
    /// An environment variable.
    pub env: Option<At<String>>,
}

/// One kind of measurement over a matrix.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TestTable {
    /// Its name; default: the kind.
    pub name: Option<At<String>>,
    /// What it measures.
    pub kind: Option<At<TestKind>>,
    /// How its requests are made, over `[request]`.
    pub request: Option<At<RequestTable>>,
    /// decode: shortest window, default `"30s"`; serve: how long requests are sent, instead of a number.
    pub duration: Option<At<DurationText>>,
    /// decode: the window stays open until each stream has had as many tokens; default 100.
    pub min_tokens: Option<At<Whole>>,
    /// decode: longest output of a request in tokens; default 256.
    pub max_output: Option<At<TokenCount>>,
    /// decode, serve: how prompts share their beginnings; default `unique`.
    pub prefix: Option<At<PrefixValue>>,
    /// decode: how KV capacity is reckoned; default `reserve`.
    pub capacity: Option<At<Capacity>>,
    /// decode: one-token requests whose TTFT is taken, in at least 3 waves; default 6.
    pub ttft_samples: Option<At<Whole>>,
    /// prefill: requests of a cell; default 3.
    pub samples: Option<At<Whole>>,
    /// serve: how requests arrive; default `closed`. `constant` and `poisson` need the axis `request_rate`.
    pub arrival: Option<At<Arrival>>,
    /// serve: how many requests are measured.
    pub requests: Option<At<Whole>>,
    /// serve: how many requests of each stream are measured, in a closed loop; default 10.
    pub requests_per_stream: Option<At<Whole>>,
    /// serve: requests of each stream before the measured ones, at the same concurrency; default 1.
    pub warmup_per_stream: Option<At<u32>>,
    /// serve: length of prompts in tokens; default `"1K"`; or the axis `input`.
    pub input: Option<At<LengthValue>>,
    /// serve: length of outputs in tokens; default 256; or the axis `output`.
    pub output: Option<At<LengthValue>>,
    /// serve: prompts out of a file, instead of `input`.
    pub dataset: Option<At<DatasetTable>>,
    /// serve: what goodput asks of each request.
    pub slo: Option<At<SloTable>>,
    /// serve, command: how often it is done in one launch; default 1.
    pub repeat: Option<At<Whole>>,
    /// How many fresh launches of the engine measure each cell, whose spread enters the interval; default 1.
    /// Variants that `[compare]` names have its `pairs` instead.
    #[schemars(extend("maximum" = 1000, "x-expects" = "a whole number from 1 to 1000"))]
    pub launches: Option<At<Whole>>,
    /// command: what is run, a template that sees the cell and where the engine answers.
    pub command: Option<At<CommandValue>>,
    /// command: the JSON file that it writes, below `{{ cell.dir }}`, a template.
    pub result: Option<At<String>>,
    /// command: the tool whose file that is, so that its figures are known.
    pub preset: Option<At<Preset>>,
    /// command: further figures of that file, by names of your own.
    pub metrics: Entries<At<MetricTable>>,
    /// command: longest time that it may take; default `"1h"`.
    pub timeout: Option<At<DurationText>>,
    /// Its axes, besides those of `[matrix]`.
    pub matrix: Entries<At<AxisValues>>,
    /// Cells that are left out.
    pub exclude: Vec<At<Entries<At<Selection>>>>,
}

/// Prompts out of a file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["file", "format"]))]
pub struct DatasetTable {
    /// The file, relative to this one.
    pub file: Option<At<String>>,
    /// How it is written.
    pub format: Option<At<DatasetFormat>>,
    /// Shortest prompt in tokens that is taken.
    pub min_input: Option<At<TokenCount>>,
    /// Longest prompt in tokens that is taken.
    pub max_input: Option<At<TokenCount>>,
    /// Shortest output in tokens that is taken.
    pub min_output: Option<At<TokenCount>>,
    /// Longest output in tokens that is taken.
    pub max_output: Option<At<TokenCount>>,
    /// Longest prompt and output together that is taken.
    pub max_total: Option<At<TokenCount>>,
}

/// What goodput asks of each request.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SloTable {
    /// Longest time to the first token; in open loop from when the request was due.
    pub ttft: Option<At<DurationText>>,
    /// Longest time per output token.
    pub tpot: Option<At<DurationText>>,
    /// Longest time to the end; in open loop from when the request was due.
    pub e2e_latency: Option<At<DurationText>>,
}

/// A figure of a tool's result.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["pointer", "better"]))]
pub struct MetricTable {
    /// JSON pointer to the number, like `"/results/gsm8k/exact_match"`.
    pub pointer: Option<At<String>>,
    /// Which way it gets better.
    pub better: Option<At<Direction>>,
    /// Its unit, as reports show it; default none.
    pub unit: Option<At<String>>,
}

/// What is expected of one metric.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExpectTable {
    /// A name, by which a suite that extends this one overrides it.
    pub name: Option<At<String>>,
    /// The tests that it holds for: a name or a list; default all that produce the metric.
    pub test: Option<At<OneOrMany>>,
    /// The cells that it holds for; default all.
    #[schemars(extend("x-expects" = "a table of axes, like { context = \"8K\", concurrency = \"..4\" }"))]
    #[serde(rename = "where")]
    pub filter: Option<At<Entries<At<Selection>>>>,
    /// Cells that it does not hold for.
    #[schemars(extend("x-expects" = "a table of axes, like { context = \"8K\", concurrency = \"..4\" }"))]
    pub except: Option<At<Entries<At<Selection>>>>,
    /// The metric; latencies take a suffix, like `ttft.p50`.
    pub metric: Option<At<String>>,
    /// At least so much: a number in the metric's unit, a quantity with a unit, or a grid.
    pub min: Option<At<LimitValue>>,
    /// At most so much: a number in the metric's unit, a quantity with a unit, or a grid.
    pub max: Option<At<LimitValue>>,
    /// At least so much of what it is held against (recorded runs or another variant), as a share: 0.97
    /// tolerates a loss of 3 %.
    #[schemars(extend("x-expects" = "a share like 0.97"))]
    pub min_ratio: Option<At<f64>>,
    /// At most so much of what it is held against, where less is better, as a share: 1.03 tolerates 3 % more.
    #[schemars(extend("x-expects" = "a share like 1.03"))]
    pub max_ratio: Option<At<f64>>,
    /// What `min-ratio` or `max-ratio` is held against; default: the baseline of `[compare]`, else the file
    /// of `[baseline]`.
    #[schemars(extend("x-expects" = "a table like { file = \"baselines/h200.jsonl\" }, { git = \"main\" } or { variant = \"old\" }"))]
    pub against: Option<At<AgainstTable>>,
    /// How far the figure may fall short of the number, like `"5%"`; default none.
    pub slack: Option<At<PercentText>>,
    /// What a broken bound leads to; default `fail`.
    pub severity: Option<At<Severity>>,
}

/// What a ratio is held against.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgainstTable {
    /// A file of recorded runs, relative to this one; `tokgate baseline record` writes it.
    pub file: Option<At<String>>,
    /// A git revision, like `"main"`: the file (default that of `[baseline]`) as it stands there, whatever
    /// is checked out.
    pub git: Option<At<String>>,
    /// A variant of this suite, measured in the same run; in pairs where `[compare]` names the two.
    pub variant: Option<At<String>>,
}

/// Two variants measured one beside the other, in whole ABBA blocks of fresh launches.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["baseline", "candidate"]))]
pub struct CompareTable {
    /// The variant that is held against.
    pub baseline: Option<At<String>>,
    /// The variant that is judged.
    pub candidate: Option<At<String>>,
    /// How many pairs of launches; even, from 4 to 1000; default 4.
    #[schemars(extend("minimum" = 4, "maximum" = 1000, "x-expects" = "an even number from 4 to 1000"))]
    pub pairs: Option<At<Whole>>,
    /// At least so much of the baseline on average over all cells, as a share; absent: reported only.
    #[schemars(extend("x-expects" = "a share like 0.99"))]
    pub min_mean_ratio: Option<At<f64>>,
}

/// Recorded runs, and what they must have in common with this one.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct BaselineTable {
    /// The file, relative to this one; `tokgate baseline record` writes it.
    pub file: Option<At<String>>,
    /// What must be the same there and here; default GPU, number of GPUs, model and quantization.
    pub identity: Option<At<Vec<At<String>>>>,
    /// How much launches differ, as `tokgate calibrate` measured and wrote it, relative to this one; where it
    /// tells of a figure, its interval is that of launches and not of the one launch alone.
    pub noise: Option<At<String>>,
    /// What a cell that the file lacks leads to; default `error`.
    pub on_missing: Option<At<OnMissing>>,
}

/// What a variant changes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct VariantTable {
    /// Values of `[engine]`.
    pub engine: Option<At<EngineTable>>,
    /// Values of `[model]`.
    pub model: Option<At<ModelTable>>,
    /// Values of `[vars]`.
    pub vars: Entries<At<Value>>,
}

/// Cells that are known to fail.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(extend("required" = ["where", "reason", "expires"]))]
pub struct QuarantineTable {
    /// Which cells.
    #[schemars(extend("x-expects" = "a table of axes, like { context = \"8K\", concurrency = \"..4\" }"))]
    #[serde(rename = "where")]
    pub filter: Option<At<Entries<At<Selection>>>>,
    /// Why.
    pub reason: Option<At<String>>,
    /// Where it is followed up.
    pub issue: Option<At<String>>,
    /// The last day on which it holds, a date without quotes.
    pub expires: Option<At<DateText>>,
    /// Greatest loss that it covers, like `"10%"`; default any.
    pub max_loss: Option<At<PercentText>>,
}

/// How verdicts are made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PolicyTable {
    /// One-sided level of every judgement; default 0.05.
    #[schemars(extend("x-expects" = "a number between 0 and 0.5"))]
    pub alpha: Option<At<f64>>,
    /// What an inconclusive cell leads to; default `warn`.
    pub inconclusive: Option<At<InconclusivePolicy>>,
    /// What a cell that nothing is expected of leads to; default `warn`.
    pub unjudged: Option<At<UnjudgedPolicy>>,
    /// What throttling, foreign processes, memory errors or a host without idle cores lead to while a cell is
    /// measured; default `"warn"`.
    pub hardware_fault: Option<At<HardwareFault>>,
    /// Share of failed requests that is tolerated; default `"0%"`.
    pub max_error_rate: Option<At<PercentText>>,
    /// Client lag beyond which a measurement is invalid; default `"5ms"`.
    pub max_client_lag: Option<At<DurationText>>,
    /// Restarts of a dead engine; default 1.
    pub restarts: Option<At<u32>>,
    /// Longest time of the whole run; `auto`: what a Slurm job has left; default none.
    pub time_limit: Option<At<TimeLimitText>>,
}

/// What a profile changes: work and policy, never a bound.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProfileTable {
    /// Cells to run, each text as for `-E`; several are alternatives.
    pub select: Vec<At<String>>,
    /// Values of tests, by test name.
    pub test: Entries<At<TestTable>>,
    /// Axes of every test.
    pub matrix: Entries<At<AxisValues>>,
    /// Values of `[request]`.
    pub request: Option<At<RequestTable>>,
    /// Values of `[policy]`.
    pub policy: Option<At<PolicyTable>>,
    /// Values of `[engine]`.
    pub engine: Option<At<EngineTable>>,
    /// Values of `[model]`.
    pub model: Option<At<ModelTable>>,
    /// Values of `[vars]`.
    pub vars: Entries<At<Value>>,
    /// Values of `[hardware]`.
    pub hardware: Option<At<HardwareTable>>,
    /// How many pairs `[compare]` has.
    pub compare: Option<At<ProfileCompareTable>>,
}

/// What a profile changes of `[compare]`: work, never what is compared nor the bound.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProfileCompareTable {
    /// How many pairs of launches; even, from 4 to 1000.
    #[schemars(extend("minimum" = 4, "maximum" = 1000, "x-expects" = "an even number from 4 to 1000"))]
    pub pairs: Option<At<Whole>>,
}
