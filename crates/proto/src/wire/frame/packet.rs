//! The packet frame: an inner packet, and its number if it has one
//! (docs/spec/wire.md#inner-packets). The receiver uses the number to restore the order or to
//! recognise copies.

use super::kind;
use crate::error::DropReason;
use crate::id::PathSerial;
use crate::wire::cursor::Reader;

/// Bytes before an inner packet without a number: the type.
pub const PLAIN_OVERHEAD: usize = 1;
/// Bytes before an inner packet with a number: type, bucket, sequence. The first packet of a bucket
/// under new keys has epoch and end in place of the sequence.
pub const NUMBERED_OVERHEAD: usize = 6;
/// Bytes before a compressed packet: type, length, bucket, sequence.
pub const COMPRESSED_OVERHEAD: usize = NUMBERED_OVERHEAD + 2;
/// Bytes before a packet that is sent again: type, serial, number.
pub(crate) const RETRANSMISSION_OVERHEAD: usize = 9;

/// Flags in the type of a packet frame.
mod flag {
    /// A bucket and a number precede the packet.
    pub(super) const NUMBERED: u8 = 1;
    /// The packet is delivered in order, not when it arrives.
    pub(super) const IN_ORDER: u8 = 2;
    /// The number is 0. Epoch and end of the bucket's sequence before stand in its place.
    pub(super) const FIRST: u8 = 4;
}

/// The flags of each [`Framing`] with a number. All other combinations are errors.
const ONCE: u8 = flag::NUMBERED;
const IN_ORDER: u8 = flag::NUMBERED | flag::IN_ORDER;
const FIRST: u8 = flag::NUMBERED | flag::IN_ORDER | flag::FIRST;

/// How an inner packet is numbered. Its flags are part of the frame's type, so a packet without a
/// number costs one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// No number: the packet travels by one path.
    Plain,
    /// Delivered when it arrives. Copies may arrive by other paths and are dropped.
    Once {
        /// Which of the sender's sequences it belongs to.
        bucket: u8,
        /// Sequence number, which wraps.
        sequence: u32,
    },
    /// Delivered in order, after a short wait for missing numbers.
    InOrder {
        /// Which of the sender's sequences it belongs to. These are other sequences than those of
        /// [`Self::Once`].
        bucket: u8,
        /// Sequence number, which wraps.
        sequence: u32,
    },
    /// [`Self::InOrder`] with the number 0, in a bucket that already had packets in the epoch
    /// before.
    First {
        /// Which of the sender's sequences it begins.
        bucket: u8,
        /// The low bits of the first index that the receiver issued in that epoch.
        epoch: u16,
        /// The low bits of how many numbers the bucket took in that epoch.
        end: u16,
    },
}

impl Framing {
    /// Bytes before the packet.
    pub const fn overhead(self) -> usize {
        match self {
            Self::Plain => PLAIN_OVERHEAD,
            Self::Once { .. } | Self::InOrder { .. } | Self::First { .. } => NUMBERED_OVERHEAD,
        }
    }

