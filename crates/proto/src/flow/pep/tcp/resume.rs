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

mod answers;
pub(in crate::flow) mod assist;
mod recovery;

use super::{Connection, Phase, State};
use crate::flow::pep::cache::Again;
use crate::flow::pep::memory::Memory;
use crate::flow::verdict::Output;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment, Seq};
use assist::Assisted;

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
#[derive(Debug)]
pub(in crate::flow) struct Resumed {
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

/// What the local side hears instead of an acknowledgement of the remote side's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::flow) struct Told {
    pub(in crate::flow) ack: Seq,
    /// As it stands in the header.
    pub(in crate::flow) window: u16,
    /// Whether it gives room.
    pub(in crate::flow) is_news: bool,
    /// Whether the rest of what the remote side said is for the local side as it is.
    pub(in crate::flow) is_own: bool,
}

impl Connection {
    /// There is a way again. Its round trip is `after`, that of the way before was `before`
    /// (Equation 4.10). Returns how many bytes were on their way when that was lost.
    pub(in crate::flow) fn resume(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        before: Duration,
        after: Duration,
    ) -> u32 {
        let mut held = match std::mem::take(&mut self.phase) {
            Phase::Held(held) => held,
            other @ (Phase::Normal | Phase::Resumed(_) | Phase::Broken(_)) => {
                self.phase = other;
                return 0;
            }
        };
        let trip = (self.trip.time() + after).saturating_sub(before).max(after);
        let flight = held.flight().max(FLIGHT_MIN * self.mss());
        let usual = u64::from(FLIGHT_MIN * self.mss()) * 1_000_000_000 / to_nanos(trip).max(1);
        let rate = self.trip.rate().unwrap_or(usual).max(usual);
        let (edge, ahead) = self.room_at_once(held.edge(), flight);
        let tell_at = (edge != held.edge()).then_some(now);
        self.is_settled |= held.strike_out() && self.promised.is_none();
        let has_news = held.has_news;
        let from = self.local.acked;
        self.cache.acknowledged(memory, from);
        self.cache.verify(memory); // what was damaged is none that could be sent from there
        let kept = self.cache.span().filter(|&(first, _)| !from.is_before(first));
        let to = kept.map_or(from, |(_, end)| end);
        let mut to = self.promised.map_or(to, |promised| promised.max(to));
        if to != from {
            // What is kept is sent from there, with an end that follows it.
            to = self.with_end(to);
            self.heads.acknowledged(memory, to);
        }
        self.trip.interrupted();
        if to == from && self.heads.is_empty() && !has_news {
            return held.flight();
        }
        let resumed = Resumed::begin(now, (from, from, to), rate.max(RATE_MIN), flight, trip);
        self.phase = Phase::Resumed(Box::new(Resumed {
            trip_min: after,
            edge,
            ahead,
            has_news,
            tell_at,
            ..resumed
        }));
        held.flight()
    }

    /// Up to where the local side has room as soon as there is a way, and how much of that is
    /// beyond what was promised: what is owed may leave less than may be in flight, and may have
    /// arrived before the way was lost. Whoever waited for its acknowledgement to give room would
    /// lose a round trip.
    fn room_at_once(&self, edge: Option<Seq>, flight: u32) -> (Option<Seq>, u32) {
        let Some(promised) = self.promised.filter(|_| !self.gives_up()) else { return (edge, 0) };
        let owed = promised.beyond(self.local.acked);
        let ahead = self.whole(flight.saturating_sub(owed));
        let opened = promised.plus(ahead).min(self.remote.edge).max(promised);
        (Some(edge.map_or(opened, |before| before.max(opened))), ahead)
    }

    /// The number after the end of the stream, if that is at `to`.
    fn with_end(&self, to: Seq) -> Seq {
        to.plus(u32::from(self.local.fin == Some(to)))
    }

