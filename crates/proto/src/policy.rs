//! Which profile a datagram uses. Policy picks, mechanism obeys.
//!
//! **Strength.** The strength in use is the maximum of the session's floor, which is the higher one
//! of both ends, and what this end wants. Nothing that is decided here can lower it below the
//! floor: the session has no key for a weaker suite.
//!
//! **Changes.** By default, one profile seals all datagrams of an epoch. An end may use another one
//! for each datagram, if the peer understands all profiles. It asks nobody, and the peer follows
//! the profile ID of each datagram.
//!
//! This module is below `flow` and does not know classes. A strength by flow would touch:
//! - [`PacketRecord`](crate::packet::PacketRecord), `flow/record.rs` and `flow/classify.rs`: the
//!   field, and who decides it;
//! - `draft_datagram` (`tunnel/draft.rs`), which takes the profile by the datagram's number;
//! - repairs (`tunnel/retransmit.rs`), which know the flow and no record, and copies
//!   (`peer/live.rs`), which know neither; pieces of a packet (`send_split`);
//! - status (`crates/host/src/flows.rs`), which shows the session's profile.

use crate::crypto::padding::PADDING_MIN;
use crate::crypto::{Floor, HeaderCipher, Profile, SealKey, Suite};
use crate::id::PacketNumber;

/// Padded datagrams have a multiple of this length, in bytes, or the length that the path carries.
/// With twice as much, a bare acknowledgement would take 256 bytes in place of 128. Half of it
/// would leave 23 lengths to tell apart in place of 12.
const PADDED_TO: usize = 128;

/// How a node seals what it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealing {
    /// The strength that it wants. The session's floor may raise it.
    pub strength: Floor,
    /// Whether each datagram uses another suite than the one before.
    pub changes: bool,
    /// Whether datagrams that carry inner packets are padded.
    pub pads: bool,
}

impl Default for Sealing {
    fn default() -> Self {
        Self { strength: Floor::BITS_256, changes: false, pads: false }
    }
}

/// The suite for a strength: AES where both ends compute it in hardware, ChaCha20 elsewhere (four
/// to five times slower with AES units, several times faster without). It reaches the session's
/// floor whatever is wanted.
pub fn suite(key: &SealKey, wanted: Floor) -> Suite {
    match key.header_cipher() {
        HeaderCipher::ChaCha20 => Suite::ChaCha20Poly1305,
        HeaderCipher::Aes if wanted.max(key.floor()) == Floor::BITS_128 => Suite::Aes128Gcm,
        HeaderCipher::Aes => Suite::Aes256Gcm,
    }
}

/// The profile of all datagrams by default.
pub fn profile(key: &SealKey) -> Profile {
    Profile::whole(suite(key, Sealing::default().strength))
}

/// The profiles that this end's datagrams of one epoch use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profiles {
    /// The suites that are used in turn.
    suites: [Suite; Suite::ALL.len()],
    count: u8,
    pads: bool,
}

impl Profiles {
    /// What `sealing` means under these keys. Without a peer that understands all profiles, one
    /// suite is used and nothing is padded.
    pub(crate) fn new(key: &SealKey, sealing: Sealing) -> Self {
        let Sealing { strength, changes, pads } = sealing;
        let usual = suite(key, strength);
        let (mut suites, mut count) = ([usual; Suite::ALL.len()], 1u8);
        if changes && key.has_all_profiles() {
            let strength = strength.max(key.floor());
            let others = Suite::ALL.into_iter().filter(|other| *other != usual);
            for other in others.filter(|other| other.meets(strength)) {
                suites[usize::from(count)] = other;
                count += 1;
            }
        }
        Self { suites, count, pads: pads && key.has_all_profiles() }
    }

    /// The profile that status shows: the only one, or the first of several.
    pub(crate) const fn usual(&self) -> Profile {
        Profile::whole(self.suites[0])
    }

    /// The profile of the datagram with this number, before it is padded.
    pub(crate) const fn of(&self, number: PacketNumber) -> Profile {
        if self.count == 1 {
            return self.usual();
        }
        Profile::whole(self.suites[(number % self.count as u64) as usize])
    }

    /// How many bytes of padding a datagram of `len` bytes gets on a path that carries `most`; 0 if
    /// none, or if there is no room.
    pub(crate) fn padding(&self, len: usize, most: usize) -> usize {
        let least = len + PADDING_MIN;
        if !self.pads || least > most {
            return 0;
        }
        least.next_multiple_of(PADDED_TO).min(most) - len
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
