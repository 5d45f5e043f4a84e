//! One end of a TCP connection, small enough to read at a sitting: bytes in order, and late when
//! one of them is.
//!
//! Opens in a round trip (RFC 9293); slow start and congestion avoidance of Reno (RFC 5681); every
//! segment is acknowledged at once, by name, so that losses are found by packet threshold as in
//! RFC 9002, 6.1.1 (what SACK and RACK give a TCP); retransmission timeout (RFC 6298) after which
//! all in flight counts as lost. What is not acknowledged for [`USER_TIMEOUT_NS`] breaks it.
//!
//! It decides what leaves when. It refuses to know where to, and what the bytes mean. Limits: no
//! delayed acknowledgements, no tail loss probe; the end is said by who calls it ([`Kind::Reset`]),
//! once. Segments fit the path as it is now: a router has clamped the MSS, and a path that shrinks
//! says so by ICMP, which is TCP's to hear and not UDP's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::rto::Rto;
use crate::emu::SECOND;

/// TCP header with timestamps, in bytes.
pub(super) const TCP_HEADER: usize = 32;
/// How long what was sent may stay unacknowledged: the shell's (`rove-os`, streams).
pub(super) const USER_TIMEOUT_NS: u64 = 30 * SECOND;
/// Segments of the first flight (RFC 6928).
const WINDOW_FIRST: u64 = 10;
/// The smallest window after a loss, in segments.
const WINDOW_MIN: u64 = 2;
/// The most bytes in flight.
const WINDOW_MAX: u64 = 1 << 20;
/// Bytes that are not read yet, with which there is no room for more.
const UNREAD_MAX: usize = 128 << 10;
/// The longest retransmission timeout: the shell's. Also that of opening.
const RTO_MAX_NS: u64 = SECOND;
/// A segment is lost when one that left so many later has arrived.
const REORDERED_MAX: u64 = 3;

/// What a segment says beside its bytes.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Which byte of the stream the first one is.
    sequence: u64,
    /// The how-manieth segment with bytes this is.
    order: u64,
    /// The first byte that is missing, and the segment that this answers.
    acknowledges: (u64, Option<u64>),
    /// Bytes for which there is room beyond that byte.
    room: u64,
    /// Whether its checksum is wrong.
    pub(super) damaged: bool,
}

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A connection is wanted.
    Open,
    /// It is granted.
    Grant,
    /// Bytes, or an acknowledgement.
    Data,
    /// Is anybody there?
    Ask,
    /// There is no such connection, or none any more.
    Reset,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asked for, and to be asked for again then.
    Asked { again_ns: u64 },
    /// Granted; `told` is whether that was said since it was last asked for.
    Granted { told: bool },
    /// Both ends know.
    Open,
}

/// One end.
#[derive(Debug)]
pub(super) struct Tcp {
    phase: Phase,
    sender: Sender,
    receiver: Receiver,
}

#[derive(Debug)]
struct Sender {
    /// Everything from the first byte that is not acknowledged.
    bytes: VecDeque<u8>,
    /// The number of that byte, and of the next that was never sent.
    first: u64,
    next: u64,
    /// The byte from which on the other end has no room; one segment asks whether that is so still.
    limit: u64,
    flight: BTreeMap<u64, Flying>,
    /// What is to be sent again: from, to.
    lost: BTreeSet<(u64, u64)>,
    orders: u64,
    window: u64,
    threshold: u64,
    /// Losses of what left before this belong to a reduction that was made.
    reduced_at: u64,
    rto: Rto,
    due_ns: Option<u64>,
    /// Since when nothing was acknowledged of what is owed.
    owed_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    from: u64,
    to: u64,
    left_ns: u64,
}

#[derive(Debug, Default)]
struct Receiver {
    next: u64,
    beyond: BTreeMap<u64, Vec<u8>>,
    ready: Vec<u8>,
    /// The segments that have to be answered.
    unanswered: Vec<u64>,
}

impl Tcp {
    /// An end that asks for a connection.
    pub(super) const fn connect(now_ns: u64) -> Self {
        Self::new(Phase::Asked { again_ns: now_ns })
    }

    /// An end that was asked for one.
    pub(super) const fn accept() -> Self {
        Self::new(Phase::Granted { told: false })
    }

    const fn new(phase: Phase) -> Self {
        let receiver = Receiver {
            next: 0,
            beyond: BTreeMap::new(),
            ready: Vec::new(),
            unanswered: Vec::new(),
        };
        Self { phase, sender: Sender::new(), receiver }
    }

    /// Whether bytes can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether everything that was written has arrived.
    pub(super) fn is_drained(&self) -> bool {
        self.sender.bytes.is_empty()
    }

