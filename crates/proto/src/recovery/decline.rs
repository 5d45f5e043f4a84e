//! Whether one direction of a path has begun to lose much: a link at the edge of its reach does,
//! for seconds, before it is cut. A queue that overflows loses for a round trip or two, and is
//! not meant.

use crate::time::{Duration, Instant};

/// The time over which loss is counted.
const PERIOD: Duration = Duration::from_secs(1);
/// A period has at least so many datagrams: it is longer where fewer are sent.
const PERIOD_DATAGRAMS: u64 = 20;
/// A period is bad if it lost one datagram of so many.
const BAD_PART: u64 = 10;
/// And at least so many: a whole search for the path's MTU loses eighteen, in one period or two.
const BAD_DATAGRAMS: u64 = 12;
/// Bad periods in a row that make a decline.
const BAD_PERIODS: u8 = 2;

/// The loss of one direction, period by period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decline {
    since: Option<Instant>,
    sent: u64,
    received: u64,
    bad: u8,
}

impl Decline {
    /// Of `sent` datagrams, `received` arrived.
    pub(crate) fn sample(&mut self, now: Instant, sent: u64, received: u64) {
        let since = *self.since.get_or_insert(now);
        self.sent += sent;
        self.received += received;
        if now.saturating_since(since) < PERIOD || self.sent < PERIOD_DATAGRAMS {
            return;
        }
        let lost = self.sent.saturating_sub(self.received);
        let bad = lost * BAD_PART >= self.sent && lost >= BAD_DATAGRAMS;
        self.bad = if bad { self.bad.saturating_add(1) } else { 0 };
        (self.since, self.sent, self.received) = (Some(now), 0, 0);
    }

    /// Whether it declines: said once, then counted anew.
    pub(crate) const fn takes_decline(&mut self) -> bool {
        let declines = self.bad >= BAD_PERIODS;
        if declines {
            self.bad = 0;
        }
        declines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a decline was told in `seconds`, of which each loses `lost` of a hundred.
    fn declines(seconds: &[u64]) -> bool {
        let mut decline = Decline::default();
        let mut told = false;
        for (second, lost) in seconds.iter().enumerate() {
            for tenth in 0..10 {
                let at = Duration::from_millis(second as u64 * 1_000 + tenth * 100);
                decline.sample(Instant::ZERO + at, 100, 100 - lost);
                told |= decline.takes_decline();
            }
        }
        told
    }

    #[test]
    fn two_bad_seconds_are_a_decline_and_one_is_a_queue() {
        assert!(declines(&[0, 30, 30, 30, 0]));
        assert!(!declines(&[0, 50, 0, 0, 50, 0]));
        assert!(!declines(&[5; 60]));
    }

    #[test]
    fn a_search_for_the_mtu_is_no_decline() {
        let mut decline = Decline::default();
        for tenth in 0..40 {
            let probes = u64::from((10..28).contains(&tenth));
            decline.sample(Instant::ZERO + Duration::from_millis(tenth * 100), 5 + probes, 5);
        }
        assert!(!decline.takes_decline());
    }

    #[test]
    fn few_datagrams_are_no_evidence() {
        let mut decline = Decline::default();
        for second in 0..8 {
            decline.sample(Instant::ZERO + Duration::from_secs(second), 2, 0);
        }
        assert!(!decline.takes_decline());
    }
}
