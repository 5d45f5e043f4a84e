//! How many segments are acknowledged in bunches beyond what the rate explains
//! (`tcp_bbr.c`: `bbr_update_ack_aggregation`): as many more may be on their way, so that a sender
//! does not fall silent between two bunches.

use crate::emu::{MS, SECOND};

/// Round trips for which each of the two maxima stands.
const ROUNDS: u32 = 5;
/// The most that is allowed for, as time at the rate.
const MOST_NS: u64 = 100 * MS;
/// Segments after which counting begins anew.
const COUNT_MAX: u64 = 1 << 20;

/// What was seen of bunches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bunches {
    /// The largest of this and of the last few rounds.
    extra: [u64; 2],
    now: usize,
    rounds: u32,
    /// Segments acknowledged since then.
    counted: u64,
    since_ns: u64,
}

impl Bunches {
    /// So many segments were acknowledged; `rate` in segments a second, times 2^10.
    pub(super) fn acknowledged(
        &mut self,
        acked: u32,
        delivered_ns: u64,
        rate: u64,
        window: u32,
        round_starts: bool,
    ) {
        if round_starts {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.now ^= 1;
                self.extra[self.now] = 0;
            }
        }
        let acked = u64::from(acked);
        let mut expected = at_rate(rate, delivered_ns.saturating_sub(self.since_ns));
        if self.counted <= expected || self.counted + acked >= COUNT_MAX {
            self.counted = 0;
            self.since_ns = delivered_ns;
            expected = 0;
        }
        self.counted += acked;
        let extra = (self.counted - expected).min(u64::from(window));
        self.extra[self.now] = self.extra[self.now].max(extra);
    }

    /// How many more may be on their way.
    pub(super) fn allowance(&self, rate: u64) -> u32 {
        let [one, other] = self.extra;
        one.max(other).min(at_rate(rate, MOST_NS)) as u32
    }
}

/// Segments in so much time.
fn at_rate(rate: u64, time_ns: u64) -> u64 {
    (u128::from(rate) * u128::from(time_ns) / u128::from(SECOND) / 1_024) as u64
}
