//! What a flow of inner packets needs on its way, from its headers alone.
//!
//! Observes each packet once per direction. Today it keeps no table: it names the flow's hash and
//! clamps the segment size of new TCP connections to what the paths carry.

pub mod clamp;

use std::net::IpAddr;

use crate::wire::inner::{InnerView, TCP};

/// What was observed of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// The same for all packets of a flow in one direction.
    pub flow_hash: u32,
    /// Where the packet's TCP header starts, if its segment size may be an option there.
    pub clamp_at: Option<usize>,
}

/// Observes a packet whose first bytes are `head`.
pub fn observe(view: &InnerView, head: &[u8]) -> Observed {
    let clamp_at = match view.transport {
        Some(at) if view.protocol == TCP && head.get(at..).is_some_and(clamp::is_syn) => Some(at),
        _ => None,
    };
    Observed { flow_hash: hash(view), clamp_at }
}

/// FNV-1a over addresses, protocol and ports: the same in every run, no secret depends on it.
fn hash(view: &InnerView) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let mut feed = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    };
    for address in [view.source, view.destination] {
        match address {
            IpAddr::V4(v4) => feed(&v4.octets()),
            IpAddr::V6(v6) => feed(&v6.octets()),
        }
    }
    let (source, destination) = view.ports.unwrap_or((0, 0));
    feed(&[view.protocol]);
    feed(&source.to_be_bytes());
    feed(&destination.to_be_bytes());
    hash
}
