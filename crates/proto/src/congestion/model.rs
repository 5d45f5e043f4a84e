//! A model of a link for tests: senders under a [`ShortQueue`] each, a serialiser with a bounded
//! queue that they share, delay, jitter, loss, and receivers that tell what arrived.

use super::{Conditions, Controller, ShortQueue};
use crate::recovery::delay::Delay;
use crate::recovery::feedback::PACED_BYTES_MAX;
use crate::recovery::{AckSample, RateSample};
use crate::time::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// UDP payload of each datagram.
pub(super) const SIZE: f64 = 1_400.0;
const BYTES: u64 = 1_400;
/// Feedback is due after so many bytes.
const TOLD_BYTES: u64 = PACED_BYTES_MAX;

/// Datagrams that the link carries while the elastic sender's host does nothing, at most.
const HOST: f64 = 8.0;

/// What the link does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: f64,
    pub(super) trip: Duration,
    /// Each datagram comes later by up to so much, and none overtakes another.
    pub(super) jitter: Duration,
    pub(super) loss: f64,
    /// Bytes that wait at most.
    pub(super) buffer: f64,
    /// What does not fit is lost, and nothing ever waits.
    pub(super) polices: bool,
    /// A policer before the queue: bytes per second, and bytes that pass at once after a pause.
    pub(super) policer: Option<(f64, f64)>,
    /// Losses come in bursts of so many datagrams in the mean (E. N. Gilbert, 1960).
    pub(super) bursts: f64,
    /// The queue drops as CoDel does (RFC 8289).
    pub(super) codel: bool,
    /// What another sends through the same queue, bytes per second.
    pub(super) others: f64,
}

