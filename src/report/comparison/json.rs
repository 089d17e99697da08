//! A comparison for programs.

use crate::record::comparison::Comparison;

/// The whole of it, with what it comes to in words.
pub fn json(comparison: &Comparison) -> String {
    // The types have no map with keys that JSON lacks.
    let mut value = serde_json::to_value(comparison).unwrap_or_default();
    value["summary"] = super::sentence(comparison).into();
    value["verdict"] = super::verdict(comparison).into();
    format!("{value:#}\n")
}
