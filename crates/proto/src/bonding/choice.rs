//! The path of a realtime packet and those of its copies, as far as that is a choice among values.
//!
//! Knows paths by how late they deliver and what they lose, and packets that left and may have to
//! leave once more. Sends nothing: `peer::live` does.
//!
//! There are two bounds. A flow may leave early only up to `EARLY_PART` of the rate of its path,
//! so that it does not bypass the congestion controller for long. And copies have a budget
//! (`COPIES`, `COPIES_PART`).

use std::collections::VecDeque;

use crate::flow::live::{Allowance, LiveFlow, Spent};
use crate::id::EpochId;
use crate::multipath::snapshot::PathSnapshot;
use crate::pack;
use crate::packet::Strength;
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;
use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// How long the receiver of a call waits for a late packet. Later it is of no use.
pub(crate) const PLAY_OUT: Duration = Duration::from_millis(60);
/// A flow stays with its path as long as no other is earlier by more.
const MARGIN: Duration = Duration::from_millis(2);
/// And whatever the others are, if it came to that one only just now: a queue comes and goes.
const DWELL: Duration = Duration::from_millis(500);
/// As much later than the earliest may it be meanwhile.
const DWELL_MARGIN: Duration = Duration::from_millis(20);
/// A gateway answers by the path by which a flow comes if none has come for so long by the one by
/// which it answers.
const FOLLOW: Duration = Duration::from_millis(500);
/// While a path is new to a flow, copies of it leave by another.
const NEW: Duration = Duration::from_millis(500);
/// Copies leave by as many further paths as it takes for fewer than this part of a flow to be lost.
pub(crate) const LOST_PART: f64 = 0.001;
/// What a path in doubt is taken to lose.
const DOUBTFUL_LOSS: f64 = 0.5;
/// A copy by the same path leaves so much later: what loses one datagram often loses the next.
const TWIN_AFTER: Duration = Duration::from_millis(1);
/// And only if every other path is later by more: it is felt, and the twin's own wait is not.
const TWIN_GAIN: Duration = Duration::from_millis(3);
/// Bytes per second of copies: two calls with everything around them, or three questions for a
/// name in every round trip. The first of them may follow one another.
const COPIES: f64 = 32_000.0;
/// Or this part of what all paths carry, if that is more.
const COPIES_PART: f64 = 0.02;
/// The part of what its path carries that a flow may be and leave early,
const EARLY_PART: f64 = 0.5;
/// and bytes beyond that which may follow one another: a picture that begins anew.
const EARLY_BURST: f64 = 64_000.0;
/// The part of what all paths carry that may leave before all that waits: acknowledgements of as
/// much as twenty times that, small datagrams, beginnings,
const HURRY_PART: f64 = 0.5;
/// and bytes beyond that which may follow one another.
const HURRY_BURST: f64 = 64_000.0;
/// Packets that are remembered until they have arrived, or are of no use.
const RECENT_MAX: usize = 64;

/// Realtime packets at one end that were sent, and the budgets for them.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Packets that left by one path only, and may still be of use if that has died.
    pub(super) recent: Recent,
    /// Those of which a copy has yet to follow by the same path.
    pub(super) twins: Recent,
    copies: Spent,
    /// What left before all that waited.
    hurried: Spent,
    /// Room for the choice: the paths that carry, the earliest first.
    pub(super) choices: Vec<Choice>,
}

impl Live {
    /// The paths that carry now.
    pub(super) fn set_choices(&mut self, choices: impl Iterator<Item = Choice>) {
        self.choices.clear();
        self.choices.extend(choices);
        self.choices.sort_by_key(|choice| (choice.is_doubtful, choice.lateness, choice.path));
    }

    /// Whether `len` bytes may leave before all that waits: up to a part of what the paths carry
    /// together, or much that is small would keep the rest from ever leaving.
    pub(super) fn may_hurry(&mut self, now: Instant, carried: f64, len: usize) -> bool {
        let allowance = Allowance { rate: carried * HURRY_PART, burst: HURRY_BURST };
        self.hurried.take(now, allowance, len)
    }

    /// Whether the budget has room for so many more bytes of copies; they count as sent if so.
    pub(super) fn may_copy(&mut self, now: Instant, len: usize) -> bool {
        let carried: f64 = self.choices.iter().map(|choice| choice.rate).sum();
        self.copies.take(now, copies(carried), len)
    }

    /// Whether what left by `way` is followed by a copy: what is lost would be late by any other.
    pub(super) fn has_twin(&self, way: Choice) -> bool {
        let others = self.choices.iter().filter(|choice| choice.path != way.path);
        let soonest =
            others.filter(|choice| !choice.is_doubtful).map(|choice| choice.lateness).min();
        let is_late = soonest.is_none_or(|soonest| soonest > way.lateness + TWIN_GAIN);
        way.loss > LOST_PART && !way.is_doubtful && is_late
    }

    /// When the next copy by the same path is due.
    pub(super) fn twin_due(&self) -> Option<Instant> {
        self.twins.packets.front().map(|sent| sent.at + TWIN_AFTER)
    }

    /// Takes out a packet of which a copy is due by the same path.
    pub(super) fn take_twin(&mut self, now: Instant) -> Option<Sent> {
        self.twin_due().filter(|&due| due <= now).and_then(|_| self.twins.packets.pop_front())
    }
}

/// A path as far as the choice goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(super) path: PathId,
    /// How much later than by the shortest a packet arrives.
    pub(super) lateness: Duration,
    /// Part of what leaves by it that is lost.
    pub(super) loss: f64,
    /// It owes an answer.
    pub(super) is_doubtful: bool,
    /// Bytes per second.
    pub(super) rate: f64,
    /// Bytes of inner packet and frame header that fit a datagram.
    pub(super) room: usize,
}

