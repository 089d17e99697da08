//! Texts of real engines and of engines that behave oddly, and the figures in them.

use super::*;
use crate::engine::exposition::parse;
use proptest::prelude::*;

const VLLM: &[u8] = include_bytes!("../../tests/data/engine/vllm-under-load.prom");
const LLAMA: &[u8] = include_bytes!("../../tests/data/engine/llama.prom");

fn read(texts: &[&[u8]]) -> Gauges {
    Gauges::of(&texts.iter().map(|text| parse(text)).collect::<Vec<_>>())
}

#[test]
fn vllm_under_load() {
    let gauges = read(&[VLLM]);
    assert_eq!((gauges.running, gauges.waiting), (Some(8.0), Some(4.0)));
    assert_eq!(gauges.kv_capacity, Some(1_048_576));
    assert_eq!(gauges.preemptions, Some(0.0));
    // Beside each counter stands a `_created` gauge, a time in seconds: it is not added.
    assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(2116.0), Some(0.0)));
    assert!((gauges.kv_usage.unwrap() - 0.000_976).abs() < 1e-6);
    // It was started without a draft model.
    assert_eq!(
        (gauges.drafts, gauges.draft_acceptance, gauges.accepted_length),
        (None, None, None)
    );
}

#[test]
fn older_names_and_blocks_are_known() {
    let gauges = read(&[br#"
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:gpu_prefix_cache_queries_total{model_name="m"} 10
vllm:gpu_prefix_cache_hits_total{model_name="m"} 4
vllm:gpu_prefix_cache_hit_rate{model_name="m"} -1
vllm:spec_decode_draft_acceptance_rate{model_name="m"} 0.7
vllm:cache_config_info{block_size="16",num_gpu_blocks="27000",kv_cache_size_tokens="None"} 1.0
"#]);
    assert_eq!(gauges.kv_usage, Some(0.25));
    assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(10.0), Some(4.0)));
    assert_eq!((gauges.prefix_share, gauges.draft_acceptance), (None, Some(0.7)));
    assert_eq!(gauges.kv_capacity, Some(432_000));
    assert_eq!(gauges.running, None);
}

#[test]
fn speculation_is_counted_without_its_positions() {
    let gauges = read(&[br#"vllm:spec_decode_num_drafts_total{engine="0"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 3e2
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 210.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_created{engine="0"} 1.796e+09"#]);
    assert_eq!(
        (gauges.drafts, gauges.draft_tokens, gauges.accepted_tokens),
        (Some(100.0), Some(300.0), Some(210.0))
    );
}

#[test]
fn several_engines_are_added_up_and_their_usage_is_averaged() {
    let one = br#"vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1
vllm:cache_config_info{engine="1",num_gpu_blocks="100",block_size="16"} 1"#;
    // Another url with the same labels is another engine; an older one has other names.
    let gauges =
        read(&[one, b"vllm:num_requests_running{engine=\"0\"} 5\nvllm:gpu_cache_usage_perc 0.9"]);
    assert_eq!(gauges.running, Some(12.0));
    assert!((gauges.kv_usage.unwrap() - 0.5).abs() < 1e-12);
    assert_eq!(gauges.kv_fullest, Some(0.9));
    assert_eq!(gauges.kv_capacity, Some(3200));
}

#[test]
fn sglang_has_names_of_its_own_and_ranks_that_repeat_each_other() {
    let gauges = read(&[br#"sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0"} 2.0
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="1"} 2.0
sglang:num_running_reqs{model_name="m",tp_rank="2",dp_rank="1"} 3.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.5
sglang:cache_hit_rate{model_name="m"} 0.25
sglang:spec_accept_length{model_name="m"} 2.9
sglang:spec_accept_rate{model_name="m"} 0.27
sglang:max_total_num_tokens{model_name="m"} 123456.0
sglang:prompt_tokens_total{model_name="m"} 90
sglang:cached_tokens_total{model_name="m",cache_source="device"} 30
sglang:cached_tokens_total{model_name="m",cache_source="host"} 10
sglang:num_retracted_requests_total{model_name="m"} 3
sglang:num_retracted_reqs{model_name="m",pid="7"} 1"#]);
    assert_eq!(
        (gauges.running, gauges.waiting, gauges.kv_usage),
        (Some(5.0), Some(1.0), Some(0.5))
    );
    assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(90.0), Some(40.0)));
    assert_eq!((gauges.preemptions, gauges.kv_capacity), (Some(3.0), Some(123_456)));
    assert_eq!(
        (gauges.prefix_share, gauges.draft_acceptance, gauges.accepted_length),
        (Some(0.25), Some(0.27), Some(2.9))
    );
    // Without a draft model it says 0.
    assert_eq!(read(&[b"sglang:spec_accept_length 0.0"]).accepted_length, None);
}

#[test]
fn llama_cpp_counts_computed_and_cached_tokens_apart() {
    let gauges = read(&[LLAMA]);
    assert_eq!((gauges.running, gauges.waiting), (Some(0.0), Some(0.0)));
    assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (Some(811.0), Some(195.0)));
    assert_eq!((gauges.drafts, gauges.accepted_tokens), (Some(0.0), Some(0.0)));
    assert_eq!((gauges.kv_capacity, gauges.kv_usage), (None, None));
}

#[test]
fn what_is_no_number_is_unknown_and_so_is_a_sum_with_it() {
    let gauges = read(&[
        b"vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} NaN\n\
          vllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc{a=\"0\"} NaN\nvllm:kv_cache_usage_perc{a=\"1\"} 0.5",
    ]);
    assert_eq!(gauges, Gauges::default());
    assert_eq!(read(&[b"# EOF\n", b"<html>not found</html>"]), Gauges::default());
    assert_eq!(read(&[]), Gauges::default());
}

#[test]
fn histograms_of_the_same_name_are_not_counters() {
    let gauges = read(&[br#"vllm:request_num_preemptions_bucket{le="+Inf"} 9
vllm:request_num_preemptions_sum 4
vllm:num_preemptions_bucket{le="1"} 7"#]);
    assert_eq!(gauges.preemptions, None);
}

proptest! {
    #[test]
    fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&[&text]);
    }

    #[test]
    fn any_cut_of_a_real_text_is_read(cut in 0usize..7696, drop in 0usize..200) {
        let mut text = VLLM[..cut.min(VLLM.len())].to_vec();
        let end = text.len().saturating_sub(drop);
        text.drain(end.min(text.len() / 2)..end);
        let _ = read(&[&text]);
    }
}
