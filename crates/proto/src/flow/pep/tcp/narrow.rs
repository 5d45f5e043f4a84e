//! What comes for connections of a lower level is slowed down while others need the room: the
//! window that their local side tells is made narrower on its way out (Springate and Newman,
//! "Multilink VPN", QoS for Speed). Only this end of the tunnel knows of it.
//!
//! The paper narrows by a fixed factor, always. Here a window is narrower only while something of a
//! higher level comes as well, and no narrower than it has to be: what comes is counted, and every
//! [`EVERY`] each window moves towards the one at which its connection has its part of all that
//! comes, by the [weights](crate::flow::priority::Level::weight) of their levels. Nothing is lost
//! by it: where others do not take what one gives up, it gets it back, and is asked again later
//! and later. When nobody needs the room any more, each window doubles until it is its own again.
//!
//! ```text
//! told so far  ------------------------------|  never moves back (RFC 9293, 3.8.6)
//! acknowledged --------|                     |
//! its own window       |=======================================|
//! narrower             |==========|             what was told stands until it is used up
//! told now             |=====================|
//! ```
//!
//! So that what was told is used up soon, a connection to which another could be preferred is never
//! told of much more room than it uses ([`Connection::reach`]): systems that size their buffers by
//! what comes do the same by themselves.
//!
//! Left alone is what cannot be told in good order: what was not seen from its SYN (the unit of its
//! windows is not known), what nobody else may change (TCP-AO, MPTCP), what has no selective
//! acknowledgements (there a repeated window is a sign of loss, RFC 5681, 2), and what counts its
//! windows in more than [`SCALE_MAX`] allows. SYN and RST are never touched, and a window of the
//! local side's own that is smaller stands.

use super::{Connection, State};
use crate::flow::Flows;
use crate::flow::pep::memory::Memory;
use crate::flow::place::Place;
use crate::flow::priority::{Level, Priorities};
use crate::flow::table::Table;
use crate::flow::tuple::{Direction, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment, Seq};

/// Connections for which it is counted what comes, of one session.
const RUNNERS_MAX: usize = 64;
/// How often windows are looked at.
const EVERY: Duration = Duration::from_millis(200);
/// After so long without a look, what was counted says nothing of now: there was no way, or nobody
/// said anything.
const GAP: Duration = Duration::from_secs(1);
/// What comes in so long is looked at when a connection is to be counted,
const WITHIN: Duration = Duration::from_secs(1);
/// and this is much: 128 kbit/s. For less nobody else is slowed down.
const MUCH: u64 = 16_000;
/// The most that came lately is that of this long a time, or of twice as long.
const LATELY: Duration = Duration::from_secs(5);
/// How long others may take to use what a connection gave up. A sender that found its queue shorter
/// needs a few round trips for that.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a connection is not asked to give up more after others did not use it; each time twice
/// as long,
const RESPITE: Duration = Duration::from_secs(2);
/// but no longer than so many times.
const RESPITES_MAX: u32 = 4;
/// The narrowest window, in segments: one would wait for the delayed acknowledgement of each.
const SEGMENTS_MIN: u32 = 2;
/// The shortest time for which a window that is narrowed first has room.
const FIRST_TIME: Duration = Duration::from_millis(50);
/// Everybody may be told of so many bytes of room,
const REACH_MIN: u32 = 1 << 20;
/// and of so many times what comes while they are used up.
const REACH_GAIN: u64 = 4;
/// By how many bits a window that is narrowed may be shifted: one that is counted in units longer
/// than a segment could not be used up without being told anew.
const SCALE_MAX: u8 = 10;

/// How much a connection is preferred to others, and what room it has for that.
#[derive(Default, Debug)]
pub(in crate::flow) struct Room {
    /// There where anybody is preferred, and [`Memory`] had room for it.
    seen: Option<Box<Seen>>,
}

