//! Presets: which figures the result files of known tools hold.
//!
//! Pure readers of JSON. It decides which of a tool's numbers is which metric and in which unit; it
//! runs no tool and opens no file.
//!
//! A number is taken only where it means what the catalogue says. What each tool means by its own:
//!
//! | tool | its number | here |
//! |---|---|---|
//! | vLLM, SGLang | `ttft`, `tpot`, `e2el`, `e2e_latency` | `ttft`, `tpot`, `e2e-latency`, per request |
//! | vLLM, SGLang | `itl`: gaps between events, not divided by their tokens | `itl`, where an event carries one token (see `tokens_per_event`) |
//! | GuideLLM | `inter_token_latency_ms`: mean gap of each request, counted once a token | `tpot`; its mean alone is `itl.mean` |
//! | GuideLLM | `time_per_output_token_ms`: with the first token in it | nothing |
//! | AIPerf | `inter_token_latency`: mean gap of each request | `tpot` |
//! | AIPerf | `inter_chunk_latency`: gaps between events | nothing |
//! | llama-bench | `avg_ts` of a row with a prompt alone, of one with generation alone | `prefill-throughput`, `output-throughput` |
//! | all but llama-bench | throughputs | over the whole run, its beginning and end included |
//! | all | a latency or rate of 0 | not measured |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document;
use super::{Base, Metric, Stat};

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

/// A result that holds not what is wanted of it; the whole message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// What a result holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// Figures in the units of the catalogue.
    pub figures: BTreeMap<Metric, f64>,
    /// Requests that failed, and all; `None` where the tool does not say.
    pub requests: Option<(u64, u64)>,
}

/// Where a figure stands in a file.
struct Source {
    base: Base,
    stat: Option<Stat>,
    /// The first of these that is there holds it.
    pointers: Vec<String>,
    /// What its number is multiplied by.
    scale: f64,
}

/// From so many tokens an event on, gaps between events are no inter-token latencies.
const SEVERAL_TOKENS: f64 = 1.1;

