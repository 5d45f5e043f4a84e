//! Reading the JSON in which nft lists a ruleset. Statements of iptables appear in it as `xt`, not
//! always translated.

use serde_json::Value;

/// The entries of one kind: `chain`, `rule`.
pub(crate) fn entries<'a>(
    ruleset: &'a Value,
    kind: &'static str,
) -> impl Iterator<Item = &'a Value> + Clone {
    let entries = ruleset.get("nftables").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(move |entry| entry.get(kind))
}

/// A field of an entry; empty if it is missing.
pub(crate) fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a key that fits is anywhere in it.
pub(crate) fn has_key(value: &Value, fits: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(values) => values.iter().any(|value| has_key(value, fits)),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| fits(key) || has_key(value, fits))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
