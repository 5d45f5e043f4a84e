//! Nonces of data datagrams (docs/spec/handshake.md#10-data-datagrams).

use aws_lc_rs::aead;

use crate::id::{PacketNumber, PathSerial};

/// What makes a datagram's nonce: never twice the same under one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Nonce {
    /// The path, as the ordinal of the session index in use.
    pub serial: PathSerial,
    /// The number of the datagram on that path.
    pub number: PacketNumber,
}

impl Nonce {
    /// serial 4 | number 8, big-endian: the 96 bits that every suite takes.
    pub(super) fn to_aead(self) -> aead::Nonce {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.serial.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.number.to_be_bytes());
        aead::Nonce::assume_unique_for_key(bytes)
    }

    /// serial 4 | number 8 | zeros 4: a block that no other nonce has.
    pub(super) fn block(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.serial.0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }
}
