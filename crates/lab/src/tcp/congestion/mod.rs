//! Congestion control: how many segments may be on their way, and how fast they leave.
//!
//! [`Window`] is what all algorithms share; an algorithm is told what was acknowledged and what was
//! lost and moves it. When a loss is one is decided by [`super::sender`], not here.

mod bbr;
mod bunches;
mod cubic;
mod reno;

use super::rate::RateSample;
use bbr::Bbr;
pub(super) use bbr::burst;
use cubic::Cubic;

/// Segments of the first flight (RFC 6928).
pub(super) const WINDOW_FIRST: u32 = 10;
/// The smallest slow start threshold, in segments (RFC 5681, equation 4).
const THRESHOLD_MIN: u32 = 2;

/// Which algorithm an end uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 (`tcp_cong.c`).
    Reno,
    /// RFC 9438 with HyStart (`tcp_cubic.c`).
    Cubic,
    /// BBR version 1 (`tcp_bbr.c`).
    Bbr,
}

/// The congestion window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// How many segments may be on their way.
    pub(super) segments: u32,
    /// Below it the window doubles each round trip.
    pub(super) threshold: u32,
    /// Acknowledged segments that did not make a whole one yet.
    count: u32,
}

/// Whether losses are being repaired, as far as an algorithm must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Repair {
    /// Nothing is being repaired.
    None,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Timeout,
}

/// What an algorithm is told with an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub(super) now_ns: u64,
    pub(super) sample: &'a RateSample,
    /// Segments on their way now.
    pub(super) in_flight: u32,
    /// Positions: acknowledged in order, and sent.
    pub(super) una: u64,
    pub(super) next: u64,
    /// Segments delivered, and when the last was.
    pub(super) delivered: u64,
    pub(super) delivered_ns: u64,
    /// The smoothed round trip.
    pub(super) srtt_ns: Option<u64>,
    pub(super) repair: Repair,
}

/// An algorithm with its state.
#[derive(Debug)]
pub(super) enum Control {
    Reno,
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { segments: WINDOW_FIRST, threshold: u32::MAX, count: 0 }
    }

    pub(super) const fn in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// What the threshold would be set to if the window were restored (`tcp_current_ssthresh`).
    pub(super) const fn current_threshold(&self, reducing: bool) -> u32 {
        let three_quarters = self.segments / 2 + self.segments / 4;
        if reducing || self.threshold > three_quarters { self.threshold } else { three_quarters }
    }

    /// Grows by what was acknowledged, up to the threshold; returns what is left of it.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.segments.saturating_add(acked).min(self.threshold);
        let left = acked - (grown - self.segments);
        self.segments = grown;
        left
    }

    /// Grows by one for every `per` segments acknowledged.
    const fn additive(&mut self, per: u32, acked: u32) {
        if self.count >= per {
            self.count = 0;
            self.segments += 1;
        }
        self.count += acked;
        if self.count >= per {
            self.segments += self.count / per;
            self.count %= per;
        }
    }

    /// After a time of silence: halved for each timeout that passed, down to the first window.
    pub(super) fn restart(&mut self, silence_ns: u64, rto_ns: u64) {
        let least = WINDOW_FIRST.min(self.segments);
        let mut left_ns = silence_ns;
        while left_ns > rto_ns && self.segments > least {
            left_ns -= rto_ns;
            self.segments /= 2;
        }
        self.segments = self.segments.max(least);
        self.count = 0;
    }

    /// Forgets what did not make a whole segment.
    pub(super) const fn forget_fraction(&mut self) {
        self.count = 0;
    }
}

impl Control {
    /// An algorithm at its start; `mss` in bytes, its chance follows from `seed`.
    pub(super) fn new(which: CongestionControl, mss: u32, seed: u64) -> Self {
        match which {
            CongestionControl::Reno => Self::Reno,
            CongestionControl::Cubic => Self::Cubic(Cubic::default()),
            CongestionControl::Bbr => Self::Bbr(Box::new(Bbr::new(mss, seed))),
        }
    }

    /// Whether it sets the window itself, whatever recovery does (`cong_control`).
    pub(super) const fn is_model_based(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// The connection is open.
    pub(super) fn open(&mut self, now_ns: u64, window: &Window, srtt_ns: Option<u64>) {
        match self {
            Self::Reno | Self::Cubic(_) => {}
            Self::Bbr(bbr) => bbr.open(now_ns, window, srtt_ns),
        }
    }

    /// Something was lost: the threshold that follows from this window.
    pub(super) fn threshold_after_loss(&mut self, window: &Window) -> u32 {
        match self {
            Self::Reno => reno::threshold_after_loss(window),
            Self::Cubic(cubic) => cubic.threshold_after_loss(window),
            Self::Bbr(bbr) => {
                bbr.save_window(window);
                window.threshold
            }
        }
    }

    /// A timeout: everything was lost, so far as anyone can tell.
    pub(super) fn time_out(&mut self) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => *cubic = Cubic::default(),
            Self::Bbr(bbr) => bbr.time_out(),
        }
    }

    /// The loss was none: the window to go back to, where `prior` was that before.
    pub(super) fn undo(&mut self, window: &Window, prior: u32) -> u32 {
        match self {
            Self::Reno | Self::Cubic(_) => window.segments.max(prior),
            Self::Bbr(bbr) => {
                bbr.undo();
                window.segments
            }
        }
    }

    /// Segments were acknowledged that were sent once; a round trip took this long.
    pub(super) fn measured(&mut self, told: &Told<'_>, window: &mut Window, rtt_ns: u64) {
        match self {
            Self::Reno | Self::Bbr(_) => {}
            Self::Cubic(cubic) => cubic.measured(told, window, rtt_ns),
        }
    }

    /// May grow by what was acknowledged, nothing being repaired but by slow start.
    pub(super) fn grow(&mut self, told: &Told<'_>, window: &mut Window, acked: u32) {
        match self {
            Self::Reno => reno::grow(window, acked),
            Self::Cubic(cubic) => cubic.grow(told, window, acked),
            Self::Bbr(_) => {}
        }
    }

    /// Sets window and pacing from its model of the path; nothing for who has none.
    pub(super) fn model(&mut self, told: &Told<'_>, window: &mut Window) {
        if let Self::Bbr(bbr) = self {
            bbr.model(told, window);
        }
    }

    /// Sends again after nothing was on the way since `idle_since_ns`.
    pub(super) fn starts_again(&mut self, now_ns: u64, idle_since_ns: u64, app_limited: bool) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => cubic.starts_again(now_ns, idle_since_ns),
            Self::Bbr(bbr) => bbr.starts_again(app_limited),
        }
    }

    /// Bytes a second at which segments leave; `None` for as fast as the window allows.
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::Reno | Self::Cubic(_) => None,
            Self::Bbr(bbr) => Some(bbr.pacing_rate()),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