/// What is known of what comes for one connection.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    level: Level,
    told: Told,
    /// The window that it is to have, in bytes, if not its own,
    window: Option<u32>,
    /// and the one that it had before that.
    before: u32,
    /// Whether that was wider.
    is_narrowed: bool,
    changed_at: Instant,
    /// What it has shows when this has come.
    shows_at: Seq,
    /// It is not narrowed before.
    spared_until: Instant,
    /// How often others did not use what it gave up.
    respites: u32,
    /// Whether what comes is counted, with all others.
    is_counted: bool,
    /// From where and since when.
    from: Seq,
    since: Instant,
    /// When something came last.
    came_at: Instant,
    /// Bytes per second, in the mean and just now.
    rate: u64,
    latest: u64,
}

/// Up to where the remote side was told that there is room.
#[derive(Clone, Copy, Default, Debug)]
enum Told {
    /// Somebody else told it.
    #[default]
    Unseen,
    /// Not yet, but for what any connection may begin with.
    Nothing,
    To(Seq),
}

/// What comes for all connections of a session.
#[derive(Default, Debug)]
pub(in crate::flow) struct Race {
    priorities: Priorities,
    runners: Vec<Place>,
    /// What is no TCP, by level: bytes since the last look, and bytes per second.
    others: [(u64, u64); Level::ALL.len()],
    looked_at: Instant,
    /// The most bytes per second that came lately, and before; and when the former began.
    most: [u64; 2],
    most_since: Instant,
    /// Since when less than that comes.
    unused_since: Option<Instant>,
}

/// How all stand, as one of them sees it.
#[derive(Clone, Copy, Debug)]
struct Standing {
    now: Instant,
    /// Bytes per second of a flow with a weight of one.
    part: u64,
    /// The highest level that takes part, if any.
    top: Option<Level>,
    /// Whether all that can come does,
    is_full: bool,
    /// and whether that has not been so for a while.
    is_unused: bool,
}

impl Flows {
    /// What is preferred from now on. Connections that are known are judged anew.
    pub(crate) fn set_priorities(&mut self, memory: &mut Memory, priorities: Priorities) {
        for (_, flow) in self.table.iter_mut() {
            let told = flow.room.seen().told;
            flow.room.forget(memory);
            if !priorities.is_empty() {
                flow.room = Room::of(memory, priorities.level_of(flow.tuple.remote));
                flow.room.tell(told);
            }
        }
        self.race = Race { priorities, ..Race::default() };
    }

    /// What is preferred.
    pub const fn priorities(&self) -> &Priorities {
        &self.race.priorities
    }

    /// Looks at a packet that leaves for the remote side, whoever made it, before anybody else
    /// changes it. Where it is to tell of less room, its `head` is put into `head` with that, and
    /// takes its place; returns whether it is so.
    pub fn narrow(&mut self, now: Instant, packet: &InnerPacket<'_>, head: &mut Vec<u8>) -> bool {
        if self.race.priorities.is_empty() || !packet.is_tcp() {
            return false;
        }
        if self.is_up {
            self.race.look(now, &mut self.table);
        }
        let Some(segment) = Segment::parse(packet) else { return false };
        let headers = &packet.headers;
        let last = self.table.last(headers, Direction::Out);
        let found = last.or_else(|| self.table.find(&Tuple::of(headers, Direction::Out)?));
        let Some((place, flow)) = found.and_then(|at| Some((at, self.table.get_mut(at)?))) else {
            return false;
        };
        if !flow.room.is_known() {
            return false; // there was no memory for it: it is left alone
        }
        self.race.enter(now, place, flow);
        let reach = self.race.reach(flow);
        let Some(window) = flow.tell_room(&segment, reach) else { return false };
        head.clear();
        head.extend_from_slice(packet.pieces.head);
        segment.set_window(head, window);
        true
    }
}

impl Race {
    /// Whether nobody is preferred to anybody.
    pub(in crate::flow) fn is_off(&self) -> bool {
        self.priorities.is_empty()
    }

