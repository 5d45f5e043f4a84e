//! How many paths a client may open: the gateway issues indices for them, and a path takes one when
//! it is asked.
//!
//! The session says what is left before the path manager acts. It knows nothing of keys.

use std::net::IpAddr;

use crate::id::LinkId;
use crate::path::{Path, PathId};

/// What is left of the gateway's indices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indices {
    /// Whether there are keys.
    has_keys: bool,
    spare: usize,
    /// Networks where a number space is free that no packet ever arrived in: another path there
    /// takes it over.
    unheard: Vec<(LinkId, IpAddr)>,
    /// Paths that have a number space.
    used_by: Vec<PathId>,
}

impl Indices {
    /// There are no keys, so nothing can be sent.
    pub(crate) fn none(&mut self) {
        self.has_keys = false;
        self.spare = 0;
        self.unheard.clear();
        self.used_by.clear();
    }

    /// There are so many. `unheard` are the networks of free number spaces, `used_by` the paths
    /// that have one.
    pub(crate) fn are(
        &mut self,
        spare: usize,
        unheard: impl Iterator<Item = (LinkId, IpAddr)>,
        used_by: impl Iterator<Item = PathId>,
    ) {
        self.none();
        self.has_keys = true;
        self.spare = spare;
        self.unheard.extend(unheard);
        self.used_by.extend(used_by);
    }

    /// Whether anything can be sent at all.
    pub(super) const fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Takes one for a path on this network, which must leave `kept` for others. Returns whether
    /// there was one.
    pub(super) fn take(&mut self, network: (LinkId, IpAddr), kept: usize) -> bool {
        if let Some(place) = self.unheard.iter().position(|free| *free == network) {
            self.unheard.swap_remove(place);
            return true;
        }
        let is_left = self.spare > kept;
        self.spare -= usize::from(is_left);
        is_left
    }

    /// The path is removed: its number space is free for another one on that network, if no packet
    /// arrived in it.
    pub(super) fn give_back(&mut self, path: &Path) {
        if self.used_by.contains(&path.id) {
            self.unheard.extend(path.unheard_network());
        }
    }
}