    /// Whether a segment of the local side's that left at `left_at` and was lost need not be sent
    /// again: the remote side has it, or it lies in what is sent in the local side's place, now or
    /// as soon as there is a way again. What has left since there is one is no part of that: to
    /// the remote side it would be lost, and half as much would be on its way from then on.
    pub(in crate::flow) fn sends_again(&self, left_at: Instant, segment: &Segment) -> bool {
        let acked = self.local.acked;
        let to = match &self.phase {
            // What has left as it was is not sent from here, unless it is found to be lost.
            Phase::Resumed(_) if self.is_assisted() => acked,
            Phase::Resumed(resumed) if resumed.since < left_at => acked,
            Phase::Resumed(resumed) => resumed.to.max(acked),
            Phase::Held(_) => match self.cache.span() {
                Some((first, end)) if !acked.is_before(first) => end.max(acked),
                Some(_) | None => acked,
            },
            Phase::Normal => acked,
            Phase::Broken(_) => return false,
        };
        self.local.is_known && !to.is_before(segment.end())
    }

    /// Whether a segment of the local side's leaves as it is. It does not if it says again what was
    /// told to have arrived, or asks whether anybody is there: that is answered here. Nor if what
    /// is sent in its place comes before it and has not left yet: it follows in order, from what
    /// is kept, since one that overtook would look like a loss, and make the rest look old. Nor
    /// if what all have on their way is as much as it may be.
    pub(in crate::flow) fn goes_now(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &InnerPacket<'_>,
        is_crowded: bool,
    ) -> bool {
        let (end, promised) = (segment.end(), self.promised);
        let Phase::Resumed(resumed) = &mut self.phase else { return true };
        if promised.is_some_and(|to| !to.is_before(end) && segment.seq.is_before(to)) {
            resumed.tell_at = Some(now);
            return false;
        }
        let unusual = segment.flags.without(Flags::ACK.and(Flags::PSH).and(Flags::FIN));
        let says_more = segment.len > 0 || segment.flags.has(Flags::FIN);
        let is_crowded = is_crowded && resumed.assisted.is_none();
        let waits = resumed.next.is_before(resumed.to) || (is_crowded && says_more);
        if unusual != Flags::default() || !waits {
            if says_more {
                resumed.followed_to = resumed.followed_to.max(end);
                self.followed(now, end);
                self.answer_soon(now);
            }
            return true;
        }
        if says_more {
            let is_kept = !segment.seq.is_before(resumed.next) && self.cache.covers(segment);
            if is_kept && !resumed.next.is_before(resumed.to) {
                // Those before it went as they are, unless it is one of them again.
                resumed.next = resumed.next.max(resumed.followed_to.min(segment.seq));
            }
            resumed.to = if is_kept { resumed.to.max(end) } else { resumed.to };
            self.answer_soon(now);
            return !is_kept;
        }
        // What it says of what it received goes with the next piece, unless that waits, or tells
        // less.
        let is_bare = segment.sacked(packet).next().is_none();
        resumed.has_news |= is_bare;
        !is_bare
    }

    /// When something is to be sent in the local side's place.
    pub(in crate::flow) fn resend_due(&self) -> Option<Instant> {
        let Phase::Resumed(resumed) = &self.phase else { return None };
        let has_head = self.heads.has_next() && resumed.has_left(self.local.acked);
        let has_more = has_head || resumed.has_news || self.next_again(resumed, u32::MAX).is_some();
        let pace = (has_more && !resumed.is_parked).then_some(resumed.pace);
        let ends_at = self.assist_ends_at();
        let due = [pace, resumed.timeout, resumed.again_at, resumed.tell_at, ends_at];
        due.into_iter().flatten().min()
    }

    /// Whether nothing is due but a segment that may have to wait for those of others: not one that
    /// was lost on its way, which its receiver waits for.
    pub(in crate::flow) fn may_wait(&self, now: Instant) -> bool {
        let Phase::Resumed(resumed) = &self.phase else { return false };
        if resumed.assisted.is_some() {
            return false;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let is_overdue = is_due(resumed.timeout) || is_due(resumed.again_at);
        let is_urgent = resumed.tell_at.is_some() || is_overdue;
        let is_lost = resumed.next_lost(self.local.acked).is_some();
        !is_urgent && !is_lost && self.next_again(resumed, u32::MAX).is_some()
    }

    /// Whether something is to be sent in the local side's place that has not left yet.
    pub(in crate::flow) fn has_unsent(&self) -> bool {
        matches!(&self.phase, Phase::Resumed(resumed) if resumed.unsent().is_some())
    }

    /// Its turn waits, or does not any more.
    pub(in crate::flow) fn park(&mut self, is_parked: bool) {
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.is_parked = is_parked;
        }
    }