impl Preset {
    /// Its name in a suite.
    pub fn name(self) -> &'static str {
        match self {
            Preset::VllmBenchServe => "vllm-bench-serve",
            Preset::Guidellm => "guidellm",
            Preset::Aiperf => "aiperf",
            Preset::SglangBenchServing => "sglang-bench-serving",
            Preset::LlamaBench => "llama-bench",
        }
    }

    /// Whether this tool's file holds the metric, where the tool is asked for it.
    pub fn produces(self, metric: Metric) -> bool {
        let counts_failures = match self {
            Preset::VllmBenchServe
            | Preset::Guidellm
            | Preset::Aiperf
            | Preset::SglangBenchServing => metric.base == Base::ErrorRate,
            Preset::LlamaBench => false,
        };
        let mut sources = self.sources().into_iter();
        counts_failures || sources.any(|it| (it.base, it.stat) == (metric.base, metric.stat))
    }

    /// What a result holds. `documents` are the values of the file; `wanted` are the metrics that
    /// something is expected of, which must be there; others that are there come along.
    ///
    /// # Errors
    /// No file of this tool, several benchmarks in it, no request that ended well, a number that is
    /// none or negative, or a wanted one that is not there.
    pub fn read(self, documents: &[Value], wanted: &[Metric]) -> Result<Told, Unfit> {
        match self {
            Preset::VllmBenchServe => {
                let document = one(documents)?;
                let completed = completed(document, "/completed", self)?;
                let failed = count(document, "/failed")?
                    .or(count(document, "/num_prompts")?
                        .and_then(|asked| asked.checked_sub(completed)));
                self.take(document, wanted, completed, failed)
            }
            Preset::SglangBenchServing => {
                // A line for each run that was written into it.
                let document = documents.last().unwrap_or(&Value::Null);
                let completed = completed(document, "/completed", self)?;
                let errors = document.pointer("/errors").and_then(Value::as_array);
                let failed = errors.map(|errors| {
                    let told = |error: &&Value| error.as_str().is_some_and(|text| !text.is_empty());
                    errors.iter().filter(told).count() as u64
                });
                self.take(document, wanted, completed, failed)
            }
            Preset::Guidellm => {
                let document = one(documents)?;
                if let Some(several) = document.pointer("/benchmarks").and_then(Value::as_array)
                    && several.len() != 1
                {
                    return Err(Unfit(format!(
                        "/benchmarks has {} benchmarks, and a cell is one: have guidellm run one rate (a concurrent or constant profile), and let an axis of the test say which",
                        several.len()
                    )));
                }
                let totals = "/benchmarks/0/metrics/request_totals";
                let completed = completed(document, &format!("{totals}/successful"), self)?;
                let failed = count(document, &format!("{totals}/errored"))?;
                self.take(document, wanted, completed, failed)
            }
            Preset::Aiperf => {
                let document = one(documents)?;
                if document.pointer("/was_cancelled") == Some(&Value::Bool(true)) {
                    return Err(Unfit("/was_cancelled is true: the run was cut short".to_owned()));
                }
                let completed = completed(document, "/request_count/avg", self)?;
                let ended = count(document, "/completed_request_count/avg")?;
                let failed = match ended {
                    Some(ended) => ended.checked_sub(completed),
                    None => count(document, "/error_request_count/avg")?,
                };
                self.take(document, wanted, completed, failed)
            }
            Preset::LlamaBench => llama_bench(documents, wanted),
        }
    }

    /// Takes every figure that is there, and holds that the wanted ones are.
    fn take(
        self,
        document: &Value,
        wanted: &[Metric],
        completed: u64,
        failed: Option<u64>,
    ) -> Result<Told, Unfit> {
        let is_wanted = |base: Base, stat: Option<Stat>| {
            wanted.iter().any(|metric| (metric.base, metric.stat) == (base, stat))
        };
        let mut told = Told::default();
        let crowded = self.tokens_per_event(document);
        for source in self.sources() {
            let metric = Metric { base: source.base, stat: source.stat, per_gpu: false };
            let must = is_wanted(source.base, source.stat);
            let there = source.pointers.iter().find(|at| document::is_there(document, at));
            let Some(pointer) = there.or(source.pointers.first().filter(|_| must)) else {
                continue;
            };
            let found = figure(document, pointer)
                .and_then(|number| Ok(number * source.scale * self.unit(document, pointer)?));
            let found = match found {
                Ok(found) => found,
                Err(why) if must => return Err(why),
                // Nobody asks for it.
                Err(_) => continue,
            };
            if let Some(tokens) = crowded.filter(|_| gaps(source.base, self)) {
                if must {
                    return Err(Unfit(format!(
                        "{pointer} is no {metric}: an event carried {tokens:.1} tokens on average, and {} tells gaps between events; expect something of tpot instead",
                        self.name()
                    )));
                }
                continue;
            }
            if found > 0.0 || !measured(source.base) {
                told.figures.insert(metric, found);
            } else if must {
                return Err(Unfit(format!("{pointer} is 0: the tool did not measure it")));
            }
        }
        told.requests = failed.map(|failed| (failed, completed + failed));
        if let Some((failed, all)) = told.requests {
            let rate = Metric { base: Base::ErrorRate, stat: None, per_gpu: false };
            told.figures.insert(rate, failed as f64 / all as f64 * 100.0);
        } else if is_wanted(Base::ErrorRate, None) {
            return Err(Unfit(match self {
                Preset::SglangBenchServing => {
                    "there is no /errors, which error-rate is counted from: run sglang.bench_serving with --output-details".to_owned()
                }
                Preset::VllmBenchServe
                | Preset::Guidellm
                | Preset::Aiperf
                | Preset::LlamaBench => {
                    format!("{} does not say how many requests failed", self.name())
                }
            }));
        }
        Ok(told)
    }

    fn sources(self) -> Vec<Source> {
        let flat = |keys: [(Base, &str); 4], median: &[&str], max: &str| {
            let mut sources = Vec::new();
            for (base, key) in keys {
                for stat in Stat::ALL {
                    let heads: Vec<&str> = match stat {
                        Stat::Mean => vec!["mean"],
                        Stat::P50 => median.to_vec(),
                        Stat::P90 | Stat::P95 | Stat::P99 => vec![stat.name()],
                        Stat::Max => vec![max],
                    };
                    let pointers = heads.iter().map(|head| format!("/{head}_{key}_ms")).collect();
                    sources.push(Source { base, stat: Some(stat), pointers, scale: 1.0 });
                }
            }
            sources.extend([
                plain(Base::OutputThroughput, "/output_throughput"),
                plain(Base::RequestThroughput, "/request_throughput"),
                plain(Base::CompletedRequests, "/completed"),
                plain(Base::OutputTokens, "/total_output_tokens"),
                plain(Base::MeasuredTime, "/duration"),
            ]);
            sources
        };
        let latencies = |e2e| {
            [
                (Base::Ttft, "ttft"),
                (Base::Tpot, "tpot"),
                (Base::Itl, "itl"),
                (Base::E2eLatency, e2e),
            ]
        };
        match self {
            Preset::VllmBenchServe => {
                let mut sources = flat(latencies("e2el"), &["median", "p50"], "p100");
                sources.push(plain(Base::Goodput, "/request_goodput"));
                sources
            }
            Preset::SglangBenchServing => flat(latencies("e2e_latency"), &["median", "p50"], "max"),
            Preset::Guidellm => guidellm(),
            Preset::Aiperf => aiperf(),
            Preset::LlamaBench => {
                // Found by their rows.
                vec![
                    plain(Base::PrefillThroughput, "/avg_ts"),
                    plain(Base::OutputThroughput, "/avg_ts"),
                ]
            }
        }
    }

    /// What the unit that stands beside a number makes of it.
    fn unit(self, document: &Value, pointer: &str) -> Result<f64, Unfit> {
        match self {
            Preset::Aiperf => {}
            Preset::VllmBenchServe
            | Preset::Guidellm
            | Preset::SglangBenchServing
            | Preset::LlamaBench => return Ok(1.0),
        }
        let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
        let unit = document.pointer(&format!("{parent}/unit")).and_then(Value::as_str);
        let seconds = parent == "/benchmark_duration";
        match (unit, seconds) {
            (Some("ms"), false) | (Some("sec" | "s"), true) => Ok(1.0),
            (Some("sec" | "s"), false) => Ok(1e3),
            (Some("ms"), true) => Ok(1e-3),
            (Some("us"), false) => Ok(1e-3),
            (Some("ns"), false) => Ok(1e-6),
            (Some("requests" | "tokens" | "requests/sec" | "tokens/sec"), false) | (None, _) => {
                Ok(1.0)
            }
            (Some(other), _) => Err(Unfit(format!(
                "{parent}/unit is \"{other}\": it is not known what the number means"
            ))),
        }
    }

    /// How many tokens an event carried, where they were several: then gaps between events are no
    /// inter-token latencies. By what the tool counted, as far as it did: all time between first and
    /// last tokens ÷ all tokens after the first ones is the mean of gaps between tokens.
    fn tokens_per_event(self, document: &Value) -> Option<f64> {
        let number = |pointer: &str| document::number(document, pointer).ok();
        let e2e = match self {
            Preset::VllmBenchServe => number("/mean_e2el_ms"),
            Preset::SglangBenchServing => {
                // Its own engine's gaps are divided by the mean of this, which hides how they differ.
                let accepted = number("/accept_length").filter(|length| *length >= SEVERAL_TOKENS);
                if accepted.is_some() {
                    return accepted;
                }
                number("/mean_e2e_latency_ms")
            }
            Preset::Guidellm | Preset::Aiperf | Preset::LlamaBench => return None,
        };
        let spent = e2e.zip(number("/mean_ttft_ms")).map(|(end, first)| end - first);
        let later = number("/total_output_tokens")
            .zip(number("/completed"))
            .map(|(tokens, requests)| (tokens - requests) / requests);
        let of_tokens = match (spent, later) {
            (Some(spent), Some(later)) if spent > 0.0 && later > 0.0 => Some(spent / later),
            // Near enough where requests are alike.
            (_, _) => number("/mean_tpot_ms"),
        }?;
        let tokens = number("/mean_itl_ms")? / of_tokens;
        (tokens.is_finite() && tokens > SEVERAL_TOKENS).then_some(tokens)
    }
}

