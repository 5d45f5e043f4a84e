//! What changed in a session, until the parts above the tunnel have acted on it.

use crate::path::PathId;
use crate::time::Instant;

/// Changes that nobody has acted on. Each is returned once, but for `replaced_at`.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    carries_anew: bool,
    asks_active: bool,
    removed: Vec<PathId>,
    replaced_at: Option<Instant>,
}

impl Changes {
    /// The paths are forgotten, and what was said of them.
    pub(crate) fn forget_paths(&mut self) {
        self.asks_active = false;
        self.removed.clear();
        self.replaced_at = None;
    }

    /// A path carries that did not before.
    pub(crate) const fn note_carries(&mut self) {
        self.carries_anew = true;
    }

    /// Whether a path has begun to carry. Then waiting packets may leave.
    pub(crate) const fn take_carries(&mut self) -> bool {
        std::mem::replace(&mut self.carries_anew, false)
    }

    /// The path in use was challenged.
    pub(crate) const fn note_asked(&mut self) {
        self.asks_active = true;
    }

    /// Whether the path in use was challenged.
    pub(crate) const fn take_asked(&mut self) -> bool {
        std::mem::replace(&mut self.asks_active, false)
    }

    /// A path replaced one that carried.
    pub(crate) const fn note_replaced(&mut self, now: Instant) {
        self.replaced_at = Some(now);
    }

    /// When a path last replaced one that carried. For a while after that less may wait before the
    /// paths.
    pub(crate) const fn replaced_at(&self) -> Option<Instant> {
        self.replaced_at
    }

    /// A path was removed because it did not work.
    pub(crate) fn note_removed(&mut self, id: PathId) {
        self.removed.push(id);
    }

    /// A path that was removed because it did not work.
    pub(crate) fn take_removed(&mut self) -> Option<PathId> {
        self.removed.pop()
    }
}
