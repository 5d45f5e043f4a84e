//! Subnets behind peers beside the networks of the gateway's own host.

use ipnet::IpNet;
use rove_os::links::Link;

/// The network of one of the host's links, other than the `tunnel`, that a subnet behind a peer
/// overlaps, and the link's name: routed to the peer, one of the two could not be reached.
pub(crate) fn clash<'a>(
    subnet: &IpNet,
    links: &'a [Link],
    tunnel: &str,
) -> Option<(IpNet, &'a str)> {
    let foreign = links.iter().filter(|link| link.name != tunnel);
    let mut networks =
        foreign.flat_map(|link| link.addresses.iter().map(|net| (net.trunc(), &*link.name)));
    networks.find(|(local, _)| {
        // A single address (of a point-to-point link) is no network to collide with.
        let single = local.prefix_len() == local.max_prefix_len();
        !single && (local.contains(subnet) || subnet.contains(local))
    })
}
