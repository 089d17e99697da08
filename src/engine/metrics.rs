//! What an engine's metrics say: the few figures that a run looks at, under the names that vLLM
//! (current and older), SGLang and llama.cpp give them.
//!
//! Figures of several engines are added up, shares averaged. A figure that the engine does not give,
//! or gives as no number, is unknown and never 0. It asks nobody and judges nothing; what a series
//! of such figures comes to is decided in `readings`.

use super::exposition::Sample;

/// One reading. Absent: the engine does not say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gauges {
    /// Requests being served.
    pub running: Option<f64>,
    /// Requests in the queue.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1; the mean where several engines say it.
    pub kv_usage: Option<f64>,
    /// The same of the fullest engine.
    pub kv_fullest: Option<f64>,
    /// Preempted (SGLang: retracted) requests since the start.
    pub preemptions: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache since the start.
    pub prefix_hits: Option<f64>,
    /// Share of prompt tokens found in the prefix cache as the engine reckons it itself, 0 to 1;
    /// over which time is its own affair.
    pub prefix_share: Option<f64>,
    /// Steps of speculative decoding since the start: one draft each.
    pub drafts: Option<f64>,
    /// Tokens that drafts proposed since the start.
    pub draft_tokens: Option<f64>,
    /// Proposed tokens that the model accepted since the start.
    pub accepted_tokens: Option<f64>,
    /// Accepted ÷ proposed as the engine reckons it itself, 0 to 1.
    pub draft_acceptance: Option<f64>,
    /// Tokens that a step of speculative decoding yields, as the engine reckons it itself: those
    /// accepted and one more.
    pub accepted_length: Option<f64>,
    /// KV cache capacity in tokens.
    pub kv_capacity: Option<u64>,
}

/// Names of one figure, the current one first: the first that a text has counts.
type Names = [&'static str];

const RUNNING: &Names =
    &["vllm_num_requests_running", "sglang_num_running_reqs", "llamacpp_requests_processing"];
const WAITING: &Names =
    &["vllm_num_requests_waiting", "sglang_num_queue_reqs", "llamacpp_requests_deferred"];
const KV_USAGE: &Names = &[
    "vllm_kv_cache_usage_perc",
    "vllm_gpu_cache_usage_perc",
    "sglang_token_usage",
    "llamacpp_kv_cache_usage_ratio",
];
const PREEMPTIONS: &Names = &[
    "vllm_num_preemptions_total",
    "vllm_num_preemptions",
    "sglang_num_retracted_requests_total",
    "sglang_num_retracted_reqs_total",
    "sglang_total_retracted_reqs",
];
const PREFIX_QUERIES: &Names = &[
    "vllm_prefix_cache_queries_total",
    "vllm_prefix_cache_queries",
    "vllm_gpu_prefix_cache_queries_total",
    "vllm_gpu_prefix_cache_queries",
    "sglang_prompt_tokens_total",
];
const PREFIX_HITS: &Names = &[
    "vllm_prefix_cache_hits_total",
    "vllm_prefix_cache_hits",
    "vllm_gpu_prefix_cache_hits_total",
    "vllm_gpu_prefix_cache_hits",
    "sglang_cached_tokens_total",
    "llamacpp_prompt_tokens_cached_total",
];
const PREFIX_SHARE: &Names = &["vllm_gpu_prefix_cache_hit_rate", "sglang_cache_hit_rate"];
const DRAFTS: &Names = &[
    "vllm_spec_decode_num_drafts_total",
    "vllm_spec_decode_num_drafts",
    "llamacpp_spec_decode_num_drafts_total",
];
const DRAFT_TOKENS: &Names = &[
    "vllm_spec_decode_num_draft_tokens_total",
    "vllm_spec_decode_num_draft_tokens",
    "llamacpp_spec_decode_num_draft_tokens_total",
];
const ACCEPTED_TOKENS: &Names = &[
    "vllm_spec_decode_num_accepted_tokens_total",
    "vllm_spec_decode_num_accepted_tokens",
    "llamacpp_spec_decode_num_accepted_tokens_total",
];
const DRAFT_ACCEPTANCE: &Names =
    &["vllm_spec_decode_draft_acceptance_rate", "sglang_spec_accept_rate"];
const ACCEPTED_LENGTH: &Names = &["sglang_spec_accept_length"];
// llama.cpp counts prompt tokens that it computed and those that it had cached apart.
const COMPUTED: &Names = &["llamacpp_prompt_tokens_total"];
const CAPACITY: &Names = &["sglang_max_total_num_tokens"];

/// Labels that tell apart processes which serve the same requests together, and each report them.
const RANKS: [&str; 4] = ["tp_rank", "pp_rank", "moe_ep_rank", "pid"];

impl Gauges {
    /// Makes a reading of the samples of each of the engine's metrics texts.
    pub fn of(texts: &[Vec<Sample>]) -> Gauges {
        let prefix_hits = sum(texts, PREFIX_HITS);
        let prefix_queries = sum(texts, PREFIX_QUERIES)
            .or_else(|| Some(sum(texts, COMPUTED)? + sum(texts, PREFIX_HITS)?));
        let usage = values(texts, KV_USAGE);
        Gauges {
            running: sum(texts, RUNNING),
            waiting: sum(texts, WAITING),
            kv_usage: mean(&usage),
            kv_fullest: finite(usage.iter().copied().reduce(f64::max).filter(|_| all(&usage))),
            preemptions: sum(texts, PREEMPTIONS),
            prefix_queries,
            prefix_hits,
            prefix_share: share(texts, PREFIX_SHARE),
            drafts: sum(texts, DRAFTS),
            draft_tokens: sum(texts, DRAFT_TOKENS),
            accepted_tokens: sum(texts, ACCEPTED_TOKENS),
            draft_acceptance: share(texts, DRAFT_ACCEPTANCE),
            // An engine that does not speculate says 0 here.
            accepted_length: mean(&values(texts, ACCEPTED_LENGTH)).filter(|n| *n >= 1.0),
            kv_capacity: capacity(texts),
        }
    }
}

fn sum(texts: &[Vec<Sample>], names: &Names) -> Option<f64> {
    let found = values(texts, names);
    finite((!found.is_empty()).then(|| found.iter().sum()))
}

fn mean(values: &[f64]) -> Option<f64> {
    finite((!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64))
}

/// A mean that is a share; engines write −1 for one that they don't have.
fn share(texts: &[Vec<Sample>], names: &Names) -> Option<f64> {
    mean(&values(texts, names)).filter(|share| (0.0..=1.0).contains(share))
}

/// One figure that is no number makes its sum none.
fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

fn all(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite())
}

