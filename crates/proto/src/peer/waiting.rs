//! Inner packets that arrived before there was a path to send them by: few, and not for long.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};
use crate::wire::inner::{InnerPacket, MAX_PACKET};

/// Packets that wait, per session.
pub const WAITING_MAX: usize = 64;
/// How long a packet may wait: after this its sender has sent it again.
pub const WAITING_TIME: Duration = Duration::from_secs(3);

const _: () = assert!(WAITING_MAX * MAX_PACKET <= 96 * 1_024);

/// A queue of packets; when it is full the oldest goes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    packets: VecDeque<(Instant, Vec<u8>)>,
}

impl Waiting {
    /// Keeps a copy of `packet`. Returns whether an older one was given up for it.
    pub(crate) fn push(&mut self, now: Instant, packet: InnerPacket<'_>) -> bool {
        let full = self.packets.len() >= WAITING_MAX;
        if full {
            self.packets.pop_front();
        }
        let mut bytes = Vec::with_capacity(packet.len());
        packet.copy_to(&mut bytes);
        self.packets.push_back((now, bytes));
        full
    }

    /// All packets that did not wait too long; the queue is empty afterwards.
    pub(crate) fn take(&mut self, now: Instant) -> impl Iterator<Item = Vec<u8>> + use<> {
        self.expire(now);
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
        self.packets.drain(..late);
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
