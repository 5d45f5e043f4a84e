//! A middlebox that lets only some packets by: told by protocol and port, and by how a TCP
//! connection begins.
//!
//! What it does not let by it drops, without a word to either end. It follows no sequence numbers:
//! a connection is judged by the first bytes in it, whoever sends them, and keeps that judgement.

use super::frame::{Endpoints, Protocol};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The most connections that a box has judged; it takes no further ones.
const CONNECTIONS_MAX: usize = 4_096;
/// IP's number for UDP, of whose later fragments no more is known (RFC 768).
const UDP: u8 = 17;
/// How TLS begins: a record of type handshake, of a version 3 (RFC 8446, section 5.1).
const TLS_RECORD: [u8; 2] = [22, 3];
/// Where the handshake message in it begins, and what that is: a ClientHello (section 4).
const CLIENT_HELLO: (usize, u8) = (5, 1);

/// What a middlebox lets by. An end is the one outside, a port is that end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Everything but UDP.
    NoUdp,
    /// TCP to this port, and nothing else.
    Port(u16),
    /// The same, and only connections in which the inside speaks first, and TLS.
    TlsPort(u16),
    /// TCP to this end, and nothing else.
    End(SocketAddr),
    /// Everything, but not a byte in a TCP connection, which opens all the same.
    NoBytes,
}

/// A box that filters, and the connections that it has judged.
#[derive(Debug)]
pub(super) struct Middlebox {
    filter: Filter,
    /// Whether a connection may go on, by its ends: inside, outside.
    judged: BTreeMap<(SocketAddr, SocketAddr), bool>,
}

/// Which way a packet goes, seen from who is behind the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heading {
    Out,
    In,
}

impl Middlebox {
    pub(super) const fn new(filter: Filter) -> Self {
        Self { filter, judged: BTreeMap::new() }
    }

    /// Whether it lets a packet by that carries these bytes of a TCP connection.
    pub(super) fn lets_by(&mut self, heading: Heading, packet: &Endpoints, bytes: &[u8]) -> bool {
        let (inside, outside) = match heading {
            Heading::Out => (packet.source, packet.destination),
            Heading::In => (packet.destination, packet.source),
        };
        let is_tcp = packet.protocol == Protocol::Tcp;
        match self.filter {
            Filter::NoUdp => !matches!(packet.protocol, Protocol::Udp | Protocol::Other(UDP)),
            Filter::Port(port) => is_tcp && outside.port() == port,
            Filter::End(end) => is_tcp && outside == end,
            Filter::NoBytes => bytes.is_empty(),
            Filter::TlsPort(port) => {
                is_tcp && outside.port() == port && self.judge((inside, outside), heading, bytes)
            }
        }
    }

    /// Whether a connection may go on.
    fn judge(&mut self, ends: (SocketAddr, SocketAddr), heading: Heading, bytes: &[u8]) -> bool {
        if let Some(&may_go_on) = self.judged.get(&ends) {
            return may_go_on;
        }
        if bytes.is_empty() {
            return true;
        }
        let may_go_on =
            self.judged.len() < CONNECTIONS_MAX && heading == Heading::Out && begins_as_tls(bytes);
        if self.judged.len() < CONNECTIONS_MAX {
            self.judged.insert(ends, may_go_on);
        }
        may_go_on
    }
}

