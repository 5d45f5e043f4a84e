//! Loss recovery: which packets are in flight, which of them are lost, and what is sent again.
//!
//! **Decides** when a packet is lost and which lost packet is sent next. `LossRecovery` owns the
//! sent packets of every path and epoch ([`sent_packets`]) and the `queue` of lost ones. A packet
//! is lost in one place, `SentPackets::lose`, for one of four causes (`packet::Cause`), and is
//! handed out to be sent again in one place, `RetransmissionQueue::next`.
//!
//! **Refuses to know** addresses, keys, which paths carry and which connections still need a
//! packet. The caller says which paths a question is about, asks the flow whether the packet that
//! it is handed is still needed, and chooses the path.
//!
//! **Answers.** `LossRecovery::acknowledged` returns what feedback told of a path, or `None` if
//! all of it was known, or no such space is. `lose_late`, `lose_unanswered` and `lose_dead` fill
//! the queue. A packet that the queue drops is counted: `NoRoute` if it is too old or was lost too
//! often, `QueueFull` if there are too many.
//!
//! **Bounds.** [`sent_packets`] bounds packets and bytes of a space, `queue` bytes and attempts;
//! `session` bounds the number of spaces.
//!
//! The other files measure: round trip, delay, delivery rate and loss. `congestion` takes an
//! [`AckSample`] and decides how fast a path is sent on.

pub mod decline;
pub mod delay;
mod delivery;
pub mod feedback;
pub(crate) mod joined;
pub mod large;
pub mod lateness;
pub mod loss;
pub mod packet;
pub(crate) mod queue;
pub mod rate;
pub mod reordering;
pub mod replay;
pub mod rtt;
mod sample;
pub(crate) mod segmented;
pub mod sent_packets;

pub use sample::{AckSample, RateSample};
pub use sent_packets::Acknowledged;

use crate::blocks::Blocks;
use crate::error::Drops;
use crate::id::{EpochId, PathId};
use crate::time::Instant;
use crate::wire::frame::Feedback;
use packet::{Cause, SpaceId};
use queue::RetransmissionQueue;
use rtt::Rtt;
use segmented::Evidence;
use sent_packets::SentPackets;

/// What is in flight to one peer, and what is to be sent again.
#[derive(Debug, Default)]
pub(crate) struct LossRecovery {
    /// Those of the newest keys first.
    spaces: Vec<Space>,
    /// Lost packets, until they are sent again.
    pub(crate) queue: RetransmissionQueue,
}

/// The sent packets of one packet number space.
#[derive(Debug)]
struct Space {
    id: SpaceId,
    /// The path that it sends on; `None` after that was given up.
    path: Option<PathId>,
    packets: SentPackets,
}

impl LossRecovery {
    /// The sent packets of a space, which sends on `path`.
    pub(crate) fn space(&mut self, id: SpaceId, path: PathId) -> &mut SentPackets {
        let place = self.spaces.iter().position(|space| space.id == id).unwrap_or_else(|| {
            let place = self.spaces.iter().rposition(|space| space.id.epoch >= id.epoch);
            let place = place.map_or(0, |before| before + 1);
            self.spaces.insert(place, Space { id, path: None, packets: SentPackets::new(id) });
            place
        });
        let space = &mut self.spaces[place];
        space.path = Some(path);
        &mut space.packets
    }

    /// The sent packets of a path under the keys of an epoch.
    pub(crate) fn sent_on(&self, epoch: EpochId, path: PathId) -> Option<&SentPackets> {
        let mut spaces = self.spaces.iter().filter(|space| space.path == Some(path));
        spaces.find(|space| space.id.epoch == epoch).map(|space| &space.packets)
    }

    /// The path of a space that feedback is about.
    pub(crate) fn path_of(&self, id: SpaceId) -> Option<PathId> {
        self.spaces.iter().find(|space| space.id == id)?.path
    }

    /// Bytes in flight on a path, under whatever keys.
    pub(crate) fn in_flight(&self, path: PathId) -> u64 {
        let spaces = self.spaces.iter().filter(|space| space.path == Some(path));
        spaces.map(|space| space.packets.in_flight()).sum()
    }

    /// Takes the peer's feedback about a space, which came at `came_at`. Returns what it tells that
    /// is new, if anything is. Lost packets are sent again if the path `repairs` its losses.
    pub(crate) fn acknowledged(
        &mut self,
        came_at: Instant,
        (blocks, drops): (&mut Blocks, &mut Drops),
        (epoch, feedback): (EpochId, &Feedback),
        rtt: &mut Rtt,
        repairs: bool,
    ) -> Option<Acknowledged> {
        let id = SpaceId { epoch, serial: feedback.serial };
        let space = self.spaces.iter_mut().find(|space| space.id == id)?;
        let (path, mut lost) = (space.path?, Vec::new());
        let to = repairs.then_some(&mut lost);
        let told = space.packets.acknowledged(came_at, blocks, feedback, rtt, to);
        lost.into_iter().for_each(|lost| self.queue.push(drops, lost));
        Some(Acknowledged { in_flight: self.in_flight(path), ..told? })
    }

    /// Something that left on `path` under the keys of `epoch` has arrived: it overtook everything
    /// that left under earlier keys.
    pub(crate) fn overtake(&mut self, epoch: EpochId, path: PathId) {
        let earlier = self.spaces.iter_mut().filter(|space| space.id.epoch != epoch);
        earlier.filter(|space| space.path == Some(path)).for_each(|it| it.packets.overtaken());
    }

