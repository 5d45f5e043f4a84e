//! Which connections of this host are older than its guard, and what becomes of them. Pure, except
//! for [`Older::take`].
//!
//! Connection tracking begins with the guard, unless another packet filter runs, and takes up a
//! flow in its middle (`nf_conntrack_tcp_loose`). Then the first packet that arrives seems to begin
//! the flow. So the guard needs the host's sockets to tell which end began.
//!
//! - A TCP connection came in if a listener takes connections to its local address and port. Any
//!   other was begun here.
//! - A connected UDP socket began its flow. So did a socket without a connection that is bound to
//!   a link or an address of one, and to a port that the kernel hands out (calls and games have
//!   these). Any other UDP socket waits for whoever comes.
//!
//! Flows that were begun here end if their destination is in the tunnel. TCP connections that came
//! in go on. The guard names a bounded number of flows, so that no user of this host can fill it:
//! the users with the most are named last, by the ports of their flows. Limits: a connection that
//! leaves from a listening port counts as one that came in; one whose listener was closed counts as
//! begun here. Multicast does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use ipnet::IpNet;

use super::{
    Connection, MARK,
    item::{Guard, Item, Target},
    setting,
};
use crate::{
    error::Error,
    netlink::sockets::{self, Protocol, Socket},
};

/// Flows of each kind that the guard names by both ends. Each takes some 100 bytes of the kernel's
/// memory. With fewer, more visitors of busy servers lose their connections. With more, a change of
/// the guard takes longer.
const FLOWS_MAX: usize = 4_096;
/// The user whose flows are named before those of others. Whoever can be root needs no such trick.
const ROOT: u32 = 0;
/// The ports that the kernel hands out to sockets that ask for none (ip-sysctl.rst), and its
/// default.
const PORTS: &str = "ipv4/ip_local_port_range";
const PORTS_DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

/// Sockets whose packets do not use the tunnel, although it leads to their destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// TCP connections that came in on a link, and are answered there.
    pub incoming: usize,
    /// Connections of [`super::Guard::kept`].
    pub kept: usize,
}

/// Flows on links other than the tunnel, to destinations in the tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flows {
    /// TCP connections that this host began.
    pub(crate) tcp: Vec<Connection>,
    /// Connected UDP sockets.
    pub(crate) udp: Vec<Connection>,
    /// UDP sockets that are bound to an address and not connected.
    pub(crate) bound: Vec<SocketAddr>,
    /// Ports of UDP sockets that are bound to a link alone, and of flows that are too many to name.
    pub(crate) ports: Vec<(Protocol, u16)>,
    /// TCP connections that came in.
    pub(crate) incoming: Vec<Connection>,
    /// The first and the last port that the kernel hands out.
    pub(crate) handed_out: (u16, u16),
    /// Connections that stay outside the tunnel on purpose.
    kept: usize,
    /// Connections that end.
    ended: usize,
}

/// Flows with the users that they belong to.
type OfUsers<T> = Vec<(u32, T)>;

impl Flows {
    /// The flows of these sockets. `leads_in` tells whether a destination is in the tunnel.
    fn of(
        sockets: &[Socket],
        guard: &Guard,
        handed_out: &RangeInclusive<u16>,
        leads_in: impl Fn(IpAddr) -> bool,
    ) -> Self {
        let came_in = listeners(sockets);
        let mut flows =
            Self { handed_out: (*handed_out.start(), *handed_out.end()), ..Self::default() };
        let mut ports = Vec::new();
        let (mut tcp, mut udp, mut incoming) = (OfUsers::new(), OfUsers::new(), OfUsers::new());
        let mut bound = OfUsers::new();
        for socket in sockets.iter().filter(|socket| !socket.listens && socket.mark != MARK) {
            let (protocol, user) = (socket.protocol, socket.user);
            let local = SocketAddr::new(socket.local.ip(), socket.local.port());
            let Some(remote) = socket.remote else {
                if protocol == Protocol::Tcp || !handed_out.contains(&local.port()) {
                    continue;
                } else if local.ip().is_unspecified() && socket.is_on_device {
                    ports.push((protocol, local.port()));
                } else if is_on_link(local.ip()) && !guard.addresses.contains(&local.ip()) {
                    bound.push((user, local));
                }
                continue;
            };
            let connection =
                Connection { local, remote: SocketAddr::new(remote.ip(), remote.port()) };
            let is_beside = is_on_link(local.ip()) && !guard.addresses.contains(&local.ip());
            if !is_beside || !is_on_link(remote.ip()) || !leads_in(remote.ip()) {
                continue;
            } else if guard.opening.kept.contains(&connection) {
                flows.kept += 1;
            } else if protocol == Protocol::Udp {
                udp.push((user, connection));
            } else if guard.keep_incoming && came_in(local) {
                incoming.push((user, connection));
            } else {
                tcp.push((user, connection));
            }
        }
        let mut named = |protocol, flows: OfUsers<Connection>| {
            let (named, rest) = share(flows);
            ports.extend(rest.iter().map(|flow| (protocol, flow.local.port())));
            (named.len() + rest.len(), named)
        };
        let ended;
        (flows.ended, flows.tcp) = named(Protocol::Tcp, tcp);
        (ended, flows.udp) = named(Protocol::Udp, udp);
        flows.ended += ended;
        let (bound, rest) = share(bound);
        ports.extend(rest.iter().map(|local| (Protocol::Udp, local.port())));
        unique(&mut ports);
        (flows.bound, flows.ports) = (bound, ports);
        // The rest of these ends.
        (flows.incoming, _) = share(incoming);
        flows
    }
}

