//! `/metrics` under the names that vLLM uses, in Prometheus' text format.

use std::fmt::Write as _;

use super::profile::Profile;
use super::scheduler::Gauges;

/// The whole page.
pub(crate) fn render(profile: &Profile, model: &str, gauges: &Gauges, created: u64) -> String {
    let mut page = String::new();
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    let blocks = profile.kv_capacity / profile.block_size;
    let mut gauge = |name: &str, help: &str, value: f64| {
        let _ = write!(
            page,
            "# HELP vllm:{name} {help}\n# TYPE vllm:{name} gauge\nvllm:{name}{{{labels}}} {value:?}\n"
        );
    };
    gauge(
        "num_requests_running",
        "Number of requests in model execution batches.",
        gauges.running as f64,
    );
    gauge(
        "num_requests_waiting",
        "Number of requests waiting to be processed.",
        gauges.waiting as f64,
    );
    gauge(
        "kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        gauges.used_blocks as f64 / blocks as f64,
    );
    let mut counter = |name: &str, help: &str, value: u64| {
        // Each counter has a `_created` gauge beside it, as prometheus_client writes them.
        let _ = write!(
            page,
            "# HELP vllm:{name}_total {help}\n# TYPE vllm:{name}_total counter\nvllm:{name}_total{{{labels}}} {value}.0\n\
             # HELP vllm:{name}_created {help}\n# TYPE vllm:{name}_created gauge\nvllm:{name}_created{{{labels}}} {created}.0\n"
        );
    };
    counter(
        "prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        gauges.prefix_queries,
    );
    counter(
        "prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        gauges.prefix_hits,
    );
    counter(
        "num_preemptions",
        "Cumulative number of preemption from the engine.",
        gauges.preemptions,
    );
    counter("prompt_tokens", "Number of prefill tokens processed.", gauges.prompt_tokens);
    counter("generation_tokens", "Number of generation tokens processed.", gauges.generated_tokens);
    let help = "Count of successfully processed requests.";
    let _ = writeln!(page, "# HELP vllm:request_success_total {help}");
    let _ = writeln!(page, "# TYPE vllm:request_success_total counter");
    for (reason, count) in
        [("stop", gauges.stopped), ("length", gauges.at_length), ("abort", gauges.aborted)]
    {
        let _ = writeln!(
            page,
            "vllm:request_success_total{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\"}} {count}.0"
        );
    }
    let _ = writeln!(
        page,
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"{}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",kv_cache_size_tokens=\"{}\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\"}} 1.0",
        profile.block_size, profile.kv_capacity
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_names_that_runners_read() {
        let gauges =
            Gauges { running: 3, prefix_hits: 496, used_blocks: 2048, ..Gauges::default() };
        let page = render(&Profile::default(), "a\"b", &gauges, 1);
        for line in [
            "vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"b\"} 3.0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\\\"b\"} 0.25",
            "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"a\\\"b\"} 496.0",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} in\n{page}");
        }
        assert!(page.contains("block_size=\"16\"") && page.contains("num_gpu_blocks=\"8192\""));
    }
}
