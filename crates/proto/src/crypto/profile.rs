//! Profiles, and the one-byte IDs that name them on the wire
//! (docs/spec/handshake.md#9-suites-and-profiles).
//!
//! Decides what an ID means in one datagram: a pure function of the epoch secret and the nonce. So
//! a datagram that is lost, late or on another path changes the meaning of no other ID. Refuses to
//! know which profile a sender should use (`policy`).
//!
//! There are two forms, and the features of the epoch say which. *Fixed*: each suite has four IDs
//! in the whole epoch, all others are decoys. *Redrawn*: all 256 IDs mean one of the profiles that
//! reach the floor, and every datagram has another permutation.

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::hkdf;

use super::kdf;
use super::nonce::Nonce;
use super::suite::Suite;
use crate::error::DropReason;
use crate::id::ProfileId;
use crate::wire::handshake::Floor;

/// What a receiver must know of a datagram before it can read the frames: the suite that opens it,
/// and whether padding follows the frames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Profile {
    suite: Suite,
    is_padded: bool,
}

impl Profile {
    /// How many there are.
    pub const COUNT: usize = 2 * Suite::ALL.len();
    /// Every profile, in the order of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::whole(Suite::Aes256Gcm),
        Self::whole(Suite::Aes128Gcm),
        Self::whole(Suite::ChaCha20Poly1305),
        Self::whole(Suite::Aes256Gcm).padded(),
        Self::whole(Suite::Aes128Gcm).padded(),
        Self::whole(Suite::ChaCha20Poly1305).padded(),
    ];

    /// The profile that seals whole packets with `suite`, without padding.
    pub const fn whole(suite: Suite) -> Self {
        Self { suite, is_padded: false }
    }

    /// The same with padding after the frames. Only redrawn IDs name it.
    pub const fn padded(self) -> Self {
        Self { suite: self.suite, is_padded: true }
    }

    /// The suite that it seals with.
    pub const fn suite(self) -> Suite {
        self.suite
    }

    /// Whether padding follows the frames.
    pub const fn is_padded(self) -> bool {
        self.is_padded
    }
}

/// Numbers of profiles for which the fixed form has room.
const FIXED_PROFILES: u8 = 32;
/// Profile IDs that each number owns in the fixed form.
const FIXED_IDS: u8 = 4;
/// 2^64 divided by the golden ratio: a multiplication by it spreads consecutive numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the profile IDs of one direction of one epoch mean.
pub(super) struct ProfileIds {
    table: ProfileTable,
    /// A secret of the sender, by which it chooses among the IDs of a profile.
    pick: u64,
    form: Form,
}

enum Form {
    Fixed { floor: Floor },
    Redrawn(Box<Redrawn>),
}

impl ProfileIds {
    /// IDs that stay the same in the whole epoch.
    pub(super) const fn fixed(table: ProfileTable, pick: u64, floor: Floor) -> Self {
        Self { table, pick, form: Form::Fixed { floor } }
    }

    /// IDs that `key` redraws for every datagram.
    pub(super) fn redrawn(
        table: ProfileTable,
        pick: u64,
        floor: Floor,
        key: HeaderProtectionKey,
    ) -> Self {
        Self { table, pick, form: Form::Redrawn(Box::new(Redrawn::new(floor, key))) }
    }

    /// Whether they are redrawn.
    pub(super) const fn are_redrawn(&self) -> bool {
        matches!(self.form, Form::Redrawn(_))
    }

    /// One of the IDs that mean `profile` in the datagram with this nonce; `None` if none does. IDs
    /// of a profile are spread over the numbers by a keyed multiplication, so that they do not
    /// follow each other in a pattern. Nothing rests on it, and the receiver takes any.
    pub(super) fn id(&self, profile: Profile, nonce: Nonce) -> Option<ProfileId> {
        let spread = (nonce.number ^ self.pick).wrapping_mul(SPREAD);
        match &self.form {
            Form::Fixed { floor } => {
                let Profile { suite, is_padded } = profile;
                let position = suite as u8 * FIXED_IDS + (spread >> 62) as u8;
                (!is_padded && suite.meets(*floor)).then(|| self.table.id(position))
            }
            Form::Redrawn(redrawn) => {
                let position = redrawn.position(profile, (spread >> 56) as u8)?;
                Some(ProfileId(self.table.id(position).0 ^ redrawn.draw(nonce)))
            }
        }
    }

