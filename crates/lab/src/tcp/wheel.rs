//! When a timer of the kernel really fires: at the next tick of a wheel that turns more slowly the
//! longer the wait is (`kernel/time/timer.c`, `calc_index`).
//!
//! A wait of less than a quarter of a second ends within a tick, one of seconds up to an eighth
//! later than asked for: whoever counts on a retransmission timeout of a kernel meets that.

use crate::emu::MS;

/// A tick, at the 250 Hz of most distributions.
pub(super) const TICK_NS: u64 = 4 * MS;
/// The first wait, in ticks, that the next slower part of the wheel takes: 63, 504, 4,032 ...
const FIRST_TICKS: u64 = 63;
/// By how many bits a part is slower than the one before.
const SLOWER_BITS: u32 = 3;
/// Parts of the wheel.
const PARTS: u32 = 8;

/// When a timer fires that is set now to fire after `wait_ns`: not before, and later than now.
pub(super) fn fires_ns(now_ns: u64, wait_ns: u64) -> u64 {
    let now = now_ns / TICK_NS;
    let wait = wait_ns.div_ceil(TICK_NS).max(1);
    let parts = (1..PARTS).take_while(|part| wait >= FIRST_TICKS << ((part - 1) * SLOWER_BITS));
    let bits = parts.count() as u32 * SLOWER_BITS;
    ((((now + wait) >> bits) + 1) << bits) * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::SECOND;
    use proptest::prelude::*;

    #[test]
    fn long_waits_end_on_coarse_ticks() {
        assert_eq!(fires_ns(0, 40 * MS), 44 * MS);
        assert_eq!(fires_ns(0, 300 * MS), 320 * MS);
        assert_eq!(fires_ns(0, 2_100 * MS), 2_304 * MS);
        assert_eq!(fires_ns(0, 120 * SECOND), 120_832 * MS);
    }

    proptest! {
        #[test]
        fn never_early_and_at_most_an_eighth_late(
            now_ns in 0..1u64 << 50,
            wait_ns in 0..200 * SECOND,
        ) {
            let fires_ns = fires_ns(now_ns, wait_ns);
            prop_assert!(fires_ns > now_ns);
            prop_assert!(fires_ns >= now_ns / TICK_NS * TICK_NS + wait_ns);
            prop_assert!(fires_ns <= now_ns + wait_ns + wait_ns / 7 + 2 * TICK_NS);
        }
    }
}
