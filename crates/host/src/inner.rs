//! Inner packets and networks: the MTU of the tunnel, and conversion between the network types of
//! the core and of the system.

use ipnet::IpNet;
use rove_proto::wire::control::Prefix;

/// The largest inner packet, in bytes: with all that is put around it, it fits an Ethernet link
/// over IPv6 (1,500 - 40 - 8 - 32). Where less fits the core splits and clamps.
pub const TUN_MTU: u32 = 1_420;

/// A network as the core writes it.
pub fn prefix(net: IpNet) -> Prefix {
    Prefix { address: net.network(), bits: net.prefix_len() }
}

/// A network as the system writes it; the core has checked its length.
pub fn network(prefix: &Prefix) -> Option<IpNet> {
    IpNet::new(prefix.address, prefix.bits).ok()
}
