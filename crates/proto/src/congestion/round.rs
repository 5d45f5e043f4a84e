//! What was seen in about one round trip.

use crate::recovery::AckSample;
use crate::recovery::RateSample;
use crate::time::{Duration, Instant};

/// A round is no shorter: hosts and radios send in bursts of milliseconds.
pub(super) const ROUND_MIN: Duration = Duration::from_millis(20);
/// And no shorter than so many feedbacks: one says little.
const ROUND_TOLD: u32 = 3;
/// A length is not taken for longer, seconds: nothing was sent in between.
const LENGTH_MAX: f64 = 5.0;

/// From one feedback to the first about a datagram that left after it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Round {
    began: Instant,
    /// It ends with a datagram that left when so much had been delivered.
    ends: u64,
    /// Length of the last one, seconds.
    pub(super) length: f64,
    /// Bytes.
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// Feedbacks, and those that told of a loss.
    pub(super) feedbacks: (u32, u32),
    /// Samples of the rate: all, and number and sums of those that were not limited, of what
    /// arrived and of what left, bytes per second.
    told: u32,
    rates: (u32, f64, f64),
    /// The greatest of all, bytes per second.
    pub(super) rate_most: f64,
    /// The slowest pace in this one and in the last, bytes per second.
    paces: (f64, f64),
    /// The least round trip in this one and in the last.
    trips: (Option<Duration>, Option<Duration>),
    /// Whether there was nothing to send at some time.
    pub(super) is_limited: bool,
    /// Whether the window was full at some time.
    pub(super) is_full: bool,
}

impl Round {
    /// The first one.
    pub(super) fn new(now: Instant, pace: f64) -> Self {
        Self { began: now, paces: (pace, pace), ..Self::default() }
    }

    /// The one after this, with `delivered` bytes so far and sent at `pace`.
    pub(super) fn next(&self, now: Instant, delivered: u64, pace: f64) -> Self {
        Self {
            began: now,
            ends: delivered,
            length: now.saturating_since(self.began).as_secs_f64().min(LENGTH_MAX),
            paces: (pace, self.paces.0),
            trips: (None, self.trips.0),
            ..Self::default()
        }
    }

    /// Takes what a feedback tells.
    pub(super) fn add(&mut self, told: &AckSample) {
        self.delivered = self.delivered.saturating_add(told.delivered);
        self.lost = self.lost.saturating_add(told.lost);
        self.feedbacks.0 += 1;
        self.feedbacks.1 += u32::from(told.lost > 0);
        if let Some(trip) = told.trip {
            self.trips.0 = Some(self.trips.0.map_or(trip, |least| least.min(trip)));
        }
    }

    /// Takes a sample of the rate: what arrived and what left, bytes per second. Returns whether
    /// the round is over.
    pub(super) fn sample(&mut self, now: Instant, sample: &RateSample, rate: (f64, f64)) -> bool {
        self.told += 1;
        self.rate_most = self.rate_most.max(rate.0);
        if !sample.is_limited {
            let (number, arrived, left) = self.rates;
            self.rates = (number + 1, arrived + rate.0, left + rate.1);
        }
        sample.prior_delivered >= self.ends
            && self.told >= ROUND_TOLD
            && now.saturating_since(self.began) >= ROUND_MIN
    }

    /// How long it lasts already, seconds.
    pub(super) fn age(&self, now: Instant) -> f64 {
        now.saturating_since(self.began).as_secs_f64()
    }

    /// Bytes per second that arrived in all of it, however little was sent.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    pub(super) fn delivered_per_second(&self, now: Instant) -> f64 {
        self.delivered as f64 / self.age(now).max(ROUND_MIN.as_secs_f64())
    }

    /// It is sent at `pace` bytes per second from now on.
    pub(super) const fn paced(&mut self, pace: f64) {
        self.paces.0 = self.paces.0.min(pace);
    }

    /// Bytes per second that arrived; `None` where that says nothing of the path.
    pub(super) fn arrived(&self) -> Option<f64> {
        let (number, arrived, _) = self.rates;
        (number > 0 && !self.is_limited).then(|| arrived / f64::from(number))
    }

    /// The part of what left that arrived in the same time, 1 where that says nothing.
    pub(super) fn kept(&self) -> f64 {
        let (number, arrived, left) = self.rates;
        if number > 0 && !self.is_limited { arrived / left } else { 1.0 }
    }

    /// Lost part of what left, 0 to 0.99: where all is lost, no rate is known.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    pub(super) fn loss(&self) -> f64 {
        (self.lost as f64 / self.lost.saturating_add(self.delivered).max(1) as f64).min(0.99)
    }

    /// The slowest pace by which what arrived in it may have left, bytes per second.
    pub(super) const fn pace_least(&self) -> f64 {
        self.paces.0.min(self.paces.1)
    }

    /// The least round trip of late.
    pub(super) fn trip(&self) -> Option<Duration> {
        self.trips.0.or(self.trips.1)
    }
}
