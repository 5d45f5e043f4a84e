//! Measured values, and how one reads.
//!
//! Decides what a run may measure and how a person sees it. Knows no scenario and no verdict.

use super::statistics::rounded;
use serde_json::Value;
use std::collections::BTreeMap;

/// Measured values by key: numbers, flags, or null where there was nothing to measure.
pub type Values = BTreeMap<String, Value>;

/// A value, rounded; `-` where there is none.
pub(super) fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(number) => format!("{}", rounded(number)),
        None if value.is_null() => "-".to_owned(),
        None => value.to_string(),
    }
}
