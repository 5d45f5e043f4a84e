//! A steady one-way flow with sequence numbers, from a server to its subscribers.
//!
//! It is one-way, because a round trip pauses when either direction does. The subscriber sends
//! first, so the flow returns through any NAT.

use super::receive::receive_until;
use super::report::{FlowStats, Report, Reporter};
use crate::arrivals::Arrivals;
use crate::netns::monotonic_ns;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long after a flow's regular end late datagrams are awaited, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How often a subscription is repeated until the flow begins, in nanoseconds.
const REPEAT_NS: u64 = 250_000_000;
/// How long it is repeated without an answer, in nanoseconds.
const ANSWER_NS: u64 = 5_000_000_000;
/// Flows sent at once.
const MAX_FLOWS: usize = 256;
/// The most datagrams of one flow.
const MAX_COUNT: u32 = 10_000_000;
/// Running number of a datagram; the answer to a subscription has none of these.
const ACCEPTED: u64 = u64::MAX;

/// A subscription, sent as JSON in a datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Microseconds between two datagrams.
    pub interval_us: u64,
    /// Bytes of UDP payload, at least 16.
    pub size: u16,
    /// Milliseconds from the subscription to the first datagram.
    pub wait_ms: u64,
    /// When the first datagram leaves instead, in nanoseconds ([`monotonic_ns`]). Several flows
    /// then begin together, however long the subscriptions took.
    #[serde(default)]
    pub begin_ns: Option<u64>,
    /// How many datagrams.
    pub count: u32,
}

impl FlowRequest {
    /// When the first datagram leaves, of a subscription that came at this time.
    const fn first_ns(&self, asked_ns: u64) -> u64 {
        match self.begin_ns {
            Some(begin_ns) => begin_ns,
            None => asked_ns + self.wait_ms * 1_000_000,
        }
    }
}

/// Sends flows to subscribers, for ever; a subscriber without a place gets no answer.
///
/// # Errors
/// If the address cannot be bound.
pub fn send_flows(listen: SocketAddr, reporter: &Reporter) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let places = Arc::new(Places::default());
    let mut buffer = [0; 2_048];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let Ok(request) = serde_json::from_slice::<FlowRequest>(&buffer[..length]) else {
            continue;
        };
        if request.count > MAX_COUNT {
            continue;
        }
        match places.take(from) {
            Taken::None => {}
            // A repeated request is answered again, because the answer may be lost.
            Taken::Before => drop(socket.send_to(&ACCEPTED.to_be_bytes(), from)),
            Taken::Now => {
                let _ = socket.send_to(&ACCEPTED.to_be_bytes(), from);
                let (sender, places) = (socket.try_clone()?, Arc::clone(&places));
                std::thread::spawn(move || {
                    send_one(&sender, from, &request);
                    places.give_back(from);
                });
            }
        }
    }
}

/// The subscribers, [`MAX_FLOWS`] at most.
#[derive(Default)]
struct Places(Mutex<BTreeSet<SocketAddr>>);

/// The result of a request for a place.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// It has one from now on.
    Now,
    /// It has had one already.
    Before,
    /// All are taken.
    None,
}

impl Places {
    fn take(&self, by: SocketAddr) -> Taken {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains(&by) {
            Taken::Before
        } else if served.len() < MAX_FLOWS {
            served.insert(by);
            Taken::Now
        } else {
            Taken::None
        }
    }

    fn give_back(&self, by: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&by);
    }
}

/// Sends one flow on time; datagrams that the network refuses count as sent.
fn send_one(socket: &UdpSocket, to: SocketAddr, request: &FlowRequest) {
    let mut datagram = vec![0; usize::from(request.size).max(16)];
    let start_ns = request.first_ns(monotonic_ns());
    for number in 0..u64::from(request.count) {
        let due_ns = start_ns + number * request.interval_us * 1_000;
        let early_ns = due_ns.saturating_sub(monotonic_ns());
        if early_ns > 0 {
            std::thread::sleep(Duration::from_nanos(early_ns));
        }
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        datagram[8..16].copy_from_slice(&monotonic_ns().to_be_bytes());
        let _ = socket.send_to(&datagram, to);
    }
}

