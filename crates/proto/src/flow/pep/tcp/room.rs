//! How much of its window one connection shows to the remote side, so that what comes for it takes
//! no more than its part.
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
//! told of much more room than it uses ([`Room::reach`]): systems that size their buffers by what
//! comes do the same by themselves.
//!
//! Left alone is what cannot be told in good order: what was not seen from its SYN (the unit of its
//! windows is not known), what nobody else may change (TCP-AO, MPTCP), what has no selective
//! acknowledgements (there a repeated window is a sign of loss, RFC 5681, 2), and what counts its
//! windows in more than [`SCALE_MAX`] allows. SYN and RST are never touched, and a window of the
//! local side's own that is smaller stands. Who takes part, and what all have together, `race`
//! counts.

use super::tracker::Tracker;
use crate::flow::pep::memory::Memory;
use crate::flow::priority::{Level, Levels};
use crate::flow::report::Stage;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment, Seq};

/// How often windows are looked at.
pub(in crate::flow) const EVERY: Duration = Duration::from_millis(200);
/// What comes in so long is looked at when a connection is to be counted.
const WITHIN: Duration = Duration::from_secs(1);
/// So many bytes in that time, or per second, are much: 128 kbit/s. For less nobody else is slowed
/// down.
pub(in crate::flow) const MUCH: u64 = 16_000;
/// How long others may take to use what a connection gave up. A sender that found its queue shorter
/// needs a few round trips for that.
pub(in crate::flow) const PATIENCE: Duration = Duration::from_secs(1);
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

/// How much a connection is preferred to others, and what is known of what comes for it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Room {
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

/// How all stand, as one of them sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Standing {
    pub(in crate::flow) now: Instant,
    /// Bytes per second of a flow with a weight of one.
    pub(in crate::flow) part: u64,
    /// The highest level that takes part, if any.
    pub(in crate::flow) top: Option<Level>,
    /// Whether all that can come does,
    pub(in crate::flow) is_full: bool,
    /// and whether that has not been so for a while.
    pub(in crate::flow) is_unused: bool,
}

impl Room {
    /// Of a connection of this level of which nothing was seen yet. `before` is what was known
    /// while other things were preferred.
    fn of(level: Level, before: Option<&Self>) -> Self {
        let told = before.map_or(Told::Unseen, |room| room.told);
        Self { level, told, ..Self::default() }
    }

    /// What is preferred is another now. `room` is there where anybody is preferred and there is
    /// memory for it.
    pub(super) fn judge_anew(
        room: &mut Option<Box<Self>>,
        memory: &mut Memory,
        levels: Levels,
        level: Level,
    ) {
        let next = Self::of(level, room.as_deref());
        Self::forget(room, memory);
        let mut fits = || memory.take(0, size_of::<Self>()).is_ok();
        *room = (!levels.is_empty() && fits()).then(|| Box::new(next));
    }

    /// Its connection is preferred by this much from now on.
    pub(super) const fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Nothing is known any more.
    pub(super) fn forget(room: &mut Option<Box<Self>>, memory: &mut Memory) {
        if room.take().is_some() {
            memory.give_back(size_of::<Self>());
        }
    }

    /// How much its connection is preferred to others.
    pub(crate) const fn level(&self) -> Level {
        self.level
    }

    /// The window that the remote side is to see, in bytes, where that is not the local side's own.
    pub(crate) const fn window(&self) -> Option<u32> {
        self.window
    }

