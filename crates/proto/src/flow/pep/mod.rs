//! The performance-enhancing proxy (RFC 3135) for inner connections: what the local side sent is
//! kept until the remote side has it, and acknowledged in its place while no path works.
//!
//! `tcp` is one connection's state and `progress` how far it is; `cache` keeps its bytes, `heads`
//! its headers, `memory` counts both. During an outage `hold` answers for the remote side,
//! afterwards `resume` delivers; `breakoff` resets what an earlier process could not deliver.
//! `narrow` limits the receive window
//! of low-priority connections. `datagrams` keeps first requests of other protocols.

pub(super) mod aggregate;
pub(super) mod breakoff;
pub(super) mod cache;
pub(super) mod datagrams;
pub(super) mod heads;
pub(super) mod hold;
pub(super) mod memory;
pub(super) mod narrow;
pub(super) mod patience;
pub(super) mod predict;
pub(super) mod progress;
pub(super) mod resume;
pub(super) mod share;
pub(super) mod speak;
pub(super) mod tcp;
pub(super) mod trip;
pub(super) mod unreached;
pub(super) mod worth;
