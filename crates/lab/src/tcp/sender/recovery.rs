//! How losses are found and repaired, and how a repair that was not needed is taken back
//! (`tcp_input.c`: `tcp_fastretrans_alert`, `tcp_enter_loss`, `tcp_process_loss`).
//!
//! Fast recovery with RACK (RFC 8985) and proportional rate reduction (RFC 6937); after a timeout
//! F-RTO (RFC 5682 with SACK) and slow start; undo by D-SACK (RFC 3708) and by timestamps (Eifel,
//! RFC 3522).

use super::news::News;
use super::{Sender, Timer};
use crate::tcp::clock::is_before;
use crate::tcp::congestion::Repair;
use crate::tcp::scoreboard::Fate;
use crate::tcp::wheel::fires_ns;

/// What is being repaired (`tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repairing {
    /// Nothing.
    Open,
    /// Something has arrived out of order.
    Disorder,
    /// The window is being reduced though nothing is missing.
    Reduction,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// The state of repair.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Recovery {
    pub(in crate::tcp) state: Repairing,
    /// What had been sent when the state was entered: acknowledged, it is over.
    pub(super) high: u64,
    /// Threshold and window before the reduction; none once they cannot be gone back to.
    before: Option<(u32, u32)>,
    /// The window before the reduction, for PRR; and what was delivered and sent since.
    prior_window: u32,
    prr_delivered: u32,
    pub(super) prr_out: u32,
    /// SND.UNA when the reduction began, while it may be taken back.
    undo_from: Option<u64>,
    /// Resent segments of which no duplicate was reported yet; `None` where nothing was resent.
    undo_left: Option<u32>,
    /// When something was first sent again in this repair.
    pub(super) resent_ns: Option<u64>,
    /// F-RTO has not decided yet.
    pub(super) frto: bool,
    /// New segments leave before lost ones, once; then lost ones wait for the next acknowledgment.
    pub(super) new_first: bool,
    pub(super) lost_wait: bool,
    /// What had been sent when the tail loss probe left, and whether that was an old segment.
    pub(super) probe: Option<(u64, bool)>,
}

impl Recovery {
    pub(super) const fn new() -> Self {
        Self {
            state: Repairing::Open,
            high: 0,
            before: None,
            prior_window: 0,
            prr_delivered: 0,
            prr_out: 0,
            undo_from: None,
            undo_left: None,
            resent_ns: None,
            frto: false,
            new_first: false,
            lost_wait: false,
            probe: None,
        }
    }

    /// Whether the window is being reduced step by step (`tcp_in_cwnd_reduction`).
    pub(super) const fn is_reducing(&self) -> bool {
        matches!(self.state, Repairing::Reduction | Repairing::Recovery)
    }

    /// The same as congestion control is told.
    pub(super) const fn repair(&self) -> Repair {
        match self.state {
            Repairing::Open | Repairing::Disorder | Repairing::Reduction => Repair::None,
            Repairing::Recovery => Repair::Recovery,
            Repairing::Loss => Repair::Timeout,
        }
    }

    /// A segment leaves again.
    pub(super) fn resends(&mut self, now_ns: u64) {
        self.resent_ns.get_or_insert(now_ns);
        self.undo_left = Some(self.undo_left.unwrap_or(0) + 1);
    }

    /// The other end had this already (`tcp_check_dsack`, "dumb counting").
    pub(super) fn duplicate_arrived(&mut self, from: u64, to: u64, mss: u64) {
        if self.undo_from.is_some_and(|undo_from| to > undo_from)
            && let Some(left) = self.undo_left
        {
            let segments = to.saturating_sub(from).div_ceil(mss).clamp(1, u64::from(left.max(1)));
            self.undo_left = Some(left.saturating_sub(segments as u32));
        }
    }

    /// Whether a duplicate that ends here is that of the tail loss probe.
    pub(super) fn is_probe_duplicate(&self, to: u64) -> bool {
        self.probe == Some((to, true))
    }

