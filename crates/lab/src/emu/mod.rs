//! An emulated Internet: links, routers and NAT boxes, as a pure function of time.
//!
//! Nothing here owns a clock, a socket or a thread. The caller says what time it is with every
//! call, in nanoseconds since a start of its own choosing, and asks when to call again. So one
//! and the same emulator runs in virtual time (the simulated world), where its bounds are exact,
//! and in real time between network namespaces ([`crate::netns`]), where they are as good as the
//! machine's scheduling.
//!
//! Three verbs, after the example of sans-IO protocol cores:
//! - [`Internet::push`] hands in a packet that a host sends on one of its links;
//! - [`Internet::poll_delivery`] hands out, in order, the packets that have arrived at hosts;
//! - [`Internet::poll_timeout`] says when the next one can possibly arrive.
//!
//! The law, tested: after `poll_delivery(t)` returned `None`, `poll_timeout()` is `None` or later
//! than `t`. All chance comes from one seed, so the same pushes give the same deliveries.
//!
//! What it decides: whether, when and where a packet comes out. What it refuses to know: what the
//! packet means beyond addresses and ports. Lengths are those of layer 3; there is no Ethernet,
//! no ARP and no ICMP of its own here, and no fragmentation: links carry any length.

mod changes;
mod filter;
mod frame;
mod internet;
mod loss;
mod nat;
mod pipe;
mod policer;
mod preset;
mod recordings;
mod rng;
mod trace;

pub use changes::Changes;
pub use filter::Filter;
pub use frame::{Datagram, Endpoints, Frame, IpPacket, Protocol};
pub use internet::{Delivery, DropCounts, End, Internet, LinkId, NodeId};
pub use loss::{BitErrors, Loss};
pub use nat::{Filtering, Mapping, NatConfig, NatKind};
pub use pipe::{Carrier, PipeConfig, PipeStats, Rate, Reorder};
pub use policer::Policer;
pub use preset::LinkConfig;
pub use rng::Rng;
pub use trace::{COUNTED_MS, Trace, TraceError};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The first of some moments, of which each may never come. Asked after every packet, so it
/// compares numbers and no options.
#[inline]
pub fn earliest<const N: usize>(moments: [Option<u64>; N]) -> Option<u64> {
    let first = moments.into_iter().fold(u64::MAX, |first, at| first.min(at.unwrap_or(u64::MAX)));
    (first < u64::MAX).then_some(first)
}
