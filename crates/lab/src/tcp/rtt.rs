//! How long an answer takes, and how long to wait for one (RFC 6298 as Linux computes it:
//! `tcp_input.c`, `tcp_rtt_estimator` and `tcp_set_rto`).
//!
//! Linux differs from the letter of the RFC in two ways that show in every trace: the floor of
//! 200 ms is under the *variance*, so the timeout is the smoothed round trip plus at least 200 ms;
//! and a shorter round trip raises the variance by an eighth of what a longer one would.

use crate::emu::{MS, SECOND};

/// The floor of the variance (`TCP_RTO_MIN`).
pub(super) const RTO_MIN_NS: u64 = 200 * MS;
/// The longest timeout where none is set (`TCP_RTO_MAX`).
pub(super) const RTO_MAX_NS: u64 = 120 * SECOND;
/// The timeout before anything was measured (`TCP_TIMEOUT_INIT`).
pub(super) const RTO_FIRST_NS: u64 = SECOND;
/// How long the shortest round trip is believed (`tcp_min_rtt_wlen`).
const MIN_RTT_AGE_NS: u64 = 300 * SECOND;

/// What round trips so far say about the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    smoothed: Option<Smoothed>,
    /// The shortest round trip, and when it was seen.
    shortest: Option<(u64, u64)>,
    rto_ns: u64,
    rto_max_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    /// Eight times the smoothed round trip, in nanoseconds.
    eightfold_ns: u64,
    /// Four times the mean deviation.
    deviation_ns: u64,
    /// The largest deviation of this round trip, and what the timeout uses.
    deviation_max_ns: u64,
    variance_ns: u64,
    /// When this position is acknowledged, a round trip is over.
    round_end: u64,
}

impl Rtt {
    /// No round trip is known yet. No timeout is longer than `rto_max_ns`.
    pub(super) const fn new(rto_max_ns: u64) -> Self {
        Self { smoothed: None, shortest: None, rto_ns: RTO_FIRST_NS, rto_max_ns }
    }

    /// The smoothed round trip; `None` before the first sample.
    pub(super) const fn smoothed_ns(&self) -> Option<u64> {
        match self.smoothed {
            Some(smoothed) => Some(smoothed.eightfold_ns / 8),
            None => None,
        }
    }

    /// The shortest round trip of the last minutes; `u64::MAX` before the first sample.
    pub(super) fn shortest_ns(&self) -> u64 {
        self.shortest.map_or(u64::MAX, |(rtt, _)| rtt)
    }

    /// The retransmission timeout, back-off included.
    pub(super) const fn rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// A round trip took `rtt_ns`; `una` and `next` are the sender's positions. Ends the back-off
    /// (RFC 6298, 5.7).
    pub(super) fn sample(&mut self, rtt_ns: u64, una: u64, next: u64) {
        let smoothed = match self.smoothed {
            None => Smoothed::first(rtt_ns, next),
            Some(smoothed) => smoothed.after(rtt_ns, una, next),
        };
        self.smoothed = Some(smoothed);
        self.rto_ns = (smoothed.eightfold_ns / 8 + smoothed.variance_ns).min(self.rto_max_ns);
    }

    /// The same sample for the filter of the shortest round trip.
    pub(super) fn sample_shortest(&mut self, now_ns: u64, rtt_ns: u64) {
        let old = self.shortest.is_none_or(|(shortest, at_ns)| {
            rtt_ns <= shortest || now_ns.saturating_sub(at_ns) > MIN_RTT_AGE_NS
        });
        if old {
            self.shortest = Some((rtt_ns.max(1), now_ns));
        }
    }

    /// It was waited for in vain (RFC 6298, 5.5).
    pub(super) fn back_off(&mut self) {
        self.rto_ns = (self.rto_ns * 2).min(self.rto_max_ns);
    }

    /// How long a persist timer waits after so many probes (`tcp_probe0_when`).
    pub(super) fn persist_ns(&self, probes: u32) -> u64 {
        let base = self.rto_ns.max(RTO_MIN_NS);
        base.checked_shl(probes.min(32)).unwrap_or(self.rto_max_ns).min(self.rto_max_ns)
    }
}

impl Smoothed {
    fn first(rtt_ns: u64, next: u64) -> Self {
        let variance_ns = (rtt_ns * 2).max(RTO_MIN_NS);
        Self {
            eightfold_ns: rtt_ns * 8,
            deviation_ns: rtt_ns * 2,
            deviation_max_ns: variance_ns,
            variance_ns,
            round_end: next,
        }
    }

    fn after(mut self, rtt_ns: u64, una: u64, next: u64) -> Self {
        let mean = self.eightfold_ns / 8;
        let error = rtt_ns.abs_diff(mean).cast_signed();
        let shorter = rtt_ns < mean;
        self.eightfold_ns = self.eightfold_ns - mean + rtt_ns;
        let mut change = error - (self.deviation_ns / 4).cast_signed();
        if shorter && change > 0 {
            // A path that got faster is no reason to wait longer.
            change /= 8;
        }
        self.deviation_ns = self.deviation_ns.saturating_add_signed(change);
        self.deviation_max_ns = self.deviation_max_ns.max(self.deviation_ns);
        self.variance_ns = self.variance_ns.max(self.deviation_max_ns);
        if una > self.round_end {
            self.variance_ns -= (self.variance_ns - self.deviation_max_ns) / 4;
            self.round_end = next;
            self.deviation_max_ns = RTO_MIN_NS;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_gives_itself_and_200_ms() {
        let mut rtt = Rtt::new(RTO_MAX_NS);
        for round in 0..50 {
            rtt.sample(40 * MS, round * 10 + 1, round * 10 + 5);
        }
        assert_eq!(rtt.smoothed_ns(), Some(40 * MS));
        assert!((240 * MS..242 * MS).contains(&rtt.rto_ns()), "{}", rtt.rto_ns());
    }

    #[test]
    fn back_off_doubles_up_to_two_minutes_and_a_sample_ends_it() {
        let mut rtt = Rtt::new(RTO_MAX_NS);
        rtt.sample(40 * MS, 0, 0);
        let first = rtt.rto_ns();
        rtt.back_off();
        assert_eq!(rtt.rto_ns(), 2 * first);
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto_ns(), RTO_MAX_NS);
        rtt.sample(40 * MS, 1, 2);
        assert!(rtt.rto_ns() < first + MS);
    }
}
