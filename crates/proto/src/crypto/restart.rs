//! What a gateway that lost its sessions proves it with (docs/spec/wire.md#7-restart-notice).
//!
//! The key follows from the identity, so it survives a restart, and a new process can make the
//! token of an index that it knows nothing else of. A token is told to the client beforehand, under
//! the session's keys; nobody else can make it or use it for another index. It is no key: all that
//! it brings about is a handshake.

use aws_lc_rs::hmac;

use super::x25519::StaticSecret;
use super::{kdf, mac};
use crate::id::SessionIndex;
use crate::wire::restart::{RESTART_TOKEN_LEN, RestartToken};

const _: () = assert!(RESTART_TOKEN_LEN == crate::wire::handshake::MAC_LEN);

/// Makes the tokens of one identity.
pub struct RestartKey(hmac::Key);

impl RestartKey {
    /// The key of the node with this identity.
    pub fn of(secret: &StaticSecret) -> Self {
        let prk = kdf::extract(b"rove restart v1", secret.as_bytes());
        let key = kdf::expand::<32>(&prk, &[b"token"]);
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
    }

    /// The token of `index`.
    pub fn token(&self, index: SessionIndex) -> RestartToken {
        RestartToken(mac::truncated(&self.0, &index.0.to_be_bytes()))
    }
}

impl std::fmt::Debug for RestartKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RestartKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_makes_the_same_tokens_and_nobody_else_does() {
        let key = |byte| RestartKey::of(&StaticSecret::new([byte; 32]));
        let (index, other) = (SessionIndex(1), SessionIndex(2));
        assert_eq!(key(1).token(index).0, key(1).token(index).0);
        assert_ne!(key(1).token(index).0, key(1).token(other).0);
        assert_ne!(key(1).token(index).0, key(2).token(index).0);
    }
}
