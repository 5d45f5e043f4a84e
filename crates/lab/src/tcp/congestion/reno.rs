//! Reno (RFC 5681; `tcp_cong.c`: `tcp_reno_ssthresh`, `tcp_reno_cong_avoid`).

use super::{THRESHOLD_MIN, Window};

/// Half the window.
pub(super) fn threshold_after_loss(window: &Window) -> u32 {
    (window.segments / 2).max(THRESHOLD_MIN)
}

/// Slow start, then one segment each round trip.
pub(super) fn grow(window: &mut Window, acked: u32) {
    let mut acked = acked;
    if window.in_slow_start() {
        acked = window.slow_start(acked);
        if acked == 0 {
            return;
        }
    }
    window.additive(window.segments, acked);
}
