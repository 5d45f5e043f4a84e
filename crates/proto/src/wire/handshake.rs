//! The layouts of handshake messages A, B, response and cookie reply, and of the two payloads
//! that travel encrypted inside A and the response (docs/spec/handshake.md#3-message-1-a-and-b,
//! docs/spec/handshake.md#5-response, docs/spec/handshake.md#6-negotiation).
//!
//! Every message has one fixed length, so a view is a checked length and kind and nothing on it
//! can fail. Knows no key: MACs are opaque bytes here, and what an encrypted payload means is
//! decided by who could decrypt it (`crypto::handshake`).

mod parts;

use std::fmt;
use std::net::SocketAddr;

use super::Kind;
use super::cursor::{Reader, Writer};
use super::data::BASE_DATAGRAM;
use super::features::Features;
use crate::error::DropReason;
use crate::id::SessionIndex;
pub use parts::{PART_HEAD_LEN, PART_LENS, ResponsePart};

/// The protocol version that this code speaks.
pub const VERSION: u8 = 2;
/// Session indices that each end issues to the other in the handshake.
pub const INDEX_COUNT: usize = 8;
/// The longest enrolment token, in bytes.
pub(crate) const TOKEN_LEN_MAX: usize = 32;
/// Bytes of each MAC field.
pub const MAC_LEN: usize = 16;
/// Bytes by which message B names its A.
pub(crate) const LINK_LEN: usize = 16;
/// Bytes of a cookie.
pub(crate) const COOKIE_LEN: usize = 16;
/// Bytes of the nonce of a cookie reply.
pub(crate) const COOKIE_NONCE_LEN: usize = 16;
/// Bytes of an ML-KEM-768 encapsulation key (FIPS 203, table 3).
pub(crate) const EK_LEN: usize = 1_184;
/// Bytes of an ML-KEM-768 ciphertext (FIPS 203, table 3).
pub const CT_LEN: usize = 1_088;
/// Bytes of the encapsulation key that travel in A; the rest travels in B.
pub const EK_HEAD_LEN: usize = 851;
/// Bytes of the encapsulation key that travel in B.
pub const EK_TAIL_LEN: usize = EK_LEN - EK_HEAD_LEN;
/// Bytes of A's payload before encryption.
pub const HELLO_LEN: usize =
    8 + 32 + 4 + 1 + 1 + (1 + TOKEN_LEN_MAX) + 4 * INDEX_COUNT + EK_HEAD_LEN;
/// Bytes of the response's payload before encryption.
pub const WELCOME_LEN: usize = 1 + 8 + 1 + 4 + 1 + (1 + 16 + 2) + 4 * INDEX_COUNT;
/// Bytes of Noise message 1: e, encrypted s, encrypted payload.
pub const NOISE_1_LEN: usize = 32 + (32 + 16) + HELLO_LEN + 16;
/// Bytes of Noise message 2: e, encrypted payload.
pub const NOISE_2_LEN: usize = 32 + WELCOME_LEN + 16;
/// Bytes of message A: always exactly the datagram that every path is assumed to carry.
pub(crate) const A_LEN: usize = 1 + 4 + 1 + NOISE_1_LEN + 2 * MAC_LEN;
/// Bytes of message B.
pub(crate) const B_LEN: usize = 1 + 4 + LINK_LEN + EK_TAIL_LEN + 2 * MAC_LEN;
/// Bytes of the response.
pub(crate) const RESPONSE_LEN: usize = 1 + 4 + 4 + NOISE_2_LEN + CT_LEN + MAC_LEN;
/// Bytes of a cookie reply.
pub(crate) const COOKIE_REPLY_LEN: usize = 1 + 4 + COOKIE_NONCE_LEN + COOKIE_LEN + 16;

const _: () = assert!(A_LEN == BASE_DATAGRAM, "A fills the base datagram, whatever it says");
const _: () = assert!(RESPONSE_LEN < A_LEN + B_LEN, "a response amplifies nothing");
const _: () = assert!(COOKIE_REPLY_LEN < B_LEN, "a cookie reply amplifies nothing");

