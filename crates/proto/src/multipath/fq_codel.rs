//! The tunnel's entry: inner packets that wait for a turn while the paths are full.
//!
//! Each bucket of flows has a queue of its own. They take turns by bytes, as many as the level of
//! its packets has, and one in which nothing waited goes before those in which something did, once
//! (deficit round robin with new and old queues, RFC 8290, 4; Shreedhar and Varghese 1996): who
//! sends little never waits for who sends much, and who does not send costs nobody anything. How
//! long each may stand, CoDel sees to. What finds no room costs the fullest queue its oldest
//! packet, and what nobody waits for any more goes.
//!
//! Of a packet it reads the bucket and the level in its record. Whoever pushes says which bound.

use std::collections::VecDeque;

use super::bucket::BUCKETS;
use super::codel::{Bound, Codel, Sentence};
use crate::blocks::Blocks;
use crate::blocks::parcel::{PACKET_MAX, Parcel};
use crate::packet::{Level, PacketRecord};
use crate::time::{Duration, Instant};
use crate::wire::ecn;
use crate::wire::inner::{MAX_PACKET, Pieces};

/// Bytes that may wait in all, with what is remembered of each packet: what 1 Gbit/s brings in
/// 60 ms.
pub const BYTES_MAX: usize = 8 << 20;
/// And packets: each lies in room for a full one, so these take 12 MB however short they are.
pub(crate) const PACKETS_MAX: usize = 1 << 13;
/// Bytes of a bucket's turn: two full packets, the fewest that can be sent as one run.
pub(crate) const QUANTUM: u16 = 3_000;
/// How long a packet may wait: after this its sender has sent it again, or gave up.
pub const WAIT_MAX: Duration = Duration::from_secs(3);
/// Packets that one call of [`FqCodel::expire`] drops at most.
pub(crate) const EXPIRED_MAX: usize = 256;
/// When there were more, the rest follows after this.
const EXPIRED_EVERY: Duration = Duration::from_millis(1);
/// How long an entry in which nothing waits remembers its buckets: longer than CoDel looks back.
const REST_TIME: Duration = Duration::from_secs(10);
/// A bucket in which nothing waits remembers no more than so many packets' places.
const RESTING_SLOTS: usize = 16;

const _: () = assert!(MAX_PACKET <= PACKET_MAX);
const _: () = assert!(QUANTUM as usize == 2 * MAX_PACKET);
const _: () = assert!(size_of::<Slot>() <= 40 && size_of::<Bucket>() <= 256);

/// The queues of one session.
#[derive(Clone, Debug, Default)]
pub struct FqCodel {
    /// None at all, or [`BUCKETS`], each there once it was needed.
    buckets: Vec<Option<Box<Bucket>>>,
    /// Whose turn comes first, because nothing of theirs waited before,
    new: VecDeque<u8>,
    /// and next.
    old: VecDeque<u8>,
    /// Packets that wait,
    len: usize,
    /// and their bytes.
    bytes: usize,
    /// Not later than when the oldest packet has waited for too long, or, if there is none, when
    /// the buckets are to be forgotten.
    due: Option<Instant>,
    dropped: u64,
    marked: u64,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    /// Bytes of its packets.
    bytes: usize,
    slots: VecDeque<Slot>,
    codel: Codel,
    bound: Option<Bound>,
    /// What is left of its turn; less than nothing if its last packet was longer.
    deficit: i32,
    /// Whether it is among those that take turns.
    has_turn: bool,
}

/// A packet that waits.
#[derive(Clone, Debug)]
struct Slot {
    record: PacketRecord,
    arrived: Instant,
    packet: Parcel,
}

impl FqCodel {
    /// Queues a packet. From now on its bucket stands no longer than `bound` says. Returns how many
    /// packets were dropped for it: the oldest of the fullest buckets, or itself if it is none
    /// that a tunnel carries.
    pub fn push(
        &mut self,
        blocks: &mut Blocks,
        now: Instant,
        record: PacketRecord,
        packet: Pieces<'_>,
        bound: Bound,
    ) -> u64 {
        let len = packet.len();
        if !is_carried(len) {
            return 1;
        }
        let mut dropped = 0;
        let needed = len + size_of::<Slot>();
        while (self.weight() + needed > BYTES_MAX || self.len >= PACKETS_MAX)
            && self.drop_of_fullest(blocks)
        {
            dropped += 1;
        }
        let parcel = blocks.parcel((packet.head, packet.tail), packet.checksum);
        let Some(packet) = parcel else { return dropped + 1 };
        if self.len == 0 {
            self.due = Some(now + WAIT_MAX);
        }
        self.len += 1;
        self.bytes += len;
        self.buckets.resize(BUCKETS, None);
        let queue = self.buckets[usize::from(record.bucket)].get_or_insert_default();
        queue.bytes += len;
        queue.slots.push_back(Slot { record, arrived: now, packet });
        queue.bound = Some(bound);
        if !queue.has_turn {
            queue.has_turn = true;
            queue.deficit = queue.turn();
            self.new.push_back(record.bucket);
        }
        dropped
    }

