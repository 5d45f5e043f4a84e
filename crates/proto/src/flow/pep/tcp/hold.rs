//! There is no way to the remote side: its part is taken, so that the local one neither waits for
//! a time-out, nor slows down, nor gives up (Alshalan 2017, sections 4.5.3 and 4.6, Algorithms 2 to
//! 4).
//!
//! Everything outstanding is acknowledged, then the window is closed; probes and keep-alives are
//! answered. Acknowledged bytes are owed from then on ([`Connection::promised`]), which is
//! written down first. If only a part of the outstanding bytes is kept, nothing is acknowledged and
//! the window stays open: to close it over them costs seconds (measured on Linux: 6.8 s, against
//! 0.02 s). The oldest segments are kept to be sent again. Their sender is shown a closed window
//! only when it is about to give up; it waits before a closed window without end.
//!
//! A sender that was already slowed down by a time-out is let go on into the memory until it is as
//! fast again as it was, within its share (Equations 4.6 to 4.8).

use super::{Connection, Phase, State};
use crate::flow::pep::cache::Payload;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::share;
use crate::flow::rules::Hold;
use crate::flow::verdict::Output;
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
const RECENT: Duration = Duration::from_secs(3);

/// What is known of a connection whose remote side cannot be reached.
#[derive(Debug)]
pub(in crate::flow) struct Held {
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
    record: Record,
    /// Whether the local side has acknowledged something that nobody heard of.
    pub(in crate::flow) has_news: bool,
}

/// Whether it is written down that something is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    None,
    Asked,
    Written,
}

impl Held {
    fn new(flow: &Connection, now: Instant) -> Self {
        // What the local side said last may have been lost with the way.
        // Of one that is not open yet, nobody can tell that word from the end of a handshake.
        let has_begun = flow.local.answered && flow.state != State::Opening;
        let has_news = now.saturating_since(flow.used_at) < RECENT && has_begun;
        let record = match flow.assist_record() {
            Some(false) => Record::Asked,
            Some(true) => Record::Written,
            None if flow.owes() => Record::Written,
            None => Record::None,
        };
        Self {
            flight: flow.outstanding(),
            repeats: 0,
            is_fast: false,
            answer: None,
            answer_by: None,
            remind: None,
            edge: None,
            is_behind: false,
            record,
            has_news,
        }
    }

    /// Bytes that were on their way when the way was lost.
    pub(in crate::flow) const fn flight(&self) -> u32 {
        self.flight
    }

    /// Whether nothing is said before it is written down.
    pub(in crate::flow) const fn is_being_recorded(&self) -> bool {
        matches!(self.record, Record::Asked)
    }

    /// Up to where the local side was told that there is room, if it was.
    pub(in crate::flow) const fn edge(&self) -> Option<Seq> {
        self.edge
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

    /// When something is to be done.
    pub(in crate::flow) fn due(&self) -> Option<Instant> {
        match self.record {
            Record::Asked => None,
            Record::None | Record::Written => self.answer.into_iter().chain(self.remind).min(),
        }
    }

    /// It is written down.
    pub(in crate::flow) const fn recorded(&mut self) {
        self.record = Record::Written;
    }

    /// Whether it is written down, or that was asked for.
    pub(in crate::flow) fn has_record(&self) -> bool {
        self.record != Record::None
    }

    /// Nothing is owed any more, and that is struck out: before anything is owed again, it has to
    /// be written down again.
    pub(in crate::flow) const fn settled(&mut self) {
        self.record = Record::None;
    }

    /// Nothing will be owed: whether it was written down that something would be, and has to be
    /// struck out.
    pub(in crate::flow) fn strike_out(&mut self) -> bool {
        std::mem::replace(&mut self.record, Record::None) == Record::Written
    }
}

/// How long an answer may be put off where the round trip is `trip`.
fn put_off_max(trip: Duration) -> Duration {
    (trip * TRIPS_MAX).max(trip + WAIT_LEAST)
}

impl Connection {
    /// The way to the remote side is lost.
    pub(in crate::flow) fn suspend(&mut self, now: Instant, memory: &mut Memory) {
        if matches!(self.phase, Phase::Held(_) | Phase::Broken(_)) || self.choice.hold == Hold::Off
        {
            return;
        }
        self.trip.interrupted();
        self.heads.rewind();
        let mut held = Box::new(Held::new(self, now));
        if let Phase::Resumed(resumed) = &self.phase {
            held.edge = resumed.edge(); // room that was given is not taken back
        }
        held.is_behind = self.patience.is_behind;
        if self.can_be_held() && (!self.cache.is_empty() || self.gives_up() || held.is_behind) {
            self.cache.verify(memory);
            // What left a round trip ago and longer is acknowledged at once; a link that says that
            // it is gone leaves more than that.
            let last = self.used_at + self.trip.time();
            held.answer = Some(last.max(now));
            held.answer_by = Some(now + put_off_max(self.trip.time()));
        }
        self.phase = Phase::Held(held);
    }

