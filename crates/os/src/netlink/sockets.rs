//! The TCP and UDP sockets of this network namespace, of all programs (sock_diag(7)).
//!
//! It lists them and ends connections, and decides nothing. A message that it cannot read is an
//! error, because a socket that is left out may be the one that matters. Limits: closed sockets,
//! and TCP's TIME_WAIT, are left out; the kernel shows marks only with CAP_NET_ADMIN.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and messages are open, and mostly not our business"
)]

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV4},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::{
    SockDiagDestroy, SockDiagMessage,
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
    /// A listener that takes connections of IPv6 only (`IPV6_V6ONLY`). The kernel sets this for
    /// each one with an IPv6 address (net/ipv6/af_inet6.c, `__inet6_bind`).
    pub(crate) v6_only: bool,
    /// Its `SO_MARK`.
    pub(crate) mark: u32,
    /// It is bound to a link (`SO_BINDTODEVICE`).
    pub(crate) is_on_device: bool,
    /// Its user, or [`NOBODY`].
    pub(crate) user: u32,
}

/// A UDP socket over IPv4 that serves whoever comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// Its address, unspecified if it serves all of them, and its port.
    pub(crate) at: SocketAddrV4,
    /// The index of the link that it is bound to (`SO_BINDTODEVICE`); 0 if to none.
    pub(crate) device: u32,
}

/// The user of sockets that no program holds: those that wait to be accepted, and closed ones whose
/// last bytes are on their way. The kernel calls it root. No user has this number (setuid(2)).
pub(crate) const NOBODY: u32 = u32::MAX;

/// Asks for a socket by its ends alone (`INET_DIAG_NOCOOKIE` in linux/inet_diag.h).
const ANY_COOKIE: [u8; 8] = [u8::MAX; 8];

/// All sockets.
pub(crate) fn read() -> Result<Vec<Socket>, Error> {
    let mut sockets = Vec::new();
    dump_all(|_, _, socket| sockets.push(socket))?;
    Ok(sockets)
}

/// The local addresses of the sockets that may send from one of these, one for each socket.
/// Listeners only answer.
pub(crate) fn senders(of: &[IpAddr]) -> Result<Vec<IpAddr>, Error> {
    let mut senders = Vec::new();
    dump_all(|_, _, socket| senders.extend(sends_from(&socket, of).then(|| socket.local.ip())))?;
    Ok(senders)
}

/// The UDP sockets over IPv4 at these ports that are connected to nobody.
pub(crate) fn servers(ports: &[u16]) -> Result<Vec<Server>, Error> {
    let (mut servers, mut count) = (Vec::new(), 0);
    let note = |found: &InetResponse| {
        count += 1;
        let Socket { local, remote, .. } = read_one(Protocol::Udp, found);
        if let SocketAddr::V4(at) = local
            && remote.is_none()
            && ports.contains(&at.port())
        {
            servers.push(Server { at, device: found.header.socket_id.interface_id });
        }
        count <= SOCKETS_MAX
    };
    dump(AF_INET, Protocol::Udp, note)
        .map_err(|error| Error::os("list this host's UDP sockets (sock_diag)", error))?;
    Ok(servers)
}

