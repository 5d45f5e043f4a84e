//! Whether large datagrams vanish on a path while others arrive: then it has shrunk.

use crate::id::PacketNumber;
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::Feedback;

/// Large datagrams lost one after the other, of those watched, that mean that the path shrank. At
/// 10 % loss this happens by chance once in a hundred thousand.
const LOST_MAX: u8 = 5;

/// Samples the fate of datagrams larger than every path carries, one at a time: a path that
/// shrinks loses all of them while the small ones arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Large {
    watched: Option<PacketNumber>,
    lost: u8,
}

impl Large {
    /// The datagram `number` left with `len` bytes.
    pub fn sent(&mut self, number: PacketNumber, len: usize) {
        if len > BASE_DATAGRAM {
            self.watched.get_or_insert(number);
        }
    }

    /// Takes what the peer tells.
    pub fn judge(&mut self, feedback: &Feedback) {
        let Some(number) = self.watched.filter(|&number| number <= feedback.largest) else {
            return;
        };
        self.watched = None;
        if feedback.acknowledges(number) {
            self.lost = 0;
        } else if feedback.reaches(number) {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Whether large datagrams vanish while others arrive: said once, then watched anew.
    pub const fn takes_shrunk(&mut self) -> bool {
        let shrunk = self.lost >= LOST_MAX;
        if shrunk {
            self.lost = 0;
        }
        shrunk
    }
}