    /// The local side says something, and nobody else hears it. It was observed, and is cached if
    /// there is room.
    pub(in crate::flow) fn say_unheard(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        segment: &Segment,
        packet: &InnerPacket<'_>,
        fresh: bool,
    ) {
        // What memory was short for is answered by nobody, though what came before it is.
        let is_kept = !self.kept_to().is_before(segment.seq.plus(u32::from(segment.len)));
        let is_covered = self.covered().is_some() && is_kept;
        let known_to = self.answered_to();
        let probes = segment.len <= 1 && segment.seq == known_to.minus(1);
        let trip = self.trip.time();
        // What the local side knows to have arrived is kept as bytes: its place is for others.
        self.heads.acknowledged(memory, known_to);
        let Phase::Held(held) = &mut self.phase else { return };
        let is_over = segment.flags.has(Flags::RST) && self.state == State::Closed;
        let is_missed = self.local.acked.is_before(segment.end());
        // What was damaged on its way here may not even be of this connection.
        let is_sound = || Payload::of(packet, segment).is_sound();
        if is_over || (segment.flags.has(Flags::SYN) && is_missed) {
            if is_sound() {
                self.heads.clear(memory);
                self.heads.keep(memory, segment.seq, packet.pieces);
            }
        } else if segment.flags.has(Flags::RST) {
            // What was owed to it comes first; then it says so again.
        } else if probes {
            held.answer = Some(now);
        } else if segment.len == 0 && !segment.flags.has(Flags::FIN) {
            held.has_news = true;
        } else {
            if !fresh {
                held.repeats = held.repeats.saturating_add(1);
                held.is_behind |= segment.seq.is_before(known_to);
            }
            if is_missed && (!is_covered || segment.len == 0) && is_sound() {
                self.heads.keep(memory, segment.seq, packet.pieces);
            }
            held.asks(now, trip, fresh);
        }
    }

    /// Whether the remote side has to be reached for it: something is on its way there, or may not
    /// have come from there.
    pub(in crate::flow) fn waits(&self, now: Instant) -> bool {
        let recent = now.saturating_since(self.used_at) < RECENT;
        let open = matches!(self.state, State::Established | State::HalfClosed);
        let waits = self.outstanding() > 0 || (recent && open);
        self.choice.hold != Hold::Off && (waits || matches!(self.phase, Phase::Resumed(_)))
    }

    /// Whether the local side has said something about what it received that the remote one may not
    /// have heard.
    pub(in crate::flow) fn has_news(&self) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.has_news)
    }

    /// Whether the local side is about to give up, for what nobody has acknowledged.
    pub(in crate::flow) fn gives_up(&self) -> bool {
        self.answered_to().is_before(self.local.next) && self.patience.ends()
    }

    /// Whether something is to be written down before the local side can be answered. What is kept
    /// is looked at first: nothing that was damaged on its way here is acknowledged.
    pub(in crate::flow) fn needs_record(&mut self, now: Instant, memory: &mut Memory) -> bool {
        self.cache.verify(memory);
        let would_owe = self.covered().is_some_and(|end| self.local.acked.is_before(end));
        let can_be_held = self.can_be_held();
        let Phase::Held(held) = &mut self.phase else { return false };
        let needs = held.record == Record::None
            && would_owe
            && can_be_held
            && held.answer.is_some_and(|at| at <= now);
        if needs {
            held.record = Record::Asked;
        }
        needs
    }

    /// Answers the local side in the remote one's place, if that is due: a packet for the TUN.
    pub(in crate::flow) fn answer(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Output> {
        let covered = self.covered();
        let can_be_held = self.can_be_held();
        let (known_to, has_sack) = (self.answered_to(), self.has_sack());
        let gives_up = self.gives_up();
        let is_owed = self.promised.is_some() && !gives_up;
        let room = self.remote.edge;
        let mss = self.mss();
        let Phase::Held(held) = &mut self.phase else { return None };
        if held.due().is_none_or(|due| due > now) {
            return None;
        }
        (held.answer, held.answer_by, held.remind) = (None, None, None);
        let is_behind = std::mem::take(&mut held.is_behind);
        if !can_be_held {
            return None;
        }
        let (ack, edge) = match covered {
            Some(end) if known_to.is_before(end) || is_owed => {
                let unanswered = end.beyond(known_to);
                let has_gone_on = held.edge.is_some() && unanswered >= held.flight;
                held.is_fast |= held.repeats == 0 || has_gone_on;
                let open = if held.is_fast {
                    end
                } else {
                    let share = share::packets(held.flight / mss.max(1), true) * mss;
                    self.local.acked.plus(share).min(room).max(end)
                };
                self.promised = Some(end.max(known_to));
                self.patience.acknowledged(now, end.max(known_to), has_sack);
                (end.max(known_to), open)
            }
            // Whoever sees a closed window does not give up, even if room is taken back for it.
            Some(_) | None if gives_up => {
                held.edge = None;
                held.remind = Some(now + REMINDED);
                (known_to, known_to)
            }
            // Nothing outstanding, or a FIN: a keep-alive, and as much room as there was.
            Some(end) => (end, room),
            // It would repeat that until it gives up. What is outstanding it repeats from then on.
            None if is_behind => {
                self.patience.acknowledged(now, known_to, has_sack);
                (known_to, room)
            }
            None => return None,
        };
        let edge = held.edge.map_or(edge, |before| before.max(edge));
        held.edge = Some(edge.max(ack));
        self.acknowledge(ack, edge.max(ack), out);
        Some(Output::ToLocal)
    }
}
