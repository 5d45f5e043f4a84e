//! A gateway that is known by IPv4 addresses, from links that have IPv6 only: the addresses by
//! which the translators (NAT64) of these links reach it.
//!
//! It decides which links are asked for their prefixes, what is tried meanwhile, and when a prefix
//! is forgotten: it belongs to the network behind one link, and goes with that. It refuses to know
//! how a network is asked. Limits: addresses made with a prefix are tried by every link, since the
//! core pairs all addresses with all links; on the wrong one that costs a few datagrams.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_os::links::Link;
use rove_os::names::{NAT64_PREFIXES_MAX, Nat64Prefix};

/// Links whose networks are asked, and remembered.
const LINKS_MAX: usize = 4;
/// Addresses that are made for one gateway: each takes a place among those that are tried.
const TRANSLATED_MAX: usize = 4;

/// The network behind a link: another one has other addresses there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Network {
    index: u32,
    /// The link's name, for a socket that asks by it.
    pub(in crate::daemon) link: String,
    networks: Vec<IpNet>,
}

/// What is known of the links without IPv4.
#[derive(Debug, Default)]
pub(super) struct Nat64 {
    known: Vec<(Network, Vec<Nat64Prefix>)>,
}

impl Nat64 {
    /// Takes the links that may be used. What belongs to a network that is gone is forgotten.
    pub(super) fn note_links<'a>(&mut self, links: impl Iterator<Item = &'a Link>) {
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

    /// The networks that have not told a prefix yet.
    pub(super) fn untold(&self) -> Vec<Network> {
        let untold = self.known.iter().filter(|(_, prefixes)| prefixes.is_empty());
        untold.map(|(network, _)| network.clone()).collect()
    }

    /// A network told these prefixes.
    pub(super) fn learn(&mut self, network: &Network, mut prefixes: Vec<Nat64Prefix>) {
        prefixes.truncate(NAT64_PREFIXES_MAX);
        // An answer of a network that is gone finds none.
        if let Some((_, known)) = self.known.iter_mut().find(|(known, _)| known == network) {
            *known = prefixes;
        }
    }

    /// The prefixes to try, those that were told first. Where none was told the usual one may do: a
    /// network can have NAT64 and a name server that knows nothing of it.
    fn prefixes(&self) -> Vec<Nat64Prefix> {
        let told = self.known.iter().flat_map(|(_, prefixes)| prefixes.iter().copied());
        let usual = self.known.iter().any(|(_, prefixes)| prefixes.is_empty());
        told.chain(usual.then_some(Nat64Prefix::WELL_KNOWN)).collect()
    }

    /// By which further addresses `remotes` are reached.
    pub(super) fn translate(&self, remotes: &[SocketAddr]) -> Vec<SocketAddr> {
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

    /// Where the gateway is if it answers at `remote`: what holds in other networks, too.
    pub(super) fn original(&self, remote: SocketAddr) -> SocketAddr {
        let IpAddr::V6(v6) = remote.ip() else { return remote };
        let v4 = self.prefixes().iter().find_map(|prefix| prefix.extract(v6));
        v4.map_or(remote, |v4| SocketAddr::new(v4.into(), remote.port()))
    }

    /// What was told, for people.
    fn told(&self) -> Vec<String> {
        let told = self.known.iter().flat_map(|(_, prefixes)| prefixes);
        told.map(Nat64Prefix::to_string).collect()
    }

    /// Why none of `remotes` can be reached by any of `links`, in words, if that is for want of a
    /// family: the cause first, then what was tried, then the cure.
    pub(super) fn want_of_family<'a>(
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

/// Whether IPv4 leads no farther than this link, if there is any, and IPv6 may.
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
        // No private address behind the usual prefix, and one that is IPv6 already needs none.
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
        // Another address of the same network, as privacy extensions make, is no other network.
        nat64.note_links([link(2, &["2001:db8:7::99/64"])].iter());
        assert!(nat64.untold().is_empty());
        nat64.note_links([link(2, &["2001:db8:8::5/64"])].iter());
        assert_eq!(nat64.untold().len(), 1);
        // What the old network says late is not of the new one.
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