/// Whether these are the first bytes of a TLS connection, as far as they go.
fn begins_as_tls(bytes: &[u8]) -> bool {
    let (at, hello) = CLIENT_HELLO;
    let head = bytes.len().min(TLS_RECORD.len());
    bytes[..head] == TLS_RECORD[..head] && bytes.get(at).is_none_or(|message| *message == hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

    fn packet(protocol: Protocol, source: &str, destination: &str) -> Endpoints {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Endpoints { protocol, source, destination }
    }

    fn tcp(port: u16) -> Endpoints {
        packet(Protocol::Tcp, "10.0.0.2:4000", &format!("192.0.2.2:{port}"))
    }

    fn back(Endpoints { protocol, source, destination }: Endpoints) -> Endpoints {
        Endpoints { protocol, source: destination, destination: source }
    }

    #[test]
    fn by_protocol_port_and_end_both_ways() {
        let udp = packet(Protocol::Udp, "10.0.0.2:4000", "192.0.2.2:443");
        let piece = packet(Protocol::Other(UDP), "10.0.0.2:0", "192.0.2.2:0");
        let echo = packet(Protocol::Echo, "10.0.0.2:7", "192.0.2.2:7");
        let lets = |filter, one: &Endpoints| {
            let mut there = Middlebox::new(filter);
            let out = there.lets_by(Heading::Out, one, &[]);
            assert_eq!(there.lets_by(Heading::In, &back(*one), &[]), out, "{filter:?} {one:?}");
            out
        };
        let end = Filter::End("192.0.2.2:3128".parse().unwrap());
        for (filter, passes) in [
            (Filter::NoUdp, [false, false, true, true, true, true]),
            (Filter::Port(443), [false, false, false, true, false, false]),
            (Filter::TlsPort(443), [false, false, false, true, false, false]),
            (end, [false, false, false, false, false, true]),
        ] {
            let all = [udp, piece, echo, tcp(443), tcp(80), tcp(3128)];
            assert_eq!(all.map(|one| lets(filter, &one)), passes, "{filter:?}");
        }
    }

    #[test]
    fn a_connection_is_judged_by_its_first_bytes_and_keeps_that() {
        let mut there = Middlebox::new(Filter::TlsPort(443));
        let mut say = |heading, port: u16, bytes: &[u8]| {
            let packet = packet(Protocol::Tcp, &format!("10.0.0.2:{port}"), "192.0.2.2:443");
            let packet = if heading == Heading::Out { packet } else { back(packet) };
            there.lets_by(heading, &packet, bytes)
        };
        // A handshake of TCP's says nothing yet.
        assert!(say(Heading::Out, 1, &[]) && say(Heading::In, 1, &[]));
        assert!(say(Heading::Out, 1, HELLO) && say(Heading::In, 1, b"whatever"));
        assert!(say(Heading::Out, 1, b"\0rove/1\n"), "it was TLS");
        // Another protocol, and TLS behind it.
        assert!(!say(Heading::Out, 2, b"\0rove/1\n"));
        assert!(!say(Heading::Out, 2, HELLO) && !say(Heading::In, 2, &[]));
        // Who is asked speaks first.
        assert!(!say(Heading::In, 3, HELLO));
        // Too little to see the message, another version, another message.
        assert!(say(Heading::Out, 4, &HELLO[..1]));
        assert!(!say(Heading::Out, 5, &[22, 2, 0, 0, 1, 1]));
        assert!(!say(Heading::Out, 6, &[22, 3, 1, 0, 1, 2]));
    }

    #[test]
    fn a_connection_that_opens_may_carry_nothing() {
        let mut there = Middlebox::new(Filter::NoBytes);
        let udp = Endpoints { protocol: Protocol::Udp, ..tcp(443) };
        assert!(there.lets_by(Heading::Out, &udp, &[]) && there.lets_by(Heading::In, &udp, &[]));
        assert!(there.lets_by(Heading::Out, &tcp(443), &[]));
        assert!(!there.lets_by(Heading::Out, &tcp(443), HELLO));
        assert!(!there.lets_by(Heading::In, &back(tcp(443)), b"an answer"));
    }

    #[test]
    fn a_full_box_takes_no_further_connection() {
        let mut there = Middlebox::new(Filter::TlsPort(443));
        let from = |port: u16| packet(Protocol::Tcp, &format!("10.0.0.2:{port}"), "192.0.2.2:443");
        for port in 0..CONNECTIONS_MAX as u16 {
            assert!(there.lets_by(Heading::Out, &from(port), HELLO));
        }
        assert!(!there.lets_by(Heading::Out, &from(60_000), HELLO));
        assert!(there.lets_by(Heading::Out, &from(7), b"goes on"));
    }
}
