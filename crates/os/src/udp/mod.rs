//! UDP sockets: one per path on a client, one listening on a gateway.
//!
//! A socket sends runs of equal datagrams in one call (UDP GSO) and receives them in one (GRO). It
//! reads and writes ECN marks, reports the local address of a received datagram, and sends a reply
//! from that address. Nothing is ever fragmented, as path MTU discovery needs it
//! (`IP_PMTUDISC_PROBE`): a datagram that is too long for the link is refused at once with
//! [`SendError::TooLong`], and one that is too long further on is lost.
//!
//! It decides nothing about peers or paths, and knows no datagram's contents. quinn-udp handles the
//! differences between kernels behind this type. Limits: one destination per call.

mod socket;

use std::{
    io::{ErrorKind, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

pub use self::socket::{SOCKET_BUFFER_LEN, UdpOptions};
use crate::error::Error;

/// Bytes of one receive slot: the most that GRO joins.
pub const RECEIVE_LEN: usize = 65_535;
/// Slots of a [`ReceiveBuffer`] are at most so many, which is what one call can fill.
pub const RECEIVE_SLOTS_MAX: usize = quinn_udp::BATCH_SIZE;
/// Bytes of one call's contents: the most that IPv4 can carry in one datagram, before it is cut.
pub const SEND_LEN_MAX: usize = 65_507;

/// A mark of Explicit Congestion Notification (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotCapable,
    /// ECT(0).
    Capable0,
    /// ECT(1).
    Capable1,
    /// Congestion experienced.
    Congestion,
}

/// One call's worth of datagrams for one destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams<'a> {
    /// Where to.
    pub remote: SocketAddr,
    /// Which of our addresses to send from; `None` leaves it to routing.
    pub source: Option<IpAddr>,
    /// The mark of each datagram.
    pub ecn: Ecn,
    /// Datagram after datagram, at most [`SEND_LEN_MAX`] bytes.
    pub contents: &'a [u8],
    /// Bytes of each datagram but the last, which may be shorter. `None`: it is one datagram.
    pub segment: Option<usize>,
}

/// Why datagrams were not sent. Those of a run that come before the refused one may have been.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The socket's buffer is full: wait until it is writable.
    #[error("the socket's send buffer is full")]
    WouldBlock,
    /// Longer than the link, or the limit of one call, allows.
    #[error("a datagram is too long for its link")]
    TooLong,
    /// No route, no such source address, link down, or a firewall: the path is of no use now.
    #[error("the destination cannot be reached: {0}")]
    Unreachable(std::io::Error),
    /// The socket is of no use any more: close it.
    #[error("the socket failed: {0}")]
    Fatal(std::io::Error),
}

/// Datagrams of one sender that came in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Who sent them. IPv4 is shown as IPv4 on a socket of both families.
    pub remote: SocketAddr,
    /// To which of our addresses they came, unless the kernel did not say.
    pub local: Option<IpAddr>,
    /// The mark that they arrived with.
    pub ecn: Ecn,
    /// Bytes of each datagram but the last, which may be shorter. Never zero.
    pub stride: usize,
    /// How long they waited in the socket, by the kernel's time of arrival. If one call received
    /// several, the time of the newest. Zero if unknown.
    pub waited: Duration,
}

/// What a receive leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Nothing: wait until the socket is readable. What came since has made it so once more.
    Empty,
    /// There may be more.
    Unknown,
}

/// Room for one [`UdpSocket::receive`], or one of a stream, reused from call to call.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Box<[u8]>,
    slots: usize,
}

impl ReceiveBuffer {
    /// Room for `slots` pieces of [`RECEIVE_LEN`] bytes, at least one and at most
    /// [`RECEIVE_SLOTS_MAX`]. The kernel gives memory to what was used once.
    pub fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, RECEIVE_SLOTS_MAX);
        Self { bytes: vec![0; slots * RECEIVE_LEN].into_boxed_slice(), slots }
    }

    /// All of it, for a stream, which has no slots.
    pub(crate) const fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A bound, non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: socket2::Socket,
    state: UdpSocketState,
    local: SocketAddr,
}

