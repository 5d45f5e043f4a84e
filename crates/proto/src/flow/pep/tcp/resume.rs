//! There is a way again, and for what this node answered for it is the sender (Alshalan 2017,
//! sections 4.7.5 and 4.7.6, Equation 4.10, Algorithms 5, 7 and 8).
//!
//! What is owed leaves at the rate at which it arrived before the way was lost, in flight no more
//! than there was then; what the remote side misses is found by its selective acknowledgements and
//! by time, sent again, and halves both. Until the remote side has everything, the local one hears
//! its acknowledgements with the number that it was told already, and is given the room that what
//! is owed leaves in flight, at once, and as much more as the remote one has taken in: so its own
//! bytes follow those that are owed at the same pace, with no gap and no burst between. What gets
//! no answer so many times is broken off at both ends.

mod ahead;
pub(in crate::flow) mod assist;
mod recovery;

use super::hold::Held;
use super::tracker::{Told, Tracker};
use crate::flow::pep::cache::Again;
use crate::flow::pep::memory::Memory;
use crate::flow::report::Stage;
use crate::flow::verdict::Output;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment, Seq};
use assist::{Assisted, FLIGHT_FIRST};

/// Attempts without an answer after which a connection is broken off: with the pause doubled each
/// time, a minute and more (RFC 9293, 3.8.3, R2 is at least 100 s for a sender that has nobody else
/// to tell).
const TRIES_MAX: u8 = 9;
/// The shortest time-out (`TCP_RTO_MIN` of Linux, 200 ms),
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// and the longest.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// What may be in flight at least, in segments (RFC 6928).
const FLIGHT_MIN: u32 = 10;
/// A segment is lost when the remote side has what left so many segments later (RFC 6675).
const REORDERED_MAX: u32 = 3;
/// What leaves together: the least that keeps timers rare.
const BURST: Duration = Duration::from_millis(1);
/// Ranges that are remembered of what arrived out of order.
const RANGES_MAX: usize = 16;
/// The slowest that anything is sent, in bytes per second.
const RATE_MIN: u64 = 16_000;
/// So many attempts count at most where the remote side answers that it has no room: that may go on
/// for as long as it likes (RFC 9293, 3.8.6.1).
const TRIES_SHUT: u8 = 5;
/// What is waited stays doubled so often at most once something was answered.
const DOUBLED_MAX: u8 = 4;

/// What is being sent of a connection in its sender's place.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// When all that is sent in the local side's place began to leave, for the last time.
    since: Instant,
    /// Whether something of it was promised. Else the local side hears of losses itself, and says
    /// how much is on its way.
    is_owed: bool,
    /// Up to where the remote side had everything when it was first heard.
    first_heard: Option<Seq>,
    /// The first byte that has not left since, or since nothing was answered for too long.
    next: Seq,
    /// Up to where it is this node's to send, the end of the stream included.
    to: Seq,
    /// Up to where the local side's own bytes have followed since then.
    followed_to: Seq,
    /// What the remote side has beyond: from, to, in order.
    arrived: Vec<(Seq, Seq)>,
    /// The end of the furthest that has left and then arrived. What the remote side had before is
    /// passed over, and says nothing of what left around it.
    seen: Seq,
    /// From here to there, what did not arrive is lost and has to leave again.
    lost: (Seq, Seq),
    /// Losses before this belong to a reduction that was made.
    reduced_at: Seq,
    /// Whether one was made that nobody was told of.
    is_reduced: bool,
    /// When the remote side was last heard, and up to where it had everything then.
    heard_at: Instant,
    heard_to: Seq,
    /// The end of the last bytes that it sent: where the peer acknowledges ahead, an
    /// acknowledgement alone has a number far beyond these.
    said_to: Option<Seq>,
    /// How often it has said so without a word more, where it cannot say what it has beyond,
    repeats: u32,
    /// and up to where what was missing then leaves again, one segment after the other.
    recovers_to: Option<Seq>,
    /// The window that it said last.
    window: Option<u16>,
    /// Bytes per second.
    rate: u64,
    /// Bytes in flight at most.
    flight_max: u32,
    /// When the next may leave.
    pace: Instant,
    /// The round trip by the way that there is now: at first as Equation 4.10 has it, then as it is
    /// measured.
    trip: Duration,
    /// No measurement makes it shorter: the tunnel's own round trip when there was a way again.
    trip_min: Duration,
    /// What it is measured on next: up to where, and when that left.
    timed: Option<(Seq, Instant)>,
    /// When what is in flight counts as lost.
    timeout: Option<Instant>,
    tries: u8,
    /// How often the time that is waited was doubled since the round trip was measured: an answer
    /// to what left twice does not say that it was long enough (Karn; RFC 6298, 5.5 to 5.7).
    doubled: u8,
    /// When everything leaves again without that counting as a try.
    again_at: Option<Instant>,
    /// Up to where the local side was told that there is room.
    edge: Option<Seq>,
    /// Room beyond what was promised that the local side has before anything is taken in.
    ahead: u32,
    has_news: bool,
    /// Whether its turn came when there was no room for it beside others.
    is_parked: bool,
    /// When the local side is to hear what has arrived and what room it has: it asked.
    tell_at: Option<Instant>,
    /// There while what the local side goes on to say is acknowledged here as well.
    assisted: Option<Assisted>,
}

