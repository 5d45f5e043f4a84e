//! The tunnel's exit: inner packets of one flow that came by several paths become a sequence again.
//!
//! What is next in its bucket goes on at once; what came before its turn is kept until what is
//! missing has come, or until the first that came after the gap has waited for as long as it may.
//! Then the gap is given up: what belongs there goes on all the same when it comes, late, and
//! nothing goes on twice. A gap never holds what is of another bucket.
//! The receiver does not wait for numbers that the sender has abandoned.
//!
//! A sequence may follow another, that of the keys before: then nothing of it goes on before all of
//! the other has, or what came first has waited for as long as it may.
//!
//! Packets that are delivered as they arrive have sequences of their own in the same buckets. These
//! sequences only tell copies apart. With one sequence for both, a bulk flow would wait for a lost
//! packet of a call.
//!
//! Knows neither paths nor round trips: whoever hands a packet in says how long it may wait.
//!
//! The bytes of a bucket lie in one queue in the order in which they came, beside a list of them in
//! the order of their turns. Each path delivers nearly in order, so a new one is put at or near the
//! end of that list, and the oldest bytes are needed first: no packet has memory of its own. Where
//! they are not, what was delivered before them stays until they go, and counts.

use std::collections::VecDeque;

use super::abandoned::Abandoned;
use super::bucket::BUCKETS;
use super::progress::{HALF, Progress};
use crate::blocks::{Blocks, Queue};
use crate::packet::Checksum;
use crate::time::{Duration, Instant};
use crate::wire::frame::{Framing, expand_sequence};
use crate::wire::inner::{MAX_PACKET, Pieces};

/// Bytes that may be kept in all, with what is remembered of each packet: what two paths of
/// 1 Gbit/s deliver in 64 ms. One packet more may be kept until [`Reorder::next`] is asked.
pub const BYTES_MAX: usize = 16 << 20;
/// Bytes that one bucket may keep: no single flow takes everything.
pub(crate) const BUCKET_BYTES_MAX: usize = BYTES_MAX / 2;
/// Numbers behind the next one of a bucket of which it is known whether they were delivered: more
/// than the full packets for which a bucket has room, so what was given up for want of room is late
/// when it comes and not lost.
pub const WINDOW: u32 = 1 << 13;
/// The same of a bucket whose packets are delivered as they arrive: copies arrive within a round
/// trip, and realtime flows are slow.
const ONCE_WINDOW: usize = 128;
/// Packets that one bucket may keep: a place is found among them with each that does not come in
/// turn.
const PLACES_MAX: usize = 2 * WINDOW as usize;
/// And with those that were delivered since the first of them came.
const ARRIVALS_MAX: usize = 2 * PLACES_MAX;
/// A bucket that keeps nothing remembers no more than so many packets' places.
const RESTING_PLACES: usize = 32;

/// How long a gap is held open at most: for a repair by a geostationary satellite.
pub const HOLD_MAX: Duration = Duration::from_millis(2_200);

const _: () = assert!(size_of::<Place>() <= 16 && size_of::<Arrival>() <= 24);
const _: () = assert!(WINDOW as usize >= BUCKET_BYTES_MAX / MAX_PACKET);
// What a session keeps of buckets that were used once: with windows and resting places.
const _: () = assert!(
    BUCKETS * (size_of::<Bucket>() + WINDOW as usize / 8 + RESTING_PLACES * 40) <= 640 * 1_024
);

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is next: it is to be delivered, and after it what [`Reorder::next`] gives out.
    Deliver,
    /// It came before its turn; its bytes are kept.
    Kept,
    /// Its turn was given up: it is to be delivered out of order.
    Late,
    /// It was delivered already, or is kept, or is older than anybody remembers.
    Duplicate,
}

