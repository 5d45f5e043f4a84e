//! What is on its way of what is sent in the local side's place, and what of it is lost: by what
//! the remote side says it has, by its silence, and by time.

use super::assist::Assisted;
use super::{
    BURST, DOUBLED_MAX, FLIGHT_MIN, RANGES_MAX, RATE_MIN, REORDERED_MAX, Resumed, TIMEOUT_MAX,
    TIMEOUT_MIN,
};
use crate::time::{Duration, Instant};
use crate::wire::tcp::Seq;

/// Less than one of so many parts of what is on its way is little that is lost (`BBRLossThresh`,
/// 2 %: draft-ietf-ccwg-bbr, 2.7).
const LOSS_PARTS: u32 = 50;
/// Once something was missing the window grows by this part of itself in a round trip.
const GROWTH_PART: u32 = 16;

impl Resumed {
    /// Bytes on their way.
    pub(super) fn flying(&self, acked: Seq) -> u32 {
        let arrived: u32 =
            self.arrived.iter().map(|(from, to)| to.min(self.next).beyond(*from)).sum();
        let (from, to) = self.lost;
        let lost = to.beyond(from.max(acked));
        self.next.beyond(acked).saturating_sub(arrived).saturating_sub(lost)
    }

    /// Whether everything that is sent in the local side's place has left.
    pub(super) fn has_caught_up(&self) -> bool {
        !self.next.is_before(self.to)
    }

    /// Whether all that is to be sent in the local side's place has left, and nothing is lost: what
    /// nobody answered for follows.
    pub(super) fn has_left(&self, acked: Seq) -> bool {
        !self.next.is_before(self.to) && self.next_lost(acked).is_none()
    }

    /// The first byte that is lost, did not arrive, and has not left again.
    pub(super) fn next_lost(&self, acked: Seq) -> Option<Seq> {
        let (from, to) = self.lost;
        let at = self.past_arrived(from.max(acked));
        at.is_before(to).then_some(at)
    }

    /// The first byte from `at` on that did not arrive beyond what is missing.
    pub(super) fn past_arrived(&self, mut at: Seq) -> Seq {
        for &(first, end) in &self.arrived {
            if !at.is_before(first) && at.is_before(end) {
                at = end;
            }
        }
        at
    }

