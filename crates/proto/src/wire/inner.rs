//! The inner IP packets that the tunnel carries, and what their headers say (RFC 791, RFC 8200,
//! RFC 9293, RFC 768). Headers are read once, where a packet enters, and go with it from there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::checksum::Sum;
use super::flags::Flags;
use crate::blocks::parcel::Parcel;
use crate::error::DropReason;
use crate::packet::Checksum;

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// The largest inner packet that is accepted, in bytes.
pub const MAX_PACKET: usize = 1_500;

/// Bytes of an IPv4 header without options (RFC 791).
pub const IPV4_HEADER: usize = 20;
/// Bytes of an IPv6 header (RFC 8200).
pub const IPV6_HEADER: usize = 40;
/// Bytes of a TCP header without options (RFC 9293).
pub const TCP_HEADER: usize = 20;
/// Bytes of a UDP header (RFC 768).
pub(crate) const UDP_HEADER: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Extension headers that are walked before a packet's transport counts as unknown.
const EXTENSIONS_MAX: usize = 8;

/// An inner packet, its headers read.
#[derive(Clone, Copy, Debug)]
pub struct InnerPacket<'a> {
    /// The fields of its headers.
    pub headers: Headers,
    /// The bytes.
    pub pieces: Pieces<'a>,
    /// Flags and bytes of payload, if it is a TCP segment with a whole header.
    segment: Option<(Flags, usize)>,
}

#[expect(clippy::len_without_is_empty, reason = "it has headers")]
impl<'a> InnerPacket<'a> {
    /// Reads the headers of a packet.
    ///
    /// # Errors
    /// [`DropReason::BadInner`] when it is no IPv4 or IPv6 packet of exactly that length.
    pub fn parse(pieces: Pieces<'a>) -> Result<Self, DropReason> {
        Ok(Self::read(Headers::parse(pieces.head, pieces.len())?, pieces))
    }

    /// A packet with these headers. The end of its payload may be missing.
    pub fn read(headers: Headers, pieces: Pieces<'a>) -> Self {
        let segment = || {
            let at = headers.transport.filter(|_| headers.protocol == TCP)?;
            let fixed = pieces.head.get(at..)?.first_chunk::<TCP_HEADER>()?;
            let payload = at + usize::from(fixed[12] >> 4) * 4;
            let is_whole = payload >= at + TCP_HEADER && payload <= pieces.head.len();
            is_whole.then(|| (Flags(fixed[13]), pieces.len() - payload))
        };
        Self { headers, pieces, segment: segment() }
    }

    /// The same of a packet in one piece.
    ///
    /// # Errors
    /// As of [`Self::parse`].
    pub fn whole(packet: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse(Pieces::whole(packet))
    }

    /// The packet with `head` in the place of its head. The addresses, ports, protocol and flags in
    /// it must be the same.
    #[must_use]
    pub(crate) const fn with_head(&self, head: &'a [u8]) -> Self {
        Self { pieces: Pieces { head, ..self.pieces }, ..*self }
    }

    /// Bytes of the packet.
    pub const fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether its transport is TCP.
    pub const fn is_tcp(&self) -> bool {
        self.headers.protocol == TCP
    }

    /// Whether its transport is UDP.
    pub const fn is_udp(&self) -> bool {
        self.headers.protocol == UDP
    }

    /// Where its TCP header begins, if it opens a connection: a SYN or its answer.
    pub fn opens_at(&self) -> Option<usize> {
        self.headers.transport.filter(|_| self.segment.is_some_and(|(it, _)| it.has(Flags::SYN)))
    }

    /// Whether it is a TCP segment without payload that ends nothing: an acknowledgement, or the
    /// beginning of a connection.
    pub fn is_bare_segment(&self) -> bool {
        self.segment.is_some_and(|(flags, payload)| {
            payload == 0 && !flags.has(Flags::FIN) && !flags.has(Flags::RST)
        })
    }

    /// The flags of a TCP segment with a whole header.
    pub fn flags(&self) -> Option<Flags> {
        self.segment.map(|(flags, _)| flags)
    }

