//! What holds where a suite says nothing.
//!
//! The numbers, and the same as a table of texts for `list --explain`, the guide and `init`; a test
//! holds the two together.

use std::time::Duration;

/// Prompt length in tokens.
pub const CONTEXT: u64 = 1024;
/// Streams.
pub const CONCURRENCY: u64 = 1;
/// Longest output of a decode request in tokens.
pub const MAX_OUTPUT: u64 = 256;
/// Shortest decode window.
pub const DURATION: Duration = Duration::from_secs(30);
/// Tokens of each stream in a decode window.
pub const MIN_TOKENS: u32 = 100;
/// Requests of a prefill cell.
pub const SAMPLES: u32 = 3;
/// One-token requests of a decode cell whose TTFT is taken.
pub const TTFT_SAMPLES: u32 = 6;
/// Fewest waves that these are sent in.
pub const TTFT_WAVES: u64 = 3;
/// Length of a serve test's prompts in tokens.
pub const INPUT: u64 = 1024;
/// Length of a serve test's outputs in tokens.
pub const OUTPUT: u64 = 256;
/// Measured requests of each stream of a closed loop.
pub const REQUESTS_PER_STREAM: u64 = 10;
/// Requests of each stream before the measured ones.
pub const WARMUP_PER_STREAM: u32 = 1;
/// How often a serve or command test is done in one launch.
pub const REPEAT: u32 = 1;
/// `launches` of tests.
pub const LAUNCHES: u32 = 1;
/// `compare.pairs`.
pub const PAIRS: u32 = 4;
/// Longest time of a command test's tool.
pub const TOOL: Duration = Duration::from_secs(3600);
/// Longest time from start to ready.
pub const READY: Duration = Duration::from_secs(600);
/// Longest time of `setup`.
pub const SETUP: Duration = Duration::from_secs(3600);
/// Time between TERM and KILL.
pub const GRACE: Duration = Duration::from_secs(30);
/// Longest time of a serve request.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// Longest silence of a stream.
pub const IDLE: Duration = Duration::from_secs(60);
/// How far the server's count of prompt tokens may be off, as a fraction.
pub const PROMPT_TOLERANCE: f64 = 0.005;
/// `request.output-tolerance`, as a fraction.
pub const OUTPUT_TOLERANCE: f64 = 0.01;
/// Where an engine answers.
pub const HOST: &str = "127.0.0.1";
/// One-sided level of every judgement.
pub const ALPHA: f64 = 0.05;
/// Client lag beyond which a measurement is invalid.
pub const MAX_CLIENT_LAG: Duration = Duration::from_millis(5);
/// Restarts of a dead engine.
pub const RESTARTS: u32 = 1;

/// Key and default as a suite would write it; what stands in round brackets is no value.
pub const TABLE: [(&str, &str); 54] = [
    ("suite.tags", "[]"),
    ("hardware.where", "\"here\" with a command, \"elsewhere\" with a url"),
    ("hardware.on-mismatch", "\"error\""),
    ("hardware.allow-busy", "false"),
    ("hardware.sampling", "\"200ms\""),
    ("model.name", "(what /v1/models says)"),
    ("engine.version", "(any, recorded only)"),
    ("engine.gpus", "hardware.count"),
    ("engine.host", "\"127.0.0.1\""),
    ("engine.port", "(a free one)"),
    ("engine.setup-timeout", "\"1h\""),
    ("engine.ready.timeout", "\"10m\""),
    ("engine.ready.models", "true"),
    ("engine.ready.completion", "true"),
    ("engine.stop.grace", "\"30s\""),
    ("engine.metrics-url", "(by kind)"),
    ("engine.shell", "false"),
    ("engine.profile", "(the built-in one)"),
    ("engine.clock", "\"real\""),
    ("request.api", "\"completions\""),
    ("request.timeout", "\"300s\""),
    ("request.idle-timeout", "\"60s\""),
    ("request.prompt-tolerance", "\"0.5%\""),
    ("request.output-tolerance", "\"1%\""),
    ("test.name", "(the kind)"),
    ("test.matrix.context", "[\"1K\"]"),
    ("test.matrix.concurrency", "[1]"),
    ("test.duration", "\"30s\""),
    ("test.min-tokens", "100"),
    ("test.max-output", "256"),
    ("test.prefix", "\"unique\""),
    ("test.capacity", "\"reserve\""),
    ("test.ttft-samples", "6, in at least 3 waves"),
    ("test.samples", "3"),
    ("test.arrival", "\"closed\""),
    ("test.requests-per-stream", "10"),
    ("test.warmup-per-stream", "1"),
    ("test.input", "\"1K\""),
    ("test.output", "256"),
    ("test.repeat", "1"),
    ("test.launches", "1"),
    ("test.timeout", "\"1h\""),
    ("expect.against", "the baseline of [compare], else the file of [baseline]"),
    ("expect.slack", "\"0%\""),
    ("expect.severity", "\"fail\""),
    ("baseline.on-missing", "\"error\""),
    ("compare.pairs", "4"),
    ("compare.min-mean-ratio", "(shown, not judged)"),
    ("policy.alpha", "0.05"),
    ("policy.inconclusive", "\"warn\""),
    ("policy.unjudged", "\"warn\""),
    ("policy.hardware-fault", "\"warn\""),
    ("policy.max-client-lag", "\"5ms\""),
    ("policy.restarts", "1"),
];
