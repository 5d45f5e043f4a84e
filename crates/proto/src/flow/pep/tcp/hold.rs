//! There is no way to the remote side: its part is taken, so that the local one neither waits for
//! a time-out, nor slows down, nor gives up (Alshalan 2017, sections 4.5.3 and 4.6, Algorithms 2 to
//! 4).
//!
//! Everything outstanding is acknowledged, then the window is closed; probes and keep-alives are
//! answered. Acknowledged bytes are owed from then on (`promise`), which is written down first. If
//! only a part of the outstanding bytes is kept, nothing is acknowledged and the window stays open:
//! to close it over them costs seconds (measured on Linux: 6.8 s, against 0.02 s). The oldest
//! segments are kept to be sent again. Their sender is shown a closed window only when it is about
//! to give up; it waits before a closed window without end.
//!
//! A sender that was already slowed down by a time-out is let go on into the memory until it is as
//! fast again as it was, within its share (Equations 4.6 to 4.8).

use super::tracker::{Told, Tracker};
use crate::flow::pep::cache::Payload;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::share;
use crate::flow::report::Stage;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment, Seq};

/// How long an answer may be put off, in round trips: a sender that hears nothing has said what it
/// may in two of them,
const TRIPS_MAX: u32 = 3;
/// but a BBR to which acknowledgements came in bunches may have more to say, four round trips and
/// longer. The first is no reason to wait for less than this beyond one: its sender's time-out is
/// 200 ms longer than that (`TCP_RTO_MIN` of Linux).
const WAIT_LEAST: Duration = Duration::from_millis(150);

/// Who was shown a closed window in place of an acknowledgement hears of it again after so long:
/// Linux gives up at a time-out that finds nothing heard for 120 s (`tcp_retransmit_timer`), by
/// then asks no more often, and some of what it hears may be lost beyond this node.
const REMINDED: Duration = Duration::from_secs(20);

/// A connection on which something came or went within this time may have lost something.
pub(super) const RECENT: Duration = Duration::from_secs(3);

/// What is known of a connection whose remote side cannot be reached.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Bytes that were on their way when the way was lost.
    flight: u32,
    /// How often the first segment was sent again since.
    repeats: u8,
    /// Whether the local side has been as fast since as it was before.
    is_fast: bool,
    /// When it is to be answered.
    answer: Option<Instant>,
    /// When at the latest, however much it goes on saying.
    answer_by: Option<Instant>,
    /// When it is to be told again what it was told last, if it does not ask before.
    remind: Option<Instant>,
    /// Up to where it was told that there is room.
    edge: Option<Seq>,
    /// Whether it repeats what has arrived: it took no notice of the segment that said so.
    is_behind: bool,
    /// Whether the local side has acknowledged something that nobody heard of.
    has_news: bool,
}

impl Held {
    /// The way is lost. The local side was told before that there is room up to `edge`, if it was:
    /// that is not taken back.
    pub(super) fn new(now: Instant, tracker: &Tracker, edge: Option<Seq>) -> Self {
        // What the local side said last may have been lost with the way.
        // Of one that is not open yet, nobody can tell that word from the end of a handshake.
        let has_begun = tracker.local.answered && tracker.stage != Stage::Opening;
        let has_news = now.saturating_since(tracker.used_at) < RECENT && has_begun;
        let (flight, is_behind) = (tracker.outstanding(), tracker.patience.is_behind);
        Self { flight, edge, is_behind, has_news, ..Self::default() }
    }

    /// Bytes that were on their way when the way was lost.
    pub(super) const fn flight(&self) -> u32 {
        self.flight
    }

    /// Up to where the local side was told that there is room, if it was.
    pub(super) const fn edge(&self) -> Option<Seq> {
        self.edge
    }

    /// Whether the local side has said something about what it received that the remote one may not
    /// have heard.
    pub(super) const fn has_news(&self) -> bool {
        self.has_news
    }

    /// Has what the local side sent before the way was lost answered, if there is anything to
    /// answer: what left a round trip ago and longer at once. A link that says that it is gone
    /// leaves more than that.
    pub(super) fn begin(&mut self, now: Instant, memory: &mut Memory, tracker: &mut Tracker) {
        if !tracker.cache.is_empty() || tracker.gives_up() || self.is_behind {
            tracker.cache.verify(memory);
            let trip = tracker.trip.time();
            self.answer = Some((tracker.used_at + trip).max(now));
            self.answer_by = Some(now + put_off_max(trip));
        }
    }

    /// It says something that is to be answered. An answer that comes too soon would make the round
    /// trip look short, to a BBR for ten seconds: what is fresh puts it off, as long as that is
    /// bounded by what a sender may have in flight.
    fn asks(&mut self, now: Instant, trip: Duration, fresh: bool) {
        let by = *self.answer_by.get_or_insert_with(|| now + put_off_max(trip));
        let at = if fresh { now + trip } else { now };
        self.answer = Some(match self.answer {
            Some(before) if fresh => before.max(at.min(by)),
            Some(before) => before.min(at),
            None => at,
        });
    }

    /// When something is to be done, but for a record that is awaited.
    pub(super) fn due(&self, tracker: &Tracker) -> Option<Instant> {
        let due = self.answer.into_iter().chain(self.remind).min();
        due.filter(|_| !tracker.promise.is_awaited())
    }

