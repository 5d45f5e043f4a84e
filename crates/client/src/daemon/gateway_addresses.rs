//! Where the gateway may be: where it answered last, what it said itself, and what its name stands
//! for. All are tried side by side, so the order only says which comes some milliseconds earlier.
//!
//! It does not know when the name is asked for, nor what follows from other addresses.

use std::net::SocketAddr;

use anyhow::Result;
use rove_host::resolve::{self, ADDRESSES_MAX};
use rove_host::values::Endpoint;
use rove_os::links::Link;
use rove_os::names::Nat64Prefix;

use crate::membership::Membership;
use crate::nat64::{Nat64, Network};

/// The gateway's addresses, by source.
pub(super) struct GatewayAddresses {
    /// Has those where it answered and those that it announced, among other things.
    pub(super) membership: Membership,
    endpoints: Vec<Endpoint>,
    /// What its endpoints stand for, as far as it is known.
    found: Vec<SocketAddr>,
    /// All of them, as they were merged last.
    remotes: Vec<SocketAddr>,
    nat64: Nat64,
    /// A name that did not resolve.
    unresolved: Option<String>,
}

impl GatewayAddresses {
    pub(super) fn new(membership: Membership) -> Self {
        let endpoints = membership.gateway.record().endpoints.clone();
        let found = resolve::literal(&endpoints);
        let remotes = merge(membership.answered(), membership.announced(), &found);
        let (nat64, unresolved) = (Nat64::default(), None);
        Self { membership, endpoints, found, remotes, nat64, unresolved }
    }

    /// As the operator named them.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The addresses as they were merged last, without translated ones.
    pub(super) fn remotes(&self) -> &[SocketAddr] {
        &self.remotes
    }

    /// The addresses to which datagrams are sent.
    pub(super) fn reached(&self) -> Vec<SocketAddr> {
        let translated = self.nat64.translate(&self.remotes);
        let mut remotes = self.remotes.clone();
        remotes.truncate(ADDRESSES_MAX.saturating_sub(translated.len()));
        join(remotes, &translated)
    }

    /// Where streams are tried from these links, best first.
    pub(super) fn entrances(&self, links: &[Link]) -> Vec<SocketAddr> {
        let known = &self.membership;
        let entrances = entrances(known.answered(), known.announced(), &self.found);
        let translated = self.nat64.translate(&entrances);
        let mut links = links.iter().filter(|link| link.usable());
        let has_v4 = links.any(|link| link.default_v4.is_some());
        let (first, second) =
            if has_v4 { (entrances, translated) } else { (translated, entrances) };
        join(first, &second)
    }

    /// Merges the addresses of all sources. Returns whether they differ from before.
    pub(super) fn merge(&mut self) -> bool {
        let known = &self.membership;
        let remotes = merge(known.answered(), known.announced(), &self.found);
        let is_changed = remotes != self.remotes;
        self.remotes = remotes;
        is_changed
    }

    /// The name stands for these addresses. Returns whether they differ from before.
    pub(super) fn note_found(&mut self, found: Vec<SocketAddr>) -> bool {
        self.unresolved = None;
        let is_changed = self.found != found;
        self.found = found;
        is_changed
    }

    /// A name does not resolve.
    pub(super) fn note_unresolved(&mut self, name: String) {
        self.unresolved = Some(name);
    }

    /// The name that did not resolve.
    pub(super) fn unresolved(&self) -> Option<&String> {
        self.unresolved.as_ref()
    }

    /// The gateway answers datagrams at this address.
    pub(super) fn note_answered(&mut self, remote: SocketAddr) -> Result<()> {
        // A NAT64 address is valid only in this network.
        let remote = self.nat64.original(remote);
        if self.membership.answered().first() == Some(&remote) {
            return Ok(());
        }
        self.membership.note_answered(remote)
    }

    /// The gateway's own address behind a translated one.
    pub(super) fn original(&self, remote: SocketAddr) -> SocketAddr {
        self.nat64.original(remote)
    }

