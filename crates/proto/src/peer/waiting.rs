//! Inner packets that arrived before there was a path to send them by: few, and not for long.

use std::collections::{BTreeMap, VecDeque};

use crate::flow;
use crate::time::{Duration, Instant};
use crate::wire::inner::{InnerPacket, InnerView, UDP};

/// Packets that wait, per session,
pub const WAITING_MAX: usize = 512;
/// and their bytes: 64 of the longest, or a voice call's for as long as a handshake takes.
const BYTES_MAX: usize = 96 * 1_024;
/// How long a packet may wait: after this its sender has sent it again.
pub const WAITING_TIME: Duration = Duration::from_secs(3);

/// A datagram after which so much later another of its flow was sent is speech, or as good as that:
/// nobody waits for it any longer (ITU-T G.114).
const OF_USE: Duration = Duration::from_millis(400);

/// A queue of packets; when it is full the oldest goes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Waiting {
    /// Keeps a copy of `packet`. Returns how many older ones were given up for it.
    pub(crate) fn push(&mut self, now: Instant, packet: InnerPacket<'_>) -> usize {
        let before = self.packets.len();
        while self.packets.len() >= WAITING_MAX || self.bytes + packet.len() > BYTES_MAX {
            let Some((_, oldest)) = self.packets.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        let given_up = before - self.packets.len();
        let mut bytes = Vec::with_capacity(packet.len());
        packet.copy_to(&mut bytes);
        self.bytes += bytes.len();
        self.packets.push_back((now, bytes));
        given_up
    }

    /// All packets that did not wait too long, and of how many a later one of their flow says that
    /// they are of no use any more; the queue is empty afterwards.
    pub(crate) fn take(&mut self, now: Instant) -> (Vec<Vec<u8>>, usize) {
        self.expire(now);
        self.bytes = 0;
        let packets = std::mem::take(&mut self.packets);
        let count = packets.len();
        let mut newest = BTreeMap::new();
        for (at, packet) in &packets {
            newest.extend(datagram_flow(packet).map(|flow| (flow, *at)));
        }
        let is_of_use = |(at, packet): &(Instant, Vec<u8>)| {
            let newest = datagram_flow(packet).and_then(|flow| newest.get(&flow));
            newest.is_none_or(|newest| newest.saturating_since(*at) <= OF_USE)
        };
        let packets = packets.into_iter().filter(is_of_use).map(|(_, packet)| packet);
        let packets: Vec<_> = packets.collect();
        let useless = count - packets.len();
        (packets, useless)
    }

    /// When the oldest packet will have waited too long.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.packets.front().map(|&(since, _)| since + WAITING_TIME)
    }

    /// Forgets what waited too long, and returns how many packets that were. A peer that nobody
    /// hears of for days holds no memory.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let late = self.packets.partition_point(|&(since, _)| since + WAITING_TIME <= now);
        self.bytes -= self.packets.drain(..late).map(|(_, packet)| packet.len()).sum::<usize>();
        if self.packets.is_empty() {
            self.packets = VecDeque::new();
        }
        late
    }

    /// Packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }
}

/// The flow of a UDP datagram.
fn datagram_flow(packet: &[u8]) -> Option<u32> {
    let view = InnerView::parse(packet, packet.len()).ok()?;
    (view.protocol == UDP && view.ports.is_some()).then(|| flow::hash(&view))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize) -> Vec<u8> {
        vec![0x45; len]
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_long() {
        let now = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        for _ in 0..WAITING_MAX {
            assert_eq!(waiting.push(now, InnerPacket::whole(&packet(100))), 0);
        }
        assert_eq!(waiting.push(now, InnerPacket::whole(&packet(100))), 1);
        let long = BYTES_MAX / 1_500;
        let given_up: usize =
            (0..long).map(|_| waiting.push(now, InnerPacket::whole(&packet(1_500)))).sum();
        assert!(given_up >= WAITING_MAX - 8, "{given_up}");
        assert_eq!(waiting.len() + given_up, WAITING_MAX + long);
        assert!(waiting.take(now).0.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
        assert_eq!((waiting.len(), waiting.bytes), (0, 0));
    }

    #[test]
    fn speech_that_is_late_is_left_out_and_what_is_said_once_is_not() {
        let udp = |port: u8, number: u8| {
            let mut packet = vec![0; 60];
            (packet[0], packet[3], packet[9]) = (0x45, 60, UDP);
            (packet[21], packet[59]) = (port, number);
            packet
        };
        let start = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        for number in 0..100 {
            let now = start + Duration::from_millis(20) * u32::from(number);
            waiting.push(now, InnerPacket::whole(&udp(1, number)));
            if number < 2 {
                waiting.push(now, InnerPacket::whole(&udp(2, number)));
            }
        }
        let (packets, useless) = waiting.take(start + Duration::from_secs(2));
        let numbers = |port| {
            let of = packets.iter().filter(move |packet| packet[21] == port);
            of.map(|packet| packet[59]).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), (79..100).collect::<Vec<_>>(), "400 ms of speech");
        assert_eq!((numbers(2), useless), (vec![0, 1], 79));
    }

    #[test]
    fn nothing_waits_for_long() {
        let mut now = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        waiting.push(now, InnerPacket::whole(&packet(100)));
        now = now + WAITING_TIME / 2;
        waiting.push(now, InnerPacket::whole(&packet(200)));
        assert_eq!(waiting.expire(now + WAITING_TIME / 2), 1);
        assert_eq!((waiting.len(), waiting.bytes), (1, 200));
    }
}