    /// Something came that is no TCP.
    pub(in crate::flow) fn note_other(&mut self, packet: &InnerPacket<'_>) {
        if !self.is_off() {
            let port = packet.headers.ports.map_or(0, |(from, _)| from);
            let level = self.priorities.level_of((packet.headers.source, port));
            self.others[level as usize].0 += packet.len() as u64;
        }
    }

    /// Counts what comes for a connection from now on, if that is much.
    fn enter(&mut self, now: Instant, place: Place, flow: &mut Connection) {
        let (seen, next) = (flow.room.seen_mut(), flow.remote.next);
        if seen.is_counted {
            return;
        }
        if now.saturating_since(seen.since) >= WITHIN {
            (seen.since, seen.from) = (now, next);
        } else if u64::from(next.beyond(seen.from)) >= MUCH
            && self.runners.len() < RUNNERS_MAX
            && !self.runners.contains(&place)
        {
            seen.is_counted = true;
            (seen.came_at, seen.from) = (now, next);
            (seen.rate, seen.latest) = (0, 0);
            self.runners.push(place);
        }
    }

    /// Bytes beyond what has come that a connection may be told of; `None` if it tells its own.
    fn reach(&self, flow: &Connection) -> Option<u32> {
        let seen = flow.room.seen();
        let is_known = seen.is_counted || self.runners.len() < RUNNERS_MAX;
        let is_lower = is_known && self.priorities.prefers_to(flow.room.level());
        seen.window.or_else(|| is_lower.then(|| flow.reach()))
    }

    /// Counts what came since the last look, and moves every window.
    fn look(&mut self, now: Instant, table: &mut Table) {
        let passed = now.saturating_since(self.looked_at);
        if passed < EVERY {
            return;
        }
        self.looked_at = now;
        if passed >= GAP {
            self.begin_anew(now, table);
            return;
        }
        self.runners.retain(|&place| {
            let counted = table.get_mut(place).filter(|flow| flow.room.seen().is_counted);
            counted.is_some_and(|flow| flow.count(now, passed))
        });
        for (bytes, rate) in &mut self.others {
            *rate = u64::midpoint(*rate, per_second(std::mem::take(bytes), passed));
        }
        let standing = self.standing(now, table);
        for &place in &self.runners {
            if let Some(flow) = table.get_mut(place) {
                flow.judge(&standing);
            }
        }
    }

    /// What came before says nothing any more; windows stay as they are until more is known.
    fn begin_anew(&mut self, now: Instant, table: &mut Table) {
        (self.most, self.most_since, self.unused_since) = ([0; 2], now, None);
        self.others = Default::default();
        for &place in &self.runners {
            if let Some(flow) = table.get_mut(place) {
                let seen = flow.room.seen_mut();
                (seen.from, seen.came_at) = (flow.remote.next, now);
            }
        }
    }

    fn standing(&mut self, now: Instant, table: &Table) -> Standing {
        let flows = self.runners.iter().filter_map(|&place| table.get(place));
        let flows = flows.map(|flow| (flow.room.level(), flow.room.seen().rate));
        let others = Level::ALL.into_iter().zip(self.others.map(|(_, rate)| rate));
        let others = others.filter(|&(_, rate)| rate >= MUCH);
        let (mut total, mut weights, mut top) = (0, 0, None);
        for (level, rate) in flows.chain(others) {
            total += rate;
            weights += u64::from(level.weight());
            let is_first = rate >= MUCH && top.is_none_or(|top| level < top);
            top = if is_first { Some(level) } else { top };
        }
        if now.saturating_since(self.most_since) >= LATELY {
            (self.most, self.most_since) = ([0, self.most[0]], now);
        }
        self.most[0] = self.most[0].max(total);
        let most = self.most[0].max(self.most[1]);
        let is_less = total < most - most / 20;
        self.unused_since = is_less.then(|| self.unused_since.unwrap_or(now));
        let unused_for = self.unused_since.map(|since| now.saturating_since(since));
        Standing {
            now,
            part: total / weights.max(1),
            top,
            is_full: total >= most - most / 50,
            is_unused: unused_for.is_some_and(|time| time >= PATIENCE),
        }
    }
}

