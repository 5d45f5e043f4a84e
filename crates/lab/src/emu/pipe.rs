//! One direction of one link: a queue, a serialiser, and the transmission.
//!
//! A packet passes three stages. It waits in a drop-tail queue with a bound in bytes. The
//! serialiser takes the time that the rate requires. Then its fate is drawn (lost, damaged,
//! duplicated, held back) and it travels for the delay plus jitter. The fate follows the serialiser
//! so that a lost packet has used its air time, as on a real radio. A policer of UDP stands before
//! the queue.
//!
//! Limits: the rate may change at any time, but holds for a packet from its first bit on. Jitter
//! never reorders; only [`Reorder`] does.

use super::changes::Changes;
use super::frame::{Frame, Protocol};
use super::loss::{BitErrors, Loss, LossProcess};
use super::policer::{Bucket, Policer};
use super::rng::Rng;
use super::trace::{OPPORTUNITY_BYTES, Trace};
use super::{MS, SECOND, earliest};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// The most packets one pipe holds on the way, whatever its delay: a bound on memory only.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// How fast a pipe sends.
#[derive(Clone, Debug, Default)]
pub enum Rate {
    /// Packets leave as fast as they come; the queue is never used.
    #[default]
    Unlimited,
    /// Bits per second of layer-3 length, exact over any time: remainders are carried on.
    BitsPerSecond(u64),
    /// As in a recording.
    Trace(Arc<Trace>),
    /// A rate that changes at given moments.
    Changing(Arc<Changes>),
}

/// Packets that overtake each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is held back, in `[0, 1]`.
    pub probability: f64,
    /// For this time beyond delay and jitter, in nanoseconds; later packets overtake it.
    pub hold_ns: u64,
}

/// Whether a pipe carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// It carries.
    #[default]
    Up,
    /// Unplugged: queued and travelling packets are lost, and new ones are dropped.
    Down,
    /// Takes packets and time as before and delivers nothing: no end can see it.
    BlackHole,
}

/// The properties of one direction of a link.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// Speed of the serialiser.
    pub rate: Rate,
    /// Bytes that may wait, not counting the packet being sent; one packet may always wait.
    pub queue_bytes: u64,
    /// Delay, in nanoseconds.
    pub delay_ns: u64,
    /// Up to this much more, evenly distributed, in nanoseconds; order is kept.
    pub jitter_ns: u64,
    /// Packet loss.
    pub loss: Loss,
    /// Bit errors.
    pub bit_errors: BitErrors,
    /// Probability that a packet arrives twice, in `[0, 1]`.
    pub duplicate: f64,
    /// Overtaking.
    pub reorder: Reorder,
    /// A policer of UDP before the queue; other protocols are not limited.
    pub udp: Option<Policer>,
}

impl Default for PipeConfig {
    /// A pipe that changes nothing: unlimited, immediate, lossless.
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            queue_bytes: 1_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            loss: Loss::None,
            bit_errors: BitErrors::None,
            duplicate: 0.0,
            reorder: Reorder::default(),
            udp: None,
        }
    }
}

/// Counters of a pipe since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// Packets pushed in.
    pub pushed: u64,
    /// Layer-3 bytes pushed in.
    pub pushed_bytes: u64,
    /// Delivered packets, duplicates included.
    pub delivered: u64,
    /// Layer-3 bytes that came out.
    pub delivered_bytes: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// UDP packets that its policer dropped.
    pub policed: u64,
    /// Lost by the loss model.
    pub lost: u64,
    /// Dropped for bit errors, or delivered damaged.
    pub damaged: u64,
    /// Lost because the link was down or went down.
    pub dropped_down: u64,
    /// Dropped by a black hole.
    pub swallowed: u64,
    /// Packets that were doubled.
    pub duplicated: u64,
    /// Packets that were held back.
    pub held_back: u64,
    /// The most bytes that ever waited.
    pub queue_bytes_max: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Pipe<F> {
    config: PipeConfig,
    carrier: Carrier,
    losses: LossProcess,
    rng: Rng,
    queue: VecDeque<F>,
    queued_bytes: u64,
    serialiser: Serialiser<F>,
    flight: BinaryHeap<InFlight<F>>,
    flown: u64,
    /// When the latest packet in order arrives: no later one may come before.
    latest_arrival_ns: u64,
    /// Fraction of a nanosecond left over by the packet before, in units of 1 / rate.
    remainder: u64,
    /// Running number of the first trace opportunity that is not used up.
    opportunity: u64,
    bucket: Bucket,
    stats: PipeStats,
}