fn plain(base: Base, pointer: &str) -> Source {
    Source { base, stat: None, pointers: vec![pointer.to_owned()], scale: 1.0 }
}

fn guidellm() -> Vec<Source> {
    let at = |path: &str| format!("/benchmarks/0/metrics/{path}");
    let mut sources = Vec::new();
    for (base, key, scale) in [
        (Base::Ttft, "time_to_first_token_ms", 1.0),
        (Base::Tpot, "inter_token_latency_ms", 1.0),
        // In seconds.
        (Base::E2eLatency, "request_latency", 1e3),
    ] {
        for stat in Stat::ALL {
            let leaf = match stat {
                Stat::Mean => "mean".to_owned(),
                Stat::P50 => "median".to_owned(),
                Stat::P90 | Stat::P95 | Stat::P99 => format!("percentiles/{}", stat.name()),
                Stat::Max => "max".to_owned(),
            };
            let pointers = vec![at(&format!("{key}/successful/{leaf}"))];
            sources.push(Source { base, stat: Some(stat), pointers, scale });
        }
    }
    sources.push(Source {
        base: Base::Itl,
        stat: Some(Stat::Mean),
        pointers: vec![at("inter_token_latency_ms/successful/mean")],
        scale: 1.0,
    });
    sources.extend([
        plain(Base::OutputThroughput, &at("output_tokens_per_second/successful/mean")),
        plain(Base::RequestThroughput, &at("requests_per_second/successful/mean")),
        plain(Base::CompletedRequests, &at("request_totals/successful")),
        plain(Base::OutputTokens, &at("output_token_count/successful/total_sum")),
        plain(Base::MeasuredTime, "/benchmarks/0/duration"),
    ]);
    sources
}

