//! The profile: a TOML file that says what the simulated engine is like.
//!
//! Text in, a [`Profile`] that cannot be wrong out, every refusal with what to write instead. What
//! the numbers lead to is decided by the scheduler.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::curve::{Curve, Surface};
use super::fault_table::FaultTable;
use super::noise::Noise;
use super::script::Fault;
use super::typed::{Count, GridValue, Share, Time};

/// What a simulated engine is like.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What `/version` says.
    pub(crate) version: String,
    /// Longest prompt + output in tokens.
    pub(crate) max_model_len: u64,
    /// KV cache capacity in tokens, a multiple of the block size.
    pub(crate) kv_capacity: u64,
    /// Tokens a KV block holds.
    pub(crate) block_size: u64,
    /// Most requests in execution at once.
    pub(crate) max_num_seqs: usize,
    /// Time from the start until it serves.
    pub(crate) start_up: Duration,
    /// Tokens that an event of a stream carries; the first token goes out alone.
    pub(crate) tokens_per_chunk: u32,
    /// Mean length of an answer that may end by itself.
    pub(crate) natural_output: u64,
    /// Milliseconds by uncached tokens of a prompt, one prompt at a time.
    pub(crate) prefill: Curve,
    /// Milliseconds to the first tokens of cached prompts, by context and requests pending.
    pub(crate) admit: Surface,
    /// Milliseconds of a decode step, by prompt context and streams.
    pub(crate) step: Surface,
    /// How far times stray.
    pub(crate) noise: Noise,
    /// What goes wrong.
    pub(crate) faults: Vec<Fault>,
}

/// A profile that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .path.display())]
pub struct ProfileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what to write instead.
    pub message: String,
}

const BUILT_IN: &str = include_str!("../../suites/sim/default.toml");

impl Default for Profile {
    /// The built-in engine: small and quick.
    fn default() -> Profile {
        Profile::parse(BUILT_IN).expect("the built-in profile is right")
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The file can't be read, is no TOML, has an unknown or missing key, or values that make no engine.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let refuse = |message: String| ProfileError { path: path.to_owned(), message };
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("can't read the profile: {error}")))?;
        Profile::parse(&text).map_err(refuse)
    }

    /// Reads a profile from its text.
    ///
    /// # Errors
    /// As [`Profile::load`]; the message has no file name.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        file.check()
    }
}

/// The file as typed. Every key but the tables `prefill`, `admit` and `step` has a default.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    /// What `/version` says.
    #[serde(default = "version")]
    version: String,
    /// Longest prompt + output.
    max_model_len: Count,
    /// KV cache capacity.
    kv_capacity: Count,
    /// Tokens a KV block holds.
    #[serde(default = "block_size")]
    block_size: Count,
    /// Most requests in execution at once.
    #[serde(default = "max_num_seqs")]
    max_num_seqs: u32,
    /// Time until it serves.
    #[serde(default)]
    start_up: Time,
    /// Tokens an event carries.
    #[serde(default = "one")]
    tokens_per_chunk: u32,
    /// Mean length of an answer that may end by itself.
    #[serde(default = "natural_output")]
    natural_output: Count,
    prefill: PrefillTable,
    admit: GridTable,
    step: GridTable,
    #[serde(default)]
    noise: NoiseTable,
    #[serde(default)]
    fault: Vec<FaultTable>,
}

fn version() -> String {
    "0.0.0-sim".to_owned()
}

fn block_size() -> Count {
    Count(16)
}

fn max_num_seqs() -> u32 {
    1024
}

fn one() -> u32 {
    1
}

fn natural_output() -> Count {
    Count(256)
}

/// `[prefill]`: `tokens` and `ms`, as many of each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefillTable {
    tokens: Vec<Count>,
    ms: Vec<f64>,
}

/// `[admit]`, `[step]`: a row is a context and milliseconds for the numbers in `at`; it may be shorter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GridTable {
    at: Vec<u32>,
    grid: Vec<Vec<GridValue>>,
}

/// `[noise]`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct NoiseTable {
    within: Share,
    correlation: f64,
    between: Share,
    first_token: Share,
    /// Growth of the step time a minute since the engine was last idle.
    drift: Share,
}

