//! Where the gateway may be: where it answered last, what it said itself, and what its name stands
//! for. All are tried side by side, so the order only says which comes some milliseconds earlier.
//!
//! The name is asked for outside the tunnel: at the start, as soon as nothing carries or this host
//! is on another network, and then every few seconds until something carries; every minute while
//! only a stream does. A gateway that moved while this client was away is found by it, or not at
//! all.

use std::net::SocketAddr;
use std::time::Instant;

use rove_host::resolve::{self, ADDRESSES_MAX};
use rove_host::time::wall_clock;
use rove_os::names::Nat64Prefix;
use rove_proto::id::Transport;
use rove_proto::node::Command;
use rove_proto::outbox::Route;

use super::{Client, Network, Progress};

impl Client<'_> {
    /// Resolves the gateway's name at the start, and again while nobody answers.
    pub(super) fn resolve_when_due(&mut self) {
        let now = Instant::now();
        if now < self.lookups.due() {
            return;
        }
        let is_stream = |route: Route| route.socket.transport() == Transport::Stream;
        // Where UDP is wanted: the gateway may have it elsewhere.
        let stands_in = self.config.paths.transport.has_udp();
        let by_stream = stands_in && self.is_up && self.route_in_use().is_some_and(is_stream);
        let wanted = self.progress != Progress::Told || !self.is_up || by_stream;
        let (has_names, networks) = (resolve::has_names(&self.endpoints), self.nat64.untold());
        let has_questions = has_names || !networks.is_empty();
        if wanted && !self.links.ranked().is_empty() && has_questions {
            self.lookups.ask(now);
            let servers = self.applier.outside_servers();
            self.lookups.asks_at(&servers);
            for network in networks {
                self.discovery.ask_network(network, servers.clone());
            }
            if has_names {
                self.resolver.ask(&self.endpoints, servers);
            }
        } else {
            self.lookups.rest(now);
        }
        if by_stream {
            self.lookups.ease(now);
        }
    }

    /// While no path works, checks whether the host has other name servers than those asked before.
    pub(super) fn look_for_servers(&mut self) {
        let now = Instant::now();
        if self.lookups.look_due().is_none_or(|due| now < due) {
            return;
        }
        let carries = self.progress == Progress::Told && self.is_up;
        self.lookups.looked(now, &self.applier.outside_servers(), !carries);
    }

    /// A network without IPv4 announced its NAT64 prefixes.
    pub(super) fn take_nat64(&mut self, network: &Network, prefixes: Vec<Nat64Prefix>) {
        tracing::info!(link = network.link, ?prefixes, "NAT64");
        let before = self.reached_at();
        self.nat64.learn(network, prefixes);
        self.tell_remotes(&before);
    }

    /// What the gateway's name stands for, or which name does not resolve.
    pub(super) fn readdress(&mut self, resolved: Result<Vec<SocketAddr>, String>) {
        match resolved {
            Err(name) => self.unresolved = Some(name),
            Ok(found) => {
                self.unresolved = None;
                if self.found != found {
                    self.lookups.fresh();
                } else if !self.is_up {
                    self.lookups.stale(Instant::now());
                }
                self.found = found;
                self.set_remotes();
            }
        }
    }

    /// The gateway says where it is reached. The core follows by itself; this is for the next start
    /// and for the kill switch.
    pub(super) fn take_announced(&mut self, addresses: &[SocketAddr]) {
        if let Err(error) = self.membership.note_announced(addresses) {
            tracing::error!("the gateway's addresses cannot be stored: {error:#}");
        }
        self.set_remotes();
    }

    /// The session went over to another address, perhaps of the gateway.
    pub(super) fn note_where(&mut self) {
        let Some(route) = self.route_in_use() else { return };
        if route.socket.transport() == Transport::Stream {
            self.lookups.ask_by_stream(Instant::now());
        } else {
            // A NAT64 address is valid only in this network.
            let remote = self.nat64.original(route.remote);
            if self.membership.answered().first() != Some(&remote)
                && let Err(error) = self.membership.note_answered(remote)
            {
                tracing::error!("where the gateway is cannot be stored: {error:#}");
            }
        }
    }

    /// The address at which the gateway answers datagrams now. `None` while a stream stands in for
    /// UDP, because a stream leads to another port.
    pub(super) fn remote_in_use(&self) -> Option<SocketAddr> {
        let route = self.route_in_use()?;
        let remote = self.nat64.original(route.remote);
        (route.socket.transport() == Transport::Udp).then_some(remote)
    }

    /// Notes since when a stream carries in place of UDP.
    pub(super) fn note_transport(&mut self) {
        let Some(route) = self.route_in_use() else { return };
        match route.socket.transport() {
            Transport::Stream => drop(self.noted.by_stream.get_or_insert_with(|| wall_clock().0)),
            Transport::Udp => self.noted.by_stream = None,
        }
    }

    fn route_in_use(&self) -> Option<Route> {
        let snapshot = self.data.status(Some(vec![self.gateway]))?;
        Some(snapshot.peers.first()?.paths.first().filter(|path| path.in_use)?.route)
    }

    /// Where streams are tried, best first.
    pub(super) fn entrances(&self) -> Vec<SocketAddr> {
        let known = &self.membership;
        let entrances = entrances(known.answered(), known.announced(), &self.found);
        let translated = self.nat64.translate(&entrances);
        let mut links = self.links.all().iter().filter(|link| link.usable());
        let has_v4 = links.any(|link| link.default_v4.is_some());
        let (first, second) =
            if has_v4 { (entrances, translated) } else { (translated, entrances) };
        join(first, &second)
    }

    /// The addresses to which datagrams are sent.
    pub(super) fn reached_at(&self) -> Vec<SocketAddr> {
        let translated = self.nat64.translate(&self.remotes);
        let mut remotes = self.remotes.clone();
        remotes.truncate(ADDRESSES_MAX.saturating_sub(translated.len()));
        join(remotes, &translated)
    }

    /// Gives the core the present addresses of the gateway, in place of `before`.
    pub(super) fn tell_remotes(&self, before: &[SocketAddr]) {
        let remotes = self.reached_at();
        if remotes != before {
            self.data.command(Command::SetRemotes { peer: self.gateway, remotes });
        }
        // Even if the addresses are the same, their sources may differ, and then streams use other
        // addresses.
        self.set_streams();
    }

    fn set_remotes(&mut self) {
        let reached = self.reached_at();
        let known = &self.membership;
        let remotes = merge(known.answered(), known.announced(), &self.found);
        if remotes != self.remotes {
            self.remotes = remotes;
            // A link may be of use that leads there and nowhere else.
            if self.note_links() {
                self.tell_links();
            }
            if let Err(error) = self.apply() {
                tracing::error!("the gateway's new addresses cannot be let through: {error:#}");
            }
        }
        self.tell_remotes(&reached);
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
pub(super) fn merge(
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