/// What comes of a turn to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// A packet for the tunnel, or for the TUN.
    Says(Output),
    Nothing,
    /// The local side will repeat itself what it was not promised.
    Leaves,
    /// Too many attempts have no answer: it is to be broken off.
    GivesUp,
}

impl Resumed {
    /// There is a way again. Its round trip is `after`, that of the way before was `before`
    /// (Equation 4.10). `None` where there is nothing to send or to say.
    pub(super) fn after_outage(
        now: Instant,
        memory: &mut Memory,
        tracker: &mut Tracker,
        held: &Held,
        (before, after): (Duration, Duration),
    ) -> Option<Self> {
        let trip = (tracker.trip.time() + after).saturating_sub(before).max(after);
        let flight = held.flight().max(FLIGHT_MIN * tracker.mss());
        let usual = rate_of(FLIGHT_MIN * tracker.mss(), trip);
        let rate = tracker.trip.rate().unwrap_or(usual).max(usual);
        let (edge, ahead) = room_at_once(tracker, held.edge(), flight);
        let from = tracker.local.acked;
        tracker.cache.acknowledged(memory, from);
        tracker.cache.verify(memory); // what was damaged is none that could be sent from there
        let span = tracker.cache.span().filter(|&(first, _)| !from.is_before(first));
        let to = span.map_or(from, |(_, end)| end);
        let mut to = tracker.promise.to().map_or(to, |promised| promised.max(to));
        if to != from {
            // What is kept is sent from there, with an end that follows it.
            to = tracker.with_end(to);
            tracker.heads.acknowledged(memory, to);
        }
        tracker.trip.interrupted();
        if to == from && tracker.heads.is_empty() && !held.has_news() {
            return None;
        }
        Some(Self {
            trip_min: after,
            edge,
            ahead,
            has_news: held.has_news(),
            tell_at: (edge != held.edge()).then_some(now),
            ..Self::begin(now, (from, from, to), rate.max(RATE_MIN), flight, trip)
        })
    }

    /// Begins to assist a connection. What is on its way is not owed yet.
    pub(crate) fn assist(now: Instant, memory: &Memory, tracker: &Tracker) -> Self {
        let (from, next) = (tracker.local.acked, tracker.local.next);
        let trip = tracker.trip.time();
        let rate = rate_of(FLIGHT_MIN * tracker.mss(), trip).max(RATE_MIN);
        let memory_max = u32::try_from(memory.share() / 2).unwrap_or(u32::MAX);
        let flight = FLIGHT_FIRST.max(tracker.outstanding());
        let assisted = Some(Assisted::begin(memory_max, from, next));
        Self { assisted, ..Self::begin(now, (from, next, next), rate, flight, trip) }
    }

    /// Whether a segment that left at `left_at` and was lost, and ends at `end`, lies in what is
    /// sent in the local side's place. What has left since there is a way again is no part of that:
    /// to the remote side it would be lost, and half as much would be on its way from then on.
    pub(super) fn sends_again(&self, left_at: Instant, end: Seq) -> bool {
        // What has left as it was is not sent from here, unless it is found to be lost.
        let is_older = self.assisted.is_none() && left_at <= self.since;
        is_older && !self.to.is_before(end)
    }

