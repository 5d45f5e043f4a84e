//! The state of a gateway's host for its status: what differs from the plan, whether packets of
//! clients leave, and how many connections the kernel tracks.
//!
//! A probe shows whether packets leave: a packet like a client's goes into the tunnel's interface,
//! and [`rove_os::probe`] finds where it ends. It is sent only when somebody asks for the status.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use rove_api::{Connections, GatewayHost, GatewayStatus, Leaves, Problem};
use rove_host::problems::Finding;
use rove_host::time::wall_clock;
use rove_host::values::{HostIndex, Networks};
use rove_os::conntrack;
use rove_os::error::Error;
use rove_os::plan::{Obstacle, Part};
use rove_os::probe::{End, Probe};

use super::Daemon;
use super::ends::{Ends, of_ends};
use crate::ledger::Registry;

/// Addresses that are tried for one that no client has.
const TRIES: u32 = 1_024;
/// The table of connections counts as nearly full from so many hundredths on.
const NEARLY_FULL: u64 = 90;

impl Daemon {
    /// Adds the present state of the host.
    pub(super) fn add_host(&mut self, status: &mut GatewayStatus) {
        let device = self.gateway.config.interface.to_string();
        let ends = self.probe(&device).unwrap_or_else(|error| {
            tracing::debug!(%error, "no probe of the packet filters was possible");
            None
        });
        let tracked = conntrack::tracked();
        let dated = ends.as_ref().map(|ends| self.ended.date(ends, wall_clock().0));
        let dated = dated.map_or_else(Vec::new, |dated| of_ends(&dated, &device));
        let mut findings: Vec<Finding> = dated.iter().map(|(finding, _)| finding.clone()).collect();
        let is_nearly_full = |one: &conntrack::Tracked| one.connections >= nearly_full(one.max);
        let full = tracked.filter(is_nearly_full);
        findings.extend(full.map(|full| Finding::of_connections(full.connections, full.max)));
        let named: Vec<String> = findings.iter().map(|finding| finding.what.clone()).collect();
        // The probe knows better whether a chain drops what clients send, but not what it does with
        // replies.
        let counts = |obstacle: &Obstacle| match obstacle {
            Obstacle::Forward { chain, is_stateful } => {
                let is_known = *is_stateful || named.iter().any(|what| what.contains(chain));
                ends.is_none() || !is_known
            }
            Obstacle::Bypass { .. }
            | Obstacle::Refusal { .. }
            | Obstacle::Marked { .. }
            | Obstacle::NoShares => true,
        };
        let look = self.host.look_beside(&mut self.applier, &device, findings, counts);
        let share = self.plan.firewall.as_ref().and_then(|firewall| firewall.share);
        status.host = Some(GatewayHost {
            nat: self.gateway.config.nat && look.is_whole(Part::Filter),
            forwarding: look.is_whole(Part::Setting),
            leaves: ends.as_ref().map(leaves),
            connections: tracked.map(|tracked| Connections {
                tracked: tracked.connections,
                max: tracked.max,
                share,
            }),
        });
        status.problems.extend(look.problems.into_iter().map(|problem| {
            let own = dated.iter().find(|(finding, _)| finding.what == problem.what);
            Problem { since: own.map_or(problem.since, |(_, since)| *since), ..problem }
        }));
    }

    /// Sends a probe; `None` if the data thread did not take it.
    fn probe(&self, device: &str) -> Result<Option<Ends>, Error> {
        let sources = sources(&self.gateway.config.networks, self.gateway.ledger.registry());
        let probe = Probe::begin(device, sources)?;
        let is_sent = self.data.inject(probe.packets());
        let ends = probe.end()?;
        Ok(is_sent.then_some(ends))
    }
}

/// An address of each inner network, of no client if there is one. The kernel may send it errors,
/// which then nobody gets.
fn sources(networks: &Networks, registry: &Registry) -> Vec<IpAddr> {
    let enrolled = registry.peers().filter(|peer| peer.is_enrolled());
    let leases = enrolled.filter_map(|peer| registry.lease(peer));
    let leases = leases.chain(networks.lease(HostIndex::GATEWAY));
    let taken: BTreeSet<IpAddr> =
        leases.flat_map(|lease| lease.addresses().collect::<Vec<_>>()).collect();
    let free = |net: IpNet| {
        let mut last = (1..TRIES).map_while(|back| from_the_end(net, back));
        let first = last.next();
        first
            .filter(|first| !taken.contains(first))
            .or_else(|| last.find(|address| !taken.contains(address)).or(first))
    };
    networks.iter().filter_map(free).collect()
}

/// The address so many places before the last of a network, which in IPv4 is its broadcast address;
/// none before the first host.
fn from_the_end(net: IpNet, back: u32) -> Option<IpAddr> {
    let address: IpAddr = match net {
        IpNet::V4(net) => {
            let last = net.broadcast().to_bits();
            last.checked_sub(back).map(|bits| std::net::Ipv4Addr::from_bits(bits).into())?
        }
        IpNet::V6(net) => {
            let last = net.broadcast().to_bits();
            last.checked_sub(back.into()).map(|bits| std::net::Ipv6Addr::from_bits(bits).into())?
        }
    };
    (net.contains(&address) && address != net.network()).then_some(address)
}

const fn nearly_full(max: u64) -> u64 {
    max.saturating_mul(NEARLY_FULL) / 100
}

fn leaves(ends: &Ends) -> Leaves {
    let of = |v6: bool| {
        let end = ends.iter().find(|(source, _)| source.is_ipv6() == v6);
        end.map(|(_, end)| *end == End::Left)
    };
    Leaves { ipv4: of(false), ipv6: of(true) }
}

#[cfg(test)]
#[path = "surroundings_tests.rs"]
mod tests;