/// Tells whether a listener takes TCP connections to a local address.
fn listeners(sockets: &[Socket]) -> impl Fn(SocketAddr) -> bool {
    let listening = sockets.iter().filter(|socket| socket.listens);
    let listening: BTreeSet<(SocketAddr, bool)> =
        listening.map(|socket| (socket.local, socket.v6_only)).collect();
    move |local: SocketAddr| {
        let has = |ip, v6_only| listening.contains(&(SocketAddr::new(ip, local.port()), v6_only));
        let [any_v4, any_v6]: [IpAddr; 2] = [[0; 4].into(), [0; 16].into()];
        let of_family = if local.is_ipv4() { has(any_v4, false) } else { has(any_v6, true) };
        of_family || has(any_v6, false) || has(local.ip(), false) || has(local.ip(), true)
    }
}

/// The flows that the guard names, and the rest. Root's come first, then those of the users with
/// the fewest, so that no user's flows take the room of others.
fn share<T: Ord>(mut flows: OfUsers<T>) -> (Vec<T>, Vec<T>) {
    unique(&mut flows);
    let mut counts = BTreeMap::<u32, usize>::new();
    for (user, _) in &flows {
        *counts.entry(*user).or_default() += 1;
    }
    flows.sort_by_key(|(user, _)| (*user != ROOT, counts.get(user).copied()));
    let mut named: Vec<T> = flows.into_iter().map(|(_, flow)| flow).collect();
    let mut rest = named.split_off(named.len().min(FLOWS_MAX));
    // Sockets may share their addresses, and a set has no entry twice.
    unique(&mut named);
    unique(&mut rest);
    (named, rest)
}

fn unique<T: Ord>(entries: &mut Vec<T>) {
    entries.sort();
    entries.dedup();
}

/// Whether packets from or to the address leave this host, by a router.
fn is_on_link(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let is_elsewhere = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !is_link_local && !is_elsewhere
}

/// Whether the routes among `items` lead into the tunnel.
pub(super) fn leads_in<'a>(items: impl Iterator<Item = &'a Item>, to: IpAddr) -> bool {
    let mut best: Option<(u8, bool)> = None;
    let mut note = |net: &IpNet, is_inside: bool| {
        if net.contains(&to) && best.is_none_or(|(length, _)| length <= net.prefix_len()) {
            best = Some((net.prefix_len(), is_inside));
        }
    };
    for item in items {
        if let Item::Excluded { nets, .. } = item {
            nets.iter().for_each(|net| note(net, false));
        } else if let Item::Route { net, target } = item
            && !matches!(target, Target::Replies(_))
        {
            note(net, !matches!(target, Target::Throw | Target::Link(_)));
        }
    }
    best.is_some_and(|(_, is_inside)| is_inside)
}

/// The flows from before the guard, as long as the guard has the same destinations and no network
/// past the tunnel is taken away. A guard that is only put back must not end what came in since.
#[derive(Debug, Default)]
pub(super) struct Older {
    taken: Option<Taken>,
    /// Why the sockets are not known. Then the guard answers no new connection from outside.
    unread: Option<Error>,
}

#[derive(Debug)]
struct Taken {
    destinations: [Vec<IpNet>; 2],
    /// Networks of this host's links that stay on these.
    local: Vec<IpNet>,
    flows: Flows,
}

impl Older {
    /// Reads the host's sockets for a guard that is to be installed, unless that is done. `items`
    /// are those of its plan.
    pub(super) fn take(&mut self, guard: &Guard, items: &[&Item]) {
        let destinations = [guard.routes.clone(), guard.opening.destinations.clone()];
        let local: Vec<IpNet> = items.iter().filter_map(|item| item.on_link()).collect();
        let is_known = |taken: &Taken| {
            let is_left = |net: &IpNet| local.contains(net);
            taken.destinations == destinations && taken.local.iter().all(is_left)
        };
        if let Some(taken) = self.taken.as_mut().filter(|taken| is_known(taken)) {
            taken.local = local;
            return;
        }
        self.taken = None;
        match read(guard, items) {
            Ok(flows) => {
                (self.taken, self.unread) = (Some(Taken { destinations, local, flows }), None);
            }
            Err(error) => self.unread = Some(error),
        }
    }

    pub(super) fn flows(&self) -> Option<&Flows> {
        self.taken.as_ref().map(|taken| &taken.flows)
    }

    pub(super) fn ended(&self) -> usize {
        self.flows().map_or(0, |flows| flows.ended)
    }

    pub(super) fn unread(&self) -> Option<&Error> {
        self.unread.as_ref()
    }
}

fn read(guard: &Guard, items: &[&Item]) -> Result<Flows, Error> {
    let ports = setting::read(PORTS).ok().and_then(|text| {
        let mut ends = text.split_whitespace().map(str::parse);
        Some(ends.next()?.ok()?..=ends.next()?.ok()?)
    });
    let ports = ports.unwrap_or(PORTS_DEFAULT);
    let leads_in = |to| leads_in(items.iter().copied(), to);
    Ok(Flows::of(&sockets::read()?, guard, &ports, leads_in))
}

/// The sockets that pass by the tunnel now, behind this guard.
pub(super) fn beside(guard: &Guard, items: &[&Item], kill_switch: bool) -> Result<Beside, Error> {
    let flows = read(guard, items)?;
    let incoming = if kill_switch { 0 } else { flows.incoming.len() };
    Ok(Beside { incoming, kept: flows.kept })
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