    /// Whether the other end has not answered for too long.
    pub(super) fn is_broken(&self, now_ns: u64) -> bool {
        self.sender.owed_since_ns.is_some_and(|since| now_ns >= since + USER_TIMEOUT_NS)
    }

    /// Puts bytes behind those that wait.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.sender.bytes.extend(bytes);
    }

    /// Bytes that were never sent.
    pub(super) fn unsent(&self) -> usize {
        self.sender.bytes.len() - (self.sender.next - self.sender.first) as usize
    }

    /// What has arrived in order, up to so many bytes.
    pub(super) fn read(&mut self, count: usize) -> Vec<u8> {
        let Receiver { ready, unanswered, .. } = &mut self.receiver;
        let count = count.min(ready.len());
        if ready.len() >= UNREAD_MAX / 2 && count > 0 {
            unanswered.push(0); // there is room again
        }
        ready.drain(..count).collect()
    }

    /// A segment arrives; one that resets is the caller's affair.
    pub(super) fn arrives(&mut self, now_ns: u64, header: &Header, bytes: Vec<u8>) {
        match (self.phase, header.kind) {
            (Phase::Granted { .. }, Kind::Open) => self.phase = Phase::Granted { told: false },
            (Phase::Asked { .. }, Kind::Grant) => {
                self.phase = Phase::Open;
                self.receiver.unanswered.push(0);
            }
            (Phase::Granted { .. }, Kind::Data) => self.phase = Phase::Open,
            // It did not hear that we know.
            (Phase::Open, Kind::Grant | Kind::Ask) => self.receiver.unanswered.push(0),
            (Phase::Open, Kind::Data) => {}
            (Phase::Asked { .. }, Kind::Open | Kind::Data | Kind::Ask | Kind::Reset)
            | (Phase::Granted { .. }, Kind::Grant | Kind::Ask | Kind::Reset)
            | (Phase::Open, Kind::Open | Kind::Reset) => return,
        }
        if header.kind == Kind::Data {
            let (next, answers) = header.acknowledges;
            self.sender.limit = self.sender.limit.max(next + header.room);
            self.sender.acknowledged(now_ns, next, answers);
            if !bytes.is_empty() {
                self.receiver.unanswered.push(header.order);
                self.receiver.take(header.sequence, bytes);
            }
        }
    }

    /// The segments that leave now, none with more than `mss` bytes.
    pub(super) fn leaving(&mut self, now_ns: u64, mss: usize) -> Vec<(Header, Vec<u8>)> {
        match self.phase {
            Phase::Asked { again_ns } if again_ns <= now_ns => {
                self.phase = Phase::Asked { again_ns: now_ns + RTO_MAX_NS };
                return vec![(Header::of(Kind::Open), Vec::new())];
            }
            Phase::Granted { told: false } => {
                self.phase = Phase::Granted { told: true };
                return vec![(Header::of(Kind::Grant), Vec::new())];
            }
            Phase::Asked { .. } | Phase::Granted { .. } => return Vec::new(),
            Phase::Open => {}
        }
        let next = self.receiver.next;
        let room = UNREAD_MAX.saturating_sub(self.receiver.ready.len()) as u64;
        let mut answers = std::mem::take(&mut self.receiver.unanswered).into_iter();
        let mut leaving = Vec::new();
        for (order, sequence, bytes) in self.sender.take_due(now_ns, mss as u64) {
            let acknowledges = (next, answers.next().filter(|&order| order > 0));
            let header = Header { sequence, order, acknowledges, room, ..Header::of(Kind::Data) };
            leaving.push((header, bytes));
        }
        for order in answers {
            let acknowledges = (next, Some(order).filter(|&order| order > 0));
            leaving.push((Header { acknowledges, room, ..Header::of(Kind::Data) }, Vec::new()));
        }
        leaving
    }

    /// When [`Tcp::leaving`] has something if nothing arrives before.
    pub(super) fn due_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Asked { again_ns } => Some(again_ns),
            Phase::Granted { .. } => None,
            Phase::Open => self.sender.due_ns,
        }
    }
}

impl Header {
    /// One without bytes.
    pub(super) const fn of(kind: Kind) -> Self {
        Self { kind, sequence: 0, order: 0, acknowledges: (0, None), room: 0, damaged: false }
    }
}

impl Receiver {
    fn take(&mut self, sequence: u64, bytes: Vec<u8>) {
        if sequence + bytes.len() as u64 <= self.next {
            return;
        }
        let held = self.beyond.entry(sequence).or_default();
        if held.len() < bytes.len() {
            *held = bytes;
        }
        while let Some(entry) = self.beyond.first_entry() {
            let from = *entry.key();
            if from > self.next {
                break;
            }
            let bytes = entry.remove();
            let known = (self.next - from) as usize;
            if let Some(new) = bytes.get(known..) {
                self.ready.extend_from_slice(new);
                self.next += new.len() as u64;
            }
        }
    }
}

