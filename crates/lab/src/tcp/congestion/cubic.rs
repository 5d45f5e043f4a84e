//! CUBIC (RFC 9438) with the constants and the HyStart of Linux (`tcp_cubic.c`).
//!
//! The window after a loss follows a cubic curve of time whose flat part is where the loss was.
//! HyStart (Ha, Rhee 2011) leaves slow start when acknowledgments have come back to back for half
//! a round trip, or when round trips have become longer by an eighth.

use super::{THRESHOLD_MIN, Told, Window};
use crate::emu::{MS, SECOND};

/// Beta, in 1/1024: what is left of the window after a loss.
const BETA: u64 = 717;
/// The unit of [`BETA`].
const BETA_UNIT: u64 = 1_024;
/// How often the curve is looked up for the same window (`HZ / 32`).
const LOOK_UP_NS: u64 = SECOND / 32;
/// Most segments per segment of growth while no loss is known.
const PER_MAX_FIRST: u32 = 20;
/// HyStart does nothing below this window.
const HYSTART_WINDOW_MIN: u32 = 16;
/// Acknowledgments within this time of each other form a train.
const HYSTART_SPACING_NS: u64 = 2 * MS;
/// Round trips to look at in each round.
const HYSTART_SAMPLES: u32 = 8;
/// Bounds of an eighth of the shortest round trip.
const HYSTART_DELAY_NS: (u64, u64) = (4 * MS, 16 * MS);

/// The state of CUBIC.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcp) struct Cubic {
    /// The window at the last loss.
    window_max: u32,
    /// Since when the curve is followed, and how it lies.
    epoch: Option<Epoch>,
    looked_up: Option<(u32, u64)>,
    /// Segments to acknowledge per segment of growth.
    per: u32,
    shortest_ns: Option<u64>,
    hystart: HyStart,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: u64,
    /// Milliseconds from the start to the flat part.
    flat_ms: u64,
    /// The window at the flat part.
    origin: u32,
    /// What Reno would have, and the acknowledged segments that did not make a whole one yet.
    reno: u32,
    acked: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct HyStart {
    /// Slow start is over.
    found: bool,
    round_end: u64,
    round_start_ns: u64,
    last_ns: u64,
    /// The shortest round trip of this round, and of how many.
    shortest_ns: Option<u64>,
    samples: u32,
}

impl Cubic {
    /// Seven tenths of the window, and a memory of it: less, when it had not got back to the last.
    pub(super) fn threshold_after_loss(&mut self, window: &Window) -> u32 {
        self.epoch = None;
        self.window_max = if window.segments < self.window_max {
            (u64::from(window.segments) * (BETA_UNIT + BETA) / (2 * BETA_UNIT)) as u32
        } else {
            window.segments
        };
        ((u64::from(window.segments) * BETA / BETA_UNIT) as u32).max(THRESHOLD_MIN)
    }

    /// Slow start, then the curve.
    pub(super) fn grow(&mut self, told: &Told<'_>, window: &mut Window, acked: u32) {
        let mut acked = acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        self.look_up(told.now_ns, window.segments, acked);
        window.additive(self.per, acked);
    }

    /// A round trip took this long: the shortest is part of the curve, and HyStart looks at all.
    pub(super) fn measured(&mut self, told: &Told<'_>, window: &mut Window, rtt_ns: u64) {
        let just_repaired =
            self.epoch.is_some_and(|epoch| told.now_ns.saturating_sub(epoch.start_ns) < SECOND);
        if just_repaired {
            return;
        }
        let shortest_ns = self.shortest_ns.map_or(rtt_ns, |shortest| shortest.min(rtt_ns));
        self.shortest_ns = Some(shortest_ns);
        if self.hystart.found || !window.in_slow_start() {
            return;
        }
        self.hystart.follow_round(told);
        if window.segments >= HYSTART_WINDOW_MIN && self.hystart.is_over(told, rtt_ns, shortest_ns)
        {
            self.hystart.found = true;
            window.threshold = window.segments;
        }
    }

    /// Time in which nothing was sent is no time for the curve (`cubictcp_cwnd_event`).
    pub(super) fn starts_again(&mut self, now_ns: u64, idle_since_ns: u64) {
        if let Some(epoch) = &mut self.epoch {
            let idle_ns = now_ns.saturating_sub(idle_since_ns);
            epoch.start_ns = (epoch.start_ns + idle_ns).min(now_ns);
        }
    }