/// Subscribes to a flow and receives it to its end; no answer is a result, too.
///
/// # Errors
/// If there is no socket.
pub fn subscribe(to: SocketAddr, request: &FlowRequest, reporter: &Reporter) -> anyhow::Result<()> {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0".parse()? } else { "[::]:0".parse()? };
    let socket = UdpSocket::bind(any)?;
    if !ask(&socket, to, request)? {
        return reporter.tell(&Report::Unanswered);
    }
    reporter.tell(&Report::Ready)?;
    let length_ns = u64::from(request.count) * request.interval_us * 1_000;
    let end_ns = request.first_ns(monotonic_ns()) + length_ns + PATIENCE_NS;
    let mut seen = vec![false; request.count as usize];
    let (mut received, mut first_ns) = (0, 0);
    let mut arrivals = Arrivals::default();
    let mut gaps = Vec::new();
    let mut buffer = [0; 2_048];
    while received < u64::from(request.count) {
        let length = match receive_until(&socket, &mut buffer, end_ns) {
            Ok(Some(length)) => length,
            Ok(None) => break,
            Err(_) => continue,
        };
        let Some(number) = number(&buffer[..length]) else { continue };
        let Some(slot) = usize::try_from(number).ok().and_then(|at| seen.get_mut(at)) else {
            continue;
        };
        let at_ns = monotonic_ns();
        if first_ns == 0 {
            first_ns = at_ns;
        }
        arrivals.note(at_ns);
        gaps.append(&mut arrivals.take_gaps());
        // Of a duplicate, the first counts.
        received += u64::from(!std::mem::replace(slot, true));
    }
    reporter.tell(&Report::Flowed(FlowStats {
        lost: u64::from(request.count) - received,
        first_ns,
        last_ns: arrivals.latest_ns(),
        gaps,
    }))
}

/// Subscribes until the sender answers; false when it does not.
fn ask(socket: &UdpSocket, to: SocketAddr, request: &FlowRequest) -> anyhow::Result<bool> {
    let question = serde_json::to_vec(request)?;
    let give_up_ns = monotonic_ns() + ANSWER_NS;
    socket.set_read_timeout(Some(Duration::from_nanos(REPEAT_NS)))?;
    let mut buffer = [0; 2_048];
    while monotonic_ns() < give_up_ns {
        let _ = socket.send_to(&question, to);
        if let Ok(length) = socket.recv(&mut buffer)
            && number(&buffer[..length]).is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The running number of a datagram.
fn number(datagram: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*datagram.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::{FlowRequest, MAX_FLOWS, Places, Taken, ask, send_flows};
    use crate::programs::Reporter;
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

    #[test]
    fn places_are_given_again_and_who_asks_twice_has_one() {
        let client = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (places, last) = (Places::default(), u16::try_from(MAX_FLOWS).unwrap());
        for port in 1..=last {
            assert_eq!(places.take(client(port)), Taken::Now);
        }
        assert_eq!(places.take(client(1)), Taken::Before);
        let late = client(last + 1);
        assert_eq!(places.take(late), Taken::None);
        places.give_back(client(1));
        assert_eq!(places.take(late), Taken::Now);
        assert_eq!(places.take(client(1)), Taken::None);
    }

    #[test]
    fn a_flow_that_is_over_has_given_its_place_back() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // It serves for ever, and ends with the test's process.
        std::thread::spawn(move || send_flows(free, &Reporter::new()));
        // Of no datagram at all: each is over before the next asks, or soon after.
        let request =
            FlowRequest { interval_us: 1_000, size: 16, wait_ms: 0, begin_ns: None, count: 0 };
        for _ in 0..=2 * MAX_FLOWS {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            assert!(ask(&client, free, &request).unwrap());
        }
    }
}
