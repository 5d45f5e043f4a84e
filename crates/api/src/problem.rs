//! Problems of a node and its host.

use serde::{Deserialize, Serialize};

/// One problem, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The part of the node or its host: `interface`, `kill-switch`, `filter`, `routing`,
    /// `setting`, `dns`, `leak`, `firewall`, `offload` or `other`. Missing for a problem of a
    /// session or of the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The problem.
    pub what: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// The cause, as far as it is known.
    pub cause: String,
    /// The action that a person can take.
    pub cure: String,
}
