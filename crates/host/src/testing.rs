//! Private parsers of hostile bytes, for the fuzz targets (feature `testing`).

use rove_api::{Answer, Reply};
use serde::{Serialize, de::DeserializeOwned};

use crate::control::Asked;
use crate::keys::OperatorKey;

/// The text of an invite with this body and a correct checksum. An attacker would make such an
/// invite so that all of the body is parsed.
pub fn invite_of(body: &[u8]) -> String {
    crate::invite::of_body(body)
}

/// A record of a gateway with this body, signed by `operator`.
pub fn record_of(body: &[u8], operator: &OperatorKey) -> Vec<u8> {
    crate::invite::signed(body, operator)
}

/// A node's answer to one line of a control connection. `pass_on` receives a valid request and
/// returns whether the node took it.
pub fn control_answer(line: &[u8], pass_on: &impl Fn(Asked) -> bool) -> Reply<Answer> {
    crate::control::answer(line, pass_on)
}

/// Whether the bytes are a `T`. If they are, checks that the value stays the same when it is
/// written and read again.
///
/// # Panics
/// If the value changes: then the fuzz target has found a defect.
pub fn is_stable<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    bytes: &[u8],
) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return false };
    let text = serde_json::to_vec(&value).expect("what was read can be written");
    let again = serde_json::from_slice::<T>(&text).expect("what was written can be read");
    assert_eq!(again, value, "written again it means something else");
    true
}
