//! What travels: anything with a length and, for routers and NAT boxes, addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of an IPv4 header without options.
const IPV4_HEADER: usize = 20;
/// Length of the fixed IPv6 header.
const IPV6_HEADER: usize = 40;
/// Length of a UDP header.
const UDP_HEADER: usize = 8;

/// A unit that the emulator carries.
pub trait Frame: Clone {
    /// Its layer-3 length in bytes, which the links charge for.
    fn wire_len(&self) -> usize;
    /// Where it comes from and goes to; `None` when it is no packet that a router could forward.
    fn endpoints(&self) -> Option<Endpoints>;
    /// Gives it another source, as a NAT box does on the way out.
    fn set_source(&mut self, source: SocketAddr);
    /// Gives it another destination, as a NAT box does on the way in.
    fn set_destination(&mut self, destination: SocketAddr);
    /// Turns one bit, counted from 0; bits beyond the end are ignored.
    fn flip_bit(&mut self, bit: usize);
    /// What it carries of a TCP connection's bytes; nothing where it is not TCP.
    fn stream_bytes(&self) -> &[u8] {
        &[]
    }
}

/// The protocols that a NAT box tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// UDP, by port.
    Udp,
    /// TCP, by port.
    Tcp,
    /// ICMP echo, by identifier in place of a port.
    Echo,
    /// Anything else: an address without a port. No NAT box here translates it.
    Other(u8),
}

/// Source and destination of a packet; the port is 0 where the protocol has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The protocol above IP.
    pub protocol: Protocol,
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to.
    pub destination: SocketAddr,
}

/// A UDP datagram as the simulated world sends it: addresses beside, payload inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to.
    pub destination: SocketAddr,
    /// UDP payload.
    pub payload: Vec<u8>,
}

impl Frame for Datagram {
    fn wire_len(&self) -> usize {
        let ip = if self.destination.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        ip + UDP_HEADER + self.payload.len()
    }

    fn endpoints(&self) -> Option<Endpoints> {
        let Self { source, destination, .. } = *self;
        Some(Endpoints { protocol: Protocol::Udp, source, destination })
    }

    fn set_source(&mut self, source: SocketAddr) {
        self.source = source;
    }

    fn set_destination(&mut self, destination: SocketAddr) {
        self.destination = destination;
    }