    pub(in crate::flow) fn is_parked(&self) -> bool {
        matches!(&self.phase, Phase::Resumed(resumed) if resumed.is_parked)
    }

    /// Whether something was found lost since this was asked last.
    pub(in crate::flow) fn takes_reduction(&mut self) -> bool {
        match &mut self.phase {
            Phase::Resumed(resumed) => {
                std::mem::take(&mut resumed.is_reduced) && resumed.assisted.is_none()
            }
            Phase::Normal | Phase::Held(_) | Phase::Broken(_) => false,
        }
    }

    /// Bytes on their way that were sent in the local side's place, and of its own that followed.
    pub(in crate::flow) fn flying(&self) -> u32 {
        let acked = self.local.acked;
        match &self.phase {
            Phase::Resumed(resumed) if resumed.assisted.is_none() => {
                let followed = resumed.followed_to.beyond(resumed.to.max(acked));
                resumed.flying(acked).saturating_add(followed)
            }
            Phase::Normal | Phase::Held(_) | Phase::Resumed(_) | Phase::Broken(_) => 0,
        }
    }

    /// Sends the next segment that is due, of at most `most` bytes if it was not lost: a packet for
    /// the tunnel, or the end for both.
    pub(in crate::flow) fn resend(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        most: u32,
        out: &mut Vec<u8>,
    ) -> Option<Output> {
        let (gives_up, mss) = (self.gives_up(), self.mss());
        let Phase::Resumed(resumed) = &mut self.phase else { return None };
        if resumed.tell_at.take_if(|at| *at <= now).is_some()
            && self.answer_again(now, memory, gives_up, out)
        {
            return Some(Output::ToLocal);
        }
        if self.assist_ends_at().is_some_and(|at| at <= now) {
            self.leave_assist();
        }
        let Phase::Resumed(resumed) = &mut self.phase else { return None };
        if resumed.timeout.is_some_and(|due| due <= now) {
            // What the local side was not promised it will repeat itself, if it is not too late.
            let is_needed = gives_up && resumed.tries < TRIES_MAX;
            if self.promised.is_none() && !is_needed {
                self.leave_assist();
                self.phase = Phase::Normal;
                return None;
            }
            self.heads.rewind();
            resumed.time_out(now, self.local.acked, mss);
            if resumed.tries > TRIES_MAX {
                self.begin_break_off(now, memory);
                return None;
            }
        }
        if resumed.again_at.is_some_and(|at| at <= now) {
            self.heads.rewind();
            resumed.begin_again(now, self.local.acked);
        }
        if resumed.pace > now {
            return None;
        }
        if resumed.has_left(self.local.acked) && self.heads.has_next() {
            resumed.timeout = resumed.timeout.or_else(|| Some(now + resumed.patience()));
            return self.send_head(memory, out);
        }
        let has_news = std::mem::take(&mut resumed.has_news);
        // A header of its own must not vouch for what was damaged on its way here.
        self.cache.verify(memory);
        let Phase::Resumed(resumed) = &self.phase else { return None };
        let Some(again) = self.next_again(resumed, most) else {
            if has_news {
                self.say_news(out);
            }
            self.end_if_done();
            return has_news.then_some(Output::ToRemote);
        };
        self.send_again(&again, out);
        let (seq, end) = (again.seq, self.with_end(again.end()));
        let Phase::Resumed(resumed) = &mut self.phase else { return None };
        resumed.left(now, seq, end);
        self.trip.repeated();
        Some(Output::ToRemote)
    }

