//! One TCP connection, as it is seen from between its ends: how far each side is, and what would
//! have to be said on its behalf.
//!
//! Follows the states of RFC 9293 from outside, the sequence spaces, windows with their scale,
//! timestamps and the round trip through the tunnel. A connection that is first seen in its midst
//! is learned, but never spoken for: its windows' scale is not known. Believes what both ends say
//! about as far as a TCP would, so that nobody who guesses moves anything: what lies further from
//! what is expected than a window is not looked at (van Rooij 2001, "Real stateful TCP packet
//! filtering in IP Filter"; `nf_conntrack_proto_tcp` of Linux), nor what acknowledges what was
//! never sent (RFC 5961, 5.2), and a reset counts with the very number that is expected (3.2).
//!
//! `packet` takes one segment, and `progress` tells how far a connection is. During an outage
//! `hold` answers for the remote side, afterwards `resume` delivers, and `speak` writes what this
//! node says itself. `breakoff` resets what an earlier process could not deliver. `narrow` limits
//! the receive window of connections of low priority. `report` is for people.

pub(in crate::flow) mod breakoff;
pub(in crate::flow) mod hold;
pub(in crate::flow) mod narrow;
mod packet;
mod progress;
mod report;
pub(in crate::flow) mod resume;
mod speak;

use self::breakoff::Broken;
use self::hold::Held;
use self::narrow::Room;
use self::resume::Resumed;
use super::cache::Cache;
use super::heads::Heads;
use super::memory::Memory;
use super::patience::Patience;
use super::trip::Trip;
use crate::flow::classify::Class;
use crate::flow::rules::{By, Choice, Hold};
use crate::flow::tuple::{Direction, Tuple};
use crate::time::Instant;
use crate::wire::icmp::Unreached;
use crate::wire::inner::MAX_PACKET;
use crate::wire::tcp::{Flags, Opening, Segment, Seq};

/// What a segment holds where its receiver named no size (RFC 9293, 3.7.1).
const MSS_USUAL: u16 = 536;
/// A clock that is no further ahead does little harm if it is wrong: a second, by most clocks.
const CLOCK_LEAP: i32 = 1_000;

/// One connection.
#[derive(Debug)]
pub(in crate::flow) struct Connection {
    pub(in crate::flow) tuple: Tuple,
    pub(in crate::flow) class: Class,
    /// What is done for it while there is no way.
    pub(in crate::flow) choice: Choice,
    /// How much it is preferred to others, and how much room the remote side is shown for that.
    pub(in crate::flow) room: Room,
    pub(in crate::flow) state: State,
    /// The side behind this node's TUN.
    pub(in crate::flow) local: Side,
    /// The side behind the peer.
    pub(in crate::flow) remote: Side,
    /// What both sides agreed on in the beginning; `None` when that was not seen.
    pub(in crate::flow) terms: Option<Terms>,
    pub(in crate::flow) used_at: Instant,
    pub(in crate::flow) trip: Trip,
    pub(in crate::flow) patience: Patience,
    /// What the local side sent and the remote one did not acknowledge.
    pub(in crate::flow) cache: Cache,
    /// Segments to go out as they are, first.
    pub(in crate::flow) heads: Heads,
    pub(in crate::flow) phase: Phase,
    /// Up to where the local side was told that its bytes arrived, by this node and nobody else
    /// yet: what lies before is owed.
    pub(in crate::flow) promised: Option<Seq>,
    /// Whether something was owed, and is not any more, and nobody was told so.
    pub(in crate::flow) is_settled: bool,
    /// When its turn comes, as its table knows.
    pub(in crate::flow) timer: Option<Instant>,
    /// Bytes that it has on its way while it is resumed, as those of all are counted.
    pub(in crate::flow) counted: u32,
    /// A SYN that came in its midst.
    beginning: Option<Box<Beginning>>,
}

/// A SYN in the midst of a connection: a question, unless the other side takes it for the beginning
/// of another, since this one has ended unseen.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    way: Direction,
    syn: Segment,
    opening: Opening,
}

/// Who speaks for the remote side.
#[derive(Debug, Default)]
pub(in crate::flow) enum Phase {
    /// It does itself.
    #[default]
    Normal,
    /// There is no way to it: this node does.
    Held(Box<Held>),
    /// There is a way again, and this node sends what it answered for.
    Resumed(Box<Resumed>),
    /// What was owed is gone: it ends, and nobody hears the other side any more.
    Broken(Box<Broken>),
}