impl Link {
    pub(super) fn new(mbits: f64, trip_ms: u64) -> Self {
        Self {
            rate: mbits * 125_000.0,
            trip: Duration::from_millis(trip_ms),
            jitter: Duration::ZERO,
            loss: 0.0,
            buffer: f64::INFINITY,
            polices: false,
            policer: None,
            bursts: 1.0,
            codel: false,
            others: 0.0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    prior_delivered: u64,
    from_sent: Instant,
    from_arrived: Option<Instant>,
    limited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Wake,
    Arrives {
        number: u64,
    },
    Due {
        until: u64,
    },
    AckSample {
        largest: u64,
        bytes: u64,
        arrived: Instant,
        held: Duration,
    },
    /// One of the elastic sender's has been acknowledged.
    Acked,
}

/// A sender like Reno (RFC 5681) beside: its window grows by a datagram in each round trip and is
/// halved, once in each, when the queue runs over.
pub(super) struct Elastic {
    window: f64,
    in_flight: f64,
    halves_at: Instant,
    has_ended: bool,
    /// Bytes received in each tenth of a second.
    tenths: Vec<u64>,
}

/// One sender, its receiver and what is between.
pub(super) struct Flow {
    pub(super) controller: ShortQueue,
    pub(super) conditions: Conditions,
    /// The trial that it began with the last feedback.
    trial: Option<f64>,
    /// The rate of a policer that it found.
    pub(super) policed: Option<f64>,
    /// Bytes per second that want to be sent.
    pub(super) load: f64,
    begins: Instant,
    backlog: f64,
    backlog_at: Instant,
    woken: Option<Instant>,
    flying: VecDeque<Sent>,
    first: u64,
    delivered: u64,
    limited_until: u64,
    base: (Instant, Option<Instant>),
    delay: Delay,
    /// When the last that is on its way will arrive, and the newest that has.
    arrives_at: Instant,
    arrived_at: Instant,
    received: u64,
    reported: u64,
    reported_at: Option<Instant>,
    largest: u64,
    /// Bytes received in each tenth of a second.
    pub(super) tenths: Vec<u64>,
    pub(super) datagrams: u64,
    pub(super) dropped: u64,
}

impl Flow {
    pub(super) fn new(begins: Instant) -> Self {
        Self {
            controller: ShortQueue::new(begins, None),
            conditions: Conditions::default(),
            trial: None,
            policed: None,
            load: f64::INFINITY,
            begins,
            backlog: 0.0,
            backlog_at: begins,
            woken: None,
            flying: VecDeque::new(),
            first: 0,
            delivered: 0,
            limited_until: 0,
            base: (begins, None),
            delay: Delay::default(),
            arrives_at: Instant::ZERO,
            arrived_at: Instant::ZERO,
            received: 0,
            reported: 0,
            reported_at: None,
            largest: 0,
            tenths: Vec::new(),
            datagrams: 0,
            dropped: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.flying.len() as u64 * BYTES
    }

    fn told(&mut self, now: Instant, largest: u64, bytes: u64, arrived: Instant, held: Duration) {
        if largest < self.first {
            return;
        }
        let covered = largest + 1 - self.first;
        let newest = self.flying[covered as usize - 1];
        self.flying.drain(..covered as usize);
        self.first = largest + 1;
        let delivered = bytes - self.delivered;
        self.delivered = bytes;
        let (from, left) = (newest.from_sent, newest.at.saturating_since(newest.from_sent));
        let time = match newest.from_arrived {
            Some(from) => arrived.saturating_since(from).max(left),
            None => now.saturating_since(from),
        };
        let left = if newest.from_arrived.is_some() { left } else { time };
        let per_second =
            |time: Duration| (bytes - newest.prior_delivered) as f64 / time.as_secs_f64();
        let rate = RateSample {
            bytes_per_second: per_second(time),
            left_per_second: per_second(left),
            is_limited: newest.limited,
            prior_delivered: newest.prior_delivered,
        };
        self.base = (newest.at, Some(arrived));
        self.delay.sample(now, newest.at, arrived.wrapping_micros());
        let told = AckSample {
            delivered,
            arrived: bytes,
            lost: covered * BYTES - delivered,
            in_flight: self.in_flight(),
            rate: (!time.is_zero()).then_some(rate),
            trip: Some(now.saturating_since(newest.at) - held),
            queue: self.delay.queue(now),
        };
        let findings = self.controller.on_ack(now, &told, &self.conditions);
        self.trial = findings.trial;
        self.policed = self.policed.or(findings.policed);
    }
}

/// Everything.
pub(super) struct World {
    pub(super) link: Link,
    pub(super) flows: Vec<Flow>,
    /// The flows are paths of one peer.
    pub(super) together: bool,
    /// And heed somebody else who fills the queue.
    pub(super) heeds: bool,
    pub(super) elastic: Option<Elastic>,
    pub(super) now: Instant,
    /// Timers go off late by up to this.
    pub(super) grain: Duration,
    events: BinaryHeap<Reverse<(Instant, usize, Event)>>,
    queue: f64,
    queue_at: Instant,
    /// Queue in milliseconds, looked at each ten.
    pub(super) queues: Vec<f64>,
    /// Bytes that the policer let by and that have not flowed back, and since when.
    used: (f64, Instant),
    /// The link is in a burst of losses.
    is_bad: bool,
    codel: Codel,
    pub(super) seed: u64,
}

/// The state of a queue with `CoDel`.
#[derive(Default)]
struct Codel {
    /// When the queue has been above the target for an interval, and when the next is dropped.
    above: Option<Instant>,
    next: Option<Instant>,
    count: u32,
}

impl Codel {
    const TARGET: f64 = 0.005;
    const INTERVAL: Duration = Duration::from_millis(100);

    /// Whether what comes now, and waits for so many seconds, is dropped.
    fn drops(&mut self, now: Instant, wait: f64) -> bool {
        if wait < Self::TARGET {
            (self.above, self.next) = (None, None);
            return false;
        }
        let above = *self.above.get_or_insert(now + Self::INTERVAL);
        if now < above {
            return false;
        }
        if self.next.is_none_or(|next| now >= next) {
            self.count = if self.next.is_some() { self.count + 1 } else { 1 };
            self.next = Some(now + Self::INTERVAL.div_f64(f64::from(self.count).sqrt()));
            return true;
        }
        false
    }
}

impl World {
    pub(super) fn new(link: Link, begins_s: &[u64]) -> Self {
        let flows: Vec<_> =
            begins_s.iter().map(|&s| Flow::new(Instant::ZERO + Duration::from_secs(s))).collect();
        let events =
            flows.iter().enumerate().map(|(i, f)| Reverse((f.begins, i, Event::Wake))).collect();
        Self {
            link,
            flows,
            together: false,
            heeds: true,
            elastic: None,
            now: Instant::ZERO,
            grain: Duration::ZERO,
            events,
            queue: 0.0,
            queue_at: Instant::ZERO,
            queues: Vec::new(),
            used: (0.0, Instant::ZERO),
            is_bad: false,
            codel: Codel::default(),
            seed: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// 0 to 1.
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn run(&mut self, until_s: f64) {
        let until = Instant::ZERO + Duration::from_secs_f64(until_s);
        for flow in 0..self.flows.len() {
            if self.flows[flow].begins <= self.now {
                self.wake(flow);
            }
        }
        while let Some(&Reverse((at, flow, event))) = self.events.peek() {
            if at > until {
                break;
            }
            self.events.pop();
            self.watch(at);
            self.now = at;
            match event {
                Event::Wake => {
                    if self.flows[flow].woken.is_none_or(|w| w <= at) {
                        self.wake(flow);
                    }
                }
                Event::Arrives { number } => self.arrives(flow, number),
                Event::Due { until } => {
                    if self.flows[flow].reported < until {
                        self.report(flow);
                    }
                }
                Event::AckSample { largest, bytes, arrived, held } => {
                    self.flows[flow].conditions.gives_way = !self.heeds;
                    self.flows[flow].told(at, largest, bytes, arrived, held);
                    self.empty_together(flow);
                    self.wake(flow);
                }
                Event::Acked => self.elastic_acked(),
            }
        }
        self.watch(until);
        self.now = until;
    }

    /// What one path of a peer does to find out whose the queue is, the others do with it.
    fn empty_together(&mut self, index: usize) {
        if self.together {
            let rates: Vec<_> =
                self.flows.iter().map(|flow| flow.controller.rate().unwrap_or(0.0)).collect();
            let all: f64 = rates.iter().sum();
            for (flow, rate) in self.flows.iter_mut().zip(rates) {
                flow.controller.set_company(all - rate);
            }
        }
        let trial = self.flows[index].trial.take();
        let Some(pace) = trial.filter(|_| self.together) else { return };
        for (other, flow) in self.flows.iter_mut().enumerate() {
            if other != index {
                flow.controller.join_trial(self.now, pace);
            }
        }
    }

    /// From now on somebody else sends as Reno does.
    pub(super) fn begin_elastic(&mut self) {
        let (window, tenths, halves_at) = (10.0 * SIZE, Vec::new(), self.now);
        let (in_flight, has_ended) = (0.0, false);
        self.elastic = Some(Elastic { window, in_flight, halves_at, has_ended, tenths });
        self.elastic_sends();
    }

    /// It sends nothing more.
    pub(super) const fn end_elastic(&mut self) {
        if let Some(elastic) = &mut self.elastic {
            elastic.window = 0.0;
            elastic.has_ended = true;
        }
    }

    fn elastic_acked(&mut self) {
        let Some(elastic) = &mut self.elastic else { return };
        elastic.in_flight -= SIZE;
        if !elastic.has_ended {
            elastic.window += SIZE * SIZE / elastic.window;
        }
        let tenth = (self.now.as_nanos() / 100_000_000) as usize;
        if elastic.tenths.len() <= tenth {
            elastic.tenths.resize(tenth + 1, 0);
        }
        elastic.tenths[tenth] += BYTES;
        self.elastic_sends();
    }

    fn elastic_sends(&mut self) {
        self.pass(self.now);
        // Hosts take their time, or only who is never answered just when there is room finds none
        // (S. Floyd and V. Jacobson, "On traffic phase effects", 1992).
        let jitter = Duration::from_secs_f64(self.random() * HOST * SIZE / self.link.rate);
        let Some(elastic) = &mut self.elastic else { return };
        while elastic.in_flight + SIZE <= elastic.window {
            if self.queue + SIZE > self.link.buffer {
                if self.now >= elastic.halves_at {
                    elastic.window = (elastic.window / 2.0).max(2.0 * SIZE);
                    let queue = Duration::from_secs_f64(self.queue / self.link.rate);
                    elastic.halves_at = self.now + self.link.trip + queue;
                }
                break;
            }
            elastic.in_flight += SIZE;
            self.queue += SIZE;
            let leaves = Duration::from_secs_f64(self.queue / self.link.rate);
            let at = self.now + leaves + self.link.trip + jitter;
            self.events.push(Reverse((at, usize::MAX, Event::Acked)));
        }
    }

    /// Bytes per second of the elastic sender's that arrived between two moments, in seconds.
    pub(super) fn elastic_arrived(&self, from: f64, to: f64) -> f64 {
        let Some(elastic) = &self.elastic else { return 0.0 };
        let range = (from * 10.0).round() as usize..(to * 10.0).round() as usize;
        let bytes: u64 = range.filter_map(|tenth| elastic.tenths.get(tenth)).sum();
        bytes as f64 / (to - from)
    }

    fn watch(&mut self, at: Instant) {
        while self.queues.len() as u64 * 10_000_000 < at.as_nanos() {
            let when = Instant::from_nanos(self.queues.len() as u64 * 10_000_000);
            self.pass(when);
            self.queues.push(self.queue / self.link.rate * 1e3);
        }
    }

    /// The queue empties up to `at`.
    fn pass(&mut self, at: Instant) {
        let time = at.saturating_since(self.queue_at).as_secs_f64();
        self.queue = (self.queue - (self.link.rate - self.link.others) * time).max(0.0);
        self.queue_at = self.queue_at.max(at);
    }

    /// A sender sends what it may.
    fn wake(&mut self, index: usize) {
        let now = self.now;
        loop {
            let flow = &mut self.flows[index];
            if flow.load.is_finite() {
                let time = now.saturating_since(flow.backlog_at).as_secs_f64();
                flow.backlog = (flow.backlog + time * flow.load).min(1e6);
            } else {
                flow.backlog = SIZE;
            }
            flow.backlog_at = now;
            let in_flight = flow.in_flight();
            if !flow.controller.allows(in_flight) {
                return;
            }
            if flow.backlog < SIZE {
                flow.controller.limited(in_flight);
                flow.limited_until = flow.delivered + in_flight + 1;
                if flow.load > 0.0 {
                    let wait = (SIZE - flow.backlog) / flow.load + 1e-6;
                    self.wake_at(index, now + Duration::from_secs_f64(wait));
                }
                return;
            }
            let next_at = flow.controller.next_at();
            if next_at > now {
                self.wake_at(index, next_at);
                return;
            }
            flow.backlog -= SIZE;
            if flow.flying.is_empty() {
                flow.base = (now, None);
            }
            flow.controller.sent(now, 1_400);
            flow.flying.push_back(Sent {
                at: now,
                prior_delivered: flow.delivered,
                from_sent: flow.base.0,
                from_arrived: flow.base.1,
                limited: flow.delivered < flow.limited_until,
            });
            flow.datagrams += 1;
            let number = flow.datagrams - 1;
            self.enqueue(index, number);
        }
    }

    fn wake_at(&mut self, index: usize, at: Instant) {
        let grain = self.grain.as_nanos() as u64;
        let at = if grain == 0 {
            at
        } else {
            Instant::from_nanos(at.as_nanos().div_ceil(grain) * grain)
        };
        let flow = &mut self.flows[index];
        if flow.woken.is_none_or(|w| w <= self.now || w > at) {
            flow.woken = Some(at);
            self.events.push(Reverse((at, index, Event::Wake)));
        }
    }

    /// Whether the policer lets another datagram by.
    fn is_let_by(&mut self) -> bool {
        let Some((rate, burst)) = self.link.policer else { return true };
        let passed = self.now.saturating_since(self.used.1).as_secs_f64();
        self.used = ((self.used.0 - passed * rate).max(0.0), self.now);
        let passes = self.used.0 + SIZE <= burst;
        self.used.0 += if passes { SIZE } else { 0.0 };
        passes
    }

    /// Whether the link loses this one.
    fn is_lost(&mut self) -> bool {
        let (draw, bursts) = (self.random(), self.link.bursts);
        if bursts <= 1.0 {
            return draw < self.link.loss;
        }
        let good = 1.0 - self.link.loss;
        let begins = self.link.loss / good / bursts;
        self.is_bad = if self.is_bad { draw >= 1.0 / bursts } else { draw < begins };
        self.is_bad
    }

    fn enqueue(&mut self, index: usize, number: u64) {
        self.pass(self.now);
        let wait = self.queue / (self.link.rate - self.link.others);
        let is_full = self.queue + SIZE > self.link.buffer.max(2.0 * SIZE);
        let is_dropped = self.link.codel && self.codel.drops(self.now, wait);
        if is_full || is_dropped || !self.is_let_by() {
            self.flows[index].dropped += 1;
            return;
        }
        self.queue += SIZE;
        // What others send goes through the same queue.
        let rate = self.link.rate - self.link.others;
        let wait = if self.link.polices { 0.0 } else { self.queue / rate };
        let leaves = self.now + Duration::from_secs_f64(wait);
        if self.is_lost() {
            return;
        }
        let jitter = self.link.jitter.mul_f64(self.random());
        let at = (leaves + self.link.trip / 2 + jitter).max(self.flows[index].arrives_at);
        self.flows[index].arrives_at = at;
        self.events.push(Reverse((at, index, Event::Arrives { number })));
    }

    fn arrives(&mut self, index: usize, number: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        flow.received += BYTES;
        flow.largest = number;
        flow.arrived_at = now;
        let tenth = (now.as_nanos() / 100_000_000) as usize;
        if flow.tenths.len() <= tenth {
            flow.tenths.resize(tenth + 1, 0);
        }
        flow.tenths[tenth] += BYTES;
        if flow.received - flow.reported >= TOLD_BYTES {
            self.report(index);
        } else if flow.received - flow.reported == BYTES {
            let steady = flow
                .reported_at
                .is_some_and(|at| now.saturating_since(at) < Duration::from_millis(200));
            let due = now + Duration::from_millis(if steady { 100 } else { 10 });
            self.events.push(Reverse((due, index, Event::Due { until: flow.received })));
        }
    }

    fn report(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.reported = flow.received;
        flow.reported_at = Some(self.now);
        let told = Event::AckSample {
            largest: flow.largest,
            bytes: flow.received,
            arrived: flow.arrived_at,
            held: self.now.saturating_since(flow.arrived_at),
        };
        self.events.push(Reverse((self.now + self.link.trip / 2, index, told)));
    }

    /// Bytes per second that arrived between two moments, in seconds.
    pub(super) fn arrived(&self, flow: usize, from: f64, to: f64) -> f64 {
        let tenths = &self.flows[flow].tenths;
        let range = (from * 10.0).round() as usize..(to * 10.0).round() as usize;
        let bytes: u64 = range.filter_map(|tenth| tenths.get(tenth)).sum();
        bytes as f64 / (to - from)
    }

    /// The queue in milliseconds below which it was for `part` of the time between two moments.
    pub(super) fn queue(&self, from: f64, to: f64, part: f64) -> f64 {
        let mut queues = self.queues[(from * 100.0) as usize..(to * 100.0) as usize].to_vec();
        queues.sort_by(f64::total_cmp);
        queues[((queues.len() - 1) as f64 * part) as usize]
    }

    /// Seconds until `rate` arrived for a while.
    pub(super) fn reaches(&self, flow: usize, from: f64, rate: f64) -> f64 {
        let long = (self.link.trip.as_secs_f64() * 10.0).ceil().max(2.0) / 10.0;
        let mut at = from;
        while self.arrived(flow, at, at + long) < rate {
            at += 0.1;
            if at > from + 100.0 {
                return f64::INFINITY;
            }
        }
        at + long - from
    }
}
