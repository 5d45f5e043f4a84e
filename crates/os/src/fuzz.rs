//! Parsers of hostile bytes, opened only to the fuzz targets (feature `fuzz`). Each function passes
//! bytes to the code that a running process uses, and returns the result as plain values.
//!
//! The properties to check are beside the targets in `fuzz/`. Code that reads from a socket gets a
//! real socket, so that it did not have to be restructured. Limit: the kernel's own behaviour
//! between a write and a read is not hostile here.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    sync::{Arc, LazyLock},
};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use rustls::ServerConfig;
use socket2::Socket;

use crate::{
    dns::{bus::Bus, forwarder::message as forwarded},
    http, links,
    names::message,
    netlink::{Messages, generic},
    plan::journal::Journal,
    portal,
    stream::{
        carrier,
        listener::visitor::{Verdict, Visitor},
        proxy::{Exchange, Proxy},
        tls,
    },
    tun::{
        HEADER_LEN_MAX, Packet,
        merge::{self, Allowed, Output},
        split,
        vnet::{Checksum, VNET_LEN, Vnet},
    },
    wireless,
};

/// Packets that one call of [`tun_merge`] takes.
pub const MERGE_MAX: usize = merge::BATCH_MAX;
/// Bytes in front of a super-packet of the TUN.
pub const VNET_HEADER_LEN: usize = VNET_LEN;
/// The gateway that [`portal_answer`] asks for.
pub const PORTAL_HOST: &str = "vpn.example.org";

/// Status, words and length of the head of an HTTP answer.
///
/// # Errors
/// The fault in the answer.
pub fn http_answer(bytes: &[u8]) -> Result<Option<(u16, String, usize)>, &'static str> {
    let answer = http::read(bytes)?;
    Ok(answer.map(|answer| (answer.status, answer.reason, answer.length)))
}

/// The meaning of the answer to a probe for a captive portal.
pub fn portal_answer(bytes: &[u8]) -> Option<portal::Answer> {
    let gateway = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
    let question = portal::Question { interface: "wlan0", mark: None, gateway, host: PORTAL_HOST };
    portal::judge(bytes, question)
}

/// Whether a proxy opened a tunnel that answers with these pieces and then closes.
///
/// # Errors
/// The error message if it did not.
pub fn proxy_answer(pieces: &[&[u8]]) -> Result<bool, String> {
    let (ours, mut proxy) = pair();
    let address = SocketAddr::from(([192, 0, 2, 1], 8_080));
    let asked = Proxy { address, target: "vpn.example.org:443", authorization: None };
    let mut exchange = Exchange::new(&asked).map_err(|error| error.to_string())?;
    for piece in pieces {
        write(&mut proxy, piece);
        match exchange.advance(&ours) {
            Ok(false) => {}
            done => return done.map_err(|error| error.to_string()),
        }
    }
    // The read returns at once at the end of a closed socket, so the exchange cannot block.
    let _ = proxy.shutdown(Shutdown::Write);
    exchange.advance(&ours).map_err(|error| error.to_string())
}

/// A DNS query for an address of `name`.
pub fn dns_question(name: &str, v6: bool, number: u16) -> Option<Vec<u8>> {
    message::question(name, kind(v6), number)
}

/// The answer of a datagram to that query: addresses, perhaps none, or a refusal (`Err`). `None` if
/// the datagram does not answer that query.
pub fn dns_answer(
    datagram: &[u8],
    name: &str,
    v6: bool,
    number: u16,
) -> Option<Result<Vec<IpAddr>, ()>> {
    Some(match message::answer(datagram, name, kind(v6), number)? {
        message::Answer::Addresses(addresses) => Ok(addresses),
        message::Answer::None => Ok(Vec::new()),
        message::Answer::Refused => Err(()),
    })
}

fn kind(v6: bool) -> message::Kind {
    if v6 { message::Kind::Ipv6 } else { message::Kind::Ipv4 }
}

