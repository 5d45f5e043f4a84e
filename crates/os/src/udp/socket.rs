//! Creates and binds the socket, with all options that quinn-udp does not know.

use std::{io, net::SocketAddr, os::fd::AsRawFd, time::Duration};

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    error::Error,
    socket::{lead, set_option},
};

/// Bytes that the kernel may hold for one socket in each direction: 100 ms at 320 Mbit/s.
pub const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// The timestamp of the last received datagram (`asm-generic/sockios.h`).
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;
/// A longer wait means that the host was stopped or its clock was set.
const WAITED_MAX: Duration = Duration::from_secs(1);

/// How to bind a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpOptions<'a> {
    /// Local address. Port zero lets the kernel choose. `[::]` without `ipv6_only` serves both
    /// families, and shows IPv4 addresses as such.
    pub local: SocketAddr,
    /// For an IPv6 address: IPv6 alone.
    pub ipv6_only: bool,
    /// Send and receive through this interface only (`SO_BINDTODEVICE`).
    pub interface: Option<&'a str>,
    /// Mark of every packet sent (`SO_MARK`), by which policy rules let it pass by the tunnel.
    pub mark: Option<u32>,
}

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
/// quinn-udp 0.6.3 also turns on receive timestamps. Its buffer then has no room for all control
/// messages of a datagram, and the kernel cuts off the last of timestamp, GRO size, address and ECN
/// mark. Therefore this turns timestamps off again; [`waited`] asks the kernel for the arrival
/// time.
pub(super) fn state(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)?;
    Ok(state)
}

/// How long the last received datagram had waited in the socket, because a busy machine reads it
/// late. From the first call on, the kernel records arrivals by the wall clock. A step of the wall
/// clock makes one answer wrong; an answer above [`WAITED_MAX`] counts as unknown.
pub(super) fn waited(socket: &Socket) -> Duration {
    let mut arrived = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which lives through the call (socket(7), SIOCGSTAMP).
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS, &raw mut arrived) };
    let since_epoch = |seconds: libc::time_t, nanos: libc::c_long| {
        Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
    };
    let arrived = since_epoch(arrived.tv_sec, arrived.tv_nsec).filter(|_| result == 0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok();
    let waited = arrived.zip(now).and_then(|(arrived, now)| now.checked_sub(arrived));
    waited.filter(|waited| *waited <= WAITED_MAX).unwrap_or_default()
}

/// Asks for a large buffer: beyond the system's limit where we may, else up to it. A small buffer
/// costs packets under load, not correctness, so a refusal is no error.
fn enlarge(socket: &Socket, forced: libc::c_int, polite: libc::c_int) {
    let length = SOCKET_BUFFER_LEN as libc::c_int;
    if set_option(socket, libc::SOL_SOCKET, forced, length).is_err() {
        let _ = set_option(socket, libc::SOL_SOCKET, polite, length);
    }
}