impl UdpSocket {
    /// Binds a socket and turns on all that the kernel offers.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::AddressNotLocal`], [`Error::NoInterface`],
    /// [`Error::NoPrivilege`] (for a mark, or a port below 1024), or [`Error::Os`].
    pub fn bind(options: UdpOptions<'_>) -> Result<Self, Error> {
        let socket = socket::bind(options)?;
        let state =
            socket::state(&socket).map_err(|error| Error::os("set up a UDP socket", error))?;
        let local = socket
            .local_addr()
            .map_err(|error| Error::os("read the address of a UDP socket", error))?
            .as_socket()
            .unwrap_or(options.local);
        Ok(Self { socket, state, local })
    }

    /// The address that it is bound to, with the port that the kernel chose.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// How many datagrams one call may carry: 1 where GSO is missing. Kernels without a promise
    /// behind their GSO lower it when a send fails.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends datagrams to one destination, in one call where the kernel can.
    ///
    /// # Errors
    /// See [`SendError`]. After any of them the rest of the run is not sent.
    pub fn send(&mut self, datagrams: Datagrams<'_>) -> Result<(), SendError> {
        let segment = match datagrams.segment {
            Some(0) => return Err(SendError::TooLong),
            Some(segment) if segment < datagrams.contents.len() => segment,
            Some(_) | None => return self.send_once(datagrams, datagrams.contents, None),
        };
        let mut rest = datagrams.contents;
        while !rest.is_empty() {
            // The limit is read for every call: a refusal lowers it.
            let (now, later) = rest.split_at(at_once(rest.len(), segment, self.segments_max()));
            let cut = (now.len() > segment).then_some(segment);
            match self.send_once(datagrams, now, cut) {
                // The network card cannot do it (EIO, EINVAL), and GSO is off for this socket
                // from now on: the same again, one by one.
                Err(SendError::Unreachable(_) | SendError::Fatal(_))
                    if cut.is_some() && self.segments_max() == 1 => {}
                Err(error) => return Err(error),
                Ok(()) => rest = later,
            }
        }
        Ok(())
    }

    fn send_once(
        &mut self,
        datagrams: Datagrams<'_>,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> Result<(), SendError> {
        let transmit = Transmit {
            destination: self.as_bound(datagrams.remote),
            ecn: datagrams.ecn.to_codepoint(),
            contents,
            segment_size,
            src_ip: datagrams.source,
        };
        let segments_max = self.state.max_gso_segments();
        let Err(error) = self.state.try_send((&self.socket).into(), &transmit) else {
            return Ok(());
        };
        if error.raw_os_error() == Some(libc::ENOBUFS) {
            // The queue of the interface was full: lost on the way, like any other loss.
            return Ok(());
        }
        if self.state.max_gso_segments() < segments_max && source_is_gone(datagrams.source) {
            // quinn-udp takes every EINVAL for a sign that GSO is broken and turns it off for
            // good; the kernel also says it for a source address that an interface lost.
            if let Ok(state) = socket::state(&self.socket) {
                self.state = state;
            }
        }
        Err(SendError::from_os(error))
    }

    /// The destination in the family of the socket.
    fn as_bound(&self, remote: SocketAddr) -> SocketAddr {
        match (self.local, remote) {
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => remote,
        }
    }