    /// Whether a segment of the local side's leaves as it is. It does not if it says again what was
    /// told to have arrived, or asks whether anybody is there: that is answered here. Nor if what
    /// is sent in its place comes before it and has not left yet: it follows in order, from what
    /// is kept, since one that overtook would look like a loss, and make the rest look old. Nor
    /// if what all have on their way is as much as it may be.
    pub(super) fn lets_pass(
        &mut self,
        now: Instant,
        tracker: &Tracker,
        (segment, packet): (&Segment, &InnerPacket<'_>),
        is_crowded: bool,
    ) -> bool {
        let (end, promised) = (segment.end(), tracker.promise.to());
        if promised.is_some_and(|to| !to.is_before(end) && segment.seq.is_before(to)) {
            self.tell_at = Some(now);
            return false;
        }
        let unusual = segment.flags.without(Flags::ACK.and(Flags::PSH).and(Flags::FIN));
        let says_more = segment.len > 0 || segment.flags.has(Flags::FIN);
        let is_crowded = is_crowded && self.assisted.is_none();
        let waits = !self.has_caught_up() || (is_crowded && says_more);
        if unusual != Flags::default() || !waits {
            if says_more {
                self.followed_to = self.followed_to.max(end);
                self.followed(now, tracker, end);
            }
            return true;
        }
        if says_more {
            let is_kept = !segment.seq.is_before(self.next) && tracker.cache.covers(segment);
            if is_kept && self.has_caught_up() {
                // Those before it went as they are, unless it is one of them again.
                self.next = self.next.max(self.followed_to.min(segment.seq));
            }
            self.to = if is_kept { self.to.max(end) } else { self.to };
            self.answer_soon(now, tracker);
            return !is_kept;
        }
        // What it says of what it received goes with the next piece, unless that waits, or tells
        // less.
        let is_bare = segment.sacked(packet).next().is_none();
        self.has_news |= is_bare;
        !is_bare
    }

    /// When something is to be sent in the local side's place.
    pub(super) fn due(&self, tracker: &Tracker) -> Option<Instant> {
        let has_head = tracker.heads.has_next() && self.has_left(tracker.local.acked);
        let has_more = has_head || self.has_news || self.next_again(tracker, u32::MAX).is_some();
        let pace = (has_more && !self.is_parked).then_some(self.pace);
        let ends_at = self.assist_ends_at(tracker);
        let due = [pace, self.timeout, self.again_at, self.tell_at, ends_at];
        due.into_iter().flatten().min()
    }

    /// Whether nothing is due but a segment that may have to wait for those of others: not one that
    /// was lost on its way, which its receiver waits for.
    pub(super) fn may_wait(&self, now: Instant, tracker: &Tracker) -> bool {
        if self.assisted.is_some() {
            return false;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let is_overdue = is_due(self.timeout) || is_due(self.again_at);
        let is_urgent = self.tell_at.is_some() || is_overdue;
        let is_lost = self.next_lost(tracker.local.acked).is_some();
        !is_urgent && !is_lost && self.next_again(tracker, u32::MAX).is_some()
    }

    /// Its turn waits, or does not any more. Returns whether it did.
    pub(super) const fn park(&mut self, is_parked: bool) -> bool {
        std::mem::replace(&mut self.is_parked, is_parked)
    }

    /// Whether something was found lost since this was asked last.
    pub(super) fn takes_reduction(&mut self) -> bool {
        std::mem::take(&mut self.is_reduced) && self.assisted.is_none()
    }

    /// Bytes on their way that were sent in the local side's place, and of its own that followed,
    /// where others share what may be.
    pub(super) fn shared_flight(&self, acked: Seq) -> u32 {
        if self.assisted.is_some() {
            return 0;
        }
        let followed = self.followed_to.beyond(self.to.max(acked));
        self.flying(acked).saturating_add(followed)
    }

    /// Sends the next segment that is due, of at most `most` bytes if it was not lost.
    pub(super) fn resend(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        tracker: &mut Tracker,
        most: u32,
        out: &mut Vec<u8>,
    ) -> Turn {
        let (gives_up, mss, acked) = (tracker.gives_up(), tracker.mss(), tracker.local.acked);
        if self.tell_at.take_if(|at| *at <= now).is_some()
            && self.answer_again(now, memory, tracker, out)
        {
            return Turn::Says(Output::ToLocal);
        }
        if self.assist_ends_at(tracker).is_some_and(|at| at <= now) {
            self.leave_assist(tracker);
            if self.is_done(tracker) {
                return Turn::Nothing;
            }
        }
        if self.timeout.is_some_and(|due| due <= now) {
            // What the local side was not promised it will repeat itself, if it is not too late.
            let is_needed = gives_up && self.tries < TRIES_MAX;
            if tracker.promise.to().is_none() && !is_needed {
                self.leave_assist(tracker);
                return Turn::Leaves;
            }
            tracker.heads.rewind();
            self.time_out(now, acked, mss);
            if self.tries > TRIES_MAX {
                return Turn::GivesUp;
            }
        }
        if self.again_at.is_some_and(|at| at <= now) {
            tracker.heads.rewind();
            self.begin_again(now, acked);
        }
        if self.pace > now {
            return Turn::Nothing;
        }
        if self.has_left(acked)
            && let Some(place) = tracker.heads.advance()
        {
            self.timeout = self.timeout.or_else(|| Some(now + self.patience()));
            tracker.send_kept(tracker.heads.get(place), out);
            if tracker.stage == Stage::Closed && !tracker.heads.has_next() {
                tracker.heads.clear(memory); // a reset, which nobody acknowledges
            }
            return Turn::Says(Output::ToRemote);
        }
        let has_news = std::mem::take(&mut self.has_news);
        // A header of its own must not vouch for what was damaged on its way here.
        tracker.cache.verify(memory);
        let Some(again) = self.next_again(tracker, most) else {
            if !has_news {
                return Turn::Nothing;
            }
            tracker.say_news(self.unsent().unwrap_or(tracker.local.next), out);
            return Turn::Says(Output::ToRemote);
        };
        tracker.send_again(&again, out);
        self.left(now, again.seq, tracker.with_end(again.end()));
        tracker.trip.repeated();
        Turn::Says(Output::ToRemote)
    }

    /// Tells the local side what has arrived, as far as it may know. Returns whether there was
    /// something to tell.
    fn answer_again(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        tracker: &mut Tracker,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.assisted.is_some() {
            self.answer_ahead(now, memory, tracker, out);
            return true;
        }
        let Some(promised) = tracker.promise.to() else { return false };
        let edge = self.edge.filter(|_| !tracker.gives_up());
        let edge = edge.map_or(promised, |edge| edge.max(promised));
        tracker.acknowledge(promised, edge, Flags::default(), out);
        true
    }

    /// The piece that leaves next, as far as it may: what was lost, else at most `most` bytes of
    /// what has not left.
    fn next_again<'a>(&self, tracker: &'a Tracker, most: u32) -> Option<Again<'a>> {
        let acked = tracker.local.acked;
        let lost = self.next_lost(acked);
        if let Some(again) = lost.and_then(|lost| self.piece_at(tracker, lost)) {
            return Some(again);
        }
        if self.has_caught_up() {
            return None;
        }
        let at = self.past_arrived(self.next.max(acked));
        let again = self.piece_at(tracker, at)?.cut(at, most);
        let flying = self.flying(acked);
        let end = again.end();
        let fits = flying == 0 || flying + end.beyond(again.seq) <= self.flight_max;
        let has_room = !tracker.remote.edge.is_before(end) || flying == 0;
        (fits && has_room).then_some(again)
    }

