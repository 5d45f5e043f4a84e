//! Round trips: an echo and who calls it.

use super::report::{Report, Reporter};
use crate::netns::monotonic_ns;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// How long an answer may take, in nanoseconds.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Sequence number and time of sending.
const HEADER: usize = 16;

/// What became of a series of pings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoStats {
    /// Round trips in nanoseconds, in the order of sending; none where a datagram never came back.
    pub round_trips_ns: Vec<Option<u64>>,
}

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
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = UdpSocket::bind(any)?;
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

/// Takes echoes until `end_ns`, or until all have come.
fn collect(
    socket: &UdpSocket,
    end_ns: u64,
    count: u32,
    round_trips: &mut BTreeMap<u64, u64>,
) -> anyhow::Result<()> {
    let mut buffer = [0; 2_048];
    while round_trips.len() < count as usize {
        let left_ns = end_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            break;
        }
        socket.set_read_timeout(Some(Duration::from_nanos(left_ns.max(1_000))))?;
        let Ok(length) = socket.recv(&mut buffer) else { continue };
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