/// The sequences of one direction of an epoch; each begins at 0.
#[derive(Clone, Debug, Default)]
pub struct Reorder {
    /// Packets that are delivered as they arrive: none at all, or [`BUCKETS`].
    once: Vec<Progress<{ ONCE_WINDOW / 64 }>>,
    /// None at all, or [`BUCKETS`], each there once it was needed.
    buckets: Vec<Option<Box<Bucket>>>,
    /// Buckets that may have something to give out.
    ready: Vec<u8>,
    /// Packets that are kept,
    kept: usize,
    /// and the bytes of all buckets.
    bytes: usize,
    /// Not later than when the first gap is given up.
    due: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    /// The number whose turn it is, and those that were given up.
    progress: Progress<{ WINDOW as usize / 64 }>,
    /// What is kept, in the order of its turns.
    places: VecDeque<Place>,
    /// What is kept, in the order in which it came, and with it what was delivered since the first
    /// of them came.
    arrivals: VecDeque<Arrival>,
    /// The bytes of the arrivals,
    bytes: Queue,
    /// and how many were forgotten before them.
    forgotten: u64,
    /// How many numbers the sequence has that this one follows, the low bits, while that one has
    /// not gone on so far.
    follows: Option<u16>,
    /// Numbers that the sender has abandoned.
    abandoned: Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: u32,
    len: u16,
    checksum: Checksum,
    /// Where its bytes lie, counted from the first that were ever kept.
    at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    sequence: u32,
    len: u16,
    /// When what is missing before it is given up.
    due: Instant,
}

impl Reorder {
    /// Whether a packet that is delivered as it arrives is the first with its number.
    pub(crate) fn take_once(&mut self, bucket: u8, sequence: u32) -> bool {
        self.once.resize(BUCKETS, Progress::default());
        let progress = &mut self.once[usize::from(bucket)];
        if sequence.wrapping_sub(progress.next()) >= HALF {
            return progress.take_late(sequence);
        }
        progress.skip_to(sequence);
        progress.advance();
        true
    }

    /// The framing of a compact packet with its whole sequence number: the one nearest to the next
    /// of its bucket.
    pub(crate) fn expanded(&self, framing: Framing) -> Framing {
        match framing {
            Framing::Once { bucket, sequence } => {
                let progress = self.once.get(usize::from(bucket));
                let next = progress.map_or(0, Progress::next);
                Framing::Once { bucket, sequence: expand_sequence(next, sequence) }
            }
            Framing::InOrder { bucket, sequence } => {
                let line = self.buckets.get(usize::from(bucket)).and_then(Option::as_ref);
                let next = line.map_or(0, |line| line.progress.next());
                Framing::InOrder { bucket, sequence: expand_sequence(next, sequence) }
            }
            Framing::Plain | Framing::First { .. } => framing,
        }
    }

    /// Takes a packet; its number is one of its bucket and wraps. What is missing before it is
    /// given up after `hold`, or at once where there is no room; so is the sequence that this one
    /// follows. `hold` is only asked if something is missing. [`Self::next`] is to be asked
    /// afterwards.
    pub fn take(
        &mut self,
        blocks: &mut Blocks,
        now: Instant,
        bucket: u8,
        sequence: u32,
        packet: Pieces<'_>,
        hold: impl FnOnce() -> Duration,
    ) -> Taken {
        self.buckets.resize(BUCKETS, None);
        let line = self.buckets[usize::from(bucket)].get_or_insert_default();
        let ahead = sequence.wrapping_sub(line.progress.next());
        if ahead >= HALF {
            let is_late = line.progress.take_late(sequence);
            return if is_late { Taken::Late } else { Taken::Duplicate };
        }
        // What is kept of this number has not been asked for yet: this is another of it.
        if ahead == 0 && line.follows.is_none() && !line.is_next_kept() {
            line.advance();
            if line.goes_on() {
                self.make_ready(bucket);
            }
            return Taken::Deliver;
        }
        let before = line.weight();
        let due = now + hold();
        if !line.keep(blocks, sequence, packet, due) {
            return Taken::Duplicate;
        }
        self.kept += 1;
        self.bytes += line.weight() - before;
        let is_full = line.is_full() || self.bytes > BYTES_MAX;
        let goes_on = line.goes_on();
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
        if is_full || goes_on {
            self.make_ready(bucket);
        }
        Taken::Kept
    }

    /// Appends the next packet that goes on to `packet`. Says of which bucket it is, and what is
    /// known of its checksum. To be asked until there is none: after each packet that was taken,
    /// and when it is due.
    pub fn next(
        &mut self,
        blocks: &mut Blocks,
        now: Instant,
        packet: &mut Vec<u8>,
    ) -> Option<(u8, Checksum)> {
        loop {
            while let Some(&bucket) = self.ready.last() {
                if let Some(checksum) = self.emit(blocks, now, bucket, packet) {
                    return Some((bucket, checksum));
                }
                self.ready.pop();
            }
            if self.due.is_none_or(|due| now < due) {
                return None;
            }
            self.find_due(now);
        }
    }