fn aiperf() -> Vec<Source> {
    let mut sources = Vec::new();
    for (base, key) in [
        (Base::Ttft, "time_to_first_token"),
        (Base::Tpot, "inter_token_latency"),
        (Base::E2eLatency, "request_latency"),
    ] {
        for stat in Stat::ALL {
            let leaf = if stat == Stat::Mean { "avg" } else { stat.name() };
            let pointers = vec![format!("/{key}/{leaf}")];
            sources.push(Source { base, stat: Some(stat), pointers, scale: 1.0 });
        }
    }
    sources.extend([
        plain(Base::OutputThroughput, "/output_token_throughput/avg"),
        plain(Base::RequestThroughput, "/request_throughput/avg"),
        plain(Base::Goodput, "/goodput/avg"),
        plain(Base::CompletedRequests, "/request_count/avg"),
        // With the tokens of reasoning, which `total_output_tokens` leaves out.
        plain(Base::OutputTokens, "/total_osl/avg"),
        plain(Base::MeasuredTime, "/benchmark_duration/avg"),
    ]);
    sources
}

/// A row a test: prompt processing alone, generation alone, or both at once, which is neither.
fn llama_bench(documents: &[Value], wanted: &[Metric]) -> Result<Told, Unfit> {
    let (rows, at): (&[Value], &str) = match documents {
        [Value::Array(rows)] => (rows, ""),
        lines => (lines, "line "),
    };
    let mut told = Told::default();
    for (base, what, option) in
        [(Base::PrefillThroughput, "prompt", "-p"), (Base::OutputThroughput, "generation", "-n")]
    {
        let mut found: Option<(f64, String)> = None;
        for (index, row) in rows.iter().enumerate() {
            let place = |why: String| Unfit(format!("{at}/{index}{why}"));
            let prompt = document::number(row, "/n_prompt").map_err(|e| place(e.to_string()))?;
            let output = document::number(row, "/n_gen").map_err(|e| place(e.to_string()))?;
            let (own, other) = if option == "-p" { (prompt, output) } else { (output, prompt) };
            if own == 0.0 || other > 0.0 {
                continue;
            }
            let depth = document::number(row, "/n_depth").unwrap_or(0.0);
            let words = format!("n_prompt {prompt}, n_gen {output}, n_depth {depth}");
            if let Some((_, first)) = &found {
                return Err(Unfit(format!(
                    "there are several {what} rows ({first}; {words}), and a cell is one: narrow the command to one value of -p, -n, -d and of each other option"
                )));
            }
            let rate = figure(row, "/avg_ts").map_err(|error| place(error.to_string()))?;
            if rate == 0.0 {
                return Err(place("/avg_ts is 0: the tool did not measure it".to_owned()));
            }
            found = Some((rate, words));
        }
        let metric = Metric { base, stat: None, per_gpu: false };
        match found {
            Some((rate, _)) => {
                told.figures.insert(metric, rate);
            }
            None if wanted.iter().any(|wanted| wanted.base == base) => {
                return Err(Unfit(format!(
                    "there is no row with {what} alone, which {metric} is read from: give {option} a number above 0"
                )));
            }
            None => {}
        }
    }
    if told.figures.is_empty() {
        let message = "there is no row with prompt or generation alone: is it what llama-bench -o json printed?";
        return Err(Unfit(message.to_owned()));
    }
    Ok(told)
}

