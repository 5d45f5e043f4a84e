//! Assist: what is done for a connection when there is no way, done while there is one.
//!
//! This node is the entry of the tunnel for what the local side sends. It takes a segment in,
//! keeps it (`cache`), lets it leave as it is, and acknowledges it at once in the remote side's
//! place: the local side sees a round trip of nearly nothing, and neither losses nor the waits for
//! their repair. What was acknowledged is owed, as after an outage, and the rest of `resume` does
//! what is then to be done: what the remote side's own acknowledgements show to be missing is sent
//! again from what is kept, by selective acknowledgement or by time.
//!
//! ```text
//! local side        this node (entry)                        other end        remote side
//!   data  ------->  keep; pass on as it is  =====tunnel=====>  pass on  ------->  data
//!         <-------  "arrived", room                            pass on  <-------  ACK, SACK
//!                   let go of what arrived  <================
//!                   send again what did not ================>           ------->  the same data
//! ```
//!
//! Sequence numbers, clocks and the end of the stream stay the two ends' own, so this begins and
//! ends at any time. It begins when a sender that is to be assisted has a first flight on its way
//! and it is written down that something will be owed, and ends when it is not wanted any more or
//! nothing was said for a while: then what is owed is delivered, and each side hears the other.
//!
//! How much is acknowledged ahead: what may be on its way beyond what has arrived is a window of
//! this node's own, grown as in slow start until the remote side misses something, halved then,
//! never more than what the measured rate carries in the shortest round trip and while a gap is
//! filled, than half of a connection's share of the memory, or than the remote side has room for.
//! The local side is shown that much room and no more. It is shown less than the remote side gave
//! once, when this begins, with nothing outstanding, as when a window is closed over an outage.

use std::ops::RangeInclusive;

use super::{FLIGHT_MIN, RATE_MIN, Resumed, Told, to_nanos};
use crate::flow::classify::Class;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::tcp::{Connection, Phase, State};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment, Seq};

/// Connections of one session that are assisted at once.
pub(in crate::flow) const ASSISTED_MAX: usize = 64;
/// Segments on their way with which it begins: a whole first flight (RFC 6928).
const BEGIN_MIN: u32 = 8;
/// What may be on its way at first, in bytes: the window of a receiver of whom nothing is known.
const FLIGHT_FIRST: u32 = 65_536;
/// What is on its way at most: what the rate carries in a round trip, and in so many of the longest
/// path's, since a gap that is repaired twice holds back acknowledgements for so long.
const GAP_TRIPS: u32 = 5;
/// At first it may be so many times what the paths carry: it may wait for a gap to be filled.
const CARRIED_GAIN: u32 = 3;
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

/// What is known of a connection that is assisted.
#[derive(Debug)]
pub(in crate::flow) struct Assisted {
    /// Whether it is written down that something is owed: nothing is acknowledged before.
    is_recorded: bool,
    /// Whether nothing was missing yet.
    pub(super) is_starting: bool,
    /// Bytes that may be kept.
    memory_max: u32,
    /// Bytes that the paths may have on their way together,
    carried: u32,
    /// and the round trip of the longest.
    longest: Duration,
    /// Bytes that wait at the entry,
    queued: u32,
    /// how many may,
    queue_max: u32,
    /// and the fewest that did since the local side was given room up to a mark.
    queued_least: u32,
    mark: Seq,
    /// Whether the remote side says that something of what arrived was marked for congestion,
    is_echoing: bool,
    /// whether the local side is still to hear of it,
    is_echo_news: bool,
    /// and from where on what it says of that is about what left since it was last heeded.
    echoes_from: Seq,
}

/// What is known of the tunnel's entry, from which all that is assisted leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Bytes that the paths may have on their way together.
    pub carried: u32,
    /// The round trip of the longest of them.
    pub longest: Duration,
    /// Bytes that should wait for them, so that they never have to wait.
    pub target: u32,
}