    /// The sequence of `bucket`, of which nothing has gone on yet, follows another that has `end`
    /// numbers: until [`Self::go_on`] says that all of those went on.
    pub fn follow(&mut self, bucket: u8, end: u16) {
        self.buckets.resize(BUCKETS, None);
        let line = self.buckets[usize::from(bucket)].get_or_insert_default();
        if line.progress.next() == 0 {
            line.follows = Some(end);
        }
    }

    /// Whether a bucket has gone on with, or given up, all numbers below one with these low bits.
    pub(crate) fn has_reached(&self, bucket: u8, end: u16) -> bool {
        let line = self.buckets.get(usize::from(bucket)).and_then(Option::as_ref);
        #[expect(clippy::cast_possible_truncation, reason = "the low bits")]
        let next = line.map_or(0, |line| line.progress.next() as u16);
        next.wrapping_sub(end).cast_signed() >= 0
    }

    /// The sequences that these follow have gone on, where `has_ended` says so of a bucket and of
    /// how many numbers its sequence has. [`Self::next`] is to be asked afterwards.
    pub fn go_on(&mut self, has_ended: impl Fn(u8, u16) -> bool) {
        for bucket in 0..=u8::MAX {
            let line = self.buckets.get_mut(usize::from(bucket)).and_then(Option::as_mut);
            if let Some(line) = line
                && line.follows.take_if(|end| has_ended(bucket, *end)).is_some()
                && line.is_next_kept()
            {
                self.make_ready(bucket);
            }
        }
    }

    /// The sender of a bucket has abandoned the numbers from `from` up to but not including `to`.
    /// Kept packets go on without those that have not arrived. If one arrives after all, it is
    /// late. [`Self::next`] is to be asked afterwards.
    pub(crate) fn abandon(&mut self, bucket: u8, from: u32, to: u32) {
        self.buckets.resize(BUCKETS, None);
        let line = self.buckets[usize::from(bucket)].get_or_insert_default();
        line.abandoned.insert(line.progress.next(), from, to);
        line.pass_abandoned();
        if line.goes_on() {
            self.make_ready(bucket);
        }
    }

    /// Nobody will send what is missing: all that is kept goes on. [`Self::next`] is to be asked
    /// afterwards.
    pub fn give_up(&mut self) {
        for line in self.buckets.iter_mut().flatten() {
            line.arrivals.iter_mut().for_each(|arrival| arrival.due = Instant::ZERO);
        }
        self.due = self.due.map(|_| Instant::ZERO);
    }

    /// When [`Self::next`] has to be asked: not later than when the first gap is given up, and at
    /// once while there was more to give out when it was asked last. `None` while nothing is kept.
    pub fn due(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.due } else { Some(Instant::ZERO) }
    }

    /// Whether nothing is kept.
    pub const fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Bytes in use, with what is remembered of each packet.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets everything: each sequence begins anew, at 0.
    pub fn clear(&mut self, blocks: &mut Blocks) {
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.bytes.truncate(blocks, 0);
        }
        *self = Self::default();
    }

    /// Appends the next packet of a bucket to `out`, if its turn has come or the gap before it is
    /// given up. Returns what is known of its checksum.
    fn emit(
        &mut self,
        blocks: &mut Blocks,
        now: Instant,
        bucket: u8,
        out: &mut Vec<u8>,
    ) -> Option<Checksum> {
        let line = self.buckets.get_mut(usize::from(bucket)).and_then(Option::as_mut)?;
        let before = line.weight();
        let is_full = line.is_full() || self.bytes > BYTES_MAX;
        let gives_up = is_full || line.due().is_some_and(|due| due <= now);
        let checksum = line.give_out(blocks, gives_up, out)?;
        self.kept -= 1;
        self.bytes -= before - line.weight();
        if self.kept == 0 {
            self.due = None;
        }
        Some(checksum)
    }

    /// Finds out which buckets give up a gap now, and when the first of all does.
    fn find_due(&mut self, now: Instant) {
        self.due = None;
        for (bucket, line) in (0..=u8::MAX).zip(&self.buckets) {
            let Some(due) = line.as_ref().and_then(|line| line.due()) else { continue };
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
            if due <= now {
                self.ready.push(bucket);
            }
        }
    }

    fn make_ready(&mut self, bucket: u8) {
        if !self.ready.contains(&bucket) {
            self.ready.push(bucket);
        }
    }
}

