//! The sending half of an end: bytes that wait, what is on its way, and what may leave now.
//!
//! Its parts have files of their own: what an acknowledgment means is in [`acks`], how losses are
//! repaired in [`recovery`], what happens when time passes in [`timers`]. This file holds the state
//! and decides what leaves (`tcp_output.c`: `tcp_write_xmit`, `tcp_xmit_retransmit_queue`).

mod acks;
mod newreno;
mod news;
mod recovery;
mod timers;

use std::collections::VecDeque;
use std::ops::Range;

use super::congestion::{Control, Repair, Told, Window, burst};
use super::numbering::{Numbering, ORIGIN};
use super::pacing::Pacer;
use super::rack::Rack;
use super::rate::{RateMeter, RateSample};
use super::ring;
use super::rtt::Rtt;
use super::scoreboard::{Fate, Scoreboard, Sent};
use super::wheel::fires_ns;
pub(super) use acks::{Acknowledgment, Validity};
use recovery::Recovery;
pub use recovery::Repairing;
pub(super) use timers::Fired;

/// The most bytes that wait or are on their way (`tcp_wmem`).
pub(super) const SEND_BUFFER_MAX: usize = 4 << 20;

/// What a sender counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Segments that left, those sent again included.
    pub segments: u64,
    /// Segments that left again.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Fast recoveries that were entered.
    pub recoveries: u64,
    /// Reductions of the window that were taken back.
    pub undone: u64,
}

/// A part of the stream that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The position of its first byte.
    pub(super) from: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) fin: bool,
    /// Nothing waits behind it.
    pub(super) push: bool,
}

/// What the path is like to a sender, that its configuration fixes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The longest payload.
    pub(super) mss: u32,
    /// Timestamps go with every segment.
    pub(super) timestamps: bool,
    /// SACK blocks are understood by both.
    pub(super) sack: bool,
    /// Short segments do not wait for an acknowledgment (TCP_NODELAY).
    pub(super) no_delay: bool,
    /// How often a segment is sent again before the connection counts as dead (`tcp_retries2`).
    pub(super) retries: u32,
    /// How long it may go without an answer, in place of that (TCP_USER_TIMEOUT).
    pub(super) user_timeout_ns: Option<u64>,
    /// The longest retransmission timeout.
    pub(super) rto_max_ns: u64,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Nothing.
    Idle,
    /// The head of what is on its way is acknowledged, or it leaves again.
    Retransmission { at_ns: u64 },
    /// Anything is acknowledged, or the last segment leaves again (RFC 8985, 7).
    TailProbe { at_ns: u64 },
    /// What may only be late arrives, or it is lost.
    Reordering { at_ns: u64 },
    /// The window opens, or it is asked for (RFC 9293, 3.8.6.1).
    Persist { at_ns: u64 },
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) numbering: Numbering,
    pub(super) terms: Terms,
    /// Everything from `una` on.
    pub(super) bytes: VecDeque<u8>,
    /// The first position that is not acknowledged, and the first that was never sent.
    pub(super) una: u64,
    pub(super) next: u64,
    /// A FIN follows the last byte.
    pub(super) closing: bool,
    /// It was sent.
    pub(super) fin_sent: bool,
    /// The window that the other end offered, in bytes from `una`.
    pub(super) window: u64,
    /// The largest that it ever offered.
    pub(super) window_max: u64,
    /// The sequence position of the segment that last set the window (SND.WL1).
    pub(super) window_from: u64,
    pub(super) board: Scoreboard,
    /// Segments that duplicate acknowledgments stand for, where there are no SACK blocks.
    pub(super) duplicates: u32,
    pub(super) rtt: Rtt,
    pub(super) rack: Rack,
    pub(super) recovery: Recovery,
    pub(super) congestion: Window,
    pub(super) control: Control,
    pub(super) meter: RateMeter,
    pub(super) timer: Timer,
    /// When the other end was last heard.
    pub(super) heard_ns: u64,
    /// Timeouts since something was acknowledged (`icsk_retransmits`).
    pub(super) timeouts: u32,
    /// Window probes since anything was heard, and since the window closed.
    pub(super) unanswered: u32,
    pub(super) persist_backoff: u32,
    /// Where the last short segment ended (Minshall's variant of Nagle's rule).
    short_end: u64,
    /// When the last new segment left.
    pub(super) sent_ns: u64,
    pacer: Pacer,
    usage: Usage,
    pub(super) stats: SenderStats,
}

