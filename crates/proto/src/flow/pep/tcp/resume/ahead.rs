//! What is said ahead of the remote side to the local side of an assisted connection, and how much
//! room it is shown.
//!
//! Decides up to where is acknowledged, by how much may be on its way and may wait at the entry.
//! Which connection is assisted, and what is sent again of it, is decided elsewhere (`assist`).

use std::ops::RangeInclusive;

use super::assist::{Assisted, Entrance};
use super::{Resumed, Told, Tracker};
use crate::flow::pep::memory::Memory;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment, Seq};

/// Room is told of in so many parts of what may wait at the entry, where that is what limits it: of
/// each a segment may be cut off.
const GRANTS: u32 = 4;
/// A part is so many segments at least: the number of these that fits best into what a scaled
/// window can say.
const GRANT_SEGMENTS: RangeInclusive<u32> = 2..=4;
/// Headers of a segment that waits at the entry: IPv6, TCP, options.
const HEADERS_MAX: u32 = 100;
/// So many segments fewer than there is room for may be told of, and no more than such a part of
/// them, where a scaled window can say that without cutting one.
const FEWER_MAX: u32 = 3;
/// An acknowledgement waits for a second segment no longer than this.
const DELAY: Duration = Duration::from_millis(5);
/// A connection that said nothing for so long is not assisted any more.
const IDLE: Duration = Duration::from_secs(3);

impl Resumed {
    /// Whether this node acknowledges ahead of the remote side.
    pub(crate) const fn is_assisted(&self) -> bool {
        self.assisted.is_some()
    }

    /// Whether new segments of the local side are forwarded unchanged.
    pub(crate) fn passes(&self) -> bool {
        self.assisted.is_some() && self.has_caught_up()
    }

    /// Nothing more is acknowledged ahead: what is owed is delivered, and that is all.
    pub(crate) fn leave_assist(&mut self, tracker: &mut Tracker) {
        if self.assisted.take().is_some() {
            tracker.promise.settle();
        }
    }

    /// A segment up to `end` left as it is: if it is kept, it is this node's to send again.
    pub(crate) fn followed(&mut self, now: Instant, tracker: &Tracker, end: Seq) {
        let Some((_, kept_to)) = tracker.cache.span() else { return };
        let Some(assisted) = &mut self.assisted else { return };
        // Until it is known better, it waits at the entry.
        assisted.queued = assisted.queued.saturating_add(end.beyond(self.next));
        let is_next = self.next.is_before(end) && self.has_caught_up();
        if is_next && !tracker.with_end(kept_to).is_before(end) {
            self.timed.get_or_insert((end, now));
            (self.next, self.to) = (end, end);
        }
        let patience = self.patience();
        self.timeout.get_or_insert(now + patience);
        self.answer_soon(now, tracker);
    }

    /// The local side said more: it hears of it at once where there are two segments of it, else
    /// after a moment.
    pub(super) fn answer_soon(&mut self, now: Instant, tracker: &Tracker) {
        if self.may_promise(tracker) {
            let unanswered = self.promise_to(tracker).beyond(tracker.answered_to());
            let is_much = unanswered >= 2 * tracker.mss();
            self.tell_by(if is_much { now } else { now + DELAY });
        }
    }

    /// The local side hears what has arrived by `due`.
    pub(crate) fn tell_by(&mut self, due: Instant) {
        self.tell_at = Some(self.tell_at.map_or(due, |before| before.min(due)));
    }

    /// Whether more could be acknowledged than is.
    fn may_promise(&self, tracker: &Tracker) -> bool {
        let may = self.assisted.is_some() && tracker.promise.is_recorded();
        may && tracker.answered_to().is_before(self.promise_to(tracker))
    }

    /// Up to where may be acknowledged: what is kept without a hole, within the window.
    fn promise_to(&self, tracker: &Tracker) -> Seq {
        let answered_to = tracker.answered_to();
        let span = tracker.cache.span().filter(|&(first, _)| !answered_to.is_before(first));
        let Some((_, end)) = span else { return answered_to };
        let limit = tracker.local.acked.plus(self.flight_allowed(tracker));
        end.min(limit).max(answered_to)
    }