impl Connection {
    /// Whether it is to be assisted, if that is wanted. All that its sender may say until it hears
    /// of less room has to find a place: what nobody keeps it must send again itself, behind what
    /// it was promised. In slow start that is as much again as is on its way, and more than the
    /// remote side has room for it never is.
    pub(in crate::flow) fn asks_for_assist(&self, memory: &Memory) -> bool {
        let room = self.remote.edge.beyond(self.local.acked);
        let said = room.min(self.outstanding().saturating_mul(2));
        self.outstanding() >= BEGIN_MIN * self.mss()
            && said as usize <= memory.share()
            && !memory.is_short()
            && self.class == Class::Bulk
            && matches!(self.phase, Phase::Normal)
            && !self.is_settled
            && self.state == State::Established
            && self.local.fin.is_none()
            && self.is_kept()
            && self.heads.is_empty()
            && self.covered().is_some()
    }

    /// Begins to assist it.
    pub(in crate::flow) fn begin_assist(&mut self, now: Instant, memory: &Memory) {
        let (from, next) = (self.local.acked, self.local.next);
        let trip = self.trip.time();
        let usual = u64::from(FLIGHT_MIN * self.mss()) * 1_000_000_000 / to_nanos(trip).max(1);
        let memory_max = u32::try_from(memory.share() / 2).unwrap_or(u32::MAX);
        let flight = FLIGHT_FIRST.max(self.outstanding());
        let assisted = Assisted {
            is_recorded: false,
            is_starting: true,
            memory_max,
            carried: 0,
            longest: Duration::ZERO,
            queued: 0,
            queue_max: FLIGHT_FIRST,
            queued_least: u32::MAX,
            mark: next,
            is_echoing: false,
            is_echo_news: false,
            echoes_from: from,
        };
        let resumed = Resumed::begin(now, (from, next, next), usual.max(RATE_MIN), flight, trip);
        self.phase = Phase::Resumed(Box::new(Resumed { assisted: Some(assisted), ..resumed }));
    }

    /// It is written down that something will be owed. Returns whether that was waited for here.
    pub(in crate::flow) fn take_assist_record(&mut self) -> bool {
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        let Some(assisted) = &mut resumed.assisted else { return false };
        assisted.is_recorded = true;
        resumed.tell_at = Some(Instant::ZERO);
        true
    }

    /// Nothing more is acknowledged ahead: what is owed is delivered, and that is all.
    pub(in crate::flow) fn leave_assist(&mut self) {
        let Phase::Resumed(resumed) = &mut self.phase else { return };
        let Some(assisted) = resumed.assisted.take() else { return };
        self.is_settled |= assisted.is_recorded && self.promised.is_none();
        self.end_if_done();
    }

    /// A segment up to `end` left as it is: if it is kept, it is this node's to send again.
    pub(in crate::flow) fn followed(&mut self, now: Instant, end: Seq) {
        let Some((_, kept_to)) = self.cache.span() else { return };
        let kept_to = if self.local.fin == Some(kept_to) { kept_to.plus(1) } else { kept_to };
        let Phase::Resumed(resumed) = &mut self.phase else { return };
        let Some(assisted) = &mut resumed.assisted else { return };
        // Until it is known better, it waits at the entry.
        assisted.queued = assisted.queued.saturating_add(end.beyond(resumed.next));
        let is_next = resumed.next.is_before(end) && !resumed.next.is_before(resumed.to);
        if is_next && !kept_to.is_before(end) {
            resumed.timed.get_or_insert((end, now));
            (resumed.next, resumed.to) = (end, end);
        }
        let patience = resumed.patience();
        resumed.timeout.get_or_insert(now + patience);
    }

    /// The local side said more: it hears of it at once where there are two segments of it, else
    /// after a moment.
    pub(in crate::flow) fn answer_soon(&mut self, now: Instant) {
        if !self.may_promise() {
            return;
        }
        let unanswered = self.promise_to().beyond(self.answered_to());
        let is_much = unanswered >= 2 * self.mss();
        self.tell_by(if is_much { now } else { now + DELAY });
    }