/// A view of message A: `kind 1 | sender index 4 | version 1 | Noise message 1 | mac1 | mac2`.
#[derive(Clone, Copy, Debug)]
pub struct MessageA<'a>(&'a [u8; A_LEN]);

impl<'a> MessageA<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind; [`DropReason::BadHandshake`] for a
    /// version other than [`VERSION`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let view = Self(sized(bytes, Kind::HandshakeA)?);
        if view.0[5] == VERSION { Ok(view) } else { Err(DropReason::BadHandshake) }
    }

    /// The message with both MAC fields zero.
    pub fn emit(sender: SessionIndex, noise: &[u8; NOISE_1_LEN]) -> Vec<u8> {
        let mut out = Vec::with_capacity(A_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::HandshakeA as u8);
        writer.u32(sender.0);
        writer.u8(VERSION);
        writer.bytes(noise);
        writer.bytes(&[0; 2 * MAC_LEN]);
        out
    }

    /// The index that the answer must carry.
    pub fn sender(self) -> SessionIndex {
        SessionIndex(u32::from_be_bytes(field(self.0, 1)))
    }

    /// Noise message 1.
    pub fn noise(self) -> &'a [u8] {
        &self.0[6..6 + NOISE_1_LEN]
    }

    /// What the link in B is the hash of: everything but mac2, which changes with a cookie.
    pub fn linked(self) -> &'a [u8] {
        &self.0[..A_LEN - MAC_LEN]
    }
}

/// A view of message B: `kind 1 | sender index 4 | link 16 | rest of ek | mac1 | mac2`.
#[derive(Clone, Copy, Debug)]
pub struct MessageB<'a>(&'a [u8; B_LEN]);

impl<'a> MessageB<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        sized(bytes, Kind::HandshakeB).map(Self)
    }

    /// The message with both MAC fields zero.
    pub fn emit(sender: SessionIndex, link: &[u8; LINK_LEN], tail: &[u8; EK_TAIL_LEN]) -> Vec<u8> {
        let mut out = Vec::with_capacity(B_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::HandshakeB as u8);
        writer.u32(sender.0);
        writer.bytes(link);
        writer.bytes(tail);
        writer.bytes(&[0; 2 * MAC_LEN]);
        out
    }

    /// The sender index of the A that it belongs to.
    pub fn sender(self) -> SessionIndex {
        SessionIndex(u32::from_be_bytes(field(self.0, 1)))
    }

    /// The name of the A that it belongs to.
    pub fn link(self) -> [u8; LINK_LEN] {
        field(self.0, 5)
    }

    /// The rest of the encapsulation key.
    pub fn ek_tail(self) -> [u8; EK_TAIL_LEN] {
        field(self.0, 5 + LINK_LEN)
    }
}

/// A view of the response:
/// `kind 1 | sender index 4 | receiver index 4 | Noise message 2 | ct 1088 | mac1`.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a>(&'a [u8; RESPONSE_LEN]);

impl<'a> Response<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        sized(bytes, Kind::Response).map(Self)
    }

    /// The message with the MAC field zero.
    pub fn emit(
        sender: SessionIndex,
        receiver: SessionIndex,
        noise: &[u8; NOISE_2_LEN],
        ciphertext: &[u8; CT_LEN],
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESPONSE_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::Response as u8);
        writer.u32(sender.0);
        writer.u32(receiver.0);
        writer.bytes(noise);
        writer.bytes(ciphertext);
        writer.bytes(&[0; MAC_LEN]);
        out
    }

    /// The responder's first index; zero when it refused.
    pub fn sender(self) -> SessionIndex {
        SessionIndex(u32::from_be_bytes(field(self.0, 1)))
    }

    /// The sender index of the A that it answers.
    pub fn receiver(self) -> SessionIndex {
        SessionIndex(u32::from_be_bytes(field(self.0, 5)))
    }

    /// Noise message 2.
    pub fn noise(self) -> &'a [u8] {
        &self.0[9..9 + NOISE_2_LEN]
    }

    /// The ML-KEM ciphertext.
    pub fn ciphertext(self) -> [u8; CT_LEN] {
        field(self.0, 9 + NOISE_2_LEN)
    }
}

