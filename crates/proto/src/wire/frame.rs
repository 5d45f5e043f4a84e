//! Frames: the units inside a sealed datagram (docs/spec/wire.md#3-frames). Those without an inner
//! packet: docs/spec/wire.md#feedback, docs/spec/wire.md#paths-and-session.
//!
//! Three kinds of frames carry inner packets without a length of their own (the inner IP header
//! has one, or the datagram's end does); all others are `type 1 | length 2 | body`, so that a later
//! version's frame can be skipped. Bit 7 of the type says that a receiver which does not know it
//! must close.

mod compact;
mod emit;
mod kind;
mod packet;

use std::net::SocketAddr;

use super::cursor::Reader;
use super::inner;
use crate::error::{CloseCode, DropReason};
use crate::id::PathSerial;
use crate::time::Duration;

pub use compact::{COMPACT_OVERHEAD, CompactHead, expand_sequence};
pub use emit::{emit_fragment_header, emit_padding};
pub use packet::{
    COMPRESSED_OVERHEAD, Framing, NUMBERED_OVERHEAD, PLAIN_OVERHEAD, emit_again, packet_of,
};
pub(crate) use packet::{RETRANSMISSION_OVERHEAD, is_fragment, len_again};

/// Bytes before a piece of an inner packet: type, packet id, index.
pub(crate) const FRAGMENT_OVERHEAD: usize = 6;
/// Bytes of type and length before the body of every other frame.
pub(crate) const TLV_OVERHEAD: usize = 3;
/// Runs of received and missing numbers that one feedback frame may carry.
pub const FEEDBACK_RUNS_MAX: usize = 8;
/// Bytes of a control acknowledgement.
pub(crate) const CONTROL_ACK_LEN: usize = TLV_OVERHEAD + 8;
/// Bytes of the frame that abandons sequence numbers.
pub(crate) const ADVANCED_LEN: usize = TLV_OVERHEAD + 9;
/// Bytes of a control frame before its body.
pub(crate) const CONTROL_OVERHEAD: usize = TLV_OVERHEAD + 4;

/// Index of a fragment's last piece carries this bit.
pub(crate) const FRAGMENT_LAST: u8 = 0x80;
/// The most pieces that an inner packet may be split into.
pub(crate) const FRAGMENT_PIECES_MAX: u8 = 4;

/// One frame, borrowed from a datagram that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// An inner IP packet.
    Packet {
        /// How it is numbered.
        framing: Framing,
        /// Exactly as long as its own header says.
        packet: &'a [u8],
    },
    /// An inner packet without the fields that its context has.
    Compact {
        /// Where it belongs.
        head: CompactHead,
        /// The fields that vary, and the payload.
        body: &'a [u8],
    },
    /// An inner packet that was compressed.
    Compressed {
        /// How it is numbered: never [`Framing::Plain`].
        framing: Framing,
        /// How it was compressed, and the compressed bytes; `codec` reads them.
        result: &'a [u8],
    },
    /// A piece of an inner packet that was larger than the path.
    Fragment {
        /// Names the packet; wraps.
        packet_id: u32,
        /// Place of this piece, from 0; `FRAGMENT_LAST` is set in the last one.
        index: u8,
        /// The piece: the rest of the datagram.
        piece: &'a [u8],
    },
    /// An inner packet without a number that left before, and was lost or in flight on a path that
    /// died. A packet with a number leaves again as it was.
    Retransmission {
        /// The serial that it was sealed with then.
        serial: PathSerial,
        /// The low bits of its datagram's number there.
        number: u32,
        /// The inner IP packet.
        packet: &'a [u8],
    },
    /// What the sender of this frame received on one path.
    Feedback(Feedback),
    /// The same, and nothing will arrive there any more: the path is gone.
    LastFeedback(Feedback),
    /// Asks for a response from the address that it was sent to.
    Challenge(Challenge),
    /// Answers a challenge.
    Response(Response),
    /// Sequence numbers of a bucket that are abandoned: of the packets delivered in order, none
    /// with these numbers will come that has not.
    Advanced {
        /// Which of the sender's sequences it is.
        bucket: u8,
        /// The first of these numbers.
        from: u32,
        /// The first number after them that may still come.
        to: u32,
    },
    /// Ends the session.
    Close(CloseCode),
    /// A numbered frame that is repeated until it is acknowledged; its body is parsed by
    /// [`super::control`].
    Control {
        /// Place in the sender's sequence of control frames within the session.
        number: u32,
        /// Kind and body.
        body: &'a [u8],
    },
    /// Acknowledges control frames.
    ControlAck(ControlAck),
    /// Asks for a response after a while.
    Echo(Echo),
    /// A frame of a later version that may be skipped.
    Unknown,
    /// A frame of a later version that must not be skipped.
    UnknownCritical(u8),
}

