//! Frames into datagrams and back: an inner packet that fits travels whole, a larger one in
//! pieces.
//!
//! Knows sizes, not paths: the caller says how much a datagram may hold. Several small packets
//! share a datagram by `joining`.

pub mod fragment;
pub(crate) mod joining;

use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// The frame of `packet` by itself, to be split in pieces.
pub fn frame(framing: Framing, packet: Pieces<'_>) -> Vec<u8> {
    let mut whole = Vec::with_capacity(framing.overhead() + packet.len());
    append(framing, packet, &mut whole);
    whole
}

/// Appends the frame of `packet` to `frames`.
pub fn append(framing: Framing, packet: Pieces<'_>, frames: &mut Vec<u8>) {
    framing.emit(frames);
    packet.copy_to(frames);
}
