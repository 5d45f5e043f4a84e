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
//! How one window moves, its connection's [`Room`] decides.

use super::tcp::Connection;
use super::tcp::room::{EVERY, MUCH, PATIENCE, Standing, per_second};
use crate::flow::priority::{Level, Levels};
use crate::flow::table::Table;
use crate::id::FlowId;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::Segment;

/// Connections for which it is counted what comes, of one session.
const RUNNERS_MAX: usize = 64;
/// After so long without a look, what was counted says nothing of now: there was no way, or nobody
/// said anything.
const GAP: Duration = Duration::from_secs(1);
/// The most that came lately is that of this long a time, or of twice as long.
const LATELY: Duration = Duration::from_secs(5);

/// What comes for all connections of a session.
#[derive(Default, Debug)]
pub(in crate::flow) struct Race {
    levels: Levels,
    runners: Vec<FlowId>,
    /// What is no TCP, by level: bytes since the last look, and bytes per second.
    others: [(u64, u64); Level::ALL.len()],
    looked_at: Instant,
    /// The most bytes per second that came lately, and before; and when the former began.
    most: [u64; 2],
    most_since: Instant,
    /// Since when less than that comes.
    unused_since: Option<Instant>,
}

impl Race {
    /// Nothing was counted yet.
    pub(crate) fn of(levels: Levels) -> Self {
        Self { levels, ..Self::default() }
    }

    /// The levels that flows may have.
    pub(crate) const fn levels(&self) -> Levels {
        self.levels
    }

    /// Whether nobody is preferred to anybody.
    pub(crate) const fn is_off(&self) -> bool {
        self.levels.is_empty()
    }

    /// Something of this level came that is no TCP.
    pub(crate) fn note_other(&mut self, level: Level, packet: &InnerPacket<'_>) {
        self.others[level as usize].0 += packet.len() as u64;
    }

    /// Looks at a packet of the connection `id` that leaves for the remote side; returns the window
    /// that it is to tell, if that is less than it does, and its segment.
    pub(crate) fn narrow(
        &mut self,
        now: Instant,
        table: &mut Table,
        id: FlowId,
        packet: &InnerPacket<'_>,
    ) -> Option<(Segment, u16)> {
        let segment = Segment::parse(packet)?;
        let (room, tracker) = table.get_mut(id)?.room_mut()?;
        let has_place = self.runners.len() < RUNNERS_MAX;
        if room.enter(now, tracker, || has_place && !self.runners.contains(&id)) {
            self.runners.push(id);
        }
        // Bytes beyond what has come that it may be told of; none if it tells its own.
        let is_known = room.is_counted() || self.runners.len() < RUNNERS_MAX;
        let is_lower = is_known && self.levels.prefers_to(room.level());
        let reach = room.window().or_else(|| is_lower.then(|| room.reach(tracker)));
        Some((segment, room.tell_room(tracker, &segment, reach)?))
    }

    /// Counts what came since the last look, and moves every window.
    pub(crate) fn look(&mut self, now: Instant, table: &mut Table) {
        let passed = now.saturating_since(self.looked_at);
        if passed < EVERY {
            return;
        }
        self.looked_at = now;
        if passed >= GAP {
            self.begin_anew(now, table);
            return;
        }
        self.runners.retain(|&id| {
            let counted = table.get_mut(id).and_then(Connection::room_mut);
            counted.is_some_and(|(room, tracker)| {
                room.is_counted() && room.count(now, tracker, passed)
            })
        });
        for (bytes, rate) in &mut self.others {
            *rate = u64::midpoint(*rate, per_second(std::mem::take(bytes), passed));
        }
        let standing = self.standing(now, table);
        for &id in &self.runners {
            if let Some((room, tracker)) = table.get_mut(id).and_then(Connection::room_mut) {
                room.judge(tracker, &standing);
            }
        }
    }

    /// What came before says nothing any more; windows stay as they are until more is known.
    fn begin_anew(&mut self, now: Instant, table: &mut Table) {
        (self.most, self.most_since, self.unused_since) = ([0; 2], now, None);
        self.others = Default::default();
        for &id in &self.runners {
            if let Some((room, tracker)) = table.get_mut(id).and_then(Connection::room_mut) {
                room.begin_anew(now, tracker);
            }
        }
    }

    fn standing(&mut self, now: Instant, table: &Table) -> Standing {
        let flows = self.runners.iter().filter_map(|&id| table.get(id));
        let flows = flows.filter_map(|flow| flow.room().map(|room| (room.level(), room.rate())));
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
