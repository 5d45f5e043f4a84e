//! Whether one direction of a path has begun to lose much: a link at the edge of its reach does,
//! for seconds, before it is cut. A queue that overflows loses for a round trip or two, and is
//! not meant.
//!
//! And whether it loses steadily, if less: a radio does, and so does a policer that drops what is
//! beyond its rate. Which of the two it is cannot be told from here.

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
/// A period is lossy if it lost one datagram of so many: below that, TCP inside the tunnel is
/// hardly slower for it.
const LOSSY_PART: u64 = 50;
/// And at least so many.
const LOSSY_DATAGRAMS: u64 = 3;
/// What a lossy period counts, where one without losses takes one away: a sender that finds a
/// policer's rate loses only now and then, when it tries more.
const LOSSY_COUNTS: u8 = 4;
/// Loss is steady when this is reached, by three lossy periods or some more: a search for the
/// path's MTU loses in two, a queue that a new flow fills in one or two.
const LOSSY_ENOUGH: u8 = 11;

/// The loss of one direction, period by period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decline {
    since: Option<Instant>,
    sent: u64,
    received: u64,
    bad: u8,
    lossy: u8,
    /// Since when it is counted, and how many bytes arrived since.
    lossy_since: Instant,
    lossy_bytes: u64,
    bytes: u64,
}

impl Decline {
    /// Of `sent` datagrams, `received` arrived, with so many bytes.
    pub(crate) fn sample(&mut self, now: Instant, sent: u64, received: u64, bytes: u64) {
        let since = *self.since.get_or_insert(now);
        self.sent += sent;
        self.received += received;
        self.bytes += bytes;
        if now.saturating_since(since) < PERIOD || self.sent < PERIOD_DATAGRAMS {
            return;
        }
        let lost = self.sent.saturating_sub(self.received);
        let bad = lost * BAD_PART >= self.sent && lost >= BAD_DATAGRAMS;
        self.bad = if bad { self.bad.saturating_add(1) } else { 0 };
        if self.lossy == 0 {
            (self.lossy_since, self.lossy_bytes) = (since, 0);
        }
        self.lossy_bytes += self.bytes;
        self.lossy = if lost * LOSSY_PART < self.sent || lost < LOSSY_DATAGRAMS {
            self.lossy.saturating_sub(1)
        } else {
            self.lossy.saturating_add(LOSSY_COUNTS)
        };
        (self.since, self.sent, self.received, self.bytes) = (Some(now), 0, 0, 0);
    }

    /// Whether it loses steadily: the bytes per second that arrive nevertheless. Said once, then
    /// counted anew.
    pub(crate) fn takes_steady(&mut self, now: Instant) -> Option<f64> {
        let time = now.saturating_since(self.lossy_since);
        let is_steady = self.lossy >= LOSSY_ENOUGH && time > Duration::ZERO;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a few seconds")]
        let rate = is_steady.then(|| self.lossy_bytes as f64 / time.as_secs_f64())?;
        self.lossy = 0;
        Some(rate)
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
                decline.sample(Instant::ZERO + at, 100, 100 - lost, 0);
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
    fn lossy_seconds_are_steady_and_tell_what_arrives() {
        let mut decline = Decline::default();
        let mut told = Vec::new();
        for (second, lost) in [0, 3, 3, 1, 1, 3, 3, 1, 1, 1, 1, 3].into_iter().enumerate() {
            for tenth in 1..=10 {
                let at = Duration::from_millis(second as u64 * 1_000 + tenth * 100);
                let now = Instant::ZERO + at;
                decline.sample(now, 100, 100 - lost, 1_000);
                told.extend(decline.takes_steady(now).map(|rate| (second, rate.round())));
            }
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(matches!(told[0], (5..=7, 9_000.0..=11_000.0)), "{told:?}");
    }

    #[test]
    fn a_search_for_the_mtu_is_no_decline() {
        let mut decline = Decline::default();
        for tenth in 0..40 {
            let probes = u64::from((10..28).contains(&tenth));
            decline.sample(Instant::ZERO + Duration::from_millis(tenth * 100), 5 + probes, 5, 0);
        }
        assert!(!decline.takes_decline());
    }

    #[test]
    fn few_datagrams_are_no_evidence() {
        let mut decline = Decline::default();
        for second in 0..8 {
            decline.sample(Instant::ZERO + Duration::from_secs(second), 2, 0, 0);
        }
        assert!(!decline.takes_decline());
    }
}