    /// Whether everything that was sent again was not needed: duplicates say so, or an
    /// acknowledgment that echoes a timestamp from before (`tcp_may_undo`).
    fn may_undo(&self, echo_ns: Option<u64>) -> bool {
        self.undo_from.is_some() && (self.undo_left == Some(0) || self.was_only_late(echo_ns))
    }

    /// What is acknowledged left before anything left again (`tcp_packet_delayed`).
    fn was_only_late(&self, echo_ns: Option<u64>) -> bool {
        self.resent_ns.is_some_and(|resent_ns| is_before(echo_ns, resent_ns))
    }
}

impl Sender {
    /// Something is out of the ordinary, or was.
    pub(super) fn alert(&mut self, now_ns: u64, news: &mut News) {
        match self.recovery.state {
            Repairing::Open => self.recovery.resent_ns = None,
            Repairing::Reduction if self.una > self.recovery.high => {
                self.end_reduction();
                self.recovery.state = Repairing::Open;
            }
            Repairing::Recovery if self.una >= self.recovery.high => {
                self.duplicates = 0;
                self.undo_if_late(news, false);
                self.end_reduction();
                self.recovery.state = Repairing::Open;
            }
            Repairing::Disorder | Repairing::Reduction | Repairing::Recovery | Repairing::Loss => {}
        }
        match self.recovery.state {
            Repairing::Recovery => {
                if news.advanced && self.undo_partly(news) {
                    return;
                }
                self.undo_by_duplicates();
                self.find_losses(now_ns, news);
                if self.recovery.state != Repairing::Recovery {
                    // Taken back; but what is lost now is lost.
                    self.recover_if_lost();
                }
            }
            Repairing::Loss => {
                self.process_loss(news);
                let again = self.find_losses(now_ns, news);
                if self.recovery.state == Repairing::Open || again {
                    self.recover_if_lost();
                }
            }
            Repairing::Open | Repairing::Disorder | Repairing::Reduction => {
                self.undo_by_duplicates();
                self.find_losses(now_ns, news);
                self.recover_if_lost();
            }
        }
    }

    /// RACK looks at what is on its way, and its timer is set for what may only be late. Says
    /// whether something was lost that had been sent again.
    pub(super) fn find_losses(&mut self, now_ns: u64, news: &mut News) -> bool {
        if !self.terms.sack {
            self.find_losses_without_sack(news);
            return false;
        }
        let copies = self.board.resent();
        let repairing = self.recovery.state >= Repairing::Recovery;
        let verdict = self.rack.look(now_ns, &mut self.board, &self.rtt, repairing);
        news.losses += verdict.losses;
        if let Some(again_ns) = verdict.again_ns {
            let at_ns = fires_ns(now_ns, again_ns + crate::tcp::rack::TICKS_NS);
            self.timer = Timer::Reordering { at_ns };
        } else if matches!(self.timer, Timer::Reordering { .. }) {
            self.rearm(now_ns);
        }
        self.board.resent() < copies
    }

    /// Into fast recovery if something is lost; else back to order or disorder.
    fn recover_if_lost(&mut self) {
        if self.board.lost() == 0 {
            self.settle();
        } else {
            self.enter_recovery();
        }
    }

    /// `tcp_enter_recovery`.
    pub(super) fn enter_recovery(&mut self) {
        self.begin_undo();
        if !self.recovery.is_reducing() {
            let threshold = self.congestion.current_threshold(false);
            self.begin_reduction();
            self.recovery.before = Some((threshold, self.recovery.prior_window));
        }
        self.recovery.state = Repairing::Recovery;
        self.stats.recoveries += 1;
    }

    /// `tcp_init_cwnd_reduction`.
    fn begin_reduction(&mut self) {
        self.recovery.high = self.next;
        self.recovery.probe = None;
        self.congestion.forget_fraction();
        self.recovery.prior_window = self.congestion.segments;
        self.recovery.prr_delivered = 0;
        self.recovery.prr_out = 0;
        self.congestion.threshold = self.control.threshold_after_loss(&self.congestion);
    }