/// The value of each engine, out of each text by the first name that it has.
fn values(texts: &[Vec<Sample>], names: &Names) -> Vec<f64> {
    texts
        .iter()
        .flat_map(|samples| {
            let named = |name: &&str| {
                let found: Vec<&Sample> =
                    samples.iter().filter(|sample| alike(&sample.name, name)).collect();
                (!found.is_empty()).then_some(found)
            };
            once_each(&names.iter().find_map(named).unwrap_or_default())
        })
        .collect()
}

/// Values of series, where those of ranks that serve the same requests count once: the highest,
/// since some ranks leave at 0 what another reports.
fn once_each(samples: &[&Sample]) -> Vec<f64> {
    let mut found: Vec<(Vec<&(String, String)>, f64)> = Vec::new();
    for sample in samples {
        let mut labels: Vec<_> =
            sample.labels.iter().filter(|(name, _)| !RANKS.contains(&name.as_str())).collect();
        labels.sort_unstable();
        match found.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, value)) if sample.value.is_nan() || value.is_nan() => *value = f64::NAN,
            Some((_, value)) => *value = value.max(sample.value),
            None => found.push((labels, sample.value)),
        }
    }
    found.into_iter().map(|(_, value)| value).collect()
}

/// Engines write `:` behind their own name, some exporters `_`.
fn alike(written: &str, name: &str) -> bool {
    written.len() == name.len()
        && written.bytes().zip(name.bytes()).all(|(a, b)| a == b || (a == b':' && b == b'_'))
}

fn capacity(texts: &[Vec<Sample>]) -> Option<u64> {
    let infos: Vec<u64> = texts
        .iter()
        .flatten()
        .filter(|sample| alike(&sample.name, "vllm_cache_config_info"))
        .filter_map(|sample| {
            let number = |label| sample.label(label)?.parse::<f64>().ok().and_then(whole);
            // The engine's own reckoning is right for models with several kinds of layers too,
            // where blocks times block size is not.
            number("kv_cache_size_tokens")
                .or_else(|| number("num_gpu_blocks")?.checked_mul(number("block_size")?))
        })
        .filter(|tokens| *tokens > 0)
        .collect();
    if !infos.is_empty() {
        return infos.into_iter().try_fold(0u64, u64::checked_add);
    }
    sum(texts, CAPACITY).and_then(whole).filter(|tokens| *tokens > 0)
}

fn whole(value: f64) -> Option<u64> {
    (0.0..9e15).contains(&value).then_some(value as u64)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