    /// The beginning of what a TCP segment or a UDP datagram carries, as much as lies in one piece.
    /// Empty if it carries nothing, or is a later fragment.
    pub fn first_payload(&self) -> &'a [u8] {
        let Pieces { head, tail, .. } = self.pieces;
        let at = match (self.segment, self.headers.transport) {
            (Some((_, payload)), _) => self.len() - payload,
            (None, Some(at)) if self.is_udp() => at + UDP_HEADER,
            (None, _) => return &[],
        };
        head.get(at..).filter(|rest| !rest.is_empty()).unwrap_or(tail)
    }

    /// The payload of a UDP packet that is no later fragment, as far as it lies in one piece, and
    /// how long it is.
    pub fn datagram(&self) -> Option<(&'a [u8], usize)> {
        let at = self.headers.transport.filter(|_| self.is_udp())? + UDP_HEADER;
        let first = self.pieces.head.get(at..)?;
        let payload = if first.is_empty() { self.pieces.tail } else { first };
        Some((payload, self.len().checked_sub(at)?))
    }

    /// Whether a packet with a [`Self::datagram`] is no fragment: no more of them follow, by IPv6
    /// nothing but UDP, and all the bytes that UDP speaks of are there.
    pub fn is_whole_datagram(&self) -> bool {
        let (head, at) = (self.pieces.head, self.headers.transport.unwrap_or_default());
        let alone = if head[0] >> 4 == 4 { head[6] & 0x20 == 0 } else { at == IPV6_HEADER };
        let length = head.get(at + 4..at + 6).map(|it| u16::from_be_bytes([it[0], it[1]]));
        alone && length.is_some_and(|length| at + usize::from(length) == self.len())
    }
}

/// The bytes of an inner packet, in two pieces. The payload of a segment of a super-packet is then
/// copied only once. `head` holds at least the IP and transport headers; if the packet is no such
/// segment, all bytes.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// The packet's headers, or all of it.
    pub head: &'a [u8],
    /// What follows `head`.
    pub tail: &'a [u8],
    /// Where `tail` lies, if it may be kept there.
    pub home: Option<Home<'a>>,
    /// What is known of the checksum of its transport.
    pub checksum: Checksum,
}

/// A place in a buffer that several may keep, and that nobody writes to while another one does.
/// Only for what is certainly what its sender meant: the checksum before it was made from it.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// The buffer.
    pub buffer: &'a Arc<[u8]>,
    /// Where in it.
    pub at: usize,
}

impl<'a> Pieces<'a> {
    /// A packet in one piece.
    pub const fn whole(packet: &'a [u8]) -> Self {
        Self::cut(packet, &[])
    }

    /// A packet in two pieces, of which neither may be kept.
    pub const fn cut(head: &'a [u8], tail: &'a [u8]) -> Self {
        Self { head, tail, home: None, checksum: Checksum::Unchecked }
    }

    /// A packet that waited.
    pub(crate) fn waited(parcel: &'a Parcel) -> Self {
        Self::whole(parcel.packet()).with_checksum(parcel.checksum())
    }

    /// The same, and this is known of its checksum.
    #[must_use]
    pub const fn with_checksum(self, checksum: Checksum) -> Self {
        Self { checksum, ..self }
    }

    /// Bytes of the packet.
    pub const fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether the packet has no byte at all.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the packet to `out`, with whatever lies in the field of its checksum.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.tail);
    }

    /// Appends the packet to `out`, with its checksum, if that was left out.
    pub fn finish_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.copy_to(out);
        if self.checksum == Checksum::LeftOut {
            make_checksum(&mut out[start..]);
        }
    }

    /// The same packet in memory of its own.
    pub fn to_vec(self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(self.len());
        self.finish_to(&mut packet);
        packet
    }
}

