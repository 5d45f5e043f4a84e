//! Frames that share a datagram with a frame before them: each is kept, lost and sent again by
//! itself.
//!
//! The account of sent packets has one entry for each datagram, with its first frame. The other
//! frames of a datagram stand here, in the order in which their copies lie behind that of the first
//! one. Only packets with a number share a datagram, and a lost one leaves again alone.
//!
//! Bounds: a datagram has at most [`JOINED_MAX`] frames. Copies count as those of the entries do.

use std::collections::VecDeque;

use crate::id::{FlowId, PacketNumber};

/// The most packet frames in one datagram: what 1,472 bytes have room for if each has 20 bytes.
pub(crate) const JOINED_MAX: usize = 64;

/// One frame behind the first one of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinedFrame {
    /// The datagram's number.
    pub(super) number: PacketNumber,
    /// The flow of the packet, if that is known.
    pub(super) flow: Option<FlowId>,
    /// Bytes of the copy,
    pub(super) copy: u16,
    /// and how many more of the frame the flow keeps.
    pub(super) kept: u16,
}

/// The frames of one packet number space that share a datagram with one before them.
#[derive(Clone, Debug, Default)]
pub(super) struct JoinedFrames {
    frames: VecDeque<JoinedFrame>,
}

impl JoinedFrames {
    /// Adds a frame to the datagram that left last.
    pub(super) fn push(&mut self, frame: JoinedFrame) {
        self.frames.push_back(frame);
    }

    /// The frames of the oldest datagram that has any, if that has this number.
    pub(super) fn of(&self, number: PacketNumber) -> impl Iterator<Item = &JoinedFrame> {
        self.frames.iter().take_while(move |frame| frame.number == number)
    }

    /// Forgets the frames of [`Self::of`]. Returns the bytes of their copies.
    pub(super) fn forget(&mut self, number: PacketNumber) -> usize {
        let mut copies = 0;
        while let Some(frame) = self.frames.front().filter(|frame| frame.number == number) {
            copies += usize::from(frame.copy);
            self.frames.pop_front();
        }
        copies
    }

    /// Gives back memory that an idle space does not need.
    pub(super) fn rest(&mut self) {
        self.frames.shrink_to(JOINED_MAX);
    }
}