    /// Bytes that may be on their way.
    fn flight_allowed(&self, tracker: &Tracker) -> u32 {
        let allowed = |it: &Assisted| it.flight_allowed(self.flight_max, &tracker.trip);
        self.assisted.as_ref().map_or(0, allowed)
    }

    /// Up to where the local side has room, of which it hears with `ack`.
    fn assisted_edge(&self, tracker: &Tracker, ack: Seq) -> Seq {
        let Some(assisted) = &self.assisted else { return ack };
        let (local, room) = (&tracker.local, tracker.remote.edge);
        let before = self.edge.unwrap_or(ack);
        let queue = local.next.plus(assisted.queue_max.saturating_sub(assisted.queued));
        let flight = local.acked.plus(self.flight_allowed(tracker)).min(room);
        let edge = whole_to(tracker, ack, flight.min(queue)).min(room);
        let edge = before.max(edge).max(ack);
        let is_little = edge.beyond(before) < grant(tracker, assisted.queue_max);
        let is_held = is_little && queue.is_before(flight) && assisted.queued >= tracker.mss();
        if is_held { before.max(ack) } else { edge }
    }

    /// Acknowledges what is kept to the local side.
    pub(super) fn answer_ahead(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        tracker: &mut Tracker,
        out: &mut Vec<u8>,
    ) {
        tracker.cache.verify(memory); // what was damaged on its way here is not promised
        let ack = self.promise_to(tracker);
        if tracker.local.acked.is_before(ack) {
            tracker.promise.give(ack);
        }
        let has_sack = tracker.has_sack();
        tracker.patience.acknowledged(now, ack, has_sack);
        let edge = self.assisted_edge(tracker, ack);
        self.edge = Some(edge);
        self.answers_for(now, ack);
        // It repeats the remote side's mark until the local side has answered that (RFC 3168,
        // section 6.1.3).
        let is_echoing = self.assisted.as_ref().is_some_and(|assisted| assisted.is_echoing);
        let mark = if is_echoing { Flags::ECE } else { Flags::default() };
        tracker.acknowledge(ack, edge, mark, out);
    }

    /// So many bytes of it wait at the entry. Returns whether the local side is to be told of room.
    pub(crate) fn heed_entry(
        &mut self,
        now: Instant,
        tracker: &Tracker,
        queued: u32,
        entrance: Entrance,
    ) -> bool {
        let (next, mss) = (tracker.local.next, tracker.mss());
        // While a part of it is said the last segment of the one before may still wait.
        let least = (grant_segments(tracker) + 1) * (mss + HEADERS_MAX);
        let entrance = Entrance { target: entrance.target.max(least), ..entrance };
        let Some(assisted) = &mut self.assisted else { return false };
        assisted.heed(queued, entrance);
        if !next.is_before(assisted.mark) {
            assisted.adapt(entrance.target, mss);
            assisted.mark = self.edge.unwrap_or(next).max(next.plus(1));
        }
        let queue_max = assisted.queue_max;
        let known = self.edge.filter(|_| tracker.promise.is_recorded());
        let Some(before) = known.filter(|before| before.beyond(next) <= queue_max / 2) else {
            return false; // it has enough
        };
        let given = self.assisted_edge(tracker, tracker.answered_to()).beyond(before);
        let is_told = given > 0 && (queued < mss || given >= grant(tracker, queue_max));
        if is_told {
            self.tell_by(now);
        }
        is_told
    }

    /// What the local side is to hear in place of an acknowledgement of the remote side's; `None`
    /// where it hears that.
    pub(super) fn tell_ahead(
        &mut self,
        now: Instant,
        tracker: &Tracker,
        is_bare: bool,
    ) -> Option<Told> {
        let before = self.edge.filter(|_| tracker.promise.is_recorded())?;
        let (ack, mss) = (tracker.answered_to(), tracker.mss());
        let edge = self.assisted_edge(tracker, ack);
        let given = edge.beyond(before);
        let is_short = before.beyond(tracker.local.next) < 2 * mss;
        let is_new = tracker.promise.to().is_none();
        let is_marked = std::mem::take(&mut self.assisted.as_mut()?.is_echo_news);
        let is_room = given > 0 && (is_short || given >= self.flight_allowed(tracker) / 4);
        let is_news = is_new || is_room || is_marked;
        if is_news || !is_bare {
            self.edge = Some(edge);
        }
        if self.may_promise(tracker) {
            self.tell_by(now);
        }
        Some(Told { ack, window: tracker.window(edge.beyond(ack)), is_news, is_own: is_new })
    }

