//! What an engine's metrics say: the Prometheus text format, and the few gauges that a run looks at.
//!
//! Reading never fails: a line that is no sample is passed over. Names of vLLM (current and older),
//! SGLang and llama.cpp are known; series of several engines are summed. It asks nobody and judges
//! nothing.

/// One sample of the Prometheus text format.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name, as written.
    pub name: String,
    /// Labels in order of writing.
    pub labels: Vec<(String, String)>,
    /// The value; may be NaN or infinite.
    pub value: f64,
}

impl Sample {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the Prometheus text format (and OpenMetrics as far as it is alike): every line that is a
/// sample, in order.
pub fn parse(text: &[u8]) -> Vec<Sample> {
    String::from_utf8_lossy(text).lines().filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // What may follow the value, a time stamp or an exemplar, is not asked for.
    let value = number(rest.split_whitespace().next()?)?;
    Some(Sample { name: name.to_owned(), labels, value })
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => {
            text.parse().ok()
        }
        _ => None,
    }
}

/// Labels behind the opening brace, and what follows the closing one.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((found, behind));
        }
        let (name, behind) = rest.split_once('=')?;
        let mut chars = behind.trim_start().strip_prefix('"')?.char_indices();
        let quoted = chars.as_str();
        let mut value = String::new();
        let after = loop {
            match chars.next()? {
                (at, '"') => break &quoted[at + 1..],
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        found.push((name.trim().to_owned(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
}

/// What a run looks at. Absent: the engine does not say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gauges {
    /// Requests being served.
    pub running: Option<f64>,
    /// Requests in the queue.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1; the mean where several engines say it.
    pub kv_usage: Option<f64>,
    /// Preempted (SGLang: retracted) requests since the start.
    pub preemptions: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache since the start.
    pub prefix_hits: Option<f64>,
    /// KV cache capacity in tokens.
    pub kv_capacity: Option<u64>,
}

/// Names of one figure, the current one first: the first that the text has counts.
struct Names<'a>(&'a [&'a str]);

const RUNNING: Names<'_> = Names(&[
    "vllm_num_requests_running",
    "sglang_num_running_reqs",
    "llamacpp_requests_processing",
]);
const WAITING: Names<'_> =
    Names(&["vllm_num_requests_waiting", "sglang_num_queue_reqs", "llamacpp_requests_deferred"]);
const KV_USAGE: Names<'_> = Names(&[
    "vllm_kv_cache_usage_perc",
    "vllm_gpu_cache_usage_perc",
    "sglang_token_usage",
    "llamacpp_kv_cache_usage_ratio",
]);
const PREEMPTIONS: Names<'_> = Names(&[
    "vllm_num_preemptions_total",
    "vllm_num_preemptions",
    "sglang_num_retracted_requests_total",
    "sglang_num_retracted_reqs_total",
]);
const PREFIX_QUERIES: Names<'_> = Names(&[
    "vllm_prefix_cache_queries_total",
    "vllm_gpu_prefix_cache_queries_total",
    "vllm_prefix_cache_queries",
    "sglang_prompt_tokens_total",
]);
const PREFIX_HITS: Names<'_> = Names(&[
    "vllm_prefix_cache_hits_total",
    "vllm_gpu_prefix_cache_hits_total",
    "vllm_prefix_cache_hits",
    "sglang_cached_tokens_total",
    "llamacpp_prompt_tokens_cached_total",
]);

impl Gauges {
    /// Makes gauges of the samples of all the engine's metrics texts together.
    pub fn of(samples: &[Sample]) -> Gauges {
        let kv_usage = values(samples, &KV_USAGE);
        let prefix_hits = sum(samples, &PREFIX_HITS);
        // llama.cpp counts cached prompt tokens apart from those that it computed.
        let computed = sum(samples, &Names(&["llamacpp_prompt_tokens_total"]));
        let prefix_queries = sum(samples, &PREFIX_QUERIES).or_else(|| {
            Some(computed? + sum(samples, &Names(&["llamacpp_prompt_tokens_cached_total"]))?)
        });
        Gauges {
            running: sum(samples, &RUNNING),
            waiting: sum(samples, &WAITING),
            kv_usage: (!kv_usage.is_empty())
                .then(|| kv_usage.iter().sum::<f64>() / kv_usage.len() as f64),
            preemptions: sum(samples, &PREEMPTIONS),
            prefix_queries,
            prefix_hits,
            kv_capacity: capacity(samples),
        }
    }
}