    /// Tells the local side what has arrived, as far as it may know. Returns whether there was
    /// something to tell.
    fn answer_again(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        gives_up: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let Phase::Resumed(resumed) = &self.phase else { return false };
        if resumed.assisted.is_some() {
            self.answer_ahead(now, memory, out);
            return true;
        }
        let Some(promised) = self.promised else { return false };
        let edge = resumed.edge.filter(|_| !gives_up);
        let edge = edge.map_or(promised, |edge| edge.max(promised));
        self.acknowledge(promised, edge, out);
        true
    }

    /// Sends the oldest packet that was kept as it came.
    fn send_head(&mut self, memory: &mut Memory, out: &mut Vec<u8>) -> Option<Output> {
        let place = self.heads.advance()?;
        self.send_kept(self.heads.get(place), out);
        if self.state == State::Closed && !self.heads.has_next() {
            self.heads.clear(memory); // a reset, which nobody acknowledges
            self.end_if_done();
        }
        Some(Output::ToRemote)
    }

    /// The piece that leaves next, as far as it may: what was lost, else at most `most` bytes of
    /// what has not left.
    fn next_again(&self, resumed: &Resumed, most: u32) -> Option<Again<'_>> {
        let acked = self.local.acked;
        let lost = resumed.next_lost(acked);
        if let Some(again) = lost.and_then(|lost| self.piece_at(resumed, lost)) {
            return Some(again);
        }
        if !resumed.next.is_before(resumed.to) {
            return None;
        }
        let at = resumed.past_arrived(resumed.next.max(acked));
        let again = self.piece_at(resumed, at)?.cut(at, most);
        let flying = resumed.flying(acked);
        let end = again.end();
        let fits = flying == 0 || flying + end.beyond(again.seq) <= resumed.flight_max;
        let has_room = !self.remote.edge.is_before(end) || flying == 0;
        (fits && has_room).then_some(again)
    }

    /// The piece that begins at `from`; behind the last it is the end alone, if that is still to be
    /// said: the bytes that it would have gone with may have arrived already.
    fn piece_at(&self, resumed: &Resumed, from: Seq) -> Option<Again<'_>> {
        if self.local.fin == Some(from) && from.is_before(resumed.to) {
            return Some(Again { seq: from, bytes: (&[], &[]), push: false });
        }
        // What is kept may begin later: what was damaged on its way here was let go of.
        self.cache.from(from).next().filter(|again| !from.is_before(again.seq))
    }
}

impl Resumed {
    /// What is acknowledged ahead of the remote side, if anything is.
    pub(super) fn assisted(&self) -> Option<&Assisted> {
        self.assisted.as_ref()
    }

    /// Whether everything that is sent in the local side's place has left.
    pub(super) fn has_caught_up(&self) -> bool {
        !self.next.is_before(self.to)
    }

    /// Whether nothing is left to be sent or said, where the remote side has everything before
    /// `acked`.
    pub(super) fn is_done(&self, acked: Seq) -> bool {
        self.assisted.is_none() && !self.has_news && !acked.is_before(self.to)
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
            first_heard: None,
            next,
            to,
            followed_to: to,
            arrived: Vec::new(),
            seen: from,
            lost: (from, from),
            reduced_at: from,
            is_reduced: false,
            heard_at: now,
            heard_to: from,
            said_to: None,
            repeats: 0,
            recovers_to: None,
            window: None,
            rate,
            flight_max,
            pace: now,
            trip,
            trip_min: Duration::ZERO,
            timed: None,
            timeout: None,
            tries: 0,
            doubled: 0,
            again_at: None,
            edge: None,
            ahead: 0,
            has_news: false,
            is_parked: false,
            tell_at: None,
            assisted: None,
        }
    }

    /// Up to where the local side was told that there is room, if it was.
    pub(in crate::flow) const fn edge(&self) -> Option<Seq> {
        self.edge
    }

    /// The end of the last bytes that the remote side sent, if it sent any.
    pub(in crate::flow) const fn said_to(&self) -> Option<Seq> {
        self.said_to
    }

    /// The first byte that is still to leave; `None` when all have.
    pub(in crate::flow) fn unsent(&self) -> Option<Seq> {
        self.next.is_before(self.to).then_some(self.next)
    }
}

fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
