//! Access of one peer: the inner addresses that it may use as source, the destinations that it
//! may reach.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::global::{embedded, is_global};
use crate::error::DropReason;
use crate::wire::control::{NETWORKS_MAX, Prefix};
use crate::wire::icmp::{ICMP, ICMPV6};
use crate::wire::inner::{Headers, TCP, UDP};

const DNS: u16 = 53;

/// One destination that a peer may reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allow {
    /// The addresses.
    pub to: Prefix,
    /// The destination port of TCP and UDP; `None` allows every port and protocol.
    pub port: Option<u16>,
}

/// What one peer may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Whatever the peer delivers is wanted.
    Unrestricted,
    /// A client's view of its gateway: packets to these addresses are wanted, from anywhere.
    Towards {
        /// The client's inner addresses, and the networks behind it.
        own: Vec<Prefix>,
    },
    /// A gateway's view of a client.
    Restricted {
        /// The addresses that are the peer's own: its lease and the subnets behind it.
        own: Vec<Prefix>,
        /// The gateway's inner addresses: they answer pings and name queries.
        gateway: Vec<IpAddr>,
        /// Whether global addresses may be reached, the gateway's own networks excepted.
        internet: bool,
        /// Networks that are the gateway's own: refused unless allowed by name.
        local: Vec<Prefix>,
        /// What is allowed by name.
        allow: Vec<Allow>,
    },
}

impl Access {
    /// Judges a packet that the peer sent.
    ///
    /// # Errors
    /// [`DropReason::NotAllowed`] when its source is not the peer's own or its destination is not
    /// allowed.
    pub fn admit(&self, headers: &Headers) -> Result<(), DropReason> {
        let to = headers.destination;
        let (gateway, allow) = match self {
            Self::Unrestricted => return Ok(()),
            Self::Towards { own } if own.iter().any(|net| net.contains(to)) => return Ok(()),
            Self::Towards { .. } => return Err(DropReason::NotAllowed),
            Self::Restricted { gateway, allow, .. } => (gateway, allow),
        };
        let port = headers.ports.map(|(_, destination)| destination);
        let allowed = allow
            .iter()
            .any(|entry| entry.to.contains(to) && (entry.port.is_none() || entry.port == port));
        let reachable =
            allowed || (gateway.contains(&to) && serves(headers)) || self.is_internet(to);
        if self.owns(headers.source) && reachable { Ok(()) } else { Err(DropReason::NotAllowed) }
    }

    /// Whether the peer may use an address as a source.
    pub fn owns(&self, address: IpAddr) -> bool {
        match self {
            Self::Unrestricted | Self::Towards { .. } => true,
            Self::Restricted { own, .. } => own.iter().any(|prefix| prefix.contains(address)),
        }
    }

    /// Whether an address is on the Internet and the peer may reach it. Neither the address, nor an
    /// IPv4 host that it stands for, may be in one of the gateway's own networks.
    pub(crate) fn is_internet(&self, address: IpAddr) -> bool {
        let Self::Restricted { internet, local, .. } = self else { return true };
        let is_local = |address: IpAddr| local.iter().any(|prefix| prefix.contains(address));
        let stands_for = match address {
            IpAddr::V4(_) => [None, None],
            IpAddr::V6(v6) => embedded(v6),
        };
        let mut stands_for = stands_for.into_iter().flatten();
        *internet
            && is_global(address)
            && !is_local(address)
            && !stands_for.any(|v4| is_local(v4.into()))
    }

    /// The networks beside the Internet that the peer may reach, each once.
    pub(crate) fn networks(&self) -> Vec<Prefix> {
        let Self::Restricted { allow, .. } = self else { return Vec::new() };
        let named = allow.iter().map(|entry| entry.to).filter(|to| !is_global(to.address));
        let named: BTreeSet<Prefix> = named.filter(|to| to.bits > 0).collect();
        named.into_iter().take(NETWORKS_MAX).collect()
    }

    /// The gateway's address from which to tell the sender of a packet that it was refused; `None`
    /// where that is not the peer, or the gateway has none in that family.
    pub(crate) fn refuses_from(&self, headers: &Headers) -> Option<IpAddr> {
        let Self::Restricted { gateway, .. } = self else { return None };
        let same = |at: &&IpAddr| at.is_ipv4() == headers.source.is_ipv4();
        gateway.iter().find(same).filter(|_| self.owns(headers.source)).copied()
    }

    /// The inner addresses that lead to this peer.
    pub fn own(&self) -> &[Prefix] {
        match self {
            Self::Unrestricted | Self::Towards { .. } => &[],
            Self::Restricted { own, .. } => own,
        }
    }
}

