//! Two ends of one flow of datagrams: at a constant rate, or a stream over QUIC ([`crate::udp`]).
//!
//! The client's end sends first, in either direction. The receiver reports once, when its time is
//! over. The sender sends until it is ended.

use super::receive::receive_until;
use super::report::{Poured, Report, Reporter};
use crate::emu::MS;
use crate::ground::{Congestion, Datagrams, Receiver, What};
use crate::netns::monotonic_ns;
use crate::udp::{End, Side};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The longest time without a look at the socket, in nanoseconds.
const LONGEST_NS: u64 = 100 * MS;
/// Bytes of received datagrams that the kernel may queue.
const BUFFER: usize = 8 << 20;
/// The longest payload of a packet of Ethernet, and more.
const PAYLOAD_MAX: usize = 2_048;
/// Datagrams that are read before others leave.
const READ_MAX: usize = 64;

/// What is poured.
#[derive(Clone, Debug, Args)]
pub struct Pouring {
    /// Over QUIC, with this congestion control
    #[arg(long)]
    pub quic: Option<Control>,
    /// By the clock: so many kilobits a second, with IPv4 and UDP header
    #[arg(long, default_value_t = 1_000)]
    pub kbps: u64,
    /// The server receives, not the client
    #[arg(long)]
    pub up: bool,
    /// For how many milliseconds from the first that is heard
    #[arg(long)]
    pub length_ms: u64,
    /// Milliseconds within which delays do not count
    #[arg(long, default_value_t = 0)]
    pub skip_ms: u64,
    /// What keys and content follow from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Congestion control of QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Control {
    /// NewReno (RFC 9002)
    Reno,
    /// CUBIC (RFC 9438)
    Cubic,
    /// BBR
    Bbr,
}

impl Pouring {
    /// The backend's form of it.
    fn datagrams(&self) -> Datagrams {
        let congestion = |control| match control {
            Control::Reno => Congestion::Reno,
            Control::Cubic => Congestion::Cubic,
            Control::Bbr => Congestion::Bbr,
        };
        let clock = What::Clock { kbps: self.kbps };
        let quic = |control| What::Quic { congestion: congestion(control) };
        Datagrams {
            to: if self.up { Receiver::Server } else { Receiver::Client },
            what: self.quic.map_or(clock, quic),
            length_ns: self.length_ms * MS,
            skip_ns: self.skip_ms * MS,
        }
    }
}

/// Waits for the first packet, and receives or sends.
///
/// # Errors
/// If the address cannot be bound.
pub fn pour_from(listen: SocketAddr, what: &Pouring, reporter: &Reporter) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let mut buffer = [0; PAYLOAD_MAX];
    let (length, other) = socket.recv_from(&mut buffer).context("nobody called")?;
    socket.connect(other)?;
    pour(&socket, what, Side::Server, Some(&buffer[..length]), reporter)
}

/// Sends the first packet to such a program, and receives or sends.
///
/// # Errors
/// If there is no socket.
pub fn pour_to(to: SocketAddr, what: &Pouring, reporter: &Reporter) -> anyhow::Result<()> {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(to)?;
    reporter.tell(&Report::Ready)?;
    pour(&socket, what, Side::Client, None, reporter)
}

fn pour(
    socket: &UdpSocket,
    what: &Pouring,
    side: Side,
    first: Option<&[u8]>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let buffers = socket2::SockRef::from(socket);
    // More than the kernel allows is cut to that.
    let _ = buffers.set_recv_buffer_size(BUFFER);
    let _ = buffers.set_send_buffer_size(BUFFER);
    if what.quic.is_some() {
        never_fragment(socket)?;
    }
    let datagrams = what.datagrams();
    let start_ns = monotonic_ns();
    let mut end = datagrams.end(side, what.seed, start_ns)?;
    let receives = (datagrams.to == Receiver::Client) == (side == Side::Client);
    let mut result = first.map_or(Ok(()), |payload| end.arrives(start_ns, payload));
    let until_ns = |end: &End| {
        let opened_ns = end.heard().and_then(|heard| heard.opened_ns);
        opened_ns.map_or(start_ns + Datagrams::OPENING_NS, |at_ns| at_ns + datagrams.length_ns)
    };
    while result.is_ok() && (!receives || monotonic_ns() < until_ns(&end)) {
        result = turn(socket, &mut end);
    }
    if receives {
        let heard = end.heard().cloned().unwrap_or_default();
        let end_ns = result.as_ref().map_or_else(|_| monotonic_ns(), |()| until_ns(&end));
        reporter.tell(&Report::Poured(Poured { heard, end_ns, broke: result.err() }))?;
    }
    Ok(())
}

/// Forbids fragmentation of the socket's datagrams (RFC 9000, section 14). QUIC finds the path MTU
/// itself; with fragments it would take a length that costs two packets.
fn never_fragment(socket: &UdpSocket) -> io::Result<()> {
    if socket.local_addr()?.is_ipv4() {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?;
    }
    Ok(())
}

/// Sends what is due, then takes what has come, waiting for it until the next is due.
fn turn(socket: &UdpSocket, end: &mut End) -> Result<(), String> {
    let mut leaving = Vec::new();
    end.leaving(monotonic_ns(), &mut leaving)?;
    for payload in leaving {
        // A datagram without room or without a route now is lost, as on any network.
        let _ = socket.send(&payload);
    }
    let due_ns = end.due_ns().unwrap_or(u64::MAX).min(monotonic_ns() + LONGEST_NS);
    let mut buffer = [0; PAYLOAD_MAX];
    // An ICMP error about a sent datagram is no end.
    let Ok(Some(length)) = receive_until(socket, &mut buffer, due_ns) else { return Ok(()) };
    let now_ns = monotonic_ns();
    end.arrives(now_ns, &buffer[..length])?;
    // Datagrams that are there already arrived at the same time: the speed of reading is no rate of
    // a network.
    for _ in 1..READ_MAX {
        let Ok(Some(length)) = receive_until(socket, &mut buffer, 0) else { break };
        end.arrives(now_ns, &buffer[..length])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Control, MS, Poured, Pouring, pour};
    use crate::netns::monotonic_ns;
    use crate::programs::{Report, Reporter, report};
    use crate::udp::{Heard, Side};
    use std::net::UdpSocket;

    #[test]
    fn what_is_told_is_understood() {
        let mut heard = Heard { bytes: 1_200, progress: vec![(7, 1_200)], ..Heard::default() };
        (0..3).for_each(|ms| heard.delays.note(ms * MS));
        let told = Report::Poured(Poured { heard, end_ns: 9, broke: None });
        assert_eq!(report(&serde_json::to_string(&told).unwrap()), Some(told));
    }

    /// Two ends over the loopback. The receiver prints its result on the output; here it is only
    /// checked that each ends in time.
    #[test]
    fn who_receives_ends_when_the_time_is_over() {
        for quic in [None, Some(Control::Cubic)] {
            let sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
            let [server, client] = sockets;
            server.connect(client.local_addr().unwrap()).unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            let what =
                Pouring { quic, kbps: 1_000, up: false, length_ms: 200, skip_ms: 0, seed: 1 };
            let sending = what.clone();
            // It sends for ever: it ends with the test.
            std::thread::spawn(move || {
                let _ = pour(&server, &sending, Side::Server, None, &Reporter::new());
            });
            let began_ns = monotonic_ns();
            pour(&client, &what, Side::Client, None, &Reporter::new()).unwrap();
            let took_ns = monotonic_ns() - began_ns;
            assert!((200_000_000..5_000_000_000).contains(&took_ns), "{quic:?}: {took_ns}");
        }
    }
}
