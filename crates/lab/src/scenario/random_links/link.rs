//! A link that a seed draws.
//!
//! Decides the ranges. Rates and round trips are log-uniform, because a link of 4 Mbit/s is as
//! different from one of 2 Mbit/s as 400 is from 200.

use crate::emu::{Changes, LinkConfig, Loss, MS, PipeConfig, Rate, Rng};
use crate::ground::Receiver;
use std::sync::Arc;

/// The rate of a link, in Mbit/s.
pub(super) const MBPS: (f64, f64) = (2.0, 500.0);
/// The round trip of a link, in milliseconds.
const ROUND_TRIP_MS: (f64, f64) = (5.0, 600.0);
/// The packet loss of a link that loses any, as a share.
pub(super) const LOSS: (f64, f64) = (0.000_5, 0.03);
/// The mean length of a burst of losses, in packets.
const BURST: (f64, f64) = (2.0, 6.0);
/// The queue of a link, in milliseconds at its own rate,
pub(super) const QUEUE_MS: (f64, f64) = (15.0, 400.0);
/// and at least in bytes: ten full packets, as in a slow router.
pub(super) const QUEUE_BYTES_MIN: u64 = 15_000;
/// One link in so many changes its rate during the run,
const CHANGING_IN: u64 = 4;
/// and one in so many is recorded.
const RECORDED_IN: u64 = 6;
/// The rates that a link changes to, as a part of the drawn one,
const PART: (f64, f64) = (0.25, 1.0);
/// and the time of each rate, in milliseconds.
const STAYS_MS: (f64, f64) = (500.0, 5_000.0);
/// The recorded networks with their mean rate down, in Mbit/s.
const RECORDINGS: [(&str, f64); 2] = [("verizon-lte", 5.3), ("tmobile-lte", 16.0)];

/// A drawn link, alike in both directions.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Its rate, in Mbit/s: the greatest, or the approximate mean of a recording.
    pub(super) mbps: f64,
    pub(super) round_trip_ms: u64,
    pub(super) loss: Loss,
    pub(super) queue_ms: u64,
    pub(super) kind: Kind,
}

/// How the rate of a link behaves.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Steady,
    Changing(Arc<Changes>),
    Recorded(&'static str),
}

impl Link {
    pub(super) fn draw(rng: &mut Rng, most_mbps: f64, length_ns: u64) -> Self {
        let mbps = log_uniform(rng, (MBPS.0, most_mbps));
        let round_trip_ms = log_uniform(rng, ROUND_TRIP_MS).round() as u64;
        let queue_ms = log_uniform(rng, QUEUE_MS).round() as u64;
        let (share, burst) = (log_uniform(rng, LOSS), log_uniform(rng, BURST));
        let loss = match rng.below(3) {
            0 => Loss::None,
            1 => Loss::Bernoulli(share),
            _ => Loss::bursts(share, burst),
        };
        let recording = RECORDINGS[usize::from(rng.below(2) == 1)];
        let is_recorded = rng.below(RECORDED_IN) == 0 && recording.1 <= most_mbps;
        let is_changing = rng.below(CHANGING_IN) == 0;
        let link = Self { mbps, round_trip_ms, loss, queue_ms, kind: Kind::Steady };
        match (is_recorded, is_changing) {
            (true, _) => Self { mbps: recording.1, kind: Kind::Recorded(recording.0), ..link },
            (false, true) => {
                let changes = changes(rng, mbps, length_ns);
                Self { kind: Kind::Changing(Arc::new(changes)), ..link }
            }
            (false, false) => link,
        }
    }

    pub(super) const fn recording(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Recorded(name) => Some(name),
            Kind::Steady | Kind::Changing(_) => None,
        }
    }

    pub(super) fn name(&self) -> String {
        let Self { mbps, round_trip_ms, queue_ms, .. } = self;
        let percent = self.loss.mean() * 100.0;
        let loss = match self.loss {
            Loss::None => String::new(),
            Loss::Bernoulli(_) => format!(", {percent:.2} % lost"),
            Loss::GilbertElliott { bad_to_good, .. } => {
                format!(", {percent:.2} % lost in bursts of {:.1}", 1.0 / bad_to_good)
            }
        };
        let queue = format!(", queue of {queue_ms} ms");
        let (rate, queue) = match self.kind {
            Kind::Steady => (format!("{mbps:.1} Mbit/s"), queue),
            Kind::Changing(_) => (format!("at most {mbps:.1} Mbit/s"), queue),
            Kind::Recorded(name) => (name.to_owned(), String::new()),
        };
        format!("{rate}, {round_trip_ms} ms{loss}{queue}")
    }

    /// More than its greatest rate, in Mbit/s.
    pub(super) const fn most_mbps(&self) -> f64 {
        match self.kind {
            // A recorded network may exceed its mean for a while.
            Kind::Recorded(_) => 4.0 * self.mbps,
            Kind::Steady | Kind::Changing(_) => self.mbps,
        }
    }

    /// The emulator's form of it.
    pub(super) fn config(&self) -> LinkConfig {
        let trip_ns = self.round_trip_ms * MS;
        let recorded = self.recording().and_then(|name| LinkConfig::recorded_as(name, trip_ns));
        let clean = PipeConfig::clean(bits(self.mbps), trip_ns / 2).with_queue_ms(self.queue_ms);
        let rate = match &self.kind {
            Kind::Changing(changes) => Rate::Changing(Arc::clone(changes)),
            Kind::Steady | Kind::Recorded(_) => clean.rate.clone(),
        };
        let queue_bytes = clean.queue_bytes.max(QUEUE_BYTES_MIN);
        let pipe = PipeConfig { rate, queue_bytes, ..clean };
        let link = match recorded {
            Some(Ok(link)) => link,
            Some(Err(_)) | None => LinkConfig { up: pipe.clone(), down: pipe },
        };
        link.loss(self.loss)
    }

    /// Its capacity to a receiver between two moments, in Mbit/s.
    pub(super) fn carries_mbps(&self, to: Receiver, (from_ns, to_ns): (u64, u64)) -> f64 {
        let LinkConfig { up, down } = self.config();
        let pipe = if to == Receiver::Client { down } else { up };
        let rate = match &pipe.rate {
            Rate::Trace(trace) => {
                let bits = trace.capacity_bytes(from_ns, to_ns) as f64 * 8.0;
                bits * 1e3 / to_ns.saturating_sub(from_ns).max(1) as f64
            }
            Rate::Changing(changes) => changes.mean_between(from_ns, to_ns) as f64 / 1e6,
            Rate::Unlimited | Rate::BitsPerSecond(_) => self.mbps,
        };
        rate * (1.0 - self.loss.mean())
    }
}

/// Rates up to `mbps`, one after the other, for this time in nanoseconds.
fn changes(rng: &mut Rng, mbps: f64, length_ns: u64) -> Changes {
    let (mut at_ns, mut later) = (0, Vec::new());
    while at_ns < length_ns {
        at_ns += log_uniform(rng, STAYS_MS) as u64 * MS;
        later.push((at_ns, bits(mbps * log_uniform(rng, PART))));
    }
    Changes::new(bits(mbps), later)
}

/// Bits per second.
pub(super) const fn bits(mbps: f64) -> u64 {
    (mbps * 1e6) as u64
}

/// A log-uniform number between two others.
pub(super) fn log_uniform(rng: &mut Rng, (least, most): (f64, f64)) -> f64 {
    (least * (most / least).powf(rng.unit())).clamp(least, most.max(least))
}
