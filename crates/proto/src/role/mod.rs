//! What a peer may do, by this node's role: which inner addresses are its own, and where its
//! packets may go.
//!
//! Judges each inner packet by addresses and ports alone. Knows nothing of sessions or paths.

pub mod access;
pub mod global;

pub use access::{Access, Allow};
