//! BBR version 1 (Cardwell et al., ACM Queue 2016; `tcp_bbr.c`).
//!
//! Models the path by the largest delivery rate of the last ten round trips and the shortest round
//! trip of the last ten seconds, and sends at that rate with at most twice their product on the
//! way, and some more where acknowledgments come in bunches ([`super::bunches`]). Limit: without
//! the detection of policers (`lt_bw`).

use std::collections::VecDeque;

use super::bunches::Bunches;
use super::{Repair, Told, WINDOW_FIRST, Window};
use crate::emu::{MS, Rng, SECOND};

/// Gains are in 1/256.
const UNIT: u64 = 256;
/// 2 / ln 2: doubles the rate each round trip.
const HIGH_GAIN: u64 = UNIT * 2_885 / 1_000 + 1;
/// Empties in a round trip the queue that the start has filled.
const DRAIN_GAIN: u64 = UNIT * 1_000 / 2_885;
/// One phase looks for more, one drains what it has queued, six cruise.
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// The window's gain while cruising.
const WINDOW_GAIN: u64 = UNIT * 2;
/// Round trips over which the largest rate is kept.
const RATE_ROUNDS: u64 = CYCLE.len() as u64 + 2;
/// How long the shortest round trip is believed.
const MIN_RTT_AGE_NS: u64 = 10 * SECOND;
/// How long it is looked for with an empty path, and how empty, in segments.
const PROBE_RTT_NS: u64 = 200 * MS;
/// See [`PROBE_RTT_NS`].
const WINDOW_MIN: u32 = 4;
/// The pipe is full when the rate has not grown by a quarter in so many round trips.
const FULL_ROUNDS: u32 = 3;
/// Pacing stays this share of a percent below the rate, so that queues drain.
const MARGIN_PERCENT: u64 = 1;
/// Nanoseconds of sending that leave together (`sk_pacing_shift`).
const BURST_NS: u64 = 1 << 20;
/// Bytes a second below which segments leave one by one (`bbr_min_tso_rate` / 8).
const SLOW_RATE: u64 = 150_000;
/// The most bytes that leave together (`GSO_LEGACY_MAX_SIZE`).
const BURST_BYTES_MAX: u64 = 65_536;

/// The state of BBR.
#[derive(Debug)]
pub(in crate::tcp) struct Bbr {
    mss: u64,
    rng: Rng,
    mode: Mode,
    /// Rates in bytes a second and the round of each, falling, within [`RATE_ROUNDS`].
    rates: VecDeque<(u64, u64)>,
    /// The shortest round trip and when it was seen.
    min_rtt: Option<(u64, u64)>,
    round: u64,
    round_starts: bool,
    /// The round is over when what had not been delivered by then is.
    round_end: u64,
    full_rate: u64,
    full_rounds: u32,
    bunches: Bunches,
    pacing_rate: u64,
    seen_rtt: bool,
    starts_again: bool,
    conserves: bool,
    repair: Repair,
    window_before: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeRate {
        phase: usize,
        since_ns: u64,
    },
    /// `until_ns` once the path is empty; `round_over` once a round trip has passed since.
    ProbeRtt {
        until_ns: Option<u64>,
        round_over: bool,
    },
}

impl Bbr {
    pub(super) fn new(mss: u32, seed: u64) -> Self {
        Self {
            mss: u64::from(mss),
            rng: Rng::new(seed),
            mode: Mode::Startup,
            rates: VecDeque::new(),
            min_rtt: None,
            round: 0,
            round_starts: false,
            round_end: 0,
            full_rate: 0,
            full_rounds: 0,
            bunches: Bunches::default(),
            pacing_rate: u64::MAX,
            seen_rtt: false,
            starts_again: false,
            conserves: false,
            repair: Repair::None,
            window_before: 0,
        }
    }

    /// The first rate: the first window a round trip, or a millisecond where none is known.
    pub(super) fn open(&mut self, now_ns: u64, window: &Window, srtt_ns: Option<u64>) {
        self.seen_rtt = srtt_ns.is_some();
        let rtt_ns = srtt_ns.unwrap_or(MS).max(1);
        self.min_rtt = srtt_ns.map(|rtt| (rtt, now_ns));
        let rate = u64::from(window.segments) * self.mss * SECOND / rtt_ns;
        self.pacing_rate = paced(rate, HIGH_GAIN);
    }

    pub(super) const fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Remembers the window before a loss or an empty path (`bbr_save_cwnd`).
    pub(super) fn save_window(&mut self, window: &Window) {
        let probing = matches!(self.mode, Mode::ProbeRtt { .. });
        self.window_before = if self.repair == Repair::None && !probing {
            window.segments
        } else {
            self.window_before.max(window.segments)
        };
    }

    /// What the path carries is looked for anew; the next acknowledgment begins a round
    /// (`bbr_set_state`).
    pub(super) const fn time_out(&mut self) {
        self.full_rate = 0;
        self.round_starts = true;
        self.repair = Repair::Timeout;
    }

