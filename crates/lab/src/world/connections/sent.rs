//! What both ends of a connection have sent, by what they count themselves.

use super::Connection;
use crate::ground::Segments;

impl Connection {
    /// Of both together: who only hears sends no more than its end.
    pub(in crate::world) fn segments(&self) -> Segments {
        let all = self.ends.iter().map(|at| at.end.sender_stats());
        all.fold(Segments::default(), |sum, one| Segments {
            sent: sum.sent + one.segments,
            again: sum.again + one.retransmissions,
        })
    }
}
