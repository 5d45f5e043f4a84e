//! Inner packets that arrived before there was a path to send them by: few, and not for long.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;

/// Packets that wait, per session,
pub const WAITING_MAX: usize = 512;
/// and their bytes: 64 of the longest, or a voice call's for as long as a handshake takes.
const BYTES_MAX: usize = 96 * 1_024;
/// How long a packet may wait: after this its sender has sent it again.
pub const WAITING_TIME: Duration = Duration::from_secs(3);

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

    /// All packets that did not wait too long; the queue is empty afterwards.
    pub(crate) fn take(&mut self, now: Instant) -> impl Iterator<Item = Vec<u8>> + use<> {
        self.expire(now);
        self.bytes = 0;
        std::mem::take(&mut self.packets).into_iter().map(|(_, packet)| packet)
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
        assert!(waiting.take(now).map(|packet| packet.len()).sum::<usize>() <= BYTES_MAX);
        assert_eq!((waiting.len(), waiting.bytes), (0, 0));
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
