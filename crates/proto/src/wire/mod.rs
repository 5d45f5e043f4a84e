//! Bytes on the wire, both ways: views that are checked once and cannot panic afterwards, and the
//! values that they mean. Normative text: docs/spec/wire.md#1-datagrams,
//! docs/spec/handshake.md#2-notation and the sections after them.
//!
//! Knows layouts only: not what is expected next, not what a peer may do. All integers are
//! big-endian.

pub mod checksum;
pub mod control;
mod cursor;
pub mod data;
pub mod ecn;
pub mod features;
mod flags;
pub mod frame;
pub mod handshake;
pub mod icmp;
pub mod inner;
pub mod keepalive;
pub mod restart;
pub mod tcp;

/// The first byte of every datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// First half of handshake message 1.
    HandshakeA = 1,
    /// Second half of handshake message 1.
    HandshakeB = 2,
    /// Handshake message 2.
    Response = 3,
    /// A cookie, demanded under load.
    CookieReply = 4,
    /// A gateway that lost its sessions says so.
    RestartNotice = 5,
    /// A part of handshake message 2.
    ResponsePart = 6,
    /// A client behind a NAT keeps its mapping and asks whether the gateway is there.
    Keepalive = 7,
    /// The gateway is there, and reaches the client where it asked from.
    KeepaliveAnswer = 8,
    /// A sealed datagram of a session.
    Data = 0x10,
}

impl Kind {
    /// The kind of `datagram`, `None` when it is empty or of a kind that this version lacks.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        match datagram.first()? {
            1 => Some(Self::HandshakeA),
            2 => Some(Self::HandshakeB),
            3 => Some(Self::Response),
            4 => Some(Self::CookieReply),
            5 => Some(Self::RestartNotice),
            6 => Some(Self::ResponsePart),
            7 => Some(Self::Keepalive),
            8 => Some(Self::KeepaliveAnswer),
            0x10 => Some(Self::Data),
            _ => None,
        }
    }
}