    /// The local side says something, and nobody else hears it. It was observed, and is cached if
    /// there is room.
    pub(super) fn overhear(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        tracker: &mut Tracker,
        (segment, packet): (&Segment, &InnerPacket<'_>),
        fresh: bool,
    ) {
        let local = &tracker.local;
        // What memory was short for is answered by nobody, though what came before it is.
        let kept_to = tracker.cache.span().map_or(local.acked, |(_, end)| end);
        let is_kept = !kept_to.is_before(segment.seq.plus(u32::from(segment.len)));
        let is_covered = tracker.covered().is_some() && is_kept;
        let known_to = tracker.answered_to();
        let probes = segment.len <= 1 && segment.seq == known_to.minus(1);
        // What the local side knows to have arrived is kept as bytes: its place is for others.
        tracker.heads.acknowledged(memory, known_to);
        let is_over = segment.flags.has(Flags::RST) && tracker.stage == Stage::Closed;
        let is_missed = local.acked.is_before(segment.end());
        // What was damaged on its way here may not even be of this connection.
        let is_sound = || Payload::of(packet, segment).is_sound();
        if is_over || (segment.flags.has(Flags::SYN) && is_missed) {
            if is_sound() {
                tracker.heads.clear(memory);
                tracker.heads.keep(memory, segment.seq, packet.pieces, false);
            }
        } else if segment.flags.has(Flags::RST) {
            // What was owed to it comes first; then it says so again.
        } else if probes {
            self.answer = Some(now);
        } else if segment.len == 0 && !segment.flags.has(Flags::FIN) {
            self.has_news = true;
        } else {
            if !fresh {
                self.repeats = self.repeats.saturating_add(1);
                self.is_behind |= segment.seq.is_before(known_to);
            }
            if is_missed && (!is_covered || segment.len == 0) && is_sound() {
                tracker.heads.keep(memory, segment.seq, packet.pieces, false);
            }
            self.asks(now, tracker.trip.time(), fresh);
        }
    }

    /// Whether something is to be written down before the local side can be answered.
    pub(super) fn needs_record(&self, now: Instant, tracker: &Tracker) -> bool {
        let would_owe = tracker.covered().is_some_and(|end| tracker.local.acked.is_before(end));
        let is_due = self.answer.is_some_and(|at| at <= now);
        tracker.promise.has_no_record() && would_owe && is_due
    }

    /// The answer to the local side in the remote one's place, if one is due: up to where is
    /// acknowledged, and up to where there is room. `can_be_held` if it may be spoken for.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        tracker: &mut Tracker,
        can_be_held: bool,
    ) -> Option<(Seq, Seq)> {
        let covered = tracker.covered();
        let (known_to, has_sack) = (tracker.answered_to(), tracker.has_sack());
        let gives_up = tracker.gives_up();
        let is_owed = tracker.promise.to().is_some() && !gives_up;
        let (room, mss) = (tracker.remote.edge, tracker.mss());
        self.due(tracker).filter(|&due| due <= now)?;
        (self.answer, self.answer_by, self.remind) = (None, None, None);
        let is_behind = std::mem::take(&mut self.is_behind);
        if !can_be_held {
            return None;
        }
        let (ack, edge) = match covered {
            Some(end) if known_to.is_before(end) || is_owed => {
                let unanswered = end.beyond(known_to);
                let has_gone_on = self.edge.is_some() && unanswered >= self.flight;
                self.is_fast |= self.repeats == 0 || has_gone_on;
                let open = if self.is_fast {
                    end
                } else {
                    let share = share::packets(self.flight / mss.max(1), true) * mss;
                    tracker.local.acked.plus(share).min(room).max(end)
                };
                tracker.promise.give(end.max(known_to));
                tracker.patience.acknowledged(now, end.max(known_to), has_sack);
                (end.max(known_to), open)
            }
            // Whoever sees a closed window does not give up, even if room is taken back for it.
            Some(_) | None if gives_up => {
                self.edge = None;
                self.remind = Some(now + REMINDED);
                (known_to, known_to)
            }
            // Nothing outstanding, or a FIN: a keep-alive, and as much room as there was.
            Some(end) => (end, room),
            // It would repeat that until it gives up. What is outstanding it repeats from then on.
            None if is_behind => {
                tracker.patience.acknowledged(now, known_to, has_sack);
                (known_to, room)
            }
            None => return None,
        };
        let edge = self.edge.map_or(edge, |before| before.max(edge)).max(ack);
        self.edge = Some(edge);
        Some((ack, edge))
    }

    /// What the local side hears in place of an acknowledgement of the remote side's, which comes
    /// all the same; `None` when it hears that.
    pub(super) fn tell(&self, tracker: &Tracker) -> Option<Told> {
        let (ack, window) = if tracker.gives_up() {
            // It was shown a closed window so as not to, and has to see it until there is news.
            (tracker.answered_to(), 0)
        } else {
            let promised = tracker.promise.to()?;
            (promised, tracker.window(self.edge.unwrap_or(promised).beyond(promised)))
        };
        Some(Told { ack, window, is_news: false, is_own: false })
    }
}

/// How long an answer may be put off where the round trip is `trip`.
fn put_off_max(trip: Duration) -> Duration {
    (trip * TRIPS_MAX).max(trip + WAIT_LEAST)
}
