//! A bulk transfer as TCP makes one, small enough to read at a sitting.
//!
//! Slow start and congestion avoidance of Reno (RFC 5681); every packet is acknowledged at once, by
//! name, so that losses are found by packet threshold as in RFC 9002, 6.1.1 (what SACK and RACK
//! give a TCP); retransmission timeout (RFC 6298) after which all in flight counts as lost. No
//! pacing, no delayed acknowledgements, no tail loss probe: over the links of these stories, whose
//! queues hold a bandwidth-delay product, it fills the link as well. It is a yardstick for ratios
//! between two roads, not a model of any kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::laws::Breach;
use super::op::Way;
use super::road::Road;
use super::rto::Rto;
use crate::emu::SECOND;

/// IP and TCP headers with timestamps.
pub(super) const HEADERS: u16 = 52;
/// Segments of the first flight (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// The receiver's window in segments: 6 MB, as Linux lets it grow.
const WINDOW_MAX: u32 = 4_300;
/// The smallest window after a loss, in segments.
const WINDOW_MIN: f64 = 2.0;
/// The longest retransmission timeout.
const RTO_MAX_NS: u64 = 120 * SECOND;
/// A packet is lost when one that left so many later has arrived.
const REORDERED_MAX: u64 = 3;

/// How a transfer went.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    /// When it ended, if it did, in nanoseconds.
    pub(super) end_ns: Option<u64>,
    /// When data arrived in order, and how many bytes there were then.
    pub(super) progress: Vec<(u64, u64)>,
}

/// Both ends of a download.
#[derive(Debug)]
pub(super) struct Bulk {
    segments: u32,
    payload: u64,
    sender: Sender,
    receiver: Receiver,
    transfer: Transfer,
}

#[derive(Debug)]
struct Sender {
    /// The first segment that is not acknowledged, and the next that was never sent.
    first: u32,
    next: u32,
    /// What is in flight, by the order of leaving: segment, and when it left.
    flight: BTreeMap<u64, (u32, u64)>,
    lost: BTreeSet<u32>,
    orders: u64,
    window: f64,
    threshold: f64,
    /// Losses of what left before this belong to a reduction that was made.
    reduced_at: u64,
    rto: Rto,
    due_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Receiver {
    next: u32,
    beyond: BTreeSet<u32>,
}

/// What is in a packet on the road.
#[derive(Clone, Copy, Debug)]
enum Content {
    Segment(Sent),
    /// The first segment that is missing, and what this packet is the answer to.
    Acknowledgement(u32, Sent),
}

/// A segment on its way, and the how-manieth packet that is.
#[derive(Clone, Copy, Debug)]
struct Sent {
    segment: u32,
    order: u64,
}

impl Bulk {
    /// A download of `length` bytes in packets of at most `packet_max`.
    pub(super) fn new(length: u64, packet_max: u16) -> Self {
        let payload = u64::from(packet_max - HEADERS);
        Self {
            segments: length.div_ceil(payload) as u32,
            payload,
            sender: Sender {
                first: 0,
                next: 0,
                flight: BTreeMap::new(),
                lost: BTreeSet::new(),
                orders: 0,
                window: WINDOW_FIRST,
                threshold: f64::INFINITY,
                reduced_at: 0,
                rto: Rto::new(RTO_MAX_NS),
                due_ns: None,
            },
            receiver: Receiver::default(),
            transfer: Transfer::default(),
        }
    }

    /// Runs the transfer to its end, or until `limit_ns`; `tick` is called now and then and may
    /// move things.
    pub(super) fn run<R: Road>(
        mut self,
        road: &mut R,
        limit_ns: u64,
        mut tick: impl FnMut(&mut R, u64) -> Result<(), Breach>,
    ) -> Result<Transfer, Breach> {
        let mut contents = BTreeMap::new();
        let packet = self.payload as u16 + HEADERS;
        while road.now_ns() < limit_ns && self.transfer.end_ns.is_none() {
            for sent in self.sender.take_due(road.now_ns(), self.segments) {
                contents.insert(road.send(Way::Down, packet)?, Content::Segment(sent));
            }
            let next = [road.next_ns(), self.sender.due_ns].into_iter().flatten().min();
            road.pass(next.unwrap_or(limit_ns).min(limit_ns).max(road.now_ns()))?;
            for arrival in road.arrivals() {
                match contents.remove(&arrival.id) {
                    Some(Content::Segment(sent)) => {
                        let next = self.receiver.take(sent.segment);
                        self.note(arrival.at_ns, next);
                        let id = road.send(Way::Up, HEADERS)?;
                        contents.insert(id, Content::Acknowledgement(next, sent));
                    }
                    Some(Content::Acknowledgement(next, sent)) => {
                        self.sender.acknowledged(arrival.at_ns, next, sent);
                    }
                    None => {}
                }
            }
            tick(road, u64::from(self.receiver.next) * self.payload)?;
        }
        Ok(self.transfer)
    }