/// The user of the socket to which a packet from `remote` to `local` belongs, or [`NOBODY`]. A UDP
/// socket need not be connected.
///
/// # Errors
/// The kernel's, for example if there is no such socket.
pub(crate) fn user_of(
    protocol: Protocol,
    local: SocketAddr,
    remote: SocketAddr,
) -> io::Result<u32> {
    // UDP expects the ends the other way round (net/ipv4/udp_diag.c, `udp_dump_one`).
    let (local, remote) = match protocol {
        Protocol::Tcp => (local, remote),
        Protocol::Udp => (remote, local),
    };
    let (family, mut socket_id) = match local {
        SocketAddr::V4(_) => (AF_INET, SocketId::new_v4()),
        SocketAddr::V6(_) => (AF_INET6, SocketId::new_v6()),
    };
    (socket_id.source_address, socket_id.source_port) = (local.ip(), local.port());
    (socket_id.destination_address, socket_id.destination_port) = (remote.ip(), remote.port());
    socket_id.cookie = ANY_COOKIE;
    let message = SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: number(protocol),
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    });
    let socket = open()?;
    socket.send_to(&serialized(NetlinkPayload::from(message), 0), &Port::new(0, 0), 0)?;
    let (bytes, _) = socket.recv_from_full()?;
    let mut rest = bytes.as_slice();
    while let Some(message) = next(&mut rest)? {
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
                return Ok(read_one(protocol, &found).user);
            }
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn sends_from(socket: &Socket, addresses: &[IpAddr]) -> bool {
    addresses.contains(&socket.local.ip()) && !socket.listens
}

/// Ends the connections with one of these local addresses (`SOCK_DESTROY`). Their programs get
/// ECONNABORTED. Sockets without a connection stay, as the kernel leaves them their address. So do
/// all on a kernel without `CONFIG_INET_DIAG_DESTROY`.
pub(crate) fn end(local: &[IpAddr]) -> Result<(), Error> {
    let mut connections = Vec::new();
    dump_all(|family, found, socket| {
        if sends_from(&socket, local) && socket.remote.is_some() {
            connections.push(InetRequest {
                family,
                protocol: number(socket.protocol),
                extensions: ExtensionFlags::empty(),
                states: StateFlags::all(),
                socket_id: found.header.socket_id.clone(),
            });
        }
    })?;
    destroy(connections).map_err(|error| Error::os("end connections (sock_diag)", error))
}

const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => IPPROTO_TCP,
        Protocol::Udp => IPPROTO_UDP,
    }
}

fn dump_all(mut note: impl FnMut(u8, &InetResponse, Socket)) -> Result<(), Error> {
    let mut count = 0;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for family in [AF_INET, AF_INET6] {
            let note = |found: &InetResponse| {
                count += 1;
                note(family, found, read_one(protocol, found));
                count <= SOCKETS_MAX
            };
            dump(family, protocol, note)
                .map_err(|error| Error::os("list this host's sockets (sock_diag)", error))?;
        }
    }
    Ok(())
}

fn open() -> io::Result<NetlinkSocket> {
    let mut socket = NetlinkSocket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket2::SockRef::from(&Borrowed(&socket)).set_read_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(socket)
}

/// Calls `note` for each socket. It returns whether there may be more.
fn dump(
    family: u8,
    protocol: Protocol,
    mut note: impl FnMut(&InetResponse) -> bool,
) -> io::Result<()> {
    let socket = open()?;
    socket.send_to(&request(family, number(protocol)), &Port::new(0, 0), 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while let Some(message) = next(&mut rest)? {
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found))
                    if !note(&found) =>
                {
                    return Err(io::Error::other("it has too many"));
                }
                _ => {}
            }
        }
    }
}

/// Ends these connections. One that is gone meanwhile, or that the kernel does not end, is no
/// error: [`senders`] tells what is left.
fn destroy(connections: Vec<InetRequest>) -> io::Result<()> {
    let socket = open()?;
    for connection in connections {
        let message = SockDiagDestroy::new(SockDiagMessage::InetRequest(connection));
        socket.send_to(&serialized(message.into(), NLM_F_ACK), &Port::new(0, 0), 0)?;
        socket.recv_from_full()?;
    }
    Ok(())
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
    serialized(NetlinkPayload::from(message), NLM_F_DUMP)
}

