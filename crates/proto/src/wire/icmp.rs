//! ICMP's "destination unreachable" about an inner packet, both ways (RFC 792; RFC 1812, 5.2.7.1;
//! RFC 4443, 3.1): made for a packet that may not go where it wants to, and read.
//!
//! Knows neither who may go where nor how often to say so.

use std::net::IpAddr;

use super::checksum::Sum;
use super::inner::{Headers, InnerPacket, declared_len};
use super::tcp::emit_ip;

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Bytes of the message before what it quotes.
const HEADER: usize = 8;
/// The most that is quoted, in bytes: an IPv4 packet with it is no longer than every host takes
/// (RFC 1812, 4.3.2.3).
pub(crate) const QUOTED_MAX: usize = 576 - 20 - HEADER;
/// "Destination unreachable" and "communication administratively prohibited", as ICMP has them,
const PROHIBITED: [u8; 2] = [3, 13];
/// and as ICMPv6 has them.
const PROHIBITED_V6: [u8; 2] = [1, 1];
/// The questions of ICMP that may be answered by an error: an echo is one (RFC 1122, 3.2.2).
const ECHO: u8 = 8;
/// The messages of ICMPv6 that are no errors begin here (RFC 4443, 2.1).
const INFORMATIONAL: u8 = 128;

/// Why a packet does not get where it wants to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// Somebody does not let it pass.
    Prohibited,
    /// Nobody knows a way, or the host is not there.
    NoRoute,
}

/// What such a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreached<'a> {
    /// Who says so.
    pub by: IpAddr,
    /// Why.
    pub why: Unreachable,
    /// The packet that it is about, which its receiver has sent.
    pub headers: Headers,
    /// The beginning of that packet: as much as is quoted.
    pub quoted: &'a [u8],
}

impl<'a> Unreached<'a> {
    /// Reads a packet. `None` where it is no such message, is damaged, or is about what its
    /// receiver has not sent.
    pub fn parse(packet: &InnerPacket<'a>) -> Option<Self> {
        let headers = &packet.headers;
        let message = packet.pieces.head.get(headers.transport?..)?;
        let (kind, rest) = message.split_at_checked(HEADER)?;
        let why = match (headers.protocol, kind[0], kind[1]) {
            (ICMP, 3, 9 | 10 | 13) | (ICMPV6, 1, 1 | 5 | 6) => Unreachable::Prohibited,
            (ICMP, 3, 0 | 1 | 5..=8 | 11 | 12) | (ICMPV6, 1, 0 | 2 | 3) => Unreachable::NoRoute,
            _ => return None,
        };
        if sum(headers.source, headers.destination, message).folded() != 0 {
            return None;
        }
        let len = declared_len(rest)?;
        let quoted = rest.get(..len.min(rest.len()))?;
        let about = Headers::parse(quoted, len).ok()?;
        let is_own = about.source == headers.destination;
        is_own.then_some(Self { by: headers.source, why, headers: about, quoted })
    }
}

/// Appends to `out` what tells the sender of a packet that it is administratively
/// prohibited, from `from`, an address of the same family. Whether there may be such an answer
/// [`may_be_answered`] says.
pub fn prohibit(from: IpAddr, packet: &InnerPacket<'_>, out: &mut Vec<u8>) {
    let head = packet.pieces.head;
    let (quoted, to) = (&head[..head.len().min(QUOTED_MAX)], packet.headers.source);
    let (protocol, kind) =
        if from.is_ipv4() { (ICMP, PROHIBITED) } else { (ICMPV6, PROHIBITED_V6) };
    let length = u16::try_from(HEADER + quoted.len()).unwrap_or(0);
    emit_ip(from, to, protocol, length, out);
    let at = out.len();
    out.extend_from_slice(&kind);
    out.extend_from_slice(&[0; HEADER - 2]); // checksum, unused
    out.extend_from_slice(quoted);
    let checksum = sum(from, to, &out[at..]).checksum();
    out[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
}

/// The sum of a message: only ICMPv6 adds the pseudo header (RFC 4443, 2.3).
fn sum(source: IpAddr, destination: IpAddr, message: &[u8]) -> Sum {
    let length = u16::try_from(message.len()).unwrap_or(0);
    let pseudo = match source {
        IpAddr::V4(_) => Sum::default(),
        IpAddr::V6(_) => Sum::default().pseudo(source, destination, ICMPV6, length),
    };
    pseudo.bytes(message)
}

/// Whether a packet may be answered by an error: none is made about an error, a fragment other than
/// the first, or what goes to many (RFC 1812, 4.3.2.7; RFC 4443, 2.4 e).
pub fn may_be_answered(packet: &InnerPacket<'_>) -> bool {
    let headers = &packet.headers;
    let one = |address: IpAddr| match address {
        IpAddr::V4(v4) => {
            !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_loopback())
        }
        IpAddr::V6(v6) => !(v6.is_multicast() || v6.is_unspecified() || v6.is_loopback()),
    };
    let kind = headers.transport.and_then(|at| packet.pieces.head.get(at));
    let Some(kind) = kind else { return false };
    let is_error = match headers.protocol {
        ICMP => *kind != ECHO,
        ICMPV6 => *kind < INFORMATIONAL,
        _ => false,
    };
    !is_error && one(headers.source) && one(headers.destination)
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
