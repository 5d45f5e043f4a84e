//! What the HTTP proxy does with the two connections of a stream that leads through it.

use std::net::SocketAddr;

use super::World;
use crate::emu::{LinkId, NodeId};
use crate::tcp::End;
use crate::world::host::Power;
use crate::world::host_id::HostId;
use crate::world::laws::Breach;
use crate::world::parcel::Origin;
use crate::world::place::MTU;
use crate::world::streams::end::{Ends, Step, Stream, config};
use crate::world::streams::proxy::{ASKED, LISTENS};
use crate::world::streams::{HTTPS, StreamId};

impl World {
    /// A segment came to the proxy by the connection `id`.
    pub(in crate::world) fn relay(&mut self, id: StreamId) -> Result<(), Breach> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        match (stream.step, stream.other) {
            (Step::Asked, _) => {
                stream.partial.extend(stream.tcp.read(usize::MAX));
                if stream.partial.len() < ASKED.len() {
                    return Ok(());
                }
                stream.step = Step::Reaching;
                let client = stream.client;
                self.reach_out(id, client)
            }
            (Step::Relaying, Some(other)) => {
                if stream.is_open() {
                    self.streams.tell_granted(other);
                }
                self.streams.pass_on(id, other);
                self.streams.pass_on(other, id);
                self.pump(other)
            }
            _ => Ok(()),
        }
    }

    /// The proxy's own connection, to where the name leads that it was asked for.
    fn reach_out(&mut self, id: StreamId, client: usize) -> Result<(), Breach> {
        let Some(to) = self.gateways.serving(client).name.iter().find(|at| at.is_ipv4()).copied()
        else {
            return Ok(());
        };
        let local = SocketAddr::new(LISTENS.ip(), self.streams.next_port());
        let ends: Ends = (HostId::Proxy, local, SocketAddr::new(to.ip(), HTTPS));
        let tcp = End::connect(config(ends, MTU, self.now_ns), self.now_ns);
        let mut stream = Stream::new(ends, client, tcp, Step::Relaying, self.now_ns);
        stream.other = Some(id);
        let other = self.streams.insert(stream);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.other = Some(other);
        }
        self.pump(other)
    }

    /// Whether a host does anything.
    pub(in crate::world) fn is_up(&self, host: HostId) -> bool {
        host == HostId::Proxy || self.hosts[host].power == Power::On
    }

    /// Where a segment leaves, unless the address is gone.
    pub(in crate::world) fn way_out(
        &self,
        (host, card): (HostId, usize),
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<(NodeId, LinkId)> {
        if host == HostId::Proxy {
            return Some(self.place.proxy);
        }
        let (link, _, _) = self.hosts[host].source(card, from, None, to)?;
        Some((self.place.hosts[host], link))
    }

    /// Whose word a segment of `host` carries: a proxy has none of its own.
    pub(in crate::world) fn speaker(&self, host: HostId, client: usize, to: SocketAddr) -> Origin {
        let gateway = self.gateways.serving(client).host;
        let to_gateway = self.gateway_addresses(gateway).iter().any(|at| at.ip() == to.ip());
        match host {
            HostId::Proxy if to_gateway => Origin::Host(HostId::Client(client)),
            HostId::Proxy => Origin::Host(gateway),
            HostId::Gateway(_) | HostId::Client(_) => Origin::Host(host),
        }
    }
}