/// What a segment is to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::flow) enum Notice {
    /// It moves its sender on.
    Fresh,
    /// It repeats something, or is a bare acknowledgement.
    Old,
    /// It is nothing that its sender can have said, or it came very late: nothing follows from it.
    Stray,
}

/// How far a connection is (RFC 9293, 3.3.2, from outside).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::flow) enum State {
    /// Reset, or ended by both sides: TIME-WAIT and CLOSED.
    Closed,
    /// SYN-SENT and SYN-RECEIVED.
    Opening,
    /// One side has ended: FIN-WAIT and CLOSE-WAIT, or CLOSING and LAST-ACK.
    HalfClosed,
    /// ESTABLISHED.
    Established,
}

/// What both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::flow) struct Terms {
    pub(in crate::flow) timestamps: bool,
    pub(in crate::flow) sack: bool,
    /// Whether nobody but the two ends can make segments.
    pub(in crate::flow) closed_to_others: bool,
}

/// One side of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::flow) struct Side {
    /// Whether anything was seen of it.
    pub(in crate::flow) is_known: bool,
    /// The number after the last that it sent.
    pub(in crate::flow) next: Seq,
    /// Up to where the other side has acknowledged it.
    pub(in crate::flow) acked: Seq,
    /// Up to where it has room for what the other side sends.
    pub(in crate::flow) edge: Seq,
    /// Its last window, as it stood in the header.
    pub(in crate::flow) window: u16,
    /// By how many bits its windows are shifted.
    pub(in crate::flow) scale: u8,
    /// The largest payload that it takes.
    pub(in crate::flow) mss: u16,
    /// Its newest clock.
    pub(in crate::flow) clock: u32,
    /// The number of its FIN.
    pub(in crate::flow) fin: Option<Seq>,
    /// The number of its SYN, where that was seen.
    begin: Option<Seq>,
    /// Whether it has acknowledged anything: `edge` and `window` mean something, and `acked` of the
    /// other is no guess.
    pub(in crate::flow) answered: bool,
    opening: Opening,
}

impl Connection {
    /// A connection of which nothing was seen yet.
    pub(in crate::flow) fn new(tuple: Tuple, class: Class, now: Instant) -> Self {
        Self {
            tuple,
            class,
            choice: Choice::default(),
            room: Room::default(),
            state: State::Opening,
            local: Side::default(),
            remote: Side::default(),
            terms: None,
            used_at: now,
            trip: Trip::default(),
            patience: Patience::default(),
            cache: Cache::default(),
            heads: Heads::default(),
            phase: Phase::Normal,
            promised: None,
            is_settled: false,
            timer: None,
            counted: 0,
            beginning: None,
        }
    }

    /// The connection between the same ends that has begun where `segment`, which goes `way`, takes
    /// up a SYN that came in the midst of this one; `None` where it does not.
    pub(in crate::flow) fn next_between(
        &self,
        now: Instant,
        way: Direction,
        segment: &Segment,
    ) -> Option<Self> {
        let Beginning { way: asked, syn, opening } = **self.beginning.as_ref()?;
        let takes_it_up = segment.flags.has(Flags::SYN.and(Flags::ACK))
            && asked != way
            && segment.ack == syn.seq.plus(1);
        if !takes_it_up || self.owes() {
            return None;
        }
        let mut next = Self::new(self.tuple, self.class, now);
        next.observe(now, asked, &syn);
        next.open(asked, &syn, opening);
        Some(next)
    }

    /// Whether somebody was promised something that has not happened yet.
    pub(in crate::flow) const fn owes(&self) -> bool {
        self.promised.is_some() || matches!(self.phase, Phase::Broken(_))
    }

    /// Forgets what is kept of it.
    pub(in crate::flow) fn release(&mut self, memory: &mut Memory) {
        self.cache.clear(memory);
        self.heads.clear(memory);
    }

    /// It is over, and both ends know or will know without this node: nothing is owed any more.
    pub(in crate::flow) fn end(&mut self, memory: &mut Memory) {
        self.release(memory);
        self.is_settled |= self.promised.take().is_some();
        match &mut self.phase {
            Phase::Held(held) => self.is_settled |= held.strike_out(),
            Phase::Broken(_) => {
                self.is_settled = true;
                self.phase = Phase::Normal;
            }
            Phase::Resumed(_) => {
                self.is_settled |= self.assist_record() == Some(true);
                self.phase = Phase::Normal;
            }
            Phase::Normal => {}
        }
    }

