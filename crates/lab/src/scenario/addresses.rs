//! The addresses of the testbed: those set aside for documentation (RFC 5737, RFC 3849), for
//! carriers (RFC 6598), for benchmarks (RFC 2544) and for private use.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address of the server, which tunnels carry.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
/// The server's other address, which no tunnel carries.
pub const OPEN_SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 3);
/// Others of its addresses, which tunnels carry to whom they are of use: a network of as many.
pub const OTHER_SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 20, 0, 4), Ipv4Addr::new(10, 20, 0, 5)];
/// These and nothing else.
pub(super) const OTHER_SERVERS_NETWORK: &str = "10.20.0.4/31";
/// The gateway's address towards the server.
pub(super) const NEAR_SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
/// Length of the prefix of gateway and server.
pub(super) const SERVER_PREFIX: u8 = 24;
/// The client's address inside the tunnel: that of the first who enrolled.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The outside address of the NAT box at home.
pub(super) const HOME_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
/// The gateway's name (RFC 2606), where it has one.
pub const GATEWAY_NAME: &str = "gateway.example.net";
/// Network inside the tunnel.
pub const TUNNEL_NETWORK: &str = "10.77.0.0/24";

/// First address of a host in an emulated network; the one before is the network's router.
const FIRST_ADDRESS: u32 = 2;
/// Moves after which the client's addresses begin again.
const ADDRESSES: u32 = 250;
/// Prefix lengths of emulated networks.
const V4_PREFIX: u8 = 24;
/// See [`V4_PREFIX`].
const V6_PREFIX: u8 = 64;

/// The family that tunnels use outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The networks have IPv4 only.
    V4,
    /// The networks have both, and the gateway is known by its IPv6 address.
    V6,
    /// Each of the client's networks has one, and the gateway is known by an address of each.
    Either,
}

/// An emulated network that hosts can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    Home,
    /// Home behind a NAT box, whose outside address is one of home's.
    BehindHome,
    Cafe,
    Mobile,
    /// That of a link beside the first, by number.
    Beside(u8),
    /// The network of another client, by number.
    Crowd(u8),
    DataCentre,
    /// What the Internet has for everybody.
    Services,
}

impl Family {
    /// The gateway's address on the Internet.
    pub fn gateway(self) -> IpAddr {
        Site::DataCentre
            .host(self, 0)
            .first()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpNet::addr)
    }

    /// All its addresses by which it is known.
    pub fn gateways(self) -> Vec<IpAddr> {
        let known = if self == Self::Either { 2 } else { 1 };
        Site::DataCentre.host(self, 0).iter().take(known).map(IpNet::addr).collect()
    }

    /// Bytes of an IP and a UDP header outside of the tunnel, where the client begins.
    pub const fn udp_headers(self) -> usize {
        match self {
            Self::V4 | Self::Either => 28,
            Self::V6 => 48,
        }
    }
}

impl Site {
    /// The prefixes of the network, the tunnel's family first.
    pub(super) fn subnets(self, family: Family) -> Vec<IpNet> {
        self.host(family, 0).iter().map(IpNet::trunc).collect()
    }

    /// The addresses in it of a host that has moved so many times, the tunnel's family first.
    pub(super) fn host(self, family: Family, moves: u32) -> Vec<IpNet> {
        let host = FIRST_ADDRESS + moves % ADDRESSES;
        let (v4, subnet) = match self {
            Self::Home => (Ipv4Addr::new(198, 51, 100, 0), 1),
            Self::Cafe => (Ipv4Addr::new(203, 0, 113, 0), 2),
            Self::Mobile => (Ipv4Addr::new(100, 64, 0, 0), 3),
            Self::DataCentre => (Ipv4Addr::new(192, 0, 2, 0), 4),
            Self::BehindHome => (Ipv4Addr::new(192, 168, 1, 0), 5),
            Self::Services => (Ipv4Addr::new(198, 18, 0, 0), 6),
            Self::Beside(number) => (Ipv4Addr::new(100, 64, 1 + number, 0), 7 + u16::from(number)),
            Self::Crowd(number) => (Ipv4Addr::new(100, 65, number, 0), 100 + u16::from(number)),
        };
        let v4 = Ipv4Addr::from(u32::from(v4) + host);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host as u16);
        // The prefix lengths are those of constants above, which are valid.
        let v4 = Ipv4Net::new(v4, V4_PREFIX).map(IpNet::V4).ok();
        let v6 = Ipv6Net::new(v6, V6_PREFIX).map(IpNet::V6).ok();
        match family {
            Family::V4 => v4.into_iter().collect(),
            Family::V6 => v6.into_iter().chain(v4).collect(),
            Family::Either => match self {
                Self::Home | Self::BehindHome => v4.into_iter().collect(),
                Self::Cafe => v6.into_iter().collect(),
                Self::Mobile
                | Self::Beside(_)
                | Self::Crowd(_)
                | Self::DataCentre
                | Self::Services => v4.into_iter().chain(v6).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, Site};

    #[test]
    fn every_site_has_its_own_prefix_and_the_family_comes_first() {
        let sites = [Site::Home, Site::Cafe, Site::Mobile, Site::DataCentre, Site::BehindHome];
        let others = [Site::Services, Site::Beside(0), Site::Beside(1), Site::Beside(2)];
        let crowd = [Site::Crowd(0), Site::Crowd(199)];
        let sites = [&sites[..], &others, &crowd].concat();
        for (index, site) in sites.iter().enumerate() {
            let both = site.subnets(Family::V6);
            assert!(both[0].addr().is_ipv6() && both[1].addr().is_ipv4());
            assert_eq!(site.subnets(Family::V4), both[1..]);
            for other in &sites[..index] {
                assert!(other.subnets(Family::V6).iter().all(|subnet| !both.contains(subnet)));
            }
            // Two hundred and fifty moves stay in the network and off its router.
            for moves in [0, 1, 249, 250, 1_000] {
                let host = site.host(Family::V6, moves);
                assert!(both.iter().zip(&host).all(|(subnet, host)| subnet.contains(host)));
                assert!(host.iter().all(|host| host.hosts().next() != Some(host.addr())));
            }
        }
        assert_eq!(Family::V4.gateway(), "192.0.2.2".parse::<std::net::IpAddr>().unwrap());
        assert_eq!(Family::V6.gateway(), "2001:db8:4::2".parse::<std::net::IpAddr>().unwrap());
    }
}
