//! The epochs of one session (docs/spec/wire.md#5-epochs).
//!
//! There is one that it sends under, perhaps the one before it, still received for a while, and on
//! the responder those that a handshake made and nobody used yet: a handshake replaces nothing
//! until a datagram under its keys arrives.
//!
//! Decides which of them is sent under, which are received under and when one is forgotten, and
//! what waits in one for the end of another. Knows nothing of handshakes.

use std::net::IpAddr;

use super::epoch::{Epoch, REKEY_TIME_WITHOUT_INDICES};
use super::index::{EpochId, IndexTable};
use crate::error::Drops;
use crate::id::PathSerial;
use crate::multipath::path_queues::Numbered;
use crate::packet::Instance;
use crate::path::{Path, PathId};
use crate::recovery::packet::SpaceId;
use crate::recovery::sent_packets::SentPackets;
use crate::time::{Duration, Instant};
use crate::wire::control::Control;
use crate::wire::frame::Framing;

/// Unused epochs of answered handshakes for each peer: as many as the candidates that a client
/// races. It uses the first one that is answered.
pub const PENDING_MAX: usize = 16;
/// How long the epoch before the current one is still received.
pub(crate) const PREVIOUS_TIME: Duration = Duration::from_secs(15);
/// How long an answered handshake may stay unused.
pub(crate) const PENDING_TIME: Duration = Duration::from_secs(15);

// The keys before are forgotten long before there are others again.
const _: () = assert!(REKEY_TIME_WITHOUT_INDICES.as_secs() >= 2 * PREVIOUS_TIME.as_secs());

/// The epochs of one session.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    pub(crate) current: Option<Epoch>,
    previous: Option<Previous>,
    pending: Vec<Epoch>,
    /// Since when there are keys without interruption.
    established: Option<Instant>,
    /// When the peer last showed that it has keys.
    heard_at: Instant,
}

/// The epoch before the current one: what left under its keys is told of and repaired under them.
#[derive(Debug)]
struct Previous {
    epoch: Epoch,
    /// When it is forgotten.
    due: Instant,
    /// Whether the peer has said something under its keys since there are others: it has them
    /// still. One that was restarted has not, and what leaves under them is for nothing.
    is_heard: bool,
    /// Whether something was sent under them to find out.
    is_tried: bool,
}

/// Which of the epochs a datagram belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Current,
    Previous,
    Pending,
}

/// An answer that the peer owes by a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    /// Since when.
    pub(crate) since: Instant,
    /// When it last told what had arrived by it.
    pub(crate) told_at: Option<Instant>,
}

impl Epochs {
    pub(crate) fn find(&mut self, id: EpochId) -> Option<(&mut Epoch, Standing)> {
        if let Some(epoch) = self.current.as_mut().filter(|epoch| epoch.id == id) {
            return Some((epoch, Standing::Current));
        }
        if let Some(previous) = self.previous.as_mut().filter(|it| it.epoch.id == id) {
            return Some((&mut previous.epoch, Standing::Previous));
        }
        let pending = self.pending.iter_mut().find(|epoch| epoch.id == id)?;
        Some((pending, Standing::Pending))
    }

    /// The next control message under the keys of the epoch `id`, if its turn has come. One that is
    /// damaged is skipped.
    pub(crate) fn message(
        &mut self,
        id: EpochId,
        drops: &mut Drops,
    ) -> Option<(Control, Standing)> {
        let (epoch, standing) = self.find(id)?;
        loop {
            match Control::parse(&epoch.control.poll()?) {
                Ok(message) => return Some((message, standing)),
                Err(reason) => drops.count(reason),
            }
        }
    }

    /// A handshake was answered: its epoch waits for its first datagram.
    pub(crate) fn add_pending(&mut self, epoch: Epoch, table: &mut IndexTable) {
        if self.pending.len() >= PENDING_MAX {
            table.revoke(self.pending.remove(0).own_indices());
        }
        self.pending.push(epoch);
    }

    /// The pending epoch `id` was used: it becomes the current one. Pending epochs that are older
    /// are revoked, because the peer has given them up. Returns whether there was no session
    /// before.
    pub(crate) fn confirm(&mut self, now: Instant, id: EpochId, table: &mut IndexTable) -> bool {
        let place = self.pending.iter().position(|epoch| epoch.id == id);
        let Some(place) = place else { return false };
        let mut rest = self.pending.split_off(place);
        let epoch = rest.remove(0);
        for older in std::mem::replace(&mut self.pending, rest) {
            table.revoke(older.own_indices());
        }
        self.install(now, epoch, table)
    }

