//! What follows from other addresses of the gateway, and when its name is asked for.
//!
//! The name is asked for outside the tunnel: at the start, as soon as nothing carries or this host
//! is on another network, and then every few seconds until something carries; every minute while
//! only a stream does. A gateway that moved while this client was away is found by it, or not at
//! all.

use std::net::SocketAddr;
use std::time::Instant;

use rove_host::resolve;
use rove_host::time::wall_clock;
use rove_os::names::Nat64Prefix;
use rove_proto::id::Transport;
use rove_proto::node::Command;
use rove_proto::outbox::Route;

use super::{Client, Progress};
use crate::nat64::Network;

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
        let (has_names, networks) =
            (resolve::has_names(self.gateway_at.endpoints()), self.gateway_at.untold());
        let has_questions = has_names || !networks.is_empty();
        if wanted && !self.links.ranked().is_empty() && has_questions {
            self.lookups.ask(now);
            let servers = self.applier.outside_servers();
            self.lookups.asks_at(&servers);
            for network in networks {
                self.discovery.ask_network(network, servers.clone());
            }
            if has_names {
                self.resolver.ask(self.gateway_at.endpoints(), servers);
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
        let before = self.gateway_at.reached();
        self.gateway_at.learn(network, prefixes);
        self.tell_remotes(&before);
    }

    /// What the gateway's name stands for, or which name does not resolve.
    pub(super) fn readdress(&mut self, resolved: Result<Vec<SocketAddr>, String>) {
        match resolved {
            Err(name) => self.gateway_at.note_unresolved(name),
            Ok(found) => {
                if self.gateway_at.note_found(found) {
                    self.lookups.fresh();
                } else if !self.is_up {
                    self.lookups.stale(Instant::now());
                }
                self.set_remotes();
            }
        }
    }

    /// The gateway says where it is reached. The core follows by itself; this is for the next start
    /// and for the kill switch.
    pub(super) fn take_announced(&mut self, addresses: &[SocketAddr]) {
        if let Err(error) = self.gateway_at.membership.note_announced(addresses) {
            tracing::error!("the gateway's addresses cannot be stored: {error:#}");
        }
        self.set_remotes();
    }

    /// The session went over to another address, perhaps of the gateway.
    pub(super) fn note_where(&mut self) {
        let Some(route) = self.route_in_use() else { return };
        if route.socket.transport() == Transport::Stream {
            self.lookups.ask_by_stream(Instant::now());
        } else if let Err(error) = self.gateway_at.note_answered(route.remote) {
            tracing::error!("where the gateway is cannot be stored: {error:#}");
        }
    }

    /// The address at which the gateway answers datagrams now. `None` while a stream stands in for
    /// UDP, because a stream leads to another port.
    pub(super) fn remote_in_use(&self) -> Option<SocketAddr> {
        let route = self.route_in_use()?;
        let remote = self.gateway_at.original(route.remote);
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

    /// Gives the core the present addresses of the gateway, in place of `before`.
    pub(super) fn tell_remotes(&self, before: &[SocketAddr]) {
        let remotes = self.gateway_at.reached();
        if remotes != before {
            self.data.command(Command::SetRemotes { peer: self.gateway, remotes });
        }
        // Even if the addresses are the same, their sources may differ, and then streams use other
        // addresses.
        self.set_streams();
    }

    fn set_remotes(&mut self) {
        let reached = self.gateway_at.reached();
        if self.gateway_at.merge() {
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