/// Whether the congestion window is what keeps the sender (`tcp_cwnd_validate`).
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    limited: bool,
    most: u32,
    until: u64,
}

impl Timer {
    pub(super) const fn at_ns(self) -> Option<u64> {
        match self {
            Self::Idle => None,
            Self::Retransmission { at_ns }
            | Self::TailProbe { at_ns }
            | Self::Reordering { at_ns }
            | Self::Persist { at_ns } => Some(at_ns),
        }
    }
}

impl Sender {
    /// A sender whose SYN has been acknowledged.
    pub(super) fn new(numbering: Numbering, terms: Terms, control: Control, now_ns: u64) -> Self {
        Self {
            numbering,
            terms,
            bytes: VecDeque::new(),
            una: ORIGIN + 1,
            next: ORIGIN + 1,
            closing: false,
            fin_sent: false,
            window: 0,
            window_max: 0,
            window_from: 0,
            board: Scoreboard::default(),
            duplicates: 0,
            rtt: Rtt::new(terms.rto_max_ns),
            rack: Rack::new(),
            recovery: Recovery::new(),
            congestion: Window::new(),
            control,
            meter: RateMeter::default(),
            timer: Timer::Idle,
            heard_ns: now_ns,
            timeouts: 0,
            unanswered: 0,
            persist_backoff: 0,
            short_end: ORIGIN,
            sent_ns: now_ns,
            pacer: Pacer::default(),
            usage: Usage::default(),
            stats: SenderStats::default(),
        }
    }