    /// Takes the next packet out, by turn; it may carry a mark now. `None` when none waits.
    pub fn pop(&mut self, blocks: &mut Blocks, now: Instant) -> Option<(PacketRecord, Parcel)> {
        loop {
            let is_new = !self.new.is_empty();
            let turns = if is_new { &mut self.new } else { &mut self.old };
            let &bucket = turns.front()?;
            let queue = self.buckets.get_mut(usize::from(bucket))?.as_mut()?;
            if queue.deficit <= 0 {
                queue.deficit += queue.turn();
                turns.pop_front();
                self.old.push_back(bucket);
                continue;
            }
            if let Some(Slot { record, packet, .. }) = self.take_fit(blocks, now, bucket) {
                return Some((record, packet));
            }
            self.end_turn(bucket, is_new);
        }
    }

    /// Packets that were dropped because they waited for too long, since it was asked last. What
    /// [`Self::push`] told of is not among them.
    pub(crate) const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    /// Packets that were marked since it was asked last.
    #[cfg(test)]
    pub(crate) const fn take_marked(&mut self) -> u64 {
        std::mem::replace(&mut self.marked, 0)
    }

    /// Whether no packet waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the packets that wait.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a packet of this bucket waits.
    pub fn waits(&self, bucket: u8) -> bool {
        let queue = self.buckets.get(usize::from(bucket)).and_then(Option::as_ref);
        queue.is_some_and(|queue| !queue.slots.is_empty())
    }

    /// Bytes that wait in this bucket.
    pub fn queued(&self, bucket: u8) -> usize {
        let queue = self.buckets.get(usize::from(bucket)).and_then(Option::as_ref);
        queue.map_or(0, |queue| queue.bytes)
    }

    /// How long the packets of this bucket may stand, if any waited lately.
    pub fn bound(&self, bucket: u8) -> Option<Bound> {
        self.buckets.get(usize::from(bucket))?.as_ref()?.bound
    }

    /// When [`Self::expire`] is to be called again.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Drops what has waited for [`WAIT_MAX`], at most `EXPIRED_MAX` packets at a time, and
    /// forgets the buckets when nothing waited for a while. To be called when it is due.
    pub fn expire(&mut self, blocks: &mut Blocks, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        if self.len == 0 {
            *self = Self { dropped: self.dropped, marked: self.marked, ..Self::default() };
            return;
        }
        let mut left = EXPIRED_MAX;
        let mut oldest = Instant::from_nanos(u64::MAX);
        for bucket in 0..=u8::MAX {
            while let Some(arrived) = self.oldest(bucket) {
                if left == 0 || now.saturating_since(arrived) < WAIT_MAX {
                    oldest = oldest.min(arrived);
                    break;
                }
                self.drop_head(blocks, bucket);
                self.dropped += 1;
                left -= 1;
            }
        }
        let next = if left == 0 { now + EXPIRED_EVERY } else { oldest + WAIT_MAX };
        self.due = Some(if self.len == 0 { now + REST_TIME } else { next });
    }

    /// Drops what waits of which `is_useless` says so, and counts none of it.
    pub fn forget(
        &mut self,
        blocks: &mut Blocks,
        mut is_useless: impl FnMut(PacketRecord, &[u8]) -> bool,
    ) {
        for bucket in self.buckets.iter_mut().flatten() {
            for _ in 0..bucket.slots.len() {
                let Some(slot) = bucket.slots.pop_front() else { break };
                if is_useless(slot.record, slot.packet.packet()) {
                    let len = slot.packet.len();
                    (bucket.bytes, self.bytes, self.len) =
                        (bucket.bytes - len, self.bytes - len, self.len - 1);
                    blocks.discard(slot.packet);
                } else {
                    bucket.slots.push_back(slot);
                }
            }
        }
    }

