//! The messages for the case that two hosts use one key, for example after a disk was cloned.
//!
//! This module contains the texts. The core notices the case and decides how long the alarm lasts.

use rove_proto::node::{PeerStatus, SharedKey};
use rove_proto::time::Instant;
use serde_json::{Value, json};

use crate::ledger::wall_clock;

/// The effect of the two hosts on each other.
const CAUSE: &str = "a disk or a directory was copied; each host takes the session from the other, \
                     so both lose most of their packets";

/// Since when two hosts use the key of this session's client, in seconds since 1970. `None` if this
/// was not noticed lately.
pub(super) fn since(session: &PeerStatus, now: Instant) -> Option<u64> {
    let SharedKey { since, .. } = session.shared_key.filter(|shared| shared.stands(now))?;
    Some(wall_clock().0.saturating_sub(now.saturating_since(since).as_secs()))
}

/// The problem, for the user of the client.
pub(super) fn at_client(session: &PeerStatus, now: Instant) -> Option<Value> {
    Some(json!({
        "what": "another host uses the key of this client",
        "since": since(session, now)?,
        "cause": CAUSE,
        "cure": "ask the gateway's operator for an invite with a new name, and run `rove up \
                 INVITE` on one of the two hosts: that gives it a key of its own",
    }))
}

/// The problem, for the gateway's operator. `name` is the client's.
pub(super) fn at_gateway(name: &str, session: &PeerStatus, now: Instant) -> Option<Value> {
    Some(json!({
        "what": format!("two hosts use the key of {name}"),
        "since": since(session, now)?,
        "cause": CAUSE,
        "cure": "make an invite with a new name (`rove gateway invite NAME`), and run `rove up \
                 INVITE` on one of the two hosts; if nobody knows the other host, `rove gateway \
                 revoke` the client and invite it anew",
    }))
}

/// The problem in one line, for the log.
pub(super) fn line(problem: &Value) -> String {
    let text = |key| problem.get(key).and_then(Value::as_str).unwrap_or_default();
    format!("{}: {}. Cure: {}", text("what"), text("cause"), text("cure"))
}

/// Adds `problem` to a status.
pub(super) fn add(status: &mut Value, problem: Value) {
    match status.get_mut("problems").and_then(Value::as_array_mut) {
        Some(problems) => problems.push(problem),
        None => status["problems"] = json!([problem]),
    }
}
