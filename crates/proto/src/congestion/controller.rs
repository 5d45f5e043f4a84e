//! The contract of a congestion controller.
//!
//! A controller decides when the next datagram may leave on one path, and how many bytes may be in
//! flight there. It knows nothing of single datagrams, of their numbers or of what waits to leave.
//! Its owner reports every datagram that leaves ([`Controller::sent`]) and every acknowledgement
//! ([`Controller::on_ack`]), and asks before it sends.
//!
//! A new controller is a new file with an implementation of [`Controller`]. Methods with a body are
//! hints that a controller may ignore, and questions whose usual answer is no.

use super::status::{ControllerPhase, ControllerStatus, SendLimit};
use crate::ablation::Ablation;
use crate::recovery::AckSample;
use crate::time::{Duration, Instant};
use std::fmt;

/// The congestion controller of one path, for what this end sends. Rates are in bytes per second
/// of UDP payload.
pub trait Controller: fmt::Debug + Send {
    /// `bytes` leave now, paced or not.
    fn sent(&mut self, now: Instant, bytes: usize);

    /// Feedback tells what arrived and what was lost.
    fn on_ack(&mut self, now: Instant, sample: &AckSample, conditions: &Conditions) -> Findings;

    /// The sender was idle although the window had room, with `in_flight` bytes in flight: the next
    /// rate sample is limited by the application.
    fn limited(&mut self, in_flight: u64);

    /// All that is in flight counts as lost after a long silence, or the path comes back after one.
    fn lost_all(&mut self, now: Instant);

    /// When the next datagram may leave; a moment of the past while the pace is not used up.
    fn next_at(&self) -> Instant;

    /// A datagram that leaves clearly later than this shows that the sender was idle:
    /// [`Self::next_at`], and how late this host's turns usually are.
    fn idle_from(&self) -> Instant;

    /// Bytes that may be in flight.
    fn window(&self) -> f64;

    /// The rate at which datagrams leave now.
    fn pacing_rate(&self) -> f64;

    /// The estimated rate of the path. On a new path this is the highest rate measured so far.
    /// `None` before the first measurement.
    fn rate(&self) -> Option<f64>;

    /// What is known about the path.
    fn phase(&self) -> ControllerPhase;

    /// Whether the rate of the path is known and the queue that startup built has drained.
    fn is_steady(&self) -> bool {
        matches!(self.phase(), ControllerPhase::Steady | ControllerPhase::Competing)
    }

    /// Whether other senders fill the queue of the path, and this end sends as they do.
    fn competes(&self) -> bool {
        self.phase() == ControllerPhase::Competing
    }

    /// Bytes that the window has room for while `in_flight` are in flight. If there is any room, a
    /// whole datagram may leave.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes are in flight")]
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    #[expect(clippy::cast_sign_loss, reason = "the window is larger")]
    fn room(&self, in_flight: u64) -> u64 {
        (self.window() - in_flight as f64).max(0.0).ceil() as u64
    }

    /// Whether another datagram may leave while `in_flight` bytes are in flight.
    fn allows(&self, in_flight: u64) -> bool {
        self.room(in_flight) > 0
    }

    /// A snapshot for people, with `in_flight` bytes in flight; `was_wanted` if data waited for the
    /// path when the scheduler last looked.
    fn status(&self, in_flight: u64, was_wanted: bool) -> ControllerStatus {
        let limit = match (was_wanted, self.allows(in_flight)) {
            (false, _) => SendLimit::Application,
            (true, false) => SendLimit::Window,
            (true, true) => SendLimit::Pacing,
        };
        let (rate, pacing_rate) = (self.rate().unwrap_or(0.0), self.pacing_rate());
        let (phase, window) = (self.phase(), self.window());
        ControllerStatus { phase, rate, pacing_rate, window, in_flight, limit }
    }

    /// Another path that this one replaces carried `rate`. Has no effect after the first
    /// measurement.
    fn guess(&mut self, _rate: f64) {}

    /// A realtime packet leaves: the queue should be short for a while.
    fn keep_calm(&mut self, _now: Instant) {}

    /// Whether the rate of the path changes within a second, and not because of what others send.
    fn is_varying(&self, _now: Instant) -> bool {
        false
    }

    /// Other paths of this peer share the bottleneck of this one. `rate` is what they carry.
    fn set_company(&mut self, _rate: f64) {}

    /// Another path of this peer begins a trial ([`Findings::trial`]) at the part `pace` of its
    /// rate. If both paths share a bottleneck, joining it shows what all paths of the peer hold of
    /// its queue together.
    fn join_trial(&mut self, _now: Instant, _pace: f64) {}
}

/// What the session and its hosts are like now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// The usual maximum lateness of this host's turns.
    pub turns_late: Duration,
    /// The usual maximum lateness of both hosts with a report, from the arrival of the reported
    /// datagram until the report is read.
    pub reports_late: Duration,
    /// No other path of the session carries.
    pub is_alone: bool,
    /// The controller must give way to senders that fill the queue of the path.
    pub gives_way: bool,
    /// A short queue is worth more than throughput where the rate of the path varies.
    pub wants_short: bool,
    /// Heuristics that are left out.
    pub ablation: Ablation,
}

impl Conditions {
    /// The change in measured queueing delay that late hosts may cause, in seconds.
    pub(super) fn late_seconds(&self) -> f64 {
        (self.turns_late + self.reports_late).as_secs_f64()
    }
}

/// What an acknowledgement led to, beyond a new pace and window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[must_use]
pub struct Findings {
    /// The controller began to send less for a moment, at this part of the rate, to see whose the
    /// queue is. Other paths may [join](Controller::join_trial).
    pub trial: Option<f64>,
    /// A policer was found that lets by this rate.
    pub policed: Option<f64>,
}