    /// The usable links are these.
    pub(super) fn note_links<'a>(&mut self, links: impl Iterator<Item = &'a Link>) {
        self.nat64.note_links(links);
    }

    /// The networks that were not asked for their NAT64 prefixes with success.
    pub(super) fn untold(&self) -> Vec<Network> {
        self.nat64.untold()
    }

    /// A network announced its NAT64 prefixes.
    pub(super) fn learn(&mut self, network: &Network, prefixes: Vec<Nat64Prefix>) {
        self.nat64.learn(network, prefixes);
    }

    /// Why none of these links can reach the gateway, if an address family is missing.
    pub(super) fn want_of_family<'a>(
        &self,
        links: impl Iterator<Item = &'a Link> + Clone,
    ) -> Option<String> {
        self.nat64.want_of_family(&self.remotes, links)
    }
}

/// Both lists without duplicates, up to the limit.
fn join(mut first: Vec<SocketAddr>, second: &[SocketAddr]) -> Vec<SocketAddr> {
    for at in second {
        if !first.contains(at) && first.len() < ADDRESSES_MAX {
            first.push(*at);
        }
    }
    first
}

/// The gateway's addresses without repetition: where it answered last, then in turn what it said,
/// what its endpoints stand for, and where it answered earlier. Of each the best comes early: there
/// is time for the first few only.
fn merge(
    answered: &[SocketAddr],
    announced: &[SocketAddr],
    found: &[SocketAddr],
) -> Vec<SocketAddr> {
    let (last, earlier) = answered.split_at(answered.len().min(1));
    let longest = [announced, found, earlier].iter().map(|list| list.len()).max().unwrap_or(0);
    let in_turn = (0..longest)
        .flat_map(|n| [announced.get(n), found.get(n), earlier.get(n)].into_iter().flatten());
    let mut merged: Vec<SocketAddr> = Vec::new();
    for address in last.iter().chain(in_turn) {
        if !merged.contains(address) && merged.len() < ADDRESSES_MAX {
            merged.push(*address);
        }
    }
    merged
}

/// Where streams are tried: what the gateway says itself comes before where it answered last, first
/// in the family of that. So a stream goes along when the gateway does, while it is still reached
/// where it was: an address that it does not tell of any more is not among the first.
fn entrances(
    answered: &[SocketAddr],
    announced: &[SocketAddr],
    found: &[SocketAddr],
) -> Vec<SocketAddr> {
    let is_usual = |at: &&SocketAddr| answered.first().is_none_or(|a| a.is_ipv4() == at.is_ipv4());
    let (usual, other): (Vec<_>, Vec<_>) = announced.iter().partition(is_usual);
    let told: Vec<SocketAddr> = usual.into_iter().chain(other).copied().collect();
    let mut entrances = merge(&[], &told, found);
    for address in answered {
        if !entrances.contains(address) && entrances.len() < ADDRESSES_MAX {
            entrances.push(*address);
        }
    }
    entrances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_go_where_the_gateway_says_that_it_is() {
        let told = |answered: &[u16], announced: &[u16], found: &[u16]| {
            entrances(&at(answered), &at(announced), &at(found))
        };
        assert_eq!(told(&[1, 2], &[12, 11], &[4]), at(&[12, 4, 11, 1, 2]));
        assert_eq!(told(&[1, 2], &[], &[4]), at(&[4, 1, 2]));
        let v6: SocketAddr = "[2001:db8::1]:12".parse().unwrap();
        let announced = [at(&[12])[0], v6];
        assert_eq!(entrances(&[v6], &announced, &[]), [v6, announced[0]]);
    }

    fn at(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|&port| ([192, 0, 2, 1], port).into()).collect()
    }

    #[test]
    fn the_best_of_every_source_comes_early_and_there_is_a_bound() {
        let merged = merge(&at(&[1, 2, 3]), &at(&[10, 1, 11]), &at(&[20, 10]));
        assert_eq!(merged, at(&[1, 10, 20, 2, 3, 11]));
        assert_eq!(merge(&[], &[], &at(&[20, 21])), at(&[20, 21]));
        let many: Vec<u16> = (1..100).collect();
        assert_eq!(merge(&at(&many), &at(&many), &at(&many)).len(), ADDRESSES_MAX);
    }
}
