//! A connection as it is seen from between its ends: how far each side is, what a segment means,
//! and how a segment looks that this node makes in an end's place.
//!
//! Follows the states of RFC 9293 from outside, the sequence spaces, windows with their scale,
//! timestamps and the round trip through the tunnel. A connection that is first seen in its midst
//! is learned, but never spoken for: its windows' scale is not known. Believes what both ends say
//! about as far as a TCP would, so that nobody who guesses moves anything: what lies further from
//! what is expected than a window is not looked at (van Rooij 2001, "Real stateful TCP packet
//! filtering in IP Filter"; `nf_conntrack_proto_tcp` of Linux), nor what acknowledges what was
//! never sent (RFC 5961, 5.2), and a reset counts with the very number that is expected (3.2).
//!
//! Knows no phase, no kept byte and no path: when a segment is made, and up to where it
//! acknowledges or gives room, is for `hold` and `resume` to say.

use super::promise::Promise;
use super::side::{Side, Terms};
use crate::flow::classify::Class;
use crate::flow::pep::cache::{Again, Cache, Payload};
use crate::flow::pep::heads::Heads;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::patience::Patience;
use crate::flow::pep::trip::Trip;
use crate::flow::pep::worth::Networks;
use crate::flow::report::Stage;
use crate::flow::tuple::{Direction, Tuple};
use crate::time::Instant;
use crate::wire::icmp::Unreached;
use crate::wire::inner::{InnerPacket, MAX_PACKET};
use crate::wire::tcp::{
    Flags, Made, Opening, Rewrite, Segment, Seq, TIMESTAMPS_PADDED, Timestamps,
};

/// A clock that is no further ahead does little harm if it is wrong: a second, by most clocks.
const CLOCK_LEAP: i32 = 1_000;

/// Both sides of a connection, and what was measured between them.
#[derive(Debug)]
pub(in crate::flow) struct Tracker {
    pub(crate) tuple: Tuple,
    pub(crate) stage: Stage,
    /// The side behind this node's TUN.
    pub(super) local: Side,
    /// The side behind the peer.
    pub(super) remote: Side,
    /// What both sides agreed on in the beginning; `None` when that was not seen.
    terms: Option<Terms>,
    /// When something came or went last.
    pub(crate) used_at: Instant,
    pub(super) trip: Trip,
    pub(super) patience: Patience,
    /// What this node acknowledged in the remote side's place.
    pub(super) promise: Promise,
    /// What the local side sent and the remote one did not acknowledge.
    pub(super) cache: Cache,
    /// Segments to go out as they are, first.
    pub(super) heads: Heads,
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

/// What a segment is to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// It moves its sender on.
    Fresh,
    /// It repeats something, or is a bare acknowledgement.
    Old,
    /// It is nothing that its sender can have said, or it came very late: nothing follows from it.
    Stray,
}

/// What the local side hears in place of an acknowledgement by the remote side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) ack: Seq,
    /// As it stands in the header.
    pub(super) window: u16,
    /// Whether it gives room.
    pub(super) is_news: bool,
    /// Whether the rest of what the remote side said is for the local side as it is.
    pub(super) is_own: bool,
}

impl Tracker {
    /// A connection of which nothing was seen yet.
    pub(super) fn new(tuple: Tuple, now: Instant) -> Self {
        Self {
            tuple,
            stage: Stage::Opening,
            local: Side::default(),
            remote: Side::default(),
            terms: None,
            used_at: now,
            trip: Trip::default(),
            patience: Patience::default(),
            promise: Promise::default(),
            cache: Cache::default(),
            heads: Heads::default(),
            beginning: None,
        }
    }

    /// The connection between the same ends that has begun where `segment`, which goes `way`, takes
    /// up a SYN that came in the midst of this one; `None` where it does not.
    pub(super) fn next_between(
        &self,
        now: Instant,
        way: Direction,
        segment: &Segment,
    ) -> Option<Self> {
        let Beginning { way: asked, syn, opening } = **self.beginning.as_ref()?;
        let takes_it_up = segment.flags.has(Flags::SYN.and(Flags::ACK))
            && asked != way
            && segment.ack == syn.seq.plus(1);
        takes_it_up.then(|| {
            let mut next = Self::new(self.tuple, now);
            next.observe(now, asked, &syn);
            next.open(asked, &syn, opening);
            next
        })
    }

