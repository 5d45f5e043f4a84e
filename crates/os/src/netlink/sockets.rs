//! The TCP and UDP sockets of this network namespace, of all programs (sock_diag(7)).
//!
//! It reads them and decides nothing. A message that it cannot read is an error, because a socket
//! that is left out may be the one that matters. Limits: closed sockets, and TCP's TIME_WAIT, are
//! left out; the kernel tells marks only to who may administer the network.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and messages are open, and mostly not our business"
)]

use std::{io, net::SocketAddr};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, TCP_LISTEN},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags, nlas::Nla},
};
use netlink_sys::{Socket as NetlinkSocket, SocketAddr as Port, protocols::NETLINK_SOCK_DIAG};

use super::{ANSWER_TIME_MAX, Borrowed, HEADER_LEN};
use crate::error::Error;

/// Sockets that are read at most. A busy server has some 100,000; each is 24 bytes here.
const SOCKETS_MAX: usize = 1 << 20;

/// A transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// A socket of any program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Socket {
    pub(crate) protocol: Protocol,
    /// Its own address, unspecified if it has none. IPv4 is never written as IPv6.
    pub(crate) local: SocketAddr,
    /// The other end, if it is connected.
    pub(crate) remote: Option<SocketAddr>,
    /// It waits for TCP connections.
    pub(crate) listens: bool,
    /// Its `SO_MARK`.
    pub(crate) mark: u32,
}

/// All sockets.
pub(crate) fn read() -> Result<Vec<Socket>, Error> {
    let mut sockets = Vec::new();
    for (family, protocol, number) in [
        (AF_INET, Protocol::Tcp, IPPROTO_TCP),
        (AF_INET6, Protocol::Tcp, IPPROTO_TCP),
        (AF_INET, Protocol::Udp, IPPROTO_UDP),
        (AF_INET6, Protocol::Udp, IPPROTO_UDP),
    ] {
        dump(family, protocol, number, &mut sockets)
            .map_err(|error| Error::os("list this host's sockets (sock_diag)", error))?;
    }
    Ok(sockets)
}

fn dump(family: u8, protocol: Protocol, number: u8, sockets: &mut Vec<Socket>) -> io::Result<()> {
    let mut socket = NetlinkSocket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket2::SockRef::from(&Borrowed(&socket)).set_read_timeout(Some(ANSWER_TIME_MAX))?;
    socket.send_to(&request(family, number), &Port::new(0, 0), 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while let Some(message) = next(&mut rest)? {
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
                    if sockets.len() >= SOCKETS_MAX {
                        return Err(io::Error::other("it has too many"));
                    }
                    sockets.push(read_one(protocol, &found));
                }
                _ => {}
            }
        }
    }
}

/// The next message of a datagram; the dump is useless without it.
fn next(rest: &mut &[u8]) -> io::Result<Option<NetlinkMessage<SockDiagMessage>>> {
    let Some(length) = rest.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize) else {
        return Ok(None);
    };
    let message = rest.get(..length).filter(|_| length >= HEADER_LEN);
    let message = message.ok_or_else(|| io::Error::other("the kernel's answer is cut off"))?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    NetlinkMessage::deserialize(message).map(Some).map_err(io::Error::other)
}

fn request(family: u8, protocol: u8) -> Vec<u8> {
    let message = SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol,
        extensions: ExtensionFlags::empty(),
        // An unconnected UDP socket is CLOSE for the kernel; a closed TCP socket is not listed.
        states: StateFlags::all() - StateFlags::TIME_WAIT,
        socket_id: if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
    });
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    bytes
}

fn read_one(protocol: Protocol, found: &InetResponse) -> Socket {
    let InetResponse { header, nlas } = found;
    let id = &header.socket_id;
    let mark = nlas.iter().find_map(|nla| match nla {
        Nla::Mark(mark) => Some(*mark),
        _ => None,
    });
    let local = SocketAddr::new(id.source_address.to_canonical(), id.source_port);
    let remote = SocketAddr::new(id.destination_address.to_canonical(), id.destination_port);
    Socket {
        protocol,
        local,
        remote: (remote.port() != 0).then_some(remote),
        listens: protocol == Protocol::Tcp && header.state == TCP_LISTEN,
        mark: mark.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn sockets_of_both_families_are_found() {
        for (listen, unbound) in [("127.0.0.1:0", "0.0.0.0:0"), ("[::1]:0", "[::]:0")] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let udp = UdpSocket::bind(unbound).unwrap();
            let connected = UdpSocket::bind(listen).unwrap();
            connected.connect(listener.local_addr().unwrap()).unwrap();
            let sockets = read().unwrap();
            let find = |protocol, local: SocketAddr, remote: Option<SocketAddr>, listens| {
                let wanted = Socket { protocol, local, remote, listens, mark: 0 };
                assert!(sockets.contains(&wanted), "{wanted:?}");
            };
            let (own, other) = (listener.local_addr().unwrap(), stream.local_addr().unwrap());
            find(Protocol::Tcp, own, None, true);
            find(Protocol::Tcp, other, Some(own), false);
            find(Protocol::Tcp, own, Some(other), false);
            find(Protocol::Udp, udp.local_addr().unwrap(), None, false);
            find(Protocol::Udp, connected.local_addr().unwrap(), Some(own), false);
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        let whole = request(AF_INET, IPPROTO_TCP);
        for cut in 4..whole.len() {
            assert!(next(&mut &whole[..cut]).is_err(), "{cut}");
        }
        assert!(next(&mut &[][..]).unwrap().is_none());
    }
}
