//! What becomes of one segment of a connection: whether it is kept, and how it is passed on. Does
//! not know where the connection stands in its table, nor by which path anything goes.

use super::breakoff::Broken;
use super::tracker::{Notice, Told};
use super::{Connection, Phase};
use crate::flow::pep::memory::Memory;
use crate::flow::pep::worth::Networks;
use crate::flow::report::Stage;
use crate::flow::rules::Hold;
use crate::flow::tuple::Direction;
use crate::flow::verdict::{Change, Verdict};
use crate::time::Instant;
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Rewrite, Segment};

impl Connection {
    /// A segment of the local side's, where there is a way if `is_up`, on which no more than is may
    /// be sent in the place of others if it `is_crowded`. Returns how many bytes at its end are
    /// kept; `None` if it is not sent.
    pub(crate) fn outgoing(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        networks: &Networks,
        (is_up, is_crowded): (bool, bool),
        (segment, packet): (&Segment, &InnerPacket<'_>),
    ) -> Option<usize> {
        match &mut self.phase {
            Phase::Broken(broken) => {
                broken.overhear(Direction::Out, segment);
                return None;
            }
            Phase::Normal if !is_up => self.suspend(now, memory),
            Phase::Normal | Phase::Held(_) | Phase::Resumed(_) => {}
        }
        let is_held = matches!(self.phase, Phase::Held(_));
        let notice = self.tracker.look_at(now, Direction::Out, segment, packet);
        if notice == Notice::Stray {
            return (!is_held).then_some(0);
        }
        let fresh = notice == Notice::Fresh;
        let kept = self.keep(memory, networks, segment, packet);
        if !fresh && !is_held && self.choice.hold != Hold::Off {
            self.tracker.keep_repeated(memory, segment, packet);
        }
        if self.tracker.stage == Stage::Closed {
            self.end(memory);
        }
        let both = (segment, packet);
        let goes = match &mut self.phase {
            Phase::Normal => true,
            Phase::Held(held) => {
                held.overhear(now, memory, &mut self.tracker, both, fresh);
                false
            }
            Phase::Resumed(resumed) => resumed.lets_pass(now, &self.tracker, both, is_crowded),
            Phase::Broken(_) => false,
        };
        goes.then_some(kept)
    }

    /// Keeps a segment of the local side's that went on. Returns how many bytes at its end are
    /// kept.
    pub(crate) fn keep_next(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        networks: &Networks,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> usize {
        let kept = self.keep(memory, networks, segment, packet);
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.followed(now, &self.tracker, segment.end());
        }
        kept
    }

    /// Keeps the payload of a segment that the local side sent, if it may be needed. Returns how
    /// many bytes at its end are kept.
    fn keep(
        &mut self,
        memory: &mut Memory,
        networks: &Networks,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> usize {
        if !self.is_kept() {
            return 0;
        }
        self.tracker.keep(memory, (networks, self.class), segment, packet)
    }

    /// A segment of the remote side's. Returns what becomes of it, and how many bytes it says have
    /// arrived that were sent in the local side's place.
    pub(crate) fn incoming(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> (Verdict, u32) {
        if let Phase::Broken(broken) = &mut self.phase {
            broken.overhear(Direction::In, segment);
            return (Verdict::Keep, 0);
        }
        let before = self.tracker.local.acked;
        if self.tracker.look_at(now, Direction::In, segment, packet) == Notice::Stray
            || self.take_reset(now, memory, segment)
        {
            return (Verdict::Pass, 0);
        }
        let acked = self.tracker.local.acked;
        self.tracker.let_go(memory);
        if self.tracker.stage == Stage::Closed {
            self.end(memory);
        }
        let is_sent = matches!(self.phase, Phase::Resumed(_)) && !self.is_assisted();
        let arrived = if is_sent { acked.beyond(before) } else { 0 };
        (self.pass_on(now, segment, packet), arrived)
    }

    /// The remote side resets the connection, and the local one was promised that what it said
    /// would arrive: it will not. Returns whether that is so.
    fn take_reset(&mut self, now: Instant, memory: &mut Memory, segment: &Segment) -> bool {
        let tracker = &self.tracker;
        let is_owed = tracker.promise.to().is_some() && tracker.stage != Stage::Closed;
        let ends = is_owed
            && segment.flags.has(Flags::RST)
            && tracker.is_expected(Direction::In, segment.seq);
        if ends {
            self.break_off_by(memory, Broken::by_remote(now));
        }
        ends
    }

    /// What becomes of a segment of the remote side's: while that is spoken for, the local side
    /// hears another acknowledgement, or none.
    fn pass_on(&mut self, now: Instant, segment: &Segment, packet: &InnerPacket<'_>) -> Verdict {
        let is_bare = segment.len == 0 && !segment.flags.has(Flags::FIN);
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.hear(now, &self.tracker, segment, packet);
        }
        if self.tracker.promise.delivered(self.tracker.local.acked) && !self.is_assisted() {
            self.tracker.promise.settle();
        }
        self.end_if_done();
        let told = match &mut self.phase {
            Phase::Held(held) => held.tell(&self.tracker),
            Phase::Resumed(resumed) => resumed.tell(now, &self.tracker, is_bare),
            Phase::Normal | Phase::Broken(_) => None,
        };
        let Some(Told { ack, window, is_news, is_own }) = told else { return Verdict::Pass };
        if segment.flags.has(Flags::RST) {
            return Verdict::Pass;
        }
        let asks = segment.seq.is_before(self.tracker.remote.next);
        if is_bare && !is_news && !asks {
            // The same again would look like a sign of loss. Who asks waits for an answer.
            return Verdict::Keep;
        }
        let echo = segment.timestamps.filter(|_| !is_own).map(|_| self.tracker.local.clock);
        // What the remote side has beyond is for the local side to know if it hears the rest.
        let (ack, window, removes_sacks) = (Some(ack), Some(window), !is_own);
        let rewrite = Rewrite { ack, window, echo, removes_sacks, clock: None };
        Verdict::Change(Change { segment: *segment, rewrite })
    }
}