impl File {
    fn check(self) -> Result<Profile, String> {
        let block = self.block_size.0;
        let positive = [
            ("max-model-len", self.max_model_len.0),
            ("kv-capacity", self.kv_capacity.0),
            ("block-size", block),
            ("max-num-seqs", u64::from(self.max_num_seqs)),
            ("tokens-per-chunk", u64::from(self.tokens_per_chunk)),
            ("natural-output", self.natural_output.0),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("`{key}` must be above zero"));
        }
        let capacity = self.kv_capacity.0;
        if !capacity.is_multiple_of(block) {
            return Err(format!(
                "`kv-capacity` {capacity} is no multiple of the block size {block}: write {}",
                capacity.div_ceil(block) * block
            ));
        }
        if capacity / block > u64::from(u32::MAX / 2) {
            return Err(format!("`kv-capacity` {capacity} needs more than 2³¹ blocks"));
        }
        if self.max_model_len.0 > capacity {
            return Err(format!(
                "`max-model-len` {} exceeds `kv-capacity` {capacity}: one request must fit",
                self.max_model_len.0
            ));
        }
        let PrefillTable { tokens, ms } = self.prefill;
        if tokens.len() != ms.len() {
            return Err(format!(
                "`prefill` has {} values in `tokens` and {} in `ms`: write as many of each",
                tokens.len(),
                ms.len()
            ));
        }
        let points = tokens.iter().map(|tokens| tokens.0 as f64).zip(ms).collect();
        Ok(Profile {
            version: self.version,
            max_model_len: self.max_model_len.0,
            kv_capacity: capacity,
            block_size: block,
            max_num_seqs: self.max_num_seqs as usize,
            start_up: self.start_up.0,
            tokens_per_chunk: self.tokens_per_chunk,
            natural_output: self.natural_output.0,
            prefill: Curve::new(points).map_err(|what| format!("`prefill` {what}"))?,
            admit: self.admit.check("admit")?,
            step: self.step.check("step")?,
            noise: self.noise.check()?,
            faults: self
                .fault
                .into_iter()
                .enumerate()
                .map(|(index, fault)| {
                    fault.check().map_err(|what| format!("fault {}: {what}", index + 1))
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

impl GridTable {
    fn check(self, key: &str) -> Result<Surface, String> {
        let mut rows = Vec::new();
        for (index, row) in self.grid.iter().enumerate() {
            let place = || format!("`{key}.grid` row {}", index + 1);
            let Some((head, values)) = row.split_first() else {
                return Err(format!("{} is empty: write [\"8K\", 7.5, …]", place()));
            };
            if values.is_empty() || values.len() > self.at.len() {
                return Err(format!(
                    "{} has {} values for {} numbers in `at`: write at least one, at most {2}",
                    place(),
                    values.len(),
                    self.at.len()
                ));
            }
            let context = head.tokens().ok_or_else(|| {
                format!("{} begins with {head}: write a context like \"8K\"", place())
            })?;
            let points = self
                .at
                .iter()
                .zip(values)
                .map(|(at, value)| {
                    let ms = value.number().ok_or_else(|| {
                        format!("{}: {value} is no number of milliseconds", place())
                    })?;
                    Ok((f64::from(*at), ms))
                })
                .collect::<Result<_, String>>()?;
            let curve = Curve::new(points).map_err(|what| format!("{} {what}", place()))?;
            rows.push((context as f64, curve));
        }
        Surface::new(rows).map_err(|what| format!("`{key}.grid` {what}"))
    }
}

impl NoiseTable {
    fn check(self) -> Result<Noise, String> {
        if !(0.0..1.0).contains(&self.correlation) {
            return Err(format!(
                "`noise.correlation` {} is out of range: write a number from 0 to below 1",
                self.correlation
            ));
        }
        Ok(Noise {
            within: self.within.0,
            correlation: self.correlation,
            between: self.between.0,
            first_token: self.first_token.0,
            drift: self.drift.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
max-model-len = "4K"
kv-capacity = "8K"
prefill = { tokens = [16, "1K"], ms = [5, 50.5] }
admit = { at = [1, 8], grid = [["1K", 10, 40]] }
step = { at = [1, 8], grid = [["1K", 5, 6], ["4K", 10]] }
"#;

    #[test]
    fn a_small_profile_needs_capacity_and_three_tables() {
        let profile = Profile::parse(SMALL).unwrap();
        assert_eq!((profile.kv_capacity, profile.block_size), (8192, 16));
        assert_eq!(profile.step.at(4096.0, 1.0), 10.0);
        assert_eq!(profile.start_up, Duration::ZERO);
        assert!(profile.faults.is_empty());
    }

    #[test]
    fn shipped_profiles_are_right() {
        assert!(Profile::default().kv_capacity >= 100_000);
        let inkling = Profile::parse(include_str!("../../suites/sim/inkling.toml")).unwrap();
        assert_eq!(inkling.kv_capacity, 1_600_000);
    }

    #[test]
    fn every_fault_reads() {
        let text = format!(
            "{SMALL}{}",
            r#"
[[fault]]
kind = "crash"
at-token = 500
exit-code = 139
log = ["CUDA error: an illegal memory access was encountered"]
[[fault]]
kind = "die-while-loading"
after = "200ms"
log = ["ValueError: no room"]
[[fault]]
kind = "hang"
at-token = 10
for = "2s"
[[fault]]
kind = "stall"
at-token = 5
requests = { nth = [3], min-output = 2 }
[[fault]]
kind = "refuse"
requests = { every = 10 }
[[fault]]
kind = "status"
status = 429
requests = { share = "15%" }
[[fault]]
kind = "stream-error"
at-token = 3
[[fault]]
kind = "truncate"
at-token = 3
[[fault]]
kind = "slow"
by = "5%"
what = "step"
context = "1K"
batch = 8
[[fault]]
kind = "leak"
tokens = "1K"
"#
        );
        assert_eq!(Profile::parse(&text).unwrap().faults.len(), 10);
    }

    #[test]
    fn refusals_say_what_to_write() {
        let with = |old: &str, new: &str| {
            assert!(SMALL.contains(old));
            Profile::parse(&SMALL.replace(old, new)).unwrap_err()
        };
        insta::assert_snapshot!(with("\"8K\"", "8200"), @"`kv-capacity` 8200 is no multiple of the block size 16: write 8208");
        insta::assert_snapshot!(with("\"8K\"", "\"2K\""), @"`max-model-len` 4096 exceeds `kv-capacity` 2048: one request must fit");
        insta::assert_snapshot!(with("[5, 50.5]", "[5]"), @"`prefill` has 2 values in `tokens` and 1 in `ms`: write as many of each");
        insta::assert_snapshot!(with("[\"4K\", 10]", "[\"4K\"]"), @"`step.grid` row 2 has 0 values for 2 numbers in `at`: write at least one, at most 2");
        insta::assert_snapshot!(with("[\"4K\", 10]", "[\"4K\", 10, 11, 12]"), @"`step.grid` row 2 has 3 values for 2 numbers in `at`: write at least one, at most 2");
        insta::assert_snapshot!(with("[\"4K\", 10]", "[\"4k\", 10]"), @r#"`step.grid` row 2 begins with "4k": write a context like "8K""#);
        insta::assert_snapshot!(with("[\"4K\", 10]", "[\"1K\", 10]"), @"`step.grid` 1024 does not come before 1024: write rising values");
        assert!(
            with("max-model-len", "max-model-length").contains("unknown field `max-model-length`")
        );
        assert!(with("\"4K\"", "\"4k\"").contains("write \"4K\" for 4096 tokens"));
    }

    #[test]
    fn a_key_that_its_fault_does_not_know_is_refused() {
        let fault =
            |text: &str| Profile::parse(&format!("{SMALL}\n[[fault]]\n{text}")).unwrap_err();
        insta::assert_snapshot!(fault("kind = \"leak\"\ntokens = 1\nby = \"5%\""), @"fault 1: `by` has no meaning for this kind of fault: remove it");
        insta::assert_snapshot!(fault("kind = \"crash\""), @"fault 1: `at-token` is missing");
        insta::assert_snapshot!(fault("kind = \"status\"\nstatus = 200"), @"fault 1: status 200 is no error: write 429, 500 or 503");
    }
}
