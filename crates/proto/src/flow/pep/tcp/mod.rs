//! One TCP connection: its two sides, what is kept of it, and who speaks for the remote side.
//!
//! `tracker` knows how far each `side` is, and `promise` what is owed. During an outage `hold`
//! answers for the remote side, afterwards `resume` delivers what is `kept`, and `breakoff` resets
//! what cannot be delivered. `room` limits the receive window of connections of low priority;
//! `report` is for people. Each of them owns its state, and is handed what it needs of the others.
//!
//! Decides which of them speaks (the phase), and passes on what they answer. Knows neither its
//! place in the table nor other connections: [`Connection::due`] says when its turn is, and
//! [`Connection::take_task`] what is to be written down.

mod breakoff;
mod hold;
mod packet;
mod promise;
mod report;
pub(in crate::flow) mod resume;
pub(in crate::flow) mod room;
mod side;
mod tracker;

pub(in crate::flow) use promise::Task;

#[cfg(test)]
use super::cache::Payload;
use super::memory::Memory;
use crate::flow::classify::{Class, classify};
use crate::flow::priority::{Level, Levels};
use crate::flow::report::Stage;
use crate::flow::rules::{By, Choice, Hold, Rules};
use crate::flow::tuple::{Direction, Tuple};
use crate::flow::verdict::Output;
use crate::time::{Duration, Instant};
#[cfg(test)]
use crate::wire::tcp::Seq;
use crate::wire::tcp::{Flags, Segment};
use breakoff::{Broken, tell_it_is_over};
use hold::{Held, RECENT};
use promise::Promise;
use resume::assist::Entrance;
use resume::{Resumed, Turn};
use room::Room;
use tracker::Tracker;

/// Segments on their way with which a connection is assisted: a whole first flight (RFC 6928).
const ASSIST_MIN: u32 = 8;
/// A sender that repeats and hears nothing has given up after so long, and told nobody (Linux: 924
/// s, `tcp_retries2`, and the timer's last 120 s).
pub(in crate::flow) const STALE: Duration = Duration::from_secs(20 * 60);

/// One connection.
#[derive(Debug)]
pub(in crate::flow) struct Connection {
    class: Class,
    /// What is done for it while there is no way.
    choice: Choice,
    tracker: Tracker,
    phase: Phase,
    /// How much it is preferred to others, and how much room the remote side is shown for that.
    room: Option<Box<Room>>,
    /// When its turn comes, as its table knows.
    timer: Option<Instant>,
    /// Bytes that it has on its way while it is resumed, as those of all are counted.
    counted: u32,
}

/// Who speaks for the remote side.
#[derive(Debug, Default)]
enum Phase {
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

impl Connection {
    /// A connection of which nothing was seen yet.
    pub(crate) fn new(tuple: Tuple, rules: &Rules, now: Instant) -> Self {
        let class = classify(tuple.ports(), false);
        Self {
            class,
            choice: rules.choose(&tuple, class),
            tracker: Tracker::new(tuple, now),
            phase: Phase::Normal,
            room: None,
            timer: None,
            counted: 0,
        }
    }

    /// The connection between the same ends that has begun where `segment`, which goes `way`, takes
    /// up a SYN that came in the midst of this one; `None` where it does not.
    pub(crate) fn next_between(
        &self,
        now: Instant,
        way: Direction,
        segment: &Segment,
        rules: &Rules,
    ) -> Option<Self> {
        let tracker = self.tracker.next_between(now, way, segment).filter(|_| !self.owes())?;
        Some(Self { tracker, ..Self::new(self.tracker.tuple, rules, now) })
    }

    /// What is known of its two sides.
    pub(crate) const fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Its room, if that is known, and what it goes by.
    pub(crate) fn room_mut(&mut self) -> Option<(&mut Room, &Tracker)> {
        Some((self.room.as_deref_mut()?, &self.tracker))
    }