    /// Sends under `epoch` from now on. Returns whether there was no session before.
    pub(crate) fn install(&mut self, now: Instant, epoch: Epoch, table: &mut IndexTable) -> bool {
        if let Some(oldest) = self.previous.take() {
            table.revoke(oldest.epoch.own_indices());
        }
        self.previous = self.current.replace(epoch).map(|epoch| {
            let due = now + PREVIOUS_TIME;
            Previous { epoch, due, is_heard: false, is_tried: false }
        });
        self.heard_at = now;
        let first = self.established.is_none();
        self.established.get_or_insert(now);
        first
    }

    /// Since when there are keys without interruption, and when the peer last showed that it has
    /// them; `None` while there is no session.
    pub(crate) fn established(&self) -> Option<(Instant, Instant)> {
        self.established.map(|since| (since, self.heard_at))
    }

    /// When an epoch falls due to be forgotten.
    pub(crate) fn due(&self) -> Option<Instant> {
        let pending = self.pending.iter().map(|epoch| epoch.since + PENDING_TIME);
        pending.chain(self.previous.as_ref().map(|previous| previous.due)).min()
    }

    /// Forgets what is due.
    pub(crate) fn expire(&mut self, now: Instant, table: &mut IndexTable) {
        if let Some(old) = self.previous.take_if(|previous| previous.due <= now) {
            table.revoke(old.epoch.own_indices());
        }
        self.pending.retain(|epoch| {
            let keep = epoch.since + PENDING_TIME > now;
            if !keep {
                table.revoke(epoch.own_indices());
            }
            keep
        });
    }

    /// The epoch before the current one.
    pub(crate) fn previous(&self) -> Option<&Epoch> {
        self.previous.as_ref().map(|previous| &previous.epoch)
    }

    /// A datagram was opened with the keys of the epoch `id`. Returns whether it is the first one
    /// under the previous keys since there are current ones.
    pub(crate) fn hear(&mut self, now: Instant, id: EpochId) -> bool {
        self.heard_at = now;
        let previous = self.previous.as_mut().filter(|previous| previous.epoch.id == id);
        previous.is_some_and(|previous| !std::mem::replace(&mut previous.is_heard, true))
    }

    /// Whether a packet that was lost under the keys of the epoch `id` may leave under them again;
    /// `None` if the keys are gone. The peer may have lost the previous keys: until something
    /// arrives under them, one repair leaves to find that out ([`Self::note_repair`]).
    pub(crate) fn may_repair(&self, id: EpochId) -> Option<bool> {
        if self.current.as_ref().is_some_and(|epoch| epoch.id == id) {
            return Some(true);
        }
        let previous = self.previous.as_ref().filter(|previous| previous.epoch.id == id)?;
        Some(previous.is_heard || !previous.is_tried)
    }

    /// A repair has left under the keys of the epoch `id`.
    pub(crate) fn note_repair(&mut self, id: EpochId) {
        if let Some(previous) = self.previous.as_mut().filter(|it| it.epoch.id == id) {
            previous.is_tried = true;
        }
    }

    /// By which name the peer knows the epoch before the current one, and how many packets of
    /// `bucket` have their place in its sequence, if any have.
    pub(crate) fn ended(&self, bucket: u8) -> Option<(u16, u16)> {
        self.previous()?.end_of(bucket)
    }

    /// Holds back `bucket` under the keys of `id` until the first `end` packets of its sequence in
    /// the previous epoch, which the peer calls `name`, were delivered or given up.
    pub(crate) fn follow(&mut self, id: EpochId, bucket: u8, name: u16, end: u16) {
        if let (Some(previous), Some(current)) = (&self.previous, &mut self.current)
            && current.id == id
            && previous.epoch.is_called(name)
            && !previous.epoch.reorder.has_reached(bucket, end)
        {
            current.reorder.follow(bucket, end);
        }
    }

    /// Lets go on in the current epoch what waits for nothing in the one before. Returns the
    /// current one's name, if there are both.
    pub(crate) fn go_on(&mut self) -> Option<EpochId> {
        let (previous, current) = (&self.previous.as_ref()?.epoch, self.current.as_mut()?);
        current.reorder.go_on(|bucket, end| previous.reorder.has_reached(bucket, end));
        Some(current.id)
    }

    /// Nothing more will come under the previous keys: no packet waits for that, under these or the
    /// current ones. Returns the previous epoch, if there is one, whose packets may be handed out.
    pub(crate) fn end_previous(&mut self) -> Option<EpochId> {
        let (previous, current) = (&mut self.previous.as_mut()?.epoch, self.current.as_mut()?);
        previous.reorder.give_up();
        current.reorder.go_on(|_, _| true);
        Some(previous.id)
    }

    /// Whether there are no keys, or they are old.
    pub(crate) fn need_keys(&self, now: Instant) -> bool {
        self.current.as_ref().is_none_or(|epoch| epoch.wants_rekey(now))
    }

