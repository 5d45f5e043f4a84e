//! What travels in the world: a UDP datagram, or a segment of a stream, that remembers who really
//! sent it.

use std::net::SocketAddr;

use rove_proto::node::Meta;

use super::host_id::HostId;
use super::inner::Inner;
use crate::emu::{Datagram, Endpoints, Frame, IpPacket, Protocol};

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// What the network sees.
    pub(super) datagram: Datagram,
    /// Who put it there; no node can see this, the laws can.
    pub(super) origin: Origin,
    /// Where it was to go: what a NAT box does to the destination is not seen here.
    pub(super) to: SocketAddr,
    /// A segment of a stream, as a whole packet. The datagram then has its addresses and no more.
    pub(super) segment: Option<IpPacket>,
    /// The payload is a whole packet of somebody who has no tunnel.
    pub(super) is_open: bool,
}

/// Who put a datagram on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A host, by itself.
    Host(HostId),
    /// A kernel, or somebody who has no tunnel: nothing that a session says.
    Nobody,
    /// The attacker: made up, altered, sent again or from elsewhere.
    Attacker,
}

/// What waits for a host's node to take it.
#[derive(Debug)]
pub(super) enum Input {
    /// An inner packet from the tunnel device.
    Packet(Inner),
    /// An inner packet of a connection or a flow, from the tunnel device.
    Bytes(Vec<u8>),
    /// A datagram from a socket.
    Datagram {
        /// How it came.
        meta: Meta,
        /// Where it was sent to.
        to: SocketAddr,
        /// When it arrived.
        at_ns: u64,
        /// Its bytes.
        payload: Vec<u8>,
    },
}

impl Frame for Parcel {
    fn wire_len(&self) -> usize {
        if self.is_open {
            return self.datagram.payload.len();
        }
        self.segment.as_ref().map_or_else(|| self.datagram.wire_len(), IpPacket::wire_len)
    }

    fn endpoints(&self) -> Option<Endpoints> {
        let ends = self.datagram.endpoints()?;
        let protocol = if self.segment.is_some() { Protocol::Tcp } else { ends.protocol };
        Some(Endpoints { protocol, ..ends })
    }

    fn set_source(&mut self, source: SocketAddr) {
        self.datagram.set_source(source);
        self.segment.iter_mut().for_each(|segment| segment.set_source(source));
    }

    fn set_destination(&mut self, destination: SocketAddr) {
        self.datagram.set_destination(destination);
        self.segment.iter_mut().for_each(|segment| segment.set_destination(destination));
    }

    fn flip_bit(&mut self, bit: usize) {
        match &mut self.segment {
            Some(segment) => segment.flip_bit(bit),
            None => self.datagram.flip_bit(bit),
        }
    }

    fn stream_bytes(&self) -> &[u8] {
        self.segment.as_ref().map_or(&[], IpPacket::stream_bytes)
    }
}