    pub(super) const fn undo(&mut self) {
        self.full_rate = 0;
        self.full_rounds = 0;
    }

    pub(super) fn starts_again(&mut self, app_limited: bool) {
        if !app_limited {
            return;
        }
        self.starts_again = true;
        if let Mode::ProbeRate { .. } = self.mode {
            self.set_pacing(self.rate(), UNIT);
        }
    }

    /// The whole of it, in the order of `bbr_main`.
    pub(super) fn model(&mut self, told: &Told<'_>, window: &mut Window) {
        self.update_rate(told);
        if told.sample.acked > 0 && told.sample.rate.is_some() {
            let rate = self.segment_rate();
            let (acked, at_ns) = (told.sample.acked, told.delivered_ns);
            self.bunches.acknowledged(acked, at_ns, rate, window.segments, self.round_starts);
        }
        self.update_phase(told);
        self.check_full(told);
        self.check_drain(told, window);
        self.update_min_rtt(told, window);
        if !self.seen_rtt
            && let Some(srtt_ns) = told.srtt_ns
        {
            self.seen_rtt = true;
            let rate = u64::from(window.segments) * self.mss * SECOND / srtt_ns.max(1);
            self.pacing_rate = paced(rate, HIGH_GAIN);
        }
        let (pacing_gain, window_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeRate { phase, .. } => (CYCLE[phase], WINDOW_GAIN),
            Mode::ProbeRtt { .. } => (UNIT, UNIT),
        };
        self.set_pacing(self.rate(), pacing_gain);
        self.set_window(told, window, window_gain);
    }

    const fn is_full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    /// The largest rate of the last rounds, in bytes a second.
    fn rate(&self) -> u64 {
        self.rates.front().map_or(0, |(rate, _)| *rate)
    }