/// A view of a cookie reply: `kind 1 | receiver index 4 | nonce 16 | sealed cookie 16 | tag 16`.
#[derive(Clone, Copy, Debug)]
pub struct CookieReply<'a>(&'a [u8; COOKIE_REPLY_LEN]);

impl<'a> CookieReply<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        sized(bytes, Kind::CookieReply).map(Self)
    }

    /// The whole message.
    pub fn emit(
        receiver: SessionIndex,
        nonce: &[u8; COOKIE_NONCE_LEN],
        sealed: &[u8; COOKIE_LEN + 16],
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(COOKIE_REPLY_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::CookieReply as u8);
        writer.u32(receiver.0);
        writer.bytes(nonce);
        writer.bytes(sealed);
        out
    }

    /// The sender index of the message that it answers.
    pub fn receiver(self) -> SessionIndex {
        SessionIndex(u32::from_be_bytes(field(self.0, 1)))
    }

    /// The salt of the key that seals the cookie.
    pub fn nonce(self) -> [u8; COOKIE_NONCE_LEN] {
        field(self.0, 5)
    }

    /// The cookie and its tag.
    pub fn sealed(self) -> [u8; COOKIE_LEN + 16] {
        field(self.0, 5 + COOKIE_NONCE_LEN)
    }
}

/// What the initiator says, encrypted in A.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The initiator's handshake counter for this responder: persisted, only grows, never a clock.
    pub counter: u64,
    /// Features of the initiator.
    pub features: Features,
    /// The weakest suite that the initiator will use.
    pub floor: Floor,
    /// Whether the initiator computes AES in hardware.
    pub has_aes: bool,
    /// The right to enrol, when the initiator is new.
    pub token: Option<Token>,
    /// Indices at which the initiator is reached; the first is also the sender index. Distinct,
    /// none zero.
    pub indices: [SessionIndex; INDEX_COUNT],
}

impl Hello {
    /// Whether the indices are ones that can have been issued: distinct, none zero.
    pub(crate) fn has_issued_indices(&self) -> bool {
        issued(&self.indices)
    }
}

/// The payload of A: what is said, and the part of the KEM key that fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloPayload {
    /// What the initiator says.
    pub hello: Hello,
    /// SHA-256 of the whole encapsulation key.
    pub ek_hash: [u8; 32],
    /// The first [`EK_HEAD_LEN`] bytes of the encapsulation key.
    pub ek_head: [u8; EK_HEAD_LEN],
}

impl HelloPayload {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when it breaks the format: the peer authenticated but speaks
    /// something else.
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Result<Self, DropReason> {
        Self::read(&mut Reader::new(bytes)).map_err(|_| DropReason::BadHandshake)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DropReason> {
        let counter = reader.u64()?;
        let ek_hash = reader.array()?;
        let features = Features::from_bits(reader.u32()?);
        let floor = Floor(reader.u8()?);
        let has_aes = reader.u8()? & HAS_AES != 0;
        let token = Token::read(reader)?;
        let indices = read_indices(reader)?;
        if !issued(&indices) {
            return Err(DropReason::BadHandshake);
        }
        let ek_head = reader.array()?;
        let hello = Hello { counter, features, floor, has_aes, token, indices };
        Ok(Self { hello, ek_hash, ek_head })
    }

    /// The bytes that [`Self::parse`] reads.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u64(self.hello.counter);
        writer.bytes(&self.ek_hash);
        writer.u32(self.hello.features.bits());
        writer.u8(self.hello.floor.0);
        writer.u8(if self.hello.has_aes { HAS_AES } else { 0 });
        Token::write(self.hello.token.as_ref(), &mut writer);
        write_indices(&self.hello.indices, &mut writer);
        writer.bytes(&self.ek_head);
        out
    }
}

