//! Which segments are lost, by time (RACK, RFC 8985; `tcp_recovery.c`).
//!
//! A segment is lost when one that left after it has arrived and the reordering window has passed
//! since. The window is nothing until reordering was seen, a quarter of the shortest round trip
//! then, and more for each round trip in which a duplicate told that a loss was none.

use super::rtt::Rtt;
use super::scoreboard::{Fate, Scoreboard, Sent};
use super::wheel::TICK_NS;

/// Segments that must have arrived out of order before a loss is believed at once
/// (`tcp_reordering`).
const DUPTHRESH: u32 = 3;
/// Recoveries for which a wider window lasts (`TCP_RACK_RECOVERY_THRESH`).
const PERSISTENCE: u8 = 16;
/// What the timer adds (`TCP_TIMEOUT_MIN`).
pub(super) const TICKS_NS: u64 = 2 * TICK_NS;

/// What arrived last of what was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rack {
    /// When the newest segment that has arrived left, and where it ends.
    newest: Option<(u64, u64)>,
    /// Its round trip.
    rtt_ns: u64,
    /// Reordering was seen.
    pub(super) reordering_seen: bool,
    /// Quarters of the shortest round trip in the window, and for how many recoveries.
    steps: u8,
    persistence: u8,
    /// The window is widened once a round trip: the next time when this was delivered.
    widened_at: u64,
    widen: bool,
}

/// What a look at the scoreboard found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    /// Segments newly lost.
    pub(super) losses: u32,
    /// Look again after so long: one may be late only.
    pub(super) again_ns: Option<u64>,
}

impl Rack {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            rtt_ns: 0,
            reordering_seen: false,
            steps: 1,
            persistence: 0,
            widened_at: 0,
            widen: false,
        }
    }

    /// A segment has arrived (`tcp_rack_advance`).
    pub(super) fn arrives(&mut self, now_ns: u64, sent: &Sent, shortest_ns: u64) {
        let rtt_ns = now_ns.saturating_sub(sent.sent_ns);
        if sent.again && rtt_ns < shortest_ns {
            // It is the first copy that has arrived.
            return;
        }
        self.rtt_ns = rtt_ns;
        if self.newest.is_none_or(|newest| (sent.sent_ns, sent.to) > newest) {
            self.newest = Some((sent.sent_ns, sent.to));
        }
    }

    /// Marks what is lost (`tcp_rack_detect_loss`).
    pub(super) fn look(
        &self,
        now_ns: u64,
        board: &mut Scoreboard,
        rtt: &Rtt,
        repairing: bool,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let Some(newest) = self.newest else { return verdict };
        let patience_ns = self.rtt_ns + self.window_ns(board, rtt, repairing);
        for index in 0..board.len() as usize {
            let Some(sent) = board.get(index).copied() else { break };
            if matches!(sent.fate, Fate::Arrived | Fate::Lost) {
                continue;
            }
            if (sent.sent_ns, sent.to) >= newest {
                continue;
            }
            let passed_ns = now_ns.saturating_sub(sent.sent_ns);
            if passed_ns >= patience_ns {
                verdict.losses += u32::from(board.lose(index));
            } else {
                let left_ns = patience_ns - passed_ns;
                verdict.again_ns = Some(verdict.again_ns.map_or(left_ns, |at| at.max(left_ns)));
            }
        }
        verdict
    }

    /// Whether a segment may still arrive though the timer has fired (`tcp_rack_skb_timeout`).
    pub(super) fn may_arrive(
        &self,
        now_ns: u64,
        sent: &Sent,
        board: &Scoreboard,
        rtt: &Rtt,
        repairing: bool,
    ) -> bool {
        let patience_ns = self.rtt_ns + self.window_ns(board, rtt, repairing);
        now_ns.saturating_sub(sent.sent_ns) < patience_ns
    }

    /// An acknowledgment told of duplicates, or a recovery is over (`tcp_rack_update_reo_wnd`).
    pub(super) fn widens(&mut self, duplicate: bool, prior_delivered: u64, delivered: u64) {
        if duplicate && prior_delivered > self.widened_at {
            self.widen = true;
        }
        if self.widen {
            self.steps = self.steps.saturating_add(1);
            self.persistence = PERSISTENCE;
            self.widened_at = delivered;
            self.widen = false;
        } else if self.persistence == 0 {
            self.steps = 1;
        }
    }

    /// A recovery ended.
    pub(super) const fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
    }

    /// The reordering window (`tcp_rack_reo_wnd`).
    fn window_ns(&self, board: &Scoreboard, rtt: &Rtt, repairing: bool) -> u64 {
        if !self.reordering_seen && (repairing || board.arrived() >= DUPTHRESH) {
            return 0;
        }
        let quarter_ns = match rtt.shortest_ns() {
            u64::MAX => 0,
            shortest_ns => shortest_ns / 4,
        };
        (quarter_ns * u64::from(self.steps)).min(rtt.smoothed_ns().unwrap_or(0))
    }
}
