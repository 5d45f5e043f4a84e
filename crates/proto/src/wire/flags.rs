//! The flags of a TCP header (RFC 9293, 3.1).

/// The flags of a header, as bits of its fourteenth byte.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data will come.
    pub const FIN: Self = Self(0x01);
    /// A connection begins.
    pub const SYN: Self = Self(0x02);
    /// A connection is broken off.
    pub const RST: Self = Self(0x04);
    /// The receiver should hand over what it has.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number means something.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer means something.
    pub(crate) const URG: Self = Self(0x20);
    /// Something of what arrived was marked for congestion (ECN-Echo, RFC 3168, 6.1).
    pub(crate) const ECE: Self = Self(0x40);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These, but none of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