    /// How many segments per segment of growth, by the curve at the next round trip
    /// (`bictcp_update`).
    fn look_up(&mut self, now_ns: u64, window: u32, acked: u32) {
        if let Some(epoch) = &mut self.epoch {
            epoch.acked += u64::from(acked);
        }
        let fresh = |(before, at_ns)| before == window && now_ns - at_ns <= LOOK_UP_NS;
        if self.looked_up.is_some_and(fresh) && self.epoch.is_some() {
            return;
        }
        self.looked_up = Some((window, now_ns));
        let window_max = self.window_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now_ns, window, window_max, acked));
        let ahead_ns = now_ns - epoch.start_ns + self.shortest_ns.unwrap_or(0);
        let target = epoch.window_at(ahead_ns / MS);
        let mut per =
            if target > window { window / (target - window) } else { window.saturating_mul(100) };
        if window_max == 0 {
            per = per.min(PER_MAX_FIRST);
        }
        let reno = epoch.reno_window(window);
        if reno > window {
            per = per.min(window / (reno - window));
        }
        self.per = per.max(2);
    }
}

impl Epoch {
    fn new(now_ns: u64, window: u32, window_max: u32, acked: u32) -> Self {
        let below = u64::from(window_max.saturating_sub(window));
        Self {
            start_ns: now_ns,
            // K of RFC 9438, equation 2, with C = 0.4 a second cubed, in milliseconds.
            flat_ms: cube_root(below * 10 / 4 * 1_000_000_000),
            origin: window_max.max(window),
            reno: window,
            acked: u64::from(acked),
        }
    }

    /// W_cubic of RFC 9438, equation 1.
    fn window_at(&self, ms: u64) -> u32 {
        let away = ms.abs_diff(self.flat_ms).min(1_000_000);
        let by = (u128::from(away).pow(3) * 4 / 10 / 1_000_000_000) as u32;
        if ms < self.flat_ms {
            self.origin.saturating_sub(by)
        } else {
            self.origin.saturating_add(by)
        }
    }

    /// What a Reno with the same beta would have by now (RFC 9438, 4.3).
    fn reno_window(&mut self, window: u32) -> u32 {
        let scale = 8 * (BETA_UNIT + BETA) / 3 / (BETA_UNIT - BETA);
        let per = (u64::from(window) * scale / 8).max(1);
        while self.acked > per {
            self.acked -= per;
            self.reno += 1;
        }
        self.reno
    }
}

impl HyStart {
    /// A round begins when what had been sent at the beginning of the last is acknowledged: from
    /// the first on, so that it begins with a flight and not within one (`bictcp_hystart_reset`).
    const fn follow_round(&mut self, told: &Told<'_>) {
        if told.una > self.round_end {
            *self = Self {
                found: false,
                round_end: told.next,
                round_start_ns: told.now_ns,
                last_ns: told.now_ns,
                shortest_ns: None,
                samples: 0,
            };
        }
    }

    /// Whether slow start has reached what the path takes (`hystart_update`).
    fn is_over(&mut self, told: &Told<'_>, rtt_ns: u64, shortest_ns: u64) -> bool {
        if told.now_ns - self.last_ns <= HYSTART_SPACING_NS {
            self.last_ns = told.now_ns;
            // Half, because nothing is paced: what came back in a train left in a burst.
            if told.now_ns - self.round_start_ns > shortest_ns / 2 {
                return true;
            }
        }
        let round_ns = self.shortest_ns.map_or(rtt_ns, |shortest| shortest.min(rtt_ns));
        self.shortest_ns = Some(round_ns);
        if self.samples < HYSTART_SAMPLES {
            self.samples += 1;
            return false;
        }
        let (least, most) = HYSTART_DELAY_NS;
        round_ns > shortest_ns + (shortest_ns / 8).clamp(least, most)
    }
}

/// The integer cube root, so that every machine follows the same curve.
fn cube_root(of: u64) -> u64 {
    let mut root = 0u64;
    for bit in (0..21).rev() {
        let more = root | (1 << bit);
        if more * more * more <= of {
            root = more;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_exact() {
        for root in [0u64, 1, 2, 3, 1_000, 99_999, 1_000_000] {
            assert_eq!(cube_root(root.pow(3)), root);
            assert_eq!(cube_root((root + 1).pow(3) - 1), root);
        }
    }

    #[test]
    fn the_curve_is_back_at_the_old_window_after_k() {
        // RFC 9438, equation 2: K = cubic root of (300 / 0.4) = 9.086 s for 1,000 down to 700.
        let epoch = Epoch::new(0, 700, 1_000, 0);
        assert_eq!(epoch.flat_ms, 9_085);
        assert_eq!(epoch.window_at(9_085), 1_000);
        assert!((699..=701).contains(&epoch.window_at(0)), "{}", epoch.window_at(0));
        assert!(epoch.window_at(12_000) > 1_005);
    }
}
