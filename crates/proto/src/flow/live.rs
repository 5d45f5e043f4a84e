//! Flows that are of no use late, and what is known of each: recognised as RTP, or wanted early by
//! whoever uses them.
//!
//! A table of few places: a flow's own four of them follow from its ends, and the one of the four
//! that is missed least goes for a new one. So it is as cheap for a million flows as for one, and
//! what is being said is not pushed out by what is not. Decides nothing about paths; it only
//! remembers by which ones a flow goes and comes.

use std::net::IpAddr;
use std::sync::Arc;

use super::classify::{Class, Known, classify};
use super::priority::Priorities;
use super::report::{FlowReport, FlowState, Stage, Why};
use super::rtp::{Header, Likeness};
use super::tuple::{Direction, Tuple};
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::wire::control::{ENDS_MAX, End};
use crate::wire::inner::{InnerPacket, InnerView, TCP, UDP};

/// Flows that are known at once, of one session.
pub const FLOWS_MAX: usize = SETS * PLACES;
const SETS: usize = 32;
/// Places that a flow may have.
const PLACES: usize = 4;
/// Who has said nothing for so long is not spared before others.
const SPARED: Duration = Duration::from_secs(10);
/// What is more than may leave early waits its turn for so long.
const WAITS: Duration = Duration::from_secs(1);
/// Who has said nothing for so long is not told of: datagrams do not say when they have ended.
const OPEN: Duration = Duration::from_secs(60);
const UDP_HEADER: usize = 8;

const _: () = assert!(FLOWS_MAX * size_of::<LiveFlow>() <= 40 * 1_024);

/// Where what is wanted early goes, as its user says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Early {
    /// Shared by all that know of it.
    ends: Arc<[End]>,
}

impl Early {
    /// The ends that are meant, of which the first [`ENDS_MAX`] count.
    pub fn new(ends: &[End]) -> Self {
        Self { ends: ends.iter().take(ENDS_MAX).copied().collect() }
    }

    /// The ends that are meant.
    pub fn ends(&self) -> &[End] {
        &self.ends
    }

    /// Whether nothing is meant.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a flow is meant: one of its ends is there. A gateway sees that on the other side
    /// than its client does.
    fn means(&self, tuple: &Tuple) -> bool {
        let is_there = |end: &End, (address, port): (IpAddr, u16)| {
            end.network.contains(address) && end.port.is_none_or(|one| one == port)
        };
        self.ends.iter().any(|end| is_there(end, tuple.local) || is_there(end, tuple.remote))
    }
}

/// How much may be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Allowance {
    /// Bytes per second.
    pub rate: f64,
    /// Bytes at once.
    pub burst: f64,
}

/// What has been spent of an allowance.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    spent: f64,
    at: Instant,
}

impl Spent {
    /// Whether `len` more bytes may be sent now; they count as sent if so.
    pub fn take(&mut self, now: Instant, allowance: Allowance, len: usize) -> bool {
        let passed = now.saturating_since(self.at).as_secs_f64();
        self.spent = (self.spent - passed * allowance.rate).max(0.0);
        self.at = now;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a packet")]
        let after = self.spent + len as f64;
        let may = after <= allowance.burst;
        if may {
            self.spent = after;
        }
        may
    }
}

/// The flows of a session that are looked at.
#[derive(Clone, Debug, Default)]
pub struct LiveFlows {
    secret: u64,
    early: Early,
    /// Sets of places; none before the first flow.
    places: Vec<Option<LiveFlow>>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LiveFlow {
    tuple: Tuple,
    used_at: Instant,
    is_wanted_early: bool,
    likeness: Likeness,
    sent: Spent,
    /// It was more than may leave early: until then it waits its turn like everything else.
    waits_until: Instant,
    /// Bytes of inner packets that were to leave, and that came, modulo 2^32.
    carried: (u32, u32),
    /// The path that it leaves by,
    pub leaves: Option<PathId>,
    /// and when that took the place of another.
    pub changed_at: Option<Instant>,
    /// The path that it came by last, and when.
    pub came: Option<(PathId, Instant)>,
    /// When it came last by the path that it leaves by.
    pub came_back_at: Option<Instant>,
}

impl LiveFlow {
    /// What it was recognised as.
    pub fn class(&self) -> Class {
        classify(Known {
            ports: (self.tuple.local.1, self.tuple.remote.1),
            is_wanted_early: self.is_wanted_early,
            is_rtp: self.likeness.is_rtp(),
        })
    }

    /// Whether a packet of `len` bytes of it may leave early. A flow that is too much for that is
    /// not cut in two, of which one overtakes the other: all of it waits for a while.
    pub fn may_leave(&mut self, now: Instant, allowance: Allowance, len: usize) -> bool {
        if now < self.waits_until {
            return false;
        }
        let may = self.sent.take(now, allowance, len);
        if !may {
            self.waits_until = now + WAITS;
        }
        may
    }

    /// What is told of it.
    fn report(&self, now: Instant, priorities: &Priorities) -> FlowReport {
        FlowReport {
            tuple: self.tuple,
            class: self.class(),
            level: priorities.level_of(self.tuple.remote),
            narrowed_to: None,
            queue: None,
            state: FlowState::Normal,
            stage: Stage::Established,
            held_bytes: 0,
            owed_bytes: 0,
            idle: now.saturating_since(self.used_at),
            sent: self.carried.0,
            received: self.carried.1,
            path: self.own_path(now),
            why: self.why(now),
        }
    }

    /// The path that was chosen for it alone.
    fn own_path(&self, now: Instant) -> Option<PathId> {
        self.leaves.filter(|_| self.class() == Class::RealTime && now >= self.waits_until)
    }