/// What the DNS forwarder does with a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// Whether the gateway's servers are asked.
    pub is_inside: bool,
    /// What a client gets if no server could be asked.
    pub failure: Vec<u8>,
    /// Bytes of the longest UDP answer that the client takes.
    pub answer_len_max: usize,
}

/// What the DNS forwarder does with a query, if names of `domain` are the tunnel's; `None` if it
/// drops the query.
pub fn dns_forwarded(query: &[u8], domain: &str) -> Option<Forwarded> {
    let question = forwarded::query(query)?;
    Some(Forwarded {
        is_inside: question.is_under(&forwarded::encode(domain)),
        failure: forwarded::failure(query, question),
        answer_len_max: forwarded::answer_len_max(query, question),
    })
}

/// What the client of a query gets over UDP if a server sends `answer`: an answer, or a refusal
/// (`Err`). `None` if the forwarder goes on waiting. The query was sent with the identifier `id`.
pub fn dns_passed_on(answer: &[u8], id: [u8; 2], query: &[u8]) -> Option<Result<Vec<u8>, Vec<u8>>> {
    let question = forwarded::query(query)?;
    let fit = || forwarded::fit(answer, query, question).into_owned();
    match forwarded::judge(answer, id, query) {
        forwarded::Answer::Valid => Some(Ok(fit())),
        forwarded::Answer::Refusal => Some(Err(fit())),
        forwarded::Answer::Foreign => None,
    }
}

/// The body of a bus's reply to the first call. The bus sends these bytes and closes.
///
/// # Errors
/// The error message if there is no reply.
pub fn bus_answer(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (ours, mut bus) = UnixStream::pair().expect("a pair of sockets");
    write(&mut bus, bytes);
    let _ = bus.shutdown(Shutdown::Write);
    Bus::on(ours).answer(1).map_err(|error| error.to_string())
}

/// The number of links, addresses and routes in a netlink datagram.
pub fn route_messages(bytes: &[u8]) -> usize {
    let mut understood = 0;
    for message in Messages(bytes).flatten() {
        if let NetlinkPayload::InnerMessage(message) = message.payload {
            understood += usize::from(is_understood(&message));
        }
    }
    understood
}

fn is_understood(message: &RouteNetlinkMessage) -> bool {
    if let RouteNetlinkMessage::NewLink(link) = message {
        links::read_link(link).is_some() | links::read_traffic(link).is_some()
    } else if let RouteNetlinkMessage::NewAddress(address) = message {
        links::read_address(address).is_some()
    } else if let RouteNetlinkMessage::NewRoute(route) = message {
        links::read_route(route).is_some()
    } else {
        false
    }
}

/// The number of messages in the reply to the generic netlink request `sequence` of `family`, the
/// number of their attributes, and the signal of the one Wi-Fi station in it.
pub fn generic_answer(bytes: &[u8], sequence: u32, family: u16) -> (usize, usize, Option<i8>) {
    let (mut messages, mut attributes) = (0, 0);
    let mut stations = wireless::Stations::default();
    let _ = generic::read(bytes, sequence, family, &mut |all| {
        messages += 1;
        attributes += all.count();
        stations.take(all);
    });
    (messages, attributes, stations.only())
}

/// The datagrams in a stream that comes in these pieces.
///
/// # Errors
/// The datagrams before the stream broke.
pub fn stream_frames(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Vec<Vec<u8>>> {
    let (mut partial, mut datagrams) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut room = vec![0; partial.len()];
        room.extend_from_slice(piece);
        let mut each = |datagram: &mut [u8]| datagrams.push(datagram.to_vec());
        if carrier::cut(&mut partial, &mut room, &mut each).is_err() {
            return Err(datagrams);
        }
    }
    Ok(datagrams)
}

/// The gateway's classification of a TCP connection by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// More bytes are needed.
    Unclear,
    /// A stream of Rove.
    Rove,
    /// A connection for the web server behind the gateway.
    Foreign,
    /// It broke.
    Gone,
}

