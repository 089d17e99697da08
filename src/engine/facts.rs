//! What a ready engine says of itself: version, KV capacity, longest request.
//!
//! Where an engine does not say a thing, it is absent, never guessed. What a mismatch with the suite
//! leads to is decided by `launch`.

use serde_json::Value;

use super::ready::Listed;
use super::remote::{Remote, RemoteError};
use super::{Facts, Kind};
pub use crate::version::UnreadableRequirement;

/// Whether the version that an engine says meets a suite's requirement (`0.29.0`,
/// `>=0.28, <0.30`, `>=b11434`). Build parts (`+cu132`, `-dev`, `.dev45+g1a2b`) are ignored.
///
/// # Errors
/// A requirement that can't be read.
pub fn version_matches(requirement: &str, actual: &str) -> Result<bool, UnreadableRequirement> {
    crate::version::matches(requirement, actual)
}

/// Asks a ready engine for its facts. `model` is what its model list said.
///
/// # Errors
/// The engine stopped answering. That it does not say a thing is no error.
pub async fn read(remote: &Remote, model: &Listed) -> Result<Facts, RemoteError> {
    let mut facts =
        Facts { model: model.id.clone(), max_model_len: model.max_model_len, ..Facts::default() };
    match remote.kind() {
        Kind::Vllm | Kind::Sim | Kind::Openai => {
            facts.version = said(remote.fact("/version").await)?.as_ref().and_then(version);
        }
        Kind::Sglang => {
            let mut info = said(remote.fact("/server_info").await)?;
            if info.is_none() {
                info = said(remote.fact("/get_server_info").await)?;
            }
            if let Some(info) = &info {
                of_sglang(&mut facts, info);
            }
        }
        Kind::LlamaCpp => {
            if let Some(props) = said(remote.fact("/props").await)? {
                of_llama_cpp(&mut facts, &props);
            }
        }
    }
    if facts.kv_capacity.is_none() {
        facts.kv_capacity = said(remote.gauges().await)?.and_then(|gauges| gauges.kv_capacity);
    }
    facts.tokenize = said(remote.tokenize("a").await)?.is_some_and(|ids| !ids.is_empty());
    Ok(facts)
}

/// A refusal or an answer of another shape says nothing; no answer at all is an error.
fn said<T>(answer: Result<Option<T>, RemoteError>) -> Result<Option<T>, RemoteError> {
    match answer {
        Ok(value) => Ok(value),
        Err(RemoteError::Refused { .. } | RemoteError::Unreadable { .. }) => Ok(None),
        Err(error @ (RemoteError::Url { .. } | RemoteError::Unreachable { .. })) => Err(error),
        Err(error @ RemoteError::TimedOut { .. }) => Err(error),
    }
}

fn version(body: &Value) -> Option<String> {
    body.get("version").and_then(Value::as_str).map(str::to_owned)
}

fn of_sglang(facts: &mut Facts, info: &Value) {
    facts.version = version(info);
    let replicas = info.get("dp_size").and_then(Value::as_u64).unwrap_or(1).max(1);
    let each = info.get("max_total_num_tokens").and_then(Value::as_u64);
    facts.kv_capacity = each.and_then(|tokens| tokens.checked_mul(replicas));
    if facts.max_model_len.is_none() {
        facts.max_model_len = info.get("context_length").and_then(Value::as_u64);
    }
}

fn of_llama_cpp(facts: &mut Facts, props: &Value) {
    facts.version = props.get("build_info").and_then(Value::as_str).map(str::to_owned);
    facts.slots = props.get("total_slots").and_then(Value::as_u64);
    let context = props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
    // Each slot has its own share of the cache, and no request may be longer than that.
    facts.max_model_len = context.or(facts.max_model_len);
    facts.kv_capacity = context.and_then(|tokens| tokens.checked_mul(facts.slots?));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_cpp_says_its_slots_and_their_length() {
        let props = include_str!("../../tests/data/engine/llama-props.json");
        let mut facts = Facts::default();
        of_llama_cpp(&mut facts, &serde_json::from_str(props).unwrap());
        assert_eq!(facts.version.as_deref(), Some("b0-unknown"));
        assert_eq!((facts.slots, facts.max_model_len), (Some(4), Some(1024)));
        assert_eq!(facts.kv_capacity, Some(4096));
    }

    #[test]
    fn sglang_says_it_for_each_replica() {
        let info = serde_json::json!({
            "version": "0.5.4", "dp_size": 2, "max_total_num_tokens": 131072, "context_length": 32768,
        });
        let mut facts = Facts::default();
        of_sglang(&mut facts, &info);
        assert_eq!(facts.version.as_deref(), Some("0.5.4"));
        assert_eq!((facts.kv_capacity, facts.max_model_len), (Some(262_144), Some(32_768)));
    }

    #[test]
    fn versions_of_engines_are_compared() {
        assert_eq!(version_matches("0.29.0", "0.29.0+cu132"), Ok(true));
        assert_eq!(version_matches(">=b11000", "b11434-abc"), Ok(true));
        assert_eq!(version_matches("0.28.0", "0.29.0"), Ok(false));
    }
}