    fn note(&mut self, at_ns: u64, next: u32) {
        let bytes = u64::from(next) * self.payload;
        if self.transfer.progress.last().is_none_or(|(_, before)| *before < bytes) {
            self.transfer.progress.push((at_ns, bytes));
        }
        if next == self.segments {
            self.transfer.end_ns.get_or_insert(at_ns);
        }
    }
}

impl Receiver {
    /// Takes a segment; returns the first that is missing.
    fn take(&mut self, segment: u32) -> u32 {
        if segment >= self.next {
            self.beyond.insert(segment);
        }
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
        self.next
    }
}

impl Sender {
    /// What to send now: what was lost before what is new.
    fn take_due(&mut self, now_ns: u64, segments: u32) -> Vec<Sent> {
        if self.due_ns.is_some_and(|due| due <= now_ns) {
            self.time_out();
        }
        let mut due = Vec::new();
        while (self.flight.len() as f64) < self.window {
            let new = self.next < segments && self.next - self.first < WINDOW_MAX;
            let segment = match self.lost.pop_first() {
                Some(segment) => segment,
                None if new => {
                    self.next += 1;
                    self.next - 1
                }
                None => break,
            };
            self.orders += 1;
            self.flight.insert(self.orders, (segment, now_ns));
            due.push(Sent { segment, order: self.orders });
        }
        if !due.is_empty() {
            self.due_ns.get_or_insert_with(|| now_ns + self.rto.ns());
        }
        due
    }

    /// Nothing was acknowledged for too long: everything in flight counts as lost.
    fn time_out(&mut self) {
        self.threshold = (self.flight.len() as f64 / 2.0).max(WINDOW_MIN);
        self.window = 1.0;
        self.reduced_at = self.orders + 1;
        self.lost
            .extend(std::mem::take(&mut self.flight).into_values().map(|(segment, _)| segment));
        self.rto.back_off();
        self.due_ns = None;
    }

    fn acknowledged(&mut self, now_ns: u64, next: u32, sent: Sent) {
        if let Some((_, left_ns)) = self.flight.remove(&sent.order) {
            self.rto.sample(now_ns.saturating_sub(left_ns));
            if sent.order >= self.reduced_at {
                let slow_start = self.window < self.threshold;
                self.window += if slow_start { 1.0 } else { 1.0 / self.window };
                self.window = self.window.min(f64::from(WINDOW_MAX));
            }
        }
        self.lost.remove(&sent.segment);
        if next > self.first {
            self.first = next;
            self.next = self.next.max(next);
            self.lost = self.lost.split_off(&next);
            self.flight.retain(|_, (segment, _)| *segment >= next);
        }
        self.find_lost(sent.order);
        self.due_ns = (!self.flight.is_empty()).then(|| now_ns + self.rto.ns());
    }

    /// What left long enough before the packet that has arrived is lost.
    fn find_lost(&mut self, arrived: u64) {
        let kept = self.flight.split_off(&(arrived + 1).saturating_sub(REORDERED_MAX));
        let lost = std::mem::replace(&mut self.flight, kept);
        let Some((&newest, _)) = lost.last_key_value() else { return };
        if newest >= self.reduced_at {
            self.threshold = (self.window / 2.0).max(WINDOW_MIN);
            self.window = self.threshold;
            self.reduced_at = self.orders + 1;
        }
        self.lost.extend(lost.into_values().map(|(segment, _)| segment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::{LinkConfig, Loss, MS};
    use crate::ground;
    use crate::world::road::Bare;

    fn goodput(link: &LinkConfig) -> f64 {
        let mut road = Bare::new(1, link);
        let bulk = Bulk::new(20_000_000, Bare::PACKET_MAX);
        let transfer = bulk.run(&mut road, 100 * SECOND, |_, _| Ok(())).unwrap();
        let complete = transfer.end_ns.is_some();
        let transfer = ground::Transfer {
            complete,
            progress: transfer.progress,
            ..ground::Transfer::default()
        };
        transfer.goodput_mbps(SECOND).unwrap()
    }

    #[test]
    fn it_fills_a_link_whose_queue_holds_a_bandwidth_delay_product() {
        let rate = goodput(&LinkConfig::lossless(20_000_000, 40 * MS));
        assert!((18.5..19.4).contains(&rate), "{rate} of 20 Mbit/s, of which 3.5 % are headers");
    }

    #[test]
    fn random_loss_costs_what_it_costs_a_reno() {
        let lossy = LinkConfig::lossless(20_000_000, 40 * MS).loss(Loss::Bernoulli(0.01));
        let rate = goodput(&lossy);
        // Mathis et al. 1997: 1.22 / sqrt(loss) segments a round trip, about 3.5 Mbit/s.
        assert!((1.5..6.0).contains(&rate), "{rate} Mbit/s at 1 % loss");
    }

    #[test]
    fn a_dead_link_ends_nothing() {
        let dead = LinkConfig::lossless(20_000_000, 40 * MS).loss(Loss::Bernoulli(1.0));
        let mut road = Bare::new(1, &dead);
        let bulk = Bulk::new(1_000_000, Bare::PACKET_MAX);
        let transfer = bulk.run(&mut road, 60 * SECOND, |_, _| Ok(())).unwrap();
        assert_eq!(transfer.end_ns, None);
    }
}