    fn why(&self, now: Instant) -> Why {
        match self.class() {
            _ if now < self.waits_until => Why::TooMuch,
            Class::RealTime if self.is_wanted_early => Why::Wanted,
            Class::RealTime => Why::Spoken,
            Class::Names => Why::Raced,
            Class::Interactive | Class::Bulk => Why::InTurn,
        }
    }
}

impl LiveFlows {
    /// None is known. `secret` is a random number: nobody outside can tell which flows share a set.
    pub fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// What is wanted early from now on. Flows that are known are judged anew.
    pub fn set_early(&mut self, early: Early) {
        self.early = early;
        for flow in self.places.iter_mut().flatten() {
            flow.is_wanted_early = self.early.means(&flow.tuple);
        }
    }

    /// What is wanted early.
    pub const fn early(&self) -> &Early {
        &self.early
    }

    /// Takes notice of a packet that goes `way`. Returns its flow, if it is one that may be of no
    /// use late: by UDP, or wanted early.
    pub fn observe(
        &mut self,
        now: Instant,
        way: Direction,
        view: &InnerView,
        packet: &InnerPacket<'_>,
    ) -> Option<&mut LiveFlow> {
        if view.protocol != UDP && self.early.is_empty() {
            return None;
        }
        let tuple = Tuple::of(view, way)?;
        let is_wanted_early = self.early.means(&tuple);
        if view.protocol != UDP && !is_wanted_early {
            return None;
        }
        let flow = self.find(now, tuple, is_wanted_early);
        flow.used_at = now;
        let carried = match way {
            Direction::Out => &mut flow.carried.0,
            Direction::In => &mut flow.carried.1,
        };
        *carried = carried.wrapping_add(u32::try_from(packet.len()).unwrap_or_default());
        if view.protocol == UDP {
            let header = view.transport.and_then(|at| rtp_header(packet, at + UDP_HEADER));
            flow.likeness.note(way == Direction::Out, header);
        }
        Some(flow)
    }

    /// The flow of a packet that goes `way`, if it is known.
    pub fn get(&self, view: &InnerView, way: Direction) -> Option<&LiveFlow> {
        if self.places.is_empty() {
            return None;
        }
        let tuple = Tuple::of(view, way)?;
        let set = self.places.get(self.set(&tuple))?;
        set.iter().flatten().find(|flow| flow.tuple == tuple)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, view: &InnerView, way: Direction) -> Option<&mut LiveFlow> {
        let tuple = Tuple::of(view, way)?;
        let set = self.set(&tuple);
        let set = self.places.get_mut(set)?;
        set.iter_mut().flatten().find(|flow| flow.tuple == tuple)
    }

    /// How many places there are to look at.
    pub const fn places(&self) -> usize {
        self.places.len()
    }

    /// Tells of the flows in the places from `place` on, as [`super::Flows::report`] does of
    /// connections: these are the ones that are not.
    pub fn report(
        &self,
        now: Instant,
        (place, places): (usize, usize),
        priorities: &Priorities,
        reports: &mut Vec<FlowReport>,
    ) -> usize {
        let from = place.min(self.places.len());
        let to = place.saturating_add(places).min(self.places.len());
        let flows = self.places[from..to].iter().flatten();
        let is_open = |flow: &&LiveFlow| now.saturating_since(flow.used_at) < OPEN;
        let flows = flows.filter(|flow| flow.tuple.protocol != TCP).filter(is_open);
        reports.extend(flows.map(|flow| flow.report(now, priorities)));
        to - from
    }

    /// Adds to the report on a connection what follows from its being wanted early.
    pub fn complete(&self, now: Instant, report: &mut FlowReport) {
        if self.places.is_empty() || self.early.is_empty() {
            return;
        }
        let set = &self.places[self.set(&report.tuple)];
        let Some(flow) = set.iter().flatten().find(|flow| flow.tuple == report.tuple) else {
            return;
        };
        (report.class, report.path) = (flow.class(), flow.own_path(now));
    }

    fn find(&mut self, now: Instant, tuple: Tuple, is_wanted_early: bool) -> &mut LiveFlow {
        if self.places.is_empty() {
            self.places = vec![None; FLOWS_MAX];
        }
        let set = self.set(&tuple);
        let set = &mut self.places[set];
        let is_it = |place: &Option<LiveFlow>| place.is_some_and(|flow| flow.tuple == tuple);
        let place = set.iter().position(is_it).unwrap_or_else(|| {
            let worth = |place: &Option<LiveFlow>| {
                place.map(|flow| {
                    let is_new = now.saturating_since(flow.used_at) < SPARED;
                    (is_new && flow.class() == Class::RealTime, flow.used_at)
                })
            };
            let place = (0..set.len()).min_by_key(|&place| worth(&set[place])).unwrap_or(0);
            set[place] = None;
            place
        });
        set[place].get_or_insert_with(|| LiveFlow {
            tuple,
            used_at: now,
            is_wanted_early,
            likeness: Likeness::default(),
            sent: Spent::default(),
            waits_until: Instant::ZERO,
            carried: (0, 0),
            leaves: None,
            changed_at: None,
            came: None,
            came_back_at: None,
        })
    }

    fn set(&self, tuple: &Tuple) -> std::ops::Range<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sets")]
        let set = (tuple.hash(self.secret) % SETS as u64) as usize;
        set * PLACES..(set + 1) * PLACES
    }
}

/// The RTP header in a packet whose UDP payload begins at `at`.
fn rtp_header(packet: &InnerPacket<'_>, at: usize) -> Option<Header> {
    let len = packet.len().checked_sub(at)?;
    Header::parse(packet.head.get(at..)?, len)
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
