//! Every fuzz target. A target knows none of the others.

use crate::{Target, targets};

/// Every target.
pub const TARGETS: &[Target] = &[
    targets::bus_answer::TARGET,
    targets::compact::TARGET,
    targets::compressed::TARGET,
    targets::control::TARGET,
    targets::control_request::TARGET,
    targets::data_header::TARGET,
    targets::dictionary::TARGET,
    targets::dns_answer::TARGET,
    targets::dns_forwarded::TARGET,
    targets::exchange::TARGET,
    targets::first_bytes::TARGET,
    targets::frames::TARGET,
    targets::handshake::TARGET,
    targets::http_answer::TARGET,
    targets::inner_packet::TARGET,
    targets::invite::TARGET,
    targets::keyed_client::TARGET,
    targets::keyed_gateway::TARGET,
    targets::netlink::TARGET,
    targets::plan_journal::TARGET,
    targets::sealed::TARGET,
    targets::session::TARGET,
    targets::store_record::TARGET,
    targets::stream_frames::TARGET,
    targets::tun_merge::TARGET,
    targets::tun_split::TARGET,
    targets::world::TARGET,
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