    /// The local side hears what has arrived by `due`.
    fn tell_by(&mut self, due: Instant) {
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.tell_at = Some(resumed.tell_at.map_or(due, |before| before.min(due)));
        }
    }

    /// Whether more could be acknowledged than is.
    fn may_promise(&self) -> bool {
        self.assisted().is_some_and(|(_, assisted)| assisted.is_recorded)
            && self.answered_to().is_before(self.promise_to())
    }

    /// Up to where may be acknowledged: what is kept without a hole, within the window.
    fn promise_to(&self) -> Seq {
        let answered_to = self.answered_to();
        let Some((first, end)) = self.cache.span() else { return answered_to };
        if answered_to.is_before(first) {
            return answered_to;
        }
        let limit = self.local.acked.plus(self.flight_allowed());
        end.min(limit).max(answered_to)
    }

    /// Bytes that may be on their way.
    fn flight_allowed(&self) -> u32 {
        let Some((resumed, assisted)) = self.assisted() else { return 0 };
        if assisted.is_starting {
            let carried = assisted.carried.saturating_mul(CARRIED_GAIN);
            return resumed.flight_max.max(carried).min(assisted.memory_max);
        }
        let known = self.trip.rate().zip(self.trip.least()).map(|(rate, least)| {
            let held = least + assisted.longest.max(least) * GAP_TRIPS;
            let bytes = u128::from(rate) * held.as_nanos() / 1_000_000_000;
            u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(FLIGHT_FIRST)
        });
        resumed.flight_max.min(known.unwrap_or(u32::MAX)).min(assisted.memory_max)
    }

    /// Up to where the local side has room, of which it hears with `ack`.
    fn assisted_edge(&self, ack: Seq) -> Seq {
        let Some((resumed, assisted)) = self.assisted() else { return ack };
        let before = resumed.edge.unwrap_or(ack);
        let queue = self.local.next.plus(assisted.queue_max.saturating_sub(assisted.queued));
        let flight = self.local.acked.plus(self.flight_allowed()).min(self.remote.edge);
        let edge = before.max(self.whole_to(ack, flight.min(queue)).min(self.remote.edge)).max(ack);
        let is_little = edge.beyond(before) < self.grant(assisted.queue_max);
        let is_held = is_little && queue.is_before(flight) && assisted.queued >= self.mss();
        if is_held { before.max(ack) } else { edge }
    }

    /// Bytes of room of which the local side is told at once, at least, where it is limited by how
    /// many may wait at the entry.
    fn grant(&self, queue_max: u32) -> u32 {
        let unit = 1 << self.remote.scale;
        let whole = self.grant_segments() * self.mss();
        (queue_max / GRANTS).max(whole / unit * unit)
    }

    /// Segments of a part at least. Linux scales by 2^10 where receivers may have 32 MB: of a
    /// segment of 1,368 bytes that says 1,024, of three all but eight.
    fn grant_segments(&self) -> u32 {
        let (mss, unit) = (self.mss(), 1_u32 << self.remote.scale);
        GRANT_SEGMENTS.min_by_key(|count| count * mss % unit).unwrap_or(2)
    }

    /// Up to where there is room for whole segments of what follows, to `opened` or a few less: of
    /// those that a scaled window can say the one by which the last segment is the least short. A
    /// sender that is held by its window cuts a segment there, and each costs a packet. Of room
    /// for less than one it makes nothing: where none of them says that much, all there is is told.
    fn whole_to(&self, ack: Seq, opened: Seq) -> Seq {
        let (next, mss, unit) = (self.local.next, self.mss(), 1_u32 << self.remote.scale);
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
            .map_or_else(|| ack.plus(self.whole(opened.beyond(ack))), |(_, edge)| edge)
    }

    /// Acknowledges what is kept to the local side.
    pub(in crate::flow) fn answer_ahead(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        out: &mut Vec<u8>,
    ) {
        self.cache.verify(memory); // what was damaged on its way here is not promised
        let ack = self.promise_to();
        if self.local.acked.is_before(ack) {
            self.promised = Some(ack);
        }
        self.patience.acknowledged(now, ack, self.has_sack());
        let edge = self.assisted_edge(ack);
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.edge = Some(edge);
            resumed.answers_for(now, ack);
        }
        self.acknowledge(ack, edge, out);
    }

    /// So many bytes of it wait at the entry. Returns whether the local side is to be told of room.
    pub(in crate::flow) fn heed_entry(
        &mut self,
        now: Instant,
        queued: u32,
        entrance: Entrance,
    ) -> bool {
        let (next, mss) = (self.local.next, self.mss());
        // While a part of it is said the last segment of the one before may still wait.
        let least = (self.grant_segments() + 1) * (mss + HEADERS_MAX);
        let entrance = Entrance { target: entrance.target.max(least), ..entrance };
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        let Some(assisted) = &mut resumed.assisted else { return false };
        assisted.heed(queued, entrance);
        if !next.is_before(assisted.mark) {
            assisted.adapt(entrance.target, mss);
            assisted.mark = resumed.edge.unwrap_or(next).max(next.plus(1));
        }
        let (queue_max, is_recorded) = (assisted.queue_max, assisted.is_recorded);
        let Some(before) = resumed.edge.filter(|_| is_recorded) else { return false };
        if before.beyond(next) > queue_max / 2 {
            return false; // it has enough
        }
        let given = self.assisted_edge(self.answered_to()).beyond(before);
        let is_told = given > 0 && (queued < mss || given >= self.grant(queue_max));
        if is_told {
            self.tell_by(now);
        }
        is_told
    }

    /// What the local side is to hear in place of an acknowledgement of the remote side's; `None`
    /// where it hears that.
    pub(in crate::flow) fn tell_ahead(&mut self, now: Instant, is_bare: bool) -> Option<Told> {
        let (resumed, assisted) = self.assisted()?;
        let before = resumed.edge.filter(|_| assisted.is_recorded)?;
        let (ack, mss) = (self.answered_to(), self.mss());
        let edge = self.assisted_edge(ack);
        let given = edge.beyond(before);
        let is_short = before.beyond(self.local.next) < 2 * mss;
        let is_new = self.promised.is_none();
        let is_marked = self.takes_echo_news();
        let is_room = given > 0 && (is_short || given >= self.flight_allowed() / 4);
        let is_news = is_new || is_room || is_marked;
        if (is_news || !is_bare)
            && let Phase::Resumed(resumed) = &mut self.phase
        {
            resumed.edge = Some(edge);
        }
        if self.may_promise() {
            self.tell_by(now);
        }
        Some(Told { ack, window: self.window(edge.beyond(ack)), is_news, is_own: is_new })
    }

    /// Whether the local side is to hear now that something was marked for congestion.
    fn takes_echo_news(&mut self) -> bool {
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        let assisted = resumed.assisted.as_mut();
        assisted.is_some_and(|assisted| std::mem::take(&mut assisted.is_echo_news))
    }

    /// When nothing was said for so long that it is not assisted any more.
    pub(in crate::flow) fn assist_ends_at(&self) -> Option<Instant> {
        let (resumed, _) = self.assisted()?;
        let is_idle = self.promised.is_none() && !self.local.acked.is_before(resumed.next);
        is_idle.then(|| self.used_at + IDLE)
    }
}

