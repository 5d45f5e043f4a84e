//! Profiles, and the permutation that hides them behind one-byte aliases
//! (docs/spec/handshake.md#9-suites-and-profiles).

use std::fmt;

use aws_lc_rs::hkdf;

use super::kdf;
use super::suite::Suite;
use crate::id::ProfileId;

/// How the packets of a flow are treated, as a number below [`Profile::COUNT`] that both ends
/// understand. This version defines 0, 1 and 2: the suite of that number over the whole packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Profile(u8);

impl Profile {
    /// How many profiles there can be.
    pub const COUNT: u8 = 32;

    /// The profile that seals whole packets with `suite`.
    pub const fn whole(suite: Suite) -> Self {
        Self(suite as u8)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The suite that it seals with; `None` for a number that this version does not define.
    pub const fn suite(self) -> Option<Suite> {
        match self.0 {
            0 => Some(Suite::Aes256Gcm),
            1 => Some(Suite::Aes128Gcm),
            2 => Some(Suite::ChaCha20Poly1305),
            _ => None,
        }
    }
}

/// Which profile IDs mean which profile, in one direction of one epoch.
///
/// A permutation P of 0..=255 drawn from the epoch secret: profile k owns the aliases
/// P\[4k\]..P\[4k+3\], and P\[128..\] are decoys. Both ends draw the same, so nothing travels and
/// nothing can come apart.
pub struct ProfileTable {
    ids: [u8; 256],
    positions: [u8; 256],
}

/// Profile IDs that each profile owns.
const ALIASES: u8 = 4;
/// Bytes of HKDF output that the shuffle may use. It needs 255 that pass a test which at least
/// every second byte passes: that 2,040 do not suffice has a probability below 2^-900.
const STREAM_LEN: usize = 2_040;

impl ProfileTable {
    /// Draws the permutation by Fisher-Yates from HKDF-Expand(`prk`, `info`).
    ///
    /// A byte b is used for n possibilities only when b < 256 - 256 mod n, so that b mod n is
    /// unbiased; other bytes are passed over. Should the stream end, what is left stays in place.
    pub(super) fn derive(prk: &hkdf::Prk, info: &[&[u8]]) -> Self {
        let stream = kdf::expand::<STREAM_LEN>(prk, info);
        let mut bytes = stream.iter().map(|&byte| usize::from(byte));
        let mut ids: [u8; 256] = std::array::from_fn(|at| at as u8);
        for last in (1..256usize).rev() {
            let choices = last + 1;
            let unbiased = 256 - 256 % choices;
            let Some(byte) = bytes.find(|&byte| byte < unbiased) else { break };
            ids.swap(last, byte % choices);
        }
        let mut positions = [0; 256];
        for (at, &id) in ids.iter().enumerate() {
            positions[usize::from(id)] = at as u8;
        }
        Self { ids, positions }
    }

    /// One of the profile IDs of `profile`; of `pick`, two bits count.
    pub const fn alias(&self, profile: Profile, pick: u8) -> ProfileId {
        ProfileId(self.ids[(profile.0 * ALIASES + pick % ALIASES) as usize])
    }

    /// The profile that `id` means; `None` for a decoy.
    pub fn lookup(&self, id: ProfileId) -> Option<Profile> {
        let number = self.positions[usize::from(id.0)] / ALIASES;
        (number < Profile::COUNT).then_some(Profile(number))
    }
}

impl fmt::Debug for ProfileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProfileTable(..)")
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
