//! Creates sockets, and reads their state from the kernel.

use std::{io, net::SocketAddr, os::fd::AsRawFd, time::Duration};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::{
    StreamError,
    options::{StreamOptions, Transport},
};
use crate::{
    error::Error,
    socket::{SOL_MPTCP, lead, set_option},
};

/// Bytes that the kernel takes beyond what it could send at once (`TCP_NOTSENT_LOWAT`). What waits
/// there cannot be taken back, so little of it: 32 KB are 26 ms at 10 Mbit/s. Smaller ones cost
/// throughput on fast links, where the thread is woken for each half of it.
pub const NOT_SENT_MAX: i32 = 32 << 10;
/// How long sent data may stay unacknowledged before the kernel gives the stream up
/// (`TCP_USER_TIMEOUT`). The paths above find out much earlier; this ends what they forgot.
pub const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time between two repetitions of what was not acknowledged (`TCP_RTO_MAX_MS`), in
/// milliseconds; 120 s unless it is said. A link that comes back is found that much later, since
/// each failure doubles the time. Less than a second the kernel does not take.
const RTO_MAX_MS: i32 = 1_000;
/// Of `linux/tcp.h`, since Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// How long a stream is silent before the kernel asks whether the other end is still there. It is
/// for the gateway, where clients vanish: 1.3 KB an hour.
pub const KEEPALIVE: Duration = Duration::from_secs(600);
/// Connections that the kernel keeps for a listener until they are accepted.
const BACKLOG: i32 = 1_024;

/// Opens a socket and begins to connect it to the proxy or the gateway.
pub(super) fn connect(options: &StreamOptions<'_>) -> Result<(Socket, SocketAddr), Error> {
    let to = options.proxy.as_ref().map_or(options.remote, |proxy| proxy.address);
    let socket = open(Domain::for_address(to), options.mptcp)?;
    lead(&socket, options.interface, options.mark)?;
    if let Some(local) = options.local {
        bind(&socket, local)?;
    }
    tune(&socket).map_err(|error| Error::os("set up a stream", error))?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(Error::os(format!("connect to {to}"), error)),
    }
    Ok((socket, to))
}

/// Opens, binds and listens.
pub(super) fn listen(
    local: SocketAddr,
    ipv6_only: bool,
    mark: Option<u32>,
) -> Result<Socket, Error> {
    let socket = open(Domain::for_address(local), true)?;
    let set_up = |socket: &Socket| {
        // A gateway that restarts finds its port taken by what its last run left in TIME_WAIT.
        socket.set_reuse_address(true)?;
        if local.is_ipv6() {
            socket.set_only_v6(ipv6_only)?;
        }
        mark.map_or(Ok(()), |mark| socket.set_mark(mark))
    };
    set_up(&socket).map_err(|error| Error::os("set up a listening TCP socket", error))?;
    bind(&socket, local)?;
    socket.listen(BACKLOG).map_err(|error| Error::os("listen for TCP connections", error))?;
    Ok(socket)
}

/// Begins to connect to the web server behind the gateway.
pub(super) fn connect_backend(to: SocketAddr, mark: Option<u32>) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(to), kind, Some(Protocol::TCP))?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        Ok(()) | Err(_) => Ok(socket),
    }
}

/// What every stream has, whoever began it.
pub(super) fn tune(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, NOT_SENT_MAX)?;
    match set_option(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, RTO_MAX_MS) {
        // MPTCP has none, nor have older kernels: there the path above looks for another stream.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
        set => set?,
    }
    match socket.set_tcp_user_timeout(Some(USER_TIMEOUT)) {
        // MPTCP has none: it has timeouts of its own for its subflows.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        set => set,
    }
}

/// Lets the kernel find out that the other end is gone.
pub(super) fn keep_alive(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}

/// Whether a connection that was begun is there; an error when it never will be.
pub(super) fn is_connected(socket: &Socket, to: SocketAddr) -> Result<bool, StreamError> {
    match socket.take_error() {
        Ok(None) => Ok(socket.peer_addr().is_ok()),
        Ok(Some(error)) | Err(error) => Err(match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => StreamError::Refused { to },
            Some(_) | None => StreamError::Unreachable { to, source: error },
        }),
    }
}

/// What carries a stream that is connected: one that both ends speak MPTCP on tells about itself
/// (`linux/mptcp.h`, MPTCP_INFO), one that fell back to TCP does not.
pub(super) fn transport(socket: &Socket) -> Transport {
    const MPTCP_INFO: libc::c_int = 1;
    let (mut info, mut length) = ([0u8; 16], 16 as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `info`, and both live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Transport::Mptcp } else { Transport::Tcp }
}

/// A socket for MPTCP where that is wanted and the kernel has it, else for TCP.
fn open(domain: Domain, mptcp: bool) -> Result<Socket, Error> {
    let kind = Type::STREAM.nonblocking().cloexec();
    if mptcp && let Ok(socket) = Socket::new(domain, kind, Some(Protocol::MPTCP)) {
        return Ok(socket);
    }
    Socket::new(domain, kind, Some(Protocol::TCP))
        .map_err(|error| Error::os("open a TCP socket", error))
}

fn bind(socket: &Socket, local: SocketAddr) -> Result<(), Error> {
    socket.bind(&local.into()).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => Error::TcpPortInUse { addr: local },
        Some(libc::EADDRNOTAVAIL) => Error::AddressNotLocal { addr: local },
        Some(_) | None => Error::os(format!("bind TCP port {}", local.port()), error),
    })
}
