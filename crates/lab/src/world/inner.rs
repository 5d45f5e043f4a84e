//! The inner packets of the world: numbered, checkable, of every size.
//!
//! A packet follows entirely from its [`Inner`], so the reference model keeps no bytes: it makes
//! the packet again and compares. The number stands in the IPv4 identification and header checksum
//! (which the tunnel must not touch), so even a packet of 20 bytes has one. In some flows packets
//! are [sound](is_sound), as a kernel makes them, with the number at the end: their headers can be
//! left out on the way. And in one the content can be compressed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::op::{Overreach, Way};
use crate::emu::Rng;
use crate::ground::{Call, Talk, Version};

/// A server behind the gateway.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// Another of its addresses: that of this number, from 0 for the usual one.
pub(super) const fn server(number: u8) -> Ipv4Addr {
    let [a, b, c, d] = SERVER.octets();
    Ipv4Addr::new(a, b, c, d + number)
}
/// The same address by this version of IP; that of version 6 ends with the one of version 4.
pub(super) const fn server_by(version: Version, number: u8) -> IpAddr {
    match version {
        Version::V4 => IpAddr::V4(server(number)),
        Version::V6 => ending_with(SERVERS_V6, server(number)),
    }
}
/// The network of the server's addresses of version 6, for documentation (RFC 3849).
const SERVERS_V6: [u16; 6] = [0x2001, 0xdb8, 0, 7, 0, 0];
/// That of the clients', private (RFC 4193).
const CLIENTS_V6: [u16; 6] = [0xfd77, 0, 0, 0, 0, 0];
/// The gateway inside the tunnel.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// A network of the gateway's own with global addresses (TEST-NET-3).
pub(super) const LOCAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// A private network behind the gateway.
const PRIVATE: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
/// Bytes of a packet that may not be sent.
const FORBIDDEN_LEN: u16 = 64;
/// The shortest packet: a header and nothing else.
pub(super) const LEN_MIN: u16 = 20;
/// The longest: the MTU of the tunnel's interface.
pub(super) const LEN_MAX: u16 = 1_420;

/// Flows of a client each way.
const FLOWS: u32 = 5;
/// The first of them have wrong checksums.
const UNSOUND: u8 = 2;
/// The one whose packets have no UDP checksum (RFC 768), and the one with content that can be
/// compressed.
const UNSUMMED: u8 = 3;
const PLAIN: u8 = 4;
/// The server's port of most flows, and that of [`PLAIN`]: what a web port has is not compressed.
const SERVER_PORT: [u8; 2] = 443_u16.to_be_bytes();
const PLAIN_PORT: [u8; 2] = 8_888_u16.to_be_bytes();
/// How every client's port of these flows begins.
const PORTS: u8 = 0x40;
/// Bytes of content that are repeated in [`PLAIN`].
const REPEATED: usize = 16;
/// Bytes of the number at the end of a sound packet.
const NUMBER: usize = 4;
/// Bytes of IPv4 and UDP header.
const HEADERS: usize = 28;

const UDP: u8 = 17;
const TCP: u8 = 6;
/// Protocol number for experiments (RFC 3692).
const EXPERIMENT: u8 = 253;
const TCP_LEN: usize = 24;
const SYN: u8 = 2;
const MSS_AT: usize = 42;
const SUM_AT: usize = 36;

/// An inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    pub(super) id: u32,
    pub(super) client: usize,
    pub(super) way: Way,
    pub(super) body: Body,
}

/// What is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Random bytes up to this length.
    Data(u16),
    /// A TCP SYN that announces this segment size.
    Syn(u16),
    /// A piece of a talk.
    Said(Said),
    /// What a client may not send.
    Forbidden(Overreach),
}

/// A datagram of a talk: all of them are one flow, the same both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// RTP, as G.711 is sent (RFC 3550, 5.1; RFC 3551), with this sequence number.
    Voice(u16),
    /// A question of so many bytes of payload, or its answer.
    Echo(u16),
}

impl Said {
    /// Ports of the client and of the server.
    const fn ports(self) -> [u16; 2] {
        match self {
            Self::Voice(_) => [40_000, 40_002],
            Self::Echo(_) => [40_004, Call::ECHO_PORT],
        }
    }

    const fn talk(self) -> Talk {
        match self {
            Self::Voice(_) => Talk::Voice,
            Self::Echo(bytes) => Talk::Echo { every_ns: 0, bytes },
        }
    }
}

impl Body {
    /// Whether it may come out at all.
    pub(super) const fn may_arrive(self) -> bool {
        match self {
            Self::Data(_) | Self::Syn(_) | Self::Said(_) => true,
            Self::Forbidden(_) => false,
        }
    }

    /// Whether it may come out twice: a connection's oldest segment is sent again when there is a
    /// path again, as long as nobody answers it, and here nobody does.
    pub(super) const fn may_come_again(self) -> bool {
        matches!(self, Self::Syn(_))
    }
}