    /// Takes notice of a segment that goes `way`, unless it is seen to be damaged.
    pub(super) fn look_at(
        &mut self,
        now: Instant,
        way: Direction,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> Notice {
        if self.leaps(way, segment) && !Payload::of(packet, segment).is_sound() {
            return Notice::Stray;
        }
        let notice = self.observe(now, way, segment);
        if notice != Notice::Stray && segment.flags.has(Flags::SYN) {
            self.open(way, segment, segment.opening(packet));
        }
        notice
    }

    fn observe(&mut self, now: Instant, way: Direction, segment: &Segment) -> Notice {
        if segment.flags.has(Flags::RST) {
            self.used_at = now;
            if self.ends_by(way, segment.seq) {
                self.stage = Stage::Closed;
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
    fn leaps(&self, way: Direction, segment: &Segment) -> bool {
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
        plausible && (self.promise.to().is_none() || is_its_own)
    }

    /// Whether this is the number of a reset by an end that is done: the next that it would have
    /// sent, or the one that was asked for last.
    pub(super) fn is_expected(&self, way: Direction, seq: Seq) -> bool {
        let (sender, _) = self.ends_of(way);
        sender.is_known && (seq == sender.acked || seq == sender.next)
    }

    /// What a segment is that nothing follows from; `None` for any other.
    fn disregards(&self, way: Direction, segment: &Segment) -> Option<Notice> {
        let (sender, receiver) = self.ends_of(way);
        if segment.flags.has(Flags::SYN) {
            // A question (RFC 5961, 4.2), or forged: the connection goes on.
            let is_question = sender.is_known && !sender.began_with(segment.seq);
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
    pub(super) const fn ends_of(&self, way: Direction) -> (&Side, &Side) {
        match way {
            Direction::Out => (&self.local, &self.remote),
            Direction::In => (&self.remote, &self.local),
        }
    }

    /// Whether a segment that goes `way`, and that was just observed, can be followed by others
    /// that say nothing but that more of the stream is there.
    pub(super) fn may_go_on(&self, way: Direction, segment: &Segment) -> bool {
        let (sender, receiver) = self.ends_of(way);
        sender.answered && segment.ack == receiver.acked && segment.end() == sender.next
    }

    /// Takes notice of a segment that goes `way` and says nothing but that, if it is the next of
    /// the stream.
    pub(super) fn goes_on(&mut self, now: Instant, way: Direction, segment: &Segment) -> bool {
        let sender = match way {
            Direction::Out => &mut self.local,
            Direction::In => &mut self.remote,
        };
        if segment.seq != sender.next {
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
    pub(crate) fn begins_with(&self, unreached: &Unreached<'_>) -> bool {
        let at = unreached.headers.transport.map_or(0, |at| at + 4);
        let seq = unreached.quoted.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let Some(seq) = seq else { return false };
        let sent = self.local.next.beyond(Seq(u32::from_be_bytes(*seq))) as usize;
        self.stage == Stage::Opening && !self.remote.is_known && (1..=MAX_PACKET).contains(&sent)
    }

    /// Takes notice of what a SYN says beside.
    fn open(&mut self, way: Direction, segment: &Segment, opening: Opening) {
        let (side, asked) = match way {
            Direction::Out => (&mut self.local, &mut self.remote),
            Direction::In => (&mut self.remote, &mut self.local),
        };
        let is_answer = segment.flags.has(Flags::ACK);
        if !side.began_with(segment.seq) {
            let beginning = Beginning { way, syn: *segment, opening };
            self.beginning = (!is_answer).then(|| Box::new(beginning));
        } else if self.terms.is_none() {
            side.opens(opening); // else it is repeated, or forged: what was agreed on stands
            self.terms = if is_answer { side.agrees(asked, segment) } else { None };
        }
    }

    fn step(&mut self) {
        let (local, remote) = (&self.local, &self.remote);
        self.stage = match self.stage {
            Stage::Closed => Stage::Closed,
            _ if local.has_ended() && remote.has_ended() => Stage::Closed,
            _ if local.fin.is_some() || remote.fin.is_some() => Stage::Closing,
            Stage::Opening if local.has_begun() && remote.has_begun() => Stage::Established,
            stage @ (Stage::Opening | Stage::Established | Stage::Closing) => stage,
        };
    }

    /// Whether both ends may still say something.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Established | Stage::Closing)
    }

    /// Whether somebody else than the two ends can make segments.
    pub(super) fn can_be_spoken_for(&self) -> bool {
        self.is_closed_to_others() == Some(false) && self.is_open()
    }

    /// Whether both ends have selective acknowledgements, as far as their agreement was seen.
    pub(super) fn has_sack(&self) -> bool {
        self.terms.is_some_and(|terms| terms.sack)
    }

    /// Whether nobody but the two ends can make segments; `None` if their agreement was not seen.
    pub(super) fn is_closed_to_others(&self) -> Option<bool> {
        self.terms.map(|terms| terms.closed_to_others)
    }

    fn has_clocks(&self) -> bool {
        self.terms.is_some_and(|terms| terms.timestamps)
    }

    /// Whether anything was heard of the remote side.
    pub(crate) const fn is_answered(&self) -> bool {
        self.remote.is_known
    }

    /// Bytes that are on their way to the remote side, as far as the local one knows.
    pub(super) const fn outstanding(&self) -> u32 {
        self.local.next.beyond(self.local.acked)
    }

    /// The last acknowledgement that the local side has received, from the remote side or from this
    /// node.
    pub(super) fn answered_to(&self) -> Seq {
        self.promise.to().map_or(self.local.acked, |to| to.max(self.local.acked))
    }

    /// Whether the local side is about to give up, for what nobody has acknowledged.
    pub(super) fn gives_up(&self) -> bool {
        self.answered_to().is_before(self.local.next) && self.patience.ends()
    }

    /// The number after the end of the stream, if that is at `to`.
    pub(super) fn with_end(&self, to: Seq) -> Seq {
        to.plus(u32::from(self.local.fin == Some(to)))
    }

    /// Rounds `bytes` down to whole segments, then up to the unit of the scaled window. With room
    /// for half a segment, the local side would send half segments from then on.
    pub(super) fn whole(&self, bytes: u32) -> u32 {
        let mss = self.mss();
        (bytes / mss * mss).next_multiple_of(1 << self.remote.scale)
    }

    /// The window field for this many bytes, in the remote side's scale.
    pub(super) fn window(&self, bytes: u32) -> u16 {
        u16::try_from(bytes >> self.remote.scale).unwrap_or(u16::MAX)
    }

    /// The largest payload of a segment to the remote side, in bytes. Timestamps count towards the
    /// announced size (RFC 6691).
    pub(super) fn mss(&self) -> u32 {
        let clocks = if self.has_clocks() { TIMESTAMPS_PADDED as u32 } else { 0 };
        u32::from(self.remote.mss).saturating_sub(clocks).max(1)
    }

    /// Acknowledges everything before `ack` to the local side, and gives it room up to `edge`; with
    /// the congestion mark that the remote side repeats, if it does.
    pub(super) fn acknowledge(&self, ack: Seq, edge: Seq, mark: Flags, out: &mut Vec<u8>) {
        let window = self.window(edge.beyond(ack));
        let flags = Flags::ACK.and(mark);
        let made = Made { ack, window, flags, ..self.made(Direction::In, self.remote.next) };
        made.emit((&[], &[]), out);
    }

    /// Sends a piece again, with the end of the stream if that follows it.
    pub(super) fn send_again(&self, again: &Again<'_>, out: &mut Vec<u8>) {
        let push = if again.push { Flags::PSH } else { Flags::default() };
        let fin = if self.local.fin == Some(again.end()) { Flags::FIN } else { Flags::default() };
        let made =
            Made { flags: Flags::ACK.and(push).and(fin), ..self.made(Direction::Out, again.seq) };
        made.emit(again.bytes, out);
    }

    /// Sends a packet of the local side's again that was kept as it came, with its newest clock:
    /// one that comes behind a newer is taken for old (RFC 7323, 5.3).
    pub(super) fn send_kept(&self, packet: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(packet);
        let packet = &mut out[at..];
        let segment = InnerPacket::whole(packet).ok().and_then(|whole| Segment::parse(&whole));
        if let Some(segment) = segment {
            let clock = Some(self.local.clock);
            segment.rewrite(packet, &Rewrite { clock, ..Rewrite::default() });
        }
    }

    /// Repeats what the local side said last about what it received, with the number `seq`.
    pub(super) fn say_news(&self, seq: Seq, out: &mut Vec<u8>) {
        self.made(Direction::Out, seq.max(self.local.acked)).emit((&[], &[]), out);
    }

    /// A segment that goes `way`: an acknowledgement, unless it is told to be more.
    pub(super) fn made(&self, way: Direction, seq: Seq) -> Made {
        let (sender, receiver) = self.ends_of(way);
        let clocks = Timestamps { value: sender.clock, echo: receiver.clock };
        Made {
            ends: self.tuple.ends(way),
            seq,
            ack: receiver.acked,
            flags: Flags::ACK,
            window: sender.window,
            timestamps: self.has_clocks().then_some(clocks),
        }
    }

    /// Keeps the payload of a segment that the local side sent, if it may be needed. Returns how
    /// many bytes at its end are kept.
    pub(super) fn keep(
        &mut self,
        memory: &mut Memory,
        (networks, class): (&Networks, Class),
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) -> usize {
        let is_missed = segment.len > 0 && self.local.acked.is_before(segment.end());
        // Which byte is urgent is not kept: it leaves as it is, or not at all.
        let is_plain = !segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::URG);
        if !is_missed || !is_plain {
            return 0;
        }
        if self.cache.is_empty() && !networks.are_worth(class, memory) {
            self.cache.leave_out();
            return 0;
        }
        self.cache.push(memory, Payload::of(packet, segment))
    }

    /// Keeps the oldest segment that is outstanding as it came, if its sender repeats it and nobody
    /// else could: should the way be lost under it, the next time it says so itself may be its
    /// last.
    pub(super) fn keep_repeated(
        &mut self,
        memory: &mut Memory,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) {
        let is_oldest = segment.seq == self.local.acked && segment.seq != segment.end();
        let is_kept = segment.len > 0 && self.cache.covers(segment);
        let is_usual = !segment.flags.has(Flags::SYN);
        if is_oldest && is_usual && !is_kept && Payload::of(packet, segment).is_sound() {
            self.heads.keep(memory, segment.seq, packet.pieces, true);
        }
    }

    /// Forgets what the remote side has by now.
    pub(super) fn let_go(&mut self, memory: &mut Memory) {
        let acked = self.local.acked;
        if !self.cache.is_empty() {
            self.cache.acknowledged(memory, acked);
        }
        if !self.heads.is_empty() {
            self.heads.acknowledged(memory, acked);
        }
    }

    /// Forgets everything.
    pub(super) fn release(&mut self, memory: &mut Memory) {
        self.cache.clear(memory);
        self.heads.clear(memory);
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.cache.len() + self.heads.len()
    }

    /// The end of the kept bytes, if everything that the local side sent is kept up to there.
    /// `None` if bytes before are missing.
    pub(super) fn covered(&self) -> Option<Seq> {
        let local = &self.local;
        let sent = local.next.minus(u32::from(local.fin.is_some()));
        if !local.acked.is_before(sent) {
            return Some(sent);
        }
        let (first, end) = self.cache.span()?;
        let whole = !local.acked.is_before(first) && !end.is_before(sent);
        let promised = self.promise.to().is_some_and(|promised| !end.is_before(promised));
        (whole || promised).then_some(end)
    }
}

#[cfg(test)]
impl Tracker {
    /// Both sides agreed on selective acknowledgements, or not.
    pub(super) fn agree_on_sack(&mut self, sack: bool) {
        self.terms.as_mut().unwrap().sack = sack;
    }
}
