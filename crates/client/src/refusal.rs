//! Why a gateway refuses a client, in words.

use rove_proto::crypto::Status;

/// Why the gateway refused, and what can be done.
pub(crate) fn refusal(status: Status) -> String {
    let text = match status {
        Status::NotEnrolled => {
            "the gateway does not know this client: ask its operator for a new invite"
        }
        Status::TokenUsed => {
            "the invite was used before, by another client: ask for a new one, each is for one"
        }
        Status::TokenExpired => "the invite has expired or was withdrawn: ask for a new one",
        Status::TokenUnknown => {
            "the gateway did not issue this invite, or withdrew it: ask for a new one"
        }
        Status::Revoked => "the gateway's operator revoked this client: ask for a new invite",
        Status::StaleCounter { .. } => {
            "the gateway saw a later handshake of this client: was its directory copied?"
        }
        Status::Busy => {
            "the gateway cannot take another client now: try again later, or ask its operator \
             whether it is full"
        }
        Status::Unsupported => "this version and the gateway's do not fit: update the older one",
        Status::Accepted => "the gateway accepted and gave no keys: update the older of the two",
        Status::Other(code) => {
            return format!("the gateway refused for reason {code}: install a newer rove");
        }
    };
    text.to_owned()
}