    /// Receives what is there, up to the slots of `buffer`, calls `each` with the bytes of every
    /// piece, in order, and tells whether to call again.
    ///
    /// An error that ICMP reported for an earlier datagram is not the socket's: it is passed over.
    ///
    /// # Errors
    /// [`Error::Os`] when the socket is of no use any more.
    pub fn receive(
        &self,
        buffer: &mut ReceiveBuffer,
        mut each: impl FnMut(Received, &mut [u8]),
    ) -> Result<Queue, Error> {
        let slots = buffer.slots;
        let mut meta = [RecvMeta::default(); RECEIVE_SLOTS_MAX];
        let mut rooms = [const { None }; RECEIVE_SLOTS_MAX];
        for (room, bytes) in rooms.iter_mut().zip(buffer.bytes.chunks_mut(RECEIVE_LEN)) {
            *room = Some(IoSliceMut::new(bytes));
        }
        let mut rooms = rooms.map(|room| room.unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let received =
            self.state.recv((&self.socket).into(), &mut rooms[..slots], &mut meta[..slots]);
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Queue::Empty),
            Err(error) if passes(&error) => return Ok(Queue::Unknown),
            Err(error) => return Err(Error::os("receive from a UDP socket", error)),
        };
        let waited = if count > 0 { socket::waited(&self.socket) } else { Duration::ZERO };
        for (meta, room) in meta.iter().zip(&mut rooms).take(count) {
            // An empty datagram has no stride and nothing to tell.
            if meta.len > 0 && meta.stride > 0 {
                each(self.describe(meta, waited), &mut room[..meta.len]);
            }
        }
        Ok(if count < slots { Queue::Empty } else { Queue::Unknown })
    }

    fn describe(&self, meta: &RecvMeta, waited: Duration) -> Received {
        let remote = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
        // A link-local sender is only reachable through the scope it came with.
        let remote = match (meta.addr, remote) {
            (SocketAddr::V6(v6), SocketAddr::V6(_)) => SocketAddr::V6(v6),
            _ => remote,
        };
        Received {
            remote,
            local: meta.dst_ip.map(|ip| ip.to_canonical()),
            ecn: Ecn::from_codepoint(meta.ecn),
            stride: meta.stride,
            waited,
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// How many of `len` bytes one call sends. A shorter last segment leaves with the others if it can:
/// a caller may have added it because sends with a full last segment are mangled.
fn at_once(len: usize, segment: usize, segments_max: usize) -> usize {
    if len <= SEND_LEN_MAX && len.div_ceil(segment) <= segments_max {
        return len;
    }
    len.min((SEND_LEN_MAX / segment).clamp(1, segments_max) * segment)
}

/// Whether an address that we wanted to send from is no longer one of ours.
fn source_is_gone(source: Option<IpAddr>) -> bool {
    source.is_some_and(|ip| {
        std::net::UdpSocket::bind(SocketAddr::new(ip, 0))
            .is_err_and(|error| error.raw_os_error() == Some(libc::EADDRNOTAVAIL))
    })
}

/// Whether a failure to receive is the fate of one datagram.
fn passes(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::EMSGSIZE
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}

impl SendError {
    /// Whether a firewall of this host dropped the datagrams: a drop or a rejection at the output
    /// hook is EPERM for the sender (nf_hook in include/linux/netfilter.h).
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Unreachable(error) => error.raw_os_error() == Some(libc::EPERM),
            Self::WouldBlock | Self::TooLong | Self::Fatal(_) => false,
        }
    }

    fn from_os(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Self::WouldBlock,
            Some(libc::EMSGSIZE) => Self::TooLong,
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => Self::Fatal(error),
            // ENODEV after the interface of SO_BINDTODEVICE is gone; EPERM from a firewall;
            // EINVAL and EADDRNOTAVAIL for a source address that was lost.
            Some(_) | None => Self::Unreachable(error),
        }
    }
}

impl Ecn {
    fn to_codepoint(self) -> Option<EcnCodepoint> {
        match self {
            Self::NotCapable => None,
            Self::Capable0 => Some(EcnCodepoint::Ect0),
            Self::Capable1 => Some(EcnCodepoint::Ect1),
            Self::Congestion => Some(EcnCodepoint::Ce),
        }
    }

    fn from_codepoint(codepoint: Option<EcnCodepoint>) -> Self {
        match codepoint {
            None => Self::NotCapable,
            Some(EcnCodepoint::Ect0) => Self::Capable0,
            Some(EcnCodepoint::Ect1) => Self::Capable1,
            Some(EcnCodepoint::Ce) => Self::Congestion,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_last_segment_leaves_with_the_others() {
        // 46 segments fill a call but for 1,107 bytes.
        assert_eq!(at_once(46 * 1_400 + 1, 1_400, 64), 46 * 1_400 + 1);
        assert_eq!(at_once(10 * 100 + 1, 100, 64), 10 * 100 + 1);
        assert_eq!(at_once(64 * 100 + 1, 100, 64), 64 * 100, "one too many");
        assert_eq!(at_once(SEND_LEN_MAX + 1, 1_400, 64), 46 * 1_400, "too long");
        assert_eq!(at_once(5_000, 1_000, 1), 1_000, "one by one");
    }
}
