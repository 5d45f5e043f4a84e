//! What was sent and is not acknowledged in order: where each segment is believed to be.
//!
//! The scoreboard of RFC 6675 with the marks of Linux (`TCPCB_SACKED_ACKED`, `TCPCB_LOST`,
//! `TCPCB_SACKED_RETRANS`), as one state a segment. Decides nothing: who marks a segment lost is
//! [`super::rack`] or a timeout.

use std::collections::VecDeque;

use super::rate::Snapshot;

/// Where a segment is believed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// On its way.
    Flying,
    /// On its way twice: it left again because it seemed to be lost, and was not.
    Doubled,
    /// Gone, and to be sent again.
    Lost,
    /// Was lost, and is on its way again.
    Resent,
    /// Arrived, says a SACK block.
    Arrived,
}

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The positions that it takes, FIN included.
    pub(super) from: u64,
    pub(super) to: u64,
    /// When it left last.
    pub(super) sent_ns: u64,
    pub(super) fate: Fate,
    /// It was sent more than once.
    pub(super) again: bool,
    /// What had been delivered when it left last.
    pub(super) snapshot: Snapshot,
}

/// All segments from the first that is not acknowledged in order.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    sent: VecDeque<Sent>,
    in_flight: u32,
    arrived: u32,
    lost: u32,
    resent: u32,
    /// One past the highest position that a SACK block named.
    highest_arrived: u64,
}

impl Fate {
    /// How many copies are on the way.
    const fn copies(self) -> u32 {
        match self {
            Self::Flying | Self::Resent => 1,
            Self::Doubled => 2,
            Self::Lost | Self::Arrived => 0,
        }
    }

    /// It was believed lost and has not arrived.
    const fn was_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Resent)
    }

    /// A second copy is on the way (`retrans_out`).
    const fn is_copied(self) -> bool {
        matches!(self, Self::Doubled | Self::Resent)
    }
}

impl Scoreboard {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Segments that are not acknowledged in order (`packets_out`).
    pub(super) fn len(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Segments believed to be on their way (`tcp_packets_in_flight`).
    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Segments that SACK blocks named (`sacked_out`).
    pub(super) const fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Segments believed lost, those that were sent again included (`lost_out`).
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Segments of which a second copy is on the way (`retrans_out`).
    pub(super) const fn resent(&self) -> u32 {
        self.resent
    }

    /// One past the highest position that a SACK block named.
    pub(super) const fn highest_arrived(&self) -> u64 {
        self.highest_arrived
    }

    /// The first segment that is not acknowledged in order.
    pub(super) fn head(&self) -> Option<&Sent> {
        self.sent.front()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Sent> {
        self.sent.get(index)
    }

    /// A segment leaves for the first time.
    pub(super) fn push(&mut self, sent: Sent) {
        self.count(sent.fate, true);
        self.sent.push_back(sent);
    }

    /// A segment leaves again to find out what has arrived: it counts as on its way once, as before
    /// (`__tcp_retransmit_skb` without `TCPCB_SACKED_RETRANS`).
    pub(super) fn probe(&mut self, index: usize, now_ns: u64, snapshot: Snapshot) {
        let Some(sent) = self.sent.get_mut(index) else { return };
        sent.sent_ns = now_ns;
        sent.again = true;
        sent.snapshot = snapshot;
    }

    /// A segment leaves again, to repair a loss.
    pub(super) fn resend(&mut self, index: usize, now_ns: u64, snapshot: Snapshot) {
        self.probe(index, now_ns, snapshot);
        let Some(sent) = self.sent.get(index) else { return };
        let fate = match sent.fate {
            Fate::Lost | Fate::Resent => Fate::Resent,
            Fate::Flying | Fate::Doubled => Fate::Doubled,
            Fate::Arrived => Fate::Arrived,
        };
        self.change(index, fate);
    }

    /// Everything below `una` has arrived in order: takes it out and returns it, oldest first. A
    /// segment that is acknowledged in part stays with the rest.
    pub(super) fn acknowledge(&mut self, una: u64) -> Vec<Sent> {
        let whole = self.sent.partition_point(|sent| sent.to <= una);
        let gone: Vec<Sent> = self.sent.drain(..whole).collect();
        for sent in &gone {
            self.count(sent.fate, false);
        }
        if let Some(head) = self.sent.front_mut() {
            head.from = head.from.max(una);
        }
        gone
    }

    /// A SACK block names these positions: returns the segments that were not known to have
    /// arrived, as they were. Only whole segments count.
    pub(super) fn arrive(&mut self, from: u64, to: u64) -> Vec<Sent> {
        let first = self.sent.partition_point(|sent| sent.from < from);
        let mut news = Vec::new();
        for index in first..self.sent.len() {
            let sent = self.sent[index];
            if sent.to > to {
                break;
            }
            if sent.fate != Fate::Arrived {
                news.push(sent);
                self.change(index, Fate::Arrived);
                self.highest_arrived = self.highest_arrived.max(sent.to);
            }
        }
        news
    }

    /// A segment is believed lost; one that was sent again, once more. Says whether that is news.
    pub(super) fn lose(&mut self, index: usize) -> bool {
        let Some(sent) = self.sent.get(index) else { return false };
        let fate = match sent.fate {
            Fate::Flying | Fate::Resent => Fate::Lost,
            // The first is lost; its copy is on the way.
            Fate::Doubled => Fate::Resent,
            Fate::Lost | Fate::Arrived => return false,
        };
        self.change(index, fate);
        true
    }

    /// Nothing was lost after all (`tcp_undo_cwnd_reduction` with `unmark_loss`).
    pub(super) fn find_again(&mut self) {
        for index in 0..self.sent.len() {
            match self.sent[index].fate {
                Fate::Lost => self.change(index, Fate::Flying),
                Fate::Resent => self.change(index, Fate::Doubled),
                Fate::Flying | Fate::Doubled | Fate::Arrived => {}
            }
        }
    }

    /// The other end threw away what it had named (RFC 2018, 8): nothing beyond the head arrived.
    pub(super) fn renege(&mut self) {
        for index in 0..self.sent.len() {
            if self.sent[index].fate == Fate::Arrived {
                self.change(index, Fate::Flying);
            }
        }
        self.highest_arrived = 0;
    }

    /// The first segment that is lost and not on its way again.
    pub(super) fn first_lost(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        self.sent.iter().position(|sent| sent.fate == Fate::Lost)
    }

    fn change(&mut self, index: usize, fate: Fate) {
        let old = std::mem::replace(&mut self.sent[index].fate, fate);
        self.count(old, false);
        self.count(fate, true);
    }

    fn count(&mut self, fate: Fate, more: bool) {
        let add = |count: &mut u32, by: u32| {
            *count = if more { *count + by } else { *count - by };
        };
        add(&mut self.in_flight, fate.copies());
        add(&mut self.arrived, u32::from(fate == Fate::Arrived));
        add(&mut self.lost, u32::from(fate.was_lost()));
        add(&mut self.resent, u32::from(fate.is_copied()));
    }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