    /// The profile that `id` means in the datagram with this nonce.
    ///
    /// # Errors
    /// [`DropReason::Decoy`] for an ID without a meaning, [`DropReason::BelowFloor`] for one that
    /// means a suite below the floor. Redrawn IDs always have a meaning, and never such a suite.
    pub(super) fn profile(&self, id: ProfileId, nonce: Nonce) -> Result<Profile, DropReason> {
        match &self.form {
            Form::Fixed { floor } => {
                let number = self.fixed_number(id).ok_or(DropReason::Decoy)?;
                let suite = *Suite::ALL.get(usize::from(number)).ok_or(DropReason::Decoy)?;
                let is_allowed = suite.meets(*floor);
                if is_allowed { Ok(Profile::whole(suite)) } else { Err(DropReason::BelowFloor) }
            }
            Form::Redrawn(redrawn) => {
                let drawn = ProfileId(id.0 ^ redrawn.draw(nonce));
                Ok(redrawn.meaning(self.table.position(drawn)))
            }
        }
    }

    /// The number that owns `id` in the fixed form; `None` for a decoy.
    pub(super) fn fixed_number(&self, id: ProfileId) -> Option<u8> {
        let number = self.table.position(id) / FIXED_IDS;
        (number < FIXED_PROFILES).then_some(number)
    }

    /// The IDs that `number` owns in the fixed form.
    #[cfg(test)]
    pub(super) fn fixed_ids(&self, number: u8) -> [u8; FIXED_IDS as usize] {
        std::array::from_fn(|pick| self.table.id(number * FIXED_IDS + pick as u8).0)
    }
}

/// IDs that every datagram draws anew.
///
/// The permutation of a datagram is the table's, with one byte added to each ID. The byte is a
/// pseudo-random function of the nonce, and no two datagrams of a key have the same nonce. So an
/// observer sees one ID under each permutation, and to him all 256 IDs are equally likely,
/// whatever the profile. A permutation drawn from all 256! could hide no more.
struct Redrawn {
    key: HeaderProtectionKey,
    /// The profiles among which the positions are divided, in turn: those that reach the floor.
    profiles: [Profile; Profile::COUNT],
    count: u8,
}

impl Redrawn {
    /// # Panics
    /// When no suite reaches `floor`: a handshake agrees on no such floor.
    fn new(floor: Floor, key: HeaderProtectionKey) -> Self {
        let (mut profiles, mut count) = (Profile::ALL, 0u8);
        for profile in Profile::ALL.into_iter().filter(|profile| profile.suite.meets(floor)) {
            profiles[usize::from(count)] = profile;
            count += 1;
        }
        assert!(count > 0, "some suite reaches the floor");
        Self { key, profiles, count }
    }

    /// One of the positions of `profile`, the last for the highest `choice`; `None` if it has none.
    fn position(&self, profile: Profile, choice: u8) -> Option<u8> {
        let allowed = self.profiles.iter().take(usize::from(self.count));
        let (rank, _) = (0u8..).zip(allowed).find(|(_, allowed)| **allowed == profile)?;
        let owned = (u8::MAX - rank) / self.count + 1;
        let turn = (u16::from(choice) * u16::from(owned)) >> 8;
        Some(rank + self.count * turn as u8)
    }

    /// The profile that owns a position.
    const fn meaning(&self, position: u8) -> Profile {
        self.profiles[(position % self.count) as usize]
    }

    /// The byte by which the datagram with this nonce differs from the table.
    fn draw(&self, nonce: Nonce) -> u8 {
        let [draw, ..] = self.key.new_mask(&nonce.block()).expect("a block has 16 bytes");
        draw
    }
}

/// A permutation P of 0..=255 drawn from the epoch secret. Both ends draw the same, so nothing
/// travels and nothing can come apart.
pub(super) struct ProfileTable {
    ids: [u8; 256],
    positions: [u8; 256],
}

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

    const fn id(&self, position: u8) -> ProfileId {
        ProfileId(self.ids[position as usize])
    }

    const fn position(&self, id: ProfileId) -> u8 {
        self.positions[id.0 as usize]
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
