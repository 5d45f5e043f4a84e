//! Frames into datagrams and back: an inner packet that fits travels whole, a larger one in
//! pieces.
//!
//! Knows sizes, not paths: the caller says how much a datagram may hold. Joining several small
//! packets and compressing them will happen here.

pub mod fragment;

use crate::outbox::Draft;
use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// Appends `packet` to `draft` as one frame. Returns where in the draft's frames the packet's
/// bytes begin, for those that must be changed on the way.
pub fn push(draft: &mut Draft<'_>, framing: Framing, packet: Pieces<'_>) -> usize {
    append(framing, packet, draft.frames());
    draft.written().len() - packet.len()
}

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
