//! Loss and recovery where the other end knows no SACK blocks (RFC 6582; `tcp_input.c`:
//! `tcp_add_reno_sack`, `tcp_newreno_mark_lost`).
//!
//! A duplicate acknowledgment stands for a segment that has arrived, nobody knows which. Three of
//! them lose the head; while that is repaired, an acknowledgment of a part loses the next.

use super::Sender;
use super::news::News;
use super::recovery::Repairing;

/// Duplicates that make a loss (`tcp_reordering`).
const DUPTHRESH: u32 = 3;

impl Sender {
    /// Segments believed to be on their way (`tcp_packets_in_flight`).
    pub(in crate::tcp) const fn in_flight(&self) -> u32 {
        self.board.in_flight().saturating_sub(self.duplicates)
    }

    /// An acknowledgment says what the one before said: something has arrived out of order.
    pub(super) fn count_duplicate(&mut self, news: &mut News) {
        let anonymous = !self.terms.sack && news.nothing && self.duplicates < self.board.len();
        if anonymous && !self.board.is_empty() {
            self.duplicates += 1;
            self.meter.delivered += 1;
            news.delivered += 1;
        }
    }

    /// So many segments are acknowledged: one of them was missing, for the others duplicates may
    /// have stood.
    pub(super) fn eat_duplicates(&mut self, segments: u32, news: &mut News) {
        let eaten = self.duplicates.min(segments.saturating_sub(1));
        self.duplicates -= eaten;
        self.meter.delivered -= u64::from(eaten);
        news.delivered = news.delivered.saturating_sub(eaten);
        if self.board.is_empty() {
            self.duplicates = 0;
        }
    }

    /// Marks the head if it is lost.
    pub(super) fn find_losses_without_sack(&mut self, news: &mut News) {
        let repairing = self.recovery.state >= Repairing::Recovery;
        let first = !repairing && self.duplicates >= DUPTHRESH;
        let next = self.recovery.state == Repairing::Recovery && news.advanced;
        let resent = self.board.head().is_some_and(|head| head.again);
        if (first || next) && !resent {
            news.losses += u32::from(self.board.lose(0));
        }
    }
}