impl Connection {
    /// Whether its windows can be made narrower.
    fn can_be_narrowed(&self) -> bool {
        let is_open = matches!(self.state, State::Established | State::HalfClosed);
        let agreed = self.terms.is_some_and(|terms| terms.sack && !terms.closed_to_others);
        is_open && agreed && self.local.scale <= SCALE_MAX
    }

    /// What its segment is to say of room beyond what it acknowledges, where that may be `reach`
    /// bytes; `None` where it is right as it is.
    fn tell_room(&mut self, segment: &Segment, reach: Option<u32>) -> Option<u16> {
        if segment.flags.has(Flags::RST) {
            return None;
        }
        if segment.flags.has(Flags::SYN) {
            let acks = segment.flags.has(Flags::ACK);
            let to = Told::To(segment.ack.plus(segment.window.into()));
            self.room.seen_mut().told = if acks { to } else { Told::Nothing };
            return None;
        }
        if !segment.flags.has(Flags::ACK) || !self.can_be_narrowed() {
            return None;
        }
        let scale = self.local.scale;
        let edge = segment.ack.plus(u32::from(segment.window) << scale);
        let told = match self.room.seen().told {
            Told::Unseen => self.local.edge,
            Told::Nothing => segment.ack,
            Told::To(told) => told,
        };
        let limit = reach.map_or(edge, |reach| told.max(segment.ack.plus(reach)));
        let window = if limit.is_before(edge) {
            let units = limit.beyond(segment.ack).div_ceil(1 << scale);
            u16::try_from(units).unwrap_or(u16::MAX).min(segment.window)
        } else {
            segment.window
        };
        let told = told.max(segment.ack.plus(u32::from(window) << scale));
        self.room.seen_mut().told = Told::To(told);
        (window != segment.window).then_some(window)
    }

    /// Counts what came since it was counted last. Returns whether it still takes part.
    fn count(&mut self, now: Instant, passed: Duration) -> bool {
        let (seen, next) = (self.room.seen_mut(), self.remote.next);
        let came = next.beyond(seen.from);
        seen.from = next;
        seen.latest = per_second(came.into(), passed);
        seen.rate = u64::midpoint(seen.rate, seen.latest);
        seen.came_at = if came > 0 { now } else { seen.came_at };
        let is_over = now.saturating_since(seen.came_at) >= WITHIN || self.state == State::Closed;
        if is_over {
            *seen = Seen { told: seen.told, level: seen.level, ..Seen::default() };
        }
        !is_over
    }

    /// Bytes of room that it uses by far not all, however fast it becomes.
    fn reach(&self) -> u32 {
        let used_in = EVERY.max(self.trip.time() * 2);
        let seen = self.room.seen();
        let rate = seen.rate.max(seen.latest);
        let bytes = bytes_in(rate, used_in).saturating_mul(REACH_GAIN);
        u32::try_from(bytes).unwrap_or(u32::MAX).clamp(REACH_MIN, u32::MAX >> 2)
    }