    pub(super) fn left(&mut self, now: Instant, seq: Seq, end: Seq) {
        if seq.is_before(self.lost.1) && !end.is_before(self.lost.0) {
            self.lost.0 = self.lost.0.max(end);
        }
        // What was tried before may be answered for the first time that it left (Karn; RFC 6298,
        // section 3).
        if self.timed.is_none() && self.tries == 0 && !seq.is_before(self.next) {
            self.timed = Some((end, now));
        }
        self.next = self.next.max(end);
        let bytes = u64::from(end.beyond(seq));
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.rate.max(RATE_MIN));
        // What was not used a moment ago may be made up for, not more.
        self.pace = self.pace.max(now - BURST) + takes;
        if self.timeout.is_none() {
            self.timeout = Some(now + self.patience());
        }
    }

    /// Equation 4.10: twice the round trip, and twice as long with each try until that is measured
    /// again.
    pub(super) fn patience(&self) -> Duration {
        (self.answer_time() * (1 << self.doubled.min(10))).min(TIMEOUT_MAX)
    }

    /// How long an answer takes at most where nothing is lost, or the tunnel fills the gap.
    fn answer_time(&self) -> Duration {
        self.trip_time() + self.assisted.as_ref().map_or(Duration::ZERO, Assisted::gap_time)
    }

    /// How long an answer takes at most where nothing is lost.
    fn trip_time(&self) -> Duration {
        (self.trip * 2).max(TIMEOUT_MIN)
    }

    /// Nothing was answered for too long: all that is on its way counts as lost, and what leaves
    /// again may be lost again.
    pub(super) fn time_out(&mut self, now: Instant, acked: Seq, mss: u32) {
        self.tries += 1;
        self.doubled = self.doubled.saturating_add(1);
        self.begin_again(now, acked);
        self.reduce(mss);
        self.timeout = Some(now + self.patience());
    }

    /// Everything leaves again.
    pub(super) fn begin_again(&mut self, now: Instant, acked: Seq) {
        self.since = now;
        (self.repeats, self.recovers_to) = (0, None);
        (self.again_at, self.timed) = (None, None);
        self.arrived.clear(); // its receiver may have thought better of it (RFC 2018, section 8)
        (self.next, self.seen, self.lost) = (acked, acked, (acked, acked));
        self.followed_to = self.to; // whoever sent what followed looks after it
        self.pace = now;
    }

    /// When everything leaves again because the remote side is heard after a silence: there was no
    /// way for a while, without anybody here having noticed. Who has waited longer with each try
    /// does not go on waiting, but begins again as soon as what left last should have been
    /// answered; `None` if none of that is so. This counts as no try, and puts none off: that the
    /// one direction carries says little about the other.
    fn begins_again_at(&self, now: Instant) -> Option<Instant> {
        let is_silent = now.saturating_since(self.heard_at) >= self.trip_time() * 2;
        let tried_at = self.timeout? - self.patience();
        (self.tries > 0 && is_silent).then(|| now.max(tried_at + self.trip_time()))
    }

    /// The remote side has everything before `acked`: how long that took, if it left once. One that
    /// is shorter than what was known is believed half at a time.
    fn measure(&mut self, now: Instant, acked: Seq) {
        let Some((_, at)) = self.timed.filter(|&(end, _)| !acked.is_before(end)) else { return };
        self.trip = now.saturating_since(at).max(self.trip / 2).max(self.trip_min);
        (self.timed, self.doubled) = (None, 0);
    }

    /// Up to where anything has left since: the local side's own bytes behind that included.
    pub(super) fn sent_to(&self) -> Seq {
        if self.next.is_before(self.to) { self.to } else { self.followed_to.max(self.to) }
    }

    pub(super) fn note_arrived(&mut self, from: Seq, to: Seq) {
        let is_known = |&&(first, end): &&(Seq, Seq)| first.is_before(to) && !end.is_before(to);
        let mut news = self.arrived.iter().find(is_known).map_or(to, |&(first, _)| first);
        if self.tries > 0 {
            // Who was silent until now answers what has left since, whatever else it had.
            news = news.min(self.next);
        }
        if from.is_before(news) && !self.next.is_before(news) {
            self.seen = self.seen.max(news);
        } else if !from.is_before(self.to) {
            // What the local side said itself left after all of these.
            self.seen = self.seen.max(if self.tries > 0 { self.next } else { to });
        }
        let apart = |&(first, end): &(Seq, Seq)| end.is_before(from) || to.is_before(first);
        let mut whole = (from, to);
        for range in self.arrived.iter().filter(|range| !apart(range)) {
            whole = (whole.0.min(range.0), whole.1.max(range.1));
        }
        self.arrived.retain(apart);
        let place = self.arrived.partition_point(|(first, _)| first.is_before(whole.0));
        self.arrived.insert(place, whole);
        self.arrived.truncate(RANGES_MAX);
    }

    /// The remote side has everything before `acked` by now.
    pub(super) fn heard(&mut self, now: Instant, acked: Seq, mss: u32) {
        let again_at = self.begins_again_at(now);
        self.heard_at = now;
        self.arrived.retain(|(_, end)| acked.is_before(*end));
        self.next = self.next.max(acked); // it had more than it could say before the way was lost
        let progress = acked.beyond(self.heard_to);
        if progress > 0 {
            self.widen(progress, self.next.beyond(self.heard_to));
            self.heard_to = acked;
            self.seen = self.seen.max(acked);
            self.repeats = 0;
            self.tries = 0;
            self.doubled = self.doubled.min(DOUBLED_MAX);
            self.again_at = None;
            self.measure(now, acked);
            self.grow(progress, mss);
            self.timeout = acked.is_before(self.next).then(|| now + self.patience());
        } else if again_at.is_some() {
            self.again_at = again_at;
        }
    }

    /// What left before something that has arrived, and did not arrive itself, is lost. It may only
    /// be late, but after a silence it is not waited for (`tcp_rack_reo_wnd` of Linux).
    pub(super) fn find_losses(&mut self, acked: Seq, mss: u32) {
        let late = if self.tries > 0 { 0 } else { REORDERED_MAX * mss };
        let lost_to = self.seen.minus(late).min(self.next);
        if self.lost.1.is_before(lost_to) && acked.is_before(lost_to) {
            self.lost = (self.lost.0.max(acked), lost_to);
            let is_new = !self.next_lost(acked).is_none_or(|at| at.is_before(self.reduced_at));
            if is_new && self.decides() && !self.is_little(acked) {
                self.reduce(mss);
            }
        }
    }

    /// The same, from a receiver that cannot say what it has beyond: that it misses the first
    /// segment shows in its saying the same again, and once that one has left again and the next
    /// is missing, in its not having everything (RFC 6582, 3.2).
    pub(super) fn heard_blindly(&mut self, acked: Seq, mss: u32) {
        self.recovers_to = self.recovers_to.filter(|&to| acked.is_before(to));
        if !acked.is_before(self.next) || self.next_lost(acked).is_some() {
            return;
        }
        self.repeats += 1;
        let is_recovering = self.recovers_to.is_some();
        let is_missing = if is_recovering { 1 } else { 1 + REORDERED_MAX };
        if self.repeats == is_missing {
            self.lost = (acked, acked.plus(mss).min(self.next));
            if !is_recovering {
                self.recovers_to = Some(self.next);
                if self.decides() {
                    self.reduce(mss);
                }
            }
        }
    }

    /// Whether this node decides how much is on its way. Where nothing is owed the local side
    /// does: were it held to half of it with each loss here as well, what waits here would do so
    /// for ever, and nothing would be repaired before the two ends know of it.
    const fn decides(&self) -> bool {
        self.is_owed || self.assisted.is_some()
    }

    /// One segment more for each round trip (additive increase, RFC 5681, 3.1); where nothing is
    /// owed twice as much, until all that the local side lets be on its way is (3.1, slow start).
    fn grow(&mut self, progress: u32, mss: u32) {
        if self.assisted.is_some() {
            return;
        }
        let more = u128::from(if self.is_owed { mss } else { self.flight_max });
        let part = |whole: u128| {
            let progress = u128::from(progress.min(self.flight_max));
            u64::try_from(whole * progress / u128::from(self.flight_max.max(1))).unwrap_or(0)
        };
        let flight = part(more);
        let rate = part(more * 1_000_000_000 / self.trip.as_nanos().max(1));
        self.flight_max = self.flight_max.saturating_add(u32::try_from(flight).unwrap_or(0));
        self.rate = self.rate.saturating_add(rate);
    }

    /// Half as fast, once for all that is on its way now.
    pub(super) fn reduce(&mut self, mss: u32) {
        self.rate = (self.rate / 2).max(RATE_MIN);
        self.flight_max = (self.flight_max / 2).max(mss);
        self.narrow(mss);
        self.timed = None; // of what leaves twice nobody knows which was answered (Karn)
        self.reduced_at = self.next;
        self.is_reduced = true;
    }

    /// So much has arrived of an assisted connection: more may be on its way, if as much was.
    fn widen(&mut self, progress: u32, flying: u32) {
        let Some(assisted) = &self.assisted else { return };
        let part = if assisted.is_starting { progress } else { progress / GROWTH_PART };
        if flying >= self.flight_max / 2 {
            self.flight_max = self.flight_max.saturating_add(part);
        }
    }

    /// Whether so little of an assisted connection is lost that it says nothing about its rate: a
    /// gap that the tunnel gave up.
    fn is_little(&self, acked: Seq) -> bool {
        let (from, to) = (self.lost.0.max(acked), self.lost.1);
        let within = |&(first, end): &(Seq, Seq)| end.min(to).beyond(first.max(from));
        let arrived: u32 = self.arrived.iter().map(within).sum();
        let missing = to.beyond(from).saturating_sub(arrived);
        let flight = self.next.beyond(acked);
        self.assisted.is_some() && missing.saturating_mul(LOSS_PARTS) < flight
    }

    /// Something of an assisted connection is missing.
    fn narrow(&mut self, mss: u32) {
        if let Some(assisted) = &mut self.assisted {
            if std::mem::replace(&mut assisted.is_starting, false) {
                self.flight_max = self.flight_max.max(self.next.beyond(self.heard_to) / 2);
            }
            self.flight_max = self.flight_max.max(FLIGHT_MIN * mss);
        }
    }
}
