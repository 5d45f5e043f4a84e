//! Reaches a gateway with IPv4 addresses from links with IPv6 only, through the NAT64 translators
//! of these links.
//!
//! This module decides which links are asked for their prefixes, which prefixes to try meanwhile,
//! and when to forget a prefix. A prefix belongs to the network behind one link, and is forgotten
//! with it. The module does not know how to ask a network. Limits: the core pairs all addresses
//! with all links, so it tries a translated address on every link. On the wrong link this costs a
//! few datagrams.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_os::links::Link;
use rove_os::names::{NAT64_PREFIXES_MAX, Nat64Prefix};

/// Links whose networks are asked and remembered at most.
const LINKS_MAX: usize = 4;
/// Translated addresses for one gateway at most. Each takes a place among the addresses to try.
const TRANSLATED_MAX: usize = 4;

/// The network behind a link. Another network gives the link other addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    index: u32,
    /// The link's name, for the socket of the query.
    pub(crate) link: String,
    networks: Vec<IpNet>,
}

/// The known prefixes of links without IPv4.
#[derive(Debug, Default)]
pub(crate) struct Nat64 {
    known: Vec<(Network, Vec<Nat64Prefix>)>,
}

impl Nat64 {
    /// Takes the usable links, and forgets the prefixes of networks that are gone.
    pub(crate) fn note_links<'a>(&mut self, links: impl Iterator<Item = &'a Link>) {
        let mut before = std::mem::take(&mut self.known);
        let networks = links.filter(|link| has_only_v6(link)).map(Network::of).take(LINKS_MAX);
        self.known = networks
            .map(|network| {
                let same = before.iter().position(|(known, _)| *known == network);
                let prefixes = same.map(|at| before.swap_remove(at).1).unwrap_or_default();
                (network, prefixes)
            })
            .collect();
    }

    /// The networks without a known prefix.
    pub(crate) fn untold(&self) -> Vec<Network> {
        let untold = self.known.iter().filter(|(_, prefixes)| prefixes.is_empty());
        untold.map(|(network, _)| network.clone()).collect()
    }

    /// Records the prefixes that a network announced.
    pub(crate) fn learn(&mut self, network: &Network, mut prefixes: Vec<Nat64Prefix>) {
        prefixes.truncate(NAT64_PREFIXES_MAX);
        // The answer of a network that is gone is ignored.
        if let Some((_, known)) = self.known.iter_mut().find(|(known, _)| known == network) {
            *known = prefixes;
        }
    }

    /// The prefixes to try. Announced prefixes come first. If a network announced none, the
    /// well-known prefix follows, because a network can have NAT64 and a name server that does not
    /// know it.
    fn prefixes(&self) -> Vec<Nat64Prefix> {
        let told = self.known.iter().flat_map(|(_, prefixes)| prefixes.iter().copied());
        let usual = self.known.iter().any(|(_, prefixes)| prefixes.is_empty());
        told.chain(usual.then_some(Nat64Prefix::WELL_KNOWN)).collect()
    }

    /// Further addresses for `remotes`, made with the prefixes.
    pub(crate) fn translate(&self, remotes: &[SocketAddr]) -> Vec<SocketAddr> {
        let prefixes = self.prefixes();
        let mut made = Vec::new();
        for remote in remotes {
            let IpAddr::V4(v4) = remote.ip() else { continue };
            for v6 in prefixes.iter().filter_map(|prefix| prefix.embed(v4)) {
                let at = SocketAddr::new(v6.into(), remote.port());
                if !made.contains(&at) && !remotes.contains(&at) && made.len() < TRANSLATED_MAX {
                    made.push(at);
                }
            }
        }
        made
    }

    /// The gateway's IPv4 address, if `remote` is a translated one. Unlike `remote`, it is valid in
    /// other networks too.
    pub(crate) fn original(&self, remote: SocketAddr) -> SocketAddr {
        let IpAddr::V6(v6) = remote.ip() else { return remote };
        let v4 = self.prefixes().iter().find_map(|prefix| prefix.extract(v6));
        v4.map_or(remote, |v4| SocketAddr::new(v4.into(), remote.port()))
    }

    /// The announced prefixes, as text.
    fn told(&self) -> Vec<String> {
        let told = self.known.iter().flat_map(|(_, prefixes)| prefixes);
        told.map(Nat64Prefix::to_string).collect()
    }

    /// Why no link can reach any of `remotes`, if the reason is a missing address family: the
    /// cause, the attempts, and the cure.
    pub(crate) fn want_of_family<'a>(
        &self,
        remotes: &[SocketAddr],
        links: impl Iterator<Item = &'a Link> + Clone,
    ) -> Option<String> {
        let has = |v4: bool| links.clone().any(|link| has_family(link, v4));
        let leads = |v4: bool| remotes.iter().any(|remote| remote.is_ipv4() == v4);
        let told = self.told().join(", ");
        match ((has(true), has(false)), (leads(true), leads(false))) {
            ((false, true), (true, false)) if told.is_empty() => Some(
                "this network has no IPv4, and the gateway is known by IPv4 addresses only: the \
                 network tells of no NAT64 (ipv4only.arpa), and nothing answers by 64:ff9b::/96: \
                 try another network, or ask the gateway's operator for an endpoint with IPv6"
                    .to_owned(),
            ),
            ((false, true), (true, false)) => Some(format!(
                "this network has no IPv4, and the gateway is known by IPv4 addresses only: \
                 nothing answers by its NAT64 ({told}): check that the gateway runs, or try \
                 another network"
            )),
            ((true, false), (false, true)) => Some(
                "this network has no IPv6, and the gateway is known by IPv6 addresses only: try \
                 another network, or ask the gateway's operator for an endpoint with IPv4"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

impl Network {
    fn of(link: &Link) -> Self {
        let mut networks: Vec<IpNet> = link.addresses.iter().map(IpNet::trunc).collect();
        networks.sort();
        networks.dedup();
        Self { index: link.index, link: link.name.clone(), networks }
    }
}

/// Whether IPv4, if there is any, reaches no farther than this link, and IPv6 may.
fn has_only_v6(link: &Link) -> bool {
    link.default_v4.is_none() && has_family(link, false)
}

/// Whether the link has an address of the family.
fn has_family(link: &Link, v4: bool) -> bool {
    link.addresses.iter().any(|net| net.addr().is_ipv4() == v4)
}

#[cfg(test)]
mod tests {
    use rove_os::links::LinkKind;

    use super::*;

    fn link(index: u32, addresses: &[&str]) -> Link {
        Link {
            index,
            name: format!("wlan{index}"),
            kind: LinkKind::Wireless,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            deprecated: false,
            default_v4: None,
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        }
    }

    fn at(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|at| at.parse().unwrap()).collect()
    }

    const V6: &[&str] = &["2001:db8:7::5/64"];

    #[test]
    fn only_links_without_ipv4_are_asked_and_the_usual_prefix_is_tried_meanwhile() {
        let remotes = at(&["192.0.2.1:4500", "10.0.0.1:4500", "[2001:db8:a::2]:4500"]);
        let mut nat64 = Nat64::default();
        let both = Link { default_v4: Some(100), ..link(2, &["192.0.2.7/24", V6[0]]) };
        nat64.note_links([both].iter());
        assert!(nat64.untold().is_empty() && nat64.translate(&remotes).is_empty());
        nat64.note_links([link(2, V6)].iter());
        let [network] = &*nat64.untold() else { panic!("{:?}", nat64.untold()) };
        assert_eq!(network.link, "wlan2");
        // A private address gets no translation with the well-known prefix, and an IPv6 address
        // needs none.
        let usual = at(&["[64:ff9b::192.0.2.1]:4500"]);
        assert_eq!(nat64.translate(&remotes), usual);
        assert_eq!(nat64.original(usual[0]), remotes[0]);
        assert_eq!(nat64.original(remotes[2]), remotes[2]);
    }

    #[test]
    fn a_prefix_is_forgotten_with_its_network() {
        let remotes = at(&["192.0.2.1:4500"]);
        let mut nat64 = Nat64::default();
        nat64.note_links([link(2, V6)].iter());
        let network = nat64.untold().remove(0);
        // The value itself does not matter here.
        nat64.learn(&network, vec![Nat64Prefix::WELL_KNOWN; 100]);
        assert!(nat64.untold().is_empty());
        assert_eq!(nat64.told().len(), NAT64_PREFIXES_MAX);
        assert_eq!(nat64.translate(&remotes).len(), 1);
        // Another address in the same network, such as a privacy address, does not mean another
        // network.
        nat64.note_links([link(2, &["2001:db8:7::99/64"])].iter());
        assert!(nat64.untold().is_empty());
        nat64.note_links([link(2, &["2001:db8:8::5/64"])].iter());
        assert_eq!(nat64.untold().len(), 1);
        // A late answer of the old network does not apply to the new one.
        nat64.learn(&network, vec![Nat64Prefix::WELL_KNOWN]);
        assert_eq!(nat64.untold().len(), 1);
        nat64.note_links([].iter());
        assert!(nat64.translate(&remotes).is_empty());
    }

    #[test]
    fn many_addresses_and_links_make_few() {
        let mut nat64 = Nat64::default();
        let links: Vec<Link> = (2..50).map(|index| link(index, V6)).collect();
        nat64.note_links(links.iter());
        assert_eq!(nat64.untold().len(), LINKS_MAX);
        let remotes: Vec<SocketAddr> = (1..50).map(|n| ([192, 0, 2, n], 4500).into()).collect();
        assert_eq!(nat64.translate(&remotes).len(), TRANSLATED_MAX);
    }

    #[test]
    fn a_family_that_is_wanting_is_named() {
        let (v4, v6) = (at(&["192.0.2.1:4500"]), at(&["[2001:db8:a::2]:4500"]));
        let why = |remotes: &[SocketAddr], addresses: &[&str]| {
            let link = link(2, addresses);
            let mut nat64 = Nat64::default();
            nat64.note_links([&link].into_iter());
            nat64.want_of_family(remotes, [&link].into_iter())
        };
        assert!(why(&v4, V6).unwrap().contains("has no IPv4"));
        assert!(why(&v6, &["192.0.2.7/24"]).unwrap().contains("has no IPv6"));
        assert_eq!(why(&v4, &["192.0.2.7/24"]), None);
        assert_eq!(why(&v6, V6), None);
        assert_eq!(why(&[v4, v6].concat(), V6), None);
    }
}