/// The inner address of a client.
pub(super) const fn address(client: usize) -> Ipv4Addr {
    let [high, low] = (2 + client as u16).to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// The same by this version of IP.
pub(super) const fn address_by(version: Version, client: usize) -> IpAddr {
    match version {
        Version::V4 => IpAddr::V4(address(client)),
        Version::V6 => ending_with(CLIENTS_V6, address(client)),
    }
}

const fn ending_with([a, b, c, d, e, f]: [u16; 6], v4: Ipv4Addr) -> IpAddr {
    let [s, t, u, v] = v4.octets();
    let (g, h) = (u16::from_be_bytes([s, t]), u16::from_be_bytes([u, v]));
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// The number of a packet that came out of the tunnel.
pub(super) fn id_of(packet: &[u8]) -> Option<u32> {
    let header = packet.get(..usize::from(LEN_MIN))?;
    let number = if is_sound(packet) {
        *packet.last_chunk()?
    } else {
        [header[4], header[5], header[10], header[11]]
    };
    Some(u32::from_be_bytes(number))
}

/// Whether a packet has right checksums, and its number at the end: by its ports, if there is room.
fn is_sound(packet: &[u8]) -> bool {
    let is_udp = packet.len() >= HEADERS + NUMBER && packet[9] == UDP;
    is_udp && !(packet[20] == PORTS && packet[21] < UNSOUND)
}

impl Inner {
    /// The packet.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut packet = match self.body {
            Body::Data(len) => self.data(len.clamp(LEN_MIN, LEN_MAX)),
            Body::Syn(mss) => self.syn(mss),
            Body::Said(said) => self.said(said),
            Body::Forbidden(_) => self.data(FORBIDDEN_LEN),
        };
        let number = self.id.to_be_bytes();
        if is_sound(&packet) {
            let (_, _, flow) = self.flow();
            complete(&mut packet, number, flow != UNSUMMED);
        } else {
            let [a, b, c, d] = number;
            (packet[4], packet[5], packet[10], packet[11]) = (a, b, c, d);
        }
        packet
    }

    /// The flow that it is of, of those of all clients both ways.
    pub(super) const fn flow(&self) -> (usize, Way, u8) {
        let flow = match self.body {
            Body::Data(_) | Body::Syn(_) => self.id % FLOWS,
            Body::Forbidden(_) => 0,
            Body::Said(Said::Voice(_)) => FLOWS,
            Body::Said(Said::Echo(_)) => FLOWS + 1,
        };
        (self.client, self.way, flow as u8)
    }

    /// The packet as a tunnel device hands it over, and the bytes of its first part, which has all
    /// headers.
    pub(super) fn parts(&self) -> (Vec<u8>, usize) {
        let packet = self.bytes();
        let headers = match self.body {
            Body::Syn(_) => packet.len(),
            Body::Said(_) => packet.len(),
            Body::Data(_) | Body::Forbidden(_) if packet.len() >= HEADERS => HEADERS,
            Body::Data(_) | Body::Forbidden(_) => usize::from(LEN_MIN),
        };
        let spare = (packet.len() - headers) as u64;
        let head = match self.id % 3 {
            0 => packet.len(),
            1 => headers,
            _ => headers + Rng::new(self.id.into()).fork(0x7370).below(spare + 1) as usize,
        };
        (packet, head)
    }

    /// Whether `packet` is this one as a tunnel may deliver it: the same, but for the segment size
    /// of a SYN, which may have become smaller.
    pub(super) fn may_arrive_as(&self, packet: &[u8]) -> bool {
        let sent = self.bytes();
        let Body::Syn(mss) = self.body else { return packet == sent && self.body.may_arrive() };
        if packet.len() != sent.len() {
            return false;
        }
        let announced = u16::from_be_bytes([packet[MSS_AT], packet[MSS_AT + 1]]);
        let mut mended = packet.to_vec();
        mended[MSS_AT..MSS_AT + 2].copy_from_slice(&sent[MSS_AT..MSS_AT + 2]);
        mended[SUM_AT..SUM_AT + 2].copy_from_slice(&sent[SUM_AT..SUM_AT + 2]);
        mended == sent && announced <= mss && tcp_sum(packet) == 0
    }

    fn header(&self, len: usize, protocol: u8) -> Vec<u8> {
        let client = address(self.client);
        let (source, destination) = match self.way {
            Way::Up => (client, SERVER),
            Way::Down => (SERVER, client),
        };
        let (source, destination) = match self.body {
            Body::Data(_) | Body::Syn(_) | Body::Said(_) => (source, destination),
            Body::Forbidden(what) => self.forbidden(what),
        };
        let mut packet = vec![0u8; len];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        (packet[8], packet[9]) = (64, protocol);
        packet[12..16].copy_from_slice(&source.octets());
        packet[16..20].copy_from_slice(&destination.octets());
        packet
    }

    /// Source and destination of what may not be sent.
    fn forbidden(&self, what: Overreach) -> (Ipv4Addr, Ipv4Addr) {
        let (own, other) = (address(self.client), address(self.client + 1));
        match what {
            Overreach::Source => (other, SERVER),
            Overreach::Neighbour => (own, other),
            Overreach::Private => (own, PRIVATE),
            Overreach::Local => (own, Ipv4Addr::from(u32::from(LOCAL) + 9)),
            Overreach::Gateway => (own, GATEWAY),
        }
    }

    fn data(&self, len: u16) -> Vec<u8> {
        let len = usize::from(len);
        let protocol = if len >= HEADERS { UDP } else { EXPERIMENT };
        let mut packet = self.header(len, protocol);
        let mut rng = Rng::new(self.id.into()).fork(0x696e);
        rng.fill(&mut packet[20..]);
        if protocol == UDP {
            let (_, _, flow) = self.flow();
            packet[20..22].copy_from_slice(&[PORTS, flow]);
            packet[22..24].copy_from_slice(if flow == PLAIN { &PLAIN_PORT } else { &SERVER_PORT });
            packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
            if flow == PLAIN {
                repeat(&mut packet[HEADERS..]);
            }
        }
        packet
    }

    fn said(&self, said: Said) -> Vec<u8> {
        const RTP_VERSION_2: u8 = 0x80;
        const RTP_HEADER: usize = 12;
        let len = 28 + usize::from(said.talk().bytes());
        let mut packet = self.data(len as u16);
        let [client, server] = said.ports();
        let [from, to] = if self.way == Way::Up { [client, server] } else { [server, client] };
        packet[20..22].copy_from_slice(&from.to_be_bytes());
        packet[22..24].copy_from_slice(&to.to_be_bytes());
        let header = &mut packet[28..28 + RTP_HEADER];
        header.fill(0);
        if let Said::Voice(number) = said {
            header[0] = RTP_VERSION_2;
            header[2..4].copy_from_slice(&number.to_be_bytes());
            header[4..8].copy_from_slice(&(u32::from(number) * 160).to_be_bytes());
            header[11] = self.way as u8 + 1;
        }
        packet
    }

    fn syn(&self, mss: u16) -> Vec<u8> {
        let mut packet = self.header(20 + TCP_LEN, TCP);
        packet[20..24].copy_from_slice(&[0x40, 1, 0x01, 0xbb]);
        packet[32] = (TCP_LEN as u8 / 4) << 4;
        packet[33] = SYN;
        packet[40..42].copy_from_slice(&[2, 4]);
        packet[MSS_AT..MSS_AT + 2].copy_from_slice(&mss.to_be_bytes());
        let sum = tcp_sum(&packet);
        packet[SUM_AT..SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

/// A packet of `len` bytes between a client and the server of which nothing is known but where it
/// goes.
pub(super) fn header(len: usize, client: usize, way: Way) -> Vec<u8> {
    Inner { id: 0, client, way, body: Body::Data(LEN_MIN) }.header(len, EXPERIMENT)
}

/// Repeats how a payload begins, which then looks like nothing that is never compressed.
fn repeat(payload: &mut [u8]) {
    if let Some(first) = payload.first_mut() {
        *first = b'{';
    }
    for at in REPEATED..payload.len() {
        payload[at] = payload[at - REPEATED];
    }
}

/// Gives a UDP packet its number, and right checksums, or none of UDP.
fn complete(packet: &mut [u8], number: [u8; NUMBER], is_summed: bool) {
    let end = packet.len() - NUMBER;
    packet[end..].copy_from_slice(&number);
    (packet[4], packet[5]) = (number[2], number[3]);
    (packet[10], packet[11], packet[26], packet[27]) = (0, 0, 0, 0);
    let sum = ipv4_checksum(packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    if is_summed {
        let length = packet.len() - usize::from(LEN_MIN);
        let sum = checksum(&packet[12..], u32::from(UDP) + length as u32);
        // A sum of zero is written the other way (RFC 768).
        let sum = if sum == 0 { u16::MAX } else { sum };
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The checksum of an IPv4 header whose own field is zero (RFC 791, 3.1).
pub(super) fn ipv4_checksum(packet: &[u8]) -> u16 {
    checksum(&packet[..usize::from(LEN_MIN)], 0)
}

/// The checksum of the TCP segment (RFC 9293, 3.1); 0 over one that has the right one.
fn tcp_sum(packet: &[u8]) -> u16 {
    checksum(&packet[12..], u32::from(TCP) + TCP_LEN as u32)
}

/// The Internet checksum (RFC 1071) of these bytes and of `more`, which is summed already.
fn checksum(bytes: &[u8], more: u32) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum = words.map(u32::from).sum::<u32>() + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