impl Frame<'_> {
    /// Whether it is an inner packet or a piece of one.
    pub(crate) const fn carries_packet(&self) -> bool {
        match self {
            Self::Packet { .. }
            | Self::Compact { .. }
            | Self::Compressed { .. }
            | Self::Fragment { .. } => true,
            Self::Retransmission { .. }
            | Self::Feedback(_)
            | Self::LastFeedback(_)
            | Self::Challenge(_)
            | Self::Response(_)
            | Self::Advanced { .. }
            | Self::Close(_)
            | Self::Control { .. }
            | Self::ControlAck(_)
            | Self::Echo(_)
            | Self::Unknown
            | Self::UnknownCritical(_) => false,
        }
    }

    /// Whether the receiver owes feedback for a datagram with this frame (RFC 9000, 13.2): not for
    /// a challenge, which has its own answer, nor for an answer.
    pub(crate) const fn elicits_feedback(&self) -> bool {
        match self {
            Self::Packet { .. }
            | Self::Compact { .. }
            | Self::Compressed { .. }
            | Self::Fragment { .. }
            | Self::Retransmission { .. }
            | Self::Control { .. }
            | Self::Unknown
            | Self::UnknownCritical(_) => true,
            Self::Feedback(_)
            | Self::LastFeedback(_)
            | Self::Challenge(_)
            | Self::Response(_)
            | Self::Advanced { .. }
            | Self::Close(_)
            | Self::ControlAck(_)
            | Self::Echo(_) => false,
        }
    }
}

/// Path feedback: what arrived on one path in one direction. Counts are totals since the path's
/// first number, so a lost feedback frame loses nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feedback {
    /// The path, by the serial that its sender seals with.
    pub serial: PathSerial,
    /// The highest number received.
    pub largest: u64,
    /// Time from the arrival of `largest` to the sending of this frame, in microseconds.
    pub delay_us: u32,
    /// When `largest` arrived, in microseconds of a clock of the receiver's own; wraps. Two of them
    /// tell how far apart datagrams arrived, and beside when they left, by how much one of them was
    /// longer on its way than the other.
    pub arrived_us: u32,
    /// Datagrams received so far, at most one more than `largest`.
    pub received: u64,
    /// Bytes of those datagrams, UDP payload.
    pub bytes: u64,
    /// Alternating lengths of runs received and missing, downwards from `largest`; zeros at the
    /// end are absent.
    pub runs: [(u32, u32); FEEDBACK_RUNS_MAX],
}

impl Feedback {
    /// Whether `number` is among the numbers that this frame reports as received.
    pub fn acknowledges(&self, number: u64) -> bool {
        let mut top = self.largest;
        for &(received, missing) in &self.runs {
            if received == 0 || number > top {
                return false;
            }
            let Some(bottom) = top.checked_sub(u64::from(received) - 1) else { return true };
            if number >= bottom {
                return true;
            }
            let Some(next) = bottom.checked_sub(u64::from(missing) + 1) else { return false };
            top = next;
        }
        false
    }
}

impl Feedback {
    /// Whether `number` is among those that the runs speak of, received or missing.
    pub fn reaches(&self, number: u64) -> bool {
        let told = self.runs.iter().map(|run| u64::from(run.0) + u64::from(run.1)).sum();
        number <= self.largest && self.largest - number < told
    }
}

/// Path challenge (RFC 9000, 8.2), also the probe for a path's MTU: padding gives it its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// The sender will use this path from now on.
    pub prefer: bool,
    /// The sender's other paths are gone: nothing sent there will arrive.
    pub abandon_others: bool,
    /// The sender sends data by this path beside the one that it prefers; the receiver is to do so
    /// as well.
    pub beside: bool,
    /// Unpredictable; echoed by the response.
    pub token: u64,
    /// How often the sender has taken another path so far: what it prefers in a challenge of a
    /// lower number is out of date.
    pub moves: u32,
}

/// Path response: sent only to the address that the challenge came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The challenge's token.
    pub token: u64,
    /// The address that the challenge came from, as its receiver saw it: tells of a NAT.
    pub observed: SocketAddr,
}

/// Asks for a [`Response`] to be sent by the path that this came by, after `delay`: to learn
/// whether a NAT in between remembers the path for so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// How long to wait; whole milliseconds travel.
    pub delay: Duration,
    /// Unpredictable; echoed by the response.
    pub token: u64,
}

/// Acknowledges control frames: all below `next`, and those beyond it whose bit is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlAck {
    /// The lowest number not yet received.
    pub next: u32,
    /// Bit `i` stands for number `next + 1 + i`.
    pub beyond: u32,
}