/// Makes the transport checksum of a TCP or UDP packet. Of the two ways to write zero it writes
/// 0xffff, which UDP wants (RFC 768). Leaves all other packets alone.
fn make_checksum(packet: &mut [u8]) {
    let Ok(headers) = Headers::parse(packet, packet.len()) else { return };
    let Headers { source, destination, protocol, transport, .. } = headers;
    let (at, field) = match (protocol, transport) {
        (TCP, Some(at)) => (at, at + 16),
        (UDP, Some(at)) => (at, at + 6),
        _ => return,
    };
    let Some(old) = packet.get_mut(field..field + 2) else { return };
    old.fill(0);
    let length = u16::try_from(packet.len() - at).unwrap_or_default();
    let sum = Sum::default().pseudo(source, destination, protocol, length).bytes(&packet[at..]);
    packet[field..field + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// The length that the IP header at the start of `bytes` declares; `None` when there is no valid
/// header. IPv6 jumbograms count as invalid.
pub fn declared_len(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? >> 4 {
        4 if bytes.len() >= IPV4_HEADER => {
            let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
            let header = usize::from(bytes[0] & 0xf) * 4;
            (header >= IPV4_HEADER && length >= header).then_some(length)
        }
        6 if bytes.len() >= IPV6_HEADER => {
            Some(IPV6_HEADER + usize::from(u16::from_be_bytes([bytes[4], bytes[5]])))
        }
        _ => None,
    }
}

/// The header fields of an inner packet that the tunnel needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number of the transport, after extension headers.
    pub protocol: u8,
    /// Source and destination port, for TCP and UDP packets that are no later fragment.
    pub ports: Option<(u16, u16)>,
    /// Where the transport header starts, within the bytes that were read; `None` in a later
    /// fragment, and when the headers before it reach further than those bytes.
    pub transport: Option<usize>,
}

impl Headers {
    /// Reads the headers of a packet of `len` bytes of which `head` is the beginning.
    ///
    /// # Errors
    /// [`DropReason::BadInner`] when the packet is no IPv4 or IPv6 packet of exactly that length.
    pub fn parse(head: &[u8], len: usize) -> Result<Self, DropReason> {
        if declared_len(head) != Some(len) || len > MAX_PACKET {
            return Err(DropReason::BadInner);
        }
        let (source, destination, protocol, transport) = if head[0] >> 4 == 4 {
            let header = usize::from(head[0] & 0xf) * 4;
            let later_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff != 0;
            let source = Ipv4Addr::new(head[12], head[13], head[14], head[15]);
            let destination = Ipv4Addr::new(head[16], head[17], head[18], head[19]);
            let transport = (!later_fragment && header <= head.len()).then_some(header);
            (source.into(), destination.into(), head[9], transport)
        } else {
            let address = |at: usize| -> IpAddr {
                let mut octets = [0; 16];
                octets.copy_from_slice(&head[at..at + 16]);
                Ipv6Addr::from(octets).into()
            };
            let (protocol, transport) = walk_extensions(head);
            (address(8), address(24), protocol, transport)
        };
        let ports = match (protocol, transport) {
            (TCP | UDP, Some(at)) if head.len() >= at + 4 => Some((
                u16::from_be_bytes([head[at], head[at + 1]]),
                u16::from_be_bytes([head[at + 2], head[at + 3]]),
            )),
            _ => None,
        };
        Ok(Self { source, destination, protocol, ports, transport })
    }
}

/// The transport's protocol and place after IPv6 extension headers (RFC 8200, section 4).
fn walk_extensions(head: &[u8]) -> (u8, Option<usize>) {
    let (mut next, mut at) = (head[6], IPV6_HEADER);
    for _ in 0..EXTENSIONS_MAX {
        let (Some(&following), Some(&length)) = (head.get(at), head.get(at + 1)) else {
            return (next, (!is_extension(next) && at <= head.len()).then_some(at));
        };
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => at += (usize::from(length) + 1) * 8,
            FRAGMENT => {
                let later = match (head.get(at + 2), head.get(at + 3)) {
                    (Some(&high), Some(&low)) => u16::from_be_bytes([high, low]) & !7 != 0,
                    _ => true,
                };
                if later {
                    return (following, None);
                }
                at += 8;
            }
            _ => return (next, Some(at)),
        }
        next = following;
    }
    (next, None)
}

const fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT)
}

#[cfg(test)]
#[path = "inner_tests.rs"]
mod tests;
