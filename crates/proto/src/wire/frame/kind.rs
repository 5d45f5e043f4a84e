//! The type bytes of frames (docs/spec/wire.md#3-frames).

pub(super) const PADDING: u8 = 0x00;
pub(super) const FRAGMENT: u8 = 0x01;
pub(super) const RETRANSMISSION: u8 = 0x02;
pub(super) const PACKET: u8 = 0x08;
/// The last type of a packet.
pub(super) const PACKET_LAST: u8 = PACKET | PACKET_FLAGS;
pub(super) const FEEDBACK: u8 = 0x10;
pub(super) const CHALLENGE: u8 = 0x11;
pub(super) const RESPONSE: u8 = 0x12;
pub(super) const CLOSE: u8 = 0x13;
pub(super) const CONTROL: u8 = 0x14;
pub(super) const CONTROL_ACK: u8 = 0x15;
pub(super) const ECHO: u8 = 0x16;
pub(super) const LAST_FEEDBACK: u8 = 0x17;
pub(super) const ADVANCED: u8 = 0x18;
pub(super) const COMPACT: u8 = 0x24;
pub(super) const COMPACT_ONCE: u8 = 0x25;
pub(super) const COMPACT_IN_ORDER: u8 = 0x27;
/// The first type of a compressed packet; its flags are those of a packet.
pub(super) const COMPRESSED: u8 = 0x28;
/// The last type of a compressed packet.
pub(super) const COMPRESSED_LAST: u8 = COMPRESSED | PACKET_FLAGS;
/// Set in the type of a frame that must not be skipped.
pub(super) const CRITICAL: u8 = 0x80;
/// Bits of a packet's type that are flags.
pub(super) const PACKET_FLAGS: u8 = 0x07;
