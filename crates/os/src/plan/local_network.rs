//! A network on a link of this host, and which networks are private.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Private networks and link-local addresses, which any site may use (RFC 1918, RFC 3927).
const PRIVATE_V4: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    LINK_LOCAL_V4,
];
const LINK_LOCAL_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16);
/// The same for IPv6 (RFC 4193).
const PRIVATE_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);

/// A network, and the link that it is on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalNetwork {
    pub(crate) link: String,
    pub(crate) net: IpNet,
}

/// A prefix of one address contains only this host.
pub(super) fn is_network(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// Whether the network is one that any site may use.
pub fn is_private(net: &IpNet) -> bool {
    match net {
        IpNet::V4(net) => PRIVATE_V4.iter().any(|private| private.contains(net)),
        IpNet::V6(net) => PRIVATE_V6.contains(net),
    }
}