    /// Puts bytes behind those that wait, as many as there is room for; says how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        if self.closing {
            return 0;
        }
        let count = bytes.len().min(SEND_BUFFER_MAX - self.bytes.len());
        self.bytes.extend(&bytes[..count]);
        count
    }

    /// Our FIN was sent and acknowledged.
    pub(super) const fn is_finished(&self) -> bool {
        self.fin_sent && self.next == self.una
    }

    /// One past the last position that the other end has room for.
    pub(super) const fn window_end(&self) -> u64 {
        self.una + self.window
    }

    /// Whether bytes or the FIN wait that were never sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.next < self.una + self.bytes.len() as u64 || (self.closing && !self.fin_sent)
    }

    /// Whether the window takes the next segment.
    pub(super) fn has_room(&self) -> bool {
        let data_end = self.una + self.bytes.len() as u64;
        let end = data_end.min(self.next + u64::from(self.terms.mss));
        let fin = self.closing && end == data_end && !self.fin_sent;
        end + u64::from(fin) <= self.window_end()
    }

    /// What leaves now: what was lost before what is new, but for the second step of F-RTO.
    pub(super) fn transmit(&mut self, now_ns: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if std::mem::take(&mut self.recovery.new_first) {
            self.send_new(now_ns, &mut pieces);
            self.recovery.lost_wait = self.next > self.recovery.high;
            self.recovery.frto &= self.recovery.lost_wait;
        }
        if !self.recovery.lost_wait {
            self.send_lost(now_ns, &mut pieces);
            self.send_new(now_ns, &mut pieces);
        }
        self.arm_persist(now_ns);
        pieces
    }

    /// When something may leave by itself: a moment that has passed means now.
    pub(super) fn ready_ns(&self) -> Option<u64> {
        if self.needs_persist() {
            return Some(0);
        }
        if !self.may_send() || self.recovery.lost_wait {
            return None;
        }
        let lost = self.board.first_lost().is_some_and(|index| self.fits(index));
        let paced = self.control.pacing_rate().is_some();
        let at_ns = if paced { self.pacer.free_ns() } else { 0 };
        (lost || self.next_piece().is_some()).then_some(at_ns)
    }

    /// The head, whatever the windows say (`tcp_retransmit_timer`).
    pub(super) fn resend_head(&mut self, now_ns: u64) -> Option<Piece> {
        (!self.board.is_empty()).then(|| self.resend(0, now_ns))
    }

    /// The last segment, whatever the windows say: no repair begins with it
    /// (`tcp_send_loss_probe`).
    pub(super) fn resend_tail(&mut self, now_ns: u64) -> Option<Piece> {
        let last = (self.board.len() as usize).checked_sub(1)?;
        let snapshot = self.meter.sends(now_ns, false);
        self.board.probe(last, now_ns, snapshot);
        Some(self.again(last, now_ns))
    }

    /// One new segment, whatever the congestion window says, if the other end has room.
    pub(super) fn send_one(&mut self, now_ns: u64) -> Option<Piece> {
        let (end, fin) = self.next_piece()?;
        Some(self.send(now_ns, end, fin))
    }

    /// As much of the next segment as fits in the window, for a window probe (`tcp_write_wakeup`).
    pub(super) fn send_part(&mut self, now_ns: u64) -> Option<Piece> {
        let data_end = self.una + self.bytes.len() as u64;
        let end = data_end.min(self.window_end()).min(self.next + u64::from(self.terms.mss));
        let fin = self.closing && end == data_end && end < self.window_end() && !self.fin_sent;
        (end > self.next || fin).then(|| self.send(now_ns, end + u64::from(fin), fin))
    }

    const fn may_send(&self) -> bool {
        self.in_flight() < self.congestion.segments
    }

    fn is_paced_now(&self, now_ns: u64) -> bool {
        self.control.pacing_rate().is_some() && self.pacer.holds(now_ns)
    }

    /// What was lost leaves again while the congestion window has room.
    fn send_lost(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) {
        while self.may_send() && !self.is_paced_now(now_ns) {
            let Some(index) = self.board.first_lost().filter(|&index| self.fits(index)) else {
                return;
            };
            let reducing = self.recovery.is_reducing();
            pieces.push(self.resend(index, now_ns));
            if reducing {
                self.recovery.prr_out += 1;
            }
            if index == 0 && !matches!(self.timer, Timer::Reordering { .. }) {
                self.timer = Timer::Retransmission { at_ns: fires_ns(now_ns, self.rtt.rto_ns()) };
            }
        }
    }

    /// New segments leave while both windows have room.
    fn send_new(&mut self, now_ns: u64, pieces: &mut Vec<Piece>) {
        let before = pieces.len();
        let was_empty = self.board.is_empty();
        if was_empty && self.has_unsent() {
            self.start_again(now_ns);
        }
        while self.may_send() && !self.is_paced_now(now_ns) {
            let Some((end, fin)) = self.next_piece() else { break };
            pieces.push(self.send(now_ns, end, fin));
        }
        self.note_usage();
        if self.recovery.is_reducing() {
            self.recovery.prr_out += (pieces.len() - before) as u32;
        }
        if pieces.len() > before {
            if was_empty || matches!(self.timer, Timer::TailProbe { .. }) {
                self.rearm(now_ns);
            }
            self.arm_tail_probe(now_ns, false);
        }
    }

    /// After a time of silence the window is what it was at first (RFC 5681, 4.1;
    /// `tcp_cwnd_restart`).
    fn start_again(&mut self, now_ns: u64) {
        let silence_ns = now_ns.saturating_sub(self.sent_ns);
        let rto_ns = self.rtt.rto_ns();
        if silence_ns > rto_ns && !self.control.is_model_based() {
            let reducing = self.recovery.is_reducing();
            self.congestion.threshold = self.congestion.current_threshold(reducing);
            self.congestion.restart(silence_ns, rto_ns);
            self.usage = Usage { until: self.next, ..Usage::default() };
        }
        self.control.starts_again(now_ns, self.sent_ns, self.meter.is_app_limited());
    }

    /// Where the next new segment would end and whether it has the FIN, if it may leave.
    fn next_piece(&self) -> Option<(u64, bool)> {
        if !self.has_unsent() {
            return None;
        }
        let mss = u64::from(self.terms.mss);
        let data_end = self.una + self.bytes.len() as u64;
        let mut end = data_end.min(self.next + mss);
        let fin = self.closing && end == data_end;
        if end + u64::from(fin) > self.window_end() {
            // Not in parts: a window that opens by bytes would make segments of bytes (RFC 9293,
            // 3.8.6.2.1).
            return None;
        }
        if end - self.next < mss && !fin && self.must_wait() {
            return None;
        }
        end += u64::from(fin);
        Some((end, fin))
    }

    /// Nagle's rule: a short segment waits while another is on its way.
    fn must_wait(&self) -> bool {
        let short_out = self.short_end > self.una && self.short_end <= self.next;
        !self.terms.no_delay && !self.board.is_empty() && short_out
    }

    /// Whether a segment lies within the window, or is the one that asks whether there is one.
    fn fits(&self, index: usize) -> bool {
        self.board.get(index).is_some_and(|sent| sent.from < self.window_end() || index == 0)
    }

    fn send(&mut self, now_ns: u64, end: u64, fin: bool) -> Piece {
        let from = self.next;
        let snapshot = self.meter.sends(now_ns, self.board.is_empty());
        self.board.push(Sent {
            from,
            to: end,
            sent_ns: now_ns,
            fate: Fate::Flying,
            again: false,
            snapshot,
        });
        if end - u64::from(fin) - from < u64::from(self.terms.mss) {
            self.short_end = end;
        }
        self.next = end;
        self.fin_sent |= fin;
        self.sent_ns = now_ns;
        self.stats.segments += 1;
        self.piece(now_ns, from..end, fin)
    }

    fn resend(&mut self, index: usize, now_ns: u64) -> Piece {
        let snapshot = self.meter.sends(now_ns, false);
        self.board.resend(index, now_ns, snapshot);
        self.recovery.resends(now_ns);
        self.again(index, now_ns)
    }

    /// What was sent before, once more.
    fn again(&mut self, index: usize, now_ns: u64) -> Piece {
        self.stats.segments += 1;
        self.stats.retransmissions += 1;
        let range = self.board.get(index).map_or(self.una..self.una, |sent| sent.from..sent.to);
        let fin = self.fin_sent && range.end == self.next;
        self.piece(now_ns, range, fin)
    }

    fn piece(&mut self, now_ns: u64, range: Range<u64>, fin: bool) -> Piece {
        let Range { start, end } = range;
        let data_end = end - u64::from(fin);
        let span = (start - self.una) as usize..(data_end - self.una) as usize;
        let bytes = ring::copy(&self.bytes, span);
        self.pace(now_ns, bytes.len() as u64);
        let push = data_end == self.una + self.bytes.len() as u64;
        Piece { from: start, bytes, fin, push }
    }

    fn pace(&mut self, now_ns: u64, bytes: u64) {
        if let Some(rate) = self.control.pacing_rate() {
            let burst = burst(rate, u64::from(self.terms.mss));
            self.pacer.sends(now_ns, bytes, rate, burst);
        }
    }

    fn note_usage(&mut self) {
        let out = self.board.len();
        let limited = self.in_flight() >= self.congestion.segments;
        let usage = &mut self.usage;
        if self.una >= usage.until || limited || (!usage.limited && out > usage.most) {
            *usage = Usage { limited, most: out, until: self.next };
        }
        let dry = !self.has_unsent() && !limited && self.board.lost() <= self.board.resent();
        if dry {
            self.meter.runs_dry(self.in_flight());
        }
    }

    /// Whether the window has been used, so that it may grow (`tcp_is_cwnd_limited`).
    pub(super) const fn is_window_used(&self) -> bool {
        let Usage { limited, most, .. } = self.usage;
        limited || (self.congestion.in_slow_start() && self.congestion.segments < 2 * most)
    }

    /// What congestion control is told, and the parts of the sender that it moves.
    pub(super) fn tell<'a>(
        &'a mut self,
        now_ns: u64,
        sample: &'a RateSample,
    ) -> (&'a mut Control, Told<'a>, &'a mut Window) {
        let told = Told {
            now_ns,
            sample,
            in_flight: self.in_flight(),
            una: self.una,
            next: self.next,
            delivered: self.meter.delivered,
            delivered_ns: self.meter.delivered_ns,
            srtt_ns: self.rtt.smoothed_ns(),
            repair: self.repair(),
        };
        (&mut self.control, told, &mut self.congestion)
    }

    const fn repair(&self) -> Repair {
        self.recovery.repair()
    }
}