    /// Its room, if that is known.
    pub(crate) fn room(&self) -> Option<&Room> {
        self.room.as_deref()
    }

    /// What is preferred is another now.
    pub(crate) fn judge_anew(&mut self, memory: &mut Memory, levels: Levels, level: Level) {
        Room::judge_anew(&mut self.room, memory, levels, level);
    }

    /// It is of this level from now on.
    pub(crate) fn set_level(&mut self, level: Level) {
        if let Some(room) = &mut self.room {
            room.set_level(level);
        }
    }

    /// Whether somebody was promised something that has not happened yet.
    pub(crate) const fn owes(&self) -> bool {
        self.tracker.promise.to().is_some() || self.is_broken()
    }

    /// Whether both ends are being told that it is over.
    pub(crate) const fn is_broken(&self) -> bool {
        matches!(self.phase, Phase::Broken(_))
    }

    /// Whether this node speaks for the remote side, which cannot be reached.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Whether something is to be sent in the local side's place that has not left yet.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(&self.phase, Phase::Resumed(resumed) if resumed.unsent().is_some())
    }

    /// Whether its ends speak for themselves, and nothing is to be said or struck out.
    pub(crate) fn is_normal(&self) -> bool {
        matches!(self.phase, Phase::Normal) && !self.tracker.promise.is_obsolete()
    }

    /// Whether this node acknowledges ahead of the remote side.
    pub(crate) fn is_assisted(&self) -> bool {
        matches!(&self.phase, Phase::Resumed(resumed) if resumed.is_assisted())
    }

