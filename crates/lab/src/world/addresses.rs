//! Whose an address is: of a gateway, or of whoever the attacker pretends to be. Those of clients
//! come and go with their networks (`place`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The most gateways of a world: each has a block of addresses of its own.
pub(super) const GATEWAYS_MAX: usize = 8;

/// The addresses of this number in a gateway's blocks, from 1 to 250.
pub(super) fn gateway_addresses(gateway: usize, number: u16) -> Vec<IpAddr> {
    let [a, b, c, _] = gateway_block(gateway);
    vec![Ipv4Addr::new(a, b, c, number as u8).into(), host_v6(gateway_site(gateway), number)]
}

/// Where a gateway's addresses are from: TEST-NET-1 for the first, and a part of the network for
/// benchmarks (RFC 2544) for each other one.
const fn gateway_block(gateway: usize) -> [u8; 4] {
    if gateway == 0 { [192, 0, 2, 0] } else { [198, 19, gateway as u8, 0] }
}

/// The same of IPv6: above all access networks.
const fn gateway_site(gateway: usize) -> u16 {
    u16::MAX - gateway as u16
}

/// The gateway that has an address now or had it once.
pub(super) fn gateway_of(address: IpAddr) -> Option<usize> {
    (0..GATEWAYS_MAX)
        .find(|&gateway| gateway_blocks(gateway).iter().any(|at| at.contains(&address)))
}

/// The networks that a gateway's addresses are from.
pub(super) fn gateway_blocks(gateway: usize) -> [IpNet; 2] {
    [v4(gateway_block(gateway), 24), v6(gateway_site(gateway), 0, 48)]
}

/// An address of whoever the attacker pretends to be.
pub(super) fn bystander(number: u32) -> IpAddr {
    let [_, b, c, d] = number.to_be_bytes();
    Ipv4Addr::new(66, b, c, d).into()
}

/// A host of a site in IPv6.
pub(super) fn host_v6(site: u16, host: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, site, 0, 0, 0, 0, host).into()
}

/// A network in IPv4; no address at all if there is none with so many bits.
pub(super) fn v4(octets: [u8; 4], bits: u8) -> IpNet {
    IpNet::new(octets.into(), bits).unwrap_or_default()
}

/// The same in IPv6, around a host of a site.
pub(super) fn v6(site: u16, host: u16, bits: u8) -> IpNet {
    IpNet::new(host_v6(site, host), bits).unwrap_or_default()
}