/// What the responder says, encrypted in the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Whether there is a session, and if not, why.
    pub status: Status,
    /// Features that both have: those in use.
    pub features: Features,
    /// The weakest suite that the session uses: the maximum of both ends' floors.
    pub floor: Floor,
    /// The cipher of header protection, fixed for the session.
    pub header_cipher: HeaderCipher,
    /// The address from which the responder received the initiator's message.
    pub observed: SocketAddr,
    /// Indices at which the responder is reached; the first is also the sender index. Distinct,
    /// none zero, unless the status is a refusal: then all zero.
    pub indices: [SessionIndex; INDEX_COUNT],
}

impl Welcome {
    /// Whether the indices are ones that can have been issued: distinct, none zero.
    pub(crate) fn has_issued_indices(&self) -> bool {
        issued(&self.indices)
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when it breaks the format.
    pub fn parse(bytes: &[u8; WELCOME_LEN]) -> Result<Self, DropReason> {
        Self::read(&mut Reader::new(bytes)).map_err(|_| DropReason::BadHandshake)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DropReason> {
        let status = Status::read(reader)?;
        let header_cipher = HeaderCipher::from_byte(reader.u8()?)?;
        let features = Features::from_bits(reader.u32()?);
        let floor = Floor(reader.u8()?);
        let observed = reader.socket_addr()?;
        let indices = read_indices(reader)?;
        let valid =
            if status == Status::Accepted { issued(&indices) } else { indices == NO_INDICES };
        if !valid {
            return Err(DropReason::BadHandshake);
        }
        Ok(Self { status, features, floor, header_cipher, observed, indices })
    }

    /// The bytes that [`Self::parse`] reads. A refusal carries no index, whatever is in `self`.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(WELCOME_LEN);
        let mut writer = Writer::new(&mut out);
        self.status.write(&mut writer);
        writer.u8(self.header_cipher.to_byte());
        writer.u32(self.features.bits());
        writer.u8(self.floor.0);
        writer.socket_addr(self.observed);
        let indices = if self.status == Status::Accepted { self.indices } else { NO_INDICES };
        write_indices(&indices, &mut writer);
        out
    }
}

/// The responder's verdict: one byte, then eight that only a stale counter uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// There is a session.
    Accepted,
    /// The responder does not know this key, and no token came with it.
    NotEnrolled,
    /// The token was good once and has been used.
    TokenUsed,
    /// The token's time is over.
    TokenExpired,
    /// The responder never issued this token.
    TokenUnknown,
    /// The key was revoked.
    Revoked,
    /// The counter is not above the highest one accepted: a replay, or an initiator whose store
    /// went back in time, which may now continue above `highest`.
    StaleCounter {
        /// The highest counter that the responder accepted from this peer.
        highest: u64,
    },
    /// The responder cannot take another session now.
    Busy,
    /// No version or no suite satisfies both ends.
    Unsupported,
    /// A refusal of a later version.
    Other(u8),
}

impl Status {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DropReason> {
        let (code, highest) = (reader.u8()?, reader.u64()?);
        Ok(match code {
            0 => Self::Accepted,
            1 => Self::NotEnrolled,
            2 => Self::TokenUsed,
            3 => Self::TokenExpired,
            4 => Self::TokenUnknown,
            5 => Self::Revoked,
            6 => Self::StaleCounter { highest },
            7 => Self::Busy,
            8 => Self::Unsupported,
            other => Self::Other(other),
        })
    }

    fn write(self, writer: &mut Writer<'_>) {
        let (code, highest) = match self {
            Self::Accepted => (0, 0),
            Self::NotEnrolled => (1, 0),
            Self::TokenUsed => (2, 0),
            Self::TokenExpired => (3, 0),
            Self::TokenUnknown => (4, 0),
            Self::Revoked => (5, 0),
            Self::StaleCounter { highest } => (6, highest),
            Self::Busy => (7, 0),
            Self::Unsupported => (8, 0),
            Self::Other(code) => (code, 0),
        };
        writer.u8(code);
        writer.u64(highest);
    }
}

