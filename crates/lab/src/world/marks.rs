//! What is known of datagrams by their hashes: a table that answers at the same price however many
//! millions there are, where a tree has a miss of the cache for each of its floors.

#![expect(clippy::disallowed_types, reason = "asked only, never walked through")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Something about each.
pub(super) type Marks<T> = HashMap<u64, T, BuildHasherDefault<AsItIs>>;

/// Some of them.
pub(super) type MarkSet = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// The hash of a hash.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = super::hash::hash(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