#[derive(Debug)]
enum Serialiser<F> {
    /// Nothing to send; free since then.
    Idle { since_ns: u64 },
    /// Sending `frame`, whose last bit leaves at `until_ns`.
    Sending { frame: F, until_ns: u64 },
    /// The head of the queue waits for the opportunity of a trace at `at_ns`; `sent` bytes of it
    /// have gone with earlier ones.
    Waiting { at_ns: u64, sent: u64 },
}

#[derive(Debug)]
struct InFlight<F> {
    arrival_ns: u64,
    number: u64,
    frame: F,
}

impl<F: Frame> Pipe<F> {
    pub(super) fn new(config: PipeConfig, rng: Rng) -> Self {
        Self {
            losses: LossProcess::new(config.loss),
            config,
            carrier: Carrier::Up,
            rng,
            queue: VecDeque::new(),
            queued_bytes: 0,
            serialiser: Serialiser::Idle { since_ns: 0 },
            flight: BinaryHeap::new(),
            flown: 0,
            latest_arrival_ns: 0,
            remainder: 0,
            opportunity: 0,
            bucket: Bucket::default(),
            stats: PipeStats::default(),
        }
    }

    /// Puts a packet into the queue, or drops it when the queue is full or the link down.
    pub(super) fn push(&mut self, now_ns: u64, frame: F) {
        let bytes = frame.wire_len() as u64;
        self.stats.pushed += 1;
        self.stats.pushed_bytes += bytes;
        if self.carrier == Carrier::Down {
            self.stats.dropped_down += 1;
            return;
        }
        if let Some(policer) = self.config.udp
            && is_udp(&frame)
            && !self.bucket.admits(now_ns, policer, bytes)
        {
            self.stats.policed += 1;
            return;
        }
        self.settle(now_ns);
        let idle = matches!(self.serialiser, Serialiser::Idle { .. });
        if idle && matches!(self.config.rate, Rate::Unlimited) {
            self.take_off(now_ns, frame);
            return;
        }
        if !self.queue.is_empty() && self.queued_bytes + bytes > self.config.queue_bytes {
            self.stats.dropped_queue += 1;
            return;
        }
        self.queued_bytes += bytes;
        self.queue.push_back(frame);
        self.start_serialiser(now_ns);
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queued_bytes);
    }

    /// The moment at which something in the pipe moves next.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let serialiser = match &self.serialiser {
            Serialiser::Idle { .. } => None,
            Serialiser::Sending { until_ns, .. } => Some(*until_ns),
            Serialiser::Waiting { at_ns, .. } => Some(*at_ns),
        };
        let flight = self.flight.peek().map(|next| next.arrival_ns);
        earliest([serialiser, flight])
    }

    /// Moves everything that is due at `now_ns` and returns one delivered packet with its time; to
    /// be called until `None`.
    pub(super) fn poll_arrival(&mut self, now_ns: u64) -> Option<(u64, F)> {
        loop {
            let due_ns = self.poll_timeout().filter(|&due| due <= now_ns)?;
            self.step_serialiser(due_ns);
            if self.flight.peek().is_none_or(|next| next.arrival_ns > due_ns) {
                continue;
            }
            let InFlight { arrival_ns, frame, .. } = self.flight.pop()?;
            if self.carrier == Carrier::BlackHole {
                self.stats.swallowed += 1;
                continue;
            }
            self.stats.delivered += 1;
            self.stats.delivered_bytes += frame.wire_len() as u64;
            return Some((arrival_ns, frame));
        }
    }

    /// Connects or disconnects the pipe, or makes it a black hole.
    pub(super) fn set_carrier(&mut self, now_ns: u64, carrier: Carrier) {
        self.settle(now_ns);
        self.carrier = carrier;
        if carrier == Carrier::Down {
            let sending = usize::from(matches!(self.serialiser, Serialiser::Sending { .. }));
            let gone = self.queue.len() + self.flight.len() + sending;
            self.stats.dropped_down += gone as u64;
            self.queue.clear();
            self.queued_bytes = 0;
            self.flight.clear();
            self.serialiser = Serialiser::Idle { since_ns: now_ns };
            self.remainder = 0;
        }
    }

    /// Changes the properties of the pipe. Packets on the way keep their fate; the rate holds from
    /// the next packet on.
    pub(super) fn set_config(&mut self, now_ns: u64, config: PipeConfig) {
        self.settle(now_ns);
        if config.loss != self.config.loss {
            self.losses = LossProcess::new(config.loss);
        }
        self.config = config;
        self.remainder = 0;
        if matches!(self.serialiser, Serialiser::Waiting { .. }) {
            self.serialiser = Serialiser::Idle { since_ns: now_ns };
            self.start_serialiser(now_ns);
        }
    }

    pub(super) const fn config(&self) -> &PipeConfig {
        &self.config
    }

    pub(super) const fn stats(&self) -> PipeStats {
        self.stats
    }

    /// Bytes waiting in the queue.
    pub(super) const fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Starts on the head of the queue when the serialiser is free.
    fn start_serialiser(&mut self, now_ns: u64) {
        let Serialiser::Idle { since_ns } = self.serialiser else { return };
        let start_ns = since_ns.max(now_ns);
        if start_ns > since_ns {
            // After a gap the remainder of a nanosecond is over.
            self.remainder = 0;
        }
        match &self.config.rate {
            Rate::Unlimited => self.flush_queue(start_ns),
            Rate::BitsPerSecond(rate) => self.start_at_rate(start_ns, *rate),
            Rate::Changing(changes) => {
                let rate = changes.at(start_ns);
                self.start_at_rate(start_ns, rate);
            }
            Rate::Trace(trace) => {
                if self.queue.is_empty() {
                    return;
                }
                let (number, at_ns) = trace.next(self.opportunity, start_ns);
                self.opportunity = number;
                self.serialiser = Serialiser::Waiting { at_ns, sent: 0 };
            }
        }
    }

    /// Starts at `start_ns` on the head of the queue, at `rate` bits per second.
    fn start_at_rate(&mut self, start_ns: u64, rate: u64) {
        let rate = rate.max(1);
        let Some(frame) = self.queue.pop_front() else { return };
        let bytes = frame.wire_len() as u64;
        self.queued_bytes -= bytes;
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.remainder);
        self.remainder = (work % u128::from(rate)) as u64;
        let until_ns = start_ns + (work / u128::from(rate)) as u64;
        self.serialiser = Serialiser::Sending { frame, until_ns };
    }

    /// Brings the serialiser up to `now_ns`, so that the next packet does not start in the past.
    fn settle(&mut self, now_ns: u64) {
        loop {
            match &self.serialiser {
                Serialiser::Sending { until_ns: at_ns, .. } | Serialiser::Waiting { at_ns, .. }
                    if *at_ns <= now_ns =>
                {
                    let due_ns = *at_ns;
                    self.step_serialiser(due_ns);
                }
                Serialiser::Idle { .. }
                | Serialiser::Sending { .. }
                | Serialiser::Waiting { .. } => return,
            }
        }
    }

    /// Releases the packet that the serialiser has finished at `due_ns`, and starts the next.
    fn step_serialiser(&mut self, due_ns: u64) {
        let idle = Serialiser::Idle { since_ns: due_ns };
        match std::mem::replace(&mut self.serialiser, idle) {
            Serialiser::Sending { frame, until_ns } if until_ns <= due_ns => {
                self.serialiser = Serialiser::Idle { since_ns: until_ns };
                self.take_off(until_ns, frame);
                self.start_serialiser(until_ns);
            }
            Serialiser::Waiting { at_ns, sent } if at_ns <= due_ns => {
                self.use_opportunity(at_ns, sent);
            }
            unchanged @ (Serialiser::Idle { .. }
            | Serialiser::Sending { .. }
            | Serialiser::Waiting { .. }) => self.serialiser = unchanged,
        }
    }

    /// Sends up to 1,500 bytes from the head of the queue. If the queue runs empty, the rest of the
    /// opportunity is lost.
    fn use_opportunity(&mut self, at_ns: u64, mut sent: u64) {
        let mut left = OPPORTUNITY_BYTES;
        while let Some(head) = self.queue.front() {
            let rest = head.wire_len() as u64 - sent;
            if rest > left {
                sent += left;
                break;
            }
            left -= rest;
            sent = 0;
            if let Some(frame) = self.queue.pop_front() {
                self.queued_bytes -= frame.wire_len() as u64;
                self.take_off(at_ns, frame);
            }
        }
        self.opportunity += 1;
        if self.queue.is_empty() {
            self.serialiser = Serialiser::Idle { since_ns: at_ns };
        } else if let Rate::Trace(trace) = &self.config.rate {
            let (number, at_ns) = trace.next(self.opportunity, at_ns);
            self.opportunity = number;
            self.serialiser = Serialiser::Waiting { at_ns, sent };
        }
    }

    /// The rate became unlimited: all queued packets leave at once.
    fn flush_queue(&mut self, now_ns: u64) {
        while let Some(frame) = self.queue.pop_front() {
            self.queued_bytes -= frame.wire_len() as u64;
            self.take_off(now_ns, frame);
        }
    }

    /// Draws the fate of a packet whose last bit left at `departure_ns`.
    fn take_off(&mut self, departure_ns: u64, mut frame: F) {
        if self.losses.loses(&mut self.rng) {
            self.stats.lost += 1;
            return;
        }
        if self.rng.chance(self.config.bit_errors.hit(frame.wire_len())) {
            self.stats.damaged += 1;
            match self.config.bit_errors {
                BitErrors::None | BitErrors::Dropped(_) => return,
                BitErrors::Delivered(_) => {
                    frame.flip_bit(self.rng.below(frame.wire_len() as u64 * 8) as usize);
                }
            }
        }
        let double = self.rng.chance(self.config.duplicate).then(|| frame.clone());
        self.fly(departure_ns, frame);
        if let Some(double) = double {
            self.stats.duplicated += 1;
            self.fly(departure_ns, double);
        }
    }

    fn fly(&mut self, departure_ns: u64, frame: F) {
        if self.flight.len() >= MAX_IN_FLIGHT {
            self.stats.dropped_queue += 1;
            return;
        }
        let jitter = match self.config.jitter_ns {
            0 => 0,
            up_to => self.rng.below(up_to + 1),
        };
        let in_order = (departure_ns + self.config.delay_ns + jitter).max(self.latest_arrival_ns);
        let arrival_ns = if self.rng.chance(self.config.reorder.probability) {
            self.stats.held_back += 1;
            in_order + self.config.reorder.hold_ns
        } else {
            self.latest_arrival_ns = in_order;
            in_order
        };
        self.flown += 1;
        self.flight.push(InFlight { arrival_ns, number: self.flown, frame });
    }
}

