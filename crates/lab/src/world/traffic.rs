//! What of the traffic is noted for whoever asks: packets that arrive, datagrams that pass.

use rove_proto::wire::Kind;

use super::op::Way;

/// An inner packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at_ns: u64,
    /// What [`Road::send`] returned.
    pub(super) id: u32,
}

/// A datagram that passed a card of the client, or left the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) at_ns: u64,
    /// Whether it passed here when it left its sender.
    pub(super) leaves: bool,
    pub(super) way: Way,
    pub(super) kind: Option<Kind>,
    /// UDP payload in bytes.
    pub(super) len: usize,
}

impl Passed {
    /// Whether it passed a card of the client's.
    pub(super) fn is_at_client(&self) -> bool {
        self.leaves == (self.way == Way::Up)
    }
}
