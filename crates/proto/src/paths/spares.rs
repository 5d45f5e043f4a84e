//! What a client keeps beside the path in use: which candidates are to be proven ahead of need, and
//! which paths are kept for that. `plan::spread` decides which, `standby` and `moving` open them.

use super::candidate::Candidate;
use crate::multipath::{Mode, Spread};
use crate::path::PathId;

/// The spare paths of a client.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// What the user makes of the links,
    mode: Mode,
    /// and which paths carry together.
    spread: Spread,
    /// Each as often as there shall be paths by it.
    wanted: Vec<Candidate>,
    /// Whether there are more candidates than places.
    is_crowded: bool,
    kept: Vec<PathId>,
}

impl Spares {
    /// The user wants these from now on.
    pub(super) const fn configure(&mut self, mode: Mode, spread: Spread) {
        (self.mode, self.spread) = (mode, spread);
    }

    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) const fn spread(&self) -> Spread {
        self.spread
    }

    /// These are to be proven ahead of need, of more if it is crowded.
    pub(super) fn want(&mut self, wanted: Vec<Candidate>, is_crowded: bool) {
        (self.wanted, self.is_crowded) = (wanted, is_crowded);
    }

    pub(super) fn wanted(&self) -> &[Candidate] {
        &self.wanted
    }

    pub(super) const fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// These paths are kept.
    pub(super) fn keep(&mut self, kept: Vec<PathId>) {
        self.kept = kept;
    }

    /// Whether a path is kept.
    pub(super) fn has(&self, path: PathId) -> bool {
        self.kept.contains(&path)
    }
}
