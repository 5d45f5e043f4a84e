//! What travels in the world: a UDP datagram that remembers who really sent it.

use std::net::SocketAddr;

use rove_proto::node::Meta;

use super::inner::Inner;
use crate::emu::{Datagram, Endpoints, Frame};

/// A host of the world: 0 is the gateway, then the clients.
pub(super) type HostId = usize;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// What the network sees.
    pub(super) datagram: Datagram,
    /// Who put it there; no node can see this, the laws can.
    pub(super) origin: Origin,
    /// Where it was to go: what a NAT box does to the destination is not seen here.
    pub(super) to: SocketAddr,
}

/// Who put a datagram on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A host, by itself.
    Host(HostId),
    /// The attacker: made up, altered, sent again or from elsewhere.
    Attacker,
}

/// What waits for a host's node to take it.
#[derive(Debug)]
pub(super) enum Input {
    /// An inner packet from the tunnel device.
    Packet(Inner),
    /// A datagram from a socket.
    Datagram {
        /// How it came.
        meta: Meta,
        /// Where it was sent to.
        to: SocketAddr,
        /// Its bytes.
        payload: Vec<u8>,
    },
}

impl Frame for Parcel {
    fn wire_len(&self) -> usize {
        self.datagram.wire_len()
    }

    fn endpoints(&self) -> Option<Endpoints> {
        self.datagram.endpoints()
    }

    fn set_source(&mut self, source: SocketAddr) {
        self.datagram.set_source(source);
    }

    fn set_destination(&mut self, destination: SocketAddr) {
        self.datagram.set_destination(destination);
    }

    fn flip_bit(&mut self, bit: usize) {
        self.datagram.flip_bit(bit);
    }
}
