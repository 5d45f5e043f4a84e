//! The performance-enhancing proxy (RFC 3135) for inner connections: what the local side sent is
//! kept until the remote side has it, and acknowledged in its place while no path works.
//!
//! `tcp` is one connection: its state, and what is done for it while no path works and after that.
//! `cache` keeps its bytes, `heads` its headers, `memory` counts both. `datagrams` keeps first
//! requests of other protocols.

pub(super) mod aggregate;
pub(super) mod cache;
pub(super) mod datagrams;
pub(super) mod heads;
pub(super) mod memory;
pub(super) mod patience;
pub(super) mod predict;
pub(super) mod race;
pub(super) mod share;
pub(super) mod tcp;
pub(super) mod trip;
pub(super) mod unreached;
pub(super) mod worth;