/// The frames of an opened datagram, in order. Ends at padding, at the end, or after an error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// The frames of `plaintext`.
    pub const fn new(plaintext: &'a [u8]) -> Self {
        Self { rest: plaintext }
    }

    fn parse(&mut self) -> Result<Option<Frame<'a>>, DropReason> {
        let Some((&first, rest)) = self.rest.split_first() else { return Ok(None) };
        match first {
            kind::PADDING => {
                self.rest = &[];
                Ok(None)
            }
            kind::PACKET..=kind::PACKET_LAST => {
                let mut reader = Reader::new(rest);
                let framing = Framing::parse(first, &mut reader)?;
                Ok(Some(Frame::Packet { framing, packet: self.packet(reader.rest())? }))
            }
            kind::FRAGMENT => {
                let mut reader = Reader::new(rest);
                let (packet_id, index) = (reader.u32()?, reader.u8()?);
                self.rest = &[];
                Ok(Some(Frame::Fragment { packet_id, index, piece: reader.rest() }))
            }
            kind::RETRANSMISSION => {
                let mut reader = Reader::new(rest);
                let (serial, number) = (PathSerial(reader.u32()?), reader.u32()?);
                let packet = self.packet(reader.rest())?;
                Ok(Some(Frame::Retransmission { serial, number, packet }))
            }
            kind => {
                let mut reader = Reader::new(rest);
                let length = usize::from(reader.u16()?);
                let body = reader.take(length)?;
                self.rest = reader.rest();
                if matches!(kind, kind::COMPRESSED..=kind::COMPRESSED_LAST) {
                    let (framing, result) = Framing::parse_compressed(kind, body)?;
                    return Ok(Some(Frame::Compressed { framing, result }));
                }
                parse_body(kind, body).map(Some)
            }
        }
    }

    /// The inner packet at the beginning of `rest`.
    fn packet(&mut self, rest: &'a [u8]) -> Result<&'a [u8], DropReason> {
        let length = inner::declared_len(rest).ok_or(DropReason::BadFrame)?;
        if length > rest.len() {
            return Err(DropReason::BadFrame);
        }
        let (packet, rest) = rest.split_at(length);
        self.rest = rest;
        Ok(packet)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.parse();
        if result.is_err() {
            self.rest = &[];
        }
        result.transpose()
    }
}

fn parse_body(kind: u8, body: &[u8]) -> Result<Frame<'_>, DropReason> {
    let mut reader = Reader::new(body);
    if let Some(head) = CompactHead::parse(kind, &mut reader) {
        return Ok(Frame::Compact { head: head?, body: reader.rest() });
    }
    let frame = match kind {
        kind::FEEDBACK => Frame::Feedback(parse_feedback(&mut reader)?),
        kind::LAST_FEEDBACK => Frame::LastFeedback(parse_feedback(&mut reader)?),
        kind::CHALLENGE => {
            let flags = reader.u8()?;
            Frame::Challenge(Challenge {
                prefer: flags & 1 != 0,
                abandon_others: flags & 2 != 0,
                beside: flags & 4 != 0,
                token: reader.u64()?,
                moves: reader.u32()?,
            })
        }
        kind::RESPONSE => {
            Frame::Response(Response { token: reader.u64()?, observed: reader.socket_addr()? })
        }
        kind::ADVANCED => {
            let (bucket, from, to) = (reader.u8()?, reader.u32()?, reader.u32()?);
            Frame::Advanced { bucket, from, to }
        }
        kind::CLOSE => Frame::Close(CloseCode::from_byte(reader.u8()?)),
        kind::CONTROL => Frame::Control { number: reader.u32()?, body: reader.rest() },
        kind::CONTROL_ACK => {
            Frame::ControlAck(ControlAck { next: reader.u32()?, beyond: reader.u32()? })
        }
        kind::ECHO => Frame::Echo(Echo {
            delay: Duration::from_millis(reader.u32()?.into()),
            token: reader.u64()?,
        }),
        other if other & kind::CRITICAL != 0 => Frame::UnknownCritical(other),
        _ => Frame::Unknown,
    };
    Ok(frame)
}

fn parse_feedback(reader: &mut Reader<'_>) -> Result<Feedback, DropReason> {
    let serial = PathSerial(reader.varint_u32()?);
    let (largest, delay_us) = (reader.varint()?, reader.varint_u32()?);
    let arrived_us = reader.u32()?;
    let received = (largest + 1).checked_sub(reader.varint()?).ok_or(DropReason::BadFrame)?;
    let bytes = reader.varint()?;
    let count = usize::from(reader.u8()?);
    if count > FEEDBACK_RUNS_MAX {
        return Err(DropReason::BadFrame);
    }
    let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
    for run in &mut runs[..count] {
        *run = (reader.varint_u32()?, reader.varint_u32()?);
    }
    Ok(Feedback { serial, largest, delay_us, arrived_us, received, bytes, runs })
}