/// Packets that have left, and may have to once more.
#[derive(Debug, Default)]
pub(super) struct Recent {
    packets: VecDeque<Sent>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(super) at: Instant,
    /// The path that it left by.
    pub(crate) path: PathId,
    /// The epoch in whose sequence it has its place.
    pub(crate) epoch: Option<EpochId>,
    /// The strength that its flow asks for.
    pub(crate) strength: Strength,
    /// Its frame.
    pub(crate) frame: Vec<u8>,
}

impl Recent {
    /// Remembers a packet, in the room of one that is of no use any more.
    pub(super) fn push(
        &mut self,
        now: Instant,
        (path, epoch, strength): (PathId, Option<EpochId>, Strength),
        framing: Framing,
        packet: Pieces<'_>,
    ) {
        let useless = |sent: &&mut Sent| now.saturating_since(sent.at) > PLAY_OUT;
        let is_full = self.packets.len() >= RECENT_MAX;
        let mut frame = match self.packets.front_mut().filter(|sent| is_full || useless(sent)) {
            Some(_) => self.packets.pop_front().map(|sent| sent.frame).unwrap_or_default(),
            None => Vec::new(),
        };
        frame.clear();
        pack::append(framing, packet, &mut frame);
        self.packets.push_back(Sent { at: now, path, epoch, strength, frame });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// When the newest that left by a path is of no use any more.
    pub(super) fn until(&self, path: PathId) -> Option<Instant> {
        let newest = self.packets.iter().rev().find(|sent| sent.path == path);
        newest.map(|sent| sent.at + PLAY_OUT)
    }

    /// Takes out the oldest that left by a path.
    pub(super) fn take(&mut self, path: PathId) -> Option<Sent> {
        let place = self.packets.iter().position(|sent| sent.path == path)?;
        self.packets.remove(place)
    }
}

impl Choice {
    /// The path of `way`, which loses the part `loss` of what leaves by it. It `is_doubtful` while
    /// it owes an answer.
    pub(crate) fn new(
        now: Instant,
        way: &PathSnapshot,
        path: &Path,
        loss: f64,
        is_doubtful: bool,
    ) -> Self {
        Self {
            path: way.path,
            lateness: way.delay + path.delay.queue(now).unwrap_or_default(),
            loss,
            is_doubtful,
            rate: way.rate(),
            room: path.mtu.datagram() - OVERHEAD,
        }
    }

    /// Its name.
    pub(crate) const fn path(&self) -> PathId {
        self.path
    }

    /// Whether a datagram has room for a frame of `len` bytes.
    pub(crate) const fn has_room(&self, len: usize) -> bool {
        len <= self.room
    }

    /// What a flow may be and leave by it before all that waits.
    pub(super) fn early(&self) -> Allowance {
        Allowance { rate: self.rate * EARLY_PART, burst: EARLY_BURST }
    }

    /// Which part of what leaves by it will be lost.
    pub(crate) fn expected_loss(&self, is_new: bool) -> f64 {
        if self.is_doubtful || is_new { self.loss.max(DOUBTFUL_LOSS) } else { self.loss }
    }
}

/// The budget of copies where all paths together carry so many bytes a second.
fn copies(carried: f64) -> Allowance {
    let most = COPIES.max(carried * COPIES_PART);
    Allowance { rate: most, burst: most }
}

/// The path by which a packet of `flow` leaves, and whether that has just changed.
pub(super) fn choose(
    now: Instant,
    flow: &mut LiveFlow,
    follows: bool,
    choices: &[Choice],
) -> Option<(PathId, bool)> {
    let earliest = choices.first()?;
    let recent = |at: Instant| now.saturating_since(at) < FOLLOW;
    let came = flow.came.filter(|&(_, at)| follows && recent(at)).map(|(path, _)| path);
    let is_answered = flow.came_back_at.is_some_and(recent);
    let own = flow.leaves.filter(|_| is_answered || came.is_none());
    let is_changed = |since: Duration| {
        flow.changed_at.is_some_and(|changed| now.saturating_since(changed) < since)
    };
    let margin = if own.is_some() && is_changed(DWELL) { DWELL_MARGIN } else { MARGIN };
    let wanted = own.or(came).and_then(|path| choices.iter().find(|choice| choice.path == path));
    let stays = wanted.filter(|choice| {
        let is_sound = !choice.is_doubtful || earliest.is_doubtful;
        is_sound && choice.lateness <= earliest.lateness + margin
    });
    let path = stays.map_or_else(|| least_lossy(choices), |choice| choice.path);
    let is_new = match flow.leaves {
        Some(before) if before == path => is_changed(NEW),
        Some(_) => {
            flow.changed_at = Some(now);
            true
        }
        // Nothing says that the first path of a flow is worse than others.
        None => false,
    };
    if flow.leaves != Some(path) {
        flow.leaves = Some(path);
        flow.came_back_at = flow.came.filter(|&(by, _)| by == path).map(|(_, at)| at);
    }
    Some((path, is_new))
}

/// Of the paths that are as early as the earliest, as far as is felt, one that loses hardly any.
fn least_lossy(choices: &[Choice]) -> PathId {
    let earliest = choices[0];
    let as_early = choices.iter().filter(|choice| {
        choice.is_doubtful == earliest.is_doubtful && choice.lateness <= earliest.lateness + MARGIN
    });
    // Of those that all need copies the earliest is as good as any.
    let rank = |choice: &&Choice| (choice.loss > LOST_PART, choice.lateness);
    as_early.min_by_key(rank).map_or(earliest.path, |choice| choice.path)
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