    /// Appends the bytes before the packet.
    pub fn emit(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes()[..self.overhead()]);
    }

    /// The bytes before the packet: the first [`Self::overhead`] of these.
    pub const fn bytes(self) -> [u8; NUMBERED_OVERHEAD] {
        let (flags, [bucket, a, b, c, d]) = self.numbering();
        [kind::PACKET | flags, bucket, a, b, c, d]
    }

    /// Appends a frame with this number around a compressed packet. A packet without a number is
    /// never compressed.
    pub fn emit_compressed(self, result: &[u8], out: &mut Vec<u8>) {
        debug_assert!(self != Self::Plain, "who repairs it needs its number");
        let (flags, numbering) = self.numbering();
        let length = u16::try_from(numbering.len() + result.len()).unwrap_or(u16::MAX);
        out.push(kind::COMPRESSED | flags);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&numbering);
        out.extend_from_slice(result);
    }

    /// The flags, and bucket and number; zeros if it has none.
    const fn numbering(self) -> (u8, [u8; 5]) {
        let (flags, bucket, number) = match self {
            Self::Plain => (0, 0, 0),
            Self::Once { bucket, sequence } => (ONCE, bucket, sequence),
            Self::InOrder { bucket, sequence } => (IN_ORDER, bucket, sequence),
            Self::First { bucket, epoch, end } => {
                (FIRST, bucket, (epoch as u32) << 16 | end as u32)
            }
        };
        let [a, b, c, d] = number.to_be_bytes();
        (flags, [bucket, a, b, c, d])
    }

    /// Reads what follows the type `kind` of a packet frame.
    pub(super) fn parse(kind: u8, reader: &mut Reader<'_>) -> Result<Self, DropReason> {
        match kind & kind::PACKET_FLAGS {
            0 => Ok(Self::Plain),
            ONCE => Ok(Self::Once { bucket: reader.u8()?, sequence: reader.u32()? }),
            IN_ORDER => Ok(Self::InOrder { bucket: reader.u8()?, sequence: reader.u32()? }),
            FIRST => {
                let (bucket, epoch, end) = (reader.u8()?, reader.u16()?, reader.u16()?);
                Ok(Self::First { bucket, epoch, end })
            }
            _ => Err(DropReason::BadFrame),
        }
    }

    /// Reads a compressed packet of the type `kind` from the body of its frame. Returns its number
    /// and the compressed bytes.
    pub(super) fn parse_compressed(kind: u8, body: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let mut reader = Reader::new(body);
        let framing = Self::parse(kind, &mut reader)?;
        let result = reader.rest();
        if framing == Self::Plain || result.is_empty() {
            return Err(DropReason::BadFrame);
        }
        Ok((framing, result))
    }

    /// The numbering of `frame`, if it is a packet frame, compressed or not. The packet's end may
    /// be cut off.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (&kind, rest) = frame.split_first()?;
        match kind {
            kind::PACKET..=kind::PACKET_LAST => Self::parse(kind, &mut Reader::new(rest)).ok(),
            kind::COMPRESSED..=kind::COMPRESSED_LAST => {
                Self::parse_compressed(kind, rest.get(2..)?).ok().map(|(framing, _)| framing)
            }
            _ => None,
        }
    }
}

/// The inner packet in a packet frame or a retransmission; `None` if it is compressed. The packet's
/// end may be cut off.
pub fn packet_of(frame: &[u8]) -> Option<&[u8]> {
    let overhead = match *frame.first()? {
        kind::RETRANSMISSION => RETRANSMISSION_OVERHEAD,
        kind::PACKET..=kind::PACKET_LAST => Framing::of(frame)?.overhead(),
        _ => return None,
    };
    frame.get(overhead..)
}

/// Appends `frame`, which left in the datagram of this serial and number, as it is sent again. Its
/// own number tells the receiver whether the packet has arrived. A plain packet has none, so the
/// frame becomes a retransmission, which names the datagram.
pub fn emit_again(out: &mut Vec<u8>, serial: PathSerial, number: u32, frame: &[u8]) {
    let packet = match Framing::of(frame) {
        Some(Framing::Plain) => &frame[PLAIN_OVERHEAD..], // no compressed one
        Some(_) | None => return out.extend_from_slice(frame),
    };
    emit_retransmission_header(out, serial, number);
    out.extend_from_slice(packet);
}

/// Whether a frame is a piece of a packet.
pub(crate) fn is_fragment(frame: &[u8]) -> bool {
    frame.first() == Some(&kind::FRAGMENT)
}

/// Bytes that [`emit_again`] appends.
pub(crate) fn len_again(frame: &[u8]) -> usize {
    let is_plain = Framing::of(frame) == Some(Framing::Plain);
    frame.len() + if is_plain { RETRANSMISSION_OVERHEAD - PLAIN_OVERHEAD } else { 0 }
}

/// Appends the bytes before a packet that is sent again.
pub(super) fn emit_retransmission_header(out: &mut Vec<u8>, serial: PathSerial, number: u32) {
    out.push(kind::RETRANSMISSION);
    out.extend_from_slice(&serial.0.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
}