impl Assisted {
    /// Whether it is written down that something will be owed.
    pub(in crate::flow) const fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// Whether acknowledgements repeat a congestion mark (RFC 3168, 6.1.3).
    pub(in crate::flow) const fn is_echoing(&self) -> bool {
        self.is_echoing
    }

    /// How long the tunnel may take to fill a gap, in which nothing is heard.
    pub(in crate::flow) fn gap_time(&self) -> Duration {
        self.longest * GAP_TRIPS
    }

    fn heed(&mut self, queued: u32, entrance: Entrance) {
        (self.carried, self.longest) = (entrance.carried, entrance.longest);
        self.queued = queued;
        self.queued_least = self.queued_least.min(queued);
        self.queue_max = self.queue_max.max(entrance.target);
    }

    /// The local side has used all the room that it had a round trip of its own ago. If the entry
    /// ran empty meanwhile, that was too little for its distance; if never, what always waited was
    /// too much.
    fn adapt(&mut self, target: u32, mss: u32) {
        if self.queued_least < mss {
            self.queue_max = self.queue_max.saturating_mul(2).min(self.memory_max);
        } else {
            let spare = self.queued_least.saturating_sub(target);
            self.queue_max = self.queue_max.saturating_sub(spare).max(target);
        }
        self.queued_least = u32::MAX;
    }
}

impl Resumed {
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
    pub(in crate::flow) fn heed_marks(&mut self, segment: &Segment, acked: Seq, mss: u32) {
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
