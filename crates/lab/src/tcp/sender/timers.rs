//! What a sender does when nothing arrives (`tcp_timer.c`): retransmission timeouts, tail loss
//! probes, RACK's second look, and probes of a closed window. As in Linux one of the four runs at
//! a time.

use super::news::News;
use super::recovery::Repairing;
use super::{Piece, Sender, Terms, Timer};
use crate::tcp::rack::TICKS_NS;
use crate::tcp::rtt::{RTO_FIRST_NS, RTO_MIN_NS};
use crate::tcp::wheel::fires_ns;

/// What a timer came to beside segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Fired {
    /// Nothing.
    Nothing,
    /// The window is asked for by an empty segment below SND.UNA.
    WindowProbe,
    /// The other end has not answered for too long.
    Dead,
}

impl Sender {
    /// Does what is due; segments that leave are put behind `pieces`.
    pub(in crate::tcp) fn fire(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) -> Fired {
        if self.timer.at_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return Fired::Nothing;
        }
        match std::mem::replace(&mut self.timer, Timer::Idle) {
            Timer::Idle => Fired::Nothing,
            Timer::Retransmission { .. } => self.time_out(now_ns, pieces),
            Timer::TailProbe { at_ns } => {
                self.timer = Timer::TailProbe { at_ns };
                self.probe_tail(now_ns, pieces);
                Fired::Nothing
            }
            Timer::Reordering { at_ns } => {
                self.timer = Timer::Reordering { at_ns };
                self.look_again(now_ns);
                Fired::Nothing
            }
            Timer::Persist { .. } => self.probe_window(now_ns, pieces),
        }
    }

    /// `tcp_retransmit_timer`.
    fn time_out(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) -> Fired {
        if self.board.is_empty() {
            return Fired::Nothing;
        }
        if self.window == 0 {
            // The other end took its window back: what leaves again asks for it, and as long as
            // that is answered this is no failure (RFC 9293, 3.8.6).
            let silent_ns = now_ns.saturating_sub(self.heard_ns);
            let trying_ns = now_ns - self.recovery.resent_ns.unwrap_or(now_ns);
            let most_ns = 2 * self.terms.rto_max_ns;
            if silent_ns > most_ns && trying_ns > most_ns {
                return Fired::Dead;
            }
        } else {
            let trying_ns = now_ns - self.recovery.resent_ns.unwrap_or(now_ns);
            let Terms { retries, user_timeout_ns, rto_max_ns, .. } = self.terms;
            let most_ns = user_timeout_ns.unwrap_or_else(|| kill_ns(retries, rto_max_ns));
            if self.timeouts > 0 && trying_ns >= most_ns {
                return Fired::Dead;
            }
        }
        self.enter_loss(now_ns);
        if self.window > 0 {
            self.timeouts += 1;
        }
        self.stats.timeouts += 1;
        pieces.extend(self.resend_head(now_ns));
        self.rtt.back_off();
        self.timer = Timer::Retransmission { at_ns: fires_ns(now_ns, self.rtt.rto_ns()) };
        Fired::Nothing
    }

    /// `tcp_send_loss_probe`: something new if it may leave, else the last segment again.
    fn probe_tail(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) {
        if self.recovery.probe.is_none() {
            let (piece, old) = match self.send_one(now_ns) {
                Some(piece) => (Some(piece), false),
                None => (self.resend_tail(now_ns), true),
            };
            if let Some(piece) = piece {
                self.stats.probes += 1;
                self.recovery.probe = Some((self.next, old));
                pieces.push(piece);
                // From now on, whatever ran before.
                self.timer = Timer::Idle;
            }
        }
        self.rearm(now_ns);
    }

    /// `tcp_rack_reo_timeout`.
    fn look_again(&mut self, now_ns: u64) {
        let in_flight = self.in_flight();
        let mut news = News::default();
        self.find_losses(now_ns, &mut news);
        if self.in_flight() != in_flight {
            if self.recovery.state != Repairing::Recovery {
                self.enter_recovery();
            }
            if !self.control.is_model_based() {
                self.reduce(&News { delivered: 1, ..news });
            }
        }
    }

    /// `tcp_probe_timer`.
    fn probe_window(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) -> Fired {
        if !self.board.is_empty() || !self.has_unsent() {
            self.unanswered = 0;
            return Fired::Nothing;
        }
        if self.unanswered >= self.terms.retries {
            return Fired::Dead;
        }
        self.stats.window_probes += 1;
        if let Some(piece) = self.send_part(now_ns) {
            pieces.push(piece);
            self.persist_backoff = 0;
            self.unanswered = 0;
            self.rearm(now_ns);
            return Fired::Nothing;
        }
        self.unanswered += 1;
        self.persist_backoff = (self.persist_backoff + 1).min(self.terms.retries);
        let wait_ns = self.rtt.persist_ns(self.persist_backoff);
        self.timer = Timer::Persist { at_ns: fires_ns(now_ns, wait_ns) };
        Fired::WindowProbe
    }

    /// Starts the retransmission timer for what is on its way (`tcp_rearm_rto`).
    pub(super) fn rearm(&mut self, now_ns: u64) {
        let Some(head) = self.board.head() else {
            self.timer = Timer::Idle;
            return;
        };
        let from_ns = match self.timer {
            // They ran in its place: it counts from when the head left.
            Timer::TailProbe { .. } | Timer::Reordering { .. } => head.sent_ns,
            Timer::Idle | Timer::Retransmission { .. } | Timer::Persist { .. } => now_ns,
        };
        let wait_ns = (from_ns + self.rtt.rto_ns()).saturating_sub(now_ns);
        let at_ns = fires_ns(now_ns, wait_ns);
        self.timer = Timer::Retransmission { at_ns };
    }

    /// Something was acknowledged: a tail probe, or the retransmission timer
    /// (`tcp_set_xmit_timer`).
    pub(super) fn rearm_after_progress(&mut self, now_ns: u64) {
        if !self.arm_tail_probe(now_ns, true) {
            self.rearm(now_ns);
        }
    }

    /// `tcp_schedule_loss_probe`; says whether one is due.
    pub(super) fn arm_tail_probe(&mut self, now_ns: u64, progress: bool) -> bool {
        let calm = matches!(self.recovery.state, Repairing::Open | Repairing::Reduction);
        let Some(head) = self.board.head().filter(|_| self.terms.sack && calm) else {
            return false;
        };
        let wait_ns = self.rtt.smoothed_ns().map_or(RTO_FIRST_NS, |smoothed| {
            // The one segment may wait for a delayed acknowledgment.
            2 * smoothed + if self.board.len() == 1 { RTO_MIN_NS } else { TICKS_NS }
        });
        let timeout_ns = if progress {
            self.rtt.rto_ns()
        } else {
            (head.sent_ns + self.rtt.rto_ns()).saturating_sub(now_ns)
        };
        let wait_ns = if timeout_ns > 0 { wait_ns.min(timeout_ns) } else { wait_ns };
        self.timer = Timer::TailProbe { at_ns: fires_ns(now_ns, wait_ns) };
        true
    }

    /// Nothing is on its way, nothing may leave, and nothing is waited for.
    pub(super) fn needs_persist(&self) -> bool {
        let waits = self.board.is_empty() && self.has_unsent() && !self.has_room();
        waits && self.timer == Timer::Idle
    }

    /// The window will be asked for (`tcp_check_probe_timer`).
    pub(super) fn arm_persist(&mut self, now_ns: u64) {
        if self.needs_persist() {
            let at_ns = fires_ns(now_ns, self.rtt.persist_ns(0));
            self.timer = Timer::Persist { at_ns };
        }
    }
}

/// How long a connection may go without an answer after the first retransmission, for so many
/// retries (`retransmits_timed_out`, `tcp_model_timeout`).
pub(super) fn kill_ns(retries: u32, rto_max_ns: u64) -> u64 {
    let linear = (rto_max_ns / RTO_MIN_NS).ilog2();
    let doubling = retries.min(linear);
    let doubled_ns = ((2 << doubling) - 1) * RTO_MIN_NS;
    doubled_ns + u64::from(retries.saturating_sub(linear)) * rto_max_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::MS;
    use crate::tcp::rtt::RTO_MAX_NS;

    #[test]
    fn the_kill_limits_are_those_of_the_manual() {
        // tcp_retries2 = 15: "924.6 seconds" (kernel's ip-sysctl).
        assert_eq!(kill_ns(15, RTO_MAX_NS), 924_600 * MS);
        assert_eq!(kill_ns(6, RTO_MAX_NS), 25_400 * MS);
    }
}