    /// Whether what comes is counted, with all others.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Bytes per second that come, in the mean.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Counts what comes from now on, if that is much and `may` allows it. Returns whether it does
    /// that from now on.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        tracker: &Tracker,
        may: impl FnOnce() -> bool,
    ) -> bool {
        let next = tracker.remote.next;
        if self.is_counted {
            return false;
        }
        if now.saturating_since(self.since) >= WITHIN {
            (self.since, self.from) = (now, next);
        } else if u64::from(next.beyond(self.from)) >= MUCH && may() {
            self.is_counted = true;
            (self.came_at, self.from) = (now, next);
            (self.rate, self.latest) = (0, 0);
        }
        self.is_counted
    }

    /// What came before says nothing any more.
    pub(crate) fn begin_anew(&mut self, now: Instant, tracker: &Tracker) {
        (self.from, self.came_at) = (tracker.remote.next, now);
    }

    /// What its segment is to say of room beyond what it acknowledges, where that may be `reach`
    /// bytes; `None` where it is right as it is.
    pub(crate) fn tell_room(
        &mut self,
        tracker: &Tracker,
        segment: &Segment,
        reach: Option<u32>,
    ) -> Option<u16> {
        if segment.flags.has(Flags::RST) {
            return None;
        }
        if segment.flags.has(Flags::SYN) {
            let acks = segment.flags.has(Flags::ACK);
            let to = Told::To(segment.ack.plus(segment.window.into()));
            self.told = if acks { to } else { Told::Nothing };
            return None;
        }
        if !segment.flags.has(Flags::ACK) || !can_be_narrowed(tracker) {
            return None;
        }
        let scale = tracker.local.scale;
        let edge = segment.ack.plus(u32::from(segment.window) << scale);
        let told = match self.told {
            Told::Unseen => tracker.local.edge,
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
        self.told = Told::To(told);
        (window != segment.window).then_some(window)
    }

    /// Counts what came since it was counted last. Returns whether it still takes part.
    pub(crate) fn count(&mut self, now: Instant, tracker: &Tracker, passed: Duration) -> bool {
        let next = tracker.remote.next;
        let came = next.beyond(self.from);
        self.from = next;
        self.latest = per_second(came.into(), passed);
        self.rate = u64::midpoint(self.rate, self.latest);
        self.came_at = if came > 0 { now } else { self.came_at };
        let is_over =
            now.saturating_since(self.came_at) >= WITHIN || tracker.stage == Stage::Closed;
        if is_over {
            *self = Self { told: self.told, level: self.level, ..Self::default() };
        }
        !is_over
    }

    /// Bytes of room that it uses by far not all, however fast it becomes.
    pub(crate) fn reach(&self, tracker: &Tracker) -> u32 {
        let used_in = EVERY.max(tracker.trip.time() * 2);
        let rate = self.rate.max(self.latest);
        let bytes = bytes_in(rate, used_in).saturating_mul(REACH_GAIN);
        u32::try_from(bytes).unwrap_or(u32::MAX).clamp(REACH_MIN, u32::MAX >> 2)
    }

    /// Moves its window, as all stand.
    pub(crate) fn judge(&mut self, tracker: &Tracker, standing: &Standing) {
        if !can_be_narrowed(tracker) {
            return;
        }
        let is_lower = standing.top.is_some_and(|top| top < self.level());
        if !is_lower {
            (self.respites, self.spared_until) = (0, Instant::ZERO);
            if let Some(window) = self.window {
                self.set_window(tracker, standing.now, window.saturating_mul(2));
            }
            return;
        }
        let share = standing.part * u64::from(self.level().weight());
        let may_narrow = standing.is_full && standing.now >= self.spared_until;
        let Some(window) = self.window else {
            if may_narrow && self.latest > share {
                let time = FIRST_TIME.max(tracker.trip.time() * 2);
                let first = u32::try_from(bytes_in(self.latest, time)).unwrap_or(u32::MAX);
                self.set_window(tracker, standing.now, first);
            }
            return;
        };
        let rests = standing.now.saturating_since(self.changed_at);
        if standing.is_unused {
            if rests >= PATIENCE {
                self.give_back(tracker, standing.now, window);
            }
            return;
        }
        let shows = rests >= EVERY * 2 && !tracker.remote.next.is_before(self.shows_at);
        if !shows {
            return;
        }
        if self.latest > share + share / 10 && may_narrow {
            self.respites = if self.is_narrowed { 0 } else { self.respites };
            // After others did not use what was given up, less is asked for.
            let least = if self.respites == 0 { window / 2 } else { window / 4 * 3 };
            let meant = u128::from(window) * u128::from(share) / u128::from(self.latest.max(1));
            let meant = u32::try_from(meant).unwrap_or(window);
            self.set_window(tracker, standing.now, meant.max(least));
        } else if self.rate < share - share / 10 {
            self.set_window(tracker, standing.now, window + window / 5);
        }
    }

    /// Others do not use what it gave up with its last step, or with more.
    fn give_back(&mut self, tracker: &Tracker, now: Instant, window: u32) {
        let before = self.before;
        let wider = if before > window { before } else { window.saturating_mul(2) };
        self.spared_until = now + RESPITE * (1 << self.respites.min(RESPITES_MAX));
        self.respites = self.respites.saturating_add(1);
        self.set_window(tracker, now, wider);
    }

    /// It is to have this window from now on, or its own if that is so wide.
    fn set_window(&mut self, tracker: &Tracker, now: Instant, bytes: u32) {
        let unit = 1 << tracker.local.scale;
        let least = SEGMENTS_MIN * u32::from(tracker.local.mss.max(tracker.remote.mss));
        let (reach, next) = (self.reach(tracker), tracker.remote.next);
        let bytes = bytes.max(least).min(reach).next_multiple_of(unit);
        self.is_narrowed = self.window.is_none_or(|before| bytes < before);
        self.before = self.window.unwrap_or(u32::MAX);
        self.changed_at = now;
        let told = if let Told::To(told) = self.told { told } else { next };
        self.shows_at = told.max(next.plus(bytes));
        self.window = (bytes < reach).then_some(bytes);
    }
}

/// Whether windows of the local side can be made narrower.
fn can_be_narrowed(tracker: &Tracker) -> bool {
    tracker.can_be_spoken_for() && tracker.has_sack() && tracker.local.scale <= SCALE_MAX
}

/// So many bytes in this time, in bytes per second.
pub(crate) fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// What comes in this time at so many bytes per second.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
