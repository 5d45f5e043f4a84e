//! Realtime packets: the path of each, and the paths of its copies. `peer::live` has the rules, and
//! sends.

use super::Bonding;
use super::choice::{Choice, LOST_PART, PLAY_OUT, Sent, choose};
use crate::ablation::Heuristic;
use crate::flow::live::LiveFlow;
use crate::id::EpochId;
use crate::multipath::snapshot::PathSnapshot;
use crate::packet::Strength;
use crate::path::PathId;
use crate::time::Instant;
use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// Copies of one packet that are still to leave.
#[derive(Debug)]
pub(crate) struct Copies {
    /// The path that the packet left by.
    way: Choice,
    /// The part of such packets that is lost, with the copies that have left.
    lost: f64,
    /// The part of these that is lost although the next copy leaves as well.
    lost_with_next: f64,
    /// Whether copies leave by all paths.
    is_raced: bool,
    /// Bytes of the packet's frame.
    len: usize,
    /// Choices that were looked at.
    looked_at: usize,
}

impl Copies {
    /// The copies of a packet with a frame of `len` bytes that left by `way`. Without any, the part
    /// `lost` of such packets is lost. If that is all of them, copies leave by all paths.
    pub(crate) const fn new(way: Choice, lost: f64, len: usize) -> Self {
        Self { way, lost, lost_with_next: 1.0, is_raced: lost >= 1.0, len, looked_at: 0 }
    }

    /// Bytes of one.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The last one that [`Bonding::next_copy`] returned has left.
    pub(crate) fn note_left(&mut self) {
        self.lost *= self.lost_with_next;
    }
}

impl Bonding {
    /// The paths that carry now are those of the last look, as `choice_of` tells of each; `None`
    /// for one that is gone.
    pub(crate) fn set_choices(&mut self, choice_of: impl Fn(&PathSnapshot) -> Option<Choice>) {
        self.live.set_choices(self.ways.iter().filter_map(choice_of));
    }

    /// Whether no copy can leave by another path.
    pub(crate) const fn has_one_choice(&self) -> bool {
        self.live.choices.len() < 2
    }

    /// The path by which `len` bytes of `flow` leave at once, and whether the flow has just come to
    /// it. A gateway `follows` its client. `None` where they have to wait all the same.
    pub(crate) fn choose_live(
        &self,
        now: Instant,
        flow: &mut LiveFlow,
        follows: bool,
        len: usize,
    ) -> Option<(Choice, bool)> {
        let (path, is_new) = choose(now, flow, follows, &self.live.choices)?;
        let way = *self.live.choices.iter().find(|choice| choice.path == path)?;
        flow.may_leave(now, way.early(), len).then_some((way, is_new))
    }

    /// The path of the next copy, if another is needed and the budget has room.
    pub(crate) fn next_copy(&mut self, now: Instant, copies: &mut Copies) -> Option<PathId> {
        while let Some(&choice) = self.live.choices.get(copies.looked_at) {
            copies.looked_at += 1;
            let is_late = choice.lateness > copies.way.lateness + PLAY_OUT && !copies.is_raced;
            if choice.path == copies.way.path || is_late || !choice.has_room(copies.len) {
                continue;
            }
            if copies.lost <= LOST_PART || !self.live.may_copy(now, copies.len) {
                return None;
            }
            // A race is one of all.
            copies.lost_with_next = if copies.is_raced { 1.0 } else { choice.expected_loss(false) };
            return Some(choice.path);
        }
        None
    }

    /// A packet has left by one path only. It is of use again if that turns out to have died.
    pub(crate) fn remember(
        &mut self,
        now: Instant,
        left: (PathId, Option<EpochId>, Strength),
        framing: Framing,
        packet: Pieces<'_>,
    ) {
        self.live.recent.push(now, left, framing, packet);
    }

    /// A copy of a packet follows by the same path, `way`, if that is what it needs and the budget
    /// has room.
    pub(crate) fn follow_by_twin(
        &mut self,
        now: Instant,
        way: Choice,
        left: (PathId, Option<EpochId>, Strength),
        framing: Framing,
        packet: Pieces<'_>,
    ) {
        let len = packet.len() + framing.overhead();
        if self.live.has_twin(way) && self.live.may_copy(now, len) {
            self.live.twins.push(now, left, framing, packet);
        }
    }

    /// When the next copy by the same path is due.
    pub(crate) fn twin_due(&self) -> Option<Instant> {
        self.live.twin_due()
    }

    /// Takes out a packet of which a copy is due by the same path.
    pub(crate) fn take_twin(&mut self, now: Instant) -> Option<Sent> {
        self.live.take_twin(now)
    }

    /// Whether any packet may have to leave again because its path is in doubt.
    pub(crate) fn may_rescue(&self) -> bool {
        !self.live.recent.is_empty() && !self.ablation.is_off(Heuristic::Rescue)
    }

    /// When the newest packet that left by a path only is of no use any more.
    pub(crate) fn useful_until(&self, path: PathId) -> Option<Instant> {
        self.live.recent.until(path)
    }

    /// Takes out a packet that left just now by the path `from`, and the path by which it leaves
    /// again. What is of no use any more, or has no room there, is forgotten.
    pub(crate) fn take_rescued(&mut self, now: Instant, from: PathId) -> Option<(PathId, Sent)> {
        let other = self.live.choices.iter().find(|choice| choice.path != from).copied();
        while let Some(sent) = self.live.recent.take(from) {
            let (is_of_use, len) = (sent.at + PLAY_OUT > now, sent.frame.len());
            if let Some(other) = other.filter(|other| is_of_use && other.has_room(len))
                && self.live.may_copy(now, len)
            {
                return Some((other.path, sent));
            }
        }
        None
    }
}
