//! Whether large datagrams vanish on a path while others arrive: then it has shrunk.
//!
//! A path that shrank carries none that is too large for it. One that is offered more than it has
//! room for loses many in a row, and carries others of the same size between them: a datagram that
//! arrives is the end of the row for all that are no larger. How much is lost beside is not asked:
//! a full queue has room for the small when it has none for the large.

use crate::id::PacketNumber;
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::Feedback;

/// Large datagrams lost one after the other, of those watched, mean that the path shrank if this
/// happens by chance no more often, where no other is sent. A wrong doubt costs a search, which may
/// fail on a path that loses much.
const BY_CHANCE: f64 = 1e-5;
/// The number on a path that loses 10 %, and on all that lose less. On one that loses half it is
/// 17.
const LOST_MIN: f64 = 5.0;
/// The most: at a loss of 70 %. A path that loses more is of little use with any MTU.
const LOST_MAX: f64 = 32.0;

/// Samples the fate of datagrams larger than every path carries, one at a time: a path that
/// shrinks loses all of them while the small ones arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Large {
    /// Number and bytes.
    watched: Option<(PacketNumber, usize)>,
    lost: u8,
    /// The part of all datagrams that the path had lost before the first of them.
    loss: f64,
    /// The smallest of those lost, in bytes.
    lost_len: usize,
    /// The largest that the last feedback told of as arrived, in bytes; 0 if no large one was.
    arrived: usize,
}

impl Large {
    /// The datagram `number` left with `len` bytes.
    pub fn sent(&mut self, number: PacketNumber, len: usize) {
        if len > BASE_DATAGRAM {
            self.watched.get_or_insert((number, len));
        }
    }

    /// What follows is what other feedback tells.
    pub const fn begin(&mut self) {
        self.arrived = 0;
    }

    /// A datagram of `len` bytes has arrived.
    pub fn arrived(&mut self, len: usize) {
        if len > BASE_DATAGRAM {
            self.arrived = self.arrived.max(len);
        }
    }

    /// Takes what the peer tells, after all that has arrived by it. Before that the path had lost
    /// the part `loss` of all datagrams.
    pub fn judge(&mut self, feedback: &Feedback, loss: f64) {
        if self.arrived >= self.lost_len {
            self.lost = 0;
        }
        let watched = self.watched.take_if(|&mut (number, _)| number <= feedback.largest);
        let Some((number, len)) = watched.filter(|&(number, _)| feedback.reaches(number)) else {
            return;
        };
        if self.arrived < len && !feedback.acknowledges(number) {
            if self.lost == 0 {
                (self.lost_len, self.loss) = (len, loss);
            }
            self.lost_len = self.lost_len.min(len);
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The largest that the last feedback told of as arrived, in bytes; 0 if no large one was.
    pub(crate) const fn largest_arrived(&self) -> usize {
        self.arrived
    }

    /// Whether large datagrams vanish while others arrive: said once, then watched anew.
    pub(crate) fn takes_shrunk(&mut self) -> bool {
        if f64::from(self.lost) < LOST_MIN {
            return false;
        }
        let by_chance = BY_CHANCE.ln() / self.loss.clamp(f64::MIN_POSITIVE, 0.99).ln();
        let shrunk = f64::from(self.lost) >= by_chance.round().clamp(LOST_MIN, LOST_MAX);
        if shrunk {
            self.lost = 0;
        }
        shrunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PathSerial;

    /// Sends datagrams of these lengths, and a small one after each, on a path that loses the part
    /// `loss`. Feedback tells which of them arrived. Returns whether the path has shrunk by then.
    fn shrinks(loss: f64, fates: &[(usize, bool)]) -> bool {
        let mut large = Large::default();
        let mut shrunk = false;
        for (largest, &(len, arrives)) in (1..).step_by(2).zip(fates) {
            large.sent(largest - 1, len);
            large.sent(largest, 100);
            large.begin();
            large.arrived(100);
            if arrives {
                large.arrived(len);
            }
            large.judge(&feedback(largest, arrives), loss);
            shrunk |= large.takes_shrunk();
        }
        shrunk
    }

    fn feedback(largest: u64, both: bool) -> Feedback {
        let mut runs = [(0, 0); crate::wire::frame::FEEDBACK_RUNS_MAX];
        runs[0] = if both { (2, 0) } else { (1, 1) };
        let serial = PathSerial(1);
        Feedback { serial, largest, delay_us: 0, arrived_us: 0, received: 0, bytes: 0, runs }
    }

    #[test]
    fn five_in_a_row_are_a_path_that_shrank() {
        assert!(!shrinks(0.0, &[(1_400, false); 4]));
        assert!(shrinks(0.0, &[(1_400, false); 5]));
        assert!(!shrinks(0.0, &[(1_090, false); 9]), "every path carries those");
    }

    #[test]
    fn on_a_path_that_loses_much_more_in_a_row_are_chance() {
        for (loss, least) in [(0.05, 5), (0.1, 5), (0.3, 10), (0.5, 17), (0.9, 32)] {
            assert!(!shrinks(loss, &vec![(1_400, false); least - 1]), "{loss}");
            assert!(shrinks(loss, &vec![(1_400, false); least]), "{loss}");
        }
    }

    #[test]
    fn one_of_a_size_that_arrives_ends_the_row_of_it_and_of_none_that_is_larger() {
        let [lost, arrived] = [(1_400, false), (1_400, true)];
        assert!(!shrinks(0.0, &[lost, lost, lost, lost, arrived, lost, lost, lost, lost]));
        let smaller = (1_300, true);
        assert!(shrinks(0.0, &[lost, lost, lost, lost, smaller, lost]));
    }

    #[test]
    fn what_nobody_watched_counts_as_arrived() {
        let mut large = Large::default();
        for number in (0..200).step_by(2) {
            large.sent(number, 1_400);
            large.sent(number + 1, 1_400);
            large.begin();
            large.arrived(1_400); // the second of the two
            large.judge(&feedback(number + 1, false), 0.0);
            assert!(!large.takes_shrunk());
        }
    }
}
