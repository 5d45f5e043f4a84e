//! An HTTP proxy on the Internet (CONNECT, RFC 9110, section 9.3.6): it ends a client's connection,
//! begins one of its own to where it is asked to, and passes on what comes by either, no more than
//! the other one gets rid of. Whatever ends one of them ends both.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::end::{Ends, Step, Stream};
use super::{HTTPS, StreamId};
use crate::emu::{LinkId, NodeId};
use crate::world::engine::{GATEWAY, World};
use crate::world::host::Power;
use crate::world::laws::Breach;
use crate::world::parcel::{HostId, Origin};
use crate::world::tcp::Tcp;

/// The proxy's number among hosts, of which it is none: it has no node and no power switch.
pub(in crate::world) const PROXY: HostId = HostId::MAX;
/// Where it listens.
pub(in crate::world) const LISTENS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 3_128);
/// What it is asked, and what it says when it is done: the lengths are what counts.
pub(super) const ASKED: &[u8] = b"CONNECT gateway:443 HTTP/1.1\r\nHost: gateway:443\r\n\r\n";
pub(super) const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
/// Bytes that it holds for a connection before it reads no more of the other one.
const HELD_MAX: usize = 64 << 10;

impl World {
    /// A segment came to the proxy by the connection `id`.
    pub(super) fn relay(&mut self, id: StreamId) -> Result<(), Breach> {
        let Some(stream) = self.streams.all.get_mut(&id) else { return Ok(()) };
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
                if stream.tcp.is_open() {
                    self.tell_granted(other);
                }
                self.pass_on(id, other);
                self.pass_on(other, id);
                self.pump(other)
            }
            _ => Ok(()),
        }
    }

    /// The proxy's own connection, to where the name leads that it was asked for.
    fn reach_out(&mut self, id: StreamId, client: HostId) -> Result<(), Breach> {
        let Some(to) = self.name.iter().find(|at| at.is_ipv4()).copied() else { return Ok(()) };
        let local = SocketAddr::new(LISTENS.ip(), self.streams.next_port());
        let ends: Ends = (PROXY, local, SocketAddr::new(to.ip(), HTTPS));
        let tcp = Tcp::connect(self.now_ns);
        let mut stream = Stream::new(ends, client, tcp, Step::Relaying, self.now_ns);
        stream.other = Some(id);
        let other = self.streams.insert(stream);
        if let Some(stream) = self.streams.all.get_mut(&id) {
            stream.other = Some(other);
        }
        self.pump(other)
    }

    fn tell_granted(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.all.get_mut(&id)
            && stream.step == Step::Reaching
        {
            stream.step = Step::Relaying;
            stream.tcp.write(GRANTED);
        }
    }

    /// What has come by one connection goes on by the other, as far as there is room.
    fn pass_on(&mut self, from: StreamId, to: StreamId) {
        let all = &mut self.streams.all;
        let room = all.get(&to).map_or(0, |to| HELD_MAX.saturating_sub(to.tcp.unsent()));
        let Some(bytes) = all.get_mut(&from).map(|from| from.tcp.read(room)) else { return };
        if let Some(to) = all.get_mut(&to) {
            to.tcp.write(&bytes);
        }
    }

    /// Whether a host does anything.
    pub(super) fn is_up(&self, host: HostId) -> bool {
        host == PROXY || self.hosts[host].power == Power::On
    }

    /// Where a segment leaves, unless the address is gone.
    pub(super) fn way_out(
        &self,
        (host, card): (HostId, usize),
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<(NodeId, LinkId)> {
        if host == PROXY {
            return Some(self.place.proxy);
        }
        let (link, _, _) = self.hosts[host].source(card, from, None, to)?;
        Some((self.place.hosts[host], link))
    }

    /// Whose word a segment of `host` carries: a proxy has none of its own.
    pub(super) fn speaker(&self, host: HostId, client: HostId, to: SocketAddr) -> Origin {
        let to_gateway = self.gateway_addresses().iter().any(|at| at.ip() == to.ip());
        match host {
            PROXY if to_gateway => Origin::Host(client),
            PROXY => Origin::Host(GATEWAY),
            host => Origin::Host(host),
        }
    }
}