/// The one value of a file.
fn one(documents: &[Value]) -> Result<&Value, Unfit> {
    match documents {
        [document] => Ok(document),
        several => {
            Err(Unfit(format!("it has {} JSON values, where one is expected", several.len())))
        }
    }
}

/// A number that can't be negative.
fn figure(document: &Value, pointer: &str) -> Result<f64, Unfit> {
    let number = document::number(document, pointer).map_err(|error| Unfit(error.to_string()))?;
    if number < 0.0 {
        return Err(Unfit(format!("{pointer} is {number}: it can't be negative")));
    }
    Ok(number)
}

/// A count, where there is one.
fn count(document: &Value, pointer: &str) -> Result<Option<u64>, Unfit> {
    if !document::is_there(document, pointer) {
        return Ok(None);
    }
    Ok(Some(figure(document, pointer)? as u64))
}

/// How many requests ended well: at least one.
fn completed(document: &Value, pointer: &str, preset: Preset) -> Result<u64, Unfit> {
    let found = figure(document, pointer)
        .map_err(|error| Unfit(format!("{error} (preset {})", preset.name())))?;
    if found < 1.0 {
        return Err(Unfit(format!("{pointer} is 0: no request ended well")));
    }
    Ok(found as u64)
}

/// Whether the tool's numbers of this metric are gaps between events.
fn gaps(base: Base, preset: Preset) -> bool {
    match preset {
        Preset::VllmBenchServe | Preset::SglangBenchServing => base == Base::Itl,
        Preset::Guidellm | Preset::Aiperf | Preset::LlamaBench => false,
    }
}

/// Whether 0 means that nothing was measured: all but goodput, which is 0 where no request is good.
fn measured(base: Base) -> bool {
    base != Base::Goodput
}

#[cfg(test)]
#[path = "preset_tests.rs"]
mod tests;