    /// Bits of the headers cannot be turned: they are not there. Those of the payload can.
    fn flip_bit(&mut self, bit: usize) {
        let headers = self.wire_len() - self.payload.len();
        if let Some(byte) = (bit / 8).checked_sub(headers).and_then(|at| self.payload.get_mut(at)) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A real IPv4 or IPv6 packet, as a host's kernel made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpPacket(Vec<u8>);

impl IpPacket {
    /// Takes any bytes; those that are no IP packet have no [`Frame::endpoints`].
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The packet, header first.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where addresses and ports lie, if this is a packet that can be forwarded.
    fn layout(&self) -> Option<Layout> {
        let bytes = &self.0;
        let (v6, next, transport, first) = match bytes.first()? >> 4 {
            4 if bytes.len() >= IPV4_HEADER => {
                let header = usize::from(bytes[0] & 0x0f) * 4;
                let offset = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff;
                (false, bytes[9], header.max(IPV4_HEADER), offset == 0)
            }
            // Extension headers are not walked: what follows one has no ports here.
            6 if bytes.len() >= IPV6_HEADER => (true, bytes[6], IPV6_HEADER, true),
            _ => return None,
        };
        let has = |length: usize| first && bytes.len() >= transport + length;
        let (protocol, ports) = match (next, v6) {
            (17, _) if has(8) => (Protocol::Udp, Ports::Both),
            (6, _) if has(20) => (Protocol::Tcp, Ports::Both),
            (1, false) if has(8) && matches!(bytes[transport], 0 | 8) => {
                (Protocol::Echo, Ports::Identifier)
            }
            (58, true) if has(8) && matches!(bytes[transport], 128 | 129) => {
                (Protocol::Echo, Ports::Identifier)
            }
            (other, _) => (Protocol::Other(other), Ports::None),
        };
        Some(Layout { v6, protocol, transport, ports })
    }

    fn address(&self, layout: &Layout, at: usize) -> IpAddr {
        if layout.v6 {
            let mut octets = [0; 16];
            octets.copy_from_slice(&self.0[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        } else {
            let mut octets = [0; 4];
            octets.copy_from_slice(&self.0[at..at + 4]);
            IpAddr::V4(Ipv4Addr::from(octets))
        }
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Replaces an address and a port and mends the checksums that cover them.
    fn rewrite(&mut self, side: Side, to: SocketAddr) {
        let Some(layout) = self.layout() else { return };
        if layout.v6 != to.is_ipv6() {
            return;
        }
        let at = layout.address_at(side);
        let mut change = Change::default();
        match to.ip() {
            IpAddr::V4(address) => self.replace(at, &address.octets(), &mut change),
            IpAddr::V6(address) => self.replace(at, &address.octets(), &mut change),
        }
        if !layout.v6 {
            self.mend(10, &change);
        }
        if layout.protocol == Protocol::Echo && !layout.v6 {
            // The checksum of ICMPv4 does not cover the addresses.
            change = Change::default();
        }
        if let Some(at) = layout.port_at(side) {
            self.replace(at, &to.port().to_be_bytes(), &mut change);
        }
        match layout.checksum_at() {
            // A UDP checksum of zero over IPv4 means that there is none.
            Some(at) if layout.protocol == Protocol::Udp && self.word(at) == 0 => {}
            Some(at) => self.mend(at, &change),
            None => {}
        }
    }

    fn replace(&mut self, at: usize, new: &[u8], change: &mut Change) {
        for (index, pair) in new.chunks_exact(2).enumerate() {
            let at = at + index * 2;
            let (old, new) = (self.word(at), u16::from_be_bytes([pair[0], pair[1]]));
            change.sum += u32::from(!old) + u32::from(new);
            self.0[at..at + 2].copy_from_slice(pair);
        }
    }

    /// Updates a checksum for changed words (RFC 1624, equation 3).
    fn mend(&mut self, at: usize, change: &Change) {
        let mut sum = u32::from(!self.word(at)) + change.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = !(sum as u16);
        self.0[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

impl Frame for IpPacket {
    fn wire_len(&self) -> usize {
        self.0.len()
    }

    fn endpoints(&self) -> Option<Endpoints> {
        let layout = self.layout()?;
        let end = |side| {
            let port = layout.port_at(side).map_or(0, |at| self.word(at));
            SocketAddr::new(self.address(&layout, layout.address_at(side)), port)
        };
        let (source, destination) = (end(Side::Source), end(Side::Destination));
        Some(Endpoints { protocol: layout.protocol, source, destination })
    }

    fn set_source(&mut self, source: SocketAddr) {
        self.rewrite(Side::Source, source);
    }

    fn set_destination(&mut self, destination: SocketAddr) {
        self.rewrite(Side::Destination, destination);
    }

    fn flip_bit(&mut self, bit: usize) {
        if let Some(byte) = self.0.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn stream_bytes(&self) -> &[u8] {
        let Some(layout) = self.layout().filter(|layout| layout.protocol == Protocol::Tcp) else {
            return &[];
        };
        // RFC 9293, section 3.1: the header's length in words.
        let header = usize::from(self.0[layout.transport + 12] >> 4) * 4;
        self.0.get(layout.transport + header..).unwrap_or(&[])
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// Which ports the transport header has.
enum Ports {
    /// Source and destination.
    Both,
    /// One identifier that stands for either.
    Identifier,
    None,
}

struct Layout {
    v6: bool,
    protocol: Protocol,
    /// Offset of the transport header.
    transport: usize,
    ports: Ports,
}

/// The sum of all replaced words, for checksums.
#[derive(Default)]
struct Change {
    sum: u32,
}

impl Layout {
    const fn address_at(&self, side: Side) -> usize {
        match (self.v6, side) {
            (false, Side::Source) => 12,
            (false, Side::Destination) => 16,
            (true, Side::Source) => 8,
            (true, Side::Destination) => 24,
        }
    }

    const fn port_at(&self, side: Side) -> Option<usize> {
        match (&self.ports, side) {
            (Ports::Both, Side::Source) => Some(self.transport),
            (Ports::Both, Side::Destination) => Some(self.transport + 2),
            (Ports::Identifier, _) => Some(self.transport + 4),
            (Ports::None, _) => None,
        }
    }

    const fn checksum_at(&self) -> Option<usize> {
        match self.protocol {
            Protocol::Udp => Some(self.transport + 6),
            Protocol::Tcp => Some(self.transport + 16),
            Protocol::Echo => Some(self.transport + 2),
            Protocol::Other(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
