//! Making and binding the socket; everything about it that quinn-udp does not know.

use std::{io, net::SocketAddr};

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use super::{SOCKET_BUFFER_LEN, UdpOptions};
use crate::{
    error::Error,
    socket::{lead, set_option},
};

pub(super) fn bind(options: UdpOptions<'_>) -> Result<Socket, Error> {
    let domain = Domain::for_address(options.local);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))
        .map_err(|error| Error::os("open a UDP socket", error))?;
    if options.local.is_ipv6() {
        socket
            .set_only_v6(options.ipv6_only)
            .map_err(|error| Error::os("choose the families of a UDP socket", error))?;
    }
    lead(&socket, options.interface, options.mark)?;
    socket.bind(&options.local.into()).map_err(|error| address(options.local, error))?;
    enlarge(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    enlarge(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
    Ok(socket)
}

fn address(local: SocketAddr, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => Error::PortInUse { addr: local },
        Some(libc::EADDRNOTAVAIL) => Error::AddressNotLocal { addr: local },
        Some(_) | None => Error::os(format!("bind UDP port {}", local.port()), error),
    }
}

/// Turns on GRO, ECN and packet information.
///
/// quinn-udp 0.6.3 also asks for receive timestamps and then has no room for everything that may
/// come with a datagram: the kernel cuts off the last of timestamp, GRO size, address and ECN
/// mark. We time nothing by the kernel's clock, so the timestamp goes.
pub(super) fn state(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)?;
    Ok(state)
}

/// Asks for a large buffer: beyond the system's limit where we may, else up to it. A small buffer
/// costs packets under load, not correctness, so a refusal is no error.
fn enlarge(socket: &Socket, forced: libc::c_int, polite: libc::c_int) {
    let length = SOCKET_BUFFER_LEN as libc::c_int;
    if set_option(socket, libc::SOL_SOCKET, forced, length).is_err() {
        let _ = set_option(socket, libc::SOL_SOCKET, polite, length);
    }
}