    /// The piece that begins at `from`; behind the last it is the end alone, if that is still to be
    /// said: the bytes that it would have gone with may have arrived already.
    fn piece_at<'a>(&self, tracker: &'a Tracker, from: Seq) -> Option<Again<'a>> {
        if tracker.local.fin == Some(from) && from.is_before(self.to) {
            return Some(Again { seq: from, bytes: (&[], &[]), push: false });
        }
        // What is kept may begin later: what was damaged on its way here was let go of.
        tracker.cache.from(from).next().filter(|again| !from.is_before(again.seq))
    }

    /// The remote side has answered: what that means for what is on its way.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        tracker: &Tracker,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) {
        let (acked, mss) = (tracker.local.acked, tracker.mss());
        let says_no_more = segment.len == 0 && segment.flags == Flags::ACK && segment.ack == acked;
        self.is_owed = tracker.promise.to().is_some_and(|promised| acked.is_before(promised));
        self.heard(now, acked, mss);
        if segment.len > 0 {
            let end = segment.end();
            self.said_to = Some(self.said_to.map_or(end, |before| before.max(end)));
        }
        self.heed_marks(segment, acked, mss);
        let rate = tracker.trip.rate().filter(|_| self.assisted.is_some());
        self.rate = rate.map_or(self.rate, |rate| rate.max(self.rate));
        let sent_to = self.sent_to();
        for (from, to) in segment.sacked(packet) {
            if acked.is_before(to) && !sent_to.is_before(to) && from.is_before(to) {
                self.note_arrived(from, to);
            }
        }
        self.find_losses(acked, mss);
        if !acked.is_before(tracker.remote.edge) {
            self.tries = self.tries.min(TRIES_SHUT);
            self.doubled = self.doubled.min(TRIES_SHUT);
        }
        let window = self.window.replace(segment.window).unwrap_or(segment.window);
        if says_no_more && !tracker.has_sack() && window == segment.window {
            self.heard_blindly(acked, mss);
        }
    }

    /// What the local side is to hear in an acknowledgement's place; `None` when it hears that.
    pub(super) fn tell(&mut self, now: Instant, tracker: &Tracker, is_bare: bool) -> Option<Told> {
        if self.assisted.is_some() {
            return self.tell_ahead(now, tracker, is_bare);
        }
        let (acked, room) = (tracker.local.acked, tracker.remote.edge);
        let is_sent = !tracker.heads.is_empty() || acked.is_before(self.to);
        if is_sent && tracker.gives_up() {
            // It was shown a closed window so as not to, and has to see it until there is news.
            let ack = tracker.answered_to();
            return Some(Told { ack, window: 0, is_news: false, is_own: false });
        }
        let promised = tracker.promise.to()?;
        let taken_in = acked.beyond(*self.first_heard.get_or_insert(acked));
        let given = promised.plus(self.ahead + tracker.whole(taken_in)).min(room.max(promised));
        let before = self.edge;
        let edge = before.map_or(given, |before| before.max(given));
        self.edge = Some(edge);
        let window = |edge: Seq| tracker.window(edge.beyond(promised));
        let is_news = before.map(window) != Some(window(edge));
        Some(Told { ack: promised, window: window(edge), is_news, is_own: false })
    }

    /// Whether nothing more is owed to anybody, to be sent again or to be said.
    pub(super) fn is_done(&self, tracker: &Tracker) -> bool {
        let is_sent = !self.has_news && !tracker.local.acked.is_before(self.to);
        let is_owed = tracker.promise.to().is_some();
        self.assisted.is_none() && is_sent && tracker.heads.is_empty() && !is_owed
    }

    /// Begins with what lies between the first and the last of these numbers, of which what lies
    /// before the second has left.
    fn begin(
        now: Instant,
        (from, next, to): (Seq, Seq, Seq),
        rate: u64,
        flight_max: u32,
        trip: Duration,
    ) -> Self {
        Self {
            since: now,
            is_owed: true,
            next,
            to,
            followed_to: to,
            seen: from,
            lost: (from, from),
            reduced_at: from,
            heard_at: now,
            heard_to: from,
            rate,
            flight_max,
            pace: now,
            trip,
            ..Self::default()
        }
    }

    /// Up to where the local side was told that there is room, if it was.
    pub(super) const fn edge(&self) -> Option<Seq> {
        self.edge
    }

    /// The end of the last bytes that the remote side sent, if it sent any.
    pub(super) const fn said_to(&self) -> Option<Seq> {
        self.said_to
    }

    /// The first byte that is still to leave; `None` when all have.
    pub(super) fn unsent(&self) -> Option<Seq> {
        self.next.is_before(self.to).then_some(self.next)
    }
}

/// Bytes per second where so many arrive in this time.
fn rate_of(bytes: u32, time: Duration) -> u64 {
    u64::from(bytes) * 1_000_000_000 / u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Up to where the local side has room as soon as there is a way, and how much of that is beyond
/// what was promised: what is owed may leave less than may be in flight, and may have arrived
/// before the way was lost. Whoever waited for its acknowledgement to give room would lose a round
/// trip.
fn room_at_once(tracker: &Tracker, edge: Option<Seq>, flight: u32) -> (Option<Seq>, u32) {
    let promised = tracker.promise.to().filter(|_| !tracker.gives_up());
    let Some(promised) = promised else { return (edge, 0) };
    let owed = promised.beyond(tracker.local.acked);
    let ahead = tracker.whole(flight.saturating_sub(owed));
    let opened = promised.plus(ahead).min(tracker.remote.edge).max(promised);
    (Some(edge.map_or(opened, |before| before.max(opened))), ahead)
}
