//! What an engine's own metrics said while a cell was measured, as reports show it: plain values for
//! programs, one line for people. It computes nothing.

use crate::engine::readings::EngineFigures;
use crate::quantity::print_number;
use crate::record::run_record::CellOutcome;

use super::figure::measurement;

/// Names and plain values of what is known: shares are 0 to 1.
pub fn properties(outcome: &CellOutcome) -> Vec<(&'static str, f64)> {
    let Some(figures) = measurement(outcome).and_then(|measured| measured.engine) else {
        return Vec::new();
    };
    let EngineFigures {
        running_mean,
        waiting_mean,
        waiting_max,
        kv_usage_mean,
        kv_usage_max,
        preemptions,
        prefix_queries,
        prefix_hits,
        prefix_hit_share,
        draft_tokens,
        accepted_tokens,
        draft_acceptance,
        accepted_length,
    } = figures;
    let count = |count: Option<u64>| count.map(|count| count as f64);
    [
        ("engine.running.mean", running_mean),
        ("engine.waiting.mean", waiting_mean),
        ("engine.waiting.max", waiting_max),
        ("engine.kv-usage.mean", kv_usage_mean),
        ("engine.kv-usage.max", kv_usage_max),
        ("engine.preemptions", count(preemptions)),
        ("engine.prefix-queries", count(prefix_queries)),
        ("engine.prefix-hits", count(prefix_hits)),
        ("engine.prefix-hit-share", prefix_hit_share),
        ("engine.draft-tokens", count(draft_tokens)),
        ("engine.accepted-tokens", count(accepted_tokens)),
        ("engine.draft-acceptance", draft_acceptance),
        ("engine.accepted-length", accepted_length),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.filter(|value| value.is_finite())?)))
    .collect()
}

/// `8 running · KV cache 25 % (31 % at most) · 92 % of prompt tokens from the prefix cache · …`: what
/// is worth a look. None where the metrics said nothing of it.
pub fn words(outcome: &CellOutcome) -> Option<String> {
    let figures = measurement(outcome).and_then(|measured| measured.engine)?;
    let percent = |share: f64| format!("{} %", print_number(share * 100.0, 1));
    let known = |value: Option<f64>| value.filter(|value| value.is_finite());
    let mut parts = Vec::new();
    if let Some(running) = known(figures.running_mean) {
        parts.push(format!("{} running", print_number(running, 1)));
    }
    if let Some(waiting) = known(figures.waiting_mean).filter(|waiting| *waiting > 0.0) {
        parts.push(format!("{} waiting", print_number(waiting, 1)));
    }
    match (known(figures.kv_usage_mean), known(figures.kv_usage_max)) {
        (Some(mean), Some(most)) => {
            parts.push(format!("KV cache {} ({} at most)", percent(mean), percent(most)));
        }
        (Some(one), None) | (None, Some(one)) => parts.push(format!("KV cache {}", percent(one))),
        (None, None) => {}
    }
    if let Some(share) = known(figures.prefix_hit_share) {
        parts.push(format!("{} of prompt tokens from the prefix cache", percent(share)));
    }
    if let Some(preemptions) = figures.preemptions.filter(|count| *count > 0) {
        parts.push(super::count::plural(preemptions as usize, "preemption"));
    }
    if let Some(acceptance) = known(figures.draft_acceptance) {
        parts.push(format!("{} of draft tokens accepted", percent(acceptance)));
    }
    if let Some(length) = known(figures.accepted_length) {
        parts.push(format!("{} tokens a step", print_number(length, 2)));
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::run_record::CellState;
    use crate::report::fixture;

    fn with(engine: Option<EngineFigures>) -> CellOutcome {
        let mut outcome = fixture::page().cells.swap_remove(12);
        let CellState::Measured(measured) = &mut outcome.state else { panic!() };
        measured.engine = engine;
        outcome
    }

    #[test]
    fn what_is_known_is_told_and_nothing_else() {
        let outcome = with(Some(EngineFigures {
            running_mean: Some(8.0),
            waiting_mean: Some(0.0),
            kv_usage_mean: Some(0.25),
            kv_usage_max: Some(0.313),
            preemptions: Some(0),
            prefix_queries: Some(4000),
            prefix_hits: Some(3680),
            prefix_hit_share: Some(0.92),
            draft_acceptance: Some(0.7),
            accepted_length: Some(3.1),
            ..EngineFigures::default()
        }));
        assert_eq!(
            words(&outcome).unwrap(),
            "8 running · KV cache 25 % (31.3 % at most) · 92 % of prompt tokens from the prefix cache · \
             70 % of draft tokens accepted · 3.1 tokens a step"
        );
        let properties = properties(&outcome);
        assert!(properties.contains(&("engine.kv-usage.max", 0.313)));
        assert!(properties.contains(&("engine.preemptions", 0.0)));
        assert!(properties.iter().all(|(name, _)| !name.contains("draft-tokens")));
    }

    #[test]
    fn an_engine_without_metrics_has_no_line() {
        assert_eq!((words(&with(None)), properties(&with(None))), (None, vec![]));
        let queries = EngineFigures { prefix_queries: Some(0), ..EngineFigures::default() };
        assert_eq!(words(&with(Some(queries))), None);
    }
}
