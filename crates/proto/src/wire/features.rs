//! Features: the parts of the protocol that an end understands beyond what every end must
//! (docs/spec/handshake.md#6-negotiation).
//!
//! An initiator names its features in the hello, the responder names those that it has too. Both
//! ends use the common ones and no others, so a peer without a feature never sees its frames.

use std::ops::{BitAnd, BitOr};

/// A set of features: four bytes on the wire, a bit for each. Bits of later versions are kept and
/// mean nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// None.
    pub const NONE: Self = Self(0);
    /// In a hello: the response is wanted in two parts, because the whole one does not fit a path
    /// that carries less than 1,227 bytes. In a welcome: it was sent so.
    pub const PARTS: Self = Self(1);
    /// Understands compact packets and the contexts that they need.
    pub const COMPACT: Self = Self(2);
    /// Understands compressed packets.
    pub const COMPRESSED: Self = Self(4);
    /// Understands profile IDs that every datagram draws anew, and padded datagrams.
    pub const PROFILES: Self = Self(8);
    /// Those about the content of datagrams that every client and gateway announces. Compact
    /// packets are announced only where they are asked for
    /// (docs/decisions/0081-headers-that-stay-the-same-travel-once.md).
    pub const CONTENT: Self = Self::COMPRESSED;

    /// The set with these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// A bit for each.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `others` are in this set.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitAnd for Features {
    type Output = Self;

    /// Those in both sets.
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    /// Those in either set.
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_common_features_are_in_use() {
        let ours = Features::PARTS | Features::COMPACT;
        let theirs = Features::from_bits(0x8000_0006);
        assert_eq!(ours & theirs, Features::COMPACT);
        assert!(ours.has(Features::NONE) && ours.has(Features::COMPACT));
        assert!(!ours.has(Features::COMPACT | Features::COMPRESSED));
        assert_eq!(theirs.bits(), 0x8000_0006, "unknown bits are kept");
    }
}