    /// Whether what its local side sends is kept until the remote side has it.
    pub(in crate::flow) fn is_kept(&self) -> bool {
        self.choice.hold == Hold::Full && self.can_be_held()
    }

    /// Whether this node can speak for the remote side.
    pub(in crate::flow) fn can_be_held(&self) -> bool {
        self.choice.by != By::Names
            && self.terms.is_some_and(|terms| !terms.closed_to_others)
            && matches!(self.state, State::Established | State::HalfClosed)
    }

    /// Bytes that are on their way to the remote side, as far as the local one knows.
    pub(in crate::flow) const fn outstanding(&self) -> u32 {
        self.local.next.beyond(self.local.acked)
    }

    /// Whether both ends have selective acknowledgements, as far as their agreement was seen.
    pub(in crate::flow) fn has_sack(&self) -> bool {
        self.terms.is_some_and(|terms| terms.sack)
    }

    /// Takes notice of a segment that goes `way`.
    pub(in crate::flow) fn observe(
        &mut self,
        now: Instant,
        way: Direction,
        segment: &Segment,
    ) -> Notice {
        if segment.flags.has(Flags::RST) {
            self.used_at = now;
            if self.ends_by(way, segment.seq) {
                self.state = State::Closed;
            }
            return Notice::Old;
        }
        if let Some(notice) = self.disregards(way, segment) {
            return notice;
        }
        self.used_at = now;
        let (known_to, has_sack) = (self.answered_to(), self.has_sack());
        let (sender, receiver) = match way {
            Direction::Out => (&mut self.local, &mut self.remote),
            Direction::In => (&mut self.remote, &mut self.local),
        };
        let fresh = sender.sends(segment);
        if segment.flags.has(Flags::ACK) {
            let moved = sender.answers(segment, receiver);
            self.patience.is_behind &= way == Direction::Out;
            if way == Direction::In && moved {
                self.trip.acknowledged(now, self.local.acked);
                // That what it was promised has arrived is no news to the local side.
                if known_to.is_before(self.local.acked) {
                    self.patience.acknowledged(now, self.local.acked, has_sack);
                }
            }
        }
        if way == Direction::Out {
            if fresh && segment.end() != segment.seq {
                self.trip.left(now, segment);
            } else if segment.len > 0 {
                self.trip.repeated();
            }
            let answered_to = self.answered_to();
            if fresh {
                self.patience.sent(now, segment, answered_to);
            } else if segment.end() != segment.seq {
                self.patience.repeated(now, segment, answered_to, self.local.next);
            }
        }
        self.step();
        if fresh { Notice::Fresh } else { Notice::Old }
    }

    /// Whether the clock of a segment is to be looked at before it is believed: it is far ahead of
    /// what its sender said last. A wrong one that is passed on in a header of this node's own
    /// would make its receiver take all that follows for old (PAWS, RFC 7323, 5).
    pub(in crate::flow) fn leaps(&self, way: Direction, segment: &Segment) -> bool {
        let (sender, _) = self.ends_of(way);
        segment.timestamps.is_some_and(|timestamps| {
            let ahead = timestamps.value.wrapping_sub(sender.clock).cast_signed();
            !sender.is_known || ahead > CLOCK_LEAP
        })
    }

    /// Whether a reset with this number is believed.
    fn ends_by(&self, way: Direction, seq: Seq) -> bool {
        let (sender, receiver) = self.ends_of(way);
        let is_in_window = !seq.is_before(sender.acked) && !receiver.edge.is_before(seq);
        let is_guess = self.terms.is_none() && is_in_window;
        let is_unknown = !sender.is_known || !receiver.is_known;
        let plausible = is_unknown || self.is_expected(way, seq) || is_guess;
        // Whose receiver misses something takes another number for a question, and asks back, and
        // any may be lost on its way to it: what it was promised is not let go of for that. Who
        // breaks off by itself needs to be promised nothing more.
        let is_its_own = way == Direction::Out && seq == sender.next;
        plausible && (self.promised.is_none() || is_its_own)
    }