impl Sender {
    const fn new() -> Self {
        Self {
            bytes: VecDeque::new(),
            first: 0,
            next: 0,
            limit: UNREAD_MAX as u64,
            flight: BTreeMap::new(),
            lost: BTreeSet::new(),
            orders: 0,
            window: 0,
            threshold: u64::MAX,
            reduced_at: 0,
            rto: Rto::new(RTO_MAX_NS),
            due_ns: None,
            owed_since_ns: None,
        }
    }

    /// What to send now, lost before new: order, number of the first byte, bytes.
    fn take_due(&mut self, now_ns: u64, mss: u64) -> Vec<(u64, u64, Vec<u8>)> {
        if self.window == 0 {
            self.window = WINDOW_FIRST * mss;
        }
        if self.due_ns.is_some_and(|due| due <= now_ns) {
            self.time_out(mss);
        }
        let mut due = Vec::new();
        let mut flying: u64 = self.flight.values().map(|one| one.to - one.from).sum();
        let end = self.first + self.bytes.len() as u64;
        while flying < self.window {
            let (from, to) = match self.lost.pop_first() {
                Some((from, to)) => {
                    let cut = to.min(from + mss);
                    if cut < to {
                        self.lost.insert((cut, to));
                    }
                    (from, cut)
                }
                None if self.next < end && (self.next < self.limit || flying == 0) => {
                    let from = self.next;
                    self.next = end.min(from + mss);
                    (from, self.next)
                }
                None => break,
            };
            self.orders += 1;
            self.flight.insert(self.orders, Flying { from, to, left_ns: now_ns });
            flying += to - from;
            let range = (from - self.first) as usize..(to - self.first) as usize;
            due.push((self.orders, from, self.bytes.range(range).copied().collect()));
        }
        if !due.is_empty() {
            self.due_ns.get_or_insert_with(|| now_ns + self.rto.ns());
            self.owed_since_ns.get_or_insert(now_ns);
        }
        due
    }

    /// Nothing was acknowledged for too long: everything in flight counts as lost.
    fn time_out(&mut self, mss: u64) {
        let flying: u64 = self.flight.values().map(|one| one.to - one.from).sum();
        self.threshold = (flying / 2).max(WINDOW_MIN * mss);
        self.window = mss;
        self.reduced_at = self.orders + 1;
        let flight = std::mem::take(&mut self.flight);
        self.lost.extend(flight.into_values().map(|one| (one.from, one.to)));
        self.rto.back_off();
        self.due_ns = None;
    }

    fn acknowledged(&mut self, now_ns: u64, next: u64, answers: Option<u64>) {
        let mut progress = next > self.first;
        if let Some(order) = answers {
            if let Some(one) = self.flight.remove(&order) {
                progress = true;
                self.rto.sample(now_ns - one.left_ns);
                self.lost.remove(&(one.from, one.to));
                if order >= self.reduced_at {
                    self.grow(one.to - one.from);
                }
            }
            self.find_lost(order);
        }
        if next > self.first {
            let arrived = (next - self.first).min(self.bytes.len() as u64);
            self.bytes.drain(..arrived as usize);
            self.first += arrived;
            self.flight.retain(|_, one| one.to > next);
            let lost = std::mem::take(&mut self.lost).into_iter();
            let lost = lost.filter(|lost| lost.1 > next).map(|(from, to)| (from.max(next), to));
            self.lost = lost.collect();
            for one in self.flight.values_mut() {
                one.from = one.from.max(next);
            }
        }
        if progress {
            let owed = !self.flight.is_empty() || !self.lost.is_empty();
            self.due_ns = owed.then(|| now_ns + self.rto.ns());
            self.owed_since_ns = owed.then_some(now_ns);
        }
    }

    fn grow(&mut self, arrived: u64) {
        let by = if self.window < self.threshold {
            arrived
        } else {
            (arrived * arrived / self.window.max(1)).max(1)
        };
        self.window = (self.window + by).min(WINDOW_MAX);
    }

    /// What left long enough before the segment that has arrived is lost.
    fn find_lost(&mut self, arrived: u64) {
        let kept = self.flight.split_off(&(arrived + 1).saturating_sub(REORDERED_MAX));
        let lost = std::mem::replace(&mut self.flight, kept);
        let Some((&newest, one)) = lost.last_key_value() else { return };
        if newest >= self.reduced_at {
            self.threshold = (self.window / 2).max(WINDOW_MIN * (one.to - one.from));
            self.window = self.threshold;
            self.reduced_at = self.orders + 1;
        }
        self.lost.extend(lost.into_values().map(|one| (one.from, one.to)));
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