    /// When an overtaken packet counts as lost, on the paths that repair their losses: `rtt_of`
    /// returns the round trip of those.
    pub(crate) fn late_due<'p>(
        &self,
        rtt_of: impl Fn(PathId) -> Option<&'p Rtt>,
    ) -> Option<Instant> {
        let due = |space: &Space| space.packets.late_due(rtt_of(space.path?)?);
        self.spaces.iter().filter_map(due).min()
    }

    /// Packets that were overtaken and have not come in time are lost. Returns whether any was.
    pub(crate) fn lose_late<'p>(
        &mut self,
        now: Instant,
        memory: (&mut Blocks, &mut Drops),
        rtt_of: impl Fn(PathId) -> Option<&'p Rtt>,
    ) -> bool {
        let late = |space: &Space| {
            let rtt = rtt_of(space.path?)?;
            let is_due = space.packets.late_due(rtt).is_some_and(|due| due <= now);
            is_due.then_some(Cause::Late { rtt })
        };
        self.lose(now, memory, late).0 > 0
    }

    /// The path was silent, or had never answered, and answers what it was asked at `asked_at`:
    /// everything that left before is lost. Returns how many bytes that were, and what the compared
    /// runs of datagrams say now.
    pub(crate) fn lose_unanswered(
        &mut self,
        now: Instant,
        memory: (&mut Blocks, &mut Drops),
        (path, asked_at): (PathId, Instant),
    ) -> (u64, Option<Evidence>) {
        let of_path = |space: &Space| space.path == Some(path);
        let (_, bytes) =
            self.lose(now, memory, |it| of_path(it).then_some(Cause::Silence { asked_at }));
        let spaces = self.spaces.iter_mut().filter(|space| of_path(space));
        let evidence = spaces.filter_map(|space| space.packets.take_evidence()).last();
        (bytes, evidence)
    }

    /// The paths of which `is_dead` says so carry nothing: what they owe is sent again.
    pub(crate) fn lose_dead(
        &mut self,
        now: Instant,
        memory: (&mut Blocks, &mut Drops),
        is_dead: impl Fn(PathId) -> bool,
    ) {
        self.lose(now, memory, |space| {
            space.path.filter(|&id| is_dead(id)).map(|_| Cause::DeadPath)
        });
    }

    /// In every space for which there is a cause packets are lost. Returns how many spaces and how
    /// many bytes that were.
    fn lose<'p>(
        &mut self,
        now: Instant,
        (blocks, drops): (&mut Blocks, &mut Drops),
        cause_of: impl Fn(&Space) -> Option<Cause<'p>>,
    ) -> (usize, u64) {
        let (mut spaces, mut bytes, mut lost) = (0, 0, Vec::new());
        for space in &mut self.spaces {
            let Some(cause) = cause_of(space) else { continue };
            spaces += 1;
            bytes += space.packets.lose(now, blocks, cause, Some(&mut lost));
            lost.drain(..).for_each(|lost| self.queue.push(drops, lost));
        }
        (spaces, bytes)
    }

    /// The path has answered by other means than feedback. Feedback that is missing under the keys
    /// of `epoch` no longer counts as silence; with `but_data`, feedback about data still does.
    pub(crate) fn forgive(&mut self, epoch: EpochId, path: PathId, but_data: bool) {
        let of_path = |it: &&mut Space| it.id.epoch == epoch && it.path == Some(path);
        if let Some(space) = self.spaces.iter_mut().find(of_path) {
            space.packets.forgive(but_data);
        }
    }

    /// A path is given up, and its space under the keys of `epoch` may serve another one. The
    /// copies of its packets are forgotten.
    pub(crate) fn park(&mut self, blocks: &mut Blocks, epoch: EpochId, path: PathId) {
        let of_path = |it: &&mut Space| it.id.epoch == epoch && it.path == Some(path);
        if let Some(space) = self.spaces.iter_mut().find(of_path) {
            space.path = None;
            space.packets.forget_copies(blocks);
            space.packets.forgive(false);
        }
    }

    /// Nothing will be sent in these spaces any more, nor is feedback about them taken.
    pub(crate) fn forget_spaces(&mut self, is_over: impl Fn(SpaceId) -> bool) {
        self.spaces.retain(|space| !is_over(space.id));
    }

    /// When there is something to do: a lost packet may have room, or is too old. For sent packets
    /// this matters only if their path `carries` nothing, because feedback settles the others.
    pub(crate) fn due(&self, carries: impl Fn(PathId) -> bool) -> Option<Instant> {
        let is_idle = |space: &&Space| space.path.is_none_or(|path| !carries(path));
        let kept = self.spaces.iter().filter(is_idle).filter_map(|it| it.packets.copies_due());
        kept.chain(self.queue.due()).min()
    }

    /// Forgets packets that are too old to be sent again.
    pub(crate) fn expire(&mut self, now: Instant, blocks: &mut Blocks, drops: &mut Drops) {
        self.queue.expire(now, drops);
        for space in &mut self.spaces {
            if space.packets.copies_due().is_some_and(|due| due <= now) {
                space.packets.forget_copies(blocks);
            }
        }
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
