//! What becomes of one segment of a connection: whether it is kept, and how it is passed on. Does
//! not know where the connection stands in its table, nor by which path anything goes.

use super::resume::Told;
use super::{Connection, Notice};
use crate::flow::pep::cache::Payload;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::worth::Networks;
use crate::flow::rules::Hold;
use crate::flow::tuple::Direction;
use crate::flow::verdict::{Change, Verdict};
use crate::time::Instant;
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment};

impl Connection {
    /// Takes notice of a segment, unless it is seen to be damaged.
    pub(in crate::flow) fn look_at(
        &mut self,
        now: Instant,
        way: Direction,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> Notice {
        if self.leaps(way, segment) && !Payload::of(packet, segment).is_sound() {
            return Notice::Stray;
        }
        self.observe(now, way, segment)
    }

    /// Keeps the payload of a segment that the local side sent, if it may be needed. Returns how
    /// many bytes at its end are kept.
    pub(in crate::flow) fn keep(
        &mut self,
        memory: &mut Memory,
        networks: &Networks,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> usize {
        let is_missed = segment.len > 0 && self.local.acked.is_before(segment.end());
        // Which byte is urgent is not kept: it leaves as it is, or not at all.
        let is_plain = !segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::URG);
        if !is_missed || !is_plain || !self.is_kept() {
            return 0;
        }
        if self.cache.is_empty() && !networks.are_worth(self.class, memory) {
            self.cache.leave_out();
            return 0;
        }
        self.cache.push(memory, Payload::of(packet, segment))
    }

    /// Keeps the oldest segment that is outstanding as it came, if its sender repeats it and nobody
    /// else could: should the way be lost under it, the next time it says so itself may be its
    /// last.
    pub(in crate::flow) fn keep_repeated(
        &mut self,
        memory: &mut Memory,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) {
        let is_oldest = segment.seq == self.local.acked && segment.seq != segment.end();
        let is_usual = !segment.flags.has(Flags::SYN) && self.choice.hold != Hold::Off;
        let is_kept = segment.len > 0 && self.cache.covers(segment);
        if is_oldest && is_usual && !is_kept && Payload::of(packet, segment).is_sound() {
            self.heads.keep_left(memory, segment.seq, packet.pieces);
        }
    }

    /// What becomes of a segment of the remote side's while it is spoken for.
    pub(in crate::flow) fn pass_on(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> Verdict {
        self.hear(now, segment, packet);
        let is_bare = segment.len == 0 && !segment.flags.has(Flags::FIN);
        let Some(told) = self.tell(now, is_bare) else { return Verdict::Pass };
        let Told { ack, window, is_news, is_own } = told;
        if segment.flags.has(Flags::RST) {
            return Verdict::Pass;
        }
        let asks = segment.seq.is_before(self.remote.next);
        if is_bare && !is_news && !asks {
            // The same again would look like a sign of loss. Who asks waits for an answer.
            return Verdict::Keep;
        }
        let echo = segment.timestamps.filter(|_| !is_own).map(|_| self.local.clock);
        Verdict::Change(Change { segment: *segment, ack, window, echo, keeps_sacks: is_own })
    }
}