    /// Whether both sides have given up without a word: what is kept nobody will acknowledge.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        let is_unused = now.saturating_since(self.tracker.used_at) >= STALE;
        is_unused && matches!(self.phase, Phase::Normal) && !self.tracker.cache.is_empty()
    }

    /// Whether the remote side has to be reached for it: something is on its way there, or may not
    /// have come from there.
    pub(crate) fn waits(&self, now: Instant) -> bool {
        let tracker = &self.tracker;
        let recent = now.saturating_since(tracker.used_at) < RECENT;
        let waits = tracker.outstanding() > 0 || (recent && tracker.is_open());
        let is_resumed = matches!(self.phase, Phase::Resumed(_));
        self.choice.hold != Hold::Off && (waits || is_resumed) && tracker.stage != Stage::Closed
    }

    /// Forgets what is kept of it.
    pub(crate) fn release(&mut self, memory: &mut Memory) {
        self.tracker.release(memory);
    }

    /// It is forgotten.
    pub(crate) fn forget(&mut self, memory: &mut Memory) {
        self.end(memory);
        Room::forget(&mut self.room, memory);
    }

    /// It is over, and both ends know or will know without this node: nothing is owed any more.
    fn end(&mut self, memory: &mut Memory) {
        self.release(memory);
        self.tracker.promise.end();
        if !matches!(self.phase, Phase::Held(_)) {
            self.phase = Phase::Normal;
        }
    }

    /// Whether what its local side sends is kept until the remote side has it.
    fn is_kept(&self) -> bool {
        self.choice.hold == Hold::Full && self.can_be_held()
    }

    /// Whether this node can speak for the remote side.
    fn can_be_held(&self) -> bool {
        self.choice.by != By::Names && self.tracker.can_be_spoken_for()
    }

    /// The way to the remote side is lost.
    pub(crate) fn suspend(&mut self, now: Instant, memory: &mut Memory) {
        let edge = match &self.phase {
            _ if self.choice.hold == Hold::Off => return,
            Phase::Held(_) | Phase::Broken(_) => return,
            Phase::Resumed(resumed) => resumed.edge(),
            Phase::Normal => None,
        };
        self.tracker.trip.interrupted();
        self.tracker.heads.rewind();
        let mut held = Held::new(now, &self.tracker, edge);
        if self.can_be_held() {
            held.begin(now, memory, &mut self.tracker);
        }
        self.phase = Phase::Held(Box::new(held));
    }

    /// There is a way again. Its round trip is `after`, that of the way before was `before`.
    /// Returns how many bytes were on their way when that was lost.
    pub(crate) fn resume(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        before: Duration,
        after: Duration,
    ) -> u32 {
        let Phase::Held(held) = &self.phase else { return 0 };
        let flight = held.flight();
        let both = &mut self.tracker;
        let resumed = Resumed::after_outage(now, memory, both, held, (before, after));
        self.tracker.promise.settle();
        self.phase = resumed.map_or(Phase::Normal, |resumed| Phase::Resumed(Box::new(resumed)));
        flight
    }

    /// What was to be written down is. Returns whether that is still needed.
    pub(crate) fn recorded(&mut self) -> bool {
        let is_needed = self.tracker.promise.recorded();
        if let Phase::Resumed(resumed) = &mut self.phase
            && resumed.is_assisted()
        {
            resumed.tell_by(Instant::ZERO);
        }
        is_needed || self.owes()
    }

    /// What is to be written down or struck out; says so once.
    pub(crate) const fn take_task(&mut self) -> Option<Task> {
        self.tracker.promise.take_task()
    }

    /// Whether something was found lost since this was asked last, of what all have on their way.
    pub(crate) fn takes_reduction(&mut self) -> bool {
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        resumed.takes_reduction()
    }

    /// Bytes on their way while it is resumed, as they were counted before, and now.
    pub(crate) fn recount(&mut self) -> (u32, u32) {
        let flying = match &self.phase {
            Phase::Resumed(resumed) => resumed.shared_flight(self.tracker.local.acked),
            Phase::Normal | Phase::Held(_) | Phase::Broken(_) => 0,
        };
        (std::mem::replace(&mut self.counted, flying), flying)
    }

    /// Bytes on their way that are counted.
    pub(crate) const fn counted(&self) -> u32 {
        self.counted
    }

    /// When something is due, where there is a way if `is_up`.
    pub(crate) fn due(&self, is_up: bool) -> Option<Instant> {
        match &self.phase {
            Phase::Normal => None,
            Phase::Held(held) => held.due(&self.tracker),
            Phase::Resumed(resumed) => resumed.due(&self.tracker),
            Phase::Broken(broken) => broken.due(is_up),
        }
    }

    /// Its turn comes at `due`. Returns when it was to come before.
    pub(crate) const fn set_timer(&mut self, due: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut self.timer, due)
    }

    /// Whether nothing is due but a segment that may have to wait for those of others.
    pub(crate) fn may_wait(&self, now: Instant) -> bool {
        let Phase::Resumed(resumed) = &self.phase else { return false };
        resumed.may_wait(now, &self.tracker)
    }

    /// Its turn waits, or does not any more. Returns whether it did.
    pub(crate) fn park(&mut self, is_parked: bool) -> bool {
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        resumed.park(is_parked)
    }

    /// Says what is due, of at most `most` bytes, appended to `out`. To be asked when it is due.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        (is_up, most): (bool, u32),
        out: &mut Vec<u8>,
    ) -> Option<Output> {
        let can_be_held = self.can_be_held();
        let tracker = &mut self.tracker;
        match &mut self.phase {
            Phase::Normal => None,
            Phase::Held(held) => {
                // Nothing that was damaged on its way here is acknowledged.
                tracker.cache.verify(memory);
                if can_be_held && held.needs_record(now, tracker) {
                    tracker.promise.announce();
                    return None;
                }
                let (ack, edge) = held.answer(now, tracker, can_be_held)?;
                tracker.acknowledge(ack, edge, Flags::default(), out);
                Some(Output::ToLocal)
            }
            Phase::Resumed(resumed) => {
                let turn = resumed.resend(now, memory, tracker, most, out);
                match turn {
                    Turn::Leaves => self.phase = Phase::Normal,
                    Turn::GivesUp => self.break_off(now, memory),
                    Turn::Says(_) | Turn::Nothing => self.end_if_done(),
                }
                if let Turn::Says(output) = turn { Some(output) } else { None }
            }
            Phase::Broken(broken) => {
                let said = broken.poll(now, is_up, &tracker.tuple, out);
                if broken.is_done() {
                    tracker.stage = Stage::Closed;
                    tracker.promise.end();
                    self.phase = Phase::Normal;
                }
                said
            }
        }
    }

    /// Nothing more is owed to anybody, and nothing is to be sent again: it goes on as it was.
    fn end_if_done(&mut self) {
        if let Phase::Resumed(resumed) = &self.phase
            && resumed.is_done(&self.tracker)
        {
            self.phase = Phase::Normal;
        }
    }

    /// Repeats what the local side said last about what it received, while there is no way, if the
    /// remote side may not have heard. With the number of its next byte, unless what goes before is
    /// still to be sent from here: it would seem to be lost.
    pub(crate) fn say_news(&self, out: &mut Vec<u8>) {
        let (tracker, Phase::Held(held)) = (&self.tracker, &self.phase) else { return };
        if held.has_news() {
            let unsent = self.tracker.covered().map(|_| tracker.local.acked);
            tracker.say_news(unsent.unwrap_or(tracker.local.next), out);
        }
    }

    /// Whether a segment of the local side's that left at `left_at` and was lost need not be sent
    /// again: the remote side has it, or it lies in what is sent in the local side's place, now or
    /// as soon as there is a way again.
    pub(crate) fn sends_again(&self, left_at: Instant, segment: &Segment) -> bool {
        let (local, end) = (&self.tracker.local, segment.end());
        let is_to_come = || match &self.phase {
            Phase::Normal | Phase::Broken(_) => false,
            Phase::Resumed(resumed) => resumed.sends_again(left_at, end),
            Phase::Held(_) => self.tracker.cache.span().is_some_and(|(first, kept_to)| {
                !local.acked.is_before(first) && !kept_to.is_before(end)
            }),
        };
        let has_arrived = !local.acked.is_before(end);
        local.is_known && !self.is_broken() && (has_arrived || is_to_come())
    }

    /// The `len` bytes from `segment` on, if they are kept.
    pub(crate) fn payload(&self, segment: &Segment, len: usize) -> Option<(&[u8], &[u8])> {
        self.tracker.cache.get(segment.seq, len)
    }

    /// Whether it is to be assisted, if that is wanted. All that its sender may say until it hears
    /// of less room has to find a place: what nobody keeps it must send again itself, behind what
    /// it was promised. In slow start that is as much again as is on its way, and more than the
    /// remote side has room for it never is.
    pub(crate) fn asks_for_assist(&self, memory: &Memory) -> bool {
        let tracker = &self.tracker;
        let room = tracker.remote.edge.beyond(tracker.local.acked);
        let said = room.min(tracker.outstanding().saturating_mul(2));
        tracker.outstanding() >= ASSIST_MIN * tracker.mss()
            && said as usize <= memory.share()
            && !memory.is_short()
            && self.class == Class::Bulk
            && self.is_normal()
            && tracker.stage == Stage::Established
            && tracker.local.fin.is_none()
            && self.is_kept()
            && self.tracker.heads.is_empty()
            && self.tracker.covered().is_some()
    }

    /// Begins to assist it, once it is written down that something will be owed.
    pub(crate) fn begin_assist(&mut self, now: Instant, memory: &Memory) {
        self.phase = Phase::Resumed(Box::new(Resumed::assist(now, memory, &self.tracker)));
        self.tracker.promise.announce();
    }

    /// Nothing more is acknowledged ahead: what is owed is delivered, and that is all. Returns
    /// whether it was assisted.
    pub(crate) fn leave_assist(&mut self) -> bool {
        let is_assisted = self.is_assisted();
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.leave_assist(&mut self.tracker);
        }
        self.end_if_done();
        is_assisted
    }

    /// So many bytes of it wait at the entry. Returns whether the local side is to be told of room.
    pub(crate) fn heed_entry(&mut self, now: Instant, queued: u32, entrance: Entrance) -> bool {
        let Phase::Resumed(resumed) = &mut self.phase else { return false };
        resumed.heed_entry(now, &self.tracker, queued, entrance)
    }

    /// What an earlier process owed is gone: both ends are to be told, unless something is owed
    /// again already.
    pub(crate) fn break_off_dead(&mut self, now: Instant, memory: &mut Memory) {
        if !self.owes() {
            self.release(memory);
            self.tracker.promise = Promise::of_the_dead();
            self.phase = Phase::Broken(Box::new(Broken::of_the_dead(now)));
        }
    }

    /// What is owed will not be delivered: both ends are told.
    pub(crate) fn break_off(&mut self, now: Instant, memory: &mut Memory) {
        if !self.is_broken() {
            self.break_off_by(memory, Broken::new(now, &self.tracker));
        }
    }

    fn break_off_by(&mut self, memory: &mut Memory, broken: Broken) {
        self.release(memory);
        self.tracker.promise.forget();
        self.phase = Phase::Broken(Box::new(broken));
    }

    /// There will be no way to the remote side any more: the local one is told that it is over, if
    /// it was promised something. Returns whether it is still to be asked what it expects.
    pub(crate) fn terminate(&mut self, out: &mut Vec<u8>, ends: &mut Vec<usize>) -> bool {
        if self.owes() && self.tracker.remote.is_known {
            let said_to = match &self.phase {
                Phase::Resumed(resumed) => resumed.said_to(),
                Phase::Normal | Phase::Held(_) | Phase::Broken(_) => None,
            };
            tell_it_is_over(&self.tracker, said_to, out, ends);
        }
        let Phase::Broken(broken) = &mut self.phase else { return false };
        broken.forget_remote()
    }

    /// Whether a segment that goes `way`, and was just observed, can be followed by others that
    /// say nothing but that more of the stream is there.
    pub(crate) fn may_go_on(&self, way: Direction, segment: &Segment) -> bool {
        self.is_left_alone(way) && self.tracker.may_go_on(way, segment)
    }

    /// Whether the next of a stream that goes `way` needs nothing but to be noticed.
    fn is_left_alone(&self, way: Direction) -> bool {
        match &self.phase {
            Phase::Normal => !self.tracker.promise.is_obsolete(),
            Phase::Resumed(resumed) => way == Direction::Out && resumed.passes(),
            Phase::Held(_) | Phase::Broken(_) => false,
        }
    }

    /// Takes notice of a segment that goes `way` and says nothing but that more of the stream is
    /// there, if it is the next, and the ends speak for themselves.
    pub(crate) fn goes_on(&mut self, now: Instant, way: Direction, segment: &Segment) -> bool {
        self.is_left_alone(way) && self.tracker.goes_on(now, way, segment)
    }
}

#[cfg(test)]
impl Connection {
    /// Puts it in a state, with a promise up to `promised`.
    pub(crate) const fn stage(&mut self, at: Stage, promised: Option<Seq>) {
        self.tracker.stage = at;
        if let Some(to) = promised {
            self.tracker.promise.give(to);
        }
    }

    /// Both sides agreed on selective acknowledgements, or not.
    pub(crate) fn agree_on_sack(&mut self, sack: bool) {
        self.tracker.agree_on_sack(sack);
    }

    /// The remote side has room up to `edge`.
    pub(crate) const fn shut_at(&mut self, edge: Seq) {
        self.tracker.remote.edge = edge;
    }

    /// Keeps some bytes of the local side's.
    pub(crate) fn keep_bytes(&mut self, memory: &mut Memory, payload: Payload<'_>) {
        self.tracker.cache.push(memory, payload);
    }
}