impl Bucket {
    /// Keeps a packet whose turn is still to come, unless it is kept already.
    fn keep(
        &mut self,
        blocks: &mut Blocks,
        sequence: u32,
        packet: Pieces<'_>,
        due: Instant,
    ) -> bool {
        let next = self.progress.next();
        let ahead = |place: &Place| place.sequence.wrapping_sub(next);
        let distance = sequence.wrapping_sub(next);
        // Nearly always it is behind all others.
        let to = match self.places.back() {
            Some(last) if ahead(last) >= distance => {
                match self.places.binary_search_by_key(&distance, ahead) {
                    Ok(_) => return false,
                    Err(to) => to,
                }
            }
            Some(_) | None => self.places.len(),
        };
        let Pieces { head, tail, checksum, .. } = packet;
        let len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        let at = self.forgotten + self.bytes.len() as u64;
        self.bytes.push(blocks, head);
        self.bytes.push(blocks, tail);
        self.arrivals.push_back(Arrival { sequence, len, due });
        self.places.insert(to, Place { sequence, len, checksum, at });
        true
    }

    /// Appends the first packet that is kept to `packet`, if it is next or what is missing before
    /// it is given up. Returns what is known of its checksum.
    fn give_out(
        &mut self,
        blocks: &mut Blocks,
        gives_up: bool,
        packet: &mut Vec<u8>,
    ) -> Option<Checksum> {
        let &first = self.places.front()?;
        if !self.goes_on() {
            if !gives_up {
                return None;
            }
            self.follows = None;
            self.progress.skip_to(first.sequence);
        }
        let from = usize::try_from(first.at - self.forgotten).unwrap_or(usize::MAX);
        self.bytes.append_to(from, first.len.into(), packet);
        self.places.pop_front();
        self.advance();
        self.forget_delivered(blocks);
        Some(first.checksum)
    }

    /// What was delivered and came before all that is kept is not needed any more.
    fn forget_delivered(&mut self, blocks: &mut Blocks) {
        while let Some(first) = self.arrivals.front()
            && first.sequence.wrapping_sub(self.progress.next()) >= HALF
        {
            self.bytes.forget_first(blocks, first.len.into());
            self.forgotten += u64::from(first.len);
            self.arrivals.pop_front();
        }
        shrink(&mut self.places);
        shrink(&mut self.arrivals);
    }

    /// The turn of the next number has come and it is delivered.
    fn advance(&mut self) {
        self.progress.advance();
        self.pass_abandoned();
    }

    /// Gives up the gap that is next, as far as it is abandoned.
    fn pass_abandoned(&mut self) {
        while let Some(end) = self.abandoned.end_of_next(self.progress.next()) {
            let ahead = |number: u32| number.wrapping_sub(self.progress.next());
            let kept = self.places.front().map(|first| first.sequence);
            let kept = kept.filter(|&first| ahead(first) < ahead(end));
            self.progress.skip_to(kept.unwrap_or(end));
            if kept.is_some() {
                break;
            }
        }
    }

    /// Whether what is next is kept and has nothing to wait for.
    fn goes_on(&self) -> bool {
        self.follows.is_none() && self.is_next_kept()
    }

    fn is_next_kept(&self) -> bool {
        self.places.front().is_some_and(|first| first.sequence == self.progress.next())
    }

    /// When the gap before all that is kept is given up: the first that came is always kept still.
    fn due(&self) -> Option<Instant> {
        self.arrivals.front().map(|first| first.due)
    }

    /// Whether there is no room for more: a gap is given up then.
    fn is_full(&self) -> bool {
        self.weight() > BUCKET_BYTES_MAX
            || self.places.len() > PLACES_MAX
            || self.arrivals.len() > ARRIVALS_MAX
    }

    /// Bytes that it keeps, with what is remembered of each packet.
    fn weight(&self) -> usize {
        self.bytes.len()
            + self.places.len() * size_of::<Place>()
            + self.arrivals.len() * size_of::<Arrival>()
    }
}

/// Gives back room that is not needed: what a burst took is not held for what follows it.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() || queue.capacity() / 4 > queue.len() {
        queue.shrink_to((2 * queue.len()).max(RESTING_PLACES));
    }
}

#[cfg(test)]
#[path = "reorder_tests.rs"]
mod tests;
