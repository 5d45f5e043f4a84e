//! How a packet is compressed, in one byte: an algorithm, and a dictionary that both ends have.

/// How a packet is compressed (docs/spec/wire.md#compressed-packets). The low three bits name the
/// algorithm, the high four the dictionary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Coding(u8);

/// An algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// LZ4, block format: 2 microseconds for a full packet.
    Lz4,
    /// Zstandard (RFC 8878): 6 microseconds for a full packet, and a quarter fewer bytes.
    Zstd,
}

impl Coding {
    /// Not compressed.
    pub const NONE: Self = Self(0);
    /// LZ4 without a dictionary.
    pub const LZ4: Self = Self(1);
    /// Zstandard without a dictionary.
    pub const ZSTD: Self = Self(2);
    const ALGORITHM: u8 = 0x0f;
    /// In a frame, this bit of the byte says that padding follows the data.
    pub(crate) const PADDED: u8 = 0x08;

    /// The coding of this byte; `None` if the byte names no algorithm that this end has. LZ4 has no
    /// dictionary. Whether this end has the dictionary is not checked.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match (byte & Self::ALGORITHM, byte >> 4) {
            (1, 0) | (2, _) => Some(Self(byte)),
            _ => None,
        }
    }

    /// Its byte on the wire.
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// Zstandard with the dictionary of this number, of which the low four bits count.
    pub const fn with_dictionary(number: u8) -> Self {
        Self(Self::ZSTD.0 | number << 4)
    }

    /// The algorithm; `None` if nothing is compressed.
    pub const fn algorithm(self) -> Option<Algorithm> {
        match self.0 & Self::ALGORITHM {
            1 => Some(Algorithm::Lz4),
            2 => Some(Algorithm::Zstd),
            _ => None,
        }
    }

    /// The number of the dictionary; 0 is none.
    pub const fn dictionary(self) -> u8 {
        self.0 >> 4
    }

    /// Whether nothing is compressed.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_names_algorithm_and_dictionary() {
        for byte in 0..=u8::MAX {
            let coding = Coding::from_byte(byte);
            assert_eq!(coding.is_some(), byte == 1 || byte & 0xf == 2);
            let Some(coding) = coding else { continue };
            assert_eq!((coding.to_byte(), coding.dictionary()), (byte, byte >> 4));
            assert!(coding.algorithm().is_some() && !coding.is_none());
        }
        assert_eq!(Coding::with_dictionary(3).to_byte(), 0x32);
        assert_eq!(Coding::NONE.algorithm(), None);
    }
}