    /// Drops everything and forgets the buckets. Returns how many packets that were, with those
    /// dropped before that nobody asked about.
    pub fn clear(&mut self, blocks: &mut Blocks) -> usize {
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.slots.drain(..).for_each(|slot| blocks.discard(slot.packet));
        }
        let Self { len, dropped, .. } = std::mem::take(self);
        len + usize::try_from(dropped).unwrap_or(usize::MAX)
    }

    /// The first packet of a bucket that goes on; before it all that is dropped.
    fn take_fit(&mut self, blocks: &mut Blocks, now: Instant, bucket: u8) -> Option<Slot> {
        loop {
            let queue = self.buckets[usize::from(bucket)].as_deref_mut()?;
            let Bucket { bytes, slots, codel, bound, deficit, .. } = queue;
            let slot = slots.front_mut()?;
            let waited = now.saturating_since(slot.arrived);
            let behind = *bytes - slot.packet.len();
            let sentence = codel.judge(now, waited, behind, bound.unwrap_or(Bound::SHORT));
            let goes_on = waited < WAIT_MAX
                && match sentence {
                    Sentence::Pass => true,
                    Sentence::Tell => {
                        let is_marked = ecn::mark(slot.packet.packet_mut());
                        self.marked += u64::from(is_marked);
                        is_marked
                    }
                    Sentence::Drop => false,
                };
            if goes_on {
                *deficit -= slot.len();
            }
            let slot = self.take_head(bucket)?;
            if self.len == 0 {
                self.due = Some(now + REST_TIME);
            }
            if goes_on {
                return Some(slot);
            }
            blocks.discard(slot.packet);
            self.dropped += 1;
        }
    }

    /// A bucket in which nothing is left loses its turn; but not before all others had theirs, or
    /// it would go first for ever by sending one packet at a time.
    fn end_turn(&mut self, bucket: u8, is_new: bool) {
        let turns = if is_new { &mut self.new } else { &mut self.old };
        turns.pop_front();
        if is_new && !self.old.is_empty() {
            self.old.push_back(bucket);
        } else if let Some(queue) = &mut self.buckets[usize::from(bucket)] {
            queue.has_turn = false;
        }
    }

    /// Drops the oldest packet of the bucket with the most bytes (RFC 8290, 4.1).
    fn drop_of_fullest(&mut self, blocks: &mut Blocks) -> bool {
        let bytes = |&bucket: &u8| {
            let queue = self.buckets.get(usize::from(bucket)).and_then(Option::as_ref);
            queue.map_or(0, |queue| queue.bytes)
        };
        let fullest = self.new.iter().chain(&self.old).copied().max_by_key(bytes);
        fullest.is_some_and(|bucket| self.drop_head(blocks, bucket))
    }

    /// When the first packet of a bucket came.
    fn oldest(&self, bucket: u8) -> Option<Instant> {
        let queue = self.buckets.get(usize::from(bucket))?.as_ref()?;
        queue.slots.front().map(|slot| slot.arrived)
    }

    /// Forgets the first packet of a bucket; `false` when there is none.
    fn drop_head(&mut self, blocks: &mut Blocks, bucket: u8) -> bool {
        let slot = self.take_head(bucket);
        slot.map(|slot| blocks.discard(slot.packet)).is_some()
    }

    /// Takes the first packet of a bucket out.
    fn take_head(&mut self, bucket: u8) -> Option<Slot> {
        let queue = self.buckets.get_mut(usize::from(bucket))?.as_mut()?;
        let slot = queue.slots.pop_front()?;
        if queue.slots.is_empty() {
            queue.slots.shrink_to(RESTING_SLOTS);
        }
        queue.bytes -= slot.packet.len();
        self.len -= 1;
        self.bytes -= slot.packet.len();
        Some(slot)
    }

    /// Bytes of the packets and of what is remembered of each.
    const fn weight(&self) -> usize {
        self.bytes + self.len * size_of::<Slot>()
    }
}

impl Bucket {
    /// Bytes of its turn, as the packet has it that is next.
    fn turn(&self) -> i32 {
        let level = self.slots.front().map(|slot| slot.record.level).unwrap_or_default();
        (QUANTUM / Level::default().weight() * level.weight()).into()
    }
}

impl Slot {
    /// Bytes of the packet, as a turn counts them.
    fn len(&self) -> i32 {
        i32::try_from(self.packet.len()).unwrap_or(i32::MAX)
    }
}

/// Whether the tunnel carries packets of this length.
fn is_carried(len: usize) -> bool {
    (1..=MAX_PACKET).contains(&len)
}

#[cfg(test)]
#[path = "fq_codel_tests.rs"]
mod tests;