/// A strength that a suite must reach: a class, compared as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Floor(pub u8);

impl Floor {
    /// Every suite: keys of 128 bits or more.
    pub const BITS_128: Self = Self(0);
    /// Only suites with keys of 256 bits.
    pub const BITS_256: Self = Self(1);
    /// The highest class that some suite of this version reaches.
    pub(crate) const HIGHEST: Self = Self::BITS_256;
}

/// The cipher that makes the masks of header protection: one per session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderCipher {
    /// ChaCha20, where an end has no AES in hardware.
    ChaCha20,
    /// AES-256.
    Aes,
}

impl HeaderCipher {
    /// The byte on the wire.
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            Self::ChaCha20 => 0,
            Self::Aes => 1,
        }
    }

    const fn from_byte(byte: u8) -> Result<Self, DropReason> {
        match byte {
            0 => Ok(Self::ChaCha20),
            1 => Ok(Self::Aes),
            _ => Err(DropReason::BadHandshake),
        }
    }
}

/// The right to enrol: 1 to 32 bytes that the operator issued. Secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    len: usize,
    bytes: [u8; TOKEN_LEN_MAX],
}

impl Token {
    /// A token of these bytes; `None` when there are none, or more than `TOKEN_LEN_MAX`.
    pub fn new(token: &[u8]) -> Option<Self> {
        if token.is_empty() || token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let mut bytes = [0; TOKEN_LEN_MAX];
        bytes[..token.len()].copy_from_slice(token);
        Some(Self { len: token.len(), bytes })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, DropReason> {
        let len = usize::from(reader.u8()?);
        let bytes: [u8; TOKEN_LEN_MAX] = reader.array()?;
        let used = bytes.get(..len).ok_or(DropReason::BadHandshake)?;
        if bytes[len..].iter().any(|&byte| byte != 0) {
            return Err(DropReason::BadHandshake);
        }
        Ok(Self::new(used))
    }

    /// Always the same number of bytes, so that the size of A does not tell who enrols.
    fn write(token: Option<&Self>, writer: &mut Writer<'_>) {
        let (len, bytes) = token.map_or((0, [0; TOKEN_LEN_MAX]), |t| (t.len, t.bytes));
        writer.u8(u8::try_from(len).unwrap_or(0));
        writer.bytes(&bytes);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The bit of the header-cipher byte that says "AES in hardware". The other bits are ignored.
const HAS_AES: u8 = 1;

/// What a refusal carries instead of indices.
const NO_INDICES: [SessionIndex; INDEX_COUNT] = [SessionIndex(0); INDEX_COUNT];

fn read_indices(reader: &mut Reader<'_>) -> Result<[SessionIndex; INDEX_COUNT], DropReason> {
    let mut indices = [SessionIndex(0); INDEX_COUNT];
    for index in &mut indices {
        *index = SessionIndex(reader.u32()?);
    }
    Ok(indices)
}

fn write_indices(indices: &[SessionIndex; INDEX_COUNT], writer: &mut Writer<'_>) {
    for index in indices {
        writer.u32(index.0);
    }
}

/// Whether `indices` can have been issued: distinct and none zero.
fn issued(indices: &[SessionIndex; INDEX_COUNT]) -> bool {
    indices.iter().enumerate().all(|(at, index)| index.0 != 0 && !indices[..at].contains(index))
}

/// `bytes` as the fixed-length message of `kind`.
fn sized<const N: usize>(bytes: &[u8], kind: Kind) -> Result<&[u8; N], DropReason> {
    let message: &[u8; N] = bytes.try_into().map_err(|_| DropReason::Malformed)?;
    if message[0] == kind as u8 { Ok(message) } else { Err(DropReason::Malformed) }
}

/// The `N` bytes at `at`: both are layout constants of a message of fixed length.
fn field<const N: usize>(message: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&message[at..at + N]);
    out
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