    /// Whether this is the number of a reset by an end that is done: the next that it would have
    /// sent, or the one that was asked for last.
    pub(in crate::flow) fn is_expected(&self, way: Direction, seq: Seq) -> bool {
        let (sender, _) = self.ends_of(way);
        sender.is_known && (seq == sender.acked || seq == sender.next)
    }

    /// What a segment is that nothing follows from; `None` for any other.
    fn disregards(&self, way: Direction, segment: &Segment) -> Option<Notice> {
        let (sender, receiver) = self.ends_of(way);
        if segment.flags.has(Flags::SYN) {
            // A question (RFC 5961, 4.2), or forged: the connection goes on.
            let is_question = sender.is_known && sender.begin != Some(segment.seq);
            return is_question.then_some(Notice::Old);
        }
        if self.terms.is_none() || !sender.is_known || !receiver.answered {
            return None; // what was not seen from the beginning is believed
        }
        // A byte beyond the window asks for room. What comes late lies before it by no more than
        // another: its receiver knows better, but what it acknowledges may be news here, when both
        // ends of the tunnel repeat what they owe.
        let is_beyond = receiver.edge.plus(1).is_before(segment.end());
        let is_before = segment.end().is_before(sender.acked.minus(receiver.window_max()));
        let is_before_sent = segment.ack.is_before(receiver.acked.minus(sender.window_max()));
        let is_unsent = receiver.next.is_before(segment.ack);
        let acks = segment.flags.has(Flags::ACK);
        let is_stray = is_beyond || is_before || (acks && (is_before_sent || is_unsent));
        is_stray.then_some(Notice::Stray)
    }

    /// Who sends what goes `way`, and who receives it.
    pub(in crate::flow) const fn ends_of(&self, way: Direction) -> (&Side, &Side) {
        match way {
            Direction::Out => (&self.local, &self.remote),
            Direction::In => (&self.remote, &self.local),
        }
    }

    /// Whether a segment that goes `way`, and that was just observed, can be followed by others
    /// that say nothing but that more of the stream is there.
    pub(in crate::flow) fn may_go_on(&self, way: Direction, segment: &Segment) -> bool {
        let (sender, receiver) = self.ends_of(way);
        sender.answered && segment.ack == receiver.acked && segment.end() == sender.next
    }

    /// Takes notice of a segment that goes `way` and says nothing but that, if it is the next of
    /// the stream, and the ends speak for themselves.
    pub(in crate::flow) fn goes_on(
        &mut self,
        now: Instant,
        way: Direction,
        segment: &Segment,
    ) -> bool {
        let is_usual = match self.phase {
            Phase::Normal => !self.is_settled,
            Phase::Resumed(_) => way == Direction::Out && self.passes(),
            Phase::Held(_) | Phase::Broken(_) => false,
        };
        let sender = match way {
            Direction::Out => &mut self.local,
            Direction::In => &mut self.remote,
        };
        if segment.seq != sender.next || !is_usual {
            return false;
        }
        self.used_at = now;
        sender.next = segment.seq.plus(u32::from(segment.len));
        if way == Direction::Out {
            self.trip.left(now, segment);
            self.patience.sent(now, segment, self.answered_to());
        }
        true
    }

    /// Whether what is quoted is the beginning of the connection, which nobody has answered.
    pub(in crate::flow) fn begins_with(&self, unreached: &Unreached<'_>) -> bool {
        let at = unreached.headers.transport.map_or(0, |at| at + 4);
        let seq = unreached.quoted.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let Some(seq) = seq else { return false };
        let sent = self.local.next.beyond(Seq(u32::from_be_bytes(*seq))) as usize;
        self.state == State::Opening && !self.remote.is_known && (1..=MAX_PACKET).contains(&sent)
    }

    /// Takes notice of what a SYN says beside.
    pub(in crate::flow) fn open(&mut self, way: Direction, segment: &Segment, opening: Opening) {
        let (sender, _) = self.ends_of(way);
        if sender.begin != Some(segment.seq) {
            let beginning = Beginning { way, syn: *segment, opening };
            self.beginning = (!segment.flags.has(Flags::ACK)).then(|| Box::new(beginning));
            return;
        }
        if self.terms.is_some() {
            return; // repeated, or forged: what was agreed on stands
        }
        let side = match way {
            Direction::Out => &mut self.local,
            Direction::In => &mut self.remote,
        };
        side.opening = opening;
        side.mss = opening.mss.unwrap_or(MSS_USUAL);
        if !segment.flags.has(Flags::ACK) {
            return;
        }
        // The second of the two: what the first offered holds if the second takes it.
        let (asked, granted) = match way {
            Direction::Out => (&mut self.remote, &mut self.local),
            Direction::In => (&mut self.local, &mut self.remote),
        };
        if asked.begin.is_none() {
            return; // what it answers was not seen
        }
        let scaled = asked.opening.scale.zip(granted.opening.scale);
        (asked.scale, granted.scale) = scaled.unwrap_or((0, 0));
        self.terms = Some(Terms {
            timestamps: asked.clock != 0 && segment.timestamps.is_some(),
            sack: asked.opening.sack && granted.opening.sack,
            closed_to_others: asked.opening.closed_to_others || granted.opening.closed_to_others,
        });
    }