    /// When nothing was said for so long that it is not assisted any more.
    pub(super) fn assist_ends_at(&self, tracker: &Tracker) -> Option<Instant> {
        let is_sent = !tracker.local.acked.is_before(self.next);
        let is_idle = tracker.promise.to().is_none() && is_sent;
        (self.assisted.is_some() && is_idle).then(|| tracker.used_at + IDLE)
    }

    /// Everything before `to` is owed: what a hole held up that is filled now is this node's to
    /// send again as well. It has left, unless all waits. What had left before it was promised may
    /// all be lost, and nobody else looks after it any more.
    fn answers_for(&mut self, now: Instant, to: Seq) {
        if self.to.is_before(to) {
            if !self.next.is_before(self.to) {
                self.next = to;
            }
            self.to = to;
        }
        if self.heard_to.is_before(self.to) {
            let patience = self.patience();
            self.timeout.get_or_insert(now + patience);
        }
    }

    /// Of what arrived something was marked for congestion, if the remote side says so. That is as
    /// good as a loss to who decides how much is on its way: half as much, once. The remote side
    /// goes on saying it until it hears from the local one, a round trip later.
    pub(super) fn heed_marks(&mut self, segment: &Segment, acked: Seq, mss: u32) {
        let Some(assisted) = &mut self.assisted else { return };
        let was_echoing = assisted.is_echoing;
        assisted.is_echoing = segment.flags.has(Flags::ECE);
        assisted.is_echo_news |= assisted.is_echoing && !was_echoing;
        if assisted.is_echoing && !acked.is_before(assisted.echoes_from) {
            assisted.echoes_from = self.next.plus(self.next.beyond(acked));
            self.reduce(mss);
        }
    }
}

/// Bytes of room of which the local side is told at once, at least, where it is limited by how many
/// may wait at the entry.
fn grant(tracker: &Tracker, queue_max: u32) -> u32 {
    let unit = 1 << tracker.remote.scale;
    let whole = grant_segments(tracker) * tracker.mss();
    (queue_max / GRANTS).max(whole / unit * unit)
}

/// Segments of a part at least. Linux scales by 2^10 where receivers may have 32 MB: of a segment
/// of 1,368 bytes that says 1,024, of three all but eight.
fn grant_segments(tracker: &Tracker) -> u32 {
    let (mss, unit) = (tracker.mss(), 1_u32 << tracker.remote.scale);
    GRANT_SEGMENTS.min_by_key(|count| count * mss % unit).unwrap_or(2)
}

/// Up to where there is room for whole segments of what follows, to `opened` or a few less: of
/// those that a scaled window can say the one by which the last segment is the least short. A
/// sender that is held by its window cuts a segment there, and each costs a packet. Of room for
/// less than one it makes nothing: where none of them says that much, all there is is told.
fn whole_to(tracker: &Tracker, ack: Seq, opened: Seq) -> Seq {
    let (next, mss, unit) = (tracker.local.next, tracker.mss(), 1_u32 << tracker.remote.scale);
    let most = opened.beyond(next) / mss;
    let said = |fewer| {
        let whole = next.plus((most - fewer) * mss);
        let edge = ack.plus(whole.beyond(ack) / unit * unit);
        (whole.beyond(edge), edge)
    };
    (0..=(most / GRANTS).min(FEWER_MAX))
        .map(said)
        .filter(|&(_, edge)| !edge.is_before(next.plus(mss)))
        .min_by_key(|&(short, _)| short)
        .map_or_else(|| ack.plus(tracker.whole(opened.beyond(ack))), |(_, edge)| edge)
}
