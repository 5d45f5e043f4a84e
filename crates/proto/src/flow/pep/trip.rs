//! The round trip of a connection through the tunnel, and how fast bytes arrive at its other side:
//! measured by what goes out and what is acknowledged. Knows no state and no window; what is
//! plausible, `tcp` has decided before.

use crate::time::{Duration, Instant};
use crate::wire::tcp::{Segment, Seq};

/// A round trip is taken to be this where none was measured.
const RTT_USUAL: Duration = Duration::from_millis(100);
/// The shortest round trip is that of this long a time, or of twice as long.
const LEAST_FRESH: Duration = Duration::from_secs(10);

/// The round trip from this node to the remote side and back, and how much arrives in one.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::flow) struct Trip {
    smoothed: Option<Duration>,
    /// The shortest lately, and when that was.
    least: Option<(Duration, Instant)>,
    /// What is being timed: the number that will be acknowledged, and when it left.
    timed: Option<(Seq, Instant)>,
    /// The present round: when it began, and what had been acknowledged.
    round: Option<(Instant, Seq)>,
    /// Bytes per second in the last rounds, the newest first.
    rates: [u64; 3],
}

impl Trip {
    /// The smoothed round trip (RFC 6298, section 2).
    pub(crate) fn time(&self) -> Duration {
        self.smoothed.unwrap_or(RTT_USUAL)
    }

    /// Bytes per second that arrived lately, at best; `None` when nothing was measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rates.into_iter().max().filter(|&rate| rate > 0)
    }

    /// The shortest round trip of the last while; `None` when none was measured.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    pub(crate) fn left(&mut self, now: Instant, segment: &Segment) {
        self.timed.get_or_insert_with(|| (segment.end(), now));
        if segment.len > 0 {
            self.round.get_or_insert((now, segment.seq));
        }
    }

    /// Something was sent again: an answer may be to either (Karn's rule, RFC 6298, section 3).
    pub(crate) const fn repeated(&mut self) {
        self.timed = None;
    }

    pub(crate) fn acknowledged(&mut self, now: Instant, acked: Seq) {
        if let Some((end, at)) = self.timed
            && !acked.is_before(end)
        {
            let sample = now.saturating_since(at);
            let smoothed = self.smoothed.map_or(sample, |old| (old * 7 + sample) / 8);
            self.smoothed = Some(smoothed);
            let is_less = |(least, at)| sample <= least || now.saturating_since(at) > LEAST_FRESH;
            if self.least.is_none_or(is_less) {
                self.least = Some((sample, now));
            }
            self.timed = None;
        }
        if let Some((began, from)) = self.round
            && now.saturating_since(began) >= self.time()
        {
            let nanos = now.saturating_since(began).as_nanos().max(1);
            let rate = u128::from(acked.beyond(from)) * 1_000_000_000 / nanos;
            let [newest, before, _] = self.rates;
            self.rates = [u64::try_from(rate).unwrap_or(u64::MAX), newest, before];
            self.round = Some((now, acked));
        }
    }

    /// The way is another now: what was timed by the old one means nothing.
    pub(crate) const fn interrupted(&mut self) {
        self.timed = None;
        self.round = None;
        self.least = None;
    }
}