/// Whether a policer of UDP counts the frame.
fn is_udp<F: Frame>(frame: &F) -> bool {
    frame.endpoints().is_some_and(|ends| ends.protocol == Protocol::Udp)
}

impl PipeConfig {
    /// A pipe of `bits_per_second` and `delay_ns` that loses nothing, with a queue of one
    /// bandwidth-delay product of twice that delay (the round trip of a symmetric link), at
    /// least 64 KiB.
    pub fn clean(bits_per_second: u64, delay_ns: u64) -> Self {
        let product = u128::from(bits_per_second) * u128::from(delay_ns) * 2 / 8;
        let queue_bytes = (product / u128::from(SECOND)) as u64;
        Self {
            rate: Rate::BitsPerSecond(bits_per_second),
            queue_bytes: queue_bytes.max(64 * 1024),
            delay_ns,
            ..Self::default()
        }
    }

    /// The same with another queue, in milliseconds at the pipe's own rate; unlimited and
    /// recorded pipes are left as they are.
    pub fn with_queue_ms(mut self, queue_ms: u64) -> Self {
        if let Rate::BitsPerSecond(rate) = self.rate {
            let bits = u128::from(rate) * u128::from(queue_ms) * u128::from(MS);
            self.queue_bytes = (bits / 8 / u128::from(SECOND)) as u64;
        }
        self
    }
}

// The heap is a maximum heap: the earliest arrival, then the earliest departure, is the greatest.
impl<F> Ord for InFlight<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival_ns, other.number).cmp(&(self.arrival_ns, self.number))
    }
}

impl<F> PartialOrd for InFlight<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for InFlight<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for InFlight<F> {}

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;