    fn update_rate(&mut self, told: &Told<'_>) {
        self.round_starts = false;
        let sample = told.sample;
        let Some((delivered, interval_ns)) = sample.rate else { return };
        if sample.prior_delivered >= self.round_end {
            self.round_end = told.delivered;
            self.round += 1;
            self.round_starts = true;
            self.conserves = false;
        }
        let rate = delivered * self.mss * SECOND / interval_ns;
        if !sample.app_limited || rate >= self.rate() {
            while self.rates.back().is_some_and(|(less, _)| *less <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((rate, self.round));
        }
        let first = self.round.saturating_sub(RATE_ROUNDS);
        while self.rates.len() > 1 && self.rates.front().is_some_and(|(_, at)| *at < first) {
            self.rates.pop_front();
        }
    }

    /// Goes on to the next phase of the cycle when this one has done what it is for.
    fn update_phase(&mut self, told: &Told<'_>) {
        let Mode::ProbeRate { phase, since_ns } = self.mode else { return };
        let min_rtt_ns = self.min_rtt.map_or(u64::MAX, |(rtt, _)| rtt);
        let long = told.delivered_ns.saturating_sub(since_ns) > min_rtt_ns;
        let before = told.sample.prior_in_flight;
        let next = match CYCLE[phase] {
            UNIT => long,
            gain if gain > UNIT => {
                let filled = before >= self.segments_for(gain);
                long && (told.sample.losses > 0 || filled)
            }
            _ => long || before <= self.segments_for(UNIT),
        };
        if next {
            let phase = (phase + 1) % CYCLE.len();
            self.mode = Mode::ProbeRate { phase, since_ns: told.delivered_ns };
        }
    }

    fn check_full(&mut self, told: &Told<'_>) {
        if self.is_full() || !self.round_starts || told.sample.app_limited {
            return;
        }
        if self.rate() >= self.full_rate + self.full_rate / 4 {
            self.full_rate = self.rate();
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    fn check_drain(&mut self, told: &Told<'_>, window: &mut Window) {
        if self.mode == Mode::Startup && self.is_full() {
            self.mode = Mode::Drain;
            window.threshold = self.segments_for(UNIT);
        }
        if self.mode == Mode::Drain && told.in_flight <= self.segments_for(UNIT) {
            self.cruise(told);
        }
    }

    /// Into a phase of the cycle by chance, but not the one that drains
    /// (`bbr_reset_probe_bw_mode`).
    fn cruise(&mut self, told: &Told<'_>) {
        let back = self.rng.below(CYCLE.len() as u64 - 1) as usize;
        let phase = (CYCLE.len() - back) % CYCLE.len();
        self.mode = Mode::ProbeRate { phase, since_ns: told.delivered_ns };
    }

    fn update_min_rtt(&mut self, told: &Told<'_>, window: &mut Window) {
        let now_ns = told.now_ns;
        let old = self.min_rtt.is_some_and(|(_, at_ns)| now_ns > at_ns + MIN_RTT_AGE_NS);
        if let Some(rtt_ns) = told.sample.rtt_ns
            && (old || self.min_rtt.is_none_or(|(shortest, _)| rtt_ns < shortest))
        {
            self.min_rtt = Some((rtt_ns, now_ns));
        }
        if old && !self.starts_again && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.save_window(window);
            self.mode = Mode::ProbeRtt { until_ns: None, round_over: false };
        }
        if let Mode::ProbeRtt { until_ns, round_over } = self.mode {
            match until_ns {
                None if told.in_flight <= WINDOW_MIN => {
                    let until_ns = Some(now_ns + PROBE_RTT_NS);
                    self.mode = Mode::ProbeRtt { until_ns, round_over: false };
                    self.round_end = told.delivered;
                }
                None => {}
                Some(until) => {
                    let round_over = round_over || self.round_starts;
                    self.mode = Mode::ProbeRtt { until_ns, round_over };
                    if round_over && now_ns > until {
                        self.min_rtt = self.min_rtt.map(|(rtt, _)| (rtt, now_ns));
                        window.segments = window.segments.max(self.window_before);
                        self.leave_probe_rtt(told);
                    }
                }
            }
        }
        if told.sample.rate.is_some_and(|(delivered, _)| delivered > 0) {
            self.starts_again = false;
        }
    }

    fn leave_probe_rtt(&mut self, told: &Told<'_>) {
        if self.is_full() {
            self.cruise(told);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn set_pacing(&mut self, rate: u64, gain: u64) {
        let rate = paced(rate, gain);
        if rate > 0 && (self.is_full() || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn set_window(&mut self, told: &Told<'_>, window: &mut Window, gain: u64) {
        let acked = told.sample.acked;
        if acked > 0 && !self.recovers(told, window) {
            let more = if self.is_full() { self.bunches.allowance(self.segment_rate()) } else { 0 };
            let target = self.segments_and(gain, more);
            if self.is_full() {
                window.segments = (window.segments + acked).min(target);
            } else if window.segments < target || told.delivered < u64::from(WINDOW_FIRST) {
                window.segments += acked;
            }
            window.segments = window.segments.max(WINDOW_MIN);
        }
        if let Mode::ProbeRtt { .. } = self.mode {
            window.segments = window.segments.min(WINDOW_MIN);
        }
    }

    /// While losses are repaired, for a round trip one segment leaves for each that arrives
    /// (`bbr_set_cwnd_to_recover_or_restore`).
    fn recovers(&mut self, told: &Told<'_>, window: &mut Window) -> bool {
        let before = std::mem::replace(&mut self.repair, told.repair);
        let acked = told.sample.acked;
        if told.sample.losses > 0 {
            window.segments = window.segments.saturating_sub(told.sample.losses).max(1);
        }
        if told.repair == Repair::Recovery && before != Repair::Recovery {
            self.conserves = true;
            self.round_end = told.delivered;
            window.segments = told.in_flight + acked;
        } else if before != Repair::None && told.repair == Repair::None {
            window.segments = window.segments.max(self.window_before);
            self.conserves = false;
        }
        if self.conserves {
            window.segments = window.segments.max(told.in_flight + acked);
        }
        self.conserves
    }

    /// The largest rate of the last rounds, in segments a second times 2^10.
    fn segment_rate(&self) -> u64 {
        self.rate() * 1_024 / self.mss
    }

    /// So many times what the path holds (`bbr_inflight`).
    fn segments_for(&self, gain: u64) -> u32 {
        self.segments_and(gain, 0)
    }

    /// The same with so many more, and some for what leaves together.
    fn segments_and(&self, gain: u64, more: u32) -> u32 {
        let Some((min_rtt_ns, _)) = self.min_rtt else { return WINDOW_FIRST };
        let bytes = u128::from(self.rate()) * u128::from(min_rtt_ns) / u128::from(SECOND);
        let scaled = bytes * u128::from(gain) / u128::from(UNIT);
        let product = scaled.div_ceil(u128::from(self.mss)).min(1 << 24) as u32;
        let mut segments = product + more + 3 * self.burst();
        segments += segments % 2;
        if let Mode::ProbeRate { phase: 0, .. } = self.mode {
            segments += 2;
        }
        segments
    }

    /// Segments that leave together.
    fn burst(&self) -> u32 {
        burst(self.pacing_rate, self.mss)
    }
}

/// How many segments leave together at this rate (`tcp_tso_autosize` with `bbr_min_tso_segs`).
pub(in crate::tcp) fn burst(pacing_rate: u64, mss: u64) -> u32 {
    let bytes = u128::from(pacing_rate) * u128::from(BURST_NS) / u128::from(SECOND);
    let bytes = (bytes as u64).min(BURST_BYTES_MAX);
    let least = if pacing_rate < SLOW_RATE { 1 } else { 2 };
    (bytes / mss).max(least) as u32
}

/// A rate with a gain and the margin.
fn paced(rate: u64, gain: u64) -> u64 {
    let rate = u128::from(rate) * u128::from(gain) * u128::from(100 - MARGIN_PERCENT);
    (rate / u128::from(UNIT) / 100).min(u128::from(u64::MAX)) as u64
}