fn serialized<T: NetlinkSerializable>(payload: NetlinkPayload<T>, flags: u16) -> Vec<u8> {
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), payload);
    packet.header.flags = NLM_F_REQUEST | flags;
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
    let v6_only = nlas.iter().any(|nla| matches!(nla, Nla::SkV6Only(true)));
    let local = SocketAddr::new(id.source_address.to_canonical(), id.source_port);
    let remote = SocketAddr::new(id.destination_address.to_canonical(), id.destination_port);
    let listens = protocol == Protocol::Tcp && header.state == TCP_LISTEN;
    Socket {
        protocol,
        local,
        remote: (remote.port() != 0).then_some(remote),
        listens,
        v6_only: listens && v6_only,
        mark: mark.unwrap_or_default(),
        is_on_device: id.interface_id != 0,
        user: if header.inode == 0 { NOBODY } else { header.uid },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    const NONE: Socket = Socket {
        protocol: Protocol::Tcp,
        local: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0),
        remote: None,
        listens: false,
        v6_only: false,
        mark: 0,
        is_on_device: false,
        user: NOBODY,
    };

    #[test]
    fn sockets_of_both_families_are_found() {
        // SAFETY: the call has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        for (listen, unbound) in [("127.0.0.1:0", "0.0.0.0:0"), ("[::1]:0", "[::]:0")] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let udp = UdpSocket::bind(unbound).unwrap();
            let connected = UdpSocket::bind(listen).unwrap();
            connected.connect(listener.local_addr().unwrap()).unwrap();
            let sockets = read().unwrap();
            let find = |protocol, local: SocketAddr, remote: Option<SocketAddr>, listens| {
                let v6_only = listens && local.is_ipv6();
                let has = |user| {
                    let ends = Socket { protocol, local, remote, listens, v6_only, ..NONE };
                    sockets.contains(&Socket { user, ..ends })
                };
                // A connection that waits to be accepted has no user.
                assert!(has(user) || has(NOBODY) && remote.is_some(), "{protocol:?} {local}");
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
    fn the_user_of_a_connection_is_found_by_its_ends() {
        // SAFETY: the call has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let there = listener.local_addr().unwrap();
            let stream = TcpStream::connect(there).unwrap();
            let own = stream.local_addr().unwrap();
            assert_eq!(user_of(Protocol::Tcp, own, there).unwrap(), user);
            let elsewhere = SocketAddr::new(own.ip(), there.port());
            let nothing = SocketAddr::new(own.ip(), own.port() ^ 1);
            let found = user_of(Protocol::Tcp, nothing, elsewhere);
            assert!(found.is_err(), "there is no such socket");
        }
    }

    #[test]
    fn the_user_of_datagrams_is_found_connected_or_not() {
        // SAFETY: the call has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        let far = [SocketAddr::from(([192, 0, 2, 1], 53)), "[2001:db8::1]:53".parse().unwrap()];
        for (bind, far) in ["127.0.0.1:0", "[::1]:0"].into_iter().zip(far) {
            let Ok(socket) = UdpSocket::bind(bind) else { continue };
            let own = socket.local_addr().unwrap();
            assert_eq!(user_of(Protocol::Udp, own, far).unwrap(), user, "not connected");
            let near = SocketAddr::new(own.ip(), 9);
            socket.connect(near).unwrap();
            assert_eq!(user_of(Protocol::Udp, own, near).unwrap(), user);
            assert!(user_of(Protocol::Udp, own, far).is_err(), "it is connected elsewhere");
        }
    }

    #[test]
    fn a_listener_of_ipv6_only_is_told_from_one_of_both() {
        for only in [true, false] {
            let (domain, kind) = (socket2::Domain::IPV6, socket2::Type::STREAM);
            let Ok(listener) = socket2::Socket::new(domain, kind, None) else { continue };
            listener.set_only_v6(only).unwrap();
            listener.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
            listener.listen(1).unwrap();
            let port = listener.local_addr().unwrap().as_socket().unwrap().port();
            let is_it = |socket: &&Socket| socket.listens && socket.local.port() == port;
            let sockets = read().unwrap();
            let found = sockets.iter().find(is_it).unwrap();
            assert_eq!((found.v6_only, found.local.is_ipv6()), (only, true));
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
