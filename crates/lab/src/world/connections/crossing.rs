//! The last step of a packet: from the card, or the tunnel's device, to the end that it is for.
//!
//! A kernel needs a moment to hand a packet over and to wake who waits for it. That is short, but
//! not nothing, and some things hang on it: a sender whose tunnel acknowledges at its entry has no
//! other round trip, and BBR takes no sample of a rate over no time.

use std::collections::VecDeque;

use super::{Number, Side};
use crate::emu::IpPacket;

/// How long it takes: an interrupt's work and the wake of a process, on a machine with other work.
pub(super) const CROSSING_NS: u64 = 20_000;

/// The packets that are on it.
#[derive(Debug, Default)]
pub(super) struct Crossing {
    packets: VecDeque<(u64, Number, Side, IpPacket)>,
}

impl Crossing {
    /// A packet begins it.
    pub(super) fn begin(&mut self, now_ns: u64, number: Number, side: Side, packet: IpPacket) {
        self.packets.push_back((now_ns + CROSSING_NS, number, side, packet));
    }

    /// When the next one is over.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.packets.front().map(|&(at_ns, ..)| at_ns)
    }

    /// One that is over by now.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<(Number, Side, IpPacket)> {
        self.next_ns().filter(|&at_ns| at_ns <= now_ns)?;
        let (_, number, side, packet) = self.packets.pop_front()?;
        Some((number, side, packet))
    }

    /// Takes those out that are for these ends.
    pub(super) fn take(&mut self, of: impl Fn(Number, Side) -> bool) -> Vec<(Number, IpPacket)> {
        let all = std::mem::take(&mut self.packets);
        let mut taken = Vec::new();
        for (at_ns, number, side, packet) in all {
            if of(number, side) {
                taken.push((number, packet));
            } else {
                self.packets.push_back((at_ns, number, side, packet));
            }
        }
        taken
    }
}
