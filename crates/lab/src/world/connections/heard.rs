//! What a program heard of a stream, and when.

use crate::arrivals::Arrivals;
use crate::tcp::{End, State};

/// What was heard so far.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Heard {
    /// When the connection was open.
    pub(in crate::world) opened_ns: Option<u64>,
    /// When the first byte came.
    pub(in crate::world) first_ns: Option<u64>,
    /// When the bytes came.
    pub(in crate::world) arrivals: Arrivals,
    /// How many there were at each of these times.
    pub(in crate::world) progress: Vec<(u64, u64)>,
}

impl Heard {
    /// Whether the connection is open, for the first time.
    pub(super) fn note_open(&mut self, now_ns: u64, end: &End) {
        if is_open(end) {
            self.opened_ns.get_or_insert(now_ns);
        }
    }

    /// So many bytes have come.
    pub(super) fn note(&mut self, now_ns: u64, bytes: u64) {
        self.first_ns.get_or_insert(now_ns);
        self.arrivals.note(now_ns);
        let so_far = self.bytes() + bytes;
        self.progress.push((now_ns, so_far));
    }

    /// How many have come.
    pub(in crate::world) fn bytes(&self) -> u64 {
        self.progress.last().map_or(0, |(_, bytes)| *bytes)
    }
}

/// Whether something can be said over it.
pub(super) fn is_open(end: &End) -> bool {
    matches!(end.state(), State::Established | State::CloseWait)
}
