//! Round trips: an echo and who calls it.

use super::receive::receive_until;
use super::report::{EchoStats, Report, Reporter};
use crate::netns::monotonic_ns;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long an answer may take, in nanoseconds.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Sequence number and time of sending.
const HEADER: usize = 16;

/// Sends every datagram back, for ever.
///
/// # Errors
/// When the address cannot be bound.
pub fn echo(listen: SocketAddr, reporter: &Reporter) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let mut buffer = vec![0; 65_536];
    loop {
        // Errors are those of earlier sends (a peer that went away); the next may do better.
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Sends `count` datagrams at a steady pace and waits for their echoes.
///
/// # Errors
/// When no socket can be had.
pub fn ping(
    to: SocketAddr,
    count: u32,
    interval_us: u64,
    size: u16,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(any_like(to))?;
    let mut round_trips = BTreeMap::new();
    let mut datagram = vec![0; usize::from(size).max(HEADER)];
    let start_ns = monotonic_ns();
    for number in 0..u64::from(count) {
        let due_ns = start_ns + number * interval_us * 1_000;
        collect(&socket, due_ns, count, &mut round_trips)?;
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        datagram[8..HEADER].copy_from_slice(&monotonic_ns().to_be_bytes());
        // A network that is just gone is a loss, not an end.
        let _ = socket.send_to(&datagram, to);
    }
    collect(&socket, monotonic_ns() + PATIENCE_NS, count, &mut round_trips)?;
    let round_trips_ns = (0..u64::from(count)).map(|number| round_trips.remove(&number)).collect();
    reporter.tell(&Report::Pinged(EchoStats { round_trips_ns }))
}

/// Calls an echo every so often until it answers, for `limit_ms` milliseconds at most.
///
/// # Errors
/// When no socket can be had.
pub fn reach(
    to: SocketAddr,
    interval_us: u64,
    limit_ms: u64,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(any_like(to))?;
    let interval = Duration::from_micros(interval_us.max(1_000));
    socket.set_read_timeout(Some(interval))?;
    reporter.tell(&Report::Ready)?;
    let end_ns = monotonic_ns() + limit_ms * 1_000_000;
    let mut buffer = [0; HEADER];
    while monotonic_ns() < end_ns {
        // A way that is not there yet is no end.
        let _ = socket.send_to(&[0; HEADER], to);
        let called = Instant::now();
        match socket.recv(&mut buffer) {
            Ok(_) => return reporter.tell(&Report::Reached { at_ns: Some(monotonic_ns()) }),
            // The network's refusals come at once.
            Err(_) => std::thread::sleep(interval.saturating_sub(called.elapsed())),
        }
    }
    reporter.tell(&Report::Reached { at_ns: None })
}

/// Any address and port of the family.
fn any_like(to: SocketAddr) -> SocketAddr {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    SocketAddr::new(any, 0)
}

/// Takes echoes until `end_ns`, or until all have come.
fn collect(
    socket: &UdpSocket,
    end_ns: u64,
    count: u32,
    round_trips: &mut BTreeMap<u64, u64>,
) -> anyhow::Result<()> {
    let mut buffer = [0; 2_048];
    while round_trips.len() < count as usize {
        let length = match receive_until(socket, &mut buffer, end_ns) {
            Ok(Some(length)) => length,
            Ok(None) => break,
            Err(_) => continue,
        };
        let now_ns = monotonic_ns();
        if length < HEADER {
            continue;
        }
        let field = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&buffer[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        // Of a double, the first counts.
        round_trips.entry(field(0)).or_insert_with(|| now_ns.saturating_sub(field(8)));
    }
    Ok(())
}
