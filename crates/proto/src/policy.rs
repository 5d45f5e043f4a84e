//! Which profile a datagram uses. Policy picks, mechanism obeys.
//!
//! **Strength.** The strength in use is the maximum of the session's floor, which is the higher one
//! of both ends, what this end wants, and what a rule asks for the packet's flow. A datagram with
//! packets of several flows has the highest of theirs. Nothing that is decided here can lower it
//! below the floor: the session has no key for a weaker suite.
//!
//! **Changes.** By default, one profile seals all datagrams of an epoch, but those of flows with a
//! rule. An end may use another one for each datagram, if the peer understands all profiles. It
//! asks nobody, and the peer follows the profile ID of each datagram. Every peer opens all suites
//! that reach the floor, so a rule needs nothing of it.
//!
//! This module is below `flow` and does not know flows. The strength of a flow
//! (`flow/overrides.rs`) comes here with its packets: [`PacketRecord`](crate::packet::PacketRecord)
//! has it, `Load` (`recovery/packet.rs`) says it for what has no record (pieces, late copies,
//! repairs), and `draft_datagram` (`tunnel/draft.rs`) takes the profile by it and the datagram's
//! number.

use crate::crypto::padding::PADDING_MIN;
use crate::crypto::{Floor, HeaderCipher, Profile, SealKey, Suite};
use crate::id::PacketNumber;
use crate::packet::Strength;

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

/// The suite for packets of a flow that asks for this strength, where `usual` is that of the
/// session: a stronger one only if that is needed.
pub fn raised(usual: Suite, asked: Strength) -> Suite {
    // A session whose suite has less than 256 bits has AES in hardware at both ends.
    if usual.meets(asked.into()) { usual } else { Suite::Aes256Gcm }
}

/// The profile of all datagrams by default.
pub fn profile(key: &SealKey) -> Profile {
    Profile::whole(suite(key, Sealing::default().strength))
}

impl From<Strength> for Floor {
    fn from(strength: Strength) -> Self {
        match strength {
            Strength::Bits128 => Self::BITS_128,
            Strength::Bits256 => Self::BITS_256,
        }
    }
}

/// The profiles that this end's datagrams of one epoch use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profiles {
    /// By the strength that the packets in a datagram ask for.
    sets: [Suites; Strength::ALL.len()],
    pads: bool,
}

/// Suites that are used in turn.
#[derive(Clone, Copy, Debug)]
struct Suites {
    suites: [Suite; Suite::ALL.len()],
    count: u8,
}

impl Suites {
    /// Those for `wanted`, which the floor may raise: one, or all that are strong enough if the
    /// suite `changes`.
    fn new(key: &SealKey, wanted: Floor, changes: bool) -> Self {
        let usual = suite(key, wanted);
        let (mut suites, mut count) = ([usual; Suite::ALL.len()], 1u8);
        if changes {
            let strength = wanted.max(key.floor());
            let others = Suite::ALL.into_iter().filter(|other| *other != usual);
            for other in others.filter(|other| other.meets(strength)) {
                suites[usize::from(count)] = other;
                count += 1;
            }
        }
        Self { suites, count }
    }

    /// The one for the datagram with this number.
    const fn of(&self, number: PacketNumber) -> Suite {
        if self.count == 1 {
            return self.suites[0];
        }
        self.suites[(number % self.count as u64) as usize]
    }
}

impl Profiles {
    /// What `sealing` means under these keys. Without a peer that understands all profiles, one
    /// suite is used and nothing is padded.
    pub(crate) fn new(key: &SealKey, sealing: Sealing) -> Self {
        let Sealing { strength, changes, pads } = sealing;
        let changes = changes && key.has_all_profiles();
        let sets = Strength::ALL.map(|asked| Suites::new(key, strength.max(asked.into()), changes));
        Self { sets, pads: pads && key.has_all_profiles() }
    }

    /// The profile that status shows: the only one, or the first of several.
    pub(crate) const fn usual(&self) -> Profile {
        Profile::whole(self.sets[0].of(0))
    }

    /// The profile of the datagram with this number, before it is padded. `asked` is the highest
    /// strength that a packet in it asks for.
    pub(crate) const fn of(&self, number: PacketNumber, asked: Strength) -> Profile {
        Profile::whole(self.sets[asked as usize].of(number))
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