    fn step(&mut self) {
        let ended = |side: &Side| side.fin.is_some_and(|fin| fin.is_before(side.acked));
        self.state = match self.state {
            State::Closed => State::Closed,
            _ if ended(&self.local) && ended(&self.remote) => State::Closed,
            _ if self.local.fin.is_some() || self.remote.fin.is_some() => State::HalfClosed,
            State::Opening if self.local.has_begun() && self.remote.has_begun() => {
                State::Established
            }
            state @ (State::Opening | State::Established | State::HalfClosed) => state,
        };
    }

    /// Nothing more is owed to anybody, and nothing is to be sent again: it goes on as it was.
    pub(in crate::flow) fn end_if_done(&mut self) {
        let Phase::Resumed(resumed) = &self.phase else { return };
        let is_done = resumed.is_done(self.local.acked) && self.heads.is_empty();
        if is_done && self.promised.is_none() {
            self.phase = Phase::Normal;
        }
    }
}

impl Side {
    /// It sends a segment. Returns whether that moves it on.
    fn sends(&mut self, segment: &Segment) -> bool {
        let end = segment.end();
        let first = !self.is_known;
        if first {
            let begin = segment.flags.has(Flags::SYN).then_some(segment.seq);
            let (acked, mss) = (segment.seq, MSS_USUAL);
            *self = Self { is_known: true, next: end, acked, mss, begin, ..Self::default() };
        }
        let fresh = first || self.next.is_before(end);
        self.next = self.next.max(end);
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(end.minus(1));
        }
        if first {
            self.clock = segment.timestamps.map_or(0, |timestamps| timestamps.value);
        } else {
            self.tells_time(segment);
        }
        fresh
    }

    /// Bytes of the largest window that it can have.
    const fn window_max(&self) -> u32 {
        (u16::MAX as u32) << self.scale
    }

    /// Up to where it has room, as its segment says. A SYN's window is not scaled.
    const fn edge_of(&self, segment: &Segment) -> Seq {
        let scale = if segment.flags.has(Flags::SYN) { 0 } else { self.scale };
        segment.ack.plus((segment.window as u32) << scale)
    }

    /// Its newest clock counts.
    const fn tells_time(&mut self, segment: &Segment) {
        if let Some(timestamps) = segment.timestamps
            && timestamps.value.wrapping_sub(self.clock).cast_signed() > 0
        {
            self.clock = timestamps.value;
        }
    }

    /// It acknowledges what `other` sent. Returns whether that is news.
    fn answers(&mut self, segment: &Segment, other: &mut Self) -> bool {
        self.window = segment.window;
        let edge = self.edge_of(segment);
        if !other.is_known {
            // Seen in its midst, and from one side so far.
            *other = Self { is_known: true, next: segment.ack, acked: segment.ack, ..*other };
            other.mss = MSS_USUAL;
        }
        if other.begin.is_none() {
            // What was seen of the other first may lie far beyond what this one has, or before.
            other.next = other.next.max(segment.ack);
            other.acked = if self.answered { other.acked } else { segment.ack };
        }
        let plausible = !other.next.is_before(segment.ack);
        let moved = plausible && other.acked.is_before(segment.ack);
        if plausible {
            other.acked = other.acked.max(segment.ack);
            // A window that moves back is none (RFC 9293, 3.8.6).
            self.edge = if self.answered { edge.max(self.edge) } else { edge };
            self.answered = true;
        }
        moved
    }

    /// Whether the other side has answered its SYN.
    fn has_begun(&self) -> bool {
        self.is_known && self.begin.is_none_or(|begin| begin.is_before(self.acked))
    }
}
