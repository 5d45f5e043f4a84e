//! Cryptography: library primitives put together as docs/spec/handshake.md#2-notation and
//! the sections after it say. No primitive is written here.
//!
//! Decides what is authentic: handshake messages ([`Gate`], [`Initiator`], [`PendingA`]), and
//! data datagrams ([`SealKey`], [`OpenKey`]). Refuses to know what follows from it, which numbers
//! were used, and what time it is, but for the age of a cookie. Randomness comes from an [`Rng`]
//! that is handed in, so the same inputs give the same bytes.
//!
//! Limits: authentication and the hiding of the initiator's identity are classical (X25519);
//! confidentiality stands if X25519 or ML-KEM-768 stands. Secrets held here are erased when
//! dropped; copies inside the libraries' own temporaries may not be.

mod datagram;
mod gate;
mod handshake;
mod kdf;
mod keepalive;
mod kem;
mod mac;
mod noise;
mod nonce;
pub mod padding;
mod profile;
mod restart;
mod rng;
mod schedule;
mod suite;
#[cfg(test)]
mod vectors;
mod x25519;

pub use self::datagram::{OpenKey, SealKey, Unmasked};
pub use self::gate::{COOKIE_ROTATION, Gate, Verdict};
pub use self::handshake::{Complete, ExchangeId, Initiator, MessagePair, PendingA, UnusableKey};
pub(crate) use self::kdf::sha256;
pub use self::mac::Cookie;
pub(crate) use self::mac::same;
pub use self::nonce::Nonce;
pub use self::profile::Profile;
pub use self::restart::RestartKey;
pub use self::rng::{Rng, SeededRng, draw};
pub use self::schedule::EpochKeys;
#[cfg(test)]
pub(crate) use self::schedule::test_keys;
pub use self::suite::Suite;
pub use self::x25519::StaticSecret;
pub use crate::wire::features::Features;
pub use crate::wire::handshake::{Floor, HeaderCipher, Hello, Status, Token, Welcome};
