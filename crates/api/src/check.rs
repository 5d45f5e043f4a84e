//! Results of `rove check` and `rove gateway check`.

use serde::{Deserialize, Serialize};

use crate::CheckState;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The name of the check.
    pub check: String,
    /// The result.
    pub state: CheckState,
    /// The result in words; for a fault, with cause and cure.
    pub says: String,
}