/// The gateway's classification of a connection that sends these pieces.
pub fn first_bytes(pieces: &[&[u8]]) -> Taken {
    static TLS: LazyLock<Arc<ServerConfig>> =
        LazyLock::new(|| tls::server().expect("a certificate can be made"));
    let (ours, mut visitor) = pair();
    let mut waiting = Box::new(Visitor::new(ours, SocketAddr::from(([203, 0, 113, 7], 4_433))));
    for piece in pieces {
        write(&mut visitor, piece);
        waiting = match waiting.advance(&TLS) {
            Verdict::Waits(visitor) => visitor,
            Verdict::Rove { .. } => return Taken::Rove,
            Verdict::Foreign(_) => return Taken::Foreign,
            Verdict::Gone => return Taken::Gone,
        };
    }
    Taken::Unclear
}

/// The first TLS message of a Rove client that names this server.
pub fn true_hello(server_name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut client = tls::client(server_name).expect("a name that TLS takes");
    client.write_tls(&mut bytes).expect("a vector takes everything");
    bytes
}

/// A packet of the TUN, header and payload, and where the payload begins.
pub type Cut<'a> = (&'a [u8], &'a [u8], usize);

/// Calls `each` for every packet in one read of the TUN, which is a header of [`VNET_HEADER_LEN`]
/// bytes and a super-packet. Returns the number of packets; `None` if the read is malformed.
pub fn tun_split(read: &mut [u8], mut each: impl FnMut(Cut<'_>)) -> Option<usize> {
    let (header, packet) = read.split_first_chunk_mut::<VNET_LEN>()?;
    let vnet = Vnet::decode(header)?;
    split::finish(vnet, packet).ok()?;
    split::split(vnet, packet, |cut| each((cut.header, cut.payload, cut.at))).ok()
}

/// Joins packets for the TUN. Calls `each` with every write, header included, and whether it
/// combines several packets.
pub fn tun_merge(packets: &[Packet<'_>], mut each: impl FnMut(&[u8], bool)) {
    let allowed = Allowed { tcp: true, udp: true };
    let is_v6 = |packet: &[u8]| packet.first().is_some_and(|byte| byte >> 4 == 6);
    merge::merge(packets, allowed, &mut |output| match output {
        Output::Single { packet, verified } => {
            let checksum = if verified { Checksum::Verified } else { Checksum::Present };
            let mut room = [0; HEADER_LEN_MAX];
            let [head, tail] = packet.finish(&mut room);
            let header = Vnet::plain(checksum).encode(is_v6(head));
            each(&[&header[..], head, tail].concat(), false);
        }
        Output::Super { vnet, header, payloads, packets } => {
            assert_eq!(payloads.len(), packets.len(), "each payload is of one packet");
            let front = vnet.encode(is_v6(header));
            each(&[&[&front, header].concat(), &payloads.concat()[..]].concat(), true);
        }
    });
}

/// Reads a plan journal in a directory, and writes it again if it can be read. Returns the number
/// of changes in it.
///
/// # Errors
/// The error message for a damaged journal.
pub fn journal(dir: &Path) -> Result<usize, String> {
    let journal = Journal::new(dir);
    let left = journal.load().map_err(|error| error.to_string())?;
    if !left.rebooted {
        journal.store(&left.entries).map_err(|error| error.to_string())?;
        let again = journal.load().map_err(|error| error.to_string())?;
        assert_eq!(again.entries, left.entries, "written again it says something else");
    }
    Ok(left.entries.len())
}

/// Two ends of a connection. The first has the type that this crate uses.
fn pair() -> (Socket, UnixStream) {
    let (ours, other) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket that does not block");
    (Socket::from(OwnedFd::from(ours)), other)
}

/// Writes bytes as long as the other end is open and has room.
fn write(to: &mut UnixStream, bytes: &[u8]) {
    let _: io::Result<()> = to.set_nonblocking(true).and_then(|()| to.write_all(bytes));
}
