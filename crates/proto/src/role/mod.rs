//! What a peer may do, by this node's role: which inner addresses are its own, and where its
//! packets may go.
//!
//! Judges each inner packet by addresses, ports and earlier packets. Knows nothing of sessions or
//! paths.

pub mod access;
mod admission;
mod answers;
pub mod global;
mod refusals;

pub use access::{Access, Allow};
pub use admission::Admission;