/// Values of the first name that occurs. Engines write `:` behind their own name, some exporters `_`.
fn values(samples: &[Sample], names: &Names<'_>) -> Vec<f64> {
    let named = |name: &str| -> Vec<f64> {
        samples
            .iter()
            .filter(|sample| sample.value.is_finite() && alike(&sample.name, name))
            .map(|sample| sample.value)
            .collect()
    };
    names.0.iter().map(|name| named(name)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn sum(samples: &[Sample], names: &Names<'_>) -> Option<f64> {
    let found = values(samples, names);
    (!found.is_empty()).then(|| found.iter().sum())
}

fn alike(written: &str, name: &str) -> bool {
    written.len() == name.len()
        && written.bytes().zip(name.bytes()).all(|(a, b)| a == b || (a == b':' && b == b'_'))
}

fn capacity(samples: &[Sample]) -> Option<u64> {
    let infos: Vec<u64> = samples
        .iter()
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
    sum(samples, &Names(&["sglang_max_total_num_tokens"])).and_then(whole).filter(|n| *n > 0)
}

fn whole(value: f64) -> Option<u64> {
    (0.0..9e15).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vllm_under_load() {
        let text = include_bytes!("../../tests/data/engine/vllm-under-load.prom");
        let gauges = Gauges::of(&parse(text));
        assert_eq!((gauges.running, gauges.waiting), (Some(8.0), Some(4.0)));
        assert_eq!(gauges.kv_capacity, Some(1_048_576));
        assert_eq!(gauges.preemptions, Some(0.0));
        assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(2116.0), Some(0.0)));
        assert!((gauges.kv_usage.unwrap() - 0.000_976).abs() < 1e-6);
    }

    #[test]
    fn older_names_and_blocks_are_known() {
        let text = br#"
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:gpu_prefix_cache_queries_total{model_name="m"} 10
vllm:gpu_prefix_cache_hits_total{model_name="m"} 4
vllm:cache_config_info{block_size="16",num_gpu_blocks="27000",kv_cache_size_tokens="None"} 1.0
"#;
        let gauges = Gauges::of(&parse(text));
        assert_eq!(gauges.kv_usage, Some(0.25));
        assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(10.0), Some(4.0)));
        assert_eq!(gauges.kv_capacity, Some(432_000));
        assert_eq!(gauges.running, None);
    }

    #[test]
    fn several_engines_are_summed_and_their_usage_is_averaged() {
        let one = br#"vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1
vllm:cache_config_info{engine="1",num_gpu_blocks="100",block_size="16"} 1"#;
        let mut samples = parse(one);
        samples.extend(parse(b"vllm:num_requests_running 5"));
        let gauges = Gauges::of(&samples);
        assert_eq!(gauges.running, Some(12.0));
        assert!((gauges.kv_usage.unwrap() - 0.3).abs() < 1e-12);
        assert_eq!(gauges.kv_capacity, Some(3200));
    }

    #[test]
    fn sglang_and_llama_cpp_have_names_of_their_own() {
        let sglang = br#"sglang:num_running_reqs{model_name="m",tp_rank="0"} 2.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.5
sglang:max_total_num_tokens{model_name="m"} 123456.0
sglang:prompt_tokens_total{model_name="m"} 90
sglang:cached_tokens_total{model_name="m",cache_source="device"} 30
sglang:num_retracted_requests_total{model_name="m"} 3"#;
        let gauges = Gauges::of(&parse(sglang));
        assert_eq!(
            (gauges.running, gauges.waiting, gauges.kv_usage),
            (Some(2.0), Some(1.0), Some(0.5))
        );
        assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(90.0), Some(30.0)));
        assert_eq!((gauges.preemptions, gauges.kv_capacity), (Some(3.0), Some(123_456)));

        let llama = include_bytes!("../../tests/data/engine/llama.prom");
        let gauges = Gauges::of(&parse(llama));
        assert_eq!((gauges.running, gauges.waiting), (Some(0.0), Some(0.0)));
        assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(811.0), Some(195.0)));
        assert_eq!(gauges.kv_capacity, None);
    }

    #[test]
    fn labels_may_hold_anything() {
        let samples = parse(br#"m{a="x\"y\\z\n}",b = "1,2", } 1e3 1700000000 # {x="y"} 1"#);
        assert_eq!(samples.len(), 1);
        assert_eq!(samples[0].label("a"), Some("x\"y\\z\n}"));
        assert_eq!(samples[0].label("b"), Some("1,2"));
        assert_eq!(samples[0].value, 1000.0);
        assert!(parse(b"# HELP x y\n\nno value\nm{a=\"open 1\n1 2\nm{} nope").is_empty());
        assert!(parse(b"m NaN")[0].value.is_nan());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Gauges::of(&parse(&text));
        }

        #[test]
        fn any_cut_of_a_real_text_is_read(cut in 0usize..7696, drop in 0usize..200) {
            let text = include_bytes!("../../tests/data/engine/vllm-under-load.prom");
            let mut text = text[..cut.min(text.len())].to_vec();
            let end = text.len().saturating_sub(drop);
            text.drain(end.min(text.len() / 2)..end);
            let _ = Gauges::of(&parse(&text));
        }

        #[test]
        fn what_is_written_is_read_back(
            name in "[a-z_:][a-z0-9_:]{0,10}",
            label in "[a-z]{1,5}",
            value in "\\PC{0,12}",
            number in -1e12f64..1e12,
        ) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            let line = format!("{name}{{{label}=\"{escaped}\"}} {number}");
            let samples = parse(line.as_bytes());
            prop_assert_eq!(samples, vec![Sample { name, labels: vec![(label, value)], value: number }]);
        }
    }
}
