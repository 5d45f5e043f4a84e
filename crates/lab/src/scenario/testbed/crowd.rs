//! The clients beside the first: each a host with one card in a network of its own. They stay where
//! they are, and wait to be called by the server.

use super::{FLOW_PORT, METRIC, Testbed, accepted};
use crate::emu::{NatConfig, NatKind};
use crate::ground::{Edge, Terrain};
use crate::netns::{HostId, Process};
use crate::programs::FlowRequest;
use crate::scenario::addresses::{Family, SERVER, Site};
use anyhow::ensure;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most clients, the first one included: the machine runs two programs for each.
const CLIENTS_MAX: usize = 200;
/// The host number of a NAT box's outside address in the network of a client.
const OUTSIDE_HOST: u32 = 77;

/// A client of the crowd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member(HostId);

impl Testbed {
    /// Builds the clients beside the first, whose networks are like its first one.
    ///
    /// # Errors
    /// What the kernel refused, or that they are too many.
    pub(super) fn add_crowd(&mut self, terrain: &Terrain) -> anyhow::Result<()> {
        ensure!(
            terrain.clients <= CLIENTS_MAX,
            "more than {CLIENTS_MAX} clients are told in virtual time only"
        );
        let is_nat = matches!(terrain.edge, Edge::Nat { .. });
        let alone = terrain.clients <= 1;
        ensure!(
            alone || !is_nat || self.family == Family::V4,
            "several clients behind NAT boxes are told with family=4 only"
        );
        for number in (0..).take(terrain.clients.saturating_sub(1)) {
            let host = self.network.add_host(&format!("client-{}", u32::from(number) + 2))?;
            let card = self.network.add_card(host, "wlan0")?;
            let site = Site::Crowd(number);
            let (site, nat) = match terrain.edge {
                Edge::Any | Edge::Open => (site, None),
                // Networks behind boxes may have the same addresses.
                Edge::Nat { filtering, expiry_ns } => {
                    let outside = outside_of(number);
                    let nat = NatConfig::new(NatKind::PortRestricted, vec![outside]);
                    (Site::BehindHome, Some(NatConfig { filtering, expiry_ns, ..nat }))
                }
            };
            let subnets = site.subnets(self.family);
            let access = self.network.add_access(host, terrain.link.clone(), &subnets, nat)?;
            self.network.plug(card, access, &site.host(self.family, 0), METRIC)?;
            self.crowd.push(Member(host));
        }
        Ok(())
    }

    /// The hosts of the clients beside the first.
    pub fn crowd(&self) -> impl ExactSizeIterator<Item = HostId> + '_ {
        self.crowd.iter().map(|member| member.0)
    }

    /// Lets the server send a steady flow to each client beside the first, and waits until all have
    /// subscribed; none for who was not answered.
    ///
    /// # Errors
    /// When a program fails.
    pub fn subscribe_crowd(&self, request: &FlowRequest) -> io::Result<Vec<Option<Process>>> {
        let flow = SocketAddr::from((SERVER, FLOW_PORT)).to_string();
        let start = |host| self.start_subscriber(host, &flow, request);
        let started: Vec<_> = self.crowd().map(start).collect::<Result<_, _>>()?;
        started.into_iter().map(accepted).collect()
    }
}

/// The outside address of the NAT box of this client.
fn outside_of(number: u8) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 65, number, 0)) + OUTSIDE_HOST).into()
}
