//! What left by each path with a share, until the choice among paths is told of it.
//!
//! Any part of the tunnel may send a datagram at any time, and each one takes room from its path. A
//! path that carries without being looked at keeps one note.

use crate::path::{PATHS_MAX, PathId};
use crate::time::Instant;

/// What left by one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Departure {
    /// The path.
    pub(crate) path: PathId,
    /// When it may carry another datagram.
    pub(crate) next_at: Instant,
    /// Bytes of the datagrams.
    pub(crate) bytes: usize,
}

/// What left by all paths, one note for each and at most [`PATHS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Departures {
    notes: Vec<Departure>,
}

impl Departures {
    /// A datagram has left. Beyond [`PATHS_MAX`] the oldest note is dropped: its path is gone.
    pub(super) fn note(&mut self, new: Departure) {
        if let Some(known) = self.notes.iter_mut().find(|known| known.path == new.path) {
            known.next_at = new.next_at;
            known.bytes = known.bytes.saturating_add(new.bytes);
            return;
        }
        if self.notes.len() >= PATHS_MAX {
            self.notes.remove(0);
        }
        self.notes.push(new);
    }

    /// Takes all notes.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Departure> {
        self.notes.drain(..)
    }

    /// The paths are forgotten.
    pub(super) fn forget(&mut self) {
        self.notes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: u32, next_ms: u64, bytes: usize) -> Departure {
        Departure { path: PathId(path), next_at: Instant::from_nanos(next_ms * 1_000_000), bytes }
    }

    #[test]
    fn each_path_has_one_note_which_is_taken_once() {
        let mut departures = Departures::default();
        departures.note(of(1, 5, 100));
        departures.note(of(2, 6, 30));
        departures.note(of(1, 7, 11));
        assert_eq!(departures.take().collect::<Vec<_>>(), [of(1, 7, 111), of(2, 6, 30)]);
        assert_eq!(departures.take().count(), 0);
    }

    #[test]
    fn paths_that_come_and_go_unseen_cost_bounded_memory() {
        let mut departures = Departures::default();
        (0..100).for_each(|path| departures.note(of(path, 1, 1)));
        let left: Vec<_> = departures.take().map(|one| one.path).collect();
        assert_eq!(left.len(), PATHS_MAX);
        assert_eq!(left.last(), Some(&PathId(99)), "the newest stay");
    }
}