    /// Moves its window, as all stand.
    fn judge(&mut self, standing: &Standing) {
        if !self.can_be_narrowed() {
            return;
        }
        let is_lower = standing.top.is_some_and(|top| top < self.room.level());
        if !is_lower {
            let seen = self.room.seen_mut();
            (seen.respites, seen.spared_until) = (0, Instant::ZERO);
            if let Some(window) = seen.window {
                self.set_window(standing.now, window.saturating_mul(2));
            }
            return;
        }
        let share = standing.part * u64::from(self.room.level().weight());
        let seen = self.room.seen_mut();
        let may_narrow = standing.is_full && standing.now >= seen.spared_until;
        let Some(window) = seen.window else {
            if may_narrow && seen.latest > share {
                let time = FIRST_TIME.max(self.trip.time() * 2);
                let first = u32::try_from(bytes_in(seen.latest, time)).unwrap_or(u32::MAX);
                self.set_window(standing.now, first);
            }
            return;
        };
        let rests = standing.now.saturating_since(seen.changed_at);
        if standing.is_unused {
            if rests >= PATIENCE {
                self.give_back(standing.now, window);
            }
            return;
        }
        let shows = rests >= EVERY * 2 && !self.remote.next.is_before(seen.shows_at);
        if !shows {
            return;
        }
        if seen.latest > share + share / 10 && may_narrow {
            seen.respites = if seen.is_narrowed { 0 } else { seen.respites };
            // After others did not use what was given up, less is asked for.
            let least = if seen.respites == 0 { window / 2 } else { window / 4 * 3 };
            let meant = u128::from(window) * u128::from(share) / u128::from(seen.latest.max(1));
            let meant = u32::try_from(meant).unwrap_or(window);
            self.set_window(standing.now, meant.max(least));
        } else if seen.rate < share - share / 10 {
            self.set_window(standing.now, window + window / 5);
        }
    }

    /// Others do not use what it gave up with its last step, or with more.
    fn give_back(&mut self, now: Instant, window: u32) {
        let seen = self.room.seen_mut();
        let before = seen.before;
        let wider = if before > window { before } else { window.saturating_mul(2) };
        seen.spared_until = now + RESPITE * (1 << seen.respites.min(RESPITES_MAX));
        seen.respites = seen.respites.saturating_add(1);
        self.set_window(now, wider);
    }

    /// It is to have this window from now on, or its own if that is so wide.
    fn set_window(&mut self, now: Instant, bytes: u32) {
        let unit = 1 << self.local.scale;
        let least = SEGMENTS_MIN * u32::from(self.local.mss.max(self.remote.mss));
        let (reach, next) = (self.reach(), self.remote.next);
        let seen = self.room.seen_mut();
        let bytes = bytes.max(least).min(reach).next_multiple_of(unit);
        seen.is_narrowed = seen.window.is_none_or(|before| bytes < before);
        seen.before = seen.window.unwrap_or(u32::MAX);
        seen.changed_at = now;
        let told = if let Told::To(told) = seen.told { told } else { next };
        seen.shows_at = told.max(next.plus(bytes));
        seen.window = (bytes < reach).then_some(bytes);
    }
}

impl Room {
    /// Of a connection of this level of which nothing was seen yet, if there is memory for what
    /// will be known of it.
    pub(in crate::flow) fn of(memory: &mut Memory, level: Level) -> Self {
        let fits = memory.take(0, size_of::<Seen>()).is_ok();
        Self { seen: fits.then(|| Box::new(Seen { level, ..Seen::default() })) }
    }

    /// Nothing is known of it any more.
    pub(in crate::flow) fn forget(&mut self, memory: &mut Memory) {
        if self.seen.take().is_some() {
            memory.give_back(size_of::<Seen>());
        }
    }

    const fn is_known(&self) -> bool {
        self.seen.is_some()
    }

    /// The remote side was told so much before.
    fn tell(&mut self, told: Told) {
        if let Some(seen) = &mut self.seen {
            seen.told = told;
        }
    }

    /// How much it is preferred to others.
    pub(in crate::flow) fn level(&self) -> Level {
        self.seen.as_deref().map_or_else(Level::default, |seen| seen.level)
    }

    /// The window that the remote side is to see, in bytes, where that is not the local side's own.
    pub(in crate::flow) fn window(&self) -> Option<u32> {
        self.seen().window
    }

    fn seen(&self) -> Seen {
        self.seen.as_deref().copied().unwrap_or_default()
    }

    fn seen_mut(&mut self) -> &mut Seen {
        self.seen.get_or_insert_default()
    }
}

/// So many bytes in this time, in bytes per second.
fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// What comes in this time at so many bytes per second.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
