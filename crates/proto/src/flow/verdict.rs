//! What becomes of a packet from the tunnel, which may be changed, and of what this end says.

use crate::wire::tcp::{Rewrite, Segment};

/// What is to become of a packet from the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is delivered as it is.
    Pass,
    /// It is not delivered.
    Keep,
    /// It is delivered with another acknowledgement.
    Change(Change),
}

/// Where something goes that this end says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// To the TUN: it seems to come from the remote side.
    ToLocal,
    /// Into the tunnel: it seems to come from the local side.
    ToRemote,
}

/// How an acknowledgement is changed before it is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    pub(super) segment: Segment,
    pub(super) rewrite: Rewrite,
}

impl Change {
    /// Changes the packet that the verdict is about.
    pub fn apply(&self, packet: &mut [u8]) {
        self.segment.rewrite(packet, &self.rewrite);
    }
}