    /// The epoch that is sent under.
    pub(crate) fn id(&self) -> Option<EpochId> {
        self.current.as_ref().map(|epoch| epoch.id)
    }

    /// Whether something can be sealed for `path`, one of so many `paths`: new keys come with a few
    /// indices, and more of them a round trip later.
    pub(crate) fn has_lane(&self, path: &Path, paths: usize) -> bool {
        let has = |epoch: &Epoch| epoch.tx.len() >= paths || epoch.has_lane_for(path);
        self.current.as_ref().is_some_and(has)
    }

    /// A number by which copies of a packet of `bucket` are recognised.
    pub(crate) fn number_once(&mut self, bucket: u8) -> Option<Framing> {
        Some(self.current.as_mut()?.numbers.once(bucket))
    }

    /// The epoch in whose sequence a packet has its place, and the framing with that place. The
    /// first packet of a sequence names the sequence before. If `path` has no packet number space
    /// under earlier keys, the packet gets a place under the current ones.
    pub(crate) fn place_of(
        &mut self,
        path: Option<&Path>,
        packet: Numbered,
    ) -> Option<(EpochId, Framing)> {
        let Numbered { record, mut sequence, is_earlier } = packet;
        let bucket = record.bucket;
        if is_earlier {
            let seals = |it: &(&Epoch, &Path)| it.0.has_lane_for(it.1);
            if let Some((epoch, _)) = self.previous().zip(path).filter(seals) {
                return Some((epoch.id, Framing::InOrder { bucket, sequence }));
            }
            let is_one = record.instance == Instance::Only;
            let current = self.current.as_mut().filter(|_| is_one)?;
            sequence = current.numbers.in_order(bucket);
        }
        let before = if sequence == 0 { self.ended(bucket) } else { None };
        let first = |(epoch, end)| Framing::First { bucket, epoch, end };
        Some((self.id()?, before.map_or(Framing::InOrder { bucket, sequence }, first)))
    }

    /// The path that this end sends on with `serial`.
    pub(crate) fn path_of(&self, serial: PathSerial) -> Option<PathId> {
        let lanes = self.current.iter().flat_map(|epoch| &epoch.tx);
        lanes.into_iter().find(|lane| lane.seal.serial == serial).map(|lane| lane.path)
    }

    /// Client: the gateway is sought first at these addresses, one of each family.
    pub(crate) const fn set_home(&mut self, home: Option<[Option<IpAddr>; 2]>) {
        if let (Some(epoch), Some(home)) = (&mut self.current, home) {
            epoch.set_home(home);
        }
    }

    /// What the peer owes by `path` under the current keys, of the packets `sent` on it, if it owes
    /// anything.
    pub(crate) fn debt(&self, path: &Path, sent: Option<&SentPackets>) -> Option<Debt> {
        let (since, told_at) = match sent {
            Some(sent) => (sent.unanswered_since(), sent.told_at()),
            None if self.current.as_ref()?.has_lane_for(path) => (None, None),
            // No index is left: what it is asked does not leave, and nobody will answer.
            None => (path.probes.asking_since(), None),
        };
        Some(Debt { since: since?, told_at })
    }

    /// Whether nothing is sent in this packet number space any more: its epoch or its lane is gone.
    pub(crate) fn is_over(&self, space: SpaceId) -> bool {
        let mut epochs = self.all_receiving().chain(&self.pending);
        !epochs.any(|epoch| epoch.id == space.epoch && epoch.has_lane(space.serial))
    }

    /// The epoch that stands so, if a gap in one of its sequences is to be given up.
    pub(crate) fn gap_due(&self, now: Instant, standing: Standing) -> Option<EpochId> {
        let epoch = match standing {
            Standing::Current => self.current.as_ref(),
            Standing::Previous => self.previous(),
            Standing::Pending => None,
        };
        let due = |epoch: &&Epoch| epoch.reorder.due().is_some_and(|due| due <= now);
        epoch.filter(due).map(|epoch| epoch.id)
    }

    /// Every epoch that still receives.
    pub(crate) fn receiving(&mut self) -> impl Iterator<Item = &mut Epoch> {
        self.current.iter_mut().chain(self.previous.iter_mut().map(|previous| &mut previous.epoch))
    }

    /// The same, to look at.
    pub(crate) fn all_receiving(&self) -> impl Iterator<Item = &Epoch> {
        self.current.iter().chain(self.previous())
    }

    /// Whether there are no keys.
    pub(crate) const fn is_empty(&self) -> bool {
        self.current.is_none() && self.previous.is_none() && self.pending.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, table: &mut IndexTable) {
        let Self { current, previous, pending, .. } = std::mem::take(self);
        for epoch in current.into_iter().chain(previous.map(|it| it.epoch)).chain(pending) {
            table.revoke(epoch.own_indices());
        }
    }
}