    /// The window follows what arrives down to the threshold (RFC 6937; `tcp_cwnd_reduction`).
    pub(super) fn reduce(&mut self, news: &News) {
        let in_flight = self.in_flight();
        let recovery = &mut self.recovery;
        if news.delivered == 0 || recovery.prior_window == 0 {
            return;
        }
        recovery.prr_delivered += news.delivered;
        let threshold = self.congestion.threshold;
        let may_send = if in_flight > threshold {
            let share = u64::from(threshold) * u64::from(recovery.prr_delivered);
            let whole = share.div_ceil(u64::from(recovery.prior_window)) as u32;
            whole.saturating_sub(recovery.prr_out)
        } else {
            let owed = recovery.prr_delivered.saturating_sub(recovery.prr_out);
            let safe = u32::from(news.advanced && news.losses == 0);
            (owed.max(news.delivered) + safe).min(threshold - in_flight)
        };
        // The first loss is repaired at once.
        let least = u32::from(recovery.prr_out == 0);
        self.congestion.segments = in_flight + may_send.max(least);
    }

    /// `tcp_end_cwnd_reduction`.
    fn end_reduction(&mut self) {
        let taken_back = self.recovery.undo_from.is_none();
        let reduction = self.recovery.state == Repairing::Reduction;
        let known = self.congestion.threshold < u32::MAX;
        if known && (reduction || !taken_back) && !self.control.is_model_based() {
            self.congestion.segments = self.congestion.threshold;
        }
        self.rack.recovered();
    }

    /// A timeout: what is on its way is lost, but for what left so late that it may arrive
    /// (`tcp_enter_loss`).
    pub(super) fn enter_loss(&mut self, now_ns: u64) {
        let was_new = self.recovery.state < Repairing::Recovery;
        let reneged = self.board.head().is_some_and(|head| head.fate == Fate::Arrived);
        if reneged {
            self.board.renege();
        }
        for index in 0..self.board.len() as usize {
            let Some(sent) = self.board.get(index).copied() else { break };
            let repairing = self.recovery.state >= Repairing::Recovery;
            let late = self.rack.may_arrive(now_ns, &sent, &self.board, &self.rtt, repairing);
            if index == 0 || reneged || !late {
                self.board.lose(index);
            }
        }
        let recovery = &self.recovery;
        let first = recovery.state <= Repairing::Disorder
            || recovery.high <= self.una
            || (recovery.state == Repairing::Loss && self.timeouts == 0);
        if first {
            let threshold = self.congestion.current_threshold(recovery.is_reducing());
            self.recovery.prior_window = self.congestion.segments;
            self.recovery.before = Some((threshold, self.congestion.segments));
            self.congestion.threshold = self.control.threshold_after_loss(&self.congestion);
            self.begin_undo();
        }
        self.duplicates = 0;
        self.congestion.segments = self.in_flight() + 1;
        self.congestion.forget_fraction();
        self.control.time_out();
        self.recovery.state = Repairing::Loss;
        self.recovery.high = self.next;
        self.recovery.probe = None;
        self.recovery.frto = was_new || self.timeouts > 0;
        self.recovery.new_first = false;
        self.recovery.lost_wait = false;
    }

    /// After a timeout: was it one (F-RTO), and is it over (`tcp_process_loss`).
    fn process_loss(&mut self, news: &News) {
        let recovered = self.una >= self.recovery.high;
        if news.advanced && self.recovery.may_undo(news.echo_ns) {
            self.undo_loss();
            return;
        }
        if self.recovery.frto {
            if news.original {
                // RFC 5682, 3.b: what was sent before and once only has arrived.
                self.undo_loss();
                return;
            }
            if self.next > self.recovery.high {
                if news.sacked || news.nothing {
                    // 3.a: the loss was real.
                    self.recovery.frto = false;
                }
            } else if news.advanced && !recovered {
                // 2.b: two new segments decide.
                self.recovery.high = self.next;
                if self.has_unsent() && self.has_room() {
                    self.recovery.new_first = true;
                    return;
                }
                self.recovery.frto = false;
            }
        }
        if recovered {
            self.undo_if_late(news, false);
            self.recovery.state = Repairing::Open;
        }
    }