/// What a gateway answers at its inner addresses: pings and name queries.
fn serves(headers: &Headers) -> bool {
    match headers.protocol {
        ICMP | ICMPV6 => true,
        TCP | UDP => headers.ports.is_some_and(|(_, destination)| destination == DNS),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(source: &str, destination: &str, protocol: u8, port: u16) -> Headers {
        Headers {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            ports: matches!(protocol, TCP | UDP).then_some((40_000, port)),
            transport: Some(20),
        }
    }

    fn access() -> Access {
        Access::Restricted {
            own: vec![Prefix::host([10, 1, 0, 2].into())],
            gateway: vec![[10, 1, 0, 1].into()],
            internet: true,
            local: vec![Prefix { address: [198, 51, 100, 0].into(), bits: 24 }],
            allow: vec![Allow {
                to: Prefix { address: [192, 168, 7, 0].into(), bits: 24 },
                port: Some(443),
            }],
        }
    }

    #[test]
    fn the_internet_and_what_is_named() {
        let me = "10.1.0.2";
        for (to, protocol, port, ok) in [
            ("93.184.216.34", TCP, 443, true),
            ("198.51.100.9", TCP, 443, false),
            ("192.168.7.1", TCP, 443, true),
            ("192.168.7.1", TCP, 80, false),
            ("192.168.7.1", ICMP, 0, false),
            ("10.1.0.3", TCP, 80, false),
            ("10.1.0.1", ICMP, 0, true),
            ("10.1.0.1", UDP, 53, true),
            ("10.1.0.1", TCP, 22, false),
            ("127.0.0.1", TCP, 80, false),
            ("169.254.169.254", TCP, 80, false),
            ("255.255.255.255", UDP, 67, false),
            ("224.0.0.251", UDP, 5353, false),
        ] {
            assert_eq!(access().admit(&view(me, to, protocol, port)).is_ok(), ok, "{to}:{port}");
        }
    }

    #[test]
    fn a_gateway_delivers_to_the_client_and_what_is_behind_it_alone() {
        let behind = Prefix { address: [192, 168, 9, 0].into(), bits: 24 };
        let access = Access::Towards { own: vec![Prefix::host([10, 1, 0, 2].into()), behind] };
        for (to, ok) in [
            ("10.1.0.2", true),
            ("192.168.9.7", true),
            ("192.168.8.7", false),
            ("172.17.0.2", false),
            ("127.0.0.1", false),
            ("255.255.255.255", false),
            ("fd17::2", false),
        ] {
            assert_eq!(access.admit(&view("1.1.1.1", to, TCP, 80)).is_ok(), ok, "{to}");
        }
    }

    #[test]
    fn a_client_is_told_the_networks_that_a_lan_could_claim() {
        let mut access = access();
        let Access::Restricted { allow, .. } = &mut access else { unreachable!() };
        let office = allow[0];
        let prefix = |address: [u8; 4], bits| Prefix { address: address.into(), bits };
        for (to, port) in [
            (office.to, Some(80)),
            (prefix([10, 20, 0, 0], 16), None),
            (prefix([9, 9, 9, 9], 32), Some(DNS)),
            (prefix([0, 0, 0, 0], 0), None),
        ] {
            allow.push(Allow { to, port });
        }
        assert_eq!(access.networks(), [prefix([10, 20, 0, 0], 16), office.to]);
        assert!(Access::Unrestricted.networks().is_empty());
    }

    #[test]
    fn only_the_peer_itself_is_told_of_a_refusal() {
        let from = |source| access().refuses_from(&view(source, "192.168.7.1", TCP, 80));
        assert_eq!(from("10.1.0.2"), Some([10, 1, 0, 1].into()));
        assert_eq!(from("10.1.0.3"), None, "a forged source");
        assert_eq!(Access::Unrestricted.refuses_from(&view("10.1.0.2", "::1", TCP, 80)), None);
    }

    #[test]
    fn nobody_speaks_for_another() {
        let forged = view("10.1.0.3", "93.184.216.34", TCP, 443);
        assert_eq!(access().admit(&forged), Err(DropReason::NotAllowed));
    }

    #[test]
    fn translation_leads_to_no_network_of_the_gateways_own_unless_it_is_named() {
        let mut access = access();
        let me = "fd77::2";
        let Access::Restricted { own, allow, .. } = &mut access else { unreachable!() };
        own.push(Prefix { address: me.parse().unwrap(), bits: 128 });
        allow.push(Allow {
            to: Prefix { address: "64:ff9b::10.0.0.0".parse().unwrap(), bits: 104 },
            port: None,
        });
        for (to, ok) in [
            ("64:ff9b::93.184.216.34", true),
            ("64:ff9b::198.51.100.9", false),
            ("2002:c633:6409::1", false),
            ("64:ff9b::192.168.7.1", false),
            ("64:ff9b::10.1.2.3", true),
        ] {
            assert_eq!(access.admit(&view(me, to, TCP, 443)).is_ok(), ok, "{to}");
        }
    }
}
