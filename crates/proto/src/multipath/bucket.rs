//! Buckets: flows with the same 8 bits of hash share a sequence of numbers and a queue.

/// Buckets in one direction of a session.
pub(crate) const BUCKETS: usize = 256;