    /// Order, or disorder where something is still missing (`tcp_try_to_open`).
    fn settle(&mut self) {
        if self.recovery.state == Repairing::Reduction {
            return;
        }
        let missing = self.board.arrived() + self.duplicates > 0
            || self.board.lost() > 0
            || self.board.resent() > 0;
        let state = if missing { Repairing::Disorder } else { Repairing::Open };
        if self.recovery.state != state {
            self.recovery.state = state;
            self.recovery.high = self.next;
        }
        if self.board.resent() == 0 {
            self.recovery.resent_ns = None;
        }
    }

    /// `tcp_init_undo`.
    fn begin_undo(&mut self) {
        let resent = self.board.resent() + u32::from(self.recovery.probe.is_some_and(|p| p.1));
        self.recovery.undo_from = Some(self.una);
        self.recovery.undo_left = (resent > 0).then_some(resent);
    }

    /// Goes back to window and threshold from before (`tcp_undo_cwnd_reduction`).
    fn undo(&mut self, found: bool) {
        if found {
            self.board.find_again();
        }
        if let Some((threshold, window)) = self.recovery.before {
            self.congestion.segments = self.control.undo(&self.congestion, window);
            self.congestion.threshold = self.congestion.threshold.max(threshold);
        }
        self.recovery.undo_from = None;
        self.stats.undone += 1;
    }

    /// At the end of a repair (`tcp_try_undo_recovery`).
    fn undo_if_late(&mut self, news: &News, found: bool) {
        if self.recovery.may_undo(news.echo_ns) {
            self.undo(found);
        }
    }

    /// While it lasts, by a timestamp (`tcp_try_undo_partial`). True where there is nothing more to
    /// do with this acknowledgment.
    fn undo_partly(&mut self, news: &News) -> bool {
        if self.recovery.undo_from.is_none() || !self.recovery.was_only_late(news.echo_ns) {
            return false;
        }
        if self.board.resent() == 0 {
            self.undo(true);
            self.settle();
        }
        true
    }

    /// By duplicates alone (`tcp_try_undo_dsack`).
    fn undo_by_duplicates(&mut self) {
        if self.recovery.undo_from.is_some() && self.recovery.undo_left == Some(0) {
            self.undo(false);
            if self.recovery.state == Repairing::Recovery {
                self.settle();
            }
        }
    }

    /// After a timeout (`tcp_try_undo_loss`).
    fn undo_loss(&mut self) {
        self.undo(true);
        self.timeouts = 0;
        self.recovery.frto = false;
        self.recovery.state = Repairing::Open;
        self.recovery.resent_ns = None;
    }

    /// Something told about a tail loss probe (`tcp_process_tlp_ack`).
    pub(super) fn tail_probe_answered(&mut self, next: u64, news: &News) {
        let Some((high, old)) = self.recovery.probe.filter(|(high, _)| next >= *high) else {
            return;
        };
        if !old || news.probe_duplicate {
            self.recovery.probe = None;
        } else if next > high {
            // The probe repaired a loss: it counts as one.
            self.begin_reduction();
            self.recovery.state = Repairing::Reduction;
            self.recovery.undo_from = None;
            self.end_reduction();
            self.settle_after_probe();
        } else if news.nothing && !news.sacked && !news.duplicate {
            self.recovery.probe = None;
        }
    }

    fn settle_after_probe(&mut self) {
        self.recovery.state = Repairing::Open;
        self.settle();
    }
}
