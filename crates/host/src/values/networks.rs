//! The inner networks of a service, and which addresses of them belong to whom.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{Misspelt, serialise_as_text};

/// How many subnets may lie behind one peer.
pub const SUBNETS_MAX: usize = 16;

/// A host's position in every inner network at once: 1 is the gateway, clients follow in the order
/// of their enrolment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostIndex(pub u32);

impl HostIndex {
    /// The gateway's own.
    pub const GATEWAY: Self = Self(1);
    /// The first client's.
    pub const FIRST_CLIENT: Self = Self(2);
}

/// One IPv4 network, one IPv6 network, or one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Networks {
    v4: Option<Ipv4Net>,
    v6: Option<Ipv6Net>,
}

/// The inner addresses of one peer, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The IPv4 address with the prefix length of its network.
    pub v4: Option<Ipv4Net>,
    /// The IPv6 address with the prefix length of its network.
    pub v6: Option<Ipv6Net>,
}

impl Networks {
    /// Every network.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.v4.map(IpNet::V4).into_iter().chain(self.v6.map(IpNet::V6))
    }

    /// The highest position that has an address in every network. IPv4 networks lose their last
    /// address to broadcast.
    pub fn last_host(&self) -> HostIndex {
        let hosts = |bits: u32, reserved_last: u64| (1u64 << bits.min(32)) - 1 - reserved_last;
        let v4 = self.v4.map(|net| hosts(32 - u32::from(net.prefix_len()), 1));
        let v6 = self.v6.map(|net| hosts(128 - u32::from(net.prefix_len()), 0));
        let last = v4.unwrap_or(u64::MAX).min(v6.unwrap_or(u64::MAX));
        HostIndex(u32::try_from(last).unwrap_or(u32::MAX))
    }

    /// The addresses of position `host`; none beyond [`Networks::last_host`].
    pub fn lease(&self, host: HostIndex) -> Option<Lease> {
        if host > self.last_host() {
            return None;
        }
        let v4 = self.v4.and_then(|net| {
            let address = u32::from(net.network()).checked_add(host.0)?;
            Ipv4Net::new(address.into(), net.prefix_len()).ok()
        });
        let v6 = self.v6.and_then(|net| {
            let address = u128::from(net.network()).checked_add(u128::from(host.0))?;
            Ipv6Net::new(address.into(), net.prefix_len()).ok()
        });
        Some(Lease { v4, v6 })
    }
}

/// Private and reserved networks, in which no Internet host has an address.
const NOT_PUBLIC: [&str; 11] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "192.0.2.0/24",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "fc00::/7",
    "2001:db8::/32",
    "3fff::/20",
];
/// Networks that no host routes into a tunnel.
const UNUSABLE: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/127",
    "fe80::/10",
    "ff00::/8",
];

impl Networks {
    /// The networks that may belong to other people. A client could not reach their hosts.
    pub fn public(&self) -> impl Iterator<Item = IpNet> + use<> {
        let private = |net: &IpNet| blocks(&NOT_PUBLIC).any(|block| block.contains(net));
        self.iter().filter(move |net| !private(net))
    }

    /// Whether hosts can have addresses in them.
    ///
    /// # Errors
    /// The network that is reserved for another purpose.
    pub fn check_usable(&self) -> Result<(), Misspelt> {
        let overlaps = |net: &IpNet, block: &IpNet| block.contains(net) || net.contains(block);
        let clash = self.iter().find_map(|net| {
            blocks(&UNUSABLE).find(|block| overlaps(&net, block)).map(|block| (net, block))
        });
        clash.map_or(Ok(()), |(net, block)| {
            Err(Misspelt::new(format!(
                "{net} overlaps {block}, which is reserved for other uses: write a private \
                 network, for example 10.77.0.0/24,fd77::/64"
            )))
        })
    }
}

fn blocks(texts: &'static [&str]) -> impl Iterator<Item = IpNet> {
    texts.iter().filter_map(|text| text.parse().ok())
}

impl Lease {
    /// The addresses, each with the prefix length of its network.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.v4.map(IpNet::V4).into_iter().chain(self.v6.map(IpNet::V6))
    }

    /// The bare addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.iter().map(|net| net.addr())
    }
}

/// A network as a person writes it: host bits are an error, since one of the two was mistyped.
pub fn parse_network(text: &str) -> Result<IpNet, Misspelt> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse().map(|a: IpAddr| a.into()));
    let network = parsed.map_err(|_| {
        Misspelt::new(format!(
            "{text:?} is no network: write CIDR, for example 10.0.0.0/8 or fd00::/8"
        ))
    })?;
    if network.trunc() != network {
        let meant = network.trunc();
        return Err(Misspelt::new(format!("{text:?} has bits beyond its prefix: write {meant}")));
    }
    Ok(network)
}

impl FromStr for Networks {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let wrong = |what: String| {
            Misspelt::new(format!(
                "{what}: write one IPv4 network, one IPv6 network or both, for example \
                 10.77.0.0/24,fd77::/64"
            ))
        };
        let mut networks = Self { v4: None, v6: None };
        for part in text.split(',') {
            let part = part.trim();
            let net: IpNet = part.parse().map_err(|_| wrong(format!("{part:?} is no network")))?;
            if net.trunc() != net {
                let meant = net.trunc();
                return Err(Misspelt::new(format!(
                    "{part:?} has bits beyond its prefix: write {meant}"
                )));
            }
            let (longest, is_second) = match net {
                IpNet::V4(net) => (30, networks.v4.replace(net).is_some()),
                IpNet::V6(net) => (126, networks.v6.replace(net).is_some()),
            };
            if net.prefix_len() > longest {
                return Err(wrong(format!(
                    "{part:?} has no room for a gateway and a client, which need /{longest} or less"
                )));
            }
            if is_second {
                return Err(wrong(format!("{part:?} is a second network of its family")));
            }
        }
        Ok(networks)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, net) in self.iter().enumerate() {
            write!(f, "{}{net}", if position == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

serialise_as_text!(Networks);
