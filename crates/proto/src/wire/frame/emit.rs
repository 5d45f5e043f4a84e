//! The bytes of frames, as they are written.

use super::packet::emit_retransmission_header;
use super::{Challenge, Feedback, Frame, kind};
use crate::wire::cursor::Writer;

/// Appends frames to a datagram under construction. The caller has seen to the room.
impl Frame<'_> {
    /// Appends this frame to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Frame::Packet { framing, packet } => {
                framing.emit(out);
                out.extend_from_slice(packet);
            }
            Frame::Compact { head, body } => {
                head.emit(body.len(), out);
                out.extend_from_slice(body);
            }
            Frame::Compressed { framing, result } => framing.emit_compressed(result, out),
            Frame::Fragment { packet_id, index, piece } => {
                emit_fragment_header(out, packet_id, index);
                out.extend_from_slice(piece);
            }
            Frame::Retransmission { serial, number, packet } => {
                emit_retransmission_header(out, serial, number);
                out.extend_from_slice(packet);
            }
            Frame::Feedback(ref feedback) => emit_tlv(out, kind::FEEDBACK, |w| {
                emit_feedback(w, feedback);
            }),
            Frame::LastFeedback(ref feedback) => emit_tlv(out, kind::LAST_FEEDBACK, |w| {
                emit_feedback(w, feedback);
            }),
            Frame::Challenge(challenge) => emit_tlv(out, kind::CHALLENGE, |w| {
                let Challenge { prefer, abandon_others, beside, .. } = challenge;
                w.u8(u8::from(prefer) | u8::from(abandon_others) << 1 | u8::from(beside) << 2);
                w.u64(challenge.token);
                w.u32(challenge.moves);
            }),
            Frame::Response(response) => emit_tlv(out, kind::RESPONSE, |w| {
                w.u64(response.token);
                w.socket_addr(response.observed);
            }),
            Frame::Advanced { bucket, from, to } => emit_tlv(out, kind::ADVANCED, |w| {
                w.u8(bucket);
                w.u32(from);
                w.u32(to);
            }),
            Frame::Close(code) => emit_tlv(out, kind::CLOSE, |w| w.u8(code.to_byte())),
            Frame::Control { number, body } => emit_tlv(out, kind::CONTROL, |w| {
                w.u32(number);
                w.bytes(body);
            }),
            Frame::ControlAck(ack) => emit_tlv(out, kind::CONTROL_ACK, |w| {
                w.u32(ack.next);
                w.u32(ack.beyond);
            }),
            Frame::Echo(echo) => emit_tlv(out, kind::ECHO, |w| {
                w.u32(u32::try_from(echo.delay.as_millis()).unwrap_or(u32::MAX));
                w.u64(echo.token);
            }),
            Frame::Unknown | Frame::UnknownCritical(_) => {
                debug_assert!(false, "frames of later versions are never sent");
            }
        }
    }
}

/// Appends what precedes a piece of an inner packet, which fills the rest of the datagram.
pub fn emit_fragment_header(out: &mut Vec<u8>, packet_id: u32, index: u8) {
    out.push(kind::FRAGMENT);
    out.extend_from_slice(&packet_id.to_be_bytes());
    out.push(index);
}

/// Appends `len` bytes of padding; a receiver ignores all that follows the first.
pub fn emit_padding(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len, kind::PADDING);
}

fn emit_tlv(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Writer<'_>)) {
    out.extend_from_slice(&[kind, 0, 0]);
    let start = out.len();
    body(&mut Writer::new(out));
    let length = out.len() - start;
    debug_assert!(length <= usize::from(u16::MAX));
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    out[start - 2..start].copy_from_slice(&length.to_be_bytes());
}

fn emit_feedback(writer: &mut Writer<'_>, feedback: &Feedback) {
    let &Feedback { serial, largest, delay_us, arrived_us, received, bytes, ref runs } = feedback;
    debug_assert!(received <= largest + 1, "a number arrives once");
    writer.varint(serial.0.into());
    writer.varint(largest);
    writer.varint(delay_us.into());
    writer.u32(arrived_us);
    writer.varint((largest + 1).saturating_sub(received));
    writer.varint(bytes);
    let count = runs.iter().take_while(|run| run.0 > 0).count();
    writer.u8(u8::try_from(count).unwrap_or(0));
    for &(received, missing) in &runs[..count] {
        writer.varint(received.into());
        writer.varint(missing.into());
    }
}
